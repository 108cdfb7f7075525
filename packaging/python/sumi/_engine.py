"""Engines and jobs.

Locks: an engine has two, always taken in this order.

    _lock       held during every call but the free ones of sumi.h: one thread at a time is inside the engine. No call that
                waits for a job is made; a wait polls, so nobody holds the lock for longer than a slice.
    _free_lock  held during free calls, and by sumi_engine_destroy, beside which they must not run.

A status points to memory of its job. Whoever frees a job therefore stores its last status under the job's own lock before, and
from then on nobody asks the library about it.

The log is called by threads of the library in the middle of a slice. It needs the GIL, which ctypes gives back during calls,
and it takes none of the locks: a handler may poll and cancel jobs, and gets a CallerError for everything else.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import logging
import os
import threading
import time
import weakref
from collections import deque
from contextlib import contextmanager
from typing import Any, Callable, Deque, Dict, Generator, Generic, Iterator, List, Optional, Tuple, TypeVar, Union, TYPE_CHECKING

from . import _abi
from ._abi import Backend, EngineInfo, JobState, JobStatus, LogLevel, Pump, Result
from ._library import library
from .errors import CallerError, SumiError, WaitTimeout, make_error

if TYPE_CHECKING:
    from ._model import Model

T = TypeVar("T")

_LEVELS = {LogLevel.ERROR: logging.ERROR, LogLevel.WARNING: logging.WARNING, LogLevel.INFO: logging.INFO, LogLevel.DEBUG: logging.DEBUG}
_PUMP_US = 4000  # of work in each look at a job, for engines without a thread


class _Thread(threading.local):
    callbacks = 0  # how many logs of engines are running on this thread
    engine: Optional[int] = None  # the newest of these engines
    messages: Optional[List[str]] = None  # errors that the log was told during a call


_thread = _Thread()
# What belongs to engines that are not destroyed, by a number of our own. The log lives here, not in the Engine: the library's
# thread may call it until sumi_engine_destroy returns, whatever the garbage collector has taken.
_open: Dict[int, Tuple[int, Any]] = {}
_engines: weakref.WeakValueDictionary[int, Engine] = weakref.WeakValueDictionary()
_numbers = iter(range(1, 2**62))


class Engine:
    """A backend with its queue of jobs. A context manager: its end cancels all jobs and frees everything.

    backend        AUTO takes a GPU if there is one.
    device         the CUDA ordinal of a GPU; None: any.
    device_uuid    16 bytes, likewise. device_luid: 8 bytes, on Windows.
    cuda_context   a CUcontext of yours, and cuda_stream a CUstream, as numbers.
    memory_budget  bytes; 0: no limit. What does not fit is streamed or computed in tiles.
    cpu_threads    of the CPU backend; 0: one per processor.
    pump           THREAD: a thread of the library works. UPDATE: update() and waits do, on your thread.
    log            a logger, or its name. Its level decides what Python is told.

    Any thread may use an engine and its objects. After a fork, the child's engines are closed.
    """

    def __init__(
        self,
        backend: Backend = Backend.AUTO,
        *,
        device: Optional[int] = None,
        device_uuid: Optional[bytes] = None,
        device_luid: Optional[bytes] = None,
        cuda_context: Optional[int] = None,
        cuda_stream: Optional[int] = None,
        memory_budget: int = 0,
        cpu_threads: int = 0,
        pump: Pump = Pump.THREAD,
        job_capacity: int = 16,
        max_slice_us: Optional[int] = None,
        log: Union[logging.Logger, str] = "sumi",
    ) -> None:
        self._handle: Optional[int] = None
        self._lock = threading.RLock()
        self._free_lock = threading.RLock()
        self._garbage: Deque[Tuple[str, Any, Any]] = deque()
        self._number = next(_numbers)
        self._pump = Pump(pump)
        logger = logging.getLogger(log) if isinstance(log, str) else log
        for name, value, size in (("device_uuid", device_uuid, 16), ("device_luid", device_luid, 8)):
            if value is not None and len(value) != size:
                raise ValueError(f"{name} has {size} bytes, not {len(value)}")

        desc = library.sumi_engine_defaults()
        desc.backend = Backend(backend)
        if device is not None:
            desc.cuda.ordinal = device
        uuid, luid = ctypes.create_string_buffer(device_uuid or b"", 16), ctypes.create_string_buffer(device_luid or b"", 8)
        desc.cuda.uuid = ctypes.addressof(uuid) if device_uuid is not None else None
        desc.cuda.luid = ctypes.addressof(luid) if device_luid is not None else None
        desc.cuda.context = cuda_context
        desc.cuda.stream = cuda_stream
        desc.memory_budget_bytes = memory_budget
        desc.cpu_thread_count = cpu_threads
        desc.pump = self._pump
        desc.job_capacity = job_capacity
        if max_slice_us is not None:
            desc.max_slice_us = max_slice_us
        write = _abi.sumi_log_write(_log_of(self._number, logger))
        desc.log.write = write

        handle = ctypes.c_void_p()
        _thread.messages = []
        result = library.sumi_engine_create(ctypes.byref(desc), ctypes.byref(handle))
        messages, _thread.messages = _thread.messages, None
        if result != Result.OK or not handle.value:
            raise make_error(result, messages[-1] if messages else "")
        self._handle = handle.value
        _open[self._number] = (handle.value, write)
        _engines[self._number] = self

    # ---- The end ----
    def close(self) -> None:
        """Cancels all jobs and frees models, prompts, adapters. Waits for the running slice. Again: does nothing."""
        if self._handle is None:
            return
        self._refuse_in_log()
        with self._lock, self._free_lock:
            if self._handle is None:
                return
            handle, self._handle = self._handle, None
            library.sumi_engine_destroy(handle)
            self._garbage.clear()
            _open.pop(self._number, None)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The collector may run inside a log, where an engine cannot be destroyed; then the end of the process does it.
        if getattr(self, "_handle", None) is not None and _thread.callbacks == 0:
            self.close()

    @property
    def closed(self) -> bool:
        return self._handle is None

    # ---- Calls ----
    def _refuse_in_log(self) -> None:
        if _thread.callbacks and _thread.engine == self._number:
            raise CallerError(Result.WRONG_STATE, "a handler of the engine's log may only poll and cancel jobs")

    @contextmanager
    def _inside(self) -> Iterator[int]:
        """Holds the engine for one call that is not free."""
        self._refuse_in_log()
        with self._lock:
            handle = self._alive()
            while self._garbage:
                name, argument, _memory = self._garbage.popleft()
                self._drop(name, argument)
            yield handle

    def _drop(self, name: str, argument: Any) -> None:
        if name == "job":
            library.sumi_job_discard(self._handle, argument)
        elif name == "model":
            library.sumi_model_close(argument)
        elif name == "prompt":
            library.sumi_prompt_release(argument)
        elif name == "control net":
            library.sumi_control_release(argument)
        else:
            library.sumi_lora_release(argument)

    @contextmanager
    def _freely(self) -> Iterator[int]:
        """Holds the engine for one free call. Also in a log, where it must not wait for the engine's end."""
        while not self._free_lock.acquire(timeout=0.02):
            self._alive()
        try:
            yield self._alive()
        finally:
            self._free_lock.release()

    def _alive(self) -> int:
        if self._handle is None:
            raise CallerError(Result.STALE_HANDLE, "the engine is closed")
        return self._handle

    def _try(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls what returns a result, and raises what is not OK, with what the log was told meanwhile."""
        before, _thread.messages = _thread.messages, []
        try:
            result = function(*arguments)
            messages = _thread.messages
        finally:
            _thread.messages = before
        if result != Result.OK:
            raise make_error(result, messages[-1] if messages else "")

    def _release(self, name: str, argument: Any, memory: Any = None) -> None:
        """For the garbage collector, which may run anywhere: the next call frees the object."""
        if self._handle is not None:
            self._garbage.append((name, argument, memory))

    # ---- What engines do ----
    @property
    def info(self) -> EngineInfo:
        with self._freely() as handle:
            return EngineInfo.read(library.sumi_engine_get_info(handle))

    @property
    def job_count(self) -> int:
        """Jobs that are not freed."""
        with self._freely() as handle:
            return int(library.sumi_job_list(handle, None, 0))

    def set_memory_budget(self, bytes: int) -> None:
        """For jobs that begin after this call; 0: no limit."""
        if not 0 <= bytes < 2**64:
            raise ValueError(f"bytes is {bytes}, which is out of range")
        with self._inside() as handle:
            self._try(library.sumi_engine_set_memory_budget, handle, bytes)

    def update(self, seconds: float) -> None:
        """Works for about this long; for Pump.UPDATE, otherwise it does nothing."""
        with self._inside() as handle:
            library.sumi_engine_update(handle, min(max(int(seconds * 1e6), 0), _abi.FOREVER - 1))

    def open_model(self, path: Union[str, os.PathLike[str], None] = None, **settings: Any) -> Model:
        """Opens a checkpoint and waits for it; submit_model() has the settings."""
        return self.submit_model(path, **settings).result()

    def submit_model(
        self,
        path: Union[str, os.PathLike[str], None] = None,
        *,
        transformer: Union[str, os.PathLike[str], None] = None,
        text_encoder: Union[str, os.PathLike[str], None] = None,
        tokenizer: Union[str, os.PathLike[str], None] = None,
        vae: Union[str, os.PathLike[str], None] = None,
        text_encoder_2: Union[str, os.PathLike[str], None] = None,
        tokenizer_2: Union[str, os.PathLike[str], None] = None,
        vision: Union[str, os.PathLike[str], None] = None,
        processor: Union[str, os.PathLike[str], None] = None,
        variant: Optional[str] = None,
        weights: _abi.WeightFormat = _abi.WeightFormat.AUTO,
        text_weights: _abi.WeightFormat = _abi.WeightFormat.AUTO,
        attention: _abi.AttentionFormat = _abi.AttentionFormat.AUTO,
        without_text_encoder: bool = False,
        without_vae_encoder: bool = False,
        priority: int = 0,
    ) -> Job[Model]:
        """Opens a checkpoint in a job. `path` is a folder as diffusers saves it or one safetensors or GGUF file; the other
        paths take the place of what it has for one component."""
        from ._model import Model

        desc = library.sumi_model_defaults()
        desc.path = path_bytes(path)
        desc.transformer_path = path_bytes(transformer)
        desc.text_encoder_path = path_bytes(text_encoder)
        desc.tokenizer_path = path_bytes(tokenizer)
        desc.vae_path = path_bytes(vae)
        desc.text_encoder_2_path = path_bytes(text_encoder_2)
        desc.tokenizer_2_path = path_bytes(tokenizer_2)
        desc.vision_path = path_bytes(vision)
        desc.processor_path = path_bytes(processor)
        desc.variant = None if variant is None else text_bytes(variant)
        desc.weights = weights
        desc.text_weights = text_weights
        desc.attention = attention
        desc.without_text_encoder = without_text_encoder
        desc.without_vae_encoder = without_vae_encoder
        desc.priority = priority
        job = _abi.sumi_job()
        with self._inside() as handle:
            self._try(library.sumi_submit_model, handle, ctypes.byref(desc), ctypes.byref(job))
        return Job(self, job, _fetch_object(library.sumi_fetch_model, lambda model: Model(self, model)))


class Job(Generic[T]):
    """Work that was submitted. result() waits for its product; `await job` does so in asyncio without blocking the loop.

    A job that nobody refers to any more is discarded by the engine's next call. Cancelling a task that awaits a job cancels
    the job.
    """

    def __init__(self, engine: Engine, job: _abi.sumi_job, fetch: Callable[[int, _abi.sumi_job], Tuple[int, Callable[[], T]]], memory: Any = None) -> None:
        self._engine = engine
        self._job = job
        self._fetch = fetch
        self._memory = memory  # what the library writes to or refers to while the job lives
        self._fetch_lock = threading.Lock()
        self._status_lock = threading.RLock()
        self._final: Optional[JobStatus] = None  # of a job that was fetched
        self._product: Optional[Tuple[T]] = None
        self._error: Optional[SumiError] = None

    def poll(self) -> JobStatus:
        """What the job is doing. Does no work and waits for nothing."""
        with self._status_lock:
            if self._final is not None:
                return self._final
            with self._engine._freely() as handle:
                return JobStatus.read(library.sumi_job_poll(handle, self._job))

    def _store_status(self) -> JobStatus:
        with self._status_lock:
            self._final = self.poll()
            return self._final

    @property
    def done(self) -> bool:
        """Whether the job has finished: with a product, a failure, or cancelled."""
        return self._finished(self.poll())

    @staticmethod
    def _finished(status: JobStatus) -> bool:
        return status.state >= JobState.DONE or status.state == JobState.NONE

    @property
    def progress(self) -> float:
        """0 to 1; 1 only when the job is done."""
        return self.poll().progress

    def cancel(self) -> None:
        """Asks the job to stop, which takes one slice. A finished job does not change."""
        if self._final is None:
            with self._engine._freely() as handle:
                library.sumi_job_cancel(handle, self._job)

    def pause(self, paused: bool = True) -> None:
        """Pauses the job, or resumes it (False), so that others can run. The image is the same."""
        with self._engine._freely() as handle:
            self._engine._try(library.sumi_job_pause, handle, self._job, paused)

    def resume(self) -> None:
        self.pause(False)

    def set_priority(self, priority: int) -> None:
        """Higher first."""
        if not -(2**31) <= priority < 2**31:
            raise ValueError(f"priority is {priority}, which is out of range")
        with self._engine._freely() as handle:
            self._engine._try(library.sumi_job_set_priority, handle, self._job, priority)

    def discard(self) -> None:
        """Frees the job without its product; one that is not done is cancelled."""
        with self._fetch_lock:
            if self._final is not None or self._engine.closed:
                return
            with self._engine._inside() as handle:
                self._store_status()
                library.sumi_job_discard(handle, self._job)
            self._error = make_error(Result.CANCELLED, "the job was discarded")
            self._memory = None

    def _look(self) -> bool:
        """Whether the job is done. Without a thread of the library, this works for a moment."""
        if self._engine._pump == Pump.UPDATE and not self.done:
            with self._engine._inside() as handle:
                library.sumi_engine_update(handle, _PUMP_US)
        return self.done

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the job has finished, at most for `timeout` seconds: then WaitTimeout, and the job continues."""
        self._engine._refuse_in_log()
        begin = time.monotonic()
        while not self._look():
            passed = time.monotonic() - begin
            if timeout is not None and passed >= timeout:
                raise WaitTimeout(Result.TIMEOUT)
            if self._engine._pump != Pump.UPDATE:
                time.sleep(_pause(passed))

    def result(self, timeout: Optional[float] = None) -> T:
        """Waits for the product and returns it, or raises why there is none. Every call returns the same."""
        if self._final is None:
            self.wait(timeout)
        with self._fetch_lock:
            if self._final is None:
                with self._engine._inside() as handle:
                    status = self._store_status()
                    result, make = self._fetch(handle, self._job)
                    if result != Result.OK:
                        self._error = make_error(result, status.message)
                    else:
                        self._product = (make(),)
                self._memory = None
        if self._product is None:
            assert self._error is not None
            raise self._error
        return self._product[0]

    async def _result(self) -> T:
        begin = time.monotonic()
        try:
            while not self._look():
                await asyncio.sleep(_pause(time.monotonic() - begin))
        except asyncio.CancelledError:
            if not self._engine.closed:
                self.cancel()
            raise
        return self.result()

    def __await__(self) -> Generator[Any, None, T]:
        return self._result().__await__()

    def __del__(self) -> None:
        if getattr(self, "_final", self) is None:
            self._engine._release("job", self._job, self._memory)


def _pause(passed: float) -> float:
    """Seconds until the next look at a job that was waited for this long: a twentieth more, at most 20 ms."""
    return min(max(passed / 20, 0.0005), 0.02)


def _fetch_object(function: Callable[..., int], make: Callable[[int], T]) -> Callable[[int, _abi.sumi_job], Tuple[int, Callable[[], T]]]:
    def fetch(handle: int, job: _abi.sumi_job) -> Tuple[int, Callable[[], T]]:
        found = ctypes.c_void_p()
        result = function(handle, job, ctypes.byref(found))
        return result, lambda: make(found.value or 0)

    return fetch


def _log_of(number: int, logger: logging.Logger) -> Callable[[int, int, bytes, Any], None]:
    def write(level: int, result: int, text: bytes, user_data: Any) -> None:
        message = text.decode("utf-8", "replace")
        if _thread.messages is not None and level == LogLevel.ERROR:
            _thread.messages.append(message)
        numeric = _LEVELS.get(level, logging.ERROR)  # type: ignore[call-overload]
        if not logger.isEnabledFor(numeric):
            return
        before = _thread.engine
        _thread.engine = number
        _thread.callbacks += 1
        try:
            logger.log(numeric, "%s", message, extra={"sumi_result": result})
        finally:
            _thread.callbacks -= 1
            _thread.engine = before

    return write


def path_bytes(path: Union[str, os.PathLike[str], None]) -> Optional[bytes]:
    return None if path is None else text_bytes(os.fspath(path))


def text_bytes(text: str) -> bytes:
    """For C, which would take a zero byte for the end. Of a path, os.fsencode's bytes, and surrogates are its own."""
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError("a text for sumi has a zero character in it")
    return data


def _close_all() -> None:
    """At the end of the interpreter, while the threads of the library can still take the GIL to log."""
    for engine in list(_engines.values()):
        engine.close()
    for number in list(_open):
        handle, _write = _open[number]
        library.sumi_engine_destroy(handle)
        del _open[number]


def _after_fork() -> None:
    """The child has the engines' memory but not their threads, and perhaps locks that a thread of its parent held."""
    for engine in list(_engines.values()):
        engine._handle = None
        engine._lock, engine._free_lock = threading.RLock(), threading.RLock()
    _open.clear()


logging.getLogger("sumi").addHandler(logging.NullHandler())  # a program that wants to read the log says so
atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
