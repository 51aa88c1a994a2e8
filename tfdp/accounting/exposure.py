"""Weights that were trained privately and then in another way: marks on them, which every ledger of these weights reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

BOOKS = "_tfdp_books"  # on a weight: the books of all private optimizers that were to train it
EXPOSED = "_tfdp_exposed"  # on a privately trained weight: it was trained in another way afterwards


def expose(weights: Iterable[Any]) -> None:
    """To be called before any training that is not private: it costs those weights of these that were released privately
    all their privacy, an infinite line in the ledger."""
    for weight in weights:
        if any(book.steps for book in weight.__dict__.get(BOOKS, ())):
            weight.__dict__[EXPOSED] = True
