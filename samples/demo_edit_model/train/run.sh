#!/bin/bash
# Trains the demo edit model in calls of bounded time; the state stays in $WORK between them.
#
#     run.sh trial SECONDS        every stage for so long; a table of seconds per step
#     run.sh train SECONDS        goes on for at most so long; after the last stage it exports, judges, packs into $OUT
#     run.sh finish               exports, judges and packs what there is
#
# CUDA_VISIBLE_DEVICES chooses the GPUs, GPUS is how many of them work together (1). STEPS, STEPS_VAE, STEPS_TURBO, JUDGE and MORE (further options) override what edit_train.py has.
# Several GPUs cannot be interrupted in the middle of a stage: give them SECONDS for all of it.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mode=${1:-trial}
seconds=${2:-60}
WORK=${WORK:-/tmp/demo_edit_work}
OUT=${OUT:-$here/out}
export DEMO_READER=$here/reader
export PYTHONPATH=$here/demo_edit_model/train:$here/demo_model/train
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
mkdir -p "$WORK" "$OUT"
train=$here/demo_edit_model/train/edit_train.py
python=(python3)
[ "${GPUS:-1}" -eq 1 ] || python=(python3 -m torch.distributed.run --standalone --nproc-per-node "$GPUS")
export NCCL_NVLS_ENABLE=0 # the memory of switches is not to be had everywhere
options="${STEPS:+--steps $STEPS} ${STEPS_VAE:+--steps-vae $STEPS_VAE} ${STEPS_TURBO:+--steps-turbo $STEPS_TURBO} ${MORE:-}"
[ -f "$here/snapshot.pt" ] && options="$options --restore $here/snapshot.pt"

pack() {
    cp "$WORK"/sheet*.png "$WORK/judgement.md" "$OUT/" 2>/dev/null
    [ -d "$WORK/model" ] && tar -C "$WORK" -czf "$OUT/model.tar.gz" model
    ls -l "$OUT"
}

case $mode in
trial)
    rm -rf "$WORK/trial"
    # a stage counts itself as done after its seconds; the limit is for what lies between
    "${python[@]}" "$train" --work "$WORK/trial" --export "$WORK/trial/model" --trial "$seconds" --judge 2 --pool 4096 --scenes 3000 --pairs 5000 --pairs-two 2500 --until-seconds 560 ${MORE:-} 2>&1 | tee "$OUT/trial.log" | tail -80
    cp "$WORK"/trial/sheet*.png "$OUT/" 2>/dev/null
    nvidia-smi --query-gpu=name,memory.total --format=csv,noheader
    ;;
train | finish)
    limit=$seconds
    [ "$mode" = finish ] && limit=0 && options="$options --finish"
    "${python[@]}" "$train" --work "$WORK" --export "$WORK/model" --judge "${JUDGE:-24}" --until-seconds "$limit" $options >>"$WORK/train.log" 2>&1
    status=$?
    grep -v "^ *$" "$WORK/train.log" | tail -60
    cp "$WORK/train.log" "$OUT/train.log"
    if [ $status -eq 0 ]; then
        pack
    else
        python3 "$train" --work "$WORK" --snapshot "$OUT/snapshot.pt" 2>&1 | tail -3
    fi
    echo "status $status (75: call again)"
    ;;
*)
    echo "run.sh trial SECONDS | train SECONDS | finish" >&2
    exit 2
    ;;
esac
