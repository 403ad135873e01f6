"""Special functions: known values, edges, and what happens without SciPy."""

import math
import sys

import numpy as np
import pytest
import scipy.special

import eagergrad as eg
from eagergrad.ops.special import _own_normal_cdf
from eagergrad.testing import check_grads

INF, NAN = math.inf, math.nan


def grad(f, *arrays):
    """The gradients of the sum of f's values; one array when there is one."""
    xs = [eg.tensor(np.asarray(x)) for x in arrays]
    with eg.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    found = [g if g is None else g.numpy() for g in tape.gradient(y, xs)]
    return found[0] if len(found) == 1 else found


def second(f, x):
    return grad(lambda x: eg.gradients_function(f)(x)[0], x)


def equal(got, expected, rtol=1e-14):
    np.testing.assert_allclose(got, expected, rtol)


ROOT_PI, GAMMA = math.sqrt(math.pi), 0.5772156649015329
SLOPES = {  # x, f(x), f'(x), f''(x)
    "erf": (0.0, 0, 2 / ROOT_PI, 0),
    "erfc": (0.0, 1, -2 / ROOT_PI, 0),
    "erfcx": (0.0, 1, -2 / ROOT_PI, 2),
    "erfinv": (0.0, 0, ROOT_PI / 2, 0),
    "gammaln": (1.0, 0, -GAMMA, math.pi**2 / 6),
    "digamma": (1.0, -GAMMA, math.pi**2 / 6, -2.4041138063191885),
    "i0": (0.0, 1, 0, 0.5),
    "i1": (0.0, 0, 0.5, 0),
    "i1e": (0.0, 0, 0.5, 0),
    "logit": (0.5, 0, 4, 0),
    "expit": (0.0, 0.5, 0.25, 0),
    "entr": (1.0, 0, -1, -1),
    "ndtr": (0.0, 0.5, 1 / math.sqrt(2 * math.pi), 0),
    "ndtri": (0.5, 0, math.sqrt(2 * math.pi), 0),
    "log_ndtr": (0.0, -math.log(2), math.sqrt(2 / math.pi), -2 / math.pi),
}


@pytest.mark.parametrize("name", SLOPES)
def test_known_values(name):
    f, (x, *expected) = getattr(eg, name), SLOPES[name]
    got = [f(np.array(x)).item(), grad(f, x).item(), second(f, x).item()]
    np.testing.assert_allclose(got, expected, 1e-14, 1e-15)


def test_the_namespace():
    for name in eg.special.__all__:
        assert getattr(eg.special, name) is getattr(eg, name)


def test_erf_at_zero_and_far_out():
    x = np.array([0.0, -0.0, 1e-8, 1e200])
    equal(grad(eg.erf, x), [*(2 / ROOT_PI,) * 3, 0])
    equal(grad(eg.erfc, np.array([5.0])), [-2 / ROOT_PI * math.exp(-25)])


def test_inverses_end_in_infinities():
    ends = np.array([1.0, -1.0])
    assert eg.erfinv(ends).tolist() == [INF, -INF]
    assert grad(eg.erfinv, ends).tolist() == [INF, INF]
    assert eg.ndtri(np.array([0.0, 1.0])).tolist() == [-INF, INF]
    assert grad(eg.ndtri, np.array([0.0, 1.0])).tolist() == [INF, INF]
    assert eg.logit(np.array([0.0, 1.0])).tolist() == [-INF, INF]
    assert grad(eg.logit, np.array([0.0, 1.0])).tolist() == [INF, INF]
    assert second(eg.logit, np.array([0.0, 1.0])).tolist() == [-INF, INF]


def test_logit_to_the_last_digits():
    p = np.r_[np.logspace(-300, -1, 50), np.linspace(0.1, 0.9, 81), 1 - 1e-12]
    equal(eg.logit(p).numpy(), scipy.special.logit(p), 1e-15)


def test_sigmoid_keeps_the_digits_of_both_tails():
    tail = math.exp(-40)
    equal(grad(eg.sigmoid, np.array([-40.0, 40.0])), [tail] * 2)
    equal(second(eg.sigmoid, np.array([-40.0, 40.0])), [tail, -tail])


def test_log_ndtr_where_ndtr_vanishes():
    x = np.array([-1e4, -40.0, 40.0, 1e200])
    # the ratio of density and distribution is near -x + 1 / x
    equal(grad(eg.log_ndtr, x), [1e4 + 1e-4, 40.02496884720726, 0, 0], 1e-11)
    equal(second(eg.log_ndtr, x[1:]), [-0.9993773316214086, 0, 0], 1e-9)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_ndtr_of_our_own(dtype):
    x = np.linspace(-37 if dtype == "f8" else -12, 9, 500, dtype=dtype)
    exact = scipy.special.ndtr(x.astype("f8"))  # to 13 digits in the tail
    y = _own_normal_cdf(np, x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, exact, 1e-6 if dtype == "f4" else 5e-13)
    ends = np.array([-INF, INF, NAN, -1e30, 1e30, 0], dtype)
    with np.errstate(over="ignore"):
        got = _own_normal_cdf(np, ends)
    np.testing.assert_allclose(got, [0, 1, NAN, 0, 1, 0.5], 1e-15 + np.finfo(dtype).eps)
    assert _own_normal_cdf(np, np.ones((0, 2), "f2")).dtype == "f2"
    assert _own_normal_cdf(np, np.array([0, 1])).dtype == "f8"


def test_ndtr_of_our_own_to_the_last_digits():
    x = np.array([-37, -20.3, -8.7, -3.1, -0.6, 0.4, 2.9])
    exact = [
        *(5.725571222524577e-300, 6.429244467698346e-92, 1.6594208699647843e-18),
        *(0.0009676032132183566, 0.2742531177500736, 0.6554217416103242),
        0.998134186699616,
    ]
    np.testing.assert_allclose(_own_normal_cdf(np, x), exact, 1e-15)


def test_logarithms_of_zero_times_zero():
    assert eg.xlogy(0.0, 0.0).item() == 0
    assert eg.xlog1py(0.0, -1.0).item() == 0
    assert np.isnan(eg.xlogy(0.0, NAN).item())
    assert grad(eg.xlogy, 0.0, 0.0) == [-INF, 0]
    assert grad(eg.xlogy, 2.0, 0.5) == [math.log(0.5), 4]
    assert grad(eg.xlog1py, 0.0, -1.0) == [-INF, 0]
    assert grad(lambda p: -eg.xlogy(p, p), 0.0) == INF
    assert grad(eg.entr, np.array([0.0, 1.0])).tolist() == [INF, -1]
    assert eg.entr(np.array([0.0, -1.0])).tolist() == [0, -INF]
    assert eg.xlogy(np.ones(2, "f4"), 0.5).dtype == "float32"


def test_gamma_functions():
    equal(eg.polygamma(1, 1.0).item(), np.float32(math.pi**2 / 6))
    equal(eg.polygamma(0, np.array(1.0)).item(), -GAMMA)
    x = np.array([-0.5, -1.7, -2.2])  # psi'(-1/2) = pi^2 / 2 + 4
    equal(grad(eg.digamma, x)[0], math.pi**2 / 2 + 4)
    equal(grad(eg.digamma, x), eg.polygamma(1, x).numpy())
    equal(grad(eg.gammaln, x), scipy.special.digamma(x))
    check_grads(eg.gammaln, [x])
    assert eg.polygamma(2, np.ones(3, "f2")).dtype == "float16"
    with pytest.raises(eg.errors.DTypeError, match="polygamma: expected an integer n"):
        eg.polygamma(1.5, 1.0)
    with pytest.raises(eg.errors.DTypeError, match="n >= 0, got -1"):
        eg.polygamma(-1, 1.0)


def test_gammainc_has_one_gradient():
    a = np.array([0.5, 1.0, 2.0])
    none, slopes = grad(eg.gammainc, a, np.zeros(3))
    assert none is None
    assert slopes.tolist() == [INF, 1, 0]
    # for a = 1 it is 1 - exp(-x), whatever the dtype of a number
    for dtype in ("f4", "f8"):
        slope = grad(lambda x: eg.gammainc(1.0, x), np.array([0.7], dtype))
        assert slope.dtype == dtype
        equal(slope, [math.exp(-0.7)], 4 * np.finfo(dtype).eps)


def test_bessel_functions_beyond_overflow():
    x = np.array([-800.0, 0.0, 1e-5, 800.0])
    slope = scipy.special.i1e(x) - np.sign(x) * scipy.special.i0e(x)
    equal(grad(eg.i0e, x), slope, 1e-12)
    # i1(x) = x / 2 + x^3 / 16 + ...: digits kept near 0 in the second derivative
    equal(second(eg.i1, np.array([1e-5])), [3 / 8 * 1e-5], 1e-9)


def test_without_scipy_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    message = r"erf: expected SciPy.*pip install 'eagergrad\[scipy\]'"
    with pytest.raises(ImportError, match=message):
        eg.erf(1.0)
    assert eg.ndtr(0.0).item() == 0.5
    assert eg.xlogy(2.0, 1.0).item() == 0
    assert eg.logit(0.5).item() == 0
    assert eg.expit(0.0).item() == 0.5
