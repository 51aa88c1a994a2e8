"""What the tests of this room share."""

from collections.abc import Iterator

import pytest

from tfdp.gradients.plan import first_plan
from tfdp.optimizers import training


@pytest.fixture
def layers_count_as_proved() -> Iterator[None]:
    """The self-proof has tests of its own and is most of the time of a short fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "prove", lambda model, *arguments: first_plan(model))
        yield
