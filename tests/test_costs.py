"""What gradients cost, counted in ops, bytes and launches: nothing here is timed."""

import tracemalloc

import numpy as np
import op_rows
import ops
import pytest
import standin
from op_cases import draw
from standin import COUNTS, KERNELS

import eagergrad as eg
from eagergrad import host_kernels
from eagergrad.counters import COUNTERS
from eagergrad.ops.clipping import _two_norm

# Their gradients are the cotangent itself, or a view of it.
VIEWS = """add broadcast_to concatenate flip identity mean onto_diagonal positive
    reshape stack sum to transpose""".split()


def peak_of_gradient(name):
    """The bytes a gradient takes at most, by those of the op's largest array."""
    row = op_rows.row(name, "large")
    call, sources = ops.on_tensors(row)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        y = call()
    outputs = list(y) if row.op.several else [y]
    ones = [eg.ones_like(y) for y in outputs]
    tape.gradient(outputs, sources, ones)  # what is made once is made now
    tracemalloc.start()
    try:
        tape.gradient(outputs, sources, ones)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak / max(x.numpy().nbytes for x in [*sources, *outputs])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_memory_of_every_gradient_is_a_few_arrays():
    """None makes a matrix of an elementwise Jacobian, or an array for each step."""
    peaks = {name: peak_of_gradient(name) for name in op_rows.names("large", True)}
    assert {name: peak for name, peak in peaks.items() if peak > 13} == {}


@pytest.mark.parametrize("name", VIEWS)
def test_gradients_that_are_views_take_no_memory(name):
    assert peak_of_gradient(name) < 0.02


def test_the_gradient_of_a_sum_is_one_number_seen_everywhere():
    x = eg.tensor(draw((3, 4)))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.sum(x)
    grad = tape.gradient(y, x)
    assert grad.shape == (3, 4)
    assert grad._data.strides == (0, 0)


def ops_of_gradient(f, *shapes):
    """The names of the ops that the gradient of f is made by, in order."""
    xs = [eg.tensor(draw(shape)) for shape in shapes]
    with eg.GradientTape() as outer:
        with eg.GradientTape() as tape:
            tape.watch(xs)
            y = f(*xs)
        seed = eg.ones_like(y)
        outer.watch(seed)
        grads = tape.gradient(y, xs, seed)
    assert [grad.shape for grad in grads] == list(shapes)
    return [entry.name for entry in outer.entries()]


@pytest.mark.parametrize(
    ("f", "shapes", "expected"),
    [
        (lambda x: x[1:, None], [(3, 2)], "scatter_add"),
        (lambda x: x[np.array([0, 2, 0])], [(3, 2)], "scatter_add"),
        (lambda x: eg.take(x, [2, 0], 1), [(2, 3)], "scatter_add"),
        (lambda x: eg.sum(x), [(3, 2)], "broadcast_to"),
        (lambda x: eg.sum(x, (0, 2)), [(3, 2, 2)], "reshape broadcast_to"),
        (lambda x: eg.broadcast_to(x, (4, 2, 3)), [(2, 1)], "sum reshape"),
        (lambda a, b: a + b, [(2, 3), (3,)], "column_sum"),
        (lambda a, b: a + b, [(4, 2, 3), (1, 3)], "sum reshape"),
        (lambda a, b: a + b, [(2, 1), (1, 3)], "sum reshape sum reshape"),
        (lambda a, b: a + b, [(1, 3), (3,)], "reshape"),
        (lambda a, b: a * b, [(2, 3), ()], "multiply multiply sum"),
        (lambda a, b: eg.concatenate([a, b]), [(2,), (3,)], "getitem getitem"),
        (lambda a, b: a @ b, [(2, 3), (3, 4)], "matmul matmul"),
        (lambda a, b: a @ b, [(2, 3), (3,)], "matmul multiply reshape"),
        (lambda a, b: a @ b, [(3,), (3, 4)], "matmul multiply reshape"),
        (eg.relu, [(3,)], "gate"),
    ],
)
def test_ops_of_a_gradient(f, shapes, expected):
    assert sorted(ops_of_gradient(f, *shapes)) == sorted(expected.split())


# On a GPU: the launches of kernels, those of CuPy's functions, products of matrices

hosted = pytest.mark.skipif(
    host_kernels.compiler() is None, reason="kernels are not compiled here"
)
LABELS = np.arange(6) % 4
IMAGES, FILTERS = (2, 4, 9, 8), (16, 4, 3, 3)
BUDGETS = {
    "layer_norm": (eg.layer_norm, [(64, 300), (300,), (300,)], (1, 0, 0), (2, 0, 0)),
    "layer_norm of few rows": (
        eg.layer_norm,
        [(16, 40), (40,), (40,)],
        (1, 0, 0),
        (1, 0, 0),
    ),
    "rms_norm": (eg.rms_norm, [(64, 300), (300,)], (1, 0, 0), (2, 0, 0)),
    "batch_norm": (eg.batch_norm, [IMAGES, (4,), (4,)], (1, 0, 0), (1, 0, 0)),
    "batch_norm alone": (eg.batch_norm, [IMAGES], (1, 0, 0), (1, 0, 0)),
    "softmax": (eg.softmax, [(5, 7)], (1, 0, 0), (1, 0, 0)),
    "dropout": (lambda x: eg.dropout(x, 0.5), [(40, 30)], (1, 0, 0), (1, 0, 0)),
    "bias": (lambda x, b: x + b, [(64, 10), (10,)], (0, 1, 0), (1, 0, 0)),
    "bias of a large batch": (
        lambda x, b: x + b,
        [(1200, 10), (10,)],
        (0, 1, 0),
        (2, 0, 0),
    ),
    "max_pool": (lambda x: eg.max_pool(x, 2), [IMAGES], (1, 0, 0), (1, 0, 0)),
    "avg_pool": (lambda x: eg.avg_pool(x, 3, 1, 1), [IMAGES], (1, 0, 0), (1, 0, 0)),
    # the image unfolded; that folded, and for the filter both operands laid out
    "conv2d": (eg.conv2d, [IMAGES, FILTERS], (1, 0, 1), (2, 1, 2)),
    "conv2d with padding": (
        lambda x, w: eg.conv2d(x, w, 2, "same", (1, 2)),
        [IMAGES, FILTERS],
        (1, 0, 1),
        (2, 1, 2),
    ),
    "depthwise_conv2d": (
        lambda x, w: eg.depthwise_conv2d(x, w, padding=1),
        [IMAGES, (8, 1, 3, 3)],
        (1, 0, 2),  # a product for each image: four filters make no one
        (2, 1, 3),
    ),
    # nothing to unfold
    "conv2d of single places": (
        eg.conv2d,
        [IMAGES, (16, 4, 1, 1)],
        (0, 0, 1),
        (1, 2, 2),
    ),
    "conv2d of the whole image": (
        eg.conv2d,
        [IMAGES, (16, 4, 9, 8)],
        (0, 0, 1),
        (1, 0, 2),
    ),
    "conv_transpose": (
        lambda x, w: eg.conv_transpose(x, w, 2),
        [(2, 16, 4, 3), FILTERS],
        (1, 0, 1),
        (2, 1, 2),
    ),
}


def launches(f):
    """The launches of a call, and its result: kernels, CuPy's functions, products."""
    COUNTERS.clear()
    before = COUNTS.copy()
    result = f()
    made = COUNTS - before
    assert (COUNTERS.copies, COUNTERS.syncs) == (0, 0)
    kernels = COUNTERS.launches - made["products"]
    return (kernels, made["launches"], made["products"]), result


@hosted
@pytest.mark.parametrize("name", BUDGETS)
def test_launches_of_an_op_and_its_gradient(name):
    f, shapes, forward, backward = BUDGETS[name]
    with standin.installed() as gpu:
        xs = [eg.tensor(draw(shape).astype("f4"), device=gpu) for shape in shapes]
        with eg.GradientTape() as tape:
            tape.watch(xs)
            made, y = launches(lambda: f(*xs))
        seed = eg.tensor(draw(y.shape).astype("f4"), device=gpu)
        assert made == forward
        assert launches(lambda: tape.gradient(y, xs, seed))[0] == backward


@hosted
def test_the_gradient_of_an_embedding_is_one_launch():
    with standin.installed() as gpu:
        table = eg.tensor(draw((5, 3)), device=gpu)
        ids = eg.tensor(np.array([[0, 4], [4, 1]]), device=gpu)
        with eg.GradientTape() as tape:
            tape.watch(table)
            y = eg.embedding(table, ids)
        assert launches(lambda: tape.gradient(y, table, y))[0] == (1, 0, 0)
        assert KERNELS["scatter_add_double"] == 1


@hosted
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("draw", [eg.random.uniform, eg.random.normal])
def test_random_numbers_are_one_launch(draw, dtype):
    with standin.installed() as gpu:
        made, x = launches(lambda: draw(size=(3, 5), dtype=dtype, device=gpu))
        assert (made, x.dtype) == ((1, 0, 0), dtype)


@hosted
def test_a_norm_is_two_launches():
    """One for the norms of parts, and one for the norm of those."""
    with standin.installed() as gpu:
        x = eg.tensor(draw((200, 200)), device=gpu)
        assert launches(lambda: _two_norm(x))[0] == (2, 0, 0)


@hosted
def test_memory_on_the_way_is_counted():
    """Sums down columns are kept once between two launches."""
    with standin.installed() as gpu:
        x, b = (eg.tensor(draw(n), device=gpu) for n in ((1200, 10), (10,)))
        with eg.GradientTape() as tape:
            tape.watch(b)
            y = x + b
        COUNTERS.clear()
        tape.gradient(y, b, x)
        assert (COUNTERS.launches, COUNTERS.allocations) == (2, 2)
