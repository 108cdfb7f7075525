"""What torch_qwen_image.py, torch_newbie.py and torch_flux2.py are made of. w: a dictionary of weights; everything computes in the type of x."""
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


def rms(x, weight, eps=1e-6):
    return F.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


def under(w, prefix):
    """Weights below a prefix, under the rest of their names."""
    return {name[len(prefix) :]: tensor for name, tensor in w.items() if name.startswith(prefix)}


def rotate_pairs(x, cos, sin):  # (2k, 2k + 1), in float as the reference
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)
