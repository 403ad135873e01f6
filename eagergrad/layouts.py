"""How arrays lie in memory: their axes' lengths and steps, and the fewest of those."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence

# One axis: its length, and how far apart its elements are, for each operand.
Axis = tuple[int, tuple[int, ...]]


def axes_of(shape: Sequence[int], steps: Sequence[Sequence[int]]) -> Iterable[Axis]:
    """The axes of operands that have a shape in common, by the steps of each."""
    return zip(shape, zip(*steps, strict=True), strict=True)


def merged(axes: Iterable[Axis]) -> list[Axis]:
    """The fewest axes that go over the same places.

    Neighbours are one axis if each operand goes on from one to the next evenly.
    """
    found: list[Axis] = []
    for n, inner in axes:
        if n == 1:
            continue
        if found and all(s == n * t for s, t in zip(found[-1][1], inner, strict=True)):
            found[-1] = found[-1][0] * n, inner
        else:
            found.append((n, inner))
    return found


def broadcast(
    own: Sequence[int], steps: Sequence[int], shape: Sequence[int]
) -> tuple[int, ...]:
    """The steps of an operand in the axes of a shape that its own broadcasts to."""
    along = [0 if n == 1 else s for n, s in zip(own, steps, strict=True)]
    return (0,) * (len(shape) - len(own)) + tuple(along)


def contiguous(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """The strides of a new array of such a shape, with elements of a size."""
    lengths = itertools.accumulate(shape[:0:-1], operator.mul, initial=size)
    return tuple(lengths)[: len(shape)][::-1]
