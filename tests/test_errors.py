"""What bad input gets: the class of the error, what its message names, nothing lost."""

import inspect
import pickle
import warnings

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.errors import (
    DeviceError,
    DTypeError,
    EagergradError,
    GradientError,
    ShapeError,
    TapeError,
)
from eagergrad.tape import active

X = eg.tensor([1.0, 2.0])
RAGGED = [[1.0], [1.0, 2.0]]


@pytest.fixture(autouse=True)
def no_tape_stays():
    """No tape of a test records afterwards."""
    yield
    assert active() == ()


def complaint(kind, f, *parts):
    """The message of the error that a call raises; it has all the parts."""
    with pytest.raises(kind) as caught:
        f()
    message = str(caught.value)
    for part in parts:
        assert part in message
    return message


def check(call):
    """Use a row of a table: a call, the class of its error, parts of the message."""
    f, kind, *parts = call
    complaint(kind, f, *parts)
    # the same inside a tape, which goes on
    x = eg.tensor(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        complaint(kind, f, *parts)
        y = y * x
    assert tape.gradient(y, x).item() == 27.0


def table(**rows):
    """A parametrization over rows with names."""
    ids = [name.replace("_", " ") for name in rows]
    return pytest.mark.parametrize("call", rows.values(), ids=ids)


# Arguments of the wrong number or kind


@table(
    one_too_many=(lambda: eg.exp(X, 5), TypeError, "exp()"),
    one_too_many_for_two=(lambda: eg.add(X, X, X), TypeError, "add()"),
    one_too_few=(lambda: eg.add(X), TypeError, "add()", "'b'"),
    none_at_all=(lambda: eg.exp(), TypeError, "exp()", "'x'"),
    too_many_with_parameters=(lambda: eg.sum(X, 0, False, 3), TypeError, "sum()"),
    keyword=(lambda: eg.sum(X, axes=1), TypeError, "sum()", "'axes'"),
    too_many_for_where=(lambda: eg.where(X > 0, X, X, X), TypeError, "where()"),
    not_a_list=(lambda: eg.concatenate(X, X, X), TypeError, "concatenate()"),
)
def test_stray_arguments(call):
    check(call)


NONE = {
    "exp": lambda: eg.exp(None),
    "add": lambda: X + None,
    "multiply": lambda: None * X,
    "maximum": lambda: eg.maximum(None, None),
    "subtract": lambda: eg.subtract(1, None),
    "matmul": lambda: X @ None,
    "sum": lambda: eg.sum(None),
    "softmax": lambda: eg.softmax(None),
    "reshape": lambda: eg.reshape(None, (2,)),
    "where": lambda: eg.where(X > 0, None, X),
    "where, condition": lambda: eg.where(None, X, X),
    "clip": lambda: eg.clip(None, 0, 1),
    "concatenate": lambda: eg.concatenate([X, None]),
    "stack": lambda: eg.stack([None, X]),
    "getitem": lambda: eg.getitem(None, 0),
    "astype": lambda: eg.astype(None, "float32"),
    "softmax_cross_entropy": lambda: eg.softmax_cross_entropy(X, None),
    "dense": lambda: eg.dense(X, None),
    "assign": lambda: eg.Variable(1.0).assign(None),
    "assign_add": lambda: eg.Variable(1.0).assign_add(None),
    "convert_to_tensor": lambda: eg.convert_to_tensor(None),
    "tensor": lambda: eg.tensor(None),
}


@pytest.mark.parametrize("name", NONE)
def test_none(name):
    op = name.split(",")[0]
    check((NONE[name], (DTypeError, ShapeError), f"{op}: expected", "None"))


STRINGS = {
    "exp": lambda: eg.exp("text"),
    "exp, list": lambda: eg.exp(["text"]),
    "add": lambda: X + "text",
    "maximum": lambda: eg.maximum("text", 1),
    "matmul": lambda: X @ ["text", "text"],
    "sum": lambda: eg.sum("text"),
    "where": lambda: eg.where(X > 0, X, "text"),
    "clip": lambda: eg.clip(X, "text", 1),
    "concatenate": lambda: eg.concatenate([X, ["text"]]),
    "softmax_cross_entropy": lambda: eg.softmax_cross_entropy(X, ["text"]),
    "dense": lambda: eg.dense([[1.0, 2.0]], [["text"], ["text"]], ["text"]),
}


@pytest.mark.parametrize("name", STRINGS)
def test_strings(name):
    """A tensor may hold text, as in TensorFlow; but nothing is computed of it."""
    op = name.split(",")[0]
    check((STRINGS[name], DTypeError, f"{op}: "))


@pytest.mark.parametrize("value", [object(), {"a": 1}, {1.0}, len, [None], [object()]])
def test_what_is_no_number(value):
    for op, f in {
        "tensor": eg.tensor,
        "exp": eg.exp,
        "add": lambda value: X + value,
        "sum": eg.sum,
        "where": lambda value: eg.where(X > 0, value, X),
    }.items():
        check((lambda f=f: f(value), DTypeError, f"{op}: expected", "number"))


def test_comparing_with_what_is_no_number_is_false():
    assert (X == None) is False  # noqa: E711
    assert (X != "text") is True


@table(
    tensor=(lambda: eg.tensor(RAGGED), ShapeError, "tensor: ", "equal lengths"),
    exp=(lambda: eg.exp(RAGGED), ShapeError, "exp: ", "equal lengths"),
    add=(lambda: X + RAGGED, ShapeError, "add: ", "equal lengths"),
    sum=(lambda: eg.sum(RAGGED), ShapeError, "sum: ", "equal lengths"),
    variable=(lambda: eg.Variable(RAGGED), ShapeError, "equal lengths"),
    tensors=(lambda: eg.tensor([X, X[0]]), ShapeError, "stack: ", "(2,)", "()"),
)
def test_ragged_lists(call):
    check(call)


# Dtypes


@pytest.mark.parametrize("dtype", ["nonsense", 3.5, "floot32", object()])
def test_unknown_dtype(dtype):
    for op, f in {
        "astype": lambda: X.astype(dtype),
        "tensor": lambda: eg.tensor([1.0], dtype=dtype),
        "zeros": lambda: eg.zeros(2, dtype),
        "convert_to_tensor": lambda: eg.convert_to_tensor(1.0, dtype),
        "arange": lambda: eg.arange(3, dtype=dtype),
        "random.normal": lambda: eg.random.normal(size=2, dtype=dtype),
    }.items():
        message = complaint(TypeError, f, str(dtype)[:20])
        assert op in message or "dtype" in message or "data type" in message


@table(
    bits_of_floats=(lambda: X & X, DTypeError, "bitwise_and: ", "float32"),
    bits_of_floats_and_a_number=(lambda: X | 1, DTypeError, "bitwise_or: ", "float32"),
    invert=(lambda: ~X, DTypeError, "invert: ", "float32"),
    minus_of_flags=(
        lambda: -(X > 0),
        DTypeError,
        "negative: ",
        "bool",
        "logical_not",
    ),
    difference_of_flags=(
        lambda: (X > 0) - (X > 1),
        DTypeError,
        "subtract: ",
        "bool",
        "logical_xor",
    ),
    floor_of_complex=(
        lambda: eg.floor(eg.tensor(1j)),
        DTypeError,
        "floor: ",
        "complex64",
    ),
    remainder_of_complex=(
        lambda: eg.tensor(1j) % 2,
        DTypeError,
        "remainder: ",
        "complex64",
    ),
    assign=(
        lambda: eg.Variable(1.0).assign(eg.tensor(1)),
        ValueError,
        "assign: expected dtype float32",
        "int64",
        "astype",
    ),
    assign_add=(
        lambda: eg.Variable(1.0).assign_add(eg.tensor(1)),
        ValueError,
        "assign_add: expected",
        "float32",
        "int64",
    ),
    convert=(
        lambda: eg.convert_to_tensor(X, "int32"),
        ValueError,
        "convert_to_tensor: expected dtype int32",
        "float32",
        "astype",
    ),
    labels=(
        lambda: eg.softmax_cross_entropy(X, [True, False]),
        DTypeError,
        "softmax_cross_entropy: expected integer labels or probabilities",
        "bool",
    ),
    random=(
        lambda: eg.random.uniform(size=2, dtype="int32"),
        DTypeError,
        "random.uniform: expected a floating dtype",
        "int32",
    ),
    index=(lambda: [1, 2][X[0]], DTypeError, "expected an integer", "float32"),
    index_array=(lambda: X[X], IndexError, "getitem: ", "integer"),
)
def test_dtypes(call):
    check(call)


# Shapes and axes


def zeros(*shape):
    return eg.zeros(shape)


@table(
    add=(
        lambda: X + zeros(3),
        ShapeError,
        "add: shapes do not broadcast: a is (2,) float32, b is (3,) float32",
    ),
    multiply=(
        lambda: zeros(2, 3) * zeros(3, 2),
        ShapeError,
        "multiply: shapes do not broadcast: a is (2, 3) float32, b is (3, 2) float32",
    ),
    array=(lambda: X + np.zeros(3), ShapeError, "add: ", "(2,)", "(3,)"),
    reflected=(lambda: np.zeros(3) - X, ShapeError, "subtract: ", "(2,)", "(3,)"),
    where=(
        lambda: eg.where(zeros(3) > 0, X, X),
        ShapeError,
        "where: shapes do not broadcast: cond is (3,) bool, a is (2,)",
    ),
    clip=(
        lambda: eg.clip(X, 0, zeros(3)),
        ShapeError,
        "clip: shapes do not broadcast: x is (2,) float32, low is int 0, high is (3,)",
    ),
    broadcast_to=(
        lambda: eg.broadcast_to(X, (3, 5)),
        ShapeError,
        "broadcast_to: shapes do not broadcast: x is (2,) float32; shape=(3, 5)",
    ),
    matmul=(
        lambda: zeros(3, 4) @ zeros(5, 6),
        ShapeError,
        "matmul: inner sizes differ: a is (3, 4) float32, b is (5, 6) float32",
    ),
    matmul_vector=(
        lambda: zeros(3, 4) @ zeros(5),
        ShapeError,
        "matmul: inner sizes differ: a is (3, 4) float32, b is (5,) float32",
    ),
    matmul_vectors=(
        lambda: zeros(3) @ zeros(4),
        ShapeError,
        "matmul: inner sizes differ: a is (3,) float32, b is (4,) float32",
    ),
    matmul_batches=(
        lambda: zeros(2, 3, 4) @ zeros(3, 4, 2),
        ShapeError,
        "matmul: shapes do not broadcast: a is (2, 3, 4) float32, b is (3, 4, 2)",
    ),
    matmul_array=(
        lambda: zeros(3, 4) @ np.zeros((5, 6), "f4"),
        ShapeError,
        "matmul: inner sizes differ: a is (3, 4) float32, b is (5, 6) float32",
    ),
    matmul_number=(lambda: X @ 2.0, ShapeError, "matmul: ", "(2,)", "2.0"),
    matmul_scalars=(lambda: X[0] @ X[1], ShapeError, "matmul: ", "a is () float32"),
    reshape=(lambda: eg.reshape(X, (3,)), ShapeError, "reshape: ", "(2,)", "(3,)"),
    reshape_unknown=(
        lambda: X.reshape((-1, -1)),
        ShapeError,
        "reshape: ",
        "one unknown",
        "(-1, -1)",
    ),
    reshape_text=(lambda: eg.reshape(X, "ab"), TypeError, "reshape: ", "'str'"),
    squeeze=(
        lambda: eg.squeeze(X, 0),
        ShapeError,
        "squeeze: expected length 1 on axis 0, got 2 of (2,)",
    ),
    transpose=(lambda: eg.transpose(X, (0, 1)), ShapeError, "transpose: ", "(0, 1)"),
    concatenate=(
        lambda: eg.concatenate([X, zeros(2, 2)]),
        ShapeError,
        "concatenate: ",
        "array 0 is (2,) float32, array 1 is (2, 2) float32",
    ),
    concatenate_rows=(
        lambda: eg.concatenate([zeros(2, 2), zeros(2, 3)]),
        ShapeError,
        "concatenate: ",
        "array 0 is (2, 2) float32, array 1 is (2, 3) float32",
    ),
    concatenate_nothing=(
        lambda: eg.concatenate([]),
        ShapeError,
        "concatenate: expected at least one array, got none",
    ),
    concatenate_scalars=(
        lambda: eg.concatenate([X[0], X[1]]),
        ShapeError,
        "concatenate: ",
        "array 0 is () float32",
    ),
    stack=(lambda: eg.stack([X, zeros(3)]), ShapeError, "stack: ", "(2,)", "(3,)"),
    stack_nothing=(
        lambda: eg.stack([]),
        ShapeError,
        "stack: expected at least one array, got none",
    ),
    split=(lambda: eg.split(X, 3), ShapeError, "split: ", "axis 0", "(2,)", "indices"),
    labels=(
        lambda: eg.softmax_cross_entropy(zeros(2, 3), [0]),
        ShapeError,
        "softmax_cross_entropy: ",
        "logits are (2, 3), labels (1,)",
    ),
    probabilities=(
        lambda: eg.softmax_cross_entropy(zeros(2, 3), zeros(2, 2)),
        ShapeError,
        "softmax_cross_entropy: ",
        "logits are (2, 3), labels (2, 2)",
    ),
    logits=(
        lambda: eg.softmax_cross_entropy(X[0], 0),
        (ShapeError, IndexError),
        "softmax_cross_entropy: ",
        "()",
    ),
    labels_beyond=(
        lambda: eg.softmax_cross_entropy(zeros(2, 3), [0, 5]),
        IndexError,
        "softmax_cross_entropy: labels lie in [0, 3), got 5",
    ),
    assign=(
        lambda: eg.Variable(1.0).assign([1.0, 2.0]),
        ShapeError,
        "assign: expected shape (), got (2,)",
    ),
    assign_sub=(
        lambda: eg.Variable(1.0).assign_sub([1.0, 2.0]),
        ShapeError,
        "assign_sub: expected shape (), got (2,)",
    ),
    truth=(lambda: bool(X), ShapeError, "bool(): ", "one element", "(2,)", "eg.any"),
    item=(lambda: X.item(), ShapeError, "item(): ", "one element", "(2,)"),
    number=(lambda: float(X), ShapeError, "one element", "(2,)"),
    length=(lambda: len(X[0]), TypeError, "len(): ", "0-d"),
    full=(lambda: eg.full(2, [1, 2, 3]), ValueError, "(3,)", "(2,)"),
    negative=(lambda: eg.zeros(-1), ValueError, "negative"),
)
def test_shapes(call):
    check(call)


AXES = {
    name: lambda name=name: getattr(eg, name)(X, axis=3)
    for name in (
        "sum mean max min any all argmax argmin logsumexp softmax log_softmax squeeze "
        "expand_dims"
    ).split()
} | {
    "mean, several": lambda: eg.mean(X, axis=(0, 3)),
    "sum, several": lambda: eg.sum(X, axis=(0, 3)),
    "concatenate": lambda: eg.concatenate([X, X], axis=3),
    "stack": lambda: eg.stack([X, X], axis=3),
    "split": lambda: eg.split(X, 2, axis=3),
    "swapaxes": lambda: eg.swapaxes(X, 0, 3),
    "take": lambda: eg.take(X, [0], axis=3),
    "softmax, negative": lambda: eg.softmax(X, axis=-3),
}


@pytest.mark.parametrize("name", AXES)
def test_axis_that_is_not_there(name):
    op = name.split(",")[0]
    message = complaint((IndexError, ShapeError), AXES[name], f"{op}: ", "axis", "3")
    assert "out of" in message


@table(
    twice=(lambda: eg.sum(X, axis=(0, 0)), ShapeError, "sum: ", "(0, 0)"),
    twice_for_mean=(lambda: eg.mean(X, axis=(0, 0)), ShapeError, "mean: ", "(0, 0)"),
    twice_expanded=(lambda: eg.expand_dims(X, (0, 0)), ShapeError, "expand_dims: "),
    text=(lambda: eg.sum(X, axis="a"), DTypeError, "sum: ", "'a'"),
    fraction=(lambda: eg.max(X, axis=0.5), DTypeError, "max: ", "0.5"),
    index_beyond=(lambda: X[5], IndexError, "getitem: ", "5", "(2,)"),
    index_array_beyond=(lambda: X[[0, 5]], IndexError, "getitem: ", "5", "(2,)"),
    too_many_indices=(lambda: X[0, 0], IndexError, "getitem: ", "(2,)", "(0, 0)"),
    text_as_index=(lambda: X["a"], IndexError, "getitem: ", "'a'"),
    fraction_as_index=(lambda: X[0.5], IndexError, "getitem: ", "0.5"),
    mask=(lambda: X[[True, False, True]], IndexError, "getitem: ", "3", "(2,)"),
    extreme_of_nothing=(lambda: eg.max(X[:0]), ShapeError, "max: ", "(0,)"),
    setting=(
        lambda: X.__setitem__(0, 1.0),
        TypeError,
        "immutable",
        "eg.where",
        "Variable",
    ),
)
def test_axes_and_indices(call):
    check(call)


# Devices


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("tpu", ["'tpu' is unknown", "cpu", "cuda"]),
        ("cpu:1", ["'cpu:1' is unknown"]),
        ("cuda:x", ["KIND:NUMBER", "'cuda:x'"]),
        ("", ["unknown"]),
        (3, ["'cpu' or 'cuda:1'", "3"]),
    ],
)
def test_unknown_device(name, parts):
    for f in (
        lambda: eg.device(name),
        lambda: eg.zeros(1, device=name),
        lambda: eg.tensor(1.0, device=name),
        lambda: X.to(name),
        lambda: eg.Variable(1.0, device=name),
        lambda: eg.random.normal(device=name),
    ):
        complaint(DeviceError, f, "device", *parts)


# NumPy's functions


@table(
    ufunc=(lambda: np.spacing(X), DTypeError, "numpy.spacing", ".numpy()"),
    out=(lambda: np.exp(X, out=np.ones(2)), DTypeError, "numpy.exp", "out"),
    method=(lambda: np.add.accumulate(X), DTypeError, "numpy.add.accumulate"),
    function=(lambda: np.convolve(X, X), DTypeError, "numpy.convolve", ".numpy()"),
)
def test_numpy_functions_without_a_counterpart(call):
    check(call)


# Sources that are integers


def warned(f):
    """The one warning that a call gives, which names this file; and its result."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = f()
    (warning,) = caught
    assert warning.category is eg.DTypeWarning
    assert warning.filename == __file__
    return warning, result


def line():
    return inspect.currentframe().f_back.f_lineno


def test_watching_an_integer():
    n = eg.tensor([1, 2])
    with eg.GradientTape() as tape:
        warning, _ = warned(lambda: tape.watch(n))
        assert warning.lineno == line() - 1
        y = n * 2.0
    assert "watch: " in str(warning.message)
    assert "int64" in str(warning.message)
    assert "cast it to a floating dtype" in str(warning.message)
    assert "int64" in tape.explain(y, n)


def test_gradient_by_an_integer():
    n, x = eg.tensor([1, 2]), eg.tensor(2.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = n * x
    warning, grads = warned(lambda: tape.gradient(y, [n, x]))
    assert warning.lineno == line() - 1
    assert "gradient: " in str(warning.message)
    assert "int64" in str(warning.message)
    assert grads[0] is None
    assert grads[1].item() == 3.0


def test_gradients_function_of_an_integer():
    f = eg.gradients_function(lambda x: x * 2.0)
    warning, grads = warned(lambda: f(3))
    assert warning.lineno == line() - 1
    assert grads == [None]


def test_integer_variable():
    n = eg.Variable([1, 2])
    with eg.GradientTape() as tape:
        y = n * 2.0
    warning, g = warned(lambda: tape.gradient(y, n))
    assert warning.lineno == line() - 1
    assert g is None


# Tapes


def recorded(persistent=False):
    x = eg.tensor(3.0)
    with eg.GradientTape(persistent) as tape:
        tape.watch(x)
        y = x * x
    return tape, y, x


def test_second_gradient():
    tape, y, x = recorded()
    tape.gradient(y, x)
    for use in (tape.gradient, tape.jacobian, tape.explain):
        message = complaint(TapeError, lambda use=use: use(y, x), "GradientTape: ")
        assert "already used" in message
        assert "persistent=True" in message


@pytest.mark.parametrize("wrong", [None, 3.0, "x", np.ones(2), [1.0]])
def test_targets_and_sources_that_are_no_tensors(wrong):
    tape, y, x = recorded()
    complaint(DTypeError, lambda: tape.gradient(wrong, x), "gradient: target: ")
    complaint(DTypeError, lambda: tape.gradient(y, wrong), "gradient: sources: ")
    assert tape.gradient(y, x).item() == 6.0


@pytest.mark.parametrize("wrong", [None, 3.0, "x", np.ones(2), [X, 1.0]])
def test_watching_what_is_no_tensor(wrong):
    x = eg.tensor(3.0)
    with eg.GradientTape() as tape:
        complaint(ValueError, lambda: tape.watch(wrong), "watch: expected a tensor")
        tape.watch(x)
        y = x * x
    assert tape.gradient(y, x).item() == 6.0


@pytest.mark.parametrize("wrong", ["zeros", None, 0, True, "NONE"])
def test_wrong_unconnected_gradients(wrong):
    tape, y, x = recorded()
    for use in (tape.gradient, tape.jacobian):
        complaint(
            GradientError,
            lambda use=use: use(y, x, unconnected_gradients=wrong),
            "unconnected_gradients: expected 'none' or 'zero'",
            repr(wrong),
        )
    assert tape.gradient(y, x).item() == 6.0


@pytest.mark.parametrize(
    ("seed", "part"),
    [
        ([1.0, 2.0], "(2,)"),
        (eg.tensor(1), "int64"),
        (eg.tensor(1.0, "float64"), "float64"),
        (eg.ones((3, 1)), "(3, 1)"),
        ([eg.ones(()), eg.ones(())], "2 seed"),
        ("text", "str"),
    ],
)
def test_wrong_seeds(seed, part):
    tape, y, x = recorded()
    message = complaint(
        GradientError, lambda: tape.gradient(y, x, seed), "output_gradients: "
    )
    assert part in message
    assert tape.gradient(y, x).item() == 6.0


def test_entering_a_tape_twice():
    x = eg.tensor(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        complaint(ValueError, tape.__enter__, "already recording")
        y = x * x
    assert tape.gradient(y, x).item() == 6.0


def test_error_inside_nested_tapes():
    w = eg.Variable(3.0)
    with eg.GradientTape() as outer:
        with pytest.raises(ShapeError), eg.GradientTape():
            X + eg.zeros(3)
        y = w * w
    assert outer.gradient(y, w).item() == 6.0


# Backward functions


@pytest.mark.parametrize(
    ("returned", "kind", "part"),
    [
        ((), GradientError, "expected 1, got 0"),
        ([X, X], GradientError, "expected 1, got 2"),
        ([X[0]], GradientError, "expected (2,) for input 0, got ()"),
        ([eg.zeros(3)], GradientError, "expected (2,) for input 0, got (3,)"),
        (None, DTypeError, "list or tuple"),
        (3.0, DTypeError, "list or tuple"),
        (X, DTypeError, "list or tuple"),
    ],
)
def test_backward_function_of_a_recorded_operation(returned, kind, part):
    x = eg.tensor([1.0, 2.0])
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = eg.tensor([1.0, 2.0])
        eg.tape.record_operation("mine", [y], [x], lambda dy: returned)
        z = x * 3.0
    complaint(kind, lambda: tape.gradient(y, x), "mine: ", "backward function", part)
    assert tape.gradient(z, x).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("returned", "part"),
    [
        ((), "expected 1, got 0"),
        ([X, X], "expected 1, got 2"),
        (X[0], "expected (2,) for input 0, got ()"),
        ([eg.zeros(3)], "expected (2,) for input 0, got (3,)"),
    ],
)
def test_gradient_function_of_a_custom_gradient(returned, part):
    @eg.custom_gradient
    def mine(x):
        return x * 2.0, lambda dy: returned

    x = eg.tensor([1.0, 2.0])
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = mine(x), x * 3.0
    complaint(GradientError, lambda: tape.gradient(y, x), "mine: ", part)
    assert tape.gradient(z, x).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_gradient_of_another_floating_dtype_is_cast(dtype):
    f = eg.custom_gradient(lambda x: (x * 2.0, lambda dy: dy.astype(dtype)))
    assert eg.gradients_function(f)(X)[0].dtype == "float32"


@pytest.mark.parametrize(
    ("returned", "part"),
    [
        (lambda x: x, "pair"),
        (lambda x: None, "pair"),
        (lambda x: (x, x, x), "pair"),
        (lambda x: [x, None], "pair"),
        (lambda x: (x, None), "must be the gradient function, got a NoneType"),
        (lambda x: (x, x), "must be the gradient function, got a Tensor"),
    ],
)
def test_custom_gradient_that_forgets_its_gradient_function(returned, part):
    @eg.custom_gradient
    def forgetful(x):
        return returned(x)

    x = eg.tensor(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        complaint(DTypeError, lambda: forgetful(x), "forgetful: ", part)
        y = y * x
    assert tape.gradient(y, x).item() == 27.0


# Gradient functions


def product(x, y):
    return x * y


@pytest.mark.parametrize(
    "make",
    [eg.gradients_function, eg.value_and_gradients_function, eg.make_vjp],
)
@pytest.mark.parametrize(
    ("params", "parts"),
    [
        (["z"], ["'z'", "['x', 'y']"]),
        (["x", "z"], ["'z'", "['x', 'y']"]),
        ("xz", ["'z'"]),
        ([2], ["position 2", "2 positional"]),
        ([-3], ["position -3"]),
        ([0, "y"], ["all positions or all names", "[0, 'y']"]),
        ([1.5], ["all positions or all names", "[1.5]"]),
        ([None], ["all positions or all names", "[None]"]),
        (0, ["params", "0"]),
        ({"x": 1}.values(), ["position 1", "1 positional"]),
    ],
)
def test_wrong_params(make, params, parts):
    def call():
        arguments = (1.0,) if "1 positional" in parts[-1] else (1.0, 2.0)
        make(product, params)(*arguments)

    complaint((GradientError, DTypeError), call, "product: params", *parts)
    assert eg.gradients_function(product)(2.0, 3.0)[0].item() == 3.0


def test_params_that_the_call_does_not_supply():
    f = eg.gradients_function(lambda x, y=1.0: x * y, ["y"])
    complaint(GradientError, lambda: f(2.0), "params names 'y'", "does not supply")
    assert f(2.0, y=3.0)[0].item() == 2.0


@pytest.mark.parametrize(
    "make",
    [
        eg.gradients_function,
        eg.value_and_gradients_function,
        eg.make_vjp,
        eg.implicit_gradients,
        eg.implicit_value_and_gradients,
    ],
)
def test_function_that_returns_nothing(make):
    def forgetful(x):
        x * 2.0

    f = make(forgetful)
    complaint(GradientError, lambda: f(1.0), "forgetful: ", "returned None")


def test_implicit_gradients_of_a_function_without_variables():
    def constant(x):
        return x * 2.0

    f = eg.implicit_gradients(constant)
    complaint(GradientError, lambda: f(1.0), "constant: ", "no trainable Variable")


# Optimizers and Variables


OPTIMIZERS = [lambda: eg.optim.SGD(0.5, momentum=0.5), lambda: eg.optim.Adam(0.5)]
WRONG_PAIRS = {
    "shape": (lambda w: (eg.ones(3), w), ShapeError, "(3,)", "(2,)", "w"),
    "dtype": (lambda w: (eg.ones(2, "float64"), w), DTypeError, "float64", "float32"),
    "integer": (lambda w: (eg.ones(2, "int64"), w), DTypeError, "int64", "float32"),
    "text": (lambda w: ("text", w), (DTypeError, ShapeError), "w"),
    "swapped": (
        lambda w: (w, eg.ones(2)),
        DTypeError,
        "(gradient, variable)",
        "Tensor",
    ),
    "array": (lambda w: (eg.ones(2), np.ones(2)), DTypeError, "ndarray"),
}


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("name", WRONG_PAIRS)
def test_wrong_pairs(make, name):
    """Nothing changes, neither the variable that stands before nor the state."""
    wrong, kind, *parts = WRONG_PAIRS[name]

    def trained(disturbed):
        w, v = eg.Variable([1.0, 2.0], name="w"), eg.Variable(3.0)
        optimizer = make()
        right = [(eg.ones(()), v), (eg.ones(2), w)]
        optimizer.apply_gradients(right)
        if disturbed:
            before = w.tolist(), v.tolist()
            complaint(
                kind,
                lambda: optimizer.apply_gradients([(eg.ones(()), v), wrong(w)]),
                "apply_gradients: ",
                *parts,
            )
            assert (w.tolist(), v.tolist()) == before
        optimizer.apply_gradients(right)
        return w.tolist(), v.tolist()

    assert trained(True) == trained(False)


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("pairs", [[], [(None, eg.Variable(1.0))]])
def test_no_gradient_to_apply(make, pairs):
    optimizer = make()
    complaint(GradientError, lambda: optimizer.apply_gradients(pairs), "no gradient")


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_variable_that_appears_twice(make):
    w = eg.Variable(1.0)
    pairs = [(eg.ones(()), w), (eg.ones(()), w)]
    complaint(GradientError, lambda: make().apply_gradients(pairs), "twice", "add")
    assert w.item() == 1.0


def test_variable_that_is_a_tensor_changed_in_place():
    w = eg.Variable(1.0)
    with pytest.raises(RuntimeError, match="assign_add"):
        w += 1.0
    assert w.item() == 1.0


@pytest.mark.parametrize("wrong", [[1.0], "text", None, eg.tensor(1), eg.ones(2)])
@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
def test_variable_keeps_its_value(method, wrong):
    w = eg.Variable(3.0)
    with eg.GradientTape() as tape:
        y = w * w
        with pytest.raises((TypeError, ValueError)):
            getattr(w, method)(wrong)
        y = y * w
    assert w.item() == 3.0
    assert tape.gradient(y, w).item() == 27.0


# Of all errors


def test_every_error_has_a_builtin_class_and_can_be_pickled():
    for error in vars(eg.errors).values():
        if isinstance(error, type) and issubclass(error, EagergradError):
            assert error is EagergradError or len(error.__mro__) > 4
            again = pickle.loads(pickle.dumps(error("message")))
            assert type(again) is error
            assert str(again) == "message"


def test_errors_of_numpy_are_kept_as_the_cause():
    with pytest.raises(ShapeError) as caught:
        X + eg.zeros(3)
    assert isinstance(caught.value.__cause__, ValueError)


def test_singular_matrix_is_also_numpys_error():
    with pytest.raises(np.linalg.LinAlgError, match=r"inv: .*\(2, 2\)") as caught:
        eg.linalg.inv(np.zeros((2, 2)))
    assert isinstance(caught.value, eg.errors.MatrixError)
