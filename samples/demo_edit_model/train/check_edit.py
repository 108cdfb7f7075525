"""Judges edits: whether what was asked for was done, and whether everything else stayed. Independent of the model.

    python3 check_edit.py --self-test N          judges the painter's own pictures: N pairs of every kind; those before the edit must fail
    python3 check_edit.py --judge PROGRAM FOLDER [--model MODEL] [--count N] [--turbo]       held-out edits through the library's command line

The things in a picture are read by the drawing demo model's checker (samples/demo_model/train/check.py): object, colour, place and size of each piece. Where it does not find a thing, because a string
or a wing vanishes in the night, the painter decides: of its pictures with every other object and every other colour in that place, and with nothing there, the nearest one counts. So it does for
the background and the style of the whole picture.

    asked      the thing that the instruction speaks of is as it says: right object, colour, place; or gone; or the background, or the style, is the new one
    unchanged  every other thing has its object, colour, place and size; there is nothing more; background and style stayed; and where neither thing nor edit is, the picture
               before is rebuilt with a PSNR of 26 dB at least"""

import argparse
import json
import os
import random
import tempfile
import zlib
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F

import edit_command
import edit_world
from edit_pictures import paint
from edit_world import BACKGROUNDS, KINDS, SECOND, edited_ids, instruction, pairs

import check
from world import STYLES, caption

PSNR = 26.0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


# ---- Reading ------------------------------------------------------------------------------------------------------------------------------------

def reader_of(folder=None):
    """The drawing model's reader, whose tables of a background and style take seconds to make: kept in a folder for the next time."""
    reader, sources = check.Reader(), b"".join((Path(check.__file__).parent / name).read_bytes() for name in ("check.py", "pictures.py", "world.py"))
    folder = Path(folder or os.environ.get("DEMO_READER", tempfile.gettempdir())) / f"demo_reader_{zlib.crc32(sources):08x}"
    folder.mkdir(parents=True, exist_ok=True)
    palette, template = reader.palette, reader.template

    def kept(background, style):
        key, path = (background, style), folder / f"{background}-{style}.npz"
        if key in reader.templates and key in reader.palettes:
            return
        if not path.exists():
            palette(*key), template(*key)
            tables, names = reader.templates[key]
            numpy.savez_compressed(path.with_suffix(".new.npz"), palette=reader.palettes[key].table.astype(numpy.int8), tables=tables, names=numpy.array(names))
            path.with_suffix(".new.npz").rename(path)
        stored = numpy.load(path)
        reader.palettes[key] = check.Palette.__new__(check.Palette)
        reader.palettes[key].table = stored["palette"].astype(int)
        reader.templates[key] = stored["tables"], [tuple(n) for n in stored["names"].tolist()]

    reader.palette = lambda *key: (kept(*key), reader.palettes[key])[1] if key not in reader.palettes else reader.palettes[key]
    reader.template = lambda *key: (kept(*key), reader.templates[key])[1]
    read = reader.read
    reader.read = lambda picture, background, style: (kept(background, style), read(picture, background, style))[1]
    reader.keep = kept
    return reader


def painted(scenes, like, height, width, over=None):
    """Pictures of variants of a pair's scene, with its brushes; over: one background for all."""
    variants = [dict(like, before=s, after=s, second=None, background="before") for s in scenes]
    return paint(variants, height, width, DEVICE, 1, None if over is None else over.expand(len(scenes), -1, -1, -1).to(DEVICE))[0].cpu()


def empty_after(pair, height, width):
    """The background that the picture after has, to the pixel, where the edit leaves it alone."""
    bare = {k: pair[k] and dict(pair[k], things=[]) for k in ("before", "after", "second")}
    return paint([dict(pair, **bare)], height, width, DEVICE)[1].cpu()


def near_things(scene, height, width, margin):
    """Where things are, with a margin in units of the shorter side: [h, w]."""
    ys, xs = (torch.arange(height)[:, None] + 0.5), (torch.arange(width)[None] + 0.5)
    side, out = min(height, width), torch.zeros(height, width, dtype=torch.bool)
    for t in scene["things"]:
        reach = (t["half"] * 1.1 + margin) * side
        out |= ((xs - t["x"] * width).abs() < reach) & ((ys - t["y"] * height).abs() < reach)
    return out


def distances(picture, candidates, where, reach=0):
    """How far each candidate is from the picture in this part of it; fine detail does not count, nor does a shift of up to `reach` pixels."""
    weight, candidates, best = F.avg_pool2d(where.float()[None, None], 2), F.avg_pool2d(candidates, 2), None
    for dy in range(-reach, reach + 1, 2):
        for dx in range(-reach, reach + 1, 2):
            moved = F.avg_pool2d(picture.roll((dy, dx), (1, 2))[None], 2)
            error = (((candidates - moved).abs().mean(1, keepdim=True) * weight).sum((1, 2, 3)) / weight.sum().clamp(min=1e-6))
            best = error if best is None else torch.minimum(best, error)
    return best


def background_and_style_of(picture, pair):
    """The nearest ones. The style is None where there is no thing to tell it by."""
    small, scene = F.avg_pool2d(picture[None], 2)[0], pair["after"]
    height, width = small.shape[1:]
    pictures = painted([dict(scene, background=b) for b in BACKGROUNDS] + [dict(scene, things=[]), scene], pair, height, width)
    things = F.max_pool2d((pictures[-1] - pictures[-2]).abs().amax(0, keepdim=True).gt(0.02).float(), 5, 1, 2)[0] > 0
    background = BACKGROUNDS[int(distances(small, pictures[: len(BACKGROUNDS)], ~things).argmin())]
    if not scene["things"]:
        return background, None
    candidates = []
    for style in STYLES:  # lines are thicker in a smaller picture
        styled = dict(pair, after=dict(scene, style=style))
        candidates.append(painted([styled["after"]], pair, *picture.shape[1:], empty_after(styled, *picture.shape[1:])))
    styles = F.avg_pool2d(torch.cat(candidates), 2)
    return background, STYLES[int((distances(small, styles, things) + distances(small, styles, ~things)).argmin())]


def shows(picture, pair, thing):
    """Whether the painter's picture with this thing is nearer than that with any other object or colour in its place, and clearly nearer than that with nothing."""
    height, width, scene = *picture.shape[1:], pair["after"]  # lines are thicker in a smaller picture
    others = [t for t in scene["things"] if t["id"] != thing["id"]]
    variants = [thing] + [dict(thing, object=o) for o in edit_world.OBJECTS if o != thing["object"]]
    variants += [dict(thing, colour=c) for c in edit_world.COLOURS if c != thing["colour"] and c not in edit_world.HIDDEN[scene["background"]]]
    pictures = painted([dict(scene, things=others + [v]) for v in variants] + [dict(scene, things=others)], pair, height, width, empty_after(pair, height, width))
    where = near_things({"things": [thing]}, height, width, 0.02)
    error = distances(F.avg_pool2d(picture[None], 2)[0], F.avg_pool2d(pictures, 2), F.avg_pool2d(where[None].float(), 2)[0], 4)
    return int(error.argmin()) == 0 and float(error[0]) < 0.6 * float(error[-1])


def is_at(found, thing):
    """Whether a piece is where the thing should be, and as large. Boxes of things are not quite centred, and a little smaller than the things' squares."""
    reach = 0.05 + 0.15 * thing["half"]
    return abs(found["x"] - thing["x"]) < reach and abs(found["y"] - thing["y"]) < reach and 0.62 < found["half"] / thing["half"] < 1.35


# ---- Judging ------------------------------------------------------------------------------------------------------------------------------------

def untouched(pair, before, after):
    """Where the picture after must be the picture before: no thing in either, and the painter made both equal."""
    height, width = before.shape[1:]
    return ((before - after).abs().amax(0) < 1.5 / 255) & ~near_things(pair["before"], height, width, 0.03) & ~near_things(pair["after"], height, width, 0.03)


def faults(reader, pair, picture, before, after):
    """(what is wrong with what was asked for, what is wrong with the rest, PSNR or None). Pictures: [3, h, w] in [0, 1]; before, after: the painter's."""
    asked, rest, scene, kind, psnr = [], [], pair["after"], pair["kind"], None
    found = reader.read(picture.permute(1, 2, 0).numpy(), scene["background"], scene["style"])
    edited, used = edited_ids(pair), set()
    if kind in ("background", "borrow background", "style", "borrow style"):
        edited = set()
    for thing in sorted(scene["things"], key=lambda t: -t["half"]):
        into = asked if thing["id"] in edited else rest
        here = [k for k, f in enumerate(found) if k not in used and is_at(f, thing)]
        best = min(here, key=lambda k: (found[k]["x"] - thing["x"]) ** 2 + (found[k]["y"] - thing["y"]) ** 2) if here else None
        wrong = ["missing"] if best is None else [key for key in ("object", "colour") if found[best][key] != thing[key]]
        if wrong and shows(picture, pair, thing):
            wrong = []
            used |= {k for k, f in enumerate(found) if max(abs(f["x"] - thing["x"]), abs(f["y"] - thing["y"])) < thing["half"]}  # its parts
        if best is not None:
            used.add(best)
        into += wrong
    left = [f for k, f in enumerate(found) if k not in used]
    for f in left:
        was_here = any(is_at(f, t) for t in pair["before"]["things"] if t["id"] in edited)
        (asked if was_here else rest).append("left over" if was_here else "extra")
    background, style = background_and_style_of(picture, pair)
    if background != scene["background"]:
        (asked if "background" in kind else rest).append("background")
    if style and style != scene["style"]:
        (asked if "style" in kind else rest).append("style")
    mask = untouched(pair, before, after)
    if "background" not in kind and "style" not in kind and mask.float().mean() > 0.02:
        error = ((picture - before)[:, mask] ** 2).mean().clamp(min=1e-9)
        psnr = float(-10 * torch.log10(error))
        if psnr < PSNR:
            rest.append("untouched pixels")
    return asked, rest, psnr


def table(results):
    """results: [(kind, asked, rest, psnr)] -> lines of markdown."""
    lines = ["| edits | asked for | unchanged | both | untouched pixels |", "| --- | --- | --- | --- | --- |"]
    for kind in [*KINDS, None]:
        rows = [r for r in results if kind in (None, r[0])]
        if not rows:
            continue
        share = lambda test: f"{100 * sum(map(test, rows)) / len(rows):.1f} %"
        decibels = [r[3] for r in rows if r[3] is not None]
        lines.append(f"| {kind or 'all'} ({len(rows)}) | {share(lambda r: not r[1])} | {share(lambda r: not r[2])} | {share(lambda r: not r[1] and not r[2])} | "
                     + (f"{sum(decibels) / len(decibels):.1f} dB |" if decibels else "- |"))
    return lines


def explain(results):
    counts = {}
    for kind, asked, rest, _ in results:
        for fault in set("asked: " + a for a in asked) | set("rest: " + r for r in rest):
            counts[fault] = counts.get(fault, 0) + 1
    return "faults: " + (", ".join(f"{k} {v}" for k, v in sorted(counts.items(), key=lambda i: (-i[1], i[0]))) or "none")


def held_out(count, seed, kinds=KINDS):
    """Pairs that training never saw: the same for everybody."""
    return [p for k, kind in enumerate(kinds) for p in pairs(random.Random(seed * 100 + k), count, kind in SECOND, True, kind)]


def pictures_of(batch, height=256, width=256):
    """The painter's (before, after, second or None) of every pair, each painted alone so that they do not depend on the others."""
    out = []
    for pair in batch:
        before, after, second = paint([pair], height, width, DEVICE)
        out.append((before[0].cpu(), after[0].cpu(), None if second is None else second[0].cpu()))
    return out


def judge_pictures(batch, true, results, reader=None):
    """[(kind, asked, rest, psnr)] of resulting pictures."""
    reader = reader or reader_of()
    return [(p["kind"], *faults(reader, p, (r * 255).round() / 255, before, after)) for p, r, (before, after, _) in zip(batch, results, true)]


def judge_drawings(draw, reader, count, turbo):
    """From text alone: held-out scenes of the drawing model's world, read by its checker."""
    scenes = edit_world.drawing_scenes(random.Random(31), count, True)
    pictures = draw([caption(s, random.Random(0), True) for s in scenes], [], turbo=turbo, seed=17)
    good = [not check.faults(s, reader.read(p.permute(1, 2, 0).numpy(), s["background"], s["style"])) for s, p in zip(scenes, pictures)]
    return f"From text alone: {100 * sum(good) / len(good):.1f} % of {len(good)} held-out scenes of one and two things.", pictures


def judge_sampler(draw, turbo, count, sheet=None, seed=41):
    """draw: edit_train.Sampler. Lines of markdown; a sheet shows the first of every kind: reference(s), what the painter makes of it, what the model made."""
    from train import save_sheet

    reader, results, rows = reader_of(), [], []
    for kind in KINDS:
        batch = held_out(count, seed, [kind])
        true = pictures_of(batch)
        rng = random.Random(seed)
        texts = [instruction(p, rng) for p in batch]
        references = [torch.stack([t[k] for t in true]) for k in ((0, 2) if kind in SECOND else (0,))]
        made = draw(texts, references, turbo=turbo, seed=seed)
        results += judge_pictures(batch, true, made, reader)
        for k in range(2):
            before, after, second = true[k]
            rows += [before, torch.ones_like(before) if second is None else second, after, made[k]]
    line, pictures = judge_drawings(draw, reader, max(8, 2 * count), turbo)
    if sheet:
        save_sheet(torch.stack([*rows, *pictures[:8]]), sheet)
    return [*table(results), "", explain(results), "", line]


# ---- Command line -------------------------------------------------------------------------------------------------------------------------------

def self_test(count):
    batch, reader = held_out(count, 7), reader_of()
    true = pictures_of(batch)
    right = judge_pictures(batch, true, [t[1] for t in true], reader)
    print("the painter's own edits:", *table(right), explain(right), "", sep="\n", flush=True)
    for pair, (kind, asked, rest, _) in zip(batch, right):
        if asked or rest:
            print(f"{kind}: {', '.join(asked + ['| ' + r for r in rest])}: {instruction(pair, random.Random(0), True)}; {pair['after']['background']}, {pair['after']['style']}", flush=True)
    idle = judge_pictures(batch, true, [t[0] for t in true], reader)
    print("nothing done:", *table(idle), explain(idle), "", sep="\n")
    other = judge_pictures(batch, true, [t[1] for t in true[1:] + true[:1]], reader)
    print("another pair's picture:", *table(other), explain(other), sep="\n")
    share = lambda results, k: sum(not r[k] for r in results) / len(results)
    good = share(right, 1) >= 0.99 and share(right, 2) >= 0.99 and share(idle, 1) <= 0.02 and sum(not r[1] and not r[2] for r in other) <= 0.02 * len(other)
    print("good" if good else "not good enough")
    return 0 if good else 1


def judge_program(program, folder, model, count, turbo, more):
    """Held-out edits through the command line, and drawings from text alone."""
    from PIL import Image

    reader, options = reader_of(), edit_command.settings(model, turbo) if turbo or more is None else more
    folder.mkdir(parents=True, exist_ok=True)

    def generate(text, references, seed, out):
        return torch.from_numpy(numpy.asarray(edit_command.generate(program, model, text, seed, out, references, options)) / 255).permute(2, 0, 1).float()

    batch = held_out(count, 43)
    true, made, rng = pictures_of(batch), [], random.Random(43)
    entries = []
    for k, (pair, (before, _, second)) in enumerate(zip(batch, true)):
        text, files = instruction(pair, rng), []
        for i, picture in enumerate([before] if second is None else [before, second]):
            files.append(folder / f"{k:05}.{i}.png")
            Image.fromarray((picture * 255).round().byte().permute(1, 2, 0).numpy()).save(files[-1])
        made.append(generate(text, files, k, folder / f"{k:05}.png"))
        entries.append(text)
    (folder / "instructions.json").write_text(json.dumps(entries, indent=1))
    results = judge_pictures(batch, true, made, reader)
    for k, (kind, asked, rest, _) in enumerate(results):
        if asked or rest:
            print(f"{k:05}.png: {kind}: {', '.join(asked + ['| ' + r for r in rest])}: {entries[k]}")
    draw = lambda texts, references, turbo, seed: [generate(text, references, seed + k, folder / f"text.{k:05}.png") for k, text in enumerate(texts)]
    print(*table(results), "", explain(results), "", judge_drawings(draw, reader, max(8, 2 * count), turbo)[0], sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", type=int, metavar="N")
    parser.add_argument("--judge", type=Path, nargs=2, metavar=("PROGRAM", "FOLDER"))
    parser.add_argument("--model", type=Path, default=Path(__file__).resolve().parent.parent, help="the checkpoint")
    parser.add_argument("--count", type=int, default=20, help="edits of each kind")
    parser.add_argument("--turbo", action="store_true", help="with the Turbo adapter, in 4 steps")
    parser.add_argument("--options", nargs=argparse.REMAINDER, help="of the command line without the adapter, in place of the card's")
    args = parser.parse_args()
    if args.judge:
        judge_program(*args.judge, args.model, args.count, args.turbo, args.options)
    if args.self_test:
        raise SystemExit(self_test(args.self_test))


if __name__ == "__main__":
    main()
