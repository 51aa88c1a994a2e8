"""Differentially private training for Keras 3 on TensorFlow, by changing one line: the optimizer.

>>> model.compile(optimizer=tfdp.NoisyAdam(1e-3, l2_norm_clip=1.0, noise_multiplier=1.1), loss="mse")
>>> model.fit(x, y, batch_size=256, epochs=5)

Rooms are loaded when they are first used: ``import tfdp.accounting`` needs neither TensorFlow nor Keras.
"""

import importlib

from tfdp.keras_registration import register

__version__ = "0.1.0"

_OPTIMIZERS = (
    "AdaClipDPAdam",
    "AdaClipDPSGD",
    "DirectionalDPAdam",
    "DirectionalDPSGD",
    "EncodedDPAdam",
    "EncodedDPSGD",
    "NoisyAdagrad",
    "NoisyAdam",
    "NoisySGD",
    "PrivateOptimizer",
)
_ROOMS = (
    "accounting",
    "audit",
    "callbacks",
    "data",
    "erm",
    "gradients",
    "mechanisms",
    "models",
    "noise",
    "optimizers",
    "report",
)

_OF_REPORT = ("explain", "privacy_statement")

__all__ = [*_OPTIMIZERS, *_OF_REPORT, *_ROOMS]


def __getattr__(name: str):
    if name in _OPTIMIZERS:
        return getattr(importlib.import_module("tfdp.optimizers"), name)
    if name in _OF_REPORT:
        return getattr(importlib.import_module("tfdp.report"), name)
    if name in _ROOMS:
        return importlib.import_module(f"tfdp.{name}")
    raise AttributeError(f"module 'tfdp' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)


register()
