"""What one step released, as plain data.

An event describes a randomised release completely enough for an accountant to price it; it computes nothing.
The set is open: another mechanism adds a frozen dataclass derived from `Event` and teaches the accountants
its price (`tfdp.accounting.translation`), and says itself what the noise that is drawn lacks of the noise that
is priced (`Event.missing_tails_delta`): of an event that does not, nothing is proven. Rules that keep stored ledgers truthful: an event's meaning never
changes, a field is never removed, and a new field has a default under which old ledgers keep their meaning.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tfdp.accounting import checks
from tfdp.accounting.codebooks import Codebook
from tfdp.accounting.finite_support import finite_support_delta
from tfdp.accounting.noise_tails import noise_tails_delta
from tfdp.noise import Noise


@dataclasses.dataclass(frozen=True)
class Event:
    """Base of all events. Fields are plain JSON values: numbers, strings, booleans, None, tuples of these; or a noise
    or a codebook, which are described by such."""

    kinds: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "missing_tails_delta" not in cls.__dict__:  # of an event of its own, its parent knows nothing
            cls.missing_tails_delta = Event.missing_tails_delta
        Event.kinds[cls.__name__] = cls

    @property
    def at_worst(self) -> Event:
        """The event that accountants price: this one, or one that reveals at least as much."""
        return self

    def missing_tails_delta(self, weights: int, steps: int) -> float | None:
        """What it adds to delta, over so many steps, that the noise drawn for so many weights has an end and the noise that
        is priced has none. None: not known, and so nothing is proven of the steps.

        It is not inherited: a derived class may stand for other noise, and has to say so itself.
        """
        return None


@dataclasses.dataclass(frozen=True)
class GaussianEvent(Event):
    """A sum of contributions plus Gaussian noise.

    Every record contributes one vector of l2 norm at most C, and N(0, (noise_multiplier * C)^2 I) is added to
    the sum. A `noise_multiplier` of 0 is allowed, and costs infinity.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))

    def missing_tails_delta(self, weights: int, steps: int) -> float | None:
        return finite_support_delta(weights, steps, self.noise_multiplier)


@dataclasses.dataclass(frozen=True)
class GaussianOnGridEvent(GaussianEvent):
    """The same, rounded to whole multiples of a public number: contributions first, each moving the rounded sum by at most C,
    and then the noise. It costs what the Gaussian mechanism costs, and its last bits say nothing (`tfdp.mechanisms.grid`)."""

    def missing_tails_delta(self, weights: int, steps: int) -> float | None:
        """None are missing; what is paid for those of the Gaussian without a grid is more than enough."""
        return finite_support_delta(weights, steps, self.noise_multiplier)


@dataclasses.dataclass(frozen=True)
class EncodedEvent(Event):
    """A sum of encoded contributions plus noise of any family (Nasr et al. 2020).

    Every record contributes one vector that is, in units of the clip, in absolute value and in some order of its
    coordinates nowhere above one of the codebook's codewords; to each coordinate of the sum is added an independent
    draw of `noise`, in units of the clip too.
    """

    noise: Noise
    codebook: Codebook

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Noise):
            raise ValueError(f"noise must be a tfdp.noise.Noise such as StudentT(9, stddev=1.0), not {self.noise!r}")
        if not isinstance(self.codebook, Codebook):
            raise ValueError(f"codebook must be a Codebook such as Codebook(weights=26_000), not {self.codebook!r}")

    def missing_tails_delta(self, weights: int, steps: int) -> float | None:
        """A codeword is as long as there are weights."""
        return noise_tails_delta(self.noise, self.codebook, steps)


@dataclasses.dataclass(frozen=True)
class NotPrivateEvent(Event):
    """A release with no bound at all (ordinary training in between): its cost is infinite. `reason` says what
    it was."""

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason:
            raise ValueError(
                f"reason must be a non-empty string, not {self.reason!r}: say what was released without privacy"
            )


@dataclasses.dataclass(frozen=True)
class PublishedEvent(Event):
    """A step of an algorithm whose paper claims more than what was run gives.

    The paper claims that all planned steps together are (`claimed_epsilon`, `claimed_delta`)-differentially private;
    `reason` says, in one sentence, why that does not follow. What is proven is another matter: `noise_multiplier` is a
    bound that was known before the step. Whatever the records are, the step is at worst a Gaussian mechanism with
    that noise multiplier. None if there is no such bound: the step then costs infinity.

    `published_noise` is the noise that the paper's formula found for a share of the target, in units of the clip; what was run is
    held against it before the claim is repeated (`tfdp.accounting.published.claim_is_the_papers`). None if there is no formula.
    """

    claimed_epsilon: float
    claimed_delta: float
    reason: str
    noise_multiplier: float | None = None
    published_noise: float | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "claimed_epsilon", checks.target_epsilon(self.claimed_epsilon))
        object.__setattr__(self, "claimed_delta", checks.delta(self.claimed_delta))
        NotPrivateEvent(self.reason)  # checks it
        if self.noise_multiplier is not None:
            object.__setattr__(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))
        formula = "write what the paper's formula gave, or leave it out"
        if self.published_noise is not None:
            published = checks.non_negative("published_noise", self.published_noise, formula)
            object.__setattr__(self, "published_noise", published)
        object.__setattr__(
            self, "share", checks.positive("share", self.share, "write the share of the target, such as 1.0")
        )

    @property
    def at_worst(self) -> Event:
        return NotPrivateEvent(self.reason) if self.noise_multiplier is None else GaussianEvent(self.noise_multiplier)

    def missing_tails_delta(self, weights: int, steps: int) -> float | None:
        """No coordinate has less noise than at worst, and a record moves it by no more of that noise."""
        return self.at_worst.missing_tails_delta(weights, steps)


@dataclasses.dataclass(frozen=True)
class MicrobatchedEvent(Event):
    """A sum of encoded microbatches plus noise of any family (Nasr et al. 2020, algorithm 1, as published).

    The mean gradient of every `microbatch_size` examples is one vector under a codeword. The paper claims what an
    `EncodedEvent` of the same noise and codebook gives; nothing is known of what it does give.
    """

    noise: Noise
    codebook: Codebook
    microbatch_size: int

    def __post_init__(self) -> None:
        self.claimed  # noqa: B018 (checks noise and codebook)
        size = checks.count("microbatch_size", self.microbatch_size, "write how many examples are encoded as one", 2)
        object.__setattr__(self, "microbatch_size", size)

    @property
    def claimed(self) -> EncodedEvent:
        """What the paper takes it for."""
        return EncodedEvent(self.noise, self.codebook)

    @property
    def reason(self) -> str:
        """Why the claim does not follow, in one sentence."""
        return (
            f"Gradients were encoded {self.microbatch_size} examples at a time: one record more or less changes which examples "
            "share a microbatch, so that many encoded vectors change, each under a codeword in an order of its own, and not one "
            "as lemma 5 of the paper takes it"
        )

    @property
    def at_worst(self) -> Event:
        return NotPrivateEvent(self.reason)
