"""Write docs/ops.md, the public table of operations, from the registry.

    python docs/make_ops.py

What a function takes, and what it is made of, is found out by calling it: an op of the
registry on the tests' own arrays, any other on the example in its docstring.
``tests/test_docs.py`` fails when the file is stale.
"""

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

import eagergrad as eg
from eagergrad import primitive
from eagergrad.kernels import catalogue
from eagergrad.primitive import OPS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from op_cases import CASES  # noqa: E402

TARGET = HERE / "ops.md"
HEAD = """# Operations

Made by `docs/make_ops.py` from the registry; do not edit.

*derivative*: "own rule" is a row of the registry with its own derivative. A list names
the rows that a function is made of, in the example of its docstring; it is
differentiated through them. Both have reverse mode, forward mode, and derivatives of
any order. "none": the derivative is zero, or there is none, and the gradient is `None`.

*dtypes*: "real" is float16, float32, float64 and, with ml_dtypes, bfloat16; "complex"
is complex64 and complex128. Where it is missing, complex numbers raise a DTypeError.
Integers and bools are taken too, by the bitwise functions alone, and give float32 where
the result is not whole.

*kernels*: what runs in one pass on a CPU with a C++ compiler, for the value and for the
rule; on a GPU the same, but for products and convolutions. All else is composed of
calls of NumPy or CuPy.
"""
KINDS = {
    "real": ("float16", "bfloat16", "float32", "float64"),
    "complex": ("complex64", "complex128"),
}


class Call(NamedTuple):
    """A call of a function, and the rows of the registry that a tape recorded in it."""

    inputs: list
    outputs: list
    rows: list


def families():
    """The modules of eagergrad.ops, each with its public functions by name."""
    holders = [("", eg)] + [
        (name + ".", getattr(eg, name)) for name in ("linalg", "fft", "special")
    ]
    known = {}
    for prefix, holder in holders:
        for name in holder.__all__:
            value = getattr(holder, name)
            if callable(value):
                known.setdefault(id(value), []).append(prefix + name)
    for _, module_name, _ in pkgutil.iter_modules(
        importlib.import_module("eagergrad.ops").__path__
    ):
        module = importlib.import_module(f"eagergrad.ops.{module_name}")
        rows = {}
        for value in vars(module).values():
            own = getattr(value, "op", None) or inspect.isfunction(value)
            if own and id(value) in known and belongs(value, module):
                own_name = value.__name__
                names = sorted(
                    known[id(value)], key=lambda n: (n.count("."), n != own_name, n)
                )
                rows[names[0]] = (value, names[1:])
        if rows:
            yield module_name, dict(sorted(rows.items()))


def belongs(value, module):
    """Whether a function was declared in this module, not imported into it."""
    return value.__module__ in (module.__name__, "eagergrad") and (
        value.__module__ != "eagergrad"
        or f"\n{value.__name__} = " in inspect.getsource(module)
    )


def example(function, dtype=None):
    """The calls of a function in its docstring, on tensors of a dtype if it is given.

    What the example then does to the result may fail, as that is for real numbers.
    """
    calls, rows = [], []
    record = primitive.record

    def spied_record(tapes, op, *others):
        if op.name in OPS:
            rows.append(op.name)
        return record(tapes, op, *others)

    def watched(x):
        """A floating tensor known to the tape, also of a list of numbers."""
        if isinstance(x, list) and not tensors(x):
            x = eg.tensor(x)
        if isinstance(x, eg.Tensor) and x._node is None and x.dtype.kind in "fcV":
            x = x if dtype is None else x.astype(dtype)
            tape.watch(x)
        return x

    def spied(*args, **options):
        args = [watched(x) for x in args]
        options = {name: watched(x) for name, x in options.items()}
        rows.clear()
        y = function(*args, **options)
        calls.append(Call(tensors([args, options]), tensors(y), list(rows)))
        return y

    names = {**vars(eg), "eg": eg, "np": np, function.__name__: spied}
    for name in ("tensor", "ones", "zeros"):
        names[name] = compose(watched, getattr(eg, name))
    with (
        mock.patch.object(primitive, "record", spied_record),
        contextlib.redirect_stdout(io.StringIO()),
        eg.GradientTape(persistent=True) as tape,
    ):
        for line in doctest.DocTestParser().get_examples(function.__doc__ or ""):
            with contextlib.suppress(TypeError):
                exec(compile(line.source, function.__name__, "single"), names)
    return calls


def compose(outer, inner):
    return lambda *args: outer(inner(*args))


def tensors(value):
    return [x for x in eg.nest.flatten(value) if isinstance(x, eg.Tensor)]


def takes(name, value, dtype):
    """Whether a function computes with a dtype."""
    dtype = eg.zeros(0, dtype).dtype
    op = row_of(name, value)
    if op is None:
        calls = example(value, dtype)
        return any(x.dtype == dtype for call in calls for x in call.inputs)
    arrays = [cast(x, dtype) for x in CASES[op.name][0].arrays]
    try:
        CASES[op.name][0](*arrays)
    except TypeError:
        return False
    return any(x.dtype == dtype for x in arrays)


def cast(x, dtype):
    """An array in another dtype, unless it is whole."""
    if x.dtype.kind not in "fc":
        return x
    return (x if dtype.kind == "c" else x.real).astype(dtype)


def row_of(name, value):
    """The row of the registry that a function is, if it is one."""
    return getattr(value, "op", None) or OPS.get(name.rpartition(".")[2])


def dtypes(name, value):
    """The kinds of numbers that a function takes, in words."""
    return " ".join(
        kind
        for kind, names in KINDS.items()
        if all(takes(name, value, dtype) for dtype in names)
    )


def derivative(name, value):
    """How a function is differentiated."""
    op = row_of(name, value)
    if op is not None and op.recorded:
        return "own rule"
    calls = [
        call
        for call in example(value)
        if any(x._node is not None for x in call.outputs)
    ]
    rows = {row: None for call in calls for row in call.rows}
    made_of = " ".join(f"`{row}`" for row in rows)
    if op is not None and made_of:  # the row is for real numbers
        return f"none; of complex numbers {made_of}"
    return made_of or "none"


def kernels(name, value):
    """The kernels that compute a row's value and its rule."""
    op = row_of(name, value)
    if op is None:
        return ""
    plain = op.form == "elementwise"
    names = list(op.kernels) if plain or op.fused else []
    names += [f"{op.name}_d{x}" for x in op.arrays if plain]
    names += [f"{own}_vjp" for own in op.kernels if op.fused_rule]
    known = catalogue()
    found = [n for n in names if n in known and known[n].vectorised]
    return " ".join(f"`{n}`" for n in found)


def table():
    """The whole file."""
    parts, counts = [HEAD], {"own rule": 0, "composed": 0, "no gradient": 0}
    for family, rows in families():
        if family in ("creation", "random", "philox"):
            continue
        parts.append(
            f"\n## {family}\n\n| function | also | derivative | dtypes | kernels |"
            "\n|---|---|---|---|---|"
        )
        for name, (value, others) in rows.items():
            rule = derivative(name, value)
            kind = {"own rule": "own rule", "none": "no gradient"}.get(rule, "composed")
            counts[kind] += 1
            also = " ".join(f"`{other}`" for other in others)
            cells = (also, rule, dtypes(name, value), kernels(name, value))
            parts.append(f"| `{name}` | " + " | ".join(cells) + " |")
    total = sum(counts.values())
    summary = ", ".join(f"{count} {what}" for what, count in counts.items())
    parts.insert(1, f"{total} functions: {summary}.")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(table())
