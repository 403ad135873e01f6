"""The command ``eagergrad``: parses arguments and prints; the work is done elsewhere.

Exit codes: 0 for success, 2 for bad input with one line on stderr, 130 for Ctrl-C, 141
when nobody reads the output any longer.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

import eagergrad as eg

from . import cuda_kernels, gemm, host_kernels, runs
from .device import report, resolve
from .errors import EagergradError, KernelError
from .training import MODELS, Config, Epoch, train

WIDTH = 80


class UsageError(Exception):
    """Arguments that cannot be used."""


class _Parser(argparse.ArgumentParser):
    """Leaves it to ``main`` to print an error, in one line and without the usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (None: the process's); the exit code."""
    try:
        arguments, unknown = _parser().parse_known_args(argv)
        if unknown:
            raise UsageError(
                f"unrecognized arguments: {' '.join(unknown)}; "
                f"see eagergrad {arguments.command} --help"
            )
        commands = {"train": _train, "doctor": _doctor, "warmup": _warmup}
        commands[arguments.command](arguments)
        sys.stdout.flush()  # so that what fails in writing fails here
    except (UsageError, EagergradError) as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader has seen enough, as `head` has.  Python would write what is left
        # when it exits, and fail again: let it go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # what a shell reports of a program that SIGPIPE ended
    except OSError as error:
        return _fail(
            f"{error.filename}: {error.strerror}" if error.filename else str(error)
        )
    except KeyboardInterrupt:
        print("eagergrad: interrupted, nothing was written", file=sys.stderr)
        return 130
    return 0


def _fail(message: str) -> int:
    print("eagergrad:", " ".join(message.split()), file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="eagergrad", description="Gradients of Python code.")
    parser.add_argument(
        "--version", action="version", version=f"eagergrad {eg.__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", help="say what is installed and usable here")
    command = commands.add_parser(
        "warmup", help="compile the kernels now, not at first use"
    )
    command.add_argument(
        "--arch",
        type=int,
        action="append",
        choices=cuda_kernels.ARCHITECTURES,
        help="of a GPU, as 90; may be repeated (those of the GPUs here, or all)",
    )
    command = commands.add_parser(
        "train", help="train a small network on handwritten digits or your images"
    )
    _add_training(command)
    return parser


def _add_training(command: argparse.ArgumentParser) -> None:
    default = Config()
    add = command.add_argument
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder of IDX files, as MNIST's (the digits shipped with the package)",
    )
    add(
        "--classes",
        type=int,
        default=default.classes,
        metavar="N",
        help="number of classes in --data (%(default)s)",
    )
    add(
        "--model",
        choices=MODELS,
        default=default.model,
        help="network to train (%(default)s)",
    )
    add(
        "--epochs",
        type=int,
        default=default.epochs,
        metavar="N",
        help="passes over the training images (%(default)s)",
    )
    add(
        "--batch-size",
        type=int,
        default=default.batch_size,
        metavar="N",
        help="images a step (%(default)s)",
    )
    add(
        "--learning-rate",
        type=float,
        default=default.learning_rate,
        metavar="RATE",
        help="Adam's at the start; it falls to 0 along half a cosine (%(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=default.seed,
        metavar="N",
        help="the same seed gives the same numbers (%(default)s)",
    )
    add("--device", metavar="NAME", help="cpu, cuda, cuda:1 ... (the best one present)")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the results (a new one under runs)",
    )
    add("--force", action="store_true", help="overwrite an older run in --out")


def _train(arguments: argparse.Namespace) -> None:
    options = {name: getattr(arguments, name) for name in Config.__dataclass_fields__}
    try:
        config = Config(**options)
    except ValueError as error:
        raise UsageError(f"argument --{str(error).replace('_', '-', 1)}") from None
    device = resolve(config.device)
    split = config.load()
    with runs.claim(arguments.out, split.name, arguments.force) as run:
        print(
            f"{split.name}: {len(split.train_labels)} training and "
            f"{len(split.test_labels)} test images, {split.classes} classes\n"
            f"{config.model} on {device}, batches of {config.batch_size}, "
            f"seed {config.seed}\n\n"
            "epoch      loss  train accuracy  test accuracy  seconds",
            flush=True,
        )
        # disable=None: no bar where stderr is not a terminal; the table says enough.
        with tqdm(
            total=config.epochs * -(-len(split.train_labels) // config.batch_size),
            unit=" steps",
            leave=False,
            disable=None,
        ) as bar:
            result = train(config, split, bar.update, _print_row)
        run.write(config, split, result)
    print()
    if not runs.can_plot():
        print("loss.svg was not drawn: pip install 'eagergrad[plot]'")
    print(f"run folder: {run.folder}")
    print(f"test accuracy: {result.test_accuracy:.4f}")


def _print_row(row: Epoch) -> None:
    loss = f"{row.loss:.4f}" if row.loss < 1e4 else f"{row.loss:.2e}"
    with tqdm.external_write_mode():  # takes the bar away while the row is printed
        print(
            f"{row.epoch:5}{loss:>10}{row.train_accuracy:16.4f}"
            f"{row.test_accuracy:15.4f}{row.seconds:9.2f}",
            flush=True,
        )


def _doctor(arguments: argparse.Namespace) -> None:
    rows = [
        ("eagergrad", eg.__version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        *((name, _version(name)) for name in ("safetensors", "tqdm")),
        *((name, _version(name)) for name in ("matplotlib", "ml_dtypes", "scipy")),
        ("cupy", _version("cupy", "cupy-cuda12x", "cupy-cuda13x")),
        *report(),
        *host_kernels.report(),
        *cuda_kernels.report(),
        *gemm.report(),
    ]
    indent = max(len(label) for label, _ in rows) + 2
    for label, text in rows:
        print(
            textwrap.fill(
                text,
                WIDTH,
                initial_indent=label.ljust(indent),
                subsequent_indent=" " * indent,
                break_long_words=False,
            )
        )


def _warmup(arguments: argparse.Namespace) -> None:
    kinds: dict[str, Callable[[], int]] = {
        "host kernels": host_kernels.warm_up,
        "CUDA modules": lambda: cuda_kernels.warm_up(
            arguments.arch or cuda_kernels.present()
        ),
    }
    if arguments.arch:
        del kinds["host kernels"]
    problems = []
    for kind, warm_up in kinds.items():
        try:
            print(f"{kind}: {warm_up()} compiled, the others were there", flush=True)
        except KernelError as error:
            problems.append(str(error))
    if len(problems) == len(kinds):
        raise KernelError("; ".join(problems))
    for problem in problems:
        print(problem)


def _version(*packages: str) -> str:
    """The versions of those installed of packages that provide the same module."""
    found = []
    for package in packages:
        with suppress(PackageNotFoundError):
            found.append(f"{version(package)}{f' ({package})' if packages[1:] else ''}")
    return ", ".join(found) or "not installed"
