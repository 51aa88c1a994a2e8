"""A tf.data.Dataset that fit was given as it is: its lots, as far as it can be seen how it samples."""

import dataclasses

import tensorflow as tf

from tfdp.data.declared import DeclaredDataset, declare_sampling
from tfdp.data.numbered import NotNumbered
from tfdp.data.pipeline_graph import BATCHING, ONE_OUT_OF_ONE, OWN_ELEMENT, inspect
from tfdp.data.pipeline_joins import TOGETHER
from tfdp.data.pipeline_nodes import cardinality_of, kind_of, ways_of
from tfdp.data.pipeline_records import FromPipeline
from tfdp.data.poisson import PoissonBatches

_SEEN = {ONE_OUT_OF_ONE, f"{TOGETHER}."}  # what is left to the user's word, because no pipeline can show it
_CURE = (
    "Give fit the arrays, or a dataset made by from_tensor_slices(), zip(), map(), cache(), shuffle(), batch() and repeat(), as those of "
    "keras.utils are: lots are then drawn for you. Or say how it samples: "
    'tfdp.data.declare_sampling(dataset, "shuffled", size=number_of_records, batch_size=...)'
)


@dataclasses.dataclass(frozen=True)
class Understood:
    """What a dataset was understood as.

    Attributes:
        lots: of its records.
        steps_per_epoch: its number of batches, as in Keras; None if it has no end.
        said: a sentence for the user on what becomes of the dataset.
    """

    lots: PoissonBatches | DeclaredDataset
    steps_per_epoch: int | None
    said: str


def understood(dataset: tf.data.Dataset, public_size: int | None = None) -> Understood:
    """Poisson lots of the dataset's records where they can be read by number; else passes over batches, if it is seen to give these.

    Raises:
        ValueError: neither, with the reasons and what to write.
    """
    if cardinality_of(dataset) == 0:
        raise ValueError(
            "The dataset has no batch. Of batch(drop_remainder=True) that is so if there are too few records."
        )
    try:
        records = FromPipeline(dataset)
    except NotNumbered as reason:
        if public_size is not None:
            raise ValueError(f"public_size needs records that are read by number, but {reason}. {_CURE}.") from None
        return _passes(dataset, str(reason))
    if records.batch_size is None:
        raise ValueError(
            "The dataset has no batch(): write dataset.batch(batch_size), which says how many records a step has."
        )
    lots = PoissonBatches(records, batch_size=records.batch_size, public_size=public_size)
    batches = cardinality_of(dataset)
    known = lots.steps_per_epoch if batches == tf.data.UNKNOWN_CARDINALITY or public_size is not None else batches
    number = "" if public_size is not None else f"{records.size:,} "
    said = (
        f"tfdp draws the lots from the {number}records of the dataset, each joining each lot by chance ({lots.batch_size:,} are "
        "expected), in place of its shuffle() and batch(). One record is one element of the dataset; map() runs on each alone."
    )
    return Understood(lots, None if known == tf.data.INFINITE_CARDINALITY else known, said)


def _passes(dataset: tf.data.Dataset, reason: str) -> Understood:
    counts = {
        (cardinality_of(way[place + 1]), int(way[place]._batch_size))
        for way in ways_of(dataset)
        for place, node in enumerate(way[:-1])
        if kind_of(node) in BATCHING and hasattr(node, "_batch_size")
    }
    cause = f"How this tf.data.Dataset samples its batches can't be seen, and the privacy of the run depends on it: {reason}"
    size, batch_size = counts.pop() if len(counts) == 1 else (tf.data.UNKNOWN_CARDINALITY, 1)
    try:
        if size < 1:
            inspect(dataset, 1)  # what is refused whatever the size
            raise ValueError("It does not show how many records a pass has.")
        declared = declare_sampling(dataset, "shuffled", size=size, batch_size=min(batch_size, size))
    except ValueError as error:
        raise ValueError(f"{cause}. It can't be taken as passes over the records either. {error} {_CURE}.") from None
    doubts = [sentence for sentence in declared.unchecked if sentence not in _SEEN]
    if doubts:
        raise ValueError(
            f"{cause}. It could be gone through pass by pass, but then this would have to hold, and can't be seen: {' '.join(doubts)} "
            f"{_CURE}."
        ) from None
    if declared.unchecked:
        declared = dataclasses.replace(declared, unchecked=(*declared.unchecked, f"{OWN_ELEMENT}."))
    said = (
        f"tfdp takes the batches of the dataset as they are, a pass over its {size:,} records after the other, and accounts for them "
        f"without amplification: {reason}. One record is one element of what is batched. Arrays, or a dataset whose records can be "
        "read by number, would give more privacy at the same noise."
    )
    return Understood(declared, declared.steps_per_epoch, said)
