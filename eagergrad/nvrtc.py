"""NVIDIA's run-time compiler, which makes code for any GPU on a machine without one.

It is one library, and so are its bindings: a few C functions, called by ctypes.  The
library is looked for where NVIDIA's wheels put it, then where the system's loader
looks.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .errors import KernelError


def _places() -> Iterator[str]:
    """Where the library may be, the newest of a wheel's first."""
    spec = importlib.util.find_spec("nvidia")
    for package in (spec and spec.submodule_search_locations) or ():
        windows, linux = "*/bin/nvrtc64_*_0.dll", "*/lib/libnvrtc.so.[0-9]*"
        found = Path(package).glob(windows if sys.platform == "win32" else linux)
        yield from map(str, sorted(found, reverse=True))
    for major in (13, 12):
        name = f"nvrtc64_{major}0_0.dll", f"libnvrtc.so.{major}"
        yield name[sys.platform != "win32"]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiler's library; None where there is none."""
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def _required() -> ctypes.CDLL:
    found = library()
    if found is None:
        raise KernelError(
            "NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12, or -cu13"
        )
    return found


@functools.cache
def version() -> str:
    """Such as ``12.9``."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def cubin(source: str, arch: int, options: Sequence[str] = ()) -> bytes:
    """The machine code of a CUDA program for GPUs of ``sm_<arch>``.

    KernelError, with the compiler's words, where it does not compile.
    """
    program = ctypes.c_void_p()
    text = source.encode()
    _call("nvrtcCreateProgram", ctypes.byref(program), text, b"eagergrad.cu", 0, 0, 0)
    try:
        words = [f"-arch=sm_{arch}".encode(), *map(str.encode, options)]
        flags = (ctypes.c_char_p * len(words))(*words)
        try:
            _call("nvrtcCompileProgram", program, len(words), flags)
        except KernelError as error:
            log = _read("nvrtcGetProgramLog", program).decode(errors="replace")
            raise KernelError(f"{error} for sm_{arch}: {log.strip()[:2000]}") from None
        return _read("nvrtcGetCUBIN", program)
    finally:
        _call("nvrtcDestroyProgram", ctypes.byref(program))


def _read(what: str, program: ctypes.c_void_p) -> bytes:
    """A string of bytes that the compiler keeps: first its size, then the bytes."""
    size = ctypes.c_size_t()
    _call(f"{what}Size", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    _call(what, program, text)
    return text.raw


def _call(name: str, *arguments: Any) -> None:
    found = _required()
    status = getattr(found, name)(*arguments)
    if status:
        found.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise KernelError(f"{name}: {found.nvrtcGetErrorString(status).decode()}")
