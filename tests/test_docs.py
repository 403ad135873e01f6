"""docs/ops.md is what the registry says."""

import runpy
from pathlib import Path

import pytest
from test_complex import ELSEWHERE, REAL_ONLY

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def make_ops():
    return runpy.run_path(str(DOCS / "make_ops.py"))


def test_the_table_of_operations_is_up_to_date(make_ops):
    assert (DOCS / "ops.md").read_text() == make_ops["table"](), (
        "run: python docs/make_ops.py"
    )


def test_the_table_is_right_about_what_the_tests_know(make_ops):
    """A row, as the table tells it, beside what is known of it by other means."""
    rows = {
        name: value
        for _, family in make_ops["families"]()
        for name, (value, _) in family.items()
    }

    def cells(name):
        columns = ("derivative", "dtypes", "kernels")
        return tuple(make_ops[column](name, rows[name]) for column in columns)

    assert cells("silu") == ("own rule", "real complex", "`silu` `silu_dx`")
    assert cells("softmax") == ("own rule", "real complex", "`softmax` `softmax_vjp`")
    assert cells("relu6") == ("`relu` `minimum`", "real", "")
    assert cells("argmax") == ("none", "real complex", "")
    assert cells("invert") == ("none", "", "")
    assert cells("sign")[0].startswith("none; of complex numbers `")
    for name in rows:
        row = name.rpartition(".")[2]
        if cells(name)[0] == "own rule" and row not in ELSEWHERE:
            assert cells(name)[1] == "real" + " complex" * (row not in REAL_ONLY), name
