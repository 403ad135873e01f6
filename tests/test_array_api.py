"""The namespace as one of the Array API standard, version 2024.12.

The table has every function of the standard with its signature and a call, which must
give what NumPy gives.
"""

import inspect

import numpy as np
import pytest
import standin
from op_cases import draw, integers

import eagergrad as eg
from eagergrad.errors import ShapeError
from eagergrad.testing import check_grads

UNARY = {  # by the arrays of the call
    "X": "abs asinh atan ceil cos cosh exp expm1 floor imag isfinite isinf isnan "
    "negative positive real reciprocal round sign signbit sin sinh square tan tanh "
    "trunc",
    "U": "acos asin atanh log log10 log1p log2 sqrt",
    "U + 1": "acosh",
    "N": "bitwise_invert",
    "B": "logical_not",
    "Z": "conj",
}
BINARY = {
    "X, Y": "add atan2 copysign divide equal floor_divide greater greater_equal hypot "
    "less less_equal logaddexp maximum minimum multiply nextafter not_equal remainder "
    "subtract",
    "U, Y": "pow",
    "N, M": "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor",
    "B, X > 0": "logical_and logical_or logical_xor",
}
REST = """
all(x, /, *, axis=None, keepdims=False) | all(B, axis=1, keepdims=True)
any(x, /, *, axis=None, keepdims=False) | any(B, axis=(0, 1))
arange(start, /, stop=None, step=1, *, dtype=None, device=None) | arange(1, 9, 3)
argmax(x, /, *, axis=None, keepdims=False) | argmax(X, axis=1, keepdims=True)
argmin(x, /, *, axis=None, keepdims=False) | argmin(X)
argsort(x, /, *, axis=-1, descending=False, stable=True) | argsort(N, axis=0)
asarray(obj, /, *, dtype=None, device=None, copy=None) | asarray(X, copy=True)
astype(x, dtype, /, *, copy=True, device=None) | astype(X, 'float32', copy=False)
broadcast_arrays(*arrays) | broadcast_arrays(X, V)
broadcast_shapes(*shapes) | broadcast_shapes((3, 1), (4,))
broadcast_to(x, /, shape) | broadcast_to(V, shape=(2, 4))
can_cast(from_, to, /) | can_cast('float64', 'float32')
clip(x, /, min=None, max=None) | clip(X, min=-0.5, max=V)
concat(arrays, /, *, axis=0) | concat([X, Y], axis=None)
count_nonzero(x, /, *, axis=None, keepdims=False) | count_nonzero(N, axis=0)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False) \
    | cumulative_prod(X, axis=-1, dtype='float32', include_initial=True)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False) \
    | cumulative_sum(X, axis=0, include_initial=True)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None) | diff(X, n=2, axis=0)
empty(shape, *, dtype=None, device=None) | empty((2, 3), dtype='int16').shape
empty_like(x, /, *, dtype=None, device=None) | empty_like(N).dtype
expand_dims(x, /, axis) | expand_dims(X, axis=-2)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None) \
    | eye(3, 4, k=1, dtype='float64')
fft.fft(x, /, *, n=None, axis=-1, norm='backward') | fft.fft(Z, n=3, norm='ortho')
fft.fftfreq(n, /, *, d=1.0, dtype=None, device=None) | fft.fftfreq(5, d=0.5).shape
fft.fftn(x, /, *, s=None, axes=None, norm='backward') | fft.fftn(Z, axes=(0, 1))
fft.fftshift(x, /, *, axes=None) | fft.fftshift(X, axes=1)
fft.hfft(x, /, *, n=None, axis=-1, norm='backward') | fft.hfft(Z, axis=0)
fft.ifft(x, /, *, n=None, axis=-1, norm='backward') | fft.ifft(Z)
fft.ifftn(x, /, *, s=None, axes=None, norm='backward') | fft.ifftn(Z)
fft.ifftshift(x, /, *, axes=None) | fft.ifftshift(X)
fft.ihfft(x, /, *, n=None, axis=-1, norm='backward') | fft.ihfft(X)
fft.irfft(x, /, *, n=None, axis=-1, norm='backward') | fft.irfft(Z, n=5)
fft.irfftn(x, /, *, s=None, axes=None, norm='backward') | fft.irfftn(Z)
fft.rfft(x, /, *, n=None, axis=-1, norm='backward') | fft.rfft(X, norm='forward')
fft.rfftfreq(n, /, *, d=1.0, dtype=None, device=None) | fft.rfftfreq(4, d=2.0).shape
fft.rfftn(x, /, *, s=None, axes=None, norm='backward') | fft.rfftn(X)
finfo(type, /) | float(finfo('float32').eps)
flip(x, /, *, axis=None) | flip(X, axis=(0, 1))
from_dlpack(x, /, *, device=None, copy=None) | from_dlpack(X, copy=True)
full(shape, fill_value, *, dtype=None, device=None) | full((2, 3), 7)
full_like(x, /, fill_value, *, dtype=None, device=None) | full_like(X, 2)
iinfo(type, /) | iinfo('int8').min
isdtype(dtype, kind) | isdtype(X.dtype, ('integral', 'real floating'))
linalg.cholesky(x, /, *, upper=False) | linalg.cholesky(P, upper=True)
linalg.cross(x1, x2, /, *, axis=-1) | linalg.cross(X, Y, axis=0)
linalg.det(x, /) | linalg.det(P)
linalg.diagonal(x, /, *, offset=0) | linalg.diagonal(X, offset=1)
linalg.eigh(x, /) | linalg.eigh(P).eigenvalues
linalg.eigvalsh(x, /) | linalg.eigvalsh(P)
linalg.inv(x, /) | linalg.inv(P)
linalg.matmul(x1, x2, /) | linalg.matmul(X, Y.T)
linalg.matrix_norm(x, /, *, keepdims=False, ord='fro') \
    | linalg.matrix_norm(X, keepdims=True, ord='nuc')
linalg.matrix_power(x, n, /) | linalg.matrix_power(P, -3)
linalg.matrix_rank(x, /, *, rtol=None) | linalg.matrix_rank(P, rtol=0.3)
linalg.matrix_transpose(x, /) | linalg.matrix_transpose(X)
linalg.outer(x1, x2, /) | linalg.outer(V, V)
linalg.pinv(x, /, *, rtol=None) | linalg.pinv(stack([X, Y]), rtol=U[0, :2])
linalg.qr(x, /, *, mode='reduced') | abs(linalg.qr(X.T, mode='reduced').R)
linalg.slogdet(x, /) | linalg.slogdet(P)
linalg.solve(x1, x2, /) | linalg.solve(P, X)
linalg.svd(x, /, *, full_matrices=True) | linalg.svd(X, full_matrices=False).S
linalg.svdvals(x, /) | linalg.svdvals(X)
linalg.tensordot(x1, x2, /, *, axes=2) | linalg.tensordot(X, Y, axes=([0], [0]))
linalg.trace(x, /, *, offset=0, dtype=None) | linalg.trace(X, dtype='float32')
linalg.vecdot(x1, x2, /, *, axis=-1) | linalg.vecdot(Z, Z, axis=0)
linalg.vector_norm(x, /, *, axis=None, keepdims=False, ord=2) \
    | linalg.vector_norm(X, axis=(0, 1), ord=3)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True) \
    | linspace(1, 3, num=7, dtype='float64', endpoint=False)
matmul(x1, x2, /) | matmul(X, V)
matrix_transpose(x, /) | matrix_transpose(X)
max(x, /, *, axis=None, keepdims=False) | max(X, axis=0)
mean(x, /, *, axis=None, keepdims=False) | mean(X, axis=0, keepdims=True)
meshgrid(*arrays, indexing='xy') | meshgrid(V, V[:2], indexing='ij')
min(x, /, *, axis=None, keepdims=False) | min(X)
moveaxis(x, source, destination, /) | moveaxis(X, 0, 1)
nonzero(x, /) | nonzero(N)
ones(shape, *, dtype=None, device=None) | ones(3, dtype='float64')
ones_like(x, /, *, dtype=None, device=None) | ones_like(X, dtype='int8')
permute_dims(x, /, axes) | permute_dims(X, axes=(1, 0))
prod(x, /, *, axis=None, dtype=None, keepdims=False) | prod(X, axis=1, dtype='float32')
repeat(x, repeats, /, *, axis=None) | repeat(X, [1, 0, 2], axis=0)
reshape(x, /, shape, *, copy=None) | reshape(X, shape=(2, 6), copy=True)
result_type(*arrays_and_dtypes) | result_type('float32', X, 1)
roll(x, /, shift, *, axis=None) | roll(X, shift=(1, 2), axis=(0, 1))
searchsorted(x1, x2, /, *, side='left', sorter=None) \
    | searchsorted(V, X, side='right', sorter=[3, 0, 1, 2])
sort(x, /, *, axis=-1, descending=False, stable=True) | sort(X, axis=0)
squeeze(x, /, axis) | squeeze(X[:1], axis=0)
stack(arrays, /, *, axis=0) | stack([X, Y], axis=-1)
std(x, /, *, axis=None, correction=0.0, keepdims=False) \
    | std(X, axis=1, correction=1.0, keepdims=True)
sum(x, /, *, axis=None, dtype=None, keepdims=False) | sum(N, axis=1, dtype='float64')
take(x, indices, /, *, axis=None) | take(X, [2, 0], axis=1)
take_along_axis(x, indices, /, *, axis=-1) | take_along_axis(X, N[:, :2] % 4)
tensordot(x1, x2, /, *, axes=2) | tensordot(X, Y.T, axes=1)
tile(x, repetitions, /) | tile(X, (2, 1, 2))
tril(x, /, *, k=0) | tril(X, k=-1)
triu(x, /, *, k=0) | triu(X, k=1)
unique_all(x, /) | unique_all(N)
unique_counts(x, /) | unique_counts(N)
unique_inverse(x, /) | unique_inverse(W)
unique_values(x, /) | unique_values(W)
unstack(x, /, *, axis=0) | unstack(X, axis=1)
var(x, /, *, axis=None, correction=0.0, keepdims=False) | var(X, correction=2)
vecdot(x1, x2, /, *, axis=-1) | vecdot(X, Y)
where(condition, x1, x2, /) | where(B, X, 0.0)
zeros(shape, *, dtype=None, device=None) | zeros((2, 3), dtype='int32')
zeros_like(x, /, *, dtype=None, device=None) | zeros_like(X)
"""
ROWS = [
    *[f"{n}(x, /) | {n}({x})" for x, names in UNARY.items() for n in names.split()],
    *[f"{n}(x1, x2, /) | {n}({x})" for x, ns in BINARY.items() for n in ns.split()],
    *REST.replace("\\\n", "").strip().splitlines(),
]
X, Y = draw((3, 4)), draw((3, 4))[::-1] * 0.7
N, M, V = integers((3, 4), 7), integers((3, 4), 3), draw((4,))
ARRAYS = {
    "X": X,
    "Y": Y,
    "U": np.abs(X) / 2.5 + 0.05,
    "V": V,
    "W": np.array([[2.0, np.nan], [1.0, np.nan], [2.0, 1.0]]),
    "N": N,
    "M": M,
    "B": X > 0.3,
    "Z": X + 1j * Y,
    "P": X[:, :3] @ X[:, :3].T + np.eye(3),
}
OTHER_DEFAULTS = {  # of the same meaning
    **{f"{row.partition('(')[0]}.norm": None for row in ROWS if row[:4] == "fft."},
    "linalg.cross.axis": None,
    "std.correction": None,
    "var.correction": None,
}


def found(namespace, name):
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def plain(value):
    """Tensors as arrays, also in tuples and lists, and all else as it is."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value.numpy() if isinstance(value, eg.Tensor) else value


def agree(got, expected):
    """Equal structures of arrays with equal values and dtypes, or of other things."""
    if isinstance(expected, list):
        for a, b in zip(got, expected, strict=True):
            agree(a, b)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        rtol = 1e-6 if got.dtype == "float32" else 1e-12
        np.testing.assert_allclose(got, expected, rtol, 1e-14)
    else:
        assert got == expected


def name_of(row):
    return row.partition("(")[0]


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_every_function_takes_the_arguments_of_the_standard(row):
    name, _, signature = row.partition(" | ")[0].partition("(")
    declared = {}
    exec(f"def function({signature}: pass", declared)
    standard = inspect.signature(declared["function"]).parameters.values()
    ours = inspect.signature(found(eg, name))
    first = [p for p in standard if p.kind is p.POSITIONAL_ONLY]
    either = [p for p in standard if p.kind is p.POSITIONAL_OR_KEYWORD]
    last = [p for p in standard if p.kind is p.KEYWORD_ONLY]
    ours.bind(*first, *either, **{p.name: p for p in last})
    ours.bind(*first, **{p.name: p for p in either + last})
    for p in either + last:
        if p.default is not p.empty:
            default = OTHER_DEFAULTS.get(f"{name}.{p.name}", p.default)
            assert ours.parameters[p.name].default == default


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_every_function_gives_what_numpy_gives(row):
    call = row.partition(" | ")[2]
    got, expected = (plain(eval(call, {**vars(xp), **ARRAYS})) for xp in (eg, np))
    agree(got, expected)


ELSEWHERE = [row for row in ROWS if name_of(row) != "from_dlpack"]  # has its own test


@pytest.mark.parametrize("row", ELSEWHERE, ids=name_of)
def test_every_function_runs_on_another_device(row):
    call = row.partition(" | ")[2]
    with standin.installed() as gpu:
        arrays = {name: eg.tensor(x, device=gpu) for name, x in ARRAYS.items()}
        result = eval(call, {**vars(eg), **arrays})
        assert standin.COUNTS["to_host"] == 0
        got = plain(result)
    agree(got, plain(eval(call, {**vars(np), **ARRAYS})))


def test_the_table_has_each_function_once():
    names = [name_of(row) for row in ROWS]
    assert len(names) == len({*names})


# ------------------------------------------------------------------- what NumPy has not


def test_falling_order_is_stable_and_begins_with_nan():
    x = [2.0, np.nan, 3.0, 2.0, np.nan, 1.0]
    assert eg.argsort(x, descending=True).tolist() == [1, 4, 2, 0, 3, 5]
    assert eg.argsort([[1, 2], [1, 3]], axis=0, descending=True).tolist() == [
        [0, 1],
        [1, 0],
    ]
    np.testing.assert_array_equal(
        eg.sort(x, descending=True), [np.nan, np.nan, 3.0, 2.0, 2.0, 1.0]
    )
    watched = eg.Variable(N)
    for axis in (None, 0, -1):
        expected = -np.sort(-N, axis=axis)
        assert eg.sort(N, axis=axis, descending=True).tolist() == expected.tolist()
        assert eg.sort(watched, axis, True).tolist() == expected.tolist()


def test_integers_are_round():
    x = eg.round(np.array([1, -2], "int8"))
    assert (x.dtype, x.tolist()) == ("int8", [1, -2])
    assert eg.round([1234], 2).dtype == "int64"
    assert eg.round([1234], -2).tolist() == [1200.0]


def shares(x, y):
    return np.shares_memory(np.asarray(x), np.asarray(y))


def test_asarray_copies_as_asked():
    x = eg.tensor(X)
    assert eg.asarray(x, copy=False) is x
    assert shares(eg.asarray(X, copy=False), X)
    assert not shares(eg.asarray(X, copy=True), X)
    assert not shares(eg.asarray(x, copy=True), x)
    assert eg.asarray(np.zeros(0), copy=False).shape == (0,)
    for data, dtype in ([1.0], None), (X, "float32"), (x, "float32"), ([x], None):
        with pytest.raises(ShapeError, match=r"asarray: .*copy=False.*got (list|nd|T)"):
            eg.asarray(data, dtype=dtype, copy=False)


def test_tensor_copies_a_tensor():
    x = eg.tensor(X)
    assert not shares(eg.tensor(x), x)
    assert not shares(eg.tensor(x, dtype="float64", device="cpu"), x)


def test_clip_without_bounds_gives_a_tensor():
    assert eg.clip([1.0, 2.0]).tolist() == [1.0, 2.0]


def test_reshape_copies_as_asked():
    x = eg.tensor(X)
    assert shares(eg.reshape(x, (12,), copy=False), x)
    assert not shares(eg.reshape(x, (12,), copy=True), x)
    with pytest.raises(ShapeError, match=r"reshape: .*copy=False.*got Tensor"):
        eg.reshape(x.mT, (12,), copy=False)


def test_astype_copies_and_moves_as_asked():
    x = eg.tensor(X)
    assert eg.astype(x, "float64", copy=False) is x
    assert eg.astype(x, "float64") is not x
    assert eg.astype(x, "float32", copy=False, device="cpu").dtype == "float32"


def test_from_dlpack_copies_and_moves_as_asked():
    assert shares(eg.from_dlpack(X), X)
    assert shares(eg.from_dlpack(X, device="cpu", copy=False), X)
    assert not shares(eg.from_dlpack(eg.tensor(X), copy=True), X)
    with standin.installed() as gpu:
        assert eg.from_dlpack(X, device=gpu).device == gpu
        message = "from_dlpack: .*copy=False.*on standin.*got one on cpu"
        with pytest.raises(BufferError, match=message):
            eg.from_dlpack(X, device=gpu, copy=False)
        with pytest.raises(ShapeError, match=r"asarray: .*copy=False"):
            eg.asarray(X, device=gpu, copy=False)


def test_linspace_of_arrays_keeps_their_dtype_and_its_ends():
    x = eg.linspace(V, eg.tensor(2.0, dtype="float64"), 7)
    assert (x.shape, x.dtype) == ((7, 4), "float64")
    assert (x[0].tolist(), x[-1].tolist()) == (V.tolist(), [2.0] * 4)
    np.testing.assert_allclose(x, np.linspace(V, 2.0, 7), 1e-14, 1e-14)
    assert eg.linspace(0, 1j, 3).dtype == "complex64"


def test_a_cumulative_sum_of_two_axes_needs_to_be_told_which():
    for name in ("cumulative_sum", "cumulative_prod"):
        with pytest.raises(ShapeError, match=rf"{name}: .*axis.*\(3, 4\), got None"):
            found(eg, name)(X)


def test_a_spread_has_one_correction():
    for name in ("std", "var"):
        with pytest.raises(ShapeError, match=f"{name}: .*got both: 1 and 2"):
            found(eg, name)(X, ddof=1, correction=2)


GRADIENTS = {  # more than other names of ops, in the words of the standard
    "argument of a type": lambda x: eg.sum(x, dtype="float64") * eg.prod(x, dtype="f8"),
    "asarray": lambda x: eg.asarray(x, copy=True) * eg.tensor(x),
    "astype": lambda x: eg.astype(x, "float64", device="cpu") ** 2,
    "concat": lambda x: eg.concat([x, x * x], axis=-1),
    "cumulative_prod": lambda x: eg.cumulative_prod(x, axis=1, include_initial=True),
    "cumulative_sum": lambda x: eg.cumulative_sum(x * x, axis=0, include_initial=True),
    "linspace": lambda x: eg.linspace(x, x[0] ** 2, num=3, endpoint=False),
    "pow": lambda x: eg.pow(eg.abs(x), x),
    "reshape": lambda x: eg.reshape(x * x, (-1,), copy=True),
    "sort": lambda x: eg.sort(x, descending=True) * eg.arange(4.0),
    "std": lambda x: eg.std(x, axis=0, correction=1),
    "trace": lambda x: eg.linalg.trace(x * x, offset=1, dtype="float64"),
    "unique_all": lambda x: eg.unique_all(x).values ** 3,
    "unique_values": lambda x: eg.unique_values(x) ** 3,
    "mT": lambda x: x.mT @ x,
    "to_device": lambda x: x.to_device("cpu") ** 2,
}


@pytest.mark.parametrize("f", GRADIENTS.values(), ids=list(GRADIENTS))
def test_gradients_in_the_words_of_the_standard(f):
    check_grads(f, [X])


def whitened(x):
    """A program that knows arrays by the standard alone."""
    xp = x.__array_namespace__(api_version="2024.12")
    x = x - xp.mean(x, axis=0, keepdims=True)
    covariance = xp.matmul(xp.matrix_transpose(x), x) / (x.shape[0] - 1)
    covariance += xp.eye(x.shape[1], dtype=x.dtype, device=x.device)
    root = xp.linalg.cholesky(covariance)
    y = xp.permute_dims(xp.linalg.solve(root, x.mT), (1, 0))
    limit = xp.finfo(y.dtype).max
    return xp.where(xp.isfinite(y), xp.clip(xp.atan(y), -limit, limit), xp.asarray(0.0))


def test_a_program_of_the_standard_runs_and_has_gradients():
    np.testing.assert_allclose(whitened(eg.tensor(X)), whitened(X), 1e-12)
    check_grads(whitened, [X])
