"""Putting: ``x.at[index]``, copies of x with other values in some places.

Where an index names a place twice, what happens does not depend on chance: of values
set the last counts, on every device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..operands import operand, operands
from ..primitive import primitive
from ..tensor import Tensor, to_buffer, wrap
from .elementwise import _astype_op, _where, add, astype, where
from .gathering import beside, index_buffer, merged
from .indexing import _getitem, _may_repeat, _plain, _scatter_add, getitem
from .shapes import broadcast_to, ravel, reshape


def _places(xp: Any, x: Any, index: Any) -> Any:
    """The places an index names, counted in row order."""
    return xp.arange(x.size).reshape(x.shape)[index]


def _last(xp: Any, x: Any, index: Any) -> Any:
    """For each value put at an index: which one, counted in order, stays there."""
    places = _places(xp, x, index)
    order = xp.arange(places.size)
    last = xp.zeros(x.size, order.dtype)
    if xp is np:
        last[places.reshape(-1)] = order
    else:  # CuPy assigns in no particular order
        found, order = merged(xp, xp.maximum, order, places.reshape(-1))
        last[found] = order
    return last[places]


def _changed(xp: Any, ufunc: Any, x: Any, v: Any, index: Any) -> Any:
    out = x.copy()
    if xp is np:
        ufunc.at(out, index, v)
        return out
    flat = out.reshape(-1)
    places, v = merged(xp, ufunc, v.reshape(-1), _places(xp, x, index).reshape(-1))
    flat[places] = ufunc(flat[places], v)
    return flat.reshape(x.shape)


@primitive(arrays=2)
def _set_at(xp: Any, x: Any, v: Any, index: Any) -> Any:
    out = x.copy()
    if xp is not np and _may_repeat(index) and hasattr(v, "ravel"):
        v = v.ravel()[_last(xp, x, index)]
    out[index] = v
    return out


@_set_at.vjp
def _set_at_rule(g: Any, index: Any) -> Any:
    picked = _getitem(g, index)
    if _may_repeat(index):
        picked = _where(_stays(g, index), picked, 0.0)
    return [_set_at(g, 0.0, index), picked]


@primitive(constant=True)
def _stays(xp: Any, x: Any, index: Any) -> Any:
    last = _last(xp, x, index)
    return last == xp.arange(last.size).reshape(last.shape)


@primitive(arrays=2)
def _min_at(xp: Any, x: Any, v: Any, index: Any) -> Any:
    return _changed(xp, xp.minimum, x, v, index)


@primitive(arrays=2)
def _max_at(xp: Any, x: Any, v: Any, index: Any) -> Any:
    return _changed(xp, xp.maximum, x, v, index)


def _extreme_at_rule(g: Any, x: Any, v: Any, y: Any, index: Any) -> Any:
    """Equal extremes share the gradient evenly; a nan is the extreme, and gets it."""
    hit = (x == y) | (x != x)
    reached = (v == _getitem(y, index)) | (v != v)
    votes = _scatter_add(_astype_op(reached, g.dtype, None), index, x.shape)
    share = g / (_astype_op(hit, g.dtype, None) + votes)
    return [_where(hit, share, 0.0), _where(reached, _getitem(share, index), 0.0)]


_min_at.vjp(_extreme_at_rule)
_max_at.vjp(_extreme_at_rule)


class At:
    """``x.at``: index it, then ``set``, ``add``, ``multiply``, ``min`` or ``max``."""

    __slots__ = ("_index", "_x")

    def __init__(self, x: Tensor, index: Any = None):
        self._x = x
        self._index = index

    def __getitem__(self, index: Any) -> At:
        return At(self._x, (_plain(index, self._x),))

    def _place(self, name: str, values: Any) -> tuple[Tensor, Tensor, Any]:
        """x, the values in its dtype and in the shape of x[index], and the index."""
        x = self._x
        if self._index is None:
            raise DTypeError(f"at.{name}: expected an index, as in x.at[0].{name}(v)")
        (index,) = self._index
        found = getitem(wrap(x._data), index)
        v: Any = values
        if not isinstance(values, Tensor):
            v, _ = operands(add.op, values, x)
            v = v if isinstance(v, Tensor) else wrap(to_buffer(v, device=x.device))
        if v.dtype.kind in "fc" and x.dtype.kind in "biu":
            raise DTypeError(
                f"at.{name}: {v.dtype} values do not fit a tensor of {x.dtype}; cast "
                "one of them with astype"
            )
        v = astype(v, x.dtype) if v.dtype != x.dtype else v
        if v.shape != found.shape:
            try:
                v = broadcast_to(v, found.shape)
            except ShapeError as error:
                raise ShapeError(
                    f"at.{name}: expected values that broadcast to x[index], which is "
                    f"{found.shape}, got {v.shape}"
                ) from error
        return x, v, index

    def set(self, values: Any) -> Tensor:
        """A copy of x with values at the index; of several for one place the last."""
        return _set_at(*self._place("set", values))  # type: ignore[no-any-return]

    def add(self, values: Any) -> Tensor:
        """A copy of x with values added at the index; repeats add up."""
        x, v, index = self._place("add", values)
        return add(x, _scatter_add(v, index, x.shape))  # type: ignore[no-any-return]

    def min(self, values: Any) -> Tensor:
        """A copy of x with the minimum at the index; ties share the gradient."""
        return _min_at(*self._place("min", values))  # type: ignore[no-any-return]

    def max(self, values: Any) -> Tensor:
        """A copy of x with the maximum at the index; ties share the gradient."""
        return _max_at(*self._place("max", values))  # type: ignore[no-any-return]

    def multiply(self, values: Any) -> Tensor:
        """A copy of x multiplied at the index; repeats multiply in turn."""
        x, v, index = self._place("multiply", values)
        if not _may_repeat(index):
            return _set_at(x, _getitem(x, index) * v, index)  # type: ignore[no-any-return]
        with x.device.allocating("multiply"):
            xp = x.device.backend.xp
            places = _places(xp, x._data, index).reshape(-1)
            order = xp.argsort(places, kind="stable")
            places = places[order]
            factors = _getitem(reshape(v, -1), order)
            step = 1  # each factor takes in those before it: 1, 2, 4 ... at once
            while step < places.size:
                same = places[step:] == places[:-step]
                if not same.any():
                    break
                before = where(same, factors[:-step], 1.0).astype(x.dtype)
                factors = At(factors)[step:].set(factors[step:] * before)
                step *= 2
            last = xp.ones(places.shape, bool)
            last[:-1] = places[1:] != places[:-1]
            places = places[last]
        flat = reshape(x, -1)
        out = At(flat)[places].set(_getitem(flat, places) * _getitem(factors, last))
        return reshape(out, x.shape)  # type: ignore[no-any-return]


def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> Any:
    """A copy of x with values put along an axis, by indices at each place beside it.

    x itself does not change.  Of values for one place the last counts.

    >>> put_along_axis(tensor([[1.0, 2.0]]), [[1]], 5.0, 1).tolist()
    [[1.0, 5.0]]
    """
    x = operand(x, "put_along_axis")
    indices = index_buffer("put_along_axis", indices, x)
    if axis is None:
        return reshape(At(ravel(x))[indices].set(values), x.shape)
    return At(x)[beside("put_along_axis", x, indices, axis)].set(values)
