"""Made-up examples: which integers a model takes, and the company that they are put in."""

import numpy as np
import tensorflow as tf

from tfdp.gradients.made_up import ROWS, Records

TABLE, CLASSES, KEPT = 100, 10, 3
SPEC = (tf.TensorSpec([None, 5], tf.int32), tf.TensorSpec([None], tf.int64))
SAMPLE = (np.arange(20).reshape(4, 5).astype("int32"), np.array([0, 3, 6, 8]))


def runs(lot) -> bool:
    """As a table of 100 tokens and a loss of 10 classes do."""
    ids, labels = lot
    return bool(np.all((ids >= 0) & (ids < TABLE)) and np.all((labels >= 0) & (labels < CLASSES)))


def learned() -> Records:
    records = Records(SPEC, SAMPLE)
    records.learn(runs, {TABLE - 1, CLASSES - 1}, ())
    return records


def values(number: int, lots) -> set[int]:
    return {int(v) for lot in lots for v in np.unique(lot[number])}


def test_a_model_is_asked_about_the_ends_of_its_tables_and_classes_and_about_values_of_the_sample():
    lots = [company.lot for company in learned().companies(KEPT)]
    assert all(map(runs, lots))
    assert {0, 9, 19, TABLE - 1} <= values(0, lots)
    assert {0, 3, 6, 8, CLASSES - 1} <= values(1, lots)


def test_the_examples_that_stay_are_the_base_s_in_all_company():
    records = learned()
    for company in records.companies(KEPT):
        for part, base in zip(company.lot, records.base, strict=True):
            assert len(part) == ROWS
            np.testing.assert_array_equal(part[:KEPT], base[:KEPT])


def test_each_value_has_several_examples_of_a_lot():
    """Some layers mix only examples that are equal."""
    lots = [company.lot for company in learned().companies(KEPT)]
    for value in (3, CLASSES - 1, 19, TABLE - 1):
        assert any(np.sum(np.all(ids[KEPT:] == value, 1)) > 1 for ids, _ in lots)


def test_integers_of_several_parts_that_are_tried_together_can_be_tried_one_part_after_the_other():
    together = [company for company in learned().companies(KEPT) if company.instead]
    assert together
    for company in together:
        apart = [each.lot for each in company.instead]
        for number in range(2):
            assert values(number, [company.lot]) - values(number, [learned().base]) <= values(number, apart)
