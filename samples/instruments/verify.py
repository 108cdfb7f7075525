#!/usr/bin/env python3
"""Is sumi right? Runs sumi and the reference on a released checkpoint, and compares every stage of one image.

    verify.py models/Z-Image-Turbo                         writes verify-Z-Image-Turbo/index.html and verify.json
    verify.py models/Qwen-Image-2512 --prompt "a fox" --size 768x768 --steps 20
    verify.py models/Qwen-Image-Edit-2511 --image cat.png --prompt "make it winter"
    verify.py models/Qwen-Image-2.1                        draws; with --image it edits
    verify.py models/FLUX.2-klein-4B                       likewise
    verify.py models/Z-Image-Turbo --device cpu            4 steps of 256x256

CHECKPOINT is a folder in the layout of diffusers. The reference is its pipeline in diffusers (ZImagePipeline,
QwenImagePipeline, QwenImageEditPipeline, QwenImageEditPlusPipeline, QwenImage21Pipeline, Flux2KleinPipeline); NewBie-image
needs its authors' code: --reference-path FOLDER. sumi makes an image with --dump. The reference gets the same prompt and
the noise that sumi drew, and runs twice: in float32, which counts as the truth, and in bfloat16, whose error against
float32 is the yardstick. Compared are token ids, the features of the text encoder, sigmas, the first prediction, the
latents after every step and pixels. A stage is good if sumi's error is at most 1.5 times the yardstick where sumi computes
in bfloat16 (on a GPU), and a hundredth of it where it computes in float32 (on a CPU). If a stage differs, the stages
behind it are judged with sumi's own inputs, so that the component at fault is named, and no other.

Exit code: 0 if every verdict is good, 1 if one is not, 2 if nothing could be compared. Needs these packages:
python3 -m pip install torch torchvision diffusers transformers accelerate safetensors numpy pillow
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROMPT = "a lighthouse on a cliff at dusk, 26 °C, ink wash; the sign says “灯塔 No. 7”, naïve style, sharp détails"
EDIT_PROMPT = "Make the sky dark blue and put a small red boat with the number 7 on the water, 水彩画 style"
STAGES = ("tokenizer", "text encoder", "schedule", "denoiser", "steps", "vae")
BF16_FACTOR = 1.5  # how far two right computations in bfloat16 may lie apart, as in tests/golden
FLOAT32_SHARE = 0.01  # of the yardstick; float32 has 16 bits more than bfloat16, so a right computation is far below
# What is allowed however small the yardstick is. features to latents: as in tests/golden. Bytes of pixels are rounded: at
# 1e-3 one value of sixty is one level apart, at 4e-3 one of four, which an error of 3e-4 on the way does to them.
FLOAT32_FLOORS = {
    "features": 5e-5,
    "sigmas": 1e-5,
    "prediction": 3e-4,
    "latents": 3e-4,
    "pixels": 1e-3,
    "picture": 4e-3,
}
BF16_FLOORS = {"features": 1e-3, "sigmas": 1e-5, "prediction": 1e-3, "latents": 1e-3, "pixels": 2e-3, "picture": 4e-3}


def say(text=""):
    print(text, flush=True)


def give_up(text):
    print(f"verify: {text}", file=sys.stderr)
    raise SystemExit(2)


def import_all():
    """The packages, or a sentence that says which are missing."""
    missing = []
    for module, package in (
        ("torch", "torch"),
        ("numpy", "numpy"),
        ("safetensors", "safetensors"),
        ("PIL", "pillow"),
        ("transformers", "transformers"),
        ("diffusers", "diffusers"),
    ):
        try:
            __import__(module)
        except ImportError as error:
            missing.append((package, error))
    if missing:
        names = " ".join(package for package, _ in missing)
        give_up(
            f"the reference needs packages that this Python ({sys.executable}) cannot import: {names} "
            f"({missing[0][1]}); install them with: {sys.executable} -m pip install {names} accelerate"
        )


# ---- sumi -----------------------------------------------------------------------------------------------------------


def find_sumi(given):
    places = (
        [given]
        if given
        else [
            os.environ.get("SUMI"),
            ROOT / "build/release/bin/sumi",
            ROOT / "build/gcc/release/bin/sumi",
            shutil.which("sumi"),
        ]
    )
    for place in places:
        if place and os.access(place, os.X_OK):
            return str(place)
    give_up(
        f"there is no program {given}"
        if given
        else "there is no sumi: build it (samples/setup.sh), or say where it is: --sumi PATH"
    )


def ask_sumi(command, what, **named):
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", **named)
    if result.returncode != 0:
        last = "\n".join(result.stderr.strip().splitlines()[-6:])
        give_up(f"{what} failed with exit code {result.returncode}:\n{last}\nThe command was: {' '.join(command)}")
    return result.stdout


def run_sumi(args, job):
    """Returns the command, the settings and the tensors of the dump."""
    prompt, negative = args.out / "prompt.txt", args.out / "negative.txt"
    prompt.write_text(job["prompt"], encoding="utf-8")
    options = {
        "--model": args.checkpoint,
        "--prompt": f"@{prompt}",
        "--size": f"{job['width']}x{job['height']}",
        "--steps": job["steps"],
        "--seed": args.seed,
        "--solver": "euler",
        "--backend": args.backend,
        "--dump": args.out / "sumi",
        "-o": args.out / "sumi.png",
    }
    if args.negative is not None:
        negative.write_text(args.negative, encoding="utf-8")
        options["--negative"] = f"@{negative}"
    if args.guidance is not None:
        options["--guidance"] = args.guidance
    if args.weights:
        options["--weights"] = options["--text-weights"] = args.weights
    if args.variant:
        options["--variant"] = args.variant
    command = [args.sumi, "generate"] + [str(word) for option in options.items() for word in option]
    for path in job["picture_paths"]:
        command += ["--reference", str(path)]
    ask_sumi(command, "sumi generate")
    from safetensors.numpy import load_file

    settings = json.loads((args.out / "sumi" / "dump.json").read_text(encoding="utf-8"))
    return command, settings, load_file(args.out / "sumi" / "dump.safetensors")


def prompt_names(dump):
    return [name for name in ("positive", "negative") if f"ids.{name}.0" in dump]


# ---- The job --------------------------------------------------------------------------------------------------------


def parse_size(text):
    try:
        width, height = (int(part) for part in text.lower().split("x"))
        return width, height
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no size: write it as in 512x512") from None


def make_picture(path):
    """A picture to edit where none was given: a sky, water and a sun."""
    import numpy
    from PIL import Image

    y, x = numpy.mgrid[0:384, 0:512]
    sky = numpy.stack([150 + y // 4, 190 - y // 8, 230 - y // 6], -1)
    water = numpy.stack([30 + x // 16, 90 + y // 8, 120 + (x // 8 + y // 4) % 40], -1)
    pixels = numpy.where((y > 230)[..., None], water, sky)
    pixels[(x - 360) ** 2 + (y - 120) ** 2 < 45**2] = (250, 210, 90)
    Image.fromarray(pixels.astype(numpy.uint8)).save(path)


def make_job(args, name):
    from PIL import Image

    from verify_reference import EDITS, MAY_EDIT, read_json

    model = json.loads(
        ask_sumi(
            [args.sumi, "info", "--json", "--model", str(args.checkpoint)]
            + (["--variant", args.variant] if args.variant else []),
            "sumi info",
        )
    )
    on_gpu = args.device == "cuda"
    own = model["presets"]["model"]
    size = args.size or ((512, 512) if on_gpu else (256, 256))
    steps = args.steps or (min(own["steps"], 20) if on_gpu else min(own["steps"], 4))
    listed = read_json(args.checkpoint / "model_index.json").get("sample_sigmas")  # they say how many steps there are
    steps = len(listed) if listed else steps
    paths = [Path(path) for path in args.image]
    if name in EDITS and not paths:
        paths = [args.out / "picture.png"]
        make_picture(paths[0])
    if steps < 2:
        give_up("--steps 1: diffusers' own schedule is not finite with one step of every model; give 2 or more")
    if paths and name not in MAY_EDIT:
        give_up("--image is for models that edit pictures, and this one does not")
    if (args.guidance or 0) > 1 and read_json(args.reference / "model_index.json").get("is_distilled"):
        give_up("--guidance is for models that take it, and this one was distilled to run without it")
    for path in paths:
        if not path.is_file():
            give_up(f"there is no picture {path}")
    return {
        "prompt": args.prompt or (EDIT_PROMPT if paths else PROMPT),
        "width": size[0],
        "height": size[1],
        "steps": steps,
        "picture_paths": paths,
        "pictures": [Image.open(path).convert("RGBA" if model["has_alpha"] else "RGB") for path in paths],
    }


# ---- Judging --------------------------------------------------------------------------------------------------------


def relative(got, want):
    import numpy

    got, want = numpy.asarray(got, numpy.float64), numpy.asarray(want, numpy.float64)
    if got.shape != want.shape:
        return float("inf")
    norm = numpy.linalg.norm(want)
    return float(numpy.linalg.norm(got - want) / norm) if norm > 0 else float(numpy.linalg.norm(got))


class Verdicts:
    """The rows of the table."""

    def __init__(self, is_float32):
        self.is_float32, self.rows = is_float32, []
        self.floors = FLOAT32_FLOORS if is_float32 else BF16_FLOORS

    def allowed(self, kind, yardstick):
        factor = FLOAT32_SHARE if self.is_float32 else BF16_FACTOR
        return max(self.floors[kind], factor * yardstick)

    def add(self, stage, what, good, **more):
        self.rows.append({"stage": stage, "what": what, "good": bool(good), **more})
        return good

    def compare(self, stage, what, kind, error, yardstick, **more):
        allowed = self.allowed(kind, yardstick)
        good = error <= allowed
        if error == float("inf"):
            error, more["note"] = None, "of another shape"
        return self.add(stage, what, good, error=error, yardstick=yardstick, allowed=allowed, **more)

    def is_good(self, stage):
        return all(row["good"] for row in self.rows if row["stage"] == stage)

    def differing(self):
        return [stage for stage in STAGES if not self.is_good(stage)]

    def first(self):
        """The name of the first stage that differs, None if none does."""
        for stage in self.differing():
            if stage != "steps":
                return stage
            row = next(row for row in self.rows if row["stage"] == "steps" and not row["good"])
            return f"denoiser or solver in step {row['step']}"
        return None


def bytes_of_letters():
    """The letters by which byte-level BPE writes bytes: printable ones stand for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def completed(part):
    """A text that has these bytes of a character in it, or None."""
    for before in (b"", b"\xc3", b"\xe4", b"\xe4\xb8", b"\xf0\x9f", b"\xf0\x9f\x98"):
        for after in (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80"):
            try:
                return (before + part + after).decode()
            except UnicodeDecodeError:
                pass
    return None


def vocabulary_texts(tokenizer):
    """A text for every token: its own, or one that completes the bytes of a character."""
    letters, texts = bytes_of_letters(), set()
    for token in tokenizer.get_vocab():
        text = tokenizer.convert_tokens_to_string([token])
        if "\ufffd" in text:
            text = completed(bytes(letters[letter] for letter in token)) if set(token) <= set(letters) else None
        if text:
            texts.add(text)
    return sorted(texts)


def judge_vocabulary(args, reference, verdicts):
    """The text of every token of the vocabulary, cut by both tokenizers: a prompt uses few of the merges."""
    for folder, tokenizer in reference.tokenizers():
        texts = vocabulary_texts(tokenizer)
        lines = "".join(json.dumps(text) + "\n" for text in texts)
        path = Path(args.checkpoint) / folder
        answer = ask_sumi([args.sumi, "tokenize", str(path)], "sumi tokenize", input=lines).splitlines()
        wanted = tokenizer(texts)["input_ids"]
        wrong = [i for i, line in enumerate(answer) if json.loads(line) != list(wanted[i])]
        note = f"{len(texts) - len(wrong)} of {len(texts)} equal"
        if wrong:
            i = wrong[0]
            note += f"; {texts[i]!r} is {answer[i]} in sumi and {list(wanted[i])} in the reference"
        verdicts.add(
            "tokenizer",
            f"texts of the vocabulary{'' if folder in ('tokenizer', 'processor') else f' of {folder}'}",
            not wrong and len(answer) == len(texts),
            note=note,
        )


def prompt_title(name, encoder):
    return f"the {'prompt' if name == 'positive' else 'negative prompt'}{', encoder 2' if encoder else ''}"


def judge_ids(dump, encoded, verdicts):
    for name, encoders in zip(prompt_names(dump), encoded):
        for e, (ids, _) in enumerate(encoders):
            got = dump[f"ids.{name}.{e}"].tolist()
            note = f"{len(got)} ids"
            if got != list(ids):
                at = next((i for i, (a, b) in enumerate(zip(got, ids)) if a != b), min(len(got), len(ids)))
                note = f"{len(got)} ids in sumi, {len(ids)} in the reference; they differ from number {at} on"
            verdicts.add("tokenizer", f"ids of {prompt_title(name, e)}", got == list(ids), note=note)


def features_of(encoded):
    return [[features for _, features in encoders] for encoders in encoded]


def judge(args, job, dump, reference, verdicts, timed):
    """All stages. Returns the reference's picture in float32 and what it is compared with in bfloat16."""
    import torch

    full, half = torch.float32, torch.bfloat16
    names = prompt_names(dump)
    noise, latents = dump["noise"], dump["latents"]
    count = sum(f"ids.{names[0]}.{e}" in dump for e in range(4))
    sumi_features = [[dump[f"features.{name}.{e}"] for e in range(count)] for name in names]

    with timed("tokenizer"):
        judge_vocabulary(args, reference, verdicts)
    with timed("text encoder, float32"):
        encoded = reference.encode(job, full)
    with timed("text encoder, bfloat16"):
        features_half = features_of(reference.encode(job, half))
    judge_ids(dump, encoded, verdicts)
    features = compared = features_of(encoded)
    given = None
    if not verdicts.is_good("tokenizer"):
        given = "sumi's token ids"
        with timed("text encoder, float32, with sumi's token ids"):
            compared = features_of(
                reference.encode(job, full, [[dump[f"ids.{name}.{e}"] for e in range(count)] for name in names])
            )
    for i, name in enumerate(names):
        for e in range(count):
            verdicts.compare(
                "text encoder",
                f"features of {prompt_title(name, e)}",
                "features",
                relative(sumi_features[i][e], compared[i][e]),
                relative(features_half[i][e], features[i][e]),
                given=given,
            )

    with timed("denoiser, float32"):
        whole = reference.denoise(job, full, features, noise)
    with timed("denoiser, bfloat16"):
        whole_half = reference.denoise(job, half, features_half, noise)
    judged, given = whole, None
    if not (verdicts.is_good("tokenizer") and verdicts.is_good("text encoder")):
        given = "sumi's features"
        with timed("denoiser, float32, with sumi's features"):
            judged = reference.denoise(job, full, sumi_features, noise)
    same_steps = dump["sigmas"].shape == judged["sigmas"].shape
    difference = float(abs(dump["sigmas"] - judged["sigmas"]).max()) if same_steps else None
    verdicts.add(
        "schedule",
        "sigmas",
        same_steps and difference <= verdicts.floors["sigmas"],
        error=difference,
        allowed=verdicts.floors["sigmas"],
        note="largest difference" if same_steps else "of another number",
    )
    verdicts.compare(
        "denoiser",
        "first prediction",
        "prediction",
        relative(dump["prediction"], judged["prediction"]),
        relative(whole_half["prediction"], whole["prediction"]),
        given=given,
    )
    for step in range(min(len(latents), len(judged["latents"]))):
        verdicts.compare(
            "steps",
            f"latents after step {step + 1}",
            "latents",
            relative(latents[step], judged["latents"][step]),
            relative(whole_half["latents"][step], whole["latents"][step]),
            given=given,
            step=step + 1,
        )

    with timed("VAE, float32 and bfloat16"):
        decoded, decoded_half = reference.decode(full, latents[-1]), reference.decode(half, latents[-1])
        picture, picture_half = reference.decode(full, whole["latents"][-1]), reference.decode(
            half, whole_half["latents"][-1]
        )
    most = (
        int(abs(dump["pixels"].astype(int) - decoded.astype(int)).max())
        if (dump["pixels"].shape == decoded.shape)
        else 255
    )
    verdicts.compare(
        "vae",
        "pixels",
        "pixels",
        relative(dump["pixels"], decoded),
        relative(decoded_half, decoded),
        given="sumi's latents",
        note=f"at most {most} of 255 apart",
    )
    return picture, picture_half


# ---- Telling --------------------------------------------------------------------------------------------------------


def number(value):
    return "" if value is None else f"{value:.2e}"


def print_rows(rows):
    width = max(len(row["what"]) for row in rows)
    say(f"{'stage':13} {'compared':{width}} {'error':>9} {'its bf16':>9} {'allowed':>9}  verdict")
    for row in rows:
        more = "; ".join(text for text in (row.get("note"), row.get("given") and f"given {row['given']}") if text)
        say(
            f"{row['stage']:13} {row['what']:{width}} {number(row.get('error')):>9} {number(row.get('yardstick')):>9} "
            f"{number(row.get('allowed')):>9}  {'good' if row['good'] else 'DIFFERS'}{'  (' + more + ')' if more else ''}"
        )


class Hashes(threading.Thread):
    """SHA-256 of the checkpoint's files, computed beside the rest."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.files = Path(folder), []

    def run(self):
        for path in sorted(self.folder.rglob("*")):
            relative_path = path.relative_to(self.folder)
            if not path.is_file() or any(part.startswith(".") for part in relative_path.parts):
                continue
            if path.suffix not in (".safetensors", ".json", ".txt", ".model", ".gguf", ".jinja"):
                continue
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                while block := file.read(1 << 22):
                    digest.update(block)
            self.files.append(
                {"path": relative_path.as_posix(), "bytes": path.stat().st_size, "sha256": digest.hexdigest()}
            )


def versions():
    import diffusers
    import numpy
    import torch
    import transformers

    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "diffusers": diffusers.__version__,
        "transformers": transformers.__version__,
        "numpy": numpy.__version__,
    }
    return found


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="a folder in the layout of diffusers, which sumi reads"
    )
    parser.add_argument(
        "--reference-path",
        metavar="FOLDER",
        help="NewBie-image: the folder of its authors' repository, whose code is the reference",
    )
    parser.add_argument("--reference", metavar="FOLDER", help="the checkpoint that the reference reads, if another one")
    parser.add_argument("--prompt", help="what to make; by default a sentence with digits, accents and Chinese")
    parser.add_argument("--negative", help="the negative prompt, with guidance; by default the model's own")
    parser.add_argument("--image", action="append", default=[], metavar="FILE", help="edit models: a picture to edit")
    parser.add_argument("--size", type=parse_size, metavar="WxH", help="512x512 by default, 256x256 on the CPU")
    parser.add_argument("--steps", type=int, help="the model's own by default, at most 20; at most 4 on the CPU")
    parser.add_argument("--guidance", type=float, help="the number on the model's card, which is the default")
    parser.add_argument("--seed", type=int, default=7, help="of the noise; 7 by default")
    parser.add_argument("--variant", help="as sumi's --variant, for models whose files do not say it")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), help="of sumi and of the reference; the GPU if there is one"
    )
    parser.add_argument("--backend", choices=("cuda", "cpu"), help="of sumi, if it is not --device")
    parser.add_argument(
        "--weights",
        choices=("bf16", "fp8", "int8", "int4"),
        help="what sumi's GPU holds weights in; bf16 by default. Others are less exact, and are judged alike",
    )
    parser.add_argument(
        "--offload",
        choices=("auto", "none", "layers"),
        default="auto",
        help="how the reference's components go to the GPU: whole, or layer by layer if they do not fit",
    )
    parser.add_argument("--ignore-memory", action="store_true", help="begin even if the host's memory seems too small")
    parser.add_argument("--no-hashes", action="store_true", help="leave the hashes of the checkpoint's files out")
    parser.add_argument(
        "--sumi", metavar="PATH", help="the command line of sumi; by default the one that was built here"
    )
    parser.add_argument("-o", "--out", metavar="FOLDER", help="where the page goes; verify-NAME by default")
    return parser.parse_args()


class Timer:
    """with timer("what"): tells what is done, and keeps how long it took."""

    def __init__(self):
        self.seconds = {}

    @contextmanager
    def __call__(self, what):
        say(f"  {what} ...")
        began = time.monotonic()
        yield
        self.seconds[what] = time.monotonic() - began


def prepare(args):
    """Checks what does not need the model, and fills in what was not given."""
    warnings.filterwarnings("ignore")
    os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")  # everything is in the folder
    args.checkpoint = Path(args.checkpoint)
    if not args.checkpoint.is_dir():
        give_up(f"{args.checkpoint} is no folder: give the folder of a checkpoint as it was released")
    args.reference = Path(args.reference or args.checkpoint)
    args.sumi = find_sumi(args.sumi)
    import_all()
    import diffusers
    import torch
    import transformers

    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.set_verbosity_error()
        library.disable_progress_bar()
    if args.device == "cuda" and not torch.cuda.is_available():
        give_up("--device cuda: this PyTorch has no GPU; --device cpu works everywhere")
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    args.backend = args.backend or args.device
    if args.backend == "cuda" and not args.weights:
        args.weights = "bf16"
    args.out = Path(args.out or f"verify-{args.checkpoint.resolve().name}")
    args.out.mkdir(parents=True, exist_ok=True)


def compare(args, timed, hashes):
    """Runs both. Returns the verdicts, what was compared, and the reference's picture."""
    from verify_reference import open_reference

    name, reference = open_reference(args.reference, args.device, args.offload, say, args.reference_path)
    if not args.ignore_memory:
        reference.check_memory()
    job = make_job(args, name)
    say(
        f"sumi and {name} on {args.checkpoint}: {job['width']}x{job['height']}, {job['steps']} steps, "
        f"on the {'GPU' if args.device == 'cuda' else 'CPU'}"
    )
    if hashes:
        hashes.start()
    with timed("sumi"):
        command, settings, dump = run_sumi(args, job)
    for key in ("negative", "guidance", "norm_limit", "guidance_end"):
        job[key] = settings[key]
    job["latent_shape"] = dump["noise"].shape
    verdicts = Verdicts(settings["backend"] == "cpu")
    picture, picture_half = judge(args, job, dump, reference, verdicts, timed)
    if not verdicts.first():  # the whole way, from the prompt to the pixels
        error, yardstick = relative(dump["pixels"], picture), relative(picture_half, picture)
        verdicts.compare("picture", "sumi's against the reference's", "picture", error, yardstick)
    report = {"pipeline": name, "notes": sorted(reference.notes), "sumi": settings, "command": command}
    return verdicts, report, job, dump["pixels"], picture


def summarise(verdicts):
    first = verdicts.first() or (None if verdicts.is_good("picture") else "picture")
    others = [stage for stage in verdicts.differing() if stage not in ("steps", first)]
    if not first:
        return None, "sumi agrees with the reference in every stage."
    also = f" Also differing: {', '.join(others)}." if others else ""
    return first, f"The first stage that differs: {first}.{also}"


def main():
    args = parse_arguments()
    prepare(args)
    import diffusers
    import torch
    import transformers

    sys.path.insert(0, str(HERE))
    import verify_page
    from verify_reference import Trouble

    timer = Timer()
    hashes = None if args.no_hashes else Hashes(args.checkpoint)
    try:
        verdicts, report, job, pixels, picture = compare(args, timer, hashes)
    except Trouble as trouble:
        give_up(str(trouble))
    except torch.cuda.OutOfMemoryError as error:
        give_up(f"the GPU has too little memory for the reference: try --offload layers, or a smaller --size\n{error}")
    except Exception as error:
        traceback.print_exc()
        give_up(
            f"the comparison could not be made: {error} (diffusers {diffusers.__version__}, transformers "
            f"{transformers.__version__}, torch {torch.__version__})"
        )
    first, summary = summarise(verdicts)
    say()
    print_rows(verdicts.rows)
    say(f"\n{summary}")
    for note in report["notes"]:
        say(f"Note: {note}.")
    if hashes:
        hashes.join()
    report |= {
        "verdict": "differs" if first else "good",
        "first": first,
        "summary": summary,
        "checkpoint": str(args.checkpoint),
        "reference": str(args.reference),
        "device": args.device,
        "gpu": torch.cuda.get_device_name() if args.device == "cuda" else None,
        "rows": verdicts.rows,
        "versions": versions(),
        "seconds": timer.seconds,
        "files": hashes.files if hashes else [],
    }
    text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
    (args.out / "verify.json").write_text(text + "\n", encoding="utf-8")
    (args.out / "index.html").write_text(verify_page.make(report, job, pixels, picture), encoding="utf-8")
    say(f"{args.out / 'index.html'} shows both pictures; {args.out / 'verify.json'} has the numbers.")
    return 1 if first else 0


if __name__ == "__main__":
    sys.exit(main())
