"""Mistakes in private training are found: by an audit, or by the test that is named here. Sound code passes the same audit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.audit import broken
from tests.data import test_poisson
from tests.optimizers import test_lots_in_fit, test_noise, test_secrets, test_sensitivity, tiny
from tfdp.accounting import epsilon, tradeoff
from tfdp.audit import GradientCanaries, OneRun, one_run
from tfdp.data.lots import PoissonLots
from tfdp.mechanisms import GaussianMechanism, SecretGenerator, secret_generator

pytestmark = pytest.mark.usefixtures("layers_count_as_proved")
DELTA, SURE = 1e-8, 1e-4  # 2 m delta must be well below the level


def audited(kind: type[GaussianMechanism], canaries: GradientCanaries, noise_multiplier: float = 8.0) -> OneRun:
    """Four steps of all records."""

    def make_model() -> keras.Model:
        return tiny.private(
            tfdp.PrivateOptimizer(keras.optimizers.SGD(0.1), kind(1.0, noise_multiplier)), tiny.linear()
        )

    run = {"batch_size": canaries.count + tiny.SIZE, "epochs": 4, "delta": DELTA, "confidence": 1 - SURE}
    return one_run(make_model, tiny.X, tiny.Y, canaries=canaries, guesses=canaries.count // 3, **run)


@pytest.mark.parametrize("kind", [broken.TooQuiet, broken.NoNoiseOnTheLast, broken.MeanOfTheLot])
def test_the_audit_catches(kind):
    found = audited(kind, GradientCanaries(300))
    assert found.epsilon_lower_bound > epsilon(found.ledger, delta=DELTA)
    assert found.tradeoff_p_value(tradeoff(found.ledger)) < SURE


@pytest.mark.parametrize(("kind", "caught"), [(GaussianMechanism, False), (broken.EachWeightByItself, True)])
def test_canaries_of_several_layers_catch_that_there_is_no_joint_bound(kind, caught):
    found = audited(kind, GradientCanaries(600, layers=25), noise_multiplier=5.0)
    assert (found.tradeoff_p_value(tradeoff(found.ledger)) < SURE) == caught


# Other mistakes change nothing that canaries are guessed by. Each of these tests fails if one is made.


def test_of_lot_sizes_catches_shuffled_lots(monkeypatch):
    monkeypatch.setattr(PoissonLots, "_several", broken.shuffled)
    lots = test_poisson.lots_of(tfdp.data.PoissonBatches(np.arange(200), batch_size=20), 400)
    membership = np.array([np.isin(np.arange(200), members) for members in lots])
    with pytest.raises(AssertionError):
        test_poisson.test_lot_sizes_follow_the_binomial(membership)


@pytest.mark.parametrize("kind", [broken.EachWeightByItself, broken.MeanOfTheLot])
def test_of_neighbouring_lots_catches_a_clip_of_something_else(kind, monkeypatch):
    monkeypatch.setattr(test_sensitivity, "GaussianMechanism", kind)
    with pytest.raises(AssertionError, match=r"<= 0\.001"):
        test_sensitivity.test_two_neighbouring_lots_differ_by_at_most_the_clip("dense", 1e-3)


def test_of_the_standard_deviation_catches_a_weight_without_noise(monkeypatch):
    privatise = GaussianMechanism.privatise

    def without(self, sums, size, *arguments):
        released = privatise(self, sums, size, *arguments)
        return [*released[:2], sums[2] / size, *released[3:]]

    monkeypatch.setattr(GaussianMechanism, "privatise", without)
    noise = test_noise.noise_of_a_run(steps=2)
    test_noise.test_mean_and_standard_deviation_are_those_of_the_mechanism(noise, 0)
    with pytest.raises(AssertionError):
        test_noise.test_mean_and_standard_deviation_are_those_of_the_mechanism(noise, 2)


def test_of_two_steps_catches_noise_that_is_drawn_from_one_state_in_every_step(monkeypatch):
    monkeypatch.setattr(SecretGenerator, "reserve", lambda self, blocks: tf.constant([1, 2, 3], tf.uint64))
    with pytest.raises(AssertionError):
        test_noise.test_the_noises_of_two_steps_are_uncorrelated(test_noise.noise_of_a_run(steps=5), 0)


def test_of_two_runs_catches_a_generator_that_is_seeded_in_secret(monkeypatch):
    monkeypatch.setattr(secret_generator, "_entropy", lambda: secret_generator._state_from_seed(7))
    with pytest.raises(AssertionError):
        test_noise.test_the_noise_of_two_runs_differs_under_one_global_seed(test_noise.noise_of_a_run(steps=20))


def test_of_what_is_written_catches_a_generator_that_is_tracked(tmp_path):
    model = tiny.private(tiny.noisy())
    tracked = keras.optimizers.Optimizer.__setattr__  # the private optimizer refuses attributes that it does not know
    tracked(model.optimizer, "generator_of_noise", model.optimizer.generator._generator)
    tiny.train(model)
    words = test_secrets.state_words(model)
    with pytest.raises(AssertionError):
        test_secrets.test_nothing_written_holds_the_generators_state(
            (model, 2 * words), tmp_path, "tf.train.Checkpoint"
        )


def test_of_the_divisor_catches_the_realised_lot_size(monkeypatch):
    monkeypatch.setattr(GaussianMechanism, "bounded_sum", broken.realised_lot_size(5))
    with pytest.raises(AssertionError):
        test_lots_in_fit.test_the_sum_is_divided_by_the_expected_lot_size_not_the_realised_one()
