"""Whether a record is what it was when it was last seen."""

from __future__ import annotations

import threading

import numpy as np

_UNSEEN = 0


class Fingerprints:
    """Of each record's features and of its label one number of 64 bits, in memory alone: the sum of numbers' bits times secret
    random weights.

    A different record has another one but for a chance of 2^-32.
    """

    def __init__(self):
        self._of: dict[str, np.ndarray] = {}
        self._weights: dict[tuple[str, int], np.ndarray] = {}
        self._lock = threading.Lock()

    def weights(self, leaf: str, coordinates: int) -> np.ndarray:
        """For a leaf of that name, or that form. Odd, so that no change of a single number goes unseen."""
        drawn = np.random.default_rng().integers(2**64 - 1, size=coordinates, dtype=np.uint64, endpoint=True)
        return self._weights.setdefault((leaf, coordinates), drawn | np.uint64(1))

    def check(self, part: str, first: int, found: np.ndarray) -> None:
        """Of that part of records remembers those not seen before; raises if one that was seen has changed."""
        found = np.maximum(found, np.uint64(_UNSEEN + 1))
        with self._lock:
            known = self._grown(part, first + len(found))[first : first + len(found)]
            changed = (known != _UNSEEN) & (known != found)
            if changed.any():
                raise ValueError(
                    f"Record {first + int(np.argmax(changed))} is not what it was before. Its noise is fixed, and noise that is added "
                    "to two inputs shows their difference. Shuffle and augment after the perturbation; use one InputPerturbation, "
                    "with a key, name= or split= of its own, for each data set."
                )
            known[:] = found

    def _grown(self, part: str, size: int) -> np.ndarray:
        known = self._of.get(part, np.zeros(0, np.uint64))
        if size > len(known):
            larger = np.zeros(max(size, 2 * len(known)), np.uint64)
            larger[: len(known)] = known
            self._of[part] = larger
        return self._of.get(part, known)


_shared: dict[bytes, Fingerprints] = {}


def shared(noise: bytes) -> Fingerprints:
    """Those of all records of this process that get the same noise, which a keyed hash names.

    They stay to the end of the process, 8 bytes a record, because what was released stays released.
    """
    return _shared.setdefault(noise, Fingerprints())
