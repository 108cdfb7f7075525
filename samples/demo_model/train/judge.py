"""Judges the demo model as the library runs it: held-out prompts and those of prompts.txt through the command line, read by check.py. Prints the tables of the model card.

    python3 judge.py PROGRAM FOLDER [--count 200] [--model FOLDER] [--sheet FILE]        PROGRAM: build/release/bin/sumi; pictures and prompts.json go to FOLDER, those of prompts.txt in one into FILE
"""

import argparse
import json
import random
import subprocess
from pathlib import Path

import check
from world import caption

MODEL = Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200, help="held-out prompts of each kind")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--sheet", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    entries = [{"row": "newcomer", "text": text, "scene": scene} for text, scene in check.newcomer_prompts()]
    for row in check.ROWS:
        if row not in ("empty", "newcomer") and args.count:
            entries += [{"row": row, "text": caption(s, random.Random(0), True), "scene": s} for s in check.held_out_scenes(args.count, 21, row)]
    (args.folder / "prompts.json").write_text(json.dumps(entries))
    for k, entry in enumerate(entries):
        subprocess.run([args.program, "generate", "--model", args.model, "--prompt", entry["text"], "--seed", str(k), "--quiet", "-o", args.folder / f"{k:05}.png"], check=True)
    if args.sheet:
        from PIL import Image

        count, side = sum(e["row"] == "newcomer" for e in entries), 96  # they come first, 20 in a row
        sheet = Image.new("RGB", (20 * (side + 2) - 2, -(-count // 20) * (side + 2) - 2), "white")
        for k in range(count):
            sheet.paste(Image.open(args.folder / f"{k:05}.png").convert("RGB").resize((side, side), Image.LANCZOS), (k % 20 * (side + 2), k // 20 * (side + 2)))
        sheet.save(args.sheet, quality=85)
    check.judge(args.folder)


if __name__ == "__main__":
    main()
