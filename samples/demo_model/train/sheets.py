"""Makes the README's pictures with the command line: a contact sheet of eight prompts, and the live previews of one picture. Needs Pillow.

    python3 samples/demo_model/train/sheets.py [build/release/bin/sumi]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

MODEL = Path(__file__).resolve().parent.parent
PROMPTS = [  # text, seed
    ("a yellow moon above a purple cat at night, watercolour", 7), ("a red house on the grass", 7), ("an orange fish to the left of a pink heart at sea", 7),
    ("a line drawing of a blue butterfly", 7), ("two red balloons in a blue sky", 7), ("a watercolour of a pink flower at sunset", 7),
    ("a big green tree on the grass", 7), ("a white boat below a yellow star at night", 7)]
STRIP = ("a red boat at sea, watercolour", 7)


def generate(program, folder, text, seed, name, *more):
    path = Path(folder) / name
    subprocess.run([program, "generate", "--model", MODEL, "--prompt", text, "--seed", str(seed), "--quiet", "-o", path, *more], check=True)
    return Image.open(path).convert("RGB")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/sumi"
    with tempfile.TemporaryDirectory() as folder:
        sheet = Image.new("RGB", (4 * 256 + 3 * 4, 2 * 256 + 4), "white")
        for i, (text, seed) in enumerate(PROMPTS):
            sheet.paste(generate(program, folder, text, seed, f"{i}.png"), (i % 4 * 260, i // 4 * 260))
        sheet.save(MODEL / "contact_sheet.png", optimize=True)
        final = generate(program, folder, *STRIP, "strip.png", "--preview-dir", folder)
        previews = sorted(Path(folder).glob("preview-0-*.png"), key=lambda p: int(p.stem.rsplit("-", 1)[1]))
        pictures = [Image.open(p).convert("RGB").resize((128, 128), Image.NEAREST) for p in previews] + [final.resize((128, 128), Image.LANCZOS)]
        strip = Image.new("RGB", (len(pictures) * 132 - 4, 128), "white")
        for i, picture in enumerate(pictures):
            strip.paste(picture, (i * 132, 0))
        strip.save(MODEL / "previews.png", optimize=True)


if __name__ == "__main__":
    main()
