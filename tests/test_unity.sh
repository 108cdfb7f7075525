#!/usr/bin/env bash
# samples/unity without Unity: compiled and run by Mono against the shared library, the component on a stand-in of UnityEngine. usage: tests/test_unity.sh build/.../release
# The last line is "unity: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
skip() { echo "skipped: $1"; echo "unity: 0 passed, 0 failed, 1 skipped"; exit 0; }
fail() { echo "FAILED: $1"; echo "unity: 0 passed, 1 failed, 0 skipped"; exit 1; }
command -v mcs >/dev/null && command -v mono >/dev/null || skip "there is no Mono (mcs and mono; samples/setup.sh tests installs them)"
[ -e "$build/plugin/libsumi.so" ] || fail "$build/plugin/libsumi.so is not there: make the build with premake's --shared"

# What the header declares is bound, or named among what is not.
for name in $(grep '^SUMI_API' include/sumi.h | grep -oE 'sumi_[a-z_]+\(' | tr -d '('); do
    grep -q "\b$name\b" samples/unity/Runtime/SumiNative.cs || fail "SumiNative.cs does not know $name"
done

export LD_LIBRARY_PATH=$build/plugin
mcs -langversion:7 -unsafe -warnaserror -warn:4 -optimize -out:"$folder/unity_bindings.exe" tests/unity_bindings.cs tests/unity_engine.cs samples/unity/Runtime/*.cs || fail "the bindings do not compile"
mono "$folder/unity_bindings.exe" layout >"$folder/layout.c" || fail "the bindings do not start"
cc -std=c11 -Wall -Werror -Iinclude "$folder/layout.c" -o "$folder/layout" || fail "the header has not what the bindings name"
"$folder/layout" >"$folder/layout.txt"

cc -std=c11 -Isamples tests/cli_support.c samples/png.c samples/system.c -lspng -lz -lm -o "$folder/support" || fail "tests/cli_support.c does not compile"
"$build/bin/sumi" generate --quiet --backend cpu --model samples/demo_model --prompt "a red house on the grass" --seed 7 -o "$folder/wanted.png" || fail "the command line draws nothing"
"$folder/support" pixels "$folder/wanted.png" >"$folder/wanted.rgba" || fail "the picture cannot be read"
mono "$folder/unity_bindings.exe" samples/demo_model "$folder/wanted.rgba" "$folder/layout.txt"
status=$?
[ $status -le 1 ] || fail "unity_bindings ended with $status"
exit $status
