#!/usr/bin/env bash
# Every source compiles without the CUDA backend, as on a machine without nvcc: library, samples and tests, but for what is Windows'. Nothing is linked.
# By clang, which tells unused functions without making code.
# The last line is "without_cuda: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang >/dev/null; then
    echo "skip: there is no clang"
    echo "without_cuda: 0 passed, 0 failed, 1 skipped"
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
compile() { # source; prints its name when it does not compile
    clang -std=c11 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -DNDEBUG -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc -I. -Isamples/shared -Itests \
        $libraries "$1" >"$folder/$(tr / - <<<"$1")" 2>&1 || echo "$1"
}
export -f compile
libraries=$(pkg-config --cflags libutf8proc spng 2>/dev/null)
export folder libraries
sources=$(ls src/*/*.c samples/*/*.c samples/*/*/*.c tests/test_*.c tests/golden_*.c tests/*/*.c | grep -v -e '^src/cuda/' -e '^tests/fake_cuda/' -e '^tests/pretend_cuda/' -e '^tests/fuzz/' -e '^tests/consumer/' -e '^samples/d3d12/' $([ -e /usr/include/vulkan/vulkan.h ] || printf '%s ' -e ^samples/vulkan/) $([ -e /usr/include/EGL/egl.h -a -e /usr/include/GL/glcorearb.h ] || printf '%s ' -e ^samples/depth_scene/); echo src/cuda/absent.c)
failures=$(xargs -P "${JOBS:-$(nproc)}" -I SOURCE bash -c 'compile SOURCE' <<<"$sources")
for source in $failures; do
    echo "FAILED: $source"
    head -n 4 "$folder/$(tr / - <<<"$source")" | sed 's/^/  /'
done
failed=$(grep -c . <<<"$failures")
passed=$(($(grep -c . <<<"$sources") - failed))
echo "without_cuda: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
