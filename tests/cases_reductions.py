"""Calls and references of the scans, statistics, sorting, gathering and putting ops."""

import numpy as np


def _draw(shape, low=-2.0, high=2.0):
    """Numbers in random order, none near another or 0."""
    size = int(np.prod(shape))
    values = low + (high - low) * (np.arange(size) + 0.6) / max(size, 1)
    return np.random.default_rng(size).permutation(values).reshape(shape)


def _pair(shape, other):
    size, more = int(np.prod(shape)), int(np.prod(other))
    values = _draw((size + more,))
    return values[:size].reshape(shape), values[size:].reshape(other)


def _along(*params):
    shapes = [((5,), 0), ((2, 3), 1), ((3, 2, 2), 0), ((1,), 0), ((2, 0), 1)]
    return [((_draw(shape),), axis, *params) for shape, axis in shapes]


def _both_ways():
    return _along(False) + _along(True)


def _axes():
    x = _draw((2, 3, 4))
    axes = [None, 1, -1, (0, 2), (2, -3)]
    return [((x,), axis, keep) for axis in axes for keep in (False, True)] + [
        ((_draw(()),), None, False)
    ]


_ORDERS = [  # indices without repeats, axis, shape of x
    (np.array([2, 0, 1]), 0, (3,)),
    (np.array([[1, 0], [2, 1]]), 1, (2, 3)),
    (np.array([[1, 0, 1]]), 0, (2, 3)),
    (np.zeros((2, 0), int), 1, (2, 3)),
]

_INDICES = [  # index, shape; the third and fourth with repeats
    (1, (3,)),
    (slice(None, None, -2), (5,)),
    (np.array([2, 0, 2, 2]), (3, 2)),
    ((np.array([[0], [1]]), np.array([1, 1, 0])), (2, 2, 3)),
    (np.array([[True, False], [False, True]]), (2, 2, 3)),
    ((..., np.array([1, -1])), (2, 2)),
    (slice(0, 0), (3,)),
]


def _at():
    return [(_pair(s, np.empty(s)[i].shape), i) for i, s in _INDICES]


_IDS = [  # ids, count, shape
    (np.array([2, 0, 2, 1]), 4, (4,)),
    (np.array([0, 0, 2]), 3, (3, 2)),
    (np.array([1]), 2, (1, 2, 2)),
    (np.zeros(0, int), 2, (0, 3)),
]

ROWS = {
    "prod": _along(),
    "centred": [
        ((_draw((2, 3)),), 1),
        ((_draw((2, 3, 2)),), (0, 2)),
        ((_draw((1,)),), 0),
        ((_draw(()),), ()),
    ],
    "nanmax": _axes(),
    "nanmin": _axes(),
    "cumsum": _both_ways(),
    "cumprod": _both_ways(),
    "logcumsumexp": _along(),
    "shifted": _along(1, 0.5) + _along(-2, 1.0),
    "recurrence": [
        (_pair(shape, shape), axis, reverse)
        for shape, axis in [((5,), 0), ((2, 3), 1), ((3, 2, 2), 0), ((1,), 0)]
        for reverse in (False, True)
    ],
    "pick": [((_draw(s),), i, axis) for i, axis, s in _ORDERS],
    "place": [((_draw(i.shape),), i, axis, s) for i, axis, s in _ORDERS],
    "argsort": [((_draw((5,)),), 0), ((_draw((2, 3)),), 0), ((_draw((2, 3)),), 1)],
    "argpartition": [((_draw((3,)),), 1, 0), ((_draw((2, 3)),), 1, 1)],
    "searchsorted": [
        ((np.sort(_draw((5,))), _draw((2, 2))), side) for side in ("left", "right")
    ],
    "segment_sum": [((_draw(s),), ids, count) for ids, count, s in _IDS],
    **dict.fromkeys(("set_at", "min_at", "max_at"), _at()),
    "stays": [((_draw(s),), i) for i, s in _INDICES],
}


def _reversed(function, x, axis, reverse):
    y = function(np.flip(x, axis) if reverse else x, axis)
    return np.flip(y, axis) if reverse else y


def _shifted(x, axis, by, fill):
    out = np.roll(x, by, axis)
    count = min(abs(by), x.shape[axis])
    places = slice(0, count) if by > 0 else slice(x.shape[axis] - count, None)
    out[(slice(None),) * axis + (places,)] = fill
    return out


def _recurrence(x, b, axis, reverse):
    places = range(x.shape[axis])
    y = np.moveaxis(b.copy(), axis, 0)
    x, previous = np.moveaxis(x, axis, 0), 0.0
    for i in reversed(places) if reverse else places:
        previous = y[i] = y[i] + x[i] * previous
    return np.moveaxis(y, 0, axis)


def _placed(x, indices, axis, shape):
    out = np.zeros(shape)
    np.put_along_axis(out, indices, x, axis)
    return out


def _segment_sum(x, ids, count):
    return np.array([x[ids == i].sum(0) for i in range(count)])


def _changed(ufunc):
    def at(x, v, index):
        out = x.copy()
        ufunc.at(out, index, v)
        return out

    return at


def _set_at(x, v, index):
    out = x.copy()
    out[index] = v
    return out


def _stays(x, index):
    places = np.arange(x.size).reshape(x.shape)[index].reshape(-1).tolist()
    last = [place not in places[i + 1 :] for i, place in enumerate(places)]
    return np.array(last, bool).reshape(x[index].shape)


REFERENCES = {
    "centred": lambda x, axis: x - x.mean(axis, keepdims=True),
    "cumsum": lambda x, axis, reverse: _reversed(np.cumsum, x, axis, reverse),
    "cumprod": lambda x, axis, reverse: _reversed(np.cumprod, x, axis, reverse),
    "logcumsumexp": lambda x, axis: np.log(np.cumsum(np.exp(x), axis)),
    "shifted": _shifted,
    "recurrence": _recurrence,
    "pick": np.take_along_axis,
    "place": _placed,
    "segment_sum": _segment_sum,
    "set_at": _set_at,
    "min_at": _changed(np.minimum),
    "max_at": _changed(np.maximum),
    "stays": _stays,
}
