"""Two hundred random runs, the same at every test; small enough for a tight accountant to price them all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfdp.accounting import Ledger


class Setting(NamedTuple):
    sampling_rate: float
    noise_multiplier: float
    steps: int
    delta: float

    @property
    def ledger(self) -> Ledger:
        return self.with_steps(self.steps)

    def with_steps(self, steps: int) -> Ledger:
        return Ledger.poisson(sampling_rate=self.sampling_rate, noise_multiplier=self.noise_multiplier, steps=steps)


def random_settings(count: int = 200) -> list[Setting]:
    random = np.random.default_rng(20240229)
    return [
        Setting(
            sampling_rate=float(10 ** random.uniform(-4, -1.5)),
            noise_multiplier=float(10 ** random.uniform(0.3, 0.9)),
            steps=int(10 ** random.uniform(0, 3.3)),
            delta=float(10 ** random.uniform(-6, -3)),
        )
        for _ in range(count)
    ]
