"""Judges the demo model's control net: 400 layouts that no training saw, read by check.py with control and without.

    python3 control_judge.py PROGRAM FOLDER [--net FILE] [--count 400] [--strength 0.8] [--rough]        PROGRAM: build/release/bin/sumi; pictures and drawings go to FOLDER
    python3 control_judge.py torch FOLDER ...                                                            the same with PyTorch's reference sampler

A layout is a scene of control_pictures.py, which has its things anywhere and in any size. Its combination of things and colours, or of neighbours, is one that was held out of all training (world.is_held_out).
The prompt is the standard caption: things, numbers, colours, background and style, but no word of places or sizes. 256 x 256 pixels, 8 steps, seed = number of the layout.

A picture obeys the drawing when check.py reads as many things in it as the drawing has, and each thing of the drawing is there: one of the same kind whose middle is off by no more than a twentieth of the
picture's side, or a quarter of the thing's half size where that is more, in x and in y, and whose size is between 3/4 and 4/3 of the drawn one. Colours are no matter of the drawing; a second column
says how many of the pictures obey and have the prompt's colours too.
"""

import argparse
import random
import subprocess
from pathlib import Path

import numpy
import torch

import check
from control_pictures import boxes, drawings, free_scene
from pictures import render
from world import BACKGROUNDS, STYLES, caption, edge_of, is_held_out

MODEL = Path(__file__).resolve().parent.parent
SEED = 20261  # of the layouts; combinations that are held out are in no training whatever the seed
OFF, OFF_OF_HALF, SMALLEST, LARGEST = 0.05, 0.25, 3 / 4, 4 / 3
PAINTED = "the painter's own pictures"
READER = []  # of this process


def layouts(count, seed=SEED):
    rng, out = random.Random(seed), []
    while len(out) < count:
        scene = free_scene(rng)
        if is_held_out(scene):
            out.append(scene)
    return out


def text_of(scene):
    return caption(scene, random.Random(0), True)


def misses(scene, things):
    """What keeps a picture from obeying the drawing: an empty list when it does. things: as check.py's Reader reads them."""
    out, free = [], list(things)
    if len(things) != len(scene["things"]):
        out.append("number")
    for drawn, (x, y, half) in zip(scene["things"], boxes(scene)):
        reach = max(OFF, OFF_OF_HALF * half)
        near = [t for t in free if abs(t["x"] - x) <= reach and abs(t["y"] - y) <= reach]
        sized = [t for t in near if SMALLEST <= t["half"] / half <= LARGEST]
        right = [t for t in sized if t["object"] == drawn["object"]]
        if right:
            free = [t for t in free if t is not right[0]]
        else:
            out.append("kind" if sized else "size" if near else "place")
    return out


def has_colours(scene, things):
    """Whether things and colours are those of the prompt, wherever they are."""
    shown = lambda t: (t["object"], scene["style"] == "outline" and edge_of(scene["background"], t["colour"]) or t["colour"])
    return sorted(map(shown, scene["things"])) == sorted((t["object"], t["colour"]) for t in things)


def judge_one(task):
    """For worker processes: picture [H, W, 3] uint8 and scene -> (misses, whether the colours are right)."""
    torch.set_num_threads(1)
    if not READER:
        READER.append(check.Reader())
    picture, scene = task
    things = READER[0].read(picture.astype(numpy.float32) / 255, scene["background"], scene["style"])
    return misses(scene, things), has_colours(scene, things)


def drawing_of(task):
    """For worker processes: (number of the layout, scene, rough) -> [1, 256, 256]."""
    torch.set_num_threads(1)
    k, scene, rough = task
    return drawings([scene], 256, 256, rough=rough, seed=SEED + k).numpy()


def painted(scene):
    """The painter's own picture of a layout, which shows how much of the misses is the checker's."""
    torch.set_num_threads(1)
    return pictures_of(render([scene], 256, 256, "cpu"))[0]


def _prepare_one(key):
    torch.set_num_threads(1)
    if not READER:
        READER.append(check.Reader())
    READER[0].template(*key)


def prepare(workers):
    """Makes the checker's templates in the workers, without waiting."""
    workers.map_async(_prepare_one, [(b, s) for b in BACKGROUNDS for s in STYLES], chunksize=1)


def table(scenes, runs):
    """runs: {words: [(misses, colours are right)]} -> lines of markdown."""
    percent = lambda chosen: f"{100 * sum(chosen) / len(chosen):.1f} % of {len(chosen)}" if chosen else "-"
    kinds = {"one thing": lambda s: len(s["things"]) == 1, "two": lambda s: len(s["things"]) == 2, "three to five": lambda s: len(s["things"]) > 2, **{style: lambda s, k=style: s["style"] == k for style in STYLES}}
    lines = ["| | obeyed | and in the prompt's colours | " + " | ".join(kinds) + " |", "| --- |" + " --- |" * (2 + len(kinds))]
    for words, results in runs.items():
        cells = [percent([not m for m, _ in results]), percent([not m and c for m, c in results])]
        cells += [percent([not m for (m, _), s in zip(results, scenes) if is_of(s)]) for is_of in kinds.values()]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    for words, results in runs.items():
        counts = {}
        for m, _ in results:
            for word in set(m):
                counts[word] = counts.get(word, 0) + 1
        lines.append(f"{words}: pictures that miss in " + (", ".join(f"{w} {n}" for w, n in sorted(counts.items(), key=lambda i: -i[1])) or "nothing"))
    return lines


def pictures_of(x):
    return (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()


def sheet(rows, path, side=128, columns=20):
    """rows: lists of pictures [H, W, 3] uint8, one below the other, in blocks of so many columns."""
    from PIL import Image

    blocks = -(-len(rows[0]) // columns)
    out = Image.new("RGB", (columns * side, blocks * (len(rows) * side + 6)), "white")
    for k in range(len(rows[0])):
        for r, row in enumerate(rows):
            out.paste(Image.fromarray(row[k]).resize((side, side), Image.LANCZOS), (k % columns * side, k // columns * (len(rows) * side + 6) + r * side))
    out.save(path, quality=85)


def three(drawn):
    return drawn[:, None].expand(-1, 3, -1, -1)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------------------------------

@torch.no_grad()
def judge_torch(args, net, runs=(("without control", 0, False), ("at strength 0.8", 0.8, False), ("drawn roughly, at strength 0.8", 0.8, True), ("at strength 1", 1.0, False), ("at strength 0.5", 0.5, False))):
    """args: transformer, encoder, vae, tokenizer, workers, judge (file for the tables), judge_count. The net is judged as it is exported, in bfloat16."""
    import nets
    import train

    scenes = layouts(args.judge_count)
    for p in net.parameters():
        p.copy_(p.to(torch.bfloat16).float())
    noise = torch.stack([torch.randn(16, 32, 32, generator=torch.Generator().manual_seed(k)) for k in range(len(scenes))])
    drawn = {rough: torch.from_numpy(numpy.concatenate(args.workers.map(drawing_of, [(k, s, rough) for k, s in enumerate(scenes)]))) for rough in sorted({r for _, _, r in runs})}
    shown, rows = [], [list(pictures_of(three(drawn[r]))) for r in drawn]
    for words, strength, rough in runs:
        latents = torch.cat([(args.vae.encode(part.to(train.DEVICE) * 2 - 1)[0] - train.SHIFT) * train.SCALE for part in three(drawn[rough]).split(32)])
        planes = torch.cat((latents, torch.zeros(len(scenes), 17, 32, 32, device=train.DEVICE)), 1)
        with train.half_precision():
            parts = [train.generate(args.transformer, args.encoder, args.vae, args.tokenizer, [text_of(s) for s in scenes[at : at + 200]], noise=noise[at : at + 200],
                                    control=(lambda index, at=at, strength=strength: nets.Control(net, planes[at : at + 200][index], strength)) if strength else None) for at in range(0, len(scenes), 200)]
        shown += list(pictures_of(torch.cat(parts)))
        rows.append(shown[-len(scenes) :])
    train.log(f"{len(shown)} pictures drawn")
    shown += args.workers.map(painted, scenes)
    tasks = list(zip(shown, scenes * (len(runs) + 1)))
    order = sorted(range(len(tasks)), key=lambda k: (tasks[k][1]["background"], tasks[k][1]["style"]))  # a worker makes few of the checker's palettes
    read = dict(zip(order, args.workers.map(judge_one, [tasks[k] for k in order], chunksize=16)))
    results = {words: [read[r * len(scenes) + k] for k in range(len(scenes))] for r, words in enumerate([words for words, _, _ in runs] + [PAINTED])}
    train.log(f"{len(shown)} pictures read")
    wrong = [k for k, (m, _) in enumerate(results[runs[1][0]]) if m]
    lines = [*table(scenes, results), "", *(f"{k}: {', '.join(results[runs[1][0]][k][0])}: {text_of(scenes[k])}" for k in wrong)]
    args.judge.parent.mkdir(parents=True, exist_ok=True)
    args.judge.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[: len(lines) - len(wrong)]), flush=True)
    rows = rows[: len(drawn) + 3]  # without control, at 0.8, drawn roughly
    sheet([r[:60] for r in rows], args.judge.with_suffix(".jpg"))
    if wrong:
        sheet([[r[k] for k in wrong[:80]] for r in rows], args.judge.with_name(args.judge.stem + "_wrong.jpg"))


# ---- The command line --------------------------------------------------------------------------------------------------------------------------

def judge_program(args):
    """Pictures by the library's command line."""
    from PIL import Image

    scenes, results = layouts(args.count), {"without control": [], f"at strength {args.strength}": []}
    own = [judge_one((painted(scene), scene)) for scene in scenes]
    args.folder.mkdir(parents=True, exist_ok=True)
    for k, scene in enumerate(scenes):
        drawing = args.folder / f"{k:05}_drawing.png"
        Image.fromarray(pictures_of(three(drawings([scene], 256, 256, rough=args.rough, seed=SEED + k)))[0]).save(drawing)
        for words, more in zip(results, ([], ["--control", args.net, "--control-picture", f"{drawing}:{args.strength}"])):
            out = args.folder / f"{k:05}{'' if more else '_without'}.png"
            subprocess.run([args.program, "generate", "--model", args.model, "--prompt", text_of(scene), "--seed", str(k), "--quiet", "-o", out, *more], check=True)
            results[words].append(judge_one((numpy.asarray(Image.open(out).convert("RGB")), scene)))
            if more and results[words][-1][0]:
                print(f"{out.name}: {', '.join(results[words][-1][0])}: {text_of(scene)}", flush=True)
    print(*table(scenes, {**results, PAINTED: own}), sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--net", type=Path, default=MODEL / "control/control_outline.safetensors")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--strength", type=float, default=0.8)
    parser.add_argument("--rough", action="store_true", help="drawn by an unsteady hand")
    args = parser.parse_args()
    if args.program != "torch":
        judge_program(args)
        return
    import multiprocessing
    import os

    from safetensors.torch import load_file

    import control_train
    import nets
    import tokens

    args.workers = multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0)))
    args.transformer, args.encoder, args.vae = control_train.load_model(args.model)
    args.tokenizer, args.judge, args.judge_count = tokens.load(args.model / "tokenizer"), args.folder / "judge.txt", args.count
    net = nets.ControlNet()
    net.load_state_dict({k: w.float() for k, w in load_file(args.net).items()})
    judge_torch(args, net.to(control_train.DEVICE), (("without control", 0, False), (f"at strength {args.strength}", args.strength, args.rough)))


if __name__ == "__main__":
    main()
