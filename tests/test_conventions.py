"""docs/conventions.md is true: each row of its tables is run, in every mode.

An op that is not smooth has a row there; one that is smooth has a name in SMOOTH here.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from op_cases import UNARY

import eagergrad as eg
from eagergrad.primitive import OPS

PAGE = Path(__file__).parents[1] / "docs" / "conventions.md"
WORDS = {"inf": np.inf, "nan": np.nan, "none": None, "any": ...}
NAMES = {**vars(eg.special), **vars(eg.linalg), **vars(eg), **WORDS}


class Row(NamedTuple):
    """A row of the page: a program, where, and what comes out."""

    program: str
    at: dict
    value: object
    gradient: tuple

    def __str__(self):
        places = ", ".join(f"{name}={value}" for name, value in self.at.items())
        return f"{self.program}, {places}"

    def sources(self):
        """The arguments as tensors of float64 or complex128."""
        return {
            name: eg.tensor(np.multiply(value, 1.0)) for name, value in self.at.items()
        }

    def run(self, sources):
        return eval(self.program, NAMES | sources)


def read(line):
    """The row that a line of a table holds."""
    program, at, value, gradient = [cell.strip() for cell in line.split("|")[1:5]]
    gradient = eval(gradient, WORDS)
    return Row(
        program.strip("`"),
        eval(f"dict({at})", WORDS),
        eval(value, WORDS),
        gradient if isinstance(gradient, tuple) else (gradient,),
    )


ROWS = [read(line) for line in PAGE.read_text().splitlines() if line[:3] == "| `"]


def agree(got, expected):
    """The same numbers, to the digits that the page gives; or both None."""
    assert (got is None) == (expected is None)
    if got is not None:
        assert got.shape == np.shape(expected)
        rounding = 1e-14 if got.ndim == 2 else 1e-30  # of LAPACK; else small is not 0
        np.testing.assert_allclose(got.numpy(), expected, 1e-5, rounding)


@pytest.mark.parametrize("row", ROWS, ids=str)
@np.errstate(all="ignore")
def test_value_and_gradient(row):
    sources = row.sources()
    with eg.GradientTape() as tape:
        tape.watch(sources)
        y = row.run(sources)
    if row.value is not ...:
        agree(y, row.value)
    for g, expected in zip(
        tape.gradient(y, list(sources.values())), row.gradient, strict=True
    ):
        agree(g, expected)


@pytest.mark.parametrize("row", ROWS, ids=str)
@np.errstate(all="ignore")
def test_gradient_under_an_outer_tape(row):
    """The same rules on Tensors, for second derivatives."""
    sources = row.sources()
    with eg.GradientTape() as outer:
        outer.watch(sources)
        with eg.GradientTape() as tape:
            tape.watch(sources)
            y = row.run(sources)
        grads = tape.gradient(y, list(sources.values()))
    for g, expected in zip(grads, row.gradient, strict=True):
        agree(g, expected)


def has_nan(row):
    return any(g is not None and np.isnan(g).any() for g in row.gradient)


# Forward mode multiplies in another order, which may avoid a nan.
@pytest.mark.parametrize("row", [r for r in ROWS if not has_nan(r)], ids=str)
@np.errstate(all="ignore")
def test_forward_mode(row):
    """The tangent for a direction of ones, summed, is the gradient's sum."""
    sources = row.sources()
    for (name, x), expected in zip(sources.items(), row.gradient, strict=True):
        with eg.ForwardAccumulator(x, eg.ones_like(x)) as accumulator:
            y = row.run(sources | {name: x})
        tangent = accumulator.jvp(y)
        total = None if tangent is None else eg.sum(tangent)
        agree(total, None if expected is None else np.sum(expected))


# ------------------------------------------------------------------------ every op

# Smooth wherever they have a value: inv and solve raise where they have none.
SMOOTH = """
    arcsinh arctan conj cos cosh deg2rad density erf erfc erfcx exp2 expm expm1 i0 i1
    inv ndtr negative positive qr rad2deg sin sinh solve split tan tanhshrink
""".split()
# Steps of rules and of other ops: what they do at an edge is in the row of the op.
STEPS = """
    bessel_quotient cofactor_slope cofactors gate inverse_deviation normalize quotient
    recurrence shifted sigmoid_slope sinc_slope softmax_error softmax_seen unit_leg
""".split()


def recorded(row):
    """The names of the ops that a row records."""
    sources = row.sources()
    with eg.GradientTape() as tape:
        tape.watch(sources)
        sources["result"] = row.run(sources)  # what nobody holds leaves the tape
    return {entry.name for entry in tape.entries()}


@np.errstate(all="ignore")
def test_every_op_is_smooth_or_on_the_page():
    on_the_page = set().union(*map(recorded, ROWS))
    # linear and bilinear ops are smooth by their form, constant ones are flat
    open_ones = {
        op.name
        for op in OPS.values()
        if op.recorded and op.form in ("elementwise", "primitive")
    }
    undecided = open_ones - {*on_the_page, *SMOOTH, *STEPS}
    assert sorted(undecided) == [], "give these a row, or add them to SMOOTH"
    assert {*SMOOTH, *STEPS} <= open_ones, "these are gone"


@pytest.mark.parametrize("op", [op for op in UNARY if op.name in SMOOTH], ids=repr)
def test_a_smooth_op_has_one_slope(op):
    x, step = np.array([-1.0, 0.0, 1.0]), 1e-7
    before, here, after = [
        eg.gradients_function(op.entry)(x + h)[0].numpy() for h in (-step, 0, step)
    ]
    np.testing.assert_allclose(before, here, 1e-5, 1e-5)
    np.testing.assert_allclose(after, here, 1e-5, 1e-5)
