"""Philox4x32-10 against published vectors, and what is made of its words."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagergrad.errors import DTypeError
from eagergrad.ops import philox

KEY = 0x0123456789ABCDEF
FLOATS = ["float16", "float32", "float64"]
DRAWS = {
    "bits": lambda key, offset, n: philox.bits(np, key, offset, n),
    "permutation": lambda key, offset, n: philox.permutation(np, key, offset, n),
} | {
    f"{kind} {dtype}": lambda key, offset, n, kind=kind, dtype=dtype: getattr(
        philox, kind
    )(np, key, offset, n, dtype)
    for kind in ("uniform", "normal")
    for dtype in FLOATS
}


# Random123's kat_vectors, the three lines "philox4x32 10": counter, key, words


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        (
            "00000000 00000000 00000000 00000000",
            "00000000 00000000",
            "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        ),
        (
            "ffffffff ffffffff ffffffff ffffffff",
            "ffffffff ffffffff",
            "408f276d 41c83b0e a20bc7c6 6d5451fd",
        ),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_known_answers(counter, key, words):
    def low_first(*pair):
        return int(pair[0], 16) | int(pair[1], 16) << 32

    c = counter.split()
    block, offset = low_first(*c[:2]), low_first(*c[2:])
    got = philox._words(np, low_first(*key.split()), offset, block, 1)
    assert " ".join(f"{word:08x}" for word in got) == words


def reference(key, offset, i):
    """Word i % 4 of block i // 4, in Python's integers, from the paper's figure."""
    block = i // 4
    low = 0xFFFFFFFF
    c = [block & low, block >> 32, offset & low, offset >> 32]
    k = [key & low, key >> 32]
    for _ in range(10):
        p0, p2 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p2 >> 32 ^ c[1] ^ k[0], p2 & low, p0 >> 32 ^ c[3] ^ k[1], p0 & low]
        k = [k[0] + 0x9E3779B9 & low, k[1] + 0xBB67AE85 & low]
    return c[i % 4]


word64 = st.integers(0, 2**64 - 1)


@given(word64, word64, st.integers(0, 2**62 - 8))
def test_words_are_those_of_the_plain_algorithm(key, offset, block):
    words = philox._words(np, key, offset, block, 2)
    assert words.tolist() == [reference(key, offset, 4 * block + i) for i in range(8)]


def test_bits_are_the_words_in_order():
    got = philox.bits(np, KEY, 7, 11)
    assert got.dtype == np.uint32
    assert got.tolist() == [reference(KEY, 7, i) for i in range(11)]


# How elements are made of words


def test_uniform_is_the_high_bits():
    w = philox.bits(np, KEY, 3, 8).tolist()
    half, single, double = (
        philox.uniform(np, KEY, 3, n, dtype).tolist()
        for n, dtype in ((8, "float16"), (8, "float32"), (4, "float64"))
    )
    assert half == [(x >> 21) / 2**11 for x in w]
    assert single == [(x >> 8) / 2**24 for x in w]
    assert double == [
        ((a >> 5) * 2**26 + (b >> 6)) / 2**53
        for a, b in zip(w[::2], w[1::2], strict=True)
    ]


def test_normal_is_box_muller():
    w = philox.bits(np, KEY, 3, 8).tolist()
    expected = [
        math.sqrt(-2 * math.log((u + 1) / 2**32)) * f(math.tau * v / 2**32)
        for u, v in zip(w[::2], w[1::2], strict=True)
        for f in (math.cos, math.sin)
    ]
    np.testing.assert_allclose(
        philox.normal(np, KEY, 3, 8, "float64"), expected, rtol=1e-14, atol=1e-14
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_normal_is_rounded_from_float64(dtype):
    exact = philox.normal(np, KEY, 3, 1001, "float64")
    np.testing.assert_array_equal(
        philox.normal(np, KEY, 3, 1001, dtype), exact.astype(dtype)
    )


def test_permutation_orders_random_keys():
    w = philox.bits(np, KEY, 3, 20).tolist()
    keys = [low | high << 32 for low, high in zip(w[::2], w[1::2], strict=True)]
    assert philox._pairs(np, np.array(w, np.uint32)).tolist() == keys
    got = philox.permutation(np, KEY, 3, 10)
    assert got.dtype == np.int64
    assert got.tolist() == sorted(range(10), key=keys.__getitem__)


@pytest.mark.parametrize("word", [0, 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_extreme_words_stay_in_range(word, dtype):
    words = np.full(4, word, np.uint32)
    u = philox._UNIFORM[dtype](np, words)
    assert u.dtype == dtype
    assert np.all((u >= 0) & (u < 1))
    z = philox._box_muller(np, words)
    assert np.all(np.abs(z) < 6.67)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_stays_below_one(dtype):
    u = philox.uniform(np, KEY, 0, 200_000, dtype)
    assert u.dtype == dtype
    assert u.min() >= 0
    assert u.max() < 1


# Independence of how the work is divided


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.usefixtures("composed")
def test_chunks_do_not_show(draw, monkeypatch):
    whole = draw(KEY, 5, 1003)
    for chunk in (1, 7, 250):
        monkeypatch.setattr(philox, "_CHUNK", chunk)
        np.testing.assert_array_equal(draw(KEY, 5, 1003), whole)


def test_chunks_do_not_show_at_the_real_size():
    n = 3 * 4 * philox._CHUNK + 5
    got = philox.bits(np, KEY, 5, n)
    np.testing.assert_array_equal(got, philox._words(np, KEY, 5, 0, n // 4 + 1)[:n])


@pytest.mark.parametrize("draw", [d for k, d in DRAWS.items() if k != "permutation"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 999])
def test_fewer_elements_are_a_prefix_of_more(draw, n):
    np.testing.assert_array_equal(draw(KEY, 5, n), draw(KEY, 5, 1000)[:n])


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_key_and_offset_count_in_both_halves(draw):
    seen = [
        draw(key, offset, 64).tobytes()
        for key in (0, 1, 2**32, 2**64 - 1)
        for offset in (0, 1, 2**32, 2**64 - 1)
    ]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("kind", "dtype", "blocks"),
    [
        ("bits", None, [0, 1, 1, 2, 3]),
        ("uniform", "float16", [0, 1, 1, 2, 3]),
        ("uniform", "float32", [0, 1, 1, 2, 3]),
        ("uniform", np.float64, [0, 1, 2, 3, 5]),
        ("normal", "float32", [0, 1, 1, 2, 3]),
        ("normal", np.dtype("float64"), [0, 1, 1, 2, 3]),
        ("permutation", None, [0, 1, 2, 3, 5]),
    ],
)
def test_blocks_used(kind, dtype, blocks):
    assert [philox.blocks_used(kind, n, dtype) for n in (0, 1, 4, 5, 9)] == blocks


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(kind, dtype) for kind in ("uniform", "normal") for dtype in FLOATS],
)
@pytest.mark.usefixtures("composed")
def test_blocks_used_is_what_is_made(kind, dtype, monkeypatch):
    made = []
    words = philox._words
    monkeypatch.setattr(philox, "_words", lambda *a: made.append(a[-1]) or words(*a))
    for n in (1, 2, 7, 100):
        made.clear()
        getattr(philox, kind)(np, KEY, 0, n, dtype)
        assert sum(made) == philox.blocks_used(kind, n, dtype)


# Statistics, with a fixed key: these hold or fail for good


def test_bits_are_balanced_and_unrelated():
    n = 1 << 16
    words = philox.bits(np, KEY, 0, n)
    columns = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    bound = 4.5 / math.sqrt(n)
    assert np.all(np.abs(2 * columns.mean(0) - 1) < bound)
    correlation = np.corrcoef(columns.T) - np.eye(32)
    assert np.abs(correlation).max() < bound
    after = philox.bits(np, KEY, 1, n)
    u, v, w = (x / 2**32 for x in (words[:-1], words[1:], after[:-1]))
    assert abs(np.corrcoef(u, v)[0, 1]) < bound
    assert abs(np.corrcoef(u, w)[0, 1]) < bound


def ks(sample, cdf):
    """Kolmogorov and Smirnov's largest distance, times sqrt(n); 1.95 is 1 in 1000."""
    n = len(sample)
    return np.abs(cdf(np.sort(sample)) - (np.arange(n) + 0.5) / n).max() * math.sqrt(n)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_is_uniform(dtype):
    n = 100_000
    u = philox.uniform(np, KEY, 0, n, dtype).astype(np.float64)
    step = 2.0**-11 if dtype == "float16" else 0.0  # its mean is half a step lower
    assert abs(u.mean() + step / 2 - 0.5) < 4 * math.sqrt(1 / 12 / n)
    assert abs(u.var() - 1 / 12) < 4 * math.sqrt(1 / 180 / n)
    if dtype != "float16":
        assert ks(u, lambda x: x) < 1.95


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_is_normal(dtype):
    n = 100_000
    z = philox.normal(np, KEY, 0, n, dtype)
    assert z.dtype == dtype
    z = z.astype(np.float64)
    moments = [np.mean(z**p) for p in (1, 2, 3, 4)]
    for got, expected, variance in zip(
        moments, (0, 1, 0, 3), (1, 2, 15, 96), strict=True
    ):
        assert abs(got - expected) < 4 * math.sqrt(variance / n)
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 4 / math.sqrt(n / 2)
    cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
    if dtype != "float16":
        assert ks(z, cdf) < 1.95


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_permutation_is_one(n):
    assert sorted(philox.permutation(np, KEY, 0, n).tolist()) == list(range(n))


def test_permutations_are_equally_likely():
    rounds = 6000
    seen = [tuple(philox.permutation(np, KEY, i, 3).tolist()) for i in range(rounds)]
    counts = np.array([seen.count(p) for p in set(seen)])
    assert len(counts) == 6
    assert np.sum((counts - 1000.0) ** 2 / 1000) < 20.5  # chi-squared, 5 df, 1 in 1000


# What bad input gets


@pytest.mark.parametrize("dtype", ["int32", "complex64", "bool", "uint32"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(DTypeError, match=f"uniform: expected one of.* got {dtype}"):
        philox.uniform(np, 0, 0, 1, dtype)
    with pytest.raises(DTypeError, match=f"normal: expected one of.* got {dtype}"):
        philox.normal(np, 0, 0, 1, dtype)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_key_and_offset_have_64_bits(value):
    with pytest.raises(ValueError, match="key must be in"):
        philox.bits(np, value, 0, 1)
    with pytest.raises(ValueError, match="offset must be in"):
        philox.bits(np, 0, value, 1)


def test_integers_are_expected_and_numpy_ones_do():
    seed = np.uint64(KEY), np.int64(3), np.int32(5)
    np.testing.assert_array_equal(philox.bits(np, *seed), philox.bits(np, KEY, 3, 5))
    with pytest.raises(TypeError):
        philox.bits(np, 0.5, 0, 1)
    with pytest.raises(ValueError, match="negative"):
        philox.bits(np, 0, 0, -1)
    with pytest.raises(ValueError, match="blocks_used: expected bits, uniform"):
        philox.blocks_used("gamma", 1)
