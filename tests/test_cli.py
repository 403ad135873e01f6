"""The command line: real trainings, the run folder, and one line for bad input."""

import csv
import gzip
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import eagergrad as eg
from eagergrad import cli, cuda_kernels, host_kernels, runs
from eagergrad.cli import main
from eagergrad.data import load_digits
from eagergrad.errors import KernelError, NaNError
from eagergrad.training import MLP, Config, Epoch, accuracy, train

QUICK = ["train", "--device", "cpu", "--epochs", "1"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Run each test in an empty folder, where its runs may go."""
    monkeypatch.chdir(tmp_path)


def fails(capsys, *argv, code=2):
    """Run a command that fails; return its one line of stderr."""
    assert main([*map(str, argv)]) == code
    line = capsys.readouterr().err
    assert line.startswith("eagergrad: ")
    assert line.endswith("\n")
    assert line.count("\n") == 1
    return line


def columns(folder):
    """Return the metrics of a run without the last column, the seconds."""
    lines = (folder / "metrics.csv").read_text().splitlines()
    return [line.rpartition(",")[0] for line in lines]


def write_idx(folder, images, labels, classes=3):
    """Write a tiny data set: images of one grey per class, the labels gzipped."""
    folder.mkdir()
    for part in ("train", "t10k"):
        y = (np.arange(labels) % classes).astype(np.uint8)
        x = np.repeat(np.arange(images) % classes * 100, 12).astype(np.uint8)
        for kind, array, shape in (
            ("images-idx3", x, (images, 3, 4)),
            ("labels-idx1", y, (labels,)),
        ):
            head = b"".join(n.to_bytes(4, "big") for n in (0x800 + len(shape), *shape))
            name = f"{part}-{kind}-ubyte"
            if kind == "labels-idx1":
                (folder / f"{name}.gz").write_bytes(
                    gzip.compress(head + array.tobytes())
                )
            else:
                (folder / name).write_bytes(head + array.tobytes())
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Train on the digits as a user would, once; return what was printed and where."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    command = [sys.executable, "-m", "eagergrad", "train", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, folder


def test_digits_are_learned(digits):
    printed, _ = digits
    lines = printed.splitlines()
    assert re.fullmatch(r"test accuracy: 0\.\d{4}", lines[-1])
    assert float(lines[-1].split()[-1]) >= 0.97
    assert sum(bool(re.match(r" +\d+ +\d", line)) for line in lines) == Config().epochs
    assert max(map(len, (line for line in lines if "run folder" not in line))) <= 80


def test_the_run_folder_is_complete(digits):
    printed, folder = digits
    assert {file.name for file in folder.iterdir()} == set(runs.FILES)
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == [*range(1, Config().epochs + 1)]
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"]) / 5
    assert (folder / "loss.svg").read_text().startswith("<?xml")
    about = json.loads((folder / "run.json").read_text())
    assert about["versions"]["numpy"] == np.__version__
    assert about["versions"]["eagergrad"] == eg.__version__
    assert about["seed"] == about["arguments"]["seed"] == 0
    assert about["test_accuracy"] == float(rows[-1]["test_accuracy"])
    assert f"{about['test_accuracy']:.4f}" in printed.splitlines()[-1]
    assert about["data"] == {
        "name": "digits",
        "train": 1442,
        "test": 355,
        "image": [8, 8],
        "classes": 10,
    }


def test_the_saved_model_has_the_accuracy_that_was_printed(digits):
    _, folder = digits
    about = json.loads((folder / "run.json").read_text())
    model = MLP([64, 128, 128, 10])
    saved = eg.load(folder / "model.safetensors")
    for kind in ("weights", "biases"):
        for variable, value in zip(model.tree()[kind], saved[kind], strict=True):
            variable.assign(value)
    split = load_digits()
    images = eg.tensor(split.test_images.reshape(-1, 64))
    got = accuracy(model, images, eg.tensor(split.test_labels))
    assert got == about["test_accuracy"]


def test_the_same_seed_gives_the_same_numbers(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert main([*QUICK, "--seed", str(seed), "--out", name]) == 0
    a, b, c = (tmp_path / name for name in "abc")
    assert columns(a) == columns(b) != columns(c)
    model = "model.safetensors"
    assert (a / model).read_bytes() == (b / model).read_bytes()


def test_idx_files_are_trained_on(tmp_path, capsys):
    data = write_idx(tmp_path / "greys", 50, 50)
    options = ["--data", str(data), "--classes", "3", "--batch-size", "8"]
    options += ["--epochs", "20", "--learning-rate", "0.01", "--device", "cpu"]
    assert main(["train", *options]) == 0
    out = capsys.readouterr().out
    assert "greys: 50 training and 50 test images, 3 classes" in out
    assert out.endswith("\ntest accuracy: 1.0000\n")
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"greys-\d{8}-\d{6}", folder.name)
    assert f"run folder: runs/{folder.name}\n" in out


def test_runs_of_one_second_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(runs.time, "strftime", lambda form: "20260102-030405")
    for _ in range(3):
        assert main(QUICK) == 0
    names = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    stem = "digits-20260102-030405"
    assert names == [stem, f"{stem}-2", f"{stem}-3"]


def test_a_folder_is_overwritten_only_when_forced(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*QUICK, "--out", str(folder)]) == 0
    before = columns(folder)
    (folder / "notes.txt").write_text("mine")
    line = fails(capsys, *QUICK, "--seed", 1, "--out", folder)
    assert str(folder) in line
    assert "--force" in line
    assert columns(folder) == before
    assert main([*QUICK, "--seed", "1", "--out", str(folder), "--force"]) == 0
    assert columns(folder) != before
    assert {file.name for file in folder.iterdir()} == {*runs.FILES, "notes.txt"}


def test_a_file_in_place_of_the_folder_is_never_overwritten(tmp_path, capsys):
    file = tmp_path / "run"
    file.write_text("mine")
    line = fails(capsys, *QUICK, "--out", file, "--force")
    assert f"{file}: expected a folder that is not there yet, got a file" in line
    assert str(file) in fails(capsys, *QUICK, "--out", file / "below")
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("error", "code"),
    [(OSError(28, "No space left on device", "x"), 2), (KeyboardInterrupt(), 130)],
)
def test_a_run_that_fails_leaves_nothing(tmp_path, capsys, monkeypatch, error, code):
    def save(path, tree):
        raise error

    assert main([*QUICK, "--out", "old"]) == 0
    before = {file: file.read_bytes() for file in (tmp_path / "old").iterdir()}
    capsys.readouterr()
    monkeypatch.setattr(runs.eg, "save", save)
    fails(capsys, *QUICK, "--out", "new", code=code)
    fails(capsys, *QUICK, "--out", "old", "--force", code=code)
    assert not (tmp_path / "new").exists()
    assert {file: file.read_bytes() for file in (tmp_path / "old").iterdir()} == before


def test_without_matplotlib_there_is_a_note(tmp_path, capsys, monkeypatch):
    assert main([*QUICK, "--out", "run"]) == 0
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*QUICK, "--out", "run", "--force"]) == 0
    assert "eagergrad[plot]" in capsys.readouterr().out
    # The curves of the run before are gone too: they are not this run's.
    assert not (tmp_path / "run" / "loss.svg").exists()
    assert (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--batch-size", "0"], ["--batch-size", "at least 1", "got 0"]),
        (["--batch-size", "many"], ["--batch-size", "many"]),
        (["--epochs", "-1"], ["--epochs", "at least 1", "got -1"]),
        (["--seed", "-1"], ["--seed", "at least 0"]),
        (["--seed", str(2**64)], ["--seed", "less than 2**64"]),
        (["--classes", "1"], ["--classes", "at least 2"]),
        (["--learning-rate", "0"], ["--learning-rate", "positive"]),
        (["--learning-rate", "nan"], ["--learning-rate", "got nan"]),
        (["--model", "oracle"], ["--model", "oracle", "mlp"]),
        (["--device", "tpu"], ["tpu", "cpu"]),
        (["--device", "cuda:x"], ["cuda:x"]),
        (["--device", "cuda:99"], ["cuda:99"]),
        (["--data", "nowhere"], ["nowhere"]),
        (["--what"], ["--what"]),
    ],
    ids=lambda value: " ".join(value) if value and "--" in value[0] else "",
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, capsys, options, parts):
    line = fails(capsys, "train", *options)
    for part in parts:
        assert part in line
    assert [*tmp_path.iterdir()] == []


def test_unknown_options_name_the_help_of_the_command(capsys):
    line = fails(capsys, "train", "--what")
    assert line.endswith("see eagergrad train --help\n")
    line = fails(capsys, "train", "--epochs", "many")
    assert line.endswith("see eagergrad train --help\n")
    assert fails(capsys, "doctor", "x").endswith("see eagergrad doctor --help\n")


@pytest.mark.parametrize(
    ("loss", "text"),
    [(0.01234, "    0.0123"), (9999.9, " 9999.9000"), (12345678.0, "  1.23e+07")],
)
def test_a_huge_loss_keeps_the_columns(capsys, loss, text):
    cli._print_row(Epoch(3, loss, 0.5, 0.25, 1.5))
    row = capsys.readouterr().out
    assert row == f"    3{text}          0.5000         0.2500     1.50\n"


def test_a_reader_that_leaves_is_no_error(tmp_path):
    command = [sys.executable, "-m", "eagergrad", *QUICK, "--out", "run"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141
    assert not (tmp_path / "run").exists()


def test_ticks_are_whole_epochs(tmp_path):
    for epochs in (1, 2, 7, 12, 30):
        history = [Epoch(i + 1, 1 / (i + 1), 0.5, 0.5, 0.1) for i in range(epochs)]
        runs._plot(tmp_path / "loss.svg", "digits", history)
        text = re.findall("<!-- (.*) -->", (tmp_path / "loss.svg").read_text())
        ticks = text[: text.index("epoch")]
        assert ticks
        assert all(tick.isdigit() for tick in ticks)


def test_commands_that_are_none(capsys):
    assert "COMMAND" in fails(capsys)
    assert "dance" in fails(capsys, "dance")


def test_bad_data_is_one_line(tmp_path, capsys):
    data = write_idx(tmp_path / "uneven", 6, 5)
    assert "6 labels" in fails(capsys, "train", "--data", data)
    data = write_idx(tmp_path / "greys", 6, 6)
    assert "--classes" in fails(capsys, "train", "--data", data, "--classes", 2)
    images = data / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    assert "truncated" in fails(capsys, "train", "--data", data)
    images.write_bytes(b"not IDX")
    assert "magic number" in fails(capsys, "train", "--data", data)
    images.unlink()
    assert images.name in fails(capsys, "train", "--data", data)


def test_a_loss_that_is_not_a_number_is_one_line(tmp_path, capsys):
    line = fails(capsys, *QUICK, "--learning-rate", "1e30", "--out", "run")
    assert "learning rate" in line
    assert not (tmp_path / "run").exists()
    with pytest.raises(NaNError):
        train(Config(learning_rate=1e30, epochs=1, device="cpu"))


def test_ctrl_c_is_one_line(tmp_path, capsys, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "train", interrupted)
    assert "interrupted" in fails(capsys, *QUICK, "--out", "run", code=130)
    assert not (tmp_path / "run").exists()


def test_doctor_says_what_is_here(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for part in (eg.__version__, np.__version__, "python", "safetensors", "cuda"):
        assert part in out
    labels = [line.split("  ")[0] for line in out.splitlines()]
    packages = "matplotlib ml_dtypes scipy cupy NVRTC".split()
    for label in (*packages, "host kernels", "CUDA kernels"):
        assert labels.count(label) == 1
    assert max(map(len, out.splitlines())) <= 80


@pytest.fixture
def compilers(monkeypatch):
    """What warmup would compile: lists of architectures, or None for the host."""
    compiled = []
    monkeypatch.setattr(host_kernels, "warm_up", lambda: compiled.append(None) or 3)
    monkeypatch.setattr(
        cuda_kernels, "warm_up", lambda archs: compiled.append(archs) or len(archs)
    )
    monkeypatch.setattr(cuda_kernels, "cuda_problem", lambda: "there is none")
    return compiled


def test_warmup_compiles_what_it_can(capsys, compilers, monkeypatch):
    assert main(["warmup"]) == 0
    assert compilers == [None, [75, 80, 86, 89, 90, 100, 120]]
    assert capsys.readouterr().out == (
        "host kernels: 3 compiled, the others were there\n"
        "CUDA modules: 7 compiled, the others were there\n"
    )
    monkeypatch.setattr(host_kernels, "warm_up", missing)
    assert main(["warmup"]) == 0
    assert capsys.readouterr().out == (
        "CUDA modules: 7 compiled, the others were there\nno compiler\n"
    )
    monkeypatch.setattr(cuda_kernels, "warm_up", missing)
    assert fails(capsys, "warmup") == "eagergrad: no compiler; no compiler\n"


def missing(*architectures):
    raise KernelError("no compiler")


def test_warmup_for_other_machines(capsys, compilers):
    assert main(["warmup", "--arch", "75", "--arch", "90"]) == 0
    assert compilers == [[75, 90]]
    assert "invalid choice: 7" in fails(capsys, "warmup", "--arch", "7")


def test_doctor_imports_nothing_that_it_reports(tmp_path):
    program = """
import sys
from eagergrad.cli import main
main(["doctor"])
print({"matplotlib", "ml_dtypes", "scipy", "cupy"} & set(sys.modules))
"""
    env = {"EAGERGRAD_DEVICE": "cpu", "PATH": ""}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert done.stdout.endswith("\nset()\n") or "cupy" in done.stdout


def test_version(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["--version"])
    assert exit.value.code == 0
    assert capsys.readouterr().out == f"eagergrad {eg.__version__}\n"
