#!/usr/bin/env bash
# What is downloaded (packaging/release.sh), as its users have it: made twice, looked into, and run where nothing else is installed. The last line is "N passed, N failed, N skipped".
#
#   tests/run_release.sh [WINDOWS_LIBRARIES]
#
# WINDOWS_LIBRARIES is for --windows-libraries; without it there is nothing for Windows. The commit that is checked out is released. Root is needed for the bare Debians, debootstrap makes them.
# Not part of tests/run.sh. In the environment:
#   KERNELS, SYSROOT   for --kernels and --sysroot, so that they are not made anew
#   ROOTS              a folder with bare roots by their names (bullseye, bookworm, trixie), which are made there if they are missing and stay as they are: copies are used
#   RELEASE            a folder with a release of this commit, which is looked into instead of making two
#   MIRROR             a mirror of Debian
# Debian: debootstrap, faketime (another date for the second run), wine, lld, gcc-mingw-w64-x86-64, cmake. The SBOM is read by PyPI's spdx-tools, if pip brings it.
set -uo pipefail
cd "$(dirname "$0")/.."
source=$PWD windows_libraries=${1:-}
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
end() {
    findmnt -rno TARGET | grep -F "$folder/" | sort -r | xargs -r -d '\n' umount
    rm -rf --one-file-system "$folder"
}
trap end EXIT
finish() { echo "took $SECONDS s"; echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" -eq 0 ]; exit; }
check() { # what, command ...
    local what=$1; shift
    if "$@" >"$folder/out" 2>&1; then passed=$((passed + 1)); return 0; fi
    failed=$((failed + 1))
    echo "FAILED: $what"
    tail -n 12 "$folder/out" | sed 's/^/  /'
    return 1
}
skip() { echo "skip: $1"; skipped=$((skipped + 1)); }
have() { command -v "$1" >/dev/null; }
empty() { [ -z "$1" ] || { echo "$1"; false; }; } # text: what should not be there
refused() { # what, pattern, command ...: fails with a sentence
    local what=$1 pattern=$2; shift 2
    if "$@" >"$folder/refusal" 2>&1; then check "$what" false; else check "$what" grep -E -- "$pattern" "$folder/refusal"; fi
}
part() { sed -nE "s/^#define SUMI_VERSION_$1 +([0-9]+).*/\1/p" include/sumi.h; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)

# ---- Made twice ------------------------------------------------------------------------------------------------------------------------
options=(${windows_libraries:+--windows-libraries "$windows_libraries"} ${KERNELS:+--kernels "$KERNELS"} ${SYSROOT:+--sysroot "$SYSROOT"})
clone() { git clone -q "$source" "$1"; }
mkdir -p "$folder/one" "$folder/a/deeper/one" "$folder/unpacked"
check "a clone" clone "$folder/clone" || finish
refused "another version than the header's" "VERSION is 9.9.9, but include/sumi.h says $version" "$folder/clone/packaging/release.sh" 9.9.9 "$folder/none"
refused "no libraries for Windows where they are said to be" "$folder/include/utf8proc.h is not there" "$folder/clone/packaging/release.sh" "$version" "$folder/none" --windows-libraries "$folder"
refused "a folder that is not empty" "is not empty: name another folder" "$folder/clone/packaging/release.sh" "$version" "$source/tests"
echo >>"$folder/clone/README.md"
refused "changes that are not committed" "changes that are not committed" "$folder/clone/packaging/release.sh" "$version" "$folder/none"
git -C "$folder/clone" checkout -q README.md
release=${RELEASE:-$folder/release}
if [ -n "${RELEASE:-}" ]; then
    skip "two runs make the same bytes: RELEASE names one run"
else
    first() { TMPDIR=$folder/one "$folder/clone/packaging/release.sh" "$version" "$release" "${options[@]}"; }
    check "a release" first || finish
    cp "$folder/out" "$folder/first"
    said_so() { if [ -n "$windows_libraries" ]; then ! grep 'nothing for Windows was made' "$folder/first"; else grep 'nothing for Windows was made' "$folder/first"; fi; }
    check "without libraries for Windows a sentence says what is missing, with them none does" said_so
    # Another folder, date, time zone, language and umask.
    another_date=()
    if have faketime; then another_date=(faketime "+40 days"); else skip "the second run on another date: there is no faketime"; fi
    check "a second clone" clone "$folder/a/deeper/clone"
    second() { (umask 077 && TZ=Asia/Tokyo LANG=C.UTF-8 TMPDIR=$folder/a/deeper/one "${another_date[@]}" "$folder/a/deeper/clone/packaging/release.sh" "$version" "$folder/again" "${options[@]}"); }
    if check "a release in another folder" second; then check "two runs make the same bytes" diff "$release/SHA256SUMS" "$folder/again/SHA256SUMS"; fi
fi

# ---- Archives --------------------------------------------------------------------------------------------------------------------------
in_folder() { (cd "$1" && "${@:2}"); }
check "SHA256SUMS is right" in_folder "$release" sha256sum -c --quiet SHA256SUMS
check "SHA256SUMS has every archive" diff <(awk '{ print $2 }' "$release/SHA256SUMS") <(cd "$release" && ls | grep -vx SHA256SUMS | LC_ALL=C sort)
for archive in "$release"/*; do
    bytes=$(stat -c %s "$archive")
    printf '%11d  %s\n' "$bytes" "$(basename "$archive")"
    check "$(basename "$archive") has at most 40 MiB" [ "$bytes" -le $((40 << 20)) ]
done
unzip_to() { python3 - "$1" "$2" <<'PYTHON'
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    for entry in archive.infolist():
        path = archive.extract(entry, sys.argv[2])
        os.chmod(path, entry.external_attr >> 16 or 0o644)
PYTHON
}
name=sumi-$version-linux-x86_64
linux=$folder/unpacked/$name windows= static=
check "the Linux archive" tar -xf "$release/$name.tar.xz" -C "$folder/unpacked" || finish
check "the demo models" unzip_to "$release/sumi-$version-demo-models.zip" "$folder/unpacked/models"
check "Unity's package" tar -xf "$release/com.sumi.unity-$version.tgz" -C "$folder/unpacked"
check "Unreal's plug-in" unzip_to "$release/sumi-$version-unreal.zip" "$folder/unpacked/unreal"
check "the wheel" unzip_to "$(echo "$release"/*-manylinux_*.whl)" "$folder/unpacked/wheel"
check "the package for .NET" unzip_to "$release/Sumi.$version.nupkg" "$folder/unpacked/nupkg"
if [ -e "$release/sumi-$version-windows-x86_64.zip" ]; then
    windows=$folder/unpacked/sumi-$version-windows-x86_64 static=$folder/unpacked/sumi-$version-windows-x86_64-mingw-static
    for each in "$windows" "$static"; do check "$(basename "$each").zip" unzip_to "$release/$(basename "$each").zip" "$folder/unpacked"; done
else
    skip "the archives for Windows: tests/run_release.sh WINDOWS_LIBRARIES"
fi
model=$folder/unpacked/models/samples/demo_model

# The list in packaging/README.md, both ways.
files_of() { (cd "$1" && find . -type f | sed 's,^\./,,' | LC_ALL=C sort); }
as_listed() { # system, folder
    files_of "$2" | awk -v system_name="$1" '
        NR == FNR { if ($1 ~ "(^|,)" system_name "(,|$)" || $1 == "all") wanted[$2] = 1; next }
        { for (path in wanted) if (path == $0 || (path ~ /\/$/ && index($0, path) == 1)) { found[path] = 1; next } print "not in packaging/README.md: " $0; bad = 1 }
        END { for (path in wanted) if (!(path in found)) { print "not in the archive: " path; bad = 1 } exit bad }' <(awk '/^```/ { on = !on } on && /^(linux|windows|static|all)/ { print $1, $2 }' packaging/README.md) -
}
sbom_has_files() { # folder: each with its checksum
    python3 - "$1" <<'PYTHON'
import hashlib, json, os, sys
folder = sys.argv[1]
document = json.load(open(os.path.join(folder, "sumi.spdx.json")))
told = {file["fileName"][2:]: {each["algorithm"]: each["checksumValue"] for each in file["checksums"]}["SHA256"] for file in document["files"]}
there = {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names} - {"sumi.spdx.json", "SHA256SUMS"}
assert set(told) == there, set(told) ^ there
for name, value in told.items():
    assert hashlib.sha256(open(os.path.join(folder, name), "rb").read()).hexdigest() == value, name
PYTHON
}
reader= # of SBOMs
if python3 -m venv "$folder/venv" >"$folder/out" 2>&1 && "$folder/venv/bin/pip" install -q spdx-tools >"$folder/out" 2>&1; then reader=$folder/venv/bin/pyspdxtools
else skip "whether the SBOM is valid SPDX: pip brings no spdx-tools"; fi
for each in linux:$linux ${windows:+windows:$windows static:$static}; do
    system=${each%%:*} place=${each#*:}
    check "$system: the files that packaging/README.md lists" as_listed "$system" "$place"
    check "$system: SHA256SUMS is right" in_folder "$place" sha256sum -c --quiet SHA256SUMS
    check "$system: SHA256SUMS has every file" diff <(awk '{ print $2 }' "$place/SHA256SUMS") <(files_of "$place" | grep -vx SHA256SUMS)
    check "$system: the SBOM has every file" sbom_has_files "$place"
    [ -z "$reader" ] || check "$system: the SBOM is valid SPDX" "$reader" -i "$place/sumi.spdx.json"
    check "$system: START.md says what it is" grep -q "sumi $version.*$(git rev-parse HEAD)" <(paste -sd ' ' "$place/START.md")
    for notice in "$place"/share/licenses/sumi/*; do check "$system: $(basename "$notice") is a notice" grep -qiE 'copyright|licen[cs]e' "$notice"; done
done
paths_in() { (cd "$1" && grep -rlaF -e "$folder/" -e "$source/" . ; cd "$1" && grep -rlaE '/tmp\.[A-Za-z0-9]{10}/' .) | sort -u; } # folder: also of a run that RELEASE names, which worked in such a folder
check "no path of this machine in any file" empty "$(paths_in "$folder/unpacked")"
printf 'x\0%s/a.c' "$folder" >"$folder/one/path"
check "a path would be found" grep -q . <(paths_in "$folder/one")

# ---- Linux -----------------------------------------------------------------------------------------------------------------------------
newer_symbols() { objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | awk -F '[_.]' '$2 > 2 || ($2 == 2 && $3 > 31)'; }
needs() { objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }' | sort | paste -sd ' '; }
its_own="ld-linux-x86-64.so.2|libc.so.6|libdl.so.2|libm.so.6|libpthread.so.0" # the C library
only_needs() { # file, pattern
    empty "$(needs "$1" | tr ' ' '\n' | grep -vxE "$2")"
}
unity=$folder/unpacked/package/Runtime/Plugins/x86_64
for each in "$linux/bin/sumi" "$linux/bin/sumi-viewer" "$linux/lib/libsumi.so" "$linux/lib/sumi/libspng.so.0" "$unity/libsumi.so" "$unity/libsumi_unity.so" "$folder/unpacked/wheel/sumi/libsumi.so"; do
    check "${each#"$folder/unpacked/"} asks for nothing newer than GLIBC_2.31" empty "$(newer_symbols "$each")"
    check "${each#"$folder/unpacked/"} has symbols" [ -n "$(objdump -T "$each" | grep -m 1 GLIBC_)" ]
done
check "libsumi.so needs the C library alone" only_needs "$linux/lib/libsumi.so" "$its_own"
check "the command line needs libspng besides" only_needs "$linux/bin/sumi" "$its_own|libspng.so.0"
check "and libspng zlib" only_needs "$linux/lib/sumi/libspng.so.0" "$its_own|libz.so.1"
check "the viewer needs GLFW, OpenGL and the C++ library besides" only_needs "$linux/bin/sumi-viewer" "$its_own|libspng.so.0|libglfw.so.3|libGL.so.1|libstdc\+\+.so.6|libgcc_s.so.1"
check "symbols of the two libraries" tests/check_symbols.sh "$linux/lib/libsumi.a" "$linux/lib/libsumi.so"
check "Unity and Python have the same library" cmp "$linux/lib/libsumi.so" "$unity/libsumi.so"
check "and Python" cmp "$linux/lib/libsumi.so" "$folder/unpacked/wheel/sumi/libsumi.so"
check "and .NET" cmp "$linux/lib/libsumi.so" "$folder/unpacked/nupkg/runtimes/linux-x64/native/libsumi.so"
if [ -n "$windows" ]; then
    check "the wheel for Windows" unzip_to "$(echo "$release"/*-win_amd64.whl)" "$folder/unpacked/windows_wheel"
    check "it has the DLL of the archive" cmp "$windows/bin/sumi.dll" "$folder/unpacked/windows_wheel/sumi/sumi.dll"
    check "and so has .NET" cmp "$windows/bin/sumi.dll" "$folder/unpacked/nupkg/runtimes/win-x64/native/sumi.dll"
fi
for each in "$folder"/unpacked/wheel/*.dist-info/licenses "$folder/unpacked/nupkg/licenses"; do check "${each#"$folder/unpacked/"} has NVIDIA's notice" grep -q 'NOTICE TO LICENSEE' "$each/cuda-headers.txt"; done
check "Unreal has the same archive" cmp "$linux/lib/libsumi.a" "$folder/unpacked/unreal/Sumi/Source/ThirdParty/Sumi/lib/Linux/libsumi.a"
check "machine code for every target" grep -q 'machine code: 8.0 8.6 8.9 9.0a 10.0 12.0$' <("$linux/bin/sumi" info)
for each in "$folder/unpacked/package/Third Party Notices.md" "$folder/unpacked/unreal/Sumi/THIRD_PARTY_NOTICES.txt"; do check "$(basename "$each") names what is inside" grep -q 'Jean-loup Gailly' "$each"; done
check "the command line's version" grep -qF "$version" <("$linux/bin/sumi" --version)

picture= png=
same_picture() { # what, command ...: a host's line, the same of all
    check "$1: it draws" "${@:2}" || return
    local line
    line=$(grep -aoE '^[0-9]+ x [0-9]+, [0-9a-f]{16}' "$folder/out")
    [ -n "$picture" ] || picture=$line
    check "$1: the same picture" [ "$line" = "$picture" ]
}
same_png() { # what, file
    local sum
    sum=$(sha256sum <"$2")
    [ -n "$png" ] || png=$sum
    check "$1: the same picture file" [ "$sum" = "$png" ]
}
words="a red house on the grass"
check "the command line draws" "$linux/bin/sumi" generate --quiet --backend cpu --model "$model" --prompt "$words" --seed 7 -o "$folder/here.png" && same_png "here" "$folder/here.png"
check "the wheel draws" env PYTHONPATH="$folder/unpacked/wheel" python3 -m sumi "$words" "$folder/wheel.png"

# ---- Bare Debians ----------------------------------------------------------------------------------------------------------------------
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m 1 '/debian/*$')}
roots=${ROOTS:-$folder/roots}
mkdir -p "$roots"
inside() { chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd /opt/$name && $*"; }
make_root() { [ -e "$roots/$1/etc/debian_version" ] || debootstrap --variant=minbase "$1" "$roots/$1" "$mirror"; }
copy_root() {
    cp -a "$roots/$1" "$root" && mkdir -p "$root/opt" && cp -a "$linux" "$root/opt" && cp -a "$folder/unpacked/models/samples" "$root/opt/$name" && cp -r tests/consumer "$root/opt/consumer" \
        && cp /etc/resolv.conf /etc/hosts "$root/etc" && { cp /etc/apt/apt.conf.d/99* "$root/etc/apt/apt.conf.d" 2>/dev/null || true; } && mount -t proc proc "$root/proc"
}
if [ "$(id -u)" != 0 ]; then skip "bare Debians: they need root"
elif ! have debootstrap || [ -z "$mirror" ]; then skip "bare Debians: there is no debootstrap, or no mirror (MIRROR)"
else
    for suite in bullseye bookworm trixie; do
        root=$folder/$suite
        check "$suite: a bare root" make_root $suite && check "$suite: a copy of it" copy_root $suite || continue
        check "$suite: the command line starts" inside bin/sumi info
        check "$suite: the command line draws" inside "bin/sumi generate --quiet --model samples/demo_model --prompt '$words' --seed 7 -o /root/out.png" && same_png "$suite" "$root/root/out.png"
        missing=$(inside "ldd bin/sumi-viewer" | awk '/not found/ { print $1 }' | sort | paste -sd ' ')
        check "$suite: the viewer lacks GLFW and OpenGL, and nothing else" [ "$missing" = "libGL.so.1 libglfw.so.3" ]
        check "$suite: a compiler" inside "apt-get update -q && apt-get install -y -q --no-install-recommends cmake gcc libc6-dev make pkg-config libglfw3 libgl1" || continue
        check "$suite: the viewer's libraries" empty "$(inside "ldd bin/sumi-viewer" | grep 'not found')"
        check "$suite: find_package" inside "cmake -S /opt/consumer -B /root/build -DCMAKE_PREFIX_PATH=/opt/$name -DSUMI_VERSION_WANTED=${version%.*} && cmake --build /root/build" || continue
        same_picture "$suite: sumi::sumi" inside "/root/build/host samples/demo_model"
        same_picture "$suite: sumi::shared" inside "/root/build/host_shared samples/demo_model"
        check "$suite: pkg-config" inside "PKG_CONFIG_PATH=lib/pkgconfig sh -c 'cc -std=c11 /opt/consumer/host.c \$(pkg-config --cflags --libs sumi) -o /root/host'" && same_picture "$suite: pkg-config" inside "/root/host samples/demo_model"
        check "$suite: START.md's command" inside "cc /opt/consumer/host.c -Iinclude lib/libsumi.a -lm -lpthread -ldl -o /root/host" && same_picture "$suite: START.md's command" inside "/root/host samples/demo_model"
        umount "$root/proc"
        rm -rf --one-file-system "$root"
    done
fi

# ---- Windows ---------------------------------------------------------------------------------------------------------------------------
tools=x86_64-w64-mingw32
if [ -n "$windows" ]; then
    imports() { $tools-objdump -p "$1" | awk '$1 == "DLL" { print tolower($3) }' | sort -u | paste -sd ' '; }
    system="kernel32.dll|msvcrt.dll|ucrtbase.dll|api-ms-win-crt-[a-z0-9-]*.dll|advapi32.dll|user32.dll|shell32.dll|bcrypt.dll|winmm.dll|ntdll.dll"
    only_imports() { empty "$(imports "$1" | tr ' ' '\n' | grep -vxE "$2")" && [ -n "$(imports "$1")" ]; }
    check "sumi.dll imports the system's libraries alone" only_imports "$windows/bin/sumi.dll" "$system"
    check "sumi.exe imports the system's libraries alone" only_imports "$windows/bin/sumi.exe" "$system"
    check "sumi_unity.dll imports them and sumi.dll" only_imports "$unity/sumi_unity.dll" "$system|sumi.dll|d3d11.dll|d3d12.dll|dxgi.dll"
    check "Unity has the same sumi.dll" cmp "$windows/bin/sumi.dll" "$unity/sumi.dll"
    check "Unreal has the same sumi.dll" cmp "$windows/bin/sumi.dll" "$folder/unpacked/unreal/Sumi/Source/ThirdParty/Sumi/lib/Win64/sumi.dll"
    check "Unreal has its import library" cmp "$windows/lib/sumi.lib" "$folder/unpacked/unreal/Sumi/Source/ThirdParty/Sumi/lib/Win64/sumi.lib"
    exports() { $tools-objdump -p "$windows/bin/sumi.dll" | sed -nE 's/^\s+\[ *[0-9]+\] (\+base\[ *[0-9]+\] +[0-9a-f]+ )?([A-Za-z_0-9]+)$/\2/p' | LC_ALL=C sort -u; }
    declared() { cat include/sumi.h include/sumi_xml.h | sed 's,//.*,,' | tr '\n' ' ' | grep -oE 'SUMI_API [^;{]*\(' | grep -oE 'sumi_[a-z0-9_]+\(' | tr -d '(' | LC_ALL=C sort -u; }
    check "sumi.dll shows the headers' functions" diff <(declared) <(exports)
    for library in sumi.lib libsumi.dll.a; do
        check "$library has them" diff <(exports) <($tools-nm "$windows/lib/$library" 2>/dev/null | sed -nE 's/^[0-9a-f]+ T (sumi_[a-z0-9_]+)$/\1/p' | LC_ALL=C sort -u)
    done
    wine=$(command -v wine64 || command -v wine || command -v /usr/lib/wine/wine64)
    export WINEPREFIX=$folder/wine WINEDEBUG=-all TMPDIR=$folder/one # Wine leaves folders there
    if [ -z "$wine" ]; then skip "what runs on Windows: there is no Wine"
    else
        "$wine" "$windows/bin/sumi.exe" --version >/dev/null 2>&1 # the first start makes Wine's folders
        check "Windows: machine code for every target" grep -q 'machine code: 8.0 8.6 8.9 9.0a 10.0 12.0' <("$wine" "$windows/bin/sumi.exe" info 2>/dev/null)
        check "Windows: the command line draws" "$wine" "$windows/bin/sumi.exe" generate --quiet --backend cpu --model "$model" --prompt "$words" --seed 7 -o "$folder/windows.png"

        check "Windows: the same picture file" cmp "$folder/here.png" "$folder/windows.png"
        cross() { # folder, options ...
            cmake -S tests/consumer -B "$folder/$1" -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_C_COMPILER=$tools-gcc -Dsumi_DIR="$windows/lib/cmake/sumi" -DSUMI_VERSION_WANTED="${version%.*}" && cmake --build "$folder/$1"
        }
        export WINEPATH=$windows/bin
        if ! have cmake; then skip "Windows: find_package: there is no cmake"
        elif check "Windows: find_package" cross consumer; then
            same_picture "Windows: sumi::shared" "$wine" "$folder/consumer/host_shared.exe" "$model"
            check "Windows: sumi::sumi is the DLL without the archive" grep -q 'sumi.dll' <(imports "$folder/consumer/host.exe")
            cp "$static/lib/libsumi.a" "$windows/lib"
            check "Windows: find_package, with the archive" cross consumer_static && same_picture "Windows: sumi::sumi" "$wine" "$folder/consumer_static/host.exe" "$model"
            check "Windows: and it needs no DLL" only_imports "$folder/consumer_static/host.exe" "$system"
        fi
        # Microsoft's linker is not here: LLVM's reads the same import library. Without the C library, so that nothing of MinGW-w64's start is linked.
        cat >"$folder/start.c" <<'C'
#include <sumi.h>
__declspec(dllimport) void __stdcall ExitProcess(unsigned);
void start(void) { ExitProcess(sumi_check_version(SUMI_VERSION_NUMBER) == SUMI_OK && sumi_version()[0] == '0' + SUMI_VERSION_MAJOR ? 7 : 1); }
C
        links_by_lld() {
            $tools-gcc -O2 -ffreestanding -DSUMI_API='__declspec(dllimport)' -Iinclude -c "$folder/start.c" -o "$folder/start.obj" \
                && lld-link /nodefaultlib /entry:start /subsystem:console /out:"$folder/start.exe" "$folder/start.obj" "$windows/lib/sumi.lib" "$($tools-gcc -print-file-name=libkernel32.a)" \
                && { "$wine" "$folder/start.exe"; [ $? -eq 7 ]; }
        }
        if have lld-link; then check "Windows: lld-link links sumi.lib" links_by_lld; else skip "Windows: sumi.lib: there is no lld-link"; fi
    fi
fi
finish
