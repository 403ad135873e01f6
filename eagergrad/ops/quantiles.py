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
from .reductions import Axis, _floating, _reduced, sum
from .shapes import broadcast_to, reshape, transpose
from .sorting import sort
from .statistics import _axes, _joined, _over

_ROUNDED = {"lower": "floor", "higher": "ceil", "nearest": "rint"}
_METHODS = ("linear", "midpoint", *_ROUNDED)


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
    return _quantile(x, _fractions(q), axis, method, keepdims, "percentile")


def median(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The middle element in order, or the mean of the two; nan among nan.

    The gradient goes to the one or two picked; equal elements: as for ``sort``.

    >>> median(tensor([4.0, 1.0, 3.0, 2.0])).item()
    2.5
    """
    return _quantile(x, 0.5, axis, "midpoint", keepdims, "median")


def nanquantile(
    x: Any,
    q: Any,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """``quantile`` of the elements that are not nan; nan for none.

    >>> nanquantile(tensor([1.0, nan, 2.0, 4.0]), 0.75).item()
    3.0
    """
    return _quantile(x, q, axis, method, keepdims, "nanquantile")


def nanpercentile(
    x: Any,
    q: Any,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """``nanquantile`` with q in percent.

    >>> nanpercentile(tensor([1.0, nan, 2.0, 4.0]), 75).item()
    3.0
    """
    return _quantile(x, _fractions(q), axis, method, keepdims, "nanpercentile")


def nanmedian(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The median of the elements that are not nan; nan for none.

    >>> nanmedian(tensor([1.0, nan, 2.0])).item()
    1.5
    """
    return _quantile(x, 0.5, axis, "midpoint", keepdims, "nanmedian")


def _fractions(percent: Any) -> np.ndarray[Any, Any]:
    if isinstance(percent, Tensor):
        percent = percent.numpy()
    return np.asarray(percent, np.float64) / 100


def _quantile(
    x: Any, q: Any, axis: Axis, method: str, keepdims: bool, name: str
) -> Any:
    x = _floating(x, name)
    axes = _axes(axis, x.ndim, name)
    if method not in _METHODS:
        raise ShapeError(f"{name}: expected method in {_METHODS}, got {method!r}")
    q = np.asarray(q.numpy() if isinstance(q, Tensor) else q, np.float64)
    if not ((q >= 0) & (q <= 1)).all():
        most = 100 if "percentile" in name else 1
        raise ShapeError(f"{name}: expected q in [0, {most}]")
    shape = (*q.shape, *_reduced(x.shape, axes, keepdims))
    if not axes and axis is not None:
        return broadcast_to(x, shape)
    flat, along = _joined(x, axes)
    flat = reshape(flat, (-1,)) if not flat.ndim else flat
    length = flat.shape[along]
    if not length:
        return broadcast_to(_over(sum(flat, along), 0), shape)
    ordered = sort(flat, along)  # nan is last
    q = q.reshape((-1,) + (1,) * (flat.ndim - 1 - along))
    pick: Any
    with x.device.allocating(name):
        if name.startswith("nan"):  # each slice has its own count, and its own places
            xp, pick, q = x.device.backend.xp, _take_along, _beside(x, q)
            count = sum(~isnan(flat), along, True)
            missing, last = count == 0, xp.maximum(count._data - 1, 0)
        else:  # all have the same, known on the host
            xp, pick, last = np, _take, length - 1
            missing = isnan(ordered[(slice(None),) * along + (slice(-1, None),)])
        low, share = _places(xp, q, last, method)
        y = pick(ordered, low, along)
        if method not in _ROUNDED and (pick is not _take or share.any()):
            part: Any = wrap(_beside(x, share.astype(x._data.real.dtype)))
            over = pick(ordered, xp.minimum(low + 1, last), along)
            y = product(1.0 - part, y) + product(part, over)
    y = where(missing, math.nan, y)
    order = (along, *[i for i in range(flat.ndim) if i != along])
    return reshape(transpose(y, order), shape)


def _places(xp: Any, q: Any, last: Any, method: str) -> tuple[Any, Any]:
    """The place at or below each quantile in sorted order, and the next one's share."""
    place = q * last
    if method in _ROUNDED:
        place = getattr(xp, _ROUNDED[method])(place)
    low = xp.floor(place)
    share = place - low
    if method == "midpoint":
        share = xp.where(share > 0, 0.5, 0.0)
    return low.astype(np.int64), share


def _take(x: Any, places: Any, axis: int) -> Any:
    return take(x, _beside(x, places.reshape(-1)), axis)


def _take_along(x: Any, places: Any, axis: int) -> Any:
    return take_along_axis(x, wrap(places), axis)


def _beside(x: Tensor, values: Any) -> Any:
    """Values of the host, or of its device already, beside x."""
    backend = x.device.backend
    return values if type(values) is backend.buffer else backend.put(values, x.device)
