"""Kernels called without NumPy's iterators give what NumPy's calls of them give."""

import ctypes
import sys

import numpy as np
import pytest
from kernel_operands import normal, on_columns, on_rows

from eagergrad import direct, host_kernels
from eagergrad.kernels import catalogue

pytestmark = pytest.mark.skipif(
    host_kernels.problem() is not None, reason="no C++ compiler here"
)
SERVED = [k for k in catalogue().values() if k.vectorised and direct._serves(k)]
X, W, B = normal(2, 3), normal(3, 4), normal(4)
RELU = np.array(1)


def parts(found):
    return found if isinstance(found, tuple) else (found,)


def same(name, *args, **kwargs):
    """What the direct call gives, which is what the ufunc does."""
    expected = parts(host_kernels.find(name)(*args, **kwargs))
    found = parts(direct.find(name)(*args, **kwargs))
    for y, z in zip(found, expected, strict=True):
        assert y.dtype == z.dtype
        assert y.shape == z.shape
        assert y.tobytes() == z.tobytes()
    return found


def given(kernel, m, n, dtype):
    """Its operands, on m rows of n elements."""
    if kernel.form == "rows":
        return on_rows(kernel, m, n, dtype)
    if kernel.form == "columns":
        made = on_columns(kernel.name, m, n, dtype)
        return [np.asarray(x, dtype) if type(x) is float else x for x in made]
    x, w, b = (normal(*s).astype(dtype) for s in ((m, 3), (3, n), (n,)))
    if kernel.name == "dense":
        return [x, w, b, RELU]
    return [x, w, *normal(2, m, n).astype(dtype), RELU]


def test_kernels_with_axes_of_their_own_are_served():
    assert direct.ready()
    names = {kernel.name for kernel in SERVED}
    assert names >= {"softmax", "integer_cross_entropy_vjp", "layer_norm", "dense_vjp"}
    assert not names & {"sigmoid", "adam", "dropout", "max_pool"}
    assert direct.find("sigmoid") is host_kernels.find("sigmoid")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("kernel", SERVED, ids=lambda kernel: kernel.name)
def test_bits_of_every_kernel_served(kernel, dtype):
    for m, n in ((1, 1), (1, 5), (5, 1), (7, 300), (45, 16)):
        for y in same(kernel.name, *given(kernel, m, n, dtype)):
            assert type(y) is np.ndarray


def counted(name):
    """The direct call, and a list of the calls it left to the ufunc."""
    left, real = [], host_kernels.find(name)

    def ufunc(*args, **kwargs):
        left.append(args)
        return real(*args, **kwargs)

    return direct._function.__wrapped__(catalogue()[name], ufunc), left


class Own(np.ndarray):
    pass


def odd(x):
    """The same values, in an array whose axes of length 1 have steps of their own."""
    return np.lib.stride_tricks.as_strided(x, x.shape, [1 << 40, *x.strides[1:]])


def byteswapped(x):
    return x.astype(x.dtype.newbyteorder())


def offset(x):
    raw = np.empty(x.nbytes + 1, np.uint8)[1:]
    raw[:] = np.frombuffer(x.tobytes(), np.uint8)
    return raw.view(x.dtype).reshape(x.shape)


@pytest.mark.parametrize(
    ("args", "direct_"),
    {
        "plain": ((X, W, B, RELU), True),
        "read-only": ((np.broadcast_to(X, X.shape), W, B, RELU), True),
        "odd steps": ((odd(X[:1]), W, B, RELU), True),
        "several products": ((normal(5, 2, 3), W, B, RELU), True),
        "each with its own": ((normal(5, 2, 3), normal(5, 3, 4), B, RELU), True),
        "around two axes": ((normal(5, 1, 2, 3), W, normal(5, 1, 4), RELU), True),
        "broadcast": ((normal(5, 2, 3), normal(1, 3, 4), B, RELU), False),
        "axes fewer": ((normal(6, 5, 2, 3), normal(5, 3, 4), B, RELU), False),
        "gaps": ((normal(2, 6)[:, ::2], W, B, RELU), False),
        "transposed": ((normal(3, 2).T, W, B, RELU), False),
        "a number": ((X, W, B, 1), False),
        "a list": ((X.tolist(), W, B, RELU), False),
        "two dtypes": ((X, W.astype("f8"), B, RELU), False),
        "integers": ((X.astype(int), W, B, RELU), False),
        "another order of bytes": ((X, byteswapped(W), B, RELU), False),
        "not aligned": ((offset(X), W, B, RELU), False),
        "a class of one's own": ((X.view(Own), W, B, RELU), False),
        "large": ((normal(600, 16), normal(16, 4), B, RELU), False),
        "nothing": ((X[:0], W, B, RELU), False),
    }.values(),
)
def test_what_is_not_plain_is_left_to_numpy(args, direct_):
    call, left = counted("dense")
    found = call(*args)
    expected = host_kernels.find("dense")(*args)
    assert (not left) is direct_
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_keywords_and_results_by_position_are_left_to_numpy():
    out = np.zeros((2, 4), "f4")
    assert same("dense", X, W, B, RELU, out=out)[0] is out
    assert direct.find("dense")(X, W, B, RELU, out) is out
    x = normal(4, 5)
    same("softmax", x, axis=0)


@pytest.mark.parametrize(
    "args", [(), (X,), (X, X, B, RELU), (X, W, B[:2], RELU), (X, W, B, None)]
)
def test_errors_are_numpys(args):
    def told(call):
        with pytest.raises((TypeError, ValueError)) as error:
            call(*args)
        return type(error.value), str(error.value)

    assert told(direct.find("dense")) == told(host_kernels.find("dense"))


def test_nothing_is_kept():
    x = normal(3, 4)
    labels = np.array([1, 0, 3])
    held = [x, labels, x.dtype, labels.dtype]
    call = direct.find("integer_cross_entropy")
    before = list(map(sys.getrefcount, held))
    for _ in range(1000):
        found = call(x, labels)
    known = host_kernels.find("integer_cross_entropy")(x, labels)
    counts = [[sys.getrefcount(y) for y in result] for result in (found, known)]
    assert counts[0] == counts[1]
    del found, known
    after = list(map(sys.getrefcount, held))
    assert after == before


def test_other_structures_than_known_are_left_alone(monkeypatch):
    class Array(ctypes.Structure):
        _fields_ = (("more", ctypes.c_void_p), *direct._Array._fields_)

    direct.ready.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(direct, "_Array", Array)
        assert not direct.ready()
        assert direct.find("dense") is host_kernels.find("dense")
    direct.ready.cache_clear()
    assert direct.ready()
