#!/usr/bin/env python3
"""Writes tests/golden/common/tokenizers/repaired_utf8.jsonl: every malformed text of the tokenizer fixtures with U+FFFD for each maximal invalid part.

    python3 tests/generate/repaired_utf8.py

Python's own "replace" handler follows the Unicode recommendation, so it says what the library must do.
"""
import json
import pathlib

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def main():
    lines = []
    for line in (GOLDEN / "common/tokenizers/invalid_utf8.jsonl").read_text(encoding="ascii").splitlines():
        data = bytes.fromhex(json.loads(line)["hex"])
        lines.append(json.dumps({"hex": data.hex(), "repaired": data.decode("utf-8", "replace").encode("utf-8").hex()}) + "\n")
    (GOLDEN / "common/tokenizers/repaired_utf8.jsonl").write_text("".join(lines), encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
