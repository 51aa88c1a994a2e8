"""What several runs together found: a table and figures, written as Markdown, PNG, HTML, and as data to write them from again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from experiments.report import figures, page
from experiments.report.figures import Panel
from experiments.run_folder import read_json
from experiments.tables import markdown

FILE = "found.json"


@dataclasses.dataclass(frozen=True)
class Found:
    """A table with its figures.

    Attributes:
        about: what it shows, a sentence or two.
        notes: what a reader must know to read it right.
        command: that makes it.
    """

    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    panels: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()
    command: str = ""

    @property
    def markdown(self) -> str:
        """For docs/results.md."""
        parts = [f"### {self.title}", self.about, markdown(self.columns, self.rows), *self.notes, f"`{self.command}`"]
        return "\n\n".join(part for part in parts if part) + "\n"

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        (folder / "table.md").write_text(self.markdown)
        if self.panels:
            figures.write_png(self.panels, folder / "figures" / "figure.png")
        (folder / "report.html").write_text(self._page())

    def _page(self) -> str:
        parts = [page.heading("Table"), page.table(self.columns, self.rows)]
        if self.panels:
            captions = [(panel, f"{panel.title}: {panel.y_label} over {panel.x_label}.") for panel in self.panels]
            parts = [page.plots(captions), *parts]
        parts += [page.heading("How to read it"), page.points(self.notes)] if self.notes else []
        parts += [page.heading("Run it again"), page.code(self.command)]
        return page.page(self.title, self.about, parts)


def folders_in(folder: Path) -> list[Path]:
    """The folder and those in it, as far as they hold what was found."""
    files = (folder / FILE, *sorted(folder.glob(f"*/{FILE}")))
    return [file.parent for file in files if file.is_file()]


def read(folder: Path) -> Found:
    content = read_json(folder / FILE, [field.name for field in dataclasses.fields(Found)])
    content["panels"] = tuple(map(Panel.from_json, content["panels"]))
    for name in ("columns", "notes"):
        content[name] = tuple(content[name])
    content["rows"] = tuple(map(tuple, content["rows"]))
    return Found(**content)
