"""Kernels beside the array functions they replace, from one element to ten million.

The ratio of their times, for the value and for the rule of an op: above 1 the kernel
loses.  Both sides call what a first-order gradient calls, on NumPy arrays.
"""

import argparse
import math
import os
import sys
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import timing

POWERS = range(8)
WIDTH = 1000  # of rows, where there are so many elements
SIDES = {
    side: timing.Side("eagergrad", lambda mode=mode: cases(mode))
    for side, mode in {"numpy": "off", "kernels": "require"}.items()
}


def elementwise(draw, size: int) -> tuple:
    return (draw(size),), ()


def rows(draw, size: int) -> tuple:
    return (draw(-(-size // WIDTH), min(size, WIDTH)),), (-1,)


def labelled(draw, size: int) -> tuple:
    (x,), _ = rows(draw, size)
    return (x,), (draw(len(x)).argsort() % x.shape[1], False)


def normed(draw, size: int) -> tuple:
    (x,), _ = rows(draw, size)
    return (x, draw(x.shape[1]), draw(x.shape[1])), (1e-5, True)


def square(draw, size: int) -> tuple:
    side = math.isqrt(size)
    return (draw(side, side),), ()


# The arrays and parameters of each op.
OPS: dict[str, Callable[..., tuple]] = {
    **dict.fromkeys(("softplus", "sigmoid", "silu", "gelu", "gelu_tanh"), elementwise),
    **dict.fromkeys(("mish", "log_sigmoid"), elementwise),
    **dict.fromkeys(("softmax", "log_softmax"), rows),
    "integer_cross_entropy": labelled,
    "layer_norm": normed,
    "column_sum": square,
}


# ---- the workers ---------------------------------------------------------------------


def cases(mode: str) -> dict[str, timing.Case]:
    os.environ["EAGERGRAD_HOST_KERNELS"] = mode
    return {
        f"{name} {way} {power}": timing.Case(partial(WAYS[way], name, 10**power))
        for power in POWERS
        for name in OPS
        for way in WAYS
        if (name, way) != ("column_sum", "rule")  # which is a view
    }


def value(name: str, size: int) -> Callable[[], object]:
    from eagergrad import primitive

    arrays, params = operands(name, size)
    return partial(primitive.OPS[name].impl[type(arrays[0])], *arrays, *params)


def rule(name: str, size: int) -> Callable[[], object]:
    import numpy as np

    from eagergrad import primitive

    op, y = primitive.OPS[name], value(name, size)()
    arrays, params = operands(name, size)
    if op.keeps:
        y, kept = y
        params = (*params, kept)
    read = op.picks[0](*arrays, y, arrays, params)
    return partial(op.lowered[np.ndarray][0], np.ones_like(y), *read)


def operands(name: str, size: int) -> tuple:
    import numpy as np

    rng = np.random.default_rng(0)
    return OPS[name](lambda *shape: rng.normal(size=shape).astype(np.float32), size)


WAYS = {"value": value, "rule": rule}


# ---- the asking side -----------------------------------------------------------------


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", choices=OPS, help="these ops (all)")
    add("--rounds", type=int, default=5, help="turns of each side (5)")
    add("--seconds", type=float, default=0.02, help="length of a turn (0.02)")
    add("--threads", type=int, default=2, help="of each side (2)")
    add("--save", action="store_true", help="write bench/results/sizes-DATE.json")
    add("--worker", choices=SIDES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    chosen = options()
    if chosen.worker:
        timing.serve(SIDES[chosen.worker])
        return
    host = timing.machine()
    print("{cpu}, {cores} cores, load {load:.1f}".format(**host))
    print("kernels / numpy, by the number of elements\n")
    print(f"{'':28}", *[f"{f'10^{power}':>5}" for power in POWERS])
    claim = timing.Claim("", "kernels", "/", "numpy")
    ratios: dict[str, list[float]] = {}
    with ExitStack() as stack:
        workers = {
            side: stack.enter_context(
                timing.Worker(side, sys.executable, chosen.threads)
            )
            for side in SIDES
        }
        comparison = timing.Comparison(workers, chosen.threads)
        known = {case.rpartition(" ")[0] for case in comparison.cases.get("numpy", ())}
        for name in (f"{op} {way}" for op in chosen.only or OPS for way in WAYS):
            if name not in known:
                continue
            print(f"{name:28}", end="", flush=True)
            ratios[name] = []
            for power in POWERS:
                case = f"{name} {power}"
                comparison.measure(case, chosen.rounds, chosen.seconds)
                rounds = comparison.rounds[case]
                ratio = claim.value(rounds) if len(rounds) == len(SIDES) else 0.0
                ratios[name].append(round(ratio, 3))
                print(f" {ratio:5.2f}", end="", flush=True)
            print()
    print(f"\nworst: {max(max(row) for row in ratios.values()):.2f}")
    for note in comparison.notes:
        print(textwrap.fill(note, 80, subsequent_indent="  "))
    if chosen.save:
        result = {
            "commit": timing.commit(),
            "machine": host,
            "versions": comparison.versions,
            "method": {
                key: vars(chosen)[key] for key in ("rounds", "seconds", "threads")
            },
            "ratios": ratios,
            "notes": comparison.notes,
        }
        print(f"written: {timing.save('sizes', result)}")
    sys.exit(comparison.failed)


if __name__ == "__main__":
    main()
