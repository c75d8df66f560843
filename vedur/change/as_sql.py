"""An event of a queue as a statement that a person can read, change and run on another node. Pure.

This is for events that were not replicated and are looked at by hand: values are literals of
unknown type, so that the table's columns decide. Replay never goes this way.
"""

from __future__ import annotations

from collections.abc import Mapping

from vedur.change.event import UNREADABLE, Event, EventType, parse_type, unreadable
from vedur.change.formats import decode_json, decode_sql, decode_urlenc
from vedur.errors import StateError
from vedur.names import parse_name, quote_ident

#: The type of an event that carries a script of the set.
EXECUTE = "EXECUTE"


def as_sql(event: Event) -> str:
    """Return the statement that does what an event says, a comment where it is about no row."""
    kind = parse_type(event.ev_type)
    if kind.op == "-":
        return _comment(event)
    table = parse_name(kind.table or event.ev_extra1 or "").quoted
    if kind.op == "R":
        return f"truncate only {table};"
    try:
        return _row(kind, table, event.ev_data or "")
    except UNREADABLE as error:
        return _lines(f"event {event.ev_id} of {table}: {unreadable(error)}")
    except StateError as error:
        return _lines(f"event {event.ev_id} of {table}: {error.message}")


def _row(kind: EventType, table: str, data: str) -> str:
    key: Mapping[str, str | None]
    if kind.format == "sql":
        values, key = decode_sql(kind.op, data)
        row = {**key, **values}
    else:
        row = decode_urlenc(data) if kind.format == "urlenc" else decode_json(data)
        key = {name: row[name] for name in kind.keys}
    if kind.op == "I":
        names = ", ".join(quote_ident(name) for name in row)
        return f"insert into {table} ({names}) values ({', '.join(map(_literal, row.values()))});"
    if not key:
        return _lines(f"no key is known for a row of {table}: {data}")
    where = " and ".join(f"{quote_ident(name)} = {_literal(value)}" for name, value in key.items())
    if kind.op == "D":
        return f"delete from {table} where {where};"
    sets = ", ".join(
        f"{quote_ident(name)} = {_literal(value)}" for name, value in row.items() if name not in key
    )
    return f"update {table} set {sets} where {where};" if sets else _lines(f"unchanged: {where}")


def _literal(value: object) -> str:
    if value is None:
        return "null"
    text = str(value).replace("'", "''")
    if "\\" not in text:
        return f"'{text}'"
    # with backslashes doubled the text means the same whatever standard_conforming_strings says
    return "E'" + text.replace("\\", "\\\\") + "'"


def _comment(event: Event) -> str:
    if event.ev_type == EXECUTE:
        return _lines(f"script {event.ev_extra1 or ''}:\n{event.ev_data or ''}")
    return _lines(f"event {event.ev_id}, {event.ev_type or ''}: {event.ev_data or ''}")


def _lines(text: str) -> str:
    """Make a comment; every line of it, whatever ends a line there."""
    return "\n".join(f"-- {line}" for line in text.splitlines() or [""])
