"""Kernels: printed from the rules, compiled for this CPU, equal to the composed ops."""

import importlib.util
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from op_cases import ALL

import eagergrad as eg
from eagergrad import host_kernels, kernels
from eagergrad.device import NUMPY
from eagergrad.errors import KernelError
from eagergrad.kernels import Kernel
from eagergrad.ops import philox
from eagergrad.ops.pooling import Window
from eagergrad.primitive import OPS, Sloped, forget, lowered

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "kernels" / "print_formulas.py"
PRINTED = [k for k in kernels.catalogue().values() if k.vectorised and k.text]
HOSTED = [k for k in PRINTED if not k.hosted]
SLOPED = [k for k in PRINTED if k.outputs == 2]
STAGED = [k for k in PRINTED if "STAGES" in k.text]
FUSED = [case for case in ALL if case.op.fused or case.op.fused_rule]

POINTS = np.array(
    [0, 1e-30, 1e-3, 0.3, 0.5, 1, 1.5, 2, 3, 5, 20, 90, 1000, 1e30, np.inf, np.nan]
)

# In eps.  At x = -20 the rounding of x^2 / 2 alone is 200 of them in exp(-x^2 / 2).
LOOSE = {"ndtr": 400, "gelu": 400}

hosted = pytest.mark.skipif(
    host_kernels.compiler() is None, reason="no C++ compiler here"
)


def test_formulas_are_as_the_rules_say():
    spec = importlib.util.spec_from_file_location("print_formulas", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / "kernels" / "formulas.h").read_text() == script.text(), (
        "formulas.h is older than the rules: python kernels/print_formulas.py"
    )


# ------------------------------------------------------------------- the same values


def composed(name):
    """What a kernel stands for, made of NumPy's functions."""
    if name in OPS:
        return OPS[name].bare(NUMPY.composed)
    op, _, argument = name.rpartition("_d")
    i = OPS[op].arrays.index(argument)
    return lowered(OPS[op].rules[i], NUMPY.composed)


def operands(count, dtype):
    """All combinations of the points for two, and random pairs of them for more."""
    points = np.concatenate([POINTS, -POINTS]).astype(dtype)
    if count == 1:
        return [points]
    if count == 2:
        return [x.ravel() for x in np.meshgrid(points, points)]
    return list(np.random.default_rng(0).choice(points, (count, 4000)))


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("kernel", HOSTED, ids=lambda kernel: kernel.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernel_equals_the_composed_op(kernel, dtype):
    arrays = operands(kernel.inputs, dtype)
    got = host_kernels.find(kernel.name)(*arrays)
    assert got.dtype == dtype
    # What a half type rounds at each step, a kernel rounds once.
    wide = [x.astype("float32") for x in arrays] if dtype == "float16" else arrays
    expected = composed(kernel.name)(*wide).astype(dtype)
    eps, tiny = np.finfo(dtype).eps, float(np.finfo(dtype).tiny)
    close = LOOSE.get(kernel.name, 64)
    np.testing.assert_allclose(got, expected, rtol=close * eps, atol=8 * tiny)


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", SLOPED, ids=lambda kernel: kernel.name)
def test_value_and_slope_have_the_bits_that_they_have_apart(kernel, dtype):
    name = kernel.name.removesuffix("_with_slope")
    (x,) = operands(1, dtype)
    x = np.concatenate([x, np.random.default_rng(0).normal(size=4000).astype(dtype)])
    g = np.linspace(-2, 2, x.size).astype(dtype)
    value, slope = host_kernels.find(kernel.name)(x)
    read = value if OPS[name].reads[0] == ("y",) else x
    expected = host_kernels.find(f"{name}_dx")(g, read)
    np.testing.assert_array_equal(value, host_kernels.find(name)(x), strict=True)
    got = host_kernels.find("times_slope")(g, slope)
    np.testing.assert_array_equal(got, expected, strict=True)


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("kernel", STAGED, ids=lambda kernel: kernel.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_stages_give_the_bits_of_one_loop(kernel, dtype):
    draw = np.random.default_rng(0)
    points = np.concatenate([POINTS, -POINTS, draw.normal(0, 5, 2000)]).astype(dtype)
    arrays = [draw.permutation(points) for _ in range(kernel.inputs)]
    call = host_kernels.find(kernel.name)
    pieces = [call(*[x[i : i + 100] for x in arrays]) for i in range(0, 2032, 100)]
    expected = np.concatenate(pieces, axis=-1)
    np.testing.assert_array_equal(call(*arrays), expected, strict=True)
    apart = [np.repeat(x, 2)[::2] for x in arrays]
    np.testing.assert_array_equal(call(*apart), expected, strict=True)
    one = [arrays[0], *[x[3] for x in arrays[1:]]]
    whole = [np.broadcast_to(x, points.shape).copy() for x in one]
    np.testing.assert_array_equal(call(*one), call(*whole), strict=True)


@hosted
@pytest.mark.parametrize("kernel", SLOPED, ids=lambda kernel: kernel.name)
def test_an_op_recorded_with_its_slope_has_all_derivatives(kernel):
    op = OPS[kernel.name.removesuffix("_with_slope")]
    x = eg.tensor(np.random.default_rng(0).normal(size=(2, Sloped.LEAST)))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = op.entry(x)
    assert y._node.op is op.slope.op
    assert y._node.op is not op
    with eg.GradientTape() as outer:  # a tape that was not there when it was recorded
        outer.watch(x)
        first = tape.gradient(y, x)
    second = outer.gradient(first, x)
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = op.entry(x)
        assert y._node.op is op
        expected = tape.gradient(y, x)
    np.testing.assert_array_equal(first.numpy(), expected.numpy())
    np.testing.assert_array_equal(second.numpy(), outer.gradient(expected, x).numpy())


def value_and_gradients(case, arrays):
    xs = [eg.tensor(x) for x in arrays]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = case(*xs)
    g = np.linspace(-1, 2, y.size).reshape(y.shape).astype(y.dtype)
    return [y, *tape.gradient(y, xs, output_gradients=eg.tensor(g))]


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("case", FUSED, ids=str)
def test_fused_op_equals_the_composed_one(case, dtype, monkeypatch):
    arrays = case.cast(dtype)
    for grown in (1, 40):  # the larger ones overflow where the form is wrong
        given = [x * grown if x.dtype.kind == "f" else x for x in arrays]
        got = value_and_gradients(case, given)
        with monkeypatch.context() as patch:
            patch.setattr(NUMPY, "fused", False)
            forget()
            expected = value_and_gradients(case, given)
        forget()
        for y, z in zip(got, expected, strict=True):
            assert y.dtype == z.dtype == dtype
            eps = np.finfo(dtype).eps
            scale = max(1, abs(z.numpy()).max(initial=0))
            error = abs(y.numpy().astype("f8") - z.numpy()).max(initial=0)
            assert error <= 8 * eps * scale


def test_every_kernel_of_rows_or_arrays_belongs_to_an_op():
    used = {name for case in FUSED for name in case.op.kernels}
    used |= {"uniform", "normal", "unfold", "fold", "non_finite", "loss_scale"}
    written = [k.name for k in kernels.catalogue().values() if k.form != "elementwise"]
    assert {name.removesuffix("_vjp") for name in written} == used


def both(name, *args):
    """What the kernels of an op make, and what the composed one does."""
    op = OPS[name]
    kernel = partial(op.fused, *map(host_kernels.find, op.kernels))
    found = kernel(*args)
    assert found is not NotImplemented
    return found, op.bare(NUMPY.composed)(*args)


def assert_equal(found, expected, eps=8):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    eps *= np.finfo(found.dtype).eps
    found, expected = found.astype("float64"), expected.astype("float64")
    scale = abs(expected).max(initial=0)
    np.testing.assert_allclose(found, expected, eps, eps * scale)


CONVOLUTIONS = [  # input, filter, stride, dilation, groups
    ((3, 4, 9), (8, 4, 3), (1,), (1,), 1),
    ((2, 1, 40), (8, 1, 3), (1,), (1,), 1),
    ((2, 4, 17), (18, 2, 2), (3,), (2,), 2),
    ((2, 16, 12, 11), (40, 16, 3, 3), (1, 1), (1, 1), 1),  # lines joined
    ((2, 3, 12, 40), (8, 3, 5, 7), (1, 1), (2, 3), 1),
    ((2, 3, 9, 5), (8, 3, 3, 5), (1, 1), (1, 1), 1),  # not, being too short
    ((2, 6, 10, 9), (27, 2, 3, 2), (2, 3), (1, 2), 3),
    ((2, 8, 7, 7), (8, 1, 3, 3), (1, 1), (1, 1), 8),
    ((19, 2, 5, 6, 7), (9, 2, 2, 3, 2), (1, 1, 1), (1, 1, 1), 1),
    ((1, 2, 6, 6, 7), (4, 1, 2, 2, 2), (2, 1, 2), (1, 2, 1), 2),
]


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("padded", [False, True], ids=["bare", "padded"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution_equals_the_composed_one(case, padded, dtype):
    shape, filters, stride, dilation, groups = case
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(dtype) for s in (shape, filters))
    zeros = ((1, 2), (0, 1), (2, 0)) if padded else ((0, 0),) * 3
    pads = zeros[: len(stride)]
    rest = stride, dilation, groups, pads
    y, expected = both("conv", x, w, *rest)
    assert_equal(y, expected)
    assert_equal(*both("conv_input", y, w, shape[2:], *rest))
    if filters[0] // groups >= 8:  # else it stays composed
        assert_equal(*both("conv_filter", x, y, filters[2:], *rest))
    moved = np.asfortranarray(x)  # as it does not lie
    assert both("conv", moved, w, *rest)[0].tobytes() == y.tobytes()


@hosted
def test_convolution_amid_many_zeros():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 8, 3, 3)), rng.normal(size=(8, 8, 2, 2))
    rest = (1, 1), (1, 1), 1, ((4, 4), (4, 4))
    y, expected = both("conv", x, w, *rest)
    assert_equal(y, expected)
    assert_equal(*both("conv_input", y, w, (3, 3), *rest))
    assert_equal(*both("conv_filter", x, y, (2, 2), *rest))


@hosted
def test_what_is_not_finite_reaches_no_further_than_where_it_belongs():
    x, w = np.ones((1, 2, 6, 8), "float32"), np.ones((8, 2, 3, 3), "float32")
    g, rest = np.ones((1, 8, 4, 6), "float32"), ((1, 1), (1, 1), 1, ((0, 0),) * 2)
    for bad in (x, w, g):
        bad.flat[37] = np.inf
        np.testing.assert_array_equal(*both("conv", x, w, *rest))
        np.testing.assert_array_equal(*both("conv_input", g, w, (6, 8), *rest))
        np.testing.assert_array_equal(*both("conv_filter", x, g, (3, 3), *rest))
        bad.flat[37] = 1


@hosted
def test_convolution_of_nothing_and_of_too_much_stays_composed():
    rest = (1,), (1,), 1, ((0, 0),)
    kernel = OPS["conv"].fused
    for x, w in (
        ((0, 1, 5), (2, 1, 3)),
        ((1, 256, 5), (256, 256, 3)),
        ((1, 1, 200_000), (1, 1, 3)),
    ):
        x, w = np.ones(x, "float32"), np.ones(w, "float32")
        assert kernel(host_kernels.find("conv"), x, w, *rest) is NotImplemented


WINDOWS = [  # shape, kernel, stride, dilation, padding
    ((2, 3, 50), (2,), (2,), (1,), ((0, 0),)),
    ((2, 3, 11), (5,), (2,), (2,), ((4, 1),)),
    ((2, 3, 10, 9), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((2, 3, 10, 9), (3, 2), (2, 3), (2, 1), ((2, 0), (1, 1))),
    ((1, 2, 5, 6, 7), (2, 3, 2), (2, 1, 1), (1, 1, 3), ((1, 0), (0, 2), (3, 3))),
]


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_pooling_equals_the_composed_one(case, dtype):
    shape, window = case[0], Window(*case[1:])
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, shape).astype(dtype)  # many are equal
    x.flat[rng.integers(0, x.size, 4)] = np.nan, np.nan, np.inf, -np.inf
    (y, winner), (expected, first) = both("max_pool", x, window)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(winner, first)
    assert winner.dtype == first.dtype
    x, g = rng.normal(size=shape).astype(dtype), rng.normal(size=y.shape).astype(dtype)
    np.testing.assert_array_equal(*both("pool_gather", x, winner, window))
    np.testing.assert_array_equal(*both("avg_pool", x, window))
    assert_equal(*both("pool_scatter", g, winner, window, shape))
    assert_equal(*both("avg_spread", g, window, shape))


@hosted
@pytest.mark.parametrize("n", [0, 1, 3, 4, 4095, 4096, 4097, 16389])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_random_numbers_have_the_bits_of_the_composed_ones(n, dtype, monkeypatch):
    x = np.random.default_rng(0).normal(size=n).astype(dtype)
    seed = 2**64 - 3, 2**63 + 9
    for rate in (2**-24, 0.3, 0.5, 0.999, 1.0):
        found, expected = both("dropout", x, rate, *seed)
        assert found.tobytes() == expected.tobytes()
    found = philox.uniform(np, *seed, n, dtype)
    monkeypatch.setattr(NUMPY, "fused", False)
    assert found.tobytes() == philox.uniform(np, *seed, n, dtype).tobytes()


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_sums_by_index_are_made_in_order(dtype):
    rng = np.random.default_rng(0)
    for shape, where in (((7,), 50), ((50, 33), (4, 9)), ((300, 64), 3000)):
        ids = rng.integers(-shape[0], shape[0], where)
        x = rng.normal(size=(*ids.shape, *shape[1:])).astype(dtype)
        for index in (ids, (ids,), ids.astype("int16")):
            found, expected = both("scatter_add", x, index, shape)
            assert found.tobytes() == expected.tobytes()
    found, expected = both("segment_sum", x, ids % 300, 301)
    assert found.tobytes() == expected.tobytes()
    add = partial(OPS["scatter_add"].fused, host_kernels.find("scatter_add"))
    for index in (np.array([0, 3]), np.array([-4, 0]), slice(2), np.array([True] * 2)):
        assert add(np.ones((2, 5), dtype), index, (3, 5)) is NotImplemented


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_norm_of_every_size_and_scale(dtype):
    tiny = float(np.finfo(dtype).smallest_subnormal)
    for n in (1, 2, 33, 20_000, 100_001):
        x = np.random.default_rng(0).normal(size=n)
        for scale in (1, 0, 1e-5, 1e-30, 1e30, 1e-300, 1e300):
            found, expected = both("two_norm", (x * scale).astype(dtype))
            assert found.dtype == dtype
            close = 4 * float(np.finfo(dtype).eps), tiny * n**0.5
            np.testing.assert_allclose(found, expected, *close)
    assert both("two_norm", np.zeros((2, 3), dtype))[0] == 0
    for x in ([np.inf, 1], [np.nan, 1], [np.inf, np.nan], [-np.inf]):
        np.testing.assert_array_equal(*both("two_norm", np.array(x, dtype)))


@hosted
def test_rows_of_every_length_and_layout():
    rng = np.random.default_rng(0)
    for n in (1, 2, 31, 32, 33, 1000):
        x = rng.normal(size=(3, n)).astype(np.float32)
        e = np.exp(x - x.max(1, keepdims=True))
        y = e / e.sum(1, keepdims=True)
        kernel = host_kernels.find("softmax")
        for given, axis in ((x, -1), (x.T.copy(), 0), (np.repeat(x, 2, 1)[:, ::2], 1)):
            got = kernel(given, axis=axis)
            np.testing.assert_allclose(got if axis else got.T, y, rtol=1e-6)
    assert kernel(np.empty((3, 0))).shape == (3, 0)
    assert kernel(np.empty((0, 3))).shape == (0, 3)
    big = rng.normal(size=(200, 1000)).astype(np.float32)  # on several threads
    np.testing.assert_array_equal(kernel(big), np.stack([kernel(x) for x in big]))


@hosted
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_columns_of_every_height_and_layout(dtype):
    kernel = host_kernels.find("column_sum")
    rng = np.random.default_rng(0)
    for m in (0, 1, 31, 32, 33, 64, 65, 1000):
        x = rng.normal(size=(m, 7)).astype(dtype)
        exact = x.astype("longdouble").sum(0)
        for given in (x, x.T.copy().T, np.repeat(x, 2, 1)[:, ::2], x[::-1][::-1]):
            got = kernel(given)
            assert got.dtype == dtype
            eps = np.finfo(dtype).eps
            np.testing.assert_allclose(got, exact, 2 * eps, 2 * eps * m**0.5)
    assert kernel(np.empty((3, 0), dtype)).shape == (0,)
    big = rng.normal(size=(1000, 300)).astype(dtype)  # on several threads
    np.testing.assert_array_equal(kernel(big)[:7], kernel(big[:, :7]))
    np.testing.assert_array_equal(
        kernel(np.stack([big, -big])), np.stack([kernel(big), -kernel(big)])
    )


@hosted
def test_float16_is_computed_and_kept_in_float32():
    x = np.array([[60000.0, -60000.0, 30000.0]], "float16")
    _, *kept = host_kernels.find("layer_norm")(x, x, x, 1e-5, 1.0)
    assert [part.dtype for part in kept] == ["float32"] * 3
    np.testing.assert_allclose(kept[2], 1 / x.astype("f8").std(), 1e-6)


@hosted
def test_kernels_leave_no_warning_behind():
    x = np.array([1000.0, -1000.0, np.inf, np.nan], np.float32)
    with np.errstate(all="raise"):
        for name in ("softplus", "silu", "mish", "silu_dx"):
            kernel = host_kernels.find(name)
            kernel(*[x] * kernel.nin)


@hosted
@pytest.mark.parametrize("size", [0, 1, 7, 1023, 1024, 1025, 100_000])
def test_every_length_and_layout(size):
    kernel, whole = host_kernels.find("silu_dx"), composed("silu_dx")
    rng = np.random.default_rng(0)
    g, x = rng.normal(size=(2, size)).astype(np.float32)
    for view in (slice(None), slice(None, None, 2), slice(None, None, -1)):
        got = kernel(g[view], x[view])
        np.testing.assert_allclose(got, whole(g[view], x[view]), rtol=2e-5, atol=1e-6)
    np.testing.assert_array_equal(kernel(np.float32(2), x), kernel(g * 0 + 2, x))
    column = g[:7, None]
    np.testing.assert_array_equal(
        kernel(column, x), kernel(*map(np.array, np.broadcast_arrays(column, x)))
    )
    out = np.empty_like(x)
    assert kernel(g, x, out) is out
    np.testing.assert_array_equal(out, kernel(g, x))


@hosted
@pytest.mark.parametrize("size", [1023, 1024, 1025, 2047, 2048, 2049, 70001])
def test_results_lie_anywhere_in_a_line_of_the_cache(size):
    x = np.arange(size, dtype="f")
    kernel = host_kernels.find("square_dx")
    for past in range(17):
        room = np.full(past + size + 1, -1, "f")
        kernel(x, x, out=room[past : past + size])
        assert np.array_equal(room[past : past + size], 2 * x * x)
        assert np.all(room[:past] == -1)
        assert room[-1] == -1


@hosted
def test_dtypes_no_kernel_serves_are_composed():
    for dtype, kind in (("int8", "float32"), ("complex64", "complex64")):
        x = eg.tensor(np.array([1, 2], dtype))
        assert eg.sigmoid(x).dtype == kind
    x = eg.tensor([0.5 + 0.1j])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.real(eg.sum(eg.sigmoid(x)))
    s = 1 / (1 + np.exp(-x.numpy()))
    np.testing.assert_allclose(
        tape.gradient(y, x).numpy(), np.conj(s * (1 - s)), rtol=1e-6
    )


# --------------------------------------------------------------- building and the cache


def run(program, **env):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "EAGERGRAD_DEVICE": "cpu", **env}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


USE = "import eagergrad as eg; print(eg.sigmoid(eg.tensor([0.0])).item())"


@hosted
def test_the_first_use_compiles_into_a_private_cache(tmp_path):
    cache = tmp_path / "new" / "cache"
    done = run(USE, EAGERGRAD_CACHE=str(cache), EAGERGRAD_HOST_KERNELS="require")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.5\n", "")
    (built,) = cache.iterdir()
    assert built.name.startswith("sigmoid-")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    before = built.stat().st_mtime_ns
    run(USE, EAGERGRAD_CACHE=str(cache))
    assert built.stat().st_mtime_ns == before


@hosted
@pytest.mark.skipif(os.cpu_count() == 1, reason="there is no other core")
def test_the_rule_is_compiled_beside_the_op_under_a_tape(tmp_path):
    code = f"import eagergrad as eg\nwith eg.GradientTape(): {USE.partition('; ')[2]}"
    done = run(code, EAGERGRAD_CACHE=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.5\n", "")
    built = sorted(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert built == ["column_sum", "sigmoid", "sigmoid_dx"]  # what undoes broadcasting


@hosted
def test_an_optimizers_kernel_is_compiled_while_the_model_is_made(tmp_path):
    made = "import os; os.cpu_count = lambda: 2; import eagergrad as eg; eg.optim."
    for rule in ("Adam()", "SGD(0.1, momentum=0.9)"):
        assert run(made + rule, EAGERGRAD_CACHE=str(tmp_path)).stderr == ""
    names = sorted(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert names == ["adam", "momentum"]


@hosted
@pytest.mark.parametrize("busy", [False, True])
def test_what_is_begun_is_compiled_once(tmp_path, monkeypatch, busy):
    """By the other thread, or here if that has not come to it yet."""
    monkeypatch.setenv("EAGERGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    built, free = [], threading.Event()
    monkeypatch.setattr(host_kernels, "_built", lambda k: built.append(k) or tmp_path)
    kernel = Kernel("one", "s>s", "struct one {};")
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(host_kernels, "_ahead", lambda: pool)
        if busy:
            pool.submit(free.wait)
        host_kernels.begin([kernel, kernel])
        try:
            assert host_kernels.library(kernel) == tmp_path
        finally:
            free.set()
    assert built == [kernel]


@hosted
def test_processes_that_race_all_find_a_whole_library(tmp_path):
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "EAGERGRAD_CACHE": str(tmp_path / "c"),
    }
    command = [sys.executable, "-c", USE]
    racing = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [process.communicate()[0] for process in racing] == ["0.5\n"] * 4
    assert len(list((tmp_path / "c").iterdir())) == 1


@hosted
def test_a_cache_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("EAGERGRAD_CACHE", str(tmp_path))
    assert tmp_path not in kernels.caches()


@hosted
def test_a_cache_that_cannot_be_made_gives_way_to_a_temporary_one(
    tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EAGERGRAD_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (found,) = kernels.caches()
    assert found.parent == tmp_path


def test_a_cache_of_another_user_that_cannot_be_read_is_not_used(tmp_path, monkeypatch):
    """Root makes such in an image, if not told where; looking into it is an error."""
    monkeypatch.setenv("EAGERGRAD_CACHE", str(tmp_path))
    assert kernels.caches()[0] == tmp_path
    access = os.access
    monkeypatch.setattr(
        "os.access", lambda path, mode: path != tmp_path and access(path, mode)
    )
    assert tmp_path not in kernels.caches()


def test_off_needs_no_compiler(tmp_path):
    done = run(USE, EAGERGRAD_CACHE=str(tmp_path), EAGERGRAD_HOST_KERNELS="off")
    assert (done.stdout, done.stderr) == ("0.5\n", "")
    assert not list(tmp_path.iterdir())


def test_without_a_compiler_ops_are_composed_or_refused():
    done = run(USE, CXX="no-such-compiler")
    assert (done.stdout, done.stderr) == ("0.5\n", "")
    done = run(USE, CXX="no-such-compiler", EAGERGRAD_HOST_KERNELS="require")
    assert done.returncode == 1
    assert "EAGERGRAD_HOST_KERNELS=require" in done.stderr
    assert "no C++ compiler" in done.stderr


@hosted
def test_a_compiler_that_fails_is_told_once(tmp_path):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho no such luck >&2; exit 1\n")
    broken.chmod(0o755)
    program = USE + "; print(eg.softplus(eg.tensor([0.0])).item() > 0.69)"
    done = run(program, CXX=str(broken), EAGERGRAD_CACHE=str(tmp_path / "cache"))
    assert done.stdout == "0.5\nTrue\n"
    assert done.stderr.count("no such luck") == 1


def test_an_unknown_mode_is_refused(monkeypatch):
    monkeypatch.setenv("EAGERGRAD_HOST_KERNELS", "yes")
    with pytest.raises(KernelError, match="expected auto, off or require, got 'yes'"):
        host_kernels.mode()


@hosted
def test_a_child_after_fork_computes():
    program = """
import os
import numpy as np
import eagergrad as eg
x = eg.tensor(np.ones(10**6, np.float32))
eg.sigmoid(x)  # starts threads
child = os.fork()
if not child:
    os._exit(0 if abs(eg.sigmoid(x).numpy()[-1] - 0.7310586) < 1e-6 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(program).stdout == "0\n"


@hosted
@pytest.mark.parametrize("given", [None, "77"])
def test_idle_threads_soon_sleep_unless_the_user_says_otherwise(given):
    """OpenMP's runtime says what it found when it was loaded."""
    program = USE + "; import os; print(os.environ.get('GOMP_SPINCOUNT'))"
    env = {"OMP_DISPLAY_ENV": "verbose"}
    env |= {} if given is None else {"GOMP_SPINCOUNT": given}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
            patch.delenv(name, raising=False)
        done = run(program, **env)
    assert done.stdout.endswith(f"{given}\n")
    if "GOMP_SPINCOUNT" in done.stderr:  # else it is another runtime, or there is none
        assert f"GOMP_SPINCOUNT = '{given or 1000}'" in done.stderr
