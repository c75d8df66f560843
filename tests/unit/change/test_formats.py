"""The three payload formats, read back."""

from __future__ import annotations

import json
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedur.change import formats
from vedur.change.event import EventType, parse_type
from vedur.change.formats import decode_json, decode_sql, decode_urlenc, nested_to_text
from vedur.errors import StateError

# No NUL: PostgreSQL has no text with it. No surrogates: they are not UTF-8.
text = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
rows = st.dictionaries(text.filter(bool), st.none() | text, min_size=1)


@pytest.mark.parametrize(
    ("ev_type", "want"),
    [
        ("I:id,b", EventType("I", "urlenc", ("id", "b"))),
        ("U:", EventType("U", "urlenc", ())),
        ("D", EventType("D", "sql")),
        ("R", EventType("R")),
        (
            '{"op":"UPDATE","table":["s","t"],"pkey":["id"]}',
            EventType("U", "json", ("id",), "s.t"),
        ),
        ('{"op":"TRUNCATE","table":["s","t"]}', EventType("R", "json", (), "s.t")),
        ("EXECUTE", EventType("-")),
        ("pgq.location-info", EventType("-")),
    ],
)
def test_event_types(ev_type: str, want: EventType) -> None:
    assert parse_type(ev_type) == want


@pytest.mark.parametrize("ev_type", ['{"op":"MERGE"}', "{", '{"op":' + "[" * 5000])
def test_a_type_that_cannot_be_read_is_left_to_the_worker(ev_type: str) -> None:
    """It knows the event, so it can name it; and it handles no such type."""
    assert parse_type(ev_type).op == "-"


def encode(row: dict[str, str | None]) -> str:
    def quoted(value: str) -> str:
        return urllib.parse.quote_plus(value, safe="._-")

    return "&".join(quoted(k) if v is None else f"{quoted(k)}={quoted(v)}" for k, v in row.items())


@given(rows)
def test_urlencoded_rows(row: dict[str, str | None]) -> None:
    assert decode_urlenc(encode(row)) == row


def test_urlencoded_null_is_not_the_empty_string() -> None:
    assert decode_urlenc("a&b=&c=null") == {"a": None, "b": "", "c": "null"}


@given(rows)
def test_json_rows(row: dict[str, str | None]) -> None:
    assert decode_json(json.dumps(row)) == row


def test_json_numbers_stay_text() -> None:
    digits = "9" * 400 + ".10"
    got = decode_json(f'{{"n": {digits}, "i": 9007199254740993, "e": 1E-400, "b": true}}')
    assert got == {"n": digits, "i": "9007199254740993", "e": "1E-400", "b": "t"}


def test_nested_json_keeps_its_spelling() -> None:
    got = decode_json('{"j": {"a":  1.0, "a": 2}, "x": [1, null]}')
    assert got == {"j": '{"a":  1.0, "a": 2}', "x": "[1, null]"}
    assert nested_to_text(got["j"], "json") == '{"a":  1.0, "a": 2}'
    assert nested_to_text('[1, null, "a\\"b", [true]]', "array") == '{"1",NULL,"a\\"b",{"t"}}'
    assert nested_to_text('{"a": 1, "b": null}', "record") == '("1",)'


def quote_literal(value: str | None) -> str:
    if value is None:
        return "null"
    quoted = value.replace("'", "''")
    if "\\" in value:
        return "E'" + quoted.replace("\\", "\\\\") + "'"
    return f"'{quoted}'"


def quote_ident(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@given(rows, rows)
def test_sql_fragments(row: dict[str, str | None], key: dict[str, str | None]) -> None:
    names = ",".join(map(quote_ident, row))
    values = ",".join(map(quote_literal, row.values()))
    assert decode_sql("I", f"({names}) values ({values})") == (row, {})
    sets = ",".join(f"{quote_ident(k)}={quote_literal(v)}" for k, v in row.items())
    where = " and ".join(f"{quote_ident(k)}={quote_literal(v)}" for k, v in key.items())
    assert decode_sql("U", f"{sets} where {where}") == (row, key)
    assert decode_sql("D", where) == ({}, key)


def test_a_broken_fragment_is_an_error() -> None:
    with pytest.raises(StateError):
        decode_sql("U", "a=1")


@given(st.lists(st.none() | text, min_size=1))
def test_copy_text_round_trip(values: list[str | None]) -> None:
    line = formats.line(values)
    assert line.count("\n") == 1
    assert formats.fields(line[:-1]) == values
