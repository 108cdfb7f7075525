#!/usr/bin/env python3
"""Compares sumi with PyTorch on this processor: the same random checkpoint, the same inputs, float32 arithmetic, the same number of threads, calls taken in turns.

    samples/instruments/bench/compare_torch.py build/release/bin/bench [--synthetic mid] [--size 512x512] [--tokens 128] [--runs 7] [--threads 0] [--model DIR]

Prints two tables as Markdown. Needs torch (CPU), safetensors and Linux. The networks below are written from their description, as short as PyTorch allows and with its fused
calls (scaled_dot_product_attention, rms_norm, group_norm, conv2d in channels-last layout), in inference mode and without a framework around them.

Two pairs of processes run: one for the text encoder, one for transformer and VAE decoder. Each process loads what it needs and nothing else; "peak memory" is the
most it ever had resident (VmHWM), mapped weights and PyTorch's own libraries included. Both sides compute once before anything is measured.

    samples/instruments/bench/compare_torch.py build/release/bin/bench --backend cuda [--sizes 1024,768,512] [--steps 8] [--seconds 6] [--rounds 2]
                                   [--batch 4] [--weights fp8] [--torch-weights fp8]

On a GPU it is about time alone: the released sizes with random weights of each side's own, bfloat16, one picture after the other for some seconds by PyTorch, then by sumi, then again: sustained
rates of one card in one run. PyTorch: every transformer block compiled (torch.compile, fullgraph), cuDNN's attention where it has it, the VAE compiled whole in channels-last layout, the text
encoder compiled by layer, q, k and v one product, gate and up another, each forward and decoding a CUDA graph that is replayed; timed by CUDA events. sumi: bench --synthetic z-image --serve, timed by its stages.

    samples/instruments/bench/compare_torch.py build/release/bin/bench --backend cuda --table [--families z-image,qwen-image,edit,newbie,klein,qwen-image-21] [--eager diffusers] [--sizes 1024]
    samples/instruments/bench/compare_torch.py --table --collect FILE ..

All families in one table, in bf16 and in 8 bits, and beside diffusers: torch_table.py says how.

    samples/instruments/bench/compare_torch.py build/release/bin/bench --accuracy build/release/bin/golden_run --backend cuda
                                   [--size 1024x1024] [--tokens 128]

    ... --synthetic qwen-image[-tiny|-mid]
    ... --synthetic newbie[-tiny|-mid] [--steps 28]
    ... --synthetic klein[-tiny|-mid]
    ... --synthetic qwen-image-21[-tiny|-mid]

The same for Qwen-Image (torch_qwen_image.py), NewBie-image (torch_newbie.py) and FLUX.2 [klein] (torch_flux2.py), in all three forms. On a GPU both sides
of Qwen-Image hold 57 GB of weights at once: it wants an H200, or --blocks. Text with a picture and encoding are in that table too. That
of NewBie-image has PyTorch both compiled and eager, sumi in bfloat16 and fp8, and pictures of --steps steps of Euler with
guidance, away from the empty prompt. Prompts of FLUX.2 [klein] have 512 rows, of which --tokens are tokens and the others
padding; on a GPU sumi is in bfloat16, in int8, and in int8 with attention in 8 bits there, and the picture is one with its
prompt. PyTorch computes all rows of the last block, of which sumi leaves out those that nothing reads, 0.4 % of a forward
without references and 2 % with one.

How far one prediction of the transformer, at the released sizes with random weights, is from PyTorch's in float32 (TF32
off): PyTorch in bfloat16, PyTorch with the blocks' products in e4m3 with a scale per row of weights and of activations,
and sumi in both, with Hopper's kernels and with portable ones. sumi's side is golden_run, as the engine runs plans, on a
case that is written here. Fails when sumi's error is above PyTorch's own in bfloat16, or by more than a tenth above
PyTorch's in e4m3. With --backend cpu (--synthetic tiny or mid): sumi in float32, to 1e-4.
"""
import argparse
import functools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = "red foxes run in deep snow under old trees, "  # as in synthetic.h
TEMPLATE_TOKENS = 19
FEATURES = ("features", "features.1")  # of the text encoders, in saved files
SEED = 7


def is_qwen_image_21(args):
    return args.synthetic.startswith("qwen-image-21")


def is_qwen_image(args):
    """The first one."""
    return args.synthetic.startswith("qwen-image") and not is_qwen_image_21(args)


def is_newbie(args):
    return args.synthetic.startswith("newbie")


def is_klein(args):
    return args.synthetic.startswith("klein")


def latent_shape(args, side=None):
    """Channels, rows and columns of a picture's latents."""
    width, height = (side, side) if side else (args.width, args.height)
    return (128, height // 16, width // 16) if is_klein(args) else (64, height // 16, width // 16) if is_qwen_image_21(args) else (16, height // 8, width // 8)


# ---- The networks in PyTorch ------------------------------------------------------------------------------------------------------------


def load_part(folder, device="cpu", dtype=None):
    """In float32, or in `dtype`."""
    import torch
    from safetensors import safe_open

    weights = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt", device) as file:  # tensor by tensor, so that both precisions are never in memory at once
            for name in file.keys():
                weights[name] = file.get_tensor(name).to(dtype or torch.float32)
    return weights, json.loads((Path(folder) / "config.json").read_text())


class Qwen3:
    def __init__(self, folder):
        import torch

        self.w, self.c = load_part(folder)
        c = self.c
        half = torch.arange(0, c["head_dim"], 2, dtype=torch.float32) / c["head_dim"]
        angles = torch.arange(1024, dtype=torch.float32)[:, None] / c["rope_theta"] ** half
        self.cos, self.sin = angles.cos(), angles.sin()
        for name in [n for n in self.w if n.startswith(f"model.layers.{c['num_hidden_layers'] - 1}.")]:
            del self.w[name]  # the last layer is not used

    def __call__(self, ids):
        import torch
        import torch.nn.functional as F

        c, n = self.c, len(ids)
        heads, groups, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        cos, sin = self.cos[:n], self.sin[:n]

        def rope(x):
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        h = self.w["model.embed_tokens.weight"][ids]
        for layer in range(c["num_hidden_layers"] - 1):
            w = lambda name: self.w[f"model.layers.{layer}.{name}.weight"]
            a = F.rms_norm(h, h.shape[-1:], w("input_layernorm"), 1e-6)
            q = F.linear(a, w("self_attn.q_proj")).view(n, heads, dim).transpose(0, 1)
            k = F.linear(a, w("self_attn.k_proj")).view(n, groups, dim).transpose(0, 1)
            v = F.linear(a, w("self_attn.v_proj")).view(n, groups, dim).transpose(0, 1)
            q = rope(F.rms_norm(q, (dim,), w("self_attn.q_norm"), 1e-6))
            k = rope(F.rms_norm(k, (dim,), w("self_attn.k_norm"), 1e-6))
            k, v = (x.repeat_interleave(heads // groups, 0) for x in (k, v))
            o = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            h = h + F.linear(o.transpose(0, 1).reshape(n, -1), w("self_attn.o_proj"))
            m = F.rms_norm(h, h.shape[-1:], w("post_attention_layernorm"), 1e-6)
            h = h + F.linear(F.silu(F.linear(m, w("mlp.gate_proj"))) * F.linear(m, w("mlp.up_proj")), w("mlp.down_proj"))
        return h


class ZImage:
    """Computes in the type of its latents, whatever its weights have.

    fp8: the products of the blocks that run at every step, in e4m3."""

    def __init__(self, folder, device="cpu", dtype=None):
        self.w, self.c = load_part(folder, device, dtype)
        self.device = device
        self.tables = {}
        self.fp8 = False

    def rope_table(self, positions):
        import torch

        columns = []
        positions = torch.tensor(positions, dtype=torch.float64)
        for axis, width in enumerate(self.c["axes_dims"]):
            columns.append((positions[:, axis : axis + 1] * self.c["rope_theta"] ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)).float())
        angles = torch.cat(columns, 1).to(self.device)
        return torch.polar(torch.ones_like(angles), angles)[:, None, :]

    def layout(self, tokens, rows, columns):
        """Rotary tables of image and caption rows, kept between calls as the reference does."""
        import torch

        key = (tokens, rows, columns)
        if key not in self.tables:
            caption = (tokens + 31) // 32 * 32
            image = [(caption + 1, y, x) for y in range(rows) for x in range(columns)]
            image += [(0, 0, 0)] * (-len(image) % 32)
            image_table = self.rope_table(image)
            caption_table = self.rope_table([(1 + i, 0, 0) for i in range(caption)])
            self.tables = {key: (image_table, caption_table, torch.cat([image_table, caption_table]))}
        return self.tables[key]

    def linear(self, x, name):
        import torch.nn.functional as F

        bias = self.w.get(name + ".bias")
        if self.fp8 and bias is None and not name.startswith("context"):
            return product_by_rows(x, self.w[name + ".weight"])
        return F.linear(x, self.w[name + ".weight"].to(x.dtype), None if bias is None else bias.to(x.dtype))

    def block(self, x, name, table, condition):
        import torch
        import torch.nn.functional as F

        heads = self.c["n_heads"]
        norm = lambda x, part: F.rms_norm(x, x.shape[-1:], self.w[f"{name}.{part}.weight"].to(x.dtype), 1e-5)

        def rope(x):  # in float as the reference
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * table).flatten(-2).to(x.dtype)

        a = norm(x, "attention_norm1")
        if condition is not None:
            s1, g1, s2, g2 = self.linear(condition, name + ".adaLN_modulation.0").chunk(4)
            a = a * (1 + s1)
        q, k, v = (self.linear(a, f"{name}.attention.to_{c}").view(len(x), heads, -1) for c in "qkv")
        q, k = rope(norm(q, "attention.norm_q")), rope(norm(k, "attention.norm_k"))
        o = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)))[0].transpose(0, 1).reshape(len(x), -1)
        o = norm(self.linear(o, name + ".attention.to_out.0"), "attention_norm2")
        x = x + (o if condition is None else g1.tanh() * o)
        f = norm(x, "ffn_norm1")
        if condition is not None:
            f = f * (1 + s2)
        f = self.linear(F.silu(self.linear(f, name + ".feed_forward.w1")) * self.linear(f, name + ".feed_forward.w3"), name + ".feed_forward.w2")
        f = norm(f, "ffn_norm2")
        return x + (f if condition is None else g2.tanh() * f)

    def __call__(self, latents, t, features):
        import math
        import torch
        import torch.nn.functional as F

        channels, height, width = latents.shape
        rows, columns = height // 2, width // 2
        image_table, caption_table, table = self.layout(len(features), rows, columns)
        arguments = t * 1000.0 * torch.exp(-math.log(10000) * torch.arange(128, dtype=torch.float32) / 128)
        arguments = torch.cat([arguments.cos(), arguments.sin()]).to(latents)
        condition = self.linear(F.silu(self.linear(arguments, "t_embedder.mlp.0")), "t_embedder.mlp.2")
        patches = latents.view(channels, rows, 2, columns, 2).permute(1, 3, 2, 4, 0).reshape(rows * columns, 4 * channels)
        pad = lambda x, n, token: torch.cat([x, self.w[token].to(x.dtype).view(1, -1).expand(n - len(x), -1)]) if n > len(x) else x
        x = pad(self.linear(patches, "all_x_embedder.2-1"), len(image_table), "x_pad_token")
        y = self.linear(F.rms_norm(features, features.shape[-1:], self.w["cap_embedder.0.weight"].to(features.dtype), 1e-5), "cap_embedder.1")
        y = pad(y, len(caption_table), "cap_pad_token")
        for i in range(self.c["n_refiner_layers"]):
            x = self.block(x, f"noise_refiner.{i}", image_table, condition)
        for i in range(self.c["n_refiner_layers"]):
            y = self.block(y, f"context_refiner.{i}", caption_table, None)
        u = torch.cat([x, y])
        for i in range(self.c["n_layers"]):
            u = self.block(u, f"layers.{i}", table, condition)
        scale = 1 + self.linear(F.silu(condition), "all_final_layer.2-1.adaLN_modulation.1")
        out = self.linear(F.layer_norm(u, u.shape[-1:], eps=1e-6) * scale, "all_final_layer.2-1.linear")[: rows * columns]
        return out.view(rows, columns, 2, 2, channels).permute(4, 0, 2, 1, 3).reshape(channels, height, width)


def product_by_rows(x, weight):
    """x weight^T of e4m3, each row of both with a scale of its own; sums in float."""
    import torch

    def quantized(m):
        scale = m.float().abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448.0
        return (m.float() / scale).to(torch.float8_e4m3fn), scale

    (a, a_scale), (b, b_scale) = quantized(x), quantized(weight)
    if a.is_cuda:
        return torch._scaled_mm(a, b.t(), a_scale, b_scale.t(), out_dtype=x.dtype)
    return ((a.float() @ b.float().t()) * a_scale * b_scale.t()).to(x.dtype)


class Decoder:
    def __init__(self, folder):
        import torch

        self.w, self.c = load_part(folder)
        # Channels last is PyTorch's faster layout for convolutions on a processor, by a tenth and more here.
        layout = lambda t: t.to(memory_format=torch.channels_last) if t.dim() == 4 else t
        self.w = {name: layout(tensor) for name, tensor in self.w.items() if name.startswith("decoder.")}

    def norm(self, x, name):
        import torch.nn.functional as F

        return F.group_norm(x, self.c["norm_num_groups"], self.w[name + ".weight"], self.w[name + ".bias"], 1e-6)

    def conv(self, x, name, padding=1):
        import torch.nn.functional as F

        return F.conv2d(x, self.w[name + ".weight"], self.w[name + ".bias"], padding=padding)

    def resnet(self, x, name):
        import torch.nn.functional as F

        h = self.conv(F.silu(self.norm(x, name + ".norm1")), name + ".conv1")
        h = self.conv(F.silu(self.norm(h, name + ".norm2")), name + ".conv2")
        return h + (self.conv(x, name + ".conv_shortcut", 0) if name + ".conv_shortcut.weight" in self.w else x)

    def attention(self, x, name):
        import torch.nn.functional as F

        linear = lambda v, part: F.linear(v, self.w[f"{name}.{part}.weight"], self.w[f"{name}.{part}.bias"])
        g = self.norm(x, name + ".group_norm").flatten(2).transpose(1, 2)
        q, k, v = (linear(g, part)[:, None] for part in ("to_q", "to_k", "to_v"))
        o = linear(F.scaled_dot_product_attention(q, k, v)[:, 0], "to_out.0")
        return x + o.transpose(1, 2).reshape(x.shape)

    def __call__(self, latents):
        import torch
        import torch.nn.functional as F

        c = self.c
        z = (latents / c["scaling_factor"] + c["shift_factor"])[None].contiguous(memory_format=torch.channels_last)
        x = self.conv(z, "decoder.conv_in")
        x = self.resnet(x, "decoder.mid_block.resnets.0")
        x = self.attention(x, "decoder.mid_block.attentions.0")
        x = self.resnet(x, "decoder.mid_block.resnets.1")
        for stage in range(len(c["block_out_channels"])):
            for i in range(c["layers_per_block"] + 1):
                x = self.resnet(x, f"decoder.up_blocks.{stage}.resnets.{i}")
            if stage + 1 < len(c["block_out_channels"]):
                x = self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"), f"decoder.up_blocks.{stage}.upsamplers.0.conv")
        x = F.silu(self.norm(x, "decoder.conv_norm_out"))
        return self.conv(x, "decoder.conv_out")[0]


def tokenise(model, text):
    """The synthetic tokenizer has no merges: a token per byte."""
    data = json.loads((Path(model) / "tokenizer/tokenizer.json").read_text())
    if data["model"]["merges"]:
        sys.exit("compare_torch: only checkpoints that bench wrote can be compared: this one's tokenizer has merges")
    ids = {token["content"]: token["id"] for token in data["added_tokens"]}
    plain = lambda s: [data["model"]["vocab"][chr(b) if 33 <= b <= 126 else chr(0x100 + b) if b <= 32 else "?"] for b in s.encode()]
    return [ids["<|im_start|>"], *plain("user\n" + text), ids["<|im_end|>"], *plain("\n"), ids["<|im_start|>"], *plain("assistant\n")]


# ---- The networks for a GPU: compiled, random weights, for their time alone ----------------------------------------------------------------


def make_gpu_networks(device="cuda", is_tiny=False):
    """Modules of Z-Image's released sizes, or of small ones. In a function, since torch is imported late everywhere here."""
    import math

    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch_parts import product_rounded, rotate_pairs, round_rows

    widths = {"dim": 256, "heads": 2, "hidden": 512} if is_tiny else {"dim": 3840, "heads": 30, "hidden": 10240}
    depth = {"layers": 2, "refiners": 1} if is_tiny else {"layers": 30, "refiners": 2}

    def rotate_halves(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    linear = lambda i, o, bias=False: nn.Linear(i, o, bias=bias)

    class RoundedLinear(nn.Module):
        """A product in 8 bits, of a layer without bias."""

        def __init__(self, weight, form):
            super().__init__()
            self.weight, self.scale = (nn.Parameter(tensor, requires_grad=False) for tensor in round_rows(weight, form))

        def forward(self, x):
            return product_rounded(x, self.weight, self.scale)

    class Block(nn.Module):
        def __init__(self, dim, heads, hidden, condition=256, modulated=True):
            super().__init__()
            self.heads = heads
            self.to_qkv, self.out = linear(dim, 3 * dim), linear(dim, dim)
            self.w1_w3, self.w2 = linear(dim, 2 * hidden), linear(hidden, dim)
            self.norm1, self.norm2, self.norm3, self.norm4 = (nn.RMSNorm(dim, 1e-5) for _ in range(4))
            self.norm_q, self.norm_k = nn.RMSNorm(dim // heads, 1e-5), nn.RMSNorm(dim // heads, 1e-5)
            self.modulation = linear(condition, 4 * dim, True) if modulated else None

        def forward(self, x, cos, sin, condition):
            a = self.norm1(x)
            if self.modulation is not None:
                s1, g1, s2, g2 = self.modulation(condition).chunk(4, -1)
                a = a * (1 + s1)
            q, k, v = self.to_qkv(a).unflatten(-1, (3, self.heads, -1)).unbind(-3)
            q, k = rotate_pairs(self.norm_q(q), cos, sin), rotate_pairs(self.norm_k(k), cos, sin)
            o = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2).flatten(2)
            o = self.norm2(self.out(o))
            x = x + (o if self.modulation is None else g1.tanh() * o)
            f = self.norm3(x)
            if self.modulation is not None:
                f = f * (1 + s2)
            gate, up = self.w1_w3(f).chunk(2, -1)
            f = self.norm4(self.w2(F.silu(gate) * up))
            return x + (f if self.modulation is None else g2.tanh() * f)

    class Transformer(nn.Module):
        def __init__(self, layers, refiners, caption=2560):
            super().__init__()
            dim = widths["dim"]
            self.embed_x, self.embed_caption, self.norm_caption = linear(64, dim, True), linear(caption, dim, True), nn.RMSNorm(caption, 1e-5)
            self.time = nn.Sequential(linear(256, 1024, True), nn.SiLU(), linear(1024, 256, True))
            self.noise_refiner = nn.ModuleList(Block(**widths) for _ in range(refiners))
            self.context_refiner = nn.ModuleList(Block(**widths, modulated=False) for _ in range(refiners))
            self.layers = nn.ModuleList(Block(**widths) for _ in range(layers))
            self.final_scale, self.final = linear(256, dim, True), linear(dim, 64, True)

        def forward(self, latents, t, features, tables):  # latents: of a batch, for one caption
            batch, channels, height, width = latents.shape
            rows, columns = height // 2, width // 2
            arguments = t * 1000.0 * torch.exp(-math.log(10000) * torch.arange(128, dtype=torch.float32, device=latents.device) / 128)
            condition = self.time(torch.cat([arguments.cos(), arguments.sin()]).to(latents.dtype))[None]
            patches = latents.view(batch, channels, rows, 2, columns, 2).permute(0, 2, 4, 3, 5, 1).reshape(batch, rows * columns, 4 * channels)
            x, y = self.embed_x(patches), self.embed_caption(self.norm_caption(features)).expand(batch, -1, -1)
            n = x.shape[1]
            (xc, xs), (yc, ys), (uc, us) = tables
            for block in self.noise_refiner:
                x = block(x, xc, xs, condition)
            for block in self.context_refiner:
                y = block(y, yc, ys, condition)
            u = torch.cat([x, y], 1)
            for block in self.layers:
                u = block(u, uc, us, condition)
            u = F.layer_norm(u[:, :n], u.shape[-1:], eps=1e-6) * (1 + self.final_scale(F.silu(condition)))
            return self.final(u).view(batch, rows, columns, 2, 2, channels).permute(0, 5, 1, 3, 2, 4).reshape(batch, channels, height, width)

        def use_products(self, form):
            """The products of the blocks that run at every step, in bf16 or in 8 bits. The bf16 weights stay."""
            for block in (*self.noise_refiner, *self.layers):
                if not hasattr(block, "plain"):
                    block.plain = {name: getattr(block, name) for name in ("to_qkv", "out", "w1_w3", "w2")}
                for name, plain in block.plain.items():
                    setattr(block, name, plain if form == "bf16" else RoundedLinear(plain.weight, form))

        def compile_blocks(self):
            for block in (*self.noise_refiner, *self.context_refiner, *self.layers):
                block.compile(fullgraph=True, dynamic=False)

    def tables(tokens, side):
        """Rotary tables of image, caption and both: axes of 32, 48, 48, theta 256."""
        rows = side // 16
        image = torch.cartesian_prod(torch.tensor([tokens + 1]), torch.arange(rows), torch.arange(rows)).double()
        caption = torch.zeros(tokens, 3, dtype=torch.float64)
        caption[:, 0] = torch.arange(1, tokens + 1)

        def of(positions):
            columns = [positions[:, a : a + 1] * 256.0 ** (-torch.arange(0, w, 2, dtype=torch.float64) / w) for a, w in enumerate((32, 48, 48))]
            angles = torch.cat(columns, 1).float().to(device)[None, :, None, :]
            return angles.cos(), angles.sin()

        return of(image), of(caption), of(torch.cat([image, caption]))

    class TextLayer(nn.Module):
        def __init__(self, width=2560, heads=32, groups=8, dim=128, hidden=9728):
            super().__init__()
            self.heads, self.groups = heads, groups
            self.qkv, self.o = linear(width, (heads + 2 * groups) * dim), linear(heads * dim, width)
            self.gate_up, self.down = linear(width, 2 * hidden), linear(hidden, width)
            self.norm1, self.norm2 = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
            self.norm_q, self.norm_k = nn.RMSNorm(dim, 1e-6), nn.RMSNorm(dim, 1e-6)

        def forward(self, h, cos, sin):
            a = self.norm1(h)
            q, k, v = self.qkv(a).unflatten(-1, (self.heads + 2 * self.groups, -1)).transpose(1, 2).split((self.heads, self.groups, self.groups), 1)
            q, k = rotate_halves(self.norm_q(q), cos, sin), rotate_halves(self.norm_k(k), cos, sin)
            h = h + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2))
            m = self.norm2(h)
            gate, up = self.gate_up(m).chunk(2, -1)
            return h + self.down(F.silu(gate) * up)

    class Text(nn.Module):
        def __init__(self, layers=35):  # of 36: the last one's output is not used
            super().__init__()
            self.embed, self.layers = nn.Embedding(151936, 2560), nn.ModuleList(TextLayer() for _ in range(layers))

        def forward(self, ids):
            exponents = torch.arange(0, 128, 2, dtype=torch.float32, device=ids.device) / 128
            angles = torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device)[:, None] / 1e6**exponents
            cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
            h = self.embed(ids)
            for layer in self.layers:
                h = layer(h, cos, sin)
            return h

    class Resnet(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(32, i, 1e-6), nn.GroupNorm(32, o, 1e-6)
            self.conv1, self.conv2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
            self.shortcut = nn.Conv2d(i, o, 1) if i != o else None

        def forward(self, x):
            h = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
            return h + (x if self.shortcut is None else self.shortcut(x))

    class Middle(nn.Module):
        def __init__(self, width=512):
            super().__init__()
            self.norm = nn.GroupNorm(32, width, 1e-6)
            self.q, self.k, self.v, self.o = (linear(width, width, True) for _ in range(4))

        def forward(self, x):
            g = self.norm(x).flatten(2).transpose(1, 2)
            o = self.o(F.scaled_dot_product_attention(*(w(g)[:, None] for w in (self.q, self.k, self.v)))[:, 0])
            return x + o.transpose(1, 2).reshape(x.shape)

    class GpuDecoder(nn.Module):
        def __init__(self, widths=(32, 32, 64, 64) if is_tiny else (128, 256, 512, 512)):
            super().__init__()
            top, parts = widths[3], []
            parts += [nn.Conv2d(16, top, 3, padding=1), Resnet(top, top), Middle(top), Resnet(top, top)]
            before = top
            for stage, width in enumerate(reversed(widths)):
                for i in range(3):
                    parts.append(Resnet(before if i == 0 else width, width))
                if stage < 3:
                    parts += [nn.Upsample(scale_factor=2.0, mode="nearest"), nn.Conv2d(width, width, 3, padding=1)]
                before = width
            parts += [nn.GroupNorm(32, widths[0], 1e-6), nn.SiLU(), nn.Conv2d(widths[0], 3, 3, padding=1)]
            self.parts = nn.Sequential(*parts)

        def forward(self, latents):
            return self.parts((latents / 0.3611 + 0.1159).contiguous(memory_format=torch.channels_last))

    def build(make):
        with torch.device("meta"):
            module = make()
        module = module.to(torch.bfloat16).to_empty(device=device).eval().requires_grad_(False)
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.02)
        return module

    return {"transformer": lambda: build(lambda: Transformer(**depth)), "decoder": lambda: build(GpuDecoder).to(memory_format=torch.channels_last), "text": lambda: build(Text), "tables": tables}


# ---- One side, in a process of its own: a command per line, a line of JSON per answer -------------------------------------------------------


def peak_megabytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024e-6


def qwen_networks(model, what):
    """Of a checkpoint, what a worker needs."""
    import types

    import torch_qwen_image as q

    found = types.SimpleNamespace(template_rows=q.TEMPLATE_ROWS)
    if what == "text":
        language_model = q.Text(*load_part(model / "text_encoder"))
        tokenizer = json.loads((model / "tokenizer/tokenizer.json").read_text())
        found.tokenise = lambda text: q.tokenise(tokenizer, text)
        found.encode_text = lambda ids: language_model(ids)[q.DROPPED_ROWS :]
    else:
        found.transformer = q.Transformer(*load_part(model / "transformer"))
        found.decode = q.Autoencoder(*load_part(model / "vae")).decode
    return found


def newbie_networks(model, what):
    """Of a checkpoint, what a worker needs."""
    import types

    import torch
    import torch_newbie as n

    found = types.SimpleNamespace(template_rows=1)
    if what == "text":
        encoders = n.Text(*load_part(model / "text_encoder")), n.Pooled(*load_part(model / "clip_model"))
        tokenizers = [json.loads((model / folder / "tokenizer.json").read_text()) for folder in ("text_encoder", "clip_model")]
        found.tokenise = lambda text: n.tokenise(*tokenizers, text)
        found.encode_text = lambda ids: tuple(encoder(torch.tensor(list_)) for encoder, list_ in zip(encoders, ids))
    else:
        found.transformer = n.Transformer(*load_part(model / "transformer"))
        found.decode = Decoder(model / "vae")
    return found


def klein_networks(model, what):
    """Of a checkpoint, what a worker needs."""
    import types

    import torch
    import torch_flux2 as f

    found = types.SimpleNamespace(template_rows=f.TEMPLATE_ROWS)
    if what == "text":
        text = f.Text(*load_part(model / "text_encoder"))
        unused = [name for name in text.w if name.startswith("model.layers.") and int(name.split(".")[2]) >= f.TAPS[-1]]
        for name in unused:
            del text.w[name]
        tokenizer = json.loads((model / "tokenizer/tokenizer.json").read_text())
        found.tokenise = lambda text: f.tokenise(tokenizer, text)
        found.encode_text = lambda ids: text(torch.tensor(ids[0]), ids[1])
    else:
        found.transformer = f.Transformer(*load_part(model / "transformer"))
        found.decode = f.Autoencoder(*load_part(model / "vae")).decode
    return found


def networks_of(args, model):
    """Of the families whose networks have a file of their own."""
    makes = qwen_networks if is_qwen_image(args) else newbie_networks if is_newbie(args) else klein_networks if is_klein(args) else None
    return makes(model, args.worker) if makes else None


def worker(args):
    import torch

    torch.set_num_threads(args.threads)
    model = Path(args.model)
    results = {}
    with torch.inference_mode():
        networks = networks_of(args, model)
        if args.worker == "text":
            length = max(args.tokens - (networks.template_rows if networks else TEMPLATE_TOKENS), 1)
            text = (WORDS * (length // len(WORDS) + 1))[:length]
            encoder = networks.encode_text if networks else Qwen3(model / "text_encoder")
            ids = networks.tokenise(text) if networks else tokenise(model, text)
            ids = ids if is_newbie(args) or is_klein(args) else torch.tensor(ids)  # a list for each encoder; and how many are not padding
        else:
            transformer, decoder = (networks.transformer, networks.decode) if networks else (ZImage(model / "transformer"), Decoder(model / "vae"))
            from safetensors.torch import load_file

            saved = load_file(args.features)
            features = [saved[name] for name in FEATURES if name in saved]
            noise = torch.randn(latent_shape(args), generator=torch.Generator("cpu").manual_seed(SEED))

        def measure():
            began = time.perf_counter()
            if args.worker == "text":
                made = encoder(ids)
                results.update(zip(FEATURES, made if isinstance(made, tuple) else (made,)))
                return {"text": time.perf_counter() - began}
            # From sigma 1 to 0 in one step of Euler.
            results["latents"] = noise - transformer(noise, 1.0, *features) if is_qwen_image(args) or is_klein(args) else noise + transformer(noise, 0.0, *features)
            middle = time.perf_counter()
            results["picture"] = (decoder(results["latents"]) * 0.5 + 0.5).permute(1, 2, 0).contiguous()
            return {"forward": middle - began, "decode": time.perf_counter() - middle}

        measure()
        print(json.dumps({"device": f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"}), flush=True)
        for line in sys.stdin:
            command, _, path = line.strip().partition(" ")
            if command == "memory":
                answer = {"peak_mb": peak_megabytes()}
            elif command == "save":
                from safetensors.torch import save_file

                save_file({name: tensor.contiguous() for name, tensor in results.items()}, path)
                answer = {}
            else:
                answer = measure()
            print(json.dumps(answer), flush=True)


# ---- Both sides in turns --------------------------------------------------------------------------------------------------------------------


class Side:
    def __init__(self, name, command, waits=True):
        """Without `waits` it gets ready beside what is done here, until somebody asks for its `about`."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        if waits:
            self.about

    @functools.cached_property
    def about(self):
        """What it says when it is ready."""
        return self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare_torch: {self.name} ended with code {self.process.wait()}")
        return json.loads(line)

    def ask(self, command):
        self.about
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def relative_error(got, want):
    got, want = got.double().flatten(), want.double().flatten()
    return ((got - want).norm() / want.norm().clamp_min(1e-30)).item()


def compare(args, model, folder, what, keys):
    from safetensors.torch import load_file

    features = str(folder / "text-sumi.safetensors")
    sizes = ["--size", f"{args.width}x{args.height}", "--tokens", str(args.tokens), "--threads", str(args.threads)]
    prompt = ["--encoded-prompt", features + ".prompt"] if what == "image" else []  # as a shipped host: no text encoder in this process
    # what lies in the folder is what bench makes of the name: by the name it knows how its template counts
    source = ["--model", str(model)] if not (is_qwen_image(args) or is_newbie(args) or is_klein(args)) else ["--synthetic", args.synthetic, "--model", str(model)]
    ours = Side("bench", [args.bench, *source, "--serve", *prompt, *sizes])
    ours.ask(what)  # warm, as the other side is
    theirs = Side("PyTorch", [sys.executable, __file__, args.bench, "--worker", what, "--synthetic", args.synthetic, "--features", features, "--model", str(model), *sizes])
    times = {side: {key: [] for key in keys} for side in (ours, theirs)}
    for run in range(args.runs):
        for side in (ours, theirs) if run % 2 == 0 else (theirs, ours):
            for key, seconds in side.ask(what).items():
                if key in times[side]:
                    times[side][key].append(seconds)
    memory = [side.ask("memory")["peak_mb"] for side in (ours, theirs)]
    files = {side: folder / f"{what}-{'sumi' if side is ours else 'torch'}.safetensors" for side in times}
    for side, path in files.items():
        side.ask(f"save {path}")
    flops = ours.ask("flops")
    got, want = load_file(files[ours]), load_file(files[theirs])
    tensors = {"text": [name for name in FEATURES if name in want], "forward": ["latents"], "decode": ["picture"]}
    rows = []
    for key in keys:
        a, b = (statistics.median(times[side][key]) for side in (ours, theirs))
        rows.append((key, a, b, a / b, flops[key] / a * 1e-9, max(relative_error(got[name], want[name]) for name in tensors[key])))
    abouts = [side.about["device"] for side in (ours, theirs)]
    for side in times:
        side.close()
    return rows, memory, abouts


# ---- A GPU ----------------------------------------------------------------------------------------------------------------------------------


def captured(call, pool):
    """The call as a CUDA graph, which is replayed with the same inputs: PyTorch's host then launches once for all kernels. The call must have run before."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        call()
    return graph.replay


def with_graphs(jobs):
    """Jobs: lists of (name, call). Each call becomes a graph, once however often it is in the lists."""
    import torch

    pool, graphs = torch.cuda.graph_pool_handle(), {}
    for calls in jobs.values():
        for _, call in calls:
            if call not in graphs:
                graphs[call] = captured(call, pool)
    return {key: [(name, graphs[call]) for name, call in calls] for key, calls in jobs.items()}


def mark():
    """The present moment: an event in the stream of a GPU, or the clock without one."""
    import torch

    if not torch.cuda.is_available():
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(a, b):
    return b - a if isinstance(a, float) else a.elapsed_time(b) * 1e-3


def timed(calls, seconds):
    """Rounds of (name, call) for `seconds`, at least two; medians in seconds of each name's second half. Nothing waits inside a round."""
    import torch

    rounds, began = [], time.perf_counter()
    while len(rounds) < 2 or time.perf_counter() - began < seconds:
        marks = [mark()]
        for _, call in calls:
            call()
            marks.append(mark())
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        rounds.append(marks)
    times = {"picture": []}
    for marks in rounds[len(rounds) // 2 :]:
        for i, (name, _) in enumerate(calls):
            times.setdefault(name, []).append(between(marks[i], marks[i + 1]))
        times["picture"].append(between(marks[0], marks[-1]))
    return {name: statistics.median(values) for name, values in times.items()}


def compare_gpu(args):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not torch.cuda.is_available():
        sys.exit("compare_torch: PyTorch finds no GPU here")
    torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 64  # one graph per number of rows
    torch.backends.cudnn.benchmark = True
    sides = [int(s) for s in args.sizes.split(",")]
    ours = Side("bench", [args.bench, "--synthetic", "z-image", "--backend", "cuda", "--serve", "--tokens", str(args.tokens), "--weights", args.weights, "--attention", args.attention, "--size", f"{sides[0]}x{sides[0]}"])
    theirs, mine = {}, {}

    def keep(into, key, seconds):
        into.setdefault(key, []).append(seconds)

    attention = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # the first that can
    with torch.inference_mode(), sdpa_kernel(attention, set_priority=True):
        networks = make_gpu_networks()
        transformer, decoder, text = networks["transformer"](), networks["decoder"](), networks["text"]()
        transformer.use_products(args.torch_weights)
        transformer.compile_blocks()
        decode = torch.compile(decoder, dynamic=False)
        for layer in text.layers:
            layer.compile(fullgraph=True, dynamic=False)
        features = torch.randn(args.tokens, 2560, device="cuda", dtype=torch.bfloat16)
        jobs = {}
        for side in sides:
            latents, tables = torch.randn(args.batch, 16, side // 8, side // 8, device="cuda", dtype=torch.bfloat16), networks["tables"](args.tokens, side)
            forward = lambda latents=latents, tables=tables: transformer(latents, 0.5, features, tables)
            jobs[side] = [("forward", forward)] * args.steps + [("decode", lambda latents=latents: decode(latents))]
        ids = torch.randint(0, 150000, (1, 512), device="cuda")
        jobs["text"] = [("text", lambda: text(ids))]
        for calls in jobs.values():  # compiles
            timed(calls, 0.0)
        jobs = with_graphs(jobs)
        for _ in range(args.rounds):
            keep(theirs, "text, 512 tokens", timed(jobs["text"], args.seconds / 3)["text"])
            keep(mine, "text, 512 tokens", ours.ask(f"sustain_text 512 {args.seconds / 3}")["work"])
            ours.ask(f"sustain_text {args.tokens} 0")  # the captions of the pictures
            for side in sides:
                a = timed(jobs[side], args.seconds)
                b = ours.ask(f"sustain {side} {args.steps} {args.batch} {args.seconds}")
                for key in ("forward", "decode", "picture"):
                    keep(theirs, f"{key}, {side}x{side}", a[key])
                    keep(mine, f"{key}, {side}x{side}", b[key])
        peak = torch.cuda.max_memory_allocated() * 1e-6
    about = ours.about["device"]
    ours.close()
    print_gpu_table(args, about, peak, mine, theirs)


def compare_gpu_qwen(args):
    """As compare_gpu; sizes behind the first one are compared by their forwards. What sumi does with a picture to refer to is an edit model's, in a process of its own behind the others."""
    import torch
    import torch_qwen_image as q
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not torch.cuda.is_available():
        sys.exit("compare_torch: PyTorch finds no GPU here")
    torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 64
    torch.backends.cudnn.benchmark = True
    sides = [int(s) for s in args.sizes.split(",")]
    serve = lambda *options: Side("bench", [args.bench, "--synthetic", args.synthetic, "--backend", "cuda", "--serve", "--tokens", str(args.tokens), "--weights", args.weights, "--attention", args.attention, "--size", f"{sides[0]}x{sides[0]}", *(["--blocks", str(args.blocks)] if args.blocks else []), *options])
    sizes = q.SIZES | {"transformer": q.SIZES["transformer"] | {"num_layers": args.blocks or q.SIZES["transformer"]["num_layers"]}}
    ours, theirs, mine = serve(), {}, {}

    def keep(into, key, seconds):
        into.setdefault(key, []).append(seconds)

    attention = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with torch.inference_mode(), sdpa_kernel(attention, set_priority=True):
        transformer, text, vision, autoencoder = q.random_networks(sizes, "cuda", torch.bfloat16)
        q.compile_parts()
        normal = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        features, ids = normal(args.tokens, 3584), torch.randint(0, 150000, (512 + q.DROPPED_ROWS,), device="cuda")
        # a picture of 1036 x 1036 pixels has 74 x 74 patches, in windows that are filled up to 64: 100 of them
        patches, cells, first = normal(6400, 1176), 37 * 37, 65
        edit_ids = torch.randint(0, 150000, (512 + 2 + 64 + cells,), device="cuda")

        def see_and_read():
            return text(edit_ids, vision(patches)[:cells], first, (37, 37))

        jobs = {"text, 512 tokens": [("work", lambda: text(ids))]}
        for side in sides:
            latents = normal(16, side // 8, side // 8)
            jobs[side] = [("forward", lambda z=latents: transformer(z, 0.5, features))] * args.steps
            if side == sides[0]:
                picture = normal(3, side, side)
                jobs[side] += [("decode", lambda z=latents: autoencoder.decode(z))]
                jobs[f"encode, {side}x{side}"] = [("work", lambda: autoencoder.encode(picture))]
        # captions of an edit model hold the picture's rows
        edited, refers = normal(16, sides[0] // 8, sides[0] // 8), (normal(16, 128, 128),)
        edit_features = normal(args.tokens + cells, 3584)
        edit_jobs = {"text, 512 tokens and a picture": [("work", see_and_read)], f"forward with a reference, {sides[0]}x{sides[0]}": [("work", lambda: transformer(edited, 0.5, edit_features, refers))]}
        for calls in (jobs | edit_jobs).values():  # compiles
            timed(calls, 0.0)
        graphs = with_graphs({key: calls for key, calls in (jobs | edit_jobs).items() if not str(key).startswith("text")})  # text's positions are made on the host
        jobs, edit_jobs = {key: graphs.get(key, calls) for key, calls in jobs.items()}, {key: graphs.get(key, calls) for key, calls in edit_jobs.items()}
        for _ in range(args.rounds):
            for key, calls in jobs.items():
                a = timed(calls, args.seconds if isinstance(key, int) else args.seconds / 3)
                if isinstance(key, int):
                    ours.ask(f"sustain_text {args.tokens} 0")  # the captions of the pictures
                    b = ours.ask(f"sustain {key} {args.steps} 1 {args.seconds}")
                    for part in ("forward", "decode", "picture") if key == sides[0] else ("forward",):
                        keep(theirs, f"{part}, {key}x{key}", a[part])
                        keep(mine, f"{part}, {key}x{key}", b[part])
                    continue
                keep(theirs, key, a["work"])
                keep(mine, key, ours.ask(f"sustain_encode {sides[0]} {args.seconds / 3}" if key.startswith("encode") else f"sustain_text 512 {args.seconds / 3}")["work"])
        about = ours.about["device"]
        ours.close()
        ours = serve("--references", "1")
        for _ in range(args.rounds):
            for key, calls in edit_jobs.items():
                keep(theirs, key, timed(calls, args.seconds / 3)["work"])
                if key.startswith("text"):
                    keep(mine, key, ours.ask(f"sustain_text 512 {args.seconds / 3}")["work"])
                else:
                    ours.ask(f"sustain_text {args.tokens} 0")
                    keep(mine, key, ours.ask(f"sustain {sides[0]} {args.steps} 1 {args.seconds / 3}")["forward"])
        ours.close()
        peak = torch.cuda.max_memory_allocated() * 1e-6
    print_gpu_table(args, about, peak, mine, theirs)


def compare_gpu_newbie(args):
    """As compare_gpu, with PyTorch compiled and eager. A step with guidance is two runs of the network: captions of two lengths side by side would be padded."""
    import torch
    import torch_newbie as n
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not torch.cuda.is_available():
        sys.exit("compare_torch: PyTorch finds no GPU here")
    torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 64
    torch.backends.cudnn.benchmark = True
    sides = [int(s) for s in args.sizes.split(",")]
    formats = ("bf16", "fp8")
    ours = {weights: Side("bench", [args.bench, "--synthetic", args.synthetic, "--backend", "cuda", "--serve", "--tokens", str(args.tokens), "--weights", weights, "--size", f"{sides[0]}x{sides[0]}"]) for weights in formats}
    found = {}

    def keep(stage, who, seconds):
        found.setdefault(stage, {}).setdefault(who, []).append(seconds)

    attention = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with torch.inference_mode(), sdpa_kernel(attention, set_priority=True):
        transformer, text, tower = n.random_networks("cuda", torch.bfloat16)
        n.compile_parts()
        decoder = make_gpu_networks()["decoder"]()
        decode_compiled = torch.compile(decoder, dynamic=False)
        normal = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        widths = n.SIZES["text"]["hidden_size"], n.SIZES["pooled"]["width"]
        features, pooled = normal(args.tokens, widths[0]), normal(1, widths[1])
        empty = normal(1, widths[0]), normal(1, widths[1])  # of the empty prompt: one token, and a vector
        ids = torch.randint(0, n.SIZES["pooled"]["vocabulary"], (n.MOST_TOKENS,), device="cuda")

        def encode():
            return text(ids), tower(ids)

        def draw(side, decode):
            x = normal(16, side // 8, side // 8).float()
            sigmas = [6 * u / (1 + 5 * u) for u in (1 - i / args.steps for i in range(args.steps + 1))]
            for now, then in zip(sigmas, sigmas[1:]):
                z = x.to(torch.bfloat16)
                positive, negative = (transformer(z, 1 - now, *words).float() for words in ((features, pooled), empty))
                x = x + (now - then) * (negative + 5.0 * (positive - negative))
            return decode(x.to(torch.bfloat16)[None])

        jobs = {}  # (side, what): how often in a row PyTorch does it, what it does
        for side in sides:
            z = normal(16, side // 8, side // 8)
            jobs[side, "forward"] = 8, lambda z=z: transformer(z, 0.5, features, pooled)
            jobs[side, "decode"] = 1, lambda z=z: decode_compiled(z[None])
            jobs[side, "picture"] = 1, lambda side=side: draw(side, decode_compiled)
        plain = {(side, "decode"): lambda z=normal(1, 16, side // 8, side // 8): decoder(z) for side in sides}
        plain |= {(side, "picture"): lambda side=side: draw(side, decoder) for side in sides}
        jobs[0, "text"] = 1, encode
        graphs = {}  # of the compiled side: replayed without the host. Positions of text are made on the host, and a picture's steps are forwards
        kinds = {"compiled": lambda key: graphs.get(key, jobs[key][1]), "eager": lambda key: n.eagerly(plain.get(key, jobs[key][1]))}
        for run in kinds.values():  # compiles, and warms up
            for key in jobs:
                if key[1] != "picture":
                    timed([("work", run(key))], 0.0)
            for side in sides:
                transformer(normal(16, side // 8, side // 8), 0.5, *empty)
        pool = torch.cuda.graph_pool_handle()
        graphs = {key: captured(call, pool) for key, (_, call) in jobs.items() if key[1] in ("forward", "decode")}
        names = {"forward": "forward, {0}x{0}", "decode": "decode, {0}x{0}", "picture": f"picture of {args.steps} guided steps, {{0}}x{{0}}", "text": f"both text encoders, {n.MOST_TOKENS} tokens"}
        for _ in range(args.rounds):
            for key, (times, _) in jobs.items():
                side, what = key
                stage = names[what].format(side)
                for who, run in kinds.items():
                    keep(stage, who, timed([("work", run(key))] * times, args.seconds if what != "text" else args.seconds / 3)["work"])
            for weights, bench in ours.items():
                keep(names["text"], weights, bench.ask(f"sustain_text {n.MOST_TOKENS} {args.seconds / 3}")["work"])
                bench.ask(f"sustain_text {args.tokens} 0")  # the captions of the pictures
                for side in sides:
                    b = bench.ask(f"sustain {side} 8 1 {args.seconds}")
                    keep(names["forward"].format(side), weights, b["forward"])
                    keep(names["decode"].format(side), weights, b["decode"])
                    keep(names["picture"].format(side), weights, bench.ask(f"guided {side} {args.steps} {args.seconds}")["picture"])
        peak = torch.cuda.max_memory_allocated() * 1e-6
    about = ours["bf16"].about["device"]
    for bench in ours.values():
        bench.close()
    print(f"{torch.cuda.get_device_name()}; sumi: {about}; torch {torch.__version__}, bfloat16, at most {peak:.0f} MB; {args.rounds} rounds of {args.seconds:g} s each in turns, captions of {args.tokens} tokens.")
    print("Pictures without their prompts (PyTorch's from device event to device event, sumi's from submit to fetch), guided away from the empty prompt.\n")
    print("| stage | sumi ms | sumi, fp8 | PyTorch, compiled | PyTorch, eager | sumi / compiled | fp8 / compiled | sumi / eager | spread of the rounds |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for stage, times in found.items():
        a, b, c, d = (statistics.median(times[who]) for who in (*formats, "compiled", "eager"))
        spread = max(max(values) / min(values) for values in times.values()) - 1.0
        print(f"| {stage} | {1e3 * a:.2f} | {1e3 * b:.2f} | {1e3 * c:.2f} | {1e3 * d:.2f} | {a / c:.2f} | {b / c:.2f} | {a / d:.2f} | {100 * spread:.1f} % |")


def compare_gpu_klein(args):
    """As compare_gpu, with sumi in three forms. Prompts have the rows of the reference, whatever is in them; the picture is made with its prompt, in one go."""
    import torch
    import torch_flux2 as f
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not torch.cuda.is_available():
        sys.exit("compare_torch: PyTorch finds no GPU here")
    torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 64
    torch.backends.cudnn.benchmark = True
    sides = [int(s) for s in args.sizes.split(",")]
    first, tokens = sides[0], min(max(args.tokens, f.TEMPLATE_ROWS + 1), f.ROWS)  # a prompt has at least one word
    kinds = {"bf16": ("bf16", "bf16"), "int8": ("int8", "bf16"), "int8, 8-bit attention": ("int8", "8bit")}
    ours = {kind: Side("bench", [args.bench, "--synthetic", args.synthetic, "--backend", "cuda", "--serve", "--tokens", str(tokens), "--weights", weights, "--attention", attention, "--size", f"{first}x{first}"]) for kind, (weights, attention) in kinds.items()}
    theirs, mine = {}, {}

    def keep(into, key, seconds):
        into.setdefault(key, []).append(seconds)

    attention = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with torch.inference_mode(), sdpa_kernel(attention, set_priority=True):
        transformer, text, autoencoder = f.random_networks(f.SIZES, "cuda", torch.bfloat16)
        f.compile_parts()
        decode, encode = (torch.compile(part, dynamic=False) for part in (autoencoder.decode, autoencoder.encode))
        normal = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        features, ids = normal(f.ROWS, f.SIZES["transformer"]["joint_attention_dim"]), torch.randint(0, f.SIZES["text"]["vocab_size"], (f.ROWS,), device="cuda")
        latents = {side: normal(*latent_shape(args, side)) for side in sides}
        refers, seen = (normal(*latent_shape(args, 1024)),), normal(3, 1024, 1024)
        reading, seeing, decoding = (lambda: text(ids, tokens)), (lambda: encode(seen)), (lambda: decode(latents[first]))
        step, referring_step = (lambda: transformer(latents[first], 0.5, features)), (lambda: transformer(latents[first], 0.5, features, refers))
        names = {"text": f"text, {tokens} tokens in {f.ROWS} rows", "decode": f"decode, {first}x{first}", "picture": f"picture of {args.steps} steps with prompt and decode, {first}x{first}"}
        forward = {side: f"forward, {side}x{side}" for side in sides}
        referring, pictures = f"forward with a reference of 1024x1024, {first}x{first}", (names["picture"], names["picture"] + ", with a reference")
        jobs = {names["text"]: [("work", reading)], forward[first]: [("work", step)], names["decode"]: [("work", decoding)]}
        jobs |= {forward[side]: [("work", lambda side=side: transformer(latents[side], 0.5, features))] for side in sides[1:]}
        jobs[referring] = [("work", referring_step)]
        jobs[pictures[0]] = [("text", reading), *[("forward", step)] * args.steps, ("decode", decoding)]
        jobs[pictures[1]] = [("text", reading), ("encode", seeing), *[("forward", referring_step)] * args.steps, ("decode", decoding)]
        for calls in jobs.values():  # compiles
            timed(calls, 0.0)
        jobs = with_graphs(jobs)
        for _ in range(args.rounds):
            for key, calls in jobs.items():
                measured = timed(calls, args.seconds if key in pictures else args.seconds / 2)
                keep(theirs, key, measured["picture" if key in pictures else "work"])
            for kind, bench in ours.items():
                into = mine.setdefault(kind, {})
                keep(into, names["text"], bench.ask(f"sustain_text {tokens} {args.seconds / 2}")["work"])
                for side in sides:
                    got = bench.ask(f"sustain {side} {args.steps} 1 {args.seconds / 2}")
                    keep(into, forward[side], got["forward"])
                    if side == first:
                        keep(into, names["decode"], got["decode"])
                bench.ask("refer 1")
                keep(into, referring, bench.ask(f"sustain {first} {args.steps} 1 {args.seconds / 2}")["forward"])
                keep(into, pictures[1], bench.ask(f"draw {first} {args.steps} {args.seconds}")["picture"])
                bench.ask("refer 0")
                keep(into, pictures[0], bench.ask(f"draw {first} {args.steps} {args.seconds}")["picture"])
        peak = torch.cuda.max_memory_allocated() * 1e-6
    about = ours["bf16"].about["device"]
    for bench in ours.values():
        bench.close()
    print(f"{torch.cuda.get_device_name()}; sumi: {about}; torch {torch.__version__}, bfloat16, compiled, CUDA graphs, at most {peak:.0f} MB; {args.rounds} rounds of {args.seconds:g} s a picture in turns, half of it for the rest.")
    print(f"Prompts of {f.ROWS} rows, {tokens} of them tokens. The picture: PyTorch's from device event to device event, sumi's from submit to fetch.\n")
    print(f"| stage, ms | {' | '.join('sumi, ' + kind for kind in kinds)} | PyTorch | {' | '.join(kind + ' / PyTorch' for kind in kinds)} | spread of the rounds |")
    print("|---|" + "---:|" * (2 * len(kinds) + 2))
    for key, values in theirs.items():
        times = [statistics.median(mine[kind][key]) for kind in kinds]
        other = statistics.median(values)
        spread = max(max(one) / min(one) for one in (values, *(mine[kind][key] for kind in kinds))) - 1.0
        print(f"| {key} | {' | '.join(f'{1e3 * a:.2f}' for a in times)} | {1e3 * other:.2f} | {' | '.join(f'{a / other:.2f}' for a in times)} | {100 * spread:.1f} % |")


def print_gpu_table(args, about, peak, mine, theirs):
    import torch

    print(f"{torch.cuda.get_device_name()}; sumi: {about}, {args.weights}, attention in {args.attention}; torch {torch.__version__}, {args.torch_weights}, at most {peak:.0f} MB; {args.rounds} rounds of {args.seconds:g} s each in turns,")
    print(f"captions of {args.tokens} tokens, batches of {args.batch}, pictures of {args.steps} steps (PyTorch's from device event to device event, sumi's from submit to fetch).\n")
    print("| stage | sumi ms | PyTorch ms | ratio | spread of the rounds |\n|---|---:|---:|---:|---:|")
    for key in theirs:
        a, b = statistics.median(mine[key]), statistics.median(theirs[key])
        spread = max(max(values) / min(values) for values in (mine[key], theirs[key])) - 1.0
        print(f"| {key} | {1e3 * a:.2f} | {1e3 * b:.2f} | {a / b:.2f} | {100 * spread:.1f} % |")


# ---- Accuracy -------------------------------------------------------------------------------------------------------------------------------


def write_case(args, folder, model, tensors, tolerance):
    """A golden case of one prediction, as in tests/golden/z-image and beside it.

    Its tolerance is wide: compare_accuracy judges the errors that golden_run prints."""
    from safetensors.torch import save_file

    cases = Path(folder) / "cases"
    cases.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, cases / "prediction.safetensors")
    case = {"family": "z-image", "kind": "dit", "case": "prediction", "model": str(Path(model).resolve())}
    if is_qwen_image(args) or is_qwen_image_21(args) or is_newbie(args) or is_klein(args):  # by the name of a folder beside the cases
        if not (Path(folder) / "model").exists():
            (Path(folder) / "model").symlink_to(Path(model).resolve())
        case |= {"family": "newbie", "model": "model"} if is_newbie(args) else {"family": "qwen-image", "model": "model"}
        if is_klein(args):
            case |= {"family": "flux2-klein", "model": "../model"}
        if is_qwen_image_21(args):
            case |= {"family": "qwen-image-21", "layout": args.tokens, "target_grid": [args.height // 16, args.width // 16]}
    expected = next(name for name in tensors if name.startswith("expect."))
    case["tensors"] = {expected: {"tolerance": {"rel_l2": tolerance}, "bf16_rel_l2": tolerance}}
    (cases / "prediction.json").write_text(json.dumps(case))


def golden_error(args, folder, *options):
    command = [args.accuracy, "--as-engine", "--backend", args.backend, *options, str(folder)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"^  (?:out|velocity) +(?:ok|OVER) +error (\S+),", result.stdout, re.M)
    if not found:
        sys.exit(f"compare_torch: {' '.join(command)} ended with code {result.returncode}\n{result.stdout[-2000:]}")
    return float(found[1])


def pack(latents):
    return latents.unflatten(1, (-1, 2)).unflatten(3, (-1, 2)).permute(1, 3, 0, 2, 4).flatten(2).flatten(0, 1)


def qwen_product_by_rows(x, w, name):
    return product_by_rows(x, w[name + ".weight"]) + w[name + ".bias"].to(x.dtype)


class Prediction:
    """One prediction of a family for --accuracy. cast makes the inputs float32, or leaves them as they are."""

    time = 0.5

    def __init__(self, args, model, device, normal):
        self.args, self.device, self.normal = args, device, normal
        self.network = self.load(model / "transformer")
        self.latents, self.features = normal(*latent_shape(args)), normal(*self.feature_shape())
        self.draw_more()

    def load_as(self, transformer, folder):
        import torch

        return transformer(*load_part(folder, self.device, torch.bfloat16))

    def draw_more(self):
        pass

    def run(self, cast):
        return self.network(cast(self.latents), self.time, cast(self.features))

    def use_fp8(self):
        self.network.product = lambda x, w, name: product_by_rows(x, w[name + ".weight"])

    def whole_numbers(self):
        """Tensors of golden_run's case beside those of tensors()."""
        return {}


class ZImagePrediction(Prediction):
    def load(self, folder):
        import torch

        return ZImage(folder, self.device, torch.bfloat16)

    def feature_shape(self):
        return self.args.tokens, self.network.w["cap_embedder.1.weight"].shape[1]

    def use_fp8(self):
        self.network.fp8 = True

    def tensors(self, want):
        return {"input.latent": self.latents, "input.cap_feats": self.features, "expect.out": want}


class QwenPrediction(Prediction):
    def load(self, folder):
        import torch_qwen_image

        return self.load_as(torch_qwen_image.Transformer, folder)

    def feature_shape(self):
        return self.args.tokens, self.network.c["joint_attention_dim"]

    def use_fp8(self):
        self.network.product = qwen_product_by_rows

    def tensors(self, want):
        return {"input.x": pack(self.latents), "input.txt": self.features, "expect.out": pack(want)}

    def whole_numbers(self):
        return {"input.img_shapes": [[1, self.args.height // 16, self.args.width // 16]]}


class NewbiePrediction(Prediction):
    def load(self, folder):
        import torch_newbie

        return self.load_as(torch_newbie.Transformer, folder)

    def width(self, name):
        return self.network.w[name + ".weight"].shape[0]

    def feature_shape(self):
        return self.args.tokens, self.width("cap_embedder.0")

    def draw_more(self):
        self.pooled = self.normal(1, self.width("clip_text_pooled_proj.0"))

    def run(self, cast):
        return self.network(cast(self.latents), self.time, cast(self.features), cast(self.pooled))

    def tensors(self, want):
        return {"input.latent": self.latents, "input.cap": self.features, "input.pooled": self.pooled[0], "expect.velocity": want}


class KleinPrediction(Prediction):
    def load(self, folder):
        import torch_flux2

        self.rows = torch_flux2.ROWS
        return self.load_as(torch_flux2.Transformer, folder)

    def feature_shape(self):
        return self.rows, self.network.c["joint_attention_dim"]

    def draw_more(self):
        self.references = [self.normal(*latent_shape(self.args)) for _ in range(self.args.references)]

    def run(self, cast):
        return self.network(cast(self.latents), self.time, cast(self.features), [cast(z) for z in self.references])

    def tensors(self, want):
        tensors = {"input.latent": self.latents, "input.text": self.features, "expect.out": want}
        return tensors | {f"input.ref.{i}": z for i, z in enumerate(self.references)}


class Qwen21Prediction(Prediction):
    """Both sides compute the prefix too, in the format of the row."""

    def load(self, folder):
        import torch_qwen_image_21

        return self.load_as(torch_qwen_image_21.Transformer, folder)

    def feature_shape(self):
        return self.args.tokens, self.network.c["context_in_dim"]

    def run(self, cast):
        return self.network(cast(self.latents), self.time, self.network.keep(cast(self.features)))

    def tensors(self, want):
        return {"input.x": self.latents.flatten(1).T, "input.txt": self.features, "expect.out": want.flatten(1).T}

    def whole_numbers(self):
        return {"input.image_pads": [0] * self.args.tokens}


def predictions_of_torch(args, model):
    """What the prediction is made of, and its errors by PyTorch. What it has on the GPU is given back."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if args.backend == "cuda" else "cpu"
    generator = torch.Generator("cpu").manual_seed(SEED)
    family = QwenPrediction if is_qwen_image(args) else Qwen21Prediction if is_qwen_image_21(args) else NewbiePrediction if is_newbie(args) else KleinPrediction if is_klein(args) else ZImagePrediction
    with torch.inference_mode():
        normal = lambda *shape: torch.randn(shape, generator=generator).bfloat16().to(device)
        prediction = family(args, model, device, normal)
        with sdpa_kernel(SDPBackend.MATH):  # the others may take TF32
            want = prediction.run(lambda x: x.float())
        as_it_is = lambda x: x
        errors = {"PyTorch, bf16": relative_error(prediction.run(as_it_is), want)}
        prediction.use_fp8()
        errors["PyTorch, fp8 by rows"] = relative_error(prediction.run(as_it_is), want)
        tensors = prediction.tensors(want) | {"input.t": torch.tensor([prediction.time])}
        tensors = {name: tensor.float().cpu() for name, tensor in tensors.items()}
        tensors |= {name: torch.tensor(numbers, dtype=torch.int32) for name, numbers in prediction.whole_numbers().items()}
    del prediction, want
    if device == "cuda":
        torch.cuda.empty_cache()
    return tensors, errors


def compare_accuracy(args, model, folder):
    import torch

    tensors, errors = predictions_of_torch(args, model)
    write_case(args, folder, model, tensors, 1.0)
    half, quarter = errors["PyTorch, bf16"], errors["PyTorch, fp8 by rows"]
    if args.backend == "cpu":
        rows = [("sumi, float32", [], 1e-4)]
    else:
        rows = [("sumi, bf16", [], half), ("sumi, bf16, portable kernels", ["--portable"], half)]
        rows += [("sumi, fp8", ["--fp8"], 1.1 * quarter)]
        rows += [("sumi, fp8, portable kernels", ["--fp8", "--portable"], 1.1 * quarter)]
        rows += [("sumi, attention in 8 bits", ["--8bit-attention"], 1.1 * quarter)]
        rows += [("sumi, int8, attention in 8 bits", ["--int8", "--8bit-attention"], 1.1 * quarter)]
        rows += [("sumi, int8", ["--int8"], 2.2 * half)]
        rows += [("sumi, int8, portable kernels", ["--int8", "--portable"], 2.2 * half)]
        # 4.5 bits a weight: measured 12 to 13 times, with outliers 11 to 15. What is far above that is a defect.
        rows += [("sumi, int4", ["--int4"], 18 * half)]
        rows += [("sumi, int4, portable kernels", ["--int4", "--portable"], 18 * half)]
    left_out = len(rows)
    rows = [row for row in rows if args.accuracy_rows in row[0]]
    left_out -= len(rows)
    if not rows:
        sys.exit(f"compare_torch: no row's name contains {args.accuracy_rows!r}: try \"int8\" or \"attention in 8 bits\"")
    where = torch.cuda.get_device_name() if args.backend == "cuda" else "processor"
    text_rows = "512 text rows" if is_klein(args) else f"{args.tokens} caption tokens"
    if args.references:
        text_rows += f", {args.references} references of {args.size}"
    what = f"{args.size}, {text_rows}, {args.model or args.synthetic}{', outliers' if args.outliers else ''}"
    print(f"{where}; one prediction, {what}; torch {torch.__version__}\n")
    print("| off from PyTorch in float32 | rel. L2 | at most |\n|---|---:|---:|")
    for name, error in errors.items():
        print(f"| {name} | {error:.3e} | |")
    failed = []
    for name, options, limit in rows:
        error = golden_error(args, folder, *options)
        print(f"| {name} | {error:.3e} | {limit:.3e} |", flush=True)
        if not error <= limit:
            failed.append(name)
    print(f"\ncompare_torch: {len(rows) - len(failed)} passed, {len(failed)} failed, {left_out} skipped{' (left out by --accuracy-rows)' if left_out else ''}")
    if failed:
        sys.exit(f"compare_torch: further from float32 than PyTorch: {', '.join(failed)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", nargs="?", help="the built bench program")
    parser.add_argument("--synthetic", choices=["tiny", "mid", "z-image", "qwen-image-tiny", "qwen-image-mid", "qwen-image", "qwen-image-21-tiny", "qwen-image-21-mid", "qwen-image-21", "newbie-tiny", "newbie-mid", "newbie", "klein-tiny", "klein-mid", "klein"], help="mid; on a GPU z-image")
    parser.add_argument("--accuracy", metavar="GOLDEN_RUN", help="compare errors instead of times, with this program")
    parser.add_argument("--accuracy-rows", default="", metavar="TEXT", help="of --accuracy: only the rows of sumi whose names contain this, such as \"attention in 8 bits\"")
    parser.add_argument("--folder", help="where checkpoints that are made here go for the time being")
    parser.add_argument("--model", help="a checkpoint that bench --write made, instead of a new one")
    parser.add_argument("--size", default="512x512")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0, help="0: every core")
    parser.add_argument("--float32", action="store_true", help="the checkpoint holds float32 instead of bfloat16")
    parser.add_argument("--outliers", action="store_true", help="20 channels before a block's products are 15 to 40 times as large as the others")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sizes", help="sides of the pictures on a GPU; 1024,768,512, of --table 1024")
    parser.add_argument("--steps", type=int, help="of a picture on a GPU; 8, of klein 4")
    parser.add_argument("--seconds", type=float, help="per measurement on a GPU; 6, of --table 2")
    parser.add_argument("--rounds", type=int, default=2, help="turns on a GPU")
    parser.add_argument("--weights", default="bf16", choices=["bf16", "fp8", "int8", "int4", "as-stored"], help="sumi's on a GPU")
    parser.add_argument("--attention", default="bf16", choices=["bf16", "8bit"], help="sumi's on a GPU")
    parser.add_argument("--torch-weights", default="bf16", choices=["bf16", "fp8", "int8"], help="PyTorch's of Z-Image on a GPU; in 8 bits with scales of rows")
    parser.add_argument("--batch", type=int, default=1, help="pictures of Z-Image that both sides compute at once on a GPU")
    parser.add_argument("--blocks", type=int, default=0, help="cuts Qwen-Image's transformer to so many of its 60 blocks on both sides, for a GPU that does not hold 114 GB")
    parser.add_argument("--references", type=int, default=0, choices=range(11), metavar="N", help="with --accuracy of klein: the prediction has so many of the picture's size to refer to")
    parser.add_argument("--table", action="store_true", help="all families against PyTorch in bf16 and in 8 bits: torch_table.py says how")
    parser.add_argument("--families", default="z-image,qwen-image,edit,newbie,klein,qwen-image-21", help="of --table")
    parser.add_argument("--eager", choices=["diffusers"], help="with --table: also diffusers as its users run it, which must be where PYTHONPATH says (eager_diffusers.py)")
    parser.add_argument("--torch-forms", default="int8,fp8", help="PyTorch's forms of 8 bits that --table tries; the faster one stays")
    parser.add_argument("--table-parts", default="bf16,8 bits", help="what --table measures of a family; eager: diffusers and sumi alone")
    parser.add_argument("--collect", nargs="+", metavar="FILE", help="with --table: makes the table of what several runs printed")
    parser.add_argument("--table-worker", help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--features", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.bench and not args.collect:
        parser.error("give the built bench program, or --table --collect and files")
    args.sizes = args.sizes or ("1024" if args.table else "1024,768,512")
    args.seconds = args.seconds or (2.0 if args.table else 6.0)
    if args.table or args.collect:
        import torch_table

        return torch_table.work(args) if args.table_worker else torch_table.table(args)
    args.width, args.height = (int(n) for n in args.size.split("x"))
    args.threads = args.threads or len(os.sched_getaffinity(0))
    args.synthetic = args.synthetic or ("z-image" if args.backend == "cuda" else "mid")
    args.steps = args.steps or (4 if is_klein(args) else 8)
    if args.references and not (args.accuracy and is_klein(args)):
        sys.exit("compare_torch: --references goes with --accuracy and --synthetic klein; leave it out: the table of times on a GPU has a forward with a reference in any case")
    if args.backend == "cuda" and args.synthetic in ("klein-tiny", "klein-mid") and not args.accuracy:
        sys.exit(f"compare_torch: on a GPU PyTorch has the released sizes: give --synthetic klein instead of {args.synthetic}")
    if is_klein(args) and args.outliers:
        sys.exit("compare_torch: klein has no norms with weights before its products: leave out --outliers")
    if is_qwen_image_21(args) and not args.accuracy:
        sys.exit("compare_torch: of Qwen-Image-2.1 there are --accuracy, and --table --families qwen-image-21")
    if args.worker:
        return worker(args)
    if args.backend == "cuda" and not args.accuracy:
        return (compare_gpu_qwen if is_qwen_image(args) else compare_gpu_newbie if is_newbie(args) else compare_gpu_klein if is_klein(args) else compare_gpu)(args)

    load = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="sumi-compare-", dir=args.folder))
    try:
        model = Path(args.model) if args.model else folder / "model"
        if not args.model:
            subprocess.run([args.bench, "--synthetic", args.synthetic, "--write", str(model), *(["--float32"] if args.float32 else []), *(["--outliers"] if args.outliers else [])], check=True)
        if args.accuracy:
            return compare_accuracy(args, model, folder)
        text, text_memory, abouts = compare(args, model, folder, "text", ["text"])
        image, image_memory, _ = compare(args, model, folder, "image", ["forward", "decode"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)

    processor = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "unknown processor")
    encoder, family = ("Qwen2.5-VL", "Qwen-Image") if is_qwen_image(args) else ("Gemma 3 and Jina CLIP", "NewBie-image") if is_newbie(args) else ("Qwen3", "FLUX.2 [klein]" if is_klein(args) else "Z-Image")
    names = {"text": f"{encoder} encode, {args.tokens} tokens{' in 512 rows' if is_klein(args) else ''}", "forward": f"{family} forward, {args.size}", "decode": f"VAE decode, {args.size}"}
    checkpoint = args.model or f"synthetic {args.synthetic}, {'float32' if args.float32 else 'bfloat16'} weights"
    print(f"{processor}, {args.threads} threads; {checkpoint}; medians of {args.runs} calls in turns.")
    if load > 0.5:
        print(f"The machine was busy before the start (load {load:.1f}): these times say little.")
    print(f"sumi: {abouts[0]}. PyTorch: {abouts[1]}, float32.\n")
    print("| stage | sumi ms | PyTorch ms | ratio | sumi GFLOP/s | difference (rel. L2) |\n|---|---:|---:|---:|---:|---:|")
    for key, a, b, ratio, rate, error in text + image:
        print(f"| {names[key]} | {1e3 * a:.1f} | {1e3 * b:.1f} | {ratio:.2f} | {rate:.0f} | {error:.1e} |")
    print("\n| peak memory of the process | sumi MB | PyTorch MB | ratio |\n|---|---:|---:|---:|")
    for name, (a, b) in (("text encoder", text_memory), ("transformer and VAE", image_memory)):
        print(f"| {name} | {a:.0f} | {b:.0f} | {a / b:.2f} |")
    wrong = [names[key] for key, *_, error in text + image if not error < 1e-3]
    if wrong:
        sys.exit(f"compare_torch: the results differ: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
