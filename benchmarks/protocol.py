"""How time and memory are measured: the same for tfdp, plain Keras and every peer. Standard library and numpy only.

Time: every side (say private and plain) is run once per repeat, one after the other (A B A B ...), so that a slow moment
of the machine hits all sides alike; what is reported is the median over the repeats, beside the quartiles. Memory: the
highest resident size of the process during some steps after the warm-up, less its size before training; a process of
its own for each side, because memory that a process once had is seldom given back.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PLAIN, PRIVATE = "plain", "private"  # methods of plain Keras and of tfdp
TIMES = ("step_ms", "cpu_ms", "fit_ms")  # of an Entry
XLA = ", XLA"  # ends the name of a method that XLA compiles


@dataclasses.dataclass
class Entry:
    """One side of one measurement, as it stands in the JSON.

    Attributes:
        workload: such as "cnn@256".
        library: "keras", "tfdp", "opacus", ...
        method: "plain", "private" (both perhaps with ", XLA"), or how a peer gets per-example gradients.
        optimizer: "sgd" or "adam".
        protocol: "fit" or "jit" (epochs of `model.fit`, lots drawn from arrays), "resident" (one lot, in memory, again and
            again), or the script whose question it answers: "growth", "physical", "drawing" and "epoch" (of `input_cost`).
        status: "measured", or "out of reach" with a reason.
        weights: the number of trainable weights.
        step_ms: milliseconds a step: median, low and high quartile, and every repeat.
        cpu_ms: the same by the CPU time of all threads, where both clocks were read.
        fit_ms: what one call of fit costs beside its epochs, likewise.
        memory_mb: growth of resident memory while training, after the warm-up.
        warm_up_memory_mb: growth up to the end of the warm-up: tracing, compiling and, in tfdp, the proof.
        error: largest relative difference between the step's clipped sum and brute force, where it is checked.
        steps: steps in one repeat, or in an epoch.
        lot: the number of examples in a lot, where lots differ.
        records_mb: size of a lot's records, where memory_mb is the growth of a process that had a lot in memory before.
        fit_memory_mb: growth through fit beside it, the input pipeline's lots included.
        padding: share of the rows that are not records, where they are counted.
    """

    workload: str
    library: str
    method: str
    optimizer: str
    protocol: str
    status: str = "measured"
    reason: str | None = None
    weights: int | None = None
    step_ms: dict | None = None
    cpu_ms: dict | None = None
    fit_ms: dict | None = None
    memory_mb: float | None = None
    warm_up_memory_mb: float | None = None
    error: float | None = None
    steps: int | None = None
    lot: int | None = None
    records_mb: float | None = None
    fit_memory_mb: float | None = None
    padding: float | None = None

    def fill(self, found: dict) -> None:
        """What was found out about it in a process of its own (`attempt`)."""
        if "out_of_reach" in found:
            self.status, self.reason, self.step_ms = "out of reach", found["out_of_reach"], None
        else:
            for name, value in found.items():
                setattr(self, name, value)


# "cpu" counts the work of all threads of this process: on a shared machine it is by far the steadier of the two, and a ratio
# of it says how much more is computed, not how much longer it takes where work runs side by side.
CLOCKS = {"wall": "perf_counter", "cpu": "process_time"}


Seconds = dict[str, list[float]]  # by each clock


def now() -> dict[str, float]:
    """Every clock, in seconds."""
    return {clock: getattr(time, name)() for clock, name in CLOCKS.items()}


def interleaved(sides: dict[Any, Callable[[], Any]], repeats: int) -> dict[Any, Seconds]:
    """Seconds of every run of every side, A B A B ..."""
    seconds: dict[Any, Seconds] = {name: {clock: [] for clock in CLOCKS} for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            begin = now()
            run()
            for clock, end in now().items():
                seconds[name][clock].append(end - begin[clock])
    return seconds


def steps_taken(seconds: Seconds, steps: int, clock: str) -> dict:
    """What an Entry says of runs of so many steps: their time, and the CPU time beside it."""
    times = {name: summary_ms(s / steps for s in seconds[name]) for name in (clock, "cpu")}
    return {"step_ms": times[clock], "cpu_ms": times["cpu"], "steps": steps}


def summary_ms(seconds: Iterable[float]) -> dict:
    """Median, quartiles and least value in milliseconds, and all values. On a busy machine the least is the steadiest."""
    values = [1000 * s for s in seconds]
    least, low, median, high = np.percentile(values, [0, 25, 50, 75])
    return {"median": float(median), "low": float(low), "high": float(high), "least": float(least), "all": values}


def resident_steps(
    runs: dict[str, Callable[[int], Any]], repeats: int, steps: int | None, seconds: float = 0.5, clock: str = "wall"
) -> dict[str, dict]:
    """What an Entry says of the time of sides that take `run(steps)` and return when the last step is done.

    Without `steps`, each side takes as many as fill about `seconds`. The sides must be warm.
    """
    counts = {name: steps or _steps_in(seconds, run) for name, run in runs.items()}
    times = interleaved({name: lambda run=run, n=counts[name]: run(n) for name, run in runs.items()}, repeats)
    return {name: steps_taken(times[name], counts[name], clock) for name in runs}


def _steps_in(seconds: float, run: Callable[[int], Any]) -> int:
    steps = 1
    while True:
        begin = time.perf_counter()
        run(steps)
        taken = time.perf_counter() - begin
        if taken > seconds / 10:
            return max(1, round(seconds * steps / taken))
        steps *= 4


@dataclasses.dataclass
class MemoryGrowth:
    megabytes: float = 0.0


@contextlib.contextmanager
def memory_growth(before: float | None = None) -> Iterator[MemoryGrowth]:
    """The highest resident size inside the block, less `before` (default: the size at its beginning)."""
    start = resident_mb() if before is None else before
    _forget_peak()
    grown = MemoryGrowth()
    yield grown
    grown.megabytes = max(0.0, _peak_mb() - start)


def resident_mb() -> float:
    """The size of this process, when the free part of its heap is given back: to use it again would not count as growth."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with contextlib.suppress(OSError):
        return _field_mb("/proc/self/status", "VmRSS")
    return _peak_mb()


def _peak_mb() -> float:
    with contextlib.suppress(OSError):
        return _field_mb("/proc/self/status", "VmHWM")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _forget_peak() -> None:
    """Linux only. Elsewhere the peak is that since the process began."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _field_mb(file: str, field: str) -> float:
    for line in Path(file).read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise OSError(field)


def in_a_process_of_its_own(module: str, *arguments: str, limit: float | None = None) -> Any:
    """Run `python -m module arguments...` from the repository's root, and read the JSON of its last line.

    Raises:
        subprocess.TimeoutExpired: it took more than `limit` seconds.
        RuntimeError: it failed; with the end of what it said.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def attempt(what: str, module: str, *arguments: str, limit: float | None = None) -> Any:
    """The same, but where nothing comes of it the answer is {"out_of_reach": reason}."""
    try:
        return in_a_process_of_its_own(module, *arguments, limit=limit)
    except subprocess.TimeoutExpired:
        return {"out_of_reach": f"the {what} took more than {limit:.0f} s"}
    except RuntimeError as error:
        return {"out_of_reach": f"the {what} broke off: {' '.join(str(error).split())[-200:]}"}


def out_of_reach(error: Exception) -> dict:
    """What a process of its own answers when it failed in an orderly manner."""
    words = " ".join(str(error).split())
    return {"out_of_reach": f"{type(error).__name__}: {words[:300]}"}


def together(parts: list[dict]) -> dict:
    """Runs of processes of their own as one: all their times; or, if one has not come about, why not."""
    for part in parts:
        if "out_of_reach" in part:
            return part
    clocks = {name: summary_ms(ms / 1000 for part in parts for ms in part[name]["all"]) for name in TIMES}
    return parts[0] | clocks


def bound_memory(share: float) -> None:
    """Let this process fail when it takes more than this share of the free memory, before the system ends it or others."""
    with contextlib.suppress(OSError):
        most = int(share * available_mb() * 2**20)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def available_mb() -> float:
    """Linux only.

    Raises:
        OSError: elsewhere.
    """
    return _field_mb("/proc/meminfo", "MemAvailable")


def machine(*packages: str) -> dict:
    """Where the numbers come from."""
    versions = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": load,
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": versions,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class Results:
    """What a script has measured so far. With `--json` it is kept from the first entry on, should a long run be stopped."""

    def __init__(self, options: argparse.Namespace, packages: Iterable[str]):
        self.entries: list[Entry] = []
        self._path = options.json
        self._about = {"machine": machine(*packages), "clock": options.clock, "repeats": options.repeats}

    def add(self, *entries: Entry) -> None:
        self.entries += entries
        if self._path:
            content = self._about | {"entries": [dataclasses.asdict(entry) for entry in self.entries]}
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            Path(self._path).write_text(json.dumps(content, indent=1) + "\n")


def read(path: str | Path) -> tuple[dict, list[Entry]]:
    """What a script wrote: about the measurement, and its entries."""
    about = json.loads(Path(path).read_text())
    return about, [Entry(**entry) for entry in about.pop("entries")]


def parser(script: str, description: str | None, repeats: int) -> argparse.ArgumentParser:
    """The arguments that all scripts take."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{script}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", help="write the results here")
    made.add_argument(
        "--repeats", type=int, default=repeats, help=f"runs of every side; the median counts (default {repeats})"
    )
    made.add_argument(
        "--clock", default="wall", choices=list(CLOCKS), help="cpu: of all threads; steadier on a shared machine"
    )
    return made
