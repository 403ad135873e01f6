"""Indexing: ``x[index]`` and its transpose, which adds values into zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..primitive import linear
from ..tensor import Tensor

_getitem = linear(
    "getitem",
    transpose=lambda g, like, index: _scatter_add(g, index, like.shape),
    forward=lambda xp, x, index: x[index],
)


def _scattered(xp: Any, x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    out = xp.zeros(shape, x.dtype)
    if _may_repeat(index):
        xp.add.at(out, index, x)
    else:
        out[index] = x
    return out


_scatter_add = linear(
    "scatter_add",
    transpose=lambda g, index: _getitem(g, index),
    forward=_scattered,
)


def getitem(x: Any, index: Any) -> Any:
    """x[index], with everything NumPy takes: integers, slices, masks, index arrays.

    >>> getitem(tensor([1.0, 2.0, 3.0]), slice(1, None)).tolist()
    [2.0, 3.0]
    """
    return _getitem(x, _plain(index))


def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Pick along an axis by index; the gradient adds up over repeated indices.

    >>> take(tensor([1.0, 2.0, 3.0]), [2, 0]).tolist()
    [3.0, 1.0]
    """
    if axis is None:
        return getitem(x.reshape((-1,)), indices)
    index = _plain(indices)
    index = np.asarray(index) if isinstance(index, (list, tuple)) else index
    return _getitem(x, (slice(None),) * (axis % x.ndim) + (index,))


def _plain(index: Any) -> Any:
    """The index with buffers in place of Tensors."""
    if isinstance(index, Tensor):
        return index._data
    if isinstance(index, tuple):
        return tuple(_plain(i) for i in index)
    if isinstance(index, list):
        return np.asarray([_plain(i) for i in index], dtype=None if index else np.intp)
    return index


def _may_repeat(index: Any) -> bool:
    """Whether an index can name one element twice: only integer arrays can."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(
        hasattr(part, "dtype") and part.dtype.kind != "b" and part.ndim
        for part in parts
    )
