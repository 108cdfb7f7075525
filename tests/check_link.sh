#!/usr/bin/env bash
# The README's program, linked as the README and docs/building.md say: what people try first must work. usage: tests/check_link.sh build/.../release
# Also: linked into a plug-in, the library shows none of its symbols. The last line is "link: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

try() { # what, command...
    local what=$1; shift
    if "$@" >"$folder/out" 2>&1; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $what"
    head -n 20 "$folder/out" | sed 's/^/  /'
}

awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' README.md >"$folder/host.c"
sed -n '/^\/\/     #include/,/^\/\/     }$/ s,^//\(     \)\?,,p' include/sumi.h >"$folder/header.c"
try "README.md shows the program of sumi.h" diff -u "$folder/header.c" "$folder/host.c"

library=$build/lib
try "a plain compiler line" gcc -std=c11 -Wall -Wextra "$folder/host.c" -Iinclude -L"$library" -lsumi -lutf8proc -lz -lm -lpthread -ldl -o "$folder/plain"
package() { PKG_CONFIG_PATH=$build sh -c "gcc -std=c11 $folder/host.c \$(pkg-config --cflags --libs sumi) -o $folder/package"; }
try "pkg-config" package
# It must start as well. Without the checkpoint that it names it ends with exit code 1, and not by a signal.
start() { (cd "$folder" && timeout 20 ./plain >/dev/null; [ $? -eq 1 ]); }
try "the program ends cleanly without its checkpoint" start

plugin() {
    gcc -shared -fPIC -x c /dev/null -x none -Wl,--whole-archive "$library/libsumi.a" -Wl,--no-whole-archive -Wl,-z,defs -lutf8proc -lz -lm -lpthread -ldl -o "$folder/plugin.so" || return 1
    ! nm -D --defined-only "$folder/plugin.so" | grep ' sumi_'
}
try "a plug-in does not export the library's symbols" plugin

echo "link: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
