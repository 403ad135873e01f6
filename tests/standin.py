"""A GPU for machines without one: buffers that behave as CuPy's do, in host memory.

What matters of CuPy here is what it refuses: a stand-in buffer does not become a NumPy
array by itself, and does not mix with one.  Copies between host and device are counted,
so that "nothing left the device" can be tested, and so is every function that would be
a launch.  Kernels go through the launches of the package down to the last call, where
the host's kernel runs on the places that the layout names.
"""

import functools
import operator
from collections import Counter
from contextlib import contextmanager
from time import perf_counter
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eagergrad import cuda_kernels, host_kernels
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
    "copy view ravel squeeze clip round put cumsum cumprod prod argsort diagonal trace "
    "repeat swapaxes nonzero"
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


FULL = ""  # what it says: every array is one too many


@contextmanager
def full():
    """Inside the block the device has no room left."""
    with patch(
        f"{__name__}.FULL",
        "Out of memory allocating 4,096 bytes (allocated so far: 1,000 bytes).",
    ):
        yield


PRODUCTS = {operator.matmul, np.matmul, np.dot, np.ndarray.dot}
WRITERS = {getattr(operator, f"i{name.strip('_')}", None) for name in BINARY.split()}
IDLE = {np.empty, np.empty_like}


def called(function, *args, **options):
    """Call NumPy's function on what the buffers hold."""
    COUNTS["calls"] += 1
    if FULL:
        raise OutOfMemoryError(FULL)
    options = {name: unwrapped(x) for name, x in options.items()}
    args = [unwrapped(x) for x in args]
    with np.errstate(all="ignore"):  # a GPU does not warn
        result = function(*args, **options)
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


def upload(array):
    """A buffer with a copy of an array's values."""
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
        assert (shared, stream) == (0, STREAM)
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

    def synchronize(self):
        pass


STREAM = Stream()


class Event:
    """A point in time."""

    def record(self):
        self.time = perf_counter()

    def synchronize(self):
        pass


xp.ndarray = Buffer
xp.asnumpy = Buffer.get
xp.get_default_memory_pool = lambda: SimpleNamespace(used_bytes=lambda: 1000)
xp.cuda = SimpleNamespace(
    Device=Native,
    Event=Event,
    driver=SimpleNamespace(CUDADriverError=DriverError),
    function=SimpleNamespace(Module=Loaded),
    get_current_stream=lambda: STREAM,
    get_elapsed_time=lambda first, last: 1e3 * (last.time - first.time),
    runtime=SimpleNamespace(getDevice=lambda: 0, getDeviceCount=lambda: 1),
)


class StandIn(CudaBackend):
    """The backend of CuPy's buffers, on these."""

    kind = "standin"


@contextmanager
def installed():
    """Make ``eg.device("standin")`` work inside the block; gives the device."""
    state = GENERATOR.state
    register(StandIn(xp))
    COUNTS.clear()
    COUNTERS.clear()
    try:
        with patch.object(cuda_kernels, "cubin", lambda arch: b"code for sm_%d" % arch):
            yield device("standin")
    finally:
        del BACKENDS["standin"], BUFFERS[Buffer]
        _DEVICES.pop(("standin", 0), None)
        forget()
        GENERATOR.state = state
