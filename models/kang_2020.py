"""The models of both papers of Kang et al. 2020 (input perturbation, data perturbation), for records of any number of features.

All give logits.
"""

import keras
from keras import layers


def logistic_regression(features: int, classes: int = 2) -> keras.Model:
    return keras.Sequential(
        [keras.Input((features,)), layers.Dense(classes, kernel_initializer="zeros")], name="logistic_regression"
    )


def one_hidden_layer(features: int, classes: int = 2) -> keras.Model:
    """As many hidden neurons as features."""
    return keras.Sequential(
        [keras.Input((features,)), layers.Dense(features, activation="relu"), layers.Dense(classes)],
        name="one_hidden_layer",
    )
