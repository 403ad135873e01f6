"""Trigonometric and hyperbolic functions and their inverses; sinc.

At the end of a domain the derivative is infinite (arcsin at 1), and 0 for a cotangent
of 0.  At the origin, where the angle and the distance have no derivative, arctan2 and
hypot take 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..primitive import elementwise, primitive
from .elementwise import quotient, sqrt
from .reductions import is_half

tan = elementwise("tan", d=lambda g, y: g * (1.0 + y * y), domain=(-1.3, 1.3))

# ----------------------------------------------------------------------------- inverses

# An op, so that its slope -x / y is one term, infinite at 1, and not inf - inf.
unit_leg = elementwise(
    "unit_leg",
    d=lambda g, x, y: -quotient(g * x, y),
    forward=lambda xp, x: xp.sqrt((1 - x) * (1 + x)),
    domain=(-0.9, 0.9),
    doc="sqrt(1 - x^2), without cancellation near 1.",
)
arcsin = elementwise(
    "arcsin", d=lambda g, x: quotient(g, unit_leg(x)), domain=(-0.9, 0.9)
)
arccos = elementwise(
    "arccos", d=lambda g, x: -quotient(g, unit_leg(x)), domain=(-0.9, 0.9)
)


def _hypotenuse(x: Any) -> Any:
    # sqrt(1 + x^2), where x^2 would overflow
    return sqrt(1.0 + x * x) if x.dtype.kind == "c" else hypot(x, 1.0)


def _arctan_rule(g: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return quotient(g, 1.0 + x * x)
    h = hypot(x, 1.0)
    return g / h / h


arctan = elementwise("arctan", d=_arctan_rule)

# --------------------------------------------------------------------------- hyperbolic

sinh = elementwise("sinh", d=lambda g, x: g * cosh(x))
cosh = elementwise("cosh", d=lambda g, x: g * sinh(x))
arcsinh = elementwise("arcsinh", d=lambda g, x: quotient(g, _hypotenuse(x)))
arccosh = elementwise(
    "arccosh",
    d=lambda g, x: quotient(quotient(g, sqrt(x - 1.0)), sqrt(x + 1.0)),
    domain=(1.2, 4.0),
)
arctanh = elementwise(
    "arctanh",
    d=lambda g, x: 0.5 * (quotient(g, 1.0 - x) + quotient(g, 1.0 + x)),
    domain=(-0.9, 0.9),
)

# -------------------------------------------------------------------- angles, distances

_RADIANS, _DEGREES = math.pi / 180, 180 / math.pi

deg2rad = elementwise("deg2rad", d=lambda g: g * _RADIANS)
rad2deg = elementwise("rad2deg", d=lambda g: g * _DEGREES)
arctan2 = elementwise(
    "arctan2",
    d=(
        lambda g, a, b: _arctan2_rule(g, b, a),
        lambda g, a, b: -_arctan2_rule(g, a, b),
    ),
    doc="The angle of the point (b, a), in (-pi, pi]; both gradients at (0, 0) are 0.",
)


def _arctan2_rule(g: Any, a: Any, b: Any) -> Any:
    h = hypot(a, b)  # a^2 + b^2 would under- or overflow
    return quotient(g * quotient(a, h), h)


hypot = elementwise(
    "hypot",
    d=(lambda g, a, y: g * quotient(a, y), lambda g, b, y: g * quotient(b, y)),
    doc="sqrt(a^2 + b^2), without overflow; both gradients at (0, 0) are 0.",
)

# --------------------------------------------------------------------------------- sinc


def _sinc_forward(xp: Any, x: Any) -> Any:
    return xp.sinc(x) if not is_half(x) else _sinc_slope_forward(xp, x, 0)


sinc = elementwise(
    "sinc",
    d=lambda g, x: g * _sinc_slope(x, 1),
    forward=_sinc_forward,
    doc="sin(pi x) / (pi x), and 1 at 0; right to the last digits at 0 in every order.",
)


def _sinc_slope_forward(xp: Any, x: Any, order: int) -> Any:
    """A derivative of sinc: pi^n S(n, pi x), S(n, u) the n-th of sin(u) / u.

    u S(n) = sin(u + n pi / 2) - n S(n - 1) loses digits for small u; there S(n) is the
    integral of t^n cos(u t + n pi / 2) over [0, 1] as a series in u.
    """
    if is_half(x):
        return _sinc_slope_forward(xp, x.astype(np.float32), order).astype(x.dtype)
    u = x * math.pi
    bound = 1.5 + order
    small = xp.abs(u) < bound
    v = xp.where(small, u, xp.zeros((), u.dtype))
    series = xp.zeros_like(v)
    for j in reversed(
        range(order & 1, 24 + 4 * order, 2)
    ):  # the odd or the even powers
        sign = -1 if (order + j) % 4 == 2 else 1
        series = series * (v * v) + sign / (math.factorial(j) * (order + j + 1))
    series = series * v if order & 1 else series
    u = xp.where(small, xp.ones((), u.dtype), u)
    turns = 2 * xp.rint(0.5 * x.real)
    r = (x - turns) * math.pi  # pi x without whole turns, exactly
    sines, cosines = xp.sin(r), xp.cos(r)
    turned = (sines, cosines, -sines, -cosines)
    far = sines / u
    for n in range(1, order + 1):
        far = (turned[n % 4] - n * far) / u
    return math.pi**order * xp.where(small, series, far)


@primitive()
def _sinc_slope(xp: Any, x: Any, order: int) -> Any:
    return _sinc_slope_forward(xp, x, order)


@_sinc_slope.vjp
def _sinc_slope_rule(g: Any, x: Any, order: int) -> Any:
    return g * _sinc_slope(x, order + 1)


radians, degrees = deg2rad, rad2deg
asin, acos, atan, atan2 = arcsin, arccos, arctan, arctan2  # the Array API's names
asinh, acosh, atanh = arcsinh, arccosh, arctanh
