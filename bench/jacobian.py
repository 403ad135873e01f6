"""A Jacobian of a 100 to 100 map: all rows in one sweep, against a sweep per row.

python bench/jacobian.py
"""

import timeit

import numpy as np

import eagergrad as eg

SIZE = 100


def best_ms(f, number):
    """The best of several runs, in milliseconds."""
    return min(timeit.repeat(f, number=number, repeat=9)) / number * 1e3


def main():
    """Print the two times and their ratio."""
    rng = np.random.default_rng(0)
    w = eg.tensor((rng.normal(size=(SIZE, SIZE)) / 10).astype(np.float32))
    x = eg.tensor(rng.normal(size=(1, SIZE)).astype(np.float32))
    rows = [eg.tensor(row[None]) for row in np.eye(SIZE, dtype=np.float32)]
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = eg.tanh(eg.tanh(x @ w) @ w)

    def sweeps():
        return [tape.gradient(y, x, output_gradients=row) for row in rows]

    np.testing.assert_allclose(
        tape.jacobian(y, x).numpy().reshape(SIZE, SIZE),
        np.concatenate([g.numpy() for g in sweeps()]),
        rtol=1e-4,
        atol=1e-6,
    )
    together = best_ms(lambda: tape.jacobian(y, x), 20)
    singly = best_ms(sweeps, 3)
    print(f"jacobian, all rows in one sweep   {together:8.3f} ms")
    print(f"a sweep for each of {SIZE} rows      {singly:8.3f} ms")
    print(f"ratio                             {singly / together:8.1f}")


if __name__ == "__main__":
    main()
