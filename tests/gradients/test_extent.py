"""Only a pass that is large is worth cutting in two, and only where its rows have nothing random in common."""

import keras
import pytest
import tensorflow as tf
from keras import layers

from tests.gradients.test_rare_mixing import SPEC, compiled
from tfdp.gradients import extent, prove


class DrawsAlongFeatures(layers.Layer):
    """As many numbers as there are features, which is not known when the layer is traced."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x):
        features = tf.size(x) // tf.shape(x)[0]
        return x + keras.random.normal([features], seed=self.seeds)


@pytest.mark.parametrize(
    "layer, most",
    [
        (lambda: layers.Dropout(0.5), 16),
        (lambda: layers.Dropout(0.5, noise_shape=(1, 4)), None),
        (DrawsAlongFeatures, None),
    ],
    ids=["for each row", "for all rows", "as can be seen in a run"],
)
def test_lots_are_run_whole_where_random_numbers_are_drawn_for_all_rows(layer, most, monkeypatch):
    for limit in ("LARGE", "MANY_WEIGHTS"):
        monkeypatch.setattr(extent, limit, 0)
    assert prove(compiled(layer()), SPEC, lot_size=16).most_at_once == most


def test_a_small_pass_is_run_whole():
    assert prove(compiled(), SPEC, lot_size=16).most_at_once is None


def test_what_a_pass_goes_through_counts_the_rows_of_examples_alone():
    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([7, 4])])
    def passed(x, weights):
        return tf.matmul(x, weights, transpose_b=True) + tf.reduce_sum(weights)

    graph = passed.get_concrete_function().graph
    assert extent.bytes_of_an_example(graph) == 4 * (4 + 7 + 7 + 7)  # input, product, sum, what is handed back
