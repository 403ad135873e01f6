"""Loading data: the shipped digits, IDX files, and every way such a file is wrong."""

import gzip
import re

import numpy as np
import pytest

from eagergrad.data import Split, batches, load_digits, load_idx
from eagergrad.errors import DataError

FILES = {
    "train-images-idx3-ubyte": (12, 5, 4),
    "train-labels-idx1-ubyte": (12,),
    "t10k-images-idx3-ubyte": (6, 5, 4),
    "t10k-labels-idx1-ubyte": (6,),
}


def idx(array):
    """An array of uint8 as the bytes of an IDX file."""
    header = [0x0800 + array.ndim, *array.shape]
    return b"".join(n.to_bytes(4, "big") for n in header) + array.tobytes()


def example(shape):
    """Pixels that differ from each other, or labels that run through 0, 1, 2."""
    limit = 3 if len(shape) == 1 else 256
    return (np.arange(np.prod(shape)) % limit).astype(np.uint8).reshape(shape)


@pytest.fixture
def directory(tmp_path):
    """A directory with a well-formed data set of 12 + 6 images of 5x4 pixels."""
    for name, shape in FILES.items():
        (tmp_path / name).write_bytes(idx(example(shape)))
    return tmp_path


def fails(directory, *parts):
    """Loading ends with one line that has each of the parts in it."""
    with pytest.raises(DataError) as caught:
        load_idx(directory)
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(directory), "expected", "got", ";", *parts):
        assert part in message


def test_digits_are_whole_and_split_evenly():
    digits = load_digits()
    assert digits.train_images.shape == (1442, 8, 8)
    assert digits.test_images.shape == (355, 8, 8)
    for labels, smallest in ((digits.train_labels, 139), (digits.test_labels, 34)):
        assert labels.dtype == np.int64
        assert np.bincount(labels, minlength=10).min() >= smallest
    for images in (digits.train_images, digits.test_images):
        assert images.dtype == np.float32
        assert (images.min(), images.max()) == (0, 1)
    both = np.concatenate([digits.train_images, digits.test_images])
    assert len(np.unique(both.reshape(1797, 64), axis=0)) == 1797


def test_the_first_digit_is_the_zero_that_opens_the_uci_file():
    digits = load_digits()
    assert digits.train_labels[0] == 0
    np.testing.assert_array_equal(
        digits.train_images[0, :2] * 16,
        [[0, 0, 5, 13, 9, 1, 0, 0], [0, 0, 13, 15, 10, 15, 5, 0]],
    )


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_plain_and_gzip(directory, packed):
    if packed:
        for name in FILES:
            plain = directory / name
            plain.with_name(f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    split = load_idx(directory)
    assert isinstance(split, Split)
    assert (split.name, split.classes) == (directory.name, 10)
    assert split.train_images.dtype == split.test_images.dtype == np.float32
    assert split.train_labels.dtype == split.test_labels.dtype == np.int64
    np.testing.assert_array_equal(
        split.train_images, example((12, 5, 4)).astype(np.float32) / np.float32(255)
    )
    np.testing.assert_array_equal(split.test_labels, [0, 1, 2, 0, 1, 2])
    assert f"{directory.name}', 12 training and 6 test images of 5x4" in repr(split)


def test_a_gz_file_that_was_unpacked_but_not_renamed_is_read(directory):
    name = directory / "train-images-idx3-ubyte"
    name.rename(f"{name}.gz")
    assert load_idx(directory).train_images.shape == (12, 5, 4)


def test_no_directory(directory):
    fails(directory / "nowhere", "got nothing")
    fails(directory / "train-images-idx3-ubyte", "got a file")


@pytest.mark.parametrize("name", FILES)
class TestEachFile:
    def test_missing(self, directory, name):
        (directory / name).unlink()
        fails(directory, name, "got none")

    @pytest.mark.parametrize("left", [0, 3, 6])
    def test_cut_within_the_header(self, directory, name, left):
        file = directory / name
        file.write_bytes(file.read_bytes()[:left])
        fails(directory, name, "bytes" if left < 4 else "truncated")

    def test_truncated(self, directory, name):
        file = directory / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        fails(directory, name, f"{len(whole)} bytes, got {len(whole) - 1}", "truncated")

    def test_too_long(self, directory, name):
        file = directory / name
        file.write_bytes(file.read_bytes() + b"\0")
        fails(directory, name, "too long")

    def test_wrong_magic_number(self, directory, name):
        file = directory / name
        file.write_bytes(b"\0\0\x0d\x03" + file.read_bytes()[4:])
        fails(directory, name, "magic number 0x0000080", "got 0x00000d03")

    @pytest.mark.parametrize("damage", ["cut", "bits", "checksum"])
    def test_damaged_gzip(self, directory, name, damage):
        file = directory / name
        packed = bytearray(gzip.compress(file.read_bytes()))
        if damage == "cut":
            del packed[-9:]
        else:
            packed[12 if damage == "bits" else -8] ^= 0xFF
        file.unlink()
        file.with_name(f"{name}.gz").write_bytes(packed)
        fails(directory, f"{name}.gz", "gzip")

    def test_a_directory_in_its_place(self, directory, name):
        (directory / name).unlink()
        (directory / name).mkdir()
        fails(directory, name, "readable")

    def test_empty_set(self, directory, name):
        empty = np.empty((0, *FILES[name][1:]), np.uint8)
        (directory / name).write_bytes(idx(empty))
        fails(directory, name, "at least one example")


@pytest.mark.parametrize("part", ["train", "t10k"])
def test_images_and_labels_of_different_counts(directory, part):
    name = f"{part}-labels-idx1-ubyte"
    (directory / name).write_bytes(idx(example((5,))))
    count = FILES[name][0]
    fails(directory, name, f"expected {count} labels", "got 5")


@pytest.mark.parametrize("part", ["train", "t10k"])
def test_labels_out_of_range(directory, part):
    name = f"{part}-labels-idx1-ubyte"
    labels = example(FILES[name])
    labels[1] = 10
    (directory / name).write_bytes(idx(labels))
    fails(directory, name, "from 0 to 9", "got 10", "--classes")
    assert load_idx(directory, classes=11).classes == 11


def test_training_and_test_images_of_different_sizes(directory):
    (directory / "t10k-images-idx3-ubyte").write_bytes(idx(example((6, 4, 5))))
    fails(directory, "5x4 and 4x5")


def test_batches_cover_every_row_once_in_order():
    x, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    order = np.random.default_rng(0).permutation(10)
    pairs = list(batches(x, y, 4, order))
    assert [len(labels) for _, labels in pairs] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate([b for _, b in pairs]), order)
    for images, labels in pairs:
        np.testing.assert_array_equal(images, x[labels])


def test_batches_without_an_order_copy_nothing():
    x, y = np.arange(10.0), np.arange(10)
    pairs = list(batches(x, y, 6))
    assert all(a.base is x and b.base is y for a, b in pairs)
    np.testing.assert_array_equal(np.concatenate([a for a, _ in pairs]), x)


def test_batches_refuse_what_does_not_fit():
    with pytest.raises(DataError, match=re.escape("at least 1, got 0")):
        batches(np.arange(3), np.arange(3), 0)
    with pytest.raises(DataError, match="one length, got 3 and 2"):
        batches(np.arange(3), np.arange(2), 1)
