"""The fit of a KerasHub task, with its preprocessor: one line changed, and without noise the steps are plain Keras's."""

import keras
import keras_hub
import numpy as np
import pytest

import tfdp
from tfdp.accounting import FullBatch

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
RNG = np.random.default_rng(2)
TEXTS = np.array([" ".join(RNG.choice(WORDS, 5)) for _ in range(16)])
LABELS = RNG.integers(0, 2, 16)
SIZES = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 8,
    "max_sequence_length": 8,
    "dropout": 0.0,
}


def classifier() -> keras.Model:
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8)
    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.BertBackbone(vocabulary_size=14, **SIZES)
    return keras_hub.models.BertTextClassifier(backbone, num_classes=2, preprocessor=preprocessor, dropout=0.0)


def language_model() -> keras.Model:
    tokens = ["<|endoftext|>", "Ġ", *"abcdefghijklmnopqrstuvwxyz", "th", "the"]
    tokenizer = keras_hub.models.GPT2Tokenizer(
        vocabulary={token: number for number, token in enumerate(tokens)}, merges=["t h", "th e"]
    )
    preprocessor = keras_hub.models.GPT2CausalLMPreprocessor(tokenizer, sequence_length=8)
    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.GPT2Backbone(vocabulary_size=len(tokens), **SIZES)
    return keras_hub.models.GPT2CausalLM(backbone, preprocessor=preprocessor)


def fitted(model, optimizer, *data, **arguments):
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), weighted_metrics=[])
    start = model.get_weights()
    model.fit(*data, batch_size=12, verbose=0, **arguments)
    return [new - old for old, new in zip(start, model.get_weights(), strict=True)]


FITS = {
    "classifier": (classifier, (TEXTS, LABELS), {"sample_weight": np.linspace(0, 2, 16), "validation_split": 0.25}),
    "language model": (language_model, (TEXTS[:12],), {}),
}


@pytest.mark.parametrize("kind", FITS)
def test_without_noise_a_task_takes_the_step_of_plain_keras(kind):
    make, data, arguments = FITS[kind]
    optimizer = tfdp.NoisySGD(0.5, l2_norm_clip=1e6, noise_multiplier=0.0)
    moved = fitted(make(), optimizer, *data, **arguments)
    plain = fitted(make(), keras.optimizers.SGD(0.5), *data, **arguments)
    for ours, expected in zip(moved, plain, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=2e-6)
    assert [line.sampling for line in optimizer.ledger] == [FullBatch(12)]
