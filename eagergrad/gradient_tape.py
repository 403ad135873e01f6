"""GradientTape: from what a tape recorded to gradients, Jacobians and explanations."""

from __future__ import annotations

import enum
import math
import warnings
from typing import Any

import numpy as np

from . import nest
from .backward import sweep
from .device import backend_of, device_of, out_of_memory
from .errors import (
    DeviceError,
    DTypeError,
    DTypeWarning,
    GradientError,
    ReentryError,
    ShapeError,
    TapeError,
)
from .operands import holds_tensor
from .ops.creation import convert_to_tensor, zeros, zeros_like
from .ops.elementwise import astype
from .ops.shapes import concatenate, swapaxes
from .rows import sweep_rows
from .tape import Node, Tape, active, caller_depth, pop, push
from .tensor import INEXACT, Tensor, Variable, to_buffer, wrap
from .traced import RunsAsItIs, adopted, current


class UnconnectedGradients(enum.Enum):
    """What ``gradient`` gives for a source the target does not depend on."""

    NONE = "none"
    ZERO = "zero"


class GradientTape:
    """Records what is computed inside its ``with`` block, to differentiate it.

    >>> x = tensor(3.0)
    >>> with GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x * x
    >>> tape.gradient(y, x).item()
    6.0

    A tape that is not ``persistent`` is used up by one ``gradient`` or ``jacobian``.
    Trainable Variables are watched when they are read, unless
    ``watch_accessed_variables`` is False.  Tapes nest; a gradient taken inside an outer
    tape's block is itself recorded, which gives derivatives of any order.
    """

    __slots__ = (
        "__weakref__",
        "_inside",
        "_paused",
        "_persistent",
        "_tape",
        "_used",
        "_variables",
        "_watches",
    )

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True):
        self._persistent = bool(persistent)
        self._watches = bool(watch_accessed_variables)
        self._tape: Tape | None = None
        self._inside = False  # between __enter__ and __exit__
        self._paused = 0  # how many stop_recording blocks are open
        self._used = False
        self._variables: dict[int, Variable] = {}

    def __enter__(self) -> GradientTape:
        if self._inside:
            raise ReentryError(
                "GradientTape: already recording; leave its block before entering again"
            )
        push(self._tape or self._start())
        self._inside = True
        return self

    def __exit__(self, *exc: object) -> None:
        if self._inside and self._tape is not None:
            self._inside = False
            pop(self._tape)

    def __del__(self) -> None:
        if self._tape is not None:
            self._tape.close()

    def _start(self) -> Tape:
        self._tape = tape = Tape(self._watches, persistent=self._persistent)
        self._variables = tape.variables
        return tape

    def _recording(self) -> Tape:
        """The tape to work on, or the reason why there is none."""
        if self._tape is not None:
            return self._tape
        if self._used:
            raise TapeError(
                "GradientTape: already used; a tape that is not persistent gives one "
                "gradient or jacobian: make it GradientTape(persistent=True)"
            )
        raise TapeError("GradientTape: never entered; record inside `with tape:`")

    def watch(self, tensor: Any) -> None:
        """Trace everything computed from these tensors from now on.

        Takes a tensor, a Variable or a nested structure of them; anything else raises
        ValueError, and then nothing of the structure is watched.
        """
        tape = self._recording()
        leaves = nest.flatten(tensor)
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise ShapeError(
                    f"watch: expected a tensor, got {type(leaf).__name__}; convert it "
                    "with eg.tensor first"
                )
        for leaf in leaves:
            if leaf.dtype.kind not in INEXACT:
                warn_integer("watch", leaf)
            if leaf.dtype.kind in INEXACT or isinstance(leaf, Variable):
                tape.watch(leaf)

    def watched_variables(self) -> tuple[Variable, ...]:
        """The Variables this tape has seen, in the order of their construction."""
        return tuple(self._variables[order] for order in sorted(self._variables))

    def stop_recording(self) -> _Pause:
        """Stop this tape, and no other, for the length of a ``with`` block.

        >>> x = tensor(2.0)
        >>> with GradientTape() as tape:
        ...     tape.watch(x)
        ...     with tape.stop_recording():
        ...         y = x * x
        >>> tape.gradient(y, x) is None
        True
        """
        self._recording()
        if not self._inside:
            raise TapeError("stop_recording: the tape is not recording now")
        return _Pause(self)

    def reset(self) -> None:
        """Forget everything recorded and every watch; go on recording if inside."""
        old = self._recording()
        new = self._start()
        if self._inside and not self._paused:
            pop(old)
            push(new)
        old.close()

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = "none",
    ) -> Any:
        """The derivative of the sum of ``target`` by each of ``sources``.

        The result has the structure of ``sources``.  ``output_gradients`` are the
        cotangents of the targets, None for ones.  A source that the target does not
        depend on gives None, or zeros with ``unconnected_gradients="zero"``, and
        ``explain`` says why.  Gradients have the dtype and device of their source.

        Raises RuntimeError on a tape that is used up, TypeError for targets and sources
        that are no tensors, ValueError for seeds of the wrong number or shape.
        """
        zero = wants_zeros(unconnected_gradients)
        self._recording()
        for source in _tensors("sources", sources):
            if not zero and source._data.dtype.kind not in INEXACT:
                warn_integer("gradient", source)
        return self.propagate(target, sources, output_gradients, zero)

    def propagate(
        self, target: Any, sources: Any, output_gradients: Any, zero: bool
    ) -> Any:
        """``gradient`` for sources of which ``watch`` has warned already."""
        tape = self._recording()
        targets = _tensors("target", target)
        flat = _tensors("sources", sources)
        seeds = _seeds(targets, output_gradients, target)
        if not self._persistent:
            self._spend(tape)
        grads = swept(tape, targets, seeds, flat, not self._persistent)
        if zero:
            grads = [
                zeros_like(s) if g is None else g
                for g, s in zip(grads, flat, strict=True)
            ]
        if type(sources) is list and len(sources) == len(grads):
            return grads
        return nest.pack_sequence_as(sources, grads)

    def _spend(self, tape: Tape) -> None:
        """Use the tape up: it stops recording and has no second gradient."""
        if self._inside:
            pop(tape)
            self._inside = False
        self._tape = None
        self._used = True

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Any = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """The derivatives of every element of ``target`` by every element of sources.

        Shapes: target.shape + source.shape.  The result is nested as the target, each
        leaf as the sources.  Many rows are propagated in one sweep, at most
        ``parallel_iterations`` (1024) to bound the memory; or one by one without
        ``experimental_use_pfor``.  Neither changes a value.
        """
        chunk = (parallel_iterations or 1024) if experimental_use_pfor else 1
        zero = wants_zeros(unconnected_gradients)
        tape = self._recording()
        targets = _tensors("target", target)
        flat = _tensors("sources", sources)
        if not self._persistent:
            self._spend(tape)
        results = []
        try:
            for y in targets:
                parts = []
                for i in range(0, y.size, chunk):
                    seeds = np.eye(min(chunk, y.size - i), y.size, i, dtype=y.dtype)
                    parts.append(_rows(tape, y, seeds, flat))
                columns = [
                    _joined([part[j] for part in parts], y, x, zero)
                    for j, x in enumerate(flat)
                ]
                results.append(nest.pack_sequence_as(sources, columns))
        finally:
            if not self._persistent:
                tape.close()
        return nest.pack_sequence_as(target, results)

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
        check: bool = False,
    ) -> Any:
        """The Jacobian of each example: (b, y...), (b, x...) -> (b, y..., x...).

        Right only if each row of the target depends on its own row of the source alone;
        ``check=True`` makes sure, for as much work again.  All elements of an example
        are propagated in one sweep, as in ``jacobian``.
        """
        zero = wants_zeros(unconnected_gradients)
        tape = self._recording()
        (y,) = _tensors("target", [target])
        sources = _tensors("source", source)
        for x in sources:
            if y.ndim < 2 or x.ndim < 2 or y.shape[0] != x.shape[0]:
                raise ShapeError(
                    "batch_jacobian: target and source need at least two axes and the "
                    f"same first one: target is {y.shape}, source {x.shape}"
                )
        if not self._persistent:
            self._spend(tape)
        chunk = (parallel_iterations or 1024) if experimental_use_pfor else 1
        width = math.prod(y.shape[1:])
        parts = []
        try:
            for j in range(0, width, chunk):
                seeds = np.eye(min(chunk, width - j), width, j, dtype=y.dtype)
                seeds = np.repeat(seeds[:, None], y.shape[0], 1)
                parts.append(_rows(tape, y, seeds, sources))
                if check:  # examples weighted: each must come back with its own weight
                    weights = np.linspace(1, 2, y.shape[0]).astype(y.dtype)
                    weighted = _rows(tape, y, seeds * weights[:, None], sources)
                    _check_examples(parts[-1], weighted, weights)
        finally:
            if not self._persistent:
                tape.close()
        results: list[Any] = []
        for i, x in enumerate(sources):
            rows = _concatenated([part[i] for part in parts])
            shape = (*y.shape, *x.shape[1:])
            if rows is not None:  # (y..., b, x...)
                results.append(swapaxes(rows, 0, 1).reshape(shape))
            else:
                empty = zero or not parts
                results.append(zeros(shape, x.dtype, x.device) if empty else None)
        return nest.pack_sequence_as(source, results)

    def explain(self, target: Any, source: Any) -> str:
        """Say in a sentence why ``gradient(target, source)`` is None, or is not.

        Ask before a tape that is not persistent is used up.
        """
        tape = self._recording()
        (y,) = _tensors("target", [target])
        (x,) = _tensors("source", [source])
        return _explained(tape, y, x, self._watches)

    def entries(self) -> list[Entry]:
        """What was recorded, in order: one Entry per op."""
        tape = self._recording()
        nodes = [node for entry in tape.entries if (node := entry()) is not None]
        ops = [node for node in nodes if node.op is not None]
        return [Entry(node) for node in ops if node.op.form != "item"]

    def __str__(self) -> str:
        if self._tape is None:
            return f"<GradientTape, {'used up' if self._used else 'never entered'}>"
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        lines = [f"GradientTape: {len(entries)} entries keep {total:,} bytes"]
        return "\n".join(lines + [f"  {entry}" for entry in entries])


class _Pause:
    """``with tape.stop_recording():``; nests, and puts the tape back in any case."""

    __slots__ = ("_handle",)

    def __init__(self, handle: GradientTape):
        self._handle = handle

    def __enter__(self) -> None:
        handle = self._handle
        if not handle._paused and not pop(handle._recording()) and current():
            raise RunsAsItIs(
                "stop_recording: the tape is one outside the captured function; use "
                "eg.stop_gradient in it"
            )
        handle._paused += 1

    def __exit__(self, *exc: object) -> None:
        handle = self._handle
        handle._paused -= 1
        if not handle._paused and handle._inside and handle._tape is not None:
            push(handle._tape)


class Entry:
    """One recorded op: name, (shape, dtype) of inputs and output, the bytes it keeps.

    An input that no tape watches is None.
    """

    __slots__ = ("bytes", "inputs", "name", "output")

    def __init__(self, node: Node):
        self.name: str = node.op.name
        self.inputs = tuple(
            None if n is None else (n.shape, str(n.dtype)) for n in node.inputs
        )
        self.output = (node.shape, str(node.dtype))
        saved = {id(buffer): buffer for buffer in _buffers(node.saved)}
        self.bytes: int = sum(buffer.nbytes for buffer in saved.values())

    def __str__(self) -> str:
        inputs = ", ".join("-" if x is None else f"{x[1]} {x[0]}" for x in self.inputs)
        output = f"{self.output[1]} {self.output[0]}"
        return f"{self.name}: {inputs} -> {output}, keeps {self.bytes:,} bytes"

    __repr__ = __str__


def _buffers(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [buffer for item in value for buffer in _buffers(item)]
    return [value] if hasattr(value, "nbytes") else []


# ------------------------------------------------------------------- from tape to sweep


def swept(
    tape: Tape,
    targets: list[Tensor],
    seeds: list[Tensor | None],
    sources: list[Tensor],
    consume: bool,
) -> list[Any]:
    """One reverse sweep; a Tensor or None per source."""
    lift = bool(active())
    cotangents: dict[Node, Any] = {}
    direct: dict[int, Any] = {}  # targets the tape does not know, by identity
    try:
        for y, seed in zip(targets, seeds, strict=True):
            node = y._node
            if y._data.dtype.kind not in INEXACT:
                continue
            g: Any = _ones(y, lift) if seed is None else seed
            if not lift and seed is not None:
                g = adopted(seed._data)
            if node is not None and tape.knows(node):
                known = cotangents.get(node)
                cotangents[node] = g if known is None else known + g
            else:
                known = direct.get(id(y))
                direct[id(y)] = g if known is None else known + g
        wanted: set[Node] = set()
        for x in sources:
            node = x._node
            if node is not None and (tape in node.tapes or tape.knows(node)):
                wanted.add(node)
        found = sweep(tape, cotangents, wanted, consume) if cotangents else {}
    finally:
        if consume:
            tape.close()
    results = []
    for x in sources:
        node = x._node
        g = found.get(node) if node in wanted else direct.get(id(x))
        if g is not None:
            if not lift:
                g = wrap(g)
            if g._data.dtype is not x._data.dtype and g.dtype != x.dtype:
                g = astype(g, x.dtype)
        results.append(g)
    return results


_ONE = {char: np.ones((), char) for char in "efdFD"}


def _ones(y: Tensor, lift: bool) -> Any:
    """The seed of ones; the scalar ones of NumPy are made once."""
    data = y._data
    if type(data) is np.ndarray and not data.ndim and data.dtype.char in _ONE:
        ones = _ONE[data.dtype.char]
    else:
        try:
            ones = backend_of(data).xp.ones_like(data)
        except MemoryError as error:
            raise out_of_memory(error, "gradient", device_of(data)) from error
    return wrap(ones) if lift else ones


def wants_zeros(option: Any) -> bool:
    try:
        return UnconnectedGradients(option) is UnconnectedGradients.ZERO
    except ValueError:
        raise GradientError(
            f"unconnected_gradients: expected 'none' or 'zero', got {option!r}"
        ) from None


def _tensors(role: str, structure: Any) -> list[Tensor]:
    flat = nest.flatten(structure)
    for item in flat:
        if not isinstance(item, Tensor):
            raise DTypeError(
                f"gradient: {role}: expected tensors, got {type(item).__name__}"
                + ("" if item is None else f" {item!r}; convert it with eg.tensor")
            )
    return flat


def _seeds(targets: list[Tensor], given: Any, structure: Any) -> list[Tensor | None]:
    """One seed per target, checked and in the target's dtype; None means ones."""
    if given is None:
        return [None] * len(targets)
    if isinstance(structure, Tensor) and not isinstance(given, Tensor):
        one = isinstance(given, (list, tuple)) and len(given) == 1
        numbers = isinstance(given, (list, tuple)) and not holds_tensor(given)
        flat = [given] if not one or (numbers and structure.ndim) else list(given)
        if isinstance(given, (list, tuple)) and not numbers and not one:
            flat = nest.flatten(given)
    else:
        flat = nest.flatten(given)
    if len(flat) != len(targets):
        raise GradientError(
            "output_gradients: expected one seed per target: "
            f"{len(targets)} target(s), {len(flat)} seed(s)"
        )
    return [_seed(i, y, s) for i, (y, s) in enumerate(zip(targets, flat, strict=True))]


def _seed(index: int, y: Tensor, seed: Any) -> Any:
    if seed is None:
        return None
    if not isinstance(seed, Tensor):
        try:
            seed = wrap(to_buffer(seed, y.dtype, y.device))
        except (TypeError, ValueError) as error:
            raise GradientError(
                f"output_gradients: seed {index} is a {type(seed).__name__}, which "
                f"does not become {y.dtype}: {error}"
            ) from error
    elif seed.dtype != y.dtype:
        raise GradientError(
            f"output_gradients: seed {index} is {seed.dtype}, its target {y.dtype}; "
            f"use seed.astype({str(y.dtype)!r})"
        )
    elif seed.device != y.device:
        raise DeviceError(
            f"output_gradients: seed {index} is on {seed.device}, its target on "
            f"{y.device}; move it with .to({str(y.device)!r})"
        )
    elif type(seed) is Variable:
        seed = convert_to_tensor(seed)
    if seed.shape == y.shape:
        return seed
    if seed.ndim:
        raise GradientError(
            f"output_gradients: seed {index} has shape {seed.shape}, its target "
            f"{y.shape}"
        )
    return seed + zeros_like(y)


def _rows(tape: Tape, y: Tensor, seeds: Any, sources: list[Tensor]) -> list[Any]:
    """Many cotangents of y, a row of ``seeds`` each, taken back to the sources at once.

    (rows, *x.shape) for each source x, or None.
    """
    count = len(seeds)
    g = wrap(to_buffer(seeds.reshape((count, *y.shape)), None, y.device))
    cotangents: dict[Node, Any] = {}
    direct = None  # of y itself, where it is a source that the tape does not know
    if y.dtype.kind in INEXACT:
        if y._node is not None and tape.knows(y._node):
            cotangents[y._node] = g
        else:
            direct = g
    wanted = {x._node for x in sources if x._node is not None and tape.knows(x._node)}
    found = sweep_rows(tape, cotangents, wanted, count) if cotangents else {}
    results = []
    for x in sources:
        row = found.get(x._node) if x._node in wanted else None
        row = direct if x is y and row is None else row
        if row is not None and row.dtype != x.dtype:
            row = astype(row, x.dtype)
        results.append(row)
    return results


def _concatenated(parts: list[Any]) -> Any:
    if not parts or parts[0] is None:
        return None
    return parts[0] if len(parts) == 1 else concatenate(parts)


def _joined(parts: list[Any], y: Tensor, x: Tensor, zero: bool) -> Any:
    rows = _concatenated(parts)
    shape = (*y.shape, *x.shape)
    if rows is not None:
        return rows.reshape(shape)
    return zeros(shape, x.dtype, x.device) if zero or not parts else None


def _check_examples(plain: list[Any], weighted: list[Any], weights: Any) -> None:
    rtol = 32 * float(np.finfo(weights.dtype).eps)
    for g, w in zip(plain, weighted, strict=True):
        if g is None:
            continue
        g, w = g.numpy(), w.numpy()
        expected = g * weights.reshape((1, -1) + (1,) * (g.ndim - 2))
        if not np.allclose(w, expected, rtol, rtol * abs(w).max(initial=0)):
            raise ShapeError(
                "batch_jacobian: a row of the target depends on other rows of the "
                "source; use jacobian"
            )


def warn_integer(what: str, x: Tensor) -> None:
    warnings.warn(
        f"{what}: a tensor of dtype {x.dtype} has no gradient; cast it to a floating "
        "dtype first",
        DTypeWarning,
        stacklevel=caller_depth(),
    )


def _explained(tape: Tape, y: Tensor, x: Tensor, watches: bool) -> str:
    if x.dtype.kind not in INEXACT:
        return (
            f"the source has dtype {x.dtype}: gradients exist for floating and complex "
            "dtypes only"
        )
    if y.dtype.kind not in INEXACT:
        return (
            f"the target has dtype {y.dtype}: it does not vary smoothly with anything"
        )
    if not tape.knows(x._node):
        if x is y:
            return "the target is the source: the gradient is ones"
        if isinstance(x, Variable) and not x.trainable:
            return (
                "the source is a Variable with trainable=False: call tape.watch on it"
            )
        if isinstance(x, Variable) and not watches:
            return (
                "the source was not watched: the tape was made with "
                "watch_accessed_variables=False"
            )
        if isinstance(x, Variable):
            return "the source is a Variable that was not read while the tape recorded"
        return (
            "the source was not watched: call tape.watch on it before computing with "
            "it, and use that very tensor"
        )
    assert x._node is not None
    if _leads(y._node, x._node, tape):
        return "the target depends on the source: the gradient is not None"
    for entry, how, where in tape.breaks:
        node = entry()
        if node is not None and _leads(node, x._node, tape):
            return f"a value computed from the source left the tape by {how} at {where}"
    if not tape.knows(y._node):
        gone = [(how, where) for entry, how, where in tape.breaks if entry() is None]
        if gone:
            how, where = gone[-1]
            return (
                "the target was not recorded on this tape; a watched value left it by "
                f"{how} at {where}"
            )
        return (
            "the target was not recorded on this tape: it was computed before the tape "
            "or outside its block, or from values that no watched one leads to"
        )
    return "the target was recorded, but no path of ops leads from it to the source"


def _leads(start: Node | None, goal: Node, tape: Tape) -> bool:
    """Whether following recorded inputs from ``start`` reaches ``goal``."""
    pending, seen = [start], set()
    while pending:
        node = pending.pop()
        if node is goal:
            return True
        if node is not None and node not in seen and tape.knows(node):
            seen.add(node)
            pending.extend(node.inputs)
    return False
