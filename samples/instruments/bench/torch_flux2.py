"""FLUX.2 [klein]'s networks in plain PyTorch, for compare_torch.py: the transformer with double and single blocks, Qwen3 as text encoder and the autoencoder, from their description.

Every network is a function of a dictionary of weights, named as in the released files, and computes in the type of what it is given, whatever type the weights have. What a network repeats (a block,
a layer) is a function of its own weights under short names, so that one compilation serves all of them: compile_parts().
"""
import torch
import torch.nn.functional as F
from torch_parts import linear, products, rms, rotate_pairs, stack_products, under

SIZES = {  # the released ones, 4B
    "transformer": {"num_layers": 5, "num_single_layers": 20, "num_attention_heads": 24, "attention_head_dim": 128, "joint_attention_dim": 7680, "axes_dims_rope": [32, 32, 32, 32], "rope_theta": 2000},
    "text": {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936, "rope_theta": 1e6},
    "vae": {"block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "norm_num_groups": 32, "latent_channels": 32, "batch_norm_eps": 1e-4},
}
ROWS = 512  # of every prompt
TAPS = (9, 18, 27)  # after so many layers
TEMPLATE_ROWS = 38  # with the synthetic tokenizer
BEFORE, AFTER = "user\n", "assistant\n<think>\n\n</think>\n\n"
REFERENCE_FRAME = 10
QKV, TEXT_QKV = [tuple(name.format(c) for c in "qkv") for name in ("attn.to_{}", "attn.add_{}_proj")]
LAYER_QKV, GATE_UP = tuple(f"self_attn.{c}_proj" for c in "qkv"), ("mlp.gate_proj", "mlp.up_proj")
compiled = {}  # what compile_parts made of the functions below


def compile_parts():
    for part in (double_block, single_block, text_layer):
        compiled[part] = torch.compile(part, fullgraph=True, dynamic=False)


def call(part, *arguments):
    return compiled.get(part, part)(*arguments)


# ---- The transformer --------------------------------------------------------------------------------------------------------------------


def norm(x, scale, shift):
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


def attend(q, k, v):
    """[rows, heads, dim] each; [rows, heads dim]."""
    return F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)))[0].transpose(0, 1).flatten(1)


def gated(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def double_block(x, y, of_image, of_text, w, cos, sin, heads, product):
    """x: rows of the pictures, y: of the text, [rows, width]; of_image, of_text: the six parts of the modulation, [1, 6 width]. product: what does the matrix products."""
    shift1, scale1, gate1, shift2, scale2, gate2 = of_image.chunk(6, -1)
    t_shift1, t_scale1, t_gate1, t_shift2, t_scale2, t_gate2 = of_text.chunk(6, -1)
    split = lambda v: v.unflatten(-1, (heads, -1))
    q, k, v = (split(one) for one in products(norm(x, scale1, shift1), w, *QKV, product=product))
    tq, tk, tv = (split(one) for one in products(norm(y, t_scale1, t_shift1), w, *TEXT_QKV, product=product))
    q = torch.cat([rms(tq, w["attn.norm_added_q.weight"]), rms(q, w["attn.norm_q.weight"])])  # text first
    k = torch.cat([rms(tk, w["attn.norm_added_k.weight"]), rms(k, w["attn.norm_k.weight"])])
    o = attend(rotate_pairs(q, cos, sin), rotate_pairs(k, cos, sin), torch.cat([tv, v]))
    rows = y.shape[0]
    x = x + gate1 * product(o[rows:], w, "attn.to_out.0")
    y = y + t_gate1 * product(o[:rows], w, "attn.to_add_out")
    x = x + gate2 * product(gated(product(norm(x, scale2, shift2), w, "ff.linear_in")), w, "ff.linear_out")
    y = y + t_gate2 * product(gated(product(norm(y, t_scale2, t_shift2), w, "ff_context.linear_in")), w, "ff_context.linear_out")
    return x, y


def single_block(x, modulation, w, cos, sin, heads, product):
    """x: rows of text and pictures, [rows, width]. Attention and feed-forward are one product before and one behind."""
    shift, scale, gate = modulation.chunk(3, -1)
    width = x.shape[-1]
    qkv, hidden = product(norm(x, scale, shift), w, "attn.to_qkv_mlp_proj").tensor_split([3 * width], -1)
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).unbind(1)
    o = attend(rotate_pairs(rms(q, w["attn.norm_q.weight"]), cos, sin), rotate_pairs(rms(k, w["attn.norm_k.weight"]), cos, sin), v)
    return x + gate * product(torch.cat([o, gated(hidden)], -1), w, "attn.to_out")


class Transformer:
    def __init__(self, w, config):
        self.w, self.c = w, config
        self.heads = config["num_attention_heads"]
        self.double = [under(w, f"transformer_blocks.{i}.") for i in range(config["num_layers"])]
        self.single = [under(w, f"single_transformer_blocks.{i}.") for i in range(config["num_single_layers"])]
        self.tables = {}
        self.product = linear

    def layout(self, tokens, grids, device):
        """Rotary tables of the text and the pictures (rows, columns; the first one is made, the others are referred to)."""
        key = (tokens, *grids)
        if key not in self.tables:
            places = torch.zeros(tokens, 4, dtype=torch.float64)
            places[:, 3] = torch.arange(tokens)
            places = [places]
            for i, (rows, columns) in enumerate(grids):
                axes = [torch.tensor([float(i * REFERENCE_FRAME)]), torch.arange(float(rows)), torch.arange(float(columns)), torch.zeros(1)]
                places.append(torch.cartesian_prod(*axes).double())
            places = torch.cat(places)
            angles = [places[:, a : a + 1] * float(self.c["rope_theta"]) ** (-torch.arange(0, width, 2, dtype=torch.float64) / width) for a, width in enumerate(self.c["axes_dims_rope"])]
            angles = torch.cat(angles, 1)[:, None].float().to(device)
            # All are kept: a CUDA graph reads them where they were when it was captured.
            self.tables[key] = angles.cos(), angles.sin()
        return self.tables[key]

    def __call__(self, latents, t, features, references=()):
        """latents and references: [128, rows, columns]; t: sigma; features: [tokens, width]. The velocity of the first."""
        w = self.w
        pictures = [latents, *references]
        cos, sin = self.layout(len(features), [tuple(z.shape[1:]) for z in pictures], latents.device)
        steps = torch.exp(-9.210340371976184 * torch.arange(128, dtype=torch.float32, device=latents.device) / 128)
        arguments = 1000.0 * t * steps
        embedded = torch.cat([arguments.cos(), arguments.sin()])[None].to(latents.dtype)
        time = "time_guidance_embed.timestep_embedder."
        condition = F.silu(linear(F.silu(linear(embedded, w, time + "linear_1")), w, time + "linear_2"))
        of_image, of_text = (linear(condition, w, f"double_stream_modulation_{name}.linear") for name in ("img", "txt"))
        of_single = linear(condition, w, "single_stream_modulation.linear")
        x = linear(torch.cat([z.flatten(1).T for z in pictures]), w, "x_embedder")
        y = linear(features, w, "context_embedder")
        for block in self.double:
            x, y = call(double_block, x, y, of_image, of_text, block, cos, sin, self.heads, self.product)
        u = torch.cat([y, x])
        for block in self.single:
            u = call(single_block, u, of_single, block, cos, sin, self.heads, self.product)
        scale, shift = linear(condition, w, "norm_out.linear").chunk(2, -1)
        target = u[len(features) : len(features) + latents[0].numel()]
        return linear(norm(target, scale, shift), w, "proj_out").T.reshape(latents.shape)


# ---- The text encoder -------------------------------------------------------------------------------------------------------------------


def rotate_halves(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def text_layer(h, w, cos, sin, heads, groups, real):
    """h: [rows, width]. real: how many rows are tokens; the rows of padding behind them see all of these and nothing else."""
    a = rms(h, w["input_layernorm.weight"])
    q, k, v = (one.unflatten(-1, (n, -1)).transpose(0, 1) for one, n in zip(products(a, w, *LAYER_QKV), (heads, groups, groups)))
    q = rotate_halves(rms(q, w["self_attn.q_norm.weight"]), cos, sin)
    k = rotate_halves(rms(k, w["self_attn.k_norm.weight"]), cos, sin)[None, :, :real]
    v = v[None, :, :real]
    o = F.scaled_dot_product_attention(q[None, :, :real], k, v, is_causal=True, enable_gqa=True)[0]
    if real < len(h):
        o = torch.cat([o, F.scaled_dot_product_attention(q[None, :, real:], k, v, enable_gqa=True)[0]], 1)
    h = h + linear(o.transpose(0, 1).flatten(1), w, "self_attn.o_proj")
    gate, up = products(rms(h, w["post_attention_layernorm.weight"]), w, *GATE_UP)
    return h + linear(F.silu(gate) * up, w, "mlp.down_proj")


class Text:
    def __init__(self, w, config):
        self.w, self.c = w, config
        self.layers = [under(w, f"model.layers.{i}.") for i in range(TAPS[-1])]

    def __call__(self, ids, real):
        """ids: ROWS of them, of which the first `real` are tokens. Three times the width: what the taps are, side by side, without the last norm."""
        c = self.c
        h, taps = self.w["model.embed_tokens.weight"][ids], []
        frequencies = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2, dtype=torch.float32, device=h.device) / c["head_dim"])
        angles = torch.arange(len(ids), dtype=torch.float32, device=h.device)[:, None] * frequencies
        cos, sin = angles.cos().to(h.dtype), angles.sin().to(h.dtype)
        for i, layer in enumerate(self.layers):
            h = call(text_layer, h, layer, cos, sin, c["num_attention_heads"], c["num_key_value_heads"], real)
            if i + 1 in TAPS:
                taps.append(h)
        return torch.cat(taps, -1)


def tokenise(tokenizer, text):
    """With the synthetic tokenizer, where every byte of a text is a token. ROWS ids, and how many of them are not padding."""
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocabulary = tokenizer["model"]["vocab"]
    plain = lambda s: [vocabulary[chr(b) if 33 <= b <= 126 else chr(0x100 + b)] for b in s.encode()]
    start, end = ids["<|im_start|>"], ids["<|im_end|>"]
    found = [start, *plain(BEFORE + text), end, *plain("\n"), start, *plain(AFTER)][:ROWS]
    return found + [ids["<|endoftext|>"]] * (ROWS - len(found)), len(found)


# ---- The autoencoder --------------------------------------------------------------------------------------------------------------------


def conv(x, w, name, **options):
    weight = w[name + ".weight"].to(x.dtype)
    return F.conv2d(x, weight, w[name + ".bias"].to(x.dtype), padding=options.pop("padding", weight.shape[-1] // 2), **options)


def group_norm(x, w, name, groups):
    return F.group_norm(x, groups, w[name + ".weight"].to(x.dtype), w[name + ".bias"].to(x.dtype), 1e-6)


def patchify(z):  # [1, c, 2 h, 2 w] to [4 c, h, w]
    return z[0].unflatten(1, (-1, 2)).unflatten(3, (-1, 2)).permute(0, 2, 4, 1, 3).flatten(0, 2)


def unpatchify(x):
    return x.unflatten(0, (-1, 2, 2)).permute(0, 3, 1, 4, 2).flatten(1, 2).flatten(2)[None]


class Autoencoder:
    def __init__(self, w, config):
        # Channels last is the faster layout of convolutions.
        self.w = {name: tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor for name, tensor in w.items()}
        self.c = config

    def norm(self, x, name):
        return group_norm(x, self.w, name, self.c["norm_num_groups"])

    def res(self, x, name):
        h = conv(F.silu(self.norm(x, name + ".norm1")), self.w, name + ".conv1")
        h = conv(F.silu(self.norm(h, name + ".norm2")), self.w, name + ".conv2")
        return h + (conv(x, self.w, name + ".conv_shortcut") if name + ".conv_shortcut.weight" in self.w else x)

    def middle(self, x, name):
        x = self.res(x, name + ".resnets.0")
        a = name + ".attentions.0."
        n = self.norm(x, a + "group_norm").flatten(2).transpose(1, 2)
        q, k, v = (linear(n, self.w, a + part)[:, None] for part in ("to_q", "to_k", "to_v"))
        o = linear(F.scaled_dot_product_attention(q, k, v)[:, 0], self.w, a + "to_out.0")
        return self.res(x + o.transpose(1, 2).reshape(x.shape), name + ".resnets.1")

    def statistics(self, like):
        """Of the packed latents' channels: mean and standard deviation."""
        mean, variance = (self.w["bn.running_" + name].float().view(-1, 1, 1) for name in ("mean", "var"))
        return mean.to(like.dtype), (variance + self.c["batch_norm_eps"]).sqrt().to(like.dtype)

    def decode(self, latents):
        """latents: [128, rows, columns] as the transformer has them; the picture in -1 .. 1."""
        w, c, last = self.w, self.c, len(self.c["block_out_channels"]) - 1
        mean, deviation = self.statistics(latents)
        x = conv(unpatchify(latents * deviation + mean).contiguous(memory_format=torch.channels_last), w, "post_quant_conv")
        x = self.middle(conv(x, w, "decoder.conv_in"), "decoder.mid_block")
        for stage in range(last + 1):
            for i in range(c["layers_per_block"] + 1):
                x = self.res(x, f"decoder.up_blocks.{stage}.resnets.{i}")
            if stage < last:
                x = conv(F.interpolate(x, scale_factor=2.0, mode="nearest"), w, f"decoder.up_blocks.{stage}.upsamplers.0.conv")
        return conv(F.silu(self.norm(x, "decoder.conv_norm_out")), w, "decoder.conv_out")[0]

    def encode(self, picture):
        """The mean of the posterior, of a picture [3, height, width] in -1 .. 1, as the transformer takes it."""
        w, c, last = self.w, self.c, len(self.c["block_out_channels"]) - 1
        x = conv(picture[None].contiguous(memory_format=torch.channels_last), w, "encoder.conv_in")
        for stage in range(last + 1):
            for i in range(c["layers_per_block"]):
                x = self.res(x, f"encoder.down_blocks.{stage}.resnets.{i}")
            if stage < last:
                x = conv(F.pad(x, (0, 1, 0, 1)), w, f"encoder.down_blocks.{stage}.downsamplers.0.conv", stride=2, padding=0)
        x = F.silu(self.norm(self.middle(x, "encoder.mid_block"), "encoder.conv_norm_out"))
        moments = conv(conv(x, w, "encoder.conv_out"), w, "quant_conv")
        mean, deviation = self.statistics(moments)
        return (patchify(moments[:, : c["latent_channels"]]) - mean) / deviation


# ---- Random weights of the released sizes ------------------------------------------------------------------------------------------------


def random_weights(shapes, device, dtype):
    made = {}
    for name, shape in shapes.items():
        center = 1.0 if "norm" in name and name.endswith(".weight") and len(shape) == 1 or name.endswith("running_var") else 0.0
        made[name] = torch.empty(shape, device=device, dtype=dtype).normal_(center, 0.02)
    return made


def transformer_shapes(c):
    dim, head = c["num_attention_heads"] * c["attention_head_dim"], c["attention_head_dim"]
    s = {"x_embedder": (dim, 128), "context_embedder": (dim, c["joint_attention_dim"]), "norm_out.linear": (2 * dim, dim), "proj_out": (128, dim)}
    s |= {f"time_guidance_embed.timestep_embedder.linear_{i}": (dim, width) for i, width in ((1, 256), (2, dim))}
    s |= {f"double_stream_modulation_{name}.linear": (6 * dim, dim) for name in ("img", "txt")} | {"single_stream_modulation.linear": (3 * dim, dim)}
    for i in range(c["num_layers"]):
        p = f"transformer_blocks.{i}."
        s |= {p + name: (dim, dim) for name in (*QKV, *TEXT_QKV, "attn.to_out.0", "attn.to_add_out")}
        s |= {f"{p}attn.{name}": (head,) for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k")}
        s |= {f"{p}{name}.linear_in": (6 * dim, dim) for name in ("ff", "ff_context")} | {f"{p}{name}.linear_out": (dim, 3 * dim) for name in ("ff", "ff_context")}
    for i in range(c["num_single_layers"]):
        p = f"single_transformer_blocks.{i}.attn."
        s |= {p + "to_qkv_mlp_proj": (9 * dim, dim), p + "to_out": (dim, 4 * dim), p + "norm_q": (head,), p + "norm_k": (head,)}
    return {name + ".weight": shape for name, shape in s.items()}


def text_shapes(c):
    """Of the layers that are run."""
    width, hidden, dim = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    s = {"model.embed_tokens": (c["vocab_size"], width)}
    for i in range(TAPS[-1]):
        p = f"model.layers.{i}."
        s |= {p + "self_attn.q_proj": (q, width), p + "self_attn.k_proj": (kv, width), p + "self_attn.v_proj": (kv, width), p + "self_attn.o_proj": (width, q)}
        s |= {p + "self_attn.q_norm": (dim,), p + "self_attn.k_norm": (dim,), p + "input_layernorm": (width,), p + "post_attention_layernorm": (width,)}
        s |= {p + "mlp.gate_proj": (hidden, width), p + "mlp.up_proj": (hidden, width), p + "mlp.down_proj": (width, hidden)}
    return {name + ".weight": shape for name, shape in s.items()}


def vae_shapes(c):
    widths, latents, s = c["block_out_channels"], c["latent_channels"], {}
    s |= {"bn.running_mean": (4 * latents,), "bn.running_var": (4 * latents,)}

    def add(name, out, *others):
        s[name + ".weight"], s[name + ".bias"] = (out, *others), (out,)

    def res(name, out, into):
        add(name + ".norm1", into), add(name + ".conv1", out, into, 3, 3), add(name + ".norm2", out), add(name + ".conv2", out, out, 3, 3)
        if out != into:
            add(name + ".conv_shortcut", out, into, 1, 1)

    top, last = widths[-1], len(widths) - 1
    for half in ("encoder", "decoder"):
        middle = half + ".mid_block."
        res(middle + "resnets.0", top, top), res(middle + "resnets.1", top, top)
        add(middle + "attentions.0.group_norm", top)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            add(middle + "attentions.0." + part, top, top)
    before = widths[0], top
    for stage in range(last + 1):
        down, up = widths[stage], widths[last - stage]
        for i in range(c["layers_per_block"]):
            res(f"encoder.down_blocks.{stage}.resnets.{i}", down, down if i else before[0])
        for i in range(c["layers_per_block"] + 1):
            res(f"decoder.up_blocks.{stage}.resnets.{i}", up, up if i else before[1])
        if stage < last:
            add(f"encoder.down_blocks.{stage}.downsamplers.0.conv", down, down, 3, 3), add(f"decoder.up_blocks.{stage}.upsamplers.0.conv", up, up, 3, 3)
        before = down, up
    add("encoder.conv_in", widths[0], 3, 3, 3), add("encoder.conv_norm_out", top), add("encoder.conv_out", 2 * latents, top, 3, 3)
    add("decoder.conv_in", top, latents, 3, 3), add("decoder.conv_norm_out", widths[0]), add("decoder.conv_out", 3, widths[0], 3, 3)
    add("quant_conv", 2 * latents, 2 * latents, 1, 1), add("post_quant_conv", latents, latents, 1, 1)
    return s


def random_networks(sizes, device, dtype):
    """Those that `sizes` names, in the order of SIZES."""
    kinds = {"transformer": (Transformer, transformer_shapes), "text": (Text, text_shapes), "vae": (Autoencoder, vae_shapes)}

    def made(kind):
        network, shapes = kinds[kind]
        weights = random_weights(shapes(sizes[kind]), device, dtype)
        stack_products(weights, QKV, TEXT_QKV, LAYER_QKV, GATE_UP)
        return network(weights, sizes[kind])

    return [made(kind) for kind in kinds if kind in sizes]
