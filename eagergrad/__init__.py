"""eagergrad: gradients of ordinary Python code, on NumPy and CuPy.

TensorFlow Eager's gradient interfaces, NumPy's names for everything else.

    import eagergrad as eg

    x = eg.tensor(3.0)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    print(tape.gradient(y, x))
"""

import warnings as _warnings
from typing import Any

import numpy as _np

from . import errors as errors
from . import nest as nest
from . import operators as _operators  # noqa: F401  binds the operators to Tensor
from . import optim as optim
from . import tape as tape
from .checkpoint import load as load
from .checkpoint import save as save
from .custom_gradients import custom_gradient as custom_gradient
from .custom_gradients import grad_pass_through as grad_pass_through
from .custom_gradients import recompute_grad as recompute_grad
from .debug import debug as debug
from .derivatives import batch_jacobian as batch_jacobian
from .derivatives import hessian as hessian
from .derivatives import hvp as hvp
from .derivatives import jacobian as jacobian
from .derivatives import jvp as jvp
from .derivatives import vjp as vjp
from .device import Device as Device
from .device import device as device
from .errors import DTypeWarning as DTypeWarning
from .forward import ForwardAccumulator as ForwardAccumulator
from .gradient_tape import GradientTape as GradientTape
from .gradient_tape import UnconnectedGradients as UnconnectedGradients
from .gradients import gradients_function as gradients_function
from .gradients import implicit_gradients as implicit_gradients
from .gradients import implicit_value_and_gradients as implicit_value_and_gradients
from .gradients import make_vjp as make_vjp
from .gradients import value_and_gradients_function as value_and_gradients_function
from .ops import random as random
from .ops.creation import arange as arange
from .ops.creation import asarray as asarray
from .ops.creation import convert_to_tensor as convert_to_tensor
from .ops.creation import eye as eye
from .ops.creation import full as full
from .ops.creation import full_like as full_like
from .ops.creation import ones as ones
from .ops.creation import ones_like as ones_like
from .ops.creation import tensor as tensor
from .ops.creation import zeros as zeros
from .ops.creation import zeros_like as zeros_like
from .ops.elementwise import abs as abs
from .ops.elementwise import absolute as absolute
from .ops.elementwise import add as add
from .ops.elementwise import astype as astype
from .ops.elementwise import bitwise_and as bitwise_and
from .ops.elementwise import bitwise_or as bitwise_or
from .ops.elementwise import bitwise_xor as bitwise_xor
from .ops.elementwise import ceil as ceil
from .ops.elementwise import clip as clip
from .ops.elementwise import conj as conj
from .ops.elementwise import cos as cos
from .ops.elementwise import divide as divide
from .ops.elementwise import equal as equal
from .ops.elementwise import exp as exp
from .ops.elementwise import expm1 as expm1
from .ops.elementwise import floor as floor
from .ops.elementwise import floor_divide as floor_divide
from .ops.elementwise import greater as greater
from .ops.elementwise import greater_equal as greater_equal
from .ops.elementwise import identity as identity
from .ops.elementwise import imag as imag
from .ops.elementwise import invert as invert
from .ops.elementwise import isfinite as isfinite
from .ops.elementwise import isinf as isinf
from .ops.elementwise import isnan as isnan
from .ops.elementwise import less as less
from .ops.elementwise import less_equal as less_equal
from .ops.elementwise import log as log
from .ops.elementwise import log1p as log1p
from .ops.elementwise import logical_and as logical_and
from .ops.elementwise import logical_not as logical_not
from .ops.elementwise import logical_or as logical_or
from .ops.elementwise import logical_xor as logical_xor
from .ops.elementwise import maximum as maximum
from .ops.elementwise import minimum as minimum
from .ops.elementwise import multiply as multiply
from .ops.elementwise import negative as negative
from .ops.elementwise import not_equal as not_equal
from .ops.elementwise import positive as positive
from .ops.elementwise import power as power
from .ops.elementwise import real as real
from .ops.elementwise import reciprocal as reciprocal
from .ops.elementwise import relu as relu
from .ops.elementwise import remainder as remainder
from .ops.elementwise import rint as rint
from .ops.elementwise import round as round
from .ops.elementwise import sigmoid as sigmoid
from .ops.elementwise import sign as sign
from .ops.elementwise import sin as sin
from .ops.elementwise import softplus as softplus
from .ops.elementwise import sqrt as sqrt
from .ops.elementwise import square as square
from .ops.elementwise import stop_gradient as stop_gradient
from .ops.elementwise import subtract as subtract
from .ops.elementwise import tanh as tanh
from .ops.elementwise import to as to
from .ops.elementwise import where as where
from .ops.indexing import getitem as getitem
from .ops.indexing import take as take
from .ops.linalg import matmul as matmul
from .ops.neural import log_softmax as log_softmax
from .ops.neural import softmax as softmax
from .ops.neural import softmax_cross_entropy as softmax_cross_entropy
from .ops.reductions import all as all
from .ops.reductions import any as any
from .ops.reductions import argmax as argmax
from .ops.reductions import argmin as argmin
from .ops.reductions import logsumexp as logsumexp
from .ops.reductions import max as max
from .ops.reductions import mean as mean
from .ops.reductions import min as min
from .ops.reductions import sum as sum
from .ops.shapes import broadcast_to as broadcast_to
from .ops.shapes import concatenate as concatenate
from .ops.shapes import expand_dims as expand_dims
from .ops.shapes import ravel as ravel
from .ops.shapes import reshape as reshape
from .ops.shapes import split as split
from .ops.shapes import squeeze as squeeze
from .ops.shapes import stack as stack
from .ops.shapes import swapaxes as swapaxes
from .ops.shapes import transpose as transpose
from .tensor import Tensor as Tensor
from .tensor import Variable as Variable
from .tensor import from_dlpack as from_dlpack

# An overflow or a division by zero inside an op gives inf or nan on every device, and
# ``debug(nan_check=True)`` finds it.  NumPy's warning would come on the CPU only, and
# name a line of this package.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"eagergrad\.")

array = constant = tensor  # NumPy's and TensorFlow's name for it
true_divide = divide
mod = remainder
concat = concatenate
cast = astype
float16 = _np.float16
float32 = _np.float32
float64 = _np.float64
complex64 = _np.complex64
complex128 = _np.complex128
int8 = _np.int8
int16 = _np.int16
int32 = _np.int32
int64 = _np.int64
uint8 = _np.uint8
bool_ = _np.bool_
pi = _np.pi
inf = _np.inf
nan = _np.nan
newaxis = None

__all__ = sorted(
    name for name in globals() if not name.startswith("_") and name != "Any"
)


def __getattr__(name: str) -> Any:
    if name == "__version__":  # written once, in pyproject.toml
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("eagergrad")
        except PackageNotFoundError:  # run from a source tree that is not installed
            return "0+unknown"
    raise AttributeError(f"module 'eagergrad' has no attribute {name!r}")
