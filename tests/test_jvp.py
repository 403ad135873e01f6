"""Forward mode over the registry: every op's JVP is the transpose of its VJP."""

import numpy as np
import pytest
from op_cases import SMOOTH

import eagergrad as eg


def directions(arrays, seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=np.shape(x)).astype(np.asarray(x).dtype) for x in arrays]


def outputs_of(y):
    return [t for t in eg.nest.flatten(y) if t.dtype.kind in "fc"]


def dot(xs, ys):
    return sum(float(np.vdot(x, y).real) for x, y in zip(xs, ys, strict=True))


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_jvp_is_the_transpose_of_the_vjp(case):
    primals = [eg.tensor(x) for x in case.source_arrays]
    tangents = directions(case.source_arrays, 1)
    with (
        eg.ForwardAccumulator(primals, [eg.tensor(t) for t in tangents]) as acc,
        eg.GradientTape() as tape,
    ):
        tape.watch(primals)
        outputs = outputs_of(case.of_sources(*primals))
    moved = [acc.jvp(y, "zero").numpy() for y in outputs]
    cotangents = directions([y.numpy() for y in outputs], 2)
    seeds = [eg.tensor(g) for g in cotangents]
    pulled = tape.gradient(outputs, primals, seeds, "zero")
    expected = dot([g.numpy() for g in pulled], tangents)
    assert dot(moved, cotangents) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_second_derivative_is_the_same_both_ways(case):
    """Forward over reverse equals reverse over forward."""
    primals = [eg.tensor(x) for x in case.source_arrays]
    tangents = [eg.tensor(t) for t in directions(case.source_arrays, 3)]

    def value():
        return sum(eg.sum(y * y) for y in outputs_of(case.of_sources(*primals)))

    with eg.ForwardAccumulator(primals, tangents) as acc:
        with eg.GradientTape() as tape:
            tape.watch(primals)
            total = value()
        grads = tape.gradient(total, primals, unconnected_gradients="zero")
    forward_over_reverse = [acc.jvp(g, "zero").numpy() for g in grads]
    with eg.GradientTape() as tape:
        tape.watch(primals)
        with eg.ForwardAccumulator(primals, tangents) as acc:
            total = value()
        slope = acc.jvp(total, "zero")
    reverse_over_forward = tape.gradient(slope, primals, unconnected_gradients="zero")
    for a, b in zip(forward_over_reverse, reverse_over_forward, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-9, atol=1e-9)
