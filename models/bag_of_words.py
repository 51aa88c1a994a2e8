"""Text without the order of its words: one layer, so that there is little to put noise on. Of our own, not of a paper."""

import keras
from keras import layers


def bag_of_words(words: int = 10000, length: int = 256, classes: int = 2) -> keras.Model:
    """Logistic regression on which words occur. Gives logits.

    Words are numbered by how frequent they are (Keras's coding), so word i has the weight i / (i + 100): the hundred most
    frequent ones, which say little, don't take the room under the clip. A text is scaled to length 1.
    """
    rarity = [word / (word + 100) for word in range(words)]
    return keras.Sequential(
        [
            keras.Input((length,), dtype="int32"),
            layers.CategoryEncoding(num_tokens=words, output_mode="multi_hot"),
            layers.Rescaling(rarity),
            layers.UnitNormalization(),
            layers.Dense(classes, kernel_initializer="zeros"),
        ],
        name="bag_of_words",
    )
