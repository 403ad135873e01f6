"""How every comparison here is timed; the scripts beside this file say what is timed.

A *side* is one library doing the work of all cases. It lives in a process of its own,
because two libraries' thread pools in one process disturb each other, and answers one
JSON object a line. The script that was started only asks: it measures nothing itself.
"""

import argparse
import datetime
import importlib
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from time import perf_counter_ns, process_time_ns

ROOT = Path(__file__).resolve().parent.parent
CONTROL = "numpy"
METHOD = ("rounds", "seconds", "threads", "device")
TOLERANCE = 1e-4
# Long beside the clock's 0.1 us, short beside the slices the scheduler hands out, so
# that in a round of some dozens of samples the least one was not interrupted.
SAMPLE_NS = 2_000_000


@dataclass(frozen=True)
class Case:
    """One thing to time: `make` returns the function that does `ops` operations.

    A function that cannot be called twice (a tape is used up, a model is trained) is
    made anew before each sample, untimed: `renew`. `values` returns numbers in which
    all sides must agree before any of them is timed.
    """

    make: Callable[[], Callable[[], object]]
    ops: int = 1
    renew: bool = False
    values: Callable[[], list[float]] | None = None


@dataclass(frozen=True)
class Side:
    """A library's cases by name; `cases` imports the library `module`."""

    module: str
    cases: Callable[[], dict[str, Case]]

    @property
    def is_peer(self) -> bool:
        return self.module not in ("numpy", "eagergrad")


@dataclass(frozen=True)
class Claim:
    """A ratio (`/`) or a difference (`-`) of two sides of a case, and its goal."""

    case: str
    top: str
    how: str
    bottom: str
    goal: str | None = None

    def __str__(self) -> str:
        return f"{self.case}: {self.top} {self.how} {self.bottom}"

    def value(self, rounds: dict) -> float:
        # Round by round, since the two sides of a round saw the same machine.
        pairs = zip(rounds[self.top], rounds[self.bottom], strict=True)
        return statistics.median(
            a["best"] / b["best"] if self.how == "/" else a["best"] - b["best"]
            for a, b in pairs
        )

    def of(self, measured: dict) -> float | None:
        """The value by what was measured, by case; None if a side was not."""
        rounds = measured.get(self.case, {})
        return self.value(rounds) if {self.top, self.bottom} <= rounds.keys() else None


@dataclass(frozen=True)
class Mean:
    """The geometric mean of several ratios, and its goal."""

    claims: tuple[Claim, ...]
    goal: str | None = None

    def __str__(self) -> str:
        return f"geometric mean of {', '.join(claim.case for claim in self.claims)}"

    def of(self, measured: dict) -> float | None:
        values = [claim.of(measured) for claim in self.claims]
        return None if None in values else statistics.geometric_mean(values)


def holds(goal: str, value: float) -> bool:
    relation, bound = goal.split()
    return value <= float(bound) if relation == "<=" else value >= float(bound)


# ---- the worker: one side ------------------------------------------------------------


class Stopwatch:
    """Times one case; warm and calibrated once made."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.calls = 1
        self.run = case.make()
        self.sample()  # fills caches, wakes compilers
        while not case.renew and self.sample() < SAMPLE_NS:
            self.calls *= 2

    def sample(self) -> int:
        if self.case.renew:
            self.run = self.case.make()
        run, calls = self.run, repeat(None, self.calls)
        start = perf_counter_ns()
        for _ in calls:
            run()
        return perf_counter_ns() - start

    def round(self, seconds: float) -> dict[str, float]:
        """Samples for `seconds`: the least and the median one, in us per operation."""
        start, busy = perf_counter_ns(), process_time_ns()
        samples = [self.sample()]
        while (wall := perf_counter_ns() - start) < seconds * 1e9:
            samples.append(self.sample())
        scale = 1e-3 / (self.calls * self.case.ops)
        return {
            "best": min(samples) * scale,
            "typical": statistics.median(samples) * scale,
            # Above the number of threads: the side uses more cores than it was given.
            "cores": (process_time_ns() - busy) / wall,
        }


def serve(side: Side) -> None:
    """Answer the requests `start`, `prepare` and `round` until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not land among the answers
    cases: dict[str, Case] = {}
    watches: dict[str, Stopwatch] = {}

    def start() -> dict:
        try:
            importlib.import_module(side.module)
        except ModuleNotFoundError as error:
            if error.name != side.module:
                raise
            return {"note": "not installed"}
        cases.update(side.cases())
        return {"cases": list(cases), "versions": versions(side.module)}

    def prepare(case: str) -> dict:
        values = cases[case].values
        answer = {"values": values() if values else []}
        watches[case] = Stopwatch(cases[case])
        return answer

    def round(case: str, seconds: float) -> dict:
        return watches[case].round(seconds)

    requests = {"start": start, "prepare": prepare, "round": round}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = requests[request.pop("do")](**request)
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


def versions(*modules: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("numpy", *modules):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "checkout"
    return found


# ---- the asking side -----------------------------------------------------------------


def environment(threads: int, device: str = "cpu") -> dict[str, str]:
    """The same threads, device and checkout for all; no leftovers of BLAS tuning."""
    env = dict(os.environ)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        env.pop(name, None)
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # imports are of compiled modules
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        env[name] = str(threads)
    env["NPROC"] = str(threads)  # the size of XLA's thread pool
    env["EAGERGRAD_DEVICE"] = env["JAX_PLATFORMS"] = device
    env["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )
    return env


class Worker:
    """The process of one side; `ask` sends a request and waits for its answer."""

    def __init__(
        self, label: str, python: str, threads: int, device: str = "cpu"
    ) -> None:
        self.process = subprocess.Popen(
            [python, sys.argv[0], "--worker", label],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(threads, device),
        )

    def ask(self, do: str, **request: object) -> dict:
        line = json.dumps({"do": do, **request})
        try:
            print(line, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return {"failed": "the worker is gone"}
        if answer := self.process.stdout.readline():
            return json.loads(answer)
        return {"failed": f"the worker ended with exit code {self.process.wait()}"}

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # ends its input, and so the worker


class Comparison:
    """Workers by side, what they measured, and what there is to say about them."""

    def __init__(self, workers: dict[str, Worker], threads: int) -> None:
        self.workers = workers
        self.threads = threads
        self.cases: dict[str, list[str]] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self.rounds: dict[str, dict[str, list[dict[str, float]]]] = {}
        self.notes: list[str] = []
        self.failed = False
        for label, worker in workers.items():
            answer = worker.ask("start")
            if "cases" in answer:
                self.cases[label] = answer["cases"]
                self.versions[label] = answer["versions"]
            elif "note" in answer:
                self.notes.append(f"{label}: {answer['note']}")
            else:
                self.fail(label, answer["failed"])

    def fail(self, where: str, why: str) -> None:
        self.notes.append(f"{where}: {why}")
        self.failed = True

    def ready(self, case: str) -> list[str]:
        """The sides that have the case and agree with the control about its values."""
        ready, expected = [], None
        for label in (side for side, cases in self.cases.items() if case in cases):
            answer = self.workers[label].ask("prepare", case=case)
            if "failed" in answer:
                self.fail(f"{case}, {label}", answer["failed"])
                continue
            expected = answer["values"] if expected is None else expected
            if agree(answer["values"], expected):
                ready.append(label)
            else:
                got, wanted = (
                    " ".join(f"{v:.6g}" for v in values)
                    for values in (answer["values"], expected)
                )
                self.fail(f"{case}, {label}", f"not timed: {got}, expected {wanted}")
        return ready

    def measure(self, case: str, count: int, seconds: float) -> None:
        """`count` rounds, in each a turn for every side, a new one first each time."""
        ready = self.ready(case)
        rounds = self.rounds[case] = {label: [] for label in ready}
        for turn in range(count):
            first = turn % max(1, len(ready))
            for label in ready[first:] + ready[:first]:
                answer = self.workers[label].ask("round", case=case, seconds=seconds)
                if "failed" in answer:
                    self.fail(f"{case}, {label}", answer["failed"])
                    ready.remove(label)
                    del rounds[label]
                else:
                    rounds[label].append(answer)
        for label, turns in rounds.items():
            if (cores := middle(turns, "cores")) > self.threads + 0.25:
                self.notes.append(f"{case}, {label}: used {cores:.1f} cores")


def agree(values: list[float], expected: list[float]) -> bool:
    return len(values) == len(expected) and all(
        math.isclose(a, b, rel_tol=TOLERANCE)
        for a, b in zip(values, expected, strict=True)
    )


def middle(rounds: list[dict[str, float]], what: str = "best") -> float:
    return statistics.median(turn[what] for turn in rounds)


def spread(rounds: list[dict[str, float]]) -> float:
    """The middle half of the rounds as a part of their median."""
    best = [turn["best"] for turn in rounds]
    if len(best) < 2:
        return 0.0
    low, _, high = statistics.quantiles(best, n=4, method="inclusive")
    return (high - low) / middle(rounds)


def short(us: float) -> str:
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"


# ---- the report ----------------------------------------------------------------------


class Table:
    """Cases down, sides across, us in the cells; a row is printed once it is known."""

    def __init__(self, cases: list[str], sides: list[str]) -> None:
        self.sides = sides
        self.widths = [max(map(len, cases), default=0)]
        self.widths += [max(7, len(side)) for side in sides]  # 7: seconds as us
        self.print_row("", *sides, "noise")

    def print_row(self, case: str, *cells: str) -> None:
        first, *widths = self.widths
        row = [f"{cell:>{n}}" for cell, n in zip(cells, [*widths, 5], strict=True)]
        print(f"{case:{first}}", *row, flush=True)

    def add(self, case: str, rounds: dict) -> None:
        cells = [short(middle(rounds[s])) if s in rounds else "-" for s in self.sides]
        noise = f"{spread(rounds[CONTROL]):.0%}" if CONTROL in rounds else "-"
        self.print_row(case, *cells, noise)


def print_claims(claims: Sequence[Claim | Mean], rounds: dict) -> dict[str, float]:
    """The claims whose sides were measured, by their text."""
    figures = {}
    for claim in claims:
        value = claim.of(rounds)
        if value is not None:
            figures[str(claim)] = value
            *before, last = textwrap.wrap(str(claim), 48)
            line = "\n".join([*before, f"{last:48}{value:>10.2f}"])
            if claim.goal:
                met = "met" if holds(claim.goal, value) else "missed"
                line += f"  {claim.goal}: {met}"
            print(line)
    return figures


def summary(turns: list[dict[str, float]]) -> dict[str, object]:
    return {
        "best": round(middle(turns), 4),
        "typical": round(middle(turns, "typical"), 4),
        "spread": round(spread(turns), 4),
        "cores": round(middle(turns, "cores"), 2),
        "rounds": [round(turn["best"], 4) for turn in turns],
    }


def machine() -> dict[str, object]:
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        names = [s for s in cpuinfo.read_text().splitlines() if "model name" in s]
        model = names[0].partition(":")[2].strip() if names else model
    return {"cpu": model, "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def commit() -> str | None:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def save(name: str, result: dict) -> Path:
    date = datetime.date.today().isoformat()
    path = Path(__file__).parent / "results" / f"{name}-{date}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"name": name, "date": date, **result}, indent=1) + "\n")
    return path


def options(sides: dict[str, Side], about: str, threads: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    add = parser.add_argument
    add("--rounds", type=int, default=15, help="turns of each side (15)")
    add("--seconds", type=float, default=0.1, help="length of a turn (0.1)")
    add("--threads", type=int, default=threads, help=f"of each side ({threads})")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="of the sides (cpu)")
    add("--sides", default=",".join(sides), help="comma-separated (all)")
    add("--cases", default="", help="only the cases that contain this text")
    add("--peer-python", default=sys.executable, help="interpreter of the peers")
    add("--save", action="store_true", help="write bench/results/NAME-DATE.json")
    add("--worker", choices=sides, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.sides = chosen.sides.split(",")
    if unknown := set(chosen.sides) - sides.keys():
        parser.error(f"--sides: no {', '.join(unknown)} among {', '.join(sides)}")
    return chosen


def main(
    name: str,
    sides: dict[str, Side],
    claims: Sequence[Claim | Mean],
    about: str,
    threads: int = 1,
) -> None:
    """Compare `sides`, of which the control is the first; exit 1 if one fails."""
    chosen = options(sides, about.partition("\n")[0], threads)
    if chosen.worker:
        serve(sides[chosen.worker])
        return

    host = machine()
    print("{cpu}, {cores} cores, load {load:.1f}".format(**host))
    print(f"us per operation, {chosen.threads} thread(s) a side, {chosen.device}\n")
    with ExitStack() as stack:
        workers = {}
        for label, side in sides.items():
            if label == CONTROL or label in chosen.sides:
                python = chosen.peer_python if side.is_peer else sys.executable
                worker = Worker(label, python, chosen.threads, chosen.device)
                workers[label] = stack.enter_context(worker)
        comparison = Comparison(workers, chosen.threads)
        rounds = comparison.rounds
        # those of the control first, then what only others have
        sides = sorted(comparison.cases, key=lambda side: side != CONTROL)
        every = dict.fromkeys(s for side in sides for s in comparison.cases[side])
        cases = [s for s in every if chosen.cases in s]
        table = Table(cases, list(comparison.cases))
        for case in cases:
            comparison.measure(case, chosen.rounds, chosen.seconds)
            table.add(case, rounds[case])
    print()
    figures = print_claims(claims, rounds)
    for note in comparison.notes:
        print(textwrap.fill(note, 80, subsequent_indent="  "))
    if chosen.save:
        result = {
            "commit": commit(),
            "machine": host,
            "versions": comparison.versions,
            "method": {key: vars(chosen)[key] for key in METHOD},
            "us": {
                case: {label: summary(turns) for label, turns in by_side.items()}
                for case, by_side in rounds.items()
            },
            "claims": figures,
            "notes": comparison.notes,
        }
        name = name if chosen.device == "cpu" else f"{name}-{chosen.device}"
        print(f"written: {save(name, result)}")
    sys.exit(comparison.failed)
