"""Memory of Python for the library: pictures and numbers that go in, images that come out, and memory on a GPU."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, List, Optional, Sequence, Tuple

from ._abi import Format, sumi_pixels

numpy: Any
try:
    numpy = importlib.import_module("numpy")
except ImportError:  # arrays come as bytearrays then
    numpy = None

# Of each format: channels, NumPy's type, bytes of a channel.
FORMATS = {
    Format.RGBA8: (4, "uint8", 1),
    Format.RGB8: (3, "uint8", 1),
    Format.RGB32F: (3, "float32", 4),
    Format.BGRA8: (4, "uint8", 1),
    Format.RGBA16F: (4, "float16", 2),
}


def empty(width: int, height: int, format: Format) -> Tuple[Any, int]:
    """Memory for an image, and its address. A NumPy array [height, width, channels], or a bytearray without NumPy."""
    channels, kind, size = FORMATS[format]
    if numpy is not None:
        array = numpy.empty((height, width, channels), kind)
        return array, array.ctypes.data
    memory = bytearray(width * height * channels * size)
    return memory, ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))


def pixels_of(picture: Any, keep: List[Any]) -> sumi_pixels:
    """A picture for the library: uint8 [height, width], [height, width, 1, 3 or 4] (or bool for masks) of whatever has the
    buffer protocol: NumPy arrays, images of sumi. `keep` gets what must live as long as the result."""
    try:
        view = memoryview(getattr(picture, "pixels", picture))
    except TypeError:
        raise TypeError(f"a picture is a NumPy array uint8 [height, width, 1, 3 or 4], not {type(picture).__name__}") from None
    if view.format not in ("B", "?") or view.ndim not in (2, 3):
        raise TypeError(f"a picture is uint8 [height, width, 1, 3 or 4], not of type {view.format!r} with {view.ndim} dimensions")
    data = view.tobytes()  # rows without gaps, whatever the strides are; the call copies it anyway
    if view.format == "?":
        data = data.translate(bytes([0]) + bytes([255]) * 255)
    keep.append(data)
    shape = view.shape or ()
    return sumi_pixels(
        data=ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p),
        width=shape[1],
        height=shape[0],
        row_bytes=0,
        channel_count=shape[2] if len(shape) == 3 else 1,
    )


def pixels_array(pictures: Sequence[Any], keep: List[Any]) -> Any:
    array = (sumi_pixels * len(pictures))(*[pixels_of(picture, keep) for picture in pictures])
    keep.append(array)
    return array


def floats_of(values: Any, count: int, what: str, keep: List[Any]) -> int:
    """The address of `count` float32 values out of a sequence of numbers or of something with the buffer protocol."""
    try:
        data = memoryview(values)
    except TypeError:
        numbers = (ctypes.c_float * len(values))(*values)
        size = len(values)
        keep.append(numbers)
        address = ctypes.addressof(numbers)
    else:
        if data.format != "f":
            raise TypeError(f"{what} are float32, not of type {data.format!r}")
        copy = data.tobytes()
        size = len(copy) // 4
        keep.append(copy)
        address = ctypes.cast(ctypes.c_char_p(copy), ctypes.c_void_p).value or 0
    if size != count:
        raise ValueError(f"{what} are {count} values here, not {size}")
    return address


def depth_of(values: Any, size: Optional[Tuple[int, int]], keep: List[Any]) -> Tuple[int, int, Tuple[int, int]]:
    """The address, bits and (width, height) of a depth buffer: float32 or uint16 [height, width] of whatever has the buffer
    protocol, with any strides, or in one row with a size."""
    try:
        view = memoryview(values)
    except TypeError:
        raise TypeError(f"a depth buffer is an array, a memoryview or a NumPy array, not {type(values).__name__}") from None
    if view.format not in ("f", "H"):
        raise TypeError(f"a depth buffer is float32 or uint16, not of type {view.format!r}")
    if size is None:
        if view.ndim != 2:
            raise ValueError(f"a depth buffer with {view.ndim} dimensions needs size=(width, height)")
        shape = view.shape or ()
        size = (shape[1], shape[0])
    elif size[0] * size[1] * view.itemsize != view.nbytes or (view.ndim == 2 and view.shape != (size[1], size[0])):
        raise ValueError(f"a depth buffer of {size[0]} x {size[1]} has {size[0] * size[1]} values in its rows, not {list(view.shape or ())}")
    data = view.tobytes()  # rows without gaps, whatever the strides are; the call copies it anyway
    keep.append(data)
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, view.itemsize * 8, size


# ---- Memory on a GPU ----
class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Tensor(ctypes.Structure):  # dlpack.h: DLTensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DLPACK_CUDA = 2
_DLPACK_TYPES = {(1, 8): "uint8", (2, 16): "float16", (2, 32): "float32"}


def device_memory(tensor: Any, width: int, height: int, format: Format, keep: List[Any]) -> Tuple[int, int]:
    """Address and bytes of a row of a tensor [height, width, channels] on a GPU, by __cuda_array_interface__ (CuPy, PyTorch,
    Numba) or by __dlpack__. Rows may have gaps, pixels may not."""
    interface = getattr(tensor, "__cuda_array_interface__", None)
    if interface is not None:
        address, read_only = interface["data"]
        if read_only:
            raise ValueError("the tensor for an image is read-only")
        shape = tuple(interface["shape"])
        size = int(interface["typestr"][2:])
        kind = {"u": "uint", "f": "float"}.get(interface["typestr"][1], interface["typestr"][1]) + str(size * 8)
        strides = interface.get("strides")
    elif hasattr(tensor, "__dlpack__"):
        capsule = tensor.__dlpack__()
        keep.append(capsule)  # frees the producer's part when it goes
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        raw = _Tensor.from_address(pointer(capsule, b"dltensor"))
        if raw.device.type != _DLPACK_CUDA:
            raise TypeError("the tensor for an image is not on a CUDA device")
        shape = tuple(raw.shape[i] for i in range(raw.ndim))
        kind, size = _DLPACK_TYPES.get((raw.code, raw.bits), f"type {raw.code} with {raw.bits} bits"), raw.bits // 8
        strides = tuple(raw.strides[i] * size for i in range(raw.ndim)) if raw.strides else None
        address = (raw.data or 0) + raw.byte_offset
    else:
        raise TypeError(f"{type(tensor).__name__} has neither __cuda_array_interface__ nor __dlpack__")
    channels, wanted, _ = FORMATS[format]
    if shape != (height, width, channels) or kind != wanted:
        raise ValueError(f"the tensor for an image of {format.name} is {wanted} {[height, width, channels]}, not {kind} {list(shape)}")
    if strides is None:
        strides = (width * channels * size, channels * size, size)
    if tuple(strides[1:]) != (channels * size, size) or strides[0] < width * channels * size:
        raise ValueError("the pixels of a row of the tensor for an image must have no gaps")
    keep.append(tensor)
    return address, strides[0]
