"""Small problems of made-up records."""

import numpy as np

from tfdp.accounting import Relation
from tfdp.erm import Setting
from tfdp.erm.records import Ball, signs_of

BALL = Ball(clip_norm=1.0, intercept_scaling=1.0)


def blobs(records: int, features: int = 4, classes: int = 2, seed: int = 0, spread: float = 0.5):
    """Features (about as long as 1) and labels 0, 1, ... of classes that overlap."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, features))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    labels = rng.integers(classes, size=records)
    return centres[labels] + spread / np.sqrt(features) * rng.normal(size=(records, features)), labels


def in_the_ball(records: int, features: int = 4, classes: int = 2, seed: int = 0, spread: float = 0.5):
    """(features inside the ball, signs) of blobs."""
    x, labels = blobs(records, features, classes, seed, spread)
    return BALL.inside(x), signs_of(labels, np.arange(classes))


def setting(features: np.ndarray, signs: np.ndarray, **changes) -> Setting:
    usual = {
        "records": len(features),
        "fits": len(signs),
        "weights": features.shape[1],
        "radius": BALL.radius,
        "relation": Relation.ZERO_OUT,
        "epsilon": 1.0,
        "delta": 1e-5,
        "penalty": 0.01,
        "tolerance": 1e-6,
    }
    return Setting(**{**usual, **changes})
