#!/usr/bin/env bash
# packaging/nuget: the package for .NET is made, and a program that is compiled against it draws under Mono. usage: tests/test_nuget.sh build/.../release
#
#   package   holds what it should, in the order of the format; the same input gives the same bytes; a second library for one system is refused
#   install   by NuGet from a folder, where NuGet is, else by unpacking
#   program   the one of docs/bindings.md draws the command line's picture
#
# That the C# declares what the header does, sizes and offsets too, is tests/test_unity.sh's: the package is made of the same two files.
# DOTNET is a dotnet (3.1 or newer), which then draws with the same files too. The last line is "nuget: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
library=$build/plugin/libsumi.so
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
check() { # what, what is wrong
    if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    head -n 20 <<<"$2" | sed 's/^/  /'
}
skip() { echo "skip: $1"; skipped=$((skipped + 1)); }
end() { echo "nuget: $passed passed, $failed failed, $skipped skipped"; [ "$failed" -eq 0 ]; exit; }
{ command -v mcs && command -v mono; } >/dev/null || { skip "nuget: there is no Mono (mcs and mono; samples/setup.sh tests installs them)"; end; }
[ -e "$library" ] || { check "the shared library" "$library is not there: make the build with premake's --shared"; end; }

# ---- The package ----
export SOURCE_DATE_EPOCH=1700000000
package=$(packaging/nuget/build_nupkg.sh "$library" "$folder/packages" 2>"$folder/log") || { check "the package is made" "$(cat "$folder/log")"; end; }
check "its name has the version" "$([[ $package =~ /Sumi\.[0-9]+\.[0-9]+\.[0-9]+\.nupkg$ ]] || echo "$package")"
mkdir "$folder/unpacked"
version=${package##*/Sumi.} version=${version%.nupkg}
check "it holds what it should" "$(python3 - "$package" "$folder/unpacked" "$version" 2>&1 <<'CHECK'
import re, sys, zipfile
import xml.etree.ElementTree as xml
archive = zipfile.ZipFile(sys.argv[1])
archive.extractall(sys.argv[2])
names = archive.namelist()
if names[:3] != ["_rels/.rels", "Sumi.nuspec", "[Content_Types].xml"]:
    print("it begins with", names[:3])
for name in ["lib/netstandard2.0/Sumi.Runtime.dll", "runtimes/linux-x64/native/libsumi.so", "README.md", "licenses/LICENSE.txt", "licenses/utf8proc.txt"]:
    if name not in names and not (name.startswith("runtimes/") and any("linux-arm64" in one for one in names)):
        print(name, "is not there")
for target in re.findall(r'Target="/([^"]+)"', archive.read("_rels/.rels").decode()):
    if target not in names:
        print("a relationship names", target)
typed = {one.get("Extension") for one in xml.fromstring(archive.read("[Content_Types].xml"))}
untyped = {name.rsplit(".", 1)[1] for name in names if not name.startswith("[")} - typed
if untyped:
    print("no type for", untyped)
manifest = {one.tag.split("}")[1]: one.text for one in xml.fromstring(archive.read("Sumi.nuspec"))[0]}
if (manifest["id"], manifest["version"]) != ("Sumi", sys.argv[3]):
    print(manifest)
for name in names:
    if archive.getinfo(name).date_time[:3] != (2023, 11, 14):
        print(name, "has another time")
CHECK
)"
assembly=$folder/unpacked/lib/netstandard2.0/Sumi.Runtime.dll
# Mono has these in mscorlib, where its compiler then looks for them, and every .NET in another assembly: the program would fail when it comes to them.
check "it uses no type that .NET has elsewhere than Mono" "$(LC_ALL=C grep -aoE '(Queue|Stack|LinkedList|SortedSet|SortedList|SortedDictionary|HashSet|BlockingCollection|ConcurrentBag)`[12]' "$assembly")"
# A small library, which packs faster.
sed -n 's/^function .*\b\(sumi_[a-z_]*\)(.*/void \1(void); void \1(void) {}/p' "$(ls tests/abi_*.txt | sort -V | tail -n 1)" | cc -shared -fPIC -x c - -o "$folder/libempty.so"
check "the same input gives the same bytes" "$(for again in one two; do python3 packaging/nuget/make_nupkg.py "$assembly" "$folder/$again" "$folder/libempty.so" >/dev/null; touch "$assembly"; done; cmp "$folder"/one/*.nupkg "$folder"/two/*.nupkg 2>&1)"
check "two libraries for one system are refused" "$(out=$(python3 packaging/nuget/make_nupkg.py "$assembly" "$folder/refused" "$folder/libempty.so" "$folder/libempty.so" 2>&1) && echo "they are not"; grep -q 'is a second library for linux-' <<<"$out" || echo "$out")"

# ---- Installed, and a program ----
installed=$folder/unpacked
if command -v nuget >/dev/null; then
    check "NuGet installs it from a folder" "$(HOME=$folder nuget install Sumi -Source "$folder/packages" -OutputDirectory "$folder/installed" >"$folder/log" 2>&1 || cat "$folder/log")"
    installed=$folder/installed/Sumi.$version
    check "and its files are the package's" "$(diff -r "$installed/lib" "$folder/unpacked/lib" 2>&1; diff -r "$installed/runtimes" "$folder/unpacked/runtimes" 2>&1)"
else skip "nuget: installation by NuGet: it is not here (Debian: nuget)"; fi
mkdir "$folder/program"
cp "$installed"/lib/netstandard2.0/Sumi.Runtime.dll "$installed"/runtimes/linux-*/native/libsumi.so "$folder/program"
sed -n '/^```csharp$/,/^```$/p' docs/bindings.md | grep -v '^```' >"$folder/Draw.cs"
check "the program of docs/bindings.md compiles" "$(mcs -warnaserror -reference:"$folder/program/Sumi.Runtime.dll" -out:"$folder/program/Draw.exe" "$folder/Draw.cs" 2>&1)"
"$build/bin/sumi" generate --quiet --backend cpu --model samples/demo_model --prompt "a red house on the grass" --seed 7 -o "$folder/wanted.png" && "$build/bin/cli_support" pixels "$folder/wanted.png" >"$folder/wanted.rgba"
draws() { # command ...
    (unset LD_LIBRARY_PATH; CUDA_VISIBLE_DEVICES='' "$@" samples/demo_model "a red house on the grass" "$folder/out.pam" 2>&1) || { echo "exit code $?"; return; }
    [ -s "$folder/wanted.rgba" ] && cmp <(sed '1,/^ENDHDR$/d' "$folder/out.pam") "$folder/wanted.rgba" 2>&1
    rm -f "$folder/out.pam"
}
check "it draws the command line's picture under Mono" "$(draws mono "$folder/program/Draw.exe")"
if [ -n "${DOTNET:-}" ]; then
    cp "$folder/program/Draw.exe" "$folder/program/Draw.dll"
    echo '{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"}, "rollForward": "Major", "configProperties": {"System.Globalization.Invariant": true}}}' >"$folder/program/Draw.runtimeconfig.json"
    check "and under .NET" "$(draws "$DOTNET" "$folder/program/Draw.dll")"
fi
end
