#!/usr/bin/env bash
# Holds what the programs of a run took against the times of tests/list.txt, in CPU seconds. usage: tests/budget.sh FOLDER YARDSTICK
#
# FOLDER has what tests/run.sh left:
#   times        a line for each program: its name, its time in list.txt, what it took
#   commands     the lines of the queue: run_one TIME NAME COMMAND ..
#   yardsticks   what YARDSTICK took, the program of tests/yardstick.c, many times between the tests
#
# A CPU second is not the same everywhere: CPUs differ, and one whose neighbours share its caches and its core takes up to twice as long for the same work. So what was
# measured is divided by how many times longer the yardstick took than on the machine of list.txt's times, on average of the whole run. A time fixed in seconds would have to
# be so generous for the slowest machine that it would notice nothing on the others.
#
# What exceeds its time is printed. What takes twice its time, and at least 5 s, is run once more, with the yardstick before and after it: a neighbour may have been busy when no
# yardstick was looking. It fails if it exceeds twice its time again. The sum fails when it is a quarter more than the budget. Fuzzers run for a time that is given to them and count in the sum alone.
# The last line is "budget: N passed, N failed, N skipped".
set -uo pipefail
folder=${1:-} yardstick=${2:-}
[ -e "$folder/times" ] && [ -x "$yardstick" ] || { sed -n '2p' "$0"; exit 2; }
normal_yardstick=${NORMAL_YARDSTICK:-0.50} # s, on the machine of list.txt's times: an AMD EPYC with AVX-512, two programs at once on two cores
most_seconds=1200                          # 600 s on two cores
failing_seconds=1500                       # a quarter more, which is more than a run differs from the next: list.sh holds the times themselves to the budget
least_seconds=5                            # nothing fails that takes less
least_programs=5                           # of a build, to know what the machine does to it
passed=0 failed=0

factor_of() { awk -v normal="$normal_yardstick" '{ sum += $1 } END { printf "%.2f", NR ? sum / NR / normal : 1 }'; } # reads what yardsticks took
factor=$(factor_of <"$folder/yardsticks")
echo "a CPU second of list.txt takes $factor s here ($(wc -l <"$folder/yardsticks") yardsticks)"

# ---- Each program ---------------------------------------------------------------------------------------------------------------------
scaled=$(awk -v factor="$factor" '{ printf "%s %s %.1f\n", $1, $2, $3 / factor }' "$folder/times")
# What exceeds its time. Less than a second is no news: it is the start of the program, and the clock's ticks.
awk '$3 > $2 && $3 >= 1 { printf "         %-36s %.1f s of %s s in list.txt\n", $1, $3, $2 }' <<<"$scaled"

# CPUs also differ in what the yardstick does not do: beside an AMD EPYC an Intel Xeon takes 1.2 times as long for what the address sanitizer has compiled, and 1.5 times for that of threads. What half of a build's programs
# exceed, the machine does and not a program; those that become slower together are in the sum.
beside=$(awk '
    $1 !~ /^fuzz\// && $2 >= 1 { build = $1; sub(/\/[^\/]*$/, "", build); print build, $3 / $2 }' <<<"$scaled" | sort -k1,1 -k2,2g | awk -v least=$least_programs '
    function tell() { if (count >= least && ratios[int((count + 1) / 2)] > 1) printf "%s %.2f\n", build, ratios[int((count + 1) / 2)] }
    $1 != build { tell(); build = $1; count = 0 }
    { ratios[++count] = $2 }
    END { tell() }')
[ -z "$beside" ] || awk '{ printf "         half of %s takes more than %.2f times its time: so much is the machine\n", $1, $2 }' <<<"$beside"
# The rows, each with the most that its program may take.
limited=$(awk 'NR == FNR { by[$1] = $2; next } { build = $1; sub(/\/[^\/]*$/, "", build); print $0, 2 * $2 * (build in by ? by[build] : 1) }' <(echo "$beside") - <<<"$scaled")

while read -r name limit _ most; do
    command=$(awk -v name="$name" '$1 == "run_one" && $3 == name { $1 = $2 = $3 = ""; sub(/^ +/, ""); print; exit }' "$folder/commands")
    [ -n "$command" ] || continue
    before=$("$yardstick")
    taken=$(TIMEFORMAT='%U %S'; { time timeout -k 10 "${TEST_SECONDS:-900}" bash -c "$command" >"$folder/again.txt" 2>&1; } 2>&1 | awk '{ print $1 + $2 }')
    again=$(awk -v taken="$taken" -v factor="$(printf '%s\n' "$before" "$("$yardstick")" | factor_of)" 'BEGIN { printf "%.1f", taken / factor }')
    if awk -v most="$most" -v least="$least_seconds" -v again="$again" 'BEGIN { exit !(again >= most && again >= least) }'; then
        failed=$((failed + 1))
        echo "FAILED: $name takes $again s, twice the $limit s that list.txt has for it: make it faster, or measure it and save elsewhere what it takes (tests/README.md)"
    else
        echo "         $name took $again s when it ran once more: its time counts as kept"
    fi
done < <(awk -v least="$least_seconds" '$1 !~ /^fuzz\// && $3 >= $4 && $3 >= least' <<<"$limited")
[ $failed -gt 0 ] || passed=1

# ---- All of them ----------------------------------------------------------------------------------------------------------------------
sum=$(awk '{ sum += $3 } END { printf "%.0f", sum }' <<<"$scaled")
echo "$(wc -l <<<"$scaled") programs took $sum s of $most_seconds: $((sum / 2)) s on two cores of $((most_seconds / 2))"
if [ "$sum" -le $most_seconds ]; then passed=$((passed + 1)); else
    if [ "$sum" -gt $failing_seconds ]; then
        failed=$((failed + 1))
        echo "FAILED: the programs take a quarter more than the budget. Those that took longest:"
    else
        passed=$((passed + 1))
        echo "         this is more than the budget. Those that took longest:"
    fi
    sort -k3 -rn <<<"$scaled" | head -n 12 | awk '{ printf "  %-36s %.1f s\n", $1, $3 }'
fi
echo "budget: $passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
