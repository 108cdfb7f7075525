#!/usr/bin/env python3
"""Writes sumi/_abi.py from the table of the header's version, tests/abi_MAJOR_MINOR.txt.

usage: generate.py [--table FILE] [--print | --check]
  --print   to standard output instead of sumi/_abi.py
  --check   writes nothing: exit code 1, and what is behind, if sumi/_abi.py is not what would be written, or if the classes
            do not use a function or a member of the header (NOT_BOUND below names those that they leave out)
"""

from __future__ import annotations

import os
import re
import sys
from typing import Dict, List, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = os.path.join(HERE, "sumi", "_abi.py")

# What the classes leave to the functions of sumi._abi, and why.
NOT_BOUND = {
    "textures and semaphores of graphics APIs: for programs that have a renderer": (
        "sumi_import_defaults sumi_import sumi_external_release sumi_job_show_preview "
        "sumi_target.event sumi_target.external sumi_target.bottom_up sumi_target.wait sumi_target.signal"
    ),
    "simple calls: a job that is waited for does the same, and can be cancelled": "sumi_open_model sumi_generate",
    "it would keep other threads out of the engine; Job.wait polls": "sumi_job_wait",
    "images are written to memory of Python": "sumi_images_release",
    "Prompt.save calls sumi_prompt_save_as": "sumi_prompt_save",
    "services in Python would take the GIL in every slice": (
        "sumi_engine_desc.allocator sumi_engine_desc.device_allocator sumi_engine_desc.files sumi_engine_desc.tasks "
        "sumi_engine_desc.completion sumi_engine_desc.tracer"
    ),
    "exceptions have the message of the log": "sumi_engine_last_error",
    "prompts in XML are text": "sumi_xml_prompt_defaults sumi_xml_prompt_write",
    "profiles": "sumi_job_profile sumi_image_desc.profile",
    "Job is the handle": "user_data",
    "noise that is not the seed's": (
        "sumi_noise.multiprocessors sumi_noise.threads_per_multiprocessor sumi_image_start.noise_values "
        "sumi_encode_desc.noise_values sumi_encode_desc.posterior sumi_image_start.posterior sumi_encode_desc.seed"
    ),
}
# Structs whose members a program sets: the classes have to use every one.
INPUTS = (
    "sumi_engine_desc sumi_model_desc sumi_image_item sumi_guidance sumi_noise sumi_image_start sumi_image_desc "
    "sumi_prompt_desc sumi_lora_desc sumi_lora_use sumi_control_desc sumi_control_picture sumi_control_use sumi_encode_desc sumi_target"
).split()
# Structs that become dataclasses, with every member that is not a pointer.
DATACLASSES = {
    "sumi_engine_info": "EngineInfo",
    "sumi_model_info": "ModelInfo",
    "sumi_job_status": "JobStatus",
    "sumi_control_info": "ControlInfo",
    "sumi_memory": "Memory",
}
PREFIXES = {"sumi_result": "SUMI_", "sumi_guidance_formula": "SUMI_GUIDANCE_"}
SCALARS = {
    "bool": "c_bool", "char": "c_char", "int32_t": "c_int32", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
    "uint8_t": "c_uint8", "size_t": "c_size_t", "float": "c_float", "double": "c_double",
}  # fmt: skip
PYTHON = {"bool": "bool", "float": "float", "double": "float", "const char*": "str"}


class Table:
    def __init__(self, path: str) -> None:
        self.name = os.path.basename(path)
        self.enums: Dict[str, List[Tuple[str, str]]] = {}
        self.structs: Dict[str, str] = {}  # name: bytes
        self.members: Dict[str, List[Tuple[str, str, str, str]]] = {}  # struct: (path, offset, bytes, type)
        self.functions: List[Tuple[str, str, List[str]]] = []  # name, result, types of the arguments
        self.macros: List[Tuple[str, str]] = []
        with open(path, encoding="utf-8") as file:
            for line in file:
                word = line.split()
                if line.startswith("#"):
                    continue
                if word[0] == "enum":
                    self.enums[word[1]] = []
                elif word[0] == "value":
                    enum, name = word[1].split(".")
                    self.enums[enum].append((name, word[2]))
                elif word[0] == "struct":
                    self.structs[word[1]] = word[2]
                    self.members[word[1]] = []
                elif word[0] == "member":
                    struct, path = word[1].split(".", 1)
                    self.members[struct].append((path, word[2], word[3], " ".join(word[5:])))
                elif word[0] == "function":
                    match = re.match(r"function (.*?) ?(sumi_\w+)\((.*)\)$", line.strip())
                    assert match, line
                    result, name, arguments = match.groups()
                    self.functions.append((name, result, [] if arguments == "void" else split(arguments)))
                elif word[0] == "macro":
                    self.macros.append((word[1], word[2]))
                else:
                    assert word[0] == "type", line

    def ctype(self, text: str) -> str:
        """What stands for a C type. An opaque object and the address of plain values are c_void_p."""
        pointed = text.replace("const ", "").replace("struct ", "").strip()
        if pointed in SCALARS:
            return SCALARS[pointed]
        if pointed in self.enums:
            return "c_int32"
        if pointed in self.structs:
            return pointed
        if text == "const char*":
            return "c_char_p"
        assert pointed.endswith("*"), text
        target = pointed[:-1]
        if target.endswith("*"):
            return "POINTER(c_void_p)"
        if target in self.structs:
            return "POINTER(" + target + ")"
        if target == "size_t":
            return "POINTER(c_size_t)"
        return "c_void_p"

    def function_type(self, text: str) -> str:
        match = re.match(r"(.*?) ?\(\*\)\((.*)\)$", text)
        assert match, text
        result = "None" if match.group(1) == "void" else self.ctype(match.group(1))
        return "CFUNCTYPE(" + ", ".join([result] + [self.ctype(type) for type in split(match.group(2))]) + ")"


def split(arguments: str) -> List[str]:
    """The types in a list of C arguments, which all have names: "const char* text" is "const char*"."""
    return [re.sub(r" ?\w+$", "", argument.strip()) for argument in arguments.split(",")]


def class_name(enum: str) -> str:
    return "".join(part.capitalize() for part in enum[len("sumi_") :].split("_"))


def value_names(table: Table, enum: str) -> List[Tuple[str, str]]:
    names = [name for name, _ in table.enums[enum]]
    prefix = PREFIXES.get(enum)
    if prefix is None:
        prefix = os.path.commonprefix(names)
        prefix = prefix[: prefix.rindex("_") + 1]
    digits = {"8": "EIGHT_"}
    found = []
    for name, number in table.enums[enum]:
        short = name[len(prefix) :]
        found.append((digits[short[0]] + short[1:] if short[0].isdigit() else short, number))
    return found


def generate(table: Table) -> str:
    out: List[str] = []
    line = out.append
    line(f"# Generated from tests/{table.name} by packaging/python/generate.py. Do not edit.")
    line('"""Every enum, struct and function of sumi.h, as ctypes has it. Names are those of the header."""')
    line("")
    line("from __future__ import annotations")
    line("")
    line("import ctypes")
    line("from ctypes import (")
    for name in "CFUNCTYPE POINTER Structure c_bool c_char c_char_p c_double c_float c_int32 c_size_t c_uint8 c_uint32 c_uint64 c_void_p".split():
        line(f"    {name},")
    line(")")
    line("from dataclasses import dataclass")
    line("from enum import IntEnum")
    line("from typing import Any, Dict, Optional, Sequence, Tuple")
    line("")
    version = re.match(r"abi_(\d+)_(\d+)", table.name)
    assert version, table.name
    line(f"VERSION_NUMBER = {int(version.group(1)) * 1000000 + int(version.group(2)) * 1000}  # any patch version does")
    for name, value in table.macros:
        line(f"{name[len('SUMI_'):]} = {'0xFFFFFFFF' if value == 'UINT32_MAX' else value}")

    out.extend('''

class _Checked(Structure):
    """A struct that refuses whole numbers that do not fit, of which ctypes would keep the low bits."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, int) and value:
            kept = getattr(self, name)
            if not isinstance(kept, float) and kept != value:
                raise ValueError(f"{name} is {value}, which is out of range")'''.split("\n"))

    for enum in table.enums:
        line("")
        line("")
        line(f"class {class_name(enum)}(IntEnum):")
        for name, number in value_names(table, enum):
            line(f"    {name} = {number}")

    line("")
    line("")
    line("# ---- Structs: all of them first, because some point to later ones ----")
    inner = [f"{struct}_{path}" for struct in table.structs for path, _, _, type in table.members[struct] if type == "struct"]
    for struct in list(inner) + list(table.structs):
        line("")
        line("")
        line(f"class {struct}(_Checked):")
        line("    pass")
    line("")
    line("")
    checks: List[str] = []
    for struct in table.structs:
        fields: List[str] = []
        inner_fields: Dict[str, List[str]] = {}
        for path, offset, size, type in table.members[struct]:
            name, array = re.match(r"([\w.]+)(?:\[(\d+)\])?$", path).groups()  # type: ignore[union-attr]
            if type == "struct":
                inner_fields[name] = []
                fields.append(f'("{name}", {struct}_{name})')
            else:
                if "(*)" in type:
                    callback = f"{struct}_{name}".replace(".", "_")
                    line(f"{callback} = {table.function_type(type)}")
                    ctype = callback
                else:
                    ctype = table.ctype(type)
                if array:
                    ctype += f" * {array}"
                if "." in name:
                    outer, name = name.split(".")
                    inner_fields[outer].append(f'("{name}", {ctype})')
                else:
                    fields.append(f'("{name}", {ctype})')
            checks.append(f'    ({struct}, "{path.split("[")[0]}", {offset}, {size}),')
        for outer, its in inner_fields.items():
            line(f"{struct}_{outer}._fields_ = [")
            out.extend(f"    {field}," for field in its)
            line("]")
        line(f"{struct}._fields_ = [")
        out.extend(f"    {field}," for field in fields)
        line("]")
    line("")
    line("# Struct, member, offset, bytes.")
    line("_LAYOUT: Sequence[Tuple[Any, str, int, int]] = (")
    out.extend(checks)
    line(")")
    line("_SIZES: Sequence[Tuple[Any, int]] = (")
    out.extend(f"    ({struct}, {size})," for struct, size in table.structs.items())
    line(")")
    out.extend('''

def check_layout() -> None:
    """Raises ImportError unless ctypes lays out every struct as C does."""
    for struct, size in _SIZES:
        if ctypes.sizeof(struct) != size:
            raise ImportError(f"sumi: {struct.__name__} has {ctypes.sizeof(struct)} bytes instead of {size}")
    for struct, path, offset, size in _LAYOUT:
        begin, holder = 0, struct
        *outer, name = path.split(".")
        for part in outer:
            begin += getattr(holder, part).offset
            holder = dict(holder._fields_)[part]
        field = getattr(holder, name)
        if begin + field.offset != offset or field.size != size:
            raise ImportError(f"sumi: {struct.__name__}.{path} is not where C has it")
'''.split("\n"))

    line("# ---- What the library returns, without its pointers ----")
    for struct, name in DATACLASSES.items():
        line("")
        line("")
        line("@dataclass(frozen=True)")
        line(f"class {name}:")
        converted: List[str] = []
        for path, _, _, type in table.members[struct]:
            member, array = re.match(r"(\w+)(?:\[(\d+)\])?$", path).groups()  # type: ignore[union-attr]
            value = f"raw.{member}"
            if type in table.enums:
                python, value = class_name(type), f"{class_name(type)}({value})"
            elif type == "const char*":
                python, value = "str", f"({value} or b\"\").decode()"
            elif "*" in type:
                continue
            else:
                python = PYTHON.get(type, "int")
            if array:
                python, value = ("bytes", f"bytes({value})") if type == "uint8_t" else (f"Tuple[{python}, ...]", f"tuple({value})")
            line(f"    {member}: {python}")
            converted.append(f"            {member}={value},")
        line("")
        line("    @classmethod")
        line(f"    def read(cls, raw: Any) -> {name}:")
        line("        return cls(")
        out.extend(converted)
        line("        )")

    line("")
    line("")
    line("# Name: result, arguments.")
    line("FUNCTIONS: Dict[str, Tuple[Optional[Any], Sequence[Any]]] = {")
    for name, result, arguments in table.functions:
        types = "".join(table.ctype(type) + ", " for type in arguments).rstrip(" ")
        line(f'    "{name}": ({"None" if result == "void" else table.ctype(result)}, ({types})),')
    line("}")
    out.extend('''

def bind(library: Any) -> None:
    """Gives every function of a loaded library its types. Raises ImportError if one is missing."""
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"sumi: {library._name} has no {name}: it is another version") from None
        function.restype = result
        function.argtypes = list(arguments)'''.split("\n"))
    return "\n".join(out) + "\n"


def what_lags(table: Table) -> List[str]:
    """Functions and members that no class uses and NOT_BOUND does not name, and names in NOT_BOUND that are used or gone."""
    sources = ""
    for name in sorted(os.listdir(os.path.join(HERE, "sumi"))):
        if name.endswith(".py") and name != "_abi.py":
            with open(os.path.join(HERE, "sumi", name), encoding="utf-8") as file:
                sources += file.read()
    left_out = {name for names in NOT_BOUND.values() for name in names.split()}
    wrong, known = [], set()
    for name, _, _ in table.functions:
        known.add(name)
        used = re.search(r"\b" + name + r"\b", sources) is not None
        if used == (name in left_out):
            wrong.append(f"{name} is used, but NOT_BOUND of generate.py names it" if used else f"no class uses {name}")
    for struct in INPUTS:
        for path, _, _, type in table.members[struct]:
            member = path.split("[")[0]
            known.update((f"{struct}.{member}", member))
            if type == "struct" or member == "cookie" or member in left_out or f"{struct}.{member}" in left_out:
                continue
            if not re.search(r"\." + member.replace(".", r"\.") + r"\b|\b" + member + "=", sources):
                wrong.append(f"no class uses {struct}.{member}")
    wrong.extend(f"NOT_BOUND of generate.py names {name}, which the header does not have" for name in sorted(left_out - known))
    return wrong


def header_table() -> str:
    with open(os.path.join(ROOT, "include", "sumi.h"), encoding="utf-8") as file:
        text = file.read()
    version = [re.search(rf"^#define SUMI_VERSION_{part} +(\d+)", text, re.M).group(1) for part in ("MAJOR", "MINOR")]  # type: ignore[union-attr]
    return os.path.join(ROOT, "tests", f"abi_{version[0]}_{version[1]}.txt")


def main(arguments: List[str]) -> int:
    path = header_table()
    if arguments[:1] == ["--table"]:
        path, arguments = arguments[1], arguments[2:]
    table = Table(path)
    text = generate(table)
    if arguments == ["--print"]:
        sys.stdout.write(text)
        return 0
    if arguments == ["--check"]:
        with open(TARGET, encoding="utf-8") as file:
            wrong = [] if file.read() == text else ["sumi/_abi.py lags behind the header: packaging/python/generate.py writes it"]
        wrong += what_lags(table)
        print("\n".join(wrong) if wrong else "sumi/_abi.py is what the header says")
        return 1 if wrong else 0
    if arguments:
        print(__doc__)
        return 2
    with open(TARGET, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
