"""The demo model's own byte-level BPE tokenizer, in the layout of Qwen's: NFC, regex split, byte level, special tokens after the vocabulary."""

import json
import os
import random
from pathlib import Path

import numpy

VOCABULARY = 616  # 256 bytes + merges; with the special tokens below 640
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LONGEST = 96  # tokens of a caption in training, template included
LOADED = {}
TEMPLATE = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def train(folder):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    from world import words_for_tokenizer

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    text = [TEMPLATE.format(c) for c in words_for_tokenizer()] + ["user\nassistant\n"]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator([t.replace("<|im_start|>", "").replace("<|im_end|>", "") for t in text], trainer)
    tokenizer.add_special_tokens(SPECIAL)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": 512, "add_prefix_space": False,
              "chat_template": "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    return tokenizer


def load(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


def encode(tokenizer, captions):
    return [e.ids for e in tokenizer.encode_batch([TEMPLATE.format(c) for c in captions])]


def encode_scenes(task):
    """For worker processes: several captions of every scene, as ids [n * per_scene, LONGEST] padded with the end token, and their lengths. Longer captions are cut to nothing: length 0."""
    folder, scenes, seed, per_scene = task
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from world import caption

    if str(folder) not in LOADED:
        LOADED[str(folder)] = load(folder)
    tokenizer, rng = LOADED[str(folder)], random.Random(seed)
    ids = encode(tokenizer, [caption(s, rng) for s in scenes for _ in range(per_scene)])
    table = numpy.full((len(ids), LONGEST), tokenizer.token_to_id("<|endoftext|>"), numpy.int16)
    for row, i in zip(table, ids):
        row[: len(i)] = i[:LONGEST]
    return table, numpy.array([len(i) if len(i) <= LONGEST else 0 for i in ids], numpy.int16)
