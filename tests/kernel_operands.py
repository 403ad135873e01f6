"""Operands for kernels of every form, as NumPy's arrays and numbers."""

import numpy as np

RNG = np.random.default_rng(0)

# Planes, then size, outputs, kernel, stride, dilation, padding before, of each axis.
WINDOWS = {
    "one axis": (5, *(1, 1, 1, 1, 1, 0) * 2, 9, 4, 2, 2, 1, 0),
    "two axes": (3, 1, 1, 1, 1, 1, 0, 6, 6, 3, 1, 1, 1, 5, 3, 3, 2, 1, 1),
    "three axes": (2, 3, 2, 2, 1, 1, 0, 4, 2, 2, 2, 1, 0, 7, 3, 2, 2, 3, 1),
    "a stride beyond the window": (
        *(2, 1, 1, 1, 1, 1, 0),
        *(7, 3, 1, 3, 1, 0),
        *(8, 2, 2, 5, 1, 0),
    ),
}


PIECES = np.array([5, 7, 12])  # samples, channels, and what each is sized


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def wide(x):
    """As the host's kernels compute it."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def on_rows(kernel, m, n, dtype):
    """m rows of n elements."""
    # a label, then a count, which divides
    places = iter([RNG.integers(0, n, m), RNG.integers(1, n + 1, m)])
    makers = {
        "n": lambda: normal(m, n).astype(dtype),
        "s": lambda: normal(m).astype(dtype),
        "i": lambda: next(places),
        "w": lambda: np.ones(m, wide(np.ones((), dtype)).dtype),
    }
    return [makers[letter]() for letter in kernel.operands[: kernel.inputs]]


def on_columns(name, m, n, dtype):
    """A matrix of m rows; with it, what the gradient of layer_norm reads."""
    x, g = normal(2, m, n).astype(dtype)
    if name == "column_sum":
        return [x]
    if name == "activation":
        return [x, normal(n).astype(dtype), np.array(1)]
    if name == "activation_vjp":
        return [g, x, np.array(2)]
    kept = wide(normal(3, m).astype(dtype))
    return [g, x, normal(n).astype(dtype), *kept, 1.0]


def on_windows(name, sizes, dtype):
    """What a kernel of windows reads, and arrays for what it makes."""
    sizes = np.array(sizes)
    planes, (size, outputs, kernel, *_) = sizes[0], sizes[1:].reshape(3, 6).T
    x, y = (normal(planes * np.prod(n)).astype(dtype) for n in (size, outputs))
    columns = normal(y.size * np.prod(kernel)).astype(dtype)
    winner = RNG.integers(0, np.prod(kernel), y.size).astype(np.int8)
    return {
        "max_pool": ([x, sizes], [y, winner]),
        "pool_scatter": ([y, winner, sizes], [x]),
        "pool_gather": ([x, winner, sizes], [y]),
        "avg_pool": ([x, sizes], [y]),
        "avg_spread": ([y, sizes], [x]),
        "unfold": ([x, np.append(sizes, 1)], [columns]),
        "fold": ([columns, sizes], [x]),
    }[name]


def operands(kernel, dtype):
    """What a kernel reads, and arrays for its results where it does not make them."""
    if kernel.form == "elementwise":
        shape = kernel.inputs, 7, 300
        return list(RNG.uniform(0.1, 0.9, shape).astype(dtype)), []
    if kernel.form == "rows":
        return on_rows(kernel, 7, 300, dtype), []
    if kernel.form == "columns":
        return on_columns(kernel.name, 45, 300, dtype), []
    if kernel.header in ("pooling.h", "folding.h"):
        return on_windows(kernel.name, WINDOWS["two axes"], dtype)
    x, y = normal(2, 1000).astype(dtype)
    seed, unit = np.array([7, 3, 2**23]), y.dtype.type(2.0**-11)
    return {
        "uniform": ([unit, seed], [y]),
        "normal": ([y.dtype.type(3), seed], [y]),
        "batch_norm": (
            [x[:420], y[:7], x[420:427], y.dtype.type(0.1), PIECES],
            [y[:420].copy(), *normal(3, 7).astype(dtype)],
        ),
        "batch_norm_vjp": (
            [x[:420], y[:420], x[:0], *normal(3, 7).astype(dtype), PIECES],
            [y[:420].copy(), *normal(2, 7).astype(dtype)],
        ),
        "dropout": ([x, y.dtype.type(0.5), seed], [y]),
        "two_norm": ([x], [y[:3].copy()]),
        "non_finite": ([x], [y[:3].copy()]),
        "loss_scale": (
            [abs(x[:5]), abs(y[:4]), *map(y.dtype.type, (2, 0.5, 3))],
            [y[4:8].copy()],
        ),
        "scatter_add": ([x, RNG.integers(-20, 20, 50), np.array([20, 3])], [y[:400]]),
    }[kernel.name]
