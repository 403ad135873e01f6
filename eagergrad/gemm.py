"""Products of matrices on a GPU: C = alpha A B + beta C, one call of cuBLAS.

cuBLAS goes by columns, arrays here by rows.  The memory of a matrix by rows is that of
its transpose by columns, so what is asked for is C^T = B^T A^T, and a transposed view
is only another flag: a matrix goes as it is if the elements of its rows, or of its
columns, lie side by side.  A batch is one call too, with a step from matrix to matrix
for each operand, which is 0 where an operand is broadcast.  What fits neither is copied
once.

Half types are multiplied and added up in float32.  Nothing here knows CuPy: what is
asked of the GPU's library is in ``Driver``, and what of cuBLAS in ``cublas.Library``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Protocol

import numpy as np

from . import cublas
from .counters import COUNTERS
from .errors import DTypeError, ShapeError
from .layouts import Axis, axes_of, broadcast, contiguous, merged

_INT = 2**31 - 1  # beyond it, the functions that take 64 bits

_precision: ContextVar[str | None] = ContextVar("eagergrad_matmul", default=None)


class matmul_precision:
    """Say how float32 matrices are multiplied on a GPU, inside a ``with`` block.

    ``"float32"``, the default, keeps all 24 bits of the factors.  ``"tf32"`` rounds
    them to 11 bits, for which GPUs from Ampere on have units of their own, and still
    adds up in float32; complex64 likewise.  Other dtypes, and the CPU, are not touched.
    A gradient is computed as the block says in which it is computed.

    ``EAGERGRAD_MATMUL_PRECISION`` in the environment is the default of the process.
    DTypeError (a TypeError) for another name.

    >>> with matmul_precision("tf32"):
    ...     (tensor([[1.0, 2.0]]) @ tensor([[3.0], [4.0]])).item()
    11.0
    """

    __slots__ = ("_name", "_tokens")

    def __init__(self, name: str) -> None:
        self._name = _known(name, "matmul_precision")
        self._tokens: list[Token[str | None]] = []

    def __enter__(self) -> None:
        self._tokens.append(_precision.set(self._name))

    def __exit__(self, *exc: object) -> None:
        _precision.reset(self._tokens.pop())


def precision() -> str:
    """How float32 matrices are multiplied here: "float32" or "tf32"."""
    return _precision.get() or _default()


@cache
def _default() -> str:
    name = "EAGERGRAD_MATMUL_PRECISION"
    return _known(os.environ.get(name) or "float32", name)


def _known(name: str, what: str) -> str:
    if name not in ("float32", "tf32"):
        raise DTypeError(f"{what}: expected 'float32' or 'tf32', got {name!r}")
    return name


def report() -> list[tuple[str, str]]:
    """What ``eagergrad doctor`` says of products: rows of (label, text)."""
    try:
        name = precision()
    except DTypeError as error:
        name = str(error)
    return [*cublas.report(), ("matmul precision", name)]


class Driver(cublas.Driver, Protocol):
    """What products need of a GPU's library."""

    buffer: Any  # the class

    def device(self, buffers: Sequence[Any]) -> int:
        """The current device; TypeError for buffers that lie on another one."""

    def contiguous(self, buffer: Any) -> Any:
        """The same values by rows, without gaps."""

    def broadcast_to(self, buffer: Any, shape: tuple[int, ...]) -> Any:
        """A view of that shape."""


class Unserved(TypeError):
    """Operands that cuBLAS does not take: their product is computed in another way."""


Facts = tuple[tuple[int, ...], tuple[int, ...]]  # an operand's shape and strides


@dataclass(frozen=True)
class Plan:
    """The calls of cuBLAS that make a product of operands of certain layouts."""

    shape: tuple[int, ...]  # of the result
    copied: tuple[bool, bool] = (False, False)  # which operands must be, before it
    function: str = ""
    flags: tuple[int, ...] = ()  # of B and A, and the sizes m, n, k
    a: tuple[int, ...] = ()  # the leading dimension, and the step in the batch
    b: tuple[int, ...] = ()
    c: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()  # how many there are
    places: tuple[tuple[int, ...], ...] = ()  # of A, B and C in each call, in bytes


def gemm(
    driver: Driver,
    a: Any,
    b: Any,
    out: Any = None,
    alpha: complex = 1.0,
    beta: complex = 0.0,
) -> Any:
    """alpha a @ b, with the shapes of matmul; with ``out``, beta out + that, into it.

    (..., n, k), (..., k, m) -> (..., n, m); vectors and batches that broadcast as in
    numpy.matmul.  Both operands are of one dtype, which the result has too.  ``out``
    has rows without gaps, and shares no memory with a and b.

    It runs on the current stream, and can be captured.  Unserved (a TypeError) where
    there is no cuBLAS for such operands; ShapeError and DTypeError for an ``out`` that
    does not fit.
    """
    if type(a) is not driver.buffer or type(b) is not driver.buffer:
        raise Unserved("gemm: expected two buffers of one device")
    dtype = a.dtype
    if dtype != b.dtype or dtype.char not in cublas.DTYPES:
        raise Unserved(f"gemm: no product of {dtype} and {b.dtype}")
    if out is not None and out.dtype != dtype:
        raise DTypeError(f"gemm: expected an out of {dtype}, got {out.dtype}")
    try:
        device = driver.device([a, b] if out is None else [a, b, out])
    except TypeError as error:
        raise Unserved(f"gemm: {error}") from error
    given = None if out is None else (out.shape, out.strides)
    plan = _plan(dtype.itemsize, (a.shape, a.strides), (b.shape, b.strides), given)
    if any(plan.copied):
        a, b = [
            _copy(driver, x) if copied else x
            for x, copied in zip((a, b), plan.copied, strict=True)
        ]
        plan = _plan(dtype.itemsize, (a.shape, a.strides), (b.shape, b.strides), given)
        assert not any(plan.copied)
    handle = cublas.handle(driver, device)
    if handle is None:
        raise Unserved("gemm: there is no cuBLAS here")
    if out is None:
        out = driver.empty(plan.shape, dtype)
        COUNTERS.allocations += 1
    if not plan.places:  # a sum of no products
        if beta:
            out *= beta
        else:
            out.fill(0)
        return out
    wide = _WIDE.get(dtype.char, "f")
    scale, keep = _number(alpha, wide), _number(beta, wide)
    computed = cublas.COMPUTE_64F if wide in "dD" else cublas.COMPUTE_32F
    if dtype.char in "fF" and precision() == "tf32":
        computed = cublas.COMPUTE_32F_FAST_TF32
    kind = cublas.DTYPES[dtype.char]
    call = getattr(handle.library, plan.function)
    x, y, z = a.data.ptr, b.data.ptr, out.data.ptr
    for at_a, at_b, at_c in plan.places:
        call(
            handle.value,
            *plan.flags,
            scale[0],
            *(y + at_b, kind, *plan.b),
            *(x + at_a, kind, *plan.a),
            keep[0],
            *(z + at_c, kind, *plan.c),
            *plan.batch,
            computed,
            cublas.ALGORITHM,
        )
        COUNTERS.launches += 1
    return out


_WIDE = {"d": "d", "F": "F", "D": "D"}  # what sums are in; those of all others float32


def _copy(driver: Driver, x: Any) -> Any:
    """The values by rows; a matrix that a batch has over and over is copied once."""
    COUNTERS.allocations += 1
    if all(x.strides[:-2]):
        return driver.contiguous(x)
    alone = tuple([slice(None) if step else slice(1) for step in x.strides[:-2]])
    return driver.broadcast_to(driver.contiguous(x[alone]), x.shape)


@lru_cache(maxsize=256)
def _number(value: complex, char: str) -> tuple[int, np.ndarray[Any, Any]]:
    """alpha or beta, where cuBLAS reads it: an address of the host, and what is there.

    To ask an array for its address takes 0.7 us.
    """
    array = np.array(value, char)
    return array.ctypes.data, array


@dataclass(frozen=True)
class Matrix:
    """The layout of an operand: its steps, in elements; 0 along an axis of length 1."""

    rows: int
    columns: int
    down: int  # from row to row
    along: int  # from column to column
    batch: tuple[int, ...]
    steps: tuple[int, ...]

    def flag(self) -> tuple[int, int] | None:
        """The flag by which cuBLAS takes it as it lies, and its leading dimension.

        None where it must be copied.
        """
        if self.columns == 1 or self.along == 1:
            if self.rows == 1:
                return cublas.OP_N, self.columns
            if self.down >= self.columns:
                return cublas.OP_N, self.down
        if (self.rows == 1 or self.down == 1) and self.along >= self.rows:
            return cublas.OP_T, self.along
        return None

    def over(self, batch: tuple[int, ...]) -> tuple[int, ...]:
        """The steps in the axes of a batch that this one's broadcast to."""
        return broadcast(self.batch, self.steps, batch)

    def is_writable(self) -> bool:
        """Whether rows are without gaps, and no matrix of the batch is there twice."""
        steps = zip(self.batch, self.steps, strict=True)
        found = self.flag()
        apart = all(s > 0 for n, s in steps if n > 1)
        return apart and found is not None and found[0] == cublas.OP_N

    def is_even(self) -> bool:
        """Whether one step leads through the batch, but for axes it is broadcast in."""
        axes = [x for x in axes_of(self.batch, [self.steps]) if x[1] != (0,)]
        return min(self.steps, default=0) >= 0 and len(merged(axes)) < 2


def _matrix(facts: Facts, size: int, row: bool = False, column: bool = False) -> Matrix:
    """The layout of an operand, which may lack the axis of its rows or columns."""
    shape, strides = facts
    if column:
        shape, strides = (*shape, 1), (*strides, 0)
    if row:
        shape = (*shape[:-1], 1, *shape[-1:])
        strides = (*strides[:-1], 0, *strides[-1:])
    steps = [0 if n == 1 else s for n, s in zip(shape, strides, strict=True)]
    *batch, rows, columns = shape
    if any(s % size for s in steps):
        return Matrix(rows, columns, -1, -1, (1,), (-1,))  # which fits nowhere
    *steps, down, along = [s // size for s in steps]
    return Matrix(rows, columns, down, along, tuple(batch), tuple(steps))


def _result(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the product of such shapes."""
    try:
        if a[-1] == b[max(len(b) - 2, 0)]:
            batch = np.broadcast_shapes(a[:-2], b[:-2])
            return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))
    except (IndexError, ValueError):  # a number, or batches that do not broadcast
        pass
    raise Unserved(f"gemm: no product of {a} and {b}")


@lru_cache(maxsize=4096)
def _plan(size: int, first: Facts, second: Facts, given: Facts | None) -> Plan:
    """The plan for operands of such shapes and strides, of elements of a size."""
    shape = _result(first[0], second[0])
    if given is None:
        given = shape, contiguous(shape, size)
    elif given[0] != shape:
        raise ShapeError(f"gemm: expected an out of shape {shape}, got {given[0]}")
    row, column = len(first[0]) == 1, len(second[0]) == 1
    a, b = _matrix(first, size, row=row), _matrix(second, size, column=column)
    c = _matrix(given, size, row, column)
    k = a.columns
    if 0 in (*shape, k):
        return Plan(shape)
    fits = [x.flag() is not None and x.is_even() for x in (a, b)]
    if not all(fits):
        return Plan(shape, (not fits[0], not fits[1]))
    if not c.is_writable():
        raise ShapeError(
            "gemm: expected an out of rows without gaps, none of them twice; got the "
            f"strides {given[1]} of {given[0]}"
        )
    a, b, c = _folded(a, b, c)
    steps = zip(a.over(c.batch), b.over(c.batch), c.steps, strict=True)
    axes = merged(zip(c.batch, steps, strict=True))
    # the longest axis is the batch of a call, which the others repeat
    *others, (count, along) = sorted([(1, (0, 0, 0)), *axes])
    (flag_a, lda), (flag_b, ldb), (_, ldc) = [x.flag() or (0, 0) for x in (a, b, c)]
    flags = flag_b, flag_a, b.columns, a.rows, a.columns
    step = [(n,) if count > 1 else () for n in along]
    wide = max(*flags, lda, ldb, ldc, count) > _INT
    name = "gemm_ex" if count == 1 else "gemm_strided_batched_ex"
    return Plan(
        shape,
        function=f"{name}_64" if wide else name,
        flags=flags,
        a=(lda, *step[0]),
        b=(ldb, *step[1]),
        c=(ldc, *step[2]),
        batch=(count,) if count > 1 else (),
        places=_places(others, size),
    )


def _folded(a: Matrix, b: Matrix, c: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """The batch of A as more rows of it, where all of it meets one and the same B."""
    if not any(b.over(c.batch)):
        steps = zip(a.over(c.batch), c.steps, strict=True)
        axes = [*zip(c.batch, steps, strict=True), (a.rows, (a.down, c.down))]
        rows = merged(axes)
        if len(rows) == 1:
            ((n, (down, below)),) = rows
            tall = replace(a, rows=n, down=down, batch=(), steps=())
            made = replace(c, rows=n, down=below, batch=(), steps=())
            if tall.flag() is not None and made.is_writable():
                return tall, replace(b, batch=(), steps=()), made
    return a, b, c


def _places(axes: Sequence[Axis], size: int) -> tuple[tuple[int, ...], ...]:
    """Where A, B and C begin at each step through the axes, in bytes."""
    places: list[tuple[int, ...]] = [(0, 0, 0)]
    for n, inner in axes:
        places = [
            tuple([p + size * i * s for p, s in zip(place, inner, strict=True)])
            for place in places
            for i in range(n)
        ]
    return tuple(places)
