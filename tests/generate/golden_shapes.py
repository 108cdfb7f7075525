#!/usr/bin/env python3
"""Writes two golden cases of shapes that golden_run must take from the case and the checkpoint:

    golden/newbie/cases/op_attention_axes       heads whose rotary axes are not of one size
    golden/qwen-image/cases/vae-decode-strips   5 x 3 latents, a picture that the library decodes in strips

    python3 tests/generate/golden_shapes.py        needs torch, diffusers and safetensors

The decoder is that of diffusers; attention is written here from its formula. Both must first give the numbers of the
cases op_attention and vae-decode, which the references' own programs made.
"""
import json
import math
import os
import torch
from diffusers import AutoencoderKLQwenImage
from safetensors.torch import load_file, save_file

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
torch.set_num_threads(1)
torch.set_grad_enabled(False)


def off(got, want):  # rel_l2
    got, want = got.double(), want.double()
    return float((got - want).norm() / want.norm())


def read(family, name):
    folder = os.path.join(GOLDEN, family, "cases")
    with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
        return json.load(file), load_file(os.path.join(folder, name + ".safetensors"))


def write(family, case, tensors, exact, rounded, tolerance):
    """exact: what must come out; rounded: the same by bfloat16, whose error goes into the case."""
    about = {name: {"shape": list(t.shape), "dtype": str(t.dtype).replace("torch.", "")} for name, t in tensors.items()}
    for name, t in exact.items():
        about["expect." + name] = {"shape": list(t.shape), "dtype": "float32", "tolerance": {"rel_l2": tolerance},
                                   "bf16_rel_l2": float(f"{off(rounded[name], t):.3g}")}
    tensors = {**tensors, **{"expect." + name: t.float().contiguous() for name, t in exact.items()}}
    path = os.path.join(GOLDEN, family, "cases", case["case"])
    save_file(tensors, path + ".safetensors")
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump({**case, "tensors": about}, file, indent=1)
        file.write("\n")


# ---- Attention with three rotary axes -------------------------------------------------------------------------------

def attention(case, tensors, dtype):
    heads, kv_heads, dim = case["heads"], case["kv_heads"], case["head_dim"]
    qkv = tensors["input.qkv"].to(dtype)
    rows = qkv.shape[0]
    q, k, v = (x.reshape(rows, -1, dim) for x in qkv.split([heads * dim, kv_heads * dim, kv_heads * dim], 1))
    angles = []
    for axis, size in enumerate(case["axes_dims"]):
        frequency = 1.0 / 10000.0 ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles.append(tensors["input.position_ids"][:, axis : axis + 1].double() * frequency)
    turn = torch.polar(torch.ones(()), torch.cat(angles, 1).float())[:, None]

    def place(x, weight):
        x = x.float()
        x = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.to(dtype).float()).to(dtype)
        pairs = torch.view_as_complex(x.float().reshape(rows, -1, dim // 2, 2))
        return torch.view_as_real(pairs * turn).flatten(2).to(dtype)

    q, k = place(q, tensors["input.q_norm"]), place(k, tensors["input.k_norm"])
    k, v = (x.repeat_interleave(heads // kv_heads, 1).transpose(0, 1) for x in (k, v))
    scores = (q.transpose(0, 1) @ k.transpose(1, 2)).float() / math.sqrt(dim)
    return {"out": (scores.softmax(-1).to(dtype) @ v).transpose(0, 1).flatten(1).float()}


case, tensors = read("newbie", "op_attention")
assert off(attention(case, tensors, torch.float32)["out"], tensors["expect.out"]) < 1e-6
case.update(case="op_attention_axes", heads=4, kv_heads=2, head_dim=64, axes_dims=[16, 28, 20])
case = {k: case[k] for k in ("family", "kind", "case", "what", "heads", "kv_heads", "head_dim", "axes_dims")}
case["what"] = "split, q/k RMSNorm (eps 1e-6), three-axis RoPE and grouped attention, with axes of different sizes"
random = torch.Generator().manual_seed(42)
positions = [[i, 0, 0] for i in range(5)] + [[5, r, c] for r in range(3) for c in range(4)]
tensors = {"input.qkv": torch.randn(len(positions), 8 * 64, generator=random),
           "input.q_norm": 1 + 0.25 * torch.randn(64, generator=random),
           "input.k_norm": 1 + 0.25 * torch.randn(64, generator=random),
           "input.position_ids": torch.tensor(positions, dtype=torch.int32)}
write("newbie", case, tensors, attention(case, tensors, torch.float32), attention(case, tensors, torch.bfloat16), 2e-5)

# ---- The decoder ----------------------------------------------------------------------------------------------------

def decode(latent, dtype):
    vae = AutoencoderKLQwenImage.from_pretrained(os.path.join(GOLDEN, "qwen-image", "model", "vae"), torch_dtype=dtype)
    mean, deviation = (torch.tensor(x).view(-1, 1, 1) for x in (vae.config.latents_mean, vae.config.latents_std))
    z = latent * deviation + mean
    taken = {"vae_in": z}
    decoder = vae.decoder
    for name, part in dict(post_quant=vae.post_quant_conv, conv_in=decoder.conv_in, mid_res0=decoder.mid_block.resnets[0],
                           mid_attn=decoder.mid_block.attentions[0], mid=decoder.mid_block, up0=decoder.up_blocks[0],
                           up1=decoder.up_blocks[1], up2=decoder.up_blocks[2]).items():
        part.register_forward_hook(lambda module, inputs, output, name=name: taken.update({name: output[0, :, 0].float()}))
    image = vae.decode(z[None, :, None].to(dtype), return_dict=False)[0][0, :, 0].float()
    taken["up1_ch0"], taken["up2_ch0"] = taken.pop("up1")[0], taken.pop("up2")[0]
    return {**taken, "image": image}


case, tensors = read("qwen-image", "vae-decode")
for name, got in decode(tensors["input.latent"], torch.float32).items():
    assert off(got, tensors["expect." + name]) < 1e-6, name
case = {"family": "qwen-image", "kind": "vae_decode", "case": "vae-decode-strips", "model": "t2i", "doc": case["doc"]}
latent = torch.randn(16, 5, 3, generator=torch.Generator().manual_seed(43)).bfloat16().float()
write("qwen-image", case, {"input.latent": latent}, decode(latent, torch.float32), decode(latent, torch.bfloat16), 1e-5)
