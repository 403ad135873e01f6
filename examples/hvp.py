"""Nested tapes: Hessian-vector products, and Newton's method built on nothing else."""

import eagergrad as eg


def rosenbrock(x):
    """A curved valley with its lowest point, 0, at (1, 1)."""
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def gradient_and_hvp(f, x, v):
    """f'(x), and f''(x) v for the price of two gradients: no Hessian is formed."""
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        g = inner.gradient(y, x)  # inside the outer block, so it is recorded
    return g, outer.gradient(g, x, output_gradients=v)


def newton_step(f, x):
    """s with f''(x) s = -f'(x), by conjugate gradients: exact after len(x) steps."""
    g, _ = gradient_and_hvp(f, x, x)
    s, r, p = eg.zeros_like(x), -g, -g
    for _ in range(len(x)):
        _, hp = gradient_and_hvp(f, x, p)
        rate = eg.sum(r * r) / eg.sum(p * hp)
        s, r, before = s + rate * p, r - rate * hp, r
        p = r + eg.sum(r * r) / eg.sum(before * before) * p
    return s


x = eg.tensor([-1.2, 1.0], dtype="float64")
print("step       x0       x1           f")
for step in range(7):
    print(f"{step:4} {x[0]:8.4f} {x[1]:8.4f} {rosenbrock(x):11.6f}")
    x = x + newton_step(rosenbrock, x)

# Output:
# step       x0       x1           f
#    0  -1.2000   1.0000   24.200000
#    1  -1.1753   1.3807    4.731884
#    2   0.7631  -3.1750 1411.845179
#    3   0.7634   0.5828    0.055966
#    4   1.0000   0.9440    0.313189
#    5   1.0000   1.0000    0.000000
#    6   1.0000   1.0000    0.000000
