"""How far a record moves the last weights of methods that put noise on them."""

from collections.abc import Callable

import numpy as np

from tests.erm import problems
from tfdp.accounting import Relation
from tfdp.erm import Setting
from tfdp.erm.noise import SecretNormals


def last_weights(mechanism, features: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Before noise; what is drawn for them (an order of the records) is the same each time."""
    return mechanism.found(features, signs, SecretNormals(3))


def hundred_records(**changes) -> tuple[np.ndarray, np.ndarray, Setting]:
    """Features and signs of three classes."""
    features, signs = problems.in_the_ball(100, classes=3, spread=2.0)
    return features, signs, problems.setting(features, signs, **changes)


def assert_within_the_sensitivity(mechanism, features: np.ndarray, signs: np.ndarray, in_its_place: Callable) -> None:
    """With ``in_its_place(record)`` in the place of each record; and the sensitivity is not beyond all that is seen."""
    everyone, moves = last_weights(mechanism, features, signs), []
    for i in range(len(features)):
        other = features.copy()
        other[i] = in_its_place(features[i])
        moves.append(np.linalg.norm(last_weights(mechanism, other, signs) - everyone))
    assert mechanism.sensitivity / 50 < max(moves) <= mechanism.sensitivity


def moved_by_its_opposite(calibrated: Callable, penalty: float) -> float:
    """In sensitivities: a record that is all there is, replaced by its opposite. Derivatives are a half where weights are small."""
    features, signs = np.array([[1.0, 1.0]]), np.array([[1.0]])
    mechanism = calibrated(problems.setting(features, signs, penalty=penalty, relation=Relation.REPLACE_ONE))
    moved = last_weights(mechanism, features, signs) - last_weights(mechanism, -features, signs)
    return float(np.linalg.norm(moved) / mechanism.sensitivity)
