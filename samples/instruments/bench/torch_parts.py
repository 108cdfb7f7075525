"""What torch_qwen_image.py, torch_qwen_image_21.py, torch_newbie.py and torch_flux2.py are made of, and products in 8 bits for all families. w: a dictionary of weights; everything computes in the type of x."""
import torch
import torch.nn.functional as F


def linear(x, w, name):
    bias = w.get(name + ".bias")
    return F.linear(x, w[name + ".weight"].to(x.dtype), None if bias is None else bias.to(x.dtype))


def stack_products(w, *lists):
    """Puts the matrices of each list of names, under every prefix that has them, together as one: products() then is one product. For speed on a GPU."""
    for names in lists:
        stacked = "+".join(names)
        for prefix in [name[: -len(names[0] + ".weight")] for name in w if name.endswith(names[0] + ".weight")]:
            if any(f"{prefix}{name}.weight" not in w for name in names):
                continue
            w[f"{prefix}{stacked}.rows"] = tuple(w[f"{prefix}{name}.weight"].shape[0] for name in names)
            for kind in (".weight", ".bias"):
                if f"{prefix}{names[0]}{kind}" in w:
                    w[f"{prefix}{stacked}{kind}"] = torch.cat([w.pop(f"{prefix}{name}{kind}") for name in names])


def products(x, w, *names, product=linear):
    """The products of x with several matrices."""
    stacked = "+".join(names)
    if stacked + ".weight" in w:
        return product(x, w, stacked).split(w[stacked + ".rows"], -1)
    return [product(x, w, name) for name in names]


class WanAutoencoder:
    """What the autoencoders of Qwen-Image and Qwen-Image-2.1 share. Each module compiles its own functions, and its class names them: conv, pixel_norm, and block, a residual block."""

    def __init__(self, w, config):
        self.w, self.c, self.parts, self.of_channels = w, config, {}, {}

    def res(self, x, name):
        if name not in self.parts:
            self.parts[name] = under(self.w, name + ".")
        return self.block(x, self.parts[name])

    def middle(self, x, name):
        x = self.res(x, name + ".resnets.0")
        n = self.pixel_norm(x, self.w[name + ".attentions.0.norm.gamma"])
        q, k, v = self.conv(n, self.w, name + ".attentions.0.to_qkv").flatten(2).transpose(1, 2).chunk(3, -1)
        o = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        x = x + self.conv(o.transpose(1, 2).reshape(x.shape), self.w, name + ".attentions.0.proj")
        return self.res(x, name + ".resnets.1")

    def statistics(self, z):
        """Of the latents' channels: mean and standard deviation. Kept, because a CUDA graph cannot capture their way from the host."""
        key = (z.dtype, z.device)
        if key not in self.of_channels:
            shape = lambda name, none: torch.tensor(self.c.get(name, [none] * self.c.get("z_dim", 16)), dtype=z.dtype, device=z.device).view(1, -1, 1, 1)
            self.of_channels[key] = shape("latents_mean", 0.0), shape("latents_std", 1.0)
        return self.of_channels[key]


# Products in 8 bits: matrices are rounded once, rows of activations at every call. "int8": whole numbers and torch._int_mm. "fp8": e4m3 and torch._scaled_mm.
LARGEST = {"int8": 127.0, "fp8": 448.0}


def round_rows(weight, form):
    """A matrix [n, k] with a scale for each of its rows: the rounded matrix and the scales, [1, n] in float32."""
    scale = weight.float().abs().amax(-1, keepdim=True).clamp_min(1e-12) / LARGEST[form]
    scaled = weight.float() / scale
    return (scaled.round().to(torch.int8) if form == "int8" else scaled.to(torch.float8_e4m3fn)), scale.t().contiguous()


def product_rounded(x, matrix, scale, bias=None):
    """x [.., k] with what round_rows made of [n, k]. Written so that a compiler makes one pass of rounding x, and another of the scales, the bias and what follows; sums are whole numbers or float32."""
    rows, is_int8 = x.flatten(0, -2), matrix.dtype == torch.int8
    most = LARGEST["int8" if is_int8 else "fp8"]
    largest = rows.abs().amax(-1, keepdim=True).float().clamp_min(1e-12)
    scaled, row_scale = rows.float() * (most / largest), largest / most
    if is_int8:
        y = torch._int_mm(scaled.round().to(torch.int8), matrix.t()).float() * row_scale * scale
    elif x.is_cuda:
        y = torch._scaled_mm(scaled.to(matrix.dtype), matrix.t(), row_scale, scale, out_dtype=x.dtype, use_fast_accum=True)
    else:  # PyTorch has no scales of rows on a processor
        y = scaled.to(matrix.dtype).float() @ matrix.float().t() * row_scale * scale
    if bias is not None:
        y = y + bias
    return y.to(x.dtype).unflatten(0, x.shape[:-1])


def linear_rounded(x, w, name):
    """As linear(), in 8 bits where rounded() has rounded the matrix."""
    if name + ".scale" not in w:
        return linear(x, w, name)
    return product_rounded(x, w[name + ".weight"], w[name + ".scale"], w.get(name + ".bias"))


def rounded(w, form):
    """Weights of a block with its matrices in 8 bits, except those of modulation, which see one row."""
    made = dict(w)
    for name in [name for name, tensor in w.items() if name.endswith(".weight") and tensor.dim() == 2 and "mod" not in name]:
        made[name], made[name[: -len("weight")] + "scale"] = round_rows(w[name], form)
    return made


def use_products(network, lists, form):
    """Lets the lists of blocks that a network has under these names compute in bf16 or with products in 8 bits. Their bf16 weights stay."""
    if not hasattr(network, "plain_blocks"):
        network.plain_blocks = {name: getattr(network, name) for name in lists}
    for name, blocks in network.plain_blocks.items():
        setattr(network, name, None)  # the other form is gone before this one is made
        setattr(network, name, blocks if form == "bf16" else [rounded(w, form) for w in blocks])
    network.product = linear if form == "bf16" else linear_rounded


def rms(x, weight, eps=1e-6):
    return F.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


def under(w, prefix):
    """Weights below a prefix, under the rest of their names."""
    return {name[len(prefix) :]: tensor for name, tensor in w.items() if name.startswith(prefix)}


def rotate_pairs(x, cos, sin):  # (2k, 2k + 1), in float as the reference
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)
