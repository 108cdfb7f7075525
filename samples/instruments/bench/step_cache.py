#!/usr/bin/env python3
"""What step caching saves and what it changes: one model, several prompts, numbers of steps and thresholds.

    samples/instruments/bench/step_cache.py SUMI MODEL [--steps 20,50] [--caches auto:45,every:3,0.08] [--runs 3]
        [--seed 0] [--prompt TEXT ...] [--instead "--steps 34"] [-- OPTIONS ...]

SUMI is the command line, OPTIONS are passed to `sumi generate` (--backend cuda, --size 1024x1024, --guidance 4). Every
image is made without a cache and then with each --step-cache of --caches, in turns; with --instead also once with other
options in place of a cache. A line of the table has the mean number of reused evaluations; the PSNR against the images
without a cache, predicted and measured of the median prompt, and measured of the worst; how far predictions are from the
measured PSNR of their image: the median and the limits; and the median ratio of the times of denoising, which are the
times of whole operations (--profile).
"""
import argparse
import json
import math
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib

PROMPTS = ["a red house on the grass", "a small yellow fish to the left of a big blue balloon",
           "three purple butterflies, watercolour", "a white boat at sunset, outline", "a brown cat on a white background",
           "a green tree above a blue circle", "two orange stars at night", "a pink flower on the grass, watercolour"]


def read_png(path):
    """The RGB values of an 8-bit PNG with or without alpha."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed, width, channels = 8, b"", 0, 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        at += 12 + size
        if kind == b"IHDR":
            width, channels = struct.unpack(">I", body[:4])[0], {2: 3, 6: 4}[body[9]]
        elif kind == b"IDAT":
            packed += body
    raw, row_bytes = zlib.decompress(packed), width * channels
    before, values = bytearray(row_bytes), bytearray()
    for begin in range(0, len(raw), row_bytes + 1):
        rule, row = raw[begin], bytearray(raw[begin + 1:begin + 1 + row_bytes])
        for i in range(row_bytes):
            a, b = row[i - channels] if i >= channels else 0, before[i]
            c = before[i - channels] if i >= channels else 0
            if rule == 1:
                row[i] = (row[i] + a) & 255
            elif rule == 2:
                row[i] = (row[i] + b) & 255
            elif rule == 3:
                row[i] = (row[i] + (a + b) // 2) & 255
            elif rule == 4:
                p = a + b - c
                nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
                row[i] = (row[i] + nearest) & 255
        before = row
        values += row if channels == 3 else bytes(v for i, v in enumerate(row) if i % 4 != 3)
    return values


def mean_error(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b)) / len(a)


def psnr(error):
    return 10.0 * math.log10(255.0 ** 2 / error) if error > 0.0 else math.inf


def shown(db):
    return f"{db:.1f}" if db < math.inf else "equal"


def generate(options, folder, prompt, seed, steps, cache):
    path = f"{folder}/image.png"
    command = [options.sumi, "generate", "--model", options.model, "--prompt", prompt, "--seed", str(seed), "--steps",
               str(steps), "--json", "--profile", "--quiet", "-o", path, *options.others]
    command += cache.split() if cache.startswith("--") else ["--step-cache", cache]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    image = result["images"][0]
    seconds = sum(row["seconds"] for row in result["profile"] if row["stage"].startswith("denois"))
    return read_png(path), image, seconds


def print_row(steps, cache, row):
    measured = [psnr(error) for error in row["errors"]]
    predicted = apart = "-"
    if min(row["predicted"]) > 0.0:
        predicted = f"{statistics.median(row['predicted']):.1f}"
        differences = [a - b for a, b in zip(row["predicted"], measured) if b < math.inf]
        if differences:
            apart = f"{statistics.median(differences):+.1f} ({min(differences):+.1f} to {max(differences):+.1f})"
    print(f"| {steps} | {cache} | {statistics.mean(row['reused']):.1f} | {row['of']} | {predicted} "
          f"| {shown(statistics.median(measured))} | {shown(min(measured))} | {apart} "
          f"| {statistics.median(row['ratio']):.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("sumi")
    parser.add_argument("model")
    parser.add_argument("--steps", default="20,50")
    parser.add_argument("--caches", default="auto:45,auto:40,every:3,0.08")
    parser.add_argument("--instead", action="append", default=[])
    parser.add_argument("--prompt", action="append", default=[])
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(own)
    options.others = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    caches = [text for text in options.caches.split(",") if text] + options.instead
    print("| steps | step_cache | reused | of | predicted dB | measured dB | worst prompt | predicted - measured | time of denoising |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for steps in (int(text) for text in options.steps.split(",")):
            rows = {cache: {"reused": [], "of": 0, "errors": [], "predicted": [], "ratio": []} for cache in caches}
            for i, prompt in enumerate(options.prompt or PROMPTS[:options.prompts]):
                for _ in range(options.runs):
                    whole, _, whole_seconds = generate(options, folder, prompt, options.seed + i, steps, "0")
                    for cache, row in rows.items():
                        pixels, image, seconds = generate(options, folder, prompt, options.seed + i, steps, cache)
                        row["reused"].append(image["reused_evaluations"])
                        row["of"] = image["evaluations"]
                        row["errors"].append(mean_error(pixels, whole))
                        row["predicted"].append(image.get("predicted_db", 0.0))
                        row["ratio"].append(seconds / whole_seconds)
            for cache, row in rows.items():
                print_row(steps, cache, row)


if __name__ == "__main__":
    main()
