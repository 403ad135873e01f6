"""Operators and methods of Tensor: one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import array_api, primitive
from . import linalg as numpy_linalg
from .errors import DTypeError
from .ops import (
    arranging,
    choices,
    creation,
    diagonals,
    einsum,
    elementwise,
    fft,
    gathering,
    indexing,
    joining,
    linalg,
    padding,
    putting,
    quantiles,
    reductions,
    scans,
    shapes,
    sorting,
    statistics,
)
from .tape import accessed, active
from .tensor import Tensor, Variable


def _swapped(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: op(other, self)


def _compared(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """== and != answer False and True for what is no array at all, such as None."""

    def compare(self: Tensor, other: Any) -> Any:
        try:
            return op(self, other)
        except DTypeError:
            return NotImplemented

    return compare


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": elementwise.add,
    "sub": elementwise.subtract,
    "mul": elementwise.multiply,
    "truediv": elementwise.divide,
    "floordiv": elementwise.floor_divide,
    "mod": elementwise.remainder,
    "pow": elementwise.power,
    "matmul": linalg.matmul,
    "and": elementwise.bitwise_and,
    "or": elementwise.bitwise_or,
    "xor": elementwise.bitwise_xor,
    "lshift": elementwise.left_shift,
    "rshift": elementwise.right_shift,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": elementwise.less,
    "le": elementwise.less_equal,
    "gt": elementwise.greater,
    "ge": elementwise.greater_equal,
    "eq": _compared(elementwise.equal),
    "ne": _compared(elementwise.not_equal),
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": elementwise.negative,
    "pos": elementwise.positive,
    "abs": elementwise.absolute,
    "invert": elementwise.invert,
}


def _reshape(self: Tensor, *shape: Any) -> Any:
    """x.reshape((2, 3)) or x.reshape(2, 3), as NumPy's arrays take it."""
    return shapes.reshape(self, shape[0] if len(shape) == 1 else shape)


def _transpose(self: Tensor, *axes: Any) -> Any:
    """x.transpose(), x.transpose((1, 0)) or x.transpose(1, 0)."""
    one = len(axes) == 1 and not isinstance(axes[0], int)
    return shapes.transpose(self, axes[0] if one else axes or None)


METHODS: dict[str, Callable[..., Any]] = {
    "to": elementwise.to,
    "to_device": array_api.to_device,
    "astype": elementwise.astype,
    "conj": elementwise.conj,
    "sum": reductions.sum,
    "mean": reductions.mean,
    "max": reductions.max,
    "min": reductions.min,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "prod": statistics.prod,
    "var": statistics.var,
    "std": statistics.std,
    "cumsum": scans.cumsum,
    "cumprod": scans.cumprod,
    "argsort": sorting.argsort,
    "any": reductions.any,
    "all": reductions.all,
    "reshape": _reshape,
    "transpose": _transpose,
    "swapaxes": shapes.swapaxes,
    "squeeze": shapes.squeeze,
    "ravel": shapes.ravel,
    "flatten": arranging.flatten,
    "repeat": arranging.repeat,
    "dot": linalg.dot,
    "trace": diagonals.trace,
    "diagonal": diagonals.diagonal,
}


def _iterate(self: Tensor) -> Iterator[Tensor]:
    return (self[i] for i in range(len(self)))  # type: ignore[index]


def _set_item(self: Tensor, index: Any, value: Any) -> None:
    raise DTypeError(
        "tensors are immutable: x[i] = v would change values a tape holds; build the "
        "new tensor with eg.where or eg.concatenate, or assign to a Variable"
    )


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy that tapes know as one: gradients flow through ``copy.deepcopy``."""
    copy = elementwise.settled(self, self, True, "deepcopy")
    memo[id(self)] = copy
    return copy


def _in_place(self: Variable, other: Any) -> Any:
    raise RuntimeError(
        "a Variable is not changed by +=, which would rebind the name to a Tensor; "
        "use assign_add, assign_sub or assign"
    )


def _read_value(self: Variable) -> Tensor:
    """The value now, as a Tensor that later assignments do not change."""
    if tapes := active():
        accessed(self._node, tapes)
    value: Tensor = elementwise.identity(self)
    return value


# numpy.exp(tensor) and array * tensor arrive here
_UFUNCS = {"true_divide": "divide", "conjugate": "conj"}
_REDUCE = {
    "add": reductions.sum,
    "maximum": reductions.max,
    "minimum": reductions.min,
    "logical_and": reductions.all,
    "logical_or": reductions.any,
}


def _array_ufunc(
    self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any
) -> Any:
    name = ufunc.__name__
    op = primitive.OPS.get(_UFUNCS.get(name, name))
    if method == "__call__" and op is not None and not options:
        if len(inputs) == 2 and op.name == "power":
            return elementwise.power(*inputs)
        return op.entry(*inputs)
    if (
        method == "reduce"
        and name in _REDUCE
        and not set(options) - {"axis", "keepdims"}
    ):
        options.setdefault("axis", 0)
        return _REDUCE[name](*inputs, **options)
    options.pop("axis", None)
    raise DTypeError(
        f"numpy.{name}{'' if method == '__call__' else '.' + method} does not take "
        f"tensors{' with ' + ', '.join(options) if options else ''}; use the function "
        "of eagergrad, or NumPy on tensor.numpy()"
    )


_NUMPY_NAMES = (
    diagonals,
    einsum,
    fft,
    reductions,
    shapes,
    creation,
    linalg,
    elementwise,
    statistics,
    quantiles,
    scans,
    sorting,
    gathering,
    choices,
    arranging,
    joining,
    padding,
)


def _array_function(
    self: Tensor, function: Any, types: Any, args: Any, kwargs: Any
) -> Any:
    name = function.__name__
    of_linalg = function.__module__ == "numpy.linalg"
    for module in (numpy_linalg,) if of_linalg else _NUMPY_NAMES:
        found = getattr(module, name, None)
        if found is not None and not name.startswith("_"):
            return found(*args, **kwargs)
    raise DTypeError(
        f"numpy.{name} does not take tensors; use NumPy on tensor.numpy(), which no "
        "gradient passes"
    )


def _bind(owner: type, members: dict[str, Any]) -> None:
    for name, member in members.items():
        setattr(owner, name, member)


_bind(Tensor, {f"__{name}__": op for name, op in BINARY.items()})
_bind(Tensor, {f"__r{name}__": _swapped(op) for name, op in BINARY.items()})
_bind(Tensor, {f"__{name}__": op for name, op in {**COMPARE, **UNARY}.items()})
_bind(Tensor, METHODS)
_bind(
    Tensor,
    {
        "T": property(shapes.transpose),
        "mT": property(diagonals.matrix_transpose),
        "at": property(putting.At),
        "__getitem__": indexing.getitem,
        "__setitem__": _set_item,
        "__iter__": _iterate,
        "__deepcopy__": _deepcopy,
        "__array_namespace__": array_api.namespace,
        "__array_ufunc__": _array_ufunc,
        "__array_function__": _array_function,
    },
)
_bind(Variable, {f"__i{name}__": _in_place for name in BINARY})
_bind(Variable, {"read_value": _read_value, "value": _read_value})
