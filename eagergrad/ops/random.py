"""Random numbers from a counter: the same key gives the same bits on every device."""

from __future__ import annotations

import functools
import math
import operator
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from .. import traced
from ..device import Device, recording, resolve
from ..errors import DTypeError
from ..operands import operand
from ..tensor import Tensor, as_dtype, wrap
from . import philox

Size = int | Sequence[int] | None


class Generator:
    """A stream of Philox4x32-10 numbers: a 64-bit key and the offset reached.

    ``state`` is (key, offset): save it, and the same numbers come again.
    """

    def __init__(self, seed: int | None = None):
        self._lock = threading.Lock()
        self.state = (0, 0)
        self.seeds = 0  # how often it has started again
        self.seed(seed)
        _GENERATORS.add(self)

    def seed(self, seed: int | None = None) -> None:
        """Start again from a seed; None takes one from the operating system."""
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        self.state = (operator.index(seed) % 2**64, 0)
        self.seeds += 1

    def _advance(
        self, kind: str, count: int, dtype: Any, device: Device
    ) -> tuple[int, int]:
        """The key and offset of so many numbers; a capture's stand for others."""
        if (run := recording()) is not None:
            drawn = self._moved(kind, count, dtype)
            return drawn[0], run.counter(self, *drawn, device)
        trace = traced.current()
        if trace is None:
            return self._moved(kind, count, dtype)
        key, offset, before = [0], [0], self.state

        def move() -> None:
            key[0], offset[0] = self._moved(kind, count, dtype)

        trace.host("advance", move, undo=lambda: setattr(self, "state", before))
        return traced.Dynamic.of(key), traced.Dynamic.of(offset)

    def _moved(self, kind: str, count: int, dtype: Any) -> tuple[int, int]:
        with self._lock:
            key, offset = self.state
            self.state = (key, offset + philox.blocks_used(kind, count, dtype))
        return key, offset

    def mark(self) -> tuple[int, int]:
        """The state to ``rewind`` to; that of a trace is Dynamic."""
        trace = traced.current()
        if trace is None:
            return self.state
        key, offset = [0], [0]

        def note() -> None:
            key[0], offset[0] = self.state

        trace.host("mark", note)
        return traced.Dynamic.of(key), traced.Dynamic.of(offset)

    def rewind(self, state: tuple[int, int]) -> None:
        """Go on from a state that ``mark`` gave."""
        trace, before = traced.current(), self.state
        if trace is None:
            self.state = state
            return

        def go(key: Any, offset: Any) -> None:
            self.state = key.cell[0], offset.cell[0]

        undo = functools.partial(setattr, self, "state", before)
        trace.host("rewind", go, state, undo=undo)

    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        size: Size = None,
        dtype: Any = np.float32,
        device: Device | str | None = None,
    ) -> Tensor:
        """Numbers spread evenly over [low, high).

        >>> Generator(0).uniform(size=2).shape
        (2,)
        """
        line = float(low), float(high) - float(low)
        return self._drawn("uniform", philox.uniform, line, size, dtype, device)

    def normal(
        self,
        loc: float = 0.0,
        scale: float = 1.0,
        size: Size = None,
        dtype: Any = np.float32,
        device: Device | str | None = None,
    ) -> Tensor:
        """Numbers of the normal distribution with mean loc and deviation scale.

        >>> Generator(0).normal(size=(2, 3)).shape
        (2, 3)
        """
        line = float(loc), float(scale)
        return self._drawn("normal", philox.normal, line, size, dtype, device)

    def permutation(self, x: Any, device: Device | str | None = None) -> Tensor:
        """The numbers below x in random order, or the rows of x if it is an array.

        >>> sorted(Generator(0).permutation(3).tolist())
        [0, 1, 2]
        """
        rows = None if isinstance(x, (int, np.integer)) else operand(x)
        count = operator.index(x) if rows is None else len(rows)
        target = resolve(device) if rows is None else rows.device
        key, offset = self._advance("permutation", count, np.int64, target)
        with target.allocating("random.permutation"):
            xp = target.backend.xp
            order = traced.call(philox.permutation, xp, key, offset, count)
        return wrap(order) if rows is None else rows[order]  # type: ignore[index]

    def _drawn(
        self,
        kind: str,
        draw: Callable[..., Any],
        line: tuple[float, float],
        size: Size,
        dtype: Any,
        device: Device | str | None,
    ) -> Tensor:
        """Draw, then map along the line (offset, slope)."""
        dtype = as_dtype(dtype, f"random.{kind}")
        if dtype.kind not in "fV":
            raise DTypeError(
                f"random.{kind}: expected a floating dtype, got {dtype}; draw floats "
                "and cast them with astype"
            )
        size = () if size is None else size
        shape = tuple(size) if isinstance(size, Sequence) else (size,)
        count = math.prod(shape)
        target = resolve(device)
        key, offset = self._advance(kind, count, dtype, target)
        with target.allocating(f"random.{kind}"):
            values = traced.call(draw, target.backend.xp, key, offset, count, dtype)
            if line != (0.0, 1.0):
                values = (line[0] + line[1] * values).astype(dtype, copy=False)
            return wrap(values.reshape(shape))


class Stretch:
    """The numbers that one replay of a recorded run takes from a generator.

    A run takes them as it begins.  What it draws has its place among them, wherever the
    function moves the generator meanwhile, to compute something again as it was.
    """

    def __init__(self, generator: Generator):
        self.generator = generator
        self.began = self.ended = self.now = generator.state
        self.seeds = generator.seeds
        self.length: int | None = 0  # None for one that ends at a state of its own
        self.used = False

    def place(self, key: int, offset: int) -> Callable[[], tuple[int, int]]:
        """Where numbers lie that the captured run drew there: in the present run."""
        self.used = True
        if not self._goes_on(key):
            return lambda: (key, offset)
        distance = offset - self.began[1]
        return lambda: (self.now[0], self.now[1] + distance)

    def _goes_on(self, key: int) -> bool:
        """Whether a key is from before the run, which then has not begun anew."""
        return key == self.began[0] and self.seeds == self.generator.seeds

    def end(self) -> None:
        """The captured run is over."""
        self.ended = self.generator.state
        goes_on = self._goes_on(self.ended[0])
        self.length = self.ended[1] - self.began[1] if goes_on else None
        self.used = self.used or self.length != 0

    def take(self) -> None:
        """Another run begins."""
        generator = self.generator
        with generator._lock:
            self.now = key, offset = generator.state
            generator.state = self.ended
            if self.length is not None:
                generator.state = key, offset + self.length

    def give_back(self) -> None:
        """Let it be as if the captured run had not been."""
        if self.generator.state != self.began:
            self.generator.state = self.began


def stretches() -> dict[Generator, Stretch]:
    """Of each generator there is, for a run that is about to be captured."""
    return {generator: Stretch(generator) for generator in list(_GENERATORS)}


_GENERATORS: WeakSet[Generator] = WeakSet()  # all that are alive
GENERATOR = Generator()
seed = GENERATOR.seed
uniform = GENERATOR.uniform
normal = GENERATOR.normal
permutation = GENERATOR.permutation
