"""Paints scenes of world.py, many at a time, on the GPU: signed distance functions, composited with one pixel of antialiasing.

    render(scenes, height, width, device) -> float tensor [n, 3, height, width] in [0, 1]

Every thing is a list of (distance, colour) layers in its own coordinates: u to the right, v down, the thing within [-1, 1]. Three styles treat the layers differently:
flat fills them, outline draws their edges like a colouring book (nearer layers hide the lines behind them), watercolour fills them with a wobbling edge, uneven pigment and a darker rim."""

import math

import torch

from world import COLOURS, edge_of

PALETTE = {name: tuple(c / 255 for c in rgb) for name, rgb in COLOURS.items()}


# ---- Distances --------------------------------------------------------------------------------------------------------------------------------

def circle(u, v, x, y, r):
    return torch.sqrt((u - x) ** 2 + (v - y) ** 2 + 1e-9) - r


def box(u, v, x, y, w, h):
    a, b = (u - x).abs() - w, (v - y).abs() - h
    return torch.sqrt(a.clamp(min=0) ** 2 + b.clamp(min=0) ** 2 + 1e-9) + torch.maximum(a, b).clamp(max=0)


def ellipse(u, v, x, y, a, b):
    k = torch.sqrt(((u - x) / a) ** 2 + ((v - y) / b) ** 2 + 1e-9)
    return (k - 1) * min(a, b)


def polygon(u, v, points):
    """Convex, any winding: the largest distance to its edges."""
    cx, cy = sum(p[0] for p in points) / len(points), sum(p[1] for p in points) / len(points)
    distance = None
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]):
        nx, ny = by - ay, ax - bx
        length = math.hypot(nx, ny)
        nx, ny = nx / length, ny / length
        if (cx - ax) * nx + (cy - ay) * ny > 0:
            nx, ny = -nx, -ny
        edge = (u - ax) * nx + (v - ay) * ny
        distance = edge if distance is None else torch.maximum(distance, edge)
    return distance


def segment(u, v, ax, ay, bx, by, r):
    px, py, dx, dy = u - ax, v - ay, bx - ax, by - ay
    t = ((px * dx + py * dy) / (dx * dx + dy * dy)).clamp(0, 1)
    return torch.sqrt((px - t * dx) ** 2 + (py - t * dy) ** 2 + 1e-9) - r


def star(u, v, points, outer, inner):
    angle = torch.atan2(u, -v)
    sector = 2 * math.pi / points
    a = torch.remainder(angle + sector / 2, sector) - sector / 2
    r = torch.sqrt(u * u + v * v + 1e-9)
    x, y = r * torch.sin(a.abs()), r * torch.cos(a)
    ax, ay = 0.0, outer
    bx, by = inner * math.sin(sector / 2), inner * math.cos(sector / 2)
    nx, ny = by - ay, ax - bx
    length = math.hypot(nx, ny)
    return -((x - ax) * nx + (y - ay) * ny) / length


def union(*distances):
    out = distances[0]
    for d in distances[1:]:
        out = torch.minimum(out, d)
    return out


def cut(a, b):
    return torch.maximum(a, -b)


# ---- Things: (distance, colour) from back to front. "main" is the colour of the caption, "dark" and "light" its shades --------------------------

WOOD, LEAF, CREAM, INK, GOLD, SNOW = (0.45, 0.30, 0.18), (0.25, 0.58, 0.30), (0.95, 0.90, 0.76), (0.16, 0.16, 0.20), (0.98, 0.80, 0.25), (0.97, 0.98, 1.0)
PALE = (CREAM, SNOW, "light")  # as lines they would vanish on paper: there they have the main colour


def t_circle(u, v):
    return [(circle(u, v, 0, 0, 0.95), "main")]


def t_square(u, v):
    return [(box(u, v, 0, 0, 0.78, 0.78) - 0.05, "main")]


def t_triangle(u, v):
    return [(polygon(u, v, [(0, -0.95), (0.98, 0.8), (-0.98, 0.8)]), "main")]


def t_star(u, v):
    return [(star(u, v + 0.05, 5, 1.0, 0.42), "main")]


def t_heart(u, v):
    x, y = u.abs(), -(v - 0.12)
    lobe = circle(x, y, 0.46, 0.42, 0.5)
    body = polygon(x, y, [(-0.5, 0.62), (0.10, 0.62), (0.85, 0.10), (0.0, -0.95), (-0.5, -0.4)])
    return [(union(lobe, body), "main")]


def t_sun(u, v):
    return [(star(u, v, 12, 1.0, 0.70), "main"), (circle(u, v, 0, 0, 0.62), "light")]


def t_moon(u, v):
    return [(cut(circle(u, v, -0.05, 0, 0.92), circle(u, v, 0.42, -0.18, 0.78)), "main")]


def t_house(u, v):
    return [(box(u, v, 0.52, -0.62, 0.12, 0.28), "dark"), (box(u, v, 0, 0.38, 0.72, 0.55), "main"), (polygon(u, v, [(0, -0.98), (0.95, -0.12), (-0.95, -0.12)]), "dark"),
            (box(u, v, 0.0, 0.62, 0.16, 0.31), WOOD), (box(u, v, -0.42, 0.28, 0.15, 0.15), CREAM), (box(u, v, 0.42, 0.28, 0.15, 0.15), CREAM)]


def t_tree(u, v):
    crown = union(circle(u, v, 0, -0.42, 0.52), circle(u, v, -0.42, -0.08, 0.42), circle(u, v, 0.42, -0.08, 0.42), circle(u, v, 0, 0.05, 0.42))
    return [(box(u, v, 0, 0.65, 0.13, 0.34), WOOD), (crown, "main")]


def t_boat(u, v):
    hull = polygon(u, v, [(-0.98, 0.38), (0.98, 0.38), (0.62, 0.92), (-0.62, 0.92)])
    return [(box(u, v, 0, -0.26, 0.06, 0.70), WOOD), (polygon(u, v, [(0.045, -0.92), (0.045, 0.26), (0.80, 0.26)]), CREAM),
            (polygon(u, v, [(-0.045, -0.76), (-0.045, 0.26), (-0.66, 0.26)]), CREAM), (hull, "main")]


def t_flower(u, v):
    petals = [circle(u, v, 0.36 * math.sin(k * math.pi / 3), -0.36 - 0.36 * math.cos(k * math.pi / 3), 0.27) for k in range(6)]
    return [(segment(u, v, 0, -0.3, 0, 0.95, 0.05), LEAF), (ellipse(u, v, 0.26, 0.56, 0.26, 0.11), LEAF), (union(*petals), "main"), (circle(u, v, 0, -0.36, 0.22), "centre")]


def t_cat(u, v):
    x = u.abs()
    ears = polygon(x, v, [(0.30, -0.62), (0.82, -0.98), (0.84, -0.20)])
    return [(ears, "main"), (circle(u, v * 1.08, 0, 0.14, 0.84), "main"), (polygon(x, v, [(0.45, -0.62), (0.72, -0.80), (0.74, -0.42)]), "light"),
            (ellipse(x, v, 0.33, 0.0, 0.13, 0.17), CREAM), (ellipse(x, v, 0.33, 0.02, 0.07, 0.13), INK), (polygon(u, v, [(-0.10, 0.28), (0.10, 0.28), (0, 0.40)]), "nose"),
            (segment(x, v, 0.22, 0.46, 0.66, 0.40, 0.018), INK), (segment(x, v, 0.22, 0.56, 0.62, 0.60, 0.018), INK)]


def t_fish(u, v):
    tail = polygon(u, v, [(0.45, 0.0), (0.98, -0.52), (0.98, 0.52)])
    return [(tail, "dark"), (ellipse(u, v, -0.15, 0, 0.80, 0.50), "main"), (circle(u, v, -0.55, -0.12, 0.11), CREAM), (circle(u, v, -0.57, -0.12, 0.055), INK)]


def t_balloon(u, v):
    return [(segment(u, v, 0, 0.5, 0.0, 0.98, 0.02), INK), (union(ellipse(u, v, 0, -0.25, 0.60, 0.72), polygon(u, v, [(0, 0.40), (0.12, 0.60), (-0.12, 0.60)])), "main"),
            (ellipse(u, v, -0.22, -0.52, 0.12, 0.17), "light")]


def t_mountain(u, v):
    peak = polygon(u, v, [(-0.22, -0.88), (0.58, 0.78), (-1.0, 0.78)])
    snow = torch.maximum(peak, v + 0.38 + 0.10 * torch.sin(u * 14))
    return [(polygon(u, v, [(0.46, -0.30), (1.0, 0.78), (-0.08, 0.78)]), "dark"), (peak, "main"), (snow, SNOW)]


def t_butterfly(u, v):
    x = u.abs()
    return [(ellipse(x, v, 0.46, -0.35, 0.48, 0.44), "main"), (ellipse(x, v, 0.38, 0.42, 0.36, 0.38), "dark"), (circle(x, v, 0.50, -0.35, 0.17), "light"),
            (ellipse(u, v, 0, 0.05, 0.10, 0.62), INK), (segment(x, v, 0.03, -0.5, 0.26, -0.92, 0.025), INK)]


THINGS = {name[2:]: function for name, function in list(globals().items()) if name.startswith("t_")}


def _shade(main, name):
    """main [n, 3] -> a fixed colour or a shade of it, [n, 3]."""
    if isinstance(name, tuple):
        return torch.tensor(name, device=main.device).expand_as(main)
    if name == "main":
        return main
    if name == "dark":
        return main * 0.72
    luma = main.mean(1, keepdim=True)
    if name == "light":
        return main + (1 - main) * 0.45 - (luma > 0.9).float() * 0.18  # white things get a grey highlight
    if name == "centre":
        yellowish = ((main[:, 0] > 0.85) & (main[:, 1] > 0.6) & (main[:, 2] < 0.5)).float()[:, None]
        return yellowish * torch.tensor(WOOD, device=main.device) + (1 - yellowish) * torch.tensor(GOLD, device=main.device)
    return torch.tensor((0.90, 0.50, 0.55), device=main.device).expand_as(main)  # nose


# ---- Noise and backgrounds ------------------------------------------------------------------------------------------------------------------------

def smooth_noise(generator, n, cells, height, width, device):
    grid = torch.rand(n, 1, cells, cells, generator=generator, device=device) * 2 - 1
    return torch.nn.functional.interpolate(grid, (height, width), mode="bicubic", align_corners=True)[:, 0]


def _gradient(n, height, width, top, bottom, device):
    t = torch.linspace(0, 1, height, device=device)[None, None, :, None]
    a, b = (torch.tensor(c, device=device)[None, :, None, None] for c in (top, bottom))
    return (a + (b - a) * t).expand(n, 3, height, width)


def _over(picture, alpha, colour):
    return picture * (1 - alpha[:, None]) + alpha[:, None] * colour


def _colour(rgb, device):
    return torch.tensor(rgb, device=device)[None, :, None, None]


def _sea(picture, water, foam, strength, x, y, step, rand):
    """Water below a horizon, with four lines of waves."""
    n, height, width = y.shape
    shore = 0.60 + 0.02 * rand()
    picture = _over(picture, step(shore - y), _gradient(n, height, width, *water, picture.device))
    for k in range(4):
        line = (y - (shore + 0.07 + 0.09 * k) - 0.008 * torch.sin(x * 26 + 6.28 * rand())).abs() - 0.004
        picture = _over(picture, step(line) * strength, _colour(foam, picture.device))
    return picture


def paint_background(kind, n, height, width, generator, device):
    y = torch.linspace(0, 1, height, device=device)[None, :, None].expand(n, height, width)
    x = torch.linspace(0, 1, width, device=device)[None, None, :].expand(n, height, width) * (width / height)
    px = 1.5 / height
    step = lambda d: (0.5 - d / px).clamp(0, 1)
    rand = lambda: torch.rand(n, 1, 1, generator=generator, device=device)
    if kind == "plain":
        return _gradient(n, height, width, (0.985, 0.98, 0.965), (0.965, 0.96, 0.945), device)
    sea, grass = kind.endswith("sea"), kind.endswith("grass")
    if kind.startswith("night"):
        picture = _gradient(n, height, width, (0.05, 0.07, 0.18), (0.13, 0.16, 0.34), device)
        for _ in range(14):
            cx, cy, r = rand() * (width / height), rand(), 0.004 + 0.006 * rand()
            picture = _over(picture, step(torch.sqrt((x - cx) ** 2 + (y - cy) ** 2 + 1e-9) - r) * 0.9, _colour((0.98, 0.96, 0.85), device))
        if sea:
            return _sea(picture, ((0.07, 0.16, 0.34), (0.04, 0.09, 0.22)), (0.30, 0.44, 0.66), 0.35, x, y, step, rand)
        hill = (0.70 if grass else 0.84) + 0.05 * torch.sin(x * 2.6 + 6.28 * rand())
        low = ((0.07, 0.20, 0.16), (0.04, 0.13, 0.10)) if grass else ((0.06, 0.09, 0.20), (0.07, 0.13, 0.22))
        return _over(picture, step(hill - y), _gradient(n, height, width, *low, device))
    if kind.startswith("sunset"):
        picture = _gradient(n, height, width, (0.36, 0.27, 0.50), (1.0, 0.72, 0.45), device)
        cx = (0.2 + 0.6 * rand()) * (width / height)
        glow = torch.exp(-(((x - cx) / 0.5) ** 2 + ((y - (0.62 if sea or grass else 0.80)) / 0.28) ** 2))
        picture = _over(picture, 0.55 * glow, _colour((1.0, 0.86, 0.55), device))
        if sea:
            return _sea(picture, ((0.42, 0.36, 0.58), (0.22, 0.22, 0.42)), (1.0, 0.76, 0.56), 0.45, x, y, step, rand)
        hills = ((0.68, (0.36, 0.42, 0.24)), (0.82, (0.26, 0.33, 0.18))) if grass else ((0.78, (0.55, 0.34, 0.47)), (0.88, (0.37, 0.24, 0.40)))
        for level, colour in hills:
            hill = level + 0.035 * torch.sin(x * 4.2 + 6.28 * rand())
            picture = _over(picture, step(hill - y), _colour(colour, device))
        return picture
    picture = _gradient(n, height, width, (0.45, 0.70, 0.94), (0.80, 0.91, 0.98), device)
    if kind == "sky":
        for _ in range(2):
            cx, cy, s = rand() * (width / height), 0.08 + 0.84 * rand(), 0.05 + 0.04 * rand()
            cloud = torch.minimum(torch.sqrt(((x - cx) / 2.2) ** 2 + (y - cy) ** 2 + 1e-9) - s, torch.sqrt((x - cx - 0.4 * s) ** 2 + (y - cy + 0.7 * s) ** 2 + 1e-9) - s)
            picture = _over(picture, step(cloud) * 0.55, _colour((1.0, 1.0, 1.0), device))
    elif kind == "sea":
        picture = _sea(picture, ((0.20, 0.48, 0.72), (0.08, 0.30, 0.55)), (0.75, 0.90, 0.97), 0.5, x, y, step, rand)
    elif kind == "grass":
        hill = 0.66 + 0.03 * torch.sin(x * 3 + 6.28 * rand())
        picture = _over(picture, step(hill - y), _gradient(n, height, width, (0.55, 0.78, 0.38), (0.36, 0.62, 0.28), device))
        for k in range(10):  # daisies
            cx, cy = rand() * (width / height), 0.74 + 0.24 * rand()
            petals = torch.sqrt((x - cx) ** 2 + (y - cy) ** 2 + 1e-9) - 0.011
            picture = _over(picture, step(petals), _colour((0.98, 0.97, 0.90) if k % 2 else (0.99, 0.86, 0.40), device))
    return picture


# ---- Scenes ---------------------------------------------------------------------------------------------------------------------------------------

LINE, LINE_PIXELS = 0.062, 2.2  # half the stroke of outlines in half sizes, and at least so much in pixels: the model breaks thinner ones, a latent being 8 pixels wide


def _paint_layer(picture, behind, distance, colour, style, pixel, wobble, pigment, v):
    """distance in units of the thing's half size; pixel: one pixel in the same units, [n, 1, 1]; behind: the picture without the thing."""
    fill = (0.5 - distance / (1.4 * pixel)).clamp(0, 1)
    half = (LINE_PIXELS * pixel).clamp(min=LINE)
    line = (0.5 - ((distance + 0.4 * half).abs() - half) / (1.4 * pixel)).clamp(0, 1)  # more of it inside, so that slender things stay slender
    picture = torch.lerp(picture, behind, torch.where(style == 1, fill, 0.0)[:, None])
    wet = distance + wobble
    wash = (0.5 - wet / (2.2 * pixel)).clamp(0, 1)
    rim = torch.exp(-((wet + 0.05) / 0.05) ** 2)
    alpha = torch.where(style == 0, fill, torch.where(style == 1, line, wash * (0.80 + 0.18 * pigment).clamp(0, 1)))
    light = torch.where(style == 0, 1.02 - 0.09 * v.clamp(-1, 1), torch.where(style == 1, 1.0, 1 - 0.16 * rim))  # flat things are a little darker below
    return picture * (1 - alpha[:, None]) + alpha[:, None] * colour[:, :, None, None] * light[:, None]


def _paint_shadow(picture, distance, style, u, v):
    distance = torch.maximum(distance, torch.maximum(u.abs(), v.abs()) - 1)  # distances are too small beyond sharp corners
    alpha = torch.where(style == 0, 0.22 * torch.sigmoid(-distance / 0.045), 0.0)
    return picture * (1 - alpha[:, None] * torch.tensor([0.9, 0.85, 0.7], device=picture.device)[None, :, None, None])


EDGE, EDGE_PIXELS = 0.075, 3.2  # width of the edge around a thing that its background would hide, in half sizes and at least in pixels
EDGES = {"black": (0.16, 0.16, 0.20), "white": (0.96, 0.97, 0.98)}


def _paint_edge(picture, distance, colour, strength, pixel, u, v):
    """A rim of one colour under the thing's boundary: not under all of it, since watercolour is translucent. strength [n, 1, 1]: 0 for things that need none."""
    width = (EDGE_PIXELS * pixel).clamp(min=EDGE)
    outer = torch.maximum(distance, torch.maximum(u.abs(), v.abs()) - 1.08) - width
    alpha = (0.5 - outer / (1.4 * pixel)).clamp(0, 1) * (0.5 + (distance + 0.06) / (1.4 * pixel)).clamp(0, 1) * strength
    return picture * (1 - alpha[:, None]) + alpha[:, None] * colour[:, :, None, None]


def paint_things(behind, kind, things, scenes, styles, u, v, half, wobble, pigment):
    """Things of one kind, each over a picture of its own: its shadow, its edge, its layers.

    behind [n, 3, h, w]; things and their scenes: lists of n; styles [n, 1, 1]: the scenes' as numbers; u, v [n, h, w]: coordinates of the pixels in half sizes; half [n, 1, 1]: half sizes in pixels."""
    part, device = behind, behind.device
    edges = [edge_of(s["background"], t["colour"]) for s, t in zip(scenes, things)]
    lines = [s["style"] == "outline" for s in scenes]
    main = torch.tensor([EDGES[e] if e and line else PALETTE[t["colour"]] for t, e, line in zip(things, edges, lines)], device=device)
    dark = torch.tensor([s["background"].startswith("night") for s in scenes], device=device)[:, None]  # ink would vanish there
    if any(s["style"] == "flat" for s in scenes):
        su, sv = u - 0.05, v - 0.09
        part = _paint_shadow(part, union(*(distance for distance, _ in THINGS[kind](su, sv))), styles, su, sv)
    if any(e and not line for e, line in zip(edges, lines)):
        strength = torch.tensor([0.0 if not e or line else 1.0 if s["style"] == "flat" else 0.9 for s, e, line in zip(scenes, edges, lines)], device=device)[:, None, None]
        edge_colour = torch.tensor([EDGES[e or "black"] for e in edges], device=device)
        part = _paint_edge(part, union(*(distance for distance, _ in THINGS[kind](u, v))), edge_colour, strength, 1 / half, u, v)
    for distance, shade in THINGS[kind](u, v):
        colour = torch.where((styles == 1)[:, 0] & ((shade == INK) & dark if shade not in PALE else True), main, _shade(main, shade))
        part = _paint_layer(part, behind, distance, colour, styles, 1 / half, wobble, pigment, v)
    return part


@torch.no_grad()
def render(scenes, height, width, device="cuda"):
    n = len(scenes)
    generator = torch.Generator(device=device).manual_seed(scenes[0]["seed"])
    picture = torch.empty(n, 3, height, width, device=device)
    backgrounds = [s["background"] for s in scenes]
    for kind in sorted(set(backgrounds)):
        index = torch.tensor([i for i, b in enumerate(backgrounds) if b == kind], device=device)
        picture[index] = paint_background(kind, len(index), height, width, generator, device)
    styles = torch.tensor([["flat", "outline", "watercolour"].index(s["style"]) for s in scenes], device=device)[:, None, None]
    wash = (styles == 2).float()[:, None]
    picture = picture + wash * (1 - picture) * (0.22 + 0.10 * smooth_noise(generator, n, 6, height, width, device)[:, None]) * (0.4 + 0.6 * picture.mean(1, keepdim=True))  # paper shows through
    side = min(height, width)
    ys = torch.arange(height, device=device)[None, :, None] + 0.5
    xs = torch.arange(width, device=device)[None, None, :] + 0.5
    for slot in range(max(len(s["things"]) for s in scenes)):
        for kind in sorted({s["things"][slot]["object"] for s in scenes if len(s["things"]) > slot}):
            index = [i for i, s in enumerate(scenes) if len(s["things"]) > slot and s["things"][slot]["object"] == kind]
            things = [scenes[i]["things"][slot] for i in index]
            column = lambda key: torch.tensor([t[key] for t in things], device=device, dtype=torch.float32)[:, None, None]
            half = column("half") * side
            du, dv, tilt = (xs - column("x") * width) / half, (ys - column("y") * height) / half, column("tilt")
            u, v = du * torch.cos(tilt) + dv * torch.sin(tilt), dv * torch.cos(tilt) - du * torch.sin(tilt)
            at = torch.tensor(index, device=device)
            wobble = smooth_noise(generator, len(index), 9, height, width, device) * 0.035
            pigment = smooth_noise(generator, len(index), 7, height, width, device)
            picture[at] = paint_things(picture[at], kind, things, [scenes[i] for i in index], styles[at], u, v, half, wobble, pigment)
    return picture.clamp(0, 1)
