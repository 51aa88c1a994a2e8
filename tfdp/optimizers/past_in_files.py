"""The past of weights goes into every file of Keras's that they go into, and comes out with them: whatever the model is compiled with."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving.keras_saveable import KerasSaveable

from tfdp.accounting.exposure import trained_before, were_trained
from tfdp.optimizers.past_of_weights import own_book, past_of, sign, take_in_others
from tfdp.optimizers.saved_ledger import TEXTS, Saved, as_array, as_text, read_texts

NAME = "_tfdp_past"  # the attribute, and the group in the file
_ORDINARY = "ordinary"
_LEGACY = {
    "save_weights_to_hdf5_group": "save_own_variables",
    "load_weights_from_hdf5_group": "load_own_variables",
    "load_weights_from_hdf5_group_by_name": "load_own_variables",
}


def install() -> None:
    """Every model gets the attribute, when it is first asked for. Keras's legacy format (.h5) looks at no attributes: there it is called."""
    past = functools.cached_property(PastInFiles)
    past.__set_name__(keras.Model, NAME)
    setattr(keras.Model, NAME, past)
    for name, does in _LEGACY.items():
        original = getattr(legacy_h5_format, name)
        if not hasattr(original, "_tfdp"):
            setattr(legacy_h5_format, name, _with_past(original, does))


def _with_past(original: Callable, does: str) -> Callable:
    @functools.wraps(original)
    def wrapped(group, model, *args, **kwargs):
        original(group, model, *args, **kwargs)
        if isinstance(model, keras.Model):
            getattr(getattr(model, NAME), does)(
                group.require_group(NAME) if does.startswith("save") else group.get(NAME, {})
            )

    wrapped._tfdp = True
    return wrapped


class PastInFiles(KerasSaveable):
    """An attribute of every model, so that Keras saves and loads it after the weights.

    The optimizer's own copy of the ledger is not enough: Keras loads it only into a model that is compiled with that optimizer. It compiles
    no loaded model whose class has a ``compile`` of its own, nor any with ``compile=False``, and weights files of a part of a model have none.
    A model whose weights nobody trained leaves nothing in the file.
    """

    def __init__(self, model: keras.Model):
        self._model = weakref.ref(model)

    def _obj_type(self) -> str:
        return "Operation"  # one of those whose attributes Keras knows how to look through

    def save_own_variables(self, store: Any) -> None:
        model = self._model()
        past, before = past_of(model), trained_before(model.weights)
        if past.ledger.steps:
            for name, text in Saved(past, None, past.ledger.steps).to_texts().items():
                store[name] = as_array(text)
        if before:
            store[_ORDINARY] = np.asarray(before, np.int64)

    def load_own_variables(self, store: Any) -> None:
        model, stored = self._model(), _stored(store)
        were_trained(model.weights, int(np.asarray(stored.pop(_ORDINARY, 0))))
        if not stored:
            return
        book = own_book(model)
        sign(model.weights, book)
        with book.distrusted_if_damaged():
            saved = read_texts({name: as_text(value) for name, value in stored.items()})
        take_in_others(model, book)
        book.take(saved.past)


def _stored(store: Any) -> dict[str, Any]:
    """This model's part of the file. Where the file has no such part of the whole model, because it is older or damaged, the ledger of the
    optimizer that trained the whole."""
    stored = {name: store[name] for name in store.keys()}  # noqa: SIM118 (Keras's stores are no mappings)
    if stored or not hasattr(store, "has_path") or store.has_path(NAME):
        return stored
    optimizer = store.get("optimizer")
    if "ledger" not in optimizer.keys():  # noqa: SIM118
        return {}
    return {name: optimizer[name] for name in TEXTS if name in optimizer.keys()}  # noqa: SIM118
