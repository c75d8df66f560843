"""Patterns: how rows of one table with one set of columns look."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vedur.change.net import Kind
from vedur.pipeline.replay.fast_path.payload import Layout
from vedur.pipeline.replay.shape import Shape
from vedur.tables.mapping import TableSpec

_TEXT = r'"[^"\\\n]*"'
_NUMBER = r"[-+0-9.eE]+"
_VALUE = f"(?:{_TEXT}|null|{_NUMBER})"
_BOOLEAN = "(?:null|true|false)"
#: Names that are found again when a payload's names are cut out by quotes, commas and colons.
_PLAIN_NAME = re.compile(r'[^"\\,:{}\x00-\x1f]+')


@dataclass
class Pattern:
    """Recognises rows of one table with one shape; `ops` are the event types met so far.

    `rows` matches one row of COPY text, with the groups event number, type, payload and key
    columns, or nothing at all. `layout` says the same about many payloads at once.
    """

    table: str
    shape: Shape
    rows: re.Pattern[str]
    single_key: bool
    layout: Layout
    ops: dict[str, Kind] = field(default_factory=dict)


def make_pattern(spec: TableSpec, shape: Shape, extra1: str, data: str) -> Pattern | None:
    """Return the pattern of rows like this one; None where they must take the slow path."""
    columns = shape.staged_columns
    if columns is None or shape.key is None or shape.unknown or shape.unseen:
        return None
    if any(shape.nested):
        return None
    if not all(_PLAIN_NAME.fullmatch(n) for n in shape.names) or "\\" in extra1:
        return None
    types = [spec.stage_columns[column].type for column in columns]
    # A key value is a string in all rows or a number in all rows: then the group that matches it,
    # a string without its quotes or a number as it is, is what the slow path would decode it to.
    sample = re.fullmatch(_payload_pattern(shape, types, f"({_TEXT}|{_NUMBER})"), data)
    if sample is None:
        return None
    quoted = {i: text.startswith('"') for i, text in _key_values(shape, sample.groups())}
    payload = _payload_pattern(shape, types, "", quoted)
    # The alternative that matches nothing ends a search at the first row that is not alike: without
    # it the expression would look for the next one further on.
    rows = re.compile(
        rf"([0-9]+)\t[0-9]+\t\t\t([^\t\n\\]+)\t{re.escape(extra1)}\t({payload})\n|", re.ASCII
    )
    # Groups are in the order of columns; a key of several columns must be, too.
    if list(shape.key) != sorted(shape.key):
        return None
    kinds = tuple(
        ("text" if quoted[i] else "number") if i in quoted
        else "boolean" if kind == "boolean" else "any"
        for i, kind in enumerate(types)
    )  # fmt: skip
    return Pattern(spec.name, shape, rows, len(shape.key) == 1, Layout(shape.names, kinds))


def _key_values(shape: Shape, groups: Sequence[str]) -> Iterator[tuple[int, str]]:
    return zip(sorted(shape.key or ()), groups, strict=True)


def _payload_pattern(
    shape: Shape, types: Sequence[str], key: str, quoted: dict[int, bool] | None = None
) -> str:
    """Return a regular expression for payloads; `key` stands for each key value unless it is known
    which of them are `quoted`."""
    parts = []
    for i, name in enumerate(shape.names):
        value = _BOOLEAN if types[i] == "boolean" else _VALUE
        if shape.key is not None and i in shape.key:
            value = key
            if quoted is not None:
                value = r'"([^"\\\n]*)"' if quoted[i] else f"({_NUMBER})"
        parts.append(f'"{re.escape(name)}":{value}')
    return r"\{" + ",".join(parts) + r"\}"
