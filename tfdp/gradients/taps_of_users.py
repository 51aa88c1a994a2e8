"""Rules of users' own: where they tap a layer, the layer must give what it gives without them.

The self-proof differentiates the model as it is tapped, so it can't see this. The rules of tfdp are compared with untapped layers by
its tests.
"""

import numpy as np
import tensorflow as tf

from tfdp.gradients.engine import Forward
from tfdp.gradients.plan import Plan
from tfdp.gradients.recording import RuleFailed
from tfdp.gradients.trial import Trial, unpacked


def check_taps_of_users(trial: Trial, plan: Plan) -> None:
    """Raises ValueError where the examples' losses are other ones with the taps of a user's rule."""
    for key, site in plan.sites.items():
        if site.family is None or site.family.gradients.__module__.startswith("tfdp."):
            continue
        try:
            found = _losses(trial, Plan({key: site}))
        except RuleFailed:  # the self-proof puts another in its place
            continue
        if not trial.close([found], [_losses(trial, Plan({}))]):
            raise ValueError(
                f"The rule {site.family.name!r} changes what the layer {site.layer.name!r} ({type(site.layer).__name__}) gives: the tap "
                "at_pre_activation is for layers whose call ends with their attribute `activation`, applied once. Register the rule with "
                "tap=tfdp.gradients.at_output."
            )


def _losses(trial: Trial, plan: Plan) -> np.ndarray:
    """The examples' own."""

    @trial.function
    def own(record, place, secret):
        with tf.GradientTape() as tape:
            return Forward(tape, trial.model, plan, *unpacked(record), secret).losses.own()

    return trial.run(own, trial.records.base, 0, trial.secret)
