"""docs/keras-compatibility.md, written by what happens: ``python -m tests.compatibility.page`` runs every case and writes it."""

import pathlib
import sys
import time

from tests.compatibility import compiling, fitting, layer_kinds, models  # noqa: F401 (they register the cases)
from tests.compatibility.cases import CASES, REFUSED, TRAINED, Case, outcome

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "keras-compatibility.md"
HEAD = """# Keras features, and what a private optimizer makes of them

Each row is a fit (or an attempt) on a tiny model with `tfdp.NoisySGD` in the optimizer's place: *trained* means that weights moved and
that the ledger says so, *refused* that an error came, in the words that stand there. Where several features share a row, they were
trained together. That trained models have the right gradients is tested elsewhere ([proof.md](proof.md)).

Made by `python -m tests.compatibility.page` (two minutes; with words of a row or section, these rows alone); `tests/compatibility/test_page.py` compares every row with what happens.
"""


def row(case: Case) -> str:
    status, why = outcome(case)
    return f"| {case.feature} | {status} | {why} |"


def rows_on_the_page() -> dict[str, str]:
    """By feature."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    return {
        line[2:].split(f" | {status} |")[0]: line
        for line in lines
        for status in (TRAINED, REFUSED)
        if f" | {status} |" in line
    }


def text(rows: dict[str, str]) -> str:
    parts, section = [HEAD], None
    for feature in filter(rows.get, CASES):
        if CASES[feature].section != section:
            section = CASES[feature].section
            parts.append(f"\n## {section}\n\n| feature | | why, and what to write in its place |\n|---|---|---|\n")
        parts.append(rows[feature] + "\n")
    return "".join(parts)


def main(words: list[str]) -> None:
    """Runs the cases whose section or feature has one of the words, all without any, and writes the page."""
    rows = rows_on_the_page()
    for feature, case in CASES.items():
        if words and not any(word in case.section + feature for word in words):
            continue
        began = time.process_time()
        rows[feature] = row(case)
        print(f"{time.process_time() - began:5.1f} s  {rows[feature]}", flush=True)
        PAGE.write_text(text(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
