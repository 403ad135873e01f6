"""Calls of NumPy's loops give the bits that NumPy's functions give."""

import itertools

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import host_kernels, loops

pytestmark = pytest.mark.skipif(
    host_kernels.problem() is not None, reason="no C++ compiler here"
)
rng = np.random.default_rng(0)


def called(function, args, kwargs=None):
    """What the function gives, and what its loops write; None where it has none."""
    kwargs = kwargs or {}
    expected = np.asarray(function(*args, **kwargs))
    out = np.full_like(expected, 7)
    calls = loops.calls_of(function, args, kwargs, [out])
    if calls is None:
        return expected, None
    loops.Run(calls)()
    return expected, out


def same(function, args, kwargs=None):
    expected, got = called(function, args, kwargs)
    assert got is not None
    assert got.tobytes() == expected.tobytes(), (function, kwargs)


def test_they_are_used_where_there_is_a_compiler():
    assert loops.ready()


SHAPES = [(1,), (5,), (300,), (8193,), (3, 4), (64, 128), (128, 10), (5, 64, 33)]


@pytest.mark.parametrize("shape", [*SHAPES, (4, 1, 300)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_reductions(shape, dtype):
    whole = dtype == "int64"
    x = rng.integers(-3, 3, shape) if whole else rng.normal(1, 0.1, shape)
    x = x.astype(dtype)
    places = range(len(shape))
    axes = [None, -1, *places, *itertools.combinations(places, 2)]
    served = 0
    for axis, keepdims in itertools.product(axes, (False, True)):
        for ufunc in (np.add, np.multiply, np.maximum, np.minimum):
            options = {"axis": axis, "keepdims": keepdims}
            expected, got = called(ufunc.reduce, (x,), options)
            served += got is not None
            assert got is None or got.tobytes() == expected.tobytes()
    assert served > len(axes)


@pytest.mark.parametrize("shape", [(4, 3, 5), (64, 20), (300, 7), (5, 64, 33)])
def test_reductions_of_parts_have_the_order_of_numpy(shape):
    whole = rng.normal(1, 0.3, shape).astype("f4")
    rest = (slice(None),) * (len(shape) - 1)
    parts = [whole[1:], whole[::2], whole[:, 1:], whole[(*rest, slice(None, None, 3))]]
    served = set()
    for x in parts:
        places = range(len(shape))
        for axis in [None, *places, *itertools.combinations(places, 2)]:
            expected, got = called(np.add.reduce, (x,), {"axis": axis})
            served.add(got is not None)
            assert got is None or got.tobytes() == expected.tobytes()
    assert served == {True, False}


@pytest.mark.parametrize("values", [[-0.0], [-0.0, -0.0], [np.nan, 1.0], [-0.0, 0.0]])
def test_signs_and_nan_in_reductions(values):
    for ufunc in (np.add, np.multiply, np.maximum, np.minimum):
        same(ufunc.reduce, (np.array(values),), {"axis": None})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shapes",
    [
        *[((5,), (5,)), ((8,), (8, 16)), ((5, 8), (8,)), ((1, 8), (8, 16))],
        *[((64, 64), (64, 128)), ((64, 128), (128, 10)), ((3, 1), (1, 7))],
        *[((1, 1), (1, 1)), ((16, 1), (1, 1)), ((128, 64), (64, 1))],
    ],
)
def test_products_are_those_of_dot_and_matmul(shapes, dtype):
    a, b = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    for function in (np.dot, np.ndarray.dot, np.matmul):
        if function is np.matmul and 1 in (a.ndim, b.ndim):
            continue
        for x, y in itertools.product((a, a.T.copy().T), (b, b.T.copy().T)):
            same(function, (x, y))


def test_batched_products():
    a, b = rng.normal(size=(2, 1, 3, 4)), rng.normal(size=(5, 4, 2))
    same(np.matmul, (a, b))


def test_what_blas_would_copy_is_left_to_numpy():
    a = rng.normal(size=(6, 8))[::2, ::2]
    assert called(np.dot, (a, a.T))[1] is None


A, B = rng.normal(size=(64, 128)).astype("f"), rng.normal(size=128).astype("f")
BRANCHED = rng.normal(size=(4, 3, 5)).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (np.add, (A, B), {}),
        (np.multiply, (A, 2.0), {}),
        (np.subtract, (1, A.T), {}),
        (np.exp, (BRANCHED,), {}),
        (np.greater, (A, B), {}),
        (np.add, (BRANCHED, BRANCHED[:, :1]), {}),
        (np.logical_not, (A > 0,), {}),
        (np.concatenate, ([A, A[:3]],), {}),
        (np.concatenate, ([A, A[:, :1]],), {"axis": 1}),
        (np.concatenate, ([A, B],), {"axis": None}),
        (np.stack, ([A, A],), {"axis": -1}),
        (np.stack, ([np.array(2.0), np.ones(())],), {}),
        (np.ndarray.copy, (BRANCHED,), {}),
        (np.ndarray.reshape, (BRANCHED, (60,)), {}),
        (np.ascontiguousarray, (A.T,), {}),
        (np.zeros_like, (A,), {}),
        (np.where, (A > 0, A, -A), {}),
        (np.where, (A > 0, A, 0.0), {}),
        (np.where, (A > 0, -np.inf, A), {}),
        (np.where, (A.T > 0, B[:, None], 2.0), {}),
        (np.where, (BRANCHED > 0, BRANCHED, BRANCHED[::-1]), {}),
        (np.where, (B > 0, A.astype("f2"), B.astype("f2")), {}),
        (np.where, (B > 0, A > 0, False), {}),
        (np.ndarray.sum, (A,), {"axis": 0}),
        (np.ndarray.sum, (A,), {}),
        (np.ndarray.max, (A, 1), {}),
    ],
)
def test_functions(function, args, kwargs):
    same(function, args, kwargs)


@pytest.mark.parametrize("function", [np.expm1, np.log1p, np.arctan, np.sinh, np.tanh])
@pytest.mark.parametrize("shape", [(1,), (7,), (1, 1), (2, 1, 3)])
def test_numbers_that_are_read_backwards_round_as_numpy_rounds_them(function, shape):
    """NumPy's loops for vectors and for negative steps differ in the last bit."""
    for seed in range(20):
        x = np.random.default_rng(seed).uniform(-0.9, 0.9, shape).astype("f4")
        for view in x[::-1], np.flip(x), x[..., ::-1]:
            expected, got = called(function, (view,))
            buffered = view.size > 1 and view.strides[-1] < 0 < view.strides[0]
            assert (got is None) == buffered
            assert got is None or got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("args", [(A, B.astype("d")), (A.astype(">f4"), A), (A, None)])
def test_what_needs_a_cast_is_left_to_numpy(args):
    out = np.empty(A.shape)
    assert loops.calls_of(np.add, args, {}, [out]) is None


def test_results_may_replace_an_operand_but_not_a_part_of_it():
    x = np.arange(6.0)
    loops.Run(loops.calls_of(np.multiply, (x, x), {"out": (x,)}, []))()
    assert x.tolist() == [0.0, 1.0, 4.0, 9.0, 16.0, 25.0]
    assert loops.calls_of(np.add, (x[1:], x[1:]), {"out": x[:-1]}, []) is None


@pytest.mark.parametrize("index", [2, -1, slice(1, 3), (slice(None), 1), (..., None)])
def test_assignments(index):
    x, value = np.zeros((4, 3)), rng.normal(size=np.zeros((4, 3))[index].shape)
    expected = x.copy()
    expected[index] = value
    loops.Run(loops.calls_of(np.ndarray.__setitem__, (x, index, value), {}, []))()
    assert x.tolist() == expected.tolist()
    assert loops.calls_of(np.ndarray.__setitem__, (x, [0, 1], 1.0), {}, []) is None


def test_a_run_reads_and_writes_where_it_is_told():
    x, y = np.ones((3, 4)), np.zeros((3, 4))
    run = loops.Run(loops.calls_of(np.add, (x[1:], 1.0), {}, [y[1:]]))
    other, to = np.full((3, 4), 5.0), np.zeros((3, 4))
    run.pointers(x)(other)
    run.pointers(y)(to)
    run()
    assert to.tolist() == [[0.0] * 4, [6.0] * 4, [6.0] * 4]
    assert not y.any()


# ------------------------------------------------------------------- within programs


def test_large_inputs_and_results_are_not_copied():
    f = eg.function(lambda x: (eg.exp(x), x[10:] * 2.0))
    x, other = (rng.normal(size=40_000).astype("f") for _ in "ab")
    f(eg.tensor(x))
    for values in (x, other, other[::-1]):
        y, z = f(eg.asarray(values))
        np.testing.assert_allclose(y.numpy(), np.exp(values), rtol=3e-7)
        assert z.numpy().tolist() == (values[10:] * 2).tolist()
    first, second = f(eg.asarray(x))[0], f(eg.asarray(other))[0]
    assert first.numpy().tolist() != second.numpy().tolist()


@pytest.mark.parametrize("shape", [(40_000,), (200, 200)])
def test_a_large_input_that_is_returned_is_a_copy(shape):
    f = eg.function(lambda x: (x.reshape(shape), x + 1.0))
    f(eg.zeros((40_000,)))
    x = rng.normal(size=40_000)
    y, z = f(eg.asarray(x))
    kept = x.copy()
    x[:] = 0
    assert y.numpy().reshape(-1).tolist() == kept.tolist()
    assert z.numpy().tolist() == (kept + 1.0).tolist()


def test_an_optimizer_moves_variables_whose_old_values_are_returned():
    w, v = eg.Variable([1.0, 2.0]), eg.Variable([3.0])
    optimizer = eg.optim.SGD(0.5, momentum=0.5)

    @eg.function
    def step(x):
        before = w.read_value()
        with eg.GradientTape() as tape:
            loss = eg.sum(w * x) * v
        pairs = zip(tape.gradient(loss, [w, v]), [w, v], strict=True)
        optimizer.apply_gradients(pairs)
        return before, before * 2.0, w.read_value()

    eager_w, eager_v = eg.Variable([1.0, 2.0]), eg.Variable([3.0])
    eager_optimizer = eg.optim.SGD(0.5, momentum=0.5)
    for x in ([1.0, 1.0], [2.0, -1.0], [0.5, 3.0], [1.0, 0.0]):
        x = eg.tensor(x)
        old = eager_w.tolist()
        with eg.GradientTape() as tape:
            loss = eg.sum(eager_w * x) * eager_v
        gradients = tape.gradient(loss, [eager_w, eager_v])
        eager_optimizer.apply_gradients(zip(gradients, [eager_w, eager_v], strict=True))
        before, twice, after = step(x)
        assert before.tolist() == old
        assert twice.tolist() == [2 * y for y in old]
        assert after.tolist() == w.tolist() == eager_w.tolist()
        assert v.tolist() == eager_v.tolist()


def test_nothing_in_a_program_is_wider_than_in_the_function():
    def loss(x):
        return -eg.sum(eg.log(2.0 + eg.sum(eg.exp(x * 3)))) / 27 * 2.0

    @eg.function
    def gradient(x):
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = loss(x)
        return tape.gradient(y, x)

    x = eg.ones((3,), dtype="float32")
    gradient(x)
    assert "float64" not in str(gradient.program(x))


def test_a_step_is_one_run_after_its_counter():
    w = eg.Variable(np.ones((3, 2), np.float32))
    optimizer = eg.optim.Adam()

    @eg.function
    def step(x):
        with eg.GradientTape() as tape:
            loss = eg.mean(eg.relu(x @ w))
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])
        return loss

    x = eg.ones((4, 3), dtype="float32")
    step(x)
    program = step.program(x)
    within = [isinstance(call, loops.Call) for call in program.calls]
    assert within == [False] + [True] * (len(within) - 1)
    assert f"{len(within) - 1} of them of loops in 1 run" in str(program)


# rows, columns between, columns; of a panel and less, of a tile and less
PRODUCTS = [
    *((1, 1, 1), (8, 5, 32), (64, 128, 128), (7, 3, 31), (65, 10, 33), (5, 1024, 17)),
    *((3, 64, 10), (9, 2, 64), (2, 3, 100), (128, 64, 1)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_products_in_panels(sizes, dtype):
    m, k, n = sizes
    a, b = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    wide = np.zeros((m, 2 * k), dtype)
    wide[:, ::2] = a
    firsts = a, np.asfortranarray(a), wide[:, ::2], a[::-1]
    seconds = b, np.asfortranarray(b), np.repeat(b, 2, 0)[::2], b[:, ::-1]
    eps = np.finfo(dtype).eps
    right = a.astype("f8") @ b.astype("f8")
    bound = k * eps * (np.abs(a) @ np.abs(b))
    found = set()
    for x, y in itertools.product(firsts, seconds):
        for out in np.full((m, n), 7, dtype), np.full((m, 2 * n), 7, dtype)[:, :n]:
            call = loops._of_ufunc(np.matmul, (x, y), {}, [out])
            if call is None:  # BLAS does not take it
                continue
            assert call.faster
            loops.Run([call], exact=False)()
            expected = right[::-1] if x is firsts[3] else right
            expected = expected[:, ::-1] if y is seconds[3] else expected
            assert (np.abs(out - expected) <= bound).all()
            found.add(out.tobytes())
    assert len(found) == 1  # however the factors lie


def test_the_bits_of_a_product_in_panels_are_those_of_fused_sums():
    a, b = rng.normal(size=(3, 50)), rng.normal(size=(50, 40))
    x, y = a.astype("f4"), b.astype("f4")
    out = np.zeros((3, 40), "f4")
    loops.Run([loops._of_ufunc(np.matmul, (x, y), {}, [out])], exact=False)()
    fused, rounded = np.zeros((2, 3, 40), "f4")
    for i in range(50):  # in float64 a product of float32 is exact, and a sum nearly
        term = x[:, i, None].astype("f8") * y[i].astype("f8")
        fused = (fused.astype("f8") + term).astype("f4")
        rounded = rounded + term.astype("f4")  # on CPUs without such an instruction
    assert out.tobytes() in (fused.tobytes(), rounded.tobytes())


def test_a_product_of_what_is_not_finite_or_nothing():
    a, b = np.ones((2, 3), "f4"), np.ones((3, 40), "f4")
    a[0, 1], b[2, 5] = np.nan, np.inf
    out = np.zeros((2, 40), "f4")
    loops.Run([loops._of_ufunc(np.matmul, (a, b), {}, [out])], exact=False)()
    np.testing.assert_array_equal(out, a @ b)
    none = np.full((2, 4), 7.0, "f4")
    call = loops._of_ufunc(np.matmul, (a[:, :0], np.zeros((0, 4), "f4")), {}, [none])
    assert call is None or not call.faster


def test_products_with_gaps_or_too_large_stay_with_blas():
    def faster(a, b, out):
        call = loops._of_ufunc(np.matmul, (a, b), {}, [out])
        return call is not None and bool(call.faster)

    a, b = np.ones((64, 64), "f4"), np.ones((64, 64), "f4")
    assert faster(a, b, np.zeros((64, 64), "f4"))
    assert not faster(a, b, np.zeros((64, 64), "f4", order="F"))
    assert not faster(a.astype("F"), b.astype("F"), np.zeros((64, 64), "F"))
    large = np.ones((512, 512), "f4")
    assert not faster(large, large, np.zeros((512, 512), "f4"))


def test_a_batch_of_products_in_panels():
    a, b = rng.normal(size=(5, 6, 7)), rng.normal(size=(5, 7, 8))
    out = np.zeros((5, 6, 8))
    loops.Run([loops._of_ufunc(np.matmul, (a, b), {}, [out])], exact=False)()
    np.testing.assert_allclose(out, a @ b, rtol=1e-13, atol=1e-13)


def test_what_is_scattered_lies_as_in_eager_programs():
    """A sum goes over memory as it lies: by columns it has other bits."""
    x = eg.tensor(np.random.default_rng(0).normal(size=(7, 1000)))

    def f(x):
        return eg.sum(eg.exp(eg.pad(x.T, [(1, 0), (1, 0)])))

    captured = eg.function(f, exact=True)
    captured(x)
    assert captured(x).item() == f(x).item()
