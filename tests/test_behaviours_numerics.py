"""The tape's behaviour row by row: dtypes, None, singular points, seeds.

The numbers in the names are those of the table the rows come from.
"""

import numpy as np
import pytest

import eagergrad as eg

C = eg.constant
V = eg.Variable
T = eg.GradientTape


def values(grads):
    """Gradients as Python numbers and lists, in the structure they came in."""
    return eg.nest.map_structure(lambda g: None if g is None else g.tolist(), grads)


def gradient(f, *args):
    """The gradients of f, as Python numbers; one alone for one argument."""
    grads = values(eg.gradients_function(f)(*args))
    return grads[0] if len(args) == 1 else grads


# dtypes, None, numerics


def test_104_watched_integer():
    x = C(3)
    with T() as t:
        with pytest.warns(eg.DTypeWarning, match="int64"):
            t.watch(x)
        y = x * x
    with pytest.warns(eg.DTypeWarning, match="int64"):
        assert t.gradient(y, x) is None


def test_105_integer_variable():
    v = V(3)
    with T() as t:
        y = v * v
    with pytest.warns(eg.DTypeWarning, match="int64"):
        assert t.gradient(y, v) is None
    (watched,) = t.watched_variables()
    assert watched is v


def test_106_text_among_targets_and_sources():
    x, s = C(3.0), C("text")
    with T() as t:
        t.watch(x)
        z = x * x
    with pytest.warns(eg.DTypeWarning):
        assert values(t.gradient([z, s], [x, s])) == [6.0, None]


def test_108_argmax():
    x = C([1.0, 3.0, 2.0])
    with T() as t:
        t.watch(x)
        y = eg.argmax(x)
    assert y.item() == 1
    assert t.gradient(y, x) is None


@pytest.mark.parametrize("op", [eg.floor, eg.ceil, eg.round, eg.rint, eg.sign])
def test_109_rounding(op):
    x = C([1.4, -2.6])
    with T() as t:
        t.watch(x)
        y = op(x)
    assert t.gradient(y, x) is None


@pytest.mark.parametrize(("x", "expected"), [(5.0, 1.0), (50.0, 100.0)])
def test_110_where_picks_a_branch(x, expected):
    assert gradient(lambda x: eg.where(x < 10, x, x**2), x) == expected


@np.errstate(divide="ignore")
def test_111_where_with_log_at_zero():
    g = gradient(lambda x: eg.where(x > 0, eg.log(x), 0.0), [0.0, 4.0])
    assert g == [0.0, 0.25]


@np.errstate(divide="ignore")
@pytest.mark.parametrize("reciprocal", [eg.reciprocal, lambda x: 1 / x])
def test_112_where_with_reciprocal_at_zero(reciprocal):
    g = gradient(lambda x: eg.where(x > 0, reciprocal(x), 0.0), [0.0, 4.0])
    assert g == [0.0, -0.0625]


@np.errstate(divide="ignore", invalid="ignore")
@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (eg.sqrt, 0.25),
        (lambda x: x**0.5, 0.25),
        (lambda x: x**-1.0, -0.0625),
        (lambda x: x / x**2, -0.0625),
        (lambda x: 2.0 / x, -0.125),
    ],
    ids=["sqrt", "root", "power", "quotient", "divide"],
)
def test_112_where_with_other_rules_singular_at_zero(f, expected):
    masked = gradient(lambda x: eg.where(x > 0, f(x), 0.0), [0.0, 4.0])
    assert masked[0] == 0.0
    assert masked[1] == pytest.approx(expected, rel=1e-6)


def test_113_safe_double_where():
    def f(x):
        safe = eg.where(x > 0, x, 1.0)
        return eg.where(x > 0, eg.log(safe), 0.0)

    assert gradient(f, [0.0, 4.0]) == [0.0, 0.25]


@pytest.mark.parametrize(("x", "expected"), [(0.0, 0.5), (100.0, 1.0)])
def test_116_softplus_with_its_own_rule(x, expected):
    @eg.custom_gradient
    def softplus(x):
        e = eg.exp(x)
        return eg.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    with np.errstate(over="ignore"):
        assert gradient(softplus, x) == expected


@pytest.mark.parametrize("power", [eg.power, lambda a, b: a**b])
def test_117_power(power):
    base, exponent = gradient(power, 2.0, 3.0)
    assert base == 12.0
    assert exponent == pytest.approx(5.545177, rel=1e-6)


def test_118_power_of_a_negative_base():
    assert gradient(eg.power, -2.0, 3.0) == [12.0, 0.0]


@pytest.mark.parametrize("op", [eg.maximum, eg.minimum])
def test_120_maximum_of_equal_numbers(op):
    assert gradient(op, 3.0, 3.0) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("op", "x"), [(eg.max, [1.0, 3.0, 3.0]), (eg.min, [5.0, 3.0, 3.0])]
)
def test_121_ties_of_a_reduction(op, x):
    assert gradient(op, x) == [0.0, 0.5, 0.5]


def test_122_clip_at_its_bounds():
    g = gradient(lambda x: eg.clip(x, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0])
    assert g == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_125_complex_square():
    assert gradient(lambda z: z**2, 3 + 4j) == 6 - 8j


def test_126_complex_modulus():
    assert gradient(lambda z: eg.real(z) ** 2 + eg.imag(z) ** 2, 3 + 4j) == 6 + 8j


@pytest.mark.parametrize("labels", [[0], [[1.0]]], ids=["index", "probability"])
def test_128_cross_entropy_of_one_logit_second_order(labels):
    def loss(x):
        return eg.softmax_cross_entropy(x, labels)

    assert gradient(loss, [[0.1]]) == [[0.0]]
    first = eg.gradients_function(loss)
    assert gradient(lambda x: first(x)[0], [[0.1]]) == [[0.0]]


def test_129_softmax_jacobian():
    x = C([0.0, 0.0])
    with T() as t:
        t.watch(x)
        y = eg.softmax(x)
    assert values(t.jacobian(y, x)) == [[0.25, -0.25], [-0.25, 0.25]]


@pytest.mark.parametrize(
    "gather",
    [lambda x: eg.take(x, [0, 2, 0], axis=0), lambda x: x[[0, 2, 0]]],
    ids=["take", "index"],
)
def test_130_gather_with_repeats(gather):
    x = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert gradient(gather, x) == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]


def test_132_half_of_a_split():
    g = gradient(lambda x: eg.split(x, 2, axis=1)[0] ** 2, [[1.0, 2.0, 3.0, 4.0]])
    assert g == [[2.0, 4.0, 0.0, 0.0]]


# Seeds


def test_133_seed_for_a_target_that_is_the_source():
    x, y = C(3.0), C(2.0)
    with T() as t:
        t.watch([x, y])
        loss = x * y
    assert t.gradient([loss, x], x, output_gradients=[1.0, 2.0]).item() == 4.0


def test_134_repeated_target_with_two_seeds():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
    assert t.gradient([y, y], x, output_gradients=[C(1.0), C(10.0)]).item() == 66.0


def test_136_seed_none_means_ones():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        targets = [x * x, 2 * x]
    assert t.gradient(targets, x, output_gradients=[None, C(10.0)]).item() == 26.0


def test_137_too_few_seeds():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        targets = [x * x, 2 * x]
    with pytest.raises(ValueError, match=r"2 target.*1 seed"):
        t.gradient(targets, x, output_gradients=[C(1.0)])


def test_138_too_many_seeds():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
    with pytest.raises(ValueError, match="output_gradients"):
        t.gradient(y, x, output_gradients=[1.0, 2.0])


def test_138_too_many_seeds_that_are_tensors():
    x = C(3.0)
    with T() as t:
        t.watch(x)
        y = x * x
    with pytest.raises(ValueError, match=r"1 target.*2 seed"):
        t.gradient(y, x, output_gradients=[C(1.0), C(2.0)])


@pytest.mark.parametrize("seed", [2.0, np.float64(2.0), C(2.0)])
def test_140_scalar_seed_broadcasts(seed):
    x = C([3.0, 4.0])
    with T() as t:
        t.watch(x)
        y = x * x
    assert values(t.gradient(y, x, output_gradients=seed)) == [12.0, 16.0]


@pytest.mark.parametrize("seed", [[1.0, 2.0, 3.0], C([1.0, 2.0, 3.0])])
def test_141_seed_of_the_wrong_shape(seed):
    x = C([3.0, 4.0])
    with T() as t:
        t.watch(x)
        y = x * x
    with pytest.raises(ValueError, match="seed 0"):
        t.gradient(y, x, output_gradients=seed)


def test_142_seed_is_differentiable():
    x, w = C(2.0), C(5.0)
    with T() as outer:
        outer.watch(w)
        with T() as inner:
            inner.watch(x)
            y = x * x * x
        g = inner.gradient(y, x, output_gradients=w)
    assert g.item() == 60.0
    assert outer.gradient(g, w).item() == 12.0


def test_114_norm_at_zero():
    x = C([0.0, 0.0])
    with T() as tape:
        tape.watch(x)
        y = eg.norm(x)
    assert tape.gradient(y, x).tolist() == [0.0, 0.0]


def test_124_cumprod_with_a_zero():
    x = C([2.0, 0.0, 3.0])
    with T() as tape:
        tape.watch(x)
        y = eg.cumprod(x)
    assert tape.gradient(y, x).tolist() == [1.0, 8.0, 0.0]
