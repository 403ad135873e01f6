"""Normalization: values with mean 0 and variance 1, over whichever axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..primitive import beside, flat, fuse, on_gpu, primitive
from .elementwise import sqrt
from .reductions import _floating, _mean, is_half, unbroadcast
from .shapes import _axis, reshape

Axes = tuple[int, ...]


@primitive(keeps=True)
def _normalize(
    xp: Any, x: Any, axes: Axes, eps: float, centred: bool, known: Any
) -> Any:
    """(x - mean) / sqrt(var + eps), by what is known of it or else from the start."""
    if known is None:
        y, *parts = _parts(xp, x, axes, eps, centred)
        return y.astype(x.dtype, copy=False), tuple(parts)
    centre, shift, inverse = known
    return (((x - centre) - shift) * inverse).astype(x.dtype, copy=False), known


def _parts(xp: Any, x: Any, axes: Axes, eps: float, centred: bool) -> Any:
    """(x - mean) / sqrt(var + eps), the mean in two parts, and 1 / sqrt(var + eps).

    The second part is the mean of what is left after the first is taken off: its
    rounding, which a small deviation beside a large mean would feel.  Squares beyond
    the range are taken of scaled values.  Half types become float32.
    """
    x = x.astype(np.float32) if is_half(x) else x
    count = math.prod(x.shape[i] for i in axes)
    centre = shift = xp.zeros(_kept(x.shape, axes), x.dtype)
    if not count or not x.size:
        return x.copy(), centre, shift, centre + 1
    if centred:
        # of shares, since the sum may be beyond the range
        centre = (x / count).sum(axis=axes, keepdims=True)
        x = x - centre
        shift = x.mean(axis=axes, keepdims=True)
        x -= shift
    y = x
    square = (y * y).mean(axis=axes, keepdims=True)
    if x.dtype.kind == "f":
        top = xp.maximum(
            x.max(axis=axes, keepdims=True), -x.min(axis=axes, keepdims=True)
        )
        limit = float(np.finfo(x.dtype).max) ** 0.5 / count
        unit = xp.where(top > limit, top, xp.ones((), x.dtype))
        if xp is not np or (top > limit).any():
            y = x / unit
            square = (y * y).mean(axis=axes, keepdims=True)
        inverse = 1 / xp.sqrt(square + eps / unit / unit)
        return y * inverse, centre, shift, inverse / unit
    inverse = 1 / xp.sqrt(square + eps)
    return y * inverse, centre, shift, inverse


def _kept(shape: Sequence[int], axes: Axes) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


@_normalize.vjp
def _normalize_rule(
    g: Any, x: Any, y: Any, axes: Axes, eps: float, centred: bool, kept: Any
) -> Any:
    rest = g - y * _mean(g * y, axes, True)
    if centred:
        rest = rest - _mean(g, axes, True)
    return rest * _inverse_deviation(x, axes, eps, centred, kept)


@primitive()
def _inverse_deviation(
    xp: Any, x: Any, axes: Axes, eps: float, centred: bool, known: Any
) -> Any:
    """1 / sqrt(var + eps), or what is known of it."""
    if known is None:
        known = _parts(xp, x, axes, eps, centred)[1:]
    return known[-1].astype(x.dtype, copy=False)


@_inverse_deviation.vjp
def _inverse_deviation_rule(
    g: Any, x: Any, y: Any, axes: Axes, eps: float, centred: bool
) -> Any:
    # d var = 2 (x - mean) dx / n, and (x - mean) is normalize(x) / y
    count = math.prod([x.shape[i] for i in axes])
    return _normalize(x, axes, eps, centred, None) * (-g * y * y / count)


@primitive(arrays=3, keeps=True)
def _layer_norm(
    xp: Any, x: Any, gamma: Any, beta: Any, eps: float, centred: bool
) -> Any:
    """Rows of x, normalized, times gamma plus beta: rows too, or 1.0 and 0.0."""
    y, *parts = _parts(xp, x, (x.ndim - 1,), eps, centred)
    y = y.astype(x.dtype, copy=False)
    y = y if type(gamma) is float else y * gamma
    y = y if type(beta) is float else y + beta
    return y, tuple([part.reshape(x.shape[:-1]) for part in parts])


@_layer_norm.vjp
def _layer_norm_rule(
    g: Any, x: Any, gamma: Any, like: Any, eps: float, centred: bool, kept: Any
) -> Any:
    axes = (x.ndim - 1,)
    known = tuple([part.reshape((*part.shape, 1)) for part in kept])
    y = _normalize(x, axes, eps, centred, known)
    slope = g if type(gamma) is float else g * gamma
    dx = _normalize_rule(slope, x, y, axes, eps, centred, known)
    # summed here: what the sweep sums is rounded to a half type before
    row = x.shape[-1:]
    return [
        dx,
        None if like[1] is None else unbroadcast(g * y, row),
        None if like[2] is None else unbroadcast(g, row),
    ]


def _layer_norm_kernel(
    rows: Any, x: Any, gamma: Any, beta: Any, eps: float, centred: bool
) -> Any:
    y, *parts = rows(x, _row(gamma, x), _row(beta, x), eps, float(centred))
    return y, tuple(parts)


def _layer_norm_vjp_kernel(
    matrix: Any,
    g: Any,
    x: Any,
    gamma: Any,
    like: Any,
    eps: float,
    centred: bool,
    kept: Any,
) -> Any:
    shape = math.prod(x.shape[:-1]), x.shape[-1]
    parts = [part.reshape(-1) for part in kept]
    dx, *sums = matrix(
        g.reshape(shape), x.reshape(shape), _row(gamma, x), *parts, float(centred)
    )
    return [dx.reshape(x.shape), *sums]


def _row(values: Any, x: Any) -> Any:
    """Values for the last axis of x: those given, or a number, for NumPy as often."""
    if type(values) is not float or on_gpu(x):
        return values
    return np.full(x.shape[-1], values, x.dtype)


fuse(_layer_norm, _layer_norm_kernel, _layer_norm_vjp_kernel)


@primitive(arrays=3, keeps=True)
def _batch_norm(
    xp: Any, x: Any, gamma: Any, beta: Any, eps: float, channel: int
) -> Any:
    """Channels of x, normalized, times gamma plus beta: one of each, or 1.0 and 0.0."""
    axes = _all_but(channel, x)
    shape = _kept(x.shape, axes)
    y, *parts = _parts(xp, x, axes, eps, True)
    y = y.astype(x.dtype, copy=False)
    y = y if type(gamma) is float else y * gamma.reshape(shape)
    y = y if type(beta) is float else y + beta.reshape(shape)
    return y, tuple([part.reshape(-1) for part in parts])


@_batch_norm.vjp
def _batch_norm_rule(
    g: Any, x: Any, gamma: Any, like: Any, eps: float, channel: int, kept: Any
) -> Any:
    axes = _all_but(channel, x)
    shape, row = _kept(x.shape, axes), (x.shape[channel],)
    known = tuple([part.reshape(shape) for part in kept])
    y = _normalize(x, axes, eps, True, known)
    slope = g if type(gamma) is float else g * reshape(gamma, shape)
    dx = _normalize_rule(slope, x, y, axes, eps, True, known)
    return [
        dx,
        None if like[1] is None else reshape(unbroadcast(g * y, shape), row),
        None if like[2] is None else reshape(unbroadcast(g, shape), row),
    ]


def _all_but(channel: int, x: Any) -> Axes:
    return tuple([i for i in range(len(x.shape)) if i != channel])


def _batch_norm_kernel(
    channels: Any, x: Any, gamma: Any, beta: Any, eps: float, channel: int
) -> Any:
    given = _computed(x, x, gamma, beta)
    if given is None or not x.size:
        return NotImplemented
    row = x.shape[channel]
    y, *parts = [beside(given[0], n) for n in (x.shape, *((row,),) * 3)]
    channels(*given, eps, _pieces(x, channel), *flat(y), *parts)
    return y.astype(x.dtype, copy=False), tuple(parts)


def _batch_norm_vjp_kernel(
    channels: Any,
    g: Any,
    x: Any,
    gamma: Any,
    like: Any,
    eps: float,
    channel: int,
    kept: Any,
) -> Any:
    given = _computed(x, g, x, gamma)
    if given is None:
        return NotImplemented
    row = x.shape[channel]
    dx, *sums = [beside(given[0], n) for n in (x.shape, (row,), (row,))]
    channels(*given, *kept, _pieces(x, channel), *flat(dx), *sums)
    return [part.astype(x.dtype, copy=False) for part in (dx, *sums)]


def _computed(x: Any, *arrays: Any) -> list[Any] | None:
    """Arrays, flat, in what x is computed in; empty ones for numbers.

    None where they are not of one dtype.
    """
    if any(type(a) is not float and a.dtype != x.dtype for a in arrays):
        return None
    dtype = np.float32 if is_half(x) else x.dtype
    return [
        beside(x, (0,), dtype)
        if type(a) is float
        else a.astype(dtype, copy=False).ravel()
        for a in arrays
    ]


def _pieces(x: Any, channel: int) -> Any:
    """What kernels/batch.h needs to know: x as (n, c, s)."""
    before, after = x.shape[:channel], x.shape[channel + 1 :]
    return np.array([math.prod(before), x.shape[channel], math.prod(after)])


fuse(_batch_norm, _batch_norm_kernel, _batch_norm_vjp_kernel)


def _rows(
    name: str, x: Any, gamma: Any, beta: Any, axes: Axes, eps: float, centred: bool
) -> Any:
    """Normalize over axes and scale along them; as rows where they are the last."""
    if axes[-1] - axes[0] != len(axes) - 1 or axes[-1] != x.ndim - 1:
        y = _normalize(x, axes, eps, centred, None)
        return _affine(name, y, gamma, beta, axes)
    gamma = 1.0 if gamma is None else _checked(name, "gamma", gamma, x, axes)
    beta = 0.0 if beta is None else _checked(name, "beta", beta, x, axes)
    if len(axes) == 1:
        return _layer_norm(x, gamma, beta, eps, centred)
    shape = x.shape[: axes[0]]
    flat = [
        values if type(values) is float else reshape(values, (values.size,))
        for values in (gamma, beta)
    ]
    rows = reshape(x, (*shape, math.prod(x.shape[axes[0] :])))
    return reshape(_layer_norm(rows, *flat, eps, centred), x.shape)


def layer_norm(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
) -> Any:
    """(x - mean) / sqrt(var + eps) over the given axes, times gamma plus beta.

    gamma and beta have the lengths of those axes: (n, d), (d,), (d,) -> (n, d).  The
    variance is that of deviations, never a difference of squares.

    >>> layer_norm(tensor([[1.0, 3.0]]), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    x = _floating(x, "layer_norm")
    axes = _axes("layer_norm", x, axis)
    return _rows("layer_norm", x, gamma, beta, axes, eps, True)


def rms_norm(
    x: Any, gamma: Any = None, axis: int | Sequence[int] = -1, eps: float = 1e-6
) -> Any:
    """x / sqrt(mean(x^2) + eps) over the given axes, times gamma of their lengths.

    >>> rms_norm(tensor([[3.0, -3.0]]), eps=0.0).tolist()
    [[1.0, -1.0]]
    """
    x = _floating(x, "rms_norm")
    axes = _axes("rms_norm", x, axis)
    return _rows("rms_norm", x, gamma, None, axes, eps, False)


def batch_norm(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    eps: float = 1e-5,
    axis: int = 1,
    mean: Any = None,
    variance: Any = None,
) -> Any:
    """(x - mean) / sqrt(var + eps) for each channel, times gamma plus beta.

    (n, c, *sizes), (c,), (c,) -> (n, c, *sizes), with the channels on ``axis``.  Mean
    and variance are those of x over all other axes, through which gradients flow, or
    the ones given, (c,) each, as for inference.

    >>> batch_norm(tensor([[1.0], [3.0]]), eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    name = "batch_norm"
    x = _floating(x, "batch_norm")
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected (n, channels, *sizes), got {x.shape}")
    channel = _axis(axis, x.ndim, name)
    if (mean is None) != (variance is None):
        raise ShapeError(f"{name}: give both mean and variance, or neither")
    if mean is None:
        gamma = 1.0 if gamma is None else _checked(name, "gamma", gamma, x, (channel,))
        beta = 0.0 if beta is None else _checked(name, "beta", beta, x, (channel,))
        return _batch_norm(x, gamma, beta, eps, channel)
    centre = _matched(name, "mean", mean, x, (channel,))
    spread = _matched(name, "variance", variance, x, (channel,))
    y = (x - centre) / sqrt(spread + eps)
    return _affine(name, y, gamma, beta, (channel,))


def group_norm(
    x: Any, groups: int, gamma: Any = None, beta: Any = None, eps: float = 1e-5
) -> Any:
    """Normalize each sample over its groups of channels, then scale each channel.

    (n, c, *sizes), (c,), (c,) -> (n, c, *sizes); ``groups`` divides c.

    >>> group_norm(tensor([[1.0, 3.0, 5.0, 5.0]]), 2, eps=1e-9).tolist()
    [[-1.0, 1.0, 0.0, 0.0]]
    """
    x = _floating(x, "group_norm")
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            f"group_norm: expected (n, channels, *sizes) with channels divisible by "
            f"groups={groups}, got {x.shape}"
        )
    lengths = (x.shape[1] // groups, *x.shape[2:])
    parts = reshape(x, (x.shape[0], groups, math.prod(lengths)))
    y = reshape(_layer_norm(parts, 1.0, 0.0, eps, True), x.shape)
    return _affine("group_norm", y, gamma, beta, (1,))


def instance_norm(
    x: Any, gamma: Any = None, beta: Any = None, eps: float = 1e-5
) -> Any:
    """Normalize each channel of each sample over its sizes, then scale it.

    (n, c, *sizes), (c,), (c,) -> (n, c, *sizes).

    >>> instance_norm(tensor([[[1.0, 3.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0]]]
    """
    x = _floating(x, "instance_norm")
    if x.ndim < 3:
        raise ShapeError(
            f"instance_norm: expected (n, channels, *sizes), got {x.shape}"
        )
    y = _rows("instance_norm", x, None, None, tuple(range(2, x.ndim)), eps, True)
    return _affine("instance_norm", y, gamma, beta, (1,))


def _axes(name: str, x: Any, axis: int | Sequence[int]) -> Axes:
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    places = sorted({_axis(i, x.ndim, name) for i in axes})
    if len(places) != len(axes) or not axes:
        raise ShapeError(f"{name}: expected different axes, one at least, got {axis}")
    return tuple(places)


def _affine(name: str, y: Any, gamma: Any, beta: Any, axes: Axes) -> Any:
    if gamma is not None:
        y = y * _matched(name, "gamma", gamma, y, axes)
    return y if beta is None else y + _matched(name, "beta", beta, y, axes)


def _matched(name: str, what: str, values: Any, x: Any, axes: Axes) -> Any:
    """Values for some axes, in the shape that lies along those."""
    values = _checked(name, what, values, x, axes)
    return reshape(values, tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))


def _checked(name: str, what: str, values: Any, x: Any, axes: Axes) -> Any:
    values = _floating(values)
    lengths = tuple(x.shape[i] for i in axes)
    if values.shape != lengths:
        raise ShapeError(
            f"{name}: expected {what} of shape {lengths}, got {values.shape}"
        )
    return values
