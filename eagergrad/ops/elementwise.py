"""Elementwise ops: arithmetic, comparisons, exponentials, activations.

Where a rule is singular at a finite point (log at 0, division by 0 ...), a cotangent
that is exactly 0 gives 0 there, so that ``where(x > 0, log(x), 0)`` has a clean
gradient: such rules are written with ``quotient`` and ``product``.
"""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np

from ..device import backend_of, device_of, resolve
from ..errors import ShapeError
from ..operands import SCALARS, operand, operands, refuse_complex
from ..primitive import constant, elementwise, linear
from ..tape import active, left
from ..tensor import Tensor, as_dtype, wrap
from .masks import ZERO, chosen, gated, masked_product, masked_quotient

# ------------------------------------------------------- products that mind zeros


quotient = elementwise(
    "quotient",
    d=(
        lambda g, b: quotient(g, b),
        lambda g, b, y: quotient(-product(y, g), b),  # 0 where a is 0, also at b = 0
    ),
    forward=masked_quotient,
    domain=((-2.0, 2.0), (0.2, 2.0)),
    doc="a / b, and 0 wherever a is 0, even at b = 0.",
)
product = elementwise(
    "product",
    d=(lambda g, b: product(g, b), lambda g, a: product(g, a)),
    forward=masked_product,
    doc="a * b, and 0 wherever a is 0, even where b is infinite or nan.",
)

# ----------------------------------------------------------------------- arithmetic

add = elementwise("add", d=(lambda g: g, lambda g: g))
subtract = elementwise("subtract", d=(lambda g: g, lambda g: -g))
multiply = elementwise("multiply", d=(lambda g, b: g * b, lambda g, a: g * a))
divide = elementwise(
    "divide",
    d=(
        lambda g, b: quotient(g, b),
        lambda g, a, b: quotient(-quotient(g, b) * a, b),  # no b * b: it overflows
    ),
    domain=((-2.0, 2.0), (0.2, 2.0)),
)
negative = elementwise("negative", d=lambda g: -g)
positive = elementwise("positive", d=lambda g: g)
reciprocal = elementwise(
    "reciprocal",
    d=lambda g, x: -quotient(quotient(g, x), x),
    domain=(0.2, 2.0),
)
floor_divide = constant("floor_divide")
remainder = elementwise(
    "remainder",
    d=(lambda g: g, lambda g, a, b: -g * floor_divide(a, b)),
    domain=(0.3, 2.3),
)


def _power_base(g: Any, a: Any, b: Any) -> Any:
    # b a^(b-1), and 0 where b is 0: a^0 is 1 everywhere, so also at a = 0
    if isinstance(b, (int, float)):
        return product(g, b * power(a, b - 1)) if b else g * 0.0
    return product(_where(b == 0, 0.0, g), b * power(a, _where(b == 0, 1.0, b - 1.0)))


def _power_exponent(g: Any, a: Any, y: Any) -> Any:
    # y log(a); real powers of a negative base have no derivative: 0, as at a = 0
    of_complex = y.dtype.kind == "c"
    if isinstance(a, complex) or (of_complex and isinstance(a, (int, float))):
        return g * y * cmath.log(a) if a else g * 0.0
    if isinstance(a, (int, float)):
        return g * y * math.log(a) if a > 0 else g * 0.0
    valid = a != 0 if of_complex else a > 0
    return product(_where(valid, g, 0.0), y * log(_where(valid, a, 1.0)))


_power = elementwise("power", d=(_power_base, _power_exponent), domain=(0.3, 2.3))


def power(a: Any, b: Any) -> Any:
    """Raise to a power: a^b, with 0^0 = 1.

    d/da = b a^(b-1), 0 for b = 0; d/db = a^b log(a), 0 for a <= 0.

    >>> power(tensor([1.0, 2.0]), 3.0).tolist()
    [1.0, 8.0]
    """
    if isinstance(b, (int, float)) and b == 2 and not isinstance(a, (int, float)):
        return square(a)
    return _power(a, b)


pow = power

square = elementwise("square", d=lambda g, x: g * (2.0 * x))
sqrt = elementwise("sqrt", d=lambda g, y: quotient(0.5 * g, y), domain=(0.1, 4.0))


def _absolute_rule(g: Any, x: Any) -> Any:
    # sign is constant along the real line only
    return g * (quotient(x, absolute(x)) if x.dtype.kind == "c" else _sign(x))


absolute = elementwise("absolute", d=_absolute_rule)
abs = absolute
_sign = constant("sign", 1)


def sign(x: Any) -> Any:
    """-1, 0 or 1 by the sign of each element; z / |z| of complex z.

    Of real numbers it has no gradient; at z = 0 value and gradient are 0.

    >>> sign(tensor([-2.0, 0.0])).tolist(), sign(tensor(3 + 4j)).numpy().round(1)
    ([-1.0, 0.0], np.complex64(0.6+0.8j))
    """
    x = operand(x, "sign")
    if x.dtype.kind != "c":
        return _sign(x)
    z = _where(x == 0, 1.0, x)
    return _where(x == 0, 0.0, z / absolute(z))


floor = constant("floor", 1)
ceil = constant("ceil", 1)
rint = constant("rint", 1)


def round(x: Any, decimals: int = 0) -> Any:
    """Round to a number of decimals, halves to even; no gradient.

    Integers stay as they are, unless decimals are negative: then they become float32.

    >>> round(tensor([1.25, 2.5]), 1).tolist()
    [1.2000000476837158, 2.5]
    """
    x = operand(x, "round")
    if x.dtype.kind in "iu" and decimals >= 0:
        return x
    if not decimals:
        return rint(x)
    scale = 10.0**decimals
    return rint(x * scale) / scale


# --------------------------------------------------------- exponentials, trigonometry

exp = elementwise("exp", d=lambda g, y: g * y)
expm1 = elementwise("expm1", d=lambda g, y: g * (y + 1.0))
log = elementwise("log", d=lambda g, x: quotient(g, x), domain=(0.1, 4.0))
log1p = elementwise("log1p", d=lambda g, x: quotient(g, 1.0 + x), domain=(-0.5, 4.0))
sin = elementwise("sin", d=lambda g, x: g * cos(x))
cos = elementwise("cos", d=lambda g, x: -g * sin(x))
tanh = elementwise("tanh", d=lambda g, y: g * (1.0 - y * y))

# ------------------------------------------------------------------------ activations


def _sigmoid(xp: Any, x: Any) -> Any:
    # 0.5 (1 + tanh(x / 2)) loses the small tail: exp of minus the absolute value is
    # in (0, 1], so this form neither overflows nor cancels.
    if x.dtype.kind == "c":
        return 1 / (1 + xp.exp(-x))
    e = xp.exp(-xp.abs(x))
    share = 1 / (1 + e)
    return xp.where(x >= 0, share, e * share)


def _sigmoid_slope(xp: Any, x: Any) -> Any:
    # of y alone it would be y (1 - y), which loses the tail where y rounds to 1
    if x.dtype.kind == "c":
        return _sigmoid(xp, x) * _sigmoid(xp, -x)
    e = xp.exp(-xp.abs(x))
    share = 1 / (1 + e)
    return e * share * share


sigmoid_slope = elementwise(
    "sigmoid_slope",
    d=lambda g, x, y: -g * (y * tanh(0.5 * x)),
    forward=_sigmoid_slope,
    doc="The derivative of sigmoid, with all digits in both tails.",
)
sigmoid = elementwise(
    "sigmoid",
    d=lambda g, x: g * sigmoid_slope(x),
    forward=_sigmoid,
    doc="1 / (1 + exp(-x)), without overflow at either end.",
)
softplus = elementwise(
    "softplus",
    d=lambda g, x: g * sigmoid(x),
    forward=lambda xp, x: xp.logaddexp(x, xp.zeros((), x.dtype)),
    doc="log(1 + exp(x)), without overflow at either end.",
)
gate = elementwise(
    "gate",
    d=(lambda g, y_: gate(g, y_), None),
    forward=lambda xp, g_, y_: xp.where(y_ > 0, g_, 0),
    numpy=gated,
    doc="g where y > 0, else 0: the derivative of relu.",
)


def _relu(xp: Any, x: Any) -> Any:
    refuse_complex("relu", x)
    return xp.maximum(x, 0)


def _relu_numpy(x: Any) -> Any:
    zero = ZERO.get(x.dtype.char)
    return _relu(np, x) if zero is None else np.maximum(x, zero)


relu = elementwise(
    "relu",
    d=lambda g, y: gate(g, y),
    forward=_relu,
    numpy=_relu_numpy,
    doc="max(x, 0); the derivative at 0 is 0.",
)

# ---------------------------------------------------------- choices and comparisons

maximum = elementwise(
    "maximum",
    d=(
        lambda g, a, b: _where(_first_wins(a, b, a >= b), g, 0.0),
        lambda g, a, b: _where(_first_wins(a, b, a >= b), 0.0, g),
    ),
    doc="The larger of a and b; of equal ones the gradient goes to a.",
)
minimum = elementwise(
    "minimum",
    d=(
        lambda g, a, b: _where(_first_wins(a, b, a <= b), g, 0.0),
        lambda g, a, b: _where(_first_wins(a, b, a <= b), 0.0, g),
    ),
    doc="The smaller of a and b; of equal ones the gradient goes to a.",
)


def _first_wins(a: Any, b: Any, better: Any) -> Any:
    return better | (a != a)  # a nan is the result, so it gets the gradient


def _clip(xp: Any, x: Any, low: Any, high: Any) -> Any:
    if low is None and high is None:
        return x
    return xp.clip(x, low, high)


_clip_op = elementwise(
    "clip",
    d=(
        lambda g, x, low, high: _where((x >= low) & (x <= high), g, 0.0),
        lambda g, x, low, high: _where((x < low) & (low <= high), g, 0.0),
        lambda g, x, low, high: _where((x > high) | (low > high), g, 0.0),
    ),
    forward=_clip,
)


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Limit the values to [min, max]; the gradient passes at the bounds themselves.

    >>> clip(tensor([-1.0, 0.5, 2.0]), 0.0, 1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    if min is None:
        return operand(x, "clip") if max is None else minimum(x, max)
    if max is None:
        return maximum(x, min)
    if type(x) in SCALARS:  # it takes the dtype of an array beside it
        x = where(False, max if type(min) in SCALARS else min, x)
    x, min = operands(_clip_op.op, x, min)
    x, max = operands(_clip_op.op, x, max)
    return _clip_op(x, min, max)


_where = elementwise(
    "where",
    d=(
        None,
        lambda g, cond: _where(cond, g, 0.0),
        lambda g, cond: _where(cond, 0.0, g),
    ),
    arrays=("cond", "a", "b"),
    numpy=chosen,
)


def where(cond: Any, a: Any, b: Any) -> Any:
    """Choose from a where cond holds, from b elsewhere.

    The gradient goes to the chosen side only, as exact zeros to the other.

    >>> where(tensor([True, False]), 1.0, tensor([2.0, 3.0])).tolist()
    [1.0, 3.0]
    """
    a, b = operands(where.op, a, b)  # type: ignore[attr-defined]
    return _where(cond, a, b)


where.op = _where.op  # type: ignore[attr-defined]

equal = constant("equal")
not_equal = constant("not_equal")
less = constant("less")
less_equal = constant("less_equal")
greater = constant("greater")
greater_equal = constant("greater_equal")
logical_and = constant("logical_and")
logical_or = constant("logical_or")
logical_xor = constant("logical_xor")
logical_not = constant("logical_not", 1)
bitwise_and = constant("bitwise_and")
bitwise_or = constant("bitwise_or")
bitwise_xor = constant("bitwise_xor")
invert = constant("invert", 1)
left_shift = constant("left_shift", doc="The bits of a moved b places to the left.")
right_shift = constant("right_shift", doc="The bits of a moved b places to the right.")
bitwise_invert = invert  # the Array API's names
bitwise_left_shift, bitwise_right_shift = left_shift, right_shift
isnan = constant("isnan", 1)
isinf = constant("isinf", 1)
isfinite = constant("isfinite", 1)

# --------------------------------------------------------- the same values, elsewhere

identity = linear("identity", transpose=lambda g: g, forward=lambda xp, x: x)
identity.__doc__ = """Return a new Tensor with the same values, known to the tapes.

    >>> x = tensor(2.0)
    >>> identity(x) is x
    False
    """


def _astype(xp: Any, x: Any, dtype: Any, origin: Any) -> Any:
    if x.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        x = x.real  # the transpose of real -> complex, and no ComplexWarning
    return x.astype(dtype)


_astype_op = linear(
    "astype",
    transpose=lambda g, dtype, origin: _astype_op(g, origin, dtype),
    forward=_astype,
)


def astype(x: Any, dtype: Any, copy: bool = True, device: Any = None) -> Tensor:
    """Cast to another dtype; the gradient comes back in the dtype of x.

    Casting to an integer dtype ends the path of gradients.  With ``copy=False`` an x
    that has the dtype is returned as it is.  With ``device`` the result moves there.

    >>> astype(tensor([1.5]), "int64").tolist()
    [1]
    """
    x = operand(x, "astype")
    dtype = as_dtype(dtype, "astype")
    if device is not None:
        x = to(x, device)
    if not copy and x.dtype == dtype:
        return x  # type: ignore[no-any-return]
    if dtype.kind in "biu":
        if x._node is not None and active():
            left(x, f"a cast to {dtype}")
        with x.device.allocating("astype"):
            return wrap(x._data.astype(dtype))
    return _astype_op(x, dtype, x._data.dtype)  # type: ignore[no-any-return]


def settled(y: Tensor, source: Any, copy: bool | None, name: str) -> Tensor:
    """y with memory of its own for ``copy=True``, that of its source for False."""
    if copy is None:
        return y
    if copy:
        out: Tensor = identity(y)
        with out.device.allocating(name):
            out._data = out._data.copy()
        return out
    given = source._data if isinstance(source, Tensor) else source
    xp = backend_of(y._data).xp
    if not isinstance(given, type(y._data)) or (
        given.size and not xp.may_share_memory(given, y._data)
    ):
        raise ShapeError(
            f"{name}: expected, for copy=False, an array whose memory can be shared, "
            f"got {type(source).__name__}; leave out copy"
        )
    return y


def _moved(xp: Any, x: Any, target: Any, origin: Any) -> Any:
    if target.backend is origin.backend:
        return target.backend.move(x, target)
    return target.backend.put(origin.backend.get(x), target)


_to = linear(
    "to",
    transpose=lambda g, target, origin: _to(g, origin, target),
    forward=_moved,
)


def to(x: Any, device: Any) -> Tensor:
    """Move to another device; the gradient comes back to the device of x.

    >>> to(tensor([1.0]), "cpu").device.name
    'cpu'
    """
    x = operand(x, "to")
    target, origin = resolve(device), device_of(x._data)
    return identity(x) if target == origin else _to(x, target, origin)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------- complex

conj = elementwise("conj", d=lambda g: conj(g), doc="The complex conjugate.")
_real = linear(
    "real",
    transpose=lambda g, dtype: _astype_op(g, dtype, g.dtype),
    forward=lambda xp, x, dtype: xp.real(x),
)
_imag = linear(
    "imag",
    transpose=lambda g, dtype: g * 1j,
    forward=lambda xp, x, dtype: xp.imag(x),
)


def real(x: Any) -> Any:
    """The real part.

    >>> real(tensor(3 + 4j)).item()
    3.0
    """
    x = operand(x, "real")
    return _real(x, x.dtype) if x.dtype.kind == "c" else x


def imag(x: Any) -> Any:
    """The imaginary part; zeros for a real tensor.

    >>> imag(tensor(3 + 4j)).item()
    4.0
    """
    x = operand(x, "imag")
    return _imag(x, x.dtype) if x.dtype.kind == "c" else _where(False, x, 0)


def stop_gradient(x: Any) -> Tensor:
    """Return the same values, unknown to every tape: no gradient flows back.

    >>> stop_gradient(tensor([1.0])).tolist()
    [1.0]
    """
    x = operand(x, "stop_gradient")
    if x._node is not None and active():
        left(x, "stop_gradient")
    return wrap(x._data)
