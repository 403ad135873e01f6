"""A GPU for machines without one: buffers that behave as CuPy's do, in host memory.

What matters of CuPy here is what it refuses: a stand-in buffer does not become a NumPy
array by itself, and does not mix with one.  Copies between host and device are counted,
so that "nothing left the device" can be tested.
"""

import operator
from collections import Counter
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from eagergrad.device import _DEVICES, BACKENDS, BUFFERS, Backend, device, register
from eagergrad.ops.random import GENERATOR
from eagergrad.primitive import forget

COUNTS = Counter()  # calls; to_host and to_device, in copies; bytes, of those copies


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


def called(function, *args, **options):
    """Call NumPy's function on what the buffers hold."""
    COUNTS["calls"] += 1
    options = {name: unwrapped(x) for name, x in options.items()}
    with np.errstate(all="ignore"):  # a GPU does not warn
        return wrapped(function(*map(unwrapped, args), **options))


def upload(array):
    """A buffer with a copy of an array's values."""
    COUNTS["to_device"] += 1
    COUNTS["bytes"] += array.nbytes
    return Buffer(array.copy())


class Function:
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
        return found if is_plain else Function(found)

    def array(self, x, dtype=None, copy=True):
        if isinstance(x, Buffer):
            return called(np.array, x, dtype, copy=copy or None)
        return upload(np.array(x, dtype))

    def asarray(self, x, dtype=None):
        return self.array(x, dtype, copy=False)


xp = Module()


class StandIn(Backend):
    """The backend that serves these buffers."""

    kind = "standin"
    xp = xp
    buffer = Buffer

    def device_of(self, buffer):
        return device("standin")

    def put(self, array, device):
        return upload(array)

    def get(self, buffer):
        return buffer.get()

    def move(self, buffer, device):
        return buffer

    def asarray(self, value):
        return xp.asarray(value)


@contextmanager
def installed():
    """Make ``eg.device("standin")`` work inside the block; gives the device."""
    state = GENERATOR.state
    register(StandIn())
    COUNTS.clear()
    try:
        yield device("standin")
    finally:
        del BACKENDS["standin"], BUFFERS[Buffer]
        _DEVICES.pop(("standin", 0), None)
        forget()
        GENERATOR.state = state
