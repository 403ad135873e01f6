"""Choices between many numbers: bit by bit what NumPy's where and / and * make."""

import numpy as np
import pytest

from eagergrad.ops.masks import chosen, gated, masked_product, masked_quotient

SIZE = 5000  # more than those that NumPy's where is left with
DTYPES = ["float16", "float32", "float64", "complex64"]


def numbers(dtype, zeros=True):
    rng = np.random.default_rng(0)
    x = rng.normal(size=SIZE).astype(dtype)
    x[::7], x[1::7], x[2::7] = np.inf, np.nan, -np.inf
    if zeros:
        x[3::7], x[4::7] = 0.0, -0.0
    return x


def same(got, expected):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_a_choice_between_numbers_and_zero(dtype, zero):
    x, mask = numbers(dtype), np.random.default_rng(1).random(SIZE) < 0.5
    same(chosen(mask, x, zero), np.where(mask, x, zero))
    same(chosen(mask, zero, x), np.where(mask, zero, x))


def test_shapes_of_a_choice():
    x, mask = numbers("float32"), np.random.default_rng(1).random(SIZE) < 0.5
    rows = x.reshape(50, 100)
    for cond, a in [
        (mask.reshape(50, 100), rows[0]),
        (mask.reshape(50, 100).T, rows.T),
        (mask[::2], x[1::2]),
        (mask, np.broadcast_to(x[:1], SIZE)),
        (mask, np.array(2.0, np.float32)),
        (mask, np.arange(SIZE)),
        (mask.astype(int), x),
    ]:
        same(chosen(cond, a, 0.0), np.where(cond, a, 0.0))
        same(chosen(cond, 0.0, a), np.where(cond, 0.0, a))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_choice_between_numbers_and_numbers(dtype):
    x, mask = numbers(dtype), np.random.default_rng(1).random(SIZE) < 0.5
    for cond, a, b in [
        (mask, x, x[::-1]),
        (mask.reshape(50, 100), x.reshape(50, 100), x[:100]),
        (mask, x, x.astype("complex128")),
        (mask.reshape(50, 1, 100), x.reshape(50, 100), x.reshape(50, 100)),
    ]:
        same(chosen(cond, a, b), np.where(cond, a, b))


@pytest.mark.parametrize("dtype", DTYPES[:3])
@pytest.mark.parametrize("size", [5, SIZE])
def test_gate(dtype, size):
    g, y = numbers(dtype)[:size], numbers(dtype)[::-1][:size]
    same(gated(g, y), np.where(y > 0, g, np.zeros((), dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zeros", [False, True])
def test_products_that_mind_zeros(dtype, zeros):
    a, b = numbers(dtype, zeros), numbers(dtype)[::-1]
    none = np.zeros((), dtype)
    with np.errstate(all="ignore"):
        same(masked_product(np, a, b), np.where(a == 0, none, a * b))
        same(masked_quotient(np, a, b), np.where(a == 0, none, a / b))
