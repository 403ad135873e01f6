"""Elementwise rows of the op table as C++ text, printed from their Python rules.

A rule or a forward function is run once on *symbols*: values that answer arithmetic and
the array functions by writing an assignment.  Nothing is parsed: what Python does not
do with a symbol (branch on its value, ask for its shape) is not a formula, and the row
has none.

>>> from eagergrad.primitive import OPS
>>> print(derivative(OPS["tanh"], 0).text)
struct tanh_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = y * y;
    const T t1 = T(1.0) - t0;
    const T t2 = g * t1;
    return t2;
  }
};
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .device import NUMPY, Backend
from .errors import EagergradError
from .primitive import OPS, Op, lowered
from .stages import LONG, SHORT, Line, is_long, stages
from .tensor import INEXACT

# What kernels/functions.h has in a form that compilers vectorise on the host.
VECTORISED = SHORT | LONG
# What it has besides: on the host, formulas with these stay with NumPy.
SCALAR = frozenset("sin cos tan asinh acosh atanh cbrt pow atan2 hypot fmod".split())
# What takes less than a slope that is written and read again.
CHEAP = SHORT | {"exp", "exp_share"}
# What stands for many array calls.
COMPOSITE = frozenset(["log1p_share", "normcdf", "normpdf"])
ARITY = dict.fromkeys("copysign maximum minimum pow atan2 hypot fmod".split(), 2)
# NumPy's names for them, where they differ.
RENAMED = {"absolute": "abs", "power": "pow", "ndtr": "normcdf"} | {
    f"arc{name}": f"a{name}"
    for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")
}


class NotAFormulaError(EagergradError):
    """The function does something with a value that no formula of scalars does."""


@dataclass(frozen=True)
class Formula:
    """One printed function object and what it takes to evaluate it."""

    name: str
    arity: int
    text: str
    steps: int  # array calls it stands for
    vectorised: bool
    calls: int  # of functions that take long


class Trace:
    """The assignments written so far, equal ones once."""

    def __init__(self) -> None:
        self.lines: dict[str, Symbol] = {}
        self.functions: set[str] = set()
        self.calls: set[str] = set()  # of functions that take long

    def assign(self, text: str, kind: str = "T") -> Symbol:
        found = self.lines.get(text)
        if found is None:
            found = self.lines[text] = Symbol(self, f"t{len(self.lines)}", kind)
        return found

    def call(self, name: str, *args: Any) -> Symbol:
        self.functions.add(name)
        text = f"{name}({', '.join(map(number, args))})"
        if name not in CHEAP:
            self.calls.add(text)
        return self.assign(text)


class _DType:
    """What a formula may know of its T: a real floating type wider than 16 bits."""

    kind, itemsize, char = "f", 4, "T"


class Symbol:
    """A scalar of the formula being written: a number (T) or a truth value (bool).

    ``sign`` is 1 where it is known never to be below 0, -1 never above, else 0.
    """

    __slots__ = ("kind", "sign", "text", "trace")
    __array_ufunc__ = None
    dtype = _DType
    shape: tuple[int, ...] = ()

    def __init__(self, trace: Trace, text: str, kind: str = "T"):
        self.trace = trace
        self.text = text
        self.kind = kind
        self.sign = 0

    def __bool__(self) -> bool:
        raise NotAFormulaError(f"a branch on the value of {self.text}")

    __hash__ = object.__hash__

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        return self

    def __neg__(self) -> Symbol:
        found = self.trace.assign(f"-{self.text}")
        found.sign = -self.sign
        return found

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        found = self.trace.call("abs", self)
        found.sign = 1
        return found

    def __invert__(self) -> Symbol:
        return self.trace.assign(f"!{self.text}", "bool")


def _infix(sign: str, kind: str = "T") -> tuple[Callable[..., Any], Callable[..., Any]]:
    def left(self: Symbol, other: Any) -> Symbol:
        return self.trace.assign(f"{self.text} {sign} {number(other)}", kind)

    def right(self: Symbol, other: Any) -> Symbol:
        return self.trace.assign(f"{number(other)} {sign} {self.text}", kind)

    return left, right


for _method, _sign in {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}.items():
    _left, _right = _infix(_sign)
    setattr(Symbol, f"__{_method}__", _left)
    setattr(Symbol, f"__r{_method}__", _right)
for _method, _sign in {"and": "&", "or": "|"}.items():

    def _both(self: Symbol, other: Symbol, sign: str = _sign) -> Symbol:
        return self.trace.assign(f"{self.text} {sign} {other.text}", "bool")

    setattr(Symbol, f"__{_method}__", _both)
for _method, _sign in {
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}.items():
    setattr(Symbol, f"__{_method}__", _infix(_sign, "bool")[0])


def number(value: Any) -> str:
    """A symbol's name, or a Python number as a literal of type T."""
    if isinstance(value, Symbol):  # T(bool) would stop GCC 12 from vectorising
        return value.text if value.kind == "T" else f"({value.text} ? T(1) : T(0))"
    if not isinstance(value, (bool, int, float)):
        raise NotAFormulaError(f"an operand of type {type(value).__name__}")
    value = float(value)
    if math.isnan(value):
        return "T(NAN)"
    if math.isinf(value):
        return "T(INFINITY)" if value > 0 else "-T(INFINITY)"
    return f"T({value!r})"


class Functions:
    """The array module of symbols: NumPy's and SciPy's names, for scalars."""

    @property
    def special(self) -> Functions:
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        plain = RENAMED.get(name, name)
        if plain not in VECTORISED | SCALAR:
            raise NotAFormulaError(f"the function {name}")

        def call(*args: Any) -> Symbol:
            if len(args) != ARITY.get(plain, 1):
                raise NotAFormulaError(f"{name} with {len(args)} arguments")
            return _trace_of(args).call(plain, *args)

        return call

    def absolute(self, x: Any) -> Any:
        return abs(x)

    abs = absolute

    def exp(self, x: Symbol) -> Symbol:
        return x.trace.call("exp_share" if x.sign < 0 else "exp", x)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        if isinstance(condition, bool):
            return a if condition else b
        test = condition.text if condition.kind == "bool" else f"{condition.text} != 0"
        if {type(x) for x in (a, b)} == {bool}:
            raise NotAFormulaError("a choice of truth values")
        trace: Trace = condition.trace
        return trace.assign(f"{test} ? {number(a)} : {number(b)}")

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def subtract(self, a: Any, b: Any) -> Any:
        return a - b

    def multiply(self, a: Any, b: Any) -> Any:
        return a * b

    def divide(self, a: Any, b: Any) -> Any:
        return a / b

    def negative(self, x: Any) -> Any:
        return -x

    def reciprocal(self, x: Any) -> Any:
        return 1.0 / x

    def square(self, x: Any) -> Any:
        return x * x

    def greater(self, a: Any, b: Any) -> Any:
        return a > b

    def less(self, a: Any, b: Any) -> Any:
        return a < b

    def equal(self, a: Any, b: Any) -> Any:
        return a == b

    def isnan(self, x: Symbol) -> Symbol:
        return x.trace.assign(f"{x.text} != {x.text}", "bool")

    def isinf(self, x: Symbol) -> Symbol:
        return x.trace.assign(f"{number(abs(x))} == T(INFINITY)", "bool")

    def isfinite(self, x: Symbol) -> Symbol:
        return x.trace.assign(f"{number(abs(x))} < T(INFINITY)", "bool")

    def clip(self, x: Any, low: Any, high: Any) -> Any:
        return self.minimum(self.maximum(x, low), high)

    def logaddexp(self, a: Any, b: Any) -> Any:
        if isinstance(b, Symbol):  # equal infinities differ by nan
            apart = self.where(a == b, 0.0, -abs(a - b))
        else:
            apart = -abs(a - b if b else a)
        return self.maximum(a, b) + self.log1p_share(self.exp_share(apart))

    def zeros(self, shape: Any, dtype: Any = None) -> float:
        return self._filled(shape, 0.0)

    def ones(self, shape: Any, dtype: Any = None) -> float:
        return self._filled(shape, 1.0)

    def zeros_like(self, x: Any) -> float:
        return 0.0

    def _filled(self, shape: Any, value: float) -> float:
        if shape != ():
            raise NotAFormulaError("an array")
        return value


def _trace_of(args: Iterable[Any]) -> Trace:
    for x in args:
        if isinstance(x, Symbol):
            return x.trace
    raise NotAFormulaError("a function of constants")


class _Symbols(Backend):
    kind = "symbols"
    xp: Any = Functions()
    buffer = Symbol


SYMBOLS = _Symbols()


def printed(name: str, function: Callable[..., Any], names: list[str]) -> Formula:
    """The formula of ``function(*names)``; NotAFormulaError where it has none."""
    trace = Trace()
    try:
        result = function(*[Symbol(trace, n) for n in names])
    except (TypeError, AttributeError, ImportError) as error:
        raise NotAFormulaError(f"{name}: {error}") from error
    unused = [n for n in names if not any(_mentions(text, n) for text in trace.lines)]
    arguments = ", ".join("T" if n in unused else f"T {n}" for n in names)
    lines = _lines(trace)
    body = [
        f"  template <class T> EG_FN T operator()({arguments}) const {{",
        *[line.text for line in lines],
        f"    return {number(result)};",
        "  }",
        *stages(lines, arguments, {"y": number(result)}),
    ]
    return _formula(name, len(names), body, trace)


def _lines(trace: Trace) -> list[Line]:
    return [
        Line(symbol.text, symbol.kind, text, is_long(text))
        for text, symbol in trace.lines.items()
    ]


def _formula(name: str, arity: int, body: list[str], trace: Trace) -> Formula:
    text = "\n".join([f"struct {name} {{", *body, "};"])
    steps = len(trace.lines) + len(trace.functions & COMPOSITE)
    vectorised = trace.functions <= VECTORISED
    return Formula(name, arity, text, steps, vectorised, len(trace.calls))


def _mentions(text: str, name: str) -> bool:
    return (
        name
        in text.replace("(", " ")
        .replace(")", " ")
        .replace(",", " ")
        .replace("-", " ")
        .replace("!", " ")
        .split()
    )


def value(op: Op) -> Formula:
    """The formula of an op's forward function."""
    if _keeps_integers(op):
        raise NotAFormulaError(f"{op.name}: integers stay integers")
    return printed(op.name, op.bare(SYMBOLS), list(op.arrays))


def _keeps_integers(op: Op) -> bool:
    ones = [np.ones(1, int)] * op.arity
    try:
        return op.bare(NUMPY.composed)(*ones).dtype.kind not in INEXACT
    except (TypeError, ImportError):  # takes no integers; needs SciPy
        return False


def derivative(op: Op, i: int) -> Formula:
    """The formula of an op's rule for its argument i: of g and what the rule reads."""
    rule = op.rules[i]
    if rule is None:
        raise NotAFormulaError(f"{op.name}: no rule")
    if "kind" in rule.__code__.co_names:  # a real g may meet a complex x
        raise NotAFormulaError(f"{op.name}: a rule of its own for complex numbers")
    names = ["g", *op.reads[i]]
    return printed(f"{op.name}_d{op.arrays[i]}", lowered(rule, SYMBOLS), names)


def with_slope(op: Op) -> Formula:
    """The value of an op of one array, and the slope that its rule multiplies g by.

    Made where that saves the backward pass a function that the forward pass calls too;
    both have the bits that they have apart.  NotAFormulaError elsewhere.
    """
    rule = op.rules[0]
    if op.arity != 1 or rule is None or op.reads[0] not in (("x",), ("y",)):
        raise NotAFormulaError(f"{op.name}: no slope of one array")
    apart = value(op).calls + derivative(op, 0).calls
    trace = Trace()
    x, g = Symbol(trace, "x"), Symbol(trace, "g")
    y = op.bare(SYMBOLS)(x)
    gradient = lowered(rule, SYMBOLS)(g, x if op.reads[0] == ("x",) else y)
    if len(trace.calls) == apart:
        raise NotAFormulaError(f"{op.name}: its rule calls no function that it calls")
    text = next(text for text, symbol in trace.lines.items() if symbol is gradient)
    product = re.fullmatch(r"g \* (\w+)", text)
    del trace.lines[text]
    if product is None or any(_mentions(text, "g") for text in trace.lines):
        raise NotAFormulaError(f"{op.name}: its rule is no product with a slope")
    name = f"{op.name}_with_slope"
    lines, results = _lines(trace), {"value": number(y), "slope": product[1]}
    body = [
        "  static constexpr int RESULTS = 2;",
        "  template <class T> EG_FN void operator()(T x, T& value, T& slope) const {",
        *[line.text for line in lines],
        *[f"    {result} = {text};" for result, text in results.items()],
        "  }",
        *stages(lines, "T x", results),
    ]
    return _formula(name, 1, body, trace)


def slopes() -> list[Formula]:
    """All there are of ``with_slope`` that are worth running on the host.

    And the product that then stands for the rule.
    """
    found = [printed("times_slope", lambda g, slope: g * slope, ["g", "slope"])]
    for op in OPS.values():
        if op.form == "elementwise":
            try:
                formula = with_slope(op)
            except NotAFormulaError:
                continue
            if formula.vectorised:
                found.append(formula)
    return found


def formulas() -> list[Formula]:
    """All formulas of the registry that stand for more than one array call."""
    found = []
    for op in OPS.values():
        if op.form != "elementwise":
            continue
        rows = [partial(value, op)]
        rows += [partial(derivative, op, i) for i in range(op.arity)]
        for row in rows:
            try:
                formula = row()
            except NotAFormulaError:
                continue
            if formula.steps > 1:
                found.append(formula)
    return found
