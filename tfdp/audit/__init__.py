"""Attacks on training runs: a lower bound on epsilon from one run, and membership inference.

An audit can refute a privacy claim. It can't confirm one: an attack that finds little may be a weak attack.
``bounds`` and ``tradeoff_bounds`` turn guesses into statements and know no TensorFlow; ``canaries`` are what is guessed about,
``attacks`` how. Everything is trained through ``fit`` and read off weights, as an attacker would.
"""

from tfdp.audit.bounds import epsilon_lower_bound, p_value
from tfdp.audit.canaries import GradientCanaries, MislabelledCanaries, RandomCanaries
from tfdp.audit.membership import MembershipInference, membership_inference
from tfdp.audit.run import OneRun, one_run
from tfdp.audit.tradeoff_bounds import gaussian_epsilon_lower_bound, gaussian_mu_lower_bound, tradeoff_p_value

__all__ = [
    "GradientCanaries",
    "MembershipInference",
    "MislabelledCanaries",
    "OneRun",
    "RandomCanaries",
    "epsilon_lower_bound",
    "gaussian_epsilon_lower_bound",
    "gaussian_mu_lower_bound",
    "membership_inference",
    "one_run",
    "p_value",
    "tradeoff_p_value",
]
