"""Write docs/ops.md, the public table of operations, from the registry.

    python docs/make_ops.py

``tests/test_docs.py`` fails when the file is stale.
"""

import importlib
import inspect
import pkgutil
from pathlib import Path

import eagergrad as eg
from eagergrad.primitive import OPS

TARGET = Path(__file__).parent / "ops.md"
HEAD = """# Operations

Made by `docs/make_ops.py` from the registry; do not edit.

*own rule*: a row of the registry with its own derivative. *composed*: a function of
other operations, differentiated through them. Both have reverse and forward mode and
derivatives of any order, in float16, float32, float64 and, with ml_dtypes, bfloat16;
complex where NumPy has it, else a DTypeError says so.
*no gradient*: the derivative is zero or there is none, and the gradient is `None`.
No operation has a CUDA kernel of its own yet: on a GPU all run as CuPy calls.
"""


def families():
    """The modules of eagergrad.ops, each with its public functions by name."""
    holders = [("", eg)] + [
        (name + ".", value)
        for name in ("linalg", "fft", "special")
        if (value := getattr(eg, name, None)) is not None
    ]
    known = {}
    for prefix, holder in holders:
        for name in getattr(holder, "__all__", vars(holder)):
            value = getattr(holder, name)
            if callable(value) and not name.startswith("_"):
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


def kind(name, value):
    """How a function is differentiated."""
    op = getattr(value, "op", None) or OPS.get(name.rpartition(".")[2])
    if op is None:
        return "composed"
    return "own rule" if op.recorded else "no gradient"


def table():
    """The whole file."""
    parts, counts = [HEAD], {}
    for family, rows in families():
        if family in ("creation", "random", "philox"):
            continue
        parts.append(
            f"\n## {family}\n\n| function | also | derivative |\n|---|---|---|"
        )
        for name, (value, others) in rows.items():
            found = kind(name, value)
            counts[found] = counts.get(found, 0) + 1
            also = " ".join(f"`{other}`" for other in others)
            parts.append(f"| `{name}` | {also} | {found} |")
    total = sum(counts.values())
    summary = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    parts.insert(1, f"\n{total} functions: {summary}.")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(table())
