"""The papers' networks and a small one of our own, as plain Keras builders: no layer here knows of privacy."""

from models.digits import digits_cnn

__all__ = ["digits_cnn"]
