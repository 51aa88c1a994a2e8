"""What fit takes: data whose sampling is known, or drawn by fit itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import FullBatch, GaussianEvent, Line, NotPrivateEvent, Poisson, Shuffled


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return tiny.X, tiny.Y


def generator():
    yield tiny.X, tiny.Y


UNDECLARED = {
    "of a generator": (lambda: tf.data.Dataset.from_generator(generator, output_signature=tf.TensorSpec([])), "cache"),
    "repeated without end": (
        lambda: tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)).batch(4).repeat(),
        "steps_per_epoch",
    ),
    "no batches": (lambda: tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)), r"batch\(batch_size\)"),
    "generator": (generator, "arrays"),
    "PyDataset": (Batches, "declare_sampling"),
    "Dataset among inputs": (lambda: {"a": tf.data.Dataset.from_tensor_slices(tiny.X)}, "declare_sampling"),
}


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return tiny.private(tiny.noisy(), jit_compile=False)


@pytest.mark.parametrize("kind", UNDECLARED)
def test_data_of_unknown_sampling_is_refused_with_the_cure(model, kind):
    make, cure = UNDECLARED[kind]
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=cure):
        model.fit(make(), verbose=0)


def declared(batch_size=3):
    dataset = tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)).shuffle(8).batch(batch_size)
    return tfdp.data.declare_sampling(dataset, "shuffled", size=tiny.SIZE, batch_size=batch_size)


def test_a_declared_dataset_is_accounted_pass_by_pass_a_partial_one_as_whole():
    model = tiny.private(tiny.noisy())
    model.fit(declared(), epochs=2, verbose=0)  # 3 batches a pass
    model.fit(declared(), steps_per_epoch=4, verbose=0)  # one pass and the beginning of another
    assert list(model.optimizer.ledger) == [Line(GaussianEvent(1.0), Shuffled(tiny.SIZE, 3, 3), 10, passes=4)]


def test_a_declared_dataset_divides_by_its_batch_size():
    model = tiny.private()
    start = model.get_weights()
    model.fit(declared(batch_size=tiny.SIZE), verbose=0)
    tiny.assert_weights(model, tiny.after_sgd(start))


@pytest.mark.parametrize("extra", [{"y": tiny.Y}, {"batch_size": 4}, {"sample_weight": tiny.Y[:, 0]}])
def test_a_declared_dataset_takes_no_second_word_on_its_records(model, extra):
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=next(iter(extra))):
        model.fit(declared(), verbose=0, **extra)


def test_poisson_batches_are_taken_as_they_are():
    model = tiny.private(tiny.noisy())
    model.fit(tfdp.data.PoissonBatches(tiny.X, tiny.Y, batch_size=2), epochs=2, verbose=0)
    assert list(model.optimizer.ledger) == [Line(GaussianEvent(1.0), Poisson(0.25, tiny.SIZE), 8)]


def test_lots_of_a_known_seed_protect_nothing():
    model = tiny.private(tiny.noisy())
    model.fit(tfdp.data.PoissonBatches(tiny.X, tiny.Y, batch_size=4, sampling_seed=1), verbose=0)
    (line,) = model.optimizer.ledger
    assert isinstance(line.event, NotPrivateEvent)
    assert "sampling_seed" in line.event.reason


def test_arrays_are_drawn_at_the_rate_of_batch_size_to_records():
    model = tiny.private(tiny.noisy())
    model.fit(tiny.X, tiny.Y, batch_size=3, epochs=2, verbose=0)  # ceil(8 / 3) lots an epoch
    assert list(model.optimizer.ledger) == [Line(GaussianEvent(1.0), Poisson(3 / 8, tiny.SIZE), 6)]


def test_a_public_size_sets_rate_and_steps():
    model = tiny.private(tiny.noisy())
    model.fit(tiny.X, tiny.Y, batch_size=5, public_size=10, verbose=0)
    assert list(model.optimizer.ledger) == [Line(GaussianEvent(1.0), Poisson(0.5, 10, public_size=True), 2)]


def test_a_public_size_needs_a_private_optimizer():
    model = tiny.linear()
    model.compile(optimizer="sgd", loss="mse")
    with pytest.raises(ValueError, match="private optimizer"):
        model.fit(tiny.X, tiny.Y, public_size=10, verbose=0)


def test_inputs_may_be_a_dict():
    a, b = keras.Input((1,), name="a"), keras.Input((2,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(joined))
    model.set_weights(tiny.linear().get_weights())
    start = model.get_weights()
    tiny.private(model=model)
    x = {"a": tiny.X[:, :1], "b": tiny.X[:, 1:]}
    model.fit(x, tiny.Y, batch_size=tiny.SIZE, verbose=0)
    tiny.assert_weights(model, tiny.after_sgd(start))


class Source:
    """Records by number, none of them in memory."""

    def __len__(self):
        return tiny.SIZE

    def __getitem__(self, index):
        return tiny.X[index], tiny.Y[index]


def test_memory_maps_and_sources_are_read_record_by_record(tmp_path):
    x = np.memmap(tmp_path / "x", "float32", "w+", shape=tiny.X.shape)
    x[:] = tiny.X
    for data in ((np.memmap(tmp_path / "x", "float32", "r", shape=tiny.X.shape), tiny.Y), (Source(),)):
        model = tiny.private()
        start = model.get_weights()
        model.fit(*data, batch_size=tiny.SIZE, verbose=0)
        tiny.assert_weights(model, tiny.after_sgd(start))
        assert next(iter(model.optimizer.ledger)).sampling == FullBatch(tiny.SIZE)


def test_class_weight_is_the_sample_weight_of_the_label():
    labels = np.arange(tiny.SIZE) % 3
    weights = []
    for arguments in (
        {"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}},
        {"sample_weight": np.array([1.0, 3.0, 0.5], "float32")[labels]},
        {},
    ):
        model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=1e6, noise_multiplier=0.0))
        model.fit(tiny.X, labels, batch_size=tiny.SIZE, verbose=0, **arguments)
        weights.append(model.get_weights())
    for by_class, by_sample, unweighted in zip(*weights, strict=True):
        np.testing.assert_array_equal(by_class, by_sample)
        assert np.any(by_class != unweighted)


def test_a_sample_weight_multiplies_the_example_before_it_is_clipped():
    sample_weight = np.linspace(0, 3, tiny.SIZE).astype("float32")
    model = tiny.private()
    start = model.get_weights()
    tiny.train(model, sample_weight=sample_weight)
    tiny.assert_weights(model, tiny.after_sgd(start, sample_weight=sample_weight))


def test_what_a_dataset_brings_itself_is_left_out_of_fit(model):
    dataset = tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)).batch(4)
    with pytest.raises(ValueError, match=r"^The dataset is batched already: leave batch_size= out of fit"):
        model.fit(dataset, batch_size=4)
    with pytest.raises(ValueError, match="leave y=, batch_size= out of fit"):
        model.fit(dataset, y=tiny.Y, batch_size=4)


def test_texts_given_to_a_model_that_is_not_built_are_named():
    unbuilt = tiny.private(tiny.noisy(), keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="x holds texts"):
        tiny.train(unbuilt, tiny.X.astype(str))
