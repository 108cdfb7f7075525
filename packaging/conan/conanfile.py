# A recipe for Conan 2, for `conan create` in a clone: it takes the sources that it lies among, and builds them by CMakeLists.txt.
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, CMakeDeps, cmake_layout
from conan.tools.files import copy, load, rmdir


class Sumi(ConanFile):
    name = "sumi"
    license = "MIT"
    description = "Image diffusion inside a host program"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"cuda": [True, False], "hopper": [True, False], "gpus": ["ANY"], "families": ["ANY"]}
    default_options = {"cuda": False, "hopper": True, "gpus": "all", "families": ""}  # gpus: all, native, or 8.6,12.0; families: of z-image,qwen-image,qwen-image-21,newbie,flux2-klein; empty: all

    @property
    def root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self.root, "include", "sumi.h"))
        self.version = ".".join(re.search(rf"#define SUMI_VERSION_{part}\s+(\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH"))

    def export_sources(self):
        for folder in ("include", "src", "kernels", "packaging"):
            copy(self, f"{folder}/*", self.root, self.export_sources_folder)
        for name in ("CMakeLists.txt", "LICENSE"):
            copy(self, name, self.root, self.export_sources_folder)

    def configure(self):
        self.settings.rm_safe("compiler.libcxx")  # it is C
        self.settings.rm_safe("compiler.cppstd")

    def validate(self):
        if self.settings.compiler == "msvc":
            raise ConanInvalidConfiguration("sumi needs clang on Windows, Visual Studio's own or another")

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("utf8proc/[>=2.8]")
        if self.options.cuda:
            self.requires("zlib/[>=1.2.11 <2]")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["SUMI_CUDA"] = "ON" if self.options.cuda else "OFF"
        toolchain.cache_variables["SUMI_HOPPER"] = "ON" if self.options.hopper else "OFF"
        toolchain.cache_variables["SUMI_GPUS"] = str(self.options.gpus)
        toolchain.cache_variables["SUMI_FAMILIES"] = str(self.options.families)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for folder in ("lib/cmake", "lib/pkgconfig", "share"):  # Conan writes its own
            rmdir(self, os.path.join(self.package_folder, folder))

    def package_info(self):
        self.cpp_info.libs = ["sumi"]
        if self.settings.os != "Windows":
            self.cpp_info.system_libs = ["m", "pthread", "dl"]
        self.cpp_info.set_property("cmake_file_name", "sumi")
        self.cpp_info.set_property("cmake_target_name", "sumi::sumi")
        self.cpp_info.set_property("pkg_config_name", "sumi")
