#!/usr/bin/env python3
"""Writes golden/common/files/int8: matrices quantised as ComfyUI's "int8_tensorwise" files have them, and their values.

    python3 tests/generate/int8_convrot.py        needs numpy and safetensors

The rotation is a dense matrix here, made by its definition: a Kronecker power of H on the diagonal. Values are float64
until they are rounded once to float32: the sums of 8-bit integers are exact, so there is one right answer for every bit.
"""
import json
import os
import numpy
import safetensors.numpy

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "common", "files", "int8")
H = numpy.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]]) / 2
# layer: rows, columns, columns that are rotated together (0: none), shape of the scales, where the format stands
LAYERS = {
    "to_q": (6, 512, 256, (6, 1), "tensor"),
    "to_k": (5, 512, 64, (5,), "header"),
    "to_v": (3, 512, 0, (3, 1), "tensor"),
    "to_out": (4, 80, 16, (4, 1), "params"),
    "narrow": (2, 12, 4, (2, 1), "tensor"),
    "whole": (2, 256, 256, (), "tensor"),
}
random = numpy.random.default_rng(11)
tensors, expected, header = {}, {}, {}
for layer, (rows, cols, group, scale_shape, place) in LAYERS.items():
    rotation = numpy.eye(cols)
    if group:
        block = numpy.eye(1)
        while len(block) < group:
            block = numpy.kron(block, H)
        rotation = numpy.kron(numpy.eye(cols // group), block)
        assert (rotation @ rotation == numpy.eye(cols)).all()
    weight = random.normal(0.0, 0.05, (rows, cols))
    weight[:, random.integers(0, cols, 2)] *= 20  # what the rotation is for
    rotated = weight @ rotation
    scale = (abs(rotated).max(axis=1 if scale_shape else None, keepdims=True) / 127).astype(numpy.float32)
    q = numpy.clip(numpy.rint(rotated / scale), -127, 127).astype(numpy.int8)
    values = (q.astype(numpy.float64) @ rotation) * scale.astype(numpy.float64)
    error = numpy.linalg.norm(values - weight) / numpy.linalg.norm(weight)
    assert error < (0.03 if group else 0.2)
    tensors[f"{layer}.weight"] = q
    tensors[f"{layer}.weight_scale"] = scale.reshape(scale_shape)
    expected[layer] = values.astype(numpy.float32)
    said = {"convrot": True, "convrot_groupsize": group} if group else {}
    said = {"format": "int8_tensorwise", **({"params": said} if place == "params" else said)}
    if place == "header":
        header[layer] = said
    else:
        tensors[f"{layer}.comfy_quant"] = numpy.frombuffer(json.dumps(said).encode(), numpy.uint8)
os.makedirs(FOLDER, exist_ok=True)
safetensors.numpy.save_file(tensors, f"{FOLDER}/layers.safetensors", {
    "_quantization_metadata": json.dumps({"format_version": "1.0", "layers": header})})
safetensors.numpy.save_file(expected, f"{FOLDER}/expected.safetensors")
