"""Membership inference by the loss (Yeom et al. 2018, arXiv:1709.01604), alone or against that of shadow models (Carlini et al.
2022, arXiv:2112.03570), beside the most that any attack can find."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from tfdp.accounting import Ledger, Status, Tradeoff, tradeoff
from tfdp.audit.losses import check_one_loss, losses_of
from tfdp.audit.shadows import Shadows, confidences_of
from tfdp.optimizers import PrivateOptimizer

RATES = (0.001, 0.01)  # of false positives


@dataclasses.dataclass(frozen=True)
class MembershipInference:
    """How well members of the training set are told from others.

    Attributes:
        attack: "loss", or "likelihood ratio" of it by shadow models.
        auc: the probability that a member looks more like one than another record does (a half for each tie).
        true_positive_rates: by false positive rate (0.1 % and 1 %): the largest share of members below one threshold that at
            most this share of the others is below.
        largest_true_positive_rates: by the same: the most that any attack can find on average over trainings, by the trade-off
            curve of the model's ledger. None if the model has no ledger that says so.
        status: of that curve: proven or not.
        members, others: how many there were.
    """

    attack: str
    auc: float
    true_positive_rates: dict[float, float]
    largest_true_positive_rates: dict[float, float] | None
    status: Status | None
    members: int
    others: int

    def __str__(self) -> str:
        lines = [
            f"Membership by the {self.attack}, {self.members:,} members and {self.others:,} others: AUC {self.auc:.3f}."
        ]
        for rate, found in self.true_positive_rates.items():
            none = "" if rate * self.others >= 1 else f" ({self.others:,} are too few: none of them)"
            line = f"Accusing {rate:.1%} of the others{none} finds {found:.2%} of the members"
            if self.largest_true_positive_rates is not None:
                line += f"; on average no attack finds more than {self.largest_true_positive_rates[rate]:.2%} ({self.status})"
            lines.append(f"{line}.")
        return "\n".join(lines)


def membership_inference(
    model: keras.Model,
    members: tuple[np.ndarray, np.ndarray],
    others: tuple[np.ndarray, np.ndarray],
    shadows: Shadows | None = None,
) -> MembershipInference:
    """Tell records that a model was trained on from others, by thresholds on their loss, or on its likelihood ratio.

    Thresholds are chosen with the answers at hand, so the rates found flatter the attack a little; with few others, 0.1 % of them is
    less than one record, and such a rate is that of accusing none. The bound speaks of one record against all that the attacker
    knows of the others, so the mean over members may be far below it. It takes the curve twice: a training set with one record,
    and one with another in its place, from which a record of the others is missing, are two steps of the ledger's relation apart.

    Example:

    >>> print(tfdp.audit.membership_inference(model, (x_train, y_train), (x_test, y_test)))

    Args:
        model: compiled with its loss; if with a private optimizer, its ledger gives the bound.
        members: (x, y) of records that it was trained on.
        others: (x, y) of records from the same source that it was not trained on.
        shadows: ``train_shadows`` with the same members and others, for the likelihood ratio.
    """
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False) or not model.built:
        raise ValueError("model must be a keras.Model that is built and compiled with its loss.")
    check_one_loss(model, "Membership inference by the loss")
    losses = [_losses(model, name, records) for name, records in (("members", members), ("others", others))]
    if shadows is not None:
        losses = _by_likelihood_ratio(model, members, others, shadows)
    optimizer = model.optimizer
    bound = _bound(optimizer.ledger) if isinstance(optimizer, PrivateOptimizer) else None
    return MembershipInference(
        attack="loss" if shadows is None else "likelihood ratio",
        auc=area_under_curve(*losses),
        true_positive_rates={rate: true_positive_rate(*losses, rate) for rate in RATES},
        largest_true_positive_rates=None if bound is None else {r: _largest_rate(bound, r) for r in RATES},
        status=None if bound is None else bound.status,
        members=len(losses[0]),
        others=len(losses[1]),
    )


def area_under_curve(members: np.ndarray, others: np.ndarray) -> float:
    """P[a member's loss < another's] + P[they are equal] / 2: the Mann-Whitney statistic."""
    ordered = np.sort(others)
    above = len(others) - np.searchsorted(ordered, members, side="right")
    equal = np.searchsorted(ordered, members, side="right") - np.searchsorted(ordered, members, side="left")
    return float(np.mean(above + equal / 2) / len(others))


def true_positive_rate(members: np.ndarray, others: np.ndarray, false_positive_rate: float) -> float:
    """The largest share of members below a threshold that at most this share of the others is below."""
    allowed = int(np.floor(false_positive_rate * len(others) + 1e-9))
    threshold = np.sort(others)[allowed] if allowed < len(others) else np.inf
    return float(np.mean(members < threshold))


def _losses(model: keras.Model, name: str, records: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    if not isinstance(records, tuple | list) or len(records) != 2 or len(records[0]) != len(records[1]):
        raise ValueError(f"{name} must be (x, y), with a row for each record in both.")
    if len(records[0]) == 0:
        raise ValueError(f"{name} holds no records.")
    losses = losses_of(model, *(np.asarray(part) for part in records))
    return np.where(np.isnan(losses), np.inf, losses)


def _by_likelihood_ratio(model, members, others, shadows: Shadows) -> list[np.ndarray]:
    """Minus the ratios: small for those that look like members, as losses are."""
    sizes = len(members[0]), len(others[0])
    if not isinstance(shadows, Shadows) or shadows.included.shape[1] != sum(sizes):
        raise ValueError(
            "shadows must be what train_shadows(make_model, members, others, ...) gave for the same records."
        )
    confidences = [confidences_of(model, *(np.asarray(part) for part in records)) for records in (members, others)]
    ratios = np.nan_to_num(shadows.likelihood_ratios(np.concatenate(confidences)), nan=-np.inf)
    return np.split(-ratios, [sizes[0]])


def _largest_rate(curve: Tradeoff, false_positive_rate: float) -> float:
    """Of members found. Record x is a member, w is not. In a training set with w in place of x, x is accused as often as any of the
    others; in one with neither at most 1 - f of that, in one with x at most 1 - f of that again."""
    return curve.true_positive_rate(curve.true_positive_rate(false_positive_rate))


def _bound(ledger: Ledger) -> Tradeoff | None:
    try:
        return tradeoff(ledger)
    except ValueError:  # the default accountant does not price it
        return tradeoff(ledger, accountant="rdp")
