"""Ratings from how generous a user and how liked a movie is: one number each, so that little noise is needed. Of our own, not of a paper."""

import keras
from keras import layers

SCALE = 30.0


def rating_biases(users: int = 6040, movies: int = 3706, ratings: int = 5) -> keras.Model:
    """Logits of each rating: the sum of both numbers times a slope, which begins as -2 ... 2, and a bias.

    A user has a few hundred of a million records, so its number moves little by the mean gradient: times 30 it moves 900 times
    as far, as fast as the slopes do. A record's gradient is 40 long, or shorter: clip there, as shorter clips pull to the median.
    """
    user, movie = keras.Input((), dtype="int32", name="user"), keras.Input((), dtype="int32", name="movie")
    numbers = [layers.Embedding(n, 1, embeddings_initializer="zeros")(x) for n, x in ((users, user), (movies, movie))]
    middle = (ratings - 1) / 2
    slopes = keras.initializers.Constant([[rating - middle for rating in range(ratings)]])
    logits = layers.Dense(ratings, kernel_initializer=slopes)(layers.Rescaling(SCALE)(layers.Add()(numbers)))
    return keras.Model({"user": user, "movie": movie}, logits, name="rating_biases")
