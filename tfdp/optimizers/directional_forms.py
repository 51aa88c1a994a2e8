"""Which mechanism the arguments of a directional optimizer mean."""

from typing import Any, NamedTuple

from tfdp.accounting import checks
from tfdp.mechanisms import (
    CompressedMechanism,
    DirectionalMechanism,
    GaussianMechanism,
    PrunedPublishedMechanism,
    PublishedMechanism,
    RandomSupportMechanism,
    SupportMechanism,
)

_FULL = ("direction_noise_multiplier", "direction_budget", "direction_steps")
_SOUND = ("direction", "moments", "s_min", "s_max", "decay", *_FULL)
_PRUNED_BEFORE = (*_SOUND, "pruning_ratio", "support_steps")
_RATIO = "write the share of all coordinates to prune, such as 0.9, which keeps the largest tenth"
_PUBLISHED = ("direction", "direction_budget", "direction_noise_multiplier")


class Form(NamedTuple):
    """A mechanism, the arguments of the optimizer that choose it, and those that it takes."""

    mechanism: type[GaussianMechanism]
    chosen_by: dict[str, Any]
    arguments: tuple[str, ...]


PLAIN = Form(DirectionalMechanism, {}, _SOUND)
COMPRESS = Form(CompressedMechanism, {"pruning": "compress"}, (*_SOUND, "pruning_ratio"))
SUPPORT = Form(SupportMechanism, {"pruning": "support"}, _PRUNED_BEFORE)
RANDOM = Form(RandomSupportMechanism, {"pruning": "random"}, _PRUNED_BEFORE)
PUBLISHED = Form(PublishedMechanism, {"as_published": True}, (*_PUBLISHED, "sigma_floor"))
PRUNED_PUBLISHED = Form(PrunedPublishedMechanism, {"as_published": True}, (*_PUBLISHED, "pruning_ratio"))
FORMS = (PLAIN, COMPRESS, SUPPORT, RANDOM, PUBLISHED, PRUNED_PUBLISHED)
ARGUMENTS = tuple({name: None for form in FORMS for name in (*form.chosen_by, *form.arguments)})
_PRUNED = {form.chosen_by["pruning"]: form for form in (COMPRESS, SUPPORT, RANDOM)}


def form_of(mechanism: GaussianMechanism) -> Form:
    """The form of a mechanism that these arguments made; of any other, the one that nothing chooses."""
    return next((form for form in FORMS if form.mechanism is type(mechanism)), PLAIN)


def check_target_of_published(arguments: dict[str, Any]) -> None:
    """Before noise and target are checked in general, which knows of other ways."""
    given = {name: arguments.get(name) for name in ("target_epsilon", "delta")}
    noises = [arguments.get(name) for name in ("noise_multiplier", "direction_noise_multiplier")]
    if any(noise is not None for noise in noises) or given["target_epsilon"] is None or given["delta"] is None:
        raise ValueError(
            "as_published=True finds its noise by the paper's formula, for a target: give target_epsilon= and delta=, and no "
            "noise_multiplier= and direction_noise_multiplier=."
        )


def chosen_form(arguments: dict[str, Any]) -> Form:
    """Takes what chooses a form out of the arguments.

    Raises:
        ValueError: arguments that do not go together.
    """
    as_published, pruning = arguments.pop("as_published", False), arguments.pop("pruning", None)
    checks.true_or_false("as_published", as_published)
    if pruning is not None and not checks.is_one_of(pruning, _PRUNED):
        raise ValueError(
            f'pruning must be "compress", "support" or "random" (or left out, which is "compress"), not {pruning!r}.'
        )
    prunes = checks.non_negative("pruning_ratio", arguments.get("pruning_ratio", 0.0), _RATIO) > 0
    if not prunes:
        arguments.pop("pruning_ratio", None)
        if pruning is not None:
            raise ValueError(f"pruning={pruning!r} needs pruning_ratio=, such as 0.9, which keeps the largest tenth.")
    if as_published and pruning is not None:
        raise ValueError(
            f"pruning={pruning!r} is not of the paper: as_published=True with pruning_ratio= has one form. Leave out pruning=, or "
            "as_published=True."
        )
    if as_published:
        form = PRUNED_PUBLISHED if prunes else PUBLISHED
    elif prunes:
        form = _PRUNED[pruning or "compress"]
    else:
        form = PLAIN
    _refuse_others(arguments, form)
    return form


def _refuse_others(arguments: dict[str, Any], form: Form) -> None:
    """An argument that only other forms take would go to the inner optimizer, which does not know it."""
    known = {name for other in FORMS for name in other.arguments}
    wrong = sorted(known & set(arguments) - set(form.arguments))
    if wrong:
        takers = [other for other in FORMS if wrong[0] in other.arguments]
        needed = " or ".join(dict.fromkeys(_written(other) for other in takers))
        raise ValueError(f"{wrong[0]}= goes with {needed}, not with {_written(form)}: leave it out.")


def _written(form: Form) -> str:
    chosen = [f"{name}={value!r}" for name, value in form.chosen_by.items()]
    return " and ".join(chosen + ["pruning_ratio="] * ("pruning_ratio" in form.arguments)) or "plain directional noise"
