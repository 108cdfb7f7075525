#!/usr/bin/env python3
"""Registers, spills and blocks per multiprocessor of the portable kernels, for each target, as a Markdown table (README.md).

    kernels/resources.py build/kernels [ptxas]      the folder in which kernels/build.sh has put the PTX

Shared memory and threads of kernels are read from the launch contracts (gemm.h, attention.h) and from the PTX. What a multiprocessor has is NVIDIA's, from the CUDA programming guide's table of
compute capabilities.
"""
import re
import subprocess
import sys
from pathlib import Path

TARGETS = {"sm_80": (164, 2048), "sm_86": (100, 1536), "sm_89": (100, 1536), "sm_120": (100, 1536)}  # KiB of shared memory, threads
SOURCES = (("gemm_bf16", "gemm_bf16_split", "gemm_bf16_swiglu"), ("gemm_int8",), ("gemm_fp8",), ("attention", "attention_wide"), ("attention_int8",), ("attention_any",))
REGISTERS = 65536
HERE = Path(__file__).resolve().parent


def shared_bytes():
    """Dynamic shared memory, by the ends of kernels' names."""
    found = {}
    for tile, rows, columns, k_bytes, stages in re.findall(r"X\((\w+), (\d+), (\d+), (\d+), (\d+), \d+, \d+, \d+\)", (HERE / "gemm.h").read_text()):
        found[f"_{tile}"] = int(stages) * (int(rows) + int(columns)) * int(k_bytes)
    text = (HERE / "attention.h").read_text()
    any_bytes, wide, wide_w = (int(re.search(rf"SUMI_ATTENTION_{name}_SHARED_BYTES (\d+)", text).group(1)) for name in ("ANY", "WIDE", "WIDE_W"))
    for names, size in re.findall(r"^//   (sumi_attention_\S+(?:, _\S+)?) +\d+ +\d+ +\d+ +(\d+) ", text, re.M):
        first, *others = names.split(", ")
        for name in (first, *(re.sub(r"_\w+$", "", first) + other for other in others), *(first + "_causal" for other in others if other.endswith("causal"))):
            found[name] = int(size)
    found |= {f"sumi_attention_any_c{chunks}": any_bytes for chunks in (1, 2, 4, 8)}
    for dim in (384, 512):
        found |= {f"sumi_attention_d{dim}": wide, f"sumi_attention_d{dim}_w": wide_w}
    return found


def resources(ptxas, ptx, target):
    """(registers, spilled bytes, static shared bytes) of each kernel."""
    log = subprocess.run([ptxas, "-v", f"-arch={target}", str(ptx), "-o", "/dev/null"], check=True, capture_output=True, text=True).stderr
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        number = lambda pattern: int((re.search(pattern, part) or [0, 0])[1])
        found[part.split("'")[0]] = number(r"Used (\d+) registers"), number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes smem")
    return found


def blocks(registers, threads, shared, target):
    kib, most_threads = TARGETS[target]
    per_warp = (32 * registers + 255) // 256 * 256
    by_registers = REGISTERS // per_warp // 4 * 4 * 32 // threads  # warps are given registers in fours
    return min(by_registers, most_threads // threads, kib * 1024 // (shared + 1024))  # every block takes 1 KiB more


def main():
    folder, ptxas = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "ptxas"
    dynamic = shared_bytes()
    print("| kernel | threads | shared KiB | " + " | ".join(f"{t[3:-1]}.{t[-1]}" for t in TARGETS) + " |")
    print("|---|---:|---:|" + "---:|" * len(TARGETS))
    for group in SOURCES:
        threads, found = {}, {target: {} for target in TARGETS}
        for ptx in (next(folder.glob(f"{source}.8?.ptx")) for source in group):
            threads |= {name: int(count) for name, count in re.findall(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", ptx.read_text())}
            for target in (t for t in TARGETS if int(t[3:]) >= int(ptx.suffixes[0][1:])):
                found[target] |= resources(ptxas, ptx, target)
        for name in sorted(threads):
            size = dynamic.get(name, next((s for end, s in dynamic.items() if end.startswith("_") and name.endswith(end)), 0))
            cells = []
            for target in TARGETS:
                if name not in found[target]:
                    cells.append("")
                    continue
                registers, spilled, static = found[target][name]
                count = blocks(registers, threads[name], size + static, target)
                cells.append(f"{registers}{f' [{spilled}]' if spilled else ''}, {count}" if count else "does not fit")
            print(f"| {name[5:]} | {threads[name]} | {size / 1024:.0f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
