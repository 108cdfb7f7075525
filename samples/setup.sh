#!/usr/bin/env bash
# Installs what building sumi needs on Debian 12, and does nothing when it is all there. usage: samples/setup.sh [build|tests]
#   build   compiler, make, Premake 4, pkg-config, utf8proc, libspng, zlib
#   tests   the same and clang with its sanitizers and fuzzer
set -euo pipefail
what=${1:-build}

have() { command -v "$1" >/dev/null 2>&1; }
have_header() { echo "#include <$1>" | cc -fsyntax-only -x c - >/dev/null 2>&1; }

missing=()
have gcc  || missing+=(gcc libc6-dev)
have g++  || [ "$what" = build ] || missing+=(g++)
have cc   || missing+=(gcc)
have make || missing+=(make)
have premake5 || have premake4 || missing+=(premake4)
have pkg-config || missing+=(pkg-config)
have_header stdio.h    || missing+=(libc6-dev)
have_header utf8proc.h || missing+=(libutf8proc-dev)
have_header spng.h     || missing+=(libspng-dev)
have_header zlib.h     || missing+=(zlib1g-dev)
if [ "$what" = tests ]; then
    have clang || missing+=(clang)
    runtime=$(clang -print-file-name=libclang_rt.fuzzer-x86_64.a 2>/dev/null || true)
    [ -e "$runtime" ] || ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 || missing+=(libclang-rt-dev)
fi

if [ ${#missing[@]} -eq 0 ]; then
    echo "set-up: everything is there"
    exit 0
fi
packages=$(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')
if ! have apt-get; then
    echo "set-up: missing $packages(Debian's names): install them with this system's package manager" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    have sudo || { echo "set-up: as root, run: apt-get install $packages" >&2; exit 1; }
    as_root=(sudo)
fi
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    echo "set-up: apt-get could not install: $packages(all of its output: $log)" >&2
    exit 1
fi
rm -f "$log"
echo "set-up: installed $packages"
