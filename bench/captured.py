"""The time of whole programs, eager and captured, beside peers.

"chain": ten elementwise functions of a million floats.  "lstm": the objective of
ADBench's LSTM (2 layers, 14 wide, a sequence of 1024) and its gradient: some 30,000
ops on a few numbers each.  "cnn" and "transformer": a training step, by Adam, of the
models in models.py.
"""

import os
from types import SimpleNamespace

import numpy as np
import timing
from models import MODELS

LAYERS, WIDTH, LENGTH = 2, 14, 1024
RATE, BETA_1, BETA_2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
rng = np.random.default_rng(0)
CHAIN = rng.normal(size=10**6).astype(np.float32)
MAIN = rng.normal(0, 0.5, (2 * LAYERS, 4 * WIDTH)).astype(np.float32)
EXTRA = rng.normal(0, 0.5, (3, WIDTH)).astype(np.float32)
STATE = rng.normal(0, 0.5, (2 * LAYERS, WIDTH)).astype(np.float32)
SEQUENCE = rng.integers(2, size=(LENGTH, WIDTH)).astype(np.float32)


def chain(xp, x):
    """Ten ops, with the names that all array libraries have."""
    y = xp.tanh(x * 1.5 + 0.25)
    y = xp.exp(-y) * y
    return 1.0 / (1.0 + y * y) - x


def objective(xp, main, extra, state, sequence):
    """The mean of -log p of each character, from the one before; from ADBench."""
    b, total = WIDTH, 0.0
    states = [state[i] for i in range(2 * LAYERS)]
    weights = [main[i] for i in range(2 * LAYERS)]
    scale, out_weight, out_bias = extra[0], extra[1], extra[2]
    for t in range(LENGTH - 1):
        x = sequence[t] * scale
        for i in range(0, 2 * LAYERS, 2):
            hidden, cell = states[i], states[i + 1]
            gates = xp.concatenate([x, hidden, x, hidden]) * weights[i] + weights[i + 1]
            forget, enter = xp.sigmoid(gates[:b]), xp.sigmoid(gates[b : 2 * b])
            leave, change = xp.sigmoid(gates[2 * b : 3 * b]), xp.tanh(gates[3 * b :])
            cell = cell * forget + enter * change
            x = leave * xp.tanh(cell)
            states[i], states[i + 1] = x, cell
        y = x * out_weight + out_bias
        y = y - xp.log(2.0 + xp.sum(xp.exp(y)))
        total = total + xp.sum(sequence[t + 1] * y)
    return -total / ((LENGTH - 1) * b)


def case(run, ops=1):
    """A case whose values are sums of what it returns."""

    def values():
        found = run()
        parts = found if isinstance(found, (list, tuple)) else [found]
        return [float(np.asarray(part, np.float64).sum()) for part in parts]

    return timing.Case(lambda: run, ops=ops, values=values)


def training(step_of):
    """A case for each model: step_of(loss, params, x, y) gives the step, () -> loss."""

    def train(name):
        start, loss = MODELS[name]
        return step_of(loss, *start())

    def values(name):
        step = train(name)
        return [float(step()) for _ in range(3)]

    return {
        name: timing.Case(
            lambda name=name: train(name), values=lambda name=name: values(name)
        )
        for name in MODELS
    }


def by_hand():
    return {"chain": case(lambda: chain(np, CHAIN))}


def eagergrad_side(captured):
    import eagergrad as eg

    def maybe(f):
        return eg.function(f) if captured else f

    x = eg.tensor(CHAIN)
    run = maybe(lambda x: chain(eg, x))
    params = [eg.tensor(p) for p in (MAIN, EXTRA)]
    state, sequence = eg.tensor(STATE), eg.tensor(SEQUENCE)

    @maybe
    def gradient(main, extra, state, sequence):
        with eg.GradientTape() as tape:
            tape.watch([main, extra])
            loss = objective(eg, main, extra, state, sequence)
        return [loss, *tape.gradient(loss, [main, extra])]

    ops = SimpleNamespace(
        conv=lambda x, w: eg.conv2d(x, w, padding="same"),
        max_pool=lambda x: eg.max_pool2d(x, 2),
        relu=eg.relu,
        cross_entropy=lambda x, y: eg.mean(eg.softmax_cross_entropy(x, y)),
        embedding=eg.embedding,
        layer_norm=eg.layer_norm,
        transpose=eg.transpose,
        causal_attention=lambda q, k, v: eg.scaled_dot_product_attention(
            q, k, v, causal=True
        ),
        gelu=eg.gelu,
    )

    def step_of(loss_of, params, x, y):
        variables = [eg.Variable(w) for w in params]
        adam = eg.optim.Adam(RATE, BETA_1, BETA_2, EPSILON)
        x, y = eg.tensor(x), eg.tensor(y)

        @maybe
        def step(x, y):
            with eg.GradientTape() as tape:
                loss = loss_of(ops, variables, x, y)
            gradients = tape.gradient(loss, variables)
            adam.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        return lambda: step(x, y)

    return {
        "chain": case(lambda: run(x)),
        "lstm": case(lambda: gradient(*params, state, sequence)),
        **training(step_of),
    }


def torch_side():
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    x = torch.tensor(CHAIN)
    params = [torch.tensor(p, requires_grad=True) for p in (MAIN, EXTRA)]
    state, sequence = torch.tensor(STATE), torch.tensor(SEQUENCE)

    def gradient():
        loss = objective(torch, *params, state, sequence)
        found = [loss, *torch.autograd.grad(loss, params)]
        return [part.detach() for part in found]

    ops = SimpleNamespace(
        conv=lambda x, w: F.conv2d(x, w, padding=1),
        max_pool=lambda x: F.max_pool2d(x, 2),
        relu=F.relu,
        cross_entropy=F.cross_entropy,
        embedding=lambda table, ids: F.embedding(ids, table),
        layer_norm=lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        transpose=torch.permute,
        causal_attention=lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=True
        ),
        gelu=F.gelu,
    )

    def step_of(loss_of, params, x, y):
        params = [torch.tensor(w, requires_grad=True) for w in params]
        adam = torch.optim.Adam(params, RATE, (BETA_1, BETA_2), EPSILON, fused=True)
        x, y = torch.from_numpy(x), torch.from_numpy(y)

        def step():
            adam.zero_grad()
            loss = loss_of(ops, params, x, y)
            loss.backward()
            adam.step()
            return loss.detach()

        return step

    return {
        "chain": case(lambda: chain(torch, x)),
        "lstm": case(gradient),
        **training(step_of),
    }


def jax_side():
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(CHAIN)
    run = jax.jit(lambda x: chain(jnp, x))

    def cross_entropy(x, y):
        return -jnp.mean(jax.nn.log_softmax(x)[jnp.arange(len(y)), y])

    def layer_norm(x, gain, shift):
        away = x - jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean(away * away, -1, keepdims=True)
        return away / jnp.sqrt(variance + 1e-5) * gain + shift

    def causal_attention(q, k, v):
        scores = q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
        seen = jnp.tri(q.shape[-2], dtype=bool)
        return jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ v

    ops = SimpleNamespace(
        conv=lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"),
        max_pool=lambda x: jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
        ),
        relu=jax.nn.relu,
        cross_entropy=cross_entropy,
        embedding=lambda table, ids: table[ids],
        layer_norm=layer_norm,
        transpose=jnp.transpose,
        causal_attention=causal_attention,
        gelu=lambda x: jax.nn.gelu(x, approximate=False),
    )

    def step_of(loss_of, params, x, y):
        def update(state, x, y):
            params, first, second, t = state
            t = t + 1
            loss, gradients = jax.value_and_grad(
                lambda params: loss_of(ops, params, x, y)
            )(params)
            root = jnp.sqrt(1 - BETA_2**t)
            rate = RATE * root / (1 - BETA_1**t)

            def moved(w, m, v):
                return w - rate * m / (jnp.sqrt(v) + EPSILON * root)

            def mean(beta, old, new):
                return beta * old + (1 - beta) * new

            first = [mean(BETA_1, *p) for p in zip(first, gradients, strict=True)]
            squares = [g * g for g in gradients]
            second = [mean(BETA_2, *p) for p in zip(second, squares, strict=True)]
            params = [moved(*p) for p in zip(params, first, second, strict=True)]
            return loss, (params, first, second, t)

        update = jax.jit(update, donate_argnums=0)
        params, x, y = jax.tree.map(jnp.array, (params, x, y))
        first, second = ([jnp.zeros_like(w) for w in params] for _ in "mv")
        state = params, first, second, jnp.float32(0)

        def step():
            nonlocal state
            loss, state = update(state, x, y)
            return jax.block_until_ready(loss)

        return step

    return {
        "chain": case(lambda: jax.block_until_ready(run(x))),
        **training(step_of),
    }


SIDES = {
    "numpy": timing.Side("numpy", by_hand),
    "eagergrad": timing.Side("eagergrad", lambda: eagergrad_side(False)),
    "eg function": timing.Side("eagergrad", lambda: eagergrad_side(True)),
    "torch": timing.Side("torch", torch_side),
    "jax jit": timing.Side("jax", jax_side),
}

CLAIMS = [
    timing.Claim("chain", "numpy", "/", "eg function", ">= 3"),
    timing.Claim("chain", "jax jit", "/", "eg function", ">= 1"),
    timing.Claim("chain", "torch", "/", "eg function"),
    timing.Claim("lstm", "torch", "/", "eg function", ">= 20"),
    timing.Claim("lstm", "torch", "/", "eagergrad"),
    *(
        timing.Claim(model, peer, "/", "eg function", goal)
        for model in MODELS
        for peer, goal in (("jax jit", ">= 1"), ("torch", None), ("eagergrad", None))
    ),
]

if __name__ == "__main__":
    timing.main("captured", SIDES, CLAIMS, __doc__)
