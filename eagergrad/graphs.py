"""Captured functions on a GPU: the eager step, recorded once as a CUDA graph.

No instructions are written down here: the device does that.  The first call with new
shapes runs the function as it is, which makes what a step needs (kernels, plans, the
state of optimizers).  The second runs it again while a stream records what is launched
and executes none of it; that is the *graph*, and what the function did to Python's
objects is taken back.  From then on a call copies its arguments into the buffers that
the graph reads, and launches it.

A graph reads and writes fixed places.  So while it is recorded, a ``Watch`` stands
where Tensors keep their buffers.  It sees which Variables are read, and gives each a
*place* of its own, which the graph brings up to date; which are assigned; and which
buffers from outside the graph reads, so that their memory stays theirs.  What differs
from replay to replay, as an optimizer's factors, lies in ``Cells``.
"""

from __future__ import annotations

import gc
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NoReturn
from weakref import ref

import numpy as np

from . import nest
from .counters import COUNTERS
from .device import Backend, Device, Recorder, device_of, out_of_memory, run_of
from .errors import CaptureError, OutOfMemoryError
from .ops import philox
from .ops.random import Generator, stretches
from .pullback import is_made, outline
from .tensor import VARIABLES, Tensor, Variable, wrap
from .traced import Trace, Traced, name_of, value_read, warn_eager

_SLOT: Any = vars(Tensor)["_data"]


class Watch:
    """Stands where Tensors keep their buffers, and tells a run of each use."""

    def __init__(self, run: Run):
        self.run = run
        self.thread = threading.get_ident()

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        if tensor is None:
            return self
        if threading.get_ident() != self.thread:
            return _SLOT.__get__(tensor, kind)
        return self.run.read(tensor)

    def __set__(self, tensor: Any, data: Any) -> None:
        if threading.get_ident() != self.thread:
            _SLOT.__set__(tensor, data)
        else:
            self.run.write(tensor, data)


class Run(Recorder):
    """A run of a function whose effects are taken back if it fails."""

    def __init__(self, home: Device, graph: Any):
        self.home = home
        self.backend: Backend = home.backend
        self.graph = graph
        self.undo: list[Callable[[], None]] = []
        self.guards: list[Callable[[], bool]] = []
        self.known = {id(x): x for x in list(VARIABLES.values())}
        self.stretches = stretches()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the block's ops be those of this run, on its device."""
        token = run_of.set(self)
        try:
            with self.backend.native(self.home):
                yield
        finally:
            run_of.reset(token)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Put a Watch in place of the slot, for the length of a block."""
        type.__setattr__(Tensor, "_data", Watch(self))
        try:
            yield
        finally:
            type.__setattr__(Tensor, "_data", _SLOT)

    def read(self, tensor: Tensor) -> Any:
        """The buffer of a Tensor or Variable in this run."""
        raise NotImplementedError

    def write(self, tensor: Tensor, data: Any) -> None:
        """Give a Tensor that is made, or a Variable, its buffer."""
        raise NotImplementedError

    def take_back(self) -> None:
        """Undo what the run did to optimizers and generators, the last thing first."""
        for undo in reversed(self.undo):
            undo()
        for stretch in self.stretches.values():
            stretch.give_back()

    def refuse(self, how: str) -> NoReturn:
        raise value_read(how)

    def counter(
        self, generator: Generator, key: int, offset: int, device: Device
    ) -> int:
        if device != self.home:
            raise CaptureError(
                f"random: numbers are drawn on {device} in a function that is captured "
                f"on {self.home}, where replays would find the same; draw them there"
            )
        return self.counted(generator, key, offset)

    def counted(self, generator: Generator, key: int, offset: int) -> int:
        """The offset that numbers were drawn at, as one for this run."""
        raise NotImplementedError

    def check_variables(self) -> None:
        """Raise CaptureError if the run made a Variable."""
        for variable in list(VARIABLES.values()):
            if id(variable) not in self.known:
                raise CaptureError(
                    f"{_named(variable)} was made in the captured function; make it "
                    "before, since a replay makes nothing"
                )

    def check_home(self, variable: Variable, data: Any) -> None:
        """Raise CaptureError if a Variable is assigned what another device holds."""
        if type(data) is not self.backend.buffer:
            raise elsewhere(variable, device_of(data), self.home)


def elsewhere(variable: Variable, device: Device, home: Device) -> CaptureError:
    """The error of assigning a Variable that is on another device than the function."""
    return CaptureError(
        f"{_named(variable)}, on {device}, is assigned in a function that is captured "
        f"on {home}; move it there, assign it outside, or give the function tensors on "
        f"{device}"
    )


def _named(variable: Variable) -> str:
    return variable.name or "a Variable"


# ------------------------------------------------------------------- the first call


class Rehearsal(Run):
    """The first call: the function runs as it is, on the stream that will record."""

    def __init__(self, home: Device):
        with home.backend.native(home):
            super().__init__(home, home.backend.driver.graph())
        self.before: dict[int, Any] = {}  # of Variables assigned, by their ids
        self.thread = threading.get_ident()  # whose libraries are made ready

    def __call__(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        args, kwargs = nest.map_structure(self._moved, (args, kwargs))
        try:
            with self.running(), self.graph.rehearsal(), self.watching():
                result = f(*args, **kwargs)
                self.check_variables()
        except BaseException:
            for key, data in self.before.items():
                self.known[key]._data = data
            self.take_back()
            raise
        return result

    def is_ready(self) -> bool:
        """Whether this thread may record: its libraries are ready."""
        return threading.get_ident() == self.thread

    def read(self, tensor: Tensor) -> Any:
        return _SLOT.__get__(tensor)

    def write(self, tensor: Tensor, data: Any) -> None:
        key = id(tensor)
        if key in self.known:
            self.check_home(self.known[key], data)
            self.before.setdefault(key, _SLOT.__get__(tensor))
        _SLOT.__set__(tensor, data)

    def record(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Graph:
        """Run the function again, as a recording.

        A graph's memory is beside that of CuPy's pool.  So if there is not enough, what
        the pool has in reserve is given back, and the recording made anew.
        """
        try:
            return Recording(self.home, self.graph)(f, args, kwargs)
        except MemoryError:
            pass  # and with the error all that it held
        self.backend.driver.free()
        self.graph.free()
        return Recording(self.home, self.graph)(f, args, kwargs)

    def _moved(self, x: Any) -> Any:
        if type(x) is np.ndarray:
            return wrap(self.backend.put(x, self.home))
        return x

    def constant(self, make: Callable[[], Any]) -> Any:
        return make()

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def numbers(
        self,
        call: Callable[[], Sequence[float]],
        dtype: np.dtype[Any],
        written: Iterable[Any],
    ) -> Sequence[Any]:
        for buffer in written:
            self.undo.append(_restoring(buffer, buffer.copy()))
        return call()

    def counted(self, generator: Generator, key: int, offset: int) -> int:
        return offset

    def whole(self, parts: Sequence[Any]) -> Any:
        return None


def _restoring(buffer: Any, values: Any) -> Callable[[], None]:
    def restore() -> None:
        buffer[...] = values

    return restore


# ------------------------------------------------------------------ the second call


class Recording(Run):
    """The second call: what the function launches becomes the graph."""

    def __init__(self, home: Device, graph: Any):
        super().__init__(home, graph)
        self.cells = Cells(partial(_placed, graph, self.backend))
        self.places: dict[int, Any] = {}  # of Variables, by their ids
        self.values: dict[int, Any] = {}  # what they have in the run, likewise
        self.assigned: dict[int, Variable] = {}
        self.wholes = _wholes(self.known.values(), self.backend.buffer)
        self.copies: dict[int, Any] = {}  # of those wholes, by their ids
        self.made: set[int] = set()  # ids of buffers that Tensors were made of
        self.tensors: list[ref[Tensor]] = []  # those Tensors
        self.kept: dict[int, Any] = {}  # by ids, from outside, which the graph reads

    def __call__(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Graph:
        inputs: list[Any] = []

        def placed(x: Any) -> Any:
            if type(x) is not np.ndarray and not is_made(x):
                return x
            data = self.placed(x._data if isinstance(x, Tensor) else x)
            inputs.append(data)
            made = wrap(data)
            self.made.add(id(data))
            self.tensors.append(ref(made))
            return made

        launched = COUNTERS.launches
        try:
            with (
                self._explained(),
                _undisturbed(),
                self.running(),
                self.graph.recorded(),
            ):
                args, kwargs = nest.map_structure(placed, (args, kwargs))
                with self.watching():
                    result = f(*args, **kwargs)
                    self.check_variables()
                    results, updates = self._finish(result)
        finally:
            launched, COUNTERS.launches = COUNTERS.launches - launched, launched
            for stretch in self.stretches.values():
                stretch.end()
            self.take_back()
            self._close()
        structure = nest.map_structure(outline, result)
        return Graph(name_of(f), self, inputs, results, structure, updates, launched)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Restate what the device says of what it cannot record."""
        try:
            yield
        except MemoryError as error:
            if isinstance(error, OutOfMemoryError):
                raise
            raise OutOfMemoryError(f"a graph on {self.home}: {error}") from error
        except RuntimeError as error:
            if isinstance(error, CaptureError) or not self.graph.refused(error):
                raise
            raise CaptureError(
                f"what is called at {_place(error)} waits for the device, or copies "
                f"from the host, and so is not recorded ({error}); call it outside the "
                "captured function"
            ) from error

    # what the Watch sees

    def read(self, tensor: Tensor) -> Any:
        key = id(tensor)
        if key in self.values:
            return self.values[key]
        data = _SLOT.__get__(tensor)
        own = type(data) is self.backend.buffer
        if key not in self.known:
            if own and id(data) not in self.made:
                self.kept[id(data)] = data
            return data
        if own:
            data = self.places[key] = self._place(data)
        else:  # of the CPU: a constant, as long as it is the same
            self.guards.append(_is_still(self.known[key], data))
        self.values[key] = data
        return data

    def write(self, tensor: Tensor, data: Any) -> None:
        key = id(tensor)
        if key not in self.known:
            self.made.add(id(data))
            self.tensors.append(ref(tensor))
            _SLOT.__set__(tensor, data)
            return
        self.check_home(self.known[key], data)
        self.assigned[key] = self.known[key]
        self.values[key] = data

    def _place(self, data: Any) -> Any:
        """A buffer for a Variable's value, within one for all that lie together."""
        base = self.wholes.get(id(data.base))
        if base is None:
            return self.placed(data)
        if id(base) not in self.copies:
            self.copies[id(base)] = self.placed(base)
        start = (data.data.ptr - base.data.ptr) // data.itemsize
        part = self.copies[id(base)][start : start + data.size]
        return part.reshape(data.shape)

    # what the function tells it

    def constant(self, make: Callable[[], Any]) -> Any:
        with self.aside():
            made = make()
        self.kept[id(made)] = made
        return made

    def aside(self) -> AbstractContextManager[None]:
        return self.graph.aside()  # type: ignore[no-any-return]

    def placed(self, values: Any) -> Any:
        return _placed(self.graph, self.backend, values)

    def numbers(
        self,
        call: Callable[[], Sequence[float]],
        dtype: np.dtype[Any],
        written: Iterable[Any],
    ) -> Sequence[Any]:
        self.kept.update((id(buffer), buffer) for buffer in written)
        cells = self.cells.take(call, dtype)
        return [cells[i : i + 1].reshape(()) for i in range(len(cells))]

    def counted(self, generator: Generator, key: int, offset: int) -> int:
        stretch, cells = self.stretches.get(generator), self.cells
        if stretch is None:  # one of the function's own
            return offset
        place = stretch.place(key, offset)

        def renewed(f: Callable[[int, int], Sequence[int]]) -> Any:
            return cells.take(lambda: f(*place()), np.dtype(np.uint64))

        found = philox.Counter(offset)
        found.renewed = renewed
        return found

    def whole(self, parts: Sequence[Any]) -> Any:
        return whole(parts)

    # its end

    def _finish(self, result: Any) -> tuple[list[Any], list[Update]]:
        """Record how the places of Variables get their new values."""
        leaves = [leaf for leaf in nest.flatten(result) if is_made(leaf)]
        results = [self._own(leaf._data) for leaf in leaves]
        rows = [(x, self._own(self.values[key])) for key, x in self.assigned.items()]
        updates = _updates(rows)
        for update in updates:
            targets = [self.places.get(id(x)) for x in update.variables]
            together = whole(targets) if update.parts else None
            if together is not None:
                together[...] = update.source
                continue
            values = update.views(update.source)
            for target, value in zip(targets, values, strict=True):
                if target is not None:
                    target[...] = value
        return results, updates

    def _own(self, data: Any) -> Any:
        """A value that stays when the places get their new ones."""
        base = getattr(data, "base", None)
        places = {id(x) for x in (*self.places.values(), *self.copies.values())}
        return data.copy() if {id(data), id(base)} & places else data

    def _close(self) -> None:
        """Have the Tensors that outlive the run say so when they are used."""
        over = Trace()
        over.open = False
        for made in self.tensors:
            tensor = made()
            if tensor is not None and type(tensor._data) is self.backend.buffer:
                shown = np.zeros((), tensor.dtype)
                tensor._data = Traced(over, np.broadcast_to(shown, tensor.shape))


def _placed(graph: Any, backend: Backend, values: Any) -> Any:
    """A new buffer with these values, of the host's or the device's memory."""
    with graph.aside():
        if type(values) is np.ndarray:
            return backend.xp.asarray(values)
        return values.copy()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the garbage collector out, which could free a graph, and so wait for it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _place(error: BaseException) -> str:
    """``file:line`` of the last call of this package that led to an error."""
    place, outside = "an unknown place", ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").startswith(_PACKAGE):
            place = outside or place
        else:
            outside = f"{frame.f_code.co_filename}:{line}"
    return place


_PACKAGE = __name__.partition(".")[0] + "."


def _is_still(variable: Variable, data: Any) -> Callable[[], bool]:
    return lambda: variable._data is data


def whole(parts: Sequence[Any]) -> Any:
    """The buffer that is made up of these, side by side in this order, or None."""
    base: Any = getattr(parts[0], "base", None)
    if base is None or base.ndim != 1:
        return None
    at = base.data.ptr
    for part in parts:
        if part is None or part.base is not base or part.data.ptr != at:
            return None
        if not part.flags.c_contiguous or part.dtype != base.dtype:
            return None
        at += part.nbytes
    return base if at == base.data.ptr + base.nbytes else None


def _wholes(variables: Iterable[Variable], buffer: Any) -> dict[int, Any]:
    """The buffers that are made up of Variables' values, by their ids."""
    parts: dict[int, list[Any]] = {}
    for variable in variables:
        data = variable._data
        if type(data) is buffer and data.size and data.base is not None:
            parts.setdefault(id(data.base), []).append(data)
    found: dict[int, Any] = {}
    for key, values in parts.items():
        values.sort(key=lambda x: x.data.ptr)
        if whole(values) is not None:
            found[key] = values[0].base
    return found


# ---------------------------------------------------------------- numbers that change


class Cells:
    """Numbers in a graph's memory, of which each replay has others.

    They lie together, so that one small copy brings all of them.
    """

    SIZE = 512  # of 8 bytes; more of them lie in a further piece

    def __init__(self, placed: Callable[[Any], Any]):
        self.placed = placed
        self.pieces: list[tuple[Any, np.ndarray[Any, Any]]] = []
        self.free = 0
        # calls, and where on the host their results go
        self.rows: list[tuple[Callable[[], Sequence[float]], Any]] = []

    def take(self, call: Callable[[], Sequence[float]], dtype: np.dtype[Any]) -> Any:
        """A buffer for the numbers that a call gives."""
        count = len(call())
        if count > self.free:
            host = np.zeros(max(count, self.SIZE))
            self.pieces.append((self.placed(host), host))
            self.free = len(host)
        device, host = self.pieces[-1]
        start = len(host) - self.free
        self.free -= count
        own = slice(start * host.itemsize // dtype.itemsize, None)
        self.rows.append((call, host.view(dtype)[own][:count]))
        return device.view(dtype)[own][:count]

    def used(self) -> list[tuple[Any, np.ndarray[Any, Any]]]:
        """The pieces, on the device and on the host, as far as they are taken."""
        if not self.pieces:
            return []
        *full, (device, host) = self.pieces
        taken = len(host) - self.free
        return [*full, (device[:taken], host[:taken])]


# -------------------------------------------------------------------------- Variables


class Update:
    """Variables whose new values a graph makes side by side in one buffer."""

    def __init__(self, variables: list[Variable], source: Any, parts: list[Any]):
        self.variables = variables
        self.source = source
        self.parts = parts  # slices and shapes; none for the one whose value it is

    def views(self, buffer: Any) -> list[Any]:
        """The values, as parts of a buffer like the source."""
        if not self.parts:
            return [buffer]
        return [buffer[part].reshape(shape) for part, shape in self.parts]

    def assign(self, buffer: Any) -> None:
        """Give the Variables their new values, which are copied into this buffer."""
        buffer[...] = self.source
        for variable, value in zip(self.variables, self.views(buffer), strict=True):
            variable._data = value


def _updates(rows: Sequence[tuple[Variable, Any]]) -> list[Update]:
    together: dict[int, list[tuple[Variable, Any]]] = {}
    found = []
    for variable, data in rows:
        owner = data if data.base is None else data.base
        together.setdefault(id(owner), []).append((variable, data))
    for group in together.values():
        group.sort(key=lambda row: row[1].data.ptr)
        base = whole([data for _, data in group])
        if base is None:
            found += [Update([variable], data, []) for variable, data in group]
            continue
        parts, start = [], 0
        for _, data in group:
            parts.append((slice(start, start + data.size), data.shape))
            start += data.size
        found.append(Update([variable for variable, _ in group], base, parts))
    return found


# -------------------------------------------------------------------------- the graph


class Graph:
    """A function captured on a GPU, for one signature.  Print it to read it."""

    def __init__(
        self,
        name: str,
        run: Recording,
        inputs: list[Any],
        results: list[Any],
        structure: Any,
        updates: list[Update],
        launches: int,
    ):
        self.name = name
        self.launches = launches  # of this package's kernels
        self.bytes = run.graph.bytes()
        self.guards = run.guards
        self._home = run.home
        self._graph = run.graph
        self._inputs = inputs
        self._results = results
        self._outline = structure  # what it returns, with empty tensors
        self._updates = updates
        self._numbers, self._pieces = run.cells.rows, run.cells.used()
        self._stretches = [x for x in run.stretches.values() if x.used]
        # Variables with the place that the graph reads, and what was last copied there
        places = run.places.items()
        self._read = [(run.known[key], place) for key, place in places]
        self._known: list[Any] = [None] * len(self._read)
        self._kept = run.kept

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """What the function returns for these inputs; it belongs to the caller."""
        graph = self._graph
        with self._home.backend.native(self._home):
            graph.turn()
            found, values = self._room()
            for place, x in zip(self._inputs, inputs, strict=True):
                if type(x) is np.ndarray:
                    graph.upload(place, np.asarray(x, order="C"))
                else:
                    place[...] = x
            known = self._known
            for i, (variable, place) in enumerate(self._read):
                if variable._data is not known[i]:
                    place[...] = known[i] = variable._data
            for stretch in self._stretches:
                stretch.take()
            for call, cells in self._numbers:
                cells[...] = call()
            for piece, host in self._pieces:
                graph.upload(piece, host)
            graph.launch()
            for x, result in zip(found, self._results, strict=True):
                if type(x) is not np.ndarray:
                    x[...] = result
            for update, value in zip(self._updates, values, strict=True):
                update.assign(value)
            for i, (variable, _) in enumerate(self._read):
                known[i] = variable._data
        if type(self._outline) is Tensor:
            return wrap(found[0])
        tensors = map(wrap, found)
        leaves = [
            next(tensors) if is_made(leaf) else leaf
            for leaf in nest.flatten(self._outline)
        ]
        return nest.pack_sequence_as(self._outline, leaves)

    def _room(self) -> tuple[list[Any], list[Any]]:
        """Buffers for the results and for the Variables.

        They are made first: where there is no memory for them, nothing has changed.
        """
        empty = self._home.backend.xp.empty
        made = []
        for x in (*self._results, *[update.source for update in self._updates]):
            try:
                made.append(
                    x.copy() if type(x) is np.ndarray else empty(x.shape, x.dtype)
                )
            except MemoryError as error:
                raise out_of_memory(error, self.name, self._home) from error
        count = len(self._results)
        return made[:count], made[count:]

    def still_holds(self) -> bool:
        """Whether what was true of Python's objects when it was made is true now."""
        return all(guard() for guard in self.guards)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: a graph on {self._home}, {self.launches} launches of "
            f"kernels, {self.bytes:,} bytes"
        ]
        for i, x in enumerate(self._inputs):
            lines.append(f"  x{i} = input  {_described(x)}")
        labels = {}
        for i, (variable, x) in enumerate(self._read):
            name = f" {variable.name}" if variable.name else ""
            labels[id(variable)] = f"v{i}"
            lines.append(f"  v{i} = variable{name}  {_described(x)}")
        for update in self._updates:
            names = [labels.get(id(x), _named(x)) for x in update.variables]
            lines.append(f"  assign {', '.join(names)}  {_described(update.source)}")
        results = ", ".join(map(_described, self._results))
        return "\n".join([*lines, f"  return {results}"])


def _described(buffer: Any) -> str:
    return f"{buffer.dtype} {buffer.shape}"


# --------------------------------------------------------------------- the signatures


class Graphs:
    """The graphs of a function, by signature: what a call on a GPU does."""

    MOST = 32

    def __init__(
        self,
        function: Callable[..., Any],
        falls_back: bool,
        tracing: AbstractContextManager[Any],
    ):
        self._function = function
        self._falls_back = falls_back
        self._tracing = tracing  # so that only one function is captured at a time
        self._lock = threading.RLock()
        # What the first call has made ready, then what the second has recorded; None
        # for what runs as it is.
        self._found: OrderedDict[Any, Rehearsal | Graph | None] = OrderedDict()

    def __call__(
        self,
        home: Device,
        signature: Any,
        inputs: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the function on these arguments, of which the inputs are the buffers."""
        key = home, signature
        with self._lock:
            found = self._found.get(key)
            if isinstance(found, Graph):
                if found.still_holds():
                    return found(inputs)
                del self._found[key]
                found = None
            if key in self._found and found is None:
                return self._function(*args, **kwargs)
            rehearsed = found if found is not None and found.is_ready() else None
            try:
                with self._tracing:
                    if rehearsed is None:
                        rehearsal = Rehearsal(home)
                        result = rehearsal(self._function, args, kwargs)
                        self._keep(key, rehearsal)
                        return result
                    graph = rehearsed.record(self._function, args, kwargs)
            except (CaptureError, OutOfMemoryError) as error:
                plain = rehearsed is None and isinstance(error, OutOfMemoryError)
                if plain or not self._falls_back:
                    raise
                self._keep(key, None)
                warn_eager(self._function, error)
                return self._function(*args, **kwargs)
            self._keep(key, graph)
            return graph(inputs)

    def _keep(self, key: Any, found: Rehearsal | Graph | None) -> None:
        self._found[key] = found
        while len(self._found) > self.MOST:
            self._found.popitem(last=False)

    def made(self) -> list[Graph]:
        """The graphs there are, oldest first."""
        return [found for found in self._found.values() if isinstance(found, Graph)]

    def of(self, home: Device | None, signature: Any) -> Graph | None:
        """The graph of a signature on a device, if there is one."""
        found = self._found.get((home, signature))
        return found if isinstance(found, Graph) else None
