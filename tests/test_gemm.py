"""Products of matrices by cuBLAS, on the stand-in's, which reads memory by columns."""

import ctypes
import gc
import math
import struct
import subprocess
import sys
import threading
from types import SimpleNamespace
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest
import standin
from standin import COUNTS

import eagergrad as eg
from eagergrad import cublas, host_kernels
from eagergrad import gemm as module
from eagergrad.counters import COUNTERS
from eagergrad.device import BACKENDS
from eagergrad.errors import DTypeError, KernelError, OutOfMemoryError, ShapeError
from eagergrad.gemm import Unserved, gemm
from eagergrad.layouts import contiguous
from eagergrad.primitive import kernel

RNG = np.random.default_rng(0)


@pytest.fixture
def gpu():
    """The stand-in device."""
    with standin.installed() as device:
        yield device


def whole(*shape, dtype="f4"):
    """Small whole numbers, which every dtype here multiplies without rounding."""
    values = RNG.integers(-4, 5, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RNG.integers(-4, 5, shape)
    return values.astype(dtype)


def put(x):
    """A buffer with the layout of an array, gaps and all."""
    return standin.Buffer(x)


def run(a, b, **options):
    """What gemm makes of buffers with the layouts of two arrays: values, and calls."""
    blas = cublas.library(12)
    blas.calls.clear()
    COUNTERS.clear()
    out = options.pop("out", None)
    given = None if out is None else put(out)
    got = gemm(BACKENDS["standin"].driver, put(a), put(b), given, **options)
    assert COUNTERS.launches == len(blas.calls)
    assert got.dtype == a.dtype
    return got._values, blas.calls


def check(a, b, copies=0, calls=1):
    """Whether the product is NumPy's, by so many calls, after so many copies."""
    got, made = run(a, b)
    expected = np.matmul(a, b)
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    assert (COUNTERS.allocations - 1, len(made)) == (copies, calls)
    return made


# One product


def test_two_by_two(gpu):
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])
    assert run(a, b)[0].tolist() == [[19.0, 22.0], [43.0, 50.0]]
    assert run(a.T, b)[0].tolist() == [[26.0, 30.0], [38.0, 44.0]]
    assert run(a, b.T)[0].tolist() == [[17.0, 23.0], [39.0, 53.0]]
    assert run(a.T, b.T)[0].tolist() == [[23.0, 31.0], [34.0, 46.0]]


# Ways in which a matrix (n, m) may lie, and whether it must be copied.
LAYOUTS = {
    "rows": (lambda n, m: whole(n, m), 0),
    "columns": (lambda n, m: whole(m, n).T, 0),
    "wider rows": (lambda n, m: whole(n, m + 3)[:, 1 : m + 1], 0),
    "longer columns": (lambda n, m: whole(m, n + 3)[:, 2 : n + 2].T, 0),
    "every other row": (lambda n, m: whole(2 * n, m)[::2], 0),
    "every other column": (lambda n, m: whole(n, 2 * m)[:, ::2], 1),
    "backwards": (lambda n, m: whole(n, m)[::-1], 1),
    "windows that overlap": (
        lambda n, m: np.lib.stride_tricks.sliding_window_view(whole(n + m - 1), m),
        1,
    ),
    "one row": (lambda n, m: np.broadcast_to(whole(m), (n, m)), 1),
    "one column": (lambda n, m: np.broadcast_to(whole(n, 1), (n, m)), 1),
    "one number": (lambda n, m: np.broadcast_to(whole(1, 1), (n, m)), 1),
}


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_transposes_and_gaps_are_free_and_all_else_is_copied_once(gpu, first, second):
    (left, once), (right, twice) = LAYOUTS[first], LAYOUTS[second]
    made = check(left(2, 3), right(3, 4), once + twice)
    assert made == [("gemm_ex", 4, 2, 3)]


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("layout", ["rows", "columns", "wider rows", "longer columns"])
def test_axes_of_length_one(gpu, n, k, m, layout):
    make, _ = LAYOUTS[layout]
    check(make(n, k), make(k, m))
    for flipped in (make(n, k)[:, ::-1], make(n, k)[::-1]):
        got, _ = run(flipped, make(k, m) * 0 + 1)
        np.testing.assert_array_equal(got[:, 0], flipped.sum(1))


def test_parts_of_an_element_are_copied(gpu):
    pairs = np.zeros((2, 3), [("x", "f4"), ("y", "i2")])  # 6 bytes apart
    pairs["x"] = whole(2, 3)
    check(pairs["x"], whole(3, 2), 1)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 2)),
    ],
)
def test_vectors(gpu, a, b):
    check(whole(*a), whole(*b))
    check(whole(*a[:-1], 2 * a[-1])[..., ::2], whole(*b), copies=int(len(a) > 1))
    if len(b) == 1:  # elements of a column may be apart, those of a row not
        check(whole(*a), whole(2 * b[0])[::2])


@pytest.mark.parametrize(
    ("a", "b"),
    [((0, 3), (3, 2)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 2)), ((0, 0), (0, 0))],
)
def test_empty_results_are_made_without_a_call(gpu, a, b):
    check(whole(*a), whole(*b), calls=0)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 0), (0, 3)), ((0,), (0,)), ((4, 2, 0), (0, 3)), ((0,), (0, 3))]
)
def test_a_sum_of_nothing_is_zero(gpu, a, b):
    check(whole(*a), whole(*b), calls=0)


@pytest.mark.parametrize(
    "shapes", [((2, 3), (2, 3)), ((), (2,)), ((2, 3, 4), (3, 4, 5))]
)
def test_shapes_that_do_not_fit_are_told_by_the_op(gpu, shapes):
    a, b = [np.ones(shape) for shape in shapes]
    with pytest.raises(TypeError, match="no product of"):
        run(a, b)
    with pytest.raises(ShapeError, match=r"^matmul: .*a is .*b is "):
        eg.matmul(eg.tensor(a, device=gpu), eg.tensor(b, device=gpu))


def test_operands_that_are_not_served(gpu):
    driver, x = BACKENDS["standin"].driver, whole(2, 2)
    for a, b in ((x, x), (put(x), x), (put(x), put(x.astype("f8")))):
        with pytest.raises(Unserved):
            gemm(driver, a, b)

    def elsewhere(buffers):
        raise TypeError("a buffer that is not on cuda:1")

    with patch.object(driver, "device", elsewhere):
        with pytest.raises(Unserved, match="gemm: a buffer that is not on cuda:1"):
            gemm(driver, put(x), put(x))
        eg.tensor(x, device=gpu) @ eg.tensor(x, device=gpu)
    assert cublas.library(12).calls == []


# Batches


def test_a_batch_is_one_call(gpu):
    assert check(whole(5, 2, 3), whole(5, 3, 4)) == [
        ("gemm_strided_batched_ex", 4, 2, 3)
    ]
    check(whole(5, 3, 2).swapaxes(1, 2), whole(5, 4, 3).swapaxes(1, 2))
    check(whole(2, 3, 2, 3), whole(2, 3, 3, 4))
    check(whole(9, 2, 3)[::2], whole(5, 3, 4))
    check(whole(1, 2, 3), whole(5, 3, 4))
    check(whole(2, 3), whole(5, 3, 4))
    check(np.broadcast_to(whole(2, 3), (5, 2, 3)), whole(5, 3, 4))
    check(whole(5, 2, 3)[::-1], whole(5, 3, 4), copies=1)
    check(whole(5, 3, 2).swapaxes(1, 2), whole(1, 3, 4))


def test_a_batch_that_meets_one_matrix_is_more_rows(gpu):
    for b in (whole(3, 4), whole(1, 3, 4), whole(4, 3).T):
        assert check(whole(5, 2, 3), b) == [("gemm_ex", 4, 10, 3)]
    assert check(whole(2, 5, 2, 3), whole(3, 4)) == [("gemm_ex", 4, 20, 3)]
    assert check(whole(5, 2, 6)[..., :3], whole(3, 4)) == [("gemm_ex", 4, 10, 3)]
    assert check(whole(5, 1, 3), whole(3, 4)) == [("gemm_ex", 4, 5, 3)]
    assert check(whole(2, 5, 3).swapaxes(0, 1), whole(3, 4)) == [
        ("gemm_strided_batched_ex", 4, 2, 3)
    ]


def test_heads_in_the_middle_are_copied_once(gpu):
    """As those of attention: (batch, places, heads, size), seen as heads of places."""
    q, k = [whole(2, 5, 3, 4).swapaxes(1, 2) for _ in range(2)]
    check(q, k.swapaxes(2, 3), copies=2)
    check(q, whole(2, 3, 4, 5), copies=1)
    check(q[:1], k[:1].swapaxes(2, 3))  # one step leads through all heads


def test_what_is_broadcast_is_never_copied_out(gpu):
    """Each operand has an axis of the batch that the other has not."""
    a, b = whole(4, 1, 2, 3), whole(7, 3, 5)
    check(a, b, calls=4)
    check(whole(7, 1, 2, 3), whole(4, 3, 5), calls=4)
    wide = np.broadcast_to(whole(4, 1, 2, 6)[..., ::2], (4, 7, 2, 3))
    made = []
    contiguous = standin.xp.ascontiguousarray
    with patch.object(
        BACKENDS["standin"].driver,
        "contiguous",
        lambda x: made.append(x.shape) or contiguous(x),
    ):
        check(wide, b, copies=1, calls=4)
    assert made == [(4, 1, 2, 3)]


def draw_layout(rng, shape):
    """An array of a shape with a random layout: axes turned, gaps, steps, broadcast."""
    order = rng.permutation(len(shape))
    full, index = [], []
    for axis in order:
        n, kind = shape[axis], rng.integers(8)
        step = 2 if kind == 1 else -1 if kind == 2 else 1
        full.append(1 if kind == 3 else n * abs(step) + int(kind == 4))
        index.append(slice(None, None, step) if kind != 4 else slice(1, None))
    x = rng.integers(-4, 5, full).astype("f4")[tuple(index)]
    x = x.transpose(np.argsort(order))
    return np.broadcast_to(x, shape)


def test_layouts_at_random(gpu):
    rng = np.random.default_rng(1)
    for _ in range(600):
        n, k, m = rng.integers(1, 4, 3)
        batch = tuple(rng.integers(1, 4, rng.integers(0, 4)))
        shapes = []
        for tail in ((n, k), (k, m)):
            own = batch[rng.integers(0, len(batch) + 1) :]
            own = tuple(1 if rng.integers(4) == 0 else length for length in own)
            shapes.append((*own, *tail))
        a, b = [draw_layout(rng, shape) for shape in shapes]
        got, made = run(a, b)
        np.testing.assert_array_equal(got, np.matmul(a, b))
        assert COUNTERS.allocations <= 3
        assert len(made) <= 9


# Into an array


def test_alpha_and_beta(gpu):
    a, b = np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])
    out = np.array([[100.0]])
    got, _ = run(a, b, out=out, alpha=2.0, beta=0.5)
    assert got is out
    assert out.tolist() == [[72.0]]  # 2 * 11 + 50
    assert COUNTERS.allocations == 0
    assert run(a, b, alpha=-1.0)[0].tolist() == [[-11.0]]


def test_a_gradient_is_added_up_in_place(gpu):
    """dw = x^T g, of two batches."""
    (x, g), (u, h) = [(whole(5, 3), whole(5, 2)) for _ in range(2)]
    dw, _ = run(x.T, g)
    run(u.T, h, out=dw, beta=1.0)
    assert COUNTERS.allocations == 0
    np.testing.assert_array_equal(dw, x.T @ g + u.T @ h)


def test_what_was_in_an_array_is_not_read_unless_kept(gpu):
    out = np.full((2, 4), np.nan, "f4")
    a, b = whole(2, 3), whole(3, 4)
    run(a, b, out=out)
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ones((5, 2, 4), "f4"),
        lambda: np.ones((5, 2, 6), "f4")[..., 1:5],
        lambda: np.ones((2, 5, 4), "f4").swapaxes(0, 1),
        lambda: np.ones((10, 2, 4), "f4")[::2],
    ],
)
def test_into_arrays_of_many_layouts(gpu, make):
    a, b = whole(5, 2, 3), whole(5, 3, 4)
    for left, right in ((a, b), (a, b[0]), (a[0], b)):
        out = make()
        run(left, right, out=out, beta=3.0)
        np.testing.assert_array_equal(out, 3 + np.matmul(left, right))
    assert make().base is None or make().base.sum() == make().base.size


@pytest.mark.parametrize(("a", "b"), [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4))])
def test_vectors_into_an_array(gpu, a, b):
    a, b = whole(*a), whole(*b)
    out = np.ones(np.matmul(a, b).shape, "f4")
    run(a, b, out=out, beta=1.0)
    np.testing.assert_array_equal(out, 1 + np.matmul(a, b))


def test_nothing_into_an_array(gpu):
    out = np.ones((2, 2), "f4")
    run(whole(2, 0), whole(0, 2), out=out, beta=3.0)
    assert out.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    run(whole(2, 0), whole(0, 2), out=out)
    assert out.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (np.zeros((2, 3), "f4"), ShapeError, r"expected an out of shape \(2, 4\), got"),
        (np.zeros((2, 4), "f8"), DTypeError, "expected an out of float32, got float64"),
        (np.zeros((4, 2), "f4").T, ShapeError, "rows without gaps"),
        (np.zeros((2, 8), "f4")[:, ::2], ShapeError, "rows without gaps"),
        (np.zeros((2, 4), "f4")[::-1], ShapeError, "rows without gaps"),
        (np.broadcast_to(np.zeros(4, "f4"), (2, 4)), ShapeError, "none of them twice"),
    ],
)
def test_arrays_that_cannot_be_written(gpu, out, error, words):
    with pytest.raises(error, match=words):
        run(whole(2, 3), whole(3, 4), out=out)
    assert not out.any()


def test_a_batch_that_cannot_be_written(gpu):
    out = np.broadcast_to(np.zeros((2, 4), "f4"), (5, 2, 4))
    with pytest.raises(ShapeError, match="none of them twice"):
        run(whole(5, 2, 3), whole(5, 3, 4), out=out)


# Dtypes

DTYPES = ["f2", ml_dtypes.bfloat16, "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(gpu, dtype, batch):
    a, b = whole(*batch, 2, 3, dtype=dtype), whole(*batch, 3, 4, dtype=dtype)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    got, made = run(a, b)
    np.testing.assert_array_equal(got.astype(wide), a.astype(wide) @ b.astype(wide))
    assert len(made) == 1
    turned, _ = run(b.swapaxes(-1, -2), a.swapaxes(-1, -2))
    np.testing.assert_array_equal(turned, got.swapaxes(-1, -2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_add_up_in_float32(gpu, dtype):
    """4096 ones, one by one, are 2048 in float16, and 256 in bfloat16."""
    with gpu:
        ones = eg.ones((2, 1, 4096), dtype)
        assert (
            eg.matmul(ones, eg.ones((2, 4096, 1), dtype)).tolist() == [[[4096.0]]] * 2
        )
        assert eg.einsum("bij,bij->b", ones, ones).tolist() == [4096.0] * 2
    assert len(cublas.library(12).calls) == 2


@pytest.mark.parametrize("dtype", ["i4", "i8", "u1", "?"])
def test_whole_numbers_stay_with_cupy(gpu, dtype):
    a, b = whole(2, 3).astype(dtype), whole(3, 4).astype(dtype)
    got = eg.matmul(eg.tensor(a, device=gpu), eg.tensor(b, device=gpu))
    np.testing.assert_array_equal(got.numpy(), a @ b)
    assert cublas.library(12).calls == []


# How float32 is multiplied

# 1 + 2^-12 has 13 bits: float32 keeps them, TF32 rounds to 11.
FINE = np.float32(1 + 2.0**-12)


def squared(gpu, dtype="float32"):
    x = eg.tensor(np.full((1, 1), FINE), dtype, device=gpu)
    return eg.matmul(x, eg.ones((1, 1), dtype, device=gpu)).item()


def test_float32_keeps_its_bits_unless_told(gpu):
    assert module.precision() == "float32"
    assert squared(gpu) == FINE
    with eg.matmul_precision("tf32"):
        assert module.precision() == "tf32"
        assert squared(gpu) == 1.0
        assert squared(gpu, "complex64") == 1.0
        assert squared(gpu, "float64") == FINE
        with eg.matmul_precision("float32"):
            assert squared(gpu) == FINE
        assert squared(gpu) == 1.0
    assert squared(gpu) == FINE


def test_a_block_can_be_entered_again_and_is_left_by_an_exception(gpu):
    fast = eg.matmul_precision("tf32")
    with fast, fast:
        pass
    with pytest.raises(KeyError), fast:
        raise KeyError
    assert module.precision() == "float32"


def test_gradients_are_computed_as_the_block_around_them_says(gpu):
    x = eg.tensor(np.full((1, 1), FINE), device=gpu)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x @ eg.ones((1, 1), device=gpu)
    seed = eg.tensor(np.full((1, 1), FINE), device=gpu)
    assert tape.gradient(y, x, seed).item() == FINE
    with eg.matmul_precision("tf32"):
        assert tape.gradient(y, x, seed).item() == 1.0


def test_a_precision_of_another_thread_is_its_own():
    found = []
    with eg.matmul_precision("tf32"):
        thread = threading.Thread(target=lambda: found.append(module.precision()))
        thread.start()
        thread.join()
    assert found == ["float32"]


def test_the_environment_says_it_for_the_process(monkeypatch):
    monkeypatch.setenv("EAGERGRAD_MATMUL_PRECISION", "tf32")
    module._default.cache_clear()
    try:
        assert dict(module.report())["matmul precision"] == "tf32"
        with eg.matmul_precision("float32"):
            assert module.precision() == "float32"
        monkeypatch.setenv("EAGERGRAD_MATMUL_PRECISION", "half")
        module._default.cache_clear()
        words = "EAGERGRAD_MATMUL_PRECISION: expected 'float32' or 'tf32', got 'half'"
        assert dict(module.report())["matmul precision"] == words
        with pytest.raises(DTypeError, match=words):
            module.precision()
    finally:
        module._default.cache_clear()


def test_other_precisions_are_refused():
    with pytest.raises(DTypeError, match=r"^matmul_precision: expected 'float32' or"):
        eg.matmul_precision("bfloat16")


# Ops


def every_product():
    """Forward and gradients of functions whose work is products."""
    rng = np.random.default_rng(2)

    def draw(*shape):
        return rng.normal(size=shape)

    return {
        "matmul": (lambda a, b: a @ b, draw(2, 3), draw(3, 4)),
        "batched": (lambda a, b: a @ b, draw(5, 2, 3), draw(5, 3, 4)),
        "broadcast": (lambda a, b: a @ b, draw(5, 2, 3), draw(3, 4)),
        "matrix and vector": (lambda a, b: a @ b, draw(2, 3), draw(3)),
        "transposed": (lambda a, b: a.T @ b.T, draw(3, 2), draw(4, 3)),
        "tensordot": (lambda a, b: eg.tensordot(a, b, 2), draw(5, 2, 3), draw(2, 3, 4)),
        "einsum": (
            lambda a, b: eg.einsum("bij,bkj->bik", a, b),
            draw(5, 2, 3),
            draw(5, 4, 3),
        ),
        "dot": (eg.dot, draw(2, 3), draw(3, 4)),
        "conv": (lambda a, b: eg.conv2d(a, b), draw(2, 3, 5, 5), draw(4, 3, 2, 2)),
    }


@pytest.mark.parametrize("name", every_product())
def test_products_and_their_gradients_can_be_captured(gpu, name):
    """CuPy's refuse: so none of them is CuPy's, on the way there or back."""
    f, *arrays = every_product()[name]

    def gradients(device):
        xs = [eg.tensor(x, device=device) for x in arrays]

        def step():
            with eg.GradientTape() as tape:
                tape.watch(xs)
                y = f(*xs)
                z = eg.sum(y * y)
            return [y, *tape.gradient(z, xs)]

        return step

    expected = gradients("cpu")()
    with standin.Stream() as stream:
        step = gradients(gpu)
        step()
        stream.work.clear()
        stream.begin_capture()
        made = step()
        stream.end_capture().launch(stream)
    products = sum("gemm" in work for work in stream.work)
    assert products == (2 if name == "matrix and vector" else 3)  # an outer one is none
    for got, value in zip(made, expected, strict=True):
        np.testing.assert_allclose(got.numpy(), value.numpy(), 1e-12, 1e-12)


def test_a_product_is_one_launch_and_so_is_each_transpose(gpu):
    x, w = eg.tensor(whole(2, 3), device=gpu), eg.tensor(whole(3, 4), device=gpu)
    seed = eg.tensor(whole(2, 4), device=gpu)
    with eg.GradientTape() as tape:
        tape.watch([x, w])
        COUNTERS.clear()
        before = COUNTS["launches"]
        y = x @ w
    tape.gradient(y, [x, w], seed)
    assert (COUNTERS.launches, COUNTERS.allocations) == (3, 3)
    assert COUNTS["launches"] == before


# Products that are added to a gradient


def recurrence(device, steps, dtype):
    """The gradients of h = h w + x u, step by step, and what they cost to compute."""
    rng = np.random.default_rng(1)

    def drawn(*shape):
        x = rng.integers(-1, 2, shape).astype(dtype)
        return eg.tensor(x, device=device)

    w, u, h, g = drawn(5, 5), drawn(3, 5), drawn(2, 5), drawn(2, 5)
    xs = [drawn(2, 3) for _ in range(steps)]
    with eg.GradientTape() as tape:
        tape.watch([w, u])
        for x in xs:
            h = h @ w + x @ u
    sizes = []
    cublas.library(12).calls.clear()
    COUNTERS.clear()
    before = COUNTS.copy()
    with standin.using_allocator(standin.Pool(sizes.append).malloc):
        grads = tape.gradient(h, [w, u], g)
    made = COUNTERS.launches, (COUNTS - before)["launches"]
    return grads, [c[1:] for c in cublas.library(12).calls], made, sizes


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_weights_used_at_each_step_are_added_up_by_the_products(gpu, steps, dtype):
    grads, products, launches, sizes = recurrence(gpu, steps, dtype)
    assert products.count((5, 5, 2)) == steps  # h^T g
    assert products.count((5, 3, 2)) == steps  # x^T g
    assert products.count((5, 2, 5)) == steps - 1  # g w^T
    assert launches == (3 * steps - 1, 0)
    item = np.dtype(dtype).itemsize
    one_each = [25 * item, 15 * item, *[10 * item] * (steps - 1)]
    assert sorted(sizes) == sorted(one_each)
    for got, expected in zip(grads, recurrence("cpu", steps, dtype)[0], strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


def squares(y, w):
    """A batch of matrices (3, 3), none of them symmetric."""
    return y.swapaxes(1, 2) @ (y @ w)


def on_both_sides(y, m):
    """A batch of matrices m that is used four times."""
    right = y @ m + (y + 1.0) @ m
    left = m @ y.swapaxes(1, 2) + m @ (y * 2.0).swapaxes(1, 2)
    return right + left.swapaxes(1, 2)


def beside_vectors(x, m):
    """A batch of matrices m that is used by two vectors on each side."""
    return x[0] @ m + x[1] @ m + m @ x[0] + m @ x[1]


# Ways in which a matrix w (3, 3) is used several times, of x (2, 3) and y (4, 2, 3).
SHARED = {
    "by itself": lambda x, y, w: w @ w @ w,
    "beside itself": lambda x, y, w: x.T @ x @ w + w + w @ (x.T @ x) @ w,
    "transposed": lambda x, y, w: x @ w + x @ w.T + (x + 1.0) @ w.T,
    "rows of its own": lambda x, y, w: w[0:2] @ w + w[1:3] @ w + w[[0, 0]] @ w,
    "vectors": lambda x, y, w: w @ x[0] + x[1] @ w + w[0] @ w + w @ w[1],
    "a batch": lambda x, y, w: y @ w + (y + 1.0) @ w + x @ w,
    "columns of a batch": lambda x, y, w: (
        y.swapaxes(0, 1) @ w + y.reshape((2, 4, 3)) @ w @ w
    ),
    "two batches": lambda x, y, w: on_both_sides(y, squares(y, w)),
    "batches of squares": lambda x, y, w: on_both_sides(squares(y, w), squares(y, w)),
    "vectors and a batch": lambda x, y, w: beside_vectors(x, squares(y, w)),
    "batches of both": lambda x, y, w: (y @ w) @ (y @ w).swapaxes(1, 2) @ y,
    "a batch that is broadcast": lambda x, y, w: (
        (x @ w)[None] @ y.swapaxes(1, 2) + w[None, 1:] @ y.swapaxes(1, 2)
    ),
    "one matrix for a batch": lambda x, y, w: (
        w @ y.swapaxes(1, 2) + w @ (y * 2.0).swapaxes(1, 2)
    ),
}


def shared(device, name):
    """All that tapes say of a use of a matrix: gradients, twice, and of a gradient."""
    rng = np.random.default_rng(2)
    given = {
        "x": rng.integers(-2, 3, (2, 3)).astype("f8"),
        "y": rng.integers(-2, 3, (4, 2, 3)).astype("f8"),
        "v": rng.integers(-2, 3, (3, 3)).astype("f8"),
    }
    x, y, v = [eg.tensor(value, device=device) for value in given.values()]
    with eg.GradientTape() as outer:
        outer.watch([x, y, v])
        with eg.GradientTape(persistent=True) as tape:
            tape.watch([x, y, v])
            w = v * 2.0  # a source on the way from another
            z = SHARED[name](x, y, w)
        taken = tape.gradient(z, [x, y, w, v])
        total = eg.sum(eg.stack([eg.sum(dx * dx) for dx in taken if dx is not None]))
    seeds = [z * 0.0 + 1.0, w * 0.0 + 3.0]
    made = [tape.gradient([z, w], [x, y, w, v], seeds) for _ in range(2)]
    assert seeds[0].numpy().min() == seeds[0].numpy().max() == 1.0
    assert seeds[1].numpy().min() == seeds[1].numpy().max() == 3.0
    first, again = made
    return [*taken, *first, *again, *outer.gradient(total, [x, y, v])]


@pytest.mark.parametrize("name", SHARED)
def test_gradients_of_a_matrix_used_several_times(gpu, name):
    """Whole numbers, which are added up without rounding in every order."""
    got, expected = shared(gpu, name), shared("cpu", name)
    assert [x is None for x in got] == [x is None for x in expected]
    for x, y in zip(got, expected, strict=True):
        if x is not None:
            np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_a_gradient_somebody_holds_is_not_added_to(gpu):
    """A cotangent of w that was given, and that of w + z, which is that of z too."""
    x, w = [eg.tensor(whole(3, 3), device=gpu) for _ in range(2)]
    seed, held = [eg.ones((3, 3), device=gpu) for _ in range(2)]
    with eg.GradientTape(persistent=True) as tape:
        tape.watch([x, w])
        y = x @ w + x @ w
        z = x * 1.0
        both = w + z
    twice = 2.0 * (x.numpy().T @ np.ones((3, 3), "f4"))
    dw = tape.gradient([y, w], w, [seed, held])
    np.testing.assert_array_equal(dw.numpy(), twice + 1.0)
    dw, dz = tape.gradient([y, both], [w, z], [seed, held])
    np.testing.assert_array_equal(dw.numpy(), twice + 1.0)
    for ones in (dz, seed, held):
        assert ones.tolist() == [[1.0] * 3] * 3


def test_a_gradient_by_columns_is_added_to_without_cublas(gpu):
    """It is the sum of two that are views by columns, where cuBLAS writes rows."""
    x, w = eg.tensor(whole(2, 3), device=gpu), eg.tensor(whole(3, 3), device=gpu)
    seed = eg.ones((2, 3), device=gpu)
    with eg.GradientTape() as tape:
        tape.watch(w)
        y = x @ w + x @ w.T + x @ w.T
    COUNTERS.clear()
    before = COUNTS.copy()
    dw = tape.gradient(y, w, seed)
    assert (COUNTS - before)["launches"] + COUNTERS.launches == 3 + 2
    ones = x.numpy().T @ np.ones((2, 3), "f4")
    np.testing.assert_array_equal(dw.numpy(), ones + 2.0 * ones.T)


def three_uses(x, w):
    """The gradient of w, that of a sum of x w by 6."""
    with eg.GradientTape() as tape:
        tape.watch(w)
        y = x @ w + (x * 2.0) @ w + (x * 3.0) @ w
    return tape.gradient(y, w)


def test_products_that_add_can_be_captured(gpu):
    """A replay starts anew: its first product does not read what is there."""
    captured = eg.function(three_uses)
    w = eg.tensor(whole(3, 4), device=gpu)
    for _ in range(4):
        x = whole(2, 3)
        got = captured(eg.tensor(x, device=gpu), w)
        ones = np.ones((2, 4), "f4")
        np.testing.assert_array_equal(got.numpy(), 6.0 * (x.T @ ones))


def test_gradients_of_another_dtype_are_not_added_to_by_cublas(gpu):
    """A function of one's own may return such."""

    @eg.custom_gradient
    def twice(w):
        return w * 2.0, lambda g: eg.tensor(2.0 * g.numpy().astype("f8"), device=gpu)

    x, w = [eg.tensor(whole(3, 3), device=gpu) for _ in range(2)]
    with eg.GradientTape() as tape:
        tape.watch(w)
        y = x @ w + x @ w + twice(w)
    dw = tape.gradient(y, w, eg.ones((3, 3), device=gpu))
    ones = np.ones((3, 3), "f4")
    np.testing.assert_array_equal(dw.numpy(), 2.0 * (x.numpy().T @ ones) + 2.0)


def test_numpy_has_no_product_that_adds():
    """Eager or captured, there is a sum for each product but the first."""
    x, w = eg.tensor(whole(2, 3)), eg.tensor(whole(3, 4))
    captured = eg.function(three_uses)
    expected = 6.0 * (x.numpy().T @ np.ones((2, 4), "f4"))
    for f in (three_uses, captured, captured):
        np.testing.assert_array_equal(f(x, w).numpy(), expected)
    names = [i.name.split(".")[0] for i in captured.program(x, w).instructions]
    products = [name for name in names if name in ("matmul", "add")]
    assert products == ["matmul", "matmul", "add", "matmul", "add"]


# Handles, streams and threads


def test_a_handle_is_made_once_for_a_stream_and_a_thread(gpu):
    blas, a, b = cublas.library(12), whole(2, 3), whole(3, 4)
    run(a, b)
    run(b.T, a.T)
    assert len(blas.handles) == 1
    with standin.Stream() as stream:
        run(a, b)
        assert stream.work == ["gemm_ex"]
    assert len(blas.handles) == 2
    assert blas.handles[2].stream == stream.ptr
    run(a, b)
    assert stream.work == ["gemm_ex"]
    thread = threading.Thread(target=run, args=(a, b))
    thread.start()
    thread.join()
    assert len(blas.handles) == 3
    assert [state and state.workspace for state in blas.handles.values()] == [
        2**25,
        2**25,
        None,
    ]  # that of the thread went with it


def test_a_handle_goes_with_its_stream(gpu):
    blas = cublas.library(12)
    with standin.Stream():
        run(whole(2, 3), whole(3, 4))
        assert blas.handles[1] is not None
    gc.collect()
    assert blas.handles == {1: None}


def test_the_first_product_of_a_stream_is_not_captured(gpu):
    with standin.Stream() as stream:
        stream.begin_capture()
        with pytest.raises(
            KernelError, match="run the step once on that stream before"
        ):
            run(whole(2, 3), whole(3, 4))
        stream.end_capture()
        check(whole(2, 3), whole(3, 4))


def test_a_handle_without_room(gpu):
    blas = cublas.library(12)
    blas.room = False
    x = eg.tensor(whole(2, 2), device=gpu)
    words = r"^matmul: .*no room for a handle of cuBLAS .*; 1,000 bytes are in use$"
    with pytest.raises(OutOfMemoryError, match=words):
        x @ x
    assert COUNTS["freed"] == 1
    blas.room = True
    assert (x @ x).device == gpu


def test_room_is_made_for_a_handle(gpu):
    blas = cublas.library(12)
    blas.room = False
    with patch.object(
        BACKENDS["standin"].driver, "free", lambda: setattr(blas, "room", True)
    ):
        check(whole(2, 3), whole(3, 4))


def test_without_cublas_products_stay_with_cupy(gpu, caplog):
    cublas._told.cache_clear()
    values = whole(2, 2, 2)
    with patch.object(cublas, "library", lambda major: None):
        for _ in range(2):
            for dtype in ("float32", "float16", "bfloat16"):
                x = eg.tensor(values, dtype, device=gpu)
                assert (x @ x).dtype == x.dtype
                assert (x @ x).tolist() == (values @ values).tolist()
        x, w = eg.tensor(values), eg.tensor(values[0])
        expected = three_uses(x, w).tolist()
        assert three_uses(x.to(gpu), w.to(gpu)).tolist() == expected
    assert caplog.text.count("no cuBLAS for CUDA 12") == 1
    cublas._told.cache_clear()


def test_kernels_run_on_the_current_stream_too(gpu):
    x = eg.tensor(whole(2, 3), device=gpu)
    eg.softplus(x)
    with standin.Stream() as stream:
        with standin.Stream() as other:
            eg.softplus(x @ x.T)
        eg.softplus(x)
    expected = ["softplus"] if host_kernels.compiler() else []
    assert (other.work, stream.work) == (["gemm_ex", *expected], expected)


# Beyond 32 bits: plans alone, since nobody has the memory


def rows(*shape, size=4):
    return shape, contiguous(shape, size)


def test_sizes_beyond_32_bits(gpu):
    """With the functions of cuBLAS that take 64 bits; places are Python's integers."""
    n = 2**31
    plan = module._plan(4, rows(n - 1, 3), rows(3, 4), None)
    assert (plan.function, plan.flags[2:]) == ("gemm_ex", (4, n - 1, 3))
    plan = module._plan(4, rows(n, 3), rows(3, 4), None)
    assert (plan.function, plan.flags[2:]) == ("gemm_ex_64", (4, n, 3))
    plan = module._plan(4, rows(2, n), rows(n, 4), None)
    assert plan.function == "gemm_ex_64"
    plan = module._plan(4, ((2, 3), (4 * n, 4)), rows(3, 4), None)
    assert (plan.function, plan.a) == ("gemm_ex_64", (n,))
    plan = module._plan(4, rows(n, 2, 3), rows(n, 3, 4), None)
    assert plan.function == "gemm_strided_batched_ex_64"
    assert (plan.a, plan.b, plan.c, plan.batch) == ((3, 6), (4, 12), (4, 8), (n,))
    plan = module._plan(4, rows(2, 1, n, 3), rows(3, 3, 4), None)
    assert [place[0] for place in plan.places] == [0, 12 * n]


@pytest.mark.skipif(host_kernels.compiler() is None, reason="there are no kernels")
def test_launches_beyond_32_bits(gpu):
    launcher = kernel("softplus", gpu.backend)
    n = 2**33
    for shape, strides in (((n,), (4,)), ((2, n), (8 * n, 4))):
        plan = launcher.plan(((np.dtype("f4"), shape, strides),), -1, 0)
        assert plan.results == ((shape, np.dtype("f4")),)
        assert plan.blocks == 2**14
        rows, columns = struct.unpack_from("2q", plan.head)
        assert rows * columns >= math.prod(shape) // 16


@pytest.mark.parametrize("batch", [(), (5,)])
def test_the_functions_of_64_bits_do_the_same(gpu, batch):
    a, b = whole(*batch, 2, 3), whole(*batch, 3, 4)
    module._plan.cache_clear()
    with patch.object(module, "_INT", 1):
        ((name, *_),) = check(a, b)
    assert name.endswith("_64")
    module._plan.cache_clear()


# The binding by ctypes, on a library that writes down what it is given

SOURCE = """
#include <string.h>
static long long seen[32];
static int count;
extern "C" long long eg_seen(int i) { return i < count ? seen[i] : -1; }
extern "C" const char* cublasGetStatusName(int status) {
  return status == 3 ? "CUBLAS_STATUS_ALLOC_FAILED" : "CUBLAS_STATUS_OTHER";
}
#define P const void*
#define SEEN(...) long long all[] = {__VA_ARGS__}; \\
  count = sizeof all / sizeof *all; memcpy(seen, all, sizeof all); return *all ? 0 : 3
#define I(x) (long long)(x)
extern "C" int cublasCreate_v2(void** h) { *h = (void*)77; return 0; }
extern "C" int cublasDestroy_v2(P h) { SEEN(I(h)); }
extern "C" int cublasSetStream_v2(P h, P s) { SEEN(I(h), I(s)); }
extern "C" int cublasSetWorkspace_v2(P h, P w, size_t n) { SEEN(I(h), I(w), I(n)); }
extern "C" int cublasSetMathMode(P h, int m) { SEEN(I(h), m); }
#define GEMM(name, Z) extern "C" int name(P h, int s, int t, Z m, Z n, Z k, P alpha, \\
    P a, int ta, Z lda, P b, int tb, Z ldb, P beta, P c, int tc, Z ldc, int w, int g) \\
  { SEEN(I(h), s, t, m, n, k, I(alpha), I(a), ta, lda, I(b), tb, ldb, I(beta), I(c), \\
         tc, ldc, w, g); }
GEMM(cublasGemmEx, int)
GEMM(cublasGemmEx_64, long long)
#define BATCHED(name, Z) extern "C" int name(P h, int s, int t, Z m, Z n, Z k, \\
    P alpha, P a, int ta, Z lda, long long sa, P b, int tb, Z ldb, long long sb, \\
    P beta, P c, int tc, Z ldc, long long sc, Z batch, int w, int g) \\
  { SEEN(I(h), s, t, m, n, k, I(alpha), I(a), ta, lda, sa, I(b), tb, ldb, sb, \\
         I(beta), I(c), tc, ldc, sc, batch, w, g); }
BATCHED(cublasGemmStridedBatchedEx, int)
#ifndef OLD
BATCHED(cublasGemmStridedBatchedEx_64, long long)
#endif
"""


@pytest.fixture
def built(tmp_path):
    """Build the library; give its path."""
    compiler = host_kernels.compiler()
    if compiler is None or sys.platform == "win32":
        pytest.skip("no C++ compiler")

    def build(*options):
        source, made = tmp_path / "blas.cpp", tmp_path / "libblas.so"
        source.write_text(SOURCE)
        command = [compiler, "-shared", "-fPIC", *options, source, "-o", made]
        subprocess.run(command, check=True)
        return str(made)

    return build


def test_ctypes_passes_what_it_is_given(built):
    path = built()
    library, seen = cublas.Loaded(path), ctypes.CDLL(path).eg_seen
    seen.restype = ctypes.c_longlong
    assert library.create() == 77
    far = 2**40  # beyond an int, as pointers and steps are
    sizes = {"p": far, "i": -1, "l": far, "z": far}
    for name, (_, letters) in cublas._FUNCTIONS.items():
        letters = letters.replace(" ", "")
        given = [sizes[x] + i for i, x in enumerate(letters)]
        getattr(library, name)(*given)
        assert [seen(i) for i in range(len(given) + 1)] == [*given, -1], name
    with pytest.raises(KernelError, match=r"^cublasSetStream_v2: CUBLAS_STATUS_ALLOC"):
        library.set_stream(0, 1)
    assert not hasattr(library, "gemm")


def test_a_library_without_the_functions_of_64_bits(built):
    library = cublas.Loaded(built("-DOLD"))
    with pytest.raises(
        KernelError, match=r"has no cublasGemmStridedBatchedEx_64: it is"
    ):
        library.gemm_strided_batched_ex_64(1)
    assert callable(library.gemm_ex)


@pytest.fixture
def nvmath(monkeypatch):
    """A binding of nvmath's, which is found as installed."""
    binding = SimpleNamespace(get_cudart_version=lambda: 12090)
    for name in ("nvmath", "nvmath.bindings", "nvmath.bindings.cublas"):
        monkeypatch.setitem(sys.modules, name, binding)
    monkeypatch.setattr(cublas, "library", cublas.library.__wrapped__)
    monkeypatch.setattr(cublas, "_places", lambda major: [])
    cublas._of_nvmath.cache_clear()
    yield binding
    cublas._of_nvmath.cache_clear()


def test_the_binding_of_nvmath_comes_first(nvmath):
    assert cublas.library(12) is nvmath
    assert cublas.library(13) is None  # it is not for this CUDA
    assert cublas.report() == [("cuBLAS", "by nvmath.bindings.cublas")]


def test_a_binding_of_nvmath_without_its_library(nvmath, caplog):
    def fail():
        raise RuntimeError("libcublas was not found")

    nvmath.get_cudart_version = fail
    with caplog.at_level("INFO", "eagergrad"):
        assert cublas.library(12) is None
    assert "nvmath's cuBLAS cannot be used: libcublas was not found" in caplog.text


def test_the_library_is_looked_for_by_its_version(built, monkeypatch):
    path = built()
    monkeypatch.setattr(cublas, "_places", lambda major: ["missing.so", path])
    assert cublas.library.__wrapped__(12).path == path
    monkeypatch.setattr(cublas, "library", cublas.library.__wrapped__)
    assert cublas.report() == [("cuBLAS", "libblas.so, by ctypes")]
    monkeypatch.setattr(cublas, "_places", lambda major: ["missing.so"])
    assert cublas.library(12) is None
    assert cublas.report() == [("cuBLAS", "not installed: products stay with CuPy")]
    asked = []
    monkeypatch.setattr(cublas, "library", lambda major: asked.append(major))
    driver = SimpleNamespace(version=lambda: 12)
    monkeypatch.setitem(BACKENDS, "cuda", SimpleNamespace(driver=driver))
    cublas.report()
    assert asked == [12]  # where there are GPUs it is CuPy's


@pytest.mark.skipif(sys.platform == "win32", reason="it has other names there")
def test_where_the_library_may_be(monkeypatch):
    monkeypatch.setenv("CUDA_PATH", "/opt/cuda")
    places = list(cublas._places(12))
    assert places[-2:] == ["libcublas.so.12", "/opt/cuda/lib64/libcublas.so.12"]
    assert all(place.endswith("libcublas.so.12") for place in places)
