"""Checkpoints: what comes back, what is refused, and what a failure leaves behind."""

import json
import math
import os
import stat
import struct
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from eagergrad import checkpoint
from eagergrad.checkpoint import load, save
from eagergrad.errors import CheckpointError, DeviceError
from eagergrad.tensor import Tensor, Variable

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 float32 float64 complex64"
).split()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def same(a, b):
    """Equal in containers, in the types of scalars, in dtype, shape and values."""
    if isinstance(a, Tensor):
        x, y = a.numpy(), b.numpy() if isinstance(b, Tensor) else np.asarray(b)
        return x.dtype == y.dtype and x.shape == y.shape and np.array_equal(x, y)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def raw(header, body=b""):
    """A file with this header, written by hand."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


# What comes back


def test_a_model_comes_back(path):
    tree = {
        "layers": [
            {"w": Variable(np.ones((2, 3), np.float32)), "b": None},
            {"w": Tensor([1.0, 2.0]), "b": np.arange(4)},
        ],
        "optimizer": ("adam", 1e-3, 7, True, [], {}, ()),
        "α.β": np.float64(0.5),
    }
    save(path, tree)
    assert same(load(path), tree)


def test_names_are_dotted_paths_for_other_readers(path):
    save(path, {"layers": [{"w": Tensor([1.0])}], "b": (np.arange(2), 3)})
    assert sorted(safetensors.numpy.load_file(path)) == ["b.0", "layers.0.w"]


def test_tensors_come_back_as_tensors_on_the_device_asked_for(path):
    save(path, [Variable(1.0), np.float32(2), Tensor(3)])
    for tensor in load(path, device="cpu"):
        assert type(tensor) is Tensor
        assert str(tensor.device) == "cpu"
        assert tensor.shape == ()
    with pytest.raises(DeviceError):
        load(path, device="abacus")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3)])
def test_every_dtype_and_shape(path, dtype, shape):
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    save(path, array)
    assert same(load(path), array)


def test_values_survive_bit_by_bit(path):
    array = np.array([np.nan, -0.0, np.inf, 5e-324, np.pi])
    save(path, {"x": array})
    assert load(path)["x"].numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12)[::-2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float32(2), (2, 2)),
        np.arange(4, dtype=">f8"),
        np.arange(6, dtype=">i4").reshape(2, 3).T,
    ],
    ids=["transposed", "reversed", "fortran", "broadcast", "big-endian", "both"],
)
def test_memory_order_is_no_matter(path, array):
    save(path, [array])
    (loaded,) = load(path)
    assert same(loaded, array.astype(array.dtype.newbyteorder("=")))
    assert loaded.dtype.isnative


def test_bfloat16(path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(3).astype(ml_dtypes.bfloat16)
    save(path, {"x": array})
    assert same(load(path)["x"], array)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        True,
        -3,
        2**80,
        0.1,
        -0.0,
        math.nan,
        -math.inf,
        "text \ud800 \0",
        [],
        {},
        (),
        [[()], {"": {"": 0}}],
        {"float": "nan", "tensor": "x", "dict": {"tuple": [1]}},
    ],
    ids=repr,
)
def test_scalars_and_empty_containers(path, tree):
    save(path, tree)
    loaded = load(path)
    assert same(loaded, tree)
    assert str(loaded) == str(tree)  # tells -0.0 from 0.0


def test_metadata_is_strict_json(path):
    save(path, [math.nan, math.inf, -math.inf, "α", 1e300])
    with safetensors.safe_open(path, "np") as file:
        text = file.metadata()["eagergrad.tree"]
    json.loads(text, parse_constant=pytest.fail)  # called for NaN and Infinity
    assert text.isascii()


@pytest.mark.parametrize(
    "tree",
    [
        {"a.b": np.zeros(1), "a": {"b": np.ones(1)}},
        {"a\\.b": np.zeros(1), "a.b": np.ones(1), "a\\": {"b": np.full(1, 2.0)}},
        {"": np.zeros(1), ".": np.ones(1), "a": {"": np.full(1, 2.0)}},
        {"__metadata__": np.ones(2), "\\__metadata__": np.zeros(2)},
        {"\ud800": np.ones(2), "\\ud800": np.zeros(2), "?": np.zeros(1)},
        {"0": np.ones(1), "1": [np.zeros(1)], "1.0": np.full(1, 2.0)},
    ],
    ids=repr,
)
def test_keys_never_clash(path, tree):
    save(path, tree)
    assert same(load(path), {key: tree[key] for key in tree})


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.integers(0, 3).map(np.arange)
)
trees = st.recursive(
    leaves,
    lambda children: (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(st.text("a.\\_ ", max_size=2), children, max_size=3)
    ),
    max_leaves=10,
)


@given(trees)
@settings(max_examples=25, deadline=None)  # each example waits for the disk
def test_every_tree_comes_back(tmp_path_factory, tree):
    path = tmp_path_factory.getbasetemp() / "tree.safetensors"
    save(path, tree)
    assert same(load(path), tree)


def test_equal_trees_give_equal_files(tmp_path):
    tree = {"b": np.ones(2), "a": [np.zeros(3, np.int8), 1.5]}
    save(tmp_path / "one", tree)
    save(tmp_path / "two", tree)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_files_of_others_are_a_flat_dict(path, metadata):
    arrays = {"b.w": np.ones((2, 2), np.float16), "a": np.arange(3)}
    safetensors.numpy.save_file(arrays, path, metadata=metadata)
    loaded = load(path)
    assert list(loaded) == ["a", "b.w"]
    assert all(same(loaded[name], arrays[name]) for name in arrays)


# What save refuses, before it writes


class Float(float):
    pass


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (object(), r"at layers\.1\.w: expected a tensor.* got object"),
        ({1, 2}, "got set"),
        (b"bytes", "got bytes"),
        (1j, "got complex"),
        (Float(1), "got Float"),
        (OrderedDict(a=1), "got OrderedDict"),
        (namedtuple("Point", "x y")(1, 2), "got Point"),
        (range(3), "got range"),
        (np.array([object()]), "no dtype object"),
        (np.array(["text"]), "no dtype <U4"),
        (
            np.ones(2, "complex128"),
            r"at layers\.1\.w: safetensors has no dtype complex128",
        ),
        (np.zeros(2, "f4,i4"), "no dtype"),
        (np.datetime64("2020-01-01"), "no dtype datetime64"),
        ({1: 2.0}, r"at layers\.1\.w: the keys of a dict must be str, got 1 \(int\)"),
        ({None: 1, "a": 2}, "must be str, got None"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_other_leaves_are_refused_by_place(path, leaf, message):
    with pytest.raises(TypeError, match=message):
        save(path, {"layers": [Tensor(1.0), {"w": leaf}]})
    assert os.listdir(path.parent) == []


def test_the_root_has_a_name_too(path):
    with pytest.raises(TypeError, match="at the root: expected a tensor"):
        save(path, object())


def test_trees_that_contain_themselves_are_refused(path):
    tree = [Tensor(1.0)]
    tree += [tree, tree]
    with pytest.raises(TypeError, match=r"more than 100 levels deep at 1\.1.*itself"):
        save(path, tree)


def test_a_hundred_levels_are_fine(path):
    tree = 1
    for _ in range(50):
        tree = {"a": (tree,)}
    save(path, tree)
    assert load(path) == tree


# What a failure leaves behind


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_keeps_the_previous_file(path, monkeypatch, function, error):
    save(path, {"x": 1})
    before = path.read_bytes()

    def fail(*args):
        raise error

    monkeypatch.setattr(checkpoint.os, function, fail)
    with pytest.raises(type(error)):
        save(path, {"x": 2})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_data_is_on_the_disk_before_the_name_and_the_name_after(path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def log_fsync(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        size = os.fstat(descriptor).st_size
        calls.append("folder" if is_folder else ("file", size))
        fsync(descriptor)

    def log_replace(source, target):
        assert os.path.dirname(source) == os.path.dirname(target)
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(checkpoint.os, "fsync", log_fsync)
    monkeypatch.setattr(checkpoint.os, "replace", log_replace)
    save(path, np.arange(3))
    assert calls == [("file", path.stat().st_size), "replace", "folder"]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_the_umask_says_who_may_read(path, umask, mode):
    before = os.umask(umask)
    try:
        save(path, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_symbolic_link_stays_one(path):
    link = path.with_name("latest")
    link.symlink_to(path)
    save(link, 1)
    assert link.is_symlink()
    assert load(path) == load(str(link)) == 1


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*/absent'"):
        save(tmp_path / "absent" / "model", 1)


def test_a_folder_is_not_replaced(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(IsADirectoryError):
        save(tmp_path / "model", 1)
    assert os.listdir(tmp_path) == ["model"]


# What load refuses


def test_a_missing_file_is_not_found(path):
    with pytest.raises(FileNotFoundError, match=path.name):
        load(path)


FLOATS = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"abc", id="shorter than the header's length"),
        pytest.param(b"PK\x03\x04" + bytes(60), id="zip"),
        pytest.param(struct.pack("<Q", 10**9) + b"{}", id="over-long header"),
        pytest.param(struct.pack("<Q", 2**64 - 1) + b"{}", id="endless header"),
        pytest.param(raw(b"not JSON"), id="not JSON"),
        pytest.param(raw(b"[" * 100_000), id="deep header"),
        pytest.param(raw(FLOATS), id="no data"),
        pytest.param(raw(FLOATS, bytes(9)), id="too much data"),
        pytest.param(raw({"x": FLOATS["x"] | {"shape": [9]}}, bytes(8)), id="shape"),
        pytest.param(raw({"x": FLOATS["x"] | {"dtype": "X9"}}, bytes(8)), id="dtype"),
        pytest.param(raw({"x": [1]}, bytes(8)), id="not an entry"),
    ],
)
def test_other_files_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{path.name} is not a whole .*file: .+"):
        load(path)


def test_a_truncated_checkpoint_is_refused(path):
    save(path, {"x": np.ones(100), "y": [1]})
    whole = path.read_bytes()
    for length in (0, 5, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=path.name):
            load(path)


def test_an_npz_is_refused_without_running_it(path):
    with open(path, "wb") as file:
        np.savez(file, x=np.array([object()], dtype=object))
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        load(path)


def test_dtypes_that_numpy_lacks_are_named(path, monkeypatch):
    def entry(dtype):
        return {"x": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * size]}}

    size = 1
    path.write_bytes(raw(entry("F8_E4M3"), bytes(2)))
    with pytest.raises(
        CheckpointError, match=r"no dtype F8_E4M3, which tensor 'x' has$"
    ):
        load(path)
    size = 2
    path.write_bytes(raw(entry("BF16"), bytes(4)))
    monkeypatch.setitem(checkpoint._DTYPES, "BF16", "no such dtype")
    with pytest.raises(CheckpointError, match=r"BF16.*install ml_dtypes"):
        load(path)


@pytest.mark.parametrize(
    "tree",
    [
        "not JSON",
        "{}",
        '{"tensor": "absent"}',
        '{"tensor": []}',
        '{"set": []}',
        '{"tuple": 3}',
        '[{"tensor": "x"}, {"tensor": "x"}]',
        "[]",
        '{"float": "much"}',
        "[" * 100_000,
    ],
    ids=lambda tree: tree[:20],
)
def test_trees_that_do_not_fit_the_tensors_are_refused(path, tree):
    metadata = {"eagergrad.tree": tree}
    safetensors.numpy.save_file({"x": np.ones(2)}, path, metadata=metadata)
    with pytest.raises(CheckpointError, match=f"{path.name}: the metadata"):
        load(path)
