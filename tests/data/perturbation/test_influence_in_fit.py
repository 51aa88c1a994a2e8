"""Influence perturbation of a data set that `fit` reads, its rounds held by a callback."""

import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.data.perturbation.test_influence import at_the_optimum, fitted, logistic_model, records
from tfdp.accounting import Status
from tfdp.accounting.perturbation import record_noise
from tfdp.data import InfluencePerturbation

SIZE = 40
X, Y = records(SIZE)


def perturbation(model, epsilon=0.5, rule="literal", **changes) -> InfluencePerturbation:
    """By default every record that is drawn gets noise."""
    return InfluencePerturbation(model, epsilon, 1e-5, lipschitz=1.0, rule=rule, **changes)


def dataset(x=X, y=Y) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y))


def features(of) -> np.ndarray:
    return np.stack([x.numpy() for x, _ in of])


def at_rest() -> keras.Model:
    """At the optimum, and SGD does not move it."""
    model = at_the_optimum(X, Y)
    model.optimizer.learning_rate = 0.0
    return model


class Seen(keras.callbacks.Callback):
    """What the data set shows at the start of every step."""

    def __init__(self, of):
        super().__init__()
        self.of, self.features = of, []

    def on_train_batch_begin(self, batch, logs=None):
        self.features.append(features(self.of))


def test_records_change_round_by_round_and_only_those_that_are_drawn():
    model = at_rest()
    perturb = perturbation(model, local_steps=4)
    noisy = dataset().apply(perturb)
    seen = Seen(noisy)
    model.fit(noisy.batch(4), epochs=1, callbacks=[perturb.callback(), seen], verbose=0)
    steps = [X, *seen.features]
    changed = [set(np.flatnonzero((a != b).any(axis=1))) for a, b in itertools.pairwise(steps)]
    assert [bool(numbers) for numbers in changed] == [step % 4 == 0 for step in range(10)]
    assert all(len(numbers) <= 4 for numbers in changed)
    result = perturb.result
    assert (result.steps, result.noisy_steps) == (10, 10)
    assert set(np.flatnonzero(result.noised)) == set().union(*changed)
    np.testing.assert_array_equal(result.x, seen.features[-1])
    np.testing.assert_array_equal(result.x, features(noisy))  # what is trained on it later is trained on D_priv


def test_fit_trains_on_what_the_data_set_shows():
    """One step of SGD on all records, by hand: after a round, on the perturbed ones."""
    model = at_the_optimum(X, Y)
    model.optimizer.learning_rate = 1.0
    before = np.concatenate([part.ravel() for part in model.get_weights()])
    perturb = perturbation(model, local_steps=1000)
    model.fit(dataset().apply(perturb).batch(SIZE), callbacks=[perturb.callback()], verbose=0)
    x = perturb.result.x
    assert (x != X).any()
    z = np.hstack([x, np.ones((SIZE, 1))])
    gradient = z.T @ (1 / (1 + np.exp(-z @ before)) - Y) / SIZE + 0.02 * np.append(before[:-1], 0)
    after = np.concatenate([part.ravel() for part in model.get_weights()])
    np.testing.assert_allclose(after, before - gradient, atol=1e-5)


def test_noise_has_the_size_of_eq_15_for_all_steps_of_fit():
    model = at_rest()
    perturb = perturbation(model, local_steps=50)
    model.fit(dataset().apply(perturb).batch(1), epochs=5, callbacks=[perturb.callback()], verbose=0)
    result = perturb.result
    assert result.steps == 5 * SIZE and result.noised.sum() > 35
    weights = fitted(X, Y, 0.02)
    z = np.hstack([X, np.ones((SIZE, 1))])
    p = 1 / (1 + np.exp(-z @ weights))
    units = []
    for i in np.flatnonzero(result.noised):
        mixed = p[i] * (1 - p[i]) * np.outer(z[i], weights[:-1]) + (p - Y)[i] * np.eye(9, 8)
        units.append((result.x[i] - X[i]) / record_noise(0.5, 1e-5, 5 * SIZE, SIZE, 1.0, np.linalg.norm(mixed, 2)))
    assert np.std(units) == pytest.approx(1, abs=0.15)  # over 280 numbers: 3.5 standard deviations
    assert abs(np.mean(units)) < 0.22


def test_records_of_small_contribution_stay():
    model = at_the_optimum(X, Y)
    perturb = perturbation(model, 50.0, "normalized")
    noisy = dataset().apply(perturb)
    model.fit(noisy.shuffle(SIZE).batch(8), epochs=2, callbacks=[perturb.callback()], verbose=0)
    assert (perturb.result.steps, perturb.result.noisy_steps) == (10, 0)
    np.testing.assert_array_equal(features(noisy), X)


def test_nothing_is_proven_and_the_papers_claim_says_whose_steps_they_were():
    model = at_rest()
    perturb = perturbation(model)
    model.fit(dataset().apply(perturb).batch(8), callbacks=[perturb.callback()], verbose=0)
    assert {claim.status for claim in perturb.result.claims} == {Status.NONE, Status.AS_PUBLISHED}
    text = str(perturb.result)
    assert "NONE: epsilon = infinity" in text and "Steps were those of fit" in text
    assert "5 steps on 40 records" in text


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_there_are_as_many_draws_as_steps_however_they_are_grouped(steps_per_execution):
    model = at_rest()
    model.compile(keras.optimizers.SGD(0.0), loss=model.loss, steps_per_execution=steps_per_execution)
    perturb = perturbation(model, local_steps=4)
    pipeline = dataset().apply(perturb).repeat().batch(8)
    model.fit(pipeline, steps_per_epoch=6, epochs=2, callbacks=[perturb.callback()], verbose=0)
    assert perturb.result.steps == 12


class TestCallbackMissing:
    def test_fit_without_one_fails_before_the_first_step(self):
        model = at_the_optimum(X, Y)
        before = model.get_weights()
        noisy = dataset().apply(perturbation(model))
        with pytest.raises(tf.errors.InvalidArgumentError, match="fit needs a callback"):
            model.fit(noisy.batch(8), verbose=0)
        for one, other in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(one, other)

    def test_there_is_no_result(self):
        model = at_the_optimum(X, Y)
        perturb = perturbation(model)
        noisy = dataset().apply(perturb)
        perturb.callback()  # and nobody calls it
        model.fit(noisy.batch(8), verbose=0)
        with pytest.raises(ValueError, match="No round was held"):
            _ = perturb.result

    def test_a_fit_that_reads_other_records_is_seen(self):
        model = at_rest()
        perturb = perturbation(model)
        dataset().apply(perturb)
        with pytest.raises(ValueError, match="does not read the records that get the noise"):
            model.fit(X, Y, callbacks=[perturb.callback()], verbose=0)

    def test_a_cache_after_it_is_seen(self):
        model = at_rest()
        perturb = perturbation(model)
        with pytest.warns(UserWarning, match="In epoch 2 no record was read anew"):
            model.fit(dataset().apply(perturb).cache().batch(8), epochs=2, callbacks=[perturb.callback()], verbose=0)

    def test_a_callback_without_records(self):
        with pytest.raises(ValueError, match="There are no records yet"):
            perturbation(logistic_model(8)).callback()

    def test_a_callback_of_another_model(self):
        perturb = perturbation(at_rest())
        noisy = dataset().apply(perturb)
        with pytest.raises(ValueError, match="and fit trains"):
            at_rest().fit(noisy.batch(8), callbacks=[perturb.callback()], verbose=0)


class TestOnce:
    def test_one_data_set(self):
        perturb = perturbation(at_rest())
        dataset().apply(perturb)
        with pytest.raises(ValueError, match="is for one data set"):
            dataset().apply(perturb)

    def test_one_fit(self):
        model = at_rest()
        perturb = perturbation(model)
        noisy = dataset().apply(perturb).batch(8)
        model.fit(noisy, callbacks=[perturb.callback()], verbose=0)
        with pytest.raises(ValueError, match="one call of fit"):
            model.fit(noisy, callbacks=[perturb.callback()], verbose=0)
        model.fit(noisy, verbose=0)  # on D_priv


class TestPrivateTraining:
    def test_it_ends_what_was_proven_of_privately_trained_weights(self):
        model = at_the_optimum(X, Y)
        loss = model.loss
        model.compile(tfdp.NoisySGD(0.01, l2_norm_clip=1.0, noise_multiplier=2.0), loss=loss)
        model.fit(X, Y, batch_size=8, verbose=0)
        perturb = perturbation(model, damping=1.0)
        with pytest.raises(ValueError, match="Compile it with an ordinary one"):
            dataset().apply(perturb)
        model.compile(keras.optimizers.SGD(0.0), loss=loss)
        noisy = dataset().apply(perturb)
        assert tfdp.privacy_statement(model, delta=1e-3).epsilon < math.inf
        model.fit(noisy.batch(8), callbacks=[perturb.callback()], verbose=0)
        assert tfdp.privacy_statement(model, delta=1e-3).epsilon is None

    def test_a_private_optimizer_does_not_train_on_records_that_depend_on_one_another(self):
        noisy = dataset().apply(perturbation(at_rest()))
        with pytest.raises(ValueError, match="depends on all other records"):
            tfdp.data.declare_sampling(noisy.shuffle(SIZE).batch(8), "shuffled", size=SIZE, batch_size=8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.shuffle(10), r"shuffle\(\) before"),
        (lambda d: d.repeat(2), r"repeat\(\) before"),
        (lambda d: d.repeat(), r"repeat\(\) before"),
        (lambda d: d.map(lambda x, y: (x, y), num_parallel_calls=2, deterministic=False), "deterministic=False"),
        (lambda d: d.filter(lambda x, y: y > 0), "number of records is not known"),
        (lambda d: d.take(0), "empty"),
        (lambda d: d.batch(4), "elements are batches"),
        (lambda d: d.map(lambda x, y: x), "no labels"),
        (lambda d: d.map(lambda x, y: (x, y, 1.0)), "sample weights"),
        (lambda d: d.map(lambda x, y: ({"a": x}, y)), "x must be one dense tensor"),
        (lambda d: d.map(lambda x, y: (x[0], y)), "one number a record"),
        (lambda d: d.map(lambda x, y: (tf.cast(x, tf.int64), y)), "integers without a public range"),
        (lambda d: d.map(lambda x, y: (x / 0, y)), "NaN or infinity"),
    ],
)
def test_data_sets_that_it_cannot_perturb(change, message):
    model = at_rest()
    perturb = perturbation(model)
    with pytest.raises(ValueError, match=message):
        change(dataset()).apply(perturb)
    with pytest.raises(ValueError, match="There are no records yet"):
        perturb.callback()


def test_arrays_go_to_train():
    with pytest.raises(ValueError, match=r"arrays go to train"):
        perturbation(at_rest())(X)
