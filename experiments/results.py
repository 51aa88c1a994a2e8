"""What was run, by its setting: lines of a JSON file. A line that was cut off while it was written does not count."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
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
    found = []
    for number, line in _numbered(file):
        if not (isinstance(line, dict) and {"run", "score"} <= line.keys()):
            raise ValueError(
                f"Line {number} of {file} is not of a run, which has 'run' and 'score'. Mend it, or delete it and it is run again."
            )
        found.append(line)
    return found


def _numbered(file: Path) -> Iterator[tuple[int, Any]]:
    if not file.exists():
        return
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        with contextlib.suppress(ValueError):
            yield number, json.loads(line)


def add_line(file: Path, content: Any) -> None:
    """On a line of its own, also after one that was cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    torn = file.exists() and file.stat().st_size > 0 and not file.read_bytes().endswith(b"\n")
    with file.open("a") as lines:
        lines.write(("\n" if torn else "") + json.dumps(content) + "\n")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
