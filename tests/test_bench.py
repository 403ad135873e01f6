"""The benches of ops and of kernels; here they need only run."""

import json
import sys

import captured
import gpu
import models
import op_rows
import ops
import pytest
import sizes
import standin
import timing

import kernels
from eagergrad import host_kernels
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


def run(monkeypatch, *arguments, script=ops):
    """Run the script; return its exit code."""
    monkeypatch.setattr(sys, "argv", [script.__file__, *arguments])
    with pytest.raises(SystemExit) as ended:
        script.main()
    return ended.value.code


def test_kernels_are_called_as_gradients_call_them(monkeypatch):
    monkeypatch.setenv("EAGERGRAD_HOST_KERNELS", "auto")
    for name, case in sizes.cases("auto").items():
        if name.endswith(" 2"):
            case.make()()


@pytest.mark.parametrize("model", models.MODELS)
def test_models_train_and_captured_steps_do_as_the_eager_ones(model):
    eager, replayed = (
        captured.eagergrad_side(side)[model].values() for side in (False, True)
    )
    assert eager[2] < eager[0]
    assert timing.agree(replayed, eager)


def test_the_geometric_mean_of_claims():
    claims = [timing.Claim(case, "a", "/", "b", "<= 1") for case in "xy"]
    mean = timing.Mean(tuple(claims))
    measured = {"x": {"a": [{"best": 8.0}], "b": [{"best": 1.0}]}}
    assert mean.of(measured) is None
    measured["y"] = {"a": [{"best": 1.0}], "b": [{"best": 2.0}]}
    assert mean.of(measured) == pytest.approx(2.0)
    assert [timing.holds(claim.goal, claim.of(measured)) for claim in claims] == [
        False,
        True,
    ]


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


@pytest.mark.skipif(host_kernels.compiler() is None, reason="kernels must be compiled")
def test_the_table_of_a_gpu(monkeypatch, capsys):
    """The script runs, on what stands in for a GPU; its figures mean nothing there."""
    saved = {}
    monkeypatch.setattr(timing, "save", lambda name, result: saved.update(result))
    arguments = "--device standin --rounds 1 --size 2048 --save".split()
    monkeypatch.setattr(sys, "argv", [gpu.__file__, *arguments])
    with standin.installed():
        gpu.main()
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 80
    assert saved["GB/s"].keys() == {"copy", *gpu.KERNELS}
    assert json.loads(json.dumps(saved)) == saved


def test_without_a_gpu_there_are_no_figures(monkeypatch):
    monkeypatch.setattr(sys, "argv", [gpu.__file__, "--device", "cuda:99"])
    with pytest.raises(SystemExit, match="'cuda:99' is not available"):
        gpu.main()


def test_bytes_that_kernels_move():
    with standin.installed() as device:
        for name, moved in {
            "softplus": 2 * 4 * 2048,
            "softmax_vjp": 3 * 4 * 2048,
            "integer_cross_entropy": 4 * 2048 + 2 * (8 + 3 * 4),
            "adam": 7 * 4 * 2048,
        }.items():
            assert gpu.operands(name, 2048, device)[1] == moved


@pytest.mark.slow
def test_the_tables_of_kernels(monkeypatch, capsys):
    fast = ["--rounds", "1", "--seconds", "0.001"]
    only = ["--cases", "softplus", "--sides", "eagergrad"]
    assert not run(monkeypatch, *fast, *only, script=kernels)
    assert "softplus" in (printed := capsys.readouterr().out)
    saved = []
    monkeypatch.setattr(timing, "save", lambda name, result: saved.append(result))
    only = ["--only", "layer_norm", "--save"]
    assert not run(monkeypatch, *fast, *only, script=sizes)
    assert json.loads(json.dumps(saved)) == saved
    assert saved
    assert "layer_norm rule" in (table := capsys.readouterr().out)
    assert max(map(len, (printed + table).splitlines())) <= 80
