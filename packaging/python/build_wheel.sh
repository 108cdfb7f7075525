#!/usr/bin/env bash
# Makes the Python wheel out of a shared library, without network: sumi-VERSION-py3-none-PLATFORM.whl in OUT. usage: packaging/python/build_wheel.sh [LIBRARY] [OUT]
# LIBRARY is build/release/plugin/libsumi.so if it is not said, which premake5.lua's --shared makes, and OUT is build/wheel. make_wheel.py says what the environment may have.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
library=${1:-$source/build/release/plugin/libsumi.so} out=${2:-$source/build/wheel}
[ -e "$library" ] || { echo "build_wheel: $library is not there: premake5 --shared gmake, make -C build config=release sumi_shared" >&2; exit 1; }
python3 "$source/packaging/python/generate.py" --check >&2
python3 "$source/packaging/python/make_wheel.py" "$library" "$out"
