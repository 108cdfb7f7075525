"""What the demo model's control net learns from: scenes whose things lie anywhere, and drawings of their outlines, as a person makes them.

    free_scene(rng) -> scene          a scene of world.py whose words say nothing of places and sizes
    drawings(scenes, h, w, device)    [n, h, w] in [0, 1]: white lines on black, the things alone, without their background
    boxes(scene) -> [(x, y, half)]    where the drawing has each thing

A drawing's lines are those of pictures.py: nearer parts of a thing hide the lines of parts behind them. rough=True draws as hands do: lines of other widths and greys that wobble and have gaps,
things a little out of place, parts left out, sometimes only the silhouette."""

import random

import torch

from pictures import CREAM, INK, LEAF, SNOW, THINGS, smooth_noise, union
from world import sample_scene

# Half sizes of the things, in units of the shorter side, by the number of things.
HALVES = {1: (0.13, 0.44), 2: (0.11, 0.30), 3: (0.09, 0.23), 4: (0.085, 0.19), 5: (0.08, 0.16)}
GAP = 0.045  # between the squares around two things
DETAILS = (INK, CREAM, LEAF, SNOW, "light", "nose", "centre")  # parts that a hasty hand leaves out
LINE = 1.5  # half the width of a clean line, in pixels of a side of 256


def free_scene(rng, kind=None, style=None):
    """Places and sizes are free and the caption does not say them: things, numbers, colours, background and style are all that it says."""
    scene = sample_scene(rng, kind or rng.choices(["single", "relation", "count"], [0.3, 0.5, 0.2])[0], style)
    things, (low, high) = scene["things"], HALVES[len(scene["things"])]
    spots = []
    while len(spots) < len(things):
        spots, high = [], max(low, 0.97 * high)
        for thing in things:
            for _ in range(30):
                half = rng.uniform(low, high)
                x, y = rng.uniform(half + 0.02, 0.98 - half), rng.uniform(half + 0.02, 0.98 - half)
                if all(max(abs(x - a), abs(y - b)) > half + c + GAP for a, b, c in spots):
                    spots.append((x, y, half))
                    break
    for thing, (x, y, half) in zip(things, spots):
        thing.update(x=x, y=y, half=half)
    for group in scene["groups"]:
        group["size"] = "medium"
    if scene["kind"] == "relation":
        scene["relation"] = "beside"
    else:
        scene["place"] = None
    return scene


def boxes(scene, side=256):
    """Of every thing in a square drawing: the middle of the box around it and half the box's longer side, as check.py gives them for the things that it reads."""
    at = (torch.arange(side) + 0.5) / side
    out = []
    for thing in scene["things"]:
        du, dv, tilt = (at[None] - thing["x"]) / thing["half"], (at[:, None] - thing["y"]) / thing["half"], torch.tensor(thing["tilt"])
        u, v = du * torch.cos(tilt) + dv * torch.sin(tilt), dv * torch.cos(tilt) - du * torch.sin(tilt)
        inside = (union(*(d for d, _ in THINGS[thing["object"]](u, v))) < 0) & (torch.maximum(u.abs(), v.abs()) < 1.1)
        ys, xs = (inside.any(k).nonzero()[:, 0] for k in (1, 0))
        x0, x1, y0, y1 = (n.item() / side for n in (xs[0], xs[-1] + 1, ys[0], ys[-1] + 1))
        out.append(((x0 + x1) / 2, (y0 + y1) / 2, max(x1 - x0, y1 - y0) / 2))
    return out


def _draw(kind, u, v, pixel, half, rough, rng_chance):
    """Lines of things of one kind, [n, h, w]. pixel: one pixel in half sizes, half: half the line's width in half sizes, both [n, 1, 1]. rng_chance(p): [n, 1, 1], True with this chance."""
    near = torch.maximum(u.abs(), v.abs()) - 1.1  # distances are too small beyond sharp corners
    layers = [(torch.maximum(d, near), shade) for d, shade in THINGS[kind](u, v)]
    line = torch.zeros_like(u)
    silhouette = rng_chance(0.08) if rough else None
    for distance, shade in layers:
        fill = (0.5 - (distance + half) / pixel).clamp(0, 1)
        stroke = (0.5 - (distance.abs() - half) / pixel).clamp(0, 1)
        if rough and shade in DETAILS and kind != "boat":
            kept = ~rng_chance(0.18)
            fill, stroke = fill * kept, stroke * kept
        line = torch.maximum(line * (1 - fill), stroke)
    if rough:
        edge = (0.5 - (union(*(d for d, _ in layers)).abs() - half) / pixel).clamp(0, 1)
        line = torch.where(silhouette, edge, line)
    return line


@torch.no_grad()
def drawings(scenes, height, width, device="cpu", rough=False, seed=0, whole=1.0):
    """whole: the chance that a thing of several is drawn at all. The other random numbers are the seed's."""
    n, side = len(scenes), min(height, width)
    generator = torch.Generator(device=device).manual_seed(seed)
    rand = lambda count: torch.rand(count, 1, 1, generator=generator, device=device)
    spread = lambda count, low, high: low + (high - low) * rand(count)
    picture = torch.zeros(n, height, width, device=device)
    scale = side / 256
    line = spread(n, 0.6, 2.6) * scale if rough else torch.full((n, 1, 1), LINE * scale, device=device)
    ys, xs = torch.arange(height, device=device)[None, :, None] + 0.5, torch.arange(width, device=device)[None, None, :] + 0.5
    for slot in range(max((len(s["things"]) for s in scenes), default=0)):
        for kind in sorted({s["things"][slot]["object"] for s in scenes if len(s["things"]) > slot}):
            index = [i for i, s in enumerate(scenes) if len(s["things"]) > slot and s["things"][slot]["object"] == kind]
            things, count = [scenes[i]["things"][slot] for i in index], len(index)
            column = lambda key: torch.tensor([t[key] for t in things], device=device, dtype=torch.float32)[:, None, None]
            half, x, y, tilt, at = column("half") * side, column("x") * width, column("y") * height, column("tilt"), torch.tensor(index, device=device)
            if rough:
                half, tilt = half * spread(count, 0.95, 1.05), tilt + spread(count, -0.06, 0.06)
                x, y = x + spread(count, -2.0, 2.0) * scale, y + spread(count, -2.0, 2.0) * scale
            du, dv = (xs - x) / half, (ys - y) / half
            u, v = du * torch.cos(tilt) + dv * torch.sin(tilt), dv * torch.cos(tilt) - du * torch.sin(tilt)
            if rough:
                amount = spread(count, 0.0, 0.06)
                u, v = (a + amount * smooth_noise(generator, count, 12, height, width, device) for a in (u, v))
            strokes = _draw(kind, u, v, 1 / half, line[at] / half, rough, lambda p: rand(count) < p)
            if rough:
                gaps = smooth_noise(generator, count, 20, height, width, device)
                strokes = strokes * torch.where(rand(count) < 0.4, ((gaps + 0.62) * 12).clamp(0, 1), 1.0)
                several = torch.tensor([len(scenes[i]["things"]) > 1 for i in index], device=device)[:, None, None]
                strokes = strokes * (~several | (rand(count) < whole))
            picture[at] = torch.maximum(picture[at], strokes)
    if rough:
        soft = torch.nn.functional.avg_pool2d(picture[:, None], 3, 1, 1)[:, 0]
        picture = torch.where(rand(n) < 0.3, soft, picture) * spread(n, 0.7, 1.0)
    return picture.clamp(0, 1)


if __name__ == "__main__":  # a sheet to look at: scenes, their clean drawings, rough ones
    import sys

    from PIL import Image

    from pictures import render

    rng = random.Random(5)
    batch = [free_scene(rng) for _ in range(12)]
    rows = [torch.cat([render([s], 192, 192, "cpu") for s in batch])] + [drawings(batch, 192, 192, rough=r, seed=3)[:, None].expand(-1, 3, -1, -1) for r in (False, True, True)]
    rows = [torch.cat(list(r), -1) for r in rows]
    Image.fromarray((torch.cat(rows, -2).permute(1, 2, 0) * 255).round().byte().numpy()).save(sys.argv[1])
