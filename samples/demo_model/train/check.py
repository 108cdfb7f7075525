"""Reads pictures of the demo model's world and says whether they show what their prompts say. It knows nothing of the model.

    python3 check.py --self-test 400              true renders must pass, and fail under another picture's prompt
    python3 check.py --judge FOLDER               FOLDER/prompts.json ([{"text", "scene", ...}]) and FOLDER/00000.png ...: the table of the model card

A picture is read in three steps. Every pixel gets the nearest of the colours that a scene on this background and in this style can have: the background's own,
or a shade of one of the ten colours. What is not background falls apart into connected pieces. Each piece, cut out and scaled to 48x48 labels, is compared with the
160 things (16 objects in 10 colours) painted by pictures.py; the best agreement names it, and its box tells place and size.

    labels of a piece          agreement = equal labels / labels that belong to either
    . . R R . .                (0 outside, 1 a hole: background enclosed by the piece, 2... the ten colours)
    . R W W R .
"""

import argparse
import json
import random
import sys
from pathlib import Path

import numpy
import torch

from pictures import PALETTE, render
from world import COLOURS, HIDDEN, OBJECTS, SIZES, caption, is_held_out, sample_scene

SIDE = 48
OUTSIDE, HOLE, FIRST = 0, 1, 2  # labels; FIRST + k is colour k


# ---- Colours --------------------------------------------------------------------------------------------------------------------------------

def lab(rgb):
    """sRGB in [0, 1], [..., 3] -> CIE Lab."""
    x = numpy.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92) @ numpy.array([[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]])
    x = x / numpy.array([0.9505, 1.0, 1.089])
    f = numpy.where(x > 0.008856, numpy.cbrt(x), 7.787 * x + 16 / 116)
    return numpy.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], -1)


class Palette:
    """The colours a scene on this background and in this style can have, with the label of each."""

    def __init__(self, background, style):
        empty = [{"style": style, "background": background, "things": [], "seed": seed} for seed in range(16)]
        picture = torch.cat([render([s], 96, 96, "cpu") for s in empty]).permute(0, 2, 3, 1).numpy()
        rng = numpy.random.default_rng(0)
        behind = picture.reshape(-1, 3)[rng.permutation(16 * 96 * 96)[:800]]
        where = [picture[:, rows].reshape(-1, 3).mean(0) for rows in (slice(0, 32), slice(32, 64), slice(64, 96))]
        behind = numpy.concatenate([behind] + ([behind * 0.9, behind * 0.8] if style == "flat" else []))  # shadows
        colours, labels = [behind], [numpy.zeros(len(behind), int)]
        for k, name in enumerate(COLOURS):
            if name in HIDDEN[background]:
                continue
            main = numpy.array(PALETTE[name])
            light = main + (1 - main) * 0.45 - (0.18 if main.mean() > 0.9 else 0)
            shades = [main * 0.70, main * 0.85, main, numpy.minimum(main * 1.08, 1), light]
            if style == "watercolour":
                shades = [a * shade + (1 - a) * w for shade in shades for a in (0.65, 0.8, 0.95) for w in where]
            colours.append(numpy.array(shades))
            labels.append(numpy.full(len(shades), FIRST + k))
        colours, labels = torch.from_numpy(lab(numpy.concatenate(colours))).float(), numpy.concatenate(labels)
        steps = (numpy.arange(64) * 4 + 2) / 255
        every = torch.from_numpy(lab(numpy.stack(numpy.meshgrid(steps, steps, steps, indexing="ij"), -1).reshape(-1, 3))).float()
        self.table = numpy.concatenate([labels[torch.cdist(part, colours).argmin(1).numpy()] for part in every.split(8192)])  # nearest label of every colour, 6 bits a channel

    def read(self, picture):
        """[H, W, 3] in [0, 1] -> labels [H, W], 0 for background."""
        steps = (picture * 255).round().astype(int) >> 2
        return self.table[(steps[..., 0] * 64 + steps[..., 1]) * 64 + steps[..., 2]]


# ---- Pieces -----------------------------------------------------------------------------------------------------------------------------------

def connected(mask, reach):
    """Numbers the connected regions of a mask from 1. reach: 0 joins neighbours by side, 1 by corner too."""
    parent, runs, above = [0], [], []

    def root(k):
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for y, row in enumerate(mask):
        edges = numpy.flatnonzero(numpy.diff(numpy.concatenate(([0], row.astype(numpy.int8), [0]))))
        here = []
        for begin, end in zip(edges[::2], edges[1::2]):
            number = 0
            for other_begin, other_end, other in above:
                if other_begin < end + reach and begin < other_end + reach:
                    other = root(other)
                    number = number or other
                    parent[max(number, other)] = number = min(number, other)
            if not number:
                parent.append(len(parent))
                number = len(parent) - 1
            here.append((begin, end, number))
        runs += [(y, *run) for run in here]
        above = here
    out = numpy.zeros(mask.shape, int)
    for y, begin, end, number in runs:
        out[y, begin:end] = root(number)
    return out


def filled(mask):
    around = connected(numpy.pad(~mask, 1, constant_values=True), 0)
    return ~(around == around[0, 0])[1:-1, 1:-1]


def widened(mask):
    out = mask.copy()
    out[1:] |= mask[:-1]
    out[:-1] |= mask[1:]
    wide = out.copy()
    wide[:, 1:] |= out[:, :-1]
    wide[:, :-1] |= out[:, 1:]
    return wide


def pieces(labels):
    """[(box y0, x0, y1, x1, labels inside with holes marked, area)], largest first."""
    found = labels > 0
    whole = filled(widened(found))
    numbers = connected(whole, 1)
    out = []
    for number in numpy.unique(numbers)[1:]:
        mine = numbers == number
        area = int(mine.sum())
        if area < 0.004 * labels.size:
            continue
        real = mine & found
        ys, xs = numpy.flatnonzero(real.any(1)), numpy.flatnonzero(real.any(0))
        if not len(ys):
            continue
        box = (ys[0], xs[0], ys[-1] + 1, xs[-1] + 1)
        cut = numpy.where(filled(mine & widened(found)), numpy.where(found, labels, HOLE), OUTSIDE)[box[0] : box[2], box[1] : box[3]]
        out.append((box, cut, area))
    return sorted(out, key=lambda p: -p[2])


def scaled(cut):
    """To SIDE x SIDE, centred, proportions kept, nearest label."""
    height, width = cut.shape
    step = max(height, width) / SIDE
    at = (numpy.arange(SIDE) + 0.5 - SIDE / 2) * step
    ys, xs = numpy.floor(at + height / 2).astype(int), numpy.floor(at + width / 2).astype(int)
    inside = ((ys >= 0) & (ys < height))[:, None] & ((xs >= 0) & (xs < width))[None]
    return numpy.where(inside, cut[ys.clip(0, height - 1)][:, xs.clip(0, width - 1)], OUTSIDE)


# ---- Things -------------------------------------------------------------------------------------------------------------------------------------

class Reader:
    def __init__(self):
        self.palettes, self.templates = {}, {}

    def palette(self, background, style):
        if (background, style) not in self.palettes:
            self.palettes[(background, style)] = Palette(background, style)
        return self.palettes[(background, style)]

    def template(self, background, style):
        """Labels of all things that this background does not hide, in a few tilts and sizes: ([n, SIDE, SIDE], names)."""
        key = (background, style)
        if key not in self.templates:
            names, tables = [], []
            for colour in COLOURS:
                if colour in HIDDEN[background]:
                    continue
                batch = [{"style": style, "background": background, "seed": 0, "things": [{"object": o, "colour": colour, "x": 0.5, "y": 0.5, "half": 0.44, "tilt": tilt}]}
                         for o in OBJECTS for tilt in (-0.06, 0.0, 0.06)]
                for scene, x in zip(batch, render(batch, 112, 112, "cpu")):
                    found = pieces(self.palette(*key).read(x.permute(1, 2, 0).numpy()))
                    if found:
                        names.append((scene["things"][0]["object"], colour))
                        tables.append(scaled(found[0][1]))
            self.templates[key] = (numpy.array(tables, numpy.int8), names)
        return self.templates[key]

    def read(self, picture, background, style):
        """[{object, colour, x, y, half, area, score}], largest first. picture: [H, W, 3] in [0, 1]."""
        height, width = picture.shape[:2]
        tables, names = self.template(background, style)
        things = []
        for (y0, x0, y1, x1), cut, area in pieces(self.palette(background, style).read(picture)):
            mine = scaled(cut).astype(numpy.int8)
            equal = ((tables == mine) & (mine > 0)).sum((1, 2))
            score = equal / ((tables > 0) | (mine > 0)).sum((1, 2))
            best = int(score.argmax())
            things.append({"object": names[best][0], "colour": names[best][1], "x": (x0 + x1) / 2 / width, "y": (y0 + y1) / 2 / height,
                           "half": max(y1 - y0, x1 - x0) / 2 / min(height, width), "area": area / (height * width), "score": float(score[best])})
        return [t for t in things if t["area"] > 0.15 * things[0]["area"]]


def faults(scene, things):
    """What of the scene's prompt (the plain caption) the picture does not show: an empty list when all is right."""
    out, wanted = [], scene["things"]
    if len(things) != len(wanted):
        return [f"{len(things)} things"]
    if scene["kind"] == "relation":
        horizontal = scene["relation"] in ("left of", "right of")
        first = 0 if (things[0]["object"], things[0]["colour"]) == (wanted[0]["object"], wanted[0]["colour"]) else 1
        things = [things[first], things[1 - first]]
        dx, dy = things[1]["x"] - things[0]["x"], things[1]["y"] - things[0]["y"]
        along, across = (dx, dy) if horizontal else (dy, dx)
        if along * (1 if scene["relation"] in ("left of", "above") else -1) < 0.2 or abs(across) > 0.2:
            out.append("relation")
    for thing, want in zip(things, wanted):
        out += [key for key in ("object", "colour") if thing[key] != want[key]]
    if scene["kind"] == "single":
        if scene["place"]:
            third = lambda v: -1 if v < 0.40 else 1 if v > 0.60 else 0
            place = scene["place"]
            if third(things[0]["x"]) != (-1 if "left" in place else 1 if "right" in place else 0) or third(things[0]["y"]) != (-1 if "top" in place else 1 if "bottom" in place else 0):
                out.append("place")
        low, high = SIZES[scene["size"]]
        if not 0.6 * low < things[0]["half"] < 1.3 * high:
            out.append("size")
    return out


# ---- Tables -------------------------------------------------------------------------------------------------------------------------------------

def held_out_scenes(count, seed, kind, styles=("flat", "outline", "watercolour")):
    """Scenes of one kind that training never saw."""
    rng, out = random.Random(seed), []
    while len(out) < count:
        scene = sample_scene(rng, kind, rng.choice(styles))
        if is_held_out(scene):
            out.append(scene)
    return out


def table(results):
    """results: [(scene, faults)] -> lines of markdown: share that is right, by kind and style."""
    lines = ["| prompts | flat | outline | watercolour | all |", "| --- | --- | --- | --- | --- |"]
    for kind, words in (("single", "one object"), ("relation", "two objects with relation"), ("count", "two to four alike")):
        cells = []
        for style in ("flat", "outline", "watercolour", None):
            right = [not f for s, f in results if s["kind"] == kind and style in (None, s["style"])]
            cells.append(f"{100 * sum(right) / len(right):.1f} % of {len(right)}" if right else "-")
        if cells[-1] != "-":
            lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return lines


def explain(results):
    """How often each fault occurs."""
    counts = {}
    for _, f in results:
        for fault in set(f):
            counts[fault] = counts.get(fault, 0) + 1
    return ", ".join(f"{k} {v}" for k, v in sorted(counts.items(), key=lambda i: -i[1])) or "none"


def self_test(count):
    reader, results, crossed = Reader(), [], []
    for kind in ("single", "relation", "count"):
        batch = held_out_scenes(count, 11, kind)
        read = [reader.read(render([s], 256, 256, "cpu")[0].permute(1, 2, 0).numpy(), s["background"], s["style"]) for s in batch]
        results += [(s, faults(s, r)) for s, r in zip(batch, read)]
        crossed += [(s, faults(s, r)) for s, r in zip(batch, read[1:] + read[:1])]
    print("true renders:", *table(results), "faults: " + explain(results), "", "under another picture's prompt:", *table(crossed), sep="\n")
    return results


def judge(folder):
    from PIL import Image

    reader, results = Reader(), []
    for k, entry in enumerate(json.loads((folder / "prompts.json").read_text())):
        path = folder / f"{k:05}.png"
        if path.exists():
            picture = numpy.asarray(Image.open(path).convert("RGB")) / 255
            fault = faults(entry["scene"], reader.read(picture, entry["scene"]["background"], entry["scene"]["style"]))
            results.append((entry["scene"], fault))
            if fault:
                print(f"{path.name}: {', '.join(fault)}: {entry['text']}", file=sys.stderr)
    print(*table(results), "", "faults: " + explain(results), sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", type=int, metavar="N")
    parser.add_argument("--judge", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if args.self_test:
        self_test(args.self_test)
    if args.judge:
        judge(args.judge)


if __name__ == "__main__":
    main()
