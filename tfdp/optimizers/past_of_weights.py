"""What a model's weights were trained with: all books that speak of them, read as one past."""

import keras

from tfdp.accounting import NotPrivateEvent
from tfdp.accounting.exposure import BOOKS, EXPOSED
from tfdp.optimizers.book import Book
from tfdp.optimizers.past import Past

_ORDINARY = NotPrivateEvent("the model was trained with an ordinary optimizer in between")
_BOOK = (
    "_tfdp_book"  # on a model: the book of the private optimizer that was compiled in last, or of the file it came from
)


def book_of(model: keras.Model) -> Book | None:
    """The one that the model's own private training, or the file of its weights, gave it."""
    return model.__dict__.get(_BOOK)


def past_of(model: keras.Model) -> Past:
    """Over all compilations of this model object, and through other models and files."""
    return _with_others(model, book_of(model))[0]


def give_book(model: keras.Model, book: Book) -> None:
    """The optimizer's book goes on where the model's last one ended."""
    before = book_of(model)
    if before is not None and before is not book:
        book.adopt(before.read().joined(book.read()))
        book.includes |= {**before.includes, before: before.steps}
    model.__dict__[_BOOK] = book
    sign(model.trainable_variables, book)
    take_in_others(model, book)


def own_book(model: keras.Model) -> Book:
    """A model that no private optimizer trained gets a book without one."""
    if book_of(model) is None:
        give_book(model, Book.without_optimizer())
    return book_of(model)


def take_in_others(model: keras.Model, book: Book) -> None:
    """What other books wrote of the model's weights goes into this one: limits count it, and files carry it."""
    past, included = _with_others(model, book)
    if past != book.read():
        book.adopt(past)
    book.includes = included


def sign(weights: list[keras.Variable], book: Book) -> None:
    for variable in weights:
        books = variable.__dict__.setdefault(BOOKS, [])
        if all(book is not other for other in books):
            books.append(book)


def _with_others(model: keras.Model, book: Book | None) -> tuple[Past, dict[Book, int]]:
    """The book's past and that of every other one that wrote of the model's weights; and what is included then.

    The records are taken to be the same: of two data sets with nobody in common it counts too much.
    """
    past, included = (Past(), {}) if book is None else (book.read(), dict(book.includes))
    others = {other: None for variable in model.variables for other in variable.__dict__.get(BOOKS, ())}
    for other in others:
        steps = other.steps
        if other is book or steps <= included.get(other, 0):
            continue
        past = past.joined(other.read())
        included |= {**other.includes, other: steps}
    exposed = any(EXPOSED in variable.__dict__ for variable in model.variables)
    if exposed and all(line.event != _ORDINARY for line in past.ledger):
        past = past.with_unknown(_ORDINARY, 1)
    return past, included
