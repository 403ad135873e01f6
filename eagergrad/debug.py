"""Finding the op that made a NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import primitive, tape
from .errors import NaNError
from .primitive import Op, newly_nan

_depth = 0


class debug:
    """Check every op inside the ``with`` block; ``nan_check`` raises at the first NaN.

    NaNError names the op and the line that called it, forward and backward.  Slow: each
    result is looked at, which on a GPU waits for it.

    >>> with debug(nan_check=True):
    ...     log(tensor(-1.0))
    Traceback (most recent call last):
        ...
    eagergrad.errors.NaNError: log made nan ...
    """

    __slots__ = ("_nan_check",)

    def __init__(self, nan_check: bool = True):
        self._nan_check = nan_check

    def __enter__(self) -> None:
        if self._nan_check:
            _switch(1)

    def __exit__(self, *exc: object) -> None:
        if self._nan_check:
            _switch(-1)


def _switch(step: int) -> None:
    global _depth
    was, _depth = _depth, _depth + step
    if bool(was) == bool(_depth):
        return
    # Nothing on the ops' own path asks whether debugging is on: their implementations
    # are looked up anew, and found with or without the check around them.
    primitive.checked = _checked if _depth else None
    tape.locate_entries = bool(_depth)
    primitive.forget()


def _checked(op: Op, implementation: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        result = implementation(*args)
        bad = newly_nan(result[0] if op.keeps else result, args)
        if bad:
            raise NaNError(
                f"{op.name} made {bad} at {tape.caller()} from {_shown(args)}"
            )
        return result

    return run


def _shown(args: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{tuple(x.shape)} {x.dtype}"
        if hasattr(x, "dtype")
        else f"[{_shown(tuple(x))}]"
        if isinstance(x, list)
        else repr(x)
        for x in args
    )
