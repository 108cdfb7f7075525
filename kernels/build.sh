#!/usr/bin/env bash
# Compiles kernels/*.cu and packs them into OUT/kernel_images.c. The build runs it every time; only sources that have
# changed are compiled.
#
#   usage: kernels/build.sh NVCC PACK OUT [GPUS]      NVCC: the compiler; PACK: the program built of pack.c; OUT: a folder
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
# each of the target's devices. The warning of ptxas that wgmma is serialised (C75xx) is an error, because the kernel
# would be several times slower.
#
# Every source is also compiled to machine code for the GPUs in GPUS, so that their drivers compile nothing at run time:
#
#   all      8.0 (which 8.6 and 8.9 run, too), 9.0a, 10.0 and 12.0; 8.6 and 8.9 only where their code has better
#            instructions (docs/building.md); those that this ptxas knows
#   native   what the NVIDIA devices of this machine run; without any 9.0a, which shows what wgmma has become
#   LIST     what these compute capabilities run: 8.6,12.0
#
# It says how many sources are to be compiled and how long that takes, and counts them: in place on a terminal, otherwise
# in a line for each.
#
# One OUT serves all build configurations and host compilers, and holds what the build before this one had in GPUS, too;
# kernel_images.c has what this one asks for. OUT/<source>.log has the messages of nvcc and ptxas for a source
# (registers, spills). The environment variable JOBS limits how many sources are compiled at once.
set -uo pipefail
nvcc=$1 pack=$2 gpus=${4:-all}
mkdir -p "$3"
out=$(cd "$3" && pwd)
cd "$(dirname "$0")"
jobs=${JOBS:-$(nproc)}

# Two builds that share OUT run one after the other.
exec 9>"$out/lock"
if command -v flock >/dev/null; then flock 9; fi

# Compute capabilities without their point: "86 120"; empty: all.
read_gpus() { # GPUS
    local list=$1 gpu
    [ "$list" != all ] || return 0
    if [ "$list" = native ]; then
        list=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u | tr '\n' ',')
        [[ "$list" =~ ^([0-9]+\.[0-9],)+$ ]] || list=9.0
    fi
    for gpu in ${list//,/ }; do
        if ! [[ "$gpu" =~ ^[0-9]{1,2}\.[0-9]a?$ ]]; then
            echo "kernels: $gpu is no compute capability: write all, native, or a list such as 8.6,12.0" >&2
            return 1
        fi
        gpu=${gpu//[.a]/}
        [ "$gpu" -lt 80 ] || echo "$gpu"
    done
}
wanted=$(read_gpus "$gpus" | sort -nu; exit "${PIPESTATUS[0]}") || exit 1
wanted=${wanted//$'\n'/ }
[ "$gpus" != native ] || wanted=${wanted:-90} # its device is too old
[ "$gpus" = all ] || [ -n "$wanted" ] || { echo "kernels: none of $gpus can run the kernels: the oldest compute capability is 8.0" >&2; exit 1; }

version="$nvcc $("$nvcc" --version | tail -n 1)" || { echo "kernels: $nvcc does not run" >&2; exit 1; }
state="$version"$'\n'"$wanted"$'\n'"$gpus"
if [ -e "$out/kernel_images.c" ] && [ "$(cat "$out/checked" 2>/dev/null)" = "$state" ] && [ -z "$(find . -newer "$out/checked" -print -quit)" ]; then exit 0; fi
echo "$state" >"$out/checking" # renamed to `checked` at the end; its time is before the sources are read

ptxas=$(dirname "$nvcc")/ptxas
[ -x "$ptxas" ] || ptxas=ptxas
known=" $("$ptxas" --help | grep -oE 'sm_[0-9]+a?' | sort -u | tr '\n' ' ')"
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

describe() { # stem; prints target, virtual architecture, PTX version, devices of which there can be machine code
    case $1 in
        *_fp8_sm90)                 echo 90 compute_90a 8.4 90 ;;
        *_sm90)                     echo 90 compute_90a 8.0 90 ;;
        *_fp8)                      echo 89 compute_89 8.4 89 90 100 120 ;;
        gemm_int8 | attention_int8) echo 80 compute_80 7.4 80 86 90 100 120 ;;
        *)                          echo 80 compute_80 7.4 80 90 100 120 ;;
    esac
}

arch_of() { [ "$1" = 90 ] && echo sm_90a || echo "sm_$1"; } # device

# Of a source's devices, those of which there shall be machine code: all that ptxas knows, or for each wanted GPU the one
# that fits it best, of the same major version and not newer.
targets_of() { # devices
    local device gpu other best
    for device in "$@"; do
        [[ "$known" == *" $(arch_of "$device") "* ]] || continue
        [ -n "$wanted" ] || { echo "$device"; continue; }
        for gpu in $wanted; do
            best=
            for other in "$@"; do [ $((other / 10)) -ne $((gpu / 10)) ] || [ "$other" -gt "$gpu" ] || best=$other; done
            [ "$best" != "$device" ] || { echo "$device"; break; }
        done
    done
}

# What is compiled, wanted or not: ptxas has to say whether it serialises wgmma.
compiled_of() { # stem devices
    local stem=$1; shift
    case $stem in *_sm90) echo 90 ;; *) targets_of "$@" ;; esac
}

key_of() { # stem: changes with the compiler, with these functions and with the sources
    { echo "$version"; declare -f describe arch_of compile_ptx compile_binaries; sha256sum $(parts "$1.cu"); } | sha256sum
}

is_compiled() { # stem
    local target devices device
    read -r target _ _ devices <<<"$(describe "$1")"
    [ "$(key_of "$1")" = "$(cat "$out/$1.key" 2>/dev/null)" ] && [ -e "$out/$1.$target.ptx" ] || return 1
    for device in $(compiled_of "$1" $devices); do [ -e "$out/$1.$device.cubin" ] || return 1; done
}

compile_ptx() { # stem, virtual architecture, PTX version, output
    "$nvcc" -ptx -gencode="arch=$2,code=$2" -O3 -std=c++17 -Werror all-warnings "${includes[@]}" "$1.cu" -o "$4" &&
        # used_bytes_mask is a hint that only the newest PTX version has.
        sed -i -e '/used_bytes_mask/d' -e "s/^\.version .*/.version $3/" "$4"
}

# Devices without machine code are checked: PTX that ptxas refuses for them is illegal. -O0: only the check counts.
compile_binaries() { # stem, PTX, devices
    local stem=$1 ptx=$2 device made; shift 2
    made=" $(compiled_of "$stem" "$@" | tr '\n' ' ')"
    for device in "$@"; do
        [[ "$known" == *" $(arch_of "$device") "* ]] && [ ! -e "$out/$stem.$device.cubin" ] || continue
        if [[ "$made" == *" $device "* ]]; then "$ptxas" -v -arch="$(arch_of "$device")" "$ptx" -o "$out/$stem.$device.cubin" || return 1
        else "$ptxas" -O0 -arch="$(arch_of "$device")" "$ptx" -o "$ptx.checked" || return 1; fi
    done
}

compile() { # stem; prints it at the end. Machine code that an earlier build wanted stays while the source is the same
    local stem=$1 target arch floor devices log=$out/$1.log key
    read -r target arch floor devices <<<"$(describe "$stem")"
    local ptx=$out/$stem.$target.ptx
    key=$(key_of "$stem")
    if [ "$key" != "$(cat "$out/$stem.key" 2>/dev/null)" ] || [ ! -e "$ptx" ]; then
        rm -f "$out/$stem".*cubin "$out/$stem.key"
        compile_ptx "$stem" "$arch" "$floor" "$ptx" >"$log" 2>&1
    fi && compile_binaries "$stem" "$ptx" $devices >>"$log" 2>&1
    local status=$?
    rm -f "$ptx.checked"
    if [ $status -ne 0 ] || grep -q 'C75[0-9][0-9]' "$log"; then
        rm -f "$out/$stem.key"
        { echo "kernels/$stem.cu:"; grep -vE '^ptxas info' "$log" | head -n 30; grep 'C75[0-9][0-9]' "$log"; } >&2
        return 1
    fi
    echo "$key" >"$out/$stem.key"
    echo "$stem"
}
export -f compile compile_ptx compile_binaries compiled_of targets_of arch_of describe parts key_of is_compiled
export nvcc ptxas out version known wanted

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
        minutes=$(((${#changed[@]} * $([ -n "$wanted" ] && echo 5 || echo 7) / jobs + 59) / 60)) # seconds of a processor on average, with CUDA 13.0
        echo "kernels: ${#changed[@]} to compile for the GPU, about $minutes minute$([ $minutes -eq 1 ] || echo s) where nothing else runs, into $out"
        for_each compile "${changed[@]}" | show_progress ${#changed[@]} || { echo "kernels: not all of them could be compiled" >&2; exit 1; }
    fi
fi

arguments=()
for stem in ${stems[@]+"${stems[@]}"}; do
    read -r target _ _ devices <<<"$(describe "$stem")"
    arguments+=("$stem" "$target" "$out/$stem.$target.ptx")
    for device in $(targets_of $devices); do arguments+=("$device=$out/$stem.$device.cubin"); done
done
"$pack" "$out/kernel_images.new" ${arguments[@]+"${arguments[@]}"} || exit 1
# The file is replaced only when its content has changed: a new time alone would make every configuration compile it
# again.
if cmp -s "$out/kernel_images.new" "$out/kernel_images.c"; then rm -f "$out/kernel_images.new"; else mv "$out/kernel_images.new" "$out/kernel_images.c"; fi
mv "$out/checking" "$out/checked"
