"""jvp, vjp, jacobian, hessian, hvp and batch_jacobian of functions."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import derivatives, gradient_tape

X = np.array([0.5, -1.0, 2.0])


def f(x):
    return eg.stack([x[0] * x[1], eg.sin(x[2]), eg.sum(x * x)])


J = np.array([[-1.0, 0.5, 0.0], [0.0, 0.0, np.cos(2.0)], [1.0, -2.0, 4.0]])


def test_jvp_and_vjp_are_transposes():
    v, w = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    value, tangent = eg.jvp(f, [X], [v])
    np.testing.assert_allclose(value.numpy(), f(eg.tensor(X)).numpy())
    np.testing.assert_allclose(tangent.numpy(), J @ v)
    _, pull = eg.vjp(f, X)
    np.testing.assert_allclose(pull(w)[0].numpy(), J.T @ w)


@pytest.mark.parametrize("mode", [None, "reverse", "forward"])
def test_jacobian_in_both_modes(mode):
    np.testing.assert_allclose(eg.jacobian(f, mode=mode)(X).numpy(), J)


def test_jacobian_of_complex_numbers_is_the_same_in_both_modes():
    """A row is dRe(y)/dRe(x) + i dRe(y)/dIm(x): for y = x^2 it is 2 conj(x)."""
    z, x = np.array([1 + 1j, 2j, 0.5]), np.array([1.0, -2.0, 0.5])
    for f, point, expected in (
        (lambda z: z * z, z, 2 * z.conj()),
        (eg.conj, z, np.ones(3, complex)),
        (eg.absolute, z, z / abs(z)),
        (lambda x: x * (3 + 2j), x, np.full(3, 3.0)),
    ):
        for mode in ("reverse", "forward"):
            found = eg.jacobian(f, mode=mode)(point)
            assert found.dtype == point.dtype
            np.testing.assert_allclose(found.numpy(), np.diag(expected), atol=1e-15)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobian_by_several_arguments_and_of_structures(mode):
    def g(x, scale, y):
        return {"product": x * y * scale, "sum": eg.sum(y)}

    by_y, by_x = eg.jacobian(g, [2, 0], mode)(np.ones(2), 3.0, np.array([4.0, 5.0]))
    np.testing.assert_allclose(by_y["product"].numpy(), np.diag([3.0, 3.0]))
    np.testing.assert_allclose(by_x["product"].numpy(), np.diag([12.0, 15.0]))
    np.testing.assert_allclose(by_y["sum"].numpy(), [1.0, 1.0])
    np.testing.assert_allclose(by_x["sum"].numpy(), [0.0, 0.0])


def test_forward_mode_is_chosen_for_tall_jacobians(monkeypatch):
    calls = []

    def tall(x):
        calls.append(1)
        return x * eg.arange(100.0)

    eg.jacobian(tall)(2.0)
    assert len(calls) == 2  # once for the shapes, once for the only column
    calls.clear()
    eg.jacobian(lambda x: eg.sum(tall(x)))(2.0)
    assert len(calls) == 1


def test_jacobians_nest():
    second = eg.jacobian(eg.jacobian(lambda x: x * x * x))(np.array([1.0, 2.0]))
    expected = np.zeros((2, 2, 2))
    expected[0, 0, 0], expected[1, 1, 1] = 6.0, 12.0
    np.testing.assert_allclose(second.numpy(), expected)


def rosenbrock(x):
    return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] ** 2) ** 2


# at (1, 0): 2 + 1200 x^2 - 400 y, -400 x, 200
HESSIAN = np.array([[1202.0, -400.0], [-400.0, 200.0]])


def test_hessian_and_its_product():
    x = np.array([1.0, 0.0])
    np.testing.assert_allclose(eg.hessian(rosenbrock)(x).numpy(), HESSIAN)
    v = np.array([2.0, -1.0])
    np.testing.assert_allclose(eg.hvp(rosenbrock, x, v).numpy(), HESSIAN @ v)


def test_third_derivative_by_all_modes():
    def slope(x):
        return eg.hessian(lambda x: eg.sum(x**4))(x)

    for mode in ("forward", "reverse"):
        third = eg.jacobian(slope, mode=mode)(np.array([2.0]))
        np.testing.assert_allclose(third.numpy(), [[[48.0]]])


def test_batch_jacobian():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = eg.batch_jacobian(lambda x: x * x)(x).numpy()
    np.testing.assert_allclose(found, [np.diag([2.0, 4.0]), np.diag([6.0, 8.0])])


def test_unconnected_is_zero():
    constant = eg.jacobian(lambda x: eg.ones(2))(np.ones(3))
    np.testing.assert_array_equal(constant.numpy(), np.zeros((2, 3)))
    linear = eg.hessian(lambda x: eg.sum(2.0 * x))(np.ones(2))
    np.testing.assert_array_equal(linear.numpy(), np.zeros((2, 2)))


def test_empty_argument():
    for mode in ("forward", "reverse"):
        found = eg.jacobian(lambda x: x * 2.0, mode=mode)(np.ones(0))
        assert found.shape == (0, 0)


def test_mistakes():
    with pytest.raises(ValueError, match="mode"):
        eg.jacobian(f, mode="sideways")
    with pytest.raises(ValueError, match="no positional argument 1"):
        eg.jacobian(f, 1)(X)
    with pytest.raises(ValueError, match=r"scalar value, got \(3,\)"):
        eg.hessian(f)(X)
    with pytest.raises(ValueError, match="returned None"):
        eg.jvp(lambda x: None, [X], [X])


class Sweeps:
    """The rows of each reverse sweep, and the columns of forward mode, as they run."""

    def __init__(self, monkeypatch):
        self.rows, self.columns = [], 0
        sweep_rows, accumulator = gradient_tape.sweep_rows, eg.ForwardAccumulator

        def reverse(tape, cotangents, sources, count):
            self.rows.append(count)
            return sweep_rows(tape, cotangents, sources, count)

        def forward(primals, tangents):
            self.columns += 1
            return accumulator(primals, tangents)

        monkeypatch.setattr(gradient_tape, "sweep_rows", reverse)
        monkeypatch.setattr(derivatives, "ForwardAccumulator", forward)


@pytest.mark.parametrize(
    ("n", "m", "rows", "columns"),
    [(50, 1, [1], 0), (20, 20, [20], 0), (5, 20, [20], 0), (4, 20, [], 4)],
    ids=["wide", "square", "at the limit", "tall"],
)
def test_jacobian_takes_the_mode_with_fewer_sweeps(monkeypatch, n, m, rows, columns):
    weights = np.linspace(-1, 1, m * n).reshape(m, n)
    sweeps = Sweeps(monkeypatch)
    found = eg.jacobian(lambda x: eg.sin(eg.matmul(weights, x)))(np.ones(n))
    expected = np.cos(weights.sum(1))[:, None] * weights
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    assert (sweeps.rows, sweeps.columns) == (rows, columns)


def test_jacobian_counts_all_arguments(monkeypatch):
    sweeps = Sweeps(monkeypatch)
    outer = eg.jacobian(lambda x, y: eg.expand_dims(x, 1) * y, [0, 1])
    by_x, by_y = outer(np.ones(2), np.ones(3))  # 5 columns, 6 rows
    assert (by_x.shape, by_y.shape) == ((2, 3, 2), (2, 3, 3))
    assert (sweeps.rows, sweeps.columns) == ([6], 0)


def test_hessian_is_one_sweep_and_its_product_none(monkeypatch):
    sweeps = Sweeps(monkeypatch)
    x = np.linspace(0.1, 1, 10)
    found = eg.hessian(lambda x: eg.sum(x**3))(x).numpy()
    np.testing.assert_allclose(found, np.diag(6 * x))
    assert (sweeps.rows, sweeps.columns) == ([10], 0)
    eg.hvp(lambda x: eg.sum(x**3), x, x)
    assert (sweeps.rows, sweeps.columns) == ([10], 1)
