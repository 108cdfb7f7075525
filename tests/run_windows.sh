#!/usr/bin/env bash
# The library, its tests and the command line for Windows: cross-compiled with MinGW-w64, warnings as errors, and run under Wine. The last line is "N passed, N failed, N skipped".
#
#   tests/run_windows.sh LIBRARIES [build/gcc/release]          without a GPU's driver
#   tests/run_windows.sh cuda LIBRARIES [build/gcc/release]     the CUDA backend, on the driver that needs no GPU (tests/fake_cuda) as nvcuda.dll
#
# LIBRARIES/include and LIBRARIES/lib hold utf8proc, libspng and zlib for MinGW, static; MSYS2's packages mingw-w64-x86_64-libutf8proc, -libspng and -zlib have them under mingw64/.
# The second folder is a build for this machine, whose pictures those from Windows are held against, bit for bit; its compiled kernels (KERNELS: their folder, build/kernels) go into
# the CUDA backend for Windows, which is left out without them. Debian: gcc-mingw-w64-x86-64, wine.
# Not part of tests/run.sh. What each program printed is in build/windows/log. JOBS: compilers at once.
set -uo pipefail
cd "$(dirname "$0")/.."
mode=cpu
if [ "${1:-}" = cuda ]; then mode=cuda; shift; fi
libraries=${1:-} native=${2:-build/gcc/release}
passed=0 failed=0 skipped=0
finish() { echo "took $SECONDS s"; echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" -eq 0 ]; exit; }
skip() { echo "skipped: $1"; skipped=$((skipped + 1)); }
tools=x86_64-w64-mingw32
command -v $tools-gcc >/dev/null || { skip "there is no $tools-gcc"; finish; }
wine=$(command -v wine64 || command -v /usr/lib/wine/wine64 || command -v wine) || { skip "there is no Wine"; finish; }
premake=$(command -v premake5 || command -v premake4) || { skip "there is no Premake"; finish; }
[ -e "$libraries/include/utf8proc.h" ] && [ -e "$libraries/include/spng.h" ] || { skip "say where utf8proc, libspng and zlib for MinGW are: tests/run_windows.sh [cuda] LIBRARIES"; finish; }

out=build/windows
bin=$out/release/bin
rm -rf $out/log $out/scratch
mkdir -p $out/log $out/scratch
export WINEPREFIX=$PWD/$out/wine_$mode WINEDEBUG=-all # a Windows without the driver, and one with it

# Believes the exit code, and the counts if there are any.
check() { # what, command ...
    local what=$1 log counts; shift
    log=$out/log/$(tr ' /' -- <<<"$what").txt
    if "$@" >"$log" 2>&1; then
        counts=$(grep -aoE '[0-9]+ passed, [0-9]+ failed.*' "$log" | tail -n 1 | tr -d '\r')
        passed=$((passed + 1))
        echo "ok     $what${counts:+  ($counts)}"
        grep -a '^skip: ' "$log" | tr -d '\r' | sed 's/^/         /'
        return 0
    fi
    failed=$((failed + 1))
    echo "FAILED $what"
    tail -n 8 "$log" | sed 's/^/         /'
    return 1
}
run() { timeout -k 10 600 "$wine" "$bin/$1.exe" "${@:2}"; }

# ---- Building -------------------------------------------------------------------------------------------------------------------------
configure() { "$premake" --file=premake5.lua --os=windows --build="$1" --libraries="$libraries" --kernels="${KERNELS:-build/kernels}" "${@:2}" gmake; } # folder, options ...
build_in() { make -k -C "$1" CC="$(command -v ccache) $tools-gcc" AR=$tools-ar config=release -j"${JOBS:-$(nproc)}" "${@:2}"; }                                            # folder, programs ...
check "makefiles" configure $out --shared || finish
check "everything compiles" build_in $out
no_cuda=$(grep -a '^CUDA backend: left out' $out/log/makefiles.txt)
[ -z "$no_cuda" ] || skip "$no_cuda"
[ $mode = cpu ] || [ -z "$no_cuda" ] || finish

rows=$(tests/list.sh windows) && cuda_rows=$(tests/list.sh windows-cuda) || check "tests/list.txt" false || finish
run_rows() { # rows of tests/list.sh
    local file arguments name
    while read -r _ file _ arguments; do
        name=$(basename "${file%.c}")
        case $file in
            test_*.c) check "$name" run "$name" $arguments ;;
            golden/*) check "golden_run $name" run golden_run $arguments "tests/$file" ;;
        esac
    done <<<"$1"
}
run hello >/dev/null 2>&1 # the first start makes Wine's folders

# ---- The CUDA backend -----------------------------------------------------------------------------------------------------------------
if [ $mode = cuda ]; then
    # Where the driver's own installer puts it. The library looks nowhere else.
    cp $out/release/fake/nvcuda.dll $out/release/fake/nvml.dll "$WINEPREFIX/drive_c/windows/system32/"
    run_rows "$cuda_rows"
    # The same calls of the driver in the same order, and the same results for the host program.
    calls() { mkdir -p $out/scratch/$1 && SUMI_CALLS=$out/scratch/$1 "${@:2}"; } # folder, command ...
    if [ -x "$native/bin/test_cuda_calls" ]; then
        check "calls of the driver" calls calls run test_cuda_calls
        check "calls of the driver here" calls calls_here "$native/bin/test_cuda_calls"
        for file in $out/scratch/calls_here/*.txt; do
            check "calls: $(basename "$file" .txt), $(wc -l <"$file") lines, as here" cmp $out/scratch/calls/"$(basename "$file")" "$file"
        done
    else
        skip "there is no $native/bin/test_cuda_calls to compare with"
    fi
    finish
fi

# One archive with utf8proc and zlib inside, and a host that links it and nothing else.
one=$out/one/release/lib/libsumi.a
check "one archive: makefiles" configure $out/one --bundle && check "one archive" build_in $out/one sumi \
    && check "a host links one archive" $tools-gcc -std=c11 tests/consumer/host.c -Iinclude $one -lm -static -o $bin/host.exe

# Visual Studio's projects can only be read here.
if [ "$(basename "$premake")" = premake5 ]; then
    project=$out/visual-studio/sumi.vcxproj
    check "projects for Visual Studio" "$premake" --file=premake5.lua --build=$out/visual-studio --libraries="$libraries" --no-cuda vs2022
    has_all_sources() { diff <(grep -o '<ClCompile Include="[^"]*"' $project | sed 's/.*[\\/]//; s/"$//' | sort) <(ls src/*/*.c | grep -v '^src/cuda/' | sed 's,.*/,,' | cat - <(echo absent.c) | sort); }
    check "they have the library's sources" has_all_sources
    has_settings() { grep -q '<PlatformToolset>ClangCL<' $project && grep -q '<LanguageStandard_C>stdc11<' $project && grep -q '<WarningLevel>Level4<' $project && ! grep -hE -- '-std=|-fPIC|-isystem|-fvisibility| -ffp' $out/visual-studio/*.vcxproj; }
    check "they are for its clang, C11, all warnings" has_settings
else
    skip "projects for Visual Studio: they need Premake 5"
fi

# ---- Running --------------------------------------------------------------------------------------------------------------------------
run_rows "$rows"
# The others ask for POSIX or for a GPU.
for source in tests/test_*.c; do
    grep -qE "^windows(-cuda)? $(basename "$source") " <<<"$rows"$'\n'"$cuda_rows" || skip "$(basename "$source" .c): not for Windows (tests/list.txt)"
done
# Wine starts a program like any other, and takes this machine's paths: the command line's test cannot tell.
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$wine" "$PWD/$bin/sumi.exe" >$bin/sumi
chmod +x $bin/sumi
check "test_cli" timeout -k 10 900 tests/test_cli.sh $out/release
check "hello draws" run hello samples/demo_model "a red house on the grass" $out/scratch/hello.png
picture=(--model samples/demo_model --size 128x96 --seed 5 --steps 4 --quiet)
check "the command line draws" run sumi generate "${picture[@]}" --prompt "a red house on the grass" -o $out/scratch/picture.png
check "the command line takes UTF-8" run sumi generate "${picture[@]}" --prompt "ein Haus in der Wüste, 夜" -o "$out/scratch/Wüste 夜.png"
if [ -x "$native/bin/hello" ] && [ -x "$native/bin/sumi" ]; then
    check "hello draws here" "$native/bin/hello" samples/demo_model "a red house on the grass" $out/scratch/hello_here.png
    check "hello's picture is the same, bit for bit" cmp $out/scratch/hello.png $out/scratch/hello_here.png
    "$native/bin/sumi" generate "${picture[@]}" --backend cpu --prompt "a red house on the grass" -o $out/scratch/picture_here.png
    "$native/bin/sumi" generate "${picture[@]}" --backend cpu --prompt "ein Haus in der Wüste, 夜" -o $out/scratch/utf8_here.png
    check "the command line's picture is the same, bit for bit" cmp $out/scratch/picture.png $out/scratch/picture_here.png
    host_here() { cc -std=c11 tests/consumer/host.c -Iinclude "$native/lib/libsumi.a" -lutf8proc -lz -lm -lpthread -ldl -o $out/scratch/host && $out/scratch/host samples/demo_model >$out/scratch/host_here.txt; }
    check "a host of one archive draws" run host samples/demo_model
    check "it draws here" host_here
    check "its picture is the same" grep -qaxF "$(cat $out/scratch/host_here.txt)" <(tr -d '\r' <$out/log/a-host-of-one-archive-draws.txt)
    check "in UTF-8 too" cmp "$out/scratch/Wüste 夜.png" $out/scratch/utf8_here.png
else
    skip "there is no $native/bin/hello and sumi to compare with"
fi
if [ -z "$no_cuda" ]; then
    no_driver() { run sumi info | grep -a '^cuda  *not available.*nvcuda\.dll'; }
    check "without a driver the CUDA backend says so" no_driver
fi
finish
