"""docs/ops.md is what the registry says."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_table_of_operations_is_up_to_date():
    table = runpy.run_path(str(DOCS / "make_ops.py"))["table"]()
    assert (DOCS / "ops.md").read_text() == table, "run: python docs/make_ops.py"
