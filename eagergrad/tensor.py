"""Tensor and Variable: a device buffer and the node by which tapes know it.

No arithmetic here: ``operators.py`` binds the operators and methods.
"""

from __future__ import annotations

import importlib
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from .device import (
    BUFFERS,
    CPU,
    NUMPY,
    Device,
    backend_of,
    device_of,
    out_of_memory,
    recording,
    resolve,
)
from .errors import DeviceError, DTypeError, ShapeError
from .tape import Node, VariableNode, accessed, active, left

new = object.__new__


class Tensor:
    """An immutable n-dimensional array on one device.

    Make one with ``eg.tensor``; ``Tensor(data, dtype, device)`` does the same for data
    that holds no Tensor.  ``_data`` is the buffer, ``_node`` its key on the tapes, None
    while no tape knows it.
    """

    __slots__ = ("__weakref__", "_data", "_node")
    __array_priority__ = 1000
    # Two tensors are compared element by element, so neither can be a key: use ref().
    __hash__ = None  # type: ignore[assignment]

    _data: Any
    _node: Node | None

    def __init__(
        self, data: Any, dtype: Any = None, device: Device | str | None = None
    ):
        self._data = to_buffer(data, dtype, device)
        self._node = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._data.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._data.ndim  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._data.size  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
        return self._data.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> Device:
        """The device the elements are on."""
        return device_of(self._data)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the values as a NumPy array, from whichever device they are on.

        No gradient flows through it: what NumPy computes, no tape sees.
        """
        self._read("numpy()")
        backend = backend_of(self._data)
        values = backend.get(self._data)
        return values.copy() if backend is NUMPY else values

    def item(self) -> Any:
        """The only element as a Python number; ValueError if there is not just one."""
        self._one("item()")
        self._read("item()")
        return backend_of(self._data).get(self._data).item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return self.numpy().tolist()

    def ref(self) -> Reference:
        """A hashable stand-in for this object, equal only to itself: a dict's key."""
        return Reference(self)

    def _read(self, how: str) -> None:
        if self._node is not None and active():
            left(self, how)

    def _one(self, what: str, remedy: str = "") -> None:
        if self._data.size != 1:
            raise ShapeError(
                f"{what}: expected a tensor of one element, got shape {self.shape}"
                f"{remedy}"
            )

    def __len__(self) -> int:
        if not self._data.ndim:
            raise DTypeError("len(): expected at least one axis, got a 0-d tensor")
        return self._data.shape[0]  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        self._one("bool()", "; use eg.any or eg.all")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise DTypeError(f"index: expected an integer tensor, got {self.dtype}")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __repr__(self) -> str:
        return f"tensor({self._describe()})"

    def _describe(self) -> str:
        values = backend_of(self._data).text(self._data)
        device = str(self.device)
        return f"{values}, shape={self.shape}, dtype={self.dtype}, device={device!r}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """NumPy's view of a CPU tensor, read-only unless copied; raises on CUDA."""
        backend = backend_of(self._data)
        if backend.kind != "cpu":
            raise DTypeError(
                f"a tensor on {self.device} is not converted to NumPy silently; "
                "use .numpy()"
            )
        values = backend.get(self._data)
        self._read("NumPy")
        if copy or (dtype is not None and np.dtype(dtype) != self._data.dtype):
            if copy is False:
                raise ValueError(f"__array__: cannot view {self.dtype} as {dtype}")
            return values.astype(dtype or values.dtype)
        view = values.view()
        view.flags.writeable = False
        return view

    def __dlpack__(self, **options: Any) -> Any:
        """The buffer as a DLPack capsule; BufferError while a tape watches it."""
        if any(tape.knows(self._node) for tape in active()):
            raise BufferError(
                "DLPack: a tape watches this tensor and would lose track of it; "
                "export eg.stop_gradient(tensor)"
            )
        if (run := recording()) is not None:
            run.refuse("DLPack")
        return self._data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return _unpickle, (backend_of(self._data).get(self._data), str(self.device))


class Reference:
    """A hashable reference to one Tensor or Variable; ``deref()`` gives it back."""

    __slots__ = ("_target",)

    def __init__(self, target: Tensor):
        self._target = target

    def deref(self) -> Tensor:
        """The object referred to."""
        return self._target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and other._target is self._target

    def __hash__(self) -> int:
        return id(self._target)


class Variable(Tensor):
    """A Tensor whose value can be replaced; tapes watch it when it is read.

    ``initial`` is anything ``eg.tensor`` takes, or a function without arguments that
    returns it.  ``assign`` never writes into a buffer that somebody else may hold, so a
    gradient is always the one at the value that was read.
    """

    __slots__ = ("name",)
    _node: VariableNode
    name: str | None

    def __init__(
        self,
        initial: Any,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        device: Device | str | None = None,
    ):
        if callable(initial) and not isinstance(initial, Tensor):
            initial = initial()
        if isinstance(initial, Tensor):
            initial = initial._data
        self._data = to_buffer(initial, dtype, device)
        self.name = name
        self._node = VariableNode(
            self, bool(trainable), self._data.dtype.kind in INEXACT
        )
        VARIABLES[self._node.order] = self

    @property
    def trainable(self) -> bool:
        """Whether tapes watch this variable when it is read."""
        return self._node.trainable

    def assign(self, value: Any) -> Variable:
        """Replace the value; the shape and dtype stay.

        ValueError when the shape differs or a tensor of another dtype is given; NumPy
        and Python values are cast.  The path of gradients is cut here: the new value is
        a leaf, whatever it was computed from.
        """
        data = self._taken(value, "assign")
        if data.shape != self._data.shape:
            raise ShapeError(
                f"assign: expected shape {self.shape}, got {tuple(data.shape)}; "
                "a Variable keeps its shape"
            )
        return self._rebind(data)

    def assign_add(self, delta: Any) -> Variable:
        """Replace the value by value + delta; see ``assign``."""
        data = self._delta(delta, "assign_add")
        with self.device.allocating("assign_add"):
            return self._rebind(self._data + data)

    def assign_sub(self, delta: Any) -> Variable:
        """Replace the value by value - delta; see ``assign``."""
        data = self._delta(delta, "assign_sub")
        with self.device.allocating("assign_sub"):
            return self._rebind(self._data - data)

    def _rebind(self, data: Any) -> Variable:
        """Make ``data``, a result that nobody writes to, the value."""
        if type(data) not in BUFFERS:  # NumPy's 0-d results are scalars
            data = backend_of(data).asarray(data)
        self._data = data
        if tapes := active():
            accessed(self._node, tapes)
        return self

    def _delta(self, delta: Any, name: str) -> Any:
        data = self._taken(delta, name)
        if data.shape not in ((), self._data.shape):
            raise ShapeError(
                f"{name}: expected shape {self.shape}, got {tuple(data.shape)}"
            )
        return data

    def _taken(self, value: Any, name: str) -> Any:
        """A buffer with the value, which must fit the variable's dtype and device."""
        if not isinstance(value, Tensor):
            return to_buffer(value, self.dtype, self.device, name=name)
        if value.dtype != self.dtype:
            raise ShapeError(
                f"{name}: expected dtype {self.dtype}, got a tensor of {value.dtype}; "
                f"use value.astype({str(self.dtype)!r})"
            )
        if value.device != self.device:
            raise DeviceError(
                f"{name}: the variable is on {self.device}, the value on "
                f"{value.device}; move it with .to({str(self.device)!r})"
            )
        return value._data

    def _read(self, how: str) -> None:
        if tapes := active():
            accessed(self._node, tapes)
            left(self, how)

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r}, "
        trainable = "" if self.trainable else ", trainable=False"
        return f"Variable({name}{self._describe()}{trainable})"

    def __reduce__(self) -> Any:
        value = backend_of(self._data).get(self._data)
        arguments = (value, self.trainable, self.name, None, str(self.device))
        return Variable, arguments

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        copy = Variable(self._data, self.trainable, self.name)
        memo[id(self)] = copy
        return copy


TENSORS = frozenset((Tensor, Variable))
# All that are alive, oldest first: a captured function may read any of them.
VARIABLES: WeakValueDictionary[int, Variable] = WeakValueDictionary()
INEXACT = "fcV"  # dtype kinds that have gradients; ml_dtypes registers bfloat16 as V


def wrap(data: Any, node: Node | None = None) -> Tensor:
    """A Tensor around a buffer, without a copy."""
    if type(data) not in BUFFERS:
        data = backend_of(data).asarray(data)
    tensor: Tensor = new(Tensor)
    tensor._data = data
    tensor._node = node
    return tensor


def as_dtype(dtype: Any, name: str = "dtype") -> np.dtype[Any]:
    """The NumPy dtype that is meant; for "bfloat16" ml_dtypes is imported.

    Errors begin with ``name``.
    """
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            importlib.import_module("ml_dtypes")  # makes NumPy know the name
        except ImportError as error:
            raise DTypeError(
                f"{name}: bfloat16 needs ml_dtypes, which is not installed: "
                "pip install 'eagergrad[bf16]'"
            ) from error
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except TypeError as error:
        raise DTypeError(f"{name}: expected a dtype, got {dtype!r}: {error}") from error


def to_buffer(
    data: Any,
    dtype: Any = None,
    device: Device | str | None = None,
    copy: bool | None = True,
    name: str = "tensor",
) -> Any:
    """A buffer with the values of ``data``: array, scalar or nested lists.

    Python floats become float32, ints int64, bools bool; arrays keep their dtype.  A
    device buffer stays where it is unless ``device`` says otherwise.  Errors begin with
    ``name``.
    """
    if type(dtype) is str:
        dtype = as_dtype(dtype, name)
    try:
        return _to_buffer(data, dtype, device, copy, name)
    except MemoryError as error:
        stays = device is None and type(data) in BUFFERS
        place = device_of(data) if stays else resolve(device)
        raise out_of_memory(error, name, place) from error


def _to_buffer(
    data: Any,
    dtype: Any,
    device: Device | str | None,
    copy: bool | None,
    name: str,
) -> Any:
    backend = BUFFERS.get(type(data))
    if backend is not None and backend is not NUMPY:
        target = backend.device_of(data) if device is None else resolve(device)
        if target.backend is not backend:
            return target.backend.put(np.array(backend.get(data), dtype), target)
        if backend.device_of(data) != target:
            data = backend.move(data, target)
        with target:
            return backend.xp.array(data, dtype=dtype, copy=bool(copy))
    target = resolve(device)
    array = _to_numpy(data, dtype, copy, name)
    return array if target is CPU else target.backend.put(array, target)


def _to_numpy(
    data: Any, dtype: Any, copy: bool | None, name: str
) -> np.ndarray[Any, Any]:
    if data is None:
        raise ShapeError(f"{name}: expected values, got None")
    try:
        array = np.array(data, dtype=dtype, copy=copy)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ShapeError(
            f"{name}: expected nested lists of equal lengths, got ragged ones"
        ) from error
    if array.dtype.kind in "OMmV" and array.dtype.name != "bfloat16":
        raise DTypeError(
            f"{name}: expected numbers, got {type(data).__name__} (dtype {array.dtype})"
        )
    if dtype is None and array.dtype.char in _DEFAULT and not _has_dtype(data):
        array = array.astype(_DEFAULT[array.dtype.char])
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if type(array) is np.ndarray else array.view(np.ndarray)


_DEFAULT: dict[str, Any] = {
    "d": np.float32,
    "D": np.complex64,
}  # what Python's numbers become
if np.dtype(int).char != np.dtype(np.int64).char:
    _DEFAULT[np.dtype(int).char] = np.int64


def _has_dtype(data: Any) -> bool:
    """Whether values carry a dtype of their own, as Python's numbers do not."""
    if isinstance(data, (list, tuple)):
        return any(_has_dtype(item) for item in data)
    return hasattr(data, "dtype") or hasattr(data, "__array__")


def _unpickle(array: np.ndarray[Any, Any], device: str) -> Tensor:
    return Tensor(array, None, device)


def from_dlpack(
    source: Any, device: Device | str | None = None, copy: bool | None = None
) -> Tensor:
    """A Tensor that shares the memory of any object with ``__dlpack__``.

    With ``device`` it is moved there, and with ``copy=True`` it has memory of its own.
    BufferError when ``copy=False`` and it must move.

    >>> from_dlpack(np.arange(3.0)).dtype
    dtype('float64')
    """
    kind, index = source.__dlpack_device__()
    if kind in (2, 13):  # CUDA, CUDA managed memory
        with resolve(f"cuda:{index}") as origin:
            data = origin.backend.xp.from_dlpack(source)
    else:
        origin, data = CPU, np.from_dlpack(source)
    target = origin if device is None else resolve(device)
    if copy is False and target != origin:
        raise BufferError(
            f"from_dlpack: expected, for copy=False, an array on {target}, got one on "
            f"{origin}; leave out copy or device"
        )
    if copy or target != origin:
        data = to_buffer(data, device=target, name="from_dlpack")
    return wrap(data)
