"""What gradients cost, counted in ops and in bytes: nothing here is timed."""

import tracemalloc

import numpy as np
import op_rows
import ops
import pytest
from op_cases import draw

import eagergrad as eg

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
