"""Tables and recommendations, after keras.io's structured data examples."""

import keras
from keras import layers, ops

import tfdp
from benchmarks.real_models.catalogue import real_model
from benchmarks.real_models.records import named, normals, several, texts, tokens, whole

PEOPLE = named(
    age=normals(1),
    hours=normals(1),
    job=texts("clerk", "farmer", "nurse"),
    school=texts("none", "some", "all"),
    region=whole(8, 1),
)


def _people():
    strings = {"job": ["clerk", "farmer", "nurse"], "school": ["none", "some", "all"]}
    inputs = {"age": layers.Input((1,)), "hours": layers.Input((1,)), "region": layers.Input((1,), dtype="int32")}
    inputs |= {name: layers.Input((1,), dtype="string") for name in strings}
    numbers = {name: layers.StringLookup(vocabulary=words)(inputs[name]) for name, words in strings.items()}
    return inputs, numbers | {"region": inputs["region"]}


def _embedded(numbers, width):
    return [layers.Flatten()(layers.Embedding(9, width)(number)) for number in numbers.values()]


@real_model("Structured data classification from scratch", PEOPLE, whole(2, 1), loss="binary_crossentropy", lot=32)
def structured_data():
    inputs, numbers = _people()
    coded = [layers.CategoryEncoding(9, output_mode="one_hot")(number) for number in numbers.values()]
    x = layers.Concatenate()([inputs["age"], inputs["hours"], *coded])
    x = layers.Dropout(0.5)(layers.Dense(32, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


def _deep(x):
    for _ in range(2):
        x = layers.Dropout(0.1)(layers.ReLU()(layers.BatchNormalization()(layers.Dense(32)(x))))
    return x


@real_model("Structured data learning with wide and deep networks", PEOPLE, whole(5), lot=64)
def wide_and_deep():
    inputs, numbers = _people()
    wide = layers.Concatenate()(
        [layers.CategoryEncoding(9, output_mode="one_hot")(number) for number in numbers.values()]
    )
    deep = _deep(layers.Concatenate()([inputs["age"], inputs["hours"], *_embedded(numbers, 4)]))
    merged = layers.concatenate([layers.BatchNormalization()(wide), deep])
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(5)(merged)))


@real_model("Structured data learning with deep and cross networks", PEOPLE, whole(5), lot=64)
def deep_and_cross():
    inputs, numbers = _people()
    first = cross = layers.Concatenate()([inputs["age"], inputs["hours"], *_embedded(numbers, 4)])
    for _ in range(2):
        cross = first * layers.Dense(cross.shape[-1])(cross) + cross
    merged = layers.concatenate([layers.BatchNormalization()(cross), _deep(first)])
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(5)(merged)))


class ColumnEmbedding(layers.Layer):
    def __init__(self, columns, width, **kwargs):
        super().__init__(**kwargs)
        self.columns, self.table = columns, layers.Embedding(columns, width)

    def call(self, x):
        return x + self.table(ops.arange(self.columns))


@real_model("Structured data learning with TabTransformer", PEOPLE, whole(2, 1), loss="binary_crossentropy", lot=32)
def tab_transformer():
    inputs, numbers = _people()
    x = ColumnEmbedding(3, 16)(ops.stack(_embedded(numbers, 16), axis=1))
    for _ in range(2):
        x = layers.LayerNormalization(epsilon=1e-6)(
            layers.Add()([layers.MultiHeadAttention(4, 16, dropout=0.2)(x, x), x])
        )
        y = layers.Dropout(0.2)(layers.Dense(16, activation="gelu")(x))
        x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([y, x]))
    numeric = layers.LayerNormalization(epsilon=1e-6)(layers.Concatenate()([inputs["age"], inputs["hours"]]))
    x = layers.Concatenate()([layers.Flatten()(x), numeric])
    x = layers.Dropout(0.2)(layers.Dense(32, activation="selu")(x))
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


class FeatureTokens(layers.Layer):
    """A number times a learned vector, as in FT-Transformer, and a learned token for the answer."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1], 24), initializer="random_normal")
        self.offset = self.add_weight(shape=(shape[-1], 24), initializer="random_normal")
        self.answer = self.add_weight(shape=(1, 1, 24), initializer="random_normal")

    def call(self, x):
        answer = ops.broadcast_to(self.answer, (ops.shape(x)[0], 1, 24))
        return ops.concatenate([answer, x[..., None] * self.scale + self.offset], axis=1)


@real_model("FT-Transformer for numeric columns", normals(12), normals(1), loss="mse", lot=64)
def feature_transformer():
    inputs = layers.Input((12,))
    x = FeatureTokens()(inputs)
    for _ in range(2):
        normed = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, 6)(normed, normed)
        x = x + layers.Dense(24)(layers.Dense(48, activation="relu")(layers.LayerNormalization()(x)))
    return keras.Model(inputs, layers.Dense(1)(layers.LayerNormalization()(x)[:, 0]))


class GatedResidual(layers.Layer):
    def __init__(self, units, rate=0.15, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.elu_dense, self.linear_dense = layers.Dense(units, activation="elu"), layers.Dense(units)
        self.dropout = layers.Dropout(rate)
        self.linear, self.gate = layers.Dense(units), layers.Dense(units, activation="sigmoid")
        self.layer_norm = layers.LayerNormalization()
        self.project = layers.Dense(units)

    def call(self, inputs):
        x = self.dropout(self.linear_dense(self.elu_dense(inputs)))
        inputs = self.project(inputs) if inputs.shape[-1] != self.units else inputs
        return self.layer_norm(inputs + self.linear(x) * self.gate(x))


class VariableSelection(layers.Layer):
    def __init__(self, features, units, **kwargs):
        super().__init__(**kwargs)
        self.residuals = [GatedResidual(units) for _ in range(features)]
        self.together = GatedResidual(units)
        self.softmax = layers.Dense(features, activation="softmax")

    def call(self, inputs):
        weights = ops.expand_dims(self.softmax(self.together(ops.concatenate(inputs, axis=-1))), -1)
        own = ops.stack([residual(one) for one, residual in zip(inputs, self.residuals, strict=True)], axis=1)
        return ops.squeeze(ops.matmul(ops.transpose(weights, (0, 2, 1)), own), axis=1)


@real_model(
    "Classification with gated residual and variable selection networks",
    PEOPLE,
    whole(2, 1),
    loss="binary_crossentropy",
    lot=32,
)
def variable_selection():
    inputs, numbers = _people()
    encoded = [layers.Dense(16)(inputs["age"]), layers.Dense(16)(inputs["hours"]), *_embedded(numbers, 16)]
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(VariableSelection(5, 16)(encoded)))


class DecisionTree(layers.Layer):
    """A tree whose every turn is a probability."""

    def __init__(self, depth, classes, **kwargs):
        super().__init__(**kwargs)
        self.depth, self.leaves, self.classes = depth, 2**depth, classes
        self.decision = layers.Dense(self.leaves, activation="sigmoid")

    def build(self, shape):
        self.decision.build(shape)
        self.pi = self.add_weight(shape=(self.leaves, self.classes), initializer="random_normal")

    def call(self, x):
        decisions = ops.expand_dims(self.decision(x), 2)
        decisions = ops.concatenate([decisions, 1 - decisions], axis=2)
        mu, begin, end = ops.ones((ops.shape(x)[0], 1, 1)), 1, 2
        for level in range(self.depth):
            mu = ops.tile(ops.reshape(mu, (-1, 2**level, 1)), (1, 1, 2)) * decisions[:, begin:end]
            begin, end = end, end + 2 ** (level + 1)
        return ops.matmul(ops.reshape(mu, (-1, self.leaves)), ops.softmax(self.pi))


@real_model(
    "Classification with neural decision forests", PEOPLE, whole(2), loss="sparse_categorical_crossentropy", lot=32
)
def decision_forest():
    inputs, numbers = _people()
    x = layers.Concatenate()([inputs["age"], inputs["hours"], *_embedded(numbers, 4)])
    return keras.Model(
        inputs, layers.Average()([DecisionTree(3, 2)(layers.BatchNormalization(trainable=False)(x)) for _ in range(3)])
    )


@real_model(
    "Imbalanced classification: credit card fraud",
    normals(30),
    lambda random, rows: (random.random((rows, 1)) < 0.1).astype("int32"),
    loss="binary_crossentropy",
    lot=128,
)
def fraud():
    network = [
        layers.Input((30,)),
        layers.Dense(64, activation="relu"),
        layers.Dense(64, activation="relu"),
        layers.Dropout(0.3),
    ]
    network += [layers.Dense(64, activation="relu"), layers.Dropout(0.3), layers.Dense(1, activation="sigmoid")]
    return keras.Sequential(network)


class Recommender(keras.Model):
    def __init__(self, users, movies, width):
        super().__init__()
        regularizer = keras.regularizers.l2(1e-6)
        self.user = layers.Embedding(
            users, width, embeddings_initializer="he_normal", embeddings_regularizer=regularizer
        )
        self.user_bias = layers.Embedding(users, 1)
        self.movie = layers.Embedding(
            movies, width, embeddings_initializer="he_normal", embeddings_regularizer=regularizer
        )
        self.movie_bias = layers.Embedding(movies, 1)

    def call(self, inputs):
        user, movie = self.user(inputs[:, 0]), self.movie(inputs[:, 1])
        dot = ops.sum(user * movie, axis=1, keepdims=True)  # keras.io's own is one number for the whole lot
        return ops.sigmoid(dot + self.user_bias(inputs[:, 0]) + self.movie_bias(inputs[:, 1]))


@real_model(
    "Collaborative filtering for movie recommendations",
    whole(300, 2),
    lambda random, rows: random.random((rows, 1)).astype("float32"),
    loss="binary_crossentropy",
    lot=64,
)
def collaborative_filtering():
    return Recommender(300, 300, 16)


@real_model(
    "A transformer-based recommendation system",
    named(user=whole(100, 1), watched=whole(200, 7), ratings=normals(7), target=whole(200, 1)),
    normals(1),
    loss="mse",
    lot=32,
)
def behaviour_transformer():
    inputs = {"user": layers.Input((1,), dtype="int32"), "watched": layers.Input((7,), dtype="int32")}
    inputs |= {"ratings": layers.Input((7,)), "target": layers.Input((1,), dtype="int32")}
    movies = layers.Embedding(200, 16)
    watched = ColumnEmbedding(7, 16)(movies(inputs["watched"])) * ops.expand_dims(inputs["ratings"], -1)
    x = layers.Concatenate(axis=1)([watched, movies(inputs["target"])])
    attended = layers.Dropout(0.1)(layers.MultiHeadAttention(2, 16, dropout=0.1)(x, x))
    x = layers.LayerNormalization()(layers.Add()([x, attended]))
    x = layers.LayerNormalization()(layers.Add()([x, layers.Dense(16)(layers.LeakyReLU()(x))]))
    x = layers.Concatenate()([layers.Flatten()(x), layers.Flatten()(layers.Embedding(100, 8)(inputs["user"]))])
    for _ in range(2):
        x = layers.Dropout(0.1)(layers.LeakyReLU()(layers.BatchNormalization()(layers.Dense(32)(x))))
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(1)(x)))


@real_model(
    "Deep learning recommendation model (two towers)",
    several(tokens(500, 1), tokens(500, 1), normals(13)),
    whole(2, 1),
    loss="binary_crossentropy",
    lot=128,
)
def two_towers():
    user, item, dense = layers.Input((1,), dtype="int32"), layers.Input((1,), dtype="int32"), layers.Input((13,))
    vectors = [layers.Flatten()(layers.Embedding(500, 16)(one)) for one in (user, item)]
    vectors.append(layers.Dense(16, activation="relu")(layers.Dense(32, activation="relu")(dense)))
    dots = [layers.Dot(axes=1)([one, other]) for i, one in enumerate(vectors) for other in vectors[:i]]
    x = layers.Dense(32, activation="relu")(layers.Concatenate()([vectors[2], *dots]))
    return keras.Model([user, item, dense], layers.Dense(1, activation="sigmoid")(x))


class GraphConvolution(layers.Layer):
    """Of a small graph per example: messages of neighbours, then a step of a recurrent cell, as for molecules."""

    def __init__(self, width, steps, **kwargs):
        super().__init__(**kwargs)
        self.steps, self.message = steps, layers.Dense(width, activation="relu")
        self.update = layers.GRUCell(width)
        self.width = width

    def build(self, shape):
        self.message.build(shape[0])
        self.update.build((None, self.width))

    def call(self, inputs):
        nodes, edges = inputs
        count = nodes.shape[1]
        for _ in range(self.steps):
            heard = ops.matmul(edges, self.message(nodes))
            state = ops.reshape(nodes, (-1, self.width))
            nodes = ops.reshape(self.update(ops.reshape(heard, (-1, self.width)), [state])[0], (-1, count, self.width))
        return nodes


@real_model(
    "Message-passing neural network for molecular property prediction",
    several(normals(9, 16), lambda random, rows: (random.random((rows, 9, 9)) < 0.3).astype("float32")),
    whole(2, 1),
    loss="binary_crossentropy",
)
def message_passing():
    nodes, edges = layers.Input((9, 16)), layers.Input((9, 9))
    x = GraphConvolution(16, 2)([nodes, edges])
    attended = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    x = layers.Dense(32, activation="relu")(layers.GlobalAveragePooling1D()(attended))
    return keras.Model([nodes, edges], layers.Dense(1, activation="sigmoid")(x))
