"""Neural ops: softmax and the losses built on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..primitive import operand, primitive
from ..tensor import INEXACT, Tensor
from .elementwise import exp, product
from .reductions import _add_reduce, _floating, _sum, sum
from .shapes import expand_dims


@primitive()
def _softmax(xp: Any, x: Any, axis: int) -> Any:
    e = xp.exp(x - x.max(axis=axis, keepdims=True))
    return e / _add_reduce(xp, e, axis, True)


@_softmax.vjp
def _softmax_rule(g: Any, y: Any, axis: int) -> Any:
    gy = g * y
    return gy - y * _sum(gy, axis, True)


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, without overflow.

    >>> softmax(tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    return _softmax(_floating(x), axis)


@primitive()
def _log_softmax(xp: Any, x: Any, axis: int) -> Any:
    z = x - x.max(axis=axis, keepdims=True)
    return z - xp.log(_add_reduce(xp, xp.exp(z), axis, True))


@_log_softmax.vjp
def _log_softmax_rule(g: Any, y: Any, axis: int) -> Any:
    return g - exp(y) * _sum(g, axis, True)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """x - logsumexp(x) along an axis, without overflow.

    >>> log_softmax(tensor([1000.0, 0.0])).tolist()
    [0.0, -1000.0]
    """
    return _log_softmax(_floating(x), axis)


@primitive()
def _integer_cross_entropy(xp: Any, logits: Any, labels: Any) -> Any:
    z = logits - logits.max(axis=-1, keepdims=True)
    return xp.log(_add_reduce(xp, xp.exp(z), -1, False)) - z[_at(xp, labels)]


@_integer_cross_entropy.vjp
def _integer_cross_entropy_rule(g: Any, logits: Any, labels: Any) -> Any:
    return expand_dims(g, -1) * _softmax_error(logits, labels)


@primitive()
def _softmax_error(xp: Any, x: Any, labels: Any) -> Any:
    """softmax(x) - one_hot(labels)."""
    p = xp.exp(x - x.max(axis=-1, keepdims=True))
    p /= _add_reduce(xp, p, -1, True)
    p[_at(xp, labels)] -= 1
    return p


@_softmax_error.vjp
def _softmax_error_rule(g: Any, x: Any) -> Any:
    return _softmax_rule(g, _softmax(x, -1), -1)  # the one_hot is constant


def _at(xp: Any, labels: Any) -> Any:
    """The index of each example's label among its logits."""
    if labels.ndim == 1:
        return xp.arange(labels.shape[0]), labels
    return (*xp.indices(labels.shape), labels)


def softmax_cross_entropy(logits: Any, labels: Any) -> Any:
    """-sum(p log softmax(logits)) over the last axis: one loss per example.

    (..., c) logits with (...) integer labels p in [0, c), or (..., c) probabilities.
    Integer labels outside [0, c) raise IndexError.

    >>> round(softmax_cross_entropy(tensor([[0.0, 0.0]]), [1]).item(), 4)
    0.6931
    """
    logits = _floating(logits)
    labels = labels if isinstance(labels, Tensor) else operand(labels)
    kind = labels.dtype.kind
    if kind in "iu":
        if labels.shape != logits.shape[:-1]:
            raise ShapeError(
                "softmax_cross_entropy: integer labels have the shape of the logits "
                f"without the last axis: logits are {logits.shape}, labels {labels.shape}"
            )
        return _integer_cross_entropy(logits, _checked(labels._data, logits.shape[-1]))
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
    return -sum(product(labels, log_softmax(logits)), -1)


def _checked(labels: Any, classes: int) -> Any:
    """Refuse labels that NumPy would take as counted from the end.

    On a GPU this check would wait for the device; there the values are taken as given.
    """
    if type(labels) is np.ndarray and labels.size and np.minimum.reduce(labels, None) < 0:
        raise IndexError(
            f"softmax_cross_entropy: labels lie in [0, {classes}), got {labels.min()}"
        )
    return labels

