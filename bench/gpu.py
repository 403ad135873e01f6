"""What a call costs the host, and how fast kernels move memory, on an NVIDIA GPU.

A call's cost is the host's alone: the GPU is waited for between samples, not in them.
A kernel's speed is the bytes it must read and write, by the time between two events of
CUDA, beside that of a copy in the same round. `steps.py --device cuda` has the steps.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from time import perf_counter_ns

import numpy as np
import timing

import eagergrad as eg
from eagergrad import primitive
from eagergrad.device import Device, report
from eagergrad.errors import DeviceError
from eagergrad.kernels import catalogue

CALLS = 200  # in a sample: fewer than launches may wait in a stream
LAUNCHES = 20
ROW = 1024


def host_calls(device: Device) -> dict[str, Callable[[], object]]:
    """Small calls, each with what it does on the host alone."""
    rng = np.random.default_rng(0)
    x, y = (eg.tensor(a, device=device) for a in rng.normal(size=(2, 8, 8)))
    labels = eg.tensor(rng.integers(0, 8, 8), device=device)
    kernel = primitive.kernel("softplus", device.backend)

    def recorded(f: Callable[[], eg.Tensor]) -> Callable[[], object]:
        def run() -> object:
            with eg.GradientTape() as tape:
                tape.watch(x)
                z = f()
            return tape.gradient(z, x, x)

        return run

    return {
        "empty": lambda: device.backend.xp.empty((8, 8), np.float32),
        "softplus, its kernel alone": lambda: kernel(x._data),
        "softplus": lambda: eg.softplus(x),
        "softplus and its gradient": recorded(lambda: eg.softplus(x)),
        "add": lambda: x + y,
        "matmul": lambda: x @ y,
        "softmax_cross_entropy": lambda: eg.softmax_cross_entropy(x, labels),
    }


def host_us(device: Device, rounds: int) -> dict[str, float]:
    """The median of the rounds, in microseconds a call."""
    wait = device.backend.xp.cuda.get_current_stream().synchronize
    calls = host_calls(device)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):  # in the first all is compiled and loaded
        for name, call in calls.items():
            start = perf_counter_ns()
            for _ in range(CALLS):
                call()
            spent = (perf_counter_ns() - start) / CALLS / 1e3
            wait()
            if turn:
                found[name].append(spent)
    return {name: statistics.median(times) for name, times in found.items()}


KERNELS = """softplus softplus_dx sigmoid sigmoid_dx gelu gelu_dx silu silu_dx tanh_dx
    softmax softmax_vjp log_softmax log_softmax_vjp integer_cross_entropy
    integer_cross_entropy_vjp sgd momentum adam""".split()


# Of an optimizer's operands those before this one are arrays, the others numbers.
NUMBERS = {"sgd": 2, "momentum": 3, "adam": 4}


def operands(name: str, size: int, device: Device) -> tuple[list, int]:
    """What a kernel is called on, and how many bytes it reads and writes."""
    rng = np.random.default_rng(0)
    kernel = catalogue()[name]
    letters = kernel.operands.replace(">", "")
    rows = (size // ROW, ROW)
    made, moved = [], 0
    for k, letter in enumerate(letters):
        shape = rows if letter == "n" or kernel.signature is None else rows[:1]
        if NUMBERS.get(name, k + 1) <= k < kernel.inputs:
            made.append(0.5)
            continue
        if k < kernel.inputs:
            array = rng.random(shape, np.float32)
            array = rng.integers(0, ROW, shape) if letter == "i" else array
            made.append(eg.tensor(array, device=device)._data)
        moved += math.prod(shape) * (8 if letter == "i" else 4)
    return made, moved


def bandwidths(device: Device, rounds: int, size: int) -> dict[str, float]:
    """The median of the rounds, in GB/s; `copy` is the array module's."""
    xp = device.backend.xp
    source = xp.empty(size, np.float32)
    target = xp.empty(size, np.float32)
    calls = {"copy": (lambda: xp.copyto(target, source), 8 * size)}
    for name in KERNELS:
        kernel = primitive.kernel(name, device.backend)
        given, moved = operands(name, size, device)
        calls[name] = (lambda kernel=kernel, given=given: kernel(*given)), moved
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, (call, moved) in calls.items():
            first, last = xp.cuda.Event(), xp.cuda.Event()
            first.record()
            for _ in range(LAUNCHES):
                call()
            last.record()
            last.synchronize()
            if turn:
                ms = xp.cuda.get_elapsed_time(first, last) / LAUNCHES
                found[name].append(moved / ms / 1e6)
    return {name: statistics.median(rates) for name, rates in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda", help="as cuda:1 (cuda)")
    parser.add_argument("--rounds", type=int, default=15, help="of each (15)")
    parser.add_argument("--size", type=int, default=2**24, help="elements (2**24)")
    parser.add_argument("--save", action="store_true", help="write bench/results/")
    chosen = parser.parse_args()
    try:
        device = eg.device(chosen.device)
    except DeviceError as error:
        sys.exit(str(error))
    with device:
        calls = host_us(device, chosen.rounds)
        rates = bandwidths(device, chosen.rounds, chosen.size)
    print(f"{'a call, on the host':40}{'us':>8}")
    for name, us in calls.items():
        print(f"{name:40}{us:8.2f}")
    print(f"\n{f'a kernel, {chosen.size:,} elements':40}{'GB/s':>8}{'of copy':>10}")
    for name, rate in rates.items():
        print(f"{name:40}{rate:8.0f}{rate / rates['copy']:10.2f}")
    if chosen.save:
        result = {
            "commit": timing.commit(),
            "machine": timing.machine() | dict(report()),
            "versions": timing.versions("cupy"),
            "method": vars(chosen),
            "us": calls,
            "GB/s": rates,
        }
        print(f"written: {timing.save('gpu', result)}")


if __name__ == "__main__":
    main()
