#!/usr/bin/env bash
# samples/instruments/verify.py on the tiny checkpoints of tests/golden, on the CPU: every family that it knows agrees, and of copies that are changed in one place verify.py names
# that place. The last line is "N passed, N failed, N skipped".
#
#   tests/run_verify.sh [PYTHON] [build/gcc/release] [TEXT]
#
# NEWBIE: the folder of the repository NewBie-image-Exp0.1, for that family. PYTHON has torch, torchvision, diffusers, transformers, accelerate, safetensors, numpy and pillow; python3 by default. Without them all is skipped.
# TEXT: only the runs whose names contain it. Not part of tests/run.sh: a reference takes half a minute. What each run printed is in build/verify/NAME.txt, its page in build/verify/NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3} build=${2:-build/gcc/release} only=${3:-}
passed=0 failed=0 skipped=0
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" -eq 0 ]; exit; }
skip() { echo "skip: $1"; skipped=$((skipped + 1)); }
pass() { passed=$((passed + 1)); echo "ok     $1"; }
fail() { failed=$((failed + 1)); echo "FAILED $1"; [ -z "${2:-}" ] || tail -n 25 "$2" | sed 's/^/         /'; }
command -v "$python" >/dev/null || { skip "there is no $python"; finish; }
[ -x "$build/bin/sumi" ] || { fail "there is no $build/bin/sumi: make -C build/gcc config=release sumi-cli"; finish; }

out=build/verify
rm -rf $out
mkdir -p $out
export SUMI=$build/bin/sumi
verify=samples/instruments/verify.py
# Runs verify.py; its exit code is in `code`, what it said in `log`.
code=0 log=
run() { # name, arguments
    local name=$1; shift
    log=$out/$name.txt code=0
    "$python" tests/verify/tiny.py $verify "$@" --device cpu --no-hashes -o "$out/$name" >"$log" 2>&1 || code=$?
}
said() { grep -qF -- "$1" "$log"; }

# ---- Without a reference ------------------------------------------------------------------------------------------------------------------
refuses() { # what, python, pattern, arguments
    local what=$1 with=$2 pattern=$3; shift 3
    log=$out/refused.txt code=0
    "$with" $verify "$@" >"$log" 2>&1 || code=$?
    if [ "$code" -eq 2 ] && grep -qE -- "$pattern" "$log"; then pass "$what"; else fail "$what: exit code $code" "$log"; fi
}
refuses "a folder that is not there" "$python" "is no folder: give the folder of a checkpoint" no/such/model
SUMI='' refuses "a program that is not there" "$python" "there is no program no/such/sumi" tests/golden/z-image/model --sumi no/such/sumi
bare=$out/bare # a Python without packages
if "$python" -m venv --without-pip $bare 2>/dev/null; then
    refuses "packages that are missing" $bare/bin/python "cannot import: torch .*-m pip install torch" tests/golden/z-image/model
else
    skip "packages that are missing: $python cannot make an environment without them"
fi
for package in torch torchvision diffusers transformers safetensors numpy PIL; do
    "$python" -c "import $package" 2>/dev/null || { skip "the reference: $python has no $package"; finish; }
done
refuses "a GPU that PyTorch does not have" "$python" "this PyTorch has no GPU|has no model_index" tests --device cuda
refuses "a folder without a checkpoint" "$python" "tests has no model_index.json" tests --device cpu
refuses "NewBie-image without its authors' code" "$python" "NewbiePipeline.*--reference-path" tests/golden/newbie/model --device cpu
refuses "another folder than its authors' code" "$python" "tests has no models/model.py" tests/golden/newbie/model --device cpu --reference-path tests
mkdir -p $out/unknown
echo '{"_class_name": "OtherPipeline"}' >$out/unknown/model_index.json
refuses "a pipeline that is not known" "$python" "OtherPipeline, which is not known here" $out/unknown --device cpu

# ---- What is right ------------------------------------------------------------------------------------------------------------------------
models=$out/models
lay() { # name, folders laid over one another
    local name=$1 folder; shift
    mkdir -p "$models/$name"
    for folder in "$@"; do cp -R "tests/golden/$folder/." "$models/$name"; done
}
lay z-image z-image/model
lay z-image-base z-image/model z-image/model-base
lay z-image-wide z-image-wide/model
lay qwen-image qwen-image/model
lay qwen-image-wide qwen-image-wide/model
lay qwen-image-21 qwen-image-21/model
lay qwen-image-21-turbo qwen-image-21/model qwen-image-21/model-turbo
lay qwen-image-21-wide qwen-image-21-wide/model
lay flux2-klein flux2-klein/model
lay flux2-klein-base flux2-klein/model flux2-klein/model-base
lay flux2-klein-wide flux2-klein-wide/model
lay qwen-image-edit qwen-image/model qwen-image/model-edit
lay qwen-image-edit-2509 qwen-image/model qwen-image/model-edit qwen-image/model-edit-2509
lay qwen-image-edit-2511 qwen-image/model qwen-image/model-edit qwen-image/model-edit-2509 qwen-image/model-edit-2511
refuses "guidance of a distilled model" "$python" "distilled to run without it" $models/flux2-klein --device cpu --guidance 3 -o $out/refused
klein_pictures=(--image tests/golden/qwen-image/cases/pipe-edit-2509.in0.png --image tests/golden/qwen-image/cases/pipe-edit-2509.in1.png) # of which cropping leaves less
agrees() { # name, arguments
    local name=$1; shift
    [[ "$name" == *"$only"* ]] || return 0
    run "$name" "$@"
    if [ "$code" -eq 0 ] && said "sumi agrees with the reference in every stage." && [ -s "$out/$name/index.html" ] && "$python" -m json.tool "$out/$name/verify.json" >/dev/null; then
        pass "$name agrees"
    else
        fail "$name: exit code $code" "$log"
    fi
}
agrees z-image $models/z-image --size 64x96 --steps 8
agrees z-image-base $models/z-image-base --size 64x64 --steps 5 --guidance 4 --negative "blurry, 模糊"
agrees z-image-wide $models/z-image-wide --size 64x64 --steps 2
agrees qwen-image $models/qwen-image --size 64x96
agrees qwen-image-wide $models/qwen-image-wide --size 64x64 --steps 2
agrees qwen-image-edit $models/qwen-image-edit --size 64x64 --steps 2
agrees qwen-image-edit-2509 $models/qwen-image-edit-2509 --size 64x64 --steps 2 --image tests/golden/qwen-image/cases/pipe-edit-2509.in0.png --image tests/golden/qwen-image/cases/pipe-edit-2509.in1.png
agrees qwen-image-edit-2511 $models/qwen-image-edit-2511 --size 64x64 --steps 2
agrees qwen-image-21 $models/qwen-image-21 --size 64x96
agrees qwen-image-21-guided $models/qwen-image-21 --size 64x64 --steps 2 --guidance 3 --negative "blurry, 模糊"
agrees qwen-image-21-turbo $models/qwen-image-21-turbo --size 64x64
agrees qwen-image-21-wide $models/qwen-image-21-wide --size 64x64 --steps 2
agrees qwen-image-21-edit $models/qwen-image-21 --size 64x64 --steps 2 --image tests/golden/qwen-image-21/cases/pipe-edit2.in0.png --image tests/golden/qwen-image-21/cases/pipe-edit2.in1.png
agrees flux2-klein $models/flux2-klein --size 64x96
agrees flux2-klein-base $models/flux2-klein-base --size 64x64 --steps 2 --guidance 4
agrees flux2-klein-negative $models/flux2-klein-base --size 64x64 --steps 2 --guidance 3 --negative "blurry, 模糊"
agrees flux2-klein-wide $models/flux2-klein-wide --size 64x64 --steps 2
agrees flux2-klein-edit $models/flux2-klein --size 64x64 --steps 2 "${klein_pictures[@]:0:2}"
agrees flux2-klein-edit2 $models/flux2-klein --size 64x96 --steps 2 "${klein_pictures[@]}"
agrees flux2-klein-base-edit2 $models/flux2-klein-base --size 64x64 --steps 2 --guidance 4 "${klein_pictures[@]}"
if [ -n "${NEWBIE:-}" ]; then
    agrees newbie tests/golden/newbie/model --reference-path "$NEWBIE" --size 64x96
    agrees newbie-xml tests/golden/newbie/model --reference-path "$NEWBIE" --size 64x64 --prompt "<character_1><n>1girl</n></character_1>" --negative "low_quality, blurry" --steps 2
    agrees newbie-wide tests/golden/newbie-wide/model --reference-path "$NEWBIE" --size 64x64 --steps 2
else
    skip "NewBie-image: its reference is its authors' code (repository NewBie-image-Exp0.1); NEWBIE is its folder"
fi

# ---- What is changed ----------------------------------------------------------------------------------------------------------------------
# sumi reads the copy, the reference the original. Stages behind the changed one are judged by themselves, so no other is named.
more=()
names() { # model, the stage to name, what to change, its folder, its name
    local model=$1 stage=$2 what=$3 folder=$4 name=${5:-} copy
    [[ "$model-$folder-$what${name:+-$name}" == *"$only"* ]] || return 0
    copy=$models/changed
    rm -rf "$copy"
    cp -R "$models/$model" "$copy"
    "$python" tests/verify/change.py "$what" "$copy/$folder" $name
    run "$model-$folder-$what${name:+-$name}" "$copy" --reference "$models/$model" --size 64x64 --steps 3 "${more[@]}"
    if [ "$code" -eq 1 ] && said "The first stage that differs: $stage." && ! said "Also differing"; then
        pass "$model: $what $folder${name:+ $name} is named: $stage"
    else
        fail "$model: $what $folder $name: exit code $code, expected \"$stage\"" "$log"
    fi
}
names z-image "tokenizer" merge tokenizer 0
names z-image "tokenizer" merge tokenizer -1
names z-image "text encoder" tensor text_encoder model.layers.1.mlp.down_proj.weight
names z-image "denoiser" tensor transformer layers.1.attention.to_q.weight
names z-image "vae" tensor vae decoder.up_blocks.2.resnets.0.conv1.weight
names z-image "schedule" shift scheduler
names qwen-image "tokenizer" merge tokenizer 0
names qwen-image "tokenizer" merge tokenizer -1
names qwen-image "text encoder" tensor text_encoder model.layers.1.mlp.down_proj.weight
names qwen-image "denoiser" tensor transformer transformer_blocks.1.attn.to_q.weight
names qwen-image "vae" tensor vae decoder.up_blocks.2.resnets.0.conv1.weight
names qwen-image "schedule" shift scheduler
names qwen-image-edit-2511 "text encoder" tensor text_encoder visual.blocks.1.mlp.down_proj.weight
names qwen-image-edit-2511 "denoiser" tensor transformer transformer_blocks.1.img_mlp.net.2.weight
names qwen-image-21 "tokenizer" merge processor 0
names qwen-image-21 "text encoder" tensor text_encoder model.language_model.layers.1.mlp.down_proj.weight
names qwen-image-21 "denoiser" tensor transformer transformer_blocks.1.attn.to_k.weight
names qwen-image-21 "vae" tensor vae decoder.up_blocks.2.resnets.0.conv1.weight
names qwen-image-21 "schedule" shift scheduler
more=(--image tests/golden/qwen-image-21/cases/pipe-edit2.in1.png)
names qwen-image-21 "text encoder" tensor text_encoder model.visual.blocks.1.mlp.linear_fc2.weight
more=()
names flux2-klein "tokenizer" merge tokenizer 0
names flux2-klein "tokenizer" merge tokenizer -1
names flux2-klein "text encoder" tensor text_encoder model.layers.1.mlp.down_proj.weight
names flux2-klein "text encoder" tensor text_encoder model.layers.26.mlp.down_proj.weight # the last one that is read
names flux2-klein "denoiser" tensor transformer transformer_blocks.1.attn.to_q.weight
names flux2-klein "denoiser" tensor transformer single_transformer_blocks.1.attn.to_out.weight
names flux2-klein "vae" tensor vae decoder.up_blocks.2.resnets.0.conv1.weight
names flux2-klein "vae" tensor vae bn.running_mean
names flux2-klein "schedule" terminal scheduler
names flux2-klein-base "tokenizer" merge tokenizer 0
names flux2-klein-base "denoiser" tensor transformer transformer_blocks.1.ff_context.linear_out.weight
more=("${klein_pictures[@]}")
names flux2-klein "denoiser" tensor vae encoder.down_blocks.1.resnets.0.conv1.weight # its encoder is the denoiser's: it reads references
names flux2-klein "denoiser" tensor transformer single_transformer_blocks.1.attn.to_qkv_mlp_proj.weight
more=()
if [ -n "${NEWBIE:-}" ]; then
    cp -R tests/golden/newbie/model $models/newbie
    more=(--reference-path "$NEWBIE" --steps 4) # with 3, one step lies where guidance ends, which the authors count out
    names newbie "tokenizer" merge text_encoder 3 # those before it are lines and blanks, which are tokens of their own
    names newbie "text encoder" tensor clip_model text_model.transformer.roberta.encoder.layers.1.mlp.fc1.bias
    names newbie "denoiser" tensor transformer layers.1.feed_forward.w2.weight
fi
finish
