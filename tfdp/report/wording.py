"""A statement in words: at most 100 columns, for people who were not there."""

from __future__ import annotations

from tfdp.accounting import (
    EncodedEvent,
    FixedSize,
    FullBatch,
    GaussianEvent,
    GaussianOnGridEvent,
    Line,
    MicrobatchedEvent,
    Poisson,
    PublishedEvent,
    Relation,
    Shuffled,
    Status,
    Tradeoff,
    epsilon_delta_tradeoff,
    tradeoff,
)
from tfdp.accounting.claims import MEMBERSHIP, Claim, in_short, rounded_up, section
from tfdp.report.claims import INFORMATION
from tfdp.report.facts import Facts
from tfdp.report.not_protected import Limit

_NEIGHBOURS = {
    Relation.ZERO_OUT: "data sets of the same, publicly known size, in one of which one record's content is replaced by "
    "nothing",
    Relation.ADD_OR_REMOVE: "data sets of which one has one record more; the number of records is not revealed",
    Relation.REPLACE_ONE: "data sets of the same, publicly known size, in one of which one record is replaced by another",
}


def text(
    facts: Facts,
    claims: tuple[Claim, ...],
    best: Claim | None,
    meant: str,
    delta: float | None,
    limits: tuple[Limit, ...],
) -> str:
    blocks = [
        ["Privacy statement", "================="],
        [to_report(claims, best, facts.trained_before)],
        section("What was released", _released(facts)),
        section("What is claimed", [*_basis(facts, claims, delta), *_claims(claims)]),
        section("What it means to a person", [meant]),
        section("Not protected", [limit.text for limit in limits]),
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def to_report(claims: tuple[Claim, ...], best: Claim | None, trained_before: int = 0) -> str:
    """The one number that the run may be named by, with its condition, or that there is none."""
    if best is None:
        return f"Nothing is proven: the first claim below is {str(claims[0].status).upper()}, and says why."
    at = "" if best.delta is None else f" at delta = {rounded_up(best.delta)}"
    of_what = ", of the private steps alone: ordinary training came before" if trained_before else ""
    return f"Report this: epsilon = {rounded_up(best.epsilon, 3)}{at} (proven{of_what})."


def _released(facts: Facts) -> list[str]:
    between = {record.schedule.kind for record in facts.fits if record.schedule}
    lines = [_line(line, (line.event, line.sampling) in between) for line in facts.ledger if line.steps]
    unchecked = dict.fromkeys(sentence for record in facts.fits for sentence in record.unchecked)
    nothing = "Nothing." if facts.private_optimizer else "The weights as they are: nothing was noised."
    if facts.trained_before:
        calls = _counted(facts.trained_before, "call")
        before = (
            f"WARNING: before the first private step the weights had ordinary training, without noise ({calls} of fit or train_on_batch): right on "
            "public records; if it was on the same records, nothing is private."
        )
        lines = [before, *(lines or [nothing])]
    return (lines or [nothing]) + [f"Assumed, not checked: {sentence}" for sentence in unchecked]


def _line(line: Line, between: bool) -> str:
    if isinstance(line.event, PublishedEvent):
        noise = _published_noise(line.event)
    elif isinstance(line.event, GaussianEvent):
        noise = f"Gaussian noise of {line.event.noise_multiplier:.4g} times the clip"
        if isinstance(line.event, GaussianOnGridEvent):
            noise += ", both rounded to a public grid"
    elif isinstance(line.event, EncodedEvent | MicrobatchedEvent):
        return f"{_counted(line.steps, 'step')}: {_encoded(line.event)}; {_sampling(line)}."
    else:
        return f"{_counted(line.steps, 'step')}: {getattr(line.event, 'reason', type(line.event).__name__)}."
    what = "release" if between else "step"
    when = " between the steps, on a schedule fixed before the first one" if between else ""
    return f"{_counted(line.steps, what)}{when}: sums of clipped gradients with {noise}; {_sampling(line)}."


def _encoded(event: EncodedEvent | MicrobatchedEvent) -> str:
    what = "sums of gradients"
    if isinstance(event, MicrobatchedEvent):
        what = f"sums of mean gradients of {event.microbatch_size} examples each,"
    book = event.codebook
    return (
        f"{what} encoded under {book.size:,} public codewords of {book.weights:,} weights, with noise {event.noise} in units of "
        "the clip"
    )


def _published_noise(event: PublishedEvent) -> str:
    least = "no bound on it is known beforehand"
    if event.noise_multiplier is not None:
        least = f"known beforehand to be no less than {event.noise_multiplier:.4g} times the clip"
    target = f"target_epsilon={event.claimed_epsilon:g} at delta={event.claimed_delta:g}"
    return f"the Gaussian noise that Xiang et al. 2021 (algorithm 1) find for {target}, {least}"


def _sampling(line: Line) -> str:
    sampling = line.sampling
    size = f"{sampling.size:,}" if getattr(sampling, "size", None) else "an unknown number of"
    if isinstance(sampling, Poisson):
        public = " (a public, rounded number)" if sampling.public_size else ""
        return f"lots drawn by Poisson sampling, each of {size} records{public} with probability {_percent(sampling.sampling_rate)}"
    if isinstance(sampling, Shuffled):
        return (
            f"passes over batches of {sampling.batch_size:,} of {size} records, each record at most once a pass (as declared, or as read from the pipeline); "
            f"{_counted(line.passes, 'pass', 'passes')}, one that was only begun counted whole"
        )
    if isinstance(sampling, FixedSize):
        return f"lots of exactly {sampling.batch_size:,} of {size} records, drawn without replacement"
    if isinstance(sampling, FullBatch):
        return f"each used every one of {size} records"
    return f"records chosen by {type(sampling).__name__}"


def _basis(facts: Facts, claims: tuple[Claim, ...], delta: float | None) -> list[str]:
    """What all membership claims have in common."""
    if claims[0].status is Status.NONE:
        return []
    found = [
        f"About {MEMBERSHIP}, against whoever sees all releases and the final weights: {told_apart(facts.ledger.relation)}."
    ]
    if delta is not None and not facts.size:
        found.append(
            f"delta = {delta:.3g}; the number of records is not known. Let delta be well below 1 / that number."
        )
    elif delta is not None:
        share = delta * facts.size
        found.append(f"delta = {delta:.3g} is {share:.2g} times 1 / (number of records), {facts.size:,} records.")
        if share >= 1:
            found[-1] += (
                " WARNING: that is too large. A mechanism that publishes a whole record at random would satisfy it. Give a "
                "smaller delta."
            )
    return found


def told_apart(relation: Relation) -> str:
    """What no claim lets an attacker do, for two data sets in this relation."""
    return f"it can't be told well which of two neighbouring data sets was trained on. Neighbours are {_NEIGHBOURS[relation]}"


def _claims(claims: tuple[Claim, ...]) -> list[str]:
    """A reason is said once: of the claims after it, that it is theirs as well."""
    said: set[str] = set()
    found = []
    for claim in claims:
        found.append(_claim(claim, [reason for reason in claim.reasons if reason not in said], said))
        said |= set(claim.reasons)
    return found


def _claim(claim: Claim, new: list[str], said: set[str]) -> str:
    if claim.protects == INFORMATION:
        sentences = [f"{str(claim.status).upper()}: {claim.protects}, {claim.how}."]
    else:
        sentences = [f"{in_short(claim)} ({claim.how})."]
    sentences += [f"{reason.rstrip('.')}." for reason in new]
    if said & set(claim.reasons):
        sentences.append("See the claims above for what else it depends on.")
    return " ".join(sentences)


def meaning(facts: Facts, claims: tuple[Claim, ...], best: Claim | None) -> str:
    if best is None:
        return "No number is given here: there is no proven claim."
    if best.epsilon == 0 and not facts.ledger.steps:
        return "PROVEN: nothing can be learnt from releases that were not made."
    if best is claims[0]:
        accountant = best.how.split(":")[0]
        curve, missing = tradeoff(facts.priced, accountant=accountant), facts.price_of_tails(facts.priced)
    else:
        curve, missing = epsilon_delta_tradeoff([(best.epsilon, best.delta)]), 0.0
    found = accusations(curve, missing)
    return f"{found} All this is of the private steps alone." if facts.trained_before else found


def accusations(curve: Tradeoff, missing: float) -> str:
    """A proven trade-off curve in people found; ``missing`` is what the noise's missing tails add to every share."""
    bounds = (curve.true_positive_rate(0.001), curve.true_positive_rate(0.01), curve.advantage)
    *found, advantage = (f"{rounded_up(100 * min(1.0, bound + missing))} %" for bound in bounds)
    return (
        f"PROVEN: whoever accuses people of having been in the data, knowing everything but that, finds at most {found[0]} of "
        f"those who were while accusing 0.1 % of those who were not ({found[1]} while accusing 1 %). True minus false "
        f"accusations are at most {advantage}; 0 % is guessing, 100 % is certainty."
    )


def _counted(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
