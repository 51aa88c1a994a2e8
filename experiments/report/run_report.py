"""The report of one run: figures and one page, from what is in its folder."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from experiments.campaign import duration
from experiments.methods import METHODS, ORDINARY
from experiments.report import figures, page
from experiments.report.figures import Line, Panel
from experiments.report.page import Html
from experiments.run_folder import RunFolder
from experiments.settings import without_effect
from tfdp.accounting import Ledger, Tradeoff, gdp_tradeoff, tradeoff
from tfdp.accounting.claims import FEATURES, MEMBERSHIP, RECORD, rounded_up
from tfdp.report.claims import INFORMATION

NO_PRIVACY = "NO PRIVACY: this model was trained without any, and may show what its training records were."
_METRICS = (
    "Accuracy and loss by epoch are computed from records without noise. They are not private: no claim on this page covers them. Publish "
    "them, or this page, only where that is acceptable."
)


def write(folder: RunFolder) -> None:
    """The figures, and `report.html`."""
    record = folder.record
    panels = panels_of(record)
    for name, (panel, _) in panels.items():
        figures.write_png([panel], folder.path / "figures" / f"{name}.png")
    folder.report.write_text(_page(folder, record, panels))


def panels_of(record: dict[str, Any]) -> dict[str, tuple[Panel, str]]:
    """By name: a panel and its caption."""
    rows, scored = record["history"], scored_on(record["settings"])
    epochs = tuple(row["epoch"] + 1 for row in rows)
    found = {}
    if record["metric"] == "accuracy":
        lines = [
            _by_epoch(name, epochs, rows, key, 100)
            for name, key in ((scored, "val_accuracy"), ("training", "accuracy"))
        ]
        caption = f"Accuracy after each epoch. {_weights(record)}Not private: see below."
        found["accuracy"] = Panel("Accuracy by epoch", "epoch", "accuracy, %", tuple(lines)), caption
    else:
        lines = [_by_epoch(name, epochs, rows, key) for name, key in ((scored, "val_loss"), ("training", "loss"))]
        found["loss"] = (
            Panel("Loss by epoch", "epoch", "loss", tuple(lines)),
            f"Loss after each epoch. {_weights(record)}Not private: see below.",
        )
    if rows and "epsilon" in rows[0]:
        line = _by_epoch("epsilon", epochs, rows, "epsilon")
        caption = f"What had been spent after each epoch, at delta {record['settings']['delta']:g} (privacy loss distribution)."
        found["epsilon"] = Panel("Epsilon by epoch", "epoch", "epsilon", (line,)), caption
    curve = curve_of(record)
    if curve is not None:
        rates = np.linspace(0, 1, 201)
        own = Line("this run", tuple(rates.tolist()), tuple(np.asarray(curve(rates)).tolist()))
        guess = Line("guessing", (0.0, 1.0), (1.0, 0.0), "dashed")
        axes = "those who were not in the data, accused", "those who were, missed"
        caption = (
            "The best attack there can be: for each share of falsely accused people, the smallest share of members that it misses. On the "
            "dashed line it only guesses."
        )
        found["tradeoff"] = Panel("What an attacker must get wrong", *axes, (own, guess)), caption
    return found


def scored_on(settings: dict[str, Any]) -> str:
    """Which records the score is of."""
    return "held-out" if settings["held_out"] else "test"


def _weights(record: dict[str, Any]) -> str:
    averaged = record["settings"]["ema"] is not None
    return "It is of the weights as they were then, the score above of their average. " if averaged else ""


def _by_epoch(label: str, epochs: tuple, rows: list[dict], key: str, factor: float = 1) -> Line:
    return Line(label, epochs, tuple(factor * row.get(key, math.nan) for row in rows))


def curve_of(record: dict[str, Any]) -> Tradeoff | None:
    """Proven curves only."""
    main = main_claim(record)
    if main is None or main["status"] != "proven":
        return None
    if "ledger" in record["statement"]:
        return tradeoff(Ledger.from_json(json.dumps(record["statement"]["ledger"])))
    return gdp_tradeoff(main["mu"])


def main_claim(record: dict[str, Any]) -> dict[str, Any] | None:
    """The first about a record's membership, or about what of released records is protected."""
    wanted = (MEMBERSHIP, RECORD, FEATURES)
    claims = [one for one in record["statement"]["claims"] if one["protects"] in wanted]
    return next((one for one in claims if one["status"] == "proven"), claims[0] if claims else None)


def _page(folder: RunFolder, record: dict[str, Any], panels: dict[str, tuple[Panel, str]]) -> str:
    settings, statement = record["settings"], record["statement"]
    about = METHODS[settings["method"]].about
    lead = f"{settings['model']}, {settings['method']}: {about}. Run {folder.path.name}."
    warning = [page.paragraph(NO_PRIVACY, "warning")] if not_private(record) else []
    parts = [
        *warning,
        page.cards(_numbers(record)),
        *_meaning(statement),
        page.plots(panels.values()),
        page.paragraph(_METRICS, "note"),
        page.heading("What is claimed"),
        _claims(statement["claims"]),
        page.heading("Not protected"),
        page.points(limit["text"] for limit in statement["not_protected"]),
        page.heading("Settings"),
        page.table(("setting", "value"), _said(settings)),
        page.heading("Versions"),
        page.table(("package", "version"), list(statement["versions"].items())),
        page.heading("Run it again"),
        page.code(folder.command),
        page.folded("Epoch by epoch", _history(record["history"])),
        page.folded("The statement in full", page.code((folder.path / "statement.txt").read_text())),
    ]
    title = f"{'Training without privacy' if warning else 'Private training'} on {settings['dataset']}"
    return page.page(title, lead, parts)


def not_private(record: dict[str, Any]) -> bool:
    settings = record["settings"]
    return METHODS[settings["method"]].where == ORDINARY or settings["noise_multiplier"] == 0


def score_text(record: dict[str, Any]) -> str:
    return f"{record['score']:.2f} %" if record["metric"] == "accuracy" else f"{record['score']:.4f}"


def _numbers(record: dict[str, Any]) -> list[tuple[str, str]]:
    main = main_claim(record)
    epsilon, status = ("no bound", "none") if main is None else (_epsilon(main["epsilon"]), main["status"])
    delta = "" if main is None or main["delta"] is None else f" at delta {main['delta']:.3g}"
    of = {FEATURES: ", of the features alone", RECORD: ", of the released record"}.get(main and main["protects"], "")
    return [
        (score_text(record), f"{scored_on(record['settings'])} {record['metric']}, {record['test_records']:,} records"),
        (epsilon, f"epsilon, {status}{delta}{of}"),
        (f"{record['records']:,}", "training records"),
        (duration(record["seconds"]), "training time"),
    ]


def _meaning(statement: dict[str, Any]) -> list[Html]:
    said = statement.get("meaning")
    return [page.heading("What it means to a person"), page.paragraph(said, "meaning")] if said else []


def _claims(claims: list[dict[str, Any]]) -> Html:
    columns = ("status", "epsilon", "delta", "of what", "how it was found, and on what it depends")
    rows = [
        (
            page.status(one["status"]),
            "" if one["protects"] == INFORMATION else _epsilon(one["epsilon"]),
            "" if one["delta"] is None else f"{one['delta']:.3g}",
            one["protects"],
            ". ".join(part.rstrip(".") for part in (one["how"], *one["reasons"])) + ".",
        )
        for one in claims
    ]
    return page.table(columns, rows, "claims")


def _history(rows: list[dict[str, float]]) -> Html:
    names = list(rows[0]) if rows else ["epoch"]
    return page.table(names, [[f"{row.get(name, math.nan):.4g}" for name in names] for row in rows])


def _epsilon(value: float | str) -> str:
    return "infinite" if value == "infinity" else rounded_up(value)


def _said(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Without what was left out, switched off, or means nothing to the method."""
    silent = without_effect(settings["method"])
    return [
        (name, _shown(value))
        for name, value in settings.items()
        if value not in (None, {}) and value is not False and name not in silent
    ]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
