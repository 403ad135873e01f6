"""What README.md says is so: its programs, its commands, its picture of the house."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from test_imports import FILES, floor_of

import eagergrad as eg
from eagergrad.primitive import OPS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks():
    """Return (language, text, number of the line it stands on) of each fenced block."""
    return [
        (match[1], match[2], README.count("\n", 0, match.start()) + 1)
        for match in FENCED.finditer(README)
    ]


def programs():
    """Return (code, what it prints, line) of each python block."""
    found = []
    for language, text, line in blocks():
        if language == "python":
            found.append([text, "", line])
        elif language == "text":
            assert found, f"README.md:{line}: printed by no program"
            assert not found[-1][1], f"README.md:{line}: printed by the same program"
            found[-1][1] = text
    return found


@pytest.fixture
def clean():
    """Forget the op that the README declares, and its random numbers."""
    ops, state = dict(OPS), eg.random.GENERATOR.state
    yield
    OPS.clear()
    OPS.update(ops)
    eg.random.GENERATOR.state = state


@pytest.mark.usefixtures("clean")
def test_programs_print_what_stands_beneath_them():
    """They run in order and share their names, as if typed one after the other."""
    names = {"__name__": "__main__"}
    for code, expected, line in programs():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "program.py", "exec"), names)
        assert printed.getvalue() == expected, f"README.md:{line}"


def test_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"train", "test"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_the_house_is_drawn_as_it_stands():
    (drawing,) = [text for _, text, _ in blocks() if text.startswith("13 ")]
    drawn = set()
    for line in drawing.splitlines():
        floor, names = re.fullmatch(
            r" ?(\d+)  (\S+(?:  \S+)*)(?:   .*)?", line
        ).groups()
        drawn |= {(int(floor), name.replace("/", ".")) for name in names.split()}
    assert drawn == {(floor_of(name), name) for name in FILES if name != "ops"}
