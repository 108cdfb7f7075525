"""Images from diffusion transformers, inside your program.

    import sumi

    with sumi.Engine() as engine, engine.open_model("models/Z-Image-Turbo") as model:
        model.generate("a lighthouse at dusk, ink wash", seed=7)[0].save("out.png")
"""

from __future__ import annotations

import os
from typing import Optional

from ._abi import (
    AttentionFormat,
    Backend,
    ControlInfo,
    DepthKind,
    EngineInfo,
    Format,
    GuidanceRule,
    JobState,
    JobStatus,
    Memory,
    ModelInfo,
    NoiseSource,
    Preset,
    PromptFormat,
    Pump,
    Result,
    Solver,
    Stage,
    WeightFormat,
)
from ._engine import Engine, Job
from ._library import version
from ._model import Control, ControlUse, Depth, Image, ImageJob, Lora, Model, Preview, Prompt
from ._png import encode_png
from .errors import (
    CallerError,
    Cancelled,
    DeviceError,
    FileError,
    InternalError,
    JobError,
    ModelError,
    OutOfMemoryError,
    SumiError,
    WaitTimeout,
)

__version__ = version


def demo_model() -> Optional[str]:
    """The folder of the small demo model, if this wheel has it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo_model")
    return path if os.path.isdir(path) else None


__all__ = [
    "AttentionFormat",
    "Backend",
    "CallerError",
    "Cancelled",
    "Control",
    "ControlInfo",
    "ControlUse",
    "Depth",
    "DepthKind",
    "DeviceError",
    "Engine",
    "EngineInfo",
    "FileError",
    "Format",
    "GuidanceRule",
    "Image",
    "ImageJob",
    "InternalError",
    "Job",
    "JobError",
    "JobState",
    "JobStatus",
    "Lora",
    "Memory",
    "Model",
    "ModelError",
    "ModelInfo",
    "NoiseSource",
    "OutOfMemoryError",
    "Preset",
    "Preview",
    "Prompt",
    "PromptFormat",
    "Pump",
    "Result",
    "Solver",
    "Stage",
    "SumiError",
    "WaitTimeout",
    "WeightFormat",
    "demo_model",
    "encode_png",
    "version",
]
