"""Sorting and searching.  Equal elements keep their order; nan is the largest.

The gradient of sorted values goes back to the places they came from, so that equal
elements get the gradients of different places, in their order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..primitive import primitive
from ..tensor import Tensor, wrap
from .gathering import _pick, axis_of
from .indexing import _getitem, take
from .shapes import ravel, reshape


def _ordered(x: Any) -> Any:
    """bfloat16 in float32: ml_dtypes puts nan in no order."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


@primitive(constant=True)
def _argsort(xp: Any, x: Any, axis: int) -> Any:
    return xp.argsort(_ordered(x), axis=axis, kind="stable")


@primitive(constant=True)
def _argpartition(xp: Any, x: Any, kth: Any, axis: int) -> Any:
    return xp.argpartition(_ordered(x), kth, axis=axis)


@primitive(arrays=2, constant=True)
def _searchsorted(xp: Any, x: Any, v: Any, side: str) -> Any:
    v = _ordered(v) if hasattr(v, "dtype") else v
    return xp.searchsorted(_ordered(x), v, side=side)


def _laid(x: Any, axis: int | None, name: str) -> tuple[Any, int]:
    """x, flattened for ``axis=None``, and the axis counted from the first."""
    x = operand(x)
    if axis is None:
        return ravel(x), 0
    return x, axis_of(axis, x.ndim, name)


def _order(x: Any, axis: int, descending: bool) -> Any:
    """The indices that sort; falling order is found from the end, to be stable."""
    if not descending:
        return _argsort(x, axis)._data
    back = (slice(None),) * axis + (slice(None, None, -1),)
    order = _argsort(wrap(x._data[back]), axis)._data[back]
    with x.device.allocating("argsort"):
        return (x.shape[axis] - 1) - order


def argsort(
    x: Any, axis: int | None = -1, descending: bool = False, stable: bool = True
) -> Any:
    """The indices that sort along an axis; int64, no gradient.

    The order is stable whatever ``stable`` says; in falling order nan comes first.

    >>> argsort(tensor([3.0, 1.0, 2.0])).tolist()
    [1, 2, 0]
    """
    x, axis = _laid(x, axis, "argsort")
    return wrap(_order(x, axis, descending))


def sort(
    x: Any, axis: int | None = -1, descending: bool = False, stable: bool = True
) -> Any:
    """Sort along an axis, nan last; ``axis=None`` sorts all, flattened.

    The gradient is put back in the places of the elements; equal ones keep their order,
    whatever ``stable`` says.  In falling order nan comes first.

    >>> sort(tensor([3.0, 1.0, 2.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    x, axis = _laid(x, axis, "sort")
    if x._node is None:  # ten times the speed of sorting indices
        with x.device.allocating("sort"):
            y = x.device.backend.xp.sort(_ordered(x._data), axis=axis)
            y = y.astype(x.dtype, copy=False)
        back = (slice(None),) * axis + (slice(None, None, -1),)
        return wrap(y[back] if descending else y)
    return _pick(x, _order(x, axis, descending), axis)


def argpartition(x: Any, kth: Any, axis: int | None = -1) -> Any:
    """Indices that put the kth smallest in its sorted place, smaller ones before it.

    The order on either side is any; int64, no gradient.

    >>> argpartition(tensor([3.0, 1.0, 2.0]), 0).tolist()[0]
    1
    """
    x, axis = _laid(x, axis, "argpartition")
    return _argpartition(x, kth, axis)


def partition(x: Any, kth: Any, axis: int | None = -1) -> Any:
    """Put the kth smallest along an axis in its sorted place, smaller ones before it.

    The order on either side is any.  The gradient goes back to the elements' places.

    >>> partition(tensor([3.0, 1.0, 2.0]), 1).tolist()
    [1.0, 2.0, 3.0]
    """
    x, axis = _laid(x, axis, "partition")
    return _pick(x, _argpartition(x, kth, axis)._data, axis)


def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    """The k largest along an axis, in falling order, and their indices.

    With ``largest=False`` the k smallest, rising.  Of equal elements the first comes
    first; nan is the largest.  The gradient goes to the elements that were picked.

    >>> values, indices = topk(tensor([3.0, 1.0, 2.0]), 2)
    >>> values.tolist(), indices.tolist()
    ([3.0, 2.0], [0, 2])
    """
    x, axis = _laid(x, axis, "topk")
    length = x.shape[axis]
    if not 0 <= k <= length:
        raise ShapeError(f"topk: expected k in [0, {length}], got {k}, for {x.shape}")
    head = (slice(None),) * axis + (slice(0, k),)
    indices = _order(x, axis, largest)[head].copy()
    return _pick(x, indices, axis), wrap(indices)


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where v would be inserted in a sorted a: int64, no gradient.

    ``side="left"``: a[i - 1] < v <= a[i]; "right": a[i - 1] <= v < a[i].

    >>> searchsorted(tensor([1.0, 2.0, 3.0]), tensor([2.0])).tolist()
    [1]
    """
    if side not in ("left", "right"):
        raise ShapeError(f"searchsorted: expected side left or right, got {side!r}")
    a = operand(a, "searchsorted")
    if a.ndim != 1:
        raise ShapeError(f"searchsorted: expected a of one axis, got {a.shape}")
    return _searchsorted(a if sorter is None else take(a, sorter), v, side)


def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    equal_nan: bool = True,
) -> Any:
    """The different elements, sorted, of x flattened; or the different slices.

    The gradient of a value goes to the first element that has it.  On request also the
    index of each one's first, where each element is among them, and how many there are.
    With ``equal_nan=False`` each nan is different from the others.

    >>> unique(tensor([3.0, 1.0, 3.0])).tolist()
    [1.0, 3.0]
    """
    x = operand(x, "unique")
    with x.device.allocating("unique"):
        _, index, inverse, counts = x.device.backend.xp.unique(
            _ordered(x._data),
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis,
            equal_nan=equal_nan,
        )
    values = _getitem(ravel(x), index) if axis is None else take(x, index, axis)
    asked = (return_index, return_inverse, return_counts)
    parts = zip(asked, (index, inverse, counts), strict=True)
    extra = [wrap(part) for wanted, part in parts if wanted]
    return (values, *extra) if extra else values


class UniqueAllResult(NamedTuple):
    """What ``unique_all`` returns."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """What ``unique_counts`` returns."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """What ``unique_inverse`` returns."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any) -> UniqueAllResult:
    """The different elements, sorted, each nan for itself; and what is known of them.

    That is the index of each one's first in x flattened, for each element of x, in its
    shape, which of them it is, and how often each is there.

    >>> unique_all(tensor([3.0, 1.0, 3.0])).inverse_indices.tolist()
    [1, 0, 1]
    """
    x = operand(x, "unique_all")
    values, index, inverse, counts = unique(x, True, True, True, equal_nan=False)
    return UniqueAllResult(values, index, reshape(inverse, x.shape), counts)


def unique_counts(x: Any) -> UniqueCountsResult:
    """The different elements, as of ``unique_all``, and how often each is there.

    >>> unique_counts(tensor([3.0, 1.0, 3.0])).counts.tolist()
    [1, 2]
    """
    found = unique_all(x)
    return UniqueCountsResult(found.values, found.counts)


def unique_inverse(x: Any) -> UniqueInverseResult:
    """The different elements, as of ``unique_all``, and which of them each of x is.

    >>> values, inverse = unique_inverse(tensor([3.0, 1.0, 3.0]))
    >>> values[inverse].tolist()
    [3.0, 1.0, 3.0]
    """
    found = unique_all(x)
    return UniqueInverseResult(found.values, found.inverse_indices)


def unique_values(x: Any) -> Any:
    """The different elements, sorted, each nan for itself.

    >>> unique_values(tensor([3.0, 1.0, 3.0])).tolist()
    [1.0, 3.0]
    """
    return unique(x, equal_nan=False)


def nonzero(x: Any) -> tuple[Tensor, ...]:
    """The indices of the elements that are not 0, an int64 tensor for each axis.

    >>> [i.tolist() for i in nonzero(tensor([[0.0, 2.0], [3.0, 0.0]]))]
    [[0, 1], [1, 0]]
    """
    x = operand(x, "nonzero")
    if not x.ndim:
        raise ShapeError("nonzero: expected at least one axis, got shape (); use ravel")
    with x.device.allocating("nonzero"):
        return tuple([wrap(index) for index in x.device.backend.xp.nonzero(x._data)])


def flatnonzero(x: Any) -> Tensor:
    """The indices, in x flattened, of the elements that are not 0; int64.

    >>> flatnonzero(tensor([[0.0, 2.0], [3.0, 0.0]])).tolist()
    [1, 2]
    """
    return nonzero(ravel(x))[0]
