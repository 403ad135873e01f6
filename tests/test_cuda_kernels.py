"""Kernels as launches: compiled for every GPU, and run by threads of the host."""

import ctypes
import re
import shutil
import struct
import subprocess

import numpy as np
import pytest
import standin

from eagergrad import cuda_kernels, host_kernels, kernels, launches, nvrtc
from eagergrad.counters import COUNTERS
from eagergrad.device import BACKENDS
from eagergrad.errors import KernelError
from eagergrad.launches import Launcher

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
    kinds = ("float", "double")
    assert symbols == {f"{name}_{x}".encode() for name in CATALOGUE for x in kinds}


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
        names = "core.h functions.h lane.h device.cuh formulas.h".split()
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

    def launch(self, function, blocks, threads, arguments):
        *buffers, layout = arguments
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
    text = f'#include "emulator.h"\n{head}'
    for function in functions:
        name, parameters = re.search(r"^(\w+)\((.*)\) {$", function, re.M).groups()
        if name.rpartition("_")[0] not in WRITTEN + PRINTED:
            continue
        names = ", ".join(word.split()[-1] for word in parameters.split(", "))
        text += (
            f'extern "C" {function}'
            f'extern "C" void run_{name}(unsigned blocks, unsigned threads, '
            f"{parameters}) {{ run(blocks, threads, [=] {{ {name}({names}); }}); }}\n"
        )
    program, library = folder / "program.cpp", folder / "library.so"
    program.write_text(text)
    flags = "-std=c++20 -ffp-contract=off -fPIC -shared -pthread".split()
    include = [f"-I{path}" for path in (kernels.folder(), __file__.rpartition("/")[0])]
    command = [host_kernels.compiler(), *flags, *include, program, "-o", library]
    subprocess.run(command, check=True)
    driver = Emulated(ctypes.CDLL(str(library)))
    return lambda name: Launcher(CATALOGUE[name], driver, None)


def close(got, expected, dtype):
    __tracebackhide__ = True
    got, expected = (x if isinstance(x, tuple) else (x,) for x in (got, expected))
    for y, z in zip(got, expected, strict=True):
        assert y.shape == z.shape
        assert y.dtype == dtype
        eps = {"e": 2**-10, "E": 2**-7}.get(y.dtype.char) or np.finfo(dtype).eps
        y, z = (np.asarray(x, float) for x in (y, z))
        np.testing.assert_allclose(y, z, 0, 8 * eps * max(1, abs(z).max(initial=0)))


RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def wide(x):
    """As the host's kernels compute it."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


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
    close(got, expected.astype(dtype), dtype)


@hosted
@pytest.mark.parametrize("name", PRINTED)
def test_kernels_of_every_arity(emulated, name):
    given = normal(CATALOGUE[name].inputs, 300)
    close(emulated(name)(*given), host_kernels.compiled(name)(*given), np.float32)


@hosted
def test_half_types_beside_float(emulated):
    pytest.importorskip("ml_dtypes")
    g, x = normal(300).astype("float16"), normal(300).astype("bfloat16")
    got = emulated("silu_dx")(g, x)
    close(got, host_kernels.compiled("silu_dx")(wide(g), wide(x)), np.float32)


@hosted
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("n", [1, 31, 33, 300, 2100])
@pytest.mark.parametrize("name", [x for x in WRITTEN if CATALOGUE[x].signature])
def test_rows_of_every_length(emulated, name, n, dtype):
    kernel = CATALOGUE[name]
    values = {
        "n": lambda: normal(2, n).astype(dtype),
        "s": lambda: normal(2).astype(dtype),
        "i": lambda: RNG.integers(0, n, 2),
    }
    given = [values[letter]() for letter in kernel.operands[: kernel.inputs]]
    expected = host_kernels.compiled(name)(
        *[x if x.dtype == int else wide(x) for x in given]
    )
    several = expected if kernel.outputs > 1 else (expected,)
    got = emulated(name)(*given)
    close(got, tuple(x.astype(dtype) for x in several), dtype)


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
        close(got, host_kernels.compiled("softmax")(x, axis=axis), np.float32)


@hosted
def test_results_go_where_they_are_wanted(emulated):
    w, g, mu, nu = normal(4, 700)
    nu = nu * nu
    factors = 0.9, 0.99, 0.1, 1e-8, 0.0
    expected = host_kernels.compiled("adam")(w, g, mu, nu, *factors)
    got = emulated("adam")(w, g, mu, nu, *factors, out=(g, mu, nu))
    assert [x is y for x, y in zip(got, (g, mu, nu), strict=True)] == [True] * 3
    close(got, expected, np.float32)


@hosted
def test_numbers_may_lie_on_the_device(emulated):
    """As the rate and the step of an optimizer, so that a launch can be repeated."""
    w, g, rate = normal(300), normal(300), np.float32(0.5)
    got = emulated("sgd")(w, g, np.asarray(rate), 0.25)
    close(got, emulated("sgd")(w, g, float(rate), 0.25), np.float32)


@hosted
def test_optimizers_take_weights_of_a_half_type(emulated):
    w, g = normal(2, 300)
    w = w.astype("float16")
    expected = host_kernels.compiled("sgd")(wide(w), g, 0.5, 0.25)
    emulated("sgd")(w, g, 0.5, 0.25, out=(g,))
    close(g, expected, np.float32)


def test_a_second_device_without_code_is_composed_for():
    driver = Emulated(None)

    def function(symbol, module):
        raise KernelError("no code")

    driver.function = function
    with pytest.raises(TypeError, match="softplus: no kernel for no code"):
        Launcher(CATALOGUE["softplus"], driver, None)(X)


X = normal(4, 5)
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
