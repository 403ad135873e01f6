"""Functions that turn a function into one that returns its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from . import nest
from .errors import GradientError
from .gradient_tape import GradientTape, swept
from .ops.creation import convert_to_tensor
from .ops.elementwise import identity
from .tape import Tape, pop, push
from .tensor import Tensor, Variable

_Function = TypeVar("_Function", bound=Callable[..., Any])


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
    """A function that returns f's value and ``vjp(dy=None)``.

    ``vjp`` is the transposed derivative: it maps a cotangent of the value to those of
    the parameters.

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
        result = f(
            *map(arguments.__getitem__, range(len(args))),
            **{name: arguments[name] for name in kwargs},
        )
        if result is None:
            raise _returned_none(f)
        value = nest.map_structure(convert_to_tensor, result)
        inputs = {id(x) for key in chosen for x in nest.flatten(arguments[key])}
        value = nest.map_structure(
            lambda y: identity(y) if id(y) in inputs else y, value
        )

    def vjp(dy: Any = None) -> list[Any]:
        sources = [arguments[key] for key in chosen]
        return tape.propagate(value, sources, dy, zero=False)  # type: ignore[no-any-return]

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
    if not isinstance(params, Iterable):
        raise GradientError(
            f"{name_of(f)}: params are a list of positions or names, got {params!r}"
        )
    positions = [p for p in params if isinstance(p, int)]
    names = [p for p in params if isinstance(p, str)]
    if len(positions) == len(params):

        def by_position(args: tuple[Any, ...], kwargs: Any) -> list[int | str]:
            for p in positions:
                if not -len(args) <= p < len(args):
                    raise GradientError(
                        f"{name_of(f)}: params names position {p}, but the call has "
                        f"{len(args)} positional argument(s)"
                    )
            return [p % len(args) for p in positions]

        return by_position
    if len(names) != len(params):
        raise GradientError(
            f"{name_of(f)}: params are all positions or all names, got {list(params)}"
        )
    import inspect  # only here: it is not cheap to import

    known = inspect.signature(f).parameters
    order = list(known)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for name in names:
        if name not in known and not takes_any:
            raise GradientError(
                f"{name_of(f)}: params names {name!r}, which is not among its "
                f"parameters {order}"
            )

    def by_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | str]:
        chosen: list[int | str] = []
        for name in names:
            if name in kwargs:
                chosen.append(name)
            elif name in order and order.index(name) < len(args):
                chosen.append(order.index(name))
            else:
                raise GradientError(
                    f"{name_of(f)}: params names {name!r}, which the call does not "
                    "supply"
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
        try:
            push(tape)
            try:
                value = f(*args, **kwargs)
                if value is None:
                    raise _returned_none(f)
                if type(value) is Tensor:
                    targets = [value]
                else:
                    targets = list(map(convert_to_tensor, nest.flatten(value)))
            finally:
                pop(tape)
            variables = [tape.variables[order] for order in sorted(tape.variables)]
            if not variables:
                raise GradientError(
                    f"{name_of(f)}: read no trainable Variable; there is nothing to "
                    "differentiate by"
                )
            seeds: list[Tensor | None] = [None] * len(targets)
            grads = swept(tape, targets, seeds, variables, consume=True)
        finally:
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


def _returned_none(f: Any) -> GradientError:
    return GradientError(
        f"{name_of(f)}: returned None; it must return what to differentiate"
    )


def name_of(f: Any) -> str:
    """The name of a function or of anything else that can be called."""
    return getattr(f, "__name__", None) or type(f).__name__


def _named_like(f: Any, what: str) -> Callable[[_Function], _Function]:
    def name(run: _Function) -> _Function:
        run.__name__ = run.__qualname__ = f"{what}({name_of(f)})"
        return run

    return name
