#!/usr/bin/env python3
"""Packs the wheel; build_wheel.sh calls it. usage: make_wheel.py LIBRARY OUT

Without network and without any package: a wheel is a zip with a list of its files. The same input gives the same bytes.
In the environment:
  SOURCE_DATE_EPOCH  the time of the files (1980)
  DEMO_MODEL=0       leaves the demo model out: 12 MB instead of 24
  NOTICES            a folder with the licence notices of libraries that are inside LIBRARY, by their names (utf8proc, zlib), if
                     they are not where Debian keeps them
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from typing import Dict, List, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# What PEP 600 lets a manylinux wheel take from the machine, of what the library could need.
SYSTEM = re.compile(r"^(libc|libm|libpthread|libdl|librt)\.so\.\d+$|^ld-linux-[\w-]+\.so\.\d+$")
# A library that may be inside, and a text that it leaves in the program.
INSIDE = (("utf8proc", b"utf8proc"), ("zlib", b"Jean-loup Gailly"), ("zlib", b"Mark Adler"))
PYTHON = ">=3.8"


def needs_of(library: str) -> Tuple[str, List[str]]:
    """The platform's tag, with the glibc that the library asks for, and other shared libraries that it needs."""
    text = subprocess.run(["objdump", "-p", library], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    machine = re.search(r"file format elf64-(x86-64|littleaarch64)", text)
    if machine is None:
        raise SystemExit(f"make_wheel: {library} is no shared library of 64-bit Linux on x86-64 or AArch64")
    versions = {tuple(int(part) for part in found.split(".")) for found in re.findall(r"GLIBC_(\d+(?:\.\d+)+)\b", text)}
    major, minor = max(versions, default=(2, 17))[:2]  # the oldest for which manylinux has a name
    needed = re.findall(r"^ *NEEDED +(\S+)", text, re.M)
    name = {"x86-64": "x86_64", "littleaarch64": "aarch64"}[machine.group(1)]
    return f"manylinux_{major}_{minor}_{name}", [one for one in needed if not SYSTEM.match(one)]


def notices(library: bytes) -> Dict[str, bytes]:
    found = {}
    for name, text in INSIDE:
        if name in found or text not in library:
            continue
        places = [os.path.join(os.environ["NOTICES"], name)] if "NOTICES" in os.environ else []
        places += [f"/usr/share/doc/{package}/copyright" for package in (f"lib{name}-dev", f"{name}1g-dev", f"{name}-dev")]
        place = next((place for place in places if os.path.exists(place)), None)
        if place is None:
            raise SystemExit(f"make_wheel: the library has {name} inside, whose licence asks for its notice: give NOTICES=FOLDER with a file {name} in it")
        found[name] = read(place)
    return found


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def version() -> str:
    text = read(os.path.join(ROOT, "include", "sumi.h")).decode()
    parts = [re.search(rf"^#define SUMI_VERSION_{part} +(\d+)", text, re.M) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part.group(1) for part in parts if part)


def main(library: str, out: str) -> None:
    platform, others = needs_of(library)
    if others:
        raise SystemExit(f"make_wheel: {library} needs {', '.join(others)}, which a bare machine lacks: link it statically (premake5.lua --shared does, if the static libraries are there)")
    program = read(library)
    number = version()
    tag = f"py3-none-{platform}"
    info = f"sumi-{number}.dist-info"
    files: Dict[str, bytes] = {"sumi/libsumi.so": program}
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
    licences.update({f"{name}.txt": text for name, text in notices(program).items()})
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

    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]  # a zip begins in 1980
    os.makedirs(out, exist_ok=True)
    wheel = os.path.join(out, f"sumi-{number}-{tag}.whl")
    with zipfile.ZipFile(wheel + ".new", "w") as archive:
        for name in names + [f"{info}/RECORD"]:
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            entry.create_system = 3
            # Weights and compressed kernels get little smaller: level 6 saves 1.5 % and takes twice as long.
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 1)
    os.replace(wheel + ".new", wheel)
    print(wheel)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2])
