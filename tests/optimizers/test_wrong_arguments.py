"""Wrong arguments raise a ValueError that says what to write, before anything has changed."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.mechanisms import GaussianMechanism
from tfdp.optimizers import training

PRIVACY = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0}

WRONG = {
    "negative clip": ({"l2_norm_clip": -1.0, "noise_multiplier": 1.0}, "l2_norm_clip.*positive"),
    "clip of zero": ({"l2_norm_clip": 0.0, "noise_multiplier": 1.0}, "l2_norm_clip.*positive"),
    "infinite clip": ({"l2_norm_clip": np.inf, "noise_multiplier": 1.0}, "l2_norm_clip.*finite"),
    "clip that is no number": ({"l2_norm_clip": "one", "noise_multiplier": 1.0}, "l2_norm_clip.*number"),
    "clip of None": ({"l2_norm_clip": None, "noise_multiplier": 1.0}, "l2_norm_clip.*number"),
    "clip of True": ({"l2_norm_clip": True, "noise_multiplier": 1.0}, "l2_norm_clip.*number"),
    "negative noise": ({"l2_norm_clip": 1.0, "noise_multiplier": -0.1}, "noise_multiplier.*at least 0"),
    "noise that is NaN": ({"l2_norm_clip": 1.0, "noise_multiplier": np.nan}, "noise_multiplier.*finite"),
    "neither noise nor target": ({"l2_norm_clip": 1.0}, "exactly one of noise_multiplier= .*target_epsilon="),
    "both noise and target": (
        {**PRIVACY, "target_epsilon": 3.0, "delta": 1e-5},
        "exactly one of noise_multiplier=.*both were given",
    ),
    "misspelt noise": (
        {"l2_norm_clip": 1.0, "noise_multiplyer": 1.0},
        "no argument called noise_multiplyer=. Did you mean noise_multiplier=",
    ),
    "misspelt clip": ({"l2_norm": 1.0, "noise_multiplier": 1.0}, "called l2_norm=. Did you mean l2_norm_clip="),
    "misspelt argument of the inner one": ({**PRIVACY, "weight_decai": 0.1}, "Did you mean weight_decay="),
    "an argument like no other": ({**PRIVACY, "zzz": 1}, "takes no argument called zzz=.$"),
    "delta of 0": ({**PRIVACY, "delta": 0.0}, "delta.*between 0 and 1"),
    "delta of 1": ({"l2_norm_clip": 1.0, "target_epsilon": 3.0, "delta": 1.0}, "delta.*between 0 and 1"),
    "delta above 1": ({**PRIVACY, "delta": 1.5}, "delta.*between 0 and 1"),
    "target without delta": ({"l2_norm_clip": 1.0, "target_epsilon": 3.0}, "needs delta="),
    "target of 0": ({"l2_norm_clip": 1.0, "target_epsilon": 0.0, "delta": 1e-5}, "target_epsilon must be positive"),
    "target of True": ({"l2_norm_clip": 1.0, "target_epsilon": True, "delta": 1e-5}, "target_epsilon must be a finite"),
    "delta that is no number": ({**PRIVACY, "delta": "1e-5"}, "delta must be a finite number"),
    "delta of float32 above 1": ({**PRIVACY, "delta": np.float32(1.5)}, "delta.*between 0 and 1"),
    "target with known noise": (
        {"l2_norm_clip": 1.0, "target_epsilon": 3.0, "delta": 1e-5, "noise_seed": 1},
        "noise_seed=1 can't go with target_epsilon=3.0: whoever knows the seed",
    ),
    "accountant without target": ({**PRIVACY, "accountant": "rdp"}, "accountant= goes with target_epsilon="),
    "unknown accountant": (
        {"l2_norm_clip": 1.0, "target_epsilon": 3.0, "delta": 1e-5, "accountant": "zcdp"},
        "accountant must be one of",
    ),
    "no physical batch": ({**PRIVACY, "max_physical_batch": 0}, "max_physical_batch.*positive whole"),
    "half a physical batch": ({**PRIVACY, "max_physical_batch": 2.5}, "max_physical_batch.*positive whole"),
    "accumulation": ({**PRIVACY, "gradient_accumulation_steps": 2}, "max_physical_batch="),
    "loss scale": ({**PRIVACY, "loss_scale_factor": 128.0}, "loss_scale_factor"),
}


@pytest.mark.parametrize("optimizer", [tfdp.NoisySGD, tfdp.NoisyAdam, tfdp.NoisyAdagrad])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_of_an_optimizer(optimizer, case):
    arguments, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        optimizer(**arguments)


@pytest.mark.parametrize(
    ("optimizer", "misspelt", "meant"),
    [
        (tfdp.NoisySGD, "gird", "grid"),
        (tfdp.DirectionalDPSGD, "moment", "moments"),
        (tfdp.DirectionalDPSGD, "as_publishd", "as_published"),
        (tfdp.AdaClipDPAdam, "mean_decai", "mean_decay"),
        (tfdp.EncodedDPSGD, "codebook", "codebook_size"),
    ],
)
def test_a_misspelt_argument_of_the_mechanism_is_named(optimizer, misspelt, meant):
    with pytest.raises(ValueError, match=f"{optimizer.__name__} takes no .* {misspelt}=. Did you mean {meant}="):
        optimizer(**PRIVACY, **{misspelt: 1})


@pytest.mark.parametrize("optimizer", [tfdp.NoisyAdam, tfdp.NoisyAdagrad])
@pytest.mark.parametrize("epsilon", [0.01, 3.0])
def test_an_epsilon_of_privacy_is_not_taken_for_one_of_adam(optimizer, epsilon):
    with pytest.raises(ValueError, match="Did you mean target_epsilon"):
        optimizer(epsilon=epsilon, **PRIVACY)
    optimizer(epsilon=1e-3, **PRIVACY)


def lr(optimizer_class=keras.optimizers.SGD, **arguments):
    return optimizer_class(0.1, **arguments)


WRONG_INNER = {
    "no optimizer": (lambda: 0.1, "Keras optimizer"),
    "private already": (lambda: tfdp.NoisySGD(**PRIVACY), "private already"),
    "LossScaleOptimizer": (lambda: keras.optimizers.LossScaleOptimizer(lr()), "LossScaleOptimizer"),
    "accumulation": (lambda: lr(gradient_accumulation_steps=4), "max_physical_batch="),
    "loss scale": (lambda: lr(loss_scale_factor=2.0), "loss_scale_factor"),
}


@pytest.mark.parametrize("case", WRONG_INNER)
def test_wrong_inner_optimizers(case):
    make, message = WRONG_INNER[case]
    with pytest.raises(ValueError, match=message):
        tfdp.PrivateOptimizer(make(), GaussianMechanism(1.0, 1.0))


@pytest.mark.parametrize("delta", [np.float32(1e-5), np.float64(1e-5)])
@pytest.mark.parametrize("privacy", [PRIVACY, {"l2_norm_clip": 1.0, "target_epsilon": 3.0}])
def test_a_delta_of_numpy_is_a_delta(delta, privacy):
    optimizer = tfdp.NoisyAdam(**privacy, delta=delta)
    assert type(optimizer.delta) is float
    assert optimizer.delta == float(delta)
    assert tfdp.NoisyAdam.from_config(optimizer.get_config()).delta == optimizer.delta
    assert tfdp.privacy_statement(tiny.private(tiny.noisy()), delta=delta).delta == float(delta)


def test_with_a_target_the_mechanism_needs_no_noise():
    optimizer = tfdp.PrivateOptimizer("adam", GaussianMechanism(1.0), target_epsilon=3.0, delta=1e-5)
    assert (optimizer.mechanism.l2_norm_clip, optimizer.mechanism.noise_multiplier) == (1.0, None)


def test_a_target_with_known_lots_is_refused_before_the_proof(monkeypatch):
    model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=1.0, target_epsilon=3.0, delta=1e-5))
    monkeypatch.setattr(training, "prove", None)
    lots = tfdp.data.PoissonBatches(tiny.X, tiny.Y, batch_size=4, sampling_seed=1)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=r"sampling_seed.*target_epsilon=3\)"):
        model.fit(lots, verbose=0)


def test_a_mechanism_is_asked_for():
    with pytest.raises(ValueError, match=r"mechanism.*GaussianMechanism"):
        tfdp.PrivateOptimizer(lr(), {"l2_norm_clip": 1.0})


WRONG_FIT = {
    "batch_size of 0": ({"batch_size": 0}, "batch_size.*at least 1"),
    "half a record": ({"batch_size": 2.5}, "batch_size.*whole number"),
    "public_size of 0": ({"batch_size": 1, "public_size": 0}, "public_size.*at least 1"),
    "split with public_size": ({"batch_size": 2, "public_size": 8, "validation_split": 0.5}, "validation_data"),
    "two kinds of weights": (
        {"batch_size": 2, "class_weight": {0: 1.0}, "sample_weight": np.ones(tiny.SIZE)},
        "class_weight or sample_weight",
    ),
    "arrays of different length": ({"batch_size": 2, "y": tiny.Y[:-1]}, "one row for each record"),
}


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return tiny.private(tiny.noisy())


@pytest.mark.parametrize(("noise", "target"), [(None, {}), (1.0, {"target_epsilon": 3.0, "delta": 1e-5})])
def test_a_mechanism_has_noise_or_the_optimizer_a_target(noise, target):
    with pytest.raises(ValueError, match="exactly one of noise_multiplier="):
        tfdp.PrivateOptimizer(lr(), GaussianMechanism(1.0, noise), **target)


@pytest.mark.parametrize("case", WRONG_FIT)
def test_wrong_arguments_of_fit(model, case):
    arguments, message = WRONG_FIT[case]
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=message):
        model.fit(tiny.X, **{"y": tiny.Y, "verbose": 0} | arguments)


def test_the_inner_optimizer_may_be_given_by_name():
    optimizer = tfdp.PrivateOptimizer("adam", tfdp.mechanisms.GaussianMechanism(1.0, 1.0))
    assert isinstance(optimizer.inner_optimizer, keras.optimizers.Adam)
