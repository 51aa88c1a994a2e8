"""A lot that takes much memory is run in parts no larger than expected lots, and releases the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tests.optimizers.test_lots_in_fit import SeesLengths
from tfdp.gradients import extent, prove
from tfdp.optimizers import training
from tfdp.optimizers.parts import even


@pytest.mark.parametrize("most, unit", [(1, 1), (7, 1), (32, 1), (10, 4), (3, 4)])
def test_parts_are_even_and_as_few_as_their_largest_size_takes(most, unit):
    rows = np.arange(1, 200)
    sizes = even(tf.constant(rows), most, unit).numpy()
    fewest = -(-rows // max(unit, most // unit * unit))
    assert (sizes <= max(most, unit)).all() and (sizes % unit == 0).all()
    assert (sizes * fewest >= rows).all() and ((sizes - unit) * fewest < rows).all()


def test_a_large_step_runs_no_more_than_the_expected_size_and_moves_weights_alike(monkeypatch):
    """Lots of many sizes, drawn by a known seed: the weights are those of whole lots, by hand."""
    for limit in ("LARGE", "MANY_WEIGHTS"):
        monkeypatch.setattr(extent, limit, 0)
    monkeypatch.setattr(training, "prove", prove)
    rng, layer = np.random.default_rng(3), SeesLengths()
    x, y = rng.standard_normal((200, 3)).astype("f4"), rng.standard_normal((200, 1)).astype("f4")
    lots = tfdp.data.PoissonBatches(x, y, batch_size=20, sampling_seed=5)
    model = tiny.private(model=keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(1)]))
    expected, sizes, lengths = model.get_weights(), [], []
    expected = [w for w in expected if w.shape in ((3, 1), (1,))]
    for (one, labels), _ in lots.dataset().take(10):
        expected = tiny.after_sgd(expected, one.numpy(), labels.numpy(), lot=20)
        sizes.append(len(one))
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: layer.lengths.reset_state(),
        on_train_batch_end=lambda batch, logs: lengths.append(layer.lengths.seen.numpy()),
    )
    model.fit(lots, epochs=1, verbose=0, callbacks=[keep])
    tiny.assert_weights(model.layers[-1], expected)
    assert max(sizes) > 20 >= np.max(lengths)
    assert [(seen > 0).sum() for seen in lengths] == [2 if size > 20 else 1 for size in sizes]


@pytest.mark.parametrize("noise_shape", [(1, 4), None], ids=["for all examples", "for each"])
def test_lots_are_not_cut_where_their_examples_share_random_numbers(noise_shape, monkeypatch):
    """Which part a record is in depends on the other records, and so would the numbers that it gets."""
    monkeypatch.setattr(training, "prove", prove)
    layers = [keras.layers.Dense(4), keras.layers.Dropout(0.5, noise_shape=noise_shape), keras.layers.Dense(1)]
    optimizer = tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, max_physical_batch=2)
    model = tiny.private(optimizer, model=keras.Sequential([keras.Input((3,)), *layers]))
    if noise_shape is None:
        model.fit(tiny.X, tiny.Y, batch_size=4, verbose=0)
        return
    with pytest.raises(tfdp.gradients.MixesExamples, match="max_physical_batch cuts"):
        model.fit(tiny.X, tiny.Y, batch_size=4, verbose=0)
    optimizer.max_physical_batch = None
    model.fit(tiny.X, tiny.Y, batch_size=4, verbose=0)
    optimizer.max_physical_batch, before = 2, model.get_weights()
    with pytest.raises(tfdp.gradients.MixesExamples, match="max_physical_batch cuts"):
        model.fit(tiny.X, tiny.Y, batch_size=4, verbose=0)
    assert all(np.array_equal(now, then) for now, then in zip(model.get_weights(), before, strict=True))
