"""Functions captured on a device: one graph of the eager step, with its very bits."""

import gc
import itertools
import threading
import weakref
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest
import standin
from op_cases import ALL, SMOOTH, case_on
from standin import COUNTS
from test_function import all_same, same

import eagergrad as eg
from eagergrad import host_kernels
from eagergrad.counters import COUNTERS
from eagergrad.device import CupyGraph
from eagergrad.errors import CaptureError, DeviceError, OutOfMemoryError
from eagergrad.ops import philox
from eagergrad.ops.random import GENERATOR
from eagergrad.primitive import forget
from eagergrad.tensor import wrap

hosted = pytest.mark.skipif(
    host_kernels.compiler() is None, reason="kernels are not compiled here"
)


REPLAYS = []  # one for each


def launched(graph, launch=CupyGraph.launch):
    REPLAYS.append(1)
    launch(graph)


@pytest.fixture(params=["standin", pytest.param("cuda", marks=pytest.mark.gpu)])
def gpu(request):
    """The stand-in device; a GPU where there is one."""
    there = standin.installed() if request.param == "standin" else nullcontext()
    with there as device, patch.object(CupyGraph, "launch", launched):
        REPLAYS.clear()
        yield device or eg.device("cuda")


@pytest.fixture
def stand_in():
    """The stand-in device, of which a test counts more, or which it makes fail."""
    with standin.installed() as device:
        yield device


def on(device, x):
    return eg.tensor(x, device=device)


# ------------------------------------------------------------------------- every op

# What CuPy leaves to other libraries, and what SciPy's functions on a GPU would do.
OF_SOLVERS = set(
    "cholesky cofactor_slope cofactors det eig eigh expm inv qr slogdet solve svd "
    "svd_full".split()
)
OF_SCIPY = set(
    "beta betaln bessel_quotient digamma erf erfc erfcx erfinv gammainc gammaln "
    "i0 i0e i1 i1e log_ndtr ndtri polygamma".split()
)
# They are given an index of NumPy's, which the public functions send to the device.
OF_INDICES = set("getitem max_at min_at scatter_add segment_sum set_at stays".split())
RUN = [case for case in ALL if case.op.name not in OF_SCIPY]
RUN_SMOOTH = [case for case in SMOOTH if case.op.name not in OF_SCIPY]


def replayed(case, f, device):
    """Capture a function of an op's arrays, and compare replays with eager calls."""
    captured = eg.function(f)
    upside_down = [
        np.flip(x).copy() if x.dtype.kind in "fc" else x for x in case.arrays
    ]
    for arrays in (case.arrays, upside_down, case.arrays, upside_down):
        xs = [on(device, x) for x in arrays]
        if not REPLAYS and case.op.name in OF_SOLVERS | OF_INDICES:
            try:
                all_same(captured(*xs), f(*xs))
            except CaptureError:
                return
        else:
            all_same(captured(*xs), f(*xs))
    assert len(captured.programs()) == 1


@pytest.mark.parametrize("case", RUN, ids=str)
def test_every_op_is_replayed(gpu, case):
    replayed(case, case_on(case, gpu), gpu)


@pytest.mark.parametrize("case", RUN_SMOOTH, ids=str)
def test_every_gradient_is_replayed(gpu, case):
    there = case_on(case, gpu)

    def gradients(*xs):
        sources = [xs[i] for i in case.sources]
        with eg.GradientTape() as tape:
            tape.watch(sources)
            y = there(*xs)
        return tape.gradient(y, sources, unconnected_gradients="zero")

    replayed(case, gradients, gpu)


@pytest.mark.parametrize("name", sorted(OF_SOLVERS - {"eig"}))
def test_what_other_libraries_do_is_not_captured(stand_in, name):
    """These cases are not passed over above for another reason."""
    case = next(case for case in RUN if case.op.name == name)
    xs = [on(stand_in, x) for x in case.arrays]
    captured = eg.function(lambda *xs: case_on(case, stand_in)(*xs))
    with pytest.raises(CaptureError, match=r"its value|op_cases.py:\d+ waits"):
        [captured(*xs) for _ in range(2)]


# ------------------------------------------------------------------- training steps


class Net:
    """Two layers with dropout, trained on noise."""

    def __init__(self, make_optimizer, device, dtype="float32"):
        draw = np.random.default_rng(1)
        self.weights = [
            eg.Variable(draw.normal(0, 0.5, shape).astype(dtype), device=device)
            for shape in ((5, 7), (7,), (7, 3), (3,))
        ]
        self.optimizer = make_optimizer()
        self.generator = eg.random.Generator(4)
        self.device = device

    def loss(self, x, labels):
        w1, b1, w2, b2 = self.weights
        h = eg.dropout(eg.tanh(x @ w1 + b1), 0.3, generator=self.generator)
        noise = self.generator.normal(
            0.0, 0.01, size=3, dtype=w1.dtype, device=self.device
        )
        return eg.mean(eg.softmax_cross_entropy(h @ w2 + b2 + noise, labels))

    def step(self, x, labels):
        f = eg.implicit_value_and_gradients(self.loss)
        loss, pairs = f(x, labels)
        self.optimizer.apply_gradients(pairs)
        return loss

    def values(self):
        return [w.read_value() for w in self.weights]


OPTIMIZERS = {
    "SGD": lambda: eg.optim.SGD(0.1, weight_decay=0.01),
    "momentum": lambda: eg.optim.SGD(0.1, momentum=0.9),
    "Adam": lambda: eg.optim.Adam(0.01),
    "AdamW": lambda: eg.optim.AdamW(0.01),
}


def batches(count, device, dtype="float32"):
    draw = np.random.default_rng(2)
    for _ in range(count):
        x = draw.normal(size=(4, 5)).astype(dtype)
        yield on(device, x), on(device, draw.integers(3, size=4))


@pytest.fixture
def composed(gpu):
    """The device without kernels."""
    with patch.object(gpu.backend, "fused", False):
        forget()
        yield
    forget()


@pytest.mark.parametrize("kernels", ["as they are", "composed"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_50_steps_equal_50_eager_ones(gpu, name, dtype, kernels, request):
    """With other batches, a schedule of the learning rate, dropout and noise."""
    if kernels == "composed":
        request.getfixturevalue("composed")
    eager = Net(OPTIMIZERS[name], gpu, dtype)
    net = Net(OPTIMIZERS[name], gpu, dtype)
    step = eg.function(net.step, exact=True)
    for i, (x, labels) in enumerate(batches(50, gpu, dtype)):
        for optimizer in (eager.optimizer, net.optimizer):
            optimizer.learning_rate = 0.05 / (1 + i)
        same(step(x, labels), eager.step(x, labels))
    all_same(net.values(), eager.values())
    assert net.generator.state == eager.generator.state
    assert len(step.programs()) == 1
    assert len(REPLAYS) == 49


def test_eager_steps_between_replays(gpu):
    eager, net = Net(OPTIMIZERS["Adam"], gpu), Net(OPTIMIZERS["Adam"], gpu)
    step = eg.function(net.step)
    for i, (x, labels) in enumerate(batches(12, gpu)):
        run = net.step if i % 3 == 2 else step
        same(run(x, labels), eager.step(x, labels))
    assert len(REPLAYS) == 7


def test_half_of_the_variables_in_each_of_two_optimizers(gpu):
    """Their values lie in two buffers, of which a graph keeps a copy each."""

    class Both:
        def __init__(self):
            self.parts = eg.optim.Adam(0.1), eg.optim.SGD(0.1, momentum=0.5)

        def apply_gradients(self, pairs):
            pairs = list(pairs)
            self.parts[0].apply_gradients(pairs[:2])
            self.parts[1].apply_gradients(pairs[2:])

    eager, net = Net(Both, gpu), Net(Both, gpu)
    step = eg.function(net.step)
    for x, labels in batches(6, gpu):
        same(step(x, labels), eager.step(x, labels))
    all_same(net.values(), eager.values())


@pytest.mark.parametrize("kernels", ["as they are", "composed"])
def test_many_variables(gpu, kernels, request):
    if kernels == "composed":
        request.getfixturevalue("composed")
    variables = [eg.Variable([float(i), 1.0], device=gpu) for i in range(20)]
    twins = [eg.Variable(v) for v in variables]
    adam, other = eg.optim.Adam(0.1), eg.optim.Adam(0.1)

    def step(x, variables=variables, adam=adam):
        f = eg.implicit_gradients(
            lambda: (
                eg.sum(eg.concatenate(variables) * x)
                + eg.sum(eg.square(eg.stack(variables, 1)))
            )
        )
        adam.apply_gradients(f())

    captured = eg.function(lambda x: step(x))
    for _ in range(4):
        x = eg.random.normal(size=40, device=gpu)
        captured(x)
        step(x, twins, other)
    all_same([v + 0.0 for v in variables], [v + 0.0 for v in twins])


def test_an_optimizer_that_regroups_is_captured_again(gpu):
    w, b = eg.Variable([1.0, 2.0], device=gpu), eg.Variable([3.0], device=gpu)
    adam = eg.optim.Adam(0.1)
    captured = eg.function(lambda g: adam.apply_gradients([(g, w)]))
    g = on(gpu, [1.0, -1.0])
    for _ in range(3):
        captured(g)
    adam.apply_gradients([(g, w), (g[:1], b)])  # other groups, the state goes on
    for _ in range(3):
        captured(g)
    fresh, twin = eg.optim.Adam(0.1), eg.Variable([1.0, 2.0], device=gpu)
    for _ in range(7):
        fresh.apply_gradients([(g, twin)])
    same(w.read_value(), twin.read_value())
    assert len(REPLAYS) == 4


def test_an_optimizer_that_regroups_while_it_is_recorded(gpu):
    """Its state is laid out anew once, not by each replay."""
    w, b = eg.Variable([1.0, 2.0], device=gpu), eg.Variable([3.0], device=gpu)
    adam = eg.optim.Adam(0.1)
    captured = eg.function(lambda g: adam.apply_gradients([(g, w)]))
    g = on(gpu, [1.0, -1.0])
    captured(g)
    adam.apply_gradients([(g, w), (g[:1], b)])
    for _ in range(3):
        captured(g)
    fresh, twin = eg.optim.Adam(0.1), eg.Variable([1.0, 2.0], device=gpu)
    for _ in range(5):
        fresh.apply_gradients([(g, twin)])
    same(w.read_value(), twin.read_value())


def test_settings_of_an_optimizer_may_change(gpu, composed):
    """By some of them an update chooses what it does: it is captured again then."""
    runs = []
    for capture in (False, True):
        w = eg.Variable([1.0, 2.0], device=gpu)
        sgd = eg.optim.SGD(0.1)

        def step(g, w=w, sgd=sgd):
            sgd.apply_gradients([(g, w)])

        f = eg.function(step) if capture else step
        for i in range(9):
            sgd.weight_decay = 0.1 * (i // 3)
            f(on(gpu, [1.0, -1.0]))
        runs.append(w.read_value())
    same(*runs)


# ------------------------------------------------------------------------ Variables


def test_variables_are_looked_up_at_each_call(gpu):
    v = eg.Variable([1.0, 2.0], device=gpu)
    captured = eg.function(lambda x: v * x)
    x = on(gpu, [3.0, 4.0])
    for k in (1.0, 10.0, 100.0, 1000.0):
        v.assign([k, 2 * k])
        assert captured(x).tolist() == [3 * k, 8 * k]
    assert len(REPLAYS) == 3


def test_assignments_and_what_was_read_before(gpu):
    v = eg.Variable([1.0], device=gpu)

    @eg.function
    def grow(x):
        old = v.read_value()
        v.assign_add(x)
        return old, v * 2.0, v.read_value()

    x = on(gpu, [1.0])
    held = v.read_value()
    for i in range(1, 6):
        old, doubled, new = grow(x)
        values = (old.item(), doubled.item(), new.item(), v.item())
        assert values == (i, 2 * i + 2, i + 1, i + 1)
    assert held.item() == 1.0


def test_variables_that_take_each_others_values(gpu):
    v, w = eg.Variable([1.0], device=gpu), eg.Variable([2.0], device=gpu)

    @eg.function
    def swap():
        old = v.read_value()
        v.assign(w)
        w.assign(old)

    with gpu:
        for i in range(5):
            swap()
            assert (v.item(), w.item()) == ((2.0, 1.0) if i % 2 == 0 else (1.0, 2.0))


def test_a_variable_that_is_only_assigned(gpu):
    v = eg.Variable([0.0], device=gpu)
    put = eg.function(lambda x: [v.assign(x)][1:])
    for value in (1.0, 2.0, 3.0):
        put(on(gpu, [value]))
        assert v.item() == value


def test_a_replay_does_not_write_into_what_somebody_holds(gpu):
    net = Net(OPTIMIZERS["SGD"], gpu)
    step = eg.function(net.step)
    kept, copies = [], []
    for x, labels in batches(6, gpu):
        loss = step(x, labels)
        kept.append((x, loss, net.weights[0].read_value(), net.weights[1][1:]))
        copies.append([t.numpy() for t in kept[-1]])
    for tensors, values in zip(kept, copies, strict=True):
        for t, value in zip(tensors, values, strict=True):
            np.testing.assert_array_equal(t.numpy(), value)


def test_functions_share_variables(gpu):
    eager, net = Net(OPTIMIZERS["Adam"], gpu), Net(OPTIMIZERS["Adam"], gpu)
    step, small = eg.function(net.step), eg.function(net.step)
    look = eg.function(lambda x: eg.sum(x @ net.weights[0]))
    for i, (x, labels) in enumerate(batches(9, gpu)):
        if i % 2:
            same(step(x, labels), eager.step(x, labels))
        else:
            same(small(x[:2], labels[:2]), eager.step(x[:2], labels[:2]))
        same(look(x), eg.sum(x @ eager.weights[0]))
    assert len(REPLAYS) == 3 + 4 + 8


def test_other_variables_are_left_alone(gpu):
    v, other = eg.Variable([1.0], device=gpu), eg.Variable([2.0], name="other")
    there = eg.Variable([3.0], name="there", device=gpu)
    f = eg.function(lambda x: x * v)
    for _ in range(3):
        assert f(on(gpu, [2.0])).item() == 2.0
    assert "there" not in str(f.program(on(gpu, [2.0])))
    assert (other.item(), there.item()) == (2.0, 3.0)


def test_a_loaded_parameter_is_noticed(gpu, tmp_path):
    net = Net(OPTIMIZERS["SGD"], gpu)
    step = eg.function(net.step)
    data = list(batches(4, gpu))
    eg.save(tmp_path / "net", net.weights)
    state = net.generator.state
    first = [step(*data[0]), step(*data[1]), step(*data[2])]
    for w, value in zip(net.weights, eg.load(tmp_path / "net"), strict=True):
        w.assign(value.to(gpu))
    net.generator.state = state
    all_same([step(*data[0]), step(*data[1]), step(*data[2])], first)


# -------------------------------------------------------------- what a graph reads


def test_tensors_from_outside_stay_alive(gpu):
    """A graph reads their memory, which would be somebody else's without them."""
    outside = {"k": on(gpu, [1.0, 2.0]) * 3.0}
    f = eg.function(lambda x: x * outside["k"] + outside["k"][1:])
    x = on(gpu, [1.0, 1.0])
    expected = f(x).tolist()
    assert f(x).tolist() == expected == [9.0, 12.0]
    del outside["k"]
    gc.collect()
    assert f(x).tolist() == expected


def test_constants_made_inside(gpu):
    def f(x):
        table = eg.tensor([[1.0, 2.0], [3.0, 4.0]], device=gpu)
        picked = table[[1, 0]] + eg.take(table, np.array([0, 1]), axis=0)
        changed = x.at[np.array([1])].add(5.0)
        return picked * changed + eg.full_like(x, 2.0) + np.float32(1.0)

    captured = eg.function(f)
    for value in (1.0, 2.0, 3.0, 4.0):
        x = on(gpu, [value, -value])
        same(captured(x), f(x))
    assert len(REPLAYS) == 3


def test_arguments_that_are_arrays_or_nested(gpu):
    f = eg.function(lambda pair, *, more: ([pair[0] + pair[1]["b"]], more * 2.0, None))
    with gpu:
        for value in (1.0, 2.0, 3.0, 4.0):
            x = np.array([value], np.float32)
            found = f((x, {"b": x}), more=eg.tensor(x))
            assert [y.device for y in eg.nest.flatten(found)[:2]] == [gpu, gpu]
            assert (found[0][0].item(), found[1].item()) == (2 * value, 2 * value)
            assert found[2] is None
    assert len(REPLAYS) == 3
    assert len(f.programs()) == 1


def test_arrays_of_any_layout(gpu):
    f = eg.function(lambda x, k: x * k)
    with gpu:
        for value in (1.0, 2.0, 3.0):
            x = np.arange(6.0).reshape(2, 3).T[::-1]
            y = f(x, np.array(value))
            assert (y.device, y.tolist()) == (gpu, (x * value).tolist())


def test_one_function_on_two_devices(gpu):
    f = eg.function(lambda x: x * 2.0)
    for _ in range(3):
        for device in ("cpu", gpu):
            y = f(on(device, [3.0]))
            assert (y.device, y.tolist()) == (device, [6.0])
    assert len(f.programs()) == 2


def test_tensors_of_two_devices_do_as_eager_ones_do(gpu):
    x, here = on(gpu, [1.0]), on("cpu", [2.0])
    mixed = eg.function(lambda x, y: x + y)
    moved = eg.function(lambda x, y: (x + y.to(gpu), y * 2.0))
    mixed(x, x)
    for _ in range(3):
        with pytest.raises(DeviceError, match=str(gpu)):
            mixed(x, here)
        there, stays = moved(x, here)
        assert (there.item(), stays.item(), stays.device) == (3.0, 4.0, "cpu")
    assert moved.programs() == []


def test_results_that_are_arguments_constants_and_variables(gpu):
    v, k = eg.Variable([1.0], device=gpu), on(gpu, [7.0])
    here = eg.tensor([8.0], device="cpu")
    f = eg.function(lambda x: (x, k, here, v, x * v, "text"))
    for value in (1.0, 2.0, 3.0):
        x = on(gpu, [value])
        same_x, constant, cpu, variable, product, text = f(x)
        assert (same_x.item(), constant.item(), product.item()) == (value, 7.0, value)
        assert (cpu.device, cpu.item(), text) == ("cpu", 8.0, "text")
        assert variable is v


def test_empty_arrays(gpu):
    v = eg.Variable(np.zeros((0, 3), np.float32), device=gpu)

    @eg.function
    def f(x):
        v.assign(v + 1.0)
        return eg.sum(x @ v), x * 2.0

    for _ in range(4):
        total, twice = f(eg.zeros((2, 0), device=gpu))
        assert (total.item(), twice.shape) == (0.0, (2, 0))


def test_inside_another(gpu):
    inner = eg.function(lambda x: x * x * 3.0)
    outer = eg.function(lambda x: inner(x) + 1.0)
    for value in (1.0, 2.0, 3.0):
        x = on(gpu, [value])
        assert outer(x).item() == 3.0 * value**2 + 1.0
    assert len(REPLAYS) == 2


def test_second_derivatives(gpu):
    def second(x):
        with eg.GradientTape() as outer:
            outer.watch(x)
            with eg.GradientTape() as tape:
                tape.watch(x)
                y = eg.sum(eg.tanh(x) * x)
            g = tape.gradient(y, x)
        return outer.gradient(g, x)

    captured = eg.function(second)
    for values in ([0.5, -1.0], [2.0, 0.1], [1.0, 1.5]):
        same(captured(on(gpu, values)), second(on(gpu, values)))


# -------------------------------------------------------------------- random numbers


def draws(device, f, count=6):
    """What a function gives, captured or not, from one seed on."""
    found = []
    for run in (f, eg.function(f)):
        eg.random.seed(3)
        with device:
            found.append([run() for _ in range(count)])
        found.append(GENERATOR.state)
    return found


@pytest.mark.parametrize(
    "f",
    [
        lambda: eg.random.uniform(size=5),
        lambda: eg.random.normal(2.0, 3.0, size=(3, 3), dtype="float64"),
        lambda: eg.random.permutation(9),
        lambda: [eg.random.uniform(size=2) for _ in range(40)],
        lambda: (eg.random.seed(5), eg.random.uniform(size=5))[1],
        lambda: (eg.random.uniform(size=5), eg.random.seed(3))[0],
        lambda: eg.random.Generator(7).uniform(size=5),
    ],
    ids="uniform normal permutation many seeded last own".split(),
)
def test_random_numbers_go_on(gpu, f):
    eager, state, captured, after = draws(gpu, f)
    all_same(captured, eager)
    assert after == state


def test_what_is_computed_again_draws_the_same_numbers(gpu):
    x = on(gpu, np.ones(8, np.float32))

    def f():
        g = eg.recompute_grad(lambda x: eg.dropout(x * x, 0.5))
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = g(x)
        return y, tape.gradient(y, x)

    eager, state, captured, after = draws(gpu, f)
    all_same(captured, eager)
    assert after == state


def test_a_seed_between_replays(gpu):
    draw = eg.function(lambda: eg.random.uniform(size=4))
    with gpu:
        eg.random.seed(3)
        first = [draw() for _ in range(3)]
        eg.random.seed(2**40)
        other = draw()
        eg.random.seed(3)
        all_same([draw() for _ in range(3)], first)
        eg.random.seed(2**40)
        same(other, eg.random.uniform(size=4))


def test_numbers_drawn_on_the_cpu_are_refused(gpu):
    for draw in (
        lambda x: x * eg.random.uniform(device="cpu").to(gpu),
        lambda x: x * eg.random.normal(size=1, device="cpu").to(gpu),
        lambda x: x * eg.dropout(eg.ones(1, device="cpu"), 0.5).to(gpu),
    ):
        state = GENERATOR.state
        with pytest.raises(CaptureError, match="drawn on cpu in a function"):
            eg.function(draw)(on(gpu, [1.0]))
        assert GENERATOR.state == state


def test_the_numbers_of_a_kernel_go_on(gpu):
    """Its key and offset, with one more: where NumPy has an array, a graph a buffer."""

    def seed():
        drawn = GENERATOR._advance("uniform", 10, np.float32, gpu)
        return wrap(philox.signed(*drawn, 5))

    eager, state, captured, after = draws(gpu, seed)
    assert [x.tolist() for x in captured] == [x.tolist() for x in eager]
    assert [x.tolist() for x in eager] == [[3, 3 * i, 5] for i in range(6)]
    assert after == state


# --------------------------------------------------------------------------- misuse

READS = {
    "bool": lambda x: x * 2.0 if x > 0 else x,
    "float": lambda x: x * float(x),
    "numpy": lambda x: eg.tensor(x.numpy()),
    "item": lambda x: x * x.item(),
    "tolist": lambda x: eg.tensor(x.tolist()),
    "to": lambda x: x.to("cpu"),
    "dlpack": lambda x: x.__dlpack__(),
}


@pytest.mark.parametrize("name", READS)
def test_asking_for_a_value_names_the_line(gpu, name):
    f = eg.function(READS[name])
    with pytest.raises(CaptureError, match=r"test_graphs.py:\d+ .*eg\.where"):
        f(on(gpu, 1.0))
    assert f.programs() == []


def test_a_tensor_can_be_printed(gpu):
    shown = []
    f = eg.function(lambda x: shown.append(repr(x * 2.0)))
    for _ in range(3):
        f(on(gpu, [1.0, 2.0]))
    text = f"tensor(recorded, shape=(2,), dtype=float32, device={str(gpu)!r})"
    assert shown == [text] * 2


def test_a_value_that_only_the_second_call_asks_for(gpu):
    asked = []
    f = eg.function(lambda x: [x.item() for _ in asked])
    f(on(gpu, 1.0))
    asked.append(1)
    with pytest.raises(CaptureError, match=r"^its value at .*test_graphs.py:\d+ reads"):
        f(on(gpu, 1.0))


def test_a_shape_that_depends_on_values_names_the_line(gpu):
    f = eg.function(lambda x: x[x > 0])
    assert f(on(gpu, [1.0, -1.0])).tolist() == [1.0]
    with pytest.raises(CaptureError, match=r"test_graphs.py:\d+ waits for the device"):
        f(on(gpu, [1.0, -1.0]))


def test_what_cannot_be_captured_runs_eagerly_when_asked(gpu):
    f = eg.function(READS["bool"], on_failure="eager")
    with pytest.warns(RuntimeWarning, match="runs eagerly: its value at"):
        assert f(on(gpu, 2.0)).item() == 4.0
    assert f(on(gpu, -2.0)).item() == -2.0  # and says so once
    masked = eg.function(lambda x: x[x > 0], on_failure="eager")
    x = on(gpu, [1.0, -1.0])
    masked(x)
    with pytest.warns(RuntimeWarning, match="waits for the device"):
        assert masked(x).tolist() == [1.0]
    assert masked(x).tolist() == [1.0]


def test_a_tensor_that_leaks_is_told_when_it_is_used(gpu):
    kept = []

    @eg.function
    def f(x):
        y = x * 2.0
        kept.append((x, y))
        return y

    x = on(gpu, [1.0])
    f(x)
    assert kept[0][1].item() == 2.0
    assert f(x).item() == 2.0
    for leaked in kept[1]:
        assert (leaked.shape, leaked.dtype) == ((1,), np.float32)
        with pytest.raises(CaptureError, match="kept after the captured function"):
            leaked + 1.0
    assert f(x).item() == 2.0


def test_a_variable_made_inside_is_refused(gpu):
    kept = []

    @eg.function
    def f(x):
        kept.append(eg.Variable([1.0], device=gpu))
        return x * kept[-1]

    with pytest.raises(CaptureError, match="Variable was made"):
        f(on(gpu, [1.0]))


def test_a_variable_of_the_cpu(gpu):
    """Read it is a constant, until it is assigned elsewhere; assigned it is refused."""
    scale = eg.Variable(2.0, device="cpu", name="scale")
    f = eg.function(lambda x: x * (scale * 1.0).to(gpu))
    for value in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0):
        if scale != eg.tensor(value, device="cpu"):
            scale.assign(value)
        assert f(on(gpu, [1.0])).item() == value
    assert len(REPLAYS) == 4

    def count(x):
        scale.assign_add(1.0)
        return x

    with pytest.raises(CaptureError, match="scale, on cpu, is assigned"):
        eg.function(count)(on(gpu, [1.0]))
    assert scale.item() == 5.0


def test_what_a_gpu_does_in_a_function_of_the_cpu(gpu):
    """It is not noted there, so it would be done once: refused, and taken back."""
    v = eg.Variable([1.0], device=gpu, name="v")
    x = eg.tensor([1.0], device="cpu")

    @eg.function
    def count(x):
        v.assign(v + v)
        return x * 2.0

    with pytest.raises(CaptureError, match=f"v, on {gpu}, is assigned .* on cpu"):
        count(x)
    assert v.item() == 1.0
    with pytest.raises(CaptureError, match=f"a result .* on the CPU is on {gpu}"):
        eg.function(lambda x: v * 2.0)(x)


@pytest.mark.parametrize("call", [1, 2])
def test_a_call_that_fails_leaves_nothing_behind(gpu, call):
    net = Net(OPTIMIZERS["Adam"], gpu)
    ((x, labels),) = batches(1, gpu)
    net.step(x, labels)
    calls = []

    def step(x, labels):
        net.step(x, labels)
        GENERATOR.uniform(device=gpu)
        calls.append(1)
        if len(calls) == call:
            raise KeyError("later")

    captured = eg.function(step)
    for _ in range(call - 1):
        captured(x, labels)
    before = net.values()
    states = net.generator.state, GENERATOR.state
    (group,) = net.optimizer._groups
    slots = {name: values.get() for name, values in group.slots.items()}
    count = group.step
    with pytest.raises(KeyError, match="later"):
        captured(x, labels)
    all_same(net.values(), before)
    assert (net.generator.state, GENERATOR.state) == states
    assert group.step == count
    for name, values in slots.items():
        np.testing.assert_array_equal(group.slots[name].get(), values)
    twin = Net(OPTIMIZERS["Adam"], gpu)
    for _ in range(call):
        twin.step(x, labels)
    for _ in range(3):  # and all goes on
        captured(x, labels)
        twin.step(x, labels)
    all_same(net.values(), twin.values())


def test_the_slot_of_tensors_is_what_it_was(gpu):
    slot = vars(eg.Tensor)["_data"]
    f = eg.function(lambda x: x[x > 0])
    x = on(gpu, [1.0])
    f(x)
    with pytest.raises(CaptureError):
        f(x)
    assert vars(eg.Tensor)["_data"] is slot


def test_the_thread_of_the_first_call_records(gpu):
    """Another one's libraries are not ready yet: it runs the function once more."""
    f = eg.function(lambda x: x * 2.0)
    x = on(gpu, [1.0])
    found = [f(x).item()]

    def work():
        found.extend([f(x).item() for _ in range(2)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(REPLAYS) == 1
    found.append(f(x).item())  # what is recorded serves all threads
    assert found == [2.0] * 4
    assert len(REPLAYS) == 2


def test_another_thread_goes_on_meanwhile(gpu):
    """What it assigns is its own, and what is recorded it does not see."""
    v = eg.Variable([1.0], device=gpu)
    here = eg.Variable([0.0], device="cpu")
    seen = []

    def work():
        here.assign_add([1.0])
        seen.append(v._data)

    @eg.function
    def f(x):
        v.assign(v + x)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return v * 1.0

    x = on(gpu, [1.0])
    assert f(x).item() == 2.0
    before = v._data
    assert f(x).item() == 3.0
    assert here.item() == 2.0
    assert len(seen) == 2
    assert all(data is before for data in seen)


# --------------------------------------------------------------------- out of memory


def test_a_graph_keeps_all_memory_it_was_given(gpu):
    """Also what no array of the recording uses any longer."""
    f = eg.function(lambda x: eg.sum(eg.tanh(eg.tanh(x))))
    x = on(gpu, np.ones(1000, np.float32))
    f(x)
    f(x)
    assert f.program(x).bytes >= 3 * 4000
    assert len(f.program(x)._graph.memory) >= 4


def test_without_memory_for_a_graph_reserves_are_given_back(stand_in):
    f = eg.function(lambda x: x * 2.0)
    x = on(stand_in, [1.0])
    f(x)
    with standin.crowded():
        assert f(x).item() == 2.0
    assert COUNTS["freed"] == 1 + 2  # the first call's, the pool's and the graph's
    assert COUNTS["graphs"] == 1


def test_without_memory_a_function_goes_on_as_it_is(stand_in):
    eager, net = Net(OPTIMIZERS["Adam"], stand_in), Net(OPTIMIZERS["Adam"], stand_in)
    step = eg.function(net.step)
    (x, labels), *_ = batches(1, stand_in)
    step(x, labels)
    before, state = net.values(), net.generator.state
    with standin.full(), pytest.raises(OutOfMemoryError, match="4,096 bytes"):
        step(x, labels)
    all_same(net.values(), before)
    assert net.generator.state == state
    eager.step(x, labels)
    same(net.step(x, labels), eager.step(x, labels))
    for _ in range(3):
        same(step(x, labels), eager.step(x, labels))
    assert COUNTS["graphs"] == 3


def test_without_memory_a_replay_changes_nothing(stand_in):
    eager, net = (
        Net(OPTIMIZERS["momentum"], stand_in),
        Net(OPTIMIZERS["momentum"], stand_in),
    )
    step = eg.function(net.step)
    (x, labels), *_ = batches(1, stand_in)
    for _ in range(3):
        step(x, labels)
        eager.step(x, labels)
    with standin.full(), pytest.raises(OutOfMemoryError, match=r"Net\.step: standin:0"):
        step(x, labels)
    same(step(x, labels), eager.step(x, labels))
    all_same(net.values(), eager.values())


def test_without_memory_it_runs_eagerly_when_asked(stand_in):
    f = eg.function(lambda x: x * 2.0, on_failure="eager")
    x = on(stand_in, [1.0])
    f(x)
    with (
        patch.object(standin.Stream, "begin_capture", side_effect=MemoryError("full")),
        pytest.warns(RuntimeWarning, match="runs eagerly: a graph on standin:0: full"),
    ):
        assert f(x).item() == 2.0
    assert f(x).item() == 2.0
    assert COUNTS["graphs"] == 0
    with standin.full(), pytest.raises(OutOfMemoryError):
        f(x)


# ---------------------------------------------------------------------- what it costs


def mlp(gpu):
    """A step of 64-128-128-10 at batch 64, with Adam."""
    rng = np.random.default_rng(0)
    layers = [
        (
            eg.Variable(0.1 * rng.normal(size=(n, m)).astype("float32"), device=gpu),
            eg.Variable(np.zeros(m, "float32"), device=gpu),
        )
        for n, m in itertools.pairwise([64, 128, 128, 10])
    ]
    x = on(gpu, rng.normal(size=(64, 64)).astype("float32"))
    labels = on(gpu, rng.integers(0, 10, 64))

    @eg.implicit_value_and_gradients
    def loss(x, labels):
        (first, a), (second, b), (last, c) = layers
        h = eg.dense(eg.dense(x, first, a, eg.relu), second, b, eg.relu)
        return eg.softmax_cross_entropy(eg.dense(h, last, c), labels, mean=True)

    adam = eg.optim.Adam()

    def step(x, labels):
        value, pairs = loss(x, labels)
        adam.apply_gradients(pairs)
        return value

    return step, x, labels


@hosted
def test_a_step_is_one_launch_and_never_waits(stand_in):
    step, x, labels = mlp(stand_in)
    captured = eg.function(step)
    captured(x, labels)
    COUNTERS.clear()
    captured(x, labels)
    assert COUNTERS.launches == 1
    COUNTERS.clear()
    before = COUNTS.copy()
    captured(x, labels)
    made = COUNTS - before
    assert (COUNTERS.launches, COUNTERS.syncs) == (1, 0)
    # The numbers that change go there, in one copy; two arguments are copied to where
    # the graph reads them, and the loss and the parameters from where it writes them.
    assert (COUNTERS.copies, made["to_device"], made["to_host"]) == (1, 1, 0)
    assert (made["graphs"], made["launches"]) == (1, 4)


@hosted
def test_a_graph_is_some_launches(stand_in):
    """Beside its products; of kernels, the layers and the loss both ways, and Adam."""
    step, x, labels = mlp(stand_in)
    captured = eg.function(step)
    captured(x, labels)
    captured(x, labels)
    program = captured.program(x, labels)
    counts = program._graph.graph.counts
    assert counts["products"] == 8
    assert program.launches >= counts["kernels"] >= 10
    assert counts["kernels"] + counts["launches"] <= 20


def test_a_replay_leaves_no_objects(gpu):
    net = Net(OPTIMIZERS["Adam"], gpu)
    step = eg.function(net.step)
    data = list(batches(3, gpu))
    for x, labels in data:
        step(x, labels)
    gc.collect()
    before = len(gc.get_objects())
    for x, labels in data * 10:
        step(x, labels)
    gc.collect()
    assert len(gc.get_objects()) - before < 10


def test_a_dropped_function_frees_its_graph(gpu):
    v = eg.Variable(np.ones(5, np.float32), device=gpu)
    f = eg.function(lambda x: x * v)
    x = on(gpu, np.ones(5, np.float32))
    f(x)
    f(x)
    program = weakref.ref(f.programs()[0])
    memory = weakref.ref(f.programs()[0]._graph.graph)
    del f
    assert (program(), memory()) == (None, None)


def test_a_recording_keeps_what_the_graph_needs_and_no_more(gpu):
    made = []

    def f(x):
        y = eg.tanh(x) @ x
        made.append(weakref.ref(y._data))
        return eg.sum(y)

    captured = eg.function(f)
    x = eg.ones((30, 30), device=gpu)
    captured(x)
    captured(x)
    assert [ref() for ref in made] == [None, None]


def test_a_graph_can_be_read(stand_in):
    v = eg.Variable([1.0, 1.0], name="weight", device=stand_in)
    last = eg.Variable([0.0, 0.0], name="last", device=stand_in)

    @eg.function
    def grow(x):
        v.assign(v + x)
        last.assign(x)
        return eg.sum(v)

    x = eg.ones((2,), device=stand_in)
    grow(x)
    with pytest.raises(CaptureError, match="no program for these arguments"):
        grow.program(x)
    grow(x)
    (program,) = grow.programs()
    assert program is grow.program(x)
    head, *lines = str(program).splitlines()
    assert "grow: a graph on standin:0, 0 launches of kernels" in head
    assert f"{program.bytes:,} bytes" in head
    assert [line.strip() for line in lines] == [
        "x0 = input  float32 (2,)",
        "v0 = variable weight  float32 (2,)",
        "v1 = variable last  float32 (2,)",
        "assign v0  float32 (2,)",
        "assign v1  float32 (2,)",
        "return float32 ()",
    ]
    assert program.bytes >= 8 + 8 + 8 + 4  # x, the place of v, its new value, the sum


# ------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_a_pool_that_is_trimmed_takes_nothing_from_a_graph():
    import cupy

    eager = Net(OPTIMIZERS["Adam"], eg.device("cuda"))
    net = Net(OPTIMIZERS["Adam"], eg.device("cuda"))
    step = eg.function(net.step)
    for x, labels in batches(6, eg.device("cuda")):
        same(step(x, labels), eager.step(x, labels))
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.full(2**22, 7.0)  # in what was given back


@pytest.mark.gpu
def test_a_pool_without_room():
    """A graph is recorded in memory beside the pool's, and replays take from that."""
    import cupy

    x = eg.ones(2**20, device="cuda")
    f = eg.function(lambda x: eg.exp(x) * 2.0)
    expected = f(x).tolist()
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes())
    try:
        with pytest.raises(OutOfMemoryError, match="bytes are in use"):
            f(x)
    finally:
        pool.set_limit(size=0)
    assert f(x).tolist() == expected


@pytest.mark.gpu
def test_replays_on_several_streams():
    import cupy

    eager = Net(OPTIMIZERS["Adam"], eg.device("cuda"))
    net = Net(OPTIMIZERS["Adam"], eg.device("cuda"))
    step = eg.function(net.step)
    for x, labels in batches(8, eg.device("cuda")):
        expected = eager.step(x, labels)
        cupy.cuda.get_current_stream().synchronize()
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            loss = step(x, labels)
            stream.synchronize()
        same(loss, expected)


# -------------------------------------------------------------- the stand-in's graphs


def test_stand_in_records_without_running(stand_in):
    x = standin.xp.asarray(np.array([1.0, 2.0]))
    stream = standin.Stream()
    with stream:
        stream.begin_capture()
        y = x + 1.0
        x *= 2.0
        y += x
        graph = stream.end_capture()
    assert x.get().tolist() == [1.0, 2.0]
    assert np.isnan(y.get()).all()
    graph.launch(standin.STREAM)
    assert (x.get().tolist(), y.get().tolist()) == ([2.0, 4.0], [4.0, 7.0])
    graph.launch(standin.STREAM)
    assert (x.get().tolist(), y.get().tolist()) == ([4.0, 8.0], [7.0, 13.0])
    assert graph.counts["launches"] == 3


def test_stand_in_refuses_what_cupy_refuses_while_it_records(stand_in):
    xp = standin.xp
    x = xp.asarray(np.array([[1.0, 2.0], [3.0, 4.0]]))
    stream = standin.Stream()
    with stream:
        stream.begin_capture()
        for refused in (
            x.get,
            x.item,
            lambda: bool(x[0, 0] > 0),
            lambda: xp.asarray(np.ones(2)),
            lambda: x.set(np.ones((2, 2)), stream),
            lambda: x[[1, 0]],
            lambda: x[x > 1],
            lambda: xp.nonzero(x),
            lambda: xp.concatenate([x] * 9),
            stream.synchronize,
        ):
            with pytest.raises(RuntimeError, match="captur"):
                refused()
        with pytest.raises(NotImplementedError, match="capture"):
            xp.linalg.inv(x)
        with (
            patch.object(standin, "PRODUCTS_ARE_RECORDED", False),
            pytest.raises(NotImplementedError, match="cuBLAS"),
        ):
            x @ x
        stream.end_capture()


def test_stand_in_memory_is_used_again(stand_in):
    """What nobody holds is spoilt, as if another had been given that memory."""
    x = standin.xp.asarray(np.array([1.0, 2.0]))
    stream = standin.Stream()
    with stream:
        stream.begin_capture()
        y = x + 0.0
        graph = stream.end_capture()
    view = x[1:]
    del x
    graph.launch(standin.STREAM)
    assert y.get().tolist() == [1.0, 2.0]
    del view
    graph.launch(standin.STREAM)
    assert np.isnan(y.get()).all()
