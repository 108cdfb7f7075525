#!/usr/bin/env bash
# samples/engines/unity without Unity: compiled and run by Mono against the shared library, the components on a stand-in of UnityEngine. usage: tests/test_unity.sh build/.../release [RUNS]
# RUNS: how often each session of tests/unity_sessions.cs is played, 3 unless it is said. With a build of config=asan (targets sumi_shared and fake_cuda of a configuration with --shared)
# the sessions run under the sanitizers, and nothing else does.
# The last line is "unity: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
runs=${2:-3} sources=$PWD
support=$build/bin/cli_support
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
skip() { echo "skipped: $1"; echo "unity: 0 passed, 0 failed, 1 skipped"; exit 0; }
fail() { echo "FAILED: $1"; echo "unity: 0 passed, 1 failed, 0 skipped"; exit 1; }
command -v mcs >/dev/null && command -v mono >/dev/null || skip "there is no Mono (mcs and mono; samples/setup.sh tests installs them)"
[ -e "$build/plugin/libsumi.so" ] || fail "$build/plugin/libsumi.so is not there: make the build with premake's --shared"

# The sanitizers' library comes before Mono's own; Mono keeps the signals that it uses itself.
sanitizers=() preload=
if grep -q libasan <<<"$(ldd "$build/plugin/libsumi.so")"; then
    sanitizers=(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g)
    preload=$(cc -print-file-name=libasan.so)
    export ASAN_OPTIONS=detect_leaks=0:handle_segv=0:use_sigaltstack=0:allow_user_segv_handler=1
fi
mono_with() { LD_PRELOAD=$preload mono "$@"; }

# What the headers declare is bound, or named among what is not.
for name in $(cat include/*.h | grep '^SUMI_API' | grep -oE 'sumi_[a-z_]+\(' | tr -d '('); do
    grep -q "\b$name\b" samples/engines/unity/Runtime/SumiNative.cs || fail "SumiNative.cs does not know $name"
done

part() { sed -n "s/^#define SUMI_VERSION_$1  *\([0-9]*\).*/\1/p" include/sumi.h; }
version=$(part MAJOR).$(part MINOR).$(part PATCH) number=$(($(part MAJOR) * 1000000 + $(part MINOR) * 1000 + $(part PATCH)))
table=tests/abi_$(part MAJOR)_$(part MINOR).txt # the header's, which check_abi.sh holds against it
[ -e "$table" ] || fail "$table is not there"

export LD_LIBRARY_PATH=$build/plugin
compiler=(mcs -langversion:7 -warnaserror -warn:4 -optimize)
compile() { # exe, folder of the scripts, more
    "${compiler[@]}" -unsafe -out:"$1" "${@:3}" tests/unity_*.cs "$2"/*.cs samples/engines/unity/Editor/*.cs samples/engines/unity/Samples~/Demo/*.cs || fail "the bindings do not compile"
}
compile "$folder/unity_bindings.exe" samples/engines/unity/Runtime -define:UNITY_EDITOR
compile "$folder/player.exe" samples/engines/unity/Runtime
# As Unity does: an assembly for each .asmdef, which sees what is public of the one that it refers to.
library() { # assembly, sources and references
    "${compiler[@]}" -target:library -out:"$folder/$1.dll" "${@:2}" || fail "$1 does not compile by itself"
}
library UnityEngine tests/unity_engine.cs
library Sumi.Runtime -unsafe -define:UNITY_EDITOR -reference:"$folder/UnityEngine.dll" samples/engines/unity/Runtime/*.cs
library Sumi.Editor -define:UNITY_EDITOR -reference:"$folder/UnityEngine.dll" -reference:"$folder/Sumi.Runtime.dll" samples/engines/unity/Editor/*.cs
library Sumi.Demo -reference:"$folder/UnityEngine.dll" -reference:"$folder/Sumi.Runtime.dll" samples/engines/unity/Samples~/Demo/*.cs

# Scripts of another version than the library's, and a library that cannot tell.
refuses() { # exe, version of the library, version of the scripts
    mono_with "$1" refuses "$2" "$3" >"$folder/out" 2>&1 || { cat "$folder/out"; fail "a library of version $2 under scripts for $3 is not refused as it should be"; }
}
cp -r samples/engines/unity/Runtime "$folder/scripts"
sed -i 's/HeaderVersion = [0-9]*;/HeaderVersion = 99000;/' "$folder/scripts/SumiNative.cs"
compile "$folder/other.exe" "$folder/scripts"
refuses "$folder/other.exe" "$version" 0.99
mkdir "$folder/old"
echo 'const char* sumi_version(void); const char* sumi_version(void) { return "0.1.0"; }' | cc -shared -fPIC -x c - -o "$folder/old/libsumi.so" || fail "no shared library can be made"
LD_LIBRARY_PATH=$folder/old refuses "$folder/unity_bindings.exe" 0.1.0 "$(part MAJOR).$(part MINOR)"

LD_LIBRARY_PATH=$folder/nothing mono_with "$folder/unity_bindings.exe" missing >"$folder/out" 2>&1 || { cat "$folder/out"; fail "a missing library is not told as it should be"; }

# The rendering plug-in: compiled for this system and, where MinGW-w64 is, for Windows, and run with OpenGL on a driver that needs no GPU.
native='samples/engines/unity/Native~/sumi_unity.c'
warnings=(-std=c11 -O1 -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror)
cc "${warnings[@]}" "${sanitizers[@]}" -fPIC -shared -fvisibility=hidden -Iinclude "$native" -L"$build/plugin" -l:libsumi.so -lpthread -o "$folder/libsumi_unity.so" || fail "the rendering plug-in does not compile"
if command -v x86_64-w64-mingw32-gcc >/dev/null; then x86_64-w64-mingw32-gcc "${warnings[@]}" -Iinclude -c "$native" -o "$folder/sumi_unity.o" || fail "the rendering plug-in does not compile for Windows"
else echo "skip: the rendering plug-in for Windows: there is no x86_64-w64-mingw32-gcc"; fi
# Its half for Direct3D, with objects that are none, under Wine.
wine=$(command -v wine64 || command -v wine || command -v /usr/lib/wine/wine64)
if [ -n "$wine" ] && [ -e "$folder/sumi_unity.o" ]; then
    x86_64-w64-mingw32-gcc "${warnings[@]}" -Wno-pedantic -static -Iinclude -I. tests/unity_direct3d.c -o "$folder/unity_direct3d.exe" || fail "the test of Direct3D does not compile"
    WINEPREFIX=$folder/wine WINEDEBUG=-all timeout -k 10 "${UNITY_TIMEOUT:-120}" "$wine" "$folder/unity_direct3d.exe" >"$folder/out" 2>&1 && grep -qa '^unity_direct3d: ' "$folder/out" || { cat "$folder/out"; fail "the rendering plug-in with Direct3D"; }
    grep -a '^unity_direct3d: ' "$folder/out"
else echo "skip: the rendering plug-in with Direct3D: there is no Wine, or no x86_64-w64-mingw32-gcc"; fi
if [ -e "$build/fake/libcuda.so.1" ]; then
    cc "${warnings[@]}" "${sanitizers[@]}" -D_POSIX_C_SOURCE=200809L -fPIC -shared -I. -Itests/fake_cuda tests/unity_plugin_host.c -L"$build/fake" -l:libfake_cuda.so -L"$folder" -l:libsumi_unity.so -lpthread -Wl,-rpath-link,"$build/plugin" -o "$folder/libunity_plugin_host.so" || fail "the plug-in's host does not compile"
    play() { # session, exe, run: a process of its own; what malloc frees is filled, small blocks too; a hang is what takes two minutes, of which the longest session needs a few seconds
        (cd "$folder" && SUMI_SEED=$3 MALLOC_PERTURB_=165 GLIBC_TUNABLES=glibc.malloc.tcache_count=0 LD_LIBRARY_PATH=$build/fake:$folder:$build/plugin \
            LD_PRELOAD=$preload timeout -k 10 "${UNITY_TIMEOUT:-120}" mono "$2" session "$1" "$sources/samples/demo_model" >out 2>&1)
    }
    bad=0 played=0
    for session in $(grep -oP '^ +{ "\K[a-z-]+(?=", [A-Z])' tests/unity_sessions.cs); do
        good=0
        for ((run = 0; run < runs; run++)); do
            play "$session" "$([ "$session" = lifetime ] && [ $((run % 2)) = 1 ] && echo player.exe || echo unity_bindings.exe)" "$run"
            status=$?
            played=$((played + 1))
            # Mono may end with 0 after a crash: its last line tells
            [ $status -eq 0 ] && tail -n 1 "$folder/out" | grep -qE '^unity_bindings: [0-9]+ passed, 0 failed' && good=$((good + 1)) && continue
            bad=$((bad + 1))
            case $status in
                124 | 137) why=hangs ;;
                *) grep -q '^unity_bindings: ' "$folder/out" && why="finds something" || why=crashes ;;
            esac
            echo "session $session, run $run: $why"
            grep -aE '^FAILED|violation|Unhandled|Exception|SIG|ERROR: |runtime error|^  ' "$folder/out" | head -n 6 | sed 's/^/    /'
        done
        echo "session $session: $good of $runs runs end well"
    done
    [ $bad -eq 0 ] || fail "$bad of $played play sessions"
else echo "skip: the rendering plug-in: this build has no CUDA backend"; fi

[ -z "$preload" ] || { echo "unity: $((played - bad)) passed, $bad failed, 0 skipped"; exit 0; }
[ -x "$support" ] || { echo "FAILED: there is no $support"; exit 1; }
"$build/bin/sumi" generate --quiet --backend cpu --model samples/demo_model --prompt "a red house on the grass" --seed 7 -o "$folder/wanted.png" || fail "the command line draws nothing"
"$support" pixels "$folder/wanted.png" >"$folder/wanted.rgba" || fail "the picture cannot be read"
# The tiny edit model lies in layers. Images of 64 x 64 take less time than those of its family.
mkdir "$folder/edit"
cp -r tests/golden/qwen-image/model/. tests/golden/qwen-image/model-edit/processor tests/golden/qwen-image/model-edit-2509/model_index.json "$folder/edit"
sed -i 's/"_class_name"/"sample_size": 64, &/' "$folder/edit/vae/config.json"
mono "$folder/unity_bindings.exe" samples/demo_model "$folder/wanted.rgba" "$table" $number "$folder/edit" tests/golden/flux2-klein/model \
    tests/golden/z-image/model tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors
status=$?
[ $status -le 1 ] || fail "unity_bindings ended with $status"
exit $status
