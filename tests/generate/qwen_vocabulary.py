#!/usr/bin/env python3
"""Compares `sumi tokenize` with the tokenizers package on Qwen2.5's released vocabulary, which is too large for this repository.

    pip install tokenizers
    python3 tests/generate/qwen_vocabulary.py build/gcc/release/bin/sumi [--folder DIR] [--count N]

The vocabulary comes out of the package `dashscope` (resources/qwen.tiktoken: a base64 token and its rank per line), which pip downloads into a temporary folder.
Written from it: vocab.json, merges.txt and tokenizer_config.json with the 22 added tokens of Qwen2.5-VL. Strings of many scripts, templates included, are then tokenised by both;
the templates of Qwen-Image begin with exactly the ids of the published pipelines. The last line is a summary; the exit code is 1 when anything differs.
"""
import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import zipfile

ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
         "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
         "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
SPECIAL = 14  # the others are found in texts too, but are not flagged as special
FIRST_ADDED = 151643
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

DESCRIBE = ("<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
            "<|im_start|>user\n")
EDIT = ("<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's text instruction should "
        "alter or modify the image. Generate a new image that meets the user's requirements while maintaining consistency with the original input where appropriate.<|im_end|>\n"
        "<|im_start|>user\n")
ANSWER = "<|im_end|>\n<|im_start|>assistant\n"
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
DESCRIBE_IDS = [151644, 8948, 198, 74785, 279, 2168, 553, 44193, 279, 1894, 11, 6083, 11, 1379, 11, 10434, 11, 12194, 11, 1467, 11, 27979, 11871, 315, 279, 6171, 323, 4004, 25,
                151645, 198, 151644, 872, 198]
EDIT_IDS = [151644, 8948, 198, 74785, 279, 1376, 4419, 315, 279, 1946, 2168, 320, 3423, 11, 6083, 11, 1379, 11, 10434, 11, 6171, 11, 4004, 701, 1221, 10339, 1246, 279, 1196, 594,
            1467, 7600, 1265, 11596, 476, 5602, 279, 2168, 13, 19813, 264, 501, 2168, 429, 20027, 279, 1196, 594, 8502, 1393, 20337, 28137, 448, 279, 4024, 1946, 1380, 8311, 13,
            151645, 198, 151644, 872, 198]
NEGATIVE = "低分辨率，低画质，肢体畸形，手指畸形，画面过饱和，蜡像感，人脸无细节，过度光滑，画面具有AI感。构图混乱。文字模糊，扭曲。"

# Of each script some letters, combining marks and digits: first and last code point of runs.
SCRIPTS = {
    "latin": [(0x41, 0x5A), (0x61, 0x7A), (0x61, 0x7A), (0xC0, 0x17F)], "greek": [(0x391, 0x3C9)], "cyrillic": [(0x410, 0x44F)], "armenian": [(0x531, 0x556), (0x561, 0x587)],
    "hebrew": [(0x5D0, 0x5EA), (0x5B0, 0x5BC)], "arabic": [(0x621, 0x64A), (0x64B, 0x652), (0x660, 0x669)], "devanagari": [(0x905, 0x939), (0x93E, 0x94D), (0x966, 0x96F)],
    "bengali": [(0x985, 0x9B9), (0x9BE, 0x9CD)], "tamil": [(0xB85, 0xBB9), (0xBBE, 0xBCD)], "thai": [(0xE01, 0xE4E), (0xE50, 0xE59)], "georgian": [(0x10D0, 0x10FA)],
    "hangul": [(0xAC00, 0xD7A3)], "jamo": [(0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2)], "kana": [(0x3041, 0x3096), (0x30A1, 0x30FA)], "han": [(0x4E00, 0x9FA5)],
    "han-rare": [(0x3400, 0x4DB5), (0x20000, 0x20400)], "marks": [(0x61, 0x7A), (0x300, 0x36F)], "digits": [(0x30, 0x39), (0x30, 0x39), (0xB2, 0xB3), (0x2160, 0x2188)],
    "punctuation": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0x3001, 0x3011), (0xFF01, 0xFF0F), (0x2010, 0x2027)],
    "symbols": [(0x2190, 0x21FF), (0x2600, 0x26FF), (0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0xFE0F, 0xFE0F), (0x200D, 0x200D)],
    "space": [(0x20, 0x20), (0x20, 0x20), (0x0A, 0x0A), (0x09, 0x09), (0x0D, 0x0D), (0xA0, 0xA0), (0x2000, 0x200A), (0x3000, 0x3000), (0x85, 0x85)],
}
WORDS = ("a the red fox reads newspaper Describe image it's we'll THEY'RE I'VE don't 4K 1024x768 https://example.org/a?b=c&d=1 e.g. C++ _init_ snake_case camelCase ... !!! -> {} [] "
         "一只 红色的 狐狸 超清，4K，电影级构图. 写实 猫が 座っている 고양이가 앉아 있다 лиса читает газету الثعلب الأحمر शेर बैठा है สุนัขจิ้งจอก ÅÅ ﬁne ǆ ½ ² Ⅳ").split(" ")


def byte_letters():
    """GPT-2's letter for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def download(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", folder, "dashscope"], check=True)
    wheel = next(pathlib.Path(folder).glob("dashscope-*.whl"))
    return zipfile.ZipFile(wheel).read("dashscope/resources/qwen.tiktoken")


def halves(token, ranks):
    """The two tokens that are merged into this one: what the merges of lower ranks leave of its bytes."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1))
        if rank >= ranks[token]:
            raise SystemExit(f"token {ranks[token]} cannot be merged")
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts


def write_tokenizer(table, folder):
    """The released layout: vocab.json, merges.txt, tokenizer_config.json. Returns vocabulary and merges."""
    letters = byte_letters()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in table.splitlines() if line)}
    spell = {token: "".join(letters[b] for b in token) for token in ranks}
    vocabulary = {spell[token]: rank for token, rank in sorted(ranks.items(), key=lambda entry: entry[1])}
    merges = [tuple(spell[half] for half in halves(token, ranks)) for token in sorted(ranks, key=ranks.get) if len(token) > 1]
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8", newline="\n")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8", newline="\n")
    config = {"add_bos_token": False, "add_prefix_space": False, "tokenizer_class": "Qwen2Tokenizer", "pad_token": ADDED[0], "eos_token": ADDED[2], "bos_token": None, "unk_token": None,
              "added_tokens_decoder": {str(FIRST_ADDED + i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": i < SPECIAL}
                                       for i, token in enumerate(ADDED)}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8", newline="\n")
    return vocabulary, merges


def reference(vocabulary, merges):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in ADDED[:SPECIAL]])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in ADDED[SPECIAL:]])
    if [tokenizer.token_to_id(token) for token in ADDED] != list(range(FIRST_ADDED, FIRST_ADDED + len(ADDED))):
        raise SystemExit("the added tokens do not follow the vocabulary")
    return tokenizer


def make_strings(count, vocabulary):
    choose = random.Random(20)
    names, pieces = sorted(SCRIPTS), [*vocabulary]
    letters = {letter: byte for byte, letter in byte_letters().items()}

    def script():
        first, last = choose.choice(SCRIPTS[choose.choice(names)])
        return chr(choose.randint(first, last))

    def run():
        runs = SCRIPTS[choose.choice(names)]
        return "".join(chr(choose.randint(*choose.choice(runs))) for _ in range(choose.randint(1, 12)))

    def piece():  # whole tokens, where they are text
        return bytes(letters[letter] for letter in choose.choice(pieces)).decode("utf-8", "ignore")

    def text():
        kind = choose.randrange(6)
        if kind == 0:
            return "".join(script() for _ in range(choose.randint(0, 40)))
        if kind == 1:
            return "".join(run() for _ in range(choose.randint(1, 8)))
        if kind == 2:
            return "".join(piece() for _ in range(choose.randint(1, 12)))
        if kind == 3:
            return choose.choice([" ", " ", "  ", "\n", ""]).join(choose.choice(WORDS) for _ in range(choose.randint(1, 24)))
        if kind == 4:
            return "".join(choose.choice([run, piece, script, lambda: choose.choice(WORDS), lambda: choose.choice(ADDED)])() for _ in range(choose.randint(1, 16)))
        return choose.choice(["\n", " ", "\r\n", "\t", ""]) + choose.choice(WORDS) + choose.choice(["\n\n", "  ", " \n ", "'S", "'ll "]) + run()

    strings = [DESCRIBE + ANSWER, EDIT + ANSWER, DESCRIBE + " " + ANSWER, DESCRIBE + NEGATIVE + ANSWER, EDIT + PICTURE + " " + ANSWER, EDIT + "Picture 1: " + PICTURE + "x" + ANSWER,
               "", " ", "\n", NEGATIVE, "A cat holding a sign that says hello world", *ADDED]
    while len(strings) < count:
        one = text()
        if choose.randrange(4) == 0:
            one = choose.choice([DESCRIBE, EDIT, EDIT + PICTURE, EDIT + "Picture 1: " + PICTURE + "Picture 2: " + PICTURE]) + one + ANSWER
        strings.append(one)
    return strings


def known_ids():
    """Strings whose ids the published pipelines' documentation lists."""
    suffix = [151645, 198, 151644, 77091, 198]
    return [(DESCRIBE, DESCRIBE_IDS), (EDIT, EDIT_IDS), (DESCRIBE + ANSWER, DESCRIBE_IDS + suffix), (DESCRIBE + " " + ANSWER, DESCRIBE_IDS + [220] + suffix),
            (DESCRIBE + "A cat holding a sign that says hello world" + ANSWER, DESCRIBE_IDS + [32, 8251, 9963, 264, 1841, 429, 2727, 23811, 1879] + suffix),
            (EDIT + "Picture 1: " + PICTURE + ANSWER, EDIT_IDS + [24669, 220, 16, 25, 220, 151652, 151655, 151653] + suffix)]


def run_sumi(program, folder, strings):
    lines = "".join(json.dumps(string) + "\n" for string in strings)
    answer = subprocess.run([program, "tokenize", folder], input=lines.encode("ascii"), stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in answer.splitlines()]


def main():
    arguments = argparse.ArgumentParser(description="Compares sumi tokenize with the tokenizers package on Qwen2.5's vocabulary.")
    arguments.add_argument("sumi", help="the command line's program")
    arguments.add_argument("--folder", help="where the tokenizer is written; a temporary folder otherwise")
    arguments.add_argument("--count", type=int, default=10000, help="strings to compare")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(options.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary, merges = write_tokenizer(download(scratch), folder)
        strings, known = make_strings(options.count, vocabulary), known_ids()
        ids = run_sumi(options.sumi, folder, strings + [string for string, _ in known])
    wrong = 0
    if len(ids) != len(strings) + len(known):
        print(f"sumi answered {len(ids)} of {len(strings) + len(known)} lines")
        wrong += 1
    for string, got, want in [*zip(strings, ids, (one.ids for one in reference(vocabulary, merges).encode_batch(strings, add_special_tokens=False))),
                              *((string, got, want) for (string, want), got in zip(known, ids[len(strings):]))]:
        if got != want:
            wrong += 1
            if wrong <= 8:
                print(f"{json.dumps(string)}\n  sumi       {got}\n  tokenizers {want}")
    tokens = sum(len(one) for one in ids)
    print(f"qwen_vocabulary: {len(vocabulary)} tokens, {len(merges)} merges, {len(strings)} strings and {len(known)} with published ids, {tokens} ids, {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
