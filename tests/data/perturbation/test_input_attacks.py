"""Attacks on perturbed records, by running: what an adversary can tell of a record, against what the statement claims."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.data.perturbation.perturbed import perturbation
from tfdp.data import InputPerturbation

RUNS, DELTA = 8000, 1e-5


def projections(perturb: InputPerturbation, record: np.ndarray) -> np.ndarray:
    """Of so many releases of one record, each with noise of its own, on the diagonal."""
    released = perturb.on_arrays(np.repeat(record[None], RUNS, 0)).reshape(RUNS, -1)
    return released.sum(1, dtype=np.float64) / np.sqrt(record.size)


def lower_bound_on_epsilon(here: np.ndarray, there: np.ndarray) -> float:
    """Over thresholds fixed beforehand, each with Clopper and Pearson's bounds at a confidence of 99.9 %."""

    def at_most(errors: int) -> float:
        return scipy.stats.beta.ppf(0.9995, errors + 1, RUNS - errors)

    found = [0.0]
    for threshold in np.linspace(-3, 3, 13) * here.std():
        false_alarms, misses = at_most(np.sum(there > threshold)), at_most(np.sum(here <= threshold))
        found.append(np.log(max(1 - DELTA - misses, 1e-9) / false_alarms))
    return max(found)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("shape", [(5,), (3, 2, 2)])
def test_records_as_far_apart_as_can_be_are_told_apart_as_far_as_is_claimed(epsilon, shape):
    """And no less far: the clip keeps its size, whatever the features are."""
    record = np.full(shape, 1e30, "f4")
    here, there = (projections(InputPerturbation.proven(epsilon, DELTA), sign * record) for sign in (1, -1))
    perturb = InputPerturbation.proven(epsilon, DELTA)
    claim = perturb.statement(labelled=False)
    assert claim.epsilon == pytest.approx(epsilon, rel=1e-3)
    mu = (here.mean() - there.mean()) / np.sqrt((here.var() + there.var()) / 2)
    assert mu == pytest.approx(2 * perturb.clip_norm / perturb.stddev, abs=5 * np.sqrt(2 / RUNS))
    assert 0.1 * epsilon < lower_bound_on_epsilon(here, there) < epsilon


def test_all_leaves_together_are_clipped_once():
    """Of bytes, truth values, and numbers beyond float32's squares."""
    x = {
        "a": np.full((40, 3), 1e30, "f4"),
        "b": (np.full((40, 2, 2), 255, "u1"), np.full((40, 1), -6e4, "f2")),
        "c": np.ones((40, 5), bool),
    }
    released = perturbation(stddev=1e-12, clip_norm=2.0).on_arrays(x)
    flat = np.concatenate([np.reshape(leaf, (40, -1)).astype("f8") for leaf in tf.nest.flatten(released)], axis=1)
    assert np.linalg.norm(flat, axis=1).max() <= 2.0


def test_leaves_and_equal_records_have_noise_of_their_own():
    x = {"a": np.zeros((400, 50), "f4"), "b": (np.zeros((400, 50), "f4"), np.zeros((400, 50), "f4"))}
    leaves = [np.ravel(leaf) for leaf in tf.nest.flatten(perturbation().on_arrays(x))]
    assert np.abs(np.corrcoef(leaves) - np.eye(3)).max() < 5 / np.sqrt(leaves[0].size)
    rows = leaves[0].reshape(400, 50)
    products = np.triu(rows @ rows.T, 1) / (0.25 * np.sqrt(50))
    assert np.abs(products).max() < 7.5  # of 79,800 pairs


def test_nothing_of_a_block_comes_out_if_one_of_its_records_is_not_finite():
    x = np.ones((300, 4), "f4")
    x[200, 1] = np.nan
    came_out = []
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        for record in tf.data.Dataset.from_tensor_slices(x).apply(perturbation()):
            came_out.append(record)
    assert len(came_out) == 128
