"""Fusion: elementwise instructions of a program that become one kernel.

An instruction whose only reader is elementwise too, of the same shape, is computed
within that reader: one pass over memory instead of two, and nothing in between is
stored.  What comes of it is a formula, compiled and called as the printed ones are.
Where the last reader is a sum or a maximum, of all elements or along the last axis, the
formula is computed within that, on rows.

Arithmetic rounds as in NumPy, so that fusing it keeps every bit.  Functions such as
``exp`` are those of kernels/functions.h, which differ from NumPy's by their stated
errors, 2 units in the last place at most, and a fused sum adds up in another order, the
same in every run: ``exact`` leaves both alone.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from bisect import bisect
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from . import host_kernels
from .blocks import WORTH, Blocks
from .errors import KernelError
from .formulas import RENAMED, VECTORISED, number
from .kernels import Kernel, catalogue
from .stages import SHORT, Line, is_long, stages
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
_EXACT = SHORT - {"sign"}


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
    fuser = _Fuser(instructions, given, needed, exact)
    pieces: dict[int, _Piece] = {}
    inside: set[int] = set()  # what another instruction computes
    for root in range(len(instructions) - 1, -1, -1):
        if root not in inside and (piece := fuser.piece(root)) is not None:
            pieces[root] = piece
            inside |= piece.members
    found: list[Sequence[Instruction]] = [(x,) for x in instructions]
    try:
        if fuser.compiled:
            kernels = [piece.kernel for piece in pieces.values()]
            host_kernels.compile_all(list(dict.fromkeys(kernels)))
        for root, piece in pieces.items():
            made = piece.instructions()
            for i in piece.members:
                found[i] = ()
            found[root] = made
    except KernelError:  # as where no kernel can be compiled at all
        if host_kernels.mode() == "require":
            raise
    return [x for several in found for x in several]


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
        self.compiled = host_kernels.problem() is None
        self.exact = exact or not self.compiled
        self.forms = [_form(x, exact and self.compiled) for x in instructions]
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
        last = root
        if self.forms[root] is None:
            folded = None if self.exact else _folded(instruction)
            if folded is None or self.readers.get(id(folded)) != {root}:
                return None
            last = self.maker.get(id(folded), -1)
            if last < 0 or not self._may_join(last, {root}, root, folded):
                return None
        (out,) = self.instructions[last].outputs
        if out.dtype not in _DTYPES:
            return None
        members = {last}
        # Makers of what members read, latest first: when one is looked at, all that
        # read it have been.
        ahead = [-i for i in self._makers(last)]
        heapq.heapify(ahead)
        seen = set(ahead)
        while ahead and len(members) < MOST_MEMBERS:
            i = -heapq.heappop(ahead)
            if self._may_join(i, members, root, out):
                members.add(i)
                for maker in self._makers(i):
                    if -maker not in seen:
                        seen.add(-maker)
                        heapq.heappush(ahead, -maker)
        # without those that read what no kernel of this dtype reads
        while wrong := {
            i for i in members if not self._reads_well(i, members, last, out.dtype)
        }:
            members -= wrong
            if last not in members:
                return None
        kind = _Blocked if not self.compiled else _Piece if last == root else _Fold
        piece = kind(self, sorted(members), instruction)
        return piece if piece.fits() else None

    def _may_join(self, i: int, members: set[int], root: int, like: Array) -> bool:
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
            or out.dtype not in (like.dtype, np.bool_)
            or out.shape != like.shape
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
        self, i: int, members: set[int], last: int, dtype: np.dtype[Any]
    ) -> bool:
        instruction = self.instructions[i]
        if i != last and not self.readers[id(instruction.outputs[0])] <= members:
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

    def __init__(self, fuser: _Fuser, members: list[int], last: Instruction):
        self.members = set(members)
        self.last = last
        self.inputs: list[Array] = []
        self.lines: list[Line] = []
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
        self.result = self._known[id(out)] = f"t{len(self.lines)}"
        kind = "bool" if out.dtype == bool else "T"
        long = is_long(kernel.text if kernel else form)
        self.lines.append(Line(self.result, kind, form.format(*names), long))

    def _operand(self, x: Any) -> str:
        if not isinstance(x, np.ndarray):
            return number(x)
        if id(x) not in self._known:
            if not x.ndim and self._fuser.is_constant(x):
                return number(x.item())
            self._known[id(x)] = f"x{len(self.inputs)}"
            self.inputs.append(x)
        return self._known[id(x)]

    def fits(self) -> bool:
        """Whether it is worth a kernel, and can be one."""
        return len(self.members) > 1 and 0 < len(self.inputs) <= MOST_INPUTS

    def instructions(self) -> list[Instruction]:
        """The kernel's call in place of the last instruction."""
        call = host_kernels.made(self.kernel)
        return [_fresh(self.name, call, self.inputs, self.last.outputs[0])]

    @cached_property
    def kernel(self) -> Kernel:
        operands, body = self._written()
        text = f"struct NAME {{\n{body}\n}};"
        whole = "\n\n".join([*self.formulas.values(), text])
        name = f"fused_{hashlib.sha256(whole.encode()).hexdigest()[:16]}"
        return Kernel(name, operands, whole.replace("NAME", name))

    def _written(self) -> tuple[str, str]:
        """The kernel's OPERANDS and what it does."""
        count = len(self.inputs)
        arguments = ", ".join(f"T x{i}" for i in range(count))
        found = [
            f"  template <class T> EG_FN T operator()({arguments}) const {{",
            *[line.text for line in self.lines],
            f"    return {self.result};",
            "  }",
            *stages(self.lines, arguments, {"y": self.result}),
        ]
        return "s" * count + ">s", "\n".join(found)


class _Blocked(_Piece):
    """Instructions as calls on blocks, where no kernel is compiled."""

    def fits(self) -> bool:
        return super().fits() and self.last.outputs[0].size >= WORTH

    def instructions(self) -> list[Instruction]:
        steps = [self._fuser.instructions[i] for i in sorted(self.members)]
        call = Blocks(steps, self.inputs)
        return [_fresh(self.name, call, self.inputs, self.last.outputs[0])]


class _Fold(_Piece):
    """Instructions as what is added up, or the largest of which is found.

    Along the last axis, whose elements are a row of the kernel's; of all elements, in
    rows of a length that divides them.
    """

    def __init__(self, fuser: _Fuser, members: list[int], last: Instruction):
        super().__init__(fuser, members, last)
        (folded,) = last.reads
        self.shape = folded.shape
        self.whole = last.outputs[0].size == 1
        self.fold = _FOLDS[last.call]
        self.name += f"+{self.fold}"

    def _is_row(self, x: Array) -> bool:
        return bool(x.shape[-1:] == self.shape[-1:])

    def fits(self) -> bool:
        if not any(map(self._is_row, self.inputs)) or len(self.inputs) > MOST_INPUTS:
            return False
        return not self.whole or all(
            x.shape == self.shape and x.flags.c_contiguous
            if self._is_row(x)
            else not x.ndim
            for x in self.inputs
        )

    def instructions(self) -> list[Instruction]:
        """The kernel's call, the views it takes, and the fold of its results."""
        found: list[Instruction] = []

        def view(x: Array, function: Callable[..., Any], argument: Any) -> Array:
            made: Array = function(x, argument)
            name = function.__name__.strip("_")
            found.append(
                Instruction(name, function, (x, argument), {}, (made,), "view")
            )
            return made

        length = _part(math.prod(self.shape)) if self.whole else self.shape[-1]
        inputs = []
        for x in self.inputs:
            if self.whole and x.ndim:
                x = view(x, np.ndarray.reshape, (-1, length))
            elif x.ndim and not self._is_row(x):
                x = view(x, np.ndarray.__getitem__, (..., 0))
            inputs.append(x)
        call = host_kernels.made(self.kernel)
        (out,) = self.last.outputs
        shape = () if self.whole else self.shape[:-1]
        flat = out if out.shape == shape else out.reshape(shape)
        if self.whole:
            parts = np.empty(math.prod(self.shape) // length, out.dtype)
            found.append(_fresh(self.name, call, inputs, parts))
            found.append(_fresh(self.last.name, self.last.call, [parts], flat))
        else:
            found.append(_fresh(self.name, call, inputs, flat))
        if flat is not out:
            reshape = np.ndarray.reshape
            arguments = flat, out.shape
            found.append(Instruction("reshape", reshape, arguments, {}, (out,), "view"))
        return found

    def _written(self) -> tuple[str, str]:
        letters = ["n" if self._is_row(x) else "s" for x in self.inputs]
        kinds = [f"class X{i}" for i, letter in enumerate(letters) if letter == "n"]
        given = [f"X{i} r{i}" if x == "n" else f"T x{i}" for i, x in enumerate(letters)]
        reads = [
            f"      const T x{i} = r{i}[j];" for i, x in enumerate(letters) if x == "n"
        ]
        operands = f"{''.join(letters)}>s"
        lines = [
            f'  static constexpr char OPERANDS[] = "{operands}";',
            f"  template <class T, class Lane, {', '.join(kinds)}>",
            "  EG_FN void operator()(const Lane& lane, Index n,",
            f"                        {', '.join(given)}, T& y) const {{",
            f"    y = lane.template {self.fold}<T>(n, [&](Index j) {{",
            *reads,
            *[f"  {line.text}" for line in self.lines],
            f"      return {self.result};",
            "    });",
            "  }",
        ]
        return operands, "\n".join(lines)


def _fresh(
    name: str, call: Callable[..., Any], inputs: Sequence[Array], out: Array
) -> Instruction:
    return Instruction(name, call, tuple(inputs), {}, (out,), "fresh")


def _part(size: int) -> int:
    """The length of rows that so many elements are folded in; the last are few."""
    return next((n for n in _PARTS if size % n == 0 and size > n), size)


def _folded(instruction: Instruction) -> Array | None:
    """What a sum or a maximum folds, if it is that of all elements or of rows."""
    options = instruction.kwargs
    if (
        instruction.kind != "fresh"
        or not isinstance(instruction.call, Hashable)
        or instruction.call not in _FOLDS
        or len(instruction.args) != 1
        or options.get("dtype") is not None
        or not options.keys() <= {"axis", "dtype", "keepdims"}
    ):
        return None
    (x,) = instruction.args
    everything = instruction.call in (np.ndarray.sum, np.ndarray.max)
    axis = options.get("axis", None if everything else 0)
    if type(x) is not np.ndarray or not x.size or not x.ndim:
        return None
    given = range(x.ndim) if axis is None else (axis,) if type(axis) is int else axis
    gone = {i % x.ndim for i in given}
    return x if len(gone) == x.ndim or gone == {x.ndim - 1} else None


_PARTS = (4096, 2048, 1024, 1000, 512, 500, 256, 250, 128, 125, 100, 64, 50)
_FOLDS = {
    np.add.reduce: "sum",
    np.ndarray.sum: "sum",
    np.maximum.reduce: "max",
    np.ndarray.max: "max",
}
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
MOST_INPUTS, MOST_MEMBERS = 12, 100


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
