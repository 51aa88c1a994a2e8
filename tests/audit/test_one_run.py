"""One audited run: scores against numpy, guesses against the coins, bounds against what is proven."""

import math

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers.tiny import CLIP, X, Y, clipped_gradients, linear, noiseless
from tfdp.accounting import epsilon, tradeoff
from tfdp.audit import GradientCanaries, RandomCanaries, SpreadCanaries, one_run
from tfdp.audit.run import correct_guesses, weights_of

pytestmark = pytest.mark.usefixtures("layers_count_as_proved")
RATE = 0.1  # of learning
SURE = {
    "delta": 1e-8,
    "confidence": 1 - 1e-4,
}  # 2 m delta well below 1e-4: else delta alone could explain all that is found


def audited(canaries, optimizer=None, *, batch_size, models=None, **arguments):
    def make_model() -> keras.Model:
        model = linear()
        model.compile(optimizer=noiseless(RATE) if optimizer is None else optimizer, loss="mse")
        if models is not None:
            models.append(model)
        return model

    return one_run(
        make_model, X, Y, canaries=canaries, batch_size=batch_size, **{"epochs": 1, "delta": 1e-5} | arguments
    )


@pytest.mark.parametrize("layers", [1, 3])
def test_without_noise_a_gradient_canary_that_is_in_moves_its_weights_by_the_clip_in_every_step(layers):
    found = audited(GradientCanaries(12, layers), batch_size=20, epochs=3)
    np.testing.assert_allclose(found.scores[found.included], 3 * RATE * CLIP / 20, rtol=1e-5)
    assert np.all(found.scores[~found.included] == 0)
    assert 0 < found.included.sum() < 12  # fails once in 2,048 times


def test_what_was_smoothed_is_made_as_it_was():
    found = audited(GradientCanaries(12), noiseless(RATE, denoise="laplacian"), batch_size=20)
    inner = slice(1, -1)  # the others lie beside weights of the model
    np.testing.assert_allclose(found.scores[inner], found.included[inner] * RATE * CLIP / 20, atol=1e-6)


def test_spread_canaries_share_their_weights():
    found = audited(SpreadCanaries(12, weights=50), batch_size=20, epochs=2, seed=4)
    rows = np.random.default_rng(4).standard_normal((12, 50))
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    released = 2 * RATE * CLIP / 20 * found.included @ directions
    np.testing.assert_allclose(found.scores, directions @ released, rtol=1e-4, atol=1e-6)


def test_under_encoding_a_spread_canary_has_nearly_the_whole_clip_and_one_of_a_single_weight_has_not():
    moved = {}
    for canaries in (SpreadCanaries(12, weights=500), GradientCanaries(500)):
        optimizer = tfdp.EncodedDPSGD(RATE, l2_norm_clip=CLIP, noise_multiplier=0.0, denoise=None)
        found = audited(canaries, optimizer, batch_size=canaries.count + 8)
        moved[type(canaries)] = np.mean(found.scores[found.included]) * (canaries.count + 8) / RATE / CLIP
    assert 0.8 < moved[SpreadCanaries] < 1.2
    assert moved[GradientCanaries] < 0.25


def test_the_coins_change_neither_the_number_of_records_nor_the_rate():
    found = audited(GradientCanaries(12), batch_size=5, epochs=2)
    (line,) = found.ledger
    assert (line.sampling.size, line.sampling.sampling_rate, line.steps) == (20, 0.25, 8)


def test_released_gradients_are_projected_on_the_direction_of_each_canarys_gradient():
    """One noiseless step at rate 1, by hand."""
    canaries, seed = RandomCanaries(40), 5
    model = linear()
    model.compile(optimizer=noiseless(), loss="mse")
    planted = canaries.planted(model, X, Y, np.random.default_rng(seed))
    found = audited(canaries, batch_size=48, seed=seed)
    gradients = clipped_gradients(linear().get_weights(), planted.x, planted.y)
    present = np.concatenate([np.ones(8), found.included])
    released = RATE * present @ gradients / 48
    directions = gradients / np.linalg.norm(gradients, axis=1, keepdims=True)
    np.testing.assert_allclose(found.scores, (directions @ released)[8:], rtol=1e-4, atol=1e-6)


def test_black_box_scores_are_minus_the_final_losses():
    models, seed = [], 6
    found = audited(RandomCanaries(40), batch_size=12, seed=seed, attack="black_box", models=models)
    (model,) = models
    planted = RandomCanaries(40).planted(model, X, Y, np.random.default_rng(seed))
    kernel, bias = model.get_weights()
    losses = np.square(planted.x[8:] @ kernel + bias - planted.y[8:])[:, 0]
    np.testing.assert_allclose(found.scores, -losses, rtol=1e-4, atol=1e-6)


def test_around_a_centre_a_canary_that_is_left_out_has_no_gradient_and_so_contributes_nothing():
    """One of weight 0 would be clipped around the centre, which is where earlier releases were."""
    model = linear()
    model.compile(optimizer=tfdp.AdaClipDPSGD(RATE, l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
    planted = GradientCanaries(12).planted(model, X, Y, np.random.default_rng(0))
    included = np.arange(12) < 5
    weights = weights_of(planted, included)
    np.testing.assert_array_equal(weights["prediction"], [1.0] * 8 + [0.0] * 12)
    np.testing.assert_array_equal(weights["canary"], [0.0] * 8 + [1.0] * 5 + [math.nan] * 7)
    planted.model.fit(planted.x, planted.y, sample_weight=weights, batch_size=20, epochs=2, verbose=0)
    assert planted.model.optimizer.non_finite_examples == 2 * 7
    assert all(np.all(np.isfinite(w)) for w in planted.model.get_weights())


def test_the_bound_of_a_private_run_bites_and_stays_below_what_is_proven():
    optimizer = tfdp.NoisySGD(RATE, l2_norm_clip=1.0, noise_multiplier=1.0)
    found = audited(GradientCanaries(400), optimizer, batch_size=408, epochs=4, guesses=100, **SURE)
    proven = epsilon(found.ledger, delta=1e-8)
    assert (found.canaries, found.guesses, found.confidence) == (400, 100, 1 - 1e-4)
    assert 1.0 < found.epsilon_lower_bound <= proven
    assert found.p_value(proven) > 1e-4
    assert found.tradeoff_p_value(tradeoff(found.ledger)) > 1e-4
    assert f"{found.correct} of 100 guesses about 400 canaries" in str(found)


def test_a_hundred_canaries_show_an_epsilon_of_1_where_10_is_claimed():
    """A smoke test: the best attack there is gets 30 of 30 right in the median run, and 27 show as much."""

    def bound() -> float:
        optimizer = tfdp.NoisySGD(RATE, l2_norm_clip=1.0, target_epsilon=10.0, delta=1e-5)
        found = audited(GradientCanaries(100), optimizer, batch_size=27, epochs=10)
        assert found.guesses == 30
        return found.epsilon_lower_bound

    assert any(bound() >= 1 for _ in range(3))  # two of 25 runs stayed below, with 26 right


def test_half_of_the_guesses_are_the_highest_scores_and_half_the_lowest():
    scores = np.array([5.0, -1.0, 0.0, 7.0, 2.0, math.nan])
    included = np.array([True, False, True, False, True, False])
    assert correct_guesses(scores, included, 2) == 1  # 7 is wrong, -1 right
    assert correct_guesses(scores, included, 4) == 2  # 5 as well, 0 not
    assert correct_guesses(scores, included, 3) == 2  # the odd one is a high one
    assert correct_guesses(scores, included, 0) == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attack": "grey_box"}, "attack must be one of white_box, black_box"),
        ({"attack": "black_box"}, 'use attack="white_box"'),
        ({"guesses": 13}, r"must not exceed the number of canaries \(12\)"),
        ({"guesses": 0}, "guesses must be at least 1"),
        ({"delta": 0.0}, "delta must"),
        ({"confidence": 95}, "confidence must"),
        ({"canaries": 12}, "canaries must be canaries"),
        ({"x": X.tolist()}, "must be numpy arrays"),
        ({"y": Y[:3]}, "as many in one as in the other"),
        ({"make_model": linear}, "compiled with a private optimizer"),
        ({"make_model": lambda: None}, "compiled with a private optimizer"),
    ],
)
def test_bad_arguments_are_refused_before_training(changed, message):
    arguments = {
        "make_model": lambda: pytest.fail("a model was made"),
        "x": X,
        "y": Y,
        "canaries": GradientCanaries(12),
    }
    with pytest.raises(ValueError, match=message):
        one_run(**{**arguments, "batch_size": 5, "epochs": 1, "delta": 1e-5} | changed)
