"""How the records of a step were chosen, as plain data, and which neighbouring data sets that choice speaks
of."""

from __future__ import annotations

import dataclasses
import enum
from typing import ClassVar

from tfdp.accounting import checks

_SIZE_ADVICE = "write the number of records, or None where it is not known"


class Relation(enum.StrEnum):
    """When two data sets are neighbours: the difference a claim of privacy hides.

    ZERO_OUT: same size, known to everyone; one record's content is replaced by nothing (it contributes zero).
    ADD_OR_REMOVE: one record more or less; the size itself is not revealed.
    REPLACE_ONE: same size; one record is replaced by any other record.
    """

    ZERO_OUT = "zero_out"
    ADD_OR_REMOVE = "add_or_remove"
    REPLACE_ONE = "replace_one"


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Base of all samplings. Fields are plain JSON values."""

    kinds: ClassVar[dict[str, type[Sampling]]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        Sampling.kinds[cls.__name__] = cls

    @property
    def relation(self) -> Relation:
        """The neighbouring relation under which a step with this sampling is priced."""
        raise NotImplementedError

    def _normalise_size(self, field: str = "size") -> None:
        size = getattr(self, field)
        if size is not None:
            object.__setattr__(self, field, checks.count(field, size, _SIZE_ADVICE, at_least=1))

    def _normalise_public_size(self) -> None:
        why = (
            "it says whether `size` is a public, rounded number that does not depend on the records; the number itself goes into "
            "`size`"
        )
        checks.true_or_false("public_size", self.public_size, why)  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Poisson(Sampling):
    """Each record enters the lot by its own coin of probability `sampling_rate`, drawn anew at every step.

    `size` is the number the rate was computed from. With `public_size=False` that is the number of records
    itself, so it is public and the relation is ZERO_OUT; with `public_size=True` it is a rounded number that
    does not depend on any one record, and the relation is ADD_OR_REMOVE. Both cost the same.
    """

    sampling_rate: float
    size: int | None = None
    public_size: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_rate", checks.sampling_rate(self.sampling_rate))
        self._normalise_size()
        self._normalise_public_size()

    @property
    def relation(self) -> Relation:
        return Relation.ADD_OR_REMOVE if self.public_size else Relation.ZERO_OUT


@dataclasses.dataclass(frozen=True)
class FullBatch(Sampling):
    """Every record takes part in every step: no amplification. `size`, `public_size`: as for `Poisson`."""

    size: int | None = None
    public_size: bool = False

    def __post_init__(self) -> None:
        self._normalise_size()
        self._normalise_public_size()

    @property
    def relation(self) -> Relation:
        return Relation.ADD_OR_REMOVE if self.public_size else Relation.ZERO_OUT


@dataclasses.dataclass(frozen=True)
class Shuffled(Sampling):
    """Fixed batches: a pass visits disjoint batches, a record takes part at most once a pass.

    No amplification is claimed, whatever the order: a pass costs one plain release, and a pass that was only
    begun costs a whole one.
    """

    size: int
    batch_size: int
    batches_per_pass: int

    def __post_init__(self) -> None:
        for field in ("size", "batch_size", "batches_per_pass"):
            number = checks.count(field, getattr(self, field), "write a whole number of at least 1", at_least=1)
            object.__setattr__(self, field, number)
        if self.batch_size > self.size:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds size {self.size}: a record would have to appear twice "
                "in a "
                "batch; write a batch_size of at most the number of records"
            )
        if self.batches_per_pass > self.size:
            raise ValueError(
                f"batches_per_pass {self.batches_per_pass} exceeds size {self.size}: in one pass every batch "
                "holds "
                "at least one record that no other batch holds"
            )

    @property
    def relation(self) -> Relation:
        return Relation.ZERO_OUT


@dataclasses.dataclass(frozen=True)
class FixedSize(Sampling):
    """Each step draws exactly `batch_size` of the `size` records, uniformly, without replacement, anew.

    The relation is REPLACE_ONE: one record turns into another one, so that the sum moves by up to twice the
    clip. The accountants price that; an event under this sampling keeps its noise multiplier in units of one
    clip.
    """

    size: int
    batch_size: int

    def __post_init__(self) -> None:
        for field in ("size", "batch_size"):
            number = checks.count(field, getattr(self, field), "write a whole number of at least 1", at_least=1)
            object.__setattr__(self, field, number)
        if self.batch_size > self.size:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds size {self.size}: drawing without replacement needs "
                "at least "
                "batch_size records"
            )

    @property
    def relation(self) -> Relation:
        return Relation.REPLACE_ONE
