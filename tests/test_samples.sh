#!/usr/bin/env bash
# The samples that a host programmer copies from do what they say: each makes the very picture that the command line makes. usage: tests/test_samples.sh build/.../release
# The last line is "samples: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
support=$build/bin/cli_support
bin=$build/bin
model=samples/demo_model prompt="a red house on the grass"
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=$folder/out

check() { # what, command ...
    local what=$1; shift
    local status=0
    "$@" >"$out.new" 2>&1 || status=1
    [ ! -s "$out.new" ] || mv "$out.new" "$out" # what says nothing (grep) leaves the last program's words there
    if [ $status -eq 0 ]; then passed=$((passed + 1)); return 0; fi
    failed=$((failed + 1))
    echo "FAILED: $what"
    tail -n 6 "$out" | sed 's/^/  /'
    return 1
}
wrong() { # what, pattern, command ...: fails with a sentence
    local what=$1 pattern=$2; shift 2
    if "$@" >"$out" 2>&1; then check "$what" false; else check "$what" grep -qE -- "$pattern" "$out"; fi
}
skip() { skipped=$((skipped + 1)); echo "skip: $1: $2"; }
same() { check "$1" "$support" pictures "$2" "$3" 0; }

[ -x "$support" ] || { echo "FAILED: there is no $support"; exit 1; }
draw() { "$bin/sumi" generate --quiet --model $model --prompt "$prompt" --seed 7 "$@"; }
check "the command line" draw -o "$folder/model.png" --trace "$folder/trace.json"
check "the preview preset" draw --preset preview -o "$folder/preview.png"

check "hello" "$bin/hello" $model "$prompt" "$folder/hello.png" && same "hello's picture" "$folder/hello.png" "$folder/model.png"
# While it runs: the threads that work beside the one that calls.
has_workers() { # program ...
    local found=1
    "$@" >/dev/null 2>&1 &
    while kill -0 $! 2>/dev/null; do
        if cat /proc/$!/task/*/comm 2>/dev/null | grep -q 'sumi worker'; then found=0; break; fi
    done
    wait $!
    return $found
}
if [ "$(nproc)" -gt 1 ] && ! "$bin/sumi" info | grep -q '^cuda .*compute'; then check "hello takes every core" has_workers "$bin/hello" $model "$prompt" "$folder/hello.png"
else skip "hello takes every core" "there is one, or a GPU"; fi
wrong "hello says what is wrong" "no/such/model" "$bin/hello" no/such/model "$prompt" "$folder/x.png"

if check "frame_loop" "$bin/frame_loop" $model "$prompt" "$folder/loop.png"; then
    check "frame_loop gives all memory back" grep -q ' 0 bytes still held' "$out"
    cat "$out"
    same "frame_loop's picture" "$folder/loop.png" "$folder/preview.png"
fi
check "worker" "$bin/worker" $model "$prompt" "$folder/worker.png" && same "worker's picture" "$folder/worker.png" "$folder/model.png"

check "prompt_cache encodes" "$bin/prompt_cache" encode $model "$prompt" "$folder/house.prompt"
mkdir "$folder/shipped"
cp -r $model/model_index.json $model/transformer $model/vae $model/scheduler "$folder/shipped" # what a game ships
check "prompt_cache draws without the text encoder" "$bin/prompt_cache" draw "$folder/shipped" "$folder/house.prompt" "$folder/cached.png" && same "prompt_cache's picture" "$folder/cached.png" "$folder/model.png"
for format in bf16 int8; do
    check "prompt_cache encodes as $format" "$bin/prompt_cache" encode $model "$prompt" "$folder/house.$format" $format
    check "prompt_cache draws from $format" "$bin/prompt_cache" draw "$folder/shipped" "$folder/house.$format" "$folder/cached.png" && check "prompt_cache's picture from $format" "$support" pictures "$folder/cached.png" "$folder/model.png" 16
    check "$format takes fewer bytes" test $(($(wc -c <"$folder/house.$format") * 10)) -lt $(($(wc -c <"$folder/house.prompt") * 6))
done
wrong "prompt_cache knows its formats" "bf16.int8" "$bin/prompt_cache" encode $model "$prompt" "$folder/x.prompt" fp8
head -c 100 "$folder/house.prompt" >"$folder/cut.prompt"
wrong "prompt_cache refuses a cut file" "prompt_cache: " "$bin/prompt_cache" draw "$folder/shipped" "$folder/cut.prompt" "$folder/x.png"

printf 'a red house on the grass\n\na yellow moon at night\ntwo blue fish in the sea\n' >"$folder/prompts.txt"
mkdir "$folder/pictures"
if check "batch" "$bin/batch" $model "$folder/prompts.txt" "$folder/pictures" 2; then
    cat "$out"
    check "batch draws every line" test -s "$folder/pictures/0002.png" -a ! -e "$folder/pictures/0003.png"
    check "the command line, second prompt" "$bin/sumi" generate --quiet --model $model --prompt "a yellow moon at night" --seed 1 -o "$folder/moon.png" && same "batch's second picture" "$folder/pictures/0001.png" "$folder/moon.png"
fi
wrong "batch wants prompts" "holds no prompt" "$bin/batch" $model /dev/null "$folder/pictures"

# Several engines with one queue: on the CPU here, on a driver of two devices below.
many() { "$bin/many_gpus" tests/golden/flux2-klein/model --size 64x64 --threads 1 --prompts "$folder/prompts.txt" --count 5 "$@"; }
if check "many_gpus, one engine" many --backend cpu --out "$folder/one" && check "many_gpus, two engines" many --backend cpu --engines 2 --warm-up --out "$folder/two"; then
    cat "$out"
    check "many_gpus says how fast each engine was" grep -qE '^5 pictures in [0-9.]+ s, [0-9.]+ a second: [0-9.]+ by engine 0 \(CPU.*\), [0-9.]+ by engine 1 \(CPU' "$out"
    check "two engines' pictures are one engine's" diff -r "$folder/one" "$folder/two" && check "five of them" test -s "$folder/two/0004.png" -a ! -e "$folder/two/0005.png"
    check "the command line, fifth picture" "$bin/sumi" generate --quiet --backend cpu --model tests/golden/flux2-klein/model --size 64x64 --prompt "a yellow moon at night" --seed 11 -o "$folder/fifth.png" && same "many_gpus' fifth picture" "$folder/two/0004.png" "$folder/fifth.png"
fi
ends_with() { local want=$1 got=0; shift; "$@" || got=$?; [ $got -eq "$want" ]; }
says() { # what, code, pattern, command ...
    local what=$1 code=$2 pattern=$3; shift 3
    check "$what" ends_with "$code" "$@" && check "$what, in a sentence" grep -qE -- "$pattern" "$out"
}
says "many_gpus lists its options" 0 '^usage: many_gpus' "$bin/many_gpus" --help
says "many_gpus knows no such option" 2 '^many_gpus: there is no option --gpus' many --gpus 2
says "many_gpus wants prompts" 2 '^many_gpus: the file of --prompts' "$bin/many_gpus" --prompts /dev/null
says "many_gpus wants a folder" 2 '^many_gpus: the folder of --out' many --out "$folder/no/such"
says "many_gpus wants a model" 1 '^many_gpus: engine 1: no/such/model: no such file' "$bin/many_gpus" no/such/model --backend cpu --engines 2 --out "$folder/x"
check "many_gpus without a model draws nothing" grep -qx 'many_gpus: 1 of 1 pictures are missing: no engine is left' "$out"

# Without a GPU: its pixels are uploaded to whatever Vulkan has.
if [ ! -x "$bin/vulkan" ]; then skip "vulkan" "built without Vulkan's headers (samples/setup.sh vulkan)"
elif "$bin/vulkan" $model "$prompt" "$folder/vulkan.png" --copy >"$out" 2>&1 && grep -q '^skipped: ' "$out"; then skip "vulkan" "$(sed 's/^skipped: //' "$out")"
else
    check "vulkan" "$bin/vulkan" $model "$prompt" "$folder/vulkan.png" --copy && cat "$out"
    same "vulkan's picture" "$folder/vulkan.png" "$folder/model.png"
fi

# ---- The cookbook -----------------------------------------------------------------------------------------------------------------------
cook() { "$bin/cookbook" "$@"; }
has_gpu=
if "$bin/sumi" generate --quiet --backend cuda --model $model --prompt "$prompt" --seed 7 -o "$folder/gpu.png" >/dev/null 2>&1; then has_gpu=1; fi
check "image to image" cook image_to_image $model "a blue house on the grass" "$folder/start.png" "$folder/model.png"
check "the command line, image to image" "$bin/sumi" generate --quiet --model $model --prompt "a blue house on the grass" --seed 7 --image "$folder/model.png" --strength 0.6 -o "$folder/start-cli.png"
same "the recipe's picture, image to image" "$folder/start.png" "$folder/start-cli.png"
check "a mask" "$bin/sumi" generate --quiet --model $model --prompt "a white circle on black" --seed 3 -o "$folder/mask.png"
check "inpainting" cook inpainting $model "a blue house on the grass" "$folder/painted.png" "$folder/model.png" "$folder/mask.png"
check "the command line, inpainting" "$bin/sumi" generate --quiet --model $model --prompt "a blue house on the grass" --seed 7 --image "$folder/model.png" --mask "$folder/mask.png" -o "$folder/painted-cli.png"
same "the recipe's picture, inpainting" "$folder/painted.png" "$folder/painted-cli.png"
check "lora" cook lora $model "$prompt" "$folder/lora.png" $model/lora/blueprint.safetensors
check "the command line, lora" draw --lora $model/lora/blueprint.safetensors -o "$folder/lora-cli.png" && same "the recipe's picture, lora" "$folder/lora.png" "$folder/lora-cli.png"
wrong "lora says what is wrong" "no/such.safetensors" cook lora $model "$prompt" "$folder/x.png" no/such.safetensors

net=tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors
check "control" cook control tests/golden/z-image/model "$prompt" "$folder/control.png" $net "$folder/model.png"
check "the command line, control" "$bin/sumi" generate --quiet --model tests/golden/z-image/model --prompt "$prompt" --seed 7 --size 256x256 --control $net --control-picture "$folder/model.png:0.5:0:0.7" -o "$folder/control-cli.png"
same "the recipe's picture, control" "$folder/control.png" "$folder/control-cli.png"
wrong "control says what is wrong" "no/such.safetensors" cook control tests/golden/z-image/model "$prompt" "$folder/x.png" no/such.safetensors "$folder/model.png"
check "depth_reference" cook depth_reference tests/golden/flux2-klein/model "make the house blue" "$folder/depth.png" "$folder/model.png"

if check "xml_prompt" cook xml_prompt $model "two friends in the rain" "$folder/xml.png"; then
    cp "$out" "$folder/xml.txt"
    "$bin/sumi" xml --character "gender=1girl; appearance=silver_hair, green_eyes; position=center_left" --character "name=hatsune_miku; action=waving" \
        --tags "count=2girls; background=city_street, rain" --caption "two friends in the rain" >"$folder/xml-cli.txt"
    check "the recipe's text in XML" cmp "$folder/xml.txt" "$folder/xml-cli.txt"
    check "the command line, XML" "$bin/sumi" generate --quiet --model $model --prompt "$(cat "$folder/xml-cli.txt")" --seed 7 -o "$folder/xml-cli.png" && same "the recipe's picture, XML" "$folder/xml.png" "$folder/xml-cli.png"
fi

# On the CPU the budget is half of the arena. On a GPU the weights come on top, and may be streamed.
if check "memory_budget" cook memory_budget $model "$prompt" "$folder/budget.png"; then
    cat "$out"
    check "a short budget makes tiles or streams" grep -qE 'half of the arena: .*(in tiles|are streamed)' "$out"
    check "memory_budget's picture, but for the seams of tiles" "$support" pictures "$folder/budget.png" "$folder/model.png" 96
fi
if check "deadline" cook deadline $model "$prompt" "$folder/deadline.png"; then
    cat "$out"
    # A GPU may have time for all 50.
    check "a deadline leaves steps out, at least 4 are run" awk -v most=$([ -n "$has_gpu" ] && echo 50 || echo 49) '/ of 50 steps$/ { found = 1; bad = $1 < 4 || $1 > most } END { exit !found || bad }' "$out"
fi
if check "step_cache" cook step_cache $model "$prompt" "$folder/cached.png"; then
    cat "$out"
    check "a step cache reuses evaluations" awk '/ of 50 evaluations reused, about [0-9]+ dB kept$/ { found = 1; bad = $1 < 20 || $1 > 36 } END { exit !found || bad }' "$out"
    check "the command line, step cache" draw --steps 50 --step-cache auto -o "$folder/cached-cli.png" && same "the recipe's picture, step cache" "$folder/cached.png" "$folder/cached-cli.png"
fi

tar -cf "$folder/model.tar" -C samples demo_model
check "archive" cook archive demo_model "$prompt" "$folder/archive.png" "$folder/model.tar" && same "the picture of a model in an archive" "$folder/archive.png" "$folder/model.png"
head -c 9000000 "$folder/model.tar" >"$folder/cut.tar"
wrong "a cut archive lacks files" "demo_model.*holds no" cook archive demo_model "$prompt" "$folder/x.png" "$folder/cut.tar"
if check "services" cook services $model "$prompt" "$folder/services.png"; then
    cat "$out"
    check "services gives all memory back" grep -q ' 0 bytes still held' "$out"
    same "the picture on the host's threads" "$folder/services.png" "$folder/model.png"
fi
if [ -e "$build/plugin/libsumi.so" ]; then
    check "by_name" cook by_name $model "$prompt" "$folder/named.png" "$build/plugin/libsumi.so" && same "the picture of a library that is opened by name" "$folder/named.png" "$folder/model.png"
else skip "by_name" "the build has no shared library (--shared)"; fi
wrong "by_name wants a library" "no/such" cook by_name $model "$prompt" "$folder/x.png" no/such.so

qwen=tests/golden/qwen-image # a tiny edit model, of its parts
mkdir "$folder/edit"
cp -r $qwen/model/. $qwen/model-edit/processor "$folder/edit"
cp $qwen/model-edit-2509/model_index.json "$folder/edit"
two=("$qwen/cases/pipe-edit-2509.in0.png" "$qwen/cases/pipe-edit-2509.in1.png")
check "editing" cook editing "$folder/edit" "the hat" "$folder/edited.png" "${two[@]}"
check "the command line, editing" "$bin/sumi" generate --quiet --model "$folder/edit" --prompt "the hat" --seed 7 --preset fast --size 256x256 --reference "${two[0]}" --reference "${two[1]}" -o "$folder/edited-cli.png"
same "the recipe's picture, editing" "$folder/edited.png" "$folder/edited-cli.png"
wrong "editing wants an edit model" "does not do that" cook editing $model "the hat" "$folder/x.png" "${two[@]}"
sed -i 's/"_class_name"/"sample_size": 64, &/' "$folder/edit/vae/config.json" # images of 64 x 64 take less time than those of its family
check "edit" "$bin/edit" "$folder/edit" "${two[0]}" "the hat" "$folder/words.png"
check "the command line, edit" "$bin/sumi" generate --quiet --model "$folder/edit" --prompt "the hat" --seed 7 --reference "${two[0]}" -o "$folder/words-cli.png" && same "edit's picture" "$folder/words.png" "$folder/words-cli.png"
check "edit, with an adapter" "$bin/edit" "$folder/edit" "${two[0]}" "the hat" "$folder/words.png" $qwen/lora/lightning-4steps-bf16.safetensors
check "the command line, with an adapter" "$bin/sumi" generate --quiet --model "$folder/edit" --prompt "the hat" --seed 7 --preset fast --lora $qwen/lora/lightning-4steps-bf16.safetensors --reference "${two[0]}" -o "$folder/words-cli.png" && same "edit's picture, with an adapter" "$folder/words.png" "$folder/words-cli.png"
wrong "edit wants an edit model" "takes no reference images" "$bin/edit" $model "${two[0]}" "the hat" "$folder/x.png"
wrong "edit wants a picture" "^edit: .*no/such.png" "$bin/edit" "$folder/edit" no/such.png "the hat" "$folder/x.png"
wrong "edit says what is wrong with an adapter" "no/such.safetensors" "$bin/edit" "$folder/edit" "${two[0]}" "the hat" "$folder/x.png" no/such.safetensors

# Live painting: a picture comes into the folder that is watched, and what was drawn from it is there, until the program is told to end.
tiny=tests/golden/flux2-klein/model
mkdir "$folder/frames"
watch_once() {
    local rc
    "$bin/live" $tiny --prompt "$prompt" --size 64x64 --frames "$folder/frames" --watch --out "$folder/frames/live.png" &
    cp "$folder/model.png" "$folder/frames/.part"
    mv "$folder/frames/.part" "$folder/frames/frame.png"
    for _ in $(seq 1200); do { kill -0 $! 2>/dev/null && [ ! -e "$folder/frames/live.png" ]; } || break; sleep 0.05; done
    kill -TERM $!
    wait $!
    rc=$?
    [ $rc -eq 0 ] && [ -e "$folder/frames/live.png" ]
}
if check "live" watch_once; then
    check "live counts one input" grep -q '^1 inputs: 1 submitted, 0 replaced' "$out"
    check "the command line, from the same picture" "$bin/sumi" generate --quiet --model $tiny --prompt "$prompt" --seed 7 --size 64x64 --image "$folder/model.png" --strength 0.6 -o "$folder/live-cli.png"
    same "live's picture" "$folder/frames/live.png" "$folder/live-cli.png"
fi

# A scene whose depth makes pictures, without a window: the last of three views, as the command line draws it from the depth that the net saw.
tiny=tests/golden/z-image/model net=tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors
view() { "$bin/depth_scene" --prompt "$prompt" "$@"; }
small="--size 64x64 --steps 2"
if [ ! -x "$bin/depth_scene" ]; then skip "depth_scene" "built without the headers of EGL and OpenGL (Debian: libegl-dev, libgl-dev)"
elif view $tiny --control $net $small --headless --out "$folder/view-1.png" --seen "$folder/seen-1.png" >"$out" 2>&1 && grep -q '^skipped: ' "$out"; then skip "depth_scene" "$(sed -n 's/^skipped: //p' "$out")"
else
    check "depth_scene, one view" test -s "$folder/seen-1.png"
    if check "depth_scene" view $tiny --control $net $small --headless --frames 3 --out "$folder/view.png" --seen "$folder/seen.png"; then
        check "depth_scene draws the last view" grep -qE '^3 views: [123] submitted, [123] finished, [012] cancelled; the picture is of view 3$' "$out"
        corners=$("$support" pixels "$folder/seen.png" | od -An -v -tu1 -w4 | awk 'NR == 1 { top = $1 } END { print top, ($1 > 200) }') # the first pixel and the last one
        check "the sky is black and above, what is near is white" test "$corners" = "0 1"
        check "depth_scene walks" sh -c "! cmp -s '$folder/seen-1.png' '$folder/seen.png'"
        check "the command line, from the same depth" "$bin/sumi" generate --quiet --model $tiny --control $net --control-picture "$folder/seen.png" --prompt "$prompt" --seed 7 $small -o "$folder/view-cli.png" &&
            same "depth_scene's picture" "$folder/view.png" "$folder/view-cli.png"
    fi
    wrong "depth_scene wants a size that the model takes" "^depth_scene: --size 60x64: this model takes multiples of 16" view $tiny --control $net --size 60x64 --headless --out "$folder/x.png"
    wrong "depth_scene wants a net of the model" "^depth_scene: loading the control net failed: " view $tiny --control tests/golden/controlnet-qwen/Qwen-Image-2512-Fun-Controlnet-Union.safetensors --headless --out "$folder/x.png"
    wrong "depth_scene wants a net" "^depth_scene: --control NET is missing" view $tiny
    wrong "depth_scene wants near before far" "^depth_scene: --low has to be less than --high" view $tiny --control $net --low 70
    wrong "depth_scene wants a number" "^depth_scene: --steps x: give a whole number from 1 to 1000" view $tiny --control $net --steps x
fi

# Before anything is installed or built. What it draws is tried by hand (packaging/README.md).
quick=samples/quickstart.sh
check "the quick start's help" $quick --help && check "it tells how to edit" grep -q '^ *samples/quickstart.sh --edit "' "$out"
wrong "the quick start wants words" 'as in --edit "' $quick --edit
wrong "an option is no edit" 'as in --edit "' $quick --edit --picture "${two[0]}"
wrong "the quick start knows no such option" "no option --draw" $quick --draw
wrong "the quick start takes one prompt" "put all of it into quotes" $quick a fox
wrong "the quick start wants a file that is there" "no file no/such.png" $quick --edit "the hat" --picture no/such.png
wrong "a picture is for edits" "is for --edit" $quick --picture "${two[0]}"
wrong "an outline is a file" "no file no/such.png" $quick --outline no/such.png "a fox"
wrong "an outline needs words" 'as in --outline drawing.png "' $quick --outline "${two[0]}"
wrong "an outline is for the first picture" "for the picture that a prompt draws" $quick --edit "the hat" --picture "${two[0]}" --outline "${two[0]}"
wrong "a picture or a prompt" "not both" $quick --edit "the hat" --picture "${two[0]}" "a fox"

# In a folder of its own, where nothing is installed, built or computed: what it says.
place=$folder/place tools=$folder/tools
mkdir -p "$place/samples" "$place/build/release/bin" "$tools" "$folder/no_device" "$folder/device"
touch "$folder/device/nvidiactl"
cp $quick samples/viewer.sh samples/build_steps.sh "$place/samples"
printf '#!/bin/sh\n' >"$place/samples/setup.sh"
printf '#!/bin/sh\necho "sumi $*"\n' >"$place/build/release/bin/sumi"
printf '#!/bin/sh\necho "the window of" "$@"\n' >"$place/build/release/bin/viewer"
cat >"$tools/premake5" <<'TOOL'
#!/bin/sh
echo "$@" >premake.txt
printf 'sumi-cli:\nviewer:\n' >build/Makefile
case "$*" in *--no-cuda*) ;; *) echo "kernels: pack" >>build/Makefile ;; esac
TOOL
cat >"$tools/make" <<'TOOL'
#!/bin/sh
case "$*" in
    *-n*) printf '  echo %s\n' a.c b.c ;;
    *kernels) echo "kernels: 4 to compile for the GPU, about 2 minutes"; for i in 1 2 3 4; do echo "kernels: $i of 4 (x$i.cu)"; done ;;
    *) # ends when the first line was shown
        echo a.c
        for i in $(seq 200); do ! grep -q '1 of 2' "$WATCHED" || break; sleep 0.05; done
        grep -q '1 of 2' "$WATCHED" || exit 1
        echo b.c ;;
esac
TOOL
export WATCHED=$out.new # what check writes
chmod +x "$place/samples/setup.sh" "$place"/build/release/bin/* "$tools"/*
export SUMI_DEV=$folder/no_device
quick_there() { PATH=$tools:$PATH "$place/samples/quickstart.sh" "$@"; }
check "the quick start draws" quick_there && check "it tells how to draw more" grep -q '^ *samples/quickstart.sh "' "$out"
check "and how to edit" grep -q '^ *samples/quickstart.sh --edit "' "$out"
net=$model/control/control_outline.safetensors
check "it follows an outline" quick_there --outline $model/control/outline.png "a cat and a moon" && check "with the net" grep -qxF -- "sumi generate --model $model --prompt a cat and a moon --seed 7 --control $net --control-picture $PWD/$model/control/outline.png:0.8 -o out.png" "$out"
check "the net is there" test -s $net
check "without a device it builds no kernels" grep -q -e '--no-cuda' "$place/premake.txt" && check "and says why" grep -q "for the CPU, as there is no NVIDIA device" "$out"
check "it says how far the build is" grep -qx '  1 of 2' "$out"
check "with a device" env SUMI_DEV="$folder/device" PATH="$tools:$PATH" "$place/samples/quickstart.sh"
check "with a device it builds kernels" sh -c "! grep -e --no-cuda '$place/premake.txt'"
check "for that device" grep -q -e --gpus=native "$place/premake.txt"
check "it says how long kernels take" grep -qx '  kernels: 4 to compile for the GPU, about 2 minutes' "$out" && check "and how far they are" grep -qx '  kernels: 2 of 4' "$out"
check "kernels that are there stay" quick_there && check "though the device is gone" sh -c "! grep -e --no-cuda '$place/premake.txt'"
if script -qec true /dev/null >/dev/null 2>&1; then
    check "on a terminal" script -qec "PATH='$tools:$PATH' '$place/samples/quickstart.sh'" /dev/null
    check "there one line counts up" grep -q $'\r  kernels: 1 of 4: x1.cu *\r  kernels: 2 of 4: x2.cu *\r' "$out"
else skip "progress on a terminal" "there is no script, or no pseudo-terminal"; fi
viewer_there() { (cd "$folder" && PATH=$tools:$PATH "$place/samples/viewer.sh" "$@"); }
check "one command for the viewer" viewer_there "a model" b.png && check "it passes the arguments on" grep -qx 'the window of a model b.png' "$out"
sed -i 's/viewer:/sumi:/' "$tools/premake5"
echo 'echo "samples/apps/viewer: left out (glfw3 was not found)"' >>"$tools/premake5"
wrong "a viewer that cannot be built says why" "viewer: left out .glfw3" viewer_there
check "it edits" quick_there --edit "the hat" && check "by the words" grep -q 'editing it: "the hat"' "$out"

# Where there is a GPU its picture is the command line's. Where there is none the calls are made on a driver that needs none and computes nothing: they keep its rules, and give all back.
if [ -n "$has_gpu" ]; then
    check "device_memory" cook device_memory $model "$prompt" "$folder/device.png" && same "the picture in device memory" "$folder/device.png" "$folder/gpu.png"
else
    skip "device_memory on a GPU" "there is none"
    wrong "device_memory without a GPU" "no usable device" cook device_memory $model "$prompt" "$folder/x.png"
    if [ -e "$build/fake/libcuda.so.1" ]; then
        cat >"$folder/fake.c" <<'FAKE'
#include "fake_cuda.h"
#include <stdio.h>
__attribute__((constructor)) static void begin(void) { fake_reset(); }
__attribute__((destructor)) static void end(void) { printf("%ld objects of the driver still held\n", fake_held()); fflush(stdout); }
FAKE
        cc -shared -fPIC -Itests/fake_cuda "$folder/fake.c" -L"$build/fake" -l:libfake_cuda.so -o "$folder/fake.so"
        fake_cook() { LD_LIBRARY_PATH=$build/fake LD_PRELOAD=$folder/fake.so cook "$@"; }
        if check "device_memory on a driver that is none" fake_cook device_memory $model "$prompt" "$folder/device.png"; then
            check "it gives all back" grep -q '^0 objects of the driver still held' "$out"
            # A host may call outside of the relaxed capture mode; sumi's own calls are held to it by test_cuda_driver.
            rules() { ! grep 'fake driver:' "$1" | grep -v "capture mode is not relaxed"; }
            check "it keeps the driver's rules" rules "$out"
        fi
        # Of two devices one stops working while it draws, at its third graph.
        sed 's/fake_reset();/fake_reset(); fake_devices(2, 90); fake_fail_call("cuGraphLaunch", atoi(getenv("FAIL")), 700);/; 1i #include <stdlib.h>' "$folder/fake.c" >"$folder/fake_two.c"
        cc -shared -fPIC -Itests/fake_cuda "$folder/fake_two.c" -L"$build/fake" -l:libfake_cuda.so -o "$folder/fake_two.so"
        fake_many() { FAIL=$1 LD_LIBRARY_PATH=$build/fake LD_PRELOAD=$folder/fake_two.so many "${@:2}"; }
        says "many_gpus has an engine on each device" 0 '^5 pictures .* by engine 0 \(Fake 0, .* by engine 1 \(Fake 1, [^,]*\)$' fake_many 0 --out "$folder/fake"
        check "it gives all back" grep -q '^0 objects of the driver still held' "$out"
        says "many_gpus wants devices that are there" 1 "^many_gpus: --engines 3: sumi can use 2 of this machine's GPUs$" fake_many 0 --engines 3 --out "$folder/x"
        says "many_gpus loses a device and draws all" 0 '^5 pictures in ' fake_many 3 --out "$folder/lost"
        check "it says which engine draws no more" grep -qE '^many_gpus: engine [01] draws no more: (draw|submitt)ing a picture failed: .*; [12] of its pictures go back to the queue$' "$out"
        check "each picture is there" test "$(ls "$folder/lost" | wc -l)" = 5
        says "many_gpus loses its only device" 1 '^many_gpus: 5 of 5 pictures are missing: no engine is left$' fake_many 3 --engines 1 --out "$folder/lost_all"
    fi
fi

# A trace: JSON; spans of a track do not overlap; the work lies within the calls; steps are there.
if command -v python3 >/dev/null; then
    check "the trace" python3 - "$folder/trace.json" <<'PYTHON'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
tracks = {}
for e in events:
    tracks.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"], e))
for track in tracks.values():
    track.sort(key=lambda span: span[0])
    assert all(a[1] <= b[0] + 0.002 for a, b in zip(track, track[1:])), "spans overlap"
calls, work = tracks[1], tracks[2]
for begin, end, e in work:
    assert any(c[0] <= begin and end <= c[1] for c in calls), f"{e['name']} lies outside of every call"
steps = {e["args"]["step"] for e in events if "args" in e}
assert steps == set(range(1, 9)), steps
assert {e["cat"] for e in events} >= {"load", "prepare", "text", "denoise", "decode", "transfer", "call"}
shares = sorted(sum(end - begin for begin, end, e in work if c[0] <= begin and end <= c[1]) / max(c[1] - c[0], 1e-3) for c in calls)
assert shares[len(shares) // 2] > 0.9, "work is missing" # in the middle one of the calls: another program may have come between in some
PYTHON
fi

# A random checkpoint of each family, in no file and in a folder; tables and the report have the rows that they should.
bench() { "$bin/bench" --size 64x64 --tokens 40 --runs 1 "$@"; }
if [ -x "$bin/bench" ]; then # wants POSIX
    for family in tiny qwen-image-tiny newbie-tiny; do
        check "bench, $family" bench --synthetic $family && check "bench's table, $family" grep -qE '^\| text, 40 tokens +\|' "$out" && check "bench decodes, $family" grep -qE '^\| decode, 64x64 ' "$out"
        check "bench writes, $family" "$bin/bench" --synthetic $family --write "$folder/$family" && check "bench, $family in a folder" bench --synthetic $family --model "$folder/$family"
    done
    check "bench, klein-tiny" bench --synthetic klein-tiny && check "bench's table says what rows of klein are" grep -qE '^\| text, 40 tokens in 512 rows +\|' "$out"
    # A job with a picture to refer to takes more memory than one without: that is known before it computes.
    wrong "bench refers to pictures" 'it would fit without its reference image' "$bin/bench" --synthetic klein-tiny --without-text-encoder --memory-budget 20 --size 64x64 --serve < <(printf 'image\nrefer 1\nimage\n')
    check "and makes one without" grep -q '^{"forward": [0-9.]*, "decode": ' "$out"
    wrong "bench refers to ten pictures at most" '^bench: no command "refer 11"' "$bin/bench" --synthetic klein-tiny --without-text-encoder --serve <<<'refer 11'
    wrong "bench has no guided steps of klein" '^bench: klein has two kinds of blocks, .* leave out' bench --synthetic klein-tiny --guided-steps 2
    # The rows of its report were seen by hand: a reference is always of 1024 x 1024, which takes seconds on a CPU.
    check "bench writes, klein-9b-kv-tiny" "$bin/bench" --synthetic klein-9b-kv-tiny --write "$folder/kv" && check "sumi inspects it" "$bin/sumi" inspect "$folder/kv" && check "a model that keeps references" grep -q 'family *flux2-klein kv,' "$out"
    check "bench, qwen-image-21-tiny" bench --synthetic qwen-image-21-tiny && check "bench's table has as many rows of text" grep -qE '^\| text, 40 tokens +\|' "$out"
    check "bench writes, qwen-image-21-tiny" "$bin/bench" --synthetic qwen-image-21-tiny --write "$folder/qwen21" && check "bench, qwen-image-21-tiny in a folder" bench --synthetic qwen-image-21-tiny --model "$folder/qwen21"
    check "bench reports a prefix" "$bin/bench" --synthetic qwen-image-21-tiny --report --short --sizes 64 --steps 2 --batch 1 --seconds 0 && check "its row" grep -qE '^\|   of it the prefix +\| +[0-9.]+ ' "$out"
    wrong "bench has its sizes in multiples of 32" '^usage: bench' bench --synthetic qwen-image-21-tiny --size 48x48
    wrong "bench has no outliers of qwen-image-21" '^bench: qwen-image-21 has no norms .* leave out' bench --synthetic qwen-image-21-tiny --outliers
    wrong "bench refers to no pictures without texts" '^bench: prompts of qwen-image-21 say where' bench --synthetic qwen-image-21-tiny --references 1 --without-text-encoder
    wrong "bench has at most ten references" '^usage: bench' bench --synthetic klein-tiny --references 11
    check "bench with control nets" "$bin/bench" --synthetic qwen-image-tiny --control qwen-instantx,qwen-fun,qwen-blockwise --without-text-encoder --report --short --sizes 64 --steps 2 --batch 1 --seconds 0 &&
        check "bench compares steps with nets" test "$(grep -cE '^\|   times a step without +\| +[0-9.]+ ' "$out")" = 3
    check "bench with a net as stored" "$bin/bench" --synthetic tiny --control z-fun-1.0,z-fun-2.1-lite --stored q8_0 --weights as-stored --without-text-encoder --report --short --sizes 64 --steps 1 --batch 1 --seconds 0
    wrong "bench has nets for their models" '^bench: --control qwen-fun is for --report and --synthetic qwen-image' "$bin/bench" --synthetic tiny --control qwen-fun --report
    check "bench's report" "$bin/bench" --synthetic newbie-tiny --report --sizes 64 --steps 2 --guided-steps 2 --batch 2 --tokens 40 --seconds 0
    cp "$out" "$folder/report"
    for row in 'text, 40 tokens' 'text, 512 tokens, wall' 'the same from its saved form, 512 tokens' 'forward, 64x64' 'guided step, 64x64' 'guided picture of 2 steps, 64x64' 'one of a batch of 2, 64x64'; do
        check "bench's report has \"$row\"" grep -qE "^\\| $row +\\| +[0-9]" "$folder/report"
    done
    check "bench without the text encoders" bench --synthetic newbie-tiny --without-text-encoder
    check "bench guides without the text encoder" "$bin/bench" --synthetic tiny --variant base --without-text-encoder --report --short --sizes 64 --steps 1 --guided-steps 2 --batch 1 --seconds 0 &&
        check "bench reports it" grep -qE '^\| guided picture of 2 steps, 64x64 +\| +[0-9]' "$out"
    for stored in q4_k fp8; do check "bench, stored as $stored, with outliers" bench --synthetic newbie-tiny --stored $stored --outliers; done
    check "bench writes GGUF" "$bin/bench" --synthetic newbie-tiny --stored q4_k --write "$folder/stored" && check "bench reads it" bench --synthetic newbie-tiny --model "$folder/stored"
    check "the file has blocks" "$bin/sumi" inspect "$folder/stored" && check "Q4_K, and Q8_0 where rows are no multiple of 256" grep -qE '^    types  +BF16: [0-9]+ tensors.*; Q8_0: 43 tensors.*; Q4_K: 7 tensors' "$out"
    wrong "bench knows no such type" '^usage: bench' bench --synthetic newbie-tiny --stored q9_k
    wrong "bench says what an option is called now" '^bench: --prompt-file is called --encoded-prompt now' bench --synthetic tiny --serve --prompt-file x
    wrong "bench takes no text for an encoded prompt" 'README.md is a text file; --encoded-prompt takes' bench --synthetic tiny --serve --encoded-prompt README.md
    wrong "bench knows no such checkpoint" '^usage: bench' bench --synthetic newbie-huge
    check "bench cuts long texts" "$bin/bench" --synthetic newbie-tiny --tokens 600 --size 64x64 --runs 1 && check "at 512 tokens" grep -qE '^\| text, 512 tokens ' "$out"
    if command -v python3 >/dev/null; then
        printf 'save %s\n' "$folder/saved.safetensors" | "$bin/bench" --model "$folder/newbie-tiny" --synthetic newbie-tiny --tokens 40 --size 64x64 --serve >"$out.new" 2>&1
        check "bench saves what both encoders made" python3 - "$folder/saved.safetensors" <<'PYTHON'
import json, struct, sys
with open(sys.argv[1], "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
assert {name: entry["shape"] for name, entry in header.items()} == {"features": [40, 128], "features.1": [1, 128]}, header
PYTHON
    fi
fi

echo "samples: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
