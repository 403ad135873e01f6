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
from functools import partial
from time import perf_counter
from types import ModuleType, SimpleNamespace
from unittest.mock import patch
from weakref import WeakSet, WeakValueDictionary

import ml_dtypes
import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

from eagergrad import cublas, cuda_kernels, host_kernels, launches
from eagergrad.counters import COUNTERS
from eagergrad.device import _DEVICES, BACKENDS, BUFFERS, CudaBackend, device, register
from eagergrad.kernels import catalogue
from eagergrad.ops.random import GENERATOR
from eagergrad.primitive import forget

# Of the array module: calls; of them those that run something on a GPU, be they
# products of matrices or others (launches); copies to_host and to_device; their bytes.
COUNTS = Counter()
KERNELS = Counter()  # launches of each function of the module


class Buffer:
    """An array on the stand-in device; the values are private."""

    __hash__ = None

    def __init__(self, values, base=None):
        self._values = values
        self.base = base  # the buffer whose memory this one shows
        if base is None:
            OWNERS[id(values)] = self

    def __del__(self):
        if self.base is None and any(id(self._values) in g.memory for g in GRAPHS):
            spoil(self._values)  # others may use that memory now

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

    def set(self, array, stream):
        """Copy an array of the host into this one."""
        assert (array.dtype, array.shape) == (self.dtype, self.shape)
        stream.refuse("H2D transfers")
        COUNTS["to_device"] += 1
        COUNTS["bytes"] += array.nbytes
        self._values[...] = array

    def get(self):
        """The values on the host: a copy."""
        STREAMS[-1].refuse("D2H transfers")
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


ATTRIBUTES = "shape dtype ndim size itemsize nbytes strides flags T real imag"
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
        if isinstance(part, (list, np.ndarray)):
            STREAMS[-1].refuse("H2D transfers")
        if isinstance(part, Buffer) and part.dtype == bool and part.ndim:
            STREAMS[-1].refuse("D2H transfers")
        return part._values if isinstance(part, Buffer) else part


def unwrapped(x):
    """An argument as NumPy takes it; a NumPy array is refused, if it is not 0-d."""
    if isinstance(x, Buffer):
        return x._values
    if isinstance(x, Index):
        return x.values(x.index)
    if isinstance(x, np.ndarray):
        if x.ndim:
            raise TypeError(f"Unsupported type {type(x)}")
        return x.copy()  # goes by value
    return type(x)(map(unwrapped, x)) if type(x) in (list, tuple) else x


def wrapped(x):
    """A result as CuPy gives it: arrays of no dimension where NumPy has scalars."""
    if isinstance(x, (np.ndarray, np.generic)):
        return shown(np.asarray(x))
    if hasattr(x, "_fields"):  # the named tuples of linalg
        return type(x)(*map(wrapped, x))
    return type(x)(map(wrapped, x)) if type(x) in (list, tuple) else x


OWNERS = WeakValueDictionary()  # the buffers of memory, by the ids of its arrays
GRAPHS = WeakSet()  # all that were recorded, or are


def root(array):
    """The array whose memory this one shows."""
    while isinstance(below := getattr(array, "base", None), np.ndarray) or hasattr(
        below, "base"
    ):
        array = below
    return array


def shown(array):
    """A buffer of an array, which keeps that alive whose memory it shows."""
    whole = root(array)
    owner = OWNERS.get(id(whole))
    if whole is not array:
        return Buffer(array, Buffer(whole) if owner is None else owner)
    if owner is None:
        POOLS[-1].malloc(array.nbytes)
        owner = Buffer(array)
    return owner


def spoil(array):
    """Leave in memory what nobody expects there."""
    if array.flags.writeable:
        array.fill(np.nan if array.dtype.kind in "fc" else 99)


class OutOfMemoryError(MemoryError):
    """What CuPy's pool raises."""


ROOM = None  # for how many more arrays there is room; None for any number


@contextmanager
def full(after=0):
    """Inside the block the device has room for so many more arrays."""
    with patch(f"{__name__}.ROOM", after):
        yield


RESERVES = False  # whether CuPy's pool has something to give back


@contextmanager
def crowded():
    """Inside the block there is no room left, until CuPy's pool gives back some."""
    with full(), patch(f"{__name__}.RESERVES", True):
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
    graph = STREAMS[-1].graph
    if graph is not None:
        graph.begins(function, args, options)
    with np.errstate(all="ignore"):  # a GPU does not warn
        result = function(*args, **options)
    if is_new(result, [*args, *options.values()]):
        allocate()
    counts = COUNTS
    if graph is not None:
        result = settled(result)
        graph.records(function, args, options, result)
        counts = graph.counts
    if function in PRODUCTS:
        counts["products"] += 1
    elif function is np.concatenate:  # up to 8 CuPy copies one by one
        counts["launches"] += len(args[0]) if len(args[0]) <= 8 else 1
    elif runs(function, args, result):
        counts["launches"] += 1
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


def settled(result):
    """What a function returned, with arrays in place of NumPy's scalars."""
    if isinstance(result, np.generic):
        return np.asarray(result)
    return tuple(map(settled, result)) if type(result) is tuple else result


def arrays_in(value):
    """The arrays in nested arguments."""
    if isinstance(value, (list, tuple)):
        return [array for part in value for array in arrays_in(part)]
    return [value] if isinstance(value, np.ndarray) else []


# What CuPy calls other libraries for, which it does not while a stream records.
PRODUCTS_ARE_RECORDED = False  # by CuPy they are not: switch this off for a gemm
LIBRARIES = {np.tensordot, np.einsum, np.inner, np.vdot, *PRODUCTS}
LIBRARIES |= {
    getattr(np.linalg, name)
    for name in "cholesky det eigh eigvalsh inv qr slogdet solve svd".split()
}
SHAPED_BY_VALUES = {np.nonzero, np.ndarray.nonzero, np.unique, np.argwhere}


class Graph:
    """What was asked for while a stream recorded: to be done again, on that memory.

    Nothing has been done when the recording ends: all memory is as it was before.
    """

    def __init__(self):
        self.calls = []
        self.memory = {}  # the arrays whose memory it uses, by their ids
        self.before = []  # those from before the recording, with their values of then
        self.counts = Counter()  # of a replay: kernels, products, and other launches
        GRAPHS.add(self)

    def begins(self, function, args, options):
        products = function in PRODUCTS and PRODUCTS_ARE_RECORDED
        if function in LIBRARIES and not products:
            raise NotImplementedError(
                "calling cuBLAS API during stream capture is currently unsupported"
            )
        if function in SHAPED_BY_VALUES:
            STREAMS[-1].refuse("D2H transfers")
        if function is np.concatenate and len(args[0]) > 8:
            STREAMS[-1].refuse("H2D transfers")  # of the addresses
        for array in map(root, arrays_in([args, list(options.values())])):
            if id(array) not in self.memory:
                self.memory[id(array)] = array
                self.before.append((array, array.copy()))

    def records(self, function, args, options, result):
        given = arrays_in([args, list(options.values())])
        fresh = [
            None if any(np.may_share_memory(x, y) for y in given) else x
            for x in arrays_in(result)
        ]
        for array in fresh:
            if array is not None:
                self.memory[id(root(array))] = root(array)
        self.calls.append((function, args, options, fresh))

    def ends(self):
        for array in self.memory.values():
            spoil(array)
        for array, values in self.before:
            if array.flags.writeable:
                array[...] = values
        self.before = []

    def launch(self, stream):
        assert stream is STREAMS[-1]
        stream.refuse("synchronous API calls")
        COUNTS["graphs"] += 1
        for function, args, options, fresh in self.calls:
            with np.errstate(all="ignore"):
                result = function(*args, **options)
            for place, values in zip(fresh, arrays_in(settled(result)), strict=True):
                if place is not None:
                    np.copyto(place, values)


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
    STREAMS[-1].refuse("H2D transfers")
    allocate()
    COUNTS["to_device"] += 1
    COUNTS["bytes"] += array.nbytes
    return shown(array.copy())


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

    def __init__(self, symbol):
        name, _, dtype = symbol.rpartition("_")
        self.symbol = symbol
        self.part = "sums" if name.endswith("_sums") else ""
        kernel = self.kernel = catalogue()[name.removesuffix("_sums")]
        self.dtype = np.dtype({"double": "f8", "half": "f2"}.get(dtype, "f4"))
        self.stored = np.dtype(dtype) if dtype == "bfloat16" else self.dtype
        self.ufunc = host_kernels.compiled(kernel.name)

    def __call__(self, grid, block, arguments, shared, stream):
        (blocks,), (threads,) = grid, block
        assert 0 < blocks < 2**31
        assert 0 < threads <= 1024
        assert not threads % 32
        assert shared == 0
        stream.work.append(self.kernel.name)
        KERNELS[self.symbol] += 1
        *buffers, layout = arguments
        words = np.frombuffer(layout.tobytes(), np.int64)
        if self.kernel.form == "arrays":
            self.on_arrays(buffers, words)
        elif self.kernel.form == "columns":
            *buffers, sums = buffers
            self.on_columns(buffers, words, getattr(sums, "_values", None), blocks)
        else:
            operands = self.operands(buffers, words)
            self.keep(operands[self.kernel.inputs :], self.made(operands))

    def operands(self, buffers, words):
        """The operands, seen as the layout says."""
        kernel, count = self.kernel, len(buffers)
        assert count == kernel.inputs + kernel.outputs
        rows, columns = words[:2]
        *steps, kinds = words[8 : 8 + 3 * count].reshape(3, count)
        numbers = words[8 + 3 * count :].view(float)
        both, down, along = (rows, columns), (rows,), (columns,)
        shapes = {
            "elementwise": {"s": both},
            "rows": {"n": both, "s": down, "w": down, "i": down},
            "columns": dict.fromkeys("nc", along)
            | {"t": both, "m": down, "w": (), "i": ()},
        }[kernel.form]
        found = []
        for k, letter in enumerate(kernel.operands.replace(">", "")):
            shape = shapes[letter]
            if buffers[k] is None:
                dtype = np.int64 if letter == "i" else self.dtype
                found.append(np.full(shape, numbers[k], dtype))
                continue
            x = buffers[k]._values
            assert x.dtype.char == self.chars(letter)[kinds[k]]
            strides = np.array(steps)[:, k] * x.itemsize
            if len(shape) < 2:
                strides = strides[int(shape is along) :][: len(shape)]
            found.append(as_strided(x, shape, strides))
        return found

    def made(self, operands):
        """What the host's kernel makes of the inputs."""
        inputs = zip(self.kernel.operands, operands[: self.kernel.inputs], strict=False)
        made = self.ufunc(
            *[x if letter == "i" else x.astype(self.dtype) for letter, x in inputs]
        )
        return made if self.kernel.outputs > 1 else [made]

    def keep(self, results, made):
        for result, values in zip(results, made, strict=True):
            result[...] = values

    def on_columns(self, buffers, words, sums, blocks):
        """The first launch keeps the sums for the second, if it has several blocks."""
        operands = self.operands(buffers, words)
        results = operands[self.kernel.inputs :]
        count = self.kernel.operands.count("c")
        if not count:
            self.keep(results, self.made(operands))
            return
        kept = sums[: count * words[1]].reshape(count, -1)
        if self.part:
            self.keep(results[-count:], kept)
            return
        made = self.made(operands)
        self.keep(results[:-count], made[:-count])
        self.keep(results[-count:] if blocks == 1 else kept, made[-count:])

    def on_arrays(self, buffers, words):
        kernel, count = self.kernel, len(buffers)
        assert count == kernel.inputs + kernel.outputs
        size, counts, places = words[0], words[1 : 1 + count], words[1 + count :]
        numbers, integers = places[count:].view(float), places[2 * count :]
        assert len(integers) == launches.WORDS
        assert size == sum(counts)
        operands = []
        for k, letter in enumerate(kernel.operands.replace(">", "")):
            if letter == "s":
                operands.append(self.dtype.type(numbers[k]))
            elif buffers[k] is None:
                operands.append(integers[places[k] :][: counts[k]])
            else:
                x = buffers[k]._values
                assert x.shape == (counts[k],)
                assert x.flags.c_contiguous
                assert x.dtype == {"j": np.int64, "b": np.int8}.get(letter, self.stored)
                operands.append(x)
        cast = [x.astype(self.dtype) if x.dtype == self.stored else x for x in operands]
        self.ufunc(*cast)
        self.keep(operands[kernel.inputs :], cast[kernel.inputs :])

    def chars(self, letter):
        """The dtypes of an operand by its kind in device.cuh."""
        return "l" if letter == "i" else "d" if self.dtype.char == "d" else "feE"


@functools.cache
def function(symbol):
    return Function(symbol)


class DriverError(RuntimeError):
    """What loading a module raises."""


class Loaded:
    """A module of kernels, as it is made of machine code."""

    def load(self, cubin):
        assert cubin == b"code for sm_90"
        if host_kernels.problem():
            raise DriverError(host_kernels.problem())

    def get_function(self, symbol):
        return Launched(function(symbol))


class Launched:
    """A function of a loaded module, on the current stream."""

    def __init__(self, function):
        self.function = function

    def __call__(self, grid, block, arguments, shared, stream):
        assert stream is STREAMS[-1]
        graph = stream.graph
        if graph is None:
            self.function(grid, block, arguments, shared, stream)
            return
        shown = [x._values if isinstance(x, Buffer) else x for x in arguments]

        def run(*given):
            buffers = [Buffer(x, x) if i in places else x for i, x in given]
            self.function(grid, block, buffers, shared, STREAM)

        places = {i for i, x in enumerate(arguments) if isinstance(x, Buffer)}
        graph.begins(run, shown, {})
        run(*enumerate(shown))
        graph.calls.append((run, list(enumerate(shown)), {}, []))
        graph.counts["kernels"] += 1


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
    """A stream on which all is done as soon as it is asked for, unless it records."""

    addresses = itertools.count(0x1000, 8)

    def __init__(self, non_blocking=False):
        self.ptr = next(self.addresses)
        self.graph = None
        self.work = []  # the kernels and products that were started on it

    def __enter__(self):
        STREAMS.append(self)
        return self

    def __exit__(self, *exc):
        assert STREAMS.pop() is self

    def is_capturing(self):
        return self.graph is not None

    capturing = property(is_capturing)

    def refuse(self, what):
        if self.graph is not None:
            raise RuntimeError(
                f"the current stream is capturing, so {what} are disallowed"
            )

    def synchronize(self):
        self.refuse("synchronous API calls")

    def begin_capture(self):
        assert self is not STREAM
        self.graph = Graph()

    def end_capture(self):
        graph, self.graph = self.graph, None
        graph.ends()
        return graph


STREAM = Stream()
STREAMS = [STREAM]  # the current one is the last


class Memory:
    """So many bytes of the device."""

    def __init__(self, size):
        self.size = size


class Pool:
    """A pool of memory, which makes some for each array, and never uses it again."""

    def __init__(self, make=lambda size: None):
        self.make = make

    def malloc(self, size):
        return self.make(size)

    def used_bytes(self):
        return 1000

    def free_all_blocks(self, stream=None):
        global ROOM
        STREAMS[-1].refuse("synchronous API calls")
        COUNTS["freed"] += 1
        if RESERVES and self is POOLS[0]:
            ROOM = None


POOLS = [Pool()]  # the one that memory is from is the last


@contextmanager
def using_allocator(malloc):
    POOLS.append(malloc.__self__)
    try:
        yield
    finally:
        POOLS.pop()


def current():
    """The current stream."""
    return STREAMS[-1]


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
        run = partial(
            self.multiply, op_a, op_b, m, n, k, alpha, a, lda, step_a, b, ldb, step_b,
            beta, c, ldc, step_c, count, compute, dtype, wide,
        )  # fmt: skip
        counts = COUNTS
        if (graph := current().graph) is not None:
            graph.begins(run, list(map(memory_at, (a, b, c))), {})
            graph.calls.append((run, [], {}, []))
            counts = graph.counts
        run()
        counts["products"] += 1
        self.calls.append((name, m, n, k))
        current().work.append(name)

    def multiply(
        self, op_a, op_b, m, n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, c, ldc,
        step_c, count, compute, dtype, wide,
    ):  # fmt: skip
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

    def check(self, sizes, bound=2**63):
        if not all(0 <= n < bound for n in sizes):
            raise BlasError(f"INVALID_VALUE (7): {sizes}")


def inside(place, size):
    """Bytes that are all in the memory of one array."""
    assert any(first <= place and place + size <= last for first, last in EXTENTS)


def memory_at(place):
    """The array whose memory a place is in."""
    for owner in list(OWNERS.values()):
        first, last = byte_bounds(owner._values)
        if first <= place < last:
            return owner._values
    raise AssertionError(place)


def by_columns(place, dtype, rows, columns, leading):
    """The matrix at a place, whose columns are so far apart."""
    size = dtype.itemsize * ((columns - 1) * leading + rows)
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
xp.get_default_memory_pool = lambda: POOLS[0]
xp.cuda = SimpleNamespace(
    Device=Native,
    Event=Event,
    Memory=Memory,
    MemoryPointer=lambda memory, offset: memory,
    MemoryPool=Pool,
    Stream=Stream,
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
    using_allocator=using_allocator,
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
    KERNELS.clear()
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
