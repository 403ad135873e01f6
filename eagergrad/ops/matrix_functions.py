"""Functions of matrices: powers, the exponential, least squares."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

from ..errors import ShapeError
from ..primitive import primitive
from .elementwise import astype, real
from .inverses import (
    _identity_like,
    _in_single,
    _matrix,
    _t,
    _tolerance,
    inv,
    pinv,
)
from .linalg import _conjugate, _pair, matmul
from .reductions import _floating, sum
from .shapes import concatenate, expand_dims
from .svd import svdvals


class LstsqResult(NamedTuple):
    """What ``lstsq`` returns."""

    x: Any
    residuals: Any
    rank: Any
    s: Any


def matrix_power(a: Any, n: int) -> Any:
    """Square matrices (..., n, n) to an integer power, by repeated squaring.

    >>> matrix_power(tensor([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    n = operator.index(n)
    a = _matrix(a, "matrix_power", True)
    if n == 0:
        return _identity_like(a)
    if n < 0:
        a, n = inv(a), -n
    y = None
    while True:
        if n % 2:
            y = a if y is None else matmul(y, a)
        n //= 2
        if not n:
            return y
        a = matmul(a, a)


# The Pade approximant of degree 13, and the norm up to which it is exact in float64:
# Higham, "The scaling and squaring method for the matrix exponential revisited", 2005
_PADE = tuple(
    math.factorial(26 - k)
    * math.factorial(13)
    / (math.factorial(26) * math.factorial(k) * math.factorial(13 - k))
    for k in range(14)
)
_PADE_NORM = 5.371920351148152


def _exponential(xp: Any, x: Any) -> Any:
    if not x.size:
        return x
    top = float(xp.abs(x).sum(axis=-2).max())
    halvings = 0
    if _PADE_NORM < top < math.inf:
        halvings = math.ceil(math.log2(top / _PADE_NORM))
    x = x / 2.0**halvings
    b, square = _PADE, xp.matmul(x, x)
    one = xp.eye(x.shape[-1], dtype=x.dtype)
    fourth = xp.matmul(square, square)
    sixth = xp.matmul(fourth, square)

    def mixed(k: int) -> Any:
        low = b[k] * one + b[k + 2] * square + b[k + 4] * fourth + b[k + 6] * sixth
        high = b[k + 8] * square + b[k + 10] * fourth
        if k + 12 < len(b):
            high = high + b[k + 12] * sixth
        return low + xp.matmul(sixth, high)

    odd, even = xp.matmul(x, mixed(1)), mixed(0)
    y = xp.linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        y = xp.matmul(y, y)
    return y


@primitive()
def _expm(xp: Any, x: Any) -> Any:
    return _in_single(lambda x: _exponential(xp, x), x)


@_expm.vjp
def _expm_rule(g: Any, x: Any) -> Any:
    # the derivative is a block of the exponential of a block triangular matrix
    n, x = x.shape[-1], _t(x)
    upper = concatenate([x, g], -1)
    lower = concatenate([0.0 * x, x], -1)
    return _expm(concatenate([upper, lower], -2))[..., :n, n:]


def expm(A: Any) -> Any:
    """The exponential of square matrices, I + A + A A / 2 + ...: (..., n, n).

    >>> expm(tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return _expm(_matrix(A, "expm", True))


def lstsq(a: Any, b: Any, rcond: float | None = None) -> Any:
    """The x of least length that minimises the length of a x - b.

    (n, m), (n,) or (n, k) -> x (m,) or (m, k), with the sums of squared residuals
    (empty unless n > m and a has rank m), the rank of a, and its singular values.
    Singular values below ``rcond`` times the largest count as 0.

    >>> lstsq(tensor([[2.0], [0.0]]), tensor([4.0, 3.0])).x.tolist()
    [2.0]
    """
    a, b = _pair(_matrix(a, "lstsq"), _floating(b, "lstsq"))
    if a.ndim != 2 or b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise ShapeError(
            f"lstsq: expected (n, m) and (n,) or (n, k), got {a.shape} and {b.shape}"
        )
    rcond = _tolerance(a) if rcond is None else float(rcond)
    s = svdvals(a)
    x = matmul(pinv(a, rcond), b)
    rank = sum(astype(s > s[:1] * rcond, "int64"))
    left = matmul(a, x) - b
    left = left if left.ndim == 2 else expand_dims(left, 1)
    left = real(sum(_conjugate(left) * left, 0))
    n, m = a.shape
    if n <= m or rank.item() < m:
        left = left[:0]
    return LstsqResult(x, left, rank, s)
