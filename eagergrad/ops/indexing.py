"""Indexing: ``x[index]`` and its transpose, which adds values into zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import NUMPY, backend_of, recording
from ..operands import operand, shared
from ..primitive import beside, flat, fuse, linear, on_gpu
from ..tensor import Tensor
from .reductions import is_half
from .shapes import _axis, reshape


def _added(total: Any, g: Any, like: Any, index: Any) -> bool:
    """Add g to the part of an array that it is the gradient of, if that is a view."""
    part = viewed(total, index) if total.shape == like.shape else None
    if part is None:
        return False
    part += g
    return True


def viewed(x: Any, index: Any) -> Any:
    """x[index] as an array on the memory of x; None where it is not surely that."""
    parts = index if type(index) is tuple else (index,)
    if any(type(i) not in _VIEWING for i in parts):
        return None
    return x[parts if ... in parts else (*parts, ...)]  # an array for one element


_VIEWING = frozenset((slice, int, type(None), type(...)))

_getitem = linear(
    "getitem",
    transpose=lambda g, like, index: _scatter_add(g, index, like.shape),
    forward=lambda xp, x, index: x[index],
    adds=(_added,),
)


def _scattered(xp: Any, x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    if _may_repeat(index):
        half = is_half(x)  # many may add up: accumulate in float32
        out = xp.zeros(shape, np.float32 if half else x.dtype)
        xp.add.at(out, index, x)
        return out if not half else out.astype(x.dtype)
    if backend_of(x).notes:  # zeros that are noted, as what is written there is
        out = xp.zeros_like(x, shape=shape, order="C")
    else:
        out = xp.zeros(shape, x.dtype)
    out[index] = x
    return out


_scatter_add = linear(
    "scatter_add",
    transpose=lambda g, index: _getitem(g, index),
    forward=_scattered,
)


def added_rows(kernel: Any, x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """``_scattered`` by a kernel, for one array of integers along the first axis."""
    if isinstance(index, tuple) and len(index) == 1:
        (index,) = index
    there = on_gpu(x)
    buffer = type(x) if there else np.ndarray
    if type(index) is not buffer or index.dtype.kind not in "iu":
        return NotImplemented
    if not x.size or x.shape != (*index.shape, *shape[1:]):
        return NotImplemented
    ids = index.astype(np.int64, copy=False).ravel()
    rows = shape[0]
    # who shares the rows reads all indices; a thread is worth it where rows are long
    parts = min(SHARES, rows) if there else min(16, rows, x.size // ids.size // 16)
    if not there and (int(ids.min()) < -rows or int(ids.max()) >= rows):
        return NotImplemented  # the composed op says so
    half = is_half(x)  # many may add up: accumulate in float32
    out = beside(x, shape, np.float32 if half else None)
    kernel(
        *flat(x.astype(out.dtype, copy=False)), ids, (rows, max(parts, 1)), *flat(out)
    )
    return out if not half else out.astype(x.dtype)


SHARES = 1024  # of the rows, on a GPU


fuse(_scatter_add, added_rows)


def getitem(x: Any, index: Any) -> Any:
    """x[index], with everything NumPy takes: integers, slices, masks, index arrays.

    >>> getitem(tensor([1.0, 2.0, 3.0]), slice(1, None)).tolist()
    [2.0, 3.0]
    """
    return _getitem(x, _plain(index, x))


def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Pick along an axis by index; the gradient adds up over repeated indices.

    >>> take(tensor([1.0, 2.0, 3.0]), [2, 0]).tolist()
    [3.0, 1.0]
    """
    x = operand(x, "take")
    if axis is None:
        return getitem(reshape(x, -1), indices)
    index = _plain(indices, x)
    index = np.asarray(index) if isinstance(index, (list, tuple)) else index
    return _getitem(x, (slice(None),) * _axis(axis, x.ndim, "take") + (index,))


def _plain(index: Any, x: Any) -> Any:
    """An index of x with buffers in place of Tensors and lists, not the caller's own.

    While a GPU records, an array of the host is sent there now, for all replays.
    """
    if isinstance(index, Tensor):
        return index._data
    if isinstance(index, tuple):
        return tuple(_plain(list(i) if isinstance(i, tuple) else i, x) for i in index)
    if isinstance(index, list):
        parts = [_plain(i, None) for i in index]
        return _plain(np.asarray(parts, dtype=None if index else np.intp), x)
    if isinstance(index, np.ndarray):
        backend = backend_of(x._data) if isinstance(x, Tensor) else NUMPY
        if (run := recording()) is not None and backend is not NUMPY:
            return run.constant(lambda: backend.xp.asarray(index))
        return index.copy() if shared() else index
    return index


def _may_repeat(index: Any) -> bool:
    """Whether an index can name one element twice: only integer arrays can."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(
        hasattr(part, "dtype") and part.dtype.kind != "b" and part.ndim
        for part in parts
    )
