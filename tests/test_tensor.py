"""Tensor and Variable: construction, dtypes, operators, conversion, state."""

import copy
import operator
import pickle
import re

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import Tensor, Variable


def same(tensor, expected, dtype):
    """Whether a tensor has these values and this dtype."""
    assert type(tensor) is Tensor
    return tensor.tolist() == expected and tensor.dtype == np.dtype(dtype)


# Construction


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1.5, "float32"),
        (1, "int64"),
        (True, "bool"),
        (1 + 2j, "complex64"),
        ([1.5, 2], "float32"),
        ([1, 2], "int64"),
        ([[True], [False]], "bool"),
        ((1.5, 2.5), "float32"),
        (range(3), "int64"),
        ([], "float32"),
        (np.array([1.5]), "float64"),
        (np.array([1.5], "float16"), "float16"),
        (np.array([1], "int32"), "int32"),
        (np.array([1], "uint8"), "uint8"),
        (np.array([1.5 + 2j]), "complex128"),
        (np.float64(1.5), "float64"),
        (np.float32(1.5), "float32"),
        (np.int8(3), "int8"),
        ([np.float64(1.5), 2.5], "float64"),
    ],
)
@pytest.mark.parametrize("make", [eg.tensor, eg.constant, eg.asarray, Tensor, Variable])
def test_dtypes(make, data, dtype):
    made = make(data)
    assert made.dtype == np.dtype(dtype)
    assert made.tolist() == np.array(data).tolist()


@pytest.mark.parametrize("dtype", ["float16", np.float64, np.dtype("int32"), bool])
def test_dtype_asked_for(dtype):
    for make in (eg.tensor, eg.asarray, Variable):
        assert make([1, 0], dtype=dtype).dtype == np.dtype(dtype)


def test_shape_and_its_kin():
    x = eg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert x.shape == (2, 3)
    assert x.ndim == 2
    assert x.size == 6
    assert str(x.device) == "cpu"
    assert x.T.tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]


def test_tensor_copies_and_asarray_shares():
    array = np.array([1.0, 2.0])
    copied, shared = eg.tensor(array), eg.asarray(array)
    converted = eg.convert_to_tensor(array)
    array[0] = 9.0
    assert copied.tolist() == converted.tolist() == [1.0, 2.0]
    assert shared.tolist() == [9.0, 2.0]
    x = eg.tensor(1.0)
    assert eg.asarray(x) is x
    assert eg.tensor(x) is not x


def test_foreign_byte_order_becomes_native():
    swapped = np.array([1.5], np.dtype(np.float64).newbyteorder())
    assert same(eg.tensor(swapped), [1.5], "float64")
    assert eg.tensor(swapped).dtype.isnative


@pytest.mark.parametrize("make", [eg.tensor, eg.convert_to_tensor, Variable])
@pytest.mark.parametrize(
    ("data", "complaint"), [(None, "None"), ([[1.0], [1.0, 2.0]], "ragged")]
)
def test_none_and_ragged_are_refused(make, data, complaint):
    with pytest.raises(ValueError, match=complaint):
        make(data)


@pytest.mark.parametrize("data", [object(), {"a": 1.0}, [1.0, None]])
def test_what_is_no_number_is_refused(data):
    with pytest.raises(TypeError, match="expected numbers"):
        eg.tensor(data)


def test_list_of_tensors_is_stacked_and_differentiable():
    a, b = eg.tensor(2.0), eg.tensor(3.0)
    for make in (eg.tensor, eg.asarray, eg.convert_to_tensor):
        with eg.GradientTape() as tape:
            tape.watch([a, b])
            y = eg.sum(make([a, b]) ** 2)
        assert [g.item() for g in tape.gradient(y, [a, b])] == [4.0, 6.0]


def test_copy_of_a_tensor_is_differentiable():
    x = eg.tensor(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.tensor(x) * eg.tensor(x, dtype="float64")
    assert y.dtype == np.float64
    g = tape.gradient(y, x)
    assert same(g, 6.0, "float32")


# convert_to_tensor, identity, stop_gradient


def test_convert_to_tensor():
    x, v = eg.tensor(1.0), Variable(2.0)
    assert eg.convert_to_tensor(x) is x
    assert same(eg.convert_to_tensor(v), 2.0, "float32")
    assert same(eg.convert_to_tensor([1, 2], dtype="float32"), [1.0, 2.0], "float32")
    assert same(eg.convert_to_tensor(np.float64(1.0)), 1.0, "float64")


def test_convert_to_tensor_refuses():
    with pytest.raises(ValueError, match="expected dtype float64"):
        eg.convert_to_tensor(eg.tensor(1.0), dtype="float64")
    with pytest.raises(TypeError, match="expected int64"):
        eg.convert_to_tensor(1.5, dtype="int64")


def test_convert_to_tensor_of_a_variable_is_a_snapshot():
    v = Variable([1.0, 2.0])
    read = eg.convert_to_tensor(v)
    v.assign([5.0, 6.0])
    assert read.tolist() == [1.0, 2.0]


def test_identity_is_a_new_tensor():
    x = eg.tensor(1.0)
    assert eg.identity(x) is not x
    assert same(eg.identity(x), 1.0, "float32")
    assert same(eg.identity(Variable(1.0)), 1.0, "float32")


def test_stop_gradient_keeps_the_values():
    assert same(eg.stop_gradient(eg.tensor([1.0, 2.0])), [1.0, 2.0], "float32")
    assert same(eg.stop_gradient(3.0), 3.0, "float32")


# Operators


BINARY = [
    (operator.add, [3.0, 6.0]),
    (operator.sub, [-1.0, 2.0]),
    (operator.mul, [2.0, 8.0]),
    (operator.truediv, [0.5, 2.0]),
    (operator.floordiv, [0.0, 2.0]),
    (operator.mod, [1.0, 0.0]),
    (operator.pow, [1.0, 16.0]),
]


@pytest.mark.parametrize(("op", "expected"), BINARY)
def test_operators(op, expected):
    a, b = [1.0, 4.0], [2.0, 2.0]
    assert same(op(eg.tensor(a), eg.tensor(b)), expected, "float32")
    assert same(op(eg.tensor(a), 2.0), expected, "float32")
    assert same(op(eg.tensor(a), 2), expected, "float32")
    assert same(op(eg.tensor(a), Variable(b)), expected, "float32")
    assert same(op(Variable(a), eg.tensor(b)), expected, "float32")
    assert same(op(a, eg.tensor(b)), expected, "float32")
    assert same(op(eg.tensor(a), np.array(b, "float32")), expected, "float32")
    assert same(op(np.array(a, "float32"), eg.tensor(b)), expected, "float32")


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (operator.add, 6.0),
        (operator.sub, -2.0),
        (operator.mul, 8.0),
        (operator.truediv, 0.5),
        (operator.floordiv, 0.0),
        (operator.mod, 2.0),
        (operator.pow, 16.0),
    ],
)
def test_reflected_operators(op, expected):
    x = eg.tensor(4.0)
    assert same(op(2.0, x), expected, "float32")
    assert same(op(2, x), expected, "float32")
    assert same(op(np.float64(2.0), x), expected, "float64")
    assert same(op(np.float32(2.0), x), expected, "float32")
    assert same(op(np.array(2.0), x), expected, "float64")
    assert same(op(2.0, Variable(4.0)), expected, "float32")


def test_matmul_operators():
    a, b = [[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]
    expected = [[19.0, 22.0], [43.0, 50.0]]
    assert same(eg.tensor(a) @ eg.tensor(b), expected, "float32")
    assert same(np.array(a, "float32") @ eg.tensor(b), expected, "float32")
    assert same(eg.tensor(a) @ np.array(b, "float32"), expected, "float32")


def test_unary_operators():
    x = eg.tensor([-1.0, 2.0])
    assert same(-x, [1.0, -2.0], "float32")
    assert same(+x, [-1.0, 2.0], "float32")
    assert same(abs(x), [1.0, 2.0], "float32")
    assert same(~eg.tensor([True, False]), [False, True], "bool")
    assert same(~eg.tensor([0, 1]), [-1, -2], "int64")


def test_bitwise_operators():
    a, b = eg.tensor([True, True, False]), eg.tensor([True, False, False])
    assert same(a & b, [True, False, False], "bool")
    assert same(a | b, [True, True, False], "bool")
    assert same(a ^ b, [False, True, False], "bool")
    assert same(eg.tensor([6]) & 3, [2], "int64")
    assert same(True | b, [True, True, True], "bool")


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (operator.lt, [True, False, False]),
        (operator.le, [True, True, False]),
        (operator.gt, [False, False, True]),
        (operator.ge, [False, True, True]),
        (operator.eq, [False, True, False]),
        (operator.ne, [True, False, True]),
    ],
)
def test_comparison(op, expected):
    x = eg.tensor([1.0, 2.0, 3.0])
    assert same(op(x, 2), expected, "bool")
    assert same(op(x, eg.tensor([2.0] * 3)), expected, "bool")
    assert same(op(x, np.array([2.0] * 3)), expected, "bool")
    assert same(op(np.array([1.0, 2.0, 3.0]), eg.tensor(2.0)), expected, "bool")


@pytest.mark.parametrize("x", [eg.tensor([1.0, 2.0]), Variable(1.0)])
@pytest.mark.parametrize("other", [None, "text", object()])
def test_comparison_with_what_is_no_number(x, other):
    assert (x == other) is False
    assert (x != other) is True
    assert (other == x) is False
    with pytest.raises(TypeError):
        operator.lt(x, other)


@pytest.mark.parametrize("other", [None, "text", object()])
def test_arithmetic_with_what_is_no_number(other):
    for op in (operator.add, operator.mul):
        with pytest.raises(TypeError):
            op(eg.tensor(1.0), other)
        with pytest.raises(TypeError):
            op(other, eg.tensor(1.0))


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"add: .*\(2,\).*\(3,\)"):
        eg.tensor([1.0, 2.0]) + eg.tensor([1.0, 2.0, 3.0])


# The dtypes of results


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ("float32", "float64", "float64"),
        ("float16", "float32", "float32"),
        ("float16", "float16", "float16"),
        ("float32", "int64", "float32"),
        ("float16", "int64", "float16"),
        ("float32", "bool", "float32"),
        ("int32", "int64", "int64"),
        ("bool", "int64", "int64"),
        ("float32", "complex64", "complex64"),
        ("float64", "complex64", "complex128"),
        ("int64", "complex64", "complex64"),
    ],
)
def test_promotion(left, right, dtype):
    a, b = eg.tensor([1, 1], dtype=left), eg.tensor([1, 1], dtype=right)
    for result in (a + b, b + a, a * b, eg.where(eg.tensor([True, False]), a, b)):
        assert result.dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("scalar", [2, 2.0, True])
def test_python_scalars_are_weak(dtype, scalar):
    x = eg.tensor([1.0, 2.0], dtype=dtype)
    for op in (operator.add, operator.mul, operator.truediv, operator.pow):
        assert op(x, scalar).dtype == np.dtype(dtype)
        assert op(scalar, x).dtype == np.dtype(dtype)
    assert eg.maximum(x, scalar).dtype == np.dtype(dtype)
    assert eg.where(x > 1, x, scalar).dtype == np.dtype(dtype)
    assert eg.clip(x, 0, scalar).dtype == np.dtype(dtype)


def test_complex_scalars_are_weak():
    assert same(eg.tensor(1.0) * 2j, 2j, "complex64")
    assert same(eg.tensor(1.0, dtype="float64") * 2j, 2j, "complex128")


def test_integers_become_float32():
    n = eg.tensor([1, 2])
    assert same(n / 2, [0.5, 1.0], "float32")
    assert same(n / n, [1.0, 1.0], "float32")
    assert same(n + 1.5, [2.5, 3.5], "float32")
    assert same(1.5 * n, [1.5, 3.0], "float32")
    assert same(eg.mean(n), 1.5, "float32")
    assert same(eg.sqrt(eg.tensor([4, 9])), [2.0, 3.0], "float32")
    assert same(eg.exp(eg.tensor(0)), 1.0, "float32")


def test_integers_stay_integers():
    n = eg.tensor([5, 7])
    assert same(n + 1, [6, 8], "int64")
    assert same(n // 2, [2, 3], "int64")
    assert same(n % 2, [1, 1], "int64")
    assert same(n**2, [25, 49], "int64")
    assert same(eg.sum(n), 12, "int64")


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "complex64", "complex128"]
)
def test_differentiable_dtypes(dtype):
    x = eg.tensor([1.0, 2.0], dtype=dtype)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = 3 * x * x
    assert same(tape.gradient(y, x), [6.0, 12.0], dtype)


def test_gradient_of_complex_values():
    z = eg.tensor(3 + 4j)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(z)
        square = z * z
        modulus = eg.real(z) ** 2 + eg.imag(z) ** 2
    assert same(tape.gradient(square, z), 6 - 8j, "complex64")
    assert same(tape.gradient(modulus, z), 6 + 8j, "complex64")


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (abs, 0.0, 0.0),
        (eg.relu, 0.0, 0.0),
        (eg.max, [1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
        (eg.min, [1.0, 1.0, 3.0], [0.5, 0.5, 0.0]),
        (lambda x: eg.maximum(x, 3.0), 3.0, 1.0),
        (lambda x: eg.minimum(3.0, x), 3.0, 0.0),
        (lambda x: eg.clip(x, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0], [0, 1, 1, 1, 0]),
        (lambda x: x**0.0, 0.0, 0.0),
        (lambda x: eg.sqrt(eg.sum(x * x)), [0.0, 0.0], None),
    ],
)
def test_subgradients(f, x, expected):
    x = eg.tensor(x)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    if expected is None:  # sqrt at 0 has an infinite slope: times 0 it is no number
        with np.errstate(all="ignore"):
            assert np.isnan(tape.gradient(y, x).numpy()).all()
    else:
        assert tape.gradient(y, x).tolist() == expected


def test_slope_of_sqrt_at_zero():
    with np.errstate(divide="ignore"):
        assert eg.gradients_function(eg.sqrt)(0.0)[0].item() == np.inf


# Indexing, iteration, truth


def test_indexing():
    x = eg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert same(x[0], [1.0, 2.0, 3.0], "float32")
    assert same(x[1, 2], 6.0, "float32")
    assert same(x[-1, ::2], [4.0, 6.0], "float32")
    assert same(x[:, None, 0], [[1.0], [4.0]], "float32")
    assert same(x[..., 1], [2.0, 5.0], "float32")
    assert same(x[[1, 0], [0, 2]], [4.0, 3.0], "float32")
    assert same(x[eg.tensor([1, 1])], [[4.0, 5.0, 6.0]] * 2, "float32")
    assert same(x[x > 4], [5.0, 6.0], "float32")
    assert same(x[eg.tensor(1), eg.tensor(2)], 6.0, "float32")
    assert same(x[np.array([True, False])], [[1.0, 2.0, 3.0]], "float32")


def test_indexing_errors():
    x = eg.tensor([1.0, 2.0])
    with pytest.raises(IndexError, match="getitem"):
        x[2]
    with pytest.raises(IndexError):
        x[0, 0]
    with pytest.raises(TypeError, match="immutable"):
        x[0] = 3.0
    with pytest.raises(TypeError):
        Variable([1.0])[0] = 3.0


def test_iteration_and_length():
    x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert len(x) == 2
    assert [row.tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0]]
    first, second = eg.tensor([1, 2])
    assert (first.item(), second.item()) == (1, 2)
    assert [row.tolist() for row in reversed(x)] == [[3.0, 4.0], [1.0, 2.0]]
    assert len(eg.zeros((0, 3))) == 0
    assert list(eg.zeros((0, 3))) == []
    with pytest.raises(TypeError, match="0-d"):
        len(eg.tensor(1.0))
    with pytest.raises(TypeError):
        list(eg.tensor(1.0))
    with pytest.raises(TypeError):
        iter(eg.tensor(1.0))


def test_membership():
    x = eg.tensor([1.0, 2.0])
    assert 2.0 in x
    assert 3.0 not in x


def test_iteration_is_differentiable():
    x = eg.tensor([2.0, 3.0])
    with eg.GradientTape() as tape:
        tape.watch(x)
        a, b = x
        y = a * b
    assert tape.gradient(y, x).tolist() == [3.0, 2.0]


@pytest.mark.parametrize("make", [eg.tensor, Variable])
def test_one_element_as_a_number(make):
    assert bool(make(2.0)) is True
    assert bool(make([[False]])) is False
    assert int(make(2.7)) == 2
    assert float(make([2.5])) == 2.5
    assert complex(make(2.5)) == 2.5
    assert operator.index(make(3)) == 3
    assert [10, 20, 30][make(1)] == 20
    assert make(2.5).item() == 2.5
    assert type(make(2).item()) is int
    assert f"{make(2.5):.2f}" == "2.50"
    assert round(float(make(2.5)), 1) == 2.5


@pytest.mark.parametrize("convert", [bool, int, float, Tensor.item])
@pytest.mark.parametrize("data", [[1.0, 2.0], []])
def test_more_or_less_than_one_element_is_no_number(convert, data):
    with pytest.raises(ValueError, match="one element"):
        convert(eg.tensor(data))


def test_truth_value_of_many_elements():
    message = (
        "bool(): expected a tensor of one element, got shape (3,); use eg.any or eg.all"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bool(eg.zeros(3))


def test_index_takes_integers_only():
    with pytest.raises(TypeError, match="integer"):
        operator.index(eg.tensor(1.0))
    with pytest.raises(TypeError):
        range(eg.tensor(True))


@pytest.mark.parametrize("x", [eg.tensor(1.0), Variable(1.0)])
def test_no_key_but_its_reference_is(x):
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    assert x.ref() == x.ref()
    assert hash(x.ref()) == hash(x.ref())
    assert {x.ref(): 5}[x.ref()] == 5
    assert x.ref().deref() is x
    assert x.ref() != eg.tensor(1.0).ref()


# NumPy


def test_numpy_is_a_copy():
    x = eg.tensor([1.0, 2.0])
    array = x.numpy()
    array[0] = 9.0
    assert array.dtype == np.float32
    assert x.tolist() == [1.0, 2.0]
    assert type(eg.tensor(1.0).numpy()) is np.ndarray


def test_array_is_a_read_only_view():
    x = eg.tensor([1.0, 2.0])
    view = np.asarray(x)
    assert view.dtype == np.float32
    assert np.shares_memory(view, x._data)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 9.0
    assert x._data.flags.writeable


def test_array_copies_when_asked():
    x = eg.tensor([1.0, 2.0])
    for array in (np.array(x), np.asarray(x, dtype=np.float64), np.array(x, copy=True)):
        array[0] = 9.0
    assert x.tolist() == [1.0, 2.0]
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.shares_memory(np.array(x, copy=False), x._data)
    with pytest.raises(ValueError, match="float64"):
        np.array(x, dtype=np.float64, copy=False)


def test_array_times_tensor_is_a_tensor():
    array, x = np.array([1.0, 2.0], "float32"), eg.tensor([3.0, 4.0])
    assert same(array * x, [3.0, 8.0], "float32")
    assert same(array - x, [-2.0, -2.0], "float32")
    assert same(np.float64(2.0) * x, [6.0, 8.0], "float64")
    assert same(np.ones((2, 1), "float32") + x, [[4.0, 5.0]] * 2, "float32")
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = array * x
    assert tape.gradient(y, x).tolist() == [1.0, 2.0]


def test_numpy_functions_of_tensors():
    x = eg.tensor([0.0, 0.0])
    assert same(np.exp(x), [1.0, 1.0], "float32")
    assert same(np.add(x, x), [0.0, 0.0], "float32")
    assert same(np.sum(eg.tensor([1.0, 2.0])), 3.0, "float32")
    assert same(np.concatenate([x, x]), [0.0] * 4, "float32")
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = np.exp(x) + np.maximum(x, x)
    assert tape.gradient(y, x).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("function", "own"),
    [
        (np.sum, eg.sum),
        (np.mean, eg.mean),
        (np.max, eg.max),
        (np.min, eg.min),
        (np.argmax, eg.argmax),
        (np.argmin, eg.argmin),
        (np.any, eg.any),
        (np.all, eg.all),
    ],
)
@pytest.mark.parametrize("options", [{}, {"axis": 1}, {"axis": 0, "keepdims": True}])
def test_numpy_reductions_of_tensors(function, own, options):
    x = eg.tensor([[1.0, 5.0, -2.0], [0.0, 3.0, 7.0]])
    got, expected = function(x, **options), own(x, **options)
    assert same(got, expected.tolist(), expected.dtype)


@pytest.mark.parametrize(
    "function",
    [
        lambda np, x: np.reshape(x, (3, 2)),
        lambda np, x: np.transpose(x),
        lambda np, x: np.swapaxes(x, 0, 1),
        lambda np, x: np.squeeze(x[:1]),
        lambda np, x: np.ravel(x),
        lambda np, x: np.expand_dims(x, 0),
        lambda np, x: np.broadcast_to(x, (2, 2, 3)),
        lambda np, x: np.stack([x, x], axis=1),
        lambda np, x: np.concatenate([x, x], axis=1),
        lambda np, x: np.where(x > 0, x, 0.0),
        lambda np, x: np.clip(x, -1.0, 2.0),
        lambda np, x: np.round(x),
        lambda np, x: np.zeros_like(x),
        lambda np, x: np.matmul(x, x.T),
        lambda np, x: np.power(x, 2),
        lambda np, x: np.true_divide(x, 2.0),
        lambda np, x: np.less(x, 1.0),
    ],
)
def test_numpy_functions_of_tensors_are_those_here(function):
    x = eg.tensor([[1.0, 5.0, -2.0], [0.0, 3.0, 7.0]])
    expected = function(eg, x)
    assert same(function(np, x), expected.tolist(), expected.dtype)


@pytest.mark.parametrize(
    ("ufunc", "own"),
    [
        (np.add, eg.sum),
        (np.maximum, eg.max),
        (np.minimum, eg.min),
        (np.logical_and, eg.all),
        (np.logical_or, eg.any),
    ],
)
def test_reduce_of_ufuncs(ufunc, own):
    x = eg.tensor([[1.0, 5.0], [0.0, 3.0]])
    assert same(ufunc.reduce(x), own(x, axis=0).tolist(), own(x).dtype)
    assert ufunc.reduce(x, axis=1, keepdims=True).shape == (2, 1)
    with pytest.raises(TypeError, match="accumulate"):
        ufunc.accumulate(x)


def test_gradients_pass_through_numpy_functions():
    x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = np.sum(np.multiply(x, x)) + np.mean(np.transpose(x))
    assert tape.gradient(y, x).tolist() == [[2.25, 4.25], [6.25, 8.25]]


def test_numpy_functions_that_are_refused():
    x = eg.tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="spacing"):
        np.spacing(x)
    with pytest.raises(TypeError):
        np.exp(x, out=np.zeros(2, "float32"))
    array = np.zeros(2, "float32")
    with pytest.raises(TypeError):
        array += x
    assert array.tolist() == [0.0, 0.0]


# DLPack


def test_dlpack_to_numpy():
    x = eg.tensor([1.0, 2.0])
    array = np.from_dlpack(x)
    assert array.tolist() == [1.0, 2.0]
    assert np.shares_memory(array, x._data)
    assert x.__dlpack_device__() == (1, 0)


def test_dlpack_from_numpy():
    array = np.array([1.0, 2.0])
    x = eg.from_dlpack(array)
    assert same(x, [1.0, 2.0], "float64")
    assert np.shares_memory(array, x._data)
    assert eg.from_dlpack(x).tolist() == [1.0, 2.0]


def test_dlpack_of_a_watched_tensor():
    x = eg.tensor([1.0, 2.0])
    with eg.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(BufferError, match="stop_gradient"):
            np.from_dlpack(x)
        assert np.from_dlpack(eg.stop_gradient(x)).tolist() == [1.0, 2.0]
    assert np.from_dlpack(x).tolist() == [1.0, 2.0]


# Copies


@pytest.mark.parametrize(
    "x",
    [
        eg.tensor([[1.0, 2.0]]),
        eg.tensor(3),
        eg.tensor([True]),
        eg.tensor([1.0], dtype="float16"),
        eg.tensor([1 + 2j]),
        eg.zeros((0, 2)),
    ],
)
def test_pickle_of_a_tensor(x):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(x, protocol))
        assert same(again, x.tolist(), x.dtype)
        assert again.shape == x.shape


def test_pickle_of_a_variable():
    v = Variable([1.0, 2.0], trainable=False, name="bias", dtype="float64")
    again = pickle.loads(pickle.dumps(v))
    assert type(again) is Variable
    assert again.tolist() == [1.0, 2.0]
    assert again.dtype == np.float64
    assert (again.trainable, again.name) == (False, "bias")


def test_deepcopy_of_a_tensor_is_differentiable():
    x = eg.tensor([1.0, 2.0])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y, z = copy.deepcopy([x, x])
        assert y is z
        assert not np.shares_memory(y._data, x._data)
        w = y * z
    assert tape.gradient(w, x).tolist() == [2.0, 4.0]
    assert copy.copy(x).tolist() == [1.0, 2.0]


def test_deepcopy_of_a_variable_is_another_variable():
    v = Variable([1.0, 2.0], trainable=False, name="bias")
    first, second = copy.deepcopy([v, v])
    assert type(first) is Variable
    assert first is second
    assert (first.trainable, first.name) == (False, "bias")
    v.assign([5.0, 6.0])
    assert first.tolist() == [1.0, 2.0]
    w = copy.deepcopy(Variable(3.0))
    with eg.GradientTape() as tape:
        y = w * w
    assert tape.gradient(y, w).item() == 6.0


# repr


@pytest.mark.parametrize(
    ("x", "parts"),
    [
        (eg.tensor([[1.5, 2.0]]), ["1.5", "(1, 2)", "float32", "cpu"]),
        (eg.tensor(7), ["7", "()", "int64", "cpu"]),
        (Variable([2.5], name="w"), ["Variable", "w", "2.5", "(1,)", "float32", "cpu"]),
        (Variable(2.5, trainable=False), ["Variable", "2.5", "trainable=False"]),
        (eg.tensor([], dtype="float16"), ["(0,)", "float16"]),
    ],
)
def test_repr(x, parts):
    for part in parts:
        assert part in repr(x)
    assert str(x) == repr(x)


def test_repr_of_many_values_is_short():
    assert len(repr(eg.zeros(1_000_000))) < 200


# Variables


def test_variable_initial_value():
    v = Variable(lambda: [1.0, 2.0])
    assert v.tolist() == [1.0, 2.0]
    w = Variable(v)
    assert w is not v
    v.assign([5.0, 6.0])
    assert w.tolist() == [1.0, 2.0]
    assert Variable(eg.tensor([1, 2])).dtype == np.int64
    array = np.array([1.0, 2.0])
    u = Variable(array)
    array[0] = 9.0
    assert u.tolist() == [1.0, 2.0]


def test_variable_is_a_tensor_wherever_one_is_taken():
    v = Variable([1.0, 4.0])
    assert isinstance(v, Tensor)
    assert same(eg.sqrt(v), [1.0, 2.0], "float32")
    assert same(v[1], 4.0, "float32")
    assert same(eg.stack([v, v]), [[1.0, 4.0]] * 2, "float32")
    assert np.asarray(v).tolist() == [1.0, 4.0]


def test_variable_attributes():
    v = Variable(1.0, name="w")
    assert (v.name, v.trainable) == ("w", True)
    assert Variable(1.0).name is None
    with pytest.raises(AttributeError):
        v.trainable = False


def test_assign():
    v = Variable([1.0, 2.0])
    assert v.assign([3.0, 4.0]) is v
    assert v.tolist() == [3.0, 4.0]
    assert v.assign(np.array([5.0, 6.0])).dtype == np.float32
    assert v.assign([7, 8]).tolist() == [7.0, 8.0]
    assert v.assign(eg.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert v.assign_add([10.0, 20.0]) is v
    assert v.tolist() == [11.0, 22.0]
    assert v.assign_sub(eg.tensor([1.0, 2.0])) is v
    assert v.tolist() == [10.0, 20.0]
    assert v.assign_add(1).tolist() == [11.0, 21.0]


@pytest.mark.parametrize("value", [np.array([1.0, 2.0], "float32"), [1.0, 2.0]])
def test_assign_does_not_share_with_the_value(value):
    v = Variable([0.0, 0.0])
    v.assign(value)
    value[0] = 9.0
    assert v.tolist() == [1.0, 2.0]


def test_assign_add_of_a_scalar_variable_keeps_an_array():
    v, n = Variable(1.0), Variable(1)
    assert v.assign_add(2.0).item() == 3.0
    assert v.assign_sub(eg.tensor(0.5)).item() == 2.5
    assert n.assign_sub(3).item() == -2
    for variable in (v, n):
        assert type(variable._data) is np.ndarray
    assert v.dtype == np.float32
    with eg.GradientTape() as tape:
        y = v.assign_add(1.0) * v
    assert tape.gradient(y, v).item() == 7.0


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
@pytest.mark.parametrize(
    "value",
    [[1.0, 2.0, 3.0], [[1.0, 2.0]], eg.tensor([1.0]), eg.tensor([1, 2]), None],
)
def test_assign_refuses_and_keeps_the_value(method, value):
    v = Variable([1.0, 2.0])
    with pytest.raises(ValueError, match="expected"):
        getattr(v, method)(value)
    assert v.tolist() == [1.0, 2.0]


def test_assign_of_a_scalar_needs_a_scalar_variable():
    with pytest.raises(ValueError, match="shape"):
        Variable([1.0, 2.0]).assign(1.0)


def test_assign_of_complex_to_real_is_refused():
    v = Variable([1.0])
    with pytest.raises(TypeError):
        v.assign([1j])
    assert v.tolist() == [1.0]


@pytest.mark.parametrize("method", ["read_value", "value"])
def test_read_value_is_a_snapshot(method):
    v = Variable([1.0, 2.0])
    read = getattr(v, method)()
    v.assign([5.0, 6.0])
    assert same(read, [1.0, 2.0], "float32")
    read = getattr(v, method)()
    v.assign_add([1.0, 1.0])
    assert read.tolist() == [5.0, 6.0]


def test_views_of_a_variable_are_snapshots():
    v = Variable([1.0, 2.0])
    view, row, flat = np.asarray(v), v[:1], v.reshape((2, 1))
    v.assign([5.0, 6.0])
    v.assign_sub([1.0, 1.0])
    assert view.tolist() == [1.0, 2.0]
    assert row.tolist() == [1.0]
    assert flat.tolist() == [[1.0], [2.0]]


def test_gradient_is_at_the_value_that_was_read():
    v = Variable(3.0)
    with eg.GradientTape() as tape:
        y = v * v
        v.assign(10.0)
        z = v * v
    assert tape.gradient([y, z], v).item() == 26.0


@pytest.mark.parametrize(
    "op",
    [
        operator.iadd,
        operator.isub,
        operator.imul,
        operator.itruediv,
        operator.ipow,
        operator.imatmul,
        operator.ifloordiv,
        operator.imod,
        operator.iand,
        operator.ior,
        operator.ixor,
    ],
)
def test_in_place_operators_of_a_variable_are_refused(op):
    with pytest.raises(RuntimeError, match="assign_add"):
        op(Variable([1.0]), 1.0)


def test_in_place_operators_of_a_tensor_make_a_new_one():
    x = y = eg.tensor([1.0])
    x += 1.0
    assert x.tolist() == [2.0]
    assert y.tolist() == [1.0]
