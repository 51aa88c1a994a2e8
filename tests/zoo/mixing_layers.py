"""Layers in which one example sees another, a few only in large lots, at large values, or after training."""

import keras
from keras import layers, ops


class SubtractsTheMean(layers.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


class DividesByTheLotSize(layers.Layer):
    def call(self, x):
        return x / ops.cast(ops.shape(x)[0], x.dtype)


class AddsTheStoppedMean(layers.Layer):
    """Derivatives with respect to the other examples are 0."""

    def call(self, x):
        return x + ops.stop_gradient(ops.mean(x, axis=0, keepdims=True))


class MarksTheLargest(layers.Layer):
    """argmax over the lot has no derivative at all."""

    def call(self, x):
        largest = ops.argmax(x[:, 0], axis=0)
        return x + ops.cast(ops.equal(ops.arange(ops.shape(x)[0]), largest), x.dtype)[:, None]


class SortsTheLot(layers.Layer):
    def call(self, x):
        return ops.sort(x, axis=0)


class AddsTheMeanAboveAHundred(layers.Layer):
    """A dead ReLU: data of ordinary size shows neither a value nor a derivative."""

    def call(self, x):
        return x + ops.relu(ops.mean(ops.abs(x)) - 100.0)


class ShiftsTheLot(layers.Layer):
    """Each example gets its neighbour's values."""

    def call(self, x):
        return ops.roll(x, 1, axis=0)


class EmbedsTheNeighboursToken(layers.Layer):
    """Mixes by token ids, along which nothing can be differentiated."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(5, 4)

    def call(self, ids):
        return self.embedding(ids) + self.embedding(ops.roll(ids, 1, axis=0))


class CountsRows(layers.Layer):
    """Depends on the place in the lot: one record more or less moves all the records after it."""

    def call(self, x):
        return x * (1.0 + ops.cast(ops.arange(ops.shape(x)[0]), x.dtype)[:, None])


class MixesLargerLots(layers.Layer):
    """Harmless up to four examples."""

    def call(self, x):
        return ops.where(ops.shape(x)[0] > 4, x - ops.mean(x, axis=0, keepdims=True), x)


class OpensAGate(layers.Layer):
    """The gate starts at 0: no value shows the mixing before the first step, the gate's gradient does."""

    def build(self, input_shape):
        self.gate = self.add_weight(shape=(), initializer="zeros", name="gate")

    def call(self, x):
        return x + self.gate * ops.mean(x, axis=0, keepdims=True)


class MasksWhatAnyoneHas(layers.Layer):
    """A feature counts for all if it is there for one."""

    def call(self, x):
        return (x + 1.0) * ops.cast(ops.any(ops.greater(x, 2.0), axis=0, keepdims=True), x.dtype)


class AttendsToTheLot(layers.Layer):
    """Attention over the examples in place of the positions."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(1, key_dim=2)

    def call(self, x):
        return self.attention(x[None], x[None])[0]


class AveragesWhatIsNotPadding(layers.Layer):
    """A penalty on the states of the records that are not -1, divided by how many these are."""

    def call(self, inputs):
        x, h = inputs
        present = ops.cast(ops.not_equal(x[:, :1], -1.0), h.dtype)
        self.add_loss(ops.sum(present * ops.square(h)) / (ops.sum(present) + 1e-6))
        return h


class PunishesTheSpread(layers.Layer):
    """`add_loss` of a variance over the lot."""

    def call(self, x):
        self.add_loss(ops.mean(ops.var(x, axis=0)))
        return x


class KeepsARunningMean(layers.Layer):
    """Assigns a weight that is not trained: what one lot held is seen by the next."""

    def build(self, input_shape):
        self.mean = self.add_weight(shape=(input_shape[-1],), initializer="zeros", trainable=False, name="mean")

    def call(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x, axis=0))
        return x


class NormalisesInside(layers.Layer):
    """A custom layer with BatchNormalization in it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.BatchNormalization(name="leaky_norm")

    def call(self, x, training=None):
        return self.norm(x, training=training)


class NormalisingModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4, "tanh")
        self.norm = layers.BatchNormalization(name="leaky_norm")
        self.head = layers.Dense(2)

    def call(self, x, training=None):
        return self.head(self.norm(self.hidden(x), training=training))


class MixingModel(keras.Model):
    """The mixing is in no layer but in the model's own call."""

    def __init__(self):
        super().__init__(name="mixing_model")
        self.hidden = layers.Dense(4, "tanh")
        self.head = layers.Dense(2)

    def call(self, x):
        hidden = self.hidden(x)
        return self.head(hidden - ops.mean(hidden, axis=0, keepdims=True))


class MixingLoss(keras.Model):
    """`compute_loss` overridden: errors are divided by their largest in the lot."""

    def __init__(self):
        super().__init__()
        self.head = layers.Dense(2)

    def call(self, x):
        return self.head(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        errors = ops.sum(ops.square(y - y_pred), axis=-1)
        return ops.mean(errors / (1.0 + ops.max(errors)))


def contrastive(y_true, y_pred):
    """Each prediction against all targets of the lot (InfoNCE)."""
    scores = ops.matmul(y_pred, ops.transpose(y_true))
    return -ops.diagonal(ops.log_softmax(scores, axis=-1))


def scaled_by_the_spread_of_the_targets(y_true, y_pred):
    """Only the other examples' labels enter."""
    return ops.mean(ops.square(y_true - y_pred), axis=-1) / (0.1 + ops.std(y_true))
