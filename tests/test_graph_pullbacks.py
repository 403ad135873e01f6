"""Gradients of functions captured on a device: a graph each way, with eager bits."""

import numpy as np
import pytest
from standin import COUNTS
from test_function import all_same as same
from test_graphs import REPLAYS, gpu, hosted, launched, on, stand_in  # noqa: F401

import eagergrad as eg
from eagergrad.counters import COUNTERS
from eagergrad.errors import CaptureError

rng = np.random.default_rng(0)


def layers(device):
    w = eg.Variable(rng.normal(size=(3, 4)).astype("f4"), device=device)
    b = eg.Variable(np.zeros(4, "f4"), device=device)
    return w, b


def gradients(f, x, sources):
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return [y, *tape.gradient(y, sources(x))]


def test_gradients_of_arguments_and_variables(gpu):  # noqa: F811
    w, b = layers(gpu)

    def f(x):
        return eg.mean(eg.tanh(x @ w + b) ** 2)

    captured = eg.function(f)
    for i in range(6):
        x = on(gpu, rng.normal(size=(2, 3)).astype("f4"))
        found = gradients(captured, x, lambda x: [x, w, b])
        same(found, gradients(f, x, lambda x: [x, w, b]))
        assert len(REPLAYS) == 2 * max(0, i - 1)
        w.assign_sub(0.1 * found[2])


def test_each_way_is_one_launch_and_never_waits(stand_in):  # noqa: F811
    w, b = layers(stand_in)
    f = eg.function(lambda x: eg.mean(eg.tanh(x @ w + b)))
    x = on(stand_in, rng.normal(size=(2, 3)).astype("f4"))
    for _ in range(4):
        gradients(f, x, lambda x: [x, w, b])
    COUNTERS.clear()
    before = COUNTS.copy()
    gradients(f, x, lambda x: [x, w, b])
    made = COUNTS - before
    assert COUNTERS.syncs == 0
    assert (made["graphs"], made["to_device"], made["to_host"]) == (2, 0, 0)


def test_many_calls_wait_for_their_gradients(gpu):  # noqa: F811
    w, b = layers(gpu)
    f = eg.function(lambda x: eg.sum(eg.tanh(x @ w + b)))
    for _ in range(4):
        xs = [on(gpu, rng.normal(size=(2, 3)).astype("f4")) for _ in range(3)]
        found, expected = [], []
        for g, into in ((f, found), (f.python_function, expected)):
            with eg.GradientTape() as tape:
                tape.watch(xs)
                total = 0.0
                for i, x in enumerate(xs):
                    total = total + (i + 1.0) * g(x)
            into.extend([total, *tape.gradient(total, xs)])
        same(found, expected)


def test_a_variable_that_changes_before_the_gradient_is_asked_for(gpu):  # noqa: F811
    w = eg.Variable([2.0], device=gpu)
    f = eg.function(lambda x: eg.sum(w * w * x))
    for i in range(5):
        x = on(gpu, [3.0])
        w.assign([2.0])
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        w.assign([7.0 + i])
        gx, gw = tape.gradient(y, [x, w])
        assert (gx.item(), gw.item()) == (4.0, 12.0)
        assert w.numpy().item() == 7.0 + i


def test_a_persistent_tape_and_some_of_several_outputs(gpu):  # noqa: F811
    f = eg.function(lambda x: {"a": eg.sum(x * x), "b": (x * 3.0, x), "n": x > 0})
    for _ in range(5):
        x = on(gpu, [1.0, -2.0])
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        for _ in range(2):
            assert tape.gradient(y["a"], x).tolist() == [2.0, -4.0]
            assert tape.gradient(y["b"][0], x).tolist() == [3.0, 3.0]
            assert tape.gradient(y["b"][1], x).tolist() == [1.0, 1.0]
            assert tape.gradient([y["a"], y["b"]], x).tolist() == [6.0, 0.0]


def test_one_tensor_in_two_places(gpu):  # noqa: F811
    f = eg.function(lambda a, b: eg.sum(a * a * b))
    for _ in range(5):
        x = on(gpu, [2.0])
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = f(x, x)
        assert tape.gradient(y, x).item() == 12.0


def test_arrays_that_their_owner_changes(gpu):  # noqa: F811
    f = eg.function(lambda x, a: eg.sum(x * x * a))
    a = np.ones(2, "f4")
    for i in range(5):
        x = on(gpu, [1.0, 2.0])
        a[:] = i
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = f(x, a)
        a[:] = 100.0
        assert tape.gradient(y, x).tolist() == [2.0 * i, 4.0 * i]


def test_what_cannot_run_again_runs_as_it_is(gpu):  # noqa: F811
    count = eg.Variable(0.0, trainable=False, device=gpu)

    def counts(x):
        count.assign_add(1.0)
        return eg.sum(x * x)

    def draws(x):
        return eg.sum(x * eg.random.uniform(size=2, device=gpu))

    for f in (counts, draws):
        captured = eg.function(f)
        for _ in range(4):
            x = on(gpu, [1.0, 2.0])
            eg.random.seed(1)
            found = gradients(captured, x, lambda x: [x])
            eg.random.seed(1)
            same(found, gradients(f, x, lambda x: [x]))
    assert count.numpy().item() == 8.0
    assert not REPLAYS


def test_second_derivatives_of_a_captured_function(gpu):  # noqa: F811
    f = eg.function(lambda x: eg.sum(x * x * x))
    for _ in range(4):
        x = on(gpu, [1.0, 2.0])
        with eg.GradientTape() as outer:
            outer.watch(x)
            with eg.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            g = tape.gradient(y, x)
        assert outer.gradient(g, x).tolist() == [6.0, 12.0]
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
            g = tape.gradient(y, x)  # recorded: the function runs again
        assert tape.gradient(g, x).tolist() == [6.0, 12.0]
        with eg.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x=x)  # by a keyword
            g = tape.gradient(y, x)
        assert tape.gradient(g, x).tolist() == [6.0, 12.0]


def test_captured_functions_share_variables_under_a_tape(gpu):  # noqa: F811
    w = eg.Variable([2.0], device=gpu)
    f, g = eg.function(lambda x: w * x), eg.function(lambda x: x * x * w)
    for i in range(5):
        w.assign([1.0 + i])
        x = on(gpu, [3.0])
        with eg.GradientTape() as tape:
            y = eg.sum(g(f(x)))
        # w^3 x^2
        assert tape.gradient(y, w).item() == 3.0 * (1.0 + i) ** 2 * 9.0
        assert [v is w for v in tape.watched_variables()] == [True]


def test_a_training_loop_with_a_captured_loss(gpu):  # noqa: F811
    def train(capture):
        w = eg.Variable(np.ones((3, 1), "f4"), device=gpu)
        data = np.random.default_rng(1)
        adam = eg.optim.Adam(0.1)
        loss = capture(lambda x, y: eg.mean((x @ w - y) ** 2))
        step = eg.implicit_value_and_gradients(loss)
        values = []
        for _ in range(20):
            x = on(gpu, data.normal(size=(8, 3)).astype("f4"))
            value, pairs = step(x, eg.sum(x, 1, True))
            adam.apply_gradients(pairs)
            values.append(value)
        return [*values, w.read_value()]

    same(train(eg.function), train(lambda f: f))


def test_asking_for_a_value_under_a_tape_names_the_line(gpu):  # noqa: F811
    def f(x):
        return x * x if x.numpy().sum() > 0 else x

    x = on(gpu, [2.0])
    with eg.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(CaptureError, match="test_graph_pullbacks"):
            eg.function(f)(x)
        with pytest.warns(RuntimeWarning):
            y = eg.function(f, on_failure="eager")(x)
    assert tape.gradient(y, x).item() == 4.0


@hosted
def test_forgotten_functions_free_their_graphs(gpu):  # noqa: F811
    import gc
    import weakref

    f = eg.function(lambda x: eg.sum(x * x))
    x = on(gpu, [1.0])
    for _ in range(4):
        gradients(f, x, lambda x: [x])
    gone = weakref.ref(f._graph_pullbacks)
    del f
    gc.collect()
    assert gone() is None
