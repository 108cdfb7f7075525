#!/bin/sh
# Gathers everything that a training run on another machine needs, in one folder: make_gpu_folder.sh FOLDER [READER_CACHE]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
rm -rf "$out/demo_model" "$out/demo_edit_model"
mkdir -p "$out/demo_model/train" "$out/demo_edit_model/train" "$out/reader"
cp "$here"/../../demo_model/train/*.py "$out/demo_model/train/"
cp "$here"/*.py "$out/demo_edit_model/train/"
cp "$here/run.sh" "$out/run.sh"
# the tables of the checker that is copied, if a self-test has made them (check_edit.py: reader_of)
name=$(cd "$out/demo_model/train" && python3 -c 'import zlib; print("demo_reader_%08x" % zlib.crc32(b"".join(open(n, "rb").read() for n in ("check.py", "pictures.py", "world.py"))))')
cache=${2:-${TMPDIR:-/tmp}}/$name
if [ -d "$cache" ]; then cp -r "$cache" "$out/reader/"; else echo "no $cache: the judgement will make it, for minutes"; fi
du -sh "$out"
