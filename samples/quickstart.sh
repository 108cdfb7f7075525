#!/usr/bin/env bash
# From a fresh clone to a picture: set-up, a release build, one image by the demo model; with --outline it follows a drawing, with --edit another one by the demo edit model. --help tells the usage.
set -euo pipefail
model=samples/demo_model edit_model=samples/demo_edit_model
usage() {
    cat <<TEXT
usage: samples/quickstart.sh ["a prompt"]
       samples/quickstart.sh --outline drawing.png "a cat and a moon"
       samples/quickstart.sh --edit "make the moon red" ["a prompt" | --picture FILE]

Installs what is missing, builds the command line and draws the prompt to out.png. GPU kernels are compiled only where there is an NVIDIA device.
With --outline things are where the drawing has them: a square PNG, JPEG or WebP file of white lines on black that shows what the prompt says ($model/control/outline.png is one). With --edit it also edits the picture by these words, to edited.png:
the one that the prompt draws, one that has what the words speak of, or with --picture a PNG, JPEG or WebP file.
The models know shapes, colours, places and a few styles: $model/README.md and $edit_model/README.md tell which.
TEXT
}
refuse() { # why
    echo "quickstart: $1 (samples/quickstart.sh --help tells the usage)" >&2
    exit 2
}
is_edit='' words='' prompt='' picture='' outline=''
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --edit)
            case ${2:-} in '' | -*) refuse 'give --edit what to change, as in --edit "make the moon red"' ;; esac
            is_edit=1 words=$2; shift ;;
        --picture | --outline)
            [ -n "${2:-}" ] || refuse "give $1 a file"
            [ -f "$2" ] || refuse "there is no file $2"
            file=$(realpath -- "$2") # for what follows works in the folder of the repository
            if [ "$1" = --picture ]; then picture=$file; else outline=$file; fi
            shift ;;
        -*) refuse "there is no option $1" ;;
        *)
            [ -z "$prompt" ] || refuse "one prompt is enough: put all of it into quotes"
            prompt=$1 ;;
    esac
    shift
done
[ -z "$picture" ] || [ -n "$is_edit" ] || refuse "--picture is for --edit"
[ -z "$picture" ] || [ -z "$outline" ] || refuse "--outline is for the picture that a prompt draws, and --picture edits one that is there"
[ -z "$outline" ] || [ -n "$prompt" ] || refuse 'say what the outline shows, as in --outline drawing.png "a cat and a moon"'
[ -z "$picture" ] || [ -z "$prompt" ] || refuse "give a prompt for the first picture or --picture, not both"
cd "$(dirname "$0")/.."
source samples/build_steps.sh

# A prompt for a picture that has what the words speak of: the drawing model knows these things. What the words want to be yellow is red before.
prompt_for() { # words
    local things colour=yellow place="on the grass"
    mapfile -t things < <(grep -oiE '\<the (circle|ball|disc|square|triangle|star|heart|sun|moon|house|cottage|tree|boat|flower|cat|kitten|fish|balloon|mountain|butterfly)\>' <<<"$1" |
        awk '{ thing = tolower($2) } !seen[thing]++ { print thing }')
    if grep -qiE '\<yellow\>' <<<"$1"; then colour=red; fi
    case ${things[0]:-} in
        '') echo "a red house to the left of a green tree on the grass"; return ;;
        moon) place="at night" ;;
        sun | star | balloon) place="in a blue sky" ;;
        boat | fish) place="at sea" ;;
    esac
    echo "a $colour ${things[0]}${things[1]:+ to the left of a purple ${things[1]}} $place"
}
if [ -z "$prompt" ] && [ -n "$is_edit" ]; then prompt=$(prompt_for "$words"); fi
prompt=${prompt:-a yellow moon above a purple cat at night, watercolour}

samples/setup.sh build
build_program sumi-cli build/log/quickstart.txt

if [ -z "$picture" ]; then
    if [ -n "$is_edit" ]; then echo "drawing \"$prompt\""; fi
    control=()
    if [ -n "$outline" ]; then control=(--control "$model/control/control_outline.safetensors" --control-picture "$outline:0.8"); fi
    build/release/bin/sumi generate --model "$model" --prompt "$prompt" --seed 7 ${control[@]+"${control[@]}"} -o out.png
fi
if [ -n "$is_edit" ]; then
    echo "editing it: \"$words\""
    build/release/bin/sumi generate --model "$edit_model" --reference "${picture:-out.png}" --prompt "$words" --seed 7 -o edited.png
    cat <<TEXT

The picture is ${picture:-$PWD/out.png}, the edited one $PWD/edited.png, by the demo edit model: 12 MB that know the things of such drawings, and what can be done to them ($edit_model/README.md).

Next:
    samples/quickstart.sh --edit "turn it into night"
    samples/quickstart.sh --edit "swap the cat and the moon" "a yellow moon above a purple cat"
    samples/quickstart.sh --edit "as a watercolour" --picture edited.png
    build/release/bin/sumi generate --model $edit_model --reference edited.png --prompt "add a red balloon" -o more.png
    build/release/bin/sumi generate --model $edit_model --reference edited.png --prompt "add a red balloon" --preset fast --lora $edit_model/lora/turbo.safetensors -o more.png      (in 4 steps)
    build/release/bin/sumi generate --model path/to/Qwen-Image-Edit-2511 --reference photo.jpg --prompt "make it winter" -o winter.jpg      (a released checkpoint, as downloaded)
Where to get released checkpoints, and which fit your card: docs/models.md.
The program of your own that does this: samples/edit/edit.c.
TEXT
    exit 0
fi

cat <<TEXT

The picture is $PWD/out.png, drawn by the demo model: 16 MB that know shapes, colours, places and a few styles (what exactly: samples/demo_model/README.md).

Next:
    samples/quickstart.sh "an orange fish to the left of a pink heart at sea"
    samples/quickstart.sh --outline $model/control/outline.png "a cat and a moon"
    samples/quickstart.sh --edit "make the moon red"
    build/release/bin/sumi generate --model $model --prompt "two red balloons in a blue sky" --seed 3 --preview-dir . -o balloons.png
    build/release/bin/sumi generate --model path/to/Z-Image-Turbo --prompt "$prompt" -o picture.png      (a released checkpoint, as downloaded)
    build/release/bin/sumi help
Where to get released checkpoints, and which fit your card: docs/models.md.
Run the tests: tests/run.sh. Link the library: README.md.
TEXT
