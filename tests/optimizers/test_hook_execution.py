"""Ways in which Keras runs steps: all of them run the same private step."""

import pytest

from tests.optimizers import tiny

MODES = {
    "a graph": {},
    "eagerly": {"run_eagerly": True},
    "jit": {"jit_compile": True},
    "several steps an execution": {"steps_per_execution": 2},
    "several steps an execution, eagerly": {"steps_per_execution": 2, "run_eagerly": True},
}


@pytest.mark.parametrize("mode", MODES)
def test_every_way_of_execution_takes_the_same_steps(mode):
    model = tiny.private(**MODES[mode])
    start = model.get_weights()
    tiny.train(model, steps=3)
    tiny.assert_weights(model, tiny.after_sgd(start, steps=3))
    assert model.optimizer.ledger.steps == 3
    assert int(model.optimizer.iterations) == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_clip_that_changed_between_two_fits_is_the_clip_of_the_second(mode):
    model = tiny.private(**MODES[mode])
    tiny.train(model, steps=2)
    model.optimizer.mechanism.l2_norm_clip = 0.1
    before = model.get_weights()
    tiny.train(model, steps=2)
    tiny.assert_weights(model, tiny.after_sgd(before, steps=2, clip=0.1))
