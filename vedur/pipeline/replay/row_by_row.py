"""Replay of single events, one statement each: for what cannot be expressed as net changes.

The order, and what happens when a statement fails, is in `ordered.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vedur.change import jsonrow, sqlfrag, urlenc
from vedur.change.event import UNREADABLE, Event, EventType, parse_type, unreadable
from vedur.change.jsonrow import Nested, nested_to_text
from vedur.change.quarantine import RowKey
from vedur.db import Database
from vedur.errors import StateError
from vedur.names import quote_ident
from vedur.sql import query
from vedur.tables.mapping import TableSpec, row_key
from vedur.tables.match import without_length

#: By these bare names SQL means one character, one bit.
_FIXED = re.compile(r"^(character|bit)(?! varying)")
_WITHOUT_LENGTH = {"character": "bpchar", "bit": "bit varying"}


@dataclass
class RowWise:
    """Applies events; `truncate` is called for truncate events."""

    db: Database
    tables: dict[str, TableSpec]
    truncate: Callable[[TableSpec], None]
    replace: bool = False  # rows that an insert finds are overwritten
    counts: dict[str, int] = field(default_factory=lambda: {"I": 0, "U": 0, "D": 0})
    missing: dict[str, int] = field(default_factory=dict)  # updates without a row, by table
    missing_columns: dict[str, set[str]] = field(default_factory=dict)  # left out, by table
    _texts: dict[tuple[str, ...], str] = field(default_factory=dict)

    def send(self, chunk: list[Event]) -> None:
        """Apply events one after the other, without waiting for answers."""
        pending: list[tuple[str, Event, Any]] = []

        def settle() -> None:
            for op, event, cursor in pending:
                self._count(op, event, cursor.rowcount)
            pending.clear()

        with self.db.raw.pipeline() as pipe:
            for event in chunk:
                if self.empties(event):
                    pipe.sync()
                    settle()
                    self._truncate(event)
                    continue
                for op, text, params in self.statements(event):
                    pending.append((op, event, self.db.raw.execute(text, params)))
        settle()

    def one(self, event: Event) -> None:
        """Apply one event and wait for the answer."""
        if self.empties(event):
            self._truncate(event)
            return
        for op, text, params in self.statements(event):
            self._count(op, event, self.db.execute(text, params))

    def table(self, event: Event) -> str:
        """The name in the set of an event's table."""
        return event.ev_extra1 or parse_type(event.ev_type).table or ""

    @staticmethod
    def empties(event: Event) -> bool:
        """Is it a truncate?"""
        return parse_type(event.ev_type).op == "R"

    def key(self, event: Event) -> RowKey | None:
        """The row that an event is about, None where that cannot be told."""
        said = parse_type(event.ev_type)
        if said.op == "R":
            return None
        try:
            sets, where = self._decode(event, said)
        except StateError:
            return None
        return row_key(self._spec(event, said), said, {**sets, **where})

    def _truncate(self, event: Event) -> None:
        spec = self._spec(event, parse_type(event.ev_type))
        self._require(spec)
        self.truncate(spec)

    @staticmethod
    def _require(spec: TableSpec) -> None:
        if not spec.columns:
            raise StateError(
                f"{spec.dest} does not exist on the target: create it, "
                f'or run "remove-table {spec.name}"'
            )

    def _count(self, op: str, event: Event, rows: int) -> None:
        if op == "=":
            self._require_one(event, rows, "is there already")
            return
        if op in "UuDd":
            self._require_one(event, rows, "names several rows")
        self.counts[op.upper()] += rows
        if op == "U" and rows == 0:
            table = self.table(event)
            self.missing[table] = self.missing.get(table, 0) + 1

    def _require_one(self, event: Event, rows: int, problem: str) -> None:
        if rows <= 1:
            return
        key = self.key(event)
        shown = f" {key.text}" if key else ""
        raise StateError(
            event.named(
                f'table "{self.table(event)}": key{shown} {problem} on the target; remove the rows '
                f'that should not be there, or run "repair", and make the key unique'
            )
        )

    def _spec(self, event: Event, said: EventType) -> TableSpec:
        return self.tables[event.ev_extra1 or said.table or ""]

    def statements(self, event: Event) -> list[tuple[str, str, list[Any]]]:
        """The statements of an event: an operation to count (small where a row may well be
        missing), text, parameters. None at all if it would change nothing."""
        said = parse_type(event.ev_type)
        spec = self._spec(event, said)
        self._require(spec)
        sets, where = self._decode(event, said)
        if said.op != "D" and said.format != "sql" and not spec.strict:
            renamed = spec.renamed({**sets, **where})
            if renamed is not None:
                raise StateError(event.named(f'table "{spec.name}": {renamed}'))
        sets, where = self._here(event, spec, sets), self._here(event, spec, where, key=True)
        values = {n: v for n, v in sets.items() if not spec.by_name[n].generated}
        if said.op == "U" and not values:
            return []
        if spec.condition and said.op != "D":
            # an update as SQL tells what changed, and the row that is here has the rest
            whole = said.op == "I" or said.format != "sql"
            if whole and (unseen := spec.unseen({*values, *where})):
                problem = spec.cannot_tell(unseen[0])
                raise StateError(event.named(f'table "{spec.name}": {problem}'))
            return self._in_part(spec, said, values, where)
        text = self._text(spec, said.op, tuple(values), tuple(where))
        statement = (said.op, text, [*values.values(), *where.values()])
        keys = spec.local_keys(said.keys)
        done: list[tuple[str, str, list[Any]]] = [statement]
        if said.op == "I" and self.replace and keys and all(k in values for k in keys):
            done.insert(0, ("d", self._text(spec, "D", (), keys), [values[k] for k in keys]))
        if said.op == "I" and (unchecked := spec.unchecked_key(values)):
            found = [values[k] for k in unchecked]
            done.append(("=", self._text(spec, "=", (), unchecked), found))
        return done

    def _here(
        self, event: Event, spec: TableSpec, row: dict[str, str | None], *, key: bool = False
    ) -> dict[str, str | None]:
        """The values under the names that columns have here; what does not come here is left out.

        The key must be there, whatever is said of other columns that the target lacks.
        """
        found = {}
        for name, value in row.items():
            local = spec.local(name)
            if local in spec.by_name:
                found[local] = value
            elif key or (local is not None and spec.strict):
                problem = f'column "{local or name}" is missing on the target'
                raise StateError(event.named(f'table "{spec.name}": {problem}'))
            elif local is not None:
                self.missing_columns.setdefault(spec.name, set()).add(local)
        return found

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
        try:
            return self._read(event, said)
        except UNREADABLE as error:
            raise StateError(unreadable(error)) from error

    def _read(
        self, event: Event, said: EventType
    ) -> tuple[dict[str, str | None], dict[str, str | None]]:
        data = event.ev_data or ""
        if said.format == "sql":
            return sqlfrag.decode(said.op, data)
        if said.format == "urlenc":
            row: dict[str, Any] = urlenc.decode(data)
        else:
            spec = self._spec(event, said)
            row = {n: _plain(spec, spec.local(n), v) for n, v in jsonrow.decode(data).items()}
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
            return "%s::" + _unbounded(spec.by_name[column].type).replace("%", "%%")

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
            there = '"d"' if alias != '"d"' else '"e"'  # a table may have any name, also this one
            return query("replay", "row_insert_part").format(
                **words,
                columns=", ".join(map(name, sets)),
                names=", ".join(map(name, sets)),
                values=", ".join(f"{value(c)} as {name(c)}" for c in sets),
                alias=alias,
                condition=condition,
                there=there,
                missing=" and ".join(f"{there}.{name(c)} = {alias}.{name(c)}" for c in where)
                or "false",
            )
        match = " and ".join(f"{name(c)} = {value(c)}" for c in where)
        if op == "d":
            return query("replay", "row_leave_part").format(
                **words, match=match, condition=condition
            )
        if op in ("D", "="):
            name_of = {"D": "row_delete", "=": "row_same"}
            return query("replay", name_of[op]).format(**words, match=match)
        return query("replay", "row_update").format(
            **words, sets=", ".join(f"{name(c)} = {value(c)}" for c in sets), match=match
        )


def _unbounded(type: str) -> str:
    """A type without its length: a cast to varchar(3) would cut a longer value in silence, where
    the assignment to the column refuses it."""
    if '"' in type:
        return type
    bare = without_length(type)
    return _FIXED.sub(lambda found: _WITHOUT_LENGTH[found[0]], bare)


def _plain(spec: TableSpec, name: str | None, value: Any) -> Any:
    if value.__class__ is Nested:
        column = spec.by_name.get(name or "")
        kind = column.type_kind if column else ""
        return nested_to_text(value, kind) if kind else str(value)
    return value
