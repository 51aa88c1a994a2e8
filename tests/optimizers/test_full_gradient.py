"""direction="full_gradient" through fit: what is released, when, what it costs, and that it goes on where it was."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tests.optimizers.full_gradients import BATCH, CLIP, SIZE, X, Y, counts, direction_of, fit, full, noiseless
from tfdp.accounting import FullBatch, NotPrivateEvent, Poisson, Relation
from tfdp.mechanisms import DirectionalMechanism, FullGradient, GaussianMechanism


@pytest.mark.parametrize("how", ["plain", "in parts", "by XLA", "eagerly", "from a memory map", "from a source"])
def test_without_noise_it_is_the_mean_of_all_clipped_gradients(how, tmp_path):
    x, y = X, Y
    if how == "from a memory map":
        np.save(tmp_path / "x.npy", X)
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
    if how == "from a source":
        x, y = [{"x": a, "y": b} for a, b in zip(X, Y, strict=True)], None
        x = type("Source", (), {"__len__": lambda self: SIZE, "__getitem__": lambda self, i, items=x: items[i]})()
    optimizer = noiseless(0.0, **({"max_physical_batch": 7} if how == "in parts" else {}))
    model = tiny.private(optimizer, jit_compile=how == "by XLA", run_eagerly=how == "eagerly")
    fit(model, x, y, epochs=1)
    expected = tiny.clipped_gradients(model.get_weights(), X, Y, clip=CLIP).mean(0)
    np.testing.assert_allclose(direction_of(model), expected, rtol=1e-5)


def test_of_a_network_it_is_what_a_tape_finds_record_by_record():
    """Without noise, with norms over all weights jointly."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Embedding(9, 4), keras.layers.Flatten(), keras.layers.Dense(3, activation="tanh")]
    model = keras.Sequential([keras.layers.Input((5,), dtype="int32"), *layers, keras.layers.Dense(2)])
    random = np.random.default_rng(0)
    x, y = random.integers(0, 9, (31, 5)).astype("int32"), random.normal(size=(31, 2)).astype("f4")
    model.compile(optimizer=noiseless(0.0, l2_norm_clip=1.0), loss="mse")
    model.fit(x, y, batch_size=8, verbose=0)
    total, clipped = 0, 0
    for a, b in zip(x, y, strict=True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(a[None]) - b))
        found = tape.gradient(loss, [v.value for v in model.trainable_variables])
        found = np.concatenate([np.ravel(tf.convert_to_tensor(g)) for g in found])
        clipped += np.linalg.norm(found) > 1.0
        total = total + found * min(1, 1.0 / np.linalg.norm(found))
    assert 0 < clipped < 31
    np.testing.assert_allclose(direction_of(model), total / 31, rtol=1e-4, atol=1e-7)


def test_its_noise_has_the_standard_deviation_it_says():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2000, use_bias=False)])
    model.compile(optimizer=full(1.0), loss=lambda y, p: keras.ops.zeros_like(p[:, 0]))
    fit(model, epochs=1)
    found = direction_of(model)
    assert np.std(found) == pytest.approx(20.0 * CLIP / SIZE, rel=0.05)
    assert abs(np.mean(found)) < 5 * 20.0 * CLIP / SIZE / np.sqrt(6000)


@pytest.mark.parametrize("content", [X, 1e3 * X, 1e-3 * X])
def test_neighbouring_data_sets_differ_by_at_most_the_clip(content):
    """One record's content is replaced by nothing: it weighs 0."""
    sums = []
    for weight in (1.0, 0.0):
        model = tiny.private(noiseless(0.0))
        fit(model, content, sample_weight=np.where(np.arange(SIZE) == 17, weight, 1.0), epochs=1)
        sums.append(direction_of(model).astype("f8") * SIZE)
    moved = np.linalg.norm(sums[0] - sums[1])
    assert 0.1 * CLIP < moved <= CLIP * (1 + 1e-4)
    np.testing.assert_allclose(
        sums[0] - sums[1],
        tiny.clipped_gradients(model.get_weights(), content, Y, clip=CLIP)[17],
        rtol=1e-2,
        atol=1e-4,
    )


def test_a_record_that_is_not_finite_contributes_nothing_and_is_counted():
    x = X.copy()
    x[17, 0] = np.nan
    model = tiny.private(noiseless(0.0))
    fit(model, x, epochs=1, steps_per_epoch=1)
    expected = tiny.clipped_gradients(model.get_weights(), np.delete(x, 17, 0), np.delete(Y, 17, 0), clip=CLIP)
    np.testing.assert_allclose(direction_of(model), expected.sum(0) / SIZE, rtol=1e-5)
    assert model.optimizer.non_finite_examples >= 1


def test_with_a_public_size_it_is_divided_by_that_and_is_about_one_record_more_or_less():
    model = tiny.private(noiseless(0.0))
    fit(model, epochs=1, public_size=110)
    expected = tiny.clipped_gradients(model.get_weights(), X, Y, clip=CLIP).sum(0) / 110
    np.testing.assert_allclose(direction_of(model), expected, rtol=1e-5)
    assert {line.sampling for line in model.optimizer.ledger} == {FullBatch(110, True), Poisson(20 / 110, 110, True)}
    assert model.optimizer.ledger.relation is Relation.ADD_OR_REMOVE


def test_metrics_see_nothing_of_it():
    losses = []
    for optimizer in (noiseless(0.0), tiny.noiseless(0.0)):
        model = tiny.private(optimizer)
        losses.append(fit(model, tiny.X, tiny.Y, batch_size=tiny.SIZE, epochs=1).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_steps_clip_in_the_ellipsoid_of_the_full_gradient():
    """Two steps with every record: the second one's scales are made of w and of the first one's release, in numpy."""
    model = tiny.private(noiseless(0.1, direction_steps=100))
    weights = model.get_weights()
    w = tiny.clipped_gradients(weights, X, Y, clip=CLIP).mean(0)
    fit(model, batch_size=SIZE, epochs=2)
    theta = np.concatenate([np.ravel(part) for part in weights]).astype("f8") - 0.1 * w  # the first step's release is w
    shape = np.cbrt(w**2 / np.abs(w))
    scales = np.clip(shape * np.sqrt((w**2 / shape**2).sum() / (w**2).sum()), 0.1, 10.0)
    assert scales.max() / scales.min() > 2
    gradients = 2 * (X @ theta[:3, None] + theta[3] - Y) * np.hstack([X, np.ones((SIZE, 1))])
    norms = np.linalg.norm(gradients / scales, axis=1, keepdims=True)
    theta = theta - 0.1 * (gradients * np.minimum(1, CLIP / norms)).mean(0)
    tiny.assert_weights(model, [theta[:3, None], theta[3:]], rtol=1e-4)


class ClippedMean(FullGradient):
    """The mean first, clipped as a whole: a record may turn it around, from one end of the ball to the other."""

    def bounded_sum(self, lot, present, ellipsoid=None):
        unbounded = GaussianMechanism(1.0)
        unbounded.l2_norm_clip = np.inf
        return unbounded.bounded_sum(lot, present)

    def privatise(self, sums, size, generator, ellipsoid=None):
        mean = [s / size for s in sums]
        return tf.clip_by_global_norm(mean, tf.constant(self.l2_norm_clip, mean[0].dtype))[0]

    def event(self):
        return NotPrivateEvent("without noise")


@keras.saving.register_keras_serializable("tests")
class WithClippedMean(DirectionalMechanism):
    def __init__(self, *positional, **arguments):
        super().__init__(*positional, **arguments)
        self.full_gradient = ClippedMean(self.l2_norm_clip, 0.0, every=1)


@pytest.mark.parametrize("clip", [0.1, 1e6])
def test_a_mechanism_may_ask_for_another_pass(clip):
    own = WithClippedMean(clip, 0.0, "full_gradient", direction_noise_multiplier=0.0)
    model = tiny.private(tfdp.PrivateOptimizer(keras.optimizers.SGD(0.0), own))
    fit(model, epochs=1)
    mean = tiny.clipped_gradients(model.get_weights(), X, Y, clip=np.inf).mean(0)
    assert np.linalg.norm(mean) > 0.1
    np.testing.assert_allclose(direction_of(model), mean * min(1, clip / np.linalg.norm(mean)), rtol=1e-4)
    assert counts(model) == [5, 5]


def test_a_declared_dataset_is_refused_before_anything_moved():
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    declared = tfdp.data.declare_sampling(dataset, "shuffled", size=SIZE, batch_size=BATCH)
    model = tiny.private(full())
    with (
        tiny.nothing_moves(model),
        pytest.raises(ValueError, match=r"arrays or a random-access source.*noisy_gradient"),
    ):
        model.fit(declared, verbose=0)


def test_several_steps_at_once_are_refused_before_anything_moved():
    model = tiny.private(full(), steps_per_execution=2)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="steps_per_execution=1"):
        fit(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"direction_noise_multiplier": None}, "give its noise as well"),
        ({"direction_budget": 1 / 4}, "a share of target_epsilon="),
        ({"target_epsilon": 2.0, "delta": 1e-5, "direction_noise_multiplier": 20.0}, "neither of the two"),
        ({"direction": "ones"}, "direction_noise_multiplier= goes with direction='full_gradient'"),
        ({"direction_steps": -1}, "direction_steps must be"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        full(**arguments)
