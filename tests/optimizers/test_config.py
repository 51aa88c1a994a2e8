"""Configs go there and back, through Keras's own functions and through JSON."""

import json

import keras
import pytest

import tfdp
from tfdp.mechanisms import GaussianMechanism


def schedule():
    return keras.optimizers.schedules.PiecewiseConstantDecay([10], [0.1, 0.01])


@keras.saving.register_keras_serializable("test_config")
def constant_rate():
    return 0.1


PRIVACY = {"l2_norm_clip": 1.5, "noise_multiplier": 0.75}
OPTIMIZERS = {
    "NoisySGD": lambda: tfdp.NoisySGD(0.1, momentum=0.9, nesterov=True, **PRIVACY),
    "NoisyAdam": lambda: tfdp.NoisyAdam(0.1, beta_1=0.8, weight_decay=0.01, use_ema=True, **PRIVACY),
    "NoisyAdagrad": lambda: tfdp.NoisyAdagrad(0.1, initial_accumulator_value=0.2, clipnorm=2.0, **PRIVACY),
    "a schedule": lambda: tfdp.NoisySGD(schedule(), **PRIVACY),
    "a registered function": lambda: tfdp.NoisyAdagrad(constant_rate, **PRIVACY),
    "private arguments": lambda: tfdp.NoisySGD(
        0.1, max_physical_batch=32, noise_seed=7, private_logs=True, name="mine", **PRIVACY
    ),
    "default rate": lambda: tfdp.NoisyAdam(**PRIVACY),
    "PrivateOptimizer": lambda: tfdp.PrivateOptimizer(
        keras.optimizers.Lion(schedule(), beta_2=0.9), GaussianMechanism(1.5, 0.75), max_physical_batch=8
    ),
}

WAYS = {
    "get_config": lambda optimizer: type(optimizer).from_config(optimizer.get_config()),
    "serialize": lambda optimizer: keras.optimizers.deserialize(keras.optimizers.serialize(optimizer)),
    "JSON": lambda optimizer: keras.optimizers.deserialize(
        json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    ),
}


def without_names(config):
    """The inner optimizer's name is made up anew by Keras."""
    config = dict(config)
    if "inner_optimizer" in config:
        inner = dict(config["inner_optimizer"])
        inner["config"] = {k: v for k, v in inner["config"].items() if k != "name"}
        config["inner_optimizer"] = inner
    return config


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_comes_back_as_it_was(name, way):
    optimizer = OPTIMIZERS[name]()
    back = WAYS[way](optimizer)
    assert type(back) is type(optimizer)
    assert without_names(back.get_config()) == without_names(optimizer.get_config())
    inner, its = optimizer.inner_optimizer, back.inner_optimizer
    assert type(its) is type(inner)
    assert {**its.get_config(), "name": None} == {**inner.get_config(), "name": None}
    for attribute in ("max_physical_batch", "noise_seed", "private_logs", "name"):
        assert getattr(back, attribute) == getattr(optimizer, attribute)
    assert back.mechanism.get_config() == {"l2_norm_clip": 1.5, "noise_multiplier": 0.75}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_config_is_data_and_holds_no_ledger(name):
    text = json.dumps(keras.optimizers.serialize(OPTIMIZERS[name]()))
    assert "ledger" not in text
    assert "steps_per" not in text


def test_a_model_is_compiled_from_the_config_of_its_compile():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=OPTIMIZERS["a schedule"](), loss="mse")
    twin = keras.models.clone_model(model)
    twin.compile_from_config(model.get_compile_config())
    assert type(twin.optimizer) is tfdp.NoisySGD
    assert twin.optimizer.get_config() == model.optimizer.get_config()
