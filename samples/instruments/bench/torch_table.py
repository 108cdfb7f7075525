"""compare_torch.py --table: every family against the strongest PyTorch on one card, in bf16 and in 8 bits, and against diffusers as its users run it.

A family is measured by a process of its own, which prints a line "ROW {..}" for every measurement as soon as it has it. A table is made of such lines, of one run or of several:

    compare_torch.py BENCH --backend cuda --table [--families z-image,qwen-image,edit,newbie,klein,qwen-image-21] [--eager diffusers] [--sizes 1024] | tee -a rows.txt
    compare_torch.py --table --collect rows.txt [MORE ..]

In a family's process first PyTorch in bf16, sumi in bf16 and diffusers take turns, then PyTorch in 8 bits and sumi in int8, without and with attention in 8 bits. Of PyTorch's forms of 8 bits
(torch_parts.py) the one with the faster forward stays; how far each one's forward is from bf16's is printed, and one that is far off does not count. Everything runs from prompts that are encoded already. Of what PyTorch repeats one block is compiled for each number of rows;
products of "int8" choose between cuBLAS and Triton, all others are PyTorch's own choice without trials. Forwards and decoding are CUDA graphs.

With --table-parts eager diffusers and sumi in every form take turns alone, without what is compiled: it is a table of minutes.

With --backend cpu the networks are tiny, and the times say nothing: it is a test of this program.
"""
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path

ROW = "ROW "
MOST_ERROR = 0.2  # of a forward in 8 bits against bf16, in norm: rounding comes to 0.1 at most, a scale that is left out to 0.37
GUIDED_STEPS = 28
REFERENCE_SIDE = 1024
SUMI = {"sumi bf16": ("bf16", "bf16"), "sumi int8": ("int8", "bf16"), "sumi int8 + 8-bit attention": ("int8", "8bit")}  # weights, attention
FAMILIES = {  # tokens: rows of text, of klein those that are not padding. steps: of a picture, or of a job whose forward is measured
    "z-image": {"title": "Z-Image", "synthetic": "z-image", "tiny": "tiny", "tokens": 128, "steps": 8},
    "qwen-image": {"title": "Qwen-Image", "synthetic": "qwen-image", "tiny": "qwen-image-tiny", "tokens": 128, "steps": 4},
    "edit": {"title": "Qwen-Image-Edit with a reference of 1024x1024", "synthetic": "qwen-image", "tiny": "qwen-image-tiny", "tokens": 1499, "steps": 2, "references": 1},
    "newbie": {"title": "NewBie-image", "synthetic": "newbie", "tiny": "newbie-tiny", "tokens": 256, "steps": 8, "guided": GUIDED_STEPS},
    "klein": {"title": "FLUX.2 [klein]", "synthetic": "klein", "tiny": "klein-tiny", "tokens": 128, "steps": 4},
    "qwen-image-21": {"title": "Qwen-Image-2.1", "synthetic": "qwen-image-21", "tiny": "qwen-image-21-tiny", "tokens": 128, "steps": 8},
}
TINY_QWEN = {"transformer": {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 128, "joint_attention_dim": 3584}, "vae": {"base_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 1}}
TINY_NEWBIE = {"transformer": {"dim": 192, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "axes_dims": [32, 32, 32]}}
TINY_KLEIN = {
    "transformer": {"num_layers": 1, "num_single_layers": 2, "num_attention_heads": 2, "attention_head_dim": 128, "joint_attention_dim": 384, "axes_dims_rope": [32, 32, 32, 32], "rope_theta": 2000},
    "vae": {"block_out_channels": [32, 32, 64, 64], "layers_per_block": 1, "norm_num_groups": 16, "latent_channels": 32, "batch_norm_eps": 1e-4},
}
TINY_QWEN_21 = {
    "transformer": {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 128, "context_in_dim": 256, "mlp_ratio": 3, "in_channels": 64, "axes_dims_rope": [16, 56, 56]},
    "vae": {"base_dim": 16, "decoder_base_dim": 16, "z_dim": 64, "dim_mult": [1, 1, 2, 4, 4], "num_res_blocks": 1, "temperal_downsample": [False, True, True, True], "in_channels": 4, "out_channels": 4},
}


# ---- The networks: use(form) chooses how products are computed, calls(side) is what can be timed -----------------------------------------


def normal(device, *shape):
    import torch

    return torch.randn(shape, device=device, dtype=torch.bfloat16)


def make_z_image(device, is_tiny, tokens, is_compiled=True):
    import torch
    from compare_torch import make_gpu_networks

    networks = make_gpu_networks(device, is_tiny)
    transformer, decoder, features = networks["transformer"](), networks["decoder"](), normal(device, tokens, 2560)
    if is_compiled:
        transformer.compile_blocks()
        decoder = torch.compile(decoder, dynamic=False)

    def calls(side):
        latents, tables = normal(device, 1, 16, side // 8, side // 8), networks["tables"](tokens, side)
        return {"forward": lambda: transformer(latents, 0.5, features, tables), "decode": lambda: decoder(latents)}

    return types.SimpleNamespace(use=transformer.use_products, calls=calls)


def make_qwen_image(device, is_tiny, tokens, is_compiled=True):
    import torch
    import torch_qwen_image as q
    from torch_parts import use_products

    sizes = TINY_QWEN if is_tiny else {kind: q.SIZES[kind] for kind in ("transformer", "vae")}
    transformer, autoencoder = q.random_networks(sizes, device, torch.bfloat16)
    features = normal(device, tokens, sizes["transformer"]["joint_attention_dim"])
    if is_compiled:
        q.compile_parts()

    def calls(side):
        latents = normal(device, 16, side // 8, side // 8)
        return {"forward": lambda: transformer(latents, 0.5, features), "decode": lambda: autoencoder.decode(latents)}

    return types.SimpleNamespace(use=lambda form: use_products(transformer, ("blocks",), form), calls=calls)


def make_edit(device, is_tiny, tokens, is_compiled=True):
    """The network of Qwen-Image, with rows of a picture behind its own."""
    import torch
    import torch_qwen_image as q
    from torch_parts import use_products

    size = (TINY_QWEN if is_tiny else q.SIZES)["transformer"]
    (transformer,) = q.random_networks({"transformer": size}, device, torch.bfloat16)
    features, refers = normal(device, tokens, size["joint_attention_dim"]), (normal(device, 16, REFERENCE_SIDE // 8, REFERENCE_SIDE // 8),)
    if is_compiled:
        q.compile_parts()

    def calls(side):
        latents = normal(device, 16, side // 8, side // 8)
        return {"forward": lambda: transformer(latents, 0.5, features, refers)}

    return types.SimpleNamespace(use=lambda form: use_products(transformer, ("blocks",), form), calls=calls)


def make_newbie(device, is_tiny, tokens, is_compiled=True):
    import torch
    import torch_newbie as n
    from compare_torch import make_gpu_networks
    from torch_parts import use_products

    (transformer,) = n.random_networks(device, torch.bfloat16, TINY_NEWBIE if is_tiny else {"transformer": n.SIZES["transformer"]})
    decoder = make_gpu_networks(device, is_tiny)["decoder"]()
    widths = n.SIZES["text"]["hidden_size"], n.SIZES["pooled"]["width"]
    words, empty = ((normal(device, rows, widths[0]), normal(device, 1, widths[1])) for rows in (tokens, 1))  # the empty prompt is one token
    if is_compiled:
        n.compile_parts()
        decoder = torch.compile(decoder, dynamic=False)

    def calls(side):
        latents = normal(device, 16, side // 8, side // 8)
        return {"forward": lambda: transformer(latents, 0.5, *words), "negative": lambda: transformer(latents, 0.5, *empty), "decode": lambda: decoder(latents[None])}

    return types.SimpleNamespace(use=lambda form: use_products(transformer, ("noise_refiner", "layers"), form), calls=calls)


def make_klein(device, is_tiny, tokens, is_compiled=True):
    import torch
    import torch_flux2 as f
    from torch_parts import use_products

    sizes = TINY_KLEIN if is_tiny else {kind: f.SIZES[kind] for kind in ("transformer", "vae")}
    transformer, autoencoder = f.random_networks(sizes, device, torch.bfloat16)
    features, decode = normal(device, f.ROWS, sizes["transformer"]["joint_attention_dim"]), autoencoder.decode
    if is_compiled:
        f.compile_parts()
        decode = torch.compile(decode, dynamic=False)

    def calls(side):
        latents = normal(device, 128, side // 16, side // 16)
        return {"forward": lambda: transformer(latents, 0.5, features), "decode": lambda: decode(latents)}

    return types.SimpleNamespace(use=lambda form: use_products(transformer, ("double", "single"), form), calls=calls)


def make_qwen_image_21(device, is_tiny, tokens, is_compiled=True):
    import torch
    import torch_qwen_image_21 as q
    from torch_parts import use_products

    sizes = TINY_QWEN_21 if is_tiny else q.SIZES
    transformer, autoencoder = q.random_networks(sizes, device, torch.bfloat16)
    prefix = transformer.keep(normal(device, tokens, sizes["transformer"]["context_in_dim"]))
    if is_compiled:
        q.compile_parts()

    def calls(side):
        latents = normal(device, 64, side // 16, side // 16)
        return {"forward": lambda: transformer(latents, 0.5, prefix), "decode": lambda: autoencoder.decode(latents)}

    return types.SimpleNamespace(use=lambda form: use_products(transformer, ("blocks",), form), calls=calls)


MAKES = {"z-image": make_z_image, "qwen-image": make_qwen_image, "edit": make_edit, "newbie": make_newbie, "klein": make_klein, "qwen-image-21": make_qwen_image_21}


def jobs_of(calls, family):
    """Lists of (name, call) for timed(): "job" is a picture, or forwards; "guided" is a picture with guidance."""
    end = [("decode", calls["decode"])] if "decode" in calls else []
    jobs = {"job": [("forward", calls["forward"])] * family["steps"] + end}
    if "guided" in family:
        jobs["guided"] = [("forward", calls["forward"]), ("negative", calls["negative"])] * family["guided"] + end
    return jobs


# ---- One family ---------------------------------------------------------------------------------------------------------------------------


class Measuring:
    """The process of one family."""

    def __init__(self, args):
        import torch
        from compare_torch import Side

        self.args, self.name, self.family, self.failures = args, args.table_worker, FAMILIES[args.table_worker], 0
        self.want = None  # the forward in bf16
        self.is_tiny = args.backend == "cpu"
        self.device = "cpu" if self.is_tiny else "cuda"
        self.sides = [int(side) for side in args.sizes.split(",")]
        self.card = "processor" if self.is_tiny else torch.cuda.get_device_name()
        self.tokens = self.family["tokens"]
        self.Side = Side

    def emit(self, who, stage, side, seconds, is_trial=False):
        row = {"card": self.card, "family": self.name, "stage": stage, "side": side, "who": who, "seconds": seconds, "is_trial": is_trial}
        print(ROW + json.dumps(row), flush=True)

    def say(self, text):
        print(f"# {self.name}: {text}", flush=True)

    def guard(self, what, work):
        """What fails costs its own numbers, not those of the others."""
        try:
            return work()
        except (Exception, SystemExit):
            self.failures += 1
            traceback.print_exc(file=sys.stdout)
            self.say(f"FAILED: {what}")

    def start_sumi(self, who):
        weights, attention = SUMI[who]
        command = [self.args.bench, "--synthetic", self.family["tiny" if self.is_tiny else "synthetic"], "--backend", self.args.backend, "--serve", "--tokens", str(self.tokens), "--size", f"{self.sides[0]}x{self.sides[0]}"]
        command += [] if self.is_tiny else ["--weights", weights, "--attention", attention]
        command += [] if "guided" in self.family else ["--without-text-encoder"]  # guidance needs the empty prompt
        command += ["--references", str(self.family["references"])] if "references" in self.family else []
        return self.Side(who, command, waits=False)

    def start_eager(self):
        script = Path(__file__).with_name("eager_diffusers.py")
        return self.Side("eager", [sys.executable, str(script), self.name, "--serve", "--tokens", str(self.tokens), "--device", self.device, *(["--tiny"] if self.is_tiny else [])], waits=False)

    def prepare(self, net, form):
        """Everything that is timed, compiled and as graphs: {(side, kind): list of (name, call)}."""
        from compare_torch import timed, with_graphs

        began, jobs = time.perf_counter(), {}
        net.use(form)
        for side in self.sides:
            calls = self.calls[side]
            for name, call in calls.items():
                timed([(name, call)], 0.0)
            jobs |= {(side, kind): job for kind, job in jobs_of(calls, self.family).items()}
        compiled = time.perf_counter()
        jobs = jobs if self.is_tiny else with_graphs(jobs)
        self.say(f"PyTorch {form}: {compiled - began:.1f} s to compile, {time.perf_counter() - compiled:.1f} s for graphs")
        return jobs

    def in_turns(self, who, jobs, others):
        """PyTorch, then each of the others, and again. A picture with guidance takes seconds: once. Without jobs, since PyTorch failed, the others alone."""
        from compare_torch import timed

        alive, kinds = {}, ("job", "guided") if "guided" in self.family else ("job",)
        jobs = jobs or {(side, kind): None for side in self.sides for kind in kinds}
        for other, side in others.items():
            about = self.guard(other, lambda: side.about)
            if about:
                self.say(f"{other}: {json.dumps(about)}")
                alive[other] = side
        seconds, steps = self.args.seconds, self.family["steps"]
        for turn in range(self.args.rounds):
            for (side, kind), calls in jobs.items():
                is_guided = kind == "guided"
                if is_guided and turn > 0:
                    continue
                answers = {who: timed(calls, 0.0 if is_guided else seconds)} if calls else {}
                command = f"guided {side} {self.family['guided']} 0" if is_guided else f"sustain {side} {steps} 1 {seconds}"
                for other in list(alive):
                    answers[other] = self.guard(f"{other}, {command}", lambda: alive[other].ask(command))
                    if answers[other] is None:
                        del alive[other]
                for name, answer in answers.items():
                    for stage in self.stages(is_guided):
                        if answer and stage in answer:
                            self.emit(name, "guided" if is_guided else stage, side, answer[stage])

    def stages(self, is_guided):
        """What the table has of a job: of an edit the forward alone, and no picture without guidance where pictures have it."""
        if is_guided:
            return ["picture"]
        return ["forward"] if "references" in self.family else ["forward", "decode"] if "guided" in self.family else ["forward", "decode", "picture"]

    def close(self, others):
        for side in others.values():
            self.guard("closing", side.close)

    def forget(self):
        import torch

        gc.collect()
        if not self.is_tiny:
            torch.cuda.empty_cache()

    def bf16(self, net):
        others = {"sumi bf16": self.start_sumi("sumi bf16")} | ({"eager": self.start_eager()} if self.args.eager else {})
        jobs = self.guard("PyTorch bf16", lambda: self.prepare(net(), "bf16"))
        if jobs:
            self.want = self.calls[self.sides[0]]["forward"]().float()
        self.guard("bf16 in turns", lambda: self.in_turns("PyTorch bf16", jobs, others))
        self.close(others)

    def eight_bits(self, net):
        from compare_torch import captured, relative_error, timed

        others = {who: self.start_sumi(who) for who in SUMI if who != "sumi bf16"}
        found = {}
        for form in self.args.torch_forms.split(","):

            def try_form():
                import torch

                began, call = time.perf_counter(), self.calls[self.sides[0]]["forward"]
                net().use(form)
                timed([("forward", call)], 0.0)
                self.say(f"PyTorch {form}: {time.perf_counter() - began:.1f} s to compile a forward")
                if self.want is not None:
                    error = relative_error(call(), self.want)
                    self.say(f"PyTorch {form}: its forward is {error:.2e} off from bf16's")
                    if not error < MOST_ERROR:
                        raise ArithmeticError(f"{form} computes something else than bf16")
                replay = call if self.is_tiny else captured(call, torch.cuda.graph_pool_handle())
                found[form] = timed([("forward", replay)], self.args.seconds)["forward"]
                self.emit(f"PyTorch {form}", "forward", self.sides[0], found[form], is_trial=True)

            self.guard(f"PyTorch {form}", try_form)
            self.forget()
        best, jobs = min(found, key=found.get, default=None), None
        if best:
            self.say(f"PyTorch's faster form of 8 bits: {best}")
            jobs = self.guard(f"PyTorch {best}", lambda: self.prepare(net(), best))
        self.guard("8 bits in turns", lambda: self.in_turns(f"PyTorch {best}", jobs, others))
        self.close(others)

    def eager(self, net):
        others = {who: self.start_sumi(who) for who in SUMI} | {"eager": self.start_eager()}
        self.in_turns("", None, others)
        self.close(others)

    def run(self):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        began, made = time.perf_counter(), []
        self.say(f"{self.card}; torch {torch.__version__}; {self.tokens} rows of text; rounds of {self.args.seconds:g} s; compiled code is kept in {os.environ['TORCHINDUCTOR_CACHE_DIR']}")

        def net():  # made late: what it is compared with gets ready meanwhile
            if not made:
                made.append(MAKES[self.name](self.device, self.is_tiny, self.tokens))
                self.calls = {side: made[0].calls(side) for side in self.sides}
                self.say(f"PyTorch's weights are there after {time.perf_counter() - began:.1f} s")
            return made[0]

        attention = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # the first that can
        with torch.inference_mode(), sdpa_kernel(attention, set_priority=True):
            for phase, work in (("bf16", self.bf16), ("8 bits", self.eight_bits), ("eager", self.eager)):
                if phase in self.args.table_parts.split(","):
                    self.guard(phase, lambda: work(net))
                    self.forget()
                    self.say(f"{phase} done after {time.perf_counter() - began:.1f} s")
        if not self.is_tiny:
            self.say(f"PyTorch's memory was at most {1e-9 * torch.cuda.max_memory_allocated():.1f} GB")
        return self.failures


def work(args):
    """In the process of one family."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "sumi-compare-torch"))
    import torch

    if args.backend == "cuda" and not torch.cuda.is_available():
        sys.exit("compare_torch: PyTorch finds no GPU here")
    torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 64  # one graph per number of rows and form
    torch.backends.cudnn.benchmark = True
    sys.exit(1 if Measuring(args).run() else 0)


# ---- The table ----------------------------------------------------------------------------------------------------------------------------


def stage_name(row):
    family = FAMILIES[row["family"]]
    what = {"forward": "forward", "picture": f"picture of {family['steps']} steps and decode", "guided": f"picture of {family.get('guided')} guided steps and decode"}[row["stage"]]
    text = ", 512 rows of text" if row["family"] == "klein" else f", {family['tokens']} rows of text"
    return f"{family['title']}, {what}, {row['side']}x{row['side']}{text if row['stage'] == 'forward' else ''}"


def print_tables(rows):
    """One for each card. Medians of what was measured in turns; of a form of 8 bits that was only tried, of that. Times of decoding are in the lines alone."""
    for card in dict.fromkeys(row["card"] for row in rows):
        stages, measured = {}, {}
        for row in rows:
            if row["card"] != card or row["stage"] == "decode":
                continue
            key = list(FAMILIES).index(row["family"]), -row["side"], ("forward", "picture", "guided").index(row["stage"])
            stages[key] = stage_name(row)
            measured.setdefault((key, row["who"], row["is_trial"]), []).append(row["seconds"])

        def median(key, who):
            for is_trial in (False, True):
                if (key, who, is_trial) in measured:
                    return statistics.median(measured[key, who, is_trial])

        def form_of_8_bits(key):
            for is_trial in (False, True):
                forms = [who.removeprefix("PyTorch ") for at, who, tried in measured if at == key and tried == is_trial and who.startswith("PyTorch ") and who != "PyTorch bf16"]
                if forms:
                    return min(forms, key=lambda form: median(key, f"PyTorch {form}"))

        ms = lambda t, note="": "" if t is None else f"{1e3 * t:.1f}{note}"
        ratio = lambda a, b: "" if a is None or b is None else f"{a / b:.2f}"
        print(f"\n{card}; ms\n")
        print("| | eager | PyTorch, bf16 | sumi, bf16 | sumi / PyTorch | PyTorch, 8 bits | sumi, int8 | sumi / PyTorch | int8, 8-bit attention | sumi / PyTorch | eager / sumi in 8 bits |")
        print("|---|" + "---:|" * 10)
        for key in sorted(stages):
            form = form_of_8_bits(key)
            eager, theirs, bf16, int8, both = (median(key, who) for who in ("eager", "PyTorch bf16", *SUMI))
            theirs_8 = median(key, f"PyTorch {form}") if form else None
            print(f"| {stages[key]} | {ms(eager)} | {ms(theirs)} | {ms(bf16)} | {ratio(bf16, theirs)} | {ms(theirs_8, f' ({form})')} | {ms(int8)} | {ratio(int8, theirs_8)} | {ms(both)} | {ratio(both, theirs_8)} | {ratio(eager, both)} |")
        for (key, who, is_trial), values in measured.items():
            if is_trial:
                print(f"\ntried once: {stages[key]}, {who}: {ms(statistics.median(values))} ms", end="")
        spread = max((max(values) / min(values) for values in measured.values() if len(values) > 1), default=1.0) - 1.0
        print(f"\n\nRounds of one measurement differ by at most {100 * spread:.1f} %.")


def rows_of(lines):
    return [json.loads(line[len(ROW) :]) for line in lines if line.startswith(ROW)]


def table(args):
    if args.collect:
        rows = [row for path in args.collect for row in rows_of(Path(path).read_text().splitlines())]
        if not rows:
            sys.exit(f"compare_torch: there is no line that begins with {ROW.strip()} in {', '.join(args.collect)}")
        return print_tables(rows)
    names = args.families.split(",")
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        sys.exit(f"compare_torch: there is no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    lines, failed = [], []
    for name in names:
        began = time.perf_counter()
        command = [sys.executable, str(Path(__file__).with_name("compare_torch.py")), *sys.argv[1:], "--table-worker", name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"})
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        if process.wait() != 0:
            failed.append(name)
        print(f"# {name}: {time.perf_counter() - began:.0f} s in all", flush=True)
    print_tables(rows_of(lines))
    if failed:
        sys.exit(f"compare_torch: not all of it was measured: {', '.join(failed)}")
