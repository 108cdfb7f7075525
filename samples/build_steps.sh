# What samples/quickstart.sh and samples/viewer.sh share: building one program in build/, with progress. Sourced; works in the folder of the repository.

# GPU kernels take minutes to compile. So they are compiled where there is an NVIDIA device, to machine code for that one (dxg: Windows' device in WSL), or where build/ was made with them before. SUMI_DEV: the tests' own /dev.
wants_kernels() { [ -e "${SUMI_DEV:-/dev}/nvidiactl" ] || [ -e "${SUMI_DEV:-/dev}/dxg" ] || has_kernels; }
has_kernels() { grep -qs '^kernels:' build/Makefile; }

# Reads lines "DONE TOTAL NAME". On a terminal one line counts up, otherwise there is a line for every quarter. Other lines are shown as they are.
show_progress() { # text before the numbers
    local line done total shown=0
    while IFS= read -r line; do
        if [[ ! $line =~ ^([0-9]+)\ ([0-9]+)\ (.*)$ ]]; then echo "  $line"; continue; fi
        done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
        if [ -t 1 ]; then printf '\r  %s%d of %d: %-40.40s' "$1" "$done" "$total" "${BASH_REMATCH[3]}"
        elif [ $((done * 4 / total)) -gt "$shown" ]; then shown=$((done * 4 / total)); echo "  $1$done of $total"; fi
    done
    if [ -t 1 ]; then printf '\r%-70s\r' ""; fi
}

# kernels/build.sh says how many it compiles and about how long that takes, and then counts them.
build_kernels() { # log
    make -C build config=release -j"$(nproc)" kernels 2>&1 | tee -a "$1" |
        sed -unE 's/^kernels: ([0-9]+) of ([0-9]+) \((.*)\)$/\1 \2 \3/p; s/^(kernels: [0-9]+ to compile.*)/\1/p' | show_progress "kernels: "
}

number_lines() { # of how many: "DONE TOTAL NAME" for each
    local line done=0
    while IFS= read -r line; do
        done=$((done + 1))
        echo "$done $(($1 > done ? $1 : done)) ${line##*/}"
    done
}

# Make says a line for each source. How many there will be is counted before.
build_sources() { # project, log
    local is_source='^(\.\./)*[[:alnum:]_./-]+\.(c|cpp)$|^Linking ' total
    total=$( (make -n -k -C build config=release "$1" 2>/dev/null || true) | sed -n 's/^ *echo //p' | grep -acE "$is_source" || true)
    make -C build config=release -j"$(nproc)" "$1" 2>&1 | tee -a "$2" | { grep -aE --line-buffered "$is_source" || true; } |
        number_lines "$total" | show_progress ""
}

build_failed() { # log
    tail -n 20 "$1" >&2
    echo "the build failed; all of its output is in $1" >&2
    exit 1
}

build_program() { # project, log
    local options=(--gpus=native)
    if wants_kernels; then echo "building sumi (log: $2)"
    else
        options=(--no-cuda)
        echo "building sumi for the CPU, as there is no NVIDIA device here (log: $2)"
    fi
    mkdir -p build/log
    if ! "$(command -v premake5 || command -v premake4)" --file=premake5.lua "${options[@]}" gmake >"$2" 2>&1; then build_failed "$2"; fi
    if ! grep -q "^$1:" build/Makefile; then
        echo "$1 cannot be built here:" >&2
        grep ': left out' "$2" >&2 || true # Premake says what is missing
        exit 1
    fi
    if has_kernels && ! build_kernels "$2"; then build_failed "$2"; fi
    if ! build_sources "$1" "$2"; then build_failed "$2"; fi
}
