"""Weights that were trained privately, and in other ways: marks on them, which every ledger of these weights reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

BOOKS = "_tfdp_books"  # on a weight: the books of all private optimizers that were to train it
EXPOSED = "_tfdp_exposed"  # on a weight with books: it was trained in another way afterwards
_ORDINARY = "_tfdp_ordinary"  # on a weight: how many times it was trained in another way before it had a book


def expose(weights: Iterable[Any]) -> None:
    """To be called for any training that is not private.

    It costs weights that a private optimizer was to train all their privacy, an infinite line in the ledger. Of the others it is
    counted: what private training they get later says nothing of it.
    """
    for weight in weights:
        marks = weight.__dict__
        if marks.get(BOOKS):
            marks[EXPOSED] = True
        else:
            marks[_ORDINARY] = marks.get(_ORDINARY, 0) + 1


def trained_before(weights: Iterable[Any]) -> int:
    """How many times, at most, one of the weights was trained in another way before any private optimizer was to train it."""
    return max((weight.__dict__.get(_ORDINARY, 0) for weight in weights), default=0)


def were_trained(weights: Iterable[Any], times: int) -> None:
    """Of weights from a file, or from another model."""
    for weight in weights:
        weight.__dict__[_ORDINARY] = max(weight.__dict__.get(_ORDINARY, 0), times)


def inherit(copies: Iterable[Any], originals: Iterable[Any]) -> None:
    """The weights of a copy have the past that the originals have now; what these are trained with later is not in it."""
    copies, originals = list(copies), list(originals)
    books = {id(book): book for one in originals for book in one.__dict__.get(BOOKS, ()) if book.steps}
    inherited = [book.snapshot() for book in books.values()]
    exposed = any(EXPOSED in one.__dict__ for one in originals)
    were_trained(copies, trained_before(originals))
    for weight in copies:
        weight.__dict__.setdefault(BOOKS, []).extend(inherited)
        if exposed:
            weight.__dict__[EXPOSED] = True
