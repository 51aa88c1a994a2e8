"""How time and memory are measured: the same for tfdp, plain Keras and every peer. Standard library and numpy only.

Time: every side (say private and plain) is run once per repeat, one after the other (A B A B ...), so that a slow moment
of the machine hits all sides alike; what is reported is the median over the repeats, beside the quartiles. Memory: the
highest resident size of the process during some steps after the warm-up, less its size before training; a process of
its own for each side, because memory that a process once had is seldom given back.
"""

import contextlib
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


@dataclasses.dataclass
class Entry:
    """One side of one measurement, as it stands in the JSON.

    Attributes:
        workload: such as "cnn@256".
        library: "keras", "tfdp", "opacus", ...
        method: "plain", or how the library gets per-example gradients.
        optimizer: "sgd" or "adam".
        protocol: "fit" (whole `model.fit` calls, lots drawn from arrays) or "resident" (one lot, in memory, again and again).
        status: "measured", or "out of reach" with a reason.
        weights: the number of trainable weights.
        step_ms: milliseconds a step: median, low and high quartile, and every repeat.
        fit_ms: what one call of fit costs beside its steps, likewise.
        memory_mb: growth of resident memory while training, after the warm-up.
        warm_up_memory_mb: growth up to the end of the warm-up: tracing, compiling and, in tfdp, the proof.
        error: largest relative difference between the step's clipped sum and brute force, where it is checked.
        steps: steps in one repeat.
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
    fit_ms: dict | None = None
    memory_mb: float | None = None
    warm_up_memory_mb: float | None = None
    error: float | None = None
    steps: int | None = None


# "cpu" counts the work of all threads of this process: on a shared machine it is by far the steadier of the two, and a ratio
# of it says how much more is computed, not how much longer it takes where work runs side by side.
CLOCKS = {"wall": "perf_counter", "cpu": "process_time"}


def interleaved(sides: dict[str, Callable[[], Any]], repeats: int, clock: str = "wall") -> dict[str, list[float]]:
    """Seconds of every run of every side, A B A B ..."""
    now = getattr(time, CLOCKS[clock])
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            begin = now()
            run()
            seconds[name].append(now() - begin)
    return seconds


def summary_ms(seconds: Iterable[float]) -> dict:
    """Median, quartiles and least value in milliseconds, and all values. On a busy machine the least is the steadiest."""
    values = [1000 * s for s in seconds]
    least, low, median, high = np.percentile(values, [0, 25, 50, 75])
    return {"median": float(median), "low": float(low), "high": float(high), "least": float(least), "all": values}


def resident_steps(
    runs: dict[str, Callable[[int], Any]], repeats: int, steps: int | None, seconds: float = 0.5, clock: str = "wall"
) -> dict[str, tuple[dict, int]]:
    """Milliseconds a step of sides that take `run(steps)` and return when the last step is done.

    Without `steps`, each side takes as many as fill about `seconds`. The sides must be warm.
    """
    counts = {name: steps or _steps_in(seconds, run) for name, run in runs.items()}
    times = interleaved({name: lambda run=run, n=counts[name]: run(n) for name, run in runs.items()}, repeats, clock)
    return {name: (summary_ms(t / counts[name] for t in times[name]), counts[name]) for name in runs}


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
    with contextlib.suppress(OSError):
        return _status_mb("VmRSS")
    return _peak_mb()


def _peak_mb() -> float:
    with contextlib.suppress(OSError):
        return _status_mb("VmHWM")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _forget_peak() -> None:
    """Linux only. Elsewhere the peak is that since the process began."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
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


def write(path: str | Path, entries: list[Entry], where: dict, **more: Any) -> None:
    """The JSON that all benchmarks share."""
    content = {"machine": where, **more, "entries": [dataclasses.asdict(entry) for entry in entries]}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(content, indent=1) + "\n")


def read(*paths: str | Path) -> list[Entry]:
    return [Entry(**entry) for path in paths for entry in json.loads(Path(path).read_text())["entries"]]
