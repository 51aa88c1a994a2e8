import pytest

from tfdp.data.perturbation import fingerprints


@pytest.fixture(autouse=True)
def nothing_released():
    """A test's key is for the data sets of that test."""
    fingerprints._shared.clear()
