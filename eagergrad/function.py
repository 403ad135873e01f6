"""``function``: a Python function captured as a program, and replayed.

The first call with new shapes or dtypes runs the function on buffers that write down
what is done with them (``traced``); the instructions become a ``Program``, which later
calls replay without Python's work for ops, tape and gradients.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import nest, primitive
from .errors import CaptureError, ShapeError
from .tape import active, caller_depth
from .tensor import TENSORS, VARIABLES, Tensor, Variable, wrap
from .traced import Trace, Traced, current

if TYPE_CHECKING:
    from .program import Program

MOST_PROGRAMS = 32
_tracing = threading.Lock()  # variables look traced to every thread meanwhile


def function(
    f: Callable[..., Any] | None = None,
    *,
    input_signature: Sequence[Any] | None = None,
    exact: bool = False,
    on_failure: str = "raise",
) -> Any:
    """Capture a function: one program for each signature, replayed by later calls.

    The signature is the shapes and dtypes of the tensors and arrays among the
    arguments, nested as they may be, and the values of all else.  Gradients,
    optimizers' steps and random numbers in it are captured too; Variables that it reads
    or assigns are looked up at each call.  Python runs only at the first call: its
    branches are those of that call, and asking for a traced value raises CaptureError
    with the line.

    With ``exact=True`` a replay gives the bits that the function itself would give.
    Otherwise elementwise functions are fused, each of which may then differ from
    NumPy's by 2 units in the last place; nothing depends on the run.

    ``input_signature`` lists the (shape, dtype) of each argument and refuses others.
    ``on_failure="eager"`` warns once and runs what cannot be captured as it is.  Under
    a tape, in another captured function, and on a GPU it runs as it is as well.

    >>> double = function(lambda x: 2.0 * x)
    >>> double(tensor([1.0])).tolist(), double(tensor([2.0])).tolist()
    ([2.0], [4.0])
    """
    if on_failure not in ("raise", "eager"):
        raise ShapeError(
            f"function: expected on_failure 'raise' or 'eager', got {on_failure!r}"
        )
    if f is None:
        return functools.partial(
            function,
            input_signature=input_signature,
            exact=exact,
            on_failure=on_failure,
        )
    return Function(f, input_signature, exact, on_failure == "eager")


class Function:
    """A captured function; see ``function``."""

    def __init__(
        self,
        f: Callable[..., Any],
        input_signature: Sequence[Any] | None,
        exact: bool,
        falls_back: bool,
    ):
        functools.update_wrapper(self, f)
        self.python_function = f
        self._signature = _signature_of(input_signature)
        self._exact = exact
        self._falls_back = falls_back
        self._programs: OrderedDict[Any, _Captured | None] = OrderedDict()
        self._lock = threading.RLock()
        self._capturing = False

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        """As a method: captured with ``self`` as an argument."""
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not None or active() or primitive.checked is not None:
            if self._capturing:
                raise CaptureError(
                    f"{self._name()} calls itself while it is captured; write a loop, "
                    "or capture the function that calls it"
                )
            return self.python_function(*args, **kwargs)
        key, arrays = _key(args, kwargs)
        self._check(arrays)
        with self._lock:
            captured = self._programs.get(key, _ABSENT)
            if captured is not _ABSENT and captured is not None:
                if captured.program.still_holds():
                    return captured.replay(arrays)
                captured = _ABSENT
            if captured is None or any(type(x) is not np.ndarray for x in arrays):
                return self.python_function(*args, **kwargs)
            try:
                self._capturing = True
                captured, result = _capture(
                    self.python_function, args, kwargs, self._exact
                )
            except CaptureError as error:
                if not self._falls_back:
                    raise
                self._keep(key, None)
                warnings.warn(
                    f"{self._name()} runs eagerly: {error}",
                    RuntimeWarning,
                    stacklevel=caller_depth(),
                )
                return self.python_function(*args, **kwargs)
            finally:
                self._capturing = False
            self._keep(key, captured)
            return result

    def _keep(self, key: Any, captured: _Captured | None) -> None:
        self._programs[key] = captured
        while len(self._programs) > MOST_PROGRAMS:
            self._programs.popitem(last=False)

    def _name(self) -> str:
        return getattr(self.python_function, "__qualname__", "function")

    def _check(self, arrays: Sequence[Any]) -> None:
        if self._signature is None:
            return
        got = [(x.shape, x.dtype) for x in arrays]
        if len(got) != len(self._signature) or any(
            dtype != wanted[1]
            or len(shape) != len(wanted[0])
            or any(w not in (None, n) for n, w in zip(shape, wanted[0], strict=True))
            for (shape, dtype), wanted in zip(got, self._signature, strict=True)
        ):
            raise ShapeError(
                f"{self._name()}: expected the input signature "
                f"{_listed(self._signature)}, got {_listed(got)}"
            )

    def programs(self) -> list[Program]:
        """The programs there are, oldest first."""
        return [c.program for c in self._programs.values() if c is not None]

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The program of these arguments, which a call has made: print it."""
        key, _ = _key(args, kwargs)
        captured = self._programs.get(key)
        if captured is None:
            raise CaptureError(
                f"{self._name()}: no program for these arguments yet; call it with them"
            )
        return captured.program


_ABSENT: Any = object()


def _signature_of(given: Sequence[Any] | None) -> Any:
    if given is None:
        return None
    return [(tuple(shape), np.dtype(dtype)) for shape, dtype in given]


def _listed(signature: Sequence[Any]) -> str:
    return ", ".join(f"{dtype} {shape}" for shape, dtype in signature) or "no tensors"


_PLAIN = frozenset((*TENSORS, np.ndarray, int, float, bool, str, type(None)))


def _key(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], list[Any]]:
    """The signature of arguments, and the buffers among them."""
    nested = kwargs or any(type(x) not in _PLAIN and nest.is_nested(x) for x in args)
    leaves: Sequence[Any] = nest.flatten((args, kwargs)) if nested else args
    key: list[Any] = []
    arrays: list[Any] = []
    for x in leaves:
        if isinstance(x, Variable):
            key.append((Variable, x._node.order))
        elif isinstance(x, Tensor):
            data = x._data
            arrays.append(data)
            key.append(data.shape)
            key.append(data.dtype)
        elif type(x) is np.ndarray:
            arrays.append(x)
            key.append(np.ndarray)
            key.append(x.shape)
            key.append(x.dtype)
        else:
            key.append(type(x))
            key.append(_static(x))
    if nested:  # and how they are
        key.append(repr(nest.map_structure(lambda x: None, (args, kwargs))))
    return tuple(key), arrays


def _static(x: Any) -> Any:
    """A Python argument as part of the signature: by value, else by identity."""
    if type(x) is float:
        return x.hex()  # tells -0.0 from 0.0, and has one nan
    try:
        hash(x)
    except TypeError:
        return _Identity(x)
    return x


class _Identity:
    """An object that is itself and no other; it is kept alive."""

    def __init__(self, x: Any):
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.x is self.x

    def __hash__(self) -> int:
        return id(self.x)


# --------------------------------------------------------------------------- capture


class _Captured:
    """A program, and the structure of what the function returns."""

    def __init__(self, program: Program, result: Any):
        self.program = program
        self.result = result

    def replay(self, arrays: Sequence[Any]) -> Any:
        return self.packed(self.program(arrays))

    def packed(self, found: Sequence[Any]) -> Any:
        if type(self.result) is Tensor:
            return wrap(found[0])
        made = iter(found)
        values = [
            wrap(next(made)) if _is_made(leaf) else leaf
            for leaf in nest.flatten(self.result)
        ]
        return nest.pack_sequence_as(self.result, values)


def _capture(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], exact: bool
) -> tuple[_Captured, Any]:
    """Run a function and write it down; nothing is changed if that fails."""
    from .program import Program  # with what compiles: 15 ms that others save

    trace = Trace()
    inputs: list[Traced] = []

    def traced(x: Any) -> Any:
        if not _is_made(x) and not isinstance(x, np.ndarray):
            return x
        data = x._data if isinstance(x, Tensor) else x
        found = Traced(trace, data.copy())
        inputs.append(found)
        return wrap(found)

    args, kwargs = nest.map_structure(traced, (args, kwargs))
    with _tracing, _uncollected():
        known = set(VARIABLES)
        rows = [
            (variable, variable._data, Traced(trace, variable._data, False))
            for variable in list(VARIABLES.values())
            if type(variable._data) is np.ndarray
        ]
        try:
            for variable, _, stand in rows:
                variable._data = stand
            with trace:
                result = f(*args, **kwargs)
            _check_variables(known)
            written = [
                (variable, _array(variable._data))
                for variable, _, stand in rows
                if variable._data is not stand
            ]
            read = [
                (variable, stand._array) for variable, _, stand in rows if stand.used
            ]
            leaves = nest.flatten(result)
            results = [_array(leaf._data) for leaf in leaves if _is_made(leaf)]
            name = getattr(f, "__qualname__", "function")
            arrays = [x._array for x in inputs]
            program = Program(name, trace, arrays, read, results, written, exact)
        except BaseException:
            for undo in reversed(trace.undo):
                undo()
            raise
        finally:
            for variable, data, _ in rows:
                variable._data = data
    for variable, array in written:
        variable._data = array.copy()
    captured = _Captured(program, nest.map_structure(_outline, result))
    return captured, captured.packed([x.copy() for x in results])


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the search for garbage, which a trace's many objects set off for nothing.

    It takes a quarter of the time of a large capture.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_variables(known: set[int]) -> None:
    for order, variable in list(VARIABLES.items()):
        if order not in known:
            raise CaptureError(
                f"{variable.name or 'a Variable'} was made in the captured function; "
                "make it before, since a replay makes nothing"
            )


def _is_made(leaf: Any) -> bool:
    """Whether a returned leaf is a tensor, which each run makes anew."""
    return isinstance(leaf, Tensor) and not isinstance(leaf, Variable)


def _outline(leaf: Any) -> Any:
    """A returned tensor without its buffer."""
    return wrap(np.zeros(())) if _is_made(leaf) else leaf


def _array(data: Any) -> Any:
    return data._array if isinstance(data, Traced) else data
