"""Makes pictures of edits with the command line: what the drawing demo model drew above, what edits by words make of it below. Needs Pillow.

    python3 samples/demo_edit_model/train/strip.py [--program build/release/bin/sumi] [--model FOLDER] [--fast] [--list edits.txt] [OUT]

Without --list it makes the README's strip, strip.png of the model's folder. With it, a sheet of all edits of the file, each with the seed of its number. Edits have the quick start's 20 steps and guidance 2; with --fast 4 steps with the adapter."""

import argparse
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from edit_command import generate, settings

MODEL = Path(__file__).resolve().parent.parent
STRIP = [  # the first picture, what to change, seed
    ("a red house on the grass", "make the house blue", 7), ("a white boat below a yellow star at night", "remove the boat", 7),
    ("a fish at sea", "add a boat above the fish", 7), ("a house beside a tree", "swap the house and the tree", 7),
    ("a red boat at sea", "as a watercolour", 7)]
GAP, CAPTION, COLUMNS = 4, 24, 8


def font(size):
    try:
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default()


def read_list(path):
    rows = [line.split("|") for line in Path(path).read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [(text.strip(), words.strip(), seed) for seed, (text, words) in enumerate(rows, 1)]


def sheet(options, edits, side, columns, captions):
    letters, height = font(12 if side >= 200 else 9), 2 * side + GAP + CAPTION * len(captions)
    rows = -(-len(edits) // columns)
    picture = Image.new("RGB", (columns * (side + GAP) - GAP, rows * (height + GAP) - GAP), "white")
    draw = ImageDraw.Draw(picture)
    with tempfile.TemporaryDirectory() as folder:
        for i, edit in enumerate(edits):
            x, y = i % columns * (side + GAP), i // columns * (height + GAP)
            first, second = Path(folder) / "before.png", Path(folder) / "after.png"
            before = generate(options.program, MODEL.parent / "demo_model", edit[0], edit[2], first)
            after = generate(options.program, options.model, edit[1], edit[2], second, [first], settings(options.model, options.fast))
            picture.paste(before.resize((side, side), Image.LANCZOS), (x, y))
            picture.paste(after.resize((side, side), Image.LANCZOS), (x, y + side + GAP))
            for line, which in enumerate(captions):
                at = y + 2 * side + GAP + CAPTION * line + 5
                draw.text((x + max(0, (side - draw.textlength(edit[which], letters)) / 2), at), edit[which], "black", letters)
    return picture


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/bin/sumi")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--list")
    parser.add_argument("out", nargs="?", type=Path, default=MODEL / "strip.png")
    options = parser.parse_args()
    if options.list:
        sheet(options, read_list(options.list), 160, COLUMNS, (0, 1)).save(options.out, quality=85, optimize=True)
    else:
        sheet(options, STRIP, 200, len(STRIP), (1,)).save(options.out, optimize=True)


if __name__ == "__main__":
    main()
