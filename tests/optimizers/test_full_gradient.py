"""direction="full_gradient" through fit: what is released, when, what it costs, and that it goes on where it was."""

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import tfdp
from tests.optimizers import tiny
from tests.optimizers.test_target_epsilon import Interrupts
from tfdp.accounting import FullBatch, GaussianEvent, Ledger, NotPrivateEvent, Poisson, Relation
from tfdp.mechanisms import DirectionalMechanism, FullGradient, GaussianMechanism
from tfdp.optimizers.full_pass import FullPass

SIZE, BATCH, CLIP = 100, 20, 1.5
X = (np.random.default_rng(3).standard_normal((SIZE, 3)) * [1.0, 30.0, 0.01]).astype("float32")
Y = np.random.default_rng(4).standard_normal((SIZE, 1)).astype("float32")
EPOCH = SIZE // BATCH


def full(learning_rate=0.01, *, optimizer=tfdp.DirectionalDPSGD, **arguments) -> tfdp.DirectionalDPSGD:
    noise = {"noise_multiplier": 3.0, "direction_noise_multiplier": 20.0}
    noise = {} if "target_epsilon" in arguments else noise
    return optimizer(learning_rate, **{"l2_norm_clip": CLIP, "direction": "full_gradient"} | noise | arguments)


def noiseless(learning_rate=0.01, **arguments) -> tfdp.DirectionalDPSGD:
    return full(learning_rate, noise_multiplier=0.0, direction_noise_multiplier=0.0, **arguments)


def fit(model, x=X, y=Y, **arguments):
    return model.fit(x, y, **{"batch_size": BATCH, "epochs": 2, "verbose": 0} | arguments)


def counts(model) -> list[int]:
    """[full gradients, steps] of the ledger."""
    full_gradients, steps = 0, 0
    for line in model.optimizer.ledger:
        if isinstance(line.sampling, FullBatch):
            full_gradients += line.steps
        else:
            steps += line.steps
    return [full_gradients, steps]


def direction_of(model) -> np.ndarray:
    parts = model.optimizer.state_of_mechanism["full_gradient"]
    return np.concatenate([np.ravel(part.numpy()) for part in parts])


def spent(ledger: Ledger, accountant=PLDAccountant, only=None) -> float:
    """Of full and Poisson lots, by dp-accounting driven directly."""
    counted = accountant()
    for line in ledger:
        event = dp_accounting.GaussianDpEvent(line.event.noise_multiplier)
        if isinstance(line.sampling, Poisson):
            event = dp_accounting.PoissonSampledDpEvent(line.sampling.sampling_rate, event)
        if only is None or isinstance(line.sampling, only):
            counted.compose(event, line.steps)
    return counted.get_epsilon(1e-5)


# What is released.


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


# When, and what the ledger says.


@pytest.mark.parametrize(
    ("every", "epochs", "expected"),
    [(None, 3, [3, 15]), (1, 1, [5, 5]), (4, 3, [4, 15]), (100, 3, [1, 15]), (7, 3, [3, 15])],
)
def test_the_ledger_has_a_line_for_steps_and_one_for_full_gradients(every, epochs, expected):
    model = tiny.private(full(direction_steps=every))
    fit(model, epochs=epochs)
    assert counts(model) == expected
    assert {(line.event, line.sampling) for line in model.optimizer.ledger} == {
        (GaussianEvent(3.0), Poisson(BATCH / SIZE, SIZE)),
        (GaussianEvent(20.0), FullBatch(SIZE)),
    }
    assert int(model.optimizer.iterations) == expected[1]


def test_no_step_is_taken_before_a_release_that_is_due(monkeypatch):
    monkeypatch.setattr(FullPass, "release", lambda self: None)
    model = tiny.private(full())
    model.optimizer.build(model.trainable_variables)
    with tiny.nothing_moves(model):
        fit(model)
    assert counts(model) == [0, 0]


def test_between_two_of_them_it_stays():
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(direction_of(self.model).tobytes())

    model = tiny.private(full(direction_steps=4))
    fit(model, callbacks=[Watch()])
    assert len(seen) == 10
    assert [seen.index(one) for one in seen] == [0] * 4 + [4] * 4 + [8] * 2


def test_the_schedule_goes_on_over_several_fits():
    model = tiny.private(full(direction_steps=4))
    found = []
    for _ in range(4):
        fit(model, epochs=1)
        found.append(counts(model))
    assert found == [[2, 5], [3, 10], [4, 15], [5, 20]]
    assert tfdp.privacy_statement(model, 1e-5).epsilon == pytest.approx(spent(model.optimizer.ledger), rel=1e-3)


def test_a_ledger_of_one_schedule_is_proven_without_a_word():
    model = tiny.private(full())
    fit(model)
    statement = tfdp.privacy_statement(model, delta=1e-5)
    assert spent(model.optimizer.ledger) <= statement.epsilon * (1 + 1e-6)
    assert statement.epsilon == pytest.approx(spent(model.optimizer.ledger), rel=1e-3)
    assert "2 releases between the steps" in " ".join(str(statement).split())


@pytest.mark.parametrize("change", ["steps' noise", "lot size", "schedule"])
def test_another_plan_in_a_later_fit_is_not(change):
    model = tiny.private(full())
    fit(model)
    if change == "steps' noise":
        model.optimizer.mechanism.noise_multiplier = 4.0
    if change == "schedule":
        model.optimizer.mechanism.full_gradient.every = 3
    fit(model, batch_size=50 if change == "lot size" else BATCH)
    assert tfdp.privacy_statement(model, delta=1e-5).epsilon is None
    assert tfdp.privacy_statement(model, delta=1e-5, settings_fixed_beforehand=True).epsilon is not None


def test_a_pass_that_was_interrupted_released_nothing_and_is_made_up_for():
    class Broken:
        def __init__(self):
            self.reads = 0

        def __len__(self):
            return SIZE

        def __getitem__(self, i):
            self.reads += 1
            if self.breaks and i == 60:
                raise RuntimeError("disk")
            return {"x": X[i], "y": Y[i]}

    source, model = Broken(), tiny.private(full(max_physical_batch=10))
    model.optimizer.build(model.trainable_variables)
    source.breaks = True
    with tiny.nothing_moves(model), pytest.raises(tf.errors.OpError, match="disk"):
        fit(model, source, None)
    source.breaks = False
    fit(model, source, None)
    assert counts(model) == [2, 10]


def test_noise_that_is_known_protects_nothing():
    model = tiny.private(full(noise_seed=1))
    fit(model)
    assert all(isinstance(line.event, NotPrivateEvent) for line in model.optimizer.ledger)
    assert counts(model) == [2, 10]


# The target.


@pytest.mark.parametrize("every", [None, 3])
@pytest.mark.parametrize(("share", "accountant"), [(1 / 8, "pld"), (1 / 8, "rdp"), (1 / 3, "pld")])
def test_full_gradients_cost_their_share_and_all_together_the_target(every, share, accountant):
    target = {"target_epsilon": 2.0, "delta": 1e-5, "accountant": accountant}
    model = tiny.private(
        full(**target, direction_budget=share, direction_steps=every, optimizer=tfdp.DirectionalDPAdam)
    )
    fit(model, epochs=3)
    counted = {"pld": PLDAccountant, "rdp": RdpAccountant}[accountant]
    assert counts(model) == [3 if every is None else 5, 15]
    assert 0.995 * 2.0 <= spent(model.optimizer.ledger, counted) <= 2.0
    alone = spent(model.optimizer.ledger, counted, only=FullBatch)  # which dp-accounting rounds up by up to 4e-8
    assert 0.99 * share * 2.0 < alone <= share * 2.0 * (1 + 1e-6)
    assert 0 < tfdp.privacy_statement(model).epsilon <= 2.0


def test_after_the_plan_nothing_is_released_any_more():
    model = tiny.private(full(target_epsilon=2.0, delta=1e-5))
    fit(model)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="of which 0 keep"):
        fit(model, epochs=1)


@pytest.mark.parametrize("save_freq", ["epoch", 1, 2])
def test_a_run_that_was_broken_off_takes_what_was_planned_and_no_more(tmp_path, save_freq):
    backup = lambda: keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=save_freq)  # noqa: E731
    target = {"target_epsilon": 2.0, "delta": 1e-5, "direction_steps": 4}
    model = tiny.private(full(**target))
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[backup(), Interrupts(1, 1)])
    resumed = tiny.private(full(**target))
    fit(resumed, callbacks=[backup()])
    assert counts(resumed) == [3, 10]
    events = [line.event for line in resumed.optimizer.ledger]
    assert events == [line.event for line in model.optimizer.ledger]
    assert 0.995 * 2.0 <= spent(resumed.optimizer.ledger) <= 2.0
    assert 0 < tfdp.privacy_statement(resumed).epsilon <= 2.0


def test_the_noise_that_was_found_is_not_part_of_the_settings():
    model = tiny.private(full(target_epsilon=2.0, delta=1e-5, direction_steps=4))
    fit(model)
    config = model.optimizer.get_config()
    assert (config["noise_multiplier"], config["direction_noise_multiplier"]) == (None, None)
    copy = tfdp.DirectionalDPSGD.from_config(config)
    assert copy.mechanism.full_gradient.every == 4
    assert copy.get_config() == config


# Saved and reloaded.


@pytest.mark.parametrize("how", ["model", "weights", "checkpoint"])
@pytest.mark.parametrize("every", [5, 4])
def test_it_goes_on_exactly_after_a_reload(how, every, tmp_path):
    """Every record in every lot, no noise: weights, scales, schedule and ledger are those of a run that was not broken off."""

    def steps(model, epochs):
        model.fit(X, Y, batch_size=SIZE, epochs=epochs, steps_per_epoch=1, verbose=0)

    optimizer = lambda: noiseless(0.05, direction_steps=every)  # noqa: E731
    straight, stopped = tiny.private(optimizer()), tiny.private(optimizer())
    steps(straight, 12)
    steps(stopped, 6)
    resumed = tiny.private(optimizer())
    if how == "model":
        stopped.save(tmp_path / "model.keras")
        resumed = keras.models.load_model(tmp_path / "model.keras")
    else:
        resumed.optimizer.build(resumed.trainable_variables)
        if how == "weights":
            stopped.save_weights(tmp_path / "state.weights.h5")
            resumed.load_weights(tmp_path / "state.weights.h5")
        else:
            tf.train.Checkpoint(model=stopped, optimizer=stopped.optimizer).write(str(tmp_path / "state"))
            tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer).read(str(tmp_path / "state"))
    np.testing.assert_array_equal(direction_of(resumed), direction_of(stopped))
    assert resumed.optimizer.ledger == stopped.optimizer.ledger
    assert resumed.optimizer.fits == stopped.optimizer.fits
    steps(resumed, 6)
    assert resumed.optimizer.ledger == straight.optimizer.ledger
    np.testing.assert_allclose(direction_of(resumed), direction_of(straight), rtol=1e-6)
    for one, other in zip(resumed.get_weights(), straight.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_going_back_to_a_checkpoint_gives_no_release_back_and_keeps_to_the_schedule(tmp_path):
    model = tiny.private(full(direction_steps=4))
    fit(model, epochs=1)
    model.save_weights(tmp_path / "first.weights.h5")
    back = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda e, logs: model.load_weights(tmp_path / "first.weights.h5")
    )
    fit(model, epochs=3, callbacks=[back])
    assert counts(model) == [5, 20]


def test_resetting_the_optimizers_variables_makes_no_release_more_or_less():
    def reset(epoch, logs):
        for variable in model.optimizer.variables:
            if "learning_rate" not in variable.path:
                variable.assign(keras.ops.zeros_like(variable))

    model = tiny.private(full(direction_steps=4))
    fit(model, epochs=3, callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=reset)])
    assert counts(model) == [4, 15]
    assert all(isinstance(line.event, GaussianEvent) for line in model.optimizer.ledger)


# What is refused.


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
