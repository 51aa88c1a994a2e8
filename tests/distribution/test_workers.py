"""MultiWorkerMirroredStrategy: two processes on this machine, of which one is killed in the end."""

import numpy as np
import pytest

import tfdp
from tests.distribution import cases, on_paper
from tests.optimizers import tiny


def of(found: dict, phase: str, case: str) -> list:
    """What both workers found."""
    for worker in found[phase]:
        assert "found" in worker[case], worker[case]
    return [worker[case]["found"] for worker in found[phase]]


def test_each_worker_draws_from_its_own_share_of_the_records(on_workers):
    """An epoch of lots of both shares, without noise, is that of one device by hand: weights and metrics."""
    shares = [cases.lots().shard(worker, 2).dataset().take(11) for worker in range(2)]
    lots = []
    for parts in zip(*shares, strict=True):
        (first, _), (second, _) = parts
        lots.append(
            tuple(np.concatenate([one.numpy(), other.numpy()]) for one, other in zip(first, second, strict=True))
        )
    weights, loss, mae = on_paper.epoch(tiny.linear().get_weights(), lots, expected=20)
    for found in of(on_workers, "first", "epoch_of_poisson_lots"):
        on_paper.assert_close(found["weights"], weights)
        np.testing.assert_allclose(found["history"]["loss"], [loss], rtol=1e-5)
        np.testing.assert_allclose(found["history"]["mae"], [mae], rtol=1e-5)


def test_validation_within_fit_says_the_same_on_all_workers(on_workers):
    one, other = (found["history"] for found in of(on_workers, "first", "epoch_of_poisson_lots"))
    assert one["val_loss"] == other["val_loss"]
    assert np.isfinite(one["val_loss"][0])


def test_both_workers_together_add_the_noise_of_one_device_until_the_budget_ends(on_workers):
    fitting = tfdp.accounting.max_steps(target_epsilon=3.5, delta=1e-5, sampling_rate=1.0, noise_multiplier=3.0)
    one, other = of(on_workers, "first", "budget_of_noise")
    assert one["steps"] == other["steps"] == fitting > 1
    assert one["weights"] == other["weights"]
    assert on_paper.is_chi_square(one["squares"] / fitting, one["draws"])


def test_all_workers_give_a_fit_the_same_name(on_workers):
    """So that a file that one of them wrote is no other run's to the others."""
    one, other = of(on_workers, "first", "budget_of_noise")
    assert one["origins"] == other["origins"]
    ((name, steps),) = one["origins"]
    assert len(name) > 16 and steps == one["steps"]


def test_records_in_another_order_on_each_worker_are_refused_before_anything_moves(on_workers):
    assert of(on_workers, "first", "records_in_another_order") == [True, True]


@pytest.mark.parametrize("case, said", [("declared", "random-access source"), ("shard_of_another", "shard(")])
def test_records_that_could_enter_a_step_twice_are_refused(on_workers, case, said):
    for worker in on_workers["first"]:
        assert worker[case]["error"] == "ValueError"
        assert said in worker[case]["message"]


def test_training_goes_on_from_the_backups_after_a_worker_was_killed(on_workers):
    """The epoch that was broken off is run again; the ledger holds exactly the steps that are in the weights."""
    one, other = of(on_workers, "resumed", "resumed")
    assert one == other
    assert one["epochs"] == [1, 2]
    assert one["steps"] == cases.STEPS_PER_EPOCH * cases.EPOCHS
