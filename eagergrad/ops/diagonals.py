"""Diagonals and triangles of matrices, each beside its transpose."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..operands import operand
from ..primitive import linear
from .reductions import sum
from .shapes import _axis, swapaxes

_diagonal = linear(
    "diagonal",
    transpose=lambda g, like, offset, axis1, axis2: _onto_diagonal(
        g, like.shape, offset, axis1, axis2
    ),
    forward=lambda xp, x, offset, axis1, axis2: xp.diagonal(x, offset, axis1, axis2),
)


def _placed(
    xp: Any, x: Any, shape: tuple[int, ...], offset: int, axis1: int, axis2: int
) -> Any:
    out = xp.zeros(shape, x.dtype)
    i = xp.arange(x.shape[-1])
    matrices = xp.moveaxis(out, (axis1, axis2), (-2, -1))  # a view
    matrices[..., i + max(-offset, 0), i + max(offset, 0)] = x
    return out


_onto_diagonal = linear(
    "onto_diagonal",
    transpose=lambda g, offset, axis1, axis2: _diagonal(g, offset, axis1, axis2),
    forward=_placed,
)


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal in two axes, as the last axis; ``offset`` > 0 lies above the main.

    >>> diagonal(tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    x = operand(x, "diagonal")
    axis1, axis2 = (_axis(i, x.ndim, "diagonal") for i in (axis1, axis2))
    if axis1 == axis2:
        raise ShapeError(f"diagonal: expected two different axes of {x.shape}")
    return _diagonal(x, offset, axis1, axis2)


def diag(v: Any, k: int = 0) -> Any:
    """The k-th diagonal of a matrix, or the matrix with a vector on its k-th diagonal.

    >>> diag(tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    v = operand(v, "diag")
    if v.ndim == 2:
        return _diagonal(v, k, 0, 1)
    if v.ndim != 1:
        raise ShapeError(f"diag: expected one axis or two, got {v.shape}; use diagonal")
    n = v.shape[0] + abs(k)
    return _onto_diagonal(v, (n, n), k, 0, 1)


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum of the diagonal in two axes.

    >>> trace(tensor([[1.0, 2.0], [3.0, 4.0]])).item()
    5.0
    """
    return sum(diagonal(x, offset, axis1, axis2), -1)


def matrix_trace(x: Any, offset: int = 0, *, dtype: Any = None) -> Any:
    """The sum of the diagonal in the last two axes: (..., n, m) -> (...).

    With ``dtype`` the elements are cast to it first.

    >>> matrix_trace(ones((3, 2, 2))).tolist()
    [2.0, 2.0, 2.0]
    """
    return sum(matrix_diagonal(x, offset), -1, dtype=dtype)


def matrix_diagonal(x: Any, offset: int = 0) -> Any:
    """The diagonal in the last two axes: (..., n, m) -> (..., min(n, m)).

    >>> matrix_diagonal(ones((3, 2, 2))).shape
    (3, 2)
    """
    return diagonal(x, offset, -2, -1)


_tril = linear(
    "tril",
    transpose=lambda g, k: _tril(g, k),
    forward=lambda xp, x, k: xp.tril(x, k),
)
_triu = linear(
    "triu",
    transpose=lambda g, k: _triu(g, k),
    forward=lambda xp, x, k: xp.triu(x, k),
)


def tril(m: Any, k: int = 0) -> Any:
    """Zero above the k-th diagonal of the last two axes.

    >>> tril(tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 0.0], [3.0, 4.0]]
    """
    return _tril(m, k)


def triu(m: Any, k: int = 0) -> Any:
    """Zero below the k-th diagonal of the last two axes.

    >>> triu(tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [0.0, 4.0]]
    """
    return _triu(m, k)


def matrix_transpose(x: Any) -> Any:
    """Exchange the last two axes: (..., n, m) -> (..., m, n).

    >>> matrix_transpose(zeros((4, 2, 3))).shape
    (4, 3, 2)
    """
    x = operand(x, "matrix_transpose")
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: expected two axes or more, got {x.shape}")
    return swapaxes(x, -1, -2)
