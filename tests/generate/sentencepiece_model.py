#!/usr/bin/env python3
"""Writes a SentencePiece form of golden/common/tokenizers/newbie-gemma and what the sentencepiece library makes of texts.

    python3 tests/generate/sentencepiece_model.py        needs sentencepiece (0.2.3 was used) and protobuf

tokenizer.model has the pieces of tokenizer.json at their ids, as the released model of this layout has them: learnt pieces
with falling scores, single characters last, bytes, control pieces and units of the user's (score 0). The last token of
tokenizer.json is not in the model; tokenizer_config.json adds it. cases_sentencepiece.jsonl holds the library's own ids
(BOS in front) of the texts of the folders gemma3 and newbie-gemma, but for three kinds on which it differs from
tokenizer.json on purpose: control pieces written out, which the library takes for plain text, U+2581 written out, which it
takes for a blank, and U+0000.
"""
import json
import os
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "common", "tokenizers")
OUT = os.path.join(ROOT, "newbie-gemma")
LAST = "<image_soft_token>"
CONTROL = {"<pad>", "<eos>", "<bos>"}

with open(os.path.join(ROOT, "../../newbie/model/text_encoder/tokenizer.json"), encoding="utf-8") as f:
    whole = json.load(f)
vocab = sorted(whole["model"]["vocab"].items(), key=lambda item: item[1])
added = {t["content"] for t in whole["added_tokens"]}
model = pb.ModelProto()
learnt = 0
for text, number in vocab:
    if text == LAST:
        continue
    assert number == len(model.pieces)
    piece = model.pieces.add(piece=text, score=0.0)
    kinds = pb.ModelProto.SentencePiece
    if text == "<unk>":
        piece.type = kinds.UNKNOWN
    elif text in CONTROL:
        piece.type = kinds.CONTROL
    elif text.startswith("<0x") and len(text) == 6:
        piece.type = kinds.BYTE
    elif text in added:
        piece.type = kinds.USER_DEFINED
    else:
        piece.type = kinds.NORMAL
        piece.score = -float(learnt)
        learnt += 1
model.trainer_spec.model_type = pb.TrainerSpec.BPE
model.trainer_spec.byte_fallback = True
model.trainer_spec.pad_id, model.trainer_spec.eos_id, model.trainer_spec.bos_id, model.trainer_spec.unk_id = 0, 1, 2, 3
model.trainer_spec.pad_piece, model.trainer_spec.eos_piece = "<pad>", "<eos>"
model.trainer_spec.bos_piece, model.trainer_spec.unk_piece = "<bos>", "<unk>"
model.normalizer_spec.name = "identity"
model.normalizer_spec.add_dummy_prefix = False
model.normalizer_spec.remove_extra_whitespaces = False
data = model.SerializeToString()
with open(f"{OUT}/tokenizer.model", "wb") as f:
    f.write(data)

config = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False,
          "added_tokens_decoder": {str(len(model.pieces)): {"content": LAST, "special": True}}}
with open(f"{OUT}/tokenizer_config.json", "w", encoding="ascii", newline="\n") as f:
    f.write(json.dumps(config, indent=1) + "\n")

library = sentencepiece.SentencePieceProcessor(model_proto=data)
lines = []
for folder in ("gemma3", "newbie-gemma"):
    with open(f"{ROOT}/{folder}/cases.jsonl", encoding="utf-8") as f:
        for line in f:
            case = json.loads(line)
            text = case["text"]
            if "\0" in text or "\u2581" in text or any(t in text for t in CONTROL | {"<unk>", LAST}):
                continue
            # half of a surrogate pair is no text
            if any(0xD800 <= ord(c) < 0xE000 for c in text):
                continue
            ids = [2] + library.encode(text)
            lines.append(json.dumps({"category": case.get("category", ""), "text": text, "ids": ids}))
with open(f"{OUT}/cases_sentencepiece.jsonl", "w", encoding="ascii", newline="\n") as f:
    f.write("\n".join(lines) + "\n")
print(len(model.pieces), "pieces,", len(data), "bytes,", len(lines), "texts")
