"""Activations of neural networks.

At a kink the derivative is that of the left side, as for relu, if not said otherwise.
At infinite x the values are the limits: silu(-inf) is 0, not -inf * 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..operands import SCALARS, operand, refuse_complex
from ..primitive import elementwise, primitive
from .elementwise import (
    _sigmoid,
    _where,
    absolute,
    clip,
    exp,
    expm1,
    minimum,
    product,
    relu,
    sigmoid,
    softplus,
    tanh,
    where,
)
from .masks import chosen, masked_product
from .reductions import _floating, is_half
from .special import _normal_cdf, density, ndtr


def _choice(xp: Any) -> Any:
    return chosen if xp is np else xp.where


def _real(x: Any, name: str) -> Any:
    x = _floating(x, name)
    refuse_complex(name, x)
    return x


# ---------------------------------------------------------------------- pieces of lines


@primitive()
def _leaky_relu(xp: Any, x: Any, negative_slope: float) -> Any:
    refuse_complex("leaky_relu", x)
    return _choice(xp)(x > 0, x, negative_slope * x)


@_leaky_relu.vjp
def _leaky_relu_rule(g: Any, x: Any, negative_slope: float) -> Any:
    return _where(x > 0, g, negative_slope * g)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x for x > 0, else negative_slope * x; a tensor as slope has a gradient too.

    >>> leaky_relu(tensor([-2.0, 3.0]), 0.5).tolist()
    [-1.0, 3.0]
    """
    x = _real(x, "leaky_relu")
    if type(negative_slope) not in SCALARS:
        return relu(x) + negative_slope * minimum(x, 0.0)
    return _leaky_relu(x, negative_slope)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6); the derivative at 0 is 0, at 6 it is 1.

    >>> relu6(tensor([-1.0, 3.0, 8.0])).tolist()
    [0.0, 3.0, 6.0]
    """
    return minimum(relu(x), 6.0)


def hard_tanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """Limit x to [min_val, max_val]; the derivative at the bounds is 1.

    >>> hard_tanh(tensor([-3.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    return clip(x, min_val, max_val)


def _hard_sigmoid(xp: Any, x: Any) -> Any:
    refuse_complex("hard_sigmoid", x)
    return xp.clip(x / 6 + 0.5, 0, 1)


hard_sigmoid = elementwise(
    "hard_sigmoid",
    d=lambda g, x: _where((x > -3.0) & (x < 3.0), g / 6.0, 0.0),
    forward=_hard_sigmoid,
    doc="x / 6 + 1/2, limited to [0, 1]; the derivative at -3 and 3 is 0.",
)
hard_swish = elementwise(
    "hard_swish",
    d=lambda g, x: _where(x < 3.0, _where(x > -3.0, product(g, x / 3.0 + 0.5), 0.0), g),
    forward=lambda xp, x: masked_product(xp, _hard_sigmoid(xp, x), x),
    doc="x hard_sigmoid(x); the derivative is 0 at -3 and 1 at 3.",
)


def threshold(x: Any, threshold: float, value: Any) -> Any:
    """x where x > threshold, and where it is nan; else ``value``.

    >>> threshold(tensor([0.5, 2.0]), 1.0, -1.0).tolist()
    [-1.0, 2.0]
    """
    x = operand(x, "threshold")
    return where(x <= threshold, value, x)


# ------------------------------------------------------------------------- exponentials


@primitive()
def _elu(xp: Any, x: Any, alpha: float, width: float, scale: float) -> Any:
    refuse_complex("elu", x)
    below = alpha * xp.expm1(xp.minimum(x, 0) / width)
    return scale * _choice(xp)(x > 0, x, below)


@_elu.vjp
def _elu_rule(g: Any, x: Any, alpha: float, width: float, scale: float) -> Any:
    slope = (alpha / width) * exp(minimum(x, 0.0) / width)
    return scale * _where(x > 0, g, g * slope)


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x for x > 0, else alpha (exp(x) - 1); a tensor as alpha has a gradient too.

    >>> elu(tensor([float("-inf"), 2.0])).tolist()
    [-1.0, 2.0]
    """
    x = _real(x, "elu")
    if type(alpha) not in SCALARS:
        return relu(x) + alpha * expm1(minimum(x, 0.0))
    return _elu(x, alpha, 1.0, 1.0)


def selu(x: Any) -> Any:
    """1.0507 elu(x, 1.67326): keeps mean 0 and variance 1 (Klambauer et al., 2017).

    >>> round(selu(tensor(1.0)).item(), 4)
    1.0507
    """
    return _elu(_floating(x, "selu"), 1.6732632423543772, 1.0, 1.0507009873554805)


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """x for x > 0, else alpha (exp(x / alpha) - 1): smooth at 0 for every alpha.

    A tensor as alpha has a gradient too.

    >>> celu(tensor([float("-inf"), 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    x = _real(x, "celu")
    if type(alpha) not in SCALARS:
        return relu(x) + alpha * expm1(minimum(x, 0.0) / alpha)
    return _elu(x, alpha, alpha, 1.0)


log_sigmoid = elementwise(
    "log_sigmoid",
    d=lambda g, x: g * sigmoid(-x),
    forward=lambda xp, x: -xp.logaddexp(-x, xp.zeros((), x.dtype)),
    doc="log(1 / (1 + exp(-x))), without overflow at either end.",
)


def _softsign(xp: Any, x: Any) -> Any:
    refuse_complex("softsign", x)
    return xp.where(xp.isinf(x), xp.sign(x), x / (1 + xp.abs(x)))


softsign = elementwise(
    "softsign",
    d=lambda g, x: g / (1.0 + absolute(x)) / (1.0 + absolute(x)),
    forward=_softsign,
    doc="x / (1 + |x|).",
)


def _tanhshrink(xp: Any, x: Any) -> Any:
    # Near 0 by Lambert's tanh(x) = x / (1 + x^2 / e), e = 3 + x^2 / (5 + x^2 / ...):
    # a fraction of positive terms, where the difference would cancel.
    small = xp.abs(x) < 1
    z = xp.where(small, x * x, xp.zeros((), x.dtype))
    e = 19 + z / 21
    for k in range(17, 2, -2):
        e = k + z / e
    return xp.where(small, x * z / (e + z), x - xp.tanh(x))


tanhshrink = elementwise(
    "tanhshrink",
    d=lambda g, x: g * (tanh(x) * tanh(x)),
    forward=_tanhshrink,
    doc="x - tanh(x), to full precision also near 0.",
)

# ----------------------------------------------------------------- x times a soft step

_LOW = -1e4  # all of them are 0 here, where -inf would make -inf * 0


def _silu(xp: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return x * _sigmoid(xp, x)
    x = xp.maximum(x, _LOW)
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, x, x * e) / (1 + e)


silu = elementwise(
    "silu",
    d=lambda g, x: _silu_rule(g, x, sigmoid(x)),
    forward=_silu,
    doc="x sigmoid(x), also called swish.",
)


def _silu_rule(g: Any, x: Any, s: Any) -> Any:
    return g * (s + product(s * (1.0 - s), x))


swish = silu


def _mish(xp: Any, x: Any) -> Any:
    t = xp.tanh(xp.logaddexp(x, xp.zeros((), x.dtype)))
    return xp.maximum(x, _LOW) * t


def _mish_rule(g: Any, x: Any) -> Any:
    t = tanh(softplus(x))
    return g * (t + product((1.0 - t * t) * sigmoid(x), x))


mish = elementwise(
    "mish", d=_mish_rule, forward=_mish, doc="x tanh(log(1 + exp(x))) (Misra, 2019)."
)


def _gelu_forward(xp: Any, x: Any) -> Any:
    return xp.maximum(x, _LOW) * _normal_cdf(xp, x)


_gelu = elementwise(
    "gelu",
    d=lambda g, x: g * (ndtr(x) + product(density(x), x)),
    forward=_gelu_forward,
)

_ROOT, _CUBE = math.sqrt(8 / math.pi), 0.044715  # 0.5 (1 + tanh(u)) = sigmoid(2 u)


def _gelu_tanh_forward(xp: Any, x: Any) -> Any:
    if is_half(x):
        return _gelu_tanh_forward(xp, x.astype("f4")).astype(x.dtype)
    return xp.maximum(x, _LOW) * _sigmoid(xp, _ROOT * (x + _CUBE * x * x * x))


def _gelu_tanh_rule(g: Any, x: Any) -> Any:
    s = sigmoid(_ROOT * (x + _CUBE * x * x * x))
    slope = _ROOT * (1.0 + 3.0 * _CUBE * x * x)
    return g * (s + product(s * (1.0 - s), product(slope, x)))


_gelu_tanh = elementwise("gelu_tanh", d=_gelu_tanh_rule, forward=_gelu_tanh_forward)


def gelu(x: Any, approximate: bool | str = False) -> Any:
    """x times the normal distribution function at x (Hendrycks and Gimpel, 2016).

    ``approximate=True`` or "tanh": x sigmoid(1.5958 (x + 0.044715 x^3)), which differs
    by up to 5e-4.  SciPy makes the exact one faster, but is not needed.

    >>> round(gelu(tensor(1.0)).item(), 4)
    0.8413
    """
    if approximate in (False, "none"):
        return _gelu(x)
    if approximate in (True, "tanh"):
        return _gelu_tanh(x)
    raise DTypeError(
        "gelu: approximate: expected True or 'tanh', or False or 'none', got "
        f"{approximate!r}"
    )


def glu(x: Any, axis: int = -1) -> Any:
    """a sigmoid(b) for the two halves a, b of an axis: (..., 2 n) -> (..., n).

    Raises ShapeError for an axis of odd length.

    >>> glu(tensor([3.0, 0.0])).tolist()
    [1.5]
    """
    x = _floating(x, "glu")
    if not -x.ndim <= axis < x.ndim or x.shape[axis] % 2:
        raise ShapeError(
            f"glu: expected an axis of even length, got axis {axis} of {x.shape}; "
            "choose another axis, or pad"
        )
    before, n = (slice(None),) * (axis % x.ndim), x.shape[axis] // 2
    return x[(*before, slice(n))] * sigmoid(x[(*before, slice(n, None))])
