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
from . import fft as fft
from . import linalg as linalg
from . import nest as nest
from . import operators as _operators  # noqa: F401  binds the operators to Tensor
from . import optim as optim
from . import random as random
from . import special as special
from . import tape as tape
from .array_api import __array_namespace_info__ as __array_namespace_info__
from .array_api import can_cast as can_cast
from .array_api import finfo as finfo
from .array_api import iinfo as iinfo
from .array_api import isdtype as isdtype
from .array_api import result_type as result_type
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
from .function import function as function
from .gemm import matmul_precision as matmul_precision
from .gradient_tape import GradientTape as GradientTape
from .gradient_tape import UnconnectedGradients as UnconnectedGradients
from .gradients import gradients_function as gradients_function
from .gradients import implicit_gradients as implicit_gradients
from .gradients import implicit_value_and_gradients as implicit_value_and_gradients
from .gradients import make_vjp as make_vjp
from .gradients import value_and_gradients_function as value_and_gradients_function
from .ops.activations import celu as celu
from .ops.activations import elu as elu
from .ops.activations import gelu as gelu
from .ops.activations import glu as glu
from .ops.activations import hard_sigmoid as hard_sigmoid
from .ops.activations import hard_swish as hard_swish
from .ops.activations import hard_tanh as hard_tanh
from .ops.activations import leaky_relu as leaky_relu
from .ops.activations import log_sigmoid as log_sigmoid
from .ops.activations import mish as mish
from .ops.activations import relu6 as relu6
from .ops.activations import selu as selu
from .ops.activations import silu as silu
from .ops.activations import softsign as softsign
from .ops.activations import swish as swish
from .ops.activations import tanhshrink as tanhshrink
from .ops.activations import threshold as threshold
from .ops.arranging import broadcast_arrays as broadcast_arrays
from .ops.arranging import broadcast_shapes as broadcast_shapes
from .ops.arranging import flatten as flatten
from .ops.arranging import flip as flip
from .ops.arranging import fliplr as fliplr
from .ops.arranging import flipud as flipud
from .ops.arranging import meshgrid as meshgrid
from .ops.arranging import moveaxis as moveaxis
from .ops.arranging import permute_dims as permute_dims
from .ops.arranging import repeat as repeat
from .ops.arranging import resize as resize
from .ops.arranging import roll as roll
from .ops.arranging import rollaxis as rollaxis
from .ops.arranging import rot90 as rot90
from .ops.arranging import tile as tile
from .ops.arranging import tri as tri
from .ops.attention import scaled_dot_product_attention as scaled_dot_product_attention
from .ops.choices import choose as choose
from .ops.choices import compress as compress
from .ops.choices import extract as extract
from .ops.choices import select as select
from .ops.clipping import clip_by_global_norm as clip_by_global_norm
from .ops.clipping import clip_by_norm as clip_by_norm
from .ops.clipping import global_norm as global_norm
from .ops.convolution import conv as conv
from .ops.convolution import conv1d as conv1d
from .ops.convolution import conv2d as conv2d
from .ops.convolution import conv3d as conv3d
from .ops.convolution import conv_transpose as conv_transpose
from .ops.convolution import depthwise_conv2d as depthwise_conv2d
from .ops.creation import arange as arange
from .ops.creation import asarray as asarray
from .ops.creation import convert_to_tensor as convert_to_tensor
from .ops.creation import empty as empty
from .ops.creation import empty_like as empty_like
from .ops.creation import eye as eye
from .ops.creation import full as full
from .ops.creation import full_like as full_like
from .ops.creation import linspace as linspace
from .ops.creation import ones as ones
from .ops.creation import ones_like as ones_like
from .ops.creation import tensor as tensor
from .ops.creation import zeros as zeros
from .ops.creation import zeros_like as zeros_like
from .ops.dense import dense as dense
from .ops.diagonals import diag as diag
from .ops.diagonals import diagonal as diagonal
from .ops.diagonals import matrix_transpose as matrix_transpose
from .ops.diagonals import trace as trace
from .ops.diagonals import tril as tril
from .ops.diagonals import triu as triu
from .ops.dropout import dropout as dropout
from .ops.einsum import einsum as einsum
from .ops.einsum import vecdot as vecdot
from .ops.elementwise import abs as abs
from .ops.elementwise import absolute as absolute
from .ops.elementwise import add as add
from .ops.elementwise import astype as astype
from .ops.elementwise import bitwise_and as bitwise_and
from .ops.elementwise import bitwise_invert as bitwise_invert
from .ops.elementwise import bitwise_left_shift as bitwise_left_shift
from .ops.elementwise import bitwise_or as bitwise_or
from .ops.elementwise import bitwise_right_shift as bitwise_right_shift
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
from .ops.elementwise import left_shift as left_shift
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
from .ops.elementwise import pow as pow
from .ops.elementwise import power as power
from .ops.elementwise import real as real
from .ops.elementwise import reciprocal as reciprocal
from .ops.elementwise import relu as relu
from .ops.elementwise import remainder as remainder
from .ops.elementwise import right_shift as right_shift
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
from .ops.gathering import bincount as bincount
from .ops.gathering import embedding as embedding
from .ops.gathering import gather_nd as gather_nd
from .ops.gathering import one_hot as one_hot
from .ops.gathering import segment_sum as segment_sum
from .ops.gathering import take_along_axis as take_along_axis
from .ops.indexing import getitem as getitem
from .ops.indexing import take as take
from .ops.joining import append as append
from .ops.joining import array_split as array_split
from .ops.joining import atleast_1d as atleast_1d
from .ops.joining import atleast_2d as atleast_2d
from .ops.joining import atleast_3d as atleast_3d
from .ops.joining import block as block
from .ops.joining import column_stack as column_stack
from .ops.joining import delete as delete
from .ops.joining import dsplit as dsplit
from .ops.joining import dstack as dstack
from .ops.joining import hsplit as hsplit
from .ops.joining import hstack as hstack
from .ops.joining import insert as insert
from .ops.joining import unstack as unstack
from .ops.joining import vsplit as vsplit
from .ops.joining import vstack as vstack
from .ops.linalg import cross as cross
from .ops.linalg import dot as dot
from .ops.linalg import inner as inner
from .ops.linalg import kron as kron
from .ops.linalg import matmul as matmul
from .ops.linalg import multi_dot as multi_dot
from .ops.linalg import outer as outer
from .ops.linalg import tensordot as tensordot
from .ops.linalg import vdot as vdot
from .ops.losses import cosine_similarity as cosine_similarity
from .ops.losses import ctc_loss as ctc_loss
from .ops.losses import hinge as hinge
from .ops.losses import huber as huber
from .ops.losses import kl_div as kl_div
from .ops.losses import mae as mae
from .ops.losses import mse as mse
from .ops.losses import nll as nll
from .ops.losses import sigmoid_cross_entropy as sigmoid_cross_entropy
from .ops.losses import (
    sigmoid_cross_entropy_with_logits as sigmoid_cross_entropy_with_logits,
)
from .ops.losses import (
    softmax_cross_entropy_with_logits as softmax_cross_entropy_with_logits,
)
from .ops.matrix_norms import norm as norm
from .ops.nan_statistics import nanargmax as nanargmax
from .ops.nan_statistics import nanargmin as nanargmin
from .ops.nan_statistics import nancumprod as nancumprod
from .ops.nan_statistics import nancumsum as nancumsum
from .ops.nan_statistics import nanmax as nanmax
from .ops.nan_statistics import nanmean as nanmean
from .ops.nan_statistics import nanmin as nanmin
from .ops.nan_statistics import nanprod as nanprod
from .ops.nan_statistics import nanstd as nanstd
from .ops.nan_statistics import nansum as nansum
from .ops.nan_statistics import nanvar as nanvar
from .ops.neural import log_softmax as log_softmax
from .ops.neural import softmax as softmax
from .ops.neural import softmax_cross_entropy as softmax_cross_entropy
from .ops.normalization import batch_norm as batch_norm
from .ops.normalization import group_norm as group_norm
from .ops.normalization import instance_norm as instance_norm
from .ops.normalization import layer_norm as layer_norm
from .ops.normalization import rms_norm as rms_norm
from .ops.padding import pad as pad
from .ops.pooling import avg_pool as avg_pool
from .ops.pooling import avg_pool1d as avg_pool1d
from .ops.pooling import avg_pool2d as avg_pool2d
from .ops.pooling import avg_pool3d as avg_pool3d
from .ops.pooling import max_pool as max_pool
from .ops.pooling import max_pool1d as max_pool1d
from .ops.pooling import max_pool2d as max_pool2d
from .ops.pooling import max_pool3d as max_pool3d
from .ops.powers import allclose as allclose
from .ops.powers import angle as angle
from .ops.powers import cbrt as cbrt
from .ops.powers import copysign as copysign
from .ops.powers import exp2 as exp2
from .ops.powers import fix as fix
from .ops.powers import float_power as float_power
from .ops.powers import fmax as fmax
from .ops.powers import fmin as fmin
from .ops.powers import fmod as fmod
from .ops.powers import heaviside as heaviside
from .ops.powers import isclose as isclose
from .ops.powers import isneginf as isneginf
from .ops.powers import isposinf as isposinf
from .ops.powers import ldexp as ldexp
from .ops.powers import log2 as log2
from .ops.powers import log10 as log10
from .ops.powers import logaddexp as logaddexp
from .ops.powers import logaddexp2 as logaddexp2
from .ops.powers import nan_to_num as nan_to_num
from .ops.powers import nextafter as nextafter
from .ops.powers import signbit as signbit
from .ops.powers import trunc as trunc
from .ops.putting import put_along_axis as put_along_axis
from .ops.quantiles import median as median
from .ops.quantiles import nanmedian as nanmedian
from .ops.quantiles import nanpercentile as nanpercentile
from .ops.quantiles import nanquantile as nanquantile
from .ops.quantiles import percentile as percentile
from .ops.quantiles import quantile as quantile
from .ops.reductions import all as all
from .ops.reductions import any as any
from .ops.reductions import argmax as argmax
from .ops.reductions import argmin as argmin
from .ops.reductions import logsumexp as logsumexp
from .ops.reductions import max as max
from .ops.reductions import mean as mean
from .ops.reductions import min as min
from .ops.reductions import sum as sum
from .ops.resizing import adaptive_avg_pool as adaptive_avg_pool
from .ops.resizing import adaptive_max_pool as adaptive_max_pool
from .ops.resizing import interpolate as interpolate
from .ops.scans import cummax as cummax
from .ops.scans import cummin as cummin
from .ops.scans import cumprod as cumprod
from .ops.scans import cumsum as cumsum
from .ops.scans import cumulative_prod as cumulative_prod
from .ops.scans import cumulative_sum as cumulative_sum
from .ops.scans import diff as diff
from .ops.scans import logcumsumexp as logcumsumexp
from .ops.scans import trapezoid as trapezoid
from .ops.shapes import broadcast_to as broadcast_to
from .ops.shapes import concat as concat
from .ops.shapes import concatenate as concatenate
from .ops.shapes import expand_dims as expand_dims
from .ops.shapes import ravel as ravel
from .ops.shapes import reshape as reshape
from .ops.shapes import split as split
from .ops.shapes import squeeze as squeeze
from .ops.shapes import stack as stack
from .ops.shapes import swapaxes as swapaxes
from .ops.shapes import transpose as transpose
from .ops.sorting import argpartition as argpartition
from .ops.sorting import argsort as argsort
from .ops.sorting import flatnonzero as flatnonzero
from .ops.sorting import nonzero as nonzero
from .ops.sorting import partition as partition
from .ops.sorting import searchsorted as searchsorted
from .ops.sorting import sort as sort
from .ops.sorting import topk as topk
from .ops.sorting import unique as unique
from .ops.sorting import unique_all as unique_all
from .ops.sorting import unique_counts as unique_counts
from .ops.sorting import unique_inverse as unique_inverse
from .ops.sorting import unique_values as unique_values
from .ops.special import beta as beta
from .ops.special import betaln as betaln
from .ops.special import digamma as digamma
from .ops.special import entr as entr
from .ops.special import erf as erf
from .ops.special import erfc as erfc
from .ops.special import erfcx as erfcx
from .ops.special import erfinv as erfinv
from .ops.special import expit as expit
from .ops.special import gammainc as gammainc
from .ops.special import gammaln as gammaln
from .ops.special import i0 as i0
from .ops.special import i0e as i0e
from .ops.special import i1 as i1
from .ops.special import i1e as i1e
from .ops.special import log_ndtr as log_ndtr
from .ops.special import logit as logit
from .ops.special import ndtr as ndtr
from .ops.special import ndtri as ndtri
from .ops.special import polygamma as polygamma
from .ops.special import xlog1py as xlog1py
from .ops.special import xlogy as xlogy
from .ops.statistics import amax as amax
from .ops.statistics import amin as amin
from .ops.statistics import average as average
from .ops.statistics import count_nonzero as count_nonzero
from .ops.statistics import prod as prod
from .ops.statistics import ptp as ptp
from .ops.statistics import std as std
from .ops.statistics import var as var
from .ops.trigonometry import acos as acos
from .ops.trigonometry import acosh as acosh
from .ops.trigonometry import arccos as arccos
from .ops.trigonometry import arccosh as arccosh
from .ops.trigonometry import arcsin as arcsin
from .ops.trigonometry import arcsinh as arcsinh
from .ops.trigonometry import arctan as arctan
from .ops.trigonometry import arctan2 as arctan2
from .ops.trigonometry import arctanh as arctanh
from .ops.trigonometry import asin as asin
from .ops.trigonometry import asinh as asinh
from .ops.trigonometry import atan as atan
from .ops.trigonometry import atan2 as atan2
from .ops.trigonometry import atanh as atanh
from .ops.trigonometry import cosh as cosh
from .ops.trigonometry import deg2rad as deg2rad
from .ops.trigonometry import degrees as degrees
from .ops.trigonometry import hypot as hypot
from .ops.trigonometry import rad2deg as rad2deg
from .ops.trigonometry import radians as radians
from .ops.trigonometry import sinc as sinc
from .ops.trigonometry import sinh as sinh
from .ops.trigonometry import tan as tan
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
uint16 = _np.uint16
uint32 = _np.uint32
uint64 = _np.uint64
bool = bool_ = _np.bool_
e = _np.e
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
