"""Norms, and the numbers computed from them: condition and rank.

The gradient of a norm at 0 is 0.  Where the largest of equal elements decides, they
share the gradient evenly.  Nothing overflows that need not: elements are scaled by a
power of two before they are squared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..primitive import primitive
from .elementwise import absolute, astype, not_equal, power, stop_gradient, where
from .inverses import _matrix, _tolerance, inv
from .reductions import _floating, any, is_half, max, min, reduced_shape, sum
from .shapes import _axis, ravel, reshape, transpose
from .svd import svdvals

Axis = int | tuple[int, ...] | None


@primitive()
def _length(xp: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    """sqrt(sum(abs(x)^2)), scaled by a power of two, which rounds nothing."""
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
    if is_half(x):
        parts = [x.astype(np.float32)]
    if not x.size:
        return parts[0].sum(axis=axis, keepdims=keepdims).astype(parts[0].dtype)
    top = xp.abs(parts[0])
    for part in parts[1:]:
        top = xp.maximum(top, xp.abs(part))
    top = top.max(axis=axis, keepdims=True)
    scale = xp.ldexp(xp.ones((), top.dtype), xp.frexp(top)[1] - 1)
    total = None
    for part in parts:
        part = part / scale
        squares = (part * part).sum(axis=axis, keepdims=True)
        total = squares if total is None else total + squares
    y = xp.sqrt(total) * scale
    y = y.astype(x.dtype) if is_half(x) else y
    return y if keepdims else y.sum(axis=axis)  # over axes of length 1


@_length.vjp
def _length_rule(g: Any, x: Any, y: Any, axis: Axis, keepdims: bool) -> Any:
    if not keepdims and axis is not None and x.ndim:
        shape = reduced_shape(x.shape, axis)
        g, y = reshape(g, shape), reshape(y, shape)
    return g * (x / where(not_equal(y, 0.0), y, 1.0))


def vector_norm(
    x: Any, axis: Any = None, keepdims: bool = False, ord: float = 2
) -> Any:
    """(sum abs(x)^ord)^(1/ord) over the axes, or over all elements.

    ``ord`` inf is the largest and -inf the smallest absolute value, 0 the count of
    what is not 0, which has no gradient.  At x = 0 the gradient is 0.

    >>> vector_norm(tensor([3.0, 4.0])).item()
    5.0
    """
    x = _floating(x, "vector_norm")
    axis = tuple(axis) if isinstance(axis, Sequence) else axis
    if ord == 2:
        return _length(x, axis, keepdims)
    if ord == 0:
        found = not_equal(stop_gradient(x), 0.0)
        dtype = x._data.real.dtype
        return sum(astype(found, dtype), axis, keepdims)
    a = absolute(x)
    if ord == math.inf:
        return max(a, axis, keepdims)
    if ord == -math.inf:
        return min(a, axis, keepdims)
    if ord == 1:
        return sum(a, axis, keepdims)
    if not a.size:
        return sum(a, axis, keepdims)
    # the norm is homogeneous: a constant scale has no part in its derivative
    top: Any = stop_gradient(max(a, axis, True))
    top = where((top > 0.0) & (top < math.inf), top, 1.0)
    total = sum(power(a / top, float(ord)), axis, True)
    some = (total > 0.0) & (total < math.inf)
    y = where(some, top * power(where(some, total, 1.0), 1.0 / ord), total)
    if ord < 0:  # an element of 0 is all that counts
        y = where(total == math.inf, 0.0, y)
    return y if keepdims else sum(y, axis)


def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    """A norm of the matrices in the last two axes.

    "fro" is the root of the sum of squares; "nuc" the sum of the singular values, 2 and
    -2 the largest and the smallest; 1 and -1 the largest and smallest sum of absolute
    values in a column, inf and -inf in a row.

    >>> matrix_norm(tensor([[3.0, 0.0], [0.0, 4.0]]), ord="nuc").item()
    7.0
    """
    x = _matrix(x, "matrix_norm")
    if ord is None or ord == "fro":
        return _length(x, (x.ndim - 2, x.ndim - 1), keepdims)
    if ord == "nuc":
        y = sum(svdvals(x), -1)
    elif ord in (2, -2):
        y = (max if ord > 0 else min)(svdvals(x), -1)
    elif ord in (1, -1):
        y = (max if ord > 0 else min)(sum(absolute(x), -2), -1)
    elif ord in (math.inf, -math.inf):
        y = (max if ord > 0 else min)(sum(absolute(x), -1), -1)
    else:
        raise ShapeError(
            "matrix_norm: expected ord 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got "
            f"{ord!r}"
        )
    return reshape(y, (*y.shape, 1, 1)) if keepdims else y


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """A norm of vectors, by one axis, or of matrices, by two; as numpy.linalg.norm.

    Without ``ord`` the root of the sum of squares, over all axes if none is given.
    Orders are as in ``vector_norm`` and ``matrix_norm``.  At x = 0 the gradient is 0.

    >>> norm(tensor([[3.0, 4.0], [0.0, 0.0]]), axis=1).tolist()
    [5.0, 0.0]
    """
    x = _floating(x, "norm")
    if axis is None:
        if ord is None:
            y = _length(ravel(x), 0, False)
            return reshape(y, (1,) * x.ndim) if keepdims else y
        if x.ndim not in (1, 2):
            raise ShapeError(
                f"norm: with ord={ord!r} expected a vector or a matrix, got {x.shape}; "
                "give the axes"
            )
        axis = tuple(range(x.ndim))
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    axes = tuple(_axis(i, x.ndim, "norm") for i in axes)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ShapeError(f"norm: ord {ord!r} is for matrices, got one axis")
        return vector_norm(x, axes[0], keepdims, 2 if ord is None else ord)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ShapeError(f"norm: expected one axis or two different ones, got {axis}")
    if ord is None or ord == "fro":
        return _length(x, axes, keepdims)
    rest = [i for i in range(x.ndim) if i not in axes]
    y = matrix_norm(transpose(x, [*rest, *axes]), False, ord)
    return reshape(y, reduced_shape(x.shape, axes)) if keepdims else y


def cond(x: Any, p: Any = None) -> Any:
    """The condition number of matrices: (..., n, m) -> (...).

    The ratio of the largest singular value to the smallest, or with ``p``, an ord of
    ``matrix_norm``, the norm times that of the inverse.

    >>> cond(tensor([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    x = _matrix(x, "cond")
    if p in (None, 2, -2):
        s = svdvals(x)
        return s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    return matrix_norm(x, ord=p) * matrix_norm(inv(x), ord=p)


def matrix_rank(A: Any, tol: Any = None, *, rtol: Any = None) -> Any:
    """The number of singular values above ``tol``; int64, no gradient.

    ``tol`` is ``rtol`` times the largest of them if not given, and ``rtol`` max(n, m)
    times the rounding unit.

    >>> matrix_rank(tensor([[1.0, 2.0], [2.0, 4.0]])).item()
    1
    """
    x = stop_gradient(_floating(A, "matrix_rank"))
    if x.ndim < 2:
        return astype(any(not_equal(x, 0.0)), np.int64)
    s = svdvals(x)
    relative = tol is None
    if relative:
        tol = _tolerance(x) if rtol is None else rtol
    if not isinstance(tol, (int, float)):
        tol = operand(tol, "matrix_rank")
        tol = reshape(tol, (*tol.shape, 1))
    if relative:
        tol = tol * max(s, -1, True)
    return sum(astype(s > tol, np.int64), -1)
