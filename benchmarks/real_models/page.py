"""docs/models.md: a row for each model of the suite."""

import statistics
from collections.abc import Iterable

from benchmarks import protocol
from benchmarks.protocol import PLAIN, PRIVATE
from benchmarks.real_models.catalogue import KINDS, RealModel

DOCS = protocol.ROOT / "docs"
COLUMNS = ("model", "after", "lot", "weights", "error", "rules", "step", "first fit, s", "memory, MB", "remarks")
NOT_MEASURED = "not measured"
ROUNDING = 1e-4

INTRODUCTION = """# Models that people train

{count} models, rebuilt in small configurations after keras.io's examples, KerasHub's models and keras.applications, with made-up
records. Each is trained by plain Keras, then with one thing changed: the optimizer. Written by
`python -m benchmarks.real_models --jsonl FILE --write-docs`; the models are in `benchmarks/real_models/`.

* **error**: one step of SGD without noise beside brute force, which takes every record's gradient by itself: the larger relative
  error of the whole step, with a clip that nothing reaches and with one that half of the records reach. In brackets what Keras's own
  gradient of the whole batch is away from the mean of the same records' gradients, where that is above 1e-5: rounding. With 3D
  convolutions brute force itself may be rounded most: of a network with group normalization on volumes of 48 x 48 x 24, brute force
  in float32 was 8e-4 away from brute force in float64, tfdp's step 8e-6.
* **rules**: how many of the model's layers with weights have a rule of their family ("fast"); the others are run one example at a time
  by themselves ("universal"), or the model as a whole is ("whole"). The self-proof before the first step decides.
* **step**, where it was measured: CPU time of a step through `fit`, private over plain (Adam). Plain Keras sets up its input in every epoch, tfdp once in a fit: where
  epochs are short (4 to 64 steps here), that is why some ratios are below 1.
* **first fit**, likewise: CPU time of the first call of `fit`, of one step, plain and private: tracing, and the self-proof.
* **memory**, likewise: growth of a process that trains, plain and private.

{summary}
"""


def page(models: Iterable[RealModel], found: dict[str, dict]) -> str:
    """Columns in which nothing was measured are left out."""
    models = list(models)
    parts = [INTRODUCTION.format(count=len(models), summary=summary(models, found))]
    rows = {model.name: row(model, found.get(model.name, {})) for model in models}
    shown = [number for number in range(len(COLUMNS)) if any(cells[number] for cells in rows.values())]
    for kind, title in KINDS.items():
        lines = [COLUMNS, ["---"] * len(COLUMNS), *(rows[model.name] for model in models if model.kind == kind)]
        table = "\n".join(f"| {' | '.join(line[number] for number in shown)} |" for line in lines)
        parts.append(f"## {title}\n\n{table}\n")
    return "\n".join(parts)


def row(model: RealModel, found: dict) -> list[str]:
    exact, cost = found.get("exact", {}), found.get("cost", {})
    memories = [found.get(f"memory_{side}", {}) for side in (PLAIN, PRIVATE)]
    shown = [model.name, model.example, str(model.lot)]
    shown.append(f"{exact['weights']:,}" if "weights" in exact else "")
    shown.append(_error(exact) if "clipped" in exact else "")
    shown.append(_rules(exact) if "slow" in exact else "")
    shown.append(f"{_ratio(cost):.1f}" if "step_ms" in cost else "")
    shown.append(
        " to ".join(f"{cost['first_fit_s'][side]:.1f}" for side in (PLAIN, PRIVATE)) if "first_fit_s" in cost else ""
    )
    shown.append(
        " to ".join(f"{max(one['memory_mb'], one['warm_up_memory_mb']):.0f}" for one in memories)
        if all("memory_mb" in one for one in memories)
        else ""
    )
    return [*shown, _remarks(model, found)]


def line(model: RealModel, found: dict) -> str:
    """For the console."""
    return "  ".join(row(model, found))


def summary(models: list[RealModel], found: dict[str, dict]) -> str:
    exact = [one["exact"] for one in found.values() if "clipped" in one.get("exact", {})]
    costs = [one["cost"] for one in found.values() if "step_ms" in one.get("cost", {})]
    said = []
    if exact:
        close, fast = sum(_worst(one) <= ROUNDING for one in exact), sum(not one["slow"] for one in exact)
        said.append(
            f"Of {len(models)} models {len(exact)} were compared with brute force: {close} within {ROUNDING:g}. {fast} of them have a rule of "
            "its family for every layer."
        )
    if costs:
        ratios, first = [_ratio(one) for one in costs], [one["first_fit_s"][PRIVATE] for one in costs]
        said.append(
            f"A step of {len(costs)} takes {statistics.median(ratios):.1f} times plain Keras's in the median, {max(ratios):.1f} at most; the first "
            f"fit {statistics.median(first):.1f} s of CPU time in the median, {max(first):.1f} at most."
        )
    return " ".join(said) or "Nothing was measured yet."


def _worst(exact: dict) -> float:
    return max(exact["unclipped"], exact["clipped"])


def _error(exact: dict) -> str:
    own = f" ({exact['joint']:.0e})" if exact["joint"] > 1e-5 else ""
    return f"{_worst(exact):.0e}{own}"


def _ratio(cost: dict) -> float:
    return cost["step_ms"][PRIVATE] / cost["step_ms"][PLAIN]


def _rules(exact: dict) -> str:
    slow = exact["slow"]
    if any("whole" in one for one in slow):
        return "whole"
    fast = f"{exact['sites'] - len(slow)} fast"
    return f"{fast}, {len(slow)} universal" if slow else fast


def _remarks(model: RealModel, found: dict) -> str:
    """Why not all is fast or exact, or why it does not train: as the model's note has it, else what was found."""
    exact = found.get("exact", {})
    slow, apart = exact.get("slow", []), "clipped" in exact and _worst(exact) > ROUNDING
    failed = [one["out_of_reach"] for one in found.values() if isinstance(one, dict) and "out_of_reach" in one]
    remarks = [model.note] if model.note and (slow or apart or failed or not found) else []
    if failed:
        remarks.append(failed[0].replace("|", "/").partition(". ")[0][:200])
    elif slow and not model.note:
        remarks.append(
            "universal: " + ", ".join(one.partition(":")[0] for one in slow[:4]) if "whole" not in slow[0] else slow[0]
        )
    return "; ".join(remarks) if found else NOT_MEASURED
