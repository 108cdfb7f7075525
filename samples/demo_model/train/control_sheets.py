"""Makes the sample outline and the README's sheet of the control net with the command line: drawings, below them what the same prompts and seeds draw without the net, and with it. Needs torch, numpy, Pillow.

    python3 samples/demo_model/train/control_sheets.py [build/release/bin/sumi]
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image

from control_pictures import drawings
from sheets import MODEL, generate

SIDE = 128
OUTLINE = MODEL / "control/outline.png"
CAT_AND_MOON = [("cat", 0.36, 0.64, 0.28, 0.0), ("moon", 0.80, 0.20, 0.15, 0.0)]
ROWS = [  # things: kind, x, y, half the size, tilt; whether a hand drew them; prompt, seed
    (CAT_AND_MOON, True, "a cat and a moon", 7), (CAT_AND_MOON, True, "a blue cat and a white moon at night, watercolour", 7), (CAT_AND_MOON, True, "a line drawing of a purple cat and a green moon", 7),
    ([("house", 0.70, 0.64, 0.24, 0.0), ("tree", 0.22, 0.67, 0.18, 0.0), ("tree", 0.24, 0.22, 0.13, 0.0)], False, "a red house and two trees on the grass", 3),
    ([("fish", 0.28, 0.22, 0.18, 0.2), ("fish", 0.72, 0.44, 0.20, -0.2), ("fish", 0.32, 0.76, 0.21, 0.1)], True, "three orange fish at sea", 5),
    ([("star", 0.22, 0.22, 0.15, 0.0), ("star", 0.78, 0.20, 0.12, 0.3), ("boat", 0.55, 0.65, 0.27, 0.0)], False, "a red boat and two yellow stars at night", 2),
    ([("butterfly", 0.60, 0.45, 0.36, 0.15)], True, "a pink butterfly at sunset", 4)]


def drawing_of(things, rough):
    scene = {"things": [dict(zip(("object", "x", "y", "half", "tilt"), thing)) for thing in things]}
    return Image.fromarray((drawings([scene], 256, 256, rough=rough, seed=11)[0] * 255).round().byte().numpy())


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/sumi"
    drawing_of(*ROWS[0][:2]).quantize(16, dither=Image.Dither.NONE).save(OUTLINE, optimize=True)
    sheet = Image.new("RGB", (len(ROWS) * (SIDE + 4) - 4, 3 * SIDE + 8), "white")
    with tempfile.TemporaryDirectory() as folder:
        for i, (things, rough, text, seed) in enumerate(ROWS):
            drawing = Path(folder) / f"{i}_drawing.png"
            drawing_of(things, rough).save(drawing)
            control = ("--control", MODEL / "control/control_outline.safetensors", "--control-picture", f"{drawing}:0.8")
            column = [Image.open(drawing).convert("RGB"), generate(program, folder, text, seed, "free.png"), generate(program, folder, text, seed, "controlled.png", *control)]
            for row, picture in enumerate(column):
                sheet.paste(picture.resize((SIDE, SIDE), Image.LANCZOS), (i * (SIDE + 4), row * (SIDE + 4)))
    sheet.save(MODEL / "control/sheet.png", optimize=True)


if __name__ == "__main__":
    main()
