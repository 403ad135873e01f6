"""Calls and references of the elementwise, activation and special functions."""

import numpy as np
import scipy.special


def _points(low, high, shape=(2, 3)):
    size = int(np.prod(shape))
    values = low + (high - low) * (np.arange(size) + 0.6) / size
    return np.random.default_rng(size).permutation(values).reshape(shape)


def _each(*params, low=-2.0, high=2.0):
    """One array of each rank, with parameters."""
    return [((_points(low, high, shape),), *params) for shape in [(2, 3), (), (1,)]]


_SIDES = np.array([-9.3, -4.4, -0.7, 0.7, 4.4, 9.3])

ROWS = {
    "copysign": [
        ((np.array([-1.5, -0.5, 2.0, 1.0]), np.array([1.0, -1.0, -2.0, 0.5])),),
    ],
    "fmod": [
        ((np.array([5.3, -5.3, 2.2, -19.5]), np.array([1.7, 1.7, -0.9, 3])),),
    ],
    "heaviside": [
        ((np.array([-1.5, 0.0, 2.0]), np.array([0.2, 0.7, 0.4])),),
    ],
    "ldexp": [
        ((_points(-2, 2),), 3),
        ((_points(-2, 2),), np.array([-3, 0, 5], np.int32)),
        ((_points(-2, 2, ()),), np.array([[1], [2]], np.int32)),
    ],
    "nan_to_num": _each(0.0, None, None),
    "isclose": [((_points(-2, 2), _points(-2, 2)), 1e-5, 1e-8, False)],
    "sinc_slope": [
        ((_points(-3, 3, shape),), n)
        for n in (0, 1, 2)
        for shape in [(2, 3), (5, 5), ()]
    ],
    "cbrt": [((np.array([-2.0, -0.7, -0.3]),),)],
    "leaky_relu": _each(0.1),
    "elu": [*_each(1.0, 1.0, 1.0), *_each(1.5, 0.7, 1.1)],
    "hard_sigmoid": [((_points(-4, 4.3),),)],
    "hard_swish": [((_points(-4, 4.3),),)],
    "polygamma": [*_each(1, low=0.4, high=5), *_each(3, low=0.4, high=5)],
    "bessel_quotient": [
        ((x,), n, scaled)
        for n in (1, 2, 4)
        for scaled in (False, True)
        for x in (_points(0.2, 2), _SIDES, np.array(-0.9))
    ],
}


def _sinc_slope(x, order):
    """The power series, in long doubles: its terms cancel."""
    u = np.asarray(x, np.longdouble) * (4 * np.arctan(np.longdouble(1)))
    total = term = np.ones_like(u)  # term: u^j / j!
    total = total * 0
    for j in range(90):
        sign = (1, 0, -1, 0)[(order + j) % 4]
        total = total + sign * term / (order + j + 1)
        term = term * u / (j + 1)
    return (total * (4 * np.arctan(np.longdouble(1))) ** order).astype("float64")


def _bessel_quotient(x, n, scaled):
    return (scipy.special.ive if scaled else scipy.special.iv)(n, x) / x**n


def _elu(x, alpha, width, scale):
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / width))


def _limit(y, x):
    return np.where(np.isneginf(x), 0, y)


def _gelu(x):
    return _limit(x * scipy.special.ndtr(x), x)


def _gelu_tanh(x):
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return _limit(0.5 * x * (1 + np.tanh(u)), x)


def _mish(x):
    return _limit(x * np.tanh(np.logaddexp(x, 0)), x)


def _hard_sigmoid(x):
    return np.clip(x / 6 + 0.5, 0, 1)


def _softsign(x):
    return np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x)))


def _of_scipy(name):
    function = getattr(scipy.special, name)

    def reference(*arrays):
        dtype = np.result_type(*arrays)  # SciPy has no float16
        y = function(*arrays)
        return y.astype(dtype) if dtype.kind == "f" else y

    return reference


REFERENCES = {
    **{
        name: _of_scipy(name)
        for name in """beta betaln digamma entr erf erfc erfcx erfinv gammainc
        gammaln i0 i0e i1 i1e log_ndtr logit ndtr ndtri xlog1py xlogy""".split()
    },
    "unit_leg": lambda x: np.sqrt(1 - x * x),
    "sinc": np.sinc,
    "sinc_slope": _sinc_slope,
    "ldexp": np.ldexp,
    "nan_to_num": lambda x, nan, posinf, neginf: np.nan_to_num(x),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, slope * x),
    "elu": _elu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: _limit(x * scipy.special.expit(x), x),
    "mish": _mish,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda x: _limit(x * _hard_sigmoid(x), x),
    "softsign": _softsign,
    "log_sigmoid": lambda x: -np.logaddexp(-x, 0),
    "tanhshrink": lambda x: x - np.tanh(x),
    "density": lambda x: np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
    "polygamma": lambda x, n: scipy.special.polygamma(n, x),
    "bessel_quotient": _bessel_quotient,
}
