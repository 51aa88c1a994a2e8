"""Every way of computing per-example gradients is right, whichever the engine would have chosen: each is forced in turn.

By default a selection of the zoo runs, with every family of cases and every rule in it. The whole zoo takes 45 minutes
with one worker::

    TFDP_FORCED_FORMS=all python -m pytest tests/gradients/test_forced_forms.py
"""

import os
from dataclasses import dataclass, field

import numpy as np
import pytest
import tensorflow as tf

from tests import model_zoo
from tests.gradients.one_step import SOME, assert_one_step_is_the_mean_of_the_clipped_gradients, prepared
from tests.gradients.test_factored import TOKENS, products, table_gradients
from tfdp.gradients import OuterSum, Plan, Rows
from tfdp.gradients.convolved import Convolved
from tfdp.gradients.factored import PerExampleGradient
from tfdp.gradients.forms import GRAM, MATERIALISED, UNIVERSAL, forced, form_of_norms, only_universal
from tfdp.gradients.plan import first_plan
from tfdp.gradients.rules import registry
from tfdp.optimizers import training
from tfdp.optimizers.proven import Proven

RULES_NO_REPRESENTATIVE_HAS = {
    "conv2d_with_groups",
    "depthwise_conv2d",
    "separable_conv2d",
    "conv2d_transpose",
    "conv_lstm_2d",
    "lstm",
    "rms_normalization",
    "prelu_with_and_without_shared_axes",
    "batch_normalization_called_in_inference_mode",
    "conv2d_with_lora",
    "dense_with_lora",
    "einsum_dense_with_lora",
    "embedding_with_lora",
    "reversible_embedding_untied",
}
OTHERS_HAVE_ITS_RULES = {
    "class_weights",
    "embedding_averaged_over_unmasked_tokens",
    "grouped_query_attention",
    "gru_with_reset_before",
    "loss_summed_over_the_lot",
    "dense_on_vectors",
    "weight_regularisers",
}
SELECTION = (model_zoo.REPRESENTATIVE_NAMES | RULES_NO_REPRESENTATIVE_HAS) - OTHERS_HAVE_ITS_RULES
NAMES = model_zoo.CASE_NAMES if os.environ.get("TFDP_FORCED_FORMS") == "all" else sorted(SELECTION)
# Its scope makes the tests of one case follow one another: a case is prepared once.
of_every_case = pytest.mark.parametrize("name", NAMES, scope="module")

# Where the self-proof moves weights off the rule of their family, whatever the form: some of them, or all that have one.
ROWS_ARE_NOT_EXAMPLES = "a layer's rows are not the examples, so the whole model is run an example at a time"
MOVED = {
    "sublayer_that_is_never_called": "the enclosing layer reads the weights of a layer that it does not call",
    "embedding_tied_to_the_output": "the enclosing layer multiplies by the table that its sublayer looks up",
    "dense_kernel_read_outside_its_layer": "the model itself reads the kernel of its layer",
    "weight_regulariser_of_a_shared_layer": "two uses cancel to 0 in a made-up record, and the norm's allowance remains",
    "rematerialised_layers": "a layer that is computed again in the backward pass runs outside the graph of the step",
}
ALL_MOVED = {
    "dense_on_flattened_sequences": ROWS_ARE_NOT_EXAMPLES,
    "dense_on_time_major_sequences": ROWS_ARE_NOT_EXAMPLES,
    "dense_on_time_major_sequences_as_long_as_the_lot": ROWS_ARE_NOT_EXAMPLES,
    "dense_on_flattened_time_major_sequences": ROWS_ARE_NOT_EXAMPLES,
    "embedding_of_flattened_ids": ROWS_ARE_NOT_EXAMPLES,
    "embedding_of_positions": ROWS_ARE_NOT_EXAMPLES,
    "dense_whose_inputs_are_its_own_kernel": "a call has no examples at all, so the whole model is run an example at a time",
    "only_an_added_loss": "the only loss is made inside the last layer: no gradient reaches that layer's output",
}
# Where no norm has two forms, though nothing was moved.
ONE_FORM = {
    "model_without_layers": "its only weight is the model's own, which has no rule but the universal one",
    "autoencoder_with_a_shared_kernel": "its product is added to the gradient that the universal rule built for the other use",
}


@dataclass
class Taken:
    """The plan that a fit was given, and how norms were taken: for every norm that has a choice, the forms whose code ran."""

    plan: Plan | None = None
    norms: list[set[str]] = field(default_factory=list)


CODE_OF = {
    GRAM: [(OuterSum, "_gram"), (Convolved, "_gram"), (Rows, "_gram")],
    MATERIALISED: [(OuterSum, "_products"), (Convolved, "_products"), (Rows, "materialise")],
}


@pytest.fixture
def taken(monkeypatch) -> Taken:
    """Filled while the test fits a model: the step that is traced after the proof, not the proof."""
    taken, open_norms = Taken(), []

    def noting(kind: type[PerExampleGradient], name: str, form: str):
        original = getattr(kind, name)

        def noted(self, *args, **kwargs):
            if open_norms:
                open_norms[-1].add(form)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(kind, name, noted)

    def collecting(kind: type[PerExampleGradient]):
        original = kind.squared_norms

        def collected(self, stretch=None):
            open_norms.append(set())
            try:
                return original(self, stretch)
            finally:
                taken.norms.append(open_norms.pop())

        monkeypatch.setattr(kind, "squared_norms", collected)

    def proved(*args, original=training.prove):
        taken.plan = original(*args)
        taken.norms.clear()
        return taken.plan

    monkeypatch.setattr(Proven, "covers", lambda *about: False)  # forms are forced: no proof of before holds
    for form, code in CODE_OF.items():
        for kind, name in code:
            noting(kind, name, form)
            if form == GRAM:
                collecting(kind)
    monkeypatch.setattr(training, "prove", proved)
    return taken


def rules_of(plan: Plan) -> set[tuple[int, str]]:
    """(weight, the rule of its layer's family), for every weight that has one."""
    sites = [] if plan.whole else plan.sites.values()
    return {(id(v), site.family.name) for site in sites if site.family for v in site.variables}


@pytest.mark.parametrize("form", [GRAM, MATERIALISED])
@of_every_case
def test_one_private_step_with_all_norms_in_one_form(name: str, form: str, taken: Taken):
    zoo = prepared(name)
    with forced(form):
        assert_one_step_is_the_mean_of_the_clipped_gradients(zoo, SOME)
    assert all(forms == {form} for forms in taken.norms)
    assert bool(taken.norms) == (name not in ALL_MOVED | ONE_FORM)
    # A form that failed would have been replaced by the universal rule.
    assert (rules_of(taken.plan) == rules_of(first_plan(zoo.model))) == (name not in MOVED | ALL_MOVED)


@of_every_case
def test_one_private_step_by_the_universal_rule_alone(name: str, taken: Taken):
    zoo = prepared(name)
    with forced(UNIVERSAL):
        assert_one_step_is_the_mean_of_the_clipped_gradients(zoo, SOME)
    assert taken.plan.whole or taken.plan.sites
    assert not rules_of(taken.plan)
    assert not taken.norms


@pytest.mark.parametrize("form", [GRAM, MATERIALISED])
@pytest.mark.parametrize("name", TOKENS)
def test_norms_of_looked_up_rows_are_those_of_the_written_out_table(name: str, form: str, taken: Taken):
    ids = np.array(TOKENS[name])
    d = np.random.default_rng(1).normal(size=(*ids.shape, 6)).astype("f4")
    expected = np.square(table_gradients(ids, d, 4)).sum((1, 2))
    with forced(form):
        found = Rows(ids, d, (4, 6)).squared_norms().numpy()
    assert np.all(found >= expected * (1 - 1e-6))
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    assert taken.norms == [{form}]


@pytest.mark.parametrize("form", [GRAM, MATERIALISED])
def test_a_product_at_one_place_obeys_as_well(form: str, taken: Taken):
    random = np.random.default_rng(2)
    a, d = random.normal(size=(4, 1, 1, 3)).astype("f4"), random.normal(size=(4, 1, 1, 5)).astype("f4")
    expected = np.square(products(a, d)).sum((1, 2, 3))
    with forced(form):
        found = OuterSum(a, d, (3, 5)).squared_norms().numpy()
    assert np.all(found >= expected * (1 - 1e-6))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert taken.norms == [{form}]


@pytest.mark.parametrize("form", [GRAM, MATERIALISED])
@pytest.mark.parametrize("digits", [2**-12, 2**-20, 0.0])
def test_the_norm_of_rows_that_cancel_is_not_understated(form: str, digits: float):
    """The places of a token cancel but for a few digits: the norm must cover the error of the sum that is really taken."""
    random = np.random.default_rng(3)
    half = random.normal(size=(32, 50, 8)).astype("f4") * 1e3
    d = np.concatenate([half, -half * np.float32(1 + digits)], 1)
    ids = np.tile(random.integers(0, 7, (32, 50)), 2)
    order = random.permutation(100)
    gradient = Rows(ids[:, order], d[:, order], (7, 8))
    with forced(form):
        norms = np.sqrt(gradient.squared_norms().numpy())
    for i in range(32):
        assert np.linalg.norm(np.float64(gradient.weighted_sum(tf.one_hot(i, 32)))) <= norms[i] * (1 + 1e-5)


def test_the_selection_has_every_rule_and_every_family_of_cases():
    cases = [model_zoo.get(name) for name in sorted(SELECTION)]
    assert {case.family for case in cases} == {model_zoo.get(name).family for name in model_zoo.CASE_NAMES}
    rules = {rule for case in cases for _, rule in rules_of(first_plan(case.build()))}
    ours = {rule for _, rule in registry._rules if rule.gradients.__module__.startswith("tfdp.")}
    assert rules == {rule.name for rule in ours}


def test_a_form_is_in_force_until_its_block_ends():
    with pytest.raises(ZeroDivisionError), forced(GRAM):
        with forced(UNIVERSAL):
            assert only_universal() and form_of_norms() is None
        assert form_of_norms() == GRAM and not only_universal()
        raise ZeroDivisionError
    assert form_of_norms() is None and not only_universal()


def test_a_form_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no form 'ghost'"), forced("ghost"):
        pass
