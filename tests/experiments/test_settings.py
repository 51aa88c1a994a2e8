"""Settings of a run: what is usual, and what is refused."""

import importlib
import json

import pytest

import tfdp
from experiments.methods import METHODS, NOISES, noise, optimizer_of
from experiments.settings import RunSettings, check_effect
from experiments.tasks import NETWORKS, TASKS


def test_every_data_set_is_a_task():
    assert set(TASKS) == set(tfdp.data.NAMES)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_a_builder(name):
    module, _, function = NETWORKS[name].builder.rpartition(".")
    assert callable(getattr(importlib.import_module(f"models.{module}"), function))


@pytest.mark.parametrize("dataset", TASKS)
def test_the_usual_settings_of_every_data_set_are_allowed_with_every_method(dataset):
    for method in METHODS:
        if method.endswith("perturbation") and dataset in ("imdb", "movielens1m"):
            continue
        if method.endswith("published") and dataset in ("imdb", "movielens1m"):
            continue
        assert RunSettings.of(dataset, method).model in TASKS[dataset].networks


def test_what_is_given_is_taken_and_the_rest_is_the_tasks():
    settings = RunSettings.of("mnist", "noisy-sgd", epochs=3, clip=None)
    assert (settings.epochs, settings.clip, settings.epsilon) == (3, TASKS["mnist"].clip, TASKS["mnist"].epsilon)
    assert RunSettings.of("mnist", "noisy-sgd", noise_multiplier=1.0).epsilon is None


def test_settings_survive_json():
    settings = RunSettings.of("adult", "directional-adam", arguments={"direction": "ones"}, ema=0.9, held_out=True)
    assert RunSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_the_name_differs_where_any_setting_does():
    first = RunSettings.of("digits", "noisy-sgd")
    others = [
        first.replaced(**change) for change in ({"seed": 1}, {"momentum": 0.5}, {"clip": 2.0}, {"arguments": {"a": 1}})
    ]
    assert len({one.name for one in (first, *others)}) == 5


WRONG = [
    (
        {"method": "noisy-sgd", "epsilon": 3.0, "noise_multiplier": 0.0},
        "noise_multiplier 0 trains without privacy, so there is no epsilon to stop at",
    ),
    (
        {"method": "dp-lssgd", "arguments": {"denoise": "ks"}},
        "dp-lssgd is what it is by its own denoise: choose another method",
    ),
    ({"dataset": "minst"}, "There is no dataset 'minst'. There are digits, mnist"),
    ({"method": "sgd"}, "There is no method 'sgd'. There are noisy-sgd, noisy-adam"),
    ({"model": "vgg"}, "There is no model 'vgg'. There are digits_cnn"),
    (
        {"model": "lenet5"},
        "lenet5 takes 28 x 28 image, and a record of digits is a 8 x 8 image. For digits: digits_cnn",
    ),
    ({"epochs": 0}, "epochs must be a whole number of at least 1"),
    ({"batch_size": 2.5}, "batch_size must be a whole number"),
    ({"seed": -1}, "seed must be a whole number of at least 0"),
    ({"learning_rate": 0.0}, "learning_rate must be positive"),
    ({"clip": float("inf")}, "clip must be positive"),
    ({"epsilon": -1.0}, "epsilon must be positive"),
    ({"delta": 1.0}, "delta must be between 0 and 1"),
    ({"ema": 1.5}, "ema must be between 0 and 1"),
    ({"noise_multiplier": -0.1}, "noise_multiplier must be 0 .* or a positive number"),
    ({"momentum": 1.0, "method": "noisy-sgd"}, "momentum must be at least 0 and below 1"),
    ({"momentum": 0.9}, "momentum goes with SGD, not with directional-adam. Methods with SGD: noisy-sgd"),
    ({"method": "no-privacy-sgd", "epsilon": 1.0}, "trains without privacy: leave out epsilon"),
    ({"noise": "laplace"}, "goes with encoded-sgd and encoded-adam"),
    ({"method": "encoded-sgd", "noise": "white"}, "There is no noise 'white'. There are gaussian"),
    (
        {"method": "input-perturbation", "noise_multiplier": 1.0},
        "finds its noise from epsilon: leave out noise_multiplier",
    ),
    ({"method": "input-perturbation", "dataset": "imdb"}, "adds noise to features, and those of imdb are not numbers"),
    ({"method": "no-privacy-sgd", "arguments": {"denoise": "ks"}}, "go with private optimizers only"),
    ({"lot": 5}, "There is no setting 'lot'. There are arguments, batch_size"),
]


@pytest.mark.parametrize("name", ["learning_rate", "clip", "epsilon", "delta", "ema", "momentum", "noise_multiplier"])
def test_a_list_is_no_number(name):
    with pytest.raises(ValueError, match=rf"{name} must be .*not \[\]"):
        RunSettings.of("digits", "noisy-sgd", **{name: []})


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_a_wrong_setting_is_refused_with_what_is_allowed(given, message):
    with pytest.raises(ValueError, match=message):
        RunSettings.of(**given)


@pytest.mark.parametrize("name", NOISES)
def test_noises_have_the_unit_size(name):
    assert noise(name).size == 1.0


PRIVATE = [name for name, method in METHODS.items() if method.optimizer]


@pytest.mark.parametrize("name", PRIVATE)
def test_every_private_method_makes_its_optimizer_with_what_was_set(name):
    settings = RunSettings.of("digits", name, noise_multiplier=1.5, clip=0.7, learning_rate=0.3, ema=0.9)
    optimizer = optimizer_of(settings)
    config = optimizer.get_config()
    assert type(optimizer) is getattr(tfdp, METHODS[name].optimizer)
    assert (config["l2_norm_clip"], config["noise_multiplier"], config["use_ema"]) == (0.7, 1.5, True)
    assert float(optimizer.learning_rate) == pytest.approx(0.3)
    assert config["denoise"] == {"dp-lssgd": "laplacian", "encoded-sgd": "ks", "encoded-adam": "ks"}.get(name)


def test_a_target_is_given_to_the_optimizer_where_no_noise_is():
    config = optimizer_of(RunSettings.of("digits", "noisy-adam", epsilon=2.0, delta=1e-4)).get_config()
    assert (config["target_epsilon"], config["delta"]) == (2.0, 1e-4)


def test_methods_without_privacy_have_plain_optimizers():
    assert type(optimizer_of(RunSettings.of("digits", "no-privacy-sgd", momentum=0.9))).__module__.startswith("keras.")


@pytest.mark.parametrize(
    ("method", "given", "name"),
    [
        ("no-privacy-sgd", {"clip": 1.0}, "clip"),
        ("no-privacy-adam", {"delta": 1e-5}, "delta"),
        ("data-perturbation-published", {"clip": 1.0}, "clip"),
        ("input-perturbation", {"max_physical_batch": 8}, "max_physical_batch"),
    ],
)
def test_what_means_nothing_to_a_method_is_refused_where_one_run_is_told(method, given, name):
    with pytest.raises(ValueError, match=f"{name} has no effect with {method}"):
        check_effect(method, given)
    check_effect("noisy-sgd", given)
