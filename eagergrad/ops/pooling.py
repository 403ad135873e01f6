"""Pooling: the largest or the mean of each window."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..primitive import beside, flat, fuse, linear, primitive
from ..tensor import to_buffer
from .convolution import (
    Ints,
    Padding,
    check_fits,
    output_sizes,
    pad_pairs,
    per_axis,
    window_numbers,
    window_slices,
)
from .reductions import _floating, is_half


class Window(NamedTuple):
    """What moves over the last axes of (n, c, *sizes)."""

    kernel: Ints
    stride: Ints
    dilation: Ints
    pads: tuple[tuple[int, int], ...]

    def padded(self, sizes: Ints) -> Ints:
        """The sizes with padding."""
        return tuple(b + n + a for (b, a), n in zip(self.pads, sizes, strict=True))

    def outputs(self, sizes: Ints) -> Ints:
        """How many windows there are along each axis."""
        return output_sizes(self.padded(sizes), self.kernel, self.stride, self.dilation)

    def inside(self, sizes: Ints) -> tuple[slice, ...]:
        """Where the array lies in its padding."""
        both = zip(self.pads, sizes, strict=True)
        return (slice(None), slice(None), *(slice(b, b + n) for (b, _), n in both))

    def places(self, outputs: Ints) -> list[tuple[slice, ...]]:
        """For each position in the window, the elements there, for all windows."""
        return [
            window_slices(place, outputs, self.stride, self.dilation)
            for place in np.ndindex(*self.kernel)
        ]


def _surrounded(xp: Any, x: Any, window: Window, value: float) -> Any:
    if not any(map(any, window.pads)):
        return x
    sizes = x.shape[2:]
    full = xp.full((*x.shape[:2], *window.padded(sizes)), value, x.dtype)
    full[window.inside(sizes)] = x
    return full


@primitive(keeps=True)
def _max_pool(xp: Any, x: Any, window: Window) -> Any:
    full = _surrounded(xp, x, window, -math.inf)
    first, *others = window.places(window.outputs(x.shape[2:]))
    y = full[first].copy()
    winner = xp.zeros(y.shape, np.int8 if len(others) < 128 else np.int32)
    for i, place in enumerate(others, 1):
        value = full[place]
        better = (value > y) | (value != value)  # a nan is the largest
        # a choice as arithmetic: masks are slow where they are random
        winner += better.astype(winner.dtype) * (winner.dtype.type(i) - winner)
        xp.maximum(y, value, out=y)
    return y, winner


@_max_pool.vjp
def _max_pool_rule(g: Any, like: Any, window: Window, kept: Any) -> Any:
    return _pool_scatter(g, kept, window, like.shape)


def _scattered(xp: Any, x: Any, winner: Any, window: Window, shape: Ints) -> Any:
    wide = np.float32 if is_half(x) else x.dtype
    full = xp.zeros((*shape[:2], *window.padded(shape[2:])), wide)
    zero = xp.zeros((), x.dtype)
    for i, place in enumerate(window.places(x.shape[2:])):
        full[place] += xp.where(winner == i, x, zero)
    return full[window.inside(shape[2:])].astype(x.dtype, copy=False)


def _gathered(xp: Any, x: Any, winner: Any, window: Window) -> Any:
    full = _surrounded(xp, x, window, 0.0)
    y = xp.zeros(winner.shape, x.dtype)
    for i, place in enumerate(window.places(winner.shape[2:])):
        xp.copyto(y, full[place], where=winner == i)
    return y


_pool_scatter = linear(
    "pool_scatter",
    transpose=lambda g, winner, window: _pool_gather(g, winner, window),
    forward=_scattered,
)
_pool_gather = linear(
    "pool_gather",
    transpose=lambda g, like, winner, window: _pool_scatter(
        g, winner, window, like.shape
    ),
    forward=_gathered,
)


def _averaged(xp: Any, x: Any, window: Window) -> Any:
    wide = x.astype(np.float32) if is_half(x) else x
    full = _surrounded(xp, wide, window, 0.0)
    first, *others = window.places(window.outputs(x.shape[2:]))
    share = 1.0 / math.prod(window.kernel)
    y = full[first] * share
    for place in others:
        y += full[place] * share  # the sum itself may be beyond the range
    return y.astype(x.dtype, copy=False)


def _spread(xp: Any, x: Any, window: Window, shape: Ints) -> Any:
    share = 1.0 / math.prod(window.kernel)
    wide = (x.astype(np.float32) if is_half(x) else x) * share
    full = xp.zeros((*shape[:2], *window.padded(shape[2:])), wide.dtype)
    for place in window.places(x.shape[2:]):
        full[place] += wide
    return full[window.inside(shape[2:])].astype(x.dtype, copy=False)


_avg_pool = linear(
    "avg_pool",
    transpose=lambda g, like, window: _avg_spread(g, window, like.shape),
    forward=_averaged,
)
_avg_spread = linear(
    "avg_spread",
    transpose=lambda g, window: _avg_pool(g, window),
    forward=_spread,
)


# ------------------------------------------------------------------------ as kernels


@functools.lru_cache(256)
def _sizes(shape: Ints, window: Window) -> Any:
    """What kernels/windows.h needs to know."""
    sizes, before = shape[2:], tuple([before for before, _ in window.pads])
    axes = (window.outputs(sizes), window.kernel, window.stride, window.dilation)
    return window_numbers(shape[0] * shape[1], sizes, *axes, before)


def _from_windows(kernel: Any, x: Any, *operands: Any) -> Any:
    """What a kernel makes of x (n, c, *sizes), seen through a window."""
    *winner, window = operands
    if not _serves(x, window):
        return NotImplemented
    shape = (*x.shape[:2], *window.outputs(x.shape[2:]))
    results = [beside(x, shape, dtype) for dtype in (None, np.int8)[: kernel.nout]]
    kernel(*flat(x), *_bytes(*winner), _sizes(x.shape, window), *flat(*results))
    return results[0] if kernel.nout == 1 else tuple(results)


def _to_windows(kernel: Any, g: Any, *operands: Any) -> Any:
    """What a kernel brings back from windows to an array of the shape."""
    *winner, window, shape = operands
    if not _serves(g, window):
        return NotImplemented
    x = beside(g, shape)
    kernel(*flat(g), *_bytes(*winner), _sizes(shape, window), *flat(x))
    return x


def _serves(x: Any, window: Window) -> bool:
    """Whether the axes, and the elements of a window, are as few as kernels take."""
    return x.ndim <= 5 and math.prod(window.kernel) < 128


def _bytes(*winners: Any) -> list[Any]:
    return flat(*(winner.astype(np.int8, copy=False) for winner in winners))


fuse(_max_pool, _from_windows)
fuse(_pool_scatter, _to_windows)
fuse(_pool_gather, _from_windows)
fuse(_avg_pool, _from_windows)
fuse(_avg_spread, _to_windows)


def max_pool(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
) -> Any:
    """The largest of each window of (n, c, *sizes); the first of equal ones counts.

    ``stride`` is the kernel size unless given.  Padding, as in ``conv``, is -inf, and
    no wider than the window, so that none lies in it altogether: ShapeError otherwise.

    >>> max_pool(tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2).tolist()
    [[[3.0, 2.0]]]
    """
    return _largest("max_pool", None, x, kernel_size, stride, padding, dilation)


def _largest(
    name: str, rank: int | None, x: Any, kernel: Any, stride: Any, pad: Any, step: Any
) -> Any:
    x, window = _windowed(name, rank, x, kernel, stride, pad, step)
    return _max_pool(x, window)


def _windowed(
    name: str, rank: int | None, x: Any, kernel: Any, stride: Any, pad: Any, step: Any
) -> tuple[Any, Window]:
    x = _spatial(name, x, rank)
    count, sizes = x.ndim - 2, x.shape[2:]
    kernel = per_axis(name, "kernel_size", kernel, count)
    stride = kernel if stride is None else per_axis(name, "stride", stride, count)
    step = per_axis(name, "dilation", step, count)
    window = Window(
        kernel, stride, step, pad_pairs(name, pad, sizes, kernel, stride, step)
    )
    for (before, after), k, d in zip(window.pads, kernel, step, strict=True):
        if before > d * (k - 1) or after > d * (k - 1):
            raise ShapeError(
                f"{name}: padding {pad} is as wide as a window of {kernel}; give less, "
                "or pad with eg.pad"
            )
    check_fits(name, window.padded(sizes), kernel, stride, step)
    return x, window


def _spatial(name: str, x: Any, rank: int | None) -> Any:
    x = _floating(x)
    if x.ndim < 3 or (rank is not None and x.ndim != rank + 2):
        axes = "at least 3" if rank is None else rank + 2
        raise ShapeError(
            f"{name}: expected (n, channels, *sizes) with {axes} axes, got {x.shape}"
        )
    return x


def avg_pool(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of (n, c, *sizes).

    ``stride`` is the kernel size unless given.  Padding, as in ``conv``, is zeros, and
    counts in the mean unless ``count_include_pad`` is False.

    >>> avg_pool(tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2).tolist()
    [[[2.0, 1.0]]]
    """
    return _mean_of(
        "avg_pool", None, x, kernel_size, stride, padding, count_include_pad
    )


def _mean_of(
    name: str, rank: int | None, x: Any, kernel: Any, stride: Any, pad: Any, all_: bool
) -> Any:
    x, window = _windowed(name, rank, x, kernel, stride, pad, 1)
    y = _avg_pool(x, window)
    if all_ or not any(map(any, window.pads)):
        return y
    ones = np.ones((1, 1, *x.shape[2:]))
    share = np.reciprocal(_averaged(np, ones, window)).astype(x.dtype)
    return y * to_buffer(share, None, x.device, None, name)


def max_pool1d(
    x: Any,
    kernel_size: int,
    stride: int | None = None,
    padding: Padding = 0,
    dilation: int = 1,
) -> Any:
    """The largest of each window of (n, c, l), as ``max_pool``.

    >>> max_pool1d(tensor([[[1.0, 3.0]]]), 2).tolist()
    [[[3.0]]]
    """
    return _largest("max_pool1d", 1, x, kernel_size, stride, padding, dilation)


def max_pool2d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
) -> Any:
    """The largest of each window of (n, c, h, w), as ``max_pool``.

    >>> max_pool2d(tensor([[[[1.0, 3.0], [4.0, 2.0]]]]), 2).tolist()
    [[[[4.0]]]]
    """
    return _largest("max_pool2d", 2, x, kernel_size, stride, padding, dilation)


def max_pool3d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
) -> Any:
    """The largest of each window of (n, c, d, h, w), as ``max_pool``.

    >>> max_pool3d(ones((1, 1, 2, 2, 2)), 2).shape
    (1, 1, 1, 1, 1)
    """
    return _largest("max_pool3d", 3, x, kernel_size, stride, padding, dilation)


def avg_pool1d(
    x: Any,
    kernel_size: int,
    stride: int | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of (n, c, l), as ``avg_pool``.

    >>> avg_pool1d(tensor([[[1.0, 3.0]]]), 2).tolist()
    [[[2.0]]]
    """
    return _mean_of("avg_pool1d", 1, x, kernel_size, stride, padding, count_include_pad)


def avg_pool2d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of (n, c, h, w), as ``avg_pool``.

    >>> avg_pool2d(tensor([[[[1.0, 3.0], [4.0, 0.0]]]]), 2).tolist()
    [[[[2.0]]]]
    """
    return _mean_of("avg_pool2d", 2, x, kernel_size, stride, padding, count_include_pad)


def avg_pool3d(
    x: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of (n, c, d, h, w), as ``avg_pool``.

    >>> avg_pool3d(ones((1, 1, 2, 2, 2)), 2).item()
    1.0
    """
    return _mean_of("avg_pool3d", 3, x, kernel_size, stride, padding, count_include_pad)
