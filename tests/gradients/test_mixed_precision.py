"""Mixed precision: the private step against brute force on the same model in float32.

Half precision keeps 8 (bfloat16) or 11 (float16) bits in the layers; norms, sums and weights are float32.
"""

import keras
import numpy as np
import pytest
from keras import layers

import tfdp
from tests.brute_force import brute_force, flat_weights

TOLERANCE = 2e-2
POLICIES = ("mixed_bfloat16", "mixed_float16")
SIZE = 6
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def perceptron(dtype):
    return keras.Sequential([layers.Input((4,)), layers.Dense(6, "tanh", dtype=dtype), layers.Dense(3, dtype=dtype)])


def convolutional(dtype):
    return keras.Sequential(
        [
            layers.Input((6, 6, 2)),
            layers.Conv2D(4, 3, padding="same", activation="tanh", dtype=dtype),
            layers.GroupNormalization(2, dtype=dtype),
            layers.GlobalAveragePooling2D(dtype=dtype),
            layers.Dense(3, dtype=dtype),
        ]
    )


def recurrent(dtype):
    return keras.Sequential([layers.Input((4, 3)), layers.LSTM(4, dtype=dtype), layers.Dense(3, dtype=dtype)])


def transformer(dtype):
    ids = layers.Input((5,), dtype="int32")
    x = layers.Embedding(7, 6, dtype=dtype)(ids)
    x = layers.Add(dtype=dtype)([x, layers.MultiHeadAttention(2, key_dim=3, dtype=dtype)(x, x)])
    x = layers.GlobalAveragePooling1D(dtype=dtype)(layers.LayerNormalization(dtype=dtype)(x))
    return keras.Model(ids, layers.Dense(3, dtype=dtype)(x))


class OwnWeight(layers.Layer):
    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="w")

    def call(self, x):
        return keras.ops.tanh(x * self.w)


def custom(dtype):
    return keras.Sequential(
        [
            layers.Input((4,)),
            layers.Dense(6, dtype=dtype),
            OwnWeight(dtype=dtype),
            layers.Dense(3, dtype=dtype),
        ]
    )


def shared(dtype):
    """One layer used twice, in two outputs."""
    x = layers.Input((4,))
    twice, last = layers.Dense(4, "tanh", dtype=dtype), layers.Dense(3, dtype=dtype)
    h = twice(x)
    return keras.Model(x, [last(h), last(twice(h))])


SHAPES = {perceptron: (4,), convolutional: (6, 6, 2), recurrent: (4, 3), transformer: (5,), custom: (4,)}


def data(build) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(8)
    shape = (SIZE, *SHAPES[build])
    if build is transformer:
        x = random.integers(0, 7, shape).astype("int32")
    else:
        x = random.standard_normal(shape).astype("float32")
    return x, random.integers(0, 3, SIZE).astype("int32")


def assert_a_step_is_that_of_the_twin(
    model: keras.Model, twin: keras.Model, x: np.ndarray, y: np.ndarray | list, clip_at: float
):
    """One private step of `model` against brute force on `twin`, which has the same weights in float32."""
    random = np.random.default_rng(9)
    start = [w + 0.2 * random.standard_normal(w.shape) for w in twin.get_weights()]
    model.set_weights(start)
    twin.set_weights(start)
    twin.compile(optimizer="sgd", loss=LOSS)
    examples = brute_force(twin, x, y)
    clip = float(np.quantile(examples.norms, 0.5) * clip_at)
    model.compile(optimizer=tfdp.NoisySGD(learning_rate=1.0, l2_norm_clip=clip, noise_multiplier=0.0), loss=LOSS)
    before = flat_weights(model)
    model.fit(x, y, batch_size=SIZE, epochs=1, verbose=0)
    expected = -examples.update(clip)
    assert np.linalg.norm(flat_weights(model) - before - expected) <= TOLERANCE * np.linalg.norm(expected)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("build", SHAPES, ids=lambda build: build.__name__)
def test_a_step_in_mixed_precision_is_close_to_the_one_in_float32(build, policy: str):
    keras.utils.set_random_seed(6)
    assert_a_step_is_that_of_the_twin(build(policy), build("float32"), *data(build), clip_at=1.0)


def test_shared_weights_and_several_outputs_are_close_too():
    x, y = data(perceptron)
    assert_a_step_is_that_of_the_twin(shared("mixed_bfloat16"), shared("float32"), x, [y, 2 - y], clip_at=1.0)


@pytest.mark.parametrize("clip_at", [1e-2, 1e3], ids=["all clipped", "none clipped"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_globally_set_policy_scales_no_loss(policy: str, clip_at: float):
    """Under a global mixed_float16 Keras wraps the optimizer to scale the loss; clipping must not see it."""
    twin = perceptron("float32")
    keras.config.set_dtype_policy(policy)
    try:
        assert_a_step_is_that_of_the_twin(perceptron(None), twin, *data(perceptron), clip_at=clip_at)
    finally:
        keras.config.set_dtype_policy("float32")
