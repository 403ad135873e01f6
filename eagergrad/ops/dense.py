"""A dense layer: product, bias and activation as one op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..operands import common_dtype, operand, refuse_complex
from ..primitive import fuse, primitive
from .elementwise import gate, relu, tanh
from .linalg import as_rows, matmul, matrix_product, product
from .reductions import _column_sum, _floating


@primitive(arrays=3)
def _dense(xp: Any, x: Any, w: Any, b: Any, activation: str) -> Any:
    """act(x w + b), with the activation "relu", "tanh" or ""."""
    z = matrix_product(xp, as_rows(x), w) + b
    if activation == "relu":
        refuse_complex("dense", z)
        z = xp.maximum(z, 0)
    elif activation == "tanh":
        z = xp.tanh(z)
    return _shaped(z, x)


def _shaped(rows: Any, like: Any) -> Any:
    """Rows with the leading axes of another array."""
    return rows if like.ndim == 2 else rows.reshape((*like.shape[:-1], rows.shape[-1]))


@_dense.vjp
def _dense_rule(g: Any, x: Any, w: Any, y: Any, like: Any, activation: str) -> Any:
    if activation == "relu":
        g = gate(g, y)
    elif activation == "tanh":
        g = g * (1.0 - y * y)
    dz = as_rows(g)
    return *_factors(matmul, dz, x, w, like), None if like[2] is None else _column_sum(
        dz
    )


def _factors(times: Any, dz: Any, x: Any, w: Any, like: Any) -> tuple[Any, Any]:
    """The gradients of x and w by that of their product."""
    return (
        None if like[0] is None else _shaped(times(dz, w.T), x),
        None if like[1] is None else times(as_rows(x).T, dz),
    )


# The activations by their numbers in kernels/activations.h.
_NUMBERS = {name: np.array(i) for i, name in enumerate(("", "relu", "tanh"))}
# Multiplications up to which a kernel makes the products too, those of the op and those
# of its rule: then the time is that of the calls, of which it is one instead of three.
FORWARD, BACKWARD = 1024, 4096


def _dense_kernel(
    small: Any, rows: Any, x: Any, w: Any, b: Any, activation: str
) -> Any:
    if small is not None and x.size * b.size <= FORWARD and x.ndim == 2:
        return small(x, w, b, _NUMBERS[activation])
    z = product(as_rows(x), w)
    return _shaped(rows(z, b, _NUMBERS[activation]), x)


def _dense_vjp_kernel(
    small: Any,
    rows: Any,
    g: Any,
    x: Any,
    w: Any,
    y: Any,
    like: Any,
    activation: str,
) -> Any:
    if small is not None and g.size * len(w) <= BACKWARD and g.ndim == 2:
        return small(x, w, g, y, _NUMBERS[activation])
    dz, db = rows(as_rows(g), as_rows(y), _NUMBERS[activation])
    return *_factors(product, dz, x, w, like), db


# On a GPU products are the library's, whatever their size.
fuse(_dense, _dense_kernel, _dense_vjp_kernel, ("dense", "activation"))


def dense(
    x: Any, w: Any, b: Any = None, activation: Callable[[Any], Any] | None = None
) -> Any:
    """activation(x @ w + b): (..., n), (n, m), (m,) -> (..., m).

    With ``eg.relu``, ``eg.tanh`` or no activation it is one op; any other function is
    called on the sum.  Without a bias it is the product of ``matmul``, and what the
    activation makes of it.  ShapeError where sizes do not fit: a bias is a row.

    >>> x, w = tensor([[1.0, 2.0]]), tensor([[3.0, 1.0], [-4.0, 1.0]])
    >>> dense(x, w, tensor([1.0, 1.0]), relu).tolist()
    [[0.0, 4.0]]
    """
    try:
        rows, weights, row = x._data, w._data, (w if b is None else b)._data
    except AttributeError:
        x, w = operand(x, "dense"), operand(w, "dense")
        return dense(x, w, b if b is None else operand(b, "dense"), activation)
    sizes = weights.shape
    fits = len(sizes) == 2 and rows.shape[-1:] == sizes[:1]
    if not fits or (b is not None and row.shape != sizes[1:]):
        raise ShapeError(
            f"dense: expected x (..., n), w (n, m) and b (m,): x is {x.shape}, w "
            f"{w.shape}, b {b if b is None else b.shape}"
        )
    dtype = rows.dtype
    if dtype is not weights.dtype or dtype is not row.dtype or dtype.kind in "biu":
        x, w, *rest = _floats([x, w] if b is None else [x, w, b])
        b = rest[0] if rest else None
    if b is not None:
        if activation is relu:
            return _dense(x, w, b, "relu")
        if activation is tanh:
            return _dense(x, w, b, "tanh")
    z = matmul(x, w) if b is None else _dense(x, w, b, "")
    if activation is None:
        return z
    if not callable(activation):
        raise DTypeError(
            "dense: expected a function of one tensor as activation, such as eg.relu, "
            f"got {activation!r}"
        )
    return activation(z)


def _floats(inputs: list[Any]) -> list[Any]:
    """The inputs in one floating dtype."""
    return [_floating(x) for x in common_dtype(inputs, "dense")]


__all__ = ["dense"]
