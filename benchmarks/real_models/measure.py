"""One model of the suite, trained by plain Keras and then with nothing changed but the optimizer.

Exact: a step of SGD without noise, at sampling rate 1, on a few records, beside brute force (a tape for each record): with a clip
that nothing reaches, where Keras's own gradient is beside it too, and with one that half of the records reach. What layers draw at
random is left out there, because the two sides would draw other numbers. The weights' regularisers belong to no record. Rules: what the engine's self-proof settled on. First
fit: the CPU time of the first call of fit, of one step, after another small model was fitted. Step: CPU time of the epochs of later
fits, plain and private in turn. Memory: growth of a process of its own for each side.
"""

import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdp
from benchmarks import sides
from benchmarks.protocol import PLAIN
from benchmarks.real_models.catalogue import RealModel
from tfdp.optimizers.hook import training_of

RECORDS = 8  # that are compared with brute force
EPOCHS, REPEATS = 3, 2
MOST_STEPS, LEAST_STEPS, EPOCH_S = (
    64,
    4,
    0.5,
)  # of an epoch: many where they are short, so that what an epoch costs once weighs little
OPTIMIZER = "adam"


def exactness(model: RealModel) -> dict:
    """Relative errors of a whole step, and the rules that it is made by."""
    x, y = model.records(RECORDS)
    network = _without_draws(model.model())
    network.compile(optimizer="sgd", loss=model.loss())
    network.evaluate(x, y, batch_size=RECORDS, verbose=0)  # builds what is built by records
    with _weight_regularisers_off(network) as regularisers:
        examples, together = _gradients(network, x, y)
    penalty = _penalty(network, regularisers)
    start, before = network.get_weights(), _flat(network)
    norms = np.linalg.norm(examples, axis=1)
    found = {"weights": before.size, "joint": _apart(together, examples.mean(axis=0))}
    network.compile(optimizer=tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0), loss=model.loss())
    for name, clip in (("unclipped", 1e3 * norms.max()), ("clipped", float(np.median(norms)))):
        wanted = np.minimum(1, clip / np.maximum(norms, 1e-30)) @ examples / RECORDS + penalty
        rate = 64 * np.linalg.norm(before) / np.linalg.norm(wanted)  # a step that is larger than the weights
        network.optimizer.learning_rate = rate = float(2.0 ** np.ceil(np.log2(rate)))
        network.optimizer.mechanism.l2_norm_clip = clip
        network.set_weights(start)
        network.fit(x, y, batch_size=RECORDS, verbose=0)
        found[name] = _apart((before - _flat(network)) / rate, wanted)
    plan = training_of(network)._step.plan.describe()
    return found | {"sites": len(plan), "slow": [line for line in plan if "universal" in line or "whole" in line]}


def cost(model: RealModel) -> dict:
    """First fit, step."""
    _warm_up()
    first, networks, records = {}, {}, model.records(model.lot)
    for side in sides.SIDES:
        networks[side] = sides.compiled(model, OPTIMIZER, side)
        begin = time.process_time()
        sides.fit(networks[side], model, records)
        first[side] = time.process_time() - begin
    records = model.records(LEAST_STEPS * model.lot)
    begin = time.process_time()
    sides.fit(networks[PLAIN], model, records)
    steps = int(np.clip(EPOCH_S * LEAST_STEPS / (time.process_time() - begin), LEAST_STEPS, MOST_STEPS))
    records = model.records(steps * model.lot)
    fits = {side: functools.partial(sides.fit, networks[side], model, records, EPOCHS) for side in sides.SIDES}
    for fit in fits.values():
        fit()
    found = sides.timed_fits(fits, dict.fromkeys(fits, steps), REPEATS, "cpu")
    return {"first_fit_s": first, "step_ms": {side: found[side]["cpu_ms"]["median"] for side in sides.SIDES}}


def memory(model: RealModel, side: str) -> dict:
    return sides.memory(sides.compiled(model, OPTIMIZER, side), model)


def _warm_up() -> None:
    """What a process does once, whatever it trains."""
    x = np.ones((8, 3), "float32")
    for optimizer in (keras.optimizers.Adam(), tfdp.NoisyAdam(l2_norm_clip=1.0, noise_multiplier=1.0)):
        network = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        network.compile(optimizer=optimizer, loss="mse")
        network.fit(x, x[:, :1], batch_size=4, verbose=0)


def _without_draws(network: keras.Model) -> keras.Model:
    for layer in network._flatten_layers():
        if type(layer).__name__.startswith("Random"):
            layer.__dict__["call"] = lambda inputs, training=None: inputs
        for setting in ("rate", "dropout", "recurrent_dropout", "_dropout", "stddev"):
            if isinstance(vars(layer).get(setting), float):
                setattr(layer, setting, 0.0)
    return network


def _gradients(network: keras.Model, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of each record by itself, and of all together by Keras."""
    variables = [v.value for v in network.trainable_variables]

    @tf.function(reduce_retracing=False)
    def gradient(x, y):
        with tf.GradientTape() as tape:
            y_pred = network(x, training=True)
            loss = network.compute_loss(x=x, y=y, y_pred=y_pred, training=True)
        found = tape.gradient(loss, variables, unconnected_gradients="zero")
        return tf.concat([tf.reshape(tf.convert_to_tensor(g), [-1]) for g in found], 0)

    def rows(start, stop):
        return keras.tree.map_structure(lambda array: tf.convert_to_tensor(array[start:stop]), (x, y))

    each = [gradient(*rows(i, i + 1)).numpy() for i in range(RECORDS)]
    return np.stack(each).astype("float64"), gradient(*rows(0, RECORDS)).numpy().astype("float64")


@contextlib.contextmanager
def _weight_regularisers_off(network: keras.Model) -> Iterator[list]:
    weights = network.trainable_variables
    regularisers = [weight.regularizer for weight in weights]
    for weight in weights:
        weight.regularizer = None
    yield regularisers
    for weight, regulariser in zip(weights, regularisers, strict=True):
        weight.regularizer = regulariser


def _penalty(network: keras.Model, regularisers: list) -> np.ndarray:
    """The gradient of the weights' regularisers, which is added once the records' gradients are clipped and summed."""
    found = []
    for weight, regulariser in zip(network.trainable_variables, regularisers, strict=True):
        with tf.GradientTape() as tape:
            penalty = tf.zeros([]) if regulariser is None else regulariser(weight.value)
        gradient = tape.gradient(penalty, weight.value, unconnected_gradients="zero")
        found.append(np.ravel(tf.convert_to_tensor(gradient)).astype("float64"))
    return np.concatenate(found)


def _flat(network: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(v)) for v in network.trainable_variables]).astype(
        "float64"
    )


def _apart(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
