"""Embeddings: repeated tokens, masks, flattened ids, tied and reversible tables."""

import keras
from keras import layers, ops

from tests.zoo.cases import Case, case, representative

MSE = {"loss": "mse"}
CROSSENTROPY = {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
LENGTHS = (5, 3, 1, 4, 2, 5)


@representative
@case
def embedding_with_repeated_tokens(draw):
    """Six tokens from three: the rows of one example add up before the norm is taken."""
    return Case(
        model=lambda: keras.Sequential(
            [layers.Input((6,), dtype="int32"), layers.Embedding(3, 4), layers.Flatten(), layers.Dense(2)]
        ),
        x=draw.labels(6, 6, classes=3),
        y=draw.reals(6, 2),
        compile=MSE,
    )


@case
def embedding_of_one_id_an_example(draw):
    """Ids of rank 1: the looked-up rows have rank 2."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((), dtype="int32"),
                layers.Embedding(5, 4),
                layers.Dense(3, "tanh"),
                layers.Dense(2),
            ]
        ),
        x=draw.labels(6, classes=5),
        y=draw.reals(6, 2),
        compile=MSE,
    )


@representative
@case
def embedding_averaged_over_unmasked_tokens(draw):
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((None,), dtype="int32"),
                layers.Embedding(7, 4, mask_zero=True),
                layers.GlobalAveragePooling1D(),
                layers.Dense(3),
            ]
        ),
        x=draw.padded_ids(LENGTHS, vocabulary=7),
        y=draw.labels(6, classes=3),
        compile=CROSSENTROPY,
    )


class FlattenedIds(keras.Model):
    """The ids of all examples as one list of B*T."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(5, 4)
        self.head = layers.Dense(2)

    def call(self, ids):
        rows = self.embedding(ops.reshape(ids, (-1,)))
        return self.head(ops.reshape(rows, (-1, ids.shape[1] * 4)))


@case
def embedding_of_flattened_ids(draw):
    return Case(model=FlattenedIds, x=draw.labels(6, 3, classes=5), y=draw.reals(6, 2), compile=MSE)


@case
def embedding_of_id_grids(draw):
    """Ids of rank 3 (sentences of words of letters)."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((2, 3), dtype="int32"),
                layers.Embedding(5, 4),
                layers.Conv2D(3, 2, padding="same", activation="tanh"),
                layers.Flatten(),
                layers.Dense(2),
            ]
        ),
        x=draw.labels(6, 2, 3, classes=5),
        y=draw.reals(6, 2),
        compile=MSE,
    )


class TiedLanguageModel(keras.Model):
    """The embedding matrix is the output matrix too, read outside its layer."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(7, 4)
        self.hidden = layers.Dense(4, "tanh")

    def call(self, ids):
        return ops.matmul(self.hidden(self.embedding(ids)), ops.transpose(self.embedding.embeddings))


@case
def embedding_tied_to_the_output(draw):
    return Case(
        model=TiedLanguageModel,
        x=draw.labels(6, 4, classes=7),
        y=draw.labels(6, 4, classes=7),
        compile=CROSSENTROPY,
    )


class PositionalEmbedding(layers.Layer):
    """Token rows plus position rows; the position ids are the same for all and have no example axis."""

    def __init__(self):
        super().__init__()
        self.tokens = layers.Embedding(6, 4)
        self.positions = layers.Embedding(5, 4)

    def call(self, ids):
        return self.tokens(ids) + self.positions(ops.arange(ids.shape[1]))


@case
def embedding_of_positions(draw):
    """An embedding that never sees the data: its output is broadcast over the examples."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((5,), dtype="int32"),
                PositionalEmbedding(),
                layers.Dense(3, "tanh"),
                layers.Dense(1),
            ]
        ),
        x=draw.labels(6, 5, classes=6),
        y=draw.reals(6, 5, 1),
        compile=MSE,
    )


@case
def embedding_with_lora(draw):
    def model():
        embedding = layers.Embedding(5, 4)
        model = keras.Sequential([layers.Input((3,), dtype="int32"), embedding, layers.Flatten(), layers.Dense(2)])
        embedding.enable_lora(rank=2)
        return model

    return Case(model=model, x=draw.labels(6, 3, classes=5), y=draw.reals(6, 2), compile=MSE)


@case
def embedding_shared_by_two_inputs(draw):
    def model():
        left, right = layers.Input((3,), dtype="int32"), layers.Input((4,), dtype="int32")
        embedding = layers.Embedding(5, 4)
        pooled = [layers.GlobalAveragePooling1D()(embedding(ids)) for ids in (left, right)]
        return keras.Model([left, right], layers.Dense(2)(layers.Concatenate()(pooled)))

    return Case(
        model=model,
        x=[draw.labels(6, 3, classes=5), draw.labels(6, 4, classes=5)],
        y=draw.reals(6, 2),
        compile=MSE,
    )


if hasattr(layers, "ReversibleEmbedding"):  # newer than the oldest supported Keras

    class ReversibleLanguageModel(keras.Model):
        def __init__(self, tie_weights):
            super().__init__()
            self.embedding = layers.ReversibleEmbedding(7, 4, tie_weights=tie_weights)
            self.hidden = layers.Dense(4, "tanh")

        def call(self, ids):
            return self.embedding(self.hidden(self.embedding(ids)), reverse=True)

    @case
    def reversible_embedding_tied(draw):
        return Case(
            model=lambda: ReversibleLanguageModel(tie_weights=True),
            x=draw.labels(6, 4, classes=7),
            y=draw.labels(6, 4, classes=7),
            compile=CROSSENTROPY,
        )

    @case
    def reversible_embedding_untied(draw):
        return Case(
            model=lambda: ReversibleLanguageModel(tie_weights=False),
            x=draw.labels(6, 4, classes=7),
            y=draw.labels(6, 4, classes=7),
            compile=CROSSENTROPY,
        )
