#!/usr/bin/env bash
# Prints what tests/list.txt has for some builds, in its order: "BUILD FILE SECONDS [ARGUMENTS]". usage: tests/list.sh BUILD..
# The table is checked first. What is wrong with it goes to stderr, nothing is printed then, and the exit code is 1.
set -uo pipefail
cd "$(dirname "$0")"
known_builds=' gcc full avx2 portable clang asan tsan fuzz windows windows-cuda gpu gpu-alone '
timed_builds=' gcc full avx2 portable clang asan tsan fuzz ' # those of run.sh
most_seconds=1200                                            # of a CPU, for all that run.sh runs: 600 s on two cores

# One line for each build of each row, without remarks. A row has one time, or two: without a sanitizer and with one.
every_run() {
    awk '{
        sub(/#.*/, "")
        arguments = ""
        if (match($0, / : /)) { arguments = substr($0, RSTART + 3); $0 = substr($0, 1, RSTART); gsub(/^ +| +$/, "", arguments) }
        if (NF == 0) next
        first = 3
        if ($2 !~ /^([0-9]+(\.[0-9]+)?(\/[0-9]+(\.[0-9]+)?)?|-)$/) { first = 2; times[1] = times[2] = "none" }
        else if (split($2, times, "/") == 1) times[2] = times[1]
        if (NF < first) print "none", $1, "-"
        for (field = first; field <= NF; field++) print $field, $1, times[($field ~ /^(asan|tsan)$/) + 1] (arguments == "" ? "" : " " arguments)
    }' list.txt
}

every_file() { # that has to have a row
    local file
    for file in test_*.c test_*.sh check_*.sh fuzz/*.c golden/*/; do echo "${file%/}"; done
}

errors() {
    local build file seconds sum
    comm -23 <(every_file | sort) <(every_run | awk '{ print $2 }' | sort -u) | sed 's,.*,tests/list.txt: tests/& has no row: add one that says in which builds it runs,'
    comm -13 <(every_file | sort) <(every_run | awk '{ print $2 }' | sort -u) | sed 's,.*,tests/list.txt: & has a row\, but there is no tests/&: take the row out or write the file,'
    every_run | awk '{ print $1, $2 }' | sort | uniq -d | sed 's,\(.*\) \(.*\),tests/list.txt: \2 is twice in the build \1,'
    while read -r build file seconds _; do
        [[ $known_builds == *" $build "* ]] || echo "tests/list.txt: $file: there is no build $build; there are$known_builds"
        [ "$seconds" != none ] || { echo "tests/list.txt: $file has no time: write behind its name how many CPU seconds it takes"; continue; }
        [ "$seconds" != - ] || [[ $timed_builds != *" $build "* ]] || echo "tests/list.txt: $file has no time, and run.sh runs it in the build $build"
    done < <(every_run) | uniq
    sum=$(every_run | awk -v timed="$timed_builds" 'index(timed, " " $1 " ") { sum += $3 } END { printf "%.0f", sum }')
    [ "$sum" -le $most_seconds ] || echo "tests/list.txt: the times of all builds are $sum s, more than $most_seconds: save as much elsewhere as you add (tests/README.md)"
    # With one thread there is nothing to race with, and a test with two that is left out there would miss what it is for.
    comm -23 <(grep -lE 'SUMI_PUMP_THREAD|cpu_thread_count = [^1]|sumi_thread_begin' test_engine*.c | sort) <(every_run | sed -n 's/^tsan \([^ ]*\).*/\1/p' | sort) \
        | sed 's,.*,tests/list.txt: & begins a second thread: its row has to name tsan,'
}

[ $# -gt 0 ] || { sed -n '2,3p' "$(basename "$0")"; exit 2; }
found=$(errors)
if [ -n "$found" ]; then
    echo "$found" >&2
    exit 1
fi
every_run | awk -v wanted=" $* " 'index(wanted, " " $1 " ")'
