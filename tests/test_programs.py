"""The programs the project starts from: they must run as their users write them."""

import numpy as np
import pytest

import eagergrad as eg
import eagergrad as tf
import eagergrad as tfe

# Four ways to the same gradients


def test_call():
    w1, w2 = eg.Variable(2.0), eg.Variable(3.0)

    def f(x1, x2):
        return w1 * x1 + w2 * x2

    assert f(5.0, 7.0).numpy() == 31.0


def test_tape():
    w1, w2 = eg.Variable(2.0), eg.Variable(3.0)
    with eg.GradientTape() as tape:
        s = w1 * 5.0 + w2 * 7.0
    [g] = tape.gradient(s, [w1])
    assert g.numpy() == 5.0


def test_gradients_function():
    w1, w2 = eg.Variable(2.0), eg.Variable(3.0)

    def f(x1, x2):
        return w1 * x1 + w2 * x2

    assert [g.numpy() for g in eg.gradients_function(f)(5.0, 7.0)] == [2.0, 3.0]


def test_gradients_function_by_name():
    w1, w2 = eg.Variable(2.0), eg.Variable(3.0)

    def g(w1, x1, w2, x2):
        return w1 * x1 + w2 * x2

    grads = eg.gradients_function(g, params=["w1", "w2"])(w1, 5.0, w2, 7.0)
    assert [g.numpy() for g in grads] == [5.0, 7.0]


def test_implicit_gradients():
    w1, w2 = eg.Variable(2.0), eg.Variable(3.0)

    def f(x1, x2):
        return w1 * x1 + w2 * x2

    (g1, v1), (g2, v2) = eg.implicit_gradients(f)(5.0, 7.0)
    assert (g1.numpy(), g2.numpy()) == (5.0, 7.0)
    assert v1 is w1
    assert v2 is w2


def test_implicit_gradients_leave_out_what_is_not_trainable():
    w1, w2 = eg.Variable(2.0, trainable=False), eg.Variable(3.0)

    def f(x1, x2):
        return w1 * x1 + w2 * x2

    [(g, v)] = eg.implicit_gradients(f)(5.0, 7.0)
    assert g.numpy() == 7.0
    assert v is w2


def test_implicit_value_and_gradients():
    w1, w2 = eg.Variable(2.0), eg.Variable(3.0)
    calls = []

    def f(x1, x2):
        calls.append((x1, x2))
        return w1 * x1 + w2 * x2

    value, ((g1, v1), (g2, v2)) = eg.implicit_value_and_gradients(f)(5.0, 7.0)
    assert value.numpy() == 31.0
    assert (g1.numpy(), g2.numpy()) == (5.0, 7.0)
    assert v1 is w1
    assert v2 is w2
    assert calls == [(5.0, 7.0)]


def test_programs_written_for_tensorflow():
    w1, w2 = tfe.Variable(2.0), tf.Variable(3.0)

    def f(x1, x2):
        return w1 * x1 + w2 * x2

    assert f(5.0, 7.0).numpy() == 31.0
    with tf.GradientTape() as tape:
        s = f(tf.constant(5.0), tf.constant(7.0))
    assert [g.numpy() for g in tape.gradient(s, [w1, w2])] == [5.0, 7.0]
    with tfe.GradientTape(persistent=True) as tape:
        x = tf.convert_to_tensor(3.0)
        tape.watch(x)
        y = tf.cast(tf.square(x), tf.float64)
    none = tf.UnconnectedGradients.NONE
    assert tape.gradient(y, x, unconnected_gradients=none).numpy() == 6.0
    assert [g.numpy() for g in tfe.gradients_function(f)(5.0, 7.0)] == [2.0, 3.0]
    value, grads = tfe.value_and_gradients_function(f)(5.0, 7.0)
    assert (value.numpy(), grads[0].numpy(), grads[1].numpy()) == (31.0, 2.0, 3.0)
    assert [g.numpy() for g, _ in tfe.implicit_gradients(f)(5.0, 7.0)] == [5.0, 7.0]
    value, pairs = tfe.implicit_value_and_gradients(f)(5.0, 7.0)
    assert value.numpy() == 31.0
    assert [v is w for (_, v), w in zip(pairs, (w1, w2), strict=True)] == [True, True]

    @tf.custom_gradient
    def logexp(x):
        e = tf.exp(x)
        return tf.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    assert tfe.gradients_function(logexp)(0.0)[0].numpy() == 0.5
    assert tf.nest.flatten({"b": 2, "a": 1}) == [1, 2]


# logexp with its own gradient


@eg.custom_gradient
def logexp(x):
    e = eg.exp(x)

    def gradient(dy):
        return dy * (1 - 1 / (1 + e))

    return eg.log(1 + e), gradient


def by_hand(f):
    """custom_gradient, as a user writes it on the public tape."""

    def decorated(*args):
        inputs = [eg.convert_to_tensor(x) for x in args]
        with eg.tape.stop_recording():
            result, gradient = f(*inputs)
            flat_results = [eg.identity(y) for y in eg.nest.flatten(result)]

        def backward(*dys):
            return eg.nest.flatten(gradient(*dys))

        eg.tape.record_operation(f.__name__, flat_results, inputs, backward)
        return eg.nest.pack_sequence_as(result, flat_results)

    return decorated


@by_hand
def logexp_by_hand(x):
    e = eg.exp(x)

    def gradient(dy):
        return dy * (1 - 1 / (1 + e))

    return eg.log(1 + e), gradient


either = pytest.mark.parametrize("logexp", [logexp, logexp_by_hand])


@either
def test_logexp_value_and_gradient(logexp):
    value, [g] = eg.value_and_gradients_function(logexp)(0.0)
    assert value.item() == pytest.approx(0.6931472, rel=1e-7)
    assert g.item() == 0.5


@either
def test_logexp_gradient_where_exp_overflows(logexp):
    with np.errstate(over="ignore"):
        [g] = eg.gradients_function(logexp)(100.0)
    assert g.dtype == np.float32
    assert g.item() == 1.0


def test_logexp_without_its_own_gradient_overflows():
    with np.errstate(over="ignore", invalid="ignore"):
        [g] = eg.gradients_function(lambda x: eg.log(1 + eg.exp(x)))(100.0)
    assert np.isnan(g.item())


@either
def test_logexp_receives_what_later_ops_send(logexp):
    [g] = eg.gradients_function(lambda x: 3 * logexp(x))(0.0)
    assert g.item() == 1.5


@either
def test_logexp_second_derivative_by_nested_functions(logexp):
    first = eg.gradients_function(logexp)
    [g] = eg.gradients_function(lambda x: first(x)[0])(0.0)
    assert g.item() == 0.25


@either
def test_logexp_second_derivative_by_nested_tapes(logexp):
    x = eg.constant(0.0)
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = logexp(x)
        g = inner.gradient(y, x)
    assert g.item() == 0.5
    assert outer.gradient(g, x).item() == 0.25


@either
def test_logexp_second_derivative_by_one_persistent_tape(logexp):
    x = eg.constant(0.0)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = logexp(x)
        g = tape.gradient(y, x)
    assert tape.gradient(g, x).item() == 0.25


def test_by_hand_with_nested_results():
    @by_hand
    def both(x, y):
        result = {"sum": x + y, "product": [x * y]}
        # one cotangent per result, in the order of the sorted keys
        return result, lambda dp, ds: [dp * y + ds, dp * x + ds]

    x, y = eg.Variable(2.0), eg.Variable(5.0)
    with eg.GradientTape() as tape:
        result = both(x, y)
        z = 10 * result["product"][0] + result["sum"]
    assert [g.item() for g in tape.gradient(z, [x, y])] == [51.0, 21.0]


# softplus: value and gradient to 2 ulp in every floating dtype


def softplus_and_derivative(x):
    """Both in extended precision, from values that are exact in it."""
    x = np.asarray(x, np.longdouble)
    e = np.exp(-np.abs(x))
    return np.log1p(e) + np.maximum(x, 0), np.where(x >= 0, 1, e) / (1 + e)


def ulps(got, expected):
    """How far apart, in units of the last place of the dtype of ``got``."""
    assert np.isfinite(got).all()
    unit = np.spacing(np.abs(expected).astype(got.dtype)).astype(np.longdouble)
    return np.max(np.abs(got.astype(np.longdouble) - expected) / unit)


floating = pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])


@floating
def test_softplus_to_two_ulp(dtype):
    x = eg.constant(np.array([-1000.0, -20.0, 0.0, 20.0, 1000.0], dtype))
    value, [g] = eg.value_and_gradients_function(eg.softplus)(x)
    expected, derivative = softplus_and_derivative(x.numpy())
    assert value.dtype == g.dtype == dtype
    assert ulps(value.numpy(), expected) <= 2
    assert ulps(g.numpy(), derivative) <= 2


@floating
@pytest.mark.parametrize("end", [1.0, 40.0])
def test_softplus_between(dtype, end):
    x = eg.constant(np.linspace(-end, end, 4001).astype(dtype))
    value, [g] = eg.value_and_gradients_function(eg.softplus)(x)
    expected, derivative = softplus_and_derivative(x.numpy())
    assert ulps(value.numpy(), expected) <= 2
    # NumPy's exp of float32 is itself off by up to 2.5 ulp.
    assert ulps(g.numpy(), derivative) <= (4 if dtype is np.float32 else 2)


# It is a tape, and one can look at it


def two_ops():
    x, w = eg.Variable(np.ones((4, 3), np.float32)), eg.Variable([1.0, 2.0, 3.0])
    tape = eg.GradientTape()
    with tape:
        y = eg.exp(x * w)
        z = y + 1
    return tape, z


def test_entries():
    tape, _z = two_ops()
    multiply, exp, add = tape.entries()
    assert [e.name for e in (multiply, exp, add)] == ["multiply", "exp", "add"]
    assert multiply.inputs == (((4, 3), "float32"), ((3,), "float32"))
    assert multiply.output == ((4, 3), "float32")
    assert multiply.bytes == 4 * 3 * 4 + 3 * 4
    assert exp.bytes == 4 * 3 * 4
    assert add.inputs == (((4, 3), "float32"), None)
    assert add.bytes == 0


def test_printed_tape_has_one_line_per_op():
    tape, _z = two_ops()
    _title, *lines = str(tape).splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["multiply", "exp", "add"]
    for line in lines:
        assert "(4, 3)" in line
        assert "float32" in line
    assert "60 bytes" in lines[0]
    assert "48 bytes" in lines[1]


def test_printing_does_not_use_the_tape_up():
    tape, z = two_ops()
    assert str(tape) == str(tape)
    assert tape.gradient(z, z).shape == (4, 3)
    assert "used up" in str(tape)
