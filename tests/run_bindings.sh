#!/usr/bin/env bash
# The programs of docs/bindings.md: built with the tools that are here, and run with the demo model; each has to write the pixels of the command line's picture. usage: tests/run_bindings.sh [build/release]
# Not part of tests/run.sh, which has the C# program (test_nuget.sh) and cffi's reading of the headers (check_header.sh): Zig takes a minute the first time. Debian: python3-cffi, bindgen, rustc; PyPI: ziglang, whose
# program ZIG names (zig). The last line is "bindings: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
libraries=$build/plugin zig=${ZIG:-zig} python=${PYTHON:-python3}
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
skip() { echo "skip: $1"; skipped=$((skipped + 1)); }
check() { # what, what is wrong
    if [ -z "$2" ]; then passed=$((passed + 1)); echo "ok     $1"; return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    head -n 20 <<<"$2" | sed 's/^/  /'
}
quiet() { local out; out=$("$@" 2>&1) || echo "${out:-exit code $?}"; } # prints what a command says that fails
[ -e "$libraries/libsumi.so" ] || { echo "FAILED: $libraries/libsumi.so is not there: make the build with premake's --shared"; echo "bindings: 0 passed, 1 failed, 0 skipped"; exit 1; }

program() { # name, file
    awk -v name="<!-- program $1 -->" '$0 == name { found = 1; next } found && /^```/ { if (on) exit; on = 1; next } on' docs/bindings.md >"$folder/$2"
    [ -s "$folder/$2" ] || echo "docs/bindings.md has no program $1"
}
"$build/bin/sumi" generate --quiet --backend cpu --model samples/demo_model --prompt "a red house on the grass" --seed 7 -o "$folder/wanted.png" && "$build/bin/cli_support" pixels "$folder/wanted.png" >"$folder/wanted.rgba"
draws() { # name, command ...
    rm -f "$folder/out.pam"
    check "$1" "$(CUDA_VISIBLE_DEVICES='' LD_LIBRARY_PATH=$libraries quiet "${@:2}")$(cmp "$folder/wanted.rgba" <(sed '1,/^ENDHDR$/d' "$folder/out.pam") 2>&1)"
}
arguments=(samples/demo_model "a red house on the grass" "$folder/out.pam")

check "the program for ctypes" "$(program ctypes ctypes_draw.py)"
cp packaging/python/sumi/_abi.py "$folder"
draws "Python, ctypes" "$python" "$folder/ctypes_draw.py" "${arguments[@]}" "$libraries/libsumi.so"

if "$python" -c 'import cffi' 2>/dev/null; then
    check "the program for cffi" "$(program cffi cffi_draw.py)"
    draws "Python, cffi" "$python" "$folder/cffi_draw.py" "${arguments[@]}" "$libraries/libsumi.so"
else skip "cffi: $python has none (Debian: python3-cffi)"; fi

if command -v bindgen >/dev/null && command -v rustc >/dev/null; then
    check "the program for Rust" "$(program rust draw.rs)"
    check "Rust: bindgen" "$(quiet bindgen include/sumi.h -o "$folder/sumi.rs")"
    check "Rust: rustc" "$(cd "$folder" && quiet rustc -D warnings -O draw.rs -L "$libraries" -l dylib=sumi -o draw_rust)"
    draws "Rust" "$folder/draw_rust" "${arguments[@]}"
else skip "Rust: there is no bindgen or no rustc (Debian: bindgen, rustc)"; fi

if command -v "$zig" >/dev/null; then
    check "the program for Zig" "$(program zig draw.zig)"
    export ZIG_GLOBAL_CACHE_DIR=${ZIG_GLOBAL_CACHE_DIR:-$folder/cache} ZIG_LOCAL_CACHE_DIR=$folder/cache
    printf '#include <stdio.h>\n#include <sumi.h>\n' >"$folder/c.h"
    check "Zig: translate-c" "$("$zig" translate-c -lc -Iinclude "$folder/c.h" 2>&1 >"$folder/c.zig")"
    check "Zig: build-exe" "$(cd "$folder" && quiet "$zig" build-exe draw.zig -lc -L"$libraries" -lsumi --name draw_zig)"
    draws "Zig" "$folder/draw_zig" "${arguments[@]}"
else skip "Zig: there is no $zig (PyPI: ziglang)"; fi

echo "bindings: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
