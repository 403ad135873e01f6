"""Reductions, and the un-broadcasting that is their mirror image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..operands import operand
from ..primitive import fuse, linear, on_gpu, primitive
from .elementwise import _astype_op, _where, astype, exp, quotient
from .shapes import _broadcast_to, reshape

Axis = int | tuple[int, ...] | None
_np_add_reduce: Any = np.add.reduce


def _add_reduce(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    if is_half(x):
        return _total(xp, x, axis, keepdims).astype(x.dtype)
    if xp is np:  # the ufunc's own method: 1.3 us less than numpy.sum
        return _np_add_reduce(x, axis, keepdims=keepdims)
    return x.sum(axis=axis, keepdims=keepdims)


def _total(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    """The sum, still in float32 for half types: it may be beyond their range."""
    if is_half(x):
        return x.astype(np.float32).sum(axis=axis, keepdims=keepdims)
    return _add_reduce(xp, x, axis, keepdims)


def is_half(x: Any) -> bool:
    """Whether x has 16-bit floats: many of them are summed in float32."""
    return x.dtype.itemsize == 2 and x.dtype.kind in "fV"


def _spread(g: Any, shape: tuple[int, ...], axis: Axis, keepdims: bool) -> Any:
    """The transpose of a sum: a view of g, broadcast along the reduced axes."""
    if not keepdims and axis is not None and shape:
        g = reshape(g, reduced_shape(shape, axis))
    return _broadcast_to(g, shape)


def reduced_shape(shape: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """The shape after a reduction with keepdims."""
    if axis is None:
        return (1,) * len(shape)
    rank = len(shape) or 1  # NumPy takes axes 0 and -1 of a scalar
    axes = {i % rank for i in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


_sum = linear(
    "sum",
    transpose=lambda g, like, axis, keepdims: _spread(g, like.shape, axis, keepdims),
    forward=_add_reduce,
)


_column_sum = linear(
    "column_sum",
    transpose=lambda g, like: _broadcast_to(g, like.shape),
    forward=lambda xp, x: _add_reduce(xp, x, 0, False),
)


def _column_sum_kernel(columns: Any, x: Any) -> Any:
    m, n = x.shape
    # it takes the time of two rows more than NumPy, and few rows on one thread
    worth = x.dtype.kind == "f" and n <= 32 * m
    return columns(x) if worth or on_gpu(x) else NotImplemented


fuse(_column_sum, _column_sum_kernel)


def sum(x: Any, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Any:
    """Sum over the given axes, or over all.  Half types accumulate in float32.

    With ``dtype`` x is cast to it first.

    >>> sum(tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0).tolist()
    [4.0, 6.0]
    """
    x = x if dtype is None else astype(x, dtype)
    return _sum(x, _normal(axis), keepdims)


def _mean_forward(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    count = x.size if axis is None else _count(x.shape, axis)
    if x.dtype.kind in "biu":
        x = x.astype(np.float32)
    total = _total(xp, x, axis, keepdims)
    if count:
        y = total / count
        return y if not is_half(x) else y.astype(x.dtype)
    return xp.full_like(total, math.nan, x.dtype)  # of nothing, without a warning


def _mean_rule(g: Any, like: Any, axis: Axis, keepdims: bool) -> Any:
    shape = like.shape
    if axis is None:
        return _broadcast_to(g / (math.prod(shape) or 1), shape)
    return _spread(g / (_count(shape, axis) or 1), shape, axis, keepdims)


def _count(shape: tuple[int, ...], axis: Axis) -> int:
    if axis is None:
        return math.prod(shape)
    if isinstance(axis, tuple):
        return math.prod(shape[i] for i in axis)
    return shape[axis]


_mean = linear("mean", transpose=_mean_rule, forward=_mean_forward)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Average over the given axes, or over all; nan for no elements.

    >>> mean(tensor([1.0, 2.0, 6.0])).item()
    3.0
    """
    return _mean(x, _normal(axis), keepdims)


def _extreme_rule(g: Any, x: Any, y: Any, axis: Axis, keepdims: bool) -> Any:
    """Equal extremes share the gradient evenly; a nan is the extreme, and gets it."""
    if not keepdims and axis is not None and x.ndim:
        shape = reduced_shape(x.shape, axis)
        g, y = reshape(g, shape), reshape(y, shape)
    hit = (x == y) | (x != x)
    count = _sum(_astype_op(hit, x.dtype, None), axis, True)
    return _where(hit, g / count, 0.0)


@primitive()
def _max(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    return x.max(axis=axis, keepdims=keepdims)


@primitive()
def _min(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    return x.min(axis=axis, keepdims=keepdims)


_max.vjp(_extreme_rule)
_min.vjp(_extreme_rule)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element along the axes; equal ones share the gradient evenly.

    >>> max(tensor([1.0, 3.0, 2.0])).item()
    3.0
    """
    return _max(x, _normal(axis), keepdims)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element along the axes; equal ones share the gradient evenly.

    >>> min(tensor([2.0, 1.0, 3.0])).item()
    1.0
    """
    return _min(x, _normal(axis), keepdims)


@primitive()
def _logsumexp(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    if not x.size:
        return xp.full(_reduced(x.shape, axis, keepdims), -math.inf, x.dtype)
    top = x.max(axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros((), x.dtype))
    total = _total(xp, xp.exp(x - top), axis, True)
    with np.errstate(divide="ignore"):  # the log-sum of nothing but -inf is -inf
        y = (xp.log(total) + top).astype(x.dtype)
    return y if keepdims else y.reshape(_reduced(x.shape, axis, False))


def _reduced(shape: tuple[int, ...], axis: Axis, keepdims: bool) -> tuple[int, ...]:
    kept = reduced_shape(shape, axis)
    if keepdims:
        return kept
    if axis is None or not shape:
        return ()
    axes = {i % len(shape) for i in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(n for i, n in enumerate(kept) if i not in axes)


@_logsumexp.vjp
def _logsumexp_rule(g: Any, x: Any, y: Any, axis: Axis, keepdims: bool) -> Any:
    if not keepdims and axis is not None and x.ndim:
        shape = reduced_shape(x.shape, axis)
        g, y = reshape(g, shape), reshape(y, shape)
    p = exp(x - _where(y == -math.inf, 0.0, y))  # inf - inf stays nan
    # y is rounded, which the sum of the shares tells: of float16 by half a percent
    return g * quotient(p, _sum(p, axis, True))


def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) along the axes, without overflow; -inf for only -inf.

    >>> round(logsumexp(tensor([1000.0, 1000.0])).item(), 3)
    1000.693
    """
    x = _floating(x, "logsumexp")
    return _logsumexp(x, _normal(axis), keepdims)


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first largest element; int64, no gradient.

    >>> argmax(tensor([1.0, 3.0, 2.0])).item()
    1
    """
    return _argmax(x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first smallest element; int64, no gradient.

    >>> argmin(tensor([1.0, 3.0, 2.0])).item()
    0
    """
    return _argmin(x, axis, keepdims)


def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether any element along the axes is true."""
    return _any(x, _normal(axis), keepdims)


def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether all elements along the axes are true."""
    return _all(x, _normal(axis), keepdims)


def _index_of(name: str) -> Any:
    def forward(xp: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
        found = getattr(xp, name)(x, axis=axis)
        return xp.asarray(found).reshape(_reduced(x.shape, axis, keepdims))

    forward.__name__ = name
    return primitive(constant=True)(forward)


def _truth_of(name: str) -> Any:
    def forward(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims)

    forward.__name__ = name
    return primitive(constant=True)(forward)


_argmax = _index_of("argmax")
_argmin = _index_of("argmin")
_any = _truth_of("any")
_all = _truth_of("all")


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum a cotangent over the axes along which its input of ``shape`` was broadcast.

    One reduction over all of them, and none when they are of length 1.
    """
    if g.size == math.prod(shape):
        return g.reshape(shape)
    if g.shape[1:] == shape and g.ndim == 2:  # of a bias: most of all there are
        return _column_sum(g)
    extra = g.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(shape) if n == 1 and g.shape[i + extra] != 1
    )
    g = _sum(g, axes, False)
    return g if g.shape == shape else reshape(g, shape)


def _normal(axis: Any) -> Axis:
    return tuple(axis) if isinstance(axis, list) else axis


def _floating(x: Any, name: str = "tensor") -> Any:
    x = operand(x, name)
    return x.astype("float32") if x.dtype.kind in "biu" else x
