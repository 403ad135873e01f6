"""Fusion: one kernel for elementwise instructions, the values as of eager ones."""

import numpy as np
import pytest
from op_cases import SMOOTH
from test_function import gradients, same

import eagergrad as eg
from eagergrad import host_kernels
from eagergrad.errors import KernelError

pytestmark = pytest.mark.skipif(
    host_kernels.problem() is not None, reason="no C++ compiler here"
)
rng = np.random.default_rng(0)


def calls(f, *xs):
    return len(f.program(*xs).calls)


def test_a_chain_is_one_call():
    def chain(x):
        for _ in range(5):
            x = eg.tanh(x * 1.5 + 0.25) - 0.1 * x
        return x

    f, x = eg.function(chain), eg.tensor(rng.normal(size=(100, 30)).astype("f4"))
    f(x)
    assert calls(f, x) == 1
    np.testing.assert_allclose(f(x).numpy(), chain(x).numpy(), rtol=2e-5, atol=1e-6)
    exact = eg.function(chain, exact=True)
    exact(x)
    assert calls(exact, x) == 15  # of 25: tanh stays NumPy's
    same(exact(x), chain(x))


def test_what_has_other_readers_is_stored():
    def f(x):
        y = x * 2.0
        return y + 1.0, y

    captured, x = eg.function(f), eg.ones((3,))
    captured(x)
    assert calls(captured, x) == 2
    assert [t.tolist() for t in captured(x)] == [[3.0] * 3, [2.0] * 3]


def test_broadcast_operands_and_choices():
    def f(x, b):
        z = x + b
        return eg.where((z > 0.0) & (x < 2.0), z * 3.0, -z)

    x = eg.tensor(rng.normal(size=(4, 5)))
    b = eg.tensor(rng.normal(size=5))
    captured = eg.function(f, exact=True)
    captured(x, b)
    same(captured(x, b), f(x, b))
    assert calls(captured, x, b) == 1


def test_values_changed_in_place_are_read_before():
    v = eg.Variable(np.ones(4, np.float32))

    def f(x):
        y = v * x
        v.assign(v + 1.0)
        return y + v

    captured, x = eg.function(f), eg.tensor(np.full(4, 2, np.float32))
    assert [captured(x).tolist()[0] for _ in range(3)] == [4.0, 7.0, 10.0]


def test_float64_keeps_its_digits_and_integers_their_values():
    x = eg.tensor(rng.normal(size=7))
    f = eg.function(lambda x: eg.exp(x * 0.5) / (1.0 + eg.square(x)))
    f(x)
    expected = np.exp(x.numpy() * 0.5) / (1 + x.numpy() ** 2)
    np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-15)
    n = eg.tensor([3, -2])
    g = eg.function(lambda n: (n * 2 + 1) * n)
    g(n)
    assert g(n).tolist() == [21, 6]


# One call of each op: each compiles kernels of its own.
FIRST = list({case.op.name: case for case in reversed(SMOOTH)}.values())


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_every_gradient_is_close_to_the_eager_one(case):
    captured = eg.function(lambda *xs: gradients(case, xs))
    xs = [eg.tensor(x) for x in case.arrays]
    captured(*xs)
    for got, expected in zip(captured(*xs), gradients(case, xs), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(
            got.numpy(), expected.numpy(), rtol=1e-12, atol=1e-13, equal_nan=True
        )


def test_a_kernel_that_does_not_compile_is_done_without(monkeypatch):
    def broken(kernel):
        raise KernelError("no such luck")

    monkeypatch.setattr(host_kernels, "made", broken)
    f = eg.function(lambda x: x * 2.0 + 1.0, exact=True)
    for _ in range(2):
        assert f(eg.tensor([3.0])).tolist() == [7.0]
    assert calls(f, eg.tensor([3.0])) == 2
    monkeypatch.setenv("EAGERGRAD_HOST_KERNELS", "require")
    with pytest.raises(KernelError, match="no such luck"):
        eg.function(lambda x: x * 2.0 + 1.0)(eg.tensor([3.0]))
