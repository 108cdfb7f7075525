#!/usr/bin/env bash
# Tests on a machine with a GPU that need not be the one that built them: it wants a driver, and for some parts Python with PyTorch or compute-sanitizer; no Premake, no libraries.
#
#   tests/run_gpu.sh --collect FOLDER build/gpu/release/bin copies the programs, and the shared libraries that a bare machine lacks, into FOLDER (where they were built). Premake's --shared-tests links all
#                                                            programs with one library, or each has the kernels in it: premake5 --build=build/gpu --shared-tests gmake && make -C build/gpu config=release
#   tests/run_gpu.sh --sparse [demo | FAMILY]                leaves out of the work tree what no run on a GPU reads, so that it can be carried there: less than 47 MiB. With `demo` the demo models
#                                                            stay and golden data goes but for the tiny checkpoints: less than 54 MiB, for the parts demo and interop.
#                                                            Golden data of Qwen-Image-2.1, for which there is no room beside the others, stays only with FAMILY, a name that folders of tests/golden begin
#                                                            with: other golden data goes then
#   tests/run_gpu.sh --whole                                 puts it back
#   tests/run_gpu.sh FOLDER [PART ..]                        runs parts there, from the repository's root
#
#   ops        test_cuda_ops: every op against the CPU                          (default)
#   golden     golden_run on the GPU, every family, narrow and wide: as it comes, portable, without graphs, fp8, int8 and int4, also portable (default)
#              With ops and golden, tests/check_kernels.sh fails when there is a kernel that neither has reached
#   tests      the programs that tests/list.txt has for a GPU                           (default)
#   cards      test_cuda_ops and golden_run as other cards than the one that is there (tests/pretend_cuda), in every format that the card has: CARDS ("8.0 8.6,28 8.9 12.0")
#   interop    test_cuda_gl, test_cuda_vulkan, the tests of targets in test_cuda_host_context, and samples/vulkan and samples/depth_scene, shared and with --copy; wants libEGL and libvulkan, which come with
#              desktops. With VK_LAYER_PATH the Khronos validation layer watches. The programs of `tests` include the first three
#   neighbour  cuda_neighbour: a host that uses the CUDA runtime and cuBLAS beside sumi; built there, wants nvcc
#   demo       a picture of the demo model by the GPU and by the CPU, edits of it by the demo edit model, whose pictures are compared, and
#              recipes of samples/cookbook on the GPU (default)
#   sanitize   compute-sanitizer: memcheck, initcheck, racecheck and synccheck on the tiny model and small cases; SANITIZE_JOBS (8) programs at a time, SANITIZE_SECONDS (150) for each,
#              SANITIZE_TOTAL (600) for all. What is not done by then is skipped; it counts as failed if something was found
#   many       samples/many_gpus with one engine and with one on every GPU: how many times as many pictures a second, and that they are the same pictures where the GPUs are of one kind. MANY says what is drawn
#              ("--synthetic z-image --size 1024x1024 --steps 8"), MANY_COUNT (32) how often. Skipped where there is one GPU
#   bench      the report at the released sizes; BENCH_SECONDS (8) of sustained work per row, BENCH_SIZES (1024,768,512)
#   start      from the start of the process to the PNG: sumi generate, 8 steps, 1024 x 1024, a checkpoint of the released sizes (20 GB, random) in the page cache; START_FOLDER says where it goes
#   torch      samples/instruments/bench/compare_torch.py on the GPU
#   accuracy   one prediction of a transformer of the released sizes, random weights, against PyTorch in float32: sumi's
#              error, with Hopper's kernels and portable ones, may not be above PyTorch's own in bf16, and with fp8
#              weights no more than a tenth above PyTorch's with fp8 products by rows. Needs PyTorch with safetensors,
#              20 GB for a checkpoint (ACCURACY_FOLDER says where it goes) and as much of the GPU's memory;
#              ACCURACY_SIZE (1024x1024). It takes minutes: PART_SECONDS=600
#   outliers   beside accuracy: the checkpoint has channels that are much larger than the others before products, as trained networks have them
#   quality    a row for each format of weights, those of files as they are stored: a prediction's error, the demo model's pictures against bfloat16's, memory, time
#              (samples/instruments/bench/quality.py). After accuracy in the same run its errors are in the table. Needs PyTorch with safetensors
#   qwen       beside bench, torch or accuracy: of Qwen-Image instead of Z-Image. bench: sizes 1024,1328,2512 and 4 steps,
#              then an edit model with one picture; 58 GB of the GPU's memory. torch: an H200, for both sides hold that.
#              accuracy: a checkpoint of 41 GB, which golden_run reads into memory once more
#   newbie     the same of NewBie-image: 1024, 4 steps, a picture of 28 steps with guidance. bench: as it comes, fp8, then
#              under budgets of 16, 8 and 6 GB (BENCH_BUDGETS). torch: sumi in bf16 and fp8 beside PyTorch compiled and
#              eager, 45 GB of the GPU's memory. With BENCH_SECONDS=2 PART_SECONDS=500 bench and torch take some minutes
#   klein      the same of FLUX.2 [klein]: 4 steps. bench: as it comes, with a picture to refer to, 9B with one that it keeps and that it does not, then under a budget of 6 GB (BENCH_BUDGETS), for which bench chooses int8: what its row "prompt stored" says is
#              streamed belongs to the denoiser or the decoder. torch: sumi in bf16, int8, and int8 with attention in 8 bits. accuracy: without references and with one, a checkpoint of
#              16 GB; and klein-mid, whose layers are narrower
#   qwen21     the same of Qwen-Image-2.1: 40 steps, 64 rows of text. bench: 1024 and 2048, then at 1024 256 rows of text, a picture to refer to, int8, and int8 with attention in 8 bits;
#              32 GB of the GPU's memory. torch: its rows of the table of all families (torch_table.py). accuracy: a checkpoint of 31 GB
#
#   control    beside bench, with or without qwen: control nets instead. Steps without and with each net in turns, in bf16 and int8, at 1024x1024, in jobs of 8 or 4 steps, and how many times longer one takes than its
#              share of the work says; Z-Image Fun 1.0, 2.1 and Lite, or InstantX, Fun and blockwise. 32 or 67 GB of the GPU's memory
#
# LOG=FOLDER keeps what every program printed (/tmp/sumi-gpu). PART_SECONDS=300 bounds each program. JOBS=8 programs of ops,
# golden and tests run beside each other. The last line is "N passed, N failed, N skipped" of all programs.
set -uo pipefail
cd "$(dirname "$0")/.."

# ---- What is carried there --------------------------------------------------------------------------------------------------------------
# Bytes of the tracked files that are in the work tree.
work_tree_bytes() { git ls-files -t -z | sed -nz 's/^H //p' | xargs -0 stat -c %s -- 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }'; }

if [ "${1:-}" = --sparse ]; then
    what_stays=${2:-}
    [ $# -le 2 ] && { [ -z "$what_stays" ] || [ "$what_stays" = demo ] || [ -d "tests/golden/$what_stays" ]; } || { sed -n '6,10p' "$0"; exit 2; }
    git rev-parse --is-inside-work-tree >/dev/null 2>&1 || { echo "run_gpu.sh: this is no work tree of git: --sparse is for the machine where it is"; exit 1; }
    # Golden data without a network, pictures for people, training, plug-ins for other programs.
    left_out=(tests/golden/common/{files,images,numerics,rng,tokenizers} samples/apps/viewer samples/demo_model/contact_sheet.png samples/demo_edit_model/strip.png samples/demo_model/train samples/demo_edit_model/train
        samples/engines packaging docs/strip.png)
    if [ "$what_stays" = demo ]; then left_out+=('tests/golden/controlnet-qwen/*.safetensors' tests/golden/controlnet-qwen/Qwen-Image-ControlNet-Union 'tests/golden/controlnet-wide/*.safetensors' 'tests/golden/*/cases' 'tests/golden/*-wide/model*' 'tests/golden/*-wide/lora' 'tests/golden/*-wide/adapters')
    else left_out+=(samples/demo_model samples/demo_edit_model); fi
    for data in tests/golden/*/; do # all but its README
        data=$(basename "$data")
        case $what_stays,$data in
            *,common) ;;
            ,qwen-image-21* | demo,qwen-image-21*) left_out+=("tests/golden/$data/*/") ;;
            ,* | demo,* | "${what_stays:-none},${what_stays:-none}"*) ;;
            *) left_out+=("tests/golden/$data/*/") ;;
        esac
    done
    changed=$(git status --porcelain --untracked-files=all -- "${left_out[@]}")
    if [ -n "$changed" ]; then
        echo "run_gpu.sh: these files would be taken out of the work tree, and have changes that are not committed. Commit them or put them aside, then try again:"
        echo "$changed"
        exit 1
    fi
    git sparse-checkout set --no-cone '/*' "${left_out[@]/#/!/}" || exit 1
    work_tree_bytes | awk '{ printf "the work tree has %.1f MiB of files now; tests/run_gpu.sh --whole puts the others back\n", $1 / 1048576 }'
    exit 0
fi
if [ "${1:-}" = --whole ]; then
    git sparse-checkout disable || exit 1
    work_tree_bytes | awk '{ printf "the work tree is whole: %.1f MiB of files\n", $1 / 1048576 }'
    exit 0
fi

# What tests/list.txt has for a GPU.
rows=$(tests/list.sh gpu gpu-alone) || exit 1
programs_beside_others=$(sed -n 's/^gpu \(test_[^ ]*\)\.c.*/\1/p' <<<"$rows")
programs_alone=$(sed -n 's/^gpu-alone \(test_[^ ]*\)\.c.*/\1/p' <<<"$rows")
golden_data=() golden_missing=() # a sparse work tree may be without their cases
while read -r data; do
    if [ -n "$(find "tests/golden/$data/cases" -name '*.json' -print -quit 2>/dev/null)" ]; then golden_data+=("$data"); else golden_missing+=("$data"); fi
done < <(sed -n 's,^gpu golden/\([^ ]*\).*,\1,p' <<<"$rows")

# ---- Collecting -------------------------------------------------------------------------------------------------------------------------
if [ "${1:-}" = --collect ]; then
    [ $# -eq 3 ] && [ -d "$3" ] || { sed -n '4,5p' "$0"; exit 2; }
    mkdir -p "$2/lib"
    for program in test_cuda_ops test_demo test_demo_edit golden_run tune_cuda_linear tune_cuda_calls bench pacing sumi cookbook many_gpus $programs_beside_others $programs_alone; do
        program=$3/$program
        [ -x "$program" ] || { echo "not built: $program"; missing=1; continue; }
        cp -f "$program" "$2/"
        # The C library and the loader are the machine's own; the driver is opened at run time.
        ldd "$program" | awk '$3 ~ /^\// { print $3 }' | grep -vE '/(libcuda|libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | while read -r library; do cp -fL "$library" "$2/lib/"; done
    done
    for program in vulkan depth_scene; do [ ! -x "$3/$program" ] || cp -f "$3/$program" "$2/"; done # built where their headers are
    # What makes the driver say that its device is another card, for `cards` and --as.
    if [ -e "$3/../pretend/libcuda.so.1" ]; then mkdir -p "$2/pretend" && cp -fL "$3/../pretend/libcuda.so.1" "$2/pretend/"; else echo "not built: pretend_cuda"; missing=1; fi
    # To link against: the library, where it is not a shared one in lib/.
    [ ! -e "$3/../lib/libsumi.a" ] || cp -f "$3/../lib/libsumi.a" "$2/"
    find "$2" -type f \( -name '*.so*' -o -perm -u=x \) -exec strip -s {} +
    kilobytes=$(du -sk --apparent-size "$2" | cut -f 1)
    echo "collected $kilobytes kB in $2"
    [ "$kilobytes" -le $((20 * 1024)) ] || echo "This is more than the 20 MiB that --collect is for. Programs that share one library are small: build them with Premake's --shared-tests, in a folder of their own"
    exit "${missing:-0}"
fi

bin=${1:-}
[ -n "$bin" ] && [ -d "$bin" ] || { sed -n '2,49p' "$0"; exit 2; }
bin=$(cd "$bin" && pwd)
shift
parts=${*:-ops golden tests demo}
for part in $parts; do
    case $part in
        ops | golden | tests | cards | interop | neighbour | demo | sanitize | many | bench | start | torch | accuracy | outliers | quality | qwen | newbie | klein | qwen21 | control) ;;
        *) echo "run_gpu.sh: there is no part called $part"; exit 2 ;;
    esac
done
log=${LOG:-/tmp/sumi-gpu}
seconds=${PART_SECONDS:-300}
mkdir -p "$log"
export LD_LIBRARY_PATH=$bin/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
passed=0 failed=0 skipped=0
has() { [[ " $parts " == *" $1 "* ]]; }

# ---- Counting ---------------------------------------------------------------------------------------------------------------------------
# Believes both the counts and the exit code, as tests/run.sh does: a crash, a time-out or missing counts are a failure. With NO_SKIPS a skip is a failure, too: it means that the GPU was not found.
# Programs of one part run beside each other, as many as JOBS says, and are reported in the order that they were started in, each as soon as it and those before it have ended.
output_of() { echo "$log/${1//[ \/]/_}.txt"; }
skip_missing_golden() {
    [ ${#golden_missing[@]} -gt 0 ] || return 0
    echo "skip: golden data of ${golden_missing[*]}: it is not in this work tree (--sparse demo leaves it out, and --sparse that of Qwen-Image-2.1; --sparse ${golden_missing[0]} keeps it)"
    skipped=$((skipped + ${#golden_missing[@]}))
}
started=()
report_ended() { # those at the head of `started` that have ended, so that a run which is stopped early has said what it knows
    while [ ${#started[@]} -gt 0 ] && [ -s "$(output_of "${started[0]:2}").status" ]; do
        report "${started[0]:2}" "${started[0]:0:1}" "${started[0]:1:1}"
        started=("${started[@]:1}")
    done
}
start() { # name command..
    local name=$1 output; shift
    output=$(output_of "$name")
    rm -f "$output" "$output.status"
    started+=("${NO_SKIPS:-0}${WITHOUT_COUNTS:-0}$name")
    { local began=$SECONDS status
      timeout -k 10 "$seconds" "$@" >"$output" 2>&1
      status=$?
      echo "$status $((SECONDS - began))" >"$output.status"; } &
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-8}" ]; do wait -n; done
    report_ended
}
finish() {
    wait
    report_ended
}
run() { start "$@"; finish; }
report() { # name, whether a skip is a failure, whether there may be no counts
    local name=$1 no_skips=$2 without_counts=$3 output counts status took p=0 f=0 s=0 mark=ok
    output=$(output_of "$name")
    read -r status took <"$output.status"
    counts=$(grep -aE '(^|: )[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped( \(.*\))?$' "$output" | tail -n 1 | grep -oE '[0-9]+ (passed|failed|skipped)')
    if [ -n "$counts" ]; then
        p=$(sed -n 's/ passed//p' <<<"$counts") f=$(sed -n 's/ failed//p' <<<"$counts") s=$(sed -n 's/ skipped//p' <<<"$counts")
        [ $status -eq 0 ] || [ "$f" -gt 0 ] || f=1
    elif [ $status -eq 0 ] && [ "$without_counts" = 1 ]; then p=1
    else f=1; fi
    [ $((p + f + s)) -gt 0 ] || f=1 # nothing was checked
    [ "$no_skips" = 0 ] || [ "$s" -eq 0 ] || f=$((f + 1))
    [ "$f" -eq 0 ] || mark=FAILED
    printf '%-6s %-40s %s passed, %s failed, %s skipped  (%s s, exit code %s)\n' "$mark" "$name" "$p" "$f" "$s" "$took" "$status"
    [ "$f" -eq 0 ] || grep -aE '^ *FAILED|^  .*: output|:[0-9]+: |OVER|is off by|other bits|ERROR|error:|^skip: ' "$output" | head -n 25 | sed 's/^/         /'
    if [ "$f" -gt 0 ] && [ "$p" -eq 0 ]; then tail -n 5 "$output" | sed 's/^/         | /'; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# ---- compute-sanitizer --------------------------------------------------------------------------------------------------------------------
# Most of a tool's time is one CPU's, so that many run beside each other. The tool must have said that it found nothing, in a program that ended well and ran something.
sanitize() { # tool name command..
    local tool=$1 name=$2 left=$((sanitize_until - SECONDS)) began=$SECONDS output; shift 2
    sanitized+=("$tool $name")
    output=$log/sanitize_${tool}_${name//[ ,\/]/_}
    rm -f "$output.txt" "$output.status"
    [ $left -ge 10 ] || return
    [ $left -le "$sanitize_seconds" ] || left=$sanitize_seconds
    local more=()
    [ "$tool" != memcheck ] || more=(--leak-check full)
    # Hopper's products copy the scales of their rows in quads (gemm.h), with up to three beyond the last row's, which nothing has written and no sum uses.
    [ "$tool $name" != 'initcheck small cases, balanced' ] || more=(--kernel-regex-exclude kns=sumi_gemm_int8_plain)
    { timeout -k 5 $((left - 5)) "$sanitizer" --tool "$tool" --print-limit 50 "${more[@]}" "$@" >"$output.txt" 2>&1
      echo "$? $((SECONDS - began))" >"$output.status"; } &
    while [ "$(jobs -rp | wc -l)" -ge "${SANITIZE_JOBS:-8}" ]; do wait -n; done
}

report_sanitized() { # tool name
    local output=$log/sanitize_$1_${2//[ ,\/]/_} status took summary found answers mark=ok
    read -r status took 2>/dev/null <"$output.status" || status='not begun' took=0
    summary=$(grep -aoE '(ERROR|RACECHECK) SUMMARY: .*' "$output.txt" 2>/dev/null | tail -n 1)
    # A system without LUIDs says so by an error, which is the answer to the question.
    answers=$(grep -acE '^========= Program hit CUDA_ERROR_NOT_SUPPORTED .* to cuDeviceGetLuid' "$output.txt" 2>/dev/null)
    found=$(grep -aE '^=========     at |Race reported|^========= (Leaked|Program hit)' "$output.txt" 2>/dev/null | grep -avc ' to cuDeviceGetLuid')
    [[ "$summary" =~ SUMMARY:\ ([0-9]+)\ error ]] && [ "${BASH_REMATCH[1]}" -eq "${answers:-0}" ] && summary='ERROR SUMMARY: 0 errors'
    if [[ "$summary" =~ SUMMARY:\ 0\ (errors|hazards) ]] && [ "$status" = 0 ] && ! grep -aqE '(^|: )0 passed' "$output.txt"; then passed=$((passed + 1))
    elif [ "${found:-0}" -eq 0 ] && [[ "$status" =~ ^(124|137|not begun)$ ]]; then mark=skip skipped=$((skipped + 1)) summary="unfinished: time is up, nothing found"
    else mark=FAILED failed=$((failed + 1)); fi
    printf '%-6s %-10s %-34s %s (%s s, exit code %s)\n' $mark "$1" "$2" "${summary:-no summary}" "$took" "$status"
    [ $mark = FAILED ] || return
    # The kinds of errors and where they are, not their addresses.
    grep -aE '^========= +(Invalid|Uninit|Error|Warning|Leaked|Program hit|Barrier|Divergent|Host API|Internal|at )' "$output.txt" \
        | sed -E 's/^=+ +//; s/0x[0-9a-f]+/x/g; s/[0-9]+ (bytes|hazards)/n \1/' | sort | uniq -c | sort -rn | head -n 12 | cut -c1-220 | sed 's/^/         | /'
    [ "${found:-0}" -gt 0 ] || tail -n 4 "$output.txt" | cut -c1-220 | sed 's/^/         | /'
}

# Where 20 GB go that are written and read once: the folder that was named, or memory, if there is so much.
roomy_folder() { # folder or nothing
    if [ -n "$1" ]; then echo "$1"
    elif [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt $([ "$synthetic" = qwen-image ] && echo 70000000 || echo 30000000) ] 2>/dev/null; then echo /dev/shm
    else echo /tmp; fi
}

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# ---- The parts --------------------------------------------------------------------------------------------------------------------------
kernel_lists=()
list_run() { # as run, of a program that lists kernels
    kernel_lists+=("$(output_of "$1")")
    start "$@" --list-kernels
}
if has ops; then # by kinds, which takes as long as the longest of them
    for kind in $("$bin/test_cuda_ops" --list | grep -E '^[a-z0-9_]+$'); do
        kernel_lists+=("$(output_of "test_cuda_ops $kind")")
        NO_SKIPS=1 start "test_cuda_ops $kind" "$bin/test_cuda_ops" --list-kernels "$kind"
    done
fi
if has golden; then
    for data in "${golden_data[@]}"; do
        list_run "golden $data" "$bin/golden_run" --backend cuda tests/golden/$data
        list_run "golden $data, portable" "$bin/golden_run" --backend cuda --portable tests/golden/$data
        list_run "golden $data, no graphs" "$bin/golden_run" --backend cuda --no-graphs tests/golden/$data
        list_run "golden $data, fp8" "$bin/golden_run" --backend cuda --fp8 tests/golden/$data
        list_run "golden $data, fp8, portable" "$bin/golden_run" --backend cuda --fp8 --portable tests/golden/$data
        list_run "golden $data, int8" "$bin/golden_run" --backend cuda --int8 tests/golden/$data
        list_run "golden $data, int8, portable" "$bin/golden_run" --backend cuda --int8 --portable tests/golden/$data
        list_run "golden $data, int8, text" "$bin/golden_run" --backend cuda --int8 --text tests/golden/$data
        list_run "golden $data, 8-bit attention" "$bin/golden_run" --backend cuda --8bit-attention tests/golden/$data
        list_run "golden $data, int8, 8-bit attention" "$bin/golden_run" --backend cuda --int8 --8bit-attention tests/golden/$data
        list_run "golden $data, int4" "$bin/golden_run" --backend cuda --int4 tests/golden/$data
        list_run "golden $data, int4, portable" "$bin/golden_run" --backend cuda --int4 --portable tests/golden/$data
    done
    finish
    skip_missing_golden
    if has ops && [ ${#golden_missing[@]} -eq 0 ]; then run kernels tests/check_kernels.sh "${kernel_lists[@]}"; fi
fi
finish
if has tests; then
    # What reads the checkpoint of Qwen-Image-2.1, which a sparse work tree may be without.
    start_or_skip() { # start or run, program
        local without=()
        if [ ! -e tests/golden/qwen-image-21/model/model_index.json ]; then
            case $2 in
                test_engine_qwen_21 | test_engine_alpha) echo "skip: $2: the checkpoint of Qwen-Image-2.1 is not in this work tree (--sparse qwen-image-21 keeps it)"; skipped=$((skipped + 1)); return ;;
                test_cuda_not_finite) without=(-qwen-image-2.1) ;;
                test_cuda_host_context) without=(-so_have_those_with_alpha) ;;
            esac
        fi
        "$1" "$2" "$bin/$2" "${without[@]}"
    }
    for program in $programs_beside_others; do start_or_skip start "$program"; done
    finish
    for program in $programs_alone; do start_or_skip run "$program"; done
fi
if has cards; then
    for card in ${CARDS:-8.0 8.6,28 8.9 12.0}; do
        for kind in $("$bin/test_cuda_ops" --list | grep -E '^[a-z0-9_]+$'); do NO_SKIPS=1 start "test_cuda_ops $kind, as $card" "$bin/test_cuda_ops" --as "$card" "$kind"; done
        formats=("" --int8 --int4 --8bit-attention "--int8 --8bit-attention")
        case $card in 8.0* | 8.6* | 8.7*) ;; *) formats+=(--fp8) ;; esac
        for data in "${golden_data[@]}"; do
            for format in "${formats[@]}"; do start "golden $data${format:+, ${format//--/}}, as $card" "$bin/golden_run" --backend cuda --as "$card" $format "tests/golden/$data"; done
        done
    done
    finish
    skip_missing_golden
fi
if has interop; then
    for program in test_cuda_gl test_cuda_vulkan; do run "interop $program" "$bin/$program"; done
    run "interop test_cuda_host_context" "$bin/test_cuda_host_context" images
    if [ ! -e samples/demo_model/model_index.json ]; then
        echo "skip: samples/vulkan: the demo models are not in this work tree (--sparse demo keeps them)"
        skipped=$((skipped + 1))
    elif [ -x "$bin/vulkan" ]; then
        for how in shared --copy; do
            WITHOUT_COUNTS=1 run "samples/vulkan $how" "$bin/vulkan" samples/demo_model "a red house on the grass" "$log/vulkan_$how.png" $([ $how = shared ] || echo $how)
            sed 's/^/       /' "$(output_of "samples/vulkan $how")"
        done
    else
        echo "skip: samples/vulkan: not in $bin"
        skipped=$((skipped + 1))
    fi
    if [ -x "$bin/depth_scene" ] && [ -e tests/golden/controlnet ]; then
        for how in shared --copy; do
            WITHOUT_COUNTS=1 run "samples/depth_scene $how" "$bin/depth_scene" tests/golden/z-image/model --control tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors \
                --prompt "a red house on the grass" --size 64x64 --headless --frames 20 --out "$log/depth_scene_$how.png" --seen "$log/depth_scene_seen_$how.png" $([ $how = shared ] || echo $how)
            sed 's/^/       /' "$(output_of "samples/depth_scene $how")"
        done
        WITHOUT_COUNTS=1 run "samples/depth_scene shares textures" grep -e '^skipped: ' -e 'stay on the GPU' "$(output_of "samples/depth_scene shared")"
    else
        echo "skip: samples/depth_scene: not in $bin, or the golden data is not in this work tree"
        skipped=$((skipped + 1))
    fi
fi
if has neighbour; then
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
    library=$(ls "$bin"/libsumi.a "$bin"/lib/libsumi.so 2>/dev/null | head -n 1)
    if [ -z "$nvcc" ] || [ -z "$library" ]; then
        echo "skip: neighbour: there is no $([ -z "$nvcc" ] && echo 'nvcc on PATH or in /usr/local/cuda/bin' || echo "libsumi.a or lib/libsumi.so in $bin")"
        skipped=$((skipped + 1))
    else
        # Shared libraries by file: a bare machine has no -lutf8proc to find. cuBLAS and the runtime are those of this nvcc.
        cuda_lib=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/lib64
        if "$nvcc" -std=c++17 -O2 -gencode=arch=compute_80,code=compute_80 -Iinclude -Itests tests/cuda_neighbour.cu "$library" $(printf -- '-Xlinker %s ' "$bin"/lib/libutf8proc.so* "$bin"/lib/libz.so*) \
            -L"$cuda_lib" -lcublas -Xlinker -rpath -Xlinker "$cuda_lib" -lpthread -ldl -lm -o "$log/cuda_neighbour" >"$log/neighbour_build.txt" 2>&1; then
            run cuda_neighbour "$log/cuda_neighbour"
        else
            echo "FAILED neighbour: does not build"
            tail -n 8 "$log/neighbour_build.txt" | sed 's/^/         | /'
            failed=$((failed + 1))
        fi
    fi
fi
if has demo && [ ! -e samples/demo_edit_model/model_index.json ]; then
    echo "skip: demo: the demo models are not in this work tree: tests/run_gpu.sh --sparse demo, before it is carried here, keeps them"
    skipped=$((skipped + 1))
elif has demo; then
    for backend in cuda cpu; do
        WITHOUT_COUNTS=1 run "demo $backend" "$bin/sumi" generate --model samples/demo_model --backend $backend --prompt "a yellow moon above a purple cat at night, watercolour" --seed 7 -o "$log/demo_$backend.png"
    done
    demo_edit=("$bin/sumi" generate --model samples/demo_edit_model --reference "$log/demo_cpu.png" --prompt "make the moon red" --seed 7)
    for backend in cuda cpu; do
        WITHOUT_COUNTS=1 run "demo edit $backend" "${demo_edit[@]}" --backend $backend -o "$log/demo_edit_$backend.png"
        WITHOUT_COUNTS=1 run "demo edit fast $backend" "${demo_edit[@]}" --backend $backend --preset fast --lora samples/demo_edit_model/lora/turbo.safetensors -o "$log/demo_edit_fast_$backend.png"
    done
    NO_SKIPS=1 run "test_demo_edit" "$bin/test_demo_edit" a_gpu_draws_what_the_cpu_draws
    grep -a ' dB from ' "$(output_of test_demo_edit)" | sed 's/^/       /'
    for recipe in "image_to_image $log/demo_cuda.png" "inpainting $log/demo_cuda.png $log/demo_cpu.png" "lora samples/demo_model/lora/blueprint.safetensors" xml_prompt device_memory memory_budget deadline; do
        read -r name files <<<"$recipe"
        WITHOUT_COUNTS=1 run "cookbook $name" "$bin/cookbook" "$name" samples/demo_model "a red house on the grass" "$log/cookbook_$name.png" $files
    done
fi
if has sanitize; then
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [ -z "$sanitizer" ]; then
        echo "skip: sanitize: there is no compute-sanitizer on PATH or in /usr/local/cuda/bin"
        skipped=$((skipped + 1))
    else
        sanitize_seconds=${SANITIZE_SECONDS:-150} sanitize_until=$((SECONDS + ${SANITIZE_TOTAL:-600}))
        sanitized=()
        golden=tests/golden/z-image
        # The slow tools get the cases that have every network once.
        few=$log/golden-few
        mkdir -p "$few/cases"
        for part in model lora; do ln -sfn "$PWD/$golden/$part" "$few/$part"; done
        for file in "$golden"/cases/{dit_wide_pad,lora_peft,text_encoder,turbo_t2i,vae_decode,vae_encode}.* "$golden"/cases/{vae_encode_input.png,dit_cap32.safetensors}; do
            ln -sfn "$PWD/$file" "$few/cases/"
        done
        few_of() { # name of a family, its folder, what all cases read, cases
            local name=$1 folder=$PWD/tests/golden/$2 part
            [ -n "$(find "$folder/cases" -name '*.json' -print -quit 2>/dev/null)" ] || { echo "skip: sanitize, $name: its golden data is not in this work tree"; skipped=$((skipped + 1)); return; }
            families+=("$name")
            mkdir -p "$few-$name/cases"
            for part in $3; do ln -sfn "$folder/$part" "$few-$name/"; done
            for part in $4; do ln -sfn "$folder/cases/$part".* "$few-$name/cases/"; done
        }
        families=()
        few_of qwen qwen-image "model model-edit model-edit-2509 model-edit-2511 lora scheduler_lightning.json" "dit-edit2 dit-square lora-formats pipe-edit text-t2i vae-decode vae-encode vision"
        few_of newbie newbie "model adapters" "dit_batch_padded enc_gemma enc_jina lokr_low op_attention pipe_euler text_short"
        few_of klein flux2-klein model "dit_refs2 kv_forward vae_decode vae_encode"
        few_of qwen21 qwen-image-21 model "dit-edit2 dit-odd pipe-edit1 vae-decode vae-encode vision"
        picture=("$bin/sumi" generate --model "$golden/model" --backend cuda --quiet --prompt "a red fox" --size 64x48 --steps 2)
        edit=("${picture[@]}" --negative grey --guidance 2 --image "$golden/cases/vae_encode_input.png" --strength 0.9 --solver heun --batch 2)
        # The short ones first: where there is time for a part only, it is most of the programs.
        for tool in racecheck memcheck synccheck initcheck; do
            for kind in attention linear gated fp8 int8 balanced norms conv rotary moving_rows latents strips group_norm pictures; do sanitize $tool "small cases, $kind" "$bin/test_cuda_ops" --small $kind; done
        done
        # initcheck does not see what Hopper's kernels write by bulk copies, and reports their readers: the portable ones, and test_cuda_host.memory_may_hold_anything_before for those.
        sanitize initcheck 'golden, portable' "$bin/golden_run" --backend cuda --portable "$golden"
        sanitize initcheck 'golden, portable, fp8' "$bin/golden_run" --backend cuda --portable --fp8 --as-engine "$few" # op by op it reads e4m3 values in the room of bfloat16
        sanitize memcheck 'golden' "$bin/golden_run" --backend cuda "$golden"
        sanitize memcheck 'golden, portable' "$bin/golden_run" --backend cuda --portable "$golden"
        sanitize memcheck 'golden, wide' "$bin/golden_run" --backend cuda "$golden-wide"
        sanitize memcheck 'golden, wide, fp8' "$bin/golden_run" --backend cuda --fp8 "$golden-wide"
        sanitize memcheck 'golden, wide, int8' "$bin/golden_run" --backend cuda --int8 "$golden-wide"
        sanitize initcheck 'golden, portable, int8' "$bin/golden_run" --backend cuda --portable --int8 --as-engine "$few"
        for tool in memcheck racecheck synccheck; do
            sanitize $tool 'a picture' "${picture[@]}" -o "$log/sanitize_$tool.png"
            sanitize $tool 'two edited pictures' "${edit[@]}" -o "$log/sanitize_edit_$tool.png"
            sanitize $tool 'golden, few, fp8' "$bin/golden_run" --backend cuda --fp8 "$few"
        done
        for tool in memcheck racecheck synccheck; do
            for family in "${families[@]}"; do sanitize $tool "golden, few of $family" "$bin/golden_run" --backend cuda "$few-$family"; done
        done
        for family in "${families[@]}"; do
            sanitize initcheck "golden, few of $family, portable" "$bin/golden_run" --backend cuda --portable "$few-$family"
            sanitize memcheck "golden, few of $family, portable" "$bin/golden_run" --backend cuda --portable "$few-$family"
        done
        for tool in racecheck synccheck; do
            sanitize $tool 'golden, few' "$bin/golden_run" --backend cuda "$few"
            sanitize $tool 'golden, few, portable' "$bin/golden_run" --backend cuda --portable "$few"
        done
        wait
        for name in "${sanitized[@]}"; do report_sanitized "${name%% *}" "${name#* }"; done
    fi
fi
if has many; then
    many() { "$bin/many_gpus" --backend cuda "$@"; }
    pictures=$(mktemp -d)
    gpus=$(many --synthetic tiny --size 64x64 --out "$pictures/tiny" 2>"$log/many_look.txt" | grep -o 'by engine' | wc -l)
    if [ "$gpus" -lt 2 ]; then
        echo "skip: many: there is $([ "$gpus" -eq 1 ] && echo 'one GPU, and two are wanted' || echo "no GPU that sumi can use: $(tail -n 1 "$log/many_look.txt")")"
        skipped=$((skipped + 1))
    else
        read -r -a drawn <<<"${MANY:---synthetic z-image --size 1024x1024 --steps 8}"
        for engines in 1 "$gpus"; do
            WITHOUT_COUNTS=1 run "many $engines" "$bin/many_gpus" --backend cuda "${drawn[@]}" --count "${MANY_COUNT:-32}" --warm-up --engines "$engines" --out "$pictures/$engines"
            sed 's/^/       /' "$(output_of "many $engines")"
        done
        rate() { sed -n 's/.* pictures in .* s, \([0-9.]*\) a second: .*/\1/p' "$(output_of "many $1")"; }
        awk -v one="$(rate 1)" -v all="$(rate "$gpus")" -v gpus="$gpus" 'BEGIN { if (one > 0) printf "       %.3f times as many pictures a second with %d engines as with one\n", all / one, gpus }'
        kinds=$(grep -o 'by engine [0-9]* ([^)]*)' "$(output_of "many $gpus")" | sed 's/.*(//' | sort -u | wc -l)
        if [ "$kinds" -eq 1 ]; then WITHOUT_COUNTS=1 run "many: the same pictures" diff -rq "$pictures/1" "$pictures/$gpus"
        else echo "skip: many: the same pictures: the GPUs are of $kinds kinds"; skipped=$((skipped + 1)); fi
    fi
    rm -rf "$pictures"
fi
# Of the family that bench, torch and accuracy are about.
synthetic=z-image sizes=1024,768,512 steps=8
if has qwen; then synthetic=qwen-image sizes=1024,1328,2512 steps=4; fi
if has newbie; then synthetic=newbie sizes=1024 steps=4; fi
if has klein; then synthetic=klein sizes=1024,768,512 steps=4; fi
if has qwen21; then synthetic=qwen-image-21 sizes=1024,2048 steps=40; fi
if has bench && has newbie; then
    bench_newbie() { # name, options of bench
        local name=$1; shift
        WITHOUT_COUNTS=1 run "$name" "$bin/bench" --synthetic newbie --backend cuda --report --short --sizes "${BENCH_SIZES:-$sizes}" --steps $steps --guided-steps 28 --tokens 256 --batch 1 --seconds "${BENCH_SECONDS:-8}" "$@"
        cat "$log/${name// /_}.txt"
    }
    bench_newbie bench
    bench_newbie 'bench fp8' --weights fp8
    for budget in ${BENCH_BUDGETS:-16000 8000 6000}; do bench_newbie "bench $budget MB" --weights bf16 --memory-budget "$budget"; done
elif has bench && has qwen21; then
    bench_qwen21() { # name, options of bench
        local name=$1; shift
        WITHOUT_COUNTS=1 run "$name" "$bin/bench" --synthetic qwen-image-21 --backend cuda --report --short --steps $steps --batch 1 --seconds "${BENCH_SECONDS:-8}" "$@"
        cat "$log/${name// /_}.txt"
    }
    bench_qwen21 bench --sizes "${BENCH_SIZES:-$sizes}" --tokens 64
    bench_qwen21 'bench 256 rows' --sizes 1024 --tokens 256
    bench_qwen21 'bench reference' --sizes 1024 --tokens 64 --references 1
    bench_qwen21 'bench int8' --sizes "${BENCH_SIZES:-$sizes}" --tokens 64 --weights int8
    bench_qwen21 'bench int8 8bit' --sizes "${BENCH_SIZES:-$sizes}" --tokens 64 --weights int8 --attention 8bit
elif has bench && has control; then
    nets=z-fun-1.0,z-fun-2.1,z-fun-2.1-lite control_steps=8
    if has qwen; then nets=qwen-instantx,qwen-fun,qwen-blockwise control_steps=4; fi
    for weights in bf16 int8; do
        WITHOUT_COUNTS=1 run "bench control $weights" "$bin/bench" --synthetic $synthetic --control $nets --weights $weights --without-text-encoder --backend cuda --report --short --sizes "${BENCH_SIZES:-1024}" --steps $control_steps --batch 1 --seconds "${BENCH_SECONDS:-8}"
        cat "$log/bench_control_$weights.txt"
    done
elif has bench; then
    WITHOUT_COUNTS=1 run bench "$bin/bench" --synthetic $synthetic --backend cuda --report --sizes "${BENCH_SIZES:-$sizes}" --steps $steps --seconds "${BENCH_SECONDS:-8}"
    cat "$log/bench.txt"
    if has qwen; then
        WITHOUT_COUNTS=1 run 'bench edit' "$bin/bench" --synthetic $synthetic --references 1 --backend cuda --report --sizes 1024 --steps $steps --batch 1 --seconds "${BENCH_SECONDS:-8}"
        cat "$log/bench_edit.txt"
    fi
    if has klein; then
        bench_klein() { # name, options of bench
            local name=$1; shift
            WITHOUT_COUNTS=1 run "$name" "$bin/bench" --synthetic klein --backend cuda --report --short --sizes 1024 --steps $steps --batch 1 --seconds "${BENCH_SECONDS:-8}" "$@"
            cat "$log/${name// /_}.txt"
        }
        bench_klein 'bench reference' --references 1
        for kind in 9b 9b-kv; do bench_klein "bench $kind reference" --synthetic klein-$kind --references 1 --without-text-encoder; done
        for budget in ${BENCH_BUDGETS:-6000}; do bench_klein "bench $budget MB" --memory-budget "$budget"; done
    fi
fi
if has start; then
    model=$(mktemp -d "$(roomy_folder "${START_FOLDER:-}")/sumi-start.XXXXXX")
    failed_before=$failed
    WITHOUT_COUNTS=1 run 'start: write the checkpoint' "$bin/bench" --write "$model" --synthetic z-image
    for i in $([ $failed -gt $failed_before ] || echo 1 2 3); do # half a checkpoint says nothing
        began=$(date +%s%N)
        WITHOUT_COUNTS=1 run "start $i" "$bin/sumi" generate --model "$model" --backend cuda --threads 0 --verbose --prompt "a lighthouse at dusk, ink wash" --steps 8 --size 1024x1024 --seed 7 -o "$log/start.png"
        ended=$(date +%s%N) written=$(stat -c %.9Y "$log/start.png" | tr -d '.,') # the process then gives everything back, which nobody waits for who has the file
        echo "       $(((written - began) / 1000000)) ms from start to PNG, $(((ended - began) / 1000000)) to the end of the process: $(grep -aE '^sumi: (starting|loading|making|encoding|drawing|generating).* s' "$log/start_$i.txt" | sed 's/^sumi: //' | paste -sd ';')"
    done
    rm -rf "$model"
fi
if has torch; then
    torch_options=(--steps $steps)
    if has newbie; then torch_options=(--steps 28 --tokens 256); fi
    if has qwen21; then torch_options=(--table --families qwen-image-21); fi
    WITHOUT_COUNTS=1 run compare_torch python3 samples/instruments/bench/compare_torch.py "$bin/bench" --synthetic $synthetic --backend cuda --sizes "${BENCH_SIZES:-${sizes%,2512}}" "${torch_options[@]}" --seconds "${BENCH_SECONDS:-8}"
    cat "$log/compare_torch.txt"
fi

if has accuracy; then
    accuracy() { # name, options of compare_torch
        local name=$1; shift
        run "$name" python3 samples/instruments/bench/compare_torch.py "$bin/bench" --accuracy "$bin/golden_run" \
            --synthetic $synthetic --backend cuda --size "${ACCURACY_SIZE:-1024x1024}" "$@" --folder "$(roomy_folder "${ACCURACY_FOLDER:-}")"
        cat "$log/${name// /_}.txt"
    }
    accuracy 'accuracy at full size' $(has outliers && echo --outliers)
    if has klein; then
        accuracy 'accuracy with a reference' --references 1
        accuracy 'accuracy of klein-mid' --synthetic klein-mid --size 256x256 --references 1 # in every format, some seconds
    fi
fi

if has quality; then
    WITHOUT_COUNTS=1 run quality python3 samples/instruments/bench/quality.py "$bin" --backend cuda $(has outliers && echo --outliers) $(has accuracy && echo --accuracy-log "$log/accuracy_at_full_size.txt")
    cat "$log/quality.txt"
fi

echo "logs in $log/"
if [ $((passed + failed + skipped)) -eq 0 ]; then
    echo "FAILED: nothing was run"
    failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
