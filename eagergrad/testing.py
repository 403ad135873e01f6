"""Gradients compared with differences: a check for ops, models and custom gradients.

The derivative of c . f(x + t v) by t, for a random direction v and a random cotangent
c, is one number whatever the shapes are.  Reverse mode's answer is v . vjp(c), forward
mode's is c . jvp(v); the values of f give a third, by a complex step where f is
analytic, else by central differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import nest
from .derivatives import jvp
from .errors import GradientError
from .gradient_tape import GradientTape
from .ops.creation import tensor
from .ops.elementwise import conj
from .tensor import INEXACT, Tensor

Array = np.ndarray[Any, Any]
Function = Callable[[list[Any]], list[Any]]  # of Tensors

COMPLEX_STEP = 1e-20  # its square is lost in rounding: no error of its own
STEPS = (1e-3, 1e-4, 1e-2)  # of central differences: one fits the scale of f
ROUGH = 1e-6  # differences that disagree by more than this have met a kink
POINTS = 10  # tried before a function counts as nowhere smooth


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = ("reverse", "forward"),
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Raise AssertionError where the derivatives of f differ from differences of f.

    Floating numbers and arrays among ``args``, nested or not, are checked in float64 or
    complex128; all else is passed to f as it is.  The result of f is a Tensor or a
    structure of them.  ``modes`` are those checked, "reverse" and "forward".
    ``order=2`` also checks the vjp as a function of its arguments and of its cotangent,
    reverse over reverse and forward over reverse (with only "forward" in ``modes`` the
    jvp, forward over forward), and so on for higher orders.

    ``rtol`` is relative to the sum of the terms compared, ``atol`` absolute; both are
    1e-8 for a complex step and 1e-6 for central differences.  Where f has a kink
    within reach of the differences, a point nearby is checked instead.

    >>> import eagergrad as eg
    >>> check_grads(eg.tanh, [np.array([0.5, -2.0])])
    >>> check_grads(eg.custom_gradient(lambda x: (x * x, lambda g: g * x)), [3.0])
    Traceback (most recent call last):
        ...
    AssertionError: check_grads: <lambda>: order 1, argument 0 of shape (), reverse: ...
    """
    if isinstance(modes, str) or not modes or set(modes) - set(BY_MODE):
        raise GradientError(
            "check_grads: modes: expected a list of 'reverse', 'forward' or both, got "
            f"{modes!r}"
        )
    if order < 1:
        raise GradientError(f"check_grads: order: expected at least 1, got {order}")
    structure, leaves = list(args), nest.flatten(list(args))
    places = [i for i, leaf in enumerate(leaves) if _is_floating(leaf)]

    def flat(xs: list[Any]) -> list[Any]:
        given = list(leaves)
        for i, x in zip(places, xs, strict=True):
            given[i] = x
        result = nest.flatten(f(*nest.pack_sequence_as(structure, given)))
        return [y for y in result if y.dtype.kind in INEXACT]

    function: Function = flat
    name = getattr(f, "__name__", type(f).__name__)
    labels = [f"argument {i}" for i in places]
    point = [_widest(leaves[i]) for i in places]
    rng = np.random.default_rng(0)
    inner = "reverse" if "reverse" in modes else "forward"
    for level in range(1, order + 1):
        title = f"check_grads: {name}: order {level}"
        point, cotangents, found = _compared(function, point, modes, rng, title)
        for label, x, one in zip(labels, point, found, strict=True):
            tolerance = ROUGH if one.method == "differences" else 1e-8
            limit = tolerance if atol is None else atol
            limit += (tolerance if rtol is None else rtol) * one.scale
            for mode, got in one.got.items():
                if not (np.isfinite(got) and abs(got - one.expected) <= limit):
                    nesting = " over ".join([mode, *[inner] * (level - 1)])
                    raise AssertionError(
                        f"{title}, {label} of shape {x.shape}, {nesting}: expected "
                        f"{one.expected:.12g} by {one.method}, got {got:.12g}"
                    )
        if inner == "reverse":
            function, seeds = _pullback(function, len(point)), cotangents
            labels += [f"cotangent {i}" for i in range(len(seeds))]
        else:
            function = _pushforward(function, len(point))
            seeds = [_random(x, rng) for x in point]
            labels += [f"tangent {i}" for i in range(len(seeds))]
        point += seeds


class Comparison(NamedTuple):
    """The derivative along a direction in one argument, from all sides."""

    expected: float
    got: dict[str, float]  # by mode
    scale: float  # the sum of the sizes of the terms: what rounding is relative to
    error: float  # of the central differences; large at a kink
    method: str


def _compared(
    f: Function,
    start: list[Array],
    modes: Sequence[str],
    rng: np.random.Generator,
    title: str,
) -> tuple[list[Array], list[Array], list[Comparison]]:
    """A point where f is smooth, at or near ``start``; cotangents and comparisons."""
    point = start
    for _ in range(POINTS):
        values = [y.numpy() for y in f([tensor(x) for x in point])]
        if coarse := [y.dtype for y in values if y.dtype.char not in "dD"]:
            raise AssertionError(f"{title}: f must keep float64, returned {coarse[0]}")
        if not all(np.isfinite(y).all() for y in values):
            raise AssertionError(f"{title}: f has values that are not finite here")
        cotangents = [_random(y, rng) for y in values]
        directions = [_random(x, rng) for x in point]
        terms = {
            mode: BY_MODE[mode](f, point, directions, cotangents) for mode in modes
        }
        found = [
            _comparison(
                f, point, i, v, cotangents, {mode: terms[mode][i] for mode in modes}
            )
            for i, v in enumerate(directions)
        ]
        if all(one.error <= ROUGH * max(1.0, one.scale) for one in found):
            return point, cotangents, found
        point = [x + 0.05 * _random(x, rng) for x in start]
    raise AssertionError(f"{title}: f is smooth at none of {POINTS} points")


def _pullback(f: Function, count: int) -> Function:
    """(x..., c...) -> the gradients of c . f(x), unconjugated: analytic if f is."""

    def pullback(arguments: list[Any]) -> list[Any]:
        xs, cotangents = arguments[:count], arguments[count:]
        with GradientTape() as tape:
            tape.watch(xs)
            ys = f(xs)
        seeds = [_conjugate(c) for c in cotangents]
        return [_conjugate(g) for g in tape.gradient(ys, xs, seeds, "zero")]

    return pullback


def _pushforward(f: Function, count: int) -> Function:
    """(x..., v...) -> the derivatives of the values of f in the directions v."""

    def pushforward(arguments: list[Any]) -> list[Any]:
        xs, tangents = arguments[:count], arguments[count:]
        _, moved = jvp(lambda *xs: f(list(xs)), xs, tangents)
        return list(moved)

    return pushforward


def _reverse_terms(
    f: Function, point: list[Array], directions: list[Array], cotangents: list[Array]
) -> list[Array]:
    """The terms of v . vjp(c), for each argument."""
    grads = _pullback(f, len(point))([tensor(x) for x in [*point, *cotangents]])
    pairs = zip(grads, directions, strict=True)
    return [np.real(g.numpy() * v) for g, v in pairs]


def _forward_terms(
    f: Function, point: list[Array], directions: list[Array], cotangents: list[Array]
) -> list[Array]:
    """The terms of c . jvp(v), for each argument."""
    terms = []
    for i, v in enumerate(directions):
        xs = [tensor(x) for x in point]

        def of_one(given: list[Any], xs: list[Any] = xs, i: int = i) -> list[Any]:
            return f([*xs[:i], *given, *xs[i + 1 :]])

        moved = _pushforward(of_one, 1)([xs[i], tensor(v)])
        pairs = zip(cotangents, moved, strict=True)
        parts = [np.real(c * dy.numpy()).ravel() for c, dy in pairs]
        terms.append(np.concatenate([np.zeros(0), *parts]))
    return terms


BY_MODE = {"reverse": _reverse_terms, "forward": _forward_terms}


@np.errstate(all="ignore")  # what is not finite fails the comparison
def _comparison(
    f: Function,
    point: list[Array],
    i: int,
    direction: Array,
    cotangents: list[Array],
    terms: dict[str, Array],
) -> Comparison:
    def along(t: complex) -> complex:
        """C . f at a distance t from the point; complex only for complex t."""
        xs = [tensor(x) for x in point]
        xs[i] = tensor(point[i] + t * direction)
        pairs = zip(cotangents, f(xs), strict=True)
        total = sum((c * y.numpy()).sum() for c, y in pairs)
        return complex(total) if isinstance(t, complex) else float(np.real(total))

    estimates = [_central(along, h) for h in STEPS]
    expected, error = min(estimates, key=lambda pair: pair[1])
    sizes = [float(abs(parts).sum()) for parts in terms.values()]
    scale = max(*sizes, abs(expected))
    method = "differences"
    if all(x.dtype.kind == "f" for x in point):
        try:
            exact = along(COMPLEX_STEP * 1j).imag / COMPLEX_STEP
        except Exception:  # an op that does not take complex numbers
            exact = np.nan
        # An op may take them and not be analytic: then the two have little in common.
        if abs(exact - expected) <= 1e-4 * max(1.0, scale):
            expected, method = exact, "a complex step"
    got = {mode: float(parts.sum()) for mode, parts in terms.items()}
    return Comparison(expected, got, scale, error, method)


def _central(phi: Callable[[float], Any], h: float) -> tuple[float, float]:
    """phi'(0) from steps h, h/2 and h/4, extrapolated, and how far it may be off."""
    here = phi(0.0)
    steps = (h, h / 2, h / 4)
    ahead, behind = [phi(s) for s in steps], [phi(-s) for s in steps]
    one, two, four = [
        (a - b) / (2 * s) for a, b, s in zip(ahead, behind, steps, strict=True)
    ]
    rough, fine = two + (two - one) / 3, four + (four - two) / 3
    # The change of slope falls with the step, unless there is a kink right here.
    bends = [
        (a - 2 * here + b) / s for a, b, s in zip(ahead, behind, steps, strict=True)
    ]
    error = abs(fine - rough) + abs(2 * bends[2] - bends[1])
    return fine + (fine - rough) / 15, error if np.isfinite(error) else np.inf


def _random(like: Array, rng: np.random.Generator) -> Array:
    """Numbers of random sign between 1/2 and 1: no element escapes the comparison."""
    sign = rng.choice([-1, 1], like.shape)
    values = np.asarray(sign * rng.uniform(0.5, 1, like.shape))
    return values if like.dtype.kind != "c" else values + 1j * _random(values, rng)


def _is_floating(leaf: Any) -> bool:
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)):
        return leaf.dtype.kind in INEXACT
    return isinstance(leaf, (float, complex))


def _widest(leaf: Any) -> Array:
    values = np.asarray(leaf.numpy() if isinstance(leaf, Tensor) else leaf)
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _conjugate(x: Any) -> Any:
    return conj(x) if x.dtype.kind == "c" else x
