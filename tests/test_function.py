"""Captured functions: the bits of the eager ones, at every replay."""

import collections
import contextlib
import copy
import dataclasses
import gc
import threading
import weakref

import numpy as np
import pytest
from op_cases import ALL, SMOOTH

import eagergrad as eg
from eagergrad.errors import CaptureError, MatrixError, ShapeError
from eagergrad.ops.random import GENERATOR


def same(got, expected):
    assert got.device == expected.device
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.numpy().tobytes() == expected.numpy().tobytes()


def all_same(got, expected):
    for one, two in zip(eg.nest.flatten(got), eg.nest.flatten(expected), strict=True):
        same(one, two)


def other(arrays):
    """Other values of the same kind: each array upside down."""
    return [np.flip(x).copy() if x.dtype.kind in "fc" else x for x in arrays]


# ------------------------------------------------------------------------- every op


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_op_is_replayed(case):
    captured = eg.function(lambda *xs: case(*xs), exact=True)
    for arrays in (case.arrays, other(case.arrays), case.arrays):
        xs = [eg.tensor(x) for x in arrays]
        all_same(captured(*xs), case(*xs))
    assert len(captured.programs()) == 1


def gradients(case, xs):
    sources = [xs[i] for i in case.sources]
    with eg.GradientTape() as tape:
        tape.watch(sources)
        y = case(*xs)
    return tape.gradient(y, sources, unconnected_gradients="zero")


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_every_gradient_is_replayed(case):
    captured = eg.function(lambda *xs: gradients(case, xs), exact=True)
    for arrays in (case.arrays, other(case.arrays)):
        xs = [eg.tensor(x) for x in arrays]
        all_same(captured(*xs), gradients(case, xs))
    assert len(captured.programs()) == 1


# What names its result's shape by values, or asks for one.
NOT_CAPTURED = {
    *("nonzero", "flatnonzero", "from_dlpack", "unique", "unique_all"),
    *("unique_counts", "unique_inverse", "unique_values"),
}


def of_one_tensor():
    """The public functions that can be called with one matrix, and its values."""
    x = eg.tensor(np.random.default_rng(0).uniform(0.2, 0.8, (4, 4)))
    for name in dir(eg):
        f = getattr(eg, name)
        if name[0] != "_" and callable(f) and not isinstance(f, type):
            with contextlib.suppress(Exception):  # takes something else
                y = f(x)
                if any(isinstance(leaf, eg.Tensor) for leaf in eg.nest.flatten(y)):
                    yield name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(of_one_tensor())))
def test_every_function_of_one_tensor_is_captured(name):
    f = getattr(eg, name)
    captured = eg.function(f, exact=True)
    draw = np.random.default_rng(1)
    for _ in range(2):
        x = eg.tensor(draw.uniform(0.2, 0.8, (4, 4)))
        if name in NOT_CAPTURED:
            with pytest.raises(CaptureError):
                captured(x)
        else:
            for got, expected in zip(
                eg.nest.flatten(captured(x)), eg.nest.flatten(f(x)), strict=True
            ):
                if isinstance(expected, eg.Tensor):
                    same(got, expected)


# ------------------------------------------------------------------- training steps


class Net:
    """Two layers with dropout, trained on noise."""

    def __init__(self, make_optimizer):
        draw = np.random.default_rng(1)
        self.weights = [
            eg.Variable(draw.normal(0, 0.5, shape).astype(np.float32))
            for shape in ((5, 7), (7,), (7, 3), (3,))
        ]
        self.optimizer = make_optimizer()
        self.generator = eg.random.Generator(4)

    def loss(self, x, labels):
        w1, b1, w2, b2 = self.weights
        h = eg.dropout(eg.tanh(x @ w1 + b1), 0.3, generator=self.generator)
        noise = self.generator.normal(0.0, 0.01, size=3)
        return eg.mean(eg.softmax_cross_entropy(h @ w2 + b2 + noise, labels))

    def step(self, x, labels):
        f = eg.implicit_value_and_gradients(self.loss)
        loss, pairs = f(x, labels)
        self.optimizer.apply_gradients(pairs)
        return loss


OPTIMIZERS = {
    "SGD": lambda: eg.optim.SGD(0.1, weight_decay=0.01),
    "momentum": lambda: eg.optim.SGD(0.1, momentum=0.9),
    "Adam": lambda: eg.optim.Adam(0.01),
    "AdamW": lambda: eg.optim.AdamW(0.01),
}


def batches(count):
    draw = np.random.default_rng(2)
    for _ in range(count):
        x = draw.normal(size=(4, 5)).astype(np.float32)
        yield eg.tensor(x), eg.tensor(draw.integers(3, size=4))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kernels", ["as they are", "composed"])
def test_50_steps_equal_50_eager_ones(name, kernels, request):
    """With other batches, a schedule of the learning rate, dropout and noise."""
    if kernels == "composed":
        request.getfixturevalue("composed")
    eager, net = Net(OPTIMIZERS[name]), Net(OPTIMIZERS[name])
    step = eg.function(net.step, exact=True)
    for i, (x, labels) in enumerate(batches(50)):
        for optimizer in (eager.optimizer, net.optimizer):
            optimizer.learning_rate = 0.05 / (1 + i)
        same(step(x, labels), eager.step(x, labels))
    all_same(
        [w.read_value() for w in net.weights], [w.read_value() for w in eager.weights]
    )
    assert net.generator.state == eager.generator.state
    assert len(step.programs()) == 1


def test_eager_steps_between_replays():
    eager, net = Net(OPTIMIZERS["Adam"]), Net(OPTIMIZERS["Adam"])
    step = eg.function(net.step, exact=True)
    for i, (x, labels) in enumerate(batches(9)):
        run = net.step if i % 3 == 2 else step
        same(run(x, labels), eager.step(x, labels))


def test_an_optimizer_that_regroups_is_captured_again():
    w, b = eg.Variable([1.0, 2.0]), eg.Variable([3.0])
    adam = eg.optim.Adam(0.1)

    def step(g):
        adam.apply_gradients([(g, w)])

    captured = eg.function(step)
    g = eg.tensor([1.0, -1.0])
    captured(g)
    captured(g)
    adam.apply_gradients([(g, w), (g[:1], b)])  # other groups, the state goes on
    captured(g)
    fresh, twin = eg.optim.Adam(0.1), eg.Variable([1.0, 2.0])
    for _ in range(4):
        fresh.apply_gradients([(g, twin)])
    same(w.read_value(), twin.read_value())


# ------------------------------------------------------------------------ Variables


def test_variables_are_looked_up_at_each_call():
    v = eg.Variable([1.0, 2.0])
    captured = eg.function(lambda x: v * x)
    x = eg.tensor([3.0, 4.0])
    assert captured(x).tolist() == [3.0, 8.0]
    v.assign([10.0, 20.0])
    assert captured(x).tolist() == [30.0, 80.0]


def test_assignments_and_what_was_read_before():
    v = eg.Variable([1.0])

    @eg.function
    def grow(x):
        old = v.read_value()
        v.assign_add(x)
        return old, v * 2.0

    x = eg.tensor([1.0])
    held = v.read_value()
    for i in range(1, 5):
        old, doubled = grow(x)
        assert (old.item(), doubled.item(), v.item()) == (i, 2 * i + 2, i + 1)
    assert held.item() == 1.0


def test_a_replay_does_not_write_into_what_somebody_holds():
    net = Net(OPTIMIZERS["SGD"])
    step = eg.function(net.step, exact=True)
    kept, copies = [], []
    for x, labels in batches(6):
        loss = step(x, labels)
        kept.append((loss, net.weights[0].read_value(), net.weights[1][1:]))
        copies.append([t.numpy() for t in kept[-1]])
    for tensors, values in zip(kept, copies, strict=True):
        for t, value in zip(tensors, values, strict=True):
            np.testing.assert_array_equal(t.numpy(), value)


def test_two_functions_share_variables():
    v = eg.Variable([1.0])
    double = eg.function(lambda: [v.assign(v * 2.0)][1:])
    read = eg.function(lambda: v + 0.0)
    for expected in (2.0, 4.0, 8.0):
        double()
        assert read().item() == expected


def test_values_that_no_instruction_reads():
    """Returned or assigned as they are."""
    v, w = eg.Variable([1.0]), eg.Variable([0.0])

    @eg.function
    def f():
        w.assign(v)
        return v.read_value()

    for value in (1.0, 5.0, 7.0):
        v.assign([value])
        assert f().item() == w.item() == value


# ----------------------------------------------------------------------- signatures


def test_one_program_for_a_signature():
    runs = []

    @eg.function
    def f(x, scale, options=None):
        runs.append(1)
        return {"y": x * scale, "same": options}

    for n in (2, 3, 2, 3):
        assert f(eg.ones((n,)), 2.0)["y"].tolist() == [2.0] * n
    assert len(runs) == len(f.programs()) == 2
    assert f(eg.ones((2,)), 3.0)["y"].tolist() == [3.0, 3.0]
    assert f(eg.ones((2,)).astype("float64"), 3.0)["y"].dtype == "float64"
    assert f(eg.ones((2,)), 3.0, options="text")["same"] == "text"
    assert len(runs) == 5


def test_nested_arguments_and_results():
    f = eg.function(lambda pair, *, more: ([pair[0] + pair[1]["b"]], more * 2.0, None))
    for value in (1.0, 2.0):
        x = eg.tensor([value])
        found = f((x, {"b": x}), more=x)
        assert (found[0][0].item(), found[1].item(), found[2]) == (
            2 * value,
            2 * value,
            None,
        )
    assert len(f.programs()) == 1


def test_a_list_of_one_is_not_that_one():
    f = eg.function(lambda x: x)
    x = eg.tensor([1.0])
    for _ in range(2):
        assert isinstance(f([x]), list)
        assert isinstance(f(x), eg.Tensor)
        assert isinstance(f((x,)), tuple)
    assert len(f.programs()) == 3


def test_numpy_arguments_and_methods():
    class Model:
        def __init__(self):
            self.w = eg.Variable([2.0])

        @eg.function
        def __call__(self, x):
            return self.w * x

    one, two = Model(), Model()
    two.w.assign([5.0])
    for _ in range(2):
        assert one(np.array([3.0], np.float32)).item() == 6.0
        assert two(np.array([3.0], np.float32)).item() == 15.0


def test_the_input_signature_is_kept_to():
    f = eg.function(lambda x: x + 1.0, input_signature=[((None, 2), "float32")])
    f(eg.ones((3, 2)))
    with pytest.raises(ShapeError, match=r"float32 \(None, 2\), got float32"):
        f(eg.ones((3, 3)))


def test_zeros_of_both_signs_and_nan_are_arguments():
    f = eg.function(lambda x, k: eg.copysign(x, k))
    for _ in range(2):
        assert f(eg.ones(()), 0.0).item() == 1.0
        assert f(eg.ones(()), -0.0).item() == -1.0
        f(eg.ones(()), float("nan"))
    assert len(f.programs()) == 3


def test_under_debug_it_runs_as_it_is():
    f = eg.function(lambda x: eg.log(x) * 2.0)
    x = eg.tensor(-1.0)
    with np.errstate(invalid="ignore"):
        f(x)
    with pytest.raises(eg.errors.NaNError, match="log"), eg.debug(nan_check=True):
        f(x)


def test_the_arrays_of_the_trace_are_let_go():
    kept = []

    def f(x):
        y = eg.tanh(x) @ x
        kept.append(weakref.ref(y._data._array))
        return eg.sum(y)

    eg.function(f)(eg.ones((30, 30)))
    captured = eg.function(f)
    captured(eg.ones((30, 30)))
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_programs_are_bounded():
    f = eg.function(lambda x, k: x * k)
    for k in range(40):
        assert f(eg.ones(()), float(k)).item() == k
    assert len(f.programs()) == 32


# --------------------------------------------------------------------------- tapes


def test_gradients_of_a_captured_function():
    f = eg.function(lambda x: eg.sum(x * x))
    x = eg.tensor([1.0, 2.0])
    f(x)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]


def test_numbers_do_not_widen_gradients():
    f = eg.function(eg.gradients_function(lambda x: x * x * 3.0 / 7.0), exact=True)
    x = eg.tensor([0.1, 0.7])
    f(x)
    assert "float64" not in str(f.programs()[0])
    same(f(x)[0], f.python_function(x)[0])


def test_second_derivatives_are_captured():
    def second(x):
        with eg.GradientTape() as outer:
            outer.watch(x)
            with eg.GradientTape() as tape:
                tape.watch(x)
                y = eg.sum(eg.tanh(x) * x)
            g = tape.gradient(y, x)
        return outer.gradient(g, x)

    captured = eg.function(second, exact=True)
    for values in ([0.5, -1.0], [2.0, 0.1]):
        same(captured(eg.tensor(values)), second(eg.tensor(values)))


def test_a_captured_function_within_another():
    inner = eg.function(lambda x: x * 3.0)
    outer = eg.function(lambda x: inner(x) + 1.0)
    assert [outer(eg.tensor(v)).item() for v in (1.0, 2.0)] == [4.0, 7.0]


# ------------------------------------------------------------------ what users do


def test_recursion_that_python_numbers_end():
    @eg.function
    def f(x, n):
        return x if n == 0 else f(x, n - 1) * 2.0

    assert [f(eg.tensor(1.0), n).item() for n in (3, 3, 2)] == [8.0, 8.0, 4.0]


def test_methods_have_what_functions_have():
    class Model:
        @eg.function
        def double(self, x):
            return 2.0 * x

    model, x = Model(), eg.tensor(1.0)
    assert model.double(x).item() == 2.0
    assert model.double.__self__ is model
    assert "multiply(2.0, x0)" in str(model.double.program(model, x))


def test_a_copied_model_captures_its_own():
    class Model:
        def __init__(self):
            self.w = eg.Variable(2.0)
            self.f = eg.function(self.times)

        def times(self, x):
            return self.w * x

    model = Model()
    model.f(eg.tensor(1.0))
    other = copy.deepcopy(model)
    other.w.assign(5.0)
    assert other.f(eg.tensor(1.0)).item() == 5.0
    assert model.f(eg.tensor(1.0)).item() == 2.0


def test_tensors_around_it_are_looked_up():
    w = eg.tensor(1.0)
    f = eg.function(lambda x: w * x)
    x = eg.tensor(2.0)
    found = [f(x).item(), f(x).item()]
    w = eg.tensor(5.0)
    assert [*found, f(x).item()] == [2.0, 2.0, 10.0]
    assert len(f.programs()) == 1


T = eg.tensor(1.0)  # by the name of an attribute that the function takes


def test_attributes_are_no_tensors_around_it(monkeypatch):
    runs = []
    f = eg.function(lambda x: [runs.append(1), x.T * SCALE][1])
    for value in (1.0, 2.0):
        monkeypatch.setitem(globals(), "T", eg.tensor(value))
        assert f(eg.tensor(3.0)).item() == 6.0
    assert len(runs) == 1
    monkeypatch.setitem(globals(), "SCALE", eg.tensor(5.0))
    assert f(eg.tensor(3.0)).item() == 15.0


SCALE = eg.tensor(2.0)


@dataclasses.dataclass
class Pair:
    x: object
    y: object


HIDING = {
    "generator": lambda x: (x * i for i in range(3)),
    "dict_values": lambda x: {"x": x * 2.0}.values(),
    "deque": lambda x: collections.deque([x * 2.0]),
    "Pair": lambda x: Pair(x * 2.0, [x]),
}


@pytest.mark.parametrize("name", HIDING)
def test_tensors_returned_in_what_is_not_nested_are_refused(name):
    f = eg.function(HIDING[name])
    with pytest.raises(CaptureError, match=f"returned a {name} with tensors"):
        f(eg.tensor(1.0))


def test_what_is_returned_belongs_to_the_caller():
    constant = eg.tensor([1.0, 2.0])
    f = eg.function(lambda x: ([x], np.arange(3), constant, "text"))
    x = eg.tensor(1.0)
    for _ in range(3):
        (y,), array, same_values, text = found = f(x)
        assert (y.item(), array.tolist(), text) == (1.0, [0, 1, 2], "text")
        assert same_values.tolist() == [1.0, 2.0]
        assert same_values is not constant
        found[0].append(1)
        array[0] = 9


def test_numbers_of_numpy_sets_and_complex_ones_are_arguments():
    f = eg.function(lambda x, k: x * len(k) if type(k) is set else x * k)
    x, items = eg.ones((), "complex128"), {1}
    assert f(x, items).item() == 1.0
    items.add(2)
    assert f(x, items).item() == 2.0
    count = len(f.programs())
    for _ in range(2):
        assert f(x, np.float64(0.0)).item().real == 0.0
        assert np.signbit(f(x, np.float64(-0.0)).item().real)
        f(x, np.float32("nan"))
        f(x, complex(0.0, 1.0))
        f(x, complex(-0.0, 1.0))
    assert len(f.programs()) == count + 5


def test_programs_that_are_used_stay():
    runs = []
    f = eg.function(lambda x, k: [runs.append(k), x * k][1])
    x = eg.ones(())
    for k in range(40):
        f(x, k)
        f(x, 0)
    assert runs.count(0) == 1
    assert len(f.programs()) == 32


def test_an_error_in_a_replay_is_the_ops():
    f = eg.function(eg.linalg.solve)
    a, b = eg.tensor(np.eye(2, dtype=np.float32)), eg.ones((2,))
    f(a, b)
    with pytest.raises(MatrixError, match="solve: Singular matrix"):
        f(eg.zeros((2, 2)), b)
    assert f(a, b).tolist() == [1.0, 1.0]


def test_recomputed_dropout_is_the_same_again():
    def step():
        eg.random.seed(5)
        v = eg.Variable(np.ones(50, np.float32))
        noisy = eg.recompute_grad(lambda x: eg.dropout(x * v, 0.5) * v)

        def run(x):
            f = eg.implicit_value_and_gradients(lambda: eg.sum(noisy(x)))
            value, ((g, _),) = f()
            return value, g

        return run

    x = eg.ones((50,))
    eager = step()
    expected = [eager(x) for _ in range(4)]
    captured = eg.function(step(), exact=True)
    for row in expected:
        all_same(captured(x), row)


def test_calls_on_two_threads():
    f = eg.function(lambda x: eg.sum(x * x))
    wrong = []

    def work(n):
        for i in range(200):
            if f(eg.full((n,), float(i))).item() != n * i * i:
                wrong.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float64", "complex64", "int8", "uint8", "bool"]
)
@pytest.mark.parametrize("shape", [(3,), (0,), (2, 0), ()])
def test_dtypes_and_empty_arrays(dtype, shape):
    def f(x):
        return x + x, x * x, eg.sum(x), x.astype("float32") * 0.5

    captured = eg.function(f, exact=True)
    for _ in range(2):
        x = eg.ones(shape).astype(dtype)
        all_same(captured(x), f(x))


# --------------------------------------------------------------------------- misuse


READS = {
    "bool": lambda x: x * 2.0 if x > 0 else x,
    "float": lambda x: x * float(x),
    "numpy": lambda x: eg.tensor(x.numpy()),
    "item": lambda x: x * x.item(),
    "tolist": lambda x: eg.tensor(x.tolist()),
    "array": lambda x: eg.tensor(np.asarray(x)),
    "mask": lambda x: eg.ones((1,))[eg.reshape(x, (1,)) > 0],
    "dlpack": lambda x: eg.from_dlpack(x),
}


@pytest.mark.parametrize("name", READS)
def test_asking_for_a_value_names_the_line(name):
    f = eg.function(READS[name])
    with pytest.raises(CaptureError, match=r"known|depends on values"):
        f(eg.tensor(1.0))
    assert f.programs() == []


def test_the_message_names_file_and_line():
    def f(x):
        if x > 0:
            return x
        return -x

    with pytest.raises(CaptureError, match=r"test_function.py:\d+.*eg\.where"):
        eg.function(f)(eg.tensor(1.0))


def test_what_cannot_be_captured_runs_eagerly_when_asked():
    f = eg.function(READS["bool"], on_failure="eager")
    with pytest.warns(RuntimeWarning, match="runs eagerly: its value at"):
        assert f(eg.tensor(2.0)).item() == 4.0
    assert f(eg.tensor(-2.0)).item() == -2.0  # and says so once


def test_a_tensor_that_leaks_is_told_when_it_is_used():
    kept = []
    eg.function(lambda x: kept.append(x * 2.0))(eg.tensor(1.0))
    with pytest.raises(CaptureError, match="kept after the captured function"):
        kept[0] + 1.0


def test_another_thread_cannot_use_a_traced_tensor():
    errors = []

    def f(x):
        def work():
            try:
                x * 2.0
            except CaptureError as error:
                errors.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x

    eg.function(f)(eg.tensor(1.0))
    assert len(errors) == 1
    assert "another thread" in errors[0]


def test_a_function_that_calls_itself_is_refused():
    @eg.function
    def f(x):
        return f(x * 2.0)

    with pytest.raises(CaptureError, match="calls itself"):
        f(eg.tensor(1.0))


def test_a_variable_made_inside_is_refused():
    kept = []

    @eg.function
    def f(x):
        kept.append(eg.Variable([1.0]))
        return x * kept[-1]

    with pytest.raises(CaptureError, match="Variable"):
        f(eg.tensor([1.0]))


def test_a_first_call_that_fails_leaves_nothing_behind():
    net = Net(OPTIMIZERS["Adam"])
    ((x, labels),) = batches(1)
    net.step(x, labels)
    before = [w.numpy() for w in net.weights]
    state = net.generator.state
    (group,) = net.optimizer._groups
    slots = {name: values.copy() for name, values in group.slots.items()}

    def step():
        net.step(x, labels)
        raise KeyError("later")

    with pytest.raises(KeyError, match="later"):
        eg.function(step)()
    for w, values in zip(net.weights, before, strict=True):
        np.testing.assert_array_equal(w.numpy(), values)
    assert net.generator.state == state
    assert group.step == 1
    for name, values in slots.items():
        np.testing.assert_array_equal(group.slots[name], values)


def test_a_program_that_cannot_be_made_leaves_nothing_behind(monkeypatch):
    net = Net(OPTIMIZERS["Adam"])
    ((x, labels),) = batches(1)
    net.step(x, labels)
    before = [w.numpy() for w in net.weights]

    def broken(*args):
        raise MemoryError

    monkeypatch.setattr("eagergrad.program._needed", broken)
    with pytest.raises(MemoryError):
        eg.function(net.step)(x, labels)
    for w, values in zip(net.weights, before, strict=True):
        np.testing.assert_array_equal(w.numpy(), values)
    assert net.optimizer._groups[0].step == 1


def test_wrong_options_are_refused():
    with pytest.raises(ShapeError, match="on_failure 'raise' or 'eager'"):
        eg.function(lambda x: x, on_failure="never")
    with pytest.raises(CaptureError, match="no program for these arguments"):
        eg.function(lambda x: x).program(eg.ones(()))


# ------------------------------------------------------------------------- programs


def test_a_program_can_be_read():
    v = eg.Variable([1.0, 1.0], name="weight")
    f = eg.function(lambda x: eg.sum(eg.tanh(x * v)), exact=True)
    x = eg.ones((2,))
    f(x)
    program = f.program(x)
    text = str(program)
    for part in ("x0 = input  float32 (2,)", "variable weight", "multiply(x0, v0)"):
        assert part in text
    assert "tanh" in text
    assert "return" in text
    dot = program.to_dot()
    assert dot.startswith("digraph")
    assert dot.count("{") == dot.count("}") == 1


def test_memory_is_used_again():
    def chain(x):
        for _ in range(20):
            x = eg.tanh(x)
        return x

    f = eg.function(chain, exact=True)
    f(eg.ones((1000,)))
    program = f.program(eg.ones((1000,)))
    assert program.bytes_eager == 20 * 4000
    assert program.bytes_planned <= 3 * 4032  # multiples of 64


def test_what_nobody_needs_is_not_run():
    def f(x):
        eg.exp(x)
        return x + eg.sum(eg.zeros_like(x))

    captured = eg.function(f)
    x = eg.ones((3,))
    captured(x)
    assert len(captured.program(x).calls) == 1  # the sum is of constants


def test_a_step_allocates_no_more_than_its_result():
    net = Net(OPTIMIZERS["Adam"])
    step = eg.function(net.step, exact=True)
    data = list(batches(3))
    for x, labels in data:
        step(x, labels)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        for x, labels in data:
            step(x, labels)
    assert len(gc.get_objects()) - before < 10


def test_a_dropped_function_frees_its_program():
    v = eg.Variable(np.ones(5, np.float32))
    f = eg.function(lambda x: x * v)
    f(eg.ones((5,)))
    program = weakref.ref(f.programs()[0])
    del f
    gc.collect()
    assert program() is None


def test_random_numbers_go_on():
    eg.random.seed(3)
    eager = [eg.random.uniform(size=4) for _ in range(3)]
    eg.random.seed(3)
    draw = eg.function(lambda: eg.random.uniform(size=4))
    all_same([draw() for _ in range(3)], eager)
    assert GENERATOR.state[1] > 0


def test_a_constant_is_dropped_out_anew_each_time():
    x = eg.tensor(np.ones(8, np.float32))
    drop = eg.function(lambda: eg.dropout(x, 0.5))
    eg.random.seed(3)
    eager = [eg.dropout(x, 0.5) for _ in range(3)]
    eg.random.seed(3)
    all_same([drop() for _ in range(3)], eager)


@pytest.mark.parametrize("tape", [False, True])
def test_arguments_by_keyword_alone(tape):
    f = eg.function(lambda *, x, scale=1.0: eg.sum(x * x) * scale)
    for value, size, scale in (
        (1.0, 1, 1.0),
        (2.0, 1, 1.0),
        (3.0, 2, 1.0),
        (3.0, 2, 2.0),
    ):
        x = eg.full((size,), value)
        with eg.GradientTape() if tape else contextlib.nullcontext() as listening:
            if tape:
                listening.watch(x)
            y = f(x=x, scale=scale)
        assert y.item() == size * value**2 * scale
        if tape:
            assert listening.gradient(y, x).tolist() == [2.0 * value * scale] * size
    assert len(f.programs()) >= 3


def test_a_class_of_variables_is_an_argument_as_a_variable_is():
    class Weight(eg.Variable):
        __slots__ = ()

    f = eg.function(lambda w, x: eg.sum(w.read_value() * x))
    a, b = Weight([1.0, 2.0]), Weight([3.0, 4.0])
    for w, value in ((a, 3.0), (a, 3.0), (b, 7.0), (a, 3.0)):
        assert f(w, eg.ones(2)).item() == value
    a.assign([5.0, 6.0])
    assert f(a, eg.ones(2)).item() == 11.0
    assert len(f.programs()) == 2
