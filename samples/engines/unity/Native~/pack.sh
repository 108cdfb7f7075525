#!/usr/bin/env bash
# Makes com.sumi.unity-VERSION.tgz, which Unity's package manager installs ("Install package from tarball"): this folder with the native libraries and the demo model.
# usage: pack.sh FOLDER [OUT]. FOLDER holds the libraries: libsumi.so and libsumi_unity.so for Linux, sumi.dll and sumi_unity.dll for Windows, what there is of them; if it has
# THIRD_PARTY_NOTICES.md, the notices of what is inside the libraries, the package has them, too. OUT: where the file goes, else here.
# DEMO_MODEL=0 leaves the demo model out (the menu then asks for its folder): 13 MB less. SOURCE_DATE_EPOCH: the time of the files; the same input gives the same bytes.
set -euo pipefail
libraries=$(cd "$1" && pwd) out=$(cd "${2:-.}" && pwd)
cd "$(dirname "$0")/.."
version=$(sed -n 's/^ *"version": "\(.*\)",$/\1/p' package.json)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/package"
cp -r . "$folder/package"
plugins=$folder/package/Runtime/Plugins count=0
for library in libsumi.so libsumi_unity.so sumi.dll sumi_unity.dll; do
    [ -e "$libraries/$library" ] || { echo "without $library: it is not in $libraries"; continue; }
    mkdir -p "$plugins/x86_64"
    cp "$libraries/$library" "$plugins/x86_64"
    cp "Native~/meta/$library.meta" "$plugins/x86_64"
    count=$((count + 1))
done
[ $count -gt 0 ] || { echo "there is no library in $libraries"; exit 1; }
cp 'Native~/meta/Plugins.meta' "$folder/package/Runtime"
cp 'Native~/meta/x86_64.meta' "$plugins"
if [ -e "$libraries/THIRD_PARTY_NOTICES.md" ]; then
    cp "$libraries/THIRD_PARTY_NOTICES.md" "$folder/package/Third Party Notices.md"
    cp 'Native~/meta/Third Party Notices.md.meta' "$folder/package"
fi
if [ "${DEMO_MODEL:-1}" != 0 ]; then
    mkdir -p "$folder/package/Model~/demo_model"
    (cd ../../demo_model && tar -c --exclude='./train' --exclude='*.png' .) | tar -x -C "$folder/package/Model~/demo_model"
fi
tar -c --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX --mtime="@${SOURCE_DATE_EPOCH:-315532800}" -C "$folder" package | gzip -9n >"$out/com.sumi.unity-$version.tgz"
echo "$out/com.sumi.unity-$version.tgz"
