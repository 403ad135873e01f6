"""Programs: the instructions of a trace, laid out in memory and replayed.

Every array a program needs has its place before it runs.  Views are made once; what is
left is a list of calls with their arguments and results bound, and a replay makes them
one after the other.  Those of compiled loops (``loops``) run without Python between
them.  Buffers whose values are no longer needed serve again.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .blocks import Blocks
from .fusion import fuse
from .loops import Call, Run, address, calls_of
from .simplification import simplify
from .tensor import Variable
from .traced import Dynamic, Instruction, Trace, results_in

Array = np.ndarray[Any, Any]
ALIGNMENT = 64


class Program:
    """A captured function for one signature.  Print it to read it."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        inputs: Sequence[Array],
        read: Sequence[tuple[Variable, Array]],
        results: Sequence[Array],
        written: Sequence[tuple[Variable, Array]],
        exact: bool,
    ):
        self.name = name
        self.guards = trace.guards  # () -> bool: what must still be true of objects
        needed = [*results, *(array for _, array in written)]
        variables = [x for _, x in read]
        changing = [*inputs, *variables]
        alive = _needed(trace.instructions, needed)
        alive = _needed(simplify(alive, changing, needed), needed)
        fused = _counted_first(fuse(alive, changing, needed, exact))
        plan = _Plan(fused, inputs, variables, needed)
        # of the program's own arrays: those of the trace are let go
        self.instructions = [plan.placed(instruction) for instruction in fused]
        self.inputs = [plan.place(x) for x in inputs]
        self.calls = plan.calls
        self._runs = plan.grouped(exact)
        returned = {id(plan.roots.of(x)) for x in needed}
        self._inputs, self._moved_inputs = _split(
            self.inputs,
            [plan.moves(x) if id(x) not in returned else [] for x in inputs],
        )
        self._results, self._moved_results = _split(
            [plan.place(x) for x in results],
            [plan.moves(x) if _only(x, needed, plan) else [] for x in results],
        )
        self.bytes_eager, self.bytes_planned = plan.bytes_eager, plan.bytes_planned
        # Variables: the array the program reads, and the one it was last found with
        self._read = [(v, plan.place(x)) for v, x in read]
        self._known: list[Any] = [None] * len(read)
        self._commits = _commits([(v, plan.place(x)) for v, x in written], self._read)
        outputs = [plan.place(x) for x in needed]
        self._labels = _Labels(self.instructions, self.inputs, self._read, outputs)

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Run on these inputs; the results belong to the caller."""
        for i, place in self._inputs:
            place[...] = inputs[i]
        for i, moved in self._moved_inputs:
            moved.take(inputs[i])
        known = self._known
        for i, (variable, place) in enumerate(self._read):
            if variable._data is not known[i]:
                known[i] = variable._data
                place[...] = variable._data
        begun: Sequence[tuple[int, Array]] = ()
        if self._moved_results:
            begun = [(i, moved.begin()) for i, moved in self._moved_results]
        for run in self._runs:
            run()
        found = [place.copy() for _, place in self._results]
        for i, made in begun:
            found.insert(i, made)
        for row in self._commits:
            if not row.publish():
                row.publish_anew()
                self._known = [variable._data for variable, _ in self._read]
                row.count()  # when all references to it are there
        return found

    def __str__(self) -> str:
        within = sum(isinstance(call, Call) for call in self.calls)
        lines = [
            f"{self.name}: {len(self.calls)} calls, {within} of them of loops in "
            f"{len(self._runs) - len(self.calls) + within} run(s), {self.memory()}"
        ]
        lines += [f"  {text}" for text in self._labels.header]
        for instruction in self.instructions:
            lines.append(f"  {self._labels.line(instruction)}")
        results = ", ".join(map(self._labels.name, self._labels.results))
        return "\n".join([*lines, f"  return {results}"])

    def memory(self) -> str:
        """How many bytes its values take, each with its own buffer, and as planned."""
        return f"{self.bytes_planned:,} bytes planned, {self.bytes_eager:,} eager"

    def to_dot(self) -> str:
        """The program as a graph in Graphviz's language."""
        return self._labels.dot(self.name, self.instructions)


# ------------------------------------------------------------------ what is needed


def _touched(instruction: Instruction) -> Sequence[Array]:
    """What an instruction writes to: its results, or the arguments among them."""
    if instruction.kind == "inplace":
        return instruction.reads
    return instruction.outputs


class _Roots:
    """Which arrays share memory: each has the root whose memory it is."""

    def __init__(self, instructions: Sequence[Instruction]):
        self.root: dict[int, Array] = {}
        for instruction in instructions:
            for out in instruction.outputs:
                if id(out) not in self.root:
                    self.root[id(out)] = out
                    if instruction.kind == "view":
                        source = next(
                            x for x in instruction.reads if np.may_share_memory(x, out)
                        )
                        self.root[id(out)] = self.of(source)

    def of(self, array: Array) -> Array:
        return self.root.get(id(array), array)

    def join(self, parts: Sequence[Array], whole: Array) -> None:
        """Let the roots of some arrays be parts of another."""
        ids = {id(x) for x in parts}
        for key, root in self.root.items():
            if id(root) in ids:
                self.root[key] = whole
        self.root.update(dict.fromkeys(ids, whole))


def _needed(
    instructions: Sequence[Instruction], results: Sequence[Array]
) -> list[Instruction]:
    """The instructions without those whose results nobody reads."""
    roots = _Roots(instructions)
    alive = {id(roots.of(x)) for x in results}
    kept = []
    for instruction in reversed(instructions):
        touched = _touched(instruction)
        host = instruction.kind == "host"
        if host or any(id(roots.of(x)) in alive for x in touched):
            kept.append(instruction)
            alive |= {id(roots.of(x)) for x in instruction.reads}
    return kept[::-1]


def _counted_first(instructions: Sequence[Instruction]) -> list[Instruction]:
    """The instructions with those of Python's counters before all that they can pass.

    So that what they stood between is one run.
    """
    found: list[Instruction] = []
    place = 0  # where the next one may stand
    for instruction in instructions:
        if instruction.kind == "host" and not instruction.reads:
            found.insert(place, instruction)
            place += 1
            continue
        found.append(instruction)
        counted = any(type(x) is Dynamic for x in instruction.args)
        if instruction.kind == "host" or counted:
            place = len(found)
    return found


# ------------------------------------------------------------- what comes and goes

LARGE = 2**16  # bytes from which inputs and results are not copied, if that can be


Move = Callable[[Array], None]  # lets calls use another array in place of one


class _Moved:
    """The place of an input or result that is used where it lies, not copied."""

    def __init__(self, array: Array, moves: list[Move]):
        self.array = array
        self.moves = moves

    def take(self, x: Array) -> None:
        """Read an input where it lies, if it lies as the place does."""
        if x.strides != self.array.strides or not x.flags.aligned:
            self.array[...] = x
            x = self.array
        for move in self.moves:
            move(x)

    def begin(self) -> Array:
        """The array that the calls will fill, which is to stay the result."""
        made = np.empty_like(self.array)
        for move in self.moves:
            move(made)
        return made


def _split(
    places: Sequence[Array], moves: Sequence[list[Move]]
) -> tuple[list[tuple[int, Array]], list[tuple[int, _Moved]]]:
    """Which of the inputs, or results, are copied, and which are moved."""
    copied = [(i, x) for i, x in enumerate(places) if not moves[i]]
    moved = [(i, _Moved(x, moves[i])) for i, x in enumerate(places) if moves[i]]
    return copied, moved


def _only(array: Array, needed: Sequence[Array], plan: _Plan) -> bool:
    """Whether an instruction makes the array, and no other result shares its memory."""
    root = plan.roots.root.get(id(array))
    return root is array and sum(plan.roots.of(x) is root for x in needed) == 1


# ------------------------------------------------------------------------ the plan


class _Plan:
    """Places for all arrays, and the calls bound to them."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        inputs: Sequence[Array],
        variables: Sequence[Array],
        results: Sequence[Array],
    ):
        self.roots = _Roots(instructions)
        self.places: dict[int, Array] = {}
        self.calls: list[Call | Callable[[], Any]] = []
        self._found: list[Callable[[], Any]] = []
        self._fixed: set[int] = set()  # the roots whose arrays must stay where they are
        for x in (*inputs, *variables):
            self.places[id(x)] = x
        self.joined = _joined(instructions, self.roots, variables, results, self.places)
        last: dict[int, int] = {}
        for i, instruction in enumerate(instructions):
            for x in (*instruction.reads, *instruction.outputs):
                last[id(self.roots.of(x))] = i
        forever = {id(self.roots.of(x)) for x in (*inputs, *variables, *results)}
        varying = self._varying(instructions, (*inputs, *variables))
        pool = _Pool()
        held: dict[int, Array] = {}  # bytes of the root that is alive, by its id
        for i, instruction in enumerate(instructions):
            if instruction.kind in ("fresh", "host"):
                for out in instruction.outputs:
                    if id(out) in self.places:
                        continue
                    if id(out) in forever or id(out) not in varying:
                        self.places[id(out)] = _like(out, pool.own(out.nbytes))
                    else:
                        held[id(out)] = memory = pool.take(out.nbytes)
                        self.places[id(out)] = _like(out, memory)
            elif instruction.kind == "view":
                self._make_view(instruction)
            if instruction.kind != "view" and id(instruction) not in self.joined:
                written = _touched(instruction)
                if instruction.kind == "host" or any(
                    id(self.roots.of(x)) in varying for x in written
                ):
                    self._add(instruction)
                else:
                    self._bound(instruction)()  # once is enough
            for x in (*instruction.reads, *instruction.outputs):
                root = self.roots.of(x)
                if last[id(root)] == i and id(root) in held:
                    pool.give(held.pop(id(root)))
        self.bytes_planned = pool.bytes
        self.bytes_eager = sum(
            out.nbytes
            for instruction in instructions
            if instruction.kind in ("fresh", "host")
            for out in instruction.outputs
        )

    def _varying(
        self, instructions: Sequence[Instruction], given: Sequence[Array]
    ) -> set[int]:
        """The ids of roots whose values may differ from one run to the next."""
        of = self.roots.of
        found = {id(of(x)) for x in given}
        for instruction in instructions:
            if instruction.kind == "inplace":  # what it changes must be made anew
                found |= {id(of(x)) for x in instruction.reads}
        for instruction in instructions:
            by_shape = instruction.call in _BY_SHAPE
            dynamic = any(type(x) is Dynamic for x in instruction.args)
            if (
                instruction.kind == "host"
                or dynamic
                or (not by_shape and any(id(of(x)) in found for x in instruction.reads))
            ):
                found |= {id(of(x)) for x in instruction.outputs}
        return found

    def _add(self, instruction: Instruction) -> None:
        """Append the steps that an instruction takes."""
        arrays = (*instruction.reads, *instruction.outputs)
        if instruction.kind in ("fresh", "inplace"):
            calls = calls_of(
                instruction.call,
                self._placed(instruction.args),
                {k: self._placed(v) for k, v in instruction.kwargs.items()},
                [self.place(out) for out in instruction.outputs]
                if instruction.kind == "fresh"
                else [],
            )
            if calls is not None:
                self.calls += calls
                if instruction.kind == "inplace":
                    self._fixed |= {id(self.roots.of(x)) for x in arrays}
                return
        call = self._bound(instruction)
        self.calls.append(call)
        direct: list[Any] = []
        if isinstance(call, partial) and instruction.kind == "fresh":
            direct = [*call.args, *call.keywords.values()]
        for x in arrays:
            root = self.roots.of(x)
            if root is not x or not any(self.place(x) is y for y in direct):
                self._fixed.add(id(root))

    def grouped(self, exact: bool) -> list[Callable[[], Any]]:
        """The steps, with calls of loops that follow each other as one run."""
        for of_loops, steps in itertools.groupby(
            self.calls, lambda step: isinstance(step, Call)
        ):
            if of_loops:
                calls = [x for x in steps if isinstance(x, Call)]
                self._found.append(Run(calls, exact))
            else:
                self._found += [x for x in steps if not isinstance(x, Call)]
        return self._found

    def moves(self, array: Array) -> list[Move]:
        """How to let the steps use another array for a large one; none if they can't.

        That is so where a step in Python uses a view of it, and where something is
        changed in place, which may be somebody's own.
        """
        root = self.roots.of(array)
        if root is not array or array.nbytes < LARGE or id(array) in self._fixed:
            return []
        place = self.place(array)
        found = []
        for i, step in enumerate(self._found):
            if isinstance(step, Run):
                found.append(step.pointers(place))
            elif isinstance(step, partial):
                found += self._rebinding(i, step, place)
        return found

    def _rebinding(self, i: int, step: partial[Any], place: Array) -> list[Move]:
        """How to let a step in Python use another array, if it uses this one."""
        places = [k for k, x in enumerate(step.args) if x is place]
        names = [name for name, x in step.keywords.items() if x is place]
        if not places and not names:
            return []
        steps = self._found

        def move(x: Array) -> None:
            args, keywords = list(steps[i].args), dict(steps[i].keywords)  # type: ignore[attr-defined]
            for k in places:
                args[k] = x
            keywords |= dict.fromkeys(names, x)
            steps[i] = partial(step.func, *args, **keywords)

        return [move]

    def place(self, array: Array) -> Array:
        """Where an array of the trace lies in the program; a constant is itself."""
        return self.places.get(id(array), array)

    def _placed(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self.place(value)
        if type(value) in (tuple, list):
            return type(value)([self._placed(item) for item in value])
        return value

    def _make_view(self, instruction: Instruction) -> None:
        args = self._placed(instruction.args)
        kwargs = {k: self._placed(v) for k, v in instruction.kwargs.items()}
        made = instruction.call(*args, **kwargs)
        for out, view in zip(instruction.outputs, results_in(made), strict=True):
            self.places[id(out)] = view

    def _bound(self, instruction: Instruction) -> Callable[[], Any]:
        """The instruction as a call without arguments."""
        args = self._placed(instruction.args)
        kwargs = {k: self._placed(v) for k, v in instruction.kwargs.items()}
        function = instruction.call
        if instruction.kind in ("inplace", "host"):
            return partial(function, *args, **kwargs)
        outs = [self.place(out) for out in instruction.outputs]
        dynamic = any(type(x) is Dynamic for x in args)
        if not dynamic and (bound := _into(function, args, kwargs, outs)):
            return bound

        def run() -> None:
            given = [x.cell[0] if type(x) is Dynamic else x for x in args]
            found = function(*given, **kwargs)
            for out, part in zip(outs, results_in(found), strict=True):
                np.copyto(out, part)

        return run

    def placed(self, instruction: Instruction) -> Instruction:
        """The instruction on the program's own arrays."""
        return Instruction(
            instruction.name,
            instruction.call,
            self._placed(instruction.args),
            {k: self._placed(v) for k, v in instruction.kwargs.items()},
            tuple(map(self.place, instruction.outputs)),
            instruction.kind,
        )


# Functions of shapes and dtypes alone.
_BY_SHAPE = frozenset((np.zeros_like, np.ones_like))
# Functions and methods that write where they are told by out=.
_METHODS = frozenset(
    getattr(np.ndarray, name)
    for name in "sum mean max min prod argmax argmin cumsum cumprod std var".split()
)
_TWO_ONLY = (np.maximum, np.minimum)  # by position
_FUNCTIONS = frozenset((np.concatenate, np.stack, np.dot, np.cumsum, np.cumprod))


def _into(
    function: Any, args: Any, kwargs: dict[str, Any], outs: list[Array]
) -> Callable[[], Any] | None:
    """A call that writes its result into ``outs`` without a copy, if there is one."""
    if isinstance(function, np.ufunc):
        if len(outs) == 1 and (kwargs or function in _TWO_ONLY):
            return partial(function, *args, out=outs[0], **kwargs)
        if kwargs:
            return partial(function, *args, out=tuple(outs), **kwargs)
        return partial(function, *args, *outs)
    if isinstance(function, Blocks):
        return partial(function, *args, out=outs[0])
    if function is np.ndarray.dot:
        return partial(np.dot, *args, outs[0])
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, np.ufunc) and name in ("reduce", "accumulate"):
        return partial(function, *args, out=outs[0], **kwargs)
    if function is np.concatenate:
        kwargs = {name: x for name, x in kwargs.items() if name != "dtype"}
    if function in _METHODS or function in _FUNCTIONS:
        return partial(function, *args, out=outs[0], **kwargs)
    if function is np.ndarray.copy:
        return partial(np.copyto, outs[0], args[0])
    if function is np.ndarray.astype:
        return partial(np.copyto, outs[0], args[0], casting="unsafe")
    return None


def _like(array: Array, memory: Array) -> Array:
    """An array in this memory with the dtype, shape and order of axes of another."""
    order = sorted(range(array.ndim), key=lambda i: -abs(array.strides[i]))
    dense = memory[: array.nbytes].view(array.dtype)
    dense = dense.reshape([array.shape[i] for i in order])
    return dense.transpose(np.argsort(order)) if array.ndim else dense.reshape(())


class _Pool:
    """Memory that is lent, given back, and lent again for as many bytes."""

    def __init__(self) -> None:
        self.free: dict[int, list[Array]] = {}
        self.bytes = 0

    def take(self, size: int) -> Array:
        """A free piece of a size, or a new one."""
        free = self.free.get(_rounded(size))
        return free.pop() if free else self.own(size)

    def own(self, size: int) -> Array:
        """A new piece, for values that stay from one run to the next."""
        size = _rounded(size)
        self.bytes += size
        raw = np.empty(size + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + size]

    def give(self, memory: Array) -> None:
        self.free.setdefault(memory.nbytes, []).append(memory)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _joined(
    instructions: Sequence[Instruction],
    roots: _Roots,
    variables: Sequence[Array],
    results: Sequence[Array],
    places: dict[int, Array],
) -> set[int]:
    """Concatenations that need no call: their parts are placed side by side.

    Of all gradients for the optimizer, and of all variables that it moves, unless the
    old values of these are used when it has moved them.  Fills in the places; returns
    the ids of the instructions that are done with that.
    """
    made = {
        id(out)
        for instruction in instructions
        if instruction.kind == "fresh"
        for out in instruction.outputs
    }
    own = {id(x) for x in variables}
    done: set[int] = set()
    taken: set[int] = set()
    for instruction in instructions:
        kwargs = dict(instruction.kwargs)
        dtype = kwargs.pop("dtype", None)
        if instruction.call is not np.concatenate or kwargs != {"axis": None}:
            continue
        (parts,), (out,) = instruction.args, instruction.outputs
        bases = [roots.of(x) for x in parts]
        ids = {id(x) for x in bases}
        simple = (
            (ids <= made or ids <= own)
            and len(ids) == len(parts)
            and not ids & taken
            and all(
                x.dtype == out.dtype
                and x.size == base.size
                and x.flags.c_contiguous
                and base.flags.c_contiguous
                for x, base in zip(parts, bases, strict=True)
            )
        )
        if not simple or (dtype is not None and out.dtype != dtype):
            continue
        if _still_used(ids, out, instructions, results, roots):
            continue
        taken |= ids
        whole = np.empty(out.size, out.dtype)
        places[id(out)] = whole
        start = 0
        for x in bases:
            piece = whole[start : start + x.size].reshape(x.shape)
            if ids <= own:
                piece[...] = x
            places[id(x)] = piece
            start += x.size
        roots.join(bases, out)
        done.add(id(instruction))
    return done


def _still_used(
    ids: set[int],
    whole: Array,
    instructions: Sequence[Instruction],
    results: Sequence[Array],
    roots: _Roots,
) -> bool:
    """Whether roots are read after an array, which they lie in, was changed."""
    changed = False
    for instruction in instructions:
        read = {id(roots.of(x)) for x in instruction.reads}
        if changed and read & ids:
            return True
        changed |= instruction.kind == "inplace" and id(whole) in read
    return changed and any(id(roots.of(x)) in ids for x in results)


# --------------------------------------------------------------------- Variables


def _commits(
    written: Sequence[tuple[Variable, Array]], read: Sequence[tuple[Variable, Array]]
) -> list[_Shared]:
    """How the variables that a program assigns get their new values.

    Those whose values lie in one array get views of one copy of it.  As long as nobody
    else holds the last copy, the new values are written into it.
    """
    places = {id(v): place for v, place in read}
    by_memory: dict[int, list[tuple[Variable, Array]]] = {}
    for variable, array in written:
        by_memory.setdefault(id(_owner(array)), []).append((variable, array))
    return [
        _Shared(rows, [places.get(id(v)) for v, _ in rows])
        for rows in by_memory.values()
    ]


def _owner(array: Array) -> Array:
    return array if array.base is None else array.base


class _Shared:
    """Variables whose new values are parts of one array."""

    def __init__(
        self, rows: Sequence[tuple[Variable, Array]], inputs: Sequence[Array | None]
    ):
        self.variables = [v for v, _ in rows]
        arrays = [x for _, x in rows]
        start = min(address(x) for x in arrays)
        end = max(address(x) + x.nbytes for x in arrays)
        dense = all(x.flags.c_contiguous for x in arrays)
        same = len({x.dtype for x in arrays}) == 1
        self.parts: list[tuple[slice, tuple[int, ...]]] = []
        if dense and same and end - start == sum(x.nbytes for x in arrays):
            size = arrays[0].itemsize
            first = min(arrays, key=address)
            self.source = np.lib.stride_tricks.as_strided(
                first.reshape(-1), ((end - start) // size,), (size,)
            )
            for x in arrays:
                offset = (address(x) - start) // size
                self.parts.append((slice(offset, offset + x.size), x.shape))
            self.sources = [self.source]
        else:
            self.sources = arrays
        # the program's own copies, which the next run reads
        self.copies = [
            (place, x)
            for place, x in zip(inputs, arrays, strict=True)
            if place is not None and address(place) != address(x)
        ]
        if self.parts and len(self.copies) == len(arrays):
            # one copy where they lie side by side in the same order
            first = self.copies[0][0]
            if all(
                address(place) - address(first) == address(x) - start
                for place, x in self.copies
            ):
                flat = np.lib.stride_tricks.as_strided(
                    first.reshape(-1), self.source.shape, self.source.strides
                )
                self.copies = [(flat, self.source)]
        self.published: list[Array] = []
        self.overwrites: list[tuple[Array, Array]] = []  # those, and the new values
        self.views: list[Array] = []
        self.given: list[tuple[Variable, Array]] = []
        self.public: tuple[Array, ...] = ()  # all of them
        self.counts: list[int] | None = None

    def publish(self) -> bool:
        """Write the new values over the old, unless somebody else holds these."""
        for place, x in self.copies:
            place[...] = x
        if self.counts != self._counts():
            return False
        for mine, x in self.overwrites:
            mine[...] = x
        return True

    def publish_anew(self) -> None:
        """Give the variables arrays of their own."""
        self.published = [x.copy() for x in self.sources]
        if self.parts:
            whole = self.published[0]
            self.views = [whole[part].reshape(shape) for part, shape in self.parts]
        else:
            self.views = list(self.published)
        self.public = (*self.views, *self.published)
        self.overwrites = list(zip(self.published, self.sources, strict=True))
        self.given = list(zip(self.variables, self.views, strict=True))
        for variable, view in self.given:
            variable._data = view

    def count(self) -> None:
        self.counts = self._counts()

    def _counts(self) -> list[int]:
        """How often each public array is referred to; nothing if one is not public."""
        for variable, view in self.given:
            if variable._data is not view:
                return []
        return list(map(sys.getrefcount, self.public))


# ------------------------------------------------------------------------ printing


class _Labels:
    """Names for the arrays of a program, for reading."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        inputs: Sequence[Array],
        read: Sequence[tuple[Variable, Array]],
        results: Sequence[Array],
    ):
        self.names: dict[int, str] = {}
        self.made = {id(x) for i in instructions for x in i.outputs}
        self.results = results
        self.buffers: dict[int, int] = {}
        self.header = []
        for i, x in enumerate(inputs):
            self.names[id(x)] = f"x{i}"
            self.header.append(f"x{i} = input  {_described(x)}")
        for i, (variable, x) in enumerate(read):
            self.names[id(x)] = f"v{i}"
            name = f" {variable.name}" if variable.name else ""
            self.header.append(f"v{i} = variable{name}  {_described(x)}")

    def name(self, array: Array) -> str:
        found = self.names.get(id(array))
        if found is None:
            made = id(array) in self.made
            if not made and array.size == 1:
                return str(array.item())
            kind = "t" if made else "c"
            found = self.names[id(array)] = f"{kind}{len(self.names)}"
        return found

    def line(self, instruction: Instruction) -> str:
        args = [self._argument(x) for x in instruction.args]
        args += [f"{k}={self._argument(v)}" for k, v in instruction.kwargs.items()]
        call = f"{instruction.name}({', '.join(args)})"
        if instruction.kind == "inplace":
            return call
        outs = instruction.outputs
        if not outs:
            return call
        names = ", ".join(map(self.name, outs))
        what = "; ".join(_described(x) for x in outs)
        buffer = self._buffer(outs[0])
        return f"{names} = {call}  {what} @{buffer}"

    def _buffer(self, array: Array) -> int:
        owner = _owner(array)
        return self.buffers.setdefault(id(owner), len(self.buffers))

    def _argument(self, value: Any) -> str:
        if isinstance(value, np.ndarray):
            return self.name(value)
        if type(value) in (tuple, list):
            return f"[{', '.join(map(self._argument, value))}]"
        if type(value) is Dynamic:
            return "a counter"
        return getattr(value, "__name__", None) or repr(value)

    def dot(self, title: str, instructions: Sequence[Instruction]) -> str:
        lines = [f'digraph "{title}" {{', "  node [shape=box];"]
        for i, instruction in enumerate(instructions):
            lines.append(f'  i{i} [label="{instruction.name}"];')
            for x in instruction.reads:
                lines.append(f'  "{self.name(x)}" -> i{i};')
            for out in instruction.outputs:
                lines.append(f'  i{i} -> "{self.name(out)}";')
        return "\n".join([*lines, "}"])


def _described(array: Array) -> str:
    return f"{array.dtype} {array.shape}"
