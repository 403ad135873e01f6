"""How to call the ops of arranging, convolution, pooling, normalization and losses."""

import numpy as np

from eagergrad.ops import philox
from eagergrad.ops.pooling import Window


def draw(shape, low=-2.0, high=2.0):
    """Numbers in random order, none near another, 0, or the ends of the interval."""
    size = int(np.prod(shape))
    values = low + (high - low) * (np.arange(size) + 0.6) / max(size, 1)
    return np.random.default_rng(size).permutation(values).reshape(shape)


def pair(first, second):
    """Two arrays, without an element in common."""
    size = int(np.prod(first))
    both = draw((size + int(np.prod(second)),))
    return both[:size].reshape(first), both[size:].reshape(second)


def integers(shape, stop):
    """Numbers below ``stop`` in random order."""
    values = np.arange(np.prod(shape, dtype=int)) % stop
    return np.random.default_rng(0).permutation(values).reshape(shape)


PAIR = Window((2, 2), (2, 1), (1, 2), ((1, 0), (0, 1)))  # over (5, 4): 3 by 3 windows
LINE = Window((3,), (1,), (1,), ((0, 0),))

_SHAPES = [  # input, filter, stride, dilation, groups, zeros around
    ((2, 4, 5, 4), (4, 2, 2, 3), (2, 1), (1, 1), 2, ((0, 0), (0, 0))),
    ((1, 2, 6), (3, 2, 2), (3,), (2,), 1, ((2, 1),)),
    (*((1, 1, 3, 2, 2), (2, 1, 2, 1, 2), (1, 1, 1), (1, 1, 1), 1), ((0, 0),) * 3),
    ((1, 1, 2, 3), (1, 1, 2, 2), (1, 1), (1, 1), 1, ((0, 1), (1, 0))),
]


def _outputs(x, w, stride, dilation, groups, pads):
    sizes = [
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, k, s, d, p in zip(x[2:], w[2:], stride, dilation, pads, strict=True)
    ]
    return (x[0], w[0], *sizes)


ROWS = {
    "flip": [
        ((draw((2, 3)),), None),
        ((draw((2, 3)),), (1,)),
        ((draw((2, 3, 2)),), (0, -1)),
    ],
    "roll": [
        ((draw((5,)),), 2, None),
        ((draw((2, 3)),), -4, None),
        ((draw((2, 3)),), (1, -1), (0, 1)),
        ((draw((2, 3)),), 1, -1),
    ],
    "conv": [(pair(x, w), *rest) for x, w, *rest in _SHAPES],
    "conv_input": [
        (pair(_outputs(x, w, *rest), w), x[2:], *rest) for x, w, *rest in _SHAPES
    ],
    "conv_filter": [
        (pair(x, _outputs(x, w, *rest)), w[2:], *rest) for x, w, *rest in _SHAPES
    ],
    "max_pool": [((draw((2, 2, 5, 4)),), PAIR), ((draw((1, 2, 5)),), LINE)],
    "avg_pool": [((draw((2, 2, 5, 4)),), PAIR), ((draw((1, 2, 5)),), LINE)],
    "avg_spread": [
        ((draw((2, 2, 3, 3)),), PAIR, (2, 2, 5, 4)),
        ((draw((1, 2, 3)),), LINE, (1, 2, 5)),
    ],
    "pool_scatter": [((draw((1, 2, 3)),), integers((1, 2, 3), 3), LINE, (1, 2, 5))],
    "pool_gather": [((draw((1, 2, 5)),), integers((1, 2, 3), 3), LINE)],
    "normalize": [
        ((draw((3, 4)),), (1,), 1e-3, True, None),
        ((draw((3, 4)),), (1,), 1e-3, False, None),
        ((draw((2, 3, 2)),), (0, 2), 0.1, True, None),
    ],
    "layer_norm": [
        ((draw((3, 4)), draw((4,)), draw((4,))), 0.1, True),
        ((draw((2, 3, 4)), draw((4,)), draw((4,))), 0.1, False),
    ],
    "batch_norm": [
        ((draw((3, 4)), draw((4,)), draw((4,))), 0.1, 1),
        ((draw((3, 2, 4)), draw((2,)), draw((2,))), 0.1, 1),
        ((draw((2, 3, 4)), draw((2,)), draw((2,))), 0.2, 0),
    ],
    "inverse_deviation": [
        ((draw((3, 4)),), (1,), 0.1, True, None),
        ((draw((2, 3, 2)),), (0, 2), 0.1, False, None),
    ],
    "softmax_seen": [
        ((draw((3, 4)),), np.array([1, 2, 4])),
        ((draw((2, 3, 2)),), np.array([1, 2, 2])),
    ],
    "sigmoid_loss": [
        ((draw((2, 3)), draw((2, 3), 0.1, 0.9)),),
        ((draw((3,)), draw((), 0.1, 0.9)),),
    ],
    "dropout": [((draw((2, 3)),), 0.5, 7, 3), ((draw((4,)),), 0.1, 1, 0)],
    "two_norm": [((draw((2, 3)),),), ((draw((4,)),),)],
}


def _softmax_seen(x, seen):
    e = np.exp(x) * (np.arange(x.shape[-1]) < seen[:, None])
    return e / e.sum(-1, keepdims=True)


def _windows(x, window, fill):
    """Every element under every window: (n, c, *outputs, positions)."""
    full = np.pad(x, [(0, 0), (0, 0), *window.pads], constant_values=fill)
    outputs = window.outputs(x.shape[2:])
    y = np.empty((*x.shape[:2], *outputs, int(np.prod(window.kernel))))
    for out in np.ndindex(*outputs):
        for i, place in enumerate(np.ndindex(*window.kernel)):
            spot = [
                o * s + p * d
                for o, s, p, d in zip(
                    out, window.stride, place, window.dilation, strict=True
                )
            ]
            y[(..., *out, i)] = full[(..., *spot)]
    return y


def _transposed(linear, g, shape):
    """The transpose of a linear map, from what it makes of each unit array."""
    x = np.empty(shape)
    for place in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[place] = 1
        x[place] = (linear(unit) * g).sum()
    return x


def _conv(x, w, stride, dilation, groups, pads):
    y = np.zeros(_outputs(x.shape, w.shape, stride, dilation, groups, pads))
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    inner = w.shape[1]
    for f in range(w.shape[0]):
        start = f // (w.shape[0] // groups) * inner
        for out in np.ndindex(*y.shape[2:]):
            spot = tuple(
                slice(o * s, o * s + d * (k - 1) + 1, d)
                for o, s, d, k in zip(out, stride, dilation, w.shape[2:], strict=True)
            )
            part = x[(slice(None), slice(start, start + inner), *spot)]
            y[(slice(None), f, *out)] = (part * w[f]).sum(tuple(range(1, x.ndim)))
    return y


def _conv_input(g, w, sizes, stride, dilation, groups, pads):
    shape = (g.shape[0], w.shape[1] * groups, *sizes)
    return _transposed(lambda x: _conv(x, w, stride, dilation, groups, pads), g, shape)


def _conv_filter(x, g, kernel, stride, dilation, groups, pads):
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    return _transposed(lambda w: _conv(x, w, stride, dilation, groups, pads), g, shape)


def _average(x, window):
    return _windows(x, window, 0).mean(-1)


def _pool_gather(x, winner, window):
    return np.take_along_axis(_windows(x, window, 0), winner[..., None], -1)[..., 0]


def _normalize(x, axes, eps, centred, known=None):
    d = x - x.mean(axes, keepdims=True) if centred else x
    return d / np.sqrt((d * d).mean(axes, keepdims=True) + eps)


def _inverse_deviation(x, axes, eps, centred, known):
    d = x - x.mean(axes, keepdims=True) if centred else x
    return 1 / np.sqrt((d * d).mean(axes, keepdims=True) + eps)


def _dropout(x, rate, key, offset):
    chance = philox.uniform(np, key, offset, x.size, "float32").reshape(x.shape)
    return np.where(chance >= rate, x / (1 - rate), 0)


def _batch_norm(x, gamma, beta, eps, channel):
    x = np.moveaxis(x, channel, -1)
    y = _normalize(x, tuple(range(x.ndim - 1)), eps, True) * gamma + beta
    return np.moveaxis(y, -1, channel)


REFERENCES = {
    "conv": _conv,
    "conv_input": _conv_input,
    "conv_filter": _conv_filter,
    "max_pool": lambda x, window: _windows(x, window, -np.inf).max(-1),
    "avg_pool": _average,
    "avg_spread": lambda g, window, shape: _transposed(
        lambda x: _average(x, window), g, shape
    ),
    "pool_gather": _pool_gather,
    "pool_scatter": lambda g, winner, window, shape: _transposed(
        lambda x: _pool_gather(x, winner, window), g, shape
    ),
    "normalize": _normalize,
    "layer_norm": lambda x, gamma, beta, eps, centred: (
        _normalize(x, -1, eps, centred) * gamma + beta
    ),
    "batch_norm": _batch_norm,
    "inverse_deviation": _inverse_deviation,
    "softmax_seen": _softmax_seen,
    "sigmoid_loss": lambda a, b: (1 - b) * np.logaddexp(0, a) + b * np.logaddexp(0, -a),
    "dropout": _dropout,
    "two_norm": np.linalg.norm,
}
