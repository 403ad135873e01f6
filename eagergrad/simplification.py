"""Simplification: instructions of a program that say nothing new.

Each rule keeps every bit, also of nan, infinities and zeros of both signs: what was
computed from constants is one, calls that are equal are made once, and an identity such
as ``x * 1`` is its argument.  ``x + 0`` is none, which makes 0.0 of -0.0.

An array may be changed in place.  So an argument counts with how often its memory had
been changed until then, and what is ever changed stands for no other array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .traced import Dynamic, Instruction

Array = np.ndarray[Any, Any]


def simplify(
    instructions: Sequence[Instruction],
    given: Sequence[Array],
    needed: Sequence[Array],
) -> list[Instruction]:
    """The instructions without those that say nothing new.

    ``given`` are the arrays that change from run to run, ``needed`` those that must
    still be made.
    """
    simplifier = _Simplifier(instructions, given, needed)
    return [
        kept
        for instruction in instructions
        if (kept := simplifier.simplified(instruction)) is not None
    ]


class _Simplifier:
    """What is known at one place in a list of instructions."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        given: Sequence[Array],
        needed: Sequence[Array],
    ):
        self.met: list[Instruction] = []  # whose arrays live as long as their ids count
        self.places: dict[int, Array] = {}  # what stands for an array, by its id
        self.maker: dict[int, Instruction] = {}  # of the arrays that are made
        self.root: dict[int, Array] = {}  # whose memory a view is
        self.changes: dict[int, int] = {}  # of the memory of a root, until here
        self.known: dict[Any, tuple[Array, ...]] = {}  # what equal calls gave
        self.varying = {id(x) for x in given}  # from run to run
        for instruction in instructions:
            self._find_roots(instruction)
        self.changed = {
            id(self._root(x))
            for instruction in instructions
            if instruction.kind in ("inplace", "host")
            for x in instruction.reads
        }
        self.pinned = {id(self._root(x)) for x in needed}

    def _find_roots(self, instruction: Instruction) -> None:
        if instruction.kind == "view":
            for out in instruction.outputs:
                source = next(
                    x for x in instruction.reads if np.may_share_memory(x, out)
                )
                if out is not source:
                    self.root.setdefault(id(out), self._root(source))
        else:
            for out in instruction.outputs:
                self.root.setdefault(id(out), out)

    def _root(self, array: Array) -> Array:
        return self.root.get(id(array), array)

    def simplified(self, instruction: Instruction) -> Instruction | None:
        """The instruction on what stands for its arguments; None if it says nothing."""
        own = instruction.outputs
        moved = instruction.moved(self.places)
        if moved is not instruction:
            instruction = moved
            self.met.append(instruction)
            self._find_roots(instruction)
        if instruction.kind in ("inplace", "host"):
            for x in (*instruction.reads, *instruction.outputs):
                root = id(self._root(x))
                self.changes[root] = self.changes.get(root, 0) + 1
            return self._kept(instruction)
        if Dynamic in map(type, instruction.args):
            return self._kept(instruction)
        if self._is_constant(instruction):
            return None
        instruction = self._unbroadcast(instruction)
        same = self._same(instruction)
        found: tuple[Array, ...] | None = None if same is None else (same,)
        if found is None and (key := self._key(instruction)) is not None:
            found = self.known.setdefault(key, instruction.outputs)
        if found is None or found is instruction.outputs or self._is_pinned(own):
            return self._kept(instruction)
        for out, same in zip(own, found, strict=True):
            if out is not same:
                self.places[id(out)] = same
        return None

    def _is_pinned(self, outputs: Sequence[Array]) -> bool:
        return any(id(self._root(x)) in self.pinned for x in outputs)

    def _kept(self, instruction: Instruction) -> Instruction:
        for out in instruction.outputs:
            self.maker.setdefault(id(out), instruction)
            self.varying.add(id(out))
        return instruction

    # ------------------------------------------------------------------- constants

    def _is_constant(self, instruction: Instruction) -> bool:
        """Whether the results are the same in every run: those of the trace."""
        if instruction.call not in _BY_SHAPE:
            for x in instruction.reads:
                if id(x) in self.varying or id(self._root(x)) in self.changed:
                    return False
        return not any(id(self._root(x)) in self.changed for x in instruction.outputs)

    def _number(self, x: Any) -> Any:
        """The value of a number, or of a constant array of one; else None."""
        if type(x) in (int, float):
            return x
        if not isinstance(x, np.ndarray) or x.ndim or x.dtype.kind not in "fiu":
            return None
        return None if id(x) in self.varying or id(x) in self.changed else x.item()

    # ------------------------------------------------------------------ equal calls

    def _key(self, instruction: Instruction) -> Any:
        """What equal calls have in common; None for what is to stay by itself."""
        if instruction.kind == "fresh" and any(
            id(x) in self.changed for x in instruction.outputs
        ):
            return None
        call = instruction.call
        args = [self._argument(x) for x in instruction.args]
        if call is np.square and _is_real(instruction.outputs[0]):
            call, args = np.multiply, args * 2
        kwargs = [(k, self._argument(v)) for k, v in instruction.kwargs.items()]
        try:
            if call in _COMMUTATIVE:
                args.sort(key=hash)
            key = (_identity(call), tuple(args), tuple(kwargs))
            hash(key)
        except TypeError:
            return None
        return key

    def _argument(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            root = id(self._root(value))
            if id(value) in self.varying or root in self.changed or value.nbytes > 64:
                return "array", id(value), self.changes.get(root, 0)
            return value.dtype.str, value.shape, value.strides, value.tobytes()
        if isinstance(value, np.generic):
            return value.dtype.str, value.tobytes()
        if type(value) in (tuple, list):
            return type(value), *map(self._argument, value)
        if type(value) is slice:
            return slice, value.start, value.stop, value.step
        if type(value) is float:
            return float, value.hex()  # tells -0.0 from 0.0, and has one nan
        if type(value) is complex:
            return complex, value.real.hex(), value.imag.hex()
        return type(value), value

    # ------------------------------------------------------------------- identities

    def _same(self, instruction: Instruction) -> Array | None:
        """The array that the only result of an instruction is equal to, if any."""
        if len(instruction.outputs) != 1:
            return None
        (out,) = instruction.outputs
        if instruction.kind == "view":
            return self._same_view(instruction, out)
        rule = _IDENTITIES.get(_identity(instruction.call))
        if rule is None or instruction.kwargs.keys() - {"copy", "order"}:
            return None
        x = rule(self, out, *instruction.args)
        if x is None or not isinstance(x, np.ndarray):
            return None
        alike = (x.dtype, x.shape, x.strides) == (out.dtype, out.shape, out.strides)
        roots = {id(self._root(x)), id(out)}
        return x if alike and not roots & self.changed else None

    def _same_view(self, instruction: Instruction, out: Array) -> Array | None:
        """An array that shows the same memory in the same way."""
        root = self._root(out)
        key = "view", id(root), _address(out), out.shape, out.strides, out.dtype.str
        self.known.setdefault(
            (
                "view",
                id(root),
                _address(root),
                root.shape,
                root.strides,
                root.dtype.str,
            ),
            (root,),
        )
        (same,) = self.known.setdefault(key, (out,))
        return None if same is out else same

    def inner(self, x: Any, call: Callable[..., Any]) -> Any:
        """The argument of the call that made an array, if it was this."""
        maker = self.maker.get(id(x))
        if maker is None or maker.call is not call or maker.kwargs:
            return None
        if id(self._root(x)) in self.changed:
            return None
        return maker.args[0]

    def is_number(self, x: Any, value: float) -> bool:
        found = self._number(x)
        return found == value and (value != 0 or str(found)[0] != "-")

    # ------------------------------------------------------------------ broadcasting

    def _unbroadcast(self, instruction: Instruction) -> Instruction:
        """Elementwise functions broadcast their arguments themselves."""
        call = instruction.call
        if not isinstance(call, np.ufunc) or call.signature or instruction.kwargs:
            return instruction
        args = list(instruction.args)
        shape = instruction.outputs[0].shape
        for i, x in enumerate(args):
            source = self._broadcast(x)
            if source is not None and source.dtype == x.dtype:
                others = [np.shape(y) for j, y in enumerate(args) if j != i]
                if shape in others:
                    args[i] = source
        if all(x is y for x, y in zip(args, instruction.args, strict=True)):
            return instruction
        return Instruction(
            instruction.name,
            call,
            tuple(args),
            instruction.kwargs,
            instruction.outputs,
            instruction.kind,
        )

    def _broadcast(self, x: Any) -> Array | None:
        """What an array is a broadcast of, if it is one."""
        if not isinstance(x, np.ndarray):
            return None
        constant = id(x) not in self.varying and id(self._root(x)) not in self.changed
        if constant and x.ndim and x.size and not any(x.strides):
            return np.array(x[(0,) * x.ndim])
        maker = self.maker.get(id(x))
        if maker is None or maker.kind != "view" or 0 not in x.strides:
            return None
        source: Array = maker.reads[0]
        if source.shape not in ((), (1,)) or _address(source) != _address(x):
            return None
        return source if not any(x.strides) else None


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _is_real(x: Array) -> bool:
    return x.dtype.kind in "fiub"


def _identity(call: Any) -> Any:
    """What tells calls apart: methods bound anew to one function are one."""
    owner = getattr(call, "__self__", None)
    if isinstance(owner, np.ufunc):
        return owner, call.__name__
    return call


_BY_SHAPE = (np.zeros_like, np.ones_like)
_COMMUTATIVE = (np.add, np.multiply, np.equal, np.not_equal)

# What the result of a call is equal to: a rule is given it and the arguments.
Rule = Callable[..., Any]


def _times_one(known: _Simplifier, out: Array, a: Any, b: Any) -> Any:
    if not _is_real(out):  # of complex numbers 0 * inf is a part
        return None
    return a if known.is_number(b, 1) else b if known.is_number(a, 1) else None


def _right(neutral: float) -> Rule:
    def rule(known: _Simplifier, out: Array, a: Any, b: Any) -> Any:
        return a if _is_real(out) and known.is_number(b, neutral) else None

    return rule


def _of_two_equal(known: _Simplifier, out: Array, a: Any, b: Any) -> Any:
    return a if a is b else None


def _twice(call: Any) -> Rule:
    """A function that is its own inverse."""
    return lambda known, out, x: known.inner(x, call)


def _again(call: Any) -> Rule:
    """A function of which a second call changes nothing."""
    return lambda known, out, x: x if known.inner(x, call) is not None else None


def _copied(known: _Simplifier, out: Array, x: Any, *how: Any) -> Any:
    return x


_IDENTITIES: dict[Any, Rule] = {
    np.multiply: _times_one,
    np.divide: _right(1),
    np.subtract: _right(0),
    np.negative: _twice(np.negative),
    np.logical_not: _twice(np.logical_not),
    np.invert: _twice(np.invert),
    np.absolute: _again(np.absolute),
    np.floor: _again(np.floor),
    np.ceil: _again(np.ceil),
    np.trunc: _again(np.trunc),
    np.rint: _again(np.rint),
    np.sign: _again(np.sign),
    np.positive: _copied,
    np.copy: _copied,
    np.ndarray.copy: _copied,
    np.ndarray.astype: _copied,
    np.conjugate: lambda known, out, x: x if _is_real(out) else None,
    np.maximum: _of_two_equal,
    np.minimum: _of_two_equal,
    np.fmax: _of_two_equal,
    np.fmin: _of_two_equal,
    np.bitwise_and: _of_two_equal,
    np.bitwise_or: _of_two_equal,
    np.where: lambda known, out, c, a, b: a if a is b else None,
}
