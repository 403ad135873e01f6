"""Optimizers: one flat update for all variables of a dtype and device.

The variables' values stand side by side in one buffer, and so do their gradients, so
that a step is a handful of array operations however many variables there are.  A step
makes a new buffer and gives each Variable a view of it: what a tape or a snapshot holds
of the old values is never written to.  Large values that nobody else holds are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from . import traced
from .device import CPU, Device, current, device_of, recording
from .errors import DeviceError, DTypeError, GradientError, ShapeError
from .loss_scale import MADE, UNIT
from .loss_scale import LossScale as LossScale
from .primitive import begin, kernel
from .tensor import Reference, Tensor, Variable

Pairs = Iterable[tuple[Any, Variable]]
_ALL = slice(None)
Slots = dict[str, Any]  # state by name, in flat buffers
# A variable's: how many steps it has made, and what is kept.  With a loss scale a GPU
# alone knows the number, which is then a buffer that the variables of a group share.
State = tuple[Any, Slots]

# On the CPU a group is updated in blocks of so many elements, small enough for all
# passes over one to stay in the L2 cache.
_BLOCK = 2**16
_LARGE = 2**14  # elements, on average, from which each variable has its own call


class Group:
    """Variables of one dtype and device that have made equally many steps, flat."""

    def __init__(self, variables: list[Variable], places: list[int], device: Device):
        self.variables = variables
        self.places = places  # of their gradients among all
        self.dtype = dtype = variables[0].dtype
        self.device = device
        self.xp = device.backend.xp
        # half types keep their state, and do their arithmetic, in float32
        self.wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
        ends = np.cumsum([v.size for v in variables]).tolist()
        starts = [0, *ends[:-1]]
        self.parts = list(map(slice, starts, ends))
        self.shapes = [v.shape for v in variables]
        self.views: list[Any] = [None] * len(variables)  # what the variables were given
        self.flat: Any = None  # what those are views of
        self.holders: list[int] = []  # how often they were referred to after a step
        self.spare: Any = None  # memory of an update, for one more array
        self.step = 0
        self.count: Any = None  # of steps, where the device counts them
        self.kernel: Any = None  # makes the whole update in one pass
        self.guarded: Any = None  # the same with a loss scale, on a GPU
        self.factors: list[Any] = []  # arrays for the numbers it takes, on the CPU
        self.numbers: Any = None  # what those are views of
        self.slots: Slots = {}
        self.blocks: list[tuple[slice, Slots]] = []

    def load(self) -> None:
        """Collect the values anew if any was assigned since the last step."""
        for variable, view in zip(self.variables, self.views, strict=True):
            if variable._data is not view:
                values = [v._data for v in self.variables]
                run = recording()
                whole = run and run.whole(values)
                self.flat = self.laid(values, self.dtype) if whole is None else whole
                return

    def laid(self, values: Sequence[Any], dtype: np.dtype[Any]) -> Any:
        """Arrays side by side in a new one."""
        if recording() is None:
            return self.xp.concatenate(values, axis=None, dtype=dtype)
        # of more than 8 CuPy would send the addresses, which cannot be recorded
        flat = self.xp.empty(self.parts[-1].stop, dtype)
        for part, x in zip(self.parts, values, strict=True):
            flat[part] = x.reshape(-1)
        return flat

    def room(self) -> Any:
        """A buffer for new values that are made in another dtype; None for others."""
        if self.dtype == self.wide:
            return None
        return self.xp.empty(self.parts[-1].stop, self.dtype)

    def reserve(self) -> None:
        """Take the memory of ``scaled`` beforehand."""
        size = self.parts[-1].stop
        length = min(size, _BLOCK) if self.xp is np else size
        self.spare = self.xp.empty(length, self.wide)

    def scaled(self, w: Any, factor: float) -> Any:
        """factor w, in memory that the next call uses again."""
        if self.spare is None:
            self.reserve()
        spare = self.spare[: w.size]
        return self.xp.multiply(w, self.scalar(factor), spare, dtype=self.wide)

    def store(self, flat: Any, room: Any = None) -> None:
        """Give the variables their new values, in a buffer of ``room`` if need be."""
        self.spare = None
        if room is not None:
            room[...] = flat
            flat = room
        self.flat = flat if flat.dtype == self.dtype else flat.astype(self.dtype)
        rows = zip(self.variables, self.parts, self.shapes, strict=True)
        self.views = [self.flat[part].reshape(shape) for _, part, shape in rows]
        for variable, view in zip(self.variables, self.views, strict=True):
            variable._data = view

    def count_holders(self) -> None:
        """Count who holds the values, where ``target`` is to be asked."""
        self.holders = self._held() if self.xp is np and self.is_large() else []

    def _held(self) -> list[int]:
        """How often each public array is referred to; nothing if one is not public."""
        for variable, view in zip(self.variables, self.views, strict=True):
            if variable._data is not view:
                return []
        return list(map(sys.getrefcount, (self.flat, *self.views)))

    def target(self, apart: bool) -> Any:
        """Where new values go: over the old, unless somebody else holds those."""
        if not apart and self.holders and self.holders == self._held():
            return self.flat
        return self.xp.empty(self.parts[-1].stop, self.wide)

    def forget(self) -> None:
        """Have the values collected anew by the next step."""
        self.flat, self.views = None, [None] * len(self.variables)
        self.holders = []

    def is_large(self) -> bool:
        """Whether each variable has its own call of the kernel.

        It takes less than laying large gradients side by side, which half types need
        to be widened.  On a GPU one call for all is the fewest launches, unless they
        are recorded: the gradients are copied one by one then, which takes no fewer.
        """
        if self.kernel is None or self.dtype != self.wide or self.count is not None:
            return False
        large = self.parts[-1].stop >= _LARGE * len(self.parts)
        return large if self.xp is np else recording() is not None

    def set(self, factors: Sequence[float]) -> None:
        """Write the numbers that the kernel takes to where it reads them."""
        if self.factors:
            self.numbers[:] = factors

    def scalar(self, value: Any) -> Any:
        """A factor for the buffers, in the form that costs least to multiply by."""
        return np.array(value, self.wide) if self.xp is np else value

    def states(self) -> dict[Reference, State]:
        """What is to be remembered of each variable."""
        return {
            variable.ref(): (
                self.step if self.count is None else self.count,
                {name: values[part] for name, values in self.slots.items()},
            )
            for variable, part in zip(self.variables, self.parts, strict=True)
        }

    def restore(
        self, names: Sequence[str], states: Sequence[State | None], counts: bool
    ) -> None:
        """Take up the state of the variables; a new one starts with zeros.

        With ``counts`` the device counts the steps from now on.
        """
        step = states[0][0] if states[0] else 0
        if counts:
            self.count = self.xp.empty((), self.wide)
            self.count[...] = step
        else:
            self.step = int(step)
        for name in names:
            values = self.xp.zeros(self.parts[-1].stop, self.wide)
            for part, state in zip(self.parts, states, strict=True):
                if state:
                    values[part] = state[1][name]
            self.slots[name] = values
        size = self.parts[-1].stop
        length = _BLOCK if self.xp is np else size
        for start in range(0, size, max(length, 1)):
            block = slice(start, start + length)
            slots = {name: values[block] for name, values in self.slots.items()}
            self.blocks.append((block, slots))


class Optimizer:
    """What the optimizers share: checks, groups, and the state of variables.

    A subclass names its state in ``_slots``, and writes ``_factors`` and ``_update``;
    where there are kernels, the one it names makes the update, of the values, their
    gradients, the state and the factors.
    """

    _slots: tuple[str, ...] = ()
    _kernel = ""
    _scaled = False  # whether there is one with a loss scale, of the same factors
    weight_decay = 0.0

    def __init_subclass__(cls) -> None:
        if "_update" in vars(cls) and "_factors" not in vars(cls):
            cls._kernel = ""  # the inherited one makes another update
        if {"_update", "_factors"} & vars(cls).keys() and "_scaled" not in vars(cls):
            cls._scaled = False

    def __init__(self, learning_rate: float):
        self.learning_rate = learning_rate
        self._groups: list[Group] = []  # of the last step's variables
        self._order: list[int] = []  # whether they are scaled; their ids, as they came
        self._states: dict[Reference, State] = {}  # of all others
        if current() is CPU:  # while the model is made, and first runs
            begin(self._kernel)

    def __repr__(self) -> str:
        settings = [f"{k}={v}" for k, v in vars(self).items() if not k.startswith("_")]
        return f"{type(self).__name__}({', '.join(settings)})"

    def apply_gradients(
        self, pairs: Pairs, loss_scale: LossScale | None = None
    ) -> None:
        """Make one step with (gradient, variable) pairs.

        A pair whose gradient is None is left out: its variable and state stay.  With a
        ``loss_scale`` the gradients are those of the scaled loss, and the step is made
        only if all of them are finite: see ``LossScale``.  Raises ValueError for a
        gradient of another shape or on another device, TypeError for another dtype or
        for something that is no Variable, and OutOfMemoryError (a MemoryError) for a
        device without room, before anything is changed.

        Large values that nobody else holds are written over, so a thread that reads a
        Variable meanwhile may find some of both.
        """
        pairs = [pair for pair in pairs if pair[0] is not None]
        if not pairs:
            raise GradientError(
                f"{type(self).__name__}: no gradient to apply: all of them are None"
            )
        self._step(pairs, loss_scale)
        for group in self._groups:  # when nothing of the step holds them any more
            group.count_holders()

    def _step(
        self, pairs: Sequence[tuple[Any, Variable]], loss_scale: LossScale | None
    ) -> None:
        gradients = [_checked(gradient, variable) for gradient, variable in pairs]
        if loss_scale is not None:
            if not isinstance(loss_scale, LossScale):
                raise DTypeError(
                    "apply_gradients: expected a LossScale, got "
                    f"{type(loss_scale).__name__} for loss_scale; make one of it, as "
                    "LossScale(2.0**15)"
                )
            for _, variable in pairs:
                loss_scale._check(device_of(variable._data))
        order = [loss_scale is not None, *[id(variable) for _, variable in pairs]]
        trace, run = traced.current(), recording()
        if order != self._order:
            with nullcontext() if run is None else run.aside():
                self._regroup([v for _, v in pairs], loss_scale is not None)
            self._order = order
        # Memory is taken first, for all groups: what has none leaves all as it was.
        made = []
        for group in self._groups:
            with group.device.allocating("apply_gradients"):
                if run is not None:
                    run.undo.append(group.forget)
                group.load()
                own = [gradients[place] for place in group.places]
                if trace is None and group.is_large():
                    # apart, where gradients are scaled before the old values are read
                    flat = group.target(apart=loss_scale is not None)
                    flats = [g.reshape(-1) for g in own]
                    pieces = list(zip(group.parts, flats, strict=True))
                else:
                    flat = group.laid(own, group.wide)
                    pieces = [(_ALL, flat)]
                if self.weight_decay and group.kernel is None:
                    group.reserve()
                made.append((group, flat, pieces, None if trace else group.room()))
        verdict = None
        if loss_scale is not None:
            with self._groups[0].device.allocating("apply_gradients"):
                verdict = loss_scale._judge(
                    [g for _, _, pieces, _ in made for _, g in pieces]
                )
        for group, flat, pieces, room in made:
            with group.device.allocating("apply_gradients"):
                if trace is not None:
                    group.store(self._noted(trace, group, flat, verdict))
                    group.forget()
                    continue
                self._advance(group, group.flat, pieces, flat, verdict)
                group.store(flat, room)
                if run is not None:
                    group.forget()

    def _advance(
        self,
        group: Group,
        w: Any,
        pieces: Sequence[tuple[slice, Any]],
        out: Any,
        verdict: Any = None,
    ) -> None:
        """Make a step: values w, and gradients of parts of them, to new values.

        The verdict is the state of a loss scale, which says whether it is made.  The
        CPU reads it; on a GPU kernels do, since to wait for it would take longer.
        """
        if group.count is not None:
            self._select(group, w, pieces[0][1], out, verdict)
            return
        if verdict is not None:
            if not verdict[MADE]:
                out[...] = w
                return
            unit = verdict[UNIT]
            pieces = [(k, np.multiply(g, unit, out=out[k])) for k, g in pieces]
        step = group.step
        try:
            self._compute(group, w, pieces, out, self._numbers(group))
        except BaseException:
            group.step = step
            raise

    def _compute(
        self,
        group: Group,
        w: Any,
        pieces: Sequence[tuple[slice, Any]],
        out: Any,
        factors: Sequence[Any],
    ) -> None:
        state = group.slots.values()
        if group.kernel is not None:
            group.set(factors)
            given = group.factors or factors
            for part, g in pieces:
                own = [values[part] for values in state]
                group.kernel(w[part], g, *own, *given, out=(out[part], *own))
            return
        ((_, g),) = pieces
        factors = [group.scalar(x) for x in factors]
        for block, slots in group.blocks:
            update = self._update(group, slots, w[block], g[block], factors)
            group.xp.subtract(w[block], update, out[block])

    def _select(self, group: Group, w: Any, g: Any, out: Any, verdict: Any) -> None:
        """Make a step on a GPU, or leave all as it is, as the verdict says."""
        state, xp = group.slots, group.xp
        run = recording()

        def latest() -> Sequence[Any]:
            # rounded as it is on the device, where replays have it
            rate = group.wide.type(float(self.learning_rate))
            return self._settings(float(rate))

        if run is None:
            settings = latest()
        else:
            others = self._settings(1.0)
            run.guards += [
                lambda: group in self._groups,
                lambda: self._settings(1.0) == others,
            ]
            settings = run.numbers(latest, group.wide, [*state.values(), group.count])
        if verdict.dtype != group.wide:
            verdict = verdict.astype(group.wide)
        made, unit = verdict[MADE, ...], verdict[UNIT, ...]
        if group.guarded is not None:
            factors = self._timed(group, made, settings)
            own = state.values()
            group.guarded(w, g, *own, *factors, made, unit, out=(out, *own))
            return
        holds = made != 0
        group.count += made
        count = xp.maximum(group.count, 1).astype(np.float64)
        factors = [
            x.astype(group.wide) if isinstance(x, type(count)) else x
            for x in self._factors(count, settings[0])
        ]
        before = {name: values.copy() for name, values in state.items()}
        g *= unit
        update = self._update(group, state, w, g, factors)
        xp.subtract(w, update, out)
        out[...] = xp.where(holds, out, w)
        for name, values in state.items():
            values[...] = xp.where(holds, values, before[name])

    def _settings(self, rate: float) -> tuple[float, ...]:
        """The numbers a step on a GPU takes that do not depend on its number.

        The learning rate is the first.
        """
        return rate, *self._factors(1, rate)

    def _timed(self, group: Group, made: Any, settings: Sequence[Any]) -> Sequence[Any]:
        """The kernel's factors of the next step; counts it where they depend on it."""
        return settings[1:]

    def _numbers(self, group: Group) -> Sequence[Any]:
        """The factors of the next step, which is counted.

        While a GPU records, they are buffers, and each replay counts a step of its own
        with the learning rate of then.
        """

        run = recording()
        if run is None:
            return self._counted(group)
        step, way = group.step, self._way()
        run.undo.append(lambda: setattr(group, "step", step))
        run.guards += [lambda: group in self._groups, lambda: self._way() == way]
        return run.numbers(
            lambda: self._counted(group), group.wide, group.slots.values()
        )

    def _counted(self, group: Group) -> Sequence[float]:
        rate = float(self.learning_rate)
        group.step += 1
        return self._factors(group.step, rate)

    def _way(self) -> list[bool]:
        """Which settings are not zero: by that an update chooses what it does."""
        return [
            bool(x)
            for name, x in vars(self).items()
            if name[0] != "_" and name != "learning_rate"
        ]

    def _noted(self, trace: traced.Trace, group: Group, g: Any, verdict: Any) -> Any:
        """A step as part of a program: made by every replay, with the rate of then."""
        before = group.step, {name: x.copy() for name, x in group.slots.items()}

        def undo() -> None:
            group.step = before[0]
            for name, values in before[1].items():
                group.slots[name][...] = values

        trace.guards.append(lambda: group in self._groups)
        name = type(self).__name__
        if verdict is None and group.factors and group.dtype == group.wide:
            trace.host(
                f"{name}.count", lambda: group.set(self._numbers(group)), undo=undo
            )
            own = tuple(group.slots.values())
            given = group.flat, g, *own, *group.factors
            trace.record(group.kernel, given, {"out": (group.flat, *own)}, name)
            return group.flat

        def step(w: Any, g: Any, *rest: Any) -> None:
            *judged, out = rest
            self._advance(group, w, [(_ALL, g)], out, *judged)

        given = (group.flat, g) if verdict is None else (group.flat, g, verdict)
        return trace.host(name, step, given, g, undo)

    def _regroup(self, variables: list[Variable], scaled: bool) -> None:
        """Lay the variables out anew, each with the state it has."""
        for variable in variables:
            if variable.dtype.kind not in "fV":
                raise DTypeError(
                    "apply_gradients: expected a floating dtype, got the "
                    f"{_named(variable)} of {variable.dtype}"
                )
        if len(set(map(id, variables))) != len(variables):
            raise GradientError(
                f"{type(self).__name__}: a variable appears twice; add its gradients"
            )
        known = dict(self._states)
        for group in self._groups:
            known.update(group.states())
        states = [known.pop(variable.ref(), None) for variable in variables]
        kinds: dict[Any, list[int]] = {}
        for place, (variable, state) in enumerate(zip(variables, states, strict=True)):
            step = state[0] if state else 0
            same = step if isinstance(step, int) else ("count", id(step))
            kind = variable.dtype, device_of(variable._data), same
            kinds.setdefault(kind, []).append(place)
        groups = []
        for (_, device, _), places in kinds.items():
            group = Group([variables[place] for place in places], places, device)
            with device.allocating("apply_gradients"):
                counts = scaled and device.backend.driver is not None
                group.restore(self._slots, [states[place] for place in places], counts)
            if group.dtype.kind == "f":
                group.kernel = kernel(self._kernel, device.backend)
                if group.count is not None and self._scaled:
                    group.guarded = kernel(f"scaled_{self._kernel}", device.backend)
                if group.kernel is not None and group.xp is np:
                    # as arrays, which NumPy need not make of numbers at each call
                    group.numbers = np.zeros(len(self._factors(1, 0.0)), group.wide)
                    group.factors = list(map(np.squeeze, group.numbers[:, None]))
            groups.append(group)
        self._groups, self._states = groups, known

    def _factors(self, step: int, rate: float) -> tuple[float, ...]:
        """The numbers that an update takes, in the kernel's order."""
        return (rate,)

    def _update(
        self, group: Group, slots: Slots, w: Any, g: Any, factors: Sequence[Any]
    ) -> Any:
        """What to subtract from the values w, of which g is the gradient.

        Brings the slots up to date.  g may be overwritten, w may not.  Where there is
        no memory for what it makes, a step may be left half done.
        """
        raise NotImplementedError


def _checked(gradient: Any, variable: Any) -> Any:
    """The gradient's buffer, which fits the variable's."""
    if not isinstance(variable, Variable):
        raise DTypeError(
            "apply_gradients: expected (gradient, variable) pairs, got a "
            f"{type(variable).__name__} for the variable"
        )
    data = gradient._data if isinstance(gradient, Tensor) else np.asarray(gradient)
    own = variable._data
    if data.shape != own.shape:
        raise ShapeError(
            f"apply_gradients: the gradient has shape {data.shape}, its "
            f"{_named(variable)} {own.shape}"
        )
    if data.dtype is not own.dtype and data.dtype != own.dtype:
        raise DTypeError(
            f"apply_gradients: the gradient is {data.dtype}, its {_named(variable)} "
            f"{own.dtype}; both must be one floating dtype"
        )
    if type(data) is type(own) is np.ndarray or device_of(data) == device_of(own):
        return data
    raise DeviceError(
        f"apply_gradients: the gradient is on {device_of(data)}, its "
        f"{_named(variable)} on {device_of(own)}; move it with .to"
    )


def _root(x: Any) -> Any:
    """The square root of a number, or of a number in a buffer."""
    return math.sqrt(x) if isinstance(x, float) else x**0.5


def _named(variable: Variable) -> str:
    return f"variable {variable.name}" if variable.name else "variable"


class SGD(Optimizer):
    """Stochastic gradient descent: w -= lr (g + weight_decay w), with momentum.

    With momentum: v = momentum v + g, w -= lr v.

    >>> w = Variable([1.0])
    >>> SGD(learning_rate=0.5).apply_gradients([(tensor([1.0]), w)])
    >>> w.tolist()
    [0.5]
    """

    _kernel = "sgd"
    _scaled = True

    def __init__(
        self, learning_rate: float, momentum: float = 0.0, weight_decay: float = 0.0
    ):
        self._slots = ("velocity",) if momentum else ()
        self._kernel = self._kernel and ("momentum" if momentum else "sgd")
        super().__init__(learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay

    def _factors(self, step: int, rate: float) -> tuple[float, ...]:
        own = (self.momentum,) if self.momentum else ()
        return (*own, rate, self.weight_decay)

    def _update(
        self, group: Group, slots: Slots, w: Any, g: Any, factors: Sequence[Any]
    ) -> Any:
        *momentum, rate, decay = factors
        if self.weight_decay:
            g += group.scaled(w, decay)
        if not self.momentum:
            g *= rate
            return g
        velocity = slots["velocity"]
        velocity *= momentum[0]
        velocity += g
        return group.xp.multiply(velocity, rate, g)


class Adam(Optimizer):
    """Adam, by Kingma and Ba (2015), algorithm 1.

    mu = b1 mu + (1 - b1) g;  nu = b2 nu + (1 - b2) g^2;
    w -= lr mu_hat / (sqrt(nu_hat) + epsilon), with mu_hat = mu / (1 - b1^t) and
    nu_hat = nu / (1 - b2^t).  t counts the steps of the variable, which are fewer than
    the optimizer's if some came without a gradient for it.

    >>> w = Variable([1.0])
    >>> Adam(learning_rate=0.5).apply_gradients([(tensor([3.0]), w)])
    >>> w.tolist()
    [0.5]
    """

    _slots = ("mu", "nu")
    _kernel = "adam"
    _scaled = True

    def __init__(
        self,
        learning_rate: float = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
    ):
        super().__init__(learning_rate)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    # The slots hold mu / (1 - b1) and nu / (1 - b2).  These factors and the corrections
    # are scalars, taken out of the arrays to save passes over them: with
    # c = sqrt((1 - b2^t) / (1 - b2)) the update is
    #   lr c (1 - b1) / (1 - b1^t)  *  mu / (sqrt(nu) + c epsilon)

    def _factors(self, step: int, rate: float) -> tuple[float, ...]:
        b1, b2 = self.beta_1, self.beta_2
        c = _root((1.0 - b2**step) / (1.0 - b2))
        return b1, b2, rate * c * (1.0 - b1) / (1.0 - b1**step), c * self.epsilon, 0.0

    def _settings(self, rate: float) -> tuple[float, ...]:
        b1, b2 = self.beta_1, self.beta_2
        return rate, self.epsilon, 1.0 - b1, 1.0 - b2, b1, b2, 0.0

    def _timed(self, group: Group, made: Any, settings: Sequence[Any]) -> Sequence[Any]:
        rate, epsilon, kept_1, kept_2, b1, b2, decay = settings
        timing = kernel("adam_factors", group.device.backend)
        assert timing is not None  # as there is one for the update
        _, *timed = timing(
            group.count,
            made,
            *(rate, epsilon, kept_1, kept_2),
            out=(group.count, *(group.xp.empty((), group.wide) for _ in range(2))),
        )
        return b1, b2, *timed, decay

    def _update(
        self, group: Group, slots: Slots, w: Any, g: Any, factors: Sequence[Any]
    ) -> Any:
        mu, nu = slots["mu"], slots["nu"]
        b1, b2, factor, epsilon, _ = factors
        mu *= b1
        mu += g
        nu *= b2
        g *= g
        nu += g
        group.xp.sqrt(nu, g)
        g += epsilon
        group.xp.divide(mu, g, g)
        g *= factor
        return g


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

    w -= lr weight_decay w, beside Adam's step.

    >>> w = Variable([1.0])
    >>> AdamW(0.5, weight_decay=0.5).apply_gradients([(tensor([0.0]), w)])
    >>> w.tolist()
    [0.75]
    """

    _scaled = True

    def __init__(
        self,
        learning_rate: float = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon)
        self.weight_decay = weight_decay

    def _factors(self, step: int, rate: float) -> tuple[float, ...]:
        return *super()._factors(step, rate)[:-1], rate * self.weight_decay

    def _settings(self, rate: float) -> tuple[float, ...]:
        return *super()._settings(rate)[:-1], rate * self.weight_decay

    def _update(
        self, group: Group, slots: Slots, w: Any, g: Any, factors: Sequence[Any]
    ) -> Any:
        update = super()._update(group, slots, w, g, factors)
        update += group.scaled(w, factors[-1])
        return update
