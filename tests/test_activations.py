"""Activations: numbers by hand, kinks, and the ends of the line."""

import math
import sys

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.testing import check_grads

INF = math.inf


def grad(f, x):
    x = eg.tensor(np.asarray(x))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x).numpy()


VALUES = {  # at -2, 0, 1
    "leaky_relu": [-0.02, 0, 1],
    "elu": [math.exp(-2) - 1, 0, 1],
    "celu": [math.exp(-2) - 1, 0, 1],
    "selu": [1.7580993408473766 * (math.exp(-2) - 1), 0, 1.0507009873554805],
    "gelu": [-0.0455002638963584, 0, 0.8413447460685429],
    "silu": [-2 / (1 + math.exp(2)), 0, 1 / (1 + math.exp(-1))],
    "mish": [-2 * math.tanh(math.log1p(math.exp(-2))), 0, 0.8650983882673103],
    "hard_sigmoid": [1 / 6, 0.5, 2 / 3],
    "hard_swish": [-1 / 3, 0, 2 / 3],
    "hard_tanh": [-1, 0, 1],
    "softsign": [-2 / 3, 0, 0.5],
    "relu6": [0, 0, 1],
    "log_sigmoid": [-math.log1p(math.exp(2)), -math.log(2), -math.log1p(math.exp(-1))],
    "tanhshrink": [-2 + math.tanh(2), 0, 1 - math.tanh(1)],
}
LIMITS = {  # of the value and of the slope at -inf and inf
    "leaky_relu": [-INF, INF, 0.01, 1],
    "elu": [-1, INF, 0, 1],
    "celu": [-1, INF, 0, 1],
    "selu": [-1.7580993408473766, INF, 0, 1.0507009873554805],
    "gelu": [0, INF, 0, 1],
    "silu": [0, INF, 0, 1],
    "mish": [0, INF, 0, 1],
    "hard_sigmoid": [0, 1, 0, 0],
    "hard_swish": [0, INF, 0, 1],
    "hard_tanh": [-1, 1, 0, 0],
    "softsign": [-1, 1, 0, 0],
    "relu6": [0, 6, 0, 0],
    "log_sigmoid": [-INF, 0, 1, 0],
    "tanhshrink": [-INF, INF, 1, 1],
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    y = getattr(eg, name)(np.array([-2.0, 0.0, 1.0]))
    np.testing.assert_allclose(y.numpy(), VALUES[name], 1e-14, 1e-16)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", VALUES)
def test_shapes_and_dtypes(name, dtype):
    f = getattr(eg, name)
    for shape in [(), (0,), (1,), (0, 3), (2, 3)]:
        assert f(np.ones(shape, dtype)).shape == shape
        assert f(np.ones(shape, dtype)).dtype == dtype
    x = np.linspace(-3.5, 3.7, 12, dtype=dtype).reshape(3, 4)
    for view in (x.T, x[:, ::-2]):
        np.testing.assert_array_equal(f(view).numpy(), f(view.copy()).numpy())
    if name != "hard_tanh":  # a choice among integers
        assert f([1, 2]).dtype == "float32" or name == "relu6"


@pytest.mark.parametrize("name", VALUES)
def test_ends_of_the_line(name):
    f, ends = getattr(eg, name), np.array([-INF, INF])
    got = [*f(ends).tolist(), *grad(f, ends)]
    np.testing.assert_allclose(got, LIMITS[name])
    for x in (-1e200, 1e200):
        assert np.isfinite(f(np.array(x)).numpy())
        assert np.isfinite(grad(f, x))
    assert np.isnan(f(np.array(math.nan)).numpy())


@pytest.mark.parametrize("name", [*VALUES, "gelu_tanh"])
def test_gradients(name):
    f = getattr(eg, name, lambda x: eg.gelu(x, approximate=True))
    check_grads(f, [np.array([[-4.2, -0.8, -0.1], [0.3, 1.9, 4.4]])])


def test_slopes_at_kinks():
    zero = np.array([0.0])
    assert grad(lambda x: eg.leaky_relu(x, 0.25), zero) == 0.25
    assert grad(lambda x: eg.elu(x, 0.5), zero) == 0.5
    assert grad(lambda x: eg.celu(x, 0.5), zero) == 1
    assert grad(eg.relu6, np.array([0.0, 6.0])).tolist() == [0, 1]
    assert grad(eg.hard_tanh, np.array([-1.0, 1.0])).tolist() == [1, 1]
    assert grad(eg.hard_sigmoid, np.array([-3.0, 3.0])).tolist() == [0, 0]
    assert grad(eg.hard_swish, np.array([-3.0, 3.0])).tolist() == [0, 1]
    assert grad(eg.softsign, zero) == 1


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "celu"])
def test_a_tensor_as_parameter_has_a_gradient(name):
    f = getattr(eg, name)
    x = np.array([[-INF, -4.2, -0.8], [0.3, 1.9, INF]])
    slopes = eg.tensor(np.array([[0.3], [0.7]]))
    for row, slope in enumerate((0.3, 0.7)):
        expected = f(x[row], slope).numpy()
        np.testing.assert_allclose(f(x, slopes).numpy()[row], expected)
    check_grads(f, [x[:, 1:2], np.array([0.3, 0.7])])
    with pytest.raises(eg.errors.DTypeError, match=f"{name}: expected real numbers"):
        f(1j, slopes)


def test_small_tails_keep_their_digits():
    assert grad(eg.elu, -40.0) == math.exp(-40)
    np.testing.assert_allclose(eg.gelu(np.array(-10.0)).item(), -7.619853024160525e-23)
    np.testing.assert_allclose(eg.tanhshrink(np.array(1e-4)).item(), 3.33333332e-13)
    np.testing.assert_allclose(eg.silu(np.array(-700.0)).item(), -700 * math.exp(-700))


def test_forms_of_gelu():
    x = np.linspace(-5, 5, 101)
    exact, tanh = eg.gelu(x).numpy(), eg.gelu(x, approximate=True).numpy()
    assert 1e-4 < abs(exact - tanh).max() < 5e-4
    np.testing.assert_array_equal(eg.gelu(x, "tanh").numpy(), tanh)
    np.testing.assert_array_equal(eg.gelu(x, "none").numpy(), exact)
    np.testing.assert_allclose(eg.gelu(np.array(1.0), True).item(), 0.8411919906082768)
    with pytest.raises(eg.errors.DTypeError, match="gelu: approximate: expected True"):
        eg.gelu(x, "fast")
    for f in (eg.gelu, lambda x: eg.gelu(x, True)):
        assert np.isfinite(grad(f, np.array([-300, 300], "f2"))).all()


def test_gelu_without_scipy(monkeypatch):
    x = np.linspace(-37, 9, 93)
    fast = eg.gelu(x).numpy()
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    np.testing.assert_allclose(eg.gelu(x).numpy(), fast, 5e-13)
    small = x[x < 5.5].astype("f4")
    assert eg.gelu(small).dtype == "float32"
    check_grads(eg.gelu, [np.array([-3.0, 0.2, 1.4])])


def test_threshold():
    x = np.array([0.5, 1.0, 2.0])
    assert eg.threshold(x, 1.0, -1.0).tolist() == [-1, -1, 2]
    assert grad(lambda x: eg.threshold(x, 1.0, -1.0), x).tolist() == [0, 0, 1]
    assert grad(lambda v: eg.threshold(x, 1.0, v), 7.0) == 2


def test_glu():
    x = np.array([[1.0, 2.0, 0.0, -1.0], [3.0, 4.0, 1.0, 9.0]])
    expected = x[:, :2] / (1 + np.exp(-x[:, 2:]))
    np.testing.assert_allclose(eg.glu(x).numpy(), expected)
    np.testing.assert_allclose(eg.glu(x.T, 0).numpy(), expected.T)
    check_grads(eg.glu, [x])
    assert eg.glu(np.ones((0, 2))).shape == (0, 1)
    with pytest.raises(eg.errors.ShapeError, match=r"glu: expected an axis of even.*3"):
        eg.glu(np.ones((2, 3)))
    with pytest.raises(eg.errors.ShapeError, match="glu: expected an axis"):
        eg.glu(1.0)


def test_complex_numbers():
    check_grads(eg.silu, [np.array([0.5 + 1j, -1 - 0.3j])])
    with pytest.raises(eg.errors.DTypeError, match="softsign: expected real numbers"):
        eg.softsign(1j)


def test_names():
    assert eg.swish is eg.silu
