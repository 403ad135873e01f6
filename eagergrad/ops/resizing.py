"""To a given size: adaptive pooling, and interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..tensor import to_buffer, wrap
from .convolution import Ints, per_axis
from .elementwise import product
from .gathering import take_along_axis
from .indexing import take
from .pooling import _spatial
from .reductions import argmax, sum
from .shapes import reshape


def adaptive_avg_pool(x: Any, output_size: int | Sequence[int]) -> Any:
    """The means of ``output_size`` windows that cover (n, c, *sizes).

    Window i of m along a size n runs from floor(i n / m) to ceil((i + 1) n / m).

    >>> adaptive_avg_pool(tensor([[[1.0, 3.0, 5.0]]]), 2).tolist()
    [[[2.0, 4.0]]]
    """
    x, outputs = _adapted("adaptive_avg_pool", x, output_size)
    for axis, m in enumerate(outputs, 2):
        place, inside = _adaptive_windows(x.shape[axis], m)
        weights = (inside / inside.sum(1, keepdims=True)).astype(x.dtype)
        weights = _along("adaptive_avg_pool", x, weights, axis)
        x = sum(product(weights, _parts(x, place, axis)), axis + 1)
    return x


def adaptive_max_pool(x: Any, output_size: int | Sequence[int]) -> Any:
    """The largest of each of the windows of ``adaptive_avg_pool``.

    The first of equal ones counts, row by row; a nan is the largest.

    >>> adaptive_max_pool(tensor([[[1.0, 3.0, 5.0]]]), 2).tolist()
    [[[3.0, 5.0]]]
    """
    x, outputs = _adapted("adaptive_max_pool", x, output_size)
    for axis, m in reversed([*enumerate(outputs, 2)]):  # the last first: row by row
        place, _ = _adaptive_windows(x.shape[axis], m)
        best = argmax(_parts(wrap(x._data), place, axis), axis + 1)
        first = _along("adaptive_max_pool", x, place[:, 0], axis)
        x = take_along_axis(x, best + first, axis)
    return x


def _adapted(name: str, x: Any, output_size: Any) -> tuple[Any, Ints]:
    x = _spatial(name, x, None)
    _check_not_empty(name, x)
    return x, per_axis(name, "output_size", output_size, x.ndim - 2)


def _adaptive_windows(n: int, m: int) -> tuple[Any, Any]:
    """The places of m windows that cover n, in rows; and which count.

    Rows are of one length: the last place stands for those that are left over.
    """
    start = np.arange(m) * n // m
    length = -(-(np.arange(1, m + 1) * n) // m) - start
    step, size = np.arange(length.max()), length[:, None]
    return start[:, None] + np.minimum(step, size - 1), step < size


def _parts(x: Any, place: Any, axis: int) -> Any:
    """The windows of an axis: (..., n, ...) -> (..., m, length, ...)."""
    shape = (*x.shape[:axis], *place.shape, *x.shape[axis + 1 :])
    return reshape(take(x, place.reshape(-1), axis), shape)


def _along(name: str, x: Any, values: Any, axis: int) -> Any:
    """Values for an axis of x and those made of it, beside x on its device."""
    values = values.reshape(*values.shape, *[1] * (x.ndim - axis - 1))
    return to_buffer(values, None, x.device, None, name)


def _check_not_empty(name: str, x: Any) -> None:
    if 0 in x.shape[2:]:
        raise ShapeError(f"{name}: expected sizes of at least 1, got {x.shape}")


def interpolate(x: Any, size: int | Sequence[int], mode: str = "nearest") -> Any:
    """Resize the last axes of (n, c, *sizes) to ``size``.

    "nearest" takes element floor(i n / m) for output i of m; "linear" (or "bilinear")
    weighs the two neighbours of (i + 1/2) n / m - 1/2 along each axis.

    >>> interpolate(tensor([[[1.0, 3.0]]]), 4, "linear").tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]
    """
    x = _spatial("interpolate", x, None)
    outputs = per_axis("interpolate", "size", size, x.ndim - 2)
    _check_not_empty("interpolate", x)
    if mode not in ("nearest", "linear", "bilinear"):
        raise ShapeError(
            'interpolate: expected mode "nearest", "linear" or "bilinear", got '
            f"{mode!r}"
        )
    for axis, m in enumerate(outputs, 2):
        n = x.shape[axis]
        if n == m:
            continue
        if mode == "nearest":
            x = take(x, np.arange(m) * n // m, axis)
            continue
        spot = np.clip((np.arange(m) + 0.5) * n / m - 0.5, 0, n - 1)
        low = np.floor(spot).astype(int)
        high = np.minimum(low + 1, n - 1)
        share = (spot - low).astype(x.dtype)
        near, far = [
            _along("interpolate", x, part, axis) for part in (1 - share, share)
        ]
        x = product(near, take(x, low, axis)) + product(far, take(x, high, axis))
    return x
