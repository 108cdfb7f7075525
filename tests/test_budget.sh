#!/usr/bin/env bash
# The times of tests/list.txt: a row without one is refused (list.sh); what exceeds its time is printed, and fails at twice (budget.sh); the sum is checked, in the table and of what was measured.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

says() { # what, exit code, text that is printed (-text: that is not), command ..
    local what=$1 want=$2 text=$3 said status; shift 3
    said=$("$@" 2>&1)
    status=$?
    if [ $status -eq "$want" ] && { [ "${text:0:1}" = - ] && ! grep -qF -- "${text:1}" <<<"$said" || grep -qF -- "$text" <<<"$said"; }; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $what"
    sed 's/^/  | /' <<<"exit code $status"$'\n'"$said"
}

# ---- The table ------------------------------------------------------------------------------------------------------------------------
mkdir -p "$folder/tests/fuzz" "$folder/tests/golden/z"
cp tests/list.sh "$folder/tests"
touch "$folder/tests/test_engine.c" "$folder/tests/check_b.sh" "$folder/tests/fuzz/fuzz_c.c" "$folder/tests/test_d.sh"
table() { # the row of test_engine.c
    printf '%s\n' "# a table" "$1" "check_b.sh  0.5  full" "fuzz/fuzz_c.c 20 fuzz" "golden/z 1 gcc clang" "test_d.sh - gpu windows # only there" >"$folder/tests/list.txt"
}
list() { "$folder/tests/list.sh" "$@"; }
table "test_engine.c  2/20.5  gcc asan  : first # why"
says "a time without a sanitizer" 0 "gcc test_engine.c 2 first" list gcc
says "a time with one" 0 "asan test_engine.c 20.5 first" list asan
table "test_engine.c  3  clang tsan"
says "one time is that of all builds" 0 "tsan test_engine.c 3" list tsan
says "a row that run.sh does not run needs none" 0 "gpu test_d.sh -" list gpu
table "test_engine.c  gcc asan"
says "a row without a time is refused" 1 "test_engine.c has no time" list gcc
table "test_engine.c  2/  gcc asan"
says "and half a time" 1 "test_engine.c has no time" list gcc
table "test_engine.c  -  gcc windows"
says "and a row that run.sh runs, with the sign for none" 1 "test_engine.c has no time, and run.sh runs it in the build gcc" list gcc
table "test_engine.c  2"
says "a row without a build is refused" 1 "there is no build none" list gcc
table "test_engine.c  1177  gcc"
says "times within the budget" 0 "gcc test_engine.c 1177" list gcc
table "test_engine.c  600/579  gcc asan"
says "times above it are refused" 1 "the times of all builds are 1202 s, more than" list gcc
says "the table itself is within the budget" 0 "" tests/list.sh gcc

# ---- A run ----------------------------------------------------------------------------------------------------------------------------
# A CPU that takes a hundredth of the yardstick's time: a tenth of a second counts as ten.
printf '#!/bin/sh\necho 0.0050\n' >"$folder/yardstick"
chmod +x "$folder/yardstick"
run() { # what a program took and its time; of how many yardsticks' time; the command when it runs once more
    printf 'gcc/test_quick 1 %s\ngcc/test_a %s %s\nfuzz/fuzz_c 20 %s\n' "$(awk "BEGIN { print 0.5 * $3 }")" "$2" "$1" "$(awk "BEGIN { print 60 * $3 }")" >"$folder/times"
    awk "BEGIN { print 0.5 * $3; print 0.5 * $3 }" >"$folder/yardsticks"
    printf 'run_one 1 gcc/test_quick true\nrun_one %s gcc/test_a %s\n' "$2" "${4:-true}" >"$folder/commands"
    tests/budget.sh "$folder" "$folder/yardstick"
}
busy='timeout 20 bash -c "for ((i = 0; i < 700000; i++)); do :; done"'
says "within its time" 0 "-test_a" run 9 10 1
says "what exceeds its time is printed" 0 "gcc/test_a                           15.0 s of 10 s" run 15 10 1
says "a program may do so" 0 "budget: 2 passed, 0 failed" run 15 10 1
says "at twice its time it fails" 1 "FAILED: gcc/test_a takes" run 21 10 1 "$busy"
says "unless it is as quick as it should be when it runs once more" 0 "gcc/test_a took" run 21 10 1
says "nothing below 5 s fails" 0 "4.9 s of 1 s" run 4.9 1 1 "$busy"
says "on a machine that is half as fast it may take twice as long" 0 "-test_a" run 19 10 2
says "which is printed" 0 "a CPU second of list.txt takes 2.00 s here" run 19 10 2
says "twice its time is four times there" 1 "FAILED: gcc/test_a takes" run 41 10 2 "$busy"
says "on one that is twice as fast it has half the time" 0 "12.0 s of 10 s" run 6 10 0.5
says "a fuzzer runs as long as it is told to" 0 "fuzz/fuzz_c                          60.0 s of 20 s" run 9 10 1
says "the sum" 0 "3 programs took 1160 s of 1200: 580 s on two cores of 600" run 1100 1200 1
says "above the budget it is printed" 0 "this is more than the budget" run 1150 1200 1
says "and by a quarter more it fails" 1 "FAILED: the programs take a quarter more than the budget" run 1450 1500 1
says "and not on a machine that is slower by that much" 0 "budget: 2 passed, 0 failed" run 1450 1500 1.5
# A machine on which programs of a build take longer than the yardstick says.
beside() { # how many times as long the others take, and one
    for i in 1 2 3 4 5 6; do echo "gcc/asan/test_$i 10 $(awk "BEGIN { print 10 * $1 }")"; done >"$folder/times"
    echo "gcc/asan/test_a 10 $(awk "BEGIN { print 10 * $2 }")" >>"$folder/times"
    echo 0.5 >"$folder/yardsticks"
    echo "run_one 10 gcc/asan/test_a $busy" >"$folder/commands"
    tests/budget.sh "$folder" "$folder/yardstick"
}
says "twice its time is more where all programs of its build take longer" 0 "half of gcc/asan takes more than 1.50 times its time" beside 1.5 2.9
says "one of them fails all the same" 1 "FAILED: gcc/asan/test_a takes" beside 1.5 3.1
says "where they do not, it fails at twice" 1 "FAILED: gcc/asan/test_a takes" beside 0.9 2.1
says "without a run there is nothing to hold" 2 "usage" tests/budget.sh "$folder/tests" "$folder/yardstick"

echo "test_budget: $passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
