"""When memory is freed, and what one thread sees of another's tapes.

Buffers are followed by weak references.  Nothing here may wait for the garbage
collector: it is switched off for the whole file.  The tests with a number in their
name are the rows of the table of behaviours.
"""

import contextlib
import gc
import os
import platform
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import host_memory


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def buffer(tensor):
    """A weak reference to the buffer of a tensor."""
    return weakref.ref(tensor._data)


def watched(number=0.5):
    return eg.constant([number, number])


# When a buffer dies


def test_257_freed_by_gradient():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        h = eg.exp(x)
        y = h * h
    saved = buffer(h)
    del h
    assert saved() is not None
    g = tape.gradient(y, x)
    assert saved() is None
    assert g.tolist() == pytest.approx([2 * np.e] * 2)


def test_258_persistent_keeps():
    x = watched()
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        h = eg.exp(x)
        y = h * h
    saved = buffer(h)
    del h
    tape.gradient(y, x)
    assert saved() is not None
    del tape
    assert saved() is None
    assert y.shape == (2,)


@pytest.mark.parametrize("inside", [True, False])
def test_260_dead_branch(inside):
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        h = eg.exp(x)
        branch = h * h
        saved = buffer(h)
        if inside:
            del h, branch
            assert saved() is None
        y = x * x
    if not inside:
        del h, branch
        assert saved() is None
    assert tape.gradient(y, x).tolist() == [1.0, 1.0]


def test_261_op_whose_rule_keeps_its_own_output():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        h = eg.exp(x)
        z = eg.square(h)
        saved = buffer(h)
        del h, z
        assert saved() is None


def test_262_unwatched_is_not_kept():
    x = watched()
    with eg.GradientTape():
        h = eg.exp(x)
        y = h * h
        saved = buffer(h)
        del h
        assert saved() is None
    assert y.shape == (2,)


def test_264_tanh_keeps_only_its_output():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        h = x * 2
        t = eg.tanh(h)
        y = eg.sum(t)
        given, result = buffer(h), buffer(t)
        del h, t
        assert given() is None
        assert result() is not None
    expected = 2 * (1 - np.tanh(1.0) ** 2)
    assert tape.gradient(y, x).tolist() == pytest.approx([expected] * 2)


def test_265_add_keeps_nothing():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        h = eg.exp(x)
        z = eg.sin(h) + 2
        saved = buffer(h)
        y = h + 2
        del z, h
        assert saved() is not None  # by exp, as its output
        h = x * 3
        z = h + 2
        saved = buffer(h)
        del h
        assert saved() is None
    assert tape.gradient([y, z], x) is not None


def test_266_freed_step_by_step():
    dead = []
    markers = []

    def step(x):
        kept = eg.constant([1.0, 1.0])
        markers.append(buffer(kept))
        y = x * 1.0

        def rule(dy):
            dead.append([marker() is None for marker in markers])
            return [dy * kept]

        out = eg.constant(y.numpy())
        eg.tape.record_operation("step", [out], [x], rule)
        return out

    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = step(step(step(x)))
    tape.gradient(y, x)
    assert dead == [[False, False, False], [False, False, True], [False, True, True]]
    assert [marker() for marker in markers] == [None, None, None]


def test_268_tape_deleted_without_gradient():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        h = eg.exp(x)
        y = h * h
    saved = buffer(h)
    del h
    assert saved() is not None
    del tape
    assert saved() is None
    assert y.shape == (2,)


def test_269_returned_gradients_never_change():
    x, w = watched(1.0), watched(2.0)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch([x, w])
        y = x + w
        z = x * 3 + x * 5 + x + w + y
    first, second = tape.gradient(y, [x, w])
    before = first.tolist(), second.tolist()
    seed = eg.constant([10.0, 20.0])
    for _ in range(2):
        tape.gradient(z, [x, w, y])
        tape.gradient([y, z, y], [x, w], output_gradients=[first, second, seed])
    assert (first.tolist(), second.tolist()) == before == ([1.0, 1.0], [1.0, 1.0])
    assert seed.tolist() == [10.0, 20.0]


def test_seed_is_never_written():
    x = watched()
    seed = eg.constant([1.0, 2.0])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x + x + x + x
    assert tape.gradient(y, x, output_gradients=seed).tolist() == [4.0, 8.0]
    assert seed.tolist() == [1.0, 2.0]


def test_dead_entries_leave_the_tape():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        for _ in range(20_000):
            eg.exp(x)
        assert len(tape._tape.entries) < 10_000
        y = x * x
    assert tape.gradient(y, x).tolist() == [1.0, 1.0]


def test_reset_frees():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        h = eg.exp(x)
        y = h * h
        saved = buffer(h)
        del h
        tape.reset()
        assert saved() is None
    assert y.shape == (2,)


def test_variable_is_not_kept_by_a_used_tape():
    v = eg.Variable([1.0, 2.0])
    alive = weakref.ref(v)
    with eg.GradientTape() as tape:
        y = v * v
    tape.gradient(y, v)
    del v, tape
    assert alive() is None
    assert y.shape == (2,)


# No cycles


def model():
    w = eg.Variable([[0.1, -0.2], [0.3, 0.4]])
    b = eg.Variable([0.0, 0.0])
    return w, b


def loss_of(w, b, x):
    return eg.mean((eg.tanh(x @ w + b) - 1.0) ** 2)


def one_step():
    w, b = model()
    x = eg.constant([[1.0, 2.0]])
    step = eg.implicit_value_and_gradients(loss_of)
    _, pairs = step(w, b, x)
    eg.optim.Adam().apply_gradients(pairs)


def nested_tapes():
    x = watched()
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = eg.exp(x) * x
        g = inner.gradient(y, x)
    outer.gradient(g, x)


def persistent_tape():
    x = watched()
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = eg.exp(x) * x
    tape.gradient(y, x)
    tape.jacobian(y, x)


def never_used_tape():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        eg.exp(x) * x


def persistent_second_order():
    x = watched()
    with eg.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with eg.GradientTape(persistent=True) as inner:
            inner.watch(x)
            y = eg.exp(x) * x
        g = inner.gradient(y, x)
    outer.gradient(g, x)


def exception_in_the_block():
    x = watched()
    with contextlib.suppress(KeyError), eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.exp(x)
        raise KeyError
    tape.gradient(y, x)


def exception_in_an_op():
    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        with contextlib.suppress(ValueError):
            x + eg.zeros(3)


def exception_in_a_rule():
    @eg.custom_gradient
    def f(x):
        def rule(dy):
            raise KeyError

        return x * x, rule

    x = watched()
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(eg.exp(x))
    with contextlib.suppress(KeyError):
        tape.gradient(y, x)


def functions_of_functions():
    eg.gradients_function(lambda x: eg.gradients_function(eg.tanh)(x)[0])([0.5, 0.5])
    _, vjp = eg.make_vjp(eg.tanh)([0.5, 0.5])
    vjp()


def custom_gradients():
    v = eg.Variable([1.0, 2.0])

    @eg.custom_gradient
    def f(x):
        y = eg.exp(x)
        return y, lambda dy: dy * y

    g = eg.recompute_grad(lambda x: f(x) * v)
    eg.gradients_function(lambda x: eg.gradients_function(f)(x)[0])([0.5, 0.5])
    eg.gradients_function(lambda x: eg.gradients_function(g)(x)[0])([0.5, 0.5])
    eg.gradients_function(eg.grad_pass_through(eg.round))([0.5, 0.5])


@pytest.mark.parametrize(
    "program",
    [
        one_step,
        nested_tapes,
        persistent_tape,
        never_used_tape,
        persistent_second_order,
        exception_in_the_block,
        exception_in_an_op,
        exception_in_a_rule,
        functions_of_functions,
        custom_gradients,
    ],
)
def test_no_cycles(program):
    program()  # what is made once is made now
    gc.collect()
    program()
    assert gc.collect() == 0


# Memory over many steps


def growth(step, count, rounds=3):
    """How many blocks more are allocated after ``count`` steps: the least of rounds.

    A collection at both ends empties Python's lists of freed tuples, which count as
    allocated; the second must find nothing to collect.
    """
    for _ in range(100):
        step()
    found = []
    for _ in range(rounds):
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(count):
            step()
        assert gc.collect() == 0
        found.append(sys.getallocatedblocks() - before)
    return min(found)


def test_flat_over_ten_thousand_training_steps():
    w, b = model()
    x = eg.constant([[1.0, 2.0]])
    optimizer = eg.optim.Adam(learning_rate=0.01)
    gradients = eg.implicit_value_and_gradients(lambda: loss_of(w, b, x))
    losses = []

    def step():
        value, pairs = gradients()
        optimizer.apply_gradients(pairs)
        losses[:] = [value.item()]

    step()
    first = losses[0]
    assert growth(step, 10_000, rounds=1) < 1000
    assert losses[0] < first / 10


@pytest.mark.parametrize(
    "program", [nested_tapes, persistent_second_order, custom_gradients, one_step]
)
def test_flat_over_many_runs(program):
    assert growth(program, 300) < 50


def test_flat_for_a_long_lived_variable_read_by_many_tapes():
    v = eg.Variable([1.0, 2.0])
    x = eg.constant([1.0, 2.0])

    def step():
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = x * v
        if step.count % 2:
            tape.gradient(y, [x, v])
        step.count += 1

    step.count = 0
    assert growth(step, 1000) < 50


# Long chains


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_million_ops_are_differentiated_without_recursion(persistent):
    x = eg.constant(1.0)
    with eg.GradientTape(persistent) as tape:
        tape.watch(x)
        y = x
        for _ in range(1_000_000):
            y = y * 1.0
    assert tape.gradient(y, x).item() == 1.0
    del tape
    del y


@pytest.mark.slow
@pytest.mark.parametrize("tape_first", [False, True])
def test_million_ops_are_deleted_without_a_crash(tape_first):
    x = eg.constant(1.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in range(1_000_000):
            y = y + 1.0
    last = weakref.ref(y._data)
    if tape_first:
        del tape
    del y
    assert last() is None


# Threads


def in_threads(*functions):
    """Run each function on a thread of its own; raise what one of them raised."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]


def test_tape_used_on_another_thread():
    x = eg.constant(3.0)
    made = []

    def enter():
        with eg.GradientTape() as tape:
            tape.watch(x)
            made.append((tape, x * x))

    in_threads(enter)
    ((tape, y),) = made
    assert tape.gradient(y, x).item() == 6.0


def test_gradient_on_another_thread_while_this_one_records():
    x = eg.constant(3.0)
    found = []
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        in_threads(lambda: found.append(tape.gradient(y, x)))
        z = y * x
    assert found[0].item() == 6.0
    assert tape.gradient(z, x).item() == 27.0


def test_ops_of_another_thread_are_not_recorded():
    x = eg.constant(3.0)
    made = []
    with eg.GradientTape() as tape:
        tape.watch(x)
        in_threads(lambda: made.append(x * x))
        entries = tape.entries()
    assert entries == []
    assert tape.gradient(made[0], x) is None


def test_watch_from_another_thread():
    x = eg.constant(3.0)
    with eg.GradientTape() as tape:
        in_threads(lambda: tape.watch(x))
        y = x * x
    assert tape.gradient(y, x).item() == 6.0


@pytest.mark.parametrize("persistent", [False, True])
def test_threads_with_shared_variables_and_tensors(persistent):
    v, w = eg.Variable(3.0), eg.Variable(5.0)
    x = eg.constant(2.0)

    def work(factor):
        def run():
            for _ in range(400):
                with eg.GradientTape(persistent) as tape:
                    tape.watch(x)
                    y = factor * x * v * v + w
                    z = eg.sin(y) * 0.0 + y
                dx, dv, dw = tape.gradient(z, [x, v, w])
                assert dx.item() == factor * 9.0
                assert dv.item() == factor * 12.0
                assert dw.item() == 1.0
                seen = tape.watched_variables()
                assert [variable is v for variable in seen] == [True, False]

        return run

    in_threads(work(1.0), work(10.0), work(100.0))


def test_threads_that_watch_one_fresh_tensor():
    barrier = threading.Barrier(2, timeout=60)
    tensors = [eg.constant(3.0) for _ in range(500)]

    def run():
        for x in tensors:
            barrier.wait()
            with eg.GradientTape() as tape:
                tape.watch(x)
                y = x * x
            assert tape.gradient(y, x).item() == 6.0

    in_threads(run, run)


def test_watching_a_source_again_while_it_is_swept():
    """A sweep on one thread, and a watch of its source on another, in the middle."""
    v, x = eg.Variable(3.0), eg.constant(2.0)

    @eg.custom_gradient
    def paused(y):
        def rule(dy):
            in_threads(other)
            return dy

        return y, rule

    def other():
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = x * v
        assert tape.gradient(y, [x, v])[1].item() == 2.0

    with eg.GradientTape() as tape:
        tape.watch(x)
        y = paused(x * v)
    dx, dv = tape.gradient(y, [x, v])
    assert dx.item() == 3.0
    assert dv.item() == 2.0


def test_threads_train_their_own_models():
    def work(target):
        def run():
            w = eg.Variable([0.0, 0.0])
            optimizer = eg.optim.SGD(learning_rate=0.25)
            step = eg.implicit_value_and_gradients(lambda: eg.sum((w - target) ** 2))
            for _ in range(50):
                _, pairs = step()
                assert len(pairs) == 1
                optimizer.apply_gradients(pairs)
            assert w.tolist() == pytest.approx([target, target])

        return run

    in_threads(work(1.0), work(2.0), work(3.0))


# What a process keeps of freed memory

PAGES = """
import resource

import numpy as np

import eagergrad as eg


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(500_000 + 1000 * i) for i in range(5)]  # 20 MB in all
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


faults()
print(min(faults() for _ in range(5)))
"""


def page_faults(**environment):
    ours = {k: v for k, v in os.environ.items() if k not in host_memory.NAMES}
    command = [sys.executable, "-c", PAGES]
    run = subprocess.run(
        command, env=ours | environment, capture_output=True, text=True, check=True
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="limits of glibc")
def test_freed_memory_is_kept_for_the_next_arrays():
    assert page_faults() < 10
    assert page_faults(MALLOC_TRIM_THRESHOLD_="131072") > 10


def test_limits_in_the_environment_are_left_alone(monkeypatch):
    for name in host_memory.NAMES:
        monkeypatch.setenv(name, "1")
        assert host_memory.keep() == f"as {name} says"
        monkeypatch.delenv(name)


def test_other_c_libraries_are_left_alone(monkeypatch):
    for name in host_memory.NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert host_memory.keep() == "as the C library decides"
