"""The pieces of a page: one HTML file, nothing from outside of it."""

from __future__ import annotations

import html
import importlib.resources
from collections.abc import Iterable, Sequence

from experiments.report import figures
from experiments.report.figures import Panel


class Html(str):
    """Text that is HTML already; all other text is escaped."""


def page(title: str, lead: str, parts: Iterable[Html]) -> str:
    style = importlib.resources.files("experiments.report").joinpath("style.css").read_text()
    body = "\n".join([f"<h1>{_text(title)}</h1>", f'<p class="lead">{_text(lead)}</p>', *parts])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def heading(text: str) -> Html:
    return Html(f"<h2>{_text(text)}</h2>")


def paragraph(text: str, kind: str = "") -> Html:
    return Html(f"<p{_class(kind)}>{_text(text)}</p>")


def cards(numbers: Iterable[tuple[str, str]]) -> Html:
    """Pairs of a number and what it is."""
    made = [f'<div class="card"><b>{_text(number)}</b><span>{_text(what)}</span></div>' for number, what in numbers]
    return Html(f'<div class="cards">{"".join(made)}</div>')


def plots(panels: Iterable[tuple[Panel, str]]) -> Html:
    """Pairs of a panel and its caption."""
    made = [
        f'<figure role="img" aria-label="{_text(caption)}">{figures.svg(panel)}<figcaption>{_text(caption)}</figcaption></figure>'
        for panel, caption in panels
    ]
    return Html(f'<div class="figures">{"".join(made)}</div>')


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> Html:
    """With class "claims" each row becomes a block of its own on a narrow screen."""
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td data-name="{_text(n)}">{_text(c)}</td>' for n, c in zip(columns, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return Html(
        f'<div class="wide"><table{_class(kind)}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def status(name: str) -> Html:
    return Html(f'<span class="status {name.replace(" ", "-")}">{_text(name)}</span>')


def points(items: Iterable[str]) -> Html:
    return Html("<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>")


def code(text: str) -> Html:
    return Html(f"<pre><code>{_text(text)}</code></pre>")


def folded(summary: str, *parts: Html) -> Html:
    return Html(f"<details><summary>{_text(summary)}</summary>{''.join(parts)}</details>")


def _text(text: str) -> str:
    return text if isinstance(text, Html) else html.escape(str(text))


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
