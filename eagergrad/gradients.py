"""The gradient interfaces of TensorFlow Eager, over the tape and the sweep."""

from __future__ import annotations

import enum
import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import nest
from .backward import sweep
from .device import backend_of
from .errors import DTypeError, DTypeWarning, GradientError, ReentryError, ShapeError, TapeError
from .ops.creation import convert_to_tensor, zeros, zeros_like
from .ops.elementwise import astype, identity
from .ops.random import GENERATOR
from .ops.shapes import stack
from .primitive import _holds_tensor
from .tape import (
    Node,
    Tape,
    active,
    caller_depth,
    pop,
    push,
    record_user_op,
    set_aside,
)
from .tensor import INEXACT, Tensor, Variable, to_buffer, wrap


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

    def __init__(
        self, persistent: bool = False, watch_accessed_variables: bool = True
    ):
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
        if self._tape is None:
            self._start()
        self._inside = True
        push(self._tape)  # type: ignore[arg-type]
        return self

    def __exit__(self, *exc: object) -> None:
        if self._inside:
            self._inside = False
            pop(self._tape)  # type: ignore[arg-type]

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
                _warn_integer("watch", leaf)
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
        depend on gives None, or zeros with ``unconnected_gradients="zero"``; ``explain``
        says why.  Gradients have the dtype and device of their source.

        Raises RuntimeError on a tape that is used up, TypeError for targets and sources
        that are no tensors, ValueError for seeds of the wrong number or shape.
        """
        zero = _wants_zeros(unconnected_gradients)
        tape = self._recording()
        targets = _tensors("target", target)
        flat = _tensors("sources", sources)
        seeds = _seeds(targets, output_gradients, target)
        for source in flat:
            if not zero and source._data.dtype.kind not in INEXACT:
                _warn_integer("gradient", source)
        if not self._persistent:
            self._spend(tape)
        grads = _sweep(tape, targets, seeds, flat, not self._persistent)
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
        leaf as the sources.  ``parallel_iterations`` and ``experimental_use_pfor`` are
        TensorFlow's and change no value.
        """
        zero = _wants_zeros(unconnected_gradients)
        tape = self._recording()
        targets = _tensors("target", target)
        flat = _tensors("sources", sources)
        if not self._persistent:
            self._spend(tape)
        results = []
        try:
            for y in targets:
                rows = [
                    _sweep(tape, [y], [_one_hot(y, i)], flat, consume=False)
                    for i in range(y.size)
                ]
                columns = [
                    _stacked([row[j] for row in rows], y, x, zero)
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
        ``check=True`` makes sure, for one more sweep per output element.
        """
        zero = _wants_zeros(unconnected_gradients)
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
        width = math.prod(y.shape[1:])
        try:
            rows = []
            for j in range(width):
                seed = np.zeros((y.shape[0], width), y.dtype)
                seed[:, j] = 1
                rows.append(_sweep(tape, [y], [_put(seed, y)], sources, consume=False))
                if check:  # rows weighted: each must come back with its own weight
                    weights = np.linspace(1, 2, y.shape[0]).astype(y.dtype)
                    weighted = _put(seed * weights[:, None], y)
                    grads = _sweep(tape, [y], [weighted], sources, consume=False)
                    _check_rows(rows[-1], grads, weights)
        finally:
            if not self._persistent:
                tape.close()
        results: list[Any] = []
        for i, x in enumerate(sources):
            shape = (*y.shape, *x.shape[1:])
            column = [row[i] for row in rows]
            if not column:
                results.append(zeros(shape, x.dtype, x.device))
            elif all(g is None for g in column):
                results.append(zeros(shape, x.dtype, x.device) if zero else None)
            else:
                filled = [zeros_like(x) if g is None else g for g in column]
                results.append(stack(filled, 1).reshape(shape))
        return nest.pack_sequence_as(source, results)

    def explain(self, target: Any, source: Any) -> str:
        """Say in a sentence why ``gradient(target, source)`` is None, or that it is not.

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
        return [Entry(node) for node in nodes if node.op is not None]

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
        if not handle._paused:
            pop(handle._recording())
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


def _sweep(
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
            g: Any = _ones(y, lift) if seed is None else seed if lift else seed._data
            if tape.knows(node):
                known = cotangents.get(node)
                cotangents[node] = g if known is None else known + g
            else:
                known = direct.get(id(y))
                direct[id(y)] = g if known is None else known + g
        wanted = set()
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
        ones = backend_of(data).xp.ones_like(data)
    return wrap(ones) if lift else ones


def _wants_zeros(option: Any) -> bool:
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


def _seeds(
    targets: list[Tensor], given: Any, structure: Any
) -> list[Tensor | None]:
    """One seed per target, checked and in the target's dtype; None means ones."""
    if given is None:
        return [None] * len(targets)
    if isinstance(structure, Tensor) and not isinstance(given, Tensor):
        one = isinstance(given, (list, tuple)) and len(given) == 1
        numbers = isinstance(given, (list, tuple)) and not _holds_tensor(given)
        flat = [given] if not one or (numbers and structure.ndim) else list(given)
        if isinstance(given, (list, tuple)) and not numbers and not one:
            flat = nest.flatten(given)
    else:
        flat = nest.flatten(given)
    if len(flat) != len(targets):
        raise GradientError(
            f"output_gradients: expected one seed per target: {len(targets)} target(s), "
            f"{len(flat)} seed(s)"
        )
    return [_seed(i, y, s) for i, (y, s) in enumerate(zip(targets, flat, strict=True))]


def _seed(index: int, y: Tensor, seed: Any) -> Tensor | None:
    if seed is None:
        return None
    if not isinstance(seed, Tensor):
        try:
            seed = wrap(to_buffer(seed, y.dtype, y.device))
        except (TypeError, ValueError) as error:
            raise GradientError(
                f"output_gradients: seed {index} is a {type(seed).__name__}, which does "
                f"not become {y.dtype}: {error}"
            ) from error
    elif seed.dtype != y.dtype:
        raise GradientError(
            f"output_gradients: seed {index} is {seed.dtype}, its target {y.dtype}; "
            f"use seed.astype({str(y.dtype)!r})"
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


def _one_hot(y: Tensor, index: int) -> Tensor:
    seed = np.zeros(y.size, y.dtype)
    seed[index] = 1
    return _put(seed, y)


def _put(seed: np.ndarray[Any, Any], y: Tensor) -> Tensor:
    return wrap(to_buffer(seed.reshape(y.shape), None, y.device))


def _stacked(rows: list[Any], y: Tensor, x: Tensor, zero: bool) -> Any:
    shape = (*y.shape, *x.shape)
    if not rows:
        return zeros(shape, x.dtype, x.device)
    if all(row is None for row in rows):
        return zeros(shape, x.dtype, x.device) if zero else None
    return stack([zeros_like(x) if r is None else r for r in rows]).reshape(shape)


def _check_rows(plain: list[Any], weighted: list[Any], weights: Any) -> None:
    rtol = 32 * float(np.finfo(weights.dtype).eps)
    for g, w in zip(plain, weighted, strict=True):
        if g is None:
            continue
        g, w = g.numpy(), w.numpy()
        expected = g * weights.reshape((-1,) + (1,) * (g.ndim - 1))
        if not np.allclose(w, expected, rtol, rtol * abs(w).max(initial=0)):
            raise ShapeError(
                "batch_jacobian: a row of the target depends on other rows of the "
                "source; use jacobian"
            )


def _warn_integer(what: str, x: Tensor) -> None:
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
        return f"the target has dtype {y.dtype}: it does not vary smoothly with anything"
    if not tape.knows(x._node):
        if x is y:
            return "the target is the source: the gradient is ones"
        if isinstance(x, Variable) and not x.trainable:
            return "the source is a Variable with trainable=False: call tape.watch on it"
        if isinstance(x, Variable) and not watches:
            return (
                "the source was not watched: the tape has watch_accessed_variables=False"
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
            "or outside its block, or from values that no path connects to a watched one"
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


# ------------------------------------------------------------------ functions of functions


def value_and_gradients_function(
    f: Callable[..., Any], params: Sequence[int | str] | None = None
) -> Callable[..., tuple[Any, list[Any]]]:
    """A function that returns f's value and its gradients by the chosen parameters.

    ``params`` are positions or names; None means every positional argument supplied.
    Each chosen argument is converted to a Tensor (a dict to a dict of Tensors); the
    others, and keywords not named in ``params``, are passed through.  ``dy=`` seeds the
    outputs.

    >>> value_and_gradients_function(lambda x, y: x * y)(2.0, 3.0)[1][0].item()
    3.0
    """
    choose = _chooser(f, params)

    @_named_like(f, "value_and_gradients")
    def run(*args: Any, dy: Any = None, **kwargs: Any) -> tuple[Any, list[Any]]:
        value, vjp = _run(f, choose, args, kwargs, persistent=False)
        return value, vjp(dy)

    return run


def gradients_function(
    f: Callable[..., Any], params: Sequence[int | str] | None = None
) -> Callable[..., list[Any]]:
    """A function that returns the gradients of f by the chosen parameters.

    See ``value_and_gradients_function``; the result is a list, also for one parameter.

    >>> [g.item() for g in gradients_function(lambda x, y: x * y)(2.0, 3.0)]
    [3.0, 2.0]
    """
    both = value_and_gradients_function(f, params)

    @_named_like(f, "gradients")
    def run(*args: Any, dy: Any = None, **kwargs: Any) -> list[Any]:
        return both(*args, dy=dy, **kwargs)[1]

    return run


def make_vjp(
    f: Callable[..., Any],
    params: Sequence[int | str] | None = None,
    persistent: bool = True,
) -> Callable[..., tuple[Any, Callable[..., list[Any]]]]:
    """A function that returns f's value and ``vjp(dy=None)``, its transposed derivative.

    ``dy`` has the structure of the value; None means ones.  Unless ``persistent``, the
    vjp can be called once.

    >>> value, vjp = make_vjp(lambda x: x * x)(3.0)
    >>> vjp()[0].item()
    6.0
    """
    choose = _chooser(f, params)

    @_named_like(f, "vjp")
    def run(*args: Any, **kwargs: Any) -> tuple[Any, Callable[..., list[Any]]]:
        return _run(f, choose, args, kwargs, persistent)

    return run


def _run(
    f: Callable[..., Any],
    choose: Callable[..., list[int | str]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    persistent: bool,
) -> tuple[Any, Callable[..., list[Any]]]:
    """Call f with its chosen arguments watched; its value and vjp."""
    chosen = choose(args, kwargs)
    arguments: dict[int | str, Any] = dict(enumerate(args))
    arguments.update(kwargs)
    seen: set[int] = set()
    for key in dict.fromkeys(chosen):
        arguments[key] = _converted(arguments[key], seen)
    tape = GradientTape(persistent)
    with tape:
        for key in chosen:
            tape.watch(arguments[key])
        result = f(*map(arguments.__getitem__, range(len(args))), **{
            name: arguments[name] for name in kwargs
        })
        if result is None:
            raise GradientError(
                f"{_name_of(f)}: returned None; it must return what to differentiate"
            )
        value = nest.map_structure(convert_to_tensor, result)
        inputs = {id(x) for key in chosen for x in nest.flatten(arguments[key])}
        value = nest.map_structure(
            lambda y: identity(y) if id(y) in inputs else y, value
        )

    def vjp(dy: Any = None) -> list[Any]:
        return tape.gradient(  # type: ignore[no-any-return]
            value, [arguments[key] for key in chosen], dy
        )

    return value, vjp


def _converted(argument: Any, seen: set[int]) -> Any:
    """An argument as Tensors, none of them the object of another argument."""
    if type(argument) is not list and type(argument) is not tuple:
        if nest.is_nested(argument):
            return nest.map_structure(lambda leaf: _converted(leaf, seen), argument)
    x = convert_to_tensor(argument)
    if id(x) in seen:
        x = identity(x)
    seen.add(id(x))
    return x


def _chooser(
    f: Callable[..., Any], params: Sequence[int | str] | None
) -> Callable[[tuple[Any, ...], dict[str, Any]], list[int | str]]:
    """How to find the chosen arguments in a call."""
    if params is None:
        return lambda args, kwargs: list(range(len(args)))
    params = list(params)
    if all(isinstance(p, int) for p in params):

        def by_position(args: tuple[Any, ...], kwargs: Any) -> list[int | str]:
            for p in params:
                if not -len(args) <= p < len(args):  # type: ignore[operator]
                    raise GradientError(
                        f"{_name_of(f)}: params names position {p}, but the call has "
                        f"{len(args)} positional argument(s)"
                    )
            return [p % len(args) for p in params]  # type: ignore[operator]

        return by_position
    if not all(isinstance(p, str) for p in params):
        raise GradientError(
            f"{_name_of(f)}: params are all positions or all names, got {params}"
        )
    import inspect  # only here: it is not cheap to import

    known = inspect.signature(f).parameters
    order = list(known)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for p in params:
        if p not in known and not takes_any:
            raise GradientError(
                f"{_name_of(f)}: params names {p!r}, which is not among its parameters "
                f"{order}"
            )

    def by_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | str]:
        chosen: list[int | str] = []
        for p in params:
            if p in kwargs:
                chosen.append(p)
            elif p in order and order.index(p) < len(args):  # type: ignore[arg-type]
                chosen.append(order.index(p))  # type: ignore[arg-type]
            else:
                raise GradientError(
                    f"{_name_of(f)}: params names {p!r}, which the call does not supply"
                )
        return chosen

    return by_name


def implicit_value_and_gradients(
    f: Callable[..., Any],
) -> Callable[..., tuple[Any, list[tuple[Any, Variable]]]]:
    """A function that returns f's value and (gradient, variable) pairs.

    The pairs are those of the trainable Variables that f reads, in the order of their
    construction, as ``Optimizer.apply_gradients`` takes them.

    >>> w = Variable(2.0)
    >>> value, pairs = implicit_value_and_gradients(lambda x: w * x)(5.0)
    >>> value.item(), pairs[0][0].item(), pairs[0][1] is w
    (10.0, 5.0, True)
    """

    @_named_like(f, "implicit_value_and_gradients")
    def run(*args: Any, **kwargs: Any) -> tuple[Any, list[tuple[Any, Variable]]]:
        tape = Tape()
        push(tape)
        try:
            value = f(*args, **kwargs)
            pop(tape)
            if value is None:
                raise GradientError(
                    f"{_name_of(f)}: returned None; it must return what to differentiate"
                )
            variables = [tape.variables[order] for order in sorted(tape.variables)]
            if not variables:
                raise GradientError(
                    f"{_name_of(f)}: read no trainable Variable; there is nothing to "
                    "differentiate by"
                )
            targets = [
                y if type(y) is Tensor else convert_to_tensor(y)
                for y in nest.flatten(value)
            ]
            seeds: list[Tensor | None] = [None] * len(targets)
            grads = _sweep(tape, targets, seeds, variables, consume=True)
        finally:
            pop(tape)
            tape.close()
        return value, list(zip(grads, variables, strict=True))

    return run


def implicit_gradients(
    f: Callable[..., Any],
) -> Callable[..., list[tuple[Any, Variable]]]:
    """A function that returns the (gradient, variable) pairs of f.

    See ``implicit_value_and_gradients``.

    >>> w = Variable(2.0)
    >>> implicit_gradients(lambda x: w * x)(5.0)[0][0].item()
    5.0
    """
    both = implicit_value_and_gradients(f)

    @_named_like(f, "implicit_gradients")
    def run(*args: Any, **kwargs: Any) -> list[tuple[Any, Variable]]:
        return both(*args, **kwargs)[1]

    return run


def _name_of(f: Any) -> str:
    return getattr(f, "__name__", None) or type(f).__name__


def _named_like(f: Any, what: str) -> Callable[[Callable[..., Any]], Any]:
    def name(run: Callable[..., Any]) -> Callable[..., Any]:
        run.__name__ = run.__qualname__ = f"{what}({_name_of(f)})"
        return run

    return name


# ------------------------------------------------------------------------ custom gradients


def custom_gradient(f: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Give a function its own gradient: f returns (outputs, gradient function).

    The gradient function gets one cotangent per output (zeros for an unused one) and
    returns one gradient, or None, per argument; what it computes can be differentiated
    again.  When f reads trainable Variables that are not among its arguments, it must
    take ``variables=`` and return (gradients, [gradient of each variable]).

    >>> @custom_gradient
    ... def logexp(x):
    ...     e = exp(x)
    ...     return log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))
    >>> gradients_function(logexp)(100.0)[0].item()
    1.0
    """
    if f is None:
        return custom_gradient

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        positional = args[1:] if _is_method(f, args) else args
        inputs = nest.flatten(list(positional)) + _tensor_keywords(f, kwargs)
        with set_aside() as aside:
            returned = f(*args, **kwargs)
            if not (isinstance(returned, tuple) and len(returned) == 2):
                raise DTypeError(
                    f"{_name_of(f)}: a function under custom_gradient returns a pair "
                    f"(outputs, gradient function), got a {type(returned).__name__}"
                )
            result, gradient_function = returned
            if not callable(gradient_function):
                raise DTypeError(
                    f"{_name_of(f)}: the second of the returned pair must be the "
                    f"gradient function, got a {type(gradient_function).__name__}"
                )
            outputs = _fresh(result)
        variables = aside.variables(inputs)
        if variables and not _takes_variables(gradient_function):
            raise DTypeError(
                f"{_name_of(f)}: it reads Variables that are not its arguments, so its "
                "gradient function must take variables= and return (gradients, "
                "gradients of the variables)"
            )
        _warn_captured(f, inputs)

        def backward(*dys: Any) -> list[Any]:
            if variables:
                grads = gradient_function(*dys, variables=variables)
                return _checked_pair(f, grads, inputs, variables)
            return _checked_gradients(f, gradient_function(*dys), inputs)

        known = [*map(_placed, inputs), *variables]
        record_user_op(_name_of(f), outputs, known, backward, aside.shadow)
        return nest.pack_sequence_as(result, outputs)

    return wrapped


def _fresh(result: Any) -> list[Tensor]:
    """The outputs of a function, as new Tensors that can be recorded on."""
    return [identity(convert_to_tensor(y)) for y in nest.flatten(result)]


def _is_method(f: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether the first argument is the ``self`` of a method."""
    if not args:
        return False
    method = getattr(type(args[0]), getattr(f, "__name__", ""), None)
    return getattr(method, "__wrapped__", None) is f


def _placed(x: Any) -> Tensor:
    """An argument as an input: what is no array takes a place among them all the same."""
    try:
        return convert_to_tensor(x) if type(x) is not Variable else x
    except (TypeError, ValueError):
        return wrap(np.zeros(()))


def _tensor_keywords(f: Callable[..., Any], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors among the keywords, in the order of f's parameters."""
    names = [k for k, v in kwargs.items() if _holds_tensor(v)]
    if len(names) > 1:
        import inspect

        order = list(inspect.signature(f).parameters)
        names.sort(key=lambda k: order.index(k) if k in order else len(order))
    return nest.flatten([kwargs[k] for k in names])


def _takes_variables(gradient_function: Callable[..., Any]) -> bool:
    import inspect

    parameters = inspect.signature(gradient_function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return True
    named = parameters.get("variables")
    return named is not None and named.kind in (
        named.POSITIONAL_OR_KEYWORD,
        named.KEYWORD_ONLY,
    )


def _checked_gradients(f: Any, grads: Any, inputs: list[Any]) -> list[Any]:
    flat = nest.flatten(grads) if nest.is_nested(grads) else [grads]
    if len(flat) != len(inputs):
        raise GradientError(
            f"{_name_of(f)}: its gradient function must return one gradient per "
            f"argument: expected {len(inputs)}, got {len(flat)}"
        )
    for i, (g, x) in enumerate(zip(flat, inputs, strict=True)):
        if (
            g is not None
            and isinstance(x, Tensor)
            and x.dtype.kind not in INEXACT
        ):
            raise DTypeError(
                f"{_name_of(f)}: argument {i} has dtype {x.dtype}, so its gradient must "
                "be None"
            )
    return flat


def _checked_pair(
    f: Any, returned: Any, inputs: list[Any], variables: list[Variable]
) -> list[Any]:
    if not (isinstance(returned, (tuple, list)) and len(returned) == 2):
        raise DTypeError(
            f"{_name_of(f)}: its gradient function was given variables= and must return "
            "(gradients of the arguments, list of gradients of the variables), got a "
            f"{type(returned).__name__}"
        )
    grads, variable_grads = returned
    if not isinstance(variable_grads, (tuple, list)) or len(variable_grads) != len(
        variables
    ):
        count = len(variable_grads) if isinstance(variable_grads, (tuple, list)) else 1
        raise GradientError(
            f"{_name_of(f)}: its gradient function must return one gradient per "
            f"variable: expected {len(variables)}, got {count}"
        )
    return _checked_gradients(f, grads, inputs) + list(variable_grads)


def _warn_captured(f: Callable[..., Any], inputs: list[Any]) -> None:
    """A watched tensor caught from outside f gets no gradient: say so."""
    tapes = active()
    given = {id(x) for x in inputs}
    for cell in (f.__closure__ or ()) if tapes and hasattr(f, "__closure__") else ():
        try:
            x = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if type(x) is Tensor and id(x) not in given:
            if any(tape.knows(x._node) for tape in tapes):
                warnings.warn(
                    f"{_name_of(f)}: a watched tensor is used from the enclosing scope "
                    "and gets no gradient; pass it as an argument",
                    UserWarning,
                    stacklevel=caller_depth(),
                )


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Trade time for memory: keep nothing of f, and run it again for its gradient.

    Random numbers drawn inside f are the same the second time.

    >>> gradients_function(recompute_grad(lambda x: x * x * x))(2.0)[0].item()
    12.0
    """

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        inputs = [x for x in nest.flatten(list(args)) if isinstance(x, Tensor)]
        state = GENERATOR.state
        with set_aside(shadowed=False) as aside:
            outputs = _fresh(result := f(*args, **kwargs))
        variables = aside.variables(inputs)

        def backward(*dys: Any) -> list[Any]:
            # A fresh copy of each argument, so that one tensor in two places has two
            # gradients.
            copies = iter([x if type(x) is Variable else identity(x) for x in inputs])
            again = nest.map_structure(
                lambda x: next(copies) if isinstance(x, Tensor) else x, list(args)
            )
            leaves = [x for x in nest.flatten(again) if isinstance(x, Tensor)]
            now, GENERATOR.state = GENERATOR.state, state
            try:
                with GradientTape() as tape:
                    tape.watch([x for x in leaves if x.dtype.kind in INEXACT])
                    repeated = f(*again, **kwargs)
            finally:
                GENERATOR.state = now
            targets = [convert_to_tensor(y) for y in nest.flatten(repeated)]
            return tape.gradient(targets, leaves + variables, list(dys))  # type: ignore[no-any-return]

        record_user_op(_name_of(f), outputs, [*inputs, *variables], backward, None)
        return nest.pack_sequence_as(result, outputs)

    return wrapped


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """The value of f with the gradient of the identity, as for rounding or assigning.

    >>> gradients_function(grad_pass_through(floor))(1.5)[0].item()
    1.0
    """

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with set_aside(shadowed=False):
            outputs = _fresh(result := f(*args, **kwargs))
        inputs = [convert_to_tensor(x) for x in nest.flatten(list(args))]
        record_user_op(_name_of(f), outputs, inputs, lambda *dys: dys, None)
        return nest.pack_sequence_as(result, outputs)

    return wrapped

