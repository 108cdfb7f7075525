#!/usr/bin/env bash
# samples/unreal without Unreal: compiled with warnings as errors, as C++17 and C++20, and run; what names Unreal, with stand-ins (unreal_stand_ins). usage: tests/test_unreal.sh build/.../release
# The session runs once with freed memory filled, as Unreal's allocator does in development, and once under the sanitizers of addresses and of undefined behaviour.
# The last line is "unreal: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
support=$build/bin/cli_support
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
source=samples/unreal/Source/SumiUnreal
passed=0 failed=0 skipped=0
finish() { echo "unreal: $passed passed, $failed failed, $skipped skipped"; [ $failed -eq 0 ]; exit; }
fail() { echo "FAILED: $1"; failed=$((failed + 1)); finish; } # what comes after it would fail, too
skip() { echo "skip: $1"; skipped=$((skipped + 1)); }
pass() { passed=$((passed + 1)); }
command -v c++ >/dev/null || { skip "there is no C++ compiler"; finish; }
[ -x "$support" ] || fail "there is no $support"
libraries=$(PKG_CONFIG_PATH=$build pkg-config --libs sumi 2>/dev/null) || fail "pkg-config finds no sumi in $build"

warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror"
flags="-O1 -g -fno-exceptions -fno-rtti $warnings"
plain="$source/Private/SumiSession.cpp $source/Private/SumiXmlPrompt.cpp"
# Adds the numbers of a program whose last line is "NAME: N passed, N failed, N skipped".
run() { # what, program, arguments...
    local what=$1 numbers
    shift
    "$@" >"$folder/out" 2>&1
    local status=$?
    numbers=$(sed -n 's/^[a-z_]*: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$folder/out" | tail -n 1)
    if [ $status -gt 1 ] || [ -z "$numbers" ]; then
        cat "$folder/out"
        fail "$what ended with $status"
    fi
    grep '^FAILED' "$folder/out" | sed "s/\$/ ($what)/"
    read -r a b c <<<"$numbers"
    passed=$((passed + a)) failed=$((failed + b)) skipped=$((skipped + c))
}

# ---- The session ----------------------------------------------------------------------------------------------------------------------
"$build/bin/sumi" generate --quiet --backend cpu --model samples/demo_model --prompt "a red house on the grass" --seed 7 -o "$folder/wanted.png" || fail "the command line draws nothing"
"$support" pixels "$folder/wanted.png" >"$folder/wanted.rgba" || fail "the picture cannot be read"
mkdir "$folder/edit" # the tiny edit model lies in layers
cp -r tests/golden/qwen-image/model/. tests/golden/qwen-image/model-edit/processor tests/golden/qwen-image/model-edit-2509/model_index.json "$folder/edit"

compile() { # program, folder of sumi.h, options
    c++ $3 $flags -I"$2" -I$source/Public tests/unreal_session.cpp $plain $libraries -o "$1" || fail "the session does not compile with $3"
}
compile "$folder/session" include -std=c++17
# malloc fills what is freed with this byte, in the library, too.
export MALLOC_PERTURB_=205
run "the session" "$folder/session" samples/demo_model "$folder/wanted.rgba" "$folder/edit"
compile "$folder/checked_session" include "-std=c++20 -fsanitize=address,undefined -fno-sanitize-recover=all"
run "the session under sanitizers" "$folder/checked_session" samples/demo_model "$folder/wanted.rgba" "$folder/edit"

# A header of another version than the library's.
mkdir "$folder/other"
sed 's/^\(#define SUMI_VERSION_MINOR\) .*/\1 99/' include/sumi.h >"$folder/other/sumi.h"
compile "$folder/other_session" "$folder/other" -std=c++17
run "a header of another version" "$folder/other_session" refuses 0.99

# ---- The plug-in, with stand-ins for the engine ---------------------------------------------------------------------------------------
stand_ins=tests/unreal_stand_ins
mkdir "$folder/generated" # what Unreal's header tool writes; it wants to come last
for header in "$source"/Public/*.h; do
    name=$(basename "$header" .h).generated.h
    grep -q "^#include \"$name\"" "$header" || continue
    touch "$folder/generated/$name"
    [ "$(grep '^#include' "$header" | tail -n 1 | cut -d'"' -f2)" = "$name" ] || fail "$header includes something behind $name"
    pass
done
with_stand_ins="-Iinclude -I$source/Public -I$stand_ins -I$folder/generated"
echo 'extern "C" int RunGame(int, char**); int main(int count, char** arguments) { return RunGame(count, arguments); }' >"$folder/main.cpp"
c++ -std=c++20 -fsanitize=address,undefined -fno-sanitize-recover=all $flags $with_stand_ins -DSUMIUNREAL_API= tests/unreal_plugin.cpp "$folder/main.cpp" $stand_ins/StandIn.cpp $source/Private/*.cpp $libraries -o "$folder/plugin" ||
    fail "the plug-in does not compile with stand-ins"
run "the plug-in under sanitizers" "$folder/plugin" samples/demo_model

# ---- Compilers ------------------------------------------------------------------------------------------------------------------------
for compiler in c++ clang++; do
    command -v $compiler >/dev/null || { skip "there is no $compiler"; continue; }
    for standard in 17 20; do
        for file in "$source"/Private/*.cpp; do
            $compiler -std=c++$standard -fsyntax-only $flags $with_stand_ins -DSUMIUNREAL_API= "$file" || fail "$file does not compile by $compiler as C++$standard"
            pass
        done
    done
done
if command -v x86_64-w64-mingw32-g++ >/dev/null; then
    x86_64-w64-mingw32-g++ -std=c++17 $flags -Iinclude -I$source/Public -c $source/Private/SumiShared12.cpp -o "$folder/shared12.o" || fail "the buffer of Direct3D 12 does not compile"
    pass
else skip "the buffer of Direct3D 12: there is no x86_64-w64-mingw32-g++"; fi
finish
