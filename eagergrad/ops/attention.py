"""Attention: a mean of values, weighted by how keys answer queries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..primitive import fuse, primitive
from ..tensor import to_buffer
from .elementwise import product, where
from .linalg import matmul
from .neural import softmax
from .reductions import _floating, _sum, any, is_half
from .shapes import swapaxes


@primitive()
def _softmax_seen(xp: Any, x: Any, seen: Any) -> Any:
    """softmax of the first elements of each row of x, (..., n, m); 0 beyond.

    seen, (n,), is how many, one at least.
    """
    mask = xp.arange(x.shape[-1]) < seen[:, None]
    z = xp.where(mask, x.astype(np.float32) if is_half(x) else x, -math.inf)
    e = xp.exp(z - z.max(axis=-1, keepdims=True))
    y = xp.where(mask, e / e.sum(axis=-1, keepdims=True), 0)
    return y.astype(x.dtype, copy=False)


@_softmax_seen.vjp
def _softmax_seen_rule(g: Any, y: Any, seen: Any) -> Any:
    gy = product(y, g)  # 0 also where g beyond is not finite
    return gy - y * _sum(gy, -1, True)


fuse(
    _softmax_seen,
    lambda kernel, x, seen: kernel(x, seen),
    lambda kernel, g, y, seen: kernel(g, y, seen),
)


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
) -> Any:
    """softmax(scale q k^T) v: (..., n, d), (..., m, d), (..., m, e) -> (..., n, e).

    ``scale`` is 1 / sqrt(d) unless given.  ``mask`` broadcasts to (..., n, m): True
    where a query may look, or numbers to add, -inf where it may not.  ``causal`` lets
    query i look at keys up to i.  A query that may look nowhere gets 0.

    >>> q = tensor([[1.0, 0.0]])
    >>> scaled_dot_product_attention(q, q, tensor([[5.0]])).tolist()
    [[5.0]]
    """
    q, k, v = (
        _floating(q, "scaled_dot_product_attention"),
        _floating(k, "scaled_dot_product_attention"),
        _floating(v, "scaled_dot_product_attention"),
    )
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1]:
        raise ShapeError(
            "scaled_dot_product_attention: expected q (..., n, d) and k (..., m, d), "
            f"got {q.shape} and {k.shape}"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            "scaled_dot_product_attention: expected as many values as keys, got k "
            f"{k.shape} and v {v.shape}"
        )
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1] or 1)
    scores = matmul(q * scale, swapaxes(k, -1, -2))
    if not k.shape[-2]:
        return matmul(scores, v)
    if causal and mask is None:
        counts = np.minimum(np.arange(1, q.shape[-2] + 1), k.shape[-2])
        name = "scaled_dot_product_attention"
        seen = to_buffer(counts, None, q.device, None, name)
        return matmul(_softmax_seen(scores, seen), v)
    allowed = None
    if mask is not None:
        mask = operand(mask, "scaled_dot_product_attention")
        if mask.dtype.kind == "b":
            allowed = mask
        else:
            allowed = mask > -math.inf
            scores = scores + where(allowed, mask, 0.0)
    if causal:
        past = np.tri(q.shape[-2], k.shape[-2], dtype=bool)
        seen = operand(
            to_buffer(past, None, q.device, None, "scaled_dot_product_attention")
        )
        allowed = seen if allowed is None else allowed & seen
    if allowed is None:
        return matmul(softmax(scores), v)
    nowhere = ~any(allowed, axis=-1, keepdims=True)
    weights = softmax(where(allowed | nowhere, scores, -math.inf))
    return matmul(where(allowed, weights, 0.0), v)
