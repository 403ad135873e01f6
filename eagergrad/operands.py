"""Operands: what an op's arguments become, and how its errors are told.

Anything that is an array becomes a Tensor; Python's numbers stay numbers, and weak.
Floats of two dtypes meet as in NumPy, and an integer beside a float takes the float's
dtype, so that float32 is never widened by an index or a count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .device import BUFFERS, Device, device_of, out_of_memory
from .errors import (
    DeviceError,
    DTypeError,
    EagergradError,
    MatrixError,
    ShapeError,
)
from .tape import active
from .tensor import INEXACT, Tensor, to_buffer, wrap

OPS: dict[str, Any] = {}  # the registry of ops by name: primitive.Op fills it
SCALARS = frozenset((bool, int, float, complex))


def operand(x: Any, name: str = "tensor") -> Tensor:
    """The Tensor of an argument that is not one yet: array, scalar, nested list.

    Errors begin with the ``name`` of the op.
    While a tape records, an array is copied: it may be kept, and changed by its owner.
    """
    if isinstance(x, Tensor):  # a subclass of the user's
        return x
    if isinstance(x, (list, tuple)) and holds_tensor(x):
        stacked: Tensor = OPS["stack"].entry([operand(item, name) for item in x], 0)
        return stacked
    return wrap(to_buffer(x, copy=shared(), name=name))


def shared() -> bool | None:
    """How to take over somebody's array: copied while a tape records, else as it is."""
    return True if active() else None


def holds_tensor(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(holds_tensor(item) for item in x)
    return isinstance(x, Tensor)


def operands(op: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Two arguments of which one is not a Tensor: a scalar stays one, and is weak."""
    if type(a) in SCALARS and type(b) in SCALARS:
        return operand(a, op.name), b
    if type(a) in SCALARS:
        return a, _beside(op, b, None)
    if type(b) in SCALARS:
        return _beside(op, a, None), b
    a = _beside(op, a, b)
    b = _beside(op, b, a)
    return promoted(a, b, op.name)


def _beside(op: Any, x: Any, other: Any) -> Tensor:
    """One argument as a Tensor on the device of the other."""
    if isinstance(x, Tensor):
        return x
    if x is None:
        raise DTypeError(f"{op.name}: expected a tensor or a number, got None")
    if not isinstance(other, Tensor):
        try:
            return operand(x, op.name)
        except (TypeError, ValueError) as error:
            raise explained(op, error, (x, other), ()) from error
    device = other.device
    own = type(x) is device.backend.buffer
    if not own and device.kind != "cpu" and np.ndim(x):
        raise DeviceError(
            f"{op.name}: one operand is on {device}, the other a "
            f"{type(x).__name__} on the CPU; move it with "
            f"eg.tensor(..., device={str(device)!r})"
        )
    if isinstance(x, (list, tuple)) and holds_tensor(x):
        return operand(x, op.name)
    try:
        return wrap(to_buffer(x, device=device, copy=shared(), name=op.name))
    except (TypeError, ValueError) as error:
        raise explained(op, error, (x, other), ()) from error


def promoted(a: Tensor, b: Tensor, name: str = "promotion") -> tuple[Tensor, Tensor]:
    """Two tensors with one dtype: floats as in NumPy, an integer takes the float's."""
    first, second = a._data.dtype, b._data.dtype
    if first == second:
        return a, b
    dtype = promoted_dtype(first, second, name)
    return cast(a, dtype), cast(b, dtype)


def promoted_dtype(
    first: np.dtype[Any], second: np.dtype[Any], name: str
) -> np.dtype[Any]:
    """The dtype of an op on two dtypes; see ``promoted``."""
    if first.kind in "SU" or second.kind in "SU":
        raise DTypeError(f"{name}: expected numbers, got dtypes {first} and {second}")
    if first.kind in "biu" and second.kind in INEXACT:
        return second
    if second.kind in "biu" and first.kind in INEXACT:
        return first
    try:
        return np.promote_types(first, second)
    except TypeError:  # of float16 and bfloat16 neither holds the other
        return np.dtype(np.float32)


def cast(x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """The tensor in another dtype, recorded; itself when it has the dtype."""
    if x._data.dtype == dtype:
        return x
    return OPS["astype"].entry(x, dtype, x._data.dtype)  # type: ignore[no-any-return]


def common_dtype(inputs: list[Tensor], name: str = "promotion") -> list[Tensor]:
    dtype = inputs[0]._data.dtype
    for x in inputs[1:]:
        if x._data.dtype != dtype:
            dtype = promoted_dtype(dtype, x._data.dtype, name)
    return [cast(x, dtype) for x in inputs]


def narrowed(z: Any, impl: Any, *inputs: Any) -> Any:
    """The dtype it has here, where NumPy's is another.

    Of integers NumPy makes other floats than float32; bfloat16 beside a Python number
    becomes float32 or float64.  On integers of 8 bits it computes in half precision,
    and unsigned ones have no negative: ``impl``, if given, computes those anew.
    """
    char = z.dtype.char
    if char not in "efdD":
        return z
    arrays = [x for x in inputs if type(x) not in SCALARS]
    for x in arrays:
        if x.dtype.kind not in "biu":
            return z.astype(x.dtype) if x.dtype.kind == "V" else z
    short = [x for x in arrays if x.dtype.kind == "u" or x.dtype.itemsize == 1]
    if short and impl is not None:
        z = impl[type(arrays[0])](*widened(inputs))
    return z.astype(np.complex64 if char == "D" else np.float32, copy=False)


def widened(inputs: Sequence[Any]) -> list[Any]:
    """Integer arrays in float64, for an op that gives a float of them."""
    return [x if type(x) in SCALARS else x.astype(np.float64) for x in inputs]


def refuse_complex(name: str, *arrays: Any) -> None:
    """Raise DTypeError for complex arrays, where a function orders its numbers."""
    for x in arrays:
        if hasattr(x, "dtype") and x.dtype.kind == "c":
            raise DTypeError(
                f"{name}: expected real numbers, got {x.dtype}; take real(x), imag(x) "
                "or absolute(x)"
            )


def explained(
    op: Any, error: Exception, inputs: Sequence[Any], params: Sequence[Any]
) -> Exception:
    """The error of an array module, restated with op, operands and remedy."""
    if isinstance(error, EagergradError):
        return error
    devices = {str(x.device) for x in inputs if isinstance(x, Tensor)}
    if isinstance(error, TypeError):  # an index or labels
        devices |= {str(device_of(x)) for x in params if type(x) in BUFFERS}
    if len(devices) > 1:
        return DeviceError(
            f"{op.name}: operands on different devices: {', '.join(sorted(devices))}; "
            "move one with .to(device)"
        )
    what = ", ".join(
        f"{name} is {_described(x)}"
        for name, x in zip(_labels(op, len(inputs)), inputs, strict=True)
    )
    if params:
        pairs = zip(op.params, params, strict=False)
        what += "; " + ", ".join(f"{name}={value!r}" for name, value in pairs)
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "broadcast" in text:
        text = "shapes do not broadcast"
    elif "core dimension" in text or "not aligned" in text:
        text = "inner sizes differ"
    elif "not supported for the input types" in text and _any_complex(inputs):
        text = "expected real numbers; take real(x), imag(x) or absolute(x)"
    message = f"{op.name}: {text}: {what}"
    if isinstance(error, MemoryError):
        goes_to = [x for x in params if isinstance(x, Device)]
        lies_on = [x.device for x in inputs if isinstance(x, Tensor)]
        return out_of_memory(error, f"{op.name}: {what}", (goes_to or lies_on)[0])
    if isinstance(error, IndexError):
        return IndexError(message)
    if isinstance(error, np.linalg.LinAlgError):
        return MatrixError(message)
    if isinstance(error, ValueError):
        return ShapeError(message)
    if isinstance(error, TypeError):
        return DTypeError(message)
    error.add_note(message)
    return error


def _any_complex(inputs: Sequence[Any]) -> bool:
    return any(
        x.dtype.kind == "c" if isinstance(x, Tensor) else type(x) is complex
        for x in inputs
    )


def _labels(op: Any, count: int) -> Sequence[str]:
    if op.arrays[0].endswith("*"):
        return tuple(f"array {i}" for i in range(count))
    names: Sequence[str] = op.arrays
    return names


def _described(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"{x.shape} {x.dtype}"
    return f"{type(x).__name__} {x!r}"
