"""fit(dataset) and KerasHub's tasks with one line changed: the same steps as of arrays, and a ledger that says what was run."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import FullBatch, GaussianEvent, Line, Poisson, Shuffled

Dataset = tf.data.Dataset
WEIGHTS = np.linspace(0, 3, tiny.SIZE).astype("float32")


def records(*more) -> Dataset:
    return Dataset.from_tensor_slices((tiny.X, tiny.Y, *more))


def scaled(x, *rest):
    return (2 * x, *rest)


SAME_AS_ARRAYS = {
    "as they are": (lambda: records().shuffle(8).batch(32), {}),
    "mapped": (
        lambda: records().map(lambda x, y: (x / 2, y)).cache().shuffle(8).batch(tiny.SIZE).map(scaled).prefetch(1),
        {},
    ),
    "weighted": (lambda: records(WEIGHTS).batch(tiny.SIZE), {"sample_weight": WEIGHTS}),
}


@pytest.mark.parametrize("kind", SAME_AS_ARRAYS)
def test_a_lot_of_all_records_of_a_dataset_is_one_of_the_arrays(kind):
    make, arguments = SAME_AS_ARRAYS[kind]
    model = tiny.private()
    start = model.get_weights()
    model.fit(make(), verbose=0, validation_data=records().batch(4))
    tiny.assert_weights(model, tiny.after_sgd(start, **arguments))
    assert next(iter(model.optimizer.ledger)).sampling == FullBatch(tiny.SIZE)


def test_class_weight_goes_with_a_dataset():
    labels, weights = np.arange(tiny.SIZE) % 2, []
    for data, arguments in (
        ((Dataset.from_tensor_slices((tiny.X, labels)).batch(8),), {"class_weight": {0: 1.0, 1: 3.0}}),
        ((tiny.X, labels), {"sample_weight": 1.0 + 2.0 * labels}),
    ):
        model = tiny.private()
        model.fit(*data, verbose=0, **arguments)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_named_inputs_go_with_a_dataset():
    a, b = keras.Input((1,), name="a"), keras.Input((2,), name="b")
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(keras.layers.Concatenate()([a, b])))
    model.set_weights(tiny.linear().get_weights())
    start = model.get_weights()
    tiny.private(model=model)
    model.fit(records().map(lambda x, y: ({"a": x[:1], "b": x[1:]}, y)).batch(8), verbose=0)
    tiny.assert_weights(model, tiny.after_sgd(start))


@pytest.mark.parametrize(
    "dataset, arguments, line",
    [
        (records().shuffle(8).batch(3), {"epochs": 2}, (Poisson(3 / 8, 8), 6)),
        (records().shuffle(8).batch(3, drop_remainder=True), {"epochs": 2}, (Poisson(3 / 8, 8), 4)),
        (records().repeat().batch(3), {"steps_per_epoch": 5}, (Poisson(3 / 8, 8), 5)),
        (records().batch(3), {"public_size": 12}, (Poisson(3 / 12, 12, public_size=True), 4)),
        (records().shuffle(8).take(6).batch(3), {"epochs": 3}, (Shuffled(6, 3, 2), 6, 3)),
    ],
)
def test_the_ledger_says_how_a_dataset_was_sampled_and_the_console_too(capsys, dataset, arguments, line):
    sampling, steps, *passes = line
    model = tiny.private(tiny.noisy())
    model.fit(dataset, verbose=2, **arguments)
    assert list(model.optimizer.ledger) == [Line(GaussianEvent(1.0), sampling, steps, *passes)]
    (said,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("tfdp ")]
    assert ("without amplification" in said) == isinstance(sampling, Shuffled)


def test_the_statement_says_that_an_element_is_a_record():
    series = np.arange(40.0, dtype="float32")
    windows = keras.utils.timeseries_dataset_from_array(series[:-3], series[3:], sequence_length=3, batch_size=4)
    model = tiny.private(tiny.noisy())
    model.fit(windows, verbose=0)
    assert "such as a time step in many windows" in str(tfdp.privacy_statement(model, delta=1e-3))


@pytest.mark.parametrize(
    "extra", [{"y": tiny.Y}, {"batch_size": 4}, {"sample_weight": WEIGHTS}, {"validation_split": 0.5}]
)
def test_a_dataset_takes_no_second_word_on_its_records(extra):
    model = tiny.private()
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=next(iter(extra))):
        model.fit(records().batch(4), verbose=0, **extra)


class Batches(keras.utils.PyDataset):
    """Three batches of at most three records; which, changes between passes."""

    def __init__(self):
        super().__init__()
        self.order, self.passes, self.asked = np.arange(tiny.SIZE), 0, []

    def __len__(self):
        return 3

    def __getitem__(self, index):
        self.asked.append(index)
        rows = self.order[3 * index : 3 * index + 3]
        return tiny.X[rows], tiny.Y[rows]

    def on_epoch_end(self):
        self.passes += 1
        self.order = np.roll(self.order, 1)


def test_a_declared_pydataset_is_gone_through_pass_by_pass():
    batches = Batches()
    declared = tfdp.data.declare_sampling(batches, "shuffled", size=tiny.SIZE, batch_size=3)
    assert any("PyDataset" in sentence for sentence in declared.unchecked)
    batches.asked.clear()
    seen = [x.numpy() for (x, _), _ in declared.dataset().take(9)]
    for number in range(3):
        assert sorted(batches.asked[3 * number : 3 * number + 3]) == [0, 1, 2]
        rows = np.concatenate(seen[3 * number : 3 * number + 3])
        np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(tiny.X, axis=0))
    model = tiny.private(tiny.noisy())
    model.fit(tfdp.data.declare_sampling(Batches(), "shuffled", size=tiny.SIZE, batch_size=3), epochs=2, verbose=0)
    assert list(model.optimizer.ledger) == [Line(GaussianEvent(1.0), Shuffled(tiny.SIZE, 3, 3), 6, passes=2)]


def test_few_records_and_no_batch_size_mean_all_of_them_in_every_lot():
    model = tiny.private(tiny.noisy())
    start = model.get_weights()
    model.fit(tiny.X, tiny.Y, epochs=2, verbose=0)
    assert list(model.optimizer.ledger) == [Line(GaussianEvent(1.0), FullBatch(tiny.SIZE), 2)]
    model = tiny.private()
    model.fit(tiny.X, tiny.Y, batch_size=100, verbose=0)
    tiny.assert_weights(model, tiny.after_sgd(start))
