"""Norms and functions of matrices: NumPy's values, and the edges."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.testing import check_grads

rng = np.random.default_rng(0)
la = eg.linalg


def normal(*shape):
    return rng.normal(size=shape)


def complex_normal(*shape):
    return normal(*shape) + 1j * normal(*shape)


def gradient(f, x):
    return eg.gradients_function(f)(np.asarray(x))[0].numpy()


def same(got, expected):
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got.numpy(), expected, 1e-10, 1e-12)


ORDERS = [None, 1, -1, 2, -2, np.inf, -np.inf]


OF_VECTORS = [((3,), order) for order in [*ORDERS, 0, 3, 0.5, -3]]
OF_MATRICES = [
    (shape, order) for order in [*ORDERS, "fro", "nuc"] for shape in [(2, 3), (3, 3)]
]


@pytest.mark.parametrize(("shape", "order"), OF_VECTORS + OF_MATRICES)
def test_norms(shape, order):
    for x in (normal(*shape), complex_normal(*shape)):
        for keep in (False, True):
            same(la.norm(x, order, None, keep), np.linalg.norm(x, order, None, keep))
        if order != 0:
            check_grads(lambda x: la.norm(x, order), [x])


@pytest.mark.parametrize("axis", [0, -1, (0, 2), (2, 1)])
def test_norms_over_axes(axis):
    x = normal(2, 3, 4)
    for order in (None, 1, np.inf, 2):
        for keep in (False, True):
            same(la.norm(x, order, axis, keep), np.linalg.norm(x, order, axis, keep))


@pytest.mark.parametrize("order", [1, 2, 3.5, -2, 0, np.inf])
def test_vector_norms_at_zeros_infinities_and_nans(order):
    x = normal(2, 3)
    for first in (0.0, np.inf, np.nan):
        x[0, 0] = first
        with np.errstate(divide="ignore"):
            expected = np.linalg.vector_norm(x, ord=order, axis=1)
        same(la.vector_norm(x, ord=order, axis=1), expected)
    same(la.vector_norm(0 * x[1], ord=order), 0.0)
    if order not in (0, 1, np.inf):
        g = gradient(lambda x: la.vector_norm(x, ord=order), np.zeros(3))
        assert g.tolist() == [0, 0, 0]


def test_norms_do_not_overflow():
    for scale in (1e200, 1e-200, 5e-324):
        x = np.array([3.0, 4.0]) * scale
        assert la.norm(x).item() == 5 * scale
        g = gradient(la.norm, x)
        np.testing.assert_allclose(g, [0.6, 0.8], 1e-15 if scale > 1e-300 else 1)
    half = np.array([30000, 40000], "float16")
    assert la.norm(half).item() == np.float16(50000)
    assert la.norm(np.zeros(0)).item() == 0
    with pytest.raises(eg.errors.ShapeError, match="norm"):
        la.norm(np.ones((2, 2)), "none")


@pytest.mark.parametrize("p", [None, -2, 1, np.inf, "fro"])
def test_condition_numbers(p):
    a = normal(3, 3)
    same(la.cond(a, p), np.linalg.cond(a, p))
    check_grads(lambda a: la.cond(a, p), [a])


def test_rank():
    assert la.matrix_rank(np.outer([1.0, 2.0], [3.0, 4.0, 5.0])).item() == 1
    assert la.matrix_rank(np.zeros((2, 3, 4))).tolist() == [0, 0]
    assert la.matrix_rank(np.eye(3) * np.array([1, 0.1, 0.01]), 0.05).item() == 2


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 5])
def test_matrix_power(n):
    a = normal(2, 3, 3)
    same(la.matrix_power(a, n), np.linalg.matrix_power(a, n))
    check_grads(lambda a: la.matrix_power(a, n) + 0.0 * a, [a])


def test_expm():
    t = 20.0  # a rotation by 20: the norm is scaled down, and squared up again
    turn = np.array([[0.0, -t], [t, 0.0]])
    same(la.expm(turn), [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    same(la.expm(np.diag([1.0, -30.0])), np.diag(np.exp([1.0, -30.0])))
    check_grads(la.expm, [complex_normal(2, 3, 3)])


@pytest.mark.parametrize("shapes", [((5, 2), (5,)), ((5, 2), (5, 3)), ((2, 5), (2,))])
def test_least_squares(shapes):
    a, b = (normal(*shape) for shape in shapes)
    got, expected = la.lstsq(a, b), np.linalg.lstsq(a, b)
    for y, z in zip(got, expected, strict=True):
        same(y, z)
    check_grads(lambda a, b: la.lstsq(a, b)[:2], [a, b])
    with pytest.raises(eg.errors.ShapeError, match="lstsq"):
        la.lstsq(a, b[1:])


def test_functions_of_numpy_take_tensors():
    x = eg.tensor(normal(2, 3, 3))
    for name in ("norm", "inv", "det", "trace"):
        same(getattr(np.linalg, name)(x), getattr(np.linalg, name)(x.numpy()))
    same(np.trace(x), np.trace(x.numpy()))
    same(np.einsum("ijk,ikl", x, x), np.einsum("ijk,ikl", x.numpy(), x.numpy()))
    same(np.fft.fft(x), np.fft.fft(x.numpy()))
