"""Shapes: ops that move elements about, each beside its transpose."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import recording
from ..errors import ShapeError
from ..operands import operand
from ..primitive import linear, primitive
from .elementwise import settled

_reshape = linear(
    "reshape",
    transpose=lambda g, like: _reshape(g, like.shape),
    forward=lambda xp, x, shape: x.reshape(shape),
)


def reshape(x: Any, shape: int | Sequence[int], copy: bool | None = None) -> Any:
    """The same elements in another shape; one length may be -1.

    A view where strides allow it.  With ``copy=True`` it never is one, and with
    ``copy=False`` elements that must be copied raise ValueError.

    >>> reshape(tensor([1.0, 2.0, 3.0, 4.0]), (2, -1)).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    y = _reshape(x, _lengths(shape))
    return y if copy is None else settled(y, x, copy, "reshape")


_transpose = linear(
    "transpose",
    transpose=lambda g, axes: _transpose(g, _inverse(axes)),
    forward=lambda xp, x, axes: x.T if axes is None else x.transpose(axes),
)


def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """Permute the axes; without ``axes`` reverse them.

    >>> transpose(tensor([[1.0, 2.0]])).shape
    (2, 1)
    """
    return _transpose(x, None if axes is None else tuple(axes))


def _inverse(axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if axes is None:
        return None
    inverse = [0] * len(axes)
    for i, axis in enumerate(axes):
        inverse[axis] = i
    return tuple(inverse)


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Exchange two axes.

    >>> swapaxes(zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = x if hasattr(x, "ndim") else operand(x, "swapaxes")
    axis1 = _axis(axis1, x.ndim, "swapaxes")
    axis2 = _axis(axis2, x.ndim, "swapaxes")
    axes = list(range(x.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return _transpose(x, tuple(axes))


def _view(x: Any, shape: tuple[int, ...]) -> Any:
    if x.shape:
        return np.broadcast_to(x, shape)
    return np.ndarray(
        shape, x.dtype, x, 0, (0,) * len(shape)
    )  # 2 us less, for a scalar


_broadcast_to = linear(
    "broadcast_to",
    transpose=lambda g: g,  # the sweep sums over the axes that were broadcast
    forward=lambda xp, x, shape: xp.broadcast_to(x, shape),
    numpy=_view,
)


def broadcast_to(x: Any, shape: int | Sequence[int]) -> Any:
    """Repeat along new axes and along axes of length 1, as a view.

    >>> broadcast_to(tensor([1.0, 2.0]), (2, 2)).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    return _broadcast_to(x, _lengths(shape))


def expand_dims(x: Any, axis: int | Sequence[int]) -> Any:
    """Insert axes of length 1 at the given positions of the result.

    >>> expand_dims(tensor([1.0, 2.0]), 0).shape
    (1, 2)
    """
    x = x if hasattr(x, "ndim") else operand(x, "expand_dims")
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    rank = x.ndim + len(axes)
    places = {_axis(i, rank, "expand_dims") for i in axes}
    if len(places) != len(axes):
        raise ShapeError(f"expand_dims: repeated axis in {axes}")
    lengths = iter(x.shape)
    return _reshape(x, tuple(1 if i in places else next(lengths) for i in range(rank)))


def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Any:
    """Remove axes of length 1: all of them, or those named.

    >>> squeeze(tensor([[1.0, 2.0]])).shape
    (2,)
    """
    x = x if hasattr(x, "ndim") else operand(x, "squeeze")
    if axis is None:
        return _reshape(x, tuple(n for n in x.shape if n != 1))
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    places = {_axis(i, x.ndim, "squeeze") for i in axes}
    for i in sorted(places):
        if x.shape[i] != 1:
            raise ShapeError(
                f"squeeze: expected length 1 on axis {i}, got {x.shape[i]} of {x.shape}"
            )
    return _reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in places))


def ravel(x: Any) -> Any:
    """All elements in one axis, in row order.

    >>> ravel(tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return _reshape(x, (-1,))


def _pieces(g: Any, shapes: list[tuple[int, ...]], axis: int) -> list[Any]:
    pieces, start = [], 0
    axis = axis % len(shapes[0])
    for shape in shapes:
        stop = start + shape[axis]
        pieces.append(g[(slice(None),) * axis + (slice(start, stop),)])
        start = stop
    return pieces


def _in_groups(arrays: Sequence[Any]) -> list[Sequence[Any]]:
    """The arrays to be joined at once: for a recording, 8 at most.

    The addresses of more CuPy sends to the GPU, which cannot be recorded.
    """
    size = len(arrays) if recording() is None else 8
    return [arrays[i : i + size] for i in range(0, len(arrays), size)]


def _concatenated(xp: Any, arrays: Sequence[Any], axis: int) -> Any:
    groups = _in_groups(arrays)
    if len(groups) == 1:
        return xp.concatenate(arrays, axis=axis)
    parts = [xp.concatenate(group, axis=axis) for group in groups]
    return _concatenated(xp, parts, axis)


def _stacked(xp: Any, arrays: Sequence[Any], axis: int) -> Any:
    groups = _in_groups(arrays)
    if len(groups) == 1:
        return xp.stack(arrays, axis=axis)
    parts = [xp.stack(group, axis=axis) for group in groups]
    return _concatenated(xp, parts, axis)


_concatenate = linear(
    "concatenate",
    transpose=lambda g, shapes, axis: _pieces(g, shapes, axis),
    forward=_concatenated,
    numpy=lambda arrays, axis: np.concatenate(arrays, axis=axis),
)


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    """Join arrays along an existing axis; ``axis=None`` joins them flattened.

    >>> concatenate([tensor([1.0]), tensor([2.0, 3.0])]).tolist()
    [1.0, 2.0, 3.0]
    """
    if axis is None:
        return _concatenate([ravel(x) for x in arrays], 0)
    return _concatenate(arrays, axis)


concat = concatenate

_stack = linear(
    "stack",
    transpose=lambda g, shapes, axis: _slices(g, shapes, axis),
    forward=_stacked,
    numpy=lambda arrays, axis: np.stack(arrays, axis=axis),
)


def _slices(g: Any, shapes: list[tuple[int, ...]], axis: int) -> list[Any]:
    before = (slice(None),) * (axis % (len(shapes[0]) + 1))
    return [g[(*before, i)] for i in range(len(shapes))]


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Join arrays of one shape along a new axis.

    >>> stack([tensor(1.0), tensor(2.0)]).tolist()
    [1.0, 2.0]
    """
    return _stack(arrays, axis)


@primitive(several=True)
def _split(xp: Any, x: Any, cuts: list[int], axis: int) -> Any:
    return tuple(xp.split(x, cuts, axis))


@_split.vjp
def _split_rule(g: Any, axis: int) -> Any:
    return _concatenate(g, axis)


def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Cut along an axis: into equal parts, or at the given indices.

    >>> [part.tolist() for part in split(tensor([1.0, 2.0, 3.0]), [1])]
    [[1.0], [2.0, 3.0]]
    """
    x = operand(x, "split")
    axis = _axis(axis, x.ndim, "split")
    length = x.shape[axis]
    if isinstance(indices_or_sections, int):
        parts = indices_or_sections
        if parts <= 0 or length % parts:
            raise ShapeError(
                f"split: {parts} equal parts do not divide axis {axis} of {x.shape}; "
                "give the indices to cut at"
            )
        cuts = [length // parts * i for i in range(1, parts)]
    else:
        cuts = [operator.index(i) for i in indices_or_sections]
    return list(_split(x, cuts, axis))


def _axis(axis: int, rank: int, name: str) -> int:
    if not -rank <= axis < rank:
        raise ShapeError(f"{name}: axis {axis} is out of range for {rank} axes")
    return axis % rank


def _lengths(shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(shape, tuple):
        return shape
    if isinstance(shape, Sequence):
        return tuple(shape)
    return (operator.index(shape),)
