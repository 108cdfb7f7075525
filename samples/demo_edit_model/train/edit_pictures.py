"""Paints pairs of edit_world.py on the GPU with the brushes of the drawing demo model (samples/demo_model/train/pictures.py).

    paint(pairs, height, width, device) -> (before, after, second or None), float tensors [n, 3, height, width] in [0, 1]

What an edit leaves alone is the same to the pixel before and after: a background is painted once for all pictures that have it, and a thing keeps the noise of its brush."""

import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo_model" / "train"))

from pictures import paint_background, paint_things
from world import STYLES

LIMITS = (0.15, 0.25)  # of half sizes: things of about one size are painted together
MAX_IDS = 8  # things with noise of their own in a pair: those of picture 1 and after have 0 ... 4, those of picture 2 begin at 4


def _grown(grid, height, width):
    return torch.nn.functional.interpolate(grid, (height, width), mode="bicubic", align_corners=True)[:, 0]


@torch.no_grad()
def paint(pairs, height, width, device, seed=None, over=None):
    """over: [n, 3, height, width], finished backgrounds for the pictures before and after."""
    n, has_second = len(pairs), pairs[0]["second"] is not None
    seed = pairs[0]["before"]["seed"] if seed is None else seed
    generator = torch.Generator(device=device).manual_seed(seed)
    noise = lambda *shape: torch.rand(*shape, generator=generator, device=device) * 2 - 1
    wobbles, pigments = noise(n, MAX_IDS, 9, 9), noise(n, MAX_IDS, 7, 7)
    papers = _grown(noise(n, 1, 6, 6), height, width)

    # the backgrounds, each once: (pair, which) -> row of `painted`
    wanted = [(i, "before", p["before"]["background"]) for i, p in enumerate(pairs)]
    wanted += [(i, "new", p["after"]["background"]) for i, p in enumerate(pairs) if p["background"] == "new"]
    wanted += [(i, "second", p["second"]["background"]) for i, p in enumerate(pairs)] if has_second else []
    row = {(i, which): k for k, (i, which, _) in enumerate(wanted)}
    painted = torch.empty(len(wanted), 3, height, width, device=device)
    for kind in sorted({w[2] for w in wanted}):
        index = torch.tensor([k for k, w in enumerate(wanted) if w[2] == kind], device=device)
        painted[index] = paint_background(kind, len(index), height, width, generator, device)

    pictures = [(i, p["before"], "before", 0) for i, p in enumerate(pairs)] + [(i, p["after"], p["background"], 0) for i, p in enumerate(pairs)]
    pictures += [(i, p["second"], "second", 4) for i, p in enumerate(pairs)] if has_second else []
    picture = painted[torch.tensor([row[(i, which)] for i, _, which, _ in pictures], device=device)]
    of_pair = torch.tensor([i for i, _, _, _ in pictures], device=device)
    styles = torch.tensor([STYLES.index(s["style"]) for _, s, _, _ in pictures], device=device)[:, None, None]
    wash = (styles == 2).float()[:, None]
    picture = picture + wash * (1 - picture) * (0.22 + 0.10 * papers[of_pair][:, None]) * (0.4 + 0.6 * picture.mean(1, keepdim=True))  # paper shows through

    picture = picture if over is None else torch.cat((over, over))
    side = min(height, width)
    groups = {}
    for k, (i, scene, _, first) in enumerate(pictures):
        for t in scene["things"]:
            groups.setdefault((t["object"], sum(t["half"] > limit for limit in LIMITS)), []).append((k, i, t, first))
    for (kind, _), found in sorted(groups.items(), key=lambda g: g[0]):
        values = torch.tensor([(t["x"] * width, t["y"] * height, t["half"] * side, t["tilt"]) for _, _, t, _ in found], device=device, dtype=torch.float32)
        x, y, half, tilt = (values[:, c, None, None] for c in range(4))
        at = torch.tensor([k for k, _, _, _ in found], device=device)
        # only a window around each thing is painted
        window = min(side, math.ceil(2 * (1.15 * max(t["half"] for _, _, t, _ in found) + 0.02) * side))
        rows, columns = ((torch.arange(window, device=device) + (middle - window / 2).round().clamp(0, whole - window).long()) for middle, whole in ((y[:, :, 0], height), (x[:, 0], width)))
        du, dv = (columns[:, None] + 0.5 - x) / half, (rows[:, :, None] + 0.5 - y) / half
        u, v = du * torch.cos(tilt) + dv * torch.sin(tilt), dv * torch.cos(tilt) - du * torch.sin(tilt)
        pair, brush = (torch.tensor(numbers, device=device) for numbers in ([i for _, i, _, _ in found], [(t["id"] + first) % MAX_IDS for _, _, t, first in found]))
        cells = lambda count: max(3, round(count * window / side))
        wobble = _grown(wobbles[pair, brush, : cells(9), : cells(9)][:, None], window, window) * 0.035
        pigment = _grown(pigments[pair, brush, : cells(7), : cells(7)][:, None], window, window)
        where = (at[:, None, None], slice(None), rows[:, :, None], columns[:, None, :])
        things, scenes = [t for _, _, t, _ in found], [pictures[k][1] for k, _, _, _ in found]
        picture[where] = paint_things(picture[where].permute(0, 3, 1, 2), kind, things, scenes, styles[at], u, v, half, wobble, pigment).permute(0, 2, 3, 1)
    parts = picture.clamp(0, 1).split(n)
    return parts[0], parts[1], parts[2] if has_second else None


if __name__ == "__main__":
    import random

    from PIL import Image

    from edit_world import KINDS, SECOND, instruction, pairs

    rng, rows = random.Random(3), []
    for kind in KINDS:
        for pair in pairs(rng, 2, kind in SECOND, False, kind):
            before, after, second = paint([pair], 256, 256, "cpu")
            rows.append(torch.cat((before[0], torch.ones_like(before[0]) if second is None else second[0], after[0]), 2))
            print(len(rows), instruction(pair, rng, True))
    sheet = torch.cat([torch.cat(rows[k : k + 2], 2) for k in range(0, len(rows), 2)], 1)
    Image.fromarray((sheet * 255).round().byte().permute(1, 2, 0).numpy()).resize((sheet.shape[2] // 2, sheet.shape[1] // 2)).save("/tmp/pairs.png")
