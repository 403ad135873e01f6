"""Clipping by norm, with the names and conventions of TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..primitive import beside, flat, fuse, primitive
from .elementwise import absolute, sqrt, square, stop_gradient, where
from .reductions import Axis, _floating, is_half, max, sum
from .shapes import stack


def _unit(top: Any) -> Any:
    """A largest absolute value to divide by: 1 where it is 0 or not finite.

    It is a constant to the tapes: norm(x) is u norm(x / u) for every u.
    """
    top = stop_gradient(top)
    return where((top > 0) & (top < float("inf")), top, 1.0)


def _root(total: Any) -> Any:
    """The square root, with derivative 0 at 0."""
    nothing = total == 0
    return where(nothing, 0.0, sqrt(where(nothing, 1.0, total)))


@primitive()
def _two_norm(xp: Any, x: Any) -> Any:
    """The 2-norm of all elements: neither overflows nor underflows."""
    size = xp.abs(x.astype(np.float32) if is_half(x) else x)
    top = size.max()
    unit = xp.where((top > 0) & (top < float("inf")), top, 1.0).astype(size.dtype)
    y = unit * xp.sqrt(xp.square(size / unit).sum())
    return y if not is_half(x) else y.astype(x.dtype)


@_two_norm.vjp
def _two_norm_rule(g: Any, x: Any, y: Any) -> Any:
    nothing = y == 0  # the derivative there is 0
    return g * where(nothing, 0.0, x / where(nothing, 1.0, y))


def _two_norm_kernel(kernel: Any, x: Any) -> Any:
    y = x.astype(np.float32) if is_half(x) else x
    while True:
        parts = -(-y.size // PART) or 1
        y = kernel(*flat(y), beside(y, (parts,)))
        if parts == 1:
            return y.reshape(()).astype(x.dtype, copy=False)


PART = 1 << 14  # elements that are in the cache when they are read again

fuse(_two_norm, _two_norm_kernel)


def global_norm(t_list: Sequence[Any]) -> Any:
    """The 2-norm of all elements of all tensors together; None stands for no tensor.

    Neither overflows nor underflows; the gradient at 0 is 0.

    >>> global_norm([tensor([3.0]), None, tensor([[4.0]])]).item()
    5.0
    """
    tensors = [_floating(x, "global_norm") for x in t_list if x is not None]
    tensors = [x for x in tensors if x.size]
    if not tensors:
        return _floating(0.0, "global_norm")
    return _two_norm(stack([_two_norm(x) for x in tensors]))


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None
) -> tuple[list[Any], Any]:
    """Scale tensors together to a global norm of at most ``clip_norm``.

    Returns (list, global norm): each x times clip_norm / max(norm, clip_norm).  None
    stays None; ``use_norm`` is the norm if it is known.  Where the norm is infinite,
    infinite elements become nan.

    >>> clip_by_global_norm([tensor([3.0]), tensor([4.0])], 1.0)[1].item()
    5.0
    """
    _check_limit("clip_by_global_norm", clip_norm)
    norm = (
        global_norm(t_list)
        if use_norm is None
        else _floating(use_norm, "clip_by_global_norm")
    )
    larger = norm > clip_norm
    scale = where(larger, clip_norm / where(larger, norm, 1.0), 1.0)
    clipped: list[Any] = []
    for x in t_list:
        if x is None:
            clipped.append(None)
            continue
        x = _floating(x, "clip_by_global_norm")
        clipped.append(x * (scale if scale.dtype == x.dtype else scale.astype(x.dtype)))
    return clipped, norm


def clip_by_norm(t: Any, clip_norm: Any, axes: Axis = None) -> Any:
    """Scale a tensor to a 2-norm of at most ``clip_norm``, over all axes or some.

    >>> clip_by_norm(tensor([3.0, 4.0]), 1.0).numpy().round(3).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    _check_limit("clip_by_norm", clip_norm)
    x = _floating(t, "clip_by_norm")
    if not x.size:
        return x
    axes = tuple(axes) if isinstance(axes, list) else axes
    unit = _unit(max(absolute(stop_gradient(x)), axes, True))
    norm = _root(sum(square(x / unit), axes, True))  # in units
    limit = clip_norm / unit
    larger = norm > limit
    return x * where(larger, limit / where(larger, norm, 1.0), 1.0)


def _check_limit(name: str, limit: Any) -> None:
    if isinstance(limit, (int, float)) and not limit >= 0:
        raise ShapeError(f"{name}: expected clip_norm of at least 0, got {limit}")


__all__ = ["clip_by_global_norm", "clip_by_norm", "global_norm"]
