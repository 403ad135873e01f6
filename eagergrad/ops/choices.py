"""Choices: elements picked from several arrays, or kept where a condition holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..tensor import Tensor, to_buffer
from .elementwise import where
from .gathering import _pick, _within, index_buffer
from .indexing import take
from .shapes import broadcast_to, stack


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """At each place the choice of the first condition that holds, else the default.

    >>> x = tensor([1.0, 2.0, 3.0])
    >>> select([x < 2, x > 2], [-x, x * x], 0.0).tolist()
    [-1.0, 0.0, 9.0]
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ShapeError(
            "select: expected as many conditions as choices, and at least one, got "
            f"{len(condlist)} and {len(choicelist)}"
        )
    out = default
    for cond, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        out = where(cond, choice, out)
    return out


def choose(a: Any, choices: Sequence[Any], mode: str = "raise") -> Any:
    """At each place the element of the choice with the number a.

    Numbers outside [0, n) raise IndexError; ``mode`` "wrap" or "clip" moves them in.

    >>> choose([1, 0], [tensor([1.0, 2.0]), tensor([3.0, 4.0])]).tolist()
    [3.0, 2.0]
    """
    tensors = [operand(c, "choose") for c in choices]
    if not tensors:
        raise ShapeError("choose: expected at least one choice, got none")
    numbers = index_buffer("choose", a, tensors[0])
    count = len(tensors)
    device = tensors[0].device
    xp = device.backend.xp
    if mode in ("wrap", "clip"):
        with device.allocating("choose"):
            clip = mode == "clip"
            numbers = xp.clip(numbers, 0, count - 1) if clip else numbers % count
    elif mode == "raise":
        _within("choose", numbers, count)
    else:
        raise ShapeError(f"choose: expected mode raise, wrap or clip, got {mode!r}")
    shape = np.broadcast_shapes(numbers.shape, *(c.shape for c in tensors))
    whole = stack([broadcast_to(c, shape) for c in tensors])
    numbers = xp.broadcast_to(numbers, shape)[None]
    return _pick(whole, numbers, 0)[0]


def compress(condition: Any, x: Any, axis: int | None = None) -> Any:
    """The slices along an axis where a condition holds; flattened without an axis.

    The condition has one axis, no longer than that of x; what it leaves out is dropped.

    >>> compress([True, False, True], tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 3.0]
    """
    x = operand(x, "compress")
    flags = (
        condition._data
        if isinstance(condition, Tensor)
        else to_buffer(condition, device=x.device, copy=None)
    )
    if flags.ndim != 1:
        raise ShapeError(
            f"compress: expected a condition of one axis, got {flags.shape}"
        )
    with x.device.allocating("compress"):
        places = x.device.backend.xp.flatnonzero(flags)
    return take(x, places, axis)


def extract(condition: Any, x: Any) -> Any:
    """The elements where a condition of the same size holds, flattened.

    >>> extract([[True, False]], tensor([[1.0, 2.0]])).tolist()
    [1.0]
    """
    condition = operand(condition, "extract")
    return compress(condition._data.reshape(-1), x)
