"""The time of a small model's gradient and of its Adam step, in eagergrad and peers.

Two multilayer perceptrons (ReLU, softmax cross-entropy with integer labels, mean loss,
float32): "mlp" with layers 64-128-128-10 and 64 examples, whose floor is its eight
matrix products, and "tiny" with layers 8-16-16-4 and one example, which is overhead
and nothing else.

Each side is written as its library's own layers and losses are: eagergrad calls
`dense`, with relu within it, and `softmax_cross_entropy` with `mean`; PyTorch `addmm`
(what `linear` calls), `relu` and `cross_entropy`, which takes the mean; the others have
no layer but `x @ w + b`.
"""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import timing

RATE, BETA_1, BETA_2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
STEPS = 25


@dataclass(frozen=True)
class Problem:
    """The same start for every side: params are w1, b1, w2, b2, w3, b3."""

    params: list[np.ndarray]
    x: np.ndarray
    labels: np.ndarray


def problem(sizes: tuple[int, ...], batch: int) -> Problem:
    rng = np.random.default_rng(0)
    params = []
    for n, m in pairwise(sizes):
        params.append(rng.normal(0, math.sqrt(2 / n), (n, m)).astype(np.float32))
        params.append(rng.normal(0, 0.1, m).astype(np.float32))
    x = rng.normal(size=(batch, sizes[0])).astype(np.float32)
    return Problem(params, x, rng.integers(sizes[-1], size=batch))


PROBLEMS = {"mlp": problem((64, 128, 128, 10), 64), "tiny": problem((8, 16, 16, 4), 1)}

# A side gives these two. Neither copies its result out: what a training loop would not
# do is not timed.
Gradient = Callable[[], tuple[object, Iterable]]  # () -> loss, gradients
Step = Callable[[], object]  # () -> loss, with the parameters moved


def cases(
    gradient: Callable[[Problem], Gradient], adam: Callable[[Problem], Step]
) -> dict[str, timing.Case]:
    """The cases of a side; one without Adam (`None`) has only half of them."""
    found = {}
    for name, p in PROBLEMS.items():
        found[f"{name} gradient"] = gradient_case(gradient, p)
        if adam:
            found[f"{name} Adam step"] = adam_case(adam, p)
    return found


def norm(gradient: object) -> float:
    return float(np.linalg.norm(np.asarray(gradient)))


def gradient_case(gradient: Callable[[Problem], Gradient], p: Problem) -> timing.Case:
    def values() -> list[float]:
        loss, gradients = gradient(p)()
        return [loss.item(), *map(norm, gradients)]

    return timing.Case(lambda: gradient(p), values=values)


def adam_case(adam: Callable[[Problem], Step], p: Problem) -> timing.Case:
    def make() -> Callable[[], None]:
        # From the start each time: a model trained for as long as it is timed ends
        # among denormal numbers, which are slow on some sides and flushed on others.
        step = adam(p)
        step()  # makes the optimizer's state

        def run() -> None:
            for _ in range(STEPS):
                loss = step()
            loss.item()  # waits, where steps are queued

        return run

    def values() -> list[float]:
        step = adam(p)
        return [step().item() for _ in range(5)]

    return timing.Case(make, ops=STEPS, renew=True, values=values)


# ---- the sides -----------------------------------------------------------------------


def by_hand() -> dict[str, timing.Case]:
    def loss_and_gradients(params: list, x: np.ndarray, labels: np.ndarray) -> tuple:
        w1, b1, w2, b2, w3, b3 = params
        h1 = np.maximum(x @ w1 + b1, 0)
        h2 = np.maximum(h1 @ w2 + b2, 0)
        logits = h2 @ w3 + b3

        rows = np.arange(len(x))
        logits -= logits.max(axis=1, keepdims=True)
        e = np.exp(logits)
        total = e.sum(axis=1, keepdims=True)
        loss = (np.log(total[:, 0]) - logits[rows, labels]).mean()

        d = e / total
        d[rows, labels] -= 1
        d /= len(x)
        dw3, db3 = h2.T @ d, d.sum(axis=0)
        d = (d @ w3.T) * (h2 > 0)
        dw2, db2 = h1.T @ d, d.sum(axis=0)
        d = (d @ w2.T) * (h1 > 0)
        dw1, db1 = x.T @ d, d.sum(axis=0)
        return loss, [dw1, db1, dw2, db2, dw3, db3]

    def gradient(p: Problem) -> Gradient:
        return lambda: loss_and_gradients(p.params, p.x, p.labels)

    def adam(p: Problem) -> Step:
        params = [w.copy() for w in p.params]
        first = [np.zeros_like(w) for w in params]
        second = [np.zeros_like(w) for w in params]
        t = 0

        def step() -> np.float32:
            nonlocal t
            t += 1
            loss, gradients = loss_and_gradients(params, p.x, p.labels)
            root = math.sqrt(1 - BETA_2**t)
            rate = RATE * root / (1 - BETA_1**t)
            for w, g, m, v in zip(params, gradients, first, second, strict=True):
                m *= BETA_1
                m += (1 - BETA_1) * g
                v *= BETA_2
                v += (1 - BETA_2) * (g * g)
                w -= rate * m / (np.sqrt(v) + EPSILON * root)
            return loss

        return step

    return cases(gradient, adam)


def eagergrad_sides(use_tape: bool) -> dict[str, timing.Case]:
    import eagergrad as eg

    def setup(p: Problem) -> tuple:
        """The Variables, and () -> (loss, [(gradient, variable)])."""
        w1, b1, w2, b2, w3, b3 = variables = [eg.Variable(w) for w in p.params]
        x, labels = eg.tensor(p.x), eg.tensor(p.labels)

        def loss() -> eg.Tensor:
            h1 = eg.dense(x, w1, b1, eg.relu)
            h2 = eg.dense(h1, w2, b2, eg.relu)
            logits = eg.dense(h2, w3, b3)
            return eg.softmax_cross_entropy(logits, labels, mean=True)

        def with_tape() -> tuple:
            with eg.GradientTape() as tape:
                value = loss()
            gradients = tape.gradient(value, variables)
            return value, zip(gradients, variables, strict=True)

        return with_tape if use_tape else eg.implicit_value_and_gradients(loss)

    def gradient(p: Problem) -> Gradient:
        pairs_of = setup(p)

        def run() -> tuple:
            loss, pairs = pairs_of()
            return loss, [g for g, _ in pairs]

        return run

    def adam(p: Problem) -> Step:
        pairs_of = setup(p)
        optimizer = eg.optim.Adam(learning_rate=RATE)

        def step() -> eg.Tensor:
            loss, pairs = pairs_of()
            optimizer.apply_gradients(pairs)
            return loss

        return step

    return cases(gradient, adam)


def captured_side() -> dict[str, timing.Case]:
    import eagergrad as eg

    def setup(p: Problem) -> Callable[..., tuple]:
        w1, b1, w2, b2, w3, b3 = [eg.Variable(w) for w in p.params]

        def loss(x: eg.Tensor, labels: eg.Tensor) -> eg.Tensor:
            h1 = eg.dense(x, w1, b1, eg.relu)
            h2 = eg.dense(h1, w2, b2, eg.relu)
            logits = eg.dense(h2, w3, b3)
            return eg.softmax_cross_entropy(logits, labels, mean=True)

        return eg.implicit_value_and_gradients(loss)

    def gradient(p: Problem) -> Gradient:
        pairs_of = setup(p)
        x, labels = eg.tensor(p.x), eg.tensor(p.labels)

        @eg.function
        def run(x: eg.Tensor, labels: eg.Tensor) -> tuple:
            loss, pairs = pairs_of(x, labels)
            return loss, [g for g, _ in pairs]

        return lambda: run(x, labels)

    def adam(p: Problem) -> Step:
        pairs_of = setup(p)
        x, labels = eg.tensor(p.x), eg.tensor(p.labels)
        optimizer = eg.optim.Adam(learning_rate=RATE)

        @eg.function
        def step(x: eg.Tensor, labels: eg.Tensor) -> eg.Tensor:
            loss, pairs = pairs_of(x, labels)
            optimizer.apply_gradients(pairs)
            return loss

        return lambda: step(x, labels)

    return cases(gradient, adam)


def torch_side() -> dict[str, timing.Case]:
    import torch
    from torch.nn import functional

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_default_device(os.environ["EAGERGRAD_DEVICE"])

    def setup(p: Problem) -> tuple:
        params = [torch.tensor(w, requires_grad=True) for w in p.params]
        w1, b1, w2, b2, w3, b3 = params
        x, labels = torch.tensor(p.x), torch.tensor(p.labels)

        def loss() -> torch.Tensor:  # addmm is what functional.linear calls
            h1 = functional.relu(torch.addmm(b1, x, w1))
            h2 = functional.relu(torch.addmm(b2, h1, w2))
            return functional.cross_entropy(torch.addmm(b3, h2, w3), labels)

        return params, loss

    def gradient(p: Problem) -> Gradient:
        params, loss = setup(p)

        def run() -> tuple:
            value = loss()
            return value, torch.autograd.grad(value, params)

        return run

    def adam(p: Problem) -> Step:
        params, loss = setup(p)
        optimizer = torch.optim.Adam(params, lr=RATE, fused=True)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
            return value

        return step

    return cases(gradient, adam)


def jax_side() -> dict[str, timing.Case]:
    import jax
    import jax.numpy as jnp

    def loss(params: list, x: jax.Array, labels: jax.Array) -> jax.Array:
        w1, b1, w2, b2, w3, b3 = params
        h1 = jax.nn.relu(x @ w1 + b1)
        h2 = jax.nn.relu(h1 @ w2 + b2)
        log_p = jax.nn.log_softmax(h2 @ w3 + b3)
        return -jnp.mean(log_p[jnp.arange(len(x)), labels])

    value_and_grad = jax.jit(jax.value_and_grad(loss))

    def gradient(p: Problem) -> Gradient:
        params, x, labels = jax.tree.map(jnp.asarray, (p.params, p.x, p.labels))
        return lambda: jax.block_until_ready(value_and_grad(params, x, labels))

    def update(state: tuple, x: jax.Array, labels: jax.Array) -> tuple:
        params, first, second, t = state
        t = t + 1
        value, gradients = jax.value_and_grad(loss)(params, x, labels)
        root = jnp.sqrt(1 - BETA_2**t)
        rate = RATE * root / (1 - BETA_1**t)

        def moment(beta: float, m: jax.Array, g: jax.Array) -> jax.Array:
            return beta * m + (1 - beta) * g

        def moved(w: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            return w - rate * m / (jnp.sqrt(v) + EPSILON * root)

        first = [moment(BETA_1, m, g) for m, g in zip(first, gradients, strict=True)]
        second = [
            moment(BETA_2, v, g * g) for v, g in zip(second, gradients, strict=True)
        ]
        params = [moved(*pmv) for pmv in zip(params, first, second, strict=True)]
        return value, (params, first, second, t)

    update = jax.jit(update, donate_argnums=0)

    def adam(p: Problem) -> Step:
        params, x, labels = jax.tree.map(jnp.array, (p.params, p.x, p.labels))
        first, second = ([jnp.zeros_like(w) for w in params] for _ in "mv")
        state = params, first, second, jnp.float32(0)

        def step() -> jax.Array:
            nonlocal state
            value, state = update(state, x, labels)
            return value

        return step

    return cases(gradient, adam)


def autograd_side() -> dict[str, timing.Case]:
    import autograd
    import autograd.numpy as anp
    from autograd.scipy.special import logsumexp

    def loss(params: list, x: np.ndarray, labels: np.ndarray) -> object:
        w1, b1, w2, b2, w3, b3 = params
        h1 = anp.maximum(x @ w1 + b1, 0)
        h2 = anp.maximum(h1 @ w2 + b2, 0)
        logits = h2 @ w3 + b3
        picked = logits[np.arange(len(x)), labels]
        return anp.mean(logsumexp(logits, axis=1) - picked)

    value_and_grad = autograd.value_and_grad(loss)

    def gradient(p: Problem) -> Gradient:
        return lambda: value_and_grad(p.params, p.x, p.labels)

    return cases(gradient, adam=None)


def mygrad_side() -> dict[str, timing.Case]:
    import mygrad
    from mygrad.nnet import relu, softmax_crossentropy

    def gradient(p: Problem) -> Gradient:
        w1, b1, w2, b2, w3, b3 = params = [mygrad.tensor(w) for w in p.params]

        def run() -> tuple:
            h1 = relu(p.x @ w1 + b1)
            h2 = relu(h1 @ w2 + b2)
            loss = softmax_crossentropy(h2 @ w3 + b3, p.labels)
            loss.backward()
            return loss, [w.grad for w in params]

        return run

    return cases(gradient, adam=None)


SIDES = {
    "numpy": timing.Side("numpy", by_hand),
    "eagergrad": timing.Side("eagergrad", lambda: eagergrad_sides(use_tape=False)),
    "eg tape": timing.Side("eagergrad", lambda: eagergrad_sides(use_tape=True)),
    "eg function": timing.Side("eagergrad", captured_side),
    "torch": timing.Side("torch", torch_side),
    "jax jit": timing.Side("jax", jax_side),
    "autograd": timing.Side("autograd", autograd_side),
    "mygrad": timing.Side("mygrad", mygrad_side),
}

CLAIMS = [
    timing.Claim("mlp gradient", "eagergrad", "/", "numpy", "<= 1.2"),
    timing.Claim("mlp gradient", "torch", "/", "eagergrad", ">= 1.8"),
    timing.Claim("tiny gradient", "eagergrad", "/", "numpy"),
    timing.Claim("tiny gradient", "torch", "/", "eagergrad", ">= 4"),
    timing.Claim("mlp Adam step", "eagergrad", "/", "numpy"),
    timing.Claim("mlp Adam step", "torch", "/", "eagergrad"),
    timing.Claim("tiny Adam step", "eagergrad", "/", "numpy"),
    timing.Claim("tiny Adam step", "torch", "/", "eagergrad"),
    timing.Claim("mlp Adam step", "eg function", "/", "numpy", "<= 0.6"),
    timing.Claim("mlp Adam step", "torch", "/", "eg function", ">= 2.5"),
    timing.Claim("mlp Adam step", "jax jit", "/", "eg function", ">= 1.6"),
    timing.Claim("tiny Adam step", "torch", "/", "eg function", ">= 12"),
    timing.Claim("tiny Adam step", "jax jit", "/", "eg function", ">= 3"),
]

if __name__ == "__main__":
    timing.main("steps", SIDES, CLAIMS, __doc__)
