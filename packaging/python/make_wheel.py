#!/usr/bin/env python3
"""Packs the wheel; build_wheel.sh calls it. usage: make_wheel.py LIBRARY OUT

LIBRARY is libsumi.so, or sumi.dll for Windows, on any machine. Without network and without any package: a wheel is a zip with a
list of its files. The same input gives the same bytes.
In the environment:
  SOURCE_DATE_EPOCH  the time of the files (1980)
  DEMO_MODEL=0       leaves the demo model out: 15 MB instead of 28, of a stripped library with kernels for every card
  NOTICES            a folder with the licence notices of libraries that are inside LIBRARY, by their names (utf8proc, zlib,
                     mingw-w64), if they are not where Debian keeps them
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from typing import Dict

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from native import Library, check, inspect, notices, read, version, write_zip  # noqa: E402

PYTHON = ">=3.8"
FILES = {"linux": "libsumi.so", "windows": "sumi.dll"}  # as sumi/_library.py looks for them


def platform_of(library: Library) -> str:
    """The platform in the wheel's name: of Linux with the glibc that the library's symbols ask for."""
    if library.system == "windows":
        return "win_amd64"
    return f"manylinux_{library.glibc[0]}_{library.glibc[1]}_{library.machine}"


def main(library: str, out: str) -> None:
    found = inspect(library)
    check(found)
    number = version()
    tag = f"py3-none-{platform_of(found)}"
    info = f"sumi-{number}.dist-info"
    files: Dict[str, bytes] = {f"sumi/{FILES[found.system]}": found.program}
    for name in os.listdir(os.path.join(HERE, "sumi")):
        if name.endswith(".py") or name == "py.typed":
            files[f"sumi/{name}"] = read(os.path.join(HERE, "sumi", name))
    if os.environ.get("DEMO_MODEL") != "0":
        model = os.path.join(ROOT, "samples", "demo_model")
        files["sumi/demo_model/model_index.json"] = read(os.path.join(model, "model_index.json"))
        for part in ("scheduler", "text_encoder", "tokenizer", "transformer", "vae"):
            for name in os.listdir(os.path.join(model, part)):
                files[f"sumi/demo_model/{part}/{name}"] = read(os.path.join(model, part, name))
    licences = {"LICENSE": read(os.path.join(ROOT, "LICENSE"))}
    licences.update({f"{name}.txt": text for name, text in notices(found.program).items()})
    files.update({f"{info}/licenses/{name}": text for name, text in licences.items()})
    metadata = ["Metadata-Version: 2.1", "Name: sumi", f"Version: {number}"]
    metadata += ["Summary: Images from diffusion transformers, inside a host program", "License: MIT", f"Requires-Python: {PYTHON}"]
    metadata += ["Provides-Extra: arrays", 'Requires-Dist: numpy; extra == "arrays"', "Classifier: Typing :: Typed"]
    metadata += [f"License-File: {name}" for name in sorted(licences)] + ["Description-Content-Type: text/markdown", ""]
    files[f"{info}/METADATA"] = "\n".join(metadata).encode() + b"\n" + read(os.path.join(HERE, "README.md"))
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: sumi\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    names = sorted(files, key=lambda name: (name.startswith(info), name))  # dist-info at the end, as the format recommends
    record = ""
    for name in names:
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(files[name])}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    wheel = os.path.join(out, f"sumi-{number}-{tag}.whl")
    write_zip(wheel, files, names + [f"{info}/RECORD"])
    print(wheel)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2])
