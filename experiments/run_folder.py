"""What a run leaves in its folder, and how it is read again."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments import folder_lock
from experiments.settings import RunSettings

SETTINGS, RESULT, STATEMENT, MODEL = "settings.json", "result.json", "statement.json", "model.keras"

_IN_RESULT = ("settings", "metric", "score", "records", "test_records", "seconds", "history")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A folder of one run. `settings.json` is written before the first step, `result.json` after all else."""

    path: Path

    @property
    def finished(self) -> bool:
        return (self.path / RESULT).is_file()

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def finished_already(self) -> str:
        return f"{self.path} is finished already. Its report: {self.report}. To run it again, delete the folder or give --name."

    @property
    def begun(self) -> bool:
        return (self.path / SETTINGS).is_file()

    @property
    def settings(self) -> RunSettings:
        return RunSettings.from_json(self._command_and_settings["settings"])

    @property
    def command(self) -> str:
        return self._command_and_settings["command"]

    @property
    def record(self) -> dict[str, Any]:
        result = read_json(self.path / RESULT, _IN_RESULT)
        return result | {
            "statement": read_json(self.path / STATEMENT, ("epsilon", "claims", "not_protected", "versions"))
        }

    @property
    def _command_and_settings(self) -> dict[str, Any]:
        return read_json(self.path / SETTINGS, ("settings", "command"))

    def check(self, settings: RunSettings) -> None:
        """Refuses a folder that holds something else."""
        if self.begun:
            self._check_same(settings)
        elif self.path.is_dir() and any(one.name != folder_lock.FILE for one in self.path.iterdir()):
            raise ValueError(f"{self.path} holds files that are not of a run. Give another --name or --folder.")

    def begin(self, settings: RunSettings, command: str) -> None:
        """Refuses a folder that holds something else."""
        self.check(settings)
        if not self.begun:
            self.path.mkdir(parents=True, exist_ok=True)
            _write(self.path / SETTINGS, {"settings": settings.to_json(), "command": command})

    def _check_same(self, settings: RunSettings) -> None:
        there, here = self.settings.to_json(), settings.to_json()
        different = [name for name in here if there[name] != here[name]]
        if different:
            said = ", ".join(f"{name} {there[name]} there and {here[name]} here" for name in different)
            raise ValueError(
                f"{self.path} holds a run of other settings: {said}. Give another --name, or delete that folder."
            )

    def finish(self, model: Any, statement: Any, record: dict[str, Any]) -> None:
        """Of all that is left, the result is written last: with it the run is finished."""
        part = self.path / f"part-{MODEL}"  # Keras empties a file before it writes to it
        model.save(part)
        part.replace(self.path / MODEL)
        _write_text(self.path / STATEMENT, statement.to_json())
        _write_text(self.path / "statement.txt", f"{statement}\n")
        _write(self.path / RESULT, {name: value for name, value in record.items() if name != "statement"})


@contextlib.contextmanager
def as_written(folder: Path) -> Iterator[None]:
    """What is read in here was written by train.py: where it can't be used, it was changed since."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if str(folder) in str(error):
            raise
        raise ValueError(
            f"{folder} does not hold what train.py wrote there ({type(error).__name__}: {error}). Delete it and run it again."
        ) from error


def read_json(file: Path, names: Iterable[str]) -> dict[str, Any]:
    """A file's content, which has these names."""
    try:
        content = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{file.parent} is not the folder of a finished run: there is no {file.name}.") from None
    except ValueError as error:
        raise ValueError(f"{file} can't be read: {error}") from error
    missing = [name for name in names if not isinstance(content, dict) or name not in content]
    if missing:
        raise ValueError(f"{file} is not what train.py wrote there: it has no {', '.join(missing)}.")
    return content


def _write(file: Path, content: dict[str, Any]) -> None:
    _write_text(file, json.dumps(content, indent=1, sort_keys=False) + "\n")


def _write_text(file: Path, text: str) -> None:
    """Whole or not at all: on a full disk the file that was there stays."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(text)
    part.replace(file)
