"""Convolution: patches seen through strides, times the filters, in one product.

Three ops close under transposition: ``conv`` (input, filter -> output), ``conv_input``
(output, filter -> input) and ``conv_filter`` (input, output -> filter) are the three
ways to read one trilinear form.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..primitive import ByBuffer, beside, bilinear, flat, fuse, kernel
from .linalg import matrix_product
from .padding import zero_pad
from .reductions import _floating, is_half

Ints = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]  # zeros (before, after) each axis
Padding = int | str | Sequence[Any]


def patches(
    xp: Any, x: Any, kernel: Ints, stride: Ints, dilation: Ints, outputs: Ints
) -> Any:
    """A view (n, c, *kernel, *outputs) of the elements under each filter position."""
    steps = x.strides[2:]
    return xp.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:2], *kernel, *outputs),
        (
            *x.strides[:2],
            *(s * d for s, d in zip(steps, dilation, strict=True)),
            *(s * t for s, t in zip(steps, stride, strict=True)),
        ),
    )


def output_sizes(sizes: Ints, kernel: Ints, stride: Ints, dilation: Ints) -> Ints:
    """How often a filter fits along each axis."""
    return tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True)
    )


def _inside(sizes: Ints, pads: Pads) -> tuple[slice, ...]:
    """Where an array lies among the zeros around it."""
    along = (slice(b, b + n) for (b, _), n in zip(pads, sizes, strict=True))
    return (slice(None), slice(None), *along)


def _around(sizes: Ints, pads: Pads) -> Ints:
    """The sizes with the zeros."""
    return tuple(b + n + a for (b, a), n in zip(pads, sizes, strict=True))


def _padded(xp: Any, x: Any, pads: Pads) -> Any:
    if not any(map(any, pads)):
        return x
    out = xp.zeros((*x.shape[:2], *_around(x.shape[2:], pads)), x.dtype)
    out[_inside(x.shape[2:], pads)] = x
    return out


def _conv_forward(
    xp: Any, a: Any, b: Any, stride: Ints, dilation: Ints, groups: int, pads: Pads
) -> Any:
    n, c = a.shape[:2]
    filters, kernel = b.shape[0], b.shape[2:]
    out = output_sizes(_around(a.shape[2:], pads), kernel, stride, dilation)
    a, b, dtype = _widened(a, b)
    rows = c // groups * math.prod(kernel)
    columns = _unfolded(a, kernel, out, stride, dilation, pads, 1)
    if columns is None:
        columns = patches(xp, _padded(xp, a, pads), kernel, stride, dilation, out)
    columns = columns.reshape(n, groups, rows, math.prod(out))
    weights = b.reshape(groups, filters // groups, rows)
    y = matrix_product(xp, weights, columns).reshape(n, filters, *out)
    return y.astype(dtype, copy=False)


def _input_forward(
    xp: Any,
    a: Any,
    b: Any,
    sizes: Ints,
    stride: Ints,
    dilation: Ints,
    groups: int,
    pads: Pads,
) -> Any:
    n, filters, *out = a.shape
    c, kernel = b.shape[1] * groups, b.shape[2:]
    a, b, dtype = _widened(a, b)
    rows = b.shape[1] * math.prod(kernel)
    weights = b.reshape(groups, filters // groups, rows).swapaxes(1, 2)
    outputs = a.reshape(n, groups, filters // groups, math.prod(out))
    columns = matrix_product(xp, weights, outputs)
    x = _folded(columns, (n, c, *sizes), kernel, tuple(out), stride, dilation, pads)
    if x is not None:
        return x.astype(dtype, copy=False)
    columns = columns.reshape(n, c, *kernel, *out)
    x = xp.zeros((n, c, *_around(sizes, pads)), columns.dtype)
    for place in np.ndindex(*kernel):
        spots = window_slices(place, out, stride, dilation)
        x[spots] += columns[(slice(None), slice(None), *place)]
    if any(map(any, pads)):
        x = xp.ascontiguousarray(x[_inside(sizes, pads)])
    return x.astype(dtype, copy=False)


def _on_gpus(name: str) -> ByBuffer:
    return ByBuffer(lambda backend: kernel(name, backend) if backend.driver else None)


_UNFOLD, _FOLD = _on_gpus("unfold"), _on_gpus("fold")


def _unfolded(
    x: Any,
    kernel: Ints,
    outputs: Ints,
    stride: Ints,
    dilation: Ints,
    pads: Pads,
    samples: int,
) -> Any:
    """The columns (c, *kernel, samples, *outputs) of an image, flat, made on a GPU.

    With 1 for samples they are (n, c, *kernel, *outputs).  None where no kernel makes
    them, or where they are the image as it lies.
    """
    unfold, sizes = _UNFOLD[type(x)], x.shape[2:]
    if unfold is None or len(kernel) > 3 or not x.size:
        return None
    one = 1 in (math.prod(kernel), math.prod(outputs))
    if one and sizes in (kernel, outputs) and not any(map(any, pads)):
        return None
    planes, before = math.prod(x.shape[:2]), tuple([b for b, _ in pads])
    axes = sizes, outputs, kernel, stride, dilation, before
    columns = beside(x, (planes * math.prod(kernel) * math.prod(outputs),))
    try:
        unfold(*flat(x), np.append(window_numbers(planes, *axes), samples), columns)
    except TypeError:  # a dtype that no kernel serves
        return None
    return columns


def _folded(
    columns: Any,
    shape: Ints,
    kernel: Ints,
    outputs: Ints,
    stride: Ints,
    dilation: Ints,
    pads: Pads,
) -> Any:
    """The image that columns add up to, on a GPU; None where no kernel makes it."""
    fold = _FOLD[type(columns)]
    if fold is None or len(kernel) > 3 or not columns.size:
        return None
    (n, c, *sizes), before = shape, tuple([b for b, _ in pads])
    axes = tuple(sizes), outputs, kernel, stride, dilation, before
    x = beside(columns, shape)
    try:
        fold(*flat(columns), window_numbers(n * c, *axes), *flat(x))
    except TypeError:  # a dtype that no kernel serves
        return None
    return x


def window_numbers(planes: int, *axes: Ints) -> Any:
    """What kernels/windows.h needs to know: planes, then six numbers for each axis.

    Those are size, outputs, kernel, stride, dilation, padding before.
    """
    found = [planes, *(1, 1, 1, 1, 1, 0) * (3 - len(axes[0]))]
    return np.array(found + [n for axis in zip(*axes, strict=True) for n in axis])


def window_slices(
    place: Ints, outputs: Sequence[int], stride: Ints, dilation: Ints
) -> tuple[slice, ...]:
    """Where one position of the filter lies, for all outputs at once."""
    return (
        slice(None),
        slice(None),
        *(
            slice(i * d, i * d + s * (m - 1) + 1 if m else i * d, s)
            for i, m, s, d in zip(place, outputs, stride, dilation, strict=True)
        ),
    )


def _filter_forward(
    xp: Any,
    a: Any,
    b: Any,
    kernel: Ints,
    stride: Ints,
    dilation: Ints,
    groups: int,
    pads: Pads,
) -> Any:
    n, c = a.shape[:2]
    filters, out = b.shape[1], b.shape[2:]
    a, b, dtype = _widened(a, b)
    rows, places = c // groups * math.prod(kernel), n * math.prod(out)
    # samples beside places: one product sums over both
    columns = _unfolded(a, kernel, out, stride, dilation, pads, n)
    if columns is None:
        columns = patches(xp, _padded(xp, a, pads), kernel, stride, dilation, out)
        columns = xp.moveaxis(columns, 0, 1 + len(kernel))
    columns = columns.reshape(groups, rows, places)
    outputs = xp.moveaxis(b, 0, 1).reshape(groups, filters // groups, places)
    w = matrix_product(xp, outputs, columns.swapaxes(1, 2))
    return w.reshape(filters, c // groups, *kernel).astype(dtype, copy=False)


def _widened(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Half types in float32: NumPy would add them up as they are."""
    dtype = np.result_type(a, b) if a.dtype != b.dtype else a.dtype
    if is_half(a) or is_half(b):
        wide = np.result_type(np.float32, dtype) if dtype.kind == "f" else np.float32
        return a.astype(wide), b.astype(wide), dtype
    return a, b, dtype


_conv = bilinear(
    "conv",
    transpose=(
        lambda g, b, like, stride, dilation, groups, pads: _conv_input(
            g, b, like.shape[2:], stride, dilation, groups, pads
        ),
        lambda g, a, like, stride, dilation, groups, pads: _conv_filter(
            a, g, like.shape[2:], stride, dilation, groups, pads
        ),
    ),
    forward=_conv_forward,
)
_conv_input = bilinear(
    "conv_input",
    transpose=(
        lambda g, b, stride, dilation, groups, pads: _conv(
            g, b, stride, dilation, groups, pads
        ),
        lambda g, a, like, stride, dilation, groups, pads: _conv_filter(
            g, a, like.shape[2:], stride, dilation, groups, pads
        ),
    ),
    forward=_input_forward,
)
_conv_filter = bilinear(
    "conv_filter",
    transpose=(
        lambda g, b, like, stride, dilation, groups, pads: _conv_input(
            b, g, like.shape[2:], stride, dilation, groups, pads
        ),
        lambda g, a, stride, dilation, groups, pads: _conv(
            a, g, stride, dilation, groups, pads
        ),
    ),
    forward=_filter_forward,
)


# ------------------------------------------------------------------------ as kernels

# Numbers up to which a thread's share of the work stays in its cache, and the kernels
# are faster than the copy and the library's product.
WEIGHTS, COLUMNS = 1 << 17, 1 << 19


@functools.lru_cache(256)
def _tables(
    x: Ints,
    w: Ints,
    out: Ints,
    stride: Ints,
    dilation: Ints,
    groups: int,
    pads: Pads,
    joined: bool = True,
) -> tuple[Any, ...] | None:
    """How kernels/convolution.h finds what a filter covers; None where it is too much.

    The offsets of the filter's elements, those of runs of output places, and those of
    the image's own lines among the zeros around it; and the sizes.  Where it is not
    much, what lies between the lines of an image is ``joined`` to them.
    """
    (n, c, *inner), kernel = x, w[2:]
    columns = math.prod(out) * max(math.prod(w[1:]), w[0] // groups)
    if 0 in (*x, *w) or math.prod(w) > WEIGHTS or columns > COLUMNS:
        return None
    lengths, channels = _around(tuple(inner), pads), c // groups
    steps = [math.prod(lengths[i + 1 :]) for i in range(len(lengths))]
    across = [s * d for s, d in zip(steps, dilation, strict=True)]
    along = [s * t for s, t in zip(steps, stride, strict=True)]
    plane = math.prod(lengths)
    rows = _offsets((channels, *kernel), (plane, *across))
    length, lines, width = out[-1], 1, out[-1]
    joined = joined and stride[-2:] == (1, 1) and 2 * lengths[-1] <= 3 * length
    if joined:
        lines, width = out[-2], lengths[-1]
    fixed = len(out) - 1 - joined
    starts = _offsets(out[:fixed], along[:fixed])
    own, line = np.zeros(1, np.int64), channels * plane  # all of the image is one line
    if any(map(any, pads)):
        before = sum(b * s for (b, _), s in zip(pads, steps, strict=True))
        own = before + _offsets((channels, *inner[:-1]), (plane, *steps[:-1]))
        line = inner[-1]
    sizes = [n, groups, stride[-1], lines, width, length, channels, plane, line]
    return rows, starts, own, np.array(sizes)


def _offsets(lengths: Sequence[int], steps: Sequence[int]) -> Any:
    places = np.indices(lengths).reshape(len(lengths), math.prod(lengths))
    return np.array(steps, np.int64) @ places


def _conv_kernel(
    kernel: Any, a: Any, b: Any, stride: Ints, dilation: Ints, groups: int, pads: Pads
) -> Any:
    out = output_sizes(_around(a.shape[2:], pads), b.shape[2:], stride, dilation)
    tables = _tables(a.shape, b.shape, out, stride, dilation, groups, pads)
    if tables is None:
        return NotImplemented
    a, b, dtype = _widened(a, b)
    y = np.empty((a.shape[0], b.shape[0], *out), a.dtype)
    kernel(*flat(a, b), *tables, *flat(y))
    return y.astype(dtype, copy=False)


def _input_kernel(
    kernel: Any,
    a: Any,
    b: Any,
    sizes: Ints,
    stride: Ints,
    dilation: Ints,
    groups: int,
    pads: Pads,
) -> Any:
    shape = (a.shape[0], b.shape[1] * groups, *sizes)
    finite = bool(np.isfinite(b).all())  # else 0 w is nan between the lines
    tables = _tables(
        shape, b.shape, a.shape[2:], stride, dilation, groups, pads, finite
    )
    if tables is None:
        return NotImplemented
    a, b, dtype = _widened(a, b)
    x = np.empty(shape, a.dtype)
    kernel(*flat(a, b), *tables, *flat(x))
    return x.astype(dtype, copy=False)


def _filter_kernel(
    kernel: Any,
    a: Any,
    b: Any,
    sizes: Ints,
    stride: Ints,
    dilation: Ints,
    groups: int,
    pads: Pads,
) -> Any:
    (n, c), filters = a.shape[:2], b.shape[1]
    shape = (filters, c // groups, *sizes)
    tables = _tables(a.shape, shape, b.shape[2:], stride, dilation, groups, pads, False)
    if tables is None or filters // groups < 8:  # most of a tile would be empty
        return NotImplemented
    a, b, dtype = _widened(a, b)
    each = (groups, *shape[1:], filters // groups)
    shares = np.empty((min(n, 16), *each), a.dtype)
    kernel(*flat(a, b), *tables, *flat(shares))
    w = np.moveaxis(np.add.reduce(shares, 0), -1, 1)
    return w.reshape(shape).astype(dtype, copy=False)


fuse(_conv, _conv_kernel)
fuse(_conv_input, _input_kernel)
fuse(_conv_filter, _filter_kernel)


def conv(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Convolve without flipping: (n, c, *sizes), (f, c / groups, *kernel) -> (n, f, *).

    ``padding`` is a number of zeros, one number or (before, after) per axis, "valid"
    (none) or "same": ceil(size / stride) outputs, the odd zero at the end, as in
    TensorFlow.  ``groups=c`` convolves each channel apart.  ShapeError where sizes,
    channels or groups do not fit.

    >>> conv(ones((1, 1, 3)), ones((1, 1, 2))).tolist()
    [[[2.0, 2.0]]]
    """
    return _convolved("conv", x, w, None, stride, padding, dilation, groups)


def _convolved(
    name: str,
    x: Any,
    w: Any,
    rank: int | None,
    stride: Any,
    padding: Padding,
    dilation: Any,
    groups: int,
) -> Any:
    x, w = _floating(x), _floating(w)
    _check_ranks(name, x, w, rank)
    count = x.ndim - 2
    channels = x.shape[1]
    if groups < 1 or channels != w.shape[1] * groups or w.shape[0] % groups:
        raise ShapeError(
            f"{name}: expected a filter (f, channels / groups, ...) with f divisible "
            f"by groups={groups}: the input is {x.shape}, the filter {w.shape}"
        )
    stride = per_axis(name, "stride", stride, count)
    dilation = per_axis(name, "dilation", dilation, count)
    kernel = w.shape[2:]
    pads = pad_pairs(name, padding, x.shape[2:], kernel, stride, dilation)
    check_fits(name, _around(x.shape[2:], pads), kernel, stride, dilation)
    return _conv(x, w, stride, dilation, groups, pads)


def _check_ranks(name: str, x: Any, w: Any, rank: int | None) -> None:
    if x.ndim < 3 or x.ndim != w.ndim or (rank is not None and x.ndim != rank + 2):
        form = "(n, channels, *sizes)" if rank is None else f"{rank + 2} axes"
        raise ShapeError(
            f"{name}: expected {form} for the input and as many axes for the filter, "
            f"got {x.shape} and {w.shape}"
        )


def per_axis(name: str, what: str, value: Any, count: int) -> Ints:
    """One whole number of at least 1 for each axis."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * count
    if len(values) != count or any(operator.index(n) < 1 for n in values):
        raise ShapeError(
            f"{name}: expected {what} as one number of at least 1, or {count} of them, "
            f"got {value}"
        )
    return values


def pad_pairs(
    name: str, padding: Any, sizes: Ints, kernel: Ints, stride: Ints, dilation: Ints
) -> Pads:
    """The zeros (before, after) each axis."""
    count = len(sizes)
    if padding == "valid":
        return ((0, 0),) * count
    if padding == "same":
        found = []
        for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
            total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            found.append((total // 2, total - total // 2))
        return tuple(found)
    listed = padding if isinstance(padding, Sequence) else (padding,) * count
    try:
        pairs = tuple(
            (operator.index(p[0]), operator.index(p[1]))
            if isinstance(p, Sequence)
            else (operator.index(p), operator.index(p))
            for p in listed
        )
    except (TypeError, IndexError):
        pairs = ()
    if isinstance(padding, str) or len(pairs) != count or min(min(pairs)) < 0:
        raise ShapeError(
            f'{name}: expected padding "same", "valid", a number of at least 0, or one '
            f"number or (before, after) for each of {count} axes, got {padding!r}"
        )
    return pairs


def check_fits(
    name: str, sizes: Ints, kernel: Ints, stride: Ints, dilation: Ints
) -> None:
    """Raise where a window is larger than what it moves over."""
    if min(kernel) < 1 or min(output_sizes(sizes, kernel, stride, dilation)) < 1:
        raise ShapeError(
            f"{name}: a window of {kernel} with dilation {dilation} does not fit into "
            f"{sizes}, padding included; give more padding or a smaller window"
        )


def conv1d(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Convolve along one axis, as ``conv``: (n, c, l), (f, c / groups, k) -> (n, f, m).

    >>> conv1d(ones((1, 1, 3)), ones((1, 1, 3)), padding=1).tolist()
    [[[2.0, 3.0, 2.0]]]
    """
    return _convolved("conv1d", x, w, 1, stride, padding, dilation, groups)


def conv2d(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Convolve images, as ``conv``: (n, c, h, w), (f, c / groups, kh, kw).

    >>> conv2d(ones((1, 1, 2, 2)), ones((1, 1, 2, 2))).tolist()
    [[[[4.0]]]]
    """
    return _convolved("conv2d", x, w, 2, stride, padding, dilation, groups)


def conv3d(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Convolve volumes, as ``conv``: (n, c, d, h, w), (f, c / groups, kd, kh, kw).

    >>> conv3d(ones((1, 1, 2, 2, 2)), ones((1, 1, 2, 2, 2))).item()
    8.0
    """
    return _convolved("conv3d", x, w, 3, stride, padding, dilation, groups)


def depthwise_conv2d(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
) -> Any:
    """Convolve each channel apart: (n, c, h, w), (c * m, 1, kh, kw) -> (n, c * m, ...).

    >>> depthwise_conv2d(ones((1, 2, 2, 2)), ones((2, 1, 2, 2))).shape
    (1, 2, 1, 1)
    """
    x = _floating(x, "depthwise_conv2d")
    groups = x.shape[1] if x.ndim > 1 else 1
    return _convolved("depthwise_conv2d", x, w, 2, stride, padding, dilation, groups)


def conv_transpose(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """The transpose of ``conv``: (n, c, *), (c, f / groups, *kernel) -> (n, f, *).

    A size n becomes (n - 1) stride + dilation (k - 1) + 1 - 2 padding +
    output_padding.  ShapeError where channels or groups do not fit.

    >>> conv_transpose(ones((1, 1, 2)), ones((1, 1, 2)), stride=2).tolist()
    [[[1.0, 1.0, 1.0, 1.0]]]
    """
    name = "conv_transpose"
    x, w = _floating(x, "conv_transpose"), _floating(w, "conv_transpose")
    _check_ranks(name, x, w, None)
    count = x.ndim - 2
    if groups < 1 or x.shape[1] != w.shape[0] or x.shape[1] % groups:
        raise ShapeError(
            f"{name}: expected a filter (channels, f / groups, ...) with channels "
            f"divisible by groups={groups}: the input is {x.shape}, the filter "
            f"{w.shape}"
        )
    stride = per_axis(name, "stride", stride, count)
    dilation = per_axis(name, "dilation", dilation, count)
    kernel = w.shape[2:]
    pads = pad_pairs(name, padding, x.shape[2:], kernel, stride, dilation)
    extra = pad_pairs(name, output_padding, x.shape[2:], kernel, stride, dilation)
    sizes = tuple(
        (n - 1) * s + d * (k - 1) + 1
        for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    )
    y = _conv_input(x, w, sizes, stride, dilation, groups, ((0, 0),) * count)
    grown = [(0, more) for _, more in extra]
    y = zero_pad(y, [(0, 0), (0, 0), *grown])
    kept = tuple(
        slice(before, n - after)
        for (before, after), n in zip(pads, y.shape[2:], strict=True)
    )
    if any(part.stop <= part.start for part in kept):
        raise ShapeError(f"{name}: padding {padding} leaves nothing of {sizes}")
    return y if not any(map(sum, pads)) else y[(slice(None), slice(None), *kept)]


__all__ = ["conv", "conv1d", "conv2d", "conv3d", "conv_transpose", "depthwise_conv2d"]
