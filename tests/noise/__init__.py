"""Tests of the accountants, none of which needs TensorFlow."""
