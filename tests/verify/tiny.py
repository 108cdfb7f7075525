#!/usr/bin/env python3
"""Runs verify.py on a tiny checkpoint of tests/golden: tiny.py VERIFY.PY CHECKPOINT ...

Three widths of Z-Image are constants in diffusers and not in config.json. Those of a tiny checkpoint are smaller, so the
constants are replaced by the shapes of its tensors.
"""

import json
import runpy
import sys
from pathlib import Path


def shapes(folder):
    found = {}
    for path in Path(folder).glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        found.update({name: entry["shape"] for name, entry in header.items() if name != "__metadata__"})
    return found


def shrink(folder):
    import diffusers.models.transformers.transformer_z_image as module

    found = shapes(folder)
    feed_forward, embedder = module.FeedForward, module.TimestepEmbedder
    module.FeedForward = lambda dim, hidden_dim: feed_forward(
        dim=dim, hidden_dim=found["layers.0.feed_forward.w1.weight"][0]
    )
    module.TimestepEmbedder = lambda out_size, mid_size=None: embedder(
        out_size, mid_size=found["t_embedder.mlp.0.weight"][0]
    )
    module.TimestepEmbedder.timestep_embedding = embedder.timestep_embedding
    module.ADALN_EMBED_DIM = found["layers.0.adaLN_modulation.0.weight"][1]


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    transformer = Path(sys.argv[1]) / "transformer"
    if "layers.0.adaLN_modulation.0.weight" in shapes(transformer) and "cap_pad_token" in shapes(transformer):
        shrink(transformer)
    runpy.run_path(sys.argv[0], run_name="__main__")
