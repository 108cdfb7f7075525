#!/usr/bin/env python3
"""Changes a copy of a checkpoint in one place, in its files alone.

change.py tensor FOLDER NAME       turns the signs of half of the tensor's values, in the file of the folder that holds it
change.py merge FOLDER NUMBER      removes a merge of two letters from tokenizer.json and merges.txt; -1 is the last one
change.py shift FOLDER             a scheduler with other sigmas
change.py terminal FOLDER          one whose last sigma before 0 is another; for families that do not read its shift
"""

import json
import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file


def change_tensor(folder, name):
    for path in sorted(Path(folder).glob("*.safetensors")):
        tensors = load_file(path)
        if name not in tensors:
            continue
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        values = tensors[name].clone()
        values.view(-1)[::2] *= -1
        tensors[name] = values
        save_file(tensors, path, metadata)
        return
    sys.exit(f"{folder} has no tensor {name}")


def remove_merge(merges, number):
    """Only merges of two letters count: longer tokens may be reached by other merges."""
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    del merges[[i for i, pair in enumerate(pairs) if len(pair) == 2 and max(map(len, pair)) == 1][number]]


def change_merges(folder, number):
    folder, found = Path(folder), False
    if (folder / "tokenizer.json").exists():
        tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        remove_merge(tokenizer["model"]["merges"], number)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
        found = True
    if (folder / "merges.txt").exists():
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        first = 1 if lines[0].startswith("#version") else 0
        merges = [line for line in lines[first:] if line]
        remove_merge(merges, number)
        (folder / "merges.txt").write_text("\n".join(lines[:first] + merges) + "\n", encoding="utf-8")
        found = True
    if not found:
        sys.exit(f"{folder} has no merges")


def change_shift(folder):
    path = Path(folder) / "scheduler_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    for name in ("shift", "max_shift"):
        if isinstance(settings.get(name), (int, float)):
            settings[name] *= 1.05
    path.write_text(json.dumps(settings), encoding="utf-8")


def change_terminal(folder):
    path = Path(folder) / "scheduler_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["shift_terminal"] = 0.02
    path.write_text(json.dumps(settings), encoding="utf-8")


if __name__ == "__main__":
    what, folder = sys.argv[1:3]
    if what == "tensor":
        change_tensor(folder, sys.argv[3])
    elif what == "merge":
        change_merges(folder, int(sys.argv[3]))
    elif what == "terminal":
        change_terminal(folder)
    else:
        change_shift(folder)
