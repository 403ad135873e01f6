"""At the edges: what is not smooth, what saturates, what overflows on the way.

At a point where a function has no derivative there is a convention, and here it is
written down.  Where the mathematics is finite, values and gradients are finite too.
"""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.primitive import OPS

INF, NAN = np.inf, np.nan
FLOATS = ["float16", "float32", "float64"]


def grad(f, *args, dy=None):
    """The gradients as lists; one alone for one argument."""
    arrays = [
        x if isinstance(x, np.ndarray) else np.asarray(x, "float64") for x in args
    ]
    grads = [g.tolist() for g in eg.gradients_function(f)(*arrays, dy=dy)]
    return grads[0] if len(args) == 1 else grads


def grad_of_grad(f, x):
    """The second derivative; 0 where the first does not depend on x."""
    x = eg.tensor(np.asarray(x, "float64"))
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        g = inner.gradient(y, x)
    return outer.gradient(g, x, unconnected_gradients="zero").tolist()


# ------------------------------------------------- conventions where nothing is smooth


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (eg.relu, [0.0, -0.0, -1.0, 1.0], [0.0, 0.0, 0.0, 1.0]),
        (eg.abs, [0.0, -0.0, -1.0, 1.0], [0.0, 0.0, -1.0, 1.0]),
        (lambda x: eg.clip(x, 0.0, 1.0), [-0.1, 0.0, 0.5, 1.0, 1.1], [0, 1, 1, 1, 0]),
        (lambda x: eg.clip(x, 0.0), [-0.1, 0.0, 0.1], [0, 1, 1]),
        (lambda x: eg.clip(x, None, 1.0), [0.9, 1.0, 1.1], [1, 1, 0]),
        (lambda x: eg.clip(x, 1.0, 1.0), [0.9, 1.0, 1.1], [0, 1, 0]),
        (lambda x: eg.maximum(x, 0.0), [0.0, -1.0, 1.0], [1.0, 0.0, 1.0]),
        (lambda x: eg.maximum(0.0, x), [0.0, -1.0, 1.0], [0.0, 0.0, 1.0]),
        (lambda x: eg.minimum(x, 0.0), [0.0, -1.0, 1.0], [1.0, 1.0, 0.0]),
        (lambda x: eg.minimum(0.0, x), [0.0, -1.0, 1.0], [0.0, 1.0, 0.0]),
        (lambda x: eg.maximum(x, x), [1.0], [1.0]),
        (eg.max, [2.0, 1.0, 2.0], [0.5, 0.0, 0.5]),
        (eg.min, [2.0, 1.0, 1.0, 1.0], [0.0, 1 / 3, 1 / 3, 1 / 3]),
        (eg.max, [INF, 1.0, INF], [0.5, 0.0, 0.5]),
        (lambda x: eg.sum(eg.remainder(x, 2.0)), [4.0, -1.0], [1.0, 1.0]),
        (eg.sqrt, [0.0, 4.0], [INF, 0.25]),
    ],
)
def test_conventions(f, x, expected):
    assert grad(f, x) == expected


def test_ties_are_shared_along_each_axis():
    x = [[1.0, 1.0, 0.0], [2.0, 3.0, 3.0]]
    expected = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    assert grad(lambda x: eg.max(x, axis=1), x) == expected
    assert grad(lambda x: eg.max(x, axis=-1, keepdims=True), x) == expected
    every = np.ones((2, 3, 2))
    assert grad(lambda x: eg.min(x, axis=(0, 2)), every) == (every / 4).tolist()


def test_ties_of_a_clip_go_to_the_value():
    f = OPS["clip"].entry
    assert grad(f, 1.0, 1.0, 2.0) == [1.0, 0.0, 0.0]
    assert grad(f, 3.0, 2.0, 1.0) == [0.0, 0.0, 1.0]  # NumPy: the upper bound wins
    assert grad(f, 3.0, 1.0, 2.0) == [0.0, 0.0, 1.0]
    assert grad(f, 0.0, 1.0, 2.0) == [0.0, 1.0, 0.0]


def test_a_clipped_number_takes_the_dtype_of_its_bounds():
    half = np.array([0.0, 2.0], "float16")
    for args, dtype, values in (
        ((1, half, 1.0), "float16", [1, 1]),
        ((1.5, 0.5, half), "float16", [0, 1.5]),
        ((1.0, half, half.astype("float32")), "float32", [0, 2]),
        ((half, 0.5, half.astype("float32")), "float32", [0, 2]),
        ((half, np.array([1, 1]), 9), "float16", [1, 2]),
        ((0.5, np.array([0, 1]), 2), "float32", [0.5, 1]),
        ((1, 0, np.array([0, 3])), "int64", [0, 1]),
        ((1, 0.5, 2), "float32", 1),
    ):
        y = eg.clip(*args)
        assert (y.dtype, y.tolist()) == (dtype, values)


def test_second_derivatives_of_kinks_are_zero():
    for f in (eg.relu, eg.abs, lambda x: eg.maximum(x, 0.0), eg.max):
        second = grad_of_grad(lambda x, f=f: eg.sum(f(x) * 2.0), [0.0, -1.0, 1.0])
        assert second == [0.0, 0.0, 0.0]


# ------------------------------------------------------------------ nan and infinity


def test_nan_is_the_extreme_and_gets_the_gradient():
    x = [1.0, NAN, 3.0]
    assert np.isnan(eg.max(x).item())
    assert np.isnan(eg.min(x).item())
    assert grad(eg.max, x) == [0.0, 1.0, 0.0]
    assert grad(eg.min, x) == [0.0, 1.0, 0.0]
    rows = [[1.0, NAN], [2.0, 3.0]]
    assert grad(lambda x: eg.max(x, axis=1), rows) == [[0.0, 1.0], [0.0, 1.0]]


@pytest.mark.parametrize("op", [eg.maximum, eg.minimum])
def test_nan_in_maximum_gets_the_gradient(op):
    assert grad(op, [NAN, 1.0], [1.0, NAN]) == [[1.0, 0.0], [0.0, 1.0]]


def test_relu_of_nan_is_nan():
    assert np.isnan(eg.relu(NAN).item())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("g", [INF, -INF, NAN])
def test_masks_select_and_do_not_multiply(g, dtype):
    """0 * inf is nan: a branch not taken has a gradient of exact 0, not of 0 * g."""
    x = np.array([-1.0, 1.0], dtype)
    seed = np.array([g, 1.0], dtype)
    assert grad(eg.relu, x, dy=seed) == [0.0, 1.0]
    assert grad(lambda x: eg.maximum(x, 0.0), x, dy=seed) == [0.0, 1.0]
    assert grad(lambda x: eg.clip(x, 0.0, 2.0), x, dy=seed) == [0.0, 1.0]
    assert grad(lambda x: eg.where(x > 0, x, 0.0), x, dy=seed) == [0.0, 1.0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_relu_passes_any_cotangent_unchanged(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    seed = np.array([INF, -INF, NAN, -0.0, tiny, -tiny, 1.0], dtype)
    x = eg.tensor(np.ones(7, dtype))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.relu(x)
    g = tape.gradient(y, x, eg.tensor(seed)).numpy()
    np.testing.assert_array_equal(g, seed)
    np.testing.assert_array_equal(np.signbit(g), np.signbit(seed))


@pytest.mark.parametrize("strides", [np.s_[::2], np.s_[::-1], np.s_[:, 1]])
def test_relu_takes_strided_and_broadcast_cotangents(strides):
    x, seed = np.linspace(-1, 1, 24).reshape(4, 6), np.arange(24.0).reshape(4, 6)
    g = grad(lambda x: eg.sum(eg.relu(x)[strides] * seed[strides]), x)
    expected = np.zeros((4, 6))
    expected[strides] = np.where(x > 0, seed, 0)[strides]
    assert g == expected.tolist()
    assert grad(lambda x: eg.sum(eg.relu(x)), x) == (x > 0).astype(float).tolist()


# ------------------------------------------------ rules that are singular at a point


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (eg.log, [0.0, 2.0], [0.0, 0.5]),
        (eg.sqrt, [0.0, 4.0], [0.0, 0.25]),
        (eg.reciprocal, [0.0, 2.0], [0.0, -0.25]),
        (lambda x: x / x, [0.0, 2.0], [0.0, 0.0]),
        (lambda x: 1.0 / (x * x), [0.0, 2.0], [0.0, -0.25]),
        (lambda x: x**-2.0, [0.0, 2.0], [0.0, -0.25]),
        (lambda x: x**0.5, [0.0, 4.0], [0.0, 0.25]),
        (lambda x: eg.log1p(x - 1.0), [0.0, 2.0], [0.0, 0.5]),
        (lambda x: eg.power(x, x), [0.0, 1.0], [0.0, 1.0]),
    ],
    ids="log sqrt reciprocal ratio square power root log1p xx".split(),
)
def test_under_where_the_branch_not_taken_adds_zero(f, x, expected):
    with np.errstate(all="ignore"):
        found = grad(lambda x: eg.where(x > 0, f(x), 0.0), x)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("f", [eg.log, eg.sqrt, eg.reciprocal, lambda x: x**-1.0])
def test_under_where_also_in_the_second_derivative(f):
    with np.errstate(all="ignore"):
        found = grad_of_grad(lambda x: eg.where(x > 0, f(x), 0.0), [0.0, 1.0])
    assert found[0] == 0.0
    assert np.isfinite(found[1])


def test_an_overflow_keeps_its_nan():
    with np.errstate(all="ignore"):
        assert np.isnan(grad(lambda x: eg.exp(x) - eg.exp(x) * 1.0, 1000.0))


def test_quotient_rule_does_not_square_the_denominator():
    assert grad(lambda b: 1e-200 / b, 1e-200) == pytest.approx(-1e200)
    x = np.array(1e-30, "float32")
    assert grad(lambda b: eg.tensor(1e-30) / b, x) == pytest.approx(-1e30, rel=1e-5)


# ----------------------------------------------------------------------------- power


@pytest.mark.parametrize(
    ("base", "exponent", "value", "by_base", "by_exponent"),
    [
        (0.0, 0.0, 1.0, 0.0, 0.0),
        (0.0, 1.0, 0.0, 1.0, 0.0),
        (0.0, 2.0, 0.0, 0.0, 0.0),
        (0.0, 3.0, 0.0, 0.0, 0.0),
        (5.0, 0.0, 1.0, 0.0, np.log(5)),
        (-2.0, 2.0, 4.0, -4.0, 0.0),
        (-2.0, 3.0, -8.0, 12.0, 0.0),
        (-2.0, 0.0, 1.0, 0.0, 0.0),
        (-2.0, -1.0, -0.5, -0.25, 0.0),
        (INF, 0.0, 1.0, 0.0, INF),
        (1.0, 1e300, 1.0, 1e300, 0.0),
    ],
)
def test_power_at_its_edges(base, exponent, value, by_base, by_exponent):
    assert eg.power(np.array(base), np.array(exponent)).item() == value
    with np.errstate(all="ignore"):
        found = grad(eg.power, base, exponent)
        assert found == pytest.approx([by_base, by_exponent], rel=1e-12)
        assert grad(lambda a: a**exponent, base) == pytest.approx(by_base)
        assert grad(lambda b: base**b, exponent) == pytest.approx(by_exponent)


def test_higher_derivatives_of_power_at_zero():
    assert grad_of_grad(lambda x: x**2, 0.0) == 2.0
    assert grad_of_grad(lambda x: x**2.0, 0.0) == 2.0
    assert grad_of_grad(lambda x: x**3, 0.0) == 0.0
    assert grad_of_grad(lambda x: x**1, 0.0) == 0.0
    assert grad_of_grad(lambda x: x**0, 0.0) == 0.0
    assert grad_of_grad(lambda x: eg.power(x, np.array(2.0)), 0.0) == 2.0
    assert grad_of_grad(lambda x: eg.power(x, np.array(1.0)), 0.0) == 0.0


# ------------------------------------------------------------------------- saturation


@pytest.mark.parametrize("dtype", FLOATS)
def test_saturation(dtype):
    x = np.array([-INF, -60000, -100, 0, 100, 60000, INF], dtype)
    assert eg.sigmoid(x).numpy() == pytest.approx([0, 0, 0, 0.5, 1, 1, 1], abs=1e-7)
    assert eg.tanh(x).tolist() == [-1, -1, -1, 0, 1, 1, 1]
    softplus = eg.softplus(x).numpy()
    assert softplus == pytest.approx([0, 0, 0, np.log(2), 100, 60000, INF], rel=1e-3)
    assert softplus.dtype == dtype
    assert grad(eg.sigmoid, x) == pytest.approx([0, 0, 0, 0.25, 0, 0, 0], abs=1e-7)
    assert grad(eg.tanh, x) == [0, 0, 0, 1, 0, 0, 0]
    assert grad(eg.softplus, x) == pytest.approx([0, 0, 0, 0.5, 1, 1, 1], abs=1e-7)
    assert np.isfinite(grad_of_grad(eg.softplus, x)).all()


def test_small_tails_are_kept():
    """To full relative precision, where 1 - something near 1 would be 0."""
    assert eg.sigmoid(np.array(-40.0)).item() == pytest.approx(np.exp(-40), rel=1e-14)
    assert eg.sigmoid(np.array(-700.0)).item() == pytest.approx(np.exp(-700), rel=1e-12)
    assert eg.softplus(np.array(-40.0)).item() == pytest.approx(np.exp(-40), rel=1e-14)
    assert grad(eg.softplus, -40.0) == pytest.approx(np.exp(-40), rel=1e-14)
    assert grad(eg.sigmoid, -40.0) == pytest.approx(np.exp(-40), rel=1e-14)
    assert eg.log1p(np.array(1e-20)).item() == 1e-20
    assert eg.expm1(np.array(1e-20)).item() == 1e-20
    assert grad(eg.expm1, -50.0) == pytest.approx(np.exp(-50), rel=1e-12)


# ------------------------------------------------------------ softmax and its family


def test_logsumexp_at_infinity():
    assert eg.logsumexp([-INF, -INF]).item() == -INF
    assert eg.logsumexp([INF, 1.0]).item() == INF
    assert np.isnan(eg.logsumexp([NAN, 1.0]).item())
    assert eg.logsumexp(np.ones((2, 0)), axis=1).tolist() == [-INF, -INF]
    assert grad(eg.logsumexp, [-INF, -INF]) == [0.0, 0.0]
    assert grad(eg.logsumexp, [-INF, 0.0]) == [0.0, 1.0]
    rows = [[-INF, -INF], [0.0, 0.0]]
    assert grad(lambda x: eg.logsumexp(x, axis=1), rows) == [[0, 0], [0.5, 0.5]]
    assert np.isfinite(grad_of_grad(lambda x: eg.logsumexp(x, 1) ** 2, rows)[1]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_huge_logits(dtype):
    big = 30000.0
    x = np.array([[big, 0.0, -big], [-big, -big, -big]], dtype)
    third = [1 / 3] * 3
    assert eg.softmax(x).numpy() == pytest.approx(
        np.array([[1, 0, 0], third]), rel=2e-3
    )
    logs = eg.log_softmax(x).numpy()
    assert logs[0].tolist() == [0.0, -big, -2 * big]
    assert logs[1] == pytest.approx(-np.log(3), rel=1e-3)
    assert eg.logsumexp(x, axis=1).numpy() == pytest.approx([big, -big], rel=1e-3)
    loss = eg.softmax_cross_entropy(x, [1, 2])
    assert loss.dtype == dtype
    assert loss.numpy() == pytest.approx([big, np.log(3)], rel=1e-3)
    for labels in ([1, 2], eg.astype(eg.tensor([[0, 1, 0], [0, 0, 1]]), dtype)):
        found = grad(lambda x, labels=labels: eg.softmax_cross_entropy(x, labels), x)
        expected = np.array([[1, -1, 0], [1 / 3, 1 / 3, -2 / 3]])
        assert np.array(found) == pytest.approx(expected, abs=1e-3)


def test_masked_logits():
    """A logit of -inf is a class that cannot be."""
    x = [0.0, -INF, 0.0]
    assert eg.softmax(x).tolist() == [0.5, 0.0, 0.5]
    assert grad(lambda x: eg.softmax(x)[0], x) == [0.25, 0.0, -0.25]
    assert grad(lambda x: eg.log_softmax(x)[0], x) == [0.5, 0.0, -0.5]
    loss = eg.softmax_cross_entropy(np.array([x]), np.array([[0.5, 0.0, 0.5]]))
    assert loss.item() == pytest.approx(np.log(2))
    for labels in ([2], np.array([[0.5, 0.0, 0.5]])):
        g = grad(lambda x, labels=labels: eg.softmax_cross_entropy(x, labels), [x])
        assert np.isfinite(g).all()
        assert g[0][1] == 0.0


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [0, 2**31]])
def test_labels_out_of_range(labels):
    with pytest.raises(IndexError, match=r"labels lie in \[0, 3\), got"):
        eg.softmax_cross_entropy(np.zeros((2, 3)), labels)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_labels_of_any_integer_dtype(dtype):
    labels = np.array([0, 2], dtype)
    loss = eg.softmax_cross_entropy(np.zeros((2, 3)), labels)
    assert loss.numpy() == pytest.approx(np.log(3))
    g = grad(lambda x: eg.softmax_cross_entropy(x, labels), np.zeros((2, 3)))
    assert np.array(g)[[0, 1], [0, 2]] == pytest.approx(-2 / 3)


@pytest.mark.parametrize("labels", [[0, 2, 1, 1], np.eye(3)[[0, 2, 1, 1]]])
def test_logits_may_be_in_any_order_in_memory(labels):
    x = np.arange(12.0).reshape(4, 3) ** 1.1

    def loss(x):
        return eg.softmax_cross_entropy(x, labels)

    expected = grad(loss, x)
    assert grad(loss, np.asfortranarray(x)) == expected
    turned = grad(lambda x: loss(x.T), np.ascontiguousarray(x.T))
    assert np.transpose(turned).tolist() == expected
    assert grad(loss, np.repeat(x, 2, axis=1)[:, ::2]) == expected


def test_labels_may_be_strided_and_wider_than_a_byte():
    labels = np.array([[0, 1], [299, 1], [256, 1]])
    logits = np.zeros((3, 300))
    for strided in (labels[:, 0], labels[::-1, 0]):
        g = grad(lambda x, y=strided: eg.softmax_cross_entropy(x, y), logits)
        assert np.argmin(g, axis=1).tolist() == strided.tolist()
    with pytest.raises(IndexError, match="got 256"):
        eg.softmax_cross_entropy(np.zeros((1, 200)), labels[2:, 0])
    with pytest.raises(IndexError, match="got 200"):
        eg.softmax_cross_entropy(np.zeros((1, 200)), np.array([200], "uint8"))
    with pytest.raises(IndexError, match="got -1"):
        eg.softmax_cross_entropy(np.zeros((1, 300)), np.array([-1], "int8"))


def test_cross_entropy_of_no_examples():
    for labels in (np.zeros(0, int), np.zeros((0, 3))):
        assert eg.softmax_cross_entropy(np.zeros((0, 3)), labels).shape == (0,)
        found = grad(
            lambda x, y=labels: eg.softmax_cross_entropy(x, y), np.zeros((0, 3))
        )
        assert found == []


@pytest.mark.parametrize("dtype", ["bool", "U1"])
def test_labels_that_are_no_numbers(dtype):
    with pytest.raises(TypeError, match="integer labels or probabilities"):
        eg.softmax_cross_entropy(np.zeros((2, 3)), np.zeros(2, dtype))


def test_labels_of_the_wrong_shape():
    for labels in ([0], [[0], [1]], np.zeros((2, 2))):
        with pytest.raises(ValueError, match=r"softmax_cross_entropy.*\(2, 3\)"):
            eg.softmax_cross_entropy(np.zeros((2, 3)), labels)


# ------------------------------------------------------------------ half and nothing


def test_half_precision_sums_accumulate_in_float32():
    ones = np.ones(5000, "float16")  # float16 itself stops counting at 2048
    assert eg.sum(ones).item() == 5000
    assert eg.sum(ones).dtype == "float16"
    assert eg.mean(ones).item() == 1
    assert eg.sum(ones.reshape(5, 1000), axis=1).tolist() == [1000] * 5
    large = np.full(3, 40000.0, "float16")  # their sum is beyond float16
    assert eg.mean(large).item() == 40000
    many = np.zeros(65536, "float16")
    assert eg.logsumexp(many).item() == pytest.approx(11.09, rel=1e-3)


@pytest.mark.parametrize(("count", "dtype"), [(65536, "float16"), (1000, "float32")])
def test_the_gradient_of_logsumexp_sums_to_one(count, dtype):
    """Also where the value itself is rounded: of logits far from 0, or in float16."""
    x = np.full(count, 0 if dtype == "float16" else 1e5, dtype)
    assert np.sum(grad(eg.logsumexp, x)) == pytest.approx(1, rel=1e-6)


def test_half_precision_gradients_of_a_broadcast_accumulate_in_float32():
    b = np.array([1.0], "float16")
    x = np.ones((5000, 1), "float16")
    assert grad(lambda b: x + b, b) == [5000]
    assert grad(lambda b: x * b, b) == [5000]


def test_half_precision_gradients_of_a_gather_accumulate_in_float32():
    assert grad(lambda x: x[np.zeros(5000, int)], np.ones(2, "float16")) == [5000, 0]


def test_half_precision_softmax_of_many():
    x = np.zeros((2, 65536 + 8), "float16")
    assert eg.softmax(x).numpy() == pytest.approx(1 / 65544, rel=1e-2)
    assert eg.log_softmax(x).numpy() == pytest.approx(-np.log(65544), rel=1e-3)
    loss = eg.softmax_cross_entropy(x, [0, 1])
    assert loss.numpy() == pytest.approx(np.log(65544), rel=1e-3)


def test_mean_of_nothing_is_nan_without_a_warning():
    assert np.isnan(eg.mean(np.ones(0)).item())
    assert eg.mean(np.ones((0, 2)), axis=1).tolist() == []
    assert np.isnan(eg.mean(np.ones((2, 0)), axis=1).numpy()).all()
    assert grad(eg.mean, np.ones(0)) == []


def test_integers_are_not_rounded_on_the_way_to_float64():
    n = eg.tensor([2**24 + 1, 3])
    for y in (n.astype("float64"), eg.tensor(n, "float64")):
        assert y.dtype == "float64"
        assert y.tolist() == [16777217.0, 3.0]
    assert n.astype("complex128").dtype == "complex128"
    assert (n + eg.tensor(np.array(0.5))).tolist() == [16777217.5, 3.5]
    joined = eg.concatenate([n, eg.tensor(np.ones(1))])
    assert joined.tolist() == [16777217.0, 3.0, 1.0]
    assert eg.tensor([True]).astype("float64").dtype == "float64"


def test_python_numbers_and_integers_make_float32():
    """NumPy's float64 and float16 out of integers are what nobody asked for."""
    flag, n = eg.tensor([True, False]), eg.tensor([1, 2])
    assert eg.where(flag, 1.0, 0.0).dtype == "float32"
    assert eg.where(flag, 1, 0).dtype == "int64"
    assert eg.where(flag, n, 0.5).dtype == "float32"
    assert eg.where(flag, np.arange(2), np.ones(2, "float32")).dtype == "float32"
    assert eg.where(flag, n, np.ones(2)).dtype == "float64"
    assert eg.clip(n, 0.5, 1.5).dtype == "float32"
    assert eg.clip(n, 0, 1).dtype == "int64"
    assert eg.clip(n, eg.tensor(0.5), eg.tensor(1.5)).dtype == "float32"
    assert eg.clip(eg.tensor([1.0]), 0, 1).dtype == "float32"
    small = np.array([1, 2], "int8")
    for f in (
        eg.exp,
        eg.sigmoid,
        eg.sqrt,
        eg.softplus,
        lambda x: eg.divide(x, x),
        eg.mean,
    ):
        assert f(small).dtype == "float32"
    assert eg.exp(np.ones(1, "float16")).dtype == "float16"


# ------------------------------------------------------------------ axes and indices


def test_an_axis_of_a_scalar():
    """As NumPy's ufuncs, reductions take axis 0 and -1 of a 0-d array."""
    for axis in (0, -1):
        for f in (eg.sum, eg.max, eg.logsumexp):
            assert f(np.array(2.0), axis=axis).item() == 2.0
            assert grad(lambda x, f=f, axis=axis: f(x, axis=axis), 2.0) == 1.0


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (((0, 0),), [[2, 2], [0, 0]]),
        (((0, 0), (1, 1)), [[0, 2], [0, 0]]),
        (([0, 0], slice(None)), [[2, 2], [0, 0]]),
        ((slice(None), (1, -1)), [[0, 2], [0, 2]]),
        (([0, 1], 1), [[0, 1], [0, 1]]),
        ([True, False], [[1, 1], [0, 0]]),
        ((True, 0), [[1, 1], [0, 0]]),
        ([], [[0, 0], [0, 0]]),
        (range(2), [[1, 1], [1, 1]]),
        (np.uint8(1), [[0, 0], [1, 1]]),
        (np.zeros(3, "uint8"), [[3, 3], [0, 0]]),
        (None, [[1, 1], [1, 1]]),
    ],
    ids=str,
)
def test_an_index_in_any_form(index, expected):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert eg.tensor(x)[index].tolist() == x[index].tolist()
    assert grad(lambda x: x[index], x) == expected


def test_axes_that_do_not_fit_raise():
    x = eg.ones((2, 3))
    for wrong in (
        lambda: eg.transpose(x, ()),
        lambda: eg.transpose(x, (0,)),
        lambda: eg.transpose(x, (0, 0)),
        lambda: eg.swapaxes(x, 0, 2),
        lambda: eg.expand_dims(x, 4),
        lambda: eg.squeeze(x, 0),
        lambda: eg.split(x, 2, axis=1),
    ):
        with pytest.raises(eg.errors.ShapeError):
            wrong()


def test_nested_lists_are_taken_for_arrays():
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert eg.take(rows, [1], axis=0).tolist() == [[3.0, 4.0]]
    assert eg.take(rows, 2).item() == 3.0
    assert eg.swapaxes(rows, 0, 1).tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_imaginary_part_of_a_real_infinity_is_zero():
    assert eg.imag(eg.tensor([1.0, INF, NAN])).tolist() == [0.0, 0.0, 0.0]
    assert eg.imag(eg.tensor([1])).dtype == "int64"
    assert grad(eg.imag, [1.0]) == [0.0]


def test_sigmoid_of_complex_numbers():
    z = np.array([3 + 4j, -1 - 2j])
    np.testing.assert_allclose(eg.sigmoid(z).numpy(), 1 / (1 + np.exp(-z)))
