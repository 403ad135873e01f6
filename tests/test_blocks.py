"""Elementwise instructions in blocks: the bits of the calls they stand for."""

import numpy as np
import pytest
from test_function import same

import eagergrad as eg
from eagergrad import blocks, fusion, host_kernels

rng = np.random.default_rng(0)
X, Y = (rng.normal(size=(300, 20)).astype("f4") for _ in "xy")


@pytest.fixture
def no_compiler(monkeypatch):
    """Neither kernels nor a compiler, and blocks of 100 elements from 200 on."""
    monkeypatch.setattr(host_kernels, "problem", lambda: "there is none")
    monkeypatch.setattr(blocks, "SIZE", 100)
    monkeypatch.setattr(fusion, "WORTH", 200)
    from eagergrad import loops

    monkeypatch.setattr(loops, "ready", lambda: False)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: eg.exp(eg.abs(x) * 1.5 + 0.25) / (1.0 + y * y) - x,
        lambda x, y: (x + y[0]) * (x - y[:, :1]) * 3,
        lambda x, y: eg.where((x > 0.0) & (y < 1.0), x * 2.0, -y),
        lambda x, y: eg.maximum(x.T + 1.0, y.T) ** 2,
        lambda x, y: eg.sqrt(eg.square(x) + eg.square(y)) * eg.sum(x),
        lambda x, y: (x * 2.0 + 1.0)[1:] * (y[:-1] - 1.0) + 0.5,
        lambda x, y: x.reshape((2, 3000)) * 2.0 + y.reshape((2, 3000)),
    ],
)
def test_values_are_those_of_the_function(no_compiler, f):
    captured, x, y = eg.function(f), eg.tensor(X), eg.tensor(Y)
    captured(y, x)
    same(captured(x, y), f(x, y))
    same(captured(x, y), f(x, y))
    program = captured.program(x, y)
    assert any(isinstance(i.call, blocks.Blocks) for i in program.instructions)


def test_small_arrays_are_not_cut(no_compiler):
    f, x = eg.function(lambda x: x * 2.0 + 1.0), eg.ones((10,))
    f(x)
    assert len(f.program(x).calls) == 2


def test_memory_between_calls_is_used_again(no_compiler):
    def chain(x):
        for _ in range(20):
            x = x * 1.5 + 0.25
        return x

    f, x = eg.function(chain), eg.tensor(X)
    f(x)
    (instruction,) = f.program(x).instructions
    assert len(instruction.call.between) == 2
    same(f(x), chain(x))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * 2.0,
        lambda x: eg.maximum(x, 0.0),
        lambda x: x[1:] + x[:-1],
        lambda x: eg.cumsum(x) + eg.flip(x),
        lambda x: (x * 2.0, eg.sum(x), x),
    ],
)
def test_large_inputs_and_results_without_a_compiler(no_compiler, f, monkeypatch):
    monkeypatch.setattr(fusion, "WORTH", 10**9)
    captured = eg.function(f, exact=True)
    values = [rng.normal(size=40_000) for _ in range(3)]
    captured(eg.tensor(values[0]))
    kept = []
    for x in [*values, values[0][::-1], values[1]]:
        got, expected = captured(eg.asarray(x)), f(eg.tensor(x))
        pairs = (
            [(got, expected)]
            if isinstance(got, eg.Tensor)
            else zip(got, expected, strict=True)
        )
        kept += pairs
    for got, expected in kept:
        same(got, expected)
