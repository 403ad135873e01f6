"""Fusion: elementwise instructions of a program that become one kernel.

An instruction whose only reader is elementwise too, of the same shape, is computed
within that reader: one pass over memory instead of two, and nothing in between is
stored.  What comes of it is a formula, compiled and called as the printed ones are.

Sums, products and the like round as in NumPy, so that fusing them keeps every bit.
Functions such as ``exp`` are those of kernels/functions.h, which differ from NumPy's by
their stated errors, 2 units in the last place at most: ``exact`` leaves these alone.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import host_kernels
from .errors import KernelError
from .formulas import RENAMED, VECTORISED, number
from .kernels import Kernel, catalogue
from .traced import Instruction

Array = np.ndarray[Any, Any]

_FORMS = {
    "negative": "-{0}",
    "positive": "{0}",
    "square": "{0} * {0}",
    "reciprocal": "T(1) / {0}",
    "logical_not": "!{0}",
    "isnan": "{0} != {0}",
    **{
        name: f"{{0}} {sign} {{1}}"
        for name, sign in {
            "add": "+",
            "subtract": "-",
            "multiply": "*",
            "divide": "/",
            "greater": ">",
            "greater_equal": ">=",
            "less": "<",
            "less_equal": "<=",
            "equal": "==",
            "not_equal": "!=",
            "logical_and": "&",
            "logical_or": "|",
        }.items()
    },
}
# Of truth values alone: on integers they mean bits.
_LOGICAL = {
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} != {1}",
    "invert": "!{0}",
}
# Functions whose results are those of NumPy, to the bit.
_EXACT = frozenset(
    "abs sqrt fabs floor ceil trunc rint maximum minimum copysign".split()
)


def fuse(
    instructions: Sequence[Instruction],
    given: Sequence[Array],
    needed: Sequence[Array],
    exact: bool,
) -> list[Instruction]:
    """The instructions with elementwise ones joined.

    ``given`` are the arrays that change from run to run, ``needed`` those that must
    still be made.
    """
    if host_kernels.problem() is not None:
        return list(instructions)
    fuser = _Fuser(instructions, given, needed, exact)
    found = list(instructions)
    inside: set[int] = set()  # what another instruction computes
    for root in range(len(found) - 1, -1, -1):
        if root in inside:
            continue
        piece = fuser.piece(root)
        if piece is None:
            continue
        try:
            found[root] = piece.instruction(instructions[root])
        except KernelError:  # as where no kernel can be compiled at all
            if host_kernels.mode() == "require":
                raise
            continue
        inside |= piece.members - {root}
    return [x for i, x in enumerate(found) if i not in inside]


class _Fuser:
    """What is known of a list of instructions."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        given: Sequence[Array],
        needed: Sequence[Array],
        exact: bool,
    ):
        self.instructions = instructions
        self.forms = [_form(x, exact) for x in instructions]
        self.given = {id(x) for x in given}
        self.needed = {id(x) for x in needed}
        self.changing = [
            i for i, x in enumerate(instructions) if x.kind in ("inplace", "host")
        ]
        self.readers: dict[int, set[int]] = {}
        self.maker: dict[int, int] = {}
        for i, instruction in enumerate(instructions):
            for x in instruction.reads:
                self.readers.setdefault(id(x), set()).add(i)
            for out in instruction.outputs:
                self.maker.setdefault(id(out), i)

    def piece(self, root: int) -> _Piece | None:
        """The largest piece that ends in an instruction, if it is worth a kernel."""
        instruction = self.instructions[root]
        if self.forms[root] is None:
            return None
        dtype = instruction.outputs[0].dtype
        if dtype not in _DTYPES:
            return None
        members = {root}
        # Makers of what members read, latest first: when one is looked at, all that
        # read it have been.
        ahead = [-i for i in self._makers(root)]
        heapq.heapify(ahead)
        seen = set(ahead)
        while ahead and len(members) < MOST_MEMBERS:
            i = -heapq.heappop(ahead)
            if self._may_join(i, members, root, dtype):
                members.add(i)
                for maker in self._makers(i):
                    if -maker not in seen:
                        seen.add(-maker)
                        heapq.heappush(ahead, -maker)
        # without those that read what no kernel of this dtype reads
        while wrong := {
            i for i in members if not self._reads_well(i, members, root, dtype)
        }:
            members -= wrong
            if root not in members:
                return None
        if len(members) < 2:
            return None
        piece = _Piece(self, sorted(members), dtype)
        return piece if 0 < len(piece.inputs) <= MOST_INPUTS else None

    def _may_join(
        self, i: int, members: set[int], root: int, dtype: np.dtype[Any]
    ) -> bool:
        """Whether only members read what an instruction makes, and as it is now."""
        instruction = self.instructions[i]
        if self.forms[i] is None:
            return False
        (out,) = instruction.outputs
        readers = self.readers.get(id(out), set())
        if (
            not readers
            or not readers <= members
            or id(out) in self.needed
            or out.dtype not in (dtype, np.bool_)
            or out.shape != self.instructions[root].outputs[0].shape
        ):
            return False
        reads = instruction.reads
        between = self.changing[bisect(self.changing, i) : bisect(self.changing, root)]
        return not any(
            np.may_share_memory(x, y)
            for j in between
            for x in self.instructions[j].reads
            for y in reads
        )

    def _makers(self, i: int) -> list[int]:
        """The instructions that made what an instruction reads."""
        made = (self.maker.get(id(x)) for x in self.instructions[i].reads)
        return [maker for maker in made if maker is not None and maker < i]

    def _reads_well(
        self, i: int, members: set[int], root: int, dtype: np.dtype[Any]
    ) -> bool:
        instruction = self.instructions[i]
        if i != root and not self.readers[id(instruction.outputs[0])] <= members:
            return False
        return all(
            type(x) in (int, float)
            or (
                isinstance(x, np.ndarray)
                and (x.dtype == dtype or self.maker.get(id(x)) in members)
            )
            for x in instruction.args
        )

    def is_constant(self, array: Array) -> bool:
        """Whether an array has the same values in every run."""
        return id(array) not in self.given and id(array) not in self.maker


class _Piece:
    """Instructions as the lines of one formula."""

    def __init__(self, fuser: _Fuser, members: list[int], dtype: np.dtype[Any]):
        self.members = set(members)
        self.inputs: list[Array] = []
        self.lines: list[str] = []
        self.formulas: dict[str, str] = {}  # that are called, by name
        self._fuser = fuser
        self._known: dict[int, str] = {}
        for i in members:
            self._write(i)
        names = [fuser.instructions[i].name.rpartition(".")[2] for i in members]
        self.name = "+".join(dict.fromkeys(names))

    def _write(self, i: int) -> None:
        instruction, form = self._fuser.instructions[i], self._fuser.forms[i]
        assert form is not None
        names = [self._operand(x) for x in instruction.args]
        if kernel := _kernel_of(instruction):
            self.formulas[kernel.name] = kernel.text
        (out,) = instruction.outputs
        result = self._known[id(out)] = f"t{len(self.lines)}"
        kind = "bool" if out.dtype == bool else "T"
        self.lines.append(f"    const {kind} {result} = {form.format(*names)};")

    def _operand(self, x: Any) -> str:
        if not isinstance(x, np.ndarray):
            return number(x)
        if id(x) not in self._known:
            if not x.ndim and self._fuser.is_constant(x):
                return number(x.item())
            self._known[id(x)] = f"x{len(self.inputs)}"
            self.inputs.append(x)
        return self._known[id(x)]

    def instruction(self, last: Instruction) -> Instruction:
        """The kernel's call in place of the last instruction."""
        call = _compiled(self)
        return Instruction(
            self.name, call, tuple(self.inputs), {}, last.outputs, "fresh"
        )


_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
MOST_INPUTS, MOST_MEMBERS = 12, 100


def _compiled(piece: _Piece) -> Callable[..., Any]:
    count = len(piece.inputs)
    arguments = ", ".join(f"T x{i}" for i in range(count))
    body = "\n".join(piece.lines)
    text = (
        "struct NAME {\n"
        f"  template <class T> EG_FN T operator()({arguments}) const {{\n{body}\n"
        f"    return t{len(piece.lines) - 1};\n  }}\n}};"
    )
    whole = "\n\n".join([*piece.formulas.values(), text])
    name = f"fused_{hashlib.sha256(whole.encode()).hexdigest()[:16]}"
    kernel = Kernel(name, "s" * count + ">s", whole.replace("NAME", name))
    return host_kernels.made(kernel)


def _form(instruction: Instruction, exact: bool) -> str | None:
    """An elementwise instruction as C++ with places for its operands, else None."""
    call = instruction.call
    if instruction.kind != "fresh" or instruction.kwargs:
        return None
    if call is np.where:
        return "{0} ? {1} : {2}"
    if not isinstance(call, np.ufunc) or call.signature or call.nout != 1:
        return None
    if _kernel_of(instruction):
        places = ", ".join(f"{{{i}}}" for i in range(call.nin))
        return f"{call.__name__}()({places})"
    name = RENAMED.get(call.__name__, call.__name__)
    if getattr(np, call.__name__, None) is not call:
        return None
    if name in _LOGICAL and instruction.outputs[0].dtype == bool:
        return _LOGICAL[name]
    if name in _FORMS:
        return _FORMS[name]
    if name in (_EXACT if exact else _EXACT | VECTORISED):
        return f"{name}({', '.join(f'{{{i}}}' for i in range(call.nin))})"
    return None


def _kernel_of(instruction: Instruction) -> Kernel | None:
    """The printed formula that an instruction calls."""
    name = getattr(instruction.call, "__name__", "")
    found = catalogue().get(name)
    return found if found and found.text and not hasattr(np, name) else None
