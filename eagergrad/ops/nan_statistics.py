"""Statistics and scans of the elements that are not nan."""

from __future__ import annotations

import math
from typing import Any

from ..primitive import primitive
from .elementwise import _astype_op, _where, astype, isnan, maximum, where
from .matrix_norms import _length
from .reductions import (
    Axis,
    _normal,
    _reduced,
    _sum,
    any,
    argmax,
    reduced_shape,
    sum,
)
from .scans import cumprod, cumsum
from .shapes import reshape
from .statistics import _array, _back, _squares, _wide, prod


def _present(x: Any, fill: float) -> tuple[Any, Any]:
    """x with its nan filled, and where it has one."""
    x = _array(x)
    gone = isnan(x) if x.dtype.kind in "fcV" else x != x
    return where(gone, fill, x) if x.dtype.kind in "fcV" else x, gone


def nansum(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum of the elements that are not nan; 0 for none.

    >>> nansum(tensor([1.0, nan, 2.0])).item()
    3.0
    """
    return sum(_present(x, 0.0)[0], axis, keepdims)


def nanprod(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product of the elements that are not nan; 1 for none.

    >>> nanprod(tensor([2.0, nan, 3.0])).item()
    6.0
    """
    return prod(_present(x, 1.0)[0], axis, keepdims)


def nanmean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean of the elements that are not nan; nan for none.

    >>> nanmean(tensor([1.0, nan, 2.0])).item()
    1.5
    """
    x, dtype = _wide(x)
    filled, gone = _present(x, 0.0)
    axis = _normal(axis)
    count = astype(_sum(~gone, axis, keepdims), filled._data.real.dtype)
    return _back(_sum(filled, axis, keepdims) / count, dtype)


def _nan_deviations(x: Any, axis: Axis) -> tuple[Any, Any]:
    """x - nanmean(x) with 0 for nan, and how many are not nan, with keepdims."""
    filled, gone = _present(x, 0.0)
    count = astype(_sum(~gone, axis, True), filled._data.real.dtype)
    middle = _sum(filled, axis, True) / maximum(count, 1.0)
    return where(gone, 0.0, filled - middle), count


def nanvar(x: Any, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The variance of the elements that are not nan; nan where no more than ddof are.

    >>> nanvar(tensor([1.0, nan, 3.0])).item()
    1.0
    """
    x, dtype = _wide(x)
    axis = _normal(axis)
    d, count = _nan_deviations(x, axis)
    y = _sum(_squares(d), axis, True) / where(count > ddof, count - ddof, math.nan)
    y = y if keepdims else reshape(y, _reduced(x.shape, axis, False))
    return _back(y, dtype)


def nanstd(x: Any, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation of the elements that are not nan; see ``nanvar``.

    The gradient at equal values is 0.

    >>> nanstd(tensor([1.0, nan, 3.0])).item()
    1.0
    """
    x, dtype = _wide(x)
    axis = _normal(axis)
    d, count = _nan_deviations(x, axis)
    y = _length(d, axis, True) / where(count > ddof, count - ddof, math.nan) ** 0.5
    y = y if keepdims else reshape(y, _reduced(x.shape, axis, False))
    return _back(y, dtype)


def _nan_extreme_rule(g: Any, x: Any, y: Any, axis: Axis, keepdims: bool) -> Any:
    """Equal extremes share the gradient evenly; a nan gets none."""
    if not keepdims and axis is not None and x.ndim:
        shape = reduced_shape(x.shape, axis)
        g, y = reshape(g, shape), reshape(y, shape)
    hit = x == y
    count = _sum(_astype_op(hit, x.dtype, None), axis, True)
    return _where(hit, g / _where(count > 0, count, 1.0), 0.0)


def _nan_extreme(
    xp: Any, x: Any, name: str, fill: float, axis: Axis, keepdims: bool
) -> Any:
    if x.dtype.kind not in "fV":
        return getattr(x, name)(axis=axis, keepdims=keepdims)
    gone = xp.isnan(x)
    filled = xp.where(gone, xp.full((), fill, x.dtype), x)
    y = getattr(filled, name)(axis=axis, keepdims=True)
    none = gone.all(axis=axis, keepdims=True)
    y = xp.where(none, xp.full((), math.nan, x.dtype), y)
    return y if keepdims else y.reshape(_reduced(x.shape, axis, False))


@primitive()
def _nanmax(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    return _nan_extreme(xp, x, "max", -math.inf, axis, keepdims)


@primitive()
def _nanmin(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    return _nan_extreme(xp, x, "min", math.inf, axis, keepdims)


_nanmax.vjp(_nan_extreme_rule)
_nanmin.vjp(_nan_extreme_rule)


def nanmax(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element but for nan; nan for none.  Equal ones share the gradient.

    >>> nanmax(tensor([1.0, nan, 2.0])).item()
    2.0
    """
    return _nanmax(x, _normal(axis), keepdims)


def nanmin(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element but for nan; nan for none.  Equal ones share the gradient.

    >>> nanmin(tensor([1.0, nan, 2.0])).item()
    1.0
    """
    return _nanmin(x, _normal(axis), keepdims)


def _position(extreme: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
    x = _array(x)
    hit = x == extreme(x, axis, True)
    return where(any(hit, axis, keepdims), argmax(hit, axis, keepdims), -1)


def nanargmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first largest element but for nan; int64, no gradient.

    It is -1 where all are nan: there NumPy raises, which needs a look at the values.

    >>> nanargmax(tensor([1.0, nan, 2.0])).item()
    2
    """
    return _position(nanmax, x, axis, keepdims)


def nanargmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first smallest element but for nan; see ``nanargmax``.

    >>> nanargmin(tensor([nan, 1.0, 2.0])).item()
    1
    """
    return _position(nanmin, x, axis, keepdims)


def nancumsum(x: Any, axis: int | None = None) -> Any:
    """Sums so far along an axis, with 0 for nan; ``axis=None``: of x flattened.

    >>> nancumsum(tensor([1.0, nan, 2.0])).tolist()
    [1.0, 1.0, 3.0]
    """
    return cumsum(_present(x, 0.0)[0], axis)


def nancumprod(x: Any, axis: int | None = None) -> Any:
    """Products so far along an axis, with 1 for nan; ``axis=None``: of x flattened.

    >>> nancumprod(tensor([2.0, nan, 3.0])).tolist()
    [2.0, 2.0, 6.0]
    """
    return cumprod(_present(x, 1.0)[0], axis)
