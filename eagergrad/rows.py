"""The reverse sweep of many cotangents at once, for Jacobians.

A cotangent here has one more axis in front: a row per output element.  Elementwise
rules broadcast over it as they are, and the ops in ``ROWS`` know how to let it pass;
any other op is asked once per row.  Everything runs on Tensors, so that outer tapes
record it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .backward import asked, hand_over, in_order, leading_to, rule_gradients
from .ops.elementwise import _astype_op
from .ops.indexing import _scatter_add
from .ops.linalg import matmul
from .ops.reductions import reduced_shape, sum
from .ops.shapes import broadcast_to, expand_dims, reshape, stack, swapaxes, transpose
from .primitive import lifted
from .tape import Node, Tape
from .tensor import Tensor


def sweep_rows(
    tape: Tape, cotangents: dict[Node, Any], sources: set[Node], count: int
) -> dict[Node, Any]:
    """Propagate ``count`` rows of cotangents; the result holds those of the sources."""
    entries = in_order(tape, cotangents) if tape.late else tape.entries[:]
    useful = leading_to(sources, entries)
    found: dict[Node, Any] = {}
    while entries:
        node = entries.pop()()
        if node is None:
            continue
        g = cotangents.pop(node, None)
        if g is None:
            continue
        if node in sources:
            found[node] = g
        if node.op.form == "item":
            hand_over(node, g, cotangents)
            continue
        inputs = asked(node, useful)
        if not any(inputs):
            continue
        for parent, dx in zip(inputs, _pulled(node, inputs, g, count), strict=True):
            if parent is not None and dx is not None and tape.knows(parent):
                dx = _unbroadcast(dx, parent.shape, count)
                known = cotangents.get(parent)
                cotangents[parent] = dx if known is None else known + dx
    cotangents.update(found)
    return cotangents


Inputs = Sequence[Node | None]  # None for those that need no gradient


def _pulled(node: Node, inputs: Inputs, g: Any, count: int) -> Sequence[Any]:
    op = node.op
    values = (node, *node.inputs)
    real = all(value is None or value.dtype.kind == "f" for value in values)
    if real and op.form == "elementwise":
        return [
            None if rule is None or parent is None else rule(g, *lifted(node, i))
            for i, (rule, parent) in enumerate(zip(op.rules, inputs, strict=True))
        ]
    if real and op.name in ROWS and op.form not in ("user", "call"):
        found = ROWS[op.name](node, inputs, g, count)
        if found is not None:
            return found
    several = isinstance(g, list)
    rows = []
    for i in range(count):
        row = [None if piece is None else piece[i] for piece in g] if several else g[i]
        rows.append(rule_gradients(node, inputs, row))
    return [
        None if column[0] is None else stack(column)
        for column in zip(*rows, strict=True)
    ]


def _unbroadcast(g: Tensor, shape: tuple[int, ...], count: int) -> Any:
    """``unbroadcast`` behind the axis of rows."""
    if g.shape == (count, *shape):
        return g
    extra = g.ndim - 1 - len(shape)
    axes = tuple(range(1, extra + 1)) + tuple(
        i + extra + 1
        for i, n in enumerate(shape)
        if n == 1 and g.shape[i + extra + 1] != 1
    )
    g = sum(g, axes) if axes else g
    return reshape(g, (count, *shape))


def _shape(node: Node) -> tuple[int, ...]:
    (parent,) = node.inputs
    assert parent is not None
    return parent.shape


def _params(node: Node, *names: str) -> list[Any]:
    values = dict(zip(node.op.reads[0], node.saved, strict=True))
    return [values[name] for name in names]


def _sum(node: Node, inputs: Inputs, g: Any, count: int) -> Sequence[Any]:
    shape = _shape(node)
    axis, _ = _params(node, "axis", "keepdims")
    g = g.reshape((count, *reduced_shape(shape, axis)))
    if node.op.name == "mean":
        kept = int(np.prod(g.shape[1:], dtype=int)) or 1
        g = g / (int(np.prod(shape, dtype=int)) / kept or 1)
    return [broadcast_to(g, (count, *shape))]


def _transpose(node: Node, inputs: Inputs, g: Any, count: int) -> Sequence[Any]:
    (axes,) = _params(node, "axes")
    axes = range(len(node.shape))[::-1] if axes is None else np.argsort(axes).tolist()
    return [transpose(g, (0, *(axis + 1 for axis in axes)))]


def _getitem(node: Node, inputs: Inputs, g: Any, count: int) -> Sequence[Any] | None:
    (index,) = _params(node, "index")
    index = index if isinstance(index, tuple) else (index,)
    if any(hasattr(part, "dtype") and part.ndim for part in index[1:]):
        return None  # where NumPy puts the axes of several index arrays depends on all
    return [_scatter_add(g, (slice(None), *index), (count, *_shape(node)))]


def _matmul(node: Node, inputs: Inputs, g: Any, count: int) -> Sequence[Any] | None:
    node_a, node_b = inputs
    a = None if node_b is None else lifted(node, 1)[0]
    b = None if node_a is None else lifted(node, 0)[0]
    shapes = [s for s in (a, b) if s is not None]
    if any(x.ndim < 2 for x in shapes) or len(node.shape) < 2:
        return _matmul_vectors(node, g, a, b)
    return [
        None if b is None else matmul(g, swapaxes(b, -1, -2)),
        None if a is None else matmul(swapaxes(a, -1, -2), g),
    ]


def _matmul_vectors(node: Node, g: Any, a: Any, b: Any) -> Sequence[Any] | None:
    rank_a = a.ndim if a is not None else len(node.inputs[0].shape)  # type: ignore[union-attr]
    rank_b = b.ndim if b is not None else len(node.inputs[1].shape)  # type: ignore[union-attr]
    if (rank_a, rank_b) == (1, 2):  # (k) (k, m) -> (m)
        return [
            None if b is None else matmul(g, b.T),
            None if a is None else expand_dims(a, -1) * expand_dims(g, -2),
        ]
    if (rank_a, rank_b) == (2, 1):  # (p, k) (k) -> (p)
        return [
            None if b is None else expand_dims(g, -1) * b,
            None if a is None else matmul(g, a),
        ]
    if (rank_a, rank_b) == (1, 1):
        g = expand_dims(g, -1)
        return [None if b is None else g * b, None if a is None else g * a]
    return None


def _along_axis(node: Node, inputs: Inputs, g: Any, count: int) -> Sequence[Any]:
    """A rule that only broadcasts and reduces along one axis, counted from the end."""
    saved = dict(zip(node.op.reads[0], lifted(node, 0), strict=True))
    if saved["axis"] >= 0:
        saved["axis"] -= len(node.shape)
    return [node.op.rules[0](g, *saved.values())]


ROWS: dict[str, Callable[[Node, Inputs, Any, int], Sequence[Any] | None]] = {
    "sum": _sum,
    "mean": _sum,
    "reshape": lambda node, inputs, g, count: [g.reshape((count, *_shape(node)))],
    "transpose": _transpose,
    "broadcast_to": lambda node, inputs, g, count: [g],
    "identity": lambda node, inputs, g, count: [g],
    "astype": lambda node, inputs, g, count: [
        _astype_op(g, _params(node, "origin")[0], g.dtype)
    ],
    "getitem": _getitem,
    "matmul": _matmul,
    "softmax": _along_axis,
    "log_softmax": _along_axis,
}
