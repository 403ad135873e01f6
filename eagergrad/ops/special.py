"""Special functions: SciPy's names, with SciPy on the CPU and CuPy's own on a GPU.

SciPy is imported at the first call that needs it.  ``ndtr``, ``logit``, ``xlogy``,
``xlog1py`` and ``entr`` need none.  Digits: where a derivative is the difference of
nearly equal terms it has lost some: that of ``i0e`` beyond x = 1e6, the second one of
``log_ndtr`` below -1e6, that of ``gammainc`` for a beyond 1e6.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from ..errors import DTypeError
from ..operands import refuse_complex
from ..primitive import elementwise, primitive
from .elementwise import (
    _sign,
    _where,
    exp,
    log,
    product,
    quotient,
    sigmoid,
)
from .reductions import _floating, is_half


def _function(xp: Any, name: str) -> Any:
    """SciPy's function, or the one of CuPy's copy of SciPy, or a formula's."""
    if hasattr(xp, "special"):
        return getattr(xp.special, name)
    try:
        module = importlib.import_module(
            "scipy.special" if xp is np else "cupyx.scipy.special"
        )
    except ImportError as error:
        raise ImportError(
            f"{name}: expected SciPy, which is not installed: "
            "pip install 'eagergrad[scipy]'"
        ) from error
    return getattr(module, name)


def _called(xp: Any, name: str, *arrays: Any) -> Any:
    """The function's value in the dtype of the arrays; half types go by float32."""
    floats = [x.dtype for x in arrays if hasattr(x, "dtype") and x.dtype.kind in "fV"]
    widened = [x.astype(np.float32) if _half(x) else x for x in arrays]
    z = _function(xp, name)(*widened)
    return z.astype(floats[0], copy=False) if floats else z


def _half(x: Any) -> bool:
    return hasattr(x, "dtype") and is_half(x)


def _unary(name: str, d: Any, domain: Any = None, doc: str = "") -> Any:
    """Declare a function of one array by its rule."""
    return elementwise(name, d, lambda xp, x: _called(xp, name, x), domain, doc)


def _binary(name: str, d: Any, domain: Any, doc: str) -> Any:
    return elementwise(name, d, lambda xp, a, b: _called(xp, name, a, b), domain, doc)


# ------------------------------------------------------------------- the error function

_TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)

erf = _unary(
    "erf",
    lambda g, x: g * (_TWO_BY_ROOT_PI * exp(-x * x)),
    doc="The error function: 2 / sqrt(pi) times the integral of exp(-t^2) over [0, x].",
)
erfc = _unary(
    "erfc",
    lambda g, x: g * (-_TWO_BY_ROOT_PI * exp(-x * x)),
    doc="1 - erf(x), without cancellation for large x.",
)
erfcx = _unary(
    "erfcx",
    lambda g, x, y: product(g, 2.0 * x * y - _TWO_BY_ROOT_PI),
    doc="exp(x^2) erfc(x).",
)
erfinv = _unary(
    "erfinv",
    lambda g, y: product(g, exp(y * y) / _TWO_BY_ROOT_PI),
    (-0.9, 0.9),
    "The inverse of erf; infinite, with infinite slope, at -1 and 1.",
)

# --------------------------------------------------------------------------- the normal

_ROOT_TWO_PI = math.sqrt(2 * math.pi)
_ROOT_HALF = math.sqrt(0.5)

# (1 + 2 x) exp(x^2) erfc(x) for x >= 0, in Chebyshev polynomials of
# (x - 3.75) / (x + 3.75); as Shepherd and Laframboise, Math. Comp. 36 (1981), computed
# anew with 60 digits.
_ERFCX = (
    *(1.1775789345674017, -0.004590054580646478, -0.08424913336651792),
    *(0.05920993999819189, -0.026658668435305753, 0.009074997670705265),
    *(-0.002413163540417608, 0.0004907758365258086, -6.916973302501207e-05),
    *(4.13902798607301e-06, 7.74038306619849e-07, -2.1886401049234397e-07),
    *(1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10),
    *(-6.318088340886684e-11, 2.86879501093067e-11, 1.9455868545777347e-13),
    *(-9.65469674843344e-13, 3.25254814814874e-14, 3.3478119482868056e-14),
    *(-1.864562880419313e-15, -1.2507950530688648e-15, 7.418235256624044e-17),
    5.068148904796111e-17,
)


def _normal_cdf(xp: Any, x: Any) -> Any:
    """The normal distribution function, by SciPy or by ``_own_normal_cdf``."""
    try:
        return _called(xp, "ndtr", x)
    except ImportError:
        return _own_normal_cdf(xp, x)


def _own_normal_cdf(xp: Any, x: Any) -> Any:
    if x.dtype.kind in "biu":
        x = x.astype(np.float64)
    if is_half(x):
        return _own_normal_cdf(xp, x.astype(np.float32)).astype(x.dtype)
    u = xp.minimum(xp.abs(x) * _ROOT_HALF, 40.0)  # erfc(40) is 0 in float64
    t = (u - 3.75) / (u + 3.75)
    last, before = xp.zeros_like(u), xp.zeros_like(u)
    for c in _ERFCX[:0:-1]:  # Clenshaw's sum
        last, before = c + 2 * t * last - before, last
    scaled = (_ERFCX[0] + t * last - before) / (1 + 2 * u)
    # exp(-x^2 / 2) in two factors, of which the first has an exact exponent
    v = xp.minimum(xp.abs(x), 57.0)
    head = xp.rint(v * 16) / 16
    tail = 0.5 * scaled * xp.exp(-0.5 * (head * head))
    tail = tail * xp.exp(-0.5 * (v - head) * (v + head))
    return xp.where(x > 0, 1 - tail, tail)


def _density(xp: Any, x: Any) -> Any:
    if hasattr(xp, "normpdf"):  # in formulas, by kernels/functions.h
        return xp.normpdf(x)
    return xp.exp(-0.5 * x * x) * (1 / _ROOT_TWO_PI)


density = elementwise(
    "density",
    d=lambda g, x, y: -g * product(y, x),
    forward=_density,
    doc="exp(-x^2 / 2) / sqrt(2 pi): the normal density.",
)
ndtr = elementwise(
    "ndtr",
    d=lambda g, x: g * density(x),
    forward=_normal_cdf,
    doc="The normal distribution function: the integral of its density up to x.",
)
log_ndtr = _unary(
    "log_ndtr",
    lambda g, x: g * (2.0 / _ROOT_TWO_PI / erfcx(x * -_ROOT_HALF)),
    doc="log(ndtr(x)), also where ndtr(x) underflows.",
)
ndtri = _unary(
    "ndtri",
    lambda g, y: product(g, exp(0.5 * y * y) * _ROOT_TWO_PI),
    (0.1, 0.9),
    "The inverse of ndtr; infinite, with infinite slope, at 0 and 1.",
)

# ------------------------------------------------------------------------------- gamma

gammaln = _unary(
    "gammaln",
    lambda g, x: product(g, digamma(x)),
    (0.3, 4.0),
    "log(|gamma(x)|).",
)
digamma = _unary(
    "digamma",
    lambda g, x: product(g, _polygamma(x, 1)),
    (0.3, 4.0),
    "The derivative of gammaln.",
)


def _polygamma_forward(xp: Any, x: Any, n: int) -> Any:
    refuse_complex("polygamma, the gradient of digamma", x)
    if is_half(x):
        return _polygamma_forward(xp, x.astype(np.float32), n).astype(x.dtype)
    found = _function(xp, "polygamma")
    if n > 1:
        return found(xp.asarray(n), x).astype(x.dtype)
    # trigamma(x) = pi^2 / sin^2(pi x) - trigamma(1 - x), for x < 0; nan at whole x
    below = x < 0
    y = found(xp.asarray(n), xp.where(below, 1 - x, x))
    sines = xp.sin(math.pi * xp.where(below, x - xp.rint(x), 0.5))
    return xp.where(below, (math.pi / sines) ** 2 - y, y).astype(x.dtype)


@primitive()
def _polygamma(xp: Any, x: Any, n: int) -> Any:
    return _polygamma_forward(xp, x, n)


@_polygamma.vjp
def _polygamma_rule(g: Any, x: Any, n: int) -> Any:
    return product(g, _polygamma(x, n + 1))


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma; for x < 0 only n <= 1, beyond it is nan.

    ``n`` is a Python integer >= 0, else DTypeError is raised.

    >>> round(polygamma(1, tensor(1.0)).item(), 4)
    1.6449
    """
    if not isinstance(n, int) or n < 0:
        raise DTypeError(
            f"polygamma: expected an integer n >= 0, got {n!r}; call it once for each n"
        )
    return _polygamma(_floating(x, "polygamma"), n) if n else digamma(x)


beta = _binary(
    "beta",
    (
        lambda g, a, b, y: product(g, y * (digamma(a) - digamma(a + b))),
        lambda g, a, b, y: product(g, y * (digamma(b) - digamma(a + b))),
    ),
    (0.3, 4.0),
    "gamma(a) gamma(b) / gamma(a + b).",
)
betaln = _binary(
    "betaln",
    (
        lambda g, a, b: product(g, digamma(a) - digamma(a + b)),
        lambda g, a, b: product(g, digamma(b) - digamma(a + b)),
    ),
    (0.3, 4.0),
    "log(|beta(a, b)|).",
)
gammainc = elementwise(
    "gammainc",
    d=(None, lambda g, a, x: product(g, _gamma_density(a, x))),
    forward=lambda xp, a, x: _called(xp, "gammainc", a, x),
    domain=((0.4, 4.0), (0.2, 5.0)),
    doc="The regularised lower incomplete gamma function.  The gradient by a is None.",
)


def _gamma_density(a: Any, x: Any) -> Any:
    # where: a Python number takes the dtype of x
    return exp(xlogy(a - 1.0, x) - x - gammaln(_where(x == x, a, x)))


# ------------------------------------------------------------------------------- Bessel

i0 = _unary(
    "i0",
    lambda g, x: g * i1(x),
    doc="The modified Bessel function of order 0.",
)
i1 = _unary(
    "i1",
    lambda g, x: g * (i0(x) - _bessel_quotient(x, 1, False)),
    doc="The modified Bessel function of order 1.",
)
i0e = _unary(
    "i0e",
    lambda g, x, y: g * (i1e(x) - _sign(x) * y),
    doc="exp(-|x|) i0(x); the derivative at 0 is 0.",
)
i1e = _unary(
    "i1e",
    lambda g, x, y: g * (i0e(x) - _bessel_quotient(x, 1, True) - _sign(x) * y),
    doc="exp(-|x|) i1(x).",
)


@primitive()
def _bessel_quotient(xp: Any, x: Any, n: int, scaled: bool) -> Any:
    """I(n, x) / x^n, times exp(-|x|) if ``scaled``; its derivative is x times the next.

    A series of positive terms near 0; beyond, I(n+1) = I(n-1) - 2 n / x I(n).
    """
    if is_half(x):
        wide = x.astype(np.float32)
        return _bessel_quotient.op.forward(xp, wide, n, scaled).astype(x.dtype)  # type: ignore[misc]
    bound = 6.0 + 2 * n
    small = xp.abs(x) < bound
    z = xp.where(small, 0.25 * x * x, xp.zeros((), x.dtype))
    series = xp.zeros_like(z)
    for k in reversed(range(30 + 3 * n)):
        series = 1 + z * series / ((k + 1) * (n + k + 1))
    series = series / (2.0**n * math.factorial(n))
    near, far = xp.where(small, x, xp.zeros((), x.dtype)), x
    if scaled:
        series = series * xp.exp(-xp.abs(near))
    far = xp.where(small, xp.full((), bound, x.dtype), x)
    names = ("i0e", "i1e") if scaled else ("i0", "i1")
    before, last = (_function(xp, name)(far) for name in names)
    for k in range(1, n):
        before, last = last, before - (2 * k) / far * last
    return xp.where(small, series, last / far**n)


@_bessel_quotient.vjp
def _bessel_quotient_rule(g: Any, x: Any, y: Any, n: int, scaled: bool) -> Any:
    slope = x * _bessel_quotient(x, n + 1, scaled)
    return g * (slope - _sign(x) * y if scaled else slope)


# ----------------------------------------------------------- logarithms that mind zeros


def _logit(xp: Any, x: Any) -> Any:
    # 2 x - 1 is exact from 1/4 on, and log(x) far from log1p(-x) below
    middle = x > 0.25
    if x.dtype.kind in "biu":
        x = x.astype(np.float32)
    above = 2 * xp.arctanh(xp.where(middle, 2 * x - 1, xp.zeros((), x.dtype)))
    return xp.where(middle, above, xp.log(x) - xp.log1p(-x))


logit = elementwise(
    "logit",
    d=lambda g, x: quotient(g, x) + quotient(g, 1.0 - x),
    forward=_logit,
    domain=(0.1, 0.9),
    doc="log(x / (1 - x)): the inverse of expit.",
)
expit = sigmoid  # SciPy's name


def _times_log(xp: Any, a: Any, b: Any, logarithm: Any) -> Any:
    if not hasattr(b, "dtype"):  # of a Python number NumPy would make a float64
        b = xp.asarray(b, a.dtype if a.dtype.kind not in "biu" else np.float32)
    zero = (a == 0) & (b == b)
    return xp.where(zero, 0, a * logarithm(b))


xlogy = elementwise(
    "xlogy",
    d=(lambda g, b: xlogy(g, b), lambda g, a, b: quotient(g * a, b)),
    forward=lambda xp, a, b: _times_log(xp, a, b, xp.log),
    domain=((-2.0, 2.0), (0.2, 3.0)),
    doc="a log(b), and 0 where a is 0, even at b = 0.",
)
xlog1py = elementwise(
    "xlog1py",
    d=(lambda g, b: xlog1py(g, b), lambda g, a, b: quotient(g * a, 1.0 + b)),
    forward=lambda xp, a, b: _times_log(xp, a, b, xp.log1p),
    domain=((-2.0, 2.0), (-0.6, 3.0)),
    doc="a log(1 + b), and 0 where a is 0, even at b = -1.",
)


def _entr(xp: Any, x: Any) -> Any:
    refuse_complex("entr", x)
    y = 0 - x * xp.log(xp.where(x > 0, x, 1))  # +0 at 0
    return xp.where(x < 0, -xp.inf, y)


entr = elementwise(
    "entr",
    d=lambda g, x: product(g, -log(x) - 1.0),
    forward=_entr,
    domain=(0.1, 4.0),
    doc="-x log(x): 0 at 0, -inf below; the slope at 0 is infinite.",
)
