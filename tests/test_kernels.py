"""The formulas of kernels/, compiled for the host, against the ops they belong to."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import eagergrad as eg
from eagergrad.kernels import folder

POINTS = np.array(
    [-1000, -90, -20, -1, -1e-3, -0.0, 0.0, 1e-3, 1, 20, 90, 1000, np.inf, -np.inf],
    np.float64,
)
OPS = ["sigmoid", "softplus", "relu", "tanh"]

PROGRAM = """
#include "elementwise.h"
#define LOOP(name, T, T_)                                                     \\
  extern "C" void name##_##T_(const T* x, T* y, long n) {                     \\
    for (long i = 0; i < n; ++i) y[i] = eg::name(x[i]);                       \\
  }                                                                           \\
  extern "C" void name##_d_##T_(const T* g, const T* s, T* d, long n) {       \\
    for (long i = 0; i < n; ++i) d[i] = eg::name##_d(g[i], s[i]);             \\
  }
#define BOTH(name) LOOP(name, float, float32) LOOP(name, double, float64)
BOTH(sigmoid) BOTH(softplus) BOTH(relu) BOTH(tanh)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    work = tmp_path_factory.mktemp("kernels")
    (work / "all.cpp").write_text(PROGRAM)
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(
        [compiler, *flags, f"-I{folder()}", "-o", work / "all.so", work / "all.cpp"],
        check=True,
    )
    return ctypes.CDLL(str(work / "all.so"))


def call(function, *arrays):
    out = np.empty_like(arrays[0])
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, out)]
    function(*pointers, ctypes.c_long(out.size))
    return out


def op_value_and_gradient(name, x, g):
    t = eg.tensor(x)
    with eg.GradientTape() as tape:
        tape.watch(t)
        y = getattr(eg, name)(t)
    return y.numpy(), tape.gradient(y, t, output_gradients=g).numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPS)
def test_formula_agrees_with_the_op(library, name, dtype):
    x = POINTS.astype(dtype)
    g = np.linspace(-2, 2, x.size, dtype=dtype)
    value, gradient = op_value_and_gradient(name, x, g)
    y = call(getattr(library, f"{name}_{dtype}"), x)
    saved = x if name == "softplus" else y
    d = call(getattr(library, f"{name}_d_{dtype}"), g, saved)
    np.testing.assert_array_max_ulp(y, value, maxulp=4)
    np.testing.assert_allclose(d, gradient, rtol=1e-6 if dtype == "float32" else 1e-15)


@pytest.mark.parametrize("name", OPS)
def test_formula_keeps_nan(library, name):
    nan = np.array([np.nan], np.float32)
    assert np.isnan(call(getattr(library, f"{name}_float32"), nan)).all()
