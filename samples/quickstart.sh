#!/usr/bin/env bash
# From a fresh clone to a picture: set-up, a release build, one image by the demo model. usage: samples/quickstart.sh ["a prompt"]
set -euo pipefail
cd "$(dirname "$0")/.."
prompt=${1:-a yellow moon above a purple cat at night, watercolour}
model=samples/demo_model

samples/setup.sh build
mkdir -p build/log
premake=$(command -v premake5 || command -v premake4)
log=build/log/quickstart.txt
echo "building sumi (log: $log)"
if ! "$premake" --file=premake5.lua gmake >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    exit 1
fi

# Make says a line for each file: what there is to do, counted before, and then how much of it is done. On a terminal one line that counts up, in a log one for every quarter.
is_step() { grep -aE --line-buffered '^(\.\./)*[[:alnum:]_./-]+\.c$|^Linking |^kernels/.*: compute_'; }
show() { # of how many
    local done=0 shown=0 line
    while IFS= read -r line; do
        done=$((done + 1))
        if [ -t 1 ]; then printf '\r  %d of %d: %-40.40s' "$done" "$(($1 > done ? $1 : done))" "${line##*/}"
        elif [ $((done * 4 / $1)) -gt "$shown" ]; then shown=$((done * 4 / $1)); echo "  $done of $1"; fi
    done
    if [ -t 1 ] && [ "$done" -gt 0 ]; then printf '\r%-70s\r' ""; fi
}
to_do=$( (make -n -k -C build config=release sumi-cli 2>/dev/null || true) | grep -acE '^ *echo +([[:alnum:]_./-]+\.c|Linking .*)$' || true)
if [ -e build/kernels.make ] && [ ! -e build/kernels/checked ]; then to_do=$((to_do + $(ls kernels/*.cu | wc -l))); fi
[ "$to_do" -gt 0 ] || to_do=1
if ! make -C build config=release -j"$(nproc)" sumi-cli 2>&1 | tee -a "$log" | { is_step || true; } | show "$to_do"; then
    tail -n 20 "$log" >&2
    echo "the build failed; all of its output is in $log" >&2
    exit 1
fi

build/release/bin/sumi generate --model "$model" --prompt "$prompt" --seed 7 -o out.png

cat <<TEXT

The picture is $PWD/out.png, drawn by the demo model: 16 MB that know shapes, colours, places and a few styles (what exactly: samples/demo_model/README.md).

Next:
    samples/quickstart.sh "an orange fish to the left of a pink heart at sea"
    build/release/bin/sumi generate --model $model --prompt "two red balloons in a blue sky" --seed 3 --preview-dir . -o balloons.png
    build/release/bin/sumi generate --model path/to/Z-Image-Turbo --prompt "$prompt" -o picture.png      (a released checkpoint, as downloaded)
    build/release/bin/sumi help
Run the tests: tests/run.sh. Link the library: README.md.
TEXT
