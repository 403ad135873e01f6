"""Checkpoints: a tree of tensors in one safetensors file, written whole or not at all.

The tensors are named by their path, as in `layers.0.w`, so that any reader of
safetensors finds them; the containers and scalars around them are JSON in the file's
metadata. There is no pickle: reading a file never runs code from it.
"""

from __future__ import annotations

import errno
import importlib
import json
import math
import os
from contextlib import suppress
from typing import Any

import numpy as np

from .device import Device
from .errors import CheckpointError, DTypeError
from .tensor import Tensor, to_buffer, wrap

__all__ = ["load", "save"]

_TREE = "eagergrad.tree"  # the metadata entry that describes the tree
_DEEPEST = 100  # levels of nesting; also what stops at a list that contains itself

# What safetensors calls the dtypes that it and NumPy, or ml_dtypes, have in common.
_DTYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Save a tree of tensors, Variables and arrays to a safetensors file.

    A tree is a leaf, or a dict with string keys, a list or a tuple of trees; leaves
    may also be None, bool, int, float and str. The file appears under `path` only
    when it is complete and on the disk: whatever fails, the file that was there
    before is intact. DTypeError (a TypeError) names the place in the tree of anything
    else, and of dtypes that safetensors lacks, before a byte is written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save(f"{folder}/model", {"layers": [(Tensor([1.0, 2.0]), None)], "step": 3})
    ...     load(f"{folder}/model", device="cpu")["layers"][0][0].numpy()
    array([1., 2.], dtype=float32)
    """
    from safetensors.numpy import save as serialize

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    description = _describe(tree, (), arrays)
    _write(path, serialize(arrays, metadata={_TREE: json.dumps(description)}))


def load(path: str | os.PathLike[str], device: Device | str | None = None) -> Any:
    """Load what `save` wrote: the same containers and scalars, tensors on `device`.

    Variables and arrays come back as Tensors. A safetensors file from elsewhere gives
    a flat dict, name -> Tensor. CheckpointError (a ValueError) when the file is not
    safetensors or is damaged, FileNotFoundError when there is none.
    """
    from safetensors import SafetensorError, deserialize

    with open(path, "rb") as file:
        data = file.read()
    try:
        entries = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise CheckpointError(
            f"load: {os.fspath(path)} is not a whole safetensors file: {error}"
        ) from error
    tensors = {
        name: wrap(to_buffer(_to_array(path, name, entry), None, device, name="load"))
        for name, entry in sorted(entries, key=lambda item: item[0])  # else random
    }
    # deserialize has checked the header, but does not return the metadata in it.
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    description = header.get("__metadata__", {}).get(_TREE)
    if description is None:
        return tensors
    try:
        tree = _rebuild(json.loads(description), tensors)
        if tensors:
            raise ValueError(f"it has no place for {sorted(tensors)}")
    except (LookupError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"load: {os.fspath(path)}: the metadata {_TREE!r} does not describe the "
            f"tensors in the file: {error}"
        ) from error
    return tree


def _describe(
    node: Any, path: tuple[str, ...], arrays: dict[str, np.ndarray[Any, Any]]
) -> Any:
    """The JSON for `node`, which stands at `path`; its tensors go to `arrays`."""
    if len(path) > _DEEPEST:
        raise DTypeError(
            f"save: the tree is more than {_DEEPEST} levels deep at {_name(path)[:60]} "
            "...; does it contain itself?"
        )
    if type(node) is dict:
        for key in node:
            if not isinstance(key, str):
                raise DTypeError(
                    f"save: at {_place(path)}: the keys of a dict must be str, got "
                    f"{key!r} ({type(key).__name__})"
                )
        return {"dict": {k: _describe(v, (*path, k), arrays) for k, v in node.items()}}
    if type(node) in (list, tuple):
        items = [_describe(v, (*path, str(i)), arrays) for i, v in enumerate(node)]
        return items if type(node) is list else {"tuple": items}
    if type(node) is float and not math.isfinite(node):
        return {"float": repr(node)}  # JSON has neither nan nor inf
    if node is None or type(node) in (bool, int, float, str):
        return node
    name = _name(path)
    arrays[name] = _leaf(node, path)
    return {"tensor": name}


def _leaf(node: Any, path: tuple[str, ...]) -> np.ndarray[Any, Any]:
    if isinstance(node, Tensor):
        node = node.numpy()
    if not isinstance(node, (np.ndarray, np.generic)):
        raise DTypeError(
            f"save: at {_place(path)}: expected a tensor, an array, a Python scalar, "
            f"None, or a dict, list or tuple of these, got {type(node).__name__}"
        )
    array = np.asarray(node, order="C")  # ascontiguousarray would make 0-d 1-d
    if array.dtype.name not in _DTYPES.values():
        raise DTypeError(
            f"save: at {_place(path)}: safetensors has no dtype {array.dtype}, "
            f"it has {', '.join(_DTYPES.values())}"
        )
    return array


def _name(path: tuple[str, ...]) -> str:
    """The dotted path. Keys are escaped, so that no two paths have the same name."""
    keys = (key.replace("\\", "\\\\").replace(".", "\\.") for key in path)
    name = ".".join(keys).encode(errors="backslashreplace").decode()
    # The one name that safetensors keeps for itself, and would write all the same.
    return "\\__metadata__" if name == "__metadata__" else name


def _place(path: tuple[str, ...]) -> str:
    return _name(path) or "the root"


def _write(path: str | os.PathLike[str], data: bytes) -> None:
    """Put a file with `data` at `path`, in one step that cannot be seen half done."""
    target = os.path.realpath(path)  # of a symbolic link, what it points to
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):  # open would name the temporary file instead
        raise FileNotFoundError(errno.ENOENT, "save: no such folder", folder)
    temporary = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
    # "x" creates the file as any other, so that the umask says who may read it;
    # tempfile's would be for the owner alone.
    file = open(temporary, "xb")
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if hasattr(os, "O_DIRECTORY"):  # not on Windows, which cannot sync a folder
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)  # the new name is on the disk only now
        finally:
            os.close(descriptor)


def _to_array(path: Any, name: str, entry: dict[str, Any]) -> np.ndarray[Any, Any]:
    if entry["dtype"] == "BF16":
        with suppress(ImportError):
            importlib.import_module("ml_dtypes")  # makes NumPy know bfloat16
    try:
        dtype = np.dtype(_DTYPES[entry["dtype"]])
    except (LookupError, TypeError) as error:
        remedy = "; install ml_dtypes" if entry["dtype"] == "BF16" else ""
        raise CheckpointError(
            f"load: {os.fspath(path)}: NumPy has no dtype {entry['dtype']}, which "
            f"tensor {name!r} has{remedy}"
        ) from error
    return np.frombuffer(entry["data"], dtype).reshape(entry["shape"])


def _rebuild(node: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree that `node` describes; takes the tensors it uses out of `tensors`."""
    match node:
        case None | bool() | int() | float() | str():
            return node
        case list():
            return [_rebuild(child, tensors) for child in node]
        case {"tuple": list(children)}:
            return tuple(_rebuild(child, tensors) for child in children)
        case {"dict": dict(children)}:
            return {key: _rebuild(child, tensors) for key, child in children.items()}
        case {"float": str(text)}:
            return float(text)
        case {"tensor": str(name)} if name in tensors:
            return tensors.pop(name)
    raise ValueError(f"it asks for {json.dumps(node)[:60]}")
