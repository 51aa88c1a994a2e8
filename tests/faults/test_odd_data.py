"""Records, weights and settings that nobody means: an error that names the argument before anything moved, or a right ledger."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny

X, Y, ONES = tiny.X, tiny.Y, np.ones(tiny.SIZE, np.float32)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return tiny.private(tiny.noisy())


REFUSED = {
    "no records": ({"x": X[:0], "y": Y[:0]}, "x holds no records"),
    "x of texts": ({"x": np.full((8, 3), "a")}, "x .*texts"),
    "x of bytes": ({"x": np.full((8, 3), b"a")}, "x .*texts"),
    "x of complex numbers": ({"x": X.astype("complex64")}, "x .*complex"),
    "x of objects": ({"x": np.full((8, 3), None)}, "x is an array of Python objects"),
    "x of dates": ({"x": np.zeros((8, 3), "datetime64[s]")}, "x has the type datetime64"),
    "x of another width": ({"x": np.ones((8, 4), np.float32)}, "shape"),
    "x of rank 1": ({"x": X[:, 0]}, "shape"),
    "x that is a number": ({"x": np.float32(3)}, "x is a single number"),
    "no x": ({"x": None}, "x is None"),
    "no y": ({"y": None}, "y is missing"),
    "y of texts": ({"y": np.full(8, "a")}, "y holds texts"),
    "y of objects": ({"y": np.full((8, 1), None)}, "y is an array of Python objects"),
    "y of another length": ({"y": Y[:-1]}, "y has 7"),
    "sample_weight of texts": ({"sample_weight": np.full(8, "a")}, "sample_weight holds texts"),
    "sample_weight of another length": ({"sample_weight": ONES[:-1]}, "sample_weight has 7"),
    "one sample_weight": ({"sample_weight": 2.0}, "sample_weight is a float"),
    "half an epoch": ({"epochs": 0.5}, "epochs must be a whole number"),
    "epochs in words": ({"epochs": "2"}, "epochs must be a whole number"),
    "fewer epochs than none": ({"epochs": -1}, "epochs must be at least 0"),
    "an initial_epoch in words": ({"initial_epoch": "2"}, "initial_epoch must be a whole number"),
    "half a step": ({"steps_per_epoch": 1.5}, "steps_per_epoch must be a whole number"),
    "steps in words": ({"steps_per_epoch": "3"}, "steps_per_epoch must be a whole number"),
    "a split of all": ({"validation_split": 1.0}, "validation_split must be below 1"),
    "a split that is NaN": ({"validation_split": np.nan}, "validation_split must be a finite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_by_name_before_anything_moved(model, case):
    arguments, message = REFUSED[case]
    given = {"x": X, "y": Y, "batch_size": 8, "steps_per_epoch": 1, "verbose": 0} | arguments
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=message):
        model.fit(**given)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38, -1.0, 0.0])
def test_a_sample_weight_of_any_value_is_clipped_like_a_gradient(value):
    weights = ONES.copy()
    weights[0] = value
    model = tiny.private()
    start = model.get_weights()
    tiny.train(model, sample_weight=weights)
    assert model.optimizer.ledger.steps == 1
    if value in (-1.0, 0.0):
        tiny.assert_weights(model, tiny.after_sgd(start, sample_weight=weights))
        return
    change = np.concatenate([np.ravel(a - b) for a, b in zip(model.get_weights(), start, strict=True)])
    rest = np.linalg.norm(tiny.clipped_gradients(start, X[1:], Y[1:]).sum(0))
    assert np.linalg.norm(change) <= 0.1 * (rest + tiny.CLIP) / tiny.SIZE * (1 + 1e-5)


@pytest.mark.parametrize("clip", [1e-12, 1e12])
def test_a_clip_of_any_size_is_kept_to(clip):
    model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=clip, noise_multiplier=0.0))
    start = model.get_weights()
    tiny.train(model, steps=1)
    expected = tiny.after_sgd(start, clip=clip)
    tiny.assert_weights(model, expected)
    noisy = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=clip, noise_multiplier=1.0))
    tiny.train(noisy, steps=2)
    assert all(np.isfinite(weights).all() for weights in noisy.get_weights())
    assert noisy.optimizer.ledger.steps == 2


def test_one_record_is_a_data_set():
    model = tiny.private(tiny.noisy())
    tiny.train(model, X[:1], Y[:1], steps=3)
    (line,) = model.optimizer.ledger
    assert (line.steps, line.sampling.size) == (3, 1)


def test_lots_without_records_are_released_as_any_other():
    """At a rate of 1 / 1000 nearly all lots are empty."""
    model = tiny.private(tiny.noisy())
    start = model.get_weights()
    model.fit(X, Y, batch_size=1, public_size=1000, steps_per_epoch=5, verbose=0)
    assert model.optimizer.ledger.steps == 5
    assert all(np.isfinite(weights).all() for weights in model.get_weights())
    assert any((old != new).all() for old, new in zip(start, model.get_weights(), strict=True))  # the noise moved them


def test_texts_go_into_a_model_that_takes_texts():
    words = np.array(["a", "b"] * 4)
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")
    inputs = keras.Input((), dtype="string")
    model = tiny.private(tiny.noisy(), keras.Model(inputs, keras.layers.Dense(1)(lookup(inputs))))
    tiny.train(model, words, Y)
    assert model.optimizer.ledger.steps == 1


def test_an_optional_input_that_is_left_out_is_refused_by_name():
    main, extra = keras.Input((3,), name="main"), keras.Input((3,), name="extra", optional=True)
    layer = keras.layers.Lambda(lambda given: given[0] if given[1] is None else given[0] + given[1])
    model = keras.Model({"main": main, "extra": extra}, keras.layers.Dense(1)(layer([main, extra])))
    model.compile(optimizer=tiny.noisy(), loss="mse")
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="x for the optional input 'extra' is None"):
        model.fit({"main": X, "extra": None}, Y, batch_size=8, verbose=0)
