"""Instructions as calls of the compiled loops beneath NumPy's functions.

A universal function is a table of loops, one for each combination of dtypes, and what
NumPy does around them: it finds the loop, makes the result, goes over the axes.  In a
captured program all of that is known beforehand.  Here an instruction becomes the call
of its loop on memory that stays where it is, and a ``Run`` makes many such calls in
one, with no work of Python's or NumPy's in between: some 30 ns each instead of 500.

The loops are NumPy's own, and those of kernels/ (which are universal functions too), so
each result has the bits that NumPy would give.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import host_kernels
from .errors import KernelError
from .kernels import Kernel
from .layouts import Axis, axes_of, broadcast, merged
from .ops.indexing import viewed

Array = np.ndarray[Any, Any]
_SOURCE = Kernel("sequence", "", header="sequence.h")


@dataclass
class Call:
    """One call of a loop, or one for each place in the axes around it."""

    loop: int  # addresses of the function and of its data
    data: int
    operands: list[Array]
    counts: tuple[int, ...]  # the length of its own axis, then of core axes
    steps: tuple[int, ...]
    around: Sequence[Axis]
    faster: int = 0  # another loop, which rounds in another order

    def words(self, exact: bool) -> list[int]:
        """As kernels/sequence.h reads it."""
        loop = self.loop if exact else self.faster or self.loop
        found = [loop, self.data, len(self.operands), len(self.counts)]
        found += [len(self.steps), len(self.around)]
        found += map(address, self.operands)
        found += self.counts
        found += self.steps
        for length, steps in self.around:
            found += [length, *steps]
        return found


class Run:
    """Calls made one after the other, without Python between them.

    If they need not be ``exact``, some products have other bits than NumPy's.
    """

    def __init__(self, calls: Sequence[Call], exact: bool = True):
        self.calls = list(calls)
        words: list[int] = []
        self._places: list[int] = []  # of the operands' addresses among the words
        for call in self.calls:
            start = len(words) + 6
            self._places += range(start, start + len(call.operands))
            words += call.words(exact)
        self._words = np.array(words, np.int64)
        start = address(self._words)
        bounds = ctypes.c_void_p(start), ctypes.c_void_p(start + self._words.nbytes)
        self.start: Callable[[], None] = functools.partial(
            _library().eg_sequence, *bounds
        )

    def __call__(self) -> None:
        self.start()

    def pointers(self, array: Array) -> Callable[[Array], None]:
        """A function that has operands in an array's memory lie in another like it."""
        start = address(array)
        at = np.array(self._places, np.intp)
        offsets = self._words[at] - start
        inside = (0 <= offsets) & (offsets < array.nbytes)
        at, offsets = at[inside], offsets[inside]

        def move(to: Array) -> None:
            self._words[at] = offsets + address(to)

        return move


def address(array: Array) -> int:
    """Where an array's first element lies."""
    return int(array.__array_interface__["data"][0])


def begin() -> None:
    """Have what makes the calls compiled, while Python goes on."""
    host_kernels.begin([_SOURCE])


@functools.cache
def ready() -> bool:
    """Whether calls can be made so: kernels are compiled, and loops are found."""
    if host_kernels.problem() is not None:
        return False
    a, b = np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])
    product, total = np.zeros((1, 1)), np.zeros((2, 2))
    try:
        calls = [_of_ufunc(np.matmul, (a, b), {}, [product])]
        calls.append(_of_ufunc(np.add, (a, b), {}, [total]))
        if None in calls:
            return False
        Run([call for call in calls if call is not None])()
    except (OSError, AttributeError, KernelError):
        return False
    return product.item() == 11.0 and total.tolist() == [[4.0, 5.0], [5.0, 6.0]]


@functools.cache
def _library() -> ctypes.CDLL:
    found = host_kernels.loaded(_SOURCE)
    found.eg_sequence.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    found.eg_sequence.restype = None
    return found


# ------------------------------------------------------------------- from instructions


def calls_of(
    function: Any, args: Sequence[Any], kwargs: dict[str, Any], outs: Sequence[Array]
) -> list[Call] | None:
    """The calls that write what a function gives into ``outs``.

    Where there are no ``outs`` the function writes into its own arguments.  None where
    it is to be called as it is.
    """
    if not ready():
        return None
    if not outs:
        if (found := kwargs.get("out")) is not None:
            outs = found if isinstance(found, tuple) else (found,)
            kwargs = {name: x for name, x in kwargs.items() if name != "out"}
        elif function in _WRITERS and not kwargs:
            return _WRITERS[function](*args)
        else:
            return None
    if any(type(x) is not np.ndarray for x in outs):
        return None
    if any(x.size == 0 for x in outs):
        return [] if isinstance(function, np.ufunc) else None
    if isinstance(function, np.ufunc):
        call = _of_ufunc(function, args, kwargs, outs)
        return None if call is None else [call]
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc) and function == owner.reduce:
        return _of_reduction(outs[0], owner, *args, **kwargs)
    if function in _REDUCTIONS:
        args = [*args, None] if len(args) == 1 and "axis" not in kwargs else args
        return _of_reduction(outs[0], _REDUCTIONS[function], *args, **kwargs)
    if function in (np.dot, np.ndarray.dot) and len(args) == 2 and not kwargs:
        return _of_dot(outs[0], *args)
    if function in _MAKERS:
        return _MAKERS[function](outs[0], *args, **kwargs)
    return None


def _serves(x: Any) -> bool:
    flags = x.flags
    return flags.aligned and x.dtype.isnative and not x.dtype.hasobject


# ----------------------------------------------------------------- universal functions


class _UFunc(ctypes.Structure):
    """The start of PyUFuncObject, which is part of NumPy's binary interface."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("loops", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.c_void_p),
    )


@functools.lru_cache(maxsize=4096)
def _loop(
    ufunc: np.ufunc, given: tuple[Any, ...]
) -> tuple[int, int, tuple[np.dtype[Any], ...]] | None:
    """A loop, its data and its operands' dtypes, for given dtypes (float: a number)."""
    own = getattr(np, ufunc.__name__, None) is ufunc or ufunc in host_kernels.UFUNCS
    if not own:  # of LAPACK or SciPy, which may need what NumPy does around it
        return None
    try:
        dtypes = ufunc.resolve_dtypes(given)
    except TypeError:
        return None
    table = _UFunc.from_address(id(ufunc))
    if (table.nin, table.nout, table.ntypes) != (ufunc.nin, ufunc.nout, ufunc.ntypes):
        return None  # another NumPy than any so far
    count = ufunc.nargs
    types = ctypes.string_at(table.types, count * table.ntypes)
    if any(x.num > 127 for x in dtypes):
        return None
    wanted = bytes(x.num for x in dtypes)
    for i in range(table.ntypes):
        if types[i * count : (i + 1) * count] == wanted and table.loops[i]:
            data = table.data[i] if table.data else None
            return table.loops[i], data or 0, dtypes
    return None


@functools.cache
def _core(ufunc: np.ufunc) -> tuple[tuple[str, ...], ...]:
    """The names of each operand's core axes."""
    if not ufunc.signature:
        return ((),) * ufunc.nargs
    groups = re.findall(r"\((.*?)\)", ufunc.signature.replace("?", ""))
    return tuple([tuple(filter(None, group.split(","))) for group in groups])


def _of_ufunc(
    ufunc: np.ufunc, args: Sequence[Any], kwargs: dict[str, Any], outs: Sequence[Array]
) -> Call | None:
    if len(args) > ufunc.nin:  # results by position
        outs, args = args[ufunc.nin :], args[: ufunc.nin]
    if len(outs) != ufunc.nout or not kwargs.keys() <= {"axis"}:
        return None
    given = tuple(
        [
            x.dtype if type(x) is np.ndarray else type(x)
            for x in args
            if type(x) in _OPERANDS
        ]
    )
    if len(given) != len(args):
        return None
    found = _loop(ufunc, given + (None,) * len(outs))
    if found is None:
        return None
    loop, data, dtypes = found
    core = _core(ufunc)
    axis = kwargs.get("axis", -1)
    operands: list[Array] = []
    for x, dtype, names in zip((*args, *outs), dtypes, core, strict=True):
        array = np.asarray(x, dtype) if type(x) is not np.ndarray else x
        if array.dtype != dtype or not _serves(array) or array.ndim < len(names):
            return None
        if len(names) == 1 and axis != -1:
            array = np.moveaxis(array, axis, -1)
        operands.append(array)
    if ufunc is np.matmul and not all(map(_for_blas, operands)):
        return None
    writes = operands[ufunc.nin :]
    if any(_clash(x, y) for x in operands[: ufunc.nin] for y in writes):
        return None
    sizes: dict[str, int] = {}
    steps: list[int] = []
    lanes, shapes = [], []
    for array, names in zip(operands, core, strict=True):
        split = array.ndim - len(names)
        for name, n in zip(names, array.shape[split:], strict=True):
            if sizes.setdefault(name, n) != n:
                return None
        steps += array.strides[split:]
        shapes.append(array.shape[:split])
        lanes.append((array.shape[:split], array.strides[:split]))
    shape = shapes[-1]
    if any(x != shape for x in shapes[ufunc.nin :]):
        return None
    over = [broadcast(*lane, shape) for lane in lanes]
    call = _call(loop, data, operands, shape, over, tuple(sizes.values()), steps)
    if call is None or (call.around and min(call.steps[: ufunc.nargs]) < 0):
        return None  # NumPy buffers what is read backwards; the bits are those of that
    if ufunc is np.matmul:
        call.faster = _in_panels(call)
    return call


def _in_panels(call: Call) -> int:
    """The loop of kernels/matmul.h for a product; 0 where it would not be faster.

    It is faster for factors that a cache holds, which BLAS copies first, and for which
    it wakes threads that cost more than they do.
    """
    char = call.operands[0].dtype.char
    _, m, k, n = call.counts
    small = m * k <= 2**15 and k * n <= 2**17 and m * k * n <= 2**21
    gaps = call.steps[-1] != call.operands[2].itemsize
    if char not in "fd" or not small or gaps or not k:
        return 0
    loops = (ctypes.c_void_p * 2).in_dll(_library(), "eg_products")
    return loops["fd".index(char)] or 0


_OPERANDS = frozenset((np.ndarray, int, float, bool, complex))


SHORT = 16  # elements; for fewer, a longer axis is worth its wider steps


def _call(
    loop: int,
    data: int,
    operands: list[Array],
    shape: tuple[int, ...],
    over: list[tuple[int, ...]],
    sizes: tuple[int, ...] = (),
    steps: Sequence[int] = (),
) -> Call | None:
    axes = merged(axes_of(shape, over)) or [(1, _of_one(operands, shape))]
    if len(axes) > 1 and axes[-1][0] < SHORT and not sizes:
        axes.append(axes.pop(max(range(len(axes)), key=lambda i: axes[i][0])))
    *around, (n, inner) = axes
    if len(operands) > MOST_OPERANDS or len(around) > MOST_AXES:
        return None
    return Call(loop, data, operands, (n, *sizes), (*inner, *steps), around)


def _of_one(operands: list[Array], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The steps of one element, which NumPy's loops round by where they are negative.

    Its own way around them hands over those of arrays with one axis as they are.
    """
    return tuple([x.strides[0] if x.shape == shape == (1,) else 0 for x in operands])


MOST_OPERANDS, MOST_AXES = 32, 16  # as in kernels/sequence.h


def _clash(x: Array, y: Array) -> bool:
    """Whether writing y may change what is still to be read of x."""
    if not np.may_share_memory(x, y):
        return False
    same = x.shape == y.shape and x.strides == y.strides
    return not same or address(x) != address(y)


def _for_blas(x: Array) -> bool:
    """Whether BLAS takes it as it is; of others NumPy's ``dot`` makes copies."""
    rows, columns = x.strides[-2:]
    m, n = x.shape[-2:]
    size = x.itemsize
    if x.dtype.char not in "fdFD" or rows % size or columns % size:
        return False
    by_row = columns == size and rows >= n * size
    return by_row or (rows == size and columns >= m * size)


def _of_dot(out: Array, a: Any, b: Any) -> list[Call] | None:
    """A product of matrices, or of a vector and one."""
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return None
    if not (0 < a.ndim <= 2 and 0 < b.ndim <= 2) or not a.size * b.size:
        return None
    # reshaped, since a[None] has a step of 0
    out = out.reshape(1 if a.ndim == 1 else len(a), -1)
    a, b = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[0], -1)
    call = _of_ufunc(np.matmul, (a, b), {}, [out])
    return None if call is None else [call]


# -------------------------------------------------------------------------- reductions


def _of_reduction(
    out: Array,
    ufunc: np.ufunc,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
) -> list[Call] | None:
    """A reduction as NumPy goes over it: from a start, along ever shorter steps."""
    if type(x) is not np.ndarray or not x.size or x.dtype.char not in "fdlq":
        return None
    if x.dtype != out.dtype or (dtype is not None and np.dtype(dtype) != x.dtype):
        return None
    if ufunc not in _STARTS or not (_serves(x) and _serves(out)):
        return None
    given = range(x.ndim) if axis is None else [axis] if type(axis) is int else axis
    gone = {i % x.ndim for i in given}
    kept = [i for i in range(x.ndim) if i not in gone]
    to = np.expand_dims(out, tuple(gone)) if not keepdims else out
    if [to.shape[i] for i in kept] != [x.shape[i] for i in kept]:
        return None
    over = [broadcast(to.shape, to.strides, x.shape), x.strides]
    alone = [(1, (0, x.itemsize))]
    axes = merged(axes_of(x.shape, over)) or alone
    steps = [s for _, (_, s) in axes]
    falling = all(a > b > 0 for a, b in itertools.pairwise(steps))
    if not (falling and steps[-1] > 0):
        return None
    if not x.flags.c_contiguous and sum(write == 0 for _, (write, _) in axes) > 1:
        return None  # NumPy gathers axes with gaps between them before it adds up
    found = _loop(ufunc, (x.dtype, x.dtype, None))
    if found is None or found[2] != (x.dtype,) * 3:
        return None
    start, rest = _STARTS[ufunc], x
    if start is not None:
        begun = copied(np.asarray(start, x.dtype), out)
    elif len(gone) == 1:
        before = (slice(None),) * gone.pop()
        begun, rest = copied(x[(*before, slice(1))], to), x[(*before, slice(1, None))]
        axes = merged(axes_of(rest.shape, [over[0], rest.strides])) or alone
    else:
        return None
    if begun is None:
        return None
    if not rest.size:
        return [begun]
    around = [(n, (write, read, write)) for n, (write, read) in axes]
    n, inner = around.pop()
    return [begun, Call(*found[:2], [out, rest, out], (n,), inner, around)]


# What NumPy begins with; None: the first element.  A sum of it and -0.0 shows the zero.
_STARTS = {
    np.add: np.add.reduce([-0.0]),
    np.multiply: 1,
    np.maximum: None,
    np.minimum: None,
}
_REDUCTIONS = {
    np.ndarray.sum: np.add,
    np.ndarray.prod: np.multiply,
    np.ndarray.max: np.maximum,
    np.ndarray.min: np.minimum,
}


# ------------------------------------------------------------------------------ copies


def copied(source: Array, to: Array) -> Call | None:
    """The elements of an array written to another, to which it broadcasts."""
    if source.dtype != to.dtype or not (_serves(source) and _serves(to)):
        return None
    if to.itemsize not in _SIZES or np.may_share_memory(source, to):
        return None
    return _by_size("eg_copies", [source, to])


_SIZES = (1, 2, 4, 8, 16)


def _by_size(name: str, operands: list[Array]) -> Call | None:
    """A call of the loop for numbers of the size of the last operand's."""
    to = operands[-1]
    loops = (ctypes.c_void_p * len(_SIZES)).in_dll(_library(), name)
    loop = loops[_SIZES.index(to.itemsize)] or 0
    over = [broadcast(x.shape, x.strides, to.shape) for x in operands]
    return _call(loop, 0, operands, to.shape, over)


def _where(out: Array, condition: Any, *choices: Any) -> list[Call] | None:
    if type(condition) is not np.ndarray or condition.dtype != bool:
        return None
    given = [
        np.asarray(x, out.dtype) if type(x) in (int, float, bool) else x
        for x in choices
    ]
    arrays = [condition, *given, out]
    if any(type(x) is not np.ndarray or not _serves(x) for x in arrays):
        return None
    if any(x.dtype != out.dtype for x in given) or out.itemsize > 8:
        return None
    if any(np.may_share_memory(x, out) for x in arrays[:-1]):
        return None
    call = _by_size("eg_choices", arrays)
    return None if call is None else [call]


def _copies(*pairs: tuple[Any, Array]) -> list[Call] | None:
    """Arrays or numbers, each written to another."""
    calls = []
    for source, to in pairs:
        if type(source) is not np.ndarray:
            if type(source) not in _OPERANDS:
                return None
            source = np.asarray(source, to.dtype)
        if not to.size:
            continue
        if source.ndim > to.ndim:  # leading axes of length 1, as in an assignment
            source = source.reshape(source.shape[source.ndim - to.ndim :])
        call = copied(source, to)
        if call is None:
            return None
        calls.append(call)
    return calls


def _copy(out: Array, x: Any, *_: Any, **options: Any) -> list[Call] | None:
    """An array in C order, in its own shape or in another."""
    order = options.pop("order", "C")
    if type(x) is not np.ndarray or order != "C" or not out.flags.c_contiguous:
        return None
    return _copies((x, out.reshape(x.shape)))


def _cast(out: Array, x: Any, dtype: Any, **options: Any) -> list[Call] | None:
    if type(x) is not np.ndarray or x.dtype != out.dtype or out.shape != x.shape:
        return None
    return _copies((x, out))


def _concatenate(
    out: Array, parts: Any, axis: int | None = 0, dtype: Any = None
) -> list[Call] | None:
    if any(type(x) is not np.ndarray for x in parts):
        return None
    start, pairs = 0, []
    for x in parts:
        if axis is None:
            pairs.append((x, out[start : start + x.size].reshape(x.shape)))
            start += x.size
        else:
            end = start + x.shape[axis]
            along = np.moveaxis(out, axis, 0)[start:end]
            pairs.append((np.moveaxis(x, axis, 0), along))
            start = end
    return _copies(*pairs)


def _stack(out: Array, parts: Any, axis: int = 0) -> list[Call] | None:
    places = np.moveaxis(out, axis, 0)
    return _copies(*[(x, places[i, ...]) for i, x in enumerate(parts)])


def _zeros(out: Array, *args: Any, **kwargs: Any) -> list[Call] | None:
    return _copies((np.zeros((), out.dtype), out))


def _set(x: Any, index: Any, value: Any) -> list[Call] | None:
    """``x[index] = value`` for an index of slices and numbers."""
    to = viewed(x, index)
    if to is None:
        return None
    return _copies((value, to))


_MAKERS: dict[Any, Callable[..., list[Call] | None]] = {
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.zeros_like: _zeros,
    np.ndarray.astype: _cast,
    **dict.fromkeys(
        (np.ndarray.copy, np.ndarray.reshape, np.ndarray.flatten, np.ndarray.ravel),
        _copy,
    ),
    np.ascontiguousarray: _copy,
    np.where: _where,
}
_WRITERS: dict[Any, Callable[..., list[Call] | None]] = {
    np.copyto: lambda to, source: _copies((source, to)),
    np.ndarray.fill: lambda to, value: _copies((value, to)),
    np.ndarray.__setitem__: _set,
    operator.setitem: _set,
}
