"""A ledger as JSON: versioned, exact to the last bit, and nothing in it is ever skipped when read."""

from __future__ import annotations

import dataclasses
import json

from tfdp.accounting.codebooks import Codebook
from tfdp.accounting.events import Event
from tfdp.accounting.ledger import Ledger, Line
from tfdp.accounting.samplings import Sampling
from tfdp.noise import Noise

_FORMAT = "tfdp.accounting.Ledger"
_VERSION = 1


def dumps(ledger: Ledger) -> str:
    lines = [
        {
            "event": _described(line.event),
            "sampling": _described(line.sampling),
            "steps": line.steps,
            "passes": line.passes,
        }
        for line in ledger
    ]
    # Python writes a float by its shortest exact representation, so reading it gives the same float back.
    return json.dumps({"format": _FORMAT, "version": _VERSION, "lines": lines}, allow_nan=False)


def loads(text: str) -> Ledger:
    if not isinstance(text, str):
        raise ValueError(f"a ledger is read from a JSON string, not from {type(text).__name__}")
    try:
        data = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not the JSON of a ledger: {error}") from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise ValueError(f'not the JSON of a ledger: it does not say "format": "{_FORMAT}"')
    if type(data.get("version")) is not int or data["version"] != _VERSION:
        raise ValueError(
            f"this ledger has version {data.get('version')!r}, this tfdp reads version {_VERSION}: read it "
            "with the "
            "tfdp that wrote it or a later one"
        )
    _expect_fields("the ledger", data, {"format", "version", "lines"})
    if not isinstance(data["lines"], list):
        raise ValueError("the ledger's 'lines' must be a list")
    return Ledger(_line(f"line {number}", line) for number, line in enumerate(data["lines"]))


def _line(where: str, data: object) -> Line:
    data = _expect_fields(where, data, {"event", "sampling", "steps", "passes"})
    event = _instance(f"{where}: event", data["event"], Event.kinds)
    sampling = _instance(f"{where}: sampling", data["sampling"], Sampling.kinds)
    try:
        return Line(event, sampling, data["steps"], data["passes"])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _parts() -> dict[str, type]:
    """What an event may hold beside plain values."""
    return {**Noise.kinds, "Codebook": Codebook}


def _described(thing: Event | Sampling | Noise | Codebook) -> dict[str, object]:
    name = type(thing).__name__
    if {**_parts(), **Event.kinds, **Sampling.kinds}.get(name) is not type(thing):
        raise ValueError(f"two classes are called {name}: give the event, sampling or noise a name of its own")
    values = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    nested = {key: _described(value) for key, value in values.items() if isinstance(value, Noise | Codebook)}
    return {"type": name, **values, **nested}


def _instance(where: str, data: object, kinds: dict[str, type]) -> object:
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError(f"{where} must be an object with a 'type'")
    kind = kinds.get(data["type"])
    if kind is None:
        raise ValueError(
            f"{where} has the unknown type {data['type']!r} (known: {', '.join(sorted(kinds))}): import the "
            "module "
            "that defines it, or read the ledger with the tfdp that wrote it"
        )
    fields = dataclasses.fields(kind)
    required = {field.name for field in fields if _has_no_default(field)}
    optional = {field.name for field in fields} - required
    _expect_fields(where, data, {"type", *required}, optional)
    values = {name: _value(f"{where}: {name}", value) for name, value in data.items() if name != "type"}
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _has_no_default(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(where: str, value: object) -> object:
    """JSON has no tuples, frozen dataclasses have no lists; an object is a noise or a codebook."""
    if isinstance(value, dict):
        return _instance(where, value, _parts())
    return tuple(_value(where, item) for item in value) if isinstance(value, list) else value


def _expect_fields(where: str, data: object, required: set[str], optional: frozenset | set = frozenset()) -> dict:
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a JSON object, not {data!r}")
    if unknown := data.keys() - required - optional:
        raise ValueError(
            f"{where} has unknown fields {sorted(unknown)}: they may change what was released, so they "
            "cannot be "
            "ignored; read the ledger with the tfdp that wrote it"
        )
    if missing := required - data.keys():
        raise ValueError(f"{where} lacks the fields {sorted(missing)}")
    return data


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError(f"a JSON object of the ledger names a field twice: {[key for key, _ in pairs]}")
    return data


def _refuse_constant(token: str) -> object:
    raise ValueError(f"a ledger holds finite numbers only, not {token}")
