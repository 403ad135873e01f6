"""Optimizers: one flat update for all parameters of a dtype and device.

The parameters live side by side in one buffer, of which each Variable holds a view, so
that a step is a handful of array operations however many parameters there are.  A step
never writes into the buffer the Variables hold now, since tapes and snapshots may hold
it too: it writes the other of two buffers and rebinds the Variables to views of that.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .device import NUMPY, backend_of, device_of
from .errors import DTypeError, GradientError, ShapeError
from .tensor import Tensor, Variable

Pairs = Iterable[tuple[Any, Variable]]


class _Group:
    """The parameters of one dtype on one device, flat, with the optimizer's state."""

    def __init__(self, variables: Sequence[Variable], slots: Sequence[str]):
        self.variables = list(variables)
        data = variables[0]._data
        self.xp = backend_of(data).xp
        self.on_cpu = backend_of(data) is NUMPY
        sizes = [v._data.size for v in variables]
        ends = np.cumsum(sizes).tolist()
        self.slices = [slice(e - n, e) for e, n in zip(ends, sizes, strict=True)]
        self.shapes = [v._data.shape for v in variables]
        self.size = ends[-1]
        self.dtype = data.dtype
        # half types keep their state, and do their arithmetic, in float32
        self.state_dtype = np.dtype(np.float32) if data.dtype.itemsize == 2 else data.dtype
        self.flat: Any = self.xp.empty(self.size, self.dtype)
        self.spare: Any = None
        self.views: list[Any] = [None] * len(self.variables)
        self.slots = {name: self.xp.zeros(self.size, self.state_dtype) for name in slots}
        self.gradient = self.xp.empty(self.size, self.state_dtype)
        self.scratch = self.xp.empty(self.size, self.state_dtype)

    def gather(self, gradients: Sequence[Any]) -> None:
        """Collect the gradients, and any parameter that was assigned since."""
        for i, variable in enumerate(self.variables):
            if variable._data is not self.views[i]:
                if self.views[i] is not None:  # somebody may hold a view of this buffer
                    self.flat = self.flat.copy()
                    self.views = [None] * len(self.views)
                    return self.gather(gradients)
                self.flat[self.slices[i]] = variable._data.reshape(-1)
        pieces = [g.reshape(-1) for g in gradients]
        if self.on_cpu:
            np.concatenate(pieces, out=self.gradient, casting="same_kind")
        else:
            self.gradient[...] = self.xp.concatenate(pieces)

    def target(self) -> Any:
        """The buffer for the new parameters: the spare one, if nobody looks at it."""
        spare = self.spare
        # two references: the attribute and this local name, plus getrefcount's own
        if spare is not None and self.on_cpu and sys.getrefcount(spare) == 3:
            return spare
        return self.xp.empty(self.size, self.dtype)

    def rebind(self, flat: Any) -> None:
        """Make ``flat`` the parameters: every Variable becomes a view of it."""
        self.spare, self.flat = self.flat, flat
        for i, variable in enumerate(self.variables):
            view = flat[self.slices[i]].reshape(self.shapes[i])
            self.views[i] = variable._data = view


class Optimizer:
    """What the optimizers share: grouping, checks, the step count.

    A subclass names its state in ``slots`` and writes ``_update``.
    """

    slots: tuple[str, ...] = ()

    def __init__(self, learning_rate: float):
        self.learning_rate = learning_rate
        self.step = 0
        self._groups: list[_Group] = []
        self._key: tuple[int, ...] = ()
        self._places: list[tuple[int, list[int]]] = []

    def apply_gradients(self, pairs: Pairs) -> None:
        """Make one step with (gradient, variable) pairs.

        A pair whose gradient is None is left out: its variable and state stay.  Raises
        ValueError for a gradient of another shape, TypeError for another dtype or for
        something that is no Variable, before anything is changed.
        """
        pairs = [pair for pair in pairs if pair[0] is not None]
        if not pairs:
            raise GradientError(
                f"{type(self).__name__}: no gradient to apply: all of them are None"
            )
        gradients = [_checked(g, v) for g, v in pairs]
        key = tuple([id(v) for _, v in pairs])
        if key != self._key:
            self._regroup([v for _, v in pairs])
            self._key = key
        rate = float(self.learning_rate)
        self.step += 1
        for group, (_, places) in zip(self._groups, self._places, strict=True):
            group.gather([gradients[i] for i in places])
            out = group.target()
            self._update(group, out, rate)
            group.rebind(out)

    def _regroup(self, variables: list[Variable]) -> None:
        """Lay the parameters out anew; the state of those known before is kept."""
        if len({id(v) for v in variables}) != len(variables):
            raise GradientError(
                f"{type(self).__name__}: a variable appears twice; add its gradients"
            )
        state: dict[int, dict[str, Any]] = {}
        for group in self._groups:
            for variable, part in zip(group.variables, group.slices, strict=True):
                state[id(variable)] = {
                    name: values[part] for name, values in group.slots.items()
                }
        kept = {id(v): v for g in self._groups for v in g.variables}
        by_kind: dict[Any, list[int]] = {}
        for i, variable in enumerate(variables):
            kind = (variable.dtype, device_of(variable._data))
            by_kind.setdefault(kind, []).append(i)
        absent = [v for key, v in kept.items() if all(v is not w for w in variables)]
        self._idle.update({id(v): (v, state[id(v)]) for v in absent})
        self._groups, self._places = [], []
        for places in by_kind.values():
            group = _Group([variables[i] for i in places], self.slots)
            for variable, part in zip(group.variables, group.slices, strict=True):
                known = state.get(id(variable))
                if known is None and id(variable) in self._idle:
                    known = self._idle.pop(id(variable))[1]
                for name, values in (known or {}).items():
                    group.slots[name][part] = values
            self._groups.append(group)
            self._places.append((0, places))

    @property
    def _idle(self) -> dict[int, tuple[Variable, dict[str, Any]]]:
        found: dict[int, tuple[Variable, dict[str, Any]]]
        found = self.__dict__.setdefault("_idle_state", {})
        return found

    def _update(self, group: _Group, out: Any, rate: float) -> None:
        raise NotImplementedError


def _checked(gradient: Any, variable: Any) -> Any:
    if not isinstance(variable, Variable):
        raise DTypeError(
            "apply_gradients: expected (gradient, variable) pairs, got a "
            f"{type(variable).__name__} for the variable"
        )
    data = gradient._data if isinstance(gradient, Tensor) else np.asarray(gradient)
    own = variable._data
    if data.shape != own.shape:
        raise ShapeError(
            f"apply_gradients: the gradient has shape {tuple(data.shape)}, its "
            f"variable {variable.name or ''} {own.shape}"
        )
    if data.dtype != own.dtype or own.dtype.kind not in "fV":
        raise DTypeError(
            f"apply_gradients: the gradient is {data.dtype}, its variable "
            f"{variable.name or ''} {own.dtype}; both must be one floating dtype"
        )
    if type(data) is not type(own):
        raise DTypeError(
            f"apply_gradients: the gradient and its variable {variable.name or ''} "
            "are on different devices"
        )
    return data


class SGD(Optimizer):
    """Stochastic gradient descent: w -= lr (g + weight_decay w), with momentum.

    With momentum: v = momentum v + g, w -= lr v.

    >>> w = Variable([1.0])
    >>> SGD(learning_rate=0.5).apply_gradients([(tensor([1.0]), w)])
    >>> w.tolist()
    [0.5]
    """

    def __init__(
        self, learning_rate: float, momentum: float = 0.0, weight_decay: float = 0.0
    ):
        super().__init__(learning_rate)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.slots = ("velocity",) if momentum else ()

    def _update(self, group: _Group, out: Any, rate: float) -> None:
        xp, g, scratch = group.xp, group.gradient, group.scratch
        if self.weight_decay:
            xp.multiply(group.flat, self.weight_decay, out=scratch)
            xp.add(g, scratch, out=g)
        if self.momentum:
            velocity = group.slots["velocity"]
            xp.multiply(velocity, self.momentum, out=velocity)
            xp.add(velocity, g, out=velocity)
            g = velocity
        xp.multiply(g, rate, out=scratch)
        _subtract(group, scratch, out)


class Adam(Optimizer):
    """Adam, by Kingma and Ba (2015), algorithm 1.

    mu = b1 mu + (1 - b1) g;  nu = b2 nu + (1 - b2) g^2;
    w -= lr mu_hat / (sqrt(nu_hat) + epsilon), with mu_hat = mu / (1 - b1^t) and
    nu_hat = nu / (1 - b2^t).

    >>> w = Variable([1.0])
    >>> Adam(learning_rate=0.5).apply_gradients([(tensor([3.0]), w)])
    >>> w.tolist()
    [0.5]
    """

    slots = ("mu", "nu")

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

    def _update(self, group: _Group, out: Any, rate: float) -> None:
        xp, g, scratch = group.xp, group.gradient, group.scratch
        mu, nu = group.slots["mu"], group.slots["nu"]
        xp.multiply(mu, self.beta_1, out=mu)
        xp.multiply(g, 1.0 - self.beta_1, out=scratch)
        xp.add(mu, scratch, out=mu)
        xp.multiply(nu, self.beta_2, out=nu)
        xp.multiply(g, g, out=g)
        xp.multiply(g, 1.0 - self.beta_2, out=g)
        xp.add(nu, g, out=nu)
        # lr mu_hat / (sqrt(nu_hat) + eps), the corrections taken out of the arrays:
        # with c = sqrt(1 - b2^t) it is (lr c / (1 - b1^t)) mu / (sqrt(nu) + c eps)
        correction = math.sqrt(1.0 - self.beta_2**self.step)
        xp.sqrt(nu, out=g)
        xp.add(g, correction * self.epsilon, out=g)
        xp.divide(mu, g, out=scratch)
        xp.multiply(
            scratch, rate * correction / (1.0 - self.beta_1**self.step), out=scratch
        )
        _subtract(group, scratch, out)


def _subtract(group: _Group, update: Any, out: Any) -> None:
    if group.dtype == group.state_dtype:
        group.xp.subtract(group.flat, update, out=out)
    else:
        out[...] = group.flat.astype(group.state_dtype) - update
