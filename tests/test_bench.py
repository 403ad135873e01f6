"""bench/ops.py times every op of the registry; here it need only run."""

import json
import sys

import op_rows
import ops
import pytest
import timing

from eagergrad.primitive import OPS


def test_every_op_has_a_row():
    assert set(op_rows.names("small")) == set(OPS)
    assert set(op_rows.names("large")) == set(OPS) - set(op_rows.SMALL_ONLY)
    assert {*op_rows.LARGE, *op_rows.SMALL_ONLY} <= set(OPS), "these are gone"


@pytest.mark.parametrize("size", op_rows.SIZE)
def test_rows_have_their_size_and_the_op_agrees_with_its_array_function(size):
    wrong = {}
    for name in op_rows.names(size):
        row = op_rows.row(name, size)
        y = ops.on_arrays(row)()
        outputs = y if isinstance(y, tuple) else [y]
        elements = max(x.size for x in (*row.arrays, *outputs) if hasattr(x, "size"))
        if not (elements < 200 if size == "small" else elements > 60_000):
            wrong[name] = elements
        if ops.values(row, "array") != ops.values(row, "call"):
            wrong[name] = "other values"
    assert wrong == {}


def run(monkeypatch, *arguments):
    """Run the script; return its exit code."""
    monkeypatch.setattr(sys, "argv", [ops.__file__, *arguments])
    with pytest.raises(SystemExit) as ended:
        ops.main()
    return ended.value.code


@pytest.mark.slow
def test_the_table(monkeypatch, capsys, tmp_path):
    saved = {}
    monkeypatch.setattr(timing, "save", lambda name, result: saved.update(result))
    only = ["sum", "equal", "exp", "svd", "concatenate", "softmax_error"]
    fast = ["--rounds", "1", "--seconds", "0.001", "--slowest", "2", "--save"]
    code = run(monkeypatch, "--only", *only, *fast)
    printed = capsys.readouterr().out
    assert not code, printed
    assert max(map(len, printed.splitlines())) <= 80
    table = printed.partition("large arrays")[0].splitlines()[3:]
    assert [line.split()[0] for line in table if line] == [
        *("constant", "equal", "elementwise", "exp", "neural", "softmax_error"),
        *("reductions", "sum", "shapes", "concatenate", "svd", "svd"),
    ]
    assert set(saved["us"]["small"]) == set(only)
    assert set(saved["us"]["large"]) == {*only} - {"svd"}
    assert set(saved["us"]["small"]["exp"]) == {"array", "call", "tape", "back"}
    assert set(saved["us"]["small"]["equal"]) == {"array", "call", "tape"}
    assert json.loads(json.dumps(saved)) == saved


@pytest.mark.slow
def test_an_op_that_is_not_there(monkeypatch):
    message = run(monkeypatch, "--only", "exp", "no_such_op")
    assert message == "--only: no no_such_op in the registry"
