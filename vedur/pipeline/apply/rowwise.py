"""Ordered replay, one statement per event: for what cannot be expressed as net changes.

Statements go out pipelined; if one fails, the same events are sent again one at a time, so that
the error names the event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from vedur.change import jsonrow, sqlfrag, urlenc
from vedur.change.event import Event, EventType, parse_type
from vedur.change.jsonrow import Nested, nested_to_text
from vedur.change.table import TableSpec
from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.names import quote_ident
from vedur.sql import query

_AT_ONCE = 500


@dataclass
class RowWise:
    """Applies events in order; `truncate` is called for truncate events."""

    db: Database
    tables: dict[str, TableSpec]
    truncate: Callable[[TableSpec], None]
    counts: dict[str, int] = field(default_factory=lambda: {"I": 0, "U": 0, "D": 0})
    missing: int = 0
    _texts: dict[tuple[str, ...], str] = field(default_factory=dict)

    def run(self, events: Iterable[Event]) -> None:
        """Apply all of them."""
        source = iter(events)
        while chunk := list(islice(source, _AT_ONCE)):
            try:
                with self.db.transaction():
                    self._send(chunk)
            except DatabaseError as error:
                if error.sqlstate is None:
                    raise
                self._one_by_one(chunk)

    def _send(self, chunk: list[Event]) -> None:
        pending: list[tuple[str, Any]] = []

        def settle() -> None:
            for op, cursor in pending:
                self._count(op, cursor.rowcount)
            pending.clear()

        with self.db.raw.pipeline() as pipe:
            for event in chunk:
                said = parse_type(event.ev_type)
                if said.op == "R":
                    pipe.sync()
                    settle()
                    self.truncate(self._spec(event, said))
                    continue
                for op, text, params in self.statements(event):
                    pending.append((op, self.db.raw.execute(text, params)))
        settle()

    def _one_by_one(self, chunk: list[Event]) -> None:
        for event in chunk:
            try:
                said = parse_type(event.ev_type)
                if said.op == "R":
                    self.truncate(self._spec(event, said))
                    continue
                for op, text, params in self.statements(event):
                    self._count(op, self.db.execute(text, params))
            except DatabaseError as error:
                error.args = (event.named(error.message),)
                error.message = str(error.args[0])
                raise

    def _count(self, op: str, rows: int) -> None:
        self.counts[op.upper()] += rows
        if op == "U" and rows == 0:
            self.missing += 1

    def _spec(self, event: Event, said: EventType) -> TableSpec:
        return self.tables[event.ev_extra1 or said.table or ""]

    def statements(self, event: Event) -> list[tuple[str, str, list[Any]]]:
        """The statements of an event: an operation to count (small where a row may well be
        missing), text, parameters. None at all if it would change nothing."""
        said = parse_type(event.ev_type)
        spec = self._spec(event, said)
        sets, where = self._decode(event, said)
        for name in (*sets, *where):
            if name not in spec.by_name:
                raise StateError(
                    event.named(f'table "{spec.name}": column "{name}" is missing on the target')
                )
        values = {n: v for n, v in sets.items() if not spec.by_name[n].generated}
        if said.op == "U" and not values:
            return []
        if spec.condition and said.op != "D":
            return self._in_part(spec, said, values, where)
        text = self._text(spec, said.op, tuple(values), tuple(where))
        return [(said.op, text, [*values.values(), *where.values()])]

    def _in_part(
        self, spec: TableSpec, said: EventType, values: dict[str, Any], where: dict[str, Any]
    ) -> list[tuple[str, str, list[Any]]]:
        """Changes of a table that holds a part of the rows: in, within, or out of it.

        A fragment of SQL does not have the whole row, so it cannot bring a row in.
        """
        row = {**values, **where}
        columns = tuple(row)
        insert = self._text(spec, "i", columns, tuple(where)), list(row.values())
        if said.op == "I":
            return [("I", *insert)]
        update = self._text(spec, "U", tuple(values), tuple(where))
        leave = self._text(spec, "d", (), tuple(where))
        done: list[tuple[str, str, list[Any]]] = [
            ("u", update, [*values.values(), *where.values()]),
            ("d", leave, list(where.values())),
        ]
        return done if said.format == "sql" else [*done, ("i", *insert)]

    def _decode(
        self, event: Event, said: EventType
    ) -> tuple[dict[str, str | None], dict[str, str | None]]:
        data = event.ev_data or ""
        if said.format == "sql":
            return sqlfrag.decode(said.op, data)
        if said.format == "urlenc":
            row: dict[str, Any] = urlenc.decode(data)
        else:
            spec = self._spec(event, said)
            row = {n: _plain(spec, n, v) for n, v in jsonrow.decode(data).items()}
        if said.op == "I":
            return row, {}
        try:
            where = {k: row[k] for k in said.keys}
        except KeyError as error:
            raise StateError(event.named(f"the event lacks its key column {error}")) from None
        if not where:
            raise StateError(event.named("update or delete without key columns"))
        if said.op == "D":
            return {}, where
        return {n: v for n, v in row.items() if n not in where}, where

    def _text(self, spec: TableSpec, op: str, sets: tuple[str, ...], where: tuple[str, ...]) -> str:
        mark = (spec.name, op, *sets, "", *where)
        text = self._texts.get(mark)
        if text is None:
            text = self._texts[mark] = self._compose(spec, op, sets, where)
        return text

    @staticmethod
    def _compose(spec: TableSpec, op: str, sets: tuple[str, ...], where: tuple[str, ...]) -> str:
        def name(column: str) -> str:
            return quote_ident(column).replace("%", "%%")

        def value(column: str) -> str:
            return "%s::" + spec.by_name[column].type.replace("%", "%%")

        words = {"only": spec.only, "dest": spec.dest.replace("%", "%%")}
        if op == "I":
            return query("replay", "row_insert").format(
                **words,
                columns=", ".join(map(name, sets)),
                values=", ".join(map(value, sets)),
            )
        condition = (spec.condition or "").replace("%", "%%")
        alias = spec.alias.replace("%", "%%")
        if op == "i":
            return query("replay", "row_insert_part").format(
                **words,
                columns=", ".join(map(name, sets)),
                names=", ".join(map(name, sets)),
                values=", ".join(f"{value(c)} as {name(c)}" for c in sets),
                alias=alias,
                condition=condition,
                missing=" and ".join(f"d.{name(c)} = {alias}.{name(c)}" for c in where) or "false",
            )
        match = " and ".join(f"{name(c)} = {value(c)}" for c in where)
        if op == "d":
            return query("replay", "row_leave_part").format(
                **words, match=match, condition=condition
            )
        if op == "D":
            return query("replay", "row_delete").format(**words, match=match)
        return query("replay", "row_update").format(
            **words, sets=", ".join(f"{name(c)} = {value(c)}" for c in sets), match=match
        )


def _plain(spec: TableSpec, name: str, value: Any) -> Any:
    if value.__class__ is Nested:
        column = spec.by_name.get(name)
        kind = column.type_kind if column else ""
        return nested_to_text(value, kind) if kind else str(value)
    return value
