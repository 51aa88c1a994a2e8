"""Tests of per-example gradients, through the public optimizers alone."""
