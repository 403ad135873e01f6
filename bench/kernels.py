"""The time of fused kernels, beside the same ops of NumPy and beside PyTorch.

Forward and backward over a million float32, an Adam step over a million parameters, and
one convolution.  "numpy" is eagergrad without kernels.
"""

import os
from collections.abc import Callable, Sequence

import numpy as np
import timing

ROWS = (1024, 1024)  # about a million
CLASSES = (1000, 1000)
IMAGES, FILTERS = (64, 16, 14, 14), (32, 16, 3, 3)
PARAMETERS = [(1000, 784), (1000,), (200, 1000), (200,), (74, 200), (74,)]  # a million
STEPS = 5

# A side's op: from arrays and constants to an output.
Function = Callable[..., object]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


LABELS = np.random.default_rng(0).integers(CLASSES[1], size=CLASSES[0])
ELEMENTWISE = ("softplus", "gelu", "gelu tanh", "sigmoid", "silu", "tanh", "dropout")
# The arrays by which each is differentiated.
OPERANDS: dict[str, list[np.ndarray]] = {
    **{name: [normal(*ROWS)] for name in ELEMENTWISE},
    "layer_norm": [normal(*ROWS), 1 + normal(ROWS[1]), normal(ROWS[1])],
    "cross-entropy": [normal(*CLASSES)],
    "conv2d": [normal(*IMAGES), normal(*FILTERS)],
}
FIVE = ("softplus", "gelu", "sigmoid", "layer_norm", "cross-entropy")


def eagergrad_side(kernels: str) -> dict[str, timing.Case]:
    os.environ["EAGERGRAD_HOST_KERNELS"] = kernels
    import eagergrad as eg

    labels = eg.tensor(LABELS)
    functions: dict[str, Function] = {
        "softplus": eg.softplus,
        "gelu": eg.gelu,
        "gelu tanh": lambda x: eg.gelu(x, "tanh"),
        "sigmoid": eg.sigmoid,
        "silu": eg.silu,
        "tanh": eg.tanh,
        "dropout": lambda x: eg.dropout(x, 0.5),
        "layer_norm": eg.layer_norm,
        "cross-entropy": lambda x: eg.softmax_cross_entropy(x, labels),
        "conv2d": lambda x, w: eg.conv2d(x, w, padding=1),
    }

    def run(name: str) -> Callable[[], Sequence]:
        function, xs = functions[name], [eg.tensor(x) for x in OPERANDS[name]]
        g = eg.tensor(normal(*function(*xs).shape))

        def both() -> list:
            with eg.GradientTape() as tape:
                tape.watch(xs)
                y = function(*xs)
            return [y, *tape.gradient(y, xs, g)]

        return both

    def adam() -> Callable[[], Sequence]:
        pairs = [
            (eg.tensor(normal(*shape)), eg.Variable(normal(*shape)))
            for shape in PARAMETERS
        ]
        optimizer = eg.optim.Adam(1e-3)

        def step() -> list:
            optimizer.apply_gradients(pairs)
            return [variable for _, variable in pairs]

        return step

    return cases(functions, run, adam)


def torch_side() -> dict[str, timing.Case]:
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    labels = torch.from_numpy(LABELS)
    functions: dict[str, Function] = {
        "softplus": F.softplus,
        "gelu": F.gelu,
        "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
        "sigmoid": torch.sigmoid,
        "silu": F.silu,
        "tanh": torch.tanh,
        "dropout": lambda x: F.dropout(x, 0.5),
        "layer_norm": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        "cross-entropy": lambda x: F.cross_entropy(x, labels, reduction="none"),
        "conv2d": lambda x, w: F.conv2d(x, w, padding=1),
    }

    def run(name: str) -> Callable[[], Sequence]:
        function = functions[name]
        xs = [torch.from_numpy(x).requires_grad_() for x in OPERANDS[name]]
        g = torch.from_numpy(normal(*function(*xs).shape))

        def both() -> list:
            y = function(*xs)
            return [y.detach(), *torch.autograd.grad(y, xs, g)]

        return both

    def adam() -> Callable[[], Sequence]:
        parameters = [torch.nn.Parameter(torch.tensor(normal(*s))) for s in PARAMETERS]
        for parameter in parameters:
            parameter.grad = parameter.detach().clone()
        optimizer = torch.optim.Adam(parameters, 1e-3, fused=True)

        def step() -> list:
            optimizer.step()
            return [parameter.detach() for parameter in parameters]

        return step

    return cases(functions, run, adam)


def cases(
    functions: dict[str, Function],
    run: Callable[[str], Callable[[], Sequence]],
    adam: Callable[[], Callable[[], Sequence]],
) -> dict[str, timing.Case]:
    def case(name: str) -> timing.Case:
        drawn = name == "dropout"  # each side from numbers of its own
        return timing.Case(
            lambda: run(name), values=None if drawn else lambda: sizes(run(name))
        )

    def after_steps() -> list[float]:
        step = adam()
        for _ in range(STEPS - 1):
            step()
        return sizes(step)

    found = {name: case(name) for name in functions}
    return found | {"Adam": timing.Case(adam, values=after_steps)}


def sizes(call: Callable[[], Sequence]) -> list[float]:
    """The norm of each result."""
    return [float(np.linalg.norm(np.asarray(y, np.float64))) for y in call()]


SIDES = {
    "numpy": timing.Side("eagergrad", lambda: eagergrad_side("off")),
    "eagergrad": timing.Side("eagergrad", lambda: eagergrad_side("require")),
    "torch": timing.Side("torch", torch_side),
}

GOALS = dict.fromkeys(OPERANDS, "<= 1") | {"softplus": "<= 0.5", "Adam": "<= 1"}
AGAINST_TORCH = [
    timing.Claim(name, "eagergrad", "/", "torch", goal) for name, goal in GOALS.items()
]
CLAIMS = [
    *AGAINST_TORCH,
    timing.Mean(tuple(c for c in AGAINST_TORCH if c.case in FIVE), "<= 0.6"),
]


def main() -> None:
    timing.main("kernels", SIDES, CLAIMS, __doc__, threads=2)


if __name__ == "__main__":
    main()
