"""Discrete Fourier transforms: all of numpy.fft, each beside its transpose.

Names, arguments and normalisations are NumPy's.  float16 and float32 give complex64.
The gradient of a real loss by a complex z is dL/dRe + i dL/dIm; that by a real array is
real.  The parts that a real inverse does not read, as the imaginary part of the first
element, have a gradient of 0.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..primitive import linear
from ..tensor import Tensor
from .creation import asarray
from .elementwise import _astype_op, conj
from .indexing import _getitem, _scatter_add
from .reductions import _floating
from .shapes import concatenate

Axes = tuple[int, ...]
Lengths = tuple[int, ...]


def _resized(x: Any, axes: Axes, lengths: Lengths) -> Any:
    """Cut, or padded with zeros, at the end of each axis."""
    shape = list(x.shape)
    for axis, n in zip(axes, lengths, strict=True):
        shape[axis] = n
    if tuple(shape) == x.shape:
        return x
    kept = tuple(slice(min(n, m)) for n, m in zip(shape, x.shape, strict=True))
    return _scatter_add(_getitem(x, kept), kept, tuple(shape))


def _back(g: Any, like: Any, axes: Axes) -> Any:
    """The transpose of ``_resized``, in the dtype of what was resized."""
    g = _resized(g, axes, tuple(like.shape[i] for i in axes))
    return g if like.dtype.itemsize > 2 else _astype_op(g, like.dtype, g.dtype)


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


_fftn = linear(
    "fftn",
    transpose=lambda g, like, s, axes, norm: _back(_fftn(g, s, axes, norm), like, axes),
    forward=lambda xp, x, s, axes, norm: xp.fft.fftn(_wide(x), s, axes, norm),
)
_ifftn = linear(
    "ifftn",
    transpose=lambda g, like, s, axes, norm: _back(
        _ifftn(g, s, axes, norm), like, axes
    ),
    forward=lambda xp, x, s, axes, norm: xp.fft.ifftn(_wide(x), s, axes, norm),
)

# Of a real transform of length n along the last axis, n // 2 + 1 elements are kept;
# each but the first, and the middle one of an even n, stands for two.
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _rfft_rule(g: Any, like: Any, n: int, axis: int, norm: str) -> Any:
    x = _irfft(conj(_shared(g, n, axis, 0.5)), n, axis, _OPPOSITE[norm])
    x = _resized(x, (axis,), (like.shape[axis],))
    return x if x.dtype == like.dtype else _astype_op(x, like.dtype, x.dtype)


def _irfft_rule(g: Any, like: Any, n: int, axis: int, norm: str) -> Any:
    x = _shared(_rfft(g, n, axis, _OPPOSITE[norm]), n, axis, 2.0)
    return _resized(x, (axis,), (like.shape[axis],))


_rfft = linear(
    "rfft",
    transpose=_rfft_rule,
    forward=lambda xp, x, n, axis, norm: xp.fft.rfft(_wide(x), n, axis, norm),
)
_irfft = linear(
    "irfft",
    transpose=_irfft_rule,
    forward=lambda xp, x, n, axis, norm: xp.fft.irfft(_wide(x), n, axis, norm),
)


def _shared(z: Any, n: int, axis: int, factor: float) -> Any:
    """The elements that stand for two, times a factor."""
    last = z.shape[axis] - 1 if n % 2 == 0 else z.shape[axis]
    before = (slice(None),) * axis
    parts = [
        _getitem(z, (*before, slice(0, 1))),
        _getitem(z, (*before, slice(1, last))) * factor,
        _getitem(z, (*before, slice(last, None))),
    ]
    return concatenate([part for part in parts if part.shape[axis]], axis)


# --------------------------------------------------------------- reading the arguments


def _norm(norm: str | None, name: str) -> str:
    if norm is None:
        return "backward"
    if norm not in _OPPOSITE:
        raise ShapeError(
            f"{name}: norm is 'backward', 'ortho' or 'forward', got {norm!r}"
        )
    return norm


def _place(x: Any, axis: int, name: str) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"{name}: axis {axis} is out of range for {x.shape}")
    return axis % int(x.ndim)


def _length(n: int | None, default: int, name: str) -> int:
    n = default if n is None else operator.index(n)
    if n < 1:
        raise ShapeError(f"{name}: expected one point or more to transform, got {n}")
    return n


def _many(
    x: Any, s: Sequence[int] | None, axes: Sequence[int] | None, name: str
) -> tuple[Axes, list[int | None]]:
    """The axes, and for each the length asked for, None for its own."""
    if axes is None:
        axes = range(-x.ndim, 0) if s is None else range(-len(s), 0)
    places = tuple(_place(x, i, name) for i in axes)
    if s is not None and len(s) != len(places):
        raise ShapeError(f"{name}: expected as many lengths as axes, got {s}, {axes}")
    if len({*places}) < len(places) or not places:
        raise ShapeError(f"{name}: expected axes, each once, got {tuple(axes)}")
    return places, [None if n in (None, -1) else n for n in s or (None,) * len(places)]


def _complex(op: Any, x: Any, s: Any, axes: Any, norm: Any, name: str) -> Any:
    x = _floating(x)
    if not x.ndim and axes is None and s is None:
        return x.astype(np.result_type(x.dtype, np.complex64))
    places, lengths = _many(x, s, axes, name)
    sizes = [_length(n, x.shape[i], name) for n, i in zip(lengths, places, strict=True)]
    return op(x, tuple(sizes), places, _norm(norm, name))


def _real_forward(x: Any, n: Any, axis: int, norm: Any, name: str) -> Any:
    x = _floating(x)
    if x.dtype.kind == "c":
        raise DTypeError(
            f"{name}: expected real numbers, got {x.dtype}; use the complex transform, "
            "or eg.real"
        )
    place = _place(x, axis, name)
    return _rfft(x, _length(n, x.shape[place], name), place, _norm(norm, name))


def _real_inverse(x: Any, n: Any, axis: int, norm: Any, name: str) -> Any:
    x = _floating(x)
    place = _place(x, axis, name)
    n = _length(n, 2 * (x.shape[place] - 1), name)
    if x.dtype.kind != "c":
        x = x.astype(np.result_type(x.dtype, np.complex64))
    x = _resized(x, (place,), (n // 2 + 1,))
    return _irfft(x, n, place, _norm(norm, name))


# -------------------------------------------------------------------------- one axis


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The Fourier transform along an axis: y[k] = sum_j a[j] exp(-2 pi i j k / n).

    a is cut or padded with zeros to n elements.  ``norm`` "backward" (or None) divides
    the inverse by n, "forward" this transform, "ortho" both by sqrt(n).

    >>> fft([1.0, 2.0]).tolist()
    [(3+0j), (-1+0j)]
    """
    return _complex(_fftn, a, (n,), (axis,), norm, "fft")


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of ``fft``.

    >>> ifft([3.0, -1.0]).tolist()
    [(1+0j), (2+0j)]
    """
    return _complex(_ifftn, a, (n,), (axis,), norm, "ifft")


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The first n // 2 + 1 elements of ``fft``, for real a; the others mirror them.

    >>> rfft([1.0, 2.0, 3.0]).shape
    (2,)
    """
    return _real_forward(a, n, axis, norm, "rfft")


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of ``rfft``: n real elements, by default 2 (m - 1) from m.

    >>> irfft([3.0, -1.0], 2).tolist()
    [1.0, 2.0]
    """
    return _real_inverse(a, n, axis, norm, "irfft")


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The real transform of a signal that mirrors its first m elements a, conjugated.

    n elements, by default 2 (m - 1).

    >>> hfft([1.0, 2.0], 2).tolist()
    [3.0, -1.0]
    """
    norm = _OPPOSITE[_norm(norm, "hfft")]
    return _real_inverse(_conjugate(a), n, axis, norm, "hfft")


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of ``hfft``: n // 2 + 1 elements from n real ones.

    >>> abs(ihfft([3.0, -1.0])).tolist()
    [1.0, 2.0]
    """
    norm = _OPPOSITE[_norm(norm, "ihfft")]
    return conj(_real_forward(a, n, axis, norm, "ihfft"))


def _conjugate(x: Any) -> Any:
    x = _floating(x)
    return conj(x) if x.dtype.kind == "c" else x


# ------------------------------------------------------------------------ several axes

Shape = Sequence[int] | None


def fftn(a: Any, s: Shape = None, axes: Shape = None, norm: str | None = None) -> Any:
    """``fft`` over several axes: all, or the last of them if s gives their lengths.

    >>> fftn(ones((2, 2))).tolist()
    [[(4+0j), 0j], [0j, 0j]]
    """
    return _complex(_fftn, a, s, axes, norm, "fftn")


def ifftn(a: Any, s: Shape = None, axes: Shape = None, norm: str | None = None) -> Any:
    """The inverse of ``fftn``.

    >>> ifftn(ones((2, 2))).tolist()
    [[(1+0j), 0j], [0j, 0j]]
    """
    return _complex(_ifftn, a, s, axes, norm, "ifftn")


def rfftn(a: Any, s: Shape = None, axes: Shape = None, norm: str | None = None) -> Any:
    """``fftn`` of real a, with the first half along the last of the axes.

    >>> rfftn(ones((2, 4))).shape
    (2, 3)
    """
    a = _floating(a, "rfftn")
    places, lengths = _many(a, s, axes, "rfftn")
    y = _real_forward(a, lengths[-1], places[-1], norm, "rfftn")
    if len(places) == 1:
        return y
    return _complex(_fftn, y, lengths[:-1], places[:-1], norm, "rfftn")


def irfftn(a: Any, s: Shape = None, axes: Shape = None, norm: str | None = None) -> Any:
    """The inverse of ``rfftn``; the last length is by default 2 (m - 1) from m.

    >>> irfftn(ones((2, 3))).shape
    (2, 4)
    """
    a = _floating(a, "irfftn")
    places, lengths = _many(a, s, axes, "irfftn")
    if len(places) > 1:
        a = _complex(_ifftn, a, lengths[:-1], places[:-1], norm, "irfftn")
    return _real_inverse(a, lengths[-1], places[-1], norm, "irfftn")


def fft2(
    a: Any, s: Shape = None, axes: Shape = (-2, -1), norm: str | None = None
) -> Any:
    """``fftn`` over the last two axes.

    >>> fft2(ones((3, 2, 2))).shape
    (3, 2, 2)
    """
    return _complex(_fftn, a, s, axes, norm, "fft2")


def ifft2(
    a: Any, s: Shape = None, axes: Shape = (-2, -1), norm: str | None = None
) -> Any:
    """The inverse of ``fft2``.

    >>> ifft2(ones((3, 2, 2))).shape
    (3, 2, 2)
    """
    return _complex(_ifftn, a, s, axes, norm, "ifft2")


def rfft2(
    a: Any, s: Shape = None, axes: Shape = (-2, -1), norm: str | None = None
) -> Any:
    """``rfftn`` over the last two axes.

    >>> rfft2(ones((2, 4))).shape
    (2, 3)
    """
    return rfftn(a, s, axes, norm)


def irfft2(
    a: Any, s: Shape = None, axes: Shape = (-2, -1), norm: str | None = None
) -> Any:
    """The inverse of ``rfft2``.

    >>> irfft2(ones((2, 3))).shape
    (2, 4)
    """
    return irfftn(a, s, axes, norm)


# ----------------------------------------------------------------------- frequencies


def fftshift(x: Any, axes: Any = None) -> Any:
    """The elements with the zero frequency moved to the middle of the axes.

    >>> fftshift([0.0, 1.0, -1.0]).tolist()
    [-1.0, 0.0, 1.0]
    """
    return _rolled(x, axes, lambda n: n - n // 2, "fftshift")


def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of ``fftshift``.

    >>> ifftshift([-1.0, 0.0, 1.0]).tolist()
    [0.0, 1.0, -1.0]
    """
    return _rolled(x, axes, lambda n: n // 2, "ifftshift")


def _rolled(x: Any, axes: Any, start: Any, name: str) -> Any:
    x = x if isinstance(x, Tensor) else asarray(x)
    axes = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    for axis in (_place(x, i, name) for i in axes):
        cut, before = start(x.shape[axis]), (slice(None),) * axis
        parts = [x[(*before, slice(cut, None))], x[(*before, slice(0, cut))]]
        x = concatenate(parts, axis)
    return x


def fftfreq(n: int, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the elements of ``fft`` for samples at a distance d.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    return asarray(np.fft.fftfreq(n, d), dtype or np.float32, device)


def rfftfreq(n: int, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the elements of ``rfft``.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    return asarray(np.fft.rfftfreq(n, d), dtype or np.float32, device)
