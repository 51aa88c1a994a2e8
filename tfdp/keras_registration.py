"""Registers the optimizers with Keras whichever of the two is imported first.

``keras.models.load_model`` finds a class only after its module was imported. Importing Keras from tfdp would make
``import tfdp.accounting`` slow, so a tfdp that is imported before Keras waits for it.
"""

import importlib
import importlib.abc
import importlib.util
import sys


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Lets Keras be loaded as ever, then imports the optimizers.

    Where it is a room of tfdp that imports Keras, the optimizers can't be imported before that room is complete: they come
    with the first import after it.
    """

    def find_spec(self, name, path=None, target=None):
        if "keras" in sys.modules:
            _import_optimizers()
            return None
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                sys.meta_path.insert(0, self)
                _import_optimizers()

            spec.loader.exec_module = exec_module
        return spec


def _import_optimizers() -> None:
    loading = (name for name, module in sys.modules.items() if name.startswith("tfdp.") and _is_loading(module))
    if next(loading, None) is None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _AfterKeras)]
        importlib.import_module("tfdp.optimizers")


def _is_loading(module) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def register() -> None:
    """Now if Keras is there, else as soon as it is."""
    if "keras" in sys.modules:
        importlib.import_module("tfdp.optimizers")
    else:
        sys.meta_path.insert(0, _AfterKeras())
