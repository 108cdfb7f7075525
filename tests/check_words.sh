#!/usr/bin/env bash
# Turns of phrase that a native reader stumbles over, in comments of the library and the tests. A row below is what to look for, in which folders, how many are left (never more than that), and what
# to write instead. Whoever rewords some lowers the number. The last line is "words: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0
comment='(//|^ ?\*).*'

while IFS='@' read -r pattern folders most instead; do
    pattern=${pattern% } # the blank before the @
    # shellcheck disable=SC2086 # several folders
    found=$(grep -rnE "$comment$pattern" $folders --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh')
    count=$(grep -c . <<<"$found")
    if [ "$count" -le $((most)) ]; then passed=$((passed + 1)); continue; fi
    failed=$((failed + 1))
    echo "FAILED: $count comments have \"$pattern\" in$folders, $((most)) are allowed; write$instead"
    sed 's/^/  /' <<<"$found" | head -n "${LINES_SHOWN:-12}"
done <<'ROWS'
\b(is|are) no [a-z] @ include src @ 0 @ what is missing: "without a plan", "not a multiple of 8"
\b(is|are) no [a-z] @ kernels @ 10 @ the same
\banew\b @ include src tests @ 6 @ "again"
(that|which) (is|are) none\b @ include src kernels @ 0 @ "invalid", "fake", "missing"
\bby which\b @ include src @ 6 @ "with which", or two sentences
\bgo(es)? on\b @ include src @ 1 @ "continues"
\bof (its|their) own\b @ include src @ 8 @ "its own", "separate"
\bof which\b @ include src @ 5 @ "whose", or two sentences
\b(that|those) of (the|an?)\b @ include src @ 38 @ the noun again, or a genitive: "the reference's"
\b(is|are|was) what\b @ include src @ 8 @ the noun that "what" stands for
\b(for|of|in|to) what\b @ include src @ 12 @ the noun that "what" stands for
\bwhat (is|was|are|were)\b @ include src @ 15 @ the noun that "what" stands for: "the rest", "the known time"
\bbehind\b @ include src @ 7 @ "after", unless something is hidden or late
(the|its|their|'s) begin\b @ include src @ 4 @ "beginning", "start"
\bso many\b @ include src @ 3 @ "this many", unless "that" follows
\blooked at\b @ include src @ 0 @ "examined", "checked"
ROWS
echo "words: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
