"""Layers with low-rank adapters, and tables that are looked up and multiplied by, are exact and on rules of their own."""

import keras
import numpy as np
import pytest

from tests.gradients.test_followed_weights import SIZE, STEPS, WIDTH, assert_exact
from tfdp.gradients.factored import OuterSum, Rows
from tfdp.gradients.tied import Tied

L = keras.layers


def adapted(*layers, shape=(STEPS, WIDTH)):
    inputs = h = keras.Input(shape, dtype="int32" if len(shape) == 1 else None)
    for layer in layers:
        h = layer(h)
    model = keras.Model(inputs, L.Dense(1)(L.Flatten()(h)))
    random = np.random.default_rng(1)
    for layer in layers:
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(2)
            for weight in layer.trainable_variables:  # the second factor is 0 at the start
                weight.assign(random.normal(size=weight.shape))
    return model


ADAPTED = {
    "Dense": (lambda: [L.Dense(3, "tanh")], "dense_lora"),
    "EinsumDense": (
        lambda: [
            L.EinsumDense("abc,cde->abde", (STEPS, 2, 3), bias_axes="de"),
            L.EinsumDense("abde,dec->abc", (STEPS, 4)),
        ],
        "einsum_dense_lora",
    ),
    "Conv1D": (lambda: [L.Conv1D(3, 2, padding="causal")], "convolution_lora"),
}


@pytest.mark.parametrize("name", ADAPTED)
def test_an_adapted_layer_is_two_small_products(name):
    make, rule = ADAPTED[name]
    layers = make()
    assert_exact(adapted(*layers), [*[rule] * len(layers), "dense"])


def test_an_adapted_table_is_a_look_up_and_a_small_product():
    assert_exact(adapted(L.Embedding(9, 4), shape=(STEPS,)), ["embedding_lora", "dense"], ids=True)


@pytest.mark.parametrize("tied", [True, False])
def test_a_table_that_is_multiplied_by_as_well_keeps_to_rules(tied):
    inputs = keras.Input((STEPS,), dtype="int32")
    table = L.ReversibleEmbedding(9, WIDTH, tie_weights=tied, logit_soft_cap=2.0)
    model = keras.Model(inputs, table(L.Dense(WIDTH, "tanh")(table(inputs)), reverse=True))
    assert_exact(model, ["reversible_embedding", "dense"], ids=True)


def test_look_ups_and_products_have_a_joint_norm_without_the_table():
    """Large tables: no example's gradient in one is ever built."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 3, (SIZE, 4))  # tokens repeat
    values = [random.normal(size=shape).astype("f4") for shape in ((SIZE, 4, 2), (SIZE, 1, 5, 7), (SIZE, 1, 5, 2))]
    both = Tied(Rows(ids, values[0], (7, 2)), OuterSum(values[1], values[2], (7, 2)))
    built = both.materialise().numpy()
    np.testing.assert_allclose(np.sqrt(both.squared_norms()), np.linalg.norm(built, axis=(1, 2)), rtol=1e-4)
    v, c = random.normal(size=(7, 2)).astype("f4"), np.arange(SIZE, dtype="f4")
    np.testing.assert_allclose(both.weighted_sum(c), np.tensordot(c, built, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(both.inner_products(v), np.sum(built * v, (1, 2)), atol=1e-2)
    twice = Tied(*(part.some(lambda t: np.repeat(t, 2, 0)) for part in (both.looked_up, both.multiplied)))
    np.testing.assert_allclose(twice.fold(SIZE).materialise(), 2 * built, rtol=1e-5)
