#!/usr/bin/env bash
# Puts the plug-in, the library of a build and a model into an Unreal project. usage: samples/engines/unreal/install.sh BUILD/CONFIGURATION PROJECT [MODEL]
#
#   PROJECT/Plugins/Sumi             the plug-in, with header and library in Source/ThirdParty/Sumi
#   PROJECT/Content/Sumi/demo_model  samples/demo_model, or the folder MODEL under its own name; one that is there stays as it is
#
# PROJECT is the folder of a .uproject. The library is, of the build, lib/libsumi.a for Linux and plugin/sumi.dll for Windows (--shared), whichever there are.
set -euo pipefail
source=$(cd "$(dirname "$0")/../../.." && pwd)
fail() { echo "install: $1" >&2; exit 1; }
[ $# -ge 2 ] && [ $# -le 3 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
build=$1 project=$2 model=${3:-$source/samples/demo_model}
compgen -G "$project/*.uproject" >/dev/null || fail "there is no .uproject in $project: name the project's folder"
[ -d "$model" ] || fail "there is no folder $model"
plugin=$project/Plugins/Sumi library=$project/Plugins/Sumi/Source/ThirdParty/Sumi

# What is found decides before anything is written.
archive=$build/lib/libsumi.a dll=$build/plugin/sumi.dll imports=
for name in sumi.lib libsumi.dll.a libsumi.a; do [ -z "$imports" ] && [ -e "$build/plugin/$name" ] && imports=$build/plugin/$name; done
[ -e "$dll" ] && archive= # the archive of such a build is MinGW-w64's, which Unreal's linker does not read
[ -e "$dll" ] || [ -e "$archive" ] || fail "there is neither lib/libsumi.a nor plugin/sumi.dll in $build: build the library first (README.md)"
[ ! -e "$dll" ] || [ -n "$imports" ] || fail "there is no import library (sumi.lib) beside $dll"

mkdir -p "$plugin" "$library/include"
rm -rf "$plugin/Source/SumiUnreal"
cp -R "$source/samples/engines/unreal/Source" "$source/samples/engines/unreal/Sumi.uplugin" "$source/samples/engines/unreal/README.md" "$source/LICENSE" "$plugin"
cp "$source/include/sumi.h" "$source/include/sumi_xml.h" "$library/include"
if [ -n "$archive" ]; then
    mkdir -p "$library/lib/Linux"
    cp "$archive" "$library/lib/Linux/libsumi.a"
    # Without --bundle the archive asks for utf8proc and zlib. They are put inside, under local names: the engine links a zlib of its own.
    inside=
    for name in utf8proc z; do
        found=$("${CC:-cc}" -print-file-name=lib$name.a)
        [ "$found" = lib$name.a ] || inside+=" $found"
    done
    "$source/packaging/bundle.sh" "$library/lib/Linux/libsumi.a" $inside
    if [ -n "$(nm -g -u "$library/lib/Linux/libsumi.a" 2>/dev/null | grep -E ' (utf8proc_|inflate)')" ]; then
        rm "$library/lib/Linux/libsumi.a"
        fail "$archive needs utf8proc and zlib, and the static libraries are not here: build it with --bundle"
    fi
fi
if [ -e "$dll" ]; then
    mkdir -p "$library/lib/Win64"
    cp "$dll" "$library/lib/Win64/sumi.dll"
    cp "$imports" "$library/lib/Win64/sumi.lib"
fi
target=$project/Content/Sumi/$(basename "$model")
if [ ! -e "$target" ]; then # a copy that is cut short has another name
    mkdir -p "$(dirname "$target")"
    rm -rf "$target.part"
    cp -R "$model" "$target.part"
    [ $# -eq 3 ] || rm -rf "$target.part/train" "$target.part"/*.png # how the demo model was made, and what it draws
    mv "$target.part" "$target"
fi
echo "The plug-in is in $plugin, and $(basename "$model") in $project/Content/Sumi."
echo "utf8proc and zlib are inside the library: a game that ships it ships their licences, too."
[ "$(basename "$model")" = demo_model ] || echo "Name the model in Project Settings > Plugins > Sumi: Sumi/$(basename "$model")."
