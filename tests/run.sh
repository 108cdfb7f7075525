#!/usr/bin/env bash
# Sets up, builds and tests everything; the last line is "N passed, N failed, N skipped", and the exit code is 1 when anything failed.
#
#   TESTS_QUICK=1      only the release build by gcc and its tests
#   FUZZ_SECONDS=7     how long each fuzzer runs (0: none)
#   TEST_SECONDS=900   how long one test program may take before it counts as hung: many times what any takes on an idle machine
#   JOBS=<cores>       programs and compilers at once
#
# tests/list.txt says what runs in which build and how long that takes. What each program printed is in build/log/<build>/<program>.txt. A program that ran nothing counts as failed, and so does
# one that was to run and did not. What exceeds its time is printed at the end; what takes twice its time fails, and so do all programs together when they exceed the budget by a quarter (tests/budget.sh).
set -uo pipefail
cd "$(dirname "$0")/.."
export FUZZ_SECONDS=${FUZZ_SECONDS:-7} TEST_SECONDS=${TEST_SECONDS:-900}
jobs=${JOBS:-$(nproc)}
quick=${TESTS_QUICK:-}
log=build/log
rm -rf "$log"
mkdir -p "$log"
queue=$log/queue.txt   # one program per line: name of the log, then the command
results=$log/results   # one file per program: its counts
expected=$log/expected # the names of all that were in the queue
yardstick=build/yardstick
mkdir -p "$results"
started=$(date +%s)

# ---- Counting -------------------------------------------------------------------------------------------------------------------------
record() { # name passed failed skipped remark
    echo "$2 $3 $4" >"$results/$(tr / - <<<"$1")"
    local mark=ok
    [ "$3" -eq 0 ] || mark=FAILED
    printf '%-6s %-34s %s passed, %s failed, %s skipped%s\n' "$mark" "$1" "$2" "$3" "$4" "${5:+  ($5)}"
}

# Runs one program and believes both its last line and its exit code: a crash, a time-out, a missing count or nothing but zeros is a failure.
run_one() {
    local limit=$1 name=$2; shift 2
    local output=$log/$name.txt status passed=0 failed=0 skipped=0 remark
    mkdir -p "$(dirname "$output")"
    local TIMEFORMAT="%1R s, %1U + %1S s of a CPU"
    remark=$({ time timeout -k 10 "$TEST_SECONDS" "$@" >"$output" 2>&1; } 2>&1; echo $?)
    status=${remark##*$'\n'}
    remark=$(grep ' of a CPU$' <<<"$remark") # the shell's own "Aborted" line is not wanted
    awk -v name="$name" -v limit="$limit" '{ print name, limit, $3 + $5 }' <<<"$remark" >>"$log/times" # of the program and of all that it waited for
    local counts
    counts=$(grep -aE '(^|: )[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped( \(.*\))?$' "$output" | tail -n 1 | grep -oE '[0-9]+ (passed|failed|skipped)')
    if [ -n "$counts" ]; then
        passed=$(sed -n 's/ passed//p' <<<"$counts"); failed=$(sed -n 's/ failed//p' <<<"$counts"); skipped=$(sed -n 's/ skipped//p' <<<"$counts")
        [ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || { failed=1; remark="$remark, exit code $status"; }
        [ $((passed + failed + skipped)) -gt 0 ] || { failed=1; remark="$remark, ran nothing"; }
    else
        failed=1
        remark="$remark, no counts, exit code $status$([ $status -eq 124 ] && echo ': time is up')"
    fi
    record "$name" "$passed" "$failed" "$skipped" "$remark"
    [ "$failed" -eq 0 ] || grep -aE '^ *FAILED|^  .*:[0-9]+: |ERROR: |SUMMARY: |runtime error|WARNING: ThreadSan|OVER|not run' "$output" | head -n 12 | sed 's/^/         /'
}

# A fuzzer passes when it ran its time, with inputs, and found nothing.
run_fuzzer() { # time, program, corpus, seeds ...
    local limit=$1 program=$2 name corpus=$3 status; shift 3
    local TIMEFORMAT="%U %S"
    name=fuzz/$(basename "$program")
    mkdir -p "$log/fuzz" "$corpus"
    { time timeout -k 10 $((FUZZ_SECONDS + 600)) "$program" -max_total_time="$FUZZ_SECONDS" -timeout=60 -rss_limit_mb=2048 -verbosity=1 -print_final_stats=1 \
        -artifact_prefix="$log/fuzz/$(basename "$program")-" "$corpus" "$@" >"$log/$name.txt" 2>&1; } 2>"$log/$name.time"
    status=$?
    awk -v name="$name" -v limit="$limit" -v given="$FUZZ_SECONDS" 'END { print name, limit, ($1 + $2) * 7 / given }' "$log/$name.time" >>"$log/times" # list.txt's is for 7 s
    rm "$log/$name.time"
    local runs
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log/$name.txt")
    if [ $status -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then record "$name" 1 0 0 "$runs inputs in $FUZZ_SECONDS s"
    elif [ $status -eq 0 ]; then record "$name" 0 1 0 "it ran no input"
    else record "$name" 0 1 0 "exit code $status"; grep -aE 'ERROR|SUMMARY|runtime error|Test unit written' "$log/$name.txt" | head -n 8 | sed 's/^/         /'; fi
}
run_yardstick() { "$yardstick" >>"$log/yardsticks"; }
export -f run_one run_fuzzer run_yardstick record
export log results yardstick

# ---- Building -------------------------------------------------------------------------------------------------------------------------
premake=
build() { # folder compiler configuration [premake option [programs]]; all share the GPU's kernels, which are machine code for this machine's GPU, or for 9.0a where there is none
    local name=$1/$3
    local folder=build/$1 began
    mkdir -p "$log/build"
    began=$(date +%s)
    # -k: one program that does not compile does not hide the others' results.
    if { "$premake" --file=premake5.lua --build="$folder" --kernels=build/kernels --gpus=native ${4:-} gmake && make -k -C "$folder" CC="$2" config="$3" -j"$jobs" ${5:-}; } >"$log/build/$1-$3.txt" 2>&1; then
        record "build/$name" 1 0 0 "$2, $(($(date +%s) - began)) s"
    else
        record "build/$name" 0 1 0 "$2, see $log/build/$1-$3.txt"
        grep -aE 'error:|undefined reference|cannot find' "$log/build/$1-$3.txt" | head -n 12 | sed 's/^/         /'
    fi
}

# ---- What runs: tests/list.txt --------------------------------------------------------------------------------------------------------
folder_of() { case $1 in gcc | full | avx2 | portable) echo gcc/release ;; clang) echo clang/release ;; asan | tsan) echo "gcc/$1" ;; fuzz) echo fuzz/asan ;; esac; } # in build/

enqueue() { printf '%s\n' "$*" >>"$queue"; }

# Rows of the table become lines of the queue. A program that was not built counts as failed: run_one sees that it cannot start.
enqueue_builds() { # build ..
    local build file seconds arguments folder name label masked
    while read -r build file seconds arguments; do
        folder=$(folder_of "$build")
        label=$folder masked=
        case $build in avx2 | portable) label=gcc/$build masked="env SUMI_CPU_LEVEL=$build" ;; esac
        arguments=${arguments//'{build}'/build/$folder}
        name=$(basename "${file%.*}")
        case $file in
            test_*.c) enqueue run_one "$seconds" "$label/$name" $masked "build/$folder/bin/$name" $arguments ;;
            test_*.sh) enqueue run_one "$seconds" "$folder/$name" "tests/$file" $arguments ;;
            check_*.sh) enqueue run_one "$seconds" "check/${name#check_}" "tests/$file" $arguments ;;
            golden/*) enqueue run_one "$seconds" "$label/golden_run_$name" $masked "build/$folder/bin/golden_run" $arguments "tests/$file" ;;
            fuzz/*.c) enqueue run_fuzzer "$seconds" "build/$folder/bin/$name" "build/fuzz/corpus/$name" "$(seeds_of "tests/$file")" ;;
        esac
    done < <(tests/list.sh "$@")
}

# A fuzzer's source says where good and bad examples of its input lie: "// Seeds: folder folder". A folder without files is a failure, or the fuzzer would do without in silence.
seeds_of() { # source
    local seeds folder
    seeds=$(sed -n 's,^// Seeds: *,,p' "$1" | head -n 1)
    for folder in ${seeds:-"(none named)"}; do compgen -G "$folder/*" >/dev/null || record "files/$folder/*" 0 1 0 "there is none" >&2; done
    echo "$seeds"
}

run_queue() {
    [ -e "$queue" ] || return 0
    awk '$1 == "run_fuzzer" { sub(".*/", "", $3); print "fuzz/" $3; next } { print $3 }' "$queue" >>"$expected"
    cat "$queue" >>"$log/commands"
    # The yardstick runs once for every 40 s of work, beside whatever runs then, and so its average has the neighbours of the whole run.
    awk 'BEGIN { print "run_yardstick" } { print; work += $2 } work >= 40 { print "run_yardstick"; work = 0 }' "$queue" | xargs -P "$jobs" -I LINE bash -c 'LINE'
    rm -f "$queue"
}

# ---- The work -------------------------------------------------------------------------------------------------------------------------
if ! tests/list.sh gcc >/dev/null; then
    record list 0 1 0 "tests/list.txt does not fit the files"
elif ! samples/setup.sh "$([ -n "$quick" ] && echo build || echo tests)"; then
    record set-up 0 1 0
else
    premake=$(command -v premake5 || command -v premake4)
    mkdir -p build
    gcc -std=c11 -O2 -Wall -Wextra -Werror tests/yardstick.c -o $yardstick || record yardstick 0 1 0 "tests/yardstick.c does not compile"
    build gcc gcc release --shared
    enqueue_builds gcc avx2 portable $([ -n "$quick" ] || echo full)
    run_queue
    if [ -z "$quick" ]; then
        build clang clang release --no-viewer
        build gcc gcc asan --no-viewer
        build gcc gcc tsan --no-viewer "$(tests/list.sh tsan | sed 's/^tsan \([^ ]*\)\.c.*/\1/' | tr '\n' ' ')"
        enqueue_builds clang asan tsan
        if [ "$FUZZ_SECONDS" -gt 0 ]; then
            build fuzz clang asan '--fuzz --no-cuda' # what is read from files asks for no GPU
            enqueue_builds fuzz
        fi
        run_queue
    fi
fi

# ---- The sum --------------------------------------------------------------------------------------------------------------------------
while read -r name; do
    [ -e "$results/$(tr / - <<<"$name")" ] || record "$name" 0 1 0 "it was to run, and has left no result"
done < <(cat "$expected" 2>/dev/null)
if [ -e "$log/times" ]; then
    tests/budget.sh "$log" $yardstick | tee "$log/budget.txt"
    read -r passed failed skipped < <(sed -n 's/^budget: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$log/budget.txt")
    record budget "${passed:-0}" "${failed:-1}" "${skipped:-0}"
fi
echo "took $(($(date +%s) - started)) s; logs in $log/"
cat "$results"/* | awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }'
