"""Every op of the registry forward: the values, dtypes and shapes that NumPy gives.

A new op is tested by existing; see ``op_cases.py`` for what it may have to add there.
"""

import cases_arranging
import cases_fft
import cases_linalg
import cases_reductions
import cases_special
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from op_cases import (
    ALL,
    BINARY,
    CASES,
    FLAGS,
    PARTS,
    ROWS,
    SHIFTS,
    UNARY,
    draw,
    is_list,
    is_plain,
)

import eagergrad as eg
from eagergrad.primitive import OPS

FLOATS = ["float16", "float32", "float64"]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5])
SHAPES = [(), (0,), (1,), (1, 1), (3, 0), (2, 3)]


BITS = [op for op in BINARY if op.name in FLAGS + SHIFTS]
FLOAT_UNARY = [op for op in UNARY if is_plain(op)]
FLOAT_BINARY = [op for op in BINARY if is_plain(op)]


def named(op):
    return op.name


def _scattered(x, index, shape):
    out = np.zeros(shape, x.dtype)
    np.add.at(out, index, x)
    return out


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softmax(x, axis):
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


def _one_hot(x, labels):
    return np.arange(x.shape[-1]) == labels[..., None]


def _cross_entropy(x, labels, mean):
    losses = -np.log((_softmax(x, -1) * _one_hot(x, labels)).sum(-1))
    return losses.mean() if mean else losses


def _dense(x, w, b, activation):
    z = x @ w + b
    return {"": z, "relu": np.where(z > 0, z, 0), "tanh": np.tanh(z)}[activation]


# What an op computes that NumPy has no function for, in the plainest words.
REFERENCES = {
    **cases_arranging.REFERENCES,
    **cases_linalg.REFERENCES,
    **cases_fft.REFERENCES,
    **cases_reductions.REFERENCES,
    **cases_special.REFERENCES,
    "split": lambda x, cuts, axis: np.concatenate(np.split(x, cuts, axis), None),
    "quotient": lambda a, b: np.where(a == 0, 0 * a, a / np.where(a == 0, 1, b)),
    "product": lambda a, b: np.where(a == 0, 0 * a, a * np.where(a == 0, 1, b)),
    "sigmoid": _sigmoid,
    "sigmoid_slope": lambda x: _sigmoid(x) * _sigmoid(-x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "column_sum": lambda x: x.sum(0),
    "relu": lambda x: np.maximum(x, 0),
    "gate": lambda g, y: np.where(y > 0, g, 0),
    "identity": lambda x: x,
    "astype": lambda x, dtype, origin: x.astype(dtype),
    "to": lambda x, target, origin: x,
    "real": lambda x, dtype: x.real,
    "imag": lambda x, dtype: x.imag,
    "getitem": lambda x, index: x[index],
    "scatter_add": _scattered,
    "reshape": lambda x, shape: x.reshape(shape),
    "logsumexp": lambda x, axis, keepdims: np.log(
        np.exp(x).sum(axis, keepdims=keepdims)
    ),
    "softmax": _softmax,
    "log_softmax": lambda x, axis: np.log(_softmax(x, axis)),
    "integer_cross_entropy": _cross_entropy,
    "dense": _dense,
}


def reference(op, arrays, params=()):
    """What NumPy makes of it."""
    if op.name in REFERENCES:
        return REFERENCES[op.name](*arrays, *params)
    options = dict(zip(op.params, params, strict=True))
    if is_list(op):
        arrays = [arrays]
    return getattr(np, op.name)(*arrays, **options)


def agree(got, expected, dtype="float64"):
    """Equal shapes, and values up to the rounding of a dtype."""
    got, expected = got.numpy(), np.asarray(expected)
    assert got.shape == expected.shape
    rtol = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(got.astype(expected.dtype), expected, rtol, rtol)


def test_every_op_has_cases_and_a_reference():
    without_case = [n for n, cases in CASES.items() if not cases and n not in PARTS]
    without_reference = [n for n in CASES if n not in REFERENCES and not hasattr(np, n)]
    assert without_case == [], "give these a row in op_cases.py"
    assert set(without_reference) <= set(PARTS), "give these a line in REFERENCES"
    assert set(ROWS) | set(REFERENCES) | set(PARTS) <= set(OPS), "these are gone"


def test_every_op_has_a_rule_or_a_derivative_of_zero():
    """A row without a rule would raise at the user's first gradient."""
    bare = [
        op.name
        for op in OPS.values()
        if op.recorded and any(rule and rule.__name__ == "rule" for rule in op.rules)
    ]
    assert bare == []


WHOLE_LINE = [
    op for op in OPS.values() if is_plain(op) and op.recorded and op.domain is None
]


@pytest.mark.parametrize("op", WHOLE_LINE, ids=named)
def test_an_op_without_a_domain_is_finite_on_the_whole_line(op):
    """One that is not says in its row where it is: domain=(low, high)."""
    line = np.linspace(-3, 3, 25)  # with 0, and with the ends of common domains
    arrays = np.meshgrid(*[line] * op.arity)
    with eg.GradientTape() as tape:
        xs = [eg.tensor(x) for x in arrays]
        tape.watch(xs)
        y = op.entry(*xs)
    for result in [y, *tape.gradient(y, xs, unconnected_gradients="zero")]:
        assert np.isfinite(result.numpy()).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", ALL, ids=str)
def test_values_and_dtype(case, dtype):
    arrays = case.cast(dtype)
    exact = reference(case.op, case.cast("float64"), case.params)
    if any(x.dtype.kind == "f" for x in arrays) and case.op.name != "astype":
        rounded = [x.astype("float64") if x.dtype.kind == "f" else x for x in arrays]
        exact = reference(case.op, rounded, case.params)
    y = case(*arrays)
    agree(y, exact, dtype)
    if exact.dtype == "float64" and all(x.dtype.kind == "f" for x in arrays):
        assert y.dtype == (exact.dtype if case.op.name == "astype" else dtype)
    elif exact.dtype.kind in "biu":
        assert y.dtype == exact.dtype


@pytest.mark.parametrize("op", UNARY + BINARY, ids=named)
def test_integers_stay_integers_or_become_float32(op):
    x = np.array([[1, 2, 5], [3, 1, 2]])
    with np.errstate(all="ignore"):  # 2 is outside the domain of arcsin
        expected = np.asarray(reference(op, [x] if op.arity == 1 else [x, x[::-1]]))
    y = op.entry(x) if op.arity == 1 else op.entry(x, x[::-1])
    assert y.dtype == ("float32" if expected.dtype == "float64" else expected.dtype)
    agree(y, expected, "float32")


ONE = np.ones((), "int8")
OF_FLOATS = [
    op
    for op in FLOAT_UNARY + FLOAT_BINARY
    if op.entry(*[ONE] * op.arity).dtype.kind == "f"
]


def close_to_float64(op, dtype):
    """Of short and of unsigned integers the value is that of float64, rounded once."""
    x = np.array([[0, 1, 2], [3, 7, 1]]).astype(dtype)
    arrays = [x, x[::-1]][: op.arity]
    y = op.entry(*arrays).numpy()
    exact = op.entry(*[x.astype("float64") for x in arrays]).numpy()
    assert y.dtype == "float32"
    np.testing.assert_allclose(y, exact, 1e-7, 1e-38)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "uint16", "uint64"])
@pytest.mark.parametrize("op", OF_FLOATS, ids=named)
def test_short_integers_are_not_computed_in_half_precision(op, dtype):
    close_to_float64(op, dtype)


@pytest.mark.usefixtures("composed")
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "uint16", "uint64"])
@pytest.mark.parametrize("op", OF_FLOATS, ids=named)
def test_short_integers_without_kernels(op, dtype):
    close_to_float64(op, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", FLOAT_BINARY, ids=named)
def test_python_numbers_are_weak(op, dtype):
    x = draw((3,), 0.2, 2.0).astype(dtype)
    for arrays in ([x, 1.5], [1.5, x], [x, 2], [2, x]):
        y = op.entry(*arrays)
        expected = reference(op, arrays)
        assert y.dtype == expected.dtype
        agree(y, expected, dtype)


@pytest.mark.parametrize("op", FLOAT_BINARY, ids=named)
def test_an_integer_tensor_takes_the_dtype_of_a_floating_one(op):
    x, n = draw((3,), 0.2, 2.0).astype("float32"), np.array([1, 2, 3])
    for a, b in ([x, n], [n, x]):
        y = op.entry(a, b)
        agree(y, reference(op, [a.astype("float32"), b.astype("float32")]), "float32")
        assert y.dtype.itemsize <= 4


@pytest.mark.parametrize("op", BINARY, ids=named)
def test_broadcasting(op):
    for first in [*SHAPES, (3,), (2, 1), (4, 1, 3)]:
        for second in [*SHAPES, (3,), (2, 1), (4, 1, 3)]:
            a, b = draw(first, 0.2, 2.0), draw(second, 0.3, 2.1)
            if op in BITS:
                a, b = a > 1, b > 1
            try:
                np.broadcast_shapes(first, second)
            except ValueError:
                with pytest.raises(
                    eg.errors.ShapeError, match=f"{op.name}: .*broadcast"
                ):
                    op.entry(a, b)
            else:
                agree(op.entry(a, b), reference(op, [a, b]))


@pytest.mark.parametrize("op", UNARY, ids=named)
def test_shapes_and_strides(op):
    low, high = op.domain or (0.2, 2.0)
    for shape in SHAPES:
        x = draw(shape, low, high)
        x = x > 1 if op.name == "invert" else x
        y = op.entry(x)
        assert type(y) is eg.Tensor
        assert type(y._data) is np.ndarray
        agree(y, reference(op, [x]))
    x = draw((4, 6), low, high)
    x = x > 1 if op.name == "invert" else x
    for view in (x.T, x[::2, ::-3], x[:, 2], np.broadcast_to(x[0], (3, 6))):
        agree(op.entry(view), reference(op, [view]))


@pytest.mark.parametrize("op", FLOAT_UNARY, ids=named)
def test_infinities_and_nans_pass_as_in_numpy(op):
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(op, [SPECIAL]))
        got = op.entry(SPECIAL).numpy()
    if op.name in REFERENCES:
        return np.testing.assert_allclose(got, expected, rtol=1e-15)
    np.testing.assert_array_equal(got, expected)
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("op", FLOAT_BINARY, ids=named)
def test_infinities_and_nans_pass_as_in_numpy_in_pairs(op):
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(op, [SPECIAL[:, None], SPECIAL]))
        got = op.entry(SPECIAL[:, None], SPECIAL).numpy()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "logsumexp"])
@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf])
def test_infinities_and_nans_in_reductions(name, x):
    values = np.array([[1.0, x, 2.0], [0.5, 1.0, 1.5], [x, x, x]])
    with np.errstate(all="ignore"):
        expected = reference(OPS[name], [values], (1, False))
        got = getattr(eg, name)(values, axis=1).numpy()
    np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("name", ["sum", "any", "all", "logsumexp", "mean"])
def test_reductions_of_nothing(name, shape):
    x = np.ones(shape)
    for axis in (None, 0, -1):
        for keep in (False, True):
            got = getattr(eg, name)(x, axis=axis, keepdims=keep)
            with np.errstate(all="ignore"):
                if name == "mean":
                    expected = np.sum(x, axis=axis, keepdims=keep)
                    expected = expected / (x.size if axis is None else shape[axis])
                else:
                    expected = reference(OPS[name], [x], (axis, keep))
            np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extremes_of_nothing_raise(name):
    with pytest.raises(eg.errors.ShapeError, match=f"{name}: .*\\(0,\\)"):
        getattr(eg, name)(np.ones((0,)))
    assert getattr(eg, name)(np.ones((0, 3)), axis=1).shape == (0,)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_nothing(name, dtype):
    for shape in [(0, 3), (2, 0, 3)]:
        y = getattr(eg, name)(np.ones(shape, dtype))
        assert y.shape == shape
        assert y.dtype == dtype


# Where the input space is combinatorial

random_shapes = settings(max_examples=60, deadline=None, derandomize=True)
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@random_shapes
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3))
def test_broadcasting_of_any_shapes(found):
    a, b = (draw(shape) for shape in found.input_shapes)
    agree(eg.add(a, b), a + b)
    agree(eg.where(a > 0, a, b), np.where(a > 0, a, b))
    agree(
        eg.broadcast_to(a, found.result_shape), np.broadcast_to(a, found.result_shape)
    )


@random_shapes
@given(st.data())
def test_transpose_of_any_axes(data):
    shape = data.draw(shapes)
    axes = data.draw(st.permutations(range(len(shape))))
    signed = [i - len(shape) if data.draw(st.booleans()) else i for i in axes]
    x = draw(shape)
    agree(eg.transpose(x, signed), x.transpose(axes))


@random_shapes
@given(st.data())
def test_reshape_to_any_factors(data):
    shape = data.draw(shapes)
    x = draw(shape)
    order = data.draw(st.permutations([1, *shape]))
    agree(eg.reshape(x, order), x.reshape(order))
    if x.size:
        place = data.draw(st.integers(0, len(order) - 1))
        order[place] = -1
        agree(eg.reshape(x, order), x.reshape(order))


@random_shapes
@given(st.data())
def test_any_index(data):
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=4))
    index = data.draw(
        hnp.basic_indices(shape, allow_newaxis=True)
        | hnp.integer_array_indices(shape)
        | hnp.arrays(np.bool_, shape)
    )
    x = draw(shape)
    agree(eg.getitem(x, index), x[index])


@random_shapes
@given(st.data())
def test_reductions_over_any_axes(data):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
    x = draw(shape)
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)) if shape else st.just(()))
    axes, keep = tuple(axes), data.draw(st.booleans())
    agree(eg.sum(x, axes, keep), x.sum(axis=axes, keepdims=keep))
    if x.size:
        agree(eg.max(x, axes, keep), x.max(axis=axes, keepdims=keep))
        exact = np.log(np.exp(x).sum(axis=axes, keepdims=keep))
        agree(eg.logsumexp(x, axes, keep), exact)
