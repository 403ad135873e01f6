"""The 16-bit floats over the registry: float16, and bfloat16 from ml_dtypes.

A result has the dtype of its operands and the value of the same call in float32, but
for rounding; so have its gradient, its JVP and its second derivative.  Errors are in
units of rounding: of the largest element, or of 1 where all are smaller.
"""

import sys

import ml_dtypes
import numpy as np
import pytest
from op_cases import BINARY, CASES, FLAGS, SHIFTS, SMOOTH, draw

import eagergrad as eg

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype("float16")
ROUNDING = {BFLOAT16: 2.0**-8, FLOAT16: 2.0**-11}
both = pytest.mark.parametrize("half", [BFLOAT16, FLOAT16], ids=str)

# What does not give the dtype of its operand, and why.
OTHER = {
    "astype": "the dtype is an argument",
    "fftn": "no complex dtype is as short",
    "ifftn": "no complex dtype is as short",
    "rfft": "no complex dtype is as short",
}
REAL = [case for case in SMOOTH if all(x.dtype.kind != "c" for x in case.source_arrays)]

# Units of rounding that are lost: the value 1 or 2, a gradient or JVP up to 4, and a
# second derivative, of several ops that each round, more.  It is in reach of bfloat16
# only, as float16 overflows; and the float16 gradient of these subtracts nearly equal
# digammas.
ALLOWED = {"value": 2, "gradient": 4, "jvp": 4, "second": 12}
DIFFERENCES = {"beta": 64, "betaln": 8, "quotient": 8, "divide": 8, "cofactor_slope": 8}


def seed_like(y):
    c = 0.5 + np.arange(y.size).reshape(y.shape) % 7 / 4
    return eg.tensor((c * (1 - 2j) if y.dtype.kind == "c" else c).astype(y.dtype))


def values(case, arrays):
    """The result, its gradient, its JVP and the gradient's own gradient."""
    xs = [eg.tensor(x) for x in arrays]
    sources = [xs[i] for i in case.sources]
    tangents = [eg.tensor(np.cos(np.arange(x.size)).reshape(x.shape)) for x in sources]
    tangents = [t.astype(x.dtype) for t, x in zip(tangents, sources, strict=True)]
    with eg.GradientTape() as outer:
        outer.watch(sources)
        with (
            eg.ForwardAccumulator(sources, tangents) as forward,
            eg.GradientTape() as tape,
        ):
            tape.watch(sources)
            y = case(*xs)
        first = tape.gradient(y, sources, seed_like(y), "zero")
        slope = sum(eg.sum(g * g) for g in first)
    second = outer.gradient(slope, sources, unconnected_gradients="zero")
    return {
        "value": [y],
        "gradient": first,
        "jvp": [forward.jvp(y, "zero")],
        "second": second,
    }


def widened(arrays, half):
    return [x.astype("float32") if x.dtype == half else x for x in arrays]


def units(got, exact, half):
    """The largest error, in units of rounding."""
    kind = "complex128" if exact.dtype.kind == "c" else "float64"
    got, exact = got.numpy().astype(kind), exact.numpy().astype(kind)
    scale = abs(exact).max(initial=1)
    return abs(got - exact).max(initial=0) / (ROUNDING[half] * scale)


@both
@pytest.mark.parametrize("case", REAL, ids=str)
def test_close_to_float32(case, half):
    arrays = case.cast(half)
    rounded, exact = values(case, arrays), values(case, widened(arrays, half))
    for what, pieces in rounded.items():
        allowed = ALLOWED[what]
        if half == FLOAT16 and what != "value":
            allowed = DIFFERENCES.get(case.op.name, allowed)
        for got, wide in zip(pieces, exact[what], strict=True):
            if what in ("gradient", "second") or case.op.name not in OTHER:
                assert got.dtype == half, what
            assert got.shape == wide.shape, what
            if what != "second" or half == BFLOAT16:
                assert units(got, wide, half) <= allowed, what


@pytest.mark.parametrize("name", OTHER)
def test_what_is_not_16_bits_long(name):
    assert all(case(*case.cast(BFLOAT16)).dtype != BFLOAT16 for case in CASES[name])


def test_every_op_that_has_a_gradient_is_here():
    """But for those of complex numbers alone."""
    here = {case.op.name for case in REAL}
    assert {case.op.name for case in SMOOTH} - here == {"real", "imag", "irfft"}
    assert set(OTHER) | set(DIFFERENCES) <= here


@pytest.mark.parametrize("case", REAL, ids=str)
def test_rules_on_tensors_equal_rules_on_buffers(case):
    """Both run in float32 and round at the end: to the same bits."""
    found = []
    for recorded in (False, True):
        xs = [eg.tensor(x) for x in case.cast(BFLOAT16)]
        sources = [xs[i] for i in case.sources]
        with eg.GradientTape() as outer, eg.GradientTape() as tape:
            if recorded:
                outer.watch(sources)
            tape.watch(sources)
            y = case(*xs)
            if recorded:
                found.append(tape.gradient(y, sources, seed_like(y)))
        if not recorded:
            found.append(tape.gradient(y, sources, seed_like(y)))
    for bare, lifted in zip(*found, strict=True):
        assert bare.numpy().tobytes() == lifted.numpy().tobytes()


# The neighbour of a number is nearer the more digits there are.
FLOATING = [op for op in BINARY if op.name not in (*FLAGS, *SHIFTS, "nextafter")]


@both
@pytest.mark.parametrize("op", FLOATING, ids=lambda op: op.name)
def test_python_numbers_do_not_widen(op, half):
    x = draw((3,), 0.3, 2.0).astype(half)
    for number in (2, 1.5):
        for place in (0, 1):
            arguments = [x.astype("float32"), number][:: 1 if place == 0 else -1]
            exact = op.entry(*arguments)
            source = eg.tensor(x)
            with eg.GradientTape() as tape:
                tape.watch(source)
                y = op.entry(*([source, number] if place == 0 else [number, source]))
            assert y.dtype == (half if exact.dtype.kind == "f" else exact.dtype)
            assert units(y, exact, half) <= 2
            if op.recorded and op.rules[place] is not None:
                assert tape.gradient(y, source).dtype == half


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("bool", "bfloat16"),
        ("int64", "bfloat16"),
        ("bfloat16", "bfloat16"),
        ("float16", "float32"),  # neither holds the other
        ("float32", "float32"),
        ("float64", "float64"),
        ("complex64", "complex64"),
    ],
)
def test_dtypes_that_meet_bfloat16(other, expected):
    x, z = eg.tensor([0.5, 2.0], "bfloat16"), eg.tensor([1, 1], other)
    for op in (eg.add, eg.divide, eg.power, eg.matmul, lambda a, b: eg.stack([a, b])):
        for a, b in ((x, z), (z, x)):
            with eg.GradientTape() as tape:
                tape.watch(x)
                y = op(a, b)
            assert str(y.dtype) == expected
            assert tape.gradient(y, x).dtype == BFLOAT16


@both
def test_sums_accumulate_in_float32(half):
    many = np.ones(4096, half)
    assert eg.sum(many).item() == 4096
    assert eg.mean(many).item() == 1
    assert eg.matmul(many, many).item() == 4096
    x = eg.tensor(np.ones((), half))
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x * many
    assert tape.gradient(y, x).item() == 4096


def test_nan_is_the_largest_of_bfloat16():
    x = np.array([1, np.nan, 3, 0.5, np.nan, -2], BFLOAT16)
    wide = x.astype("float32")
    for call in (
        eg.sort,
        eg.argsort,
        eg.unique,
        lambda x: eg.sort(x, descending=True),
        lambda x: eg.partition(x, 3)[3],
        lambda x: eg.topk(x, 3)[1],
        lambda x: eg.searchsorted(eg.sort(x), x),
        lambda x: eg.nanquantile(x, 0.5),
    ):
        np.testing.assert_array_equal(call(x).astype("float32"), call(wide))
    assert eg.sort(x).dtype == BFLOAT16


@pytest.mark.parametrize("draw", [eg.random.uniform, eg.random.normal])
def test_random_numbers(draw):
    eg.random.seed(3)
    x = draw(0.5, 2.0, 1000, "bfloat16")
    assert x.dtype == BFLOAT16
    eg.random.seed(3)
    wide = draw(0.5, 2.0, 1000).numpy()
    np.testing.assert_allclose(x.astype("float32").numpy(), wide, 0, 2.0**-5)


def test_random_numbers_do_not_reach_the_upper_end():
    x = eg.random.uniform(size=100_000, dtype="bfloat16").astype("float32").numpy()
    assert x.min() == 0
    assert x.max() == 1 - 2.0**-8


def test_a_name_is_enough():
    for made in (
        eg.tensor([1.0], "bfloat16"),
        eg.tensor([1.0]).astype("bfloat16"),
        eg.ones(1, "bfloat16"),
        eg.one_hot([0], 1, dtype="bfloat16"),
        eg.Variable([1.0], dtype="bfloat16"),
    ):
        assert made.dtype == BFLOAT16
        assert made.tolist() in ([1.0], [[1.0]])


def test_a_name_of_no_dtype_is_told():
    with pytest.raises(TypeError, match="zeros: expected a dtype, got 'bfloat61'"):
        eg.zeros(2, "bfloat61")


@both
def test_rounding_an_array_keeps_its_dtype(half):
    y = eg.round(np.array([1.25, 2.5], half), 1)
    assert y.dtype == half
    assert eg.round([1.25, 2.5], 0).tolist() == [1.0, 2.0]


def test_without_ml_dtypes_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match=r"^astype: .*pip install 'eagergrad\[bf16\]'"):
        eg.tensor([1.0]).astype("bfloat16")


def test_other_types_that_numpy_calls_void_are_refused():
    for dtype in (ml_dtypes.float8_e4m3fn, [("a", "f4")]):
        with pytest.raises(TypeError, match="tensor: expected numbers"):
            eg.tensor(np.zeros(2, dtype))


def test_decompositions_round_once_at_the_end():
    """Linear algebra has no 16-bit routines: it goes by float32."""
    x = draw((3, 3)).astype(BFLOAT16)
    for name in ("inv", "det", "qr", "svd", "expm"):
        y = getattr(eg.linalg, name)(x)
        exact = getattr(eg.linalg, name)(x.astype("float32"))
        for got, wide in zip(eg.nest.flatten(y), eg.nest.flatten(exact), strict=True):
            assert got.numpy().tobytes() == wide.numpy().astype(BFLOAT16).tobytes()
