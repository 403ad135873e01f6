"""How to call each op of the registry: what the tests of all ops loop over.

An elementwise op of one or two arrays needs no row here: it is called on numbers drawn
from the domain that its own row declares, or from ``DOMAIN`` if it is smooth on the
whole line.  A row adds calls; every other op has one, at points where it is smooth.
``test_ops.py`` fails for an op that has no call, or no domain though it needs one.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import eagergrad as eg
from eagergrad.device import CPU
from eagergrad.primitive import OPS

DOMAIN = (-2.0, 2.0)


def is_list(op):
    """Whether an op takes one list of arrays."""
    return op.arrays[0].endswith("*")


class Case(NamedTuple):
    """One way to call an op: its arrays, then its parameters."""

    op: Any
    arrays: tuple
    params: tuple = ()

    def __call__(self, *arrays):
        """Call the op on arrays of the same shapes and kinds, or on Tensors.

        Several outputs are joined to one.
        """
        if is_list(self.op):
            return self.op.entry(arrays, *self.params)
        y = self.op.entry(*arrays, *self.params)
        return eg.concatenate(y, None) if self.op.several else y

    @property
    def __name__(self):
        return self.op.name

    def cast(self, dtype):
        """The arrays with the floating ones, and no others, in another dtype."""
        return [x.astype(dtype) if x.dtype.kind == "f" else x for x in self.arrays]

    @property
    def sources(self):
        """The positions of the arrays that have a gradient."""
        return [
            i
            for i, x in enumerate(self.arrays)
            if x.dtype.kind in "fc" and (self.op.joint or self.op.rules[i] is not None)
        ]

    @property
    def source_arrays(self):
        return [self.arrays[i] for i in self.sources]

    def of_sources(self, *sources):
        """Call the op with other sources, the rest as it is."""
        arrays = list(self.arrays)
        for i, x in zip(self.sources, sources, strict=True):
            arrays[i] = x
        return self(*arrays)

    def __str__(self):
        shapes = "-".join(str(x.shape).replace(" ", "") for x in self.arrays)
        simple = [p for p in self.params if isinstance(p, (int, np.dtype)) or p is None]
        return "-".join([self.op.name, shapes, *map(str, simple)])


def draw(shape, low=DOMAIN[0], high=DOMAIN[1]):
    """Numbers in random order, none near another, 0, or the ends of the interval."""
    size = int(np.prod(shape))
    values = low + (high - low) * (np.arange(size) + 0.6) / max(size, 1)
    return np.random.default_rng(size).permutation(values).reshape(shape)


def integers(shape, stop):
    """Numbers below ``stop`` in random order, with repeats when there are too few."""
    values = np.arange(np.prod(shape, dtype=int)) % stop
    return np.random.default_rng(0).permutation(values).reshape(shape)


def pair(*shapes, domains=None):
    """Arrays of these shapes without equal or nearly equal elements."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    pieces = np.split(draw((sum(sizes),), 0, 1), np.cumsum(sizes)[:-1])
    return tuple(
        low + (high - low) * x.reshape(shape)
        for x, shape, (low, high) in zip(
            pieces, shapes, domains or [DOMAIN] * len(shapes), strict=True
        )
    )


# One array; two of one shape, and broadcast in each way.
PLAIN_SHAPES = {
    1: [((2, 3),), ((),)],
    2: [((2, 3), (2, 3)), ((2, 3), (3,)), ((), (2, 1)), ((2, 1), (1, 3))],
}


def is_plain(op):
    """Whether an op takes one or two arrays of any numbers, element by element."""
    return (
        op.form in ("elementwise", "constant")
        and op.arity in PLAIN_SHAPES
        and not op.params
        and op.name not in FLAGS + SHIFTS
    )


def domains(op):
    """The interval that each array of a plain op is drawn from."""
    domain = op.domain or DOMAIN
    return domain if isinstance(domain[0], tuple) else (domain,) * op.arity


def plain(op):
    """Calls of a plain op on numbers from its domain."""
    return [(pair(*s, domains=domains(op)),) for s in PLAIN_SHAPES[op.arity]]


# Bits are those of integers and flags.
FLAGS = ("bitwise_and", "bitwise_or", "bitwise_xor", "invert")
SHIFTS = ("left_shift", "right_shift")


def _flags(op):
    """Calls on flags instead of numbers."""
    return [(tuple(x > 0 for x in pair(*s)),) for s in PLAIN_SHAPES[op.arity]]


def _shifts():
    shapes = [((2, 3), (2, 3)), ((3,), (2, 1)), ((), (2,))]
    return [((integers(a, 90), integers(b, 4)),) for a, b in shapes]


def _reduction():
    x = draw((2, 3, 4))
    axes = [None, 1, -1, (0, 2), (2, -3), ()]
    return [((x,), axis, keep) for axis in axes for keep in (False, True)] + [
        ((draw(()),), None, False),
        ((draw((1,)),), 0, False),
    ]


def _position():
    x, axes = draw((2, 3)), (None, 0, -1)
    return [((x,), axis, keep) for axis in axes for keep in (False, True)]


def _along():
    return [((draw((2, 3)),), -1), ((draw((2, 3, 2)),), 1), ((draw((1,)),), 0)]


_INDICES = [  # index, shape
    (1, (3,)),
    (slice(None, None, -2), (5,)),
    ((slice(1, None), None, -1), (3, 4)),
    ((..., 0), (2, 3, 4)),
    (np.array([2, 0, 2, 2]), (3, 2)),
    ((np.array([[0], [1]]), np.array([1, 1, 0])), (2, 2, 3)),
    ((slice(None), np.array([1, -1])), (2, 2)),
    (np.array([[True, False], [False, True]]), (2, 2, 3)),
    ((), (2, 3)),
    (slice(0, 0), (3,)),
]


def _taken(index, shape):
    return draw(np.empty(shape)[index].shape)


ROWS = {
    "split": [
        ((draw((5,)),), [1, 3], 0),
        ((draw((2, 4)),), [2], 1),
        ((draw((2, 0)),), [1], 0),
    ],
    **{
        name: _flags(op)
        for name, op in OPS.items()
        if name in FLAGS or name.startswith("logical")
    },
    **dict.fromkeys(SHIFTS, _shifts()),
    "power": [((np.array([-1.5, -0.5, 2.0]), np.array([2, 3, 0])),)],
    "remainder": [((np.array([5.3, -5.3, 2.2]), np.array([1.7, 1.7, -0.9])),)],
    "reciprocal": [((np.array([[0.5, -0.4], [1.5, -2.0]]),),)],
    "divide": [(pair((2, 3), (2, 3)),)],
    "identity": [((draw((2, 3)),),)],
    "clip": [
        ((draw((2, 3)), np.array(-0.9), np.array(1.1)),),
        ((draw((5,)), np.full((2, 1), -0.7), np.linspace(0.15, 0.95, 5)),),
    ],
    "where": [
        ((draw((2, 3)) > 0, *pair((2, 3), (2, 3))),),
        ((draw((3, 1)) > 0, *pair((2,), ())),),
    ],
    "conj": [((draw((3,)) + 1j * draw((3,))[::-1],),)],
    "astype": [
        ((draw((2, 3)),), np.dtype("f8"), np.dtype("f8")),
        ((draw((2, 3)),), np.dtype("c16"), np.dtype("f8")),
    ],
    "to": [((draw((2, 3)),), CPU, CPU)],
    "real": [((draw((3,)) - 1j * draw((3,))[::-1],), np.dtype("c16"))],
    "imag": [((draw((3,)) - 1j * draw((3,))[::-1],), np.dtype("c16"))],
    "getitem": [((draw(shape),), index) for index, shape in _INDICES],
    "scatter_add": [((_taken(*row),), *row) for row in _INDICES],
    "reshape": [
        ((draw((2, 3)),), (3, -1)),
        ((draw((1,)),), ()),
        ((draw((2, 3)).T,), (6,)),
    ],
    "transpose": [
        ((draw((2, 3)),), None),
        ((draw((2, 3, 4)),), (2, 0, 1)),
        ((draw((2, 3, 4)),), (-1, 0, 1)),
        ((draw(()),), ()),
    ],
    "broadcast_to": [
        ((draw((3,)),), (2, 3)),
        ((draw((2, 1)),), (4, 2, 3)),
        ((draw(()),), (2, 2)),
    ],
    "concatenate": [
        (pair((2, 3), (1, 3)), 0),
        (pair((2, 1), (2, 2), (2, 0)), -1),
        (pair((2,)), 0),
    ],
    "stack": [(pair((2, 3), (2, 3)), 0), (pair((2,), (2,), (2,)), -1), (pair(()), 0)],
    "column_sum": [((draw((3, 4)),),), ((draw((40, 3)),),)],
    **dict.fromkeys(("sum", "mean", "max", "min", "logsumexp"), _reduction()),
    **dict.fromkeys(("any", "all"), _reduction()),
    **dict.fromkeys(("argmax", "argmin"), _position()),
    "matmul": [
        (pair(*both),)
        for both in [
            ((2, 3), (3, 4)),
            ((3,), (3,)),
            ((3,), (3, 2)),
            ((2, 3), (3,)),
            ((3,), (2, 3, 4)),
            ((2, 2, 3), (3,)),
            ((2, 2, 3), (2, 3, 1)),
            ((2, 1, 2, 3), (4, 3, 2)),
            ((2, 3), (4, 3, 2)),
            ((4, 2, 3), (3, 2)),
            ((1, 2, 3), (4, 3, 2)),
        ]
    ],
    "dense": [
        (pair((4, 3), (3, 2), (2,)), ""),
        (pair((2, 2, 3), (3, 2), (2,)), "tanh"),
        (pair((3,), (3, 2), (2,)), "relu"),
    ],
    **dict.fromkeys(("softmax", "log_softmax"), _along()),
    "integer_cross_entropy": [
        ((draw((4, 3)),), integers((4,), 3), False),
        ((draw((4, 3)),), integers((4,), 3), True),
        ((draw((3,)),), np.array(1), False),
        ((draw((2, 3, 4)),), integers((2, 3), 4), False),
        ((draw((2, 3, 4)),), integers((2, 3), 4), True),
    ],
}

# Steps of another op's rule, not functions of their inputs alone: checked through it.
PARTS = {"softmax_error": "integer_cross_entropy"}


# Families of ops keep their rows in files of their own, tests/cases_NAME.py.
for _path in sorted(Path(__file__).parent.glob("cases_*.py")):
    ROWS |= import_module(_path.stem).ROWS


CASES = {
    name: [
        Case(op, arrays, params)
        for arrays, *params in (plain(op) if is_plain(op) else []) + ROWS.get(name, [])
    ]
    for name, op in OPS.items()
}
ALL = [case for cases in CASES.values() for case in cases]
SMOOTH = [case for case in ALL if case.op.recorded and case.sources]
FLAT = [
    case
    for case in ALL
    if not case.op.recorded and all(x.dtype.kind == "f" for x in case.arrays)
]

# Ops on any array, element by element, that users call by their own names.
ELEMENTWISE = [
    op
    for op in OPS.values()
    if op.form in ("elementwise", "constant") and not op.params and hasattr(eg, op.name)
]
UNARY = [op for op in ELEMENTWISE if op.arity == 1]
BINARY = [op for op in ELEMENTWISE if op.arity == 2]


# ------------------------------------------------- the same call on another device


def case_on(case, device):
    """The same call of an op with what it has of devices among its parameters."""
    params = [device if param is CPU else param for param in case.params]
    if case.op.name not in ("getitem", "scatter_add"):  # which take NumPy's indices
        params = [_put(param, device) for param in params]
    return case._replace(params=tuple(params))


def _put(param, device):
    """Arrays among the parameters, as the public functions put them on the device."""
    if hasattr(param, "_fields"):
        return type(param)(*(_put(part, device) for part in param))
    if isinstance(param, tuple):
        return tuple(_put(part, device) for part in param)
    is_array = isinstance(param, np.ndarray)
    return eg.tensor(param, device=device)._data if is_array else param


def weights(y):
    """Cotangents that are made on the device: no two equal, and constant."""
    return eg.cos(eg.stop_gradient(y))


def first(case, arrays, sources):
    """The gradients of c . f for a constant c."""
    with eg.GradientTape() as tape:
        tape.watch(sources)
        y = case(*arrays)
    return tape.gradient(y, sources, weights(y))


def second(case, arrays, sources):
    """The gradients of a fixed combination of the first gradients."""
    with eg.GradientTape() as tape:
        tape.watch(sources)
        total = 0.0
        for g in first(case, arrays, sources):
            total += eg.sum(g * weights(g))
    return tape.gradient(total, sources)
