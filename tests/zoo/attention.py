"""Attention: self, causal, masked, cross, grouped queries, the older layers, a transformer block."""

import keras
import numpy as np
from keras import layers

from tests.zoo.cases import Case, case, representative

MSE = {"loss": "mse"}
LENGTHS = (4, 2, 3, 1, 4)


@case
def self_attention(draw):
    def model():
        x = layers.Input((4, 6))
        attended = layers.MultiHeadAttention(num_heads=2, key_dim=3)(x, x)
        return keras.Model(x, layers.Dense(2)(attended))

    return Case(model=model, x=draw.reals(5, 4, 6), y=draw.reals(5, 4, 2), compile=MSE)


@representative
@case
def causal_attention(draw):
    def model():
        x = layers.Input((4, 6))
        attended = layers.MultiHeadAttention(2, key_dim=3, value_dim=4, output_shape=5, use_bias=False)(
            x, x, use_causal_mask=True
        )
        return keras.Model(x, layers.Dense(2)(attended))

    return Case(model=model, x=draw.reals(5, 4, 6), y=draw.reals(5, 4, 2), compile=MSE)


@case
def attention_with_a_mask_given_as_input(draw):
    """Each example has a mask of its own."""

    def model():
        x, mask = layers.Input((4, 6)), layers.Input((4, 4), dtype="bool")
        attended = layers.MultiHeadAttention(2, key_dim=3)(x, x, attention_mask=mask)
        return keras.Model([x, mask], layers.Dense(2)(attended))

    mask = draw.labels(5, 4, 4, classes=2).astype(bool) | np.eye(4, dtype=bool)
    return Case(model=model, x=[draw.reals(5, 4, 6), mask], y=draw.reals(5, 4, 2), compile=MSE)


@case
def attention_with_the_mask_of_an_embedding(draw):
    def model():
        ids = layers.Input((None,), dtype="int32")
        x = layers.Embedding(6, 4, mask_zero=True)(ids)
        attended = layers.MultiHeadAttention(2, key_dim=3)(x, x)
        return keras.Model(ids, layers.Dense(2)(layers.GlobalAveragePooling1D()(attended)))

    return Case(model=model, x=draw.padded_ids(LENGTHS, vocabulary=6), y=draw.reals(5, 2), compile=MSE)


@case
def cross_attention(draw):
    """Queries, keys and values of three different shapes."""

    def model():
        query, key, value = layers.Input((3, 5)), layers.Input((4, 6)), layers.Input((4, 2))
        attended = layers.MultiHeadAttention(2, key_dim=3)(query, value, key)
        return keras.Model([query, key, value], layers.Dense(2)(attended))

    return Case(
        model=model,
        x=[draw.reals(5, 3, 5), draw.reals(5, 4, 6), draw.reals(5, 4, 2)],
        y=draw.reals(5, 3, 2),
        compile=MSE,
    )


@case
def attention_over_image_rows(draw):
    """Two attention axes, so that the projections have inputs of rank 4."""

    def model():
        x = layers.Input((2, 3, 4))
        return keras.Model(x, layers.MultiHeadAttention(2, key_dim=3, attention_axes=(1, 2))(x, x))

    return Case(model=model, x=draw.reals(5, 2, 3, 4), y=draw.reals(5, 2, 3, 4), compile=MSE)


@representative
@case
def grouped_query_attention(draw):
    def model():
        x = layers.Input((4, 6))
        attended = layers.GroupQueryAttention(head_dim=3, num_query_heads=4, num_key_value_heads=2)(x, x)
        return keras.Model(x, layers.Dense(2)(attended))

    return Case(model=model, x=draw.reals(5, 4, 6), y=draw.reals(5, 4, 2), compile=MSE)


@case
def dot_product_and_additive_attention(draw):
    """The older layers, with one trained scale each."""

    def model():
        query, value = layers.Input((3, 4)), layers.Input((5, 4))
        first = layers.Attention(use_scale=True, score_mode="concat")([query, value])
        second = layers.AdditiveAttention(use_scale=True)([query, value])
        return keras.Model([query, value], layers.Dense(2)(layers.Concatenate()([first, second])))

    return Case(model=model, x=[draw.reals(5, 3, 4), draw.reals(5, 5, 4)], y=draw.reals(5, 3, 2), compile=MSE)


@case
def transformer_block(draw):
    """Tokens, attention, residuals, normalisation, a feed-forward part, a classifier."""

    def model():
        ids = layers.Input((5,), dtype="int32")
        x = layers.Embedding(8, 6)(ids)
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, key_dim=3)(x, x, use_causal_mask=True))
        x = layers.LayerNormalization()(x + layers.Dense(6)(layers.Dense(10, "gelu")(x)))
        return keras.Model(ids, layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(x)))

    return Case(
        model=model,
        x=draw.labels(6, 5, classes=8),
        y=draw.labels(6, classes=3),
        compile={"loss": "sparse_categorical_crossentropy"},
    )
