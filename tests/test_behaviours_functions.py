"""The behaviours of the function transformations and of gradients written by hand.

One test per row of the table of behaviours; the numbers in the names are its rows.
"""

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


def cubic(x, y):
    return x**3 * y - x * y**2


def cube(x):
    return x * x * x


def gradient_of(f, *args):
    """The gradients of f by tensors of these numbers, from a plain tape."""
    inputs = [eg.constant(x) for x in args]
    with eg.GradientTape() as tape:
        tape.watch(inputs)
        y = f(*inputs)
    return values(tape.gradient(y, inputs))


# Functions of functions


def test_144_second_derivative():
    second = gf(lambda x, y: gf(cubic)(x, y)[0])
    assert values(second(2.0, 3.0)) == [36.0, 6.0]


def test_145_value_too():
    assert values(vg(cubic)(2.0, 3.0)) == (6.0, [27.0, -4.0])


def test_146_params_by_index():
    assert values(gf(product, params=[1])(2.0, 3.0)) == [2.0]


def test_148_params_repeated():
    assert values(gf(product, params=[0, 0])(2.0, 3.0)) == [3.0, 3.0]


def test_149_params_mixed():
    with pytest.raises(ValueError, match="all positions or all names"):
        gf(product, params=[0, "y"])


def test_150_params_unknown_name():
    with pytest.raises(ValueError, match="'z'"):
        gf(product, params=["z"])


def test_152_same_object_twice():
    c = eg.constant(1.0)
    assert values(gf(product)(c, c)) == [1.0, 1.0]


def test_153_same_variable_twice():
    v = eg.Variable(1.0)
    assert values(gf(product)(v, v)) == [1.0, 1.0]


def test_154_list_arguments():
    assert values(gf(product)([[1.0]], [[2.0]])) == [[[2.0]], [[1.0]]]


def test_156_several_outputs():
    (g,) = gf(lambda x: (x + 2, x * x))([0.0, 1.0, 2.0])
    assert g.tolist() == [1.0, 3.0, 5.0]


def test_157_returns_its_input_and_more():
    assert values(gf(lambda x: (x, 2 * x))(1.0)) == [3.0]


def test_158_several_outputs_with_seeds():
    assert values(gf(lambda x: (2 * x, x * x))(3.0, dy=[1.0, 10.0])) == [62.0]


def test_160_default_not_supplied():
    def f(x, y=5.0):
        return x * y

    assert values(gf(f)(2.0)) == [5.0]


def test_161_varargs():
    assert values(gf(lambda *a: a[0] * a[1])(2.0, 3.0)) == [3.0, 2.0]


def test_162_partial():
    assert values(gf(functools.partial(product, 2.0))(1.0)) == [2.0]


def test_164_returns_none():
    def forgetful(x):
        return None

    with pytest.raises(ValueError, match="forgetful"):
        gf(forgetful)(1.0)


def test_165_raises_then_works():
    def picky(x):
        if float(x) < 0:
            raise ValueError("negative")
        return x * x

    with pytest.raises(ValueError, match="negative"):
        gf(picky)(-1.0)
    assert values(gf(picky)(3.0)) == [6.0]


def test_166_int_input():
    with pytest.warns(eg.DTypeWarning, match="int64"):
        assert gf(lambda x: x + x)(1) == [None]


def test_168_vjp_twice_persistent():
    _, vjp = eg.make_vjp(cube)(2.0)
    assert values(vjp()) == [12.0]
    assert values(vjp()) == [12.0]


def test_169_vjp_twice_not_persistent():
    _, vjp = eg.make_vjp(cube, persistent=False)(2.0)
    assert values(vjp()) == [12.0]
    with pytest.raises(RuntimeError, match="already used"):
        vjp()


def test_170_implicit_order():
    v0, v1 = eg.Variable(1.0), eg.Variable(2.0)
    value, pairs = eg.implicit_value_and_gradients(lambda: v1**2 + v0**2)()
    assert value.item() == 5.0
    assert [g.item() for g, _ in pairs] == [2.0, 4.0]
    assert pairs[0][1] is v0
    assert pairs[1][1] is v1


def test_172_implicit_without_variables():
    with pytest.raises(ValueError, match="no trainable Variable"):
        eg.implicit_gradients(lambda x: x * x)(1.0)


def test_173_implicit_of_implicit():
    v = eg.Variable(2.0)
    first = eg.implicit_gradients(lambda: v**3)
    second = eg.implicit_gradients(lambda: first()[0][0])
    ((g, variable),) = second()
    assert g.item() == 12.0
    assert variable is v


@pytest.mark.parametrize(
    ("n", "factorial"), [(1, 1), (2, 2), (3, 6), (4, 24), (5, 120), (6, 720)]
)
def test_174_factorial_by_n_derivatives(n, factorial):
    def derivative(f):
        return lambda x: gf(f)(x)[0]

    def power(x):
        return x**n

    f = power
    for _ in range(n):
        f = derivative(f)
    assert f(1.0).item() == factorial


# Custom gradients


def test_176_override():
    @eg.custom_gradient
    def f(x):
        return x * x, lambda dy: 4 * dy

    assert gradient_of(f, 1.0) == [4.0]


def test_177_identity_applied_twice():
    @eg.custom_gradient
    def f(x):
        return x, lambda dy: 3 * dy

    assert gradient_of(lambda x: f(f(x)), 1.0) == [9.0]


def test_178_identity_gives_a_new_tensor():
    @eg.custom_gradient
    def f(x):
        return x, lambda dy: 2 * dy

    x = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert y is not x
    assert tape.gradient(y, x).item() == 2.0


@pytest.mark.parametrize("returned", [1, 3, 0], ids=["few", "many", "empty"])
def test_180_wrong_number_of_gradients(returned):
    @eg.custom_gradient
    def f(x, y):
        return x * y, lambda dy: [dy] * returned

    with pytest.raises(ValueError, match=f"f: .*expected 2, got {returned}"):
        gradient_of(f, 2.0, 3.0)


def test_181_two_outputs_one_used():
    seen = []

    @eg.custom_gradient
    def f(x):
        def rule(d1, d2):
            seen.append((d1.item(), d2.item()))
            return 100 * d1 + d2

        return (x * x, 3 * x), rule

    assert gradient_of(lambda x: f(x)[0], 2.0) == [100.0]
    assert seen == [(1.0, 0.0)]


def test_182_two_outputs_none_used():
    seen = []

    @eg.custom_gradient
    def f(x):
        def rule(d1, d2):
            seen.append((d1, d2))
            return d1

        return (x * x, 3 * x), rule

    def g(x):
        f(x)
        return 2 * x

    assert gradient_of(g, 2.0) == [2.0]
    assert seen == []


def test_184_variable_without_keyword():
    v = eg.Variable(2.0)

    @eg.custom_gradient
    def f(x):
        return x * v, lambda dy: dy

    with eg.GradientTape(), pytest.raises(TypeError, match="variables="):
        f(eg.constant(1.0))


def scaled_by(v, keyword):
    """x * v with a rule that takes the variables in one of three ways."""

    def positional(dy, variables):
        assert [u is v for u in variables] == [True]
        return dy * v, [111 * dy]

    def keyword_only(dy, *, variables=None):
        return positional(dy, variables)

    def any_keyword(dy, **kw):
        return positional(dy, kw["variables"])

    rule = {"positional": positional, "only": keyword_only, "any": any_keyword}[keyword]
    return eg.custom_gradient(lambda x: (x * v, rule))


def gradients_with(v, f):
    x = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return values(tape.gradient(y, [x, v]))


def test_185_variable_with_keyword():
    v = eg.Variable(2.0)
    assert gradients_with(v, scaled_by(v, "positional")) == [2.0, 111.0]


@pytest.mark.parametrize("keyword", ["only", "any"])
def test_186_variable_with_keyword_only_and_any_keyword(keyword):
    v = eg.Variable(2.0)
    assert gradients_with(v, scaled_by(v, keyword)) == [2.0, 111.0]


def test_188_variable_as_argument():
    v = eg.Variable(2.0)

    @eg.custom_gradient
    def f(x, v):
        return x * v, lambda dy: (10 * dy, 20 * dy)

    assert gradients_with(v, lambda x: f(x, v)) == [10.0, 20.0]


def test_189_non_trainable_variable():
    v = eg.Variable(2.0, trainable=False)

    @eg.custom_gradient
    def f(x):
        return x * v, lambda dy: 7 * dy

    assert gradient_of(f, 1.0) == [7.0]


def test_190_all_inputs_as_keywords():
    @eg.custom_gradient
    def f(x, y):
        return x * y, lambda dy: (1000 * dy, 2000 * dy)

    assert gradient_of(lambda x, y: f(x=x, y=y), 2.0, 3.0) == [1000.0, 2000.0]
    assert gradient_of(lambda x, y: f(y=y, x=x), 2.0, 3.0) == [1000.0, 2000.0]


def test_192_keyword_constant():
    @eg.custom_gradient
    def f(x, scale):
        return x * scale, lambda dy: 50 * dy

    assert gradient_of(lambda x: f(x, scale=3.0), 1.0) == [50.0]


def test_193_captured_tensor():
    x, w = eg.constant(1.0), eg.constant(2.0)

    @eg.custom_gradient
    def f(x):
        return x * w, lambda dy: dy * w

    with eg.GradientTape() as tape:
        tape.watch([x, w])
        with pytest.warns(UserWarning, match="pass it as an argument"):
            y = f(x)
    assert values(tape.gradient(y, [x, w])) == [2.0, None]


def test_194_rule_raises():
    @eg.custom_gradient
    def f(x):
        def rule(dy):
            raise RuntimeError("from the rule")

        return x * x, rule

    with pytest.raises(RuntimeError, match=r"^from the rule$"):
        gradient_of(f, 1.0)


def test_196_one_read_and_a_custom_rule():
    v = eg.Variable(3.0)

    @eg.custom_gradient
    def my_square(x):
        return x * x, lambda dy: 2 * dy * x + 1

    with eg.GradientTape(persistent=True) as tape:
        direct = my_square(v)
        read = my_square(v.read_value())
    assert tape.gradient(direct, v).item() == 7.0
    assert tape.gradient(read, v).item() == 7.0


def test_197_second_order_for_free():
    @eg.custom_gradient
    def f(x):
        return x**3, lambda dy: 5 * x**2 * dy

    assert values(gf(f)(2.0)) == [20.0]
    assert values(gf(lambda x: gf(f)(x)[0])(2.0)) == [20.0]


def test_198_overridden_second_order():
    @eg.custom_gradient
    def derivative(x):
        return -1.1, lambda ddy: -2.1 * ddy

    @eg.custom_gradient
    def f(x):
        return x + 10, lambda dy: dy * derivative(x)

    def fourth(x):
        return f(x) ** 4

    assert gf(fourth)(1.0)[0].item() == pytest.approx(-5856.4, rel=1e-6)
    second = gf(lambda x: gf(fourth)(x)[0])(1.0)[0]
    assert second.item() == pytest.approx(-9423.48, rel=1e-6)


def test_200_first_order_takes_input_and_cotangent():
    @eg.custom_gradient
    def first(x, dy):
        return 2.1, lambda ddy: (2.2 * ddy, 3.1 * ddy)

    @eg.custom_gradient
    def f(x):
        return x + 10, lambda dy: first(x, dy)

    x, dy = eg.constant(1.0), eg.constant(1.0)
    with eg.GradientTape() as outer:
        outer.watch([x, dy])
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        dx = inner.gradient(y, x, output_gradients=dy)
    assert dx.item() == pytest.approx(2.1)
    assert values(outer.gradient(dx, [x, dy])) == pytest.approx([2.2, 3.1])


def test_201_clipped_gradient():
    def clip_by_norm(g, limit):
        norm = eg.sqrt(eg.sum(g * g))
        return g * (limit / eg.maximum(norm, limit))

    @eg.custom_gradient
    def clipped(x):
        return x, lambda dy: clip_by_norm(dy, 0.5)

    v = eg.Variable(2.0)
    with eg.GradientTape() as tape:
        y = clipped(v * v)
    assert tape.gradient(y, v).item() == 2.0


def test_202_gradients_inside_a_custom_function():
    @eg.custom_gradient
    def f(x):
        (y,) = gf(lambda z: z * z)(x)
        return y, lambda dy: 2 * dy

    value, grads = vg(f)(1.0)
    assert value.item() == 2.0
    assert values(grads) == [2.0]


def test_204_wrong_shape_from_rule():
    @eg.custom_gradient
    def f(x):
        return x * x, lambda dy: eg.sum(dy)

    with pytest.raises(ValueError, match=r"f: .*expected \(2,\).*got \(\)"):
        gradient_of(f, [1.0, 2.0])


# Computing again


def test_205_recompute():
    calls = []

    @eg.recompute_grad
    def f(x):
        calls.append(1)
        return x * x * x

    assert gradient_of(f, 2.0) == [12.0]
    assert len(calls) == 2


def test_206_recompute_second_order():
    f = eg.recompute_grad(cube)
    assert values(gf(f)(2.0)) == [12.0]
    assert values(gf(lambda x: gf(f)(x)[0])(2.0)) == [12.0]


def test_208_recompute_with_variable():
    v = eg.Variable(3.0)
    x = eg.constant(2.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.recompute_grad(lambda x: x * v)(x)
    assert values(tape.gradient(y, [x, v])) == [3.0, 2.0]


def test_210_pass_through_assign():
    x, z = eg.Variable(1.0), eg.Variable(3.0)
    with eg.GradientTape() as tape:
        y = eg.grad_pass_through(x.assign)(z**2)
    assert y.item() == 9.0
    assert tape.gradient(y, z).item() == 6.0
    assert x.numpy() == 9.0


# Recording by hand


def recorded(rule, watch=True):
    """The gradient of an operation with this rule, recorded by hand."""
    x = eg.constant(3.0)
    with eg.GradientTape() as tape:
        if watch:
            tape.watch(x)
        y = eg.constant(5.0)
        eg.tape.record_operation("by_hand", [y], [x], rule)
    return tape.gradient(y, x)


def test_212_record_operation():
    assert recorded(lambda dy: [42 * dy]).item() == 42.0


def test_213_record_operation_too_few_gradients():
    with pytest.raises(ValueError, match=r"by_hand: .*expected 1, got 0"):
        recorded(lambda dy: [])


def test_214_record_operation_bare_tensor():
    with pytest.raises(TypeError, match=r"by_hand: .*list or tuple"):
        recorded(lambda dy: dy)


def test_216_record_operation_input_unwatched():
    seen = []
    assert recorded(lambda dy: [seen.append(dy)], watch=False) is None
    assert seen == []


def test_217_module_stop_recording():
    x = eg.constant(3.0)
    with eg.GradientTape() as outer, eg.GradientTape() as inner:
        outer.watch(x)
        inner.watch(x)
        with eg.tape.stop_recording():
            y = x * x
        z = y * x
    assert inner.gradient(z, x).item() == 9.0
    assert outer.gradient(z, x).item() == 9.0


def test_218_tape_opened_under_module_stop():
    x = eg.constant(3.0)
    with eg.tape.stop_recording(), eg.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    assert tape.gradient(y, x) is None


def test_218a_late_record():
    x, y = eg.constant(1.0), eg.constant(np.float32(4.0))
    with eg.GradientTape() as tape:
        tape.watch([x, y])
        z = 2 * y
        eg.tape.record_operation("late", [y], [x], lambda dy: [10 * dy])
    assert tape.gradient(z, x).item() == 20.0
