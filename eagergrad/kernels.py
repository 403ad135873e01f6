"""Where the kernel sources are, and which kernels are usable."""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """The folder of kernel sources: inside a wheel, or beside the package in a tree."""
    package = Path(__file__).parent
    for candidate in (package / "_kernels", package.parent / "kernels"):
        if (candidate / "elementwise.h").is_file():
            return candidate
    raise FileNotFoundError(f"eagergrad: no kernel sources beside {package}")


def report() -> list[tuple[str, str]]:
    """What ``eagergrad doctor`` says of the kernels: rows of (label, text)."""
    count = len(sorted(folder().glob("*.h")))
    return [
        (
            "kernels",
            f"{count} source file{'s' * (count != 1)} found; no op launches one yet, "
            "all ops run as NumPy or CuPy calls",
        )
    ]
