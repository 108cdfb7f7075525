"""One exception for each group of results in sumi.h; `result` has the number, `details` the engine's message."""

from __future__ import annotations

from typing import Any, Tuple

from ._abi import Result
from ._library import library


class SumiError(Exception):
    """A call or a job failed. Its text is the engine's message, or, if there is none, the sentence of the result."""

    def __init__(self, result: int, details: str = "") -> None:
        try:
            self.result = Result(result)
        except ValueError:
            self.result = Result.INTERNAL
        self.details = details
        self.sentence: str = library.sumi_result_text(int(result)).decode()
        super().__init__(details or self.sentence)

    def __reduce__(self) -> Tuple[Any, ...]:
        return (make_error, (int(self.result), self.details))


class CallerError(SumiError, ValueError):
    """Results 1 to 9: an argument, a stale handle, a full queue, or something that this build or model does not support."""


class OutOfMemoryError(SumiError, MemoryError):
    """Results 10 to 19: host memory, device memory, or a memory budget that is too small."""


class FileError(SumiError):
    """Results 20 to 29: a file is missing, unreadable or malformed."""


class ModelError(SumiError):
    """Results 30 to 39: the files are not what the model needs."""


class DeviceError(SumiError):
    """Results 40 to 49: no GPU, or it was lost: after DEVICE_LOST close the engine and make another."""


class JobError(SumiError):
    """Results 50 to 59: the job was cancelled, or its image is not finite."""


class Cancelled(JobError):
    """The job was cancelled, or an object that it uses was closed."""


class WaitTimeout(JobError, TimeoutError):
    """The job is not done yet; it continues."""


class InternalError(SumiError):
    """A bug in sumi; please report the message."""


_GROUPS = (CallerError, OutOfMemoryError, FileError, ModelError, DeviceError, JobError)


def make_error(result: int, details: str = "") -> SumiError:
    """The exception of a result."""
    if result == Result.CANCELLED:
        return Cancelled(result, details)
    if result == Result.TIMEOUT:
        return WaitTimeout(result, details)
    group = result // 10
    return (_GROUPS[group] if 0 <= group < len(_GROUPS) else InternalError)(result, details)
