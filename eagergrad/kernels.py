"""The sources in kernels/, which kernels there are, and where compiled ones are kept.

A kernel is known by its name.  Those printed from rules (``silu``, ``silu_dx``, and
``silu_with_slope`` on the CPU) stand in formulas.h; those written by hand say what
their operands are in their OPERANDS.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path


def folder() -> Path:
    """The folder of kernel sources: inside a wheel, or beside the package in a tree."""
    package = Path(__file__).parent
    for candidate in (package / "_kernels", package.parent / "kernels"):
        if (candidate / "formulas.h").is_file():
            return candidate
    raise FileNotFoundError(f"eagergrad: no kernel sources beside {package}")


# Operands by their letters: a row, a matrix, a number for each of its rows, the sum of
# each of its columns; the factors of a matrix; a number, one in the type that is
# computed in, an integer.  Whole arrays have axes of their own: a is one of numbers, j
# of integers, b of bytes.
CORE = {
    **dict.fromkeys("swi", "()"),
    **dict.fromkeys("nc", "(n)"),
    "m": "(m)",
    "t": "(m,n)",
    "p": "(m,k)",
    "q": "(k,n)",
}


@dataclass(frozen=True)
class Kernel:
    """What a kernel takes and gives, and its C++."""

    name: str
    operands: str  # a letter of CORE for each; ">" before results
    text: str = ""  # a formula; else the kernel stands in ``header``
    header: str = ""
    vectorised: bool = True  # worth running on the host
    hosted: bool = False  # and nowhere else

    @property
    def inputs(self) -> int:
        return self.operands.index(">")

    @property
    def outputs(self) -> int:
        return len(self.operands) - self.inputs - 1

    @property
    def signature(self) -> str | None:
        """The core dimensions, as NumPy writes them; None for an elementwise kernel."""
        if self.form == "elementwise":
            return None
        axes = [
            CORE.get(letter) or f"(n{i})"
            for i, letter in enumerate(self.operands.replace(">", ""))
        ]
        inputs, results = axes[: self.inputs], axes[self.inputs :]
        return f"{','.join(inputs)}->{','.join(results)}"

    @property
    def form(self) -> str:
        """How it is called: the name of a loop in kernels/host.h.

        ``elementwise``, ``rows``, ``columns``, ``products``, or ``arrays``, which have
        no gaps.
        """
        forms = {"a": "arrays", "p": "products", "t": "columns", "n": "rows"}
        found = [form for letter, form in forms.items() if letter in self.operands]
        return found[0] if found else "elementwise"


@functools.cache
def catalogue() -> dict[str, Kernel]:
    """Every kernel by name."""
    text = (folder() / "formulas.h").read_text()
    bodies = {
        name: f"struct {name}{body}"
        for name, body in re.findall(r"^struct (\w+)(.*?^};)$", text, re.M | re.S)
    }
    everything, vectorised, slopes = re.split(
        "#define EG_HOST_(?:FORMULAS|SLOPES)", text
    )
    names = {name for name, _ in _listed(vectorised)}
    found = {
        name: Kernel(
            name, "s" * int(arity) + ">s", bodies[name], vectorised=name in names
        )
        for name, arity in _listed(everything)
    }
    for name, arity in _listed(slopes):
        operands = "ss>s" if arity == "2" else "s>ss"
        found[name] = Kernel(name, operands, bodies[name], hosted=True)
    for header in HEADERS:
        text = (folder() / header).read_text()
        for name, operands in re.findall(_OPERANDS, text):
            found[name] = Kernel(name, operands, header=header)
    return found


# Of kernels written by hand.
HEADERS = (
    *("rows.h", "columns.h", "updates.h", "convolution.h", "folding.h", "pooling.h"),
    *("random.h", "scattering.h", "norms.h", "batch.h", "products.h"),
    "scaling.h",
)
_OPERANDS = r"struct (\w+) {\n  static constexpr char OPERANDS\[\] = \"(.*)\";"


def _listed(text: str) -> list[tuple[str, str]]:
    return re.findall(r"  X\((\w+), (\d)\)", text)


@functools.cache
def fingerprint() -> str:
    """A digest of the headers written by hand: any change makes all kernels stale."""
    digest = hashlib.sha256()
    for path in sorted(folder().glob("*.h")):
        if path.name != "formulas.h":
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def caches() -> list[Path]:
    """Where compiled kernels may be found, the first being where new ones are put.

    ``EAGERGRAD_CACHE``, else ``eagergrad`` in the user's cache folder, which is made
    for this user alone; where that cannot be written, a private temporary folder.
    Code is loaded from a folder only if nobody but its owner (root or this user) can
    write to it.
    """
    named = os.environ.get("EAGERGRAD_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    first = Path(named) if named else Path(home) / "eagergrad"
    user = getattr(os, "getuid", lambda: "user")()
    last = Path(tempfile.gettempdir()) / f"eagergrad-{user}"
    found = [path for path in (first, last) if _private(path)]
    writable = [path for path in found if os.access(path, os.W_OK)]
    return writable + [path for path in found if path not in writable]


def _private(path: Path) -> bool:
    """Whether a folder is there, made if need be, and code in it can be trusted."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError:
        return False
    if not os.access(path, os.R_OK | os.X_OK):
        return False
    if not hasattr(os, "getuid"):
        return True
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in (0, os.getuid()) and not shared
