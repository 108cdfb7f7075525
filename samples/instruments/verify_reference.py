"""The references of verify.py: diffusers' pipelines, run stage by stage with the same prompt and the same noise.

A reference has three functions, and each loads only the components that it needs, so that one large component at a time is
in memory: encode() returns token ids and features, denoise() sigmas, the first prediction and the latents after every step,
decode() a picture. The pipelines run their own code: what is replaced are the steps of another stage, by the results of that
stage.

NewBie-image has no pipeline in diffusers. Its transformer and its guidance are the authors' code, out of the folder of
--reference-path; its text encoders are transformers', its solver and its VAE diffusers'.
"""

import gc
import importlib.machinery
import importlib.util
import inspect
import json
import math
import sys
import types
from contextlib import contextmanager
from pathlib import Path

import numpy
import torch

HEAVY = ("text_encoder", "clip_model", "transformer", "vae")  # components with weights


class Trouble(Exception):
    """A sentence for the user: what is wrong, and what to do."""


class _StageDone(Exception):
    pass


class _Stub:
    """Stands for a transformer that is not loaded: pipelines ask it for its settings only."""

    def __init__(self, config):
        self.config = type("Config", (dict,), {"__getattr__": dict.get})(config)
        self.in_channels = config.get("in_channels", 16)
        self.dtype = torch.float32


class _GivenIds:
    """A tokenizer or processor whose results get token ids from elsewhere, one list for each call. rows: how many the text
    encoder reads, padding included; where there is none, as many as there are ids."""

    def __init__(self, inner, ids, rows):
        self.inner, self.ids, self.rows = inner, list(ids), rows

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __call__(self, *arguments, **named):
        result = self.inner(*arguments, **named)
        ids = torch.tensor([[int(i) for i in self.ids.pop(0)]])
        mask = torch.ones_like(ids)
        if self.rows:
            padding = (0, self.rows - ids.shape[1])
            ids = torch.nn.functional.pad(ids, padding, value=self.inner.pad_token_id)
            mask = torch.nn.functional.pad(mask, padding)
        result["input_ids"], result["attention_mask"] = ids, mask
        if "mm_token_type_ids" in result:  # of Qwen3-VL's processor: which ids are pictures
            result["mm_token_type_ids"] = (ids == self.inner.image_token_id).int()
        return result


def type_argument():
    """diffusers announces that from_pretrained will lose torch_dtype with version 1."""
    import diffusers

    return "torch_dtype" if diffusers.__version__.startswith("0.") else "dtype"


def weight_files(folder):
    return sorted(Path(folder).glob("*.safetensors"))


def value_count(folder):
    """How many numbers the weights of a component are, from the headers of its files."""
    count = 0
    for path in weight_files(folder):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        count += sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")
    return count


def free_host_bytes():
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None  # not Linux: not known


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8")) if Path(path).is_file() else {}


class Reference:
    """What all references share: where components are computed, and how they get there."""

    def __init__(self, folder, device, offload, say):
        self.folder, self.device, self.offload, self.say = Path(folder), torch.device(device), offload, say
        self.notes = set()  # about the reference itself, for the report
        torch.backends.cuda.matmul.allow_tf32 = False  # float32 is to be float32
        torch.backends.cudnn.allow_tf32 = False

    def check_memory(self):
        """A component in float32 needs that much host memory; with less the system swaps, or ends the process."""
        free = free_host_bytes()
        for part in HEAVY:
            needed = 4 * value_count(self.folder / part)
            if free is not None and needed > free:
                raise Trouble(
                    f"the reference's {part} takes {needed / 1e9:.1f} GB in float32, and {free / 1e9:.1f} GB of memory "
                    f"are free: run this on a machine with more memory, or with --ignore-memory if there is enough swap"
                )

    def place(self, module):
        """Puts a component on the device: whole if it fits, else layer by layer while it runs."""
        if module is None or self.device.type == "cpu":
            return
        needed = sum(p.numel() * p.element_size() for p in module.parameters())
        free = torch.cuda.mem_get_info(self.device)[0]
        layers = self.offload == "layers" or (self.offload == "auto" and needed > 0.8 * free)
        if not layers:
            module.to(self.device)
            return
        try:
            from accelerate import cpu_offload
        except ImportError:
            raise Trouble(
                "a component does not fit on the GPU, and layers go there one by one with the package "
                "accelerate: python3 -m pip install accelerate"
            ) from None
        self.say(f"    {needed / 1e9:.1f} GB go to the GPU layer by layer")
        cpu_offload(module, execution_device=self.device)

    def clear(self):
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def to_bytes(image):
    """[H, W, 3] bytes of what a VAE returns; [H, W, 4] where it makes alpha."""
    image = (image.float() / 2 + 0.5).clamp(0, 1)[0].permute(1, 2, 0).cpu().numpy()
    return (image * 255).round().astype(numpy.uint8)


class Diffusers(Reference):
    """A pipeline of diffusers. A subclass says how its family packs latents and what its arguments are called."""

    padded_rows = None  # of a text, for families whose text encoder and transformer read padding
    denoises_with_vae = False  # whether the pipeline reads numbers of the VAE even if no picture is given

    def __init__(self, pipeline_class, folder, device, offload, say):
        super().__init__(folder, device, offload, say)
        self.pipeline_class = pipeline_class

    # -- what families differ in

    def features_of(self, outputs, prompts):
        raise NotImplementedError

    def outputs_of(self, features, dtype):
        raise NotImplementedError

    def pack(self, latents):
        return latents

    def unpack(self, latents, like):
        return latents

    def arguments(self, job):
        raise NotImplementedError

    def to_vae(self, vae, latents):
        raise NotImplementedError

    # -- stages

    @contextmanager
    def loaded(self, dtype, parts):
        pipe = self.load(dtype, parts)
        try:
            yield pipe
        finally:
            del pipe
            self.clear()

    def load(self, dtype, parts):
        absent = {part: None for part in HEAVY if part not in parts}
        known = inspect.signature(self.pipeline_class.__init__).parameters
        absent = {part: none for part, none in absent.items() if part in known}
        pipe = self.pipeline_class.from_pretrained(str(self.folder), **{type_argument(): dtype}, **absent)
        pipe.set_progress_bar_config(disable=True)
        for part in parts:
            self.place(getattr(pipe, part))
        return pipe

    def tokenizers(self):
        """[(folder in the checkpoint, tokenizer)], by text encoder."""
        from transformers import AutoTokenizer

        return [("tokenizer", AutoTokenizer.from_pretrained(str(self.folder / "tokenizer")))]

    def call(self, pipe, job, noise, **more):
        latents = self.pack(torch.from_numpy(noise)[None]).to(self.device)
        return pipe(
            prompt=job["prompt"],
            width=job["width"],
            height=job["height"],
            num_inference_steps=job["steps"],
            latents=latents,
            output_type="latent",
            **self.arguments(job),
            **more,
        )

    def encode(self, job, dtype, given_ids=None):
        """For the prompt and, with guidance, the negative prompt: [(ids, features)] by text encoder. given_ids: likewise."""
        with self.loaded(dtype, ["text_encoder"]) as pipe, torch.no_grad():
            pipe.transformer = _Stub(read_json(self.folder / "transformer" / "config.json"))
            self.read_pictures_with_pillow(pipe)
            if given_ids is not None:
                self.drop_rows(pipe, [ids[0] for ids in given_ids])
                for name in ("processor", "tokenizer"):
                    if getattr(pipe, name, None) is not None:
                        inner = getattr(pipe, name)
                        setattr(pipe, name, _GivenIds(inner, [ids[0] for ids in given_ids], self.padded_rows))
                        break
            seen, outputs = [], []
            forward, encode_prompt = pipe.text_encoder.forward, pipe.encode_prompt

            def watched_forward(*arguments, **named):
                self.mark_picture_tokens(pipe, forward, named)
                mask = named["attention_mask"].bool().cpu()
                seen.extend(row[keep].tolist() for row, keep in zip(named["input_ids"].cpu(), mask))
                return forward(*arguments, **named)

            def watched_encode(*arguments, **named):
                outputs.append(encode_prompt(*arguments, **named))
                return outputs[-1]

            def stop(*arguments, **named):
                raise _StageDone

            pipe.text_encoder.forward, pipe.encode_prompt, pipe.prepare_latents = watched_forward, watched_encode, stop
            try:
                self.call(pipe, job, numpy.zeros(job["latent_shape"], numpy.float32))
            except _StageDone:
                pass
            features = self.features_of(outputs, len(seen))
            pipe.text_encoder.forward = forward
        return [[(ids, f.float().cpu().numpy())] for ids, f in zip(seen, features)]

    def denoise(self, job, dtype, features, noise):
        """A dict of sigmas, prediction (what the solver gets) and latents, each without a batch dimension. features: by
        prompt and text encoder."""
        parts = ["transformer"] + (["vae"] if job["pictures"] or self.denoises_with_vae else [])
        with self.loaded(dtype, parts) as pipe, torch.no_grad():
            outputs = self.outputs_of([torch.from_numpy(f[0]).to(self.device, dtype) for f in features], dtype)
            pipe.encode_prompt = lambda *arguments, **named: outputs.pop(0)
            steps, predictions = [], []
            step = pipe.scheduler.step

            def watched_step(model_output, *arguments, **named):
                result = step(model_output, *arguments, **named)
                if not predictions:
                    predictions.append(self.unpack(model_output, noise)[0].float().cpu().numpy())
                steps.append(self.unpack(result[0], noise)[0].float().cpu().numpy())
                return result

            pipe.scheduler.step = watched_step
            self.watch_times(pipe)
            self.call(pipe, job, noise)
            sigmas = pipe.scheduler.sigmas.float().cpu().numpy()
        return {"sigmas": sigmas, "prediction": predictions[0], "latents": numpy.stack(steps)}

    def watch_times(self, pipe):
        pass

    def drop_rows(self, pipe, given_ids):
        pass

    def mark_picture_tokens(self, pipe, forward, named):
        pass

    def read_pictures_with_pillow(self, pipe):
        pass

    def decode(self, dtype, latents):
        """As to_bytes."""
        with self.loaded(dtype, ["vae"]) as pipe, torch.no_grad():
            image = self.to_vae(pipe.vae, torch.from_numpy(latents)[None].to(self.device, dtype))
            return to_bytes(image)


class ZImage(Diffusers):
    def features_of(self, outputs, prompts):
        positive, negative = outputs[0]
        return [positive[0]] + ([negative[0]] if negative else [])

    def outputs_of(self, features, dtype):
        return [([features[0]], features[1:])]

    def arguments(self, job):
        guided = job["negative"] is not None
        return {
            "guidance_scale": job["guidance"] if guided else 0.0,
            "negative_prompt": job["negative"],
            "cfg_normalization": job["norm_limit"] or False,
            "cfg_truncation": job["guidance_end"],
        }

    def to_vae(self, vae, latents):
        return vae.decode(latents / vae.config.scaling_factor + vae.config.shift_factor, return_dict=False)[0]


class QwenImage(Diffusers):
    takes_list = False

    def features_of(self, outputs, prompts):
        kept = []
        for embeds, mask in outputs:
            kept.append(embeds[0] if mask is None else embeds[0][mask[0].bool()])
        return kept

    def outputs_of(self, features, dtype):
        return [(f[None], None) for f in features]

    def pack(self, latents):
        count, channels, height, width = latents.shape
        latents = latents.view(count, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
        return latents.reshape(count, height // 2 * (width // 2), channels * 4)

    def unpack(self, latents, like):
        channels, height, width = like.shape
        latents = latents.view(latents.shape[0], height // 2, width // 2, channels, 2, 2).permute(0, 3, 1, 4, 2, 5)
        return latents.reshape(latents.shape[0], channels, height, width)

    def arguments(self, job):
        arguments = {"true_cfg_scale": job["guidance"], "negative_prompt": job["negative"]}
        if job["pictures"]:
            arguments["image"] = job["pictures"] if self.takes_list else job["pictures"][0]
        return arguments

    def watch_times(self, pipe):
        """In float32 the pipeline hands over exact times. The model was trained, and is run, with times that bfloat16 has
        rounded twice; sumi has these on every backend, so the float32 run gets them too."""
        forward = pipe.transformer.forward
        self.notes.add("the float32 run got the times of the bfloat16 run, with which the model was trained")

        def with_rounded_times(*arguments, **named):
            rounded = pipe._current_timestep.to(torch.bfloat16) / 1000
            named["timestep"] = rounded.expand(named["timestep"].shape).to(named["timestep"])
            return forward(*arguments, **named)

        pipe.transformer.forward = with_rounded_times

    def read_pictures_with_pillow(self, pipe):
        """transformers 5 resizes pictures with torchvision, whose bytes differ from Pillow's by a level here and there. The
        authors' programs and sumi resize as Pillow does."""
        try:
            from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
        except ImportError:
            return  # transformers 4, or a later one without it
        if getattr(pipe, "processor", None) is not None:
            pipe.processor.image_processor = Qwen2VLImageProcessorPil.from_pretrained(str(self.folder / "processor"))

    def mark_picture_tokens(self, pipe, forward, named):
        """transformers 5 finds pictures by token types, which diffusers 0.42 does not hand over to this encoder. Without
        them picture tokens get positions along a line instead of rows and columns, in silence, and other features."""
        known = inspect.signature(forward).parameters
        if named.get("pixel_values") is None or "mm_token_type_ids" not in known or "mm_token_type_ids" in named:
            return
        named["mm_token_type_ids"] = (named["input_ids"] == pipe.text_encoder.config.image_token_id).int()
        self.notes.add("this diffusers does not tell transformers which tokens are pictures; they were marked here")

    def to_vae(self, vae, latents):
        shape = (1, vae.config.z_dim, 1, 1, 1)
        mean = torch.tensor(vae.config.latents_mean).view(shape).to(latents)
        deviation = torch.tensor(vae.config.latents_std).view(shape).to(latents)
        return vae.decode(latents[:, :, None] * deviation + mean, return_dict=False)[0][:, :, 0]


class QwenImageEditPlus(QwenImage):
    takes_list = True


class QwenImage21(QwenImage):
    takes_list = True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.pads = {}  # by rows of features: which of them stand for pictures. They follow from the number of rows

    def tokenizers(self):
        from transformers import AutoTokenizer

        return [("processor", AutoTokenizer.from_pretrained(str(self.folder / "processor")))]

    def features_of(self, outputs, prompts):
        self.pads.update({embeds.shape[1]: pads for embeds, _, pads in outputs})
        return [embeds[0] for embeds, _, _ in outputs]

    def outputs_of(self, features, dtype):
        return [(f[None], None, self.pads[len(f)].to(f.device)) for f in features]

    def pack(self, latents):
        return latents.flatten(2).transpose(1, 2)

    def unpack(self, latents, like):
        return latents.transpose(1, 2).reshape(latents.shape[0], *like.shape)

    def drop_rows(self, pipe, given_ids):
        """The rows of the system's turn, up to the next <|im_start|>: another tokenizer may need more ids for it."""
        ids = [int(i) for i in given_ids[0]]
        pipe._drop_idx = ids.index(ids[0], 1)

    def read_pictures_with_pillow(self, pipe):
        pass  # the pipeline itself resizes pictures, with Pillow, to sizes that its processor leaves as they are


class Flux2Klein(Diffusers):
    padded_rows = 512
    denoises_with_vae = True  # for the statistics by which it scales the last latents

    def features_of(self, outputs, prompts):
        return [embeds[0] for embeds, _ in outputs]

    def outputs_of(self, features, dtype):
        return [(f[None], self.pipeline_class._prepare_text_ids(f[None]).to(f.device)) for f in features]

    def unpack(self, latents, like):
        """The pipeline takes noise as [C, H, W] and packs it itself; the solver sees rows of tokens."""
        return latents.transpose(1, 2).reshape(latents.shape[0], *like.shape)

    def arguments(self, job):
        return {"guidance_scale": job["guidance"], "image": job["pictures"] or None}

    def call(self, pipe, job, noise, **more):
        """With guidance the pipeline encodes an empty text, for want of an argument for a negative prompt. sumi has one, so
        the second text is replaced."""
        encode_prompt, texts = pipe.encode_prompt, iter((job["prompt"], job["negative"]))
        if job["negative"]:
            self.notes.add("the pipeline has no argument for a negative prompt; the text replaced its empty one")
        pipe.encode_prompt = lambda prompt, **named: encode_prompt(prompt=next(texts), **named)
        return super().call(pipe, job, noise, **more)

    def watch_times(self, pipe):
        """The float32 run gets the times of the bfloat16 run, as in QwenImage.watch_times. This transformer multiplies its
        time by 1000, and in bfloat16 rounds the product too, so the product is what is replaced."""
        embed = pipe.transformer.time_guidance_embed
        forward = embed.forward
        self.notes.add("the float32 run got the times of the bfloat16 run, which sumi has on every backend")

        def with_rounded_times(timestep, guidance):
            rounded = pipe._current_timestep.to(torch.bfloat16) / 1000 * 1000
            return forward(rounded.expand(timestep.shape).to(timestep), guidance)

        embed.forward = with_rounded_times

    def to_vae(self, vae, latents):
        deviation = torch.sqrt(vae.bn.running_var + vae.config.batch_norm_eps)
        latents = latents * deviation.view(1, -1, 1, 1) + vae.bn.running_mean.view(1, -1, 1, 1)
        return vae.decode(self.pipeline_class._unpatchify_latents(latents), return_dict=False)[0]


def stand_in_for_flash_attention():
    """The authors' model imports flash_attn, which needs a GPU. PyTorch's attention computes the same."""
    if importlib.util.find_spec("flash_attn") is not None:
        return
    flash, padding = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.bert_padding")
    flash.__spec__ = padding.__spec__ = importlib.machinery.ModuleSpec("flash_attn", None)

    def varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale=None, **unused):
        out, group = torch.empty_like(q), q.shape[1] // k.shape[1]
        ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
        for i in range(len(ends_q) - 1):
            rows, columns = slice(ends_q[i], ends_q[i + 1]), slice(ends_k[i], ends_k[i + 1])
            heads = [x[columns].repeat_interleave(group, 1).transpose(0, 1)[None] for x in (k, v)]
            made = torch.nn.functional.scaled_dot_product_attention(
                q[rows].transpose(0, 1)[None], *heads, scale=softmax_scale
            )
            out[rows] = made[0].transpose(0, 1)
        return out

    def pad(rows, indices, count, length):
        out = rows.new_zeros(count * length, *rows.shape[1:])
        out[indices] = rows
        return out.view(count, length, *rows.shape[1:])

    flash.flash_attn_varlen_func, padding.pad_input = varlen, pad
    padding.index_first_axis, padding.unpad_input = (lambda rows, indices: rows[indices]), None
    sys.modules["flash_attn"], sys.modules["flash_attn.bert_padding"] = flash, padding


def load_tensors(folder):
    from safetensors.torch import load_file

    tensors = {}
    for path in weight_files(folder):
        tensors.update(load_file(path))
    return tensors


def without_prefix(tensors, ending):
    """The tensors of the module that has one called `ending`, by their names in it."""
    prefix = next((name[: -len(ending)] for name in tensors if name.endswith(ending)), None)
    if prefix is None:
        raise Trouble(f"no tensor of the text encoders ends in {ending}")
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def fit_linear_layers(module, tensors):
    """Gives every linear layer the shape of its weights: some widths are constants in the authors' code."""
    for name, layer in list(module.named_modules()):
        weight = tensors.get(f"{name}.weight")
        if isinstance(layer, torch.nn.Linear) and weight is not None and weight.shape != layer.weight.shape:
            parent, _, last = name.rpartition(".")
            fitting = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=f"{name}.bias" in tensors)
            setattr(module.get_submodule(parent), last, fitting)


class NewBie(Reference):
    # What the authors' model was trained with before a caption; none before an empty one.
    ASSISTANT = "You are an assistant designed to generate high-quality anime images "
    PLAIN = ASSISTANT + "with the highest degree of image-text alignment based on textual prompts. <Prompt Start> "
    MARKUP = ASSISTANT + "based on xml format prompts. <Prompt Start> "
    MAX_TOKENS = {
        "text_encoder": 512,
        "clip_model": 512,
    }  # of training; the authors' demo lets the second one read 2048

    def __init__(self, source, folder, device, offload, say):
        super().__init__(folder, device, offload, say)
        if not (Path(source) / "models" / "model.py").is_file():
            raise Trouble(
                f"{source} has no models/model.py: give the folder of the authors' repository, "
                f"NewBie-image-Exp0.1: --reference-path FOLDER"
            )
        stand_in_for_flash_attention()
        sys.path.insert(0, str(source))

    def tokenizers(self):
        from transformers import PreTrainedTokenizerFast  # AutoTokenizer would ask to run code that clip_model names

        return [
            (name, PreTrainedTokenizerFast.from_pretrained(str(self.folder / name)))
            for name in ("text_encoder", "clip_model")
        ]

    def text_encoder(self, dtype):
        from transformers import Gemma3TextConfig, Gemma3TextModel

        config = read_json(self.folder / "text_encoder" / "config.json")
        config = config.get("text_config", config)
        model = Gemma3TextModel(
            Gemma3TextConfig(**{k: v for k, v in config.items() if k not in ("model_type", "torch_dtype")})
        )
        tensors = without_prefix(load_tensors(self.folder / "text_encoder"), "embed_tokens.weight")
        kept = {name: tensor for name, tensor in tensors.items() if name in model.state_dict()}
        model.load_state_dict(kept)
        # The factor of the embeddings has the type of the weights, bfloat16, when the authors' programs run.
        model.embed_tokens.embed_scale = model.embed_tokens.embed_scale.bfloat16().float()
        model.to(dtype).eval()
        self.place(model)
        return model

    def pooled_encoder(self, dtype):
        """The text tower of Jina CLIP v2 by transformers' Jina Embeddings v3, its adapter added to the weights."""
        from transformers import JinaEmbeddingsV3Config, JinaEmbeddingsV3Model

        tensors = without_prefix(load_tensors(self.folder / "clip_model"), "emb_ln.weight")
        merged = {}
        for name, tensor in tensors.items():
            if ".parametrizations.weight." not in name:
                merged[name] = tensor.float()
            elif name.endswith(".original"):
                base = name[: -len(".parametrizations.weight.original")]
                a, b = (tensors[f"{base}.parametrizations.weight.0.lora_{part}"][0].float() for part in "AB")
                merged[f"{base}.weight"] = tensor.float() + (a @ b if "embeddings" in base else b @ a)
        words = merged["embeddings.word_embeddings.weight"]
        layers = 1 + max(int(name.split(".")[2]) for name in merged if name.startswith("encoder.layers."))
        model = JinaEmbeddingsV3Model(
            JinaEmbeddingsV3Config(
                vocab_size=words.shape[0],
                hidden_size=words.shape[1],
                num_hidden_layers=layers,
                num_attention_heads=words.shape[1] // 64,
                intermediate_size=merged["encoder.layers.0.mlp.fc1.weight"].shape[0],
                max_position_embeddings=8194,
            ),
            add_pooling_layer=False,
        )
        state = {
            "embeddings.word_embeddings.weight": words,
            "embeddings.token_type_embeddings.weight": merged["embeddings.token_type_embeddings.weight"],
        }
        pairs = (
            ("mixer.out_proj", "self_attn.o_proj"),
            ("mlp.fc1", "mlp.fc1"),
            ("mlp.fc2", "mlp.fc2"),
            ("norm1", "post_attention_layernorm"),
            ("norm2", "post_mlp_layernorm"),
        )
        for kind in ("weight", "bias"):
            state[f"embeddings.LayerNorm.{kind}"] = merged[f"emb_ln.{kind}"]
            for n in range(layers):
                for part, rows in zip("qkv", merged[f"encoder.layers.{n}.mixer.Wqkv.{kind}"].chunk(3, 0)):
                    state[f"layers.{n}.self_attn.{part}_proj.{kind}"] = rows
                for theirs, ours in pairs:
                    state[f"layers.{n}.{ours}.{kind}"] = merged[f"encoder.layers.{n}.{theirs}.{kind}"]
        model.load_state_dict(state)
        model.to(dtype).eval()
        self.place(model)
        return model

    def opening(self, text):
        if not text or text.startswith("<Prompt Start>") or "<Prompt Start>" in text:
            return ""
        return self.MARKUP if text.startswith("<") else self.PLAIN

    def encode(self, job, dtype, given_ids=None):
        texts = [job["prompt"]] + ([job["negative"]] if job["negative"] is not None else [])
        ids = given_ids
        if ids is None:
            names, cut = zip(*self.tokenizers())
            limits = [self.MAX_TOKENS[name] for name in names]
            ids = [
                [
                    cut[e]((self.opening(text) if e == 0 else "") + text, truncation=True, max_length=limits[e])[
                        "input_ids"
                    ]
                    for e in range(2)
                ]
                for text in texts
            ]
        encoded = [[(list(map(int, row)), None) for row in rows] for rows in ids]
        with torch.no_grad():
            for e, load in enumerate((self.text_encoder, self.pooled_encoder)):
                model = load(dtype)
                for rows in encoded:
                    row = torch.tensor([rows[e][0]], device=self.device)
                    out = model(input_ids=row, attention_mask=torch.ones_like(row), output_hidden_states=True)
                    features = out.hidden_states[-2][0] if e == 0 else out.last_hidden_state.mean(1)
                    rows[e] = (rows[e][0], features.float().cpu().numpy())
                del model
                self.clear()
        return encoded

    def transformer(self, dtype):
        import models.model as authors

        config = read_json(self.folder / "transformer" / "config.json")
        tensors = load_tensors(self.folder / "transformer")
        dim = config["dim"]
        ffn = tensors["layers.0.feed_forward.w1.weight"].shape[0]
        model = authors.NextDiT_CLIP(
            patch_size=config["patch_size"],
            in_channels=config["in_channels"],
            dim=dim,
            n_layers=config["n_layers"],
            n_refiner_layers=len({name.split(".")[1] for name in tensors if name.startswith("noise_refiner.")}),
            n_heads=config["n_heads"],
            n_kv_heads=config["n_kv_heads"],
            multiple_of=1,
            ffn_dim_multiplier=ffn / (4 * dim),
            norm_eps=1e-5,
            qk_norm=True,
            cap_feat_dim=tensors["cap_embedder.1.weight"].shape[1],
            axes_dims=config["axes_dims"],
            axes_lens=config["axes_lens"],
            clip_text_dim=tensors["clip_text_pooled_proj.1.weight"].shape[1],
        )
        fit_linear_layers(model, tensors)
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        model.to(dtype).eval()
        self.place(model)
        return model

    def denoise(self, job, dtype, features, noise):
        """Euler's method with diffusers' sigmas. forward_with_cfg takes both prompts as a batch, the shorter one padded."""
        from diffusers import FlowMatchEulerDiscreteScheduler

        path = self.folder / "scheduler" / "scheduler_config.json"
        scheduler = FlowMatchEulerDiscreteScheduler(shift=read_json(path).get("shift", 6.0))
        steps = job["steps"]
        scheduler.set_timesteps(sigmas=numpy.linspace(1.0, 1.0 / steps, steps).tolist(), device=self.device)
        guided = len(features) > 1
        length = (max(f[0].shape[0] for f in features) + 7) // 8 * 8
        captions = torch.zeros(len(features), length, features[0][0].shape[1], dtype=dtype, device=self.device)
        mask = torch.zeros(len(features), length, dtype=torch.long, device=self.device)
        for i, rows in enumerate(features):
            captions[i, : len(rows[0])] = torch.from_numpy(rows[0])
            mask[i, : len(rows[0])] = 1
        pooled = torch.cat([torch.from_numpy(rows[1]) for rows in features]).to(self.device, dtype)
        x = torch.from_numpy(noise)[None].to(self.device)
        made, predictions = [], []
        with torch.no_grad():
            model = self.transformer(dtype)
            for t in scheduler.timesteps:
                time = torch.full((len(features),), 1 - float(t) / 1000, device=self.device)
                given = x.repeat(len(features), 1, 1, 1).to(dtype)
                if guided:
                    velocity = model.forward_with_cfg(
                        given,
                        time,
                        captions,
                        mask,
                        cfg_scale=job["guidance"],
                        renorm_cfg=job["norm_limit"],
                        cfg_trunc=100 if job["guidance_end"] >= 1 else job["guidance_end"],
                        clip_text_pooled=pooled,
                    )
                else:
                    velocity = model(given, time, captions, mask, clip_text_pooled=pooled)
                predictions.append(-velocity[:1].float())
                x = scheduler.step(predictions[-1], t, x, return_dict=False)[0]
                made.append(x[0].cpu().numpy())
            del model
        self.clear()
        return {
            "sigmas": scheduler.sigmas.float().cpu().numpy(),
            "prediction": predictions[0][0].cpu().numpy(),
            "latents": numpy.stack(made),
        }

    def decode(self, dtype, latents):
        from diffusers import AutoencoderKL

        with torch.no_grad():
            vae = AutoencoderKL.from_pretrained(str(self.folder / "vae"), **{type_argument(): dtype})
            self.place(vae)
            latents = torch.from_numpy(latents)[None].to(self.device, dtype)
            image = to_bytes(
                vae.decode(latents / vae.config.scaling_factor + vae.config.shift_factor, return_dict=False)[0]
            )
            del vae
        self.clear()
        return image


FAMILIES = {
    "ZImagePipeline": ZImage,
    "QwenImagePipeline": QwenImage,
    "QwenImageEditPipeline": QwenImage,
    "QwenImageEditPlusPipeline": QwenImageEditPlus,
    "QwenImage21Pipeline": QwenImage21,
    "Flux2KleinPipeline": Flux2Klein,
}
EDITS = ("QwenImageEditPipeline", "QwenImageEditPlusPipeline")  # they need a picture
MAY_EDIT = (*EDITS, "QwenImage21Pipeline", "Flux2KleinPipeline")


def open_reference(folder, device, offload, say, source=None):
    """The reference for the checkpoint in a folder. source: the folder of --reference-path."""
    index = Path(folder) / "model_index.json"
    if not index.is_file():
        raise Trouble(
            f"{folder} has no model_index.json: give the folder of a checkpoint as it was released, in the "
            f"layout of diffusers (single files cannot be compared)"
        )
    name = read_json(index).get("_class_name")
    if name == "NewbiePipeline":
        if source is None:
            raise Trouble(
                f"{index} is for {name}, which diffusers does not have: give the folder of the authors' "
                f"repository, NewBie-image-Exp0.1: --reference-path FOLDER"
            )
        return name, NewBie(source, folder, device, offload, say)
    if name not in FAMILIES:
        raise Trouble(
            f"{index} is for {name}, which is not known here: the known ones are {', '.join([*FAMILIES, 'NewbiePipeline'])}"
        )
    import diffusers

    pipeline_class = getattr(diffusers, name, None)
    if pipeline_class is None:
        raise Trouble(f"diffusers {diffusers.__version__} has no {name}: python3 -m pip install --upgrade diffusers")
    return name, FAMILIES[name](pipeline_class, folder, device, offload, say)
