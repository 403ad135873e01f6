"""The wheel: built as a release is, then used where only its dependencies exist."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def run(*command, cwd):
    """Return what a command prints, shielded from the source tree."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(folder):
    """Return the paths below a folder, relative to it, but for compiled Python."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix()
        for path in paths
        if "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the sdist and, from it, the wheel: what the sdist lacks fails below."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation"]  # so without a network
    run(*build, "--outdir", out, ROOT, cwd=out)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bin(wheel, tmp_path_factory):
    """Install the wheel alone in a new environment and return its programs' folder."""
    home = tmp_path_factory.mktemp("venv")
    # Without pip, which takes seconds to install: the running one can do it.
    venv.create(home, with_pip=False, symlinks=True)
    install = ["install", "--quiet", "--no-index", "--no-deps", wheel]
    pip = [sys.executable, "-m", "pip", "--python", home / "bin/python"]
    run(*pip, *install, cwd=home)
    # NumPy and its like come from here. A folder named in a .pth file stands last in
    # sys.path and its own .pth files are not read, so an editable install stays unseen.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("platlib"))
    return home / "bin"


def test_wheel_holds_the_package_and_the_kernels(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {f"eagergrad/{name}" for name in files(ROOT / "eagergrad")} <= held
    kernels = {f"eagergrad/_kernels/{name}" for name in files(ROOT / "kernels")}
    assert kernels == {name for name in held if name.startswith("eagergrad/_kernels/")}
    assert kernels
    assert "eagergrad/py.typed" in held
    assert any(name.startswith("eagergrad/data_files/digits.") for name in held)


def test_wheel_is_small(wheel):
    assert wheel.stat().st_size < 1_000_000


def test_wheel_differentiates(bin, tmp_path):
    program = """
import importlib.resources
import eagergrad as eg

x = eg.Variable(3.0)
with eg.GradientTape() as tape:
    y = x * x
package = importlib.resources.files(eg)
kernels = [file for file in (package / "_kernels").iterdir() if file.is_file()]
print(float(tape.gradient(y, x)))
print(eg.__version__)
print(all(file.read_bytes() for file in kernels))
print(eg.__file__)
"""
    printed = run(bin / "python", "-c", program, cwd=tmp_path)
    gradient, version, readable, path = printed.splitlines()
    assert gradient == "6.0"
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert readable == "True"
    assert Path(path).is_relative_to(bin.parent)


def test_wheel_trains_on_the_digits_it_carries(bin, tmp_path):
    options = ["--epochs", "1", "--device", "cpu", "--out", tmp_path / "run"]
    printed = run(bin / "eagergrad", "train", *options, cwd=tmp_path)
    assert re.fullmatch(r"test accuracy: [01]\.\d+", printed.splitlines()[-1])
