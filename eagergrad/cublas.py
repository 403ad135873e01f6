"""cuBLAS, NVIDIA's library of matrix products: its binding, and its handles.

The binding is ``nvmath.bindings.cublas`` where that is installed, else the same few
functions by ctypes, under the same names.  A *handle* belongs to one thread and one
stream, and has its workspace from the beginning: so nothing is allocated by a product,
and products can be captured in a CUDA graph, which CuPy's cannot.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib
import importlib.util
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from .device import BACKENDS
from .errors import KernelError, OutOfMemoryError


def _log() -> Any:
    """The logger, by a module that only now is worth its import."""
    import logging

    return logging.getLogger("eagergrad")


WORKSPACE = 2**25  # bytes: what NVIDIA recommends for Hopper, and enough elsewhere

# From cublas_api.h and library_types.h.
OP_N, OP_T = 0, 1
DTYPES = {"f": 0, "d": 1, "e": 2, "F": 4, "D": 5, "E": 14}  # by the dtype's char
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_FAST_TF32 = 68, 70, 77
ALGORITHM = -1  # cuBLAS chooses
# Else cuBLAS may add up the parts of a product in the half type of the result.
DISALLOW_REDUCED_PRECISION_REDUCTION = 16


class Library(Protocol):
    """What is asked of cuBLAS, by the names and arguments of nvmath's binding."""

    create: Callable[..., int]
    destroy: Callable[..., Any]
    set_stream: Callable[..., Any]
    set_workspace: Callable[..., Any]
    set_math_mode: Callable[..., Any]
    gemm_ex: Callable[..., Any]
    gemm_ex_64: Callable[..., Any]
    gemm_strided_batched_ex: Callable[..., Any]
    gemm_strided_batched_ex_64: Callable[..., Any]


# The C functions and their arguments: p pointer, i int, l int64, z size_t.
_FUNCTIONS = {
    "destroy": ("cublasDestroy_v2", "p"),
    "set_stream": ("cublasSetStream_v2", "p p"),
    "set_workspace": ("cublasSetWorkspace_v2", "p pz"),
    "set_math_mode": ("cublasSetMathMode", "p i"),
    "gemm_ex": ("cublasGemmEx", "p ii iii p pii pii p pii ii"),
    "gemm_ex_64": ("cublasGemmEx_64", "p ii lll p pil pil p pil ii"),
    "gemm_strided_batched_ex": (
        "cublasGemmStridedBatchedEx",
        "p ii iii p piil piil p piil iii",
    ),
    "gemm_strided_batched_ex_64": (
        "cublasGemmStridedBatchedEx_64",
        "p ii lll p pill pill p pill lii",
    ),
}
_TYPES = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "l": ctypes.c_int64,
    "z": ctypes.c_size_t,
}


class Loaded:
    """The library at a path, by ctypes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in _FUNCTIONS:
            raise AttributeError(name)
        symbol, letters = _FUNCTIONS[name]
        try:
            function = getattr(self._library, symbol)
        except AttributeError:  # those of 64 bits came with CUDA 12
            raise KernelError(f"{self.path} has no {symbol}: it is too old") from None
        function.argtypes = [_TYPES[letter] for letter in letters.replace(" ", "")]
        found = functools.partial(self._call, symbol, function)
        setattr(self, name, found)
        return found

    def create(self) -> int:
        """A new handle on the current device."""
        handle = ctypes.c_void_p()
        symbol = "cublasCreate_v2"
        self._call(symbol, getattr(self._library, symbol), ctypes.byref(handle))
        assert handle.value is not None
        return handle.value

    def _call(self, symbol: str, function: Any, *arguments: Any) -> None:
        status = function(*arguments)
        if status:
            name = self._library.cublasGetStatusName
            name.restype = ctypes.c_char_p
            raise KernelError(f"{symbol}: {name(status).decode()}")


def _places(major: int) -> Iterator[str]:
    """Where the library may be: in NVIDIA's wheels, in a toolkit, or in the system."""
    windows, linux = f"cublas64_{major}.dll", f"libcublas.so.{major}"
    spec = importlib.util.find_spec("nvidia")
    for package in (spec and spec.submodule_search_locations) or ():
        pattern = f"*/bin/{windows}" if sys.platform == "win32" else f"*/lib/{linux}"
        yield from sorted(glob.glob(os.path.join(package, pattern)))
    if sys.platform == "win32":
        yield windows
    else:
        yield linux
        yield f"{os.environ.get('CUDA_PATH', '/usr/local/cuda')}/lib64/{linux}"


@functools.cache
def _of_nvmath() -> Any:
    """nvmath's binding; None where it is not installed, or finds no cuBLAS."""
    try:
        binding = importlib.import_module("nvmath.bindings.cublas")
        binding.get_cudart_version()  # loads the library
    except ImportError:
        return None
    except Exception as error:  # of nvmath's own
        _log().info("eagergrad: nvmath's cuBLAS cannot be used: %s", error)
        return None
    return binding


@functools.cache
def library(major: int) -> Any:
    """The Library for CUDA 12, 13 or such; None where there is none."""
    found = _of_nvmath()
    if found is not None and found.get_cudart_version() // 1000 == major:
        return found
    for place in _places(major):
        try:
            return Loaded(place)
        except OSError:
            continue
    return None


@functools.cache
def _told(major: int) -> None:
    _log().warning("eagergrad: products stay with CuPy: no cuBLAS for CUDA %d", major)


class Driver(Protocol):
    """What handles need of a GPU's library."""

    of_thread: threading.local  # what each thread keeps

    def stream(self) -> Any:
        """The current stream; ``ptr`` is CUDA's."""

    def version(self) -> int:
        """CUDA's major version."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new buffer on the current device."""

    def live(self) -> int:
        """The bytes of all buffers there are."""

    def free(self) -> None:
        """Give back to CUDA what is kept in reserve."""


class Handle:
    """A handle of cuBLAS for one stream, with its workspace."""

    def __init__(self, library: Library, stream: Any, driver: Driver) -> None:
        if stream.is_capturing():
            raise KernelError(
                "matmul: the first product on a stream prepares cuBLAS, which cannot "
                "be captured; run the step once on that stream before the capture"
            )
        self.library = library
        self.workspace = driver.empty((WORKSPACE,), np.dtype(np.uint8))
        self.value = _created(library, driver)
        # before the workspace is given back, which products may still be using
        weakref.finalize(self, library.destroy, self.value).atexit = False
        library.set_stream(self.value, stream.ptr)
        # ... which takes the workspace away: so this comes after it
        library.set_workspace(self.value, self.workspace.data.ptr, WORKSPACE)
        library.set_math_mode(self.value, DISALLOW_REDUCED_PRECISION_REDUCTION)


def _created(library: Library, driver: Driver) -> int:
    try:
        return library.create()
    except Exception:  # nvmath has errors of its own
        driver.free()  # cuBLAS takes its memory from CUDA, not from CuPy's pool
    try:
        return library.create()
    except Exception as error:
        if "ALLOC_FAILED" not in str(error):
            raise
        raise OutOfMemoryError(
            f"matmul: the GPU has no room for a handle of cuBLAS ({error}); "
            f"{driver.live():,} bytes are in use"
        ) from error


def handle(driver: Driver, device: int) -> Handle | None:
    """This thread's handle for the current stream of the current device.

    It lives as long as its stream: whoever captures products must keep the stream.
    None where there is no cuBLAS.
    """
    stream = driver.stream()
    try:
        handles = driver.of_thread.handles[device]
    except (AttributeError, KeyError):
        handles = weakref.WeakKeyDictionary()
        vars(driver.of_thread).setdefault("handles", {})[device] = handles
    found: Handle | None = handles.get(stream)
    if found is None:
        blas = library(driver.version())
        if blas is None:
            _told(driver.version())
        else:
            found = handles[stream] = Handle(blas, stream, driver)
    return found


def report() -> list[tuple[str, str]]:
    """What ``eagergrad doctor`` says of it: rows of (label, text)."""
    gpus = BACKENDS.get("cuda")
    for major in (13, 12) if gpus is None else (gpus.driver.version(),):
        found = library(major)
        if isinstance(found, Loaded):
            return [("cuBLAS", f"{os.path.basename(found.path)}, by ctypes")]
        if found is not None:
            return [("cuBLAS", "by nvmath.bindings.cublas")]
    return [("cuBLAS", "not installed: products stay with CuPy")]
