"""check_grads accepts what is right, finds what is wrong, and says where."""

import doctest

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import derivatives, testing
from eagergrad.testing import check_grads

X = np.array([[0.5, -1.2, 0.3], [1.0, 2.0, -0.7]])


def with_rule(rule):
    """x**3 with a derivative given by hand."""
    return eg.custom_gradient(lambda x: (x**3.0, lambda g: rule(g, x)))


def test_docstrings():
    failed, attempted = doctest.testmod(testing, optionflags=doctest.ELLIPSIS)
    assert attempted
    assert failed == 0


def test_right_gradients_pass_at_any_order():
    check_grads(with_rule(lambda g, x: 3.0 * g * x**2), [X], order=4)


@pytest.mark.parametrize("error", [1e-6, -1e-3, 1.0])
def test_wrong_gradients_of_analytic_functions_are_found_to_1e_minus_6(error):
    wrong = with_rule(lambda g, x: (3.0 + error) * g * x**2)
    with pytest.raises(AssertionError, match=r"order 1.*by a complex step"):
        check_grads(wrong, [X])


def test_wrong_gradients_of_other_functions_are_found():
    wrong = eg.custom_gradient(lambda x: (eg.abs(x), lambda g: g * eg.sign(x) * 1.0001))
    with pytest.raises(AssertionError, match=r"order 1.*by differences"):
        check_grads(wrong, [X])


def test_one_wrong_element_is_found():
    scale = np.ones(X.shape)
    scale[1, 1] = 1.001
    with pytest.raises(AssertionError, match="order 1"):
        check_grads(with_rule(lambda g, x: 3.0 * g * x**2 * scale), [X])


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_gradients_of_any_wrong_value_are_found(value):
    with pytest.raises(AssertionError, match="order 1"):
        check_grads(with_rule(lambda g, x: g * eg.zeros_like(x) + value), [X])


def test_wrong_second_derivatives_are_found():
    frozen = with_rule(lambda g, x: 3.0 * g * eg.stop_gradient(x) ** 2)
    check_grads(frozen, [X], order=1)
    with pytest.raises(AssertionError, match="order 2, argument 0"):
        check_grads(frozen, [X])


def test_a_cotangent_that_is_cut_is_found():
    cut = with_rule(lambda g, x: 3.0 * eg.stop_gradient(g) * x**2)
    with pytest.raises(AssertionError, match="order 2, cotangent 0"):
        check_grads(cut, [X], modes=["reverse"])
    with pytest.raises(AssertionError, match=r"order 1, .*, forward: .* got 0$"):
        check_grads(cut, [X])  # forward mode transposes the rule, and finds nothing


def test_a_gradient_that_is_none_must_be_zero():
    check_grads(eg.floor, [X])
    check_grads(lambda x, y: x * 2.0, [X, 3.0])
    with pytest.raises(AssertionError, match=r"argument 1.*got 0"):
        check_grads(lambda x, y: x * eg.stop_gradient(y), [X, 3.0])


def test_structures_in_and_out():
    def f(model, x, name, *, twice=2):
        hidden = eg.tanh(x @ model["w"] + model["b"][0])
        return {"hidden": hidden, name: (hidden.sum() * twice, eg.argmax(hidden))}

    check_grads(f, [{"w": X.T, "b": [np.ones(2)]}, X, "total"])

    def wrong(model, x):
        return eg.sum(x @ model["w"]) + eg.stop_gradient(model["b"][0]).sum()

    with pytest.raises(AssertionError, match=r"wrong: order 1, argument 0 of .*\(2,\)"):
        check_grads(wrong, [{"w": X.T, "b": [np.ones(2)]}, X])


def test_integers_and_flags_are_held():
    check_grads(lambda x, i, flag: eg.where(flag, x[i], 0.0), [X, 1, np.array(True)])


def test_precision_is_raised_to_float64():
    check_grads(eg.exp, [X.astype("float32")])
    check_grads(eg.exp, [eg.tensor([1.0])])
    with pytest.raises(AssertionError, match="keep float64"):
        check_grads(lambda x: eg.astype(x, "float32"), [X])


@pytest.mark.parametrize("f", [eg.relu, eg.abs, eg.max, lambda x: eg.clip(x, 0.0, 1.0)])
def test_kinks_are_moved_away_from(f):
    check_grads(f, [np.zeros(3)])
    check_grads(f, [np.array([0.0, 1.0, 1.0])])
    check_grads(f, [np.array([1e-5, -1e-9, 1.0])])


def test_a_function_smooth_nowhere_is_told():
    with pytest.raises(AssertionError, match="smooth at none of 10 points"):
        check_grads(lambda x: eg.floor(1e6 * x), [X])


def test_a_point_outside_the_domain_is_told():
    with pytest.raises(AssertionError, match="not finite"):
        check_grads(eg.log, [X])


@pytest.mark.parametrize("f", [eg.sign, eg.conj, eg.absolute, eg.sigmoid, eg.real])
def test_code_that_is_not_analytic_is_not_taken_for_it(f):
    """These accept complex numbers; a complex step would misjudge them on the line."""
    check_grads(f, [X])


def test_complex_arguments():
    check_grads(lambda z: eg.real(eg.exp(z) * eg.conj(z)), [X + 1j * X[::-1]])
    wrong = eg.custom_gradient(lambda z: (eg.exp(z), lambda g: g * eg.exp(z)))
    with pytest.raises(AssertionError, match="order 1"):
        check_grads(wrong, [X + 1j * X[::-1]])


def test_tolerances_are_heeded():
    off = with_rule(lambda g, x: 3.001 * g * x**2)
    check_grads(off, [X], rtol=1e-2)
    check_grads(off, [X], atol=1.0)
    with pytest.raises(AssertionError):
        check_grads(off, [X], rtol=1e-5, atol=1e-5)


class WrongForwards(eg.ForwardAccumulator):
    """Forward mode with the opposite sign."""

    def jvp(self, primals, unconnected_gradients="none"):
        moved = super().jvp(primals, unconnected_gradients)
        return eg.nest.map_structure(lambda t: -t, moved)


def test_each_mode_is_checked_by_itself(monkeypatch):
    wrong = with_rule(lambda g, x: 2.0 * g * x**2)
    for modes in (["reverse"], ["forward"], ["forward", "reverse"]):
        with pytest.raises(AssertionError, match=f"order 1, .*, {modes[0]}: expected"):
            check_grads(wrong, [X], modes=modes)
    monkeypatch.setattr(derivatives, "ForwardAccumulator", WrongForwards)
    check_grads(eg.exp, [X], modes=["reverse"])
    with pytest.raises(AssertionError, match=r"order 1, .*, forward: expected"):
        check_grads(eg.exp, [X])


def test_wrong_second_derivatives_are_found_over_either_mode():
    frozen = with_rule(lambda g, x: 3.0 * g * eg.stop_gradient(x) ** 2)
    nestings = {
        ("reverse",): "reverse over reverse",
        ("forward",): "forward over forward",
        ("forward", "reverse"): "forward over reverse",
    }
    for modes, nesting in nestings.items():
        check_grads(frozen, [X], order=1, modes=modes)
        with pytest.raises(AssertionError, match=f"argument 0 .*, {nesting}: expected"):
            check_grads(frozen, [X], modes=modes)


def test_forward_mode_alone_checks_higher_orders():
    check_grads(eg.tanh, [X], order=3, modes=["forward"])
    check_grads(lambda x, y: eg.sum(x * y), [X, 2.0], modes=["forward"])


@pytest.mark.parametrize(
    "modes", [("reverse", "sideways"), "forward", ()], ids=["name", "string", "none"]
)
def test_unknown_modes(modes):
    with pytest.raises(ValueError, match=r"check_grads: modes: expected a list.*got"):
        check_grads(eg.exp, [X], modes=modes)


def test_unknown_order():
    with pytest.raises(ValueError, match="check_grads: order: expected at least 1"):
        check_grads(eg.exp, [X], order=0)


def test_nothing_to_check_passes():
    check_grads(eg.exp, [np.zeros((0, 3))])
    check_grads(eg.argmax, [X])
    check_grads(lambda n: eg.tensor(n) * 2, [3])
