"""Fusion: one kernel for elementwise instructions, the values as of eager ones."""

import numpy as np
import pytest
from op_cases import SMOOTH
from test_function import gradients, same

import eagergrad as eg
from eagergrad import host_kernels
from eagergrad.errors import KernelError
from eagergrad.stages import MOST_KEPT, Line, is_long, stages

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


def deep(x):
    y = eg.tanh(x * 1.5 + 0.25)
    small = y < 0.5
    z = eg.where(small, eg.exp(-y) * y, y)
    return eg.where(small & (z > -0.5), eg.log1p(eg.exp(z) + x * x), y + z)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_chain_of_functions_has_the_bits_of_one_loop(dtype):
    few = rng.normal(size=100).astype(dtype)
    f, x = eg.function(deep), eg.tensor(few)
    many = eg.tensor(np.tile(few, 41)[:-7])
    f(x), f(many)
    assert calls(f, many) == 1
    np.testing.assert_allclose(f(x).numpy(), deep(x).numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        f(many).numpy(), np.tile(f(x).numpy(), 41)[:-7], strict=True
    )


def line(name, value):
    return Line(name, "T", value, is_long(value))


def test_stages_keep_what_later_ones_read():
    lines = [
        line("t0", "x * T(2.0)"),
        line("t1", "exp(t0)"),
        line("t2", "-t1"),
        line("t3", "tanh(t2)"),
        line("t4", "t3 * t1"),
    ]
    text = "\n".join(stages(lines, "T x", {"y": "t4"}))
    first, second = text.split("Places<1>")
    assert "STAGES = 2, KEPT = 1;" in first
    assert "kept[0][i] = t1;" in first
    assert "t2" not in first
    assert second.index("t1 = kept[0][i];") < second.index("t2 = -t1;")
    assert second.rstrip(" }\n").endswith("y = t4;")
    assert stages(lines[:3], "T x", {"y": "t2"}) == []


def test_more_than_the_cache_holds_is_not_kept():
    count = MOST_KEPT + 1
    lines = [line(f"t{i}", f"exp(x{i})") for i in range(count)]
    lines.append(line("u", "+".join(f"tanh(t{i})" for i in range(count))))
    assert stages(lines, "T x", {"y": "u"}) == []
    assert stages([*lines[1:-1], line("u", lines[-1].value)], "T x", {"y": "u"})


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


X, Y = (rng.normal(size=(100, 300)).astype("f4") for _ in "xy")


@pytest.mark.parametrize(
    ("f", "count"),
    [
        (lambda x, y: eg.sum((x - y) ** 2), 3),  # and that of the parts is two
        (lambda x, y: eg.sum(x * 2.0 + 1.0, keepdims=True), 3),
        (lambda x, y: eg.mean(eg.square(x - y), axis=-1), 2),
        (lambda x, y: eg.max(x * y, axis=1, keepdims=True), 1),
        (lambda x, y: eg.max(eg.abs(x - y)), 3),
        (lambda x, y: eg.sum(eg.exp(x) * y[0], axis=-1), 1),
        (lambda x, y: eg.sum(eg.tanh(x) * y[:, :1], axis=1), 1),
        (lambda x, y: eg.sum(eg.tanh(x) * eg.sum(y), axis=1), 3),
    ],
)
def test_sums_and_maxima_are_made_with_what_they_fold(f, count):
    captured, x, y = eg.function(f), eg.tensor(X), eg.tensor(Y)
    captured(y, x)
    got, expected = captured(x, y), f(x, y)
    assert calls(captured, x, y) == count
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    scale = np.abs(expected.numpy()).max()
    np.testing.assert_allclose(got.numpy(), expected.numpy(), atol=1e-6 * scale)
    same(captured(x, y), got)
    exact = eg.function(f, exact=True)
    exact(y, x)
    same(exact(x, y), expected)


def summed_and_read(y):
    return eg.sum(y) + y[0, 0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: eg.sum(x.T * 2.0),  # would have to be laid out anew
        lambda x: eg.sum(x * eg.ones((300,))),
        lambda x: eg.sum(x * 2.0, axis=0),
        lambda x: summed_and_read(x * 2.0),
    ],
)
def test_other_sums_are_as_they_were(f):
    captured, x = eg.function(f), eg.tensor(X)
    captured(eg.tensor(Y))
    np.testing.assert_allclose(captured(x).numpy(), f(x).numpy(), rtol=2e-6)
    assert "+sum" not in str(captured.program(x))


def test_nan_and_infinity_are_folded_as_by_numpy():
    captured = eg.function(lambda x: (eg.max(x * 1.0, axis=-1), eg.sum(x * 1.0)))
    captured(eg.zeros((2, 70)))
    x = np.zeros((2, 70))
    x[0, 3], x[1] = np.nan, -np.inf
    largest, total = captured(eg.tensor(x))
    assert largest.tolist()[1] == -np.inf
    assert np.isnan(largest.numpy()[0])
    assert np.isnan(total.item())
