"""Philox4x32-10, the counter-based random generator, in array operations.

A block of four 32-bit words is a pure function of a 64-bit key and a 128-bit counter,
here (block, offset) with 64 bits each: element i of a call is made of fixed words of
a fixed block. So it depends on neither the device, nor how the work is divided, nor
how many elements are asked for, and can be made again instead of being stored.

Plain arrays only: `xp` is the array module, NumPy or CuPy; the caller keeps the key
and moves the offset on by `blocks_used`. Bits, uniforms and permutations are the same
everywhere. Normals go through log, sin and cos in float64, which libraries round
differently in the last bits: rounded to float32 they agree but for rare single ulps.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import DTypeError
from ..primitive import ByBuffer, kernel

__all__ = ["bits", "blocks_used", "normal", "permutation", "uniform"]

_LOW = 0xFFFFFFFF
# Blocks at a time on the CPU: six uint64 arrays of 64 KiB stay in the L2 cache. One
# million words take 8 ms so, 10 ms with 4096 blocks and 20 ms with all at once.
_CHUNK = 8192


def bits(xp: ModuleType, key: int, offset: int, n: int) -> Any:
    """Draw `n` random uint32: element i is word i % 4 of block i // 4.

    `key` and `offset` are integers of 64 bits, ValueError otherwise.

    >>> [hex(word) for word in bits(np, key=0, offset=0, n=4)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    return _fill(xp, key, offset, n, "uint32", 4, lambda xp, words: words)


def uniform(xp: ModuleType, key: int, offset: int, n: int, dtype: Any) -> Any:
    """Draw `n` multiples of 2^-p in [0, 1), each equally likely.

    p is 8 for bfloat16, 11 for float16, 24 for float32 (the high bits of one word), 53
    for float64 (27 bits of one word, then 26 of the next): all are exact, and none
    rounds to 1.  DTypeError for other dtypes.

    >>> uniform(np, key=0, offset=0, n=2, dtype="float32")
    array([0.39904642, 0.88052016], dtype=float32)
    """
    name = _float_name("uniform", dtype)
    fused = _UNIFORM_KERNEL[xp.ndarray] if name in _UNIT else None
    if fused is not None:
        key, offset = _checked(key, offset)
        out = xp.empty(index(n), name)
        return fused(out.dtype.type(_UNIT[name]), signed(key, offset), out)
    return _fill(xp, key, offset, n, name, _per_block("uniform", name), _UNIFORM[name])


def normal(xp: ModuleType, key: int, offset: int, n: int, dtype: Any) -> Any:
    """Draw `n` standard normals by Box and Muller's transform.

    Two words give u in (0, 1] and v in [0, 1), and these two elements:
    sqrt(-2 log u) cos(2 pi v) and sqrt(-2 log u) sin(2 pi v), at most 6.66. Computed
    in float64 and rounded to `dtype`; DTypeError unless that is one of `uniform`.

    >>> normal(np, key=0, offset=0, n=2, dtype="float32").round(3)
    array([ 0.991, -0.925], dtype=float32)
    """
    name = _float_name("normal", dtype)
    fused = _NORMAL_KERNEL[xp.ndarray] if name in _UNIT else None
    if fused is not None:
        key, offset = _checked(key, offset)
        out = xp.empty(index(n), name)
        return fused(out.dtype.type(1), signed(key, offset), out)
    return _fill(xp, key, offset, n, name, _per_block("normal", name), _box_muller)


def permutation(xp: ModuleType, key: int, offset: int, n: int) -> Any:
    """Draw a permutation of 0 ... n - 1 as int64: the order of `n` random 64-bit keys.

    >>> permutation(np, key=0, offset=0, n=5)
    array([3, 4, 2, 1, 0])
    """
    keys = _fill(xp, key, offset, n, "uint64", 2, _pairs)
    # Stable, so that even equal keys, if ever they come, fall alike everywhere.
    return xp.argsort(keys, kind="stable").astype("int64", copy=False)


def blocks_used(kind: str, n: int, dtype: Any = None) -> int:
    """Count the blocks that the call `kind` makes for `n` elements of `dtype`.

    `kind` is the name of one of the functions above. An offset that moves on by this
    much after each call never gives two calls the same counter.

    >>> blocks_used("uniform", 10, "float32"), blocks_used("uniform", 10, "float64")
    (3, 5)
    """
    return -(-n // _per_block(kind, None if dtype is None else np.dtype(dtype).name))


def _per_block(kind: str, name: str | None) -> int:
    """How many elements one block of four words makes."""
    if kind not in ("bits", "uniform", "normal", "permutation"):
        raise ValueError(
            f"blocks_used: expected bits, uniform, normal or permutation, got {kind!r}"
        )
    return 2 if kind == "permutation" or (kind, name) == ("uniform", "float64") else 4


def _float_name(op: str, dtype: Any) -> str:
    name: str = np.dtype(dtype).name
    if name not in _UNIFORM:
        raise DTypeError(f"{op}: expected one of {', '.join(_UNIFORM)}, got {name}")
    return name


def _fill(
    xp: ModuleType,
    key: int,
    offset: int,
    n: int,
    dtype: str,
    per_block: int,
    convert: Callable[[ModuleType, Any], Any],
) -> Any:
    """An array of `n` elements, `per_block` of which `convert` makes of each block."""
    n = index(n)
    key, offset = _checked(key, offset)
    out = xp.empty(n, dtype)
    step = _CHUNK * per_block if xp is np else max(n, 1)
    for start in range(0, n, step):
        count = min(step, n - start)
        blocks = -(-count // per_block)
        words = _words(xp, key, offset, start // per_block, blocks)
        out[start : start + count] = convert(xp, words)[:count]
    return out


def _checked(key: int, offset: int) -> tuple[int, int]:
    if type(offset) is Counter:
        return key, offset
    key, offset = index(key), index(offset)
    for name, value in (("key", key), ("offset", offset)):
        if not 0 <= value < 2**64:
            raise ValueError(f"random: {name} must be in [0, 2**64), got {value}")
    return key, offset


class Counter(int):
    """The offset that a recorded run drew at: its replays draw at others.

    ``renewed(f)`` is a buffer of what f(key, offset) gives, anew for each replay.
    """

    renewed: Callable[[Callable[[int, int], Sequence[int]]], Any]


def schedule(key: int, offset: int) -> list[int]:
    """What the rounds are made with: halves of the offset, and of a key for each."""
    numbers = [offset & _LOW, offset >> 32]
    low, high = key & _LOW, key >> 32
    for _ in range(10):
        numbers += [low, high]
        low, high = (low + 0x9E3779B9) & _LOW, (high + 0xBB67AE85) & _LOW
    return numbers


def signed(key: int, offset: int, *more: int) -> Any:
    """Numbers of 64 bits as kernels take them."""
    if type(offset) is Counter:
        made = offset.renewed(lambda key, offset: (key, offset, *more))
        return made.view(np.int64)
    return np.array((key, offset, *more), np.uint64).view(np.int64)


def _words(xp: ModuleType, key: int, offset: int, first: int, count: int) -> Any:
    """The words of `count` blocks from block `first` on, shape (4 * count,)."""
    numbers: Any = schedule(key, offset)
    if type(offset) is Counter:
        renewed = offset.renewed(schedule)
        numbers = [renewed[i : i + 1].reshape(()) for i in range(len(numbers))]
    block = xp.arange(count, dtype="uint64")
    block += first
    # uint64 arrays that hold 32-bit words, so that a product has room for both halves.
    c0, c1 = block & _LOW, block >> 32
    c2, c3 = xp.empty_like(block), xp.empty_like(block)
    c2[...], c3[...] = numbers[:2]
    p0, p2 = block, xp.empty_like(block)
    for i in range(2, len(numbers), 2):
        # c0, c1, c2, c3 = high(p2) ^ c1 ^ k0, low(p2), high(p0) ^ c3 ^ k1, low(p0)
        xp.multiply(c0, 0xD2511F53, out=p0)
        xp.multiply(c2, 0xCD9E8D57, out=p2)
        for c, product, odd, k in (
            (c0, p2, c1, numbers[i]),
            (c2, p0, c3, numbers[i + 1]),
        ):
            xp.right_shift(product, 32, out=c)
            xp.bitwise_xor(c, odd, out=c)
            xp.bitwise_xor(c, k, out=c)
            xp.bitwise_and(c, _LOW, out=c)
        # Of c1 and c3 only the low half counts: they keep the whole product, and the
        # mask above removes what its high half did to c0 and c2.
        c1, p2 = p2, c1
        c3, p0 = p0, c3
    words = xp.empty((count, 4), "uint32")
    for column, c in enumerate((c0, c1, c2, c3)):
        words[:, column] = c  # the low half
    return words.reshape(-1)


_UNIFORM_KERNEL = ByBuffer(lambda backend: kernel("uniform", backend))
# NumPy's functions are as fast
_NORMAL_KERNEL = ByBuffer(
    lambda backend: kernel("normal", backend) if backend.driver else None
)
_UNIT = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}


def _unit8(xp: ModuleType, words: Any) -> Any:
    return (words >> 24).astype("float32") * 2.0**-8


def _unit16(xp: ModuleType, words: Any) -> Any:
    return (words >> 21).astype("float16") * _UNIT["float16"]


def _unit32(xp: ModuleType, words: Any) -> Any:
    return (words >> 8).astype("float32") * _UNIT["float32"]


def _unit64(xp: ModuleType, words: Any) -> Any:
    u = (words[0::2] >> 5).astype("float64")
    u *= 2.0**26
    u += words[1::2] >> 6
    u *= _UNIT["float64"]
    return u


_UNIFORM = {
    "bfloat16": _unit8,
    "float16": _unit16,
    "float32": _unit32,
    "float64": _unit64,
}


def _box_muller(xp: ModuleType, words: Any) -> Any:
    radius = words[0::2].astype("float64")
    radius += 1.0
    radius *= 2.0**-32
    xp.log(radius, out=radius)
    radius *= -2.0
    xp.sqrt(radius, out=radius)
    angle = words[1::2].astype("float64")
    angle *= math.tau * 2.0**-32
    out = xp.empty(words.size, "float64")
    out[0::2] = radius * xp.cos(angle)
    out[1::2] = radius * xp.sin(angle)
    return out


def _pairs(xp: ModuleType, words: Any) -> Any:
    high = words[1::2].astype("uint64")
    high <<= 32
    high |= words[0::2]
    return high
