#!/usr/bin/env bash
# From a fresh clone to a picture: set-up, a release build, one image. usage: samples/quickstart.sh ["a prompt"]
set -euo pipefail
cd "$(dirname "$0")/.."
prompt=${1:-a lighthouse at dusk, ink wash}
model=tests/golden/z-image/model

samples/setup.sh build
mkdir -p build/log
premake=$(command -v premake5 || command -v premake4)
echo "building sumi (log: build/log/quickstart.txt)"
if ! { "$premake" --file=premake5.lua gmake && make -C build config=release -j"$(nproc)" sumi-cli; } >build/log/quickstart.txt 2>&1; then
    tail -n 20 build/log/quickstart.txt >&2
    echo "the build failed; all of its output is in build/log/quickstart.txt" >&2
    exit 1
fi

build/release/bin/sumi generate --model "$model" --prompt "$prompt" --size 256x256 --seed 7 -o out.png

cat <<TEXT

The picture is $PWD/out.png. It is noise: the checkpoint in $model has the layout of Z-Image-Turbo, but random
weights of a few megabytes that came with the clone, so that nothing is downloaded. What it shows is that the whole way works: tokenizer, text encoder, transformer,
decoder, PNG.

Next, with a real checkpoint (a folder as released, e.g. Tongyi-MAI/Z-Image-Turbo from Hugging Face; tens of gigabytes):
    build/release/bin/sumi inspect  path/to/Z-Image-Turbo
    build/release/bin/sumi generate --model path/to/Z-Image-Turbo --prompt "$prompt" -o picture.png
    build/release/bin/sumi help
Run the tests: tests/run.sh. Link the library: README.md.
TEXT
