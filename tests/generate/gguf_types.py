#!/usr/bin/env python3
"""Writes GGUF files of the block types that golden/common/files/gguf/every_type.gguf lacks, and the values in them.

    python3 tests/generate/gguf_types.py        needs gguf (0.19.0 was used), numpy and safetensors

block_types.gguf has random blocks of Q2_K, Q3_K, IQ4_NL and IQ4_XS: every byte is random, but for the half-precision factors
d and dmin, which are small, of both signs, and in one block of each type subnormal. Its values are what the gguf package's
own dequantisation makes of the blocks; they go to expected.safetensors as "block_types.NAME". malformed/ gets rows that no
number of blocks fills. The manifest gets a line for each. Two runs give the same bytes.
"""
import json
import os
import gguf
import numpy
import safetensors.numpy

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "common", "files", "gguf")
Type = gguf.GGMLQuantizationType
TYPES = {  # where the halves lie in a block, and the shape of the tensor
    Type.Q2_K: ((80, 82), (2, 512)),
    Type.Q3_K: ((108,), (2, 512)),
    Type.IQ4_NL: ((0,), (3, 64)),
    Type.IQ4_XS: ((0,), (2, 512)),
}
random = numpy.random.default_rng(20260)


def random_blocks(kind):
    halves, (rows, cols) = TYPES[kind]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * cols // values, size), numpy.uint8)
    for at in halves:
        factors = random.normal(0.0, 0.01, len(blocks)).astype(numpy.float16)
        factors[-1] = 3e-6  # a subnormal half
        blocks[:, at:at + 2] = factors.view(numpy.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def write(path, tensors):
    """tensors: name -> type and rows, which are the bytes of their blocks."""
    writer = gguf.GGUFWriter(path, "qwen_image")
    for name, (kind, rows) in tensors.items():
        writer.add_tensor(name, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def set_first_extent(path, name, extent):
    """Changes ne[0] of a tensor in a file that exists."""
    data = bytearray(open(path, "rb").read())
    at = data.index(name.encode()) + len(name) + 4
    data[at:at + 8] = extent.to_bytes(8, "little")
    open(path, "wb").write(data)


def main():
    tensors = {f"{kind.name.lower()}.weight": (kind, random_blocks(kind)) for kind in TYPES}
    write(f"{FOLDER}/block_types.gguf", tensors)
    reader = gguf.GGUFReader(f"{FOLDER}/block_types.gguf")
    described = {}
    values = safetensors.numpy.load_file(f"{FOLDER}/expected.safetensors")
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        described[tensor.name] = {"type": tensor.tensor_type.name, "shape": shape}
        floats = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        assert floats.dtype == numpy.float32 and numpy.isfinite(floats).all()
        values[f"block_types.{tensor.name}"] = floats
    safetensors.numpy.save_file(values, f"{FOLDER}/expected.safetensors")
    lines = [{"file": "block_types.gguf", "expect": "accept", "what": "random blocks", "data_offset": reader.data_offset,
              "metadata": {"general.architecture": {"type": "STRING", "value": "qwen_image"}}, "tensors": described}]
    for kind, extent in ((Type.IQ4_NL, 33), (Type.IQ4_XS, 128), (Type.Q2_K, 64), (Type.Q3_K, 257)):
        name = kind.name.lower()
        file = f"malformed/row_not_block_multiple_{name}.gguf"
        write(f"{FOLDER}/{file}", {f"{name}.weight": tensors[f"{name}.weight"]})
        set_first_extent(f"{FOLDER}/{file}", f"{name}.weight", extent)
        lines.append({"file": file, "expect": "reject", "python_reader": "reject",
                      "what": f"{kind.name} rows of {extent} values"})
    with open(f"{FOLDER}/manifest.json", encoding="utf-8") as f:
        manifest = json.load(f)
    made = {line["file"] for line in lines}
    manifest = [line for line in manifest if line["file"] not in made] + lines
    with open(f"{FOLDER}/manifest.json", "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(line) for line in manifest) + "\n]\n")


main()
