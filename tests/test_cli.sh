#!/usr/bin/env bash
# The command line as a user meets it: pictures, files, sentences, exit codes. usage: tests/test_cli.sh build/.../release
# Numbers are compared with the golden data. The last line is "cli: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
support=$build/bin/cli_support
sumi=$build/bin/sumi
golden=$PWD/tests/golden/z-image
model=$golden/model
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
out=$folder/stdout err=$folder/stderr

fail() { # what, detail
    failed=$((failed + 1))
    echo "FAILED: $1"
    [ -z "${2:-}" ] || sed 's/^/  /' <<<"$2" | head -n 12
}
ok() { passed=$((passed + 1)); }
# Runs the command line; `code` keeps its exit code.
cli() { "$sumi" "$@" >"$out" 2>"$err" </dev/null; code=$?; }
both() { cat "$out" "$err"; }

expect_code() { # what, wanted code
    if [ "$code" -eq "$2" ]; then ok; else fail "$1: exit code $code instead of $2" "$(both)"; fi
}
expect_text() { # what, pattern, file
    if grep -qE -- "$2" "$3"; then ok; else fail "$1: no \"$2\"" "$(cat "$3")"; fi
}
expect_file() { if [ -s "$2" ]; then ok; else fail "$1: no file $2" "$(both)"; fi; }
expect_no_file() { if [ ! -e "$2" ]; then ok; else fail "$1: $2 was left behind"; fi; }
expect_same() { if cmp -s "$2" "$3"; then ok; else fail "$1: $2 and $3 differ"; fi; }
expect_different() { if ! cmp -s "$2" "$3"; then ok; else fail "$1: $2 and $3 are the same"; fi; }
expect_support() { # what, arguments of cli_support
    local what=$1 text; shift
    if text=$("$support" "$@" 2>&1); then ok; else fail "$what" "$text"; fi
}
# A failure must say something on stderr, and in a sentence: more than a number or a name.
wrong() { # what, wanted code, pattern, arguments
    local what=$1 wanted=$2 pattern=$3; shift 3
    cli "$@"
    expect_code "$what" "$wanted"
    expect_text "$what" "$pattern" "$err"
}

[ -x "$support" ] || fail "there is no $support"
[ -x "$sumi" ] || { fail "there is no $sumi"; echo "cli: $passed passed, $failed failed, $skipped skipped"; exit 1; }
tiny=(--model "$model" --prompt "a red fox" --size 64x48 --steps 2 --threads 2)

# ---- Help and wrong arguments -----------------------------------------------------------------------------------------------------------
cli; expect_code "no command" 2
cli help; expect_code "help" 0; expect_text "help lists commands" "^  generate" "$out"; expect_text "help tells exit codes" "130 cancelled" "$out"
for version in --version version; do
    cli $version; expect_code "$version" 0; expect_text "$version" "^sumi [0-9]+\.[0-9]+\.[0-9]+$" "$out"
done
for command in generate encode inspect tokenize xml info bench version; do
    cli "$command" --help; expect_code "$command --help" 0
    expect_text "$command --help has an example" "^  .*sumi $command" "$out"
    expect_text "$command --help tells exit codes" "exit codes:" "$out"
    cli help "$command"; expect_code "help $command" 0
    wrong "$command refuses an unknown option" 2 "there is no option --nonsense" "$command" --nonsense
done
wrong "an unknown command" 2 'there is no command "paint"$' paint
for pair in generat:generate genrate:generate gen:generate infos:info Inspect:inspect verison:version benhc:bench; do
    wrong "a misspelt command" 2 "there is no command \"${pair%:*}\"; is ${pair#*:} meant\?" "${pair%:*}" --model x
    wrong "help for a misspelt command" 2 "is ${pair#*:} meant\?" help "${pair%:*}"
done
wrong "a word behind a version" 2 "stands alone" version 2
wrong "no model" 2 "give the model" generate --prompt x -o "$folder/x.png"
wrong "no prompt" 2 "give a prompt" generate --model "$model" -o "$folder/x.png"
wrong "no output" 2 "where the picture goes" generate --model "$model" --prompt x
wrong "a misspelt option" 2 "is --steps meant" generate --step 3
wrong "an option without its value" 2 "needs a value" generate --prompt --seed 1
wrong "an option at the end without its value" 2 "needs a value" generate --prompt
wrong "an option given twice" 2 "given twice" generate --seed 1 --seed 2
wrong "a value for a flag" 2 "takes no value" generate --quiet=yes
wrong "a word without an option" 2 "stands alone" generate a fox
wrong "a size without height" 2 "as in 1024x768" generate "${tiny[@]:0:4}" --size 64 -o "$folder/x.png"
wrong "a size of nothing" 2 "as in 1024x768" generate "${tiny[@]:0:4}" --size 0x64 -o "$folder/x.png"
wrong "a size that is no multiple" 2 "multiples of 16, as in 96x64" generate "${tiny[@]:0:4}" --size 100x64 -o "$folder/x.png"
wrong "a size too large" 2 "at most" generate "${tiny[@]:0:4}" --size 40000x64 -o "$folder/x.png"
wrong "no steps" 2 "whole number from 1" generate --steps 0
wrong "half a step" 2 "whole number" generate --steps 2.5
wrong "a negative guidance" 2 "number from 0" generate --guidance -1
wrong "guidance that is no number" 2 "number from 0" generate --guidance nan
wrong "a negative seed" 2 "whole number" generate --seed -1
wrong "a quality of nothing" 2 "whole number from 1 to 100" generate --quality 0
wrong "a quality beyond 100" 2 "whole number from 1 to 100" generate --quality 101
wrong "a seed beyond 64 bits" 2 "whole number" generate --seed 18446744073709551616
wrong "an unknown solver" 2 "euler\|heun" generate --solver magic
wrong "an unknown backend" 2 "auto\|cpu\|cuda" generate --backend tpu
wrong "an unknown preset" 2 "preview\|standard" generate --preset best
wrong "a memory budget in furlongs" 2 "500M or 2G" generate --memory-budget 3furlongs
wrong "a memory budget beyond 64 bits" 2 "500M or 2G" generate --memory-budget 99999999999T
wrong "strength beyond 1" 2 "from 0 to 1" generate --strength 1.5
wrong "strength without a picture" 2 "--strength needs a picture" generate "${tiny[@]}" --strength 0.5 -o "$folder/x.png"
wrong "a mask without a picture" 2 "--mask needs" generate "${tiny[@]}" --mask x.png -o "$folder/x.png"
wrong "a picture and latents" 2 "exclude each other" generate "${tiny[@]}" --image x.png --latents y -o "$folder/x.png"
wrong "a prompt and a prompt file" 2 "exclude each other" generate "${tiny[@]}" --encoded-prompt y -o "$folder/x.png"
wrong "too many pictures" 2 "at most 64" generate "${tiny[@]}" --prompt b --batch 33 -o "$folder/x.png"
wrong "the old name of an option" 2 "--prompt-file is called --encoded-prompt now" generate --model "$model" --prompt-file y -o "$folder/x.png"
wrong "a prompt and a file of prompts" 2 "exclude each other" generate "${tiny[@]}" --prompts y -o "$folder/x.png"
wrong "a file of prompts and an encoded one" 2 "exclude each other" generate --model "$model" --prompts y --encoded-prompt z -o "$folder/x.png"
wrong "a file of prompts and a prompt in XML" 2 "leave --prompt" generate --model "$model" --prompts y --caption a -o "$folder/x.png"
wrong "@ without a file" 2 "--prompt @: name the file" generate --model "$model" --prompt @ -o "$folder/x.png"
for name in %s %d-%d %3d %% % %0d %010d %i 100%; do
    wrong "an output called $name" 2 "the place of its number, once, as %d or as %03d" generate "${tiny[@]}" -o "$folder/$name.png"
done
wrong "guidance that ends before it begins" 2 "lies behind" generate "${tiny[@]}" --guidance-begin 0.8 --guidance-end 0.2 -o "$folder/x.png"
wrong "encode without anything" 2 "what to encode" encode --model "$model" -o "$folder/x"
wrong "too many references" 2 "at most 10 references" generate "${tiny[@]}" --reference={a,b,c,d,e,f,g,h,i,j,k}.png -o "$folder/x.png"
wrong "encode of a picture with a reference" 2 "give --prompt" encode --model "$model" --image b --reference a -o "$folder/x"
wrong "encode of two things" 2 "one at a time" encode --model "$model" --prompt a --image b -o "$folder/x"
wrong "inspect of nothing" 2 "give the PATH" inspect
wrong "inspect of two things" 2 "one PATH at a time" inspect a b
wrong "tokenize of nothing" 2 "give the PATH" tokenize
wrong "xml of nothing" 2 "say what is in it" xml
wrong "a character without a key" 2 'character "1girl": write name=' xml --character 1girl
wrong "a character's unknown key" 2 'knows no "hair": there are name, gender, .*position$' xml --character "gender=1girl; hair=red"
wrong "an unknown tag" 2 'knows no "gender": there are count, artists, .*extra_tags$' xml --tags "gender=1girl"
wrong "a key given twice" 2 "says style twice" xml --tags "style=a; style=b"
if [ -e "$sumi.exe" ]; then
    echo "skip: texts that are not UTF-8: Windows hands over arguments in UTF-16"
    skipped=$((skipped + 1))
else
    wrong "a caption that is not UTF-8" 2 "caption: not UTF-8 at byte 2" xml --caption $'ab\xff'
    wrong "a character that is not UTF-8" 2 "characters\[1\]\.action: not UTF-8" xml --character "gender=1girl" --character $'action=\xff'
fi
wrong "bench with a larger size first" 2 "the first side is the smaller one" bench --sizes 1024x512
wrong "bench of a size that is no multiple" 2 "multiples of 16 up to 2048" bench --sizes 100x512
wrong "bench of a size too large" 2 "multiples of 16 up to 2048" bench --sizes 512x4096
wrong "bench of an unknown format" 2 "some of bf16, fp8, int8 and int4, as in bf16,int8" bench --weights bf16,int9
wrong "bench of a format twice" 2 "int8 is there twice" bench --weights int8,fp8,int8
wrong "bench of no format" 2 "give some of bf16" bench --weights ""
wrong "bench of an unknown network" 2 "z-image\|mid\|tiny" bench --network huge
wrong "bench without time" 2 "whole number from 1 to 3600" bench --seconds 0
wrong "bench of a format on a CPU" 2 "for a GPU" bench --backend cpu --weights int8
wrong "bench without a GPU" 1 "--backend cpu works on every machine" bench --backend cuda
wrong "an indent too wide" 2 "from 0 to 16" xml --caption a --xml-indent 17
wrong "a prompt and a prompt in XML" 2 "leave --prompt" generate "${tiny[@]}" --character gender=1girl -o "$folder/x.png"
wrong "a prompt file and a prompt in XML" 2 "leave --prompt" generate --model "$model" --encoded-prompt y --caption a -o "$folder/x.png"
wrong "a prompt in XML that is wrong" 2 "knows no" generate --model "$model" --tags "colour=red" -o "$folder/x.png"

for scale in abc 0.5x "" nan inf; do
    wrong "an adapter's scale \"$scale\"" 2 "\"$scale\" is no scale: write FILE or FILE:0.8" generate "${tiny[@]}" --lora "no/lora.safetensors:$scale" -o "$folder/x.png"
done
wrong "several pictures to standard output" 2 "one picture to standard output, and this makes 2" generate "${tiny[@]}" --batch 2 -o -
wrong "JSON and a picture to standard output" 2 "both write to standard output" generate "${tiny[@]}" --json -o -

# ---- Files that are not there or broken -------------------------------------------------------------------------------------------------
wrong "a model that is not there" 1 "no/such/model" generate --model no/such/model --prompt x -o "$folder/x.png"
wrong "a folder that is no model" 1 "." generate --model "$folder" --prompt x -o "$folder/x.png"
wrong "an output folder that is not there" 1 "there is no folder $folder/no" generate "${tiny[@]}" -o "$folder/no/x.png"
wrong "an output that is a folder" 1 "it is a folder" generate "${tiny[@]}" -o "$folder"
wrong "an empty output" 2 "path of an output is empty" generate "${tiny[@]}" -o ""
for name in x x.gif x.png.bak; do wrong "the extension of $name" 2 "write .png, .jpg, .jpeg or .webp" generate "${tiny[@]}" -o "$folder/$name"; done
wrong "a folder that is not there" 1 "there is no folder" generate "${tiny[@]}" -o "$folder/.png/x.png"
wrong "empty latents" 2 "path of an output is empty" generate "${tiny[@]}" --latents-out "" -o "$folder/x.png"
wrong "encode to an empty path" 2 "say where it goes" encode --model "$model" --prompt a -o ""
wrong "encode without a model" 2 "give the model" encode --vae "$model/vae" --prompt a -o "$folder/x"
wrong "inspect of an empty path" 2 "give the PATH" inspect ""
: >"$folder/no-folder"; wrong "a file instead of a folder" 1 "there is no folder $folder/no-folder" generate "${tiny[@]}" --preview-dir "$folder/no-folder" -o "$folder/x.png"
if [ "$(id -u)" -ne 0 ] && [ ! -e "$sumi.exe" ]; then
    : >"$folder/locked.png"; chmod a-w "$folder/locked.png"
    wrong "an output that is write-protected" 1 "write-protected" generate "${tiny[@]}" -o "$folder/locked.png"
    mkdir "$folder/locked"; chmod a-w "$folder/locked"
    wrong "an output folder that is write-protected" 1 "no permission in $folder/locked" generate "${tiny[@]}" -o "$folder/locked/x.png"
else
    echo "skip: outputs that are write-protected: this user may write everything, or the system has no such modes"
    skipped=$((skipped + 2))
fi
wrong "a picture that is not there" 1 "no/such.png" generate "${tiny[@]}" --image no/such.png -o "$folder/x.png"
printf 'not a png' >"$folder/broken.png"
wrong "a reference that is not there" 1 "no/such.png" generate "${tiny[@]}" --reference no/such.png -o "$folder/x.png"
wrong "encode with a reference that is not there" 1 "no/such.png" encode --model "$model" --prompt a --reference no/such.png -o "$folder/x"
wrong "a picture that is no PNG" 1 "broken.png is not a PNG" generate "${tiny[@]}" --image "$folder/broken.png" -o "$folder/x.png"
head -c 900 "$golden/cases/turbo_t2i.png" >"$folder/cut.png"
wrong "a picture that is cut short" 1 "cut.png" generate "${tiny[@]}" --image "$folder/cut.png" -o "$folder/x.png"
wrong "noise that is not there" 1 "no/noise" generate "${tiny[@]}" --noise no/noise.safetensors:x -o "$folder/x.png"
wrong "noise of another name" 1 "has no tensor \"x\"" generate "${tiny[@]}" --noise "$golden/cases/turbo_t2i.safetensors:x" -o "$folder/x.png"
wrong "noise without a name" 1 "say which one" generate "${tiny[@]}" --noise "$golden/cases/turbo_t2i.safetensors" -o "$folder/x.png"
wrong "noise of another size" 2 "do not fit" generate "${tiny[@]:0:4}" --size 64x64 --noise "$golden/cases/turbo_t2i.safetensors:input.noise" -o "$folder/x.png"
wrong "an adapter that is not there" 1 "no/lora" generate "${tiny[@]}" --lora no/lora.safetensors:0.5 -o "$folder/x.png"
wrong "an adapter that is none" 1 "turbo_t2i" generate "${tiny[@]}" --lora "$golden/cases/turbo_t2i.safetensors" -o "$folder/x.png"
wrong "a saved prompt that is none" 1 "broken.png" generate --model "$model" --encoded-prompt "$folder/broken.png" -o "$folder/x.png"
wrong "a text file instead of a saved prompt" 1 "this is a text file; use --prompt @FILE, or --prompts FILE" generate --model "$model" --encoded-prompt tests/README.md -o "$folder/x.png"
wrong "a text file instead of a saved negative prompt" 1 "this is a text file" generate --model "$model" --encoded-prompt "$golden/model/model_index.json" --negative-file tests/README.md -o "$folder/x.png"
wrong "a prompt of a file that is not there" 1 "no/prompt.txt" generate --model "$model" --prompt @no/prompt.txt -o "$folder/x.png"
wrong "prompts of a file that is not there" 1 "no/prompts.txt" generate --model "$model" --prompts no/prompts.txt -o "$folder/x.png"
wrong "a saved prompt that is not there" 1 "no/prompt" generate --model "$model" --encoded-prompt no/prompt -o "$folder/x.png"
wrong "a GPU that this build has none for" 1 "--backend cpu" generate "${tiny[@]}" --backend cuda -o "$folder/x.png"
wrong "a budget that nothing fits in" 1 "memory" generate "${tiny[@]}" --memory-budget 1K -o "$folder/x.png"
for budget in 64K 256K; do # a prompt has no VAE to tile, so there is nothing smaller to try
    timeout -s KILL 60 "$sumi" encode --model samples/demo_model --backend cpu --prompt "a cat" --memory-budget $budget \
        -o "$folder/x.safetensors" >"$out" 2>"$err" </dev/null
    code=$?
    expect_code "a prompt in $budget" 1
    expect_text "a prompt in $budget" "memory_budget_bytes allows" "$err"
    expect_text "and its option" "^  the option is --memory-budget$" "$err" # encode has no --size and no --batch
    expect_no_file "a prompt in $budget" "$folder/x.safetensors"
done
expect_no_file "failures leave no picture" "$folder/x.png"
expect_no_file "failures leave no part of a picture" "$folder/x.png.part"

# ---- Pictures ---------------------------------------------------------------------------------------------------------------------------
cli generate "${tiny[@]}" --seed 7 -o "$folder/a.png"
expect_code "generate" 0; expect_file "generate" "$folder/a.png"
expect_text "generate tells the file" "^$folder/a.png  64x48, seed 7, 2 steps" "$out"
if [ "$(wc -l <"$err")" -le 12 ]; then ok; else fail "progress does not flood" "$(cat "$err")"; fi
if ! grep -q $'\r' "$err"; then ok; else fail "progress draws no bar without a terminal"; fi
[ "$("$support" size "$folder/a.png")" = 64x48 ] && ok || fail "the picture's size"
"$support" parameters "$folder/a.png" >"$folder/parameters"
expect_text "the PNG carries the prompt" "^a red fox$" "$folder/parameters"
expect_text "the PNG carries its settings" "^Steps: 2, Sampler: Euler, CFG scale: 1, Seed: 7, Size: 64x48, Model: model, .*Version: sumi " "$folder/parameters"
cli generate "${tiny[@]:0:8}" --threads 1 --seed 7 -o "$folder/b.png" --quiet
expect_code "quiet" 0; expect_same "the same seed gives the same bits with another thread count" "$folder/a.png" "$folder/b.png"
if [ ! -s "$out" ] && [ ! -s "$err" ]; then ok; else fail "--quiet says nothing" "$(both)"; fi
cli generate "${tiny[@]}" --seed 8 -o "$folder/c.png"; expect_different "another seed" "$folder/a.png" "$folder/c.png"
cli generate "${tiny[@]}" --seed 7 --noise-kind cuda -o "$folder/c.png"; expect_code "CUDA noise" 0; expect_different "CUDA noise" "$folder/a.png" "$folder/c.png"
for solver in heun midpoint dpmpp-2m heun-full rk4 res-multistep; do
    cli generate "${tiny[@]}" --seed 7 --solver $solver -o "$folder/$solver.png"; expect_code "solver $solver" 0; expect_different "solver $solver" "$folder/a.png" "$folder/$solver.png"
done
cli generate "${tiny[@]}" --seed 7 --shift 6 -o "$folder/c.png"; expect_different "shift" "$folder/a.png" "$folder/c.png"
cli generate "${tiny[@]}" --seed 7 --guidance 3 --negative "a cat" --guidance-norm 1 --guidance-end 0.9 -o "$folder/c.png"
expect_code "guidance" 0; expect_different "guidance" "$folder/a.png" "$folder/c.png"
"$support" parameters "$folder/c.png" >"$folder/parameters"
expect_text "the PNG carries the negative prompt" "^Negative prompt: a cat$" "$folder/parameters"; expect_text "the PNG carries the classic scale" "CFG scale: 4," "$folder/parameters"
for guidance in 0 3; do # of Z-Image, where 0 is none; 1 is none on the scale of other programs
    cli generate "${tiny[@]}" --guidance $guidance --json --quiet -o "$folder/g.png"; expect_text "generate --json has the guidance" "\"guidance\": $guidance,$" "$out"; expect_text "and the classic scale" "\"cfg_scale\": $((guidance + 1)),$" "$out"
    cli inspect --json "$folder/g.png"; expect_text "inspect --json has the same" "\"guidance\": $guidance,$" "$out"; expect_text "and the classic scale" "\"cfg_scale\": $((guidance + 1)),?$" "$out"
    cli inspect "$folder/g.png"; expect_text "inspect has the same" "^  guidance +$guidance$" "$out"; expect_text "and the classic scale" "^  CFG scale +$((guidance + 1)), the scale in which 1 is no guidance$" "$out"
done
if "$support" format tests/picture_files/plain.jpg >/dev/null 2>&1; then
    cli inspect tests/picture_files/webui.jpg; expect_text "another program's scale" "^  CFG scale +[0-9.]+, the scale" "$out"
    if grep -q "^  guidance" "$out"; then fail "another program's file does not say the model's own number" "$(cat "$out")"; else ok; fi
fi
cli generate "${tiny[@]}" --negative "a cat" -o "$folder/d.png"; expect_text "a negative prompt without guidance is told" "no effect" "$err"
cli generate "${tiny[@]}" --seed 7 --batch 2 -o "$folder/batch.png"
expect_code "a batch" 0; expect_same "a batch begins with its seed" "$folder/a.png" "$folder/batch-0.png"; expect_file "a batch" "$folder/batch-1.png"; expect_no_file "a batch" "$folder/batch.png"

# ---- Seeds, formats, standard output, links ---------------------------------------------------------------------------------------------
cli generate "${tiny[@]}" -o "$folder/r.png"; expect_code "a seed of its own" 0; expect_text "a seed of its own is told" "seed [0-9]+, 2 steps" "$out"
seed=$(sed -nE 's/.*seed ([0-9]+),.*/\1/p' "$out")
cli generate "${tiny[@]}" -o "$folder/s.png"; expect_different "every run has another seed" "$folder/r.png" "$folder/s.png"
cli generate "${tiny[@]}" --seed "$seed" -o "$folder/s.png"; expect_same "the seed that was told makes the picture again" "$folder/r.png" "$folder/s.png"

for format in PNG:png JPEG:jpg JPEG:JPEG WebP:webp; do
    name=${format%:*} file=$folder/form.${format#*:}
    if ! "$support" format tests/picture_files/"$(case $name in JPEG) echo plain.jpg ;; WebP) echo lossy.webp ;; *) echo wanted.png ;; esac)" >/dev/null 2>&1; then
        echo "skip: $name, which this build was made without"; skipped=$((skipped + 1)); continue
    fi
    cli generate "${tiny[@]}" --seed 7 --quality 100 -o "$file"; expect_code "a $name" 0
    [ "$("$support" format "$file")" = "$name" ] && ok || fail "the extension decides: $file is $("$support" format "$file" 2>&1)"
    expect_support "a $name shows the same" pictures "$file" "$folder/a.png" 12
    "$support" parameters "$file" >"$folder/parameters"; expect_text "a $name carries its settings" "^Steps: 2, .*Seed: 7, Size: 64x48" "$folder/parameters"
    cli inspect "$file"; expect_code "inspect a $name" 0; expect_text "a $name has no alpha channel" "^  picture +$name, 64x48, RGB$" "$out"
    expect_text "inspect tells the prompt" "^  prompt +a red fox$" "$out"; expect_text "inspect tells the seed" "^  seed +7$" "$out"; expect_text "inspect tells the size" "^  size +64x48$" "$out"
    cp "$file" "$folder/unnamed" # formats are found by content
    cli generate "${tiny[@]:0:4}" --steps 2 --image "$folder/unnamed" --seed 1 -o "$folder/i.png"; expect_code "a $name to start from" 0
    [ "$("$support" size "$folder/i.png")" = 64x48 ] && ok || fail "a $name to start from gives the size"
done
rgba=(--model "$PWD/tests/golden/qwen-image-21/model" --prompt "a red fox" --size 64x64 --steps 2 --threads 2 --seed 1) # a model that makes alpha
cli generate "${rgba[@]}" -o "$folder/alpha.png"; expect_code "alpha" 0
cli inspect "$folder/alpha.png"; expect_text "a PNG has the alpha of the model" "^  picture +PNG, 64x64, RGB and alpha$" "$out"
"$support" pixels "$folder/alpha.png" >"$folder/alpha.rgba"
mkdir "$folder/alpha-dump"; cli generate "${rgba[@]}" --dump "$folder/alpha-dump" -o "$folder/x.png"; expect_code "a dump with alpha" 0
[ "$("$support" shape "$folder/alpha-dump/dump.safetensors" pixels | tr -d ' ')" = "[64,64,4]" ] && ok || fail "a dump has the alpha of the model"
cli generate "${rgba[@]}" --image "$folder/alpha.png" --strength 0.7 -o "$folder/from_png.png"; expect_code "alpha in" 0
if "$support" format tests/picture_files/lossy.webp >/dev/null 2>&1; then
    cli generate "${rgba[@]}" --quality 100 -o "$folder/alpha.webp"; "$support" pixels "$folder/alpha.webp" >"$folder/webp.rgba"; expect_same "a lossless WebP keeps alpha" "$folder/alpha.rgba" "$folder/webp.rgba"
    cli generate "${rgba[@]}" --image "$folder/alpha.webp" --strength 0.7 -o "$folder/from_webp.png"; expect_same "alpha comes in from a WebP as from a PNG" "$folder/from_png.png" "$folder/from_webp.png"
fi
if "$support" format tests/picture_files/plain.jpg >/dev/null 2>&1; then
    cli generate "${rgba[@]}" -o "$folder/alpha.jpg"; expect_code "a JPEG of a transparent picture" 0; expect_text "a JPEG tells what it loses" "alpha.jpg: a JPEG has no alpha" "$err"
    cli inspect "$folder/alpha.jpg"; expect_text "a JPEG has no alpha" "64x64, RGB$" "$out"
fi
cli info --model "$PWD/tests/golden/qwen-image-21/model"; expect_text "info tells alpha" "^  alpha +made, and read" "$out"; cli info --model "$model"; expect_text "info tells that there is none" "^  alpha +none$" "$out"

cli generate "${tiny[@]}" --seed 7 --quality 10 -o "$folder/small.webp"; cli generate "${tiny[@]}" --seed 7 --quality 95 -o "$folder/large.webp"
[ ! -e "$folder/large.webp" ] || [ "$(wc -c <"$folder/small.webp")" -lt "$(wc -c <"$folder/large.webp")" ] && ok || fail "--quality makes a file smaller"

"$sumi" generate "${tiny[@]}" --seed 7 -o - >"$folder/piped.png" 2>"$err" </dev/null; code=$?
expect_code "standard output" 0; expect_same "standard output has the picture and nothing else" "$folder/a.png" "$folder/piped.png"; expect_text "the line goes to stderr" "^-  64x48, seed 7" "$err"
"$sumi" generate "${tiny[@]}" --seed 7 --profile -o - 2>"$err" </dev/null | cat >"$folder/piped.png"; expect_same "a profile does not go into the picture" "$folder/a.png" "$folder/piped.png"
if [ -e /dev/full ]; then "$sumi" generate "${tiny[@]}" -o - >/dev/full 2>"$err" </dev/null; code=$?; expect_code "a full disk behind standard output" 1; expect_text "a full disk is told" "cannot write standard output" "$err"; fi

if ln -s real.png "$folder/link.png" 2>/dev/null && [ ! -e "$sumi.exe" ]; then
    for state in "is not there yet" "is there"; do
        cli generate "${tiny[@]}" --seed 7 -o "$folder/link.png"; expect_code "a link to a file that $state" 0
        [ -L "$folder/link.png" ] && [ ! -L "$folder/real.png" ] && ok || fail "a link to a file that $state stays a link"
        expect_same "a link to a file that $state is written through" "$folder/a.png" "$folder/real.png"
    done
    mkdir "$folder/far"; ln -s ../link.png "$folder/far/link.png"; rm "$folder/real.png"
    cli generate "${tiny[@]}" --seed 7 -o "$folder/far/link.png"; expect_same "a link to a link, from another folder" "$folder/a.png" "$folder/real.png"
    ln -s circle.png "$folder/circle.png"; wrong "a link to itself" 1 "leads to no file" generate "${tiny[@]}" -o "$folder/circle.png"
    ln -s nowhere/x.png "$folder/dangling.png"; wrong "a link into a folder that is not there" 1 "there is no folder $folder/nowhere" generate "${tiny[@]}" -o "$folder/dangling.png"
else
    echo "skip: symbolic links: the system has none that everybody may make"; skipped=$((skipped + 1))
fi

# ---- For other programs -----------------------------------------------------------------------------------------------------------------
cli generate "${tiny[@]}" --seed 7 --batch 2 --profile --json -o "$folder/j.png"
expect_code "generate --json" 0; expect_support "generate --json" json "$out"; expect_text "the JSON names files" "\"path\": \"$folder/j-1.png\"" "$out"; expect_text "the JSON has seeds" '"seed": 8,' "$out"; expect_text "the JSON has the profile" '"op": "' "$out"
cli inspect --json "$model"; expect_code "inspect --json" 0; expect_support "inspect --json" json "$out"; expect_text "its family" '"family": "z-image"' "$out"; [ "$(grep -c '"state": "complete"' "$out")" = 3 ] && ok || fail "inspect --json finds three components complete" "$(cat "$out")"
cli inspect --json "$model" --tensors; expect_support "inspect --json --tensors" json "$out"; expect_text "its tensors" '"name": "cap_pad_token"' "$out"
cli inspect --json "$golden/lora/lora_kohya.safetensors"; expect_support "inspect --json of an adapter" json "$out"; expect_text "its ranks" '"rank": 4,' "$out"
cli inspect --json tests/golden/newbie/adapters/lokr_full; expect_support "inspect --json of a LoKr" json "$out"; expect_text "its method" '"method": "LoKr"' "$out"
cli inspect --json "$folder/a.png"; expect_support "inspect --json of a picture" json "$out"; expect_text "its settings" '"seed": 7,' "$out"
cli inspect --json tests/golden/newbie/model; expect_code "inspect --json of two encoders" 0; expect_support "inspect --json of two encoders" json "$out"; expect_text "the second tokenizer" '"tokenizer_2": ' "$out"
cli info --json; expect_code "info --json" 0; expect_support "info --json" json "$out"; expect_text "what the GPU lacks" '"reason": ' "$out"
cli info --json --model "$model"; expect_support "info --json of a model" json "$out"; expect_text "its presets" '"quality": ' "$out"
cli inspect tests/picture_files/wanted.png; expect_text "a picture without settings" "parameters +none in this file" "$out"
cli inspect tests/golden/common/images/manifest.json; expect_code "inspect of what is nothing known" 1
cli help --man; expect_code "the manual page" 0; expect_text "the manual page" "^\.TH SUMI 1" "$out"
for command in GENERATE ENCODE INSPECT TOKENIZE XML INFO VERSION; do expect_text "the manual page has $command" "^\.SH SUMI $command\$" "$out"; done
if command -v groff >/dev/null; then
    groff -man -Tascii -P-cbou -ww "$out" >"$folder/manual" 2>"$err"; [ ! -s "$err" ] && ok || fail "groff reads the manual page without a warning" "$(cat "$err")"
    expect_text "options in the manual page" "\-\-memory-budget" "$folder/manual"
else
    echo "skip: the manual page as groff sees it: there is no groff"; skipped=$((skipped + 1))
fi

# ---- Prompts in XML ---------------------------------------------------------------------------------------------------------------------
described=(--character "gender=1girl; appearance=long_hair, <o>_<o> ;" --character "name = 初音未来;action=a\\;b" --tags " quality=good ; style=ink" --caption "Salt & pepper.")
printf '%s\n' '<character_1>' '<n>$character_1$</n>' '<gender>1girl</gender>' '<appearance>long_hair, &lt;o&gt;_&lt;o&gt;</appearance>' '</character_1>' '' \
    '<character_2>' '<n>初音未来</n>' '<action>a;b</action>' '</character_2>' '' '<general_tags>' '<style>ink</style>' '<quality>good</quality>' '</general_tags>' '' \
    '<caption>Salt &amp; pepper.</caption>' >"$folder/wanted.xml"
cli xml "${described[@]}"; expect_code "xml" 0; expect_same "xml prints the text" "$folder/wanted.xml" "$out"
cli xml "${described[@]}" --xml-indent 2; sed 's/^./  &/' "$folder/wanted.xml" >"$folder/indented.xml"; expect_same "xml indents" "$folder/indented.xml" "$out"
cli generate "${tiny[@]:0:2}" "${tiny[@]:4}" "${described[@]}" --seed 7 -o "$folder/described.png"
expect_code "a prompt in XML" 0
{ echo "sumi: the prompt is"; cat "$folder/wanted.xml"; } >"$folder/told"
head -n "$(wc -l <"$folder/told")" "$err" >"$folder/tells"; expect_same "a prompt in XML is told" "$folder/told" "$folder/tells"
cli generate "${tiny[@]:0:2}" "${tiny[@]:4}" --prompt "$(cat "$folder/wanted.xml")" --seed 7 -o "$folder/plain.png" --quiet
expect_same "a prompt in XML is that text" "$folder/plain.png" "$folder/described.png"; expect_different "a prompt in XML counts" "$folder/a.png" "$folder/described.png"
cli generate "${tiny[@]:0:2}" "${tiny[@]:4}" "${described[@]}" --seed 7 --batch 2 -o "$folder/described.png" --quiet
expect_code "a batch of a prompt in XML" 0; expect_same "a batch of a prompt in XML" "$folder/plain.png" "$folder/described-0.png"; expect_file "a batch of a prompt in XML" "$folder/described-1.png"
if [ ! -s "$err" ]; then ok; else fail "--quiet tells no prompt" "$(both)"; fi

cli generate "${tiny[@]}" --prompt "二只猫" --seed 7 -o "$folder/two.png"
expect_code "two prompts" 0; expect_same "two prompts" "$folder/a.png" "$folder/two-0.png"; expect_different "two prompts" "$folder/two-0.png" "$folder/two-1.png"
"$support" parameters "$folder/two-1.png" >"$folder/parameters"; expect_text "any script in the PNG's text" "^二只猫$" "$folder/parameters"
cli generate "${tiny[@]}" --lora "$golden/lora/lora_peft.safetensors:0.8" --lora "$golden/lora/lora_kohya.safetensors" --seed 7 -o "$folder/lora.png"
expect_code "adapters" 0; expect_different "adapters" "$folder/a.png" "$folder/lora.png"
"$support" parameters "$folder/lora.png" >"$folder/parameters"; expect_text "the PNG names adapters" 'Lora: "lora_peft:0.8, lora_kohya:1"' "$folder/parameters"
cli generate "${tiny[@]}" --lora "$golden/lora/lora_peft.safetensors:0" --seed 7 -o "$folder/zero.png"; expect_support "an adapter of scale 0" pictures "$folder/zero.png" "$folder/a.png" 0
cli generate "${tiny[@]}" --preview-dir "$folder/previews" --seed 7 -o "$folder/p.png"
expect_code "previews" 0; expect_text "progress is plain lines without a terminal" "^denoise 1/2, " "$err"; expect_file "previews" "$folder/previews/preview-0-1.png"; expect_file "previews" "$folder/previews/preview-0-2.png"; expect_same "previews change nothing" "$folder/a.png" "$folder/p.png"
[ "$("$support" size "$folder/previews/preview-0-1.png")" = 8x6 ] && ok || fail "a preview's size"
cli generate "${tiny[@]}" --profile --seed 7 -o "$folder/p.png"
expect_code "profile" 0; expect_text "the profile has a head" "GFLOP/s" "$out"; expect_text "the profile has ops" "[0-9]  denoise " "$out"; expect_same "the profile changes nothing" "$folder/a.png" "$folder/p.png"
cli generate --model "$model" --prompt x --size 64x48 --preset quality --steps 2 -o "$folder/p.png"; expect_code "a preset" 0
cli generate --model "$model" --prompt x --size 64x48 --steps 12 --step-cache 10 -o "$folder/p.png"
expect_code "a step cache" 0; expect_text "a step cache" "of 12 evaluations reused" "$out"
cli inspect "$folder/p.png"; expect_text "the step cache in the file" "step cache +10" "$out"
cli generate --model "$model" --prompt x --size 64x48 --steps 12 --step-cache every:4 -o "$folder/q.png"
expect_text "a fixed schedule" "7 of 12 evaluations reused, about [0-9]+ dB kept" "$out"
cli inspect "$folder/q.png"; expect_text "the schedule in the file" "step cache +every:4" "$out"
cli generate --model "$model" --prompt x --size 64x48 --steps 12 --step-cache auto -o "$folder/q.png"
expect_code "a step cache that keeps 40 dB" 0; cli inspect "$folder/q.png"; expect_text "the dB in the file" "step cache +auto:40" "$out"
cli generate --model "$model" --prompt x --step-cache every:1 -o "$folder/q.png"; expect_code "a schedule of nothing" 2; expect_text "it says what to give" "every:N with 2 to 10" "$err"
cli generate --model "$model" --prompt x --size 64x48 --steps 12 --step-cache 10 --json --quiet -o "$folder/p.png"
expect_text "a step cache in JSON" '"reused_evaluations": ?[1-9]' "$out"
cli generate --model "$model" --prompt x --step-cache -1 -o "$folder/p.png"; expect_code "a step cache below 0" 2
cli generate --model "$model" --prompt x --size 64x48 --deadline-ms 60000 --steps 2 -o "$folder/p.png"; expect_code "a deadline" 0
cli generate "${tiny[@]}" --memory-budget 1G --seed 7 -o "$folder/p.png"; expect_code "a budget" 0; expect_same "a budget changes nothing" "$folder/a.png" "$folder/p.png"
cli generate --transformer "$golden/single-file/z_image_turbo_bf16.safetensors" --vae "$golden/model/vae" --text-encoder "$model" --tokenizer "$model/tokenizer" --prompt x --size 64x48 --steps 2 -o "$folder/parts.png"
expect_code "parts given one by one" 0; expect_file "parts given one by one" "$folder/parts.png"

# ---- Prompts from files, names of outputs -----------------------------------------------------------------------------------------------
settings() { # files: prompt, seed and size of each, in one line
    local file
    for file; do "$sumi" inspect "$file" | sed -nE 's/^  (prompt|seed|size) +//p' | paste -sd '|'; done
}
expect_settings() { # what, wanted, files
    local what=$1 wanted=$2; shift 2
    [ "$(settings "$@" 2>&1)" = "$wanted" ] && ok || fail "$what" "$(settings "$@" 2>&1; both)"
}
few=(--model "$model" --size 64x48 --steps 2 --threads 2)
printf '\xef\xbb\xbf# a comment\r\na red fox\r\n\r\n \t\r\n  # 1 cat size=48x32 seed=9\t\r\na dog seed=18446744073709551615\r\nthe last one, seed=7 not at the end' >"$folder/prompts.txt"
cli generate "${few[@]}" --prompts "$folder/prompts.txt" --seed 7 -o "$folder/line-%03d.png"
expect_code "prompts of a file" 0; expect_same "prompts of a file" "$folder/a.png" "$folder/line-000.png"; expect_text "prompts of a file are told" "^sumi: $folder/prompts.txt:5, 2 of 4$" "$err"
expect_settings "each line has its prompt, seed and size" "a red fox|7|64x48
# 1 cat|9|48x32
a dog|18446744073709551615|64x48
the last one, seed=7 not at the end|10|64x48" "$folder"/line-00[0-3].png
[ "$("$support" size "$folder/line-001.png")" = 48x32 ] && ok || fail "a line's size"
expect_text "each picture is told" "^$folder/line-001.png  48x32, seed 9, 2 steps" "$out"
"$sumi" generate "${few[@]}" --prompts - --seed 7 --batch 2 -o "$folder/in.png" <"$folder/prompts.txt" >"$out" 2>"$err"; code=$?
expect_code "prompts of standard input" 0; expect_file "prompts of standard input" "$folder/in-7.png"; expect_text "standard input is told" "standard input:5, 2 of 4" "$err"
expect_settings "a batch counts up over the lines" "a red fox|8|64x48
# 1 cat|10|48x32
a dog|0|64x48
the last one, seed=7 not at the end|14|64x48" "$folder"/in-[1357].png
seq 11 | "$sumi" generate "${few[@]}" --prompts - --quiet --json --preview-dir "$folder/line-previews" -o "$folder/many.png" >"$out" 2>"$err"; code=$?
expect_code "eleven prompts" 0; expect_file "numbers are padded" "$folder/many-00.png"; expect_file "numbers are padded" "$folder/many-10.png"; expect_support "JSON of several jobs" json "$out"
[ "$(grep -c '"path": ' "$out")" = 11 ] && ok || fail "JSON of several jobs has every picture" "$(cat "$out")"
expect_file "previews have the numbers of the pictures" "$folder/line-previews/preview-10-2.png"
cli generate "${few[@]}" --prompt one --prompt two --seed 5 -o "$folder/%d-of-them.png"; expect_settings "prompts count seeds up" "one|5|64x48
two|6|64x48" "$folder"/[01]-of-them.png
cli generate "${few[@]}" --prompt one -o "$folder/single%02d.png"; expect_file "a pattern numbers one picture" "$folder/single00.png"
mkdir "$folder/100%"; cli generate "${few[@]}" --prompt one -o "$folder/100%/x.png"; expect_file "a folder's name may have a %" "$folder/100%/x.png"
printf '@all of it\r\n in two lines\r\n' >"$folder/whole.txt"
cli generate "${few[@]}" --prompt "@$folder/whole.txt" --prompt @@home -o "$folder/whole.png"; expect_code "a prompt of a file" 0
"$support" parameters "$folder/whole-0.png" | tr -d '\r' >"$folder/parameters"; [ "$(head -n 3 "$folder/parameters" | paste -sd '|')" = "@all of it| in two lines|Steps: 2, $(grep -o 'Sampler.*' "$folder/parameters")" ] && ok || fail "a prompt of a file" "$(cat "$folder/parameters")"
expect_settings "@@ is one @" "@home|$("$sumi" inspect "$folder/whole-1.png" | sed -nE 's/^  seed +//p')|64x48" "$folder/whole-1.png"
cli encode --model "$model" --prompt "@$folder/whole.txt" -o "$folder/whole.safetensors"; expect_code "encode a prompt of a file" 0
cli generate "${few[@]}" --guidance 3 --prompt a --negative "@$folder/whole.txt" -o "$folder/x.png"; "$support" parameters "$folder/x.png" >"$folder/parameters"; expect_text "a negative prompt of a file" "^Negative prompt: @all of it" "$folder/parameters"

wrong_lines() { # what, pattern, lines as printf takes them
    printf "$3" >"$folder/wrong.txt"
    wrong "$1" 2 "$2" generate "${few[@]}" --prompts "$folder/wrong.txt" -o "$folder/wrong.png"
}
wrong_lines "a seed that is no number" "wrong.txt:3: seed= needs a whole number" "a\n\nb seed=x\n"
wrong_lines "a seed without a number" "wrong.txt:1: seed= needs" "a seed="
wrong_lines "a seed beyond 64 bits" "wrong.txt:1: seed= needs" "a seed=18446744073709551616"
wrong_lines "two seeds" "wrong.txt:1: seed= is there twice" "a seed=1 size=64x64 seed=2"
wrong_lines "a size that is none" "wrong.txt:2: size= needs width and height" "a\nb size=64 seed=1"
wrong_lines "a size that is no multiple" "wrong.txt:2: size=65x48: this model makes multiples of 16, as in 64x48" "a\nb size=65x48\nc\n"
wrong_lines "a size that is too large" "wrong.txt:2: size=8192x48: this model makes at most 4096" "a\nb size=8192x48\nc\n"
wrong_lines "settings without a prompt" "wrong.txt:2: there is no prompt" "a\n  seed=1\n"
wrong_lines "a zero byte" "wrong.txt:2: a zero byte" 'a\nb\0c\n'
wrong_lines "a zero byte in a comment" "wrong.txt:2: a zero byte" 'a\n#b\0c\n'
wrong_lines "a line that is not UTF-8" "wrong.txt:2: byte 2 is not UTF-8; save" 'a\nb\xff\n'
wrong_lines "UTF-16" "wrong.txt is UTF-16; save" '\xff\xfea\0'
wrong_lines "no prompts" "wrong.txt has no prompts" "# a\n\n  \n"
wrong_lines "an empty file" "wrong.txt has no prompts" ""
wrong_lines "a line that is too long" "wrong.txt:2: 65537 bytes; a prompt has at most 65536" "a\n$(printf '%65537s' | tr ' ' a)\nb\n"
wrong "a prompt of a file with a zero byte" 2 "a.png: a zero byte" generate "${few[@]}" --prompt "@$folder/a.png" -o "$folder/wrong.png"
expect_no_file "wrong lines make no picture" "$folder/wrong.png"; expect_no_file "wrong lines make no picture" "$folder/wrong-0.png"
for option in --profile "--latents-out $folder/wrong.safetensors"; do # shellcheck disable=SC2086
    wrong "$option of several jobs" 2 "of one job" generate "${few[@]}" --prompts "$folder/prompts.txt" $option -o "$folder/wrong.png"
done
wrong "several prompts to standard output" 2 "this makes 4" generate "${few[@]}" --prompts "$folder/prompts.txt" -o -

# A thousand lines take no more memory than ten, but for the lines themselves. The sanitizer would keep what was freed.
if [ -x /usr/bin/time ] && [ ! -e "$sumi.exe" ]; then
    peak() { # number of prompts: kB of memory at most
        seq "$1" | ASAN_OPTIONS=quarantine_size_mb=0 /usr/bin/time -f %M "$sumi" generate --model "$model" --size 16x16 --steps 1 --threads 1 --prompts - --quiet -o "$folder/peak-%04d.png" 2>&1 | tail -n 1
    }
    few_kb=$(peak 10) many_kb=$(peak 1000)
    [ $((many_kb - few_kb)) -lt 4096 ] && ok || fail "a thousand prompts take as much memory as ten" "$few_kb and $many_kb kB"
    expect_file "a thousand prompts" "$folder/peak-0999.png"; rm "$folder"/peak-*.png
else
    echo "skip: the memory of a thousand prompts: there is no /usr/bin/time"; skipped=$((skipped + 1))
fi

cp "$folder/a.png" "$folder/kept-2.png"; cp "$folder/kept-2.png" "$folder/kept.before"
wrong "an output that is kept" 2 "kept-2.png is there already, and --no-clobber keeps it" generate "${few[@]}" --prompt a --batch 3 --no-clobber -o "$folder/kept.png"
expect_same "an output that is kept" "$folder/kept-2.png" "$folder/kept.before"; expect_no_file "nothing is made beside it" "$folder/kept-0.png"
cp "$folder/a.png" "$folder/kept.safetensors"
wrong "latents that are kept" 2 "kept.safetensors is there already" generate "${few[@]}" --prompt a --no-clobber --latents-out "$folder/kept.safetensors" -o "$folder/kept.png"
cli generate "${few[@]}" --prompt a --no-clobber -o "$folder/kept.png"; expect_code "--no-clobber without a file" 0; expect_file "--no-clobber without a file" "$folder/kept.png"
cli generate "${few[@]}" --prompt a -o "$folder/kept.png"; expect_code "a file is replaced" 0

# ---- Golden numbers ---------------------------------------------------------------------------------------------------------------------
golden_case() { # name, tolerance, arguments: compares latents and picture
    local name=$1 limit=$2; shift 2
    cli generate --model "$model" --noise "$golden/cases/$name.safetensors:input.noise" --latents-out "$folder/$name.safetensors" -o "$folder/$name.png" "$@"
    expect_code "$name" 0
    expect_support "$name: latents" tensors "$folder/$name.safetensors" latents "$golden/cases/$name.safetensors" expect.latents "$limit"
    [ ! -e "$golden/cases/$name.png" ] || expect_support "$name: picture" pictures "$folder/$name.png" "$golden/cases/$name.png" 1
}
golden_case turbo_t2i 3e-4 --prompt "一只红色的狐狸 in the snow, photo" --size 64x48
[ "$("$support" shape "$folder/turbo_t2i.safetensors" latents | tr -d ' ')" = "[1,16,6,8]" ] && ok || fail "the shape of --latents-out"
golden_case img2img_mode 3e-4 --prompt "watercolor painting of flowers" --size 48x32 --steps 9 --strength 0.3 --latents "$golden/cases/img2img_mode.safetensors:expect.clean"
golden_case base_cfg 3e-4 --prompt "A portrait of an old man" --negative "blurry, low quality" --size 48x32 --steps 6 --guidance 4 --shift 6
golden_case base_cfg_norm 3e-4 --prompt "A portrait of an old man" --negative "blurry, low quality" --size 48x32 --steps 6 --guidance 4 --shift 6 --guidance-norm 1
golden_case base_cfg_trunc 3e-4 --prompt "A portrait of an old man" --size 48x32 --steps 6 --guidance 3 --shift 6 --guidance-end 0.2

# ---- What every stage has computed ------------------------------------------------------------------------------------------------------
# The reference tells its predictions with the other sign: they are then what is taken away from the noise.
dump_case() { # name of a golden case that was made above, its tensor of the first prediction, arguments
    local name=$1 prediction=$2 of=$golden/cases/$1.safetensors at=$folder/dump-$1; shift 2
    local made=$at/dump.safetensors
    cli generate --model "$model" --noise "$of:input.noise" --dump "$at" -o "$at.png" "$@"
    expect_code "a dump of $name" 0
    expect_support "a dump of $name changes no pixel" pictures "$at.png" "$folder/$name.png" 0
    expect_support "the features of $name" tensors "$made" features.positive.0 "$of" expect.cap_feats 3e-4
    expect_support "the first prediction of $name" tensors "$made" prediction "$of" "-$prediction" 3e-4
    expect_support "the latents after each step of $name" tensors "$made" latents "$of" expect.latents 3e-4
    expect_support "the noise of $name" tensors "$made" noise "$of" input.noise 0
    expect_support "the settings of $name" json "$at/dump.json"
}
dump_case turbo_t2i expect.model_out_first --prompt "一只红色的狐狸 in the snow, photo" --size 64x48
[ "$("$support" shape "$folder/dump-turbo_t2i/dump.safetensors" latents | tr -d ' ')" = "[8,16,6,8]" ] && ok || fail "a dump has the latents of every step"
expect_text "a dump names the prompt" '"prompt": "一只红色的狐狸 in the snow, photo"' "$folder/dump-turbo_t2i/dump.json"
expect_text "a dump names the model's files" '"path": ".*/transformer/.*-00002-of-00003.safetensors"' "$folder/dump-turbo_t2i/dump.json"
dump_case base_cfg expect.prediction_first --prompt "A portrait of an old man" --negative "blurry, low quality" --size 48x32 --steps 6 --guidance 4 --shift 6
expect_support "the features of the negative prompt" tensors "$folder/dump-base_cfg/dump.safetensors" features.negative.0 "$golden/cases/base_cfg.safetensors" expect.neg_feats 3e-4
cli generate "${tiny[@]}" --seed 7 --solver heun --dump "$folder/dump" -o "$folder/d.png"; expect_code "a dump with two evaluations in a step" 0; expect_same "a dump draws the noise of the seed" "$folder/d.png" "$folder/heun.png"
cli generate "${tiny[@]}" --seed 7 --noise-kind cuda --dump "$folder/dump" -o "$folder/d.png"; cli generate "${tiny[@]}" --seed 7 --noise-kind cuda -o "$folder/c.png"; expect_same "a dump draws CUDA noise" "$folder/d.png" "$folder/c.png"
for option in "--batch 2" "--prompt b" "--step-cache 0.1" "--image $folder/a.png" "--preview-dir $folder"; do # shellcheck disable=SC2086
    wrong "a dump with $option" 2 "leave (more than one )?${option%% *} out" generate "${tiny[@]}" $option --dump "$folder/dump" -o "$folder/x.png"
done
wrong "a dump without a folder" 2 "name a folder" generate "${tiny[@]}" --dump "" -o "$folder/x.png"
wrong "a dump into a folder that is not there" 1 "there is no folder" generate "${tiny[@]}" --dump "$folder/no/such" -o "$folder/x.png"
wrong "a dump that is kept" 2 "dump.safetensors is there already" generate "${tiny[@]}" --no-clobber --dump "$folder/dump" -o "$folder/dump-none.png"

# ---- Encoding once ----------------------------------------------------------------------------------------------------------------------
cli encode --model "$model" --prompt "a red fox" -o "$folder/fox.safetensors"; expect_code "encode a prompt" 0; expect_file "encode a prompt" "$folder/fox.safetensors"
cli generate --model "$model" --encoded-prompt "$folder/fox.safetensors" --size 64x48 --steps 2 --seed 7 -o "$folder/p.png"
expect_code "a saved prompt" 0; expect_support "a saved prompt makes the same picture" pictures "$folder/p.png" "$folder/a.png" 0
for format in bf16 int8; do
    cli encode --model "$model" --prompt "a red fox" --format $format -o "$folder/fox.$format"; expect_code "encode as $format" 0
    cli generate --model "$model" --encoded-prompt "$folder/fox.$format" --size 64x48 --steps 2 --seed 7 -o "$folder/p.png"
    expect_code "a prompt saved as $format" 0; expect_support "a prompt saved as $format makes nearly the same picture" pictures "$folder/p.png" "$folder/a.png" 1
done
cli encode --model "$model" --prompt "a red fox" --format f32 -o "$folder/fox.f32"; expect_same "f32 is the default" "$folder/fox.f32" "$folder/fox.safetensors"
cli inspect "$folder/fox.int8" --model "$model"; expect_code "inspect an encoded prompt" 0; expect_text "inspect tells whose prompt it is" "^  prompt +of z-image, encoded$" "$out"; expect_text "inspect tells its features" "^  features +[0-9]+ rows of 96 values, I8$" "$out"; expect_text "inspect tells that it fits" "^  model +it fits " "$out"
cli inspect "$folder/fox.safetensors" --model tests/golden/newbie/model; expect_code "inspect a prompt of another model" 1; expect_text "inspect tells why" "was encoded for z-image, this model is newbie-image" "$err"
cli inspect --json "$folder/fox.safetensors"; expect_code "inspect --json of a prompt" 0; expect_support "inspect --json of a prompt" json "$out"; expect_text "its kind" '"kind": "prompt"' "$out"; expect_text "its rows" '"row_count": [0-9]+' "$out"
[ "$("$support" shape "$folder/fox.bf16" features)" = "$("$support" shape "$folder/fox.f32" features)" ] && [ $(($(wc -c <"$folder/fox.int8") * 2)) -lt "$(wc -c <"$folder/fox.f32")" ] && ok || fail "smaller formats of a prompt"
wrong "an unknown format of a prompt" 2 "f32\|bf16\|int8" encode --model "$model" --prompt a --format fp8 -o "$folder/x"
wrong "a format without a prompt" 2 "give --prompt TEXT" encode --model "$model" --image "$folder/a.png" --format bf16 -o "$folder/x"
head -c 2000 "$folder/fox.int8" >"$folder/cut.int8"
wrong "a cut prompt" 1 "cut.int8" generate --model "$model" --encoded-prompt "$folder/cut.int8" -o "$folder/x.png"
wrong "guidance with a saved prompt needs a saved negative" 2 "--negative-file" generate --model "$model" --encoded-prompt "$folder/fox.safetensors" --guidance 3 -o "$folder/q.png"
cli generate --model "$model" --encoded-prompt "$folder/fox.safetensors" --negative-file "$folder/fox.safetensors" --guidance 3 --size 64x48 --steps 2 -o "$folder/q.png"; expect_code "a saved negative" 0
cli encode --model "$model" --image "$folder/a.png" -o "$folder/latents.safetensors"; expect_code "encode a picture" 0
[ "$("$support" shape "$folder/latents.safetensors" latents | tr -d ' ')" = "[16,6,8]" ] && ok || fail "the shape of encoded latents"
cli generate "${tiny[@]:0:4}" --steps 4 --image "$folder/a.png" --posterior mode --strength 0.5 --seed 3 -o "$folder/i.png"; expect_code "image to image" 0
[ "$("$support" size "$folder/i.png")" = 64x48 ] && ok || fail "image to image takes the picture's size"
"$support" parameters "$folder/i.png" >"$folder/parameters"; expect_text "the PNG carries the strength" "Denoising strength: 0.5" "$folder/parameters"
cli generate "${tiny[@]:0:4}" --steps 4 --latents "$folder/latents.safetensors" --strength 0.5 --seed 3 -o "$folder/l.png"
expect_code "image to image from latents" 0; expect_support "from latents as from the picture" pictures "$folder/l.png" "$folder/i.png" 1
wrong "references of a model that takes none" 2 "takes no reference images" generate "${tiny[@]}" --reference "$folder/a.png" --reference "$folder/a.png" -o "$folder/x.png"
wrong "encode with references of a model that takes none" 2 "takes no reference images" encode --model "$model" --prompt a --reference "$folder/a.png" -o "$folder/x"
qwen=$PWD/tests/golden/qwen-image # an edit model, of its parts
mkdir "$folder/edit"
cp -r "$qwen/model/." "$qwen/model-edit/processor" "$folder/edit"
cp "$qwen/model-edit-2509/model_index.json" "$folder/edit"
sed -i 's/"_class_name"/"sample_size": 64, &/' "$folder/edit/vae/config.json" # images and references of 64 x 64 take less time than those of its family
edit=(--model "$folder/edit" --threads 2 --seed 5)
two=(--reference "$qwen/cases/pipe-edit-2509.in0.png" --reference "$qwen/cases/pipe-edit-2509.in1.png")
cli generate "${edit[@]}" "${two[@]}" --prompt "the hat" --negative " " --guidance 4 --size 64x64 --steps 1 -o "$folder/e.png"; expect_code "references" 0
cli encode "${edit[@]}" "${two[@]}" --prompt "the hat" -o "$folder/hat.safetensors"; expect_code "encode with references" 0
cli inspect "$folder/hat.safetensors"; expect_text "inspect tells a prompt's references" "^  references +[0-9]+x[0-9]+, [0-9]+x[0-9]+$" "$out"; cli inspect --json "$folder/hat.safetensors"; expect_support "inspect --json of references" json "$out"; expect_text "their channels" '"channel_count": 3' "$out"
cli encode "${edit[@]}" "${two[@]}" --prompt " " -o "$folder/no_hat.safetensors"; expect_code "encode a negative prompt with references" 0
cli generate "${edit[@]}" --encoded-prompt "$folder/hat.safetensors" --negative-file "$folder/no_hat.safetensors" --guidance 4 --size 64x64 --steps 1 -o "$folder/f.png"; expect_code "references of a file" 0
"$support" pixels "$folder/e.png" >"$folder/e.rgba"; "$support" pixels "$folder/f.png" >"$folder/f.rgba"
expect_same "a prompt's file keeps its references" "$folder/e.rgba" "$folder/f.rgba"
small=("${edit[@]}" --prompt "the hat" --steps 1)
cli generate "${small[@]}" -o "$folder/native.png"; expect_code "an edit model without references and size" 0
[ "$("$support" size "$folder/native.png")" = 64x64 ] && ok || fail "without references the size is the model's native one"
cli generate "${small[@]}" --size 64x64 -o "$folder/x.png"; expect_code "an edit model without references" 0; expect_support "the native size is a size as any" pictures "$folder/native.png" "$folder/x.png" 0
cli info --model "$folder/edit"; expect_code "info, an edit model" 0; expect_text "info tells the size without references" "references +0 to 3; without any the size is 64x64$" "$out"
cli generate "${edit[@]}" "${two[@]}" --prompt "the hat" --guidance 4 --size 64x64 --steps 1 --preview-dir "$folder/previews" -o "$folder/own.png"; expect_code "the model's own negative text" 0
expect_text "progress names the pictures of a prompt" "^vision and text, " "$err"; expect_text "progress names the VAE's encoder" "^encode, " "$err"; expect_text "progress names the decoder" "^decode, " "$err"
"$support" pixels "$folder/own.png" >"$folder/own.rgba"; expect_same "without --negative it is the model's own" "$folder/e.rgba" "$folder/own.rgba"
"$support" parameters "$folder/own.png" >"$folder/parameters"; expect_text "the PNG counts references" "References: 2" "$folder/parameters"; expect_text "the PNG carries the model's negative text" "^Negative prompt:  $" "$folder/parameters"
cli generate "${edit[@]}" "${two[@]}" --prompt "the hat" --guidance 4 --guidance-rule plain --size 64x64 --steps 1 -o "$folder/plain.png"; expect_code "a guidance rule" 0
"$support" pixels "$folder/plain.png" >"$folder/plain.rgba"; expect_different "a guidance rule changes the picture" "$folder/own.rgba" "$folder/plain.rgba"
"$support" parameters "$folder/plain.png" >"$folder/parameters"; expect_text "the PNG names the rule" "Guidance rule: plain" "$folder/parameters"
wrong "an unknown guidance rule" 2 "norm-rescale" generate "${edit[@]}" --guidance-rule hard
wrong "guidance below the number that means none" 2 "guidance" generate "${edit[@]}" "${two[@]}" --prompt x --guidance 0.5 -o "$folder/x.png"
wrong "a saved prompt without a saved negative is told the model's own" 2 'encode --prompt " " makes one' generate "${edit[@]}" --encoded-prompt "$folder/hat.safetensors" -o "$folder/x.png"
wrong "no strength at all" 2 "strength is 0" generate "${tiny[@]}" --image "$folder/a.png" --strength 0 -o "$folder/x.png"
wrong "a limit of another guidance rule" 2 "the option is --guidance-norm" generate "${tiny[@]}" --guidance 3 --guidance-rule plain --guidance-norm 1 -o "$folder/x.png"
wrong "an adapter's scale beyond 1000" 2 "give -1000 to 1000" generate "${tiny[@]}" --lora "$golden/lora/lora_peft.safetensors:1001" -o "$folder/x.png"
cp -r "$model/vae" "$folder/decoder"; chmod -R u+w "$folder/decoder"; sed -i 's/"encoder\./"xncoder./g' "$folder/decoder/diffusion_pytorch_model.safetensors"
wrong "a start picture of a model without an encoder" 2 "the option is --image" generate "${tiny[@]}" --vae "$folder/decoder" --image "$folder/a.png" -o "$folder/x.png"
wrong "more references than the model takes" 2 "give 0 to 3" generate "${edit[@]}" "${two[@]}" "${two[@]}" --prompt x -o "$folder/x.png"
cp -r "$qwen/model" "$folder/t2i"
t2i=(--model "$folder/t2i" --threads 2 --prompt "a fox")
cli generate "${t2i[@]}" --variant 2512 --preset fast --size 64x64 -o "$folder/fast.png"
expect_code "the preset fast" 0; expect_text "the preset fast has four steps" "4 steps" "$out"; expect_text "fast without an adapter is told" "needs an adapter" "$err"
"$support" parameters "$folder/fast.png" >"$folder/parameters"; expect_text "the preset fast" "Steps: 4, .*CFG scale: 1,.* Shift: 3" "$folder/parameters"
wrong "a variant that there is none of" 2 "edit-2511, edit, first, 2512" generate "${t2i[@]}" --variant 251 -o "$folder/x.png"
cli generate --transformer "$folder/edit/transformer" --vae "$folder/edit/vae" --text-encoder "$folder/edit/text_encoder" --tokenizer "$folder/edit/tokenizer" \
    --vision "$folder/edit/text_encoder" --processor "$folder/edit/processor" --variant edit-2509 --threads 2 "${two[@]}" --prompt "the hat" --guidance 4 --size 64x64 --steps 1 -o "$folder/parts.png"
expect_code "an edit model of parts" 0; expect_file "an edit model of parts" "$folder/parts.png"
wrong "a second text encoder of a family that has one" 2 "the option is --text-encoder-2" generate "${t2i[@]}" --text-encoder-2 tests/golden/newbie/model/clip_model -o "$folder/x.png"
wrong "a second text encoder that is none" 1 "text_encoder_2" generate "${t2i[@]}" --text-encoder-2 "$folder/edit/text_encoder" -o "$folder/x.png"
cli generate "${tiny[@]:0:4}" --steps 4 --image "$folder/a.png" --mask "$folder/a.png" --seed 3 -o "$folder/m.png"; expect_code "inpainting" 0

# ---- Start pictures of another shape ----------------------------------------------------------------------------------------------------
expect_support "a wide picture" paint 200 60 "$folder/wide.png"; expect_support "a high picture" paint 60 200 "$folder/high.png"; expect_support "a picture" paint 72 59 "$folder/odd.png"
expect_support "a small mask" paint 100 30 "$folder/mask.png"; expect_support "a long picture" paint 8192 32 "$folder/long.png"; expect_support "a smaller picture" paint 8 8 "$folder/eight.png"
start() { cli generate "${tiny[@]:0:4}" --steps 4 --strength 0.5 --seed 3 --threads 2 "$@"; }
same_as_part() { # what, picture, part, arguments: the picture is used as its part is
    local what=$1 picture=$2 part=$3; shift 3
    # shellcheck disable=SC2086
    expect_support "$what: the part" part "$picture" $part "$folder/part.png"
    start --image "$picture" "$@" -o "$folder/whole.png"; expect_code "$what" 0
    cp "$err" "$folder/told"
    start --image "$folder/part.png" "$@" -o "$folder/x.png"; expect_same "$what" "$folder/whole.png" "$folder/x.png"
    if grep -q "cropped" "$err"; then fail "$what: a picture of the right shape is not cropped" "$(cat "$err")"; else ok; fi
}
same_as_part "the edge beyond a multiple is cut off" "$folder/odd.png" "4 5 64 48"
expect_text "the edge that is cut off is told" "odd.png, 72x59, is cropped to 64x48; --fit stretch takes all of it$" "$folder/told"
same_as_part "a wide picture is cropped" "$folder/wide.png" "60 0 80 60" --size 64x48; expect_text "a wide picture is told" "wide.png, 200x60, is cropped to 80x60; " "$folder/told"
same_as_part "a high picture is cropped" "$folder/high.png" "0 77 60 45" --size 64x48; expect_text "a high picture is told" "high.png, 60x200, is cropped to 60x45; " "$folder/told"
same_as_part "a wide picture of few rows is enlarged" "$folder/wide.png" "85 0 30 60" --size 64x128
[ "$(grep -c "cropped" "$folder/told")" = 1 ] && ok || fail "one line tells it" "$(cat "$folder/told")"
start --image "$folder/wide.png" --size 64x48 --fit stretch -o "$folder/stretched.png"; expect_code "--fit stretch" 0; expect_text "--fit stretch is told" "wide.png, 200x60, is stretched to 64x48$" "$err"
start --image "$folder/wide.png" --size 64x48 --quiet -o "$folder/x.png"; expect_different "--fit stretch" "$folder/stretched.png" "$folder/x.png"; [ ! -s "$err" ] && ok || fail "--quiet tells no crop" "$(cat "$err")"
for mask in "wide.png 60 0 80 60" "mask.png 30 0 40 30"; do # of the picture's size, and of half of it
    # shellcheck disable=SC2086
    expect_support "a mask's part" part "$folder/"$mask "$folder/part-mask.png"; expect_support "its picture's part" part "$folder/wide.png" 60 0 80 60 "$folder/part.png"
    start --image "$folder/wide.png" --mask "$folder/${mask%% *}" --size 64x48 -o "$folder/whole.png"; expect_code "a mask of another shape" 0
    start --image "$folder/part.png" --mask "$folder/part-mask.png" --size 64x48 -o "$folder/x.png"; expect_same "a mask is cropped with its picture: $mask" "$folder/whole.png" "$folder/x.png"
done
start --image "$folder/long.png" -o "$folder/x.png"; expect_code "a picture beyond 4096" 0; [ "$("$support" size "$folder/x.png")" = 4096x16 ] && ok || fail "a picture beyond 4096 is resized" "$(both)"
expect_text "a picture beyond 4096 is told" "long.png, 8192x32, is resized to 4096x16, the most that this model makes$" "$err"
wrong "a picture of less than a multiple" 2 "eight.png is 8x8, which is no size this model makes: give --size" generate "${tiny[@]:0:4}" --image "$folder/eight.png" -o "$folder/x.png"
printf 'a\nb size=48x48\nc size=48x48\n' >"$folder/prompts.txt"
start --image "$folder/wide.png" --size 64x48 -o "$folder/x.png"; cli generate --model "$model" --steps 4 --strength 0.5 --seed 3 --prompts "$folder/prompts.txt" --image "$folder/wide.png" --size 64x48 -o "$folder/lines.png"
expect_code "a start picture of several sizes" 0; [ "$(grep -o "cropped to [0-9x]*" "$err" | paste -sd,)" = "cropped to 80x60,cropped to 60x60" ] && ok || fail "a start picture of several sizes" "$(cat "$err")"
expect_support "its part" part "$folder/wide.png" 70 0 60 60 "$folder/part.png"
cli generate --model "$model" --steps 4 --strength 0.5 --seed 5 --prompt c --image "$folder/part.png" --size 48x48 -o "$folder/x.png"; expect_same "a start picture of several sizes" "$folder/lines-2.png" "$folder/x.png"
for fit in crop stretch; do
    cli encode --model "$model" --image "$folder/odd.png" --fit $fit -o "$folder/$fit.safetensors"; expect_code "encode --fit $fit" 0; expect_text "encode tells" "odd.png, 72x59, is (cropped|stretched) to 64x48" "$err"
done
expect_support "the part of a picture" part "$folder/odd.png" 4 5 64 48 "$folder/part.png"; cli encode --model "$model" --image "$folder/part.png" -o "$folder/part.safetensors"
expect_same "encode crops" "$folder/crop.safetensors" "$folder/part.safetensors"; expect_different "encode stretches" "$folder/stretch.safetensors" "$folder/part.safetensors"

# ---- inspect, tokenize, info ------------------------------------------------------------------------------------------------------------
cli inspect "$model"
expect_code "inspect" 0; expect_text "inspect tells the family" "family +z-image turbo" "$out"; expect_text "inspect counts tensors" "tensors +73," "$out"
expect_text "inspect lists shards" "diffusion_pytorch_model-00003-of-00003.safetensors" "$out"; expect_text "inspect tells types" "F32: 73 tensors" "$out"
expect_text "inspect tells the shift" "shift 3" "$out"
[ "$(grep -c 'missing *nothing' "$out")" = 3 ] && ok || fail "inspect finds nothing missing" "$(cat "$out")"
for part in transformer text_encoder vae; do
    cli inspect "$model/$part"; expect_code "inspect $part" 0; expect_text "inspect $part" "^  $part +/" "$out"
done
cli inspect "$golden/single-file/z_image_turbo_bf16.safetensors"; expect_code "inspect a single file" 0; expect_text "inspect a single file" "missing +nothing" "$out"
cli inspect "$golden/single-file/ae.safetensors"; expect_code "inspect a VAE" 0; expect_text "inspect a VAE" "missing +nothing" "$out"
cli inspect "$golden/lora/lora_kohya.safetensors"; expect_code "inspect an adapter" 0; expect_text "inspect an adapter" "LoRA of 11 layers, kohya" "$out"; expect_text "inspect tells ranks" "rank +2: 6 layers, 4: 5 layers" "$out"
cli inspect tests/golden/newbie/adapters/lokr_full; expect_code "inspect a folder with an adapter" 0; expect_text "inspect tells LoKr and norms" "LoKr of 20 layers, 18 norms" "$out"; expect_text "inspect tells whole factors" "whole: 20 layers, as a product: 0 layers" "$out"
cli inspect tests/golden/newbie/adapters/lora_peft/adapter_model.safetensors; expect_code "inspect PEFT's file" 0; expect_text "inspect tells PEFT's names" "LoRA of 20 layers, PEFT" "$out"
cli inspect tests/golden/newbie/adapters/lora_peft/adapter_model.safetensors; expect_code "inspect an adapter with a config" 0; expect_text "inspect tells where alpha is" "alpha +adapter_config.json" "$out"
# Adapters of zeros, by the names and shapes of their tensors. inspect with a model ends as generate does, and says why.
tensors_of() { # file, name rows columns ...
    local file=$1 json= at=0 bytes; shift
    while [ $# -gt 0 ]; do bytes=$((4 * $2 * $3)); json="$json,\"$1\":{\"dtype\":\"F32\",\"shape\":[$2,$3],\"data_offsets\":[$at,$((at + bytes))]}"; at=$((at + bytes)); shift 3; done
    json="{${json#,}}"
    { printf "$(printf '\\%03o\\%03o' $((${#json} % 256)) $((${#json} / 256)))\0\0\0\0\0\0%s" "$json"; head -c "$at" /dev/zero | tr '\0' "${byte:-\0}"; } >"$file"
}
q=diffusion_model.layers.0.attention.to_q t=text_encoder.model.layers.0.self_attn.q_proj
tensors_of "$folder/dora.safetensors" $q.lora_A.weight 2 64 $q.lora_B.weight 64 2 $q.dora_scale 64 1 $t.lora_A.weight 2 96 $t.lora_B.weight 128 2
tensors_of "$folder/differences.safetensors" $q.diff 64 64 $q.diff_b 64 1
tensors_of "$folder/text.safetensors" $t.lora_A.weight 2 96 $t.lora_B.weight 128 2
tensors_of "$folder/text_of_another.safetensors" $t.lora_A.weight 2 64 $t.lora_B.weight 64 2
tensors_of "$folder/inversion.safetensors" bundle_emb.word.clip_l 1 64
tensors_of "$folder/oft.safetensors" $q.oft_blocks 8 64
tensors_of "$folder/half.safetensors" $q.lora_A.weight 2 64
tensors_of "$folder/other.safetensors" transformer.blocks.0.q.lora_A.weight 2 64 transformer.blocks.0.q.lora_B.weight 64 2
while IFS='|' read -r name alone with says; do
    cli inspect "$folder/$name.safetensors"; expect_code "inspect $name" "$alone"; expect_text "inspect tells $name" "$says" "$out"
    cli inspect "$folder/$name.safetensors" --model "$model"; expect_code "inspect $name with a model" "$with"
    cli generate --backend cpu --model "$model" --prompt x --size 64x64 --steps 1 --lora "$folder/$name.safetensors" -o "$folder/l.png"; expect_code "generate with $name" "$with"
done <<'ADAPTERS'
dora|0|0|DoRA: 1 of the layers
dora|0|0|text encoder +1 of the layers .text_encoder
differences|0|0|full differences of 1 layers, 1 biases, ComfyUI names
text|0|0|text encoder +1 of the layers .text_encoder
text_of_another|0|1|text encoder +1 of the layers .text_encoder
inversion|1|1|not usable .*bundle_emb.*textual inversion
oft|1|1|not usable .*oft_blocks belongs to an OFT
half|1|1|not usable .*to_q.lora_A.weight has no partner
other|0|1|LoRA of 1 layers, PEFT
ADAPTERS
# An adapter of the text encoder, with values (every byte is '='): it changes the prompt by its scale, which the encoded prompt tells.
byte='=' tensors_of "$folder/words.safetensors" $t.lora_A.weight 2 96 $t.lora_B.weight 128 2
encoded=0
for lora in "" "$folder/words.safetensors:200" "$folder/words.safetensors:1:200" "$folder/words.safetensors:200:0"; do
    cli encode --backend cpu --model "$model" --prompt x ${lora:+--lora "$lora"} -o "$folder/p$((++encoded)).safetensors"; expect_code "encode with --lora $lora" 0
    case $lora in *:200) expect_text "encode tells its adapters" "adapters words.safetensors:200$" "$out"; cli inspect "$folder/p$encoded.safetensors"; expect_text "inspect tells a prompt's adapters" "^  adapters +words.safetensors:200$" "$out" ;; *:0) expect_text "encode tells that none does anything" "the adapters do not change the prompt" "$err" ;; esac
done
expect_different "an adapter of the text encoder" "$folder/p1.safetensors" "$folder/p2.safetensors"
expect_same "a scale of text encoders alone" "$folder/p2.safetensors" "$folder/p3.safetensors"; expect_same "an adapter without its layers of text encoders" "$folder/p1.safetensors" "$folder/p4.safetensors"
cli generate --backend cpu --model "$model" --prompt x --seed 1 --size 64x64 --steps 1 --lora "$folder/words.safetensors:0:200" -o "$folder/l1.png"; expect_code "generate with an adapter of the text encoder" 0
cli generate --backend cpu --model "$model" --encoded-prompt "$folder/p2.safetensors" --seed 1 --size 64x64 --steps 1 -o "$folder/l2.png"; expect_support "the prompt that the adapter changed" pictures "$folder/l2.png" "$folder/l1.png" 0
"$support" parameters "$folder/l1.png" >"$folder/parameters"; expect_text "the PNG names the scale of text encoders" 'Lora: "words:0:200"' "$folder/parameters"
wrong "an adapter for an encoded picture" 2 "give --prompt" encode --model "$model" --image x.png --lora "$folder/words.safetensors" -o "$folder/x.safetensors"
cli inspect --json "$folder/oft.safetensors"; expect_code "inspect --json of an OFT" 1; expect_text "its fault" '"fault": ".*OFT' "$out"
wrong "inspect of a model with a model" 1 "for adapters" inspect "$model" --model "$model"
cli inspect "$model/vae" --tensors; expect_text "inspect --tensors" "decoder.conv_in.weight +BF16 +\[32, 16, 3, 3\]" "$out"
wrong "inspect of what is not there" 1 "no/such" inspect no/such
cli inspect "$qwen/model" # text to image of another family
expect_code "inspect another family" 0; expect_text "inspect tells another family" "family +qwen-image first$" "$out"; expect_text "inspect lists variants" "variants +first, 2512:" "$out"
expect_text "inspect tells two streams" "2 blocks of two streams, width 64, 2 heads of 32" "$out"; expect_text "inspect tells a vision tower" "^  vision +.*names begin with visual" "$out"
expect_text "inspect tells the schedule" "dynamic shift, exponential from 0.5 at 256 tokens to 0.9 at 8192, last noise level 0.02" "$out"; expect_text "inspect tells the tokenizer's form" "vocab.json, .*with merges.txt, ids 0 to 677" "$out"
[ "$(grep -c 'missing *nothing' "$out")" = 4 ] && ok || fail "inspect finds nothing missing in four parts" "$(cat "$out")"
cli inspect "$folder/edit"; expect_code "inspect an edit model" 0
expect_text "inspect tells references" "family +qwen-image-edit-plus edit-2509, with up to 3 reference pictures" "$out"; expect_text "inspect tells the processor" "^  processor +.*preprocessor_config.json" "$out"
cp -r "$folder/edit" "$folder/edit-2511"; chmod -R u+w "$folder/edit-2511"
cp "$qwen/model-edit-2511/transformer/config.json" "$folder/edit-2511/transformer"
cli inspect "$folder/edit-2511"; expect_text "inspect tells the time of references" "modulated by time 0 \(zero_cond_t" "$out"; expect_text "inspect tells the variant" "edit-plus edit-2511" "$out"
sed -i 's/norm_added_q.weight/norm_added_x.weight/' "$folder/edit-2511/transformer"/diffusion_pytorch_model*
cli inspect "$folder/edit-2511"; expect_code "inspect with a part that cannot be used" 1; expect_text "inspect says why" "not usable +.*norm_added_q.weight" "$out"
cli inspect "$qwen/model/vae/diffusion_pytorch_model.safetensors"; expect_code "inspect a part of another family" 0; expect_text "inspect names the part" "^  vae +.*, qwen-vae" "$out"; expect_text "inspect a part of another family" "16 latent channels, decoder and encoder" "$out"
qwen21=$PWD/tests/golden/qwen-image-21 # a prefix, a vision tower of another kind, files in ComfyUI's layout and in GGUF
cli inspect "$qwen21/model"; expect_code "inspect a model with a prefix" 0; expect_text "inspect tells ten references" "family +qwen-image-2.1 base, with up to 10 reference pictures$" "$out"
expect_text "inspect tells one stream" "2 blocks of one stream, width 64, 2 heads of 32, feed-forward 192, captions 48 wide, gate and projection in two tensors$" "$out"
expect_text "inspect tells the tower's sizes" "4 blocks, width 24, rows 48 wide$" "$out"; expect_text "inspect tells 64 channels" "64 latent channels, decoder and encoder$" "$out"
[ "$(grep -c 'missing *nothing' "$out")" = 4 ] && ok || fail "inspect finds nothing missing in its four parts" "$(cat "$out")"
cli inspect "$qwen21/files/qwen_image_2.1_prefixed.safetensors"; expect_text "inspect tells a fused layer" "feed-forward 192, .* in one tensor$" "$out"; expect_text "inspect tells the prefix" "names begin with model.diffusion_model." "$out"
cli inspect "$qwen21/files/qwen_image_2.1-Q8_0.gguf"; expect_text "inspect tells its GGUF" "^  transformer +.*, qwen-image-2.1, no config" "$out"; expect_text "inspect tells types" "Q8_0: 14 tensors" "$out"
cli inspect "$qwen21/lora/comfyui.safetensors" --model "$qwen21/model"; expect_code "inspect an adapter of a fused layer" 0
cli inspect "$qwen21/model/text_encoder"; expect_code "inspect its text encoder alone" 0; expect_text "inspect tells its layers" "^    network +4 layers, width 48, 496 tokens$" "$out"
cp -r "$qwen21/model" "$folder/turbo"; chmod -R u+w "$folder/turbo"; cp -r "$qwen21"/model-turbo/* "$folder/turbo"
cli inspect "$folder/turbo"; expect_text "inspect tells listed levels" "^  scheduler +8 steps, no other number, at the levels 1 0.978453 .* 0.414568, 1000 training steps$" "$out"
cli inspect --json "$folder/turbo"; expect_support "inspect --json of listed levels" json "$out"; expect_text "its levels" '^ +0.414568' "$out"
newbie=$PWD/tests/golden/newbie # two text encoders
cli inspect "$newbie/model"; expect_code "inspect a model of two text encoders" 0; expect_text "inspect tells the family" "family +newbie-image exp0.1$" "$out"
expect_text "inspect tells the transformer" "2 layers and 2 x 2 refiners, width 128, 4 heads of 32, feed-forward 64, captions 32 wide, a pooled row of 128$" "$out"
expect_text "inspect tells the first encoder" "^  text_encoder +.*text_encoder, gemma3$" "$out"; expect_text "inspect tells its layers" "8 layers, width 32, 1088 tokens$" "$out"
expect_text "inspect tells the second encoder" "^  text_encoder_2 +.*clip_model, jina-clip$" "$out"; expect_text "inspect tells its adapter" "2 layers, width 128, 402 tokens, one pooled row, an adapter of rank 4" "$out"
expect_text "inspect tells both tokenizers" "^  tokenizer_2 +.*clip_model/tokenizer.json, .*ids 0 to 401$" "$out"; expect_text "inspect tells the shift" "^  scheduler +shift 6, 1000" "$out"
[ "$(grep -c 'missing *nothing' "$out")" = 4 ] && ok || fail "inspect finds nothing missing in both encoders" "$(cat "$out")"
cli inspect "$newbie/model/clip_model"; expect_code "inspect a second encoder" 0; expect_text "inspect a second encoder" "^  text_encoder_2 +.*jina-clip$" "$out"
if grep -q "^  tokenizer " "$out"; then fail "the second encoder's tokenizer is not the first one's" "$(cat "$out")"; else ok; fi
cp -r "$newbie/model" "$folder/newbie"; chmod -R u+w "$folder/newbie"; rm -r "$folder/newbie/scheduler"
cli inspect "$folder/newbie"; expect_code "inspect without a scheduler" 0; expect_text "inspect says that the shift is the released one" "scheduler +missing: the released model's is taken: shift 6$" "$out"
rm -r "$folder/newbie/clip_model"
cli inspect "$folder/newbie"; expect_text "inspect without the second encoder" "^  text_encoder_2 missing: nothing in " "$out"; expect_text "inspect without its tokenizer" "^  tokenizer_2 +missing" "$out"
cli encode --model "$newbie/model" --prompt "$(printf 'a %.0s' {1..600})" -o "$folder/long.safetensors"; expect_code "encode a text that is too long" 0; expect_text "a text that is too long is told" "longer than the model reads: its end is cut off" "$err"
wrong "generate without the second encoder" 1 "needs its second text encoder.*text_encoder_2_path" generate --model "$folder/newbie" --prompt x --size 64x48 -o "$folder/x.png"
dit=$newbie/model/transformer/diffusion_pytorch_model.safetensors gemma=$newbie/model/text_encoder jina=$newbie/model/clip_model/model.safetensors
pieces=$PWD/tests/golden/common/tokenizers
expect_support "one file of several parts" merge "$folder/newbie.safetensors" "model.diffusion_model.=$dit" "text_encoders.gemma3.transformer.=$gemma/model-00001-of-00002.safetensors" \
    "text_encoders.gemma3.transformer.=$gemma/model-00002-of-00002.safetensors" "text_encoders.jina_clip.=$jina" "vae.=$newbie/model/vae/diffusion_pytorch_model.safetensors" \
    "text_encoders.gemma3.spiece_model=@$pieces/newbie-gemma/tokenizer.model" "text_encoders.jina_clip.spiece_model=@$pieces/xlmr/sentencepiece.bpe.model"
cli inspect "$folder/newbie.safetensors" # without configs a tiny network's heads and groups cannot be told
expect_text "inspect one file" "^  transformer +.*, newbie-image, names begin with model.diffusion_model., no config.json: shapes tell$" "$out"
expect_text "inspect one file" "^  text_encoder +.*, gemma3, names begin with text_encoders.gemma3.transformer., no config" "$out"; expect_text "inspect one file" "^  text_encoder_2 +.*, jina-clip, names begin with text_encoders.jina_clip., no config" "$out"
expect_text "inspect one file" "^  vae +.*, flux-vae, names begin with vae., no config" "$out"; expect_text "inspect tokenizers among tensors" "^  tokenizer +.*newbie.safetensors, 18.9 kB, SentencePiece, ids 0 to 1031$" "$out"
expect_text "inspect the second tokenizer among tensors" "^  tokenizer_2 +.*newbie.safetensors, 255.3 kB, SentencePiece, ids 0 to 1237$" "$out"
for prefix in "" model.diffusion_model. inner_model.; do
    mkdir -p "$folder/dit"; cp "$newbie/model/transformer/config.json" "$folder/dit"
    expect_support "a transformer behind \"$prefix\"" merge "$folder/dit/newbie_dit.safetensors" "$prefix=$dit"
    cli inspect "$folder/dit/newbie_dit.safetensors"; expect_code "inspect a transformer behind \"$prefix\"" 0
    expect_text "inspect a transformer behind \"$prefix\"" "^  transformer +.*, newbie-image${prefix:+, names begin with $prefix}$" "$out"; expect_text "inspect a transformer alone" "missing +nothing" "$out"
done
# Renaming in place keeps the file's length: the tensor is then missing under its name.
cp -r "$model" "$folder/damaged"; chmod -R u+w "$folder/damaged"
sed -i 's/decoder.up_blocks.2.resnets.1.conv1.bias/decoder.up_blocks.2.resnets.1.conv1.bixs/' "$folder/damaged/vae/diffusion_pytorch_model.safetensors"
cli inspect "$folder/damaged"; expect_code "inspect with a tensor missing" 1; expect_text "inspect names it" "^ +decoder.up_blocks.2.resnets.1.conv1.bias$" "$out"
wrong "generate with a tensor missing" 1 "decoder.up_blocks.2.resnets.1.conv1.bias" generate --model "$folder/damaged" --prompt x --size 64x48 -o "$folder/x.png"
truncate -s -100 "$folder/damaged/text_encoder/model-00002-of-00003.safetensors"
wrong "inspect with a file cut short" 1 "model-00002-of-00003" inspect "$folder/damaged"

# ---- What stays out, and what to take instead -------------------------------------------------------------------------------------------
# Renaming in place again: a tensor that has another program's name shows its method.
part() { # folder, script for sed: a copy of one folder of the model in which names are replaced by others of the same length
    rm -rf "$folder/part"; cp -r "$model/$1" "$folder/part"; chmod -R u+w "$folder/part"
    sed -i "$2" "$folder/part"/*.safetensors*
}
while IFS='|' read -r option of script tensor method; do
    part "$of" "$script"
    wrong "$method in $of" 1 "part: its weights are quantised with $method, as the tensor .*$tensor( in .*safetensors)? shows, .*; take the bf16, fp8 .* or GGUF file of the model$" generate "${tiny[@]}" "$option" "$folder/part" -o "$folder/x.png"
done <<'END'
--transformer|transformer|s/layers.0.attention.to_q.weight/layers.0.attention.to_.qweight/; s/layers.0.attention.to_k.weight/layers.0.attention.to_.wscales/|to_.qweight|SVDQuant .nunchaku.
--transformer|transformer|s/layers.0.attention.to_q.weight/layers.0.attention.to_q.absmax/|to_q.absmax|bitsandbytes .4 bits.
--text-encoder|text_encoder|s/model.layers.0.mlp.up_proj.weight/model.layers.0.mlp.up_p.quant_map/|up_p.quant_map|bitsandbytes .4 bits.
--text-encoder|text_encoder|s/model.layers.0.mlp.up_proj.weight/model.layers.0.mlp.up_pro.qweight/|up_pro.qweight|AWQ, GPTQ or SVDQuant .nunchaku.
--vae|vae|s/decoder.conv_out.weight/decoder.c.weight_packed/|c.weight_packed|compressed-tensors
END
part transformer ''; rm "$folder/part"/*.safetensors*
wrong "a folder without weights" 1 "part: has a config.json and no weights; download them: diffusion_pytorch_model.safetensors, or" generate "${tiny[@]}" --transformer "$folder/part" -o "$folder/x.png"
for name in diffusion_pytorch_model.bin pytorch_model.bin.index.json model.ckpt; do
    rm -f "$folder/part"/*.bin*; : >"$folder/part/$name"
    wrong "a folder with $name" 1 "of this transformer are there only as $name, a file of PyTorch .*; take the safetensors .bf16, fp8. or GGUF files" generate "${tiny[@]}" --transformer "$folder/part" -o "$folder/x.png"
    rm "$folder/part/$name"
done
for start in 'PK\3\4' '\200\2\212\nl\374'; do
    printf "$start and so on" >"$folder/weights.pt"
    wrong "a file of PyTorch" 1 "weights.pt: is a PyTorch archive .*; take the safetensors .* or GGUF file of the model" generate --model "$folder/weights.pt" --prompt x -o "$folder/x.png"
done
for of in transformer text_encoder vae; do # a download that was interrupted: the model's folder has it all but this
    rm -rf "$folder/hollow"; cp -r "$model" "$folder/hollow"; chmod -R u+w "$folder/hollow"; rm "$folder/hollow/$of"/*.safetensors*
    wrong "a model without the weights of $of" 1 "hollow/$of: has a config.json and no weights; download them" generate --model "$folder/hollow" --prompt x -o "$folder/x.png"
    [ $of != vae ] || { cli inspect "$folder/hollow"; expect_text "inspect tells it" "vae +missing: .*/vae: has a config.json and no weights" "$out"; }
done

# ---- Licences ---------------------------------------------------------------------------------------------------------------------------
rm -rf "$folder/card"; cp -r "$model" "$folder/card"; chmod -R u+w "$folder/card"
cli inspect "$folder/card"; if grep -q "^  licence" "$out"; then fail "no licence without a card" "$(cat "$out")"; else ok; fi
while IFS='|' read -r card wanted; do
    printf -- "$card" >"$folder/card/README.md"
    cli inspect "$folder/card"; expect_code "inspect a licence" 0
    if [ -n "$wanted" ]; then expect_text "a licence of a card" "^  licence +$wanted \\(.*card/README.md\\)$" "$out"; elif grep -q "^  licence" "$out"; then fail "no licence in $card" "$(cat "$out")"; else ok; fi
done <<'END'
---\nlicense: apache-2.0\ntags:\n- x\n---\n# Card\nlicense: mit\n|apache-2.0
---\r\nlanguage:\r\n- en\r\nlicense: other # see below\r\nlicense_name: "newbie-nc-1.0"\r\nlicense_link: LICENSE.md\r\n---\r\n|other, newbie-nc-1.0, LICENSE.md
---\nlicense:\n- mit\n- x\n---\n|mit
---\nmodel:\n  license: mit\ntags:\n- license\n---\n|
# A card\nlicense: mit\n|
END
printf -- '---\nlicense: other\nlicense_name: a\nlicense_link: b\n---\n' >"$folder/card/README.md"
cli inspect --json "$folder/card"; expect_support "inspect --json of a licence" json "$out"; expect_text "inspect --json of a licence" '"link": "b",' "$out"
python=; command -v python3 >/dev/null && python=python3
if [ -n "$python" ]; then # the metadata of safetensors and of GGUF, by hand
    mkdir "$folder/meta"
    $python - "$golden/single-file/ae.safetensors" "$folder/meta" <<'END'
import json, struct, sys
b = open(sys.argv[1], "rb").read(); n = struct.unpack("<Q", b[:8])[0]; h = json.loads(b[8:8 + n])
h["__metadata__"] = {"modelspec.license": "openrail++"}; t = json.dumps(h).encode()
open(sys.argv[2] + "/st.safetensors", "wb").write(struct.pack("<Q", len(t)) + t + b[8 + n:])
text = lambda s: struct.pack("<Q", len(s)) + s.encode()
keys = {"general.architecture": "x", "general.alignment": None, "general.license": "apache-2.0", "general.license.link": "there"}
g = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys))
for k, v in keys.items(): g += text(k) + (struct.pack("<II", 4, 32) if v is None else struct.pack("<I", 8) + text(v))
g += text("decoder.conv_in.weight") + struct.pack("<I4QIQ", 4, 1, 1, 1, 1, 0, 0)
open(sys.argv[2] + "/g.gguf", "wb").write(g + bytes(-len(g) % 32) + bytes(32))
for name, width, captions in ("4b", 3072, 7680), ("9b", 4096, 12288), ("9b-nvfp4", 4096, 12288), ("5b", 3584, 7680): # only what the sizes are read of; the values are a hole in the file
    h = {"double_stream_modulation_img.lin.weight": [1, 1], "single_stream_modulation.lin.weight": [1, 1], "txt_in.weight": [width, captions]}
    if name == "9b-nvfp4": h.update({"txt_in.weight": [width, captions // 2], "txt_in.weight_scale": [width, captions // 16]}) # by a program that the file does not name
    used = 0
    for k, v in h.items():
        kind, size = ("F8_E4M3", 1) if "scale" in k else ("U8", 1) if len(h) == 4 and "txt_in" in k else ("BF16", 2)
        h[k] = {"dtype": kind, "shape": v, "data_offsets": [used, used := used + size * v[0] * v[1]]}
    t = json.dumps(h).encode(); f = open(sys.argv[2] + f"/{name}.safetensors", "wb"); f.write(struct.pack("<Q", len(t)) + t); f.truncate(8 + len(t) + used)
h = {"txt_in.text_norm.weight": [4096], "modulation.1.weight": [16384, 4096], "img_in.weight": [4096, 64]}; used = 0
for k, v in h.items(): h[k] = {"dtype": "BF16", "shape": v, "data_offsets": [used, used := used + 2 * v[0] * (v + [1])[1]]}
t = json.dumps(h).encode(); f = open(sys.argv[2] + "/qwen21.safetensors", "wb"); f.write(struct.pack("<Q", len(t)) + t); f.truncate(8 + len(t) + used)
END
    cli inspect "$folder/meta/st.safetensors"; expect_text "a licence in safetensors" "^  licence +openrail\\+\\+ \\(modelspec.license of .*st.safetensors\\)$" "$out"
    cli inspect "$folder/meta/g.gguf"; expect_text "a licence in GGUF" "^  licence +apache-2.0, there \\(general.license of .*g.gguf\\)$" "$out"
    cli inspect "$folder/meta/4b.safetensors"; expect_text "the licence of a model by its sizes" "^  licence +apache-2.0 \\(of the released model with these sizes: the files name none\\)$" "$out"
    cli inspect "$folder/meta/9b.safetensors"; expect_text "the licence of a larger model" "^  licence +FLUX Non-Commercial License: not for commercial use \\(of the released" "$out"
    cli inspect "$folder/meta/9b-nvfp4.safetensors"; expect_text "the licence of packed weights" "^  licence +FLUX Non-Commercial License: not for commercial use \\(of the released" "$out"
    expect_text "the width of packed weights" "captions 12288 wide$" "$out"
    cli inspect "$folder/meta/qwen21.safetensors"; expect_text "the licence of Qwen-Image-2.1" "^  licence +Qwen Research License: not for commercial use \\(of the released" "$out"
    cli inspect "$folder/meta/5b.safetensors"; if grep -q "^  licence" "$out"; then fail "no licence of unknown sizes" "$(cat "$out")"; else ok; fi
else
    echo "skip: licences in metadata: there is no python3"; skipped=$((skipped + 7))
fi

# ---- What a single file does not say ----------------------------------------------------------------------------------------------------
cp "$golden/single-file/z_image_turbo_bf16.safetensors" "$folder/one.safetensors"
parts=(--vae "$model/vae" --text-encoder "$model" --tokenizer "$model/tokenizer" --prompt x --size 64x48 --steps 1 -o "$folder/x.png")
wrong "a transformer alone" 1 "without a text encoder, its tokenizer and without a VAE" generate --model "$folder/one.safetensors" --prompt x -o "$folder/x.png"
expect_text "a transformer alone needs options" "^  the options are --text-encoder, --tokenizer, --vae$" "$err"
wrong "a transformer without a VAE" 1 "without a VAE, which" generate --model "$folder/one.safetensors" "${parts[@]:2}"; expect_text "a transformer without a VAE" "the options are --vae$" "$err"
note="does not say which variant of z-image it is; it is taken for Turbo .8 steps, no guidance, shift 3.; if it is Z-Image Base .*--variant base"
cli generate --model "$folder/one.safetensors" "${parts[@]}"; expect_code "a single file" 0; expect_text "a single file may be Base" "$note" "$err"
for said in "$folder/one.safetensors --variant turbo" "$golden/single-file/z_image_turbo_bf16.safetensors"; do
    cli generate --model $said "${parts[@]}"; expect_code "a file that is told" 0
    if grep -q "does not say" "$err"; then fail "no note for a file that is told" "$(cat "$err")"; else ok; fi
done
edit=samples/demo_edit_model
cp $edit/transformer/*.safetensors "$folder/edit.safetensors"
parts=(--text-encoder $edit/text_encoder --vae $edit/vae --tokenizer $edit/tokenizer --reference samples/demo_model/previews.png --prompt red -o "$folder/x.png")
wrong "an edit model's single file" 2 "if it is an edit model, name its variant: --variant edit-2509, --variant edit-2511" generate --model "$folder/edit.safetensors" "${parts[@]}"
wrong "an edit model's single file with a processor" 2 "--variant edit-2511" generate --model "$folder/edit.safetensors" --processor $edit/processor "${parts[@]}"
# Few steps: the schedule of the file is the model's, and what else it says is told.
qwen_model=tests/golden/qwen-image/model
rm -rf "$folder/flash"; cp -r $qwen_model "$folder/flash"; chmod -R u+w "$folder/flash"
schedule() { printf '{"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, %s}' "$1" >"$folder/flash/scheduler/scheduler_config.json"; }
schedule '"shift": 3.0, "use_dynamic_shifting": false'
small=(--prompt x --size 32x32 --threads 2 -o "$folder/x.png")
told="schedule of models that were distilled to few steps .static shift 3, which is used.; if this is one, give --preset fast: 4 steps"
cli generate --model "$folder/flash" "${small[@]}"; expect_code "a few-step scheduler" 0; expect_text "a few-step scheduler is told" "$told" "$err"
cli inspect "$folder/flash"; expect_text "inspect of a few-step scheduler" "^  scheduler +shift 3, 1000 training steps$" "$out"
cli generate --model "$folder/flash" "${small[@]}" --seed 1 --steps 4 --guidance 1 --latents-out "$folder/flash.safetensors"
cli generate --model $qwen_model "${small[@]}" --seed 1 --steps 4 --guidance 1 --shift 3 --latents-out "$folder/shift.safetensors"
expect_same "the file's schedule is used: static, to zero" "$folder/flash.safetensors" "$folder/shift.safetensors"
cli generate --model $qwen_model "${small[@]}" --seed 1 --steps 4 --guidance 1 --latents-out "$folder/own.safetensors"; expect_different "and not the family's" "$folder/flash.safetensors" "$folder/own.safetensors"
schedule '"shift": 1.0, "use_dynamic_shifting": true, "base_shift": 1.0986122886681098, "max_shift": 1.0986122886681098, "shift_terminal": null'
cli generate --model "$folder/flash" "${small[@]}"; expect_text "the same as diffusers' users write it" "$told" "$err"
for options in "--model $folder/flash --preset fast" "--model $folder/flash --steps 4" "--model $qwen_model --steps 9"; do
    cli generate $options "${small[@]}"; if grep -q "distilled to few steps (" "$err"; then fail "no note with $options" "$(cat "$err")"; else ok; fi
done
cp "$golden/lora/lora_kohya.safetensors" "$folder/ink-4steps-V1.0.safetensors"
cli generate "${tiny[@]:0:6}" --steps 9 --lora "$folder/ink-4steps-V1.0.safetensors" -o "$folder/x.png"
expect_text "an adapter for few steps is told" "adapter ink-4steps-V1.0 says that it is for 4 steps, and this makes 9; give --preset fast --steps 4" "$err"
cli generate "${tiny[@]}" --guidance 1 -o "$folder/x.png"; expect_code "guidance 1" 0; expect_text "guidance 1 is told" "guidance 1: this model is made to run without guidance, which is 0 here .1 is none in ComfyUI" "$err"
cli generate "${tiny[@]}" --guidance 0 -o "$folder/x.png"; if grep -q "made to run" "$err"; then fail "no note without guidance" "$(cat "$err")"; else ok; fi

# A pipe in the place of a file: the program must end by itself. Nobody writes to these.
if [ "$(uname -s)" = Linux ]; then
    cp -r "$model" "$folder/fifo"; chmod -R u+w "$folder/fifo"
    shard=$folder/fifo/transformer/diffusion_pytorch_model-00002-of-00003.safetensors
    rm "$shard"; mkfifo "$shard" "$folder/a pipe"
    piped() { # what, pattern, arguments
        local what=$1 pattern=$2; shift 2
        timeout 20 "$sumi" "$@" >"$out" 2>"$err" </dev/null; code=$?
        expect_code "$what" 1; expect_text "$what" "$pattern" "$err"
    }
    piped "a FIFO in the place of a shard" "00002-of-00003.safetensors: is a (device or a )?pipe, not a regular file" generate --model "$folder/fifo" --prompt x -o "$folder/x.png"
    piped "inspect with a FIFO" "00002-of-00003.safetensors: is a (device or a )?pipe" inspect "$folder/fifo"
    piped "inspect a FIFO" "a pipe: is a (device or a )?pipe" inspect "$folder/a pipe"
    piped "tokenize with a FIFO" "a pipe: is a (device or a )?pipe" tokenize "$folder/a pipe"
    piped "a FIFO in the place of an adapter" "a pipe: is a (device or a )?pipe" generate "${tiny[@]}" --lora "$folder/a pipe" -o "$folder/x.png"
    piped "a FIFO in the place of noise" "a pipe: is a (device or a )?pipe" generate "${tiny[@]}" --noise "$folder/a pipe" -o "$folder/x.png"
fi
if [ "$(uname -s)" = Linux ] && [ -e "$sumi.exe" ]; then
    echo "skip: links to nothing, a picture out of a pipe, file names of control characters: Windows has none"
    skipped=$((skipped + 1))
elif [ "$(uname -s)" = Linux ]; then
    rm "$shard"; ln -s nowhere "$shard"
    piped "a link to nothing in the place of a shard" "00002-of-00003.safetensors: is a symbolic link to something that does not exist" generate --model "$folder/fifo" --prompt x -o "$folder/x.png"
    rm -r "$folder/fifo/text_encoder"; ln -s nowhere "$folder/fifo/text_encoder"
    piped "a link to nothing in the place of a component" "fifo/text_encoder is not a folder, or is a symbolic link" inspect "$folder/fifo"
    cli generate "${tiny[@]}" --image <(cat "$folder/fox.png" 2>/dev/null || cat samples/demo_model/previews.png) --strength 0.5 -o "$folder/x.png"
    expect_code "a picture out of a pipe" 0
fi

cli info --model samples/demo_edit_model; expect_text "the author's own preset" "^  presets +model +the references' size, 20 steps, guidance 2, Euler$" "$out"
cp -r "$model" "$folder/author"; chmod -R u+w "$folder/author"; sed -i 's/"_class_name"/"sumi": {"steps": "many", "guidance": 2}, &/' "$folder/author/model_index.json"
cli generate --model "$folder/author" --prompt x --size 64x48 -o "$folder/x.png"; expect_code "an author's number that is none" 0; expect_text "it is told" 'warning: .*author/model_index.json: the "steps" of "sumi" are not used: give 1 to 1000' "$err"

# Text out of files: whatever a file sets, a terminal obeys none of it.
evil=$(printf 'a\033]0;x\007\302\233b\177\tc\302\205') shown='a\\x1b\]0;x\\x07\\xc2\\x9bb\\x7f\\x09c\\xc2\\x85'
json='a\u001b]0;x\u0007\u009bb\u007f\u0009c\u0085' # the same in the header of a file of tensors
harmless() { # what: neither stdout nor stderr has a control character but line ends
    if LC_ALL=C grep -qE $'[\x01-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$out" "$err"; then fail "$1: control characters" "$(both | cat -v)"; else ok; fi
}
cli generate "${tiny[@]:0:2}" "${tiny[@]:4}" --prompt "$evil" --quiet -o "$folder/evil.png"; expect_code "a prompt of control characters" 0
cli inspect "$folder/evil.png"; expect_code "inspect a prompt of control characters" 0; harmless "inspect a picture"; expect_text "inspect shows them" "prompt +$shown" "$out"
expect_support "names of control characters" merge "$folder/evil.safetensors" "$json=$model/vae/diffusion_pytorch_model.safetensors"
cli inspect --tensors "$folder/evil.safetensors"; harmless "inspect --tensors"; expect_text "inspect --tensors shows them" "$shown" "$out"
cli generate --model "$folder/evil.safetensors" --prompt x -o "$folder/x.png"; expect_code "generate with names of control characters" 1; harmless "a failing generate"
cli info --model "$folder/evil.safetensors"; expect_code "info with names of control characters" 1; harmless "info"
cli info --model "$folder/$evil"; expect_code "info with a path of control characters" 1; harmless "info of a path"; expect_text "info shows the path" "$shown" "$err"
expect_support "an adapter's names" merge "$folder/evil-lora.safetensors" "$json=$golden/lora/lora_kohya.safetensors"
cli inspect --tensors "$folder/evil-lora.safetensors"; harmless "inspect an adapter"; expect_text "inspect an adapter shows them" "$shown" "$out"
cli generate "${tiny[@]}" --lora "$folder/evil-lora.safetensors" -o "$folder/x.png"; expect_code "generate with an adapter's names" 1; harmless "an adapter"
if [ ! -e "$sumi.exe" ]; then
    cp -r "$model" "$folder/$evil"; chmod -R u+w "$folder/$evil"
    cli inspect --tensors "$folder/$evil"; expect_code "inspect a folder of control characters" 0; harmless "inspect a folder"
    cli generate --model "$folder/$evil" "${tiny[@]:2}" --verbose -o "$folder/$evil.png"; expect_code "generate into a name of control characters" 0; harmless "generate --verbose"
    truncate -s -100 "$folder/$evil/text_encoder/model-00002-of-00003.safetensors"
    cli inspect "$folder/$evil"; expect_code "inspect a file cut short" 1; harmless "inspect a file cut short"
fi

ids=$(printf '"a cat"\n"\\u4e00\\u53ea"\n""\n' | "$sumi" tokenize "$model" 2>"$err"); code=$?
expect_code "tokenize" 0
[ "$ids" = "$(printf '[64, 295, 268]\n%s\n[]' "$(sed -n 2p <<<"$ids")")" ] && ok || fail "tokenize" "$ids"
lines=$(printf '"x"\nno json\n' | "$sumi" tokenize "$model/tokenizer/tokenizer.json" 2>"$err"); code=$?
expect_code "tokenize of no JSON" 1; expect_text "tokenize names the line" "line 2" "$err"; [ "$(wc -l <<<"$lines")" = 1 ] && ok || fail "tokenize answers the lines before" "$lines"
cli info --model "$folder/edit"
expect_code "info of a model" 0; expect_text "info tells the family" "^ +family +qwen-image-edit-plus" "$out"; expect_text "info tells the variant" "variant +edit-2509" "$out"; expect_text "info tells sizes" "multiples of 16 up to 4096" "$out"
expect_text "info tells guidance" "negative \+ G x .*; off: 1; the authors' number: 4$" "$out"; expect_text "info tells the rule" "norm-rescale" "$out"; expect_text "info quotes the negative text" 'negative text +" "$' "$out"
expect_text "info tells references" "references +0 to 3" "$out"; expect_text "info lists presets" "fast +the references' size, 4 steps, no guidance, Euler, shift 3" "$out"
cli info --model "$folder/t2i" --variant 2512; expect_text "info tells the variant that was said" "variant +2512" "$out"; expect_text "info tells its negative text" "negative text +\"低分辨率" "$out"; expect_text "info tells that there are no references" "references +none" "$out"
expect_text "info tells the authors' sizes" "1664x928" "$out"
cli info --model "$model"; expect_text "info of Z-Image" "positive \+ G x .*; off: 0; " "$out"; expect_text "info of Z-Image" 'negative text +""$' "$out"
wrong "info of a size without a model" 2 "give --model PATH too" info --size 64x64
wrong "info of a size that is no multiple" 2 "makes multiples of 16 up to 4096" info --model "$model" --size 100x64
cli info --model "$model" --size 256x256; expect_code "info --size" 0; expect_text "info --size says what it is" "^  memory in GB +computed, not measured: 256x256, a prompt of 128 tokens, without guidance$" "$out"
for format in bf16 fp8 int8 int4 as-stored; do expect_text "info --size has a row of $format" "^  $format +[0-9.]+ +[0-9.]+ +fits +fits +fits +fits +fits$" "$out"; done
cli info --model "$folder/edit" --size 256x256 --json; expect_code "info --size --json" 0; expect_support "info --size --json" json "$out"; expect_text "it has the same for programs" '"other_bytes": [0-9]+' "$out"; expect_text "an edit has a reference" '"references": 1,' "$out"
klein=tests/golden/flux2-klein/model
cli info --model "$klein" --size 256x256; expect_text "a model that needs no reference is asked about with one" "without guidance, one reference of this size$" "$out"
cli generate --model "$klein" --prompt x --guidance 3 --size 64x64 --steps 1 --seed 1 --dump "$folder/klein-dump" -o "$folder/x.png"; expect_code "a dump of a model that ignores guidance" 0; expect_text "it has no negative text" '"negative": null' "$folder/klein-dump/dump.json"
cli info --model "$klein" --size 256x256 --references 0; expect_text "info without references" "128 tokens, without guidance$" "$out"
cli info --model "$klein" --size 256x256 --references 3 --json; expect_code "info with references" 0; expect_text "info with references" '"references": 3,' "$out"
wrong "info with too many references" 2 "takes at most 3" info --model "$folder/edit" --size 256x256 --references 4
wrong "info with references of a model without" 2 "takes none" info --model "$model" --size 256x256 --references 1
wrong "info with references and no size" 2 "give --size WxH too" info --model "$klein" --references 1
wrong "info of what is not there" 1 "no/such" info --model no/such
wrong "info of a part alone" 2 "give --model" info --vae "$model/vae"
cli inspect "$folder/edit"; expect_text "inspect knows the family" "family +qwen-image-edit-plus" "$out"
for path in "$qwen/model" "$qwen/model/tokenizer" "$qwen/model/tokenizer/vocab.json" "$qwen/model-edit/processor/tokenizer.json"; do # the forms of one vocabulary
    ids=$(printf '"a cat <|im_end|>"\n' | "$sumi" tokenize "$path" 2>"$err"); code=$?
    expect_code "tokenize with $path" 0; [ "$ids" = "[64, 297, 265, 220, 658]" ] && ok || fail "tokenize with $path" "$ids"
done

ids=$(printf '"a cat"\n' | "$sumi" tokenize tests/golden/newbie/model 2>"$err"); code=$? # beside the weights
expect_code "tokenize with a text encoder's folder" 0; [ "$ids" = "[2, 829, 596, 507]" ] && ok || fail "tokenize with a text encoder's folder" "$ids"
wrong "tokenize with a file that holds no tokenizer" 1 "needs its tokenizer" tokenize "$model/vae/diffusion_pytorch_model.safetensors"
wrong "tokenize without a tokenizer" 1 "tokenizer.json" tokenize "$folder"
cli info; expect_code "info" 0; expect_text "info" "^cpu +[^ ]" "$out"; expect_text "info about a GPU" "^cuda +not available" "$out"; expect_text "info about the CPU" "logical processors" "$out"
grep -q "built without the CUDA backend" "$out" || expect_text "info about machine code" "^ +machine code: [0-9]+\\.[0-9]" "$out"

# ---- Control nets -------------------------------------------------------------------------------------------------------------------------
nets=$PWD/tests/golden/controlnet
net=$nets/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors
plain_net=$nets/Z-Image-Turbo-Fun-Controlnet-Union # a folder, 1.0
picture=$PWD/tests/picture_files/wanted.png
follow=(generate "${tiny[@]}" --seed 3 --quiet)
cli "${follow[@]}" -o "$folder/plain.png"
cli "${follow[@]}" --control "$net" --control-picture "$picture" -o "$folder/followed.png"; expect_code "a control net" 0; expect_different "a control net changes the picture" "$folder/plain.png" "$folder/followed.png"
cli inspect "$folder/followed.png"; expect_text "the net in the file" "^  control nets +Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps:0.9:0:1$" "$out"
cli inspect --json "$folder/followed.png"; expect_text "and in JSON" '"controls": "Z-Image-Turbo-Fun.*:0.9:0:1"' "$out"
"$support" pixels "$folder/plain.png" >"$folder/plain.rgba"
cli "${follow[@]}" --control "$net" --control-picture "$picture:0" -o "$folder/weak.png"; "$support" pixels "$folder/weak.png" >"$folder/weak.rgba"; expect_same "strength 0" "$folder/plain.rgba" "$folder/weak.rgba"
cli "${follow[@]}" --control "$net" --control-picture "$picture:0.5:0.5:1" -o "$folder/late.png"; "$support" pixels "$folder/late.png" >"$folder/late.rgba"; "$support" pixels "$folder/followed.png" >"$folder/followed.rgba"
expect_different "a range changes the picture" "$folder/late.rgba" "$folder/followed.rgba"; expect_different "which is not without the net" "$folder/late.rgba" "$folder/plain.rgba"
cli generate "${tiny[@]}" --json --control "$plain_net" --control-picture "$picture" --control "$net" --control-picture ":-0.5" --control-inpaint "$picture" --control-mask "$picture" -o "$folder/two.png"; expect_code "two nets, one of them inpaints" 0
expect_support "their JSON" json "$out"; expect_text "the name of a folder" '"name": "Z-Image-Turbo-Fun-Controlnet-Union"' "$out"; expect_text "the kind" '"kind": "z-fun-1.0"' "$out"; expect_text "a strength" '"strength": -0.5' "$out"
expect_text "a picture of another shape is told" "the control picture 1 is 24x16, and the image 64x48: it is stretched" "$err"
cp "$picture" "$folder/C:0.5"; cli "${follow[@]}" --control "$net" --control-picture "$folder/C:0.5" -o "$folder/colon.png"; "$support" pixels "$folder/colon.png" >"$folder/colon.rgba"; expect_same "a path with a colon" "$folder/followed.rgba" "$folder/colon.rgba"
(cd "$folder" && cp "$picture" C:x.png && "$sumi" "${follow[@]}" --control "$net" --control-picture C:x.png:0.9 -o drive.png) && "$support" pixels "$folder/drive.png" >"$folder/drive.rgba"; expect_same "a path with a drive" "$folder/followed.rgba" "$folder/drive.rgba"
wrong "a Windows path keeps its colons" 1 'D:\\no\\depth.png' "${follow[@]}" --control "$net" --control-picture 'D:\no\depth.png:0.8:0:1' -o "$folder/none.png"
wrong "a strength that is no number" 2 "write FILE, FILE:STRENGTH or FILE:STRENGTH:START:END" "${follow[@]}" --control "$net" --control-picture "$picture:much" -o "$folder/none.png"
wrong "half a range" 2 "write FILE, FILE:STRENGTH or" "${follow[@]}" --control "$net" --control-picture "$picture:1:0.5" -o "$folder/none.png"
wrong "no range" 2 "from 0.7 to 0.2 are no range" "${follow[@]}" --control "$net" --control-picture "$picture:1:0.7:0.2" -o "$folder/none.png"
wrong "a picture without a net" 2 "needs the net" "${follow[@]}" --control-picture "$picture" -o "$folder/none.png"
wrong "a net without a picture" 2 "give the picture that it follows" "${follow[@]}" --control "$net" -o "$folder/none.png"
wrong "more pictures than nets" 2 "2 control pictures belong to 1" "${follow[@]}" --control "$net" --control-picture "$picture" --control-picture "$picture" -o "$folder/none.png"
wrong "five nets" 2 "at most 4 control nets" "${follow[@]}" --control a --control b --control c --control d --control e -o "$folder/none.png"
wrong "inpainting without a mask" 2 "give --control-mask FILE too" "${follow[@]}" --control "$net" --control-picture "$picture" --control-inpaint "$picture" -o "$folder/none.png"
wrong "a net that does not inpaint" 2 "none of the control nets inpaints" "${follow[@]}" --control "$plain_net" --control-picture "$picture" --control-inpaint "$picture" --control-mask "$picture" -o "$folder/none.png"
wrong "a net without its picture" 2 "controls\[0\].pictures\[0\] is empty" "${follow[@]}" --control "$plain_net" --control "$net" --control-picture ":1" --control-inpaint "$picture" --control-mask "$picture" -o "$folder/none.png"
expect_text "the option is told" "the option is --control$" "$err"
wrong "a net of another family" 1 "is a control net for Qwen-Image" "${follow[@]}" --control tests/golden/controlnet-qwen/Qwen-Image-ControlNet-Union --control-picture "$picture" -o "$folder/none.png"
cp -r "$model" "$folder/as-base"; cp -r "$golden/model-base/." "$folder/as-base"; cli generate --model "$folder/as-base" --prompt x --size 32x32 --steps 1 --guidance 0 --control "$net" --control-picture "$picture" -o "$folder/base.png"; expect_text "a Turbo net on Base" "made for Z-Image Turbo, and this is Z-Image base: it runs" "$err"
cp "$net" "$folder/Z-Image-Fun-Controlnet-Union-2.1.safetensors"; cli generate "${tiny[@]}" --control "$folder/Z-Image-Fun-Controlnet-Union-2.1.safetensors" --control-picture "$picture" -o "$folder/base.png"; expect_text "a net for Base on Turbo" "made for Z-Image \(Base\), and this is Z-Image turbo: it runs" "$err"
expect_net() { # file, model, kind, what it takes, hints, strength
    cli inspect "$1"; expect_code "inspect ${1##*/}" 0; expect_text "its kind" "^  control net +$3, for " "$out"; expect_text "what it takes" "^  takes +$4$" "$out"; expect_text "its strength" "^  strength +$6 is usual" "$out"
    expect_text "its licence" "^  licence +apache-2.0 " "$out"
    cli inspect "$1" --model "$2"; expect_code "with its model" 0; expect_text "the same kind" "^  control net +$3, for " "$out"; expect_text "the same inputs" "^  takes +$4$" "$out"; expect_text "the same strength" "^  strength +$6 is usual" "$out"
    expect_text "its places" "^  hints +after $5, of this model$" "$out"
}
of_qwen=$PWD/tests/golden/controlnet-qwen both="a control picture; also, or instead, a picture to inpaint and its mask \(33 channels\)"
expect_net "$plain_net" "$model" z-fun-1.0 "a control picture \(16 channels\)" "layer 0" 0.75
expect_net "$nets/Z-Image-Turbo-Fun-Controlnet-Union-2.0.safetensors" "$model" z-fun-2.0 "$both" "layers 0, 1" 0.75
expect_net "$net" "$model" z-fun-2.1 "$both" "layers 0, 1, and each refiner layer" 0.9
expect_net "$of_qwen/Qwen-Image-2512-Fun-Controlnet-Union.safetensors" "$qwen/model" qwen-fun "$both" "layers 0, 1" 0.8
expect_net "$of_qwen/Qwen-Image-ControlNet-Union" "$qwen/model" qwen-instantx "a control picture \(16 channels\)" "every layer" 1
expect_net "$of_qwen/qwen_image_inpaint_diffsynth_controlnet.safetensors" "$qwen/model" qwen-blockwise "a picture to inpaint and its mask \(17 channels\)" "every layer" 1
cli inspect --json "$net"; expect_support "inspect --json of a net" json "$out"; expect_text "its kind" '"control_kind": "z-fun-2.1"' "$out"; expect_text "by its name" '"made_for": "Z-Image Turbo"' "$out"
wrong "inspect of a net with a model of another family" 1 "is a control net for Qwen-Image" inspect "$of_qwen/Qwen-Image-ControlNet-Union" --model "$model"
printf 'license: other\n' >"$folder/README.md"; sed -i '1i---' "$folder/README.md"; echo --- >>"$folder/README.md"; cli inspect "$folder/Z-Image-Fun-Controlnet-Union-2.1.safetensors"; expect_text "a card's licence" "^  licence +other \(" "$out"; expect_text "the model by its name" "by its name for Z-Image \(Base\)$" "$out"; rm "$folder/README.md"
cli info --model "$model"; expect_text "info tells control nets" "^  control nets +z-image-fun$" "$out"
cli info --json --model "$qwen/model"; expect_text "info --json tells them" '^    "qwen-image-instantx"' "$out"

# ---- bench ------------------------------------------------------------------------------------------------------------------------------
bench=(bench --network tiny --steps 1)
cli "${bench[@]}" --sizes 16x32; expect_code "bench" 0; expect_text "bench says why no card is measured" "processor is measured, for there is no GPU that can be used: .{20}" "$err"; expect_text "bench names the CPU" "^sumi [0-9.]+ bench: CPU" "$out"; expect_text "bench warns of processors" "compare ratios" "$out"
expect_text "bench's table" "^\| weights \| step 16 ms \| step 32 ms \| picture 16 s \| .* memory GB \|$" "$out"; expect_text "bench's row" "^\| bf16 \|( [0-9.]+ \|){9}$" "$out"; expect_text "bench shows progress" "^1/1 bf16: drawing 32x32$" "$err"
cli "${bench[@]}" --sizes 16x32 --backend cpu --json --quiet; expect_code "bench --json" 0; expect_support "bench --json" json "$out"; expect_text "its rows" '"is_whole": true,' "$out"; expect_text "what a CPU lacks" '"power_limit_watts": null,' "$out"
if [ -s "$err" ]; then fail "bench --quiet is quiet" "$(cat "$err")"; else ok; fi
# A size that there is no time for: the limit is counted on a clock that is turned in test_measure.
cli "${bench[@]}" --backend cpu --sizes 16x2048 --seconds 5; expect_code "bench without time for a size" 0; expect_text "bench says what is left out" "^- bf16: 2048x2048 is left out: a picture would take about [0-9]+ s, and [0-9]+ s are left \(--seconds\)\.$" "$out"
if [ -e "$build/fake/libcuda.so.1" ]; then # the driver that is none has 1 GiB of memory
    printf '%s\n' '#include "fake_cuda.h"' '#include <stdio.h>' '#include <stdlib.h>' '__attribute__((constructor)) static void begin(void) { fake_reset(); if (getenv("LACK_NVML")) fake_lack_nvml(1); if (getenv("BYTES")) fake_device_bytes(strtoull(getenv("BYTES"), NULL, 10)); }' \
        '__attribute__((destructor)) static void end(void) { printf("%ld objects, %d violations\n", fake_held(), fake_violations()); }' >"$folder/fake.c"
    cc -shared -fPIC -Itests/fake_cuda "$folder/fake.c" -L"$build/fake" -l:libfake_cuda.so -o "$folder/fake.so"
    runtime=$(ldd "$sumi" | awk '$1 ~ /^libasan/ { print $3 }') # of a sanitizer, which has to come first
    fake() { LD_LIBRARY_PATH=$build/fake LD_PRELOAD=${runtime:+$runtime:}$folder/fake.so "$sumi" "$@" >"$out" 2>"$err" </dev/null; code=$?; }
    fake "${bench[@]}" --sizes 16x32; expect_code "bench on a driver that is none" 0; expect_text "bench tells the card" "driver 580.1, power limit 450 W, clocks of at most 1980 MHz, memory 2619 MHz$" "$out"; expect_text "bench gives all back" "^0 objects, 0 violations$" "$out"
    for format in bf16 fp8 int8 int4; do expect_text "bench's row of $format" "^\| $format \|( [0-9.]+ \|){9} (-|[0-9]+) \|$" "$out"; done
    LACK_NVML=1 fake "${bench[@]}" --sizes 16x32 --weights int4,bf16; expect_code "bench without NVML" 0; expect_text "bench says that clocks are not known" "clocks, power limit: not known \(.*does not start\)$" "$out"
    [ "$(grep -oE "^\| (bf16|fp8|int8|int4) " "$out" | tr -d '|\n')" = " int4  bf16 " ] && ok || fail "bench measures the formats that are named, in their order" "$(cat "$out")"
    BYTES=3000000 fake "${bench[@]}" --sizes 16x32; expect_text "bench on a small card" "^\| int4 \|" "$out"; expect_text "bench's row says what is wrong" "^- int4: (.* failed: |.* GB of the weights do not fit)" "$out"
    for format in bf16 fp8 int8; do expect_text "bench leaves $format out" "^- $format is left out: it takes about 0\.2 GB, and 0\.0 GB are free; --weights $format measures it all the same\.$" "$out"; done
    BYTES=3000000 fake "${bench[@]}" --sizes 16x32 --json; sed -i '$d' "$out"; expect_support "bench --json on a small card" json "$out"; expect_text "what it leaves out" '"need_bytes": [0-9]+' "$out"
    fake "${bench[@]}" --sizes 16x32 --weights int4 --backend cpu; expect_code "bench of a format on a CPU beside a card" 2
else
    echo "skip: bench on a driver that is none: this build has no CUDA backend"
    skipped=$((skipped + 1))
fi

# ---- Ctrl-C -----------------------------------------------------------------------------------------------------------------------------
interrupt() { # signals, arguments
    local signals=$1 waited=0; shift
    "$sumi" "$@" >"$out" 2>"$err" &
    local process=$!
    until grep -q "^denoise " "$err" || ! kill -0 $process 2>/dev/null || [ $waited -ge 2000 ]; do sleep 0.1; waited=$((waited + 1)); done
    kill -INT $process 2>/dev/null
    [ "$signals" -lt 2 ] || kill -INT $process 2>/dev/null
    wait $process; code=$?
}
interrupt 1 generate --model "$model" --prompt x --size 512x512 --steps 500 --latents-out "$folder/cancelled.safetensors" -o "$folder/cancelled.png"
expect_code "Ctrl-C" 130; expect_text "Ctrl-C is told" "cancelled while making the picture" "$err"
expect_no_file "Ctrl-C leaves no picture" "$folder/cancelled.png"; expect_no_file "Ctrl-C leaves no latents" "$folder/cancelled.safetensors"

echo "cli: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
