"""Records are perturbed once: what is kept of them, and which changes of a data set are seen or refused."""

import numpy as np
import pytest
import tensorflow as tf

from tests.data.perturbation.perturbed import (
    SIZE,
    X,
    features,
    in_any_order,
    interleaved,
    perturbation,
    records,
    swapped,
)


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
            (lambda d: d.window(2, shift=1).flat_map(lambda x, y: x.batch(2)), r"window\(\) before"),
            (lambda d: d.scan(np.zeros(5, "f4"), lambda s, r: (s + r[0], s + r[0])), r"scan\(\) before"),
            (
                lambda d: tf.data.Dataset.random(seed=1).map(lambda n: tf.gather(X, n % SIZE)).take(9),
                r"random\(\) before",
            ),
            (lambda d: d.concatenate(d), "joins a data set with itself"),
            (lambda d: d.take(9).concatenate(d.skip(8)), "joins a data set with itself"),
            (
                lambda d: tf.data.Dataset.zip((d, d.skip(1))).map(lambda a, b: a[0] + b[0]),
                "joins a data set with itself",
            ),
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

    def test_data_sets_that_bring_each_record_once_are_taken(self):
        """Two sources side by side, one source twice at the same places, two parts end to end."""
        x, y = (tf.data.Dataset.from_tensor_slices(part) for part in (X, np.arange(SIZE)))
        whole = tf.data.Dataset.zip((x, y)).skip(1)
        both = tf.data.Dataset.zip((whole.map(lambda x, y: x), whole.map(lambda x, y: y)))
        parts = records(X[1:9], np.arange(8)).concatenate(records(X[9:], np.arange(SIZE - 9)))
        for dataset in (whole, both, parts):
            assert np.array_equal(features(dataset.apply(perturbation())), perturbation().on_arrays(X[1:]))

    def test_parallel_reading_in_order_is_taken(self):
        kept = records().map(swapped, 2, deterministic=True)
        assert np.array_equal(
            np.stack(list(kept.map(lambda y, x: x).apply(perturbation()))), perturbation().on_arrays(X)
        )
        assert len(features(interleaved().apply(perturbation(name="other")))) == 8
