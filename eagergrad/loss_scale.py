"""Loss scaling: gradients of float16 that are too small for it, kept in its range.

The state of a scale is four numbers on the device.  A step's gradients are looked at
there, and there it is decided whether the step is made and what the next scale is: the
host never waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import traced
from .device import Device, recording
from .errors import DeviceError, DTypeError
from .ops.elementwise import multiply
from .primitive import ByBuffer, kernel
from .tensor import Tensor, Variable, wrap

__all__ = ["LossScale"]

_PART = 2**14  # elements that one flag stands for
SCALE, GOOD, MADE, UNIT = range(4)  # places in the state


class LossScale:
    """A factor for the loss, by which small float16 gradients do not become 0.

    Differentiate ``scaled(loss)`` and give the scale to ``apply_gradients``, which
    divides by it in float32.  A step with a gradient that is inf or nan changes no
    variable, no state of the optimizer, and is not counted; it halves the scale, down
    to 1.  After ``growth_interval`` steps that were made in a row the scale doubles;
    with None it never changes.  A scale belongs to one optimizer.

    ``state`` is a Variable of 4 numbers on ``device``: the scale, the steps made since
    it changed, whether the last step was made (1 or 0), and the inverse of the scale it
    was made with.  Save it with ``eg.save``, and ``assign`` what is loaded.  ``scaled``
    returns at least float32, as a float16 loss times the scale may be beyond float16;
    clip scaled float32 gradients to ``clip_norm * scale.value``.

    Raises TypeError for settings that are no numbers, and ValueError for a scale that
    is not positive and finite or an interval of less than 1.

    >>> from eagergrad.optim import SGD
    >>> w, scale = Variable([1.0, 2.0], dtype="float16"), LossScale(2.0**10)
    >>> gradients = [tensor([1024.0, 2048.0], dtype="float16")]
    >>> SGD(0.5).apply_gradients(zip(gradients, [w]), loss_scale=scale)
    >>> w.tolist()
    [0.5, 1.0]
    >>> scale.value.item()
    1024.0
    """

    def __init__(
        self,
        initial_scale: float = 2.0**15,
        growth_interval: int | None = 2000,
        device: Device | str | None = None,
    ):
        scale = _number(initial_scale, "initial_scale", (int, float, np.floating))
        if not 0 < np.float32(scale) < math.inf:
            raise ValueError(
                "LossScale: expected a positive, finite initial_scale, got "
                f"{initial_scale}; float16 training often starts with 2.0**15"
            )
        if growth_interval is not None:
            _number(growth_interval, "growth_interval", (int, np.integer))
            if growth_interval < 1:
                raise ValueError(
                    "LossScale: expected a growth_interval of at least 1 step, got "
                    f"{growth_interval}; None keeps the scale fixed"
                )
        self.initial_scale = float(scale)
        self.growth_interval = growth_interval
        start = np.array([scale, 0, 1, 1 / scale], np.float32)
        self.state = Variable(start, device=device, name="loss_scale")

    def __repr__(self) -> str:
        settings = f"{self.initial_scale}, growth_interval={self.growth_interval}"
        return f"LossScale(initial_scale={settings})"

    @property
    def value(self) -> Tensor:
        """The scale, a float32 tensor of no dimension on the device."""
        return wrap(self.state._data[SCALE, ...])

    def scaled(self, loss: Any) -> Tensor:
        """Multiply a loss by the scale, in float32 or the loss's own wider dtype."""
        return multiply(loss, self.value)  # type: ignore[no-any-return]

    def _factors(self) -> tuple[float, float, float]:
        """Growth, backoff and interval, as the kernel takes them."""
        if self.growth_interval is None:
            return 1.0, 1.0, math.inf
        return 2.0, 0.5, float(self.growth_interval)

    def _check(self, device: Device) -> None:
        """Raise DeviceError unless the scale is on this device."""
        own = self.state.device
        if own != device:
            raise DeviceError(
                f"apply_gradients: a variable is on {device}, the loss scale on {own}; "
                f"make it with device={str(device)!r}"
            )

    def _judge(self, gradients: Sequence[Any]) -> Any:
        """Bring the state up to date with flat gradients, and return its buffer."""
        state = self.state._data
        trace, run = traced.current(), recording()
        if run is not None:
            factors = self._factors()
            run.guards.append(lambda: self._factors() == factors)
        if trace is None:
            found = self._next(*gradients, state)
        else:

            def renewed(*given: Any) -> None:
                *inputs, out = given
                out[...] = self._next(*inputs)

            given = (*gradients, state)
            found = trace.host("loss_scale", renewed, given, state)
        self.state._data = found
        return found

    def _next(self, *given: Any) -> Any:
        """The next state, of a step's gradients and, as the last one, the state."""
        *gradients, state = given
        xp, look, renew = _MEANS[type(state)]
        flags, factors = _flags(gradients, xp, look), self._factors()
        if renew is not None:
            out = xp.empty(4, np.float32)
            return renew(flags, state, *factors, out)
        growth, backoff, interval = factors
        scale, good = state[SCALE], state[GOOD] + 1
        made, grows = flags.max() == 0, good >= interval
        larger = scale * growth
        larger = xp.where(grows & (larger < math.inf), larger, scale)
        smaller = xp.maximum(scale * backoff, xp.minimum(scale, 1))
        found = xp.empty(4, np.float32)
        found[SCALE] = xp.where(made, larger, smaller)
        found[GOOD] = xp.where(made & ~grows, good, 0)
        found[MADE] = made
        found[UNIT] = 1 / scale
        return found


# The array module, and the kernels that look at gradients and move the scale.
_MEANS = ByBuffer(
    lambda backend: (
        backend.xp,
        kernel("non_finite", backend),
        kernel("loss_scale", backend),
    )
)


def _flags(gradients: Sequence[Any], xp: Any, look: Any) -> Any:
    """Numbers of which one is not 0 if one of the gradients is not finite."""
    counts = [-(-g.size // _PART) or 1 for g in gradients]
    flags = xp.empty(sum(counts), np.float32)
    start = 0
    for g, count in zip(gradients, counts, strict=True):
        own = flags[start : start + count]
        if look is None:
            own[...] = ~xp.isfinite(g).all()
        elif g.dtype == np.float32:
            look(g, own)
        else:
            own[...] = look(g, xp.empty(count, g.dtype))
        start += count
    return flags


def _number(value: Any, name: str, kinds: tuple[type, ...]) -> Any:
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise DTypeError(
            f"LossScale: expected a number for {name}, got {type(value).__name__}"
        )
    return value
