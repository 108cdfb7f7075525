#!/usr/bin/env bash
# Makes the package for .NET out of the C# of samples/engines/unity that needs no Unity and the shared libraries, without network: Sumi.VERSION.nupkg in OUT.
# usage: packaging/nuget/build_nupkg.sh LIBRARY[,LIBRARY] [OUT]
# The libraries are libsumi.so for Linux and sumi.dll for Windows, either or both. OUT is build/nuget unless it is said. Needs mcs (Debian: mono-mcs). make_nupkg.py says what the environment may have.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 1; }
out=${2:-$source/build/nuget}
IFS=, read -ra libraries <<<"$1"
for library in "${libraries[@]}"; do
    [ -e "$library" ] || { echo "build_nupkg: $library is not there: premake5 --shared gmake, make -C build config=release sumi_shared" >&2; exit 1; }
done
command -v mcs >/dev/null || { echo "build_nupkg: there is no mcs (Debian: mono-mcs)" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
major_minor_patch=$(sed -n 's/^#define SUMI_VERSION_\(MAJOR\|MINOR\|PATCH\)  *\([0-9]*\).*/\2/p' "$source/include/sumi.h" | paste -sd .)
cat >"$folder/Version.cs" <<CODE
[assembly: System.Reflection.AssemblyTitle("Sumi.Runtime")]
[assembly: System.Reflection.AssemblyVersion("$major_minor_patch.0")]
CODE
# Not Sumi.dll: a program's folder on Windows has sumi.dll already.
mcs -langversion:7 -warnaserror -warn:4 -optimize -unsafe -target:library -out:"$folder/Sumi.Runtime.dll" "$source/samples/engines/unity/Runtime/Sumi.cs" "$source/samples/engines/unity/Runtime/SumiNative.cs" "$folder/Version.cs" >&2
python3 "$source/packaging/nuget/make_nupkg.py" "$folder/Sumi.Runtime.dll" "$out" "${libraries[@]}"
