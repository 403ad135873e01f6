"""Gathering, putting and choosing: against NumPy, and by hand at the edges."""

import numpy as np
import pytest
from op_cases import draw

import eagergrad as eg
from eagergrad.primitive import OPS
from eagergrad.testing import check_grads

X = draw((3, 4))


def close(got, expected):
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got.numpy(), expected, 1e-12)


def gradient(f, *arrays):
    """The gradient of the sum of f by each array, in one list."""
    xs = [eg.tensor(np.asarray(x, "float64")) for x in arrays]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    found = [g.tolist() for g in tape.gradient(y, xs)]
    return found[0] if len(found) == 1 else found


# ------------------------------------------------------------------------ along an axis


@pytest.mark.parametrize(
    ("indices", "axis"),
    [
        ([[2, 0, 2, 1]], 0),
        ([[3, -1], [0, 0], [1, 2]], 1),
        ([[1, 0, 0, 2], [0, 0, 0, 0]], 0),
        ([[1, 2]], -1),
        ([5, 0, 5], None),
        (np.zeros((3, 0), int), 1),
    ],
    ids=str,
)
def test_take_along_axis(indices, axis):
    indices = np.array(indices)
    for x in (X, np.asfortranarray(X), X[:, ::-1]):
        expected = np.take_along_axis(x, indices, axis)
        close(eg.take_along_axis(x, indices, axis), expected)
        close(eg.take_along_axis(x, eg.tensor(indices), axis), expected)
    check_grads(lambda x: eg.take_along_axis(x, indices, axis), [X])


def test_take_along_axis_adds_up_over_repeats():
    found = gradient(lambda x: eg.take_along_axis(x, [[1, 1, 0]], 1), [[5, 6]])
    assert found == [[1, 2]]
    narrow = gradient(lambda x: eg.take_along_axis(x, [[0, 0], [0, 0]], 1), [[5]])
    assert narrow == [[4]]


def test_put_along_axis():
    indices = np.array([[2], [0], [3]])
    for values in (7.0, draw((3, 1)), np.array([[1.0], [2.0], [3.0]])):
        expected = X.copy()
        np.put_along_axis(expected, indices, values, 1)
        x = eg.tensor(X)
        close(eg.put_along_axis(x, indices, values, 1), expected)
        close(x, X)
    check_grads(lambda x, v: eg.put_along_axis(x, indices, v, 1), [X, draw((3, 1))])
    flat = eg.put_along_axis(X, [0, 5], np.array([1.0, 2.0]), None)
    assert flat.numpy().ravel()[[0, 5]].tolist() == [1, 2]


def test_what_does_not_fit_is_named():
    with pytest.raises(eg.errors.ShapeError, match="as many axes in indices as in x"):
        eg.take_along_axis(X, [0], 1)
    with pytest.raises(eg.errors.ShapeError, match="beside axis 1 the lengths must"):
        eg.take_along_axis(X, [[0], [1]], 1)
    with pytest.raises(eg.errors.DTypeError, match="expected integer indices, got"):
        eg.take_along_axis(X, [[0.0]], 1)
    with pytest.raises(IndexError, match="out of bounds"):
        eg.take_along_axis(X, [[9]], 1)


# -------------------------------------------------------------------------- x.at[index]

INDICES = [
    1,
    slice(None, None, 2),
    (slice(None), -1),
    np.array([2, 0]),
    (np.array([0, 2]), np.array([1, 1])),
    X > 0,
    (..., None, 0),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("name", ["set", "add", "multiply", "min", "max"])
def test_changes_at_an_index(name, index):
    ufuncs = {"add": np.add, "multiply": np.multiply, "min": np.minimum}
    ufuncs["max"] = np.maximum
    for v in (0.5, draw(X[index].shape)):
        expected = X.copy()
        if name == "set":
            expected[index] = v
        else:
            ufuncs[name].at(expected, index, v)
        x = eg.tensor(X)
        close(getattr(x.at[index], name)(v), expected)
        close(x, X)
        check_grads(lambda x, v: getattr(x.at[index], name)(v), [X, np.asarray(v)])


REPEATED = np.array([1, 0, 1, 1])


@pytest.mark.parametrize("name", ["set", "add", "multiply", "min", "max"])
def test_repeated_places(name):
    x, v = np.array([2.0, 3.0, 5.0]), np.array([1.0, 4.0, 0.5, 7.0])
    expected = {
        "set": [4, 7, 5],
        "add": [6, 11.5, 5],
        "multiply": [8, 10.5, 5],
        "min": [2, 0.5, 5],
        "max": [4, 7, 5],
    }
    close(getattr(eg.tensor(x).at[REPEATED], name)(v), expected[name])
    check_grads(lambda x, v: getattr(x.at[REPEATED], name)(v), [x, v], 3)
    check_grads(lambda x, v: getattr(x.at[REPEATED], name)(v), [x, np.array(1.5)])
    pairs = (np.array([0, 2, 0]), np.array([1, 1, 1]))
    check_grads(lambda x, v: getattr(x.at[pairs], name)(v), [X, v[:3]])


def test_of_values_set_at_one_place_the_last_has_the_gradient():
    found = gradient(lambda x, v: x.at[REPEATED].set(v), [0] * 3, [1] * 4)
    assert found == [[0, 0, 1], [0, 1, 0, 1]]


def test_products_at_one_place_with_zeros():
    zeros = np.array([0.0, 4, 2, 0])
    check_grads(lambda x, v: x.at[REPEATED].multiply(v), [np.ones(3), zeros])
    found = gradient(lambda x, v: x.at[[0, 0]].multiply(v), [3], [0, 5])
    assert found == [[0], [15, 0]]


def test_equal_extremes_share_the_gradient():
    found = gradient(lambda x, v: x.at[[0, 0]].max(v), [3, 1], [3, 2])
    assert found == [[0.5, 1], [0.5, 0]]
    found = gradient(lambda x, v: x.at[[0, 0]].min(v), [3], [2, 2])
    assert found == [[0], [0.5, 0.5]]


def test_at_keeps_the_dtype():
    x = eg.tensor([1.0, 2.0], dtype="float16")
    for name in ("set", "add", "multiply", "min", "max"):
        for v in (2, 0.5, np.float64(3), eg.tensor(1.0)):
            assert getattr(x.at[0], name)(v).dtype == "float16"
    assert eg.tensor([1, 2]).at[0].set(5).tolist() == [5, 2]
    for v in (0.5, eg.tensor(0.5)):
        with pytest.raises(eg.errors.DTypeError, match=r"at.set: .* cast one of them"):
            eg.tensor([1, 2]).at[0].set(v)
    with pytest.raises(eg.errors.ShapeError, match=r"at.add: expected values that"):
        x.at[:1].add([1.0, 2.0])
    with pytest.raises(eg.errors.DTypeError, match="expected an index"):
        x.at.set(1.0)


def test_at_of_nothing():
    for name in ("set", "add", "multiply", "min", "max"):
        empty = np.zeros(0, int)
        found = getattr(eg.tensor([1.0, 2.0]).at[empty], name)(5.0)
        assert found.tolist() == [1, 2]


# ---------------------------------------------------------------------------- segments


def test_segment_sum():
    ids = np.array([2, 0, 2])
    for rows in (X, X[:, :0], X[:, 0], X.reshape(3, 2, 2)):
        expected = np.zeros((4, *rows.shape[1:]))
        np.add.at(expected, ids, rows)
        close(eg.segment_sum(rows, ids, 4), expected)
    assert eg.segment_sum([1.0, 2.0, 3.0], [0, 0, 2]).tolist() == [3, 0, 3]
    assert eg.segment_sum(np.zeros((0, 2)), []).shape == (0, 2)
    assert eg.segment_sum(np.zeros((0, 2)), [], 3).shape == (3, 2)
    ones = eg.segment_sum(np.ones(5000, "float16"), np.zeros(5000, int))
    assert ones.tolist() == [5000]
    with pytest.raises(eg.errors.ShapeError, match="an id for each row of x"):
        eg.segment_sum(X, [0, 1])
    with pytest.raises(IndexError, match=r"indices lie in \[0, 2\), got 2"):
        eg.segment_sum(X, ids, 2)


class Other:
    """An array module that is not NumPy: functions take the way of CuPy."""

    def __getattr__(self, name):
        return getattr(np, name)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_the_way_of_cupy(dtype):
    ids = np.array([3, 0, 3, 3, 1, 0, 3, 3, 3])
    x, rtol = draw((9, 2)).astype(dtype), 1e-12 if dtype == "float64" else 1e-2
    forward = OPS["segment_sum"].forward
    found, expected = (forward(xp, x, ids, 5) for xp in (Other(), np))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol)
    base = draw((5, 2)).astype(dtype)
    x[4, 0] = np.nan
    for name in ("set_at", "min_at", "max_at"):
        forward = OPS[name].forward
        found, expected = (forward(xp, base, x, ids) for xp in (Other(), np))
        np.testing.assert_array_equal(found, expected)
    x[4, 0] = 1.0
    for name in ("cummax", "logcumsumexp"):
        running = getattr(eg, name).__globals__["_running"]
        ufunc = np.maximum if name == "cummax" else np.logaddexp
        for axis in (0, 1):
            expected = ufunc.accumulate(x, axis)
            found = running(Other(), ufunc, x, axis)
            np.testing.assert_allclose(found, expected, rtol)
    factors = draw((9, 2))
    factors[3] = 0
    forward = OPS["recurrence"].forward
    found, expected = (forward(xp, factors, x, 0, True) for xp in (Other(), np))
    np.testing.assert_allclose(found, expected, rtol)


def test_bincount():
    close(eg.bincount([1, 3, 1]), [0, 2, 0, 1])
    close(eg.bincount([], minlength=2), [0, 0])
    weights = draw((3,))
    close(eg.bincount([1, 3, 1], weights, 6), np.bincount([1, 3, 1], weights, 6))
    check_grads(lambda w: eg.bincount([1, 3, 1], w), [weights])
    with pytest.raises(eg.errors.ShapeError, match="bincount: expected one axis"):
        eg.bincount([[1]])
    with pytest.raises(IndexError, match="bincount: indices lie in"):
        eg.bincount([-1])


def test_embedding():
    ids = np.array([[0, 2], [2, 2]])
    close(eg.embedding(X, ids), X[ids])
    assert gradient(lambda t: eg.embedding(t, ids), X[:, :1]) == [[1], [0], [3]]
    check_grads(lambda t: eg.embedding(t, ids), [X])
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match=r"embedding: indices lie in \[0, 3\)"):
            eg.embedding(X, [wrong])


def test_gather_nd():
    close(eg.gather_nd(X, [[0, 1], [2, 3]]), X[[0, 2], [1, 3]])
    close(eg.gather_nd(X, [[[2]], [[0]]]), X[[[2], [0]]])
    close(eg.gather_nd(X, [1, 2]), X[1, 2])
    close(eg.gather_nd(X, np.zeros((2, 0), int)), np.stack([X, X]))
    check_grads(lambda x: eg.gather_nd(x, [[0, 1], [0, 1], [2, 3]]), [X])
    with pytest.raises(eg.errors.ShapeError, match="index vectors of at most 2"):
        eg.gather_nd(X, [[0, 0, 0]])


def test_one_hot():
    close(eg.one_hot([[1], [0]], 2), [[[0, 1]], [[1, 0]]])
    assert eg.one_hot([3, -1], 2, "float64").tolist() == [[0, 0], [0, 0]]
    assert eg.one_hot(eg.tensor(1), 3).tolist() == [0, 1, 0]
    with pytest.raises(eg.errors.DTypeError, match="one_hot: expected integer"):
        eg.one_hot([0.5], 2)


# ------------------------------------------------------------------------------ choices


def test_select():
    conditions, choices = [X < -1, X < 1], [X * 2, X**2]
    close(eg.select(conditions, choices, 3.0), np.select(conditions, choices, 3.0))
    check_grads(lambda x: eg.select(conditions, [x * 2, x**2], 3.0), [X])
    with pytest.raises(eg.errors.ShapeError, match="as many conditions as choices"):
        eg.select(conditions, choices[:1])


def test_select_keeps_what_is_singular_apart():
    found = gradient(lambda x: eg.select([x > 0], [eg.log(x)], 0.0), [0.0, 2.0])
    assert found == [0, 0.5]


def test_choose():
    a = np.array([[0, 2, 1, 0], [1, 1, 2, 0]])
    close(eg.choose(a, [X[0], X[1:2], 5.0]), np.choose(a, [X[0], X[1:2], 5.0]))
    for mode in ("wrap", "clip"):
        expected = np.choose(a - 1, [X[0], X[1]], mode=mode)
        close(eg.choose(a - 1, [X[0], X[1]], mode), expected)
    check_grads(lambda x, y: eg.choose(a % 2, [x, y]), [X[0], X[1:2]])
    with pytest.raises(IndexError, match=r"choose: indices lie in \[0, 2\), got 2"):
        eg.choose(a, [X[0], X[1]])
    with pytest.raises(eg.errors.ShapeError, match="choose: expected mode"):
        eg.choose(a, [X[0]], "none")


def test_compress_and_extract():
    for axis, flags in (
        (0, [True, False, True]),
        (1, [False, True]),
        (None, [1, 0, 1]),
    ):
        close(eg.compress(flags, X, axis), np.compress(flags, X, axis))
        check_grads(lambda x, f=flags, a=axis: eg.compress(f, x, a), [X])
    close(eg.extract(X > 0, X), np.extract(X > 0, X))
    check_grads(lambda x: eg.extract(X > 0, x), [X])
    with pytest.raises(eg.errors.ShapeError, match="a condition of one axis"):
        eg.compress(X > 0, X)


def test_numpy_and_methods_arrive_here():
    x = eg.tensor([3.0, 1.0, 2.0])
    assert isinstance(np.median(x), eg.Tensor)
    assert np.sort(x).tolist() == [1, 2, 3]
    assert np.diff(x).tolist() == [-2, 1]
    assert np.take_along_axis(x, np.array([1]), 0).tolist() == [1]
    assert (x.prod().item(), x.cumsum().tolist()) == (6, [3, 4, 6])
    assert x.var().item() == pytest.approx(2 / 3)
    assert x.argsort().tolist() == [1, 2, 0]
    v = eg.Variable([1.0, 2.0])
    with eg.GradientTape() as tape:
        y = v.at[0].multiply(3.0)
    assert tape.gradient(y, v).tolist() == [3, 1]


def test_forward_mode():
    x, v = draw((3, 4)), draw((3, 4))[::-1].copy()
    for f in (
        lambda x: eg.prod(x, 1),
        lambda x: eg.cumprod(x, 1),
        lambda x: eg.logcumsumexp(x, 0),
        lambda x: eg.nanstd(x, 0),
        lambda x: eg.topk(x, 2)[0],
        lambda x: eg.segment_sum(x, [1, 0, 1]),
        lambda x: x.at[[0, 0]].max(x[1:2] * 2),
        lambda x: x.at[[0, 0]].multiply(x[:2]),
    ):
        primal, h = eg.tensor(x), 1e-6
        with eg.ForwardAccumulator(primal, eg.tensor(v)) as accumulator:
            y = f(primal)
        expected = (f(primal + h * v) - f(primal - h * v)).numpy() / (2 * h)
        got = accumulator.jvp(y).numpy()
        np.testing.assert_allclose(got, expected, 1e-6, 1e-6)


def test_gradients_of_parts_add_up_in_one_array():
    x = eg.tensor(np.arange(12.0).reshape(4, 3))

    def gradient(x):
        with eg.GradientTape() as tape:
            tape.watch(x)
            y = eg.sum(x[0]) + 2.0 * eg.sum(x[1:3]) + 5.0 * x[2, 1]
            y = y + 7.0 * eg.sum(x[..., 0]) + 3.0 * eg.sum(x[[0, 0]])
            y = y + 11.0 * x[-1, None, 2][0] + eg.sum(x[::-2, 1:])
        return tape.gradient(y, x)

    expected = [[14.0, 7.0, 7.0], [9.0, 3.0, 3.0], [9.0, 7.0, 2.0], [7.0, 1.0, 12.0]]
    assert gradient(x).tolist() == expected
    captured = eg.function(gradient)
    captured(eg.zeros((4, 3)))
    assert captured(x).tolist() == expected
    names = [i.name for i in captured.program(x).instructions]
    assert sum("zeros" in name for name in names) <= 2  # one is for the index array


def test_a_part_is_not_added_to_what_somebody_else_holds():
    x, seed = eg.tensor([1.0, 2.0, 3.0]), eg.ones((3,))
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * 1.0
        z = eg.stack([y[0], y[1]])
    held = tape.gradient([y, z], x, [seed, eg.ones((2,))])
    assert held.tolist() == [2.0, 2.0, 1.0]
    assert seed.tolist() == [1.0, 1.0, 1.0]
    assert tape.gradient([y, z], x, [seed, eg.ones((2,))]).tolist() == [2.0, 2.0, 1.0]
