#!/usr/bin/env bash
# tests/run_gpu.sh where there is no GPU: --sparse makes the work tree small, refuses to remove what has changes, and --whole puts everything back. It runs in a clone of the repository.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

finish() { echo "test_run_gpu: $passed passed, $failed failed, ${1:-0} skipped"; [ $failed -eq 0 ]; exit; }
check() { # name command..
    local name=$1; shift
    if "$@" >>"$folder/output.txt" 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $name"
        tail -n 5 "$folder/output.txt" | sed 's/^/  | /'
    fi
}
mebibytes() { du -sk --apparent-size --exclude=.git "$folder/clone" | awk '{ print int($1 / 1024) }'; }
is_below() { [ "$(mebibytes)" -lt "$1" ]; }
is_clean() { [ -z "$(git -C "$folder/clone" status --porcelain)" ]; }
has_all() { [ -z "$(git -C "$folder/clone" ls-files --deleted)" ] && [ -e "$folder/clone/samples/demo_model/train/train.py" ]; }
says() { # status text command..
    local want=$1 text=$2 said status; shift 2
    said=$("$@" 2>&1)
    status=$?
    echo "$said"
    [ $status -eq "$want" ] && grep -qF -- "$text" <<<"$said"
}

# As if somebody else owned the folder, a clone in CI may be refused: git is told that this one is safe.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
if ! command -v git >/dev/null || ! git clone -q --shared . "$folder/clone" 2>"$folder/output.txt"; then
    echo "skip: test_run_gpu: this is no clone of the repository"
    finish 1
fi
cp tests/run_gpu.sh tests/test_run_gpu.sh tests/list.sh tests/list.txt "$folder/clone/tests/"
git -C "$folder/clone" add tests
git -C "$folder/clone" -c user.name=test -c user.email=test@localhost commit -qam "As it is in the work tree" >/dev/null 2>&1
run_gpu=$folder/clone/tests/run_gpu.sh
train=$folder/clone/samples/demo_model/train

echo "a change" >>"$train/train.py"
check "a change is not lost" says 1 "samples/demo_model/train/train.py" "$run_gpu" --sparse
check "and it is still there" grep -q '^a change$' "$train/train.py"
git -C "$folder/clone" checkout -q .
touch "$train/new.txt"
check "nor is a new file" says 1 "samples/demo_model/train/new.txt" "$run_gpu" --sparse
rm "$train/new.txt"
check "--sparse" says 0 "MiB" "$run_gpu" --sparse
check "the work tree is below 47 MiB" is_below 47
check "without the demo models" test ! -e "$folder/clone/samples/demo_model"
check "with the golden data" test -e "$folder/clone/tests/golden/z-image/model/model_index.json"
check "no file counts as deleted" is_clean
check "list.txt still fits the files" "$folder/clone/tests/list.sh" gpu gpu-alone
check "--sparse with a family" says 0 "MiB" "$run_gpu" --sparse qwen-image-21
check "its data stays" test -e "$folder/clone/tests/golden/qwen-image-21-wide/cases"
check "other data goes" test ! -e "$folder/clone/tests/golden/qwen-image/cases"
check "list.txt fits them" "$folder/clone/tests/list.sh" gpu gpu-alone
check "--sparse demo" says 0 "MiB" "$run_gpu" --sparse demo
check "with the demo models" test -e "$folder/clone/samples/demo_edit_model/vae/config.json"
check "the work tree is below 54 MiB" is_below 54
check "without golden cases" test ! -e "$folder/clone/tests/golden/z-image/cases"
check "with the tiny checkpoints" test -e "$folder/clone/tests/golden/z-image/model/model_index.json"
check "list.txt fits these files, too" "$folder/clone/tests/list.sh" gpu gpu-alone
check "without their training" test ! -e "$train"
check "--whole" says 0 "MiB" "$run_gpu" --whole
check "all files are back" has_all
check "an unknown part is refused" says 2 "--sparse" "$run_gpu" --sparse golden
finish
