"""The tokenizer of the demo edit model: a byte-level BPE in the layout of Qwen's, in which the template's beginning has exactly 64 tokens, as with the released vocabulary.

The released pipeline cuts off the features of that beginning by number, so that a tokenizer that needs one token more or fewer would shift everything behind it."""

import json
import random
from pathlib import Path

import edit_world
from world import caption

VOCABULARY = 880  # 256 bytes and merges; the special tokens follow
ROWS = 888        # of the embedding
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BEFORE = ("<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's text instruction should alter or modify "
          "the image. Generate a new image that meets the user's requirements while maintaining consistency with the original input where appropriate.<|im_end|>\n<|im_start|>user\n")
AFTER = "<|im_end|>\n<|im_start|>assistant\n"
PICTURE = "Picture {}: <|vision_start|><|image_pad|><|vision_end|>"
DROPPED = 64


def corpus(count, seed=1):
    rng = random.Random(seed)
    texts = [caption(s, rng) for s in edit_world.drawing_scenes(rng, count)]
    for second, share in ((False, count), (True, count // 2)):
        texts += [edit_world.instruction(p, rng) for p in edit_world.pairs(rng, share, second)]
    return texts


def train(folder, count=12000):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    template = BEFORE + AFTER + PICTURE.format(1)
    for special in SPECIAL:
        template = template.replace(special, "")
    texts = corpus(count) + [template] * (count // 4)  # often enough for every word of it to become one token
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    tokenizer.add_special_tokens(SPECIAL)
    if len(tokenizer.encode(BEFORE).ids) != DROPPED:
        raise SystemExit(f"the template's beginning has {len(tokenizer.encode(BEFORE).ids)} tokens, not {DROPPED}: {tokenizer.encode(BEFORE).tokens}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": 2048, "add_prefix_space": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    return tokenizer


def load(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


def prompt(text, pictures):
    return BEFORE + "".join(PICTURE.format(k + 1) for k in range(pictures)) + text + AFTER


def encode(tokenizer, texts, grids):
    """Ids with a row for every cell of the pictures, and their layout for edit_nets.TextEncoder. grids: (rows, columns) of cells of each picture, the same for all texts -> [(ids, runs)]."""
    pad, out = tokenizer.token_to_id("<|image_pad|>"), []
    for encoding in tokenizer.encode_batch([prompt(t, len(grids)) for t in texts]):
        ids, runs, count, k = [], [], 0, 0
        for token in encoding.ids:
            if token == pad:
                ids += [pad] * (grids[k][0] * grids[k][1])
                runs += [count, tuple(grids[k])]
                count, k = 0, k + 1
            else:
                ids.append(token)
                count += 1
        out.append((ids, (*runs, count)))
    return out
