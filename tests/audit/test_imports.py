"""Bounds are computed without TensorFlow; the room's names are where it says."""

import subprocess
import sys

import pytest

import tfdp

LOADED = (
    "import sys, tfdp.audit; tfdp.audit.p_value(1.0, 1e-5, canaries=9, guesses=9, correct=8); import tfdp.audit.tradeoff_bounds; "
    "print(sorted({'tensorflow', 'keras', 'jax'} & set(sys.modules)))"
)


def test_bounds_load_neither_tensorflow_nor_keras():
    process = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_every_name_of_the_room_is_there():
    assert all(getattr(tfdp.audit, name).__module__.startswith("tfdp.audit.") for name in tfdp.audit.__all__)
    with pytest.raises(AttributeError, match="no attribute 'two_runs'"):
        tfdp.audit.two_runs  # noqa: B018
