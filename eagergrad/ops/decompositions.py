"""Factorisations: Cholesky, QR, eigenvalues and eigenvectors.

All work on the last two axes and take any number of leading ones.  Half types are
computed in float32.  Of a matrix taken to be Hermitian (``cholesky``, ``eigh``,
``eigvalsh``) only one triangle is read, and only that triangle has a gradient.

Where eigenvalues or singular values are equal, to rounding, the vectors that belong to
them are any basis of their space, and have no derivative within it: it counts as 0.
So a loss that does not see which basis it is has a finite gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ShapeError
from ..primitive import primitive
from .diagonals import _tril, _triu
from .elementwise import _real, _where, absolute
from .inverses import _conj, _embedded, _h, _in_single, _matrix, _solve, _t, _unit
from .linalg import matmul
from .reductions import _max, sum
from .shapes import concatenate, expand_dims


class QRResult(NamedTuple):
    """What ``qr`` returns."""

    Q: Any
    R: Any


class EighResult(NamedTuple):
    """What ``eigh`` returns."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """What ``eig`` returns."""

    eigenvalues: Any
    eigenvectors: Any


def _folded(k: Any) -> Any:
    """A gradient by a Hermitian matrix, as one by the lower triangle."""
    both = k + _h(k)
    return _tril(both, -1) + 0.5 * _triu(_tril(both, 0), 0)


@primitive()
def _cholesky(xp: Any, x: Any) -> Any:
    return _in_single(xp.linalg.cholesky, x)


@_cholesky.vjp
def _cholesky_rule(g: Any, y: Any) -> Any:
    # Murray, "Differentiation of the Cholesky decomposition", 2016
    inner = _tril(matmul(_t(y), g), 0)
    inner = inner - 0.5 * _triu(inner, 0)
    w = _solve(_t(y), inner)
    return _folded(_t(_solve(_h(y), _t(w))))


def cholesky(a: Any, upper: bool = False) -> Any:
    """The lower triangular l with l l^H = a, for positive definite a (..., n, n).

    ``upper`` reads the upper triangle of a, and gives the upper triangular l^H.  What
    is not positive definite raises ValueError.

    >>> cholesky(tensor([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    a = _matrix(a, "cholesky", True)
    return _h(_cholesky(_h(a))) if upper else _cholesky(a)


@primitive(several=True)
def _qr(xp: Any, x: Any) -> Any:
    return _in_single(lambda x: tuple(xp.linalg.qr(x)), x)


@_qr.vjp
def _qr_rule(g: Any, y: Any) -> Any:
    # Walter and Lehmann, "Algorithmic differentiation of linear algebra", 2018
    g_q, g_r = _conj(g[0]), _conj(g[1])
    q, r = y
    m = _triu(matmul(g_r, _h(r)) - matmul(_h(q), g_q), 0)
    both = m + _h(m)
    both = both - 0.5 * _triu(_tril(both, 0), 0)
    return _conj(_h(_solve(r, _h(g_q + matmul(q, both)))))


def qr(a: Any, mode: str = "reduced") -> Any:
    """Orthonormal q and upper triangular r with q r = a: k = min(n, m).

    (..., n, m) -> (..., n, k), (..., k, m).  Modes are "reduced" and "r", which gives r
    alone; "complete" where n <= m, as then it is the same.  The gradient needs the
    first k columns of a to be independent.

    >>> abs(qr(tensor([[3.0], [4.0]])).R).tolist()
    [[5.0]]
    """
    a = _matrix(a, "qr")
    n, m = a.shape[-2:]
    if mode not in ("reduced", "r") and not (mode == "complete" and n <= m):
        raise ShapeError(
            f"qr: expected mode 'reduced' or 'r', got {mode!r} for {a.shape}"
        )
    if n >= m:
        q, r = _qr(a)
    else:
        q, r = _qr(a[..., :n])
        r = concatenate([r, matmul(_h(q), a[..., n:])], -1)
    return r if mode == "r" else QRResult(q, r)


def _over(a: Any, b: Any, scale: Any) -> Any:
    """a / b, and 0 where b is no more than rounding."""
    nothing = absolute(b) <= scale
    return _where(nothing, 0.0, a) / _where(nothing, 1.0, b)


def _differences(w: Any) -> Any:
    """w[j] - w[i] at (i, j)."""
    return expand_dims(w, -2) - expand_dims(w, -1)


def _rounding(w: Any) -> Any:
    """A matrix of one: what counts as 0 among eigenvalues."""
    largest = _max(absolute(w), -1, True) if w.shape[-1] else sum(w, -1, True)
    return expand_dims(largest * (4.0 * _unit(w) * w.shape[-1]), -1)


@primitive(several=True)
def _eigh(xp: Any, x: Any) -> Any:
    return _in_single(lambda x: tuple(xp.linalg.eigh(x)), x)


@_eigh.vjp
def _eigh_rule(g: Any, y: Any) -> Any:
    g_w, g_v = g
    w, v = y
    b = matmul(_t(v), g_v)
    q = _over(0.5 * (b - _h(b)), _differences(w), _rounding(w)) + _embedded(g_w)
    return _folded(matmul(_conj(v), matmul(q, _t(v))))


def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues in ascending order and eigenvectors of Hermitian matrices.

    (..., n, n) -> (..., n), (..., n, n), a v[:, i] = w[i] v[:, i].  Only the lower
    triangle of a is read (or the upper, by ``UPLO``), and only it has a gradient.
    Within the space of equal eigenvalues the derivative of the vectors counts as 0.

    >>> eigh(tensor([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.tolist()
    [1.0, 3.0]
    """
    a = _matrix(a, "eigh", True)
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError(f"eigh: UPLO is 'L' or 'U', got {UPLO!r}")
    return EighResult(*_eigh(a if UPLO.upper() == "L" else _h(a)))


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of ``eigh`` alone; their sum has a gradient also where equal.

    >>> eigvalsh(tensor([[2.0, 1.0], [1.0, 2.0]])).tolist()
    [1.0, 3.0]
    """
    return eigh(a, UPLO).eigenvalues


@primitive(several=True)
def _eig(xp: Any, x: Any) -> Any:
    return _in_single(lambda x: tuple(xp.linalg.eig(x)), x)


@_eig.vjp
def _eig_rule(g: Any, y: Any) -> Any:
    g_w, g_v = g
    w, v = y
    along = sum(g_v * v, -2, True)  # the columns keep their length
    g_v = g_v - _conj(v) * (_real(along, v.dtype) if v.dtype.kind == "c" else along)
    b = matmul(_t(v), g_v)
    q = _over(b, _differences(w), _rounding(w)) + _embedded(g_w)
    return _solve(_t(v), matmul(q, _t(v)))


def eig(a: Any) -> Any:
    """Eigenvalues and eigenvectors of square matrices: (..., n, n) as in ``eigh``.

    They are complex where an eigenvalue of a real matrix is.  A matrix without n
    independent eigenvectors has no derivative.

    >>> eig(tensor([[1.0, 1.0], [0.0, 2.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return EigResult(*_eig(_matrix(a, "eig", True)))


def eigvals(a: Any) -> Any:
    """The eigenvalues of ``eig`` alone.

    >>> eigvals(tensor([[1.0, 1.0], [0.0, 2.0]])).tolist()
    [1.0, 2.0]
    """
    return eig(a).eigenvalues
