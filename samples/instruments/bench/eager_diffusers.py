#!/usr/bin/env python3
"""Times diffusers as its users run it: pipelines in bfloat16, nothing compiled, random weights of the released sizes. compare_torch.py --table --eager diffusers asks it in turns with the others.

    samples/instruments/bench/eager_diffusers.py z-image|qwen-image|edit|newbie|klein|qwen-image-21 [--side 1024] [--seconds 4] [--tokens N] [--device cuda] [--tiny]

"forward" is one call of the transformer with the arguments that the pipeline gives it, by events of the GPU; "picture" is a call of the pipeline with an encoded prompt, from the call to the PIL image
on the host. The edit model is its transformer alone. "forward" of Qwen-Image-2.1 reads the keys and values of its prompt, which the first step of a picture computes and keeps. diffusers has no NewBie-image: that one is the modules of torch_newbie.py, not compiled, with 28 guided steps. Needs diffusers 0.42 with
transformers and accelerate, which may lie in a folder that PYTHONPATH names; nothing is downloaded.
"""
import argparse
import json
import statistics
import sys
import time
import types

import torch
from compare_torch import timed
from torch_table import FAMILIES, REFERENCE_SIDE, make_newbie, normal


def filled(make, device):
    """A network in bfloat16 with random weights, made where it stays. Tables that are no parameters keep their values."""
    from accelerate import init_empty_weights

    with init_empty_weights():
        network = make()
    for module in network.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                center = 1.0 if weight.dim() == 1 and name == "weight" else 0.0  # of a norm
                made = torch.empty(weight.shape, device=device, dtype=torch.bfloat16).normal_(center, 0.02)
                module._parameters[name] = torch.nn.Parameter(made, requires_grad=False)
        for name, tensor in module._buffers.items():
            if tensor is not None:
                module._buffers[name] = tensor.to(device, torch.bfloat16 if tensor.is_floating_point() else tensor.dtype)
    return network.eval()


def vae_of(width, is_tiny, **settings):
    """Settings of AutoencoderKL and its kin."""
    widths, stages = [width // 4, width // 4, width // 2, width // 2] if is_tiny else [width, 2 * width, 4 * width, 4 * width], 4
    blocks = {f"{way}_block_types": [f"{kind}Block2D"] * stages for way, kind in (("down", "DownEncoder"), ("up", "UpDecoder"))}
    return {"block_out_channels": widths, "layers_per_block": 2, "norm_num_groups": 32, **blocks, **settings}


def make_z_image(device, is_tiny, tokens):
    from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, ZImagePipeline, ZImageTransformer2DModel

    size = {"dim": 256, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2} if is_tiny else {}
    transformer = filled(lambda: ZImageTransformer2DModel(axes_dims=[32, 48, 48], axes_lens=[1536, 512, 512], **size), device)
    settings = vae_of(128, is_tiny, latent_channels=16, scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False)
    vae = filled(lambda: AutoencoderKL(**settings), device)
    pipeline = ZImagePipeline(FlowMatchEulerDiscreteScheduler(shift=3.0), vae, None, None, transformer)
    features = [normal(device, tokens, 2560)]

    def forward(side):
        latents, t = [normal(device, 16, 1, side // 8, side // 8)], torch.tensor([0.5], device=device)
        return lambda: transformer(latents, t, features, return_dict=False)

    def draw(side, steps):
        return pipeline(prompt_embeds=features, height=side, width=side, num_inference_steps=steps, guidance_scale=0.0)

    return types.SimpleNamespace(pipeline=pipeline, forward=forward, draw=draw)


def make_qwen_transformer(device, is_tiny):
    from diffusers import QwenImageTransformer2DModel

    size = {"num_layers": 2, "num_attention_heads": 2} if is_tiny else {}
    return filled(lambda: QwenImageTransformer2DModel(**size), device)


def qwen_forward(transformer, features, side, references):
    device, rows = features.device, lambda pixels: (pixels // 16) ** 2
    sides = [side, *references]
    latents, t = normal(device, 1, sum(rows(pixels) for pixels in sides), 64), torch.tensor([0.5], device=device, dtype=torch.bfloat16)
    shapes = [[(1, pixels // 16, pixels // 16) for pixels in sides]]
    return lambda: transformer(hidden_states=latents, timestep=t, encoder_hidden_states=features, img_shapes=shapes, return_dict=False)


def make_qwen_image(device, is_tiny, tokens):
    from diffusers import AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImagePipeline

    transformer = make_qwen_transformer(device, is_tiny)
    vae = filled(lambda: AutoencoderKLQwenImage(base_dim=16 if is_tiny else 96, temperal_downsample=[False, True, True]), device)
    pipeline = QwenImagePipeline(FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=True), vae, None, None, transformer)
    features = normal(device, 1, tokens, 3584)

    def draw(side, steps):
        return pipeline(prompt_embeds=features, height=side, width=side, num_inference_steps=steps, true_cfg_scale=1.0)

    return types.SimpleNamespace(pipeline=pipeline, forward=lambda side: qwen_forward(transformer, features, side, ()), draw=draw)


def make_edit(device, is_tiny, tokens):
    transformer, features = make_qwen_transformer(device, is_tiny), normal(device, 1, tokens, 3584)
    return types.SimpleNamespace(forward=lambda side: qwen_forward(transformer, features, side, (REFERENCE_SIDE,)))


def make_klein(device, is_tiny, tokens):
    from diffusers import AutoencoderKLFlux2, FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline, Flux2Transformer2DModel

    size = {"num_layers": 1, "num_single_layers": 2, "num_attention_heads": 2, "joint_attention_dim": 384} if is_tiny else {"num_layers": 5, "num_single_layers": 20, "num_attention_heads": 24, "joint_attention_dim": 7680}
    transformer = filled(lambda: Flux2Transformer2DModel(guidance_embeds=False, axes_dims_rope=(32, 32, 32, 32), rope_theta=2000, **size), device)
    vae = filled(lambda: AutoencoderKLFlux2(**vae_of(128, is_tiny, latent_channels=32)), device)
    pipeline = Flux2KleinPipeline(FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True), vae, None, None, transformer, is_distilled=True)
    features = normal(device, 1, 512, size["joint_attention_dim"])
    text_ids = Flux2KleinPipeline._prepare_text_ids(features).to(device)

    def forward(side):
        latents, t = normal(device, 1, 128, side // 16, side // 16), torch.tensor([0.5], device=device, dtype=torch.bfloat16)
        ids = Flux2KleinPipeline._prepare_latent_ids(latents).to(device)
        rows = latents.flatten(2).transpose(1, 2)
        return lambda: transformer(hidden_states=rows, timestep=t, guidance=None, encoder_hidden_states=features, txt_ids=text_ids, img_ids=ids, return_dict=False)

    def draw(side, steps):
        return pipeline(prompt_embeds=features, height=side, width=side, num_inference_steps=steps, guidance_scale=1.0)

    return types.SimpleNamespace(pipeline=pipeline, forward=forward, draw=draw)


class NoProcessor:
    """What the pipeline of Qwen-Image-2.1 asks its processor before any prompt."""

    def __init__(self):
        self.tokenizer = types.SimpleNamespace(encode=lambda text: [0])

    def apply_chat_template(self, messages, **options):
        return [[0]]


def make_qwen_image_21(device, is_tiny, tokens):
    from diffusers import AutoencoderKLQwenImage21, FlowMatchEulerDiscreteScheduler, QwenImage21Pipeline, QwenImage21Transformer2DModel
    from diffusers.models.transformers.transformer_qwenimage21 import QwenImage21KVCache

    size = {"num_layers": 2, "num_attention_heads": 2, "context_in_dim": 256} if is_tiny else {}
    transformer = filled(lambda: QwenImage21Transformer2DModel(**size), device)
    vae = filled(lambda: AutoencoderKLQwenImage21(**({"base_dim": 16, "decoder_base_dim": 16} if is_tiny else {})), device)
    pipeline = QwenImage21Pipeline(FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=True, shift_terminal=0.02), vae, None, NoProcessor(), transformer)
    features = normal(device, 1, tokens, transformer.config.context_in_dim)

    def forward(side):
        grid = side // 16
        latents, t = normal(device, 1, grid * grid, 64), torch.tensor([0.5], device=device, dtype=torch.bfloat16)
        cache, is_image = QwenImage21KVCache(transformer.config.num_layers), torch.zeros(1, tokens + grid * grid // 4, dtype=torch.bool, device=device)
        is_image[:, tokens:] = True
        step = lambda mode: transformer(hidden_states=latents, timestep=t, encoder_hidden_states=features, img_shapes=[[(1, grid, grid)]], img_mask=is_image, kv_cache=cache, kv_cache_mode=mode, return_dict=False)
        step("extract")
        return lambda: step("cached")

    def draw(side, steps):
        return pipeline(prompt_embeds=features, height=side, width=side, num_inference_steps=steps)

    return types.SimpleNamespace(pipeline=pipeline, forward=forward, draw=draw)


def make_eager_newbie(device, is_tiny, tokens):
    net, made = make_newbie(device, is_tiny, tokens, is_compiled=False), {}

    def calls(side):
        if side not in made:
            made[side] = net.calls(side)
        return made[side]

    def draw_guided(side, steps):
        one = calls(side)
        x = normal(device, 16, side // 8, side // 8).float()
        sigmas = [6 * u / (1 + 5 * u) for u in (1 - i / steps for i in range(steps + 1))]
        for now, then in zip(sigmas, sigmas[1:]):  # the latents of every call are the same: times do not depend on them
            positive, negative = one["forward"]().float(), one["negative"]().float()
            x = x + (now - then) * (negative + 5.0 * (positive - negative))
        return ((one["decode"]() * 0.5 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).cpu()

    return types.SimpleNamespace(forward=lambda side: calls(side)["forward"], draw_guided=draw_guided)


MAKES = {"z-image": make_z_image, "qwen-image": make_qwen_image, "edit": make_edit, "newbie": make_eager_newbie, "klein": make_klein, "qwen-image-21": make_qwen_image_21}


def by_the_clock(call, seconds):
    """Median of the second half of what is called for `seconds`, at least twice, by the host's clock."""
    times, began = [], time.perf_counter()
    while len(times) < 2 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[len(times) // 2 :])


def answer(net, command):
    """As bench --serve: "sustain SIDE STEPS 1 SECONDS", "guided SIDE STEPS SECONDS"."""
    what, side, steps, *rest = command.split()
    side, steps, seconds = int(side), int(steps), float(rest[-1])
    if what == "guided":
        return {"picture": by_the_clock(lambda: net.draw_guided(side, steps), seconds)}
    forward = net.forward(side)
    timed([("forward", forward)], 0.0)  # warms up
    found = {"forward": timed([("forward", forward)], seconds)["forward"]}
    if hasattr(net, "draw"):
        found["picture"] = by_the_clock(lambda: net.draw(side, steps), seconds)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--tokens", type=int, help="rows of text; as in FAMILIES of torch_table.py")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="small networks, to test this program")
    parser.add_argument("--serve", action="store_true", help="a command per line of input, a line of JSON per answer")
    args = parser.parse_args()
    family, out = FAMILIES[args.family], sys.stdout
    sys.stdout = sys.stderr  # answers alone are on the true one
    about = f"modules of torch_newbie.py, torch {torch.__version__}"
    if args.family != "newbie":
        import diffusers

        diffusers.utils.logging.set_verbosity_error()
        about = f"diffusers {diffusers.__version__}, torch {torch.__version__}"
    with torch.inference_mode():
        net = MAKES[args.family](args.device, args.tiny, args.tokens or family["tokens"])
        if hasattr(net, "pipeline"):
            net.pipeline.set_progress_bar_config(disable=True)
        print(json.dumps({"device": about}), file=out, flush=True)
        commands = sys.stdin if args.serve else [f"sustain {args.side} {family['steps']} 1 {args.seconds}", *([f"guided {args.side} {family['guided']} 0"] if "guided" in family else [])]
        for command in commands:
            print(json.dumps(answer(net, command)), file=out, flush=True)


if __name__ == "__main__":
    main()
