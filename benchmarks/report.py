"""Puts what was measured into docs/performance.md: `python -m benchmarks.report results/*.json [--write-docs]`.

Without `--write-docs` the tables are only printed. Each section is written from all files together: the peers' are
compared with tfdp's from `step_cost --resident`. What stands in the page outside of the marks stays, and so do the
sections that the files say nothing about. Without matplotlib there are no plots.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import plots, protocol, tables
from benchmarks.protocol import Entry

DOCS = protocol.ROOT / "docs"
CLOCKS = {"wall": "Wall-clock time", "cpu": "CPU time of all threads"}


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page: tables of the entries of some protocols, under a title."""

    title: str
    tables: dict[str, tuple[Callable[[list[Entry]], str], ...]]
    plot: Callable[[list[Entry], Path], bool] | None = None
    of: Callable[[Entry], bool] = lambda one: True


SECTIONS = {
    "fit": Section("Through model.fit", {"fit": (tables.sides,)}, plots.ratios),
    "resident": Section(
        "The training step on one lot in memory",
        {"resident": (tables.sides,)},
        plots.times,
        lambda one: one.library in ("keras", "tfdp"),
    ),
    "jit": Section("Compiled by XLA", {"jit": (tables.jit,)}, plots.ratios),
    "growth": Section("How the cost grows", {"growth": (tables.growth,)}, plots.growth),
    "physical": Section("Large lots in parts", {"physical": (tables.physical,)}),
    "input": Section("What the input costs", {"drawing": (tables.drawing,), "epoch": (tables.epoch,)}),
    "peers": Section("Against other libraries", {"resident": (tables.peers, tables.every_method)}, plots.times),
}


def contents(files: list[str]) -> dict[str, tuple[list[Entry], list[dict]]]:
    """Entries of each section that has any, with what the files say of how they were measured."""
    read = [protocol.read(file) for file in files]
    found = {}
    for name, section in SECTIONS.items():
        chosen = [
            (about, [one for one in all_ if one.protocol in section.tables and section.of(one)]) for about, all_ in read
        ]
        entries = [one for _, some in chosen for one in some]
        if entries and (name != "peers" or any(one.library not in ("keras", "tfdp") for one in entries)):
            found[name] = entries, [about for about, some in chosen if some]
    return found


def written(section: Section, entries: list[Entry]) -> str:
    """The section's title and tables."""
    parts = [f"### {section.title}"]
    for how, all_ in section.tables.items():
        chosen = [one for one in entries if one.protocol == how]
        parts += [table(chosen) for table in all_ if chosen]
    return "\n\n".join(parts)


def measured_on(abouts: list[dict]) -> str:
    where = abouts[0]["machine"]
    packages = dict.fromkeys(
        item for about in abouts for item in about["machine"]["packages"].items()
    )  # peers have others
    clocks = " and ".join(dict.fromkeys(CLOCKS[about["clock"]] for about in abouts))
    versions = ", ".join(f"{name} {version}" for name, version in packages)
    return (
        f"{clocks}. Measured on {where['cores']} cores of {where['processor']}, Python {where['python']}, {versions}."
    )


def write_section(name: str, content: str, docs: Path = DOCS) -> None:
    """Replace what stands between the marks of this name in docs/performance.md, or add it at the end."""
    page = docs / "performance.md"
    text = page.read_text() if page.exists() else "# What privacy costs in time and memory\n"
    begin, end = f"<!-- {name}: written by benchmarks -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{content}\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    replaced, found = pattern.subn(lambda _: section, text)
    page.write_text(replaced if found else text.rstrip("\n") + f"\n\n{section}\n")


def main(given: list[str] | None = None, docs: Path = DOCS) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", help="JSON files of the other scripts and of the peers")
    parser.add_argument("--write-docs", action="store_true", help="put tables and plots into docs/performance.md")
    options = parser.parse_args(given)
    docs.mkdir(parents=True, exist_ok=True)
    for name, (entries, abouts) in contents(options.files).items():
        section = SECTIONS[name]
        content = f"{written(section, entries)}\n\n{measured_on(abouts)}"
        print(content, end="\n\n")
        if options.write_docs:
            image = docs / f"performance-{name}.png"
            picture = f"\n\n![{section.title}]({image.name})" if section.plot and section.plot(entries, image) else ""
            write_section(name, content + picture, docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
