#!/usr/bin/env python3
"""What step caching saves and what it changes: one model, several prompts, numbers of steps and thresholds.

    samples/instruments/bench/step_cache.py SUMI MODEL [--steps 20,50] [--caches 0.05,0.08,0.12] [--runs 3] [-- OPTIONS ...]

SUMI is the command line, OPTIONS are passed to `sumi generate` (--backend cuda, --size 1024x1024, --guidance 4). Every
image is made without a cache and then with each threshold, in turns. A line of the table has the mean number of reused
evaluations, the PSNR against the images without a cache (of the mean error over all prompts, and of the worst prompt),
and the median ratio of the times of denoising, which are those of whole operations (--profile).
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
    return f"{10.0 * math.log10(255.0 ** 2 / error):.1f}" if error > 0.0 else "equal"


def generate(options, folder, prompt, seed, steps, cache):
    path = f"{folder}/image.png"
    command = [options.sumi, "generate", "--model", options.model, "--prompt", prompt, "--seed", str(seed), "--steps",
               str(steps), "--step-cache", str(cache), "--json", "--profile", "--quiet", "-o", path, *options.others]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    image = result["images"][0]
    seconds = sum(row["seconds"] for row in result["profile"] if row["stage"].startswith("denois"))
    return read_png(path), image["reused_evaluations"], image["evaluations"], seconds


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("sumi")
    parser.add_argument("model")
    parser.add_argument("--steps", default="20,50")
    parser.add_argument("--caches", default="0.05,0.08,0.12")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--runs", type=int, default=1)
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(own)
    options.others = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    caches = [float(text) for text in options.caches.split(",")]
    print("| steps | step_cache | reused | of | PSNR dB | worst prompt | time of denoising |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for steps in (int(text) for text in options.steps.split(",")):
            rows = {cache: {"reused": [], "of": 0, "errors": [], "ratio": []} for cache in caches}
            for seed, prompt in enumerate(PROMPTS[:options.prompts]):
                for _ in range(options.runs):
                    whole, _, _, whole_seconds = generate(options, folder, prompt, seed, steps, 0)
                    for cache, row in rows.items():
                        image, reused, row["of"], seconds = generate(options, folder, prompt, seed, steps, cache)
                        row["reused"].append(reused)
                        row["errors"].append(mean_error(image, whole))
                        row["ratio"].append(seconds / whole_seconds)
            for cache, row in rows.items():
                print(f"| {steps} | {cache:g} | {statistics.mean(row['reused']):.1f} | {row['of']} "
                      f"| {psnr(statistics.mean(row['errors']))} | {psnr(max(row['errors']))} "
                      f"| {statistics.median(row['ratio']):.2f} |", flush=True)


if __name__ == "__main__":
    main()
