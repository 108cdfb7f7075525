#!/usr/bin/env bash
# The arrows between the rooms of src/ point one way: a room includes its own headers and those of the rooms in its line below,
# and calls no others. In a room the files' calls point one way too.
# Also: file names are unique in the tree, only base/platform.c sees the operating system, and samples see the public header only.
# The last line is "rooms: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0

check() { # what, offending lines
    if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    sed 's/^/  /' <<<"$2"
}

declare -A may_include=(
    [base]=""
    [files]="base"
    [text]="base files"
    [sampling]="base"
    [pictures]="base"
    [plan]="base"
    [models]="base plan files text sampling pictures"
    [interop]="base"
    [cpu]="base plan"
    [device]="base plan kernels"
    [cuda]="base plan device interop kernels"
    [pacing]="base"
    [jobs]="base sampling pictures plan models interop pacing"
    [engine]="base files text sampling pictures plan models interop cpu cuda pacing jobs"
)

for folder in src/*/; do
    room=$(basename "$folder")
    if [ -z "${may_include[$room]+known}" ]; then
        check "src/$room is a room of the plan" "src/$room: say in tests/check_rooms.sh which rooms it may include"
        continue
    fi
    allowed="^($room$(printf '|%s' ${may_include[$room]}))/"
    check "src/$room includes only: $room ${may_include[$room]}" "$(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' -r "$folder" --include='*.[ch]' \
        | awk -F'"' -v allowed="$allowed" -v room="$room" '
            { split($1, at, ":"); path = $2 }
            path ~ /\.\./ { print $0 "   (paths go from src/ down)"; next }
            path ~ /\// && path !~ allowed { print $0 }
            path !~ /\// { if (system("test -e src/" room "/" path) != 0) print $0 "   (not in this room)" }')"
done

# By names, without objects: "FILE CALLER'S_ROOM FILE CALLED_ROOM NAME" for each function or table of a .c that another .c names.
# What a file gives to others as a pointer, such as a table of functions, is named by the one that makes the pointer only.
calls() {
    awk '
        FNR == 1 { is_second = seen[FILENAME]++ }
        { line = $0; gsub(/\\./, "", line); gsub(/"[^"]*"/, "", line); sub(/\/\/.*/, "", line) }
        !is_second && line ~ /^[a-z].*[ *]sumi_[a-z0-9_]+(\(|(\[.*\])? = )/ && line !~ /^(static|extern|typedef) / && line !~ /;$/ {
            match(line, /sumi_[a-z0-9_]+(\(|(\[.*\])? = )/)
            name = substr(line, RSTART)
            sub(/[^a-z0-9_].*/, "", name)
            owners[name] = owners[name] " " FILENAME
        }
        is_second {
            while (match(line, /sumi_[a-z0-9_]+/)) {
                name = substr(line, RSTART, RLENGTH)
                line = substr(line, RSTART + RLENGTH)
                if (!(name in owners) || index(owners[name] " ", " " FILENAME " ") || told[FILENAME, name]++) continue
                count = split(owners[name], files, " ")
                for (i = 1; i <= count; i++) {
                    split(FILENAME, from, "/"); split(files[i], to, "/")
                    print FILENAME, from[2], files[i], to[2], name
                }
            }
        }' "$@" "$@"
}
mapfile -t sources < <(find src -name '*.c' | LC_ALL=C sort)
all_calls=$(calls "${sources[@]}")
check "there are calls between files" "$([ "$(wc -l <<<"$all_calls")" -gt 1000 ] || echo "only $(wc -l <<<"$all_calls") were found")"
for room in "${!may_include[@]}"; do
    allowed="^($room$(printf '|%s' ${may_include[$room]}))\$"
    check "src/$room calls only: $room ${may_include[$room]}" "$(awk -v room="$room" -v allowed="$allowed" '$2 == room && $4 !~ allowed { print $1 " calls " $5 " of " $3 }' <<<"$all_calls")"
done

# Takes files away that call no other file of their room, or that none calls, until all that are left are in circles or between two.
circles() {
    awk '$2 == $4 { edges[$1 " " $3] = edges[$1 " " $3] " " $5 } END {
        do {
            split("", calls); split("", called)
            for (edge in edges) { split(edge, ends, " "); calls[ends[1]] = called[ends[2]] = 1 }
            changed = 0
            for (edge in edges) { split(edge, ends, " "); if (!calls[ends[2]] || !called[ends[1]]) { delete edges[edge]; changed = 1 } }
        } while (changed)
        for (edge in edges) { split(edge, ends, " "); print ends[1] " -> " ends[2] ":" edges[edge] }
    }' | LC_ALL=C sort
}
known_circles='' # a list that only shrinks
found_circles=$(circles <<<"$all_calls")
check "no files of a room call each other in a circle" "$(grep -vE "${known_circles:-^$}" <<<"$found_circles")"
check "known_circles names no circle that is gone" "$([ -z "$known_circles" ] || grep -qE "$known_circles" <<<"$found_circles" || echo "take it out: $known_circles")"

# "6 src/room/file.c: function" for each definition with at least so many parameters.
parameters() { # at least, files
    awk -v at_least="$1" '
        function count(text,    i, character, depth, commas) {
            for (i = 1; i <= length(text); i++) {
                character = substr(text, i, 1)
                if (character ~ /[(\[]/) depth++
                if (character ~ /[)\]]/) depth--
                if (character == "," && depth == 0) commas++
            }
            return commas + 1
        }
        { line = $0; sub(/ *\/\/.*/, "", line) }
        line == "{" && head ~ /^[A-Za-z_][^=;{}]*\)$/ {
            name = head; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
            text = head; sub(/^[^(]*\(/, "", text); sub(/\)$/, "", text)
            number = count(text)
            if (number >= at_least) print number, FILENAME ": " name
        }
        { head = line ~ /^[^ #}]/ ? line : line ~ /^ / ? head line : "" }' "${@:2}"
}
check "no function of src/ has more than 8 parameters (what always travels together is a struct with named members)" "$(parameters 9 "${sources[@]}")"
many=$(parameters 6 "${sources[@]}") most_many=88
check "at most $most_many functions of src/ have more than five parameters" \
    "$([ "$(grep -c . <<<"$many")" -le $most_many ] || { echo "$(grep -c . <<<"$many") have:"; echo "$many"; })"

check "file names are unique in src/" "$(find src -name '*.[ch]' -printf '%f\n' | sort | uniq -d)"
check "only base/platform.c includes headers of the operating system" \
    "$(grep -nE '#[[:space:]]*include[[:space:]]*<(unistd|pthread|sched|dlfcn|windows|signal|dirent|fcntl|sys/[a-z]+|mach/[a-z_]+)\.h>' -r src --include='*.[ch]' | grep -v '^src/base/platform\.c:')"
check "samples include sumi.h and their own headers only (the command line looks deeper through its inside.h)" \
    "$(grep -nE '#[[:space:]]*include[[:space:]]*"([a-z]+/|\.\.)' -r samples --include='*.[ch]' | grep -v '^samples/apps/sumi/inside\.h:')"

check "src/device knows its port and no driver: nothing of cuda.h, nothing of src/cuda" \
    "$(grep -nE 'include.*cuda|\b(CU[a-z]|CU_|PFN_cu|cu[A-Z])[A-Za-z0-9_]*|\b(sumi_cuda|SUMI_CU)' -r src/device --include='*.[ch]')"

# Padding carries whatever lay on the stack: an address of freed memory now and then, which the fake driver takes for a parameter.
check "structs of kernels' parameters have no padding (say it as \`reserved\`, which initialisers set to 0)" \
    "$(for header in kernels/*.h; do "${CC:-gcc}" -x c -std=c11 -Wpadded -fsyntax-only "$header" 2>&1 | grep -E 'warning|error'; done)"

# Numbers in, numbers out: what paces slices can be tested without an engine.
check "headers of src/pacing name no engine, job, plan or runner" \
    "$(grep -nE 'sumi_(engine|job|plan|run|runner)([^a-z]|$)' src/pacing/*.h)"

# A network is put together in src/models: the rooms that run it see counts, shapes and rules.
check "no family of networks is named outside src/models (src/text and src/files name formats of tokenizers and files)" \
    "$(grep -rniE 'z[-_ ]?image|qwen|newbie|lumina|gemma|jina|turbo|\bflux\b' src/base src/engine src/jobs src/plan src/cpu src/device src/cuda src/sampling src/pictures src/pacing kernels)"

echo "rooms: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
