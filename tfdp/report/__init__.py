"""What a training run proves about the privacy of its records, for people and for machines.

A statement is a list of claims, each with its status: what is proven, what is only an approximation, what merely a
paper claims; and a list of what none of them covers. An explanation says, before any training, what the engine will do with a model.
"""

from tfdp.accounting.claims import MEMBERSHIP, Claim
from tfdp.report.explanation import Explanation, explain
from tfdp.report.statement import Statement, privacy_statement

__all__ = ["MEMBERSHIP", "Claim", "Explanation", "Statement", "explain", "privacy_statement"]
