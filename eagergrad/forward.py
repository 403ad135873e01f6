"""Forward mode: tangents carried along as the ops run.

An accumulator stands among the active tapes; where a tape appends an entry, it pushes
the tangents of the inputs through that entry at once, and keeps nothing else.  The
rules are those of reverse mode: an elementwise or bilinear rule is its own JVP, and any
other rule, also one given by hand, is linear in its cotangent, so that transposing it
once more (by a private tape over a dummy cotangent) gives the JVP.

Order is that of the ``with`` blocks.  Tangents of an accumulator are computed in sight
of the tapes and accumulators outside it, and of no others: so a gradient taken inside
gives forward-over-reverse, an accumulator inside a tape reverse-over-forward, and an
inner accumulator never sees the tangents of an outer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

from . import nest
from .backward import rule_gradients
from .errors import DTypeError, GradientError, ReentryError, ShapeError
from .gradient_tape import swept, wants_zeros, warn_integer
from .ops.creation import convert_to_tensor, zeros, zeros_like
from .ops.shapes import broadcast_to
from .primitive import lifted
from .tape import Node, Tape, VariableNode, active, pop, push, recording_on
from .tensor import INEXACT, Tensor, to_buffer, wrap


class _Pushes(list["ref[Node]"]):
    """The entries of an accumulator: appending one pushes tangents through it."""

    __slots__ = ("_owner",)

    def __init__(self, owner: ForwardAccumulator):
        super().__init__()
        self._owner = ref(owner)  # the owner holds the tape that holds this list

    def append(self, entry: ref[Node]) -> None:
        owner, node = self._owner(), entry()
        if owner is not None and node is not None:
            owner.push(node)


class _Accumulator(Tape):
    """The tape of a ForwardAccumulator."""

    __slots__ = ()
    carries_tangents = True


class ForwardAccumulator:
    """Carries tangents of ``primals`` through what is computed in its ``with`` block.

    ``jvp(y)`` is then the derivative of y in the direction of the tangents.

    >>> x = tensor(3.0)
    >>> with ForwardAccumulator(x, tensor(1.0)) as acc:
    ...     y = x * x
    >>> acc.jvp(y).item()
    6.0
    """

    __slots__ = ("__weakref__", "_buffers", "_inside", "_tangents", "_tape")

    def __init__(self, primals: Any, tangents: Any):
        self._tape = _Accumulator(watches_variables=False, persistent=True)
        self._tape.entries = _Pushes(self)
        self._inside = False
        self._tangents: WeakKeyDictionary[Node, Any] = WeakKeyDictionary()
        self._buffers: WeakKeyDictionary[Node, Any] = WeakKeyDictionary()
        nest.assert_same_structure(primals, tangents)
        pairs = zip(nest.flatten(primals), nest.flatten(tangents), strict=True)
        for primal, tangent in list(pairs):
            self._watch(primal, tangent)

    def _watch(self, primal: Any, tangent: Any) -> None:
        if not isinstance(primal, Tensor):
            raise DTypeError(
                f"ForwardAccumulator: expected tensors, got {type(primal).__name__}; "
                "convert it with eg.tensor"
            )
        if primal.dtype.kind not in INEXACT:
            warn_integer("ForwardAccumulator", primal)
            return
        if not isinstance(tangent, Tensor):
            tangent = wrap(to_buffer(tangent, primal.dtype, primal.device))
        elif tangent.dtype != primal.dtype:
            raise GradientError(
                f"ForwardAccumulator: the tangent is {tangent.dtype}, its primal "
                f"{primal.dtype}"
            )
        if tangent.shape != primal.shape:
            if tangent.ndim:
                raise ShapeError(
                    f"ForwardAccumulator: the tangent has shape {tangent.shape}, its "
                    f"primal {primal.shape}"
                )
            tangent = tangent + zeros_like(primal)
        self._tape.watch(primal)
        node = primal._node
        assert node is not None
        if node in self._tangents:
            raise GradientError("ForwardAccumulator: the same primal appears twice")
        self._tangents[node] = convert_to_tensor(tangent)
        self._buffers[node] = primal._data

    def __enter__(self) -> ForwardAccumulator:
        if self._inside:
            raise ReentryError("ForwardAccumulator: already recording")
        self._inside = True
        push(self._tape)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._inside:
            self._inside = False
            pop(self._tape)

    def __del__(self) -> None:
        self._tape.close()

    def jvp(self, primals: Any, unconnected_gradients: Any = "none") -> Any:
        """The tangents of tensors: None, or zeros, for those without.

        A look-up only: it computes nothing and works after the block.
        """
        zero = wants_zeros(unconnected_gradients)

        def tangent(y: Any) -> Any:
            if not isinstance(y, Tensor):
                raise DTypeError(f"jvp: expected tensors, got {type(y).__name__}")
            found = None if y._node is None else self._tangent(y._node, y)
            return zeros_like(y) if found is None and zero else found

        return nest.map_structure(tangent, primals)

    def _tangent(self, node: Node, holder: Any = None) -> Any:
        if type(node) is VariableNode:
            variable = holder if holder is not None else node.variable()
            if variable is None or self._buffers.get(node) is not variable._data:
                return None  # it was assigned since: the new value is a constant
        return self._tangents.get(node)

    def push(self, node: Node) -> None:
        """Compute the tangent of an entry's output from those of its inputs."""
        tapes = active()
        tangents = [
            None if parent is None else self._tangent(parent) for parent in node.inputs
        ]
        if all(tangent is None for tangent in tangents):
            return
        with recording_on(tapes[: tapes.index(self._tape)]):
            tangent = _pushed(node, tangents)
        if tangent is not None:
            self._tangents[node] = tangent


def _pushed(node: Node, tangents: Sequence[Any]) -> Any:
    """The tangent of an entry's output; a tuple for an op with several outputs."""
    op = node.op
    if op.form == "item":
        return tangents[0][node.saved[0]]
    real = all(n is None or n.dtype.kind == "f" for n in (node, *node.inputs))
    parts: list[Any]
    if op.form == "elementwise" and real:  # a rule is its own JVP
        parts = [
            None
            if tangent is None or op.rules[i] is None
            else op.rules[i](broadcast_to(tangent, node.shape), *lifted(node, i))
            for i, tangent in enumerate(tangents)
        ]
    elif op.form == "bilinear" and all(set(op.params) <= {*r} for r in op.reads):
        parts = [
            None if tangent is None else _beside(node, i, tangent)
            for i, tangent in enumerate(tangents)
        ]
    else:
        return _transposed(node, tangents)
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total


def _beside(node: Node, i: int, tangent: Tensor) -> Any:
    """A bilinear op of one tangent and the other argument."""
    op = node.op
    values = dict(zip(op.reads[i], lifted(node, i), strict=True))
    arguments = [tangent, values[op.arrays[1 - i]]]
    params = [values[name] for name in op.params]
    return op.entry(*(arguments if i == 0 else arguments[::-1]), *params)


def _transposed(node: Node, tangents: Sequence[Any]) -> Any:
    """The JVP as the transpose of the rule: d/dg of <rule(g), tangents>."""
    op = node.op
    device = next(t for t in tangents if t is not None).device
    if op.form == "user":
        cotangents = [zeros(*spec) for spec in op.outputs]
    elif op.several:
        cotangents = [zeros(y.shape, y.dtype, device) for y in node.saved[0]]
    else:
        cotangents = [zeros(node.shape, node.dtype, device)]
    several = op.form == "user" or op.several
    tape = Tape(watches_variables=False)
    push(tape)
    try:
        for g in cotangents:
            if g.dtype.kind in INEXACT:
                tape.watch(g)
        given = cotangents if several else cotangents[0]
        grads = rule_gradients(node, node.inputs, given)
    finally:
        pop(tape)
    seeded = [
        (grad, tangent)
        for grad, tangent in zip(grads, tangents, strict=True)
        if grad is not None and tangent is not None
    ]
    targets = [grad for grad, _ in seeded]
    seeds: list[Tensor | None] = [tangent for _, tangent in seeded]
    results = swept(tape, targets, seeds, cotangents, consume=True)
    return tuple(results) if several else results[0]
