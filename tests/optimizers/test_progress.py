"""Who waits is told what for."""

import time

import keras
import pytest

from tfdp.optimizers import progress


@pytest.mark.parametrize(
    ("verbose", "seconds", "told"), [(1, 0.3, True), ("auto", 0.3, True), (0, 0.3, False), (1, 0.0, False)]
)
def test_a_long_preparation_is_told_unless_verbose_is_0(verbose, seconds, told, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LONG", 0.1)
    with progress.told_if_long(keras.Sequential(name="slow_one"), verbose):
        time.sleep(seconds)
    time.sleep(0.15)
    assert ("'slow_one'" in capsys.readouterr().out) == told
