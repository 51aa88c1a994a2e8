"""Input that perturbation can't hide is refused, and no message quotes a record."""

import numpy as np
import pytest
import tensorflow as tf

from tests.data.perturbation.perturbed import SIZE, X, Y, features, perturbation, records


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
