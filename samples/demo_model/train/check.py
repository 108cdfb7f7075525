"""Reads pictures of the demo model's world and says whether they show what their prompts say. It knows nothing of the model.

    python3 check.py --self-test 400              true renders must pass, and fail under another picture's prompt
    python3 check.py --judge FOLDER               FOLDER/prompts.json ([{"text", "scene", ...}]) and FOLDER/00000.png ...: the table of the model card

A picture is read in four steps. Every pixel gets the nearest of the colours that a scene on this background and in this style can have: the background's own,
or a shade of one of the ten colours. What is not background falls apart into connected pieces. Each piece, cut out and scaled to 48x48 labels, is compared with the
160 things (16 objects in 10 colours) painted by pictures.py; the best agreement names it, and its box tells place and size. Pieces close to each other that
agree better with a thing together than apart are one thing: the sails and the hull of a boat at night. A thing of a colour that its background hides has an edge
and a body that reads as a hole: there a vote of the body's pixels names the colour.

    labels of a piece          agreement = equal labels / labels that belong to either
    . . R R . .                (0 outside, 1 a hole: background enclosed by the piece, 2... the ten colours)
    . R W W R .
"""

import argparse
import json
import os
import random
import sys
import tempfile
import zlib
from pathlib import Path

import numpy
import torch

from pictures import CREAM, EDGES, GOLD, INK, LEAF, PALETTE, SNOW, WOOD, render
from world import COLOURS, HIDDEN, OBJECTS, SIZES, STYLES, edge_of, is_held_out, sample_scene

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
    """Masks of the connected regions that are not background, specks left out, largest first."""
    numbers = connected(filled(widened(labels > 0)), 1)
    areas = numpy.bincount(numbers.ravel())
    areas[0] = 0
    return [numbers == k for k in numpy.argsort(-areas) if areas[k] >= 0.004 * labels.size]


def cut_out(mask, labels):
    """The box (y0, x0, y1, x1) of a piece and the labels inside it with holes marked, or None where nothing is left."""
    found = labels > 0
    real = mask & found
    ys, xs = numpy.flatnonzero(real.any(1)), numpy.flatnonzero(real.any(0))
    if not len(ys):
        return None
    y0, x0, y1, x1 = ys[0], xs[0], ys[-1] + 1, xs[-1] + 1
    top, left = max(y0 - 1, 0), max(x0 - 1, 0)
    around = (slice(top, y1 + 1), slice(left, x1 + 1))
    inside = filled((mask & widened(found))[around])[y0 - top :, x0 - left :][: y1 - y0, : x1 - x0]
    return (y0, x0, y1, x1), numpy.where(inside, numpy.where(found[y0:y1, x0:x1], labels[y0:y1, x0:x1], HOLE), OUTSIDE)


def scaled(cut):
    """To SIDE x SIDE, centred, proportions kept, nearest label."""
    height, width = cut.shape
    step = max(height, width) / SIDE
    at = (numpy.arange(SIDE) + 0.5 - SIDE / 2) * step
    ys, xs = numpy.floor(at + height / 2).astype(int), numpy.floor(at + width / 2).astype(int)
    inside = ((ys >= 0) & (ys < height))[:, None] & ((xs >= 0) & (xs < width))[None]
    return numpy.where(inside, cut[ys.clip(0, height - 1)][:, xs.clip(0, width - 1)], OUTSIDE)


# ---- Things -------------------------------------------------------------------------------------------------------------------------------------

FIXED = (WOOD, LEAF, CREAM, INK, GOLD, SNOW, EDGES["white"])  # parts that have the same colour in every thing
NEAR = 0.05  # pieces so close to each other, in units of the shorter side, may be one thing


class Reader:
    def __init__(self):
        self.palettes, self.templates = {}, {}
        sources = b"".join((Path(__file__).parent / name).read_bytes() for name in ("check.py", "pictures.py", "world.py"))
        self.cache = Path(tempfile.gettempdir()) / f"demo_model_check_{zlib.crc32(sources):08x}"  # templates take seconds to make

    def palette(self, background, style):
        if (background, style) not in self.palettes:
            self.palettes[(background, style)] = Palette(background, style)
        return self.palettes[(background, style)]

    def template(self, background, style):
        """Labels of all things on this background, in a few tilts: ([n, SIDE, SIDE], names). Outlines that it would hide look like those in the edge's colour."""
        key = (background, style)
        path = self.cache / f"{background} {style}.npz"
        if key not in self.templates and path.exists():
            self.templates[key] = (numpy.load(path)["tables"], [tuple(n) for n in numpy.load(path)["names"].tolist()])
        if key not in self.templates:
            names, tables = [], []
            empty = {"style": style, "background": background, "seed": 0, "things": []}
            for colour in COLOURS:
                if style == "outline" and edge_of(background, colour):
                    continue
                batch = [dict(empty, things=[{"object": o, "colour": colour, "x": 0.5, "y": 0.5, "half": 0.44, "tilt": t}]) for o in OBJECTS for t in (-0.06, 0.0, 0.06)]
                with_thing, without = (render(b, 112, 112, "cpu").permute(0, 2, 3, 1).numpy() for b in (batch, [empty] * len(batch)))
                for scene, x, y in zip(batch, with_thing, without):
                    labels, thing = self.palette(*key).read(x), widened(numpy.abs(x - y).max(2) > 0.02)
                    parts = pieces(numpy.where(thing, labels, 0))
                    masks = [numpy.any(parts, 0)] + ([parts[0]] if len(parts) > 1 and parts[0].sum() > 0.7 * sum(p.sum() for p in parts) else []) if parts else []  # a stalk may be lost
                    for found in [cut_out(mask, labels) for mask in masks]:
                        names.append((scene["things"][0]["object"], colour))
                        tables.append(scaled(found[1]))
            self.templates[key] = (numpy.array(tables, numpy.int8), names)
            self.cache.mkdir(exist_ok=True)
            temporary = path.with_name(f"{os.getpid()}.npz")
            numpy.savez_compressed(temporary, tables=self.templates[key][0], names=numpy.array(names))
            temporary.rename(path)
        return self.templates[key]

    def body_colour(self, style, behind, pixels, likely):
        """The colour that most of a body's pixels are nearest to. behind: the mean colour of the background there, which shines through watercolour. likely: colours that need fewer."""
        main = numpy.array([PALETTE[c] for c in COLOURS])
        light = main + (1 - main) * 0.45 - 0.18 * (main.mean(1, keepdims=True) > 0.9)
        shades = numpy.concatenate((main, main * 0.85, main * 0.72, light, numpy.array(FIXED)))
        size = len(shades)
        if style == "watercolour":
            shades = numpy.concatenate([a * shades + (1 - a) * behind for a in (0.95, 0.8, 0.65)])
        nearest = ((lab(pixels)[:, None] - lab(shades)[None]) ** 2).sum(-1).argmin(1) % size
        counts = numpy.bincount(nearest[nearest < 4 * len(COLOURS)] % len(COLOURS), minlength=len(COLOURS)) * [1.6 if c in likely else 1.0 for c in COLOURS]
        return list(COLOURS)[int(counts.argmax())]

    def read(self, picture, background, style):
        """[{object, colour, x, y, half, area, score}], largest first. picture: [H, W, 3] in [0, 1]."""
        height, width = picture.shape[:2]
        side = min(height, width)
        tables, names = self.template(background, style)
        labels = self.palette(background, style).read(picture)

        def named(mask):
            found = cut_out(mask, labels)
            if not found:
                return None
            mine = scaled(found[1]).astype(numpy.int8)
            score = ((tables == mine) & (mine > 0)).sum((1, 2)) / ((tables > 0) | (mine > 0)).sum((1, 2))
            best = int(score.argmax())
            return {"mask": mask, "box": found[0], "cut": found[1], "area": int(mask.sum()), "name": names[best], "score": float(score[best])}

        parts = [p for p in map(named, pieces(labels)[:12]) if p]

        def gap(p, q):
            a, b = p["box"], q["box"]
            return max(a[0] - b[2], b[0] - a[2], a[1] - b[3], b[1] - a[3])

        tried = set()
        while True:  # join what is one thing
            gain, chosen, joined = 0.02, None, None
            groups = [(i, j) for i in range(len(parts)) for j in range(i) if gap(parts[i], parts[j]) <= NEAR * side]
            groups += [(i, j, k) for i, j in groups for k in range(j) if min(gap(parts[k], parts[i]), gap(parts[k], parts[j])) <= NEAR * side]
            for i in range(len(parts)):  # and all that hang together
                chain = {i}
                while more := [k for k in range(len(parts)) if k not in chain and min(gap(parts[k], parts[c]) for c in chain) <= NEAR * side]:
                    chain.update(more)
                groups += [tuple(sorted(chain))] if len(chain) > 3 else []
            for group in groups:
                key = tuple(sorted(id(parts[i]["mask"]) for i in group))
                if key in tried:
                    continue
                whole = named(numpy.any([parts[i]["mask"] for i in group], 0))
                apart = sum(parts[i]["score"] * parts[i]["area"] for i in group) / sum(parts[i]["area"] for i in group)
                if whole["score"] > 0.5 and whole["score"] - apart > gain:
                    gain, chosen, joined = whole["score"] - apart, group, whole
                else:
                    tried.add(key)
            if not chosen:
                break
            parts = [p for i, p in enumerate(parts) if i not in chosen] + [joined]
        things = []
        for p in parts:
            (y0, x0, y1, x1), (name, colour) = p["box"], p["name"]
            if style != "outline":
                body = ~widened(widened(~numpy.pad(p["cut"] > 0, 2)))[2:-2, 2:-2]
                around = picture[max(y0 - 4, 0) : y1 + 4, max(x0 - 4, 0) : x1 + 4]
                behind = numpy.concatenate((around[:2].reshape(-1, 3), around[-2:].reshape(-1, 3))).mean(0)
                vote = self.body_colour(style, behind, picture[y0:y1, x0:x1][body], HIDDEN[background] if edge_of(background, colour) else ()) if body.any() else colour
                colour = vote if edge_of(background, colour) or edge_of(background, vote) else colour
            things.append({"object": name, "colour": colour, "x": (x0 + x1) / 2 / width, "y": (y0 + y1) / 2 / height, "half": max(y1 - y0, x1 - x0) / 2 / side, "area": p["area"] / (height * width),
                           "score": p["score"]})
        things.sort(key=lambda t: -t["area"])
        return [t for t in things if t["area"] > 0.06 * things[0]["area"]]


def faults(scene, things):
    """What of the scene's prompt the picture does not show: an empty list when all is right."""
    out, groups = [], scene["groups"]
    number = sum(g["number"] for g in groups)
    if len(things) != number:
        return [f"{len(things)} things"]
    shown = lambda g: (g["object"], edge_of(scene["background"], g["colour"]) or g["colour"]) if scene["style"] == "outline" else (g["object"], g["colour"])
    wanted = sorted(shown(g) for g in groups for _ in range(g["number"]))
    found = sorted((t["object"], t["colour"]) for t in things)
    if wanted != found:
        out += [word for k, word in enumerate(("object", "colour")) if sorted(w[k] for w in wanted) != sorted(f[k] for f in found)] or ["binding"]
        return out
    if scene["kind"] == "relation":
        relation, names = scene["relation"], [shown(g) for g in groups]
        middle = lambda key, k: sum(t[key] for t in things if (t["object"], t["colour"]) == names[k]) / groups[k]["number"]
        if names[0] != names[1]:
            dx, dy = middle("x", 1) - middle("x", 0), middle("y", 1) - middle("y", 0)
            along, across = (dy, dx) if relation in ("above", "below") else (dx, dy)
            along *= {"right of": -1, "below": -1, "beside": 1 if dx > 0 else -1}.get(relation, 1)
            if along < 0.2 or abs(across) > 0.2:
                out.append("relation")
    elif number and scene.get("place"):
        third, place = lambda key: (lambda v: -1 if v < 0.40 else 1 if v > 0.60 else 0)(sum(t[key] for t in things) / number), scene["place"]
        x, y = (-1 if "left" in place else 1 if "right" in place else 0), (-1 if "top" in place else 1 if "bottom" in place else 0)
        if (third("x"), third("y")) != (x, y):
            out.append("place")
    if scene["kind"] == "single":
        low, high = SIZES[groups[0]["size"]]
        if not 0.5 * low < things[0]["half"] < 1.3 * high:
            out.append("size")
    return out


def expected(line):
    """A line of prompts.txt -> (prompt, scene for faults)."""
    text, _, wanted = line.rstrip().rpartition(" | ")
    parts = [p.strip() for p in wanted.split(";")]
    scene = {"kind": "empty", "groups": [], "background": "plain", "style": "flat", "place": None}
    for part in parts[1:]:
        scene["style" if part in STYLES else "background"] = part
    for word in [] if parts[0] == "nothing" else [w.strip() for w in parts[0].split(",")]:
        if word.startswith("at "):
            scene["place"] = word[3:]
        elif word[0].isdigit():
            number, *size, colour, name = word.split(" ")
            assert name in OBJECTS and colour in COLOURS, line
            scene["groups"].append({"object": name, "colour": colour, "number": int(number), "size": size[0] if size else "medium"})
        else:
            scene["relation"] = word
    if scene["groups"]:
        scene["kind"] = "relation" if len(scene["groups"]) == 2 else "count" if scene["groups"][0]["number"] > 1 else "single"
    HIDDEN[scene["background"]]
    return text, scene


def newcomer_prompts():
    """prompts.txt: [(prompt, scene)]"""
    lines = (Path(__file__).parent / "prompts.txt").read_text().splitlines()
    return [expected(line) for line in lines if line and not line.startswith("#")]


# ---- Tables -------------------------------------------------------------------------------------------------------------------------------------

ROWS = {"single": "one thing", "relation": "two things, one left of, right of, above or below the other", "beside": "two things, one beside the other", "numbers": "two groups with numbers", "count": "two to four alike",
        "empty": "no thing", "newcomer": "a newcomer's prompts"}


def row_of(scene):
    """Under which heading of the table a scene counts."""
    if scene["kind"] != "relation":
        return scene["kind"]
    return "numbers" if any(g["number"] > 1 for g in scene["groups"]) else "beside" if scene["relation"] == "beside" else "relation"


def held_out_scenes(count, seed, row, styles=STYLES):
    """Scenes of one row of the table that training never saw."""
    rng, out = random.Random(seed), []
    while len(out) < count:
        scene = sample_scene(rng, "relation" if row in ("beside", "numbers") else row, rng.choice(styles))
        if is_held_out(scene) and row_of(scene) == row:
            out.append(scene)
    return out


def table(results):
    """results: [(row, scene, faults)] -> lines of markdown: share that is right, by row and style."""
    lines = ["| prompts | flat | outline | watercolour | all |", "| --- | --- | --- | --- | --- |"]
    for row, words in ROWS.items():
        cells = []
        for style in (*STYLES, None):
            right = [not f for r, s, f in results if r == row and style in (None, s["style"])]
            cells.append(f"{100 * sum(right) / len(right):.1f} % of {len(right)}" if right else "-")
        if cells[-1] != "-":
            lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return lines


def explain(results):
    """How often each fault occurs."""
    counts = {}
    for _, _, f in results:
        for fault in set(f):
            counts[fault] = counts.get(fault, 0) + 1
    return ", ".join(f"{k} {v}" for k, v in sorted(counts.items(), key=lambda i: -i[1])) or "none"


def self_test(count):
    reader, results, crossed = Reader(), [], []
    for row in ("single", "relation", "beside", "numbers", "count"):
        batch = held_out_scenes(count, 11, row)
        read = [reader.read(render([s], 256, 256, "cpu")[0].permute(1, 2, 0).numpy(), s["background"], s["style"]) for s in batch]
        results += [(row, s, faults(s, r)) for s, r in zip(batch, read)]
        crossed += [(row, s, faults(s, r)) for s, r in zip(batch, read[1:] + read[:1])]
    right = sum(not f for _, _, f in results)
    print("true renders:", *table(results), "faults: " + explain(results), f"all: {100 * right / len(results):.2f} % of {len(results)}", "", "under another picture's prompt:", *table(crossed), sep="\n")
    return results


def judge(folder):
    """Reads the pictures of a folder; prints the table, and each fault on stderr."""
    from PIL import Image

    reader, results = Reader(), []
    for k, entry in enumerate(json.loads((folder / "prompts.json").read_text())):
        path, scene = folder / f"{k:05}.png", entry["scene"]
        if path.exists():
            picture = numpy.asarray(Image.open(path).convert("RGB")) / 255
            fault = faults(scene, reader.read(picture, scene["background"], scene["style"]))
            results.append((entry.get("row") or row_of(scene), scene, fault))
            if fault:
                print(f"{path.name}: {', '.join(fault)}: {entry['text']}", file=sys.stderr)
    print(*table(results), "", "faults: " + explain(results), sep="\n")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", type=int, metavar="N")
    parser.add_argument("--judge", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.self_test:
        self_test(args.self_test)
    if args.judge:
        judge(args.judge)


if __name__ == "__main__":
    main()
