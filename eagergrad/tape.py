"""The tape: which operations were recorded, and for whom.  No arithmetic, no arrays.

A *Node* stands for one value that some tape knows.  It is the key of that value (an
object's identity, never a number that could be used again) and, when an op made the
value, the entry of that op: the op, the nodes of its inputs, and what its rule saved.

Who owns what decides when memory is freed, by reference counting alone:

    Tensor --> Node --> nodes of the inputs --> ...        (strong)
    Tape   --> weak references to its nodes, in execution order

A branch nobody can reach any more dies at once, although the tape is open; and when a
tape is used up or dropped it walks its weak references and empties the nodes that no
other open tape needs, although the tensors live on.  Both ends let go; neither waits
for the garbage collector.  One node serves all tapes that recorded the op, so nesting
tapes costs nothing per op.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Any
from weakref import ref

from .errors import DTypeError, GradientError


class Node:
    """A value some tape knows: its tapes, the op that made it, what that op saved."""

    # Filled by ``record`` and ``leaf``: an __init__ would cost each op 50 ns more.
    __slots__ = ("__weakref__", "dtype", "inputs", "op", "saved", "shape", "tapes")

    tapes: tuple[Tape, ...]
    op: Any
    inputs: tuple[Node | None, ...]
    saved: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: Any

    def leaf(self, tapes: tuple[Tape, ...], value: Any) -> Node:
        """Stand for a value that no op made; returns itself."""
        self.tapes = tapes
        self.op = None
        self.inputs = self.saved = ()
        self.shape = value.shape
        self.dtype = value.dtype
        return self

    def release(self) -> None:
        """Drop what the op saved, unless another open tape may still ask for it."""
        for tape in self.tapes:
            if tape.open:
                return
        self.op = None
        self.inputs = self.saved = ()


class VariableNode(Node):
    """The node of a Variable: a leaf, watched when the variable is read.

    A tape knows it by its place among ``Tape.variables``; ``tapes`` only remembers the
    tuple of active tapes that last read it, so that the next read costs nothing.
    """

    __slots__ = ("differentiable", "order", "trainable", "variable")

    def __init__(self, variable: Any, trainable: bool, differentiable: bool):
        self.leaf((), variable)
        self.variable = ref(variable)
        self.trainable = trainable
        self.differentiable = differentiable
        self.order = next(_creation)


_creation = itertools.count()


class Tape:
    """One recording: weak references to its nodes in execution order.

    ``records=False`` makes a tape that only notices which variables are read.
    ``stands_for`` makes a shadow: see ``stop_recording``.
    """

    __slots__ = (
        "breaks",
        "closed",
        "entries",
        "late",
        "limit",
        "open",
        "persistent",
        "places",
        "records",
        "stands_for",
        "strangers",
        "variables",
        "watched",
        "watches_variables",
    )
    carries_tangents = False  # True for the tape of a forward accumulator

    def __init__(
        self,
        watches_variables: bool = True,
        records: bool = True,
        persistent: bool = False,
        stands_for: tuple[Tape, ...] = (),
    ):
        self.entries: list[ref[Node]] = []
        self.limit = 4096
        self.open = True  # may still be asked for gradients
        self.closed = False  # has let go of everything; not yet while it is swept
        self.records = records
        self.persistent = persistent
        self.stands_for = stands_for
        self.watches_variables = watches_variables
        self.variables: dict[int, Any] = {}
        self.watched = 0  # tensors
        self.strangers = False  # an op was recorded that has inputs unknown to a tape
        self.late = False  # an operation was recorded after its output had been used
        self.breaks: list[tuple[ref[Node], str, str]] = []
        self.places: dict[Node, str] | None = None
        if locate_entries:
            self.places, self.limit = {}, -1

    def crowded(self, node: Node) -> None:
        """Forget the entries that died, each time the list has doubled.

        Under ``debug`` the limit is negative, and this notes where the op was called.
        """
        if self.places is not None:
            self.places[node] = caller()
            return
        self.entries = [entry for entry in self.entries if entry() is not None]
        self.limit = 4096 + 2 * len(self.entries)

    def close(self) -> None:
        """End the recording and let go of everything it kept alive."""
        self.open = False
        self.closed = True
        entries, self.entries = self.entries, []
        while entries:
            node = entries.pop()()
            if node is not None:
                node.release()
        self.breaks = []
        self.variables = {}
        self.places = None

    def knows(self, node: Node | None) -> bool:
        """Whether an op on this value is to be recorded here."""
        if node is None:
            return False
        if type(node) is VariableNode:
            known = self.records and node.differentiable
            known = known and node.order in self.variables
        else:
            known = self in node.tapes
        return known or any(tape.knows(node) for tape in self.stands_for)

    def adopt(self, shadow: Tape) -> None:
        """Take over what a shadow recorded, as if it had been recorded here."""
        self.strangers = True
        for entry in shadow.entries:
            node = entry()
            if node is not None and self not in node.tapes:
                node.tapes = (*node.tapes, self)
                self.entries.append(entry)

    def watch(self, tensor: Any) -> None:
        """Make a value known to this tape; one that it recorded keeps its entry."""
        node = tensor._node
        if type(node) is VariableNode:
            self.variables[node.order] = tensor
            return
        with _watching:  # two threads may watch one tensor, each for its own tape
            node = tensor._node
            if node is None:
                tensor._node = Node().leaf(with_tape((), self), tensor)
                self.watched += 1
            elif self not in node.tapes:
                node.tapes = with_tape(node.tapes, self)
                self.watched += 1


_watching = threading.Lock()
locate_entries = False  # set by debug(): tapes remember where each op was recorded

_active: ContextVar[tuple[Tape, ...]] = ContextVar("eagergrad_tapes", default=())
_suspended: ContextVar[tuple[Tape, ...] | None] = ContextVar(
    "eagergrad_suspended_tapes", default=None
)
active = _active.get  # the tapes that record on this thread now, oldest first


def push(tape: Tape) -> None:
    """Let a tape record on this thread (after any ``stop_recording`` has ended)."""
    suspended = _suspended.get()
    if suspended is None:
        drop_shadow()
        _active.set((*_active.get(), tape))
    else:
        _suspended.set((*suspended, tape))


def pop(tape: Tape) -> bool:
    """Take a tape off this thread; False when it was not on it."""
    for variable in (_active, _suspended):
        tapes = variable.get()
        if tapes and tapes[-1] is tape:  # as blocks nest
            variable.set(tapes[:-1])
            return True
        if tapes and tape in tapes:
            variable.set(tuple(t for t in tapes if t is not tape))
            return True
    return False


class stop_recording:
    """Stop all tapes of this thread for the length of a ``with`` block.

    Nests; also holds for tapes that are entered inside the block.

    What the block computes is a constant to the tapes.  Only a backward function given
    to ``record_operation`` right after the block may use values from inside it, and its
    own derivative must see how they depend on the inputs.  So where a higher derivative
    is possible at all (several tapes, or a persistent one) a *shadow* tape records the
    block; ``record_operation`` keeps it, and a sweep under an outer tape adopts it.

    >>> with stop_recording():
    ...     could_possibly_record()
    False
    """

    __slots__ = ("_outermost",)

    def __enter__(self) -> None:
        self._outermost = _suspended.get() is None
        if self._outermost:
            tapes = _active.get()
            _suspended.set(tapes)
            drop_shadow()
            shadow = shadow_of(tapes)
            _shadow.set(shadow)
            _active.set(() if shadow is None else (shadow,))

    def __exit__(self, *exc: object) -> None:
        if self._outermost:
            _active.set(_suspended.get() or ())
            _suspended.set(None)


class set_aside:
    """Run a function whose gradient is given by hand: ``custom_gradient`` and its kin.

    The tapes do not record the block, but tapes entered inside it record; ``notice`` is
    told of the Variables that are read.  ``shadow`` is what ``record_user_op`` is to be
    given; ``shadowed=False`` for a backward function that uses nothing of the block.
    """

    __slots__ = ("_shadowed", "_tapes", "notice", "shadow")

    def __init__(self, shadowed: bool = True):
        self._shadowed = shadowed

    def __enter__(self) -> set_aside:
        self._tapes = tapes = _active.get()
        self.notice = Tape(records=False)
        self.shadow = shadow_of(tapes) if self._shadowed else None
        shadows = () if self.shadow is None else (self.shadow,)
        _active.set((*shadows, self.notice))
        return self

    def __exit__(self, *exc: object) -> None:
        _active.set(self._tapes)

    def variables(self, given: Iterable[Any]) -> list[Any]:
        """The trainable Variables read inside, without those given, oldest first."""
        read = [variable for _, variable in sorted(self.notice.variables.items())]
        known = {id(x) for x in given}
        return [variable for variable in read if id(variable) not in known]


class recording_on:
    """Let just these tapes record for the length of a ``with`` block."""

    __slots__ = ("_before", "_tapes")

    def __init__(self, tapes: tuple[Tape, ...]):
        self._tapes = tapes

    def __enter__(self) -> None:
        self._before = _active.set(self._tapes)

    def __exit__(self, *exc: object) -> None:
        _active.reset(self._before)


_shadow: ContextVar[Tape | None] = ContextVar("eagergrad_shadow", default=None)


def shadow_of(tapes: tuple[Tape, ...]) -> Tape | None:
    """A tape that records in place of tapes set aside, where it can ever matter."""
    if len(tapes) > 1 or any(tape.persistent or tape.stands_for for tape in tapes):
        return Tape(watches_variables=False, stands_for=tapes)
    return None


def drop_shadow() -> None:
    """Forget the last shadow: nobody recorded an operation right after its block."""
    shadow = _shadow.get()
    if shadow is not None:
        _shadow.set(None)
        shadow.close()


def could_possibly_record() -> bool:
    """True when some tape is recording on this thread."""
    return _suspended.get() is None and any(
        tape.records and not tape.stands_for for tape in _active.get()
    )


def stopped() -> bool:
    """True inside a ``stop_recording`` block of this thread."""
    return _suspended.get() is not None


def should_record_backprop(tensors: Iterable[Any]) -> bool:
    """True when a tape that records on this thread watches one of the tensors."""
    nodes = [tensor._node for tensor in tensors]
    return could_possibly_record() and bool(recorders(_active.get(), nodes))


def recorders(
    tapes: tuple[Tape, ...], nodes: Sequence[Node | None]
) -> tuple[Tape, ...]:
    """Which of ``tapes`` record an op on these inputs; a Variable read is watched."""
    known = False
    for node in nodes:
        if node is None:
            continue
        if node.tapes is tapes:
            known = True
        elif type(node) is VariableNode and accessed(node, tapes):
            known = True
        else:
            for tape in tapes:
                tape.strangers = True
    if known:
        return tapes
    found = tuple([tape for tape in tapes if any(map(tape.knows, nodes))])
    return tapes if len(found) == len(tapes) else found


def accessed(node: VariableNode, tapes: tuple[Tape, ...]) -> bool:
    """Note that a Variable was read: tapes that watch variables watch it now.

    True if all of them record what is computed from it.
    """
    order = node.order
    everywhere = node.differentiable
    for tape in tapes:
        if order not in tape.variables:
            if node.trainable and tape.watches_variables:
                tape.variables[order] = node.variable()
            else:
                everywhere = False
        everywhere = everywhere and tape.records
    if everywhere:
        node.tapes = tapes
    return everywhere


def with_tape(tapes: tuple[Tape, ...], tape: Tape) -> tuple[Tape, ...]:
    """The tapes of a value that are not closed, and one more.

    Where these are the active tapes, it is their very tuple, so that ops recognise by
    identity that all of them record.
    """
    tapes = (*(t for t in tapes if not t.closed), tape)
    recording = _active.get()
    return recording if set(recording) == set(tapes) else tapes


def record(
    tapes: tuple[Tape, ...],
    op: Any,
    inputs: tuple[Node | None, ...],
    saved: tuple[Any, ...],
    shape: tuple[int, ...],
    dtype: Any,
) -> Node:
    """Put one op on ``tapes`` and return the node of its output."""
    node = Node()
    node.tapes = tapes
    node.op = op
    node.inputs = inputs
    node.saved = saved
    node.shape = shape
    node.dtype = dtype
    entry = ref(node)
    for tape in tapes:
        entries = tape.entries
        entries.append(entry)
        if len(entries) > tape.limit:
            tape.crowded(node)
    return node


def left(tensor: Any, how: str) -> None:
    """Note that a watched value leaves the tapes, so that a None can be explained."""
    node = tensor._node
    if node is None:
        return
    for tape in _active.get():
        if tape.knows(node) and len(tape.breaks) < 1000:
            tape.breaks.append((ref(node), how, caller()))


def caller() -> str:
    """``file:line`` of the innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        _PACKAGE
    ):
        frame = frame.f_back
    if frame is None:
        return "an unknown place"
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def caller_depth() -> int:
    """The ``stacklevel`` for a warning that is to name the user's line."""
    frame: FrameType | None = sys._getframe(1)
    depth = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        _PACKAGE
    ):
        frame, depth = frame.f_back, depth + 1
    return depth


_PACKAGE = __name__.partition(".")[0] + "."


class UserOp:
    """An op recorded by hand: a name and a backward function over Tensors."""

    __slots__ = ("backward", "devices", "name", "outputs", "shadow")
    form = "user"
    plain = 0

    def __init__(
        self,
        name: str,
        backward: Callable[..., Sequence[Any]],
        outputs: tuple[Any, ...],
        devices: tuple[Any, ...],
        shadow: Tape | None,
    ):
        self.name = name
        self.backward = backward
        self.outputs = outputs  # (shape, dtype, device) of each
        self.devices = devices  # of the inputs
        self.shadow = shadow  # what the stop_recording block before it computed


class ItemOp:
    """The step from an op with several outputs to one of them."""

    __slots__ = ()
    name = "item"
    form = "item"
    plain = 0


ITEM = ItemOp()


def item(
    tapes: tuple[Tape, ...], producer: Node, i: int, count: int, output: Any
) -> Node:
    """Put the step to one of several outputs on tapes; its node."""
    return record(tapes, ITEM, (producer,), (i, count), output.shape, output.dtype)


def record_operation(
    name: str,
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    backward_function: Callable[..., Sequence[Any]],
) -> None:
    """Put an operation of your own on every tape that watches one of ``inputs``.

    ``backward_function`` is called with one Tensor per output (zeros for an output that
    was not used) and must return a sequence with a gradient or None per input.  What it
    computes is itself recorded by the tapes outside, so higher derivatives follow.

    Raises TypeError for arguments that are not sequences of tensors; a wrong number or
    shape of gradients raises ValueError when ``gradient`` is called.
    """
    outputs, inputs = tuple(outputs), tuple(inputs)
    for role, tensors in (("output", outputs), ("input", inputs)):
        for i, tensor in enumerate(tensors):
            if not hasattr(tensor, "_node"):
                raise DTypeError(
                    f"record_operation {name!r}: {role} {i} is a "
                    f"{type(tensor).__name__}, not a Tensor; convert_to_tensor it first"
                )
    record_user_op(name, outputs, inputs, backward_function, _shadow.get())
    _shadow.set(None)


def record_operation_backprop_only(
    name: str,
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    backward_function: Callable[..., Sequence[Any]],
) -> None:
    """``record_operation`` on gradient tapes only: accumulators see no operation."""
    _record_for(False, name, outputs, inputs, backward_function)


def record_operation_forwardprop_only(
    name: str,
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    backward_function: Callable[..., Sequence[Any]],
) -> None:
    """``record_operation`` on forward accumulators only, not on gradient tapes."""
    _record_for(True, name, outputs, inputs, backward_function)


def _record_for(forward: bool, name: str, *rest: Any) -> None:
    tapes = tuple(t for t in _active.get() if t.carries_tangents is forward)
    with recording_on(tapes):
        record_operation(name, *rest)


def record_user_op(
    name: str,
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    backward_function: Callable[..., Sequence[Any]],
    shadow: Tape | None,
) -> None:
    """``record_operation`` with the shadow of the block that computed the outputs."""
    nodes = tuple(tensor._node for tensor in inputs)
    tapes = recorders(_active.get(), nodes)
    if not tapes:
        return
    for i, output in enumerate(outputs):
        node = output._node
        if type(node) is VariableNode:
            raise GradientError(
                f"record_operation {name!r}: output {i} is a Variable; "
                "record on an identity of it"
            )
        if node is not None and shadow is not None and shadow in node.tapes:
            output._node = None  # made in the block before: the tapes do not know it
        elif node is not None and any(t.open and t not in tapes for t in node.tapes):
            raise GradientError(
                f"record_operation {name!r}: output {i} belongs to another open tape; "
                "record on an identity of it"
            )
    specs = tuple((out.shape, out.dtype, out.device) for out in outputs)
    devices = tuple(tensor.device for tensor in inputs)
    op = UserOp(name, backward_function, specs, devices, shadow)
    if not outputs:
        return
    producer = record(tapes, op, nodes, (), outputs[0].shape, outputs[0].dtype)
    for i, output in enumerate(outputs):
        node = item(tapes, producer, i, len(outputs), output)
        if output._node is None:
            output._node = node
            continue
        # The output was watched or used before.  Its node stays its key, now with an
        # entry; that entry is younger than the ops that used it, so order must be
        # restored once before a sweep.
        old = output._node
        old.tapes, old.op = tapes, ITEM
        old.inputs, old.saved = (producer,), (i, len(outputs))
        for tape in tapes:
            tape.entries[-1] = ref(old)
            tape.late = True


def record_call(
    op: Any,
    outputs: Sequence[Any],
    inputs: Sequence[Any],
    saved: Sequence[Any],
) -> None:
    """Put a call of several ops at once on every tape that watches one of ``inputs``.

    ``op.backward(saved, pieces, lift)`` is the sweep's; ``outputs`` are new Tensors.
    """
    nodes = tuple([tensor._node for tensor in inputs])
    tapes = recorders(_active.get(), nodes)
    if tapes and outputs:
        shape, dtype = outputs[0].shape, outputs[0].dtype
        producer = record(tapes, op, nodes, tuple(saved), shape, dtype)
        for i, output in enumerate(outputs):
            output._node = item(tapes, producer, i, len(outputs), output)
