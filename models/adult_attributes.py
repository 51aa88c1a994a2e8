"""Adult income by what is known of its attributes before any record is seen. Of our own, not of a paper."""

import keras
from keras import layers

# LIBSVM's coding (a9a): one feature for each value of each attribute, numbers cut into bins.
VALUES = {
    "age": 5,
    "work class": 8,
    "survey weight": 5,
    "education": 16,
    "years of education": 5,
    "marital status": 7,
    "occupation": 14,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "capital gain": 2,
    "capital loss": 2,
    "hours a week": 5,
    "native country": 41,
}
# No fact about the person; what its years, in five bins, tell again in part; race and origin.
LEFT_OUT = ("survey weight", "education", "race", "native country")


def adult_attributes(features: int = 123, classes: int = 2) -> keras.Model:
    """Logistic regression on ten of fourteen attributes. Gives logits.

    What is left out takes no room under the clip. Of an attribute's k values a record has one, or none where it is not known, so 1 / k is taken
    off each: all records had a large part in common otherwise, which the bias is there for.
    """
    if features != sum(VALUES.values()):
        raise ValueError(f"adult_attributes takes the {sum(VALUES.values())} features of LIBSVM's a9a, not {features}.")
    kept, offsets = [], []
    for name, count in VALUES.items():
        scale = float(name not in LEFT_OUT)
        kept += [scale] * count
        offsets += [-scale / count] * count
    return keras.Sequential(
        [
            keras.Input((features,)),
            layers.Rescaling(kept, offsets),
            layers.Dense(classes, kernel_initializer="zeros"),
        ],
        name="adult_attributes",
    )
