"""Buffers that write down what is done with them: how a function becomes a program.

A ``Traced`` stands where a Tensor holds its array.  It has an array, and every array
function, method and ufunc that it meets is called on that array *and* noted as an
instruction.  Since ops and rules run unchanged, a trace is the eager step itself, call
by call: replaying the calls gives its very bits.

Two things cannot be noted.  What asks for a *value* (``if x > 0``, ``float(x)``) would
be frozen, and what writes traced values into an array of its own would lose them.
Inside an op both make the whole op one instruction; elsewhere they raise CaptureError.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .device import CPU, NUMPY, Backend, Device, register_buffer
from .errors import CaptureError
from .tape import caller, caller_depth

_current: ContextVar[Trace | None] = ContextVar("eagergrad_trace", default=None)
current = _current.get  # the trace that is being made on this thread


class Instruction:
    """One call: of what, on what, and the arrays it gave."""

    __slots__ = ("args", "call", "kind", "kwargs", "name", "outputs", "reads")

    def __init__(
        self,
        name: str,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: tuple[np.ndarray[Any, Any], ...],
        kind: str,
    ):
        self.name = name
        self.call = call
        self.args = args
        self.kwargs = kwargs
        self.reads = arrays_in([args, kwargs])
        self.outputs = outputs
        # "fresh": its results are new arrays; "view": they share memory with its
        # arguments; "inplace": they are arguments; "host": it writes into its last
        # arguments, and does something that only Python can
        self.kind = kind

    def moved(self, places: dict[int, np.ndarray[Any, Any]]) -> Instruction:
        """It on other arrays, of the same layout, by the ids of those they stand for.

        Views are made anew, and are among the places from then on.
        """
        if places.keys().isdisjoint(map(id, self.reads)):
            return self
        args, kwargs = _moved(self.args, places), _moved(self.kwargs, places)
        if self.kind == "view":
            views = results_in(self.call(*args, **kwargs))
            places.update(zip(map(id, self.outputs), views, strict=True))
        outputs = tuple([places.get(id(x), x) for x in self.outputs])
        return Instruction(self.name, self.call, args, kwargs, outputs, self.kind)


def _moved(value: Any, places: dict[int, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        return places.get(id(value), value)
    if type(value) in (tuple, list):
        return type(value)([_moved(item, places) for item in value])
    if type(value) is dict:
        return {key: _moved(item, places) for key, item in value.items()}
    return value


class Dynamic(int):
    """A number that another replay will have another of: a counter of a generator."""

    cell: list[int]

    @classmethod
    def of(cls, cell: list[int]) -> Dynamic:
        found = cls(cell[0])
        found.cell = cell
        return found


class Trace:
    """The instructions of one run of a function."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.op = ""  # the op whose implementation is running
        self.thread = threading.get_ident()
        self.open = True  # may be entered again, to go on
        self.guards: list[Callable[[], bool]] = []  # what must hold for a replay
        self.undo: list[Callable[[], None]] = []  # what a failed trace has changed

    def __enter__(self) -> Trace:
        self._token = _current.set(self)
        self.thread = threading.get_ident()
        self.open = True
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)
        self.open = False

    def record(
        self, call: Callable[..., Any], args: Any, kwargs: dict[str, Any], name: str
    ) -> Any:
        """Call a function on the arrays themselves and note it."""
        args, kwargs = _arrays(args), _arrays(kwargs)
        result = call(*_numbers(args), **kwargs)
        parts = [] if result is None else results_in(result, name)
        given = arrays_in((args, list(kwargs.values())))
        if result is None or kwargs.get("out") is not None:
            kind = "inplace"
        elif any(np.may_share_memory(part, x) for part in parts for x in given):
            kind = "view"
        else:
            kind = "fresh"
        self.instructions.append(
            Instruction(_named(self.op, name), call, args, kwargs, tuple(parts), kind)
        )
        wrapped = iter([Traced(self, part) for part in parts])
        return None if result is None else _rewrapped(result, wrapped)

    def host(
        self,
        name: str,
        call: Callable[..., Any],
        inputs: Sequence[Any] = (),
        like: Any = None,
        undo: Callable[[], None] | None = None,
    ) -> Any:
        """Note a call that must be made anew, in Python, by every replay.

        It is made now too.  With ``like`` it writes into one more argument, an array
        of that shape, which is returned.
        """
        if undo is not None:
            self.undo.append(undo)
        out = () if like is None else (np.empty_like(_arrays(like)),)
        args = (*_arrays(tuple(inputs)), *out)
        call(*args)
        self.instructions.append(Instruction(name, call, args, {}, out, "host"))
        return Traced(self, out[0]) if out else None

    def through(self, name: str, call: Callable[..., Any], args: Any) -> Any:
        """Run an op's implementation, noting each of its calls, or else itself."""
        if any(type(x) is Dynamic for x in args):
            return self.record(call, args, {}, name)
        before, self.op, start = self.op, name, len(self.instructions)
        try:
            return call(*args)
        except (ValueRead, TypeError, ValueError):  # an error of its own comes again
            del self.instructions[start:]
            return self.record(call, args, {}, name)
        finally:
            self.op = before


class ValueRead(CaptureError):
    """A traced value was asked for, or written where the trace cannot follow."""


class RunsAsItIs(CaptureError):
    """What a function does under these tapes is no matter of programs."""


def name_of(f: Callable[..., Any]) -> str:
    """What a captured function is called in programs and messages."""
    return getattr(f, "__qualname__", "function")


def warn_eager(f: Callable[..., Any], error: Exception) -> None:
    """Warn that a function runs as it is, since it could not be captured."""
    warnings.warn(
        f"{name_of(f)} runs eagerly: {error}",
        RuntimeWarning,
        stacklevel=caller_depth(),
    )


def value_read(how: str) -> ValueRead:
    """The error of asking for a value, which names the line that does."""
    return ValueRead(
        f"{how} at {caller()} reads a value that is only known when the program "
        "runs; compute with the tensor instead (eg.where for a choice), or call "
        "this part outside the captured function"
    )


def results_in(result: Any, name: str = "it") -> list[np.ndarray[Any, Any]]:
    """The arrays that a call returned, one or nested; 0-d ones for NumPy's scalars."""
    if type(result) in (tuple, list):
        return [array for part in result for array in results_in(part, name)]
    if isinstance(result, np.generic):
        return [np.asarray(result)]
    if type(result) is not np.ndarray:
        raise ValueRead(
            f"{name} gives a {type(result).__name__} made of a traced value"
        )
    return [result]


def _rewrapped(result: Any, leaves: Iterator[Traced]) -> Any:
    if type(result) in (tuple, list):
        return type(result)([_rewrapped(part, leaves) for part in result])
    return next(leaves)


def _named(op: str, name: str) -> str:
    return f"{op}.{name}" if op and op != name else name


def adopted(array: Any) -> Any:
    """An array as a constant of the trace that is being made, if there is one."""
    trace = current()
    if trace is None or type(array) is not np.ndarray:
        return array
    return Traced(trace, array)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of numbers; of Dynamic ones, as one instruction of the trace."""
    trace = current()
    if trace is None or not any(type(x) is Dynamic for x in args):
        return function(*args)
    return trace.record(function, args, {}, getattr(function, "__name__", "call"))


class Traced(NDArrayOperatorsMixin):
    """An array whose uses are noted."""

    __slots__ = ("_array", "_trace", "used")
    __hash__ = object.__hash__
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, trace: Trace, array: np.ndarray[Any, Any], used: bool = True):
        self._trace = trace
        self._array = array
        self.used = used  # False for somebody's array, which is copied at first use

    def own(self) -> np.ndarray[Any, Any]:
        """The array, for an instruction to use."""
        if not self._trace.open:
            raise CaptureError(
                "a tensor was kept after the captured function that made it had "
                f"returned (used at {caller()}); return it from the function instead"
            )
        if self._trace.thread != threading.get_ident():
            raise CaptureError(
                f"a traced tensor was used on another thread, at {caller()}; capture "
                "a function on the thread that runs it"
            )
        if not self.used:
            self._array, self.used = self._array.copy(), True
        return self._array

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        out = kwargs.get("out", ())
        if method == "at":
            out = inputs[:1]
        if any(x is not None and type(x) is not Traced for x in out):
            raise ValueRead(f"{name} writes into an array that is not traced")
        called = ufunc if method == "__call__" else getattr(ufunc, method)
        result = self._trace.record(called, inputs, kwargs, name)
        if method != "at" and out:
            return out[0] if len(out) == 1 else out
        return result

    def __array_function__(
        self, function: Any, types: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        name = function.__name__
        if name in _OF_SHAPE:
            return function(*_arrays(args), **_arrays(kwargs))
        if name in _SHAPED_BY_VALUES or (name == "where" and len(args) == 1):
            raise ValueRead(f"{name} gives a shape that depends on values")
        target = args[0] if name in _WRITING else kwargs.get("out")
        if target is not None and type(target) is not Traced:
            raise ValueRead(f"{name} writes into an array that is not traced")
        result = self._trace.record(function, args, kwargs, name)
        return target if kwargs.get("out") is not None else result

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._refuse("a NumPy array")

    def __bool__(self) -> Any:
        self._refuse("bool()")

    def __int__(self) -> Any:
        self._refuse("int()")

    def __float__(self) -> Any:
        self._refuse("float()")

    def __complex__(self) -> Any:
        self._refuse("complex()")

    def __index__(self) -> Any:
        self._refuse("an index")

    def item(self, *args: Any) -> Any:
        self._refuse("item()")

    def tolist(self) -> Any:
        self._refuse("tolist()")

    def __dlpack__(self, **options: Any) -> Any:
        self._refuse("DLPack")

    def __dlpack_device__(self) -> Any:
        self._refuse("DLPack")

    def _refuse(self, how: str) -> Any:
        raise value_read(how)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self._array)))

    def __getitem__(self, index: Any) -> Any:
        if any(type(x) is Traced and x.dtype == bool for x in arrays_in(index)):
            raise ValueRead(
                "a traced mask gives an array whose shape depends on values"
            )
        return self._trace.record(np.ndarray.__getitem__, (self, index), {}, "getitem")

    def __setitem__(self, index: Any, value: Any) -> None:
        self._trace.record(np.ndarray.__setitem__, (self, index, value), {}, "setitem")

    def __repr__(self) -> str:
        return f"traced({self.dtype}, {self.shape})"


def _attribute(name: str) -> property:
    return property(lambda self: getattr(self._array, name))


def _array_attribute(name: str) -> property:
    get = getattr(np.ndarray, name).__get__
    return property(lambda self: self._trace.record(get, (self,), {}, name))


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, name)

    def method(self: Traced, *args: Any, **kwargs: Any) -> Any:
        return self._trace.record(function, (self, *args), kwargs, name)

    return method


for _name in "shape dtype ndim size itemsize nbytes strides flags".split():
    setattr(Traced, _name, _attribute(_name))
for _name in "T mT real imag".split():
    if hasattr(np.ndarray, _name):
        setattr(Traced, _name, _array_attribute(_name))
for _name in (
    "all any argmax argmin argpartition argsort astype choose clip conj conjugate copy "
    "cumprod cumsum diagonal dot fill flatten max mean min partition prod put ravel "
    "repeat reshape round searchsorted sort squeeze std sum swapaxes take trace "
    "transpose var view"
).split():
    setattr(Traced, _name, _method(_name))

_OF_SHAPE = frozenset("shape ndim size result_type iscomplexobj isrealobj".split())
_SHAPED_BY_VALUES = frozenset(
    "nonzero flatnonzero argwhere unique compress extract trim_zeros".split()
)
_WRITING = frozenset("copyto put putmask place put_along_axis fill_diagonal".split())


def _arrays(value: Any) -> Any:
    """A nested argument with the arrays in place of what stands for them."""
    if isinstance(value, Traced):
        return value.own()
    if type(value) in (tuple, list):
        return type(value)([_arrays(item) for item in value])
    if type(value) is dict:
        return {key: _arrays(item) for key, item in value.items()}
    return value


def _numbers(args: Any) -> Any:
    """Arguments with plain numbers in place of Dynamic ones."""
    return [x.cell[0] if type(x) is Dynamic else x for x in args]


def arrays_in(value: Any) -> list[Any]:
    """The arrays, traced or not, in a nested argument."""
    found: list[Any] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[Any]) -> None:
    kind = type(value)
    if kind is np.ndarray or kind is Traced:
        found.append(value)
    elif kind is tuple or kind is list:
        for item in value:
            _collect(item, found)
    elif kind is dict:
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, np.ndarray):
        found.append(value)


class TraceBackend(Backend):
    """Serves traced buffers as NumPy's own, with each op noted under its name."""

    buffer = Traced
    notes = True

    def adopted(self, name: str, implementation: Callable[..., Any]) -> Any:
        def noted(*args: Any) -> Any:
            trace = current()
            if trace is None:
                for x in arrays_in(args):
                    if type(x) is Traced:
                        x.own()  # raises
            assert trace is not None
            return trace.through(name, implementation, args)

        return noted

    def asarray(self, value: Any) -> Any:
        return value if type(value) is Traced else adopted(np.asarray(value))

    def get(self, buffer: Any) -> Any:
        buffer._refuse("its value")

    def put(self, array: Any, device: Device) -> Any:
        return array

    def text(self, buffer: Any) -> str:
        return "traced"

    def device_of(self, buffer: Any) -> Device:
        return CPU


TRACE = TraceBackend()
register_buffer(TRACE)
assert TRACE.xp is NUMPY.xp
