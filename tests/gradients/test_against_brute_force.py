"""Every case of the zoo: one noiseless private step against brute force, and brute force against Keras."""

import numpy as np
import pytest

from tests import model_zoo
from tests.brute_force import split_by_weight
from tests.gradients.one_step import (
    ALL,
    NONE,
    SOME,
    WHOLE_TOLERANCE,
    assert_one_step_is_the_mean_of_the_clipped_gradients,
    prepared,
    relative,
)

# Its scope makes the tests of one case follow one another: a case is prepared once.
of_every_case = pytest.mark.parametrize("name", model_zoo.CASE_NAMES, scope="module")


@of_every_case
def test_one_private_step_is_the_mean_of_the_clipped_gradients(name: str):
    """Where some are clipped, norms and sums both show: every case runs there, a few of each family in all three."""
    regimes = (SOME, ALL, NONE) if name in model_zoo.REPRESENTATIVE_NAMES else (SOME,)
    assert_one_step_is_the_mean_of_the_clipped_gradients(prepared(name), *regimes)


@of_every_case
def test_brute_force_adds_up_to_the_gradient_of_keras(name: str):
    """Brute force is checked itself: its mean is Keras's own gradient, unless the case says why not."""
    zoo = prepared(name)
    difference = relative(zoo.examples.gradients.mean(axis=0) - zoo.batch, zoo.batch)
    if zoo.case.differs_from_keras:
        assert difference > 1e-2
    else:
        assert difference <= 1e-5


@pytest.mark.parametrize("name", [n for n in model_zoo.CASE_NAMES if n.startswith("weight_regulariser")])
@pytest.mark.parametrize("regime", [ALL, NONE])
def test_regularisers_and_examples_both_show_in_the_update(name: str, regime: str):
    """Otherwise a private step that forgot one of them would pass."""
    zoo = prepared(name)
    both = zoo.examples.update(zoo.clip(regime))
    regularisers = zoo.examples.regulariser_gradient
    assert min(relative(regularisers, both), relative(both - regularisers, both)) > 5 * WHOLE_TOLERANCE


def test_weights_laid_side_by_side_split_again():
    zoo = prepared("lstm")
    parts = split_by_weight(zoo.model, zoo.batch)
    assert [p.shape for p in parts] == [tuple(w.shape) for w in zoo.model.trainable_weights]
    np.testing.assert_array_equal(np.concatenate([p.ravel() for p in parts]), zoo.batch)
