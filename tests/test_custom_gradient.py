"""custom_gradient, recompute_grad, grad_pass_through and stop_gradient in detail."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import gradients_function as gf


def values(structure):
    """The numbers of a structure of tensors; None stays None."""
    return eg.nest.map_structure(lambda t: t if t is None else t.tolist(), structure)


def gradient_of(f, *args, **options):
    """The gradients of f by tensors of these numbers, from a plain tape."""
    inputs = [eg.constant(x) for x in args]
    with eg.GradientTape() as tape:
        tape.watch(inputs)
        y = f(*inputs)
    return values(tape.gradient(y, inputs, **options))


def with_rule(rule, forward=lambda *xs: xs[0] * 1.0):
    """A custom function with this rule."""
    return eg.custom_gradient(lambda *xs: (forward(*xs), rule))


# The call


def test_records_one_entry_and_keeps_nothing_of_the_inside():
    @eg.custom_gradient
    def f(x):
        for _ in range(10):
            x = eg.sin(x)
        return x, lambda dy: dy

    x = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
        names = [entry.name for entry in tape.entries()]
    assert "sin" not in names
    assert "f" in names
    assert tape.gradient(y, x).item() == 1.0


def test_logexp():
    @eg.custom_gradient
    def logexp(x):
        e = eg.exp(x)
        return eg.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    assert logexp(eg.constant(0.0)).item() == pytest.approx(0.6931472)
    assert values(gf(logexp)(0.0)) == [0.5]
    assert values(gf(lambda x: 3 * logexp(x))(0.0)) == [1.5]
    assert values(gf(lambda x: gf(logexp)(x)[0])(0.0)) == [0.25]
    with np.errstate(over="ignore"):
        assert values(gf(logexp)(100.0)) == [1.0]


def test_outputs_of_a_dict_come_in_sorted_order():
    seen = []

    @eg.custom_gradient
    def f(x):
        def rule(da, dz):
            seen.append((da.item(), dz.item()))
            return da + dz

        return {"z": x * 2, "a": x * 3}, rule

    def g(x):
        y = f(x)
        assert list(y) == ["z", "a"]
        return 10 * y["a"] + 100 * y["z"]

    assert gradient_of(g, 1.0) == [110.0]
    assert seen == [(10.0, 100.0)]


def test_unused_output_gets_zeros_of_its_shape():
    @eg.custom_gradient
    def f(x):
        def rule(d1, d2):
            assert d2.shape == (2, 3)
            assert d2.dtype == np.float64
            assert not d2.numpy().any()
            return d1

        return (x * 1.0, eg.zeros((2, 3), "float64")), rule

    assert gradient_of(lambda x: f(x)[0], 1.0) == [1.0]


@pytest.mark.parametrize("wrap", [list, tuple])
def test_rule_may_return_a_list_or_a_tuple(wrap):
    assert gradient_of(with_rule(lambda dy: wrap([7 * dy])), 1.0) == [7.0]


def test_rule_may_return_none():
    f = with_rule(lambda dy: (None, 2 * dy))
    assert gradient_of(f, 1.0, 1.0) == [None, 2.0]
    assert gradient_of(f, 1.0, 1.0, unconnected_gradients="zero") == [0.0, 2.0]


@pytest.mark.parametrize("number", [7, 7.0, np.float64(7.0), np.array(7.0, "float32")])
def test_rule_may_return_a_number(number):
    x = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = with_rule(lambda dy: number)(x)
    g = tape.gradient(y, x)
    assert isinstance(g, eg.Tensor)
    assert g.dtype == np.float32
    assert g.item() == 7.0


def test_python_and_numpy_inputs_and_outputs():
    f = with_rule(lambda dy: (dy, 2 * dy, 3 * dy), lambda a, b, c: np.float32(5.0))
    y = f(1.0, np.array(2.0), eg.constant(3.0))
    assert isinstance(y, eg.Tensor)
    assert gradient_of(lambda x: f(1.0, np.array(2.0), x), 3.0) == [3.0]


def test_a_number_for_an_input_that_is_not_watched_is_ignored():
    f = with_rule(lambda dy: (5 * dy, 6 * dy), lambda x, y: x * y)
    assert gradient_of(lambda x: f(x, 3.0), 2.0) == [5.0]


@pytest.mark.parametrize("returned", [1, 3, 0], ids=["few", "many", "empty"])
def test_wrong_number_of_gradients(returned):
    f = with_rule(lambda dy: [dy] * returned)
    with pytest.raises(ValueError, match=f"expected 2, got {returned}"):
        gradient_of(f, 1.0, 2.0)


def test_gradient_of_wrong_shape():
    f = with_rule(lambda dy: eg.zeros(3), lambda x: x * 1.0)
    with pytest.raises(ValueError, match=r"expected \(2,\) .*got \(3,\)"):
        gradient_of(f, [1.0, 2.0])


def test_list_argument_has_one_gradient_per_leaf():
    @eg.custom_gradient
    def f(pair):
        return pair[0] * pair[1], lambda dy: (10 * dy, 20 * dy)

    assert gradient_of(lambda x, y: f([x, y]), 2.0, 3.0) == [10.0, 20.0]


def test_same_tensor_as_two_arguments_adds_up():
    f = with_rule(lambda dy: (10 * dy, 20 * dy), lambda x, y: x * y)
    assert gradient_of(lambda x: f(x, x), 2.0) == [30.0]


def test_integer_argument_has_no_gradient():
    n = eg.constant(2)
    f = with_rule(lambda dy: (dy, None), lambda x, n: x * n)
    assert gradient_of(lambda x: f(x, n), 3.0) == [1.0]
    g = with_rule(lambda dy: (dy, dy), lambda x, n: x * n)
    with pytest.raises(TypeError, match="argument 1 has dtype int64"):
        gradient_of(lambda x: g(x, n), 3.0)


def test_keywords_and_positions_mix():
    @eg.custom_gradient
    def f(x, y, scale=1.0):
        return x * y * scale, lambda dy: (10 * dy, 20 * dy)

    assert gradient_of(lambda x, y: f(x, y=y), 2.0, 3.0) == [10.0, 20.0]
    assert gradient_of(lambda x, y: f(x, y, scale=5.0), 2.0, 3.0) == [10.0, 20.0]
    assert gradient_of(lambda x, y: f(y=y, x=x, scale=5), 2.0, 3.0) == [10.0, 20.0]


def test_captured_tensor_warns_only_when_it_is_watched():
    w = eg.constant(2.0)
    f = eg.custom_gradient(lambda x: (x * w, lambda dy: dy * w))
    assert gradient_of(f, 1.0) == [2.0]


def test_exception_in_f_leaves_the_tape_recording():
    @eg.custom_gradient
    def broken(x):
        raise KeyError("broken")

    x = eg.constant(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(KeyError, match="broken"):
            broken(x)
        y = x * x
    assert tape.gradient(y, x).item() == 6.0


def test_exception_in_the_rule_passes_and_a_persistent_tape_stays_usable():
    fail = [True]

    def rule(dy):
        if fail:
            raise KeyError("from the rule")
        return 2 * dy

    x = eg.constant(3.0)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = with_rule(rule)(x)
    with pytest.raises(KeyError, match="from the rule"):
        tape.gradient(y, x)
    fail.clear()
    assert tape.gradient(y, x).item() == 2.0


# Variables inside


def test_variables_come_in_order_of_construction():
    v, w = eg.Variable(2.0), eg.Variable(3.0)

    @eg.custom_gradient
    def f(x):
        def rule(dy, variables):
            assert [variable is v for variable in variables] == [True, False]
            assert variables[1] is w
            return dy, [10 * dy, 20 * dy]

        return w * v * x, rule

    x = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert values(tape.gradient(y, [x, v, w])) == [1.0, 10.0, 20.0]


def test_variables_are_noticed_without_a_tape():
    v = eg.Variable(2.0)
    f = eg.custom_gradient(lambda x: (x * v, lambda dy: dy))
    with pytest.raises(TypeError, match="variables="):
        f(eg.constant(1.0))


@pytest.mark.parametrize("count", [0, 2])
def test_wrong_number_of_variable_gradients(count):
    v = eg.Variable(2.0)

    @eg.custom_gradient
    def f(x):
        return x * v, lambda dy, variables: (dy, [dy] * count)

    with pytest.raises(ValueError, match=f"per variable: expected 1, got {count}"):
        gradient_of(f, 1.0)


@pytest.mark.parametrize("returned", [lambda dy: dy, lambda dy: [dy, dy, dy]])
def test_forgetting_the_pair(returned):
    v = eg.Variable(2.0)

    @eg.custom_gradient
    def f(x):
        return x * v, lambda dy, variables: returned(dy)

    with pytest.raises(TypeError, match=r"variables= and must return"):
        gradient_of(f, 1.0)


def test_variable_arguments_are_not_among_the_variables():
    v, w = eg.Variable(2.0), eg.Variable(3.0)

    @eg.custom_gradient
    def f(v):
        def rule(dy, variables):
            assert [variable is w for variable in variables] == [True]
            return 10 * dy, [20 * dy]

        return v * w, rule

    with eg.GradientTape() as tape:
        y = f(v)
    assert values(tape.gradient(y, [v, w])) == [10.0, 20.0]


def test_rule_that_takes_variables_is_called_without_when_there_are_none():
    @eg.custom_gradient
    def f(x):
        def rule(dy, variables=None):
            assert variables is None
            return 5 * dy

        return x * x, rule

    assert gradient_of(f, 1.0) == [5.0]


def test_variable_read_only_in_the_rule():
    v = eg.Variable(2.0)
    assert gradient_of(with_rule(lambda dy: dy * v), 1.0) == [2.0]


def test_rule_that_reads_and_watches_does_not_disturb_the_sweep():
    v = eg.Variable(3.0)

    def rule(dy):
        with eg.GradientTape() as tape:
            y = v * v
        return dy * tape.gradient(y, v)

    x = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = with_rule(rule)(x * v)
    assert values(tape.gradient(y, [x, v])) == [18.0, 6.0]


# Higher orders


def test_gradient_function_is_differentiated_too():
    f = eg.custom_gradient(lambda x: (x**3, lambda dy: 5 * x**2 * dy))
    assert values(gf(lambda x: gf(f)(x)[0])(2.0)) == [20.0]


def test_values_from_inside_f_are_differentiated_in_the_rule():
    @eg.custom_gradient
    def f(x):
        y = eg.exp(2 * x)
        return y, lambda dy: dy * y

    assert values(gf(lambda x: gf(f)(x)[0])(0.0)) == [2.0]


def test_rule_of_the_rule_differentiates_by_the_cotangent():
    @eg.custom_gradient
    def f(x):
        @eg.custom_gradient
        def rule(dy):
            return 3 * dy, lambda ddy: 7 * ddy

        return x * x, rule

    x, dy = eg.constant(1.0), eg.constant(1.0)
    with eg.GradientTape() as outer:
        outer.watch([x, dy])
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        g = inner.gradient(y, x, output_gradients=dy)
    assert g.item() == 3.0
    assert values(outer.gradient(g, [x, dy])) == [None, 7.0]


def test_nested_custom_functions():
    inner = with_rule(lambda dy: 10 * dy)

    @eg.custom_gradient
    def outer(x):
        return inner(x), lambda dy: 3 * inner(dy)

    assert gradient_of(outer, 1.0) == [3.0]


def test_gradient_tape_inside_f():
    @eg.custom_gradient
    def f(x):
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = x * x * x
        return tape.gradient(y, x), lambda dy: 5 * dy

    assert f(eg.constant(2.0)).item() == 12.0
    assert gradient_of(f, 2.0) == [5.0]


# The decorator


def test_methods():
    class Layer:
        factor = 5.0

        @eg.custom_gradient
        def scale(self, x):
            return x * self.factor, lambda dy: 7 * dy

    assert gradient_of(Layer().scale, 1.0) == [7.0]


def test_parentheses():
    @eg.custom_gradient()
    def f(x):
        return x * x, lambda dy: 5 * dy

    assert gradient_of(f, 1.0) == [5.0]


def test_metadata():
    def f(x):
        """Say something."""

    for decorate in (eg.custom_gradient, eg.recompute_grad, eg.grad_pass_through):
        decorated = decorate(f)
        assert decorated.__name__ == "f"
        assert decorated.__doc__ == "Say something."
        assert decorated.__wrapped__ is f


@pytest.mark.parametrize(
    ("result", "complaint"),
    [(1.0, "pair"), ((1.0, 2.0, 3.0), "pair"), ((1.0, 2.0), "second of the")],
)
def test_f_must_return_a_pair(result, complaint):
    def forgetful(x):
        return result

    with pytest.raises(TypeError, match=f"forgetful: .*{complaint}"):
        eg.custom_gradient(forgetful)(eg.constant(1.0))


# recompute_grad


def test_recompute_keeps_nothing_and_runs_again():
    calls = []

    @eg.recompute_grad
    def f(x):
        calls.append(eg.tape.should_record_backprop([x]))
        return eg.exp(eg.exp(x))

    x = eg.constant(0.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert calls == [False]
    assert tape.gradient(y, x).item() == pytest.approx(np.e)
    assert calls == [False, True]


def test_recompute_same_tensor_in_two_places():
    f = eg.recompute_grad(lambda a, b: a + b)
    a = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(a)
        y = f(a, a)
    assert values(tape.gradient(y, [a, a])) == [2.0, 2.0]


def test_recompute_unused_argument():
    assert gradient_of(eg.recompute_grad(lambda a, b: a * a), 3.0, 1.0) == [6.0, None]


def test_recompute_structures_and_variable_arguments():
    v = eg.Variable(3.0)
    f = eg.recompute_grad(lambda p, v: {"y": p[0] * p[1] * v})
    a, b = eg.constant(2.0), eg.constant(5.0)
    with eg.GradientTape() as tape:
        tape.watch([a, b])
        y = f([a, b], v)["y"]
    assert values(tape.gradient(y, [a, b, v])) == [15.0, 6.0, 10.0]


def test_recompute_keywords_pass_through():
    @eg.recompute_grad
    def f(x, *, scale):
        assert type(scale) is float
        return x * x * scale

    assert gradient_of(lambda x: f(x, scale=5.0), 3.0) == [30.0]


def test_recompute_second_order_with_variable():
    v = eg.Variable(2.0)
    f = eg.recompute_grad(lambda: v**3)
    second = eg.implicit_gradients(lambda: eg.implicit_gradients(f)()[0][0])
    assert second()[0][0].item() == 12.0


def test_recompute_draws_the_same_random_numbers():
    drawn = []

    @eg.recompute_grad
    def f(x):
        drawn.append(eg.random.uniform(size=3).tolist())
        return eg.sum(x * eg.constant(drawn[-1]))

    eg.random.seed(1)
    (g,) = gradient_of(f, [1.0, 1.0, 1.0])
    after = eg.random.uniform(size=3).tolist()
    assert drawn[0] == drawn[1] == g
    eg.random.seed(1)
    assert eg.random.uniform(size=3).tolist() == drawn[0]
    assert eg.random.uniform(size=3).tolist() == after


def test_recompute_with_a_gradient_inside():
    f = eg.recompute_grad(lambda x: gf(lambda z: z**3)(x)[0])
    assert f(eg.constant(2.0)).item() == 12.0
    assert gradient_of(f, 2.0) == [12.0]


# grad_pass_through and stop_gradient


def test_pass_through_is_the_identity_backwards():
    rounded = eg.grad_pass_through(eg.round)
    assert rounded(eg.constant([1.4, 1.6])).tolist() == [1.0, 2.0]
    assert gradient_of(lambda x: 3 * rounded(x), [1.4, 1.6]) == [[3.0, 3.0]]


def test_pass_through_gives_variables_inside_nothing():
    v, z = eg.Variable(2.0), eg.Variable(3.0)
    with eg.GradientTape() as tape:
        y = eg.grad_pass_through(lambda x: x * v)(z)
    assert y.item() == 6.0
    assert values(tape.gradient(y, [z, v])) == [1.0, None]


def test_stop_gradient():
    assert gradient_of(lambda x: eg.stop_gradient(x) * x, 3.0) == [3.0]
    assert gradient_of(lambda x: eg.stop_gradient(x * x), 3.0) == [None]
    zeros = gradient_of(eg.stop_gradient, [3.0, 4.0], unconnected_gradients="zero")
    assert zeros == [[0.0, 0.0]]
