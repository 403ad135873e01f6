"""Kernels on the CPU: compiled by the system's C++ compiler, called as ufuncs of NumPy.

One kernel is one small shared library, compiled when it is first needed (0.3 s, once
for a machine and version) and kept in the user's cache.  It holds loops in the form of
NumPy's universal functions, from which NumPy itself makes the callable: so a kernel
broadcasts, allocates, releases the lock and costs per call exactly what ``numpy.exp``
does (0.2 us).  Neither Python's nor NumPy's headers are needed.

``EAGERGRAD_HOST_KERNELS``: ``auto`` (the default: where there is a compiler), ``off``,
or ``require`` (an error where there is none).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .errors import KernelError
from .kernels import Kernel, caches, catalogue, fingerprint, folder
from .tape import active

_log = logging.getLogger("eagergrad")

# No -ffast-math: nan and inf mean what they mean, and a * b + c rounds twice, as in
# NumPy.  errno and traps are not looked at, and a select may evaluate both sides.
FLAGS = (
    "-std=c++17 -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math "
    "-fPIC -shared -fvisibility=hidden"
).split()
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS.append("-mprefer-vector-width=512")  # where there are such; else no matter
DTYPES = "efd"  # of the loops, in the order of NumPy's search for one


def mode() -> str:
    """``auto``, ``off`` or ``require``, from the environment."""
    found = os.environ.get("EAGERGRAD_HOST_KERNELS", "auto")
    if found not in ("auto", "off", "require"):
        raise KernelError(
            f"EAGERGRAD_HOST_KERNELS: expected auto, off or require, got {found!r}"
        )
    return found


@functools.cache
def compiler() -> str | None:
    """The path of the C++ compiler: ``CXX``, else the first known one there is."""
    named = os.environ.get("CXX")
    for name in [named] if named else ["c++", "g++", "clang++"]:
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def problem() -> str | None:
    """Why kernels do not run on this CPU, in a sentence; None when they do."""
    if mode() == "off":
        return "EAGERGRAD_HOST_KERNELS is off"
    if compiler() is None:
        return "there is no C++ compiler (c++, g++, clang++, or the one CXX names)"
    if sys.platform == "win32":
        return "they are not built on Windows"
    if numpy_table("_UFUNC_API") is None:
        return f"NumPy {np.__version__} does not show its table of functions"
    return _failure


_failure: str | None = None  # the first error of the compiler or the loader


@functools.cache
def find(name: str) -> Callable[..., Any] | None:
    """The ufunc of a kernel; None where it is to be composed of NumPy's own.

    KernelError where kernels are required and cannot be had.
    """
    global _failure
    if active():
        # what a sweep needs: the op's rule, and the sum that undoes broadcasting
        begin_named(rf"{name}_(vjp|d\w)|column_sum")
    kernel = catalogue().get(name)
    if kernel is None or not kernel.vectorised:
        return None
    why = problem()
    if why is None:
        try:
            return compiled(name)
        except (OSError, KernelError) as error:
            why = _failure = f"{name}: {error}"
            if mode() == "auto":
                _log.warning("eagergrad: kernels stay with NumPy: %s", why)
    if mode() == "require":
        raise KernelError(
            f"EAGERGRAD_HOST_KERNELS=require, but kernels do not run on the CPU: {why}"
        )
    return None


@functools.cache
def made(kernel: Kernel) -> Callable[..., Any]:
    """The ufunc of a kernel that is not in the catalogue; KernelError without one."""
    try:
        return _ufunc(kernel, loaded(kernel))
    except OSError as error:
        raise KernelError(f"{kernel.name}: {error}") from error


def compiled(name: str) -> Callable[..., Any]:
    """The ufunc of any kernel, also of one that NumPy's functions do as well."""
    return made(catalogue()[name])


def warm_up(names: Iterable[str] | None = None) -> int:
    """Compile all kernels (or those named) that are not in the cache; how many.

    KernelError, with the reason, where they cannot be had.
    """
    why = problem()
    if why is not None:
        raise KernelError(f"no kernels for this CPU: {why}")
    kernels = [k for k in catalogue().values() if k.vectorised]
    if names is not None:
        kernels = [k for k in kernels if k.name in set(names)]
    missing = sum(cached(k) is None for k in kernels)
    compile_all(kernels)
    return missing


# -------------------------------------------------------------------------- compilation


def source(kernel: Kernel) -> str:
    """The program that is compiled for a kernel."""
    if kernel.text:
        body = f"namespace eg {{\n\n{kernel.text}\n\n}}  // namespace eg\n"
    else:
        body = f'#include "{kernel.header}"\n'
    if not kernel.operands:  # what the header exports is no kernel
        return body
    call = f"EG_ELEMENTWISE({kernel.name}, {kernel.inputs})"
    if kernel.form != "elementwise":
        call = f"EG_{kernel.form.upper()}({kernel.name})"
    return f'#include "host.h"\n\n{body}\n{call}\n'


@functools.cache
def _target() -> str:
    """What compiled code depends on: sources, compiler, flags, and this CPU."""
    path = Path(compiler() or "")
    status = path.resolve().stat()
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            wanted = ("flags", "Features", "model name")
            cpu = "".join(sorted({s for s in lines if s.startswith(wanted)}))
    parts = (fingerprint(), path, status.st_size, status.st_mtime_ns, FLAGS, cpu)
    return repr((*parts, platform.machine(), sys.platform))


def _file(kernel: Kernel) -> str:
    text = _target() + source(kernel)
    return f"{kernel.name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"


def cached(kernel: Kernel) -> Path | None:
    """The kernel's compiled library, if it is in a cache."""
    for path in caches():
        found = path / _file(kernel)
        if found.is_file():
            return found
    return None


def library(kernel: Kernel) -> Path:
    """The kernel's compiled library, compiled now if it is in no cache."""
    begun = _begun.pop(kernel.name, None)
    if begun is not None and not begun.cancel():
        return begun.result()
    return cached(kernel) or _built(kernel)


def compile_all(kernels: Sequence[Kernel]) -> None:
    """Compile those that are in no cache, as many at once as there are cores."""
    missing = [kernel for kernel in kernels if cached(kernel) is None]
    if missing:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(library, missing))


_begun: dict[str, Future[Path]] = {}  # what is compiled ahead, by the kernel's name


@functools.cache
def _ahead() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1))


def begin(kernels: Iterable[Kernel]) -> None:
    """Compile kernels that will soon be needed, while Python goes on.

    On another core they take no time, which halves that of a first training step.
    """
    if os.cpu_count() == 1 or problem() is not None:
        return
    for kernel in kernels:
        if kernel.name not in _begun and cached(kernel) is None:
            _begun[kernel.name] = _ahead().submit(_built, kernel)


def begin_named(pattern: str) -> None:
    """The same of those in the catalogue whose whole name is like this."""
    named = re.compile(pattern).fullmatch
    begin(k for k in catalogue().values() if k.vectorised and named(k.name))


def _built(kernel: Kernel) -> Path:
    """Compile a kernel into the cache.

    Written under another name and renamed, so that of two processes that race each
    finds a whole file.
    """
    places = caches()
    if not places:
        raise KernelError("no folder to keep compiled kernels in; name EAGERGRAD_CACHE")
    with tempfile.TemporaryDirectory(dir=places[0], prefix="build-") as work:
        text, built = Path(work, "kernel.cpp"), Path(work, "kernel.so")
        text.write_text(source(kernel))
        command = [compiler() or "", f"-I{folder()}", *FLAGS, str(text), "-o", built]
        # without OpenMP (clang on macOS has none) the loops run on one thread
        done = _run([*command, "-fopenmp"])
        if done.returncode:
            done = _run(command)
        if done.returncode:
            raise KernelError(f"{compiler()} failed: {done.stderr.strip()[:2000]}")
        found = places[0] / _file(kernel)
        os.replace(built, found)
    return found


def _run(command: list[Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def loaded(kernel: Kernel) -> ctypes.CDLL:
    """A kernel's library, whose idle threads soon sleep.

    GNU's OpenMP has them spin for milliseconds, which takes the cores from the threads
    of matrix products: a training step of a 784-512-512-10 network took 40 ms instead
    of 13.  With ten times this spin a transformer step takes 39 ms instead of 27, and
    with none a kernel of a million numbers 0.1 ms more.  It reads its setting when it
    is loaded, with the first kernel; a user's own stays.
    """
    path = library(kernel)
    name = "GOMP_SPINCOUNT"
    ours = not {name, "OMP_WAIT_POLICY"} & set(os.environ)
    if ours:
        os.environ[name] = "1000"
    try:
        return ctypes.CDLL(str(path))
    finally:
        if ours:
            del os.environ[name]


# ------------------------------------------------------------------- NumPy's ufuncs

_INT, _TEXT, _POINTER = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p


@functools.cache
def numpy_table(name: str) -> Any:
    """A table of NumPy's C functions, which extensions link to; None without one."""
    try:
        module = importlib.import_module("numpy._core._multiarray_umath")
        capsule = getattr(module, name)
    except (ImportError, AttributeError):
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = _POINTER, [ctypes.py_object, _TEXT]
    return (_POINTER * 128).from_address(get(capsule, None))


# PyUFunc_FromFuncAndDataAndSignature(loops, data, types, count, inputs, outputs,
# identity, name, doc, unused, signature): place 31 of the table in every NumPy.
_MAKE = ctypes.PYFUNCTYPE(
    ctypes.py_object,
    *(_POINTER, _POINTER, _POINTER),
    *(_INT, _INT, _INT, _INT, _TEXT, _TEXT, _INT, _TEXT),
)
_NO_IDENTITY = -1
_kept: list[Any] = []  # what ufuncs point to
UFUNCS: set[Any] = set()  # of all kernels that were loaded


def _ufunc(kernel: Kernel, built: ctypes.CDLL) -> Callable[..., Any]:
    """NumPy's ufunc of a compiled kernel's loops."""
    count = len(DTYPES)
    loops = (_POINTER * count).in_dll(built, "eg_loops")
    numbers = [x.num for dtype in DTYPES for x in dtypes(kernel, dtype)]
    types = ctypes.create_string_buffer(bytes(numbers))
    data = (_POINTER * count)()
    name = kernel.name.encode()
    _kept.append((built, types, data, name))
    made: Callable[..., Any] = _MAKE(numpy_table("_UFUNC_API")[31])(
        *(ctypes.addressof(x) for x in (loops, data, types)),
        *(count, kernel.inputs, kernel.outputs, _NO_IDENTITY, name, b"", 0),
        kernel.signature and kernel.signature.encode(),
    )
    UFUNCS.add(made)
    return made


def dtypes(kernel: Kernel, dtype: str) -> list[np.dtype[Any]]:
    """The dtypes of a kernel's operands in the loop for one of ``DTYPES``."""
    own = {"i": "int64", "j": "int64", "b": "int8"}
    if dtype == "e":
        own |= dict.fromkeys("wm", "f")
    letters = kernel.operands.replace(">", "")
    return [np.dtype(own.get(letter, dtype)) for letter in letters]


def report() -> list[tuple[str, str]]:
    """What ``eagergrad doctor`` says of them: rows of (label, text)."""
    why = problem()
    if why is not None:
        return [("host kernels", f"not used: {why}")]
    kernels = [k for k in catalogue().values() if k.vectorised]
    ready = sum(cached(k) is not None for k in kernels)
    return [
        ("host kernels", f"{ready} of {len(kernels)} compiled, by {compiler()}"),
        ("kernel cache", str(caches()[0]) if caches() else "none can be written"),
    ]


def _after_fork() -> None:
    """Threads do not survive a fork: the child computes on one, and compiles itself."""
    try:
        ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD).omp_set_num_threads(1)
    except (OSError, AttributeError):
        pass  # not loaded, or another runtime
    _begun.clear()
    _ahead.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
