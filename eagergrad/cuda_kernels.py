"""Kernels on NVIDIA GPUs: one module for all of them, for each architecture.

NVRTC compiles it, on any machine: ``eagergrad warmup --arch 90`` needs no GPU.  What is
compiled is kept beside the host's kernels; a GPU that finds no module there has it
compiled when it first needs one (half a minute, once).  How a kernel is then called
stands in launches.py.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import nvrtc
from .device import BACKENDS, cuda_problem
from .errors import KernelError
from .kernels import Kernel, caches, catalogue, fingerprint, folder
from .launches import ROW_THREADS, TYPES, ArraysLauncher, Driver, Launcher

_log = logging.getLogger("eagergrad")

# From Turing to Blackwell.  Code for one runs on later GPUs of the same generation.
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
FORMS = ("elementwise", "rows", "columns", "arrays")  # those that device.cuh has
# Functions that do not say where they run are the GPU's; a * b + c rounds twice, as on
# the host.
OPTIONS = ("-std=c++17", "-default-device", "-fmad=false")


def on_gpus() -> list[Kernel]:
    """The kernels that run on GPUs: not products, which the library makes there.

    So a convolution is a product with ``unfold`` or ``fold``.  Nor those that save
    slopes.
    """
    return [
        k
        for k in catalogue().values()
        if k.form in FORMS and k.header != "convolution.h" and not k.hosted
    ]


def source() -> str:
    """The program that is compiled: the functions of each kernel it serves."""
    own = dict.fromkeys(kernel.header for kernel in on_gpus() if kernel.header)
    lines = [f'#include "{header}"' for header in ("device.cuh", "formulas.h", *own)]
    for kernel in on_gpus():
        if kernel.form == "arrays":
            lines += [_function(kernel, "", kind, "Whole") for kind in TYPES.values()]
            continue
        for kind in ("float", "double"):
            lines.append(_function(kernel, "", kind, "Layout"))
            if "c" in kernel.operands:
                lines.append(_function(kernel, "sums", kind, "Layout"))
    return "\n".join(lines) + "\n"


def _function(kernel: Kernel, part: str, kind: str, layout: str) -> str:
    """A kernel's function for a type, or that for the part that comes last."""
    names = [f"a{k}" for k in range(kernel.inputs + kernel.outputs)]
    parameters = [f"void* {name}" for name in names]
    given = ["a"]
    form = kernel.form
    if form == "columns":
        parameters.append(f"{kind}* sums")
        given.append("sums")
        form = "column_sums" if part else form
    layout = f"const __grid_constant__ eg::{layout}<{len(names)}> at"
    symbol = "_".join(filter(None, (kernel.name, part, kind)))
    return (
        f'extern "C" __global__ void __launch_bounds__({ROW_THREADS})\n'
        f"{symbol}({', '.join([*parameters, layout])}) {{\n"
        f"  void* const a[] = {{{', '.join(names)}}};\n"
        f"  eg::{form}<eg::{kernel.name}, {_CPP.get(kind, kind)}>"
        f"({', '.join([*given, 'at'])});\n}}"
    )


_CPP = {"half": "eg::half", "bfloat16": "eg::bfloat16"}


def architecture(capability: int) -> int:
    """What to compile for, for a GPU of this compute capability (90 for 9.0)."""
    served = [
        arch
        for arch in ARCHITECTURES
        if arch // 10 == capability // 10 and arch <= capability
    ]
    return max(served, default=capability)


@functools.cache
def _digest() -> str:
    parts = [fingerprint(), source(), repr(OPTIONS)]
    parts += [(folder() / name).read_text() for name in ("device.cuh", "formulas.h")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def cached(arch: int) -> Path | None:
    """The module for an architecture, if it is in a cache.

    By this NVRTC, or by any where there is none.
    """
    by = nvrtc.version() if nvrtc.library() else "*"
    for path in caches():
        for found in sorted(path.glob(_file(arch, by))):
            return found
    return None


def _file(arch: int, version: str) -> str:
    return f"sm_{arch}-nvrtc{version}-{_digest()}.cubin"


def cubin(arch: int) -> bytes:
    """The module for an architecture, from a cache or compiled now, and kept."""
    found = cached(arch)
    if found is not None:
        return found.read_bytes()
    made = nvrtc.cubin(source(), arch, [*OPTIONS, f"-I{folder()}"])
    for path in caches():
        if os.access(path, os.W_OK):
            _keep(made, path / _file(arch, nvrtc.version()))
            break
    return made


def _keep(text: bytes, path: Path) -> None:
    """Write a file that others may read, whole from the first moment on."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as work:
        built = Path(work, path.name)
        built.write_bytes(text)
        built.chmod(0o644)
        os.replace(built, path)


def find(name: str, driver: Driver) -> Launcher | None:
    """A kernel on a driver's GPUs; None where it is to be composed."""
    kernel = catalogue().get(name)
    if kernel is None or kernel not in on_gpus():
        return None
    try:
        driver.function(f"{name}_float", module)
    except KernelError as error:
        _told(str(error))
        return None
    kind = ArraysLauncher if kernel.form == "arrays" else Launcher
    return kind(kernel, driver, module)


def module(capability: int) -> bytes:
    """The module for a GPU of this compute capability."""
    return cubin(architecture(capability))


@functools.cache
def _told(why: str) -> None:
    _log.warning("eagergrad: kernels stay with CuPy: %s", why)


def present() -> list[int]:
    """The architectures of the GPUs here; all that there are where there is none."""
    if cuda_problem() is not None:
        return list(ARCHITECTURES)
    cuda = BACKENDS["cuda"].xp.cuda
    devices = range(cuda.runtime.getDeviceCount())
    found = {int(cuda.Device(i).compute_capability) for i in devices}
    return sorted(map(architecture, found))


def warm_up(architectures: Iterable[int]) -> int:
    """Compile the modules for these architectures that are in no cache; how many.

    KernelError, with the reason, where they cannot be had.
    """
    missing = [arch for arch in architectures if cached(arch) is None]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(cubin, missing))
    return len(missing)


def report() -> list[tuple[str, str]]:
    """What ``eagergrad doctor`` says of them: rows of (label, text)."""
    ready = ", ".join(f"sm_{arch}" for arch in ARCHITECTURES if cached(arch))
    return [
        ("NVRTC", nvrtc.version() if nvrtc.library() else "not installed"),
        ("CUDA kernels", f"compiled for {ready}" if ready else "not compiled"),
    ]
