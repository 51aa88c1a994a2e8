"""Text, after keras.io's natural language examples."""

import keras
from keras import layers, ops

from benchmarks.real_models.catalogue import of_logits, real_model
from benchmarks.real_models.records import named, several, texts, tokens, whole

WORDS = 1000


class TokensAndPositions(layers.Layer):
    """The block that most of keras.io's transformers begin with: the table of positions is asked for `arange`."""

    def __init__(self, length, words, width, mask_zero=False, **kwargs):
        super().__init__(**kwargs)
        self.token_emb = layers.Embedding(words, width, mask_zero=mask_zero)
        self.pos_emb = layers.Embedding(length, width)

    def call(self, x):
        positions = ops.arange(start=0, stop=ops.shape(x)[-1], step=1)
        return self.token_emb(x) + self.pos_emb(positions)


class Block(layers.Layer):
    def __init__(self, width, heads, inner, rate=0.1, causal=False, **kwargs):
        super().__init__(**kwargs)
        self.causal = causal
        self.att = layers.MultiHeadAttention(heads, width)
        self.ffn = keras.Sequential([layers.Dense(inner, activation="relu"), layers.Dense(width)])
        self.layernorm1, self.layernorm2 = (
            layers.LayerNormalization(epsilon=1e-6),
            layers.LayerNormalization(epsilon=1e-6),
        )
        self.dropout1, self.dropout2 = layers.Dropout(rate), layers.Dropout(rate)

    def call(self, x):
        x = self.layernorm1(x + self.dropout1(self.att(x, x, use_causal_mask=self.causal)))
        return self.layernorm2(x + self.dropout2(self.ffn(x)))


@real_model("Text classification from scratch", tokens(WORDS, 64), whole(2, 1), loss="binary_crossentropy", lot=32)
def text_convnet():
    inputs = layers.Input((64,), dtype="int32")
    x = layers.Dropout(0.5)(layers.Embedding(WORDS, 32)(inputs))
    for _ in range(2):
        x = layers.Conv1D(32, 7, padding="valid", activation="relu", strides=3)(x)
    x = layers.Dropout(0.5)(layers.Dense(32, activation="relu")(layers.GlobalMaxPooling1D()(x)))
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


@real_model(
    "Text classification from raw strings (TextVectorization in the model)",
    texts("a good film", "a bad film", "what a long long film", "good"),
    whole(2, 1),
    loss="binary_crossentropy",
    lot=32,
)
def text_from_strings():
    vectorize = layers.TextVectorization(max_tokens=50, output_sequence_length=8)
    vectorize.adapt(["a good film", "a bad film", "what a long film"])
    inputs = layers.Input((1,), dtype="string")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(50, 16)(vectorize(inputs)))
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


@real_model("Text classification with Transformer", tokens(WORDS, 64), whole(2), lot=32)
def text_transformer():
    inputs = layers.Input((64,), dtype="int32")
    x = Block(32, 2, 32)(TokensAndPositions(64, WORDS, 32)(inputs))
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    x = layers.Dropout(0.1)(layers.Dense(20, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(2)(x))


@real_model("Bidirectional LSTM on IMDB", tokens(WORDS, 40), whole(2, 1), loss="binary_crossentropy", lot=32)
def bidirectional_lstm():
    inputs = layers.Input((None,), dtype="int32")
    x = layers.Embedding(WORDS, 32)(inputs)
    x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(x)
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(layers.Bidirectional(layers.LSTM(16))(x)))


@real_model("Using pre-trained word embeddings (frozen table, padded texts)", whole(WORDS, 40), whole(10), lot=32)
def pretrained_words():
    inputs = layers.Input((40,), dtype="int32")
    x = layers.Embedding(WORDS, 32, trainable=False, mask_zero=True)(inputs)
    for _ in range(2):
        x = layers.MaxPooling1D(3)(layers.Conv1D(32, 3, activation="relu")(x))
    return keras.Model(
        inputs,
        layers.Dense(10)(layers.Dropout(0.5)(layers.Dense(32, activation="relu")(layers.GlobalMaxPooling1D()(x)))),
    )


class FourierBlock(layers.Layer):
    def __init__(self, width, inner, **kwargs):
        super().__init__(**kwargs)
        self.dense_proj = keras.Sequential([layers.Dense(inner, activation="relu"), layers.Dense(width)])
        self.norm_1, self.norm_2 = layers.LayerNormalization(), layers.LayerNormalization()

    def call(self, x):
        mixed = ops.fft2((x, ops.zeros_like(x)))[0]
        x = self.norm_1(x + mixed)
        return self.norm_2(x + self.dense_proj(x))


@real_model("Text generation with FNet (Fourier encoder)", tokens(WORDS, 32), whole(2))
def fourier_text():
    inputs = layers.Input((32,), dtype="int32")
    x = FourierBlock(32, 64)(TokensAndPositions(32, WORDS, 32)(inputs))
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))


class Switch(layers.Layer):
    """A mixture of experts: each token goes to the expert that the router likes best."""

    def __init__(self, experts, width, inner, **kwargs):
        super().__init__(**kwargs)
        self.router = layers.Dense(experts)
        self.experts = [
            keras.Sequential([layers.Dense(inner, activation="relu"), layers.Dense(width)]) for _ in range(experts)
        ]

    def call(self, x):
        probabilities = ops.softmax(self.router(x), axis=-1)
        best = ops.one_hot(ops.argmax(probabilities, axis=-1), len(self.experts))
        gates = ops.expand_dims(probabilities * best, -2)
        return ops.sum(gates * ops.stack([expert(x) for expert in self.experts], axis=-1), axis=-1)


@real_model("Text classification with Switch Transformer", tokens(WORDS, 32), whole(2))
def switch_transformer():
    inputs = layers.Input((32,), dtype="int32")
    x = TokensAndPositions(32, WORDS, 32)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 16)(x, x))
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x + Switch(4, 32, 32)(x)))
    return keras.Model(inputs, layers.Dense(2)(layers.Dense(20, activation="relu")(x)))


@real_model("Text generation with a miniature GPT", tokens(WORDS, 32), tokens(WORDS, 32))
def miniature_gpt():
    inputs = layers.Input((32,), dtype="int32")
    x = Block(32, 2, 64, causal=True)(TokensAndPositions(32, WORDS, 32)(inputs))
    return keras.Model(inputs, layers.Dense(WORDS)(x))


@real_model(
    "Text generation with a miniature GPT, two outputs and one loss",
    tokens(WORDS, 32),
    tokens(WORDS, 32),
    loss=lambda: [of_logits(), None],
    note="a loss for one of two outputs",
)
def miniature_gpt_two_outputs():
    inputs = layers.Input((32,), dtype="int32")
    x = Block(32, 2, 64, causal=True)(TokensAndPositions(32, WORDS, 32)(inputs))
    return keras.Model(inputs, [layers.Dense(WORDS)(x), x])


@real_model("End-to-end masked language modeling with BERT", tokens(WORDS, 32), tokens(WORDS, 32))
def masked_language_model():
    inputs = layers.Input((32,), dtype="int32")
    x = TokensAndPositions(32, WORDS, 32)(inputs)
    for _ in range(2):
        x = Block(32, 4, 64)(x)
    return keras.Model(inputs, layers.Dense(WORDS, activation=None)(x))


@real_model("Named entity recognition using transformers", whole(WORDS, 24), whole(9, 24))
def named_entities():
    inputs = layers.Input((24,), dtype="int32")
    x = Block(32, 4, 64)(TokensAndPositions(24, WORDS, 32)(inputs))
    x = layers.Dropout(0.1)(layers.Dense(32, activation="relu")(layers.Dropout(0.1)(x)))
    return keras.Model(inputs, layers.Dense(9)(x))


class Decoder(layers.Layer):
    def __init__(self, width, heads, inner, **kwargs):
        super().__init__(**kwargs)
        self.attention_1, self.attention_2 = (
            layers.MultiHeadAttention(heads, width),
            layers.MultiHeadAttention(heads, width),
        )
        self.dense_proj = keras.Sequential([layers.Dense(inner, activation="relu"), layers.Dense(width)])
        self.norms = [layers.LayerNormalization() for _ in range(3)]
        self.add = layers.Add()

    def call(self, inputs):
        x, encoded = inputs
        x = self.norms[0](self.add([x, self.attention_1(x, x, x, use_causal_mask=True)]))
        x = self.norms[1](self.add([x, self.attention_2(x, encoded, encoded)]))
        return self.norms[2](self.add([x, self.dense_proj(x)]))


@real_model(
    "Translation with a sequence-to-sequence Transformer",
    named(source=tokens(WORDS, 20), target=tokens(WORDS, 20)),
    tokens(WORDS, 20),
)
def translation():
    source, target = (
        layers.Input((None,), dtype="int32", name="source"),
        layers.Input((None,), dtype="int32", name="target"),
    )
    encoded = Block(32, 2, 64)(TokensAndPositions(20, WORDS, 32, mask_zero=True)(source))
    x = Decoder(32, 2, 64)([TokensAndPositions(20, WORDS, 32, mask_zero=True)(target), encoded])
    return keras.Model({"source": source, "target": target}, layers.Dense(WORDS)(layers.Dropout(0.5)(x)))


@real_model("Character-level recurrent sequence-to-sequence", several(whole(30, 12), whole(40, 14)), whole(40, 14))
def recurrent_translation():
    source, target = layers.Input((12,), dtype="int32"), layers.Input((14,), dtype="int32")
    _, hidden, cell = layers.LSTM(32, return_state=True)(layers.Embedding(30, 16)(source))
    x = layers.LSTM(32, return_sequences=True)(layers.Embedding(40, 16)(target), initial_state=[hidden, cell])
    return keras.Model([source, target], layers.Dense(40)(x))


@real_model("Sequence to sequence learning for adding numbers", whole(2, 7, 12), whole(12, 4), lot=32)
def adding_numbers():
    model = keras.Sequential([layers.Input((7, 12)), layers.LSTM(32), layers.RepeatVector(4)])
    model.add(layers.LSTM(32, return_sequences=True))
    model.add(layers.Dense(12))
    return model


@real_model(
    "Large-scale multi-label text classification",
    lambda random, rows: (random.random((rows, WORDS)) < 0.02).astype("float32"),
    lambda random, rows: (random.random((rows, 20)) < 0.1).astype("float32"),
    loss="binary_crossentropy",
    lot=64,
)
def multi_label():
    return keras.Sequential(
        [
            layers.Input((WORDS,)),
            layers.Dense(64, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.Dense(20, activation="sigmoid"),
        ]
    )


@real_model(
    "Question answering: start and end of the answer",
    several(tokens(WORDS, 32), whole(2, 32)),
    several(whole(32), whole(32)),
    loss=lambda: [of_logits(), of_logits()],
)
def span_extraction():
    text, part = layers.Input((32,), dtype="int32"), layers.Input((32,), dtype="int32")
    x = TokensAndPositions(32, WORDS, 32)(text) + layers.Embedding(2, 32)(part)
    x = Block(32, 2, 64)(x)
    heads = [layers.Flatten(name=name)(layers.Dense(1, use_bias=False)(x)) for name in ("start", "end")]
    return keras.Model([text, part], heads)
