#!/usr/bin/env bash
# Every source is as clang-format 14 writes it with .clang-format (other versions write other lines), and hardly a line is wider than 120 columns. usage: tests/check_format.sh [--fix]
# The last line is "format: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
version=14 most_wide=5 # of a thousand lines: drawings in comments, and what cannot be broken
mapfile -t sources < <(find include src kernels tests samples -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) | LC_ALL=C sort)
[ ${#sources[@]} -gt 100 ] || { echo "FAILED: there are only ${#sources[@]} sources"; echo "format: 0 passed, 1 failed, 0 skipped"; exit 1; }

passed=0 failed=0 skipped=0 formatter=
for name in clang-format-$version clang-format; do
    [ -z "$formatter" ] && "$name" --version 2>/dev/null | grep -q "version $version\." && formatter=$name
done
if [ -z "$formatter" ]; then
    echo "skipped: there is no clang-format $version (Debian 12 has it: samples/setup.sh tests)"
    skipped=1
elif [ "${1:-}" = --fix ]; then
    "$formatter" -i "${sources[@]}"
    passed=1
elif "$formatter" --dry-run -Werror "${sources[@]}" >/tmp/format.$$ 2>&1; then
    passed=1
else
    failed=1
    echo "FAILED: these lines are not as $formatter writes them; tests/check_format.sh --fix does it"
    grep -a 'error:' /tmp/format.$$ | head -n 20 | sed 's/^/  /'
fi
rm -f /tmp/format.$$

read -r wide all < <(cat "${sources[@]}" | awk 'length > 120 { wide++ } END { print wide + 0, NR }')
echo "$wide of $all lines are wider than 120 columns"
if [ $((1000 * wide)) -le $((most_wide * all)) ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: no more than $most_wide of a thousand may be"; fi
# A body of one line has no braces. The lines of macros that end with a backslash may have them.
braced=$(grep -nE '^ *(else )?(if|for|while) \(.*\) \{ [^{}]*; \}$|^ *else \{ [^{}]*; \}$' "${sources[@]}" | grep -E '\.[ch]:' | head -n 20)
if [ -z "$braced" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: these bodies of one line have braces:"; sed 's/^/  /' <<<"$braced"; fi
# File-local variables begin with s_, also those in functions; names in UPPER are macros and enums. Unreal's stand-ins have its names.
unmarked=$(grep -nE '^[[:space:]]*(const )?static [^({=]*[ *][A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])*( =|;|,)' "${sources[@]}" | grep -E '^(src|samples|tests)/[^:]*\.[ch]:' \
    | sed -E 's/^([^:]*):[0-9]*:([^=;,[]*[ *])?([A-Za-z_][A-Za-z0-9_]*)(\[| =|;|,).*/\1: \3/' | grep -vE '^samples/apps/viewer|^tests/unreal_stand_ins|: s_|##' | head -n 20)
if [ -z "$unmarked" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: these file-local variables do not begin with s_:"; sed 's/^/  /' <<<"$unmarked"; fi
echo "format: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
