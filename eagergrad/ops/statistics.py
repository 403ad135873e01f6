"""Statistics: products, averages and spreads, with or without nan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..primitive import linear
from .elementwise import (
    astype,
    imag,
    product,
    real,
    square,
)
from .gathering import axis_of
from .matrix_norms import _length
from .reductions import (
    Axis,
    _count,
    _floating,
    _mean,
    _reduced,
    _sum,
    is_half,
    max,
    min,
    sum,
)
from .scans import _prod
from .shapes import broadcast_to, ravel, reshape, transpose

amax = max
amin = min


def _array(x: Any) -> Any:
    return operand(x)


def _wide(x: Any) -> tuple[Any, Any]:
    """A floating tensor, half types in float32, and the dtype to return to."""
    x = _floating(x)
    return (astype(x, "float32") if is_half(x) else x), x.dtype


def _back(y: Any, dtype: Any) -> Any:
    """The result of ``_wide`` in the dtype it came from; complex may now be real."""
    half = y.dtype == np.float32 and dtype.itemsize == 2
    return astype(y, dtype) if half else y


def _axes(axis: Any, rank: int, name: str) -> tuple[int, ...]:
    """The axes to reduce, counted from the first."""
    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(axis_of(i, rank, name) for i in given)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: repeated axis in {given}")
    return axes


def _joined(x: Any, axes: tuple[int, ...]) -> tuple[Any, int]:
    """x with its axes made one, and which one that is."""
    if len(axes) == 1:
        return x, axes[0]
    if len(axes) == x.ndim:
        return ravel(x), 0
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    x = transpose(x, rest + axes)
    length = math.prod(x.shape[len(rest) :])
    return reshape(x, (*x.shape[: len(rest)], length)), len(rest)


def prod(
    x: Any, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None
) -> Any:
    """Multiply over the given axes, or over all; 1 for no elements.

    The gradient is right with zeros among the factors.  Half types use float32.  With
    ``dtype`` x is cast to it first.

    >>> prod(tensor([2.0, 3.0, 4.0])).item()
    24.0
    """
    x = _array(x) if dtype is None else astype(x, dtype)
    axes = _axes(axis, x.ndim, "prod")
    y = _prod(*_joined(x, axes)) if axes or axis is None else x
    return reshape(y, _reduced(x.shape, axes, True)) if keepdims else y


def count_nonzero(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Count the elements that are not 0; int64, no gradient.

    >>> count_nonzero(tensor([0.0, 2.0, 3.0])).item()
    2
    """
    return sum(_array(x) != 0, axis, keepdims)


# ------------------------------------------------------------------------- spreads


# x - mean(x) is its own transpose.
_centred = linear(
    "centred",
    transpose=lambda g, axis: _centred(g, axis),
    forward=lambda xp, x, axis: x - x.mean(axis=axis, keepdims=True),
)


def _squares(d: Any) -> Any:
    return square(d) if d.dtype.kind != "c" else square(real(d)) + square(imag(d))


def _over(total: Any, count: float) -> Any:
    """Divide by a number of elements; of none, as NumPy does, nan or inf."""
    return total / count if count > 0 else total / 0.0


def _freedom(ddof: float, correction: float | None, name: str) -> float:
    """What to take off the count, by NumPy's name or by the Array API's."""
    if correction is None:
        return ddof
    if ddof:
        raise ShapeError(
            f"{name}: expected ddof or correction, got both: {ddof} and {correction}"
        )
    return correction


def var(
    x: Any,
    axis: Axis = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """The variance: sum(|x - mean(x)|^2) / (n - ddof) over the axes.

    nan or inf where n <= ddof, also called ``correction``.  Half types use float32.

    >>> var(tensor([1.0, 2.0, 3.0]), ddof=1).item()
    1.0
    """
    ddof = _freedom(ddof, correction, "var")
    x, dtype = _wide(x)
    axes = _axes(axis, x.ndim, "var")
    if not _count(x.shape, axes):
        return _back(_over(_sum(real(x), axes, keepdims), 0), dtype)
    total = _sum(_squares(_centred(x, axes)), axes, keepdims)
    return _back(_over(total, _count(x.shape, axes) - ddof), dtype)


def std(
    x: Any,
    axis: Axis = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """The standard deviation: sqrt(sum(|x - mean(x)|^2) / (n - ddof)).

    The gradient at equal values is 0.  nan or inf where n <= ddof, also called
    ``correction``.

    >>> std(tensor([1.0, 2.0, 3.0]), ddof=1).item()
    1.0
    """
    ddof = _freedom(ddof, correction, "std")
    x, dtype = _wide(x)
    axes = _axes(axis, x.ndim, "std")
    if not _count(x.shape, axes):
        return _back(_over(_sum(real(x), axes, keepdims), 0), dtype)
    length = _length(_centred(x, axes), axes, keepdims)
    count = _count(x.shape, axes) - ddof
    return _back(length / math.sqrt(count) if count > 0 else length / 0.0, dtype)


def ptp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest less the smallest element along the axes.

    >>> ptp(tensor([1.0, 5.0, 3.0])).item()
    4.0
    """
    x = _array(x)
    return max(x, axis, keepdims) - min(x, axis, keepdims)


def average(
    x: Any,
    axis: Axis = None,
    weights: Any = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """The weighted average sum(w x) / sum(w), differentiable in both.

    Weights have the shape of x, or one axis for the one that is reduced.  With
    ``returned`` also the sum of the weights.

    >>> average(tensor([1.0, 5.0]), weights=tensor([3.0, 1.0])).item()
    2.0
    """
    x, dtype = _wide(x)
    axes = _axes(axis, x.ndim, "average")
    if weights is None:
        y = _mean(x, axes, keepdims)
        scale = broadcast_to(
            _array(float(_count(x.shape, axes))).astype(y.dtype), y.shape
        )
    else:
        w, _ = _wide(weights)
        if w.shape != x.shape:
            if w.ndim != 1 or len(axes) != 1 or w.shape[0] != x.shape[axes[0]]:
                raise ShapeError(
                    "average: expected weights in the shape of x, or one for each "
                    f"place along the axis: x is {x.shape}, weights {w.shape}, "
                    f"axis={axis}"
                )
            w = broadcast_to(reshape(w, (-1,) + (1,) * (x.ndim - 1 - axes[0])), x.shape)
        scale = _sum(w, axes, keepdims)
        y = _sum(product(w, x), axes, keepdims) / scale
    return (_back(y, dtype), _back(scale, dtype)) if returned else _back(y, dtype)
