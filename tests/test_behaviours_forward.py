"""Forward mode: the rows of the behaviours table on ForwardAccumulator."""

import numpy as np
import pytest

import eagergrad as eg

C, V, FA, T = eg.constant, eg.Variable, eg.ForwardAccumulator, eg.GradientTape


def close(actual, expected, rtol=1e-5):
    np.testing.assert_allclose(actual.numpy(), expected, rtol=rtol)


def test_209_recompute_in_forward_mode():
    x = C(2.0)
    with FA(x, C(1.0)) as acc:
        y = eg.recompute_grad(lambda x: x * x * x)(x)
    close(acc.jvp(y), 12.0)


def test_240_forward_basic():
    x = C(3.0)
    with FA(x, C(1.0)) as acc:
        y = x * x
    close(acc.jvp(y), 6.0)


def test_241_two_primals():
    x, y = C(2.0), C(3.0)
    with FA([x, y], [C(1.0), C(10.0)]) as acc:
        z = x * y
    close(acc.jvp(z), 23.0)


def test_242_structure():
    x, y = C(2.0), C(3.0)
    with FA([x, y], [C(1.0), C(10.0)]) as acc:
        z = x * y
    found = acc.jvp({"s": z, "t": (x,)})
    close(found["s"], 23.0)
    close(found["t"][0], 1.0)


def test_244_outside_the_block():
    x = C(3.0)
    with FA(x, C(1.0)) as acc:
        pass
    y = x * x
    assert acc.jvp(y) is None
    close(acc.jvp(x), 1.0)
    close(acc.jvp(y, unconnected_gradients="zero"), 0.0)


def test_245_re_entering_resumes():
    x = C(-2.0)
    acc = FA(x, C(1.5))
    with acc:
        y = 4.0 * x
    with acc:
        yy = y * y
    close(acc.jvp(yy), -96.0)


def test_246_variable():
    v = V([1.0, 2.0, 3.0])
    with FA(v, C([0.1, -0.2, 0.3])) as acc:
        double, more = v * 2.0, v + 0.1
    close(acc.jvp(double), [0.2, -0.4, 0.6])
    close(acc.jvp(more), [0.1, -0.2, 0.3])


def test_246_assigned_variable_is_a_constant():
    v = V(3.0)
    with FA(v, C(11.0)) as acc:
        v.assign(4.0)
        y = v * 2.0
    assert acc.jvp(y) is None


def test_248_pure_forward_of_orders_0_to_3():
    x = C(1.1)

    def derivative(order):
        if order == 0:
            return x**3.5
        with FA(x, C(1.0)) as acc:
            y = derivative(order - 1)
        return acc.jvp(y)

    for order, expected in enumerate([1.3959646, 4.4417055, 10.0947852, 13.7656161]):
        close(derivative(order), expected)


def test_249_wrong_nesting_of_tangents():
    x = C(3.0)
    with FA(x, C(1.0)) as outer, FA(x, C(1.0)) as inner:
        y = x * x * x
    close(outer.jvp(inner.jvp(y)), 18.0)
    assert inner.jvp(outer.jvp(y)) is None


def test_250_forward_over_reverse():
    v = C([1.0, 2.0])
    with FA(v, C([1.0, 0.0])) as acc:
        with T() as tape:
            tape.watch(v)
            y = eg.sum(v * v * v)
        g = tape.gradient(y, v)
    close(g, [3.0, 12.0])
    close(acc.jvp(g), [6.0, 0.0])


def test_252_inner_tape_ignores_outer_tangents():
    x = C(3.0)
    with FA(x, C(1.0)) as acc:
        with T() as tape:
            tape.watch(x)
            y = x * x
            tangent = acc.jvp(y)
        assert tape.gradient(tangent, x) is None


def test_reverse_over_forward():
    x = C(3.0)
    with T() as tape:
        tape.watch(x)
        with FA(x, C(1.0)) as acc:
            y = x * x * x
        tangent = acc.jvp(y)
    close(tape.gradient(tangent, x), 18.0)


def test_253_hessian_vector_product_of_a_quadratic():
    a, x, v = C([[2.0, 1.0], [1.0, 3.0]]), C([1.0, -1.0]), C([1.0, 2.0])
    with FA(x, v) as acc:
        with T() as tape:
            tape.watch(x)
            y = 0.5 * (x @ (a @ x))
        g = tape.gradient(y, x)
    close(g, [1.0, -2.0])
    close(acc.jvp(g), [4.0, 7.0])


def product(x):
    return x[0] * x[1] * x[2]


def test_254_hessian_vector_product_both_ways():
    x, v = C([1.0, 2.0, 3.0]), C([3.0, 4.0, 5.0])

    def f(x):
        return product(eg.tanh(x) ** 2)

    expected = [-1.3125439, -0.3138051, -0.0635677]
    with FA(x, v) as acc:
        with T() as tape:
            tape.watch(x)
            y = f(x)
        g = tape.gradient(y, x)
    close(y, 0.53372812)
    close(acc.jvp(g), expected, rtol=1e-4)
    with T() as outer:
        outer.watch(x)
        with T() as inner:
            inner.watch(x)
            y = f(x)
        along = eg.sum(inner.gradient(y, x) * v)
    close(outer.gradient(along, x), expected, rtol=1e-4)


def test_256_stop_gradient():
    c = C(3.0)
    with FA(c, C(1.0)) as acc:
        stopped = eg.stop_gradient(c)
        y = stopped * c
    close(acc.jvp(y), 3.0)
    assert acc.jvp(stopped) is None


def test_tape_stop_recording_does_not_stop_an_accumulator():
    x = C(2.0)
    with FA(x, C(1.0)) as acc, T() as tape:
        tape.watch(x)
        with tape.stop_recording():
            y = x * x
    close(acc.jvp(y), 4.0)
    assert tape.gradient(y, x) is None


def test_custom_gradient_needs_no_forward_rule():
    @eg.custom_gradient
    def logexp(x):
        e = eg.exp(x)
        return eg.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    x = C(0.0)
    with FA(x, C(2.0)) as acc:
        y = logexp(x)
    close(acc.jvp(y), 1.0)


@pytest.mark.parametrize("tangent", [C([1.0, 2.0, 3.0]), C([[1.0]])])
def test_tangent_of_the_wrong_shape(tangent):
    with pytest.raises(ValueError, match="shape"):
        FA(C([1.0, 2.0]), tangent)


def test_mistakes():
    x = C(1.0)
    with pytest.raises(ValueError, match="twice"):
        FA([x, x], [C(1.0), C(1.0)])
    with pytest.raises(TypeError, match="float"):
        FA(1.0, C(1.0))
    with pytest.raises(ValueError, match="float64"):
        FA(x, C(np.ones(())))
    with pytest.raises(ValueError, match=r"1.*2|2.*1|length"):
        FA([x], [C(1.0), C(1.0)])
    with pytest.warns(eg.DTypeWarning):
        acc = FA(C(1), C(1))
    with acc, pytest.raises(ValueError, match="already"):
        acc.__enter__()


@pytest.mark.parametrize(
    ("record", "gradient", "tangent"),
    [
        (eg.tape.record_operation, 42.0, 42.0),
        (eg.tape.record_operation_backprop_only, 42.0, None),
        (eg.tape.record_operation_forwardprop_only, None, 42.0),
    ],
)
def test_operation_for_tapes_or_accumulators_only(record, gradient, tangent):
    x = C(1.0)
    with FA(x, C(1.0)) as acc, T() as tape:
        tape.watch(x)
        with eg.tape.stop_recording():
            y = eg.identity(x)
        record("op", [y], [x], lambda dy: [42.0 * dy])
    found = acc.jvp(y)
    assert (None if found is None else found.item()) == tangent
    found = tape.gradient(y, x)
    assert (None if found is None else found.item()) == gradient
