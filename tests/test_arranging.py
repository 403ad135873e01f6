"""Joining, repeating, turning and padding: the values of NumPy, and right gradients."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.testing import check_grads

X = np.arange(24.0).reshape(2, 3, 4) ** 1.5
M = X[0]
V = np.array([1.0, -2.0, 4.0])

CALLS = [
    ("moveaxis", X, 0, -1),
    ("moveaxis", X, [0, 1], [-1, 0]),
    ("rollaxis", X, 2),
    ("rollaxis", X, 0, 3),
    ("permute_dims", X, (2, 0, 1)),
    ("flip", X),
    ("flip", X, (0, -1)),
    ("fliplr", M),
    ("flipud", V),
    *[("rot90", X, k, axes) for k in (-1, 0, 1, 2, 3, 4) for axes in [(0, 1), (2, 0)]],
    ("roll", X, 5),
    ("roll", X, (1, -2), (0, 2)),
    ("atleast_1d", np.array(2.0)),
    ("atleast_2d", V),
    ("atleast_3d", V),
    ("atleast_3d", M),
    ("tile", V, 2),
    ("tile", V, 0),
    ("tile", M, (2, 1, 3)),
    ("tile", X, (2,)),
    ("tile", np.array(3.0), (2, 2)),
    ("repeat", M, 2),
    ("repeat", M, 2, 0),
    ("repeat", M, 0, 1),
    ("repeat", V, [2, 0, 1]),
    ("repeat", M, [1, 2, 0], -2),
    ("resize", V, (2, 4)),
    ("resize", V, 2),
    ("append", M, V),
    ("append", M, M[:1], 0),
    ("insert", V, 1, 9.0),
    ("insert", V, [0, 2], 9.0),
    ("insert", V, [2, 0], [8.0, 9.0]),
    ("insert", M, 1, V, 1),
    ("insert", M, 1, np.ones((4,)), 0),
    ("insert", M, [1, 1], np.ones((3, 2)), 1),
    ("insert", V, slice(0, 2), 7.0),
    ("delete", V, 1),
    ("delete", M, [0, -1], 1),
    ("delete", M, slice(0, 2), 0),
    ("pad", V, 2),
    ("pad", M, ((1, 2), (0, 3))),
    ("pad", M, {1: (1, 2)}),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_values_and_gradients(call):
    name, x, *rest = call
    got = getattr(eg, name)(x, *rest)
    expected = getattr(np, name)(x, *rest)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.numpy(), expected)
    check_grads(lambda x: getattr(eg, name)(x, *rest), [x])
    view = np.asfortranarray(x)
    np.testing.assert_array_equal(getattr(eg, name)(view, *rest).numpy(), expected)
    whole = getattr(eg, name)(x.astype("int64"), *rest)
    assert whole.dtype == getattr(np, name)(x.astype("int64"), *rest).dtype or rest


LISTS = [
    ("vstack", [V, V + 1]),
    ("vstack", [M, M[:1]]),
    ("hstack", [V, V[:1]]),
    ("hstack", [M, M[:, :1]]),
    ("hstack", [np.array(1.0), V]),
    ("dstack", [V, V + 1]),
    ("dstack", [X, X[..., :1]]),
    ("column_stack", [V, V + 1]),
    ("column_stack", [V, M]),
    ("block", [V, V]),
    ("block", [[M, M], [M[:1], M[:1]]]),
    ("block", [[V, 5.0]]),
]


@pytest.mark.parametrize(("name", "arrays"), LISTS)
def test_joining(name, arrays):
    np.testing.assert_array_equal(
        getattr(eg, name)(arrays).numpy(), getattr(np, name)(arrays)
    )
    if not isinstance(arrays[0], list):
        check_grads(lambda *xs: getattr(eg, name)(list(xs)), arrays)


@pytest.mark.parametrize(
    ("name", "x", "cuts"),
    [
        ("array_split", V, 2),
        ("array_split", np.arange(7.0), 3),
        ("array_split", V, 5),
        ("array_split", V, [1, 1]),
        ("hsplit", V, 3),
        ("hsplit", M, [1]),
        ("vsplit", M, 3),
        ("dsplit", X, 2),
        ("unstack", X, 1),
        ("unstack", np.arange(13.0), 0),
    ],
)
def test_cutting(name, x, cuts):
    got = getattr(eg, name)(x, cuts)
    expected = (
        list(np.moveaxis(x, cuts, 0))
        if name == "unstack"
        else getattr(np, name)(x, cuts)
    )
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g.numpy(), e)
        assert g.shape == e.shape
    check_grads(lambda x: getattr(eg, name)(x, cuts), [x])


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [True, False])
def test_meshgrid(indexing, sparse):
    for vectors in [(V,), (V, M[0]), (V, M[0], np.array(2.0))]:
        got = eg.meshgrid(*vectors, indexing=indexing, sparse=sparse)
        expected = np.meshgrid(*vectors, indexing=indexing, sparse=sparse)
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_array_equal(g.numpy(), e)
    check_grads(lambda x, y: eg.meshgrid(x, y, indexing=indexing), [V, M[0]])


def test_broadcasting_and_tri():
    got = eg.broadcast_arrays(V, np.ones((2, 1)), 3.0)
    assert [x.shape for x in got] == [(2, 3)] * 3
    check_grads(lambda x, y: eg.broadcast_arrays(x, y), [V, np.ones((2, 1))])
    np.testing.assert_array_equal(eg.tri(2, 4, 1, "int64").numpy(), np.tri(2, 4, 1))
    assert eg.tri(2, dtype=None).dtype == "float32"
    assert eg.broadcast_shapes((2, 1), 3) == (2, 3)
    assert [x.shape for x in eg.atleast_1d(1.0, V)] == [(1,), (3,)]


PADS = [
    ("constant", {"constant_values": 2.5}),
    ("constant", {"constant_values": ((1, 2), (3, 4))}),
    ("constant", {"constant_values": -np.inf}),
    ("edge", {}),
    ("wrap", {}),
    ("reflect", {}),
    ("symmetric", {}),
    ("reflect", {"reflect_type": "odd"}),
    ("symmetric", {"reflect_type": "odd"}),
    ("linear_ramp", {}),
    ("linear_ramp", {"end_values": ((1, 2), (3, 4.5))}),
    ("maximum", {}),
    ("maximum", {"stat_length": 2}),
    ("minimum", {"stat_length": ((1, 2), (3, 1))}),
    ("mean", {}),
    ("mean", {"stat_length": 2}),
    ("median", {}),
    ("median", {"stat_length": 3}),
]


@pytest.mark.parametrize(("mode", "options"), PADS)
@pytest.mark.parametrize("width", [1, ((2, 1), (0, 5)), ((7, 8), (9, 10))])
def test_pad(mode, options, width):
    x = np.random.default_rng(3).normal(size=(3, 4))
    expected = np.pad(x, width, mode, **options)
    np.testing.assert_allclose(
        eg.pad(x, width, mode, **options).numpy(), expected, 1e-13, 1e-13
    )
    infinite = np.isinf(expected).any()
    for dtype in ("float32",) if infinite else ("float32", "int64"):
        got = eg.pad((8 * x).astype(dtype), width, mode, **options)
        assert got.dtype == dtype
    if not infinite:
        check_grads(lambda x: eg.pad(x, width, mode, **options), [x])


def test_positions_out_of_range():
    with pytest.raises(IndexError, match="insert: index 7"):
        eg.insert(V, 7, 1.0)
    with pytest.raises(IndexError, match="delete: index 7"):
        eg.delete(V, 7)
    assert eg.repeat(np.zeros(0), []).shape == (0,)


def test_pad_of_one_element_and_of_none():
    one = np.array([3.0])
    for mode, options in PADS:
        if np.ndim(next(iter(options.values()), 0)) == 0:
            np.testing.assert_allclose(
                eg.pad(one, 3, mode, **options).numpy(),
                np.pad(one, 3, mode, **options),
            )
    assert eg.pad(np.ones((0, 2)), 1).shape == (2, 4)
    assert eg.pad(np.array(2.0), 0).shape == ()
    got = eg.pad(np.array([np.inf, 1.0, 2.0]), 1, "reflect", reflect_type="odd")
    np.testing.assert_array_equal(got.numpy(), [np.inf, np.inf, 1, 2, 3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eg.pad(V, 1, "mirror"), "pad: expected a mode"),
        (lambda: eg.pad(V, 1, "edge", end_values=1), "takes no end_values"),
        (lambda: eg.pad(V, -1), "at least 0"),
        (lambda: eg.pad(V, (1, 2, 3)), "pad_width"),
        (lambda: eg.pad(np.ones(0), 1, "edge"), "pad: mode .edge."),
        (lambda: eg.moveaxis(X, [0, 0], [1, 2]), "moveaxis: "),
        (lambda: eg.moveaxis(X, 3, 0), "moveaxis: axis 3"),
        (lambda: eg.repeat(V, [1, 2]), "repeat: expected 1 or 3"),
        (lambda: eg.repeat(V, -1), "repeat: "),
        (lambda: eg.tile(V, -1), "tile: "),
        (lambda: eg.rot90(X, 1, (0, 0)), "rot90: "),
        (lambda: eg.fliplr(V), "fliplr: "),
        (lambda: eg.block([V, [V]]), "block: "),
        (lambda: eg.array_split(V, 0), "array_split: "),
        (lambda: eg.meshgrid(V, indexing="yx"), "meshgrid: "),
        (lambda: eg.broadcast_shapes((2,), (3,)), "broadcast_shapes: "),
        (lambda: eg.unstack(np.array(1.0)), "unstack: "),
    ],
)
def test_errors(call, message):
    with pytest.raises(eg.errors.ShapeError, match=message):
        call()
