"""Scans: sums, products and extremes so far along an axis, and differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..primitive import linear, primitive
from ..tensor import Tensor, wrap
from .creation import full
from .elementwise import _astype_op, _where, astype, exp, product
from .gathering import take_along_axis
from .masks import masked_product
from .reductions import _floating, is_half, sum
from .shapes import _axis, broadcast_to, concatenate, reshape
from .sorting import _laid


def _cut(
    axis: int, start: int | None, stop: int | None, step: int | None = None
) -> Any:
    return (slice(None),) * axis + (slice(start, stop, step),)


def _accumulated(name: str, x: Any, axis: int, reverse: bool) -> Any:
    """numpy.cumsum or cumprod, from the end if ``reverse``; float32 for half types."""
    back = _cut(axis, None, None, -1)
    wide = x.astype(np.float32) if is_half(x) else x
    y = getattr(wide[back] if reverse else wide, name)(axis=axis)
    y = y[back] if reverse else y
    return y.astype(x.dtype) if is_half(x) else y


_cumsum = linear(
    "cumsum",
    transpose=lambda g, axis, reverse: _cumsum(g, axis, not reverse),
    forward=lambda xp, x, axis, reverse: _accumulated("cumsum", x, axis, reverse),
)


def cumsum(x: Any, axis: int | None = None) -> Any:
    """Sums so far along an axis; ``axis=None``: of x flattened.

    >>> cumsum(tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 3.0, 6.0]
    """
    return _cumsum(*_laid(x, axis, "cumsum"), False)


def _cumulative(
    scan: Any, initial: int, x: Any, axis: int | None, dtype: Any, include_initial: bool
) -> Any:
    """A scan as the Array API has it."""
    name = "cumulative_sum" if scan is cumsum else "cumulative_prod"
    x = operand(x, name)
    if axis is None and x.ndim != 1:
        raise ShapeError(f"{name}: expected an axis for an x of {x.shape}, got None")
    axis = 0 if axis is None else _axis(axis, x.ndim, name)
    y = scan(x if dtype is None else astype(x, dtype), axis)
    if not include_initial:
        return y
    shape = (*y.shape[:axis], 1, *y.shape[axis + 1 :])
    return concatenate([full(shape, initial, y.dtype, y.device), y], axis)


def cumulative_sum(
    x: Any, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Sums so far along an axis, which only an x of one axis may leave out.

    ``dtype`` casts x first, and ``include_initial`` puts a 0 before the first sum.

    >>> cumulative_sum(tensor([1.0, 2.0, 3.0]), include_initial=True).tolist()
    [0.0, 1.0, 3.0, 6.0]
    """
    return _cumulative(cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Any, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Products so far along an axis, which only an x of one axis may leave out.

    ``dtype`` casts x first, and ``include_initial`` puts a 1 before the first product.

    >>> cumulative_prod(tensor([1.0, 2.0, 3.0]), include_initial=True).tolist()
    [1.0, 1.0, 2.0, 6.0]
    """
    return _cumulative(cumprod, 1, x, axis, dtype, include_initial)


# ------------------------------------------------------------- linear recurrences


@primitive()
def _shifted(xp: Any, x: Any, axis: int, by: int, fill: float) -> Any:
    """Each element ``by`` places on along the axis, and ``fill`` where none comes."""
    out = xp.full(x.shape, fill, x.dtype)
    if by > 0:
        out[_cut(axis, by, None)] = x[_cut(axis, None, -by)]
    else:
        out[_cut(axis, None, by)] = x[_cut(axis, -by, None)]
    return out


@_shifted.vjp
def _shifted_rule(g: Any, axis: int, by: int) -> Any:
    return _shifted(g, axis, -by, 0.0)


@primitive(arrays=2)
def _recurrence(xp: Any, x: Any, b: Any, axis: int, reverse: bool) -> Any:
    """y[i] = x[i] y[i - 1] + b[i], in log2(n) passes; i + 1 for i - 1 if ``reverse``.

    A factor of 0 forgets all before it, even an infinity.
    """
    back = _cut(axis, None, None, -1)
    x, y = (x[back], b[back]) if reverse else (x, b)
    dtype = np.float32 if is_half(y) else y.dtype
    x, y = x.astype(dtype), y.astype(dtype)
    if xp is np:  # minding zeros takes twice as long, and shows only where it must
        plain = _doubled(np, x.copy(), y.copy(), axis, np.multiply)
        y = plain if not np.isnan(plain).any() else _doubled(np, x, y, axis, _reset)
    else:
        y = _doubled(xp, x, y, axis, lambda a, b: masked_product(xp, a, b))
    return (y[back] if reverse else y).astype(b.dtype)


def _reset(a: Any, b: Any) -> Any:
    return masked_product(np, a, b)


def _doubled(xp: Any, x: Any, y: Any, axis: int, times: Any) -> Any:
    """The recurrence over 1, 2, 4 ... places at once, in x and y themselves."""
    step, length = 1, x.shape[axis]
    while step < length:
        ahead, behind = _cut(axis, step, None), _cut(axis, None, -step)
        y[ahead] += times(x[ahead], y[behind])
        step *= 2
        if step < length:
            so_far = times(x[ahead], x[behind])
            if times is not np.multiply:
                so_far = xp.where(x[behind] == 0, xp.zeros((), x.dtype), so_far)
            x[ahead] = so_far
    return y


@_recurrence.vjp
def _recurrence_rule(g: Any, x: Any, y: Any, axis: int, reverse: bool) -> Any:
    on = -1 if reverse else 1
    h = _recurrence(_shifted(x, axis, -on, 0.0), g, axis, not reverse)
    return [product(_shifted(y, axis, on, 0.0), h), h]


def _widened(x: Any) -> Any:
    """Half types in float32: products of theirs may be beyond their range."""
    return _astype_op(x, np.dtype(np.float32), x.dtype) if is_half(x) else x


# ------------------------------------------------------------------------ products


@primitive()
def _cumprod(xp: Any, x: Any, axis: int, reverse: bool) -> Any:
    return _accumulated("cumprod", x, axis, reverse)


@_cumprod.vjp
def _cumprod_rule(g: Any, x: Any, axis: int, reverse: bool) -> Any:
    """dx[i] = y[i - 1] h[i], h[i] = g[i] + x[i + 1] h[i + 1]: nothing is divided."""
    on, x = -1 if reverse else 1, _widened(x)
    before = _shifted(_cumprod(x, axis, reverse), axis, on, 1.0)
    h = _recurrence(_shifted(x, axis, -on, 0.0), _widened(g), axis, not reverse)
    dx = product(before, h)
    return _astype_op(dx, g.dtype, dx.dtype)


def cumprod(x: Any, axis: int | None = None) -> Any:
    """Products so far along an axis; ``axis=None``: of x flattened.

    The gradient is right with zeros among the factors.

    >>> cumprod(tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 6.0]
    """
    return _cumprod(*_laid(x, axis, "cumprod"), False)


@primitive()
def _prod(xp: Any, x: Any, axis: int) -> Any:
    if is_half(x):
        return x.astype(np.float32).prod(axis=axis).astype(x.dtype)
    return x.prod(axis=axis)


@_prod.vjp
def _prod_rule(g: Any, x: Any, axis: int) -> Any:
    """The product of all before times that of all after: nothing is divided."""
    shape, x = x.shape, _widened(x)
    before = _shifted(_cumprod(x, axis, False), axis, 1, 1.0)
    after = _shifted(_cumprod(x, axis, True), axis, -1, 1.0)
    g = reshape(g, (*shape[:axis], 1, *shape[axis + 1 :]))
    dx = product(_widened(g), product(before, after))
    return _astype_op(dx, g.dtype, dx.dtype)


# ------------------------------------------------------------------------ extremes


def _running(xp: Any, ufunc: Any, x: Any, axis: int) -> Any:
    """ufunc.accumulate, which CuPy lacks."""
    if xp is np:
        return ufunc.accumulate(x, axis)
    y, step = x.copy(), 1
    while step < x.shape[axis]:
        ahead = _cut(axis, step, None)
        y[ahead] = ufunc(y[ahead], y[_cut(axis, None, -step)])
        step *= 2
    return y


def _extreme_so_far(x: Any, axis: int | None, name: str) -> Any:
    x, axis = _laid(x, axis, name)
    if not x.size:
        return x
    with x.device.allocating(name):
        places = _last_extremes(x.device.backend.xp, x._data, axis, name)
    return take_along_axis(x, wrap(places), axis)


def _last_extremes(xp: Any, data: Any, axis: int, name: str) -> Any:
    """Where along the axis the extreme so far is."""
    y = _running(xp, xp.maximum if name == "cummax" else xp.minimum, data, axis)
    now, before = y[_cut(axis, 1, None)], y[_cut(axis, None, -1)]
    new = (now != before) & (before == before)  # a nan stays the extreme
    places = xp.arange(data.shape[axis]).reshape((-1,) + (1,) * (data.ndim - 1 - axis))
    later = xp.where(new, places[1:], 0)
    first = xp.zeros((*later.shape[:axis], 1, *later.shape[axis + 1 :]), later.dtype)
    return _running(xp, xp.maximum, xp.concatenate([first, later], axis), axis)


def cummax(x: Any, axis: int | None = None) -> Any:
    """The largest so far along an axis; ``axis=None``: of x flattened.

    Of equal ones the first gets the gradient; a nan stays the largest.

    >>> cummax(tensor([1.0, 3.0, 2.0])).tolist()
    [1.0, 3.0, 3.0]
    """
    return _extreme_so_far(x, axis, "cummax")


def cummin(x: Any, axis: int | None = None) -> Any:
    """The smallest so far along an axis; ``axis=None``: of x flattened.

    Of equal ones the first gets the gradient; a nan stays the smallest.

    >>> cummin(tensor([2.0, 3.0, 1.0])).tolist()
    [2.0, 2.0, 1.0]
    """
    return _extreme_so_far(x, axis, "cummin")


# -------------------------------------------------------------------- logcumsumexp


@primitive()
def _logcumsumexp(xp: Any, x: Any, axis: int) -> Any:
    wide = x.astype(np.float32) if is_half(x) else x
    return _running(xp, xp.logaddexp, wide, axis).astype(x.dtype)


@_logcumsumexp.vjp
def _logcumsumexp_rule(g: Any, x: Any, y: Any, axis: int) -> Any:
    """dx[i] = exp(x[i] - y[i]) h[i], h[i] = g[i] + exp(y[i] - y[i + 1]) h[i + 1]."""
    finite = _where(y == -math.inf, 0.0, y)
    fall = y - _shifted(finite, axis, -1, 0.0)
    last = _shifted(y < y, axis, -1, 1.0)  # nothing comes after it
    decay = exp(_where(last, 0.0, fall))
    return exp(x - finite) * _recurrence(decay, g, axis, True)


def logcumsumexp(x: Any, axis: int | None = None) -> Any:
    """log(cumsum(exp(x))) along an axis, without overflow; -inf after only -inf.

    >>> [round(y, 3) for y in logcumsumexp(tensor([1000.0, 1000.0])).tolist()]
    [1000.0, 1000.693]
    """
    return _logcumsumexp(*_laid(_floating(x, "logcumsumexp"), axis, "logcumsumexp"))


# --------------------------------------------------------------------- differences


def diff(
    x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    """Differences of neighbours along an axis, n times: x[i + 1] - x[i].

    >>> diff(tensor([1.0, 4.0, 9.0])).tolist()
    [3.0, 5.0]
    """
    x = operand(x, "diff")
    if n < 0:
        raise ShapeError(f"diff: expected n >= 0, got {n}")
    axis = _axis(axis, x.ndim, "diff")
    ends = []
    for end in (prepend, append):
        if end is not None and not getattr(end, "shape", np.shape(end)):
            shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
            end = end if isinstance(end, Tensor) else astype(end, x.dtype)
            end = broadcast_to(end, shape)
        ends.append([] if end is None else [end])
    if ends != [[], []]:
        x = concatenate([*ends[0], x, *ends[1]], axis)
    for _ in range(n):
        ahead, behind = x[_cut(axis, 1, None)], x[_cut(axis, None, -1)]
        x = ahead != behind if x.dtype.kind == "b" else ahead - behind
    return x


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """Integrate along an axis by the trapezoidal rule: sum((y[i] + y[i+1]) dx / 2).

    The steps are ``dx``, or the differences of x: of one axis, or in the shape of y.

    >>> trapezoid(tensor([1.0, 2.0, 3.0])).item()
    4.0
    """
    y = _floating(y, "trapezoid")
    axis = _axis(axis, y.ndim, "trapezoid")
    step: Any = dx
    if x is not None:
        x = _floating(x, "trapezoid")
        one = x.ndim == 1
        step = diff(x, axis=0 if one else axis)
        if one:
            step = reshape(step, (-1,) + (1,) * (y.ndim - 1 - axis))
    pairs = y[_cut(axis, 1, None)] + y[_cut(axis, None, -1)]
    return sum(pairs * step, axis) * 0.5
