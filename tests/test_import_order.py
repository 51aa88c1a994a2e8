"""Whatever of tfdp is imported first, Keras's compile knows private optimizers from then on."""

import subprocess
import sys

import pytest

FIRST_STEP = """
import keras
import numpy as np
import tfdp

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(tfdp.NoisySGD(0.01, l2_norm_clip=1.0, noise_multiplier=2.0), loss="mse")  # compile is looked up before NoisySGD
model.fit(np.ones((16, 2)), np.ones((16, 1)), batch_size=8, verbose=0)
assert model.optimizer.ledger.steps == 2
"""


@pytest.mark.parametrize(
    "first", ["tfdp", "tfdp.accounting", "tfdp.data", "tfdp.mechanisms", "tfdp.data.perturbation.labels"]
)
def test_the_first_private_optimizer_of_a_process_may_be_made_inside_compile(first):
    process = subprocess.run(
        [sys.executable, "-c", f"import {first}\n{FIRST_STEP}"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
