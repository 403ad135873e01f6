"""The folder that ``eagergrad train`` leaves behind.

``model.safetensors``  the trained parameters, for ``eg.load``
``metrics.csv``        a row per epoch
``loss.svg``           the same as curves, where matplotlib is installed
``run.json``           versions, device, seed, arguments, data set, final accuracy

A run is complete when it has a ``run.json``: that file is put in place last.
"""

from __future__ import annotations

import csv
import importlib.util
import itertools
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import eagergrad as eg

from .data import Split
from .training import Config, Epoch, Result

# The order in which a folder's files are put in place.
FILES = ("model.safetensors", "metrics.csv", "loss.svg", "run.json")


class Run:
    """A folder that is claimed for a run, and where its files wait for the rest."""

    def __init__(self, folder: Path, staging: Path):
        self.folder = folder
        self._staging = staging

    def write(self, config: Config, split: Split, result: Result) -> None:
        """Write every file; they appear in the folder when the claim ends well."""
        eg.save(self._staging / "model.safetensors", result.model.tree())
        _write_metrics(self._staging / "metrics.csv", result.history)
        if can_plot():
            _plot(self._staging / "loss.svg", split.name, result.history)
        about = _describe(config, split, result)
        (self._staging / "run.json").write_text(
            json.dumps(about, indent=2, default=str) + "\n"
        )


@contextmanager
def claim(folder: Path | None, name: str, force: bool = False) -> Iterator[Run]:
    """Claim ``folder`` (None: a new one under ``runs``) before the work begins.

    The files appear all together at the end.  When the work fails, a new folder is
    removed and one that ``force`` was to overwrite is left as it was.  Raises
    FileExistsError when there is such a folder and no ``force``.
    """
    folder, is_new = _make(folder, name, force)
    try:
        staging = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
        try:
            yield Run(folder, staging)
            _publish(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except BaseException:
        if is_new:
            with suppress(OSError):  # somebody else's file in it keeps the folder
                folder.rmdir()
        raise


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def _make(folder: Path | None, name: str, force: bool) -> tuple[Path, bool]:
    """The folder, and whether it was made now."""
    if folder is None:
        stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        # Runs that start within one second are told apart by a number.
        for number in itertools.count(1):
            folder = Path("runs", stem if number == 1 else f"{stem}-{number}")
            with suppress(FileExistsError):
                folder.mkdir(parents=True)
                return folder, True
    assert folder is not None
    try:
        folder.mkdir(parents=True)
        return folder, True
    except FileExistsError:
        if folder.is_dir() and force:
            return folder, False
        got, remedy = "a file", ""
        if folder.is_dir():
            got, remedy = "one that is", ", or overwrite its run with --force"
        raise FileExistsError(
            f"{folder}: expected a folder that is not there yet, got {got}; "
            f"choose another with --out{remedy}"
        ) from None


def _publish(staging: Path, folder: Path) -> None:
    """Put the files in place of an older run's, never leaving a mixture complete."""
    for name in reversed(FILES):
        (folder / name).unlink(missing_ok=True)
    for name in FILES:
        if (staging / name).exists():
            os.replace(staging / name, folder / name)


def _write_metrics(path: Path, history: list[Epoch]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(Epoch._fields)
        rows.writerows(row._replace(seconds=round(row.seconds, 3)) for row in history)


def _plot(path: Path, name: str, history: list[Epoch]) -> None:
    # A figure of its own, without pyplot: no display is asked for, no state is left.
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs = [row.epoch for row in history]
    figure = Figure(figsize=(8, 3), layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    loss.plot(epochs, [row.loss for row in history], marker=".")
    loss.set(title=f"{name}: training loss", xlabel="epoch", yscale="log")
    for part in ("train", "test"):
        values = [getattr(row, f"{part}_accuracy") for row in history]
        accuracy.plot(epochs, values, marker=".", label=part)
    accuracy.set(title=f"{name}: accuracy", xlabel="epoch")
    accuracy.legend()
    for axes in (loss, accuracy):
        ticks = MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
        axes.xaxis.set_major_locator(ticks)
    # Neither a date nor random identifiers: the same run gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "eagergrad"}):
        figure.savefig(path, metadata={"Date": None})


def _describe(config: Config, split: Split, result: Result) -> dict[str, Any]:
    versions = {
        "eagergrad": eg.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if "cupy" in sys.modules:
        versions["cupy"] = sys.modules["cupy"].__version__
    return {
        "test_accuracy": result.test_accuracy,
        "device": result.device,
        "seed": config.seed,
        "arguments": asdict(config),
        "data": {
            "name": split.name,
            "train": len(split.train_labels),
            "test": len(split.test_labels),
            "image": list(split.train_images.shape[1:]),
            "classes": split.classes,
        },
        "seconds": round(sum(row.seconds for row in result.history), 3),
        "versions": versions,
        "platform": platform.platform(),
    }
