"""From a secret key to one seed for every record and leaf: BLAKE2b (RFC 7693) in keyed mode.

Whoever does not know the key can tell the seeds from random bits only by breaking BLAKE2b as a keyed hash. Hashed are, each with
its length before it: what is released (name and split of the data set, noise and clip), the leaf with its type and shape, and
the number of the record. So another data set, another noise or another form of the same features has seeds of its own.
"""

from __future__ import annotations

import hashlib
import os
import secrets

import numpy as np

_LEAST_BYTES, _MOST_BYTES = 16, hashlib.blake2b.MAX_KEY_SIZE
SEED_WORDS = 3


class RecordSeeds:
    """Seeds of 192 bits. The key is in no repr and no pickle.

    Args:
        key: 16 to 64 secret bytes; None draws 32 from the operating system, for this process alone.
        released: what tells one release from another, as strings.
    """

    def __init__(self, key: bytes | None, released: tuple[str, ...]):
        self._process = os.getpid() if key is None else None
        self._hash = hashlib.blake2b(key=_checked(key), digest_size=8 * SEED_WORDS, person=b"tfdp.records")
        for part in released:
            _add(self._hash, part)

    def of(self, leaf: str, first: int, rows: int) -> np.ndarray:
        """``[rows, 3]`` of ``uint64``, for the records numbered from ``first`` on.

        Raises:
            ValueError: the key was drawn, and this process is a fork of the one that drew it: both would give the same noise, and
                neither sees which records the other gives it to.
        """
        if self._process not in (None, os.getpid()):
            raise ValueError(
                "The key of this InputPerturbation was drawn in another process, of which this one is a fork: both would give the "
                "same noise, and its sum with two different records shows their difference. Make the InputPerturbation here, or give "
                "both the same records and key=."
            )
        hashed = self._hash.copy()
        _add(hashed, leaf)
        digests = []
        for number in range(first, first + rows):
            one = hashed.copy()
            one.update(number.to_bytes(8, "little"))
            digests.append(one.digest())
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64).reshape(rows, SEED_WORDS)

    def name(self) -> bytes:
        """The same for the same seeds, in every object. It tells nothing of them."""
        hashed = self._hash.copy()
        _add(hashed, "name")
        return hashed.digest()

    def __reduce__(self):
        raise TypeError(
            "The key of perturbed data is not saved: with it anyone can take the noise away. Make the InputPerturbation anew, with "
            "the key from where you keep secrets."
        )


def _add(hashed: hashlib.blake2b, part: str) -> None:
    text = part.encode()
    hashed.update(len(text).to_bytes(8, "little") + text)


def _checked(key: bytes | None) -> bytes:
    if key is None:
        return secrets.token_bytes(32)
    if not isinstance(key, bytes):
        raise ValueError(
            f"key must be bytes, not {type(key).__name__}: write secrets.token_bytes(32), and keep it secret."
        )
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise ValueError(
            f"key must have {_LEAST_BYTES} to {_MOST_BYTES} bytes, not {len(key)}: write secrets.token_bytes(32), and keep it secret."
        )
    return key
