#!/usr/bin/env bash
# samples/engines/unity as Unity's package manager reads it, checked as text: no editor is here. The last line is "unity package: N passed, N failed, N skipped".
#
#   assets       every file and folder that Unity imports (not those that end in ~) has a .meta with a GUID of its own and the importer of its kind, and no .meta is without its asset
#   package.json what the package manager reads: a name, the version of include/sumi.h, samples that are there, modules that are used
#   assemblies   each .asmdef names what its scripts use
#   scene        the demo's scene names scripts and objects that are there
#   tarball      Native~/pack.sh makes a package of which all this holds, with libraries and the demo model in it
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
package=samples/engines/unity

check() { # what, offending lines
    if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    head -n 20 <<<"$2" | sed 's/^/  /'
}

# ---- Assets ---------------------------------------------------------------------------------------------------------------------------
# Of the package and of each of its samples, which the package manager copies into a project as they are.
assets() { # package
    (cd "$1" && { find . -mindepth 1 -name '*~' -prune -o ! -name '*.meta' -print; find ./Samples~ -mindepth 2 ! -name '*.meta' -print; })
}
metas() { (cd "$1" && find . -name '*.meta'); } # package

importer_of() { # path
    if [ -d "$1" ]; then echo DefaultImporter; return; fi
    case $1 in
        *.cs) echo MonoImporter ;;
        *.asmdef) echo AssemblyDefinitionImporter ;;
        */package.json) echo PackageManifestImporter ;;
        *.md) echo TextScriptImporter ;;
        *.shader) echo ShaderImporter ;;
        *.so | *.dll) echo PluginImporter ;;
        *) echo DefaultImporter ;;
    esac
}

check_assets() { # what, package
    local asset bad=
    while read -r asset; do
        [ -e "$2/$asset.meta" ] || { bad+="$asset has no .meta"$'\n'; continue; }
        grep -qx "$(importer_of "$2/$asset"):" "$2/$asset.meta" || bad+="$asset.meta has not the importer of its kind"$'\n'
        grep -qxE 'guid: [0-9a-f]{32}' "$2/$asset.meta" || bad+="$asset.meta has no GUID"$'\n'
        [ ! -d "$2/$asset" ] || grep -qx 'folderAsset: yes' "$2/$asset.meta" || bad+="$asset.meta is not of a folder"$'\n'
    done < <(assets "$2")
    check "$1: every asset has a .meta" "$bad"
    check "$1: every .meta has its asset" "$(metas "$2" | grep -v '^\./Native~/meta/' | while read -r asset; do [ -e "$2/${asset%.meta}" ] || echo "$asset"; done)"
    check "$1: no two assets have one GUID" "$(cd "$2" && metas . | grep -v '^\./Native~/meta/' | xargs -d '\n' grep -h '^guid: ' | sort | uniq -d)"
}
check_assets "sources" $package
check "there are assets" "$([ "$(assets $package | wc -l)" -ge 18 ] || echo "only $(assets $package | wc -l)")"
check "the libraries' GUIDs are their own" "$(cat $package/Native~/meta/*.meta <(cd $package && metas . | grep -v '^\./Native~/' | xargs -d '\n' cat) | grep '^guid: ' | sort | uniq -d)"
for library in libsumi_unity.so sumi_unity.dll; do # Unity tells a rendering plug-in of its interfaces as it loads it
    check "$library is loaded at the start" "$(grep -qx '  isPreloaded: 1' "$package/Native~/meta/$library.meta" || echo isPreloaded)"
done

# ---- package.json ---------------------------------------------------------------------------------------------------------------------
json=$package/package.json
for key in name displayName version unity description keywords author license dependencies samples; do
    check "package.json has $key" "$(grep -q "^    \"$key\": " $json || echo "no $key")"
done
part() { sed -n "s/^#define SUMI_VERSION_$1  *\([0-9]*\).*/\1/p" include/sumi.h; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
check "the version is the header's" "$(grep -qx "    \"version\": \"$version\"," $json || echo "not $version")"
check "the changes name the version" "$(grep -qx "## $version" $package/CHANGELOG.md || echo "no heading $version")"
check "the name is one of a package" "$(grep -qE '^    "name": "[a-z0-9-]+(\.[a-z0-9-]+){2}",$' $json || echo "$(grep '"name"' $json)")"
check "its samples are there" "$(sed -n 's/^ *"path": "\(.*\)"$/\1/p' $json | while read -r path; do [ -d "$package/$path" ] || echo "$path"; done)"
check "its modules are named" "$(grep -qrE '\bOnGUI\b' $package --include='*.cs' && ! grep -q '"com.unity.modules.imgui"' $json && echo com.unity.modules.imgui)"
check "the license is the repository's" "$(diff -q LICENSE $package/LICENSE.md)"
if command -v python3 >/dev/null; then
    for each in $json $(find $package -name '*.asmdef'); do check "$each is JSON" "$(python3 -m json.tool "$each" 2>&1 >/dev/null)"; done
else echo "skip: whether package.json and the .asmdef are JSON: there is no python3"; fi

# ---- Assemblies -----------------------------------------------------------------------------------------------------------------------
while read -r each; do
    place=$(dirname "$each") bad=
    grep -q "\"name\": \"$(basename "$each" .asmdef)\"" "$each" || bad+="its name is not the file's"$'\n'
    for name in $(grep -oE '"references": \[[^]]*\]' "$each" | grep -oE '"Sumi[^"]*"' | tr -d '"'); do [ -n "$(find $package -name "$name.asmdef")" ] || bad+="it refers to $name, which is not there"$'\n'; done
    if [ "$place" != $package/Runtime ] && grep -qE '^using Sumi;|^namespace Sumi' "$place"/*.cs; then grep -q '"references": \["Sumi.Runtime"\]' "$each" || bad+="its scripts use Sumi.Runtime"$'\n'; fi
    if grep -qE '\bunsafe\b' "$place"/*.cs; then grep -q '"allowUnsafeCode": true' "$each" || bad+="its scripts are unsafe"$'\n'; fi
    if [ "$place" = $package/Editor ]; then grep -q '"includePlatforms": \["Editor"\]' "$each" || bad+="it is for the editor only"$'\n'
    else
        # outside #if UNITY_EDITOR a player's build would not compile
        bad+=$(awk '/^#if UNITY_EDITOR/ { on = 1 } /^#(else|endif)/ { on = 0 } /UnityEditor/ && !on { print FILENAME ": " $0 }' "$place"/*.cs)
    fi
    check "$each" "$bad"
done < <(find $package -name '*.asmdef')

# ---- The demo's scene -----------------------------------------------------------------------------------------------------------------
scene=$package/Samples~/Demo/Demo.unity
check "the scene's scripts are there" "$(grep -oE 'guid: [0-9a-f]{32}' "$scene" | sort -u | while read -r guid; do grep -qrx "$guid" $package --include='*.cs.meta' || echo "$guid"; done)"
check "the scene's objects are there" "$(grep -oE 'fileID: [0-9]+' "$scene" | grep -vxE 'fileID: (0|11500000)' | sort -u | while read -r _ id; do grep -qE "^--- !u![0-9]+ &$id$" "$scene" || echo "$id"; done)"
for script in Runtime/SumiGenerator.cs Samples~/Demo/SumiDemo.cs; do
    guid=$(sed -n 's/^guid: //p' "$package/$script.meta")
    members=$(awk -v guid="$guid" '/^--- / { on = 0 } on && /^  [a-z]/ { print $1 } index($0, guid) { on = 1 }' "$scene" | grep -vE '^m_' | tr -d :)
    check "the scene sets members of $script" "$([ -n "$members" ] || echo "none"; for member in $members; do grep -qE "public [A-Za-z]+ ([a-zA-Z]+, )*$member\b" "$package/$script" || echo "$member"; done)"
done

# ---- What the README promises -----------------------------------------------------------------------------------------------------------
beginning=$(head -n 12 $package/README.md)
for word in Mono "stand-in" "**not**"; do check "the README's beginning says what was tried" "$(grep -qF -- "$word" <<<"$beginning" || echo "nothing about $word")"; done

# ---- The tarball ----------------------------------------------------------------------------------------------------------------------
mkdir "$folder/libraries" "$folder/out" "$folder/none"
touch "$folder"/libraries/{libsumi.so,libsumi_unity.so,sumi.dll,sumi_unity.dll,THIRD_PARTY_NOTICES.md}
check "a package without a library is refused" "$($package/Native~/pack.sh "$folder/none" "$folder/out" >/dev/null 2>&1 && echo "it is made")"
check "a package is made" "$($package/Native~/pack.sh "$folder/libraries" "$folder/out" 2>&1 >/dev/null || echo failed)"
mkdir "$folder/package"
check "it can be unpacked" "$(tar -xf "$folder/out/com.sumi.unity-$version.tgz" -C "$folder" 2>&1)"
check_assets "tarball" "$folder/package"
for file in package.json Runtime/Plugins/x86_64/libsumi.so Runtime/Plugins/x86_64/libsumi_unity.so Runtime/Plugins/x86_64/sumi.dll Runtime/Plugins/x86_64/sumi_unity.dll "Third Party Notices.md" Model~/demo_model/model_index.json Model~/demo_model/transformer; do
    check "the tarball has $file" "$([ -e "$folder/package/$file" ] || echo "no $file")"
done
check "and not what trained the model" "$(find "$folder/package/Model~" -name train -o -name '*.png')"
mkdir "$folder/again"
check "the same package again" "$(umask 077; TZ=Asia/Tokyo $package/Native~/pack.sh "$folder/libraries" "$folder/again" >/dev/null 2>&1; cmp "$folder/out/com.sumi.unity-$version.tgz" "$folder/again/com.sumi.unity-$version.tgz" 2>&1)"
check "a package without the demo model" "$(DEMO_MODEL=0 $package/Native~/pack.sh "$folder/libraries" "$folder/again" >/dev/null 2>&1; tar -tf "$folder/again/com.sumi.unity-$version.tgz" 2>&1 | grep -e 'Model~' -e '^tar')"

echo "unity package: $passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
