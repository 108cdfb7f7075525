"""Qwen-Image's networks in plain PyTorch, for compare_torch.py: the two-stream transformer, the language model, the vision tower and the autoencoder, from their description.

Every network is a function of a dictionary of weights, named as in the released files, and computes in the type of what it is given, whatever type the weights have. What a network repeats (a block,
a layer) is a function of its own weights under short names, so that one compilation serves all of them: compile_parts().
"""
import re

import torch
import torch.nn.functional as F
from torch_parts import WanAutoencoder, linear, products, rms, rotate_pairs, stack_products, under

SIZES = {  # the released ones
    "transformer": {"num_layers": 60, "num_attention_heads": 24, "attention_head_dim": 128, "joint_attention_dim": 3584},
    "text": {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064},
    "vision": {"hidden_size": 1280, "depth": 32, "num_heads": 16, "intermediate_size": 3420, "out_hidden_size": 3584, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]},
    "vae": {"base_dim": 96, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2},
}
BEFORE = "system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:"
DROPPED_ROWS = 34
TEMPLATE_ROWS = 5
QKV, TEXT_QKV = [tuple(name.format(c) for c in "qkv") for name in ("attn.to_{}", "attn.add_{}_proj")]
LAYER_QKV, GATE_UP = tuple(f"self_attn.{c}_proj" for c in "qkv"), ("mlp.gate_proj", "mlp.up_proj")
compiled = {}  # what compile_parts made of the functions below


def compile_parts():
    for part in (two_stream_block, text_layer, vision_block, res_block):
        compiled[part] = torch.compile(part, fullgraph=True, dynamic=False)


def call(part, *arguments):
    return compiled.get(part, part)(*arguments)


# ---- The transformer --------------------------------------------------------------------------------------------------------------------


def two_stream_block(x, y, condition, w, image_table, text_table, heads, product):
    """x: picture's rows, y: text's, [rows, width]; condition: SiLU of the time's embedding, [1, width]. product: what does the matrix products."""
    norm = lambda v: F.layer_norm(v, v.shape[-1:], eps=1e-6)
    split = lambda v: v.unflatten(-1, (heads, -1))
    shift1, scale1, gate1, shift2, scale2, gate2 = linear(condition, w, "img_mod.1").chunk(6, -1)
    t_shift1, t_scale1, t_gate1, t_shift2, t_scale2, t_gate2 = linear(condition, w, "txt_mod.1").chunk(6, -1)
    a, b = norm(x) * (1 + scale1) + shift1, norm(y) * (1 + t_scale1) + t_shift1
    q, k, v = (split(one) for one in products(a, w, *QKV, product=product))
    tq, tk, tv = (split(one) for one in products(b, w, *TEXT_QKV, product=product))
    q, k = rotate_pairs(rms(q, w["attn.norm_q.weight"]), *image_table), rotate_pairs(rms(k, w["attn.norm_k.weight"]), *image_table)
    tq, tk = rotate_pairs(rms(tq, w["attn.norm_added_q.weight"]), *text_table), rotate_pairs(rms(tk, w["attn.norm_added_k.weight"]), *text_table)
    joint = (torch.cat(pair).transpose(0, 1)[None] for pair in ((tq, q), (tk, k), (tv, v)))  # text first
    o = F.scaled_dot_product_attention(*joint)[0].transpose(0, 1).flatten(1)
    rows = y.shape[0]
    x = x + gate1 * product(o[rows:], w, "attn.to_out.0")
    y = y + t_gate1 * product(o[:rows], w, "attn.to_add_out")
    a, b = norm(x) * (1 + scale2) + shift2, norm(y) * (1 + t_scale2) + t_shift2
    x = x + gate2 * product(F.gelu(product(a, w, "img_mlp.net.0.proj"), approximate="tanh"), w, "img_mlp.net.2")
    y = y + t_gate2 * product(F.gelu(product(b, w, "txt_mlp.net.0.proj"), approximate="tanh"), w, "txt_mlp.net.2")
    return x, y


class Transformer:
    def __init__(self, w, config):
        self.w, self.c = w, config
        self.heads = config["num_attention_heads"]
        self.blocks = [under(w, f"transformer_blocks.{i}.") for i in range(config["num_layers"])]
        self.tables = {}
        self.product = linear

    def table(self, positions, device):
        head = self.c["attention_head_dim"]
        axes = self.c.get("axes_dims_rope", [head // 8, head // 16 * 7, head // 16 * 7])
        columns = [positions[:, a : a + 1] * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width) for a, width in enumerate(axes)]
        angles = torch.cat(columns, 1)[:, None].float().to(device)
        return angles.cos(), angles.sin()

    def layout(self, tokens, grids, device):
        """Tables of the pictures (rows, columns of tokens; the first one is made, the others are referred to) and the text."""
        key = (tokens, *grids)
        if key not in self.tables:
            centred = lambda n: torch.arange(n, dtype=torch.float64) - (n - n // 2)
            pictures = [torch.cartesian_prod(torch.tensor([float(i)], dtype=torch.float64), centred(h), centred(w)) for i, (h, w) in enumerate(grids)]
            first = max(max(h // 2, w // 2) for h, w in grids)
            text = (first + torch.arange(tokens, dtype=torch.float64))[:, None].expand(-1, 3)
            # All are kept: a CUDA graph reads them where they were when it was captured.
            self.tables[key] = (self.table(torch.cat(pictures), device), self.table(text, device))
        return self.tables[key]

    def __call__(self, latents, t, features, references=()):
        """latents and references: [16, height, width]; the velocity of the first."""
        w = self.w
        pack = lambda z: z.unflatten(1, (-1, 2)).unflatten(3, (-1, 2)).permute(1, 3, 0, 2, 4).flatten(2).flatten(0, 1)
        pictures = [latents, *references]
        grids = [(z.shape[1] // 2, z.shape[2] // 2) for z in pictures]
        image_table, text_table = self.layout(len(features), grids, latents.device)
        steps = torch.exp(-9.210340371976184 * torch.arange(128, dtype=torch.float32, device=latents.device) / 128)
        arguments = 1000.0 * (t * steps)
        embedded = torch.cat([arguments.cos(), arguments.sin()])[None].to(latents.dtype)
        time = "time_text_embed.timestep_embedder."
        condition = F.silu(linear(F.silu(linear(embedded, w, time + "linear_1")), w, time + "linear_2"))
        x = linear(torch.cat([pack(z) for z in pictures]), w, "img_in")
        y = linear(rms(features, w["txt_norm.weight"]), w, "txt_in")
        for block in self.blocks:
            x, y = call(two_stream_block, x, y, condition, block, image_table, text_table, self.heads, self.product)
        scale, shift = linear(condition, w, "norm_out.linear").chunk(2, -1)
        rows, columns = grids[0]
        x = F.layer_norm(x[: rows * columns], x.shape[-1:], eps=1e-6) * (1 + scale) + shift
        out = linear(x, w, "proj_out").view(rows, columns, -1, 2, 2)
        return out.permute(2, 0, 3, 1, 4).reshape(latents.shape)


# ---- The language model -----------------------------------------------------------------------------------------------------------------


def rotate_halves(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def text_layer(h, w, cos, sin, heads, groups):
    """h: [rows, width]."""
    a = rms(h, w["input_layernorm.weight"])
    q, k, v = (one.unflatten(-1, (n, -1)).transpose(0, 1) for one, n in zip(products(a, w, *LAYER_QKV), (heads, groups, groups)))
    q, k = rotate_halves(q, cos, sin), rotate_halves(k, cos, sin)
    o = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
    h = h + linear(o.transpose(0, 1).flatten(1), w, "self_attn.o_proj")
    m = rms(h, w["post_attention_layernorm.weight"])
    gate, up = products(m, w, *GATE_UP)
    return h + linear(F.silu(gate) * up, w, "mlp.down_proj")


class Text:
    def __init__(self, w, config):
        self.w, self.c = w, config
        self.layers = [under(w, f"model.layers.{i}.") for i in range(config["num_hidden_layers"])]

    def __call__(self, ids, pictures=None, at=0, grid=(0, 0)):
        """pictures: rows of a vision tower that stand in place of the ids from `at` on, in grid[0] rows of grid[1]. Everything behind the last norm, the template's rows too."""
        c, heads = self.c, self.c["num_attention_heads"]
        dim = c["hidden_size"] // heads
        h = self.w["model.embed_tokens.weight"][ids]
        count = len(ids)
        positions = torch.arange(count, dtype=torch.float32).repeat(3, 1)
        if pictures is not None:  # one moment, then rows and columns; what follows goes on behind the largest
            h = torch.cat([h[:at], pictures, h[at + len(pictures) :]])
            end = at + len(pictures)
            cells = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1])).T.float()
            positions[0, at:end] = at
            positions[1:, at:end] = at + cells
            positions[:, end:] = at + max(grid) + torch.arange(count - end, dtype=torch.float32)
        frequencies = 1e6 ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        sections = torch.tensor([0] * (dim // 8) + [1] * (dim // 16 * 3) + [2] * (dim // 16 * 3))
        angles = (positions[sections].T * frequencies).to(h.device)
        cos, sin = angles.cos().to(h.dtype), angles.sin().to(h.dtype)
        for layer in self.layers:
            h = call(text_layer, h, layer, cos, sin, heads, c["num_key_value_heads"])
        return rms(h, self.w["model.norm.weight"])


def tokenise(tokenizer, text):
    """With the synthetic tokenizer, where a word of the template is a token and every other byte is one."""
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocabulary = tokenizer["model"]["vocab"]
    pieces = r"'s| ?[A-Za-z]+|\d| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

    def plain(string):
        found = []
        for piece in re.findall(pieces, string):
            coded = "".join(chr(b) if 33 <= b <= 126 else chr(0x100 + b) for b in piece.encode())
            found += [vocabulary[coded]] if coded in vocabulary else [vocabulary[letter] for letter in coded]
        return found

    start, end = ids["<|im_start|>"], ids["<|im_end|>"]
    return [start, *plain(BEFORE), end, *plain("\n"), start, *plain("user\n" + text), end, *plain("\n"), start, *plain("assistant\n")]


# ---- The vision tower -------------------------------------------------------------------------------------------------------------------


def vision_block(h, w, cos, sin, heads, window):
    """h: [patches, width]. window: how many patches see each other; 0: all."""
    q, k, v = linear(rms(h, w["norm1.weight"]), w, "attn.qkv").unflatten(-1, (3, heads, -1)).unbind(1)
    q, k = rotate_halves(q, cos, sin), rotate_halves(k, cos, sin)
    if window:
        q, k, v = (t.unflatten(0, (-1, window)).transpose(1, 2) for t in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1)
    else:
        o = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)))[0].transpose(0, 1)
    h = h + linear(o.flatten(1), w, "attn.proj")
    m = rms(h, w["norm2.weight"])
    gate, up = products(m, w, *GATE_UP)
    return h + linear(F.silu(gate) * up, w, "mlp.down_proj")


class Vision:
    """For its time alone: windows at the edge of a picture are filled up, so that all have one size."""

    def __init__(self, w, config):
        self.w, self.c = under(w, "visual."), config
        self.blocks = [under(self.w, f"blocks.{i}.") for i in range(config["depth"])]

    def __call__(self, patches):
        """patches: [count, 1176] in the order of windows of 64; a row for every four."""
        c, w = self.c, self.w
        dim = c["hidden_size"] // c["num_heads"]
        h = F.linear(patches, w["patch_embed.proj.weight"].flatten(1).to(patches.dtype))
        angles = torch.arange(len(h), dtype=torch.float32, device=h.device)[:, None] * 1e4 ** (-torch.arange(0, dim, 2, dtype=torch.float32, device=h.device) / dim)
        cos, sin = angles.cos()[:, None].to(h.dtype), angles.sin()[:, None].to(h.dtype)
        for i, block in enumerate(self.blocks):
            h = call(vision_block, h, block, cos, sin, c["num_heads"], 0 if i in c["fullatt_block_indexes"] else 64)
        h = rms(h, w["merger.ln_q.weight"]).unflatten(0, (-1, 4)).flatten(1)
        return linear(F.gelu(linear(h, w, "merger.mlp.0")), w, "merger.mlp.2")


# ---- The autoencoder --------------------------------------------------------------------------------------------------------------------


def conv(x, w, name, **options):
    """Of a kernel in time and space, one picture meets the last slice in time."""
    weight, bias = w[name + ".weight"], w[name + ".bias"].to(x.dtype)
    weight = (weight[:, :, -1] if weight.dim() == 5 else weight).to(x.dtype)
    weight = weight.contiguous(memory_format=torch.channels_last)
    return F.conv2d(x, weight, bias, padding=options.pop("padding", weight.shape[-1] // 2), **options)


def pixel_norm(x, gamma):
    return F.normalize(x.float(), dim=1).to(x.dtype) * (x.shape[1] ** 0.5) * gamma.to(x.dtype).view(1, -1, 1, 1)


def res_block(x, w):
    h = conv(F.silu(pixel_norm(x, w["norm1.gamma"])), w, "conv1")
    h = conv(F.silu(pixel_norm(h, w["norm2.gamma"])), w, "conv2")
    return h + (conv(x, w, "conv_shortcut") if "conv_shortcut.weight" in w else x)


class Autoencoder(WanAutoencoder):
    conv, pixel_norm, block = staticmethod(conv), staticmethod(pixel_norm), staticmethod(lambda x, w: call(res_block, x, w))

    def __init__(self, w, config):
        # the last slice in time of every kernel, once
        super().__init__({name: tensor[:, :, -1].contiguous(memory_format=torch.channels_last) if tensor.dim() == 5 else tensor for name, tensor in w.items()}, config)

    def decode(self, latents):
        w, c = self.w, self.c
        mean, deviation = self.statistics(latents)
        x = conv((latents[None] * deviation + mean).contiguous(memory_format=torch.channels_last), w, "post_quant_conv")
        x = self.middle(conv(x, w, "decoder.conv_in"), "decoder.mid_block")
        for stage in range(4):
            for i in range(c["num_res_blocks"] + 1):
                x = self.res(x, f"decoder.up_blocks.{stage}.resnets.{i}")
            if stage < 3:
                x = conv(F.interpolate(x, scale_factor=2.0, mode="nearest"), w, f"decoder.up_blocks.{stage}.upsamplers.0.resample.1")
        return conv(F.silu(pixel_norm(x, w["decoder.norm_out.gamma"])), w, "decoder.conv_out")[0]

    def encode(self, picture):
        """The mean of the posterior, of a picture [3, height, width] in -1 .. 1."""
        w, module = self.w, 0
        x = conv(picture[None].contiguous(memory_format=torch.channels_last), w, "encoder.conv_in")
        for stage in range(4):
            for _ in range(self.c["num_res_blocks"]):
                x, module = self.res(x, f"encoder.down_blocks.{module}"), module + 1
            if stage < 3:
                x, module = conv(F.pad(x, (0, 1, 0, 1)), w, f"encoder.down_blocks.{module}.resample.1", stride=2, padding=0), module + 1
        x = F.silu(pixel_norm(self.middle(x, "encoder.mid_block"), w["encoder.norm_out.gamma"]))
        moments = conv(conv(x, w, "encoder.conv_out"), w, "quant_conv")
        mean, deviation = self.statistics(moments)
        return ((moments[:, :16] - mean) / deviation)[0]


# ---- Random weights of the released sizes ------------------------------------------------------------------------------------------------


def random_weights(shapes, device, dtype):
    made = {}
    for name, shape in shapes.items():
        center = 1.0 if "norm" in name or "ln_q" in name else 0.0
        made[name] = torch.empty(shape, device=device, dtype=dtype).normal_(center, 0.02)
        if made[name].dim() == 4:
            made[name] = made[name].contiguous(memory_format=torch.channels_last)
    return made


def linears(into, prefix, **shapes):
    for name, (rows, columns) in shapes.items():
        into[f"{prefix}{name}.weight"], into[f"{prefix}{name}.bias"] = (rows, columns), (rows,)


def transformer_shapes(c):
    dim, text = c["num_attention_heads"] * c["attention_head_dim"], c["joint_attention_dim"]
    s = {"txt_norm.weight": (text,)}
    linears(s, "", **{"img_in": (dim, 64), "txt_in": (dim, text), "norm_out.linear": (2 * dim, dim), "proj_out": (64, dim)})
    linears(s, "time_text_embed.timestep_embedder.", linear_1=(dim, 256), linear_2=(dim, dim))
    for i in range(c["num_layers"]):
        p = f"transformer_blocks.{i}."
        for side, attention in (("img", ("to_q", "to_k", "to_v", "to_out.0")), ("txt", ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"))):
            linears(s, p, **{f"{side}_mod.1": (6 * dim, dim), f"{side}_mlp.net.0.proj": (4 * dim, dim), f"{side}_mlp.net.2": (dim, 4 * dim)})
            linears(s, p + "attn.", **{name: (dim, dim) for name in attention})
        s |= {f"{p}attn.{name}.weight": (c["attention_head_dim"],) for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k")}
    return s


def text_shapes(c):
    width, hidden = c["hidden_size"], c["intermediate_size"]
    groups = width // c["num_attention_heads"] * c["num_key_value_heads"]
    s = {"model.embed_tokens.weight": (c["vocab_size"], width), "model.norm.weight": (width,)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        linears(s, p + "self_attn.", q_proj=(width, width), k_proj=(groups, width), v_proj=(groups, width))
        s[p + "self_attn.o_proj.weight"] = (width, width)
        s |= {p + "mlp.gate_proj.weight": (hidden, width), p + "mlp.up_proj.weight": (hidden, width), p + "mlp.down_proj.weight": (width, hidden)}
        s |= {p + name + ".weight": (width,) for name in ("input_layernorm", "post_attention_layernorm")}
    return s


def vision_shapes(c):
    width, hidden, p = c["hidden_size"], c["intermediate_size"], "visual."
    s = {p + "patch_embed.proj.weight": (width, 3, 2, 14, 14), p + "merger.ln_q.weight": (width,)}
    linears(s, p + "merger.", **{"mlp.0": (4 * width, 4 * width), "mlp.2": (c["out_hidden_size"], 4 * width)})
    for i in range(c["depth"]):
        b = f"{p}blocks.{i}."
        s |= {b + "norm1.weight": (width,), b + "norm2.weight": (width,)}
        linears(s, b, **{"attn.qkv": (3 * width, width), "attn.proj": (width, width), "mlp.gate_proj": (hidden, width), "mlp.up_proj": (hidden, width), "mlp.down_proj": (width, hidden)})
    return s


def vae_shapes(c):
    widths, s = [c["base_dim"] * m for m in c["dim_mult"]], {}

    def add(name, out, into, kernel, frames=True):
        s[name + ".weight"], s[name + ".bias"] = (out, into, *((kernel,) if frames else ()), kernel, kernel), (out,)

    def res(name, out, into):
        s[name + ".norm1.gamma"], s[name + ".norm2.gamma"] = (into, 1, 1, 1), (out, 1, 1, 1)
        add(name + ".conv1", out, into, 3), add(name + ".conv2", out, out, 3)
        if out != into:
            add(name + ".conv_shortcut", out, into, 1)

    top, module, into = widths[3], 0, widths[0]
    for half in ("encoder", "decoder"):
        for i in range(2):
            res(f"{half}.mid_block.resnets.{i}", top, top)
        s[half + ".mid_block.attentions.0.norm.gamma"] = (top, 1, 1)
        add(half + ".mid_block.attentions.0.to_qkv", 3 * top, top, 1, False), add(half + ".mid_block.attentions.0.proj", top, top, 1, False)
    for stage, width in enumerate(widths):
        for _ in range(c["num_res_blocks"]):
            res(f"encoder.down_blocks.{module}", width, into)
            into, module = width, module + 1
        if stage < 3:
            add(f"encoder.down_blocks.{module}.resample.1", width, width, 3, False)
            module += 1
    into = top
    for stage, width in enumerate(reversed(widths)):
        for i in range(c["num_res_blocks"] + 1):
            res(f"decoder.up_blocks.{stage}.resnets.{i}", width, into)
            into = width
        if stage < 3:
            add(f"decoder.up_blocks.{stage}.upsamplers.0.resample.1", width // 2, width, 3, False)
            into = width // 2
    s |= {"encoder.norm_out.gamma": (top, 1, 1, 1), "decoder.norm_out.gamma": (widths[0], 1, 1, 1)}
    for name, out, inputs, kernel in (("encoder.conv_in", widths[0], 3, 3), ("encoder.conv_out", 32, top, 3), ("decoder.conv_in", top, 16, 3), ("decoder.conv_out", 3, widths[0], 3), ("quant_conv", 32, 32, 1), ("post_quant_conv", 16, 16, 1)):
        add(name, out, inputs, kernel)
    return s


def random_networks(sizes, device, dtype):
    """Those that `sizes` names, in the order of SIZES."""
    kinds = {"transformer": (Transformer, transformer_shapes), "text": (Text, text_shapes), "vision": (Vision, vision_shapes), "vae": (Autoencoder, vae_shapes)}

    def made(kind):
        network, shapes = kinds[kind]
        weights = random_weights(shapes(sizes[kind]), device, dtype)
        stack_products(weights, QKV, TEXT_QKV, LAYER_QKV, GATE_UP)
        return network(weights, sizes[kind])

    return [made(kind) for kind in kinds if kind in sizes]
