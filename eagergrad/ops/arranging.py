"""Arranging: ops that turn, repeat and spread arrays, made of the few in shapes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..primitive import linear
from ..tensor import Tensor, as_dtype, wrap
from .indexing import take
from .shapes import (
    _axis,
    broadcast_to,
    expand_dims,
    ravel,
    reshape,
    swapaxes,
    transpose,
)

Axes = int | Sequence[int]

# ------------------------------------------------------------------ the order of axes


def moveaxis(x: Any, source: Axes, destination: Axes) -> Any:
    """Move axes to other positions; the others keep their order.

    >>> moveaxis(zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = operand(x, "moveaxis")
    old, new = (
        [_axis(operator.index(i), x.ndim, "moveaxis") for i in _listed(axes)]
        for axes in (source, destination)
    )
    if len(old) != len(new) or len({*old}) != len(old) or len({*new}) != len(new):
        raise ShapeError(
            "moveaxis: expected as many sources as destinations, none twice, got "
            f"{source} and {destination}"
        )
    order = [i for i in range(x.ndim) if i not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return transpose(x, order)


def rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    """Move an axis back until it stands before axis ``start``.

    >>> rollaxis(zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = operand(x, "rollaxis")
    axis = _axis(axis, x.ndim, "rollaxis")
    start = start if start == x.ndim else _axis(start, x.ndim, "rollaxis")
    return moveaxis(x, axis, start - (axis < start))


def permute_dims(x: Any, axes: Sequence[int]) -> Any:
    """Permute the axes, as ``transpose`` does: the name in the Array API standard.

    >>> permute_dims(zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return transpose(x, axes)


_flip = linear(
    "flip",
    transpose=lambda g, axis: _flip(g, axis),
    forward=lambda xp, x, axis: xp.flip(x, axis),
)


def flip(x: Any, axis: int | Sequence[int] | None = None) -> Any:
    """Reverse the order of elements along the given axes, or along all.

    >>> flip(tensor([1.0, 2.0, 3.0])).tolist()
    [3.0, 2.0, 1.0]
    """
    return _flip(x, axis if axis is None else tuple(_listed(axis)))


def fliplr(x: Any) -> Any:
    """Reverse the second axis.

    >>> fliplr(tensor([[1.0, 2.0]])).tolist()
    [[2.0, 1.0]]
    """
    return flip(_at_least("fliplr", x, 2), 1)


def flipud(x: Any) -> Any:
    """Reverse the first axis.

    >>> flipud(tensor([1.0, 2.0])).tolist()
    [2.0, 1.0]
    """
    return flip(_at_least("flipud", x, 1), 0)


def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Turn by k times 90 degrees, from the first of the two axes to the second.

    >>> rot90(tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """
    x = _at_least("rot90", x, 2)
    first, second = (_axis(i, x.ndim, "rot90") for i in axes)
    if first == second:
        raise ShapeError(f"rot90: expected two different axes, got {axes}")
    if k % 4 == 0:
        return x
    if k % 4 == 2:
        return flip(x, (first, second))
    if k % 4 == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second)


def _roll_back(g: Any, shift: Any, axis: Any) -> Any:
    if isinstance(shift, tuple):
        return _roll(g, tuple([-n for n in shift]), axis)
    return _roll(g, -shift, axis)


_roll = linear(
    "roll",
    transpose=_roll_back,
    forward=lambda xp, x, shift, axis: xp.roll(x, shift, axis),
)


def roll(x: Any, shift: Axes, axis: Axes | None = None) -> Any:
    """Move elements along axes; those that leave at one end come in at the other.

    Without ``axis`` the elements move in row order.

    >>> roll(tensor([1.0, 2.0, 3.0]), 1).tolist()
    [3.0, 1.0, 2.0]
    """
    listed = (Sequence, np.ndarray)
    return _roll(
        x,
        tuple(shift) if isinstance(shift, listed) else shift,
        tuple(axis) if isinstance(axis, listed) else axis,
    )


# --------------------------------------------------------------------------- repeating


def tile(x: Any, reps: Axes) -> Any:
    """Lay copies of the array side by side, ``reps`` of them along each axis.

    >>> tile(tensor([1.0, 2.0]), 2).tolist()
    [1.0, 2.0, 1.0, 2.0]
    """
    x = operand(x, "tile")
    counts = [operator.index(n) for n in _listed(reps)]
    rank = max(x.ndim, len(counts))
    counts = [1] * (rank - len(counts)) + counts
    if min(counts, default=0) < 0:
        raise ShapeError(f"tile: expected numbers of copies, got {reps}")
    shape = (1,) * (rank - x.ndim) + x.shape
    apart = [n for length in shape for n in (1, length)]
    beside = [n for pair in zip(counts, shape, strict=True) for n in pair]
    full = broadcast_to(reshape(x, tuple(apart)), tuple(beside))
    return reshape(full, tuple(math.prod(p) for p in zip(counts, shape, strict=True)))


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Repeat each element of an axis: as often as said, for all or for each.

    >>> repeat(tensor([1.0, 2.0]), [2, 1]).tolist()
    [1.0, 1.0, 2.0]
    """
    x = operand(x, "repeat")
    if axis is None:
        x, axis = ravel(x), 0
    axis = _axis(axis, x.ndim, "repeat")
    counts = np.asarray(repeats.numpy() if isinstance(repeats, Tensor) else repeats)
    size = x.shape[axis]
    counts = counts if counts.size else counts.astype(int)
    if counts.dtype.kind not in "biu" or counts.ndim > 1 or (counts < 0).any():
        raise ShapeError(f"repeat: expected numbers of repeats, got {repeats}")
    if counts.size == 1:
        count = int(counts.reshape(()))
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        full = broadcast_to(expand_dims(x, axis + 1), (*before, size, count, *after))
        return reshape(full, (*before, size * count, *after))
    if counts.size != size:
        raise ShapeError(
            f"repeat: expected 1 or {size} numbers of repeats for axis {axis} of "
            f"{x.shape}, got {counts.size}"
        )
    return take(x, np.repeat(np.arange(size), counts), axis)


def resize(x: Any, new_shape: Axes) -> Any:
    """Fill another shape with the elements in row order, over and over.

    >>> resize(tensor([1.0, 2.0]), (3,)).tolist()
    [1.0, 2.0, 1.0]
    """
    x, shape = ravel(x), tuple(_listed(new_shape))
    size = math.prod(shape)
    if not x.size:
        return reshape(
            broadcast_to(operand(np.zeros((), x.dtype), "resize"), (size,)), shape
        )
    return reshape(tile(x, -(-size // x.size))[:size], shape)


def flatten(x: Any) -> Any:
    """All elements in one axis, in row order.

    >>> flatten(tensor([[1.0], [2.0]])).tolist()
    [1.0, 2.0]
    """
    return ravel(x)


def broadcast_shapes(*shapes: Axes) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise ShapeError(
            f"broadcast_shapes: shapes do not broadcast: {shapes}"
        ) from error


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """The arrays broadcast to one shape, as views.

    >>> [x.shape for x in broadcast_arrays(zeros((2, 1)), zeros(3))]
    [(2, 3), (2, 3)]
    """
    tensors = [operand(x, "broadcast_arrays") for x in arrays]
    shape = broadcast_shapes(*[x.shape for x in tensors])
    return tuple(x if x.shape == shape else broadcast_to(x, shape) for x in tensors)


def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Any, ...]:
    """Coordinate arrays of a grid from coordinate vectors.

    ``indexing="ij"`` gives (len(x), len(y), ...), "xy" exchanges the first two axes.

    >>> [x.tolist() for x in meshgrid(tensor([1.0, 2.0]), tensor([3.0]))]
    [[[1.0, 2.0]], [[3.0, 3.0]]]
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: expected indexing 'xy' or 'ij', got {indexing!r}")
    vectors = [ravel(x) for x in xi]
    places = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        places[:2] = 1, 0
    lines = [
        reshape(x, tuple(x.size if i == place else 1 for i in range(len(vectors))))
        for x, place in zip(vectors, places, strict=True)
    ]
    return tuple(lines) if sparse else broadcast_arrays(*lines)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """A matrix (N, M) with ones on and below the k-th diagonal, zeros above.

    float32 unless a dtype is given.

    >>> tri(2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    dtype = np.float32 if dtype is None else as_dtype(dtype, "tri")
    return wrap(np.tri(N, M, k, dtype))


# ----------------------------------------------------------------------------- common


def _listed(axes: Any) -> list[int]:
    return list(axes) if isinstance(axes, (Sequence, np.ndarray)) else [axes]


def _at_least(name: str, x: Any, rank: int) -> Any:
    x = operand(x)
    if x.ndim < rank:
        raise ShapeError(f"{name}: expected at least {rank} axes, got shape {x.shape}")
    return x
