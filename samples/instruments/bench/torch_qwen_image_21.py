"""Qwen-Image-2.1's transformer and autoencoder in plain PyTorch, for compare_torch.py, from their description.

Every network is a function of a dictionary of weights, named as in the released files, and computes in the type of what it is given. What a network repeats is a function of its own weights under short
names, so that one compilation serves all of them: compile_parts(). Rows of text and of references see nothing of the image, so their keys and values are computed once, by keep(), as sumi does.
"""
import math

import torch
import torch.nn.functional as F
from torch_parts import WanAutoencoder, linear, products, rms, rotate_pairs, stack_products, under

SIZES = {  # the released ones
    "transformer": {"num_layers": 32, "num_attention_heads": 32, "attention_head_dim": 128, "context_in_dim": 4096, "mlp_ratio": 3, "in_channels": 64, "axes_dims_rope": [16, 56, 56], "eps": 1e-6},
    "vae": {"base_dim": 96, "decoder_base_dim": 144, "z_dim": 64, "dim_mult": [1, 2, 4, 8, 8], "num_res_blocks": 2, "temperal_downsample": [False, True, True, True], "in_channels": 4, "out_channels": 4},
}
THETA = 10000.0
QKV, GATE_UP = tuple(f"attn.to_{c}" for c in "qkv"), ("img_mlp.gate_layer", "img_mlp.proj")
compiled = {}  # what compile_parts made of the functions below


def compile_parts():
    for part in (block, res_block):
        compiled[part] = torch.compile(part, fullgraph=True, dynamic=False)


def call(part, *arguments):
    return compiled.get(part, part)(*arguments)


# ---- The transformer --------------------------------------------------------------------------------------------------------------------


def norm(x, scale, eps):
    return F.layer_norm(x, x.shape[-1:], eps=eps) * (1 + scale)


def block(x, modulation, kept_k, kept_v, w, cos, sin, heads, eps, mask, product):
    """x: [rows, width]; modulation: [1, 4 width]; kept_k, kept_v: [rows of the prefix, heads, dim], or None. mask: which of these rows see which, or None: all. The rows, their keys and values."""
    scale1, gate1, scale2, gate2 = modulation.chunk(4, -1)
    q, k, v = (one.unflatten(-1, (heads, -1)) for one in products(norm(x, scale1, eps), w, *QKV, product=product))
    q, k = (rotate_pairs(rms(one, w[f"attn.norm_{name}.weight"], eps), cos, sin) for name, one in (("q", q), ("k", k)))
    keys, values = (k, v) if kept_k is None else (torch.cat([kept_k, k]), torch.cat([kept_v, v]))
    o = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, keys, values)), attn_mask=mask)[0].transpose(0, 1).flatten(1)
    x = x + gate1.tanh() * product(o, w, "attn.to_out.0")
    gate, up = products(norm(x, scale2, eps), w, *GATE_UP, product=product)
    return x + gate2.tanh() * product(F.silu(gate) * up, w, "img_mlp.out"), k, v


class Transformer:
    def __init__(self, w, config):
        self.w, self.c = w, config
        self.heads, self.eps = config["num_attention_heads"], config.get("eps", 1e-6)
        self.blocks = [under(w, f"transformer_blocks.{i}.") for i in range(config["num_layers"])]
        self.tables = {}
        self.product = linear

    def positions(self, segments):
        """[rows, 3] of a list of segments: a number of rows of text, or the (rows, columns) of a picture."""
        made, p = [], 0
        for segment in segments:
            if isinstance(segment, int):
                made.append(torch.arange(p, p + segment, dtype=torch.float64)[:, None].expand(-1, 3))
                p += segment
            else:
                rows, columns = segment
                y, x = (torch.arange(n, dtype=torch.float64) - (n - n // 2) for n in segment)
                made.append(torch.stack([torch.full((rows, columns), float(p), dtype=torch.float64), y[:, None].expand(rows, columns), x.expand(rows, columns)], -1).flatten(0, 1))
                p += max(segment)
        return torch.cat(made)

    def rotation(self, segments, device):
        """cos and sin of all rows. All tables are kept: a CUDA graph reads them where they were when it was captured."""
        key = tuple(segments)
        if key not in self.tables:
            places = self.positions(segments)
            angles = [places[:, a : a + 1] * THETA ** (-torch.arange(0, width, 2, dtype=torch.float64) / width) for a, width in enumerate(self.c["axes_dims_rope"])]
            angles = torch.cat(angles, 1)[:, None].float().to(device)
            self.tables[key] = angles.cos(), angles.sin()
        return self.tables[key]

    def condition(self, t, like):
        """The modulation of all blocks and the scale of the last norm at time t, [1, ..]."""
        w = self.w
        steps = torch.exp(-math.log(10000.0) * torch.arange(128, dtype=torch.float32, device=like.device) / 128)
        embedded = torch.cat([(1000.0 * t * steps).cos(), (1000.0 * t * steps).sin()])[None].to(like.dtype)
        time = "time_text_embed.timestep_embedder."
        condition = F.silu(linear(F.silu(linear(embedded, w, time + "linear_1")), w, time + "linear_2"))
        return linear(condition, w, "modulation.1"), linear(condition, w, "norm_out.linear")

    def keep(self, features, references=()):
        """The keys and values that the prefix has in every block. features: [tokens, width], all of them in front of the references, of [channels, rows, columns] each; how rows are placed does not change what
        they cost. What keep() returns goes into __call__."""
        w = self.w
        zero_centred = rms(features, 1.0 + w["txt_in.text_norm.weight"].float(), self.eps)
        text = linear(F.gelu(linear(zero_centred, w, "txt_in.in_layer"), approximate="tanh"), w, "txt_in.out_layer")
        x = torch.cat([text, *(linear(z.flatten(1).T, w, "img_in") for z in references)])
        segments = [len(features), *(tuple(z.shape[1:]) for z in references)]
        cos, sin = self.rotation(segments, features.device)
        ends = torch.cat([torch.arange(1, len(features) + 1)] + [torch.full((rows * columns,), 0) for rows, columns in segments[1:]])
        end = len(features)
        for rows, columns in segments[1:]:
            ends[end : end + rows * columns] = end + rows * columns
            end += rows * columns
        mask = (torch.arange(end)[None] < ends[:, None]).to(features.device)
        modulation, _ = self.condition(0.0, features)
        kept = []
        for weights in self.blocks:
            x, k, v = block(x, modulation, None, None, weights, cos, sin, self.heads, self.eps, mask, self.product)
            kept.append((k, v))
        return segments, kept

    def __call__(self, latents, t, prefix):
        """latents: [channels, rows, columns]; t: sigma; prefix: of keep(). The velocity."""
        segments, kept = prefix
        own = tuple(latents.shape[1:])
        count = own[0] * own[1]
        cos, sin = (table[-count:] for table in self.rotation([*segments, own], latents.device))
        modulation, scale = self.condition(t, latents)
        x = linear(latents.flatten(1).T, self.w, "img_in")
        for weights, (k, v) in zip(self.blocks, kept):
            x, _, _ = call(block, x, modulation, k, v, weights, cos, sin, self.heads, self.eps, None, self.product)
        return linear(norm(x, scale, self.eps), self.w, "proj_out").T.reshape(latents.shape)


# ---- The autoencoder: its decoder ---------------------------------------------------------------------------------------------------------


def conv(x, w, name):
    weight = w[name + ".weight"].to(x.dtype)
    return F.conv2d(x, weight, w[name + ".bias"].to(x.dtype), padding=weight.shape[-1] // 2)


def pixel_norm(x, gamma):
    return F.normalize(x, dim=1, eps=1e-12) * math.sqrt(x.shape[1]) * gamma.to(x.dtype).view(1, -1, 1, 1)


def res_block(x, w):
    h = conv(x, w, "conv_shortcut") if "conv_shortcut.weight" in w else x
    y = conv(F.silu(pixel_norm(x, w["norm1.gamma"])), w, "conv1")
    return conv(F.silu(pixel_norm(y, w["norm2.gamma"])), w, "conv2") + h


def repeated(x, channels, frames):
    """The shortcut around a stage of the decoder: every output value is a value of x, twice as many along each side. Of `frames` frames the last one counts."""
    rows, columns = x.shape[2:]
    y = x.repeat_interleave(channels * frames * 4 // x.shape[1], 1).view(1, channels, frames, 2, 2, rows, columns)[:, :, -1]
    return y.permute(0, 1, 4, 2, 5, 3).reshape(1, channels, 2 * rows, 2 * columns)


class Autoencoder(WanAutoencoder):
    conv, pixel_norm, block = staticmethod(conv), staticmethod(pixel_norm), staticmethod(lambda x, w: call(res_block, x, w))

    def __init__(self, w, config):
        # Channels last is the faster layout of convolutions.
        super().__init__({name: tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor for name, tensor in w.items()}, config)

    def decode(self, latents):
        """latents: [channels, rows, columns]; the picture in -1 .. 1, alpha as its fourth channel."""
        w, c = self.w, self.c
        mean, deviation = self.statistics(latents)
        x = conv((latents[None] * deviation + mean).contiguous(memory_format=torch.channels_last), w, "post_quant_conv")
        x = self.middle(conv(x, w, "decoder.conv_in"), "decoder.mid_block")
        widths = decoder_widths(c)
        for stage in range(len(widths) - 1):
            before = x
            for i in range(c["num_res_blocks"] + 1):
                x = self.res(x, f"decoder.up_blocks.{stage}.resnets.{i}")
            if stage < len(widths) - 2:
                x = conv(F.interpolate(x, scale_factor=2.0, mode="nearest"), w, f"decoder.up_blocks.{stage}.upsampler.resample.1")
                x = x + repeated(before, widths[stage + 1], 2 if c["temperal_downsample"][::-1][stage] else 1)
        return conv(F.silu(pixel_norm(x, w["decoder.norm_out.gamma"])), w, "decoder.conv_out")[0].clamp(-1.0, 1.0)


# ---- Random weights of the released sizes ------------------------------------------------------------------------------------------------


def decoder_widths(c):
    """Of the middle, then of each stage."""
    base = c.get("decoder_base_dim") or c["base_dim"]
    return [base * m for m in (c["dim_mult"][-1], *reversed(c["dim_mult"]))]


def random_weights(shapes, device, dtype):
    made = {}
    for name, shape in shapes.items():
        center = 1.0 if "norm" in name and "text_norm" not in name and (name.endswith(".gamma") or len(shape) == 1) else 0.0
        made[name] = torch.empty(shape, device=device, dtype=dtype).normal_(center, 0.02)
    return made


def transformer_shapes(c):
    dim, head = c["num_attention_heads"] * c["attention_head_dim"], c["attention_head_dim"]
    hidden, text = dim * c["mlp_ratio"], c["context_in_dim"]
    s = {"img_in": (dim, c["in_channels"]), "txt_in.text_norm": (text,), "txt_in.in_layer": (dim, text), "txt_in.out_layer": (dim, dim)}
    s |= {"time_text_embed.timestep_embedder.linear_1": (dim, 256), "time_text_embed.timestep_embedder.linear_2": (dim, dim)}
    s |= {"modulation.1": (4 * dim, dim), "norm_out.linear": (dim, dim), "proj_out": (c["in_channels"], dim)}
    for i in range(c["num_layers"]):
        p = f"transformer_blocks.{i}."
        s |= {p + name: (dim, dim) for name in (*QKV, "attn.to_out.0")} | {p + "attn.norm_q": (head,), p + "attn.norm_k": (head,)}
        s |= {p + name: (hidden, dim) for name in GATE_UP} | {p + "img_mlp.out": (dim, hidden)}
    return {name + ".weight": shape for name, shape in s.items()}


def decoder_shapes(c):
    s, widths = {}, decoder_widths(c)

    def add(name, out, into, kernel):
        s[name + ".weight"], s[name + ".bias"] = (out, into, kernel, kernel), (out,)

    def res(name, out, into):
        s[name + ".norm1.gamma"], s[name + ".norm2.gamma"] = (into, 1, 1, 1), (out, 1, 1, 1)
        add(name + ".conv1", out, into, 3), add(name + ".conv2", out, out, 3)
        if out != into:
            add(name + ".conv_shortcut", out, into, 1)

    top, channels = widths[0], c["z_dim"]
    add("post_quant_conv", channels, channels, 1), add("decoder.conv_in", top, channels, 3)
    for i in range(2):
        res(f"decoder.mid_block.resnets.{i}", top, top)
    s["decoder.mid_block.attentions.0.norm.gamma"] = (top, 1, 1)
    add("decoder.mid_block.attentions.0.to_qkv", 3 * top, top, 1), add("decoder.mid_block.attentions.0.proj", top, top, 1)
    for stage in range(len(widths) - 1):
        for i in range(c["num_res_blocks"] + 1):
            res(f"decoder.up_blocks.{stage}.resnets.{i}", widths[stage + 1], widths[stage + 1] if i else widths[stage])
        if stage < len(widths) - 2:
            add(f"decoder.up_blocks.{stage}.upsampler.resample.1", widths[stage + 1], widths[stage + 1], 3)
    s["decoder.norm_out.gamma"] = (widths[-1], 1, 1, 1)
    add("decoder.conv_out", c["out_channels"], widths[-1], 3)
    return s


def random_networks(sizes, device, dtype):
    """Those that `sizes` names, in the order of SIZES."""
    kinds = {"transformer": (Transformer, transformer_shapes), "vae": (Autoencoder, decoder_shapes)}

    def made(kind):
        network, shapes = kinds[kind]
        weights = random_weights(shapes(sizes[kind]), device, dtype)
        stack_products(weights, QKV, GATE_UP)
        return network(weights, sizes[kind])

    return [made(kind) for kind in kinds if kind in sizes]
