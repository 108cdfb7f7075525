"""Makes the README's strip with the command line: drawn pictures above, what edits by words make of them below. Needs Pillow.

    python3 samples/demo_edit_model/train/strip.py [build/release/bin/sumi [strip.png]]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

MODEL = Path(__file__).resolve().parent.parent
DRAWING_MODEL = MODEL.parent / "demo_model"
EDITS = [  # the first picture, what to change, seed
    ("a red house on the grass", "make the house blue", 7), ("a white boat below a yellow star at night", "remove the boat", 7),
    ("a green tree on the grass", "add a yellow star above the tree", 7), ("a yellow moon above a purple cat", "swap the cat and the moon", 7),
    ("a red boat at sea", "as a watercolour", 7)]
SIDE, GAP, CAPTION = 200, 4, 24


def generate(program, model, text, seed, path, *more):
    subprocess.run([program, "generate", "--model", model, "--prompt", text, "--seed", str(seed), "--quiet", "-o", path, *more], check=True)
    return Image.open(path).convert("RGB").resize((SIDE, SIDE), Image.LANCZOS)


def font():
    try:
        return ImageFont.truetype("DejaVuSans.ttf", 12)
    except OSError:
        return ImageFont.load_default()


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/sumi"
    out = sys.argv[2] if len(sys.argv) > 2 else MODEL / "strip.png"
    strip = Image.new("RGB", (len(EDITS) * (SIDE + GAP) - GAP, 2 * SIDE + GAP + CAPTION), "white")
    draw, letters = ImageDraw.Draw(strip), font()
    with tempfile.TemporaryDirectory() as folder:
        for i, (text, words, seed) in enumerate(EDITS):
            x, first = i * (SIDE + GAP), Path(folder) / f"{i}.png"
            strip.paste(generate(program, DRAWING_MODEL, text, seed, first), (x, 0))
            edited = generate(program, MODEL, words, seed, Path(folder) / f"{i}-edited.png", "--reference", first, "--steps", "20", "--guidance", "3")
            strip.paste(edited, (x, SIDE + GAP))
            draw.text((x + (SIDE - draw.textlength(words, letters)) / 2, 2 * SIDE + GAP + 5), words, "black", letters)
    strip.save(out, optimize=True)


if __name__ == "__main__":
    main()
