#!/usr/bin/env bash
# Puts into the library what it needs of other libraries, so that a host links one archive; premake5.lua's --bundle. usage: packaging/bundle.sh libsumi.a LIBRARY.a...
#
# The objects that call the others are linked with them into one, bundled.o, and every symbol of that which does not begin with sumi_ becomes local: a host
# may have a zlib of its own, of any version, and neither sees the other. Visibility stays, so a plug-in does not show the library's symbols.
# In the environment: CC, AR, OBJCOPY (of the same target).
set -euo pipefail
archive=$1; shift
cc=${CC:-cc} ar=${AR:-ar}
case $ar in *-ar) tools=${ar%ar} ;; *) tools= ;; esac
case $tools in gcc- | llvm-) tools= ;; esac
objcopy=${OBJCOPY:-${tools}objcopy} nm=${tools}nm
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for library in "$@"; do
    [ -e "$library" ] || { echo "bundle: $library is not there: --bundle needs the static library" >&2; exit 1; }
done
"$nm" -g --defined-only "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u >"$folder/theirs"
cp "$archive" "$folder/whole.a" # whose path has no space, unlike the archive's perhaps
# "whole.a:unicode.o:                 U utf8proc_category"
users=$("$nm" -A -g -u "$folder/whole.a" 2>/dev/null | awk -v theirs="$folder/theirs" 'BEGIN { while ((getline name < theirs) > 0) is[name] = 1 } $NF in is { split($1, at, ":"); print at[2] }' | sort -u)
[ -n "$users" ] || exit 0
(cd "$folder" && "$ar" x whole.a $users)
(cd "$folder" && "$cc" -r -nostdlib -o bundled.o $users "$@")
# MinGW's compiler reaches data through pointers in sections that the linker keeps once for each name. Under the name of the other libraries' they would stand for those in a
# host's own zlib, where they are local and nobody finds them.
"$nm" "$folder/bundled.o" 2>/dev/null | awk '$NF ~ /^\.refptr\./ { print $NF, ".refptr.sumi_bundled" substr($NF, 8) }' | sort -u >"$folder/pointers"
"$objcopy" --redefine-syms="$folder/pointers" --wildcard --keep-global-symbol='sumi_*' "$folder/bundled.o"
missing=$("$nm" -g -u "$folder/bundled.o" | awk -v theirs="$folder/theirs" 'BEGIN { while ((getline name < theirs) > 0) is[name] = 1 } $NF in is { print $NF }')
[ -z "$missing" ] || { echo "bundle: still not there: $missing" >&2; exit 1; }
"$ar" d "$folder/whole.a" $users
"$ar" rcs "$folder/whole.a" "$folder/bundled.o"
mv "$folder/whole.a" "$archive"
