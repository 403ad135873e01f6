"""What a tape records of a captured function on a GPU.

The function is a CUDA graph there, whose values are gone when it has run.  So its
gradient is a graph too, of the function run again on the same arguments and of the
sweep of that: nothing is kept between the two but the arguments and the Variables'
values, and many calls may wait for their gradients.  The bits are those of the eager
gradient.

What draws random numbers or assigns Variables cannot be run again, and runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np

from . import nest
from .device import Device
from .errors import CaptureError
from .graphs import Graphs, Rehearsal
from .ops.elementwise import identity
from .ops.random import Generator
from .pullback import again, is_array, is_made, recorder, watchers
from .tape import Tape, accessed, active, record_call, recorders, recording_on
from .tensor import INEXACT, Tensor, Variable, wrap
from .traced import RunsAsItIs, name_of, warn_eager

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class First(Rehearsal):
    """The first call, as it is: which Variables are read, and whether it is pure."""

    def __init__(self, home: Device):
        super().__init__(home)
        self.variables: dict[int, Variable] = {}
        self.pure = True  # whether another run gives the same, and changes nothing

    def read(self, tensor: Tensor) -> Any:
        if id(tensor) in self.known:
            self.variables[id(tensor)] = self.known[id(tensor)]
        return super().read(tensor)

    def write(self, tensor: Tensor, data: Any) -> None:
        self.pure = self.pure and id(tensor) not in self.known
        super().write(tensor, data)

    def counted(self, generator: Generator, key: int, offset: int) -> int:
        self.pure = False
        return super().counted(generator, key, offset)


class GraphPullbacks:
    """What calls a function on GPUs under tapes."""

    def __init__(
        self,
        function: Callable[..., Any],
        forward: Graphs,
        falls_back: bool,
        tracing: AbstractContextManager[Any],
    ):
        self.function = function
        self.name = f"the gradient of {name_of(function)}"
        self._forward = forward
        self._falls_back = falls_back
        self._tracing = tracing
        # by device and signature: the Variables read; None for what runs as it is
        self._read: dict[Any, list[Variable] | None] = {}
        self._gradients: dict[Any, Graphs] = {}

    def __call__(
        self,
        home: Device,
        signature: Any,
        tapes: tuple[Tape, ...],
        leaves: Sequence[Any],
        arguments: Arguments,
    ) -> Any:
        """Run the function under tapes; ``leaves`` are the arrays of its arguments."""
        args, kwargs = arguments
        key = home, signature
        if key not in self._read:
            return self._first(key, args, kwargs)
        variables = self._read[key]
        if variables is None:
            return self.function(*args, **kwargs)
        if np.ndarray in map(type, leaves):  # whose owner may write into it
            arguments = nest.map_structure(_kept, arguments)
            leaves = [x for x in nest.flatten(arguments) if is_array(x)]
        arrays = [x if type(x) is np.ndarray else x._data for x in leaves]
        nodes = [getattr(x, "_node", None) for x in leaves]
        found = [watchers(tapes, node) for node in nodes]
        of_variables = [watchers(tapes, v._node) for v in variables]
        try:
            recorder([*found, *of_variables])
        except RunsAsItIs:
            return self.function(*args, **kwargs)
        for variable in variables:
            accessed(variable._node, tapes)
        held = [variable._data for variable in variables]
        with recording_on(()):
            result = _apart(
                self._forward(home, signature, arrays, *arguments), arguments
            )
        watched = tuple([i for i, its in enumerate(found) if its])
        sources = [v for v, its in zip(variables, of_variables, strict=True) if its]
        made = [y for y in nest.flatten(result) if is_made(y)]
        outputs = [i for i, y in enumerate(made) if y.dtype.kind in INEXACT]
        call = Call(self, key, arguments, arrays, watched, sources, outputs)
        call.values = list(zip(variables, held, strict=True))
        inputs = [*[leaves[i] for i in watched], *sources]
        record_call(call, [made[i] for i in outputs], inputs, ())
        return result

    def _first(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        home, _ = key
        run = First(home)
        try:
            with self._tracing:
                result = run(self.function, args, kwargs)
        except CaptureError as error:
            if not self._falls_back:
                raise
            warn_eager(self.function, error)
            self._keep(key, None)
            return self.function(*args, **kwargs)
        self._keep(key, list(run.variables.values()) if run.pure else None)
        return result

    def _keep(self, key: Any, variables: list[Variable] | None) -> None:
        if len(self._read) >= Graphs.MOST:
            oldest = next(iter(self._read))
            del self._read[oldest]
            for other in [x for x in self._gradients if x[0] == oldest]:
                del self._gradients[other]
        self._read[key] = variables

    def apart(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives, where no result is an argument itself."""
        return _apart(self.function(*args, **kwargs), (args, kwargs))

    def gradients(self, call: Call, used: tuple[int, ...]) -> Graphs:
        """The graphs of the gradient of some outputs of such a call."""
        which = call.key, call.watched, tuple(map(id, call.sources)), used
        graphs = self._gradients.get(which)
        if graphs is None:
            outputs = [call.outputs[i] for i in used]
            gradient = partial(again, self.apart, call.watched, call.sources, outputs)
            gradient.__name__ = self.name  # type: ignore[attr-defined]
            graphs = Graphs(gradient, self._falls_back, self._tracing)
            self._gradients[which] = graphs
        return graphs


def _apart(result: Any, arguments: Arguments) -> Any:
    """A result, with copies of what are arguments, as a replay returns it."""
    given = set(map(id, nest.flatten(arguments)))

    def leaf(y: Any) -> Any:
        return identity(y) if id(y) in given and is_made(y) else y

    return nest.map_structure(leaf, result)


def _kept(x: Any) -> Any:
    return x.copy() if type(x) is np.ndarray else x


class Call:
    """One call of a captured function, as the op of a tape's entry."""

    __slots__ = (
        *("_pullbacks", "arguments", "arrays", "key", "name", "outputs"),
        *("sources", "values", "watched"),
    )
    form = "call"
    plain = 0

    def __init__(
        self,
        pullbacks: GraphPullbacks,
        key: Any,
        arguments: Arguments,
        arrays: Sequence[Any],
        watched: tuple[int, ...],
        sources: list[Variable],
        outputs: list[int],
    ):
        self.name = pullbacks.name
        self._pullbacks = pullbacks
        self.key = key
        self.arguments = arguments
        self.arrays = arrays  # of the arguments
        self.watched = watched  # which of those arrays
        self.sources = sources  # the Variables that are watched
        self.outputs = outputs  # the places of results that have a gradient
        self.values: list[tuple[Variable, Any]] = []  # what was read of Variables

    def backward(
        self, saved: Sequence[Any], dys: Sequence[Any], lift: bool
    ) -> Sequence[Any]:
        """The gradients of the inputs; None among ``dys`` for outputs not used.

        On buffers, or with ``lift`` on Tensors.
        """
        used = tuple([i for i, dy in enumerate(dys) if dy is not None])
        seeds = [dys[i] if lift else wrap(dys[i]) for i in used]
        pullbacks = self._pullbacks
        with self._values_of_then():
            given = *seeds, *nest.flatten(self.arguments), *self.sources
            nodes = [x._node for x in given if isinstance(x, Tensor)]
            if lift and recorders(active(), nodes):  # the function runs again as it is
                outputs = [self.outputs[i] for i in used]
                return again(
                    pullbacks.apart,
                    self.watched,
                    self.sources,
                    outputs,
                    self.arguments,
                    seeds,
                )
            home, signature = self.key
            inputs = [*self.arrays, *[x._data for x in seeds]]
            with recording_on(()):
                graphs = pullbacks.gradients(self, used)
                grads = graphs(home, signature, inputs, (self.arguments, seeds), {})
        return [g if g is None or lift else g._data for g in grads]

    @contextmanager
    def _values_of_then(self) -> Any:
        """Give the Variables what was read of them, where they have changed since."""
        changed = [(v, v._data, then) for v, then in self.values if v._data is not then]
        try:
            for variable, _, then in changed:
                variable._data = then
            yield
        finally:
            for variable, now, _ in changed:
                variable._data = now
