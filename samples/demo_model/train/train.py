"""Trains the demo model on one GPU, from nothing, and writes it in the diffusers layout.

    python3 train.py --work DIR [--vae FOLDER] [--start FOLDER] [--export FOLDER] [--judge FOLDER] [--until-seconds N]

Stages: tokenizer, VAE, latents, transformer with text encoder (flow matching), few steps, adapter (a blueprint style), export, judgement. Each is skipped when DIR holds its result.
After N seconds or SIGTERM the state is written to DIR and the program ends with status 3; the same command goes on from there. --vae takes the VAE of an exported checkpoint,
--start its transformer and text encoder to begin with. All randomness comes from --seed. Needs torch, tokenizers, safetensors, numpy, Pillow; without a GPU it runs, for days.

    pool of pictures --> VAE --> latents of fresh scenes, several captions each --> transformer + text encoder --> few steps --> adapter
      (pictures.py)               (encoded once, kept on the GPU)                      (flow matching)              (8 Euler steps)
"""

import argparse
import copy
import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file

import check
import nets
import tokens
from pictures import render
from world import BACKGROUNDS, STYLES, caption, is_held_out, sample_scene

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# Linear preview factors of the Flux latent space (rows: channels, columns: R G B): the demo VAE is trained so that they hold for it too.
PREVIEW = torch.tensor([
    [-0.0346, 0.0244, 0.0681], [0.0034, 0.0210, 0.0687], [0.0275, -0.0668, -0.0433], [-0.0174, 0.0160, 0.0617], [0.0859, 0.0721, 0.0329], [0.0004, 0.0383, 0.0115],
    [0.0405, 0.0861, 0.0915], [-0.0236, -0.0185, -0.0259], [-0.0245, 0.0250, 0.1180], [0.1008, 0.0755, -0.0421], [-0.0515, 0.0201, 0.0011], [0.0428, -0.0012, -0.0036],
    [0.0817, 0.0765, 0.0749], [-0.1264, -0.0522, -0.1103], [-0.0280, -0.0881, -0.0499], [-0.1262, -0.0982, -0.0778]])
PREVIEW_BIAS = torch.tensor([-0.0329, -0.0718, -0.0851])
RANK = 4  # of the adapter
SCALE, SHIFT = 0.3611, 0.1159  # Flux's; latents come out with unit deviation because the loss asks for it

# height, width: share of the training pictures
SIZES = {(256, 256): 0.56, (192, 192): 0.12, (320, 320): 0.05, (384, 384): 0.03, (256, 384): 0.07, (384, 256): 0.07, (192, 320): 0.05, (320, 192): 0.05}


def log(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def half_precision():
    return torch.autocast(DEVICE, torch.bfloat16)


def scenes(rng, count, held_out=False):
    out = []
    while len(out) < count:
        scene = sample_scene(rng)
        if is_held_out(scene) == held_out:
            out.append(scene)
    return out


WORKERS = [None]


class Clock:
    """Ends the program in good time: after --until-seconds, or soon after SIGTERM."""

    def __init__(self, seconds):
        self.end, self.stopped = time.time() + seconds if seconds else math.inf, False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopped", True))

    def over(self, need=0.0):
        """Whether fewer than `need` seconds are left."""
        return self.stopped or time.time() + need > self.end

    def end_now(self, where):
        log(f"stopped {where}: the same command goes on from there")
        WORKERS[0].terminate()
        sys.stdout.flush()
        os._exit(3)


def random_state(rng):
    return dict(python=rng.getstate(), torch=torch.get_rng_state(), cuda=torch.cuda.get_rng_state() if DEVICE == "cuda" else None)


def set_random_state(rng, state):
    rng.setstate(state["python"])
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"].cpu())


def save_state(path, state):
    """Never leaves half a file behind."""
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


class Speed:
    """Steps per second since it was last asked."""

    def __init__(self, step):
        self.step, self.time = step, time.time()

    def __call__(self, step):
        steps, seconds = step - self.step, time.time() - self.time
        self.step, self.time = step, time.time()
        return f"{steps / max(seconds, 1e-3):.1f}/s"


class Ema:
    def __init__(self, networks, decay):
        self.nets, self.decay = [copy.deepcopy(n).eval().requires_grad_(False) for n in networks], decay

    @torch.no_grad()
    def update(self, networks, step):
        d = min(self.decay, (step + 1) / (step + 10))
        torch._foreach_lerp_([p for n in self.nets for p in n.parameters()], [p for n in networks for p in n.parameters()], 1 - d)


def learning_rate(top, step, steps, warmup, hold=0.35):
    """Warm-up, a plateau, then a half cosine down to nearly nothing."""
    p = step / steps
    return top * min(1, (step + 1) / warmup) * (1.0 if p < hold else 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (p - hold) / (1 - hold))))


class Muon:
    """Momentum with orthogonalised updates for the matrices of the transformer, all of one shape at a time."""

    def __init__(self, matrices, momentum=0.95, decay=0.05):
        self.shapes = {shape: list(group) for shape, group in itertools.groupby(sorted(matrices, key=lambda p: tuple(p.shape)), key=lambda p: tuple(p.shape))}
        self.buffers = {shape: torch.zeros(len(group), *shape, device=DEVICE) for shape, group in self.shapes.items()}
        self.momentum, self.decay = momentum, decay

    def state_dict(self):
        return self.buffers

    def load_state_dict(self, state):
        for shape in self.buffers:
            self.buffers[shape].copy_(state[shape])

    @torch.no_grad()
    def step(self, rate):
        for shape, group in self.shapes.items():
            gradient, buffer = torch.stack([p.grad for p in group]), self.buffers[shape]
            buffer.lerp_(gradient, 1 - self.momentum)
            x = gradient.lerp(buffer, self.momentum).bfloat16()
            tall = shape[0] > shape[1]
            x = x.mT if tall else x
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):  # Newton-Schulz: singular values go to one
                square = x @ x.mT
                x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
            x = (x.mT if tall else x).float() * (0.2 * max(shape) ** 0.5)
            torch._foreach_mul_(group, 1 - rate * self.decay)
            torch._foreach_add_(group, list(x.unbind(0)), alpha=-rate)


# ---- VAE ------------------------------------------------------------------------------------------------------------------------------------------

def to_bytes(x):
    return (x * 255).round().to(torch.uint8)


@torch.no_grad()
def picture_pool(count, seed):
    """[count, 3, 256, 256] uint8: scenes, some of them larger and cropped, some in other colours and as blueprints so that the VAE knows more than its world."""
    rng, begin = random.Random(seed), time.time()
    pool = torch.empty(count, 3, 256, 256, dtype=torch.uint8, device=DEVICE)
    for at in range(0, count, 1024):
        n = min(1024, count - at)
        roll = rng.random()
        side = 384 if roll < 0.12 else 256
        x = render(scenes(rng, n), side, side, DEVICE)
        if roll > 0.95:
            x = blueprint(x)
        elif roll > 0.85:
            x = x[:, rng.sample(range(3), 3)]
            x = 1 - x if rng.random() < 0.5 else x
        top, left = rng.randint(0, side - 256), rng.randint(0, side - 256)
        pool[at : at + n] = to_bytes(x[:, :, top : top + 256, left : left + 256])
    log(f"pool: {count} pictures, {count / (time.time() - begin):.0f}/s")
    return pool


@torch.no_grad()
def vae_psnr(vae, rng, count=128, held_out=True):
    """Mean over pictures, of 8-bit pictures."""
    errors = []
    for _ in range(0, count, 32):
        x = to_bytes(render(scenes(rng, 32, held_out), 256, 256, DEVICE)).float() / 127.5 - 1
        y = ((vae.decoder(vae.encode(x)[0]).float().clamp(-1, 1) + 1) * 127.5).round() / 127.5 - 1
        errors.append((((x - y) / 2) ** 2).mean((1, 2, 3)))
    return (-10 * torch.log10(torch.cat(errors))).mean().item()


def vae_loss(vae, x, noise, strength, factors, bias):
    mean, logvar = vae.encode(x)
    y = vae.decoder(mean + strength * torch.exp(0.5 * logvar) * noise)
    x, y, mean, logvar = x.float(), y.float(), mean.float(), logvar.float()
    latent = (mean - SHIFT) * SCALE
    preview = torch.einsum("bchw,cr->brhw", latent, factors) + bias
    difference = y - x
    edge = difference.diff(dim=-1).abs().mean() + difference.diff(dim=-2).abs().mean()
    preview_error = ((preview - F.avg_pool2d(x, 8)) ** 2).mean()
    spread = latent.var((0, 2, 3)) + 1e-6
    unit = spread.mean().log() ** 2 + 0.1 * (spread.log().abs() - 0.7).clamp(min=0).square().mean() + latent.mean((0, 2, 3)).square().mean()
    fixed = ((logvar + 3) ** 2).mean()  # the posterior's noise: 8 % of a latent's deviation keeps the space smooth and the decoder forgiving
    square = (difference ** 2).mean()
    loss = difference.abs().mean() + edge + 4 * square + 0.3 * preview_error + 0.02 * unit + 1e-3 * fixed
    return loss, torch.stack([square, edge, preview_error, spread.min(), spread.max()]).detach()


def train_vae(args):
    path = args.work / "vae.pt"
    if args.vae and not args.steps_vae:
        return
    torch.manual_seed(args.seed)
    vae = nets.Autoencoder().to(DEVICE).to(memory_format=torch.channels_last)
    if args.vae:
        vae.load_state_dict(load_file(args.vae / "vae/diffusion_pytorch_model.safetensors"))
    optimiser = torch.optim.AdamW(vae.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=1e-4, fused=True)
    ema, step, steps = Ema([vae], 0.998), 0, args.steps_vae
    if path.exists():
        state = torch.load(path, map_location=DEVICE, weights_only=False)
        if state["step"] >= steps:
            return
        vae.load_state_dict(state["vae"]), ema.nets[0].load_state_dict(state["ema"]), optimiser.load_state_dict(state["optimiser"])
        step = state["step"]
    pool = picture_pool(args.pool, args.seed * 1000 + step)
    rng, saved, speed = random.Random(args.seed * 1000 + step), time.time(), Speed(step)
    factors, bias = PREVIEW.to(DEVICE), PREVIEW_BIAS.to(DEVICE)[:, None, None]
    loss_function = torch.compile(vae_loss, dynamic=False) if args.compile else vae_loss
    while step < steps:
        side, count = (128, args.batch_vae * 3) if step < 0.6 * steps and not args.vae else (256, args.batch_vae)  # crops first, whole pictures later
        top, left = rng.randint(0, 256 - side), rng.randint(0, 256 - side)
        x = pool[torch.randint(len(pool), (count,), device=DEVICE)][:, :, top : top + side, left : left + side]
        x = (x.float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)
        noise, strength = torch.randn(count, 16, side // 8, side // 8, device=DEVICE), torch.rand(count, 1, 1, 1, device=DEVICE)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(5e-4 if args.vae else 1.5e-3, step, steps, 200)
        with half_precision():
            loss, parts = loss_function(vae, x, noise, strength, factors, bias)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(vae.parameters(), 0.5)
        optimiser.step()
        ema.update([vae], step)
        if step % 200 == 0:
            square, edge, preview, low, high = parts.tolist()
            log(f"vae {step}/{steps} error {-10 * math.log10(square / 4):.2f} dB edge {edge:.4f} preview {preview:.4f} spread {low:.2f}..{high:.2f} norm {norm:.2f} {speed(step)}")
        step += 1
        if time.time() - saved > 60 or step == steps or args.clock.over():
            saved = time.time()
            save_state(path, dict(vae=vae.state_dict(), ema=ema.nets[0].state_dict(), optimiser=optimiser.state_dict(), step=step))
            if step < steps and args.clock.over():
                args.clock.end_now(f"VAE, step {step}")
    del pool
    log(f"vae done: {step} steps, PSNR on held-out pictures {vae_psnr(ema.nets[0], random.Random(5)):.2f} dB")


def load_vae(args):
    vae = nets.Autoencoder().to(DEVICE).eval().requires_grad_(False).to(memory_format=torch.channels_last)
    vae.load_state_dict(load_file(args.vae / "vae/diffusion_pytorch_model.safetensors") if args.vae and not args.steps_vae else torch.load(args.work / "vae.pt", map_location=DEVICE, weights_only=False)["ema"])
    return vae


# ---- Latents --------------------------------------------------------------------------------------------------------------------------------------

@torch.no_grad()
def make_latents(args, vae, count, seed, restyle=None):
    """Renders and encodes scenes, while the worker processes write and tokenise their captions: {size: (latents bf16, ids [n * captions, LONGEST], lengths)} on the GPU."""
    rng, data, begin, done = random.Random(seed), {size: ([], []) for size in SIZES}, time.time(), 0
    encoder = copy.deepcopy(vae).to(torch.bfloat16)
    while done < count:
        size = rng.choices(list(SIZES), list(SIZES.values()))[0]
        batch = scenes(rng, min(1024 if size[0] * size[1] <= 65536 else 512, count - done))
        data[size][1].append(args.workers.apply_async(tokens.encode_scenes, ((args.work / "tokenizer", batch, seed + done, args.captions),)))
        x = render(batch, *size, DEVICE)
        x = ((x if restyle is None else restyle(x)) * 2 - 1).to(torch.bfloat16)
        for part in x.split(128):
            z = encoder.encode(part.contiguous(memory_format=torch.channels_last))[0]
            data[size][0].append(((z.float() - SHIFT) * SCALE).to(torch.bfloat16).contiguous())
        done += len(batch)
    log(f"latents: {done} pictures, {done / (time.time() - begin):.0f}/s")
    out = {}
    for size, (z, jobs) in data.items():
        if jobs:
            table, lengths = (torch.from_numpy(numpy.concatenate(a)).to(DEVICE) for a in zip(*(job.get() for job in jobs)))
            out[size] = torch.cat(z), table, lengths
    log(f"captions: {done * args.captions}, {time.time() - begin:.0f} s in all; deviation of the latents {next(iter(out.values()))[0].float().std():.3f}")
    return out


class CaptionCache:
    """Several tokenised captions per scene, made once on the processor: tokenising in the training loop would cost more than the step."""

    def __init__(self, tokenizer, data, captions):
        self.pad, self.groups = tokenizer.token_to_id("<|endoftext|>"), {}
        self.empty = torch.tensor(tokens.encode(tokenizer, [""])[0], device=DEVICE)
        self.blank = torch.full((32,), self.pad, device=DEVICE)  # the empty text, padded
        self.blank[: len(self.empty)] = self.empty
        for size, (_, table, lengths) in data.items():
            for length in range(32, tokens.LONGEST + 1, 32):
                chosen = ((lengths > length - 32) & (lengths <= length)).nonzero()[:, 0]
                if len(chosen) >= 8:
                    self.groups[(size, length)] = table[chosen, :length], lengths[chosen], chosen // captions
        self.keys = list(self.groups)
        self.weights = [len(self.groups[k][0]) * {32: 1, 64: 1.3}.get(k[1], 0.7) for k in self.keys]
        log("captions:", {f"{k[0][0]}x{k[0][1]} {k[1]}": len(v[0]) for k, v in self.groups.items()})

    def draw(self, rng, area):
        """A batch of one size and caption length: size, ids [B, T], lengths [B], scene indices [B]. area: rows of image tokens in it."""
        size, length = rng.choices(self.keys, self.weights)[0]
        table, lengths, scene = self.groups[(size, length)]
        pick = torch.randint(len(table), (max(8, area * 256 // (size[0] * size[1]) // 8 * 8),), device=DEVICE)
        ids, lengths = table[pick].long(), lengths[pick].long()
        if length == 32:  # the empty text, for guidance; it has 8 tokens, so it belongs to the short group
            drop = torch.rand(len(pick), device=DEVICE) < 0.07
            ids, lengths = torch.where(drop[:, None], self.blank, ids), torch.where(drop, len(self.empty), lengths)
        return size, ids, lengths, scene[pick]


def training_data(args, vae, tokenizer):
    """Made once, used by the transformer's stage and the few-step stage."""
    if not hasattr(args, "data"):
        path = args.work / "data.pt"
        if path.exists():
            begin = time.time()
            data = torch.load(path, map_location=DEVICE, weights_only=False)
            log(f"training data read in {time.time() - begin:.0f} s")
        else:
            data = make_latents(args, vae, args.latents, args.seed + 7)
            save_state(path, data)
            log(f"training data written: {path.stat().st_size / 1e9:.1f} GB")
        args.data = data, CaptionCache(tokenizer, data, args.captions)
        if args.judge:  # the checker's templates, while the GPU trains
            args.workers.map_async(prepare_reader, [(b, s) for b in BACKGROUNDS for s in STYLES], chunksize=1)
    return args.data


# ---- Transformer and text encoder --------------------------------------------------------------------------------------------------------------------

def shifted(u, shift=3.0):
    """The schedule's sigma at 1 - u of the way."""
    return shift * u / (1 + (shift - 1) * u)


def sample_sigma(count):
    """Half the draws like the shifted schedule that inference walks, half in the middle."""
    walked = shifted(torch.rand(count, device=DEVICE))
    middle = torch.sigmoid(torch.randn(count, device=DEVICE) + 0.4)
    return torch.where(torch.rand(count, device=DEVICE) < 0.5, walked, middle)


def flow_loss(transformer, encoder, z, ids, lengths):
    sigma = sample_sigma(len(z))[:, None, None, None]
    noise = torch.randn_like(z)
    is_token = torch.arange(ids.shape[1], device=ids.device)[None] < lengths[:, None]
    out = transformer(sigma * noise + (1 - sigma) * z, 1 - sigma.flatten(), encoder(ids), is_token)
    return ((out.float() - (z - noise)) ** 2).mean()


def split_parameters(*networks):
    """The matrices of the transformer's blocks, for Muon; all the rest, for AdamW."""
    matrices = [p for n in networks for name, p in n.named_parameters() if p.dim() == 2 and (".attention." in name or ".feed_forward." in name)]
    chosen = {id(p) for p in matrices}
    return matrices, [p for n in networks for p in n.parameters() if p.requires_grad and id(p) not in chosen]


@torch.no_grad()
def start_from(folder, transformer, encoder, tokenizer):
    """Takes over the weights of an exported checkpoint. Its text encoder may have fewer layers: new ones, before the last, begin as the identity. Token by token the embeddings
    follow the text that the token stands for."""
    transformer.load_state_dict(load_file(folder / "transformer/diffusion_pytorch_model.safetensors"))
    old = load_file(folder / "text_encoder/model.safetensors")
    had = 1 + max(int(name.split(".")[2]) for name in old if ".layers." in name)
    layers = encoder.model["layers"]
    for k, layer in enumerate(layers):
        of = had - 1 if k == len(layers) - 1 else k if k < had - 1 else None
        if of is None:
            layer.self_attn.o_proj.weight.zero_(), layer.mlp.down_proj.weight.zero_()
        else:
            layer.load_state_dict({name.split(".", 3)[3]: w for name, w in old.items() if name.startswith(f"model.layers.{of}.")})
    encoder.model["norm"].weight.copy_(old["model.norm.weight"])
    before, table, same = tokens.load(folder / "tokenizer"), encoder.model["embed_tokens"].weight, 0
    for text, k in tokenizer.get_vocab().items():
        ids = [before.token_to_id(text)] if before.token_to_id(text) is not None else before.encode(tokenizer.decode([k])).ids
        same += len(ids) == 1
        if ids:
            table[k] = old["model.embed_tokens.weight"][ids].float().mean(0).to(DEVICE)
    log(f"started from {folder}: {had} text layers became {len(layers)}, {same} of {tokenizer.get_vocab_size()} tokens are the same")


def train_transformer(args, vae, tokenizer):
    path = args.work / "transformer.pt"
    torch.manual_seed(args.seed + 1)
    transformer, encoder = nets.Transformer().to(DEVICE), nets.TextEncoder(640).to(DEVICE)
    if args.start and not path.exists():
        start_from(args.start, transformer, encoder, tokenizer)
    matrices, others = split_parameters(transformer, encoder)
    both = [p for n in (transformer, encoder) for p in n.parameters()]
    optimiser = torch.optim.AdamW(others, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    muon, ema, step, steps = Muon(matrices), Ema([transformer, encoder], 0.999), 0, args.steps_transformer
    parts = dict(transformer=transformer, encoder=encoder, ema0=ema.nets[0], ema1=ema.nets[1], optimiser=optimiser, muon=muon)
    rng, mean, state = random.Random(args.seed + 9), None, None
    if path.exists():
        state = torch.load(path, map_location=DEVICE, weights_only=False)
        steps, step, mean = state["steps"], state["step"], state["mean"]
        if step >= steps:
            return
        for key, part in parts.items():
            part.load_state_dict(state[key])
    data, cache = training_data(args, vae, tokenizer)
    if args.compile:
        transformer.compile_blocks(), encoder.compile_layers()
    if state:
        set_random_state(rng, state["random"])
    else:
        torch.manual_seed(args.seed + 10)
    saved, speed, measured = time.time(), Speed(step), None
    while step < steps:
        size, ids, lengths, scene = cache.draw(rng, args.batch * 256)
        z = data[size][0][scene].float()
        with half_precision():
            loss = flow_loss(transformer, encoder, z, ids, lengths)
        optimiser.zero_grad(set_to_none=True)
        for p in matrices:
            p.grad = None
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(both, 1.0)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(args.rate, step, steps, 500)
        optimiser.step()
        muon.step(learning_rate(args.rate_muon, step, steps, 500))
        ema.update([transformer, encoder], step)
        if step % 10 == 0:
            mean = loss.item() if mean is None else 0.97 * mean + 0.03 * loss.item()
        if step % 500 == 0:
            log(f"transformer {step}/{steps} loss {mean:.4f} norm {norm:.2f} {speed(step)}")
        step += 1
        if args.minutes_transformer and step == 1000:
            measured = time.time()
        if measured and step == 1500:  # the learning rate is still level, so that its end can be moved
            steps = max(3000, min(steps, 1500 + int(500 / (time.time() - measured) * (args.minutes_transformer * 60 - 75))))
            log(f"transformer: {steps} steps fit into {args.minutes_transformer} minutes (--steps-transformer {steps} repeats this run)")
        if time.time() - saved > 90 or step == steps or args.clock.over(4):
            saved = time.time()
            save_state(path, dict({key: part.state_dict() for key, part in parts.items()}, step=step, steps=steps, mean=mean, random=random_state(rng)))
            if step < steps and args.clock.over(4):
                args.clock.end_now(f"transformer, step {step}")
    log(f"transformer done: {step} steps, loss {mean:.4f}")


def load_transformer(args, name="few_steps.pt"):
    state = torch.load(args.work / name, map_location=DEVICE, weights_only=False)
    transformer, encoder = nets.Transformer().to(DEVICE).eval(), nets.TextEncoder(640).to(DEVICE).eval()
    transformer.load_state_dict(state["ema0"]), encoder.load_state_dict(state["ema1"])
    return transformer.requires_grad_(False), encoder.requires_grad_(False)


# ---- Few steps -----------------------------------------------------------------------------------------------------------------------------------------------

def few_step_loss(student, teacher, encoder, cache, z, ids, lengths, guidance, parts=2):
    """How far a forward pass of the student is from the mean velocity of its teacher's guided Euler steps over an interval.

    sigma  1 -------- . --------> 0.955 -------- ...        teacher: two guided Euler steps per interval of the 8-step schedule
           1 -------------------> 0.955 -------- ...        student: their mean velocity, asked for at the interval's beginning
    """
    sigma, count = lambda u: shifted(u)[:, None, None, None], len(z)
    begin = 1 - torch.randint(8, (count,), device=DEVICE) / 8
    begin = torch.where(torch.rand(count, device=DEVICE) < 0.3, 0.125 + 0.875 * torch.rand(count, device=DEVICE), begin)  # other schedules too
    with torch.no_grad():
        features, nothing = encoder(ids), encoder(cache.blank[None]).expand(count, -1, -1)
        is_token = torch.arange(ids.shape[1], device=DEVICE)[None] < lengths[:, None]
        is_blank = (torch.arange(32, device=DEVICE) < len(cache.empty)).expand(count, -1)
        x = y = sigma(begin) * torch.randn_like(z) + (1 - sigma(begin)) * z
        for k in range(parts):
            a, b = sigma(begin - k / (8 * parts)), sigma(begin - (k + 1) / (8 * parts))
            told, untold = (teacher(y, 1 - a.flatten(), f, i).float() for f, i in ((features, is_token), (nothing, is_blank)))
            y = y - (b - a) * (told + guidance * (told - untold))
        velocity = (x - y) / (sigma(begin - 1 / 8) - sigma(begin))
    return ((student(x, 1 - shifted(begin), features, is_token).float() - velocity) ** 2).mean()


def train_few_steps(args, vae, tokenizer, guidance=1.2):
    """Teaches the transformer to do in one forward pass without guidance what its teacher does in four with it: thin lines no longer break."""
    path = args.work / "few_steps.pt"
    if path.exists():
        return
    part_done = args.work / "few_steps_part.pt"
    torch.manual_seed(args.seed + 3)
    teacher, encoder = load_transformer(args, "transformer.pt")
    student = copy.deepcopy(teacher).train().requires_grad_(True)
    matrices, others = split_parameters(student)
    optimiser, muon, ema = torch.optim.AdamW(others, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0, fused=True), Muon(matrices, decay=0.0), Ema([student], 0.998)
    parts = dict(student=student, ema0=ema.nets[0], optimiser=optimiser, muon=muon)
    data, cache = training_data(args, vae, tokenizer)
    rng, mean, begin = random.Random(args.seed + 43), None, 0
    torch.manual_seed(args.seed + 44)
    if part_done.exists():
        state = torch.load(part_done, map_location=DEVICE, weights_only=False)
        for key, part in parts.items():
            part.load_state_dict(state[key])
        begin, mean = state["step"], state["mean"]
        set_random_state(rng, state["random"])
    speed = Speed(begin)
    if args.compile:
        teacher.compile_blocks(), student.compile_blocks()
    for step in range(begin, args.steps_few):
        if args.clock.over(4):
            save_state(part_done, dict({key: part.state_dict() for key, part in parts.items()}, step=step, mean=mean, random=random_state(rng)))
            args.clock.end_now(f"few steps, step {step}")
        size, ids, lengths, scene = cache.draw(rng, args.batch * 128)
        with half_precision():
            loss = few_step_loss(student, teacher, encoder, cache, data[size][0][scene].float(), ids, lengths, guidance)
        for p in student.parameters():
            p.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(args.rate / 4, step, args.steps_few, 100, 0.1)
        optimiser.step()
        muon.step(learning_rate(args.rate_muon / 4, step, args.steps_few, 100, 0.1))
        ema.update([student], step)
        if step % 10 == 0:
            mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 250 == 0:
            log(f"few steps {step}/{args.steps_few} loss {mean:.4f} {speed(step)}")
    save_state(path, dict(ema0=ema.nets[0].state_dict(), ema1=encoder.state_dict()))


@torch.no_grad()
def generate(transformer, encoder, vae, tokenizer, texts, height=256, width=256, steps=8, shift=3.0, seed=0, noise=None, control=None):
    """The reference sampler: pictures [n, 3, H, W] in [0, 1]. Captions are grouped by padded length. control: from the indices of a group to its nets.Control."""
    ids, x = tokens.encode(tokenizer, texts), noise
    if x is None:
        x = torch.randn(len(ids), 16, height // 8, width // 8, generator=torch.Generator().manual_seed(seed))
    u = 1 - torch.arange(steps + 1) / steps
    sigma = shifted(u, shift).tolist()
    out = torch.empty(len(ids), 3, height, width)
    for length in sorted({-(-len(i) // 32) * 32 for i in ids}):
        index = [k for k, i in enumerate(ids) if -(-len(i) // 32) * 32 == length]
        table = torch.full((len(index), length), tokenizer.token_to_id("<|endoftext|>"))
        for row, k in enumerate(index):
            table[row, : len(ids[k])] = torch.tensor(ids[k])
        is_token = torch.arange(length)[None] < torch.tensor([len(ids[k]) for k in index])[:, None]
        features, y = encoder(table.to(DEVICE)), x[index].to(DEVICE)
        for a, b in zip(sigma[:-1], sigma[1:]):
            y = y - (b - a) * transformer(y, torch.full((len(index),), 1 - a, device=DEVICE), features, is_token.to(DEVICE), control and control(index)).float()
        for part, where in zip(y.split(16), torch.tensor(index).split(16)):
            out[where] = ((vae.decoder(part / SCALE + SHIFT).float() + 1) / 2).clamp(0, 1).cpu()
    return out


# ---- The adapter: a blueprint --------------------------------------------------------------------------------------------------------------------------------

def blueprint(x):
    """White lines on Prussian blue, as on the old photographic paper: a line where neighbouring pixels differ, wide enough to be drawn in few steps."""
    across, down = F.pad(x.diff(dim=-1), (1, 0)), F.pad(x.diff(dim=-2), (0, 0, 1, 0))
    line = F.max_pool2d((across ** 2 + down ** 2).sum(1, keepdim=True).sqrt(), 5, 1, 2)
    line = F.avg_pool2d((4 * line - 0.25).clamp(0, 1), 3, 1, 1)  # shading differs less than edges do
    ink, paper = (torch.tensor(c, device=x.device)[None, :, None, None] for c in ((0.95, 0.97, 1.0), (0.08, 0.24, 0.55)))
    return paper + (ink - paper) * line


class LowRank(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.lora_A = torch.nn.Parameter(torch.randn(RANK, linear.in_features, device=DEVICE) / linear.in_features ** 0.5)
        self.lora_B = torch.nn.Parameter(torch.zeros(linear.out_features, RANK, device=DEVICE))

    def forward(self, x):
        return self.linear(x) + F.linear(F.linear(x, self.lora_A), self.lora_B)


def with_adapter(transformer, state=None):
    """Wraps the matrices of all blocks: {name: LowRank}."""
    layers = {}
    for name, module in list(transformer.named_modules()):
        if isinstance(module, torch.nn.Linear) and (".attention.to_" in name or ".feed_forward." in name):
            parent, last = transformer.get_submodule(name.rsplit(".", 1)[0]), name.rsplit(".", 1)[1]
            layers[name] = LowRank(module)
            if isinstance(parent, torch.nn.ModuleList):
                parent[int(last)] = layers[name]
            else:
                setattr(parent, last, layers[name])
            if state:
                layers[name].lora_A.data, layers[name].lora_B.data = (w.to(DEVICE) for w in state[name])
    return layers


def train_adapter(args, vae, tokenizer, guidance=1.5):
    """Learns the style first, then, as the transformer did, to draw it in few steps."""
    path = args.work / "adapter.pt"
    if path.exists():
        return
    if args.clock.over(args.adapter_seconds):
        args.clock.end_now("before the adapter")
    torch.manual_seed(args.seed + 2)
    transformer, encoder = load_transformer(args)
    layers, teacher = with_adapter(transformer), None
    data = make_latents(args, vae, args.latents // 16, args.seed + 31, blueprint)
    cache = CaptionCache(tokenizer, data, args.captions)
    trained = [p for layer in layers.values() for p in (layer.lora_A, layer.lora_B)]
    optimiser, rng, style = torch.optim.AdamW(trained, lr=2e-3, weight_decay=0.0), random.Random(args.seed + 33), args.steps_adapter * 2 // 3
    for step in range(args.steps_adapter):
        size, ids, lengths, scene = cache.draw(rng, args.batch * 128)
        z = data[size][0][scene].float()
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(2e-3, step, style, 50) if step < style else learning_rate(5e-4, step - style, args.steps_adapter - style, 50)
        with half_precision():
            if step < style:
                loss = flow_loss(transformer, encoder, z, ids, lengths)
            else:
                teacher = teacher or copy.deepcopy(transformer).requires_grad_(False)
                loss = few_step_loss(transformer, teacher, encoder, cache, z, ids, lengths, guidance)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if step % 100 == 0:
            log(f"adapter {step}/{args.steps_adapter} loss {loss.item():.4f}")
    torch.save({name: (layer.lora_A.detach().cpu(), layer.lora_B.detach().cpu()) for name, layer in layers.items()}, path)


# ---- Export ----------------------------------------------------------------------------------------------------------------------------------------------

def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def export(args):
    out = args.export
    half = lambda state: {k: v.to(torch.bfloat16).contiguous().cpu() for k, v in state.items()}
    transformer, encoder = load_transformer(args)
    for file in (args.work / "tokenizer").iterdir():
        (out / "tokenizer").mkdir(parents=True, exist_ok=True)
        (out / "tokenizer" / file.name).write_bytes(file.read_bytes())
    write_json(out / "model_index.json", {"_class_name": "ZImagePipeline", "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"], "text_encoder": ["transformers", "Qwen3Model"],
                                          "tokenizer": ["transformers", "Qwen2Tokenizer"], "transformer": ["diffusers", "ZImageTransformer2DModel"], "vae": ["diffusers", "AutoencoderKL"]})
    write_json(out / "scheduler/scheduler_config.json", {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "use_dynamic_shifting": False, "shift": 3.0})
    t = nets.TRANSFORMER
    write_json(out / "transformer/config.json", {"_class_name": "ZImageTransformer2DModel", "all_f_patch_size": [1], "all_patch_size": [2], "axes_dims": t["axes_dims"], "axes_lens": [1536, 512, 512],
                                                 "cap_feat_dim": t["cap_feat_dim"], "dim": t["dim"], "in_channels": 16, "n_heads": t["n_heads"], "n_kv_heads": t["n_heads"], "n_layers": t["n_layers"],
                                                 "n_refiner_layers": t["n_refiner_layers"], "norm_eps": t["norm_eps"], "qk_norm": True, "rope_theta": t["rope_theta"], "t_scale": t["t_scale"]})
    save_file(half(transformer.state_dict()), out / "transformer/diffusion_pytorch_model.safetensors", {"format": "pt"})
    write_json(out / "text_encoder/config.json", {"architectures": ["Qwen3Model"], "model_type": "qwen3", **nets.TEXT, "attention_bias": False, "hidden_act": "silu", "max_position_embeddings": 512,
                                                  "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_sliding_window": False, "vocab_size": 640})
    save_file(half(encoder.state_dict()), out / "text_encoder/model.safetensors", {"format": "pt"})
    v = nets.VAE
    write_json(out / "vae/config.json", {"_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": v["block_out_channels"], "down_block_types": ["DownEncoderBlock2D"] * 4, "in_channels": 3,
                                         "latent_channels": 16, "layers_per_block": v["layers_per_block"], "mid_block_add_attention": True, "norm_num_groups": 32, "out_channels": 3, "sample_size": 256,
                                         "scaling_factor": SCALE, "shift_factor": SHIFT, "up_block_types": ["UpDecoderBlock2D"] * 4, "use_post_quant_conv": False, "use_quant_conv": False, "force_upcast": False})
    save_file(half(load_vae(args).state_dict()), out / "vae/diffusion_pytorch_model.safetensors", {"format": "pt"})
    adapter = torch.load(args.work / "adapter.pt", map_location="cpu", weights_only=False)
    (out / "lora").mkdir(exist_ok=True)
    state = {f"transformer.{name}.lora_{k}.weight": w.to(torch.bfloat16).contiguous() for name, pair in adapter.items() for k, w in zip("AB", pair)}
    save_file(state, out / "lora/blueprint.safetensors", {"format": "pt"})
    log("exported", sum(f.stat().st_size for f in out.rglob("*") if f.is_file()), "bytes")


# ---- Sheets to look at -------------------------------------------------------------------------------------------------------------------------------------

def save_sheet(x, path, columns=8):
    x = to_bytes(x).permute(0, 2, 3, 1).cpu().numpy()
    Image.fromarray(numpy.concatenate([numpy.concatenate(x[r : r + columns], 1) for r in range(0, len(x), columns)], 0)).save(path)


def sheet(args, vae, tokenizer, name, adapter=False):
    """A contact sheet of held-out prompts; rebuilt pictures in a second one."""
    transformer, encoder = load_transformer(args)
    if adapter:
        with_adapter(transformer, torch.load(args.work / "adapter.pt", map_location=DEVICE, weights_only=False))
    batch = scenes(random.Random(77), 16 if adapter else 40, True)
    texts = [caption(s, random.Random(0), True) for s in batch]
    with half_precision():
        save_sheet(generate(transformer, encoder, vae, tokenizer, texts), args.work / f"{name}.png")
        (args.work / f"{name}.txt").write_text("\n".join(texts) + "\n")
        if not adapter:
            x = render(batch[:8], 256, 256, DEVICE)
            with torch.no_grad():
                y = ((vae.decoder(vae.encode(x * 2 - 1)[0]).float() + 1) / 2).clamp(0, 1)
            save_sheet(torch.cat((x, y)), args.work / "rebuilt.png")


# ---- Judgement -----------------------------------------------------------------------------------------------------------------------------------------------

def read_one(task):
    """For worker processes."""
    torch.set_num_threads(1)
    if "reader" not in tokens.LOADED:
        tokens.LOADED["reader"] = check.Reader()
    picture, scene = task
    return check.faults(scene, tokens.LOADED["reader"].read(picture.astype(numpy.float32) / 255, scene["background"], scene["style"]))


def prepare_reader(key):
    torch.set_num_threads(1)
    tokens.LOADED.setdefault("reader", check.Reader()).template(*key)


@torch.no_grad()
def judge(args, vae, tokenizer):
    """Held-out prompts and prompts.txt by the reference sampler, read by check.py: the table, the faults, and sheets. The library's own pictures are judged by judge.py."""
    out, begin = args.judge, time.time()
    out.mkdir(parents=True, exist_ok=True)
    transformer, encoder = load_transformer(args)
    for p in [*transformer.parameters(), *encoder.parameters()]:
        p.copy_(p.to(torch.bfloat16).float())
    entries = [(row, caption(s, random.Random(0), True), s) for row in check.ROWS if row not in ("empty", "newcomer") for s in check.held_out_scenes(args.judge_count, 21, row)]
    entries += [("newcomer", text, scene) for text, scene in check.newcomer_prompts()[: args.judge_prompts]]
    pictures = []
    with half_precision():
        for at in range(0, len(entries), 256):
            pictures.append(to_bytes(generate(transformer, encoder, vae, tokenizer, [e[1] for e in entries[at : at + 256]], seed=1000 + at)))
    pictures = torch.cat(pictures).permute(0, 2, 3, 1).numpy()
    log(f"judge: {len(entries)} pictures in {time.time() - begin:.0f} s")
    results = [(row, scene, f) for (row, _, scene), f in zip(entries, args.workers.map(read_one, [(x, e[2]) for x, e in zip(pictures, entries)], chunksize=8))]
    lines = [*check.table(results), "", "faults: " + check.explain(results), ""]
    wrong = [k for k, r in enumerate(results) if r[2]]
    lines += [f"{k} {row_fault[0]}: {', '.join(row_fault[2])}: {entries[k][1]}" for k, row_fault in ((k, results[k]) for k in wrong)]
    (out / "judge.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines[: len(lines) - len(wrong)]), flush=True)
    for name, chosen in (("wrong", wrong), ("newcomer", [k for k, e in enumerate(entries) if e[0] == "newcomer"])):
        x = [Image.fromarray(pictures[k]).resize((160, 160), Image.LANCZOS) for k in chosen]
        sheet_of = Image.new("RGB", (10 * 160, -(-max(len(x), 1) // 10) * 160), "white")
        for k, picture in enumerate(x):
            sheet_of.paste(picture, (k % 10 * 160, k // 10 * 160))
        sheet_of.save(out / f"{name}.jpg", quality=90)
    log(f"judge done in {time.time() - begin:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the training's state")
    parser.add_argument("--export", type=Path, help="folder to write the checkpoint to")
    parser.add_argument("--judge", type=Path, help="folder for the judgement of the result")
    parser.add_argument("--judge-count", type=int, default=120, help="held-out prompts of each kind")
    parser.add_argument("--judge-prompts", type=int, default=1000, help="prompts of prompts.txt at most")
    parser.add_argument("--vae", type=Path, help="checkpoint whose VAE is taken; with --steps-vae above 0 it learns on from there")
    parser.add_argument("--start", type=Path, help="checkpoint whose transformer and text encoder the training begins with")
    parser.add_argument("--until-seconds", type=float, help="write the state and end, with status 3, after so long")
    parser.add_argument("--adapter-seconds", type=float, default=90, help="the adapter's stage cannot be cut: it begins only if so much time is left")
    parser.add_argument("--pool", type=int, default=32768, help="pictures that the VAE learns from")
    parser.add_argument("--steps-vae", type=int, help="default: 3000, or 900 after --vae")
    parser.add_argument("--batch-vae", type=int, default=32)
    parser.add_argument("--latents", type=int, default=160000, help="pictures that the transformer learns from")
    parser.add_argument("--captions", type=int, default=12, help="captions of each picture")
    parser.add_argument("--steps-transformer", type=int, default=16500)
    parser.add_argument("--minutes-transformer", type=float, help="make it fewer steps if they would take longer, by the speed of the first ones")
    parser.add_argument("--steps-few", type=int, default=1000)
    parser.add_argument("--steps-adapter", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=512, help="256x256 pictures per step; fewer of the larger sizes")
    parser.add_argument("--rate", type=float, default=2e-3, help="AdamW, of all but the matrices")
    parser.add_argument("--rate-muon", type=float, default=8e-3)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    args.steps_vae = (900 if args.vae else 3000) if args.steps_vae is None else args.steps_vae
    args.clock = Clock(args.until_seconds)
    args.workers = WORKERS[0] = multiprocessing.get_context("fork").Pool(max(1, len(os.sched_getaffinity(0)) - 1), signal.signal, (signal.SIGTERM, signal.SIG_DFL))  # before the GPU is used
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
    tokenizer = tokens.load(args.work / "tokenizer") if (args.work / "tokenizer").exists() else tokens.train(args.work / "tokenizer")
    log("vocabulary", tokenizer.get_vocab_size())
    train_vae(args)
    vae = load_vae(args)
    train_transformer(args, vae, tokenizer)
    train_few_steps(args, vae, tokenizer)
    sheet(args, vae, tokenizer, "sheet")
    train_adapter(args, vae, tokenizer)
    sheet(args, vae, tokenizer, "blueprint", True)
    if args.export:
        export(args)
    if args.judge:
        judge(args, vae, tokenizer)


if __name__ == "__main__":
    main()
