"""Write formulas.h: every elementwise row of the op table as C++.

    python kernels/print_formulas.py

A test fails when the file is older than the rules it is printed from.
"""

from pathlib import Path

from eagergrad.formulas import formulas, slopes

HEAD = """\
// Printed by print_formulas.py from the rules in eagergrad/ops: edit those.
//
// NAME is the value of an op; NAME_dARGUMENT is its rule for one argument, of the
// cotangent and of what the rule reads; NAME_with_slope is the value, and what that
// rule multiplies the cotangent by.
#pragma once

#include "functions.h"

namespace eg {
"""


def listed(macro: str, rows: list[tuple[str, int]]) -> str:
    """A macro that calls X(name, arity) for each row."""
    calls = " \\\n".join(f"  X({name}, {arity})" for name, arity in rows)
    return f"#define {macro}(X) \\\n{calls}\n"


def text() -> str:
    found = formulas()
    rows = [(f.name, f.arity) for f in found]
    vectorised = [(f.name, f.arity) for f in found if f.vectorised]
    shared = slopes()
    bodies = "\n\n".join(f.text for f in [*found, *shared])
    return (
        f"{HEAD}\n{bodies}\n\n}}  // namespace eg\n\n// All of them.\n"
        f"{listed('EG_FORMULAS', rows)}\n"
        "// Those whose functions compilers vectorise: the others stay with NumPy.\n"
        f"{listed('EG_HOST_FORMULAS', vectorised)}\n"
        "// On the host alone: on a GPU to read a slope takes longer than to make it.\n"
        f"{listed('EG_HOST_SLOPES', [(f.name, f.arity) for f in shared])}"
    )


if __name__ == "__main__":
    path = Path(__file__).parent / "formulas.h"
    path.write_text(text())
    print(f"{path}: {text().count('struct ')} formulas")
