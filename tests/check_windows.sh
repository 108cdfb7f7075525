#!/usr/bin/env bash
# The library without CUDA, the command line and the samples that are for Windows compile for it, where MinGW-w64 is: nothing is linked, so no library for Windows is needed.
# tests/run_windows.sh is the whole test. Debian: gcc-mingw-w64-x86-64. The last line is "windows: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
tools=x86_64-w64-mingw32
if ! command -v $tools-gcc >/dev/null; then
    echo "skip: there is no $tools-gcc"
    echo "windows: 0 passed, 0 failed, 1 skipped"
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for header in utf8proc.h spng.h; do # which include nothing that is this system's own
    path=$(echo "#include <$header>" | cc -M -x c - | tr ' ' '\n' | grep "/$header$") && cp "$path" "$folder"
done
passed=0 failed=0
for source in $(ls src/*/*.c | grep -v '^src/cuda/') src/cuda/absent.c samples/shared/*.c samples/hello/*.c samples/edit/*.c samples/apps/sumi/*.c samples/d3d12/*.c samples/{batch,cookbook,frame_loop,live,many_gpus,prompt_cache,worker}/*.c samples/instruments/bench/*.c; do
    if $tools-gcc -std=c11 -fsyntax-only -Wall -Wextra -Werror -DNDEBUG -D_POSIX_C_SOURCE=200809L -D__USE_MINGW_ANSI_STDIO=1 -DUTF8PROC_STATIC -DSPNG_STATIC -Iinclude -Isrc -I. -Isamples/shared -I"$folder" \
        "$source" >"$folder/out" 2>&1; then passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $source"
        head -n 4 "$folder/out" | sed 's/^/  /'
    fi
done
echo "windows: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
