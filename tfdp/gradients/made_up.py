"""Made-up examples of a data set's shape, for the self-proof: ordinary ones, and company that brings out what mixes them."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.layer_tree import map_tensors
from tfdp.gradients.state import KnownDraws, StateAssigned

ROWS = 8  # examples that every lot is made around
LARGE = (1e4, -1e4)
PADDING = (0.0, -1.0)  # what stands for "nothing here" in many data sets
MARKS = (-100, -1, 255)  # what stands for "not counted" in many labels
FLOAT_MARKS = (math.nan, 0.0, -1.0, -999.0)
LARGE_LABEL, LARGE_WEIGHT = 1e6, 1e4
MOST_VALUES = 12  # of the sample, and of what the model compares with, that are tried
ALIKE = 2  # examples of company with the same value, at least


def made_up_records(record_spec: Any, sample: Any, loss_is_finite: Callable[[Any], bool]) -> "Records":
    """Made-up records if the model gives them a finite loss, else real ones.

    Numbers are drawn at random, with steps of zeros in some sequences; integers are 0 or 1, which every table of tokens and
    every set of classes has, until ``Records.learn`` finds others. Where the model does not run on such, numbers are positive;
    where it does not run on these either (strings; labels that must start at 1), the real records in ``sample`` take their place.
    """
    strings = any(spec is not None and spec.dtype == tf.string for spec in keras.tree.flatten(record_spec))
    for positive in () if strings else (False, True):
        records = Records(record_spec, sample, positive=positive)
        try:
            if loss_is_finite(records.base):
                return records
        except (StateAssigned, KnownDraws):
            raise
        except Exception:
            if sample is None and positive:
                raise
    if sample is None or not loss_is_finite(sample):
        raise ValueError(
            "The model gives no finite loss, neither to made-up examples nor to the first records of the data, so its "
            "per-example gradients can't be checked before the first step. Look for a logarithm, root or division that "
            "ordinary numbers break, and for NaN in the data."
        )
    return Records(record_spec, sample, real=True)


@dataclasses.dataclass(frozen=True)
class Company:
    """A lot in which the first examples are the base's and the others are like this.

    ``ordinary`` company any model must bear; a model that can't be run in the company of infinite numbers or of marks that
    it does not know is not wrong. Where it can't be run in this one, it is in each ``instead``.
    """

    name: str
    lot: Any
    ordinary: bool = True
    instead: tuple["Company", ...] = ()


class Records:
    """Eight distinct examples, the base, and lots made around them."""

    def __init__(self, record_spec: Any, sample: Any = None, real: bool = False, positive: bool = False):
        self._spec, self._sample, self.real, self._positive = record_spec, sample, real, positive
        self._compared: list[float] = []  # what the model compares numbers with
        self._rng = np.random.default_rng(20190)
        self._values: dict[int, list[int]] = {}  # that integers may have, by the number of their leaf
        self._alone: dict[int, set[int]] = {}  # of those values, the ones that may mean something
        self._tops: dict[int, int] = {}  # the ends of their ranges
        self.base = self._rows_of_sample(range(ROWS)) if real else self._drawn(ROWS)

    def learn(self, runs: Callable[[Any], bool], ends: Iterable[int], compared: Iterable[float]) -> None:
        """Find which integers the model takes: marks, what the model is ``compared`` with, values of the sample, and the ``ends``
        of its tables and classes. Draw the base anew of them, if it is made up.

        A value is tried at every other place of an example: negative ones each by itself, then the others from the largest on. Below
        one that runs several are tried together.
        """
        self._compared = sorted(v for v in compared if not math.isnan(v))[:MOST_VALUES]
        near = {int(v) + step for v in self._compared if abs(v) < 2**31 for step in (-1, 0, 1)}
        for number, (_, spec) in enumerate(self._leaves()):
            if spec is not None and spec.dtype.is_integer:
                limits = np.iinfo(spec.dtype.as_numpy_dtype)
                candidates = {*MARKS, *ends, *near, *self._values_of_sample(number)}
                left = sorted(v for v in candidates if limits.min <= v <= limits.max)
                negative = [v for v in left if v < 0 and runs(self._with(number, [v]))]
                left = [v for v in left if v >= 0]
                while left and not runs(self._with(number, left[-1:])):
                    left.pop()
                found = [*negative, *self._borne(number, left, runs)]
                self._values[number], self._alone[number] = found, {*found[:1], *found[-1:], *MARKS, *near}
        if self.real:
            return
        for no_ends in ((), MARKS):  # 255 may be the last of a range, or stand for itself
            self._tops = {n: max([1, *(v for v in found if v not in no_ends)]) for n, found in self._values.items()}
            fresh = self._drawn(ROWS)
            if runs(fresh):
                self.base = fresh
                return
        self._values = {}

    # Lots.

    def rows(self, numbers: Iterable[int]) -> Any:
        """These of the base's examples."""
        return _take(self.base, list(numbers))

    def among(self, count: int, copies: int = 0, all_kinds: bool = False) -> Any:
        """The base and after it others, to a lot of that many; the last of them are copies of the base's first. Of ``all_kinds``
        a third has large features, and a third marks."""
        rest = count - ROWS - copies
        if not all_kinds:
            return _joined(_joined(self.base, self._others(rest)), self.rows([0] * copies))
        third = rest // 3
        large = self._changed(self._others(third), 0, lambda a: a * LARGE[0])
        marked = self._changed(self._others(third), 1, lambda a: np.full_like(a, PADDING[1]))
        for number, found in self._values.items():
            if found:
                marked = self._set(marked, number, [found[0]])
        return _joined(_joined(_joined(self.base, self._others(rest - 2 * third)), large), marked)

    def companies(self, kept: int) -> Iterator[Company]:
        """Lots of the base's size whose first ``kept`` examples are the base's."""
        rest = ROWS - kept
        made_up = not self.real

        def company(name: str, others: Any, ordinary: bool) -> Company:
            return Company(name, _joined(self.rows(range(kept)), others), ordinary)

        def all_of(part: int, value: float) -> Any:
            return self._changed(others, part, lambda a: np.full_like(a, value))

        others = self._others(rest)
        yield company("other examples", others, True)
        yield company("copies of one example", _take(self.base, [0] * rest), True)
        yield company("the same in another order", _take(self.base, [*range(kept + 1, ROWS), kept]), True)
        if self._has_floats(0):
            for factor in LARGE:
                yield company("large features", self._changed(others, 0, lambda a, f=factor: a * f), made_up)
            for value in PADDING:
                yield company("padding", all_of(0, value), made_up)
            for value in (math.nan, math.inf):
                yield company("numbers that are not finite", all_of(0, value), False)
            for value in self._compared:
                for side in (value - 1, value + 1):
                    yield company("features at a threshold", all_of(0, side), False)
        if self._has_floats(1):
            yield company("large labels", self._changed(others, 1, lambda a: a * LARGE_LABEL), False)
            for value in (*FLOAT_MARKS, *self._compared):
                yield company("marked labels", all_of(1, value), False)
        if self._has_floats(2):
            for value in (0.0, LARGE_WEIGHT):
                yield company("weights of all sizes", all_of(2, value), made_up)
        for values in itertools.zip_longest(*(self._groups(number, rest // ALIKE) for number in self._values)):
            sets = [(number, group) for number, group in zip(self._values, values, strict=True) if group]
            each = tuple(company("integers of their range", self._set(others, *one), False) for one in sets)
            together = others
            for number, group in sets:
                together = self._set(together, number, group)
            yield Company(each[0].name, _joined(self.rows(range(kept)), together), False, each if len(sets) > 1 else ())

    def _groups(self, number: int, most: int) -> list[list[int]]:
        """The values of a leaf: those that may mean something each by itself, of the others so many in a lot that each has several
        examples."""
        ordinary = [value for value in self._values[number] if value not in self._alone[number]]
        groups = [ordinary[start : start + most] for start in range(0, len(ordinary), most)]
        return [[value] for value in self._values[number] if value in self._alone[number]] + groups

    def _others(self, rows: int) -> Any:
        return self._rows_of_sample(range(rows)) if self.real else self._drawn(rows)

    # Examples.

    def _leaves(self) -> list[tuple[int, tf.TensorSpec]]:
        """Each leaf of a record with the number of its part: features, labels, weights."""
        return [(part, leaf) for part, structure in enumerate(self._spec) for leaf in keras.tree.flatten(structure)]

    def _drawn(self, rows: int) -> Any:
        leaves = [self._array(number, part, spec, rows) for number, (part, spec) in enumerate(self._leaves())]
        return keras.tree.pack_sequence_as(self._spec, leaves)

    def _array(self, number: int, part: int, spec: tf.TensorSpec | None, rows: int) -> np.ndarray | None:
        if spec is None:
            return None
        shape = [rows, *(3 if size is None else size for size in spec.shape[1:])]
        dtype, rng = spec.dtype.as_numpy_dtype, self._rng
        if spec.dtype.is_bool:
            return rng.random(shape) < 0.5
        if spec.dtype.is_integer:
            return self._integers(number, part, shape, dtype)
        if part == 0:
            values = rng.normal(size=shape).astype(dtype)
            values = np.abs(values) + np.asarray(0.1, dtype) if self._positive else values
            values *= np.resize([1.0, 1.0, 1.0, 0.3, 3.0], rows).reshape([-1, *[1] * (len(shape) - 1)]).astype(dtype)
            if len(shape) == 3 and rows > 2:  # a sequence: steps of zeros may be masked
                values[1, 0], values[2, -1] = 0, 0
            return values
        return (rng.random(shape) + (0.5 if part == 2 else 0.0)).astype(dtype)

    def _integers(self, number: int, part: int, shape: list[int], dtype) -> np.ndarray:
        """Rows of 0 and 1; where others are known, every second row of the whole range, and every fourth, the third first, with marks."""
        rng, known = self._rng, self._values.get(number, [])
        values = rng.integers(0, 2, shape)
        if known:
            top = self._tops[number]
            ranged = rng.integers(0, top + 1, shape)
            values[1::2] = ranged[1::2]
            marks = [value for value in known if not 0 <= value <= top or value in self._compared]
            if marks:
                marked = np.where(rng.random(shape) < 0.5, rng.choice(marks, shape), ranged)
                values[2::4] = marked[2::4]
        if len(shape) > 1 and part == 0:
            values[:, 0] = 1  # 0 is padding to many models, and an example of padding alone may have no defined loss
        return values.astype(dtype)

    def _borne(self, number: int, values: list[int], runs: Callable[[Any], bool]) -> list[int]:
        """Those of these values that the model takes: of several together, and of fewer where it does not run on them."""
        if not values or (len(values) <= ROWS and runs(self._with(number, values))):
            return values
        half = len(values) // 2
        return [v for part in (values[:half], values[half:]) for v in self._borne(number, part, runs)] if half else []

    def _with(self, number: int, values: list[int]) -> Any:
        """The base, or one example of it for one value: no other sizes, because libraries keep memory for every size that they have met."""
        lot = self.rows(range(ROWS if len(values) > 1 else 1))
        leaves = list(keras.tree.flatten(lot))
        flat = leaves[number].reshape([size_of(lot), -1])
        flat[:, ::2] = np.resize(values, [size_of(lot), 1])
        return keras.tree.pack_sequence_as(lot, leaves)

    def _set(self, others: Any, number: int, values: list[int]) -> Any:
        """One value all through each of them."""
        leaves = list(keras.tree.flatten(others))
        shape = leaves[number].shape
        by_row = np.resize(values, shape[0]).reshape([-1, *[1] * (len(shape) - 1)])
        leaves[number] = np.broadcast_to(by_row, shape).astype(leaves[number].dtype)
        return keras.tree.pack_sequence_as(others, leaves)

    def _changed(self, record: Any, part: int, change: Callable) -> Any:
        """The floating-point leaves of one part of a record, changed."""
        if part >= len(record):
            return record
        parts = list(record)
        parts[part] = map_tensors(lambda a: change(a) if _is_floating(a) else a, parts[part])
        return tuple(parts)

    def _has_floats(self, part: int) -> bool:
        return any(own == part and spec is not None and spec.dtype.is_floating for own, spec in self._leaves())

    def _values_of_sample(self, number: int) -> list[int]:
        """Some of the integers that real examples have in a leaf, the smallest and the largest among them."""
        if self._sample is None:
            return []
        values = np.unique(np.asarray(keras.tree.flatten(self._sample)[number]))
        return (
            [int(v) for v in values[np.unique(np.linspace(0, len(values) - 1, MOST_VALUES).astype(int))]]
            if len(values)
            else []
        )

    def _rows_of_sample(self, numbers: Iterable[int]) -> Any:
        """Real examples, over and over; backwards every second time."""
        size = size_of(self._sample)
        places = [n % size if (n // size) % 2 == 0 else size - 1 - n % size for n in numbers]
        return _take(self._sample, places)


def larger_than(size: int) -> int:
    """A lot somewhat larger than expected: four standard deviations of its size."""
    return size + math.ceil(4 * math.sqrt(size))


def all_moved(rows: int, seed: int) -> np.ndarray:
    """An order that moves all rows in one cycle: whichever places are treated in their own way, some row comes there or leaves."""
    cycle = np.random.default_rng(seed).permutation(rows)
    order = np.empty(rows, int)
    order[cycle] = np.roll(cycle, 1)
    return order


def size_of(record: Any) -> int:
    """How many examples a lot has."""
    return next(len(leaf) for leaf in keras.tree.flatten(record) if leaf is not None)


def in_order(record: Any, order: Iterable[int]) -> Any:
    """The same lot in another order."""
    return _take(record, list(order))


def _take(record: Any, rows: list[int]) -> Any:
    return map_tensors(lambda a: np.asarray(a)[rows], record)


def _joined(first: Any, second: Any) -> Any:
    return keras.tree.map_structure(lambda a, b: None if a is None else np.concatenate([a, b]), first, second)


def _is_floating(array: np.ndarray) -> bool:
    return tf.as_dtype(array.dtype).is_floating
