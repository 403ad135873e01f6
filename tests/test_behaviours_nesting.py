"""The behaviours of nested tapes and of Jacobians.

The tests with a number in their name are the rows of the table of behaviours.
"""

import numpy as np
import pytest

import eagergrad as eg


def values(structure):
    """The numbers of a structure of tensors; None stays None."""
    return eg.nest.map_structure(lambda t: t if t is None else t.tolist(), structure)


def diagonal(*numbers):
    return np.diag(numbers).tolist()


# Nested tapes


def test_220_inner_gradient_taken_outside_outer():
    x = eg.constant(3.0)
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = x * x
    g = inner.gradient(y, x)
    assert g.item() == 6.0
    assert outer.gradient(g, x) is None


def test_221_watching_is_per_tape():
    x1 = eg.Variable(2.0, trainable=False)
    x2 = eg.Variable(2.0, trainable=False)
    with eg.GradientTape() as outer:
        outer.watch(x1)
        with eg.GradientTape() as inner:
            inner.watch([x1, x2])
            y = x1**3
            z = x2**2
        dy, dz = inner.gradient([y, z], [x1, x2])
    assert values((dy, dz)) == (12.0, 4.0)
    assert values(outer.gradient([dy, dz], [x1, x2])) == [12.0, None]


def test_222_two_tapes_with_their_own_sources():
    x0, x1 = eg.constant(0.0), eg.constant(0.0)
    with eg.GradientTape() as first, eg.GradientTape() as second:
        first.watch(x0)
        second.watch(x1)
        y = eg.sin(x0) + eg.sigmoid(x1)
    assert first.gradient(y, x0).item() == 1.0
    assert second.gradient(y, x1).item() == 0.25


def test_224_persistent_pair():
    x = eg.constant(3.0)
    with eg.GradientTape(persistent=True) as outer:
        outer.watch(x)
        y = x * x
        with eg.GradientTape(persistent=True) as inner:
            inner.watch(y)
            z = 2 * y
        for _ in range(2):
            assert inner.gradient(z, [y])[0].item() == 2.0
        y += inner.gradient(z, [y])[0]
        del inner
    assert outer.gradient(y, x).item() == 6.0
    assert outer.gradient(z, x).item() == 12.0


def test_225_outer_gradient_during_inner_recording():
    x = eg.constant(3.0)
    with eg.GradientTape() as a:
        a.watch(x)
        with eg.GradientTape() as b:
            b.watch(x)
            y = x * x
            g = a.gradient(y, x)
    assert g.item() == 6.0
    assert b.gradient(g, x).item() == 2.0


def test_226_gradient_penalty():
    w = eg.Variable([[2.0], [1.0]])
    x = eg.constant([[1.0, 3.0]])
    with eg.GradientTape() as outer:
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = eg.sum((x @ w) ** 2)
        dx = inner.gradient(y, x)
        penalty = eg.sum(dx**2)
    assert dx.tolist() == [[20.0, 10.0]]
    assert penalty.item() == 500.0
    assert outer.gradient(penalty, w).tolist() == [[600.0], [800.0]]


# Jacobians


def squares(numbers, **options):
    """A tape that recorded y = x², with x and y."""
    x = eg.constant(numbers)
    with eg.GradientTape(**options) as tape:
        tape.watch(x)
        y = x * x
    return tape, x, y


def test_228_jacobian():
    tape, x, y = squares([1.0, 2.0])
    assert tape.jacobian(y, x).tolist() == diagonal(2.0, 4.0)


def test_229_jacobian_two_sources():
    x, y = eg.constant([1.0, 2.0]), eg.constant([3.0, 4.0])
    with eg.GradientTape() as tape:
        tape.watch([x, y])
        z = x * x * y
    assert values(tape.jacobian(z, [x, y])) == [diagonal(6.0, 16.0), diagonal(1.0, 4.0)]


def test_230_jacobian_shapes():
    x = eg.ones((2, 3))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x @ eg.ones((3, 4))
    assert tape.jacobian(y, x).shape == (2, 4, 2, 3)


def test_232_jacobian_unconnected():
    w = eg.zeros(3)
    tape, x, y = squares([1.0, 2.0], persistent=True)
    connected = diagonal(2.0, 4.0)
    assert values(tape.jacobian(y, [x, w])) == [connected, None]
    zeros = values(tape.jacobian(y, [x, w], unconnected_gradients="zero"))
    assert zeros == [connected, [[0.0] * 3] * 2]


def test_233_jacobian_consumes_the_tape():
    tape, x, y = squares([1.0, 2.0])
    tape.jacobian(y, x)
    with pytest.raises(RuntimeError, match="already used"):
        tape.gradient(y, x)


@pytest.mark.parametrize("persistent", [False, True])
def test_234_jacobian_inside_the_block(persistent):
    x = eg.constant([1.0, 2.0])
    with eg.GradientTape(persistent) as tape:
        tape.watch(x)
        y = x * x
        j = tape.jacobian(y, x)
    assert j.tolist() == diagonal(2.0, 4.0)


def test_236_batch_jacobian():
    tape, x, y = squares([[1.0, 2.0], [3.0, 4.0]])
    expected = [diagonal(2.0, 4.0), diagonal(6.0, 8.0)]
    assert tape.batch_jacobian(y, x).tolist() == expected


def test_237_batch_jacobian_with_data():
    x = eg.constant([[1.0, 2.0], [3.0, 4.0]])
    y = eg.constant([[3.0, 4.0], [5.0, 6.0]])
    with eg.GradientTape() as tape:
        tape.watch(x)
        z = x * x * y
    expected = [diagonal(6.0, 16.0), diagonal(30.0, 48.0)]
    assert tape.batch_jacobian(z, x).tolist() == expected


def test_238_batch_jacobian_bad_shapes():
    tape, x, y = squares([1.0, 2.0])
    with pytest.raises(ValueError, match="at least two axes"):
        tape.batch_jacobian(y, x)
    x = eg.ones((4, 2))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x[:2] * x[2:]
    with pytest.raises(ValueError, match=r"target is \(2, 2\), source \(4, 2\)"):
        tape.batch_jacobian(y, x)
    assert tape.jacobian(y, x).shape == (2, 2, 4, 2)  # the tape is not used up


# More of Jacobians


def test_jacobian_of_and_by_a_scalar():
    x, s = eg.constant([1.0, 2.0]), eg.constant(3.0)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch([x, s])
        y = x * s
        total = eg.sum(y)
    assert tape.jacobian(y, s).tolist() == [1.0, 2.0]
    assert tape.jacobian(total, x).tolist() == [3.0, 3.0]


def test_jacobian_of_and_by_structures():
    x, w = eg.constant([1.0, 2.0]), eg.Variable(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        target = {"y": x * w, "s": [w * w]}
    j = tape.jacobian(target, {"w": w, "x": (x,)})
    assert values(j) == {
        "y": {"w": [1.0, 2.0], "x": (diagonal(3.0, 3.0),)},
        "s": [{"w": 6.0, "x": (None,)}],
    }


def test_jacobian_of_a_variable():
    v = eg.Variable([1.0, 2.0])
    with eg.GradientTape() as tape:
        v.read_value()
    assert tape.jacobian(v, v).tolist() == diagonal(1.0, 1.0)


@pytest.mark.parametrize(
    "options", [{"experimental_use_pfor": False}, {"parallel_iterations": 1}]
)
def test_jacobian_options_change_no_value(options):
    tape, x, y = squares([1.0, 2.0])
    assert tape.jacobian(y, x, **options).tolist() == diagonal(2.0, 4.0)
    tape, x, y = squares([[1.0, 2.0]])
    assert tape.batch_jacobian(y, x, **options).tolist() == [diagonal(2.0, 4.0)]


def test_jacobian_of_picking_rows_is_dense():
    x = eg.constant([1.0, 2.0, 3.0])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.take(x, [2, 0, 2])
    assert tape.jacobian(y, x).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]


def test_jacobian_of_nothing():
    tape, x, y = squares(np.zeros(0, np.float32))
    assert tape.jacobian(y, x).shape == (0, 0)


def test_jacobian_unknown_option_keeps_the_tape():
    tape, x, y = squares([1.0, 2.0])
    for method in (tape.jacobian, tape.batch_jacobian):
        with pytest.raises(ValueError, match="'none' or 'zero'"):
            method(y, x, unconnected_gradients="nil")
    assert tape.jacobian(y, x).tolist() == diagonal(2.0, 4.0)


def test_jacobian_is_differentiable():
    x = eg.constant([1.0, 2.0])
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = x * x * x
        j = inner.jacobian(y, x)
    assert j.tolist() == diagonal(3.0, 12.0)
    assert outer.gradient(j, x).tolist() == [6.0, 12.0]


def test_hessian_by_jacobian_of_gradient():
    x = eg.constant([1.0, 2.0])
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = x[0] * x[0] * x[1]
        g = inner.gradient(y, x)
    assert g.tolist() == [4.0, 1.0]
    assert outer.jacobian(g, x).tolist() == [[4.0, 2.0], [2.0, 0.0]]


# More of batch Jacobians


def test_batch_jacobian_shape():
    x = eg.ones((5, 2, 3))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.sum(x * x, axis=2)
    assert tape.batch_jacobian(y, x).shape == (5, 2, 2, 3)


def test_batch_jacobian_by_a_structure():
    x, w = eg.constant([[1.0, 2.0]]), eg.constant([[3.0, 4.0]])
    with eg.GradientTape() as tape:
        tape.watch([x, w])
        y = x * w
    j = tape.batch_jacobian(y, {"x": x, "w": w})
    assert values(j) == {"x": [diagonal(3.0, 4.0)], "w": [diagonal(1.0, 2.0)]}


def test_batch_jacobian_unconnected():
    w = eg.zeros((2, 3), "float64")
    tape, _, y = squares([[1.0, 2.0], [3.0, 4.0]], persistent=True)
    assert tape.batch_jacobian(y, w) is None
    zeros = tape.batch_jacobian(y, w, unconnected_gradients="zero")
    assert zeros.dtype == np.float64
    assert zeros.tolist() == np.zeros((2, 2, 3)).tolist()


def centred(check):
    x = eg.constant([[1.0, 2.0], [3.0, 4.0]])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x - eg.mean(x, axis=0)
    return tape.batch_jacobian(y, x, check=check)


def test_batch_jacobian_check_finds_rows_that_mix():
    assert centred(check=False).tolist() == [diagonal(0.0, 0.0)] * 2
    with pytest.raises(ValueError, match="depends on other rows"):
        centred(check=True)
    tape, x, y = squares([[1.0, 2.0], [3.0, 4.0]])
    expected = [diagonal(2.0, 4.0), diagonal(6.0, 8.0)]
    assert tape.batch_jacobian(y, x, check=True).tolist() == expected


def test_batch_jacobian_check_looks_at_every_row():
    x = eg.constant([[1.0], [2.0], [3.0]])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.concatenate([x[:1], x[1:2] * x[2:], x[2:]])
    with pytest.raises(ValueError, match="depends on other rows"):
        tape.batch_jacobian(y, x, check=True)


def test_batch_jacobian_of_nothing():
    tape, x, y = squares(np.zeros((1, 0), np.float32))
    assert tape.batch_jacobian(y, x).shape == (1, 0, 0)


def test_batch_jacobian_consumes_the_tape():
    tape, x, y = squares([[1.0, 2.0]])
    tape.batch_jacobian(y, x)
    with pytest.raises(RuntimeError, match="already used"):
        tape.gradient(y, x)
