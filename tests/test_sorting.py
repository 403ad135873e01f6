"""Sorting and searching: against NumPy, and by hand where elements are equal."""

import numpy as np
import pytest
from op_cases import draw

import eagergrad as eg
from eagergrad.testing import check_grads


def gradient(f, *arrays):
    """The gradient of the sum of f by each array, in one list."""
    xs = [eg.tensor(np.asarray(x, "float64")) for x in arrays]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    found = [g.tolist() for g in tape.gradient(y, xs)]
    return found[0] if len(found) == 1 else found


def close(got, expected, rtol=1e-12):
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got.numpy(), expected, rtol, 1e-12)


X = draw((2, 3, 4))
HOLES = X.copy()
HOLES[0, 1, 2] = HOLES[1, 0, 0] = HOLES[1, 2, 3] = np.nan


@pytest.mark.parametrize("axis", [None, 0, 1, -1], ids=str)
def test_sorting_against_numpy(axis):
    for x in (X, np.round(X), np.asfortranarray(X), HOLES):
        close(eg.sort(x, axis), np.sort(x, axis))
        close(eg.argsort(x, axis), np.argsort(x, axis, kind="stable"))
        close(eg.sort(eg.partition(x, 1, axis), axis), np.sort(x, axis))
        if x is not HOLES:
            middle = np.take(np.partition(x, 1, axis), 1, axis or 0)
            close(eg.take(eg.partition(x, 1, axis), 1, axis or 0), middle)
    check_grads(lambda x: eg.sort(x, axis), [X])
    check_grads(lambda x: eg.partition(x, 1, axis), [X])


def test_equal_elements_keep_their_order():
    weights = np.array([1.0, 10, 100])
    assert gradient(lambda x: eg.sort(x) * weights, [2, 1, 1]) == [100, 1, 10]
    assert eg.argsort([2, 1, 2, 1]).tolist() == [1, 3, 0, 2]
    values, indices = eg.topk([1.0, 2.0, 2.0, 1.0], 3)
    assert (values.tolist(), indices.tolist()) == ([2, 2, 1], [1, 2, 0])
    values, indices = eg.topk([1.0, 2.0, 2.0, 1.0], 3, largest=False)
    assert (values.tolist(), indices.tolist()) == ([1, 1, 2], [0, 3, 1])


def test_topk():
    for axis in (0, 1, -1):
        values, indices = eg.topk(X, 2, axis)
        expected = np.flip(np.sort(X, axis), axis).take(range(2), axis)
        close(values, expected)
        close(indices, np.flip(np.argsort(X, axis), axis).take(range(2), axis))
        check_grads(lambda x, axis=axis: eg.topk(x, 2, axis)[0], [X])
    assert eg.topk(np.array([3, 1, 2], "uint8"), 2)[0].tolist() == [3, 2]
    assert eg.topk(X, 0)[0].shape == (2, 3, 0)
    with pytest.raises(eg.errors.ShapeError, match=r"topk: expected k in \[0, 4\]"):
        eg.topk(X, 5)


def test_searching():
    a = np.array([1.0, 2.0, 2.0, 3.0])
    for side in ("left", "right"):
        v = np.array([[0.0, 2.0], [3.0, 9.0]])
        close(eg.searchsorted(a, v, side), np.searchsorted(a, v, side))
    assert eg.searchsorted(a, 2.5).item() == 3
    sorter = [1, 2, 3, 0]
    found = eg.searchsorted([9.0, 1.0, 2.0, 3.0], [2.5], sorter=sorter)
    assert found.tolist() == [2]
    with pytest.raises(eg.errors.ShapeError, match="searchsorted: expected a of one"):
        eg.searchsorted(X, 1.0)
    close(eg.flatnonzero(X > 0), np.flatnonzero(X > 0))
    for found, expected in zip(eg.nonzero(X > 0), np.nonzero(X > 0), strict=True):
        close(found, expected)


def test_unique():
    x = np.array([[3.0, 1.0], [3.0, 2.0], [3.0, 1.0]])
    for axis in (None, 0):
        found = eg.unique(x, True, True, True, axis)
        for got, expected in zip(
            found, np.unique(x, True, True, True, axis), strict=True
        ):
            close(got, expected)
    assert gradient(eg.unique, x) == [[1, 1], [0, 1], [0, 0]]
    assert eg.unique([2, 1, 2]).tolist() == [1, 2]
