"""Pullbacks: what tapes record of a captured function.

A function captured under a tape is run once on traced buffers, with a tape inside the
trace, which is then swept.  The calls of the function are its program; those of the
sweep are another one, the *pullback*: from the cotangents of the outputs to those of
what the tape watches.  What the sweep reads of the function's values, its *residuals*,
are inputs or Variables, or the program returns them beside the results.

An eager sweep meets only what leads from the outputs that were used.  So there is a
pullback for each set of used outputs, traced when it is first asked for.
"""

from __future__ import annotations

import functools
import itertools
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import nest
from .errors import CaptureError, GradientError, MatrixError
from .gradient_tape import GradientTape, swept
from .ops.elementwise import identity
from .tape import Node, Tape, VariableNode, active, recorders, recording_on
from .tensor import INEXACT, VARIABLES, Tensor, Variable, wrap
from .traced import (
    Dynamic,
    RunsAsItIs,
    Trace,
    Traced,
    ValueRead,
    current,
)

if TYPE_CHECKING:
    from .program import Program

Array = np.ndarray[Any, Any]
tracing = threading.RLock()  # variables look traced to every thread meanwhile


def array_of(data: Any) -> Any:
    """The array of a buffer, traced or not."""
    return data._array if isinstance(data, Traced) else data


def is_array(leaf: Any) -> bool:
    """Whether an argument is an array, which the next call will have others of."""
    return is_made(leaf) or isinstance(leaf, np.ndarray)


def is_made(leaf: Any) -> bool:
    """Whether a returned leaf is a tensor, which each run makes anew."""
    return isinstance(leaf, Tensor) and not isinstance(leaf, Variable)


def outline(leaf: Any) -> Any:
    """A returned tensor without its buffer."""
    return wrap(np.zeros(())) if is_made(leaf) else leaf


class Stands:
    """Traced buffers in place of the arrays of all Variables."""

    def __init__(self, trace: Trace):
        self.rows = [
            (variable, variable._data, Traced(trace, variable._data, False))
            for variable in list(VARIABLES.values())
            if type(variable._data) is np.ndarray
        ]
        for variable, _, stand in self.rows:
            variable._data = stand

    def use(self, tensors: Sequence[Any]) -> None:
        """Have what is returned and assigned in the trace, which is open yet.

        A Variable's value may be returned or assigned as it is, by no instruction.
        """
        buffers = [x._data for x in tensors]
        buffers += [v._data for v, _, stand in self.rows if v._data is not stand]
        for buffer in buffers:
            if isinstance(buffer, Traced):
                buffer.own()

    def read(self) -> list[tuple[Variable, Array]]:
        """The Variables whose values were used, and the arrays that these are."""
        return [(v, stand._array) for v, _, stand in self.rows if stand.used]

    def written(self) -> list[tuple[Variable, Any]]:
        """The Variables that were assigned, and their new values."""
        return [
            (v, array_of(v._data)) for v, _, stand in self.rows if v._data is not stand
        ]

    def put_back(self) -> None:
        for variable, data, _ in self.rows:
            variable._data = data


def replayed(
    program: Program,
    arrays: Sequence[Array],
    assigns: bool,
    variables: Sequence[Variable] = (),
    held: list[Array] | None = None,
) -> list[Array]:
    """Run a program; its results.  ``held`` gets the values of Variables before it.

    One that assigns Variables waits while another thread captures a function, and one
    that finds a stand in place of a value begins anew behind it.
    """
    try:
        if not assigns:
            try:
                if held is not None:
                    held[:] = [variable._data for variable in variables]
                found = program(arrays)
                if held is None or Traced not in map(type, held):
                    return found
            except ValueRead:
                pass
        with tracing:
            if held is not None:
                held[:] = [variable._data for variable in variables]
            return program(arrays)
    except np.linalg.LinAlgError as error:
        raise MatrixError(f"{program.name}: {error}") from error


# ----------------------------------------------------------------- what tapes watch


class Inside(Tape):
    """The tape in a trace: it also knows the Variables that the tapes outside know."""

    __slots__ = ("enclosed", "outside")

    def __init__(self, outside: tuple[Tape, ...]):
        super().__init__(
            watches_variables=any(tape.watches_variables for tape in outside),
            records=any(tape.records for tape in outside),
        )
        self.outside = outside
        self.enclosed = False  # whether a tensor was met that only those outside know

    def knows(self, node: Node | None) -> bool:
        if super().knows(node):
            return True
        if not any(tape.knows(node) for tape in self.outside):
            return False
        self.enclosed |= type(node) is not VariableNode
        return type(node) is VariableNode


def watchers(tapes: tuple[Tape, ...], node: Node | None) -> tuple[Tape, ...]:
    """The tapes that know a value, or will when it is read."""
    if node is None:
        return ()
    if node.tapes is tapes:
        return tapes
    if len(tapes) == 1:
        return tapes if _will_know(tapes[0], node) else ()
    return tuple([tape for tape in tapes if _will_know(tape, node)])


def _will_know(tape: Tape, node: Node) -> bool:
    reads = type(node) is VariableNode and node.trainable and node.differentiable
    return (reads and tape.watches_variables and tape.records) or tape.knows(node)


def recorder(found: Sequence[tuple[Tape, ...]]) -> Tape | None:
    """The only tape among the watchers of a function's arguments and Variables.

    Several may ask for a second derivative, of which pullbacks know nothing, and an
    accumulator asks for tangents: there the function runs as it is.
    """
    kinds = set(found)
    kinds.discard(())
    if not kinds:
        return None
    tapes = kinds.pop()
    if kinds or len(tapes) > 1 or tapes[0].carries_tangents or tapes[0].stands_for:
        raise RunsAsItIs
    return tapes[0]


class Enclosing:
    """What a function finds around it: its closure, and the globals that it names."""

    def __init__(self, f: Callable[..., Any]):
        self._code = getattr(f, "__code__", None)
        self._cells = getattr(f, "__closure__", None) or ()
        self._globals = getattr(f, "__globals__", {})

    @functools.cached_property
    def _names(self) -> list[str]:
        """The globals that its code names, and that of the functions within."""
        import dis  # only captured functions need it

        codes = [] if self._code is None else [self._code]
        names: list[str] = []
        for code in codes:
            codes += [x for x in code.co_consts if isinstance(x, types.CodeType)]
            instructions = dis.get_instructions(code)
            names += [x.argval for x in instructions if x.opname == "LOAD_GLOBAL"]
        return list(dict.fromkeys(names))

    def tensors(self) -> list[Tensor]:
        """The tensors among it now."""
        found = [self._globals.get(name) for name in self._names]
        for cell in self._cells:
            try:
                found.append(cell.cell_contents)
            except ValueError:  # not filled yet
                continue
        return [x for x in found if type(x) is Tensor]


# --------------------------------------------------------------------------- sweeps


class _Sweep:
    """A traced sweep from some of a function's outputs."""

    def __init__(
        self,
        trace: Trace,
        tape: Tape,
        targets: Sequence[Tensor],
        sources: Sequence[Tensor],
    ):
        start, undone = len(trace.instructions), len(trace.undo)
        seeds = [Traced(trace, np.ones_like(array_of(y._data))) for y in targets]
        stands = Stands(trace)
        try:
            # the values are of no matter, and nor are warnings about them
            with trace, recording_on(()), np.errstate(all="ignore"):
                wrapped: list[Tensor | None] = [wrap(seed) for seed in seeds]
                grads = swept(tape, list(targets), wrapped, list(sources), False)
                stands.use([g for g in grads if g is not None])
            self.read, self.written = stands.read(), stands.written()
        finally:
            stands.put_back()
            for undo in reversed(trace.undo[undone:]):
                undo()
            del trace.undo[undone:]
            self.instructions = trace.instructions[start:]
            del trace.instructions[start:]
        self.cotangents = [seed._array for seed in seeds]
        self.grads = [None if g is None else array_of(g._data) for g in grads]

    def values(self) -> Iterator[Array]:
        """The arrays whose values it reads."""
        for instruction in self.instructions:
            if instruction.call not in _BY_SHAPE:
                yield from instruction.reads
        yield from (g for g in self.grads if g is not None)

    def cells(self) -> list[list[int]]:
        """Where the counters stand whose numbers it reads."""
        found = {
            id(x.cell): x.cell
            for instruction in self.instructions
            for x in instruction.args
            if type(x) is Dynamic
        }
        return list(found.values())


_BY_SHAPE = (np.zeros_like, np.ones_like)  # of their argument they read nothing else


class _Run:
    """A traced run of a function, as far as its sweeps need it."""

    def __init__(
        self,
        trace: Trace,
        tape: Inside,
        targets: Sequence[Tensor],
        sources: Sequence[Tensor],
    ):
        self.trace, self.tape = trace, tape
        self.targets, self.sources = targets, sources
        self.views = [x for x in trace.instructions if x.kind == "view"]
        self._source: dict[int, Array] = {}
        seen: set[int] = set()
        for instruction in trace.instructions:
            seen.update(map(id, instruction.reads))
            for out in instruction.outputs:
                if instruction.kind == "view" and id(out) not in seen:
                    self._source[id(out)] = next(
                        x for x in instruction.reads if np.may_share_memory(x, out)
                    )
                seen.add(id(out))
        self.made = {id(x): x for i in trace.instructions for x in i.outputs}
        self.changed = {
            id(self._root(x))
            for instruction in trace.instructions
            if instruction.kind in ("inplace", "host")
            for x in instruction.reads
        }

    def sweep(self, used: Sequence[int]) -> _Sweep:
        targets = [self.targets[i] for i in used]
        try:
            return _Sweep(self.trace, self.tape, targets, self.sources)
        except CaptureError:
            raise
        except Exception as error:  # a rule's own, for whoever asks for the gradient
            raise RunsAsItIs from error

    def _root(self, array: Array) -> Array:
        """The array that one is a view of."""
        while id(array) in self._source:
            array = self._source[id(array)]
        return array

    def roots(self, sweep: _Sweep) -> dict[int, Array]:
        """The arrays whose values a sweep reads, by their ids."""
        return {id(x): x for x in map(self._root, sweep.values())}


class Pullbacks:
    """The pullbacks of one program, and what it has to keep for them.

    ``outputs`` are the places of the results that have a gradient, ``results`` is how
    many there are.
    """

    def __init__(
        self,
        name: str,
        trace: Trace,
        tape: Inside,
        made: Sequence[Tensor],
        sources: Sequence[Tensor],
        inputs: Sequence[Array],
        read: Sequence[tuple[Variable, Array]],
        exact: bool,
        function: Callable[..., Any] | None,
    ):
        self.name = name
        self.exact = exact
        self.function = function  # None where it must not run again
        self.lock = threading.RLock()  # its programs have one memory
        self.sources = [x for x in sources if isinstance(x, Variable)]
        self.watched = [
            i
            for i, x in enumerate(inputs)
            if any(x is array_of(source._data) for source in sources)
        ]
        self.variables = [variable for variable, _ in read]
        self.outputs = [
            i
            for i, y in enumerate(made)
            if y._data.dtype.kind in INEXACT and tape.knows(y._node)
        ]
        run = _Run(trace, tape, [made[i] for i in self.outputs], sources)
        whole = tuple(range(len(self.outputs)))
        sweep = run.sweep(whole)
        self.cells = sweep.cells()
        self.results = len(made)
        self._extra: list[Array] = []
        self._kept: list[Array] = []
        self._origins: list[tuple[int, int]] = []  # see ``residuals``
        origins = {id(x): (0, i) for i, x in enumerate(inputs)}
        origins |= {id(x): (1, i) for i, (_, x) in enumerate(read)}
        results = {id(array_of(y._data)): i for i, y in enumerate(made)}
        for key, root in run.roots(sweep).items():
            origin = origins.get(key)
            if origin is None and key not in run.made:
                continue  # a constant
            if origin is None or key in run.changed:
                origin = 2, results.get(key, len(made) + len(self._extra))
                if key not in results:
                    self._extra.append(root)
            self._kept.append(root)
            self._origins.append(origin)
        self._programs = {whole: self._program(run, sweep)}
        self._run = run if len(whole) > 1 else None  # else there is no other set
        if self._run is None:
            self._kept = []
            tape.close()

    def _program(self, run: _Run, sweep: _Sweep) -> _Pullback:
        from .program import Program  # with what compiles: 15 ms that others save

        roots = run.roots(sweep)
        places = [i for i, x in enumerate(self._kept) if id(x) in roots]
        # of its own: a program's inputs are where it reads them
        own = {id(self._kept[i]): np.empty_like(self._kept[i]) for i in places}
        inputs = [*own.values(), *sweep.cotangents]
        part = Trace()
        part.instructions = [
            instruction.moved(own) for instruction in (*run.views, *sweep.instructions)
        ]
        grads = [own.get(id(g), g) for g in sweep.grads if g is not None]
        name = f"the gradient of {self.name}"
        program = Program(
            name, part, inputs, sweep.read, grads, sweep.written, self.exact
        )
        return _Pullback(program, sweep, places)

    def taken(self) -> list[Array]:
        """What the program is to return behind its results; it is asked for once."""
        extra, self._extra = self._extra, []
        return extra

    def residuals(
        self, arrays: Sequence[Array], held: Sequence[Array], found: Sequence[Array]
    ) -> list[Array]:
        """What a call keeps of its inputs, its Variables' values and its results."""
        given = arrays, held, found
        return [given[kind][i] for kind, i in self._origins]

    def pullback(self, used: tuple[int, ...]) -> _Pullback:
        """The pullback for the cotangents of these outputs."""
        found = self._programs.get(used)
        if found is None:
            run = self._run
            assert run is not None
            if current() is not None:
                raise CaptureError(
                    f"the gradient of {self.name}: it is asked for first while another "
                    "function is captured; record and differentiate within that one"
                )
            with tracing:
                if used in self._programs:  # another thread was faster
                    return self._programs[used]
                sweep = run.sweep(used)
                missing = set(run.roots(sweep)) & set(run.made)
                if missing - {id(x) for x in self._kept}:
                    raise CaptureError(
                        f"the gradient of {self.name}: that of outputs {used} reads "
                        "other values than that of all of them; call its "
                        "python_function instead"
                    )
                found = self._programs[used] = self._program(run, sweep)
        return found

    def programs(self) -> list[Program]:
        return [pullback.program for pullback in self._programs.values()]


class _Pullback:
    """A program from residuals and cotangents to gradients."""

    __slots__ = ("assigns", "connected", "places", "program", "reads")

    def __init__(
        self,
        program: Program,
        sweep: _Sweep,
        places: list[int],
    ):
        self.program = program
        self.assigns = bool(sweep.written)  # Variables
        self.reads = bool(sweep.read or sweep.written)
        self.places = places  # which of the residuals it reads
        self.connected = [g is not None for g in sweep.grads]  # which sources are


# ---------------------------------------------------------------------------- calls


class Call:
    """One call of a captured function, as the op of a tape's entry."""

    __slots__ = ("arguments", "held", "inputs", "name", "numbers", "pullbacks")
    form = "call"
    plain = 0

    def __init__(
        self,
        pullbacks: Pullbacks,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        inputs: Sequence[Tensor],
        held: Sequence[Array],
    ):
        self.name = pullbacks.name
        self.pullbacks = pullbacks
        self.arguments = arguments
        self.inputs = inputs  # those of its arguments and Variables that are watched
        self.held = held  # what the Variables were
        self.numbers = [cell[0] for cell in pullbacks.cells]

    def backward(
        self, residuals: Sequence[Array], dys: Sequence[Any], lift: bool
    ) -> Sequence[Any]:
        """The gradients of the inputs; None among ``dys`` for outputs not used.

        On buffers, or with ``lift`` on Tensors.
        """
        used = tuple([i for i, dy in enumerate(dys) if dy is not None])
        seeds = [dys[i] for i in used]
        if lift:
            if recorders(active(), [x._node for x in (*seeds, *self.inputs)]):
                return self._recorded(dys)
            seeds = [dy._data for dy in seeds]
        pullback = self.pullbacks.pullback(used)
        program = pullback.program
        kept = [residuals[i] for i in pullback.places]

        def pull(*cotangents: Any) -> list[Array]:
            with self.pullbacks.lock:
                for cell, number in zip(
                    self.pullbacks.cells, self.numbers, strict=True
                ):
                    cell[0] = number
                return replayed(program, [*kept, *cotangents], pullback.assigns)

        trace = current()
        if trace is None:
            found = pull(*seeds)
        elif pullback.reads:
            raise CaptureError(
                f"{program.name}: it reads or assigns Variables, and was recorded "
                "before the captured function that asks for it; record and "
                "differentiate within that function"
            )
        else:  # the tape was there before the trace: a call on what it kept
            found = trace.record(pull, tuple(seeds), {}, program.name)
        grads = iter(map(wrap, found) if lift else found)
        return [next(grads) if it else None for it in pullback.connected]

    def _recorded(self, dys: Sequence[Any]) -> list[Any]:
        """The same as operations that the tapes record: the function runs again."""
        function = self.pullbacks.function
        if function is None:
            raise GradientError(
                f"the gradient of {self.name}: it cannot be differentiated again, "
                "since the function assigns Variables or draws random numbers; watch "
                "its arguments with both tapes before it is called"
            )
        variables = self.pullbacks.variables
        now = [variable._data for variable in variables]
        pairs = zip(self.pullbacks.outputs, dys, strict=True)
        used = [(i, dy) for i, dy in pairs if dy is not None]
        try:
            for variable, data in zip(variables, self.held, strict=True):
                variable._data = data
            return again(
                function,
                self.pullbacks.watched,
                self.pullbacks.sources,
                [i for i, _ in used],
                self.arguments,
                [dy for _, dy in used],
            )
        finally:
            for variable, data in zip(variables, now, strict=True):
                variable._data = data


def again(
    function: Callable[..., Any],
    watched: Sequence[int],
    variables: Sequence[Variable],
    outputs: Sequence[int],
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    dys: Sequence[Any],
) -> list[Any]:
    """Run a function on a tape of its own; the gradients of some of its outputs.

    By those of the arrays among its arguments that are ``watched``, and by Variables.
    ``outputs`` are counted among the tensors that it makes.
    """
    places = itertools.count()
    copies = []

    def fresh(x: Any) -> Any:
        """A copy, so that one tensor in two places has two gradients."""
        if is_array(x) and next(places) in watched:
            x = identity(x)
            copies.append(x)
        return x

    args, kwargs = nest.map_structure(fresh, arguments)
    sources = [*copies, *variables]
    with GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        result = function(*args, **kwargs)
    known = set(map(id, nest.flatten((args, kwargs))))  # not results of its own
    leaves = [leaf for leaf in nest.flatten(result) if id(leaf) not in known]
    made = [leaf for leaf in leaves if is_made(leaf)]
    grads: list[Any] = tape.gradient([made[i] for i in outputs], sources, list(dys))
    return grads
