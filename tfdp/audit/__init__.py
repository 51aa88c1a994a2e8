"""Attacks on training runs: a lower bound on epsilon from one run, and membership inference.

An audit can refute a privacy claim. It can't confirm one: an attack that finds little may be a weak attack.
``bounds`` and ``tradeoff_bounds`` turn guesses into statements and need no TensorFlow; ``canaries`` are what is guessed about,
``attacks`` how. Everything is trained through ``fit`` and read off weights, as an attacker would.
"""

import importlib

_HOMES = {
    "GradientCanaries": "canaries",
    "MembershipInference": "membership",
    "MislabelledCanaries": "canaries",
    "OneRun": "run",
    "RandomCanaries": "canaries",
    "Shadows": "shadows",
    "SpreadCanaries": "canaries",
    "epsilon_lower_bound": "bounds",
    "gaussian_epsilon_lower_bound": "tradeoff_bounds",
    "gaussian_mu_lower_bound": "tradeoff_bounds",
    "membership_inference": "membership",
    "one_run": "run",
    "p_value": "bounds",
    "tradeoff_p_value": "tradeoff_bounds",
    "train_shadows": "shadows",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"tfdp.audit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tfdp.audit' has no attribute {name!r}")


def __dir__():
    return list(__all__)
