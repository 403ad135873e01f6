"""The registry over arrays of any layout and size: strided, read-only, empty, 0-d.

An op sees the numbers of an array, not how they lie in memory, and never writes into
one: value, gradient, JVP and second derivative are those of a plain copy.
"""

import warnings

import numpy as np
import pytest
from op_cases import ALL, SMOOTH, UNARY, draw
from test_ops import reference

import eagergrad as eg


def reversed_in_memory(x):
    """The same numbers, with negative strides along every axis."""
    back = (*[slice(None, None, -1)] * x.ndim, ...)  # a view, also of a 0-d array
    return x[back].copy()[back]


def sliced(x):
    """The same numbers as every second one of a larger array, between nans."""
    fill = np.nan if x.dtype.kind in "fc" else 0
    big = np.full([2 * n + 1 for n in x.shape], fill, x.dtype)
    view = big[(*[slice(1, None, 2)] * x.ndim, ...)]
    view[...] = x
    return view


def transposed(x):
    """The same numbers with the first axis next to itself in memory."""
    return x.T.copy().T


def unaligned(x):
    """The same numbers one byte off where the machine reads them at once."""
    bytes_ = np.zeros(x.nbytes + 1, np.uint8)
    view = bytes_[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


LAYOUTS = [reversed_in_memory, sliced, transposed, unaligned]


def read_only(x):
    x = np.asarray(x).view()
    x.flags.writeable = False
    return x


def seed_like(y):
    c = 0.5 + np.arange(y.size).reshape(y.shape) % 7 / 4
    return np.asarray(c * (1 - 2j) if y.dtype.kind == "c" else c, y.dtype)


def derivatives(case, arrays, layout=np.asarray):
    """The value, the gradient, the JVP and the second derivative of a call.

    The arrays, the tangents and the cotangent all have one layout, and are read-only.
    """
    xs = [eg.asarray(read_only(layout(x))) for x in arrays]
    sources = [xs[i] for i in case.sources]
    tangents = [seed_like(x) for x in sources]
    tangents = [eg.asarray(read_only(layout(t))) for t in tangents]
    with eg.GradientTape() as outer:
        outer.watch(sources)
        with (
            eg.ForwardAccumulator(sources, tangents) as forward,
            eg.GradientTape(persistent=True) as tape,
        ):
            tape.watch(sources)
            y = case(*xs)
        seed = eg.asarray(read_only(layout(seed_like(y))))
        first = tape.gradient(y, sources, seed, "zero")
    bare = tape.gradient(y, sources, seed, "zero")
    jvp = forward.jvp(y, "zero")
    second = outer.gradient(first, sources, tangents, "zero")
    for x, given in zip(xs, arrays, strict=True):
        np.testing.assert_array_equal(x.numpy(), given)
    return [y, jvp, *bare, *first, *second]


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_any_layout_gives_the_same(case):
    plain = derivatives(case, case.arrays)
    for layout in LAYOUTS:
        other = derivatives(case, case.arrays, layout)
        for a, b in zip(plain, other, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), layout
            atol = 1e-12 * abs(a.numpy()).max(initial=1)
            np.testing.assert_allclose(b.numpy(), a.numpy(), 1e-12, atol, True, layout)


def test_layouts_are_what_they_say():
    x = draw((3, 4))
    for layout in LAYOUTS:
        shared = eg.asarray(layout(x))._data
        np.testing.assert_array_equal(shared, x)
        assert not shared.flags.c_contiguous or not shared.flags.aligned
    assert not eg.asarray(read_only(x))._data.flags.writeable


# ------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    "op", [op for op in UNARY if op.recorded], ids=lambda op: op.name
)
def test_shape_does_not_matter_element_by_element(op):
    """0-d, empty and size-1 arrays: the numbers are those of a plain row."""
    case = next(case for case in SMOOTH if case.op is op)
    low, high = op.domain or (0.2, 2.0)
    for shape in [(), (0,), (1,), (1, 1), (3, 0), (2, 1, 3)]:
        x = draw(shape, low, high)
        found = derivatives(case._replace(arrays=(x,)), [x])
        row = derivatives(case._replace(arrays=(x.reshape(-1),)), [x.reshape(-1)])
        for a, b in zip(found, row, strict=True):
            assert a.shape == shape
            np.testing.assert_allclose(a.numpy().reshape(-1), b.numpy(), 1e-12)


# Steps of other functions, which see to it that the shapes of their arguments fit, to
# one another or to a parameter.
STEPS = set(
    """cofactors contract conv_filter conv_input avg_spread expm inverse_deviation
    integer_cross_entropy onto_diagonal pool_gather pool_scatter qr centred
    softmax_error softmax_seen""".split()
)
# Padding makes windows of an axis of no elements.
PADDED = {"avg_pool", "max_pool"}


def emptied(case):
    """The case with no elements along the first axis of its arrays, or the last."""
    for axis in (0, -1):
        if all(x.ndim for x in case.arrays):
            yield case._replace(arrays=[np.take(x, [], axis) for x in case.arrays])


WHOLE = [case for case in ALL if case.op.name not in STEPS | PADDED]
EMPTY = [empty for case in WHOLE for empty in emptied(case)]


@pytest.mark.parametrize("case", EMPTY, ids=str)
def test_no_elements(case):
    """As NumPy, also where that is an error; gradients have the sources' shapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns at means of nothing
        try:
            expected = np.asarray(reference(case.op, case.arrays, case.params))
        except (ValueError, IndexError):
            with pytest.raises((ValueError, IndexError), match=f"^{case.op.name}: "):
                case(*case.arrays)
            return
    y = case(*case.arrays)
    assert y.shape == expected.shape
    np.testing.assert_array_equal(y.numpy(), expected)
    if case.op.recorded and case.sources:
        _, jvp, *grads = derivatives(case, case.arrays)
        assert jvp.shape == y.shape
        assert [g.shape for g in grads] == [x.shape for x in case.source_arrays] * 3


@pytest.mark.parametrize("softmax", [eg.softmax, eg.log_softmax])
def test_softmax_of_no_classes(softmax):
    assert softmax(np.zeros((2, 0))).shape == (2, 0)


def test_a_broadcast_array_is_not_written_to():
    """One number under many strides of 0: adding to it in place would add often."""
    x = np.broadcast_to(np.array([1.0, 2.0]), (3, 2))
    for f in (lambda x: x + x, lambda x: x * x, eg.cumsum, eg.sort):
        plain = eg.gradients_function(f)(x.copy())[0].numpy()
        found = eg.gradients_function(f)(eg.asarray(x))[0].numpy()
        np.testing.assert_array_equal(found, plain)
    np.testing.assert_array_equal(x, [[1.0, 2.0]] * 3)
