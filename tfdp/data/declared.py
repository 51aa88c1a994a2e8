"""tf.data pipelines of the user's own, with what the user says about how they sample."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from tfdp.accounting import Shuffled, checks
from tfdp.data import pipeline_graph
from tfdp.data.fixed_batches import passes_over

_FIXED_BATCHES = "Each record is in at most one batch of the PyDataset, until its on_epoch_end()."
_FIX = "Write it as dataset.shuffle(...).batch(batch_size).repeat()"


@dataclasses.dataclass(frozen=True)
class DeclaredDataset:
    """A dataset of batches that holds each record at most once a pass. Made by `declare_sampling`.

    Attributes:
        size: the number of records, as declared.
        batch_size: the largest number of records in a batch. Enforced while the dataset runs.
        steps_per_pass: the number of batches in one pass over the records.
        steps_per_epoch: the number of batches the dataset has, as in Keras; None if it repeats without end.
        unchecked: what could not be checked and stands on the user's word, as sentences.
        seeded: False. How batches are ordered plays no part in the claim.
    """

    size: int
    batch_size: int
    steps_per_pass: int
    steps_per_epoch: int | None
    unchecked: tuple[str, ...]
    _source: tf.data.Dataset = dataclasses.field(repr=False)
    seeded: bool = dataclasses.field(default=False, init=False)

    @property
    def sampling(self) -> Shuffled:
        return Shuffled(self.size, self.batch_size, self.steps_per_pass)

    @property
    def record_spec(self) -> tuple[Any, ...]:
        return _as_record(self._source.element_spec)

    def dataset(self) -> tf.data.Dataset:
        """An infinite dataset of `(record, present)`, one element a batch; all rows are present.

        A finite dataset is repeated, so that passes follow one another whole. Each new iteration begins a new
        pass: whoever counts passes counts the steps of every iteration by themselves, the last pass of each
        as whole.
        """
        repeated = self._source if self.steps_per_epoch is None else self._source.repeat()

        @tf.autograph.experimental.do_not_convert
        def with_presence(*element: Any) -> tuple[tuple[Any, ...], tf.Tensor]:
            return _with_presence(element, self.batch_size)

        return repeated.map(with_presence).prefetch(1)

    def head(self, rows: int) -> tuple[Any, ...]:
        """The first few records of a batch, as arrays: to build and check a model with."""
        element = next(iter(self._source.take(1)))
        record = _as_record(element)
        return tf.nest.map_structure(lambda leaf: leaf[:rows].numpy(), record)


def _with_presence(record: tuple[Any, ...], batch_size: int) -> tuple[tuple[Any, ...], tf.Tensor]:
    rows, *others = [tf.shape(leaf)[0] for leaf in tf.nest.flatten(record)]
    too_many = f"A batch has more than the declared batch_size={batch_size} records."
    checks = [tf.debugging.Assert(rows <= batch_size, [too_many])]
    for other in others:
        checks.append(tf.debugging.Assert(rows == other, ["The parts of a batch differ in length."]))
    with tf.control_dependencies(checks):
        return tf.nest.map_structure(tf.identity, record), tf.ones([rows], tf.bool)


def declare_sampling(
    dataset: tf.data.Dataset | keras.utils.PyDataset, how: str, *, size: int, batch_size: int
) -> DeclaredDataset:
    """Says how a dataset of one's own samples, so that it can be trained on and accounted for.

    "shuffled": a pass visits disjoint batches, so that a record enters at most one batch a pass. Accounted
    without amplification, whatever the order: a pass costs one release, and a pass that was only begun costs
    a whole one.

    Guarantees, where the pipeline can be seen: batches are made before passes are repeated; nothing in it
    makes the place of one record depend on the content of another; no zip() or concatenate() joins records that were
    moved before, and no map() reads records at random places, so that none enters twice; a pass has the number of batches that
    `size` and `batch_size` make. While it runs: no batch has more than `batch_size` records. All else is in
    `.unchecked`.

    The length of a pass matters for privacy: passes are counted as steps / length, rounded up, so a length
    that is too large leaves passes uncounted. Of 1000 records, `batch(32)` makes 32 batches a pass and
    `batch(32, drop_remainder=True)` makes 31. In the second case 64 steps reach into a third pass; by 32
    batches a pass only two would be counted. So the dataset's own count is taken, and where an endless
    dataset does not show it, the smaller of the two.

    Example:

    >>> ds = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10_000).batch(256)
    >>> declared = tfdp.data.declare_sampling(ds, "shuffled", size=len(x), batch_size=256)

    Args:
        dataset: gives batches of x, (x, y) or (x, y, sample_weight). Of a `keras.utils.PyDataset` nothing can be seen: that each
            record is in at most one of its batches, until `on_epoch_end()`, is your word.
        how: "shuffled".
        size: the number of records.
        batch_size: the number of records in a batch; the last one of a pass may have fewer.
    """
    _check_name(how)
    fixed = isinstance(dataset, keras.utils.PyDataset)
    if fixed:
        dataset = passes_over(dataset)
    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(
            f"A tf.data.Dataset is declared, or a keras.utils.PyDataset, not a {type(dataset).__name__}; fit takes arrays as they are."
        )
    sampling = Shuffled(size, batch_size, 1)  # checks both numbers
    size, batch_size = sampling.size, sampling.batch_size
    _check_batched(dataset.element_spec, batch_size)
    found = pipeline_graph.inspect(dataset, size)
    unchecked = [_FIXED_BATCHES] if fixed else list(found.unchecked)
    if not _check_record_count(found.record_counts, size):
        unchecked.append(f"The dataset holds {size} records.")
    steps_per_pass = _steps_per_pass(dataset, found.pass_batches, size, batch_size)
    if steps_per_pass is None:
        steps_per_pass = size // batch_size
        unchecked.append(f"Among any {steps_per_pass} batches from the start of a pass, no record comes twice.")
    total = int(dataset.cardinality())
    return DeclaredDataset(
        size=size,
        batch_size=batch_size,
        steps_per_pass=steps_per_pass,
        steps_per_epoch=None if total == tf.data.INFINITE_CARDINALITY else total,
        unchecked=tuple(unchecked),
        _source=dataset,
    )


def _check_name(how: str) -> None:
    if checks.is_one_of(how, ("shuffled",)):
        return
    reason = (
        "Poisson lots can't be declared, only drawn: give the records to fit or to tfdp.data.PoissonBatches"
        if "poisson" in str(how).lower()
        else "batches whose members are chosen in another way have no accounting here"
    )
    raise ValueError(
        f'{how!r} can\'t be declared. Allowed is "shuffled": each record at most once a pass, accounted '
        f"without amplification. {reason[0].upper()}{reason[1:]}."
    )


def _as_record(element: Any) -> tuple[Any, ...]:
    """As Keras reads an element: a tuple is (x,), (x, y) or (x, y, sample_weight), all else is x."""
    return element if isinstance(element, tuple) else (element,)


def _check_batched(element_spec: Any, batch_size: int) -> None:
    if len(_as_record(element_spec)) > 3:
        raise ValueError(
            f"The dataset gives tuples of {len(element_spec)}. An element is x, (x, y) or "
            "(x, y, sample_weight); several inputs go into a tuple or a dict of their own: ((input_1, "
            "input_2), y)."
        )
    for spec in tf.nest.flatten(element_spec):
        if not isinstance(spec, tf.TensorSpec):
            raise ValueError(
                f"The dataset gives a {type(spec).__name__}, not a dense tensor. Pad the records to one "
                "shape before batch()."
            )
        if spec.shape.rank is None:
            raise ValueError(f"The dataset gives tensors of unknown rank. Set their shape in a map(). {_FIX}.")
        if spec.shape.rank == 0 or (spec.shape[0] is not None and spec.shape[0] > batch_size):
            raise ValueError(
                f"The dataset gives elements of shape {spec.shape}, which are not batches of at most "
                f"{batch_size} records. {_FIX}."
            )


def _check_record_count(record_counts: frozenset[int], size: int) -> bool:
    """Whether the number of records was seen. A wrong one raises."""
    if tf.data.INFINITE_CARDINALITY in record_counts:
        raise ValueError(f"An endless dataset goes into batch(), so one batch may hold a record twice. {_FIX}.")
    seen = {count for count in record_counts if count >= 0}
    if seen - {size}:
        raise ValueError(f"size={size}, but {max(seen - {size})} records go into batch(). Write their number as size.")
    return bool(seen)


def _steps_per_pass(dataset: tf.data.Dataset, pass_batches: frozenset[int], size: int, batch_size: int) -> int | None:
    """Batches in a pass; None if the dataset is endless and does not show where a pass ends."""
    whole, full = -(-size // batch_size), size // batch_size
    total = int(dataset.cardinality())
    if tf.data.UNKNOWN_CARDINALITY in (total, *pass_batches):
        raise ValueError(
            "TensorFlow does not know how many batches a pass has. Say it, before repeat(): "
            f"dataset.apply(tf.data.experimental.assert_cardinality({whole})), or {full} if the remainder is "
            "dropped."
        )
    if len(pass_batches) > 1:
        raise ValueError("The datasets zipped together have passes of different lengths. Zip first, then repeat.")
    (length,) = pass_batches
    if length == tf.data.INFINITE_CARDINALITY:
        return None
    if length not in (whole, full):
        raise ValueError(
            f"A pass over the dataset has {length} batches, but {size} records in batches of {batch_size} "
            f"make {whole} (or {full} if the remainder is dropped). Correct size= or batch_size=."
        )
    if total > 0 and total % length:
        raise ValueError(
            f"The dataset ends inside a pass: {total} batches in passes of {length}. Leave out take() and "
            "skip() after batch(), and give fit steps_per_epoch= instead."
        )
    return length
