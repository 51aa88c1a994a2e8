"""Registers the optimizers with Keras whichever of the two is imported first.

``keras.models.load_model`` finds a class only after its module was imported. Importing Keras from tfdp would make
``import tfdp.accounting`` slow, so a tfdp that is imported before Keras waits for it.
"""

import importlib
import importlib.abc
import importlib.util
import sys


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Lets Keras be loaded as ever, then imports the optimizers."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                importlib.import_module("tfdp.optimizers")

            spec.loader.exec_module = exec_module
        return spec


def register() -> None:
    """Now if Keras is there, else as soon as it is."""
    if "keras" in sys.modules:
        importlib.import_module("tfdp.optimizers")
    else:
        sys.meta_path.insert(0, _AfterKeras())
