"""How kernels are called on a GPU: as NumPy calls the host's, but by plans.

What a call needs to know of its operands' dtypes, shapes and strides is worked out once
and kept: the function, the grid, the shapes of the results, and the *layout*, by which
one kernel goes over contiguous arrays, rows, columns and numbers alike (device.cuh).  A
call then allocates, and launches on the current stream.

What launches is a *driver*: CuPy's is in device.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from .counters import COUNTERS
from .errors import KernelError
from .kernels import Kernel
from .layouts import axes_of, broadcast, contiguous, merged

# The dtypes that are served, each with its Kind in device.cuh.  Half types and float32
# are computed in float, and may stand beside each other.
KINDS = {"f": 0, "e": 1, "E": 2, "d": 0}
# Kernels on whole arrays have a function for each, of this name.
TYPES = {"f": "float", "e": "half", "E": "bfloat16", "d": "double"}
THREADS = 256  # of a block
BLOCKS = 2**14  # at most; they go on from there
ROW_THREADS = 512  # of a block, at most
WARP = 32
PER_THREAD = 4  # elements of a row, for few threads to wait in its sums
MOVED = 16  # bytes, at most, that a thread takes at once
RUNS_FROM = 2**16  # elements that are enough for all threads if each takes several
# Rows that one thread adds up: so many in the only block; in one of several, which are
# no more than SUMMED if they can be.
ALONE, FEWEST, MOST, SUMMED = 16, 8, 32, 512
WORDS = 32  # integers that may come with a launch


class Driver(Protocol):
    """What launches need of a GPU's library."""

    buffer: type

    def device(self, buffers: Sequence[Any]) -> int:
        """The current device; TypeError for buffers that lie on another one."""

    def function(self, symbol: str, module: Callable[[int], bytes]) -> Any:
        """A kernel of the module for the current device's compute capability.

        KernelError where there is none.
        """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new buffer on the current device."""

    def address(self, buffer: Any) -> int:
        """Where a buffer lies on its device."""

    def live(self) -> int:
        """The bytes of all buffers there are."""

    def launch(
        self, function: Any, blocks: int, threads: int, arguments: Sequence[Any]
    ) -> None:
        """Start a function on the current stream."""


@dataclass(frozen=True)
class Plan:
    """How a kernel is launched on operands of certain dtypes and layouts."""

    function: Any
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]  # their shapes, dtypes
    blocks: int
    threads: int
    head: bytes  # of the layout: all but the numbers
    numbers: tuple[int, ...]  # which operands are such
    places: int
    run: int = 1  # elements that a thread takes at once
    moved: tuple[tuple[int, int], ...] = ()  # which operands, and their items' bytes
    sums: tuple[tuple[int], np.dtype[Any]] | None = None  # what blocks keep
    last: tuple[Any, int] | None = None  # what adds those up, and its blocks

    @cached_property
    def layout(self) -> Any:
        """The last argument of a launch: device.cuh's Layout, passed by value."""
        return _structure(self.head + bytes(8 * self.places))

    def for_addresses(self, addresses: Sequence[int]) -> Plan:
        """The same, with elements in front that lie before addresses for whole runs.

        These are taken one by one, as are those behind the last run; all of them where
        the operands differ in it.
        """
        rows, columns, run = struct.unpack_from("3q", self.head)
        fronts = {
            -address % (run * size) // size
            for address, (_, size) in zip(addresses, self.moved, strict=True)
        }
        if fronts == {0}:
            return self
        size = rows * columns
        front = fronts.pop() if len(fronts) == 1 and rows == 1 else size
        counts = struct.pack("2q", (size - front) // run, front)
        return replace(self, head=self.head[:24] + counts + self.head[40:])

    def with_numbers(self, given: Sequence[Any], words: bytes = b"") -> Any:
        """The same, with operands that are Python's numbers, and with integers."""
        values = [0.0] * self.places
        for k in self.numbers:
            values[k] = float(given[k])
        numbers = struct.pack(f"{self.places}d", *values)
        return _structure(self.head + numbers + words)


def _structure(text: bytes) -> Any:
    return np.frombuffer(text, f"V{len(text)}")


# An operand's dtype, shape and strides; None for a number.
Operand = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]] | None
ROWS = "ntc"  # letters of operands that have an axis along the rows


@dataclass(frozen=True)
class Lane:
    """One operand: the axes it has beside that of its rows, and its steps in them."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    length: int | None = None  # of a row
    step: int = 0  # in a row

    def over(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The steps in the axes of a shape that this one broadcasts to."""
        return broadcast(self.shape, self.steps, shape)


def _without(values: tuple[int, ...], at: int) -> tuple[int, ...]:
    return values[:at] + values[at + 1 :]


def _with_rows(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    at = axis % (len(shape) + 1)
    return (*shape[:at], length, *shape[at:])


def _over(count: int, by: int) -> int:
    """count / by, rounded up."""
    return -(-count // by)


class Share(NamedTuple):
    """Who does what: of device.cuh's Layout, what it says of threads."""

    blocks: int
    threads: int
    run: int = 1
    runs: int = 0
    lane: int = 1
    lanes: int = 1
    height: int = 1


def _runs(size: int, run: int) -> Share:
    """A thread for each element, or for each run of several."""
    runs = size // run if run > 1 else 0
    return Share(min(_over(size, THREADS * run), BLOCKS), THREADS, run, runs)


def _lanes(rows: int, columns: int) -> Share:
    """A lane for each row: some threads of a warp, or a block."""
    lane = _power(_over(columns, PER_THREAD))
    if lane > WARP:
        threads = min(_over(columns, WARP * PER_THREAD) * WARP, ROW_THREADS)
        return Share(min(rows, BLOCKS), threads, lane=threads)
    lanes = THREADS // lane
    blocks = min(_over(rows, lanes), BLOCKS)
    return Share(blocks, lane * lanes, lane=lane, lanes=lanes)


def _tiles(rows: int, columns: int) -> Share:
    """A lane for each few rows, whose columns it adds up.

    The order of the sums follows from it, and so from the shape alone.
    """
    if columns <= WARP * PER_THREAD:
        lane = min(_power(columns), WARP)
        lanes = ROW_THREADS // lane
    else:
        lane, lanes = _lanes(rows, columns).lane, 1
    height = _over(rows, lanes)
    if height > ALONE:
        height = min(max(_over(height, SUMMED), FEWEST), MOST)
    blocks = _over(rows, lanes * height)
    return Share(blocks, lane * lanes, lane=lane, lanes=lanes, height=height)


def _power(n: int) -> int:
    """The power of two that is not below."""
    return 1 << (n - 1).bit_length()


class Launcher:
    """A kernel on a GPU.  TypeError where it serves no such operands: compose then."""

    def __init__(
        self, kernel: Kernel, driver: Driver, module: Callable[[int], bytes]
    ) -> None:
        self.kernel = kernel
        self.nout = kernel.outputs
        self.driver = driver
        self.module = module
        self.letters = kernel.operands.replace(">", "")
        self.plan = lru_cache(maxsize=1024)(self._plan)

    def __call__(self, *inputs: Any, axis: int = -1, out: Sequence[Any] = ()) -> Any:
        driver = self.driver
        buffer = driver.buffer
        operands: list[Any] = [
            x if type(x) is buffer else None for x in (*inputs, *out)
        ]
        facts = [x if x is None else (x.dtype, x.shape, x.strides) for x in operands]
        device = driver.device([x for x in operands if x is not None])
        plan = self.plan(tuple(facts), axis, device)
        results = out
        if not results:
            results = [self._empty(shape, dtype) for shape, dtype in plan.results]
            operands += results
        if plan.blocks:
            if plan.run > 1:
                moved = [driver.address(operands[k]) for k, _ in plan.moved]
                plan = plan.for_addresses(moved)
            if self.kernel.form == "columns":
                operands.append(plan.sums and self._empty(*plan.sums))
            layout = plan.layout
            if None in facts:
                layout = plan.with_numbers(inputs)
            operands.append(layout)
            self._launch(plan.function, plan.blocks, plan.threads, operands)
            if plan.last is not None:
                self._launch(*plan.last, ROW_THREADS, operands)
        return results[0] if len(results) == 1 else tuple(results)

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        COUNTERS.allocations += 1
        return self.driver.empty(shape, dtype)

    def _launch(
        self, function: Any, blocks: int, threads: int, arguments: Sequence[Any]
    ) -> None:
        self.driver.launch(function, blocks, threads, arguments)
        COUNTERS.launches += 1

    def _plan(self, facts: tuple[Operand, ...], axis: Any, device: int) -> Plan:
        """The plan for such operands.  Those of several devices differ in functions."""
        dtype = self._dtype(facts)
        wide = np.dtype(dtype if dtype.char == "d" else np.float32)
        count = self.kernel.inputs
        takes, gives = self.letters[:count], self.letters[count:]
        inputs = [self._axes(*pair, axis) for pair in zip(takes, facts, strict=False)]
        lengths = {lane.length for lane in inputs if lane.length is not None}
        if len(lengths) > 1 or 0 in lengths:
            raise self._unserved("rows of different lengths, or empty ones")
        shape = self._broadcast([lane.shape for lane in inputs])
        results = tuple(
            [
                (
                    _with_rows(() if x == "c" else shape, axis, *lengths)
                    if x in ROWS
                    else shape,
                    wide if x == "w" else dtype,
                )
                for x in gives
            ]
        )
        made = [(kind, x, contiguous(x, kind.itemsize)) for x, kind in results]
        given = facts[count:] or made
        if [fact and fact[1] for fact in given] != [x for x, _ in results]:
            raise self._unserved("an out of another shape")
        outputs = [self._axes(*pair, axis) for pair in zip(gives, given, strict=True)]
        lanes = inputs + outputs
        axes = merged(axes_of(shape, [lane.over(shape) for lane in lanes]))
        if len(axes) > 2 - len(lengths):
            raise self._unserved("this layout")
        axes += [(length, tuple([lane.step for lane in lanes])) for length in lengths]
        alone = 1, (0,) * len(lanes)
        (rows, outer), (columns, inner) = [alone, alone, *axes][-2:]
        everything = (*facts[:count], *given)
        moved = tuple(
            [
                (k, fact[0].itemsize)
                for k, (fact, step) in enumerate(zip(everything, inner, strict=True))
                if fact and step
            ]
        )
        if self.kernel.form == "columns" and not rows:
            raise self._unserved("no rows")
        if self.kernel.form == "columns":
            share = _tiles(rows, columns)
        elif lengths:
            share = _lanes(rows, columns)
        else:
            share = _runs(rows * columns, _run(moved, rows, columns, outer, inner))
        kept = gives.count("c") * columns
        sums = last = None
        if kept:
            sums = (share.blocks * share.lanes * kept,), wide
        if kept and share.blocks > 1:
            last = self._function("sums", wide), _over(kept, WARP)
        kinds = [
            KINDS.get(fact[0].char, 0) if fact else 0  # of numbers and indices none
            for fact in everything
        ]
        return Plan(
            self._function("", wide),
            results,
            share.blocks,
            share.threads,
            struct.pack(
                f"{8 + 3 * len(lanes)}q",
                *(rows, columns, share.run, share.runs, 0),
                *(share.lane, share.lanes, share.height, *outer, *inner, *kinds),
            ),
            tuple([k for k, fact in enumerate(facts) if fact is None]),
            len(lanes),
            share.run,
            moved,
            sums,
            last,
        )

    def _function(self, part: str, dtype: np.dtype[Any]) -> Any:
        symbol = "_".join(filter(None, (self.kernel.name, part, TYPES[dtype.char])))
        try:
            return self.driver.function(symbol, self.module)
        except KernelError as error:  # on another device than the first
            raise self._unserved(str(error)) from error

    def _axes(self, letter: str, fact: Operand, axis: int) -> Lane:
        """An operand's axes, with that of its rows, if it has such, taken out."""
        if fact is None:
            return Lane((), ())
        dtype, shape, strides = fact
        if any(n % dtype.itemsize for n in strides):
            raise self._unserved(f"strides {strides} of {dtype}")
        steps = tuple([n // dtype.itemsize for n in strides])
        ranks = {"t": 2, "w": 0, "i": 0}
        if self.kernel.form == "columns" and len(shape) != ranks.get(letter, 1):
            raise self._unserved(f"{letter} of shape {shape}")
        if letter not in ROWS:
            return Lane(shape, steps)
        if not -len(shape) <= axis < len(shape):
            raise self._unserved(f"axis {axis} of {shape}")
        at = axis % len(shape)
        return Lane(_without(shape, at), _without(steps, at), shape[at], steps[at])

    def _broadcast(self, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError as error:
            raise self._unserved(str(error)) from error

    def _dtype(self, facts: tuple[Operand, ...]) -> np.dtype[Any]:
        """The dtype of the results: that of the operands, or float32 of several."""
        found: set[np.dtype[Any]] = set()
        wide: set[np.dtype[Any]] = set()
        for letter, fact in zip(self.letters, facts, strict=False):
            if fact is None and letter in "snwi":
                continue
            dtype = None if fact is None else fact[0]
            if letter == "i":
                if dtype != np.int64:
                    raise self._unserved(f"indices of {dtype}")
            elif dtype is None or dtype.char not in KINDS:
                raise self._unserved(str(dtype))
            else:
                (wide if letter in "wm" else found).add(dtype)
        doubles = {dtype.char == "d" for dtype in found | wide}
        if len(doubles) != 1 or not found:
            raise self._unserved("numbers alone, or float64 beside other dtypes")
        return found.pop() if len(found) == 1 else np.dtype(np.float32)

    def _unserved(self, what: str) -> TypeError:
        return TypeError(f"{self.kernel.name}: no kernel for {what}")


def _run(
    moved: Sequence[tuple[int, int]],
    rows: int,
    columns: int,
    outer: tuple[int, ...],
    inner: tuple[int, ...],
) -> int:
    """How many elements lie side by side in all operands, for a thread to take at once.

    Those in ``moved`` have several; whether they lie at addresses fit for that is seen
    when these are known.
    """
    if rows * columns < RUNS_FROM or not moved or not set(inner) <= {0, 1}:
        return 1
    run = MOVED // max([size for _, size in moved])
    apart = [columns, *[outer[k] for k, _ in moved]]
    return run if rows == 1 or not any(n % run for n in apart) else 1


class ArraysLauncher(Launcher):
    """A kernel on whole arrays, each along one axis and without gaps.

    It is called with its results, as NumPy's ufuncs of such kernels are.  Integers that
    are not on the device come with the launch: so sizes, and seeds, cost no copy.
    """

    def __call__(self, *inputs: Any, axis: int = -1, out: Sequence[Any] = ()) -> Any:
        driver = self.driver
        buffer = driver.buffer
        given = (*inputs, *out)
        if len(given) != len(self.letters):
            raise self._unserved(f"{len(given)} operands")
        operands: list[Any] = [x if type(x) is buffer else None for x in given]
        words = {
            k: np.asarray(x, np.int64)
            for k, (letter, x) in enumerate(zip(self.letters, given, strict=True))
            if letter == "j" and operands[k] is None
        }
        facts: list[Any] = [
            x if x is None else (x.dtype, x.shape, x.strides) for x in operands
        ]
        for k, integers in words.items():
            facts[k] = integers.dtype, integers.shape, integers.strides
        device = driver.device([x for x in operands if x is not None])
        plan = self.plan(tuple(facts), tuple(words), device)
        text = b"".join([integers.tobytes() for integers in words.values()])
        COUNTERS.allocations += self.nout  # which the caller made for it
        if plan.blocks:
            operands.append(plan.with_numbers(given, text.ljust(8 * WORDS, b"\0")))
            self._launch(plan.function, plan.blocks, plan.threads, operands)
        results = given[self.kernel.inputs :]
        return results[0] if self.nout == 1 else results

    def _plan(self, facts: tuple[Operand, ...], words: Any, device: int) -> Plan:
        """The plan for such operands, of which some come as words."""
        found = set()
        counts, places, taken = [], [], 0
        for k, (letter, fact) in enumerate(zip(self.letters, facts, strict=True)):
            if (fact is None) != (letter == "s"):
                raise self._unserved("numbers for arrays, or arrays for numbers")
            counts.append(1 if fact is None else fact[1][0] if fact[1] else 0)
            places.append(taken)
            taken += counts[-1] if k in words else 0
            if fact is None:
                continue
            dtype, shape, strides = fact
            if len(shape) != 1 or (shape[0] > 1 and strides != (dtype.itemsize,)):
                raise self._unserved(f"arrays of shape {shape} and strides {strides}")
            if letter == "a":
                found.add(dtype)
            elif dtype != {"j": np.int64, "b": np.int8}[letter]:
                raise self._unserved(f"integers of {dtype}")
        if len(found) != 1 or next(iter(found)).char not in TYPES or taken > WORDS:
            raise self._unserved(f"{found} and {taken} integers")
        made = max(counts[self.kernel.inputs :])
        return Plan(
            self._function("", found.pop()),
            (),
            min(_over(max(counts), THREADS), BLOCKS) if made else 0,
            THREADS,
            struct.pack(f"{1 + 2 * len(counts)}q", sum(counts), *counts, *places),
            tuple([k for k, fact in enumerate(facts) if fact is None]),
            len(counts),
        )
