"""Complex numbers over the registry: right gradients, or an error that says why not.

The gradient of a real loss L is dL/dRe + i dL/dIm, the direction of steepest ascent, as
in TensorFlow and PyTorch.  It is checked by differences along both parts.
"""

import numpy as np
import pytest
from op_cases import BINARY, CASES, SMOOTH, UNARY
from test_ops import REFERENCES

import eagergrad as eg
from eagergrad.primitive import OPS
from eagergrad.testing import check_grads

# What orders its numbers, or has no complex version in NumPy and SciPy.
REAL_ONLY = set(
    """arctan2 bessel_quotient beta betaln cbrt copysign deg2rad elu entr erfinv fmod
    gammainc gammaln hard_sigmoid hard_swish heaviside hypot i0 i0e i1 i1e ldexp
    leaky_relu log_sigmoid logaddexp logaddexp2 logcumsumexp mish ndtri polygamma
    rad2deg relu remainder rfft sigmoid_loss softplus softsign""".split()
)
# What is checked elsewhere, and why.
ELSEWHERE = {
    **dict.fromkeys(
        ("cholesky", "eig", "eigh", "svd", "svd_full"),
        "of Hermitian matrices, or vectors of any phase: in test_linalg.py",
    ),
    "digamma": "its derivative is of real numbers: below",
    "astype": "it knows the dtype it starts from: below, in the ways there and back",
    "gate": "the derivative of relu, which is of real numbers",
}


def turned(case, by):
    """The arrays of a case, those with a gradient turned off the real line."""
    return [
        x * by if i in case.sources and x.dtype.kind == "f" else x
        for i, x in enumerate(case.arrays)
    ]


CHECKED = [
    case
    for case in SMOOTH
    if case.op.name not in REAL_ONLY | set(ELSEWHERE)
    and not (case.op.name == "dense" and case.params[0] == "relu")
]


def sources(case, arrays):
    return [arrays[i] for i in case.sources]


def test_every_op_is_listed_once():
    checked = {case.op.name for case in CHECKED}
    assert not REAL_ONLY & set(ELSEWHERE)
    assert checked | REAL_ONLY | set(ELSEWHERE) == {case.op.name for case in SMOOTH}


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_against_differences(case):
    check_grads(case.of_sources, sources(case, turned(case, 0.6 + 0.8j)))


@pytest.mark.parametrize(
    "case", [c for c in CHECKED if c.op.form not in ("linear", "bilinear")], ids=str
)
def test_against_differences_to_the_left(case):
    """NumPy orders complex numbers by their real parts; a rule must not."""
    check_grads(case.of_sources, sources(case, turned(case, -0.8 + 0.6j)))


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_complex64(case):
    """The same numbers with half the digits, in values and in gradients."""
    found = []
    for dtype in ("complex64", "complex128"):
        arrays = turned(case, 0.6 + 0.8j)
        arrays = [x.astype(dtype) if x.dtype.kind == "c" else x for x in arrays]
        xs = [eg.tensor(x) for x in arrays]
        watched = [xs[i] for i in case.sources]
        with eg.GradientTape() as tape:
            tape.watch(watched)
            y = case(*xs)
        seed = eg.ones_like(y) * (1 - 2j if y.dtype.kind == "c" else 1)
        grads = tape.gradient(y, watched, seed)
        assert [g.dtype for g in grads] == [x.dtype for x in watched]
        found.append([y, *grads])
    for single, double in zip(*found, strict=True):
        exact = double.numpy()
        assert single.dtype.itemsize * 2 == exact.dtype.itemsize
        atol = 32 * np.finfo("float32").eps * abs(exact).max(initial=1)
        np.testing.assert_allclose(single.numpy(), exact, 0, atol)


@pytest.mark.parametrize("name", sorted(REAL_ONLY))
def test_what_is_of_real_numbers_says_so(name):
    for case in CASES[name]:
        with pytest.raises(TypeError, match=r"expected real numbers.*take real\(x\)"):
            case(*turned(case, 0.6 + 0.8j))


@pytest.mark.parametrize("name", sorted(n for n in REAL_ONLY if hasattr(np, n)))
def test_numpy_takes_no_complex_numbers_there_either(name):
    case = CASES[name][0]
    with pytest.raises(TypeError):
        getattr(np, name)(*turned(case, 0.6 + 0.8j), *case.params)


def test_digamma_has_no_complex_gradient():
    z = eg.tensor([1 + 1j])
    with eg.GradientTape() as tape:
        tape.watch(z)
        y = eg.special.digamma(z)
    with pytest.raises(TypeError, match="the gradient of digamma: expected real num"):
        tape.gradient(y, z)


@pytest.mark.parametrize(
    "op",
    [op for op in UNARY + BINARY if op.name not in REFERENCES],
    ids=lambda op: op.name,
)
def test_values_are_those_of_numpy(op):
    """An op takes complex numbers if and only if NumPy's function does."""
    z = np.array([0.3 + 0.4j, -1.5 + 0.2j, -0.7 - 2.0j, 0.0])
    arrays = [z] if op.arity == 1 else [z, z[::-1] + 0.5]
    with np.errstate(all="ignore"):
        try:
            expected = getattr(np, op.name)(*arrays)
        except TypeError:
            with pytest.raises(eg.errors.DTypeError, match="expected real numbers"):
                op.entry(*arrays)
        else:
            np.testing.assert_allclose(op.entry(*arrays).numpy(), expected, 1e-14)


# --------------------------------------------------------------- real and complex


@pytest.mark.parametrize(
    "f",
    [
        lambda z: eg.absolute(z) * (1 + 2j),
        lambda z: eg.real(z) * (1 + 2j),
        lambda z: eg.imag(z) * (1 + 2j),
        lambda z: eg.real(z) * eg.imag(z),
        lambda z: eg.absolute(z) ** 2,
        lambda z: eg.exp(1j * eg.absolute(z)),
        lambda z: eg.astype(eg.real(z), "complex128") * z,
        lambda z: eg.conj(z) * z,
        lambda z: eg.sign(z) * z,
        lambda z: eg.angle(z) * z,
        lambda z: eg.var(z) + eg.std(z),
    ],
    ids="abs real imag product square phase cast conj sign angle var".split(),
)
def test_from_complex_to_real_and_back(f):
    """What is real on the way has a real cotangent."""
    check_grads(f, [np.array([3 + 4j, 1 - 2j, -0.5 + 1j])])


BESIDE = [
    case
    for case in CHECKED
    if len(case.sources) == 2 and case.op.form in ("elementwise", "bilinear")
]


@pytest.mark.parametrize("case", BESIDE, ids=str)
def test_real_beside_complex(case):
    """A real source has a real gradient, whatever it met."""
    a, b = case.source_arrays
    if a.dtype.kind == b.dtype.kind == "f":
        for arrays in ([a, b * (0.6 + 0.8j)], [a * (-0.8 + 0.6j), b]):
            check_grads(case.of_sources, arrays)


Z = np.array([0.3 + 0.4j, -1.5 + 0.2j, -0.7 - 2.0j])


@pytest.mark.parametrize(
    "f",
    [
        lambda z: z ** (1 - 2j),
        lambda z: (1 + 2j) ** z,
        lambda z: (-2.0) ** z,
        lambda z: z**-2.5,
        lambda z: eg.abs(z) ** (1 - 2j),
        lambda z: (-eg.abs(z)) ** z,
    ],
    ids="z^c c^z negative^z z^real real^c negative".split(),
)
def test_powers(f):
    check_grads(f, [Z])


def test_powers_of_zero():
    for zero in (0.0, 0j, eg.tensor(0j)):
        with eg.GradientTape() as tape:
            z = eg.tensor([1 + 1j])
            tape.watch(z)
            y = eg.power(zero, z)
        assert tape.gradient(y, z).tolist() == [0j]


def test_sign_of_zero():
    z = eg.tensor([0j, 3 + 4j])
    np.testing.assert_allclose(eg.sign(z).numpy(), np.sign(z.numpy()))
    assert eg.gradients_function(eg.sign)(0j)[0].item() == 0
    assert OPS["sign"].recorded is False  # nothing is kept for real numbers
