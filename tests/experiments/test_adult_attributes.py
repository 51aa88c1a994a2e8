"""Ten of Adult's fourteen attributes: what is kept of a record, by the names of its features."""

import keras
import numpy as np
import pytest

from models.adult_attributes import adult_attributes

# The first feature of each attribute in LIBSVM's a9a, and one after its last.
AGE, EDUCATION, YEARS, RACE, SEX, COUNTRY = (0, 5), (18, 34), (34, 39), (66, 71), (71, 73), (82, 123)


@pytest.fixture
def model():
    return adult_attributes()


def seen(model, *features):
    """What the dense layer is given of a record that has these features."""
    record = np.zeros((1, 123), "float32")
    record[:, list(features)] = 1
    return keras.Model(model.inputs[0], model.layers[-2].output)(record).numpy()[0]


def test_a_record_is_its_distance_from_an_even_share_of_each_attributes_values(model):
    found = seen(model, AGE[0] + 2, YEARS[0], SEX[0] + 1)
    np.testing.assert_allclose(found[slice(*AGE)], [-0.2, -0.2, 0.8, -0.2, -0.2], atol=1e-6)
    np.testing.assert_allclose(found[slice(*YEARS)], [0.8, -0.2, -0.2, -0.2, -0.2], atol=1e-6)
    np.testing.assert_allclose(found[slice(*SEX)], [-0.5, 0.5], atol=1e-6)


@pytest.mark.parametrize("attribute", [(13, 18), EDUCATION, RACE, COUNTRY])
def test_what_is_left_out_is_not_seen(attribute, model):
    for feature in range(*attribute):
        np.testing.assert_array_equal(seen(model, feature), seen(model))
    assert not seen(model)[slice(*attribute)].any()


def test_all_others_are_seen(model):
    left_out = {*range(13, 18), *range(*EDUCATION), *range(*RACE), *range(*COUNTRY)}
    for feature in set(range(123)) - left_out:
        change = seen(model, feature) - seen(model)
        assert change[feature] == pytest.approx(1) and np.count_nonzero(change) == 1


def test_records_of_another_coding_are_refused():
    with pytest.raises(ValueError, match="takes the 123 features of LIBSVM's a9a, not 108"):
        adult_attributes(features=108)
