#!/usr/bin/env bash
# include/sumi.h and include/sumi_xml.h, each alone, as a host's compiler sees them: C11, C17 and C++17 by every compiler that is there, and no include but three of the C library's; and how long its first part is.
# Python's cffi (with its parser pycparser) reads both, and lays out every struct as the table of the version has it: what other languages' tools read is such plain C.
# The last line is "header: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

try() { # compiler language standard
    local header
    for header in sumi.h sumi_xml.h; do try_header "$header" "$@"; done
}
try_header() { # header compiler language standard
    local header=$1
    shift
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "skip: $1 -std=$3: no $1 here"
        skipped=$((skipped + 1))
    elif echo "#include <$header>" | "$1" -x "$2" -std="$3" -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only - >"$folder/out" 2>&1; then
        passed=$((passed + 1))
    else
        echo "FAILED: $header, $1 -std=$3"
        head -n 20 "$folder/out" | sed 's/^/  /'
        failed=$((failed + 1))
    fi
}
for standard in c11 c17; do
    try gcc c $standard
    try clang c $standard
done
try g++ c++ c++17
try clang c++ c++17

others=$(grep -nE '^[[:space:]]*#[[:space:]]*include' include/sumi.h | grep -vE '<(stdbool|stddef|stdint)\.h>'
    grep -nE '^[[:space:]]*#[[:space:]]*include' include/sumi_xml.h | grep -vF '"sumi.h"')
if [ -z "$others" ]; then
    passed=$((passed + 1))
else
    echo "FAILED: sumi.h includes more than stdbool.h, stddef.h and stdint.h, or sumi_xml.h more than sumi.h"
    sed 's/^/  /' <<<"$others"
    failed=$((failed + 1))
fi

# The line with "Part 2" ends what most programs need, which has at most 750 lines; its rules fit a page.
count() { # what, lines, most
    if [ "$2" -gt 0 ] && [ "$2" -le "$3" ]; then passed=$((passed + 1)); return; fi
    echo "FAILED: $1 has $2 lines, $3 are allowed"
    failed=$((failed + 1))
}
count "the first part of sumi.h" "$(awk '/Part 2/ { print NR; exit }' include/sumi.h)" 750
count "the section of rules" "$(awk '/^\/\/ ---- Rules / { at = NR } /^\/\/ ---- Versions / { print NR - at }' include/sumi.h)" 60

# The program at its top is what people copy first: it must compile too.
sed -n '/^\/\/     #include/,/^\/\/     }$/ s,^//\(     \)\?,,p' include/sumi.h >"$folder/program.c"
if [ ! -s "$folder/program.c" ]; then
    echo "skip: the header shows no program"
    skipped=$((skipped + 1))
elif gcc -std=c11 -Wall -Wextra -Iinclude -fsyntax-only "$folder/program.c" >"$folder/out" 2>&1; then
    passed=$((passed + 1))
else
    echo "FAILED: the program at the top of sumi.h does not compile"
    head -n 20 "$folder/out" | sed 's/^/  /'
    failed=$((failed + 1))
fi

# What docs/bindings.md does.
table=$(ls tests/abi_*.txt | sort -V | tail -n 1)
if ! python3 -c 'import cffi' 2>/dev/null; then
    echo "skip: cffi: python3 has none (Debian: python3-cffi)"
    skipped=$((skipped + 1))
elif out=$(cat include/sumi.h include/sumi_xml.h | sed '/^ *# *include/d' | gcc -E -P -DSUMI_API= - | python3 -c '
import cffi, sys
ffi = cffi.FFI()
ffi.cdef(sys.stdin.read())
for line in open(sys.argv[1]):
    word = line.split()
    if word[0] == "struct" and ffi.sizeof(word[1] if word[1] in ffi.list_types()[0] else "struct " + word[1]) != int(word[2]):
        print(word[1], "has another size")
' "$table" 2>&1) && [ -z "$out" ]; then passed=$((passed + 1))
else
    echo "FAILED: cffi reads the headers, with the sizes of $table"
    tail -n 5 <<<"$out" | sed 's/^/  /'
    failed=$((failed + 1))
fi

echo "header: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
