#!/usr/bin/env bash
# The library, its tests and the command line for Windows: cross-compiled with MinGW-w64, warnings as errors, and run under Wine. The last line is "N passed, N failed, N skipped".
#
#   tests/run_windows.sh LIBRARIES [build/gcc/release]          without a GPU's driver
#   tests/run_windows.sh cuda LIBRARIES [build/gcc/release]     the CUDA backend, on the driver that needs no GPU (tests/fake_cuda) as nvcuda.dll
#
# LIBRARIES/include and LIBRARIES/lib hold utf8proc, libspng and zlib for MinGW, static; MSYS2's packages mingw-w64-x86_64-libutf8proc, -libspng and -zlib have them under mingw64/.
# The second folder is a build for this machine, whose pictures those from Windows are held against, bit for bit; its compiled kernels (KERNELS: their folder, build/kernels) go into
# the CUDA backend for Windows, which is left out without them. Debian: gcc-mingw-w64-x86-64, wine.
# Not part of tests/run.sh. What each program printed is in build/windows/log_cpu and log_cuda. JOBS: compilers at once.
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
logs=$out/log_$mode
rm -rf $logs $out/scratch
mkdir -p $logs $out/scratch
export WINEPREFIX=$PWD/$out/wine_$mode WINEDEBUG=-all # a Windows without the driver, and one with it

# Believes the exit code, and the counts if there are any. What it printed is in the file $log.
check() { # what, command ...
    local what=$1 counts; shift
    log=$logs/$(tr ' /' -- <<<"$what").txt
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
build_in() { make -k -C "$1" CC=$tools-gcc AR=$tools-ar config=release -j"${JOBS:-$(nproc)}" "${@:2}"; }                                            # folder, programs ...
check "makefiles" configure $out --shared || finish
check "everything compiles" build_in $out
no_cuda=$(grep -a '^CUDA backend: left out' $logs/makefiles.txt)
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
dll=$out/release/plugin/sumi.dll
host_of_dll() { $tools-gcc -std=c11 tests/consumer/host.c -Iinclude "${dll%/*}/libsumi.a" -o $bin/host_of_dll.exe && cp $dll $bin/; }
check "a host links sumi.dll by MinGW-w64's import library" host_of_dll
# Wine's server ends when no program runs, and one that starts at that moment may not find it: of thousands of starts one ended without a word. So it stays until this script ends.
server=$(command -v wineserver || command -v /usr/lib/wine/wineserver)
if [ -n "$server" ]; then
    trap '"$server" -k' EXIT
    "$server" -p
fi
run hello >/dev/null 2>&1 # the first start makes Wine's folders

# ---- The CUDA backend -----------------------------------------------------------------------------------------------------------------
if [ $mode = cuda ]; then
    # Where the driver's own installer puts it. The library looks nowhere else.
    cp $out/release/fake/nvcuda.dll $out/release/fake/nvml.dll "$WINEPREFIX/drive_c/windows/system32/"
    run_rows "$cuda_rows"
    info_of_fake() { run sumi info | grep -a '^cuda .*Fake 0'; }
    check "the command line sees the GPU" info_of_fake
    check "sumi.dll draws with the driver" run host_of_dll samples/demo_model cuda
    check "an image stays in memory of the host's context" run cookbook device_memory samples/demo_model "a red house" $out/scratch/device.png
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
rm -f $one # one that was left without them by a step that failed would count as done
check "one archive: makefiles" configure $out/one --bundle && check "one archive" build_in $out/one sumi \
    && check "a host links one archive" $tools-gcc -std=c11 tests/consumer/host.c -Iinclude $one -lm -static -o $bin/host.exe

# ---- sumi.dll -------------------------------------------------------------------------------------------------------------------------
dll_part() { $tools-objdump -p $dll | tr -d '\r' | sed -n "$1"; } # part
imports_of_system() { # the driver is opened when an engine wants it
    local names; names=$(dll_part 's/^[[:space:]]*DLL Name: //p')
    [ -n "$names" ] && ! grep -vixE 'kernel32\.dll|msvcrt\.dll' <<<"$names"
}
shows_header() {
    dll_part '/\[Ordinal\/Name Pointer\] Table/,/^$/s/.* //p' | grep '^sumi_' | sort >$out/scratch/shown.txt
    grep -ohE 'SUMI_API [^;(]*sumi_[a-z0-9_]+\(' include/*.h | grep -oE 'sumi_[a-z0-9_]+\($' | tr -d '(' | sort | diff - $out/scratch/shown.txt
}
makes_no_console() { ! dll_part '/DLL Name/,/^$/p' | grep -E 'AllocConsole|AttachConsole|WriteConsole'; }
check "sumi.dll asks for the system's libraries only" imports_of_system
check "sumi.dll shows the headers' functions and nothing else" shows_header
check "sumi.dll calls no function of consoles" makes_no_console
# A host of Visual Studio's ABI and its format of import libraries, by clang and lld-link, without a header or library of MinGW's.
import_library() { # library, DLL, functions ...
    printf '%s\n' "LIBRARY $2" EXPORTS "${@:3}" >"${1%.lib}.def"
    lld-link /nologo /machine:x64 "/def:${1%.lib}.def" "/out:$1"
}
visual_studio_host() {
    local source=tests/consumer/windows_host.c to=$out/scratch
    import_library $to/sumi.lib sumi.dll $(cat $to/shown.txt) \
        && import_library $to/kernel32.lib KERNEL32.dll $(sed -n 's/.*__stdcall \([A-Za-z]*\)(.*/\1/p' $source) \
        && clang --target=x86_64-pc-windows-msvc -std=c11 -O1 -Wall -Wextra -Werror -ffreestanding -fno-builtin -mno-stack-arg-probe -Iinclude -c $source -o $to/windows_host.obj \
        && lld-link /nologo /subsystem:windows /entry:mainCRTStartup /nodefaultlib $to/windows_host.obj $to/sumi.lib $to/kernel32.lib "/out:$bin/windows_host.exe"
}
if command -v lld-link >/dev/null && command -v clang >/dev/null; then
    has_visual_studio_host=1
    check "lld-link links a host of Visual Studio's ABI" visual_studio_host
else
    has_visual_studio_host=
    skip "a host of Visual Studio's ABI: there is no clang or no lld-link (Debian: clang, lld)"
fi

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
for program in sumi cli_support; do
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$wine" "$PWD/$bin/$program.exe" >$bin/$program
    chmod +x $bin/$program
done
check "test_cli" timeout -k 10 900 tests/test_cli.sh $out/release
if [ -x "$native/bin/hello" ] && [ -x "$native/bin/sumi" ]; then
    # Every picture is drawn by both, and the files are the same.
    same() { # what, arguments of sumi generate ...
        check "$1" run sumi generate --backend cpu --seed 5 --quiet "${@:2}" -o $out/scratch/picture.png
        check "$1, here" "$native/bin/sumi" generate --backend cpu --seed 5 --quiet "${@:2}" -o $out/scratch/picture_here.png
        check "$1: the same, bit for bit" cmp $out/scratch/picture.png $out/scratch/picture_here.png
    }
    red_house=(--model samples/demo_model --prompt "a red house on the grass" --steps 4)
    for size in 64x64 128x96 96x256 256x256; do same "a picture of $size" "${red_house[@]}" --size $size; done
    same "all steps of the model" --model samples/demo_model --prompt "a blue fish" --size 128x128
    same "two pictures with guidance" "${red_house[@]}" --size 96x96 --guidance 2 --negative "grey" --solver heun
    same "an adapter" "${red_house[@]}" --size 128x128 --lora samples/demo_model/lora/blueprint.safetensors
    same "a prompt in UTF-8" --model samples/demo_model --steps 4 --size 128x96 --prompt "ein Haus in der Wüste, 夜"
    cp $out/scratch/picture_here.png $out/scratch/start.png
    same "a picture to start from" "${red_house[@]}" --size 128x96 --image $out/scratch/start.png --strength 0.6
    same "an edit" --model samples/demo_edit_model --prompt "make it night" --steps 4 --reference $out/scratch/start.png
    same "an edit with an adapter" --model samples/demo_edit_model --prompt "make it night" --steps 2 --reference $out/scratch/start.png --lora samples/demo_edit_model/lora/turbo.safetensors
    mkdir -p "$out/scratch/Модель 夜 🎨"
    cp -r samples/demo_model/. "$out/scratch/Модель 夜 🎨"
    same "a model in a folder of many scripts" --model "$out/scratch/Модель 夜 🎨" --prompt "a red house" --steps 2 --size 64x64
    check "a file name in UTF-8" run sumi generate "${red_house[@]}" --size 64x64 --seed 5 --quiet -o "$out/scratch/Wüste 夜.png"
    check "it is there" test -s "$out/scratch/Wüste 夜.png"
    check "hello draws" run hello samples/demo_model "a red house on the grass" $out/scratch/hello.png
    check "hello draws here" "$native/bin/hello" samples/demo_model "a red house on the grass" $out/scratch/hello_here.png
    check "hello's picture is the same, bit for bit" cmp $out/scratch/hello.png $out/scratch/hello_here.png
    # Hosts that link the library in one way or another.
    host_here() { cc -std=c11 tests/consumer/host.c -Iinclude "$native/lib/libsumi.a" -lutf8proc -lz -lm -lpthread -ldl -o $out/scratch/host && $out/scratch/host samples/demo_model >$out/scratch/host_here.txt; }
    check "a host of one archive draws" run host samples/demo_model
    check "it draws here" host_here
    check "a host of sumi.dll draws the same" grep -qaxF "$(cat $out/scratch/host_here.txt)" <(run host_of_dll samples/demo_model | tr -d '\r')
    check "its picture is the same" grep -qaxF "$(cat $out/scratch/host_here.txt)" <(tr -d '\r' <$logs/a-host-of-one-archive-draws.txt)
    if [ -n "$has_visual_studio_host" ]; then
        check "a host of Visual Studio's ABI draws, and no console is made" run windows_host samples/demo_model $out/scratch/windows_host.txt
        check "it prints nothing" test ! -s "$log"
        check "its picture is the same, too" cmp $out/scratch/windows_host.txt <($out/scratch/host samples/demo_model small)
    fi
    for recipe in "services" "lora samples/demo_model/lora/blueprint.safetensors" "image_to_image $out/scratch/start.png"; do
        set -- $recipe
        check "cookbook, $1" run cookbook $1 samples/demo_model "a red house on the grass" $out/scratch/cookbook.png "${@:2}"
        check "cookbook, $1, here" "$native/bin/cookbook" $1 samples/demo_model "a red house on the grass" $out/scratch/cookbook_here.png "${@:2}"
        check "cookbook, $1: the same, bit for bit" cmp $out/scratch/cookbook.png $out/scratch/cookbook_here.png
    done
else
    skip "there is no $native/bin/hello and sumi to compare with"
fi
check "cookbook opens sumi.dll by name" run cookbook by_name samples/demo_model "a red house on the grass" $out/scratch/by_name.png $dll
check "the worker draws beside frames" run worker samples/demo_model "a red house on the grass" $out/scratch/worker.png
check "bench measures" run bench --synthetic newbie-tiny --size 64x64 --tokens 40 --runs 1
check "sumi bench measures" run sumi bench --backend cpu --network tiny --sizes 64x96 --steps 2 --seconds 20 --json
if [ -z "$no_cuda" ]; then
    no_driver() { run sumi info | grep -a '^cuda  *not available.*nvcuda\.dll'; }
    check "without a driver the CUDA backend says so" no_driver
    check "sumi.dll needs the driver for it" eval '! run host_of_dll samples/demo_model cuda'
fi
finish
