#!/usr/bin/env bash
# Prints what tests/list.txt has for some builds, in its order: "BUILD FILE [ARGUMENTS]". usage: tests/list.sh BUILD..
# The table is checked first. What is wrong with it goes to stderr, nothing is printed then, and the exit code is 1.
set -uo pipefail
cd "$(dirname "$0")"
known_builds=' gcc full avx2 portable clang asan tsan fuzz windows gpu gpu-alone '

# One line for each build of each row, without remarks.
every_run() {
    awk '{
        sub(/#.*/, "")
        arguments = ""
        if (match($0, / : /)) { arguments = substr($0, RSTART + 3); $0 = substr($0, 1, RSTART); gsub(/^ +| +$/, "", arguments) }
        if (NF > 0 && NF < 2) print "none", $1
        for (field = 2; field <= NF; field++) print $field, $1 (arguments == "" ? "" : " " arguments)
    }' list.txt
}

every_file() { # that has to have a row
    local file
    for file in test_*.c test_*.sh check_*.sh fuzz/*.c golden/*/; do echo "${file%/}"; done
}

errors() {
    local build file
    comm -23 <(every_file | sort) <(every_run | awk '{ print $2 }' | sort -u) | sed 's,.*,tests/list.txt: tests/& has no row: add one that says in which builds it runs,'
    comm -13 <(every_file | sort) <(every_run | awk '{ print $2 }' | sort -u) | sed 's,.*,tests/list.txt: & has a row\, but there is no tests/&: take the row out or write the file,'
    every_run | awk '{ print $1, $2 }' | sort | uniq -d | sed 's,\(.*\) \(.*\),tests/list.txt: \2 is twice in the build \1,'
    while read -r build file _; do
        [[ $known_builds == *" $build "* ]] || echo "tests/list.txt: $file: there is no build $build; there are$known_builds"
    done < <(every_run)
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
