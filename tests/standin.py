"""A GPU for machines without one: buffers that behave as CuPy's do, in host memory.

What matters of CuPy here is what it refuses: a stand-in buffer does not become a NumPy
array by itself, and does not mix with one.  Copies between host and device are counted,
so that "nothing left the device" can be tested, and so is every function that would be
a launch.  Kernels go through the launches of the package down to the last call, where
the host's kernel runs on the places that the layout names.
"""

import ctypes
import functools
import itertools
import operator
from collections import Counter, deque
from contextlib import contextmanager
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import ClassVar
from unittest.mock import patch

import ml_dtypes
import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

from eagergrad import cublas, cuda_kernels, host_kernels
from eagergrad.counters import COUNTERS
from eagergrad.device import _DEVICES, BACKENDS, BUFFERS, CudaBackend, device, register
from eagergrad.kernels import catalogue
from eagergrad.ops.random import GENERATOR
from eagergrad.primitive import forget

# Of the array module: calls; of them those that run something on a GPU, be they
# products of matrices or others (launches); copies to_host and to_device; their bytes.
COUNTS = Counter()


class Buffer:
    """An array on the stand-in device; the values are private."""

    __hash__ = None

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __dlpack__(self, **options):
        raise BufferError("the stand-in device exports nothing")

    def __dlpack_device__(self):
        return 2, 0

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if method != "__call__" or not hasattr(np, ufunc.__name__):  # a kernel's
            return NotImplemented
        return getattr(xp, ufunc.__name__)(*inputs, **options)

    def __array_function__(self, function, types, args, kwargs):
        return getattr(xp, function.__name__)(*args, **kwargs)

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return (wrapped(row) for row in self._values)

    def __getitem__(self, index):
        return called(operator.getitem, self, Index(index))

    def __setitem__(self, index, value):
        called(operator.setitem, self, Index(index), value)

    def __repr__(self):
        return f"standin({self._values!r})"

    @property
    def device(self):
        return Native(0)

    @property
    def data(self):
        """Where the values are.  What memory they are in is noted, for ``Blas``."""
        owner = self._values
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        EXTENTS.append(byte_bounds(owner))
        return SimpleNamespace(ptr=self._values.ctypes.data)

    def get(self):
        """The values on the host: a copy."""
        COUNTS["to_host"] += 1
        COUNTS["bytes"] += self._values.nbytes
        return self._values.copy()

    def item(self):
        return self.get().item()

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    def __index__(self):
        return operator.index(self.get())


ATTRIBUTES = "shape dtype ndim size itemsize nbytes strides T real imag"
METHODS = (
    "reshape transpose astype sum mean max min argmax argmin any all dot take conj "
    "copy fill view ravel squeeze clip round put cumsum cumprod prod argsort diagonal "
    "trace repeat swapaxes nonzero"
)
BINARY = (
    "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift "
    "lt le gt ge eq ne"
)


def _attribute(name):
    return property(lambda self: wrapped(getattr(self._values, name)))


def _method(name):
    return lambda self, *args, **options: called(
        getattr(np.ndarray, name), self, *args, **options
    )


def _operator(function, swap=False):
    def run(self, other):
        if isinstance(other, (np.ndarray, Buffer, np.generic, int, float, complex)):
            return called(function, *((other, self) if swap else (self, other)))
        return NotImplemented

    return run


def _in_place(function):
    def run(self, other):
        called(function, self, other)
        return self

    return run


for _name in ATTRIBUTES.split():
    setattr(Buffer, _name, _attribute(_name))
for _name in METHODS.split():
    setattr(Buffer, _name, _method(_name))
for _name in BINARY.split():
    _plain = _name.strip("_")
    setattr(Buffer, f"__{_plain}__", _operator(getattr(operator, _name)))
    if hasattr(operator, f"i{_plain}"):
        setattr(Buffer, f"__r{_plain}__", _operator(getattr(operator, _name), True))
        setattr(Buffer, f"__i{_plain}__", _in_place(getattr(operator, f"i{_plain}")))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Buffer, f"__{_name}__", _method(f"__{_name}__"))


class Index:
    """What stands in brackets: there, NumPy's index arrays are let through."""

    def __init__(self, index):
        self.index = index

    def values(self, part):
        if isinstance(part, tuple):
            return tuple(map(self.values, part))
        return part._values if isinstance(part, Buffer) else part


def unwrapped(x):
    """An argument as NumPy takes it; a NumPy array is refused, if it is not 0-d."""
    if isinstance(x, Buffer):
        return x._values
    if isinstance(x, Index):
        return x.values(x.index)
    if isinstance(x, np.ndarray) and x.ndim:
        raise TypeError(f"Unsupported type {type(x)}")
    return type(x)(map(unwrapped, x)) if type(x) in (list, tuple) else x


def wrapped(x):
    """A result as CuPy gives it: arrays of no dimension where NumPy has scalars."""
    if isinstance(x, (np.ndarray, np.generic)):
        return Buffer(np.asarray(x))
    if hasattr(x, "_fields"):  # the named tuples of linalg
        return type(x)(*map(wrapped, x))
    return type(x)(map(wrapped, x)) if type(x) in (list, tuple) else x


class OutOfMemoryError(MemoryError):
    """What CuPy's pool raises."""


ROOM = None  # for how many more arrays there is room; None for any number


@contextmanager
def full(after=0):
    """Inside the block the device has room for so many more arrays."""
    with patch(f"{__name__}.ROOM", after):
        yield


def allocate():
    """Take room for an array."""
    global ROOM
    if ROOM == 0:
        raise OutOfMemoryError(
            "Out of memory allocating 4,096 bytes (allocated so far: 1,000 bytes)."
        )
    if ROOM is not None:
        ROOM -= 1


PRODUCTS = {operator.matmul, np.matmul, np.dot, np.ndarray.dot}
WRITERS = {getattr(operator, f"i{name.strip('_')}", None) for name in BINARY.split()}
IDLE = {np.empty, np.empty_like}


def called(function, *args, **options):
    """Call NumPy's function on what the buffers hold."""
    COUNTS["calls"] += 1
    options = {name: unwrapped(x) for name, x in options.items()}
    args = [unwrapped(x) for x in args]
    with np.errstate(all="ignore"):  # a GPU does not warn
        result = function(*args, **options)
    if is_new(result, [*args, *options.values()]):
        allocate()
    if function in PRODUCTS and current().capturing:
        raise NotImplementedError("calling cuBLAS API during stream capture")
    if function in PRODUCTS and result.ndim > 2 and args[0].dtype.char == "E":
        raise TypeError("batches of bfloat16")
    if function in PRODUCTS:
        COUNTS["products"] += 1
    elif function is np.concatenate:  # up to 8 CuPy copies one by one
        COUNTS["launches"] += len(args[0]) if len(args[0]) <= 8 else 1
    elif runs(function, args, result):
        COUNTS["launches"] += 1
    return wrapped(result)


def runs(function, args, result):
    """Whether a function runs something on the device: it does not make a mere view."""
    if function is operator.setitem or function in WRITERS:
        return True
    if function in IDLE or not isinstance(result, (np.ndarray, np.generic, tuple)):
        return False
    given = [x for x in args if isinstance(x, np.ndarray)]
    seen = isinstance(result, np.ndarray) and any(
        np.may_share_memory(result, x) for x in given
    )
    return isinstance(function, np.ufunc) or not seen


def is_new(result, given):
    """Whether a result has memory of its own."""
    if isinstance(result, (tuple, list)):
        return any(is_new(part, given) for part in result)
    arrays = [x for x in given if isinstance(x, np.ndarray)]
    return isinstance(result, (np.ndarray, np.generic)) and not any(
        np.may_share_memory(result, x) for x in arrays
    )


def upload(array):
    """A buffer with a copy of an array's values."""
    allocate()
    COUNTS["to_device"] += 1
    COUNTS["bytes"] += array.nbytes
    return Buffer(array.copy())


class Call:
    """A function of the array module, or a ufunc with its ``at``."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **options):
        return called(self.function, *args, **options)

    def at(self, x, index, values):
        called(self.function.at, x, Index(index), values)


class Module:
    """The array module: NumPy's functions on stand-in buffers."""

    def __init__(self, module=np):
        self._module = module

    def __getattr__(self, name):
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):  # linalg, fft
            return Module(found)
        is_plain = isinstance(found, type) or not callable(found)
        return found if is_plain else Call(found)

    def array(self, x, dtype=None, copy=True):
        if isinstance(x, Buffer):
            return called(np.array, x, dtype, copy=copy or None)
        return upload(np.array(x, dtype))

    def asarray(self, x, dtype=None):
        return self.array(x, dtype, copy=False)


xp = Module()


class Function:
    """A function of a loaded module: the host's kernel, on the places it is given."""

    def __init__(self, kernel, dtype):
        self.kernel, self.dtype = (
            kernel,
            np.dtype({"float": "f4", "double": "f8"}[dtype]),
        )
        self.ufunc = host_kernels.compiled(kernel.name)

    def __call__(self, grid, block, arguments, shared, stream):
        (blocks,), (threads,) = grid, block
        assert 0 < blocks < 2**31
        assert 0 < threads <= 1024
        assert not threads % 32
        assert shared == 0
        stream.work.append(self.kernel.name)
        *buffers, layout = arguments
        kernel, count = self.kernel, len(buffers)
        assert count == kernel.inputs + kernel.outputs
        words = np.frombuffer(layout.tobytes(), np.int64)
        sizes, numbers = words[:2], words[2 + 3 * count :].view(float)
        *steps, kinds = words[2 : 2 + 3 * count].reshape(3, count)
        steps = np.transpose(steps)
        operands = []
        for k, letter in enumerate(kernel.operands.replace(">", "")):
            axes = 2 if letter == "n" or kernel.signature is None else 1
            if buffers[k] is None:
                operands.append(np.full((1,) * axes, numbers[k], self.dtype))
            else:
                x = buffers[k]._values
                assert x.dtype.char == self.chars(letter)[kinds[k]]
                strides = steps[k, :axes] * x.itemsize
                operands.append(as_strided(x, sizes[:axes], strides))
        inputs = zip(kernel.operands, operands[: kernel.inputs], strict=False)
        made = self.ufunc(
            *[x if letter == "i" else x.astype(self.dtype) for letter, x in inputs]
        )
        made = made if kernel.outputs > 1 else [made]
        for result, values in zip(operands[kernel.inputs :], made, strict=True):
            result[...] = values

    def chars(self, letter):
        """The dtypes of an operand by its kind in device.cuh."""
        return "l" if letter == "i" else "d" if self.dtype.char == "d" else "feE"


@functools.cache
def function(symbol):
    name, _, dtype = symbol.rpartition("_")
    return Function(catalogue()[name], dtype)


class DriverError(RuntimeError):
    """What loading a module raises."""


class Loaded:
    """A module of kernels, as it is made of machine code."""

    def load(self, cubin):
        assert cubin == b"code for sm_90"
        if host_kernels.problem():
            raise DriverError(host_kernels.problem())

    def get_function(self, symbol):
        return function(symbol)


class Native:
    """A device, as the library knows it."""

    id = 0
    compute_capability = "90"

    def __init__(self, index):
        assert index == 0

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        pass


class Stream:
    """A stream on which all is done as soon as it is asked for."""

    entered: ClassVar = []  # the current one is the last
    addresses = itertools.count(0x1000, 8)

    def __init__(self):
        self.ptr = next(self.addresses)
        self.capturing = False
        self.work = []  # the kernels and products that were started on it

    def __enter__(self):
        self.entered.append(self)
        return self

    def __exit__(self, *exc):
        self.entered.pop()

    def is_capturing(self):
        return self.capturing

    def synchronize(self):
        pass


def current():
    """The current stream."""
    return Stream.entered[-1]


Stream().__enter__()  # the default one


class BlasError(RuntimeError):
    """What the binding of cuBLAS raises."""


EXTENTS = deque(maxlen=8)  # the memory of the arrays whose places were asked for last
NUMBERS = {
    0: np.dtype("f4"),
    1: np.dtype("f8"),
    2: np.dtype("f2"),
    4: np.dtype("c8"),
    5: np.dtype("c16"),
    14: np.dtype(ml_dtypes.bfloat16),
}


class Blas:
    """cuBLAS, on the host's memory: matrices by columns, with its checks."""

    def __init__(self):
        self.handles = {}
        self.calls = []  # their names and sizes (m, n, k)
        self.room = True

    def create(self):
        assert not current().capturing
        if not self.room:
            raise BlasError("ALLOC_FAILED (3)")
        handle = len(self.handles) + 1
        self.handles[handle] = SimpleNamespace(stream=0, workspace=0, mode=0)
        return handle

    def destroy(self, handle):
        self.handles[handle] = None

    def set_stream(self, handle, stream):
        self.handles[handle].stream = stream
        self.handles[handle].workspace = 0

    def set_workspace(self, handle, place, size):
        inside(place, size)
        self.handles[handle].workspace = size

    def set_math_mode(self, handle, mode):
        self.handles[handle].mode = mode

    def gemm_ex(self, handle, *arguments):
        self.check(arguments[2:5], 2**31)
        self.gemm("gemm_ex", handle, *arguments)

    def gemm_ex_64(self, handle, *arguments):
        self.gemm("gemm_ex_64", handle, *arguments)

    def gemm(
        self, name, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb,
        beta, c, type_c, ldc, compute, algorithm,
    ):  # fmt: skip
        self.batched(
            name, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0,
            b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algorithm,
        )  # fmt: skip

    def gemm_strided_batched_ex(self, handle, *arguments):
        self.check(arguments[2:5], 2**31)
        self.batched("gemm_strided_batched_ex", handle, *arguments)

    def gemm_strided_batched_ex_64(self, handle, *arguments):
        self.batched("gemm_strided_batched_ex_64", handle, *arguments)

    def batched(
        self, name, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, step_a,
        b, type_b, ldb, step_b, beta, c, type_c, ldc, step_c, count, compute, algorithm,
    ):  # fmt: skip
        state = self.handles[handle]
        assert state.stream == current().ptr
        assert (state.workspace, state.mode) == (2**25, 16)
        assert algorithm == -1
        self.check((m, n, k, count))
        self.check((lda - (k if op_a else m), ldb - (n if op_b else k), ldc - m))
        assert type_a == type_b == type_c
        dtype = NUMBERS[type_a]
        assert compute == 70 if dtype.char in "dD" else compute in (68, 77)
        wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
        alpha, beta = [
            np.frombuffer((ctypes.c_char * wide.itemsize).from_address(x), wide)[0]
            for x in (alpha, beta)
        ]
        for i in range(count):
            left, right, result = [
                by_columns(place + i * step * dtype.itemsize, dtype, *layout)
                for place, step, *layout in (
                    (a, step_a, *((k, m) if op_a else (m, k)), lda),
                    (b, step_b, *((n, k) if op_b else (k, n)), ldb),
                    (c, step_c, m, n, ldc),
                )
            ]
            left, right = [
                factor(x.T if flag else x, wide, compute)
                for x, flag in ((left, op_a), (right, op_b))
            ]
            with np.errstate(all="ignore"):
                made = alpha * np.matmul(left, right)
                if beta:  # else what is there is not read
                    made = made + beta * result.astype(wide)
                result[...] = made
        COUNTS["products"] += 1
        self.calls.append((name, m, n, k))
        current().work.append(name)

    def check(self, sizes, bound=2**63):
        if not all(0 <= n < bound for n in sizes):
            raise BlasError(f"INVALID_VALUE (7): {sizes}")


def inside(place, size):
    """Bytes that are all in the memory of one array."""
    assert any(first <= place and place + size <= last for first, last in EXTENTS)


def by_columns(place, dtype, rows, columns, leading):
    """The matrix at a place, whose columns are so far apart."""
    size = dtype.itemsize * ((columns - 1) * leading + rows)
    inside(place, size)
    memory = np.frombuffer((ctypes.c_char * size).from_address(place), dtype)
    strides = dtype.itemsize, dtype.itemsize * leading
    return as_strided(memory, (rows, columns), strides)


def factor(x, wide, compute):
    """A factor as it is multiplied: TF32 has 11 bits, the first of them not stored."""
    x = x.astype(wide)
    if compute == 77:
        parts = x.view(np.uint32)
        parts += 0x1000
        parts &= 0xFFFFE000
    return x


class Event:
    """A point in time."""

    def record(self):
        self.time = perf_counter()

    def synchronize(self):
        pass


xp.ndarray = Buffer
xp.asnumpy = Buffer.get
xp.get_default_memory_pool = lambda: SimpleNamespace(
    used_bytes=lambda: 1000, free_all_blocks=lambda: COUNTS.update(freed=1)
)
xp.cuda = SimpleNamespace(
    Device=Native,
    Event=Event,
    driver=SimpleNamespace(CUDADriverError=DriverError),
    function=SimpleNamespace(Module=Loaded),
    get_current_stream=current,
    get_elapsed_time=lambda first, last: 1e3 * (last.time - first.time),
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=SimpleNamespace(
        getDevice=lambda: 0,
        getDeviceCount=lambda: 1,
        runtimeGetVersion=lambda: 12090,
    ),
)


class StandIn(CudaBackend):
    """The backend of CuPy's buffers, on these."""

    kind = "standin"


@contextmanager
def installed():
    """Make ``eg.device("standin")`` work inside the block; gives the device."""
    state, blas = GENERATOR.state, Blas()
    register(StandIn(xp))
    COUNTS.clear()
    COUNTERS.clear()
    try:
        with (
            patch.object(cuda_kernels, "cubin", lambda arch: b"code for sm_%d" % arch),
            patch.object(cublas, "library", lambda major: blas),
        ):
            yield device("standin")
    finally:
        del BACKENDS["standin"], BUFFERS[Buffer]
        _DEVICES.pop(("standin", 0), None)
        forget()
        GENERATOR.state = state
