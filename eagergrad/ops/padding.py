"""Padding with NumPy's modes: the edges of an array grown by values of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import operand
from ..tensor import to_buffer
from .elementwise import product, rint
from .indexing import _scatter_add, take
from .reductions import max, mean, min
from .shapes import broadcast_to, concatenate

Widths = list[tuple[int, int]]


def pad(x: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Any:
    """Grow the axes by ``pad_width``: a number, (before, after), or a pair per axis.

    Modes and options are NumPy's: constant (constant_values), edge, reflect and
    symmetric (reflect_type), wrap, linear_ramp (end_values), maximum, minimum, mean and
    median (stat_length), empty (zeros here).  Equal extremes share the gradient.
    Raises ShapeError for an unknown mode or option.

    >>> pad(tensor([1.0, 2.0]), (1, 2)).tolist()
    [0.0, 1.0, 2.0, 0.0, 0.0]
    """
    x = operand(x, "pad")
    known = OPTIONS.get(mode)
    if known is None:
        raise ShapeError(f"pad: expected a mode among {sorted(OPTIONS)}, got {mode!r}")
    if unknown := set(options) - {known}:
        raise ShapeError(f"pad: mode {mode!r} takes no {', '.join(sorted(unknown))}")
    widths = _pairs(pad_width, x.ndim, "pad_width")
    if any(n < 0 for pair in widths for n in pair):
        raise ShapeError(f"pad: expected widths of at least 0, got {pad_width}")
    empty = [n == 0 and pair != (0, 0) for n, pair in zip(x.shape, widths, strict=True)]
    if any(empty) and mode not in ("constant", "empty"):
        raise ShapeError(
            f"pad: mode {mode!r} takes its values from the array, and {x.shape} has "
            f"none along axis {empty.index(True)}; use mode 'constant'"
        )
    option = options.get(known) if known else None
    if mode in ("constant", "empty"):
        return _with_constants(x, widths, 0 if option is None else option)
    if mode in ("edge", "reflect", "symmetric", "wrap") and option != "odd":
        return _by_index(x, widths, mode)
    if mode in ("reflect", "symmetric"):
        return _odd(x, widths, mode)
    if mode == "linear_ramp":
        return _ramps(x, widths, 0 if option is None else option)
    return _statistics(x, widths, mode, option)


OPTIONS = {
    "constant": "constant_values",
    "edge": "",
    "reflect": "reflect_type",
    "symmetric": "reflect_type",
    "wrap": "",
    "linear_ramp": "end_values",
    "maximum": "stat_length",
    "minimum": "stat_length",
    "mean": "stat_length",
    "median": "stat_length",
    "empty": "",
}


def zero_pad(x: Any, widths: Sequence[tuple[int, int]]) -> Any:
    """Zeros around an array: one slice assignment, whose transpose is the slice."""
    if not any(before or after for before, after in widths):
        return x
    inside = tuple(
        slice(before, before + n)
        for (before, _), n in zip(widths, x.shape, strict=True)
    )
    shape = tuple(b + n + a for (b, a), n in zip(widths, x.shape, strict=True))
    return _scatter_add(x, inside, shape)


def _with_constants(x: Any, widths: Widths, values: Any) -> Any:
    padded = zero_pad(x, widths)
    if np.ndim(values) == 0 and values == 0:
        return padded
    zeros = np.broadcast_to(np.zeros((), x.dtype), x.shape)
    frame = np.pad(zeros, widths, constant_values=values)
    return padded + _placed(frame, x)


def _placed(values: Any, like: Any) -> Any:
    """A host array where a tensor lives."""
    return to_buffer(np.ascontiguousarray(values), None, like.device, None, "pad")


def _by_index(x: Any, widths: Widths, mode: str) -> Any:
    for axis, pair in enumerate(widths):
        if pair != (0, 0):
            padded: Any = np.pad(np.arange(x.shape[axis]), pair, mode=mode)  # type: ignore[call-overload]
            x = take(x, padded, axis)
    return x


def _odd(x: Any, widths: Widths, mode: str) -> Any:
    """Reflections through the end points: 2 x[end] - x[mirrored], again and again.

    Each further period of the mirror adds 2 (x[last] - x[first]).
    """
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        if not before and not after:
            continue
        if n == 1 and mode == "reflect":
            x = _by_index(x, [(0, 0)] * axis + [(before, after)], "edge")
            continue
        period = 2 * n - 2 if mode == "reflect" else 2 * n
        place = np.arange(-before, n + after)
        turns = (place + period // 2) // period if mode == "reflect" else None
        if turns is None:
            turns = (place + n) // period
        rest = place - turns * period
        mirrored = rest < 0
        source = np.where(mirrored, -rest - (mode == "symmetric"), rest)
        shape = tuple(len(place) if i == axis else 1 for i in range(x.ndim))
        kind = x.dtype if x.dtype.kind in "fc" else np.dtype(np.int64)
        sign = np.where(mirrored, -1, 1).astype(kind).reshape(shape)
        first = 2 * (mirrored.astype(int) - turns)
        first_factor = first.astype(kind).reshape(shape)
        last_factor = (2 * turns).astype(kind).reshape(shape)
        first_edge, last_edge = take(x, [0], axis), take(x, [n - 1], axis)
        middle = take(x, source, axis) * _placed(sign, x)
        x = middle + _times(first_edge, first_factor) + _times(last_edge, last_factor)
    return x


def _times(x: Any, factor: Any) -> Any:
    return product(_placed(factor, x), x)  # 0 where the factor is, also times inf


def _ramps(x: Any, widths: Widths, values: Any) -> Any:
    ends = _pairs(values, x.ndim, "end_values", float)
    for axis, ((before, after), (low, high)) in enumerate(
        zip(widths, ends, strict=True)
    ):
        pieces: list[Any] = []
        for width, end, at in ((before, low, 0), (after, high, x.shape[axis] - 1)):
            steps = np.arange(width) / (width or 1)
            shape = tuple(width if i == axis else 1 for i in range(x.ndim))
            kind = x.dtype if x.dtype.kind in "fc" else np.dtype(np.float32)
            steps = (steps if at == 0 and not pieces else steps[::-1]).astype(kind)
            edge = take(x, [at], axis)
            ramp = end + (edge - end) * _placed(steps.reshape(shape), x)
            pieces.append(ramp if ramp.dtype == x.dtype else ramp.astype(x.dtype))
        x = concatenate([pieces[0], x, pieces[1]], axis)
    return x


def _statistics(x: Any, widths: Widths, mode: str, length: Any) -> Any:
    lengths: list[tuple[Any, Any]] = [(None, None)] * x.ndim
    if length is not None:
        lengths = _pairs(length, x.ndim, "stat_length")
    for axis, (pair, counts) in enumerate(zip(widths, lengths, strict=True)):
        n = x.shape[axis]
        before_all = (slice(None),) * axis
        pieces = []
        for width, count, at_end in zip(pair, counts, (False, True), strict=True):
            count = n if count is None or count > n else count
            part = slice(n - count, n) if at_end else slice(0, count)
            value = STATISTICS[mode](x[(*before_all, part)], axis)
            if value.dtype != x.dtype:
                value = rint(value) if x.dtype.kind in "iu" else value
                value = value.astype(x.dtype)
            shape = (*x.shape[:axis], width, *x.shape[axis + 1 :])
            pieces.append(broadcast_to(value, shape))
        x = concatenate([pieces[0], x, pieces[1]], axis)
    return x


def _median(x: Any, axis: int) -> Any:
    """The middle of the sorted values, or the mean of the two in the middle."""
    count = x.shape[axis]
    part = (slice(None),) * axis + (slice((count - 1) // 2, count // 2 + 1),)
    with x.device.allocating("pad"):
        xp = x.device.backend.xp
        middle = xp.argsort(x._data, axis=axis)[part]
        grid = [
            xp.arange(n).reshape([-1 if i == j else 1 for j in range(x.ndim)])
            for i, n in enumerate(middle.shape)
        ]
    grid[axis] = middle
    return mean(x[tuple(grid)], axis, True)


STATISTICS: dict[str, Callable[[Any, int], Any]] = {
    "maximum": lambda x, axis: max(x, axis, True),
    "minimum": lambda x, axis: min(x, axis, True),
    "mean": lambda x, axis: mean(x, axis, True),
    "median": _median,
}


def _pairs(
    values: Any, rank: int, name: str, kind: Callable[[Any], Any] = operator.index
) -> list[tuple[Any, Any]]:
    """NumPy's ways to say it: a number, (before, after), or such a pair per axis."""
    if isinstance(values, dict):
        found = [(0, 0)] * rank
        for axis, pair in values.items():
            found[axis] = (pair, pair) if np.ndim(pair) == 0 else pair
        values = found
    try:
        table = np.broadcast_to(np.asarray(values), (rank, 2)).tolist()
        return [(kind(before), kind(after)) for before, after in table]
    except (TypeError, ValueError) as error:
        raise ShapeError(
            f"pad: expected {name} as a number, (before, after) or {rank} such pairs, "
            f"got {values}"
        ) from error
