"""``eg.debug(nan_check=True)``: which op made a NaN, and on which line."""

import inspect
from functools import partial

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import primitive, tape
from eagergrad.errors import NaNError
from eagergrad.primitive import OPS

INF, NAN = float("inf"), float("nan")


def here(further=0):
    """``file:line`` of the caller, or of a line further down."""
    return f"{__file__}:{inspect.currentframe().f_back.f_lineno + further}"


@pytest.fixture(autouse=True)
def switched_off():
    """Nothing is left switched on by a test."""
    before = {name: op.impl[np.ndarray] for name, op in OPS.items()}
    yield
    assert primitive.checked is None
    assert not tape.locate_entries
    assert tape.active() == ()
    for name, op in OPS.items():
        assert same(op.impl[np.ndarray], before[name]), name


def same(f, g):
    """Whether two implementations are one: some are made anew each time."""
    return f is g or made_of(f) == made_of(g)


def made_of(f):
    return (f.func, f.args) if isinstance(f, partial) else f.__code__


def blamed(f, *args, check=True):
    """The message of the NaNError that a call under debug raises."""
    with pytest.raises(NaNError) as caught, eg.debug(nan_check=check):
        f(*args)
    return str(caught.value)


# Forward


@pytest.mark.parametrize(
    ("f", "x", "op", "what"),
    [
        (eg.log, [-1.0, 1.0], "log", "nan"),
        (eg.log, [0.0, 1.0], "log", "inf"),
        (eg.exp, [1000.0, 1.0], "exp", "inf"),
        (eg.sqrt, [-1.0, 1.0], "sqrt", "nan"),
        (lambda x: x / 0, [1.0, 2.0], "divide", "inf"),
        (lambda x: x / x, [0.0, 2.0], "divide", "nan"),
        (lambda x: x**0.5, [-1.0, 2.0], "power", "nan"),
        (lambda x: 1e30 * x, [1e30, 2.0], "multiply", "inf"),
        (eg.sum, [3e38, 3e38], "sum", "inf"),
        (lambda x: x @ x, [1e30, 1e30], "matmul", "inf"),
        (lambda x: x.astype("float16"), [1e6, 1.0], "astype", "inf"),
        (np.log, [-1.0, 1.0], "log", "nan"),
        (lambda x: eg.mean(x[:0]), [1.0], "mean", "nan"),
    ],
)
def test_op_that_made_it(f, x, op, what):
    assert f"{op} made {what} at " in blamed(f, eg.tensor(x))


def test_line_that_made_it():
    x = eg.tensor([-1.0, 1.0])
    place = here(2)
    with eg.debug(nan_check=True), pytest.raises(NaNError) as caught:
        eg.log(x)
    assert str(caught.value) == f"log made nan at {place} from (2,) float32"


def test_it_is_an_arithmetic_error():
    with pytest.raises(ArithmeticError), eg.debug():
        eg.log(eg.tensor(-1.0))


def test_loss_that_is_not_finite():
    logits = eg.tensor([[3e38, -3e38]])
    message = blamed(eg.softmax_cross_entropy, logits, [1])
    assert "cross_entropy made inf at " in message
    assert __file__ in message


def test_first_op_of_several():
    def f(x):
        return eg.exp(eg.log(eg.sqrt(x) + 1.0))

    assert blamed(f, eg.tensor(-1.0)).startswith("sqrt made nan")


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x - x,
        lambda x: x * 0.0,
        lambda x: x / x,
        eg.softmax,
        eg.sin,
        lambda x: x @ eg.zeros_like(x),
    ],
)
def test_nan_made_of_an_infinity(f):
    """The infinity was there before, but not the nan."""
    assert " made nan at " in blamed(f, eg.tensor([INF, 1.0]))


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + 1,
        lambda x: -x * 2.0,
        lambda x: x[1:],
        lambda x: eg.concatenate([eg.ones(2), x]),
        lambda x: eg.stack([x, eg.ones(2)]),
        lambda x: eg.tensor([x[0], x[1]]),
        lambda x: eg.where([True, False], 1.0, x),
        lambda x: x.reshape((2, 1)).T,
        eg.sum,
        eg.max,
        eg.identity,
        lambda x: eg.relu(x) * 1.0,
    ],
)
def test_what_was_there_already_is_not_blamed(f, value):
    x = eg.tensor([1.0, value])
    with eg.debug(nan_check=True):
        y = f(x)
    np.testing.assert_array_equal(y.numpy(), f(x).numpy())


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, value: eg.where(x > 1, x, value),
        lambda x, value: x + value,
        lambda x, value: value * x,
        lambda x, value: x + np.float32(value),
    ],
)
def test_a_number_of_the_users_own_is_not_blamed(f, value):
    """As the -inf that masks out positions before a softmax."""
    with eg.debug(nan_check=True):
        f(eg.tensor([1.0, 2.0]), value)


def test_tensors_may_be_made_of_them():
    with eg.debug(nan_check=True):
        made = [eg.tensor([NAN, INF]), eg.full(2, NAN), eg.Variable(INF)]
        assert [str(x.dtype) for x in made] == ["float32"] * 3


# Backward


def root(x, persistent=False):
    """A tape with the square root of x on it, and the line that recorded it."""
    with eg.GradientTape(persistent) as t:
        t.watch(x)
        place, y = here(), eg.sqrt(x)
    return t, y, place


def test_gradient_that_made_it():
    x = eg.tensor([0.0, 1.0])
    with eg.debug(nan_check=True):
        t, y, place = root(x)
        with pytest.raises(NaNError) as caught:
            t.gradient(y, x)
    assert f"the gradient of sqrt, recorded at {place}" in str(caught.value)
    assert "inf" in str(caught.value)


def test_gradient_that_made_it_among_others():
    x = eg.tensor(0.0)
    with eg.debug(nan_check=True):
        with eg.GradientTape() as t:
            t.watch(x)
            place, z = here(), eg.sqrt(x * 2.0)
            y = z * 3.0 + 1.0
        with pytest.raises(NaNError) as caught:
            t.gradient(y, x)
    assert f"the gradient of sqrt, recorded at {place}" in str(caught.value)


def test_gradient_through_every_interface():
    w = eg.Variable(0.0)
    for f in (
        lambda: eg.gradients_function(eg.sqrt)(0.0),
        lambda: eg.implicit_value_and_gradients(lambda: eg.sqrt(w))(),
        lambda: eg.make_vjp(eg.sqrt)(0.0)[1](),
        lambda: eg.gradients_function(eg.recompute_grad(eg.sqrt))(0.0),
    ):
        message = blamed(f)
        assert "the gradient of sqrt, recorded at " in message
        assert __file__ in message
        assert "inf" in message


def test_gradient_recorded_before_debug_was_on():
    x = eg.tensor(0.0)
    t, y, _ = root(x)
    with eg.debug(nan_check=True), pytest.raises(NaNError, match="made inf"):
        t.gradient(y, x)


@pytest.mark.parametrize("seed", [NAN, INF])
def test_a_seed_that_is_not_finite_is_not_blamed(seed):
    x = eg.tensor(2.0)
    with eg.debug(nan_check=True):
        t, y, _ = root(x)
        g = t.gradient(y, x, seed)
    assert not np.isfinite(g.item())


def test_gradient_at_a_nan_is_not_blamed():
    x = eg.tensor(NAN)
    with eg.debug(nan_check=True):
        with eg.GradientTape() as t:
            t.watch(x)
            y = x * x
        assert np.isnan(t.gradient(y, x).item())


@pytest.mark.parametrize("f", [lambda x: x**0.5, eg.sqrt, lambda x: x * eg.log1p(x)])
def test_infinity_that_a_rule_takes_out_again_is_not_blamed(f):
    """The cotangent is exactly 0 where the slope is infinite: so is the gradient."""
    x = eg.tensor([0.0, 4.0])
    slope = eg.gradients_function(lambda x: eg.where(x > 0, f(x), 0.0))
    with eg.debug():
        (g,) = slope(x)
    assert g.tolist() == slope(x)[0].tolist()
    assert g[0].item() == 0.0


@pytest.mark.parametrize("level", [1, 2])
def test_nested_tapes(level):
    """The second derivative of x^1.5 at 0 is infinite, the first is not."""
    x = eg.tensor(0.0)
    with eg.debug(nan_check=True):
        with eg.GradientTape() as outer:
            outer.watch(x)
            with eg.GradientTape() as inner:
                inner.watch(x)
                place, y = here(), x**1.5 if level == 2 else eg.sqrt(x)
            if level == 2:
                g = inner.gradient(y, x)
            else:
                with pytest.raises(NaNError) as caught:
                    inner.gradient(y, x)
        if level == 2:
            with pytest.raises(NaNError) as caught:
                outer.gradient(g, x)
    if level == 1:
        assert f"the gradient of sqrt, recorded at {place}" in str(caught.value)
    assert "inf" in str(caught.value)
    assert __file__ in str(caught.value)


def test_forward_under_nested_tapes():
    x = eg.tensor(-1.0)
    with eg.debug(), eg.GradientTape() as outer, eg.GradientTape() as inner:
        outer.watch(x)
        inner.watch(x)
        place = here(2)
        with pytest.raises(NaNError) as caught:
            eg.log(x)
        y = x * x
    assert f"log made nan at {place}" in str(caught.value)
    assert inner.gradient(y, x).item() == outer.gradient(y, x).item() == -2.0


# Functions with a gradient of their own


def test_custom_gradient_forward():
    @eg.custom_gradient
    def f(x):
        return eg.log(x), lambda dy: dy / x

    message = blamed(eg.gradients_function(f), -1.0)
    assert "log made nan at " in message
    assert __file__ in message


def test_custom_gradient_backward():
    lines = []

    @eg.custom_gradient
    def f(x):
        def gradient(dy):
            lines.append(here(1))
            return dy / 0.0

        return x * 1.0, gradient

    with pytest.raises(NaNError) as caught, eg.debug():
        eg.gradients_function(f)(1.0)
    assert f"divide made inf at {lines[0]}" in str(caught.value)


def test_custom_gradient_that_returns_it():
    @eg.custom_gradient
    def f(x):
        return x * 1.0, lambda dy: eg.tensor(NAN)

    x = eg.tensor(1.0)
    with eg.debug():
        with eg.GradientTape() as t:
            t.watch(x)
            place, y = here(), f(x)
        with pytest.raises(NaNError) as caught:
            t.gradient(y, x)
    assert f"the gradient of f, recorded at {place}, made nan" in str(caught.value)


def test_recorded_operation_that_returns_it():
    x = eg.tensor(1.0)
    with eg.debug():
        with eg.GradientTape() as t:
            t.watch(x)
            y = eg.tensor(1.0)
            place = here(1)
            eg.tape.record_operation("mine", [y], [x], lambda dy: [eg.tensor(NAN)])
        with pytest.raises(NaNError) as caught:
            t.gradient(y, x)
    assert f"the gradient of mine, recorded at {place}" in str(caught.value)


def test_custom_gradient_that_is_right():
    @eg.custom_gradient
    def logexp(x):
        e = eg.exp(-abs(x))
        return eg.relu(x) + eg.log(1 + e), lambda dy: dy * eg.sigmoid(x)

    slope = eg.gradients_function(logexp)
    with eg.debug():
        assert slope(100.0)[0].item() == 1.0
        assert eg.gradients_function(lambda x: slope(x)[0])(0.0)[0].item() == 0.25


# Switching on and off


def test_values_are_the_same_under_debug():
    def f(x):
        y = eg.softmax(eg.tanh(x) @ x.T) ** 1.5
        return eg.sum(y * eg.softmax_cross_entropy(x, [0, 1]))

    x = np.random.default_rng(0).standard_normal((2, 2))
    expected, (slope,) = eg.value_and_gradients_function(f)(x)
    with eg.debug():
        y, (g,) = eg.value_and_gradients_function(f)(x)
    assert y.item() == expected.item()
    assert g.tolist() == slope.tolist()


def test_off_again_afterwards():
    exp = OPS["exp"].impl[np.ndarray]
    assert exp is np.exp
    with eg.debug():
        assert OPS["exp"].impl[np.ndarray] is not np.exp
    assert OPS["exp"].impl[np.ndarray] is np.exp
    assert np.isnan(eg.log(eg.tensor(-1.0)).item())


def test_blocks_nest():
    with eg.debug():
        with eg.debug():
            pass
        with pytest.raises(NaNError):
            eg.log(eg.tensor(-1.0))
    eg.log(eg.tensor(-1.0))


def test_one_object_can_be_entered_twice():
    check = eg.debug()
    for _ in range(2):
        with check, check, pytest.raises(NaNError):
            eg.log(eg.tensor(-1.0))
    eg.log(eg.tensor(-1.0))


@pytest.mark.parametrize("error", [KeyError, NaNError, KeyboardInterrupt])
def test_off_after_an_exception(error):
    with pytest.raises(error), eg.debug(), eg.debug(), eg.GradientTape():
        raise error
    eg.log(eg.tensor(-1.0))


def test_without_the_check_nothing_is_checked():
    with eg.debug(nan_check=False):
        assert np.isnan(eg.log(eg.tensor(-1.0)).item())
        with eg.debug(nan_check=True), eg.debug(nan_check=False):
            with pytest.raises(NaNError):
                eg.log(eg.tensor(-1.0))
        eg.log(eg.tensor(-1.0))


def test_after_an_error_the_tape_goes_on():
    x, w = eg.tensor(-2.0), eg.Variable(3.0)
    with eg.debug(), eg.GradientTape() as t:
        t.watch(x)
        y = x * w
        with pytest.raises(NaNError):
            eg.log(y)
        z = y * x
    dx, dw = t.gradient(z, [x, w])
    assert (dx.item(), dw.item()) == (-12.0, 4.0)
