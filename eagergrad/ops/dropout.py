"""Dropout: a mask that is made again from its counter instead of being kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import traced
from ..errors import ShapeError
from ..primitive import beside, flat, fuse, linear
from ..tensor import wrap
from . import philox, random
from .reductions import _floating


def _dropped(xp: Any, x: Any, rate: float, key: int, offset: int) -> Any:
    chance = philox.uniform(xp, key, offset, x.size, np.float32).reshape(x.shape)
    grown = x / (1.0 - rate) if rate < 1 else x  # none of which is kept
    return xp.where(chance >= rate, grown, xp.zeros((), x.dtype)).astype(x.dtype)


_dropout = linear(
    "dropout",
    transpose=lambda g, rate, key, offset: _dropout(g, rate, key, offset),
    forward=_dropped,
)


def _dropout_kernel(kernel: Any, x: Any, rate: float, key: int, offset: int) -> Any:
    y = beside(x, x.shape)
    # chance >= rate among multiples of 2^-24, where rate is rounded as there
    least = math.ceil(float(np.float32(rate)) * 2**24)
    seed = philox.signed(key, offset, least)
    kernel(*flat(x), x.dtype.type(1.0 - rate), seed, y.reshape(-1))
    return y


fuse(_dropout, _dropout_kernel)


def dropout(
    x: Any,
    rate: float,
    training: bool = True,
    generator: random.Generator | None = None,
) -> Any:
    """Set each element to 0 with probability rate, divide the others by 1 - rate.

    Without ``training`` x itself.  The mask comes from ``generator``, by default the
    one of ``eg.random``; nothing of it is kept for the gradient, which draws it again.
    ValueError for a rate outside [0, 1].

    >>> dropout(tensor([1.0, 2.0]), 0.5, training=False).tolist()
    [1.0, 2.0]
    """
    if not 0 <= rate <= 1:
        raise ShapeError(f"dropout: expected a rate in [0, 1], got {rate}")
    x = _floating(x, "dropout")
    if not training or rate == 0:
        return x
    source = random.GENERATOR if generator is None else generator
    drawn = "uniform", x.size, np.dtype(np.float32)
    key, offset = source._advance(*drawn, x.device)
    if type(offset) is traced.Dynamic:  # then a constant has another mask each time
        x = wrap(traced.adopted(x._data), x._node)
    return _dropout(x, float(rate), key, offset)
