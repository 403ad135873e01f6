"""How an op is declared: one row with its forward and its derivative.

Four forms, each one call; all make an ``Op`` in the registry ``OPS`` and return the
function that users call:

    elementwise  diagonal Jacobian: one rule per argument is its VJP and its JVP
    linear       the JVP is the op itself; the rule is the transpose
    bilinear     linear in each of two arguments; two transposes
    primitive    a decorated forward function with ``@f.vjp`` beneath it

A rule is ordinary code over op names and operators, and it has several readers.  The
first-order sweep runs it on bare buffers, where no tape listens and wrapping would be
waste; a sweep under an outer tape runs it on Tensors, so that its own ops are recorded.
It is the same code object both times: for bare buffers ``lowered`` rebinds the op names
in it to the functions that serve that type of buffer, down to ``numpy.exp`` itself.

What a rule needs is read from the names of its parameters, in this order:

    g                 the cotangent (or tangent)
    x | a, b | ...    an input, by its name in the forward function: its buffer is saved
    y                 the output: its buffer is saved
    like              the input's shape, as ``like.shape``: nothing is saved; in a joint
                      rule one per input, None for an input that needs no gradient
    axis, shape, ...  a parameter of the op

A rule that names nothing saves nothing.  Rules must not branch on values (use
``where``), must not contain NumPy scalars (they widen float32; use Python floats), and
must not multiply by masks (0 * inf is nan; select with ``where``).
"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from types import CodeType, FunctionType
from typing import Any, ClassVar, Protocol

import numpy as np

from . import traced
from .device import BUFFERS, NUMPY, Backend, backend_of
from .errors import DTypeError, NoRuleError, ShapeError
from .operands import (
    OPS,
    SCALARS,
    common_dtype,
    explained,
    narrowed,
    operand,
    operands,
    promoted,
    widened,
)
from .tape import Node, active, caller, item, record, recorders
from .tensor import INEXACT, TENSORS, Tensor, new, wrap

Rule = Callable[..., Any]
Adds = tuple[Callable[..., bool], ...]  # see Op.adds
JOINT, ADDING = 3, 4  # see Op.plain


class Op:
    """One row of the op table."""

    __slots__ = (
        "adds",
        "arity",
        "arrays",
        "composed",
        "composed_rules",
        "domain",
        "entry",
        "form",
        "forward",
        "fused",
        "fused_rule",
        "impl",
        "joint",
        "keeps",
        "kernels",
        "lowered",
        "name",
        "numpy",
        "params",
        "pick_both",
        "pick_first",
        "pick_second",
        "picks",
        "plain",
        "reads",
        "recorded",
        "rules",
        "several",
        "slope",
    )

    def __init__(
        self,
        name: str,
        form: str,
        forward: Callable[..., Any] | None,
        arrays: tuple[str, ...],
        params: tuple[str, ...] = (),
        domain: Any = None,
        numpy: Callable[..., Any] | None = None,
        several: bool = False,
    ):
        self.name = name
        self.form = form
        self.forward = forward  # None: the array module's function of the same name
        self.numpy = numpy  # a faster forward for NumPy's buffers, without xp
        self.arrays = arrays  # one name, ending in "*", for a list of arrays
        self.params = params
        self.domain = domain  # an interval, or one per array, for tests to draw from
        self.arity = len(arrays)
        # The names of its kernels, and how those of the op and those of its rule are
        # called; see ``fuse``.
        self.kernels = (name,)
        self.fused: Callable[..., Any] | None = None
        self.fused_rule: Callable[..., Any] | None = None
        self.impl = ByBuffer(self._implementation)
        self.lowered = ByBuffer(self._lowered_rules)
        # The same without kernels, for the dtypes that those do not serve.
        self.composed = ByBuffer(lambda backend: self._implementation(backend.composed))
        self.composed_rules = ByBuffer(
            lambda backend: self._lowered_rules(backend.composed)
        )
        # Until a rule is declared, the op records where it was called, and raises when
        # a sweep arrives; ops whose derivative is zero are not recorded at all.
        self.recorded = form != "constant"
        self.rules: tuple[Rule | None, ...] = (_no_rule(name),) * self.arity
        self.reads: tuple[tuple[str, ...], ...] = (("place",),) * self.arity
        self.picks: tuple[Callable[..., Any] | None, ...] = (_pick_place,) * self.arity
        # of two arrays, as both are known to tapes or one is
        self.pick_both = self.pick_first = self.pick_second = _pick_place
        self.joint = False
        self.keeps = params[-1:] == ("kept",)
        self.several = several  # returns a tuple of arrays
        # what records with a slope, once asked for: see ``Sloped``
        self.slope: Any = "unknown"
        # 1 or 2 where the sweep may call one or two rules by position, ADDING for two
        # that have ``adds`` on a GPU, JOINT where one answers for all; 0 where more is
        # to be done
        self.plain = 0
        # One adds(total, g, ...) -> bool per rule: add the rule's value to a buffer of
        # the sweep's own, which may take far less than making it; False where that
        # cannot be done
        self.adds: Adds | None = None
        self.entry: Callable[..., Any] = _entry(self)
        if name in OPS:
            raise ValueError(f"op {name!r} is declared twice")
        OPS[name] = self

    def set_rules(self, rules: Sequence[Rule | None], joint: bool = False) -> None:
        """Attach one rule per argument, or one joint rule that answers for all."""
        self.rules = tuple(rules)
        self.joint = joint
        if self.several or (self.arity > 2 and not joint):
            self.plain = 0
        else:
            self.plain = JOINT if joint else self.arity
        reads = [() if rule is None else _reads(self, rule) for rule in rules]
        self.reads = tuple(reads)
        self.picks = tuple(
            None if not names else _picker(self.arrays, self.params, names)
            for names in reads
        )
        if self.arity == 2 and not self.params and not joint:
            first, second = reads
            self.pick_both = _picker_of_two(self.arrays, first, second)
            self.pick_first = _picker_of_two(self.arrays, first, ())
            self.pick_second = _picker_of_two(self.arrays, (), second)

    def _implementation(self, backend: Backend) -> Callable[..., Any]:
        found = self.bare(backend)
        return found if checked is None else checked(self, found)

    def bare(self, backend: Backend) -> Callable[..., Any]:
        """The implementation without a check around it."""
        found: Callable[..., Any] = backend.adopted(self.name, self._plain(backend))
        return found

    def _plain(self, backend: Backend) -> Callable[..., Any]:
        if self.fused is not None:
            if kernels := self._kernels(backend):
                fused = partial(self.fused, *kernels)
                return _served(fused, self.bare(backend.composed))
        elif self.form == "elementwise":
            if (own := kernel(self.name, backend)) is not None:
                return own
        if self.numpy is not None and backend.xp is np:
            return self.numpy
        if self.forward is None:
            found: Callable[..., Any] = getattr(backend.xp, self.name)
            return found
        return partial(self.forward, backend.xp)

    def _kernels(self, backend: Backend, suffix: str = "") -> Sequence[Any]:
        """What ``fuse`` named, each or None; nothing if a backend has none of them."""
        found = [kernel(name + suffix, backend) for name in self.kernels]
        return found if any(x is not None for x in found) else ()

    def _lowered_rules(self, backend: Backend) -> tuple[Rule | None, ...]:
        rules = tuple(
            rule and (self._kernel_of_rule(i, backend) or lowered(rule, backend))
            for i, rule in enumerate(self.rules)
        )
        if not backend.notes:
            return rules
        return tuple(
            rule and _on_adopted(rule, backend, [n in self.arrays for n in names])
            for rule, names in zip(rules, self.reads, strict=True)
        )

    def _kernel_of_rule(self, i: int, backend: Backend) -> Rule | None:
        if self.fused_rule is not None:
            if not (kernels := self._kernels(backend, "_vjp")):
                return None
            rule: Any = self.rules[i]
            call = partial(self.fused_rule, *kernels)
            if backend.notes:
                call = partial(_noted_whole, f"{self.name}_vjp", call)
            return _served(call, lowered(rule, backend))
        if self.form != "elementwise":
            return None
        found = kernel(f"{self.name}_d{self.arrays[i]}", backend)
        if found is None or backend.driver is None:  # NumPy's serve every layout
            return found
        rule = self.rules[i]
        return _served(found, lowered(rule, backend.composed))

    def again(
        self, error: Exception, inputs: Sequence[Any], params: tuple[Any, ...] = ()
    ) -> Any:
        """After an error: the value by another way, for a dtype that was not served.

        Or that of a constant beside a buffer that notes what is done with it.  Else the
        error is raised, restated with op, operands and remedy.
        """
        arrays = [x if type(x) in SCALARS else x._data for x in inputs]
        for kind in map(type, arrays[1:]):
            noting = kind in BUFFERS and BUFFERS[kind].notes
            if noting and type(arrays[0]) is not kind:
                return self.impl[kind](*arrays, *params)
        if isinstance(error, TypeError):
            kind = next(type(x) for x in arrays if type(x) not in SCALARS)
            plain = self.form == "elementwise"
            ways = []
            if (plain or self.fused is not None) and BUFFERS[kind].fused:
                ways.append((self.composed[kind], arrays))
            whole = all(type(x) in SCALARS or x.dtype.kind in "biu" for x in arrays)
            if plain and whole and self.forward is not None:  # bools have no negative
                ways.append((self.impl[kind], widened(arrays)))
            for way, given in ways:
                try:
                    return way(*given, *params)
                except Exception as again:
                    error = again
        raise explained(self, error, inputs, params) from error

    def __repr__(self) -> str:
        return f"Op({self.name!r}, {self.form})"


class Sloped:
    """How an elementwise op of one array is recorded with its slope, f'(x).

    A kernel that makes both takes little longer than one that makes the value, and the
    sweep is then one product.  The rule of ``op``, a twin of the op, reads what it read
    and the slope: as ``kept``, a shortcut for bare buffers.
    """

    __slots__ = ("kernel", "op")
    # Elements from which it pays, and the dtypes of which a slope is not rounded.
    LEAST, DTYPES = 512, "fd"

    def __init__(self, op: Op, both: Callable[..., Any], times: Callable[..., Any]):
        self.kernel = both
        self.op = twin = copy(op)
        rule, names = op.rules[0], op.reads[0]
        assert rule is not None  # it has a slope
        twin.reads = ((*names, "kept"),)
        twin.rules = (lambda g, x, kept: rule(g, x),)

        def lower(backend: Backend) -> tuple[Rule]:
            if backend is NUMPY:
                return (lambda g, x, kept: times(g, kept),)
            own = op._lowered_rules(backend)[0]
            assert own is not None
            return (lambda g, x, kept: own(g, x),)

        twin.lowered = twin.composed_rules = ByBuffer(lower)

    @staticmethod
    def of(op: Op) -> Sloped | None:
        """That of an op which has such a kernel on the CPU."""
        both = kernel(f"{op.name}_with_slope", NUMPY)
        times = None if both is None else kernel("times_slope", NUMPY)
        return None if both is None or times is None else Sloped(op, both, times)


def _with_slope(op: Op, x: Any, node: Node) -> Tensor | None:
    """The op on an array of NumPy's, recorded with its slope; None where it is not."""
    data = x._data
    if type(data) is not np.ndarray or data.dtype.char not in Sloped.DTYPES:
        return None
    tapes = active()
    # several tapes differentiate again, which takes the rule
    if len(tapes) != 1 or checked is not None:
        return None
    if op.slope == "unknown":
        op.slope = Sloped.of(op)
    if op.slope is None:
        return None
    if node.tapes is not tapes:
        tapes = recorders(tapes, (node,))
        if not tapes:
            return None
    z, slope = op.slope.kernel(data)
    out = wrap(z)
    read = data if op.reads[0] == ("x",) else z
    saved = read, slope
    out._node = record(tapes, op.slope.op, (node,), saved, z.shape, z.dtype)
    return out


class ByBuffer(dict[type, Any]):
    """Something for each type of buffer, made by ``make(backend)`` when first asked."""

    made: ClassVar[list[ByBuffer]] = []  # all there are, for forget()

    def __init__(self, make: Callable[[Backend], Any]):
        super().__init__()
        self.make = make
        ByBuffer.made.append(self)

    def __missing__(self, buffer_type: type) -> Any:
        backend = BUFFERS.get(buffer_type)
        if backend is None:
            if not issubclass(buffer_type, (np.generic, *SCALARS)):
                raise DTypeError(f"no device serves a {buffer_type.__name__}")
            backend = NUMPY  # 0-d results of NumPy are scalars
        self[buffer_type] = found = self.make(backend)
        return found


def kernel(name: str, backend: Backend) -> Callable[..., Any] | None:
    """The kernel of that name for a backend's buffers, if it has one."""
    if not backend.fused:
        return None
    # imported where first needed: 10 ms that a program without such ops saves
    if backend.driver is not None:
        from . import cuda_kernels

        return cuda_kernels.find(name, backend.driver)
    if backend.kind == "cpu":
        from . import direct

        return direct.find(name)
    return None


def begin(name: str) -> None:
    """Have a kernel of the CPU's compiled, if need be, while Python goes on."""
    from . import host_kernels

    host_kernels.begin_named(name)


# debug() sets this to a function (op, implementation) -> implementation
checked: Callable[[Op, Callable[..., Any]], Callable[..., Any]] | None = None


def has_nan(value: Any) -> str:
    """'nan' or 'inf' when a number, a tensor or a list of them holds one, else ''."""
    if isinstance(value, (list, tuple)):
        found = {has_nan(item) for item in value}
        return "nan" if "nan" in found else "inf" if "inf" in found else ""
    if isinstance(value, (float, complex)):
        return "nan" if cmath.isnan(value) else "inf" if cmath.isinf(value) else ""
    value = getattr(value, "_data", value)
    if type(value) not in BUFFERS and not hasattr(value, "dtype"):
        return ""
    if value.dtype.kind not in INEXACT:
        return ""
    xp = backend_of(value).xp
    if bool(xp.isnan(value).any()):
        return "nan"
    return "inf" if bool(xp.isinf(value).any()) else ""


def newly_nan(result: Any, given: Any) -> str:
    """'nan' or 'inf' when a result holds one, and what it was made of did not."""
    found = has_nan(result)
    return "" if not found or has_nan(given) in ("nan", found) else found


def forget() -> None:
    """Find every implementation anew: ``checked`` has changed."""
    for table in ByBuffer.made:
        table.clear()
    for op in OPS.values():
        op.slope = "unknown"
    _LOWERED.clear()


# --------------------------------------------------------------------- the four forms


def elementwise(
    name: str,
    d: Rule | tuple[Rule | None, ...],
    forward: Callable[..., Any] | None = None,
    domain: Any = None,
    doc: str = "",
    arrays: tuple[str, ...] = (),
    numpy: Callable[..., Any] | None = None,
) -> Any:
    """Declare an op whose Jacobian is diagonal.

    ``d`` is one rule, or one per argument, None for an argument that has no gradient.
    ``forward(xp, ...)`` defaults to the array module's function of that name;
    ``numpy(...)``, if given, is a faster one for NumPy's buffers.  ``domain`` is an
    interval in which the op is real and smooth, or one for each array, if it is not
    finite on the whole line: the tests draw from it.
    """
    count = len(d) if isinstance(d, tuple) else 1
    names = _array_names(forward) if forward else ("x",) if count == 1 else ("a", "b")
    names = arrays or names
    op = Op(name, "elementwise", forward, names, (), domain, numpy)
    op.set_rules(d if isinstance(d, tuple) else (d,))
    return _published(op, op.entry, doc)


def constant(
    name: str, arity: int = 2, forward: Callable[..., Any] | None = None, doc: str = ""
) -> Any:
    """Declare an elementwise op with derivative zero: comparisons, logic, rounding."""
    names = ("x",) if arity == 1 else ("a", "b")
    op = Op(name, "constant", forward, names)
    return _published(op, op.entry, doc)


def linear(
    name: str,
    transpose: Rule,
    forward: Callable[..., Any],
    numpy: Callable[..., Any] | None = None,
    adds: Adds | None = None,
) -> Any:
    """Declare an op that is linear in its one array argument; its JVP is itself.

    ``adds``, a tuple, has for the transpose, which always makes a new buffer then, an
    ``add(total, g, ...)``: with what the transpose reads, it adds what that would
    return to a buffer, or returns False.
    """
    arrays, params = _signature(forward)
    op = Op(name, "linear", forward, arrays, params, numpy=numpy)
    op.set_rules((transpose,), joint=arrays[0].endswith("*"))
    op.adds = adds
    return _published(op, op.entry, "")


def bilinear(
    name: str,
    transpose: tuple[Rule, Rule],
    forward: Callable[..., Any] | None = None,
    doc: str = "",
    numpy: Callable[..., Any] | None = None,
    adds: Adds | None = None,
) -> Any:
    """Declare an op that is linear in each of its two array arguments.

    ``adds`` is as in ``linear``, with one for each transpose.  It is asked only on a
    GPU, where a product can add.
    """
    arrays, params = _signature(forward) if forward else (("a", "b"), ())
    op = Op(name, "bilinear", forward, arrays, params, numpy=numpy)
    op.set_rules(transpose)
    if adds is not None:
        op.adds, op.plain = adds, ADDING
    return _published(op, op.entry, doc)


class Primitive(Protocol):
    """What ``@primitive`` returns: the op's entry, and ``vjp`` to declare its rule."""

    op: Op

    def __call__(self, *args: Any) -> Any: ...

    def vjp(self, rule: Rule) -> Rule:
        """Declare the rule: it returns the gradient, or one per array argument."""


def primitive(
    arrays: int = 1,
    constant: bool = False,
    keeps: bool = False,
    several: bool = False,
    numpy: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Primitive]:
    """Declare an op by its forward function ``f(xp, *arrays, *params)``.

    ``constant`` says that its derivative is zero wherever it exists.  With ``keeps``
    the function returns (output, kept): something it computed on the way and that rules
    may name as ``kept``.  It is a shortcut, never the only way from the inputs: under
    an outer tape it is a constant.  With ``several`` it returns a tuple of arrays; in
    its rule ``g`` and ``y`` are tuples of as many, ``g`` with zeros for unused outputs.
    """

    def declare(forward: Callable[..., Any]) -> Primitive:
        names, params = _signature(forward, arrays)
        if keeps:
            params = (*params, "kept")
        form = "constant" if constant else "primitive"
        name = forward.__name__.strip("_")
        op = Op(name, form, forward, names, params, numpy=numpy, several=several)
        entry: Any = _published(op, op.entry, forward.__doc__ or "")

        def vjp(rule: Rule) -> Rule:
            op.set_rules((rule,), joint=arrays > 1 or several)
            return rule

        entry.vjp = vjp
        return entry  # type: ignore[no-any-return]

    return declare


def fuse(
    entry: Any,
    forward: Callable[..., Any] | None = None,
    rule: Callable[..., Any] | None = None,
    names: tuple[str, ...] = (),
) -> None:
    """Say how the kernels NAME and NAME_vjp are called in place of an op and its rule.

    ``forward(kernel, *arrays, *params)`` and ``rule(kernel, g, ...)``, with what the
    rule reads, return what the op and the rule do, or NotImplemented where the kernel
    does not serve these parameters.  Elementwise ops need none: their kernels take what
    they take.  NAME is the op's own unless ``names`` are given: a kernel of each is
    passed, or None where a backend has only others of them.
    """
    entry.op.fused, entry.op.fused_rule = forward, rule
    entry.op.kernels = names or (entry.op.name,)


def flat(*arrays: Any) -> list[Any]:
    """Arrays as kernels on whole ones take them: along one axis, without gaps."""
    return [x.ravel() for x in arrays]


def on_gpu(x: Any) -> bool:
    """Whether kernels on a buffer are launched."""
    return backend_of(x).driver is not None


def beside(x: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """A new buffer on the device of another; of its dtype, unless one is given."""
    return backend_of(x).xp.empty(shape, x.dtype if dtype is None else dtype)


# --------------------------------------------------------- entries, by number of arrays


def _entry(op: Op) -> Callable[..., Any]:
    if op.several:
        return _entry_several(op)
    if op.arrays[0].endswith("*"):
        return _entry_list(op)
    if op.arity == 1:
        return _entry_params(op) if op.params else _entry_one(op)
    if op.arity == 2 and not op.params and op.form != "primitive":
        return _entry_two(op)
    return _entry_three(op) if op.arity == 3 else _entry_many(op)


# The entries for one and for two arrays run for nearly every op of every program, at
# 10-20 ns a bytecode: operands are known as Tensors by having a node, and nothing is
# done that most calls do not need.


def _entry_one(op: Op) -> Callable[..., Tensor]:
    impl = op.impl
    elementwise = op.form == "elementwise"
    narrows = op.form != "linear"  # a cast to float64 means it
    recorded = op.recorded

    def entry(x: Any) -> Tensor:
        try:
            node = x._node
        except AttributeError:
            x = operand(x, op.name)
            node = x._node
        data = x._data
        if node is not None and elementwise and data.size >= Sloped.LEAST:
            sloped = op.slope and _with_slope(op, x, node)
            if sloped is not None:
                return sloped
        try:
            z = impl[type(data)](data)
        except Exception as error:
            z = op.again(error, (x,))
        dtype = z.dtype
        if narrows and dtype is not data.dtype:
            z = narrowed(z, impl, data)
            dtype = z.dtype
        shape = z.shape
        if not shape and type(z) not in BUFFERS:
            z = backend_of(z).asarray(z)
        out: Tensor = new(Tensor)
        out._data = z
        out._node = None
        if node is not None and recorded:
            tapes = active()
            if tapes:
                if node.tapes is not tapes:
                    tapes = recorders(tapes, (node,))
                if tapes:
                    pick = op.picks[0]
                    saved = _NOTHING if pick is None else pick(data, z, node, ())
                    out._node = record(tapes, op, (node,), saved, shape, dtype)
        return out

    return entry


def _entry_two(op: Op) -> Callable[..., Tensor]:
    impl = op.impl
    recorded = op.recorded

    def entry(a: Any, b: Any) -> Tensor:
        try:
            node_a = a._node
            node_b = b._node
        except AttributeError:
            a, b = operands(op, a, b)
            x, node_a = (a, None) if type(a) in SCALARS else (a._data, a._node)
            y, node_b = (b, None) if type(b) in SCALARS else (b._data, b._node)
            tensor = y if type(a) in SCALARS else x
            kind = type(tensor)
            dtype = tensor.dtype
        else:
            x = a._data
            y = b._data
            dtype = x.dtype
            if dtype is not y.dtype:
                a, b = promoted(a, b, op.name)
                x, y = a._data, b._data
                node_a, node_b = a._node, b._node
                dtype = x.dtype
            kind = type(x)
        try:
            z = impl[kind](x, y)
        except Exception as error:
            z = op.again(error, (a, b))
        if z.dtype is not dtype:
            z = narrowed(z, impl, x, y)
            dtype = z.dtype
        shape = z.shape
        if not shape and type(z) not in BUFFERS:
            z = backend_of(z).asarray(z)
        out: Tensor = new(Tensor)
        out._data = z
        out._node = None
        if node_b is not None or node_a is not None:
            tapes = active()
            if tapes and recorded:
                if node_b is None:
                    pick = op.pick_first
                    known = node_a.tapes is tapes
                elif node_a is None:
                    pick = op.pick_second
                    known = node_b.tapes is tapes
                else:
                    pick = op.pick_both
                    known = node_a.tapes is tapes is node_b.tapes
                nodes = node_a, node_b
                if not known:
                    tapes = recorders(tapes, nodes)
                if tapes:
                    saved = pick(x, y, z, nodes)
                    out._node = record(tapes, op, nodes, saved, shape, dtype)
        return out

    return entry


def _entry_params(op: Op) -> Callable[..., Tensor]:
    """One array with parameters: reductions, shapes, indexing."""
    impl = op.impl
    narrows = op.form != "linear"  # a cast to float64 means it

    def entry(x: Any, *params: Any) -> Tensor:
        if type(x) not in TENSORS:
            x = operand(x, op.name)
        data = x._data
        try:
            z = impl[type(data)](data, *params)
        except Exception as error:
            raise explained(op, error, (x,), params) from error
        if op.keeps:
            z, kept = z
            params = (*params, kept)
        if narrows and z.dtype is not data.dtype:
            z = narrowed(z, None, data)
        out = wrap(z)
        node = x._node
        if node is not None and op.recorded:
            tapes = active()
            if tapes:
                if node.tapes is not tapes:
                    tapes = recorders(tapes, (node,))
                if tapes:
                    pick, z = op.picks[0], out._data
                    saved = _NOTHING if pick is None else pick(data, z, node, params)
                    out._node = record(tapes, op, (node,), saved, z.shape, z.dtype)
        return out

    return entry


def _entry_many(op: Op) -> Callable[..., Tensor]:
    """Three arrays or more, two with parameters, or a joint rule."""
    impl = op.impl
    arity = op.arity

    def entry(*args: Any) -> Tensor:
        inputs: list[Any] = [
            x if type(x) in TENSORS or type(x) in SCALARS else operand(x, op.name)
            for x in args[:arity]
        ]
        params = args[arity:]
        datas = [x if type(x) in SCALARS else x._data for x in inputs]
        for data in datas:
            if type(data) not in SCALARS:
                break
        else:  # numbers alone: one of them must be an array
            inputs[0] = operand(inputs[0], op.name)
            data = datas[0] = inputs[0]._data
        try:
            z = impl[type(data)](*datas, *params)
        except Exception as error:
            z = op.again(error, inputs, params)
        if op.keeps:
            z, kept = z
            params = (*params, kept)
        if z.dtype.char in "fdeD":
            z = narrowed(z, None, *datas)
        out = wrap(z)
        tapes = active()
        if tapes and op.recorded:
            nodes = tuple([None if type(x) in SCALARS else x._node for x in inputs])
            tapes = recorders(tapes, nodes)
            if tapes:
                z = out._data
                saved = _saved(op, datas, z, nodes, params)
                out._node = record(tapes, op, nodes, saved, z.shape, z.dtype)
        return out

    return entry


def _entry_three(op: Op) -> Callable[..., Tensor]:
    """Three arrays: ``_entry_many`` spelled out, for the layers of small networks."""
    impl = op.impl
    with_numbers = _entry_many(op)

    def entry(a: Any, b: Any, c: Any, *params: Any) -> Tensor:
        try:
            nodes = a._node, b._node, c._node
        except AttributeError:
            return with_numbers(a, b, c, *params)
        x_a, x_b, x_c = a._data, b._data, c._data
        try:
            z = impl[type(x_a)](x_a, x_b, x_c, *params)
        except Exception as error:
            z = op.again(error, (a, b, c), params)
        if op.keeps:
            z, kept = z
            params = (*params, kept)
        if z.dtype is not x_a.dtype and z.dtype.char in "fdeD":
            z = narrowed(z, None, x_a, x_b, x_c)
        if not z.shape and type(z) not in BUFFERS:
            z = backend_of(z).asarray(z)
        out: Tensor = new(Tensor)
        out._data = z
        out._node = None
        tapes = active()
        if tapes and op.recorded:
            tapes = recorders(tapes, nodes)
            if tapes:
                if op.joint:
                    pick = op.picks[0]
                    saved = pick and pick(x_a, x_b, x_c, z, nodes, params)
                else:
                    saved = _saved(op, (x_a, x_b, x_c), z, nodes, params)
                saved = saved or _NOTHING
                out._node = record(tapes, op, nodes, saved, z.shape, z.dtype)
        return out

    return entry


def _entry_several(op: Op) -> Callable[..., Any]:
    """Several outputs: one producer on the tape, and an item for each floating one."""
    impl = op.impl
    arity = op.arity

    def entry(*args: Any) -> tuple[Tensor, ...]:
        inputs = [
            x if type(x) in TENSORS else operand(x, op.name) for x in args[:arity]
        ]
        params = args[arity:]
        datas = [x._data for x in inputs]
        try:
            z = impl[type(datas[0])](*datas, *params)
        except Exception as error:
            raise explained(op, error, inputs, params) from error
        outs = tuple([wrap(part) for part in z])
        tapes = active()
        if tapes and op.recorded:
            nodes = tuple([x._node for x in inputs])
            tapes = recorders(tapes, nodes)
            if tapes:
                y = tuple([out._data for out in outs])
                saved = (y, *_saved(op, datas, y, nodes, params))
                producer = record(tapes, op, nodes, saved, y[0].shape, y[0].dtype)
                for i, out in enumerate(outs):
                    if out._data.dtype.kind in INEXACT:
                        out._node = item(tapes, producer, i, len(outs), out._data)
        return outs

    return entry


def _entry_list(op: Op) -> Callable[..., Tensor]:
    """One list of arrays: concatenate, stack."""
    impl = op.impl

    def entry(arrays: Any, *params: Any) -> Tensor:
        inputs = [x if type(x) in TENSORS else operand(x, op.name) for x in arrays]
        if not inputs:
            raise ShapeError(f"{op.name}: expected at least one array, got none")
        inputs = common_dtype(inputs, op.name)
        datas = [x._data for x in inputs]
        try:
            z = impl[type(datas[0])](datas, *params)
        except Exception as error:
            raise explained(op, error, inputs, params) from error
        out = wrap(z)
        tapes = active()
        if tapes:
            nodes = tuple(x._node for x in inputs)
            tapes = recorders(tapes, nodes)
            if tapes:
                shapes = [x._data.shape for x in inputs]
                saved = (shapes, *params)
                z = out._data
                out._node = record(tapes, op, nodes, saved, z.shape, z.dtype)
        return out

    return entry


_NOTHING: tuple[Any, ...] = ()


def _saved(
    op: Op,
    arrays: Sequence[Any],
    y: Any,
    nodes: Sequence[Node | None],
    params: tuple[Any, ...],
) -> tuple[Any, ...]:
    """What the rules of an op with many arrays read: a tuple per rule."""
    if op.joint:
        pick = op.picks[0]
        like = nodes if op.arity > 1 else nodes[0]
        return _NOTHING if pick is None else pick(*arrays, y, like, params)
    return tuple(
        [
            _NOTHING if pick is None or node is None else pick(*arrays, y, node, params)
            for pick, node in zip(op.picks, nodes, strict=True)
        ]
    )


# ----------------------------------------------------------------- reading declarations


def _published(op: Op, entry: Any, doc: str) -> Any:
    entry.__name__ = entry.__qualname__ = op.name
    entry.__module__ = "eagergrad"
    entry.op = op
    entry.__doc__ = (
        doc or f"Apply {op.name} element by element, as numpy.{op.name} does."
    )
    return entry


def _signature(
    forward: Callable[..., Any], count: int = 0
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arrays and parameters of ``forward(xp, ...)``: first a, b or one array."""
    code: CodeType = forward.__code__
    names = code.co_varnames[1 : code.co_argcount]
    if not count:
        count = 2 if names[:2] == ("a", "b") else 1
    if names[0] == "arrays":
        return ("arrays*",), names[1:]
    return names[:count], names[count:]


def _no_rule(name: str) -> Rule:
    def rule(g: Any, place: str) -> Any:
        raise NoRuleError(
            f"{name}: no derivative rule is declared for this op, recorded at {place}; "
            "declare one with eg.custom_gradient, or cut the path with eg.stop_gradient"
        )

    return rule


def _pick_place(*arguments: Any) -> tuple[str]:
    return (caller(),)


def _array_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    code: CodeType = forward.__code__
    return code.co_varnames[1 : code.co_argcount]


def _reads(op: Op, rule: Rule) -> tuple[str, ...]:
    """The parameter names of a rule after ``g``, checked against the op."""
    names = rule.__code__.co_varnames[: rule.__code__.co_argcount]
    known = (*op.arrays, "y", "like", "shapes", *op.params)
    unknown = [name for name in names[1:] if name not in known]
    if names[:1] != ("g",) or unknown:
        raise ValueError(
            f"{op.name}: a rule is called as (g, ...) with names among {known}; "
            f"got {names}"
        )
    return names[1:]


def _picker(
    arrays: tuple[str, ...], params: tuple[str, ...], names: tuple[str, ...]
) -> Callable[..., Any]:
    """A function that collects what a rule reads into the tuple the tape saves."""
    items = "".join(f"p[{params.index(n)}]," if n in params else f"{n}," for n in names)
    return _made(f"lambda {','.join(arrays)}, y, like, p: ({items})".replace("*", ""))


def _picker_of_two(
    arrays: tuple[str, ...], first: tuple[str, ...], second: tuple[str, ...]
) -> Callable[..., Any]:
    """The same for both rules of an op of two arrays, in one call."""
    items = [
        "".join(f"like[{i}]," if name == "like" else f"{name}," for name in names)
        for i, names in enumerate((first, second))
    ]
    return _made(f"lambda {','.join(arrays)}, y, like: (({items[0]}), ({items[1]}))")


def _made(text: str) -> Callable[..., Any]:
    found = _PICKERS.get(text)
    if found is None:
        found = _PICKERS[text] = eval(text)
    return found


_PICKERS: dict[str, Callable[..., Any]] = {}


def lowered(function: Rule, backend: Backend) -> Rule:
    """The same code over bare buffers: op names in it mean the backend's functions.

    Functions of the package that the code calls are lowered too.
    """
    found = _LOWERED.get((function, backend))
    if found is None:
        # NumPy's warnings name the module they come from by this
        names: dict[str, Any] = {"__name__": function.__globals__["__name__"]}
        found = FunctionType(
            function.__code__,
            names,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        found.__kwdefaults__ = function.__kwdefaults__
        _LOWERED[function, backend] = found  # before its names: a rule may call itself
        try:
            for name in _global_names(function.__code__):
                if name in function.__globals__:
                    names[name] = _lowered_value(function.__globals__[name], backend)
        except BaseException:
            del _LOWERED[function, backend]
            raise
    return found


_LOWERED: dict[tuple[Rule, Backend], Rule] = {}


def _lowered_value(value: Any, backend: Backend) -> Any:
    op = getattr(value, "op", None)
    if isinstance(op, Op):
        implementation: Rule = op.bare(backend)
        if op.form == "elementwise" and backend.fused:
            implementation = _served(implementation, op.bare(backend.composed))
        if op.keeps:
            return lambda *args: implementation(*args)[0]
        return implementation
    if isinstance(value, FunctionType) and value.__module__.startswith(_OPS_PACKAGE):
        return lowered(value, backend)
    return value


def _on_adopted(rule: Rule, backend: Backend, arrays: Sequence[bool]) -> Rule:
    """A rule that is given the arrays it reads as buffers of the backend.

    Numbers stay such: as arrays they would widen float32.
    """

    def adopted(x: Any) -> Any:
        return x if type(x) in SCALARS else backend.asarray(x)

    def call(g: Any, *saved: Any) -> Any:
        given = zip(saved, arrays, strict=True)
        return rule(g, *[adopted(x) if own else x for x, own in given])

    return call


def _noted_whole(name: str, rule: Rule, *args: Any) -> Any:
    """A rule that writes into arrays of its own, as one instruction of a trace."""
    trace: Any = traced.current()
    start = len(trace.instructions)
    try:
        return rule(*args)
    except traced.ValueRead:
        del trace.instructions[start:]
        return trace.record(rule, args, {}, name)


def _served(fused: Rule, composed: Rule) -> Rule:
    """A kernel, and the composed op for what it does not serve.

    That is a dtype (TypeError), or what ``fuse`` said by returning NotImplemented.
    """
    if fused is composed:
        return fused

    def call(*args: Any) -> Any:
        try:
            found = fused(*args)
        except TypeError:
            return composed(*args)
        return composed(*args) if found is NotImplemented else found

    return call


_OPS_PACKAGE = __name__.rpartition(".")[0] + ".ops."


def _global_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant_ in code.co_consts:
        if isinstance(constant_, CodeType):
            names |= _global_names(constant_)
    return names


def lifted(node: Node, rule: int) -> list[Any]:
    """What a rule saved, as Tensors that outer tapes know by their nodes."""
    op = node.op
    saved = node.saved if op.joint or op.arity == 1 else node.saved[rule]
    if op.several:
        saved = saved[1:]
    values: list[Any] = []
    for name, value in zip(op.reads[rule], saved, strict=True):
        if op.several and name == "y":
            tapes = tuple([tape for tape in active() if tape.knows(node)])
            value = tuple(
                wrap(part, item(tapes, node, i, len(value), part) if tapes else None)
                for i, part in enumerate(value)
            )
        elif type(value) in BUFFERS:
            if name == "y":
                value = wrap(value, node)
            elif name in op.arrays:
                value = wrap(value, node.inputs[op.arrays.index(name)])
            # a buffer among the parameters (an index array) stays a buffer
        values.append(value)
    return values


__all__ = [
    "OPS",
    "Op",
    "beside",
    "bilinear",
    "constant",
    "elementwise",
    "flat",
    "fuse",
    "kernel",
    "linear",
    "on_gpu",
    "primitive",
]
