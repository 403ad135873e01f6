"""Joining and cutting: stacks, blocks, insertions, and the ways to split."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import common_dtype, operand
from .arranging import _at_least, moveaxis
from .indexing import getitem, take
from .shapes import (
    _axis,
    broadcast_to,
    concatenate,
    expand_dims,
    ravel,
    reshape,
    split,
)


def atleast_1d(*arrays: Any) -> Any:
    """Each array with one axis at least.

    >>> atleast_1d(tensor(1.0)).shape
    (1,)
    """
    return _each(arrays, lambda x: reshape(x, 1) if x.ndim == 0 else x)


def atleast_2d(*arrays: Any) -> Any:
    """Each array with two axes at least: a vector becomes a row.

    >>> atleast_2d(tensor([1.0, 2.0])).shape
    (1, 2)
    """
    return _each(
        arrays, lambda x: reshape(x, (1,) * (2 - x.ndim) + x.shape) if x.ndim < 2 else x
    )


def atleast_3d(*arrays: Any) -> Any:
    """Each array with three axes at least: (n,) -> (1, n, 1), (m, n) -> (m, n, 1).

    >>> atleast_3d(tensor([1.0, 2.0])).shape
    (1, 2, 1)
    """

    def raised(x: Any) -> Any:
        if x.ndim == 2:
            return expand_dims(x, 2)
        return x if x.ndim > 2 else reshape(x, (1, x.size, 1))

    return _each(arrays, raised)


def vstack(tup: Sequence[Any]) -> Any:
    """Join arrays along the first axis; vectors are rows.

    >>> vstack([tensor([1.0, 2.0]), tensor([3.0, 4.0])]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return concatenate([atleast_2d(x) for x in tup], 0)


def hstack(tup: Sequence[Any]) -> Any:
    """Join arrays along the second axis; vectors along their only one.

    >>> hstack([tensor([1.0]), tensor([2.0, 3.0])]).tolist()
    [1.0, 2.0, 3.0]
    """
    arrays = [atleast_1d(x) for x in tup]
    return concatenate(arrays, 0 if arrays and arrays[0].ndim == 1 else 1)


def dstack(tup: Sequence[Any]) -> Any:
    """Join arrays along the third axis.

    >>> dstack([tensor([1.0]), tensor([2.0])]).tolist()
    [[[1.0, 2.0]]]
    """
    return concatenate([atleast_3d(x) for x in tup], 2)


def column_stack(tup: Sequence[Any]) -> Any:
    """Join vectors as columns, and matrices beside them.

    >>> column_stack([tensor([1.0, 2.0]), tensor([3.0, 4.0])]).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    arrays = [operand(x, "column_stack") for x in tup]
    return concatenate(
        [x if x.ndim > 1 else reshape(x, (x.size, 1)) for x in arrays], 1
    )


def block(arrays: Any) -> Any:
    """Join nested lists of blocks: the innermost along the last axis, and so outwards.

    >>> block([[tensor([1.0]), tensor([2.0])], [tensor([3.0, 4.0])]]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    depth, rank = _depth(arrays), 0
    pending = [arrays]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(item)
        else:
            rank = max(rank, operand(item, "block").ndim)
    return _joined(arrays, depth, max(depth, rank))


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(item) for item in arrays}
    if len(depths) != 1:
        raise ShapeError("block: expected lists of one depth, none of them empty")
    return depths.pop() + 1


def _joined(arrays: Any, depth: int, rank: int) -> Any:
    if not depth:
        x = operand(arrays)
        return reshape(x, (1,) * (rank - x.ndim) + x.shape) if x.ndim < rank else x
    return concatenate([_joined(item, depth - 1, rank) for item in arrays], -depth)


def append(x: Any, values: Any, axis: int | None = None) -> Any:
    """Join values to the end of an axis; without one, both are flattened first.

    >>> append(tensor([1.0]), [2.0, 3.0]).tolist()
    [1.0, 2.0, 3.0]
    """
    return concatenate([operand(x, "append"), operand(values, "append")], axis)


def insert(x: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Insert values before the given positions of an axis, or of the flattened array.

    >>> insert(tensor([1.0, 2.0]), 1, 5.0).tolist()
    [1.0, 5.0, 2.0]
    """
    x, values = common_dtype([operand(x, "insert"), operand(values, "insert")])
    if axis is None:
        x, axis = ravel(x), 0
    axis = _axis(axis, x.ndim, "insert")
    if values.ndim < x.ndim:
        values = reshape(values, (1,) * (x.ndim - values.ndim) + values.shape)
    where = obj if isinstance(obj, slice) else np.asarray(obj)
    if isinstance(where, slice):
        count = len(range(*where.indices(x.shape[axis])))
    elif where.ndim == 0:
        values = moveaxis(values, 0, axis)
        count = values.shape[axis]
    else:
        count = int(where.sum()) if where.dtype == bool else where.size
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    size = x.shape[axis]
    added = np.arange(size, size + count)
    try:
        order = np.insert(np.arange(size), where, added)
    except (IndexError, ValueError) as error:
        raise IndexError(f"insert: {error}; got positions {obj}") from error
    return take(concatenate([x, broadcast_to(values, shape)], axis), order, axis)


def delete(x: Any, obj: Any, axis: int | None = None) -> Any:
    """Leave out the given positions of an axis, or of the flattened array.

    >>> delete(tensor([1.0, 2.0, 3.0]), 1).tolist()
    [1.0, 3.0]
    """
    x = operand(x, "delete")
    if axis is None:
        x, axis = ravel(x), 0
    axis = _axis(axis, x.ndim, "delete")
    try:
        kept = np.delete(np.arange(x.shape[axis]), obj)
    except (IndexError, ValueError) as error:
        raise IndexError(f"delete: {error}; got positions {obj}") from error
    return take(x, kept, axis)


def unstack(x: Any, axis: int = 0) -> list[Any]:
    """The slices along an axis, without it: the inverse of ``stack``.

    >>> [row.tolist() for row in unstack(tensor([[1.0, 2.0], [3.0, 4.0]]))]
    [[1.0, 2.0], [3.0, 4.0]]
    """
    x = _at_least("unstack", x, 1)
    return _cut(x, _axis(axis, x.ndim, "unstack"))


def _cut(x: Any, axis: int) -> list[Any]:
    # by halves: the gradient of a slice is as large as what it was cut from
    before, count = (slice(None),) * axis, x.shape[axis]
    if count <= 4:
        return [getitem(x, (*before, i)) for i in range(count)]
    halves = (slice(0, count // 2), slice(count // 2, count))
    return [y for half in halves for y in _cut(getitem(x, (*before, half)), axis)]


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Cut along an axis into parts whose lengths differ by at most one, or at indices.

    >>> [part.tolist() for part in array_split(tensor([1.0, 2.0, 3.0]), 2)]
    [[1.0, 2.0], [3.0]]
    """
    x = operand(x, "array_split")
    if isinstance(indices_or_sections, (int, np.integer)):
        parts = operator.index(indices_or_sections)
        if parts <= 0:
            raise ShapeError(f"array_split: expected at least one part, got {parts}")
        size, longer = divmod(x.shape[_axis(axis, x.ndim, "array_split")], parts)
        cuts = [i * size + min(i, longer) for i in range(1, parts)]
        return split(x, cuts, axis)
    return split(x, indices_or_sections, axis)


def hsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    """Cut along the second axis; a vector along its only one.

    >>> [part.tolist() for part in hsplit(tensor([1.0, 2.0]), 2)]
    [[1.0], [2.0]]
    """
    x = _at_least("hsplit", x, 1)
    return split(x, indices_or_sections, 1 if x.ndim > 1 else 0)


def vsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    """Cut along the first axis.

    >>> [part.tolist() for part in vsplit(tensor([[1.0], [2.0]]), 2)]
    [[[1.0]], [[2.0]]]
    """
    return split(_at_least("vsplit", x, 2), indices_or_sections, 0)


def dsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    """Cut along the third axis.

    >>> [part.shape for part in dsplit(zeros((1, 1, 2)), 2)]
    [(1, 1, 1), (1, 1, 1)]
    """
    return split(_at_least("dsplit", x, 3), indices_or_sections, 2)


def _each(arrays: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    changed = tuple(change(operand(x)) for x in arrays)
    return changed[0] if len(changed) == 1 else changed
