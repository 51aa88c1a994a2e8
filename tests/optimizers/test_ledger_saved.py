"""The ledger is where the weights are: in every file, in another process, in a checkpoint of the optimizer."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import GaussianEvent, Ledger, Line, NotPrivateEvent, Poisson


@pytest.fixture(scope="module")
def trained() -> keras.Model:
    model = tiny.private(tfdp.NoisyAdam(0.1, l2_norm_clip=1.0, noise_multiplier=1.25))
    model.fit(tiny.X, tiny.Y, batch_size=2, verbose=0)
    model.optimizer.mechanism.noise_multiplier = 2.5
    model.fit(tiny.X, tiny.Y, batch_size=4, verbose=0)
    model.optimizer.mechanism.noise_multiplier = 1.25
    return model


EXPECTED = Ledger(
    [
        Line(GaussianEvent(1.25), Poisson(0.25, tiny.SIZE), 4),
        Line(GaussianEvent(2.5), Poisson(0.5, tiny.SIZE), 2),
    ]
)


def test_a_change_of_noise_begins_a_new_line(trained):
    assert trained.optimizer.ledger == EXPECTED


IN_A_PROCESS_OF_ITS_OWN = """
import json, sys
import tfdp
import keras, numpy as np

model = keras.models.load_model(sys.argv[1])
loaded = model.optimizer.ledger.to_json()
weights = [w.tolist() for w in model.get_weights()]
model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=2, verbose=0)
print(json.dumps([type(model.optimizer).__name__, loaded, weights, model.optimizer.ledger.steps]))
"""


def test_a_fresh_process_that_imports_tfdp_loads_the_ledger_and_goes_on(trained, tmp_path):
    trained.save(tmp_path / "model.keras")
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN, str(tmp_path / "model.keras")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    name, ledger, weights, steps = json.loads(process.stdout.splitlines()[-1])
    assert name == "NoisyAdam"
    assert Ledger.from_json(ledger) == EXPECTED
    assert steps == EXPECTED.steps + 4
    for loaded, saved in zip(weights, trained.get_weights(), strict=True):
        np.testing.assert_allclose(loaded, saved, rtol=1e-6)


def fresh() -> keras.Model:
    model = tiny.private(tfdp.NoisyAdam(0.1, l2_norm_clip=1.0, noise_multiplier=1.25))
    model.optimizer.build(model.trainable_variables)
    return model


def test_weights_files_carry_it(trained, tmp_path):
    trained.save_weights(tmp_path / "all.weights.h5")
    other = fresh()
    other.load_weights(tmp_path / "all.weights.h5")
    assert other.optimizer.ledger == EXPECTED


def test_a_tensorflow_checkpoint_carries_it(trained, tmp_path):
    tf.train.Checkpoint(model=trained, optimizer=trained.optimizer).write(str(tmp_path / "checkpoint"))
    other = fresh()
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).read(str(tmp_path / "checkpoint")).expect_partial()
    assert other.optimizer.ledger == EXPECTED


def test_steps_that_no_line_describes_are_infinite(trained):
    """Whatever carried the weights and the count of steps, but not the lines."""
    other = fresh()
    for mine, its in zip(other.optimizer.variables, trained.optimizer.variables, strict=True):
        if mine.dtype == "int64":
            mine.assign(its)
    ledger = other.optimizer.ledger
    assert ledger.steps == EXPECTED.steps
    assert all(isinstance(line.event, NotPrivateEvent) for line in ledger)


def test_in_the_legacy_format_what_the_optimizer_counted_is_not_trusted(tmp_path):
    """It has the past of the weights, but of the optimizer only the count of steps."""
    model = tiny.linear()
    model.compile(optimizer=tiny.noisy(), loss=keras.losses.MeanSquaredError())
    tiny.train(model, steps=2)
    model.save(tmp_path / "model.h5")
    ledger = keras.models.load_model(tmp_path / "model.h5").optimizer.ledger
    assert [line.steps for line in ledger if isinstance(line.event, NotPrivateEvent)] == [2]


def test_steps_that_turn_up_after_fit_are_not_taken_for_steps_of_that_fit(trained):
    other = tiny.private(tfdp.NoisyAdam(0.1, l2_norm_clip=1.0, noise_multiplier=1.25))
    tiny.train(other)
    for mine, its in zip(other.optimizer.variables, trained.optimizer.variables, strict=True):
        mine.assign(its)
    unknown = [line for line in other.optimizer.ledger if isinstance(line.event, NotPrivateEvent)]
    assert [line.steps for line in unknown] == [EXPECTED.steps - 1]


def test_a_step_is_counted_in_the_graph_that_moves_the_weights(trained):
    counted = [v for v in trained.optimizer.variables if "released_steps" in v.path]
    assert [int(v.numpy()) for v in counted] == [EXPECTED.steps]


def test_the_optimizers_name_is_fixed():
    """Files find variables by name: a second optimizer must not be called noisy_adam_1."""
    names = {tfdp.NoisyAdam(l2_norm_clip=1.0, noise_multiplier=1.0).name for _ in range(2)}
    assert names == {"noisy_adam"}
