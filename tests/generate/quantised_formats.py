#!/usr/bin/env python3
"""Writes golden/common/files/quantised: matrices in the formats of other programs' files, and their values.

    python3 tests/generate/quantised_formats.py        needs numpy

The layouts are those that the programs' own code has: ComfyUI (comfy/ops.py) and comfy-kitchen (backends/eager: e2m1
pairs with the first one in the high bits, scales of nvfp4 and mxfp8 rearranged by to_blocked, w4a4, w4a8), ModelOpt
(nvfp4_tensor.py: the first one in the low bits, scales in rows), transformers (weight_scale_inv), compressed-tensors
and LightX2V (a scale for each row), ComfyUI-INT8-Fast (rotated int8 without a format). Decoding is by definition:
tables of all codes, repeated scales, dense rotations, float64 until the values are rounded once to float32. `expected`
has some rows of each layer, and their numbers. Prints how far the values are from the matrices that were quantised, and
what is added by a device's formats: bfloat16, int8 (rotated in groups of 256, a scale per row), e4m3 (a scale per row).
"""
import json
import os
import struct
import numpy

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "common", "files", "quantised")
H = numpy.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]]) / 2
random = numpy.random.default_rng(23)
tensors, expected, header = {}, {}, {}  # name: (dtype, array)


def small_float(bits, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0
    exponent, mantissa = bits >> mantissa_bits & (1 << exponent_bits) - 1, bits & (1 << mantissa_bits) - 1
    whole = mantissa / (1 << mantissa_bits) + (exponent > 0)
    return sign * whole * 2.0 ** (max(exponent, 1) - bias)


E4M3 = numpy.array([small_float(b, 4, 3, 7) if b & 0x7f != 0x7f else numpy.nan for b in range(256)])
E2M1 = numpy.array([small_float(b, 2, 1, 1) for b in range(16)])
assert list(E2M1[:8]) == [0, 0.5, 1, 1.5, 2, 3, 4, 6] and numpy.nanmax(E4M3) == 448


def nearest(table, values):  # codes of the nearest entries
    order = numpy.argsort(table, kind="stable")
    order = order[~numpy.isnan(table[order])]
    middle = (table[order][1:] + table[order][:-1]) / 2
    return order[numpy.searchsorted(middle, values)].astype(numpy.uint8)


def to_bf16(values):
    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def of_bf16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)


def rotation(cols, group):
    block = numpy.eye(1)
    while len(block) < group:
        block = numpy.kron(block, H)
    return numpy.kron(numpy.eye(cols // group), block)


def spread(scales, rows, cols, shape):  # a scale for each block of this many rows and columns
    return numpy.repeat(numpy.repeat(scales, rows, 0), cols, 1)[: shape[0], : shape[1]]


def blocks_max(weight, rows, cols):
    out = numpy.zeros((-(-weight.shape[0] // rows), -(-weight.shape[1] // cols)))
    for r in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[r, c] = abs(weight[r * rows:(r + 1) * rows, c * cols:(c + 1) * cols]).max()
    return out


def tiled(scales):  # comfy-kitchen's to_blocked
    rows, cols = -(-scales.shape[0] // 128) * 128, -(-scales.shape[1] // 4) * 4
    padded = numpy.zeros((rows, cols), scales.dtype)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    tiles = padded.reshape(rows // 128, 128, cols // 4, 4).transpose(0, 2, 1, 3)
    return tiles.reshape(-1, 4, 32, 4).transpose(0, 2, 1, 3).reshape(rows, cols)


def pairs(codes, high_first):
    first, second = codes[:, 0::2].astype(numpy.uint8) & 15, codes[:, 1::2].astype(numpy.uint8) & 15
    return first << 4 | second if high_first else second << 4 | first


def matrix(rows, cols):
    weight = random.normal(0.0, 0.05, (rows, cols))
    weight[:, random.integers(0, cols, 2)] *= 8
    return weight


def distance(a, b):
    return numpy.linalg.norm(a - b) / numpy.linalg.norm(b)


def as_int8(values):
    rows, cols = values.shape
    padded = numpy.zeros((rows, -(-cols // 256) * 256))
    padded[:, :cols] = values
    turn = rotation(padded.shape[1], 256)
    turned = padded @ turn
    scales = numpy.abs(turned).max(1, keepdims=True) / 127
    return (numpy.rint(turned / scales) * scales @ turn.T)[:, :cols]


def as_e4m3(values):
    scales = numpy.abs(values).max(1, keepdims=True) / 448
    return E4M3[nearest(E4M3, (values / scales).ravel())].reshape(values.shape) * scales


def add(layer, weight, values, parts, said=None, in_header=False):
    error = distance(values, weight)
    added = [distance(f(values), values) for f in (lambda v: of_bf16(to_bf16(v)), as_int8, as_e4m3)]
    print(f"{layer:24} {values.shape[0]}x{values.shape[1]}  error {error:.4f}  bf16 +{added[0]:.4f}  int8 +{added[1]:.4f}  e4m3 +{added[2]:.4f}")
    assert error < (0.2 if "4" in layer or "modelopt" in layer else 0.04), layer
    for suffix, (dtype, array) in parts.items():
        tensors[f"{layer}.{suffix}"] = (dtype, array)
    if said and in_header:
        header[layer] = said
    elif said:
        tensors[f"{layer}.comfy_quant"] = ("U8", numpy.frombuffer(json.dumps(said).encode(), numpy.uint8))
    rows = numpy.arange(len(values))
    if len(rows) > 16:
        rows = numpy.unique([0, 1, 31, 32, 33, 64, 97, 127, 128, len(rows) - 1])
        rows = rows[rows < len(values)]
    expected[layer] = ("F32", values.astype(numpy.float32)[rows])
    expected[f"{layer}.rows"] = ("I32", rows.astype(numpy.int32))


def fp8(layer, shape, block, scale_dtype, name, scale_shape=None, said=None, in_header=False):
    weight = matrix(*shape)
    scales = blocks_max(weight, *block) / 448
    if scale_dtype == "E8M0":
        exponents = numpy.ceil(numpy.log2(scales)).astype(int) + 127
        stored, scales, scale_dtype = exponents.astype(numpy.uint8), 2.0 ** (exponents - 127.0), "F8_E8M0"
    elif scale_dtype == "BF16":
        stored = to_bf16(scales * 1.01)  # no scale is rounded below what the largest value needs
        scales = of_bf16(stored)
    else:
        stored = scales.astype({"F32": numpy.float32, "F16": numpy.float16}[scale_dtype])
        scales = stored.astype(numpy.float64)
    scale = spread(scales, *block, shape)
    codes = nearest(E4M3, weight / scale)
    stored = stored.reshape(stored.shape if scale_shape is None else scale_shape)
    add(layer, weight, E4M3[codes] * scale, {"weight": ("F8_E4M3", codes), name: (scale_dtype, stored)}, said,
        in_header)


def int8(layer, shape, block, name, scale_shape=None, said=None):
    weight = matrix(*shape)
    scales = (blocks_max(weight, *block) / 127).astype(numpy.float32)
    scale = spread(scales.astype(numpy.float64), *block, shape)
    q = numpy.clip(numpy.rint(weight / scale), -127, 127).astype(numpy.int8)
    stored = scales.reshape(scales.shape if scale_shape is None else scale_shape)
    add(layer, weight, q * scale, {"weight": ("I8", q), name: ("F32", stored)}, said)


def int8_rotated(layer, shape, group, said):
    weight = matrix(*shape)
    turn = rotation(shape[1], group)
    scale = (abs(weight @ turn).max(1, keepdims=True) / 127).astype(numpy.float32)
    q = numpy.clip(numpy.rint(weight @ turn / scale), -127, 127).astype(numpy.int8)
    add(layer, weight, (q.astype(numpy.float64) @ turn) * scale.astype(numpy.float64),
        {"weight": ("I8", q), "weight_scale": ("F32", scale)}, said)


def mxfp8(layer, shape, dtype):
    weight = matrix(*shape)
    exponents = numpy.ceil(numpy.log2(blocks_max(weight, 1, 32) / 448)).astype(int) + 127
    scale = spread(2.0 ** (exponents - 127.0), 1, 32, shape)
    codes = nearest(E4M3, weight / scale)
    add(layer, weight, E4M3[codes] * scale,
        {"weight": ("F8_E4M3", codes), "weight_scale": (dtype, tiled(exponents.astype(numpy.uint8)))},
        {"format": "mxfp8"})


def nvfp4(layer, shape, is_comfy, has_second=True, has_columns=False, in_header=False, dtype="F8_E4M3"):
    weight = matrix(*shape)
    columns = to_bf16(random.uniform(0.5, 2.0, shape[1]))
    factors = of_bf16(columns) if has_columns else numpy.ones(shape[1])
    smooth = weight / factors
    second = numpy.float32(abs(smooth).max() / (6 * 448)) if has_second else numpy.float32(1)
    blocks = nearest(E4M3, blocks_max(smooth, 1, 16) / 6 / float(second))
    scale = spread(E4M3[blocks], 1, 16, shape) * float(second)
    codes = nearest(E2M1, numpy.divide(smooth, scale, where=scale > 0, out=numpy.zeros(shape)))
    parts = {"weight": ("U8", pairs(codes, is_comfy)),
             "weight_scale": (dtype, tiled(blocks) if is_comfy else blocks)}
    if has_second:
        parts["weight_scale_2"] = ("F32", numpy.array(second))
    if has_columns:
        parts["pre_quant_scale"] = ("BF16", columns)
    parts["input_scale"] = ("F32", numpy.array(numpy.float32(0.01)))
    add(layer, weight, E2M1[codes] * scale * factors, parts, {"format": "nvfp4"} if is_comfy else None, in_header)


def w4a4(layer, shape, group):
    weight = matrix(*shape)
    turn = rotation(shape[1], group)
    turned = weight @ turn
    scale = (abs(turned).max(1, keepdims=True) / 7).astype(numpy.float32)
    q = numpy.clip(numpy.rint(turned / scale), -7, 7).astype(numpy.int8)
    add(layer, weight, (q.astype(numpy.float64) @ turn) * scale.astype(numpy.float64),
        {"weight": ("I8", pairs(q, False)), "weight_scale": ("F32", scale.reshape(-1))},
        {"format": "convrot_w4a4", "convrot_groupsize": group})


def w4a8(layer, shape, group, turn_group, codebook, dtype):
    weight = matrix(*shape)
    turn = rotation(shape[1], turn_group)
    turned = weight @ turn
    line = numpy.linspace(-1, 1, 16)
    table = (numpy.sign(line) * abs(line) ** 1.3 * 0.98 if codebook else numpy.arange(16) - 8).astype(numpy.float32)
    relative = blocks_max(turned, 1, group) / abs(table).max()
    channel = (abs(turned).max(1) / 127).astype(numpy.float32)
    relative = relative / channel[:, None]
    stored = nearest(E4M3, relative) if dtype != "F32" else relative.astype(numpy.float32)
    relative = (E4M3[stored] if dtype != "F32" else stored).astype(numpy.float32)
    repeated = spread(relative, 1, group, shape)
    codes = numpy.argmin(abs((turned / channel[:, None])[:, :, None] - table[None, None] * repeated[:, :, None]), 2)
    # float32, as the integers are defined by it
    levels = numpy.clip(numpy.rint(table[codes] * repeated), -127, 127).astype(numpy.float64)
    parts = {"weight": ("I8", pairs(codes, False)), "weight_s_rel": (dtype, stored),
             "weight_s_channel": ("F32", channel)}
    said = {"format": "asym_w4a8_int8", "group_size": group, "convrot_groupsize": turn_group}
    if codebook:
        parts["weight_codebook"] = ("F32", table)
    add(layer, weight, (levels @ turn) * channel.astype(numpy.float64)[:, None], parts, said)


def save(path, contents, metadata=None):
    position, entries, data = 0, {}, []
    for name, (dtype, array) in contents.items():
        raw = numpy.ascontiguousarray(array).tobytes()
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [position, position + len(raw)]}
        position += len(raw)
        data.append(raw)
    if metadata:
        entries["__metadata__"] = metadata
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


fp8("fp8_blocks_bf16", (140, 200), (128, 128), "BF16", "weight_scale_inv")
fp8("fp8_blocks_f32", (140, 40), (128, 128), "F32", "weight_scale_inv")
fp8("fp8_blocks_of_16", (48, 32), (16, 16), "F16", "weight_scale")
fp8("fp8_blocks_e8m0", (140, 40), (128, 128), "E8M0", "weight_scale_inv")
fp8("fp8_one_inverse", (4, 40), (4, 40), "BF16", "weight_scale_inv", ())
fp8("fp8_one_f16", (4, 40), (4, 40), "F16", "scale", (1,))
fp8("fp8_rows_bf16", (5, 40), (1, 40), "BF16", "weight_scale")
fp8("fp8_rows_f16", (5, 40), (1, 40), "F16", "scale", (5,))
fp8("fp8_rowwise", (5, 40), (1, 40), "F32", "weight_scale", (5,), {"format": "float8_e4m3fn_rowwise"})
fp8("fp8_blockwise", (128, 64), (64, 64), "F32", "weight_scale", None,
    {"format": "float8_e4m3fn_blockwise", "group_size": 64}, True)
fp8("fp8_groups", (6, 256), (1, 64), "F32", "weight_scale", (6, 4, 1),
    {"format": "float8_e4m3fn_block3d", "group_size": 64})
int8("int8_rows", (6, 40), (1, 40), "weight_scale")
int8("int8_one", (6, 40), (6, 40), "weight_scale", ())
int8("int8_blocks", (128, 64), (64, 64), "weight_scale", None, {"format": "int8_blockwise", "group_size": 64})
int8_rotated("int8_fast", (3, 256), 256, {"convrot": True, "per_row": True})
mxfp8("mxfp8", (130, 160), "F8_E8M0")
mxfp8("mxfp8_bytes", (3, 32), "U8")
nvfp4("nvfp4", (130, 80), True)
nvfp4("nvfp4_bytes", (3, 96), True, in_header=True, dtype="U8")
nvfp4("nvfp4_one_level", (3, 64), True, has_second=False)
nvfp4("nvfp4_awq", (3, 64), True, has_columns=True)
nvfp4("modelopt", (3, 96), False)
nvfp4("modelopt_awq", (3, 32), False, has_columns=True)
w4a4("w4a4", (3, 512), 256)
w4a4("w4a4_16", (3, 48), 16)
w4a8("w4a8", (4, 512), 16, 256, True, "F8_E4M3")
w4a8("w4a8_bytes", (3, 128), 32, 64, True, "U8")
w4a8("w4a8_integers", (3, 64), 16, 64, False, "F32")
os.makedirs(FOLDER, exist_ok=True)
save(f"{FOLDER}/layers.safetensors", tensors,
     {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": header}),
      "quantization_config": json.dumps({"quant_method": "modelopt", "quant_algo": "NVFP4"})})
save(f"{FOLDER}/expected.safetensors", expected)
