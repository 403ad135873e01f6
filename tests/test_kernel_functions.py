"""kernels/functions.h, compiled for the host, against the C library in a wider type."""

import ctypes
import platform
import re
import shutil
import subprocess

import numpy as np
import pytest

from eagergrad import formulas
from eagergrad.kernels import folder

HEADER = (folder() / "functions.h").read_text()
LISTS = dict(re.findall(r"#define (EG_\w+)\(F\)((?:.*\\\n)*.*)", HEADER))
INSTRUCTIONS, VECTORISED, OWN, SCALAR = (
    re.findall(r"F\((\w+)\)", LISTS[f"EG_{name}"])
    for name in ("INSTRUCTIONS", "VECTORISED", "OWN", "SCALAR")
)
# the bound that the header states beside each function
ULP = {name: float(u) for name, u in re.findall(r"(\w+)\(.*\) {  // (.*) ulp", HEADER)}
WIDER = {"float": np.float64, "double": np.longdouble}
NARROW = {"float": np.float32, "double": np.float64}

PROGRAM = """
#include <cmath>
#include "functions.h"
namespace exact {
using namespace std;
template <class T> T exp_share(T x) { return std::exp(x); }
template <class T> T log1p_share(T x) { return std::log1p(x); }
template <class T> T normpdf(T x) {
  return std::exp(-x * x / 2) * T(0.39894228040143267794L);
}
template <class T> T normcdf(T x) { return std::erfc(-x * std::sqrt(T(0.5))) / 2; }
}
#define LOOP(name, T, Wide)                                                         \\
  extern "C" void name##_##T(const T* x, T* y, long n) {                            \\
    for (long i = 0; i < n; ++i) y[i] = eg::name(x[i]);                             \\
  }                                                                                 \\
  extern "C" void name##_##T##_wide(const T* x, Wide* y, long n) {                  \\
    for (long i = 0; i < n; ++i) y[i] = exact::name(static_cast<Wide>(x[i]));       \\
  }
#define BOTH(name) LOOP(name, float, double) LOOP(name, double, long double)
EG_VECTORISED(BOTH) EG_OWN(BOTH) EG_SCALAR(BOTH)
#define PAIRS(name, T, call)                                                        \\
  extern "C" void name##_##T(const T* a, const T* b, T* y, long n) {                \\
    for (long i = 0; i < n; ++i) y[i] = call(a[i], b[i]);                           \\
  }
PAIRS(pow, float, eg::pow) PAIRS(pow, double, eg::pow)
PAIRS(maximum, float, eg::maximum) PAIRS(minimum, double, eg::minimum)
PAIRS(copysign, float, eg::copysign)
extern "C" void pow_float_wide(const float* a, const float* b, double* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = std::pow(double(a[i]), double(b[i]));
}
extern "C" void sign_double(const double* x, double* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = eg::sign(x[i]);
}
extern "C" void abs_double(const double* x, double* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = eg::abs(x[i]);
}
"""
VECTOR = ["-O3", "-fno-math-errno", "-fno-trapping-math"]


def compiler():
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("no C++ compiler here")
    return found


def output_of(*command):
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def build(program, text, *flags):
    """Compile text into a program or a library."""
    source = program.with_suffix(".cpp")
    source.write_text(text)
    flags = ["-std=c++17", *flags, f"-I{folder()}"]
    return output_of(compiler(), *flags, "-o", program, source)


# as a kernel would be built, and with no product fused with a sum
@pytest.fixture(
    scope="module",
    params=[[*VECTOR, "-march=native"], ["-O1", "-ffp-contract=off"]],
    ids=["vectors", "unfused"],
)
def library(request, tmp_path_factory):
    program = tmp_path_factory.mktemp("math") / "math.so"
    strict = ["-Wall", "-Wextra", "-Werror"]
    build(program, PROGRAM, *strict, *request.param, "-shared", "-fPIC")
    return ctypes.CDLL(str(program))


def call(library, name, *arrays, dtype=None):
    out = np.empty(arrays[0].shape, dtype or arrays[0].dtype)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, out)]
    getattr(library, name)(*pointers, ctypes.c_long(out.size))
    return out


def specials(dtype):
    f = np.finfo(dtype)
    positive = [0, f.smallest_subnormal, f.tiny * (1 - f.eps), f.tiny, 1, 0.5, 2]
    positive += [1 - f.epsneg, 1 + f.eps, f.max, np.inf, np.nan]
    return np.array([*positive, *(-p for p in positive)], dtype)


def points(dtype, size):
    """Random bits, every exponent among them, and where functions turn or end."""
    rng = np.random.default_rng(4)
    bits = np.uint32 if dtype == np.float32 else np.uint64
    parts = [rng.integers(0, np.iinfo(bits).max, size, bits, endpoint=True).view(dtype)]
    parts += [rng.uniform(-u, u, size // 4).astype(dtype) for u in (1, 3, 27, 130, 800)]
    parts += [(1 + rng.uniform(-0.01, 0.01, size // 4)).astype(dtype), specials(dtype)]
    return np.concatenate(parts)


def ulps(y, exact):
    """The error of y in units of the last place of exact, rounded to y's dtype."""
    f = np.finfo(y.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(y.dtype)
        _, exponent = np.frexp(exact)
        place = np.ldexp(exact.dtype.type(f.eps), np.maximum(exponent - 1, f.minexp))
        error = np.abs(y - exact) / place
    settled = (y == rounded) | (np.isnan(y) & np.isnan(rounded))
    error[settled & ~np.isfinite(rounded)] = 0
    error[np.isnan(error)] = np.inf
    error[(np.signbit(y) != np.signbit(rounded)) & ~np.isnan(rounded)] = np.inf
    return error


def test_formulas_know_what_is_vectorised():
    others = {"copysign", "maximum", "minimum", "abs", "sign"}
    assert {*INSTRUCTIONS, *VECTORISED, *OWN, *others} == formulas.VECTORISED
    assert {*SCALAR, "cbrt", "pow", "atan2", "hypot", "fmod"} == formulas.SCALAR


def test_every_function_states_its_error():
    assert set(ULP) == {*VECTORISED, *OWN, "pow"} - set(INSTRUCTIONS)
    assert max(ULP.values()) <= 6


@pytest.mark.parametrize("T", ["float", "double"])
@pytest.mark.parametrize("name", [*VECTORISED, *OWN, *SCALAR])
def test_error_is_as_stated(library, name, T):
    if T == "double" and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long double is not wider than double here")
    x = points(NARROW[T], 2**18 if T == "float" else 2**14)
    if name == "log1p_share":
        x = x[(x <= 1) & ~np.signbit(x)]
    if name == "exp_share":
        x = x[np.signbit(x) | np.isnan(x)]
    y = call(library, f"{name}_{T}", x)
    exact = call(library, f"{name}_{T}_wide", x, dtype=WIDER[T])
    error = ulps(y, exact)
    worst = error.argmax()
    stated = ULP.get(name, 0.5 if name in INSTRUCTIONS else 2)
    assert error[worst] <= stated, f"{name}({x[worst]!r}) = {y[worst]!r}"


def test_power(library):
    rng = np.random.default_rng(5)
    a, b = np.meshgrid(specials(np.float32), [*specials(np.float32), 3, -3, 1e30])
    a = np.concatenate([a.ravel(), rng.lognormal(0, 9, 2**16)]).astype(np.float32)
    b = np.concatenate([b.ravel(), rng.normal(0, 9, 2**16)]).astype(np.float32)
    exact = call(library, "pow_float_wide", a, b, dtype=np.float64)
    error = ulps(call(library, "pow_float", a, b), exact)
    worst = error.argmax()
    assert error[worst] <= ULP["pow"], f"pow({a[worst]!r}, {b[worst]!r})"
    y = call(library, "pow_double", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(y, exact)


@pytest.mark.parametrize(
    ("name", "ufunc"),
    [
        ("maximum_float", np.maximum),
        ("minimum_double", np.minimum),
        ("copysign_float", np.copysign),
        ("sign_double", np.sign),
        ("abs_double", np.abs),
    ],
)
def test_selection_is_as_in_numpy(library, name, ufunc):
    dtype = NARROW[name.split("_")[1]]
    grid = [g.ravel() for g in np.meshgrid(specials(dtype), specials(dtype))]
    args = [g.copy() for g in grid[: ufunc.nin]]
    np.testing.assert_array_equal(call(library, name, *args), ufunc(*args))


def test_the_normal_density_keeps_its_digits_in_the_tail(library):
    # exp(-x^2 / 2) / sqrt(2 pi), by arithmetic of 40 digits
    x = np.array([8.0, -12.34])
    exact = np.array([5.052271083536892e-15, 3.4251820671485436e-34])
    np.testing.assert_allclose(call(library, "normpdf_double", x), exact, 1e-15)
    assert call(library, "normpdf_double", np.array([40.0]))[0] == 0


def test_powers_of_two_are_exact(library):
    n = np.arange(-1074, 1024)
    power = np.ldexp(1.0, n)
    np.testing.assert_array_equal(call(library, "exp2_double", n * 1.0), power)
    np.testing.assert_array_equal(call(library, "log2_double", power), n)


def test_loops_are_vectorised(tmp_path):
    """GCC says so of each function, for a processor of which AVX2 is all we know."""
    gnu = "Free Software Foundation" in output_of(compiler(), "--version")
    if not gnu or platform.machine() != "x86_64":
        pytest.skip("reads what GCC reports, for x86-64")
    softplus = "eg::log1p(eg::exp(-eg::fabs(x[i]))) + (x[i] > 0 ? x[i] : 0)"
    loops = [
        f"void f{n}(const {T}* x, {T}* y, long n) "
        f"{{ for (long i = 0; i < n; ++i) y[i] = {expression}; }}"
        for n, expression in enumerate(
            [softplus, *(f"eg::{f}(x[i])" for f in VECTORISED)]
        )
        for T in ("float", "double")
    ]
    text = "\n".join(['#include "functions.h"', *loops])
    flags = [*VECTOR, "-march=x86-64-v3", "-fopt-info-vec-optimized", "-c"]
    report = build(tmp_path / "loops.o", text, *flags)
    done = re.findall(r"loops.cpp:(\d+):.*vectorized using 32", report)
    assert [f for n, f in enumerate(loops, 2) if str(n) not in done] == []
