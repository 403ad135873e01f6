"""Gradients given by hand: custom_gradient, recompute_grad, grad_pass_through."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from . import nest
from .errors import DTypeError, GradientError
from .gradient_tape import GradientTape
from .gradients import name_of
from .operands import holds_tensor
from .ops.creation import convert_to_tensor
from .ops.elementwise import identity
from .ops.random import GENERATOR
from .tape import active, caller_depth, record_user_op, set_aside
from .tensor import INEXACT, Tensor, Variable, wrap


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
                    f"{name_of(f)}: a function under custom_gradient returns a pair "
                    f"(outputs, gradient function), got a {type(returned).__name__}"
                )
            result, gradient_function = returned
            if not callable(gradient_function):
                raise DTypeError(
                    f"{name_of(f)}: the second of the returned pair must be the "
                    f"gradient function, got a {type(gradient_function).__name__}"
                )
            outputs = _fresh(result)
        variables = aside.variables(inputs)
        if variables and not _takes_variables(gradient_function):
            raise DTypeError(
                f"{name_of(f)}: it reads Variables that are not its arguments, so its "
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
        record_user_op(name_of(f), outputs, known, backward, aside.shadow)
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
    """An argument as an input of the op; what is no array holds its place."""
    try:
        return convert_to_tensor(x) if type(x) is not Variable else x
    except (TypeError, ValueError):
        return wrap(np.zeros(()))


def _tensor_keywords(f: Callable[..., Any], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors among the keywords, in the order of f's parameters."""
    names = [k for k, v in kwargs.items() if holds_tensor(v)]
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
            f"{name_of(f)}: its gradient function must return one gradient per "
            f"argument: expected {len(inputs)}, got {len(flat)}"
        )
    for i, (g, x) in enumerate(zip(flat, inputs, strict=True)):
        if g is not None and isinstance(x, Tensor) and x.dtype.kind not in INEXACT:
            raise DTypeError(
                f"{name_of(f)}: argument {i} has dtype {x.dtype}, so its gradient "
                "must be None"
            )
    return flat


def _checked_pair(
    f: Any, returned: Any, inputs: list[Any], variables: list[Variable]
) -> list[Any]:
    if not (isinstance(returned, (tuple, list)) and len(returned) == 2):
        raise DTypeError(
            f"{name_of(f)}: its gradient function was given variables= and must "
            "return (gradients of the arguments, list of gradients of the variables), "
            f"got a {type(returned).__name__}"
        )
    grads, variable_grads = returned
    if not isinstance(variable_grads, (tuple, list)) or len(variable_grads) != len(
        variables
    ):
        count = len(variable_grads) if isinstance(variable_grads, (tuple, list)) else 1
        raise GradientError(
            f"{name_of(f)}: its gradient function must return one gradient per "
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
                    f"{name_of(f)}: a watched tensor is used from the enclosing scope "
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
        state = GENERATOR.mark()
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
            now = GENERATOR.mark()
            GENERATOR.rewind(state)
            try:
                with GradientTape() as tape:
                    tape.watch([x for x in leaves if x.dtype.kind in INEXACT])
                    repeated = f(*again, **kwargs)
            finally:
                GENERATOR.rewind(now)
            targets = [convert_to_tensor(y) for y in nest.flatten(repeated)]
            grads: list[Any] = tape.gradient(targets, leaves + variables, list(dys))
            return grads

        record_user_op(name_of(f), outputs, [*inputs, *variables], backward, None)
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
        record_user_op(name_of(f), outputs, inputs, lambda *dys: dys, None)
        return nest.pack_sequence_as(result, outputs)

    return wrapped
