#!/usr/bin/env bash
# packaging/python: the wheel is made of a shared library, installed in a fresh virtual environment without network, and draws there. usage: tests/test_python.sh build/.../release
#
#   binding      sumi/_abi.py is what the header's table says, every function and every member of descs is used or left out by name; a header that has more, or other numbers, is seen
#   wheel        holds what its list says; the same input gives the same bytes; its name has the glibc that the library's symbols ask for; a library that a bare machine cannot load, or that lacks
#                a function, is refused; for Windows out of a DLL, where MinGW-w64 is
#   command      python3 -m sumi draws the picture of the command line, bit for bit
#   session      tests/python_session.py: images, errors, log, asyncio, threads, lifetimes; some of it as Windows has the package: sumi.dll (which is this system's library), no fork
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
export SUMI_TEST_NET_MODEL=$PWD/tests/golden/z-image/model SUMI_TEST_NET=$PWD/tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors
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
export DEMO_MODEL=0 # small wheels
# Libraries that show the header's functions, which do nothing.
sed -n 's/^function .*\b\(sumi_[a-z_]*\)(.*/SHOWN void \1(void); void \1(void) {}/p' "$table" >"$folder/empty.c"
echo 'int unicode(void); int unicode(void) { return 1; }' >"$folder/unicode.c"
echo 'int unicode(void); int needs(void); int needs(void) { return unicode(); }' >"$folder/needs.c"
shared() { cc -shared -fPIC -DSHOWN= "$@" 2>&1; } # options
check "libraries for the tests" "$(cd "$folder" && { shared empty.c -o libempty.so; shared unicode.c -o libunicode.so; shared empty.c needs.c -L. -lunicode -o libneeds.so; })"
cp "$table" "$folder/table"
# File, and what make_wheel.py says of it: the end of a name, or a part of the sentence with which it refuses.
said="libempty.so -py3-none-manylinux_
libneeds.so needs libunicode.so, which a bare machine lacks
libunicode.so does not export sumi_check_version and
table is no shared library of 64-bit Linux"
if [ "$(uname -m)" = x86_64 ]; then # a function that glibc 2.31 brought, and that 2.34 moved, as programs ask for it that were linked with each
    for glibc in 2.31 2.34; do
        printf 'int pthread_clockjoin_np(void);\n__asm__(".symver pthread_clockjoin_np,pthread_clockjoin_np@GLIBC_%s");\nint asks(void);\nint asks(void) { return pthread_clockjoin_np(); }\n' $glibc >"$folder/asks.c"
        check "a library for glibc $glibc" "$(cd "$folder" && shared empty.c asks.c -lpthread -o libasks_$glibc.so)"
        said+=$'\n'"libasks_$glibc.so -py3-none-manylinux_${glibc/./_}_x86_64.whl"
    done
fi
if command -v x86_64-w64-mingw32-gcc >/dev/null; then
    dll() { x86_64-w64-mingw32-gcc -shared -static -s '-DSHOWN=__declspec(dllexport)' "$@" 2>&1; } # options
    check "libraries for Windows" "$(cd "$folder" && { dll empty.c -o sumi.dll; dll unicode.c -o unicode.dll; dll empty.c needs.c unicode.dll -o needs.dll; })"
    said+="
sumi.dll -py3-none-win_amd64.whl
needs.dll needs unicode.dll, which a bare machine lacks
unicode.dll does not export sumi_check_version and"
else skip "python: wheels for Windows: there is no x86_64-w64-mingw32-gcc"; fi
check "wheels have the right names, and others are refused" "$("$python" - "$folder" "$said" 2>&1 <<'CHECK'
import contextlib, io, os, sys, zipfile
sys.path.insert(0, "packaging/python")
import make_wheel
folder = sys.argv[1]
def told(name, out):
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            make_wheel.main(os.path.join(folder, name), os.path.join(folder, out))
    except SystemExit as error:
        return str(error)
    return printed.getvalue().strip()
for line in sys.argv[2].splitlines():
    name, expected = line.split(" ", 1)
    if expected not in told(name, "small"):
        print(f"{name}: {told(name, 'small')}")
if "sumi.dll" in sys.argv[2]:
    names = zipfile.ZipFile(told("sumi.dll", "small")).namelist()
    if "sumi/sumi.dll" not in names or "sumi/libsumi.so" in names or not names[-2].endswith("/licenses/mingw-w64.txt"):
        print(names)
again = told("libempty.so", "again")
os.utime("packaging/python/sumi/py.typed")
with open(again, "rb") as one, open(told("libempty.so", "small"), "rb") as two:
    if one.read() != two.read():
        print("the same input gives other bytes")
CHECK
)"

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

# As on Windows, as far as this system goes: by the name sumi.dll, without fork. What asks for the platform at its import comes first.
mkdir "$folder/dll"
cp -r packaging/python/sumi "$folder/dll"
cp "$library" "$folder/dll/sumi/sumi.dll"
as_windows='import asyncio, ctypes, logging, os, runpy, subprocess, sys, threading
try: import numpy
except ImportError: pass
sys.platform = "win32"
del os.fork, os.register_at_fork
sys.path.insert(0, sys.argv.pop(1))
runpy.run_path("tests/python_session.py", run_name="__main__")'
some=(are_arrays log_arrives can_be_awaited) # names of checks
check "some of the session with sumi.dll" "$(SUMI_TEST_WHERE=$folder/dll timeout 120 "$python" -c "$as_windows" "$folder/dll" samples/demo_model "${some[@]}" 2>&1 | grep -vxE "without NumPy|session: ${#some[@]} passed, 0 failed")"
end
