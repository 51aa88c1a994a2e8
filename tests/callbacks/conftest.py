"""The self-proof is skipped for dense layers here, as in the optimizers' room."""

from tests.optimizers.conftest import dense_layers_count_as_proved  # noqa: F401
