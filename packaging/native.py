"""What the packages of other languages have in common: what a shared library asks of the machine, its notices, archives.

python/make_wheel.py and nuget/make_nupkg.py use it. Needs objdump of binutils, which reads programs of Linux and of Windows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import zipfile
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# What may be taken from the machine: of Linux what PEP 600 lets a manylinux wheel take, of what the library could need; of
# Windows what every Windows 10 has.
SYSTEM = {
    "linux": re.compile(r"^(libc|libm|libpthread|libdl|librt)\.so\.\d+$|^ld-linux-[\w-]+\.so\.\d+$"),
    "windows": re.compile(r"^(kernel32|advapi32|user32|shell32|ole32|bcrypt|ntdll|msvcrt|ucrtbase|api-ms-win-[\w-]+)\.dll$", re.I),
}
# A library that may be inside, and a text that it leaves in the program. The start-up code of MinGW-w64 is in every DLL that it links.
INSIDE = (
    ("utf8proc", b"utf8proc"),
    ("zlib", b"Jean-loup Gailly"),
    ("zlib", b"Mark Adler"),
    ("mingw-w64", b"Mingw-w64 runtime failure"),
)
PACKAGES = "lib{0}-dev {0}1g-dev {0}-dev {0}-common"  # of Debian, which have a library's notice
MACHINES = {"elf64-x86-64": "x86_64", "elf64-littleaarch64": "aarch64", "pei-x86-64": "x86_64"}
OLDEST = {"x86_64": (2, 5), "aarch64": (2, 17)}  # glibc for which manylinux has a name


class Library(NamedTuple):
    path: str
    program: bytes
    system: str  # linux, windows
    machine: str  # x86_64, aarch64
    glibc: Tuple[int, int]  # the oldest that has every symbol; of Linux
    others: List[str]  # libraries that it needs and a bare machine lacks
    functions: Set[str]  # of sumi that it shows


def inspect(path: str) -> Library:
    if shutil.which("objdump") is None:
        raise SystemExit("there is no objdump: install binutils")
    text = objdump("-p", path)
    kind = re.search(r"file format (\S+)", text)
    machine = MACHINES.get(kind.group(1)) if kind else None
    if kind is None or machine is None:
        raise SystemExit(f"{path} is no shared library of 64-bit Linux (x86-64, AArch64) or Windows (x86-64)")
    system = "windows" if kind.group(1).startswith("pei-") else "linux"
    if system == "windows":
        needed = re.findall(r"^\s*DLL Name: (\S+)", text, re.M)
        shown = re.findall(r"^\s*\[ *\d+\].* (sumi_\w+)$", text, re.M)
        glibc = (0, 0)
    else:
        needed = re.findall(r"^ *NEEDED +(\S+)", text, re.M)
        shown = re.findall(r"^[0-9a-f]+ g.* \.text\s.* (sumi_\w+)$", objdump("-T", path), re.M)
        versions = {tuple(int(part) for part in found.split(".")) for found in re.findall(r"GLIBC_(\d+(?:\.\d+)+)\b", text)}
        newest = max(versions, default=(2, 0))
        glibc = max((newest[0], newest[1]), OLDEST[machine])
    return Library(path, read(path), system, machine, glibc, [one for one in needed if not SYSTEM[system].match(one)], set(shown))


def objdump(option: str, path: str) -> str:
    ended = subprocess.run(["objdump", option, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return ended.stdout if ended.returncode == 0 else ""  # it has told a file that is no program by its exit code


def check(library: Library) -> None:
    """Ends with a sentence if a bare machine cannot load the library, or if a function of the header is missing."""
    if library.others:
        raise SystemExit(f"{library.path} needs {', '.join(library.others)}, which a bare machine lacks: link it statically (premake5.lua --shared does, if the static libraries are there)")
    missing = sorted(functions() - library.functions)
    if missing:
        raise SystemExit(f"{library.path} does not export {missing[0]}{f' and {len(missing) - 1} more functions' if missing[1:] else ''} of sumi.h: build the shared library of these sources")


def functions() -> Set[str]:
    """Every function that the headers declare."""
    text = "".join(read(os.path.join(ROOT, "include", name)).decode() for name in ("sumi.h", "sumi_xml.h"))
    return set(re.findall(r"^SUMI_API [^(]*\b(sumi_\w+)\(", text, re.M))


def notices(library: bytes) -> Dict[str, bytes]:
    """Licence notices of the libraries that are inside, by name. $NOTICES is a folder that has them, before Debian's."""
    found: Dict[str, bytes] = {}
    for name, text in INSIDE:
        if name in found or text not in library:
            continue
        places = [os.path.join(os.environ["NOTICES"], name)] if "NOTICES" in os.environ else []
        places += [f"/usr/share/doc/{package}/copyright" for package in PACKAGES.format(name).split()]
        place: Optional[str] = next((place for place in places if os.path.exists(place)), None)
        if place is None:
            raise SystemExit(f"the library has {name} inside, whose licence asks for its notice: give NOTICES=FOLDER with a file {name} in it")
        found[name] = read(place)
    return {**found, **notices_of_headers(library)}


def notices_of_headers(library: bytes) -> Dict[str, bytes]:
    """The notice of CUDA's headers, functions of which are in the kernels: $NOTICES/cuda-headers, which release.sh writes."""
    path = os.path.join(os.environ.get("NOTICES", ""), "cuda-headers")
    has_kernels = b"libcuda.so.1" in library or b"nvcuda.dll" in library
    return {"cuda-headers": read(path)} if has_kernels and os.path.exists(path) else {}


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def version() -> str:
    text = read(os.path.join(ROOT, "include", "sumi.h")).decode()
    parts = [re.search(rf"^#define SUMI_VERSION_{part} +(\d+)", text, re.M) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part.group(1) for part in parts if part)


def write_zip(path: str, files: Dict[str, bytes], names: List[str]) -> None:
    """The same files give the same bytes: SOURCE_DATE_EPOCH is their time, else 1980, with which a zip begins."""
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with zipfile.ZipFile(path + ".new", "w") as archive:
        for name in names:
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr = (0o755 if name.endswith((".so", ".dll")) else 0o644) << 16
            entry.create_system = 3
            # Weights and compressed kernels get little smaller: level 6 saves 1.5 % and takes twice as long.
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 1)
    os.replace(path + ".new", path)
