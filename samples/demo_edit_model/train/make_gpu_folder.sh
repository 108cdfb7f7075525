#!/bin/sh
# Gathers everything that a training run on a borrowed GPU machine needs into one folder: make_gpu_folder.sh FOLDER [READER_CACHE]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
rm -rf "$out/demo_model" "$out/demo_edit_model"
mkdir -p "$out/demo_model/train" "$out/demo_edit_model/train" "$out/reader"
cp "$here"/../../demo_model/train/*.py "$out/demo_model/train/"
cp "$here"/*.py "$out/demo_edit_model/train/"
cp "$here/run.sh" "$out/run.sh"
for cache in "${2:-/tmp}"/demo_reader_*; do
    [ -d "$cache" ] && cp -r "$cache" "$out/reader/"
done
du -sh "$out"
