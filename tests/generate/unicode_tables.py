#!/usr/bin/env python3
"""Writes src/text/unicode_tables.inc from tests/golden/common/tokenizers/unicode.json.

    python3 tests/generate/unicode_tables.py

The JSON lists what the reference tokenizer's regex engine and normalizers really do with each code point; the table is those lists as ranges of
first and last code point, in rising order, ready for a binary search.
"""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = "tests/golden/common/tokenizers/unicode.json"


def ranges(text):
    for item in text.split():
        first, _, last = item.partition("-")
        yield int(first, 16), int(last or first, 16)


def table(name, comment, text, count):
    found = list(ranges(text))
    assert sum(last - first + 1 for first, last in found) == count, name
    assert all(a[1] < b[0] for a, b in zip(found, found[1:])), name
    cells = [f"{{0x{first:X}, 0x{last:X}}}" for first, last in found]
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 148:
            lines.append(line)
            line = "   "
        line += f" {cell},"
    lines.append(line)
    return f"// {comment}: {count} code points in {len(found)} ranges\nstatic const code_point_range {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


def main():
    facts = json.loads((ROOT / SOURCE).read_text(encoding="utf-8"))
    compared = next(value for key, value in facts.items() if key.startswith("compared with libutf8proc"))
    marks = next(value for key, value in compared.items() if key.startswith("combining marks reordered"))
    pairs = next(value for key, value in compared.items() if key.startswith("compositions made by utf8proc"))
    second = sorted({int(pair.split()[1], 16) for pair in pairs})
    apart = sorted(list(ranges(marks["ranges"])) + [(cp, cp) for cp in second])
    apart_text = " ".join(f"{first:X}-{last:X}" for first, last in apart)
    parts = [
        table("s_letters", "\\p{L} of the regex", facts["regex \\p{L}"]["ranges"], facts["regex \\p{L}"]["count"]),
        table("s_numbers", "\\p{N} of the regex", facts["regex \\p{N}"]["ranges"], facts["regex \\p{N}"]["count"]),
        table("s_spaces", "\\s of the regex, which is White_Space", facts["regex \\s"]["ranges"], facts["regex \\s"]["count"]),
        table("s_nfc_apart", "copied through by NFC: the reference's tables are older than these", apart_text, marks["count"] + len(second)),
        table("s_cluster_extend", "join the preceding grapheme cluster, unknown to utf8proc 2.8", compared["cluster joining only in the reference"]["ranges"],
              compared["cluster joining only in the reference"]["count"]),
    ]
    text = f"// Generated from {SOURCE} by tests/generate/unicode_tables.py. Do not edit.\n\n" + "\n".join(parts)
    (ROOT / "src/text/unicode_tables.inc").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
