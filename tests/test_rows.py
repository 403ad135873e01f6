"""Jacobians: many rows in one sweep equal the rows one by one, for every op."""

import numpy as np
import pytest
from op_cases import SMOOTH

import eagergrad as eg


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_rows_together_equal_rows_one_by_one(case):
    primals = [eg.tensor(x) for x in case.source_arrays]
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(primals)
        outputs = eg.nest.flatten(case.of_sources(*primals))
    for y in outputs:
        if y.dtype.kind not in "fc":
            continue
        together = tape.jacobian(y, primals, "zero")
        singly = tape.jacobian(y, primals, "zero", experimental_use_pfor=False)
        for a, b, x in zip(together, singly, primals, strict=True):
            assert a.shape == b.shape == (*y.shape, *x.shape)
            assert a.dtype == b.dtype == x.dtype
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_chunks_change_nothing(chunk):
    x = eg.arange(6.0).reshape(2, 3)
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = eg.exp(x) @ eg.ones((3, 2))
    jacobian = tape.jacobian(y, x, parallel_iterations=chunk)
    expected = np.zeros((2, 2, 2, 3), np.float32)
    for i in range(2):
        expected[i, :, i, :] = np.exp(x.numpy()[i])
    np.testing.assert_allclose(jacobian.numpy(), expected, rtol=1e-6)


def test_jacobian_of_a_jacobian():
    x = eg.tensor([1.0, 2.0])
    with eg.GradientTape() as outer:
        outer.watch(x)
        with eg.GradientTape() as inner:
            inner.watch(x)
            y = x * x * x
        first = inner.jacobian(y, x)
    second = outer.jacobian(first, x)
    expected = np.zeros((2, 2, 2))
    expected[0, 0, 0], expected[1, 1, 1] = 6.0, 12.0
    np.testing.assert_allclose(second.numpy(), expected)


def test_jacobian_through_functions_with_their_own_gradient():
    @eg.custom_gradient
    def cube(x):
        return x * x * x, lambda dy: 3.0 * dy * x * x

    x = eg.tensor([1.0, 2.0])
    with eg.GradientTape() as tape:
        tape.watch(x)
        y = cube(x)
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), [[3.0, 0.0], [0.0, 12.0]])
