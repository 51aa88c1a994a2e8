"""Made-up examples of a data set's shape, for the self-proof."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.layer_tree import map_tensors
from tfdp.gradients.state import StateAssigned

LARGE = 1e4
PADDING = (0.0, -1.0)  # what stands for "nothing here" in many data sets


def made_up_records(record_spec: Any, sample: Any, loss_is_finite: Callable[[Any], bool]) -> "Records":
    """Made-up records if the model gives them a finite loss, else real ones.

    Numbers are drawn at random, with steps of zeros in some sequences; integers are 0 or 1, which every table of tokens and
    every set of classes has. Where the model does not run on such (strings; labels that must start at 1), the real records in
    ``sample`` take their place.
    """
    rng = np.random.default_rng(20190)
    if not any(spec.dtype == tf.string for spec in keras.tree.flatten(record_spec)):
        made_up = [_record(record_spec, rng, 8) for _ in range(2)]
        try:
            if loss_is_finite(made_up[0]):
                return Records(made_up, record_spec)
        except StateAssigned:
            raise
        except Exception:
            if sample is None:
                raise
    if sample is None or not loss_is_finite(sample):
        raise ValueError(
            "The model gives no finite loss, neither to made-up examples nor to the first records of the data, so its "
            "per-example gradients can't be checked before the first step. Look for a logarithm, root or division that "
            "ordinary numbers break, and for NaN in the data."
        )
    return Records([sample, keras.tree.map_structure(lambda a: a[::-1], sample)], record_spec, real=True)


def _record(spec: Any, rng: np.random.Generator, rows: int) -> Any:
    return tuple(
        keras.tree.map_structure(lambda s, part=part: _array(s, rng, rows, part), leaf)
        for part, leaf in enumerate(spec)
    )


def _array(spec: tf.TensorSpec, rng, rows: int, part: int) -> np.ndarray:
    shape = [rows, *(3 if size is None else size for size in spec.shape[1:])]
    dtype = spec.dtype.as_numpy_dtype
    if spec.dtype.is_bool:
        return rng.random(shape) < 0.5
    if spec.dtype.is_integer:
        values = rng.integers(0, 2, shape).astype(dtype)
        if len(shape) > 1 and part == 0:
            values[:, 0] = 1  # 0 is padding to many models, and an example of padding alone may have no defined loss
        return values
    if part == 0:
        values = rng.normal(size=shape).astype(dtype)
        if len(shape) == 3:  # a sequence: steps of zeros may be masked
            values[1, 0], values[2, -1] = 0, 0
        return values
    return (rng.random(shape) + (0.5 if part == 2 else 0.0)).astype(dtype)


class Records:
    """Lots made of the same first example and other company."""

    def __init__(self, draws: list[Any], record_spec: Any, real: bool = False):
        self._draws = draws
        self._spec = record_spec
        self._real = real

    def coverage_lots(self) -> tuple[Any, Any]:
        """One example alone, and three."""
        return self.alone(0), self._rows(self._draws[0], [0, 1, 2])

    def alone(self, row: int) -> Any:
        """One example by itself."""
        return self._rows(self._draws[0], [row])

    def lots_of_one_among_others(self) -> Iterator[list[Any]]:
        """The first lot is an example alone, the others are the same example among others."""
        for this, other in (self._draws, self._draws[::-1]):
            company = [self._rows(this, [0]), self._rows(this, [0, 1, 2]), self._rows(this, [0, 0, 0, 0])]
            company.append(self._joined(this, other, [1, 2, 3, 4]))
            if not self._real:
                company.append(self._joined(this, other, [1, 2], LARGE))
                company.append(self._joined(this, other, [3, 4, 5], -LARGE))
                company += [self._joined(this, other, [1, 2, 3], 0, padding) for padding in PADDING]
            yield company

    def lots_in_changing_company(self) -> Iterator[tuple[int, list[Any]]]:
        """Lots of one size with the same example at the same place (which is given), the others changing."""
        for this, other in (self._draws, self._draws[::-1]):
            companies = [self._rows(this, [1, 2, 3]), self._rows(other, [4, 5, 6]), self._rows(this, [0, 0, 0])]
            if not self._real:
                companies += [self._scaled(companies[1], factor) for factor in (LARGE, -LARGE)]
                companies += [self._scaled(companies[1], 0, padding) for padding in PADDING]
            for place in (0, 3):
                yield place, [self._at(place, self._rows(this, [0]), company) for company in companies]

    def _at(self, place: int, example: Any, company: Any) -> Any:
        return keras.tree.map_structure(lambda e, c: tf.concat([c[:place], e, c[place:]], 0), example, company)

    @staticmethod
    def size(record: Any) -> int:
        return keras.tree.flatten(record)[0].shape[0]

    def _rows(self, record, rows):
        count = self.size(record)
        return keras.tree.map_structure(lambda a: tf.convert_to_tensor(a[[r % count for r in rows]]), record)

    def _joined(self, first, others, rows, factor=1, shift=0):
        others = self._scaled(self._rows(others, rows), factor, shift)
        return keras.tree.map_structure(lambda a, b: tf.concat([a, b], 0), self._rows(first, [0]), others)

    @staticmethod
    def _scaled(record, factor, shift=0):
        def scaled(a):
            return a * tf.cast(factor, a.dtype) + tf.cast(shift, a.dtype) if a.dtype.is_floating else a

        features, *rest = record
        return (map_tensors(scaled, features), *rest)
