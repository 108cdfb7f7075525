"""What torch_qwen_image.py and torch_newbie.py are both made of. w: a dictionary of weights; everything computes in the type of x."""
import torch
import torch.nn.functional as F


def linear(x, w, name):
    bias = w.get(name + ".bias")
    return F.linear(x, w[name + ".weight"].to(x.dtype), None if bias is None else bias.to(x.dtype))


def rms(x, weight, eps=1e-6):
    return F.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


def under(w, prefix):
    """Weights below a prefix, under the rest of their names."""
    return {name[len(prefix) :]: tensor for name, tensor in w.items() if name.startswith(prefix)}


def rotate_pairs(x, cos, sin):  # (2k, 2k + 1), in float as the reference
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)
