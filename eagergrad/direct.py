"""Kernels called on small arrays without NumPy's iterators.

NumPy's call of a kernel with rows or matrices takes a microsecond, most of it for what
small models do not need: operands that broadcast, have gaps or another dtype.  Here a
kernel is a function of Python's written in C (kernels/direct.h), which reads arrays as
they lie in memory and leaves all else to NumPy: 0.2 us.

It needs no header of Python's or NumPy's, so what is taken for granted of their
structures is tried first; where it does not hold, NumPy makes all calls.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from . import host_kernels
from .errors import KernelError
from .kernels import Kernel, catalogue

_INDEX, _POINTER = ctypes.c_ssize_t, ctypes.c_void_p
MOST = 16  # operands, as in kernels/direct.h
_SOURCE = Kernel("direct", "", header="direct.h")


class _Array(ctypes.Structure):
    """The start of PyArrayObject, which is part of NumPy's binary interface."""

    _fields_ = (
        ("references", _INDEX),
        ("type", _POINTER),
        ("data", _POINTER),
        ("axes", ctypes.c_int),
        ("shape", ctypes.POINTER(_INDEX)),
        ("steps", ctypes.POINTER(_INDEX)),
        ("base", _POINTER),
        ("dtype", _POINTER),
        ("flags", ctypes.c_int),
    )


class _Direct(ctypes.Structure):
    """What kernels/direct.h reads of a kernel."""

    _fields_ = (
        *((name, _POINTER) for name in ("array_type", "ufunc", "call", "make")),
        *((name, _POINTER) for name in ("tuple", "put", "hold", "drop")),
        *((name, _INDEX) for name in ("inputs", "results", "dtypes")),
        ("core", _INDEX * MOST),
        ("dimensions", _INDEX * 2 * MOST),
        ("loops", _POINTER * 3),
        ("types", _POINTER * MOST * 3),
        ("widths", _INDEX * MOST * 3),
    )


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", _POINTER),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FAST_WITH_KEYWORDS = 0x0080 | 0x0002  # METH_FASTCALL | METH_KEYWORDS
_kept: list[Any] = []  # what the functions point to


def find(name: str) -> Callable[..., Any] | None:
    """The kernel of a name as ``host_kernels.find`` has it, for small arrays faster."""
    kernel = catalogue().get(name)
    if kernel is None or not _serves(kernel):
        return host_kernels.find(name)
    host_kernels.begin([_SOURCE])
    ufunc = host_kernels.find(name)
    return ufunc if ufunc is None or not ready() else _function(kernel, ufunc)


def _serves(kernel: Kernel) -> bool:
    """Whether it has core axes, and gets the lengths of those of results by inputs'."""
    if kernel.signature is None or len(kernel.operands) > MOST:
        return False
    axes = _axes(kernel)
    known = set().union(*axes[: kernel.inputs])
    return all(known.issuperset(names) for names in axes[kernel.inputs :])


def _axes(kernel: Kernel) -> list[list[str]]:
    """The names of each operand's core axes."""
    groups = str(kernel.signature).replace("->", ",").replace("),(", ") (").split()
    return [[name for name in group[1:-1].split(",") if name] for group in groups]


@functools.cache
def ready() -> bool:
    """Whether Python's and NumPy's structures are as they are taken to be."""
    ours = sys.implementation.name == "cpython" and object.__basicsize__ == 16
    if not ours or host_kernels.problem() is not None:
        return False
    x = np.ones((2, 3), np.float32)[:, 1:]
    seen = _Array.from_address(id(x))
    shown = (seen.type, seen.data, seen.axes, seen.shape[:2], seen.steps[:2])
    known = (id(np.ndarray), x.ctypes.data, 2, [2, 2], [12, 4])
    if shown != known or seen.dtype != id(np.dtype("f")) or seen.flags != x.flags.num:
        return False
    try:
        return host_kernels.numpy_table("_ARRAY_API") is not None and bool(_library())
    except (OSError, AttributeError, KernelError):
        return False


@functools.cache
def _library() -> int:
    """The address of eg_direct."""
    found = host_kernels.loaded(_SOURCE)
    return ctypes.cast(found.eg_direct, _POINTER).value or 0


_NEW_FROM_DESCR = 94  # PyArray_NewFromDescr's place in the table of every NumPy


@functools.cache
def _function(kernel: Kernel, ufunc: Any) -> Callable[..., Any]:
    """A function of Python's written in C that calls the kernel's loops."""
    room = np.zeros(ctypes.sizeof(_Direct), np.uint8)
    own = _Direct.from_address(room.ctypes.data)
    python = ctypes.pythonapi
    for name, function in (
        ("call", python.PyObject_Vectorcall),
        ("tuple", python.PyTuple_New),
        ("put", python.PyTuple_SetItem),
        ("hold", python.Py_IncRef),
        ("drop", python.Py_DecRef),
    ):
        setattr(own, name, ctypes.cast(function, _POINTER).value)
    own.array_type, own.ufunc = id(np.ndarray), id(ufunc)
    own.make = host_kernels.numpy_table("_ARRAY_API")[_NEW_FROM_DESCR]
    own.inputs, own.results = kernel.inputs, kernel.outputs
    own.dtypes = len(host_kernels.DTYPES)
    axes = _axes(kernel)
    numbers: dict[str, int] = {}
    for k, names in enumerate(axes):
        own.core[k] = len(names)
        for i, axis in enumerate(names):
            own.dimensions[k][i] = numbers.setdefault(axis, len(numbers))
    loops = (_POINTER * own.dtypes).in_dll(host_kernels.loaded(kernel), "eg_loops")
    for i, char in enumerate(host_kernels.DTYPES):
        own.loops[i] = loops[i]
        for k, dtype in enumerate(host_kernels.dtypes(kernel, char)):
            own.types[i][k], own.widths[i][k] = id(dtype), dtype.itemsize
    method = _Method(kernel.name.encode(), _library(), _FAST_WITH_KEYWORDS, None)
    _kept.append((room, own, method, ufunc))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, _POINTER, ctypes.py_object, _POINTER)
    made: Callable[..., Any] = make(("PyCFunction_NewEx", python))(
        ctypes.addressof(method), room, None
    )
    return made
