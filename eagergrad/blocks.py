"""Elementwise instructions made together, block by block: for lack of a compiler.

Each call of NumPy's goes over whole arrays, which no cache holds.  In blocks that one
does hold, what a call writes the next one finds there.  The bits are those of the calls
one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .traced import Instruction

Array = np.ndarray[Any, Any]

SIZE = 2**15  # elements of a block: a few operands fill half a megabyte
# Elements from which it pays: smaller arrays stay in a third-level cache.  A chain of
# ten calls on 10^7 numbers takes 4.1 ns for each instead of 7.3; on 10^6 it takes more.
WORTH = 2**21


class Blocks:
    """Some instructions as one function, which writes the last one's result."""

    def __init__(self, instructions: Sequence[Instruction], inputs: Sequence[Array]):
        self.__name__ = "blocks"
        (out,) = instructions[-1].outputs
        self.flat = all(
            not x.ndim or (x.shape == out.shape and x.flags.c_contiguous)
            for x in (*inputs, out)
        )
        self.rows = SIZE if self.flat else max(1, SIZE * len(out) // out.size)
        shape = (self.rows,) if self.flat else (self.rows, *out.shape[1:])
        # Values by their places: the inputs, numbers, the result, then those between.
        place = {id(x): i for i, x in enumerate(inputs)}
        self.numbers = [
            x for step in instructions for x in step.args if type(x) is not np.ndarray
        ]
        result = len(inputs) + len(self.numbers)
        place[id(out)] = result
        numbers = iter(range(len(inputs), result))
        last = {id(x): i for i, step in enumerate(instructions) for x in step.reads}
        self.between: list[Array] = []
        free: dict[np.dtype[Any], list[int]] = {}
        self.steps: list[tuple[Callable[..., Any], list[int], int]] = []
        for i, step in enumerate(instructions):
            reads = [
                place[id(x)] if type(x) is np.ndarray else next(numbers)
                for x in step.args
            ]
            (made,) = step.outputs
            if made is not out:
                if not free.setdefault(made.dtype, []):
                    self.between.append(np.empty(shape, made.dtype))
                    free[made.dtype].append(result + len(self.between))
                place[id(made)] = free[made.dtype].pop()
            function = _choose if step.call is np.where else step.call
            self.steps.append((function, reads, place[id(made)]))
            for x in {id(x): x for x in step.reads}.values():
                if last[id(x)] == i and place[id(x)] > result:
                    free[x.dtype].append(place[id(x)])

    def __call__(self, *inputs: Array, out: Array) -> None:
        if self.flat:
            out = out.reshape(-1)
            inputs = tuple([x.reshape(-1) if x.ndim else x for x in inputs])
        count = len(out)
        along = [x.ndim == out.ndim and len(x) == count for x in inputs]
        for start in range(0, count, self.rows):
            part = slice(start, start + self.rows)
            values = [
                x[part] if cut else x for x, cut in zip(inputs, along, strict=True)
            ]
            to = out[part]
            values += [*self.numbers, to, *[x[: len(to)] for x in self.between]]
            for function, reads, place in self.steps:
                function(*[values[i] for i in reads], out=values[place])


def _choose(condition: Array, a: Any, b: Any, out: Array) -> None:
    np.copyto(out, b)
    np.copyto(out, a, where=condition)
