"""``function``: a Python function captured as a program, and replayed.

The first call with new shapes or dtypes runs the function on buffers that write down
what is done with them (``traced``); the instructions become a ``Program``, which later
calls replay without Python's work for ops, tape and gradients.  Under a tape there is a
program for what the tape watches, and others for its gradient (``pullback``).  On a GPU
it is the device that writes down (``graphs``).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import operator
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import nest, primitive
from .device import CPU, Device, device_of, recording
from .device import current as current_device
from .errors import CaptureError, ShapeError
from .pullback import (
    Call,
    Enclosing,
    Inside,
    Pullbacks,
    Stands,
    array_of,
    is_array,
    is_made,
    outline,
    recorder,
    replayed,
    tracing,
    watchers,
)
from .tape import (
    Tape,
    accessed,
    active,
    record_call,
    recording_on,
    stopped,
)
from .tensor import TENSORS, VARIABLES, Tensor, Variable, wrap
from .traced import RunsAsItIs, Trace, Traced, current, name_of, warn_eager

if TYPE_CHECKING:
    from .graph_pullbacks import GraphPullbacks
    from .graphs import Graph, Graphs
    from .program import Program

MOST_PROGRAMS = 32


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
    NumPy's by 2 units in the last place, and small matrices have a product of our own,
    of which an element with k terms is within k eps sum |a b| of the true one, as BLAS
    has it; nothing depends on the run.

    Under a tape the call is one operation, and its gradient is captured as well, with
    the bits of the eager one if ``exact``; only what the tape adds for an argument that
    is used elsewhere too is added in another order.  Where several tapes watch what the
    function reads, a forward accumulator does, or what is watched is no argument but a
    tensor around it, it runs as it is; so it does in another captured function, of
    which it becomes a part.

    On a GPU, where the tensors among the arguments are or, without any, the current
    device is, a program is a CUDA graph.  Python runs at the first two calls: the
    second is recorded.  A replay gives the bits of the function itself in any case.
    Under a tape a first call more runs as it is; then the gradient is a graph too, in
    which the function runs again.  There it runs as it is if it draws random numbers or
    assigns Variables, and so it does everywhere with tensors of several devices.

    ``input_signature`` lists the (shape, dtype) of each argument and refuses others.
    ``on_failure="eager"`` warns once and runs what cannot be captured as it is.

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
        self._enclosing = Enclosing(f)
        self._signature = _signature_of(input_signature)
        self._exact = exact
        self._falls_back = falls_back
        self._versions: OrderedDict[Any, _Versions] = OrderedDict()
        self._latest: _Versions | None = None  # the last among them
        self._graphs: Graphs | None = None
        self._graph_pullbacks: GraphPullbacks | None = None
        self._lock = threading.RLock()

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        """As a method: captured with ``self`` as an argument."""
        return self if owner is None else types.MethodType(self, owner)

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        """Another, of which nothing is captured yet."""
        f = copy.deepcopy(self.python_function, memo)
        return Function(f, self._signature, self._exact, self._falls_back)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if recording() is not None:
            return self.python_function(*args, **kwargs)
        if current() is not None or primitive.checked is not None or stopped():
            return self.python_function(*args, **kwargs)
        key, leaves, arrays, home = _key(args, kwargs)
        if self._signature is not None:
            self._check(arrays)
        tapes = active()
        if home is None:
            return self.python_function(*args, **kwargs)
        if home is not CPU:
            graphs = self._on_gpus()
            if not tapes:
                return graphs(home, key, arrays, args, kwargs)
            if any(watchers(tapes, x._node) for x in self._enclosing.tensors()):
                return self.python_function(*args, **kwargs)
            return self._pullbacks_on(graphs)(home, key, tapes, leaves, (args, kwargs))
        if tapes:
            return self._called_under(tapes, key, leaves, args, kwargs)
        with self._lock:
            versions = self._versions_of(key)
            captured = versions.programs.get((), _ABSENT)
            if captured is _ABSENT or (captured and not captured.still_holds()):
                captured, result = self._captured(args, kwargs)
                versions.programs[()] = captured
                if captured is not None:
                    return result
            elif captured is not None:
                return captured.replay(arrays)
        return self.python_function(*args, **kwargs)

    def _called_under(
        self,
        tapes: tuple[Tape, ...],
        key: Any,
        leaves: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A call under tapes, recorded on the one that watches what it reads."""
        given = args, kwargs
        if np.ndarray in map(type, leaves):  # whose owner may write into it
            given = nest.map_structure(_copied, given)
            leaves = _key(*given)[1]
        found = [watchers(tapes, x._node) for x in leaves]
        around = [watchers(tapes, x._node) for x in self._enclosing.tensors()]
        with self._lock:
            versions = self._versions_of(key)
            found += [watchers(tapes, v._node) for v in versions.variables]
            version = None if any(around) else _version(found)
            captured = versions.programs.get(version, _ABSENT) if version else None
            if captured is _ABSENT or (captured and not captured.still_holds()):
                captured, result = self._captured(*given, tapes, leaves)
                if captured is not None:
                    versions.keep(captured, tapes, leaves)
                    return result
                versions.programs[version] = None
            elif captured is not None:
                return captured.replay_under(tapes, given, leaves)
        return self.python_function(*args, **kwargs)

    def _captured(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tapes: tuple[Tape, ...] = (),
        leaves: Sequence[Tensor] = (),
    ) -> tuple[_Captured | None, Any]:
        """Capture, and the result; None for what is to run as it is."""
        try:
            around = self._enclosing.tensors()
            captured, result = _capture(
                self.python_function, args, kwargs, self._exact, tapes, leaves
            )
            if around:
                captured.around = around, self._enclosing
            return captured, result
        except RunsAsItIs:
            return None, None
        except RecursionError as error:
            raise CaptureError(
                f"{self._name()} calls itself without end while it is captured, where "
                "branches on values are not taken; write a loop"
            ) from error
        except CaptureError as error:
            if not self._falls_back:
                raise
            warn_eager(self.python_function, error)
            return None, None

    def _versions_of(self, key: Any) -> _Versions:
        versions = self._versions.get(key)
        if versions is None:
            versions = self._versions[key] = _Versions()
            if len(self._versions) > MOST_PROGRAMS:
                self._versions.popitem(last=False)
        elif versions is not self._latest:
            self._versions.move_to_end(key)
        self._latest = versions
        return versions

    def _on_gpus(self) -> Graphs:
        """What calls it on GPUs."""
        if self._graphs is None:
            from .graphs import Graphs  # which a program on the CPU does not need

            self._graphs = Graphs(self.python_function, self._falls_back, tracing)
        return self._graphs

    def _pullbacks_on(self, graphs: Graphs) -> GraphPullbacks:
        """What calls it on GPUs under tapes."""
        if self._graph_pullbacks is None:
            from .graph_pullbacks import GraphPullbacks

            self._graph_pullbacks = GraphPullbacks(
                self.python_function, graphs, self._falls_back, tracing
            )
        return self._graph_pullbacks

    def _name(self) -> str:
        return name_of(self.python_function)

    def _check(self, arrays: Sequence[Any]) -> None:
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

    def programs(self) -> list[Program | Graph]:
        """The programs there are, of the last called signature last; then of GPUs."""
        found: list[Program | Graph] = [
            program
            for versions in self._versions.values()
            for captured in versions.programs.values()
            if captured is not None
            for program in captured.programs()
        ]
        return found if self._graphs is None else [*found, *self._graphs.made()]

    def program(self, *args: Any, **kwargs: Any) -> Program | Graph:
        """The program of these arguments, which a call has made: print it.

        Of calls under tapes, if there were no others.  On a GPU the second call makes
        it.
        """
        key, _, _, home = _key(args, kwargs)
        if home is not CPU and home is not None and self._graphs is not None:
            graph = self._graphs.of(home, key)
            if graph is not None:
                return graph
        if home is CPU and key in self._versions:
            for captured in self._versions[key].programs.values():
                if captured is not None:
                    return captured.program
        raise CaptureError(
            f"{self._name()}: no program for these arguments yet; call it with them"
        )


_ABSENT: Any = object()


class _Versions:
    """What there is for arguments of one signature: by what tapes watch of it.

    None where the function runs as it is.
    """

    def __init__(self) -> None:
        self.programs: dict[Any, _Captured | None] = {}
        self.variables: list[Variable] = []  # that it reads or assigns, under tapes

    def keep(
        self, captured: _Captured, tapes: tuple[Tape, ...], leaves: Sequence[Tensor]
    ) -> None:
        """Keep what was captured under tapes."""
        known = {v._node.order: v for v in (*self.variables, *captured.variables)}
        if len(known) > len(self.variables):
            self.variables = list(known.values())
            self.programs = {key: x for key, x in self.programs.items() if not key}
        values = [*leaves, *self.variables]
        found = [watchers(tapes, x._node) for x in values]
        self.programs[_version(found)] = captured


def _version(found: Sequence[tuple[Tape, ...]]) -> tuple[bool, ...] | None:
    """Which values are watched, behind if for good; None where it runs as it is."""
    try:
        tape = recorder(found)
    except RunsAsItIs:
        return None
    return (tape is not None and tape.persistent, *map(bool, found))


def _copied(x: Any) -> Any:
    return wrap(x.copy()) if isinstance(x, np.ndarray) else x


def _signature_of(given: Sequence[Any] | None) -> Any:
    if given is None:
        return None
    return [(tuple(shape), np.dtype(dtype)) for shape, dtype in given]


def _listed(signature: Sequence[Any]) -> str:
    return ", ".join(f"{dtype} {shape}" for shape, dtype in signature) or "no tensors"


_PLAIN = frozenset((*TENSORS, np.ndarray, int, float, bool, str, type(None)))


def _key(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], list[Any], list[Any], Device | None]:
    """The signature of arguments, the tensors and arrays among them, their buffers.

    And the device of those tensors: the current one where there are none, and None if
    they are on several.
    """
    nested = bool(kwargs)
    for x in args:
        if type(x) not in _PLAIN and nest.is_nested(x):
            nested = True
    leaves: Sequence[Any] = nest.flatten((args, kwargs)) if nested else args
    key: list[Any] = []
    found: list[Any] = []
    arrays: list[Any] = []
    home: Any = None
    for x in leaves:
        kind = type(x)
        if kind is np.ndarray:
            data = x
            key.append(kind)
        elif kind is Tensor or is_made(x):
            data = x._data
            device = CPU if type(data) is np.ndarray else device_of(data)
            if home is not device:
                home = device if home is None else _SEVERAL
        else:
            own = x._node.order if isinstance(x, Variable) else _static(x)
            key.append((kind, own))
            continue
        found.append(x)
        arrays.append(data)
        key.append(data.shape)
        key.append(data.dtype)
    if nested:  # and how they are
        key.append(repr(nest.map_structure(lambda x: None, (args, kwargs))))
    if home is None:
        home = current_device()
    return tuple(key), found, arrays, None if home is _SEVERAL else home


_SEVERAL: Any = object()


def _static(x: Any) -> Any:
    """A Python argument as part of the signature: by value, else by identity."""
    if isinstance(x, (float, complex, np.generic)):
        return np.array(x).tobytes()  # tells -0.0 from 0.0, and has one nan
    if type(x) is set:
        return frozenset(x)
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
    """A program, the structure of what the function returns, and its gradient."""

    def __init__(self, program: Program, assigns: bool, result: Any):
        self.program = program
        self.assigns = assigns  # whether it assigns Variables
        self.result = result
        # The tensors around the function, where there are any, and where to find them.
        self.around: tuple[list[Tensor], Enclosing] | None = None
        # Of those made under tapes:
        self.pullbacks: Pullbacks | None = None  # if they watch anything of it
        self.variables: list[Variable] = []  # that it reads or assigns
        self.noted: list[Variable] = []  # those among them that tapes take note of

    def programs(self) -> list[Program]:
        return [self.program, *(self.pullbacks.programs() if self.pullbacks else ())]

    def still_holds(self) -> bool:
        """Whether what the function found around it is there now."""
        if self.around is not None:
            tensors, enclosing = self.around
            now = enclosing.tensors()
            if len(now) != len(tensors) or any(map(operator.is_not, now, tensors)):
                return False
        for guard in self.program.guards:
            if not guard():
                return False
        return True

    def replay(self, arrays: Sequence[Any]) -> Any:
        found = replayed(self.program, arrays, self.assigns)
        return self.packed(list(map(wrap, found)), ())

    def replay_under(
        self,
        tapes: tuple[Tape, ...],
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        leaves: Sequence[Tensor],
    ) -> Any:
        """Replay, and have the tape that watches record it."""
        arrays = [x._data for x in leaves]
        if self.pullbacks is None:
            found = replayed(self.program, arrays, self.assigns)
            return self.recorded(tapes, arguments, leaves, (), found)
        with self.pullbacks.lock:
            held: list[Any] = []
            variables = self.pullbacks.variables
            found = replayed(self.program, arrays, self.assigns, variables, held)
            return self.recorded(tapes, arguments, leaves, held, found)

    def recorded(
        self,
        tapes: tuple[Tape, ...],
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        leaves: Sequence[Tensor],
        held: Sequence[Any],
        found: Sequence[Any],
    ) -> Any:
        """The result of a call, as an operation on the tapes."""
        self.note(tapes)
        pullbacks = self.pullbacks
        if pullbacks is None:
            return self.packed([wrap(x) for x in found], leaves)
        made = [wrap(x) for x in found[: pullbacks.results]]
        inputs = [*[leaves[i] for i in pullbacks.watched], *pullbacks.sources]
        outputs = [made[i] for i in pullbacks.outputs]
        saved = pullbacks.residuals([x._data for x in leaves], held, found)
        if pullbacks.function is None:  # to run again: else they are not kept alive
            arguments, held = ((), {}), ()
        record_call(Call(pullbacks, arguments, inputs, held), outputs, inputs, saved)
        return self.packed(made, leaves)

    def note(self, tapes: tuple[Tape, ...]) -> None:
        """Let tapes note the Variables that are read."""
        for variable in self.noted:
            if variable._node.tapes is not tapes:
                accessed(variable._node, tapes)

    def packed(self, made: Sequence[Tensor], leaves: Sequence[Tensor]) -> Any:
        if type(self.result) is Tensor:
            return made[0]
        tensors = iter(made)

        def leaf(x: Any) -> Any:
            if is_made(x):
                return next(tensors)
            if type(x) is _Argument:
                return leaves[x.place]
            return x.copy() if isinstance(x, np.ndarray) else x

        return nest.map_structure(leaf, self.result)


class _Argument:
    """The place of an argument among what a function returns."""

    def __init__(self, place: int):
        self.place = place


def _capture(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    exact: bool,
    tapes: tuple[Tape, ...],
    leaves: Sequence[Tensor],
) -> tuple[_Captured, Any]:
    """Run a function and write it down; nothing is changed if that fails.

    Under tapes with the sweep from its outputs; ``leaves`` are then its arrays.
    """
    from . import loops
    from .program import Program  # with what compiles: 15 ms that others save

    loops.begin()
    trace, inside = Trace(), Inside(tapes)
    inputs: list[Tensor] = []
    watched = [i for i, x in enumerate(leaves) if watchers(tapes, x._node)]

    def traced(x: Any) -> Any:
        if not is_array(x):
            return x
        data = x._data if isinstance(x, Tensor) else x
        inputs.append(wrap(Traced(trace, data.copy())))
        return inputs[-1]

    given = nest.map_structure(traced, (args, kwargs))
    with tracing, _uncollected():
        known = set(VARIABLES)
        stands = Stands(trace)
        others = [
            (variable, variable._data)
            for variable in list(VARIABLES.values())
            if type(variable._data) not in (np.ndarray, Traced)
        ]
        try:
            with trace, recording_on((inside,) if tapes else ()):
                for i in watched:
                    inside.watch(inputs[i])
                result = f(*given[0], **given[1])
                _check_result(result)
                stands.use([x for x in nest.flatten(result) if is_made(x)])
            _check_variables(known)
            if tapes:  # an argument that is returned is itself
                places = {id(x): _Argument(i) for i, x in enumerate(inputs)}
                result = nest.map_structure(lambda x: places.get(id(x), x), result)
            read, written = stands.read(), stands.written()
            stands.put_back()
            made = [leaf for leaf in nest.flatten(result) if is_made(leaf)]
            results = [array_of(y._data) for y in made]
            _check_devices(others, results)
            arrays = [array_of(x._data) for x in inputs]
            name = name_of(f)
            again = not written and all(x.kind != "host" for x in trace.instructions)
            variables = list({v._node.order: v for v, _ in (*read, *written)}.values())
            sources = [v for v in variables if inside.knows(v._node)]
            noted = list(inside.variables.values())
            pullbacks = None
            if tapes:
                values = [*leaves, *variables]
                tape = recorder([watchers(tapes, x._node) for x in values])
                if inside.enclosed or (tape and tape.persistent and not again):
                    raise RunsAsItIs
                if tape is not None:
                    pullbacks = Pullbacks(
                        name,
                        trace,
                        inside,
                        made,
                        [*[inputs[i] for i in watched], *sources],
                        arrays,
                        read,
                        exact,
                        f if again else None,
                    )
            whole = [*results, *(pullbacks.taken() if pullbacks else ())]
            program = Program(name, trace, arrays, read, whole, written, exact)
        except BaseException:
            for undo in reversed(trace.undo):
                undo()
            raise
        finally:
            stands.put_back()
            for variable, data in others:
                variable._data = data
    captured = _Captured(program, bool(written), nest.map_structure(outline, result))
    captured.pullbacks = pullbacks
    captured.variables, captured.noted = variables, noted
    held = [variable._data for variable, _ in read]
    for variable, array in written:
        variable._data = array.copy()
    found = [x.copy() for x in whole]
    return captured, captured.recorded(tapes, (args, kwargs), leaves, held, found)


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


def _check_result(result: Any) -> None:
    """Refuse what would hand out traced tensors in something that is not nested."""
    for leaf in nest.flatten(result):
        inside = list(getattr(leaf, "__dict__", {}).values())
        if isinstance(leaf, Collection) and type(leaf) not in _PLAIN:
            inside.extend(leaf)
        if isinstance(leaf, Iterator) or any(
            is_made(x) and isinstance(x._data, Traced) for x in nest.flatten(inside)
        ):
            raise CaptureError(
                f"a captured function returned a {type(leaf).__name__} with tensors in "
                "it, which a replay could not make; return lists, tuples, dicts, or "
                "dataclasses given to eg.nest.register"
            )


def _check_devices(
    others: Sequence[tuple[Variable, Any]], results: Sequence[Any]
) -> None:
    """Raise CaptureError for what a GPU did, and a program on the CPU would not do."""
    for variable, data in others:
        if variable._data is not data:
            from .graphs import elsewhere

            raise elsewhere(variable, device_of(data), CPU)
    for data in results:
        if type(data) is not np.ndarray:
            raise CaptureError(
                f"a result of a function that is captured on the CPU is on "
                f"{device_of(data)}; give the function tensors there"
            )
