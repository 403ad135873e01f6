"""Linear algebra: products of vectors, matrices and tensors.

All products of two arrays but ``matmul`` are one bilinear op, ``contract``: sums of
products by labelled axes, done as one matrix product.  Its two transposes are itself
with the labels exchanged.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import backend_of
from ..errors import DTypeError, ShapeError
from ..gemm import Unserved, gemm
from ..operands import operand, promoted
from ..primitive import bilinear
from ..tensor import Tensor
from .elementwise import conj, multiply
from .reductions import is_half, sum
from .shapes import _axis, expand_dims, ravel, reshape, swapaxes, transpose


def _matmul_a(g: Any, b: Any, like: Any) -> Any:
    if b.ndim == 2 == len(like.shape):
        return matmul(g, b.T)
    if b.ndim == 1:
        return g * b if len(like.shape) == 1 else expand_dims(g, -1) * b
    if len(like.shape) == 1 and b.ndim == 2:
        return matmul(b, g)
    if len(like.shape) == 1:
        return sum(b * expand_dims(g, -2), -1)  # (..., k, n) (..., 1, n) -> (..., k)
    return matmul(g, swapaxes(b, -1, -2))


def _matmul_b(g: Any, a: Any, like: Any) -> Any:
    if a.ndim == 2 == len(like.shape):
        return matmul(a.T, g)
    if a.ndim == 1:
        if len(like.shape) == 1:
            return g * a
        return expand_dims(a, -1) * expand_dims(g, -2)  # (k, 1) (..., 1, n)
    if len(like.shape) == 1 and a.ndim == 2:
        return matmul(g, a)
    if len(like.shape) == 1:
        return sum(expand_dims(g, -1) * a, -2)  # (..., n, 1) (..., n, k) -> (..., k)
    if len(like.shape) == 2:  # one product, not a sum of one for each matrix of a
        return matmul(as_rows(a).T, as_rows(g))
    return matmul(swapaxes(a, -1, -2), g)


def as_rows(x: Any) -> Any:
    """All axes but the last as one."""
    return x if x.ndim == 2 else x.reshape((math.prod(x.shape[:-1]), x.shape[-1]))


def matrix_product(xp: Any, a: Any, b: Any) -> Any:
    """a @ b of buffers: by cuBLAS itself on a GPU, for the dtypes that it serves."""
    if xp is np:
        return _matmul(a, b)
    driver = backend_of(a).driver
    if driver is None:
        return xp.matmul(a, b)
    try:
        return gemm(driver, a, b)
    except Unserved:
        if not is_half(a):
            return xp.matmul(a, b)
    # CuPy has no batches of half types that add up in float32
    wide = xp.matmul(a.astype(np.float32), b.astype(np.float32))
    return wide.astype(a.dtype)


def product(a: Any, b: Any) -> Any:
    """a @ b of two matrices' buffers."""
    if type(a) is np.ndarray:
        return a.dot(b)
    return matrix_product(backend_of(a).xp, a, b)


def _matmul(a: Any, b: Any) -> Any:
    # matmul is a generalised ufunc; for two matrices dot makes the same BLAS call
    # without the ufunc's iterator
    try:
        axes = a.ndim, b.ndim
    except AttributeError:  # a number, of which matmul says what is wrong
        return np.matmul(a, b)
    if axes == (2, 2):
        return a.dot(b)
    if axes[1] == 2 and axes[0] > 2 and a.flags.c_contiguous and a.size:
        y = a.reshape(-1, a.shape[-1]).dot(b)  # as one matrix
        return y.reshape(*a.shape[:-1], b.shape[-1])
    return np.matmul(a, b)


def _add_a(total: Any, g: Any, b: Any, like: Any) -> bool:
    if b.ndim == 1 or len(like.shape) == 1:
        return False
    return _added(total, g, b.swapaxes(-1, -2))


def _add_b(total: Any, g: Any, a: Any, like: Any) -> bool:
    if len(like.shape) == 2:
        return _added(total, as_rows(a).T, as_rows(g))
    if a.ndim == 1 or len(like.shape) == 1:
        return False
    return _added(total, a.swapaxes(-1, -2), g)


def _added(total: Any, a: Any, b: Any) -> bool:
    """Add a @ b to a buffer; False where cuBLAS does not, or the buffer is another."""
    try:
        gemm(backend_of(total).driver, a, b, out=total, beta=1.0)
    except (Unserved, ShapeError, DTypeError):
        return False
    return True


matmul = bilinear(
    "matmul",
    forward=matrix_product,
    numpy=_matmul,
    transpose=(_matmul_a, _matmul_b),
    adds=(_add_a, _add_b),
    doc="""Matrix product of the last two axes: (..., n, k), (..., k, m) -> (..., n, m).

    A vector is a row on the left and a column on the right; leading axes broadcast.

    >>> matmul(tensor([[1.0, 2.0]]), tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """,
)

# ------------------------------------------------------------------- labelled products

Labels = tuple[int, ...]
Spec = tuple[Labels, Labels, Labels]  # of a, of b, of the result


def _contracted(xp: Any, a: Any, b: Any, spec: Spec) -> Any:
    """No label repeats within an array; each is in two of a, b and the result."""
    of_a, of_b, of_y = spec
    if is_half(a) and xp is np:
        wide = _contracted(xp, a.astype(np.float32), b.astype(np.float32), spec)
        return wide.astype(a.dtype)
    both = [i for i in of_a if i in of_b and i in of_y]
    summed = [i for i in of_a if i in of_b and i not in of_y]
    only_a = [i for i in of_a if i not in of_b]
    only_b = [i for i in of_b if i not in of_a]
    length = dict(zip((*of_a, *of_b), (*a.shape, *b.shape), strict=True))

    def arranged(x: Any, labels: Labels, *groups: list[int]) -> Any:
        x = x.transpose([labels.index(i) for group in groups for i in group])
        sizes = [math.prod(length[i] for i in group) for group in groups[1:]]
        return x.reshape((*x.shape[: len(both)], *sizes))

    if summed:
        y = matrix_product(
            xp,
            arranged(a, of_a, both, only_a, summed),
            arranged(b, of_b, both, summed, only_b),
        )
    else:
        y = arranged(a, of_a, both, only_a, []) * arranged(b, of_b, both, [], only_b)
    have = [*both, *only_a, *only_b]
    y = y.reshape([length[i] for i in have])
    return y.transpose([have.index(i) for i in of_y])


_contract = bilinear(
    "contract",
    transpose=(
        lambda g, b, spec: _contract(g, b, (spec[2], spec[1], spec[0])),
        lambda g, a, spec: _contract(a, g, (spec[0], spec[2], spec[1])),
    ),
    forward=_contracted,
)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum products over pairs of axes: the last n of a with the first n of b, or lists.

    The result has the other axes of a, then those of b.

    >>> tensordot(tensor([[1.0, 2.0]]), tensor([3.0, 4.0]), axes=1).tolist()
    [11.0]
    """
    a, b = _pair(a, b)
    if isinstance(axes, (int, np.integer)):
        n = int(axes)
        first, second = list(range(a.ndim - n, a.ndim)), list(range(n))
        if axes < 0 or axes > min(a.ndim, b.ndim):
            raise ShapeError(
                f"tensordot: axes={axes} is more than a {a.shape} and b {b.shape} have"
            )
    else:
        first, second = (_list(i) for i in axes)
    if len(first) != len(second):
        raise ShapeError(f"tensordot: expected as many axes of a as of b, got {axes}")
    first = [_axis(i, a.ndim, "tensordot") for i in first]
    second = [_axis(i, b.ndim, "tensordot") for i in second]
    if len({*first}) < len(first) or len({*second}) < len(second):
        raise ShapeError(f"tensordot: an axis is named twice in {axes}")
    of_a, of_b = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip(first, second, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(
                f"tensordot: axis {i} of a {a.shape} and axis {j} of b {b.shape} "
                "differ in length"
            )
        of_b[j] = of_a[i]
    of_y = [i for i in of_a if i not in of_b] + [i for i in of_b if i not in of_a]
    return _contract(a, b, (tuple(of_a), tuple(of_b), tuple(of_y)))


def _list(axes: Any) -> list[int]:
    if isinstance(axes, Sequence):
        return [operator.index(i) for i in axes]
    return [operator.index(axes)]


def _pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    return promoted(operand(a), operand(b))


def dot(a: Any, b: Any) -> Any:
    """Sum over the last axis of a and the last but one of b; of scalars the product.

    (n,), (n,) -> (); (n, k), (k, m) -> (n, m); more axes as in numpy.dot.

    >>> dot(tensor([1.0, 2.0]), tensor([3.0, 4.0])).item()
    11.0
    """
    a, b = _pair(a, b)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    if a.ndim <= 2 and b.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, (-1, -1 if b.ndim == 1 else -2))


def inner(a: Any, b: Any) -> Any:
    """Sum over the last axes of both; of scalars the product.

    >>> inner(tensor([1.0, 2.0]), tensor([3.0, 4.0])).item()
    11.0
    """
    a, b = _pair(a, b)
    return tensordot(a, b, (-1, -1)) if a.ndim and b.ndim else multiply(a, b)


def outer(a: Any, b: Any) -> Any:
    """Every element of a by every element of b: (n,), (m,) -> (n, m), flattened first.

    >>> outer(tensor([1.0, 2.0]), tensor([3.0, 4.0])).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    a, b = _pair(a, b)
    return tensordot(ravel(a), ravel(b), 0)


def vdot(a: Any, b: Any) -> Any:
    """Sum conj(a) b over all elements, flattened.

    >>> vdot(tensor([1j]), tensor([2j])).item()
    (2+0j)
    """
    a, b = _pair(a, b)
    return matmul(ravel(_conjugate(a)), ravel(b))


def _last(x: Any, axis: int, name: str) -> Any:
    place = _axis(axis, x.ndim, name)
    if place == x.ndim - 1:
        return x
    return transpose(x, [*(i for i in range(x.ndim) if i != place), place])


def _conjugate(x: Any) -> Any:
    return conj(x) if x.dtype.kind == "c" else x


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product: (n, m), (p, q) -> (n p, m q), blocks a[i, j] b.

    >>> kron(tensor([1.0, 2.0]), tensor([1.0, 1.0])).tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    a, b = _pair(a, b)
    rank = max(a.ndim, b.ndim)
    of_a = (1,) * (rank - a.ndim) + a.shape
    of_b = (1,) * (rank - b.ndim) + b.shape
    y = multiply(
        reshape(a, tuple(n for m in of_a for n in (m, 1))),
        reshape(b, tuple(n for m in of_b for n in (1, m))),
    )
    return reshape(y, tuple(n * m for n, m in zip(of_a, of_b, strict=True)))


_cross = bilinear(
    "cross",
    transpose=(lambda g, b: _cross(b, g), lambda g, a: _cross(g, a)),
)


def cross(
    a: Any,
    b: Any,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Any:
    """The cross product of 3-vectors along an axis; the other axes broadcast.

    >>> cross(tensor([1.0, 0.0, 0.0]), tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = _pair(a, b)
    a, b = _last(a, axisa, "cross"), _last(b, axisb, "cross")
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ShapeError(
            f"cross: expected vectors of length 3, got {a.shape} and {b.shape}; "
            "append zeros to shorter ones"
        )
    y = _cross(a, b)
    place = _axis(axisc, y.ndim, "cross")
    order = list(range(y.ndim - 1))
    order.insert(place, y.ndim - 1)
    return y if place == y.ndim - 1 else transpose(y, order)


def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of two or more matrices, in the order that takes least work.

    The first and the last may be vectors.

    >>> multi_dot([ones((2, 9)), ones((9, 9)), ones(9)]).tolist()
    [81.0, 81.0]
    """
    xs = [operand(x, "multi_dot") for x in arrays]
    if len(xs) < 2:
        raise ShapeError(f"multi_dot: expected at least two arrays, got {len(xs)}")
    ranks = [x.ndim for x in xs]
    if {*ranks[1:-1]} - {2} or {ranks[0], ranks[-1]} - {1, 2}:
        raise ShapeError(
            "multi_dot: expected matrices, and vectors only at the ends, got shapes "
            f"{[x.shape for x in xs]}"
        )
    rows, columns = ranks[0] == 2, ranks[-1] == 2
    xs[0] = xs[0] if rows else expand_dims(xs[0], 0)
    xs[-1] = xs[-1] if columns else expand_dims(xs[-1], 1)
    y = _product_of(xs)
    if rows and columns:
        return y
    return reshape(y, y.shape[:1] if rows else y.shape[1:] if columns else ())


def _product_of(xs: list[Any]) -> Any:
    """The matrix-chain recursion: cost[i, j] of the product of xs[i] ... xs[j]."""
    n = [x.shape[0] for x in xs] + [xs[-1].shape[1]]
    cost = {(i, i): 0 for i in range(len(xs))}
    cut: dict[tuple[int, int], int] = {}
    for width in range(1, len(xs)):
        for i in range(len(xs) - width):
            j = i + width
            cost[i, j], cut[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + n[i] * n[k + 1] * n[j + 1], k)
                for k in range(i, j)
            )

    def product_of(i: int, j: int) -> Any:
        if i == j:
            return xs[i]
        return matmul(product_of(i, cut[i, j]), product_of(cut[i, j] + 1, j))

    return product_of(0, len(xs) - 1)
