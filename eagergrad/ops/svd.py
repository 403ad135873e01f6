"""The singular value decomposition, and what is computed from it.

With full matrices the columns beyond the first k belong to no singular value: they are
any basis of what is left, and count as turning no more than they must.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..primitive import primitive
from .decompositions import _differences, _over, _rounding
from .inverses import _conj, _diagonals, _embedded, _h, _in_single, _matrix, _t
from .linalg import matmul
from .shapes import expand_dims


class SVDResult(NamedTuple):
    """What ``svd`` returns."""

    U: Any
    S: Any
    Vh: Any


@primitive(several=True)
def _svd(xp: Any, x: Any) -> Any:
    return _in_single(lambda x: tuple(xp.linalg.svd(x, full_matrices=False)), x)


@_svd.vjp
def _svd_rule(g: Any, y: Any) -> Any:
    # (s_j c + s_i d) / (s_j^2 - s_i^2) in two parts, of which one is never singular
    g_u, g_s, g_vh = g
    u, s, vh = y
    v_t, zero = _conj(vh), _rounding(s)
    b, d = matmul(_t(u), g_u), matmul(v_t, _h(g_vh))
    b_skew, d_skew = b - _h(b), d - _h(d)
    total = expand_dims(s, -2) + expand_dims(s, -1)
    q = 0.5 * (
        _over(b_skew + d_skew, _differences(s), zero)
        + _over(b_skew - d_skew, total, zero)
    )
    if u.dtype.kind == "c":
        turn = 0.5 * _diagonals(b_skew)  # imaginary
        q = q - _embedded(_diagonals(q)) + _embedded(_over(turn, s, zero[..., 0]))
    q = q + _embedded(g_s)
    below = _over(g_u - matmul(_conj(u), b), expand_dims(s, -2), zero)
    beside = g_vh - matmul(_h(d), v_t)
    beside = _over(beside, expand_dims(s, -1), zero)
    return matmul(matmul(_conj(u), q) + below, v_t) + matmul(_conj(u), beside)


@primitive(several=True)
def _svd_full(xp: Any, x: Any) -> Any:
    return _in_single(lambda x: tuple(xp.linalg.svd(x)), x)


@_svd_full.vjp
def _svd_full_rule(g: Any, y: Any) -> Any:
    g_u, g_s, g_vh = g
    u, s, vh = y
    k = s.shape[-1]
    first, rest = u[..., :k], u[..., k:]
    turned = _h(matmul(_t(first), g_u[..., k:]))
    g_first = g_u[..., :k] - matmul(_conj(rest), turned)
    upper, lower = vh[..., :k, :], vh[..., k:, :]
    turned = matmul(_conj(upper), _h(g_vh[..., k:, :]))
    g_upper = g_vh[..., :k, :] - matmul(turned, _conj(lower))
    return _svd_rule((g_first, g_s, g_upper), (first, s, upper))


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """Singular values in descending order and vectors: a = u @ diag(s) @ vh.

    (..., n, m) -> (..., n, k), (..., k), (..., k, m) with k = min(n, m); with
    ``full_matrices`` u is (..., n, n) and vh (..., m, m).  ``compute_uv=False`` gives s
    alone.  Within the space of equal singular values, and of those that are 0, the
    derivative of the vectors counts as 0.  ``hermitian`` is taken for NumPy's sake.

    >>> svd(tensor([[3.0, 0.0], [0.0, 4.0]])).S.tolist()
    [4.0, 3.0]
    """
    a = _matrix(a, "svd")
    if not compute_uv:
        return svdvals(a)
    n, m = a.shape[-2:]
    full = full_matrices and n != m
    return SVDResult(*(_svd_full(a) if full else _svd(a)))


def svdvals(x: Any) -> Any:
    """The singular values of ``svd`` alone, in descending order.

    >>> svdvals(tensor([[3.0, 0.0], [0.0, 4.0]])).tolist()
    [4.0, 3.0]
    """
    return _svd(_matrix(x, "svdvals"))[1]
