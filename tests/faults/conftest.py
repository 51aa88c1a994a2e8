"""What all tests of this room share."""

from tests.optimizers.conftest import dense_layers_count_as_proved  # noqa: F401
