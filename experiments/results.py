"""What was run, by its setting: lines of a JSON file. A line that was cut off while it was written does not count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Results:
    """Scores by their setting, a tuple of plain values."""

    def __init__(self, file: Path):
        self._file, self.scores = file, {}
        for one in runs_of(file):
            self.scores[_frozen(one["run"])] = one["score"]

    def add(self, setting: tuple, score: Any) -> None:
        self.scores[_frozen(setting)] = score
        add_line(self._file, {"run": setting, "score": score})


def runs_of(file: Path) -> list[dict[str, Any]]:
    """All whole lines, each with what was run and its score."""
    found = lines_of(file)
    for line in found:
        if not (isinstance(line, dict) and {"run", "score"} <= line.keys()):
            told = json.dumps(line)
            raise ValueError(
                f"A line of {file} is not of a run, which has 'run' and 'score'. Mend it, or delete it and it is run again: "
                f"{told[:100]}{'...' * (len(told) > 100)}"
            )
    return found


def lines_of(file: Path) -> list[Any]:
    """All whole lines."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def add_line(file: Path, content: Any) -> None:
    """On a line of its own, also after one that was cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    torn = file.exists() and file.stat().st_size > 0 and not file.read_bytes().endswith(b"\n")
    with file.open("a") as lines:
        lines.write(("\n" if torn else "") + json.dumps(content) + "\n")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
