"""The cost of one small operation in eagergrad and peers: call, record, sweep.

Arrays are so small (8 floats; 16x16 for matmul, float32) that only the overhead is
left. "recorded" is the same call with a gradient being listened for; "backward" is the
time of the reverse sweep alone, per operation of a chain of 50. "import" is a fresh
interpreter that imports NumPy and the library.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import repeat

import numpy as np
import timing

# A recording is renewed after so many operations, lest memory grow with the timing.
OPS = 1000
CHAIN = 50
CHAINS = 20

rng = np.random.default_rng(0)
VECTOR = rng.uniform(0.5, 1.5, 8).astype(np.float32)
MATRIX = rng.uniform(0.5, 1.5, (16, 16)).astype(np.float32)
# Near 1, so that a product of 50 is neither large nor denormal.
FACTOR = rng.uniform(0.99, 1.01, 8).astype(np.float32)
OPERANDS = {
    "multiply": (VECTOR, FACTOR),
    "add": (VECTOR, FACTOR),
    "exp": (VECTOR,),
    "sum": (VECTOR,),
    "matmul": (MATRIX, MATRIX),
}

Function = Callable[[object], object]  # of one array, in the library's own type
Sweep = Callable[[], object]


def again(op: Callable, rest: list, ops: int) -> Function:
    """`ops` calls of `op(x, *rest)`, one after the other, the results dropped."""

    def unary(x: object) -> object:
        for _ in repeat(None, ops):
            y = op(x)
        return y

    def binary(x: object) -> object:  # spelled out: `*rest` in the loop costs 30 ns
        for _ in repeat(None, ops):
            y = op(x, other)
        return y

    other = rest[0] if rest else None
    return binary if rest else unary


def chain(op: Callable, *rest: object) -> Function:
    """`op(op(... op(x, *rest) ..., *rest), *rest)`, `CHAIN` deep."""

    def nested(x: object) -> object:
        for _ in repeat(None, CHAIN):
            x = op(x, *rest)
        return x

    return nested


def named(module: object, **others: Callable) -> dict[str, Callable]:
    """The operations by name, for a library that keeps NumPy's names."""
    return {name: getattr(module, name) for name in (*OPERANDS, "sin")} | others


def calls(
    ops: dict[str, Callable],
    array: Callable[[np.ndarray], object],
    plain: Callable[[Function, object], object],
    recorded: Callable[[Function, object], object],
    count: int = OPS,
) -> dict[str, timing.Case]:
    """Each operation alone; `plain(f, x)` and `recorded(f, x)` are two ways of f(x)."""
    cases = {}
    for name, operands in OPERANDS.items():
        x, *rest = map(array, operands)
        f = again(ops[name], rest, count)
        for case, call in (name, plain), (f"{name}, recorded", recorded):
            cases[case] = timing.Case(partial(partial, call, f, x), count)
    return cases


def sweeps(
    ops: dict[str, Callable],
    array: Callable[[np.ndarray], object],
    pullback: Callable[[Function, object], Sweep],
) -> dict[str, timing.Case]:
    """The way back; `pullback(f, x)` calls f(x) and returns what finds its gradient."""
    multiply, sin = chain(ops["multiply"], array(FACTOR)), chain(ops["sin"])
    return {
        "multiply, backward": swept(lambda: pullback(multiply, array(VECTOR))),
        "sin, backward": swept(lambda: pullback(sin, array(VECTOR))),
    }


def swept(record: Callable[[], Sweep]) -> timing.Case:
    """Only the sweeps are timed; each of them uses up its own recording."""

    def make() -> Sweep:
        ready = [record() for _ in range(CHAINS)]

        def run() -> None:
            for sweep in ready:
                sweep()

        return run

    return timing.Case(make, ops=CHAIN * CHAINS, renew=True)


def imported(module: str) -> dict[str, timing.Case]:
    command = [sys.executable, "-c", f"import numpy, {module}"]

    def run() -> None:
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True)

    return {"import": timing.Case(lambda: run)}


# ---- the sides -----------------------------------------------------------------------


def numpy_side() -> dict[str, timing.Case]:
    """The control. NumPy records nothing: its "recorded" calls are the plain ones."""

    def call(f: Function, x: np.ndarray) -> object:
        return f(x)

    def multiply_by_hand() -> None:
        g = np.ones_like(VECTOR)
        for _ in repeat(None, CHAIN):
            g = g * FACTOR

    def sin_by_hand() -> Sweep:
        x, inputs = VECTOR, []
        for _ in repeat(None, CHAIN):
            inputs.append(x)
            x = np.sin(x)

        def sweep() -> None:
            g = np.ones_like(VECTOR)
            for x in reversed(inputs):
                g = g * np.cos(x)

        return sweep

    by_hand = {
        "multiply, backward": swept(lambda: multiply_by_hand),
        "sin, backward": swept(sin_by_hand),
    }
    return calls(named(np), np.array, call, call) | by_hand | imported("numpy")


def eagergrad_side() -> dict[str, timing.Case]:
    import eagergrad as eg

    def plain(f: Function, x: eg.Tensor) -> eg.Tensor:
        return f(x)

    def recorded(f: Function, x: eg.Tensor) -> eg.Tensor:
        with eg.GradientTape() as tape:
            tape.watch(x)
            return f(x)

    def pullback(f: Function, x: eg.Tensor) -> Sweep:
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return lambda: tape.gradient(y, [x])

    ops = named(eg)
    return (
        calls(ops, eg.tensor, plain, recorded)
        | sweeps(ops, eg.tensor, pullback)
        | imported("eagergrad")
    )


def torch_side() -> dict[str, timing.Case]:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def plain(f: Function, x: torch.Tensor) -> torch.Tensor:
        return f(x)

    def recorded(f: Function, x: torch.Tensor) -> torch.Tensor:
        return f(x.detach().requires_grad_())

    def pullback(f: Function, x: torch.Tensor) -> Sweep:
        y = f(x.requires_grad_())
        g = torch.ones_like(y)
        return lambda: torch.autograd.grad(y, x, g)

    ops = named(torch)
    return (
        calls(ops, torch.tensor, plain, recorded)
        | sweeps(ops, torch.tensor, pullback)
        | imported("torch")
    )


def jax_side() -> dict[str, timing.Case]:
    import jax
    import jax.numpy as jnp

    def plain(f: Function, x: jax.Array) -> jax.Array:
        return jax.block_until_ready(f(x))

    def recorded(f: Function, x: jax.Array) -> jax.Array:
        return jax.block_until_ready(jax.vjp(f, x))

    def pullback(f: Function, x: jax.Array) -> Sweep:
        y, vjp = jax.vjp(f, x)
        g = jnp.ones_like(y)
        return lambda: jax.block_until_ready(vjp(g))

    ops = named(jnp)
    return (
        calls(ops, jnp.array, plain, recorded, count=OPS // 10)
        | sweeps(ops, jnp.array, pullback)
        | imported("jax")
    )


def autograd_side() -> dict[str, timing.Case]:
    import autograd
    import autograd.numpy as anp

    def plain(f: Function, x: np.ndarray) -> np.ndarray:
        return f(x)

    def recorded(f: Function, x: np.ndarray) -> object:
        return autograd.make_vjp(f)(x)

    def pullback(f: Function, x: np.ndarray) -> Sweep:
        vjp, y = autograd.make_vjp(f)(x)
        g = np.ones_like(y)
        return lambda: vjp(g)

    ops = named(anp)
    return (
        calls(ops, np.array, plain, recorded)
        | sweeps(ops, np.array, pullback)
        | imported("autograd.numpy")
    )


def mygrad_side() -> dict[str, timing.Case]:
    import mygrad

    def plain(f: Function, x: mygrad.Tensor) -> mygrad.Tensor:
        with mygrad.no_autodiff:
            return f(x)

    def recorded(f: Function, x: mygrad.Tensor) -> mygrad.Tensor:
        return f(mygrad.tensor(x, constant=False))

    def pullback(f: Function, x: mygrad.Tensor) -> Sweep:
        return recorded(f, x).backward

    ops, constant = named(mygrad), partial(mygrad.tensor, constant=True)
    return (
        calls(ops, constant, plain, recorded)
        | sweeps(ops, constant, pullback)
        | imported("mygrad")
    )


SIDES = {
    "numpy": timing.Side("numpy", numpy_side),
    "eagergrad": timing.Side("eagergrad", eagergrad_side),
    "torch": timing.Side("torch", torch_side),
    "jax": timing.Side("jax", jax_side),
    "autograd": timing.Side("autograd", autograd_side),
    "mygrad": timing.Side("mygrad", mygrad_side),
}

CLAIMS = [
    timing.Claim("multiply", "eagergrad", "-", "numpy"),
    timing.Claim("multiply, recorded", "eagergrad", "-", "numpy", "<= 1.0"),
    timing.Claim("add, recorded", "torch", "/", "eagergrad"),
    timing.Claim("multiply, recorded", "torch", "/", "eagergrad"),
    timing.Claim("multiply, backward", "torch", "/", "eagergrad"),
    timing.Claim("sin, backward", "torch", "/", "eagergrad"),
    timing.Claim("import", "eagergrad", "-", "numpy", "<= 60000"),
]

if __name__ == "__main__":
    timing.main("overhead", SIDES, CLAIMS, __doc__)
