"""Train a small network on labelled images: the work of ``eagergrad train``.

``train`` reads from top to bottom as a program of one's own would; ``cli.py`` parses
and prints around it, ``runs.py`` writes the result down.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import eagergrad as eg

from .data import Split, batches, load_digits, load_idx
from .device import resolve
from .errors import NaNError


class MLP:
    """A multilayer perceptron: affine maps with a relu between each two.

    ``sizes`` are the widths from input to output.  The weights are He's: normal with
    the variance 2 / inputs, so that the signal keeps its size through the relus.

    >>> MLP([64, 128, 10])(eg.zeros((5, 64))).shape
    (5, 10)
    """

    def __init__(self, sizes: Iterable[int]):
        widths = list(sizes)
        self.weights = [
            eg.Variable(eg.random.normal(0, math.sqrt(2 / n), (n, m), dtype="float32"))
            for n, m in itertools.pairwise(widths)
        ]
        self.biases = [eg.Variable(eg.zeros(m, dtype="float32")) for m in widths[1:]]

    def __call__(self, x: Any) -> Any:
        """The logits of a batch: (n, inputs) -> (n, classes)."""
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = eg.dense(x, weight, bias, eg.relu)
        return eg.dense(x, *last)

    def tree(self) -> dict[str, Any]:
        """The parameters as ``eg.save`` takes them."""
        return {"weights": self.weights, "biases": self.biases}


MODELS: dict[str, Callable[[int, int], MLP]] = {
    "mlp": lambda pixels, classes: MLP([pixels, 128, 128, classes]),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What to train, on what, and how; ValueError for a value that cannot work.

    ``data`` is a directory of IDX files, None the digits shipped with the package;
    ``device`` None the best one present.
    """

    data: Path | None = None
    classes: int = 10
    model: str = "mlp"
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 3e-3
    seed: int = 0
    device: str | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("classes", 2),
            ("epochs", 1),
            ("batch_size", 1),
            ("seed", 0),
        ):
            if (got := getattr(self, name)) < least:
                raise ValueError(f"{name}: expected at least {least}, got {got}")
        if self.seed >= 2**64:
            raise ValueError(f"seed: expected less than 2**64, got {self.seed}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(
                "learning_rate: expected a positive finite number, "
                f"got {self.learning_rate}"
            )
        if self.model not in MODELS:
            raise ValueError(
                f"model: expected one of {', '.join(MODELS)}, got {self.model!r}"
            )

    def load(self) -> Split:
        """The data set to train on; DataError when it is not well-formed."""
        return load_digits() if self.data is None else load_idx(self.data, self.classes)


class Epoch(NamedTuple):
    """A row of the table that a training prints: one pass over the training part."""

    epoch: int
    loss: float
    train_accuracy: float
    test_accuracy: float
    seconds: float


class Result(NamedTuple):
    """What a training leaves behind."""

    model: MLP
    device: str
    history: list[Epoch]

    @property
    def test_accuracy(self) -> float:
        """The share of the test examples that the trained model gets right."""
        return self.history[-1].test_accuracy


def train(
    config: Config,
    split: Split | None = None,
    on_step: Callable[[], object] = lambda: None,
    on_epoch: Callable[[Epoch], object] = lambda row: None,
) -> Result:
    """Train ``config.model`` with Adam, the learning rate falling along half a cosine.

    ``split`` spares loading ``config``'s data again; ``on_step`` is called after each
    update, ``on_epoch`` after each epoch with its row.  The same config gives the same
    numbers.  Raises NaNError when the loss stops being a finite number.
    """
    split = split or config.load()
    # Overflow shows in the loss, which is looked at: it needs no warning of NumPy's.
    with resolve(config.device) as device, np.errstate(over="ignore", invalid="ignore"):
        eg.random.seed(config.seed)
        images, labels = _on_device(split.train_images, split.train_labels)
        held_out = _on_device(split.test_images, split.test_labels)
        examples, pixels = images.shape
        model = MODELS[config.model](pixels, split.classes)
        optimizer = eg.optim.Adam(learning_rate=config.learning_rate)

        @eg.implicit_value_and_gradients
        def loss_and_gradients(x: Any, y: Any) -> Any:
            return eg.softmax_cross_entropy(model(x), y, mean=True)

        steps = config.epochs * math.ceil(examples / config.batch_size)
        step = 0
        history = []
        for epoch in range(1, config.epochs + 1):
            start = time.perf_counter()
            # The sum stays on the device: reading a loss would wait for the GPU.
            total: Any = 0.0
            order = eg.random.permutation(examples)
            for x, y in batches(images, labels, config.batch_size, order):
                fall = (1 + math.cos(math.pi * step / steps)) / 2
                optimizer.learning_rate = config.learning_rate * fall
                loss, gradients = loss_and_gradients(x, y)
                optimizer.apply_gradients(gradients)
                total = total + loss * len(x)
                step += 1
                on_step()
            mean_loss = total.item() / examples
            if not math.isfinite(mean_loss):
                raise NaNError(
                    f"training: expected a finite loss, got {mean_loss} in epoch "
                    f"{epoch}; lower the learning rate ({config.learning_rate:g})"
                )
            history.append(
                Epoch(
                    epoch,
                    mean_loss,
                    accuracy(model, images, labels),
                    accuracy(model, *held_out),
                    time.perf_counter() - start,
                )
            )
            on_epoch(history[-1])
    return Result(model, str(device), history)


def accuracy(model: Callable[[Any], Any], images: Any, labels: Any) -> float:
    """The share of the images whose largest logit is at their label."""
    hits: Any = 0
    for x, y in batches(images, labels, 4096):  # bounds the memory of activations
        hits = hits + eg.sum(eg.argmax(model(x), axis=1) == y)
    return float(hits.item() / len(images))


def _on_device(images: Any, labels: Any) -> tuple[Any, Any]:
    """Images as rows of pixels, and labels, on the current device."""
    return eg.tensor(images.reshape(len(images), -1)), eg.tensor(labels)
