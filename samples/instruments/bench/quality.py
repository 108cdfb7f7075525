#!/usr/bin/env python3
"""What each format of weights costs in quality: one row of a table for each.

    quality.py build/release/bin                             on the processor: GGUF's block types and fp8, from files made here
    quality.py build/release/bin --backend cuda              also the formats that a GPU makes when it loads; files as they are stored
    quality.py build/release/bin --accuracy-log LOG          with the errors that "compare_torch.py --accuracy" printed at full size

A prediction is of a random network that is small enough to be quantised here, against PyTorch in float32. Pictures are the demo
model's, against those of its bfloat16 file on the same backend: their mean PSNR, that of the worst, and the share that shows what
the prompt says, by samples/demo_model/train/check.py. Rows of the demo model's matrices are short: what no whole block of 256
fills takes a smaller type, so of the types with "k" little is in these pictures; "of it" says how much. Needs numpy, PyTorch and
safetensors, and bench, golden_run and sumi in the folder.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy

import quantise

HERE = Path(__file__).resolve().parent
DEMO = HERE.parents[1] / "demo_model"
WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"
sys.path.insert(0, str(DEMO / "train"))
MADE_BY_GPU = {"fp8": 8.0, "int8": 8.0, "int4": 4.5}


def read_png(path):
    """[H, W, 3] bytes of an RGBA file without interlacing, as sumi writes them."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        length, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        if kind == b"IHDR":
            width, height = (int.from_bytes(data[at + i:at + i + 4], "big") for i in (8, 12))
            assert data[at + 16:at + 18] == b"\x08\x06" and data[at + 20] == 0, f"{path}: not a plain RGBA file"
        elif kind == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    rows = numpy.frombuffer(zlib.decompress(packed), numpy.uint8).reshape(height, 1 + 4 * width)
    out = numpy.zeros((height + 1, 4 * width), numpy.uint8)  # a row of zeros is above the first
    for y, row in enumerate(rows):
        kind, line, above = row[0], row[1:], out[y]
        if kind == 1:
            line = numpy.cumsum(line.reshape(-1, 4), 0, dtype=numpy.uint8).reshape(-1)
        elif kind == 2:
            line = line + above
        elif kind > 2:
            line, up, left, corner = line.tolist(), above.tolist(), [0] * 4, [0] * 4
            for i, b in enumerate(up):
                a, c = left[i % 4], corner[i % 4]
                to_left, to_above, to_corner = abs(b - c), abs(a - c), abs(a + b - 2 * c)
                guess = (a + b) // 2 if kind == 3 else a if to_left <= to_above and to_left <= to_corner else b if to_above <= to_corner else c
                line[i] = left[i % 4] = line[i] + guess & 255
                corner[i % 4] = b
        out[y + 1] = line
    return out[1:].reshape(height, width, 4)[..., :3]


def psnr(a, b):
    error = ((a.astype(float) - b.astype(float)) ** 2).mean()
    return 10 * numpy.log10(255 ** 2 / max(error, 1e-3))


def run(*command):
    result = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        sys.exit(f"quality: {' '.join(map(str, command))} ended with code {result.returncode}\n{result.stdout[-2000:]}")
    return result.stdout


def model_of(source, kind, folder):
    """The folder of the model with its transformer in a type; the rest is the source's. -> share of the values in the type"""
    made = Path(folder)
    shutil.copytree(source, made, ignore=shutil.ignore_patterns(Path(WEIGHTS).name, "train", "*.png"), copy_function=os.symlink)
    for part in ("vae", "text_encoder"):  # the pattern has left out the VAE's file, which has the same name
        weights = Path(source, part, Path(WEIGHTS).name).resolve()
        if weights.exists():
            (made / part / weights.name).symlink_to(weights)
    return quantise.convert(Path(source, WEIGHTS), kind, made / (WEIGHTS if kind == "fp8" else WEIGHTS.replace(".safetensors", ".gguf")))


class Demo:
    """Pictures of the demo model: of its file in bfloat16 first, which the others are compared with."""

    def __init__(self, args):
        import check
        import world

        self.args, self.check, self.reader, self.reference = args, check, check.Reader(), None
        self.scenes = [s for kind in ("single", "relation", "count") for s in check.held_out_scenes(args.prompts, 21, kind)]
        self.prompts = [word for s in self.scenes for word in ("--prompt", world.caption(s, random.Random(0), True))]

    def pictures(self, model, weights, folder):
        folder.mkdir()
        for seed in range(self.args.seeds):
            run(self.args.programs / "sumi", "generate", "--model", model, "--backend", self.args.backend, *weights, *self.prompts,
                "--size", "256x256", "--seed", seed, "--quiet", "-o", folder / f"{seed}.png")
        return [read_png(folder / f"{seed}-{k}.png") for seed in range(self.args.seeds) for k in range(len(self.scenes))]

    def measure(self, model, weights, folder):
        """-> PSNRs, or None of the reference itself; how many are right"""
        pictures = self.pictures(model, weights, folder)
        right = sum(not self.check.faults(s, self.reader.read(p / 255, s["background"], s["style"])) for s, p in zip(self.scenes * self.args.seeds, pictures))
        if self.reference is None:
            self.reference = pictures
            return None, right
        return [psnr(a, b) for a, b in zip(pictures, self.reference)], right

    def size_and_time(self, model, weights):
        """MB of all weights as they are held, ms of one evaluation"""
        report = run(self.args.programs / "bench", "--model", model, "--backend", self.args.backend, *weights, "--report", "--short", "--sizes", 256,
                     "--steps", 8, "--batch", 1, "--tokens", 40, "--seconds", self.args.seconds, "--threads", 0)
        return float(re.search(r"^\| +256 x 256 +\| +1 \| +([\d.]+)", report, re.M)[1]), float(re.search(r"^\| forward, 256x256 +\| +([\d.]+)", report, re.M)[1])


class Prediction:
    """One prediction of a random network whose rows all types fill, and PyTorch's in float32."""

    def __init__(self, args, folder):
        import compare_torch

        self.compare, self.folder, self.args = compare_torch, folder, argparse.Namespace(
            synthetic="qwen-image-mid", model=None, backend=args.backend, size="256x256", width=256, height=256, tokens=64, accuracy=args.programs / "golden_run", outliers=args.outliers)
        self.source = folder / "source"
        run(args.programs / "bench", "--synthetic", self.args.synthetic, "--blocks", args.blocks, "--write", self.source, *(["--outliers"] if args.outliers else []))
        self.tensors, self.errors = compare_torch.predictions_of_torch(self.args, self.source)

    def error(self, model, options):
        case = Path(tempfile.mkdtemp(dir=self.folder))
        self.compare.write_case(self.args, case, model, self.tensors, 1.0)
        return self.compare.golden_error(self.args, case, *options)


def rows_of(backend):
    """name, bits a weight, options of sumi and bench, what golden_run calls them, the type of a file that is made here or None"""
    rows = [("bf16", 16.0, [], [], None)]
    stored = ["--weights", "as-stored"] if backend == "cuda" else []
    if backend == "cuda":
        rows += [(name, bits, ["--weights", name], [f"--{name}"], None) for name, bits in MADE_BY_GPU.items()]
    for name in ("fp8", *sorted(quantise.TYPES, key=lambda n: -quantise.TYPES[n][2] / quantise.TYPES[n][1])):
        bits = 8.0 if name == "fp8" else 8 * quantise.TYPES[name][2] / quantise.TYPES[name][1]
        rows.append((f"{name} file", bits, stored, ["--as-stored"] if stored else [], name))
    return rows


def errors_at_full_size(path):
    """Of "| sumi, int8 | 4.240e-02 | ..." in a log of compare_torch.py --accuracy: by the format's name"""
    return {name: error for name, error in re.findall(r"^\| sumi, (\w+) \| (\S+) \|", path.read_text(), re.M)} if path else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, help="the folder of bench, golden_run and sumi")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--prompts", type=int, default=14, help="of each of three kinds; at most 21")
    parser.add_argument("--seeds", type=int, default=1, help="pictures of each prompt")
    parser.add_argument("--blocks", type=int, default=2, help="of the network of the prediction; 0: none is made")
    parser.add_argument("--outliers", action="store_true", help="in the prediction: some channels before products are much larger than the others")
    parser.add_argument("--seconds", type=float, default=1.0, help="of work whose steps are timed")
    parser.add_argument("--formats", help="names of rows, with commas; bf16 comes first in any case")
    parser.add_argument("--accuracy-log", type=Path)
    args = parser.parse_args()
    rows = rows_of(args.backend)
    if args.formats:
        rows = rows[:1] + [row for row in rows[1:] if row[0].replace(" file", "") in args.formats.split(",") or row[0] in args.formats.split(",")]
    full = errors_at_full_size(args.accuracy_log)
    folder = Path(tempfile.mkdtemp(prefix="sumi-quality-"))
    try:
        table(args, rows, full, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(args, rows, full, folder):
    demo, prediction, made = Demo(args), None, {}
    if args.blocks:
        (folder / "prediction").mkdir()
        prediction = Prediction(args, folder / "prediction")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for kind in {row[4] for row in rows if row[4]}:
            sources = [("demo", DEMO)] + ([("prediction", prediction.source)] if prediction else [])
            made[kind] = {name: (folder / f"{name}-{kind}", pool.submit(model_of, source, kind, folder / f"{name}-{kind}")) for name, source in sources}
        for one in [one for of_kind in made.values() for one in of_kind.values()]:
            one[1].result()  # all of them first: they would take the time of what is timed
        count = len(demo.scenes) * args.seeds
        where = run(args.programs / "bench", "--model", DEMO, "--backend", args.backend, "--report", "--short", "--sizes", 64, "--steps", 1, "--batch", 1, "--seconds", 0).split(";")[0]
        print(f"{where}; {count} pictures of the demo model at 256x256, 8 steps\n")
        if prediction:
            print(f"predictions: qwen-image-mid cut to {args.blocks} blocks{', outliers' if args.outliers else ''}; PyTorch in bf16 is off by {prediction.errors['PyTorch, bf16']:.2e}\n")
        print("| weights | bits | prediction off by | Z-Image's size, off by | demo model: of it | dB, mean | dB, worst | right | weights MB | step ms |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for name, bits, weights, golden, kind in rows:
            model, share = made[kind]["demo"] if kind else (DEMO, None)
            share = f"{100 * share.result():.0f} %" if share else ""
            off = "" if not prediction else prediction.source if not kind else made[kind]["prediction"][0]
            if prediction:
                off = f"{prediction.error(off, golden):.2e}"
            decibels, right = demo.measure(model, weights, folder / f"pictures-{name}")
            size, step = demo.size_and_time(model, weights)
            quality = f"{numpy.mean(decibels):.1f} | {min(decibels):.1f}" if decibels else "|"
            print(f"| {name} | {bits:.2f} | {off} | {full.get(name, '')} | {share} | {quality} | {right} of {count} | {size:.0f} | {step:.2f} |", flush=True)
            if prediction and kind:
                shutil.rmtree(made[kind]["prediction"][0])  # the largest, and not wanted again


if __name__ == "__main__":
    main()
