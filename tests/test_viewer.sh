#!/usr/bin/env bash
# samples/apps/viewer as somebody at a keyboard meets it: on a virtual screen, with keys and a mouse. usage: tests/test_viewer.sh build/.../release [screenshot.png [SECTION ...]]
# FORM_SCREENSHOT=form.png keeps what the form for prompts in XML looks like, REUSE_SCREENSHOT the slider for step caching.
# BACKEND=cuda lets a GPU make the pictures: it must draw the window too, as the pictures are to be left in its textures.
# What the window did is read from its --report; pictures are compared with those of the command line. The last line is "viewer: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
support=$build/bin/cli_support
screenshot=${2:-}
backend=${BACKEND:-cpu}
# Size and steps: what a processor does soon, and what a GPU does not. With the smallest budget a picture takes hundreds of frames, so that there is something to look at, and to
# cancel; with the largest one it is done soon.
side=112 steps=6 way="pixel buffer: the processor" least_budget_at=-95 most_budget_at=90
[ "$backend" = cpu ] || side=1024 steps=40 way="GPU texture"
passed=0 failed=0 patience=${PATIENCE:-4000} # of looks, 0.02 to 0.05 s apart: whoever runs this ends what hangs
folder=$(mktemp -d)
report=$folder/report viewer= screen=
export XDG_STATE_HOME=$folder/state # where the paths of models are kept that were opened
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

# Waits without starting a program: the looks below are thousands.
exec {nothing}<> <(:)
pause() { read -rt "$1" -u "$nothing" || true; }

# ---- Hands and eyes -------------------------------------------------------------------------------------------------------------------
happened() { grep -cE "^event [0-9.]+ $1" "$report" 2>/dev/null; }
# Waits until an event has happened so many times: for minutes, for a busy machine is no failure.
await() { # what, pattern, times
    local i
    for ((i = 0; i < patience; i++)); do
        if [ "$(happened "$2")" -ge "${3:-1}" ]; then ok; return 0; fi
        kill -0 "$viewer" 2>/dev/null || break
        pause 0.05
    done
    fail "$1: no \"$2\"" "$(grep -vE '^(widget|frame)' "$report"; cat "$folder/log")"
    return 1
}
# Until so many more frames were drawn, none of which had begun before. Dear ImGui sees keys and buttons once in a frame: what is pressed and released within one has not happened.
frames() {
    local i drawn
    drawn=$(grep -c '^frame$' "$report")
    for ((i = 0; i < patience; i++)); do
        [ "$(grep -c '^frame$' "$report")" -le $((drawn + $1)) ] || return 0
        kill -0 "$viewer" 2>/dev/null || return 0
        pause 0.02
    done
}
hold() { # a key, or Control and a key; the last one pressed goes up first, or it would repeat as a letter
    local key
    for key; do xdotool keydown "$key"; done
    frames 3
    for key in "${2:-}" "$1"; do [ -z "$key" ] || xdotool keyup "$key"; done
    frames 2
}
where() { awk -v name="$1" '$1 == "widget" && $2 == name { x = $3; y = $4 } END { print x, y }' "$report"; }
# To a widget, and so many pixels to its right. It may be drawn a frame after what made it appear, and the panel may have to be scrolled to it.
point() {
    local i at
    for ((i = 0; i < patience; i++)); do
        at=$(where "$1")
        case $at in
            *[0-9]*) break ;;
            above* | below*)
                xdotool mousemove 26 120
                frames 2
                xdotool click "$([[ $at == above* ]] && echo 4 || echo 5)"
                frames 2 ;;
        esac
        kill -0 "$viewer" 2>/dev/null || break
        pause 0.02
    done
    [[ "$at" == *[0-9]* ]] || { fail "there is a widget $1 to point at" "$(cat "$folder/log")"; finish; }
    set -- $at "${2:-0}"
    xdotool mousemove $(($1 + $3)) "$2"
    frames 3
}
click() { point "$@"; xdotool mousedown 1; frames 3; xdotool mouseup 1; frames 2; }
tool() { # a button above the picture, which may be in the menu
    [[ "$(where "$1")" == *[0-9]* ]] || click more
    click "$1"
}
budget() { # where on its slider; it is beside the graphs, which F2 shows
    [[ "$(where budget)" == *[0-9]* ]] || hold F2
    click budget "$1"
}
set_to() { # a slider, a number that is typed into it
    point "$1"
    xdotool keydown ctrl
    frames 2
    xdotool mousedown 1
    frames 3
    xdotool mouseup 1 keyup ctrl
    frames 3
    xdotool type --delay 20 "$2"
    frames 2
    hold Return
}
# The widgets in sight that lie over each other: none do in a window without banners, menus and a start picture.
overlaps() {
    awk '$1 == "widget" && NF == 6 { x[$2] = $3; y[$2] = $4; w[$2] = $5; h[$2] = $6; seen[$2] = 1 }
         $1 == "widget" && NF == 3 { seen[$2] = 0 }
         END { for (a in seen) for (b in seen) if (a < b && seen[a] && seen[b] && 2 * (x[a] - x[b]) < w[a] + w[b] && 2 * (x[b] - x[a]) < w[a] + w[b] &&
                       2 * (y[a] - y[b]) < h[a] + h[b] && 2 * (y[b] - y[a]) < h[a] + h[b]) print a, "and", b }' "$report"
}
look() { "$support" screen "$folder/Xvfb_screen0" "$1" 2>&1; } # prints size and number of colours
await_colours() { # what: a picture fades in
    local i seen colours
    for ((i = 0; i < patience; i++)); do
        seen=$(look "$folder/screen.png")
        colours=$(sed -n 's/.*, \([0-9]*\) colours/\1/p' <<<"$seen")
        if [ "${colours:-0}" -gt 2000 ]; then ok; return; fi
        kill -0 "$viewer" 2>/dev/null || break
        pause 0.05
    done
    fail "$1 is on the screen: $seen"
}

[ -x "$support" ] || fail "there is no $support"
exec 5>"$folder/display"
Xvfb -displayfd 5 -screen 0 1180x760x24 -fbdir "$folder" >"$folder/xvfb" 2>&1 &
screen=$!
for ((i = 0; i < patience; i++)); do [ -s "$folder/display" ] && break; kill -0 "$screen" 2>/dev/null || break; pause 0.05; done
exec 5>&-
[ -s "$folder/display" ] || skip "Xvfb did not start: $(tail -n 1 "$folder/xvfb")"
DISPLAY=:$(cat "$folder/display")
export DISPLAY

# ---- One viewer after the other -------------------------------------------------------------------------------------------------------
place=. # the folder that a viewer is started in
begin() { # name of the report, size of the window, arguments
    local i
    report=$folder/$1
    : >"$report"
    (cd "$place" && exec "$build/bin/viewer" --size "$2" --backend "$backend" --output "$folder/out" --seed 7 --report "$report" "${@:3}") >"$folder/log" 2>&1 &
    viewer=$!
    for ((i = 0; i < patience; i++)); do [ -s "$report" ] && break; kill -0 "$viewer" 2>/dev/null || break; pause 0.05; done
    if ! kill -0 "$viewer" 2>/dev/null && grep -qE 'OpenGL|GLX|EGL' "$folder/log"; then skip "the screen has no OpenGL 3.3: $(tail -n 1 "$folder/log")"; fi
}
quit() {
    local i code
    hold ctrl q
    for ((i = 0; i < patience; i++)); do kill -0 "$viewer" 2>/dev/null || break; pause 0.05; done
    if kill -0 "$viewer" 2>/dev/null; then fail "Ctrl+Q ends the program"; finish; fi
    wait "$viewer"; code=$?
    viewer=
    if [ "$code" -eq 0 ] && [ ! -s "$folder/log" ]; then ok; else fail "it ends with exit code 0 and has printed nothing: $code" "$(cat "$folder/log")"; fi
}
focus() { xdotool windowfocus "$(xdotool search --name '^sumi$' | tail -n 1)"; }
open_model() { # the chooser, with a path typed into it
    hold ctrl o
    click path
    hold ctrl a
    xdotool type --delay 15 "$1"
    frames 3
    hold Return
}
# ---- The form ------------------------------------------------------------------------------------------------------------------------
test_form() {
    begin form 640x420 samples/demo_model
    await "the demo model opens" "ready demo_model" || finish
    focus
    click prompt
    set_to width 320
    await "a typed size counts pixels" "size 320x[0-9]*$"
    set_to height 107
    await "and is rounded to what the model can do" "size 320x112$"
    open_model "$folder/none.gguf"
    await "a model that does not exist is a sentence in the window" "failure There is no file or folder $folder/none.gguf" || finish
    if [ "$(happened 'ready')" -eq 1 ]; then ok; else fail "the model that is open stays open" "$(grep ready "$report")"; fi
    echo "no model" >"$folder/broken.gguf"
    open_model "$folder/broken.gguf"
    await "a model that cannot be opened is a sentence in the window" "failure .*broken.gguf" || finish
    await "the model from before opens again" "ready demo_model" 2 || finish
    hold ctrl o
    await "the chooser lists a folder" "folder .*/samples" 3
    click path
    hold ctrl a
    xdotool type --delay 15 "/no/such/folder"
    hold Return
    await "a folder that does not exist is not listed" "no folder /no/such/folder"
    click chooser-cancel
    hold ctrl o
    await "and is not where the chooser begins the next time" "folder .*/samples" 4
    click chooser-cancel
    click prompt
    hold Return
    await "the form has stayed as it was" "generate [0-9]* 320x112 "
    hold Escape
    quit
}

# ---- Text out of files -----------------------------------------------------------------------------------------------------------------
# Names that hold control characters: of a model, and of a tensor that a message quotes.
test_names() {
    local evil
    evil=$(printf 'a\033]0;x\007\302\233b\177\tc\302\205')
    ln -s "$PWD/samples/demo_model" "$folder/$evil"
    begin names 640x420 "$folder/$evil"
    await "a model opens whose name has control characters" 'ready a\\x1b\]0;x\\x07\\xc2\\x9bb\\x7f\\x09c\\xc2\\x85' || finish
    focus
    "$support" merge "$folder/names.safetensors" 'b\u001b\u009bcontrol=tests/golden/z-image/model/vae/diffusion_pytorch_model.safetensors' || fail "a file with such names"
    open_model "$folder/names.safetensors"
    # "control" in a name: the library is asked whether it is a control net, before it is asked for a model.
    await "a message that quotes a name" "failure Opening .*names.safetensors" || finish
    quit
    if LC_ALL=C grep -qE $'[\x01-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$report"; then fail "control characters in the report" "$(cat -v "$report")"; else ok; fi
}

# ---- The smallest window, with a picture and the form for prompts in XML ---------------------------------------------------------------
test_small() {
    begin small 320x240 samples/demo_model
    await "a window has a least size" "window 640x420"
    await "the demo model opens" "ready demo_model" || finish
    focus
    click prompt
    set_to width 64
    set_to height 64
    hold Return
    await "a picture is done in the smallest window" "done"
    click save
    await "and is saved" "saved"
    if [ -z "$(overlaps)" ]; then ok; else fail "nothing lies over anything else in the smallest window" "$(overlaps)"; fi
    tool use
    await "it is started from" "start "
    click view-0
    frames 3
    if [ -z "$(overlaps)" ]; then ok; else fail "nor with a picture to start from" "$(overlaps)"; fi
    [ -z "${SMALL_SCREENSHOT:-}" ] || look "$SMALL_SCREENSHOT" >/dev/null
    click prompt-as-1
    await "the prompt is a form" "prompt is a form"
    frames 3
    if [ -z "$(overlaps)" ]; then ok; else fail "nor in the form for prompts in XML" "$(overlaps)"; fi
    click xml-0-gender
    xdotool type --delay 15 "1girl"
    hold Return
    await "its fields can be typed into" "generate .*1girl"
    quit
}

# ---- A picture ------------------------------------------------------------------------------------------------------------------------
test_picture() {
    echo "no picture" >"$folder/broken.png"
    begin report 1180x760 samples/demo_model "$folder/broken.png"
    await "the demo model opens" "ready demo_model" || finish
    await "a file that is no PNG is a sentence in the window" "failure .*broken.png is not a PNG, JPEG or WebP file"
    click close-banner
    focus
    click prompt
    hold ctrl a
    prompt="a red house to the left of a green tree, watercolour"
    xdotool type --delay 15 "$prompt"
    set_to width $side
    set_to height $side
    set_to steps $steps
    budget $least_budget_at
    await "the budget's slider moves" "budget 0\.[5-9]"
    click prompt
    hold Return
    await "Enter starts the picture" "generate 7 [1-9][0-9]+x[1-9][0-9]+ [1-9][0-9]? $prompt$" || finish
    await "a preview is shown" "preview"
    if [ "$backend" = cpu ]; then
        budget $most_budget_at
        await "the budget's slider moves while a picture is made" "budget [34][0-9]"
    fi
    await "the picture is done" "done 7" || finish
    # What somebody did meanwhile has happened before the picture was done: no frame waits for it.
    happenings=$(sed -n 's/^event [0-9.]* \(generate\|preview\|budget [34]\|done\).*/\1/p' "$report" | tr -d ' 34' | paste -sd ' ')
    wanted="generate preview$([ "$backend" = cpu ] && echo " budget") done"
    if [ "$(tr ' ' '\n' <<<"$happenings" | uniq | paste -sd ' ')" = "$wanted" ]; then ok; else fail "the window goes on while a picture is made" "$happenings"; fi
    await "it comes to the screen by the shortest way" "shown by $way" || grep ' shown by ' "$report"
    await_colours "the picture"
    xdotool key ctrl+s
    await "Ctrl+S saves" "saved"
    first=$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)

    read -r size steps < <(sed -n 's/^event [0-9.]* generate 7 \([0-9x]*\) \([0-9]*\) .*/\1 \2/p' "$report" | head -n 1)
    same() { # what, saved file, arguments of sumi generate
        local what=$1 saved=$2 text; shift 2
        if text=$("$build/bin/sumi" generate --model samples/demo_model --prompt "$prompt" --size "$size" --steps "$steps" --seed 7 --backend "$backend" -o "$folder/same.png" "$@" 2>&1 \
                  && "$support" pictures "$saved" "$folder/same.png" 0 2>&1); then ok; else fail "$what" "$text"; fi
    }
    same "the saved picture is that of the command line" "$first"
    if [ "$("$support" parameters "$first" | head -n 1)" = "$prompt" ]; then ok; else fail "the saved picture tells its prompt" "$("$support" parameters "$first")"; fi

    # ---- From a picture, with a mask --------------------------------------------------------------------------------------------------------
    tool use
    await "the picture is taken to start from" "start $size"
    click go
    await "a picture from a picture is done" "done 7" 2
    click save
    await "Save saves" "saved" 2
    strength=$("$support" parameters "$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)" | sed -n 's/.*Denoising strength: \([0-9.]*\).*/\1/p')
    same "a picture from a picture is that of the command line" "$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)" --image "$first" --strength "${strength:-0}"
    click start
    point brush
    xdotool mousedown 1; frames 3; xdotool mousemove_relative -- 120 40; frames 3; xdotool mouseup 1
    await "the brush paints a mask" "mask [1-9]"
    [ -z "$screenshot" ] || look "$screenshot" >/dev/null
    budget $least_budget_at
    click go
    await "a mask starts a picture" "generate 7" 3
    hold Escape
    await "Escape cancels it" "cancelled"

    # ---- The history, and the end -----------------------------------------------------------------------------------------------------------
    click entry-1
    tool use-settings
    await "a picture of the history brings back its seed" "restored 7"
    if [ "$(happened 'failure')" -eq 1 ]; then ok; else fail "nothing else failed" "$(grep ' failure ' "$report")"; fi
    quit

    # How long they took says something of the machine too, so it is told and not judged: that an update keeps its budget is in test_engine_time, on a clock that nobody else turns.
    number() { awk -v name="$1" '$1 == name { print $2 }' "$report"; }
    if [ "$(number frames)" = "$(grep -c '^frame$' "$report")" ] && [ "$(number updates)" -gt 0 ] && [ "$(number updates)" -lt "$(number frames)" ]; then ok
    else fail "the report's sums: $(number frames) frames, $(number updates) updates"; fi
    grep -E '^[a-z0-9_]+(_ms|s) [0-9.]+$' "$report" | paste -sd ' '
}

# ---- A prompt in XML ------------------------------------------------------------------------------------------------------------------------
test_xml() {
    begin xml_report 1180x560 samples/demo_model
    await "the demo model opens" "ready demo_model" || finish
    focus
    click prompt
    set_to width $side
    set_to height $side
    budget $most_budget_at
    click prompt-as-1
    await "the prompt becomes a form" "prompt is a form" || finish
    click xml-0-gender
    xdotool type --delay 15 "1girl"
    click xml-add
    await "a character is added" "characters 2"
    click xml-1-gender
    xdotool type --delay 15 "1boy"
    click xml-1-appearance
    xdotool type --delay 15 "red_hair, <3"
    click xml-0-remove
    await "one is removed" "characters 1"
    click xml-style
    xdotool type --delay 15 "watercolour"
    xdotool click --repeat 30 --delay 20 5 # the wheel: to the end of the form
    frames 3
    click xml-caption
    xdotool type --delay 15 "A red house."
    [ -z "${FORM_SCREENSHOT:-}" ] || look "$FORM_SCREENSHOT" >/dev/null
    hold Return
    written=(--character "gender=1boy; appearance=red_hair, <3" --tags "style=watercolour" --caption "A red house.")
    "$build/bin/sumi" xml "${written[@]}" >"$folder/wanted.xml"
    line=$(paste -sd ' ' "$folder/wanted.xml")
    await "Enter sends what the form says" "generate 7 [1-9][0-9]*x[1-9][0-9]* [1-9][0-9]* ${line//\$/\\$}$" || finish
    await "the picture is done" "done 7" || finish
    xdotool key ctrl+s
    await "it is saved" "saved"
    described=$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)
    read -r size steps < <(sed -n 's/^event [0-9.]* generate 7 \([0-9x]*\) \([0-9]*\) .*/\1 \2/p' "$report" | head -n 1)
    if text=$("$build/bin/sumi" generate --model samples/demo_model "${written[@]}" --size "$size" --steps "$steps" --seed 7 --backend "$backend" -o "$folder/same.png" 2>&1 \
              && "$support" pictures "$described" "$folder/same.png" 0 2>&1); then ok; else fail "it is the command line's" "$text"; fi
    "$support" parameters "$described" | head -n "$(wc -l <"$folder/wanted.xml")" >"$folder/tells"
    if cmp -s "$folder/wanted.xml" "$folder/tells"; then ok; else fail "it tells the text that was sent" "$(cat "$folder/tells")"; fi
    click prompt-as-0
    await "the prompt is a text again" "prompt is a text"
    click go
    await "the typed text has stayed" "generate 7 .* a yellow moon above a purple cat at night, watercolour$"
    await "its picture is done" "done 7" 2
    click entry-1
    tool use-settings
    await "a picture of the history brings back the form" "restored 7"
    click go
    await "with what was in it" "generate 7 .* ${line//\$/\\$}$" 2
    await "and its picture is done" "done 7" 3
    if [ "$(happened 'failure')" -eq 0 ]; then ok; else fail "nothing failed" "$(grep ' failure ' "$report")"; fi
    quit
}

# ---- Pictures to edit -----------------------------------------------------------------------------------------------------------------------
test_edit() {
    local follow=256
    [ "$backend" = cpu ] || follow=1024
    # The tiny edit model lies in layers. Pictures of the command line come in as those that are dropped.
    qwen=tests/golden/qwen-image
    mkdir "$folder/edit"
    cp -r $qwen/model/. $qwen/model-edit/processor $qwen/model-edit-2509/model_index.json "$folder/edit"
    # A processor takes seconds for 1024 x 1024 pixels.
    sed -i "s/\"_class_name\"/\"sample_size\": $follow, &/" "$folder/edit/vae/config.json"
    begin edit_report 760x560 "$folder/edit" tests/pictures/cat.png tests/pictures/house.png
    await "the edit model opens" "ready edit" || finish
    await "two pictures are to be edited" "references 2" || finish
    if [ "$(happened 'start ')" -eq 0 ]; then ok; else fail "none of them is one to start from" "$(cat "$report")"; fi
    focus
    click prompt
    hold ctrl a
    xdotool type --delay 15 "the hat"
    click preset-4 # Fast
    click follows
    set_to width $side
    set_to height $side
    click prompt
    hold Return
    await "a picture is made of two" "generate 7 [1-9][0-9]*x[1-9][0-9]* 4 the hat$" || finish
    await "it is done" "done 7" || finish
    xdotool key ctrl+s
    await "it is saved" "saved"
    edited=$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)
    size=$(sed -n 's/^event [0-9.]* generate 7 \([0-9x]*\) .*/\1/p' "$report" | tail -n 1)
    if text=$("$build/bin/sumi" generate --model "$folder/edit" --prompt "the hat" --preset fast --size "$size" --seed 7 --backend "$backend" --reference tests/pictures/cat.png --reference tests/pictures/house.png -o "$folder/same.png" 2>&1 \
              && "$support" pictures "$edited" "$folder/same.png" 0 2>&1); then ok; else fail "it is the command line's" "$text"; fi
    if "$support" parameters "$edited" | grep -q "References: 2"; then ok; else fail "it tells how many" "$("$support" parameters "$edited")"; fi
    click reference-0
    await "a click removes one" "references 1"
    tool use-too
    await "a picture that was made is one of those to edit" "references 2" 2
    click use-as-1
    tool use
    await "or started from" "start $size"
    click remove-start
    await "or not" "no start"
    click use-as-0
    click reference-1
    await "the pictures to edit are still there" "references 1" 2
    click follows
    click go
    await "the next one is as large as what it edits" "done 7" 2
    [ "$(happened 'generate')" -eq 2 ] && ok || fail "two pictures were made" "$(cat "$report")"
    xdotool key ctrl+s
    await "it is saved" "saved" 2
    last=$("$support" size "$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)")
    if [ "$last" = ${follow}x$follow ]; then ok; else fail "a square's size is a square's: $last"; fi
    if [ "$(happened 'failure')" -eq 0 ]; then ok; else fail "nothing failed" "$(grep ' failure ' "$report")"; fi
    quit
}

# ---- A model that draws and edits -----------------------------------------------------------------------------------------------------------
# FLUX.2 [klein] takes 0 to 10 pictures to edit. They are small, and the first one has another shape than the others.
equals_klein() { # what, model, arguments of sumi generate
    local text
    if text=$("$build/bin/sumi" generate --model "$2" --backend "$backend" --seed 7 -o "$folder/same.png" "${@:3}" 2>&1 && "$support" pictures "$(last_saved)" "$folder/same.png" 0 2>&1); then ok
    else fail "$1" "$text"; fi
}
test_klein() {
    local klein=tests/golden/flux2-klein base=$folder/klein-base pictures=() references=() i first description="a yellow moon above a purple cat at night, watercolour"
    mkdir "$base"
    cp -r $klein/model/. $klein/model-base/. "$base"
    make_place
    for i in 0 1 2 3 4 5 6 7 8 9 10; do
        "$support" part "tests/pictures/$([ $((i % 2)) = 0 ] && echo cat || echo house).png" $((i * 16)) $((i * 8)) $((i == 0 ? 96 : 64)) 64 "$folder/picture-$i.png"
        pictures+=("$folder/picture-$i.png")
    done
    begin klein 760x560 $klein/model "${pictures[@]}"
    await "a model opens that draws and edits" "ready model" || finish
    await "it takes ten pictures to edit" "references 10" || finish
    await "the eleventh one is refused by a sentence" "failure This model edits at most 10 pictures at once" || finish
    focus
    frames 3
    if [ "$(where negative)$(where guidance)" = "gone gone " ] && [ "$(happened 'start ')" -eq 0 ]; then ok; else fail "a distilled model has no guidance and no negative prompt, and none of the pictures is one to start from" "$(cat "$report")"; fi
    click close-banner
    no_overlap "nothing lies over anything else with ten pictures"
    # The fourth one to the first place: the others move on.
    set -- $(where reference-3) $(where reference-0)
    xdotool mousemove "$1" "$2"; frames 3; xdotool mousedown 1; frames 3; xdotool mousemove $((($1 + $3) / 2)) "$4"; frames 3; xdotool mousemove "$3" "$4"; frames 3; xdotool mouseup 1
    await "a drag changes their order" "reference 3 to 0"
    [ -z "${KLEIN_SCREENSHOT:-}" ] || { frames 5; look "$KLEIN_SCREENSHOT" >/dev/null; }
    click go
    await "the size follows from the first one" "generate 7 64x64 4 $description$" || finish
    await "a picture is made of ten" "done 7" || finish
    hold ctrl s
    await "and saved" "saved"
    for i in 3 0 1 2 4 5 6 7 8 9; do references+=(--reference "$folder/picture-$i.png"); done
    equals_klein "it is the command line's, in their order" $klein/model --prompt "$description" "${references[@]}"
    if "$support" parameters "$(last_saved)" | grep -q "References: 10"; then ok; else fail "the file tells how many" "$("$support" parameters "$(last_saved)")"; fi

    open_model "$folder/place/samples/demo_edit_model"
    await "the chooser lists the folder" "folder $folder/place/samples/demo_edit_model"
    click chooser-open
    await "a model opens that takes three" "ready demo_edit_model" || finish
    set_to steps 1
    click go
    await "the first three are used, and the prompt stays" "generate 7 [0-9x]* 1 $description$"
    await "a picture is made" "done 7" 2
    hold ctrl s
    await "and saved" "saved" 2
    if [ "$(happened 'references')" -eq 10 ] && "$support" parameters "$(last_saved)" | grep -q "References: 3"; then ok; else fail "the file tells how many" "$("$support" parameters "$(last_saved)")"; fi
    quit

    # From a text alone, from that picture, and both from and to it.
    begin klein_base 760x560 "$base"
    await "a model opens that was not distilled" "ready klein-base" || finish
    focus
    click prompt
    set_to width 64
    set_to height 96
    set_to steps 2
    set_to guidance 3
    click go
    await "a picture is made from a text" "done 7" || finish
    hold ctrl s
    await "and saved" "saved"
    first=$(last_saved)
    equals_klein "it is the command line's" "$base" --prompt "$description" --size 64x96 --steps 2 --guidance 3
    tool use
    await "it is the one to edit" "edits 64x96"
    click go
    await "an edited picture is made" "generate 7 64x96 2 $description$" 2
    await "and done" "done 7" 2
    click use-as-1
    tool use
    await "the next one is started from it, too" "start 64x96"
    click go
    await "a picture is made of both" "done 7" 3
    hold ctrl s
    await "and saved" "saved" 2
    "$build/bin/sumi" generate --quiet --model "$base" --backend "$backend" --seed 7 -o "$folder/second.png" --prompt "$description" --steps 2 --guidance 3 --reference "$first"
    equals_klein "it is the command line's" "$base" --prompt "$description" --steps 2 --guidance 3 --reference "$first" --image "$folder/second.png" --strength "$("$support" parameters "$(last_saved)" | sed -n 's/.*Denoising strength: \([0-9.]*\).*/\1/p')"
    click entry-2
    tool use-settings
    await "the settings of a picture from a text have no picture to edit" "references 0"
    click entry-1
    tool use-settings
    await "those of an edited one have it" "references 1" 2
    if [ "$(happened 'failure')" -eq 0 ]; then ok; else fail "nothing failed" "$(grep ' failure ' "$report")"; fi
    quit
}

# ---- The menu of models -----------------------------------------------------------------------------------------------------------------
# A folder with both demo models, as they lie beside the sources. The one that edits is the tiny one of the golden data, which is as small as pictures need to be here.
make_place() {
    local qwen=tests/golden/qwen-image edits=$folder/place/samples/demo_edit_model
    [ ! -e "$edits" ] || return 0
    mkdir -p "$edits/lora"
    ln -s "$PWD/samples/demo_model" "$folder/place/samples/demo_model"
    cp -r $qwen/model/. $qwen/model-edit/processor $qwen/model-edit-2509/model_index.json "$edits"
    sed -i 's/"_class_name"/"sample_size": 96, &/' "$edits/vae/config.json"
    sed -i 's/"_class_name"/"sumi": {"steps": 20, "guidance": 2}, &/' "$edits/model_index.json" # as in the real one
    cp $qwen/lora/lightning-4steps-bf16.safetensors "$edits/lora/turbo.safetensors"
    echo "no adapter" >"$edits/lora/notes.safetensors"
}
equals_edit() { # what, arguments of sumi generate
    local text
    if text=$("$build/bin/sumi" generate --model "$folder/place/samples/demo_edit_model" --backend "$backend" --seed 7 -o "$folder/same.png" "${@:2}" 2>&1 && "$support" pictures "$(last_saved)" "$folder/same.png" 0 2>&1); then ok
    else fail "$1" "$text"; fi
}
no_overlap() { # what; lines of the menu lie over the form, but not over each other
    local seen
    frames 3
    seen=$(overlaps | grep -E "${2:-.}")
    if [ -z "$seen" ]; then ok; else fail "$1" "$seen"; fi
}
# A part of a look at the screen.
cut() { # from, to, x, y, width, height
    "$support" part "$1" "$3" "$4" "$5" "$6" "$2"
}
# The right half of a line of the menu, which says more about it and which no mouse pointer on the middle of another line reaches into.
line_end() { awk -v name="$1" '$1 == "widget" && $2 == name && NF == 6 { printf "%d %d %d %d", $3 + $5 / 4, $4 - $6 / 2, $5 / 4, $6 }' "$report" | tail -n 1; }
tooltip_is_beside() {
    local line text
    click model
    xdotool mousemove 700 500
    frames 3
    look "$folder/without.png" >/dev/null
    point model-demo-1
    for ((i = 0; i < patience; i++)); do # until the mouse has rested long enough for a tooltip
        frames 2
        look "$folder/with.png" >/dev/null
        set -- $(awk '$1 == "widget" && $2 == "model-demo-1" { x = $3 + $5 / 2; y = $4 } END { print x, y }' "$report")
        cut "$folder/without.png" "$folder/a.png" $(($1 + 12)) "$2" 40 12 && cut "$folder/with.png" "$folder/b.png" $(($1 + 12)) "$2" 40 12
        "$support" pictures "$folder/a.png" "$folder/b.png" 0 >/dev/null || break
        kill -0 "$viewer" 2>/dev/null || break
    done
    for line in model-demo-0 model-open; do
        # shellcheck disable=SC2046
        cut "$folder/without.png" "$folder/a.png" $(line_end $line) && cut "$folder/with.png" "$folder/b.png" $(line_end $line)
        if text=$("$support" pictures "$folder/a.png" "$folder/b.png" 0 2>&1); then ok; else fail "a tooltip does not cover $line" "$text"; fi
    done
    [ -z "${MENU_SCREENSHOT:-}" ] || cp "$folder/with.png" "$MENU_SCREENSHOT"
    hold Escape
    await "Escape closes the menu" "menu closed"
}
# What is in the middle of the picture's place stays as it was from Enter to the first preview. With the least budget a look is quick enough; where it was not, the next picture is looked at.
source_stays() {
    local i previews text
    budget $least_budget_at
    click prompt
    # shellcheck disable=SC2046
    set -- $(where canvas)
    for i in $(seq 20); do
        frames 30
        look "$folder/before.png" >/dev/null
        previews=$(happened preview)
        hold Return
        await "the picture to edit is shown while it is edited" "source 96x96" "$i" || return
        frames 2
        look "$folder/during.png" >/dev/null
        [ "$(happened preview)" -ne "$previews" ] || break
        hold Escape
        await "the next try" "cancelled" "$i" || return
    done
    [ -z "${SOURCE_SCREENSHOT:-}" ] || cp "$folder/during.png" "$SOURCE_SCREENSHOT"
    cut "$folder/before.png" "$folder/a.png" $(($1 - 100)) $(($2 - 100)) 200 200 && cut "$folder/during.png" "$folder/b.png" $(($1 - 100)) $(($2 - 100)) 200 200
    if [ "$(happened preview)" -eq "$previews" ] && text=$("$support" pictures "$folder/a.png" "$folder/b.png" 2 2>&1); then ok; else fail "the picture to edit stays until the first preview" "$text"; fi
    budget $most_budget_at
    click prompt
}
# ---- A model whose pictures have alpha ---------------------------------------------------------------------------------------------------
test_alpha() {
    local model=tests/golden/qwen-image-21/model
    begin alpha 760x560 $model
    await "a model opens whose pictures have alpha" "ready model" || finish
    focus
    click prompt
    set_to width 64
    set_to height 64
    set_to steps 2
    click go
    await "a picture is made" "done 7" || finish
    await "squares are seen through it" "shown over squares"
    hold ctrl s
    await "and saved" "saved"
    equals_klein "it is the command line's" $model --prompt "a yellow moon above a purple cat at night, watercolour" --size 64x64 --steps 2
    if "$build/bin/sumi" inspect "$(last_saved)" | grep -q "RGB and alpha$"; then ok; else fail "the file has alpha" "$("$build/bin/sumi" inspect "$(last_saved)" | head -n 2)"; fi
    [ -z "${ALPHA_SCREENSHOT:-}" ] || look "$ALPHA_SCREENSHOT" >/dev/null
    quit
}

test_models() {
    make_place
    local description="a yellow moon above a purple cat at night, watercolour" edits=$folder/place/samples/demo_edit_model first second
    place=$folder/place
    begin models 1180x760
    await "without a model the one that draws opens" "ready demo_model" || finish
    await "both demo models are found" "demo samples/demo_.*model" 2 || finish
    focus
    click prompt
    set_to width 96
    set_to height 96
    budget $most_budget_at
    click prompt
    hold Return
    await "a picture is drawn" "generate 7 96x96 8 $description$"
    await "and done" "done 7" || finish
    hold ctrl s
    await "and saved" "saved"
    first=$(last_saved)

    # With keys alone: the model, what it edits, the instruction.
    tooltip_is_beside
    hold ctrl m
    hold Down
    no_overlap "the lines of the menu do not lie over each other" "model-.* and model-"
    hold Escape
    await "Escape closes the menu" "menu closed"
    if [ "$(happened 'menu closed')" -eq 2 ] && [ "$(happened 'chosen')" -eq 0 ]; then ok; else fail "and chooses nothing" "$(grep chosen "$report")"; fi
    hold ctrl m
    hold Down
    hold Return
    await "Enter chooses a model from the menu" "chosen $edits$" || finish
    await "which opens" "ready demo_edit_model" || finish
    await "the picture on the screen is the one to edit" "edits 96x96"
    await "the adapter in the model's folder is offered" "offers adapter turbo"
    frames 5
    if [ "$(happened 'generate')" -eq 1 ] && [ "$(happened 'adapters')" -eq 0 ] && [ "$(happened 'offers adapter notes')" -eq 0 ]; then ok
    else fail "nothing else has happened: no picture, no adapter read or offered that is none" "$(grep ^event "$report")"; fi
    no_overlap "nothing lies over anything else with a model that edits"
    xdotool type --delay 15 "make the moon red"
    source_stays
    await "the box for the instruction was empty, the numbers are the demo model's" "generate 7 [1-9][0-9]*x[1-9][0-9]* 20 make the moon red$" || finish
    await "the picture is edited" "done 7" 2 || finish
    hold ctrl s
    await "and saved" "saved" 2
    second=$(last_saved)
    equals_edit "it is the command line's" --prompt "make the moon red" --reference "$first"

    # The adapter for few steps and the preset Fast belong together.
    click adapter-0-enabled
    await "the adapter is switched on" "adapter turbo on"
    await "and read" "adapters 1" || finish
    click go
    await "with the steps of Fast" "generate 7 [1-9][0-9]*x[1-9][0-9]* 4 make the moon red$"
    await "a picture is edited in four steps" "done 7" 3 || finish
    hold ctrl s
    await "and saved" "saved" 3
    equals_edit "it is the command line's" --prompt "make the moon red" --preset fast --lora "$edits/lora/turbo.safetensors" --reference "$first"
    click preset-0
    await "the preset Default switches it off" "adapter turbo off"
    for i in 1 2 3 4; do hold Right; done
    hold space
    await "and Fast on, which arrows go to" "adapter turbo on" 2
    click adapter-0-enabled
    await "without it the numbers are those of Default" "adapter turbo off" 2
    click entry-1
    click go
    await "the model's own steps" "generate 7 [1-9][0-9]*x[1-9][0-9]* 20 make the moon red$" 2
    await "are taken" "done 7" 4 || finish

    # One key makes what is shown the picture to edit, in the place of the one before.
    click entry-2
    await "the first edited picture is shown" "shows 7" 2
    hold ctrl i
    await "Ctrl+I edits it" "edits 96x96" 2
    hold ctrl i
    click go
    await "a picture is made from it" "done 7" 5 || finish
    hold ctrl s
    await "and saved" "saved" 4
    equals_edit "it is the command line's, of one picture" --prompt "make the moon red" --reference "$second"
    if [ "$(happened 'references 1')" -eq 2 ] && [ "$(happened 'references')" -eq 2 ]; then ok; else fail "there is one picture to edit, and it stays the same" "$(grep references "$report")"; fi
    tool use
    await "so does a click" "edits 96x96" 3

    # What cannot be opened changes nothing.
    set_to steps 3
    click preset-0
    set_to steps 3
    echo "no model" >"$folder/broken.gguf"
    open_model "$folder/broken.gguf"
    await "a model that cannot be opened is a sentence in the window" "failure .*broken.gguf" || finish
    await "the model from before opens again" "ready demo_edit_model" 2 || finish
    third=$(last_saved)
    click go
    await "with the form as it was" "generate 7 [1-9][0-9]*x[1-9][0-9]* 3 make the moon red$"
    await "and its picture to edit" "done 7" 6 || finish
    hold ctrl s
    await "the picture is saved" "saved" 5
    equals_edit "it is the command line's" --prompt "make the moon red" --steps 3 --reference "$third"

    # The other way, by the mouse.
    click model
    click model-demo-0
    await "a click on a line of the menu opens the model" "ready demo_model" 2 || finish
    await "with its own adapter" "offers adapter blueprint" 2
    click go
    await "what is to be drawn is in the box again" "generate 7 256x256 8 $description$"
    hold Escape
    quit
    place=.
}

# ---- Models that were opened before -----------------------------------------------------------------------------------------------------
test_recent() {
    make_place
    local mine=$folder/mine
    cp -r "$folder/place/samples/demo_edit_model" "$mine"
    mkdir -p "$XDG_STATE_HOME/sumi"
    printf 'not/a/path\n\n/\001\n/nowhere/first.gguf\n/nowhere/first.gguf\n' >"$XDG_STATE_HOME/sumi/viewer_models"
    place=$folder/place
    begin recent 900x600 "$mine"
    await "a model that lies elsewhere opens" "ready mine" || finish
    await "its path is kept" "remembered $mine$" || finish
    no_overlap "nothing lies over anything else in a window without the panel at the right"
    focus
    click model
    no_overlap "nor do the lines of the menu lie over each other" "model-.* and model-"
    hold ctrl o
    await "Ctrl+O lists folders instead of the menu" "folder "
    click chooser-cancel
    quit
    if [ "$(cat "$XDG_STATE_HOME/sumi/viewer_models")" = "$mine"$'\n'"/nowhere/first.gguf" ]; then ok
    else fail "before those that were there, without what is no path" "$(cat "$XDG_STATE_HOME/sumi/viewer_models")"; fi

    begin recent_again 640x420
    await "the next viewer opens the demo model" "ready demo_model" || finish
    focus
    click model
    no_overlap "in the smallest window the lines do not lie over each other" "model-.* and model-"
    echo /nowhere/second.gguf >>"$XDG_STATE_HOME/sumi/viewer_models" # by another viewer
    click model-recent-0
    await "a click opens what was open before" "ready mine" || finish
    await "its path is kept" "remembered $mine$"
    if [ "$(tail -n 1 "$XDG_STATE_HOME/sumi/viewer_models")" = /nowhere/second.gguf ]; then ok; else fail "beside what another viewer has kept meanwhile" "$(cat "$XDG_STATE_HOME/sumi/viewer_models")"; fi
    no_overlap "nothing lies over anything else with a model that edits in the smallest window"
    click model
    click model-recent-1
    await "one that is not there is a sentence in the window" "failure There is no file or folder /nowhere/first.gguf"
    frames 5
    if [ "$(happened 'ready')" -eq 2 ]; then ok; else fail "and the model that is open stays open" "$(grep ready "$report")"; fi
    quit
    place=.
}

# ---- Straight into textures -----------------------------------------------------------------------------------------------------------------
test_textures() {
    # What a GPU does is played by tests/fake_cuda, whose pictures are a pattern (tests/viewer_gl.c).
    fake=$build/fake
    [ "$backend" = cpu ] && [ -e "$fake/libcuda.so.1" ] || return 0
    if ! cc -std=c11 -shared -fPIC -I. -Itests/fake_cuda tests/viewer_gl.c -L"$fake" -lfake_cuda -o "$folder/viewer_gl.so" 2>"$folder/log"; then
        fail "tests/viewer_gl.c compiles" "$(cat "$folder/log")"
        finish
    fi
    begin_direct() { # name, a variable for it
        report=$folder/$1
        : >"$report"
        env LD_PRELOAD="$folder/viewer_gl.so" LD_LIBRARY_PATH="$fake" ${2:-} \
            "$build/bin/viewer" samples/demo_model --size 1180x760 --backend cuda --output "$folder/$1.out" --seed 7 --report "$report" >"$folder/log" 2>&1 &
        viewer=$!
        await "$1: the demo model opens" "ready demo_model" || finish
        focus
        click prompt
    }
    saves() { # what, times, number of the picture
        local text
        hold ctrl s
        await "$1 is saved" "saved" "$2" || return
        if text=$("$support" pattern "$(sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1)" "$3" 2>&1); then ok; else fail "$1 is what the GPU left in its texture" "$text"; fi
    }
    begin_direct textures
    set_to width 512
    set_to height 512
    for i in 1 2 3; do # in turns: one texture is shown while the other one is written
        click prompt
        hold Return
        await "picture $i is left in a texture" "shown by GPU texture" $i || finish
        saves "picture $i" $i $i
        await_colours "picture $i"
        [ $i -eq 2 ] && set_to width 320 # the next one needs another texture
    done
    click entry-2
    await "a picture of the history is shown" "shows"
    saves "a picture of the history" 4 1
    tool use
    await "a picture is started from" "start "
    if [ "$(happened 'failure')" -eq 0 ]; then ok; else fail "nothing failed" "$(grep ' failure ' "$report")"; fi
    quit

    begin_direct other_gpu NO_TEXTURES=1
    hold Return
    await "a picture that cannot be left in a texture comes through host memory" "shown by pixel buffer: importing an OpenGL texture"
    hold ctrl s
    await "and is saved" saved
    quit
}

# ---- LoRAs, solver, shift, shapes, seeds ----------------------------------------------------------------------------------------------
last_saved() { sed -n 's/^event [0-9.]* saved //p' "$report" | tail -n 1; }
equals_command_line() { # what, arguments of sumi generate
    local text
    if text=$("$build/bin/sumi" generate --model samples/demo_model --backend "$backend" -o "$folder/same.png" "${@:2}" 2>&1 && "$support" pictures "$(last_saved)" "$folder/same.png" 0 2>&1); then ok
    else fail "$1" "$text"; fi
}
test_numbers() {
    local lora=samples/demo_model/lora/blueprint.safetensors seeds
    begin numbers 900x600 samples/demo_model $lora
    await "the demo model opens" "ready demo_model" || finish
    await "a LoRA that is dropped is in the list" "adapters 1" || finish
    focus
    budget $most_budget_at
    click prompt
    hold ctrl a
    prompt="a yellow moon"
    xdotool type --delay 15 "$prompt"
    set_to width 128
    set_to height 128
    await "the size is typed" "size 128x128"
    click aspect
    click aspect-3
    await "a shape keeps the number of pixels" "size 176x96$"
    set_to steps 4
    click solver
    click solver-3
    set_to shift 2.5
    set_to adapter-0-strength 0.75
    click prompt
    hold Return
    await "a picture with a LoRA is done" "done 7" || finish
    hold ctrl s
    await "it is saved" "saved"
    equals_command_line "LoRA, solver and shift are those of the command line" --prompt "$prompt" --size 176x96 --steps 4 --seed 7 --solver dpmpp-2m --shift 2.5 --lora $lora:0.75
    if "$support" parameters "$(last_saved)" | grep -q "Sampler: DPM++ 2M.*Shift: 2.5.*Lora: .*blueprint:0.75"; then ok; else fail "the file tells them" "$("$support" parameters "$(last_saved)")"; fi
    click adapter-0-enabled
    click go
    await "a picture without it is done" "done 7" 2
    hold ctrl s
    await "it is saved" "saved" 2
    equals_command_line "a LoRA that is switched off is not used" --prompt "$prompt" --size 176x96 --steps 4 --seed 7 --solver dpmpp-2m --shift 2.5
    click adapter-0-remove
    await "a LoRA is taken out" "adapters 0"
    click add-adapter
    click path
    hold ctrl a
    xdotool type --delay 15 "$PWD/$lora"
    frames 3
    hold Return
    await "and added by the chooser" "adapters 1" 2
    click entry-1
    tool use-settings
    click go
    await "the settings of a picture have its LoRA" "done 7" 3
    hold ctrl s
    await "it is saved" "saved" 3
    equals_command_line "with its strength" --prompt "$prompt" --size 176x96 --steps 4 --seed 7 --solver dpmpp-2m --shift 2.5 --lora $lora:0.75
    echo "no model" >"$folder/broken.gguf"
    open_model "$folder/broken.gguf"
    await "another model cannot be opened" "failure .*broken.gguf"
    await "the LoRA is read again for the model from before" "adapters 1" 3
    click go
    await "and is used" "done 7" 4
    hold ctrl s
    await "the picture is saved" "saved" 4
    equals_command_line "with the same bits" --prompt "$prompt" --size 176x96 --steps 4 --seed 7 --solver dpmpp-2m --shift 2.5 --lora $lora:0.75
    click lock
    for i in 1 2 3; do click go; await "picture $i with another seed" "done" $((4 + i)); done
    seeds=$(sed -n 's/^event [0-9.]* generate \([0-9]*\) .*/\1/p' "$report" | tail -n 3 | sort -u | wc -l)
    if [ "$seeds" -eq 3 ]; then ok; else fail "every picture has another seed when none is kept" "$(grep generate "$report")"; fi
    # Reuse is offered where there are steps enough.
    click lock
    if [[ "$(where reuse)" == *[0-9]* ]]; then fail "few steps have nothing to reuse"; else ok; fi
    click adapter-0-remove
    set_to steps 20
    click reuse
    click reuse-3
    set_to reuse-number 0.2
    if [ -z "$(overlaps)" ]; then ok; else fail "nothing lies over anything else with the slider for reuse" "$(overlaps)"; fi
    [ -z "${REUSE_SCREENSHOT:-}" ] || look "$REUSE_SCREENSHOT" >/dev/null
    click seed
    hold ctrl a
    xdotool type --delay 15 11
    hold Return
    click go
    await "a picture with a step cache is done" "done 11" || finish
    hold ctrl s
    await "it is saved" "saved" 5
    equals_command_line "the step cache is that of the command line" --prompt "$prompt" --size 176x96 --steps 20 --seed 11 --solver dpmpp-2m --shift 2.5 --step-cache 0.2
    if "$support" parameters "$(last_saved)" | grep -q "Step cache: 0.2"; then ok; else fail "the file tells it" "$("$support" parameters "$(last_saved)")"; fi
    set_to steps 15
    click go
    await "a picture of fewer steps is done" "done 11" 2
    hold ctrl s
    await "it is saved" "saved" 6
    equals_command_line "nothing was reused" --prompt "$prompt" --size 176x96 --steps 15 --seed 11 --solver dpmpp-2m --shift 2.5
    click entry-1
    tool use-settings
    click go
    await "the settings of a picture have its step cache" "done 11" 3
    hold ctrl s
    await "it is saved" "saved" 7
    equals_command_line "it is the same" --prompt "$prompt" --size 176x96 --steps 20 --seed 11 --solver dpmpp-2m --shift 2.5 --step-cache 0.2
    if [ "$(happened 'failure')" -eq 1 ]; then ok; else fail "nothing else failed" "$(grep ' failure ' "$report")"; fi
    quit
}

# ---- The queue ------------------------------------------------------------------------------------------------------------------------
test_queue() {
    begin queue 1180x760 samples/demo_model
    await "the demo model opens" "ready demo_model" || finish
    focus
    click prompt
    # Large enough that a picture takes longer than the keys and clicks below, on a busy machine too.
    set_to width 192
    set_to height 192
    set_to count 3
    budget $least_budget_at
    click go
    await "a batch begins" "generate 7 " || finish
    set_to count 1
    click prompt
    hold ctrl a
    xdotool type --delay 15 "a boat"
    hold Return
    await "Generate adds to the queue" "queued 1"
    xdotool type --delay 15 "s"
    click go
    await "and once more" "queued 2"
    click queued-2-remove
    await "one that waits is taken out" "queued 1" 2
    budget $most_budget_at
    await "the batch has the next seeds" "done 9" || finish
    await "the queued picture is made" "generate 7 192x192 [0-9]* a boat$" || finish
    await "and done" "done" 4 || finish
    if [ "$(happened 'generate')" -eq 4 ] && [ "$(happened 'generate 8')" -eq 1 ]; then ok; else fail "what was taken out is not made" "$(grep generate "$report")"; fi
    budget $least_budget_at
    set_to count 2
    click go
    await "another batch begins" "generate" 5
    click go
    await "and one waits" "queued 1" 3
    hold Escape
    await "Escape ends a batch" "cancelled"
    await "the next one begins" "generate" 6
    hold Escape
    await "it is cancelled too" "cancelled" 2
    frames 5
    if [ "$(happened 'generate')" -eq 6 ]; then ok; else fail "no picture of a cancelled batch follows" "$(grep generate "$report")"; fi
    click go
    await "one begins" "generate" 7
    click go
    await "and one waits" "queued 1" 4
    hold Shift_L Escape
    await "Shift and Escape empty the queue" "cancelled" 3
    frames 5
    if [ "$(happened 'generate')" -eq 7 ]; then ok; else fail "no picture follows" "$(grep generate "$report")"; fi
    # A picture that was made can be looked at while another one is made.
    budget $least_budget_at
    set_to count 1
    click go
    await "one more begins" "generate" 8
    click entry-1
    await "an earlier one is shown" "shows [0-9]"
    budget $most_budget_at
    await "the other one is done meanwhile" "done" 5
    if [ "$(happened 'shown by')" -eq 4 ]; then ok; else fail "it does not take the place of what is looked at" "$(grep shown "$report")"; fi
    if [ "$(happened 'failure')" -eq 0 ]; then ok; else fail "nothing failed" "$(grep ' failure ' "$report")"; fi
    quit
}

# ---- The strip, comparing, zoom, the clipboard ----------------------------------------------------------------------------------------
drag() { # from a widget, pixels to the right, pixels down
    point "$1"
    xdotool mousedown 1
    frames 3
    xdotool mousemove_relative -- "$2" "$3"
    frames 3
    xdotool mouseup 1
    frames 2
}
test_strip() {
    local old_path=$PATH copied
    mkdir -p "$folder/programs" "$folder/home"
    printf '#!/bin/sh\nexec cat >"%s/copied.png"\n' "$folder" >"$folder/programs/xclip"
    printf '#!/bin/sh\necho "$1" >"%s/opened"\n' "$folder" >"$folder/programs/xdg-open"
    chmod +x "$folder/programs/xclip" "$folder/programs/xdg-open"
    export PATH=$folder/programs:$PATH
    unset WAYLAND_DISPLAY
    report=$folder/strip
    : >"$report"
    env -u XDG_PICTURES_DIR -u XDG_CONFIG_HOME HOME="$folder/home" "$build/bin/viewer" samples/demo_model --size 1180x760 --backend "$backend" --seed 7 --report "$report" >"$folder/log" 2>&1 &
    viewer=$!
    await "the demo model opens" "ready demo_model" || finish
    focus
    click prompt
    set_to width 96
    set_to height 96
    budget $most_budget_at
    set_to count 3
    click go
    await "three pictures are done" "done" 3 || finish
    point entry-2
    hold ctrl s
    await "a picture is saved in the user's folder for pictures" "saved $folder/home/Pictures/sumi/"
    tool copy
    await "it is copied" "copied picture"
    if text=$("$support" pictures "$(last_saved)" "$folder/copied.png" 0 2>&1); then ok; else fail "as a PNG" "$text"; fi
    tool folder
    await "its folder is opened" "folder is opened"
    for ((i = 0; i < patience; i++)); do [ -s "$folder/opened" ] && break; pause 0.05; done
    if [ "$(cat "$folder/opened")" = "$folder/home/Pictures/sumi" ]; then ok; else fail "in the file manager" "$(cat "$folder/opened")"; fi
    click entry-2
    await "a click shows a picture" "shows 7$"
    hold Delete
    await "Delete takes it out" "deleted 7"
    frames 3
    if [ -z "$(where entry-2 | tr -d -c 0-9)" ]; then ok; else fail "the strip has one less" "$(where entry-2)"; fi
    hold ctrl z
    await "Ctrl+Z brings it back" "undeleted 7"
    point entry-0
    xdotool mousedown 3
    frames 3
    xdotool mouseup 3
    frames 3
    click menu-delete
    await "the menu of a picture takes it out" "deleted 9"
    hold ctrl z
    await "it comes back" "undeleted 9"
    click entry-2
    await "the oldest one is shown" "shows 7$" 2
    hold F3
    hold Left
    await "arrow keys step through the strip" "shows 8$"
    hold Left
    await "to its newest picture" "shows 9$" 2
    tool compare
    await "two pictures are compared" "compare 9 8" || finish
    drag divider 60 0
    await "the divider is dragged" "divider 0\.[6-9]"
    click entry-2
    await "a click compares with another one" "compare 9 7"
    hold Escape
    await "Escape ends comparing" "compare ends"
    point canvas
    xdotool click --repeat 3 --delay 60 4
    await "the wheel zooms" "zoom 1.[2-9]"
    drag canvas 40 30
    point canvas
    for ((i = 0; i < patience; i++)); do # two clicks are a double click when they are near in time, which a busy machine may miss
        [ "$(happened 'zoom 1.00')" -eq 0 ] || break
        xdotool click --repeat 2 --delay 60 1
        frames 3
    done
    await "a double click fits" "zoom 1.00"
    # Without a program for pictures the path is copied, which Ctrl+V puts into the prompt.
    mv "$folder/programs/xclip" "$folder/programs/none"
    if command -v xclip >/dev/null || command -v wl-copy >/dev/null; then :
    else
        tool copy
        await "without xclip a picture is saved and its path copied" "copied path $folder/home/Pictures/sumi/"
    fi
    export PATH=$old_path
    if [ "$(happened 'failure')" -eq 0 ]; then ok; else fail "nothing failed" "$(grep ' failure ' "$report")"; fi
    quit
}

# ---- Picture files that come in -------------------------------------------------------------------------------------------------------
choose() { # a button, a path
    click "$1"
    click path
    hold ctrl a
    xdotool type --delay 10 "$2"
    frames 3
    hold Return
}
test_files() {
    local from=(--model samples/demo_model --backend "$backend" --size 96x80 --steps 4) text
    "$build/bin/sumi" generate "${from[@]}" --prompt "a blue fish" --seed 31 --solver heun --shift 2 -o "$folder/fish.webp" >/dev/null 2>&1
    "$build/bin/sumi" generate "${from[@]}" --prompt "a tree" --seed 5 -o "$folder/tree.jpg" >/dev/null 2>&1
    begin files 900x600 samples/demo_model "$folder/fish.webp"
    await "the demo model opens" "ready demo_model" || finish
    await "a WebP file is read" "read .*fish.webp" || finish
    await "its settings are offered" "offers settings" || finish
    focus
    click prompt
    click offer-use
    await "they are used" "restored 31"
    await "and it is no picture to start from" "no start"
    budget $most_budget_at
    click go
    await "the picture is made again" "done 31" || finish
    hold ctrl s
    await "it is saved" "saved"
    equals_command_line "it is the same" --prompt "a blue fish" --size 96x80 --steps 4 --seed 31 --solver heun --shift 2
    choose choose-start "$folder/tree.jpg"
    await "a JPEG is chosen to start from" "start [0-9]" 2 || finish
    click offer-close
    set_to width 96
    set_to height 80
    choose choose-mask "$PWD/tests/pictures/cat.png"
    await "a file is the mask" "mask [1-9]" || finish
    hold ctrl z
    await "Ctrl+Z takes the mask away" "mask 0"
    hold ctrl y
    await "and Ctrl+Y brings it back" "mask [1-9]" 2
    drag brush 30 10
    await "the brush paints" "mask [1-9]" 3
    hold ctrl z
    await "a stroke is undone" "mask [1-9]" 4
    text=$(sed -n 's/^event [0-9.]* mask //p' "$report" | paste -sd ' ')
    set -- $text
    if [ "$1" = "$3" ] && [ "$5" = "$1" ] && [ "$4" != "$1" ]; then ok; else fail "masks are those from before" "$text"; fi
    click go
    await "a picture with the mask is done" "done 31" 2
    click view-1
    click clear-mask
    await "the mask is cleared" "mask 0" 2
    click remove-start
    await "the picture to start from is removed" "no start" 2
    mkdir "$folder/elsewhere"
    choose choose-output "$folder/elsewhere"
    await "another folder is listed" "folder $folder/elsewhere"
    click chooser-open
    await "and is where pictures go" "output $folder/elsewhere"
    click saves-all
    click go
    await "every picture is saved there" "saved $folder/elsewhere/a-blue-fish-31.png"
    if [ "$(happened 'failure')" -eq 0 ]; then ok; else fail "nothing failed" "$(grep ' failure ' "$report")"; fi
    quit
}

# ---- A picture that is followed ---------------------------------------------------------------------------------------------------------
test_control() {
    local model=tests/golden/z-image/model net=tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors base=$folder/base.png from name text edged
    name=$(basename "$net" .safetensors)
    from=(--model $model --backend "$backend" --prompt "a cat" --size 64x64 --steps 2 --seed 7)
    "$build/bin/sumi" generate "${from[@]}" -o "$base" >/dev/null 2>&1
    begin control 800x600 $model $net "$base"
    await "a net has its usual strength and all steps" "net $name 0\.[1-9][0-9]* 0.00-1.00$" || finish
    await "a picture that is dropped is followed" "follows 64x64" || finish
    focus
    click offer-use # for prompt, size and steps
    click saves-all
    set_to net-strength 0.5
    set_to net-end 0.5
    await "strength and range are set" "net $name 0.50 0.00-0.50$" || finish
    click go
    await "a picture follows it" "saved" || finish
    tool seen
    await "what the net saw is shown" "sees 64x64 as it was given"
    click unseen
    "$support" edges "$(last_saved)" "$folder/edges.png" || fail "a picture has edges"
    tool edges
    await "the edges of what is on the screen are followed" "follows 64x64" 2 || finish
    click go
    await "a picture follows them" "saved" 2 || finish
    edged=$(last_saved)
    if text=$("$build/bin/sumi" generate "${from[@]}" -o "$folder/same.png" --control $net --control-picture "$folder/edges.png:0.5:0:0.5" 2>&1 && "$support" pictures "$edged" "$folder/same.png" 0 2>&1); then ok
    else fail "in half of the steps, as the command line's" "$text"; fi
    if "$support" parameters "$edged" | grep -q "Control nets: \"*$name:0.5:0:0.5"; then ok; else fail "the file tells it" "$("$support" parameters "$edged")"; fi
    click net-remove
    await "the net is closed" "net none"
    click go
    await "the next picture follows nothing" "saved" 3 || finish
    if text=$("$support" pictures "$base" "$(last_saved)" 0 2>&1); then ok; else fail "it has the bits of one without a net" "$text"; fi
    choose open-net "$PWD/tests/golden/controlnet-qwen/Qwen-Image-2512-Fun-Controlnet-Union.safetensors"
    await "a net for other models is a sentence in the window" "failure Reading .*2512" || finish
    click entry-1
    tool use-settings
    await "the settings of a picture bring back its net, the picture, strength and range" "net $name 0.50 0.00-0.50$" 3
    click go
    await "the picture is made again" "saved" 4 || finish
    if text=$("$support" pictures "$edged" "$(last_saved)" 0 2>&1); then ok; else fail "it is the same" "$text"; fi
    [ -z "${CONTROL_SCREENSHOT:-}" ] || look "$CONTROL_SCREENSHOT" >/dev/null
    if [ -z "$(overlaps)" ]; then ok; else fail "nothing lies over anything else" "$(overlaps)"; fi
    if [ "$(happened 'failure')" -eq 1 ]; then ok; else fail "nothing else failed" "$(grep ' failure ' "$report")"; fi
    quit
}

# ---- Without a mouse ------------------------------------------------------------------------------------------------------------------
test_keys() {
    begin keys 1180x760 samples/demo_model
    await "the demo model opens" "ready demo_model" || finish
    focus
    frames 5
    hold ctrl a
    xdotool type --delay 15 "a kite"
    hold Tab # to the width: the negative prompt is off
    hold ctrl a
    xdotool type --delay 15 "80"
    hold Tab
    await "Tab goes to the width, where a number is typed" "size 80x"
    hold ctrl a
    xdotool type --delay 15 "64"
    hold Tab
    await "and to the height" "size 80x64"
    hold F5
    hold Return
    await "F5 goes to the prompt, Enter generates" "generate 7 80x64 [0-9]* a kite$"
    await "the picture is done" "done 7"
    hold F1
    frames 3
    if [[ "$(where help)" == *[0-9]* ]]; then ok; else fail "F1 shows the keys" "$(where help)"; fi
    hold Escape
    frames 3
    if [[ "$(where help)" != *[0-9]* ]]; then ok; else fail "Escape closes them" "$(where help)"; fi
    width() { awk '$1 == "widget" && $2 == "canvas" { w = $5 } END { print w }' "$report"; }
    before=$(width)
    if [[ "$(where budget)" != *[0-9]* ]]; then ok; else fail "the graphs are hidden at first" "$(where budget)"; fi
    hold F2
    await "F2 shows the graphs" "graphs on"
    if [[ "$(where budget)" == *[0-9]* ]] && [ "$(width)" -lt "$before" ]; then ok; else fail "and they take their place" "$(where budget), canvas $before and $(width)"; fi
    hold F2
    await "and hides them" "graphs off"
    if [[ "$(where budget)" != *[0-9]* ]] && [ "$(width)" = "$before" ]; then ok; else fail "and the picture has its place again" "$(where budget), canvas $before and $(width)"; fi
    hold F3
    hold Return
    await "Enter generates from the strip" "done 7" 2
    hold F3
    hold Right
    await "an arrow key shows a picture" "shows 7"
    hold ctrl s
    await "Ctrl+S saves it" "saved"
    hold ctrl u
    await "Ctrl+U uses its settings" "restored 7"
    hold F4
    for i in 1 2 3 4 5 6 7; do hold Right; done
    hold space
    await "F4 goes to the buttons above the picture, arrows to the last one, Space presses it" "saved" 2
    hold ctrl o
    await "Ctrl+O lists folders" "folder .*/samples"
    hold Escape
    quit
}

sections=("${@:3}")
[ ${#sections[@]} -gt 0 ] || sections=(form names small picture numbers queue strip files control keys xml edit klein alpha models recent textures)
for section in "${sections[@]}"; do "test_$section"; done
finish
