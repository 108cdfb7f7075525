"""The edit model through the command line, as its card uses it. Needs Pillow."""

import subprocess

from PIL import Image

STEPS, GUIDANCE = 20, 2.0  # without the adapter


def settings(model, turbo):
    """The options of an edit: with the Turbo adapter of the folder, or without."""
    return ["--preset", "fast", "--lora", model / "lora/turbo.safetensors"] if turbo else ["--steps", str(STEPS), "--guidance", f"{GUIDANCE:g}"]


def generate(program, model, text, seed, path, references=(), options=()):
    """Draws a picture to a file; returns it."""
    pictures = [a for reference in references for a in ("--reference", reference)]
    subprocess.run([program, "generate", "--model", model, "--prompt", text, *pictures, "--seed", str(seed), "--quiet", "-o", path, *options], check=True)
    return Image.open(path).convert("RGB")
