#!/usr/bin/env bash
# Tests on a machine with a GPU that need not be the one that built them: it wants a driver, and for some parts Python with PyTorch or compute-sanitizer; no Premake, no libraries.
#
#   tests/run_gpu.sh --collect FOLDER build/release/bin     copies the programs, and the shared libraries that a bare machine lacks, into FOLDER (where they were built)
#   tests/run_gpu.sh FOLDER [PART ..]                        runs parts there, from the repository's root
#
#   ops        test_cuda_ops: every op against the processor                          (default)
#   golden     golden_run on the GPU: as it comes, portable, without graphs, fp8       (default)
#   tests      the other programs called test_cuda* and test_engine*                   (default)
#   neighbour  cuda_neighbour: a host that uses the CUDA runtime and cuBLAS beside sumi; built there, wants nvcc
#   cublaslt   test_cuda_ops and golden_run with products by cuBLASLt, which PyTorch brings; wants tune_cuda_linear too for the times of both
#   demo       a picture of the demo model by the GPU and by the processor              (default)
#   sanitize   compute-sanitizer: memcheck, racecheck and initcheck on small cases and the tiny model
#   bench      the report at the released sizes; BENCH_SECONDS (8) of sustained work per row, BENCH_SIZES (1024,768,512)
#   start      from the start of the process to the PNG: sumi generate, 8 steps, 1024 x 1024, a checkpoint of the released sizes (20 GB, random) in the page cache; START_FOLDER says where it goes
#   torch      samples/bench/compare_torch.py on the GPU
#
# LOG=FOLDER keeps what every program printed (/tmp/sumi-gpu). PART_SECONDS=300 bounds each program. The last line is "N passed, N failed, N skipped" of all programs.
set -uo pipefail
cd "$(dirname "$0")/.."

# ---- Collecting -------------------------------------------------------------------------------------------------------------------------
if [ "${1:-}" = --collect ]; then
    [ $# -eq 3 ] && [ -d "$3" ] || { sed -n '4,5p' "$0"; exit 2; }
    mkdir -p "$2/lib"
    for program in test_cuda_ops golden_run tune_cuda_linear bench sumi "$3"/test_cuda* "$3"/test_engine* "$3"/test_demo; do
        program=$3/$(basename "$program")
        [ -x "$program" ] || { echo "not built: $program"; continue; }
        if ldd "$program" | grep -q '/fake/libcuda'; then continue; fi # tested on a driver that is none, where it was built
        cp -f "$program" "$2/"
        # The C library and the loader are the machine's own; the driver is opened at run time.
        ldd "$program" | awk '$3 ~ /^\// { print $3 }' | grep -vE '/(libcuda|libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | while read -r library; do cp -fL "$library" "$2/lib/"; done
    done
    # To link against: the library, beside its shared ones in lib/.
    [ -e "$3/../lib/libsumi.a" ] && cp -f "$3/../lib/libsumi.a" "$2/"
    du -sh "$2" | awk '{ print "collected " $1 " in " $2 }'
    exit 0
fi

bin=${1:-}
[ -n "$bin" ] && [ -d "$bin" ] || { sed -n '2,18p' "$0"; exit 2; }
bin=$(cd "$bin" && pwd)
shift
parts=${*:-ops golden tests demo}
log=${LOG:-/tmp/sumi-gpu}
seconds=${PART_SECONDS:-300}
mkdir -p "$log"
export LD_LIBRARY_PATH=$bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
passed=0 failed=0 skipped=0
has() { [[ " $parts " == *" $1 "* ]]; }

# ---- Counting ---------------------------------------------------------------------------------------------------------------------------
# Believes both the counts and the exit code, as tests/run.sh does: a crash, a time-out or missing counts are a failure. With NO_SKIPS a skip is a failure, too: it means that the GPU was not found.
run() { # name command..
    local name=$1 began output counts status p=0 f=0 s=0 mark=ok; shift
    began=$(date +%s)
    output=$log/${name//[ \/]/_}.txt
    timeout -k 10 "$seconds" "$@" >"$output" 2>&1
    status=$?
    counts=$(grep -aE '(^|: )[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped( \(.*\))?$' "$output" | tail -n 1 | grep -oE '[0-9]+ (passed|failed|skipped)')
    if [ -n "$counts" ]; then
        p=$(sed -n 's/ passed//p' <<<"$counts") f=$(sed -n 's/ failed//p' <<<"$counts") s=$(sed -n 's/ skipped//p' <<<"$counts")
        [ $status -eq 0 ] || [ "$f" -gt 0 ] || f=1
    elif [ $status -eq 0 ] && [ "${WITHOUT_COUNTS:-}" ]; then p=1
    else f=1; fi
    [ -z "${NO_SKIPS:-}" ] || [ "$s" -eq 0 ] || f=$((f + 1))
    [ "$f" -eq 0 ] || mark=FAILED
    printf '%-6s %-40s %s passed, %s failed, %s skipped  (%s s, exit code %s)\n' "$mark" "$name" "$p" "$f" "$s" $(($(date +%s) - began)) $status
    [ "$f" -eq 0 ] || grep -aE '^ *FAILED|^  .*: output|:[0-9]+: |OVER|is off by|other bits|ERROR|error:|^skip: ' "$output" | head -n 25 | sed 's/^/         /'
    if [ "$f" -gt 0 ] && [ "$p" -eq 0 ]; then tail -n 5 "$output" | sed 's/^/         | /'; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# Only what compute-sanitizer says counts; its errors become its exit code. Threads of the host are not its concern.
sanitize() { # tool name command..
    local tool=$1 name=$2; shift 2
    WITHOUT_COUNTS=1 run "sanitize/$tool $name" "$sanitizer" --tool "$tool" --error-exitcode 99 --print-limit 20 "$@"
}

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# ---- The parts --------------------------------------------------------------------------------------------------------------------------
if has ops; then NO_SKIPS=1 run test_cuda_ops "$bin/test_cuda_ops"; fi
if has golden; then
    run 'golden z-image' "$bin/golden_run" --backend cuda tests/golden/z-image
    run 'golden z-image, portable' "$bin/golden_run" --backend cuda --portable tests/golden/z-image
    run 'golden z-image, no graphs' "$bin/golden_run" --backend cuda --no-graphs tests/golden/z-image
    run 'golden z-image, fp8' "$bin/golden_run" --backend cuda --fp8 tests/golden/z-image
fi
if has tests; then
    for program in "$bin"/test_cuda* "$bin"/test_engine*; do
        [ -x "$program" ] && [ "$(basename "$program")" != test_cuda_ops ] && run "$(basename "$program")" "$program"
    done
fi
if has neighbour; then
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
    if [ -z "$nvcc" ] || [ ! -e "$bin/libsumi.a" ]; then
        echo "skip: neighbour: there is no $([ -z "$nvcc" ] && echo 'nvcc on PATH or in /usr/local/cuda/bin' || echo "libsumi.a in $bin")"
        skipped=$((skipped + 1))
    else
        # Shared libraries by file: a bare machine has no -lutf8proc to find. cuBLAS and the runtime are those of this nvcc.
        cuda_lib=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/lib64
        if "$nvcc" -std=c++17 -O2 -gencode=arch=compute_80,code=compute_80 -Iinclude -Itests tests/cuda_neighbour.cu "$bin/libsumi.a" $(printf -- '-Xlinker %s ' "$bin"/lib/libutf8proc.so* "$bin"/lib/libz.so*) \
            -L"$cuda_lib" -lcublas -Xlinker -rpath -Xlinker "$cuda_lib" -lpthread -ldl -lm -o "$log/cuda_neighbour" >"$log/neighbour_build.txt" 2>&1; then
            run cuda_neighbour "$log/cuda_neighbour"
        else
            echo "FAILED neighbour: does not build"
            tail -n 8 "$log/neighbour_build.txt" | sed 's/^/         | /'
            failed=$((failed + 1))
        fi
    fi
fi
if has cublaslt; then
    # Where PyTorch keeps it; otherwise where the loader looks anyway.
    library=$(python3 -c 'import glob, sys
print(next((f for p in sys.path for v in (13, 12) for f in glob.glob(f"{p}/nvidia/*/lib/libcublasLt.so.{v}")), ""))' 2>/dev/null)
    with_library() { local name=$1; shift; run "$name" env LD_LIBRARY_PATH="$LD_LIBRARY_PATH${library:+:$(dirname "$library")}" "$@"; }
    NO_SKIPS=1 with_library 'test_cuda_ops linear, cublaslt' "$bin/test_cuda_ops" --cublaslt linear
    with_library 'golden z-image, cublaslt' "$bin/golden_run" --backend cuda --cublaslt tests/golden/z-image
    with_library 'golden z-image, portable, cublaslt' "$bin/golden_run" --backend cuda --portable --cublaslt tests/golden/z-image
    if [ -x "$bin/tune_cuda_linear" ]; then
        WITHOUT_COUNTS=1 with_library tune_cuda_linear "$bin/tune_cuda_linear" --cublaslt
        cat "$log/tune_cuda_linear.txt"
    fi
fi
if has demo && [ -x "$bin/sumi" ]; then
    for backend in cuda cpu; do
        WITHOUT_COUNTS=1 run "demo $backend" "$bin/sumi" generate --model samples/demo_model --backend $backend --prompt "a yellow moon above a purple cat at night, watercolour" --seed 7 -o "$log/demo_$backend.png"
    done
fi
if has sanitize; then
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [ -z "$sanitizer" ]; then
        echo "skip: sanitize: there is no compute-sanitizer on PATH or in /usr/local/cuda/bin"
        skipped=$((skipped + 1))
    else
        for tool in memcheck racecheck; do sanitize $tool 'small cases' "$bin/test_cuda_ops" --small; done
        for tool in memcheck initcheck racecheck; do sanitize $tool 'tiny model' "$bin/golden_run" --backend cuda tests/golden/z-image; done
        sanitize memcheck 'tiny model, portable' "$bin/golden_run" --backend cuda --portable tests/golden/z-image
    fi
fi
if has bench; then
    WITHOUT_COUNTS=1 run bench "$bin/bench" --synthetic z-image --backend cuda --report --sizes "${BENCH_SIZES:-1024,768,512}" --seconds "${BENCH_SECONDS:-8}"
    cat "$log/bench.txt"
fi
if has start; then
    folder=${START_FOLDER:-}
    if [ -z "$folder" ]; then # 20 GB that are written and read once: memory, if there is so much
        folder=/tmp
        [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt 30000000 ] 2>/dev/null && folder=/dev/shm
    fi
    model=$(mktemp -d "$folder/sumi-start.XXXXXX")
    WITHOUT_COUNTS=1 run 'start: write the checkpoint' "$bin/bench" --write "$model" --synthetic z-image
    for i in 1 2 3; do
        began=$(date +%s%N)
        WITHOUT_COUNTS=1 run "start $i" "$bin/sumi" generate --model "$model" --backend cuda --threads 0 --verbose --prompt "a lighthouse at dusk, ink wash" --steps 8 --size 1024x1024 --seed 7 -o "$log/start.png"
        ended=$(date +%s%N) written=$(stat -c %.9Y "$log/start.png" | tr -d '.,') # the process then gives everything back, which nobody waits for who has the file
        echo "       $(((written - began) / 1000000)) ms from start to PNG, $(((ended - began) / 1000000)) to the end of the process: $(grep -aE '^sumi: (starting|loading|making|encoding|drawing|generating).* s' "$log/start_$i.txt" | sed 's/^sumi: //' | paste -sd ';')"
    done
    rm -rf "$model"
fi
if has torch; then
    WITHOUT_COUNTS=1 run compare_torch python3 samples/bench/compare_torch.py "$bin/bench" --backend cuda --seconds "${BENCH_SECONDS:-8}"
    cat "$log/compare_torch.txt"
fi

echo "logs in $log/"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
