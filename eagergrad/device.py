"""Devices: which there are, which is current, and moving buffers between them.

A *buffer* is the array a Tensor holds: ``numpy.ndarray`` on ``cpu``, ``cupy.ndarray``
on ``cuda:N``.  A *backend* serves one type of buffer.  This is the only file that
imports CuPy, and it does so only when a CUDA device is really wanted: first
``EAGERGRAD_DEVICE`` is read, then whether CuPy is installed, then whether the driver
library loads (0.3 ms), and only then is CuPy imported (0.3 s).
"""

from __future__ import annotations

import copy
import ctypes
import functools
import importlib.util
import operator
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np

from . import host_memory
from .counters import COUNTERS
from .errors import DeviceError, KernelError, OutOfMemoryError


class Device:
    """A place where buffers live: ``cpu``, ``cuda:0``, ``cuda:1`` ...

    Use it as a context manager to make it the current device, of this package and, for
    a GPU, of CuPy:

    >>> with device("cpu") as d:
    ...     print(d, current() is d)
    cpu True
    """

    __slots__ = ("index", "kind", "name")

    def __init__(self, kind: str, index: int = 0):
        self.kind = kind
        self.index = index
        self.name = kind if kind == "cpu" else f"{kind}:{index}"

    @property
    def backend(self) -> Backend:
        return BACKENDS[self.kind]

    def __enter__(self) -> Device:
        native = self.backend.native(self)
        if native is not None:
            native.__enter__()
        _stack.set((*_stack.get(), (self, native)))
        return self

    def __exit__(self, *exc: object) -> None:
        *outer, (_, native) = _stack.get()
        _stack.set(tuple(outer))
        if native is not None:
            native.__exit__(*exc)

    def allocating(self, what: str) -> Allocating:
        """The same context manager, for something that takes memory; see there."""
        return Allocating(self, what)

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other in (self.name, f"{self.kind}:{self.index}") or (
                other == self.kind and self.index == 0
            )
        return isinstance(other, Device) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class Allocating:
    """A block that makes something on a device, which is its library's current one.

    A device without room is told of once, by an OutOfMemoryError that says ``what``.
    """

    __slots__ = ("device", "what")

    def __init__(self, device: Device, what: str):
        self.device = device
        self.what = what

    def __enter__(self) -> None:
        if self.device is not CPU:  # which NumPy does not ask for: saves 0.9 us
            self.device.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        if self.device is not CPU:
            self.device.__exit__(kind, error, trace)
        if error is not None and isinstance(error, MemoryError):
            raise out_of_memory(error, self.what, self.device) from error


class Backend:
    """What the runtime asks of one type of buffer.  This one is NumPy's, on the CPU."""

    kind = "cpu"
    xp: Any = np
    buffer: type = np.ndarray
    fused = True  # whether ops may run as kernels
    notes = False  # whether its buffers note what is done with them
    driver: Any = None  # what launches those (launches.Driver); on the CPU NumPy does

    @functools.cached_property
    def composed(self) -> Backend:
        """This backend without kernels: every op is composed of the array module's."""
        twin = copy.copy(self)
        twin.fused = False
        return twin

    def device_of(self, buffer: Any) -> Device:
        """The device a buffer of this backend lives on."""
        return CPU

    def native(self, device: Device) -> Any:
        """The context manager that makes ``device`` the library's current one too."""
        return None

    def put(self, array: np.ndarray[Any, Any], device: Device) -> Any:
        """A buffer on ``device`` with the values of a NumPy array."""
        return array

    def get(self, buffer: Any) -> np.ndarray[Any, Any]:
        """The buffer's values as a NumPy array, copied when it is not one."""
        return buffer  # type: ignore[no-any-return]

    def move(self, buffer: Any, device: Device) -> Any:
        """The buffer on another device of the same backend."""
        return buffer

    def asarray(self, value: Any) -> Any:
        """A buffer of whatever an array function returned (0-d results are scalars)."""
        return np.asarray(value)

    def adopted(self, name: str, implementation: Any) -> Any:
        """How an op's implementation is called on these buffers."""
        return implementation

    def text(self, buffer: Any) -> str:
        """The buffer's values as a Tensor's repr shows them."""
        return np.array2string(
            self.get(buffer), separator=", ", threshold=100, prefix="tensor("
        )


class CudaBackend(Backend):
    """CuPy's buffers, on NVIDIA GPUs."""

    kind = "cuda"

    def __init__(self, cupy: Any):
        self.xp = cupy
        self.buffer = cupy.ndarray
        self.driver = CupyDriver(cupy)

    def device_of(self, buffer: Any) -> Device:
        return _named(self.kind, buffer.device.id)

    def native(self, device: Device) -> Any:
        return self.xp.cuda.Device(device.index)

    def put(self, array: np.ndarray[Any, Any], device: Device) -> Any:
        _copied(array)
        with self.native(device):
            if (run := recording()) is not None:
                return run.constant(lambda: self.xp.asarray(array))
            return self.xp.asarray(array)

    def get(self, buffer: Any) -> np.ndarray[Any, Any]:
        if (run := recording()) is not None:
            run.refuse("its value")
        _copied(buffer)
        COUNTERS.syncs += 1
        return self.xp.asnumpy(buffer)  # type: ignore[no-any-return]

    def move(self, buffer: Any, device: Device) -> Any:
        _copied(buffer)
        with self.native(device):
            return self.xp.array(buffer)

    def asarray(self, value: Any) -> Any:
        return self.xp.asarray(value)

    def text(self, buffer: Any) -> str:
        return super().text(buffer) if recording() is None else "recorded"


def _copied(array: Any) -> None:
    COUNTERS.copies += 1
    COUNTERS.bytes += array.nbytes


class CupyDriver:
    """Launches kernels by CuPy, on its current device and stream."""

    def __init__(self, cupy: Any):
        self.cuda = cupy.cuda
        self.empty = cupy.empty
        self.buffer = cupy.ndarray
        self.contiguous = cupy.ascontiguousarray
        self.broadcast_to = cupy.broadcast_to
        self.address = operator.attrgetter("data.ptr")
        self.pool = cupy.get_default_memory_pool
        self.graph = lambda: CupyGraph(cupy)
        self.of_thread = threading.local()  # what each thread keeps of its own
        self.modules: dict[int, Any] = {}  # by device; or why there is none

    def device(self, buffers: Sequence[Any]) -> int:
        current: int = self.cuda.runtime.getDevice()
        if any(buffer.device.id != current for buffer in buffers):
            raise TypeError(f"a buffer that is not on cuda:{current}")
        return current

    def function(self, symbol: str, module: Callable[[int], bytes]) -> Any:
        device = self.device(())
        if device not in self.modules:
            self.modules[device] = self._loaded(device, module)
        found = self.modules[device]
        if isinstance(found, KernelError):
            raise found
        return found.get_function(symbol)

    def _loaded(self, device: int, module: Callable[[int], bytes]) -> Any:
        loaded = self.cuda.function.Module()
        try:
            loaded.load(module(int(self.cuda.Device(device).compute_capability)))
        except self.cuda.driver.CUDADriverError as error:
            return KernelError(f"cuda:{device}: {error}")
        except KernelError as error:
            return error
        return loaded

    def live(self) -> int:
        return self.pool().used_bytes()  # type: ignore[no-any-return]

    def free(self) -> None:
        """Give back what the pool keeps in reserve."""
        self.pool().free_all_blocks()

    def full(self, error: MemoryError) -> bool:
        """Whether it is the GPU that has no room."""
        return isinstance(error, self.cuda.memory.OutOfMemoryError)

    def stream(self) -> Any:
        return self.cuda.get_current_stream()

    def version(self) -> int:
        return self.cuda.runtime.runtimeGetVersion() // 1000  # type: ignore[no-any-return]

    def launch(
        self, function: Any, blocks: int, threads: int, arguments: Sequence[Any]
    ) -> None:
        function((blocks,), (threads,), arguments, 0, self.stream())


class CupyGraph:
    """A CUDA graph: what a stream was asked for while it recorded.

    Its memory comes from a pool of its own, and all of it is kept.  A pool gives back
    what no array uses when memory is short, or when it is asked to; a graph would go on
    using that.
    """

    def __init__(self, cupy: Any):
        self.cuda = cuda = cupy.cuda
        self.common = cupy.get_default_memory_pool
        self.memory: list[Any] = []
        self.pool = cuda.MemoryPool(partial(_kept, cuda, self.memory))
        self.stream = cuda.Stream(non_blocking=True)
        self.beside = cuda.Stream(non_blocking=True)
        self.graph: Any = None
        self.last: Any = None  # the stream of the last replay

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Run on the stream that is to record: its libraries are ready afterwards.

        What memory it took and gave back, other streams could not use.
        """
        self.cuda.get_current_stream().synchronize()
        try:
            with self.stream:
                yield
        finally:
            self.stream.synchronize()
            self.common().free_all_blocks(self.stream)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what is launched in the block, and run none of it."""
        self.cuda.get_current_stream().synchronize()
        with self.cuda.using_allocator(self.pool.malloc), self.stream:
            self.stream.begin_capture()
            try:
                yield
            except BaseException:
                self._abandon()
                raise
            self.graph = self.stream.end_capture()

    def _abandon(self) -> None:
        try:
            self.stream.end_capture()
        except RuntimeError as error:  # the driver has ended it, for the same reason
            if not self.refused(error):
                raise

    @staticmethod
    def refused(error: BaseException | None) -> bool:
        """Whether an error says that something cannot be recorded."""
        while error is not None:
            if isinstance(error, RuntimeError) and "captur" in str(error).lower():
                return True
            error = error.__cause__
        return False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run the block at once, although the stream records."""
        try:
            with self.beside:
                yield
        finally:
            self.beside.synchronize()

    def turn(self) -> None:
        """Have the current stream replay next, after the one that did so last."""
        stream = self.cuda.get_current_stream()
        if self.last is not None and self.last != stream:
            self.last.synchronize()
        self.last = stream

    def upload(self, buffer: Any, array: np.ndarray[Any, Any]) -> None:
        """Copy an array into a buffer; it may change as soon as this returns."""
        _copied(array)
        buffer.set(array, self.last)

    def launch(self) -> None:
        """Start all that was recorded, in its order."""
        self.graph.launch(self.last)
        COUNTERS.launches += 1

    def free(self) -> None:
        """Give back the memory of a recording that failed."""
        self.memory.clear()
        self.pool.free_all_blocks()

    def bytes(self) -> int:
        """How much memory of its own it has."""
        return sum(memory.size for memory in self.memory)


def _kept(cuda: Any, memory: list[Any], size: int) -> Any:
    """New memory, kept in the list."""
    memory.append(cuda.Memory(size))
    return cuda.MemoryPointer(memory[-1], 0)


class Recorder(Protocol):
    """A run of a captured function on a GPU: what it must be told, and asked.

    Every replay does on the device what the run did, with the numbers that it was given
    then.  So the run is asked for those that another replay has others of.
    """

    undo: list[Callable[[], None]]  # what a run that fails has changed
    guards: list[Callable[[], bool]]  # what must hold for a replay

    def refuse(self, how: str) -> NoReturn:
        """Raise CaptureError: a value is asked for, which nobody knows yet."""

    def constant(self, make: Callable[[], Any]) -> Any:
        """A buffer that is made now, of the host's memory, and kept."""

    def aside(self) -> AbstractContextManager[None]:
        """For what is done once, and not by replays."""

    def numbers(
        self,
        call: Callable[[], Sequence[float]],
        dtype: np.dtype[Any],
        written: Iterable[Any],
    ) -> Sequence[Any]:
        """What a call returns, as numbers or as buffers of no dimension.

        Each replay makes the call anew.  ``written`` are the buffers from before that
        the run is going to write into.
        """

    def counter(self, generator: Any, key: int, offset: int, device: Device) -> int:
        """The offset of numbers drawn on a device, as the functions of philox take it.

        CaptureError for another device than the run's.
        """

    def whole(self, parts: Sequence[Any]) -> Any:
        """The buffer that is made up of these, side by side; None if there is none."""


# The run of a captured function on this thread, if it is on a GPU.
run_of: ContextVar[Recorder | None] = ContextVar("eagergrad_recording", default=None)
recording = run_of.get


def out_of_memory(error: MemoryError, what: str, device: Device) -> OutOfMemoryError:
    """A device's error, restated with what was computed, and the bytes asked for.

    CuPy has by then given back what it kept in reserve, collected garbage, and tried
    again; the caller need only drop what it does not need, and go on.
    """
    if isinstance(error, OutOfMemoryError):
        return error
    drivers = {kind: x.driver for kind, x in BACKENDS.items() if x.driver is not None}
    kind = next((kind for kind in drivers if drivers[kind].full(error)), None)
    if kind is None:
        return OutOfMemoryError(f"{what}: cpu has no room: {error or 'out of memory'}")
    driver = drivers[kind]
    if device.kind != kind:  # what lies there was moved
        device = _named(kind, driver.device(()))
    asked = re.search(r"\d[\d,]*", str(error))
    return OutOfMemoryError(
        f"{what}: {device} has no room for {asked and asked[0]} bytes more; "
        f"{driver.live():,} bytes are in use"
    )


CPU = Device("cpu")
_DEVICES: dict[tuple[str, int], Device] = {("cpu", 0): CPU}
# The devices entered, innermost last, each with its backend's context manager.
_stack: ContextVar[tuple[tuple[Device, Any], ...]] = ContextVar(
    "eagergrad_device", default=()
)

BACKENDS: dict[str, Backend] = {}
BUFFERS: dict[type, Backend] = {}


def register(backend: Backend) -> Backend:
    """Make a backend's buffers known to every op."""
    BACKENDS[backend.kind] = backend
    return register_buffer(backend)


def register_buffer(backend: Backend) -> Backend:
    """Make a second type of buffer known on a device that has a backend."""
    BUFFERS[backend.buffer] = backend
    return backend


NUMPY = register(Backend())


def backend_of(buffer: Any) -> Backend:
    """The backend that serves a buffer (NumPy scalars count as CPU buffers)."""
    found = BUFFERS.get(type(buffer))
    if found is not None:
        return found
    if isinstance(buffer, (np.generic, np.ndarray, bool, int, float, complex)):
        return NUMPY
    raise DeviceError(f"no device serves a {type(buffer).__name__}")


def device_of(buffer: Any) -> Device:
    """The device a buffer lives on."""
    return backend_of(buffer).device_of(buffer)


def _named(kind: str, index: int) -> Device:
    found = _DEVICES.get((kind, index))
    if found is None:
        found = _DEVICES.setdefault((kind, index), Device(kind, index))
    return found


def cuda_problem() -> str | None:
    """Why CUDA cannot be used, in a sentence; None when it can."""
    if "cuda" in BACKENDS:
        return None
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed: pip install 'eagergrad[cuda12]' or '[cuda13]'"
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(library)
    except OSError:
        return f"the NVIDIA driver's library {library} cannot be loaded"
    try:
        import cupy  # type: ignore[import-not-found,import-untyped,unused-ignore]

        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy's own classes exist only once it is imported
        return f"CuPy cannot start: {type(error).__name__}: {error}"
    if count == 0:
        return "the driver reports no GPU"
    register(CudaBackend(cupy))
    return None


def device(name: str | Device) -> Device:
    """The device of that name: ``"cpu"``, ``"cuda"``, ``"cuda:1"``.

    Raises DeviceError for a name that means nothing here, with the reason.
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str):
        raise DeviceError(
            f"device: expected a name such as 'cpu' or 'cuda:1', got {name!r}"
        )
    kind, colon, digits = name.partition(":")
    if colon and not digits.isdecimal():
        raise DeviceError(f"device: expected KIND:NUMBER, got {name!r}")
    index = int(digits) if colon else 0
    if kind == "cuda":
        problem = cuda_problem()
        if problem is not None:
            raise DeviceError(f"device {name!r} is not available: {problem}")
        count = BACKENDS["cuda"].xp.cuda.runtime.getDeviceCount()
        if index >= count:
            raise DeviceError(
                f"device {name!r} is not available: this machine has {count} CUDA "
                "device(s)"
            )
    elif kind not in BACKENDS or (kind == "cpu" and index):
        known = ", ".join(sorted({*BACKENDS, "cuda"}))
        raise DeviceError(f"device {name!r} is unknown; there are: {known}")
    return _named(kind, index)


def devices() -> list[Device]:
    """The devices there are: the CPU, and each GPU that CUDA reports."""
    found = [CPU]
    if cuda_problem() is None:
        count = BACKENDS["cuda"].xp.cuda.runtime.getDeviceCount()
        found += [_named("cuda", index) for index in range(count)]
    return found


def default() -> Device:
    """The device used when none is named: ``EAGERGRAD_DEVICE``, else CUDA, else CPU."""
    global _default
    if _default is None:
        wanted = os.environ.get("EAGERGRAD_DEVICE")
        if wanted:
            try:
                _default = device(wanted)
            except DeviceError as error:
                raise DeviceError(f"EAGERGRAD_DEVICE: {error}") from None
        else:
            _default = CPU if cuda_problem() else _named("cuda", 0)
    return _default


_default: Device | None = None


def current() -> Device:
    """The innermost ``with device(...)``, or the default device."""
    stack = _stack.get()
    return stack[-1][0] if stack else default()


def resolve(name: str | Device | None) -> Device:
    """A device argument: a name, a Device, or None for the current one."""
    return current() if name is None else device(name)


def report() -> list[tuple[str, str]]:
    """What ``eagergrad doctor`` says of the devices: rows of (label, text)."""
    try:
        rows = [("default device", str(default()))]
    except DeviceError as error:
        rows = [("default device", f"none: {error}")]
    if os.environ.get("EAGERGRAD_DEVICE"):
        rows.append(("EAGERGRAD_DEVICE", os.environ["EAGERGRAD_DEVICE"]))
    rows.append(("cpu", f"NumPy {np.__version__}, {os.cpu_count()} cores"))
    rows.append(("freed memory", f"kept {host_memory.RETAINED}"))
    problem = cuda_problem()
    if problem is not None:
        rows.append(("cuda", f"not used: {problem}"))
        return rows
    cupy = BACKENDS["cuda"].xp
    for index in range(cupy.cuda.runtime.getDeviceCount()):
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        name = properties["name"].decode()
        memory = properties["totalGlobalMem"] / 2**30
        rows.append((f"cuda:{index}", f"{name}, {memory:.0f} GiB"))
    rows.append(("CuPy", cupy.__version__))
    return rows
