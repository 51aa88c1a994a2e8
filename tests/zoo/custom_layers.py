"""Layers and models of the user's own: weights in unusual places, unusual outputs, loops."""

import keras
from keras import layers, ops

from tests.zoo.cases import Case, case, representative

MSE = {"loss": "mse"}


def around(layer, shape, outputs=2):
    """Dense, the layer under test, Dense."""
    return lambda: keras.Sequential(
        [layers.Input(shape), layers.Dense(shape[-1], "tanh"), layer(), layers.Dense(outputs)]
    )


class Quadratic(layers.Layer):
    """Own weights, used in a nonlinear way: exp(w) scales, b enters squared, a matrix enters twice."""

    def build(self, input_shape):
        width = input_shape[-1]
        self.w = self.add_weight(shape=(width,), name="w")
        self.b = self.add_weight(shape=(1,), name="b")
        self.matrix = self.add_weight(shape=(width, width), name="matrix")

    def call(self, x):
        mixed = ops.matmul(ops.tanh(ops.matmul(x, self.matrix)), self.matrix)
        return x * ops.exp(self.w) + mixed + self.b**2


@case
def custom_layer_with_nonlinear_weights(draw):
    return Case(model=around(Quadratic, (4,)), x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


@case
def custom_layer_on_sequences(draw):
    return Case(model=around(Quadratic, (3, 4)), x=draw.reals(6, 3, 4), y=draw.reals(6, 3, 2), compile=MSE)


class GatedResidual(layers.Layer):
    """Sublayers and a weight of its own, and a sublayer's output multiplied by that weight."""

    def build(self, input_shape):
        width = input_shape[-1]
        self.gate = self.add_weight(shape=(width,), name="gate")
        self.inner = layers.Dense(width, "tanh")
        self.norm = layers.LayerNormalization()
        self.inner.build(input_shape)
        self.norm.build(input_shape)

    def call(self, x):
        return x + ops.sigmoid(self.gate) * self.norm(self.inner(x))


@representative
@case
def custom_layer_with_sublayers_and_a_weight(draw):
    return Case(model=around(GatedResidual, (4,)), x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


class Split(layers.Layer):
    """Returns a tuple of a tensor and a dictionary."""

    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1], 3), name="w")

    def call(self, x):
        projected = ops.matmul(x, self.w)
        return ops.tanh(projected), {
            "square": projected**2,
            "norm": ops.sum(projected, axis=-1, keepdims=True),
        }


@case
def custom_layer_with_structured_output(draw):
    def model():
        x = layers.Input((4,))
        first, rest = Split()(x)
        return keras.Model(x, layers.Dense(2)(layers.Concatenate()([first, rest["square"], rest["norm"]])))

    return Case(model=model, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


class Merge(layers.Layer):
    """Takes a dictionary and an optional keyword argument."""

    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape["a"][-1],), name="w")

    def call(self, inputs, scale=1.0):
        return (inputs["a"] + self.w * inputs["b"]) * scale


@case
def custom_layer_with_structured_input(draw):
    def model():
        a, b = layers.Input((4,), name="a"), layers.Input((4,), name="b")
        return keras.Model({"a": a, "b": b}, layers.Dense(2)(Merge()({"a": a, "b": b}, scale=0.5)))

    return Case(model=model, x={"a": draw.reals(6, 4), "b": draw.reals(6, 4)}, y=draw.reals(6, 2), compile=MSE)


class Recurrence(layers.Layer):
    """h <- tanh(x_t + h W), by one of the loops of keras.ops."""

    def __init__(self, loop):
        super().__init__()
        self.loop = loop

    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1], input_shape[-1]), name="w")

    def call(self, x):
        step = lambda h, x_t: ops.tanh(x_t + ops.matmul(h, self.w))  # noqa: E731
        start = ops.zeros_like(x[:, 0])
        if self.loop == "scan":
            return ops.scan(lambda h, x_t: (step(h, x_t), h), start, ops.transpose(x, (1, 0, 2)))[0]
        if self.loop == "while":
            length = x.shape[1]
            advance = lambda t, h: (t + 1, step(h, ops.take(x, t, axis=1)))  # noqa: E731
            return ops.while_loop(lambda t, h: t < length, advance, (0, start))[1]
        return ops.fori_loop(0, x.shape[1], lambda t, h: step(h, ops.take(x, t, axis=1)), start)


@case
def custom_layer_with_scan(draw):
    return Case(
        model=around(lambda: Recurrence("scan"), (3, 4)),
        x=draw.reals(5, 3, 4),
        y=draw.reals(5, 2),
        compile=MSE,
    )


@case
def custom_layer_with_while_loop(draw):
    return Case(
        model=around(lambda: Recurrence("while"), (3, 4)),
        x=draw.reals(5, 3, 4),
        y=draw.reals(5, 2),
        compile=MSE,
    )


@case
def custom_layer_with_fori_loop(draw):
    return Case(
        model=around(lambda: Recurrence("fori"), (3, 4)),
        x=draw.reals(5, 3, 4),
        y=draw.reals(5, 2),
        compile=MSE,
    )


class HalfFrozen(layers.Layer):
    """One trained weight and one that is not."""

    def build(self, input_shape):
        self.trained = self.add_weight(shape=(input_shape[-1],), name="trained")
        self.fixed = self.add_weight(shape=(input_shape[-1],), initializer="ones", trainable=False, name="fixed")

    def call(self, x):
        return ops.tanh(x * self.trained + self.fixed)


@case
def custom_layer_half_frozen(draw):
    return Case(model=around(HalfFrozen, (4,)), x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


class ReadsOnlyTheShape(layers.Layer):
    """A learned query for each example: the output depends on the weight and on no feature."""

    def build(self, input_shape):
        self.query = self.add_weight(shape=(2, input_shape[-1]), name="query")

    def call(self, x):
        return ops.broadcast_to(self.query[None], (ops.shape(x)[0], *self.query.shape))


@case
def custom_layer_that_ignores_its_input(draw):
    """Learned queries attend to the data."""

    def model():
        x = layers.Input((4, 3))
        return keras.Model(x, layers.MultiHeadAttention(1, key_dim=2)(ReadsOnlyTheShape()(x), x))

    return Case(model=model, x=draw.reals(5, 4, 3), y=draw.reals(5, 2, 3), compile=MSE)


class OwnWeight(keras.Model):
    """Weights owned by the model itself, before and after its layers."""

    def __init__(self):
        super().__init__()
        self.shift = self.add_weight(shape=(4,), name="shift")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.hidden = layers.Dense(5, "tanh")
        self.head = layers.Dense(2)

    def call(self, x):
        return self.scale * self.head(self.hidden(x + self.shift))


@representative
@case
def model_that_owns_weights(draw):
    return Case(model=OwnWeight, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


class OnlyOwnWeights(keras.Model):
    """No layer at all."""

    def __init__(self):
        super().__init__()
        self.kernel = self.add_weight(shape=(4, 2), name="kernel")

    def call(self, x, training=False):
        return ops.sin(ops.matmul(x, self.kernel))


@case
def model_without_layers(draw):
    return Case(model=OnlyOwnWeights, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


class NumpyStyle(layers.Layer):
    """Uses a Dense sublayer's weights without calling it."""

    def build(self, input_shape):
        self.inner = layers.Dense(3)
        self.inner.build(input_shape)

    def call(self, x):
        return ops.tanh(ops.matmul(x, self.inner.kernel) + self.inner.bias)


@case
def sublayer_that_is_never_called(draw):
    return Case(model=around(NumpyStyle, (4,)), x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


class ListOfLayers(keras.Model):
    """Sublayers in a list and in a dictionary."""

    def __init__(self):
        super().__init__()
        self.steps = [layers.Dense(4, "tanh") for _ in range(2)]
        self.heads = {"out": layers.Dense(2)}

    def call(self, x):
        for step in self.steps:
            x = x + step(x)
        return self.heads["out"](x)


@case
def sublayers_in_containers(draw):
    return Case(model=ListOfLayers, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)
