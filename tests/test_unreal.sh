#!/usr/bin/env bash
# The part of samples/unreal that needs no Unreal: compiled with warnings as errors and run. usage: tests/test_unreal.sh build/.../release
# The last line is "unreal: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
support=$build/bin/cli_support
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
source=samples/unreal/Source/SumiUnreal
skip() { echo "skipped: $1"; echo "unreal: 0 passed, 0 failed, 1 skipped"; exit 0; }
fail() { echo "FAILED: $1"; echo "unreal: 0 passed, 1 failed, 0 skipped"; exit 1; }
command -v c++ >/dev/null || skip "there is no C++ compiler"

libraries=$(PKG_CONFIG_PATH=$build pkg-config --libs sumi 2>/dev/null) || fail "pkg-config finds no sumi in $build"
compile() { # program, folder of sumi.h
    c++ -std=c++17 -O1 -fno-exceptions -fno-rtti -Wall -Wextra -Wpedantic -Wshadow -Werror -I"$2" -I$source/Public tests/unreal_session.cpp $source/Private/SumiSession.cpp $source/Private/SumiXmlPrompt.cpp $libraries -o "$1" ||
        fail "the session does not compile"
}
compile "$folder/unreal_session" include
# A header of another version than the library's.
mkdir "$folder/other"
sed 's/^\(#define SUMI_VERSION_MINOR\) .*/\1 99/' include/sumi.h >"$folder/other/sumi.h"
compile "$folder/other_session" "$folder/other"
"$folder/other_session" refuses 0.99 >"$folder/out" || { cat "$folder/out"; fail "a header of another version is not refused as it should be"; }
if command -v x86_64-w64-mingw32-g++ >/dev/null; then
    x86_64-w64-mingw32-g++ -std=c++17 -O1 -fno-exceptions -fno-rtti -Wall -Wextra -Wpedantic -Wshadow -Werror -Iinclude -I$source/Public -c $source/Private/SumiShared12.cpp -o "$folder/shared12.o" || fail "the buffer of Direct3D 12 does not compile"
else echo "skip: the buffer of Direct3D 12: there is no x86_64-w64-mingw32-g++"; fi
[ -x "$support" ] || { echo "FAILED: there is no $support"; exit 1; }
"$build/bin/sumi" generate --quiet --backend cpu --model samples/demo_model --prompt "a red house on the grass" --seed 7 -o "$folder/wanted.png" || fail "the command line draws nothing"
"$support" pixels "$folder/wanted.png" >"$folder/wanted.rgba" || fail "the picture cannot be read"
# The tiny edit model lies in layers.
mkdir "$folder/edit"
cp -r tests/golden/qwen-image/model/. tests/golden/qwen-image/model-edit/processor tests/golden/qwen-image/model-edit-2509/model_index.json "$folder/edit"
"$folder/unreal_session" samples/demo_model "$folder/wanted.rgba" "$folder/edit"
status=$?
[ $status -le 1 ] || fail "unreal_session ended with $status"
exit $status
