#!/usr/bin/env python3
"""Quantises the transformer of a diffusers folder: a GGUF file of one of its block types, or fp8 with a scale for each row.

    quantise.py FOLDER/transformer/diffusion_pytorch_model.safetensors q4_k OUT.gguf
    quantise.py FOLDER/transformer/diffusion_pytorch_model.safetensors fp8 OUT.safetensors
    quantise.py --self-test            against the gguf package, which must be installed for this

Needs numpy alone. Matrices of blocks are quantised, the rest stays as it is. Rows that no number of blocks fills take the
smaller block type that llama.cpp's tools take. Scales are searched for the least square error, without weights.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

import numpy

NONLINEAR = numpy.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], numpy.float32)
BLOCKS = ("layers.", "noise_refiner.", "context_refiner.", "transformer_blocks.", "single_transformer_blocks.", "double_blocks.", "single_blocks.")  # where names of matrices begin


def divided(a, b):
    return numpy.divide(a, b, out=numpy.zeros(numpy.broadcast(a, b).shape, numpy.float32), where=b != 0)


def half(x):
    return numpy.asarray(x, numpy.float32).astype(numpy.float16)


def halves(x):
    """[n] -> [n, 2] bytes"""
    return half(x).reshape(-1, 1).view(numpy.uint8)


def nearest(x, levels):
    """Indices of the nearest of the ascending levels."""
    return numpy.searchsorted((levels[1:] + levels[:-1]) / 2, x).astype(numpy.int32)


# ---- Scales ---------------------------------------------------------------------------------------------------------
# Values are [..., count], and what is found for them [..., 1].

def best_scale(x, levels):
    """The scale d of the least error for x = d * levels[code], of either sign."""
    peak = numpy.take_along_axis(x, numpy.abs(x).argmax(-1)[..., None], -1)
    best, error = numpy.zeros_like(peak), numpy.full_like(peak, numpy.inf)
    for i in range(-9, 10):
        guess = peak / (levels[0] * (1 + 0.02 * i))
        value = levels[nearest(divided(x, guess), levels)]
        scale = divided((x * value).sum(-1, keepdims=True), (value * value).sum(-1, keepdims=True))
        off = ((x - scale * value) ** 2).sum(-1, keepdims=True)
        best, error = numpy.where(off < error, scale, best), numpy.minimum(off, error)
    return best


def best_line(x, most):
    """The scale and the minimum, at most 0, of the least error for x = scale * code + minimum with codes 0 .. most."""
    low, high = numpy.minimum(x.min(-1, keepdims=True), 0), x.max(-1, keepdims=True)
    scale, minimum = (high - low) / most, low
    error = ((x - scale * numpy.clip(numpy.rint(divided(x - low, scale)), 0, most) - minimum) ** 2).sum(-1, keepdims=True)
    for i in range(21):
        guess = divided(high - low, numpy.float32(most - 1 + 0.1 * i))
        code = numpy.clip(numpy.rint(divided(x - low, guess)), 0, most)
        mean, middle = code.mean(-1, keepdims=True), x.mean(-1, keepdims=True)
        slope = divided(((code - mean) * (x - middle)).sum(-1, keepdims=True), ((code - mean) ** 2).sum(-1, keepdims=True))
        start = middle - slope * mean
        through = divided((code * x).sum(-1, keepdims=True), (code * code).sum(-1, keepdims=True))
        slope, start = numpy.where(start > 0, through, slope), numpy.minimum(start, 0)
        off = ((x - slope * code - start) ** 2).sum(-1, keepdims=True)
        better = (off < error) & (slope > 0)
        scale, minimum = numpy.where(better, slope, scale), numpy.where(better, start, minimum)
        error = numpy.where(better, off, error)
    return scale, minimum


# ---- Blocks of 32: [n, 32] -> [n, bytes] -------------------------------------------------------------------------------

def nibbles(code):
    code = code.astype(numpy.uint8)
    return code[:, :16] & 15 | (code[:, 16:] & 15) << 4


def fifth_bits(code):
    return (((code >> 4).astype(numpy.uint32) << numpy.arange(32, dtype=numpy.uint32)).sum(1, dtype=numpy.uint32)).reshape(-1, 1).view(numpy.uint8)


def by_scale(x, levels):
    d = half(best_scale(x, levels)).astype(numpy.float32)
    return d, nearest(divided(x, d), levels)


def by_range(x, most):
    low = half(x.min(1, keepdims=True)).astype(numpy.float32)
    d = half((x.max(1, keepdims=True) - low) / most).astype(numpy.float32)
    return d, low, numpy.clip(numpy.rint(divided(x - low, d)), 0, most).astype(numpy.int32)


def q8_0(x):
    d = half(numpy.abs(x).max(1, keepdims=True) / 127).astype(numpy.float32)
    return numpy.hstack([halves(d), numpy.clip(numpy.rint(divided(x, d)), -127, 127).astype(numpy.int8).view(numpy.uint8)])


def q4_0(x):
    d, code = by_scale(x, numpy.arange(-8, 8, dtype=numpy.float32))
    return numpy.hstack([halves(d), nibbles(code)])


def q5_0(x):
    d, code = by_scale(x, numpy.arange(-16, 16, dtype=numpy.float32))
    return numpy.hstack([halves(d), fifth_bits(code), nibbles(code)])


def q4_1(x):
    d, low, code = by_range(x, 15)
    return numpy.hstack([halves(d), halves(low), nibbles(code)])


def q5_1(x):
    d, low, code = by_range(x, 31)
    return numpy.hstack([halves(d), halves(low), fifth_bits(code), nibbles(code)])


def iq4_nl(x):
    d, code = by_scale(x, NONLINEAR)
    return numpy.hstack([halves(d), nibbles(code)])


# ---- Blocks of 256: [n, 256] -> [n, bytes] -------------------------------------------------------------------------------

def scaled_scales(scale, least, most):
    """One half-precision factor for a block's scales [n, k, 1], which become integers least .. most; least takes the largest."""
    peak = numpy.take_along_axis(scale, numpy.abs(scale).argmax(1)[:, None], 1)
    d = half(peak / least).astype(numpy.float32)
    return d, numpy.clip(numpy.rint(divided(scale, d)), least, most).astype(numpy.int32)


def with_minimum(x, parts, most, scale_most):
    """-> d, dmin [n, 1, 1], scales and minima [n, parts] in 0 .. scale_most, codes [n, 256]"""
    x = x.reshape(len(x), parts, -1)
    scale, minimum = best_line(x, most)
    d = half(scale.max(1, keepdims=True) / scale_most).astype(numpy.float32)
    dmin = half((-minimum).max(1, keepdims=True) / scale_most).astype(numpy.float32)
    ls = numpy.clip(numpy.rint(divided(scale, d)), 0, scale_most)
    lm = numpy.clip(numpy.rint(divided(-minimum, dmin)), 0, scale_most)
    code = numpy.clip(numpy.rint(divided(x + dmin * lm, d * ls)), 0, most)
    return d, dmin, ls[..., 0].astype(numpy.uint8), lm[..., 0].astype(numpy.uint8), code.reshape(len(x), -1).astype(numpy.uint8)


def symmetric(x, parts, levels, least, most):
    """-> d [n, 1, 1], scales [n, parts] in least .. most, indices of levels [n, 256]"""
    x = x.reshape(len(x), parts, -1)
    d, ls = scaled_scales(best_scale(x, levels), least, most)
    return d, ls[..., 0], nearest(divided(x, d * ls), levels).reshape(len(x), -1).astype(numpy.uint8)


def six_bits(ls, lm):
    """Eight scales and eight minima of 6 bits in 12 bytes."""
    out = numpy.zeros((len(ls), 12), numpy.uint8)
    out[:, :4], out[:, 4:8] = ls[:, :4] | ls[:, 4:] >> 4 << 6, lm[:, :4] | lm[:, 4:] >> 4 << 6
    out[:, 8:] = ls[:, 4:] & 15 | (lm[:, 4:] & 15) << 4
    return out


def pairs(code):
    """The low 4 bits of two runs of 32 share a byte."""
    code = code.reshape(len(code), 4, 2, 32) & 15
    return (code[:, :, 0] | code[:, :, 1] << 4).reshape(len(code), 128)


def quarters(code):
    """The low 2 bits of four runs of 32 share a byte."""
    code = code.reshape(len(code), 2, 4, 32) & 3
    return (code[:, :, 0] | code[:, :, 1] << 2 | code[:, :, 2] << 4 | code[:, :, 3] << 6).reshape(len(code), 64)


def runs_of_bits(bits):
    """[n, 256] of 0 and 1 -> byte l has bit k of value 32 k + l"""
    return (bits.reshape(len(bits), 8, 32) << numpy.arange(8, dtype=numpy.uint8)[:, None]).sum(1, dtype=numpy.uint8)


def q2_k(x):
    d, dmin, ls, lm, code = with_minimum(x, 16, 3, 15)
    return numpy.hstack([ls | lm << 4, quarters(code), halves(d), halves(dmin)])


def q3_k(x):
    d, ls, code = symmetric(x, 16, numpy.arange(-4, 4, dtype=numpy.float32), -32, 31)
    ls = (ls + 32).astype(numpy.uint8)
    high = (ls >> 4).reshape(-1, 4, 4)
    high = high[:, 0] | high[:, 1] << 2 | high[:, 2] << 4 | high[:, 3] << 6
    return numpy.hstack([runs_of_bits(code >> 2), quarters(code), ls[:, :8] & 15 | (ls[:, 8:] & 15) << 4, high, halves(d)])


def q4_k(x):
    d, dmin, ls, lm, code = with_minimum(x, 8, 15, 63)
    return numpy.hstack([halves(d), halves(dmin), six_bits(ls, lm), pairs(code)])


def q5_k(x):
    d, dmin, ls, lm, code = with_minimum(x, 8, 31, 63)
    return numpy.hstack([halves(d), halves(dmin), six_bits(ls, lm), runs_of_bits(code >> 4), pairs(code)])


def q6_k(x):
    d, ls, code = symmetric(x, 16, numpy.arange(-32, 32, dtype=numpy.float32), -128, 127)
    runs = code.reshape(-1, 2, 4, 32)
    low, high = runs & 15, runs >> 4
    low = numpy.stack([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], 2)
    high = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    return numpy.hstack([low.reshape(-1, 128), high.reshape(-1, 64), ls.astype(numpy.int8).view(numpy.uint8), halves(d)])


def iq4_xs(x):
    d, ls, code = symmetric(x, 8, NONLINEAR, -32, 31)
    ls = (ls + 32).astype(numpy.uint8)
    low = (ls & 15)[:, 0::2] | (ls & 15)[:, 1::2] << 4
    high = ((ls >> 4).astype(numpy.uint16) << numpy.arange(0, 16, 2, dtype=numpy.uint16)).sum(1, dtype=numpy.uint16).reshape(-1, 1).view(numpy.uint8)
    code = code.reshape(-1, 8, 2, 16)
    return numpy.hstack([halves(d), high, low, (code[:, :, 0] | code[:, :, 1] << 4).reshape(-1, 128)])


# name -> ggml's number, values in a block, bytes of it, what makes blocks, what is taken where rows have no whole blocks
TYPES = {"q4_0": (2, 32, 18, q4_0, None), "q4_1": (3, 32, 20, q4_1, None), "q5_0": (6, 32, 22, q5_0, None), "q5_1": (7, 32, 24, q5_1, None),
         "q8_0": (8, 32, 34, q8_0, None), "q2_k": (10, 256, 84, q2_k, "iq4_nl"), "q3_k": (11, 256, 110, q3_k, "iq4_nl"),
         "q4_k": (12, 256, 144, q4_k, "q5_0"), "q5_k": (13, 256, 176, q5_k, "q5_1"), "q6_k": (14, 256, 210, q6_k, "q8_0"),
         "iq4_nl": (20, 32, 18, iq4_nl, None), "iq4_xs": (23, 256, 136, iq4_xs, "iq4_nl")}
PLAIN = {"F32": (0, 4), "F16": (1, 2), "BF16": (30, 2)}


def quantised(values, name):
    """[rows, cols] float32 -> bytes of the blocks, row by row"""
    _, block, size, make, _ = TYPES[name]
    blocks = values.reshape(-1, block)
    out = numpy.concatenate([make(blocks[i:i + 65536]) for i in range(0, len(blocks), 65536)])
    assert out.dtype == numpy.uint8 and out.shape == (len(blocks), size), (name, out.dtype, out.shape)
    return out


# ---- fp8 ------------------------------------------------------------------------------------------------------------

def e4m3_values():
    code = numpy.arange(127)  # of the positive numbers; 127 is NaN
    exponent, fraction = code >> 3, code & 7
    return numpy.where(exponent == 0, fraction * 2.0 ** -9, (8 + fraction) * 2.0 ** (exponent - 10.0)).astype(numpy.float32)


def e4m3_rows(values):
    """-> codes [rows, cols], scales [rows]"""
    scale = numpy.abs(values).max(1, keepdims=True) / 448
    x = divided(values, scale)
    return (nearest(numpy.abs(x), e4m3_values()) | (x < 0) << 7).astype(numpy.uint8), scale[:, 0].astype(numpy.float32)


# ---- Files ----------------------------------------------------------------------------------------------------------

def read_safetensors(path):
    """name -> dtype, shape, bytes"""
    data = Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]]) for name, t in header.items()}


def floats(dtype, data):
    if dtype == "BF16":
        return (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    return numpy.frombuffer(data, {"F32": numpy.float32, "F16": numpy.float16}[dtype]).astype(numpy.float32)


def write_gguf(path, tensors):
    """tensors: name -> ggml's number, shape, bytes"""
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    header, at = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), 1), text("general.architecture"), struct.pack("<I", 8), text("lumina2")], 0
    for name, (number, shape, data) in tensors.items():
        header += [text(name), struct.pack("<I", len(shape)), struct.pack(f"<{len(shape)}Q", *reversed(shape)), struct.pack("<IQ", number, at)]
        at += -(-len(data) // 32) * 32
    header = b"".join(header)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 32))
        for _, _, data in tensors.values():
            file.write(data + bytes(-len(data) % 32))


def write_safetensors(path, tensors):
    """tensors: name -> dtype, shape, bytes"""
    entries, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.writelines(data for _, _, data in tensors.values())


def convert(source, name, out):
    """Writes `out`. -> share of the file's values that have become the type itself"""
    there, tensors, taken, count = read_safetensors(source), {}, 0, 0
    for key, (dtype, shape, data) in there.items():
        values = numpy.prod(shape, dtype=int)
        count += values
        if len(shape) != 2 or not key.startswith(BLOCKS):
            tensors[key] = (dtype if name == "fp8" else PLAIN[dtype][0], shape, data)
            continue
        matrix = floats(dtype, data).reshape(shape)
        if name == "fp8":
            codes, scales = e4m3_rows(matrix)
            tensors[key] = ("F8_E4M3", shape, codes.tobytes())
            tensors[key.removesuffix(".weight") + ".weight_scale"] = ("F32", scales.shape, scales.tobytes())
            taken += values
            continue
        kind = name
        while kind and shape[1] % TYPES[kind][1]:
            kind = TYPES[kind][4]
        tensors[key] = (TYPES[kind][0], shape, quantised(matrix, kind).tobytes()) if kind else (PLAIN[dtype][0], shape, data)
        taken += values if kind == name else 0
    (write_safetensors if name == "fp8" else write_gguf)(out, tensors)
    return taken / count


def self_test():
    """What the package makes of our blocks must be near the values, and for types that it quantises no further off than its own."""
    import gguf

    values = numpy.random.default_rng(5).normal(0, 0.02, (64, 1024)).astype(numpy.float32)
    values[3, :300], values[4, 256:512] = 0, numpy.abs(values[4, 256:512])
    most = {"q8_0": 0.006, "q6_k": 0.02, "q5_0": 0.045, "q5_1": 0.045, "q5_k": 0.04, "q4_0": 0.09, "q4_1": 0.09, "q4_k": 0.08, "iq4_nl": 0.08, "iq4_xs": 0.08, "q3_k": 0.17, "q2_k": 0.32}
    failed = 0
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name.upper()]
        size = numpy.sqrt((values ** 2).mean())
        error = numpy.sqrt(((gguf.dequantize(quantised(values, name).reshape(64, -1), kind) - values) ** 2).mean()) / size
        try:
            other = numpy.sqrt(((gguf.dequantize(gguf.quantize(values, kind), kind) - values) ** 2).mean()) / size
        except NotImplementedError:
            other = numpy.inf
        is_good = error <= min(most[name], 1.01 * other)
        failed += not is_good
        print(f"{'ok' if is_good else 'FAILED'} {name}: off by {error:.4f} of a weight" + (f", the package's own {other:.4f}" if other < numpy.inf else ""))
    codes, scales = e4m3_rows(values)
    back = numpy.concatenate([e4m3_values(), [numpy.nan]])[codes & 127] * numpy.where(codes > 127, -1, 1) * scales[:, None]
    error = numpy.sqrt(((back - values) ** 2).mean()) / numpy.sqrt((values ** 2).mean())
    failed += not error < 0.03
    print(f"{'ok' if error < 0.03 else 'FAILED'} fp8: off by {error:.4f} of a weight")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?")
    parser.add_argument("type", nargs="?", choices=[*TYPES, "fp8"])
    parser.add_argument("out", nargs="?")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        sys.exit(self_test())
    if not args.out:
        parser.error("say what to read, the type and what to write")
    share = convert(args.source, args.type, args.out)
    print(f"{args.out}: {100 * share:.0f} % of the values are {args.type}")


if __name__ == "__main__":
    main()
