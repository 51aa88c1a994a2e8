"""The papers' tables and figures by name; one module a paper, with its settings in one place."""

TITLES = {"x": "y"}


def study(name):
    raise ValueError(name)
