"""The time of programs of many small ops, eager and captured, beside peers.

"chain": ten elementwise functions of a million floats.  "lstm": the objective of
ADBench's LSTM (2 layers, 14 wide, a sequence of 1024) and its gradient: some 30,000
ops on a few numbers each.
"""

import os

import numpy as np
import timing

LAYERS, WIDTH, LENGTH = 2, 14, 1024
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

    return {
        "chain": case(lambda: run(x)),
        "lstm": case(lambda: gradient(*params, state, sequence)),
    }


def torch_side():
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    x = torch.tensor(CHAIN)
    params = [torch.tensor(p, requires_grad=True) for p in (MAIN, EXTRA)]
    state, sequence = torch.tensor(STATE), torch.tensor(SEQUENCE)

    def gradient():
        loss = objective(torch, *params, state, sequence)
        found = [loss, *torch.autograd.grad(loss, params)]
        return [part.detach() for part in found]

    return {"chain": case(lambda: chain(torch, x)), "lstm": case(gradient)}


def jax_side():
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(CHAIN)
    run = jax.jit(lambda x: chain(jnp, x))
    return {"chain": case(lambda: jax.block_until_ready(run(x)))}


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
]

if __name__ == "__main__":
    timing.main("captured", SIDES, CLAIMS, __doc__)
