"""Clip and fixed noise on records, in arrays and in data sets."""

import copy
import pickle

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tfdp.data import InputPerturbation, PoissonBatches, declare_sampling

KEY = bytes(range(32))
SIZE = 300
X = np.random.default_rng(0).normal(size=(SIZE, 5)).astype(np.float32)
Y = np.arange(SIZE) % 3


def perturbation(**changed) -> InputPerturbation:
    return InputPerturbation(**({"stddev": 0.5, "key": KEY} | changed))


def records(x=X, y=Y) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y))


def features(dataset) -> np.ndarray:
    return np.stack([x.numpy() for x, *_ in dataset])


def swapped(x, y):
    return y, x


def interleaved(**order) -> tf.data.Dataset:
    """Two records for each of four files, so to say."""
    files = tf.data.Dataset.range(4)
    return files.interleave(
        lambda file: tf.data.Dataset.from_tensor_slices((X[:2], Y[:2])), num_parallel_calls=2, **order
    )


def in_any_order() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = False
    return options


def flat(structure) -> np.ndarray:
    """All leaves side by side."""
    return np.concatenate([np.asarray(x).reshape(len(x), -1).astype(float) for x in tf.nest.flatten(structure)], axis=1)


def clipped(x: np.ndarray, norm: float) -> np.ndarray:
    flat = x.astype(np.float64)
    return flat * np.minimum(1, norm / np.linalg.norm(flat, axis=1, keepdims=True))


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
        before, after = (perturbation().on_arrays(x) for x in (X, other))
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


class TestMemory:
    RECORD = 5 * 4 + 8  # bytes of x and y

    def passes(self, batch_size=None, keep=lambda d: d, **changed) -> int:
        """How often three epochs read the records before the perturbation. All of them bring the same."""
        read = []

        def counted(number):
            read.append(number)
            return number

        def source(x, y):
            return x, tf.ensure_shape(tf.numpy_function(counted, [y], tf.int64), y.shape)

        dataset = keep(records(y=np.arange(SIZE)).map(source))
        if batch_size:
            dataset = dataset.batch(batch_size)
        perturbed = dataset.apply(perturbation(batch_size=batch_size, **changed))
        expected = perturbation().on_arrays(X)
        for _ in range(3):
            found = list(perturbed)
            assert np.array_equal(np.reshape(np.concatenate([np.atleast_2d(x) for x, _ in found]), X.shape), expected)
        return len(read) / SIZE

    def test_a_data_set_that_fits_is_read_and_perturbed_once(self):
        assert self.passes() == 1
        assert self.passes(memory_limit=SIZE * self.RECORD) == 1
        assert self.passes(batch_size=30, memory_limit=SIZE * self.RECORD) == 1

    def test_one_that_does_not_is_perturbed_alike_in_every_epoch(self):
        assert self.passes(memory_limit=SIZE * self.RECORD - 1) == 3
        assert self.passes(batch_size=30, memory_limit=SIZE * self.RECORD - 1) == 3
        assert self.passes(memory_limit=0) == 3

    def test_so_is_one_of_unknown_size(self):
        assert self.passes(keep=lambda d: d.filter(lambda x, y: True)) == 3

    def test_what_is_read_once_is_released_once(self):
        """Another order or augmentation in later epochs has no effect; a second data set is still compared."""
        random, p = np.random.default_rng(), perturbation()
        jitter = lambda: random.random(X.shape[1], dtype=np.float32)  # noqa: E731

        def augmented(x, y):
            return x + tf.ensure_shape(tf.numpy_function(jitter, [], tf.float32), X.shape[1:]), y

        moved = records().map(augmented).apply(p)
        assert np.array_equal(features(moved), features(moved))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Record 0 is not what it was before"):
            features(records().map(augmented).apply(p))


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
            found = perturbation().on_arrays(X.astype(dtype))
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

    def test_classes_and_probability_belong_together(self):
        with pytest.raises(ValueError, match="needs classes="):
            perturbation(randomized_response=0.5)
        with pytest.raises(ValueError, match="randomized_response must lie above 0"):
            perturbation(classes=3)


class TestOrder:
    def test_augmentation_before_it_is_seen_in_the_second_epoch(self):
        # (tf.random begins anew with every pass where another test has set TensorFlow's global seed.)
        random = np.random.default_rng()
        jitter = lambda: random.random(X.shape[1], dtype=np.float32)  # noqa: E731

        def augmented(x, y):
            return x + tf.ensure_shape(tf.numpy_function(jitter, [], tf.float32), X.shape[1:]), y

        moved = records().map(augmented).apply(perturbation(memory_limit=0))
        assert len(features(moved)) == SIZE
        with pytest.raises(tf.errors.InvalidArgumentError, match="Record 0 is not what it was before"):
            features(moved)

    @pytest.mark.parametrize("again", [X[:, None], X.astype("i1")], ids=["shape", "integers"])
    def test_a_second_form_of_the_same_records_would_be_a_second_release(self, again):
        p = perturbation()
        p.on_arrays(np.rint(X))
        with pytest.raises(ValueError, match="Record 0 is not what it was before"):
            p.on_arrays(np.rint(again))

    def test_another_order_is_seen_in_the_second_epoch(self):
        state = np.random.default_rng(0)

        def shuffled():
            yield from state.permutation(X)

        dataset = tf.data.Dataset.from_generator(shuffled, output_signature=tf.TensorSpec((5,)))
        perturbed = dataset.apply(perturbation())
        list(perturbed)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Shuffle and augment after"):
            list(perturbed)

    @pytest.mark.parametrize("change", [lambda x: -x, lambda x: x[:, ::-1], lambda x: x * (1 + 1e-7)])
    def test_another_data_set_is_seen(self, change):
        p = perturbation()
        p.on_arrays(X)
        with pytest.raises(ValueError, match="one InputPerturbation"):
            p.on_arrays(np.ascontiguousarray(change(X)))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda d: d.shuffle(10), r"shuffle\(\) before"),
            (lambda d: d.shuffle(10).batch(4).unbatch(), r"shuffle\(\) before"),
            (lambda d: d.repeat(2), r"repeat\(\) before"),
            (lambda d: d.repeat(), r"repeat\(\) before"),
            (lambda d: tf.data.Dataset.sample_from_datasets([d, d]), "sample_from_datasets"),
            (lambda d: d.shard(2, 0), r"shard\(\) before"),
            (lambda d: d.take(0), "empty"),
            (lambda d: d.map(swapped, 2, deterministic=False), "deterministic=False before"),
            (lambda d: d.batch(4, num_parallel_calls=2, deterministic=False).unbatch(), "deterministic=False before"),
            (lambda d: interleaved(deterministic=False).map(swapped), "deterministic=False before"),
            (lambda d: d.map(swapped, 2).with_options(in_any_order()).take(9), "deterministic=False before"),
        ],
    )
    def test_data_sets_without_a_stable_order_are_refused_at_once(self, change, message):
        with pytest.raises(ValueError, match=message):
            change(records()).apply(perturbation())

    def test_parallel_reading_in_order_is_taken(self):
        kept = records().map(swapped, 2, deterministic=True)
        assert np.array_equal(
            np.stack(list(kept.map(lambda y, x: x).apply(perturbation()))), perturbation().on_arrays(X)
        )
        assert len(features(interleaved().apply(perturbation()))) == 8


class TestBadInput:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_features_that_are_not_finite(self, bad):
        x = X.copy()
        x[[7, 9], 2] = bad
        with pytest.raises(ValueError, match=r"2 of .* records are not finite"):
            perturbation().on_arrays(x)
        with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
            features(records(x).apply(perturbation()))

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (X.astype(np.int32), "integers without a public range"),
            (X.astype(np.int64), "one_hot"),
            (X.astype(np.complex64), "real numbers"),
            (X.astype(str), "real numbers"),
            ({"a": X, "b": np.arange(SIZE)}, r"x\['b'\] is int64"),
            (X[:, :0], "0 numbers"),
        ],
    )
    def test_features_that_noise_cannot_hide(self, x, message):
        with pytest.raises(ValueError, match=message):
            perturbation().on_arrays(x)
        with pytest.raises(ValueError, match=message):
            tf.data.Dataset.from_tensor_slices((x, Y)).apply(perturbation())

    def test_wrong_ranks(self):
        with pytest.raises(ValueError, match="a single number"):
            perturbation().on_arrays(np.float32(1.0))
        with pytest.raises(ValueError, match="no rows"):
            tf.data.Dataset.from_tensor_slices(X[:, 0]).apply(perturbation(batch_size=4))
        ragged = tf.data.Dataset.from_generator(lambda: iter(X), output_signature=tf.TensorSpec((None,)))
        with pytest.raises(ValueError, match=r"one, known shape"):
            ragged.apply(perturbation())
        with pytest.raises(ValueError, match=r"tf\.ensure_shape"):
            ragged.map(lambda x: tf.ensure_shape(x, None)).apply(perturbation())
        with pytest.raises(ValueError, match="the lengths differ"):
            perturbation().on_arrays(X, Y[:-1])

    def test_rows_are_not_taken_for_records(self):
        with pytest.raises(ValueError, match=r"does not end in a batch\(\)"):
            tf.data.Dataset.from_tensor_slices(X[:, None]).apply(perturbation(batch_size=256))
        with pytest.raises(ValueError, match=r"does not end in a batch\(\)"):
            tf.data.Dataset.from_tensor_slices(X).batch(4).unbatch().apply(perturbation(batch_size=256))
        with pytest.raises(ValueError, match="write batch_size=32"):
            records().batch(32, drop_remainder=True).apply(perturbation(batch_size=16))
        with pytest.raises(tf.errors.InvalidArgumentError, match="more than batch_size=16 records"):
            list(records().batch(32).apply(perturbation(batch_size=16)))

    def test_empty_data(self):
        with pytest.raises(ValueError, match="no records"):
            perturbation().on_arrays(X[:0])

    def test_sample_weights_are_refused(self):
        with pytest.raises(ValueError, match="sample weights"):
            tf.data.Dataset.from_tensor_slices((X, Y, np.ones(SIZE))).apply(perturbation())

    def test_half_precision_that_cannot_hold_the_noise(self):
        with pytest.raises(ValueError, match="float16, which can't hold noise"):
            records(X.astype(np.float16)).apply(perturbation(stddev=1e4))

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"stddev": -1.0}, "stddev"),
            ({"stddev": np.nan}, "stddev"),
            ({"stddev": 1e-320}, "too small to compute"),
            ({"clip_norm": 0}, "clip_norm"),
            ({"key": "secret"}, "key must be bytes"),
            ({"name": 3}, "name"),
            ({"split": None}, "split"),
            ({"batch_size": 0}, "batch_size"),
            ({"memory_limit": -1}, "memory_limit"),
            ({"memory_limit": 0.5}, "memory_limit"),
        ],
    )
    def test_bad_arguments(self, changed, message):
        with pytest.raises(ValueError, match=message):
            perturbation(**changed)

    def test_arrays_are_not_data_sets(self):
        with pytest.raises(ValueError, match="on_arrays"):
            perturbation()(X)
        with pytest.raises(ValueError, match=r"is a tf.data.Dataset"):
            perturbation().on_arrays(records())


class TestKey:
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
