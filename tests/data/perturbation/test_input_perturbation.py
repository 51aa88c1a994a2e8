"""Clip and fixed noise on records, in arrays and in data sets."""

import copy
import pickle

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.data.perturbation.perturbed import (
    KEY,
    SIZE,
    X,
    Y,
    clipped,
    features,
    flat,
    in_another_process,
    perturbation,
    records,
)
from tfdp.data import PoissonBatches, declare_sampling


class TestClip:
    def test_a_record_is_scaled_to_the_clip_and_a_short_one_stays(self):
        x = X * np.geomspace(0.01, 100, SIZE, dtype=np.float32)[:, None]
        found = perturbation(stddev=0, clip_norm=2.0).on_arrays(x)
        np.testing.assert_allclose(found, clipped(x, 2.0), rtol=2e-6)
        norms = np.linalg.norm(found.astype(np.float64), axis=1)
        assert norms.max() <= 2.0
        short = np.linalg.norm(x, axis=1) < 1.99
        assert 0 < short.sum() < SIZE and np.array_equal(found[short], x[short])

    def test_the_norm_is_over_all_leaves(self):
        x = {"a": 3 * np.ones((4, 1), np.float32), "b": (np.ones((4, 2, 4), np.float32), 8 * np.ones(4, np.float16))}
        found = perturbation(stddev=0, clip_norm=1.0).on_arrays(x)  # of length sqrt(9 + 8 + 64) = 9
        np.testing.assert_allclose(found["a"], 3 / 9, rtol=2e-6)
        np.testing.assert_allclose(found["b"][0], 1 / 9, rtol=2e-6)
        np.testing.assert_allclose(found["b"][1].astype(float), 8 / 9, rtol=1e-3)

    def test_records_of_zeros_stay(self):
        assert not perturbation(stddev=0).on_arrays(np.zeros((3, 5), np.float32)).any()

    def test_replacing_a_record_changes_no_other(self):
        other = X.copy()
        other[17] = 100.0
        before, after = (in_another_process().on_arrays(x) for x in (X, other))
        changed = np.flatnonzero((before != after).any(axis=1))
        assert changed.tolist() == [17]
        moved = np.linalg.norm(after[17].astype(np.float64) - before[17])
        assert 0 < moved <= 2.0


class TestFixedNoise:
    def test_every_epoch_and_every_way_to_read_gives_the_same_records(self):
        p = perturbation()
        dataset = records().apply(p)
        first = features(dataset)
        expected = p.on_arrays(X)
        assert np.array_equal(first, expected)
        assert np.array_equal(features(dataset.repeat(2)), np.concatenate([expected, expected]))
        for batch_size in (7, 256):
            batched = records().batch(batch_size).apply(perturbation(batch_size=batch_size))
            assert np.array_equal(np.concatenate([x for x, _ in batched]), expected)
        assert not np.allclose(expected, X)

    def test_order_labels_and_size_stay(self):
        dataset = records().apply(perturbation())
        assert np.array_equal([int(y) for _, y in dataset], Y)
        assert int(dataset.cardinality()) == SIZE
        assert dataset.element_spec == records().element_spec
        batched = records().batch(32).apply(perturbation(batch_size=32))
        assert batched.element_spec == records().batch(32).element_spec
        assert int(batched.cardinality()) == 10

    def test_threads_do_not_change_what_comes_out(self):
        options = tf.data.Options()
        options.threading.private_threadpool_size = 4
        many = np.tile(X, (10, 1))
        dataset = tf.data.Dataset.from_tensor_slices(many).apply(perturbation()).with_options(options)
        found = np.concatenate(list(dataset.batch(1000)))
        np.testing.assert_array_equal(found, perturbation().on_arrays(many))

    def test_without_a_key_nobody_has_the_noise(self):
        assert not np.allclose(*(perturbation(key=None).on_arrays(X) for _ in range(2)))

    def test_what_comes_after_is_free(self):
        dataset = records().apply(perturbation()).cache().shuffle(SIZE).batch(32)
        declared = declare_sampling(dataset.repeat(), "shuffled", size=SIZE, batch_size=32)
        assert declared.steps_per_pass == 10 and declared.unchecked == ()
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        assert model.fit(dataset, epochs=2, verbose=0).history["loss"][1] > 0


class TestForms:
    def test_any_nesting_and_type(self):
        """Of a data set: small integers come out as float32, floats as they were; float64 with values of float32."""
        rng = np.random.default_rng(1)
        x = {
            "image": rng.integers(0, 256, (200, 4, 3, 2), dtype=np.uint8),
            "more": (
                rng.normal(size=(200, 3)).astype(np.float16),
                (rng.normal(size=(200,)), rng.normal(size=(200, 2)).astype(ml_dtypes.bfloat16)),
            ),
            "flag": rng.integers(0, 2, (200, 1)).astype(bool),
        }
        perturbed = tf.data.Dataset.from_tensor_slices(x).apply(perturbation(stddev=0.25, clip_norm=5.0))
        found = next(iter(perturbed.batch(200)))
        half, (double, brain) = found["more"]
        leaves = (found["image"], found["flag"], half, double, brain)
        assert [leaf.dtype.name for leaf in leaves] == ["float32", "float32", "float16", "float64", "bfloat16"]
        assert np.array_equal(double, double.numpy().astype(np.float32))
        whole, noisy = (flat(part) for part in (x, found))
        noise = (noisy - clipped(whole, 5.0)) / 0.25
        assert abs(noise.mean()) < 0.07 and abs(noise.std() - 1) < 0.05  # over 5,600 numbers: five standard deviations
        assert abs(np.corrcoef(noise.T)[np.triu_indices(len(noise.T), 1)]).max() < 5 / np.sqrt(200)

    def test_arrays_are_read_as_fit_reads_them(self):
        for dtype in (np.float16, np.float64):
            found = in_another_process().on_arrays(X.astype(dtype))
            assert found.dtype == np.float32
            assert np.array_equal(found, perturbation().on_arrays(X.astype(dtype).astype(np.float32)))

    def test_records_without_labels(self):
        alone = tf.data.Dataset.from_tensor_slices(X).apply(perturbation())
        in_tuples = tf.data.Dataset.from_tensor_slices((X,)).apply(perturbation())
        expected = perturbation().on_arrays(X)
        assert np.array_equal(np.stack(list(alone)), expected)
        assert np.array_equal(features(in_tuples), expected)

    def test_labels_of_any_kind_pass(self):
        texts = np.array([b"a", b"b", b"c"])[Y]
        assert [y.numpy() for _, y in records(y=texts).apply(perturbation())] == texts.tolist()
        _, y = perturbation().on_arrays(X, {"one": Y, "two": -Y})
        assert np.array_equal(y["one"], Y) and np.array_equal(y["two"], -Y)

    def test_lots_can_be_drawn_from_what_comes_out(self):
        x, y = perturbation().on_arrays(X, Y)
        lots = PoissonBatches(x, y, batch_size=30).dataset()
        (rows, _), _ = next(iter(lots))
        assert set(map(bytes, rows.numpy())) <= set(map(bytes, x))


class TestRandomizedLabels:
    def test_labels_are_randomised_and_stay_so(self):
        y = np.zeros(SIZE, np.int64)
        p = perturbation(randomized_response=0.5, classes=4)
        x_found, y_found = p.on_arrays(X, y)
        changed = (y_found != 0).mean()
        assert 0.375 - 0.12 < changed < 0.375 + 0.12  # 0.5 * 3 / 4, within 4 standard deviations
        again = list(records(y=y).apply(p))
        assert np.array_equal([int(label) for _, label in again], y_found)
        assert np.array_equal([row for row, _ in again], x_found)
        assert np.array_equal(x_found, perturbation().on_arrays(X))

    def test_a_label_that_changed_is_seen(self):
        p = perturbation(randomized_response=0.5, classes=3)
        p.on_arrays(X, Y)
        with pytest.raises(ValueError, match="Record 3 is not what it was"):
            p.on_arrays(X, np.where(np.arange(SIZE) == 3, 1, Y))

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (None, "one label a record, but there are 0"),
            ({"a": Y, "b": Y}, "one label a record, but there are 2"),
            (np.eye(3)[Y], "argmax"),
            (np.array(["a", "b", "c"])[Y], "one number each"),
            (Y + 1, "public classes"),
        ],
    )
    def test_labels_that_cannot_be_randomised(self, y, message):
        with pytest.raises(ValueError, match=message):
            perturbation(randomized_response=0.5, classes=3).on_arrays(X, y)

    def test_labels_of_a_type_that_does_not_hold_all_classes_are_refused(self):
        y = np.zeros(SIZE, np.uint8)
        for p in (
            perturbation(randomized_response=1.0, classes=300),
            perturbation(randomized_response=0.5, classes=(0, -1)),
        ):
            with pytest.raises(ValueError, match="uint8, which does not hold all"):
                p.on_arrays(X, y)
            with pytest.raises(ValueError, match="uint8, which does not hold all"):
                records(y=y).apply(p)
        _, found = perturbation(randomized_response=1.0, classes=256).on_arrays(X, y)
        assert found.max() > 200

    def test_classes_and_probability_belong_together(self):
        with pytest.raises(ValueError, match="needs classes="):
            perturbation(randomized_response=0.5)
        with pytest.raises(ValueError, match="randomized_response must lie above 0"):
            perturbation(classes=3)


class TestKey:
    def test_it_serves_one_version_of_the_data_in_all_objects_of_a_process(self):
        perturbation().on_arrays(X, Y)
        perturbation(randomized_response=0.5, classes=3).on_arrays(X, Y)
        with pytest.raises(ValueError, match="Record 0 is not what it was"):
            perturbation().on_arrays(-X)
        with pytest.raises(ValueError, match="Record 0 is not what it was"):
            perturbation(randomized_response=0.5, classes=3).on_arrays(X, 2 - Y)
        perturbation(name="other").on_arrays(-X)
        perturbation(stddev=0.75).on_arrays(-X)

    def test_it_is_in_no_copy(self):
        for save in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="not saved"):
                save(perturbation())

    def test_it_is_not_shown(self):
        assert repr(perturbation()) == "InputPerturbation(stddev=0.5, clip_norm=1)"

    def test_it_is_not_in_the_graph_of_the_data_set(self):
        dataset = records().apply(perturbation())
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor, external_state_policy=0)
        assert b"PyFunc" in graph.numpy() and KEY not in graph.numpy()
