#!/usr/bin/env bash
# samples/viewer as somebody at a keyboard meets it: on a virtual screen, with keys and a mouse. usage: tests/test_viewer.sh build/.../release [screenshot.png]
# BACKEND=cuda lets a GPU make the pictures: it must draw the window too, as the pictures are to be left in its textures.
# What the window did is read from its --report; pictures are compared with those of the command line. The last line is "viewer: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
screenshot=${2:-}
backend=${BACKEND:-cpu}
# Where on their sliders size, steps and budget are set: what a processor does soon, and what a GPU does not, so that there are previews and something to cancel.
size_at=-25 steps_at=-30 budget_at=90 budget_is="[34][0-9]" way="pixel buffer: the processor"
[ "$backend" = cpu ] || size_at=44 steps_at=45 budget_at=-95 budget_is="0\.[5-9]" way="GPU texture"
passed=0 failed=0
folder=$(mktemp -d)
report=$folder/report viewer= screen=
end() {
    [ -z "$viewer" ] || kill "$viewer" 2>/dev/null
    [ -z "$screen" ] || kill "$screen" 2>/dev/null
    wait
    rm -rf "$folder"
}
trap end EXIT

skip() { echo "skip: $1"; echo "viewer: 0 passed, 0 failed, 1 skipped"; exit 0; }
fail() { # what, detail
    failed=$((failed + 1))
    echo "FAILED: $1"
    [ -z "${2:-}" ] || sed 's/^/  /' <<<"$2" | tail -n 15
}
ok() { passed=$((passed + 1)); }
finish() { echo "viewer: $passed passed, $failed failed, 0 skipped"; [ "$failed" -eq 0 ]; exit; }
[ -x "$build/bin/viewer" ] || skip "there is no $build/bin/viewer: samples/setup.sh viewer installs what it is built with"
for program in Xvfb xdotool; do command -v $program >/dev/null || skip "there is no $program: samples/setup.sh tests installs it"; done

# ---- Hands and eyes -------------------------------------------------------------------------------------------------------------------
happened() { grep -cE "^event [0-9.]+ $1" "$report" 2>/dev/null; }
# Waits until an event has happened so many times.
await() { # what, pattern, times
    local i
    for i in $(seq 400); do
        if [ "$(happened "$2")" -ge "${3:-1}" ]; then ok; return 0; fi
        kill -0 "$viewer" 2>/dev/null || break
        sleep 0.05
    done
    fail "$1: no \"$2\"" "$(grep -v '^widget' "$report"; cat "$folder/log")"
    return 1
}
# Dear ImGui sees keys and buttons once in a frame, and a frame may be long where the processor draws it.
hold() { # a key, or Control and a key; the last one pressed goes up first, or it would repeat as a letter
    local key
    for key; do xdotool keydown "$key"; done
    sleep 0.3
    for key in "${2:-}" "$1"; do [ -z "$key" ] || xdotool keyup "$key"; done
    sleep 0.1
}
where() { awk -v name="$1" '$1 == "widget" && $2 == name { x = $3; y = $4 } END { print x, y }' "$report"; }
point() { set -- $(where "$1") "${2:-0}"; xdotool mousemove $(($1 + $3)) "$2"; sleep 0.25; } # widget, pixels to its right
click() { point "$@"; xdotool mousedown 1; sleep 0.25; xdotool mouseup 1; sleep 0.1; }
look() { "$folder/support" screen "$folder/Xvfb_screen0" "$1" 2>&1; } # prints size and number of colours

if ! cc -std=c11 -Isamples tests/cli_support.c samples/png.c samples/system.c -lspng -lz -lm -o "$folder/support" 2>"$folder/log"; then
    fail "tests/cli_support.c compiles" "$(cat "$folder/log")"
    finish
fi
exec 5>"$folder/display"
Xvfb -displayfd 5 -screen 0 1180x760x24 -fbdir "$folder" >"$folder/xvfb" 2>&1 &
screen=$!
for i in $(seq 100); do [ -s "$folder/display" ] && break; sleep 0.05; done
exec 5>&-
[ -s "$folder/display" ] || skip "Xvfb did not start: $(tail -n 1 "$folder/xvfb")"
DISPLAY=:$(cat "$folder/display")
export DISPLAY

# ---- A picture ------------------------------------------------------------------------------------------------------------------------
echo "no picture" >"$folder/broken.png"
"$build/bin/viewer" samples/demo_model "$folder/broken.png" --size 1180x760 --backend "$backend" --output "$folder/out" --report "$report" >"$folder/log" 2>&1 &
viewer=$!
for i in $(seq 100); do [ -s "$report" ] && break; kill -0 "$viewer" 2>/dev/null || break; sleep 0.05; done
if ! kill -0 "$viewer" 2>/dev/null && grep -qE 'OpenGL|GLX|EGL' "$folder/log"; then skip "the screen has no OpenGL 3.3: $(tail -n 1 "$folder/log")"; fi
await "the demo model opens" "ready demo_model" || finish
await "a file that is no PNG is a sentence in the window" "failure .*broken.png is not a PNG file"
click close-banner
xdotool windowfocus "$(xdotool search --name '^sumi$' | tail -n 1)"
click prompt
hold ctrl a
prompt="a red house to the left of a green tree, watercolour"
xdotool type --delay 15 "$prompt"
click width $size_at
click height $size_at
click steps $steps_at
click budget $budget_at
await "the budget's slider moves" "budget $budget_is"
click prompt
hold Return
await "Enter starts the picture" "generate 7 [1-9][0-9]+x[1-9][0-9]+ [1-9][0-9]? $prompt$" || finish
await "a preview is shown" "preview"
await "the picture is done" "done 7" || finish
await "it comes to the screen by the shortest way" "shown by $way" || grep ' shown by ' "$report"
sleep 0.6 # it fades in
seen=$(look "$folder/screen.png")
colours=$(sed -n 's/.*, \([0-9]*\) colours/\1/p' <<<"$seen")
if [ "${colours:-0}" -gt 2000 ]; then ok; else fail "the picture is on the screen: $seen"; fi
xdotool key ctrl+s
await "Ctrl+S saves" "saved"
first=$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)

read -r size steps < <(sed -n 's/^event [0-9.]* generate 7 \([0-9x]*\) \([0-9]*\) .*/\1 \2/p' "$report" | head -n 1)
same() { # what, saved file, arguments of sumi generate
    local what=$1 saved=$2 text; shift 2
    if text=$("$build/bin/sumi" generate --model samples/demo_model --prompt "$prompt" --size "$size" --steps "$steps" --seed 7 --backend "$backend" -o "$folder/same.png" "$@" 2>&1 \
              && "$folder/support" pictures "$saved" "$folder/same.png" 0 2>&1); then ok; else fail "$what" "$text"; fi
}
same "the saved picture is that of the command line" "$first"
if [ "$("$folder/support" parameters "$first" | head -n 1)" = "$prompt" ]; then ok; else fail "the saved picture tells its prompt" "$("$folder/support" parameters "$first")"; fi

# ---- From a picture, with a mask --------------------------------------------------------------------------------------------------------
click use
await "the picture is taken to start from" "start $size"
click go
await "a picture from a picture is done" "done 7" 2
click save
await "Save saves" "saved" 2
strength=$("$folder/support" parameters "$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)" | sed -n 's/.*Denoising strength: \([0-9.]*\).*/\1/p')
same "a picture from a picture is that of the command line" "$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)" --image "$first" --strength "${strength:-0}"
click start
point brush
xdotool mousedown 1; sleep 0.2; xdotool mousemove_relative -- 120 40; sleep 0.2; xdotool mouseup 1
await "the brush paints a mask" "mask [1-9]"
[ -z "$screenshot" ] || look "$screenshot" >/dev/null
click go
await "a mask starts a picture" "generate 7" 3
hold Escape
await "Escape cancels it" "cancelled"

# ---- The history, and the end -----------------------------------------------------------------------------------------------------------
click entry-1
await "a click in the history brings back its seed" "restored 7"
if [ "$(happened 'failure')" -eq 1 ]; then ok; else fail "nothing else failed" "$(grep ' failure ' "$report")"; fi
quit() {
    local i code
    hold ctrl q
    for i in $(seq 100); do kill -0 "$viewer" 2>/dev/null || break; sleep 0.05; done
    if kill -0 "$viewer" 2>/dev/null; then fail "Ctrl+Q ends the program"; finish; fi
    wait "$viewer"; code=$?
    viewer=
    if [ "$code" -eq 0 ] && [ ! -s "$folder/log" ]; then ok; else fail "it ends with exit code 0 and has printed nothing: $code" "$(cat "$folder/log")"; fi
}
quit

# Limits for a busy machine that draws by its processor. A picture that is made in one frame, or a wait for one, takes longer.
number() { awk -v name="$1" '$1 == name { print $2 }' "$report"; }
below() { # what, name, limit
    if awk -v value="$(number "$2")" -v limit="$3" 'BEGIN { exit !(value != "" && value < limit) }'; then ok; else fail "$1: $2 is $(number "$2"), limit $3"; fi
}
below "half of the frames are short" median_ms 200
below "no frame is held up" longest_ms 1000
below "updates keep their budget" median_update_ms 50
below "nearly all of them do" p99_update_ms 150
grep -E '^[a-z0-9_]+(_ms|s) [0-9.]+$' "$report" | paste -sd ' '

# ---- Straight into textures -----------------------------------------------------------------------------------------------------------------
# What a GPU does is played by tests/fake_cuda, whose pictures are a pattern (tests/viewer_gl.c).
fake=$build/fake
[ "$backend" = cpu ] && [ -e "$fake/libcuda.so.1" ] || finish
if ! cc -std=c11 -shared -fPIC -I. -Itests/fake_cuda tests/viewer_gl.c -L"$fake" -lfake_cuda -o "$folder/viewer_gl.so" 2>"$folder/log"; then
    fail "tests/viewer_gl.c compiles" "$(cat "$folder/log")"
    finish
fi
begin_direct() { # name, a variable for it
    report=$folder/$1
    : >"$report"
    env LD_PRELOAD="$folder/viewer_gl.so" LD_LIBRARY_PATH="$fake" ${2:-} \
        "$build/bin/viewer" samples/demo_model --size 1180x760 --backend cuda --output "$folder/$1.out" --report "$report" >"$folder/log" 2>&1 &
    viewer=$!
    await "$1: the demo model opens" "ready demo_model" || finish
    xdotool windowfocus "$(xdotool search --name '^sumi$' | tail -n 1)"
    click prompt
}
saves() { # what, times, number of the picture
    local text
    hold ctrl s
    await "$1 is saved" "saved" "$2" || return
    if text=$("$folder/support" pattern "$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)" "$3" 2>&1); then ok; else fail "$1 is what the GPU left in its texture" "$text"; fi
}
begin_direct textures
click width 44
click height 44
for i in 1 2 3; do # in turns: one texture is shown while the other one is written
    click prompt
    hold Return
    await "picture $i is left in a texture" "shown by GPU texture" $i || finish
    saves "picture $i" $i $i
    seen=$(look "$folder/screen.png")
    colours=$(sed -n 's/.*, \([0-9]*\) colours/\1/p' <<<"$seen")
    if [ "${colours:-0}" -gt 2000 ]; then ok; else fail "picture $i is on the screen: $seen"; fi
    [ $i -eq 2 ] && click width -40 # the next one needs another texture
done
click entry-2
await "a picture of the history is brought back" "restored"
saves "a picture of the history" 4 1
click use
await "a picture is started from" "start "
if [ "$(happened 'failure')" -eq 0 ]; then ok; else fail "nothing failed" "$(grep ' failure ' "$report")"; fi
quit

begin_direct other_gpu NO_TEXTURES=1
hold Return
await "a picture that cannot be left in a texture comes through host memory" "shown by pixel buffer: importing an OpenGL texture"
hold ctrl s
await "and is saved" saved
quit
finish
