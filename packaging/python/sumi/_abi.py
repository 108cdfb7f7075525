# Generated from tests/abi_0_2.txt by packaging/python/generate.py. Do not edit.
"""Every enum, struct and function of sumi.h, as ctypes has it. Names are those of the header."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Dict, Optional, Sequence, Tuple

VERSION_NUMBER = 2000  # any patch version does
FOREVER = 0xFFFFFFFF
STAGE_COUNT = 9
MEMORY_KIND_COUNT = 4


class _Checked(Structure):
    """A struct that refuses whole numbers that do not fit, of which ctypes would keep the low bits."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, int) and value:
            kept = getattr(self, name)
            if not isinstance(kept, float) and kept != value:
                raise ValueError(f"{name} is {value}, which is out of range")


class Result(IntEnum):
    OK = 0
    INVALID_ARGUMENT = 1
    DESC_NOT_INITIALIZED = 2
    STALE_HANDLE = 3
    WRONG_STATE = 4
    QUEUE_FULL = 5
    NOT_SUPPORTED = 6
    VERSION_MISMATCH = 7
    BUSY = 8
    OUT_OF_HOST_MEMORY = 10
    OUT_OF_DEVICE_MEMORY = 11
    BUDGET_TOO_SMALL = 12
    FILE_NOT_FOUND = 20
    FILE_READ_FAILED = 21
    FILE_TRUNCATED = 22
    FILE_MALFORMED = 23
    MODEL_UNKNOWN = 30
    TENSOR_MISSING = 31
    TENSOR_MISMATCH = 32
    LORA_NO_MATCH = 33
    TEXT_INVALID = 34
    NO_DEVICE = 40
    DRIVER_TOO_OLD = 41
    DEVICE_UNSUPPORTED = 42
    DEVICE_LOST = 43
    CANCELLED = 50
    TIMEOUT = 51
    NOT_FINITE = 52
    INTERNAL = 90


class LogLevel(IntEnum):
    ERROR = 0
    WARNING = 1
    INFO = 2
    DEBUG = 3


class Backend(IntEnum):
    AUTO = 0
    CPU = 1
    CUDA = 2


class Pump(IntEnum):
    UPDATE = 0
    THREAD = 1


class WeightFormat(IntEnum):
    AUTO = 0
    BF16 = 1
    FP8 = 2
    AS_STORED = 3
    INT8 = 4
    INT4 = 5


class AttentionFormat(IntEnum):
    AUTO = 0
    BF16 = 1
    EIGHT_BIT = 2


class GuidanceFormula(IntEnum):
    FROM_POSITIVE = 0
    FROM_NEGATIVE = 1


class GuidanceRule(IntEnum):
    MODEL = 0
    PLAIN = 1
    NORM_LIMIT = 2
    NORM_RESCALE = 3


class JobState(IntEnum):
    NONE = 0
    QUEUED = 1
    RUNNING = 2
    DONE = 3
    FAILED = 4
    CANCELLED = 5


class Stage(IntEnum):
    WAIT = 0
    LOAD = 1
    PREPARE = 2
    TEXT = 3
    IMAGE = 4
    DENOISE = 5
    DECODE = 6
    TRANSFER = 7
    COMPILE = 8


class Preset(IntEnum):
    MODEL = 0
    PREVIEW = 1
    STANDARD = 2
    QUALITY = 3
    FAST = 4
    LEAN = 5


class Solver(IntEnum):
    EULER = 0
    HEUN = 1
    MIDPOINT = 2
    DPMPP_2M = 3
    HEUN_FULL = 4
    RK4 = 5
    RES_MULTISTEP = 6


class Format(IntEnum):
    RGBA8 = 0
    RGB8 = 1
    RGB32F = 2
    BGRA8 = 3
    RGBA16F = 4


class NoiseSource(IntEnum):
    TORCH_CPU = 0
    TORCH_CUDA = 1
    GIVEN = 2


class Posterior(IntEnum):
    SAMPLE = 0
    MODE = 1


class MemoryKind(IntEnum):
    WEIGHTS = 0
    ARENA = 1
    IMAGE = 2
    STAGING = 3


class PromptFormat(IntEnum):
    F32 = 0
    BF16 = 1
    INT8 = 2


class ExternalKind(IntEnum):
    NONE = 0
    GL_TEXTURE = 1
    GL_BUFFER = 2
    VULKAN_MEMORY = 3
    D3D12_RESOURCE = 4
    D3D12_HEAP = 5
    D3D11_RESOURCE = 6
    D3D11_TEXTURE = 7
    VULKAN_TIMELINE = 20
    VULKAN_SEMAPHORE = 21
    D3D12_FENCE = 22
    D3D11_FENCE = 23
    D3D11_KEYED_MUTEX = 24


class DepthFormat(IntEnum):
    F32 = 0
    U16 = 1


class DepthKind(IntEnum):
    STANDARD = 0
    REVERSED = 1
    OPENGL = 2
    DISTANCE = 3


class Track(IntEnum):
    HOST = 0
    DEVICE = 1


# ---- Structs: all of them first, because some point to later ones ----


class sumi_engine_desc_cuda(_Checked):
    pass


class sumi_job(_Checked):
    pass


class sumi_log(_Checked):
    pass


class sumi_engine_desc(_Checked):
    pass


class sumi_model_desc(_Checked):
    pass


class sumi_size(_Checked):
    pass


class sumi_model_info(_Checked):
    pass


class sumi_job_status(_Checked):
    pass


class sumi_pixels(_Checked):
    pass


class sumi_image_item(_Checked):
    pass


class sumi_guidance(_Checked):
    pass


class sumi_noise(_Checked):
    pass


class sumi_image_start(_Checked):
    pass


class sumi_image_desc(_Checked):
    pass


class sumi_image(_Checked):
    pass


class sumi_allocator(_Checked):
    pass


class sumi_files(_Checked):
    pass


class sumi_tasks(_Checked):
    pass


class sumi_completion(_Checked):
    pass


class sumi_device_allocator(_Checked):
    pass


class sumi_memory(_Checked):
    pass


class sumi_engine_info(_Checked):
    pass


class sumi_prompt_desc(_Checked):
    pass


class sumi_prompt_encoder(_Checked):
    pass


class sumi_prompt_info(_Checked):
    pass


class sumi_lora_desc(_Checked):
    pass


class sumi_lora_use(_Checked):
    pass


class sumi_control_desc(_Checked):
    pass


class sumi_control_info(_Checked):
    pass


class sumi_control_picture(_Checked):
    pass


class sumi_control_use(_Checked):
    pass


class sumi_control_view(_Checked):
    pass


class sumi_sync(_Checked):
    pass


class sumi_target(_Checked):
    pass


class sumi_import_desc(_Checked):
    pass


class sumi_depth(_Checked):
    pass


class sumi_encode_desc(_Checked):
    pass


class sumi_trace_span(_Checked):
    pass


class sumi_tracer(_Checked):
    pass


class sumi_profile_row(_Checked):
    pass


class sumi_xml_character(_Checked):
    pass


class sumi_xml_tags(_Checked):
    pass


class sumi_xml_prompt_desc(_Checked):
    pass


sumi_job._fields_ = [
    ("id", c_uint64),
]
sumi_log_write = CFUNCTYPE(None, c_int32, c_int32, c_char_p, c_void_p)
sumi_log._fields_ = [
    ("write", sumi_log_write),
    ("user_data", c_void_p),
]
sumi_engine_desc_cuda._fields_ = [
    ("ordinal", c_int32),
    ("uuid", c_void_p),
    ("luid", c_void_p),
    ("context", c_void_p),
    ("stream", c_void_p),
]
sumi_engine_desc._fields_ = [
    ("cookie", c_uint32),
    ("backend", c_int32),
    ("cuda", sumi_engine_desc_cuda),
    ("log", sumi_log),
    ("allocator", POINTER(sumi_allocator)),
    ("device_allocator", POINTER(sumi_device_allocator)),
    ("files", POINTER(sumi_files)),
    ("tasks", POINTER(sumi_tasks)),
    ("completion", POINTER(sumi_completion)),
    ("tracer", POINTER(sumi_tracer)),
    ("pump", c_int32),
    ("job_capacity", c_int32),
    ("max_slice_us", c_uint32),
    ("memory_budget_bytes", c_uint64),
    ("cpu_thread_count", c_int32),
]
sumi_model_desc._fields_ = [
    ("cookie", c_uint32),
    ("path", c_char_p),
    ("transformer_path", c_char_p),
    ("text_encoder_path", c_char_p),
    ("tokenizer_path", c_char_p),
    ("vae_path", c_char_p),
    ("weights", c_int32),
    ("without_text_encoder", c_bool),
    ("without_vae_encoder", c_bool),
    ("priority", c_int32),
    ("user_data", c_void_p),
    ("text_encoder_2_path", c_char_p),
    ("tokenizer_2_path", c_char_p),
    ("vision_path", c_char_p),
    ("processor_path", c_char_p),
    ("variant", c_char_p),
    ("text_weights", c_int32),
    ("attention", c_int32),
]
sumi_size._fields_ = [
    ("width", c_int32),
    ("height", c_int32),
]
sumi_model_info._fields_ = [
    ("family", c_char_p),
    ("variant", c_char_p),
    ("takes_references", c_bool),
    ("uses_guidance", c_bool),
    ("has_text_encoder", c_bool),
    ("has_vae_encoder", c_bool),
    ("has_alpha", c_bool),
    ("guidance", c_float),
    ("guidance_off", c_float),
    ("guidance_formula", c_int32),
    ("guidance_rule", c_int32),
    ("ignores_guidance", c_bool),
    ("negative_text", c_char_p),
    ("size_multiple", c_int32),
    ("max_size", c_int32),
    ("native_size", c_int32),
    ("sizes", POINTER(sumi_size)),
    ("size_count", c_int32),
    ("latent_channels", c_int32),
    ("latent_factor", c_int32),
    ("max_prompt_tokens", c_int32),
    ("weight_bytes", c_uint64),
    ("min_references", c_int32),
    ("max_references", c_int32),
    ("weights", c_int32),
    ("text_weights", c_int32),
    ("attention", c_int32),
]
sumi_job_status._fields_ = [
    ("state", c_int32),
    ("stage", c_int32),
    ("step", c_int32),
    ("step_count", c_int32),
    ("progress", c_float),
    ("seconds_left", c_float),
    ("preview_version", c_uint32),
    ("result", c_int32),
    ("message", c_char_p),
    ("stage_seconds", c_float * 9),
    ("device_seconds", c_double),
    ("pending_us", c_float),
    ("jobs_ahead", c_int32),
    ("held_bytes", c_uint64 * 4),
    ("cut_tokens", c_int32),
    ("user_data", c_void_p),
    ("paused", c_bool),
]
sumi_pixels._fields_ = [
    ("data", c_void_p),
    ("width", c_int32),
    ("height", c_int32),
    ("row_bytes", c_int32),
    ("channel_count", c_int32),
]
sumi_image_item._fields_ = [
    ("text", c_char_p),
    ("prompt", c_void_p),
    ("negative_text", c_char_p),
    ("negative_prompt", c_void_p),
    ("seed", c_uint64),
]
sumi_guidance._fields_ = [
    ("scale", c_float),
    ("begin", c_float),
    ("end", c_float),
    ("rule", c_int32),
    ("norm_limit", c_float),
]
sumi_noise._fields_ = [
    ("source", c_int32),
    ("multiprocessors", c_int32),
    ("threads_per_multiprocessor", c_int32),
    ("values", c_void_p),
]
sumi_image_start._fields_ = [
    ("image", POINTER(sumi_pixels)),
    ("latents", c_void_p),
    ("strength", c_float),
    ("posterior", c_int32),
    ("noise_values", c_void_p),
    ("mask", POINTER(sumi_pixels)),
    ("mask_feather", c_int32),
]
sumi_image_desc._fields_ = [
    ("cookie", c_uint32),
    ("model", c_void_p),
    ("items", POINTER(sumi_image_item)),
    ("item_count", c_int32),
    ("width", c_int32),
    ("height", c_int32),
    ("step_count", c_int32),
    ("solver", c_int32),
    ("guidance", sumi_guidance),
    ("shift", c_float),
    ("sigmas", c_void_p),
    ("noise", sumi_noise),
    ("start", sumi_image_start),
    ("references", POINTER(sumi_pixels)),
    ("reference_count", c_int32),
    ("loras", POINTER(sumi_lora_use)),
    ("lora_count", c_int32),
    ("targets", POINTER(sumi_target)),
    ("preview_every", c_int32),
    ("deadline_ms", c_uint32),
    ("step_cache", c_float),
    ("profile", c_bool),
    ("priority", c_int32),
    ("user_data", c_void_p),
    ("controls", POINTER(sumi_control_use)),
    ("control_count", c_int32),
    ("step_cache_db", c_float),
    ("step_cache_every", c_int32),
]
sumi_image._fields_ = [
    ("pixels", c_void_p),
    ("width", c_int32),
    ("height", c_int32),
    ("row_bytes", c_int32),
    ("format", c_int32),
    ("seed", c_uint64),
    ("step_count", c_int32),
    ("evaluation_count", c_int32),
    ("reused_count", c_int32),
    ("predicted_db", c_float),
    ("has_alpha", c_bool),
    ("handle", c_uint64),
]
sumi_allocator_allocate = CFUNCTYPE(c_void_p, c_size_t, c_size_t, c_void_p)
sumi_allocator_release = CFUNCTYPE(None, c_void_p, c_size_t, c_void_p)
sumi_allocator._fields_ = [
    ("allocate", sumi_allocator_allocate),
    ("release", sumi_allocator_release),
    ("user_data", c_void_p),
]
sumi_files_open = CFUNCTYPE(c_void_p, c_char_p, c_void_p, c_void_p)
sumi_files_read = CFUNCTYPE(c_bool, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p)
sumi_files_map = CFUNCTYPE(c_void_p, c_void_p, c_void_p)
sumi_files_close = CFUNCTYPE(None, c_void_p, c_void_p)
sumi_files._fields_ = [
    ("open", sumi_files_open),
    ("read", sumi_files_read),
    ("map", sumi_files_map),
    ("close", sumi_files_close),
    ("user_data", c_void_p),
]
sumi_tasks_begin = CFUNCTYPE(c_void_p, c_void_p, c_int32, c_int32, c_void_p, c_void_p)
sumi_tasks_finish = CFUNCTYPE(None, c_void_p, c_void_p)
sumi_tasks._fields_ = [
    ("worker_count", c_int32),
    ("begin", sumi_tasks_begin),
    ("finish", sumi_tasks_finish),
    ("user_data", c_void_p),
]
sumi_completion_ended = CFUNCTYPE(None, sumi_job, c_int32, c_void_p, c_void_p)
sumi_completion._fields_ = [
    ("ended", sumi_completion_ended),
    ("user_data", c_void_p),
]
sumi_device_allocator_allocate = CFUNCTYPE(c_uint64, c_size_t, c_size_t, c_int32, c_void_p)
sumi_device_allocator_release = CFUNCTYPE(None, c_uint64, c_size_t, c_int32, c_void_p)
sumi_device_allocator._fields_ = [
    ("allocate", sumi_device_allocator_allocate),
    ("release", sumi_device_allocator_release),
    ("user_data", c_void_p),
]
sumi_memory._fields_ = [
    ("weights", c_uint64),
    ("arena", c_uint64),
    ("staging", c_uint64),
    ("images", c_uint64),
    ("host", c_uint64),
    ("tiles_vae", c_bool),
    ("streamed", c_uint64),
    ("uncounted", c_uint64),
    ("needed", c_uint64),
]
sumi_engine_info._fields_ = [
    ("backend", c_char_p),
    ("device", c_char_p),
    ("compute_capability", c_int32),
    ("driver_version", c_int32),
    ("device_bytes", c_uint64),
    ("held_bytes", c_uint64 * 4),
    ("host_bytes", c_uint64),
    ("host_peak_bytes", c_uint64),
    ("allocation_count", c_uint64),
    ("job_count", c_int32),
    ("uncounted_bytes", c_uint64),
    ("device_uuid", c_uint8 * 16),
    ("device_luid", c_uint8 * 8),
]
sumi_prompt_desc._fields_ = [
    ("cookie", c_uint32),
    ("model", c_void_p),
    ("text", c_char_p),
    ("references", POINTER(sumi_pixels)),
    ("reference_count", c_int32),
    ("priority", c_int32),
    ("user_data", c_void_p),
    ("loras", POINTER(sumi_lora_use)),
    ("lora_count", c_int32),
]
sumi_prompt_encoder._fields_ = [
    ("token_count", c_int32),
    ("width", c_int32),
    ("features", c_void_p),
]
sumi_prompt_info._fields_ = [
    ("encoder_count", c_int32),
    ("encoders", sumi_prompt_encoder * 4),
    ("reference_count", c_int32),
    ("adapters", c_char_p),
]
sumi_lora_desc._fields_ = [
    ("cookie", c_uint32),
    ("model", c_void_p),
    ("path", c_char_p),
    ("priority", c_int32),
    ("user_data", c_void_p),
]
sumi_lora_use._fields_ = [
    ("lora", c_void_p),
    ("scale", c_float),
    ("text_scale", c_float),
    ("without_text", c_bool),
]
sumi_control_desc._fields_ = [
    ("cookie", c_uint32),
    ("model", c_void_p),
    ("path", c_char_p),
    ("priority", c_int32),
    ("user_data", c_void_p),
]
sumi_control_info._fields_ = [
    ("kind", c_char_p),
    ("strength", c_float),
    ("takes_picture", c_bool),
    ("takes_inpainting", c_bool),
    ("weight_bytes", c_uint64),
]
sumi_control_picture._fields_ = [
    ("picture", POINTER(sumi_pixels)),
    ("inpaint", POINTER(sumi_pixels)),
    ("mask", POINTER(sumi_pixels)),
    ("depth", POINTER(sumi_depth)),
]
sumi_control_use._fields_ = [
    ("control", c_void_p),
    ("pictures", POINTER(sumi_control_picture)),
    ("picture_count", c_int32),
    ("strength", c_float),
    ("start", c_float),
    ("end", c_float),
]
sumi_control_view._fields_ = [
    ("control", c_int32),
    ("item", c_int32),
    ("into", c_void_p),
    ("capacity", c_size_t),
]
sumi_sync._fields_ = [
    ("semaphore", c_void_p),
    ("value", c_uint64),
]
sumi_target._fields_ = [
    ("format", c_int32),
    ("host_memory", c_void_p),
    ("row_bytes", c_int32),
    ("device_address", c_uint64),
    ("event", c_void_p),
    ("external", c_void_p),
    ("bottom_up", c_bool),
    ("wait", sumi_sync),
    ("signal", sumi_sync),
]
sumi_import_desc._fields_ = [
    ("cookie", c_uint32),
    ("kind", c_int32),
    ("fd", c_int32),
    ("handle", c_void_p),
    ("gl_name", c_uint32),
    ("gl_target", c_uint32),
    ("device_uuid", c_void_p),
    ("device_luid", c_void_p),
    ("width", c_int32),
    ("height", c_int32),
    ("format", c_int32),
    ("is_image", c_bool),
    ("is_color_attachment", c_bool),
    ("level_count", c_int32),
    ("row_bytes", c_int32),
    ("memory_bytes", c_uint64),
    ("offset", c_uint64),
    ("is_dedicated", c_bool),
    ("takes_previews", c_bool),
    ("is_depth", c_bool),
]
sumi_depth._fields_ = [
    ("data", c_void_p),
    ("format", c_int32),
    ("width", c_int32),
    ("height", c_int32),
    ("row_bytes", c_int32),
    ("bottom_up", c_bool),
    ("kind", c_int32),
    ("near_plane", c_float),
    ("far_plane", c_float),
    ("low", c_float),
    ("high", c_float),
    ("external", c_void_p),
    ("wait", sumi_sync),
    ("signal", sumi_sync),
]
sumi_encode_desc._fields_ = [
    ("cookie", c_uint32),
    ("model", c_void_p),
    ("image", POINTER(sumi_pixels)),
    ("width", c_int32),
    ("height", c_int32),
    ("posterior", c_int32),
    ("seed", c_uint64),
    ("noise_values", c_void_p),
    ("priority", c_int32),
    ("user_data", c_void_p),
]
sumi_trace_span._fields_ = [
    ("name", c_char_p),
    ("track", c_int32),
    ("stage", c_int32),
    ("step", c_int32),
    ("job", c_uint64),
    ("begin_ns", c_uint64),
    ("end_ns", c_uint64),
]
sumi_tracer_span = CFUNCTYPE(None, POINTER(sumi_trace_span), c_void_p)
sumi_tracer._fields_ = [
    ("span", sumi_tracer_span),
    ("user_data", c_void_p),
]
sumi_profile_row._fields_ = [
    ("stage", c_int32),
    ("name", c_char * 48),
    ("count", c_int32),
    ("seconds", c_double),
    ("flops", c_double),
    ("bytes", c_double),
]
sumi_xml_character._fields_ = [
    ("name", c_char_p),
    ("gender", c_char_p),
    ("appearance", c_char_p),
    ("clothing", c_char_p),
    ("body_type", c_char_p),
    ("expression", c_char_p),
    ("action", c_char_p),
    ("interaction", c_char_p),
    ("position", c_char_p),
]
sumi_xml_tags._fields_ = [
    ("count", c_char_p),
    ("artists", c_char_p),
    ("style", c_char_p),
    ("background", c_char_p),
    ("environment", c_char_p),
    ("perspective", c_char_p),
    ("atmosphere", c_char_p),
    ("lighting", c_char_p),
    ("resolution", c_char_p),
    ("quality", c_char_p),
    ("objects", c_char_p),
    ("other", c_char_p),
    ("extra_tags", c_char_p),
]
sumi_xml_prompt_desc._fields_ = [
    ("cookie", c_uint32),
    ("indent", c_int32),
    ("characters", POINTER(sumi_xml_character)),
    ("character_count", c_int32),
    ("tags", sumi_xml_tags),
    ("caption", c_char_p),
    ("log", sumi_log),
]

# Struct, member, offset, bytes.
_LAYOUT: Sequence[Tuple[Any, str, int, int]] = (
    (sumi_job, "id", 0, 8),
    (sumi_log, "write", 0, 8),
    (sumi_log, "user_data", 8, 8),
    (sumi_engine_desc, "cookie", 0, 4),
    (sumi_engine_desc, "backend", 4, 4),
    (sumi_engine_desc, "cuda", 8, 40),
    (sumi_engine_desc, "cuda.ordinal", 8, 4),
    (sumi_engine_desc, "cuda.uuid", 16, 8),
    (sumi_engine_desc, "cuda.luid", 24, 8),
    (sumi_engine_desc, "cuda.context", 32, 8),
    (sumi_engine_desc, "cuda.stream", 40, 8),
    (sumi_engine_desc, "log", 48, 16),
    (sumi_engine_desc, "allocator", 64, 8),
    (sumi_engine_desc, "device_allocator", 72, 8),
    (sumi_engine_desc, "files", 80, 8),
    (sumi_engine_desc, "tasks", 88, 8),
    (sumi_engine_desc, "completion", 96, 8),
    (sumi_engine_desc, "tracer", 104, 8),
    (sumi_engine_desc, "pump", 112, 4),
    (sumi_engine_desc, "job_capacity", 116, 4),
    (sumi_engine_desc, "max_slice_us", 120, 4),
    (sumi_engine_desc, "memory_budget_bytes", 128, 8),
    (sumi_engine_desc, "cpu_thread_count", 136, 4),
    (sumi_model_desc, "cookie", 0, 4),
    (sumi_model_desc, "path", 8, 8),
    (sumi_model_desc, "transformer_path", 16, 8),
    (sumi_model_desc, "text_encoder_path", 24, 8),
    (sumi_model_desc, "tokenizer_path", 32, 8),
    (sumi_model_desc, "vae_path", 40, 8),
    (sumi_model_desc, "weights", 48, 4),
    (sumi_model_desc, "without_text_encoder", 52, 1),
    (sumi_model_desc, "without_vae_encoder", 53, 1),
    (sumi_model_desc, "priority", 56, 4),
    (sumi_model_desc, "user_data", 64, 8),
    (sumi_model_desc, "text_encoder_2_path", 72, 8),
    (sumi_model_desc, "tokenizer_2_path", 80, 8),
    (sumi_model_desc, "vision_path", 88, 8),
    (sumi_model_desc, "processor_path", 96, 8),
    (sumi_model_desc, "variant", 104, 8),
    (sumi_model_desc, "text_weights", 112, 4),
    (sumi_model_desc, "attention", 116, 4),
    (sumi_size, "width", 0, 4),
    (sumi_size, "height", 4, 4),
    (sumi_model_info, "family", 0, 8),
    (sumi_model_info, "variant", 8, 8),
    (sumi_model_info, "takes_references", 16, 1),
    (sumi_model_info, "uses_guidance", 17, 1),
    (sumi_model_info, "has_text_encoder", 18, 1),
    (sumi_model_info, "has_vae_encoder", 19, 1),
    (sumi_model_info, "has_alpha", 20, 1),
    (sumi_model_info, "guidance", 24, 4),
    (sumi_model_info, "guidance_off", 28, 4),
    (sumi_model_info, "guidance_formula", 32, 4),
    (sumi_model_info, "guidance_rule", 36, 4),
    (sumi_model_info, "ignores_guidance", 40, 1),
    (sumi_model_info, "negative_text", 48, 8),
    (sumi_model_info, "size_multiple", 56, 4),
    (sumi_model_info, "max_size", 60, 4),
    (sumi_model_info, "native_size", 64, 4),
    (sumi_model_info, "sizes", 72, 8),
    (sumi_model_info, "size_count", 80, 4),
    (sumi_model_info, "latent_channels", 84, 4),
    (sumi_model_info, "latent_factor", 88, 4),
    (sumi_model_info, "max_prompt_tokens", 92, 4),
    (sumi_model_info, "weight_bytes", 96, 8),
    (sumi_model_info, "min_references", 104, 4),
    (sumi_model_info, "max_references", 108, 4),
    (sumi_model_info, "weights", 112, 4),
    (sumi_model_info, "text_weights", 116, 4),
    (sumi_model_info, "attention", 120, 4),
    (sumi_job_status, "state", 0, 4),
    (sumi_job_status, "stage", 4, 4),
    (sumi_job_status, "step", 8, 4),
    (sumi_job_status, "step_count", 12, 4),
    (sumi_job_status, "progress", 16, 4),
    (sumi_job_status, "seconds_left", 20, 4),
    (sumi_job_status, "preview_version", 24, 4),
    (sumi_job_status, "result", 28, 4),
    (sumi_job_status, "message", 32, 8),
    (sumi_job_status, "stage_seconds", 40, 36),
    (sumi_job_status, "device_seconds", 80, 8),
    (sumi_job_status, "pending_us", 88, 4),
    (sumi_job_status, "jobs_ahead", 92, 4),
    (sumi_job_status, "held_bytes", 96, 32),
    (sumi_job_status, "cut_tokens", 128, 4),
    (sumi_job_status, "user_data", 136, 8),
    (sumi_job_status, "paused", 144, 1),
    (sumi_pixels, "data", 0, 8),
    (sumi_pixels, "width", 8, 4),
    (sumi_pixels, "height", 12, 4),
    (sumi_pixels, "row_bytes", 16, 4),
    (sumi_pixels, "channel_count", 20, 4),
    (sumi_image_item, "text", 0, 8),
    (sumi_image_item, "prompt", 8, 8),
    (sumi_image_item, "negative_text", 16, 8),
    (sumi_image_item, "negative_prompt", 24, 8),
    (sumi_image_item, "seed", 32, 8),
    (sumi_guidance, "scale", 0, 4),
    (sumi_guidance, "begin", 4, 4),
    (sumi_guidance, "end", 8, 4),
    (sumi_guidance, "rule", 12, 4),
    (sumi_guidance, "norm_limit", 16, 4),
    (sumi_noise, "source", 0, 4),
    (sumi_noise, "multiprocessors", 4, 4),
    (sumi_noise, "threads_per_multiprocessor", 8, 4),
    (sumi_noise, "values", 16, 8),
    (sumi_image_start, "image", 0, 8),
    (sumi_image_start, "latents", 8, 8),
    (sumi_image_start, "strength", 16, 4),
    (sumi_image_start, "posterior", 20, 4),
    (sumi_image_start, "noise_values", 24, 8),
    (sumi_image_start, "mask", 32, 8),
    (sumi_image_start, "mask_feather", 40, 4),
    (sumi_image_desc, "cookie", 0, 4),
    (sumi_image_desc, "model", 8, 8),
    (sumi_image_desc, "items", 16, 8),
    (sumi_image_desc, "item_count", 24, 4),
    (sumi_image_desc, "width", 28, 4),
    (sumi_image_desc, "height", 32, 4),
    (sumi_image_desc, "step_count", 36, 4),
    (sumi_image_desc, "solver", 40, 4),
    (sumi_image_desc, "guidance", 44, 20),
    (sumi_image_desc, "shift", 64, 4),
    (sumi_image_desc, "sigmas", 72, 8),
    (sumi_image_desc, "noise", 80, 24),
    (sumi_image_desc, "start", 104, 48),
    (sumi_image_desc, "references", 152, 8),
    (sumi_image_desc, "reference_count", 160, 4),
    (sumi_image_desc, "loras", 168, 8),
    (sumi_image_desc, "lora_count", 176, 4),
    (sumi_image_desc, "targets", 184, 8),
    (sumi_image_desc, "preview_every", 192, 4),
    (sumi_image_desc, "deadline_ms", 196, 4),
    (sumi_image_desc, "step_cache", 200, 4),
    (sumi_image_desc, "profile", 204, 1),
    (sumi_image_desc, "priority", 208, 4),
    (sumi_image_desc, "user_data", 216, 8),
    (sumi_image_desc, "controls", 224, 8),
    (sumi_image_desc, "control_count", 232, 4),
    (sumi_image_desc, "step_cache_db", 236, 4),
    (sumi_image_desc, "step_cache_every", 240, 4),
    (sumi_image, "pixels", 0, 8),
    (sumi_image, "width", 8, 4),
    (sumi_image, "height", 12, 4),
    (sumi_image, "row_bytes", 16, 4),
    (sumi_image, "format", 20, 4),
    (sumi_image, "seed", 24, 8),
    (sumi_image, "step_count", 32, 4),
    (sumi_image, "evaluation_count", 36, 4),
    (sumi_image, "reused_count", 40, 4),
    (sumi_image, "predicted_db", 44, 4),
    (sumi_image, "has_alpha", 48, 1),
    (sumi_image, "handle", 56, 8),
    (sumi_allocator, "allocate", 0, 8),
    (sumi_allocator, "release", 8, 8),
    (sumi_allocator, "user_data", 16, 8),
    (sumi_files, "open", 0, 8),
    (sumi_files, "read", 8, 8),
    (sumi_files, "map", 16, 8),
    (sumi_files, "close", 24, 8),
    (sumi_files, "user_data", 32, 8),
    (sumi_tasks, "worker_count", 0, 4),
    (sumi_tasks, "begin", 8, 8),
    (sumi_tasks, "finish", 16, 8),
    (sumi_tasks, "user_data", 24, 8),
    (sumi_completion, "ended", 0, 8),
    (sumi_completion, "user_data", 8, 8),
    (sumi_device_allocator, "allocate", 0, 8),
    (sumi_device_allocator, "release", 8, 8),
    (sumi_device_allocator, "user_data", 16, 8),
    (sumi_memory, "weights", 0, 8),
    (sumi_memory, "arena", 8, 8),
    (sumi_memory, "staging", 16, 8),
    (sumi_memory, "images", 24, 8),
    (sumi_memory, "host", 32, 8),
    (sumi_memory, "tiles_vae", 40, 1),
    (sumi_memory, "streamed", 48, 8),
    (sumi_memory, "uncounted", 56, 8),
    (sumi_memory, "needed", 64, 8),
    (sumi_engine_info, "backend", 0, 8),
    (sumi_engine_info, "device", 8, 8),
    (sumi_engine_info, "compute_capability", 16, 4),
    (sumi_engine_info, "driver_version", 20, 4),
    (sumi_engine_info, "device_bytes", 24, 8),
    (sumi_engine_info, "held_bytes", 32, 32),
    (sumi_engine_info, "host_bytes", 64, 8),
    (sumi_engine_info, "host_peak_bytes", 72, 8),
    (sumi_engine_info, "allocation_count", 80, 8),
    (sumi_engine_info, "job_count", 88, 4),
    (sumi_engine_info, "uncounted_bytes", 96, 8),
    (sumi_engine_info, "device_uuid", 104, 16),
    (sumi_engine_info, "device_luid", 120, 8),
    (sumi_prompt_desc, "cookie", 0, 4),
    (sumi_prompt_desc, "model", 8, 8),
    (sumi_prompt_desc, "text", 16, 8),
    (sumi_prompt_desc, "references", 24, 8),
    (sumi_prompt_desc, "reference_count", 32, 4),
    (sumi_prompt_desc, "priority", 36, 4),
    (sumi_prompt_desc, "user_data", 40, 8),
    (sumi_prompt_desc, "loras", 48, 8),
    (sumi_prompt_desc, "lora_count", 56, 4),
    (sumi_prompt_encoder, "token_count", 0, 4),
    (sumi_prompt_encoder, "width", 4, 4),
    (sumi_prompt_encoder, "features", 8, 8),
    (sumi_prompt_info, "encoder_count", 0, 4),
    (sumi_prompt_info, "encoders", 8, 64),
    (sumi_prompt_info, "reference_count", 72, 4),
    (sumi_prompt_info, "adapters", 80, 8),
    (sumi_lora_desc, "cookie", 0, 4),
    (sumi_lora_desc, "model", 8, 8),
    (sumi_lora_desc, "path", 16, 8),
    (sumi_lora_desc, "priority", 24, 4),
    (sumi_lora_desc, "user_data", 32, 8),
    (sumi_lora_use, "lora", 0, 8),
    (sumi_lora_use, "scale", 8, 4),
    (sumi_lora_use, "text_scale", 12, 4),
    (sumi_lora_use, "without_text", 16, 1),
    (sumi_control_desc, "cookie", 0, 4),
    (sumi_control_desc, "model", 8, 8),
    (sumi_control_desc, "path", 16, 8),
    (sumi_control_desc, "priority", 24, 4),
    (sumi_control_desc, "user_data", 32, 8),
    (sumi_control_info, "kind", 0, 8),
    (sumi_control_info, "strength", 8, 4),
    (sumi_control_info, "takes_picture", 12, 1),
    (sumi_control_info, "takes_inpainting", 13, 1),
    (sumi_control_info, "weight_bytes", 16, 8),
    (sumi_control_picture, "picture", 0, 8),
    (sumi_control_picture, "inpaint", 8, 8),
    (sumi_control_picture, "mask", 16, 8),
    (sumi_control_picture, "depth", 24, 8),
    (sumi_control_use, "control", 0, 8),
    (sumi_control_use, "pictures", 8, 8),
    (sumi_control_use, "picture_count", 16, 4),
    (sumi_control_use, "strength", 20, 4),
    (sumi_control_use, "start", 24, 4),
    (sumi_control_use, "end", 28, 4),
    (sumi_control_view, "control", 0, 4),
    (sumi_control_view, "item", 4, 4),
    (sumi_control_view, "into", 8, 8),
    (sumi_control_view, "capacity", 16, 8),
    (sumi_sync, "semaphore", 0, 8),
    (sumi_sync, "value", 8, 8),
    (sumi_target, "format", 0, 4),
    (sumi_target, "host_memory", 8, 8),
    (sumi_target, "row_bytes", 16, 4),
    (sumi_target, "device_address", 24, 8),
    (sumi_target, "event", 32, 8),
    (sumi_target, "external", 40, 8),
    (sumi_target, "bottom_up", 48, 1),
    (sumi_target, "wait", 56, 16),
    (sumi_target, "signal", 72, 16),
    (sumi_import_desc, "cookie", 0, 4),
    (sumi_import_desc, "kind", 4, 4),
    (sumi_import_desc, "fd", 8, 4),
    (sumi_import_desc, "handle", 16, 8),
    (sumi_import_desc, "gl_name", 24, 4),
    (sumi_import_desc, "gl_target", 28, 4),
    (sumi_import_desc, "device_uuid", 32, 8),
    (sumi_import_desc, "device_luid", 40, 8),
    (sumi_import_desc, "width", 48, 4),
    (sumi_import_desc, "height", 52, 4),
    (sumi_import_desc, "format", 56, 4),
    (sumi_import_desc, "is_image", 60, 1),
    (sumi_import_desc, "is_color_attachment", 61, 1),
    (sumi_import_desc, "level_count", 64, 4),
    (sumi_import_desc, "row_bytes", 68, 4),
    (sumi_import_desc, "memory_bytes", 72, 8),
    (sumi_import_desc, "offset", 80, 8),
    (sumi_import_desc, "is_dedicated", 88, 1),
    (sumi_import_desc, "takes_previews", 89, 1),
    (sumi_import_desc, "is_depth", 90, 1),
    (sumi_depth, "data", 0, 8),
    (sumi_depth, "format", 8, 4),
    (sumi_depth, "width", 12, 4),
    (sumi_depth, "height", 16, 4),
    (sumi_depth, "row_bytes", 20, 4),
    (sumi_depth, "bottom_up", 24, 1),
    (sumi_depth, "kind", 28, 4),
    (sumi_depth, "near_plane", 32, 4),
    (sumi_depth, "far_plane", 36, 4),
    (sumi_depth, "low", 40, 4),
    (sumi_depth, "high", 44, 4),
    (sumi_depth, "external", 48, 8),
    (sumi_depth, "wait", 56, 16),
    (sumi_depth, "signal", 72, 16),
    (sumi_encode_desc, "cookie", 0, 4),
    (sumi_encode_desc, "model", 8, 8),
    (sumi_encode_desc, "image", 16, 8),
    (sumi_encode_desc, "width", 24, 4),
    (sumi_encode_desc, "height", 28, 4),
    (sumi_encode_desc, "posterior", 32, 4),
    (sumi_encode_desc, "seed", 40, 8),
    (sumi_encode_desc, "noise_values", 48, 8),
    (sumi_encode_desc, "priority", 56, 4),
    (sumi_encode_desc, "user_data", 64, 8),
    (sumi_trace_span, "name", 0, 8),
    (sumi_trace_span, "track", 8, 4),
    (sumi_trace_span, "stage", 12, 4),
    (sumi_trace_span, "step", 16, 4),
    (sumi_trace_span, "job", 24, 8),
    (sumi_trace_span, "begin_ns", 32, 8),
    (sumi_trace_span, "end_ns", 40, 8),
    (sumi_tracer, "span", 0, 8),
    (sumi_tracer, "user_data", 8, 8),
    (sumi_profile_row, "stage", 0, 4),
    (sumi_profile_row, "name", 4, 48),
    (sumi_profile_row, "count", 52, 4),
    (sumi_profile_row, "seconds", 56, 8),
    (sumi_profile_row, "flops", 64, 8),
    (sumi_profile_row, "bytes", 72, 8),
    (sumi_xml_character, "name", 0, 8),
    (sumi_xml_character, "gender", 8, 8),
    (sumi_xml_character, "appearance", 16, 8),
    (sumi_xml_character, "clothing", 24, 8),
    (sumi_xml_character, "body_type", 32, 8),
    (sumi_xml_character, "expression", 40, 8),
    (sumi_xml_character, "action", 48, 8),
    (sumi_xml_character, "interaction", 56, 8),
    (sumi_xml_character, "position", 64, 8),
    (sumi_xml_tags, "count", 0, 8),
    (sumi_xml_tags, "artists", 8, 8),
    (sumi_xml_tags, "style", 16, 8),
    (sumi_xml_tags, "background", 24, 8),
    (sumi_xml_tags, "environment", 32, 8),
    (sumi_xml_tags, "perspective", 40, 8),
    (sumi_xml_tags, "atmosphere", 48, 8),
    (sumi_xml_tags, "lighting", 56, 8),
    (sumi_xml_tags, "resolution", 64, 8),
    (sumi_xml_tags, "quality", 72, 8),
    (sumi_xml_tags, "objects", 80, 8),
    (sumi_xml_tags, "other", 88, 8),
    (sumi_xml_tags, "extra_tags", 96, 8),
    (sumi_xml_prompt_desc, "cookie", 0, 4),
    (sumi_xml_prompt_desc, "indent", 4, 4),
    (sumi_xml_prompt_desc, "characters", 8, 8),
    (sumi_xml_prompt_desc, "character_count", 16, 4),
    (sumi_xml_prompt_desc, "tags", 24, 104),
    (sumi_xml_prompt_desc, "caption", 128, 8),
    (sumi_xml_prompt_desc, "log", 136, 16),
)
_SIZES: Sequence[Tuple[Any, int]] = (
    (sumi_job, 8),
    (sumi_log, 16),
    (sumi_engine_desc, 144),
    (sumi_model_desc, 120),
    (sumi_size, 8),
    (sumi_model_info, 128),
    (sumi_job_status, 152),
    (sumi_pixels, 24),
    (sumi_image_item, 40),
    (sumi_guidance, 20),
    (sumi_noise, 24),
    (sumi_image_start, 48),
    (sumi_image_desc, 248),
    (sumi_image, 64),
    (sumi_allocator, 24),
    (sumi_files, 40),
    (sumi_tasks, 32),
    (sumi_completion, 16),
    (sumi_device_allocator, 24),
    (sumi_memory, 72),
    (sumi_engine_info, 128),
    (sumi_prompt_desc, 64),
    (sumi_prompt_encoder, 16),
    (sumi_prompt_info, 88),
    (sumi_lora_desc, 40),
    (sumi_lora_use, 24),
    (sumi_control_desc, 40),
    (sumi_control_info, 24),
    (sumi_control_picture, 32),
    (sumi_control_use, 32),
    (sumi_control_view, 24),
    (sumi_sync, 16),
    (sumi_target, 88),
    (sumi_import_desc, 96),
    (sumi_depth, 88),
    (sumi_encode_desc, 72),
    (sumi_trace_span, 48),
    (sumi_tracer, 16),
    (sumi_profile_row, 80),
    (sumi_xml_character, 72),
    (sumi_xml_tags, 104),
    (sumi_xml_prompt_desc, 152),
)


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

# ---- What the library returns, without its pointers ----


@dataclass(frozen=True)
class EngineInfo:
    backend: str
    device: str
    compute_capability: int
    driver_version: int
    device_bytes: int
    held_bytes: Tuple[int, ...]
    host_bytes: int
    host_peak_bytes: int
    allocation_count: int
    job_count: int
    uncounted_bytes: int
    device_uuid: bytes
    device_luid: bytes

    @classmethod
    def read(cls, raw: Any) -> EngineInfo:
        return cls(
            backend=(raw.backend or b"").decode(),
            device=(raw.device or b"").decode(),
            compute_capability=raw.compute_capability,
            driver_version=raw.driver_version,
            device_bytes=raw.device_bytes,
            held_bytes=tuple(raw.held_bytes),
            host_bytes=raw.host_bytes,
            host_peak_bytes=raw.host_peak_bytes,
            allocation_count=raw.allocation_count,
            job_count=raw.job_count,
            uncounted_bytes=raw.uncounted_bytes,
            device_uuid=bytes(raw.device_uuid),
            device_luid=bytes(raw.device_luid),
        )


@dataclass(frozen=True)
class ModelInfo:
    family: str
    variant: str
    takes_references: bool
    uses_guidance: bool
    has_text_encoder: bool
    has_vae_encoder: bool
    has_alpha: bool
    guidance: float
    guidance_off: float
    guidance_formula: GuidanceFormula
    guidance_rule: GuidanceRule
    ignores_guidance: bool
    negative_text: str
    size_multiple: int
    max_size: int
    native_size: int
    size_count: int
    latent_channels: int
    latent_factor: int
    max_prompt_tokens: int
    weight_bytes: int
    min_references: int
    max_references: int
    weights: WeightFormat
    text_weights: WeightFormat
    attention: AttentionFormat

    @classmethod
    def read(cls, raw: Any) -> ModelInfo:
        return cls(
            family=(raw.family or b"").decode(),
            variant=(raw.variant or b"").decode(),
            takes_references=raw.takes_references,
            uses_guidance=raw.uses_guidance,
            has_text_encoder=raw.has_text_encoder,
            has_vae_encoder=raw.has_vae_encoder,
            has_alpha=raw.has_alpha,
            guidance=raw.guidance,
            guidance_off=raw.guidance_off,
            guidance_formula=GuidanceFormula(raw.guidance_formula),
            guidance_rule=GuidanceRule(raw.guidance_rule),
            ignores_guidance=raw.ignores_guidance,
            negative_text=(raw.negative_text or b"").decode(),
            size_multiple=raw.size_multiple,
            max_size=raw.max_size,
            native_size=raw.native_size,
            size_count=raw.size_count,
            latent_channels=raw.latent_channels,
            latent_factor=raw.latent_factor,
            max_prompt_tokens=raw.max_prompt_tokens,
            weight_bytes=raw.weight_bytes,
            min_references=raw.min_references,
            max_references=raw.max_references,
            weights=WeightFormat(raw.weights),
            text_weights=WeightFormat(raw.text_weights),
            attention=AttentionFormat(raw.attention),
        )


@dataclass(frozen=True)
class JobStatus:
    state: JobState
    stage: Stage
    step: int
    step_count: int
    progress: float
    seconds_left: float
    preview_version: int
    result: Result
    message: str
    stage_seconds: Tuple[float, ...]
    device_seconds: float
    pending_us: float
    jobs_ahead: int
    held_bytes: Tuple[int, ...]
    cut_tokens: int
    paused: bool

    @classmethod
    def read(cls, raw: Any) -> JobStatus:
        return cls(
            state=JobState(raw.state),
            stage=Stage(raw.stage),
            step=raw.step,
            step_count=raw.step_count,
            progress=raw.progress,
            seconds_left=raw.seconds_left,
            preview_version=raw.preview_version,
            result=Result(raw.result),
            message=(raw.message or b"").decode(),
            stage_seconds=tuple(raw.stage_seconds),
            device_seconds=raw.device_seconds,
            pending_us=raw.pending_us,
            jobs_ahead=raw.jobs_ahead,
            held_bytes=tuple(raw.held_bytes),
            cut_tokens=raw.cut_tokens,
            paused=raw.paused,
        )


@dataclass(frozen=True)
class ControlInfo:
    kind: str
    strength: float
    takes_picture: bool
    takes_inpainting: bool
    weight_bytes: int

    @classmethod
    def read(cls, raw: Any) -> ControlInfo:
        return cls(
            kind=(raw.kind or b"").decode(),
            strength=raw.strength,
            takes_picture=raw.takes_picture,
            takes_inpainting=raw.takes_inpainting,
            weight_bytes=raw.weight_bytes,
        )


@dataclass(frozen=True)
class Memory:
    weights: int
    arena: int
    staging: int
    images: int
    host: int
    tiles_vae: bool
    streamed: int
    uncounted: int
    needed: int

    @classmethod
    def read(cls, raw: Any) -> Memory:
        return cls(
            weights=raw.weights,
            arena=raw.arena,
            staging=raw.staging,
            images=raw.images,
            host=raw.host,
            tiles_vae=raw.tiles_vae,
            streamed=raw.streamed,
            uncounted=raw.uncounted,
            needed=raw.needed,
        )


# Name: result, arguments.
FUNCTIONS: Dict[str, Tuple[Optional[Any], Sequence[Any]]] = {
    "sumi_result_text": (c_char_p, (c_int32,)),
    "sumi_version": (c_char_p, ()),
    "sumi_check_version": (c_int32, (c_uint32,)),
    "sumi_engine_defaults": (sumi_engine_desc, ()),
    "sumi_engine_create": (c_int32, (POINTER(sumi_engine_desc), POINTER(c_void_p),)),
    "sumi_engine_destroy": (None, (c_void_p,)),
    "sumi_engine_update": (None, (c_void_p, c_uint32,)),
    "sumi_engine_last_error": (c_int32, (c_void_p, c_void_p, c_size_t,)),
    "sumi_model_defaults": (sumi_model_desc, ()),
    "sumi_submit_model": (c_int32, (c_void_p, POINTER(sumi_model_desc), POINTER(sumi_job),)),
    "sumi_fetch_model": (c_int32, (c_void_p, sumi_job, POINTER(c_void_p),)),
    "sumi_model_get_info": (sumi_model_info, (c_void_p,)),
    "sumi_model_close": (None, (c_void_p,)),
    "sumi_job_poll": (sumi_job_status, (c_void_p, sumi_job,)),
    "sumi_job_cancel": (None, (c_void_p, sumi_job,)),
    "sumi_job_wait": (c_int32, (c_void_p, sumi_job, c_uint32,)),
    "sumi_job_discard": (None, (c_void_p, sumi_job,)),
    "sumi_image_defaults": (sumi_image_desc, (c_void_p, c_int32,)),
    "sumi_submit_images": (c_int32, (c_void_p, POINTER(sumi_image_desc), POINTER(sumi_job),)),
    "sumi_fetch_images": (c_int32, (c_void_p, sumi_job, POINTER(sumi_image), c_int32,)),
    "sumi_images_release": (None, (c_void_p, POINTER(sumi_image), c_int32,)),
    "sumi_job_preview": (c_int32, (c_void_p, sumi_job, c_int32, c_void_p, c_size_t, POINTER(sumi_image),)),
    "sumi_open_model": (c_int32, (c_void_p, c_char_p, POINTER(c_void_p),)),
    "sumi_generate": (c_int32, (c_void_p, c_void_p, c_char_p, c_uint64, POINTER(sumi_image),)),
    "sumi_engine_set_memory_budget": (c_int32, (c_void_p, c_uint64,)),
    "sumi_image_memory": (c_int32, (c_void_p, POINTER(sumi_image_desc), POINTER(sumi_memory),)),
    "sumi_engine_get_info": (sumi_engine_info, (c_void_p,)),
    "sumi_job_list": (c_int32, (c_void_p, POINTER(sumi_job), c_int32,)),
    "sumi_job_set_priority": (c_int32, (c_void_p, sumi_job, c_int32,)),
    "sumi_job_pause": (c_int32, (c_void_p, sumi_job, c_bool,)),
    "sumi_prompt_defaults": (sumi_prompt_desc, (c_void_p,)),
    "sumi_submit_prompt": (c_int32, (c_void_p, POINTER(sumi_prompt_desc), POINTER(sumi_job),)),
    "sumi_fetch_prompt": (c_int32, (c_void_p, sumi_job, POINTER(c_void_p),)),
    "sumi_prompt_get_info": (sumi_prompt_info, (c_void_p,)),
    "sumi_prompt_save": (c_size_t, (c_void_p, c_void_p, c_size_t,)),
    "sumi_prompt_save_as": (c_size_t, (c_void_p, c_int32, c_void_p, c_size_t,)),
    "sumi_prompt_load": (c_int32, (c_void_p, c_void_p, c_size_t, POINTER(c_void_p),)),
    "sumi_prompt_release": (None, (c_void_p,)),
    "sumi_lora_defaults": (sumi_lora_desc, (c_void_p,)),
    "sumi_submit_lora": (c_int32, (c_void_p, POINTER(sumi_lora_desc), POINTER(sumi_job),)),
    "sumi_fetch_lora": (c_int32, (c_void_p, sumi_job, POINTER(c_void_p),)),
    "sumi_lora_release": (None, (c_void_p,)),
    "sumi_control_defaults": (sumi_control_desc, (c_void_p,)),
    "sumi_submit_control": (c_int32, (c_void_p, POINTER(sumi_control_desc), POINTER(sumi_job),)),
    "sumi_fetch_control": (c_int32, (c_void_p, sumi_job, POINTER(c_void_p),)),
    "sumi_control_release": (None, (c_void_p,)),
    "sumi_control_get_info": (sumi_control_info, (c_void_p,)),
    "sumi_control_use_defaults": (sumi_control_use, (c_void_p,)),
    "sumi_job_control_picture": (c_int32, (c_void_p, sumi_job, POINTER(sumi_control_view),)),
    "sumi_image_size": (c_int32, (POINTER(sumi_image_desc), POINTER(sumi_size),)),
    "sumi_import_defaults": (sumi_import_desc, ()),
    "sumi_import": (c_int32, (c_void_p, POINTER(sumi_import_desc), POINTER(c_void_p),)),
    "sumi_external_release": (None, (c_void_p,)),
    "sumi_job_show_preview": (c_int32, (c_void_p, sumi_job, c_int32, POINTER(sumi_target),)),
    "sumi_depth_defaults": (sumi_depth, ()),
    "sumi_encode_defaults": (sumi_encode_desc, (c_void_p,)),
    "sumi_submit_encode": (c_int32, (c_void_p, POINTER(sumi_encode_desc), POINTER(sumi_job),)),
    "sumi_fetch_latents": (c_int32, (c_void_p, sumi_job, c_void_p, c_size_t,)),
    "sumi_job_latents": (c_int32, (c_void_p, sumi_job, c_int32, c_void_p, c_size_t,)),
    "sumi_job_profile": (c_int32, (c_void_p, sumi_job, POINTER(sumi_profile_row), c_int32,)),
    "sumi_xml_prompt_defaults": (sumi_xml_prompt_desc, ()),
    "sumi_xml_prompt_write": (c_int32, (POINTER(sumi_xml_prompt_desc), c_void_p, c_size_t, POINTER(c_size_t),)),
}


def bind(library: Any) -> None:
    """Gives every function of a loaded library its types. Raises ImportError if one is missing."""
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"sumi: {library._name} has no {name}: it is another version") from None
        function.restype = result
        function.argtypes = list(arguments)
