"""Losses, without overflow and without cancellation at either end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..device import backend_of
from ..errors import ShapeError
from ..operands import operand, refuse_complex
from ..primitive import elementwise
from ..tensor import Tensor
from .clipping import _unit
from .elementwise import (
    absolute,
    clip,
    log,
    maximum,
    product,
    sigmoid,
    sqrt,
    square,
    stop_gradient,
    where,
)
from .indexing import getitem
from .joining import unstack
from .neural import _checked, softmax_cross_entropy
from .reductions import Axis, _floating, logsumexp, max, mean, sum
from .shapes import concatenate, reshape, stack


def _sigmoid_loss_forward(xp: Any, a: Any, b: Any) -> Any:
    refuse_complex("sigmoid_cross_entropy", a, b)
    # (1 - b) softplus(a) + b softplus(-a), where both softplus share log1p(exp(-|a|))
    size = xp.abs(a)
    weight = xp.where(a > 0, 1 - b, b)
    linear = xp.where(weight == 0, xp.zeros((), a.dtype), weight * size)
    return linear + xp.log1p(xp.exp(-size))


_sigmoid_loss = elementwise(
    "sigmoid_loss",
    d=(
        # sigmoid(a) - b, without cancellation where both are 1
        lambda g, a, b: g * ((1.0 - b) * sigmoid(a) - b * sigmoid(-a)),
        lambda g, a: -product(g, a),
    ),
    forward=_sigmoid_loss_forward,
)


def sigmoid_cross_entropy(logits: Any, labels: Any) -> Any:
    """-p log(s) - (1 - p) log(1 - s) with s = sigmoid(logits): one loss per element.

    Labels p lie in [0, 1] and have the shape of the logits: ShapeError otherwise.

    >>> sigmoid_cross_entropy(tensor([1000.0, -1000.0]), [1.0, 1.0]).tolist()
    [0.0, 1000.0]
    """
    return _sigmoid_loss(*_alike("sigmoid_cross_entropy", logits, labels))


def sigmoid_cross_entropy_with_logits(*, labels: Any, logits: Any) -> Any:
    """``sigmoid_cross_entropy`` in TensorFlow's form, by keywords.

    >>> sigmoid_cross_entropy_with_logits(labels=[1.0], logits=[1000.0]).tolist()
    [0.0]
    """
    return sigmoid_cross_entropy(logits, labels)


def softmax_cross_entropy_with_logits(*, labels: Any, logits: Any) -> Any:
    """``softmax_cross_entropy`` in TensorFlow's form, by keywords.

    >>> logits = tensor([[0.0, 0.0]])
    >>> loss = softmax_cross_entropy_with_logits(labels=[[0.0, 1.0]], logits=logits)
    >>> round(loss.item(), 4)
    0.6931
    """
    return softmax_cross_entropy(logits, labels)


def mse(predictions: Any, targets: Any, axis: Axis = None) -> Any:
    """The mean of (prediction - target)^2, over all elements or some axes.

    Both have one shape, or one is a number: ShapeError otherwise, nothing is broadcast.

    >>> mse(tensor([1.0, 3.0]), tensor([1.0, 1.0])).item()
    2.0
    """
    a, b = _alike("mse", predictions, targets)
    return mean(square(a - b), axis)


def mae(predictions: Any, targets: Any, axis: Axis = None) -> Any:
    """The mean of |prediction - target|, over all elements or some axes.

    The derivative where they are equal is 0.  ShapeError unless both have one shape.

    >>> mae(tensor([1.0, 3.0]), tensor([1.0, 1.0])).item()
    1.0
    """
    a, b = _alike("mae", predictions, targets)
    return mean(absolute(a - b), axis)


def huber(predictions: Any, targets: Any, delta: float = 1.0, axis: Axis = None) -> Any:
    """The mean of r^2 / 2 for |r| <= delta, else delta (|r| - delta / 2); r = a - b.

    ShapeError unless both have one shape.

    >>> huber(tensor([0.5, 3.0]), tensor([0.0, 0.0])).item()
    1.3125
    """
    if not delta > 0:
        raise ShapeError(f"huber: expected delta above 0, got {delta}")
    a, b = _alike("huber", predictions, targets)
    r = a - b
    limited = clip(r, -delta, delta)
    return mean(limited * (r - 0.5 * limited), axis)


def hinge(predictions: Any, targets: Any, axis: Axis = None) -> Any:
    """The mean of max(0, 1 - target * prediction), targets being -1 or 1.

    ShapeError unless both have one shape.

    >>> hinge(tensor([0.5, 3.0]), [1, 1]).item()
    0.25
    """
    a, b = _alike("hinge", predictions, targets)
    return mean(maximum(0.0, 1.0 - a * b), axis)


def kl_div(p: Any, q: Any, axis: Axis = -1) -> Any:
    """sum(p log(p / q)) along an axis: how far q is from p, both probabilities.

    A p of 0 adds 0, with derivative 0 for p and q; a q of 0 under a positive p makes it
    infinite.  ShapeError unless both have one shape.

    >>> round(kl_div(tensor([0.0, 1.0]), tensor([0.5, 0.5])).item(), 4)
    0.6931
    """
    a, b = _alike("kl_div", p, q)
    some = a > 0
    a, b = where(some, a, 1.0), where(some, b, 1.0)
    return sum(a * (log(a) - log(b)), axis)


def nll(log_probs: Any, labels: Any) -> Any:
    """-log_probs[label] along the last axis: (..., c), (...) -> (...).

    Labels are integers in [0, c): IndexError for others.

    >>> nll(tensor([[-1.0, -2.0]]), [1]).tolist()
    [2.0]
    """
    x = _floating(log_probs, "nll")
    labels = operand(labels, "nll")
    if labels.dtype.kind not in "iu" or not x.ndim or labels.shape != x.shape[:-1]:
        raise ShapeError(
            "nll: expected integer labels of the shape of log_probs without the last "
            f"axis: log_probs are {x.shape}, labels {labels.shape} {labels.dtype}"
        )
    classes = x.shape[-1]
    with labels.device.allocating("nll"):
        index = _checked(labels._data, classes, "nll").reshape(-1)
        index = index + backend_of(index).xp.arange(index.size) * classes
    return -reshape(getitem(reshape(x, -1), index), labels.shape)


def cosine_similarity(a: Any, b: Any, axis: int = -1) -> Any:
    """a . b / (|a| |b|) along an axis, of arrays that broadcast.

    0 with derivative 0 where a vector is 0; lengths beyond the range of the dtype, or
    below it, do not matter.

    >>> round(cosine_similarity(tensor([3.0, 4.0]), tensor([4.0, 3.0])).item(), 4)
    0.96
    """
    return sum(_direction(a, axis) * _direction(b, axis), axis)


def _direction(x: Any, axis: int) -> Any:
    x = _floating(x)
    if not x.size:
        return x
    x = x / _unit(max(absolute(stop_gradient(x)), axis, True))
    total = sum(square(x), axis, True)
    return x / sqrt(where(total == 0, math.inf, total))


def ctc_loss(
    log_probs: Any,
    labels: Any,
    logit_lengths: Any = None,
    label_lengths: Any = None,
    blank: int = 0,
) -> Any:
    """-log of the probability of a labelling, over all its alignments.

    (n, t, c) log-probabilities, (n, l) integer labels -> (n,): A. Graves et al.,
    "Connectionist temporal classification", ICML 2006.  The lengths, (n,) each, say how
    much of a sample counts.  inf, with gradient 0, where none fits.

    >>> probs = tensor([[[0.5, 0.5], [0.5, 0.5]]])
    >>> round(ctc_loss(log(probs), [[1]]).item(), 4)
    0.2877
    """
    x = _floating(log_probs, "ctc_loss")
    names = np.asarray(_host(labels))
    if x.ndim != 3 or names.ndim != 2 or len(names) != len(x) or 0 in x.shape:
        raise ShapeError(
            "ctc_loss: expected log_probs (n, t, c), not empty, and labels (n, l), got "
            f"{x.shape} and {names.shape}"
        )
    n, steps, classes = x.shape
    frames = _lengths("logit_lengths", logit_lengths, n, steps)
    counts = _lengths("label_lengths", label_lengths, n, names.shape[1])
    counted = np.arange(names.shape[1]) < counts[:, None]
    names = np.where(counted, names, blank).astype(np.int64)
    _checked(names, classes, "ctc_loss")
    # blanks between, before and after the labels
    path = np.full((n, 2 * names.shape[1] + 1), blank)
    path[:, 1::2] = names
    width = path.shape[1]
    put = x.device.backend.put
    flat = (
        np.arange(steps)[:, None, None] * classes
        + np.arange(n)[:, None] * (steps * classes)
        + path
    )
    seen = getitem(reshape(x, -1), put(flat.reshape(-1), x.device))
    # by time: the log-probability of each place of the path
    seen = unstack(reshape(seen, (steps, n, width)))
    leap = np.zeros((n, width), bool)  # a blank may be left out between two labels
    leap[:, 2:] = (path[:, 2:] != path[:, :-2]) & (path[:, 2:] != blank)
    leap = put(leap, x.device)
    begins = put(np.broadcast_to(np.arange(width) < 2, (n, width)).copy(), x.device)
    state = where(begins, seen[0], -math.inf)
    nothing = operand(put(np.full((n, 2), -math.inf, x.dtype), x.device), "ctc_loss")
    for t in range(1, steps):
        padded = concatenate([nothing, state], 1)
        leaps = where(leap, padded[:, :-2], -math.inf)
        ways = stack([state, padded[:, 1:-1], leaps])
        ahead = logsumexp(ways, 0) + seen[t]
        lasts = put(np.broadcast_to((t < frames)[:, None], (n, width)).copy(), x.device)
        state = where(lasts, ahead, state)
    places = np.arange(width)
    ends = (places == 2 * counts[:, None]) | (places == 2 * counts[:, None] - 1)
    total = logsumexp(where(put(ends, x.device), state, -math.inf), 1)
    return -total


def _alike(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Two floating tensors of one shape; a number beside them is broadcast."""
    a, b = _floating(a), operand(b)
    if a.shape != b.shape and a.ndim and b.ndim:
        raise ShapeError(
            f"{name}: expected two arrays of one shape, got {a.shape} and {b.shape}; "
            "broadcast one with eg.broadcast_to if that is meant"
        )
    return a, b


def _host(values: Any) -> Any:
    return values.numpy() if isinstance(values, Tensor) else values


def _lengths(name: str, lengths: Any, count: int, most: int) -> Any:
    if lengths is None:
        return np.full(count, most)
    found = np.asarray(_host(lengths))
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ShapeError(
            f"ctc_loss: expected {name} as {count} integers, got {lengths}"
        )
    if found.size and not 0 <= found.min() <= found.max() <= most:
        raise ShapeError(f"ctc_loss: expected {name} in [0, {most}], got {lengths}")
    return found
