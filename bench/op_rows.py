"""What `ops.py` calls each op of the registry on: the tests' own rows, also made large.

An op has a row by existing: its first case in `tests/op_cases.py`. A large row has the
same parameters and ranks, and about 100,000 elements an array. Where that cannot be,
because a parameter names sizes, the row stands in `LARGE`; decompositions, whose time
grows faster than the array, stay as small as they are.
"""

import numpy as np
from op_cases import CASES, PARTS, Case, draw, integers

from eagergrad.ops.pooling import Window
from eagergrad.primitive import OPS

SIZE = {"small": 8, "large": 100_000}
SMALL_ONLY = """cholesky cofactor_slope cofactors det eig eigh expm inv pinv qr slogdet
    solve svd svd_full""".split()

N, SIDE = SIZE["large"], 316
IMAGES, FILTERS, MAPS = (8, 16, 28, 28), (16, 16, 3, 3), (8, 16, 26, 26)
NONE = ((0, 0), (0, 0))  # zeros around
POOL, POOLED = Window((2, 2), (2, 2), (1, 1), ((0, 0), (0, 0))), (8, 16, 14, 14)


def _along_rows():
    """The order of each row of a square, as argsort gives it."""
    return np.argsort(draw((SIDE, SIDE)), 1)


def _waves(*shape):
    return draw(shape) + 1j * draw(shape)[::-1]


LARGE = {
    "avg_pool": lambda: ((draw(IMAGES),), POOL),
    "avg_spread": lambda: ((draw(POOLED),), POOL, IMAGES),
    "broadcast_to": lambda: ((draw((SIDE,)),), (SIDE, SIDE)),
    "conv": lambda: ((draw(IMAGES), draw(FILTERS)), (1, 1), (1, 1), 1, NONE),
    "conv_filter": lambda: (
        *((draw(IMAGES), draw(MAPS)), (3, 3), (1, 1), (1, 1), 1, NONE),
    ),
    "conv_input": lambda: (
        *((draw(MAPS), draw(FILTERS)), (28, 28), (1, 1), (1, 1), 1, NONE),
    ),
    "cross": lambda: ((draw((N // 3, 3)), draw((N // 3, 3))[::-1]),),
    "dense": lambda: ((*draw((2, SIDE, SIDE)), draw((SIDE,))), "relu"),
    "fftn": lambda: ((_waves(256, 256),), (256, 256), (0, 1), "backward"),
    "getitem": lambda: ((draw((N,)),), integers((N,), N)),
    "ifftn": lambda: ((_waves(256, 256),), (256, 256), (0, 1), "backward"),
    "integer_cross_entropy": lambda: (
        (draw((N // 10, 10)),),
        integers((N // 10,), 10),
        False,
    ),
    "irfft": lambda: ((_waves(N // 2 + 1),), N, 0, "backward"),
    "layer_norm": lambda: ((draw((SIDE, SIDE)), *draw((2, SIDE))), 0.1, True),
    "batch_norm": lambda: ((draw((SIDE, SIDE)), *draw((2, SIDE))), 0.1, 1),
    "max_at": lambda: ((draw((N,)), draw((N // 2,))), integers((N // 2,), N)),
    "max_pool": lambda: ((draw(IMAGES),), POOL),
    "min_at": lambda: ((draw((N,)), draw((N // 2,))), integers((N // 2,), N)),
    "onto_diagonal": lambda: ((draw((SIDE,)),), (SIDE, SIDE), 0, 0, 1),
    "pick": lambda: ((draw((SIDE, SIDE)),), _along_rows(), 1),
    "place": lambda: ((draw((SIDE, SIDE)),), _along_rows(), 1, (SIDE, SIDE)),
    "pool_gather": lambda: ((draw(IMAGES),), integers(POOLED, 4), POOL),
    "pool_scatter": lambda: ((draw(POOLED),), integers(POOLED, 4), POOL, IMAGES),
    "reshape": lambda: ((draw((SIDE, SIDE)),), (-1,)),
    "rfft": lambda: ((draw((N,)),), N, 0, "backward"),
    "scatter_add": lambda: ((draw((N,)),), integers((N,), N), (N,)),
    "searchsorted": lambda: ((np.sort(draw((N,))), draw((N,))), "left"),
    "segment_sum": lambda: ((draw((N // 100, 100)),), integers((N // 100,), 50), 50),
    "set_at": lambda: ((draw((N,)), draw((N // 2,))), integers((N // 2,), N)),
    "softmax_seen": lambda: ((draw((SIDE, SIDE)),), np.arange(1, SIDE + 1)),
    "split": lambda: ((draw((N,)),), [N // 4, N // 2], 0),
    "stays": lambda: ((draw((N,)),), integers((N // 2,), N)),
}


def names(size, recorded=False):
    """The ops that have a row of this size, by family and name.

    With `recorded` only those that tapes record, the others having no gradient.
    """
    chosen = [
        name
        for name, op in OPS.items()
        if (size == "small" or name not in SMALL_ONLY) and (op.recorded or not recorded)
    ]
    return sorted(chosen, key=lambda name: (family(name), name))


def family(name):
    """The file an op is declared in; the form of one that is only NumPy's function."""
    op = OPS[name]
    for function in (*op.rules, op.forward):
        package, _, module = getattr(function, "__module__", "").rpartition(".")
        if package == "eagergrad.ops":
            return module
    return op.form


def row(name, size):
    """The call that is timed: a Case, its arrays made now."""
    op = OPS[name]
    if name in PARTS:
        return _part(op, row(PARTS[name], size))
    if size == "large" and name in LARGE:
        arrays, *params = LARGE[name]()
        return Case(op, arrays, tuple(params))
    case = CASES[name][0]
    if name in SMALL_ONLY or (size == "small" and name in LARGE):
        return case
    return case._replace(arrays=tuple(_sized(x, SIZE[size]) for x in case.arrays))


def _part(op, whole):
    """A step of another op's rule: it takes some of the same, and what is kept."""
    kept = whole.op.forward(np, *whole.arrays, *whole.params)[1]
    return Case(op, whole.arrays, (*whole.params[: len(op.params) - 1], kept))


def _sized(x, count):
    """About `count` elements of the same rank, kind and range, with equal sides."""
    if not x.ndim:
        return x
    shape = (round(count ** (1 / x.ndim)),) * x.ndim
    return draw(shape, x.min(), x.max()) if x.dtype.kind == "f" else np.resize(x, shape)
