"""The reverse sweep: accumulation and un-broadcasting, once, here.

Cotangents are borrowed, then owned: the first that reaches a value is kept as it is,
the second makes a fresh sum, later ones are added in place into that sum.  A buffer
that somebody else may hold is never written.  Ops with ``adds`` are ahead by one: their
rules return a new buffer, never one they were given or a view of it, so it is owned at
once, and the second is added by the op itself, as cuBLAS does while it multiplies.

When no tape listens, rules run on bare buffers; under an outer tape they run on
Tensors, so that what they compute is recorded too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from . import primitive
from .device import BUFFERS, Device, backend_of, device_of, out_of_memory
from .errors import DeviceError, DTypeError, GradientError, NaNError
from .operands import cast
from .ops.creation import zeros
from .ops.elementwise import real
from .ops.reductions import unbroadcast
from .primitive import ADDING, JOINT, ByBuffer, lifted, lowered, newly_nan, on_gpu
from .tape import Node, Tape, active
from .tensor import Tensor, to_buffer, wrap

_unbroadcast = ByBuffer(lambda backend: lowered(unbroadcast, backend))


def sweep(
    tape: Tape, cotangents: dict[Node, Any], sources: set[Node], consume: bool
) -> dict[Node, Any]:
    """Propagate cotangents from their nodes to the sources; return the sources'.

    The result may hold cotangents of other leaves too.  ``cotangents`` holds buffers,
    or Tensors when a tape is active on this thread.  With ``consume`` each entry is
    freed as the sweep passes it.
    """
    lift = bool(active())
    debugged = tape.places is not None or primitive.checked is not None
    watched = lift or debugged
    if tape.late:
        entries = in_order(tape, cotangents)
    else:
        entries = tape.entries if consume else tape.entries[:]
    # Sources with an entry: nothing older than the last of them matters, unless there
    # are sources without one, which are reached only when all else is done.
    made = 0
    for source in sources:
        if source.op is not None:
            made += 1
    leaves = len(sources) - made
    # where there may be leaves that nobody asks for: what leads to others
    useful = None
    if tape.strangers or leaves < len(tape.variables) + tape.watched:
        useful = leading_to(sources, entries)
    found: dict[Node, Any] = {}
    owned: set[Node] = set()
    get, take = cotangents.get, cotangents.pop

    def give(parent: Node, dx: Any) -> None:
        """Add one contribution to the cotangent of an input."""
        if tape not in parent.tapes and not tape.knows(parent):
            return
        if dx.shape != parent.shape:
            reduce = unbroadcast if lift else _unbroadcast[type(dx)]
            dx = reduce(dx, parent.shape)
        total = get(parent)
        if total is None:
            cotangents[parent] = dx
        elif lift or parent not in owned:
            cotangents[parent] = total + dx
            owned.add(parent)
        else:
            total += dx
            cotangents[parent] = total

    def add_up(parent: Node, op: Any, i: int, g: Any, saved: Any) -> None:
        """Add a rule's value, a new buffer, or have the op add it without making it."""
        total = get(parent)
        if total is None:
            owned.add(parent)
        elif parent in owned and op.adds[i](total, g, *saved):
            return
        give(parent, op.lowered[type(g)][i](g, *saved))

    ndarray = np.ndarray
    pop = entries.pop
    alone = (tape,)
    if consume:
        tape.open = False
    try:
        while entries:
            node = pop()()
            if node is None:
                continue
            g = take(node, None)
            if made and node in sources:
                made -= 1
                if g is not None:
                    found[node] = g
                if not made and not leaves:
                    break
            if g is None:
                continue
            op = node.op
            inputs: Any = node.inputs
            plain = op.plain
            if useful is not None and not any(inputs := asked(node, useful)):
                pass
            elif watched or not plain or g.dtype.kind != "f":
                if op.form == "item":
                    hand_over(node, g, cotangents)
                else:
                    grads = (
                        _located(tape, node, inputs, g, lift)
                        if debugged
                        else _general(node, inputs, g, lift)
                    )
                    for parent, dx in zip(inputs, grads, strict=True):
                        if parent is not None and dx is not None:
                            give(parent, dx)
            elif plain == 1:
                # One or two rules over buffers: nearly every op of all programs.
                if op.adds is None:
                    give(inputs[0], op.lowered[type(g)][0](g, *node.saved))
                else:
                    add_up(inputs[0], op, 0, g, node.saved)
            elif plain == 2 or (
                # on_gpu takes 0.3 us, which the buffers of NumPy need not
                plain == ADDING and (type(g) is ndarray or not on_gpu(g))
            ):
                a, b = inputs
                saved_a, saved_b = node.saved
                rule_a, rule_b = op.lowered[type(g)]
                if a is not None and rule_a is not None:
                    give(a, rule_a(g, *saved_a))
                if b is not None and rule_b is not None:
                    give(b, rule_b(g, *saved_b))
            elif plain == JOINT:
                saved = _joint(node, inputs, node.saved)
                grads = op.lowered[type(g)][0](g, *saved)
                for parent, dx in zip(inputs, grads, strict=True):
                    if parent is not None and dx is not None:
                        give(parent, dx)
            else:
                for i, parent in enumerate(inputs):
                    if parent is not None:
                        add_up(parent, op, i, g, node.saved[i])
            if consume:
                if node.tapes == alone:
                    node.op = None
                    node.saved = node.inputs = ()
                else:
                    node.release()
    except MemoryError as error:
        piece = next(x for x in g if x is not None) if type(g) is list else g
        device = piece.device if lift else device_of(piece)
        raise out_of_memory(error, f"the gradient of {op.name}", device) from error
    cotangents.update(found)
    return cotangents


def leading_to(sources: set[Node], entries: Sequence[ref[Node]]) -> set[Node]:
    """The sources and all values that were computed from them."""
    found = set(sources)
    for entry in entries:
        node = entry()
        if node is not None and not found.isdisjoint(node.inputs):
            found.add(node)
    return found


def asked(node: Node, useful: set[Node]) -> Sequence[Node | None]:
    """The inputs of an entry, with None for those whose gradient nobody asks for."""
    return [parent if parent in useful else None for parent in node.inputs]


def rule_gradients(node: Node, inputs: Sequence[Node | None], g: Any) -> list[Any]:
    """What the rule of an entry makes of a cotangent, in the shapes of its inputs.

    On Tensors; for an op with several outputs ``g`` is a list.  None among ``inputs``
    for those that need no gradient.
    """
    return [
        dx
        if dx is None or parent is None or dx.shape == parent.shape
        else unbroadcast(dx, parent.shape)
        for parent, dx in zip(inputs, _general(node, inputs, g, True), strict=True)
    ]


def _joint(
    node: Node, inputs: Sequence[Node | None], saved: Sequence[Any]
) -> Sequence[Any]:
    """What a joint rule reads, for the gradients of these inputs alone."""
    if inputs is node.inputs:
        return saved
    names = node.op.reads[0]
    if node.op.arity == 1 or "like" not in names:
        return saved
    return [
        inputs if name == "like" else value
        for name, value in zip(names, saved, strict=True)
    ]


def hand_over(node: Node, g: Any, cotangents: dict[Node, Any]) -> None:
    """Put the cotangent of one output among those of the op that made it."""
    (producer,) = node.inputs
    assert producer is not None
    i, count = node.saved
    pieces = cotangents.get(producer)
    if pieces is None:
        pieces = cotangents[producer] = [None] * count
    pieces[i] = g if pieces[i] is None else pieces[i] + g


def _general(
    node: Node, inputs: Sequence[Node | None], g: Any, lift: bool
) -> Sequence[Any]:
    """The gradients of an op's inputs, for every kind of op, on buffers or Tensors.

    ``inputs`` are its own, None for those that need none.
    """
    op = node.op
    if op.form == "user":
        return _user(node, g, lift)
    if op.form == "call":
        grads: Sequence[Any] = op.backward(node.saved, g, lift)
        return grads
    if op.several:
        g = _filled(node, g, lift)
    if (g[0] if op.several else g).dtype.kind != "V":
        return _applied(node, inputs, g, lift)
    # bfloat16 beside a Python number is float32 in NumPy: so its rules run in float32
    # from end to end, and each gradient is rounded once
    grads = _applied(node, inputs, _widened(g), lift, _widened)
    return [
        dx if dx is None or parent is None else _as(dx, parent.dtype)
        for dx, parent in zip(grads, inputs, strict=True)
    ]


def _widened(value: Any) -> Any:
    """float32 for bfloat16, in buffers, Tensors and tuples of them; else as it is."""
    if type(value) is tuple:
        return tuple([_widened(part) for part in value])
    if (type(value) in BUFFERS or type(value) is Tensor) and value.dtype.kind == "V":
        return _as(value, np.dtype(np.float32))
    return value


def _as(x: Any, dtype: np.dtype[Any]) -> Any:
    return cast(x, dtype) if type(x) is Tensor else x.astype(dtype, copy=False)


def _applied(
    node: Node,
    inputs: Sequence[Node | None],
    g: Any,
    lift: bool,
    ready: Callable[[Any], Any] | None = None,
) -> Sequence[Any]:
    """What the rules make of a cotangent; ``ready`` is applied to what they saved."""
    op = node.op
    # A rule multiplies by f'(z); for a real loss the gradient multiplies by its
    # conjugate (the direction of steepest ascent, dL/dRe + i dL/dIm).
    if op.several:
        conjugate = any(piece.dtype.kind == "c" for piece in g)
        g = tuple(piece.conj() for piece in g) if conjugate else g
        floating = all(piece.dtype.kind == "f" for piece in g)
        served = op.lowered if floating else op.composed_rules
        rules = op.rules if lift else served[type(g[0])]
    else:
        conjugate = g.dtype.kind == "c"
        g = g.conj() if conjugate else g
        served = op.lowered if g.dtype.kind == "f" else op.composed_rules
        rules = op.rules if lift else served[type(g)]

    def saved(i: int) -> Sequence[Any]:
        values: Sequence[Any]
        if lift:
            values = lifted(node, i)
        elif op.joint or op.arity == 1:
            values = node.saved[1:] if op.several else node.saved
        else:
            values = node.saved[i]
        return values if ready is None else [ready(value) for value in values]

    grads: Sequence[Any]
    if op.joint:
        grads = rules[0](g, *_joint(node, inputs, saved(0)))
        if op.arity == 1 and op.several:
            grads = (grads,)
    else:
        grads = [
            None if rule is None or parent is None else rule(g, *saved(i))
            for i, (rule, parent) in enumerate(zip(rules, inputs, strict=True))
        ]
    if not conjugate:
        return grads
    # ... and what is real on the way has a real cotangent
    return [
        dx
        if dx is None or parent is None
        else dx.conj()
        if parent.dtype.kind == "c"
        else real(dx)
        if lift
        else dx.real
        for dx, parent in zip(grads, inputs, strict=True)
    ]


def _filled(node: Node, pieces: Sequence[Any], lift: bool) -> tuple[Any, ...]:
    """The cotangents of several outputs, with zeros for those that were not used."""

    def zeros_of(y: Any) -> Any:
        zero = backend_of(y).xp.zeros_like(y)
        return wrap(zero) if lift else zero

    return tuple(
        zeros_of(y) if piece is None else piece
        for piece, y in zip(pieces, node.saved[0], strict=True)
    )


def _located(
    tape: Tape, node: Node, inputs: Sequence[Node | None], g: Any, lift: bool
) -> Sequence[Any]:
    """``_general`` under ``debug``: raise at the first rule that makes a nan."""
    place = (tape.places or {}).get(node, "a line before debug was on")
    what = f"the gradient of {node.op.name}, recorded at {place}"
    given = g, node.saved
    try:
        grads = _general(node, inputs, g, lift)
    except NaNError as error:
        raise NaNError(f"{what}: {error}") from error
    for i, dx in enumerate(grads):
        if bad := newly_nan(dx, given):
            raise NaNError(f"{what}, made {bad} for input {i}")
    return grads


def _user(node: Node, pieces: Sequence[Any], lift: bool) -> Sequence[Any]:
    """Call a backward function recorded by hand, and check what it returns."""
    op = node.op
    if lift and op.shadow is not None:
        for outer in active():
            if any(outer.knows(parent) for parent in node.inputs):
                outer.adopt(op.shadow)
    given = [
        zeros(shape, dtype, device) if g is None else g if lift else wrap(g)
        for g, (shape, dtype, device) in zip(pieces, op.outputs, strict=True)
    ]
    grads = op.backward(*given)
    if not isinstance(grads, (list, tuple)):
        raise DTypeError(
            f"{op.name}: its backward function must return a list or tuple of "
            f"{len(node.inputs)} gradient(s), got a {type(grads).__name__}"
        )
    if len(grads) != len(node.inputs):
        raise GradientError(
            f"{op.name}: its backward function must return one gradient per input: "
            f"expected {len(node.inputs)}, got {len(grads)}"
        )
    checked: list[Any] = []
    for i, (parent, dx) in enumerate(zip(node.inputs, grads, strict=True)):
        if dx is None or parent is None:
            checked.append(None)
            continue
        device = op.devices[i]
        dx = as_gradient(dx, device)
        if dx.device != device:
            raise DeviceError(
                f"{op.name}: its backward function must return gradients on the "
                f"devices of the inputs: expected {device} for input {i}, got "
                f"{dx.device}; move it with .to({str(device)!r})"
            )
        if dx.shape != parent.shape:
            raise GradientError(
                f"{op.name}: its backward function must return gradients of the "
                f"shapes of the inputs: expected {parent.shape} for input {i}, got "
                f"{dx.shape}"
            )
        checked.append(dx if lift else dx._data)
    return checked


def as_gradient(value: Any, device: Device | None) -> Tensor:
    """A gradient a user's function returned, as a Tensor."""
    if isinstance(value, Tensor):
        return value
    return wrap(to_buffer(value, None, device))


def in_order(tape: Tape, targets: dict[Node, Any]) -> list[Any]:
    """The entries the targets need, inputs before outputs.

    Only for a tape on which an operation was recorded after its output had been used.
    """
    by_node = {node: entry for entry in tape.entries if (node := entry()) is not None}
    order: list[Any] = []
    state: dict[Node, bool] = {}  # False while its inputs are being placed
    pending = list(targets)
    while pending:
        node = pending[-1]
        if node in state:
            pending.pop()
            if not state[node]:
                state[node] = True
                if node in by_node:
                    order.append(by_node[node])
            continue
        state[node] = False
        pending.extend(
            parent
            for parent in node.inputs
            if parent is not None and parent not in state
        )
    return order
