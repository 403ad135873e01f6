"""What the namespace says, by the Array API standard, of its dtypes and devices."""

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.errors import DeviceError, DTypeError, ShapeError

NAMES = """
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64
complex128 e inf nan newaxis pi linalg fft __array_namespace_info__
"""


def test_names_that_are_no_functions():
    assert [name for name in NAMES.split() if not hasattr(eg, name)] == []
    dtypes = eg.__array_namespace_info__().dtypes()
    assert all(dtype == getattr(eg, name) for name, dtype in dtypes.items())
    constants = (eg.e, eg.inf, eg.pi, eg.newaxis)
    assert constants == (np.e, np.inf, np.pi, None)
    assert np.isnan(eg.nan)


@pytest.mark.parametrize("make", [eg.tensor, eg.Variable])
def test_an_array_knows_its_namespace(make):
    x = make([1.0])
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is eg
    message = r"__array_namespace__: expected one of 2021.12, .*, got '1999.01'"
    with pytest.raises(ShapeError, match=message):
        x.__array_namespace__(api_version="1999.01")


def test_array_api_compat():
    compat = pytest.importorskip("array_api_compat")
    x = eg.tensor([1.0, 2.0])
    assert compat.array_namespace(x, eg.Variable(1.0)) is eg
    assert compat.device(x) == "cpu"
    assert compat.to_device(x, "cpu").tolist() == [1.0, 2.0]
    assert compat.size(x) == 2


def test_info():
    info = eg.__array_namespace_info__()
    with eg.device("cpu"):
        assert info.default_device() == "cpu"
        defaults = info.default_dtypes(device="cpu")
        assert defaults == {
            "real floating": eg.zeros(1).dtype,
            "complex floating": eg.asarray(1j).dtype,
            "integral": eg.arange(1).dtype,
            "indexing": eg.argmax([1.0]).dtype,
        }
        made = [eg.ones(1), eg.empty(1), eg.eye(1), eg.linspace(0, 1, 2)]
        made += [f(1, dtype=None) for f in (eg.zeros, eg.ones, eg.eye)]
        assert {x.dtype for x in made} == {defaults["real floating"]}
    assert info.devices()[0] == "cpu"
    assert info.capabilities()["boolean indexing"]
    assert info.capabilities()["data-dependent shapes"]
    assert eg.ones((1,) * info.capabilities()["max dimensions"]).item() == 1
    assert len(info.dtypes()) == 13
    assert list(info.dtypes(kind="complex floating")) == ["complex64", "complex128"]
    assert list(info.dtypes(kind=("bool", "unsigned integer"))) == [
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ]


# ------------------------------------------------------------------------------ dtypes

DTYPES = [*eg.__array_namespace_info__().dtypes(), "float16"]
SCALARS = [True, 2, 2.0, 2j]


@pytest.mark.parametrize("first", DTYPES)
def test_result_type_is_that_of_an_op(first):
    x = eg.ones(1, dtype=first)
    for second in DTYPES:
        y = eg.ones(1, dtype=second)
        expected = (x * y).dtype
        assert eg.result_type(x, second) == eg.result_type(first, y) == expected
        assert eg.can_cast(first, second) == (expected == second)
    for number in SCALARS:
        assert eg.result_type(number, first) == (x * number).dtype


def test_result_type_of_numbers_alone():
    for number in SCALARS:
        assert eg.result_type(number, True) == eg.tensor(number).dtype


def test_kinds_of_dtypes():
    kinds = {
        "bool": "bool",
        "int8": "signed integer",
        "uint8": "unsigned integer",
        "float16": "real floating",
        "complex64": "complex floating",
    }
    for dtype, own in kinds.items():
        assert [kind for kind in kinds.values() if eg.isdtype(dtype, kind)] == [own]
        assert eg.isdtype(dtype, "numeric") == (dtype != "bool")
        assert eg.isdtype(dtype, "integral") == (dtype[-4:] == "int8")
        assert eg.isdtype(dtype, ("float64", np.dtype(dtype)))
        assert not eg.isdtype(dtype, eg.float64)


def test_limits():
    limits = eg.finfo(eg.ones(1, dtype="complex64"))
    assert limits == eg.finfo(eg.float32)
    assert (limits.bits, limits.dtype) == (32, "float32")
    assert limits.smallest_normal == 2.0**-126
    assert limits.max == -limits.min == (2 - 2.0**-23) * 2.0**127
    assert {type(value) for value in limits[1:-1]} == {float}
    assert (eg.tensor([1.0]) * eg.finfo(eg.float64).eps).dtype == "float32"
    assert eg.iinfo(eg.tensor(1)) == (64, 2**63 - 1, -(2**63), np.dtype("int64"))


def test_limits_of_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert eg.finfo(bfloat16).eps == 2.0**-7
    assert eg.isdtype(bfloat16, "real floating")
    assert eg.result_type(bfloat16, 1, "int32", 2.0) == bfloat16


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: eg.finfo(eg.int32), DTypeError, "finfo: .*floating.*int32.*iinfo"),
        (lambda: eg.iinfo("float32"), DTypeError, "iinfo: .*integer.*float32.*finfo"),
        (lambda: eg.finfo(None), DTypeError, "finfo: .*dtype.*None.*eg.float32"),
        (lambda: eg.can_cast("no", "int8"), DTypeError, "can_cast: expected a dtype"),
        (lambda: eg.isdtype("int8", "real"), ShapeError, "isdtype: .*numeric.*'real'"),
        (lambda: eg.result_type(), ShapeError, "result_type: .*one array.*none"),
    ],
)
def test_errors_of_dtypes(ask, error, message):
    with pytest.raises(error, match=message):
        ask()


# ------------------------------------------------------------------------- the Tensor


def test_methods_and_operators_of_the_standard():
    x, n = eg.tensor([[1.5, 2.5]]), eg.tensor([1, 3])
    assert x.mT.tolist() == [[1.5], [2.5]]
    assert x.to_device("cpu").device == "cpu"
    assert (n << 2).tolist() == [4, 12]
    assert (n << n).tolist() == [2, 24]
    assert (1 << n).tolist() == [2, 8]
    assert (n >> 1).tolist() == [0, 1]
    assert (7 >> n).tolist() == [3, 0]
    options = {"stream": None, "max_version": (1, 0), "dl_device": (1, 0), "copy": True}
    assert "dltensor" in repr(x.__dlpack__(**options))
    assert (complex(x[0, 0]), [10, 20][n[0]]) == (1.5, 20)


def test_assignment_operators_make_a_new_tensor():
    x = first = eg.tensor([6])
    x += 1
    x <<= 2
    x %= 5
    assert (first.tolist(), x.tolist()) == ([6], [3])


def test_what_differs_from_the_standard():
    with pytest.raises(DTypeError, match="immutable"):
        eg.tensor([1.0])[0] = 2.0
    variable = eg.Variable(1.0)
    with pytest.raises(RuntimeError, match="assign_add"):
        variable += 1.0
    with pytest.raises(ShapeError, match="qr: expected mode"):
        eg.linalg.qr(np.ones((3, 2)), mode="complete")


def test_a_stream_is_refused():
    with pytest.raises(DeviceError, match="to_device: expected no stream, got 3"):
        eg.tensor(1.0).to_device("cpu", stream=3)
