"""The forms of declaration that no op of the library uses yet, and their mistakes."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.primitive import OPS, elementwise, primitive


@pytest.fixture
def sincos():
    @primitive(several=True)
    def _sincos(xp, x):
        return xp.sin(x), xp.cos(x)

    @_sincos.vjp
    def _rule(g, y):
        return g[0] * y[1] - g[1] * y[0]

    yield _sincos
    del OPS["sincos"]


def derivative(f, x, order):
    if order == 0:
        return f(x)
    return eg.gradients_function(lambda x: derivative(f, x, order - 1))(x)[0]


@pytest.mark.parametrize(
    ("order", "expected"),
    [(1, np.cos(0.6)), (2, -2 * np.sin(0.6)), (3, -4 * np.cos(0.6))],
)
def test_several_outputs_to_any_order(sincos, order, expected):
    def f(x):
        s, c = sincos(x)
        return s * c

    assert derivative(f, 0.3, order).item() == pytest.approx(expected, rel=1e-5)


def test_several_outputs_of_which_one_is_used(sincos):
    (g,) = eg.gradients_function(lambda x: sincos(x)[1])(0.3)
    assert g.item() == pytest.approx(-np.sin(0.3), rel=1e-6)


def test_several_outputs_in_forward_mode(sincos):
    x = eg.tensor(0.3)
    with eg.ForwardAccumulator(x, eg.tensor(2.0)) as acc:
        s, c = sincos(x)
    assert acc.jvp(s).item() == pytest.approx(2 * np.cos(0.3), rel=1e-6)
    assert acc.jvp(c).item() == pytest.approx(-2 * np.sin(0.3), rel=1e-6)


def test_rule_with_an_unknown_name_is_refused_when_declared():
    with pytest.raises(ValueError, match=r"wrong: .*nonsense"):
        elementwise("wrong", d=lambda g, nonsense: g)
    del OPS["wrong"]


def test_name_declared_twice_is_refused():
    with pytest.raises(ValueError, match="'exp' is declared twice"):
        elementwise("exp", d=lambda g: g)


def test_methods_take_shapes_as_numpy_does():
    x = eg.arange(6.0)
    assert x.reshape(2, 3).shape == x.reshape((2, 3)).shape == (2, 3)
    assert x.reshape(-1).shape == (6,)
    y = x.reshape(1, 2, 3)
    assert y.transpose(1, 0, 2).shape == y.transpose((1, 0, 2)).shape == (2, 1, 3)
    assert y.transpose().shape == y.T.shape == (3, 2, 1)
