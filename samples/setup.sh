#!/usr/bin/env bash
# Installs what building sumi needs on Debian 12, and does nothing when it is all there. usage: samples/setup.sh [build|kernels|viewer|vulkan|tests]
#   build     compiler, make, Premake 4, pkg-config, utf8proc, libspng, zlib, libjpeg, libwebp; on a machine with an NVIDIA device also what `kernels` brings
#   kernels   the same and CUDA's compiler from PyPI into build/cuda (271 MB), unless there is one
#   viewer    what `build` brings, a C++ compiler, GLFW, Dear ImGui and a font: for samples/apps/viewer
#   vulkan    what `build` brings, Vulkan's headers and loader, and the Khronos validation layer: for samples/vulkan
#   tests     what `kernels`, `viewer` and `vulkan` bring, clang with its sanitizers, fuzzer and formatter, a virtual screen with keys and a mouse, Mono, CMake, Meson, Valgrind and Git;
#             in a clone it sets .githooks, which look at the subjects of commits
# Without CUDA's compiler the build leaves the CUDA backend out; so when it cannot be fetched, that is said and no failure.
set -euo pipefail
what=${1:-build}

have() { command -v "$1" >/dev/null 2>&1; }
cd "$(dirname "$0")/.."
wants_kernels=
if [ "$what" = kernels ] || [ "$what" = tests ] || [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then wants_kernels=1; fi # dxg: Windows' device in WSL
have_nvcc() { have nvcc || [ -x /usr/local/cuda/bin/nvcc ] || [ -x build/cuda/nvidia/cu13/bin/nvcc ]; }
have_header() { echo "#include <$1>" | cc -fsyntax-only -x c - >/dev/null 2>&1; }
have_jpeg_header() { printf '#include <stdio.h>\n#include <jpeglib.h>\n' | cc -fsyntax-only -x c - >/dev/null 2>&1; } # it needs stdio.h before it

missing=()
have gcc  || missing+=(gcc libc6-dev)
have g++  || { [ "$what" = build ] && [ -z "$wants_kernels" ]; } || missing+=(g++)
have cc   || missing+=(gcc)
have make || missing+=(make)
have premake5 || have premake4 || missing+=(premake4)
have pkg-config || missing+=(pkg-config)
have_header stdio.h    || missing+=(libc6-dev)
have_header utf8proc.h || missing+=(libutf8proc-dev)
have_header spng.h     || missing+=(libspng-dev)
have_header zlib.h     || missing+=(zlib1g-dev)
have_jpeg_header || missing+=(libjpeg-dev)
have_header webp/mux.h || missing+=(libwebp-dev)
[ -z "$wants_kernels" ] || have_nvcc || python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
if [ "$what" = viewer ] || [ "$what" = tests ]; then
    have pkg-config && pkg-config --exists glfw3 gl   || missing+=(libglfw3-dev) # OpenGL's headers come with it
    have pkg-config && pkg-config --exists imgui      || missing+=(libimgui-dev)
    [ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || missing+=(fonts-dejavu-core)
fi
if [ "$what" = vulkan ] || [ "$what" = tests ]; then
    have_header vulkan/vulkan.h || missing+=(libvulkan-dev)
    [ -e /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ] || missing+=(vulkan-validationlayers)
    compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || compgen -G '/etc/vulkan/icd.d/*.json' >/dev/null || missing+=(mesa-vulkan-drivers)
fi
if [ "$what" = tests ]; then
    have Xvfb    || missing+=(xvfb)
    have xdotool || missing+=(xdotool)
    have cmake   || missing+=(cmake)
    have meson   || missing+=(meson) # brings Ninja
    have valgrind || missing+=(valgrind) # counts the instructions of hosts
    have git     || missing+=(git)   # the wrap for Meson is fetched by it
    have mcs && have mono || missing+=(mono-mcs mono-runtime libmono-system-core4.0-cil)
    have clang || missing+=(clang)
    have clang-format || missing+=(clang-format)
    runtime=$(clang -print-file-name=libclang_rt.fuzzer-x86_64.a 2>/dev/null || true)
    [ -e "$runtime" ] || ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 || missing+=(libclang-rt-dev)
fi

fetch_nvcc() {
    [ -n "$wants_kernels" ] && ! have_nvcc || return 0
    local log=build/log/set-up-cuda.txt package packages=()
    mkdir -p build/log
    for package in cuda-nvcc cuda-crt nvvm cuda-runtime cuda-cccl; do packages+=("nvidia-$package==13.0.*"); done
    # Into a new folder, which gets its name when it is whole.
    rm -rf build/cuda build/cuda.new
    if python3 -m pip install --disable-pip-version-check --no-deps --target build/cuda.new "${packages[@]}" >"$log" 2>&1 && mv build/cuda.new build/cuda; then
        echo "set-up: fetched CUDA's compiler into build/cuda"
    else
        echo "set-up: CUDA's compiler could not be fetched from PyPI (see $log): the build will leave the CUDA backend out" >&2
    fi
}

# Who tests probably commits, too: .githooks/commit-msg looks at the subject. Hooks that are there already stay.
install_hook() {
    local hooks
    [ "$what" = tests ] && have git && hooks=$(git rev-parse --git-path hooks 2>/dev/null) || return 0
    [ -z "$(git config core.hooksPath)" ] && [ -z "$(ls "$hooks" 2>/dev/null | grep -v '\.sample$')" ] || return 0
    git config core.hooksPath .githooks && echo "set-up: Git's hooks are those of .githooks now (git config --unset core.hooksPath takes them away)"
}

if [ ${#missing[@]} -eq 0 ]; then
    if [ -z "$wants_kernels" ] || have_nvcc; then echo "set-up: everything is there"; fi
    fetch_nvcc
    install_hook
    exit 0
fi
packages=$(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')
if ! have apt-get; then
    echo "set-up: missing $packages(Debian's names): install them with this system's package manager" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    have sudo || { echo "set-up: as root, run: apt-get install $packages" >&2; exit 1; }
    as_root=(sudo)
fi
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    echo "set-up: apt-get could not install: $packages(all of its output: $log)" >&2
    exit 1
fi
rm -f "$log"
echo "set-up: installed $packages"
fetch_nvcc
install_hook
