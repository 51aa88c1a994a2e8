"""Tests, in rooms as the package; what several rooms share is here."""
