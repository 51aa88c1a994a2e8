"""Recurrent layers: LSTM, GRU, SimpleRNN, masks, directions, states, wrappers, unusual cells."""

import dataclasses

import keras
from keras import layers, ops

from tests.zoo.cases import Case, case, representative

MSE = {"loss": "mse"}
LENGTHS = (4, 2, 3, 1, 4)


def recurrent(draw, *make, shape=(4, 3), outputs=2, size=5):
    """The layers under test, then Dense on the last state."""

    def model():
        return keras.Sequential([layers.Input(shape), *(m() for m in make), layers.Dense(outputs)])

    return Case(model=model, x=draw.reals(size, *shape), y=draw.reals(size, outputs), compile=MSE)


@case
def lstm(draw):
    return recurrent(draw, lambda: layers.LSTM(4))


@case
def lstm_over_lstm(draw):
    return recurrent(draw, lambda: layers.LSTM(4, return_sequences=True), lambda: layers.LSTM(3, use_bias=False))


@case
def lstm_unrolled(draw):
    return recurrent(draw, lambda: layers.LSTM(4, unroll=True, recurrent_activation="hard_sigmoid"))


@representative
@case
def gru_with_reset_after(draw):
    return recurrent(draw, lambda: layers.GRU(4, reset_after=True))


@representative
@case
def gru_with_reset_before(draw):
    return recurrent(draw, lambda: layers.GRU(4, reset_after=False))


@case
def gru_backwards_and_unrolled(draw):
    return recurrent(draw, lambda: layers.GRU(3, go_backwards=True, unroll=True))


@case
def simple_rnn(draw):
    return recurrent(draw, lambda: layers.SimpleRNN(4))


@case
def simple_rnn_sequences_backwards(draw):
    """Every position has a loss; the sequence is read from its end."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((4, 3)),
                layers.SimpleRNN(4, return_sequences=True, go_backwards=True, activation="relu"),
                layers.Dense(2),
            ]
        ),
        x=draw.reals(5, 4, 3),
        y=draw.reals(5, 4, 2),
        compile=MSE,
    )


@case
def lstm_on_masked_tokens(draw):
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((None,), dtype="int32"),
                layers.Embedding(6, 3, mask_zero=True),
                layers.LSTM(4),
                layers.Dense(2),
            ]
        ),
        x=draw.padded_ids(LENGTHS, vocabulary=6),
        y=draw.reals(5, 2),
        compile=MSE,
    )


@case
def gru_after_masking(draw):
    """A Masking layer: steps of one example are skipped, the state is carried over."""
    x = draw.reals(5, 4, 3)
    for example, length in enumerate(LENGTHS):
        x[example, length:] = 0.0
    x[0, 1] = 0.0  # a hole in the middle
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((4, 3)),
                layers.Masking(),
                layers.GRU(3, return_sequences=True),
                layers.LSTM(3),
                layers.Dense(2),
            ]
        ),
        x=x,
        y=draw.reals(5, 2),
        compile=MSE,
    )


@case
def bidirectional_lstm(draw):
    return recurrent(
        draw,
        lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        lambda: layers.Bidirectional(layers.GRU(3), merge_mode="sum"),
    )


@case
def bidirectional_gru_on_masked_tokens(draw):
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((None,), dtype="int32"),
                layers.Embedding(6, 3, mask_zero=True),
                layers.Bidirectional(layers.GRU(3)),
                layers.Dense(2),
            ]
        ),
        x=draw.padded_ids(LENGTHS, vocabulary=6),
        y=draw.reals(5, 2),
        compile=MSE,
    )


@case
def encoder_and_decoder_with_states(draw):
    """The states of one LSTM start another, and one starts from a Dense layer."""

    def model():
        source, target = layers.Input((4, 3)), layers.Input((3, 2))
        _, hidden, cell = layers.LSTM(4, return_state=True)(source)
        decoded = layers.LSTM(4, return_sequences=True)(target, initial_state=[hidden, layers.Dense(4, "tanh")(cell)])
        return keras.Model([source, target], layers.Dense(2)(decoded))

    return Case(model=model, x=[draw.reals(5, 4, 3), draw.reals(5, 3, 2)], y=draw.reals(5, 3, 2), compile=MSE)


def left_padded(draw, size=5):
    """Whole steps of zeros in front: of the first example none, of the others one or more."""
    x = draw.reals(size, 4, 3)
    for example, length in enumerate(LENGTHS):
        x[example, : 4 - length] = 0.0
    return x


def given_mask_and_state(draw, layer, states=1):
    """A mask that is computed, and a state to start from: steps are passed over before any is seen."""

    def model():
        x, state = layers.Input((4, 3)), layers.Input((4,))
        mask = ops.any(ops.not_equal(x, 0.0), axis=-1)
        return keras.Model([x, state], layers.Dense(2)(layer()(x, initial_state=[state] * states, mask=mask)))

    return Case(model=model, x=[left_padded(draw), draw.reals(5, 4)], y=draw.reals(5, 2), compile=MSE)


@case
def lstm_from_a_state_with_masked_first_steps(draw):
    return given_mask_and_state(draw, lambda: layers.LSTM(4), states=2)


@case
def gru_from_a_state_with_masked_first_steps(draw):
    return given_mask_and_state(draw, lambda: layers.GRU(4))


@case
def gru_from_a_state_with_masked_last_steps_read_backwards(draw):
    found = given_mask_and_state(draw, lambda: layers.GRU(4, reset_after=False, go_backwards=True))
    return dataclasses.replace(found, x=[found.x[0][:, ::-1], found.x[1]])


@case
def both_directions_from_states_with_masked_steps(draw):
    return given_mask_and_state(draw, lambda: layers.Bidirectional(layers.SimpleRNN(4)), states=2)


@case
def both_directions_of_masked_sequences(draw):
    """Keras has both directions put out zeros where steps are masked."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((4, 3)),
                layers.Masking(),
                layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
                layers.Bidirectional(layers.GRU(3, return_sequences=True)),
                layers.Dense(2),
            ]
        ),
        x=left_padded(draw),
        y=draw.reals(5, 4, 2),
        compile=MSE,
        differs_from_keras="Keras divides by the valid steps of the whole lot",
    )


@case
def last_state_zeroed_where_it_is_masked(draw):
    return Case(
        model=lambda: keras.Sequential(
            [layers.Input((4, 3)), layers.Masking(), layers.LSTM(3, zero_output_for_mask=True), layers.Dense(2)]
        ),
        x=left_padded(draw)[:, ::-1],
        y=draw.reals(5, 2),
        compile=MSE,
    )


@case
def stacked_cells(draw):
    return recurrent(draw, lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(4), layers.SimpleRNNCell(3)]))


class GatedSum(layers.Layer):
    """A cell of the user's own: state <- gate * state + (1 - gate) * input."""

    def __init__(self, units):
        super().__init__()
        self.state_size = units
        self.gate = layers.Dense(units, "sigmoid")

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], self.state_size), name="kernel")
        self.gate.build(input_shape)

    def call(self, inputs, states):
        gate = self.gate(inputs)
        state = gate * states[0] + (1.0 - gate) * ops.matmul(inputs, self.kernel)
        return state, [state]


@case
def rnn_of_a_custom_cell(draw):
    return recurrent(draw, lambda: layers.RNN(GatedSum(4)))


@case
def time_distributed_dense(draw):
    return Case(
        model=lambda: keras.Sequential(
            [layers.Input((4, 3)), layers.TimeDistributed(layers.Dense(5, "tanh")), layers.Dense(2)]
        ),
        x=draw.reals(5, 4, 3),
        y=draw.reals(5, 4, 2),
        compile=MSE,
    )


@case
def time_distributed_conv2d(draw):
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((3, 5, 5, 2)),
                layers.TimeDistributed(layers.Conv2D(3, 2, activation="tanh")),
                layers.TimeDistributed(layers.Flatten()),
                layers.LSTM(3),
                layers.Dense(2),
            ]
        ),
        x=draw.reals(5, 3, 5, 5, 2),
        y=draw.reals(5, 2),
        compile=MSE,
    )


@case
def conv_lstm_1d(draw):
    return recurrent(
        draw,
        lambda: layers.ConvLSTM1D(2, 2, padding="same"),
        layers.Flatten,
        shape=(3, 4, 2),
    )


@case
def conv_lstm_2d(draw):
    return recurrent(
        draw,
        lambda: layers.ConvLSTM2D(2, 2, padding="valid", return_sequences=True),
        layers.Flatten,
        shape=(3, 4, 4, 1),
    )
