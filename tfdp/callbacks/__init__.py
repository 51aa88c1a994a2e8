"""Callbacks that know what training costs: they stop at a budget, or write epsilon into the logs."""

from tfdp.callbacks.budget_stopping import BudgetStopping
from tfdp.callbacks.privacy_logger import PrivacyLogger

__all__ = ["BudgetStopping", "PrivacyLogger"]
