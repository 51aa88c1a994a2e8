"""Canaries as records: where they are, what they are labelled, what their weights are."""

import keras
import numpy as np
import pytest

import tfdp
from tfdp.audit import GradientCanaries, MislabelledCanaries, RandomCanaries

X = np.random.default_rng(3).standard_normal((50, 4)).astype("float32")
LABELS = np.random.default_rng(4).choice([2, 5, 7], 50)


def model(loss="mse", **arguments) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss=loss, **arguments)
    return made


def planted(canaries, x=X, y=LABELS, seed=0):
    return canaries.planted(model(), x, y, np.random.default_rng(seed))


def rows(x) -> list[tuple]:
    return sorted(map(tuple, x.tolist()))


@pytest.mark.parametrize(
    "labels", [LABELS, LABELS[:, None], np.eye(3, dtype="float32")[np.searchsorted([2, 5, 7], LABELS)]]
)
def test_mislabelled_canaries_are_the_records_with_every_label_of_theirs_wrong(labels):
    found = planted(MislabelledCanaries(20), y=labels)
    assert rows(found.x) == rows(X)
    assert found.x.dtype == X.dtype and found.y.dtype == labels.dtype and found.y.shape == labels.shape
    own = {tuple(record): label for record, label in zip(X.tolist(), labels.tolist(), strict=True)}
    right = [own[tuple(record)] == label for record, label in zip(found.x.tolist(), found.y.tolist(), strict=True)]
    assert right == [True] * 30 + [False] * 20
    known = set(map(str, labels.tolist()))
    assert set(map(str, found.y.tolist())) <= known


def test_wrong_labels_are_drawn_evenly_from_the_others():
    many = np.zeros(3000, int)
    many[0], many[1] = 1, 2
    found = planted(MislabelledCanaries(2000), x=np.arange(3000.0)[:, None], y=many)
    wrong = found.y[-2000:]
    assert abs(np.mean(wrong[wrong > 0] == 1) - 0.5) < 0.05


@pytest.mark.parametrize("x", [X, np.random.default_rng(5).integers(0, 9, (50, 6))])
def test_random_canaries_lie_within_the_records_bounds(x):
    found = planted(RandomCanaries(30), x=x)
    assert found.x.shape == (80, x.shape[1]) and found.x.dtype == x.dtype
    np.testing.assert_array_equal(found.x[:50], x)
    drawn = found.x[50:]
    assert np.all(drawn >= x.min(0)) and np.all(drawn <= x.max(0))
    assert set(found.y[50:]) <= set(LABELS) and len(np.unique(drawn, axis=0)) == 30


def test_gradient_canaries_reach_one_weight_of_their_own_and_no_other_record_does():
    found = planted(GradientCanaries(6))
    np.testing.assert_array_equal(found.x["canary"][-6:], np.arange(6))
    assert found.weights["prediction"].tolist() == [1.0] * 50 + [0.0] * 6
    assert found.weights["canary"].tolist() == [0.0] * 50 + [1.0] * 6
    np.testing.assert_array_equal(found.x["record"][:50], X)
    np.testing.assert_array_equal(found.y["prediction"][:50], LABELS)


def test_the_model_with_gradient_canaries_predicts_what_the_model_does():
    inner = model()
    wide = GradientCanaries(6).planted(inner, X, LABELS, np.random.default_rng(0)).model
    outputs = wide({"record": X, "canary": np.zeros(50, np.int32)})
    np.testing.assert_array_equal(outputs["prediction"], inner(X))
    np.testing.assert_array_equal(outputs["canary"], np.zeros((50, 1)))
    assert wide.optimizer is not inner.optimizer
    assert wide.optimizer.get_config() == inner.optimizer.get_config()


def test_a_seed_repeats_the_choice():
    first, again, other = (planted(MislabelledCanaries(20), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.x, again.x)
    assert not np.array_equal(first.x, other.x)


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_a_bad_number_of_canaries(count):
    with pytest.raises(ValueError, match="count must be"):
        GradientCanaries(count)


@pytest.mark.parametrize(
    ("canaries", "y", "message"),
    [
        (MislabelledCanaries(51), LABELS, "50 records only"),
        (MislabelledCanaries(5), X, "at least two classes"),
        (MislabelledCanaries(5), np.ones(50, int), "at least two classes"),
        (MislabelledCanaries(5), X[:, 0], "at least two classes"),
    ],
)
def test_records_that_canaries_can_not_be_made_of(canaries, y, message):
    with pytest.raises(ValueError, match=message):
        planted(canaries, y=y)


def test_a_model_with_several_losses_is_refused():
    inputs = keras.Input((4,))
    two = keras.Model(inputs, {"a": keras.layers.Dense(1)(inputs), "b": keras.layers.Dense(1)(inputs)})
    optimizer = tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0)
    two.compile(optimizer=optimizer, loss={"a": "mse", "b": "mse"})
    with pytest.raises(ValueError, match="one output, compiled with one loss"):
        GradientCanaries(3).planted(two, X, LABELS, np.random.default_rng(0))
