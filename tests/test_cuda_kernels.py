"""Kernels as launches: compiled for every GPU, and run by threads of the host."""

import ctypes
import mmap
import re
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
import standin
from kernel_operands import (
    RNG,
    WINDOWS,
    normal,
    on_columns,
    on_rows,
    on_windows,
    operands,
    wide,
)

from eagergrad import cuda_kernels, host_kernels, kernels, launches, nvrtc
from eagergrad.counters import COUNTERS
from eagergrad.device import BACKENDS
from eagergrad.errors import KernelError
from eagergrad.launches import ArraysLauncher, Launcher

CATALOGUE = {kernel.name: kernel for kernel in cuda_kernels.on_gpus()}
WRITTEN = [name for name, kernel in CATALOGUE.items() if kernel.header]
# Of those printed some of each arity: they differ in nothing else that is launched.
PRINTED = ["softplus", "sigmoid", "silu_dx", "logaddexp_da", "quotient_db"]

compiled = pytest.mark.skipif(
    nvrtc.library() is None,
    reason="NVRTC is not installed: it comes with the dev group",
)
hosted = pytest.mark.skipif(
    host_kernels.compiler() is None, reason="no C++ compiler here"
)


# ------------------------------------------------------------------------- compilation


@compiled
@pytest.mark.parametrize(
    "arch",
    [
        pytest.param(arch, marks=[] if arch in (75, 120) else pytest.mark.slow)
        for arch in cuda_kernels.ARCHITECTURES
    ],
)
def test_all_kernels_compile_as_one_module(arch):
    """Without a GPU and without a driver, whatever the machine has."""
    cubin = cuda_kernels.cubin(arch)
    assert cubin[:4] == b"\x7fELF"
    flags = struct.unpack_from("<I", cubin, 48)[0]  # the architecture, in either form
    assert arch in (flags & 0xFF, flags >> 8 & 0xFF)
    symbols = set(re.findall(rb"\.text\.(\w+)", cubin))
    kinds = {"arrays": "half bfloat16 float double"}
    assert symbols == {
        f"{kernel.name}{part}_{kind}".encode()
        for kernel in CATALOGUE.values()
        for kind in kinds.get(kernel.form, "float double").split()
        for part in ("", "_sums")[: 1 + ("c" in kernel.operands)]
    }


@compiled
def test_what_does_not_compile_is_told_in_the_compilers_words():
    with pytest.raises(KernelError, match=r"sm_90.*nonsense.*undefined"):
        nvrtc.cubin("__global__ void f() { nonsense; }", 90)


def test_without_the_compiler_there_are_no_kernels(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("EAGERGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    driver = Emulated(None)
    driver.function = lambda symbol, module: module(90)
    cuda_kernels._told.cache_clear()
    for name in ("softplus", "softmax"):
        assert cuda_kernels.find(name, driver) is None
    assert [record.message for record in caplog.records] == [
        "eagergrad: kernels stay with CuPy: NVRTC is not installed: pip install "
        "nvidia-cuda-nvrtc-cu12, or -cu13"
    ]


@pytest.mark.parametrize(
    ("capability", "arch"),
    [(75, 75), (80, 80), (86, 86), (87, 86), (89, 89), (103, 100), (121, 120)],
)
def test_a_gpu_takes_the_newest_code_that_it_runs(capability, arch):
    assert cuda_kernels.architecture(capability) == arch


def test_a_gpu_of_a_generation_without_code_has_it_compiled():
    assert cuda_kernels.architecture(110) == 110
    assert cuda_kernels.architecture(72) == 72


def test_what_is_compiled_here_is_for_the_gpus_there_are(monkeypatch):
    monkeypatch.setattr(cuda_kernels, "cuda_problem", lambda: "there is none")
    assert cuda_kernels.present() == list(cuda_kernels.ARCHITECTURES)
    monkeypatch.setattr(cuda_kernels, "cuda_problem", lambda: None)
    with standin.installed() as device:
        monkeypatch.setitem(BACKENDS, "cuda", device.backend)
        assert cuda_kernels.present() == [90]


# --------------------------------------------------------------------------- the cache


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """A compiler that only says what it was asked; the list of its answers."""
    made = []

    def cubin(source, arch, options):
        made.append(b"code for sm_%d" % arch)
        return made[-1]

    monkeypatch.setenv("EAGERGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "library", lambda: "a library")
    monkeypatch.setattr(nvrtc, "version", lambda: "12.9")
    monkeypatch.setattr(nvrtc, "cubin", cubin)
    return made


def test_modules_are_kept_for_other_users_too(compiler, tmp_path):
    assert cuda_kernels.warm_up([75, 90]) == 2
    assert cuda_kernels.warm_up([75, 90, 120]) == 1
    assert cuda_kernels.cubin(90) == b"code for sm_90"
    assert sorted(compiler) == [b"code for sm_%d" % arch for arch in (120, 75, 90)]
    files = sorted((tmp_path / "cache").iterdir())
    assert [path.name[:17] for path in files] == [
        "sm_120-nvrtc12.9-",
        "sm_75-nvrtc12.9-" + files[1].name[16],
        "sm_90-nvrtc12.9-" + files[2].name[16],
    ]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}


def test_another_compiler_or_source_has_modules_of_its_own(compiler, monkeypatch):
    cuda_kernels.cubin(90)
    monkeypatch.setattr(nvrtc, "version", lambda: "13.1")
    cuda_kernels.cubin(90)
    monkeypatch.setattr(cuda_kernels, "_digest", lambda: "another")
    cuda_kernels.cubin(90)
    assert len(compiler) == 3


def test_a_change_of_any_source_is_another_module(monkeypatch, tmp_path):
    copy = shutil.copytree(kernels.folder(), tmp_path / "kernels")
    known = kernels.fingerprint, kernels.catalogue, cuda_kernels._digest
    with monkeypatch.context() as patch:
        for module in (kernels, cuda_kernels):
            patch.setattr(module, "folder", lambda: copy)
        names = "core.h functions.h lane.h windows.h device.cuh formulas.h".split()
        digests = set()
        for name in [*names, *kernels.HEADERS]:
            with open(copy / name, "a") as file:
                file.write("// changed\n")
            for function in known:
                function.cache_clear()
            digests.add(cuda_kernels._digest())
    for function in known:
        function.cache_clear()
    assert cuda_kernels._digest() not in digests
    assert len(digests) == len(names) + len(kernels.HEADERS)


def test_a_module_serves_where_there_is_no_compiler(compiler, monkeypatch):
    cuda_kernels.cubin(90)
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    assert cuda_kernels.cubin(90) == b"code for sm_90"
    assert len(compiler) == 1


def test_a_cache_that_cannot_be_written_is_read(compiler, monkeypatch, tmp_path):
    cuda_kernels.cubin(90)
    access = cuda_kernels.os.access
    monkeypatch.setattr(
        "os.access",
        lambda path, mode: mode != cuda_kernels.os.W_OK and access(path, mode),
    )
    assert cuda_kernels.cubin(90) == b"code for sm_90"
    assert cuda_kernels.cubin(80) == b"code for sm_80"  # made, and kept nowhere
    assert len(compiler) == 2
    assert len(list((tmp_path / "cache").iterdir())) == 1


# ------------------------------------------------------------------------ the launches


def launcher(kernel, driver, module):
    kind = ArraysLauncher if kernel.form == "arrays" else Launcher
    return kind(kernel, driver, module)


class Emulated:
    """Launches the very functions that a GPU would run, on NumPy's arrays."""

    buffer = np.ndarray

    def __init__(self, library):
        self.library = library

    def device(self, buffers):
        return 0

    def function(self, symbol, module):
        return getattr(self.library, f"run_{symbol}")

    def empty(self, shape, dtype):
        return np.full(shape, np.nan, dtype)

    def address(self, buffer):
        return buffer.ctypes.data

    def launch(self, function, blocks, threads, arguments):
        *buffers, layout = arguments
        self.words = np.frombuffer(layout.tobytes(), np.int64)
        structure = type(
            "Layout",
            (ctypes.Structure,),
            {"_fields_": [("words", ctypes.c_int64 * (layout.nbytes // 8))]},
        )
        pointers = [x if x is None else x.ctypes.data for x in buffers]
        function(
            blocks,
            threads,
            *map(ctypes.c_void_p, pointers),
            structure.from_buffer_copy(layout),
        )


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """The source of the module, compiled for threads of the host."""
    folder = tmp_path_factory.mktemp("emulated")
    head, *functions = cuda_kernels.source().split('extern "C"')
    text = (
        f'#include "emulator.h"\n{head}'
        'extern "C" void begin_with(unsigned block) { emulator::first_block = block; }'
    )
    for function in functions:
        name, parameters = re.search(r"^(\w+)\((.*)\) {$", function, re.M).groups()
        kernel = name.rpartition("_")[0].removesuffix("_sums")
        if kernel not in WRITTEN + PRINTED:
            continue
        names = ", ".join(word.split()[-1] for word in parameters.split(", "))
        text += (
            f'extern "C" {function}'
            f'extern "C" void run_{name}(unsigned blocks, unsigned threads, '
            f"{parameters}) {{ run(blocks, threads, [=] {{ {name}({names}); }}); }}\n"
        )
    program, library = folder / "program.cpp", folder / "library.so"
    program.write_text(text)
    flags = (
        "-std=c++17 -O1 -ffp-contract=off -fno-strict-aliasing -fPIC -shared".split()
    )
    include = [f"-I{path}" for path in (kernels.folder(), __file__.rpartition("/")[0])]
    command = [host_kernels.compiler(), *flags, *include, program, "-o", library]
    subprocess.run(command, check=True)
    driver = Emulated(ctypes.CDLL(str(library)))
    return lambda name: launcher(CATALOGUE[name], driver, None)


EPS = {"d": 2**-52, "f": 2**-23, "e": 2**-10, "E": 2**-7, "b": 0}


def close(got, expected, terms=1):
    """Within some roundings, of sums of so many terms in another order."""
    __tracebackhide__ = True
    roundings = 8 * max(1, terms**0.5 / 4)
    got, expected = (x if isinstance(x, tuple) else (x,) for x in (got, expected))
    for y, z in zip(got, expected, strict=True):
        assert y.shape == z.shape
        assert y.dtype == z.dtype
        eps = EPS[y.dtype.char]
        y, z = (np.asarray(x, float) for x in (y, z))
        size = max(1, abs(z).max(initial=0))
        np.testing.assert_allclose(y, z, 0, roundings * eps * size)


GRID = normal(6, 5)
OPERANDS = {
    "contiguous": (GRID, normal(6, 5)),
    "a row": (GRID, normal(5)),
    "a column": (normal(6, 1), GRID),
    "a row and a column": (normal(6, 1), normal(5)),
    "transposed": (normal(5, 6).T, GRID),
    "every other": (normal(12, 5)[::2], normal(6, 10)[:, ::2]),
    "backwards": (GRID[::-1, ::-1], GRID),
    "a number": (GRID, 0.75),
    "the smaller is a number": (normal(1), normal(7)),
    "of no axis": (normal(), normal()),
    "leading axes": (normal(2, 3, 4), normal(4)),
    "trailing axes": (normal(4, 2, 3), normal(4, 1, 1)),
    "middle axes": (normal(1, 7, 1), normal(1, 7, 1)),
    "empty": (normal(0, 3), normal(3)),
    "many": (normal(3000), normal(3000)),
}


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", OPERANDS)
def test_layouts_of_elementwise_kernels(emulated, name, dtype, monkeypatch):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")  # which names it
    monkeypatch.setattr(launches, "BLOCKS", 2)  # so that many go round
    given = [x if type(x) is float else x.astype(dtype) for x in OPERANDS[name]]
    got = emulated("silu_dx")(*given)
    expected = host_kernels.compiled("silu_dx")(
        *[x if type(x) is float else wide(x) for x in given]
    )
    close(got, expected.astype(dtype))


@hosted
@pytest.mark.parametrize("name", PRINTED)
def test_kernels_of_every_arity(emulated, name):
    given = normal(CATALOGUE[name].inputs, 300)
    close(emulated(name)(*given), host_kernels.compiled(name)(*given))


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", WRITTEN)
def test_kernels_written_by_hand(emulated, name, dtype):
    """On the operands that they are tested with on a GPU."""
    given, results = operands(CATALOGUE[name], dtype)
    got = emulated(name)(*given, *[np.zeros_like(x) for x in results])
    expected = host_kernels.compiled(name)(*given, *results)
    for y, z in zip(
        *(x if isinstance(x, tuple) else (x,) for x in (got, expected)), strict=True
    ):
        assert (y.dtype, y.shape) == (z.dtype, z.shape)
        tolerance = 64 * EPS[z.dtype.char] * max(1, abs(z.astype(float)).max())
        np.testing.assert_allclose(y.astype(float), z.astype(float), 0, tolerance)


@hosted
def test_half_types_beside_float(emulated):
    pytest.importorskip("ml_dtypes")
    g, x = normal(300).astype("float16"), normal(300).astype("bfloat16")
    got = emulated("silu_dx")(g, x)
    close(got, host_kernels.compiled("silu_dx")(wide(g), wide(x)))


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("n", [1, 31, 33, 300, 2100])
@pytest.mark.parametrize("name", [x for x in WRITTEN if CATALOGUE[x].form == "rows"])
def test_rows_of_every_length(emulated, name, n, dtype):
    kernel = CATALOGUE[name]
    given = on_rows(kernel, 2, n, dtype)
    expected = host_kernels.compiled(name)(
        *[x if x.dtype == int else wide(x) for x in given]
    )
    several = expected if kernel.outputs > 1 else (expected,)
    gives = kernel.operands.partition(">")[2]
    several = tuple(
        x if letter == "w" else x.astype(dtype)
        for letter, x in zip(gives, several, strict=True)
    )
    close(emulated(name)(*given), several, n)


@hosted
def test_layouts_of_rows(emulated, monkeypatch):
    monkeypatch.setattr(launches, "BLOCKS", 2)  # so that each goes over several
    for x, axis in (
        (normal(3, 4, 5), -1),
        (normal(5, 7), 0),
        (normal(7, 5).T, 1),
        (normal(6, 8)[::2, ::2], 1),
        (normal(9), 0),
        (normal(0, 3), 1),
        (np.broadcast_to(normal(5), (4, 5)), -1),
    ):
        got = emulated("softmax")(x, axis=axis)
        close(got, host_kernels.compiled("softmax")(x, axis=axis))


SHAPES = {
    "one block": (6, 5),
    "one row": (1, 40),
    "several lanes, several blocks": (1100, 5),
    "rows of several warps": (7, 300),
    "rows of several warps, several blocks": (45, 300),
    "as many numbers as threads": (130, 128),
}


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["column_sum", "layer_norm_vjp"])
def test_sums_down_columns(emulated, name, shape, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    given = on_columns(name, *SHAPES[shape], dtype)
    COUNTERS.clear()
    got = emulated(name)(*given)
    assert COUNTERS.launches == (2 if "several blocks" in shape else 1)
    made = host_kernels.compiled(name)(*[wide(np.asarray(x)) for x in given])
    made = made if isinstance(made, tuple) else (made,)
    got = got if isinstance(got, tuple) else (got,)
    gives = CATALOGUE[name].operands.partition(">")[2]
    for y, z, letter in zip(got, made, gives, strict=True):
        assert (y.dtype, y.shape) == (np.dtype(dtype), z.shape)
        scale = len(given[0]) if letter == "c" else abs(z).max()
        eps = EPS[y.dtype.char]
        np.testing.assert_allclose(
            *(np.asarray(x, float) for x in (y, z)), 8 * eps, 8 * eps * scale
        )


@hosted
def test_layouts_of_columns(emulated):
    for x in (normal(5, 7).T, normal(12, 10)[::2, ::3], normal(6, 5)[::-1]):
        close(emulated("column_sum")(x), host_kernels.compiled("column_sum")(x))
    g, x, gamma, *kept = on_columns("layer_norm_vjp", 40, 300, "float32")
    g, gamma = np.broadcast_to(g[0], g.shape), 0.5
    expected = host_kernels.compiled("layer_norm_vjp")(
        g, x, np.full(300, gamma, "float32"), *kept
    )
    for y, z in zip(
        emulated("layer_norm_vjp")(g, x, gamma, *kept), expected, strict=True
    ):
        np.testing.assert_allclose(y, z, 1e-5, 1e-4)


@hosted
def test_sums_are_the_same_whatever_else_is_launched(emulated, monkeypatch):
    """Their order follows from the shape: not from how many blocks there may be."""
    x = normal(2000, 5)
    first = emulated("column_sum")(x)
    monkeypatch.setattr(launches, "BLOCKS", 1)
    assert emulated("column_sum")(x).tobytes() == first.tobytes()


@hosted
def test_rows_that_differ_do_not_wait_for_each_other(emulated):
    """Rows of layer_norm whose squares are beyond the range take a longer way."""
    x = normal(9, 7)
    x[[1, 4]] *= 1e25
    given = x, normal(7), np.zeros(7, "float32"), 1e-5, 1.0
    got = emulated("layer_norm")(*given)
    expected = host_kernels.compiled("layer_norm")(*given)
    for k in (0, -1):  # between them, what a mean's rounding has left
        np.testing.assert_allclose(got[k], expected[k], 1e-5, 1e-6)


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize(
    "name", [x for x in WRITTEN if CATALOGUE[x].header in ("pooling.h", "folding.h")]
)
def test_kernels_of_windows(emulated, name, windows, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    given, results = on_windows(name, WINDOWS[windows], dtype)
    expected = [np.zeros_like(x if x.dtype == np.int8 else wide(x)) for x in results]
    emulated(name)(*given, *results)
    inputs = [x if x.dtype.kind == "i" else wide(x) for x in given]
    host_kernels.compiled(name)(*inputs, *expected)
    made = zip(results, expected, strict=True)
    close(tuple(results), tuple(z.astype(y.dtype) for y, z in made))


UNFOLDED = {  # size 5, kernel 2, stride 2, dilation 3, one place before: x[2o + 3k - 1]
    1: [[[0, 1], [2, 4]], [[0, 6], [7, 9]], [[0, 11], [12, 14]], [[0, 16], [17, 19]]],
    2: [[[0, 1, 0, 11], [2, 4, 12, 14]], [[0, 6, 0, 16], [7, 9, 17, 19]]],
}


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("samples", UNFOLDED)
def test_columns_by_hand(emulated, samples, dtype):
    """Of two samples of two channels: a channel's samples are beside each other."""
    x = np.arange(20).astype(dtype)
    sizes = 4, *(1, 1, 1, 1, 1, 0) * 2, 5, 2, 2, 2, 3, 1, samples
    got, hosts = np.full((2, 16), np.nan, dtype)
    emulated("unfold")(x, sizes, got)
    assert got.tolist() == np.ravel(UNFOLDED[samples]).tolist()
    if dtype != "float16":
        host_kernels.compiled("unfold")(x, np.array(sizes), hosts)
        assert hosts.tobytes() == got.tobytes()


@hosted
@pytest.mark.parametrize("windows", WINDOWS)
def test_folding_is_the_transpose_of_unfolding(emulated, windows):
    (x, sizes), (columns,) = on_windows("unfold", WINDOWS[windows], "float64")
    given, folded = normal(columns.size).astype("float64"), np.zeros_like(x)
    emulated("unfold")(x, sizes, columns)
    emulated("fold")(given, sizes[:-1], folded)
    np.testing.assert_allclose(columns @ given, x @ folded, 1e-12)
    assert columns.any()


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 1000, 5003])
def test_random_bits_are_those_of_the_host(emulated, n, dtype, monkeypatch):
    monkeypatch.setattr(launches, "BLOCKS", 3)  # so that some go round
    seed = np.array([7, 2**40 + 3, 2**23])
    x = normal(n).astype(dtype)
    unit = {"float16": 2**-11, "float32": 2**-24, "float64": 2**-53}[dtype]
    for name, given in (("uniform", (unit,)), ("dropout", (x, x.dtype.type(0.3)))):
        got, expected = np.zeros((2, n), dtype)
        emulated(name)(*given, seed, got)
        host_kernels.compiled(name)(
            *(np.asarray(v, dtype) for v in given), seed, expected
        )
        assert got.tobytes() == expected.tobytes()
        carried = np.zeros(n, dtype)  # with the launch, for where seeds are the host's
        emulated(name)(*given, tuple(seed.tolist()), carried)
        assert carried.tobytes() == expected.tobytes()


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "n", "count"), [(5, 3, 40), (300, 17, 90), (2, 900, 9)]
)
def test_rows_are_added_where_their_index_says(emulated, rows, n, count, dtype):
    ids = RNG.integers(-rows, rows, count)
    x = normal(count, n).astype(dtype)
    expected = np.zeros((rows, n), dtype)
    np.add.at(expected, ids, x)
    for parts in (1, 2, rows):
        got = np.full((rows, n), np.nan, dtype)
        emulated("scatter_add")(x.ravel(), ids, (rows, parts), got.reshape(-1))
        assert got.tobytes() == expected.tobytes()  # the order is that of the rows


@hosted
def test_indices_beyond_the_rows_go_round(emulated):
    got = np.zeros(3, "float32")
    emulated("scatter_add")(normal(2) * 0 + 1, np.array([4, -7]), (3, 2), got)
    assert got.tolist() == [0, 1, 1]


@hosted
@pytest.mark.parametrize("scale", [1, 1e25, 1e-30, 0, np.inf])
def test_norms_of_parts(emulated, scale):
    x = (normal(10000) * scale).astype("float32")
    for parts in (1, 3, 80):
        got, expected = np.zeros((2, parts), "float32")
        emulated("two_norm")(x, got)
        host_kernels.compiled("two_norm")(x, expected)
        np.testing.assert_allclose(got, expected, 1e-5)


def cut(dtype, n, start):
    """n numbers that begin with the given one after an address for 16 bytes."""
    whole = np.zeros(n + 64, dtype)
    first = -whole.ctypes.data % 16 // whole.itemsize + start
    whole[first : first + n] = normal(n)
    return whole[first : first + n]


# Operands, the elements of a run, those before the first, how many of them.
ALIGNED = {
    "float32": ((cut("f4", 1003, 0), cut("f4", 1003, 0)), 4, 0, 250),
    "float64": ((cut("f8", 1003, 0), cut("f8", 1003, 0)), 2, 0, 501),
    "float16": ((cut("f2", 1003, 0), cut("f2", 1003, 0)), 8, 0, 125),
    "float16 beside float32": ((cut("f2", 1003, 0), cut("f4", 1003, 0)), 4, 0, 250),
    "a number": ((cut("f4", 1003, 0), 0.75), 4, 0, 250),
    "the same for all": ((cut("f4", 1003, 0), cut("f4", 1, 1)), 4, 0, 250),
    "fewer than one run": ((cut("f4", 3, 0), cut("f4", 3, 0)), 4, 0, 0),
    "a matrix and a row": (
        (cut("f4", 800, 0).reshape(10, 80), cut("f4", 80, 0)),
        4,
        0,
        200,
    ),
    "a matrix and a column": (
        (cut("f4", 800, 0).reshape(10, 80), normal(10, 1)),
        4,
        0,
        200,
    ),
    "odd rows": ((cut("f4", 810, 0).reshape(10, 81), cut("f4", 81, 0)), 1, 0, 0),
    "one has no such address": ((cut("f4", 1003, 1), cut("f4", 1003, 0)), 4, 1003, 0),
    "a row has no such address": (
        (cut("f4", 80, 0)[None] + normal(9, 1), cut("f4", 80, 1)),
        4,
        720,
        0,
    ),
}


@hosted
@pytest.mark.parametrize("name", ALIGNED)
def test_runs_have_the_bits_of_single_elements(emulated, name, monkeypatch):
    """Of contiguous operands a thread takes 16 bytes at once."""
    given, run, head, runs = ALIGNED[name]
    monkeypatch.setattr(launches, "BLOCKS", 2)
    alone = emulated("silu_dx")(*given)
    monkeypatch.setattr(launches, "RUNS_FROM", 0)
    launcher = emulated("silu_dx")
    got = launcher(*given)
    assert launcher.driver.words[2] == run
    if run > 1:
        assert list(launcher.driver.words[3:5]) == [runs, head]
    assert (got.dtype, got.tobytes()) == (alone.dtype, alone.tobytes())


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("start", [1, 2, 3])
def test_runs_begin_where_all_operands_allow_it(emulated, start, dtype, monkeypatch):
    """The elements in front of the first run, and behind the last, go one by one."""
    size = np.dtype(dtype).itemsize
    run = 16 // size
    given = [cut(dtype, 1001, start) for _ in range(4)]
    given[3] *= given[3]
    factors = 0.9, 0.99, 0.1, 1e-8, 0.0
    expected = emulated("adam")(*[x.copy() for x in given], *factors)
    monkeypatch.setattr(launches, "RUNS_FROM", 0)
    launcher = emulated("adam")
    out = [cut(dtype, 1001, start) for _ in range(3)]
    launcher(*given, *factors, out=out)
    front = -start % run
    assert list(launcher.driver.words[2:5]) == [run, (1001 - front) // run, front]
    for y, z in zip(out, expected, strict=True):
        assert y.tobytes() == z.tobytes()


NORESERVE = 0x4000  # of Linux: memory that is there once it is used


@hosted
@pytest.mark.skipif(sys.platform != "linux", reason="memory is reserved there")
@pytest.mark.parametrize("run", [False, True])
def test_more_elements_than_32_bits_count(emulated, run, monkeypatch):
    """The last blocks of a launch on 2^31 elements and some, of virtual memory."""
    n, first = 2**31 + 300, 2**31 - 200
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    x, y = (np.frombuffer(mmap.mmap(-1, 4 * n, flags), "float32") for _ in range(2))
    x[first:] = normal(500)
    monkeypatch.setattr(launches, "RUNS_FROM", 0 if run else 2 * n)
    monkeypatch.setattr(launches, "BLOCKS", 2**30)
    launcher = emulated("silu_dx")
    begin = launcher.driver.library.begin_with
    per_block = launches.THREADS * (4 if run else 1)
    begin(first // per_block)
    try:
        launcher(x, 0.5, out=(y,))
    finally:
        begin(0)
    place = first // per_block * per_block
    expected = emulated("silu_dx")(x[place:], 0.5)
    assert y[place:].tobytes() == expected.tobytes()
    assert abs(y[first:]).min() > 0


@hosted
def test_blocks_are_few_enough_for_any_size(emulated):
    """More elements than that are gone over in steps."""
    x = np.broadcast_to(np.float32(1), (2**20, 2**20))
    driver = Emulated(None)
    started = []
    driver.function = lambda symbol, module: symbol
    driver.empty = lambda shape, dtype: np.broadcast_to(dtype.type(0), shape)
    driver.launch = lambda *launch: started.append(launch[1:3])
    for name, given in (("silu_dx", (x, 0.5)), ("softmax", (x,)), ("column_sum", (x,))):
        launcher(CATALOGUE[name], driver, None)(*given)
        assert all(
            0 < blocks < 2**31 and threads <= 1024 for blocks, threads in started
        )


@hosted
def test_results_go_where_they_are_wanted(emulated):
    w, g, mu, nu = normal(4, 700)
    nu = nu * nu
    factors = 0.9, 0.99, 0.1, 1e-8, 0.0
    expected = host_kernels.compiled("adam")(w, g, mu, nu, *factors)
    got = emulated("adam")(w, g, mu, nu, *factors, out=(g, mu, nu))
    assert [x is y for x, y in zip(got, (g, mu, nu), strict=True)] == [True] * 3
    close(got, expected)


@hosted
def test_numbers_may_lie_on_the_device(emulated):
    """As the rate and the step of an optimizer, so that a launch can be repeated."""
    w, g, rate = normal(300), normal(300), np.float32(0.5)
    got = emulated("sgd")(w, g, np.asarray(rate), 0.25)
    close(got, emulated("sgd")(w, g, float(rate), 0.25))


@hosted
def test_an_integer_may_be_one_for_all_rows(emulated):
    x = normal(3, 5)
    for y, z in zip(
        emulated("integer_cross_entropy")(x, 4),
        emulated("integer_cross_entropy")(x, np.full(3, 4)),
        strict=True,
    ):
        assert y.tobytes() == z.tobytes()


def test_columns_without_sums_are_one_launch_of_any_height():
    """As of a bias that is added, and no gradient of it."""
    started = []
    driver = Emulated(None)
    driver.function = lambda symbol, module: symbol
    driver.launch = lambda function, *rest: started.append((function, rest[-1][-2]))
    kernel = kernels.Kernel("biased", "tni>t", header="columns.h")
    y = Launcher(kernel, driver, None)(normal(100, 300), normal(300), 1)
    assert (y.dtype, y.shape) == ("float32", (100, 300))
    assert started == [("biased_float", None)]


@hosted
def test_optimizers_take_weights_of_a_half_type(emulated):
    w, g = normal(2, 300)
    w = w.astype("float16")
    expected = host_kernels.compiled("sgd")(wide(w), g, 0.5, 0.25)
    emulated("sgd")(w, g, 0.5, 0.25, out=(g,))
    close(g, expected)


def test_a_second_device_without_code_is_composed_for():
    driver = Emulated(None)

    def function(symbol, module):
        raise KernelError("no code")

    driver.function = function
    with pytest.raises(TypeError, match="softplus: no kernel for no code"):
        Launcher(CATALOGUE["softplus"], driver, None)(X)


X = normal(4, 5)
LINE = normal(6)
UNSERVED = {
    "three axes": ("silu_dx", (normal(2, 3, 4), normal(2, 1, 4)), {}),
    "float64 beside float32": ("silu_dx", (X, X.astype(float)), {}),
    "integers": ("softplus", (np.arange(3),), {}),
    "complex": ("softplus", (X.astype(complex),), {}),
    "a complex number": ("silu_dx", (X, 1j), {}),
    "numbers alone": ("silu_dx", (1.0, 2.0), {}),
    "shapes that do not broadcast": ("silu_dx", (X, normal(4)), {}),
    "odd strides": ("softplus", (np.zeros(3, [("a", "u2"), ("b", "f4")])["b"],), {}),
    "axes of no rows": ("softmax", (X,), {"axis": 2}),
    "rows between axes": ("softmax", (normal(2, 3, 4),), {"axis": 1}),
    "no elements in a row": ("softmax", (normal(3, 0),), {}),
    "rows of two lengths": ("softmax_vjp", (X, normal(4, 4)), {}),
    "labels of int32": ("integer_cross_entropy", (X, np.zeros(4, "int32")), {}),
    "a number for a row": ("softmax_vjp", (X, 1.0), {}),
    "a column sum of three axes": ("column_sum", (normal(2, 3, 4),), {}),
    "a column sum of no rows": ("column_sum", (normal(0, 4),), {}),
    "kept numbers of a half type": (
        "layer_norm_vjp",
        (X, X, X[0], *normal(3, 4).astype("float16"), 1.0),
        {},
    ),
    "arrays with gaps": ("two_norm", (LINE[::2], LINE[:1]), {}),
    "arrays of two axes": ("two_norm", (X, LINE[:1]), {}),
    "arrays of two dtypes": ("two_norm", (LINE.astype(float), LINE[:1]), {}),
    "arrays of integers": ("two_norm", (np.arange(3), np.arange(1)), {}),
    "an array for a number": ("uniform", (LINE[:1], np.arange(2), LINE), {}),
    "a number for an array": ("two_norm", (1.0, LINE[:1]), {}),
    "no array for a result": ("two_norm", (LINE,), {}),
    "bytes of another dtype": ("pool_gather", (LINE, LINE, np.arange(19), LINE), {}),
    "more integers than come with a launch": (
        "uniform",
        (0.5, tuple(range(33)), LINE),
        {},
    ),
    "results of another shape": ("softplus", (X,), {"out": (normal(5, 4),)}),
}


@pytest.mark.parametrize("case", UNSERVED)
def test_what_no_kernel_serves_is_refused(case):
    """A TypeError tells the op to be composed; nothing has been launched by then."""
    name, operands, options = UNSERVED[case]
    driver = Emulated(None)
    driver.function = lambda symbol, module: None
    with pytest.raises(TypeError):
        Launcher(CATALOGUE[name], driver, None)(*operands, **options)


def test_plans_are_made_once():
    driver = Emulated(None)
    started = []
    driver.function = lambda symbol, module: started.append(symbol)
    driver.launch = lambda *arguments: started.append(arguments[3][-1])
    launcher = Launcher(CATALOGUE["silu_dx"], driver, None)
    COUNTERS.clear()
    for _ in range(3):
        launcher(X, X)
    launcher(X, normal(5))
    function, first, second, third, again, other = started
    assert function == again == "silu_dx_float"
    assert first is second is third
    assert other is not first
    assert (COUNTERS.launches, COUNTERS.allocations) == (4, 4)
    assert (COUNTERS.copies, COUNTERS.syncs, COUNTERS.bytes) == (0, 0, 0)
