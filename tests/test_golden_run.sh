#!/usr/bin/env bash
# golden_run takes its numbers from the case: a checkpoint whose scheduler has another shift than the case changes nothing, and a case with another shift is noticed.
# usage: tests/test_golden_run.sh BUILD
set -uo pipefail
cd "$(dirname "$0")/.."
program=${1:?usage: tests/test_golden_run.sh BUILD}/bin/golden_run
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

check() { # name command..
    local name=$1; shift
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $name"
        tail -n 5 "$folder/output.txt" | sed 's/^/  | /'
    fi
}
run() { "$program" "$folder/newbie" >"$folder/output.txt" 2>&1; }
finds_other_grid() { ! run && grep -q '^  the grid .*OVER' "$folder/output.txt"; }

mkdir -p "$folder/newbie/cases"
cp -r tests/golden/newbie/model "$folder/newbie/"
cp tests/golden/newbie/cases/pipe_euler.* "$folder/newbie/cases/"
check "the case as it is stored" run
sed -i 's/"shift": 6.0/"shift": 3.0/' "$folder/newbie/model/scheduler/scheduler_config.json"
check "the scheduler's shift is not the case's" run
sed -i 's/"shift": 6.0/"shift": 5.0/' "$folder/newbie/cases/pipe_euler.json"
check "the case's shift is not that of its numbers" finds_other_grid

echo "test_golden_run: $passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
