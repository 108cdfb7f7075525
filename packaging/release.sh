#!/usr/bin/env bash
# Makes what is downloaded, out of the commit that is checked out. usage: packaging/release.sh VERSION [OUT] [--windows-libraries FOLDER] [--kernels FOLDER] [--sysroot FOLDER]
#
#   VERSION               the header's
#   OUT                   where the archives and their SHA256SUMS go (build/releases/VERSION)
#   --windows-libraries   FOLDER/include, lib and share/licenses have utf8proc, libspng and zlib for MinGW-w64, static, as in MSYS2's packages; without it there is nothing for Windows
#   --kernels             compiled kernels of an earlier run or build (--gpus=all); what is missing or old in FOLDER is compiled into it
#   --sysroot             the old C library for which Linux's programs are linked, from an earlier run (it is made there if FOLDER is empty); otherwise it is fetched
#
# packaging/README.md says what is in the archives and what has to be installed. In the environment: MIRROR, a mirror of Debian (that of this system); JOBS, compilers at once.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
say() { echo "release: $1" >&2; }
fail() { say "$1"; exit 1; }
version= out= windows_libraries= kernels= sysroot=
while [ $# -gt 0 ]; do
    case $1 in
        --windows-libraries | --kernels | --sysroot)
            [ $# -ge 2 ] || fail "$1 needs a folder"
            option=${1#--}
            declare "${option//-/_}=$(realpath -ms "$2")"
            shift 2 ;;
        -*) fail "$1 is no option: packaging/release.sh VERSION [OUT] [--windows-libraries FOLDER] [--kernels FOLDER] [--sysroot FOLDER]" ;;
        *)
            if [ -z "$version" ]; then version=$1; elif [ -z "$out" ]; then out=$(realpath -ms "$1"); else fail "$1 is one argument too many"; fi
            shift ;;
    esac
done
[ -n "$version" ] || { sed -n '2s/^# .*usage/usage/p' "$0" >&2; exit 2; }
out=${out:-$source/build/releases/$version}
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$out is not empty: name another folder, or empty it"
cd "$source"

# ---- What is asked for, and what is here -----------------------------------------------------------------------------------------------
part() { sed -nE "s/^#define SUMI_VERSION_$1 +([0-9]+).*/\1/p" include/sumi.h; }
header=$(part MAJOR).$(part MINOR).$(part PATCH)
[ "$version" = "$header" ] || fail "VERSION is $version, but include/sumi.h says $header: ask for $header, or change SUMI_VERSION_MAJOR, MINOR and PATCH there first"
git rev-parse HEAD >/dev/null 2>&1 || fail "$source is no clone of the repository: a release is made of a commit"
[ -z "$(git status --porcelain --untracked-files=no)" ] || fail "there are changes that are not committed: a release is made of a commit, commit or undo them first"
[ "$(uname -sm)" = "Linux x86_64" ] || fail "this is $(uname -sm): releases are made on Linux on x86-64"
needs_tool() { command -v "$1" >/dev/null || fail "there is no $1. On Debian 12: apt-get install $2"; } # program package
for each in gcc:gcc g++:g++ make:make python3:python3 xz:xz-utils mcs:mono-mcs; do needs_tool "${each%:*}" "${each#*:}"; done
premake=$(command -v premake5 || command -v premake4) || fail "there is no Premake. On Debian 12: apt-get install premake4"
mingw=x86_64-w64-mingw32
if [ -n "$windows_libraries" ]; then
    for each in $mingw-gcc:gcc-mingw-w64-x86-64 llvm-dlltool:llvm; do needs_tool "${each%:*}" "${each#*:}"; done
    for each in include/utf8proc.h include/spng.h include/zlib.h lib/libutf8proc.a lib/libspng.a; do [ -e "$windows_libraries/$each" ] || fail "--windows-libraries: $windows_libraries/$each is not there"; done
fi
# Libraries of this system of which the programs are made, by the name of the file.
archive_of() { # libx.a package
    local found
    found=$(gcc -print-file-name="$1")
    [ "$found" != "$1" ] || fail "there is no $1. On Debian 12: apt-get install $2"
    echo "$found"
}
for each in libutf8proc.a:libutf8proc-dev libz.a:zlib1g-dev libz.so:zlib1g-dev libjpeg.a:libjpeg-dev libwebp.a:libwebp-dev libwebpmux.a:libwebp-dev libspng.so:libspng-dev libimgui.a:libimgui-dev libstb.a:libstb-dev \
    libglfw.so:libglfw3-dev libGL.so:libgl-dev; do archive_of "${each%:*}" "${each#*:}" >/dev/null; done

# Everything that would make two runs differ, or bring something of this machine in.
unset CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH LD_RUN_PATH CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS MAKELEVEL CC CXX AR PREFIX DESTDIR LIBDIR INCLUDEDIR NOTICES DEMO_MODEL XZ_OPT XZ_DEFAULTS GZIP
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
commit=$(git rev-parse HEAD)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC0
umask 022
jobs=${JOBS:-$(nproc)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
step() { # what, command ...: says what, and what the command printed if it fails
    local status
    say "$1"
    set +e
    (set -e; "${@:2}") >"$log" 2>&1
    status=$?
    set -e
    [ $status -eq 0 ] || { tail -n 30 "$log" >&2; fail "$1: failed"; }
}
mkdir -p "$work/source" "$out"
git archive HEAD | tar -x -C "$work/source"
cd "$work/source"

# ---- The old C library -----------------------------------------------------------------------------------------------------------------
# Of Debian 11, whose glibc is 2.31: headers and libraries for linking, unpacked and not installed. README.md says why it is this way.
fetch_sysroot() {
    local mirror=${MIRROR:-} folder=$work/apt package link
    needs_tool apt-get apt
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/*$') || fail "this system has no mirror of Debian: say MIRROR=..., or --sysroot"
    mkdir -p "$folder/lists/partial" "$folder/packages" "$sysroot"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=amd64] $mirror bullseye main" >"$folder/sources.list"
    local options=(-o Dir::State::lists="$folder/lists" -o Dir::State::status=/dev/null -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Architecture=amd64 -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$folder/packages" && apt-get "${options[@]}" download libc6 libc6-dev linux-libc-dev libstdc++6 libstdc++-10-dev)
    for package in "$folder"/packages/*.deb; do
        dpkg-deb -x "$package" "$sysroot"
        dpkg-deb -f "$package" Package Version | sed 's/^[A-Za-z]*: //' | paste -sd ' ' >>"$folder/packages.txt"
    done
    find "$sysroot" -type l | while read -r link; do # those that name a path from the root would lead out of the folder
        case $(readlink "$link") in /*) ln -sfn "$(realpath -ms --relative-to="$(dirname "$link")" "$sysroot$(readlink "$link")")" "$link" ;; esac
    done
    cp "$folder/packages.txt" "$sysroot" # last, so that a folder that is cut short is fetched again
}
sysroot=${sysroot:-$work/sysroot}
[ -e "$sysroot/packages.txt" ] || step "fetching the C library of Debian 11" fetch_sysroot
libraries=$sysroot/usr/lib/x86_64-linux-gnu
[ -e "$libraries/libc.so" ] && [ -e "$sysroot/usr/include/c++/10/vector" ] || fail "--sysroot: there is no C library in $sysroot: name an empty folder, or none"
old_version() { awk -v name="$1" '$1 == name { print $2 }' "$sysroot/packages.txt"; }

# ---- Compilers -------------------------------------------------------------------------------------------------------------------------
# No debugging information, whose paths are this machine's; __FILE__, which is in messages, as from the folder of the sources. -B and -L: ahead of this system's own C library.
mkdir "$work/tools"
no_paths="-g0 -ffile-prefix-map=$work/source/= -ffile-prefix-map=../../="
write_tool() { printf '#!/bin/bash\nexec %s\n' "$2" >"$work/tools/$1"; chmod +x "$work/tools/$1"; } # name command
old="--sysroot=$sysroot -B$libraries/"
program="-Wl,-rpath,'\$ORIGIN/../lib/sumi'" # where libspng is, of which Debian has no static library
write_tool cc "gcc $old \"\$@\" $no_paths"
write_tool cc-program "gcc $old \"\$@\" $no_paths $program"
# The C++ library of Debian 11, too. The other libraries that the viewer takes from the system it runs on ask for this system's C library, not for the old one. Its warnings are for gcc 10.
write_tool cxx "g++ $old -nostdinc++ -isystem $sysroot/usr/include/c++/10 -isystem $sysroot/usr/include/x86_64-linux-gnu/c++/10 \"\$@\" $no_paths -Wno-error -L$sysroot/usr/lib/gcc/x86_64-linux-gnu/10 -Wl,--allow-shlib-undefined $program"
write_tool windows-cc "$mingw-gcc \"\$@\" $no_paths -Wl,--no-insert-timestamp"

# ---- Linux: what is linked into the programs ---------------------------------------------------------------------------------------------
linux_libraries=$work/libraries
copy_header() { # header: as the compiler finds it
    local path
    path=$(printf "#include <stdio.h>\n#include <%s>\n" "$1" | gcc -E -x c - | sed -n "s,^# [0-9]* \"\(/.*/$1\)\".*,\1,p" | sort -u)
    [ -n "$path" ] || fail "there is no header $1"
    mkdir -p "$(dirname "$linux_libraries/include/$1")"
    cp "$path" "$linux_libraries/include/$1"
}
gather_libraries() {
    mkdir -p "$linux_libraries/include" "$linux_libraries/lib"
    for header in utf8proc.h zlib.h zconf.h spng.h jpeglib.h jmorecfg.h jconfig.h jerror.h webp/types.h webp/encode.h webp/decode.h webp/mux.h webp/mux_types.h GLFW/glfw3.h; do copy_header "$header"; done
    cp -r /usr/include/GL /usr/include/KHR "$linux_libraries/include"
    cp -r "$(dirname "$(find /usr/include -name imgui.h -print -quit)")/." "$linux_libraries/include"
    for name in utf8proc z jpeg webp webpmux; do cp "$(archive_of lib$name.a lib$name-dev)" "$linux_libraries/lib"; done
    for name in spng z glfw GL; do cp -L "$(archive_of lib$name.so lib$name-dev)" "$linux_libraries/lib/lib$name.so"; done
    # Debian's Dear ImGui calls stb, and the build's rules ask for one library.
    printf 'create %s\naddlib %s\naddlib %s\nsave\nend\n' "$linux_libraries/lib/libimgui.a" "$(archive_of libimgui.a libimgui-dev)" "$(archive_of libstb.a libstb-dev)" | ar -M
}
step "gathering libraries for Linux" gather_libraries

# ---- Building --------------------------------------------------------------------------------------------------------------------------
kernels=${kernels:-$work/kernels}
configure() { "$premake" --file=premake5.lua --build="build/$1" --kernels="$kernels" --gpus=all --bundle --shared "${@:2}" gmake; } # system, options ...
build() { make -C "build/$1" config=release -j"$jobs" "${@:2}"; }                                                                 # system, ...
has_cuda() { grep -q SUMI_HAS_CUDA "build/$1/sumi.make" || fail "the CUDA backend would be left out: Premake says why above"; }   # system

configure_linux() { CC="$work/tools/cc" configure linux --libraries="$linux_libraries" && has_cuda linux; }
step "makefiles for Linux" configure_linux
linux=build/linux/release
step "kernels and libraries for Linux (minutes)" build linux CC="$work/tools/cc" sumi sumi_shared support
step "the command line" build linux CC="$work/tools/cc-program" sumi-cli
grep -q '^viewer' build/linux/Makefile || fail "the viewer would be left out: $premake says why"
step "the viewer" build linux CC="$work/tools/cc" CXX="$work/tools/cxx" viewer
unity=samples/engines/unity/Native~/sumi_unity.c
step "Unity's plug-in for Linux" "$work/tools/cc" -std=c11 -O2 -fPIC -shared -fvisibility=hidden -Iinclude $unity -L$linux/plugin -l:libsumi.so -lpthread "-Wl,-rpath,\$ORIGIN" -o $linux/plugin/libsumi_unity.so

windows=
if [ -n "$windows_libraries" ]; then
    windows=build/windows/release
    configure_windows() { CC="$work/tools/windows-cc" configure windows --os=windows --libraries="$windows_libraries" && has_cuda windows; }
    step "makefiles for Windows" configure_windows
    step "libraries and the command line for Windows (minutes)" build windows CC="$work/tools/windows-cc" AR=$mingw-ar sumi sumi_shared sumi-cli
    functions() { $mingw-objdump -p "$1" | sed -nE 's/^\s+\[ *[0-9]+\] (\+base\[ *[0-9]+\] +[0-9a-f]+ )?([A-Za-z_0-9]+)$/\2/p' | sort -u; } # dll
    import_library() { # dll: for Microsoft's linker, beside it
        [ -n "$(functions "$1")" ] || { say "$1 shows no functions"; return 1; }
        { echo "LIBRARY $(basename "$1")"; echo EXPORTS; functions "$1"; } >"${1%.dll}.def"
        llvm-dlltool -m i386:x86-64 -d "${1%.dll}.def" -l "${1%.dll}.lib"
    }
    step "import libraries" import_library $windows/plugin/sumi.dll
    mv $windows/plugin/libsumi.a $windows/plugin/libsumi.dll.a
    step "Unity's plug-in for Windows" "$work/tools/windows-cc" -std=c11 -O2 -shared -static -Iinclude $unity $windows/plugin/libsumi.dll.a -o $windows/plugin/sumi_unity.dll
fi

# Names of functions stay, for backtraces; debugging information is in what came from this system's own libraries.
strip --strip-debug --enable-deterministic-archives $linux/lib/libsumi.a $linux/plugin/libsumi.so $linux/plugin/libsumi_unity.so $linux/bin/sumi $linux/bin/viewer
[ -z "$windows" ] || $mingw-strip --strip-debug --enable-deterministic-archives $windows/lib/libsumi.a $windows/plugin/sumi.dll $windows/plugin/sumi_unity.dll $windows/bin/sumi.exe

# ---- Notices and components ------------------------------------------------------------------------------------------------------------
upstream() { sed -E 's/^[0-9]+://; s/-[^-]*$//; s/[+.](ds|dfsg).*//' <<<"$1"; }
debian() { # kind, name, package, files: a line of components
    local full
    full=$(dpkg-query -W -f '${Version}\n' "$3" | head -n 1)
    component "$1" "$2" "$3" "$full" "${4:-}"
}
component() { # kind, name, package, version of Debian's, files
    printf '%s\t%s\t%s\tpkg:deb/debian/%s@%s?arch=amd64\t%s\n' "$1" "$2" "$(upstream "$4")" "$(sed 's/+/%2B/g' <<<"$3")" "$(sed 's/+/%2B/g; s/:/%3A/g' <<<"$4")" "${5:-}"
}
nvcc_version() { local nvcc; nvcc=$(awk 'NR == 1 { print $1 }' "$kernels/checked"); "$nvcc" --version | sed -n 's/^Cuda compilation tools, release .*, V//p'; }
notice() { # folder, name, package of Debian
    local from=/usr/share/doc/$3/copyright
    [ -e "$from" ] || fail "the notice of $2 is not in $from: install $3 with its documents"
    install -m 644 "$from" "$1/share/licenses/sumi/$2"
}
# Functions of these headers are in the kernels; what they ask for is at their head.
cuda_notice() { # folder
    local nvcc include header
    nvcc=$(awk 'NR == 1 { print $1 }' "$kernels/checked")
    for include in "${nvcc%/bin/nvcc}/include" /usr/include; do [ ! -e "$include/cuda_fp16.h" ] || break; done
    {
        for header in cuda_bf16.h cuda_fp16.h cuda_fp8.h; do echo "$header: $(grep -m 1 -o 'Copyright .*' "$include/$header")"; done
        sed -e '1d' -e '/\*\//,$d' -e 's/^ *\* \{0,1\}//' "$include/cuda_fp16.h"
    } >"$1/share/licenses/sumi/cuda-headers"
    grep -q 'NOTICE TO LICENSEE' "$1/share/licenses/sumi/cuda-headers" || fail "$include/cuda_fp16.h does not begin with a notice"
}
windows_notice() { # folder, name, names of the folder in share/licenses ...
    local each
    for each in "${@:3}"; do
        [ -d "$windows_libraries/share/licenses/$each" ] || continue
        find "$windows_libraries/share/licenses/$each" -type f | sort | xargs -d '\n' cat >"$1/share/licenses/sumi/$2"
        return
    done
    fail "the notice of $2, which is inside, is not in $windows_libraries/share/licenses/$3: put it there, its licence asks for it"
}
# What a program that ships the library has to show, in one file.
library_notices() { # folder, names ...
    local each
    echo "This program contains sumi, and sumi contains the libraries below. Their licences ask for these notices."
    for each in LICENSE "${@:2}"; do
        printf '\n---- %s %s\n\n' "$([ "$each" = LICENSE ] && echo sumi || echo "$each")" "----------------------------------------"
        cat "$1/share/licenses/sumi/$each"
    done
}
documents() { # folder, system
    cp -r README.md CHANGELOG.md LICENSE docs "$1"
    [ ! -e SECURITY.md ] || cp SECURITY.md "$1"
    sed -e "s/@VERSION@/$version/g" -e "s/@COMMIT@/$commit/g" "packaging/start_$2.md" >"$1/START.md"
}
finish() { # name, components: SBOM and checksums of the folder
    python3 packaging/release_files.py sbom "$work/$1" "$2" "$1" "$version"
    python3 packaging/release_files.py sums "$work/$1"
}

# ---- Linux -----------------------------------------------------------------------------------------------------------------------------
name=sumi-$version-linux-x86_64
folder=$work/$name
install_linux() {
    NEEDS= SYSTEM="m pthread dl" LICENCES= DESTDIR=$work/stage PREFIX=/sumi packaging/install.sh install $linux
    LD_LIBRARY_PATH=$linux_libraries/lib DESTDIR=$work/stage PREFIX=/sumi packaging/install.sh install-program $linux
    mv "$work/stage/sumi" "$folder"
    install -m 755 $linux/bin/viewer "$folder/bin/sumi-viewer"
    install -D -m 644 "$(archive_of libspng.so libspng-dev)" "$folder/lib/sumi/libspng.so.0"
}
ln -s libspng.so "$linux_libraries/lib/libspng.so.0"
step "installing for Linux" install_linux # and not by make, which would link again what was stripped
for each in utf8proc:libutf8proc-dev zlib:zlib1g-dev libspng:libspng-dev libjpeg-turbo:libjpeg62-turbo-dev libwebp:libwebp-dev imgui:libimgui-dev stb:libstb-dev; do notice "$folder" "${each%:*}" "${each#*:}"; done
cuda_notice "$folder"
library_notices "$folder" utf8proc zlib cuda-headers >"$folder/share/licenses/sumi/NOTICES-library.txt"
documents "$folder" linux
programs="bin/sumi bin/sumi-viewer"
{
    debian inside utf8proc libutf8proc-dev "lib/libsumi.a lib/libsumi.so $programs"
    debian inside zlib zlib1g-dev "lib/libsumi.a lib/libsumi.so $programs"
    debian beside libspng libspng0 "$programs"
    debian inside libjpeg-turbo libjpeg62-turbo-dev "$programs"
    debian inside libwebp libwebp-dev "$programs"
    debian inside imgui libimgui-dev bin/sumi-viewer
    debian inside stb libstb-dev bin/sumi-viewer
    debian tool gcc "gcc-$(gcc -dumpversion)"
    component tool glibc libc6-dev "$(old_version libc6-dev)"
    component tool libstdc++ libstdc++-10-dev "$(old_version libstdc++-10-dev)"
    printf 'inside\tcuda-headers\t%s\t\t%s\n' "$(nvcc_version)" "lib/libsumi.a lib/libsumi.so $programs"
    printf 'tool\tnvcc\t%s\t\n' "$(nvcc_version)"
} >"$work/components"
finish "$name" "$work/components"
pack_tar() { # name
    tar -c --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX --mtime="@$SOURCE_DATE_EPOCH" -C "$work" "$1" | xz -9e -T1 >"$out/$1.tar.xz"
}
step "packing $name.tar.xz" pack_tar "$name"
mkdir "$work/engines"
cp $linux/plugin/libsumi.so $linux/plugin/libsumi_unity.so "$work/engines"
cp "$folder/share/licenses/sumi/NOTICES-library.txt" "$work/engines/THIRD_PARTY_NOTICES.md"

# ---- Windows ---------------------------------------------------------------------------------------------------------------------------
if [ -z "$windows" ]; then
    say "nothing for Windows was made, and the engines' packages have libraries for Linux alone: --windows-libraries FOLDER says where utf8proc, libspng and zlib for MinGW-w64 are"
else
    name=sumi-$version-windows-x86_64
    folder=$work/$name
    install_windows() {
        NEEDS= SYSTEM=m LICENCES= DESTDIR=$work/stage PREFIX=/sumi packaging/install.sh install $windows
        DESTDIR=$work/stage PREFIX=/sumi packaging/install.sh install-program $windows
        mv "$work/stage/sumi" "$folder"
    }
    step "installing for Windows" install_windows
    windows_notice "$folder" utf8proc libutf8proc utf8proc
    windows_notice "$folder" zlib zlib
    windows_notice "$folder" libspng libspng spng
    notice "$folder" mingw-w64-runtime mingw-w64-x86-64-dev
    cuda_notice "$folder"
    macro() { sed -nE "s/^ *# *define +$2 +\"?([0-9][0-9.]*).*/\1/p" "$windows_libraries/include/$1" | head -n 1; } # header name
    of_library="bin/sumi.dll" # files that have what the library has
    others=
    for each in jpeglib.h:libjpeg-turbo:JPEG webp/mux.h:libwebp:WEBP; do
        IFS=: read -r header component macro_name <<<"$each"
        grep -q "PICTURE_HAS_$macro_name" build/windows/support.make || continue
        windows_notice "$folder" "$component" "$component"
        others+="inside	$component	NOASSERTION		bin/sumi.exe"$'\n'
    done
    write_components() { # files of the library, files of the command line
        printf 'inside\tutf8proc\t%s\t\t%s\n' "$(macro utf8proc.h UTF8PROC_VERSION_MAJOR).$(macro utf8proc.h UTF8PROC_VERSION_MINOR).$(macro utf8proc.h UTF8PROC_VERSION_PATCH)" "$1 $2"
        printf 'inside\tzlib\t%s\t\t%s\n' "$(macro zlib.h ZLIB_VERSION)" "$1 $2"
        if [ -n "$2" ]; then
            printf 'inside\tlibspng\t%s\t\t%s\n' "$(macro spng.h SPNG_VERSION_MAJOR).$(macro spng.h SPNG_VERSION_MINOR).$(macro spng.h SPNG_VERSION_PATCH)" "$2"
            printf '%s' "$others"
            debian inside mingw-w64-runtime mingw-w64-x86-64-dev "$1 $2"
        fi
        printf 'inside\tcuda-headers\t%s\t\t%s\n' "$(nvcc_version)" "$1 $2"
        debian tool gcc-mingw-w64 gcc-mingw-w64-x86-64
        printf 'tool\tnvcc\t%s\t\n' "$(nvcc_version)"
    }
    library_notices "$folder" utf8proc zlib cuda-headers mingw-w64-runtime >"$folder/share/licenses/sumi/NOTICES-library.txt"
    # The archive for MinGW-w64 by itself: a zip stores the kernels again with every file that has them, and with this one would be larger than 40 MiB.
    static=$name-mingw-static
    mkdir -p "$work/$static/lib" "$work/$static/share/licenses/sumi"
    mv "$folder/lib/libsumi.a" "$work/$static/lib"
    cp "$folder"/share/licenses/sumi/{LICENSE,utf8proc,zlib,cuda-headers} "$work/$static/share/licenses/sumi"
    cp "$work/$static/share/licenses/sumi/LICENSE" "$work/$static"
    library_notices "$folder" utf8proc zlib cuda-headers >"$work/$static/share/licenses/sumi/NOTICES-library.txt"
    sed -e "s/@VERSION@/$version/g" -e "s/@COMMIT@/$commit/g" packaging/start_windows_static.md >"$work/$static/START.md"
    write_components lib/libsumi.a "" >"$work/components"
    finish "$static" "$work/components"
    step "packing $static.zip" python3 packaging/release_files.py zip "$out/$static.zip" "$work" "$static"
    documents "$folder" windows
    write_components "$of_library" bin/sumi.exe >"$work/components"
    finish "$name" "$work/components"
    step "packing $name.zip" python3 packaging/release_files.py zip "$out/$name.zip" "$work" "$name"
    cp $windows/plugin/sumi.dll $windows/plugin/sumi_unity.dll "$work/engines"
    cp "$folder/share/licenses/sumi/NOTICES-library.txt" "$work/engines/THIRD_PARTY_NOTICES.md" # has all that Linux's has
fi

# ---- Demo models, engines, Python --------------------------------------------------------------------------------------------------------
mkdir -p "$work/models/samples"
cp -r samples/demo_model samples/demo_edit_model "$work/models/samples"
cp LICENSE "$work/models/samples"
rm -rf "$work"/models/samples/*/train
step "packing the demo models" python3 packaging/release_files.py zip "$out/sumi-$version-demo-models.zip" "$work/models" samples

pack_unity() { DEMO_MODEL=0 samples/engines/unity/Native~/pack.sh "$work/engines" "$out"; } # with it, 41 MiB
step "packing Unity's package" pack_unity
pack_unreal() {
    mkdir "$work/unreal"
    touch "$work/unreal/Release.uproject"
    samples/engines/unreal/install.sh $linux "$work/unreal" # the only archive in which the engine's linker finds everything
    [ -z "$windows" ] || samples/engines/unreal/install.sh $windows "$work/unreal"
    cp "$work/engines/THIRD_PARTY_NOTICES.md" "$work/unreal/Plugins/Sumi/THIRD_PARTY_NOTICES.txt"
    python3 packaging/release_files.py zip "$out/sumi-$version-unreal.zip" "$work/unreal/Plugins" Sumi
}
step "packing Unreal's plug-in" pack_unreal

# The packages of other languages take notices by the names of packaging/native.py.
gather_notices() { # system
    local from=$work/sumi-$version-$1-x86_64/share/licenses/sumi
    mkdir -p "$work/notices/$1"
    cp "$from"/{utf8proc,zlib,cuda-headers} "$work/notices/$1"
    [ ! -e "$from/mingw-w64-runtime" ] || cp "$from/mingw-w64-runtime" "$work/notices/$1/mingw-w64"
}
step "notices for Linux" gather_notices linux
step "packing the Python wheel for Linux" env NOTICES="$work/notices/linux" packaging/python/build_wheel.sh $linux/plugin/libsumi.so "$out"
libraries_for_net=$linux/plugin/libsumi.so newest=linux
if [ -n "$windows" ]; then
    step "notices for Windows" gather_notices windows
    step "packing the Python wheel for Windows" env NOTICES="$work/notices/windows" packaging/python/build_wheel.sh $windows/plugin/sumi.dll "$out"
    libraries_for_net+=,$windows/plugin/sumi.dll newest=windows
fi
step "packing the package for .NET" env NOTICES="$work/notices/$newest" packaging/nuget/build_nupkg.sh "$libraries_for_net" "$out"

python3 packaging/release_files.py sums "$out"
say "sumi $version, commit ${commit:0:12}, in $out:"
(cd "$out" && for each in *; do printf '%11d  %s\n' "$(stat -c %s "$each")" "$each"; done)
