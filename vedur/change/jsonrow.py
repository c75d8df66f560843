"""The JSON payload of `pgq.jsontriga`: one object, a member per column.

Values leave here as the text that PostgreSQL's input functions take, never as Python numbers:
a numeric of a thousand digits stays what it was. Nested values occur where a trigger wrote the
row with `row_to_json`; what they become depends on the column's type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from vedur.change.copytext import NOT_UTF8

_decoder = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
_scan: Callable[[str, int], tuple[Any, int]] = vars(_decoder)["scan_once"]
_PLAIN = frozenset((str, type(None)))


def split(data: str) -> tuple[tuple[str, ...], list[Any]]:
    """Column names and values; nested values come back as `Nested`."""
    row = _scan(data, 0)[0] if data[0] == "{" else _decoder.decode(_text_only(data))
    values = list(row.values())
    if _PLAIN.issuperset(map(type, values)):
        return tuple(row), values
    if not any(isinstance(v, (list, dict)) for v in values):
        return tuple(row), [_scalar(v) for v in values]
    raw = _raw_members(data)
    return tuple(row), [
        Nested(raw[n]) if isinstance(v, (list, dict)) else _scalar(v) for n, v in row.items()
    ]


def _text_only(data: str) -> str:
    if data.startswith(NOT_UTF8):
        raise ValueError(
            "it has bytes that are not UTF-8 (the provider's database has no encoding, SQL_ASCII)"
        )
    return data


def _scalar(value: Any) -> str | None:
    if value is True:
        return "t"
    if value is False:
        return "f"
    return value  # type: ignore[no-any-return]


class Nested(str):
    """The JSON text of an array or object, exactly as the event has it."""

    __slots__ = ()


def _raw_members(data: str) -> dict[str, str]:
    """The text of each member's value, byte for byte: json columns keep their spelling."""
    scan = json.JSONDecoder().raw_decode
    members: dict[str, str] = {}
    at = _skip(data, 0) + 1
    while True:
        at = _skip(data, at)
        if data[at] == "}":
            return members
        name, at = scan(data, at)
        start = _skip(data, _skip(data, at) + 1)
        _, at = scan(data, start)
        members[name] = data[start:at]
        at = _skip(data, at)
        if data[at] == ",":
            at += 1


def _skip(data: str, at: int) -> int:
    while data[at] in " \t\r\n":
        at += 1
    return at


def nested_to_text(text: str, type_kind: str) -> str:
    """What the column's input function takes for a nested JSON value.

    `type_kind` is `json` (the text itself), `array` or `record`; elements of an array of json
    stay JSON (`array:json`).
    """
    if type_kind == "json":
        return str(text)
    value = _decoder.decode(text)
    return _literal(value, json_elements=type_kind == "array:json")


def _literal(value: Any, json_elements: bool) -> str:
    if isinstance(value, list):
        return "{" + ",".join(_element(v, json_elements) for v in value) + "}"
    return "(" + ",".join(_attribute(v) for v in value.values()) + ")"


def _element(value: Any, json_elements: bool) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return _literal(value, json_elements)
    if json_elements and not isinstance(value, str):
        return _quoted(json.dumps(value, ensure_ascii=False))
    return _quoted(_text(value))


def _attribute(value: Any) -> str:
    return "" if value is None else _quoted(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return _literal(value, json_elements=False)
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def decode(data: str) -> dict[str, Any]:
    """The row as a dict."""
    names, values = split(data)
    return dict(zip(names, values, strict=True))
