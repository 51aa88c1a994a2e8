"""The zoo by brute force again, in the other ways a step can be run: by XLA, in float64, several at once.

A few cases, one for each family of rules: what the ways change is how graphs are built, and XLA is slow to compile them.
"""

from dataclasses import replace

import keras
import numpy as np
import pytest

import tfdp
from tests import model_zoo
from tests.brute_force import batch_gradient, brute_force, expected_weights_after_one_step, flat_weights
from tests.gradients.one_step import (
    SOME,
    WHOLE_TOLERANCE,
    Prepared,
    assert_one_step_is_the_mean_of_the_clipped_gradients,
    prepared,
    relative,
)

STEPS = 3


@pytest.mark.parametrize(
    "name",
    [
        "causal_attention",
        "conv2d_same_with_strides_on_odd_sizes",
        "embedding_with_repeated_tokens",
        "lstm",
        "several_outputs_with_their_own_sample_weights",
        "siamese_dense",
    ],
)
def test_xla_takes_the_same_step(name: str):
    zoo = prepared(name)
    compiled = replace(zoo, case=replace(zoo.case, compile={**zoo.case.compile, "jit_compile": True}))
    assert_one_step_is_the_mean_of_the_clipped_gradients(compiled, SOME)


@pytest.fixture
def float64():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


def test_a_model_in_float64_takes_the_same_step(float64):
    case = model_zoo.get("embedding_with_repeated_tokens")
    model = case.build()
    assert {w.dtype for w in model.trainable_weights} == {"float64"}
    model.compile(optimizer="sgd", **case.compile)
    data = (model, case.x, case.y, case.sample_weight)
    zoo = Prepared(case, model, model.get_weights(), brute_force(*data), batch_gradient(*data))
    assert_one_step_is_the_mean_of_the_clipped_gradients(zoo, SOME)


@pytest.mark.parametrize("how", [{}, {"jit_compile": True}], ids=["a graph", "XLA"])
def test_several_steps_in_one_execution_are_those_of_brute_force(how: dict):
    zoo = prepared("siamese_dense")
    case, model, clip = zoo.case, zoo.model, zoo.clip(SOME)
    model.set_weights(zoo.start)
    start = flat_weights(model)
    rate = 0.3 * np.linalg.norm(start) / np.linalg.norm(zoo.examples.update(clip))
    for _ in range(STEPS):
        examples = brute_force(model, case.x, case.y, case.sample_weight)
        for w, value in zip(
            model.trainable_weights, expected_weights_after_one_step(model, examples, clip, rate), strict=True
        ):
            w.assign(value)
    expected = flat_weights(model)

    model.set_weights(zoo.start)
    optimizer = tfdp.NoisySGD(learning_rate=rate, l2_norm_clip=clip, noise_multiplier=0.0)
    model.compile(optimizer=optimizer, steps_per_execution=STEPS, **how, **case.compile)
    model.fit(case.x, case.y, sample_weight=case.sample_weight, batch_size=case.size, steps_per_epoch=STEPS, verbose=0)
    assert int(optimizer.iterations) == STEPS
    assert relative(flat_weights(model) - expected, expected - start) <= WHOLE_TOLERANCE
