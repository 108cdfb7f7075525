#!/usr/bin/env bash
# The subjects of commits after the one that is named here read as .githooks/commit-msg wants them; older ones are as they are. Then the hook itself, on subjects good and bad.
# The last line is "commits: N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
since=5e17e9448
passed=0 failed=0 skipped=0
message=$(mktemp)
trap 'rm -f "$message"' EXIT

hook_takes() { # subject
    printf '%s\n\nA body.\n' "$1" >"$message"
    .githooks/commit-msg "$message" 2>&1
}

# ---- The commits ----
if [ ! -e .git ] || ! command -v git >/dev/null; then
    echo "skip: commits: this folder is no clone, or there is no git"
    skipped=1
elif ! git merge-base --is-ancestor "$since" HEAD 2>/dev/null; then
    echo "skip: commits: $since is not in this history (a shallow clone?)"
    skipped=1
else
    while read -r hash subject; do
        if why=$(hook_takes "$subject"); then passed=$((passed + 1)); continue; fi
        failed=$((failed + 1))
        echo "FAILED: $hash"
        sed 's/^/  /' <<<"$why"
    done < <(git log --no-merges --format='%h %s' "$since..HEAD")
fi

# ---- The hook ----
while read -r expected subject; do
    if hook_takes "$subject" >/dev/null; then found=good; else found=bad; fi
    if [ "$found" = "$expected" ]; then passed=$((passed + 1)); continue; fi
    failed=$((failed + 1))
    echo "FAILED: the hook finds this $found: $subject"
done <<'SUBJECTS'
good cuda: Pin larger buffers outside of frames
good tests: Bring back what a frame needs
good engine, plan: Compress what a job keeps
good unity: Embed the bindings
good base: Exceed no limit
good Merge branch 'x'
bad Pin larger buffers
bad cuda: pin larger buffers
bad cuda: Pins larger buffers
bad cuda: Pinned larger buffers
bad cuda: Pinning larger buffers
bad cuda: The buffers are larger
bad cuda: An upload has larger buffers
bad cuda: Pin buffers that are so much larger than those of a frame that no one waits
SUBJECTS
echo "commits: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
