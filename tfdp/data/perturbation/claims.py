"""What noise on the data itself proves, and its statement.

The claims, each with the argument it stands on:

1. Features: proven. A record's features, at most clip_norm long, get one Gaussian draw: mu = 2 clip_norm / stddev, up to missing tails, for a record
   that is replaced by another (``tfdp.accounting.analytic_gaussian``). It is local: the noisy record itself may be
   published, so training on it, in whatever way and for however many epochs, is post-processing and costs nothing more.
   That the noise has no last tails costs ``tfdp.accounting.finite_support_delta``, taken for the largest records there are. Where
   that is more than delta (mu above 5 or so), nothing is proven.
2. Label: none as it is; proven if it is randomised (``tfdp.accounting.randomized_response``).
3. The whole record: both together, priced exactly as one release. Without a proven label there is none.
4. What a paper claims of the trained model, and does not follow, is repeated with the reason.
"""

from __future__ import annotations

import dataclasses
import importlib
import math

from tfdp.accounting import Relation, Status, finite_support_delta
from tfdp.accounting.analytic_gaussian import gaussian_epsilon, gaussian_mu
from tfdp.accounting.budgets import TAILS_SHARE
from tfdp.accounting.claims import FEATURES, LABEL, MEMBERSHIP, RECORD, Claim, in_short, section, strict_json
from tfdp.accounting.randomized_response import record_epsilon
from tfdp.data.perturbation.labels import RandomizedLabels
from tfdp.data.perturbation.leaves import MOST_COORDINATES

_FORMAT = "tfdp.perturbation_statement"
_VERSION = 1
_BASIS = (
    "This is against an adversary who cannot break the keyed hash (BLAKE2b, with a key that nobody else has), and cannot tell the "
    "stream that it seeds for each record (Philox) from random bits",
    "It is local: whatever is done with the released records afterwards, such as training for any number of epochs, costs nothing "
    "more",
)


@dataclasses.dataclass(frozen=True)
class PublishedClaim:
    """What a paper says of a model that is trained on the perturbed records."""

    epsilon: float
    delta: float
    how: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Release:
    """What was done to the records, as plain data."""

    stddev: float
    clip_norm: float
    labels: RandomizedLabels | None = None
    published: PublishedClaim | None = None

    @property
    def mu(self) -> float:
        return gaussian_mu(self.stddev, 2 * self.clip_norm)

    @property
    def tails(self) -> float:
        """What it adds to delta that the noise has an end."""
        return finite_support_delta(MOST_COORDINATES, 1, self.stddev / (2 * self.clip_norm))


@dataclasses.dataclass(frozen=True, repr=False)
class PerturbationStatement:
    """Claims about released records, and what none of them covers. ``print`` it, or keep ``to_json()``.

    Attributes:
        claims: about the features, the label, the whole record, and the model as published.
        delta: of the claims about features and the whole record.
    """

    claims: tuple[Claim, ...]
    delta: float
    release: Release
    labelled: bool

    @property
    def epsilon(self) -> float | None:
        """Proven for a whole record; None if nothing is. A claim about features alone never stands in for it."""
        protects = RECORD if self.labelled else FEATURES
        proven = [claim for claim in self.claims if claim.protects == protects and claim.status is Status.PROVEN]
        return proven[0].epsilon if proven else None

    def __str__(self) -> str:
        blocks = [
            ["Privacy statement of perturbed records", "======================================"],
            section("What was released", _released(self.release, self.labelled)),
            section("What is claimed", _in_words(self.claims)),
            section("Not protected", [text for _, text in _limits(self.release, self.labelled)]),
        ]
        return "\n\n".join("\n".join(block) for block in blocks)

    def __repr__(self) -> str:
        return f"PerturbationStatement({self.claims[0].protects}: {in_short(self.claims[0])})"

    def to_json(self) -> str:
        """The statement as strict JSON. No record and no key is in it."""
        return strict_json(
            {
                "format": _FORMAT,
                "version": _VERSION,
                "delta": self.delta,
                "epsilon": self.epsilon,
                "claims": [dataclasses.asdict(claim) for claim in self.claims],
                "released": _released(self.release, self.labelled),
                "not_protected": [{"id": name, "text": text} for name, text in _limits(self.release, self.labelled)],
                "versions": {"tfdp": importlib.import_module("tfdp").__version__},
            }
        )


def statement_of(release: Release, delta: float, labelled: bool) -> PerturbationStatement:
    claims = [_features(release, delta)]
    if labelled:
        claims += [_label(release.labels), _record(release, delta)]
    if release.published is not None:
        claims.append(_as_published(release))
    return PerturbationStatement(tuple(claims), delta, release, labelled)


def left_of(delta: float) -> float:
    """Of delta, for the noise itself, where noise is calibrated: a ten-thousandth pays for its missing tails."""
    return delta * (1 - TAILS_SHARE)


def _features(release: Release, delta: float) -> Claim:
    reason = _unproven(release, delta)
    if reason:
        return _none(FEATURES, delta, reason)
    epsilon = gaussian_epsilon(release.stddev, delta - release.tails, 2 * release.clip_norm)
    how = "the Gaussian mechanism, mu = 2 clip_norm / stddev; delta pays for the noise's missing tails"
    return Claim(FEATURES, Relation.REPLACE_ONE, epsilon, delta, release.mu, Status.PROVEN, how, _BASIS)


def _label(labels: RandomizedLabels | None) -> Claim:
    if labels is None:
        return _none(LABEL, None, "Labels were released as they are: randomized_response= protects them.")
    how = "randomised response, epsilon = ln(1 + k (1 - p) / p)"
    return Claim(LABEL, Relation.REPLACE_ONE, labels.epsilon, 0.0, None, Status.PROVEN, how, _BASIS)


def _record(release: Release, delta: float) -> Claim:
    reason = _unproven(release, delta)
    if reason or release.labels is None:
        return _none(RECORD, delta, reason or "Its label was released as it is.")
    epsilon = record_epsilon(release.mu, release.labels.probability, release.labels.count, delta - release.tails)
    how = "features and label together, priced exactly as one release"
    return Claim(RECORD, Relation.REPLACE_ONE, epsilon, delta, None, Status.PROVEN, how, _BASIS)


def _unproven(release: Release, delta: float) -> str | None:
    """Why nothing is proven of the features."""
    if release.stddev == 0:
        return "The features were released without noise."
    if release.tails < delta:
        return None
    return (
        f"The noise is too small to hide a record: it ends at 10.2 standard deviations, which by itself costs {release.tails:.2g} of "
        "delta. Use more noise or a larger delta."
    )


def _as_published(release: Release) -> Claim:
    found = release.published
    return Claim(
        MEMBERSHIP,
        Relation.REPLACE_ONE,
        found.epsilon,
        found.delta,
        None,
        Status.AS_PUBLISHED,
        found.how,
        (found.reason,),
    )


def _none(protects: str, delta: float | None, reason: str) -> Claim:
    return Claim(protects, Relation.REPLACE_ONE, math.inf, delta, None, Status.NONE, "no bound is known", (reason,))


def _released(release: Release, labelled: bool) -> list[str]:
    found = [
        f"The features of every record, scaled to an l2 norm of at most {release.clip_norm:g} (all its leaves together), plus "
        f"Gaussian noise of standard deviation {release.stddev:g} in every coordinate, drawn once for each record."
    ]
    if labelled and release.labels is None:
        found.append("Its label as it is.")
    elif labelled:
        labels = release.labels
        found.append(
            f"Its label, kept with probability {1 - labels.probability:g} and otherwise drawn from all {labels.count:,} public "
            "classes."
        )
    return found


def _in_words(claims: tuple[Claim, ...]) -> list[str]:
    """A reason is said once."""
    said: set[str] = set()
    found = []
    for claim in claims:
        protects = claim.protects[0].upper() + claim.protects[1:]
        sentences = [f"{protects}: {in_short(claim)}, if another record takes its place ({claim.how})."]
        sentences += [f"{reason.rstrip('.')}." for reason in claim.reasons if reason not in said]
        found.append(" ".join(sentences))
        said |= set(claim.reasons)
    return found


def _limits(release: Release, labelled: bool) -> list[tuple[str, str]]:
    """(id for machines, text for people)"""
    as_it_is = [
        (
            "label",
            "What a label that is released as it is says of its record's features: the claim about features compares records of "
            "the same label.",
        )
    ]
    return [
        (
            "key",
            "Records against whoever has the key: with it anyone takes the noise away. It belongs beside no data and no model.",
        ),
        (
            "other_releases",
            "Further releases of the same records (another key, noise or version of the data): their prices add up.",
        ),
        ("number_and_order", "The number of records, and which place a record has among them."),
        (
            "several_records",
            "People with several records: of m records together, mu is sqrt(m) times as large. A record is what came to the "
            "perturbation: whoever was mixed into m of them before, or repeated, has m.",
        ),
        (
            "unperturbed_records",
            "Records that were not perturbed, such as validation data, and preprocessing fitted on any.",
        ),
        *(as_it_is if labelled and release.labels is None else []),
        (
            "floating_point_noise",
            "Attacks on the last bits of floating-point noise (Mironov 2012), beyond the rounding that hides them.",
        ),
    ]
