"""The little world the demo model knows: what can be in a picture, and how people say it.

A scene is a plain dict; `sample_scene` draws one, `caption` says it in varied English, `pictures.render` paints it. Nothing is downloaded: pictures and captions
are made from random numbers alone. Some combinations are held out of training (`is_held_out`), so that prompt following can be measured on things never seen.

    kind      groups                                   where
    empty     none                                     the background alone
    single    one thing                                "place": one of nine, or None for the middle
    count     two to four alike                        "place": top, bottom (a row), left, right (a column), or None
    relation  two groups of one to four, five at most  "relation": left of, right of, above, below, or beside: the first named is on the left

A group is {object, colour, number, size}. "things" lists every single thing with its position, group by group."""

import random
import zlib

COLOURS = {  # sRGB
    "red": (214, 48, 49), "orange": (240, 140, 30), "yellow": (250, 210, 50), "green": (60, 160, 70), "blue": (45, 105, 215),
    "purple": (130, 70, 180), "pink": (245, 140, 180), "brown": (130, 80, 45), "white": (250, 250, 248), "black": (35, 35, 40),
}
NATURAL = {  # the colour of a thing whose prompt names none
    "circle": "red", "square": "blue", "triangle": "green", "star": "yellow", "heart": "red", "sun": "yellow", "moon": "yellow", "house": "brown", "tree": "green", "boat": "red",
    "flower": "pink", "cat": "orange", "fish": "orange", "balloon": "red", "mountain": "brown", "butterfly": "orange"}
OBJECTS = list(NATURAL)
BACKGROUNDS = ["plain", "sky", "night", "sea", "grass", "sunset", "night sea", "sunset sea", "night grass", "sunset grass"]
STYLES = ["flat", "outline", "watercolour"]
SIZES = {"small": (0.17, 0.22), "medium": (0.28, 0.34), "big": (0.42, 0.50)}  # half height, in units of the shorter side
PAIR_SIZES = {"small": (0.11, 0.13), "medium": (0.175, 0.21), "big": (0.225, 0.235)}  # the same where two things share the picture
ROW = {2: ((-0.235, 0.235), (0.15, 0.165)), 3: ((-0.31, 0.0, 0.31), (0.108, 0.120)), 4: ((-0.36, -0.12, 0.12, 0.36), (0.084, 0.092))}  # offsets and half heights of a row or column

# Colours that would vanish on a background: there a thing has an edge in a colour that does not.
HIDDEN = {"plain": {"white"}, "sky": {"blue", "white"}, "night": {"black", "blue", "purple"}, "sea": {"blue", "white"}, "grass": {"green", "white"}, "sunset": {"orange", "pink", "yellow", "purple"},
          "night sea": {"black", "blue", "purple"}, "sunset sea": {"orange", "pink", "yellow", "purple"}, "night grass": {"black", "blue", "purple", "green"},
          "sunset grass": {"orange", "pink", "yellow", "purple", "green"}}

PLACES = {  # centre in units of width and height
    "left": (0.24, 0.5), "right": (0.76, 0.5), "top": (0.5, 0.25), "bottom": (0.5, 0.75),
    "top left": (0.25, 0.25), "top right": (0.75, 0.25), "bottom left": (0.25, 0.75), "bottom right": (0.75, 0.75), "middle": (0.5, 0.5),
}
RELATIONS = ["left of", "right of", "above", "below", "beside"]


def edge_of(background, colour):
    """The colour of the edge that keeps a thing visible, or None where it needs none. Outlines have this colour instead of their own."""
    if colour not in HIDDEN[background]:
        return None
    return "white" if background.startswith("night") or colour in ("purple", "green") and background.startswith("sunset") else "black"


def is_held_out(scene):
    """True for the combinations that training never sees: one (object, colour) pair in seven, natural colours excepted, and one (object, relation, object) triple in five.
    A triple is the arrangement in the picture: "a above b" and "b below a" are one, and "beside" has no order."""
    groups = scene["groups"]
    if any((3 * OBJECTS.index(g["object"]) + list(COLOURS).index(g["colour"])) % 7 == 0 and NATURAL[g["object"]] != g["colour"] for g in groups):
        return True
    if scene["kind"] != "relation":
        return False
    a, b, relation = groups[0]["object"], groups[1]["object"], scene["relation"]
    if relation in ("right of", "below") or relation == "beside" and a > b:
        a, b, relation = b, a, OPPOSITE.get(relation, relation)
    return zlib.crc32(f"{a} {relation} {b}".encode()) % 5 == 0


def _group(rng, background, style, other=None):
    """One kind of thing. Most pairs differ in object and colour; some share one of them."""
    share = rng.choices(["", "object", "colour"], [0.80, 0.08, 0.12])[0] if other else ""
    while True:
        name = other["object"] if share == "object" else rng.choice(OBJECTS)
        colour = other["colour"] if share == "colour" else NATURAL[name] if rng.random() < 0.35 else rng.choice(list(COLOURS))
        if other and ((name == other["object"]) != (share == "object") or (colour == other["colour"]) != (share == "colour")):
            continue
        if style == "outline" and edge_of(background, colour) and rng.random() < 0.75:
            continue
        return {"object": name, "colour": colour, "number": 1, "size": "medium"}


def _place(group, x, y, half, rng, jitter):
    """A thing of the group near (x, y), shrunk where it would leave the picture."""
    x, y = x + rng.uniform(-jitter, jitter), y + rng.uniform(-jitter, jitter)
    return {"object": group["object"], "colour": group["colour"], "x": x, "y": y, "half": min(half, 0.97 * min(x, y, 1 - x, 1 - y)), "tilt": rng.uniform(-0.08, 0.08)}


def _row(group, x, y, across, rng):
    """The things of the group in a row (across) or a column around (x, y)."""
    if group["number"] == 1:
        return [_place(group, x, y, rng.uniform(*PAIR_SIZES[group["size"]]), rng, 0.015)]
    offsets, sizes = ROW[group["number"]]
    half = rng.uniform(*sizes) * (0.82 if group["size"] == "small" else 1)
    return [_place(group, x + (d if across else 0), y + (0 if across else d), half, rng, 0.010) for d in offsets]


def sample_scene(rng, kind=None, style=None, background=None):
    kind = kind or rng.choices(["single", "relation", "count", "empty"], [0.37, 0.44, 0.17, 0.02])[0]
    style = style or rng.choices(STYLES, [0.5, 0.28, 0.22])[0]
    background = background or rng.choices(BACKGROUNDS, [0.34, 0.09, 0.11, 0.11, 0.11, 0.08, 0.04, 0.05, 0.035, 0.035])[0]
    scene = {"kind": kind, "style": style, "background": background, "seed": rng.getrandbits(30), "groups": [], "things": []}
    if kind == "empty" and background == "plain":
        scene["background"] = rng.choice(BACKGROUNDS[1:])
    if kind == "single":
        group = _group(rng, background, style)
        group["size"] = size = rng.choices(list(SIZES), [0.25, 0.5, 0.25])[0]
        place = rng.choices([None] + list(PLACES), [0.5] + [0.5 / len(PLACES)] * len(PLACES))[0]
        if size == "big" and place not in (None, "middle"):
            group["size"] = size = "medium"
        half = rng.uniform(*SIZES[size]) * (0.8 if place not in (None, "middle") else 1)
        scene.update(groups=[group], place=place, things=[_place(group, *PLACES[place or "middle"], half, rng, 0.03)])
    elif kind == "relation":
        first = _group(rng, background, style)
        groups = [first, _group(rng, background, style, first)]
        relation = rng.choices(RELATIONS, [0.17, 0.17, 0.17, 0.17, 0.32])[0]
        gap = rng.uniform(0.235, 0.255)
        if rng.random() < 0.42:
            while sum(g["number"] for g in groups) not in (3, 4, 5):
                for g in groups:
                    g["number"] = rng.choices([1, 2, 3, 4], [0.4, 0.25, 0.2, 0.15])[0]
        dx, dy = {"left of": (-gap, 0), "right of": (gap, 0), "above": (0, -gap), "below": (0, gap), "beside": (-gap, 0)}[relation]
        for group, sign in zip(groups, (1, -1)):
            group["size"] = rng.choices(list(PAIR_SIZES), [0.12, 0.76, 0.12] if sum(g["number"] for g in groups) == 2 else [0.06, 0.94, 0])[0]
            scene["things"] += _row(group, 0.5 + sign * dx, 0.5 + sign * dy, dx == 0, rng)
        scene.update(groups=groups, relation=relation)
    elif kind == "count":
        group = _group(rng, background, style)
        group["number"] = number = rng.choice([2, 3, 4])
        group["size"] = rng.choices(list(SIZES), [0.08, 0.87, 0.05])[0]
        place = rng.choices([None, "top", "bottom", "left", "right"], [0.72, 0.07, 0.07, 0.07, 0.07])[0]
        if place:
            scene["things"] = _row(group, *PLACES[place], place in ("top", "bottom"), rng)
        else:
            spots = {2: [(0.27, 0.5), (0.73, 0.5)], 3: [(0.19, 0.5), (0.5, 0.5), (0.81, 0.5)], 4: [(0.28, 0.28), (0.72, 0.28), (0.28, 0.72), (0.72, 0.72)]}[number]
            low, high = (0.118, 0.132) if number == 3 else (0.16, 0.19)
            half = {"small": 0.76 * low, "medium": rng.uniform(low, high), "big": high}[group["size"]]
            scene["things"] = [_place(group, x, y, half * rng.uniform(0.97, 1.0), rng, 0.012) for x, y in spots]
        scene.update(groups=[group], place=place)
    return scene


# ---- Words ----------------------------------------------------------------------------------------------------------------------------------

NAMES = {"circle": ["circle", "circle", "ball", "disc"], "cat": ["cat", "cat", "kitten", "cat face"], "boat": ["boat", "boat", "sailing boat", "sailboat"],
         "house": ["house", "house", "house", "cottage"], "moon": ["moon", "moon", "moon", "crescent moon"]}
PLURALS = {"fish": "fish", "butterfly": "butterflies"}
SIZE_WORDS = {"small": ["small", "little", "tiny"], "medium": [""], "big": ["big", "large", "huge"]}
NUMBER_WORDS = {1: ["one", "1", "a single"], 2: ["two", "two", "2", "a pair of"], 3: ["three", "three", "3"], 4: ["four", "four", "4"]}
PLACE_WORDS = {
    "left": ["on the left", "at the left", "on the left side"], "right": ["on the right", "at the right", "on the right side"],
    "top": ["at the top", "near the top", "at the top of the picture"], "bottom": ["at the bottom", "near the bottom", "at the bottom of the picture"],
    "middle": ["in the middle", "in the center", "in the centre"],
    "top left": ["in the top left corner", "at the top left", "top left", "in the upper left corner"], "top right": ["in the top right corner", "at the top right", "top right", "in the upper right corner"],
    "bottom left": ["in the bottom left corner", "at the bottom left", "bottom left", "in the lower left corner"],
    "bottom right": ["in the bottom right corner", "at the bottom right", "bottom right", "in the lower right corner"],
}
OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
RELATION_WORDS = {"left of": ["to the left of", "left of", "on the left of"], "right of": ["to the right of", "right of", "on the right of"], "above": ["above", "over", "above", "on top of"],
                  "below": ["below", "under", "beneath", "underneath"]}
SIDES = {"left of": [("on the left", "on the right"), ("to the left", "to the right"), ("left", "right"), ("on the left side", "on the right side")],
         "above": [("at the top", "at the bottom"), ("on top", "below"), ("above", "below"), ("at the top", "under it")]}
ITS = {"left of": "to {} left", "right of": "to {} right", "above": "above {}", "below": "below {}"}
BESIDE = ["and", "and", "and", "and", "next to", "next to", "beside", "beside", "with", "with", "near", "by", "together with", "alongside"]
PLACE_OF = {"sea": ["at sea", "by the sea", "with the sea behind", "on the sea", "in the sea", "over the sea"], "grass": ["on the grass", "on a green meadow", "in a field", "in the grass", "on a meadow", "on green grass"],
            "sky": ["in a blue sky", "in the sky", "with a blue sky", "in the blue sky", "under a blue sky"], "plain": ["on a white background", "on white", "on plain paper", "on white paper", "white background"]}
TIME_OF = {"night": ["at night", "at night", "in the night", "on a dark night", "in the dark"], "sunset": ["at sunset", "at sunset", "in the evening", "at dusk"]}
ALONE = {"night": ["in the night sky", "on a starry night", "under the night sky", "night"], "sunset": ["in a sunset sky", "with a sunset", "in front of a sunset", "sunset"]}
SETTINGS = {"sea": ["the sea", "a sea"], "grass": ["a meadow", "a field", "the grass", "green grass"], "night": ["the night", "a night", "a starry night", "the night sky"],
            "sunset": ["a sunset", "the evening", "dusk"], "sky": ["a blue sky", "the sky"]}
STYLE_PREFIX = {"flat": ["a flat picture of", "a simple picture of", "flat drawing of"],
                "outline": ["an outline of", "a line drawing of", "outline drawing of", "outline of", "line drawing of", "line art of", "the outline of", "outlines of", "a simple line drawing of", "only the outline of"],
                "watercolour": ["a watercolour of", "a watercolour painting of", "watercolour painting of", "watercolour of", "a watercolour with", "painted in watercolour:"]}
STYLE_SUFFIX = {"flat": [", flat", ", flat style", ", flat colours", " in flat style"], "outline": [", outline", ", line art", ", outline style", " as an outline", " in outline", ", line drawing", ", outlined", " in outline style"],
                "watercolour": [", watercolour", ", watercolour style", " in watercolour", ", watercolour painting", " as a watercolour", ", painted in watercolour"]}
STYLE_WORD = {"outline": ["outline", "outlined", "line art"], "watercolour": ["watercolour"]}
OPENINGS = ["a picture of", "a drawing of", "an illustration of", "draw", "please draw", "a picture with", "an image showing", "please paint", "picture of", "an image of", "I want", "I want to see", "I would like",
            "can you draw", "could you make", "show me", "make", "make me", "create an image of", "generate", "paint", "give me", "we need", "there is", "here is", "just", "drawing of", "a photo of", "a painting of",
            "I'd like a picture of", "let me see", "please make a picture of", "a scene with", "design", "a card with", "an icon of"]
CLOSINGS = [", please", " please", ", thank you", ", thanks", " for me", " for my daughter", " for a children's book", " for a birthday card", " on my wall", ", beautiful", ", cute", ", high quality",
            ", very detailed, best quality", ", pretty", ", simple", ", a lovely illustration for children", ", masterpiece", ", 8k", ", professional", ", nothing else", ", cheerful", " and nothing else", ", by a great artist"]
ASIDES = ["It is a quiet day and the air is fresh.", "Everything is calm.", "The picture is for a book for children.", "Soft light, gentle mood.", "The artist took a lot of time and care.",
          "Nobody is around, and nothing else can be seen.", "It makes me smile whenever I look at it.", "Made with love.", "No text, no people.", "Very clean and clear.", "Use clear shapes.", "Keep it simple."]
DOING = ["sitting", "standing", "waiting", "sleeping", "resting", "flying", "floating", "swimming", "shining", "growing", "dancing", "smiling", "hanging", "drifting", "travelling", "lying", "hiding", "seen", "all alone"]

# Words that the model does not know: it learns that they change nothing. Half of them are made up on the spot.
ADJECTIVES = """lovely happy friendly nice cute pretty old funny sleepy magical new young beautiful ugly strange bright dark light pale deep clean dirty wooden golden shiny soft hard round fat thin tall short long
wide heavy quick slow clever silly proud brave gentle wild tame rich poor broken lost famous secret royal simple fancy modern ancient rusty dusty wet dry warm cold hot icy sweet bitter fresh rotten noisy quiet calm angry
sad merry lonely busy lazy hungry thirsty sick healthy strong weak plain perfect charming elegant mighty tender curious cosy spooky mysterious gorgeous wonderful amazing stunning favourite french chinese italian paper
plastic glass metal stone silver floating flying jolly dreamy peaceful adorable majestic detailed realistic""".split()
OWNERS = ["my", "your", "our", "her", "his", "their", "this", "that", "Tom's", "Lisa's", "my mother's", "grandpa's", "the queen's", "my little brother's", "Peter's", "the teacher's", "Mia's"]
SYLLABLES = "ba be bi bo da de fa fe fi ga go ha he ho ja ka ki ko la le li lo ma me mi mo na ne no pa pe po ra re ri ro sa se si so ta te ti to va ve wa we za zo".split()
CODA = ["", "n", "r", "s", "l", "m", "ck", "ly", "ish", "ing", "ed", "y", "ous", "al"]


def _unknown(rng):
    if rng.random() < 0.6:
        return rng.choice(ADJECTIVES)
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.choice([1, 2, 2, 3]))) + rng.choice(CODA)


def _article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def _says(group, rng):
    """Whether the colour is said: one that is not natural always is."""
    return NATURAL[group["object"]] != group["colour"] or rng.random() < 0.4


def _phrase(group, rng, plain, own_words=True):
    """The words for a group: "a red cat", "three small yellow stars"."""
    chance = lambda p: not plain and rng.random() < p
    name = group["object"] if plain else rng.choice(NAMES.get(group["object"], [group["object"]]))
    number, many = group["number"], group["number"] > 1
    if many:
        name = PLURALS.get(name, name + "s")
    colour = group["colour"] if plain or _says(group, rng) else ""
    size = SIZE_WORDS[group["size"]][0] if plain else rng.choice(SIZE_WORDS[group["size"]])
    unknown = _unknown(rng) if chance(0.13) else ""
    order = [unknown, size, colour] if chance(0.5) or plain else [size, unknown, colour]
    after = ""
    if colour and chance(0.07):
        after, order = rng.choice([" that is ", " which is ", ", "]) + colour, [unknown, size]
        after = after.replace(" is ", " are ") if many else after
        after += "," if after.startswith(",") and own_words else ""
    elif colour and chance(0.03):
        order[-1 if order[-1] == colour else order.index(colour)] = colour + rng.choice([" coloured", " colored", "-coloured"])
    text = " ".join(w for w in order + [name] if w)
    if many:
        words = NUMBER_WORDS[number]
        text = (words[0] if plain else rng.choice(words)) + " " + text
    elif chance(0.05):
        text = rng.choice(OWNERS) + " " + text
    elif chance(0.05):
        text = "the " + text
    elif chance(0.04):
        text = rng.choice(NUMBER_WORDS[1]) + " " + text
    elif not chance(0.10):
        text = _article(text)
    return text + after + (" " + rng.choice(DOING) if chance(0.05) else "")


def _where(background, rng, plain):
    """The background in words."""
    time, place = (background.split() + [""])[:2] if background.startswith(("night", "sunset")) else ("", background)
    pick = lambda words: words[0] if plain else rng.choice(words)
    if not place:
        return pick(TIME_OF[time] + ([] if plain else ALONE[time]))
    words = pick(PLACE_OF[place])
    if time:
        return words + " " + pick(TIME_OF[time]) if plain or rng.random() < 0.55 else pick(TIME_OF[time]) + rng.choice([" ", ", "]) + words
    if place in ("sea", "grass") and not plain and rng.random() < 0.12:
        words += rng.choice([" under a blue sky", " on a sunny day", " in the daytime", " with a blue sky"])
    return words


def _setting(background, rng):
    """The background as a noun, to begin with: "a sunset with"."""
    parts = background.split()
    if len(parts) == 1:
        return rng.choice(SETTINGS[background])
    return rng.choice([rng.choice(SETTINGS[parts[1]]) + " " + rng.choice(TIME_OF[parts[0]]), rng.choice(SETTINGS[parts[0]]) + " " + rng.choice(PLACE_OF[parts[1]])])


def _related(scene, rng, plain):
    a, b = (_phrase(g, rng, plain, k == 0) for k, g in enumerate(scene["groups"]))
    relation = scene["relation"]
    if relation == "beside":
        if plain:
            return f"{a} and {b}"
        roll = rng.random()
        if roll < 0.06:
            return f"{a}, {b}"
        if roll < 0.10:
            return f"{a} and {b} " + rng.choice(["side by side", "next to each other", "together"])
        if roll < 0.12:
            return f"both {a} and {b}"
        return f"{a} {rng.choice(BESIDE)} {b}"
    if plain:
        return f"{a} {RELATION_WORDS[relation][0]} {b}"
    roll, join = rng.random(), rng.choice([" and ", ", ", ", and ", "; "])
    if roll < 0.50:
        return f"{a} {rng.choice(RELATION_WORDS[relation])} {b}"
    if roll < 0.68:  # the same picture from the other side
        return f"{b} {rng.choice(RELATION_WORDS[OPPOSITE[relation]])} {a}"
    if relation in ("right of", "below"):
        a, b, relation, other = b, a, OPPOSITE[relation], scene["groups"][0]
    else:
        other = scene["groups"][1]
    if roll < 0.86:
        first, second = rng.choice(SIDES[relation])
        if "it" in second.split():
            return f"{first} {a}{join}{b} {second}"
        parts = [f"{a} {first}", f"{b} {second}"] if rng.random() < 0.5 or first in ("above",) else [f"{first}{rng.choice(['', '', ',', ':'])} {a}", f"{second}{rng.choice(['', '', ',', ':'])} {b}"]
        if rng.random() < 0.2:
            parts.reverse()
        return join.join(parts)
    of = ("its" if "left" in relation else "it") if other["number"] == 1 else ("their" if "left" in relation else "them")
    words = ITS[relation].format(of)
    return f"{b} {rng.choice(['with', 'and'])} {a} {words}"


def misspelt(text, rng):
    words = text.split(" ")
    long = [k for k, w in enumerate(words) if len(w) > 3 and w.isalpha()]
    if long:
        k = rng.choice(long)
        w, i = words[k], rng.randrange(1, len(words[k]) - 1)
        words[k] = rng.choice([w[:i] + w[i + 1 :], w[:i] + w[i] + w[i:], w[:i] + w[i + 1] + w[i] + w[i + 2 :]])
    return " ".join(words)


def caption(scene, rng, plain=False):
    """One way to say the scene. plain: the standard phrasing, everything said, nothing random (for tests and galleries)."""
    chance = lambda p: not plain and rng.random() < p
    kind, groups, style, background = scene["kind"], scene["groups"], scene["style"], scene["background"]
    place = scene.get("place")
    says_background = background != "plain" or plain or chance(0.18)
    commas = chance(0.05)  # keywords: "red cat, night, outline"
    front = ""
    if kind == "empty":
        text = rng.choice(["", "", "an empty ", "only "]) + _setting(background, rng) if not plain else _setting(background, random.Random(0))
        says_background = False
    elif kind == "relation":
        text = _related(scene, rng, plain)
    else:
        text = _phrase(groups[0], rng, plain, bool(place) or says_background)
    if kind in ("single", "count") and place:
        where = PLACE_WORDS[place][0] if plain else rng.choice(PLACE_WORDS[place])
        if chance(0.15):
            front = where
        else:
            text += (", " if commas or chance(0.06) else " ") + where
    if says_background:
        if commas:
            text += ", " + rng.choice([_where(background, rng, False), background.replace("plain", "white background").replace(" ", ", "), background.replace("plain", "white background")])
        elif not front and background != "plain" and chance(0.08):
            text = _setting(background, rng) + rng.choice([" with ", " and ", ", "]) + text
        elif not front and background != "plain" and chance(0.07):
            front = _where(background, rng, False)
        else:
            text += (", " if chance(0.10) else " ") + _where(background, rng, plain)
    if front:
        text = front + rng.choice([", ", " "]) + text if rng.random() < 0.8 else text + ", " + front
    if style != "flat" or chance(0.07):
        if style != "flat" and kind != "empty" and chance(0.08) and text.startswith(("a ", "an ")):
            text = _article(rng.choice(STYLE_WORD[style]) + " " + text.split(" ", 1)[1])
        elif style != "flat" and chance(0.04):
            text = rng.choice(STYLE_WORD[style]) + rng.choice([", ", ": ", " "]) + text
        elif plain or chance(0.46):
            text += STYLE_SUFFIX[style][0] if plain else rng.choice(STYLE_SUFFIX[style])
        else:
            text = rng.choice(STYLE_PREFIX[style]) + " " + text
    if plain:
        return text
    if chance(0.20):
        text = rng.choice(OPENINGS) + " " + text
    if chance(0.10):
        text += rng.choice(CLOSINGS)
    if chance(0.05):  # long prompts: words that change nothing
        text = text.rstrip(".") + ". " + " ".join(rng.sample(ASIDES, rng.choice([1, 2])))
    if chance(0.4):
        text = text.replace("watercolour", "watercolor").replace("colours", "colors")
    if chance(0.06):
        text = " ".join(w for w in text.split(" ") if w not in ("a", "an", "the"))
    if chance(0.03):
        text = text.replace(",", "")
    if chance(0.03):
        text = misspelt(text, rng)
    roll = rng.random()
    text = text.upper() if roll < 0.05 else text.title() if roll < 0.08 else text[0].upper() + text[1:] if roll < 0.36 else text
    if chance(0.15):
        text = text.rstrip(".") + rng.choice([".", ".", ".", "!", "?"])
    return text


def words_for_tokenizer(count=20000, seed=1):
    """Captions to learn a vocabulary from."""
    rng = random.Random(seed)
    return [caption(sample_scene(rng), rng) for _ in range(count)]
