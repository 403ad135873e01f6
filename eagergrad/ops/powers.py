"""The rest of NumPy's elementwise functions: powers and logarithms of other bases,
sums of exponentials, signs, remainders, and comparisons with a tolerance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import DTypeError
from ..operands import operand, refuse_complex
from ..primitive import constant, elementwise, linear, primitive
from .elementwise import (
    _sign,
    _where,
    imag,
    isfinite,
    isinf,
    power,
    product,
    quotient,
    real,
    rint,
    sigmoid,
)
from .reductions import _floating, all
from .trigonometry import arctan2, rad2deg

_LN2, _LN10 = math.log(2), math.log(10)

exp2 = elementwise("exp2", d=lambda g, y: g * (y * _LN2))
log2 = elementwise("log2", d=lambda g, x: quotient(g / _LN2, x), domain=(0.1, 4.0))
log10 = elementwise("log10", d=lambda g, x: quotient(g / _LN10, x), domain=(0.1, 4.0))
cbrt = elementwise(
    "cbrt", d=lambda g, y: quotient(quotient(g / 3.0, y), y), domain=(0.1, 4.0)
)


def float_power(a: Any, b: Any) -> Any:
    """Raise to a power in floating point: integers become float32 first.

    The dtype of floating arguments is kept, where NumPy's is at least float64.

    >>> float_power(tensor([2.0, 4.0]), -1).tolist()
    [0.5, 0.25]
    """
    if not isinstance(b, (int, float, complex)):
        b = _floating(b, "float_power")
    if not isinstance(a, (int, float, complex)) or isinstance(b, (int, float, complex)):
        a = _floating(a, "float_power")
    return power(a, float(b) if isinstance(b, int) else b)


# ----------------------------------------------------------------- sums of exponentials


def _share(a: Any, b: Any) -> Any:
    # exp(a) / (exp(a) + exp(b)); of two equal infinities each has a half
    return sigmoid(_where((a == b) & isinf(a), 0.0, a - b))


def _share_of_two(a: Any, b: Any) -> Any:
    return sigmoid(_where((a == b) & isinf(a), 0.0, (a - b) * _LN2))


logaddexp = elementwise(
    "logaddexp",
    d=(lambda g, a, b: g * _share(a, b), lambda g, a, b: g * _share(b, a)),
    doc="log(exp(a) + exp(b)), without overflow; equal ones share the gradient.",
)
logaddexp2 = elementwise(
    "logaddexp2",
    d=(
        lambda g, a, b: g * _share_of_two(a, b),
        lambda g, a, b: g * _share_of_two(b, a),
    ),
    doc="log2(2^a + 2^b), without overflow; equal ones share the gradient.",
)

# ----------------------------------------------------------------- signs and remainders

signbit = constant("signbit", 1, doc="Whether the sign is minus, also that of -0.0.")
copysign = elementwise(
    "copysign",
    d=(lambda g, a, y: g * (_sign(a) * _sign(y)), None),
    doc="The size of a with the sign of b; the gradient of a is 0 at a = 0.",
)
fmod = elementwise(
    "fmod",
    d=(
        lambda g: g,
        # (a - y) / b is whole but for rounding, which can push a / b across
        lambda g, a, b, y: -product(g, rint(quotient(a - y, b))),
    ),
    domain=((0.3, 2.2), (0.4, 1.9)),
    doc="The remainder of a / b with the sign of a.",
)
fmax = elementwise(
    "fmax",
    d=(
        lambda g, a, b: _where((a >= b) | (b != b), g, 0.0),
        lambda g, a, b: _where((a >= b) | (b != b), 0.0, g),
    ),
    doc="The larger of a and b, a nan only if both are; of equal ones a has the "
    "gradient.",
)
fmin = elementwise(
    "fmin",
    d=(
        lambda g, a, b: _where((a <= b) | (b != b), g, 0.0),
        lambda g, a, b: _where((a <= b) | (b != b), 0.0, g),
    ),
    doc="The smaller of a and b, a nan only if both are; of equal ones a has the "
    "gradient.",
)
heaviside = elementwise(
    "heaviside",
    d=(None, lambda g, a: _where(a == 0, g, 0.0)),
    doc="0 for a < 0, b at a = 0, 1 for a > 0; no gradient by a.",
)
trunc = constant("trunc", 1)
fix = trunc
nextafter = constant("nextafter")


def _ldexp_forward(xp: Any, x: Any, exponent: Any) -> Any:
    return xp.ldexp(x, exponent)


_ldexp = linear(
    "ldexp",
    transpose=lambda g, exponent: _ldexp(g, exponent),
    forward=_ldexp_forward,
)


def ldexp(x1: Any, x2: Any) -> Any:
    """x1 * 2^x2 for integers x2, without rounding; no gradient by x2.

    The shapes broadcast.  Raises DTypeError for x2 that are not integers.

    >>> ldexp(tensor([1.0, 3.0]), 2).tolist()
    [4.0, 12.0]
    """
    if not isinstance(x2, int):
        x2 = (operand(x2, "ldexp"))._data
        if x2.dtype.kind not in "iu":
            raise DTypeError(
                f"ldexp: expected integers x2, got {x2.dtype}; cast with "
                "eg.astype(x2, 'int32')"
            )
        x2 = x2.astype(np.int32)
    return _ldexp(_floating(x1, "ldexp"), x2)


# --------------------------------------------------------------------- nan and infinity


@primitive()
def _nan_to_num(xp: Any, x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    return xp.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


@_nan_to_num.vjp
def _nan_to_num_rule(g: Any, x: Any) -> Any:
    return _where(isfinite(x), g, 0.0)


def nan_to_num(
    x: Any,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Any:
    """Replace nan, inf and -inf by numbers; inf by the largest one of the dtype.

    What is replaced has the gradient 0.  The result is always a copy.

    >>> nan_to_num(tensor([1.0, float("nan"), float("inf")]), posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """
    return _nan_to_num(x, nan, posinf, neginf)


def _isposinf(xp: Any, x: Any) -> Any:
    refuse_complex("isposinf", x)
    return x == math.inf


def _isneginf(xp: Any, x: Any) -> Any:
    refuse_complex("isneginf", x)
    return x == -math.inf


isposinf = constant("isposinf", 1, _isposinf, "Whether it is +inf.")
isneginf = constant("isneginf", 1, _isneginf, "Whether it is -inf.")


@primitive(arrays=2, constant=True)
def _isclose(xp: Any, a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    return xp.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether |a - b| <= atol + rtol |b|, element by element.

    >>> isclose(tensor([1.0, 2.0]), tensor([1.000001, 2.1])).tolist()
    [True, False]
    """
    return _isclose(a, b, rtol, atol, equal_nan)


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether ``isclose`` holds for all elements: one bool, on the device.

    >>> bool(allclose(tensor([1.0]), tensor([1.000001])))
    True
    """
    return all(isclose(a, b, rtol, atol, equal_nan))


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of complex numbers in (-pi, pi], in degrees if ``deg``.

    Of real numbers it is 0 or pi, with the gradient 0, as at z = 0.

    >>> round(angle(tensor(1 + 1j), deg=True).item(), 3)
    45.0
    """
    z = _floating(z, "angle")
    y = arctan2(imag(z), real(z))
    return rad2deg(y) if deg else y
