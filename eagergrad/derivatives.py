"""Derivatives of functions, each by the mode that suits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import nest
from .errors import GradientError
from .forward import ForwardAccumulator
from .gradient_tape import GradientTape
from .gradients import make_vjp, name_of
from .ops.creation import convert_to_tensor, zeros
from .ops.elementwise import identity, real
from .ops.shapes import stack
from .tensor import Tensor, to_buffer, wrap

Arguments = int | Sequence[int]


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """f's value and its derivative in the direction of the tangents, by forward mode.

    >>> value, tangent = jvp(lambda x: x * x, [3.0], [2.0])
    >>> value.item(), tangent.item()
    (9.0, 12.0)
    """
    points = [identity(convert_to_tensor(x)) for x in primals]
    directions = [_direction(v, x) for v, x in zip(tangents, points, strict=True)]
    with ForwardAccumulator(points, directions) as accumulator:
        value = _value(f, f(*points))
    return value, accumulator.jvp(value, "zero")


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., list[Any]]]:
    """f's value and the function that pulls a cotangent back to the arguments.

    >>> value, pull = vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> [g.item() for g in pull(10.0)]
    [30.0, 20.0]
    """
    return make_vjp(f)(*primals)


def jacobian(
    f: Callable[..., Any], argnums: Arguments = 0, mode: str | None = None
) -> Callable[..., Any]:
    """A function that returns the Jacobian of f, of shape value.shape + argument.shape.

    ``argnums`` is a position, or a list of them for a list of Jacobians.  ``mode`` is
    "reverse" (all rows in one sweep) or "forward" (a run of f per column); by default
    forward where the argument is much smaller than the value.  Of complex numbers a row
    is the gradient of the real part: in either mode it has the dtype of the argument.

    >>> jacobian(lambda x: x * x)([1.0, 2.0]).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    if mode not in (None, "reverse", "forward"):
        raise GradientError(
            f"jacobian: mode is 'reverse', 'forward' or None, got {mode!r}"
        )

    def run(*args: Any, **kwargs: Any) -> Any:
        places = [argnums] if isinstance(argnums, int) else list(argnums)
        points = _points(f, args, places)
        with GradientTape() as tape:
            tape.watch([points[i] for i in places])
            y = _value(f, f(*points, **kwargs))
        outputs = sum(leaf.size for leaf in nest.flatten(y))
        inputs = sum(points[i].size * _directions(points[i]) for i in places)
        if mode == "forward" or (mode is None and 4 * inputs < outputs):
            results = [_columns(f, points, i, kwargs) for i in places]
        else:
            sources = [points[i] for i in places]
            rows = tape.jacobian(nest.flatten(y), sources, "zero")
            results = [
                nest.pack_sequence_as(y, [row[j] for row in rows])
                for j in range(len(places))
            ]
        return results[0] if isinstance(argnums, int) else results

    return run


def hessian(f: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of a scalar f: x.shape + x.shape.

    The rows of the Hessian are those of the gradient's Jacobian, all in one sweep.

    >>> hessian(lambda x: x[0] * x[0] * x[1])([1.0, 2.0]).tolist()
    [[4.0, 2.0], [2.0, 0.0]]
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        points = _points(f, args, [argnum])
        x = points[argnum]
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as inner:
                inner.watch(x)
                y = _scalar(f, f(*points, **kwargs))
            g = inner.gradient(y, x, unconnected_gradients="zero")
        return outer.jacobian(g, x, unconnected_gradients="zero")

    return run


def hvp(f: Callable[..., Any], x: Any, v: Any) -> Any:
    """The Hessian of a scalar f at x times v, forward over reverse.

    It costs a few runs of f, whatever the size of x.

    >>> hvp(lambda x: x[0] * x[0] * x[1], [1.0, 2.0], [1.0, 0.0]).tolist()
    [4.0, 2.0]
    """
    point = identity(convert_to_tensor(x))
    with ForwardAccumulator(point, _direction(v, point)) as accumulator:
        with GradientTape() as tape:
            tape.watch(point)
            y = _scalar(f, f(point))
        g = tape.gradient(y, point, unconnected_gradients="zero")
    return accumulator.jvp(g, "zero")


def batch_jacobian(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns the Jacobian of each example: (b, y...), (b, x...).

    Right if each row of the value depends on its own row of the argument alone.

    >>> batch_jacobian(lambda x: x * x)([[1.0, 2.0]]).tolist()
    [[[2.0, 0.0], [0.0, 4.0]]]
    """

    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        point = identity(convert_to_tensor(x))
        with GradientTape() as tape:
            tape.watch(point)
            y = _value(f, f(point, *args, **kwargs))
        return tape.batch_jacobian(y, point, unconnected_gradients="zero")

    return run


def _points(
    f: Callable[..., Any], args: tuple[Any, ...], places: list[int]
) -> list[Any]:
    """The arguments, those differentiated as Tensors of their own."""
    for i in places:
        if not 0 <= i < len(args):
            raise GradientError(
                f"{name_of(f)}: there is no positional argument {i}: {len(args)} given"
            )
    return [
        identity(convert_to_tensor(x)) if i in places else x for i, x in enumerate(args)
    ]


def _direction(v: Any, x: Tensor) -> Tensor:
    """A tangent for x: numbers and arrays take its dtype and device."""
    return v if isinstance(v, Tensor) else wrap(to_buffer(v, x.dtype, x.device))


def _value(f: Callable[..., Any], value: Any) -> Any:
    if value is None:
        raise GradientError(f"{name_of(f)}: returned None; it must return a value")
    return nest.map_structure(convert_to_tensor, value)


def _scalar(f: Callable[..., Any], value: Any) -> Tensor:
    y: Tensor = _value(f, value)
    if not isinstance(y, Tensor) or y.size != 1:
        shape = y.shape if isinstance(y, Tensor) else type(y).__name__
        raise GradientError(f"{name_of(f)}: expected a scalar value, got {shape}")
    return y


def _directions(x: Tensor) -> int:
    """How many directions an element has: two in the complex plane."""
    return 2 if x.dtype.kind == "c" else 1


def _columns(
    f: Callable[..., Any], points: list[Any], place: int, kwargs: dict[str, Any]
) -> Any:
    """The Jacobian by one argument, a run of f with a tangent per column.

    Of a complex argument two: the real part has a slope along each axis of the plane.
    """
    x = points[place]

    def along(j: int, unit: complex) -> Any:
        tangent = np.zeros(x.size, x.dtype)
        tangent[j] = unit
        direction = wrap(to_buffer(tangent.reshape(x.shape), None, x.device))
        with ForwardAccumulator(x, direction) as accumulator:
            y = _value(f, f(*points, **kwargs))
        return nest.map_structure(real, accumulator.jvp(y, "zero"))

    columns = [along(j, 1) for j in range(x.size)]
    if _directions(x) == 2:
        columns = [
            nest.map_structure(lambda re, im: re + 1j * im, column, along(j, 1j))
            for j, column in enumerate(columns)
        ]
    if not columns:
        y = _value(f, f(*points, **kwargs))
        return nest.map_structure(
            lambda leaf: zeros((*leaf.shape, *x.shape), x.dtype, x.device), y
        )
    return nest.map_structure(
        lambda *leaves: stack(leaves, -1).reshape((*leaves[0].shape, *x.shape)),
        *columns,
    )
