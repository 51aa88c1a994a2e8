"""Pages and figures."""

import re

from experiments.report import figures, page
from experiments.report.figures import Line, Panel

PANEL = Panel(
    "title", "epoch", "accuracy", (Line("one", (1.0, 2.0), (3.0, 4.0)), Line("two", (1.0, 2.0), (4.0, 3.0), "dashed"))
)


def test_all_colours_of_a_drawing_come_from_the_page():
    drawn = figures.svg(PANEL)
    assert drawn.startswith("<svg") and "var(--series-0)" in drawn and "var(--ink)" in drawn
    assert not re.findall(r"(?:fill|stroke): ?#[0-9a-fA-F]{6}", drawn)


def test_every_colour_variable_has_a_value_in_light_and_in_dark():
    style = page.page("t", "l", [])
    light, dark = style.split("prefers-color-scheme: dark", 1)
    for name in figures._VARIABLES.values():
        assert f"--{name}: #" in light and f"--{name}: #" in dark


def test_the_light_pages_colours_are_those_of_the_png():
    style = page.page("t", "l", [])
    assert all(f"--{name}: {colour};" in style for colour, name in figures._VARIABLES.items())


def test_text_is_escaped():
    assert (
        "<b>"
        not in page.page("<b>", "<b>", [page.paragraph("<b>"), page.table(("<b>",), [("<b>",)])]).split("</style>")[1]
    )


def test_a_panel_survives_json():
    import dataclasses
    import json

    assert Panel.from_json(json.loads(json.dumps(dataclasses.asdict(PANEL)))) == PANEL
