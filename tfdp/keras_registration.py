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
            return _as_it_is(name) if name in sys.modules else None
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


def _as_it_is(name: str):
    """Of a module that was imported while its import was looked for: it must not be run a second time."""
    module = sys.modules[name]
    spec = importlib.util.spec_from_loader(name, _AsItIs(module))
    module.__spec__ = spec  # importlib takes this one then, whatever a finder returns
    return spec


class _AsItIs(importlib.abc.Loader):
    def __init__(self, module):
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec):
        return self._module

    def exec_module(self, module):
        module.__spec__ = self._spec


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
