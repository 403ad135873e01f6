"""Stages: a formula as several loops over its elements, one after the other.

A CPU looks some hundred instructions ahead.  Where the long functions of a formula take
each other's results, as in tanh(log(1 + exp(x))), these are of few elements, each a
chain that waits for itself; of a loop for each function they are of many.  What one
stage makes and a later one reads is ``kept``, in rows that stay in the first cache.
Every value has the bits that it has in one loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

# The functions of kernels/functions.h, by how many instructions they take.
SHORT = frozenset(
    "abs sign sqrt fabs floor ceil trunc rint copysign maximum minimum".split()
)
LONG = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sinh cosh tanh atan asin acos erf erfc "
    "exp_share log1p_share normcdf normpdf".split()
)
MOST_KEPT = 8  # rows that the first cache holds beside the operands


def is_long(text: str) -> bool:
    """Whether C++ calls a function that takes many instructions."""
    return not LONG.isdisjoint(re.findall(r"\w+(?=\()", text))


@dataclass(frozen=True)
class Line:
    """A line of a formula: the name of a value, its type, and what it is."""

    name: str
    kind: str  # T or bool
    value: str
    long: bool

    @property
    def text(self) -> str:
        return f"    const {self.kind} {self.name} = {self.value};"

    @cached_property
    def reads(self) -> frozenset[str]:
        return _names(self.value)

    def kept(self, place: int) -> str:
        # T(bool) would stop GCC 12 from vectorising
        value = f"{self.name} ? T(1) : T(0)" if self.kind == "bool" else self.name
        return f"    kept[{place}][i] = {value};"

    def found(self, place: int) -> str:
        test = " != T(0)" if self.kind == "bool" else ""
        return f"    const {self.kind} {self.name} = kept[{place}][i]{test};"


def _names(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def _all_names(texts: Iterable[str]) -> frozenset[str]:
    return _names(" ".join(texts))


def stages(
    lines: Sequence[Line], arguments: str, results: Mapping[str, str]
) -> list[str]:
    """The members of a kernel that make its results in stages; none if one will do.

    ``results`` has the text of each, by the name of the parameter it is written to.
    """
    depth: dict[str, int] = {}  # long functions on the way to a value
    for line in lines:
        before = max((depth.get(x, 0) for x in line.reads), default=0)
        depth[line.name] = before + line.long
    wanted = _all_names(results.values())
    count = max(depth.get(x, 0) for x in wanted)
    if count < 2:
        return []
    # What is not long is made where it is first read.
    own: list[list[Line]] = [[] for _ in range(count)]
    first = dict.fromkeys(wanted, count - 1)
    last = dict.fromkeys(wanted, count - 1)
    for line in reversed(lines):
        now = depth[line.name] - 1 if line.long else first[line.name]
        own[now].insert(0, line)
        for x in line.reads:
            first[x] = min(now, first.get(x, now))
            last[x] = max(now, last.get(x, now))

    written = ", ".join(f"T& {name}" for name in results)
    found: list[str] = []
    places: dict[Line, int] = {}  # of what is kept
    rows = 0
    for now, made in enumerate(own):
        read = _all_names(line.value for line in made)
        if now == count - 1:
            read |= wanted
        found += [
            "  template <class T, class K>",
            f"  EG_FN void stage(Places<{now}>, {arguments}, K kept, Index i,",
            f"                   {written}) const {{",
            *[line.found(at) for line, at in places.items() if line.name in read],
            *[line.text for line in made],
        ]
        places = {line: at for line, at in places.items() if last[line.name] > now}
        for line in made:
            if last[line.name] > now:
                free = set(range(MOST_KEPT)).difference(places.values())
                if not free:
                    return []
                places[line] = at = min(free)
                rows = max(rows, at + 1)
                found.append(line.kept(at))
        if now == count - 1:
            found += [f"    {name} = {text};" for name, text in results.items()]
        found.append("  }")
    return [f"  static constexpr int STAGES = {count}, KEPT = {rows};", *found]
