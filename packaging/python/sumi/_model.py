"""Models, and what is made with them: images, encoded prompts, latents, adapters, control nets."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from dataclasses import dataclass
from typing import Any, AsyncIterator, Callable, List, Optional, Sequence, Tuple, Union

from . import _abi, _buffers
from ._abi import ControlInfo, DepthFormat, DepthKind, Format, GuidanceRule, Memory, ModelInfo, NoiseSource, Preset, PromptFormat, Result, Solver
from ._engine import Engine, Job, _fetch_object, _pause, path_bytes, text_bytes
from ._library import library
from ._png import encode_png

MAX_SEED = 2**64 - 1


class _Object:
    """What an engine holds for the host program; a context manager."""

    _kind = ""

    def __init__(self, engine: Engine, handle: int) -> None:
        self.engine = engine
        self._handle: Optional[int] = handle

    def close(self) -> None:
        """Frees it now. Waits for the running slice. Jobs that use a model, an adapter or a net are cancelled."""
        if self._handle is None or self.engine.closed:
            self._handle = None
            return
        with self.engine._inside():
            if self._handle is not None:
                self.engine._drop(self._kind, self._handle)
                self._handle = None

    def _alive(self) -> int:
        self.engine._alive()
        if self._handle is None:
            raise _closed(self._kind)
        return self._handle

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.engine._release(self._kind, self._handle)


def _closed(kind: str) -> Exception:
    from .errors import CallerError

    return CallerError(Result.STALE_HANDLE, f"the {kind} is closed")


class Prompt(_Object):
    """An encoded prompt."""

    _kind = "prompt"

    def save(self, format: PromptFormat = PromptFormat.F32) -> bytes:
        """For a file; Model.load_prompt reads it. BF16 takes half the bytes of F32, INT8 about a quarter."""
        format = PromptFormat(format)
        with self.engine._inside():
            size = library.sumi_prompt_save_as(self._alive(), format, None, 0)
            into = ctypes.create_string_buffer(size)
            library.sumi_prompt_save_as(self._alive(), format, into, size)
            return into.raw

    @property
    def reference_count(self) -> int:
        with self.engine._inside():
            return int(library.sumi_prompt_get_info(self._alive()).reference_count)

    @property
    def adapters(self) -> str:
        """The adapters that changed the features, "NAME:SCALE, NAME:SCALE", for people to read."""
        with self.engine._inside():
            return str((library.sumi_prompt_get_info(self._alive()).adapters or b"").decode())

    @property
    def features(self) -> List[Any]:
        """Of each text encoder, a copy as float32 [tokens, width]. Needs NumPy."""
        numpy = _numpy("features")
        with self.engine._inside():
            info = library.sumi_prompt_get_info(self._alive())
            found = []
            for encoder in info.encoders[: info.encoder_count]:
                values = ctypes.string_at(encoder.features, encoder.token_count * encoder.width * 4)
                found.append(numpy.frombuffer(values, "float32").reshape(encoder.token_count, encoder.width).copy())
            return found


class Lora(_Object):
    """An adapter, for the model that it was read for."""

    _kind = "lora"


class Control(_Object):
    """A control net, for the model that it was read for."""

    _kind = "control net"

    @property
    def info(self) -> ControlInfo:
        with self.engine._inside():
            return ControlInfo.read(library.sumi_control_get_info(self._alive()))


@dataclass
class Depth:
    """A depth buffer for ControlUse: float32, or uint16 where 65535 stands for 1 (with DISTANCE for `far`). An array
    [height, width], or numbers in one row (array.array, memoryview) with `size`. Width x height in the image's shape avoids
    distortion. "Depth buffers" in sumi.h says which greys the net sees."""

    values: Any
    kind: DepthKind = DepthKind.STANDARD
    near: float = 0.0  # of the camera; DISTANCE reads far only, where 0 is infinity
    far: float = 0.0
    low: float = 0.0  # the distances that become white and black, for sequences; both 0: from this picture
    high: float = 0.0
    size: Optional[Tuple[int, int]] = None  # (width, height), for values in one row
    bottom_up: bool = False  # the first row is the lowest


@dataclass
class ControlUse:
    """A net, and the control picture that images follow: uint8 [height, width] or [height, width, channels], such as white
    edges on black, or a Depth; a list has one for each prompt. In the steps from `start` to `end`, parts of all steps. A net that takes
    inpainting also reads an image and a mask, which is white where it is to be painted again."""

    control: Control
    picture: Any = None
    strength: Optional[float] = None  # None: the net's usual one
    start: float = 0.0
    end: float = 1.0
    inpaint: Any = None
    mask: Any = None


@dataclass
class Image:
    """A finished image. `pixels` is a NumPy array [height, width, channels] (a bytearray without NumPy), or the tensor on a
    GPU that was given for it. numpy.asarray(image) and from_dlpack(image) take it without a copy."""

    pixels: Any
    width: int
    height: int
    format: Format
    seed: int
    step_count: int
    evaluation_count: int
    reused_count: int
    predicted_db: float
    has_alpha: bool  # straight alpha of the model is the fourth channel; False: it is opaque, or there is none

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        if copy:
            return _numpy("arrays").array(self.pixels, dtype)
        return _numpy("arrays").asarray(self.pixels, dtype)

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.pixels.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.pixels.__dlpack_device__()

    def png(self) -> bytes:
        """The bytes of a PNG file; for RGB8 and RGBA8 in host memory."""
        if self.format not in (Format.RGB8, Format.RGBA8):
            raise TypeError(f"a PNG has 8 bits, not {self.format.name}")
        return encode_png(memoryview(self.pixels).tobytes(), self.width, self.height, _buffers.FORMATS[self.format][0])

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        with open(path, "wb") as file:
            file.write(self.png())


@dataclass
class Preview:
    """An estimate of an image while it is made, with one pixel per latent: uint8 [height, width, 4]."""

    pixels: Any
    width: int
    height: int
    version: int  # grows with each new preview
    step: int
    step_count: int


class ImageJob(Job[List[Image]]):
    """A job that makes images."""

    _preview_size = (0, 0)
    _image_size = (0, 0)
    _latent_shape = (0, 0, 0)

    def preview(self, item: int = 0) -> Optional[Preview]:
        """The newest preview of one image, or None before the first one (and without preview_every)."""
        width, height = self._preview_size
        memory, address = _buffers.empty(width, height, Format.RGBA8)
        image = _abi.sumi_image()
        with self._status_lock:
            status = self.poll()
            if self._final is not None or status.preview_version == 0:
                return None
            with self._engine._freely() as handle:
                self._engine._try(library.sumi_job_preview, handle, self._job, item, address, width * height * 4, ctypes.byref(image))
        return Preview(memory, image.width, image.height, status.preview_version, status.step, status.step_count)

    def latents(self, item: int = 0) -> Any:
        """The final latents of one image of a finished job, float32 [channel, height, width]. Before result(), which frees
        them. Needs NumPy."""
        array = _numpy("latents").empty(self._latent_shape, "float32")
        with self._engine._inside() as handle:
            self._engine._try(library.sumi_job_latents, handle, self._job, item, array.ctypes.data, array.size)
        return array

    def control_picture(self, control: int = 0, item: int = 0) -> Any:
        """What a control net saw for one image of a finished job: uint8 [height, width, 3], a bytearray without NumPy. Before
        result()."""
        width, height = self._image_size
        memory, address = _buffers.empty(width, height, Format.RGB8)
        view = _abi.sumi_control_view(control=control, item=item, into=address, capacity=width * height * 3)
        with self._engine._inside() as handle:
            self._engine._try(library.sumi_job_control_picture, handle, self._job, ctypes.byref(view))
        return memory

    async def previews(self, item: int = 0) -> AsyncIterator[Preview]:
        """Each new preview, until the job has finished. A loop that is slower than the job misses some. The product is
        fetched by `await job` afterwards."""
        seen = 0
        begin = time.monotonic()
        try:
            while True:
                finished = self._look()
                preview = self.preview(item) if self.poll().preview_version > seen else None
                if preview is not None:
                    seen = preview.version
                    begin = time.monotonic()
                    yield preview
                if finished:
                    return
                await asyncio.sleep(_pause(time.monotonic() - begin))
        except asyncio.CancelledError:
            if not self._engine.closed:
                self.cancel()
            raise


PromptOrText = Union[str, Prompt]
# An adapter; or with its scale; or with another scale for its layers of text encoders, where 0 leaves these out.
LoraUse = Union[Lora, Tuple[Lora, float], Tuple[Lora, float, float]]


def _lora_uses(loras: Sequence[LoraUse]) -> Any:
    uses = (_abi.sumi_lora_use * len(loras))()
    for use, given in zip(uses, loras):
        values: Tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
        use.lora = values[0]._alive()
        use.scale = values[1] if len(values) > 1 else 1.0
        use.text_scale = values[2] if len(values) > 2 else 0.0
        use.without_text = len(values) > 2 and values[2] == 0
    return uses


def _depth(given: Depth, keep: List[Any]) -> Any:
    depth = library.sumi_depth_defaults()
    depth.data, bits, (depth.width, depth.height) = _buffers.depth_of(given.values, given.size, keep)
    depth.format = DepthFormat.F32 if bits == 32 else DepthFormat.U16
    depth.kind, depth.bottom_up = DepthKind(given.kind), given.bottom_up
    depth.near_plane, depth.far_plane, depth.low, depth.high = given.near, given.far, given.low, given.high
    return depth


def _control_part(name: str, picture: Any, keep: List[Any]) -> Any:
    """What a member of sumi_control_picture points to, or None."""
    if isinstance(picture, Depth) and name == "picture":
        return _depth(picture, keep)
    return None if picture is None else _buffers.pixels_array([picture], keep)


def _control_uses(controls: Sequence[ControlUse], keep: List[Any]) -> Any:
    uses = (_abi.sumi_control_use * len(controls))()
    for i, given in enumerate(controls):
        use = library.sumi_control_use_defaults(given.control._alive())
        members = [each if isinstance(each, (list, tuple)) else [each] for each in (given.picture, given.inpaint, given.mask)]
        use.picture_count = max(len(each) for each in members)
        pictures = (_abi.sumi_control_picture * use.picture_count)()
        for name, each in zip(("picture", "inpaint", "mask"), members):
            if len(each) not in (1, use.picture_count):
                raise ValueError(f"{name} of a control net has {len(each)} pictures and another member {use.picture_count}")
            parts = [_control_part(name, picture, keep) for picture in each]
            for n, to in enumerate(pictures):
                part = parts[n % len(parts)]
                if isinstance(part, _abi.sumi_depth):
                    to.depth = ctypes.pointer(part)
                elif part is not None:
                    setattr(to, name, part)
        keep.append(pictures)
        use.pictures = pictures
        if given.strength is not None:
            use.strength = given.strength
        use.start, use.end = given.start, given.end
        uses[i] = use
    return uses



class Model(_Object):
    """An opened checkpoint; Engine.open_model makes it. Closing it cancels its jobs."""

    _kind = "model"

    @property
    def info(self) -> ModelInfo:
        with self.engine._inside():
            return ModelInfo.read(library.sumi_model_get_info(self._alive()))

    @property
    def sizes(self) -> List[Tuple[int, int]]:
        """The sizes in pixels that the model's authors name, their default first."""
        with self.engine._inside():
            info = library.sumi_model_get_info(self._alive())
            return [(info.sizes[i].width, info.sizes[i].height) for i in range(info.size_count)]

    # ---- Images ----
    def generate(self, prompt: Union[PromptOrText, Sequence[PromptOrText]], **settings: Any) -> List[Image]:
        """Makes one image for each prompt and waits for them; submit() has the settings."""
        return self.submit(prompt, **settings).result()

    def submit(
        self,
        prompt: Union[PromptOrText, Sequence[PromptOrText]],
        *,
        seed: Union[int, Sequence[int]] = 0,
        size: Optional[Tuple[int, int]] = None,
        preset: Preset = Preset.MODEL,
        steps: Optional[int] = None,
        solver: Optional[Solver] = None,
        guidance: Optional[float] = None,
        guidance_begin: Optional[float] = None,
        guidance_end: Optional[float] = None,
        guidance_rule: Optional[GuidanceRule] = None,
        guidance_norm_limit: Optional[float] = None,
        negative: Union[PromptOrText, Sequence[Optional[PromptOrText]], None] = None,
        references: Sequence[Any] = (),
        image: Any = None,
        latents: Any = None,
        strength: Optional[float] = None,
        mask: Any = None,
        mask_feather: Optional[int] = None,
        loras: Sequence[LoraUse] = (),
        controls: Sequence[ControlUse] = (),
        shift: Optional[float] = None,
        sigmas: Optional[Sequence[float]] = None,
        noise: Optional[NoiseSource] = None,
        noise_values: Any = None,
        format: Format = Format.RGB8,
        into: Optional[Sequence[Any]] = None,
        preview_every: int = 0,
        deadline: Optional[float] = None,
        step_cache: float = 0,
        step_cache_db: float = 0,
        step_cache_every: int = 0,
        priority: int = 0,
    ) -> ImageJob:
        """Makes one image for each prompt in a job. What is None is the preset's.

        seed        of each image; one number counts up over the images.
        size        width and height in pixels.
        guidance    the number on the model's card. `negative`: what to move away from.
        references  pictures that the prompt of an edit model refers to, uint8 [height, width, channels].
        image       to start from instead of noise (or its `latents`), with `strength`: 0.6, and 1 with a mask.
        mask        where it is white the image is repainted; uint8 or bool [height, width].
        loras       adapters, or tuples of an adapter, its scale, and a scale for its layers of text encoders (0: without).
        controls    control nets with the pictures that images follow (ControlUse).
        format      of the image: RGB8 and RGBA8 are uint8 arrays, RGB32F float32, RGBA16F float16. RGBA8 and RGBA16F have the
                    alpha of models that make it (info.has_alpha), the others its colours without it.
        into        for each image a tensor on the engine's GPU in its primary context (or cuda_context), [height, width,
                    channels] of the format's type, with __cuda_array_interface__ or __dlpack__. The image stays on the GPU.
                    Nothing else may use the tensor until the job has finished; finish your own work on it before. sumi links
                    no CUDA runtime, so it lets you allocate with the library that you use.
        deadline    in seconds: leaves out steps to be done by then.
        step_cache_db     with 20 steps or more: skip work as far as the image is predicted to keep this PSNR, such as 40.
        step_cache_every  instead: compute the first two evaluations, every n-th after them and the last.
        step_cache        instead: the change over which evaluations are reused; 0.05 to 0.12 are usual.
        """
        keep: List[Any] = []
        engine = self.engine
        with engine._inside() as handle:
            desc = library.sumi_image_defaults(self._alive(), preset)
            # Images
            prompts = [prompt] if isinstance(prompt, (str, Prompt)) else list(prompt)
            seeds = [(seed + i) & MAX_SEED for i in range(len(prompts))] if isinstance(seed, int) else list(seed)
            negatives = [negative] * len(prompts) if negative is None or isinstance(negative, (str, Prompt)) else list(negative)
            if len(seeds) != len(prompts) or len(negatives) != len(prompts):
                raise ValueError(f"{len(prompts)} prompts have {len(seeds)} seeds and {len(negatives)} negative prompts")
            if isinstance(seed, int) and not 0 <= seed <= MAX_SEED or any(not 0 <= one <= MAX_SEED for one in seeds):
                raise ValueError("a seed is 0 to 2**64 - 1")
            items = (_abi.sumi_image_item * max(len(prompts), 1))()
            for item, positive, other, number in zip(items, prompts, negatives, seeds):
                item.seed = number
                if isinstance(positive, Prompt):
                    item.prompt = positive._alive()
                else:
                    item.text = text_bytes(positive)
                if isinstance(other, Prompt):
                    item.negative_prompt = other._alive()
                elif other is not None:
                    item.negative_text = text_bytes(other)
            desc.items = items
            desc.item_count = len(prompts)
            if size is not None:
                desc.width, desc.height = size
            # Steps and guidance
            if steps is not None:
                desc.step_count = steps
            if solver is not None:
                desc.solver = solver
            if guidance is not None:
                desc.guidance.scale = guidance
            if guidance_begin is not None:
                desc.guidance.begin = guidance_begin
            if guidance_end is not None:
                desc.guidance.end = guidance_end
            if guidance_rule is not None:
                desc.guidance.rule = guidance_rule
            if guidance_norm_limit is not None:
                desc.guidance.norm_limit = guidance_norm_limit
            if shift is not None:
                desc.shift = shift
            if sigmas is not None:
                if steps is None:
                    desc.step_count = len(sigmas) - 1
                desc.sigmas = _buffers.floats_of(sigmas, desc.step_count + 1, "sigmas", keep)
            # Where it starts
            if references:
                desc.references = _buffers.pixels_array(references, keep)
                desc.reference_count = len(references)
            if image is not None:
                desc.start.image = _buffers.pixels_array([image], keep)
            if mask is not None:
                desc.start.mask = _buffers.pixels_array([mask], keep)
                desc.start.strength = 1.0
            if strength is not None:
                desc.start.strength = strength
            if mask_feather is not None:
                desc.start.mask_feather = mask_feather
            # Adapters
            if loras:
                desc.loras = _lora_uses(loras)
                desc.lora_count = len(loras)
            if controls:
                desc.controls = _control_uses(controls, keep)
                desc.control_count = len(controls)
            desc.preview_every = preview_every
            desc.deadline_ms = 0 if deadline is None else min(max(int(deadline * 1000), 1), _abi.FOREVER - 1)
            desc.step_cache = step_cache
            desc.step_cache_db = step_cache_db
            desc.step_cache_every = step_cache_every
            desc.priority = priority

            # What depends on the size of the images, which only the library knows if there are references.
            found = _abi.sumi_size()
            engine._try(library.sumi_image_size, ctypes.byref(desc), ctypes.byref(found))
            info = library.sumi_model_get_info(self._alive())
            latent_size = found.width // info.latent_factor, found.height // info.latent_factor
            latent_count = info.latent_channels * latent_size[0] * latent_size[1]
            if latents is not None:
                desc.start.latents = _buffers.floats_of(latents, latent_count, "latents", keep)
            if noise is not None:
                desc.noise.source = noise
            if noise_values is not None:
                desc.noise.source = NoiseSource.GIVEN
                desc.noise.values = _buffers.floats_of(noise_values, latent_count * len(prompts), "noise values", keep)
            targets, memories, held = self._targets(len(prompts), found.width, found.height, Format(format), into)
            desc.targets = targets
            job = _abi.sumi_job()
            engine._try(library.sumi_submit_images, handle, ctypes.byref(desc), ctypes.byref(job))

        def fetch(handle: int, job: _abi.sumi_job) -> Tuple[int, Callable[[], List[Image]]]:
            images = (_abi.sumi_image * len(memories))()
            result = library.sumi_fetch_images(handle, job, images, len(memories))
            return result, lambda: [
                Image(memory, one.width, one.height, Format(one.format), one.seed, one.step_count, one.evaluation_count, one.reused_count, one.predicted_db, one.has_alpha)
                for memory, one in zip(memories, images)
            ]

        found_job = ImageJob(engine, job, fetch, (memories, held, loras, controls, self))
        found_job._preview_size = found.width // 8, found.height // 8
        found_job._image_size = found.width, found.height
        found_job._latent_shape = (info.latent_channels, latent_size[1], latent_size[0])
        return found_job

    @staticmethod
    def _targets(count: int, width: int, height: int, format: Format, into: Optional[Sequence[Any]]) -> Tuple[Any, List[Any], List[Any]]:
        if into is not None and len(into) != count:
            raise ValueError(f"{count} images have {len(into)} tensors")
        targets = (_abi.sumi_target * max(count, 1))()
        memories: List[Any] = []
        held: List[Any] = []
        for i in range(count):
            targets[i].format = format
            if into is None:
                memory, targets[i].host_memory = _buffers.empty(width, height, format)
            else:
                memory = into[i]
                targets[i].device_address, targets[i].row_bytes = _buffers.device_memory(memory, width, height, format, held)
            memories.append(memory)
        return targets, memories, held

    def memory(self, *, size: Optional[Tuple[int, int]] = None, count: int = 1, preset: Preset = Preset.MODEL) -> Memory:
        """The bytes that `count` images of this size would take, before any are allocated."""
        with self.engine._inside() as handle:
            desc = library.sumi_image_defaults(self._alive(), preset)
            items = (_abi.sumi_image_item * max(count, 1))()
            for item in items:
                item.text = b"a prompt of usual length"
            desc.items, desc.item_count = items, count
            if size is not None:
                desc.width, desc.height = size
            memory = _abi.sumi_memory()
            self.engine._try(library.sumi_image_memory, handle, ctypes.byref(desc), ctypes.byref(memory))
            return Memory.read(memory)

    # ---- Encoded prompts, latents, adapters, control nets ----
    def encode_prompt(self, text: str, references: Sequence[Any] = (), loras: Sequence[LoraUse] = ()) -> Prompt:
        """Encodes a text, to be used for many images, and waits for it. Give the adapters that the images will have."""
        return self.submit_prompt(text, references, loras).result()

    def submit_prompt(
        self, text: str, references: Sequence[Any] = (), loras: Sequence[LoraUse] = (), *, priority: int = 0
    ) -> Job[Prompt]:
        keep: List[Any] = []
        with self.engine._inside() as handle:
            desc = library.sumi_prompt_defaults(self._alive())
            desc.text = text_bytes(text)
            if references:
                desc.references = _buffers.pixels_array(references, keep)
                desc.reference_count = len(references)
            if loras:
                desc.loras = _lora_uses(loras)
                desc.lora_count = len(loras)
            desc.priority = priority
            job = _abi.sumi_job()
            self.engine._try(library.sumi_submit_prompt, handle, ctypes.byref(desc), ctypes.byref(job))
        held = (self, loras)  # an adapter that is collected would cancel the job
        return Job(self.engine, job, _fetch_object(library.sumi_fetch_prompt, lambda prompt: Prompt(self.engine, prompt)), held)

    def load_prompt(self, data: bytes) -> Prompt:
        """Reads what Prompt.save() returned."""
        prompt = ctypes.c_void_p()
        with self.engine._inside():
            self.engine._try(library.sumi_prompt_load, self._alive(), bytes(data), len(data), ctypes.byref(prompt))
        return Prompt(self.engine, prompt.value or 0)

    def load_lora(self, path: Union[str, os.PathLike[str]]) -> Lora:
        """Reads an adapter and waits for it."""
        return self.submit_lora(path).result()

    def submit_lora(self, path: Union[str, os.PathLike[str]], *, priority: int = 0) -> Job[Lora]:
        with self.engine._inside() as handle:
            desc = library.sumi_lora_defaults(self._alive())
            desc.path = path_bytes(path)
            desc.priority = priority
            job = _abi.sumi_job()
            self.engine._try(library.sumi_submit_lora, handle, ctypes.byref(desc), ctypes.byref(job))
        return Job(self.engine, job, _fetch_object(library.sumi_fetch_lora, lambda lora: Lora(self.engine, lora)), self)

    def load_control(self, path: Union[str, os.PathLike[str]]) -> Control:
        """Reads a control net, a file or a diffusers folder, and waits for it."""
        return self.submit_control(path).result()

    def submit_control(self, path: Union[str, os.PathLike[str]], *, priority: int = 0) -> Job[Control]:
        with self.engine._inside() as handle:
            desc = library.sumi_control_defaults(self._alive())
            desc.path = path_bytes(path)
            desc.priority = priority
            job = _abi.sumi_job()
            self.engine._try(library.sumi_submit_control, handle, ctypes.byref(desc), ctypes.byref(job))
        return Job(self.engine, job, _fetch_object(library.sumi_fetch_control, lambda control: Control(self.engine, control)), self)

    def encode_image(self, image: Any, size: Optional[Tuple[int, int]] = None) -> Any:
        """An image as latents, float32 [channel, height, width], from which images can start. Needs NumPy."""
        return self.submit_encode(image, size).result()

    def submit_encode(self, image: Any, size: Optional[Tuple[int, int]] = None, *, priority: int = 0) -> Job[Any]:
        numpy = _numpy("latents")
        keep: List[Any] = []
        with self.engine._inside() as handle:
            desc = library.sumi_encode_defaults(self._alive())
            desc.image = _buffers.pixels_array([image], keep)
            if size is not None:
                desc.width, desc.height = size
            desc.priority = priority
            info = library.sumi_model_get_info(self._alive())
            array = numpy.empty((info.latent_channels, desc.height // info.latent_factor, desc.width // info.latent_factor), "float32")
            job = _abi.sumi_job()
            self.engine._try(library.sumi_submit_encode, handle, ctypes.byref(desc), ctypes.byref(job))

        def fetch(handle: int, job: _abi.sumi_job) -> Tuple[int, Callable[[], Any]]:
            return library.sumi_fetch_latents(handle, job, array.ctypes.data, array.size), lambda: array

        return Job(self.engine, job, fetch, self)


def _numpy(what: str) -> Any:
    if _buffers.numpy is None:
        raise ImportError(f"{what} need NumPy, which is not installed")
    return _buffers.numpy
