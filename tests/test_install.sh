#!/usr/bin/env bash
# Hosts of every kind find and link the library: installed and moved, as a part of their own build, as one archive, with parts left out. usage: tests/test_install.sh build/.../release
#
#   TEST_CONAN=1   also by Conan 2, in the cache of CONAN_HOME or a new one. Conan fetches utf8proc from its repository unless it is in the cache
#   VCPKG_ROOT     also by the vcpkg there, which fetches utf8proc unless VCPKG_OVERLAY_PORTS has a port for it
#
# A host is tests/consumer/host.c; all of them have to draw the same picture. The last line is "install: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
source=$PWD
build=$(cd "${1:-build/release}" && pwd)
configuration=$(basename "$build") makefiles=$(dirname "$build")
model=samples/demo_model
jobs=${JOBS:-$(nproc)}
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=$folder/out
# Some of the builds below compile the same; Meson uses ccache by itself.
if command -v ccache >/dev/null; then export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_NOHASHDIR=1; fi
unset PKG_CONFIG_PATH CMAKE_PREFIX_PATH sumi_DIR DESTDIR PREFIX LIBDIR INCLUDEDIR MAKEFLAGS MAKELEVEL

# A compiler with -O1 where a build asks for -O3 or -O2, and without symbols: half of the time, and what is looked at in the builds that have it is the same. At -O1 gcc takes arrays that are filled in a loop for
# uninitialised.
printf '#!/bin/bash\nexec %s cc "${@/#-O[23]/-O1}" -g0 -Wno-maybe-uninitialized\n' "$(command -v ccache)" >"$folder/cc"
chmod +x "$folder/cc"

check() { # what, command ...
    local what=$1 status=0; shift
    "$@" >"$out.new" 2>&1 || status=1
    [ ! -s "$out.new" ] || mv "$out.new" "$out" # what says nothing (grep) leaves the last program's words there
    if [ $status -eq 0 ]; then passed=$((passed + 1)); return 0; fi
    failed=$((failed + 1))
    echo "FAILED: $what"
    tail -n 12 "$out" | sed 's/^/  /'
    return 1
}
refused() { # what, pattern, command ...: fails with a sentence
    local what=$1 pattern=$2; shift 2
    if "$@" >"$out" 2>&1; then check "$what" false; else check "$what" grep -qE -- "$pattern" "$out"; fi
}
skip() { echo "skip: $1"; skipped=$((skipped + 1)); }
have() { command -v "$1" >/dev/null; }

picture= # of the first host
draws() { # what, host
    check "$1: it starts and draws" env -u LD_LIBRARY_PATH "$2" $model || return
    [ -n "$picture" ] || picture=$(cat "$out")
    check "$1: the same picture" grep -qxF "$picture" "$out"
}
host() { # what, compiler line ...: builds $folder/host and runs it
    local what=$1; shift
    rm -f "$folder/host"
    check "$what: it compiles" "$@" -o "$folder/host" && draws "$what" "$folder/host"
}

# ---- Installed by make ----------------------------------------------------------------------------------------------------------------
install_to() { make -C "$makefiles" install config="$configuration" "$@"; }
refused "a relative prefix is refused" "absolute path" install_to PREFIX=somewhere
refused "a library folder outside of the prefix is refused" "have to be in PREFIX" install_to PREFIX=/opt/sumi LIBDIR=/usr/lib
check "DESTDIR" install_to PREFIX=/opt/sumi LIBDIR=/opt/sumi/lib/x86_64-linux-gnu DESTDIR="$folder/staged"
check "DESTDIR: in LIBDIR" test -e "$folder/staged/opt/sumi/lib/x86_64-linux-gnu/libsumi.a" -a -e "$folder/staged/opt/sumi/lib/x86_64-linux-gnu/pkgconfig/sumi.pc"
check "DESTDIR: does not stand in the files" sh -c "! grep -rIl '$folder' '$folder/staged'"
check "the prefix does not stand in them either" sh -c "! grep -rIl '/opt/sumi' '$folder/staged'"
check "install" install_to PREFIX="$folder/installed"
mkdir "$folder/elsewhere"
check "install-program" make -C "$makefiles" config="$configuration" install-program PREFIX="$folder/program"
check "install-program: the program runs" "$folder/program/bin/sumi" --version
check "install-program: the manual page" grep -q '^.TH SUMI 1' "$folder/program/share/man/man1/sumi.1"
check "uninstall-program" make -C "$makefiles" config="$configuration" uninstall-program PREFIX="$folder/program"
check "uninstall-program: nothing is left" sh -c "! find '$folder/program' -type f | grep -q ."
mv "$folder/installed" "$folder/elsewhere/moved"
moved=$folder/elsewhere/moved
check "the licence is there" cmp LICENSE "$moved/share/licenses/sumi/LICENSE"
for header in sumi.h sumi_xml.h; do check "the header $header is there" cmp "include/$header" "$moved/include/$header"; done
# A build for Windows, of which only the names count.
mkdir -p "$folder/windows/lib" "$folder/windows/plugin" "$folder/windows/bin"
touch "$folder/windows/lib/libsumi.a" "$folder/windows/plugin/sumi.dll" "$folder/windows/bin/sumi.exe"
chmod +x "$folder/windows/bin/sumi.exe"
to_windows() { NEEDS= SYSTEM=m PREFIX="$folder/for_windows" packaging/install.sh "$1" "$folder/windows"; } # verb
refused "a build for Windows without an import library is refused" "no import library" to_windows install
touch "$folder/windows/plugin/libsumi.a" "$folder/windows/plugin/sumi.lib"
check "a build for Windows" to_windows install && check "a build for Windows: the program" to_windows install-program
check "a build for Windows: its files" diff <(printf '%s\n' bin/sumi.dll bin/sumi.exe lib/libsumi.a lib/libsumi.dll.a lib/sumi.lib) <(cd "$folder/for_windows" && find bin lib -maxdepth 1 -type f | LC_ALL=C sort)
check "a build for Windows: -lsumi is the import library" grep -qx 'Libs: -L${libdir} -lsumi -lm' "$folder/for_windows/lib/pkgconfig/sumi.pc"
check "a build for Windows: gone again" to_windows uninstall && check "a build for Windows: the program, too" to_windows uninstall-program && check "a build for Windows: nothing is left" sh -c "! find '$folder/for_windows' -type f | grep ."
version=$(sed -nE 's/^#define SUMI_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+).*/\2/p' include/sumi.h | paste -sd.)
short=${version%.*}

compile() { PKG_CONFIG_PATH=$1/lib/pkgconfig sh -c "cc -std=c11 tests/consumer/host.c \$(pkg-config --cflags --libs sumi) -o $3"; }
check "pkg-config: the version" sh -c "PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config --modversion sumi | grep -xF $version"
host "pkg-config" compile "$moved"
for staged in "$folder/staged/opt/sumi"; do
    check "pkg-config: a deeper folder" sh -c "PKG_CONFIG_PATH=$staged/lib/x86_64-linux-gnu/pkgconfig pkg-config --cflags sumi | xargs -n 1 | grep '^-I' | cut -c3- | xargs -I D test -e D/sumi.h"
done

# ---- CMake ----------------------------------------------------------------------------------------------------------------------------
consume() { cmake -S tests/consumer -B "$folder/$1" "${@:2}" && cmake --build "$folder/$1" -j"$jobs"; } # folder, options ...
if ! have cmake; then
    skip "cmake is not here: find_package, FetchContent"
else
    check "find_package" consume cmake_found -DCMAKE_PREFIX_PATH="$moved" && draws "find_package" "$folder/cmake_found/host"
    check "find_package: of the moved folder" grep -q "^sumi_DIR:PATH=$moved/" "$folder/cmake_found/CMakeCache.txt"
    if [ -e "$moved/lib/libsumi.so" ]; then
        draws "sumi::shared" "$folder/cmake_found/host_shared"
        check "sumi::shared: it is linked" sh -c "ldd $folder/cmake_found/host_shared | grep -F $moved/lib/libsumi.so"
        check "sumi::sumi is the archive" sh -c "! ldd $folder/cmake_found/host | grep libsumi"
    else skip "sumi::shared: the build has no shared library (--shared)"; fi
    refused "find_package: another minor version is refused" 'version' consume cmake_old -DCMAKE_PREFIX_PATH="$moved" -DSUMI_VERSION_WANTED=0.1
    refused "find_package: a newer patch version is refused" 'version' consume cmake_new -DCMAKE_PREFIX_PATH="$moved" -DSUMI_VERSION_WANTED="$short.999"

    # As a part of the host's own build; with its rules for installing, which an installation by CMake alone has too.
    part=(-DSUMI_SOURCE="$source" -DSUMI_CUDA=OFF -DSUMI_WERROR=ON -DSUMI_INSTALL=ON -DCMAKE_BUILD_TYPE=Release)
    if check "FetchContent" consume cmake_part "${part[@]}"; then
        draws "FetchContent" "$folder/cmake_part/host"
        archive=$(find "$folder/cmake_part" -name libsumi.a)
        check "installed by CMake" cmake --install "$folder/cmake_part" --prefix "$folder/by_cmake"
        mv "$folder/by_cmake" "$folder/elsewhere/by_cmake"
        check "installed by CMake: the same files" diff <(cd "$moved" && find . -type f | grep -v 'libsumi.so' | sort) <(cd "$folder/elsewhere/by_cmake" && find . -type f | grep -v 'sumiTargets-release.cmake' | sort)
        check "installed by CMake: its folder does not stand in the files" sh -c "! grep -rIl '$folder/by_cmake' '$folder/elsewhere/by_cmake'"
        host "installed by CMake, pkg-config" compile "$folder/elsewhere/by_cmake"
        check "installed by CMake, find_package" consume cmake_again -DCMAKE_PREFIX_PATH="$folder/elsewhere/by_cmake" && draws "installed by CMake, find_package" "$folder/cmake_again/host"
        # The archive has what Premake's has, src/cuda aside.
        objects() { ar t "$1" | sed 's/\.c\.o$/.o/' | grep -vxFf <(ls src/cuda | sed -n 's/\.c$/.o/p'; echo kernel_images.o) | sort; }
        check "CMake's archive has Premake's objects" diff <(objects "$archive") <(objects "$build/lib/libsumi.a")
        check "CMake's archive hides and names its symbols" tests/check_symbols.sh "$archive"
        check "CMake's shared library is not made unless it is named" sh -c "! find '$folder/cmake_part' -name 'libsumi.so' | grep ."
        if check "CMake's sumi::shared" consume cmake_part "${part[@]}" -DWITH_SHARED=ON; then
            draws "CMake's sumi::shared" "$folder/cmake_part/host_shared"
            shared=$(find "$folder/cmake_part" -name libsumi.so)
            check "CMake's sumi::shared: it is linked" sh -c "ldd '$folder/cmake_part/host_shared' | grep -F '$shared'"
            check "CMake's sumi::shared: it shows the header's functions alone" tests/check_symbols.sh "$archive" "$shared"
        fi
    fi
fi

# ---- GPU kernels, by a compiler that only counts ---------------------------------------------------------------------------------------
if have cmake; then
    mkdir -p "$folder/tree/kernels" "$folder/toolkit/bin" "$folder/toolkit/include"
    cp -r CMakeLists.txt LICENSE include src packaging "$folder/tree"
    cp kernels/*.h kernels/*.cuh kernels/pack.c kernels/build.sh kernels/{gemm_int8,norms,upload_fp8}.cu "$folder/tree/kernels"
    touch "$folder/toolkit/include/cudaTypedefs.h"
    cat >"$folder/toolkit/bin/nvcc" <<'TOOL'
#!/bin/bash
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.0"; exit; fi
for argument; do
    case $previous in -o) output=$argument ;; esac
    case $argument in *broken.cu) echo "broken.cu(1): error: this is not CUDA" >&2; exit 1 ;; *.cu) echo "$argument" >>"${0%/*}/compiled" ;; esac
    previous=$argument
done
sleep 0.1
printf '.version 9.0\n.visible .entry sumi_%s(\n' "$(basename "$output" | cut -d. -f1)" >"$output"
TOOL
    cat >"$folder/toolkit/bin/ptxas" <<'TOOL'
#!/bin/bash
if [ "$1" = --help ]; then echo "'sm_80','sm_86','sm_89','sm_90','sm_90a','sm_100','sm_100a'"; exit; fi
for argument; do [ "$previous" != -o ] || echo >"$argument"; previous=$argument; done
echo "$@" >>"${0%/*}/assembled"
TOOL
    chmod +x "$folder"/toolkit/bin/*
    kernels_of() { # folder of a build, options
        cmake -S tests/consumer -B "$folder/$1" -DSUMI_SOURCE="$folder/tree" -DSUMI_CUDA=ON -DSUMI_NVCC="$folder/toolkit/bin/nvcc" -DCMAKE_BUILD_TYPE=Release "${@:2}" && cmake --build "$folder/$1" --target sumi_kernels
    }
    two_builds() {
        local first status=0
        kernels_of kernels_a >"$folder/kernels_a.txt" 2>&1 &
        first=$!
        kernels_of kernels_b >"$folder/kernels_b.txt" 2>&1 || status=1
        wait $first || status=1
        cat "$folder"/kernels_[ab].txt
        return $status
    }
    compiled() { [ "$(sort "$folder/toolkit/bin/compiled" | tr '\n' ' ')" = "$1" ]; }
    check "kernels: two builds at once" two_builds
    images() { sed -nE 's/^ +\{"([a-z_0-9]+)", ([0-9]+), (true|false), .*/\1 \2 \3/p' "$folder/tree/build/kernels/kernel_images.c" | sed 's/true/code/; s/false/PTX/' | paste -sd, | sed 's/,/, /g'; } # as they are packed
    has_images() { [ "$(images)" = "$1" ] || { images; false; }; }
    for_gpus() { (cd "$folder/tree" && kernels/build.sh "$folder/toolkit/bin/nvcc" "$(find "$folder/kernels_a" -name sumi_pack -type f)" build/kernels "$1"); }
    check "kernels: they say how many there are to compile" grep -qE '^kernels: 3 to compile for the GPU, about 1 minute ' "$out"
    check "kernels: they say how far they are" grep -qE '^kernels: 2 of 3 \((gemm_int8|norms|upload_fp8)\.cu\)$' "$out"
    check "kernels: each was compiled once, for both" compiled "gemm_int8.cu norms.cu upload_fp8.cu "
    check "kernels: each has machine code for every GPU that ptxas knows" has_images \
        "gemm_int8 80 PTX, gemm_int8 80 code, gemm_int8 86 code, gemm_int8 90 code, gemm_int8 100 code, norms 80 PTX, norms 80 code, norms 90 code, norms 100 code, upload_fp8 89 PTX, upload_fp8 89 code, upload_fp8 90 code, upload_fp8 100 code"
    : >"$folder/toolkit/bin/assembled"
    check "kernels: for GPUs that are named" kernels_of kernels_b "-DSUMI_GPUS=8.7;12.0" && check "kernels: each has machine code that they run" has_images \
        "gemm_int8 80 PTX, gemm_int8 86 code, norms 80 PTX, norms 80 code, upload_fp8 89 PTX"
    check "kernels: for 8.9 and 9.0a" for_gpus 8.9,9.0a && check "kernels: the newest of its major version" has_images \
        "gemm_int8 80 PTX, gemm_int8 86 code, gemm_int8 90 code, norms 80 PTX, norms 80 code, norms 90 code, upload_fp8 89 PTX, upload_fp8 89 code, upload_fp8 90 code"
    check "kernels: nothing is compiled again for them" test ! -s "$folder/toolkit/bin/assembled"
    for list in 8 gemm 8.6,x ,; do refused "kernels: GPUs that are none: $list" "is no compute capability|none of" for_gpus "$list"; done
    refused "kernels: a GPU that is too old" "the oldest compute capability is 8.0" for_gpus 7.5
    check "kernels: for all" for_gpus all
    check "kernels: they are in the source tree" test -s "$folder/tree/build/kernels/kernel_images.c"
    rm -r "$folder/tree/build" "$folder/toolkit/bin/compiled" "$folder/kernels_a"
    touch "$folder/tree/build" # where no folder can be made
    check "kernels: a source tree that cannot be written to" kernels_of kernels_a
    check "kernels: they are in the build's own folder" test -s "$folder/kernels_a/_deps/sumi-build/kernels/kernel_images.c"
    echo "// changed" >>"$folder/tree/kernels/norms.cu"
    check "kernels: one that has changed" kernels_of kernels_a && check "kernels: only this one is compiled" compiled "gemm_int8.cu norms.cu norms.cu upload_fp8.cu "
    touch "$folder/tree/kernels/broken.cu"
    refused "kernels: one that does not compile" 'broken.cu\(1\): error' kernels_of kernels_a
fi

# ---- Without optimisation in the host's configuration ---------------------------------------------------------------------------------
is_optimized() { check "$1: what computes is optimised" sh -c "! '$2' $model open 2>&1 | grep optimisation"; } # what, host
if have cmake && [ -x "$folder/cmake_part/host" ]; then
    unoptimised=(-DSUMI_SOURCE="$source" -DSUMI_CUDA=OFF -DSUMI_WERROR=ON)
    if check "FetchContent, no build type" consume cmake_none "${unoptimised[@]}"; then
        draws "FetchContent, no build type" "$folder/cmake_none/host"
        is_optimized "FetchContent, no build type" "$folder/cmake_none/host"
        # Of the tiny checkpoint: Valgrind computes multiply-adds in software, which takes 13 s for a picture of the demo model.
        instructions() { valgrind --tool=callgrind --callgrind-out-file=/dev/null "$1" tests/golden/z-image/model small 2>&1 | sed -n 's/.*Collected : *//p'; } # host
        need() { # at most 1.5 times
            local none release
            none=$(instructions "$folder/cmake_none/host") release=$(instructions "$folder/cmake_part/host")
            echo "$none instructions without a build type, $release with Release"
            [ $((none * 2)) -le $((release * 3)) ]
        }
        if have valgrind; then check "FetchContent, no build type: few more instructions than with Release" need
        else skip "valgrind is not here: the instructions of a build without a build type"; fi
    fi
    check "FetchContent, Debug" consume cmake_debug "${unoptimised[@]}" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER="$folder/cc" -DCMAKE_C_COMPILER_LAUNCHER= \
        && draws "FetchContent, Debug" "$folder/cmake_debug/host" && is_optimized "FetchContent, Debug" "$folder/cmake_debug/host"
fi

# ---- Meson ----------------------------------------------------------------------------------------------------------------------------
if ! have meson || ! have ninja; then
    skip "meson is not here: a host in Meson"
else
    mesons() { meson setup "$folder/$1" "$folder/meson" "${@:2}" && meson compile -C "$folder/$1"; } # folder, options ...
    mkdir -p "$folder/meson/subprojects"
    cp tests/consumer/host.c tests/consumer/meson.build "$folder/meson"
    check "Meson" mesons meson_found -Dpkg_config_path="$moved/lib/pkgconfig" && draws "Meson" "$folder/meson_found/host"
    if have cmake && have git; then
        # The wrap, from a clone of what is here; Meson's own git must not ask who owns the folder.
        mkdir "$folder/clone"
        git ls-files -z --cached --others --exclude-standard CMakeLists.txt LICENSE include src kernels packaging | xargs -0 cp --parents -t "$folder/clone" 2>/dev/null
        (cd "$folder/clone" && git init -q && git add -A && git -c user.name=test -c user.email=test@example.invalid commit -qm all)
        sed "s,^url = .*,url = file://$folder/clone," packaging/meson/sumi.wrap >"$folder/meson/subprojects/sumi.wrap"
        # Optimising takes most of the time of a build, and the host of find_package has what it does. -O3 of CMake's Release would come behind an option of Meson's.
        check "Meson, the wrap" env GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always CC="$folder/cc" meson setup "$folder/meson_wrap" "$folder/meson" \
            && check "Meson, the wrap: it compiles" meson compile -C "$folder/meson_wrap" && draws "Meson, the wrap" "$folder/meson_wrap/host"
    else skip "cmake or git is not here: the wrap for Meson is fetched by git and builds by CMakeLists.txt"; fi
fi

# ---- Conan and vcpkg ------------------------------------------------------------------------------------------------------------------
by_package() { check "$1: a host" consume "cmake_$1" -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE="$2" "${@:3}" && draws "$1" "$folder/cmake_$1/host"; } # name, toolchain file, options ...
if [ -z "${TEST_CONAN:-}" ]; then
    skip "Conan: TEST_CONAN=1 asks for it"
else
    export CONAN_HOME=${CONAN_HOME:-$folder/conan}
    [ -e "$CONAN_HOME/profiles/default" ] || conan profile detect >/dev/null 2>&1
    check "Conan" conan create packaging/conan --build=missing \
        && check "Conan: files for a host" env -C "$folder" conan install --requires="sumi/$version" -g CMakeDeps -g CMakeToolchain -of "$folder/conan_files" \
        && by_package Conan "$folder/conan_files/conan_toolchain.cmake"
fi
if [ -z "${VCPKG_ROOT:-}" ]; then
    skip "vcpkg: VCPKG_ROOT asks for it"
else
    check "vcpkg" "$VCPKG_ROOT/vcpkg" install sumi --overlay-ports="$source/packaging/vcpkg" --triplet=x64-linux --x-install-root="$folder/vcpkg" \
        && by_package vcpkg "$VCPKG_ROOT/scripts/buildsystems/vcpkg.cmake" -DVCPKG_INSTALLED_DIR="$folder/vcpkg" -DVCPKG_TARGET_TRIPLET=x64-linux
fi

# ---- One archive, and parts left out --------------------------------------------------------------------------------------------------
premake=$(command -v premake5 || command -v premake4)
configure() { "$premake" --file=premake5.lua --build="$folder/$1" --no-viewer "${@:2}" gmake; } # folder, options ...
build_in() { make -C "$folder/$1" CC="$folder/cc" config=release -j"$jobs" "${@:2}"; }
one=$folder/one/release/lib/libsumi.a
if [ -z "$premake" ]; then
    skip "there is no Premake: one archive, families left out"
elif check "one archive, one family: makefiles" configure one --no-cuda --bundle --shared --families=z-image && check "one archive, one family" build_in one sumi sumi_shared; then
    host "one archive" cc -std=c11 tests/consumer/host.c -Iinclude "$one" -lm -lpthread -ldl
    check "one archive: its symbols" tests/check_symbols.sh "$one" "$folder/one/release/plugin/libsumi.so"
    rm "$folder"/one/release/obj/sumi/unicode.o # of which and of utf8proc one object was made
    check "one archive: again after a change" build_in one sumi && host "one archive, changed" cc -std=c11 tests/consumer/host.c -Iinclude "$one" -lm -lpthread -ldl
    # A host that has functions of the same names, which end the program; and a plug-in, which shows neither's.
    for name in inflate inflateInit_ utf8proc_category utf8proc_decompose_char utf8proc_get_property utf8proc_normalize_utf32 utf8proc_tolower; do
        echo "int $name(void); int $name(void) { __builtin_trap(); }"
    done >"$folder/clash.c"
    host "one archive, in a host with libraries of those names" cc -std=c11 -fno-builtin tests/consumer/host.c "$folder/clash.c" -Iinclude -Wl,--whole-archive "$one" -Wl,--no-whole-archive -lm -lpthread -ldl
    check "one archive, in a plug-in" cc -shared -Wl,--whole-archive "$one" -Wl,--no-whole-archive -Wl,-z,defs -lm -lpthread -ldl -o "$folder/plugin.so"
    check "one archive, in a plug-in: nothing is shown" sh -c "! nm -D --defined-only '$folder/plugin.so' | grep ' T '"
    check "one archive: installed" make -C "$folder/one" install PREFIX="$folder/whole"
    check "one archive: pkg-config asks for nothing else" sh -c "PKG_CONFIG_PATH=$folder/whole/lib/pkgconfig pkg-config --libs sumi | grep -v -e utf8proc -e -lz"
    host "one archive, pkg-config" compile "$folder/whole"
    if have cmake; then check "one archive, find_package" consume cmake_whole -DCMAKE_PREFIX_PATH="$folder/whole" && draws "one archive, find_package" "$folder/cmake_whole/host"; fi
    [ ! -e /usr/share/doc/libutf8proc-dev/copyright ] || check "one archive: the notice of what is inside" test -s "$folder/whole/share/licenses/sumi/utf8proc"
    for other in qwen-image newbie; do
        refused "a family that was left out: $other" "a model of the family $other.* built without \\(it has z-image\\)" "$folder/host" tests/golden/$other/model
        "$folder/host" tests/golden/$other/model >/dev/null 2>"$folder/message"
        check "a family that was left out: $other: the result" grep -qx "host: result 6" "$folder/message" # SUMI_NOT_SUPPORTED
    done
    refused "CUDA, which was left out" "built without the CUDA backend" "$folder/host" $model cuda
fi
[ -z "$premake" ] || refused "GPUs that are none" "--gpus: 8.6,ada is neither all nor native nor a list of compute capabilities" configure none --gpus=8.6,ada
[ -z "$premake" ] || refused "an unknown family" "there is no sdxl; there are flux2-klein, newbie, qwen-image, qwen-image-21, z-image" configure none --no-cuda --families=sdxl
if have cmake; then # what is left of the library links, and says what it has not; nothing is optimised, which the log says
    check "newbie alone" consume alone -DSUMI_SOURCE="$source" -DSUMI_CUDA=OFF -DSUMI_WERROR=ON -DSUMI_FAMILIES=newbie -DSUMI_OPTIMIZE_ALWAYS=OFF -DCMAKE_BUILD_TYPE=Debug \
        && refused "newbie alone: another family" "family z-image, which this program was built without" "$folder/alone/host" $model
    check "newbie alone: opening a model of it" "$folder/alone/host" tests/golden/newbie/model open
    check "SUMI_OPTIMIZE_ALWAYS=OFF: the log says so" grep 'host: the CPU backend was built without optimisation' "$out"
fi
if [ -n "$premake" ] && check "debug: makefiles" configure debug --no-cuda && check "debug" make -C "$folder/debug" CC="$folder/cc" config=debug -j"$jobs" sumi-cli; then
    program=$folder/debug/debug/bin/sumi
    check "debug: what computes is optimised" sh -c "! '$program' info | grep optimisation"
    # Into the same folder: objects that were compiled with other options are compiled again.
    check "--no-optimize: makefiles" configure debug --no-cuda --no-optimize && check "--no-optimize" make -C "$folder/debug" CC="$folder/cc" config=debug -j"$jobs" sumi-cli
    check "--no-optimize: sumi info says so" sh -c "'$program' info | grep '^cpu .*, built without optimisation$'"
    check "make alone builds release" sh -c "make -n -C '$folder/debug' support | grep -F release/obj"
    check "make config=debug builds debug" sh -c "make -n -B -C '$folder/debug' config=debug support | grep -F debug/obj"
fi
kernels=$makefiles/../kernels
small_enough() { strip -o "$folder/hello" "$build/bin/hello" && [ "$(stat -c %s "$folder/hello")" -le 16000000 ]; } # with machine code for all GPUs, too
[ ! -e "$build/bin/hello" ] || check "hello, stripped, has at most 16 MB" small_enough
if [ -z "$premake" ] || ! grep -q SUMI_HAS_CUDA "$makefiles/sumi.make"; then
    skip "the build has no CUDA backend: its kernels for Hopper left out"
elif check "without kernels for Hopper: makefiles" configure portable --kernels="$kernels" --gpus="$(tail -n 1 "$kernels/checked")" --no-hopper && check "without kernels for Hopper" build_in portable hello test_cuda_runner test_cuda_uploads test_cuda_arrange; then
    for program in test_cuda_runner test_cuda_uploads test_cuda_arrange; do
        check "without kernels for Hopper: $program, on the fake driver" "$folder/portable/release/bin/$program"
    done
    check "without kernels for Hopper: it draws" "$folder/portable/release/bin/hello" $model "a red house on the grass" "$folder/portable.png"
    smaller() { [ $(($(size -A "$build/bin/hello" | awk '$1 == ".rodata" { print $2 }') - $(size -A "$folder/portable/release/bin/hello" | awk '$1 == ".rodata" { print $2 }'))) -gt 1500000 ]; }
    if [ -e "$build/bin/hello" ]; then check "without kernels for Hopper: more than 1.5 MB less" smaller; fi
fi

# ---- Gone again -----------------------------------------------------------------------------------------------------------------------
check "uninstall" make -C "$makefiles" uninstall config="$configuration" PREFIX="$moved"
check "uninstall leaves no file" sh -c "[ -z \"\$(find $moved -type f)\" ]"

echo "install: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
