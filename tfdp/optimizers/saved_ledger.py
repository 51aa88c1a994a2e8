"""The ledger in files: under a checksum, and refused where the two do not fit.

A file says in three places what its weights were trained with: in the ledger and its circumstances (under one checksum), in
the count of steps among the optimizer's variables, and beside the optimizer in a count of the releases that the ledger lists
(``Witness``), in case all of the optimizer is lost. One that contradicts another is an error.

That finds damage and careless edits. It is no signature: whoever edits a ledger and computes the checksum anew, or trains
past tfdp, has a file that says what they like. A ledger is worth what its keeper's word is worth.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras.src.saving.keras_saveable import KerasSaveable

from tfdp.accounting import Ledger
from tfdp.accounting.fit_records import dumps, loads
from tfdp.optimizers.past import Calibration, Past

_SEALED = ("ledger", "circumstances", "steps")
TEXTS = (*_SEALED, "checksum")
_NAMELESS = ""


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a file says of the releases in its weights.

    ``steps`` is the count among the optimizer's variables as it was before the file was written: what was written afterwards, while
    training went on, has as many or more.
    """

    past: Past
    calibration: Calibration | None
    steps: int

    def to_texts(self) -> dict[str, str]:
        calibration = self.calibration and dataclasses.asdict(self.calibration)
        texts = {
            "ledger": self.past.ledger.to_json(),
            "circumstances": json.dumps(
                {"fits": dumps(self.past.fits), "calibration": calibration, "origins": self.past.origins}
            ),
            "steps": str(self.steps),
        }
        return texts | {"checksum": _checksum(texts)}

    def check_count(self, steps: np.ndarray | None) -> None:
        """Raises a ValueError if the file's variable shows fewer steps than when it was written."""
        if steps is None or int(steps) < self.steps:
            raise ValueError(f"its count of steps should be at least {self.steps} and is {steps}")


def read_texts(texts: Mapping[str, Any]) -> Saved | None:
    """What ``Saved.to_texts`` wrote; None where there is nothing of a ledger.

    Files from before there were checksums are read as they are; those from before there were names of fits
    (``Past.origins``) are taken to be of one run, which is none of those with names.

    Raises:
        ValueError: something is missing, or the checksum does not fit.
    """
    if not texts:
        return None
    sealed = "checksum" in texts
    missing = [name for name in (TEXTS if sealed else _SEALED[:2]) if name not in texts]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    if sealed and texts["checksum"] != _checksum(texts):
        raise ValueError("its checksum does not fit")
    circumstances = json.loads(texts["circumstances"])
    calibration = circumstances["calibration"] and Calibration(**circumstances["calibration"])
    ledger = Ledger.from_json(texts["ledger"])
    nameless = [(_NAMELESS, ledger.steps)] if ledger.steps else []
    origins = tuple((str(name), int(releases)) for name, releases in circumstances.get("origins", nameless))
    past = Past(ledger, loads(circumstances["fits"]), origins)
    return Saved(past, calibration, int(texts.get("steps", 0)))


def as_array(text: str) -> np.ndarray:
    """Keras's files hold arrays."""
    return np.frombuffer(text.encode(), np.uint8)


def as_text(stored: Any) -> str:
    return bytes(np.asarray(stored, np.uint8)).decode()


def _checksum(texts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([str(texts[name]) for name in _SEALED]).encode()).hexdigest()


class Witness(KerasSaveable):
    """An attribute of a model, so that Keras saves it beside the optimizer: how many releases the optimizer's ledger lists.

    Keras skips in silence what a file does not have, and one wrong bit in a name of an HDF5 file makes the optimizer
    something that the file does not have.
    """

    def __init__(self, book: Any):
        self._book = book

    def _obj_type(self) -> str:
        return "Operation"  # one of those whose attributes Keras knows how to look through

    def save_own_variables(self, store: Any) -> None:
        store["releases"] = np.asarray(self._book.written, np.int64)

    def load_own_variables(self, store: Any) -> None:
        """Comes after the optimizer's: Keras visits private attributes last."""
        described, self._book.described = self._book.described, 0
        with self._book.distrusted_if_damaged():
            releases = int(store["releases"]) if "releases" in store.keys() else 0  # noqa: SIM118
            if releases > described:
                raise ValueError(f"it should list {releases} releases and lists {described}")
