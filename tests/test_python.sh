#!/usr/bin/env bash
# packaging/python: the wheel is made of a shared library, installed in a fresh virtual environment without network, and draws there. usage: tests/test_python.sh build/.../release
#
#   binding      sumi/_abi.py is what the header's table says, every function and every member of descs is used or left out by name; a header that has more, or other numbers, is seen
#   wheel        holds what its list says; the same input gives the same bytes; a library that a bare machine cannot load is refused
#   command      python3 -m sumi draws the picture of the command line, bit for bit
#   session      tests/python_session.py: images, errors, log, asyncio, threads, lifetimes
#
# PYTHON is the interpreter (python3). With a build of config=asan (target sumi_shared) the session runs under the sanitizers, and nothing else does.
# The last line is "python: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
python=${PYTHON:-python3} library=$build/plugin/libsumi.so
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH PYTHONHOME SUMI_LIBRARY SUMI_MODEL
export PYTHONDONTWRITEBYTECODE=1 SUMI_TEST_LORA=$PWD/samples/demo_model/lora/blueprint.safetensors SUMI_TEST_EDIT_MODEL=$PWD/samples/demo_edit_model
check() { # what, what is wrong
    if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    head -n 30 <<<"$2" | sed 's/^/  /'
}
skip() { echo "skip: $1"; skipped=$((skipped + 1)); }
end() { echo "python: $passed passed, $failed failed, $skipped skipped"; [ "$failed" -eq 0 ]; exit; }
session() { # interpreter
    local out
    out=$(timeout 120 "$1" tests/python_session.py samples/demo_model 2>&1) || { check "the session" "${out:-it ended without a word}"; return; }
    grep -q '^without NumPy$' <<<"$out" && skip "python: the checks of arrays need NumPy, which $python does not have"
    check "the session" "$(sed '/^session: [0-9]* passed, 0 failed$/d; /^without NumPy$/d' <<<"$out")"
    passed=$((passed + $(sed -n 's/^session: \([0-9]*\) passed.*/\1/p' <<<"$out") - 1))
}
command -v "$python" >/dev/null || { skip "python: there is no $python"; end; }
python=$("$python" -c 'import sys; print(sys.executable)') # itself, not a script that looks for it
[ -e "$library" ] || { check "the shared library" "$library is not there: make the build with premake's --shared"; end; }
if grep -q libasan <<<"$(ldd "$library")"; then
    export ASAN_OPTIONS=detect_leaks=0 SUMI_LIBRARY=$library PYTHONPATH=$PWD/packaging/python LD_PRELOAD
    LD_PRELOAD=$(cc -print-file-name=libasan.so)
    session "$python"
    end
fi

# ---- The binding ----
quiet() { local out; out=$("$@" 2>&1) || echo "${out:-exit code $?}"; } # prints what a command says that fails
check "the binding is what the header says" "$(quiet "$python" packaging/python/generate.py --check)"
table=$(ls tests/abi_*.txt | sort -V | tail -n 1)
sed 's/^\(value sumi_result.SUMI_TIMEOUT\) .*/\1 53/; s/^member sumi_lora_desc.path .*/&\nmember sumi_lora_desc.added 40 4 whole int32_t/
     /^function void sumi_job_discard/a function void sumi_job_added(sumi_engine* engine)' "$table" >"$folder/${table##*/}"
seen=$("$python" packaging/python/generate.py --table "$folder/${table##*/}" --check 2>&1) && seen="it passes"
for text in "sumi/_abi.py lags behind" "no class uses sumi_lora_desc.added" "no class uses sumi_job_added"; do
    check "what the header has more is seen: $text" "$(grep -qF "$text" <<<"$seen" || echo "$seen")"
done

# ---- The wheel ----
export SOURCE_DATE_EPOCH=1700000000
wheel=$(packaging/python/build_wheel.sh "$library" "$folder/wheel" 2>"$folder/log") || { check "the wheel is made" "$(cat "$folder/log")"; end; }
check "the wheel's name has the platform" "$([[ $wheel =~ /sumi-[0-9.]+-py3-none-manylinux_2_[0-9]+_(x86_64|aarch64)\.whl$ ]] || echo "$wheel")"
check "the wheel is what its list says" "$("$python" - "$wheel" 2>&1 <<'CHECK'
import base64, hashlib, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
names = archive.namelist()
record = next(name for name in names if name.endswith(".dist-info/RECORD"))
listed = dict(line.rsplit(",", 2)[:2] for line in archive.read(record).decode().splitlines())
for name in sorted(set(names) ^ set(listed)):
    print(name, "is only in the list or only in the wheel")
for name in names:
    digest = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
    if name != record and listed.get(name) != digest:
        print(name, "has another digest")
info = record[: -len("RECORD")]
for name in ["sumi/libsumi.so", "sumi/_abi.py", "sumi/py.typed", "sumi/demo_model/model_index.json", info + "licenses/LICENSE", info + "licenses/utf8proc.txt"]:
    if name not in names:
        print(name, "is not there")
CHECK
)"
echo 'int unicode(void); int needs(void) { return unicode(); }' >"$folder/needs.c"
echo 'int unicode(void) { return 1; }' >"$folder/unicode.c"
make_wheel() { "$python" packaging/python/make_wheel.py "$@" 2>&1; }
{ cc -shared -fPIC "$folder/unicode.c" -o "$folder/libunicode.so" && cc -shared -fPIC "$folder/needs.c" "-L$folder" -lunicode -o "$folder/libneeds.so"; } 2>&1
check "a library that needs others is refused" "$(out=$(make_wheel "$folder/libneeds.so" "$folder/refused") && echo "it is not"; grep -q 'needs libunicode.so, which a bare machine lacks' <<<"$out" || echo "$out")"
export DEMO_MODEL=0 # a small one
check "the same input gives the same bytes" "$(make_wheel "$folder/libunicode.so" "$folder/one" >/dev/null; touch packaging/python/sumi/py.typed; make_wheel "$folder/libunicode.so" "$folder/two" >/dev/null; cmp "$folder"/one/*.whl "$folder"/two/*.whl 2>&1)"

# ---- In a virtual environment ----
with_pip=()
"$python" -c 'import pip' 2>/dev/null && with_pip=(--without-pip) # the environment's own takes two seconds
if ! "$python" -m venv --system-site-packages "${with_pip[@]}" "$folder/venv" >"$folder/log" 2>&1; then
    skip "python: there is no venv (Debian: python3-venv): $(head -n 1 "$folder/log")"
    end
fi
there=$folder/venv/bin/python
check "pip installs the wheel" "$("$there" -m pip --disable-pip-version-check install -q --no-index --no-deps --no-compile "$wheel" 2>&1)"
SUMI_TEST_WHERE=$(realpath "$folder/venv")/ # that the session does not find another package of this name
export SUMI_TEST_WHERE
cd "$folder" # where no other package of this name is
check "python3 -m sumi draws with the demo model" "$(quiet "$there" -m sumi "a cat" out.png --seed 3 --size 128x128 --backend cpu)"
cd - >/dev/null
"$build/bin/sumi" generate --model samples/demo_model --backend cpu --prompt "a cat" --seed 3 --size 128x128 -o "$folder/command.png" >/dev/null 2>&1
check "the picture is the command line's" "$(quiet "$build/bin/cli_support" pictures "$folder/command.png" "$folder/out.png" 0)"
check "a wrong argument ends with 2 and the library's sentence" "$(diff <(cd "$folder"; "$there" -m sumi "a cat" bad.png --size 100x100 --backend cpu 2>&1; echo $?) <(echo "sumi: width is 100: give a multiple of 16 up to 4096"; echo 2))"
session "$there"
end
