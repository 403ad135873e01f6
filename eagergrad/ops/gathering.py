"""Gathering: elements picked or added up by index arrays."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..operands import operand, shared
from ..primitive import fuse, linear
from ..tensor import Tensor, as_dtype, to_buffer, wrap
from .indexing import _getitem, added_rows, getitem
from .reductions import is_half
from .shapes import _axis, broadcast_to, ravel

# ------------------------------------------------------------------ along an axis


def _along(xp: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The index that pairs ``indices`` along an axis with every place beside it."""
    rank = len(shape)
    return tuple(
        indices
        if i == axis
        else xp.arange(n).reshape((1,) * i + (n,) + (1,) * (rank - 1 - i))
        for i, n in enumerate(shape)
    )


# ``pick`` and ``place`` are for indices without repeats along the axis: what sorting
# gives.  Their gradients assign and need not add.
_pick = linear(
    "pick",
    transpose=lambda g, like, indices, axis: _place(g, indices, axis, like.shape),
    forward=lambda xp, x, indices, axis: xp.take_along_axis(x, indices, axis),
)


def _placed(xp: Any, x: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    out = xp.zeros(shape, x.dtype)
    out[_along(xp, indices, axis, shape)] = x
    return out


_place = linear(
    "place",
    transpose=lambda g, indices, axis: _pick(g, indices, axis),
    forward=_placed,
)


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """Pick along an axis, by other indices at each place beside it.

    out[i, j] = x[i, indices[i, j]] for the last of two axes; the other lengths
    broadcast.  ``axis=None`` takes from x flattened.  The gradient adds up over
    repeats.

    >>> take_along_axis(tensor([[1.0, 2.0], [3.0, 4.0]]), [[1], [0]], 1).tolist()
    [[2.0], [3.0]]
    """
    x = operand(x, "take_along_axis")
    indices = index_buffer("take_along_axis", indices, x)
    if axis is None:
        return getitem(ravel(x), indices)
    return _getitem(x, beside("take_along_axis", x, indices, axis))


def beside(name: str, x: Tensor, indices: Any, axis: int) -> tuple[Any, ...]:
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"{name}: expected as many axes in indices as in x, got {indices.shape} "
            f"and {x.shape}; add axes of length 1"
        )
    axis = axis_of(axis, x.ndim, name)
    for i, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i != axis and n != m and 1 not in (n, m):
            raise ShapeError(
                f"{name}: beside axis {axis} the lengths must broadcast: x is "
                f"{x.shape}, indices {indices.shape}"
            )
    with x.device.allocating(name):
        return _along(x.device.backend.xp, indices, axis, x.shape)


def axis_of(axis: Any, rank: int, name: str) -> int:
    """An axis counted from the first."""
    try:
        return _axis(operator.index(axis), rank, name)
    except TypeError as error:
        raise DTypeError(f"{name}: expected an integer axis, got {axis!r}") from error


def index_buffer(name: str, indices: Any, x: Tensor) -> Any:
    """Integer indices as a buffer beside x, not the caller's own."""
    if isinstance(indices, Tensor):
        found = indices._data
    else:
        found = to_buffer(indices, device=x.device, copy=shared())
        if not found.size and found.dtype.kind == "f":  # an empty list
            found = found.astype(np.int64)
    if found.dtype.kind not in "iu":
        raise DTypeError(f"{name}: expected integer indices, got {found.dtype}")
    return found


# ------------------------------------------------------------------------- segments


def _segments(xp: Any, x: Any, ids: Any, count: int) -> Any:
    wide = x.astype(np.float32) if is_half(x) else x
    out = xp.zeros((count, *x.shape[1:]), wide.dtype)
    if xp is np:  # in the order of the rows
        np.add.at(out, ids, wide)
    elif x.size:
        ids, wide = merged(xp, xp.add, wide, ids)
        out[ids] = wide
    return out.astype(x.dtype, copy=False)


def merged(xp: Any, ufunc: Any, rows: Any, ids: Any) -> tuple[Any, Any]:
    """Each id once, in order, and ufunc over its rows: 1, 2, 4 ... of them at once.

    What ufunc.at does, for CuPy, where that exists for few dtypes and in any order.
    """
    order = xp.argsort(ids, kind="stable")
    ids, rows = ids[order], rows[order]
    step = 1
    while step < ids.size:
        same = (ids[step:] == ids[:-step]).reshape((-1,) + (1,) * (rows.ndim - 1))
        rows[step:] = xp.where(same, ufunc(rows[step:], rows[:-step]), rows[step:])
        step *= 2
    last = xp.ones(ids.shape, bool)
    last[:-1] = ids[1:] != ids[:-1]
    return ids[last], rows[last]


_segment_sum = linear(
    "segment_sum",
    transpose=lambda g, ids: _getitem(g, ids),
    forward=_segments,
)
fuse(
    _segment_sum,
    lambda kernel, x, ids, count: added_rows(kernel, x, ids, (count, *x.shape[1:])),
    names=("scatter_add",),
)


def segment_sum(x: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Sum the rows of x by segment, sorted or not: out[s] = sum(x[segment_ids == s]).

    (n, ...), (n,) -> (num_segments, ...); the sums are made in order, the same each
    time.  IDs outside [0, num_segments) raise IndexError on the CPU.

    >>> segment_sum(tensor([1.0, 2.0, 3.0]), [1, 0, 1], 3).tolist()
    [2.0, 4.0, 0.0]
    """
    x = operand(x, "segment_sum")
    ids = index_buffer("segment_sum", segment_ids, x)
    if not x.ndim or ids.shape != x.shape[:1]:
        raise ShapeError(
            f"segment_sum: expected an id for each row of x, got {ids.shape} ids for "
            f"{x.shape}"
        )
    if num_segments is None:
        num_segments = int(ids.max()) + 1 if ids.size else 0
    _within("segment_sum", ids, num_segments)
    return _segment_sum(x, ids, num_segments)


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Count each of the integers 0, 1, ...; with weights, sum those of each.

    The gradient goes to the weights.

    >>> bincount([0, 2, 2], tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 0.0, 5.0]
    """
    if weights is not None:
        weights = operand(weights, "bincount")
    beside = weights if weights is not None else operand(x, "bincount")
    ids = index_buffer("bincount", x, beside)
    if ids.ndim != 1:
        raise ShapeError(f"bincount: expected one axis, got {ids.shape}; use ravel")
    with beside.device.allocating("bincount"):
        top = int(ids.max()) + 1 if ids.size else 0
    count = top if top > minlength else minlength
    _within("bincount", ids, count)
    if weights is None:
        with beside.device.allocating("bincount"):
            return wrap(beside.device.backend.xp.bincount(ids, minlength=minlength))
    return segment_sum(weights, ids, count)


def _within(name: str, ids: Any, count: int) -> None:
    """Refuse ids outside [0, count); on a GPU the check would wait for the device."""
    if type(ids) is np.ndarray and ids.size:
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= count:
            wrong = low if low < 0 else high
            raise IndexError(f"{name}: indices lie in [0, {count}), got {wrong}")


def embedding(table: Any, ids: Any) -> Any:
    """The rows of a table: (n, d), (...) -> (..., d).

    IDs outside [0, n) raise IndexError on the CPU; the gradient adds up over repeats.

    >>> embedding(tensor([[1.0, 2.0], [3.0, 4.0]]), [1, 1]).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """
    table = operand(table, "embedding")
    ids = index_buffer("embedding", ids, table)
    if not table.ndim:
        raise ShapeError("embedding: expected a table of rows, got shape ()")
    _within("embedding", ids, table.shape[0])
    return _getitem(table, ids)


def gather_nd(x: Any, indices: Any) -> Any:
    """Pick by index vectors, the last axis of indices: (...), (..., k) -> (...) + rest.

    out[i] = x[indices[i, 0], ..., indices[i, k - 1]].

    >>> gather_nd(tensor([[1.0, 2.0], [3.0, 4.0]]), [[0, 1], [1, 0]]).tolist()
    [2.0, 3.0]
    """
    x = operand(x, "gather_nd")
    indices = index_buffer("gather_nd", indices, x)
    if not indices.ndim or indices.shape[-1] > x.ndim:
        raise ShapeError(
            f"gather_nd: expected index vectors of at most {x.ndim} numbers along the "
            f"last axis, for x of {x.shape}, got indices of {indices.shape}"
        )
    if not indices.shape[-1]:
        return broadcast_to(x, indices.shape[:-1] + x.shape)
    return _getitem(x, tuple(indices[..., i] for i in range(indices.shape[-1])))


def one_hot(indices: Any, depth: int, dtype: Any = "float32") -> Any:
    """1 at each index and 0 elsewhere along a new last axis: (...) -> (..., depth).

    An index outside [0, depth) gives zeros.  No gradient.

    >>> one_hot([1, 0], 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    x = operand(indices, "one_hot")
    found = index_buffer("one_hot", x, x)
    with x.device.allocating("one_hot"):
        hit = found[..., None] == x.device.backend.xp.arange(depth)
        return wrap(hit.astype(as_dtype(dtype, "one_hot")))
