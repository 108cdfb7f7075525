"""The world of edits: a scene before and after, a second picture where the instruction speaks of one, and the instruction in varied English.

Things, colours, words and the rule for what training never sees are those of the drawing demo model (samples/demo_model/train/world.py). A pair is a plain dict:

    kind          one of KINDS
    before, after scenes; every thing has an id that stays with it, so that it is painted with the same brush in both
    second        the scene of picture 2, or None
    background    "before", "second" or "new": whose background, to the pixel, the picture after has
    names         what the instruction says: thing, colour, place ... (also what check_edit.py asks about)"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo_model" / "train"))

import world
from world import COLOURS, HIDDEN, NAMES, NATURAL, NUMBER_WORDS, OBJECTS, PLACE_WORDS, PLACES, PLURALS, RELATION_WORDS, STYLES

BACKGROUNDS = ["plain", "sky", "night", "sea", "grass", "sunset"]
KINDS = ["recolour", "remove", "add", "background", "style", "swap", "replace", "put", "borrow background", "borrow style"]
SECOND = {"put", "borrow background", "borrow style"}  # the instruction speaks of picture 2
WEIGHTS = {"recolour": 0.16, "remove": 0.10, "add": 0.22, "background": 0.10, "style": 0.10, "swap": 0.15, "replace": 0.17}
WEIGHTS_SECOND = {"put": 0.64, "borrow background": 0.18, "borrow style": 0.18}

SPOTS = [0.1875, 0.5, 0.8125]  # centres of the 3 x 3 cells, in both directions; 5 tokens apart in pictures of 256 x 256
TOKENS = 16, 16  # rows and columns of such a picture: what moves is moved by whole tokens, so that its latents are the ones that the references have
NEW_HALF = 0.127  # of a new thing in a cell: nothing about it is left to chance, for the words do not say it
CELL_NAMES = {(0, 0): "top left", (0, 1): "top", (0, 2): "top right", (1, 0): "left", (1, 1): "middle", (1, 2): "right", (2, 0): "bottom left", (2, 1): "bottom", (2, 2): "bottom right"}
UNSAID = [(1, 1), (1, 0), (1, 2), (0, 1), (2, 1), (0, 0), (0, 2), (2, 0), (2, 2)]  # something goes to the first free cell if the words do not say where: if it were any, several would be learnt at once
STEPS = {"left of": (0, -1), "right of": (0, 1), "above": (-1, 0), "below": (1, 0)}


# ---- What training never sees -----------------------------------------------------------------------------------------------------------------

def thing_is_held_out(thing):
    return world.is_held_out({"kind": "single", "things": [thing], "groups": [thing]})


def triple_is_held_out(first, relation, second):
    """first, second: things, of which only the objects count."""
    things = [{"object": o, "colour": next(c for c in COLOURS if not thing_is_held_out({"object": o, "colour": c}))} for o in (first, second)]
    return world.is_held_out({"kind": "relation", "relation": relation, "things": things, "groups": things})


def is_held_out(pair):
    scenes = [s for s in (pair["before"], pair["after"], pair["second"]) if s]
    if any(thing_is_held_out(t) for s in scenes for t in s["things"]):
        return True
    names = pair["names"]
    return "relation" in names and triple_is_held_out(names["thing"], names["relation"], names["anchor"])


# ---- Scenes -----------------------------------------------------------------------------------------------------------------------------------

def _free_colour(rng, scene, taken=()):
    """Any colour; in outlines only one that shows on the background, since the line of another is black or white."""
    hidden = HIDDEN[scene["background"]] if scene["style"] == "outline" else ()
    return rng.choice([c for c in COLOURS if c not in hidden and c not in taken])


def _put_in_cell(rng, thing, cell):
    """A thing of the picture before."""
    y, x = SPOTS[cell[0]], SPOTS[cell[1]]
    thing.update(cell=cell, x=x + rng.uniform(-0.015, 0.015), y=y + rng.uniform(-0.015, 0.015), half=rng.uniform(0.118, 0.136), tilt=rng.uniform(-0.06, 0.06))
    return thing


def _new_thing(rng, scene, number):
    """A thing of another kind and colour than those of the scene."""
    objects, colours = [t["object"] for t in scene["things"]], [t["colour"] for t in scene["things"]]
    return {"object": rng.choice([o for o in OBJECTS if o not in objects]), "colour": _free_colour(rng, scene, colours), "id": number}


def cell_scene(rng, count=None, background=None, style=None):
    """One to four things in cells of the picture. Most differ in kind and colour; now and then two are of one kind, or of one colour."""
    background = background or rng.choices(BACKGROUNDS, [0.30, 0.14, 0.14, 0.14, 0.14, 0.14])[0]
    style = style or rng.choices(STYLES, [0.5, 0.28, 0.22])[0]
    scene = {"kind": "cells", "style": style, "background": background, "seed": rng.getrandbits(30), "things": []}
    cells = rng.sample(list(CELL_NAMES), count or rng.choices([1, 2, 3, 4], [0.2, 0.35, 0.3, 0.15])[0])
    for number, cell in enumerate(cells):
        thing, roll = _new_thing(rng, scene, number), rng.random()
        if number == 1 and roll < 0.2:
            key = "object" if roll < 0.12 else "colour"
            thing[key] = scene["things"][0][key]
        scene["things"].append(_put_in_cell(rng, thing, cell))
    return scene


def drawn_scene(rng, kinds=("single", "relation", "count"), style=None):
    """One to four things as the drawing model's world has them, several alike among them."""
    while True:
        scene = world.sample_scene(rng, rng.choice(kinds), style)
        if len(scene["things"]) <= 4 and scene["background"] in BACKGROUNDS and _fits(scene):
            things = [dict(t, cell=None, id=number) for number, t in enumerate(scene["things"])]
            return {"kind": "drawn", "style": scene["style"], "background": scene["background"], "seed": scene["seed"], "things": things}


def large_scene(rng, count, style=None):
    """One or two things that are larger than a cell."""
    scene = cell_scene(rng, count, style=style)
    if count == 1:
        size = rng.choices([(0.17, 0.22), (0.27, 0.33), (0.40, 0.48)], [0.25, 0.5, 0.25])[0]
        spots, half = [PLACES[rng.choice(list(PLACES))] if size[1] < 0.25 else (0.5, 0.5)], [rng.uniform(*size)]
    else:
        gap, half = rng.uniform(0.235, 0.255), [rng.uniform(0.16, 0.215) for _ in range(2)]
        spots = rng.choice([[(0.5 - gap, 0.5), (0.5 + gap, 0.5)], [(0.5, 0.5 - gap), (0.5, 0.5 + gap)]])
    for thing, (x, y), h in zip(scene["things"], spots, half):
        x, y = x + rng.uniform(-0.02, 0.02), y + rng.uniform(-0.02, 0.02)
        thing.update(cell=None, x=x, y=y, half=min(h, _room(x, y)))
    return scene


def copied(scene, **changes):
    return dict(scene, things=[dict(t) for t in scene["things"]], **changes)


# ---- Pairs ------------------------------------------------------------------------------------------------------------------------------------

def _fits(scene, **changes):
    """Whether every thing has its own colour: outlines that the background would hide are black or white."""
    scene = dict(scene, **changes)
    return scene["style"] != "outline" or all(t["colour"] not in HIDDEN[scene["background"]] for t in scene["things"])


def alike(scene, thing):
    """The things of this kind and colour."""
    return [t for t in scene["things"] if (t["object"], t["colour"]) == (thing["object"], thing["colour"])]


def _singles(scene):
    return [t for t in scene["things"] if len(alike(scene, t)) == 1]


def _collides(scene, x, y, half, gap=0.015):
    return any(max(abs(t["x"] - x), abs(t["y"] - y)) < t["half"] + half + gap for t in scene["things"])


def _rounded(value, parts):
    return round(value * parts) / parts


def _room(x, y):
    """Half the size of the largest thing there that the picture does not cut."""
    return 0.97 * min(x, y, 1 - x, 1 - y)


def _largest(scene, spot_of):
    """The largest thing, of at most a cell's size, that has room, its centre between tokens or in the middle of one in pictures of 256 x 256: (x, y, half). spot_of: half -> x, y."""
    for half in (NEW_HALF, 0.115, 0.105, 0.095, 0.085, 0.077, 0.07, 0.063, 0.056):
        x, y = spot_of(half)
        x, y = _rounded(x, 2 * TOKENS[1]), _rounded(y, 2 * TOKENS[0])
        if not _collides(scene, x, y, half) and min(x, y, 1 - x, 1 - y) > half + 0.01:
            return x, y, half
    return None


def _spot_in_cell(scene, cell):
    """In a corner, at an edge or in the middle; a smaller thing is nearer to the edge."""
    along = lambda k, half: (half + max(0.03, 0.4 * half), 0.5, 1 - half - max(0.03, 0.4 * half))[k]
    return _largest(scene, lambda half: (along(cell[1], half), along(cell[0], half)))


def _spot_beside(scene, anchor, relation):
    """In the middle of what is free between a thing and the edge of the picture."""
    dy, dx = STEPS[relation]
    middle = lambda at, step: (at + step * anchor["half"] + (1 if step > 0 else 0)) / 2 if step else at
    inside = lambda at, half: min(max(at, 0.03 + half), 0.97 - half)
    x, y = middle(anchor["x"], dx), middle(anchor["y"], dy)
    room = min(abs(x - (dx > 0)) if dx else 1, abs(y - (dy > 0)) if dy else 1) - 0.02
    return _largest(scene, lambda half: (inside(x, half), inside(y, half))) if room >= 0.07 else None


def _is_of_cells(scene):
    return all(t["cell"] is not None for t in scene["things"])


def _free_places(scene):
    """{cell: where} of the cells that are free: cells among cells, spots (x, y, half) beside larger things."""
    if _is_of_cells(scene):
        taken = {t["cell"] for t in scene["things"]}
        return {c: c for c in UNSAID if c not in taken}
    return {c: spot for c in UNSAID if (spot := _spot_in_cell(scene, c))}


def _unsaid_places(scene, count):
    """Where things go if the words do not say where: the first cells of UNSAID that no thing is in, or None if one of these lacks room. Whether a thing is in a cell must be plain to see: where it
    hung on a hair which of two cells is the first, both would be learnt."""
    free = _free_places(scene)
    if not _is_of_cells(scene):
        at = lambda k: (0.12, 0.5, 0.88)[k]
        is_in = lambda t, c: max(abs(t["x"] - at(c[1])), abs(t["y"] - at(c[0]))) < t["half"] + (0.1 if c == (1, 1) else 0.005)
        free = {c: free.get(c) for c in UNSAID if not any(is_in(t, c) for t in scene["things"])}
    places = list(free.values())[:count]
    return places if len(places) == count and all(places) else None


def _place_for(rng, scene, names):
    """Where something new goes, and into `names` how that is said; or None."""
    free = _free_places(scene)
    if rng.random() < 0.45:
        if _is_of_cells(scene):
            beside = lambda anchor, relation: free.get(tuple(a + b for a, b in zip(anchor["cell"], STEPS[relation])))
        else:
            beside = lambda anchor, relation: _spot_beside(scene, anchor, relation)
        spots = [(anchor, relation, where) for anchor in _singles(scene) for relation in STEPS if (where := beside(anchor, relation))]
        if not spots:
            return None
        anchor, relation, where = rng.choice(spots)
        names.update(relation=relation, anchor=anchor["object"], anchor_colour=anchor["colour"])
        return where
    if not free:
        return None
    cell = rng.choice(list(free))
    names["place"] = CELL_NAMES[cell]
    return free[cell]


def _put_at(thing, where):
    """Puts a thing where _place_for says."""
    if len(where) == 2:
        thing.update(cell=where, x=SPOTS[where[1]], y=SPOTS[where[0]], half=NEW_HALF, tilt=0.0)
    else:
        x, y, half = where
        thing.update(cell=None, x=x, y=y, half=half, tilt=0.0)
    return thing


def _moved(scene, thing, to, tokens):
    """Moves a thing by whole tokens to about where `to` is, as it is, or smaller if there is no room; or None."""
    x, y = thing["x"] + _rounded(to["x"] - thing["x"], tokens[1]), thing["y"] + _rounded(to["y"] - thing["y"], tokens[0])
    half = min(thing["half"], _room(x, y), 0.137 if to["cell"] else to["half"])
    return None if half < 0.055 or _collides(scene, x, y, half, 0) else dict(thing, x=x, y=y, half=half, cell=to["cell"])


def sample_pair(rng, kind, tokens):
    """A pair of this kind; it may be one that training must not see. None: this draw of the scene does not allow it."""
    roll = rng.random()
    adds = kind in ("add", "put")
    if roll < 0.48:
        before = cell_scene(rng, rng.choices([2, 3, 4], [0.5, 0.35, 0.15])[0] if kind == "swap" else rng.choices([1, 2, 3], [0.3, 0.4, 0.3])[0] if adds else None)
    elif roll < 0.74:
        before = large_scene(rng, 2 if kind == "swap" or roll > 0.66 else 1)
    else:
        before = drawn_scene(rng, ("relation",) if kind == "swap" else ("single", "relation") if kind == "replace" else ("single", "relation", "count"))
    after, names, second, background = copied(before), {}, None, "before"
    things = after["things"]
    number, singles = len(things), _singles(after)
    if kind in ("recolour", "remove"):
        chosen = alike(after, rng.choice(things))
        names.update(thing=chosen[0]["object"], old=chosen[0]["colour"])
        if kind == "recolour":
            names["colour"] = _free_colour(rng, after, [names["old"]])
            for t in chosen:
                t["colour"] = names["colour"]
        else:
            things[:] = [t for t in things if t not in chosen]
    elif kind == "replace":
        if not singles:
            return None
        thing = rng.choice(singles)
        names.update(thing=thing["object"], old=thing["colour"])
        thing["object"] = names["object"] = rng.choice([o for o in OBJECTS if o not in [t["object"] for t in things]])
        if rng.random() < 0.4:
            thing["colour"] = names["colour"] = _free_colour(rng, after)
        thing.update(id=number, x=_rounded(thing["x"], 2 * tokens[1]), y=_rounded(thing["y"], 2 * tokens[0]), tilt=0.0)
        thing["half"] = min(thing["half"], _room(thing["x"], thing["y"]))
    elif kind == "add":
        added = _new_thing(rng, before, number)
        if rng.random() < 0.4 and _fits(before, things=[dict(added, colour=NATURAL[added["object"]])]):
            added["colour"] = NATURAL[added["object"]]
            names["says_colour"] = rng.random() < 0.3
        if rng.random() < 0.38:  # nothing said
            names["number"] = rng.choices([1, 2, 3], [0.76, 0.16, 0.08])[0]
            places = _unsaid_places(before, names["number"])
            if places is None or number + names["number"] > 4:
                return None
        else:
            places = [_place_for(rng, before, names)]
            if places[0] is None:
                return None
        names.update(thing=added["object"], colour=added["colour"])
        things += [_put_at(dict(added, id=number + k), where) for k, where in enumerate(places)]
    elif kind == "background":
        choices = [b for b in BACKGROUNDS if b != before["background"] and _fits(before, background=b)]
        if not choices:
            return None
        after["background"] = names["background"] = rng.choice(choices)
        background = "new"
    elif kind == "style":
        after["style"] = names["style"] = rng.choice([s for s in STYLES if s != before["style"] and _fits(before, style=s)])
    elif kind == "swap":
        if len(singles) < 2:
            return None
        a, b = rng.sample(singles, 2)
        names.update(thing=a["object"], old=a["colour"], other=b["object"], other_colour=b["colour"])
        # each keeps its size as far as the other's place has room for it
        dx, dy = _rounded(b["x"] - a["x"], tokens[1]), _rounded(b["y"] - a["y"], tokens[0])
        for t, sign in ((a, 1), (b, -1)):
            t["x"], t["y"] = t["x"] + sign * dx, t["y"] + sign * dy
            t["half"] = min(t["half"], _room(t["x"], t["y"]))
        a["cell"], b["cell"] = b["cell"], a["cell"]
        if any(_collides(dict(after, things=[o for o in things if o is not t]), t["x"], t["y"], t["half"], 0) for t in (a, b)):
            return None
    else:
        style = before["style"] if rng.random() < 0.6 else None
        second = large_scene(rng, 1, style) if rng.random() < 0.3 else cell_scene(rng, rng.choices([1, 2, 3], [0.4, 0.35, 0.25])[0], style=style)
        if kind == "put":
            wanted = rng.choice(_singles(second))
            if wanted["object"] in [t["object"] for t in things] or not _fits(before, things=[wanted]):
                return None
            names.update(thing=wanted["object"], colour=wanted["colour"])
            added = dict(wanted, id=number)
            if wanted["cell"] and rng.random() < 0.25:  # nothing said: where it is in picture 2
                if _collides(before, wanted["x"], wanted["y"], wanted["half"]):
                    return None
            else:
                where = _place_for(rng, before, names)
                if where is None:
                    return None
                added = _moved(before, added, _put_at({}, where), tokens)
                if added is None:
                    return None
            things.append(added)
        elif kind == "borrow background":
            if second["background"] == before["background"] or not _fits(before, background=second["background"]):
                return None
            after["background"] = names["background"] = second["background"]
            background = "second"
        else:
            if second["style"] == before["style"] or not _fits(before, style=second["style"]):
                return None
            after["style"] = names["style"] = second["style"]
    return {"kind": kind, "before": before, "after": after, "second": second, "background": background, "names": names}


def edited_ids(pair):
    before, after = ({t["id"]: t for t in pair[k]["things"]} for k in ("before", "after"))
    return {k for k in before | after if before.get(k) != after.get(k)}


def spoken_of(pair, which):
    """Ids of the things in the picture "before", "after" or "second" that the instruction speaks of: those that it edits, the one beside which something goes, the one that is put elsewhere."""
    names, edited = pair["names"], edited_ids(pair)
    if which == "second":
        return {t["id"] for t in pair["second"]["things"] if pair["kind"] == "put" and (t["object"], t["colour"]) == (names["thing"], names["colour"])}
    is_anchor = lambda t: which == "before" and "anchor" in names and (t["object"], t["colour"]) == (names["anchor"], names["anchor_colour"])
    return {t["id"] for t in pair[which]["things"] if t["id"] in edited or is_anchor(t)}


def pairs(rng, count, second=False, held_out=False, kind=None, tokens=TOKENS):
    """Pairs with or without a second picture, for pictures of so many rows and columns of tokens; all that training may see, or all that it may not."""
    weights, out = WEIGHTS_SECOND if second else WEIGHTS, []
    while len(out) < count:
        pair = sample_pair(rng, kind or rng.choices(list(weights), list(weights.values()))[0], tokens)
        if pair and is_held_out(pair) == held_out:
            out.append(pair)
    return out


def drawing_scenes(rng, count, held_out=False):
    """Scenes of the drawing model's world for prompts without a picture: one thing or two, on the backgrounds of this world."""
    out = []
    while len(out) < count:
        scene = world.sample_scene(rng)
        if scene["kind"] in ("single", "relation") and len(scene["things"]) <= 2 and scene["background"] in BACKGROUNDS and _fits(scene) and world.is_held_out(scene) == held_out:
            out.append(scene)
    return out


# ---- Words ------------------------------------------------------------------------------------------------------------------------------------

BACKGROUND_EDITS = {
    "plain": ["give it a white background", "put it on a white background", "make the background white", "change the background to plain paper", "on a white background", "white background", "remove the background"],
    "sky": ["put it in a blue sky", "change the background to a blue sky", "in a blue sky", "make the background a blue sky", "turn the background into a blue sky", "blue sky"],
    "night": ["turn it into night", "make it night", "change it to night", "at night", "make it a starry night", "put it in the night sky", "change the background to night", "night"],
    "sea": ["put it at sea", "change the background to the sea", "make the background the sea", "at sea", "turn the background into the sea", "put it by the sea", "the sea behind it"],
    "grass": ["put it on the grass", "change the background to grass", "on a green meadow", "make the background a meadow", "put it in a field", "on grass", "put it on a green meadow"],
    "sunset": ["turn it into a sunset", "make it sunset", "change it to sunset", "at sunset", "make it evening", "at dusk", "make it a sunset", "sunset"],
}
STYLE_EDITS = {
    "flat": ["make it flat", "as a flat picture", "turn it into a flat picture", "change the style to flat", "in flat colours", "make it a flat picture", "flat style"],
    "outline": ["as an outline drawing", "as a line drawing", "turn it into a line drawing", "make it an outline", "change the style to outline", "draw it as line art", "line art", "only the outline", "turn it into an outline"],
    "watercolour": ["as a watercolour", "turn it into a watercolour", "make it a watercolour", "change the style to watercolour", "paint it in watercolour", "as a watercolor painting", "watercolour", "in watercolour style", "paint it as a watercolour"],
}
OPENINGS = ["please ", "now ", "can you ", "could you ", "can you please ", "I want you to "]
ADJECTIVES = ["small", "little", "big", "large", "nice", "pretty"]  # change nothing: the room decides about sizes
ENDINGS = [" please", ", and change nothing else", ", keep everything else", ". Keep the rest as it is"]


def _name(rng, kind, colour, plain, number=1):
    name = kind if plain else rng.choice(NAMES.get(kind, [kind]))
    adjective = "" if plain or rng.random() < 0.95 else rng.choice(ADJECTIVES)
    return " ".join(w for w in (adjective, colour, name if number == 1 else PLURALS.get(name, name + "s")) if w)


def _article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def instruction(pair, rng, plain=False):
    """One way to say what is to be done. plain: the standard phrasing, nothing random (for tests and galleries)."""
    names, kind = pair["names"], pair["kind"]
    choose = lambda options: options[0] if plain else rng.choice(options)
    chance = lambda p: not plain and rng.random() < p

    def the(thing, colour, scene=pair["before"]):  # colours are said now and then, and where two things differ in nothing else
        others = [t for t in scene["things"] if t["object"] == thing and t["colour"] != colour]
        number = len(alike(scene, {"object": thing, "colour": colour}))
        if scene is pair["before"] and number == len(scene["things"]) and chance(0.15):  # nothing else can be meant
            return "it" if number == 1 else "them"
        return "the " + _name(rng, thing, colour if others or chance(0.2) else "", plain, number)

    def where():
        if "relation" in names:
            return " " + choose(RELATION_WORDS[names["relation"]][::-1] if names["relation"] in ("left of", "right of") and chance(0.5) else RELATION_WORDS[names["relation"]]) + " " + the(names["anchor"], names["anchor_colour"])
        if "place" in names:
            return " " + choose(PLACE_WORDS[names["place"]])
        alone = pair["before"]["things"]
        if kind == "add" and len(alone) == 1 and chance(0.2):
            return rng.choice([" next to ", " beside ", " near "]) + the(alone[0]["object"], alone[0]["colour"])
        return ""

    if kind == "recolour":
        t, c = the(names["thing"], names["old"]), names["colour"]
        text = choose([f"make {t} {c}", f"paint {t} {c}", f"change {t} to {c}", f"turn {t} {c}", f"change the colour of {t} to {c}", f"{t} should be {c}", f"give {t} the colour {c}", f"recolour {t} in {c}", f"colour {t} {c}", f"change {t}'s colour to {c}", f"I want {t} to be {c}"]).replace("them should", "they should")
    elif kind == "remove":
        t = the(names["thing"], names["old"])
        text = choose([f"remove {t}", f"delete {t}", f"take {t} away", f"erase {t}", f"take away {t}", f"the picture without {t}", f"get rid of {t}", f"without {t}", f"remove {t} from the picture", f"hide {t}"])
    elif kind == "add":
        number, colour = names.get("number", 1), names["colour"] if names.get("says_colour", True) or plain else ""
        a = _name(rng, names["thing"], colour, plain, number)
        a = _article(a) if number == 1 else choose(NUMBER_WORDS[number]) + " " + a
        text = choose([f"add {a}{where()}", f"draw {a}{where()}", f"put {a}{where()}", f"paint {a}{where()}", f"place {a}{where()}", f"add {a}{where()}", f"add {a}{where()}", f"I want {a}{where()}", f"there should be {a}{where()}"])
    elif kind == "background":
        text = choose(BACKGROUND_EDITS[names["background"]])
    elif kind == "style":
        text = choose(STYLE_EDITS[names["style"]])
    elif kind == "swap":
        a, b = the(names["thing"], names["old"]), the(names["other"], names["other_colour"])
        if chance(0.5):
            a, b = b, a
        text = choose([f"swap {a} and {b}", f"swap the places of {a} and {b}", f"exchange {a} and {b}", f"let {a} and {b} change places", f"swap {a} with {b}", f"swap {a} and {b}", f"switch {a} and {b}", f"{a} and {b} change places"])
    elif kind == "replace":
        t, new = the(names["thing"], names["old"]), _article(_name(rng, names["object"], names.get("colour", ""), plain))
        text = choose([f"replace {t} with {new}", f"turn {t} into {new}", f"change {t} into {new}", f"make {t} {new}", f"instead of {t} draw {new}", f"exchange {t} for {new}", f"replace {t} by {new}", f"swap {t} for {new}", f"I want {new} instead of {t}"])
    elif kind == "put":
        t = the(names["thing"], names["colour"], pair["second"])
        of = choose(["of picture 2", "from picture 2", "of picture 2", "from the second picture", "in picture 2"])
        into = choose([" into picture 1", " into picture 1", " in picture 1", "", " into the first picture"])
        text = choose([f"put {t} {of}{into}{where()}", f"add {t} {of}{into}{where()}", f"copy {t} {of}{into}{where()}", f"put {t} {of}{into}{where()}"])
    elif kind == "borrow background":
        text = choose(["put picture 1 on the background of picture 2", "use the background of picture 2", "picture 1 with the background of picture 2", "take the background from picture 2", "change the background to that of picture 2"])
    else:
        text = choose(["paint picture 1 in the style of picture 2", "use the style of picture 2", "picture 1 in the style of picture 2", "take the style from picture 2", "change the style to that of picture 2"])
    if chance(0.10):
        text = rng.choice(OPENINGS) + text
    if chance(0.10):
        text += rng.choice(ENDINGS)
    if chance(0.4):
        text = text.replace("colour", "color")
    if chance(0.05):
        text = " ".join(w for w in text.split(" ") if w not in ("a", "an", "the"))
    if chance(0.02):
        text = world.misspelt(text, rng)
    roll = 1 if plain else rng.random()
    text = text.upper() if roll < 0.06 else text[0].upper() + text[1:] if roll < 0.36 else text
    if chance(0.2):
        text += rng.choice([".", ".", ".", "!"])
    return text


if __name__ == "__main__":
    rng = random.Random(1)
    for kind in KINDS:
        for pair in pairs(rng, 4, kind in SECOND, rng.random() < 0.5, kind):
            print(f"{kind:18} {instruction(pair, rng, True):62} {instruction(pair, rng)}")
    import time
    begin = time.time()
    batch = pairs(rng, 2000) + pairs(rng, 1000, True)
    middle = time.time()
    texts = [instruction(p, rng) for p in batch]
    print(f"{3000 / (middle - begin):.0f} pairs/s, {3000 / (time.time() - middle):.0f} instructions/s")
