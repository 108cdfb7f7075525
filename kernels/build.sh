#!/usr/bin/env bash
# Compiles kernels/*.cu and packs them into OUT/kernel_images.c. The build runs it every time; only sources that have
# changed are compiled.
#
#   usage: kernels/build.sh NVCC PACK OUT      NVCC: the compiler; PACK: the program built of pack.c; OUT: a folder
#
# The name of a source determines its target (compute capability) and the PTX version that is written into its PTX, and
# so the oldest driver that accepts it:
#
#   *_fp8_sm90.cu   9.0a   PTX 8.4   wgmma on e4m3             CUDA 12.4, r550
#   *_sm90.cu       9.0a   PTX 8.0   wgmma, TMA                CUDA 12.0, r525
#   *_fp8.cu        8.9    PTX 8.4   mma on e4m3               CUDA 12.4, r550
#   *.cu            8.0    PTX 7.4   everything else           CUDA 11.4
#
# nvcc writes its own PTX version into the .version line. Older drivers refuse it, although the code does not need it.
# So the line is rewritten, and ptxas, which checks every instruction against that version, must accept the result for
# each of the target's devices. Every source is also compiled to machine code for 9.0a, so that a Hopper driver compiles
# nothing at run time. The warning of ptxas that wgmma is serialised (C75xx) is an error, because the kernel would be
# several times slower.
#
# It says how many sources are to be compiled and how long that takes, and counts them: in place on a terminal, otherwise
# in a line for each.
#
# One OUT serves all build configurations and host compilers. OUT/<source>.log has the messages of nvcc and ptxas for a
# source (registers, spills). The environment variable JOBS limits how many sources are compiled at once.
set -uo pipefail
nvcc=$1 pack=$2
mkdir -p "$3"
out=$(cd "$3" && pwd)
cd "$(dirname "$0")"
jobs=${JOBS:-$(nproc)}

# Two builds that share OUT run one after the other.
exec 9>"$out/lock"
if command -v flock >/dev/null; then flock 9; fi

version="$nvcc $("$nvcc" --version | tail -n 1)" || { echo "kernels: $nvcc does not run" >&2; exit 1; }
if [ -e "$out/kernel_images.c" ] && [ "$(cat "$out/checked" 2>/dev/null)" = "$version" ] && [ -z "$(find . -newer "$out/checked" -print -quit)" ]; then exit 0; fi
echo "$version" >"$out/checking" # renamed to `checked` at the end; its time is before the sources are read

ptxas=$(dirname "$nvcc")/ptxas
[ -x "$ptxas" ] || ptxas=ptxas
knows_120=$("$ptxas" --help | grep -c 'sm_120' || true)
includes=(-I.)
include=$(dirname "$nvcc")/../include
[ ! -d "$include/cccl" ] || includes+=("-I$include" "-I$include/cccl") # nvcc from PyPI does not find its own headers

# Prints the files themselves and all headers of this folder that they include, each once.
parts() { # file [file ...]
    local seen=" " queue=("$@") file found
    while [ ${#queue[@]} -gt 0 ]; do
        file=${queue[0]} queue=("${queue[@]:1}")
        case $seen in *" $file "*) continue ;; esac
        [ -e "$file" ] || continue
        seen="$seen$file "
        for found in $(sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"(kernels\/)?([^"]+)".*/\2/p' "$file"); do queue+=("$found"); done
    done
    echo "$seen"
}

describe() { # stem; prints target, virtual architecture, PTX version, devices to check
    local newest=
    [ "$knows_120" -eq 0 ] || newest=sm_120
    case $1 in
        *_fp8_sm90) echo 90 compute_90a 8.4 ;;
        *_sm90)     echo 90 compute_90a 8.0 ;;
        *_fp8)      echo 89 compute_89 8.4 sm_89 $newest ;;
        *)          echo 80 compute_80 7.4 sm_80 sm_86 $newest ;;
    esac
}

check() { # PTX, devices: fails if the PTX is illegal for one; -O0: only the check counts
    local ptx=$1 device; shift
    for device in "$@"; do "$ptxas" -O0 -arch="$device" "$ptx" -o "$ptx.checked" || return 1; done
}

key_of() { # stem: changes with the compiler, with these functions and with the sources
    { echo "$version"; declare -f describe check compile; sha256sum $(parts "$1.cu"); } | sha256sum
}

is_compiled() { # stem
    local target
    read -r target _ <<<"$(describe "$1")"
    [ "$(key_of "$1")" = "$(cat "$out/$1.key" 2>/dev/null)" ] && [ -e "$out/$1.$target.ptx" ] && [ -e "$out/$1.cubin" ]
}

compile() { # stem; prints it at the end
    local stem=$1 target arch floor checks device log=$out/$1.log
    read -r target arch floor checks <<<"$(describe "$stem")"
    local ptx=$out/$stem.$target.ptx binary=$out/$stem.cubin
    rm -f "$out/$stem.key"
    {
        "$nvcc" -ptx -gencode="arch=$arch,code=$arch" -O3 -std=c++17 -Werror all-warnings "${includes[@]}" "$stem.cu" -o "$ptx" &&
            # used_bytes_mask is a hint that only the newest PTX version has.
            sed -i -e '/used_bytes_mask/d' -e "s/^\.version .*/.version $floor/" "$ptx" &&
            check "$ptx" $checks &&
            "$ptxas" -v -arch=sm_90a "$ptx" -o "$binary"
    } >"$log" 2>&1
    local status=$?
    rm -f "$ptx.checked"
    if [ $status -ne 0 ] || grep -q 'C75[0-9][0-9]' "$log"; then
        { echo "kernels/$stem.cu:"; grep -vE '^ptxas info' "$log" | head -n 30; grep 'C75[0-9][0-9]' "$log"; } >&2
        return 1
    fi
    key_of "$stem" >"$out/$stem.key"
    echo "$stem"
}
export -f compile check describe parts key_of is_compiled
export nvcc ptxas out version knows_120

for_each() { # function, stem ..: calls it for every stem, a few at once
    printf '%s\n' "${@:2}" | INCLUDES="${includes[*]}" xargs -P "$jobs" -I STEM bash -c "includes=(\$INCLUDES); $1 STEM"
}

show_progress() { # of how many; reads the stem of every source that was compiled
    local done=0 stem
    while read -r stem; do
        done=$((done + 1))
        if [ -t 1 ]; then printf '\rkernels: %d of %d (%s)\033[K' "$done" "$1" "$stem.cu"; else echo "kernels: $done of $1 ($stem.cu)"; fi
    done
    if [ -t 1 ]; then echo; fi
}

stems=()
for source in *.cu; do [ ! -e "$source" ] || stems+=("${source%.cu}"); done
if [ ${#stems[@]} -gt 0 ]; then
    mapfile -t changed < <(for_each 'is_compiled STEM || echo' "${stems[@]}" | LC_ALL=C sort)
    if [ ${#changed[@]} -gt 0 ]; then
        minutes=$(((${#changed[@]} * 7 / jobs + 59) / 60)) # 7 seconds of a processor on average, with CUDA 13.0
        echo "kernels: ${#changed[@]} to compile for the GPU, about $minutes minute$([ $minutes -eq 1 ] || echo s) where nothing else runs, into $out"
        for_each compile "${changed[@]}" | show_progress ${#changed[@]} || { echo "kernels: not all of them could be compiled" >&2; exit 1; }
    fi
fi

arguments=()
for stem in ${stems[@]+"${stems[@]}"}; do
    read -r target _ <<<"$(describe "$stem")"
    arguments+=("$stem" "$target" "$out/$stem.$target.ptx" "$out/$stem.cubin")
done
"$pack" "$out/kernel_images.new" ${arguments[@]+"${arguments[@]}"} || exit 1
# The file is replaced only when its content has changed: a new time alone would make every configuration compile it
# again.
if cmp -s "$out/kernel_images.new" "$out/kernel_images.c"; then rm -f "$out/kernel_images.new"; else mv "$out/kernel_images.new" "$out/kernel_images.c"; fi
mv "$out/checking" "$out/checked"
