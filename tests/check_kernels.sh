#!/usr/bin/env bash
# Which kernels no golden data and no test of an op has reached: adds up what golden_run --list-kernels and
# test_cuda_ops --list-kernels printed on one GPU.
#
#   tests/check_kernels.sh OUTPUT ..
#
# Each output has a line "kernel NAME COUNT" for every kernel that is made for the device. The exit code is 1 when one
# was never used, or when an output has no such line.
set -uo pipefail
[ $# -gt 0 ] || { sed -n '2,6p' "$0"; exit 2; }
without=0
for output in "$@"; do
    grep -qaE '^kernel [a-z0-9_]+ [0-9]+$' "$output" && continue
    echo "FAILED: $output lists no kernels"
    without=$((without + 1))
done
cat "$@" | awk -v without=$without '
    /^kernel [a-z0-9_]+ [0-9]+$/ { uses[$2] += $3 }
    END {
        for (name in uses) if (uses[name] > 0) reached++; else { print "FAILED: nothing reached " name | "sort"; missed++ }
        close("sort")
        printf "check_kernels: %d passed, %d failed, 0 skipped\n", reached, missed + without
        exit missed + without > 0
    }'
