#!/usr/bin/env bash
# The samples that a host programmer copies from do what they say: each makes the very picture that the command line makes. usage: tests/test_samples.sh build/.../release
# The last line is "samples: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
bin=$build/bin
model=samples/demo_model prompt="a red house on the grass"
passed=0 failed=0
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
same() { check "$1" "$folder/support" pictures "$2" "$3" 0; }

cc -std=c11 -Isamples tests/cli_support.c samples/png.c samples/system.c -lspng -lz -lm -o "$folder/support" || { echo "samples: 0 passed, 1 failed, 0 skipped"; exit 1; }
draw() { "$bin/sumi" generate --quiet --model $model --prompt "$prompt" --seed 7 "$@"; }
check "the command line" draw -o "$folder/model.png" --trace "$folder/trace.json"
check "the preview preset" draw --preset preview -o "$folder/preview.png"

check "hello" "$bin/hello" $model "$prompt" "$folder/hello.png" && same "hello's picture" "$folder/hello.png" "$folder/model.png"
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
    check "bench's report" "$bin/bench" --synthetic newbie-tiny --report --sizes 64 --steps 2 --guided-steps 2 --batch 2 --tokens 40 --seconds 0
    cp "$out" "$folder/report"
    for row in 'text, 40 tokens' 'text, 512 tokens, wall' 'the same from its saved form, 512 tokens' 'forward, 64x64' 'guided step, 64x64' 'guided picture of 2 steps, 64x64' 'one of a batch of 2, 64x64'; do
        check "bench's report has \"$row\"" grep -qE "^\\| $row +\\| +[0-9]" "$folder/report"
    done
    check "bench without the text encoders" bench --synthetic newbie-tiny --without-text-encoder
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

echo "samples: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
