"""Every model of the suite through plain Keras and through tfdp, each in processes of its own.

    python -m benchmarks.real_models --jsonl results/models.jsonl --write-docs
    python -m benchmarks.real_models --models vision_transformer gpt2_lora --jsonl results/models.jsonl --again

A model's findings are one line of the file. What is in the file is not measured again, unless `--again` says so: a run that was
broken off goes on where it was. `--write-docs` makes docs/models.md of the whole file. `measure.py` says what is measured.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks import protocol, sides
from benchmarks.real_models import measure, page
from benchmarks.real_models.catalogue import KINDS, RealModel, all_models, models_of

PARTS = {"exact": measure.exactness, "cost": measure.cost}
MEMORY = [f"memory_{side}" for side in sides.SIDES]


def part(name: str, model: RealModel) -> dict:
    """One part of what is measured, in this process."""
    try:
        if name in PARTS:
            return PARTS[name](model)
        return measure.memory(model, name.removeprefix("memory_"))
    except Exception as error:
        return protocol.out_of_reach(error)


def findings(model: RealModel, options: argparse.Namespace) -> dict:
    """All parts, each in a process of its own: one that breaks down leaves the others alone."""
    found = {"model": model.name}
    for name in options.parts:
        found[name] = protocol.attempt(
            name, "benchmarks.real_models", "--part", name, model.kind, model.name, limit=options.limit
        )
    return found


def read(path: Path) -> dict[str, dict]:
    """The findings of a file by model; of those of one model the parts that came last."""
    found: dict[str, dict] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        one = json.loads(line)
        found.setdefault(one["model"], {}).update(one)
    return found


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), help="default: all")
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, *MEMORY], default=[*PARTS, *MEMORY], help="default: all")
    parser.add_argument("--jsonl", type=Path, required=False, help="the file of findings: read, and added to")
    parser.add_argument("--again", action="store_true", help="measure what is in the file too")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each part (default 600)")
    parser.add_argument("--write-docs", action="store_true", help="write docs/models.md")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.jsonl is None and not options.part:
        parser.error("--jsonl: say which file.")
    return options


def main(given: list[str] | None = None, docs: Path = page.DOCS) -> int:
    options = arguments(given)
    if options.part:
        name, kind, model = options.part
        print(json.dumps(part(name, models_of(kind)[model])))
        return 0
    models = all_models()
    known = read(options.jsonl)
    for model in models.values():
        chosen = model.name in (options.models or models) and model.kind in (options.kinds or KINDS)
        if not chosen or (not options.again and set(options.parts) <= set(known.get(model.name, {}))):
            continue
        one = findings(model, options)
        options.jsonl.parent.mkdir(parents=True, exist_ok=True)
        with options.jsonl.open("a") as file:
            file.write(json.dumps(one) + "\n")
        print(page.line(model, known.setdefault(model.name, {}) | one), flush=True)
    if options.write_docs:
        (docs / "models.md").write_text(page.page(models.values(), read(options.jsonl)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
