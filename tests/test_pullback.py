"""Captured functions under tapes: the gradients of the eager ones, to the bit."""

import gc
import threading
import weakref

import numpy as np
import pytest
from op_cases import SMOOTH
from test_function import OPTIMIZERS, Net, all_same, batches, same

import eagergrad as eg
from eagergrad.errors import CaptureError, GradientError


def pair(f, **options):
    """A captured function and how often its Python ran."""
    runs = []

    def counted(*args, **kwargs):
        runs.append(1)
        return f(*args, **kwargs)

    return eg.function(counted, **{"exact": True, **options}), runs


def gradients(f, xs, sources, targets=None, **options):
    with eg.GradientTape(**options) as tape:
        tape.watch([x for x in sources if not isinstance(x, eg.Variable)])
        y = f(*xs)
        y = y if targets is None else targets(y)
    return tape.gradient(y, sources)


def all_alike(got, expected):
    assert [g is None for g in got] == [g is None for g in expected]
    for one, two in zip(got, expected, strict=True):
        if one is not None:
            same(one, two)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_every_gradient_is_that_of_the_eager_function(case):
    captured, runs = pair(lambda *xs: case(*xs))
    for arrays in (case.arrays, [np.flip(x).copy() for x in case.arrays], case.arrays):
        xs = [eg.tensor(x) for x in arrays]
        if any(xs[i].dtype != case.arrays[i].dtype for i in case.sources):
            continue
        sources = [xs[i] for i in case.sources]
        got = gradients(captured, xs, sources)
        all_alike(got, gradients(lambda *xs: case(*xs), xs, sources))
    assert len(runs) == 1
    assert len(captured.programs()) == 2


# ------------------------------------------------------------------- what is watched


def test_a_loss_of_variables():
    eager, net = Net(OPTIMIZERS["Adam"]), Net(OPTIMIZERS["Adam"])
    loss, runs = pair(net.loss)
    for x, labels in batches(20):
        for f, one in ((loss, net), (eager.loss, eager)):
            value, pairs = eg.implicit_value_and_gradients(f)(x, labels)
            one.optimizer.apply_gradients(pairs)
            one.last = [value, *[g for g, _ in pairs]]
        all_same(net.last, eager.last)  # with the same dropout in both directions
    assert len(runs) == 1
    assert net.generator.state == eager.generator.state


def test_only_what_is_watched_has_a_gradient():
    f, runs = pair(lambda x, y: x * y)
    x, y = eg.tensor([2.0]), eg.tensor([3.0])
    for watched, expected in (([x], [3.0, None]), ([y], [None, 2.0]), ([x, y], [3, 2])):
        for _ in range(2):
            with eg.GradientTape() as tape:
                tape.watch(watched)
                z = f(x, y)
            found = tape.gradient(z, [x, y])
            assert [g if g is None else g.item() for g in found] == expected
    assert len(runs) == 3


def test_variables_are_noted_as_when_read():
    v, w = eg.Variable(2.0), eg.Variable(3.0, trainable=False)
    n = eg.Variable(4, trainable=True)
    f, runs = pair(lambda x: v * w * x * n.astype("float32"))
    x = eg.tensor(1.0)
    for _ in range(2):
        with eg.GradientTape() as tape:
            y = f(x)
        assert [u is z for u, z in zip(tape.watched_variables(), [v, n], strict=True)]
        assert len(tape.watched_variables()) == 2
        assert tape.gradient(y, v).item() == 12.0
        with eg.GradientTape() as tape:
            tape.watch(w)
            y = f(x)
        assert [g.item() for g in tape.gradient(y, [v, w])] == [12.0, 8.0]
        with eg.GradientTape(watch_accessed_variables=False) as tape:
            y = f(x)
        assert tape.watched_variables() == ()
        assert tape.gradient(y, v) is None
    assert len(runs) == 3


def test_under_a_tape_that_watches_nothing_it_is_replayed():
    f, runs = pair(lambda x: x * 2.0)
    for value in (1.0, 2.0):
        with eg.GradientTape() as tape:
            y = f(eg.tensor(value))
        assert y.item() == 2 * value
        assert tape.entries() == []
    assert len(runs) == 1


def test_a_call_is_one_operation():
    f, _ = pair(lambda x: eg.sum(eg.tanh(x) * x))
    x = eg.tensor([1.0, 2.0])
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x) * 2.0
    first, second = tape.entries()
    assert first.inputs == (((2,), "float32"),)
    assert second.name == "multiply"
    for _ in range(2):  # persistent
        slope = 1 - np.tanh([1.0, 2.0]) ** 2
        expected = 2 * (slope * [1.0, 2.0] + np.tanh([1.0, 2.0]))
        np.testing.assert_allclose(tape.gradient(y, x).numpy(), expected, rtol=1e-6)


def test_calls_between_keep_what_their_gradients_read():
    f, runs = pair(lambda x: eg.exp(x) * x)
    xs = [eg.tensor(value) for value in (0.0, 1.0, 2.0)]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        total = f(f(xs[0]) + xs[1]) + f(xs[2])
    found = tape.gradient(total, xs)
    e = np.e  # f' = (x + 1) e^x, f(0) = 0, f'(0) = 1, f'(1) = 2e
    expected = [2 * e, 2 * e, 3 * e**2]
    np.testing.assert_allclose([g.item() for g in found], expected, rtol=1e-6)
    assert len(runs) == 1


def test_one_tensor_in_two_places():
    f, _ = pair(lambda x, y: x * x * y)
    x = eg.tensor(3.0)
    for _ in range(2):
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = f(x, x)
        assert tape.gradient(y, x).item() == 27.0


def test_arrays_that_change_later():
    f, _ = pair(lambda w, x: eg.sum(w * x))
    w, x = eg.tensor([1.0, 1.0]), np.array([2.0, 3.0], np.float32)
    for _ in range(2):
        before = x.tolist()
        with eg.GradientTape() as tape:
            tape.watch(w)
            y = f(w, x)
            x += 1.0
        assert tape.gradient(y, w).tolist() == before


def test_variables_that_are_assigned_later_or_within():
    v = eg.Variable([3.0])

    def f(x):
        y = v * v * x
        v.assign(v + 1.0)
        return y + v * x

    captured, runs = pair(f)
    for value in (3.0, 4.0, 5.0):
        x = eg.tensor([10.0])
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = captured(x)
        assert v.item() == value + 1
        v.assign([100.0])
        dv, dx = tape.gradient(y, [v, x])
        assert dv.item() == 2 * value * 10 + 10
        assert dx.item() == value**2 + value + 1
        v.assign([value + 1])
    assert len(runs) == 1


def test_statistics_are_assigned_within():
    """As those of batch_norm, in training."""

    def model():
        mean = eg.Variable(np.zeros(3, np.float32), trainable=False)
        gamma = eg.Variable(np.ones(3, np.float32))

        def f(x):
            mean.assign(mean * 0.9 + 0.1 * eg.stop_gradient(eg.mean(x, 0)))
            return eg.sum(eg.square(eg.batch_norm(x, gamma)) * x)

        return f, mean, gamma

    f, mean, gamma = model()
    eager, eager_mean, eager_gamma = model()
    captured, _ = pair(f)
    draw = np.random.default_rng(0)
    for _ in range(4):
        x = eg.tensor(draw.normal(size=(5, 3)).astype(np.float32))
        got = gradients(captured, [x], [x, gamma])
        all_alike(got, gradients(eager, [x], [x, eager_gamma]))
        same(mean.read_value(), eager_mean.read_value())


# --------------------------------------------------------------------------- outputs


def several(x, y):
    """Results of both, of one, of none; the logarithm of x has no slope at 0."""
    return {
        "both": eg.sum(x * y),
        "one": (eg.log(x), [y * 2.0]),
        "whole": eg.argmax(x),
        "constant": eg.ones((2,)),
        "cut": eg.stop_gradient(x) * 2.0,
        "none": None,
        "same": x,
    }


TARGETS = {
    "both": lambda r: r["both"],
    "one": lambda r: r["one"][0],
    "other": lambda r: r["one"][1],
    "two": lambda r: [r["both"], r["one"][1][0]],
    "twice": lambda r: [r["both"], r["both"]],
    "whole": lambda r: r["whole"],
    "constant": lambda r: r["constant"],
    "cut": lambda r: r["cut"],
    "same": lambda r: r["same"],
    "all": lambda r: [x for x in eg.nest.flatten(r) if x is not None],
}


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_of_several_results_only_those_used_count():
    captured, runs = pair(several)
    for i in range(2):
        x, y = eg.tensor([float(i), 2.0]), eg.tensor([3.0, 4.0])
        for name, targets in TARGETS.items():
            got = gradients(captured, [x, y], [x, y], targets)
            expected = gradients(several, [x, y], [x, y], targets)
            assert [g is None for g in got] == [g is None for g in expected], name
            all_alike(got, expected)
    assert len(runs) == 1
    found = captured(x, y)
    assert found["none"] is None
    assert found["whole"].dtype == "int64"


def test_an_unused_result_does_not_make_nan():
    """inf times the zero cotangent of exp(x) would be one."""
    f, _ = pair(lambda x: (eg.exp(x), x * 2.0))
    x = eg.tensor(1000.0)
    for _ in range(2):
        with np.errstate(over="ignore"), eg.GradientTape() as tape:
            tape.watch(x)
            _, y = f(x)
        assert tape.gradient(y, x).item() == 2.0


def test_an_op_without_a_rule_is_told_when_its_gradient_is_asked_for():
    f, _ = pair(lambda x: (x * 2.0, eg.nan_to_num(x)))
    x = eg.tensor(1.0)
    got = gradients(f, [x], [x], lambda r: r[0])
    assert got[0].item() == 2.0


def test_parts_of_several_results():
    """The gradient of an op of several results of which one is used."""

    def f(x):
        values, vectors = eg.linalg.eigh(x)
        return eg.sum(values * values), vectors

    captured, _ = pair(f)
    draw = np.random.default_rng(0)
    for _ in range(2):
        x = draw.normal(size=(3, 3))
        x = eg.tensor(x + x.T)
        for pick in (lambda r: r[0], lambda r: r[1], lambda r: list(r)):
            all_alike(gradients(captured, [x], [x], pick), gradients(f, [x], [x], pick))


def test_results_that_are_arguments_or_variables():
    v = eg.Variable([2.0])
    f, _ = pair(lambda x: (x, v, x * v))
    x = eg.tensor([3.0])
    for _ in range(2):
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            same_x, same_v, y = f(x)
        assert same_v is v
        assert tape.gradient(same_x, x).tolist() == [1.0]
        assert tape.gradient(same_v, v).tolist() == [1.0]
        assert [g.item() for g in tape.gradient(y, [x, v])] == [2.0, 3.0]


# ------------------------------------------------------------- gradients given by hand


def test_an_argument_that_is_returned_is_itself():
    f, _ = pair(lambda x, y: {"x": x, "product": x * y, "y": [y]})
    x, y = eg.tensor(2.0), eg.tensor(3.0)
    for _ in range(2):
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            found = f(x, y)
            both = [found["x"], found["product"]]
        assert found["x"] is x
        assert found["y"][0] is y
        assert tape.gradient(found["y"], [x, y])[0] is None
        assert tape.gradient(found["y"], y).item() == 1.0
        assert tape.gradient(both, x).item() == 4.0


def test_values_of_variables_that_no_op_reads():
    v = eg.Variable([2.0])
    f, _ = pair(lambda: v.read_value())

    @eg.custom_gradient
    def g(x):
        return x * 1.0, lambda dy: v.read_value()

    g, _ = pair(g)
    for value in (2.0, 5.0):
        v.assign([value])
        with eg.GradientTape(persistent=True) as tape:
            y = f()
        assert y.item() == value
        assert tape.gradient(y, v).item() == 1.0
        x = eg.tensor([1.0])
        assert gradients(g, [x], [x])[0].item() == value


# Random programs: what is computed from what is drawn.
OF_ONE = [
    eg.tanh,
    eg.exp,
    eg.relu,
    eg.softmax,
    lambda x: x * 1.0,
    lambda x: -x,
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: eg.cumsum(x, 0),
    lambda x: x + eg.stop_gradient(x),
    lambda x: eg.broadcast_to(eg.sum(x), x.shape),
    lambda x: eg.where(x > 0, x, x),
    lambda x: eg.concatenate([x[:1], x[1:]]),
]
OF_TWO = [
    eg.add,
    eg.multiply,
    eg.subtract,
    eg.maximum,
    eg.matmul,
    lambda a, b: eg.where(a > b, a, b),
    lambda a, b: a / (1.0 + b * b),
]


@pytest.mark.usefixtures("composed")
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("seed", [*range(30), 584, 1324, 1368])
def test_random_programs(seed, monkeypatch):
    monkeypatch.setenv("EAGERGRAD_HOST_KERNELS", "off")  # nothing to compile
    draw = np.random.default_rng(seed)
    v = eg.Variable(draw.normal(size=(3, 3)).astype(np.float32))
    steps = []
    for count in range(3, 3 + draw.integers(3, 14)):
        ops = OF_ONE if draw.random() < 0.5 else OF_TWO
        places = draw.integers(count, size=1 + (ops is OF_TWO))
        steps.append((ops[draw.integers(len(ops))], places))
    results = draw.integers(3, 3 + len(steps), size=draw.integers(1, 4))

    def f(x, y):
        values = [x, y, v]
        for op, places in steps:
            values.append(op(*[values[i] for i in places]))
        if seed % 3 == 0:
            v.assign(eg.stop_gradient(values[-1]) * 0.1)
        return [values[i] for i in results]

    captured, _ = pair(f)
    for _ in range(4):
        xs = [eg.tensor(draw.normal(size=(3, 3)).astype(np.float32)) for _ in "xy"]
        used = [i for i in range(len(results)) if draw.random() < 0.7] or [0]
        start, found = v.numpy(), []
        for run in (f, captured):
            v.assign(start)
            with eg.GradientTape() as tape:
                tape.watch(xs[: seed % 3])
                ys = run(*xs)
            grads = tape.gradient([ys[i] for i in used], [*xs, v])
            found.append([*ys, v.read_value(), *grads])
        all_alike(*found)


@eg.custom_gradient
def scaled(x):
    e = eg.exp(x)
    return eg.log(1.0 + e), lambda dy: dy * (1.0 - 1.0 / (1.0 + e)) * 7.0


def test_gradients_given_by_hand():
    captured, runs = pair(lambda x: scaled(x) * eg.stop_gradient(x))
    for value in (0.0, 2.0):
        x = eg.tensor(value)
        got = gradients(captured, [x], [x])
        all_alike(got, gradients(captured.python_function, [x], [x]))
    assert got[0].item() == pytest.approx(2 * 7 / (1 + np.exp(-2)), rel=1e-6)
    assert len(runs) == 3  # two of them eager


def test_variables_that_only_a_gradient_reads_or_assigns():
    rate, count = eg.Variable(2.0), eg.Variable(0.0, trainable=False)

    @eg.custom_gradient
    def f(x):
        def grad(dy):
            count.assign_add(1.0)
            return dy * rate

        return x * 1.0, grad

    captured, _ = pair(f)
    x = eg.tensor(1.0)
    for i, value in enumerate((2.0, 3.0, 4.0)):
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = captured(x)
        assert count.item() == 2 * i
        rate.assign(value)
        assert tape.gradient(y, x).item() == value
        rate.assign(10 * value)
        assert tape.gradient(y, x).item() == 10 * value
        assert count.item() == 2 * i + 2


def test_a_gradient_that_reads_a_value_is_refused_or_run_eagerly():
    @eg.custom_gradient
    def f(x):
        return x * 1.0, lambda dy: dy * (2.0 if dy > 0 else 3.0)

    x = eg.tensor(1.0)
    with pytest.raises(CaptureError, match=r"test_pullback.py:\d+"):
        gradients(eg.function(f), [x], [x])
    g = eg.function(f, on_failure="eager")
    with pytest.warns(RuntimeWarning, match="runs eagerly"):
        assert gradients(g, [x], [x])[0].item() == 2.0
    assert gradients(g, [x], [x])[0].item() == 2.0


# ------------------------------------------------------------------------ randomness


def test_dropout_has_one_mask_in_both_directions():
    generator = eg.random.Generator(3)
    f, _ = pair(lambda x: eg.dropout(x, 0.5, generator=generator))
    x = eg.tensor(np.ones(200, np.float32))
    kept = []
    with eg.GradientTape() as tape:
        tape.watch(x)
        ys = [f(x) for _ in range(3)]
    whole = tape.gradient(ys, x).numpy()
    np.testing.assert_array_equal(whole, sum(y.numpy() for y in ys))
    for _ in range(3):
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        f(x)  # draws others
        for _ in range(2):
            np.testing.assert_array_equal(tape.gradient(y, x).numpy(), y.numpy())
        kept.append(y.numpy())
    assert (kept[0] != kept[1]).any()


def test_recomputed_dropout_within():
    x = eg.tensor(np.ones(100, np.float32))
    f, _ = pair(eg.recompute_grad(lambda x: eg.dropout(x, 0.5)))
    for _ in range(3):
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y, z = f(x), f(x)
        for result in (y, z, y):
            g = tape.gradient(result, x)
            np.testing.assert_array_equal(g.numpy(), result.numpy())
        assert (y.numpy() != z.numpy()).any()


# ------------------------------------------------------------------- higher derivatives


def cube(x):
    return x * x * x


def test_two_tapes():
    f, _ = pair(cube)
    x = eg.tensor(2.0)
    for _ in range(2):
        with eg.GradientTape() as outer:
            outer.watch(x)
            with eg.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            g = tape.gradient(y, x)
        assert (g.item(), outer.gradient(g, x).item()) == (12.0, 12.0)


def test_a_persistent_tape_within_its_block():
    w = eg.Variable(1.0)
    f, runs = pair(lambda x: cube(x) * w)
    x = eg.tensor(2.0)
    for _ in range(2):
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
            w.assign(5.0)
            g = tape.gradient(y, x)
            h = tape.gradient(g, x)
        assert (g.item(), h.item()) == (12.0, 12.0)
        assert [d.item() for d in tape.gradient(h, [x, w])] == [6.0, 12.0]
        assert w.item() == 5.0
        w.assign(1.0)
    assert len(runs) == 3  # one is captured; each second derivative runs it again


def test_a_gradient_that_another_tape_differentiates_by_its_seed():
    f, _ = pair(cube)
    x, seed = eg.tensor(2.0), eg.tensor(1.0)
    for _ in range(2):
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        with eg.GradientTape() as other:
            other.watch(seed)
            g = tape.gradient(y, x, output_gradients=seed)
        assert other.gradient(g, seed).item() == 12.0


def test_what_cannot_run_again_is_not_differentiated_twice_in_silence():
    f, _ = pair(lambda x: eg.dropout(x, 0.5) * x)
    x, seed = eg.tensor(2.0), eg.tensor(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    with eg.GradientTape() as other:
        other.watch(seed)
        with pytest.raises(GradientError, match="cannot be differentiated again"):
            tape.gradient(y, x, output_gradients=seed)


def test_functions_of_functions():
    f, _ = pair(cube)
    assert [g.item() for g in eg.gradients_function(f)(2.0)] == [12.0]
    value, (g,) = eg.value_and_gradients_function(f)(2.0)
    assert (value.item(), g.item()) == (8.0, 12.0)
    value, pull = eg.make_vjp(f)(2.0)
    assert [pull(s)[0].item() for s in (1.0, 2.0)] == [12.0, 24.0]
    second = eg.gradients_function(lambda x: eg.gradients_function(f)(x)[0])
    assert second(2.0)[0].item() == 12.0
    x = eg.tensor([1.0, 2.0])
    np.testing.assert_array_equal(eg.jacobian(f)(x).numpy(), [[3, 0], [0, 12]])
    assert eg.jvp(f, [x], [eg.ones((2,))])[1].tolist() == [3.0, 12.0]
    hessian = eg.hessian(lambda x: eg.sum(f(x)))(x)
    np.testing.assert_array_equal(hessian.numpy(), [[6, 0], [0, 12]])


def test_functions_named_like_ops():
    """Jacobians take the rows of ops at once, by their names."""

    def sum(x):
        return x * x

    @eg.custom_gradient
    def transpose(x):
        return x * x, lambda dy: dy * x * 2.0

    x = eg.tensor([1.0, 2.0])
    for f in (eg.function(sum), transpose):
        np.testing.assert_array_equal(eg.jacobian(f)(x).numpy(), [[2, 0], [0, 4]])


def test_forward_accumulators():
    f, _ = pair(cube)
    x = eg.tensor(2.0)
    for _ in range(2):
        with eg.ForwardAccumulator(x, eg.tensor(1.0)) as accumulator:
            y = f(x)
        assert accumulator.jvp(y).item() == 12.0
        with eg.ForwardAccumulator(x, eg.tensor(1.0)) as accumulator:
            with eg.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            g = tape.gradient(y, x)
        assert accumulator.jvp(g).item() == 12.0


# ----------------------------------------------------------------- what is around it

OUTSIDE = eg.tensor([5.0])


def test_watched_tensors_of_the_enclosing_scope():
    w, kept = eg.tensor([2.0]), {"w": eg.tensor([3.0])}
    f, _ = pair(lambda x: w * x * OUTSIDE * kept["w"])
    x = eg.tensor([1.0])
    for watched, expected in ((OUTSIDE, 6.0), (w, 15.0), (kept["w"], 10.0), (x, 30.0)):
        for _ in range(2):
            with eg.GradientTape() as tape:
                tape.watch(watched)
                y = f(x)
            assert tape.gradient(y, watched).item() == expected


def test_inside_stop_recording_nothing_is_recorded():
    f, _ = pair(cube)
    x = eg.tensor(2.0)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        with eg.tape.stop_recording():
            y = f(x)
        with tape.stop_recording():
            z = f(x)
        u = f(x)
    assert tape.gradient(y, x) is None
    assert tape.gradient(z, x) is None
    assert tape.gradient(u, x).item() == 12.0


def test_a_function_may_stop_the_tape_around_it():
    def f(x):
        with tape.stop_recording():
            constant = x * x
        return constant * x

    f, x = eg.function(f), eg.tensor(3.0)
    for _ in range(2):
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert tape.gradient(y, x).item() == 9.0


def test_a_step_captured_inside_stop_recording_is_not_kept():
    v = eg.Variable(2.0)

    def step():
        with eg.GradientTape() as tape:
            y = v * v
        return tape.gradient(y, v, unconnected_gradients="zero")

    f = eg.function(step)
    with eg.tape.stop_recording():
        assert f().item() == 0.0
    assert f().item() == 4.0


def test_within_gradients_given_by_hand():
    """Their bodies run aside: only the Variables that are read are noticed."""
    v = eg.Variable(3.0)
    inner, _ = pair(lambda x: x * v)

    @eg.custom_gradient
    def f(x):
        def grad(dy, variables):
            assert variables[0] is v
            return dy * 7.0, [dy * 11.0]

        return inner(x), grad

    x = eg.tensor(2.0)
    for _ in range(2):
        got = gradients(f, [x], [x, v])
        assert [g.item() for g in got] == [7.0, 11.0]
        got = gradients(eg.recompute_grad(inner), [x], [x, v])
        assert [g.item() for g in got] == [3.0, 2.0]


def test_within_a_captured_function():
    """It becomes a part of it, also where that takes the gradient."""
    inner, runs = pair(cube)

    def slope(x):
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = inner(x) * 2.0
        return tape.gradient(y, x)

    f = eg.function(slope)
    assert [f(eg.tensor(value)).item() for value in (1.0, 2.0)] == [6.0, 24.0]
    assert inner.programs() == []
    outer, _ = pair(lambda x: inner(x) + x)
    for value in (1.0, 2.0):
        x = eg.tensor(value)
        assert gradients(outer, [x], [x])[0].item() == 3 * value**2 + 1
    assert len(runs) == 2


def test_a_gradient_taken_within_a_captured_function():
    """Of a call before it: a constant, but for the seed."""
    f, _ = pair(cube)
    x = eg.tensor(2.0)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    pull = eg.function(lambda seed: tape.gradient(y, x, output_gradients=seed))
    assert [pull(eg.tensor(s)).item() for s in (1.0, 2.0, 3.0)] == [12.0, 24.0, 36.0]


def test_eager_calls_between():
    f, _ = pair(cube)
    x = eg.tensor(2.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.sin(f(eg.cos(x)))
    expected = -np.cos(np.cos(2.0) ** 3) * 3 * np.cos(2.0) ** 2 * np.sin(2.0)
    assert tape.gradient(y, x).item() == pytest.approx(expected, rel=1e-6)


# ----------------------------------------------------------------- memory and threads


def test_a_tape_that_is_used_up_lets_go():
    f, _ = pair(lambda x: eg.sum(eg.tanh(x) * x))
    x = eg.tensor(np.ones(100, np.float32))
    for _ in range(2):
        tape = eg.GradientTape()
        with tape:
            tape.watch(x)
            y = f(x)
        (entry,) = [node for node in (y._node.inputs[0],) if node.op is not None]
        tape.gradient(y, x)
        assert entry.op is None


def test_the_arrays_of_the_run_are_let_go():
    kept = []

    def f(x):
        y = eg.tanh(x)
        kept.append(weakref.ref(y._data._array))
        return eg.sum(y * y)

    captured = eg.function(f)
    x = eg.ones((30, 30))
    gradients(captured, [x], [x])
    gc.collect()
    assert kept[0]() is None


def test_threads():
    w = eg.Variable(np.full(50, 2.0, np.float32))
    f, _ = pair(lambda x: (eg.sum(eg.tanh(x * w) * w), x * w))
    made = []

    def work(seed):
        draw = np.random.default_rng(seed)
        for _ in range(50):
            x = eg.tensor(draw.normal(size=50).astype(np.float32))
            made.append((seed, x, gradients(f, [x], [x, w], lambda r: r[seed % 2])))

    x = eg.ones((50,))
    gradients(f, [x], [x, w])
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 200
    # eagerly only now: while one thread captures, w is not to be read on another
    for seed, x, got in made:
        eager = gradients(f.python_function, [x], [x, w], lambda r, i=seed % 2: r[i])
        for one, two in zip(got, eager, strict=True):
            assert one.numpy().tobytes() == two.numpy().tobytes()


# ------------------------------------------------------------------------------ dtypes


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
)
def test_dtypes(dtype):
    def f(x, y):
        return eg.sum(x * x * y), eg.exp(x) / (y + 2.0)

    captured, _ = pair(f)
    for values in ([0.5, 1.0], [2.0, 0.1]):
        xs = [eg.tensor(values).astype(dtype), eg.tensor(values[::-1]).astype(dtype)]
        got = gradients(captured, xs, xs, lambda r: r[1])
        all_alike(got, gradients(f, xs, xs, lambda r: r[1]))
        assert got[0].dtype == dtype


def test_mixed_dtypes_and_empty_arrays():
    def f(x, n):
        return eg.sum(x * n) + eg.sum(eg.exp(x.astype("float64")))

    captured, _ = pair(f)
    for shape in ((3,), (0,), (2, 0), ()):
        for _ in range(2):
            x = eg.ones(shape)
            n = eg.ones(shape, "int64")
            all_alike(gradients(captured, [x, n], [x]), gradients(f, [x, n], [x]))


def test_seeds_of_all_kinds():
    f, _ = pair(cube)
    x = eg.tensor([1.0, 2.0])
    for seed in (None, 2.0, [1.0, 10.0], eg.tensor([0.0, -1.0])):
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        got = tape.gradient(y, x, output_gradients=seed)
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = cube(x)
        same(got, tape.gradient(y, x, output_gradients=seed))


def test_a_capture_on_one_thread_and_replays_on_another():
    """Variables look traced meanwhile: replays wait for that, and lose nothing."""
    v, w = eg.Variable(np.zeros(3, np.float32)), eg.Variable(np.ones(3, np.float32))
    read = eg.function(lambda x: x * w)
    grow = eg.function(lambda x: [v.assign(v + x)][1:])
    x = eg.ones((3,))
    read(x)
    grow(x)
    wrong, done = [], threading.Event()

    def capture():
        while not done.is_set():
            eg.function(lambda x: eg.sum(x * w) * eg.sum(v))(x)

    def replay():
        for _ in range(300):
            grow(x)
            if read(x).tolist() != [1.0, 1.0, 1.0]:
                wrong.append(1)

    threads = [threading.Thread(target=run) for run in (capture, replay)]
    for thread in threads:
        thread.start()
    threads[1].join()
    done.set()
    threads[0].join()
    assert wrong == []
    assert v.tolist() == [301.0] * 3
