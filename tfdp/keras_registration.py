"""Registers optimizers and layers with Keras whichever of the two is imported first.

``keras.models.load_model`` finds a class only after its module was imported. Importing Keras from tfdp would make
``import tfdp.accounting`` slow, so a tfdp that is imported before Keras waits for it.
"""

import importlib
import importlib.abc
import importlib.util
import sys


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Lets Keras be loaded as ever, then imports what is registered.

    Where it is a module of tfdp that imports Keras, the optimizers can't be imported before that module is complete: then they
    come at its end. Not later: with ``model.compile(tfdp.NoisySGD(...))`` Python looks ``compile`` up before it sees the optimizer.
    """

    def find_spec(self, name, path=None, target=None):
        if name != "keras" and not name.startswith("tfdp."):
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                _import_rooms_after(name)

            spec.loader.exec_module = exec_module
        return spec


def _import_rooms_after(name: str) -> None:
    """If this module's end is that of all modules of tfdp that were being imported, and Keras is there."""
    others = [module for other, module in sys.modules.items() if other.startswith("tfdp.") and other != name]
    if "keras" in sys.modules and not any(map(_is_loading, others)):
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _AfterKeras)]
        _import_rooms()


def _import_rooms() -> None:
    for room in ("optimizers", "models"):
        importlib.import_module(f"tfdp.{room}")


def _is_loading(module) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def register() -> None:
    """Now if Keras is there, else as soon as it is."""
    if "keras" in sys.modules:
        _import_rooms()
    else:
        sys.meta_path.insert(0, _AfterKeras())
