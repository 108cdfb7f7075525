#!/usr/bin/env python3
"""Writes tests/golden/common/tokenizers/nfc_marks.jsonl: texts with runs of marks of every length, and their NFC.

    python3 tests/generate/nfc_marks.py

The NFC is that of Python's unicodedata. Only characters of Unicode 3.2 occur, whose NFC is the same in every later version.
"""
import json
import pathlib
import random
import unicodedata

OUT = pathlib.Path(__file__).resolve().parents[1] / "golden/common/tokenizers/nfc_marks.jsonl"
OLD = unicodedata.ucd_3_2_0
LENGTHS = [*range(0, 70), 95, 96, 97, 127, 128, 129, 255, 256, 257, 1000]
# marks of many classes, some that are two marks decomposed, some of one class that compose or not
MARKS = [c for c in map(chr, range(0x300, 0x370)) if OLD.combining(c)] + list("\u05b0\u05bc\u064b\u0651\u0670\u093c\u0f71\u0f72\u0f73\u0f74\u0344\u3099\u302a\u20d0\U0001d165\U0001d16d")
MARKS = [c for c in MARKS if OLD.combining(c)] + ["\u0344", "\u0f73"]
LETTERS = ["a", "e", "\u00e9", "\u1ea1", "\u0915", "\u304b", "\u03b1", "\uac00", "\u1100\u1161", "x", ""]
BEHIND = ["", "z", "\u2003", "\ufeff", "\u0e01\u0e02", "e\u0301", "\u200b", "\u0b95", "\u263a"]


def main():
    draw = random.Random(5)
    lines = []
    for length in LENGTHS:
        for kinds in (1, 2, 9):
            if length > 300 and kinds != 9:
                continue
            marks = draw.sample(MARKS, kinds)
            text = draw.choice(LETTERS) + "".join(draw.choice(marks) for _ in range(length)) + draw.choice(BEHIND)
            lines.append(json.dumps({"text": text.encode().hex(), "nfc": unicodedata.normalize("NFC", text).encode().hex()}) + "\n")
    OUT.write_text("".join(lines), encoding="ascii", newline="\n")


if __name__ == "__main__":
    main()
