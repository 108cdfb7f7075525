"""Trains the demo model's control net for outlines on one GPU: its stream of blocks and projections alone, the model itself stays as it is.

    python3 control_train.py --work DIR [--model FOLDER] [--start NET] [--export FILE] [--judge FILE] [--until-seconds N]

The state is DIR/control_state.pt, below 16 MiB. After N seconds or SIGTERM it is written and the program ends with status 3; the same command goes on from there, with scenes that it makes anew.
All randomness comes from --seed. Needs torch, tokenizers, safetensors, numpy, Pillow; without a GPU it runs, for hours.

    free scenes --> pictures --> VAE --> latents ------------------------+--> flow matching at the eight sigmas that the model walks,
      (control_pictures.py)                                              |    and between them, at strengths about 0.8
                --> rough drawings --> VAE --> latents --> control net --+
"""

import argparse
import copy
import math
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import control_judge
import nets
import tokens
import train
from control_pictures import drawings, free_scene
from pictures import render
from train import DEVICE, SCALE, SHIFT, Clock, Ema, Muon, Speed, half_precision, learning_rate, log, random_state, save_state, set_random_state, shifted
from world import is_held_out, sample_scene

# height, width: share of the training pictures
SIZES = {(256, 256): 0.70, (192, 192): 0.10, (320, 320): 0.05, (256, 384): 0.05, (384, 256): 0.05, (192, 320): 0.025, (320, 192): 0.025}
CAPTIONS, DRAWINGS = 4, 3  # of each picture
STATE_LIMIT = 16 * 2**20


# ---- Data -----------------------------------------------------------------------------------------------------------------------------------

def training_scene(rng, few):
    """Two in three lie anywhere, the others where the model's own scenes have them, and then their words may say so. Held-out combinations are left out, as in the model's training."""
    while True:
        scene = free_scene(rng) if rng.random() < 0.67 else sample_scene(rng)
        if not is_held_out(scene) and (few == 1 or len(scene["things"]) > 2 or rng.random() < few):
            return scene


@torch.no_grad()
def latents_of(encoder, pictures):
    """[n, 3, h, w] in [0, 1] -> the posterior's mean, scaled, bf16."""
    out = []
    for part in (pictures * 2 - 1).to(next(encoder.parameters()).dtype).split(128):
        mean = encoder.encode(part.contiguous(memory_format=torch.channels_last))[0]
        out.append(((mean.float() - SHIFT) * SCALE).to(torch.bfloat16).contiguous())
    return torch.cat(out)


@torch.no_grad()
def make_data(args, vae, seed):
    """{size: (latents [n, 16, h, w], latents of drawings [n, DRAWINGS, 16, h, w], weights [n, 1, h, w])} on the GPU, and the captions as a CaptionCache. Worker processes say the scenes' words."""
    rng, begin, done = random.Random(seed), time.time(), 0
    encoder, parts, jobs = copy.deepcopy(vae).to(torch.bfloat16 if DEVICE == "cuda" else torch.float32), {size: [] for size in SIZES}, {size: [] for size in SIZES}
    while done < args.pictures:
        size = rng.choices(list(SIZES), list(SIZES.values()))[0]
        batch = [training_scene(rng, args.few) for _ in range(min(args.chunk * 65536 // (size[0] * size[1]), args.pictures - done))]
        jobs[size].append(args.workers.apply_async(tokens.encode_scenes, ((args.model / "tokenizer", batch, seed + done, CAPTIONS),)))
        z = latents_of(encoder, render(batch, *size, DEVICE))
        rough = [drawings(batch, *size, DEVICE, True, seed + done + k, args.whole) for k in range(DRAWINGS)]
        clean = drawings(batch, *size, DEVICE)
        rough[0] = torch.where(torch.rand(len(batch), 1, 1, device=DEVICE) < args.clean, clean, rough[0])
        control = torch.stack([latents_of(encoder, r[:, None].expand(-1, 3, -1, -1)) for r in rough], 1)
        lines = F.max_pool2d(F.max_pool2d(clean[:, None], 8), 3, 1, 1)
        parts[size].append((z, control, (1 + 1.5 * lines).to(torch.bfloat16)))
        done += len(batch)
    data, words = {}, {}
    for size in SIZES:
        if parts[size]:
            data[size] = tuple(torch.cat(p) for p in zip(*parts.pop(size)))
            words[size] = (None, *(torch.from_numpy(numpy.concatenate(a)).to(DEVICE) for a in zip(*(job.get() for job in jobs[size]))))
    log(f"data: {done} pictures, {DRAWINGS * done} drawings, {CAPTIONS * done} captions in {time.time() - begin:.0f} s; deviation of the latents "
        f"{next(iter(data.values()))[0].float().std():.3f}, of the drawings' {next(iter(data.values()))[1].float().std():.3f}")
    return data, train.CaptionCache(args.tokenizer, words, CAPTIONS)


# ---- The net ----------------------------------------------------------------------------------------------------------------------------------

def load_model(folder):
    """Transformer, text encoder and VAE of a checkpoint, frozen."""
    transformer, encoder, vae = nets.Transformer(), nets.TextEncoder(640), nets.Autoencoder()
    for net, name in ((transformer, "transformer/diffusion_pytorch_model"), (encoder, "text_encoder/model"), (vae, "vae/diffusion_pytorch_model")):
        net.load_state_dict({k: w.float() for k, w in load_file(folder / f"{name}.safetensors").items()})
        net.to(DEVICE).eval().requires_grad_(False)
    return transformer, encoder, vae.to(memory_format=torch.channels_last)


def new_net(transformer):
    """The embedder reads the picture's 64 columns; those of mask and masked picture are zero and never learn."""
    net = nets.ControlNet()
    for name, p in net.named_parameters():
        if name.endswith("_proj.weight") or "embedder" in name and p.dim() == 2:
            torch.nn.init.normal_(p, std=0.5 / math.sqrt(p.shape[1]))
        elif name.endswith("bias"):
            torch.nn.init.zeros_(p)
    net.start_from(transformer)
    with torch.no_grad():
        weight = net.control_all_x_embedder["2-1"].weight.view(-1, 4, 33)
        weight.mul_(1.4)[:, :, 16:] = 0
    return net.to(DEVICE)


def export(net, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: w.detach().to(torch.bfloat16).contiguous().cpu() for name, w in net.state_dict().items()}
    save_file(state, path, {"format": "pt"})
    log(f"exported {path}: {path.stat().st_size} bytes")


def is_matrix(name, p):
    """Of the blocks, for Muon."""
    return p.dim() == 2 and (".attention." in name or ".feed_forward." in name or "_proj." in name)


def halved(state):
    """Moments in half the bytes: they are running means."""
    return {k: halved(v) if isinstance(v, dict) else v.to(torch.bfloat16) if torch.is_tensor(v) and v.numel() > 1 else v for k, v in state.items()}


# ---- Training -----------------------------------------------------------------------------------------------------------------------------------

def sample_sigma(count):
    """Mostly where eight steps evaluate the model, the first two of these more often; else anywhere on the schedule, for other numbers of steps."""
    k = torch.multinomial(torch.tensor([1.6, 1.3, 1, 1, 1, 1, 1, 1], device=DEVICE), count, True)
    u = torch.where(torch.rand(count, device=DEVICE) < 0.8, 1 - k / 8, 0.06 + 0.94 * torch.rand(count, device=DEVICE))
    return shifted(u)[:, None, None, None]


def control_loss(args, net, cache, data, rng):
    transformer, encoder = args.transformer, args.encoder
    size, ids, lengths, scene = cache.draw(rng, args.batch * 256)
    z, drawn, weight = (d[scene] for d in data[size])
    z, count = z.float(), len(scene)
    drawn = drawn[torch.arange(count, device=DEVICE), torch.randint(DRAWINGS, (count,), device=DEVICE)]
    planes = torch.cat((drawn, torch.zeros(count, 17, *drawn.shape[2:], device=DEVICE, dtype=drawn.dtype)), 1).float()
    strength = 0.6 + 0.45 * torch.rand(count, 1, 1, device=DEVICE)
    sigma, noise = sample_sigma(count), torch.randn_like(z)
    is_token = torch.arange(ids.shape[1], device=DEVICE)[None] < lengths[:, None]
    with torch.no_grad():
        features = encoder(ids)
    x = sigma * noise + (1 - sigma) * z
    out = transformer(x, 1 - sigma.flatten(), features, is_token, nets.Control(net, planes, strength)).float()
    return ((out - (z - noise)).square() * weight.float()).mean()


def train_net(args, net):
    """-> the averaged weights, and whether training has ended."""
    path = args.work / "control_state.pt"
    named = list(net.named_parameters())
    matrices, others = [p for n, p in named if is_matrix(n, p)], [p for n, p in named if not is_matrix(n, p)]
    optimiser, muon, ema = torch.optim.AdamW(others, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0, fused=True), Muon(matrices, decay=0.01), Ema([net], 0.998)
    parts = dict(net=net, ema=ema.nets[0], optimiser=optimiser, muon=muon)
    step, steps, mean, rng, pieces = 0, args.steps, None, random.Random(args.seed + 9), 0
    if path.exists():
        state = torch.load(path, map_location=DEVICE, weights_only=False)
        for key, part in parts.items():
            part.load_state_dict(state[key])
        step, steps, mean, pieces = (state[key] for key in ("step", "steps", "mean", "pieces"))
        if step >= steps:
            steps += args.more_steps
        log(f"piece {pieces + 1} goes on at step {step} of {steps}")
        if step >= steps:
            return ema.nets[0], True
    data, cache = make_data(args, args.vae, args.seed * 1000003 + 7 + pieces)
    if path.exists():
        set_random_state(rng, state["random"])
    else:
        torch.manual_seed(args.seed + 10)
    if args.compile:
        args.transformer.compile_blocks(), net.compile_blocks(), args.encoder.compile_layers()
    control_judge.prepare(args.workers)  # the checker's templates, while the GPU trains
    speed, measured, saved, first = Speed(step), None, time.time(), step

    def save():
        save_state(path, dict(net=net.state_dict(), ema=ema.nets[0].state_dict(), optimiser=halved(optimiser.state_dict()), muon=halved(muon.state_dict()), step=step, steps=steps, mean=mean,
                              pieces=pieces + 1, random=random_state(rng)))
        assert path.stat().st_size < STATE_LIMIT, "the state is too large"

    while step < steps:
        with half_precision():
            loss = control_loss(args, net, cache, data, rng)
        for p in net.parameters():
            p.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(args.rate, step, steps, 200)
        optimiser.step()
        muon.step(learning_rate(args.rate_muon, step, steps, 200))
        ema.update([net], step)
        if step % 10 == 0:
            mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % args.log_steps == 0:
            log(f"control {step}/{steps} loss {mean:.4f} {speed(step)}")
        step += 1
        if args.fit and step == first + 500:
            measured = time.time()
        if measured and step == first + 900:  # early: in a first piece the learning rate is still level, in others it falls a little when its end comes nearer
            left = args.clock.end - args.after_seconds - time.time()
            steps = max(first + 2000, min(steps, step + int(400 / (time.time() - measured) * left)))
            log(f"control: {steps - first} steps fit into this piece ({'--more-steps' if pieces else '--steps'} {steps - first} repeats this run)")
        if time.time() - saved > 60:
            saved = time.time()
            save()
        if args.clock.over(args.after_seconds if step < steps else 0):
            break
    save()
    log(f"control: step {step} of {steps}, loss {mean:.4f}")
    return ema.nets[0], step >= steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the training's state")
    parser.add_argument("--model", type=Path, default=Path(__file__).resolve().parent.parent, help="the demo model")
    parser.add_argument("--start", type=Path, help="an exported net to begin with, where --work has no state; give another --seed")
    parser.add_argument("--export", type=Path, help="file to write the net to, finished or not")
    parser.add_argument("--judge", type=Path, help="file for the judgement of the net, finished or not; a sheet of pictures goes beside it")
    parser.add_argument("--judge-count", type=int, default=400, help="layouts")
    parser.add_argument("--until-seconds", type=float, help="end, with status 3 unless all is done, after so long")
    parser.add_argument("--after-seconds", type=float, default=75, help="kept for export and judgement at the end of --until-seconds")
    parser.add_argument("--fit", action="store_true", help="make it fewer steps if more would not fit into --until-seconds")
    parser.add_argument("--pictures", type=int, default=49152)
    parser.add_argument("--chunk", type=int, default=1024, help="256x256 pictures painted at a time")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--more-steps", type=int, default=0, help="of a state whose training has ended")
    parser.add_argument("--whole", type=float, default=0.95, help="the chance that a rough drawing has a thing of several")
    parser.add_argument("--few", type=float, default=1.0, help="the chance that a scene of one or two things is kept; all of three to five are")
    parser.add_argument("--clean", type=float, default=0.6, help="the chance that the first of a picture's drawings is clean")
    parser.add_argument("--batch", type=int, default=512, help="256x256 pictures per step; fewer of the larger sizes")
    parser.add_argument("--rate", type=float, default=1e-3, help="AdamW, of all but the matrices")
    parser.add_argument("--rate-muon", type=float, default=4e-3)
    parser.add_argument("--log-steps", type=int, default=250)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    args.clock = Clock(args.until_seconds)
    args.workers = train.WORKERS[0] = multiprocessing.get_context("fork").Pool(max(1, len(os.sched_getaffinity(0)) - 1), signal.signal, (signal.SIGTERM, signal.SIG_DFL))  # before the GPU is used
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
    torch.manual_seed(args.seed)
    args.tokenizer = tokens.load(args.model / "tokenizer")
    args.transformer, args.encoder, args.vae = load_model(args.model)
    net = new_net(args.transformer)
    if args.start:
        net.load_state_dict({k: w.float() for k, w in load_file(args.start).items()})
    net, is_done = train_net(args, net)
    net = copy.deepcopy(net)
    if args.export:
        export(net, args.export)
    if args.judge:
        control_judge.judge_torch(args, net)
    if not is_done:
        args.clock.end_now("before its last step")


if __name__ == "__main__":
    main()
