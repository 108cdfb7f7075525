#!/usr/bin/env bash
# samples/engines/unreal without Unreal: compiled with warnings as errors, as C++17 and C++20, and run; what names Unreal, with stand-ins (unreal_stand_ins). usage: tests/test_unreal.sh build/.../release [RUNS]
# The session runs once with freed memory filled, as Unreal's allocator does in development, and once under the sanitizers of addresses and of undefined behaviour; each of them RUNS times (1).
# The last line is "unreal: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
runs=${2:-1}
support=$build/bin/cli_support
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0 skipped=0
finish() { echo "unreal: $passed passed, $failed failed, $skipped skipped"; [ $failed -eq 0 ]; exit; }
fail() { echo "FAILED: $1"; failed=$((failed + 1)); finish; } # what comes after it would fail, too
skip() { echo "skip: $1"; skipped=$((skipped + 1)); }
pass() { passed=$((passed + 1)); }
command -v c++ >/dev/null || { skip "there is no C++ compiler"; finish; }
[ -x "$support" ] || fail "there is no $support"
libraries=$(PKG_CONFIG_PATH=$build pkg-config --libs sumi 2>/dev/null) || fail "pkg-config finds no sumi in $build"
version=$(PKG_CONFIG_PATH=$build pkg-config --modversion sumi)

warnings="-Wall -Wextra -Wpedantic -Wshadow -Wundef -Werror"
# -g1: lines for reports of the sanitizers. All that a debugger wants would take a quarter of the compiler's time more.
flags="-O1 -g1 -fno-exceptions -fno-rtti $warnings"
# Runs a program $runs times, whose last line is "NAME: N passed, N failed, N skipped", and adds the numbers of the last run.
run() { # what, program, arguments...
    local what=$1 numbers status
    shift
    for ((i = 1; i <= runs; i++)); do
        "$@" >"$folder/out" 2>&1
        status=$?
        numbers=$(sed -n 's/^[a-z_]*: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$folder/out" | tail -n 1)
        if [ $status -gt 1 ] || [ -z "$numbers" ]; then
            cat "$folder/out"
            fail "$what ended with $status in run $i"
        fi
        grep '^FAILED' "$folder/out" | sed "s/\$/ ($what, run $i)/"
        [ $status -eq 0 ] || break
    done
    read -r a b c <<<"$numbers"
    passed=$((passed + a)) failed=$((failed + b)) skipped=$((skipped + c))
}

# ---- Installing -----------------------------------------------------------------------------------------------------------------------
# Into a project whose path has a space. What follows builds what was installed.
refuses() { # what it says, arguments...
    local text=$1
    shift
    samples/engines/unreal/install.sh "$@" >"$folder/out" 2>&1 && fail "install.sh takes $*"
    grep -q "$text" "$folder/out" || fail "install.sh does not say: $text"
    pass
}
mkdir "$folder/My Game" "$folder/empty"
refuses "there is no .uproject" "$build" "$folder/empty"
touch "$folder/My Game/MyGame.uproject"
refuses "neither lib/libsumi.a nor plugin/sumi.dll" "$folder/empty" "$folder/My Game"
refuses "there is no folder" "$build" "$folder/My Game" "$folder/no/model"
[ "$(ls "$folder/My Game")" = MyGame.uproject ] || fail "what install.sh refuses leaves something"
ln -s "My Game" "$folder/Game"
plugin=$folder/Game/Plugins/Sumi
if samples/engines/unreal/install.sh "$build" "$folder/My Game" >"$folder/out" 2>&1; then
    [ -e "$folder/Game/Content/Sumi/demo_model/model_index.json" ] || fail "install.sh copies no model"
    [ -z "$(nm -g -u "$plugin/Source/ThirdParty/Sumi/lib/Linux/libsumi.a" 2>/dev/null | grep -E ' (utf8proc_|inflate)')" ] || fail "what install.sh installs needs utf8proc or zlib"
    echo kept >"$folder/Game/Content/Sumi/demo_model/kept"
    samples/engines/unreal/install.sh "$build" "$folder/My Game" >"$folder/out" 2>&1 && [ -e "$folder/Game/Content/Sumi/demo_model/kept" ] || fail "install.sh cannot be run again"
    pass
    include=$plugin/Source/ThirdParty/Sumi/include archive="$plugin/Source/ThirdParty/Sumi/lib/Linux/libsumi.a -lm -lpthread -ldl"
else
    grep -q 'the static libraries are not here' "$folder/out" || { cat "$folder/out"; fail "install.sh installs nothing"; }
    skip "one archive: $(tail -n 1 "$folder/out")"
    include=include archive=$libraries
fi
source=$plugin/Source/SumiUnreal
plain="$source/Private/SumiSession.cpp $source/Private/SumiXmlPrompt.cpp"
# A build for Windows, of which only the names count.
mkdir -p "$folder/windows/plugin" "$folder/windows/lib" "$folder/Windows Game"
touch "$folder/Windows Game/Game.uproject" "$folder/windows/lib/libsumi.a" "$folder/windows/plugin/sumi.dll"
refuses "no import library" "$folder/windows" "$folder/Windows Game"
touch "$folder/windows/plugin/libsumi.a"
samples/engines/unreal/install.sh "$folder/windows" "$folder/Windows Game" >"$folder/out" 2>&1 || fail "install.sh does not take a build for Windows"
pass

# ---- Modules --------------------------------------------------------------------------------------------------------------------------
# As in Unreal's editor, where every module is a shared object and shows what it exports alone: the engine (stand-ins), the plug-in, and two that use it. The plug-in has the only copy of the library.
stand_ins=tests/unreal_stand_ins
mkdir "$folder/generated" # what Unreal's header tool writes; it wants to come last
for header in "$source"/Public/*.h; do
    name=$(basename "$header" .h).generated.h
    grep -q "^#include \"$name\"" "$header" || continue
    touch "$folder/generated/$name"
    [ "$(grep '^#include' "$header" | tail -n 1 | cut -d'"' -f2)" = "$name" ] || fail "$header includes something behind $name"
    pass
done
with_stand_ins="-I$source/Public -I$stand_ins -I$folder/generated"
as_windows=-DPLATFORM_WINDOWS=1 # the stand-ins have Direct3D 12 everywhere
echo 'extern "C" int RunGame(int, char**); int main(int count, char** arguments) { return RunGame(count, arguments); }' >"$folder/main.cpp"

module() { # name, sources and libraries...
    local name=$1
    shift
    c++ -std=c++17 $flags -fPIC -shared -fvisibility=hidden -fvisibility-inlines-hidden -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,-rpath,"$folder" '-DSUMIUNREAL_API=__attribute__((visibility("default")))' \
        -I$include $with_stand_ins -L"$folder" "$@" -o "$folder/lib$name.so" || fail "the module $name does not link"
    pass
}
module Engine $stand_ins/StandIn.cpp
module SumiUnreal $as_windows $source/Private/*.cpp -lEngine $archive
module SessionGame tests/unreal_session.cpp -lSumiUnreal
module PluginGame $as_windows tests/unreal_plugin.cpp -lSumiUnreal -lEngine
for name in SessionGame PluginGame; do
    c++ "$folder/main.cpp" -L"$folder" -l$name -Wl,-rpath,"$folder" -Wl,-rpath-link,"$folder" -o "$folder/$name" || fail "no program of $name"
done
# What Unreal's own modules may have, too, or what would be a second copy.
c_names() { awk '{ print $NF }' | grep -E '^(sumi_|utf8proc|(in|de)flate|adler32|crc32)'; }
found=$(nm -D --defined-only "$folder/libSumiUnreal.so" | c_names) && fail "the plug-in's module shows $found"
found=$(nm -D "$folder/libSessionGame.so" "$folder/libPluginGame.so" | c_names) && fail "a game's module calls the library itself: $found"
if [ "$archive" != "$libraries" ]; then found=$(nm -D --undefined-only "$folder/libSumiUnreal.so" | c_names) && fail "the plug-in's module asks for $found"; fi
pass

# ---- Runs -----------------------------------------------------------------------------------------------------------------------------
"$build/bin/sumi" generate --quiet --backend cpu --model samples/demo_model --prompt "a red house on the grass" --seed 7 -o "$folder/wanted.png" || fail "the command line draws nothing"
"$support" pixels "$folder/wanted.png" >"$folder/wanted.rgba" || fail "the picture cannot be read"
mkdir "$folder/edit" # the tiny edit model lies in layers
cp -r tests/golden/qwen-image/model/. tests/golden/qwen-image/model-edit/processor tests/golden/qwen-image/model-edit-2509/model_index.json "$folder/edit"
net="$PWD/tests/golden/z-image/model $PWD/tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors"
arguments="samples/demo_model $folder/wanted.rgba $folder/edit tests/golden/flux2-klein/model $net"

# malloc fills what is freed with this byte, in the library, too.
MALLOC_PERTURB_=205 run "the session as a module" "$folder/SessionGame" $arguments
MALLOC_PERTURB_=205 run "the plug-in as a module" "$folder/PluginGame" samples/demo_model tests/golden/flux2-klein/model $net

# Without optimisation, which takes half of the time with sanitizers; the modules above have it. All of the plug-in in one, as Unreal compiles it by default: what the session's program shares with it is
# compiled twice, for that program sees the session alone.
checked="$flags -std=c++20 -fsanitize=address,undefined -fno-sanitize-recover=all -O0 $with_stand_ins -DSUMIUNREAL_API="
for file in "$source"/Private/*.cpp; do echo "#include \"$file\"" >>"$folder/unity.cpp"; done
object() { # name, source, options...
    local name=$1 file=$2
    shift 2
    c++ $checked "$@" -c "$file" -o "$folder/$name.o" || fail "$file does not compile for programs under sanitizers"
}
program() { # name, objects without .o ...
    local name=$1
    shift
    (cd "$folder" && c++ -fsanitize=address,undefined "${@/%/.o}" $libraries -o "$name") || fail "the program $name does not link"
}
object main "$folder/main.cpp"
for file in $plain tests/unreal_session.cpp; do object "$(basename "$file" .cpp)" "$file" -I"$include"; done
program checked_session main unreal_session SumiSession SumiXmlPrompt
run "the session under sanitizers" "$folder/checked_session" $arguments
for file in "$folder/unity.cpp" tests/unreal_plugin.cpp $stand_ins/StandIn.cpp; do object "$(basename "$file" .cpp)" "$file" $as_windows -I"$include"; done
program checked_plugin main unity unreal_plugin StandIn
run "the plug-in under sanitizers" "$folder/checked_plugin" samples/demo_model tests/golden/flux2-klein/model $net

# A header of another version than the library's, which the session alone asks for its version.
mkdir "$folder/other"
sed 's/^\(#define SUMI_VERSION_MINOR\) .*/\1 99/' include/sumi.h >"$folder/other/sumi.h"
cp include/sumi_xml.h "$folder/other"
[ "$(grep -l SUMI_VERSION_ $plain tests/unreal_session.cpp)" = "$source/Private/SumiSession.cpp" ] || fail "other sources than SumiSession.cpp ask for the header's version"
object OtherSession "$source/Private/SumiSession.cpp" -I"$folder/other"
program other_session main unreal_session OtherSession SumiXmlPrompt
run "a header of another version" "$folder/other_session" refuses 0.99 "$version"

# ---- Compilers ------------------------------------------------------------------------------------------------------------------------
# Every file by itself, and, as Unreal does it by default, all of them in one. The stand-ins of 5.5 are those of newer versions, too: the modules above are every file by itself for it. Another version is another
# text where the file, or a stand-in that it includes, asks for the version.
for file in "$source"/Private/*.cpp; do
    if ! grep -qE 'UE_VERSION_|ENGINE_M(AJOR|INOR)_VERSION|ID3D12DynamicRHI' "$file"; then
        grep -qE '^#include "(ID3D12DynamicRHI|Misc/EngineVersionComparison)\.h"' "$source"/Public/*.h && fail "a header of the plug-in asks for the engine's version: all files that include it depend on it"
        continue
    fi
    c++ -std=c++17 -fsyntax-only $flags -I$include $with_stand_ins -DPLATFORM_WINDOWS=1 -DENGINE_MINOR_VERSION=3 -DSUMIUNREAL_API= "$file" || fail "$file does not compile by itself"
    pass
done
for compiler in c++ clang++; do
    command -v $compiler >/dev/null || { skip "there is no $compiler"; continue; }
    for how in 17:3:1 20:4:1 20:5:1 17:5:0; do
        [ $compiler:$how != c++:20:5:1 ] || continue # the plug-in under sanitizers
        IFS=: read -r standard engine windows <<<"$how"
        $compiler -std=c++$standard -fsyntax-only $flags -I$include $with_stand_ins -DPLATFORM_WINDOWS=$windows -DENGINE_MINOR_VERSION=$engine -DSUMIUNREAL_API= "$folder/unity.cpp" ||
            fail "the plug-in does not compile by $compiler as C++$standard for Unreal 5.$engine"
        pass
    done
done
if command -v x86_64-w64-mingw32-g++ >/dev/null; then
    x86_64-w64-mingw32-g++ -std=c++17 $flags -Iinclude -I$source/Public -c "$source/Private/SumiShared12.cpp" -o "$folder/shared12.o" || fail "the buffer of Direct3D 12 does not compile"
    pass
else skip "the buffer of Direct3D 12 with the headers of Windows: there is no x86_64-w64-mingw32-g++"; fi

# ---- The plug-in's descriptor ---------------------------------------------------------------------------------------------------------
descriptor=$plugin/Sumi.uplugin
grep -q "\"VersionName\": \"$version\"" $descriptor || fail "$descriptor is not of version $version"
[ "$(grep -oE '"(SupportedTargetPlatforms|PlatformAllowList)": \[ "Win64", "Linux" \]' $descriptor | wc -l)" -eq 2 ] || fail "$descriptor and its module are for different platforms"
pass
if command -v python3 >/dev/null; then python3 -m json.tool $descriptor >/dev/null || fail "$descriptor is no JSON"; pass
else skip "whether $descriptor is JSON: there is no python3"; fi

# ---- Build rules ----------------------------------------------------------------------------------------------------------------------
if command -v mcs >/dev/null && command -v mono >/dev/null; then
    mcs -langversion:7 -warnaserror -warn:4 -out:"$folder/BuildRules.exe" $stand_ins/UnrealBuildTool.cs samples/engines/unreal/Source/*/*.Build.cs samples/engines/unreal/Source/ThirdParty/*/*.Build.cs || fail "the build rules do not compile"
    for platform in Win64:Windows\ Game Linux:Game; do
        project=$folder/${platform#*:} platform=${platform%:*}
        [ -d "$project/Plugins/Sumi/Source/ThirdParty/Sumi/lib/$platform" ] || continue # skipped above
        mono "$folder/BuildRules.exe" $platform "$project/Plugins/Sumi" "$project" >"$folder/rules" || fail "the build rules end with an error for $platform"
        grep -qx 'SumiUnreal private SumiLibrary' "$folder/rules" && grep -qx 'SumiLibrary type External' "$folder/rules" && ! grep -qx 'SumiUnreal public SumiLibrary' "$folder/rules" || fail "the library is not a private dependency"
        # Files that are linked or staged are there, and all of the model is staged.
        sed -nE 's/^SumiLibrary (link|include) //p; s/^SumiUnreal stage (.*) NonUFS$/\1/p; s/^SumiLibrary stage .* < //p' "$folder/rules" | while read -r file; do
            [ -e "$file" ] || echo "$file"
        done >"$folder/missing"
        [ ! -s "$folder/missing" ] || fail "the build rules name what is not there: $(head -n 1 "$folder/missing")"
        [ "$(grep -c '^SumiUnreal stage .* NonUFS$' "$folder/rules")" -eq "$(find "$project/Content/Sumi/" -type f | wc -l)" ] || fail "the build rules do not stage the model"
        pass
    done
else skip "the build rules: there is no Mono (mcs and mono)"; fi
finish
