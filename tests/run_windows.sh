#!/usr/bin/env bash
# The library for Windows: cross-compiled with MinGW-w64, warnings as errors, for the processor alone, and run under Wine. The last line is "N passed, N failed, N skipped".
#
#   tests/run_windows.sh LIBRARIES [build/gcc/release]
#
# LIBRARIES/include and LIBRARIES/lib hold utf8proc, libspng and zlib for MinGW, static; MSYS2's packages mingw-w64-x86_64-libutf8proc, -libspng and -zlib have them under mingw64/.
# The second folder is a build for this machine, whose picture the one from Windows is held against: bit for bit. Debian: gcc-mingw-w64-x86-64, wine.
# Not part of tests/run.sh. The programs here are those that ask for nothing but C; the other tests use POSIX.
set -uo pipefail
cd "$(dirname "$0")/.."
libraries=${1:-} native=${2:-build/gcc/release}
passed=0 failed=0 skipped=0
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" -eq 0 ]; exit; }
skip() { echo "skipped: $1"; skipped=$((skipped + 1)); finish; }
compiler=x86_64-w64-mingw32-gcc
command -v $compiler >/dev/null || skip "there is no $compiler"
wine=$(command -v wine64 || command -v wine) || skip "there is no Wine"
[ -e "$libraries/include/utf8proc.h" ] && [ -e "$libraries/include/spng.h" ] || skip "say where utf8proc, libspng and zlib for MinGW are: tests/run_windows.sh LIBRARIES"

out=build/windows
mkdir -p $out/obj
export WINEPREFIX=$PWD/$out/wine WINEDEBUG=-all
flags="-std=c11 -O3 -ffp-contract=off -Wall -Wextra -Wshadow -Werror -Iinclude -Isrc -I. -Isamples -Itests -I$libraries/include -DUTF8PROC_STATIC -DSPNG_STATIC -DNDEBUG -D__USE_MINGW_ANSI_STDIO=1 -D_POSIX_C_SOURCE=200809L"
strictly="-Wpedantic -Wstrict-prototypes -Wmissing-prototypes"

check() { # what, command ...: believes the exit code, and counts if there are any
    local what=$1 counts; shift
    if "$@" >$out/log.txt 2>&1; then
        counts=$(grep -aE '[0-9]+ passed, [0-9]+ failed' $out/log.txt | tail -n 1 | tr -d '\r')
        passed=$((passed + 1))
        echo "ok     $what${counts:+  ($counts)}"
    else
        failed=$((failed + 1))
        echo "FAILED $what"
        tail -n 6 $out/log.txt | sed 's/^/         /'
    fi
}

compile() {
    rm -f $out/obj/*.o
    local sources
    sources=$(ls src/*/*.c | grep -v '^src/cuda/'; echo src/cuda/absent.c)
    xargs -n 1 -P "$(nproc)" sh -c "$compiler $flags $strictly -c \"\$0\" -o $out/obj/\$(basename \"\$0\" .c).o" <<<"$sources" && x86_64-w64-mingw32-ar rcs $out/libsumi.a $out/obj/*.o
}
link() { # program, sources ...
    local program=$1; shift
    $compiler $flags -Wno-format -Wno-format-extra-args "$@" samples/png.c -o $out/$program.exe -L$out -L"$libraries/lib" -lsumi -lutf8proc -lspng -lz -lm -static
}
run() { "$wine" "$out/$1.exe" "${@:2}"; }

check "the library compiles" compile
check "hello links" link hello samples/hello/hello.c
check "test_base links" link test_base tests/test_base.c
check "golden_run links" link golden_run tests/golden_*.c
run hello >/dev/null 2>&1 # the first start makes Wine's folders
check "test_base" run test_base
check "golden_run z-image" run golden_run tests/golden/z-image
check "hello draws" run hello samples/demo_model "a red house on the grass" $out/windows.png
if [ -x "$native/bin/hello" ]; then
    check "hello draws here" "$native/bin/hello" samples/demo_model "a red house on the grass" $out/here.png
    check "the same picture, bit for bit" cmp $out/windows.png $out/here.png
else
    echo "skipped: there is no $native/bin/hello to compare with"
    skipped=$((skipped + 1))
fi
finish
