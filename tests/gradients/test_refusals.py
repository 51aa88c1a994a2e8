"""Models that mix examples are refused before anything has moved, by the name of the layer that mixes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import numpy as np
import pytest
from keras import layers, ops

import tfdp
from tests.zoo import mixing_layers as mixing

SIZE = 6


def reals(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


@dataclass
class Refused:
    """A model that mixes, its features, and what the message must name."""

    model: Callable[[], keras.Model]
    names: str
    loss: object = "mse"
    x: np.ndarray = field(default_factory=lambda: reals(SIZE, 4))
    y: np.ndarray = field(default_factory=lambda: reals(SIZE, 2, seed=1))


def around(make: Callable[[], layers.Layer], shape=(4,)) -> Callable[[], keras.Model]:
    """Dense, the layer under test, Dense: nothing bounds the values, so that large ones come through."""
    return lambda: keras.Sequential([layers.Input(shape), layers.Dense(4), make(), layers.Flatten(), layers.Dense(2)])


def named(layer_class: type[layers.Layer]) -> Refused:
    return Refused(around(lambda: layer_class(name="leaky")), names="leaky")


def batch_normalization(**arguments) -> layers.Layer:
    return layers.BatchNormalization(name="leaky_norm", **arguments)


def nested_batch_normalization() -> keras.Model:
    inner = keras.Sequential([layers.Input((4,)), layers.Dense(4), batch_normalization()])
    return keras.Sequential([layers.Input((4,)), inner, layers.Dense(2)])


def functional_with_training_false() -> keras.Model:
    """Keras replaces `training=False` by the mode the model is called in: the statistics do move."""
    x = layers.Input((4,))
    return keras.Model(x, layers.Dense(2)(batch_normalization()(layers.Dense(4)(x), training=False)))


def base_model_with_training_false() -> keras.Model:
    """The same for a whole pretrained model, as transfer-learning guides write it."""
    base = keras.Sequential([layers.Input((4,)), layers.Dense(4), batch_normalization()])
    x = layers.Input((4,))
    return keras.Model(x, layers.Dense(2)(base(x, training=False)))


def neighbouring_tokens() -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((3,), dtype="int32"),
            mixing.EmbedsTheNeighboursToken(name="leaky"),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )


def stateful_lstm() -> keras.Model:
    return keras.Sequential(
        [layers.Input(batch_shape=(SIZE, 3, 2)), layers.LSTM(3, stateful=True, name="leaky"), layers.Dense(2)]
    )


def linear() -> keras.Model:
    return keras.Sequential([layers.Input((4,)), layers.Dense(2)])


def penalty_on_inputs() -> keras.Model:
    class Penalised(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.head = layers.Dense(4, "tanh"), layers.Dense(2)
            self.leaky = mixing.AveragesWhatIsNotPadding(name="leaky")

        def call(self, x):
            return self.head(self.leaky([x, self.hidden(x)]))

    return Penalised()


REFUSED = {
    "batch normalization": Refused(around(batch_normalization), "leaky_norm"),
    "batch normalization in a nested model": Refused(nested_batch_normalization, "leaky_norm"),
    "batch normalization in a subclassed model": Refused(mixing.NormalisingModel, "leaky_norm"),
    "batch normalization in a custom layer": Refused(around(mixing.NormalisesInside), "leaky_norm"),
    "batch normalization in a wrapper": Refused(
        around(lambda: layers.TimeDistributed(batch_normalization(), name="leaky"), shape=(3, 4)),
        "leaky",
        x=reals(SIZE, 3, 4),
    ),
    "batch normalization without weights": Refused(
        around(lambda: batch_normalization(scale=False, center=False)), "leaky_norm"
    ),
    "batch normalization called with training=False": Refused(functional_with_training_false, "leaky_norm"),
    "base model called with training=False": Refused(base_model_with_training_false, "leaky_norm"),
    "mean of the lot": named(mixing.SubtractsTheMean),
    "softmax over the lot": Refused(around(lambda: layers.Softmax(axis=0, name="leaky")), "leaky"),
    "unit norm over the lot": Refused(around(lambda: layers.UnitNormalization(axis=0, name="leaky")), "leaky"),
    "division by the lot size": named(mixing.DividesByTheLotSize),
    "stop_gradient": named(mixing.AddsTheStoppedMean),
    "argmax over the lot": named(mixing.MarksTheLargest),
    "sorted lot": named(mixing.SortsTheLot),
    "dead relu": named(mixing.AddsTheMeanAboveAHundred),
    "shifted lot": named(mixing.ShiftsTheLot),
    "token ids": Refused(neighbouring_tokens, "leaky", x=np.arange(SIZE * 3, dtype="int32").reshape(SIZE, 3) % 5),
    "place in the lot": named(mixing.CountsRows),
    "only larger lots": named(mixing.MixesLargerLots),
    "gate at zero": named(mixing.OpensAGate),
    "mask of the whole lot": named(mixing.MasksWhatAnyoneHas),
    "attention over the lot": named(mixing.AttendsToTheLot),
    "the model's own call": Refused(mixing.MixingModel, "mixing_model"),
    "add_loss": named(mixing.PunishesTheSpread),
    "add_loss that spares padding": Refused(penalty_on_inputs, "leaky"),
    "contrastive loss": Refused(linear, "loss", loss=mixing.contrastive),
    "loss that mixes labels": Refused(linear, "loss", loss=mixing.scaled_by_the_spread_of_the_targets),
    "overridden compute_loss": Refused(mixing.MixingLoss, "compute_loss|loss", loss=None),
    "running mean": named(mixing.KeepsARunningMean),
    "spectral normalization": Refused(
        around(lambda: layers.SpectralNormalization(layers.Dense(3), name="leaky")), "leaky"
    ),
    "stateful lstm": Refused(stateful_lstm, "leaky", x=reals(SIZE, 3, 2)),
}


def compiled(case: Refused) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = case.model()
    model(case.x)
    model.compile(optimizer=tfdp.NoisySGD(learning_rate=0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss=case.loss)
    return model


def state(model: keras.Model) -> dict[str, np.ndarray]:
    """All that training can move, but for metrics: weights, statistics, the states of recurrent layers."""
    metrics = {id(variable) for metric in model.metrics for variable in metric.variables}
    kept = [variable for variable in model.variables if id(variable) not in metrics]
    for layer in model.layers:
        kept.extend(getattr(layer, "states", None) or [])  # Keras does not list them among the variables
    return {f"{i} {v.path}": keras.ops.convert_to_numpy(v).copy() for i, v in enumerate(kept)}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_mixes_examples_is_refused_before_anything_moves(name: str):
    case = REFUSED[name]
    model = compiled(case)
    before = state(model)
    with pytest.raises(ValueError, match=case.names):
        model.fit(case.x, case.y, batch_size=SIZE, epochs=1, verbose=0)
    after = state(model)
    for path, old in before.items():
        np.testing.assert_array_equal(after[path], old, err_msg=path)
    assert int(model.optimizer.iterations) == 0
    assert model.optimizer.ledger.steps == 0


@pytest.mark.parametrize("name", ["batch normalization", "stop_gradient", "contrastive loss", "running mean"])
def test_a_refused_model_is_refused_again(name: str):
    case = REFUSED[name]
    model = compiled(case)
    for _ in range(2):
        with pytest.raises(ValueError, match=case.names):
            model.fit(case.x, case.y, batch_size=SIZE, verbose=0)


def test_the_message_about_batch_normalization_says_what_to_use():
    case = REFUSED["batch normalization"]
    with pytest.raises(
        ValueError, match=r"^The layer .* mixes the examples of a batch.*tfdp\.models\.without_batch_norm\(model\)"
    ):
        compiled(case).fit(case.x, case.y, batch_size=SIZE, verbose=0)


@pytest.mark.parametrize("name", ["mean of the lot", "contrastive loss"])
def test_no_message_quotes_a_record(name: str):
    case = REFUSED[name]
    with pytest.raises(ValueError) as refusal:
        compiled(case).fit(np.full_like(case.x, 7654321.0), np.full_like(case.y, 7654321.0), batch_size=SIZE, verbose=0)
    assert "7654321" not in str(refusal.value)
    assert "7.654321" not in str(refusal.value)


class DrawsNumbers(layers.Layer):
    """Noise from a seed generator of its own."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(7)

    def call(self, x):
        return x + 0.1 * keras.random.normal(ops.shape(x), seed=self.seeds)


class Measures(layers.Layer):
    """Keeps a metric: its state moves in training, and is no weight."""

    def __init__(self):
        super().__init__()
        self.size = keras.metrics.Mean(name="size")

    def call(self, x):
        self.size.update_state(ops.mean(ops.abs(x)))
        return x


ACCEPTED = {
    "frozen batch normalization": lambda: layers.BatchNormalization(trainable=False),
    "dropout": lambda: layers.Dropout(0.5),
    "gaussian noise": lambda: layers.GaussianNoise(0.1),
    "seed generator": DrawsNumbers,
    "metric in a layer": Measures,
    "group normalization": lambda: layers.GroupNormalization(groups=2),
    "layer normalization": layers.LayerNormalization,
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_layer_that_keeps_examples_apart_is_accepted(name: str):
    case = Refused(around(ACCEPTED[name]), names="")
    model = compiled(case)
    before = model.get_weights()
    model.fit(case.x, case.y, batch_size=SIZE, epochs=1, verbose=0)
    assert any(np.any(old != new) for old, new in zip(before, model.get_weights(), strict=True))
    assert model.optimizer.ledger.steps == 1
