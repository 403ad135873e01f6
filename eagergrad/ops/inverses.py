"""Linear systems: inverses, solutions, determinants.

All work on the last two axes and take any number of leading ones.  Half types are
computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..primitive import primitive
from .diagonals import _diagonal, _onto_diagonal, _tril, _triu
from .elementwise import (
    _astype_op,
    _where,
    conj,
    isinf,
    product,
    quotient,
)
from .linalg import _pair, matmul
from .reductions import _floating, is_half, sum
from .shapes import expand_dims, swapaxes


class SlogdetResult(NamedTuple):
    """What ``slogdet`` returns."""

    sign: Any
    logabsdet: Any


def _matrix(x: Any, name: str, square: bool = False) -> Any:
    x = _floating(x)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices (..., n, n)" if square else "matrices (..., n, m)"
        raise ShapeError(f"{name}: expected {kind}, got {x.shape}")
    return x


def _in_single(f: Callable[..., Any], x: Any, *args: Any) -> Any:
    """LAPACK has no half types: in float32, and back."""
    if not is_half(x):
        return f(x, *args)
    args = tuple(a.astype(np.float32) if hasattr(a, "astype") else a for a in args)
    y = f(x.astype(np.float32), *args)
    if isinstance(y, tuple):
        return tuple(part.astype(x.dtype) for part in y)
    return y.astype(x.dtype)


def _t(x: Any) -> Any:
    return swapaxes(x, -1, -2)


def _h(x: Any) -> Any:
    return _conj(swapaxes(x, -1, -2))


def _conj(x: Any) -> Any:
    return conj(x) if x.dtype.kind == "c" else x


def _embedded(d: Any) -> Any:
    """Diagonal matrices of the vectors in the last axis."""
    return _onto_diagonal(d, (*d.shape, d.shape[-1]), 0, d.ndim - 1, d.ndim)


def _diagonals(x: Any) -> Any:
    return _diagonal(x, 0, x.ndim - 2, x.ndim - 1)


# ------------------------------------------------------------------- linear systems


@primitive()
def _inv(xp: Any, x: Any) -> Any:
    return _in_single(xp.linalg.inv, x)


@_inv.vjp
def _inv_rule(g: Any, y: Any) -> Any:
    return -matmul(_t(y), matmul(g, _t(y)))


def inv(a: Any) -> Any:
    """The inverse of square matrices (..., n, n); a singular one raises ValueError.

    >>> inv(tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _inv(_matrix(a, "inv", True))


@primitive(arrays=2)
def _solve(xp: Any, a: Any, b: Any) -> Any:
    return _in_single(xp.linalg.solve, a, b)


@_solve.vjp
def _solve_rule(g: Any, a: Any, y: Any, like: Any) -> Any:
    w = _solve(_t(a), g)
    return [None if like[0] is None else -matmul(w, _t(y)), w]


def solve(a: Any, b: Any) -> Any:
    """The x with a x = b: (..., n, n), (..., n, k) -> (..., n, k), or b (n,).

    A singular matrix raises ValueError.

    >>> solve(tensor([[2.0, 0.0], [0.0, 4.0]]), tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    a, b = _pair(_matrix(a, "solve", True), _floating(b, "solve"))
    if not b.ndim or b.shape[0 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ShapeError(f"solve: sizes differ: a is {a.shape}, b is {b.shape}")
    if b.ndim > 1:
        return _solve(a, b)
    return _solve(a, expand_dims(b, 1))[..., 0]


def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """The x with a x = b for triangular a, of which only that triangle is read.

    ``trans`` 1 or "T" solves with the transpose of a, 2 or "C" with its conjugate;
    ``unit_diagonal`` takes the diagonal for ones.  Shapes as in ``solve``, by whose LU
    factorisation it is done: NumPy has no substitution.

    >>> solve_triangular([[2.0, 1.0], [9.0, 1.0]], tensor([3.0, 1.0])).tolist()
    [1.0, 1.0]
    """
    a = _matrix(a, "solve_triangular", True)
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ShapeError(f"solve_triangular: trans is 0, 1 or 2, got {trans!r}")
    k = 1 if unit_diagonal else 0
    a = _tril(a, -k) if lower else _triu(a, k)
    if unit_diagonal:
        a = a + _identity_like(a)
    if trans in (1, "T"):
        a = _t(a)
    elif trans in (2, "C"):
        a = _h(a)
    return solve(a, b)


@primitive()
def _pinv(xp: Any, x: Any, rcond: Any) -> Any:
    if not x.size:
        return x.swapaxes(-1, -2)
    return _in_single(xp.linalg.pinv, x, rcond)


@_pinv.vjp
def _pinv_rule(g: Any, x: Any, y: Any) -> Any:
    # Golub and Pereyra 1973: the derivative at constant rank
    y_h = _h(y)
    one = matmul(_t(g), matmul(y, y_h))
    two = matmul(matmul(y_h, y), _t(g))
    one = one - matmul(x, matmul(y, one))
    two = two - matmul(matmul(two, y), x)
    return _conj(one + two) - matmul(_t(y), matmul(g, _t(y)))


def pinv(a: Any, rcond: Any = None, *, rtol: Any = None) -> Any:
    """The Moore-Penrose inverse: (..., n, m) -> (..., m, n).

    Singular values below ``rcond`` times the largest count as 0; the gradient is that
    at constant rank.  ``rcond``, also called ``rtol``, is a number or one for each
    matrix, (...), by default max(n, m) times the rounding unit.

    >>> pinv(tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    a = _matrix(a, "pinv")
    rcond = rcond if rtol is None else rtol
    if rcond is None:
        return _pinv(a, _tolerance(a))
    one = isinstance(rcond, (int, float))
    return _pinv(a, float(rcond) if one else operand(rcond, "pinv")._data)


def _tolerance(x: Any) -> float:
    """The relative size that rounding gives to what should be 0."""
    return _unit(x) * float(max(x.shape[-2:]))


def _unit(x: Any) -> float:
    """The rounding unit of what LAPACK computes."""
    return float(np.finfo(np.float32 if is_half(x) else x.dtype).eps)


# --------------------------------------------------------------------- determinants


@primitive()
def _det(xp: Any, x: Any) -> Any:
    return xp.asarray(_in_single(xp.linalg.det, x))


@_det.vjp
def _det_rule(g: Any, x: Any) -> Any:
    return expand_dims(g, (-1, -2)) * _cofactors(x)


@primitive()
def _cofactors(xp: Any, x: Any) -> Any:
    """The transpose of the adjugate, by the svd: right for singular matrices too."""
    return _in_single(lambda x: _cofactors_of(xp, x), x)


def _cofactors_of(xp: Any, x: Any) -> Any:
    # cof(u s vh) = det(u) det(vh) conj(u) cof(s) conj(vh), and of a diagonal matrix
    # they are the products of the others
    u, s, vh = xp.linalg.svd(x)
    z = _turn(xp, u, vh) * _others(xp, s)[..., None, :]
    return xp.matmul(u.conj() * z, vh.conj())


def _turn(xp: Any, u: Any, vh: Any) -> Any:
    return xp.asarray(xp.linalg.det(u) * xp.linalg.det(vh))[..., None, None]


def _others(xp: Any, s: Any) -> Any:
    """For each element of the last axis the product of the others: none is divided."""
    one = xp.ones_like(s[..., :1])
    before = xp.concatenate([one, s[..., :-1]], -1).cumprod(-1)
    after = xp.concatenate([s[..., 1:], one], -1)[..., ::-1].cumprod(-1)[..., ::-1]
    return before * after


@_cofactors.vjp
def _cofactors_rule(g: Any, x: Any) -> Any:
    return _cofactor_slope(x, g)


@primitive(arrays=2)
def _cofactor_slope(xp: Any, x: Any, h: Any) -> Any:
    """The derivative of the cofactors of x along h; as a matrix it is symmetric."""
    return _in_single(lambda x, h: _cofactor_slope_of(xp, x, h), x, h)


def _cofactor_slope_of(xp: Any, x: Any, h: Any) -> Any:
    # at a diagonal s, with p the product of all but s_i and s_j: p h_jj to c_ii, summed
    # over j, and -p h_ji to c_ij
    u, s, vh = xp.linalg.svd(x)
    h = xp.matmul(u.conj().swapaxes(-1, -2), xp.matmul(h, vh.conj().swapaxes(-1, -2)))
    same = xp.eye(x.shape[-1], dtype=bool)
    zero, one = xp.zeros((), s.dtype), xp.ones((), s.dtype)
    p = _others(xp, xp.where(same, one, s[..., None, :]))
    p = xp.where(same, zero, p)
    along = (p * h.diagonal(0, -2, -1)[..., None, :]).sum(-1, keepdims=True)
    c = xp.where(same, along, -p * h.swapaxes(-1, -2))
    return _turn(xp, u, vh) * xp.matmul(u.conj(), xp.matmul(c, vh.conj()))


@_cofactor_slope.vjp
def _cofactor_slope_rule(g: Any, x: Any, h: Any, like: Any) -> Any:
    by_h = _cofactor_slope(x, g)
    if like[0] is None:
        return [None, by_h]
    # by x: the derivative of det(x) (<g, w> <h, w> - <h, w g^T w>), w = inv(x)^T; that
    # is not finite for a singular x, nor may it raise: forward mode drops it
    det = expand_dims(_det(x), (-1, -2))
    w = quotient(_cofactors(x), det)
    wg, wh = matmul(w, _t(g)), matmul(w, _t(h))
    a, b = _trace(wg), _trace(wh)
    both = matmul(wg, wh)
    turned = both + matmul(wh, wg) - b * wg - a * wh
    slope = matmul(turned, w) + (a * b - _trace(both)) * w
    return [det * slope, by_h]


def _trace(x: Any) -> Any:
    return expand_dims(sum(_diagonals(x), -1), (-1, -2))


def det(a: Any) -> Any:
    """The determinant: (..., n, n) -> (...).

    The gradient, the cofactors, and the second derivative are right for singular
    matrices too; a third derivative is not finite there.

    >>> det(tensor([[1.0, 2.0], [3.0, 5.0]])).item()
    -1.0
    """
    return _det(_matrix(a, "det", True))


@primitive(several=True)
def _slogdet(xp: Any, x: Any) -> Any:
    sign, logabs = _in_single(lambda x: tuple(xp.linalg.slogdet(x)), x)
    return xp.asarray(sign), xp.asarray(logabs)


@_slogdet.vjp
def _slogdet_rule(g: Any, x: Any, y: Any) -> Any:
    g_sign, g_log = g
    sign, logabs = y
    if x.dtype.kind == "c":
        turn = g_sign * sign
        g_log = g_log + 0.5 * (turn - conj(turn))
    # of a singular matrix: infinite, and 0 for a cotangent of 0
    singular = isinf(logabs)
    g_log = quotient(g_log, 1.0 - _astype_op(singular, logabs.dtype, None))
    regular = _where(expand_dims(singular, (-1, -2)), _identity_like(x), x)
    return product(expand_dims(g_log, (-1, -2)), _t(_inv(regular)))


def _identity_like(x: Any) -> Any:
    diagonal = _diagonals(x)
    some = (diagonal == diagonal) | (diagonal != diagonal)
    return _embedded(_astype_op(some, x.dtype, None))


def slogdet(a: Any) -> Any:
    """The sign of the determinant and the logarithm of its absolute value.

    (..., n, n) -> (...), (...); of a singular matrix 0 and -inf.

    >>> slogdet(tensor([[1.0, 0.0], [0.0, -1.0]])).sign.item()
    -1.0
    """
    return SlogdetResult(*_slogdet(_matrix(a, "slogdet", True)))
