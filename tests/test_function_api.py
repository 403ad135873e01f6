"""Functions of functions: what they take, what they return, what they refuse."""

import functools

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import gradients_function as gf
from eagergrad import value_and_gradients_function as vg


def values(structure):
    """The numbers of a structure of tensors; None stays None."""
    return eg.nest.map_structure(lambda t: t if t is None else t.tolist(), structure)


def product(x, y):
    return x * y


def nothing_recording():
    return not eg.tape.could_possibly_record()


# Results


def test_result_is_a_list_for_one_parameter():
    grads = gf(lambda x: x * x)(3.0)
    assert type(grads) is list
    assert values(grads) == [6.0]


def test_value_form_returns_a_pair():
    result = vg(lambda x: x * x)(3.0)
    assert type(result) is tuple
    assert values(result) == (9.0, [6.0])


def test_value_is_a_fresh_tensor_when_f_returns_its_input():
    x = eg.constant(3.0)
    value, grads = vg(lambda x: x)(x)
    assert value is not x
    assert values(grads) == [1.0]


def test_value_keeps_the_structure():
    value, grads = vg(lambda x: {"b": x, "a": (x * x, 2 * x)})(3.0)
    assert values(value) == {"b": 3.0, "a": (9.0, 6.0)}
    assert values(grads) == [9.0]


@pytest.mark.parametrize("constant", [5.0, eg.constant(5.0), np.float32(5.0)])
def test_constant_result_has_no_gradient(constant):
    value, grads = vg(lambda x: constant)(3.0)
    assert isinstance(value, eg.Tensor)
    assert value.item() == 5.0
    assert grads == [None]


@pytest.mark.parametrize(
    "f",
    [lambda x: None, functools.partial(lambda x, y: None, 1.0)],
    ids=["function", "no name"],
)
def test_none_is_refused(f):
    with pytest.raises(ValueError, match="returned None"):
        gf(f)(1.0)
    assert nothing_recording()


def test_exception_passes_and_leaves_no_tape_open():
    def broken(x):
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        vg(broken)(1.0)
    assert nothing_recording()


def test_nested_to_any_depth():
    def derivative(f):
        return lambda x: gf(f)(x)[0]

    f = derivative(derivative(derivative(lambda x: x**4)))
    assert f(2.0).item() == 48.0


def test_variables_read_are_not_returned():
    v = eg.Variable(3.0)
    assert values(gf(lambda x: x * v)(2.0)) == [3.0]


# Arguments


@pytest.mark.parametrize(
    "argument",
    [
        [[1.0, 2.0]],
        np.array([[1.0, 2.0]], np.float32),
        eg.constant([[1.0, 2.0]]),
        eg.Variable([[1.0, 2.0]]),
    ],
    ids=["list", "array", "tensor", "variable"],
)
def test_chosen_arguments_are_converted(argument):
    kinds = []

    def f(x):
        kinds.append(type(x))
        return x * x

    assert values(gf(f)(argument)) == [[[2.0, 4.0]]]
    assert kinds == [eg.Tensor]


def test_arguments_that_are_not_chosen_pass_untouched():
    marker = object()

    def f(x, other):
        assert other is marker
        return x * x

    assert values(gf(f, params=[0])(3.0, marker)) == [6.0]


def test_integer_argument_warns():
    with pytest.warns(eg.DTypeWarning, match="int64"):
        assert values(gf(product)(2, 3.0)) == [None, 2.0]


def test_list_of_tensors_is_stacked():
    pair = [eg.constant(2.0), eg.constant(3.0)]
    (g,) = gf(lambda x: eg.sum(x * x))(pair)
    assert g.tolist() == [4.0, 6.0]


def test_dict_argument_gives_a_dict():
    (g,) = gf(lambda p: p["x"] * p["y"])({"x": 2.0, "y": 3.0})
    assert values(g) == {"x": 3.0, "y": 2.0}


def test_keywords_pass_through():
    def f(x, *, scale):
        assert type(scale) is float
        return x * scale

    assert values(gf(f)(2.0, scale=3.0)) == [3.0]


def test_keyword_named_in_params():
    assert values(gf(product, params=["y", "x"])(2.0, y=3.0)) == [2.0, 3.0]


def test_default_not_supplied_is_left_alone():
    assert values(gf(eg.exp)(0.0)) == [1.0]
    assert values(gf(eg.sum)([1.0, 2.0])) == [[1.0, 1.0]]


def test_varargs_take_all_that_is_supplied():
    assert values(gf(lambda *xs: xs[0] * xs[1] * xs[2])(2.0, 3.0, 4.0)) == [12, 8, 6]


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x, y):
        return self.factor * x * y

    def method(self, x):
        return self.factor * x


def test_callables_of_all_kinds():
    assert values(gf(Scaled(5.0))(2.0, 3.0)) == [15.0, 10.0]
    assert values(gf(Scaled(5.0).method)(2.0)) == [5.0]
    assert values(gf(functools.partial(product, y=4.0))(2.0)) == [4.0]
    assert values(gf(max)(1.0, 2.0)) == [None, 1.0]


def test_a_parameter_called_self_is_an_ordinary_one():
    def f(self, other):
        return self * other

    assert values(gf(f)(2.0, 3.0)) == [3.0, 2.0]
    assert values(gf(f, params=["other"])(2.0, 3.0)) == [2.0]


# Parameters


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ([0], [3.0]),
        ((1, 0), [2.0, 3.0]),
        ([-1], [2.0]),
        ([1, 1, 0], [2.0, 2.0, 3.0]),
        (["y"], [2.0]),
        (("y", "x"), [2.0, 3.0]),
        ([], []),
    ],
)
def test_params(params, expected):
    assert values(gf(product, params)(2.0, 3.0)) == expected


@pytest.mark.parametrize("position", [2, -3])
def test_params_out_of_range(position):
    with pytest.raises(ValueError, match=rf"product: .*position {position}"):
        gf(product, [position])(2.0, 3.0)


def test_params_by_name_of_a_callable_object():
    assert values(gf(Scaled(5.0), ["y"])(2.0, 3.0)) == [10.0]


def test_params_by_name_unknown():
    with pytest.raises(ValueError, match=r"product: .*'z'.*\['x', 'y'\]"):
        gf(product, ["z"])


def test_params_by_name_not_supplied():
    def f(x, y=1.0):
        return x * y

    with pytest.raises(ValueError, match="'y', which the call does not supply"):
        gf(f, ["y"])(2.0)


@pytest.mark.parametrize("make", [gf, vg, eg.make_vjp])
def test_params_mixed_are_refused_at_construction(make):
    with pytest.raises(ValueError, match="all positions or all names"):
        make(product, [0, "y"])


# Seeds


def test_seeds_by_position():
    f = gf(lambda x: (2 * x, x * x))
    assert values(f(3.0, dy=(1.0, 10.0))) == [62.0]
    assert values(gf(lambda x: x * x)(3.0, dy=5.0)) == [30.0]


def test_seeds_of_a_dict_are_in_sorted_order():
    f = gf(lambda x: {"z": x * x, "a": 2 * x})
    assert values(f(3.0, dy=[1.0, 10.0])) == [62.0]


@pytest.mark.parametrize("seeds", [[1.0], [1.0, 2.0, 3.0]])
def test_wrong_number_of_seeds(seeds):
    with pytest.raises(ValueError, match=rf"2 target\(s\), {len(seeds)} seed\(s\)"):
        gf(lambda x: (2 * x, x * x))(3.0, dy=seeds)


# make_vjp


def test_vjp_takes_ones_or_a_seed():
    value, vjp = eg.make_vjp(product)(2.0, 3.0)
    assert value.item() == 6.0
    assert values(vjp()) == [3.0, 2.0]
    assert values(vjp(10.0)) == [30.0, 20.0]


def test_vjp_has_params():
    _, vjp = eg.make_vjp(product, params=["y"])(2.0, 3.0)
    assert values(vjp()) == [2.0]


def test_vjp_not_persistent_works_once():
    _, vjp = eg.make_vjp(product, persistent=False)(2.0, 3.0)
    vjp()
    with pytest.raises(RuntimeError, match="already used"):
        vjp()


# The gradients of what a function reads


def test_implicit_pairs_in_order_of_construction():
    first, second = eg.Variable(2.0), eg.Variable(3.0)
    pairs = eg.implicit_gradients(lambda: second * first)()
    assert type(pairs) is list
    assert [(g.item(), v is first) for g, v in pairs] == [(3.0, True), (2.0, False)]


def test_implicit_value_is_returned_as_it_is():
    v = eg.Variable(2.0)
    results = []

    def f():
        results.append({"y": v * v})
        return results[0]

    value, pairs = eg.implicit_value_and_gradients(f)()
    assert value is results[0]
    assert pairs[0][0].item() == 4.0


def test_implicit_variable_read_but_not_connected():
    v, w = eg.Variable(2.0), eg.Variable(3.0)

    def f():
        w.read_value()
        return v * v

    (g, _), (missing, variable) = eg.implicit_gradients(f)()
    assert g.item() == 4.0
    assert missing is None
    assert variable is w


def test_implicit_takes_keywords():
    v = eg.Variable(2.0)
    ((g, _),) = eg.implicit_gradients(lambda x, *, scale: v * x * scale)(3.0, scale=5.0)
    assert g.item() == 15.0


def test_implicit_structure_is_summed():
    v = eg.Variable(2.0)
    ((g, _),) = eg.implicit_gradients(lambda: {"a": v * v, "b": [3 * v]})()
    assert g.item() == 7.0


def test_implicit_leaves_out_non_trainable():
    v, w = eg.Variable(2.0), eg.Variable(3.0, trainable=False)
    pairs = eg.implicit_gradients(lambda: v * w)()
    assert [(g.item(), variable is v) for g, variable in pairs] == [(3.0, True)]


def test_implicit_refuses_none_and_no_variables():
    v = eg.Variable(2.0)
    with pytest.raises(ValueError, match="returned None"):
        eg.implicit_gradients(lambda: v.assign(3.0) and None)()
    with pytest.raises(ValueError, match="no trainable Variable"):
        eg.implicit_value_and_gradients(lambda: eg.constant(1.0))()
    assert nothing_recording()


def test_implicit_exception_leaves_no_tape_open():
    v = eg.Variable(2.0)

    def broken():
        raise KeyError(v.item())

    with pytest.raises(KeyError):
        eg.implicit_gradients(broken)()
    assert nothing_recording()


def test_implicit_gradient_of_a_variable_that_is_the_value():
    w = eg.Variable(2.0)
    [(g, variable)] = eg.implicit_gradients(lambda: w)()
    assert g.item() == 1.0
    assert variable is w
