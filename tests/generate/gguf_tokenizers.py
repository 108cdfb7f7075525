#!/usr/bin/env python3
"""Writes golden/common/tokenizers/*/tokenizer.gguf: tokenizers as llama.cpp's converter puts them into the metadata of a GGUF file, without tensors.

    pip install gguf                                 0.19.0 was used
    python3 tests/generate/gguf_tokenizers.py

qwen: from vocab.json, merges.txt and tokenizer_config.json beside it. newbie-gemma: from tokenizer.model and tokenizer_config.json. As the converter does: ids without a token
are "[PAD7]" of type UNUSED (two at the end), special tokens are CONTROL, other added tokens USER_DEFINED. In the SentencePiece form these have blanks in place of U+2581 and, with the
control tokens, the score -1000, and <unk> is CONTROL, too; its id is a number of its own. The expected ids are those in cases.jsonl.
"""
import json
import os
import gguf

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "common", "tokenizers") + "/"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def pad(texts, types, count):
    for i in range(len(texts), len(texts) + count):
        texts.append(f"[PAD{i}]")
        types.append(UNUSED)


def qwen(folder):
    vocab = json.load(open(folder + "vocab.json", encoding="utf-8"))
    added = json.load(open(folder + "tokenizer_config.json", encoding="utf-8"))["added_tokens_decoder"]
    merges = [line for line in open(folder + "merges.txt", encoding="utf-8").read().split("\n") if line and not line.startswith("#version")]
    texts, types = [None] * (len(vocab) + len(added)), [NORMAL] * (len(vocab) + len(added))
    for text, number in vocab.items():
        texts[number] = text
    for number, token in added.items():
        texts[int(number)] = token["content"]
        types[int(number)] = CONTROL if token["special"] else USER_DEFINED
    pad(texts, types, 2)
    w = gguf.GGUFWriter(folder + "tokenizer.gguf", "qwen3")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(texts)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_eos_token_id(texts.index("<|im_end|>"))
    w.add_bos_token_id(texts.index("<|endoftext|>"))
    w.add_add_bos_token(False)
    return w


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = 4
            if key & 7 == 2:
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def gemma(folder):
    texts, types, scores = [], [], []
    for number, value in fields(open(folder + "tokenizer.model", "rb").read()):
        if number == 1:
            piece = dict(fields(value))
            kind = piece.get(3, NORMAL)
            added = kind in (UNKNOWN, CONTROL, USER_DEFINED)
            text = piece[1].decode()
            texts.append(text.replace("\u2581", " ") if kind == USER_DEFINED else text)
            types.append(CONTROL if kind == UNKNOWN else kind)
            scores.append(-1000.0 if added else float(gguf.gguf_reader.np.frombuffer(piece.get(2, b"\0\0\0\0"), "<f4")[0]))
    for number, token in json.load(open(folder + "tokenizer_config.json", encoding="utf-8"))["added_tokens_decoder"].items():
        assert int(number) == len(texts)
        texts.append(token["content"])
        types.append(CONTROL)
        scores.append(-1000.0)
    pad(texts, types, 2)
    scores += [-10000.0] * 2
    w = gguf.GGUFWriter(folder + "tokenizer.gguf", "gemma3")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(texts)
    w.add_token_scores(scores)
    w.add_token_types(types)
    w.add_bos_token_id(2)
    w.add_eos_token_id(1)
    w.add_unk_token_id(3)
    w.add_pad_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(False)
    return w


for writer in (qwen(ROOT + "qwen/"), gemma(ROOT + "newbie-gemma/")):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
