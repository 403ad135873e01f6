"""Who may import whom, and what `import eagergrad` costs and offers."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.special

import eagergrad

PACKAGE = Path(__file__).parents[1] / "eagergrad"

# The house, ground floor first; a folder's name stands for its __init__.py and for
# every file in it that has no floor of its own. A file imports from lower floors only.
FLOORS = {
    0: "errors nest counters host_memory stages",
    1: "device",
    2: "layouts kernels nvrtc cublas tape",
    3: "tensor host_kernels launches gemm traced",
    4: "operands primitive cuda_kernels direct",
    5: "ops.elementwise ops.masks ops.philox",
    6: "ops.reductions ops.shapes ops.indexing ops.linalg",
    7: (
        "ops.neural ops.creation ops.random ops.trigonometry ops.special "
        "ops.activations ops.powers ops.fft ops.einsum ops.diagonals "
        "ops.inverses ops.decompositions ops.svd ops.matrix_norms "
        "ops.matrix_functions ops.sorting ops.scans ops.statistics "
        "ops.nan_statistics ops.resizing "
        "ops.quantiles ops.putting ops.gathering ops.choices ops.convolution "
        "ops.normalization ops.losses ops.attention ops.arranging ops.clipping "
        "ops.dropout ops.pooling ops.padding ops.joining ops.dense "
    ),
    8: "ops linalg fft special random array_api",
    9: "operators backward debug rows formulas",
    10: "gradient_tape gradients custom_gradients forward",
    11: "function pullback program simplification fusion blocks loops derivatives "
    "graphs graph_pullbacks",
    12: "nn optim loss_scale losses data checkpoint testing profiler",
    13: "__init__ training runs cli __main__",
}
FLOOR = {name: floor for floor, names in FLOORS.items() for name in names.split()}

# Floors whose files may also import one another, as long as nothing goes in a circle.
OPEN_FLOORS = {4, 5, 6, 7, 8, 9, 10, 11, 12, 13}


def name_of(path):
    """Return a file's name below the package: ops.linalg, ops, or __init__."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[1:] and parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def floor_of(name):
    """Return the floor of a file, or of the nearest folder that has one, or -1."""
    while name not in FLOOR and "." in name:
        name = name.rpartition(".")[0]
    return FLOOR.get(name, -1)


def may_import(name, other):
    own, below = floor_of(name), floor_of(other)
    return below < own or below == own in OPEN_FLOORS


def imported(path):
    """Yield every module a file imports, absolute, also inside functions.

    `from m import n` yields `m.n`, which may be a module or only a name in m.
    """
    package = ["eagergrad", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"), path.name)):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = package[: len(package) + 1 - level] if level else []
                base = ".".join([*base, *([module] if module else [])])
                yield from (f"{base}.{alias.name}" for alias in aliases)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module


def own_imports(path):
    """Return the files of the package that a file imports."""
    names = set()
    for module in imported(path):
        root, _, name = module.partition(".")
        if root == "eagergrad":
            while name and name not in FILES:  # a name in a module: drop it
                name = name.rpartition(".")[0]
            names.add(name or "__init__")
    return names


def test_every_file_has_a_floor():
    assert [name for name in FILES if floor_of(name) < 0] == []


def test_files_import_from_lower_floors_only():
    wrong = [
        f"{name} (floor {floor_of(name)}) imports {other} (floor {floor_of(other)})"
        for name, path in FILES.items()
        for other in sorted(own_imports(path))
        if not may_import(name, other)
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_have_no_circle():
    graph = {name: own_imports(path) for name, path in FILES.items()}
    graphlib.TopologicalSorter(graph).prepare()  # a CycleError names the files


def test_only_device_imports_cupy():
    importers = {
        name
        for name, path in FILES.items()
        for module in imported(path)
        if module.partition(".")[0] in {"cupy", "cupyx"}
    }
    assert importers <= {"device"}


def test_import_is_light():
    """What only some programs need is imported where they first need it."""
    program = """
import sys
import numpy
before = set(sys.modules)
import eagergrad
print(*set(sys.modules) - before)
"""
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    heavy = """
        argparse asyncio concurrent.futures cupy importlib.metadata matplotlib ml_dtypes
        multiprocessing safetensors scipy subprocess tqdm unittest urllib.request
    """
    assert set(printed.split()) & set(heavy.split()) == set()


def test_namespaces_offer_what_they_are_named_after():
    """No modules, and nothing of what the functions are made of."""
    linalg = {*dir(np), *dir(np.linalg), *dir(scipy.linalg)}
    homes = {
        eagergrad.fft: dir(np.fft),
        eagergrad.linalg: linalg,
        eagergrad.random: [*dir(np.random), "GENERATOR"],
        eagergrad.special: dir(scipy.special),
    }
    for space, names in homes.items():
        shown = {name for name in vars(space) if not name.startswith("_")}
        assert shown <= set(names), space.__name__


def test_public_names_exist_and_are_documented():
    bare = []
    for name in eagergrad.__all__:
        value = getattr(eagergrad, name)
        # An op is an object: the docstring of its class does not count as its own.
        inherited = None if isinstance(value, type) else type(value).__doc__
        if callable(value) and value.__doc__ in (None, "", inherited):
            bare.append(name)
    assert bare == []
