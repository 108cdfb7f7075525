#!/usr/bin/env bash
# Everything that include/sumi.h and include/sumi_xml.h declare against the stored table of its version, tests/abi_MAJOR_MINOR.txt: sizes, offsets, types, enum values, functions. A change fails until the
# version is raised; then the numbers of enum values and the members of descs must still be those of all earlier tables. usage: tests/check_abi.sh [--write]
#   --write   writes the table of a version that has none. While a version is not released its table may be deleted and written again; after that never.
# The last line is "abi: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LC_ALL=C

# A C program that prints the table of both headers.
program_of() { # folder of sumi.h and sumi_xml.h
    sed 's,//.*,,' "$1/sumi.h" "$1/sumi_xml.h" | awk '
        /^[ \t]*#[ \t]*define[ \t]+SUMI_/ && $2 !~ /^SUMI_(H|XML_H|API|VERSION_[A-Z]*)$/ { # as an extra line behind the declarations
            line = $0; gsub(/[ \t]+/, " ", line); sub(/^ *# *define /, "", line); sub(/ *$/, "", line); macros = macros "\n" line
            if ($3 ~ /^[0-9]+$/) length_of[$2] = $3 # of an array
        }
        /^[ \t]*#/ || /^extern "C" {/ || /^}$/ { next }
        { text = text " " $0 }
        function trim(s) { gsub(/[ \t]+/, " ", s); sub(/^ /, "", s); sub(/ $/, "", s); return s }
        function print_text(s) { gsub(/"/, "\\\"", s); printf "puts(\"%s\");\n", s }
        function member(type, name,     path, array, element) {
            array = name; sub(/^[^[]*/, "", array); sub(/\[.*/, "", name)
            element = array != "" ? "[0]" : ""
            if (inner) { pending_type[++pending] = type; pending_name[pending] = name; pending_array[pending] = array; return }
            emit(type, name, array, element)
        }
        function emit(type, path, array, element) {
            printf "MEMBER(%s, %s, \"%s\", \"%s\", %s%s)\n", outer, path, array, type, path, element
        }
        END {
            for (name in length_of) gsub("\\[" name "\\]", "[" length_of[name] "]", text)
            gsub(/[{;]/, "&\n", text); gsub(/}/, "\n}", text)
            count = split(text, lines, "\n")
            print "#include <stddef.h>\n#include <stdio.h>\n#include <sumi_xml.h>"
            print "#define KIND(x) _Generic((x), float: \"real\", double: \"real\", default: \"whole\")"
            print "#define MEMBER(type, path, array, text, first) \\"
            print "    printf(\"member %s.%s%s %zu %zu %s %s\\n\", #type, #path, array, offsetof(type, path), sizeof ((type*)0)->path, KIND(((type*)0)->first), text);"
            print "int main(void)\n{"
            for (i = 1; i <= count; i++) {
                line = trim(lines[i])
                if (line == "" || line == "}" || line == ";") continue
                split(line, word, " ")
                if (line ~ /^typedef enum sumi_[a-z0-9_]+ {$/) { in_enum = word[3]; printf "puts(\"enum %s\");\n", in_enum; continue }
                if (in_enum != "") {
                    if (line ~ /^}/) { in_enum = ""; continue }
                    values = split(line, value, ",")
                    for (v = 1; v <= values; v++) {
                        name = trim(value[v]); sub(/ .*/, "", name)
                        if (name != "") printf "printf(\"value %s.%s %%d\\n\", (int)%s);\n", in_enum, name, name
                    }
                    continue
                }
                if (line ~ /^(typedef )?struct sumi_[a-z0-9_]+ {$/) { outer = word[1] == "typedef" ? word[3] : word[2]; printf "printf(\"struct %s %%zu\\n\", sizeof(%s));\n", outer, outer; continue }
                if (outer != "" && line == "struct {") { inner = 1; pending = 0; continue }
                if (outer != "" && inner && line ~ /^} [a-z0-9_]+;$/) {
                    inner = 0; name = word[2]; sub(/;/, "", name)
                    emit("struct", name, "", "")
                    for (p = 1; p <= pending; p++) emit(pending_type[p], name "." pending_name[p], pending_array[p], pending_array[p] != "" ? "[0]" : "")
                    continue
                }
                if (outer != "" && line ~ /^}/) { outer = ""; continue }
                if (outer != "") {
                    sub(/;$/, "", line)
                    if (match(line, /\(\*[a-z0-9_]+\)/)) { # a function
                        name = substr(line, RSTART + 2, RLENGTH - 3)
                        member(substr(line, 1, RSTART + 1) substr(line, RSTART + RLENGTH - 1), name)
                        continue
                    }
                    declarators = split(line, declarator, ",")
                    match(declarator[1], /[ *]+[a-z0-9_]+(\[[0-9]+\])?$/)
                    type = substr(declarator[1], 1, RSTART - 1)
                    declarator[1] = substr(declarator[1], RSTART)
                    for (d = 1; d <= declarators; d++) {
                        name = trim(declarator[d]); stars = name; gsub(/[^*]/, "", stars); gsub(/[* ]/, "", name)
                        member(type stars, name)
                    }
                    continue
                }
                if (line ~ /^SUMI_API /) { sub(/^SUMI_API /, "", line); sub(/;$/, "", line); print_text("function " line); continue }
                sub(/;$/, "", line); print_text("type " line)
            }
            macro_count = split(macros, macro, "\n")
            for (m = 2; m <= macro_count; m++) print_text("macro " macro[m])
            print "return 0;\n}"
        }'
}
table_of() { # folder of sumi.h and sumi_xml.h: prints the table
    program_of "$1" >"$folder/program.c"
    gcc -std=c11 -Wall -Werror "-I$1" "$folder/program.c" -o "$folder/program" && "$folder/program"
}
version_of() { sed -n 's/^#define SUMI_VERSION_\(MAJOR\|MINOR\)  *\([0-9]*\).*/\2/p' "$1" | paste -sd _; }

# What a header may not have changed. Prints what is wrong.
compare() { # folder of the headers, folder with tables
    local version stored other
    version=$(version_of "$1/sumi.h")
    stored=$2/abi_$version.txt
    table_of "$1" >"$folder/now" || { echo "the header does not compile"; return; }
    if [ -e "$stored" ]; then
        diff <(grep -v '^#' "$stored") "$folder/now" | sed -n 's/^</was:/p; s/^>/is: /p'
    else
        echo "there is no $stored: tests/check_abi.sh --write"
    fi
    for other in "$2"/abi_*.txt; do
        [ "$other" = "$stored" ] && continue
        [ "$(printf '%s\n' "${other##*/}" "abi_$version.txt" | sort -V | head -n 1)" = "${other##*/}" ] || continue # a later one
        grep -E '^value |^member sumi_[a-z_]*_desc\.' "$other" | grep -vxF -f "$folder/now" | sed "s,^,${other##*/} has: ,"
        # A number that another name had in this enum.
        awk 'FNR == NR { if ($1 == "value") { split($2, at, "."); of[at[1] " " $3] = $2 } next }
             $1 == "value" { split($2, at, "."); if ((at[1] " " $3) in of && of[at[1] " " $3] != $2) print $2 " has the number of " of[at[1] " " $3] }' "$other" "$folder/now"
    done
}

version=$(version_of include/sumi.h)
table=tests/abi_$version.txt
if [ "${1:-}" = --write ]; then
    [ ! -e "$table" ] || { echo "$table is there: raise the version in include/sumi.h, or delete the table while its version is not released"; exit 1; }
    table_of include >"$folder/now" || exit 1
    { echo "# Everything that sumi.h and sumi_xml.h of version ${version/_/.} declare: sizes and offsets in bytes on 64-bit platforms. Written by tests/check_abi.sh --write. Do not edit."
      cat "$folder/now"; } >"$table"
fi

check() { # what, what is wrong
    if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    head -n 20 <<<"$2" | sed 's/^/  /'
}
check "the header is that of $table" "$(compare include tests)"
declared=$(cat include/*.h | grep -c '^SUMI_API')
[ "$(grep -c '^function ' "$table")" = "$declared" ] && passed=$((passed + 1)) || check "every function is in the table" "the headers declare $declared"
declared=$(cat include/*.h | grep -cE '^(typedef )?struct sumi_[a-z0-9_]+ {$')
[ "$(grep -c '^struct ' "$table")" = "$declared" ] && passed=$((passed + 1)) || check "every struct is in the table" "the headers declare $declared"

# The table as assertions, for compilers whose programs are not run here.
awk '{ sub(/\[[0-9]*\]/, "", $2) }
     $1 == "struct" { printf "_Static_assert(sizeof(%s) == %s, \"%s\");\n", $2, $3, $2 }
     $1 == "member" { type = $2; sub(/\..*/, "", type); path = $2; sub(/^[^.]*\./, "", path)
                      printf "_Static_assert(offsetof(%s, %s) == %s && sizeof ((%s*)0)->%s == %s, \"%s\");\n", type, path, $3, type, path, $4, $2 }
     $1 == "value"  { name = $2; sub(/.*\./, "", name); printf "_Static_assert(%s == %s, \"%s\");\n", name, $3, name }' "$table" >"$folder/body"
{ printf '#include <stddef.h>\n#include <sumi_xml.h>\n'; cat "$folder/body"; } >"$folder/assertions.c"
sed 's/_Static_assert/static_assert/' "$folder/assertions.c" >"$folder/assertions.cpp"
try() { # compiler, options
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "skip: no $1 here"
        skipped=$((skipped + 1))
        return
    fi
    check "$1 lays the structs out like that" "$("$@" -Iinclude -fsyntax-only 2>&1)"
}
try clang -std=c11 "$folder/assertions.c"
try g++ -std=c++17 -Wno-invalid-offsetof "$folder/assertions.cpp"
try x86_64-w64-mingw32-gcc -std=c11 "$folder/assertions.c"

# This check itself: each of these changes must be seen.
mkdir "$folder/changed" "$folder/tables"
cp "$table" "$folder/tables/"
cp include/sumi_xml.h "$folder/changed"
changed() { # what, sed script
    sed "$2" include/sumi.h >"$folder/changed/sumi.h"
    if cmp -s include/sumi.h "$folder/changed/sumi.h"; then check "$1: the change can be made" "sed $2 finds nothing"; return; fi
    [ -n "$(compare "$folder/changed" "$folder/tables")" ] || { check "$1 is seen" "it is not"; return; }
    passed=$((passed + 1))
}
next='s/^\(#define SUMI_VERSION_MINOR\) .*/\1 99/'
changed "another number" 's/SUMI_TIMEOUT = 51/SUMI_TIMEOUT = 53/'
changed "a member more" 's/^    int32_t step_count; .*/&\n    int32_t added;/'
changed "a member of another type" 's/^    uint64_t seed;/    int64_t seed;/'
changed "a function of another form" 's/sumi_job_cancel(sumi_engine\* engine/sumi_job_cancel(const sumi_engine* engine/'
changed "a member less" '/^    bool profile;/d'
changed "a new version without a table" "$next"
sed "$next; s/SUMI_TIMEOUT = 51/SUMI_TIMEOUT = 53/" include/sumi.h >"$folder/changed/sumi.h"
table_of "$folder/changed" >"$folder/tables/abi_${version%%_*}_99.txt" # only the earlier table is against these
changed "another number in a new version" "$next; s/SUMI_TIMEOUT = 51/SUMI_TIMEOUT = 53/"
sed "$next; s/^    const char\* path;/    const char* added;\n&/" include/sumi.h >"$folder/changed/sumi.h"
table_of "$folder/changed" >"$folder/tables/abi_${version%%_*}_99.txt"
changed "a desc that grew in its middle, in a new version" "$next; s/^    const char\* path;/    const char* added;\n&/"
# And this one is allowed.
longer="$next; s/^    sumi_attention_format attention;$/&\n    const char* added;/; s/SUMI_TIMEOUT = 51,/&\n    SUMI_ADDED = 53,/"
sed "$longer" include/sumi.h >"$folder/changed/sumi.h"
table_of "$folder/changed" >"$folder/tables/abi_${version%%_*}_99.txt"
check "a new version may append" "$(compare "$folder/changed" "$folder/tables")"

echo "abi: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
