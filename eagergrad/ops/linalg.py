"""Linear algebra: the matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..primitive import bilinear
from .reductions import sum
from .shapes import expand_dims, swapaxes


def _matmul_a(g: Any, b: Any, like: Any) -> Any:
    if b.ndim == 2 == len(like.shape):
        return g.dot(b.T)
    if b.ndim == 1:
        return g * b if len(like.shape) == 1 else expand_dims(g, -1) * b
    if len(like.shape) == 1:
        return sum(b * expand_dims(g, -2), -1)  # (..., k, n) (..., 1, n) -> (..., k)
    return matmul(g, swapaxes(b, -1, -2))


def _matmul_b(g: Any, a: Any, like: Any) -> Any:
    if a.ndim == 2 == len(like.shape):
        return a.T.dot(g)
    if a.ndim == 1:
        if len(like.shape) == 1:
            return g * a
        return expand_dims(a, -1) * expand_dims(g, -2)  # (k, 1) (..., 1, n)
    if len(like.shape) == 1:
        return sum(expand_dims(g, -1) * a, -2)  # (..., n, 1) (..., n, k) -> (..., k)
    return matmul(swapaxes(a, -1, -2), g)


def _matmul(a: Any, b: Any) -> Any:
    # matmul is a generalised ufunc; for two matrices dot makes the same BLAS call
    # without the ufunc's iterator
    return a.dot(b) if a.ndim == 2 == b.ndim else np.matmul(a, b)


matmul = bilinear(
    "matmul",
    numpy=_matmul,
    transpose=(_matmul_a, _matmul_b),
    doc="""Matrix product of the last two axes: (..., n, k), (..., k, m) -> (..., n, m).

    A vector is a row on the left and a column on the right; leading axes broadcast.

    >>> matmul(tensor([[1.0, 2.0]]), tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """,
)
