"""python3 -m sumi "a cat" out.png"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from typing import Any, List, Optional, Tuple

import sumi


def _size(text: str) -> Tuple[int, int]:
    width, height = text.lower().split("x")
    return int(width), int(height)


def _lora(text: str) -> Tuple[str, float]:
    """PATH or PATH:SCALE."""
    path, _, scale = text.rpartition(":")
    try:
        return (path, float(scale)) if path else (text, 1.0)
    except ValueError:
        return text, 1.0


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m sumi", description="Makes a picture from a text.")
    parser.add_argument("prompt")
    parser.add_argument("output", nargs="?", default="out.png", help="a PNG file (out.png)")
    parser.add_argument("--model", help="a diffusers folder, or a safetensors or GGUF file ($SUMI_MODEL; the demo model of this wheel)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=_size, metavar="WxH", help="pixels")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--guidance", type=float, help="the number on the model's card")
    parser.add_argument("--negative", metavar="TEXT", help="what to move away from, with guidance")
    parser.add_argument("--preset", choices=[preset.name.lower() for preset in sumi.Preset], default="model")
    parser.add_argument("--lora", type=_lora, action="append", default=[], metavar="PATH[:SCALE]", help="an adapter")
    parser.add_argument("--backend", choices=[backend.name.lower() for backend in sumi.Backend], default="auto")
    parser.add_argument("--memory", type=float, default=0, metavar="GB", help="the most memory to use")
    parser.add_argument("--verbose", action="store_true", help="the engine's log")
    parser.add_argument("--version", action="version", version=f"sumi {sumi.version}")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO if given.verbose else logging.WARNING, format="%(message)s")
    if not given.verbose:  # what fails is told by the exception
        logging.getLogger("sumi").addFilter(lambda record: record.levelno < logging.ERROR)
    path = given.model or os.environ.get("SUMI_MODEL") or sumi.demo_model()
    if path is None:
        parser.error("give --model PATH")

    begin = time.monotonic()
    settings: Any = {"seed": given.seed, "size": given.size, "steps": given.steps, "guidance": given.guidance, "negative": given.negative}
    try:
        with sumi.Engine(sumi.Backend[given.backend.upper()], memory_budget=int(given.memory * 1e9)) as engine:
            with engine.open_model(path) as model:
                loras = [(model.load_lora(adapter), scale) for adapter, scale in given.lora]
                job = model.submit(given.prompt, preset=sumi.Preset[given.preset.upper()], loras=loras, **settings)
                shows = sys.stderr.isatty()
                while True:
                    try:
                        job.wait(0.25)
                        break
                    except sumi.WaitTimeout:
                        if shows:
                            sys.stderr.write(f"\r{100 * job.progress:3.0f} %")
                            sys.stderr.flush()
                if shows:
                    sys.stderr.write("\r     \r")
                image = job.result()[0]
        image.save(given.output)
    except (sumi.SumiError, OSError, ValueError) as error:
        print(f"sumi: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    except KeyboardInterrupt:
        return 130
    print(f"{given.output}  {image.width}x{image.height}, seed {image.seed}, {image.step_count} steps, {time.monotonic() - begin:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
