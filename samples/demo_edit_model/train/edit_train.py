"""Trains the demo edit model on a GPU or on several, from nothing, and writes it in the released layout.

    python3 edit_train.py --work DIR [--export FOLDER] [--until-seconds N] [--trial SECONDS]
    python3 -m torch.distributed.run --standalone --nproc-per-node 3 edit_train.py ...        a process for each GPU

    pictures --> VAE --> latents of pairs, instructions --> transformer, language model, vision tower --> Turbo adapter --> export, judgement
    (edit_pictures.py)   (kept on the GPU and in DIR)       (flow matching: 0, 1 or 2 references)         (4 steps, no guidance)

Every stage keeps its state in DIR. --until-seconds, or SIGTERM, ends the process in good time with the status 75; the same command goes on where it was: what a step draws depends on the seed
and the number of the step alone. With several GPUs each has pictures of its own and draws batches of the same shape from them; gradients are averaged. --trial runs every stage for that many seconds and prints seconds per step. Needs torch, tokenizers, safetensors, numpy, Pillow."""

import argparse
import copy
import datetime
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
import torch.distributed as distributed
import torch.nn.functional as F

import edit_export
import edit_nets
import edit_tokens
import edit_world
from edit_command import GUIDANCE, STEPS
from edit_pictures import paint
from pictures import render
from train import Ema, Muon, learning_rate, save_sheet, to_bytes
from train import log as say
from world import COLOURS, OBJECTS, STYLES, caption

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROCESS, PROCESSES = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))  # each has a GPU
BEGAN = time.time()
UNFINISHED = 75  # exit status

# Linear preview factors of the Wan latent space, which is Qwen-Image's (rows: channels, columns: R G B): the demo VAE is trained so that they hold for it too.
PREVIEW = torch.tensor([
    [-0.1299, -0.1692, 0.2932], [0.0671, 0.0406, 0.0442], [0.3568, 0.2548, 0.1747], [0.0372, 0.2344, 0.1420], [0.0313, 0.0189, -0.0328], [0.0296, -0.0956, -0.0665],
    [-0.3477, -0.4059, -0.2925], [0.0166, 0.1902, 0.1975], [-0.0412, 0.0267, -0.1364], [-0.1293, 0.0740, 0.1636], [0.0680, 0.3019, 0.1128], [0.0032, 0.0581, 0.0639],
    [-0.1251, 0.0927, 0.1699], [0.0060, -0.0633, 0.0005], [0.3477, 0.2275, 0.2950], [0.1984, 0.0913, 0.1861]])
PREVIEW_BIAS = torch.tensor([-0.1835, -0.0868, -0.3360])

SIZES = {(256, 256): 0.86, (192, 320): 0.07, (320, 192): 0.07}  # height, width: share. Each is what the library makes of a reference of its shape in the area of 256 x 256
SMALL, SMALL_SHARE = (160, 160), 0.5  # where the flow begins: with the same work for a step it sees twice as many pairs. The share is of the pairs painted beside those of SIZES
RARE = 0.03, 0.006  # texts of a length that a smaller share of them has are left out, for each length costs a second for its graph; in pictures of 256 x 256 the second number counts
SHARES = {"text": 0.18, "one": 0.54, "two": 0.28}  # of the training's steps: no reference, one, two
MEASURED = 2000, 2600  # steps by which --minutes-flow sees how many fit; most shapes have their graphs by then
BATCH = 1024  # scenes or pairs that are composed and painted together
EMPTY = 0.08  # share of steps whose instruction is the negative prompt's single space, for guidance
RANK = 8
GUIDANCE_TURBO = 3.0  # of the Turbo adapter's teacher


# ---- Time ----------------------------------------------------------------------------------------------------------------------------------------

class Unfinished(Exception):
    pass


class Clock:
    """When to stop: after the seconds that were given, or when asked to by a signal."""

    def __init__(self, seconds):
        self.end, self.asked = BEGAN + seconds if seconds else math.inf, False
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, *_):
        self.asked = True

    def is_over(self, margin=0):
        return self.asked or time.time() > self.end - margin


def log(text):
    if PROCESS == 0:
        say(text)


def join():
    """Begins to work with the other processes, if there are any."""
    if PROCESSES == 1:
        return
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo", timeout=datetime.timedelta(minutes=30))


def told(value):
    """The first process's value, for all."""
    box = [value]
    if PROCESSES > 1:
        distributed.broadcast_object_list(box, 0)
    return box[0]


def alone_first(work):
    """Runs `work` in the first process while the others wait. What it raises there is raised by all."""
    trouble = None
    if PROCESS == 0:
        try:
            work()
        except Unfinished as unfinished:
            trouble = unfinished
    trouble = told(trouble)
    if trouble:
        raise trouble


class Gradients:
    """All gradients in one piece of memory: one sum over the processes serves for all of them. What a batch does not reach, as the vision tower without a reference, keeps zeros."""

    def __init__(self, parameters):
        self.whole, at = torch.zeros(sum(p.numel() for p in parameters), device=DEVICE), 0
        for p in parameters:
            p.grad = self.whole[at : at + p.numel()].view_as(p)
            at += p.numel()

    def average(self):
        if PROCESSES > 1:
            distributed.all_reduce(self.whole)
            self.whole /= PROCESSES


def agree(parameters):
    """The first process's parameters, for all: each has computed the same, but for what a GPU may sum in another order."""
    for p in parameters if PROCESSES > 1 else []:
        distributed.broadcast(p.data, 0)


class Pace:
    """Seconds of the first steps, which compile, and per step after them; says whether a trial of the stage is over."""

    def __init__(self, args, name, warm=60):
        self.args, self.name, self.warm, self.count, self.begin, self.steady, self.shown = args, name, min(warm, args.warm) if args.trial else 1, 0, time.time(), None, time.time()
        self.shown_count = 0

    def step(self):
        self.count += 1
        if self.count == self.warm:
            self.wait()
            self.steady = time.time()
        return self.args.trial and self.steady and self.count % 10 == 0 and time.time() - self.steady > self.args.trial

    def wait(self):
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    def rate(self):
        seconds, count = time.time() - self.shown, self.count - self.shown_count
        self.shown, self.shown_count = time.time(), self.count
        return f"{1000 * seconds / max(count, 1):.1f} ms/step"

    def end(self):
        self.wait()
        if self.args.trial and self.steady:
            steps = max(1, self.count - self.warm)
            self.args.report.append((self.name, f"{self.steady - self.begin:.1f} s for the first {self.warm} steps", (time.time() - self.steady) / steps))


def half_precision():
    return torch.autocast(DEVICE, torch.bfloat16)


def seeded(*numbers):
    """A generator on the device for this step of this stage."""
    value = 0
    for n in numbers:
        value = (value * 1000003 + n) % (1 << 62)
    return torch.Generator(device=DEVICE).manual_seed(value)


def save(state, path, is_own=False):
    """is_own: every process writes its own file; otherwise the first one writes for all."""
    if PROCESS > 0 and not is_own:
        return
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


class Captured:
    """Runs a function of tensors as one CUDA graph for each shape of its inputs. A step is thousands of launches, which take a processor three times as long as the GPU needs for the work.

    The function leaves what it computes in tensors that stay (gradients, a loss). The first call with a shape runs it as it is, which compiles; the second one captures. Inputs are copied into memory
    that all shapes share; so is the graphs' own memory, since they run one after another."""

    BYTES = 256 << 20  # of the largest input

    def __init__(self, function, enabled):
        self.function, self.enabled, self.graphs, self.places = function, enabled and DEVICE == "cuda", {}, []
        if self.enabled:
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def place(self, k, x):
        while len(self.places) <= k:
            self.places.append(torch.empty(self.BYTES, dtype=torch.uint8, device=DEVICE))
        size = x.numel() * x.element_size()
        return self.places[k][:size].view(x.dtype).view(x.shape)

    def __call__(self, *inputs):
        key = tuple((tuple(x.shape), x.dtype) for x in inputs)
        if not self.enabled or key not in self.graphs:
            self.graphs[key] = None
            return self.function(*inputs)
        places = [self.place(k, x) for k, x in enumerate(inputs)]
        for place, x in zip(places, inputs):
            place.copy_(x)
        if self.graphs[key] is None:
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.stream(self.stream):
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")  # a thread that watches over the processes asks for events
                try:
                    self.function(*places)
                finally:
                    graph.capture_end()
            torch.cuda.synchronize()
            self.graphs[key] = graph
        self.graphs[key].replay()

    def captured(self):
        return sum(g is not None for g in self.graphs.values())


# ---- VAE ------------------------------------------------------------------------------------------------------------------------------------------

@torch.no_grad()
def picture_pool(count, seed):
    """[count, 3, 256, 256] uint8: scenes and pairs, some in other colours so that the VAE knows more than its world."""
    rng, begin, at, step = random.Random(seed), time.time(), 0, 256
    pool = torch.empty(count, 3, 256, 256, dtype=torch.uint8, device=DEVICE)
    while at < count:
        if rng.random() < 0.3:
            x = render(edit_world.drawing_scenes(rng, step), 256, 256, DEVICE)
        else:
            x = torch.cat(paint(edit_world.pairs(rng, step), 256, 256, DEVICE)[:2])
        if rng.random() < 0.12:
            x = x[:, rng.sample(range(3), 3)]
            x = 1 - x if rng.random() < 0.5 else x
        x = to_bytes(x[: count - at])
        pool[at : at + len(x)] = x
        at += len(x)
    log(f"pool: {count} pictures, {count / (time.time() - begin):.0f}/s")
    return pool


def vae_loss(vae, x, noise, strength, factors, bias):
    mean, logvar = vae.encode(x)
    y = vae.decode(mean + strength * torch.exp(0.5 * logvar) * noise)
    x, y, mean, logvar = x.float(), y.float(), mean.float(), logvar.float()
    preview = torch.einsum("bchw,cr->brhw", mean, factors) + bias
    difference = y - x
    edge = difference.diff(dim=-1).abs().mean() + difference.diff(dim=-2).abs().mean()
    preview_error = ((preview - F.avg_pool2d(x, 8)) ** 2).mean()
    spread = mean.var((0, 2, 3)) + 1e-6
    unit = spread.mean().log() ** 2 + 0.1 * (spread.log().abs() - 0.7).clamp(min=0).square().mean() + mean.mean((0, 2, 3)).square().mean()
    fixed = ((logvar + 3.5) ** 2).mean()  # the posterior's noise keeps the space smooth and the decoder forgiving
    square = (difference ** 2).mean()
    loss = difference.abs().mean() + edge + 4 * square + 0.3 * preview_error + 0.1 * unit + 1e-3 * fixed
    return loss, torch.stack([square, edge, preview_error, spread.min(), spread.max()]).detach()


@torch.no_grad()
def vae_psnr(vae, count=64):
    """Mean over held-out pictures, of 8-bit pictures."""
    rng, errors = random.Random(5), []
    for _ in range(0, count, 32):
        before, after, _ = paint(edit_world.pairs(rng, 16, held_out=True), 256, 256, DEVICE)
        x = to_bytes(torch.cat((before, after))).float() / 127.5 - 1
        y = ((vae.decode(vae.encode(x)[0]).float().clamp(-1, 1) + 1) * 127.5).round() / 127.5 - 1
        errors.append((((x - y) / 2) ** 2).mean((1, 2, 3)))
    return (-10 * torch.log10(torch.cat(errors))).mean().item()


def train_vae(args, clock):
    path, steps = args.work / "vae.pt", args.steps_vae
    torch.manual_seed(args.seed)
    vae = edit_nets.Autoencoder().to(DEVICE).to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(vae.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=1e-4, fused=DEVICE == "cuda")
    ema, step = Ema([vae], 0.998), 0
    if path.exists():
        state = torch.load(path, map_location=DEVICE, weights_only=False)
        if state["done"]:
            return
        vae.load_state_dict(state["vae"]), ema.nets[0].load_state_dict(state["ema"]), optimiser.load_state_dict(state["optimiser"])
        step = state["step"]
    pool, pace, over = picture_pool(args.pool, args.seed), Pace(args, "vae"), False
    factors, bias = PREVIEW.to(DEVICE), PREVIEW_BIAS.to(DEVICE)[:, None, None]
    loss_function = torch.compile(vae_loss, dynamic=False) if args.compile else vae_loss
    while step < steps and not over:
        draw, count = seeded(args.seed, 1, step), args.batch_vae
        x = pool[torch.randint(len(pool), (count,), device=DEVICE, generator=draw)]
        x = (x.float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)
        noise = torch.randn(count, edit_nets.VAE["channels"], x.shape[2] // 8, x.shape[3] // 8, device=DEVICE, generator=draw)
        strength = torch.rand(count, 1, 1, 1, device=DEVICE, generator=draw)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(args.rate_vae, step, steps, min(200, 1 + steps // 5))
        with half_precision():
            loss, parts = loss_function(vae, x, noise, strength, factors, bias)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 0.5)
        optimiser.step()
        ema.update([vae], step)
        over = pace.step()
        if step % args.log_every == 0:
            square, edge, preview, low, high = parts.tolist()
            log(f"vae {step}/{steps} error {-10 * math.log10(square / 4):.2f} dB edge {edge:.4f} preview {preview:.4f} spread {low:.2f}..{high:.2f} {pace.rate()}")
        step += 1
        if clock.is_over(10):
            break
    pace.end()
    done = step >= steps or bool(args.trial)
    save(dict(vae=vae.state_dict(), ema=ema.nets[0].state_dict(), optimiser=optimiser.state_dict(), step=step, done=done), path)
    if not done:
        raise Unfinished
    log(f"vae done: {step} steps, PSNR on held-out pictures {vae_psnr(ema.nets[0]):.2f} dB")


def load_vae(args):
    vae = edit_nets.Autoencoder().to(DEVICE).eval().requires_grad_(False).to(memory_format=torch.channels_last)
    vae.load_state_dict(torch.load(args.work / "vae.pt", map_location=DEVICE, weights_only=False)["ema"])
    return vae


# ---- What is where --------------------------------------------------------------------------------------------------------------------------------

WHAT, NO_COLOUR = len(OBJECTS) + len(edit_world.BACKGROUNDS), len(COLOURS)


def map_of(scene, height, width, spoken=()):
    """Of each token of a picture: its thing or else its background; its colour and the style; whether it belongs to a thing whose id is in `spoken`. An array [3, tokens] of uint8."""
    high, wide, side, colours = height // 16, width // 16, min(height, width), list(COLOURS)
    style = STYLES.index(scene["style"])
    out = numpy.zeros((3, high, wide), numpy.uint8)
    out[0], out[1] = len(OBJECTS) + edit_world.BACKGROUNDS.index(scene["background"]), 3 * NO_COLOUR + style
    for t in scene["things"]:
        reach, x, y = 0.9 * t["half"] * side / 16, t["x"] * wide - 0.5, t["y"] * high - 0.5
        rows, columns = (slice(max(0, math.ceil(at - reach)), max(0, math.floor(at + reach) + 1)) for at in (y, x))
        out[0, rows, columns], out[1, rows, columns] = OBJECTS.index(t["object"]), 3 * colours.index(t["colour"]) + style
        out[2, rows, columns] = t.get("id") in spoken
    return out.reshape(3, -1)


def weighted_mean(loss, weight):
    return (loss * weight).sum() / (weight.sum() + 1)


class Probe(torch.nn.Module):
    """Says from the stream of a block what is where. It is no part of the model: in training it teaches the blocks early to see which thing the words speak of, and where which thing is to be."""

    def __init__(self, width):
        super().__init__()
        self.heads = torch.nn.Linear(width, WHAT + NO_COLOUR + len(STYLES))

    def forward(self, stream, maps):
        """stream [B, T, width], maps [B, 3, T] -> how wrong it is; things count as much as what lies between them."""
        what, colour, style = self.heads(edit_nets.layer_norm(stream)).float().flatten(0, 1).split((WHAT, NO_COLOUR, len(STYLES)), 1)
        thing, look = maps[:, 0].flatten().long(), maps[:, 1].flatten().long()
        is_thing = (look < 3 * NO_COLOUR).float()
        loss = F.cross_entropy(what, thing, reduction="none")
        return (weighted_mean(loss, is_thing) + weighted_mean(loss, 1 - is_thing) + weighted_mean(F.cross_entropy(colour, (look // 3).clamp(max=NO_COLOUR - 1), reduction="none"), is_thing)
                + 0.3 * F.cross_entropy(style, look % 3))


class SpokenOf(torch.nn.Module):
    """Says which rows belong to a thing that the instruction speaks of. No part of the model, as Probe."""

    def __init__(self, width):
        super().__init__()
        self.head = torch.nn.Linear(width, 1)

    def forward(self, stream, maps):
        answer, truth = self.head(edit_nets.layer_norm(stream)).float().flatten(), maps[:, 2].flatten().float()
        loss = F.binary_cross_entropy_with_logits(answer, truth, reduction="none")
        return weighted_mean(loss, truth) + weighted_mean(loss, 1 - truth)


# ---- Data -----------------------------------------------------------------------------------------------------------------------------------------

def seen_size(height, width):
    """Of a picture as the vision tower gets it: the area of 384 x 384 in multiples of 32, then cells of 28 within the processor's limit."""
    ratio = width / height
    w = (384 * 384 * ratio) ** 0.5
    first = round(w / ratio / 32) * 32, round(w / 32) * 32
    beta = (first[0] * first[1] / edit_nets.VISION_AREA) ** 0.5
    return tuple(int(v / beta / 28) * 28 for v in first)


def seen(x):
    """Pictures in [0, 1] as the vision tower gets them, uint8. One resizing stands for the library's two."""
    return to_bytes(F.interpolate(x, seen_size(*x.shape[2:]), mode="bicubic", antialias=True).clamp(0, 1))


@torch.no_grad()
def encoded(vae, x):
    out = []
    for part in (to_bytes(x).float() / 127.5 - 1).split(128):
        with half_precision():
            out.append(vae.encode(part.contiguous(memory_format=torch.channels_last))[0].to(torch.bfloat16).contiguous())
    return torch.cat(out)


def spliced(tokenizer, texts):
    """The texts' own tokens: the template's stand around them unchanged."""
    ids = [e.ids for e in tokenizer.encode_batch(texts)]
    for text, own in list(zip(texts, ids))[:8]:
        assert edit_tokens.encode(tokenizer, [text], [])[0][0] == tokenizer.encode(edit_tokens.BEFORE).ids + own + tokenizer.encode(edit_tokens.AFTER).ids, text
    return ids


def by_length(ids, per_scene, least):
    """{tokens: (table [n, tokens], scene [n])} of texts, `per_scene` of them for each scene; rare lengths are left out."""
    lengths = {}
    for k, own in enumerate(ids):
        lengths.setdefault(len(own), []).append(k)
    return {n: (torch.tensor([ids[k] for k in chosen], dtype=torch.int16), torch.tensor([k // per_scene for k in chosen])) for n, chosen in sorted(lengths.items()) if len(chosen) >= least}


def composed(task):
    """What data needs no GPU: (scenes or pairs, what is where in all of their pictures, texts) of a batch."""
    kind, size, number, per_scene, seed = task
    rng = random.Random(seed)
    if kind == "text":
        batch = edit_world.drawing_scenes(rng, number)
        shown = [((s, ()),) for s in batch]
        texts = [caption(s, rng) for s in batch for _ in range(per_scene)]
    else:
        batch = edit_world.pairs(rng, number, kind == "two", tokens=(size[0] // 16, size[1] // 16))
        shown = [[(p[k], edit_world.spoken_of(p, k)) for k in ("after", "before", "second") if p[k]] for p in batch]
        texts = [edit_world.instruction(p, rng) for p in batch for _ in range(per_scene)]
    return batch, numpy.stack([numpy.concatenate([map_of(s, *size, spoken) for s, spoken in scenes], 1) for scenes in shown]), texts


class Composer:
    """Processes that compose the data while the VAE is trained; to be made before the GPU is used, for they are forks."""

    def __init__(self, args):
        self.tasks, counts = [], {"text": args.scenes // PROCESSES, "one": args.pairs // PROCESSES, "two": args.pairs_two // PROCESSES}
        for kind, count in counts.items():
            for size, share in {**SIZES, SMALL: SMALL_SHARE}.items():
                number = int(count * share)
                self.tasks += [(kind, size, min(BATCH, number - at), args.texts, f"{args.seed} {PROCESS} {kind} {size} {at}") for at in range(0, number, BATCH)]
        self.pool = multiprocessing.get_context("fork").Pool(max(1, len(os.sched_getaffinity(0)) * 3 // 4), self.begin)
        self.results = self.pool.imap(composed, self.tasks)

    @staticmethod
    def begin():
        os.nice(10)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def batches(self):
        """((kind, size), batch, maps, texts) in the order of the tasks."""
        for task, result in zip(self.tasks, self.results):
            yield task[:2], *result
        self.pool.terminate()


def make_data(args, clock):
    """{(kind, size): {latents of every picture, pixels that the vision tower sees, what is where in all pictures, texts by length}}."""
    path = args.work / (f"data{PROCESS}.pt" if PROCESS else "data.pt")
    begin = time.time()
    if path.exists():
        data = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
        move = lambda v: v.to(DEVICE) if isinstance(v, torch.Tensor) else type(v)(move(i) for i in v) if isinstance(v, (list, tuple)) else {k: move(i) for k, i in v.items()} if isinstance(v, dict) else v
        data = move(data)
        log(f"data: read again in {time.time() - begin:.1f} s")
        return data
    vae, tokenizer = load_vae(args), edit_tokens.load(args.work / "tokenizer")
    parts, groups, painted = {}, {}, 0
    for key, batch, maps, texts in args.composer.batches():
        kind, size = key
        part = parts.setdefault(key, {"latents": [], "pixels": [], "maps": [], "texts": []})
        if kind == "text":
            pictures = [None, render(batch, *size, DEVICE)]
        else:
            pictures = list(paint(batch, *size, DEVICE))
            part["pixels"].append([seen(p) for k, p in enumerate(pictures) if k != 1 and p is not None])
        part["latents"].append([None if p is None else encoded(vae, p) for p in pictures])
        part["maps"].append(torch.from_numpy(maps))
        part["texts"] += texts
        painted += len(batch) * sum(p is not None for p in pictures)
        if PROCESSES == 1 and clock.is_over(10):
            raise Unfinished
    for (kind, size), part in parts.items():
        column = lambda table, k: torch.cat([row[k] for row in table]) if table and table[0][k] is not None else None
        # target; references; their pixels
        order, texts = [1] + {"text": [], "one": [0], "two": [0, 2]}[kind], part["texts"]
        groups[(kind, size)] = {"latents": [column(part["latents"], k) for k in order], "pixels": [column(part["pixels"], k) for k in range(len(order) - 1)], "maps": torch.cat(part["maps"]).to(DEVICE),
                                "texts": by_length(spliced(tokenizer, texts), args.texts, len(texts) * RARE[size == (256, 256)])}
    parts.clear()
    z = torch.cat([g["latents"][0][:2000].float().transpose(0, 1).flatten(1) for g in groups.values()], 1)
    means, deviations, data = z.mean(1), z.std(1), {"groups": groups}
    seconds = time.time() - begin
    if args.until_seconds:  # a run that will be interrupted reads it again
        save(data, path, True)
    log(f"data: {painted} pictures in {seconds:.0f} s, written in {time.time() - begin - seconds:.1f} s; channels' means {means.min():.2f}..{means.max():.2f}, deviations {deviations.min():.2f}..{deviations.max():.2f}")
    args.report.append(("data", f"{painted} pictures", seconds / painted))
    move = lambda texts: {n: (table.to(DEVICE), scene.to(DEVICE)) for n, (table, scene) in texts.items()}
    for group in groups.values():
        group["texts"] = move(group["texts"])
    return data


class Batches:
    """Draws batches of one kind, one size and one number of tokens: nothing is padded, as in the library."""

    def __init__(self, args, data, tokenizer):
        self.args, self.data = args, data
        self.pad = tokenizer.token_to_id("<|image_pad|>")
        self.before, self.after, self.space = (torch.tensor(tokenizer.encode(t).ids, device=DEVICE) for t in (edit_tokens.BEFORE, edit_tokens.AFTER, " "))
        self.picture = [tokenizer.encode(edit_tokens.PICTURE.format(k + 1)).ids for k in range(3)]
        self.rows = {}
        self.keys, self.weights = [], []
        for (kind, size), group in data["groups"].items():
            total = sum(len(t) for g, v in data["groups"].items() if g[0] == kind and (g[1] == SMALL) == (size == SMALL) for t, _ in v["texts"].values())
            for n, (table, _) in group["texts"].items():
                self.keys.append((kind, size, n))
                self.weights.append(SHARES[kind] * len(table) / total)
        if PROCESSES > 1 and self.keys:  # shapes that every process has, with the first one's shares
            lists = [None] * PROCESSES
            distributed.all_gather_object(lists, (self.keys, self.weights))
            common = set.intersection(*(set(keys) for keys, _ in lists))
            self.keys, self.weights = zip(*((k, w) for k, w in zip(*lists[0]) if k in common))

    def ids(self, own, grids):
        """own [B, T] -> ids [B, S] with the template around them, and the layout of its rows."""
        b, parts, runs, count = len(own), [self.before.expand(len(own), -1)], [], len(self.before)
        for k, (high, wide) in enumerate(grids):
            tokens = self.picture[k]
            at = tokens.index(self.pad)
            if (k, high * wide) not in self.rows:
                self.rows[(k, high * wide)] = torch.tensor(tokens[:at] + [self.pad] * (high * wide) + tokens[at + 1 :], device=DEVICE)
            parts.append(self.rows[(k, high * wide)].expand(b, -1))
            runs += [count + at, (high, wide)]
            count = len(tokens) - at - 1
        parts += [own.long(), self.after.expand(b, -1)]
        return torch.cat(parts, 1), (*runs, count + own.shape[1] + len(self.after))

    def draw(self, rng, draw, scale=1.0, small=False):
        """(target, references, own tokens [B, T], pixels, maps of target and references) of a batch of small pictures or of the others; the tokens may be the negative prompt's."""
        kind, size, n = rng.choices(self.keys, [w * ((key[1] == SMALL) == small) for key, w in zip(self.keys, self.weights)])[0]
        group = self.data["groups"][(kind, size)]
        rows = size[0] * size[1] // 256
        count = max(1, int(scale * self.args.batch * 560 / (len(group["latents"]) * rows + 43 * len(group["pixels"]) + 24)) // 8 * 8)
        table, scene = group["texts"][n]
        pick = torch.randint(len(table), (count,), device=DEVICE, generator=draw)
        scene = scene[pick]
        own = self.space.expand(count, -1) if rng.random() < EMPTY and scale == 1 else table[pick]
        latents = [z[scene].float() for z in group["latents"]]
        return latents[0], latents[1:], own, [p[scene].float() / 255 for p in group["pixels"]], group["maps"][scene]

    def features(self, encoder, own, pixels):
        ids, runs = self.ids(own, [(p.shape[2] // 28, p.shape[3] // 28) for p in pixels])
        return encoder(ids, runs, pixels, edit_tokens.DROPPED)


# ---- Transformer, language model, vision tower ---------------------------------------------------------------------------------------------------------

def shifted(u, shift=3.0):
    return shift * u / (1 + (shift - 1) * u)


def model_time(sigma):
    """As the pipeline passes a step's time on."""
    return ((1000 * sigma).to(torch.bfloat16).float() / 1000).to(torch.bfloat16).float()


def sample_sigma(count, draw):
    """Half the draws like a shifted schedule, half in the middle."""
    walked = shifted(torch.rand(count, device=DEVICE, generator=draw))
    middle = torch.sigmoid(torch.randn(count, device=DEVICE, generator=draw) + 0.4)
    return torch.where(torch.rand(count, device=DEVICE, generator=draw) < 0.5, walked, middle)


SEES, BINDS, PLANS = 1, 2, 3  # blocks behind which the references are seen, their things are bound to the words, and the image is planned


def is_small(step, steps, share):
    """Whether a step's pictures are small: in the first part of the training, of which the beginning has steps of both kinds, so that their time can be measured."""
    return step % 20 < 20 * share if step < MEASURED[1] else step < share * steps


def flow_loss(transformer, probes, features, z, references, sigma, noise, maps):
    """(flow matching's, the probes')"""
    sigma, streams, targets = sigma[:, None, None, None], [], z.shape[2] * z.shape[3] // 4
    out = transformer(sigma * noise + (1 - sigma) * z, references, sigma.flatten(), features, streams)
    error = ((out.float() - (noise - z)) ** 2).mean(1)
    loss = error.mean()
    if references and references[0].shape == z.shape:  # what the instruction changes counts as much as half of the picture, however small it is
        changed = ((z - references[0]).abs().mean(1) > 0.15).float()
        loss = loss + 0.5 * ((error * changed).sum((1, 2)) / (changed.sum((1, 2)) + 8)).mean()
    target = streams[PLANS][:, :targets], maps[:, :, :targets]
    wrong = probes["plan"](*target)
    if references:
        early, later = (streams[k][:, targets:] for k in (SEES, BINDS))
        wrong = wrong + probes["see"](early, maps[:, :, targets:]) + probes["bind"](later, maps[:, :, targets:]) + probes["edit"](*target)
    return loss, wrong


def split_parameters(*networks):
    """The matrices of the transformer's blocks, for Muon; all the rest, for AdamW."""
    matrices = [p for n in networks for name, p in n.named_parameters() if p.dim() == 2 and "transformer_blocks" in name and "_mod." not in name]
    chosen = {id(p) for p in matrices}
    return matrices, [p for n in networks for p in n.parameters() if p.requires_grad and id(p) not in chosen]


def train_flow(args, clock):
    path, steps = args.work / "flow.pt", args.steps
    torch.manual_seed(args.seed + 1)
    transformer, encoder = edit_nets.Transformer().to(DEVICE), edit_nets.TextEncoder(edit_tokens.ROWS).to(DEVICE)
    probes = torch.nn.ModuleDict({name: kind(edit_nets.TRANSFORMER["dim"]) for name, kind in (("see", Probe), ("bind", SpokenOf), ("plan", Probe), ("edit", SpokenOf))}).to(DEVICE)
    matrices, others = split_parameters(transformer, encoder, probes)
    both = [p for n in (transformer, encoder, probes) for p in n.parameters()]
    optimiser = torch.optim.AdamW(others, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=DEVICE == "cuda")
    muon, ema, step = Muon(matrices), Ema([transformer, encoder], 0.999), 0
    parts = dict(transformer=transformer, encoder=encoder, probes=probes, ema0=ema.nets[0], ema1=ema.nets[1], optimiser=optimiser, muon=muon)
    if path.exists():
        state = torch.load(path, map_location=DEVICE, weights_only=False)
        if state["done"]:
            return
        for key, part in parts.items():
            if key in state:
                part.load_state_dict(state[key])
        if "transformer" not in state:  # a snapshot
            transformer.load_state_dict(state["ema0"]), encoder.load_state_dict(state["ema1"])
        step, steps = state["step"], state.get("steps", steps)
        log(f"flow: goes on at {step}")
    data = args.data = make_data(args, clock) if args.data is None else args.data
    batches, pace, mean, over = Batches(args, data, edit_tokens.load(args.work / "tokenizer")), Pace(args, "flow", 150), None, False
    if args.compile:
        transformer.compile_blocks(), encoder.compile_blocks()
    gradients, losses = Gradients(both), torch.zeros(2, device=DEVICE)

    def learn(z, sigma, noise, own, maps, *pictures):  # references, then their pixels
        references, pixels = pictures[: len(pictures) // 2], pictures[len(pictures) // 2 :]
        gradients.whole.zero_()
        with half_precision():
            error, wrong = flow_loss(transformer, probes, batches.features(encoder, own, pixels), z, references, sigma, noise, maps)
        (error + args.probes * wrong).backward()
        losses.copy_(torch.stack((error, wrong)).detach())

    learn_step = Captured(learn, args.graphs)
    saved = began = time.time()
    measured = None
    while step < steps and not over:
        rng, draw = random.Random(args.seed * 104729 + step), seeded(args.seed, 2, step * PROCESSES + PROCESS)
        z, references, own, pixels, maps = batches.draw(rng, draw, small=is_small(step, steps, args.small))
        learn_step(z, sample_sigma(len(z), draw), torch.randn(z.shape, device=DEVICE, generator=draw), own, maps, *references, *pixels)
        gradients.average()
        torch.nn.utils.clip_grad_norm_(both, 1.0)
        if args.minutes_flow and measured and step == MEASURED[1]:
            pace.wait()
            second = (time.time() - measured) / (MEASURED[1] - MEASURED[0])
            steps = told(max(MEASURED[1] + 600, min(steps, step + int((60 * args.minutes_flow - (time.time() - began)) / second))))
            log(f"flow: {steps} steps fit into {args.minutes_flow} minutes (--steps {steps} repeats this run)")
        if step == MEASURED[0]:
            pace.wait()
            measured = time.time()
        warm_up = min(500, 1 + steps // 5)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(args.rate, step, steps, warm_up)
        optimiser.step()
        muon.step(learning_rate(args.rate_muon, step, steps, warm_up))
        ema.update([transformer, encoder], step)
        if step % 1000 == 999:
            agree(both)
        over = pace.step()
        over = told(over) if args.trial else False
        if mean is None or step % 20 == 0:
            now = losses.cpu()
            mean = now if mean is None else 0.95 * mean + 0.05 * now
        if step % (5 * args.log_every) == 0:
            log(f"flow {step}/{steps} loss {mean[0]:.4f}, probes {mean[1]:.3f} {pace.rate()}, {learn_step.captured()} graphs")
        step += 1
        if (PROCESSES == 1 or step % 20 == 0) and told(clock.is_over(8)):
            break
        if PROCESS == 0 and time.time() - saved > 120:
            saved = time.time()
            save(dict({key: part.state_dict() for key, part in parts.items()}, step=step, steps=steps, done=False), path)
    pace.end()
    done = step >= steps or bool(args.trial)
    save(dict({key: part.state_dict() for key, part in parts.items()}, step=step, steps=steps, done=done), path)
    log(f"flow: {step} steps" + ("" if mean is None else f", loss {mean[0]:.4f}, probes {mean[1]:.3f}"))
    if not done:
        raise Unfinished


def load_flow(args):
    state = torch.load(args.work / "flow.pt", map_location=DEVICE, weights_only=False)
    transformer, encoder = edit_nets.Transformer().to(DEVICE).eval(), edit_nets.TextEncoder(edit_tokens.ROWS).to(DEVICE).eval()
    transformer.load_state_dict(state["ema0"]), encoder.load_state_dict(state["ema1"])
    return transformer.requires_grad_(False), encoder.requires_grad_(False)


# ---- The Turbo adapter --------------------------------------------------------------------------------------------------------------------------------

class LowRank(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.down = torch.nn.Parameter(torch.randn(RANK, linear.in_features, device=DEVICE) / linear.in_features ** 0.5)
        self.up = torch.nn.Parameter(torch.zeros(linear.out_features, RANK, device=DEVICE))

    def forward(self, x):
        return self.linear(x) + edit_export.ALPHA / RANK * F.linear(F.linear(x, self.down), self.up)


def with_adapter(transformer, state=None):
    layers = {}
    for name in edit_export.adapted_modules(transformer):
        parent, last = transformer.get_submodule(name.rsplit(".", 1)[0]), name.rsplit(".", 1)[1]
        layers[name] = LowRank(transformer.get_submodule(name))
        if isinstance(parent, torch.nn.ModuleList):
            parent[int(last)] = layers[name]
        else:
            setattr(parent, last, layers[name])
        if state:
            layers[name].down.data, layers[name].up.data = (w.to(DEVICE) for w in state[name])
    return layers


def guided(transformer, x, references, sigma, features, empty, guidance):
    """True classifier-free guidance; each token gets the length that it has without."""
    v = transformer(x, references, model_time(sigma), features).float()
    if guidance == 1:
        return v
    away = transformer(x, references, model_time(sigma), empty).float()
    with_it, plain = edit_nets.pack(away + guidance * (v - away)), edit_nets.pack(v)
    length = plain.norm(dim=-1, keepdim=True) / with_it.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return edit_nets.unpack(with_it * length, x.shape[2] // 2, x.shape[3] // 2)


def turbo_loss(student, teacher, features, empty, z, references, begin, noise, parts=4):
    """How far one step of the student is from its teacher's guided steps over an interval of the 4-step schedule.

    sigma  1 --- . --- . --- . ---> 0.9 ---        teacher: four guided Euler steps an interval
           1 ---------------------> 0.9 ---        student: their mean velocity, asked for at the interval's beginning
    """
    sigma = lambda u: shifted(u)[:, None, None, None]
    with torch.no_grad():
        x = y = sigma(begin) * noise + (1 - sigma(begin)) * z
        for k in range(parts):
            a, b = sigma(begin - k / (4 * parts)), sigma(begin - (k + 1) / (4 * parts))
            y = y + (b - a) * guided(teacher, y, references, a.flatten(), features, empty, GUIDANCE_TURBO)
        velocity = (x - y) / (sigma(begin) - sigma(begin - 1 / 4))
    return ((student(x, references, model_time(shifted(begin)), features).float() - velocity) ** 2).mean()


def train_turbo(args, clock):
    path, steps = args.work / "turbo.pt", args.steps_turbo
    torch.manual_seed(args.seed + 3)
    teacher, encoder = load_flow(args)
    student = copy.deepcopy(teacher)
    layers, step = with_adapter(student), 0
    trained = [p for layer in layers.values() for p in (layer.down, layer.up)]
    optimiser = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)
    average = [p.detach().clone() for p in trained]
    if path.exists():
        state = torch.load(path, map_location=DEVICE, weights_only=False)
        if state["done"]:
            return
        for p, a, now, then in zip(trained, average, state["trained"], state["average"]):
            p.data.copy_(now), a.copy_(then)
        optimiser.load_state_dict(state["optimiser"])
        step = state["step"]
        log(f"turbo: goes on at {step}")
    data = args.data = make_data(args, clock) if args.data is None else args.data
    batches, pace, mean, over = Batches(args, data, edit_tokens.load(args.work / "tokenizer")), Pace(args, "turbo", 40), None, False
    gradients, loss = Gradients(trained), torch.zeros((), device=DEVICE)  # nothing is compiled: for three networks that took longer than all steps

    def learn(z, begin, noise, own, *pictures):
        references, pixels = pictures[: len(pictures) // 2], pictures[len(pictures) // 2 :]
        gradients.whole.zero_()
        with half_precision():
            with torch.no_grad():
                features, empty = batches.features(encoder, own, pixels), batches.features(encoder, batches.space.expand(len(own), -1), pixels)
            error = turbo_loss(student, teacher, features, empty, z, references, begin, noise)
        error.backward()
        loss.copy_(error.detach())

    learn_step = Captured(learn, args.graphs)
    while step < steps and not over:
        rng, draw = random.Random(args.seed * 15485863 + step), seeded(args.seed, 3, step * PROCESSES + PROCESS)
        z, references, own, pixels, _ = batches.draw(rng, draw, 0.5)
        begin = 1 - torch.randint(4, (len(z),), device=DEVICE, generator=draw) / 4  # of an interval of the schedule
        learn_step(z, begin, torch.randn(z.shape, device=DEVICE, generator=draw), own, *references, *pixels)
        gradients.average()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(args.rate_turbo, step, steps, min(50, 1 + steps // 5), 0.2)
        optimiser.step()
        torch._foreach_lerp_(average, [p.detach() for p in trained], 1 - min(0.995, (step + 1) / (step + 10)))
        over = pace.step()
        over = told(over) if args.trial else False
        if mean is None or step % 10 == 0:
            mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % args.log_every == 0:
            log(f"turbo {step}/{steps} loss {mean:.4f} {pace.rate()}, {learn_step.captured()} graphs")
        step += 1
        if (PROCESSES == 1 or step % 20 == 0) and told(clock.is_over(8)):
            break
    pace.end()
    done = step >= steps or bool(args.trial)
    adapter = {name: (average[2 * k], average[2 * k + 1]) for k, name in enumerate(layers)}
    save(dict(adapter=adapter, trained=[p.detach() for p in trained], average=average, optimiser=optimiser.state_dict(), step=step, done=done), path)
    if not done:
        raise Unfinished


# ---- Pictures -------------------------------------------------------------------------------------------------------------------------------------

def schedule(steps, tokens, turbo):
    """Sigmas of the exported scheduler, or those of the 4-step adapters."""
    u = torch.linspace(1, 1 / steps, steps, dtype=torch.float64)
    if turbo:
        return torch.cat((shifted(u), torch.zeros(1, dtype=torch.float64))).float()
    s = shifted(u, math.exp(0.5 + (tokens - 256) * 0.4 / 7936))
    s = 1 - (1 - s) * (1 - 0.02) / (1 - s[-1])
    return torch.cat((s, torch.zeros(1, dtype=torch.float64))).float()


class Sampler:
    """The reference pipeline: texts and pictures to pictures, many at once."""

    def __init__(self, transformer, encoder, vae, tokenizer):
        self.transformer, self.encoder, self.vae = transformer, encoder, vae
        self.batches = Batches(argparse.Namespace(batch=1), {"groups": {}}, tokenizer)
        self.tokenizer = tokenizer

    @torch.no_grad()
    def __call__(self, texts, pictures, steps=STEPS, guidance=GUIDANCE, turbo=False, seed=0, size=(256, 256), batch=64):
        """pictures: list of [n, 3, h, w] in [0, 1], one tensor for each reference -> [n, 3, h, w]."""
        if turbo:
            steps, guidance = 4, 1
        own, out = [e.ids for e in self.tokenizer.encode_batch(texts)], torch.empty(len(texts), 3, *size)
        noise = torch.randn(len(texts), 16, size[0] // 8, size[1] // 8, generator=torch.Generator().manual_seed(seed))
        sigmas = schedule(steps, size[0] * size[1] // 256, turbo).to(DEVICE)
        for length in sorted({len(i) for i in own}):
            chosen = [k for k, i in enumerate(own) if len(i) == length]
            for at in range(0, len(chosen), batch):
                index = torch.tensor(chosen[at : at + batch])
                ids = torch.tensor([own[k] for k in index], device=DEVICE)
                shown = [p[index].to(DEVICE) for p in pictures]
                with half_precision():
                    pixels = [seen(p).float() / 255 for p in shown]
                    references = [encoded(self.vae, p).float() for p in shown]
                    features = self.batches.features(self.encoder, ids, pixels)
                    empty = self.batches.features(self.encoder, self.batches.space.expand(len(ids), -1), pixels) if guidance != 1 else None
                    x = noise[index].to(DEVICE)
                    for a, b in zip(sigmas[:-1], sigmas[1:]):
                        x = x + (b - a) * guided(self.transformer, x, references, a.expand(len(ids)), features, empty, guidance)
                    y = self.vae.decode(x.contiguous(memory_format=torch.channels_last))
                out[index] = ((y.float() + 1) / 2).clamp(0, 1).cpu()
        return out


def sampler(args, turbo):
    transformer, encoder = load_flow(args)
    if turbo:
        with_adapter(transformer, torch.load(args.work / "turbo.pt", map_location=DEVICE, weights_only=False)["adapter"])
    return Sampler(transformer, encoder, load_vae(args), edit_tokens.load(args.work / "tokenizer"))


def export(args):
    transformer, encoder = load_flow(args)
    channels = edit_nets.VAE["channels"]
    statistics = [0.0] * channels, [1.0] * channels  # latents are used as the VAE makes them: the factors of previews hold for these
    path = args.work / "turbo.pt"
    adapter = torch.load(path, map_location="cpu", weights_only=False)["adapter"] if path.exists() else None
    size = edit_export.export(args.export, args.work / "tokenizer", transformer, encoder, load_vae(args), statistics, adapter)
    log(f"exported {size} bytes to {args.export}")


def write_snapshot(args, path):
    """What a new run can begin from, small enough to be carried away: averaged weights in bfloat16."""
    half = lambda state: {k: v.to(torch.bfloat16).cpu() if v.is_floating_point() else v.cpu() for k, v in state.items()}
    out = {"vae": half(torch.load(args.work / "vae.pt", map_location="cpu", weights_only=False)["ema"])}
    if (args.work / "flow.pt").exists():
        state = torch.load(args.work / "flow.pt", map_location="cpu", weights_only=False)
        out.update(ema0=half(state["ema0"]), ema1=half(state["ema1"]), step=state["step"], done=state["done"])
    save(out, path)
    log(f"snapshot: {path.stat().st_size} bytes")


def restore_snapshot(args):
    """Puts a snapshot's weights where the stages look for them, in an empty folder. The optimisers begin anew; the number of the step goes on."""
    if (args.work / "vae.pt").exists():
        return
    state = torch.load(args.restore, map_location="cpu", weights_only=False)
    full = lambda weights: {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
    save(dict(ema=full(state["vae"]), done=True), args.work / "vae.pt")
    if "ema0" in state:
        save(dict(ema0=full(state["ema0"]), ema1=full(state["ema1"]), step=state["step"], done=state["done"]), args.work / "flow.pt")
    log(f"restored from {args.restore}")


def judge(args):
    """Held-out edits, base and Turbo; a sheet of each: references, result."""
    import check_edit

    lines = []
    for turbo in (False, True) if (args.work / "turbo.pt").exists() else (False,):
        draw, begin = sampler(args, turbo), time.time()
        result = check_edit.judge_sampler(draw, turbo, args.judge, args.work / ("sheet-turbo.png" if turbo else "sheet.png"))
        lines += ["", f"## {'4 steps with the Turbo adapter' if turbo else f'{STEPS} steps, guidance {GUIDANCE:g}'} ({time.time() - begin:.0f} s)", "", *result]
    (args.work / "judgement.md").write_text("\n".join(lines) + "\n")
    print(*lines, sep="\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the training's state")
    parser.add_argument("--export", type=Path, help="folder to write the checkpoint to")
    parser.add_argument("--until-seconds", type=float, default=0, help="stop in good time before, with the status 75")
    parser.add_argument("--trial", type=float, default=0, metavar="SECONDS", help="every stage for so long; prints seconds per step")
    parser.add_argument("--warm", type=int, default=1000, help="of a trial: count steps after so many at most")
    parser.add_argument("--judge", type=int, default=0, metavar="N", help="judge N held-out edits of every kind in the end, 2 at least")
    parser.add_argument("--finish", action="store_true", help="train no more: export and judge what there is")
    parser.add_argument("--snapshot", type=Path, help="write what there is to this file, and do nothing else")
    parser.add_argument("--restore", type=Path, help="begin from such a file if the folder is empty")
    parser.add_argument("--pool", type=int, default=24576, help="pictures that the VAE learns from")
    parser.add_argument("--steps-vae", type=int, default=6500)
    parser.add_argument("--batch-vae", type=int, default=24)
    parser.add_argument("--rate-vae", type=float, default=1.5e-3)
    parser.add_argument("--scenes", type=int, default=30000, help="pictures with captions")
    parser.add_argument("--pairs", type=int, default=56000, help="pairs with one reference")
    parser.add_argument("--pairs-two", type=int, default=25000, help="pairs with two")
    parser.add_argument("--texts", type=int, default=3, help="ways to say each")
    parser.add_argument("--steps", type=int, default=40369)
    parser.add_argument("--batch", type=int, default=192, help="pairs with one reference of 256 x 256 in a step; of others as many as give as many rows")
    parser.add_argument("--rate", type=float, default=1e-3, help="AdamW, of all but the blocks' matrices")
    parser.add_argument("--rate-muon", type=float, default=4e-3)
    parser.add_argument("--small", type=float, default=0.4, help="share of the steps that have small pictures, see SMALL")
    parser.add_argument("--probes", type=float, default=0.05, help="weight of what the probes say, see Probe")
    parser.add_argument("--steps-turbo", type=int, default=900)
    parser.add_argument("--rate-turbo", type=float, default=2e-3)
    parser.add_argument("--minutes-flow", type=float, help="make it fewer steps if they would take longer, by the speed of the first ones")
    parser.add_argument("--no-graphs", dest="graphs", action="store_false")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--log-every", type=int, default=200)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    args.data, args.report, clock = None, [], Clock(args.until_seconds)
    args.composer = None if args.snapshot or args.finish else Composer(args)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch._dynamo.config.recompile_limit = 64
    if args.snapshot:
        write_snapshot(args, args.snapshot)
        return 0
    join()

    def begin():
        if args.restore:
            restore_snapshot(args)
        if not (args.work / "tokenizer").exists():
            edit_tokens.train(args.work / "tokenizer")

    alone_first(begin)
    try:
        if args.finish:
            raise StopIteration
        alone_first(lambda: train_vae(args, clock))
        train_flow(args, clock)
        told(None)  # the first process has written what the others now read
        train_turbo(args, clock)
        if args.judge and clock.is_over(120):  # the judgement would not fit
            raise Unfinished
    except StopIteration:
        log("what there is counts as done")
    except Unfinished:
        log(f"unfinished after {time.time() - BEGAN:.0f} s: the same command goes on")
        return UNFINISHED
    if PROCESS > 0:
        return 0
    args.data = None
    if args.export:
        export(args)
    if args.judge:
        judge(args)
    for name, detail, seconds in args.report:
        planned = {"vae": "steps_vae", "flow": "steps", "turbo": "steps_turbo"}.get(name)
        count = parser.get_default(planned) if planned else int((1 + SMALL_SHARE) * sum(k * parser.get_default(v) for k, v in ((1, "scenes"), (2, "pairs"), (3, "pairs_two"))))
        print(f"| {name} | {detail} | {1000 * seconds:.2f} ms each | {count} by default: {count * seconds:.0f} s |")
    log(f"done, {time.time() - BEGAN:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
