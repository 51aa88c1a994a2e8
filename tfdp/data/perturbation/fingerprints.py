"""Whether a record is what it was when it was last seen."""

from __future__ import annotations

import threading

import numpy as np

_UNSEEN = 0


class Fingerprints:
    """One number of 64 bits for each record, in memory alone: the sum of its numbers' bits times secret random weights.

    A different record has another one but for a chance of 2^-32.
    """

    def __init__(self):
        self._of = np.zeros(0, np.uint64)
        self._weights: dict[tuple[str, int], np.ndarray] = {}
        self._lock = threading.Lock()

    def weights(self, leaf: str, coordinates: int) -> np.ndarray:
        """For a leaf of that name, or that form. Odd, so that no change of a single number goes unseen."""
        drawn = np.random.default_rng().integers(2**64 - 1, size=coordinates, dtype=np.uint64, endpoint=True)
        return self._weights.setdefault((leaf, coordinates), drawn | np.uint64(1))

    def check(self, first: int, found: np.ndarray) -> None:
        """Remembers those not seen before; raises if one that was seen has changed."""
        found = np.maximum(found, np.uint64(_UNSEEN + 1))
        with self._lock:
            self._grow(first + len(found))
            known = self._of[first : first + len(found)]
            changed = (known != _UNSEEN) & (known != found)
            if changed.any():
                raise ValueError(
                    f"Record {first + int(np.argmax(changed))} is not what it was before. Its noise is fixed, and noise that is added "
                    "to two inputs shows their difference. Shuffle and augment after the perturbation; use one InputPerturbation, "
                    "with a key, name= or split= of its own, for each data set."
                )
            known[:] = found

    def _grow(self, size: int) -> None:
        if size > len(self._of):
            larger = np.zeros(max(size, 2 * len(self._of)), np.uint64)
            larger[: len(self._of)] = self._of
            self._of = larger
