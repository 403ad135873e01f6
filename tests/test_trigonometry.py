"""Trigonometry and the rest of NumPy's elementwise functions: numbers and edges."""

import math

import numpy as np
import pytest
from op_cases import CASES, SMOOTH

import eagergrad as eg
from eagergrad.primitive import OPS
from eagergrad.testing import check_grads

INF, NAN = math.inf, math.nan


def grad(f, *arrays):
    """The gradients of the sum of f's values; one array when there is one."""
    xs = [eg.tensor(np.asarray(x)) for x in arrays]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    found = [g.numpy() for g in tape.gradient(y, xs)]
    return found[0] if len(found) == 1 else found


def derivative(f, order, x):
    """The derivative of an order by nested tapes, element by element."""
    if not order:
        return f(x)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = derivative(f, order - 1, x)
    return tape.gradient(y, x, unconnected_gradients="zero")


def equal(got, expected, rtol=1e-15):
    np.testing.assert_allclose(got, expected, rtol)


def test_slopes_at_the_ends_of_a_domain_are_infinite():
    ends = np.array([1.0, -1.0])
    equal(grad(eg.arcsin, ends), [INF, INF])
    equal(grad(eg.arccos, ends), [-INF, -INF])
    equal(grad(eg.arctanh, ends), [INF, INF])
    equal(grad(eg.arccosh, np.array([1.0])), [INF])
    equal(derivative(eg.arcsin, 2, eg.tensor(ends)).numpy(), [INF, -INF])
    equal(derivative(eg.arctanh, 2, eg.tensor(ends)).numpy(), [INF, -INF])
    equal(derivative(eg.arccosh, 2, eg.tensor(1.0)).numpy(), -INF)


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("arcsin", 1.0),
        ("arccos", -1.0),
        ("arctanh", 1.0),
        ("arccosh", 1.0),
        ("log2", 0.0),
        ("log10", 0.0),
        ("cbrt", 0.0),
        ("logit", 0.0),
        ("erfinv", 1.0),
        ("ndtri", 0.0),
        ("gammaln", 0.0),
        ("digamma", 0.0),
        ("entr", 0.0),
    ],
)
def test_a_cotangent_of_zero_gives_zero_at_a_singular_point(name, x):
    f = getattr(eg, name)
    assert grad(lambda x: eg.where(x > 5, f(x), 2.0 * x), np.array([x])) == 2.0


def test_slopes_where_squares_would_overflow_or_vanish():
    equal(grad(eg.arcsinh, np.array([1e200])), [1e-200])
    equal(grad(eg.arccosh, np.array([1e200])), [1e-200])
    equal(grad(eg.arctan, np.array([300.0], "f2")), [np.float16(1 / 90001)], 2e-2)
    equal(grad(eg.arctan2, 1e-200, 2e-200), [4e199, -2e199])
    equal(grad(eg.arctan2, 3e200, 4e200), [1.6e-201, -1.2e-201])
    equal(grad(eg.hypot, 3e200, 4e200), [0.6, 0.8])


def test_the_origin_has_no_direction():
    assert grad(eg.arctan2, 0.0, 0.0) == [0, 0]
    assert grad(eg.hypot, 0.0, 0.0) == [0, 0]
    assert grad(eg.hypot, 0.0, -2.0) == [0, -1]


def test_degrees_and_angles():
    equal(eg.degrees(eg.tensor([math.pi], dtype="f8")).numpy(), [180])
    equal(grad(eg.radians, np.array([5.0])), [math.pi / 180])
    equal(eg.angle(np.array([1 + 1j, -1, 1j])).numpy(), np.pi * np.r_[0.25, 1, 0.5])
    equal(eg.angle(np.array([2.0, -2.0, 0.0]), deg=True).numpy(), [0, 180, 0])
    assert grad(eg.angle, -2.0) == 0
    check_grads(eg.angle, [np.array([1 + 1j, -0.5 + 2j, 2 - 0.3j])])


@pytest.mark.parametrize(
    "name",
    "tan arcsin arccos arctan sinh cosh arcsinh arccosh arctanh sinc exp2".split(),
)
def test_complex_numbers(name):
    z = np.array([0.3 + 0.4j, -0.2 + 0.7j, 0.5 - 0.1j])
    equal(getattr(eg, name)(z).numpy(), getattr(np, name)(z), 1e-14)
    check_grads(getattr(eg, name), [z])


def test_sinc_near_its_top_in_every_order():
    # sinc(x) = sum of (-1)^k (pi x)^(2 k) / (2 k + 1)!
    x = np.array([0.0, 1e-9, -1e-4, 0.2])
    powers = np.arange(0, 40, 2)
    signs = (-1.0) ** np.arange(20) * np.pi**powers
    for order in range(5):
        expected = np.zeros(4)
        for j, c in zip(powers, signs, strict=True):
            if j >= order:
                falling = math.perm(int(j), order) / math.factorial(int(j) + 1)
                expected += c * falling * x ** (j - order)
        got = derivative(eg.sinc, order, eg.tensor(x)).numpy()
        np.testing.assert_allclose(got, expected, 1e-13, 1e-15)


def test_sinc_far_out():
    x = np.array([0.6, 1.0, -3.0, 7.25, 1e6])
    slope = (np.cos(np.pi * (x % 2)) - np.sin(np.pi * (x % 2)) / (np.pi * x)) / x
    np.testing.assert_allclose(grad(eg.sinc, x), slope, 1e-12)
    assert eg.sinc(np.ones(3, "f2")).dtype == "float16"


def test_float_power():
    assert eg.float_power([2, 4], -1).dtype == "float32"
    assert eg.float_power(2, -2).tolist() == 0.25
    assert eg.float_power(eg.tensor([3.0], dtype="f2"), 2).dtype == "float16"
    assert eg.float_power(2.0, eg.tensor([1, 3])).tolist() == [2, 8]
    assert grad(lambda x: eg.float_power(x, 3), np.array([2.0])) == [12]


def test_shares_of_sums_of_exponentials():
    for f in (eg.logaddexp, eg.logaddexp2):
        assert grad(f, 1.5, 1.5) == [0.5, 0.5]
        assert grad(f, -INF, -INF) == [0.5, 0.5]
        assert grad(f, INF, INF) == [0.5, 0.5]
        assert grad(f, -INF, 3.0) == [0, 1]
        assert grad(f, 1e308, -1e308) == [1, 0]
        assert derivative(lambda x, f=f: f(x, 1000.0), 2, eg.tensor(0.0)).item() == 0
    x = eg.tensor(np.array([0.0, 40.0, -40.0]))
    got = derivative(lambda x: eg.logaddexp(x, 0.0), 2, x).numpy()
    equal(got, [0.25, math.exp(-40), math.exp(-40)])


def test_remainders_count_whole_quotients():
    # 0.9 / 0.1 is 9.0 in floating point, but 0.9 holds 0.1 only 8 times
    assert grad(eg.fmod, 0.9, 0.1) == [1, -8]
    assert grad(eg.fmod, -19.0, 3.0) == [1, 6]
    assert grad(eg.fmod, 5.0, INF) == [1, 0]


def test_ties_and_nans():
    assert grad(eg.fmax, 2.0, 2.0) == [1, 0]
    assert grad(eg.fmin, 2.0, 2.0) == [1, 0]
    assert grad(eg.fmax, NAN, 2.0) == [0, 1]
    assert grad(eg.fmin, 2.0, NAN) == [1, 0]
    assert grad(eg.fmax, NAN, NAN) == [1, 0]
    assert grad(
        lambda a: eg.copysign(a, -0.0), np.array([2.0, -2.0, 0.0])
    ).tolist() == [*(-1, 1, 0)]
    assert grad(lambda b: eg.heaviside(np.array([-1.0, 0.0, 1.0]), b), 0.5) == 1


def test_nan_to_num():
    x = np.array([NAN, INF, -INF, 2.0])
    assert eg.nan_to_num(x, True, 5.0, 6.0, 7.0).tolist() == [5, 6, 7, 2]
    assert grad(eg.nan_to_num, x).tolist() == [0, 0, 0, 1]
    big = np.finfo("f2").max
    assert eg.nan_to_num(x.astype("f2")).tolist() == [0, big, -big, 2]
    assert eg.nan_to_num([1, 2]).dtype == "int64"


def test_ldexp():
    x = eg.tensor([1.0, -3.0])
    assert eg.ldexp(x, [[1], [-1]]).tolist() == [[2, -6], [0.5, -1.5]]
    assert grad(lambda x: eg.ldexp(x, [[1], [2]]), np.array([1.0, 3.0])).tolist() == [
        6,
        6,
    ]
    assert eg.ldexp(3, 2).dtype == "float32"
    with pytest.raises(
        eg.errors.DTypeError, match="ldexp: expected integers x2, got fl"
    ):
        eg.ldexp(x, 2.0)


def test_comparisons():
    x = np.array([1.0, NAN, INF, -INF])
    assert eg.isclose(x, x).tolist() == [True, False, True, True]
    assert eg.isclose(x, x, equal_nan=True).tolist() == [True] * 4
    assert not bool(eg.allclose([1.0], [1.1]))
    assert bool(eg.allclose([1.0], [1.1], atol=0.2))
    assert eg.isposinf(x).tolist() == [False, False, True, False]
    assert eg.isneginf(x).tolist() == [False, False, False, True]
    assert eg.signbit(np.array([0.0, -0.0])).tolist() == [False, True]
    assert eg.fix(np.array([1.7, -1.7])).tolist() == [1, -1]
    assert eg.trunc is eg.fix


def test_names_of_the_array_api():
    for name in "asin acos atan asinh acosh atanh atan2".split():
        assert getattr(eg, name) is getattr(eg, "arc" + name[1:])


MODULES = ("trigonometry", "powers", "special", "activations")
OWN = [
    case
    for case in SMOOTH
    if (case.op.forward or case.op.rules[0] or case.op.rules[1]).__module__.endswith(
        MODULES
    )
]


@pytest.mark.parametrize("case", OWN, ids=str)
def test_forward_mode_is_the_transpose_of_reverse_mode(case):
    xs = [eg.tensor(x) for x in case.source_arrays]
    vs = [eg.tensor(np.cos(1 + np.arange(x.size)).reshape(x.shape)) for x in xs]
    with eg.ForwardAccumulator(xs, vs) as forward:
        y = case.of_sources(*xs)
    y_dot = forward.jvp(y).numpy()
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = case.of_sources(*xs)
    c = np.sin(1 + np.arange(y_dot.size)).reshape(y_dot.shape)
    gs = tape.gradient(y, xs, eg.tensor(c))
    expected = sum((g.numpy() * v.numpy()).sum() for g, v in zip(gs, vs, strict=True))
    np.testing.assert_allclose((c * y_dot).sum(), expected, 1e-11, 1e-11)


def test_a_python_number_beside_float32_widens_no_rule():
    """What the rules compute of a number is float32 on both readers."""
    for op in {case.op for case in OWN if case.op.arity == 2 and not case.op.params}:
        x = eg.tensor(CASES[op.name][0].arrays[0], dtype="f4")
        for place in (0, 1):
            if op.rules[place] is None:
                continue
            rule = op.lowered[np.ndarray][place]
            values = {op.arrays[place]: abs(x.numpy()), op.arrays[1 - place]: 1.5}
            values["y"] = values[op.arrays[place]]
            got = rule(np.ones_like(x.numpy()), *(values[n] for n in op.reads[place]))
            assert got.dtype == "float32", (op.name, place)
    assert OPS["logaddexp"] in {case.op for case in OWN}
