"""Records as the convex methods use them: every record within a ball, whatever the data are.

The proofs of this room need one thing of the data: no record's features are longer than a public radius. It is enforced record by
record, so that no statistic of the data set is used.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ball:
    """How features are brought into a ball around 0, a public choice.

    Formal guarantee: ``inside`` of any finite features is at most ``radius`` long (an l2 norm), the intercept's feature
    included; each row depends on that row alone.

    A row is clipped to ``clip_norm`` and divided by it. The intercept is a weight like any other, of a feature that is
    ``intercept_scaling`` in every record: it is clipped and regularised with the others.
    """

    clip_norm: float
    intercept_scaling: float | None

    @property
    def radius(self) -> float:
        return math.hypot(1.0, self.intercept_scaling or 0.0)

    def inside(self, features: np.ndarray) -> np.ndarray:
        largest = np.abs(features).max(axis=1, keepdims=True, initial=0.0)
        unit = features / np.where(largest > 0, largest, 1.0)  # no square of it overflows
        norms = np.linalg.norm(unit, axis=1, keepdims=True)
        longest = 1.0 / np.where(norms > 0, norms, 1.0)
        rows = unit * np.minimum(np.minimum(largest, longest * self.clip_norm) / self.clip_norm, longest)
        if self.intercept_scaling is None:
            return rows
        return np.hstack([rows, np.full((len(rows), 1), self.intercept_scaling)])

    def unscaled(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights in the ball as (coefficients, intercepts) of the clipped features in their own units."""
        if self.intercept_scaling is None:
            return weights / self.clip_norm, np.zeros(len(weights))
        return weights[:, :-1] / self.clip_norm, weights[:, -1] * self.intercept_scaling


def checked_features(features: object, columns: int | None = None) -> np.ndarray:
    """A finite matrix of float64 with at least one row; `columns` is how many it has to have."""
    if hasattr(features, "toarray"):
        raise TypeError("Sparse input is not supported, dense data is required: write X.toarray().")
    array = _plain_array("X", features)
    if array.dtype.kind in "mM":
        raise ValueError(f"X must hold numbers, not {array.dtype}: write times as numbers in a unit of your choice.")
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: X must hold real numbers.")
    try:
        array = array.astype(np.float64)
    except OverflowError:
        raise ValueError("X must hold numbers that a float can hold, up to 1.8e308.") from None
    except (TypeError, ValueError) as error:
        raise type(error)(f"X must hold numbers. Encode everything else as numbers beforehand. {error}") from None
    if array.ndim != 2:
        raise ValueError(
            f"X must be a matrix, one row a record: Expected 2D array, got {array.ndim}D array instead. Reshape your data: a single "
            "feature is X.reshape(-1, 1), a single record X.reshape(1, -1)."
        )
    if not len(array):
        raise ValueError(
            f"X holds no record: Found array with 0 sample(s) (shape={array.shape}) while a minimum of 1 is required."
        )
    if not array.shape[1]:
        raise ValueError(f"X holds no feature: 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if not np.isfinite(array).all():
        raise ValueError("X must not hold NaN or infinity. Fill gaps with a public value, such as 0, beforehand.")
    if columns is not None and array.shape[1] != columns:
        raise ValueError(
            f"X has {array.shape[1]} features, but PrivateLogisticRegression is expecting {columns} features as input, those of fit."
        )
    return array


def checked_labels(labels: object, records: int) -> np.ndarray:
    """A vector of one label a record."""
    if labels is None:
        raise ValueError(
            "PrivateLogisticRegression requires y to be passed, but the target y is None: one label a record."
        )
    array = _plain_array("y", labels)
    _check_labels("y", labels, array)
    if array.ndim == 2 and array.shape[1] == 1:
        raise ValueError("y must be a vector, not a column: write y.ravel().")
    if array.ndim != 1:
        raise ValueError(f"y must be a vector of one label a record, not an array of shape {array.shape}.")
    if len(array) != records:
        raise ValueError(
            f"X and y must hold one row and one label a record, not {records} rows and {len(array)} labels."
        )
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ValueError("y must not hold NaN or infinity: give each record the label of a class.")
        if (array != np.floor(array)).any():
            raise ValueError(
                "Unknown label type: y holds numbers with fractions. Give each record the label of a class."
            )
    return array


def checked_classes(classes: object, labels: np.ndarray) -> np.ndarray:
    """The classes in sorted order: the public ones that were given, else those that occur."""
    if classes is None:
        found = _unique("y", labels)
        if len(found) < 2:
            raise ValueError(
                f"y holds one class only, {found[0]!r}. Classes are public: name all of them, classes=[...], at least two."
            )
        return found
    given = _plain_array("classes", classes)
    _check_labels("classes", classes, given)
    if given.ndim != 1 or len(given) < 2 or len(_unique("classes", given)) < len(given):
        raise ValueError(f"classes must be a list of at least two different labels, not {classes!r}.")
    unknown = ~np.isin(labels, given)
    if unknown.any():
        raise ValueError(
            f"y holds {int(unknown.sum())} labels that are not in classes={given.tolist()}. Name all classes, or leave those records out."
        )
    return np.unique(given)


def _plain_array(name: str, values: object) -> np.ndarray:
    """Without masks and fields, which numpy would drop without a word."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array: what it hides would be used. Leave those records out.")
    array = np.asarray(values)
    if array.dtype.kind == "V":
        raise ValueError(f"{name} must not have fields: write its columns beside one another, np.column_stack(...).")
    return array


def _check_labels(name: str, given: object, array: np.ndarray) -> None:
    """Refuses missing labels, and words among numbers: of a list numpy makes words of all of them."""
    if isinstance(given, list | tuple):
        array = np.asarray(given, dtype=object)
    if array.dtype.kind not in "OmM":
        return
    flat = array.ravel()
    if any(_is_missing(label) for label in flat):
        raise ValueError(
            f"{name} must not hold None, NaN or another missing value: give each record the label of a class."
        )
    words = sum(isinstance(label, str) for label in flat)
    if 0 < words < len(flat):
        raise ValueError(f"{name} holds {words} words among {len(flat)} labels: write all of them as words, or none.")


def _is_missing(label: object) -> bool:
    """None, NaN and NaT differ from themselves; whether pandas' NA does is NA."""
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):
        return type(label).__name__ == "NAType"


def _unique(name: str, labels: np.ndarray) -> np.ndarray:
    try:
        return np.unique(labels)
    except TypeError as error:
        raise ValueError(
            f"{name} holds labels that have no order: write all of them as words, or as numbers. {error}"
        ) from None


def signs_of(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """``[fits, records]`` of +1 and -1: one row for two classes (+1 is the second), else one a class against the rest."""
    members = labels[None, :] == (classes[1:] if len(classes) == 2 else classes)[:, None]
    return np.where(members, 1.0, -1.0)
