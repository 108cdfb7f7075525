#!/usr/bin/env bash
# samples/instruments/pacing without a GPU: that it runs, and that its tables say what happened. usage: tests/test_pacing.sh build/.../release
# The last line is "pacing: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
pacing=$build/bin/pacing
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=$folder/out

check() { # what, command ...
    local what=$1; shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $what"; tail -n 30 "$out" | sed 's/^/  /'; fi
}
many=1e9 # no limit: how long a frame takes, and how many it takes until there is a picture, says something of the machine
# But each frame does at least a slice, and no picture has so many: without a picture by then there will be none, and its row says 0.
most_frames=2000
# A cell of the first table, by the row's name and the column's number.
cell() { awk -F'|' -v name="$1" -v column="$2" '{ key = $2; gsub(/ /, "", key) } NF == 15 && key == name { gsub(/[ %]/, "", $(column + 1)); print $(column + 1); exit }' "$out"; }
between() { awk -v x="$1" -v least="$2" -v most="$3" 'BEGIN { exit !(x != "" && x + 0 >= least && x + 0 <= most) }'; }
refuses() { "$pacing" "$@" >"$out" 2>&1; [ $? -eq 2 ] && grep -q '^usage: ' "$out"; }

"$pacing" --host none --backend cpu --synthetic tiny --size 64 --steps 1 --frames 30 --load 5 --budgets 4,2@start,slack,unlimited --paced-load 4 --seconds 10000 --max-frames $most_frames >"$out" 2>&1
check "a short run" test $? -eq 0
for row in loading first alone 4 2@start slack unlimited; do check "a row for $row" test -n "$(cell "$row" 2)"; done
for row in alone 4 2@start slack; do
    check "$row: its frames" between "$(cell $row 2)" 30 $many
    check "$row: a frame takes at least its load" between "$(cell $row 3)" 4.99 $many
    check "$row: percentiles grow" between "$(cell $row 6)" "$(cell $row 3)" $many
done
check "alone there are no pictures" test "$(cell alone 10)" = 0
for row in first 4 2@start slack unlimited; do check "$row: a picture" between "$(cell $row 10)" 1 $many; done
# As many updates as frames, and twice as many polls.
updates=$(awk -F'|' '/sumi_engine_update/ && $2 ~ /^ 4 / { print $4 + 0 }' "$out")
check "an update per frame" test "$updates" = "$(cell 4 2)"
check "two polls per update" grep -qE "^\| 4  .*sumi_job_poll +\| +$((2 * ${updates:-0})) " "$out"

for wrong in "--budgets 4@nowhere" "--budgets 4,," "--budgets -1" "--host metal" "--frames none" "--load 20" "--frames"; do check "refuses $wrong" refuses $wrong; done # words, each an argument

echo "pacing: $passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
