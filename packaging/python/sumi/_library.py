"""The shared library, which is beside this file in a wheel."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from . import _abi


def _path() -> str:
    given = os.environ.get("SUMI_LIBRARY")
    if given:
        return os.path.abspath(given)
    name = "sumi.dll" if sys.platform == "win32" else "libsumi.so"
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def _load() -> Any:
    if sys.maxsize <= 2**32:
        raise ImportError("sumi needs a 64-bit Python")
    path = _path()
    try:
        # CDLL's functions release the GIL, and 64-bit Windows has one calling convention. The path is absolute, and the library
        # needs nothing but the system's, so no folder has to be searched: os.add_dll_directory() would add none.
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"sumi: {path} cannot be loaded: {error}") from error
    # These two are the same in all versions, so they come before everything else.
    loaded.sumi_version.restype = ctypes.c_char_p
    loaded.sumi_check_version.argtypes = [ctypes.c_uint32]
    if loaded.sumi_check_version(_abi.VERSION_NUMBER) != _abi.Result.OK:
        raise ImportError(f"sumi: {path} is version {loaded.sumi_version().decode()}, which this package does not know")
    _abi.check_layout()
    _abi.bind(loaded)
    return loaded


library = _load()
version: str = library.sumi_version().decode()
