#!/usr/bin/env bash
# Sets up, builds and tests everything; the last line is "N passed, N failed, N skipped", and the exit code is 1 when anything failed.
#
#   TESTS_QUICK=1      only the release build by gcc and its tests
#   FUZZ_SECONDS=20    how long each fuzzer runs (0: none)
#   TEST_SECONDS=240   how long one test program may take before it counts as hung
#   JOBS=<cores>       programs and compilers at once
#
# What each program printed is in build/log/<build>/<program>.txt.
set -uo pipefail
cd "$(dirname "$0")/.."
export FUZZ_SECONDS=${FUZZ_SECONDS:-20} TEST_SECONDS=${TEST_SECONDS:-240}
jobs=${JOBS:-$(nproc)}
quick=${TESTS_QUICK:-}
log=build/log
rm -rf "$log"
mkdir -p "$log"
queue=$log/queue.txt   # one program per line: name of the log, then the command
results=$log/results   # one file per program: its counts
mkdir -p "$results"
started=$(date +%s)

# ---- Counting -------------------------------------------------------------------------------------------------------------------------
record() { # name passed failed skipped remark
    echo "$2 $3 $4" >"$results/$(tr / - <<<"$1")"
    local mark=ok
    [ "$3" -eq 0 ] || mark=FAILED
    printf '%-6s %-34s %s passed, %s failed, %s skipped%s\n' "$mark" "$1" "$2" "$3" "$4" "${5:+  ($5)}"
}

# Runs one program and believes both its last line and its exit code: a crash, a time-out or a missing count is a failure.
run_one() {
    local name=$1; shift
    local output=$log/$name.txt began status seconds passed=0 failed=0 skipped=0 remark
    mkdir -p "$(dirname "$output")"
    began=$(date +%s)
    { timeout -k 10 "$TEST_SECONDS" "$@" >"$output" 2>&1; } 2>/dev/null # the shell's own "Aborted" line is not wanted
    status=$?
    seconds=$(($(date +%s) - began))
    remark="$seconds s"
    local counts
    counts=$(grep -aE '(^|: )[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped( \(.*\))?$' "$output" | tail -n 1 | grep -oE '[0-9]+ (passed|failed|skipped)')
    if [ -n "$counts" ]; then
        passed=$(sed -n 's/ passed//p' <<<"$counts"); failed=$(sed -n 's/ failed//p' <<<"$counts"); skipped=$(sed -n 's/ skipped//p' <<<"$counts")
        [ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || { failed=1; remark="$remark, exit code $status"; }
    else
        failed=1
        remark="$remark, no counts, exit code $status$([ $status -eq 124 ] && echo ': time is up')"
    fi
    record "$name" "$passed" "$failed" "$skipped" "$remark"
    [ "$failed" -eq 0 ] || grep -aE '^ *FAILED|^  .*:[0-9]+: |ERROR: |SUMMARY: |runtime error|WARNING: ThreadSan|OVER|not run' "$output" | head -n 12 | sed 's/^/         /'
}

# A fuzzer passes when it ran its time and found nothing.
run_fuzzer() { # program corpus seeds...
    local program=$1 name corpus=$2 began status; shift 2
    name=fuzz/$(basename "$program")
    mkdir -p "$log/fuzz" "$corpus"
    timeout -k 10 $((FUZZ_SECONDS + 120)) "$program" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 -verbosity=1 -print_final_stats=1 \
        -artifact_prefix="$log/fuzz/$(basename "$program")-" "$corpus" "$@" >"$log/$name.txt" 2>&1
    status=$?
    local runs
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log/$name.txt")
    if [ $status -eq 0 ]; then record "$name" 1 0 0 "${runs:-?} inputs in $FUZZ_SECONDS s"
    else record "$name" 0 1 0 "exit code $status"; grep -aE 'ERROR|SUMMARY|runtime error|Test unit written' "$log/$name.txt" | head -n 8 | sed 's/^/         /'; fi
}
export -f run_one run_fuzzer record
export log results

# ---- Building -------------------------------------------------------------------------------------------------------------------------
premake=
build() { # folder compiler configuration [premake option [programs]]; all share the GPU's kernels
    local name=$1/$3
    local folder=build/$1 began
    mkdir -p "$log/build"
    began=$(date +%s)
    # -k: one program that does not compile does not hide the others' results.
    if { "$premake" --file=premake5.lua --build="$folder" --kernels=build/kernels ${4:-} gmake && make -k -C "$folder" CC="$2" config="$3" -j"$jobs" ${5:-}; } >"$log/build/$1-$3.txt" 2>&1; then
        record "build/$name" 1 0 0 "$2, $(($(date +%s) - began)) s"
    else
        record "build/$name" 0 1 0 "$2, see $log/build/$1-$3.txt"
        grep -aE 'error:|undefined reference|cannot find' "$log/build/$1-$3.txt" | head -n 12 | sed 's/^/         /'
    fi
}

enqueue() { printf '%s\n' "$*" >>"$queue"; }

# A test source whose program does not exist counts as failed: run_one sees that it cannot start.
enqueue_tests() { # folder configuration [name pattern]
    local source program name
    for source in tests/test_${3:-*}.c; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .c)
        enqueue run_one "$1/$2/$name" "build/$1/$2/bin/$name"
    done
    for source in tests/test_${3:-*}.sh; do # scripts that try the programs from outside: the command line in every build, samples in one, for they try no more of the library than others do
        [ -e "$source" ] || continue
        [ "$1/$2" = gcc/release ] || [ "$source" = tests/test_cli.sh ] || continue
        enqueue run_one "$1/$2/$(basename "$source" .sh)" "$source" "build/$1/$2"
    done
}

enqueue_golden() { # folder configuration
    local family
    [ -e tests/golden_run.c ] || return 0
    for family in tests/golden/*/; do
        # A folder whose cases are all of families that this library does not have counts as skips; each is named in the
        # log.
        enqueue run_one "$1/$2/golden_run_$(basename "$family")" "build/$1/$2/bin/golden_run" --skip-other-families "${family%/}"
    done
}

run_queue() {
    [ -e "$queue" ] || return 0
    xargs -P "$jobs" -I LINE bash -c 'LINE' <"$queue"
    rm -f "$queue"
}

# ---- The work -------------------------------------------------------------------------------------------------------------------------
if ! samples/setup.sh "$([ -n "$quick" ] && echo build || echo tests)"; then
    record set-up 0 1 0
else
    premake=$(command -v premake5 || command -v premake4)
    build gcc gcc release --shared
    enqueue_tests gcc release
    enqueue_golden gcc release
    enqueue run_one check/symbols tests/check_symbols.sh build/gcc/release/lib/libsumi.a build/gcc/release/plugin/libsumi.so
    enqueue run_one check/link tests/check_link.sh build/gcc/release
    enqueue run_one check/rooms tests/check_rooms.sh
    [ -n "$quick" ] || enqueue run_one check/header tests/check_header.sh
    run_queue
    if [ -z "$quick" ]; then
        build clang clang release --no-viewer
        enqueue_tests clang release
        sed -i '/clang.*test_demo/s/$/ prompt_and_seed_give_the_stored_picture/' "$queue" # the same pictures by another compiler: what they show has been judged
        enqueue_golden clang release
        build gcc gcc asan --no-viewer
        enqueue_tests gcc asan
        sed -i '/asan.*test_demo/d' "$queue" # dozens of whole pictures take minutes there, and the engine's tests run the same code on the tiny model
        sed -i '/asan.*test_cuda_budget/d' "$queue" # two and a half minutes there; the runner's and the engine's tests on the fake driver run the same code
        enqueue_tests gcc tsan 'engine*'
        sed -i '/tsan.*_faults/d' "$queue" # allocations that fail one by one need no second thread, and minutes here
        build gcc gcc tsan --no-viewer "$(sed -n 's,.*gcc/tsan/bin/,,p' "$queue" | tr '\n' ' ')"
        if [ "$FUZZ_SECONDS" -gt 0 ] && compgen -G 'tests/fuzz/*.c' >/dev/null; then
            build fuzz clang asan '--fuzz --no-cuda' # what is read from files asks for no GPU
            for source in tests/fuzz/*.c; do
                name=$(basename "$source" .c)
                # A fuzzer's source says where good and bad examples of its input lie: "// Seeds: folder folder"
                enqueue run_fuzzer "build/fuzz/asan/bin/$name" "build/fuzz/corpus/$name" "$(sed -n 's,^// Seeds: *,,p' "$source" | head -n 1)"
            done
        fi
        run_queue
    fi
fi

# ---- The sum --------------------------------------------------------------------------------------------------------------------------
echo "took $(($(date +%s) - started)) s; logs in $log/"
cat "$results"/* | awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }'
