"""Lots of every size, empty ones too, are one step each, and no size is a new trace."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.data.lots import PoissonLots


class CountsCalls(keras.layers.Layer):
    """Python runs `call` once a trace."""

    traces = 0

    def call(self, x):
        type(self).traces += 1
        return x


def test_lots_of_many_sizes_share_a_few_traces():
    size = 200
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((size, 3)).astype("float32"), rng.standard_normal((size, 1)).astype("float32")
    layer = CountsCalls()
    model = tiny.private(tiny.noisy(), keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(1)]))
    model.fit(x, y, batch_size=20, epochs=1, verbose=0)
    after_an_epoch = layer.traces
    model.fit(x, y, batch_size=20, epochs=5, verbose=0)
    assert layer.traces == after_an_epoch
    assert model.optimizer.ledger.steps == 60


def test_an_empty_lot_is_noised_and_counted():
    """The rate is so small that no record is ever drawn: 1e-9 for each of 8."""
    model = tiny.private(tiny.noisy())
    start = model.get_weights()
    history = model.fit(tiny.X, tiny.Y, batch_size=1, public_size=10**9, steps_per_epoch=3, verbose=0)
    assert model.optimizer.ledger.steps == int(model.optimizer.iterations) == 3
    for old, new in zip(start, model.get_weights(), strict=True):
        assert np.all(np.isfinite(new)) and np.all(new != old)
    assert np.all(np.isfinite(history.history["loss"]))


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_empty_lots_leave_no_trace_in_noiseless_weights(run_eagerly):
    model = tiny.private(run_eagerly=run_eagerly)
    start = model.get_weights()
    model.fit(tiny.X, tiny.Y, batch_size=1, public_size=10**9, steps_per_epoch=2, verbose=0)
    for old, new in zip(start, model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


def test_one_record_is_a_data_set():
    model = tiny.private()
    start = model.get_weights()
    tiny.train(model, tiny.X[:1], tiny.Y[:1])
    tiny.assert_weights(model, tiny.after_sgd(start, tiny.X[:1], tiny.Y[:1]))


def test_the_sum_is_divided_by_the_expected_lot_size_not_the_realised_one():
    """Records are one-hot, so the move of each kernel row tells the share of its own record. That all eight lots are as large as
    expected, so that nothing shows, happens four times in a million."""
    size, kernels = 16, []
    model = keras.Sequential([keras.Input((size,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    tiny.private(tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0), model)
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: kernels.append(model.get_weights()[0]))
    x, y = np.eye(size, dtype="float32"), np.full((size, 1), 9.0)
    model.fit(x, y, batch_size=5, steps_per_epoch=8, verbose=0, callbacks=[keep])
    shares = np.diff([np.zeros_like(kernels[0]), *kernels], axis=0)
    drawn = shares != 0
    assert len(kernels) == 8 and drawn.any()
    np.testing.assert_allclose(shares[drawn], 1 / 5, rtol=1e-5)


PARTS = [1, 3, tiny.SIZE, 100]


@pytest.fixture(scope="module")
def whole() -> tuple[list[np.ndarray], list[np.ndarray], dict]:
    model = tiny.private(metrics=["mae"])
    start = model.get_weights()
    return start, tiny.after_sgd(start, steps=2), tiny.train(model, steps=2).history


@pytest.mark.parametrize("most", PARTS)
def test_physical_batches_change_neither_weights_nor_metrics(whole, most):
    _, expected, history = whole
    model = tiny.private(tiny.noiseless(max_physical_batch=most), metrics=["mae"])
    parts = tiny.train(model, steps=2).history
    tiny.assert_weights(model, expected)
    for name in ("loss", "mae"):
        np.testing.assert_allclose(parts[name], history[name], rtol=1e-5)
    assert model.optimizer.ledger.steps == 2


@pytest.mark.parametrize("arguments", [{"jit_compile": True}, {"run_eagerly": True}])
def test_physical_batches_run_in_every_way_of_execution(whole, arguments):
    _, expected, _ = whole
    model = tiny.private(tiny.noiseless(max_physical_batch=3), **arguments)
    tiny.train(model, steps=2)
    tiny.assert_weights(model, expected)


class Lengths(keras.metrics.Metric):
    """The numbers of examples of the calls since its last reset, in their order."""

    def __init__(self):
        super().__init__(name="lengths")
        self.seen = self.add_variable((8,), "zeros", name="seen")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, rows):
        self.seen.assign(self.seen + tf.one_hot(tf.cast(self.count, tf.int32), 8) * tf.cast(rows, tf.float32))
        self.count.assign_add(1.0)

    def result(self):
        return self.count


class SeesLengths(keras.layers.Layer):
    """Keeps the number of examples of every training call."""

    def __init__(self):
        super().__init__()
        self.lengths = Lengths()

    def call(self, x, training=False):
        if training:
            self.lengths.update_state(tf.shape(x)[0])
        return x


@pytest.mark.parametrize("most, lengths", [(3, [3, 3, 3]), (4, [4, 4]), (100, [8])])
def test_all_parts_of_a_lot_are_of_one_length(most, lengths):
    layer = SeesLengths()
    model = keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(1)])
    tiny.private(tiny.noiseless(max_physical_batch=most), model)
    begin = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: layer.lengths.reset_state())
    tiny.train(model, callbacks=[begin])
    assert layer.lengths.seen.numpy()[: len(lengths)].tolist() == lengths
    assert layer.lengths.count.numpy() == len(lengths)


@pytest.mark.parametrize("most", [None, 7])
def test_padded_lots_release_what_their_records_say(most):
    """Lots of many sizes, drawn by a known seed, and padded: the weights are those of the records alone, by hand."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((200, 3)).astype("f4"), rng.standard_normal((200, 1)).astype("f4")
    lots = tfdp.data.PoissonBatches(x, y, batch_size=20, sampling_seed=5)
    model = tiny.private(tiny.noiseless(max_physical_batch=most))
    expected, sizes, padded = model.get_weights(), set(), 0
    shown = lots.dataset(bucketed=True, fine=True)
    for ((one, labels), _), (_, present) in zip(lots.dataset().take(10), shown, strict=False):
        expected = tiny.after_sgd(expected, one.numpy(), labels.numpy(), lot=20)
        sizes.add(len(one))
        padded += len(present) - len(one)
    assert len(sizes) > 4
    assert padded > 0
    model.fit(lots, epochs=1, verbose=0)
    tiny.assert_weights(model, expected)


def test_physical_batches_are_noised_once():
    """With weights of 0 for all examples the changes are noise alone, of one lot's standard deviation."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1000, use_bias=False)])
    tiny.private(tfdp.NoisySGD(1.0, l2_norm_clip=2.0, noise_multiplier=3.0, max_physical_batch=2), model)
    (start,) = model.get_weights()
    tiny.train(model, tiny.X, np.zeros((tiny.SIZE, 1000), "float32"), sample_weight=np.zeros(tiny.SIZE))
    noise = (model.get_weights()[0] - start).ravel()
    stddev = 3.0 * 2.0 / tiny.SIZE
    assert abs(noise.std() - stddev) < 5 * stddev / np.sqrt(2 * noise.size)


def test_metrics_are_those_of_the_records_present():
    """A lot of records that all have the same error: padding and absent records would change the mean."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    optimizer = tfdp.NoisySGD(0.0, l2_norm_clip=1.0, noise_multiplier=0.0)
    tiny.private(optimizer, model, metrics=["mae"], jit_compile=True)
    history = model.fit(np.ones((40, 3)), np.full((40, 1), 5.0), batch_size=15, epochs=2, verbose=0).history
    np.testing.assert_allclose(history["mae"], [5.0, 5.0], rtol=1e-6)
    np.testing.assert_allclose(history["loss"], [25.0, 25.0], rtol=1e-6)


def test_padding_is_in_no_metric_not_even_in_one_that_compute_loss_updates():
    class Counting(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.rows = keras.metrics.Sum(name="rows")

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            self.rows.update_state(keras.ops.ones_like(y))
            return keras.ops.mean(keras.ops.square(y - y_pred))

    def count(y_true, y_pred):
        return keras.ops.ones_like(y_true)

    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((500, 3)).astype("float32"), np.ones((500, 1), "float32")
    model = Counting()
    shown = keras.metrics.MeanMetricWrapper(count, name="shown")
    model.compile(optimizer=tiny.noisy(), metrics=[shown])
    history = model.fit(x, y, batch_size=20, epochs=1, verbose=0).history
    assert history["rows"][0] == float(shown.count)


def test_a_loss_added_for_the_whole_lot_is_shown_without_padding():
    """Every record adds a thousandth; rows of zeros would add nothing, and be counted."""

    class AddsItsInputs(keras.layers.Dense):
        def call(self, x):
            self.add_loss(0.001 * keras.ops.sum(x[:, 0]))
            return super().call(x)

    x, y = np.ones((500, 3), "float32"), np.zeros((500, 1), "float32")
    model = keras.Sequential([keras.Input((3,)), AddsItsInputs(1, use_bias=False, kernel_initializer="zeros")])
    optimizer = tfdp.NoisySGD(0.0, l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer=optimizer, loss="mse")
    history = model.fit(x, y, batch_size=20, epochs=1, verbose=0).history
    np.testing.assert_allclose(history["loss"][0], 0.001, rtol=1e-4)


@pytest.mark.parametrize("together", [1, 2, 3])
def test_epochs_have_as_many_steps_as_they_say_on_lots_that_are_set_up_once_where_they_may(monkeypatch, together):
    drawn, original = [], PoissonLots.__iter__

    def counted(lots):
        drawn.append(0)
        for lot in original(lots):
            drawn[-1] += 1
            yield lot

    monkeypatch.setattr(PoissonLots, "__iter__", counted)
    model = tiny.private(tiny.noisy(), steps_per_execution=together)
    model.fit(tiny.X, tiny.Y, batch_size=2, epochs=3, steps_per_epoch=4, verbose=0)
    assert model.optimizer.ledger.steps == int(model.optimizer.iterations) == 12
    assert sum(drawn) >= 12
    assert (len(drawn) == 1) == (4 % together == 0)


def test_a_fit_of_one_step_draws_few_lots_ahead(monkeypatch):
    drawn, original = [], PoissonLots.__iter__
    monkeypatch.setattr(PoissonLots, "__iter__", lambda lots: (drawn.append(lot) or lot for lot in original(lots)))
    model = tiny.private(tiny.noisy())
    model.fit(tiny.X, tiny.Y, batch_size=2, epochs=1, steps_per_epoch=1, verbose=0)
    assert 1 <= len(drawn) <= 4 + 8 + 16
