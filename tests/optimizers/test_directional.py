"""DirectionalDPSGD and DirectionalDPAdam through fit: what they cost, remember and save."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny

CLIP = 1.5
FEATURES = np.array([1.0, 30.0, 0.01], "f4")  # coordinates of very different size


def directional(learning_rate=0.01, *, noise_multiplier=0.0, **arguments) -> tfdp.DirectionalDPSGD:
    return tfdp.DirectionalDPSGD(learning_rate, l2_norm_clip=CLIP, noise_multiplier=noise_multiplier, **arguments)


def state_of(optimizer) -> dict[str, list[np.ndarray]]:
    return {name: [v.numpy() for v in values] for name, values in optimizer.state_of_mechanism.items()}


def scales_of(optimizer) -> list[np.ndarray]:
    return [s.numpy() for s in optimizer.mechanism.scales(optimizer.state_of_mechanism)]


def assert_same(one, other) -> None:
    assert one.keys() == other.keys()
    for name in one:
        for a, b in zip(one[name], other[name], strict=True):
            np.testing.assert_array_equal(a, b)


def by_hand(weights, x, y, steps, learning_rate, clip=CLIP, decay=0.99):
    """Noiseless directional SGD on the linear model, in numpy."""
    theta = np.concatenate([np.ravel(w) for w in weights]).astype("f8")
    mean, square = np.zeros(4), np.zeros(4)
    for step in range(steps):
        scales = np.ones(4)
        if step:
            m, w = square / (1 - decay**step), np.abs(mean / (1 - decay**step))
            shape = np.cbrt(m / w)
            scales = np.clip(shape * np.sqrt((m / shape**2).sum() / m.sum()), 0.1, 10.0)
        gradients = 2 * (x @ theta[:3, None] + theta[3] - y) * np.hstack([x, np.ones((len(x), 1))])
        norms = np.linalg.norm(gradients / scales, axis=1, keepdims=True)
        released = (gradients * np.minimum(1, clip / norms)).sum(0) / len(x)
        mean, square = decay * mean + (1 - decay) * released, decay * square + (1 - decay) * released**2
        theta = theta - learning_rate * released
    return [theta[:3, None], theta[3:]], scales


@pytest.mark.parametrize("how", ["plain", "in parts", "by XLA", "eagerly"])
def test_steps_are_those_written_out(how):
    x = tiny.X * FEATURES
    optimizer = directional(**({"max_physical_batch": 3} if how == "in parts" else {}))
    model = tiny.private(optimizer, jit_compile=how == "by XLA", run_eagerly=how == "eagerly")
    expected, scales = by_hand(model.get_weights(), np.float64(x), tiny.Y, 6, 0.01)
    assert scales.max() / scales.min() > 2
    tiny.train(model, x, steps=6)
    tiny.assert_weights(model, expected, rtol=1e-4)


def test_it_costs_what_noisy_sgd_costs():
    ledgers = []
    for optimizer in (directional(noise_multiplier=1.1), tfdp.NoisySGD(0.1, l2_norm_clip=CLIP, noise_multiplier=1.1)):
        model = tiny.private(optimizer)
        tiny.train(model, steps=7)
        ledgers.append(optimizer.ledger)
    assert ledgers[0] == ledgers[1]
    found = [tfdp.accounting.epsilon(ledger, delta=1e-5) for ledger in ledgers]
    assert abs(found[0] - found[1]) <= 1e-12


def test_a_target_is_kept():
    optimizer = tfdp.DirectionalDPAdam(0.01, l2_norm_clip=CLIP, target_epsilon=2.0, delta=1e-5)
    model = tiny.private(optimizer)
    x, y = (np.repeat(part, 50, axis=0) for part in (tiny.X, tiny.Y))
    model.fit(x, y, batch_size=100, epochs=2, verbose=0)
    assert 0.99 * 2.0 <= tfdp.accounting.epsilon(optimizer.ledger, delta=1e-5) <= 2.0


def test_what_it_remembers_is_a_function_of_its_releases_alone():
    """Two data sets that release the same leave the same state: here, nothing but the same noise."""
    states = []
    for records in (tiny.X, 1000 * tiny.X):
        optimizer = directional(noise_multiplier=1.0, noise_seed=3)
        model = tiny.private(optimizer)
        tiny.train(model, records, steps=4, sample_weight=np.zeros(len(records)))
        states.append(state_of(optimizer))
    assert_same(*states)
    assert np.ptp(np.concatenate([np.ravel(v) for v in states[0]["mean"]])) > 0


@pytest.mark.parametrize("how", ["model", "checkpoint"])
def test_scales_go_on_where_they_were(how, tmp_path):
    x = tiny.X * FEATURES
    straight = tiny.private(directional())
    tiny.train(straight, x, steps=8)

    stopped = tiny.private(directional())
    tiny.train(stopped, x, steps=4)
    if how == "model":
        stopped.save(tmp_path / "model.keras")
        resumed = keras.models.load_model(tmp_path / "model.keras")
    else:
        resumed = tiny.private(directional())
        resumed.optimizer.build(resumed.trainable_variables)
        tf.train.Checkpoint(model=stopped, optimizer=stopped.optimizer).write(str(tmp_path / "state"))
        tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer).read(str(tmp_path / "state"))
    assert_same(state_of(resumed.optimizer), state_of(stopped.optimizer))
    np.testing.assert_array_equal(scales_of(resumed.optimizer)[0], scales_of(stopped.optimizer)[0])
    assert resumed.optimizer.ledger == stopped.optimizer.ledger
    tiny.train(resumed, x, steps=4)
    for one, other in zip(resumed.get_weights(), straight.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert resumed.optimizer.ledger == straight.optimizer.ledger


@keras.saving.register_keras_serializable("tests")
def twice_for_kernels(weight):
    return 2.0 if len(weight.shape) == 2 else 1.0


@pytest.mark.parametrize("direction", ["ones", [np.full((3, 1), 2.0), np.ones(1)], twice_for_kernels])
def test_directions_are_saved(direction, tmp_path):
    x = tiny.X * FEATURES
    model = tiny.private(directional(direction=direction, s_max=4.0))
    tiny.train(model, x, steps=3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert loaded.mechanism.s_max == 4.0
    assert_same(state_of(loaded), state_of(model.optimizer))
    np.testing.assert_array_equal(scales_of(loaded)[0], scales_of(model.optimizer)[0])


def test_an_array_and_a_function_that_say_the_same_train_the_same():
    x, found = tiny.X * FEATURES, []
    for direction in ([np.full((3, 1), 2.0), np.ones(1)], twice_for_kernels, "ones"):
        model = tiny.private(directional(direction=direction))
        tiny.train(model, x, steps=5)
        found.append(model.get_weights()[0])
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_a_direction_that_does_not_fit_is_refused_before_anything_moved():
    model = tiny.private(directional(direction=[np.ones(2), 1.0]))
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="can't be spread"):
        tiny.train(model)


def test_with_scales_of_one_weights_are_those_of_noisy_sgd():
    trained = []
    for optimizer in (
        directional(0.1, noise_multiplier=1.0, noise_seed=5, s_min=1.0, s_max=1.0),
        tfdp.NoisySGD(0.1, l2_norm_clip=CLIP, noise_multiplier=1.0, noise_seed=5),
    ):
        model = tiny.private(optimizer)
        tiny.train(model, steps=5)
        trained.append(model.get_weights())
    for one, other in zip(*trained, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("direction", ["ones", [np.full((3, 1), 2.0), np.ones(1)], [2.0, 1.0], twice_for_kernels])
def test_config_round_trips(direction):
    optimizer = directional(direction=direction)
    again = tfdp.DirectionalDPSGD.from_config(optimizer.get_config())
    both = [optimizer.mechanism.direction, again.mechanism.direction]
    for one, other in zip(*both, strict=True) if isinstance(direction, list) else [both]:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "first, second",
    [
        (tfdp.mechanisms.GaussianMechanism(CLIP, 1.0), tfdp.mechanisms.DirectionalMechanism(CLIP, 1.0)),
        (tfdp.mechanisms.DirectionalMechanism(CLIP, 1.0), tfdp.mechanisms.GaussianMechanism(CLIP, 10.0)),
        (tfdp.mechanisms.DirectionalMechanism(CLIP, 1.0), tfdp.mechanisms.DirectionalMechanism(CLIP, 1.0, "ones")),
        (tfdp.mechanisms.DirectionalMechanism(CLIP, 1.0), tfdp.mechanisms.AdaClipMechanism(CLIP, 1.0)),
    ],
)
def test_a_mechanism_that_remembers_is_not_replaced(first, second):
    model = tiny.private(tfdp.PrivateOptimizer("sgd", first))
    tiny.train(model)
    model.optimizer.mechanism = second
    for _ in range(2):
        with tiny.nothing_moves(model), pytest.raises(ValueError, match="mechanism was replaced"):
            tiny.train(model)
    model.optimizer.mechanism = first
    tiny.train(model)
    assert model.optimizer.ledger.steps == 2


def test_noise_may_be_changed_between_fits_and_is_priced():
    model = tiny.private(directional(noise_multiplier=1.0))
    tiny.train(model)
    model.optimizer.mechanism.noise_multiplier = 3.0
    tiny.train(model)
    assert [line.event.noise_multiplier for line in model.optimizer.ledger] == [1.0, 3.0]
