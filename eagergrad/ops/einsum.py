"""Einsum: any sum of products by labels, one contraction of two arrays after another.

Each operand is first brought to plain form: labels that repeat within it become a
diagonal, those of length 1 that are longer elsewhere are dropped, and those that occur
nowhere else are summed.  What is left is a chain of ``contract``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..operands import common_dtype, operand
from .diagonals import diagonal
from .linalg import Labels, _conjugate, _contract, _last, _pair
from .reductions import sum
from .shapes import reshape, transpose

Terms = list[tuple[Any, Labels]]  # arrays, and the labels of their axes


def einsum(*operands: Any, optimize: Any = False) -> Any:
    """Sum products by labelled axes, in all of NumPy's forms.

    ``einsum("ij,jk->ik", a, b)`` or ``einsum(a, [0, 1], b, [1, 2], [0, 2])``; ``...``
    stands for axes that broadcast.  Without ``->`` the result has the labels that occur
    once, in alphabetical order.  Three operands and more are taken two at a time, in
    the order that ``optimize`` names as in ``numpy.einsum_path`` ("greedy" if False).

    >>> einsum("ij,ij->i", tensor([[1.0, 2.0]]), tensor([[3.0, 4.0]])).tolist()
    [11.0]
    """
    spec, arrays = _read(operands)
    labels, of_y, lengths = _parsed(spec, tuple([x.shape for x in arrays]))
    terms = [
        _distinct(x, of_x) for x, of_x in zip(common_dtype(arrays), labels, strict=True)
    ]
    terms = [_squeezed(x, of_x, lengths) for x, of_x in terms]
    terms = [
        _summed(
            *term, {*of_y}.union(*(of for k, (_, of) in enumerate(terms) if k != i))
        )
        for i, term in enumerate(terms)
    ]
    for group in _order(terms, of_y, lengths, optimize):
        chosen = [terms[i] for i in group]
        terms = [term for i, term in enumerate(terms) if i not in group]
        while len(chosen) > 1:
            (a, of_a), (b, of_b) = chosen.pop(0), chosen.pop(0)
            rest = {*of_y}.union(*(of for _, of in terms + chosen))
            of_ab = tuple(i for i in dict.fromkeys(of_a + of_b) if i in rest)
            if not terms and not chosen:
                of_ab = of_y
            chosen.insert(0, (_contract(a, b, (of_a, of_b, of_ab)), of_ab))
        terms += chosen
    ((y, last),) = terms
    return y if last == of_y else transpose(y, [last.index(i) for i in of_y])


def _read(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """The specification as a string, and the arrays, from either form of call."""
    if operands and isinstance(operands[0], str):
        return operands[0].replace(" ", ""), [
            operand(x, "einsum") for x in operands[1:]
        ]
    if len(operands) < 2:
        raise ShapeError(
            "einsum: expected a string and arrays, or arrays and lists of labels; got "
            f"{len(operands)} argument(s)"
        )
    lists = (
        operands[1::2] if len(operands) % 2 == 0 else [*operands[1::2], operands[-1]]
    )
    order = sorted({i for found in lists for i in found if i is not Ellipsis})
    letters = dict(zip(order, _LETTERS, strict=False))
    words = [
        "".join("..." if i is ... else letters[i] for i in found) for found in lists
    ]
    count = len(operands) // 2
    spec = ",".join(words[:count]) + "".join("->" + word for word in words[count:])
    return spec, [operand(x, "einsum") for x in operands[: 2 * count : 2]]


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@lru_cache(256)
def _parsed(
    spec: str, shapes: tuple[tuple[int, ...], ...]
) -> tuple[list[Labels], Labels, dict[int, int]]:
    """The labels of the operands and of the result, and the length of each label."""
    labels, of_y = _labels(spec, shapes)
    lengths: dict[int, int] = {}
    for of_x, shape in zip(labels, shapes, strict=True):
        for i, n in zip(of_x, shape, strict=True):
            known = lengths.setdefault(i, n)
            if known != n and 1 not in (known, n):
                raise ShapeError(
                    f"einsum: a label of {spec!r} has lengths {known} and {n}: shapes "
                    f"are {', '.join(map(str, shapes))}"
                )
            lengths[i] = n if known == 1 else known
    return labels, of_y, lengths


def _labels(
    spec: str, shapes: tuple[tuple[int, ...], ...]
) -> tuple[list[Labels], Labels]:
    """A number for each axis: of a letter its code, of an axis in ``...`` negative."""
    left, arrow, right = spec.partition("->")
    words = left.split(",")
    if len(words) != len(shapes):
        raise ShapeError(
            f"einsum: {spec!r} names {len(words)} operand(s), got {len(shapes)}"
        )
    labels, broadcast = [], 0
    for word, shape in zip(words, shapes, strict=True):
        letters = word.replace("...", "", 1)
        extra = len(shape) - len(letters)
        if extra < 0 or (extra and "..." not in word) or not _are_letters(letters):
            raise ShapeError(f"einsum: {word!r} of {spec!r} does not label {shape}")
        broadcast = max(broadcast, extra)
        labels.append(_codes(word, extra))
    if arrow:
        letters = right.replace("...", "", 1)
        unknown = {*map(ord, letters)} - {i for of_x in labels for i in of_x}
        if unknown or len({*letters}) < len(letters) or not _are_letters(letters):
            raise ShapeError(
                f"einsum: the result {right!r} of {spec!r} must name labels of the "
                "operands, each once"
            )
        if broadcast and "..." not in right:
            raise ShapeError(
                f"einsum: {spec!r} broadcasts {broadcast} axes but the result has no "
                "'...'; write it, or sum them afterwards"
            )
        return labels, _codes(right, broadcast)
    once = [i for i in {*left} if left.count(i) == 1 and i not in ".,"]
    return labels, _codes("..." + "".join(sorted(once)), broadcast)


def _are_letters(word: str) -> bool:
    return all(i in _LETTERS for i in word)


def _codes(word: str, extra: int) -> Labels:
    before, _, after = word.partition("...")
    return (*map(ord, before), *range(-extra, 0), *map(ord, after))


def _distinct(x: Any, labels: Labels) -> tuple[Any, Labels]:
    """Diagonals instead of repeated labels."""
    for i in dict.fromkeys(labels):
        while labels.count(i) > 1:
            first = labels.index(i)
            second = labels.index(i, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(
                    f"einsum: a label repeats on axes {first} and {second} of {x.shape}"
                    ", which differ in length"
                )
            x = diagonal(x, 0, first, second)
            rest = [j for k, j in enumerate(labels) if k not in (first, second)]
            labels = (*rest, i)
    return x, labels


def _squeezed(x: Any, labels: Labels, lengths: dict[int, int]) -> tuple[Any, Labels]:
    """Without the axes of length 1 that broadcast against longer ones."""
    long = [k for k, i in enumerate(labels) if x.shape[k] == lengths[i]]
    if len(long) == len(labels):
        return x, labels
    return reshape(x, tuple(x.shape[k] for k in long)), tuple(labels[k] for k in long)


def _summed(x: Any, labels: Labels, used: set[int]) -> tuple[Any, Labels]:
    """Summed over the labels that nothing else uses."""
    axes = tuple(k for k, i in enumerate(labels) if i not in used)
    if not axes:
        return x, labels
    return sum(x, axes), tuple(i for i in labels if i in used)


def _order(
    terms: Terms, of_y: Labels, lengths: dict[int, int], optimize: Any
) -> list[tuple[int, ...]]:
    """Which operands to contract, step by step; results go to the end."""
    if len(terms) < 3:
        return [(0, 1)] if len(terms) == 2 else []
    letter = dict(zip(lengths, _LETTERS, strict=False))
    words = ["".join(letter[i] for i in labels) for _, labels in terms]
    spec = ",".join(words) + "->" + "".join(letter[i] for i in of_y)
    shapes = [tuple(lengths[i] for i in labels) for _, labels in terms]
    dummies = [np.broadcast_to(np.zeros(()), shape) for shape in shapes]
    how = "greedy" if optimize is False or optimize is True else optimize
    path = np.einsum_path(spec, *dummies, optimize=how)[0]
    return [tuple(group) for group in path[1:]]


def vecdot(x1: Any, x2: Any, axis: int = -1) -> Any:
    """Sum conj(x1) x2 over one axis; the others broadcast.

    >>> vecdot(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([1.0, 1.0])).tolist()
    [3.0, 7.0]
    """
    x1, x2 = _pair(x1, x2)
    x1, x2 = (_last(x, axis, "vecdot") for x in (x1, x2))
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"vecdot: lengths differ: {x1.shape} and {x2.shape}")
    return einsum("...i,...i->...", _conjugate(x1), x2)
