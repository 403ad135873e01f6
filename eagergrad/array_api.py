"""The Array API standard: what a program asks the namespace before it computes.

A program written for the standard asks an array for its namespace, and the namespace
for dtypes and devices: those answers are here.  The functions stand among NumPy's in
the files of their kind, and an alias (``acos``, ``concat``, ``pow``) in the line below
what it means, so that an op and all its names are read in one place.
"""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from .device import BUFFERS, Device, current, devices
from .errors import DeviceError, DTypeError, ShapeError
from .operands import SCALARS, promoted_dtype
from .ops.elementwise import to
from .tensor import INEXACT, Tensor

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    """The ``eagergrad`` module, as a namespace of the Array API standard 2024.12.

    Where the standard leaves a choice: Python floats become float32 and ints int64, an
    integer tensor beside a floating one takes the floating dtype, and dividing integers
    gives float32.  What differs from it on purpose: a Tensor is immutable, so that
    ``x[i] = v`` raises (use ``x.at[i].set(v)``) and ``x += y`` rebinds the name; for a
    Variable it raises, as only ``assign`` changes one.  ``linalg.qr`` has the mode
    "complete" only where it is that of "reduced".  ValueError for other versions of the
    standard.

    >>> tensor(1.0).__array_namespace__(api_version="2024.12").__name__
    'eagergrad'
    """
    if api_version is not None and api_version not in VERSIONS:
        raise ShapeError(
            f"__array_namespace__: expected one of {', '.join(VERSIONS)}, got "
            f"{api_version!r}"
        )
    return sys.modules[__package__]  # imports this file, so is not imported by it


def to_device(x: Any, device: Any, /, *, stream: Any = None) -> Tensor:
    """Move to another device, as ``to`` does; streams are not taken.

    >>> to_device(tensor([1.0]), "cpu").device.name
    'cpu'
    """
    if stream is not None:
        raise DeviceError(
            f"to_device: expected no stream, got {stream!r}; the current one is used"
        )
    return to(x, device)


# ------------------------------------------------------------------------------ dtypes

_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float32 float64 complex64 complex128"
).split()
_DEFAULTS = {
    "real floating": "float32",
    "complex floating": "complex64",
    "integral": "int64",
    "indexing": "int64",
}
_KINDS = {  # letters of NumPy's dtype.kind; bfloat16 has V
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "fV",
    "complex floating": "c",
    "numeric": "iufVc",
}
_RANKS = {
    kind: rank for rank, kinds in enumerate(("b", "iu", "fV", "c")) for kind in kinds
}
_WEAK = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}


def _dtype(x: Any, name: str) -> np.dtype[Any]:
    """The dtype of an array, or that a name or a class of NumPy stands for."""
    array = isinstance(x, (Tensor, np.generic)) or type(x) in BUFFERS
    try:
        if x is None:  # NumPy's float64
            raise TypeError
        found: np.dtype[Any] = np.dtype(x.dtype if array else x)
    except TypeError as error:
        raise DTypeError(
            f"{name}: expected a dtype or an array, got {type(x).__name__}; a dtype is "
            "eg.float32, 'float32' or x.dtype"
        ) from error
    return found


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype of an op on arrays, dtypes and Python's numbers, which are weak.

    Floating dtypes promote among themselves as in NumPy, an integer one gives way to
    them, and a Python float beside integers means float32.

    >>> result_type(float16, int64, 1.0)
    dtype('float16')
    """
    name = "result_type"
    if not arrays_and_dtypes:
        raise ShapeError(f"{name}: expected one array or dtype or more, got none")
    weak = [np.dtype(_WEAK[type(x)]) for x in arrays_and_dtypes if type(x) in SCALARS]
    firm = [_dtype(x, name) for x in arrays_and_dtypes if type(x) not in SCALARS]
    dtype = reduce(lambda a, b: promoted_dtype(a, b, name), firm or weak)
    for other in weak:
        if _RANKS[other.kind] > _RANKS[dtype.kind]:
            dtype = promoted_dtype(dtype, other, name)
    return dtype


def can_cast(from_: Any, to: Any) -> bool:
    """Whether an op promotes one dtype, or that of an array, to the other.

    Integers are to any floating dtype, although not all are exact in it.

    >>> can_cast(int64, float32), can_cast(float64, float32)
    (True, False)
    """
    wanted = _dtype(to, "can_cast")
    return result_type(_dtype(from_, "can_cast"), wanted) == wanted


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is another, or of a kind, or one of a tuple of both.

    Kinds are "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating" and "numeric".

    >>> isdtype(float32, "real floating"), isdtype(float32, (int32, "integral"))
    (True, False)
    """
    dtype = _dtype(dtype, "isdtype")
    return any(
        dtype.kind in _KINDS[one]
        if isinstance(one, str) and one in _KINDS
        else dtype == _kind(one)
        for one in (kind if isinstance(kind, tuple) else (kind,))
    )


def _kind(kind: Any) -> np.dtype[Any]:
    try:
        return _dtype(kind, "isdtype")
    except DTypeError as error:
        raise ShapeError(
            f"isdtype: expected a dtype or one of {', '.join(_KINDS)}, got {kind!r}"
        ) from error


class FloatLimits(NamedTuple):
    """What ``finfo`` returns: Python's numbers, which are weak beside a tensor."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


class IntegerLimits(NamedTuple):
    """What ``iinfo`` returns."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating dtype, or that of an array; of a complex one's parts.

    ``eps`` is the distance from 1 to the next larger number.

    >>> finfo(float32).eps
    1.1920928955078125e-07
    """
    dtype = _dtype(type, "finfo")
    if dtype.kind not in INEXACT:
        raise DTypeError(f"finfo: expected a floating dtype, got {dtype}; use eg.iinfo")
    # bfloat16 is not NumPy's own: the package that made it has its limits
    owner: Any = sys.modules[dtype.type.__module__] if dtype.kind == "V" else np
    limits = owner.finfo(dtype)
    return FloatLimits(
        int(limits.bits),
        float(limits.eps),
        float(limits.max),
        float(limits.min),
        float(limits.smallest_normal),
        np.dtype(limits.dtype),
    )


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, or that of an array.

    >>> iinfo(int8).max
    127
    """
    dtype = _dtype(type, "iinfo")
    if dtype.kind not in "iu":
        raise DTypeError(f"iinfo: expected an integer dtype, got {dtype}; use eg.finfo")
    limits = np.iinfo(dtype)
    return IntegerLimits(limits.bits, int(limits.max), int(limits.min), dtype)


# --------------------------------------------------------------------- what there is


class Info:
    """What ``__array_namespace_info__`` returns: what the namespace can do."""

    def capabilities(self) -> dict[str, Any]:
        """Both kinds of data-dependent shapes are there; NumPy has up to 64 axes."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": 64,
        }

    def default_device(self) -> Device:
        """Where a tensor is made if nothing else is said."""
        return current()

    def devices(self) -> list[Device]:
        """The CPU, and each GPU that works."""
        return devices()

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of Python's numbers and of indices; the same on every device."""
        return {kind: np.dtype(name) for kind, name in _DEFAULTS.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes by name, all or of a kind; the same on every device."""
        every = {name: np.dtype(name) for name in _DTYPES}
        return {
            name: dtype
            for name, dtype in every.items()
            if kind is None or isdtype(dtype, kind)
        }


def __array_namespace_info__() -> Info:
    """What this namespace can do: dtypes, devices, capabilities.

    >>> __array_namespace_info__().default_dtypes()["real floating"]
    dtype('float32')
    """
    return Info()
