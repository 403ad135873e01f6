"""Making tensors: from data, or of given shape.  Nothing here is differentiated,
except that a list of tensors is stacked."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..device import Device, device_of, resolve
from ..errors import DTypeError, ShapeError
from ..operands import SCALARS, holds_tensor, operand
from ..tensor import INEXACT, Tensor, Variable, as_dtype, to_buffer, wrap
from .elementwise import astype, identity, settled, subtract, to
from .reductions import _floating

Shape = int | Sequence[int]


def tensor(data: Any, dtype: Any = None, device: Device | str | None = None) -> Tensor:
    """Copy values into a new Tensor.

    Python floats become float32, ints int64, bools bool; arrays keep their dtype.  A
    list of tensors is stacked, and a Tensor copied, so that gradients flow to them.

    >>> tensor([1.0, 2.0]).dtype
    dtype('float32')
    """
    if not holds_tensor(data):
        return wrap(to_buffer(data, dtype, device))
    x = _converted(operand(data, "tensor"), dtype, device)
    shared = isinstance(data, Tensor) and x._data is data._data
    return settled(x, data, shared or None, "tensor")


def asarray(
    data: Any,
    dtype: Any = None,
    device: Device | str | None = None,
    copy: bool | None = None,
) -> Tensor:
    """A Tensor of the data that shares its memory where it can.

    Writing to the shared array afterwards changes the Tensor, and gradients with it.
    With ``copy=True`` nothing is shared, and with ``copy=False`` data that must be
    copied raise ValueError.

    >>> asarray(np.ones(2)).dtype
    dtype('float64')
    """
    if not holds_tensor(data):
        x = wrap(to_buffer(data, dtype, device, None, "asarray"))
    elif type(data) is Tensor and dtype is device is None:
        x = data
    else:
        x = _converted(operand(data, "asarray"), dtype, device)
    return settled(x, data, copy, "asarray")


def _converted(x: Tensor, dtype: Any, device: Any) -> Tensor:
    if dtype is not None and x.dtype != as_dtype(dtype):
        x = astype(x, dtype)
    return identity(x) if device is None else to(x, device)


def convert_to_tensor(value: Any, dtype: Any = None) -> Tensor:
    """The value as a Tensor: a Tensor itself, a Variable read, anything else copied.

    Raises TypeError for a Tensor of another dtype than asked for, and for floats that
    would become integers.

    >>> x = tensor(1.0)
    >>> convert_to_tensor(x) is x
    True
    """
    wanted = None if dtype is None else as_dtype(dtype, "convert_to_tensor")
    if isinstance(value, Tensor):
        if wanted is not None and value.dtype != wanted:
            raise ShapeError(
                f"convert_to_tensor: expected dtype {wanted}, got a tensor of "
                f"{value.dtype}; use value.astype({str(wanted)!r})"
            )
        return identity(value) if isinstance(value, Variable) else value
    if value is None:
        raise ShapeError("convert_to_tensor: expected values, got None")
    if holds_tensor(value):
        return convert_to_tensor(operand(value, "convert_to_tensor"), dtype)
    if wanted is not None and wanted.kind in "biu":
        found = wrap(to_buffer(value))
        if found.dtype.kind in INEXACT:
            raise DTypeError(
                f"convert_to_tensor: expected {wanted}, got {found.dtype} values; "
                "use eg.tensor(value).astype to round towards zero"
            )
    return wrap(to_buffer(value, dtype))


def _made(name: str, make: Callable[[Any], Any], device: Device | str | None) -> Tensor:
    target = resolve(device)
    with target.allocating(name):
        # Small and rare: made on the host, moved once.
        return wrap(target.backend.put(make(np), target))


def zeros(
    shape: Shape, dtype: Any = None, device: Device | str | None = None
) -> Tensor:
    """A tensor of zeros; float32 unless a dtype is given.

    >>> zeros(2).tolist()
    [0.0, 0.0]
    """
    return _filled("zeros", shape, 0, np.float32 if dtype is None else dtype, device)


def ones(shape: Shape, dtype: Any = None, device: Device | str | None = None) -> Tensor:
    """A tensor of ones; float32 unless a dtype is given.

    >>> ones((1, 2)).tolist()
    [[1.0, 1.0]]
    """
    return _filled("ones", shape, 1, np.float32 if dtype is None else dtype, device)


def full(
    shape: Shape,
    fill_value: Any,
    dtype: Any = None,
    device: Device | str | None = None,
) -> Tensor:
    """A tensor of one value; the dtype is the value's unless given.

    >>> full(2, 7).tolist()
    [7, 7]
    """
    if dtype is None:
        dtype = to_buffer(fill_value, device="cpu").dtype
    return _filled("full", shape, fill_value, dtype, device)


def _filled(
    name: str, shape: Shape, fill_value: Any, dtype: Any, device: Device | str | None
) -> Tensor:
    dtype = as_dtype(dtype, name)
    lengths = tuple(shape) if isinstance(shape, Sequence) else (operator.index(shape),)
    target = resolve(device)
    with target.allocating(name):
        if target.kind == "cpu":
            return wrap(np.full(lengths, fill_value, dtype))
        value = target.backend.put(np.asarray(fill_value, dtype), target)
        return wrap(target.backend.xp.broadcast_to(value, lengths).copy())


def zeros_like(x: Any, dtype: Any = None, device: Device | str | None = None) -> Tensor:
    """Zeros of the shape, and unless given the dtype and device, of x.

    >>> zeros_like(tensor([1, 2])).tolist()
    [0, 0]
    """
    return _alike("zeros_like", x, 0, dtype, device)


def ones_like(x: Any, dtype: Any = None, device: Device | str | None = None) -> Tensor:
    """Ones of the shape, and unless given the dtype and device, of x.

    >>> ones_like(tensor([1, 2])).tolist()
    [1, 1]
    """
    return _alike("ones_like", x, 1, dtype, device)


def full_like(
    x: Any,
    fill_value: Any,
    dtype: Any = None,
    device: Device | str | None = None,
) -> Tensor:
    """One value in the shape, and unless given the dtype and device, of x.

    >>> full_like(tensor([1, 2]), 3).tolist()
    [3, 3]
    """
    return _alike("full_like", x, fill_value, dtype, device)


def _alike(
    name: str, x: Any, fill_value: Any, dtype: Any, device: Device | str | None
) -> Tensor:
    x = operand(x, name)
    place = device or device_of(x._data)
    return _filled(name, x.shape, fill_value, dtype or x.dtype, place)


# No Tensor is written to, so memory left as it was found would be of no use.
empty, empty_like = zeros, zeros_like


def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Device | str | None = None,
) -> Tensor:
    """Evenly spaced values from start up to, without, stop.

    >>> arange(3).tolist()
    [0, 1, 2]
    """
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        whole = all(isinstance(v, (int, np.integer)) for v in (start, stop, step))
        dtype = np.int64 if whole else np.float32
    dtype = as_dtype(dtype, "arange")
    return _made("arange", lambda xp: xp.arange(start, stop, step, dtype), device)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    device: Device | str | None = None,
) -> Tensor:
    """``num`` evenly spaced values from start to stop, with or without the latter.

    float32 or complex64 for Python's numbers; arrays keep their dtype.  Tensors as
    start and stop have gradients; their axes come after that of the values.

    >>> linspace(0.0, 1.0, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if {type(start), type(stop)} <= SCALARS:
        made = np.linspace(start, stop, num, endpoint)
        short = np.complex64 if made.dtype.kind == "c" else np.float32
        return wrap(to_buffer(made, short if dtype is None else dtype, device))
    span = _floating(subtract(stop, start), "linspace")
    t = np.linspace(0.0, 1.0, num, endpoint).reshape((-1,) + (1,) * span.ndim)
    part: Any = wrap(to_buffer(t, span.dtype, span.device))
    y: Any = start * (1.0 - part) + stop * part  # exact at both ends
    return y if dtype is device is None else _converted(y, dtype, device)


def eye(
    n: int,
    m: int | None = None,
    k: int = 0,
    dtype: Any = None,
    device: Device | str | None = None,
) -> Tensor:
    """A matrix (n, m) with ones on the k-th diagonal; float32 unless a dtype is given.

    >>> eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    dtype = np.float32 if dtype is None else as_dtype(dtype, "eye")
    return _made("eye", lambda xp: xp.eye(n, m, k, dtype), device)
