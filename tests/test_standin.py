"""Every op and interface on a device of another kind: the CPU's numbers, no copies."""

import copy
import itertools
import operator
import pickle
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import standin
from op_cases import ALL, SMOOTH, case_on, draw, first, second
from standin import COUNTS, Buffer

import eagergrad as eg
from eagergrad import cuda_kernels, host_kernels, primitive
from eagergrad.counters import COUNTERS
from eagergrad.device import BACKENDS, BUFFERS, NUMPY
from eagergrad.errors import DeviceError, KernelError, OutOfMemoryError


@pytest.fixture
def gpu():
    """The stand-in device."""
    with standin.installed() as device:
        yield device


def on(device, x):
    """A Tensor with the values of an array on a device."""
    return eg.tensor(x, device=device)


# SciPy's functions on a GPU are those of cupyx.scipy, which the stand-in has not.
OF_SCIPY = set(
    "beta betaln bessel_quotient digamma erf erfc erfcx erfinv gammainc gammaln "
    "i0 i0e i1 i1e log_ndtr ndtri polygamma".split()
)
RUN = [case for case in ALL if case.op.name not in OF_SCIPY]
RUN_SMOOTH = [case for case in SMOOTH if case.op.name not in OF_SCIPY]
READS = {"expm"}  # it reads a norm, to choose how often to square


def agree(got, expected, rtol=1e-13):
    """On the device, with the CPU's dtype, shape and values."""
    assert type(got._data) is Buffer
    assert got.device == "standin"
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol, rtol)


@contextmanager
def no_copies(op=None):
    """Nothing is copied between host and device inside the block."""
    before = COUNTS.copy()
    yield
    made = COUNTS - before
    if op is None or op.name not in READS:
        assert (made["to_host"], made["to_device"]) == (0, 0)


def counted(f):
    """The copies (to the host, to the device) that a call makes, and its result."""
    before = COUNTS.copy()
    result = f()
    made = COUNTS - before
    return (made["to_host"], made["to_device"]), result


# The stand-in itself


def test_stand_in_buffers_refuse_what_cupy_refuses(gpu):
    x, array = on(gpu, [1.0, 2.0])._data, np.ones(2, "f4")
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(x)
    for f in (operator.add, operator.iadd, operator.matmul, np.add, np.maximum):
        with pytest.raises(TypeError, match="Unsupported type"):
            f(x, array)
    for f in (operator.add, np.add):
        with pytest.raises(TypeError, match="Unsupported type"):
            f(array, x)
    with pytest.raises(TypeError, match="Unsupported type"):
        standin.xp.concatenate([x, array])
    with pytest.raises(BufferError):
        np.from_dlpack(x)


def test_stand_in_buffers_stay_on_the_device(gpu):
    x = on(gpu, [1.0, 2.0])._data
    with no_copies():
        results = [x + 1, 2.0 * x, x + np.array(1.0), -x, x.sum(), x[0], x[[1, 0]]]
        results += [x == x, x.T, np.exp(x), np.broadcast_to(x, (3, 2)), x[x > 1]]
        x += x
    assert [type(y) for y in results] == [Buffer] * len(results)
    assert x.get().tolist() == [2.0, 4.0]


def test_stand_in_counts_copies(gpu):
    COUNTS.clear()
    x = standin.xp.asarray(np.ones(3))
    assert (COUNTS["to_device"], COUNTS["to_host"], COUNTS["bytes"]) == (1, 0, 24)
    assert x.sum().item() == 3
    assert (COUNTS["to_device"], COUNTS["to_host"], COUNTS["bytes"]) == (1, 1, 32)
    assert COUNTS["calls"] == 1


def test_stand_in_is_gone_afterwards():
    with standin.installed() as device:
        eg.gradients_function(eg.exp)(on(device, 1.0))
        assert any(Buffer in table for table in primitive.ByBuffer.made)
    assert "standin" not in BACKENDS
    assert Buffer not in BUFFERS
    assert not any(Buffer in table for table in primitive.ByBuffer.made)
    with pytest.raises(DeviceError, match="'standin' is unknown"):
        eg.device("standin")


# Ops


@pytest.mark.parametrize("case", RUN, ids=str)
def test_values(gpu, case):
    there = case_on(case, gpu)
    arrays = [on(gpu, x) for x in case.arrays]
    with no_copies(case.op):
        y = there(*arrays)
    expected = eg.nest.flatten(case(*case.arrays))
    for got, value in zip(eg.nest.flatten(y), expected, strict=True):
        agree(got, value)


@pytest.mark.parametrize("derivative", [first, second])
@pytest.mark.parametrize("case", RUN_SMOOTH, ids=str)
def test_gradients(gpu, case, derivative):
    def run(device):
        arrays = [on(device, x) for x in case.arrays]
        sources = [arrays[i] for i in case.sources]
        there = case if device == "cpu" else case_on(case, device)
        with no_copies(case.op):
            return derivative(there, arrays, sources)

    for got, expected in zip(run(gpu), run("cpu"), strict=True):
        if expected is None:
            assert got is None
        else:
            agree(got, expected, 1e-12)


@pytest.mark.parametrize("name", ["float16", "float32"])
@pytest.mark.parametrize("case", RUN_SMOOTH, ids=str)
def test_gradients_of_short_floats(gpu, case, name):
    """Half types take other branches: they accumulate in float32 on either device."""

    def run(device):
        arrays = [on(device, x) for x in case.cast(name)]
        there = case if device == "cpu" else case_on(case, device)
        return first(there, arrays, [arrays[i] for i in case.sources])

    for got, expected in zip(run(gpu), run("cpu"), strict=True):
        agree(got, expected, 8 * np.finfo(name).eps)


INDICES = [
    np.array([2, 0, 2, 2]),
    [2, 0, 2],
    np.array(1),
    np.array([True, False, True]),
    (slice(None), np.array([1, -1])),
    (np.array([[0], [1]]), np.array([1, 1, 0])),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_index_arrays_of_numpy(gpu, index):
    x = draw((3, 2))
    f = eg.value_and_gradients_function(lambda x: x[index] * x[index])
    y, (g,) = f(on(gpu, x))
    expected, (slope,) = f(x)
    agree(y, expected)
    agree(g, slope)


@pytest.mark.parametrize("index", INDICES[:4], ids=repr)
def test_index_tensors_stay_on_the_device(gpu, index):
    x, there = draw((3, 2)), on(gpu, index)
    arguments = on(gpu, x)
    with no_copies():
        y, (g,) = eg.value_and_gradients_function(lambda x: x[there] * x[there])(
            arguments
        )
    expected, (slope,) = eg.value_and_gradients_function(lambda x: x[index] ** 2)(x)
    agree(y, expected)
    agree(g, slope)


def test_take_and_split_and_iteration(gpu):
    x = draw((3, 2))
    there = on(gpu, x)
    agree(eg.take(there, [2, 0], axis=0), eg.take(x, [2, 0], axis=0))
    agree(eg.take(there, on(gpu, [1, 1]), axis=1), eg.take(x, [1, 1], axis=1))
    for got, expected in zip(there, x, strict=True):
        agree(got, eg.tensor(expected))
    for got, expected in zip(eg.split(there, [1]), eg.split(x, [1]), strict=True):
        agree(got, expected)


# Gradient interfaces


def test_second_derivative_by_nested_tapes(gpu):
    def run(device):
        x = on(device, [0.5, -2.0, 3.0])
        with eg.GradientTape() as outer:
            outer.watch(x)
            with eg.GradientTape() as inner:
                inner.watch(x)
                y = eg.tanh(x) * x
            g = inner.gradient(y, x)
        return [g, outer.gradient(g, x)]

    for got, expected in zip(run(gpu), run("cpu"), strict=True):
        agree(got, expected)


@pytest.mark.parametrize("persistent", [False, True])
def test_jacobians(gpu, persistent):
    def run(device):
        x = on(device, draw((2, 3)))
        with eg.GradientTape(persistent) as tape:
            tape.watch(x)
            y = eg.softmax(x * x)
        if not persistent:
            return [tape.jacobian(y, x)]
        return [tape.jacobian(y, x), tape.batch_jacobian(y, x, check=True)]

    for got, expected in zip(run(gpu), run("cpu"), strict=True):
        agree(got, expected)


def test_seeds_and_unconnected_sources(gpu):
    x, z = on(gpu, [1.0, 2.0]), on(gpu, 3.0)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch([x, z])
        y = x * x
    for seed in (3.0, [3.0, 3.0], np.full(2, 3.0), on(gpu, [3.0, 3.0])):
        agree(tape.gradient(y, x, seed), eg.tensor([6.0, 12.0]))
    assert tape.gradient(y, z) is None
    agree(tape.gradient(y, z, unconnected_gradients="zero"), eg.tensor(0.0))


@eg.custom_gradient
def logexp(x):
    e = eg.exp(x)
    return eg.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))


@pytest.mark.parametrize(
    "f",
    [
        logexp,
        eg.recompute_grad(lambda x: eg.sin(x) * x),
        eg.grad_pass_through(eg.floor),
        lambda x: x * eg.stop_gradient(x),
        lambda x: (x > 0).astype("float32") * x,
    ],
    ids=["custom", "recompute", "pass_through", "stop_gradient", "cast"],
)
def test_functions_with_their_own_gradient(gpu, f):
    def slope(x):
        return eg.gradients_function(f)(x)[0]

    x = [0.5, -1.5]
    there = on(gpu, x)
    for function in (f, slope, eg.gradients_function(lambda x: 2 * slope(x) * x)):
        with no_copies():
            got = function(there)
        expected = function(eg.tensor(x))
        agree(eg.nest.flatten(got)[0], eg.nest.flatten(expected)[0])


ROWS_WITH_NAN = [[np.nan, 3.0, 1.0, 2.0], [0.5, np.nan, np.nan, 4.0]]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: eg.nanquantile(x, [0.3, 0.8], 1),
        lambda x: eg.nanpercentile(x, 40, 0, "nearest"),
        lambda x: eg.quantile(x, 0.3, 1),
        lambda x: eg.nancumsum(x, 1),
        lambda x: eg.nancumprod(x),
        lambda x: eg.nanargmax(x, 1),
        lambda x: eg.adaptive_max_pool(x[None], 3),
        lambda x: eg.adaptive_avg_pool(x[None], 3),
        lambda x: eg.avg_pool(x[None], 3, 1, 1, count_include_pad=False),
        lambda x: eg.interpolate(x[None], 5, "linear"),
        lambda x: eg.leaky_relu(x, x[0, 1]),
        lambda x: eg.elu(x, x[0, 1]),
        lambda x: eg.clip(1.0, x, 3.0),
        lambda x: eg.exp(eg.astype(x > 1, "int8")),
    ],
)
def test_functions_of_several_ops(gpu, f):
    x = eg.tensor(ROWS_WITH_NAN)
    there = on(gpu, ROWS_WITH_NAN)
    agree(f(there), f(x), 1e-6)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch([x, there])
        y, z = f(x), f(there)
    expected = tape.gradient(y, x)
    if expected is not None:
        agree(tape.gradient(z, there), expected, 1e-6)


def test_explanations_and_entries(gpu):
    x = on(gpu, [1.0, 2.0])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x.astype("int32") * 2.0
        z = x * x
    assert "cast to int32" in tape.explain(y, x)
    assert "is not None" in tape.explain(z, x)
    assert "multiply: float32 (2,)" in str(tape)


# A model


class Net:
    """A multilayer perceptron, its Variables on one device."""

    def __init__(self, device):
        rng = np.random.default_rng(0)

        def variable(*shape):
            values = 0.5 * rng.standard_normal(shape).astype("float32")
            return eg.Variable(values, device=device)

        self.variables = [variable(4, 8), variable(8), variable(8, 3), variable(3)]
        self.x = on(device, rng.standard_normal((16, 4)).astype("float32"))
        self.labels = on(device, rng.integers(0, 3, 16))

    def loss(self):
        first, bias, second, last = self.variables
        logits = eg.relu(self.x @ first + bias) @ second + last
        return eg.mean(eg.softmax_cross_entropy(logits, self.labels))


OPTIMIZERS = {
    "sgd": lambda: eg.optim.SGD(0.1),
    "momentum": lambda: eg.optim.SGD(0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda: eg.optim.Adam(0.01),
    "adamw": lambda: eg.optim.AdamW(0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_steps(gpu, name):
    here, there = Net("cpu"), Net(gpu)
    for net in (here, there):
        step, optimizer = eg.implicit_value_and_gradients(net.loss), OPTIMIZERS[name]()
        with no_copies():
            for _ in range(5):
                loss, pairs = step()
                optimizer.apply_gradients(pairs)
        net.result = [loss, *(g for g, _ in pairs), *net.variables]
    for got, expected in zip(there.result, here.result, strict=True):
        agree(got, expected, 1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: eg.optim.SGD(0.5, weight_decay=0.3),
        lambda: eg.optim.SGD(0.5, 0.9, weight_decay=0.3),
        lambda: eg.optim.AdamW(0.5, weight_decay=0.3),
    ],
)
def test_updates_of_half_types_are_computed_in_float32(gpu, make):
    """Without kernels too, the decay included: bit by bit as on the CPU."""
    values = draw((400,)).astype("float16")

    def missing(arch):
        raise KernelError("no code")

    found = []
    with patch.object(cuda_kernels, "cubin", missing):
        for device in (gpu, "cpu"):
            w, optimizer = eg.Variable(values, device=device), make()
            with eg.device(device), patch.object(NUMPY, "fused", False):
                for k in range(5):
                    optimizer.apply_gradients([(w * (0.1 * k), w)])
            found.append(w.tolist())
    assert found[0] == found[1]


def test_a_step_with_some_gradients_missing(gpu):
    w, v = eg.Variable([1.0, 2.0], device=gpu), eg.Variable(3.0, device=gpu)
    adam = eg.optim.Adam(0.5)
    g = on(gpu, [1.0, 1.0])
    with no_copies():
        adam.apply_gradients([(g, w), (None, v)])
        adam.apply_gradients([(g, w), (g[0], v)])
        adam.apply_gradients([(g[1], v), (g, w)])
    np.testing.assert_allclose(w.numpy(), [-0.5, 0.5], 1e-5)
    np.testing.assert_allclose(v.numpy(), 2.0, 1e-5)


def test_variables_on_the_device(gpu):
    w = eg.Variable([1.0, 2.0], name="w", device=gpu)
    assert w.device == gpu
    with no_copies():
        w.assign(w * 2)
        w.assign_add(w)
        w.assign_sub(w.read_value())
    agree(w, eg.tensor([0.0, 0.0]))
    made, _ = counted(lambda: w.assign([3.0, 4.0]))
    assert made == (0, 1)
    w.assign_add(1.0)
    w.assign_sub(np.ones(2))
    agree(w, eg.tensor([3.0, 4.0]))


# What it costs: launches, allocations, copies, and how often the host waits

hosted = pytest.mark.skipif(
    host_kernels.compiler() is None, reason="kernels are not compiled here"
)


def launches(f):
    """The launches of a call: of kernels, and of CuPy's functions beside products."""
    COUNTERS.clear()
    before = COUNTS.copy()
    f()
    return COUNTERS.launches, (COUNTS - before)["launches"]


@hosted
def test_softplus_is_one_launch_each_way(gpu):
    x, g = on(gpu, draw((3, 4))), on(gpu, draw((3, 4)))
    with eg.GradientTape() as tape:
        tape.watch(x)
        assert launches(lambda: eg.softplus(x)) == (1, 0)
        y = eg.softplus(x)
    assert launches(lambda: tape.gradient(y, x, g)) == (1, 0)


@hosted
def test_softmax_cross_entropy_is_one_launch_each_way(gpu):
    x, labels = on(gpu, draw((3, 4))), on(gpu, np.array([0, 3, 1]))
    g = on(gpu, draw((3,)))
    losses = []
    with eg.GradientTape() as tape:
        tape.watch(x)
        made = launches(lambda: losses.append(eg.softmax_cross_entropy(x, labels)))
    assert made == (1, 0)
    assert launches(lambda: tape.gradient(losses[0], x, g)) == (1, 0)


@hosted
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_of_all_variables_is_one_launch(gpu, name):
    net, optimizer = Net(gpu), OPTIMIZERS[name]()
    pairs = [(w * 0.5, w) for w in net.variables]
    optimizer.apply_gradients(pairs)
    collected = len(pairs)  # CuPy lays the gradients side by side
    assert launches(lambda: optimizer.apply_gradients(pairs)) == (1, collected)


@hosted
def test_a_training_step_is_some_launches_and_never_waits(gpu):
    """64-128-128-10, a batch of 64.  Products of matrices are counted by themselves."""
    rng = np.random.default_rng(0)
    sizes = [64, 128, 128, 10]
    layers = [
        (
            eg.Variable(0.1 * rng.normal(size=(n, m)).astype("float32"), device=gpu),
            eg.Variable(np.zeros(m, "float32"), device=gpu),
        )
        for n, m in itertools.pairwise(sizes)
    ]
    x = on(gpu, rng.normal(size=(64, 64)).astype("float32"))
    labels = on(gpu, rng.integers(0, 10, 64))

    @eg.implicit_value_and_gradients
    def loss():
        (first, a), (second, b), (last, c) = layers
        h = eg.relu(eg.relu(x @ first + a) @ second + b)
        return eg.mean(eg.softmax_cross_entropy(h @ last + c, labels))

    adam = eg.optim.Adam()

    def step():
        _, pairs = loss()
        adam.apply_gradients(pairs)

    step()
    before = COUNTS["products"]
    kernels, others = launches(step)
    assert COUNTS["products"] - before == 8
    kernels -= 8
    assert kernels >= 5  # two gates of relu, the loss both ways, Adam
    assert kernels + others <= 25
    assert (COUNTERS.copies, COUNTERS.syncs) == (0, 0)


IDS = np.array([[2, 0], [2, 1]])
# Ops with the kernels, by name, that they and their gradients must come to.
SERVED = {
    "softmax softmax_vjp": (eg.softmax, [(3, 7)]),
    "layer_norm layer_norm_vjp": (eg.layer_norm, [(3, 2, 7), (7,), (7,)]),
    "layer_norm layer_norm_vjp layer_norm_vjp_sums": (
        lambda x: eg.layer_norm(x),
        [(20, 200)],
    ),
    "batch_norm batch_norm_vjp": (
        lambda x, gamma: eg.batch_norm(x, gamma),
        [(5, 3, 4), (3,)],
    ),
    "column_sum": (lambda x, b: x * 2 + b, [(5, 4), (4,)]),
    "max_pool pool_scatter": (lambda x: eg.max_pool(x, 2), [(2, 3, 4, 5)]),
    "avg_pool avg_spread": (lambda x: eg.avg_pool(x, 3, 1, 1), [(2, 3, 4, 5)]),
    "unfold fold": (lambda x, w: eg.conv(x, w, 2, 1), [(2, 4, 5, 7), (6, 4, 3, 3)]),
    "scatter_add": (
        lambda x: eg.embedding(x, IDS if x.device == "cpu" else on(x.device, IDS)),
        [(3, 4)],
    ),
    "two_norm": (lambda x: eg.global_norm([x]), [(3, 4)]),
    "dropout": (
        lambda x: eg.dropout(x, 0.5, generator=eg.random.Generator(3)),
        [(9, 5)],
    ),
    "silu silu_dx": (eg.silu, [(3, 4)]),
}


@hosted
@pytest.mark.parametrize("layout", ["contiguous", "a part"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kernels", SERVED)
def test_kernels_serve_every_dtype(gpu, kernels, dtype, layout):
    """Against the CPU in float64, on arrays with gaps too."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    f, shapes = SERVED[kernels]

    def run(device, dtype, arrays):
        xs = [eg.tensor(x, device=device).astype(dtype) for x in arrays]
        if layout == "a part":
            xs = [eg.concatenate([x, x], -1)[..., : x.shape[-1]] for x in xs]
        with eg.GradientTape() as tape:
            tape.watch(xs)
            y = f(*xs)
        return [y, *tape.gradient(y, xs, y)]

    arrays = [draw(shape).astype(dtype).astype("float64") for shape in shapes]
    standin.KERNELS.clear()
    got = run(gpu, dtype, arrays)
    launched = {symbol.rpartition("_")[0] for symbol in standin.KERNELS}
    assert launched >= set(kernels.split())
    for y, z in zip(got, run("cpu", "float64", arrays), strict=True):
        assert (y.device, y.dtype, y.shape) == (gpu, dtype, z.shape)
        eps = {"float16": 2**-10, "bfloat16": 2**-7}.get(dtype) or np.finfo(dtype).eps
        scale = max(1, abs(z.numpy()).max())
        np.testing.assert_allclose(
            y.numpy().astype(float), z.numpy(), 0, 16 * eps * scale
        )


CONVOLUTIONS = {  # input, filter, stride, padding, dilation, groups
    "one axis": ((3, 4, 9), (6, 2, 3), 2, [(2, 0)], 2, 2),
    "two axes": ((2, 3, 8, 7), (4, 3, 3, 2), (1, 2), "same", (2, 1), 1),
    "three axes": ((2, 4, 5, 4, 6), (4, 2, 2, 3, 2), (2, 1, 3), 1, (1, 1, 2), 2),
    "each channel apart": ((2, 3, 6, 5), (6, 1, 3, 3), 1, 1, 1, 3),
    "more zeros than elements": ((2, 2, 1, 2), (3, 2, 3, 3), 1, 3, 1, 1),
}


@hosted
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_unfold(gpu, name, dtype):
    """Values, gradients and their gradients, against the CPU in float64."""
    shape, filters, *options = CONVOLUTIONS[name]

    def f(x, w):
        return eg.conv(x, w, *options)

    def second(x, w):
        return eg.gradients_function(lambda x, w: eg.sum(f(x, w) ** 2))(x, w)

    arrays = [draw(size).astype(dtype) for size in (shape, filters)]
    there = [on(gpu, x) for x in arrays]
    here = [eg.tensor(x.astype("float64")) for x in arrays]
    eps = 16 * float(np.finfo(dtype).eps)
    standin.KERNELS.clear()
    got = f(*there)
    unfolds = {k: n for k, n in standin.KERNELS.items() if k.startswith("unfold_")}
    assert list(unfolds.values()) == [1]
    pairs = [(got, f(*here)), *zip(second(*there), second(*here), strict=True)]
    for y, z in pairs:
        assert (y.device, y.dtype, y.shape) == (gpu, dtype, z.shape)
        expected = z.numpy()
        np.testing.assert_allclose(
            y.numpy().astype(float), expected, 0, eps * max(1, abs(expected).max())
        )


@pytest.mark.parametrize("shape", [(0, 2, 5), (2, 2, 0)])
def test_convolutions_of_nothing(gpu, shape):
    w = draw((3, 2, 2))
    y = eg.conv(on(gpu, np.ones(shape)), on(gpu, w), 1, 2)
    assert y.shape == (shape[0], 3, shape[2] + 3)
    assert not y.numpy().any()


def test_convolutions_of_four_axes_see_through_strides(gpu):
    x, w = draw((1, 2, 3, 3, 2, 2)), draw((2, 2, 2, 2, 2, 2))
    agree(eg.conv(on(gpu, x), on(gpu, w), 1, 1), eg.conv(x, w, 1, 1), 1e-12)


@hosted
def test_counters(gpu):
    COUNTERS.clear()
    x = on(gpu, draw((3, 4)))
    assert repr(COUNTERS) == (
        "Counters(launches=0, allocations=0, copies=1, syncs=0, bytes=96)"
    )
    y = eg.softplus(x)
    assert (COUNTERS.launches, COUNTERS.allocations) == (1, 1)
    y.numpy()
    assert (COUNTERS.copies, COUNTERS.syncs, COUNTERS.bytes) == (2, 1, 192)
    float(y[0, 0])
    assert (COUNTERS.copies, COUNTERS.syncs, COUNTERS.bytes) == (3, 2, 200)


def test_without_kernels_ops_are_composed(gpu):
    asked = []

    def missing(arch):
        asked.append(arch)
        raise KernelError("no code")

    x, here = on(gpu, [0.5, -1.0]), eg.tensor([0.5, -1.0])
    with patch.object(cuda_kernels, "cubin", missing):
        for f in (eg.softplus, eg.softmax, eg.gradients_function(eg.silu)):
            (got,), (expected,) = eg.nest.flatten(f(x)), eg.nest.flatten(f(here))
            agree(got, expected, 1e-6)
    assert (COUNTERS.launches, COUNTERS.allocations) == (0, 0)
    assert asked == [90]  # to compile and fail takes a while


@hosted
def test_what_no_kernel_serves_is_composed(gpu):
    x = draw((2, 3, 4))
    there = on(gpu, x)
    for f in (
        lambda x: eg.softmax(x, 1),
        lambda x: eg.softplus(x.transpose((2, 0, 1))[:, ::-1]),
        lambda x: eg.sigmoid((x * 10).astype("int32")),
    ):
        assert launches(lambda f=f: agree(f(there), f(eg.tensor(x)), 1e-6))[0] == 0


@pytest.mark.parametrize("op", ["softplus", "multiply", "concatenate"])
def test_out_of_memory_is_told_once_and_passes(gpu, op):
    x = on(gpu, [1.0, 2.0])
    f = {
        "softplus": lambda: eg.softplus(x),
        "multiply": lambda: x * x,
        "concatenate": lambda: eg.concatenate([x, x]),
    }[op]
    with standin.full(), pytest.raises(OutOfMemoryError) as caught:
        f()
    message = str(caught.value)
    assert message.startswith(f"{op}: ")
    assert message.count("(2,) float32") == (1 if op == "softplus" else 2)
    assert message.endswith(
        "standin:0 has no room for 4,096 bytes more; 1,000 bytes are in use"
    )
    assert isinstance(caught.value, MemoryError)
    assert f().device == gpu


@pytest.mark.parametrize("op", ["softplus", "multiply"])
def test_out_of_memory_on_the_way_back(gpu, op):
    x = on(gpu, [1.0, 2.0])
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = eg.softplus(x) if op == "softplus" else x * x
    with standin.full(), pytest.raises(OutOfMemoryError, match=f"gradient of {op}: .*"):
        tape.gradient(y, x, x)
    assert tape.gradient(y, x, x).device == gpu


# Making tensors, random numbers

MAKERS = {
    "tensor": lambda **d: eg.tensor([[1.5, 2.0]], **d),
    "tensor int": lambda **d: eg.tensor([1, 2], **d),
    "tensor dtype": lambda **d: eg.tensor([1, 2], dtype="float16", **d),
    "asarray": lambda **d: eg.asarray(np.arange(3.0), **d),
    "zeros": lambda **d: eg.zeros((2, 3), **d),
    "ones": lambda **d: eg.ones(4, dtype="int32", **d),
    "full": lambda **d: eg.full((2, 2), 7, **d),
    "full row": lambda **d: eg.full((2, 3), [1.0, 2.0, 3.0], **d),
    "arange": lambda **d: eg.arange(2, 11, 3, **d),
    "eye": lambda **d: eg.eye(3, 4, 1, **d),
    "Variable": lambda **d: eg.Variable([1.0], **d),
    "uniform": lambda **d: eg.random.uniform(size=(3, 5), **d),
    "uniform line": lambda **d: eg.random.uniform(-1, 3, 7, **d),
    "uniform 16": lambda **d: eg.random.uniform(size=5, dtype="float16", **d),
    "uniform 64": lambda **d: eg.random.uniform(size=5, dtype="float64", **d),
    "uniform one": lambda **d: eg.random.uniform(**d),
    "normal": lambda **d: eg.random.normal(2.0, 3.0, (4, 3), **d),
    "normal 64": lambda **d: eg.random.normal(size=7, dtype="float64", **d),
    "permutation": lambda **d: eg.random.permutation(9, **d),
}


@pytest.mark.parametrize("name", MAKERS)
def test_made_on_the_device_with_the_numbers_of_the_cpu(gpu, name):
    make = MAKERS[name]
    eg.random.seed(3)
    expected = make(device="cpu")
    eg.random.seed(3)
    named = make(device=gpu)
    eg.random.seed(3)
    with gpu:
        entered = make()
    for got in (named, entered):  # log and sin of a normal are not the CPU's
        agree(got, expected, 4e-16 if name.startswith("normal") else 0.0)
    assert make(device="cpu").device == "cpu"


@pytest.mark.parametrize("name", ["uniform", "normal", "permutation"])
def test_random_numbers_are_drawn_on_the_device(gpu, name):
    with no_copies():
        MAKERS[name](device=gpu)


def test_shuffled_rows(gpu):
    x = draw((5, 2))
    eg.random.seed(4)
    expected = eg.random.permutation(x)
    eg.random.seed(4)
    agree(eg.random.permutation(on(gpu, x)), expected, 0.0)


def test_alike(gpu):
    x = on(gpu, [[1, 2]])
    agree(eg.zeros_like(x), eg.tensor([[0, 0]]))
    agree(eg.ones_like(x, "float32"), eg.tensor([[1.0, 1.0]]))
    agree(eg.full_like(x, 7), eg.tensor([[7, 7]]))
    agree(eg.tensor([x[0], x[0]]), eg.tensor([[1, 2], [1, 2]]))
    agree(eg.convert_to_tensor([x[0], x[0]]), eg.tensor([[1, 2], [1, 2]]))


def test_default_device(gpu):
    with eg.device("standin") as device:
        assert device == gpu
        x = eg.tensor([1.0, 2.0])
        (g,) = eg.gradients_function(lambda x: x * x * x)([1.0, 2.0])
        w = eg.Variable(1.0)
        with eg.device("cpu"):
            assert eg.zeros(1).device == "cpu"
        assert eg.zeros(1).device == "standin"
        agree(x + np.array(1.0), eg.tensor([2.0, 3.0]).astype("float64"))
    agree(g, eg.tensor([3.0, 12.0]))
    agree(w, eg.tensor(1.0))
    assert eg.tensor(1.0, device="cpu").device == "cpu"


def test_default_device_is_left_by_an_exception(gpu):
    before = eg.zeros(1).device
    with pytest.raises(KeyError), gpu:
        raise KeyError
    assert eg.zeros(1).device == before


# Copies


@pytest.mark.parametrize(
    ("use", "copies"),
    [
        (lambda x: x.numpy(), (1, 0)),
        (lambda x: x[0, 0].item(), (1, 0)),
        (lambda x: x.tolist(), (1, 0)),
        (lambda x: float(x[0, 0]), (1, 0)),
        (lambda x: bool(x[0, 0] > 0), (1, 0)),
        (repr, (1, 0)),
        (lambda x: f"{x[0, 0]:.2f}", (1, 0)),
        (lambda x: x.to("cpu"), (1, 0)),
        (lambda x: x.to("standin"), (0, 0)),
        (lambda x: x.to("cpu").to("standin"), (1, 1)),
        (lambda x: eg.tensor(x, device="cpu"), (1, 0)),
        (lambda x: eg.tensor(np.ones(3), device="standin"), (0, 1)),
        (lambda x: eg.tensor(x), (0, 0)),
        (lambda x: eg.asarray(x), (0, 0)),
        (lambda x: eg.Variable(x), (0, 0)),
        (copy.deepcopy, (0, 0)),
        (lambda x: x + 1, (0, 0)),
        (lambda x: x.device, (0, 0)),
        (pickle.dumps, (1, 0)),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_copies_are_made_where_asked_for_and_once(gpu, use, copies):
    x = on(gpu, draw((2, 3)))
    assert counted(lambda: use(x))[0] == copies


def test_values_come_back_as_they_were(gpu):
    x = draw((2, 3))
    there = on(gpu, x)
    assert there.numpy().tolist() == there.tolist() == x.tolist()
    assert there.to("cpu").device == "cpu"
    assert type(there.to("cpu")._data) is np.ndarray
    agree(there.to("cpu").to(gpu), eg.tensor(x))
    assert "device='standin" in repr(there)
    assert eg.sum(there).item() == pytest.approx(x.sum())
    again = pickle.loads(pickle.dumps(there))
    agree(again, eg.tensor(x))


def test_what_numpy_returns_is_a_copy_of_the_callers_own(gpu):
    x = on(gpu, [1.0, 2.0])
    x.numpy()[0] = 5
    given = np.ones(2)
    y = eg.asarray(given, device=gpu)
    given[0] = 5
    assert x.tolist() == [1.0, 2.0]
    assert y.tolist() == [1.0, 1.0]


def test_gradient_comes_back_to_the_device_of_the_source(gpu):
    for origin, target in ((gpu, "cpu"), ("cpu", gpu)):
        x = on(origin, [1.0, 2.0])
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = x.to(target) ** 3
        g = tape.gradient(y, x)
        assert y.device == target
        assert g.device == origin
        assert g.tolist() == [3.0, 12.0]


def test_second_derivative_across_devices(gpu):
    x = on(gpu, [1.0, 2.0])
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = x.to("cpu") ** 3
        g = inner.gradient(y, x)
    agree(outer.gradient(g, x), eg.tensor([6.0, 12.0]))


@pytest.mark.parametrize("device", ["standin", "cpu"])
def test_save_and_load(gpu, tmp_path, device):
    tree = {"w": eg.Variable([1.0, 2.0], device=gpu), "n": [on(gpu, 3), 4]}
    made, _ = counted(lambda: eg.save(tmp_path / "file", tree))
    assert made == (2, 0)
    loaded = eg.load(tmp_path / "file", device=device)
    assert loaded["w"].device == loaded["n"][0].device == device
    assert loaded["w"].tolist() == [1.0, 2.0]
    assert loaded["n"][0].item() == 3
    with eg.device(device):
        assert eg.load(tmp_path / "file")["w"].device == device


# Mixing


def mixes(f):
    """The call raises a DeviceError that names both devices and says what to do."""
    with pytest.raises(DeviceError) as caught:
        f()
    message = str(caught.value)
    assert "cpu" in message.lower()
    assert "standin" in message
    assert ".to" in message or "device=" in message
    return message


MIXTURES = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "power": lambda x, y: x**y,
    "maximum": eg.maximum,
    "less": lambda x, y: x < y,
    "matmul": lambda x, y: x @ y,
    "where": lambda x, y: eg.where(x > 0, x, y),
    "where condition": lambda x, y: eg.where(x > 0, y, y),
    "clip": lambda x, y: eg.clip(x, y, 3.0),
    "concatenate": lambda x, y: eg.concatenate([x, y]),
    "stack": lambda x, y: eg.stack([x, y]),
    "tensor": lambda x, y: eg.tensor([x, y]),
    "assign": lambda x, y: eg.Variable(x).assign(y),
    "assign_add": lambda x, y: eg.Variable(x).assign_add(y),
    "assign_sub": lambda x, y: eg.Variable(x).assign_sub(y),
    "apply_gradients": lambda x, y: eg.optim.SGD(1.0).apply_gradients(
        [(x, eg.Variable(y))]
    ),
    "softmax_cross_entropy": lambda x, y: eg.softmax_cross_entropy(
        x.reshape((1, 2)), y[:1].astype("int64")
    ),
    "softmax_cross_entropy, probabilities": eg.softmax_cross_entropy,
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", MIXTURES)
def test_mixing_devices(gpu, name, swapped):
    pair = [on(gpu, [1.0, 2.0]), on("cpu", [1.0, 1.0])]
    if swapped:
        pair.reverse()
    message = mixes(lambda: MIXTURES[name](*pair))
    op = name.split()[0].strip(",")
    if op == "where" or (op in primitive.OPS and op != "less"):
        assert op in message


def test_mixing_devices_in_seeds(gpu):
    x = on(gpu, [1.0, 2.0])
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
    mixes(lambda: tape.gradient(y, x, on("cpu", [1.0, 1.0])))
    agree(tape.gradient(y, x), eg.tensor([2.0, 4.0]))


def test_mixing_devices_in_an_index(gpu):
    x = on("cpu", [1.0, 2.0])
    mixes(lambda: x[on(gpu, [0, 1])])


def test_mixing_devices_in_a_gradient_function(gpu):
    f = eg.custom_gradient(lambda x: (x * 1.0, lambda dy: on("cpu", [1.0, 1.0])))
    mixes(lambda: eg.gradients_function(f)(on(gpu, [1.0, 2.0])))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, array: x + array,
        lambda x, array: array + x,
        lambda x, array: x * array.tolist(),
        lambda x, array: x @ array,
        lambda x, array: array @ x,
        lambda x, array: np.maximum(array, x),
        lambda x, array: eg.where(x > 0, x, array),
        lambda x, array: eg.where(array > 0, x, x),
        lambda x, array: eg.concatenate([x, array]),
        lambda x, array: eg.stack([array, x]),
        lambda x, array: eg.softmax_cross_entropy(x, array),
        lambda x, array: eg.softmax_cross_entropy(x.reshape((2, 1)), np.zeros(2, int)),
    ],
)
def test_numpy_arrays_beside_a_device_tensor(gpu, f):
    mixes(lambda: f(on(gpu, [1.0, 2.0]), np.ones(2, "float32")))


@pytest.mark.parametrize("number", [2, 2.0, True, np.float32(2), np.array(2.0, "f4")])
def test_numbers_beside_a_device_tensor(gpu, number):
    x, here = on(gpu, [1.0, 2.0]), eg.tensor([1.0, 2.0])
    for f in (
        lambda x: x + number,
        lambda x: number * x,
        lambda x: x**number,
        lambda x: eg.maximum(x, number),
        lambda x: eg.where(x > 1, x, number),
        lambda x: eg.clip(x, 0, number),
        lambda x: x > number,
        lambda x: eg.gradients_function(lambda x: x * number / (x + number))(x)[0],
    ):
        agree(f(x), f(here), 1e-6)


def test_numpy_does_not_take_a_device_tensor_in(gpu):
    x = on(gpu, [1.0, 2.0])
    for convert in (np.asarray, np.array, lambda x: np.asarray(x, "f8")):
        with pytest.raises(TypeError, match=r"standin.*\.numpy\(\)"):
            convert(x)
    agree(np.exp(x), eg.exp([1.0, 2.0]), 1e-6)
    agree(np.sum(x), eg.tensor(3.0))


def test_exporting_is_refused(gpu):
    with pytest.raises(BufferError):
        on(gpu, 1.0).__dlpack__()


def test_after_an_error_the_tape_goes_on(gpu):
    x = on(gpu, [1.0, 2.0])
    w = eg.Variable([1.0, 1.0], device=gpu)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x * x * w
        mixes(lambda: y + on("cpu", [1.0, 1.0]))
        mixes(lambda: w.assign(on("cpu", [1.0, 1.0])))
        z = y * 2
    grads = tape.gradient(z, [x, w])
    agree(grads[0], eg.tensor([4.0, 8.0]))
    agree(grads[1], eg.tensor([2.0, 8.0]))
    agree(w, eg.tensor([1.0, 1.0]))


def test_nan_check(gpu):
    x = on(gpu, [-1.0, 1.0])
    with eg.debug(), pytest.raises(eg.errors.NaNError, match="log made nan"):
        eg.log(x)
    agree(eg.sqrt(x * x), eg.tensor([1.0, 1.0]))
