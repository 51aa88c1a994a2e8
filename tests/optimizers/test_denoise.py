"""denoise= of any private optimizer."""

import numpy as np
import pytest
import scipy.stats

import tfdp
from tests.optimizers import tiny
from tfdp.mechanisms import DirectionalMechanism, GaussianMechanism


def moved(denoise: str | None, kind=tfdp.NoisySGD, steps=1, **arguments) -> np.ndarray:
    """By how much one step moves the weights, the noise being the same each time."""
    model = tiny.private(kind(0.1, l2_norm_clip=tiny.CLIP, noise_seed=7, denoise=denoise, **arguments))
    before = model.get_weights()
    tiny.train(model, steps=steps)
    return np.concatenate([np.ravel(w - b) for w, b in zip(model.get_weights(), before, strict=True)])


def test_ks_scales_the_step_by_the_distance_from_the_noise():
    plain = moved(None, noise_multiplier=1.1)
    coordinates = -plain / 0.1 * tiny.SIZE / tiny.CLIP
    scale = scipy.stats.kstest(coordinates, scipy.stats.norm(0, 1.1).cdf).statistic
    np.testing.assert_allclose(moved("ks", noise_multiplier=1.1), scale * plain, rtol=1e-3, atol=1e-7)


def test_laplacian_smooths_the_step():
    plain = moved(None, noise_multiplier=1.1)
    matrix = 3 * np.eye(4) - np.roll(np.eye(4), 1, 0) - np.roll(np.eye(4), -1, 0)
    np.testing.assert_allclose(
        moved("laplacian", noise_multiplier=1.1), np.linalg.solve(matrix, plain), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("kind", [tfdp.NoisyAdam, tfdp.DirectionalDPSGD, tfdp.AdaClipDPSGD])
@pytest.mark.parametrize("denoise", ["ks", "laplacian"])
def test_other_optimizers_are_denoised_at_the_same_price(kind, denoise):
    model = tiny.private(kind(0.1, l2_norm_clip=tiny.CLIP, noise_multiplier=1.1, denoise=denoise))
    tiny.train(model, steps=3)
    (line,) = model.optimizer.ledger
    assert line.event == tfdp.accounting.GaussianEvent(1.1)
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_without_noise_ks_has_nothing_to_do():
    np.testing.assert_array_equal(moved("ks", noise_multiplier=0.0), moved(None, noise_multiplier=0.0))


def test_what_a_mechanism_remembers_is_not_denoised():
    """Means of squares are of the releases with all their noise, whose variance is taken off."""
    states = []
    for denoise in (None, "ks"):
        mechanism = DirectionalMechanism(tiny.CLIP, 1.1)
        optimizer = tfdp.PrivateOptimizer("sgd", mechanism, noise_seed=3, denoise=denoise)
        tiny.train(tiny.private(optimizer))
        states.append(np.concatenate([np.ravel(v) for v in optimizer.state_of_mechanism["square"]]))
    np.testing.assert_array_equal(*states)


def test_a_release_that_is_more_than_a_noised_sum_is_not_compared_with_noise():
    arguments = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0, "pruning_ratio": 0.5}
    with pytest.raises(ValueError, match='take denoise="laplacian"'):
        tfdp.DirectionalDPSGD(0.1, denoise="ks", **arguments)
    assert tfdp.DirectionalDPSGD(0.1, denoise="laplacian", **arguments).get_config()["denoise"] == "laplacian"


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="denoise must be"):
        tfdp.PrivateOptimizer("sgd", GaussianMechanism(1.0, 1.0), denoise="KS")
