"""Figures as plain data, drawn as PNG files and as SVG that takes its colours from the page around it.

A colour here is that of a light page. In the SVG each becomes a CSS variable, for which a dark page has another.
"""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

INK, FAINT = "#1c2024", "#d9dce1"
SERIES = ("#1f5fa8", "#c2570c", "#1a7f4b", "#7a4ab5", "#b3261e", "#5c6670", "#0b7d8c", "#946200")
_VARIABLES = {INK: "ink", FAINT: "faint"} | {colour: f"series-{i}" for i, colour in enumerate(SERIES)}
_STYLES = {"line": "-", "dashed": "--", "points": ""}


@dataclasses.dataclass(frozen=True)
class Line:
    """A series: `style` is "line", "dashed" or "points"; lines of the same label have one colour and one entry in the legend."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: str = "line"


@dataclasses.dataclass(frozen=True)
class Panel:
    """One plot with its axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Panel:
        lines = [Line(one["label"], tuple(one["x"]), tuple(one["y"]), one["style"]) for one in content["lines"]]
        return cls(**(content | {"lines": tuple(lines)}))


def check_can_draw() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("Figures need matplotlib: pip install 'tfdp[examples]'.") from None


def write_png(panels: Sequence[Panel], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _drawn(panels, columns=3) as figure:
        figure.savefig(path, dpi=130, facecolor="white")


def svg(panel: Panel) -> str:
    """For the inside of a page, with CSS variables in place of colours."""
    out = io.StringIO()
    with _drawn([panel], columns=1, salt=panel.title + panel.y_label) as figure:
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for colour, variable in _VARIABLES.items():
        text = re.sub(re.escape(colour), f"var(--{variable})", text, flags=re.IGNORECASE)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1), count=1
    )


class _drawn:
    """A matplotlib figure in our colours, for as long as the block runs."""

    def __init__(self, panels: Sequence[Panel], columns: int, salt: str = "tfdp"):
        import matplotlib

        self._panels, self._columns = panels, min(columns, len(panels))
        self._context = matplotlib.rc_context(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": salt,
                "font.size": 9,
                "text.color": INK,
                "axes.labelcolor": INK,
                "axes.edgecolor": INK,
                "xtick.color": INK,
                "ytick.color": INK,
                "grid.color": FAINT,
                "axes.prop_cycle": matplotlib.cycler(color=SERIES),
                "axes.spines.top": False,
                "axes.spines.right": False,
            }
        )

    def __enter__(self):
        from matplotlib.figure import Figure

        self._context.__enter__()
        rows = -(-len(self._panels) // self._columns)
        figure = Figure(figsize=(4.6 * self._columns, 3.2 * rows), layout="constrained")
        places = figure.subplots(rows, self._columns, squeeze=False).flatten()
        for panel, axes in zip(self._panels, places, strict=False):
            _draw(panel, axes)
        for axes in places[len(self._panels) :]:
            axes.set_visible(False)
        return figure

    def __exit__(self, *raised):
        return self._context.__exit__(*raised)


def _draw(panel: Panel, axes: Any) -> None:
    colours = {
        label: SERIES[i % len(SERIES)] for i, label in enumerate(dict.fromkeys(one.label for one in panel.lines))
    }
    named = set()
    for line in panel.lines:
        few = len(line.x) <= 20
        axes.plot(
            line.x,
            line.y,
            linestyle=_STYLES[line.style],
            marker="o" if few or line.style == "points" else "",
            markersize=6 if line.style == "points" else 3,
            markerfacecolor="none" if line.style == "points" else None,
            color=colours[line.label],
            linewidth=1.5,
            label="_" if line.label in named else line.label,
        )
        named.add(line.label)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    if panel.x_label == "epoch":
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(True, linewidth=0.6)
    axes.set_axisbelow(True)
    if len(colours) > 1:
        axes.legend(fontsize=7.5, frameon=False)
