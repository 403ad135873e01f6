"""The cost of every op of the registry, beside the array function that it calls.

"array" is that function on NumPy arrays; "call" the op on Tensors; "tape" the op while
a tape records it; "back" the gradient by all its arguments.
"""

import argparse
import statistics
import sys
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import repeat

import timing

# A recording is renewed after so many calls, lest memory grow with the timing.
CALLS = {"small": 100, "large": 4}

Call = Callable[[], object]
Rounds = dict[str, list[dict[str, float]]]  # by the way of calling


# ---- the workers: one way to call, all ops -------------------------------------------


def cases(way: str) -> dict[str, timing.Case]:
    """Every row; its arrays are made when it is its turn."""
    import numpy as np

    sys.path.append(str(timing.ROOT / "tests"))
    import op_rows

    np.seterr(all="ignore")  # inf and nan are timed as other numbers are

    def case(name: str, size: str) -> timing.Case:
        return timing.Case(
            make=lambda: WAYS[way](op_rows.row(name, size), CALLS[size]),
            ops=CALLS[size],
            values=lambda: values(op_rows.row(name, size), way),
        )

    return {
        f"{size} {op_rows.family(name)} {name}": case(name, size)
        for size in CALLS
        for name in op_rows.names(size, recorded=way == "back")
    }


def array(row, count: int) -> Call:
    return partial(again, on_arrays(row), count)


def call(row, count: int) -> Call:
    return partial(again, on_tensors(row)[0], count)


def tape(row, count: int) -> Call:
    import eagergrad as eg

    call, sources = on_tensors(row)

    def run() -> None:
        with eg.GradientTape() as tape:
            tape.watch(sources)
            again(call, count)

    return run


def back(row, count: int) -> Call:
    import eagergrad as eg

    call, sources = on_tensors(row)
    with eg.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        y = call()
    ones = [eg.ones_like(y) for y in y] if row.op.several else eg.ones_like(y)
    return partial(again, partial(tape.gradient, y, sources, ones), count)


WAYS = {"array": array, "call": call, "tape": tape, "back": back}


def again(call: Call, count: int) -> None:
    for _ in repeat(None, count):
        call()


def on_arrays(row) -> Call:
    from eagergrad.device import NUMPY

    return partial(row.op.bare(NUMPY), *arguments(row, row.arrays))


def on_tensors(row) -> tuple[Call, list]:
    """The op's call, and the tensors that it has gradients by."""
    import eagergrad as eg

    xs = [eg.tensor(x) for x in row.arrays]
    return partial(row.op.entry, *arguments(row, xs)), [xs[i] for i in row.sources]


def arguments(row, arrays) -> list:
    """The arrays, or one list of them, and the parameters."""
    one = row.op.arrays[0].endswith("*")
    return ([arrays] if one else [*arrays]) + [*row.params]


def values(row, way: str) -> list[float]:
    """What the op and the array function must agree in: each output's sum of |y|."""
    import numpy as np

    y = on_arrays(row)() if way == "array" else on_tensors(row)[0]()
    if way == "array" and row.op.keeps:
        y, _ = y
    outputs = y if row.op.several else [y]
    return [float(np.nansum(abs(np.asarray(y)), dtype=float)) for y in outputs]


# ---- the asking side -----------------------------------------------------------------

SIDES = {
    way: timing.Side("numpy" if way == "array" else "eagergrad", partial(cases, way))
    for way in WAYS
}
OVER = [way for way in WAYS if way != "array"]  # what is set against the array function


def against_array(rounds: Rounds, way: str, how: str) -> float | None:
    """The ratio (`/`) to the array function, or the difference; None if not timed."""
    timed = {way, "array"} <= rounds.keys()
    return timing.Claim("", way, how, "array").value(rounds) if timed else None


def print_row(name: str, *cells: object) -> None:
    texts = [timing.short(x) if isinstance(x, float) else x or "-" for x in cells]
    print(f"{name:23}", *[f"{text:>7}" for text in texts], flush=True)


def print_rounds(name: str, rounds: Rounds) -> None:
    us = [timing.middle(rounds[way]) if way in rounds else None for way in WAYS]
    print_row(name, *us, *[against_array(rounds, way, "/") for way in OVER])


def print_slowest(measured: dict[str, Rounds], how: str, count: int) -> None:
    """The ops that are furthest above the array function, for each way of calling."""
    for way in OVER:
        found = [(against_array(rounds, way, how), n) for n, rounds in measured.items()]
        found = sorted((pair for pair in found if pair[0] is not None), reverse=True)
        if found:
            median = timing.short(statistics.median(value for value, _ in found))
            print(f"\n{way} {how} array: median {median}, and the {count} highest")
        for value, name in found[:count]:
            print_row(f"  {name}", value)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", help="these ops (all)")
    add("--size", choices=CALLS, help="of the arrays (both, one after the other)")
    add("--slowest", type=int, default=0, metavar="N", help="list those out of line")
    add("--rounds", type=int, default=5, help="turns of each way (5)")
    add("--seconds", type=float, default=0.02, help="length of a turn (0.02)")
    add("--save", action="store_true", help="write bench/results/ops-DATE.json")
    add("--worker", choices=SIDES, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(
    comparison: timing.Comparison, size: str, chosen: argparse.Namespace
) -> dict[str, Rounds]:
    """Time the rows of one size, and print them by family."""
    print()
    print_row(f"{size} arrays, us", *WAYS, *[f"{way}/" for way in OVER])
    measured, last = {}, None
    for case in comparison.cases["array"]:
        its_size, family, name = case.split()
        if its_size != size or (chosen.only and name not in chosen.only):
            continue
        if family != last:
            print(last := family)
        comparison.measure(case, chosen.rounds, chosen.seconds)
        measured[name] = comparison.rounds[case]
        print_rounds(f"  {name}", measured[name])
    return measured


def main() -> None:
    chosen = options()
    if chosen.worker:
        timing.serve(SIDES[chosen.worker])
        return
    host = timing.machine()
    print("{cpu}, {cores} cores, load {load:.1f}".format(**host))
    with ExitStack() as stack:
        workers = {
            way: stack.enter_context(timing.Worker(way, sys.executable, threads=1))
            for way in SIDES
        }
        comparison = timing.Comparison(workers, threads=1)
        known = {case.split()[-1] for case in comparison.cases.get("array", ())}
        if unknown := set(chosen.only or ()) - known:
            sys.exit(f"--only: no {', '.join(sorted(unknown))} in the registry")
        sizes = [chosen.size] if chosen.size else [*CALLS]
        measured = {size: measure(comparison, size, chosen) for size in sizes}
    for size, rows in measured.items() if chosen.slowest else ():
        print(f"\n{size} arrays", end="")
        # Small ones show what a call costs, large ones what it does with the data.
        print_slowest(rows, "-" if size == "small" else "/", chosen.slowest)
    print()
    for note in comparison.notes:
        print(textwrap.fill(note, 80, subsequent_indent="  "))
    if chosen.save:
        result = {
            "commit": timing.commit(),
            "machine": host,
            "versions": comparison.versions,
            "method": {"rounds": chosen.rounds, "seconds": chosen.seconds},
            "us": {
                size: {
                    name: {way: round(timing.middle(rounds[way]), 3) for way in rounds}
                    for name, rounds in rows.items()
                }
                for size, rows in measured.items()
            },
            "notes": comparison.notes,
        }
        print(f"written: {timing.save('ops', result)}")
    sys.exit(comparison.failed)


if __name__ == "__main__":
    main()
