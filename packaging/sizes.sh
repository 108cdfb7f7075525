#!/usr/bin/env bash
# Where the bytes of a program that links the library go, by room and for kernels by kind. usage: packaging/sizes.sh build/release [build/kernels]
# Counted are code, constants and data of the archive's objects; a linker adds some tables and leaves out little. What may be left out: docs/building.md.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 kernels=${2:-$(dirname "$1")/kernels}
size "$build/lib/libsumi.a" | awk -v sources="$(echo src/*/*.c)" '
    BEGIN { count = split(sources, list, " "); for (i = 1; i <= count; i++) { split(list[i], part, "/"); room[substr(part[3], 1, length(part[3]) - 2)] = "src/" part[2] } }
    NR > 1 { name = $6; sub(/\.o$/, "", name); where = name in room ? room[name] : name; bytes[where] += $1 + $2; all += $1 + $2 }
    END { for (where in bytes) printf "%9d  %s\n", bytes[where], where; printf "%9d  all\n", all }' | sort -rn
[ -e "$kernels/kernel_images.c" ] || exit 0
echo "compressed kernels (left out of the above with --no-cuda, those for Hopper with --no-hopper):"
awk -F ', *' '/^ *{"/ {
        is_hoppers = $1 ~ /_sm90"$/
        kind = $3 == "false" ? (is_hoppers ? "PTX for Hopper alone" : "PTX for every device") : sprintf("machine code for %d.%d%s", $2 / 10, $2 % 10, $2 != 90 ? "" : is_hoppers ? "a, of kernels for Hopper alone" : "a, of the kernels of every device")
        sum[kind] += $5
    }
    END { for (kind in sum) printf "%9d  %s\n", sum[kind], kind }' "$kernels/kernel_images.c" | sort -rn
