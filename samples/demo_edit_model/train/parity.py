"""Compares the networks of edit_nets.py with the library, on an untrained checkpoint or on a given one: text features, a reference's latents, one velocity, the decoder, and the adapter.

    python3 parity.py PROGRAM [--model FOLDER] [--work DIR]       PROGRAM: build/gcc/release/bin/sumi

An untrained checkpoint is written in float32, so that both sides compute with the same weights to float precision. Needs Pillow before 13, whose resizing passes are in the library's order."""

import argparse
import copy
import json
import random
import subprocess
from pathlib import Path

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import edit_export
import edit_nets
import edit_tokens
import edit_train
from edit_pictures import paint
from edit_world import instruction, pairs

SIDE = edit_export.SIDE


def scrambled(net, seed):
    """Every parameter away from what would hide a mistake: no norm weight is 1, no bias 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in net.named_parameters():
        if p.dim() == 1:
            p.data += 0.2 * torch.randn(p.shape, generator=generator)
    return net.eval().requires_grad_(False)


def seen(picture):
    """What the vision tower gets of a picture: [0, 1]. The area of 384 x 384 in multiples of 32 by Lanczos, then cells of 28 within the processor's limits, bicubic."""
    width, height = picture.size
    ratio = width / height
    w = (384 * 384 * ratio) ** 0.5
    first = picture.resize((round(w / 32) * 32, round(w / ratio / 32) * 32), Image.LANCZOS)
    beta = (first.width * first.height / edit_nets.VISION_AREA) ** 0.5
    small = first.resize(tuple(int(v / beta / 28) * 28 for v in first.size), Image.BICUBIC)
    return torch.from_numpy(numpy.asarray(small).copy()).permute(2, 0, 1)[None].float() / 255


def error_of(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


class Reference:
    """The whole pipeline in PyTorch, for one prompt."""

    def __init__(self, folder):
        self.tokenizer = edit_tokens.load(folder / "tokenizer")
        self.transformer, self.encoder, self.vae = edit_nets.Transformer(), edit_nets.TextEncoder(edit_tokens.ROWS), edit_nets.Autoencoder()
        state = {k: v.float() for k, v in load_file(folder / "transformer/diffusion_pytorch_model.safetensors").items()}
        missing = self.transformer.load_state_dict(state, strict=False).missing_keys
        assert all(any(d in m for d in edit_export.DEAD) for m in missing), missing
        self.encoder.load_state_dict({k: v.float() for k, v in load_file(folder / "text_encoder/model.safetensors").items()})
        state = {}
        for name, v in load_file(folder / "vae/diffusion_pytorch_model.safetensors").items():
            v = v[:, :, -1] if v.dim() == 5 else v.flatten() if name.endswith("gamma") else v
            state[name] = v.float()
        self.vae.load_state_dict(state)
        for net in (self.transformer, self.encoder, self.vae):
            net.eval().requires_grad_(False)
        config = json.loads((folder / "vae/config.json").read_text())
        self.mean, self.deviation = (torch.tensor(config[k])[None, :, None, None] for k in ("latents_mean", "latents_std"))

    def features(self, text, pictures):
        pixels = [seen(p) for p in pictures]
        ids, runs = edit_tokens.encode(self.tokenizer, [text], [(p.shape[2] // 28, p.shape[3] // 28) for p in pixels])[0]
        return self.encoder(torch.tensor([ids]), runs, pixels, edit_tokens.DROPPED)

    def latents(self, picture):
        x = torch.from_numpy(numpy.asarray(picture).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
        return (self.vae.encode(x)[0] - self.mean) / self.deviation

    def decoded(self, latents):
        x = self.vae.decode(latents * self.deviation + self.mean)
        return ((x / 2 + 0.5).clamp(0, 1) * 255).round()[0]


def add_adapter(transformer, adapter):
    for name, (down, up) in adapter.items():
        transformer.get_submodule(name).weight += edit_export.ALPHA / down.shape[0] * (up @ down)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--model", type=Path, help="a checkpoint instead of an untrained one")
    parser.add_argument("--work", type=Path, default=Path("/tmp/parity"))
    args = parser.parse_args()
    work, folder = args.work, args.model or args.work / "model"
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    if not args.model:
        edit_tokens.train(work / "tokenizer")
        nets = [scrambled(n, k) for k, n in enumerate((edit_nets.Transformer(), edit_nets.TextEncoder(edit_tokens.ROWS), edit_nets.Autoencoder()))]
        adapter = {n: (torch.randn(8, nets[0].get_submodule(n).in_features) * 0.1, torch.randn(nets[0].get_submodule(n).out_features, 8) * 0.1) for n in edit_export.adapted_modules(nets[0])}
        generator = torch.Generator().manual_seed(5)
        statistics = torch.randn(16, generator=generator), 1 + torch.rand(16, generator=generator)
        print("bytes", edit_export.export(folder, work / "tokenizer", *nets, statistics, adapter, torch.float32))
    reference = Reference(folder)
    stored = load_file(folder / "lora/turbo.safetensors")
    adapter = {n[: -len(".lora_down.weight")]: (stored[n].float(), stored[n.replace("lora_down", "lora_up")].float()) for n in stored if n.endswith(".lora_down.weight")}

    rng, worst = random.Random(7), 0
    names = []
    for k, (second, size) in enumerate(((False, (SIDE, SIDE)), (True, (SIDE, SIDE)), (False, (320, 192)))):
        pair = pairs(rng, 1, second)[0]
        pictures = [Image.fromarray((p[0] * 255).round().byte().permute(1, 2, 0).numpy()) for p in paint([pair], size[1], size[0], "cpu") if p is not None]
        del pictures[1]  # the picture after
        names.append([])
        for i, p in enumerate(pictures):
            names[-1].append(work / f"{k}.{i}.png")
            p.save(names[-1][-1])
        cases = [("edit" + str(len(pictures)), instruction(pair, rng, True), pictures, names[-1], size), ("negative", " ", pictures, names[-1], size)]
        cases += [("text only", "a red house on the grass", [], [], size)] if k == 0 else []
        for what, text, pictures, files, (width, height) in cases:
            more = [a for f in files for a in ("--reference", f)]
            run = lambda *arguments: subprocess.run([str(a) for a in (args.program, *arguments, "--model", folder, "--quiet", "--backend", "cpu")], check=True)
            results = {}
            run("encode", "--prompt", text, *more, "-o", work / "features.safetensors")
            got = load_file(work / "features.safetensors")
            key = next(n for n in got if got[n].dim() == 2 and got[n].shape[1] == edit_nets.TEXT["hidden_size"])
            features = reference.features(text, pictures)
            results["features"] = error_of(got[key].float(), features[0])
            noise = torch.randn(16, height // 8, width // 8)
            save_file({"noise": noise}, work / "noise.safetensors")
            latents = [reference.latents(p) for p in pictures]
            if files and what != "negative":
                run("encode", "--image", files[0], "-o", work / "latents.safetensors")
                results["encoder"] = error_of(load_file(work / "latents.safetensors")["latents"], latents[0][0])
            for adapted in ((False, True) if what == "edit1" else (False,)):
                transformer = reference.transformer
                if adapted:
                    transformer = copy.deepcopy(transformer)
                    add_adapter(transformer, adapter)
                velocity = transformer(noise[None], latents, torch.ones(1), features)
                run("generate", "--prompt", text, *more, "--size", f"{width}x{height}", "--steps", "1", "--guidance", "1", "--noise", work / "noise.safetensors", "--latents-out", work / "out.safetensors",
                    "-o", work / "out.png", *(("--lora", folder / "lora/turbo.safetensors") if adapted else ()))
                got = noise - load_file(work / "out.safetensors")["latents"][0]
                if adapted:
                    plain = reference.transformer(noise[None], latents, torch.ones(1), features)
                    assert error_of(velocity[0], plain[0]) > 1e-2, "the adapter changes too little to be compared"
                results["velocity with adapter" if adapted else "velocity"] = error_of(got, velocity[0])
                picture = torch.from_numpy(numpy.asarray(Image.open(work / "out.png").convert("RGB")).copy()).permute(2, 0, 1).float()
                results["picture, levels"] = (picture - reference.decoded(noise[None] - velocity)).abs().max().item()
            if what == "edit1" and (width, height) == (SIDE, SIDE):  # whole pipelines: guidance, both schedules
                empty = reference.features(" ", pictures)
                for name, steps, guidance, options in (("20 guided steps", 20, 3.0, ("--steps", "20", "--guidance", "3")), ("4 steps, fast", 4, 1, ("--preset", "fast", "--lora", folder / "lora/turbo.safetensors"))):
                    turbo, transformer, x = steps == 4, copy.deepcopy(reference.transformer), noise[None]
                    if turbo:
                        add_adapter(transformer, adapter)
                    sigmas = edit_train.schedule(steps, SIDE * SIDE // 256, turbo)
                    for a, b in zip(sigmas[:-1], sigmas[1:]):
                        x = x + (b - a) * edit_train.guided(transformer, x, latents, a.expand(1), features, empty, guidance)
                    run("generate", "--prompt", text, *more, "--noise", work / "noise.safetensors", "--latents-out", work / "out.safetensors", "-o", work / "out.png", *options)
                    results[name] = error_of(load_file(work / "out.safetensors")["latents"][0], x[0])
            print(f"{what:10} {width}x{height}: " + ", ".join(f"{n} {v:.1e}" if "levels" not in n else f"{n} {v:.0f}" for n, v in results.items()))
            worst = max([worst] + [v for n, v in results.items() if "levels" not in n])
    print(f"worst {worst:.1e}")
    raise SystemExit(worst > 1e-4)


if __name__ == "__main__":
    main()
