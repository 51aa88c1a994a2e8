"""MirroredStrategy: the noise of all replicas together is that of one, and so is everything else."""

import numpy as np
import pytest

import tfdp
from tests.distribution import cases, on_paper
from tests.optimizers import tiny


def of(found: dict, case: str):
    assert "found" in found[case], found[case]
    return found[case]["found"]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_step_has_the_noise_of_one_device(on_devices, replicas):
    """With weights of 0 for all records the changes are noise alone: their squares sum to a chi-square."""
    found = of(on_devices, f"noise {replicas}")
    assert on_paper.is_chi_square(found["squares"], found["draws"])


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_all_replicas_hold_the_same_weights(on_devices, replicas):
    assert of(on_devices, f"noise {replicas}")["copies are equal"]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_step_is_counted_once_whatever_the_number_of_replicas(on_devices, replicas):
    found = of(on_devices, f"noise {replicas}")
    assert found["steps"] == found["iterations"] == 1


def test_an_epoch_of_poisson_lots_without_noise_is_that_of_one_device(on_devices):
    """Lots of many sizes, dealt out unevenly: weights and metrics are those of the lots' records, by hand."""
    found = of(on_devices, "epoch_of_poisson_lots")
    lots = [(x.numpy(), y.numpy()) for (x, y), _ in cases.lots().dataset().take(11)]
    assert any(len(x) % 4 for x, _ in lots)
    weights, loss, mae = on_paper.epoch(tiny.linear().get_weights(), lots, expected=20)
    on_paper.assert_close(found["weights"], weights)
    np.testing.assert_allclose(found["history"]["loss"], [loss], rtol=1e-5)
    np.testing.assert_allclose(found["history"]["mae"], [mae], rtol=1e-5)
    assert found["copies are equal"]


def test_three_records_on_four_replicas_are_three_records(on_devices):
    """With a loss of the model's own, which Keras scales in replicas, and parts without any row."""
    expected = tiny.after_sgd(tiny.linear().get_weights(), tiny.X[:3], tiny.Y[:3], steps=2)
    on_paper.assert_close(of(on_devices, "three_records_on_four"), expected)


def test_a_model_that_is_compiled_again_goes_on(on_devices):
    """What was proven of its replicas is compared with what they do now."""
    expected = tiny.after_sgd(tiny.linear().get_weights(), tiny.X, tiny.Y, steps=2)
    on_paper.assert_close(of(on_devices, "compiled_again"), expected)


def test_empty_lots_are_noised_and_counted(on_devices):
    found = of(on_devices, "empty_lots")
    assert np.all(np.isfinite(found["moves"])) and np.all(np.asarray(found["moves"]) != 0)
    assert np.all(np.isfinite(found["loss"]))
    assert found["steps"] == 3


def test_what_the_inner_optimizer_does_is_what_it_does_on_one_device(on_devices):
    """Adam with weight decay, clipnorm and averages; a layer without a rule, regularised and constrained; compiled by XLA."""
    alone, on_two = of(on_devices, "adam")
    on_paper.assert_close(on_two, alone)


@pytest.mark.parametrize("mechanism", ["AdaClip", "encoded"])
def test_other_mechanisms_go_on_from_their_releases_as_on_one_device(on_devices, mechanism):
    on_two, alone = of(on_devices, f"mechanism {mechanism}")
    on_paper.assert_close(on_two, alone)


def test_noise_on_a_support_stays_within_it(on_devices):
    found = of(on_devices, "on_a_support")
    assert np.all(np.isfinite(found["weights"]))
    assert found["moved"] == 2  # of four coordinates, between two dense steps


def test_a_budget_ends_the_run_after_the_steps_that_fit(on_devices):
    found = of(on_devices, "budget_and_dropout")
    rate = 20 / cases.RECORDS
    fitting = tfdp.accounting.max_steps(target_epsilon=9.0, delta=1e-5, sampling_rate=rate, noise_multiplier=1.0)
    assert found["steps"] == found["loaded"] == fitting
    assert 10 < fitting < 500
    assert found["epsilon"] <= 9.0


def test_gradients_that_are_not_finite_are_counted_over_all_replicas(on_devices):
    found = of(on_devices, "not_finite")
    assert found["counted"] == 2
    expected = tiny.after_sgd(found["start"], tiny.X[1:7], tiny.Y[1:7], lot=tiny.SIZE)
    on_paper.assert_close(found["weights"], expected)


def test_where_one_replica_refuses_a_step_none_takes_it(on_devices):
    """The noise might be in the part that is missing."""
    assert of(on_devices, "one_refuses") == {"moved": False, "steps": 0}


def test_a_record_moves_a_step_by_one_clip_however_its_lot_is_dealt_out(on_devices):
    """In uneven parts, physical batches, by XLA; alone, beside an empty part; beside a part of which nothing is finite."""
    found = of(on_devices, "shares")
    some = found.pop("the first part not finite")
    assert not any(some[:6]) and some[6:] == pytest.approx(5 * [1.0], rel=1e-5)
    alone = found.pop("one record")
    assert alone == pytest.approx([1.0] + 10 * [0.0], rel=1e-5)
    for way, moved in found.items():
        assert moved == pytest.approx(11 * [1.0], rel=1e-5), way


def test_a_record_is_in_at_most_one_part_of_a_lot_of_chance(on_devices):
    moved = np.array(of(on_devices, "lots_of_chance"))
    assert set(np.round(moved, 2).ravel()) == {0.0, 1.0}
    often = moved.mean(0)  # rate 4 / 11 in 100 steps
    assert np.abs(often - 4 / 11).max() < 5 * np.sqrt(4 / 11 * 7 / 11 / 100)


def test_steps_that_are_taken_again_have_noise_of_their_own(on_devices):
    found = of(on_devices, "rewound")
    assert found["likeness"] < 6 / np.sqrt(found["draws"])
    assert found["steps"] == [3, 2]


def test_validation_of_lots_that_can_not_be_dealt_out_evenly_is_that_of_one_device(on_devices):
    on_four, alone = of(on_devices, "validated")
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(on_four[name], alone[name], rtol=1e-5)


def test_a_declared_data_set_is_dealt_out_to_two_devices(on_devices):
    assert of(on_devices, "declared") == {"steps": 6, "passes": 2}


SAID = {
    "model_outside": "inside `with strategy.scope",
    "optimizer_outside": "inside `with strategy.scope",
    "inner_optimizer_outside": "inside `with strategy.scope",
    "other_strategy": "MirroredStrategy",
    "full_gradient": "noisy_gradient",
    "microbatches": "microbatch_size=1",
    "pruned_as_published": "as_published",
    "grid": "sum before the noise",
    "executions": "steps_per_execution",
    "batch_normalisation": "GroupNormalization",
    "asks_which_replica": "which replica",
}


@pytest.mark.parametrize("case", SAID)
def test_what_does_not_work_is_refused_before_anything_moves(on_devices, case):
    refused = on_devices[f"refused {case}"]
    assert refused["error"] in ("ValueError", "StateAssigned", "MixesExamples"), refused
    assert SAID[case] in refused["message"]
