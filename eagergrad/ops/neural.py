"""Neural ops: softmax and the losses built on it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..device import backend_of
from ..errors import DTypeError, ShapeError
from ..operands import operand
from ..primitive import fuse, primitive
from ..tensor import INEXACT
from .elementwise import exp, maximum, product, where
from .reductions import _floating, _mean, _mean_forward, _sum, _total, is_half, sum
from .shapes import reshape


@primitive()
def _softmax(xp: Any, x: Any, axis: int) -> Any:
    if not x.size:
        return x  # nothing has no largest element
    e = xp.exp(x - x.max(axis=axis, keepdims=True))
    y = e / _total(xp, e, axis, True)
    return y if not is_half(x) else y.astype(x.dtype)


@_softmax.vjp
def _softmax_rule(g: Any, y: Any, axis: int) -> Any:
    gy = g * y
    return gy - y * _sum(gy, axis, True)


fuse(
    _softmax,
    lambda kernel, x, axis: kernel(x, axis=axis),
    lambda kernel, g, y, axis: kernel(g, y, axis=axis),
)


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, without overflow.

    >>> softmax(tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    return _softmax(_floating(x, "softmax"), axis)


@primitive()
def _log_softmax(xp: Any, x: Any, axis: int) -> Any:
    if not x.size:
        return x
    z = x - x.max(axis=axis, keepdims=True)
    y = z - xp.log(_total(xp, xp.exp(z), axis, True))
    return y if not is_half(x) else y.astype(x.dtype)


@_log_softmax.vjp
def _log_softmax_rule(g: Any, y: Any, axis: int) -> Any:
    return g - exp(y) * _sum(g, axis, True)


fuse(
    _log_softmax,
    lambda kernel, x, axis: kernel(x, axis=axis),
    lambda kernel, g, y, axis: kernel(g, y, axis=axis),
)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """x - logsumexp(x) along an axis, without overflow.

    >>> log_softmax(tensor([1000.0, 0.0])).tolist()
    [0.0, -1000.0]
    """
    return _log_softmax(_floating(x, "log_softmax"), axis)


@primitive(keeps=True)
def _integer_cross_entropy(xp: Any, logits: Any, labels: Any, mean: bool) -> Any:
    """The loss of each example, or their mean."""
    # NumPy's reductions are called as the ufuncs' own methods: 1 us less each
    top = _max_reduce(xp, logits)
    z = xp.ascontiguousarray(logits - top)
    target = z.take(_picked(xp, z, labels)).reshape(labels.shape)
    rest = xp.log(_total(xp, xp.exp(z), -1, True))
    y = rest.reshape(labels.shape) - target
    if mean:
        y = _mean_forward(xp, y, None, False)
    kept = top.reshape(labels.shape), rest.reshape(labels.shape)
    return y if not is_half(z) else y.astype(z.dtype), kept


def _picked(xp: Any, logits: Any, labels: Any) -> Any:
    """The places of the labels' logits, counted in row order."""
    return labels.reshape(-1) + xp.arange(0, logits.size, logits.shape[-1])


@_integer_cross_entropy.vjp
def _integer_cross_entropy_rule(
    g: Any, logits: Any, labels: Any, mean: bool, kept: Any
) -> Any:
    g = g / (labels.size or 1) if mean else g
    return g.reshape((*g.shape, 1)) * _softmax_error(logits, labels, kept)


FEW = 4096  # losses of which a kernel makes the mean


def _cross_entropy_kernel(
    rows: Any, average: Any, logits: Any, labels: Any, mean: bool
) -> Any:
    y, top, rest = rows(logits, labels)
    if mean:
        if 0 < y.size <= FEW:
            y = average(y if y.ndim == 1 else y.reshape(-1))
        else:
            y = _mean_forward(backend_of(y).xp, y, None, False)
    return y, (top, rest)


def _cross_entropy_vjp_kernel(
    rows: Any, _: Any, g: Any, logits: Any, labels: Any, mean: bool, kept: Any
) -> Any:
    count = _number((labels.size or 1) if mean else 1)
    return rows(g, logits, labels, count, *kept)


_number = functools.lru_cache(np.array)  # as kernels take integers

fuse(
    _integer_cross_entropy,
    _cross_entropy_kernel,
    _cross_entropy_vjp_kernel,
    ("integer_cross_entropy", "mean"),
)


@primitive()
def _softmax_error(xp: Any, x: Any, labels: Any, parts: Any) -> Any:
    """softmax(x) - one_hot(labels), by the maxima and the logarithms of the sums."""
    top, rest = (part.reshape((*part.shape, 1)) for part in parts)
    p = xp.ascontiguousarray(xp.exp((x - top) - rest))
    picked = _picked(xp, p, labels)
    p.put(picked, p.take(picked) - 1)
    return p if not is_half(x) else p.astype(x.dtype)


@_softmax_error.vjp
def _softmax_error_rule(g: Any, x: Any) -> Any:
    return _softmax_rule(g, _softmax(x, -1), -1)  # the one_hot is constant


def _max_reduce(xp: Any, x: Any) -> Any:
    if xp is np:
        return np.maximum.reduce(x, -1, keepdims=True)
    return x.max(axis=-1, keepdims=True)


def softmax_cross_entropy(
    logits: Any, labels: Any, ignore_label: int | None = None, mean: bool = False
) -> Any:
    """-sum(p log softmax(logits)) over the last axis: one loss per example, or a mean.

    (..., c) logits with (...) integer labels p in [0, c), or (..., c) probabilities.
    Integer labels outside [0, c) raise IndexError.  With ``mean`` the mean of all
    losses; with ``ignore_label`` that of the examples with another label, and 0 if
    there are none.

    >>> round(softmax_cross_entropy(tensor([[0.0, 0.0]]), [1]).item(), 4)
    0.6931
    """
    try:
        x, classes = logits._data, labels._data
    except AttributeError:
        logits = operand(logits, "softmax_cross_entropy")
        labels = operand(labels, "softmax_cross_entropy")
        x, classes = logits._data, labels._data
    kind, shape = classes.dtype.kind, x.shape
    if not shape:
        raise ShapeError(
            "softmax_cross_entropy: logits need an axis of classes, got shape ()"
        )
    if x.dtype.kind in "biu":
        logits = _floating(logits)
    if kind in "iu":
        if classes.shape != shape[:-1]:
            raise ShapeError(
                "softmax_cross_entropy: integer labels have the shape of the logits "
                f"without the last axis: logits are {logits.shape}, labels "
                f"{labels.shape}"
            )
        if ignore_label is not None:
            return _mean_of_others(logits, labels, ignore_label)
        return _integer_cross_entropy(logits, _checked(classes, shape[-1]), mean)
    if ignore_label is not None:
        raise DTypeError(
            "softmax_cross_entropy: ignore_label goes with integer labels, got "
            f"{labels.dtype}"
        )
    if kind not in INEXACT:
        raise DTypeError(
            f"softmax_cross_entropy: expected integer labels or probabilities, got "
            f"{labels.dtype}"
        )
    if labels.shape != logits.shape:
        raise ShapeError(
            "softmax_cross_entropy: probabilities have the shape of the logits: "
            f"logits are {logits.shape}, labels {labels.shape}; for class indices "
            "use an integer dtype"
        )
    losses = -sum(product(labels, log_softmax(logits)), -1)
    return _mean(losses, None, False) if mean else losses


def _mean_of_others(logits: Any, labels: Any, ignored: int) -> Any:
    used = labels != ignored
    # ignored logits too are replaced: what is not finite there must not matter
    logits = where(reshape(used, (*used.shape, 1)), logits, 0.0)
    safe = _checked(where(used, labels, 0)._data, logits.shape[-1])
    losses = _integer_cross_entropy(logits, safe, False)
    count = sum(used.astype(logits.dtype if logits.dtype.itemsize > 2 else np.float32))
    total = sum(where(used, losses, 0.0).astype(count.dtype)) / maximum(count, 1.0)
    return total if total.dtype == logits.dtype else total.astype(logits.dtype)


def _checked(labels: Any, classes: int, name: str = "softmax_cross_entropy") -> Any:
    """Refuse labels outside [0, classes): read as unsigned, the negative ones are huge.

    On a GPU this check would wait for the device; there the values are taken as given.
    """
    if labels.dtype is not _INT64:  # int8 would wrap around in uint8
        labels = labels.astype(_INT64)
    if type(labels) is np.ndarray and labels.size:
        # of few labels the place of the largest is found in a quarter of the time that
        # its value takes, and one is read sooner than that
        if labels.size == 1:
            largest = labels.item()
        else:
            unsigned = labels.view(np.uint64)
            largest = unsigned.item(unsigned.argmax())
        if not 0 <= largest < classes:
            wrong = labels[(labels < 0) | (labels >= classes)][0]
            raise IndexError(f"{name}: labels lie in [0, {classes}), got {wrong}")
    return labels


_INT64 = np.dtype(np.int64)
