"""Noisy optimizers with releases on a grid."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import GaussianOnGridEvent


def on_grid(kind=tfdp.NoisySGD, **arguments):
    return kind(1.0, l2_norm_clip=tiny.CLIP, grid=True, **({"noise_multiplier": 1.0} | arguments))


def limits(model) -> set[str]:
    return {limit.id for limit in tfdp.privacy_statement(model, delta=1e-3).not_protected}


@pytest.mark.parametrize(
    ("physical", "how"),
    [(None, {}), (3, {"jit_compile": True}), (None, {"run_eagerly": True})],
    ids=["graph", "XLA", "eager"],
)
def test_the_weights_move_by_whole_multiples_of_the_grid_and_the_statement_says_so(physical, how):
    model = tiny.private(on_grid(max_physical_batch=physical), **how)
    before = np.concatenate([w.ravel() for w in model.get_weights()]).astype("float64")
    tiny.train(model)
    mechanism = model.optimizer.mechanism
    moved = np.concatenate([w.ravel() for w in model.get_weights()]) - before
    whole = moved * tiny.SIZE / mechanism.grid
    assert np.abs(whole - np.round(whole)).max() < 1e-2  # float32 weights
    assert [line.event for line in model.optimizer.ledger] == [GaussianOnGridEvent(1.0)]
    assert "both rounded to a public grid" in " ".join(str(tfdp.privacy_statement(model, delta=1e-3)).split())
    assert "floating_point_noise" not in limits(model)
    assert "float32_sums" in limits(model)


def test_one_step_without_the_grid_brings_the_limit_back():
    model = tiny.private(on_grid())
    tiny.train(model)
    tiny.private(tiny.noisy(), model)
    assert "floating_point_noise" not in limits(model)
    tiny.train(model)
    assert "floating_point_noise" in limits(model)


def test_a_loaded_model_goes_on_with_the_grid(tmp_path):
    model = tiny.private(on_grid(tfdp.NoisyAdam, noise_multiplier=None, target_epsilon=30.0, delta=1e-3, denoise="ks"))
    tiny.train(model, steps=2)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert loaded.optimizer.ledger == model.optimizer.ledger
    loaded.optimizer.mechanism.noise_multiplier = model.optimizer.mechanism.noise_multiplier
    assert loaded.optimizer.mechanism.grid == model.optimizer.mechanism.grid


@pytest.mark.parametrize("grid", ["auto", 1, 2.0**-20, None])
def test_a_grid_of_the_users_own_is_refused(grid):
    with pytest.raises(ValueError, match="grid must be True or False"):
        tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, grid=grid)


def test_other_optimizers_have_no_grid():
    with pytest.raises((TypeError, ValueError)):
        tfdp.DirectionalDPSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, grid=True)
