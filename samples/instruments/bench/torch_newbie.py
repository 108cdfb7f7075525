"""NewBie-image's networks in plain PyTorch, for compare_torch.py: the transformer, Gemma 3's text part and the text tower of Jina CLIP v2, from their description. The autoencoder is Z-Image's.

Every network is a function of a dictionary of weights, named as in the released files, and computes in the type of what it is given, whatever type the weights have. What a network repeats (a block,
a layer) is a function of its own weights under short names, so that one compilation serves all of them: compile_parts().
"""
import torch
import torch.nn.functional as F
from torch_parts import linear, products, rms, rotate_pairs, stack_products, under

SIZES = {  # the released ones
    "transformer": {"dim": 2304, "n_layers": 36, "n_heads": 24, "n_kv_heads": 8, "axes_dims": [32, 32, 32]},
    "text": {"hidden_size": 2560, "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256, "intermediate_size": 10240, "sliding_window": 1024, "vocab_size": 262208},
    "pooled": {"width": 1024, "layers": 24, "hidden": 4096, "vocabulary": 250002},
}
MOST_TOKENS = 512
REFINERS = 2
CONDITION = 1024
ROBERTA = "text_model.transformer.roberta."
W1_W3 = "feed_forward.w1", "feed_forward.w3"
LAYER_QKV, GATE_UP = tuple(f"self_attn.{c}_proj" for c in "qkv"), ("mlp.gate_proj", "mlp.up_proj")
compiled = {}  # what compile_parts made of the functions below
is_eager = False  # True: as if nothing had been compiled


def compile_parts():
    for part in (block, text_layer, pooled_layer):
        compiled[part] = torch.compile(part, fullgraph=True, dynamic=False)


def call(part, *arguments):
    return (part if is_eager else compiled.get(part, part))(*arguments)


def eagerly(work):
    def run():
        global is_eager
        is_eager = True
        try:
            return work()
        finally:
            is_eager = False

    return run


# ---- The transformer --------------------------------------------------------------------------------------------------------------------


def block(x, condition, w, cos, sin, heads, groups, product):
    """x: [rows, width]; condition: SiLU of the fused embedding, [1, width], or None in the context refiner. product: what does the matrix products."""
    dim = x.shape[-1] // heads
    a = rms(x, w["attention_norm1.weight"], 1e-5)
    if condition is not None:
        scale1, gate1, scale2, gate2 = linear(condition, w, "adaLN_modulation.1").chunk(4, -1)
        a = a * (1 + scale1)
    q, k, v = product(a, w, "attention.qkv").split([heads * dim, groups * dim, groups * dim], -1)
    q, k = (rotate_pairs(rms(t.unflatten(-1, (-1, dim)), w[f"attention.{n}_norm.weight"], 1e-6), cos, sin) for t, n in ((q, "q"), (k, "k")))
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v.unflatten(-1, (-1, dim))))
    o = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)[0].transpose(0, 1).flatten(1)
    o = rms(product(o, w, "attention.out"), w["attention_norm2.weight"], 1e-5)
    x = x + (o if condition is None else gate1.tanh() * o)
    f = rms(x, w["ffn_norm1.weight"], 1e-5)
    if condition is not None:
        f = f * (1 + scale2)
    gate, up = products(f, w, *W1_W3, product=product)
    f = product(F.silu(gate) * up, w, "feed_forward.w2")
    f = rms(f, w["ffn_norm2.weight"], 1e-5)
    return x + (f if condition is None else gate2.tanh() * f)


class Transformer:
    def __init__(self, w, config):
        self.w, self.c = w, config
        count = lambda kind: len({name.split(".")[1] for name in w if name.startswith(kind + ".")})
        self.noise_refiner, self.context_refiner, self.layers = ([under(w, f"{kind}.{i}.") for i in range(count(kind))] for kind in ("noise_refiner", "context_refiner", "layers"))
        self.tables = {}
        self.product = linear

    def table(self, positions, device):
        columns = [positions[:, a : a + 1] * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width) for a, width in enumerate(self.c["axes_dims"])]
        angles = torch.cat(columns, 1)[:, None].float().to(device)
        return angles.cos(), angles.sin()

    def layout(self, tokens, rows, columns, device):
        """Tables of the caption, the image and both, the caption first."""
        key = (tokens, rows, columns)
        if key not in self.tables:
            caption = torch.zeros(tokens, 3, dtype=torch.float64)
            caption[:, 0] = torch.arange(tokens)
            image = torch.cartesian_prod(torch.tensor([float(tokens)], dtype=torch.float64), torch.arange(rows, dtype=torch.float64), torch.arange(columns, dtype=torch.float64))
            self.tables[key] = [self.table(positions, device) for positions in (caption, image, torch.cat([caption, image]))]
        return self.tables[key]

    def __call__(self, latents, t, features, pooled):
        """latents: [16, height, width]; t: 0 is noise; features: [tokens, width]; pooled: [1, width]. The velocity, data less noise."""
        w, heads, groups = self.w, self.c["n_heads"], self.c["n_kv_heads"]
        channels, height, width = latents.shape
        rows, columns = height // 2, width // 2
        of_caption, of_image, of_all = self.layout(len(features), rows, columns, latents.device)
        arguments = t * torch.exp(-9.210340371976184 * torch.arange(128, dtype=torch.float32, device=latents.device) / 128)
        arguments = torch.cat([arguments.cos(), arguments.sin()])[None].to(latents.dtype)
        time = linear(F.silu(linear(arguments, w, "t_embedder.mlp.0")), w, "t_embedder.mlp.2")
        text = linear(rms(pooled, w["clip_text_pooled_proj.0.weight"], 1e-6), w, "clip_text_pooled_proj.1")
        condition = F.silu(linear(F.silu(torch.cat([time, text], -1)), w, "time_text_embed.1"))  # every modulation reads SiLU of it
        y = linear(rms(features, w["cap_embedder.0.weight"], 1e-5), w, "cap_embedder.1")
        x = linear(latents.view(channels, rows, 2, columns, 2).permute(1, 3, 2, 4, 0).reshape(rows * columns, 4 * channels), w, "x_embedder")
        for part in self.context_refiner:
            y = call(block, y, None, part, *of_caption, heads, groups, linear)
        for part in self.noise_refiner:
            x = call(block, x, condition, part, *of_image, heads, groups, self.product)
        u = torch.cat([y, x])
        for part in self.layers:
            u = call(block, u, condition, part, *of_all, heads, groups, self.product)
        u = F.layer_norm(u[len(y) :], u.shape[-1:], eps=1e-6) * (1 + linear(condition, w, "final_layer.adaLN_modulation.1"))
        return linear(u, w, "final_layer.linear").view(rows, columns, 2, 2, channels).permute(4, 0, 2, 1, 3).reshape(channels, height, width)


# ---- Gemma 3's text part ----------------------------------------------------------------------------------------------------------------


def rotate_halves(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rms_offset(x, weight):
    """Of weights that lack one, in float, rounded once."""
    return F.rms_norm(x.float(), x.shape[-1:], 1.0 + weight.float(), 1e-6).to(x.dtype)


def text_layer(h, w, cos, sin, heads, groups, scale, mask):
    """h: [rows, width]. mask: which rows each one sees; None: all up to itself."""
    a = rms_offset(h, w["input_layernorm.weight"])
    q, k, v = (one.unflatten(-1, (n, -1)).transpose(0, 1) for one, n in zip(products(a, w, *LAYER_QKV), (heads, groups, groups)))
    q, k = rotate_halves(rms_offset(q, w["self_attn.q_norm.weight"]), cos, sin), rotate_halves(rms_offset(k, w["self_attn.k_norm.weight"]), cos, sin)
    o = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True)[0]
    h = h + rms_offset(linear(o.transpose(0, 1).flatten(1), w, "self_attn.o_proj"), w["post_attention_layernorm.weight"])
    m = rms_offset(h, w["pre_feedforward_layernorm.weight"])
    gate, up = products(m, w, *GATE_UP)
    m = linear(F.gelu(gate, approximate="tanh") * up, w, "mlp.down_proj")
    return h + rms_offset(m, w["post_feedforward_layernorm.weight"])


class Text:
    def __init__(self, w, config):
        self.w, self.c = under(w, "language_model.model."), config.get("text_config", config)
        self.layers = [under(self.w, f"layers.{i}.") for i in range(self.c["num_hidden_layers"] - 1)]  # the last one is not run
        self.scale = torch.tensor(self.c["hidden_size"] ** 0.5).bfloat16().item()

    def tables(self, count, dim, base, divisor, like):
        angles = torch.arange(count, dtype=torch.float32)[:, None] * base ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim) / divisor
        return angles.cos().to(like), angles.sin().to(like)

    def __call__(self, ids, dtype=None):
        c, count = self.c, len(ids)
        h = self.w["embed_tokens.weight"][ids]
        h = h.to(dtype or h.dtype) * self.scale
        near, far = self.tables(count, c["head_dim"], 1e4, 1.0, h), self.tables(count, c["head_dim"], 1e6, 8.0, h)
        window = None
        if count > c["sliding_window"]:
            distance = torch.arange(count, device=h.device)[:, None] - torch.arange(count, device=h.device)
            window = (distance >= 0) & (distance < c["sliding_window"])
        for i, layer in enumerate(self.layers):
            is_full = i % 6 == 5
            h = call(text_layer, h, layer, *(far if is_full else near), c["num_attention_heads"], c["num_key_value_heads"], c["query_pre_attn_scalar"] ** -0.5, None if is_full else window)
        return h


# ---- The text tower of Jina CLIP v2 -----------------------------------------------------------------------------------------------------


def layer_norm(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"].to(x.dtype), w[name + ".bias"].to(x.dtype), 1e-5)


def pooled_layer(h, w, cos, sin):
    q, k, v = (t.unflatten(-1, (-1, 64)).transpose(0, 1) for t in linear(h, w, "mixer.Wqkv").chunk(3, -1))
    o = F.scaled_dot_product_attention(rotate_halves(q, cos, sin)[None], rotate_halves(k, cos, sin)[None], v[None])[0].transpose(0, 1).flatten(1)
    h = layer_norm(h + linear(o, w, "mixer.out_proj"), w, "norm1")
    return layer_norm(h + linear(F.gelu(linear(h, w, "mlp.fc1")), w, "mlp.fc2"), w, "norm2")


def merge(w, scaling):
    """Weights with their low-rank changes, under plain names."""
    merged = {}
    for name, tensor in w.items():
        if name.endswith(".parametrizations.weight.original"):
            stem = name[: -len("original")]
            a, b = w[stem + "0.lora_A"][0], w[stem + "0.lora_B"][0]
            change = a @ b if "embeddings." in name else b @ a
            merged[stem[: -len("parametrizations.weight.")] + "weight"] = tensor + scaling * change
        elif ".parametrizations." not in name:
            merged[name] = tensor
    return merged


class Pooled:
    def __init__(self, w, config):
        settings = config.get("text_config", {}).get("hf_model_config_kwargs", {})
        self.w = under(merge(w, settings.get("lora_alpha", 4) / settings.get("lora_rank", 4)), ROBERTA)
        count = len({name.split(".")[2] for name in self.w if name.startswith("encoder.layers.")})
        self.layers = [under(self.w, f"encoder.layers.{i}.") for i in range(count)]

    def __call__(self, ids):
        """One row."""
        w = self.w
        h = layer_norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0], w, "emb_ln")
        angles = torch.arange(len(ids), dtype=torch.float32)[:, None] * 20000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float32) / 64)
        cos, sin = angles.cos().to(h), angles.sin().to(h)
        for layer in self.layers:
            h = call(pooled_layer, h, layer, cos, sin)
        return h.mean(0, keepdim=True)


def tokenise(text_tokenizer, pooled_tokenizer, text):
    """Both lists, with the synthetic tokenizers, where every letter is a token, and a blank or the beginning of a word one more."""
    vocabulary = text_tokenizer["model"]["vocab"]
    if text_tokenizer["model"]["merges"]:
        raise SystemExit("compare_torch: only checkpoints that bench wrote can be compared: this one's tokenizer has merges")
    first = [vocabulary["<bos>"], *(vocabulary["\u2581" if c == " " else c] for c in text)]
    pieces = {piece: i for i, (piece, _) in enumerate(pooled_tokenizer["model"]["vocab"])}
    second = [pieces["<s>"], *(pieces[c] for word in text.split() for c in "\u2581" + word)]
    return first[:MOST_TOKENS], [*second[: MOST_TOKENS - 1], pieces["</s>"]]


# ---- Random weights of the released sizes -----------------------------------------------------------------------------------------------


def transformer_shapes(c, text=SIZES["text"]["hidden_size"], pooled=SIZES["pooled"]["width"]):
    dim, s = c["dim"], {}
    head, hidden = dim // c["n_heads"], (4 * dim + 255) // 256 * 256

    def add(name, rows, columns):
        s[name + ".weight"], s[name + ".bias"] = (rows, columns), (rows,)

    add("x_embedder", dim, 64), add("t_embedder.mlp.0", CONDITION, 256), add("t_embedder.mlp.2", CONDITION, CONDITION)
    add("cap_embedder.1", dim, text), add("clip_text_pooled_proj.1", pooled, pooled), add("time_text_embed.1", CONDITION, CONDITION + pooled)
    add("final_layer.adaLN_modulation.1", dim, CONDITION), add("final_layer.linear", 64, dim)
    s |= {"cap_embedder.0.weight": (text,), "clip_text_pooled_proj.0.weight": (pooled,)}
    for kind, count in (("noise_refiner", REFINERS), ("context_refiner", REFINERS), ("layers", c["n_layers"])):
        for i in range(count):
            p = f"{kind}.{i}."
            s |= {p + "attention.qkv.weight": (dim + 2 * c["n_kv_heads"] * head, dim), p + "attention.out.weight": (dim, dim)}
            s |= {p + "attention.q_norm.weight": (head,), p + "attention.k_norm.weight": (head,)}
            s |= {p + "feed_forward.w1.weight": (hidden, dim), p + "feed_forward.w3.weight": (hidden, dim), p + "feed_forward.w2.weight": (dim, hidden)}
            s |= {p + norm + ".weight": (dim,) for norm in ("attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2")}
            if kind != "context_refiner":
                add(p + "adaLN_modulation.1", 4 * dim, CONDITION)
    return s


def text_shapes(c):
    width, hidden, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, k = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    s = {"language_model.model.embed_tokens.weight": (c["vocab_size"], width)}
    for i in range(c["num_hidden_layers"] - 1):
        p = f"language_model.model.layers.{i}."
        s |= {p + "self_attn.q_proj.weight": (q, width), p + "self_attn.k_proj.weight": (k, width), p + "self_attn.v_proj.weight": (k, width), p + "self_attn.o_proj.weight": (width, q)}
        s |= {p + "mlp.gate_proj.weight": (hidden, width), p + "mlp.up_proj.weight": (hidden, width), p + "mlp.down_proj.weight": (width, hidden)}
        s |= {p + "self_attn.q_norm.weight": (head,), p + "self_attn.k_norm.weight": (head,)}
        s |= {p + norm + ".weight": (width,) for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")}
    return s


def pooled_shapes(c):
    """With the adapter merged, as somebody who wants it fast has it."""
    width, hidden, s = c["width"], c["hidden"], {}
    s[ROBERTA + "embeddings.word_embeddings.weight"], s[ROBERTA + "embeddings.token_type_embeddings.weight"] = (c["vocabulary"], width), (1, width)
    s[ROBERTA + "emb_ln.weight"], s[ROBERTA + "emb_ln.bias"] = (width,), (width,)
    for i in range(c["layers"]):
        p = f"{ROBERTA}encoder.layers.{i}."
        for name, rows, columns in (("mixer.Wqkv", 3 * width, width), ("mixer.out_proj", width, width), ("mlp.fc1", hidden, width), ("mlp.fc2", width, hidden)):
            s[f"{p}{name}.weight"], s[f"{p}{name}.bias"] = (rows, columns), (rows,)
        for norm in ("norm1", "norm2"):
            s[f"{p}{norm}.weight"], s[f"{p}{norm}.bias"] = (width,), (width,)
    return s


def random_networks(device, dtype, sizes=SIZES):
    """Those that `sizes` names, in the order of SIZES."""

    def made(shapes, norms_at):
        weights = {}
        for name, shape in shapes.items():
            is_factor = len(shape) == 1 and name.endswith(".weight")  # of a norm: every other vector is a bias
            weights[name] = torch.empty(shape, device=device, dtype=dtype).normal_(norms_at if is_factor else 0.0, 0.02)
        stack_products(weights, W1_W3, LAYER_QKV, GATE_UP)
        return weights

    makes = {
        "transformer": lambda size: Transformer(made(transformer_shapes(size), 1.0), size),
        "text": lambda size: Text(made(text_shapes(size), 0.0), size),
        "pooled": lambda size: Pooled(made(pooled_shapes(size), 1.0), {}),
    }
    return [make(sizes[kind]) for kind, make in makes.items() if kind in sizes]
