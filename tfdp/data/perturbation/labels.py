"""Randomised response: labels that are kept with probability 1 - p and else drawn from all public ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfdp.accounting import checks
from tfdp.accounting.randomized_response import label_epsilon

_MOST_CLASSES = 2**20
_LEAST_PROBABILITY = 1e-30


class RandomizedLabels:
    """Labels of ``classes`` public ones, released with epsilon = ``label_epsilon(probability, number of classes)``.

    A label is drawn by 128 random bits: 64 decide whether it is kept, 64 modulo k are the new one. A probability is so off by
    less than 2^-63, or 2^-43 of its value.

    Args:
        probability: p, from 1e-30 to 1.
        classes: how many, for labels 0, 1, ...; or all of them.
    """

    def __init__(self, probability: float, classes: int | Sequence[int]):
        self._classes = _classes(classes)
        self.probability = checks.real(
            "randomized_response", probability, "write the share of labels to draw anew, such as 0.2"
        )
        if not 0 < self.probability <= 1:
            raise ValueError(
                f"randomized_response must lie above 0 and at most 1, got {probability!r}: write the share of labels to draw anew, "
                "such as 0.2"
            )
        if self.probability < _LEAST_PROBABILITY:
            raise ValueError(
                f"randomized_response {probability!r} is too small to protect a label, or to compute with: write "
                f"{_LEAST_PROBABILITY:g} or more, or leave it and classes= out for labels as they are"
            )
        self.epsilon = label_epsilon(self.probability, self.count)

    @property
    def count(self) -> int:
        return len(self._classes)

    @property
    def form(self) -> str:
        """Labels that are drawn in another way are drawn by other bits."""
        return f"label {self.probability.hex()} {self.count}"

    def fit_in(self, dtype: type[np.generic]) -> bool:
        """Whether each class is a number of that type."""
        with np.errstate(invalid="ignore", over="ignore"):
            held = self._classes.astype(dtype)
            back = held.astype(self._classes.dtype)
        return bool(((held == self._classes) & (back == self._classes)).all())

    def places(self, labels: np.ndarray) -> np.ndarray:
        """The place of each label among the public ones."""
        flat = labels.reshape(len(labels))
        places = np.minimum(np.searchsorted(self._classes, flat), self.count - 1)
        if not np.array_equal(self._classes[places], flat):
            known = ", ".join(map(str, self._classes[:4].tolist())) + (", ..." if self.count > 4 else "")
            raise ValueError(
                f"A label is none of the {self.count} public classes ({known}). Randomised labels need classes= to name all of them."
            )
        return places

    def released(self, labels: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The labels to release, given two random ``uint64`` for each."""
        below = math.ceil(self.probability * 2**64)
        anew = words[:, 0] <= np.uint64(below - 1)
        places = np.where(anew, words[:, 1] % np.uint64(self.count), self.places(labels).astype(np.uint64))
        return self._classes[places.astype(np.int64)].astype(labels.dtype).reshape(labels.shape)


def _classes(classes: int | Sequence[int]) -> np.ndarray:
    advice = "write how many labels there are, such as 10, or all of them, such as (-1, 1): they are public"
    if isinstance(classes, (Sequence, np.ndarray)) and not isinstance(classes, str) and np.ndim(classes):
        try:
            found = np.unique(np.asarray(classes))
        except (TypeError, ValueError):  # of several kinds or lengths, which can't be put in order
            found = np.array([None])
        if found.dtype.kind not in "iuf" or len(found) != len(classes) or not np.isfinite(found).all():
            raise ValueError(f"classes must be different numbers, not {classes!r}: {advice}")
    else:
        number = checks.count("classes", classes, advice, at_least=2)
        found = np.arange(min(number, _MOST_CLASSES + 1))  # so many are refused below
    if not 2 <= len(found) <= _MOST_CLASSES:
        raise ValueError(f"classes must be 2 to {_MOST_CLASSES:,}, got {len(found):,}: {advice}")
    return found
