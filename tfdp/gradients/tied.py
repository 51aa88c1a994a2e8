"""A table that is looked up and multiplied by, in one example: tied embeddings of language models."""

import tensorflow as tf

from tfdp.gradients.allowances import of_sum, squared_norm_of_grams
from tfdp.gradients.factored import Materialised, OuterSum, PerExampleGradient, Rows, cheaper_form
from tfdp.gradients.forms import GRAM, form_of_norms


def joined(looked_up: Rows, multiplied: OuterSum) -> PerExampleGradient:
    """The sum of both, in the cheaper form."""
    places = [looked_up.d.shape[1], multiplied.a.shape[2]]
    both = Tied(looked_up, multiplied)
    form = form_of_norms() or (GRAM if None in places else cheaper_form(sum(places), *looked_up.shape))
    return both if form == GRAM else Materialised(both.materialise(), both.shape)


class Tied(PerExampleGradient):
    """``g[i] = sum_t e_{ids[i, t]} (x) d[i, t] + sum_u a[i, u] (x) b[i, u]``, with unit vectors e: a sum of products over all places.

    Its norm comes from inner products of places, and needs no vector as long as the table is high but those that there are: ``e . e'`` is 1
    for equal tokens, and ``e . a`` is one number of ``a``.
    """

    def __init__(self, looked_up: Rows, multiplied: OuterSum):
        self.looked_up, self.multiplied = looked_up, multiplied
        self.shape = looked_up.shape

    def squared_norms(self, stretch=None):
        if stretch is not None:
            return Materialised(self.materialise(), self.shape).squared_norms(stretch)
        ids, a = self.looked_up.ids, self.multiplied.a[:, 0]
        same = tf.cast(tf.equal(ids[:, :, None], ids[:, None, :]), tf.float32)
        across = tf.gather(a, ids, axis=2, batch_dims=1)  # [B, U, T]
        upper = tf.concat([same, tf.linalg.matrix_transpose(across)], 2)
        lower = tf.concat([across, tf.matmul(a, a, transpose_b=True)], 2)
        columns = tf.concat([self.looked_up.d, self.multiplied.d[:, 0]], 1)
        p, q, count = self.shape[0], self.shape[1], tf.shape(columns)[1]
        grams = tf.concat([upper, lower], 1), tf.matmul(columns, columns, transpose_b=True)
        return squared_norm_of_grams(*grams, p, q, of_sum(count))

    def weighted_sum(self, coefficients, keep=None):
        return self.looked_up.weighted_sum(coefficients, keep) + self.multiplied.weighted_sum(coefficients, keep)

    def inner_products(self, v):
        return self.looked_up.inner_products(v) + self.multiplied.inner_products(v)

    def materialise(self):
        return self.looked_up.materialise() + self.multiplied.materialise()

    def fold(self, batch):
        self.looked_up, self.multiplied = self.looked_up.fold(batch), self.multiplied.fold(batch)
        return self

    def some(self, cut):
        return Tied(self.looked_up.some(cut), self.multiplied.some(cut))
