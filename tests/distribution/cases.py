"""What several processes and devices do, as cases: each returns what JSON can hold, and what it raised is told as well."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np

import tfdp
from tests.optimizers import tiny
from tfdp.gradients.plan import first_plan
from tfdp.optimizers import training

LONGEST = 1500  # seconds that a process may take, on a machine that does much else
WIDTH = 3000  # of the layer in which noise is measured: 3 * WIDTH draws
RECORDS = 203
STEPS_PER_EPOCH, EPOCHS = 4, 3  # of the run whose worker is killed
RNG = np.random.default_rng(3)
X = RNG.standard_normal((RECORDS, 3)).astype("f4")
Y = RNG.standard_normal((RECORDS, 1)).astype("f4")
STDDEV = 3.0 * 2.0 / tiny.SIZE  # of a step's noise in `only_noise`


def count_dense_layers_as_proved() -> None:
    """As the tests of tfdp.optimizers do: the self-proof has tests of its own."""
    prove = training.prove

    def prove_unless_dense(model, *arguments):
        trained = [layer for layer in model._flatten_layers(include_self=False) if layer.weights]
        plain = all(type(layer) in (keras.layers.Dense, keras.Sequential) for layer in trained)
        return first_plan(model) if plain else prove(model, *arguments)

    training.prove = prove_unless_dense


def told(case: Callable) -> dict:
    try:
        return {"found": case()}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def tell(found: dict) -> None:
    """To the process that runs the tests, in one line."""
    print("\n" + json.dumps(found), flush=True)


@dataclasses.dataclass
class Started:
    """A process of ours, which writes into a log and tells there what it found."""

    process: subprocess.Popen
    log: pathlib.Path

    def ends(self, code: int = 0, within: float = LONGEST) -> dict:
        """What it told, when it has ended as it should."""
        assert self.process.wait(within) == code, self.log.read_text()[-3000:]
        return self.told()

    def told(self) -> dict:
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        assert lines, self.log.read_text()[-3000:]
        return json.loads(lines[-1])


@contextlib.contextmanager
def started(module: str, log: pathlib.Path, *arguments: str, **environment: str) -> Iterator[Started]:
    """Ends with the context, whatever happens."""
    own = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", module, *arguments]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **own, **environment}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield Started(process, log)
        finally:
            process.kill()
            process.wait()


def only_noise(**arguments) -> keras.Model:
    """A model whose weights move by the noise alone: train it with `without_records`."""
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(WIDTH, use_bias=False)])
    return tiny.private(tfdp.NoisySGD(1.0, l2_norm_clip=2.0, noise_multiplier=3.0), model, **arguments)


def without_records(model: keras.Model, **arguments) -> np.ndarray:
    """How the weights move, in standard deviations of a step's noise."""
    (start,) = model.get_weights()
    nothing = {"sample_weight": np.zeros(tiny.SIZE)}
    tiny.train(model, tiny.X, np.zeros((tiny.SIZE, WIDTH), "f4"), **nothing | arguments)
    return (model.get_weights()[0] - start).ravel() / STDDEV


def lots() -> tfdp.data.PoissonBatches:
    return tfdp.data.PoissonBatches(X, Y, batch_size=20, sampling_seed=5)


def as_lists(weights: Sequence[np.ndarray]) -> list:
    return [np.asarray(weight).tolist() for weight in weights]


def copies_are_equal(model: keras.Model) -> bool:
    """Of every weight on every device of this process."""
    copies = [[copy.numpy() for copy in weight.value.values] for weight in model.weights]
    return all(np.array_equal(copy, own[0]) for own in copies for copy in own)
