"""The programs in examples/ print what stands in the comment at their end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
NUMBER = re.compile(r"-?\d+\.\d+|nan")

# A trained network depends on the last bit of every matrix product, and so on the BLAS.
TOLERANCE = {"train_digits.py": 0.02}


def expected_output(path):
    """Return the comment after the line `# Output:`, without its marks."""
    _, _, comment = path.read_text("utf-8").partition("\n# Output:\n")
    return [line.removeprefix("#").removeprefix(" ") for line in comment.splitlines()]


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name
)
def test_example_prints_its_comment(path, tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "error", path],
        cwd=tmp_path,
        env={**os.environ, "EAGERGRAD_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stderr == ""
    printed, expected = run.stdout.splitlines(), expected_output(path)
    if path.name not in TOLERANCE:
        assert printed == expected
        return
    for line, comment in zip(printed, expected, strict=True):
        assert NUMBER.split(line) == NUMBER.split(comment)
        numbers = [float(text) for text in NUMBER.findall(line)]
        wanted = [float(text) for text in NUMBER.findall(comment)]
        assert numbers == pytest.approx(wanted, abs=TOLERANCE[path.name])


def test_there_are_examples():
    assert {path.name for path in FOLDER.glob("*.py")} >= {
        "custom_gradient.py",
        "hvp.py",
        "train_digits.py",
    }
