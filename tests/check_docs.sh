#!/usr/bin/env bash
# The documents say what the sources say. usage: tests/check_docs.sh [--fix]
#
#   excerpts     a line <!-- excerpt FILE NAME --> in a document is followed by the lines between [excerpt NAME] and [end] in FILE, which is named
#                from the document's folder; every excerpt of the samples is shown somewhere. --fix writes the documents anew
#   results      docs/results.md has every result of sumi.h with its number, once, in the header's order, and no other
#   rooms        src/README.md lists every folder of src with the arrows of check_rooms.sh
#   samples      samples/README.md lists every folder of samples, and every recipe of the cookbook is shown
#   promises     the tests that tests/promises.md and README.md name are there: `test_x.a_test`, `.another_one` of the same file, `.a_beginning_...`
#   links        files and headings that documents link to are there
#   families     docs/architectures/NAME.md, "Heading" in comments of src: page and heading are there; every recipe names its family's page
#
# The last line is "docs: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mapfile -t documents < <(find . -name '*.md' -not -path './build/*' -not -path './.git/*' | sed 's,^\./,,' | LC_ALL=C sort)

check() { # what, offending lines
    if [ -z "$2" ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $1"
    head -n 20 <<<"$2" | sed 's/^/  /'
}

# ---- Excerpts -------------------------------------------------------------------------------------------------------------------------
# A document with its excerpts as the sources have them, without the indentation of their marker.
with_excerpts() { # document
    awk -v base="$(dirname "$1")" '
        skips { if ($0 == "```") skips = 0; next }
        waits { waits = 0; if ($0 ~ /^```/) { skips = 1; next } }
        { print }
        /^<!-- excerpt [^ ]+ [a-z0-9_]+ -->$/ {
            path = base "/" $3; name = $4; found = 0; on = 0
            print "```" (path ~ /\.cpp$/ ? "cpp" : "c")
            while ((getline line < path) > 0) {
                if (on && line ~ /\/\/ \[end\]$/) { on = 0; continue }
                if (on) { if (substr(line, 1, indent) ~ /^ *$/) line = substr(line, indent + 1); print line }
                if (index(line, "// [excerpt " name "]")) { on = found = 1; indent = index(line, "//") - 1 }
            }
            close(path)
            if (!found) print "(there is no excerpt " name " in " path ")"
            print "```"
            waits = 1
        }' "$1"
}
for document in "${documents[@]}"; do
    grep -q '^<!-- excerpt ' "$document" || continue
    with_excerpts "$document" >"$folder/document"
    if [ "${1:-}" = --fix ]; then cat "$folder/document" >"$document"; fi
    check "$document shows what the sources say (tests/check_docs.sh --fix writes it)" "$(diff -u "$document" "$folder/document"; grep -n '^(there is no excerpt' "$folder/document")"
done
marked=$(grep -rhoE '// \[excerpt [a-z0-9_]+\]' samples --include='*.c' --include='*.cpp' | grep -oE '[a-z0-9_]+\]' | tr -d ']' | LC_ALL=C sort)
shown=$(cat "${documents[@]}" | sed -n 's/^<!-- excerpt [^ ]* \([a-z0-9_]*\) -->$/\1/p' | LC_ALL=C sort)
check "there are excerpts" "$([ "$(wc -l <<<"$marked")" -ge 10 ] || echo "only $(wc -l <<<"$marked")")"
check "every excerpt is shown once" "$(diff <(echo "$marked") <(echo "$shown"))"

# ---- Results --------------------------------------------------------------------------------------------------------------------------
declared=$(sed -n '/^typedef enum sumi_result {/,/^} sumi_result;/s/^ *\(SUMI_[A-Z_]*\) = \([0-9]*\).*/\1 \2/p' include/sumi.h)
listed=$(sed -n 's/^| `\(SUMI_[A-Z_]*\)` | \([0-9]*\) | [^|]*[^| ] | [^|]*[^| ] |$/\1 \2/p' docs/results.md)
check "sumi.h has results" "$([ "$(wc -l <<<"$declared")" -ge 20 ] || echo "only $(wc -l <<<"$declared")")"
check "docs/results.md has every result with number, cause and cure, and no other" "$(diff <(echo "$declared") <(echo "$listed"))"

# ---- Rooms ----------------------------------------------------------------------------------------------------------------------------
arrows=$(sed -n 's/^    \[\([a-z]*\)\]="\([a-z ]*\)"$/\1: \2/p' tests/check_rooms.sh | sed 's/ *$//')
drawn=$(sed -n 's/^| `\([a-z]*\)` | [^|]* | \([a-z, ]*\) |$/\1: \2/p' src/README.md | tr -d ,  | sed 's/ *$//')
check "src/README.md has the arrows of check_rooms.sh" "$(diff <(echo "$arrows") <(echo "$drawn"))"

# ---- Samples --------------------------------------------------------------------------------------------------------------------------
missing=
for sample in samples/*/ samples/{apps,engines,instruments}/*/; do
    name=${sample#samples/}
    case $name in apps/ | engines/ | instruments/) continue ;; esac # folders of samples
    grep -qF "| [\`${name%/}\`]" samples/README.md || missing+="$sample"$'\n'
done
check "samples/README.md lists every sample" "$missing"
missing=
for recipe in $(sed -n 's/^    {"\([a-z_]*\)", recipe_.*/\1/p' samples/cookbook/cookbook.c); do
    grep -q "^<!-- excerpt cookbook/$recipe.c " samples/README.md || missing+="$recipe"$'\n'
done
check "samples/README.md shows every recipe" "$missing"

# ---- Promises -------------------------------------------------------------------------------------------------------------------------
named=$(grep -h '^|' tests/promises.md README.md | awk '
    { file = "" }
    {
        while (match($0, /`[^`]+`/)) {
            name = substr($0, RSTART + 1, RLENGTH - 2); $0 = substr($0, RSTART + RLENGTH)
            if (name ~ /^test_[a-z0-9_]+(\.[a-z0-9_.]+)?$/ && name !~ /\.sh$/) { file = name; sub(/\..*/, "", file); sub(/^[^.]*\.?/, "", name) }
            else if (file != "" && name ~ /^\.[a-z]/) name = substr(name, 2)
            else continue
            end = ")"; if (sub(/\.\.\.$/, "", name)) end = ""
            print file ".c", name == "" ? "" : "TEST(" name end
        }
    }')
check "tests/promises.md names tests" "$([ "$(wc -l <<<"$named")" -ge 50 ] || echo "only $(wc -l <<<"$named")")"
check "the tests that tests/promises.md and README.md name are there" "$(while read -r file test; do grep -qsF -- "$test" "tests/$file" || echo "$file: $test"; done <<<"$named")"

# ---- Links ----------------------------------------------------------------------------------------------------------------------------
# A heading's name in links: small letters, without punctuation, hyphens for spaces.
headings() { sed -n 's/^##* //p' "$1" | tr 'A-Z' 'a-z' | tr -cd 'a-z0-9 \n_-' | tr ' ' '-'; }
broken=
for document in "${documents[@]}"; do
    while read -r link; do
        case $link in http:* | https:* | mailto:*) continue ;; esac
        path=${link%%#*} heading=
        [[ $link == *#* ]] && heading=${link#*#}
        target=$document
        [ -z "$path" ] || target=$(dirname "$document")/$path
        if [ ! -e "$target" ]; then broken+="$document: $link"$'\n'
        elif [ -n "$heading" ] && ! headings "$target" | grep -qxF -- "$heading"; then broken+="$document: $link, which has no such heading"$'\n'; fi
    done < <(awk '/^ *```/ { code = !code; next } !code' "$document" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//')
done
check "documents link to what is there" "$broken"

# ---- Families -------------------------------------------------------------------------------------------------------------------------
# What a comment names may go on in the next line of the comment.
named_pages() { awk '{ sub(/^ *\/\/ ?/, ""); printf "%s ", $0 }' "$1" | grep -oE 'docs/architectures/[A-Za-z0-9_-]+\.md(, "[^"]+")?'; }
broken= count=0
while read -r source; do
    while read -r name; do
        count=$((count + 1)) page=${name%%, *} heading=
        [[ $name == *\"* ]] && heading=${name#*, \"} heading=${heading%\"}
        if [ ! -e "$page" ]; then broken+="$source: $page"$'\n'
        elif [ -n "$heading" ] && ! grep -qE '^##* '"$heading"'$' "$page"; then broken+="$source: $page has no heading \"$heading\""$'\n'; fi
    done < <(named_pages "$source")
done < <(grep -rl 'docs/architectures/' src --include='*.[ch]' | LC_ALL=C sort)
check "sources name pages of families" "$([ "$count" -ge 8 ] || echo "only $count")"
check "pages of families that sources name are there, with their headings" "$broken"
check "every recipe names its family's page" "$(for recipe in src/models/recipe_*.c; do [ -n "$(named_pages "$recipe")" ] || echo "$recipe"; done)"

echo "docs: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
