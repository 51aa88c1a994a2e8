"""Which mechanisms may bound parts of a lot apart, with the noise among the parts."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.mechanisms import (
    AdaClipMechanism,
    CompressedMechanism,
    DirectionalMechanism,
    EncodedMechanism,
    GaussianMechanism,
    GaussianOnGridMechanism,
    PrunedPublishedMechanism,
    PublishedMechanism,
    SecretGenerator,
    SupportMechanism,
)


class OwnRelease(GaussianMechanism):
    def release(self, state, sums, ellipsoid, expected_lot_size, generator):
        return super().release(state, [tf.sign(part) for part in sums], ellipsoid, expected_lot_size, generator)


class OwnPrivatise(GaussianMechanism):
    def privatise(self, sums, expected_lot_size, generator, ellipsoid=None):
        return [part + 1 for part in sums]


PUBLISHED = {"target_epsilon": 3.0, "delta": 1e-5, "direction": "ones"}


@pytest.mark.parametrize(
    "mechanism",
    [
        GaussianMechanism(1.0, 1.0),
        AdaClipMechanism(1.0, 1.0),
        DirectionalMechanism(1.0, 1.0),
        CompressedMechanism(1.0, 1.0, pruning_ratio=0.5),
        SupportMechanism(1.0, 1.0, pruning_ratio=0.5),
        EncodedMechanism(1.0, 1.0),
        PublishedMechanism(1.0, **PUBLISHED),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_mechanisms_that_see_the_noised_sum_alone_work_on_parts(mechanism):
    assert mechanism.works_on_parts


@pytest.mark.parametrize(
    "mechanism",
    [
        PrunedPublishedMechanism(1.0, pruning_ratio=0.5, **PUBLISHED),
        EncodedMechanism(1.0, 1.0, microbatch_size=2, as_published=True),
        GaussianOnGridMechanism(1.0, 1.0),
        OwnRelease(1.0, 1.0),
        OwnPrivatise(1.0, 1.0),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_mechanisms_that_look_at_the_sum_before_the_noise_do_not(mechanism):
    assert not mechanism.works_on_parts


@pytest.mark.parametrize("mechanism", [GaussianMechanism(2.0, 3.0), EncodedMechanism(2.0, 3.0)])
def test_noise_among_the_parts_is_the_noise_of_the_release(mechanism):
    """The same bits, added before or after the rescaling."""
    sums = [tf.ones([5, 3], mechanism.sum_dtype), tf.zeros([4], mechanism.sum_dtype)]
    noised = mechanism.noised(sums, SecretGenerator(seed=1))
    apart = mechanism.privatise(noised, 8.0, None)
    at_once = mechanism.privatise(sums, 8.0, SecretGenerator(seed=1))
    for one, other in zip(apart, at_once, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.std(one) > 0
