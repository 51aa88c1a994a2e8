"""Membership inference by the loss, against brute force over thresholds and the trade-off curve."""

import math

import keras
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

import tfdp
from tests.optimizers.tiny import X, Y, linear, noisy, train
from tfdp.audit import membership_inference
from tfdp.audit.membership import area_under_curve, true_positive_rate

pytestmark = pytest.mark.usefixtures("layers_count_as_proved")
RANDOM = np.random.default_rng(9)
MEMBERS = np.round(RANDOM.exponential(1.0, 400), 1)  # with ties
OTHERS = np.round(RANDOM.exponential(1.5, 300), 1)


def test_the_area_is_that_of_scikit_learn():
    members = np.concatenate([np.ones(400), np.zeros(300)])
    expected = metrics.roc_auc_score(members, -np.concatenate([MEMBERS, OTHERS]))
    assert area_under_curve(MEMBERS, OTHERS) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.01, 0.3, 1.0])
def test_the_rate_is_the_best_of_all_thresholds(rate):
    thresholds = [*np.unique(np.concatenate([MEMBERS, OTHERS])), np.inf]
    allowed = [t for t in thresholds if np.mean(t > OTHERS) <= rate]
    assert true_positive_rate(MEMBERS, OTHERS, rate) == max(np.mean(t > MEMBERS) for t in allowed)


def other_records(size: int):
    return RANDOM.standard_normal((size, 3)).astype("float32"), RANDOM.standard_normal((size, 1)).astype("float32")


def test_losses_are_the_models_and_the_bound_is_its_ledgers():
    model = linear()
    model.compile(optimizer=noisy(), loss=keras.losses.MeanSquaredError())
    train(model, steps=2)
    others = other_records(700)
    found = membership_inference(model, (X, Y), others)
    kernel, bias = model.get_weights()
    losses = [np.square(x @ kernel + bias - y)[:, 0] for x, y in ((X, Y), others)]
    assert found.auc == pytest.approx(area_under_curve(*losses), abs=1e-3)
    assert (found.members, found.others, found.status) == (8, 700, "proven")
    assert "on average no attack finds more than" in str(found)
    mu = math.sqrt(2)  # two steps of all records, each at a noise multiplier of 1
    for rate, largest in found.largest_true_positive_rates.items():
        assert largest == pytest.approx(stats.norm.cdf(stats.norm.ppf(rate) + 2 * mu), rel=1e-9)


def test_the_bound_holds_where_one_record_takes_the_place_of_another():
    """The training set is x or w alone, and their gradients are opposite: a release of the sum tells them apart by 2 clips."""
    model = linear()
    model.compile(optimizer=noisy(), loss="mse")
    train(model, X[:1], Y[:1])
    found = membership_inference(model, (X[:1], Y[:1]), (X[1:2], Y[1:2])).largest_true_positive_rates
    attack = {rate: stats.norm.sf(stats.norm.isf(rate) - 2.0) for rate in found}  # the release is N(1, 1) or N(-1, 1)
    assert all(attack[rate] <= found[rate] * (1 + 1e-9) for rate in found)


def test_a_model_that_knows_its_records_by_heart_is_found_out():
    model = linear()
    model.compile(optimizer="sgd", loss="mse")
    predicted = model.predict(X, verbose=0)
    found = membership_inference(model, (X, predicted), other_records(500))
    assert found.auc == 1.0 and found.true_positive_rates == {0.001: 1.0, 0.01: 1.0}
    assert found.largest_true_positive_rates is None and "no attack" not in str(found)


def test_labels_without_an_axis_of_their_own_meet_outputs_that_have_one():
    model = linear()
    model.compile(optimizer="sgd", loss="binary_crossentropy")
    records = X, (Y[:, 0] > 0).astype("float32")
    with_axis = X, records[1][:, None]
    assert membership_inference(model, records, records) == membership_inference(model, with_axis, with_axis)
    assert membership_inference(model, records, records).auc == 0.5


@pytest.mark.parametrize(
    ("members", "others", "message"),
    [
        (X, (X, Y), "members must be"),
        ((X, Y), (X, Y[:2]), "others must be"),
        ((X[:0], Y[:0]), (X, Y), "members holds no records"),
    ],
)
def test_bad_records(members, others, message):
    model = linear()
    model.compile(optimizer="sgd", loss="mse")
    with pytest.raises(ValueError, match=message):
        membership_inference(model, members, others)


def test_models_whose_loss_says_nothing_of_one_record():
    model = linear()
    with pytest.raises(ValueError, match="built and compiled"):
        membership_inference(model, (X, Y), (X, Y))
    model.compile(optimizer="sgd", loss=lambda y, p: keras.ops.mean(keras.ops.square(y - p)))
    with pytest.raises(ValueError, match="nothing of one record"):
        membership_inference(model, (X, Y), (X, Y))


def test_the_room_is_reached_by_its_name():
    assert tfdp.audit.membership_inference is membership_inference
