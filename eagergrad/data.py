"""Data sets of small grey images: the digits shipped here, and MNIST's IDX files.

Everything is checked when it is loaded, so that a truncated download is one clear
``DataError`` and not a model that learns nothing.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DataError

_DIGITS = Path(__file__).with_name("data_files") / "digits.npz"
_GZIP = b"\x1f\x8b"
# The last byte of IDX's magic number is the number of dimensions, 0x08 means uint8.
_IMAGES, _LABELS = 0x00000803, 0x00000801


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Labelled grey images, split in a training and a test part.

    Images are ``(n, height, width)`` float32 in [0, 1]; labels ``(n,)`` int64 in
    ``range(classes)``.
    """

    name: str
    classes: int
    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]

    def __repr__(self) -> str:
        height, width = self.train_images.shape[1:]
        return (
            f"Split({self.name!r}, {len(self.train_labels)} training and "
            f"{len(self.test_labels)} test images of {height}x{width}, "
            f"{self.classes} classes)"
        )


def load_digits() -> Split:
    """Load the 1,797 handwritten digits that are shipped with the package.

    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine
    Learning Repository, 1998, CC BY 4.0, https://doi.org/10.24432/C50P49; the split is
    described in ``data_files/README.md``.

    >>> load_digits()
    Split('digits', 1442 training and 355 test images of 8x8, 10 classes)
    """
    with np.load(_DIGITS, allow_pickle=False) as arrays:
        return Split(
            "digits",
            10,
            _unit(arrays["train_images"], 16),
            arrays["train_labels"].astype(np.int64),
            _unit(arrays["test_images"], 16),
            arrays["test_labels"].astype(np.int64),
        )


def load_idx(directory: str | Path, classes: int = 10) -> Split:
    """Load a data set in MNIST's IDX format from a directory.

    The directory holds ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
    ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``, each plain or as ``.gz``.
    The format does not say how many classes there are: labels are checked against
    ``classes``.  Raises DataError, naming the file, for whatever is wrong with one.

    Format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise DataError(
            f"{folder}: expected a directory with the four files of an IDX data set, "
            f"got {'a file' if folder.exists() else 'nothing'}; check the path"
        )
    train_images, train_labels = _read_pair(folder, "train", classes)
    test_images, test_labels = _read_pair(folder, "t10k", classes)
    if train_images.shape[1:] != test_images.shape[1:]:
        raise DataError(
            f"{folder}: expected training and test images of one size, got "
            f"{_size(train_images)} and {_size(test_images)}; "
            "take both from the same data set"
        )
    return Split(
        folder.resolve().name,
        classes,
        _unit(train_images, 255),
        train_labels.astype(np.int64),
        _unit(test_images, 255),
        test_labels.astype(np.int64),
    )


def batches(
    x: Any, y: Any, batch_size: int, order: Any = None
) -> Iterator[tuple[Any, Any]]:
    """Cut ``x`` and ``y`` into batches: pairs of ``batch_size`` rows, the last shorter.

    ``x`` and ``y`` are arrays or Tensors of one length.  ``order``, a permutation of
    the row numbers, is cut into pieces too, so that each batch copies its own rows and
    nothing else; on a GPU keep it on the same device.  Without it the batches are
    slices.

    >>> for x, y in batches(np.arange(3), np.array([7, 8, 9]), 2, np.array([2, 0, 1])):
    ...     print(x, y)
    [2 0] [9 7]
    [1] [8]
    """
    if batch_size < 1:
        raise DataError(f"batches: expected batch_size of at least 1, got {batch_size}")
    if len(x) != len(y):
        raise DataError(
            f"batches: expected x and y of one length, got {len(x)} and {len(y)}"
        )
    n = len(x) if order is None else len(order)
    rows = (slice(start, start + batch_size) for start in range(0, n, batch_size))
    if order is None:
        return ((x[at], y[at]) for at in rows)
    picks = (order[at] for at in rows)
    return ((x[at], y[at]) for at in picks)


def _unit(pixels: NDArray[np.uint8], white: int) -> NDArray[np.float32]:
    """Pixels as float32 in [0, 1]."""
    return np.divide(pixels, np.float32(white), dtype=np.float32)


def _size(images: NDArray[Any]) -> str:
    return "x".join(map(str, images.shape[1:]))


def _read_pair(
    folder: Path, part: str, classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The images and labels of one part, checked against each other."""
    image_file, images = _read_idx(folder, f"{part}-images-idx3-ubyte", _IMAGES)
    label_file, labels = _read_idx(folder, f"{part}-labels-idx1-ubyte", _LABELS)
    if len(images) != len(labels):
        raise DataError(
            f"{label_file}: expected {len(images)} labels, as many as there are images "
            f"in {image_file.name}, got {len(labels)}; "
            "take both from the same data set"
        )
    if labels.max() >= classes:
        raise DataError(
            f"{label_file}: expected labels from 0 to {classes - 1}, "
            f"got {labels.max()}; if there are more, pass classes=N (--classes N)"
        )
    return images, labels


def _read_idx(folder: Path, name: str, magic: int) -> tuple[Path, NDArray[np.uint8]]:
    """The path and the array of one IDX file, looked for plain and as ``.gz``."""
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.exists()), None)
    if path is None:
        raise DataError(
            f"{folder / name}: expected this file, plain or .gz, got none; "
            "put the data set's four files there"
        )
    data = _read(path)
    found = int.from_bytes(data[:4], "big")
    if len(data) < 4 or found != magic:
        raise DataError(
            f"{path}: expected an IDX file with the magic number {magic:#010x}, "
            f"got {f'{found:#010x}' if len(data) >= 4 else f'{len(data)} bytes'}; "
            "check that it is the right file, or fetch it again"
        )
    header = 4 + 4 * (magic & 0xFF)
    shape = tuple(
        int.from_bytes(data[at : at + 4], "big") for at in range(4, header, 4)
    )
    if len(data) >= header and 0 in shape:
        raise DataError(
            f"{path}: expected at least one example, got the shape {shape}; "
            "fetch the file again"
        )
    expected = header + math.prod(shape)
    if len(data) != expected:
        raise DataError(
            f"{path}: expected {expected} bytes, got {len(data)}; "
            f"the file is {'truncated' if len(data) < expected else 'too long'}, "
            "fetch it again"
        )
    return path, np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _read(path: Path) -> bytes:
    """The file's bytes, unpacked when they are gzip's, whatever the file is called."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: expected a whole gzip file, got a damaged one ({error}); "
            "fetch it again"
        ) from None
    except OSError as error:
        raise DataError(
            f"{path}: expected a readable file, got: {error.strerror}; check it"
        ) from None
