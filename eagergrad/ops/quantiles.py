"""Quantiles: the elements at given places in sorted order, and means of two."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..tensor import Tensor, wrap
from .elementwise import isnan, product, where
from .gathering import take_along_axis
from .indexing import take
from .reductions import Axis, _count, _floating, _reduced, sum
from .shapes import broadcast_to, reshape, transpose
from .sorting import sort
from .statistics import _array, _axes, _joined, _over

_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


def quantile(
    x: Any,
    q: Any,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """The values below which the fractions q of the elements lie; nan among nan.

    q in [0, 1] is a constant; an array of them makes axes before those that remain.
    Between two elements they are mixed (``method`` linear), or one is taken, or their
    mean: lower, higher, nearest, midpoint.  Equal elements: as for ``sort``.

    >>> quantile(tensor([1.0, 2.0, 4.0]), 0.75).item()
    3.0
    """
    return _quantile(x, q, axis, method, keepdims, "quantile")


def percentile(
    x: Any,
    q: Any,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """``quantile`` with q in percent.

    >>> percentile(tensor([1.0, 2.0, 4.0]), 75).item()
    3.0
    """
    q = q.numpy() if isinstance(q, Tensor) else np.asarray(q, np.float64)
    return _quantile(x, q / 100, axis, method, keepdims, "percentile")


def median(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The middle element in order, or the mean of the two; nan among nan.

    The gradient goes to the one or two picked; equal elements: as for ``sort``.

    >>> median(tensor([4.0, 1.0, 3.0, 2.0])).item()
    2.5
    """
    return _quantile(x, 0.5, axis, "midpoint", keepdims, "median")


def nanmedian(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The median of the elements that are not nan; nan for none.

    >>> nanmedian(tensor([1.0, nan, 2.0])).item()
    1.5
    """
    x = _floating(x, "nanmedian")
    axes = _axes(axis, x.ndim, "nanmedian")
    if not x.ndim or not _count(x.shape, axes):
        return median(x, axes, keepdims)
    flat, along = _joined(x, axes)
    ordered = sort(flat, along)  # nan is last
    count = sum(~isnan(flat), along, True)._data
    xp = x.device.backend.xp
    low = take_along_axis(ordered, xp.maximum(count - 1, 0) // 2, along)
    high = take_along_axis(
        ordered, xp.minimum(count // 2, flat.shape[along] - 1), along
    )
    y = where(wrap(count % 2 == 1), low, 0.5 * low + 0.5 * high)
    return reshape(y, _reduced(x.shape, axes, keepdims))


def _quantile(
    x: Any, q: Any, axis: Axis, method: str, keepdims: bool, name: str
) -> Any:
    x = _floating(x)
    axes = _axes(axis, x.ndim, name)
    if method not in _METHODS:
        raise ShapeError(f"{name}: expected method in {_METHODS}, got {method!r}")
    q = np.asarray(q.numpy() if isinstance(q, Tensor) else q, np.float64)
    if not ((q >= 0) & (q <= 1)).all():
        raise ShapeError(f"{name}: expected q in [0, {100 if name[0] == 'p' else 1}]")
    shape = (*q.shape, *_reduced(x.shape, axes, keepdims))
    if not axes and axis is not None:
        return broadcast_to(x, shape)
    flat, along = _joined(x, axes)
    flat = reshape(flat, (-1,)) if not flat.ndim else flat
    length = flat.shape[along]
    if not length:
        return broadcast_to(_over(sum(flat, along), 0), shape)
    ordered = sort(flat, along)
    place = q.reshape(-1) * (length - 1)
    low = np.floor(place)
    share = place - low
    if method == "lower":
        share = share * 0
    elif method == "higher":
        share = np.ceil(share)
    elif method == "nearest":
        low, share = np.rint(place), share * 0
    elif method == "midpoint":
        share = np.where(share > 0, 0.5, 0.0)
    below = low.astype(np.int64)
    above = np.minimum(below + 1, length - 1)
    ends = (slice(None),) * along + (slice(-1, None),)
    missing = isnan(ordered[ends])  # nan is last
    y = take(ordered, _beside(x, below), along)
    if share.any():
        part = _beside(x, share.astype(x._data.real.dtype))
        part = _array(part.reshape((-1,) + (1,) * (flat.ndim - 1 - along)))
        over = take(ordered, _beside(x, above), along)
        y = product(1.0 - part, y) + product(part, over)
    y = where(missing, math.nan, y)
    order = (along, *[i for i in range(flat.ndim) if i != along])
    return reshape(transpose(y, order), shape)


def _beside(x: Tensor, values: np.ndarray[Any, Any]) -> Any:
    return x.device.backend.put(values, x.device)
