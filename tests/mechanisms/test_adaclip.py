"""AdaClip's ellipsoid, and what clip and noise make of it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.mechanisms.lots import SHAPES, flat, lot_of, traced_sums, weights
from tests.mechanisms.test_directional import CLIP, LOT, SIGMA, some_releases
from tests.optimizers import tiny
from tfdp.gradients import Ellipsoid
from tfdp.mechanisms import AdaClipMechanism, SecretGenerator


def test_the_first_ellipsoid_is_the_ball_around_0():
    mechanism = AdaClipMechanism(CLIP, SIGMA)
    found = mechanism.ellipsoid({n: [tf.constant(v) for v in p] for n, p in mechanism.initial_state(weights()).items()})
    np.testing.assert_allclose(flat(found.scales), np.ones(17), rtol=1e-6)
    np.testing.assert_array_equal(flat(found.centre), np.zeros(17))


def test_centre_and_scales_follow_the_papers_recursions():
    mechanism = AdaClipMechanism(CLIP, SIGMA, variance_min=1e-4, variance_max=50.0, mean_decay=0.8, variance_decay=0.6)
    state = mechanism.initial_state(weights())
    mean, variance = np.zeros(17), np.full(17, 1 / 17)
    for released in some_releases(steps=12):
        ellipsoid = mechanism.ellipsoid({n: [tf.constant(v) for v in parts] for n, parts in state.items()})
        b = np.sqrt(np.sqrt(variance) * np.sqrt(variance).sum())
        np.testing.assert_allclose(flat(ellipsoid.scales), b, rtol=1e-4)
        drawn_in = min(1, 10 * CLIP / max(np.linalg.norm(mean / b), 1e-30))
        np.testing.assert_allclose(flat(ellipsoid.centre), drawn_in * mean, rtol=1e-4, atol=1e-6)
        state = mechanism.next_state(state, [tf.constant(g) for g in released], ellipsoid, LOT)
        seen = np.clip((flat(released) - mean) ** 2 - (SIGMA * CLIP * b / LOT) ** 2, 1e-4, 50.0)
        mean, variance = 0.8 * mean + 0.2 * flat(released), 0.6 * variance + 0.4 * seen
    assert 1e-4 < variance.min() < variance.max() <= 50.0


def test_sums_of_neighbouring_lots_differ_by_at_most_the_clip_wherever_the_centre_is():
    mechanism, random = AdaClipMechanism(CLIP, SIGMA), np.random.default_rng(0)
    sums, reached = traced_sums(mechanism.bounded_sum), 0
    for _ in range(1000):
        scales = [(10.0 ** random.uniform(-1, 1, shape)).astype("f4") for shape in SHAPES]
        centre = [(10.0 ** random.uniform(-3, 4) * random.normal(size=shape)).astype("f4") for shape in SHAPES]
        near = random.random(6) < 0.5  # gradients close to the centre: all that is far cancels
        gradients = []
        for a, s in zip(centre, scales, strict=True):
            own = 10.0 ** random.uniform(-3, 3, 6)[:, None] * random.normal(size=(6, a.size)) * np.ravel(s)
            gradients.append((own + near[:, None] * np.ravel(a)).reshape(6, *a.shape).astype("f4"))
        present = np.zeros(6, bool)
        np.testing.assert_array_equal(
            sums(gradients, present, scales, centre), np.zeros(17)
        )  # an absent record contributes 0
        present[random.integers(6)] = True
        moved = np.linalg.norm(sums(gradients, present, scales, centre) / flat(scales))
        rounding = 2.0**-22 * np.linalg.norm(flat(centre) / flat(scales))
        assert moved <= CLIP * (1 + 1e-6) + rounding
        reached += moved > 0.99 * CLIP
    assert reached > 300


def test_the_centre_comes_back_at_the_expected_lot_size():
    mechanism = AdaClipMechanism(1e6, 0.0)
    gradients = [np.random.default_rng(0).normal(size=(6, *shape)).astype("f4") for shape in SHAPES]
    ellipsoid = Ellipsoid([tf.ones(shape) for shape in SHAPES], [tf.fill(shape, 0.5) for shape in SHAPES])
    sums, _ = mechanism.bounded_sum(lot_of(gradients), tf.ones([6], tf.bool), ellipsoid)
    released = mechanism.privatise(sums, LOT, SecretGenerator(seed=1), ellipsoid)
    wanted = (flat([g.sum(0) for g in gradients]) - 6 * 0.5) / LOT + 0.5
    np.testing.assert_allclose(flat(released), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [tfdp.AdaClipDPSGD, tfdp.AdaClipDPAdam])
def test_through_fit_it_costs_what_noisy_sgd_costs_and_goes_on_where_it_was(optimizer, tmp_path):
    model = tiny.private(optimizer(0.01, l2_norm_clip=CLIP, noise_multiplier=1.1, variance_min=1e-6))
    tiny.train(model, steps=5)
    plain = tiny.private(tfdp.NoisySGD(0.01, l2_norm_clip=CLIP, noise_multiplier=1.1))
    tiny.train(plain, steps=5)
    assert model.optimizer.ledger == plain.optimizer.ledger
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert loaded.mechanism.variance_min == 1e-6
    for name, values in model.optimizer.state_of_mechanism.items():
        for one, other in zip(values, loaded.state_of_mechanism[name], strict=True):
            np.testing.assert_array_equal(one, other)
    assert np.ptp(flat(loaded.state_of_mechanism["variance"])) > 0


@pytest.mark.parametrize("release", [np.nan, np.inf, 3e30])
def test_a_release_out_of_range_leaves_a_finite_ellipsoid(release):
    mechanism = AdaClipMechanism(CLIP, SIGMA)
    state = {n: [tf.constant(v) for v in p] for n, p in mechanism.initial_state(weights()).items()}
    released = [tf.fill(shape, np.float32(release)) for shape in SHAPES]
    for _ in range(3):
        state = mechanism.next_state(state, released, mechanism.ellipsoid(state), LOT)
    found = mechanism.ellipsoid(state)
    assert np.all(np.isfinite(flat(found.scales)) & (flat(found.scales) > 0))


@pytest.mark.parametrize("how", [{"jit_compile": True}, {"run_eagerly": True}, {"max_physical_batch": 3}])
def test_every_way_of_execution_takes_the_same_steps(how):
    weights = []
    for arguments in ({}, how):
        parts = {"max_physical_batch": arguments["max_physical_batch"]} if "max_physical_batch" in arguments else {}
        model = tiny.private(
            tfdp.AdaClipDPSGD(0.05, l2_norm_clip=CLIP, noise_multiplier=0.0, **parts),
            **{name: value for name, value in arguments.items() if name not in parts},
        )
        tiny.train(model, steps=5)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"variance_min": 0.0}, "variance_min must be a positive"),
        ({"variance_min": 2.0, "variance_max": 1.0}, "in this order"),
        ({"variance_max": 1e300}, "in this order, between 1e-24 and 1e"),
        ({"mean_decay": 1.0}, "mean_decay must be below 1"),
        ({"variance_decay": -0.1}, "variance_decay must be a finite number of at least 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdaClipMechanism(CLIP, SIGMA, **arguments)
