#!/usr/bin/env bash
# From a fresh clone to the viewer's window: installs what is missing, builds the viewer and starts it with the arguments given. usage: samples/viewer.sh [MODEL] [PICTURE ...] [LORA ...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
(
    cd "$root"
    source samples/build_steps.sh
    samples/setup.sh viewer
    build_program viewer build/log/viewer.txt
)
exec "$root/build/release/bin/viewer" "$@"
