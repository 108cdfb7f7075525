"""The little world the demo model knows: what can be in a picture, and how people say it.

A scene is a plain dict; `sample_scene` draws one, `caption` says it in varied English, `pictures.render` paints it. Nothing is downloaded: pictures and captions
are made from random numbers alone. Some combinations are held out of training (`is_held_out`), so that prompt following can be measured on things never seen."""

import random
import zlib

COLOURS = {  # sRGB
    "red": (214, 48, 49), "orange": (240, 140, 30), "yellow": (250, 210, 50), "green": (60, 160, 70), "blue": (45, 105, 215),
    "purple": (130, 70, 180), "pink": (245, 140, 180), "brown": (130, 80, 45), "white": (250, 250, 248), "black": (35, 35, 40),
}
OBJECTS = ["circle", "square", "triangle", "star", "heart", "sun", "moon", "house", "tree", "boat", "flower", "cat", "fish", "balloon", "mountain", "butterfly"]
BACKGROUNDS = ["plain", "sky", "night", "sea", "grass", "sunset"]
STYLES = ["flat", "outline", "watercolour"]
SIZES = {"small": (0.17, 0.22), "medium": (0.28, 0.34), "big": (0.42, 0.50)}  # half height, in units of the shorter side
PAIR_SIZES = {"small": (0.11, 0.13), "medium": (0.175, 0.21), "big": (0.225, 0.235)}  # the same where two things share the picture

# colours that would vanish on a background
HIDDEN = {"plain": {"white"}, "sky": {"blue", "white"}, "night": {"black", "blue", "purple"}, "sea": {"blue", "white"}, "grass": {"green", "white"}, "sunset": {"orange", "pink", "yellow", "purple"}}

PLACES = {  # centre in units of width and height
    "left": (0.24, 0.5), "right": (0.76, 0.5), "top": (0.5, 0.25), "bottom": (0.5, 0.75),
    "top left": (0.25, 0.25), "top right": (0.75, 0.25), "bottom left": (0.25, 0.75), "bottom right": (0.75, 0.75), "middle": (0.5, 0.5),
}
RELATIONS = ["left of", "right of", "above", "below"]


def is_held_out(scene):
    """True for the combinations that training never sees: one (object, colour) pair in seven, and one (object, relation, object) triple in five."""
    things = scene["things"]
    if any((3 * OBJECTS.index(t["object"]) + list(COLOURS).index(t["colour"])) % 7 == 0 for t in things):
        return True
    return scene["kind"] == "relation" and zlib.crc32(f"{things[0]['object']} {scene['relation']} {things[1]['object']}".encode()) % 5 == 0


def _thing(rng, background, avoid=()):
    while True:
        thing = {"object": rng.choice(OBJECTS), "colour": rng.choice(list(COLOURS))}
        if thing["colour"] not in HIDDEN[background] and thing["object"] not in [a["object"] for a in avoid] and thing["colour"] not in [a["colour"] for a in avoid]:
            return thing


def _place(thing, x, y, half, rng, jitter=0.03):
    """Puts the thing near (x, y), shrunk where it would leave the picture."""
    x, y = x + rng.uniform(-jitter, jitter), y + rng.uniform(-jitter, jitter)
    thing.update(x=x, y=y, half=min(half, 0.97 * min(x, y, 1 - x, 1 - y)), tilt=rng.uniform(-0.08, 0.08))


def sample_scene(rng, kind=None, style=None, background=None):
    """One scene: a single thing, two things in a relation, or several equal things."""
    kind = kind or rng.choices(["single", "relation", "count"], [0.45, 0.40, 0.15])[0]
    style = style or rng.choices(STYLES, [0.5, 0.28, 0.22])[0]
    background = background or rng.choices(BACKGROUNDS, [0.34, 0.14, 0.13, 0.13, 0.13, 0.13])[0]
    scene = {"kind": kind, "style": style, "background": background, "seed": rng.getrandbits(30)}
    if kind == "single":
        size = rng.choices(list(SIZES), [0.25, 0.5, 0.25])[0]
        place = rng.choices([None] + list(PLACES), [0.4] + [0.6 / len(PLACES)] * len(PLACES))[0]
        if size == "big" and place not in (None, "middle"):
            size = "medium"
        thing = _thing(rng, background)
        x, y = PLACES[place or "middle"]
        _place(thing, x, y, rng.uniform(*SIZES[size]) * (0.8 if place not in (None, "middle") else 1), rng)
        scene.update(things=[thing], size=size, place=place)
    elif kind == "relation":
        first = _thing(rng, background)
        second = _thing(rng, background, [first])
        relation = rng.choice(RELATIONS)
        gap = rng.uniform(0.235, 0.255)
        dx, dy = {"left of": (-gap, 0), "right of": (gap, 0), "above": (0, -gap), "below": (0, gap)}[relation]
        for thing, sign in ((first, 1), (second, -1)):
            thing["size"] = rng.choices(list(PAIR_SIZES), [0.1, 0.8, 0.1])[0]
            _place(thing, 0.5 + sign * dx, 0.5 + sign * dy, rng.uniform(*PAIR_SIZES[thing["size"]]), rng, 0.015)
        scene.update(things=[first, second], relation=relation)
    else:
        number = rng.choice([2, 3, 4])
        base = _thing(rng, background)
        spots = {2: [(0.27, 0.5), (0.73, 0.5)], 3: [(0.19, 0.5), (0.5, 0.5), (0.81, 0.5)], 4: [(0.28, 0.28), (0.72, 0.28), (0.28, 0.72), (0.72, 0.72)]}[number]
        things = []
        for x, y in spots:
            thing = dict(base)
            _place(thing, x, y, rng.uniform(0.118, 0.132) if number == 3 else rng.uniform(0.16, 0.19), rng, 0.012)
            things.append(thing)
        scene.update(things=things, number=number)
    return scene


# ---- Words ----------------------------------------------------------------------------------------------------------------------------------

NAMES = {"circle": ["circle", "ball", "disc"], "cat": ["cat", "cat face", "kitten"], "balloon": ["balloon"], "boat": ["boat", "sailing boat", "sailboat"],
         "house": ["house", "cottage", "little house"], "tree": ["tree"], "mountain": ["mountain"], "sun": ["sun"], "moon": ["moon", "crescent moon"]}
PLURALS = {"fish": "fish", "butterfly": "butterflies"}
SIZE_WORDS = {"small": ["small", "little", "tiny"], "medium": [""], "big": ["big", "large", "huge"]}
NUMBER_WORDS = {2: ["two", "2"], 3: ["three", "3"], 4: ["four", "4"]}
PLACE_WORDS = {
    "left": ["on the left", "at the left", "on the left side"], "right": ["on the right", "at the right", "on the right side"],
    "top": ["at the top", "near the top"], "bottom": ["at the bottom", "near the bottom"], "middle": ["in the middle", "in the center", "in the centre"],
    "top left": ["in the top left corner", "at the top left"], "top right": ["in the top right corner", "at the top right"],
    "bottom left": ["in the bottom left corner", "at the bottom left"], "bottom right": ["in the bottom right corner", "at the bottom right"],
}
RELATION_WORDS = {"left of": ["to the left of", "left of"], "right of": ["to the right of", "right of"], "above": ["above", "over"], "below": ["below", "under", "beneath"]}
BACKGROUND_WORDS = {
    "plain": ["on a white background", "on white", "on plain paper"], "sky": ["in a blue sky", "in the sky", "with a blue sky"],
    "night": ["at night", "in the night sky", "on a starry night"], "sea": ["at sea", "by the sea", "with the sea behind", "on the sea"],
    "grass": ["on the grass", "on a green meadow", "in a field"], "sunset": ["at sunset", "in the evening", "at dusk"],
}
STYLE_PREFIX = {"flat": ["", "", "", "a flat picture of ", "a simple picture of "], "outline": ["an outline of ", "a line drawing of ", "outline drawing of "],
                "watercolour": ["a watercolour of ", "a watercolor painting of ", "watercolour painting of "]}
STYLE_SUFFIX = {"flat": ["", ", flat", ", flat style", ", flat colours"], "outline": [", outline", ", line art", ", outline style"],
                "watercolour": [", watercolour", ", watercolor", ", watercolour style"]}


OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
BESIDE = ["and", "next to", "beside", "and"]
OPENINGS = ["a picture of ", "a drawing of ", "an illustration of ", "draw ", "please draw ", "a picture with ", "an image showing ", "please paint a nice picture of "]
PRAISE = [", beautiful", ", cute", ", high quality", ", very detailed, best quality", ", for a children's book", ", pretty", ", simple", ", a lovely illustration for children, high quality"]

ADJECTIVES = ["lovely", "happy", "friendly", "nice", "cute", "pretty", "old", "funny", "sleepy", "magical"]
ASIDES = ["It is a quiet day and the air is fresh.", "Everything is calm.", "The picture is for a book for children.", "Soft light, gentle mood.", "The artist took a lot of time and care.",
          "Nobody is around, and nothing else can be seen.", "It makes me smile whenever I look at it.", "Made with love.", "No text, no people.", "Very clean and clear."]


def _article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def _name(rng, kind):
    return rng.choice(NAMES.get(kind, [kind]))


def _noun(rng, thing, size="medium", says_colour=True, liveliness=0.0):
    words = [rng.choice(ADJECTIVES) if rng.random() < liveliness else "", rng.choice(SIZE_WORDS[size]), thing["colour"] if says_colour else "", _name(rng, thing["object"])]
    return " ".join(w for w in words if w)


def _keywords(scene, rng):
    """The scene as a comma list, some of it left unsaid."""
    words = []
    for thing in scene["things"][: 2 if scene["kind"] == "relation" else 1]:
        roll = rng.random()
        words.append(thing["colour"] if roll < 0.2 else thing["object"] if roll < 0.4 else thing["colour"] + " " + thing["object"])
    if scene["kind"] == "count":
        words.insert(0, rng.choice(NUMBER_WORDS[scene["number"]]))
    if scene["background"] != "plain" or rng.random() < 0.3:
        words.append(rng.choice({"plain": ["white background"], "grass": ["grass", "meadow"], "sky": ["sky", "blue sky"], "night": ["night", "stars"]}.get(scene["background"], [scene["background"]])))
    if scene["style"] != "flat":
        words.append(scene["style"])
    return ", ".join(words)


def caption(scene, rng, plain=False):
    """One way to say the scene. plain: the standard phrasing, everything said, nothing random (for tests and galleries)."""
    if plain:
        rng = random.Random(0)
    chance = lambda p: not plain and rng.random() < p
    if chance(0.06):
        return _keywords(scene, rng)
    says_colour = not chance(0.10)
    kind, things, style, background = scene["kind"], scene["things"], scene["style"], scene["background"]
    place_first, liveliness = None, 0.0 if plain else 0.06
    if kind == "single":
        text = _article(_noun(rng, things[0], scene["size"], says_colour, liveliness))
        if scene["place"]:
            where = rng.choice(PLACE_WORDS[scene["place"]])
            if chance(0.15):
                place_first = where
            else:
                text += " " + where
    elif kind == "relation":
        first, second = (_article(_noun(rng, thing, thing["size"], True, liveliness)) for thing in things)
        relation = scene["relation"]
        if relation in ("left of", "right of") and chance(0.15):  # said without the side: either picture is right
            first, second = (first, second) if rng.random() < 0.5 else (second, first)
            text = first + " " + rng.choice(BESIDE) + " " + second
        elif chance(0.25):  # the same picture from the other side
            text = second + " " + rng.choice(RELATION_WORDS[OPPOSITE[relation]]) + " " + first
        else:
            text = first + " " + rng.choice(RELATION_WORDS[relation]) + " " + second
    else:
        name = _name(rng, things[0]["object"])
        many = PLURALS.get(name, name + "s")
        text = " ".join(w for w in [rng.choice(NUMBER_WORDS[scene["number"]]), things[0]["colour"] if says_colour else "", many] if w)
    says_background = plain or (not chance(0.04) if background != "plain" else chance(0.35))
    if says_background:
        text += " " + rng.choice(BACKGROUND_WORDS[background])
    prefix = suffix = ""
    if style != "flat":
        if plain or chance(0.5):
            suffix = rng.choice(STYLE_SUFFIX[style][1:])
        else:
            prefix = rng.choice(STYLE_PREFIX[style])
    elif chance(0.25):
        prefix, suffix = (rng.choice(STYLE_PREFIX[style]), "") if chance(0.5) else ("", rng.choice(STYLE_SUFFIX[style]))
    if not prefix and not place_first and chance(0.15):
        prefix = rng.choice(OPENINGS)
    if place_first and not prefix:
        text = place_first + ", " + text
    elif place_first:
        text += ", " + place_first
    text = prefix + text + suffix
    if chance(0.10):
        text += rng.choice(PRAISE)
    if chance(0.3):
        text = text[0].upper() + text[1:]
    if chance(0.15):
        text += "."
    if chance(0.06):  # long prompts: words that change nothing
        text = text.rstrip(".") + ". " + " ".join(rng.sample(ASIDES, rng.choice([1, 2])))
    return text


def words_for_tokenizer(count=20000, seed=1):
    """Captions to learn a vocabulary from."""
    rng = random.Random(seed)
    return [caption(sample_scene(rng), rng) for _ in range(count)]
