#!/usr/bin/env bash
# From a fresh clone to a picture: set-up, a release build, one image by the demo model. usage: samples/quickstart.sh ["a prompt"]
set -euo pipefail
cd "$(dirname "$0")/.."
prompt=${1:-a yellow moon above a purple cat at night, watercolour}
model=samples/demo_model

samples/setup.sh build
mkdir -p build/log
premake=$(command -v premake5 || command -v premake4)
echo "building sumi (log: build/log/quickstart.txt)"
if ! { "$premake" --file=premake5.lua gmake && make -C build config=release -j"$(nproc)" sumi-cli; } >build/log/quickstart.txt 2>&1; then
    tail -n 20 build/log/quickstart.txt >&2
    echo "the build failed; all of its output is in build/log/quickstart.txt" >&2
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
