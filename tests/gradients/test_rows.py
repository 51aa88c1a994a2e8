"""Rows of a layer's calls that are not the lot's examples in their order: gradients stay each example's own.

Made-up integers were 0 or 1, and a lot was small, so that a sort looked like the identity and a plain rule like the right one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfdp
from tests.brute_force import brute_force
from tests.gradients.neighbours import ROUNDING, bounded_sum_of, clips_moved, proved

SIZE = 16
RANDOM = np.random.default_rng(4)
FEATURES = (3 * RANDOM.normal(size=(SIZE, 5))).astype("float32")
SEQUENCES = (3 * RANDOM.normal(size=(SIZE, 4, 5))).astype("float32")
LENGTHS = RANDOM.permutation(SIZE).astype("int32")
SCORES = RANDOM.normal(size=SIZE).astype("float32")
LABELS = RANDOM.integers(0, 2, SIZE).astype("int32")
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Sorted(layers.Layer):
    """As recurrent code packs sequences: longest first (or last), a layer, and back again."""

    def __init__(self, inner: layers.Layer, direction: str, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.direction = inner, direction

    def call(self, inputs):
        x, key = inputs
        order = tf.argsort(key, direction=self.direction, stable=True)
        return tf.gather(self.inner(tf.gather(x, order)), tf.math.invert_permutation(order))


class Dispatched(layers.Layer):
    """Two experts; each sees the rows that are sent to it, and the results are stitched together."""

    def __init__(self):
        super().__init__()
        self.experts = [layers.Dense(6, "tanh"), layers.Dense(6)]

    def call(self, x):
        chosen = tf.cast(x[:, 0] > 0, tf.int32)
        places = tf.dynamic_partition(tf.range(tf.shape(x)[0]), chosen, 2)
        seen = [expert(rows) for expert, rows in zip(self.experts, tf.dynamic_partition(x, chosen, 2), strict=True)]
        return tf.ensure_shape(tf.dynamic_stitch(places, seen), [None, 6])


class Reversed(layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(6, "tanh")

    def call(self, x):
        return tf.reverse(self.inner(tf.reverse(x, [0])), [0])


class TimeMajor(layers.Layer):
    """A recurrence over [T, B, C]: every step, and the projection of all steps at once, sees time first."""

    def __init__(self, loops: bool):
        super().__init__()
        self.loops, self.project, self.recur = loops, layers.Dense(6), layers.Dense(6, use_bias=False)

    def build(self, shape):
        self.project.build((None, shape[-1]))
        self.recur.build((None, 6))

    def call(self, x):
        steps = self.project(tf.transpose(x, [1, 0, 2]))
        state = tf.zeros_like(steps[0])
        if self.loops:
            return tf.foldl(lambda s, step: tf.tanh(step + self.recur(s)), steps, state)
        for step in tf.unstack(steps, x.shape[1]):
            state = tf.tanh(step + self.recur(state))
        return state


class SortedBeside(layers.Layer):
    """The kernel of a layer is used beside it, by sorted rows, and that in large lots alone."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(5, "tanh")

    def call(self, x):
        rows = tf.range(tf.shape(x)[0])
        order = tf.where(tf.size(rows) > 12, tf.argsort(x[:, 0], stable=True), rows)
        seen = tf.matmul(tf.gather(self.inner(x), order), tf.convert_to_tensor(self.inner.kernel), transpose_b=True)
        return tf.gather(seen, tf.math.invert_permutation(order))


@dataclass(frozen=True)
class Rows:
    model: Callable[[], keras.Model]
    x: object


def with_a_key(key: np.ndarray, direction: str = "DESCENDING", key_first: bool = False) -> Rows:
    """What is made up for the key depends on where it stands among the inputs."""

    def build() -> keras.Model:
        inputs = [keras.Input((5,)), keras.Input((), dtype=str(key.dtype))]
        found = layers.Dense(2)(Sorted(layers.Dense(6, "tanh"), direction)(inputs))
        return keras.Model(inputs[::-1] if key_first else inputs, found)

    return Rows(build, [key, FEATURES] if key_first else [FEATURES, key])


def around(make: Callable[[], layers.Layer], x: np.ndarray) -> Rows:
    return Rows(lambda: keras.Sequential([layers.Input(x.shape[1:]), make(), layers.Dense(2)]), x)


CASES = {
    "longest first": with_a_key(LENGTHS),
    "longest last": with_a_key(LENGTHS, "ASCENDING"),
    "longest first, lengths given first": with_a_key(LENGTHS, key_first=True),
    "longest last, lengths given first": with_a_key(LENGTHS, "ASCENDING", key_first=True),
    "sorted by a feature": with_a_key(SCORES),
    "sent to two experts": around(Dispatched, FEATURES),
    "sorted beside its layer": around(SortedBeside, FEATURES),
    "reversed and back": around(Reversed, FEATURES),
    "time first": around(lambda: TimeMajor(loops=False), SEQUENCES),
    "time first, in a loop": around(lambda: TimeMajor(loops=True), SEQUENCES),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_each_examples_own_and_one_record_moves_one_clip(name: str):
    case = CASES[name]
    keras.utils.set_random_seed(0)
    model = case.model()
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss=LOSS)
    parts = (case.x, LABELS)
    plan = proved(model, *parts)
    own = brute_force(model, *parts)
    clip = float(np.median(own.norms))
    summed = bounded_sum_of(model, plan, *parts, clip=clip)
    expected = (own.gradients * (1 / np.maximum(own.norms, clip))[:, None]).sum(0)
    assert np.linalg.norm(summed(*parts) - expected) <= 1e-4 * np.linalg.norm(expected)
    assert clips_moved(summed, parts, range(0, SIZE, 3)) <= 1 + ROUNDING
