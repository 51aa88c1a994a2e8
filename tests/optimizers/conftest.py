"""What all tests of this room share."""

from collections.abc import Iterator

import keras
import pytest

from tfdp.gradients.plan import first_plan
from tfdp.optimizers import training


@pytest.fixture(autouse=True, scope="module")
def dense_layers_count_as_proved() -> Iterator[None]:
    """The self-proof has tests of its own and is half the time of a short fit. Other layers go through it here as well."""
    prove = training.prove

    def prove_unless_dense(model, *arguments):
        trained = [layer for layer in model._flatten_layers(include_self=False) if layer.trainable_weights]
        plain = all(type(layer) in (keras.layers.Dense, keras.Sequential) for layer in trained)
        return first_plan(model) if plain else prove(model, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "prove", prove_unless_dense)
        yield
