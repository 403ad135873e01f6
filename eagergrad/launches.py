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
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from .counters import COUNTERS
from .errors import KernelError
from .kernels import Kernel

# The dtypes that are served, each with its Kind in device.cuh.  Half types and float32
# are computed in float, and may stand beside each other.
KINDS = {"f": 0, "e": 1, "E": 2, "d": 0}
THREADS = 256  # of a block, for elementwise kernels
BLOCKS = 2**14  # at most; they go on from there
ROW_THREADS = 512  # of a block, which goes over one row, at most
PER_THREAD = 4  # elements of a row, for few threads to wait in its sums


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
    dtype: np.dtype[Any]
    results: tuple[tuple[int, ...], ...]  # their shapes
    blocks: int
    threads: int
    head: bytes  # of the layout: all but the numbers
    numbers: tuple[int, ...]  # which operands are such
    places: int

    @cached_property
    def layout(self) -> Any:
        """The last argument of a launch: device.cuh's Layout, passed by value."""
        return _structure(self.head + bytes(8 * self.places))

    def with_numbers(self, given: Sequence[Any]) -> Any:
        """The same, with operands that are Python's numbers."""
        values = [0.0] * self.places
        for k in self.numbers:
            values[k] = float(given[k])
        return _structure(self.head + struct.pack(f"{self.places}d", *values))


def _structure(text: bytes) -> Any:
    return np.frombuffer(text, f"V{len(text)}")


# An operand's dtype, shape and strides; None for a number.
Operand = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]] | None
# One axis of a launch: its length, and how far apart its elements are, per operand.
Axis = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Lane:
    """One operand: the axes it has beside that of its rows, and its steps in them."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    length: int | None = None  # of a row
    step: int = 0  # in a row

    def over(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The steps in the axes of a shape that this one broadcasts to."""
        own = tuple(
            [0 if n == 1 else s for n, s in zip(self.shape, self.steps, strict=True)]
        )
        return (0,) * (len(shape) - len(own)) + own


def merged(shape: tuple[int, ...], steps: Sequence[tuple[int, ...]]) -> list[Axis]:
    """The fewest axes that go over the same places.

    Neighbours are one axis if each operand goes on from one to the next evenly.
    """
    axes: list[Axis] = []
    for n, inner in zip(shape, zip(*steps, strict=True), strict=True):
        if n == 1:
            continue
        if axes and all(s == n * t for s, t in zip(axes[-1][1], inner, strict=True)):
            axes[-1] = axes[-1][0] * n, inner
        else:
            axes.append((n, inner))
    return axes


def _contiguous(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """The strides of a new buffer."""
    strides = [dtype.itemsize]
    for n in shape[:0:-1]:
        strides.insert(0, strides[0] * n)
    return tuple(strides[: len(shape)])


def _without(values: tuple[int, ...], at: int) -> tuple[int, ...]:
    return values[:at] + values[at + 1 :]


def _with_rows(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    at = axis % (len(shape) + 1)
    return (*shape[:at], length, *shape[at:])


class Launcher:
    """A kernel on a GPU.  TypeError where it serves no such operands: compose then."""

    def __init__(
        self, kernel: Kernel, driver: Driver, module: Callable[[int], bytes]
    ) -> None:
        self.kernel = kernel
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
            results = [driver.empty(shape, plan.dtype) for shape in plan.results]
            COUNTERS.allocations += len(results)
            operands += results
        if plan.blocks:
            layout = plan.layout
            if None in facts:
                layout = plan.with_numbers(inputs)
            operands.append(layout)
            driver.launch(plan.function, plan.blocks, plan.threads, operands)
            COUNTERS.launches += 1
        return results[0] if len(results) == 1 else tuple(results)

    def _plan(self, facts: tuple[Operand, ...], axis: int, device: int) -> Plan:
        """The plan for such operands.  Those of several devices differ in functions."""
        dtype = self._dtype(facts)
        count = self.kernel.inputs
        takes, gives = self.letters[:count], self.letters[count:]
        inputs = [self._lane(*pair, axis) for pair in zip(takes, facts, strict=False)]
        lengths = {lane.length for lane in inputs if lane.length is not None}
        if len(lengths) > 1 or 0 in lengths:
            raise self._unserved("rows of different lengths, or empty ones")
        shape = self._broadcast([lane.shape for lane in inputs])
        results = tuple(
            [_with_rows(shape, axis, *lengths) if x == "n" else shape for x in gives]
        )
        given = facts[count:] or [(dtype, x, _contiguous(x, dtype)) for x in results]
        if [fact and fact[1] for fact in given] != list(results):
            raise self._unserved("an out of another shape")
        outputs = [self._lane(*pair, axis) for pair in zip(gives, given, strict=True)]
        lanes = inputs + outputs
        axes = merged(shape, [lane.over(shape) for lane in lanes])
        if len(axes) > 2 - len(lengths):
            raise self._unserved("this layout")
        axes += [(length, tuple([lane.step for lane in lanes])) for length in lengths]
        alone = 1, (0,) * len(lanes)
        (rows, outer), (columns, inner) = [alone, alone, *axes][-2:]
        computed = "double" if dtype.char == "d" else "float"
        kinds = [
            KINDS.get(fact[0].char, 0) if fact else 0  # of numbers and indices none
            for fact in (*facts[:count], *given)
        ]
        if lengths:
            blocks = rows
            threads = min(-(-columns // (32 * PER_THREAD)) * 32, ROW_THREADS)
        else:
            blocks = -(-rows * columns // THREADS)
            threads = THREADS
        symbol = f"{self.kernel.name}_{computed}"
        try:
            function = self.driver.function(symbol, self.module)
        except KernelError as error:  # on another device than the first
            raise self._unserved(str(error)) from error
        return Plan(
            function,
            dtype,
            results,
            min(blocks, BLOCKS),
            threads,
            struct.pack(
                f"{2 + 3 * len(lanes)}q", rows, columns, *outer, *inner, *kinds
            ),
            tuple([k for k, fact in enumerate(facts) if fact is None]),
            len(lanes),
        )

    def _lane(self, letter: str, fact: Operand, axis: int) -> Lane:
        """An operand's axes, with that of its rows, if it has such, taken out."""
        if fact is None:
            return Lane((), ())
        dtype, shape, strides = fact
        if any(n % dtype.itemsize for n in strides):
            raise self._unserved(f"strides {strides} of {dtype}")
        steps = tuple([n // dtype.itemsize for n in strides])
        if letter != "n":
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
        for letter, fact in zip(self.letters, facts, strict=False):
            if fact is None and letter == "s":
                continue
            dtype = None if fact is None else fact[0]
            if letter == "i":
                if dtype != np.int64:
                    raise self._unserved(f"indices of {dtype}")
            elif dtype is None or dtype.char not in KINDS:
                raise self._unserved(str(dtype))
            else:
                found.add(dtype)
        if len({dtype.char == "d" for dtype in found}) != 1:
            raise self._unserved("numbers alone, or float64 beside other dtypes")
        return found.pop() if len(found) == 1 else np.dtype(np.float32)

    def _unserved(self, what: str) -> TypeError:
        return TypeError(f"{self.kernel.name}: no kernel for {what}")
