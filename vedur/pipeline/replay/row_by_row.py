"""Replay of single events, one statement each: for what cannot be expressed as net changes.

The order, and what happens when a statement fails, is in `in_order.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from vedur.change.event import (
    UNREADABLE,
    Event,
    EventRange,
    EventType,
    parse_type,
    unreadable,
)
from vedur.change.formats import Nested, decode_json, decode_sql, decode_urlenc, nested_to_text
from vedur.change.quarantine import RowKey
from vedur.db import Database
from vedur.errors import StateError
from vedur.names import quote_ident
from vedur.pipeline.replay.handled import NO_ROWS
from vedur.pipeline.replay.partitions import find_partition, read_moment
from vedur.sql import query
from vedur.tables.mapping import TableSpec, row_key
from vedur.tables.match import unbounded
from vedur.tables.target import PART


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
    source: EventRange | None = None  # where the events are from
    _texts: dict[tuple[str, ...], str] = field(default_factory=dict)
    _partitions: dict[tuple[str, str], TableSpec | None] = field(default_factory=dict)  # by time
    _moments: dict[str, str] = field(default_factory=dict)  # how a row tells its time, by table

    def send(self, chunk: list[Event]) -> None:
        """Apply events one after the other, without waiting for answers. Where one fails, none has
        been counted: all are taken back."""
        counts, missing = dict(self.counts), dict(self.missing)
        try:
            self._send(chunk)
        except BaseException:
            self.counts, self.missing = counts, missing
            raise

    def _send(self, chunk: list[Event]) -> None:
        pending: list[tuple[str, Event, Any]] = []
        self._find_partitions(chunk)

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
        self._find_partitions([event])
        for op, text, params in self.statements(event):
            self._count(op, event, self.db.execute(text, params))

    def _find_partitions(self, chunk: list[Event]) -> None:
        """Find or make the partitions that events go to by their time or that of the batch. What
        was made before may have been taken back with a failed event."""
        self._partitions.clear()
        for event in chunk:
            said = parse_type(event.ev_type)
            spec = self._spec(event, said)
            if said.op == "R" or spec.partitions is None or said.format == "sql":
                continue
            if spec.partitions.field is not None:
                if spec.partitioned and spec.name not in self._moments:
                    self._moments[spec.name] = _moment_of(self.db, spec)
                continue
            moment = self._moment(event, said, spec)
            if (spec.name, moment) not in self._partitions:
                when = moment or read_moment(self.db, spec, self.source)
                found = find_partition(self.db, spec, when)
                place = None if found is None else _of_partition(spec, found)
                self._partitions[spec.name, moment] = place

    def _moment(self, event: Event, said: EventType, spec: TableSpec) -> str:
        """Return the time that an event's row tells, empty where it is the batch's that counts."""
        if not spec.by_event:
            return ""
        sets, where = self._decode(event, said)
        moment = {**sets, **where}.get(PART)
        if not moment:
            what = "its time is not known, which decides on its partition"
            raise StateError(event.named(f'table "{spec.name}": {what}'))
        return moment

    def table(self, event: Event) -> str:
        """Return the name in the set of an event's table."""
        return event.ev_extra1 or parse_type(event.ev_type).table or ""

    def empties(self, event: Event) -> bool:
        """Is it a truncate, of a table that is here?"""
        said = parse_type(event.ev_type)
        return said.op == "R" and not _takes_all(self._spec(event, said))

    def key(self, event: Event) -> RowKey | None:
        """Return the row that an event is about, None where that cannot be told."""
        said = parse_type(event.ev_type)
        if said.op == "R" or _takes_all(self._spec(event, said)):
            return None  # where all events are passed on, they stay in order
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
        if op == "p":
            return  # a partition was made, or rows went to one, or a function was called
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
        """Return the statements of an event: an operation to count (small where a row may well be
        missing), text, parameters. None at all if it would change nothing."""
        said = parse_type(event.ev_type)
        spec = self._spec(event, said)
        if not _takes_all(spec):
            self._require(spec)
        if spec.calls is not None:
            tick = self.source.tick if event.tick is None and self.source else event.tick
            return [("p", *made) for made in spec.calls.statements(event, tick, spec.home)]
        sets, where = self._decode(event, said)
        if spec.partitions is not None:
            return self._in_partitions(event, said, spec, sets, where)
        return self._in_table(event, said, spec, sets, where)

    def _in_partitions(
        self,
        event: Event,
        said: EventType,
        spec: TableSpec,
        sets: dict[str, str | None],
        where: dict[str, str | None],
    ) -> list[tuple[str, str, list[Any]]]:
        """Return statements for a table whose rows go to partitions."""
        target = spec.partitions
        assert target is not None
        if said.format == "sql":
            raise StateError(event.named(f'table "{spec.name}": {NO_ROWS}'))
        if target.field is None:
            place = self._partitions[spec.name, self._moment(event, said, spec)]
            if place is None:
                return []  # too old
            spec = place
            sets, where = ({n: v for n, v in d.items() if n != PART} for d in (sets, where))
            said = replace(said, keys=tuple(key for key in said.keys if key != PART))
        if target.row_mode == "keep_all":
            if said.op == "D":
                return []
            sets, where, said = {**where, **sets}, {}, replace(said, op="I")
        row = {**where, **sets}
        done: list[tuple[str, str, list[Any]]] = []
        if target.row_mode == "keep_latest" and target.field is None:
            key = self._here(event, spec, {name: row[name] for name in said.keys}, key=True)
            done.append(("d", self._text(spec, "D", (), tuple(key)), list(key.values())))
            if said.op == "D":
                return done
            sets, where, said = row, {}, replace(said, op="I")
        if said.op == "D":
            return self._in_table(event, said, spec, sets, where)
        before, after = self._placed(spec, row)
        return [*done, *before, *self._in_table(event, said, spec, sets, where), *after]

    def _placed(
        self, spec: TableSpec, row: dict[str, str | None]
    ) -> tuple[list[tuple[str, str, list[Any]]], list[tuple[str, str, list[Any]]]]:
        """Return what must run before and after a row is written to a table whose column
        decides."""
        target = spec.partitions
        assert target is not None
        if target.field is None:
            return [], []
        words = [spec.home, spec.partition_words]
        if spec.is_tree:
            return [], [("p", query("replay", "spread_rows"), [*words])]
        names = {spec.local(name): name for name in row}
        if target.field not in names:
            return [], []
        text = query("replay", "make_partition_of").format(moment=self._moments[spec.name])
        return [("p", text, [*words, row[names[target.field]]])], []

    def _in_table(
        self,
        event: Event,
        said: EventType,
        spec: TableSpec,
        sets: dict[str, str | None],
        where: dict[str, str | None],
    ) -> list[tuple[str, str, list[Any]]]:
        if said.op != "D" and said.format != "sql" and not spec.strict:
            renamed = spec.renamed({**sets, **where})
            if renamed is not None:
                raise StateError(event.named(f'table "{spec.name}": {renamed}'))
        sets, where = self._here(event, spec, sets), self._here(event, spec, where, key=True)
        values = {n: v for n, v in sets.items() if not spec.by_name[n].generated}
        brings = spec.keeps_latest and said.op == "U"
        if said.op == "U" and not values and not brings:
            return []
        if (spec.condition and said.op != "D") or brings:
            # an update as SQL tells what changed, and the row that is here has the rest
            whole = said.op == "I" or said.format != "sql"
            if whole and (unseen := spec.unseen({*values, *where})):
                problem = spec.cannot_tell(unseen[0])
                raise StateError(event.named(f'table "{spec.name}": {problem}'))
            return self._in_part(spec, said, values, where)
        statement = (said.op, *self._written(spec, said, values, where))
        keys = spec.local_keys(said.keys)
        done: list[tuple[str, str, list[Any]]] = [statement]
        if said.op == "I" and self.replace and keys and all(k in values for k in keys):
            done.insert(0, ("d", self._text(spec, "D", (), keys), [values[k] for k in keys]))
        if said.op == "I" and (unchecked := spec.unchecked_key(values)):
            found = [values[k] for k in unchecked]
            done.append(("=", self._text(spec, "=", (), unchecked), found))
        return done

    def _written(
        self, spec: TableSpec, said: EventType, values: dict[str, Any], where: dict[str, Any]
    ) -> tuple[str, list[Any]]:
        """Return the statement that writes a row, and its values. GENERATED ALWAYS AS IDENTITY
        takes no update, but an inserted value: the row is put in its place anew."""
        if said.op == "U" and (
            spec.is_tree or any(spec.by_name[n].identity_always for n in values)
        ):
            text = self._text(spec, "T", tuple(values), tuple(where))
            return text, [*where.values(), *values.values()]
        text = self._text(spec, said.op, tuple(values), tuple(where))
        return text, [*values.values(), *where.values()]

    def _here(
        self, event: Event, spec: TableSpec, row: dict[str, str | None], *, key: bool = False
    ) -> dict[str, str | None]:
        """Return the values under the names that columns have here; what does not come here is left
        out.

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
        """Return the statements for a change of a table that holds a part of the rows: in, within,
        or out of it; or of one that keeps the latest version, which an update may bring.

        A fragment of SQL does not have the whole row, so it cannot bring a row in.
        """
        row = {**values, **where}
        columns = tuple(row)
        if spec.shared and said.op == "U":
            return self._in_own_part(spec, said, values, where)
        insert = self._text(spec, "i", columns, tuple(where)), list(row.values())
        if said.op == "I":
            return [("I", *insert)]
        leave = self._text(spec, "d", (), tuple(where))
        done: list[tuple[str, str, list[Any]]] = []
        if values:
            done.append(("u", *self._written(spec, said, values, where)))
        if spec.condition:
            done.append(("d", leave, list(where.values())))
        return done if said.format == "sql" else [*done, ("i", *insert)]

    def _in_own_part(
        self, spec: TableSpec, said: EventType, values: dict[str, Any], where: dict[str, Any]
    ) -> list[tuple[str, str, list[Any]]]:
        """Return the statements for an update of a table that shares its place with others: only
        its own rows may change, and afterwards nothing would tell a row that has left the part from
        one of the others'."""
        row = {**values, **where}
        if said.format == "sql":
            moved = sorted(set(values) & set(spec.looks_at))
            if moved:
                raise StateError(
                    f'table "{spec.name}" shares {spec.dest} with others, and an update as SQL '
                    f'changes column "{moved[0]}" of its condition: it does not tell whether the '
                    "row stays; let the root write events as JSON (event_format)"
                )
            return [("u", *self._written(spec, said, values, where))] if values else []
        leave = self._text(spec, "l", tuple(row), tuple(where))
        done: list[tuple[str, str, list[Any]]] = [("d", leave, [*where.values(), *row.values()])]
        if values:
            done.append(("u", *self._written(spec, said, values, where)))
        insert = self._text(spec, "i", tuple(row), tuple(where))
        return [*done, ("i", insert, list(row.values()))]

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
            return decode_sql(said.op, data)
        if said.format == "urlenc":
            row: dict[str, Any] = decode_urlenc(data)
        else:
            spec = self._spec(event, said)
            row = {n: _plain(spec, spec.local(n), v) for n, v in decode_json(data).items()}
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
        mark = (spec.name, spec.dest, op, *sets, "", *where)
        text = self._texts.get(mark)
        if text is None:
            text = self._texts[mark] = self._compose(spec, op, sets, where)
        return text

    @staticmethod
    def _compose(spec: TableSpec, op: str, sets: tuple[str, ...], where: tuple[str, ...]) -> str:
        def name(column: str) -> str:
            return quote_ident(column).replace("%", "%%")

        def value(column: str) -> str:
            return "%s::" + unbounded(spec.by_name[column].type).replace("%", "%%")

        words = {"only": spec.only, "dest": spec.dest.replace("%", "%%")}
        constants = {
            column.replace("%", "%%"): value.replace("%", "%%")
            for column, value in spec.constants.items()
        }
        if op == "I":
            return query("replay", "row_insert").format(
                **words,
                columns=", ".join([*map(name, sets), *constants]),
                values=", ".join([*map(value, sets), *constants.values()]),
            )
        condition = (spec.condition or "true").replace("%", "%%")
        alias = spec.alias.replace("%", "%%")
        if op == "i":
            there = '"d"' if alias != '"d"' else '"e"'  # a table may have any name, also this one
            return query("replay", "row_insert_part").format(
                **words,
                columns=", ".join([*map(name, sets), *constants]),
                names=", ".join([*map(name, sets), *constants.values()]),
                values=", ".join(f"{value(c)} as {name(c)}" for c in sets),
                alias=alias,
                condition=condition,
                there=there,
                missing=" and ".join(
                    [f"{there}.{name(c)} = {alias}.{name(c)}" for c in where]
                    + ([f"({own}\n)".replace("%", "%%")] if (own := spec.own(there)) else [])
                )
                if where
                else "false",
            )
        match = " and ".join(f"{name(c)} = {value(c)}" for c in where)
        if own := spec.own():
            match += f" and ({own}\n)".replace("%", "%%")
        if op == "l":
            return query("replay", "row_leave_own").format(
                **words,
                match=match,
                values=", ".join(f"{value(c)} as {name(c)}" for c in sets),
                alias=alias,
                condition=condition,
            )
        if op == "T":
            kept = [c.name for c in spec.stage_columns if c.name not in sets]
            return query("replay", "row_replace").format(
                **words,
                match=match,
                kept=", ".join(map(name, kept)),
                columns=", ".join([*map(name, (*sets, *kept)), *constants]),
                values=", ".join([*map(value, sets), *map(name, kept), *constants.values()]),
            )
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


def _moment_of(db: Database, spec: TableSpec) -> str:
    """Read an expression for the time of a row, with a parameter for the column that decides."""
    assert spec.partitions is not None and spec.partitions.field is not None
    kind = unbounded(spec.by_name[spec.partitions.field].type)
    words = [spec.home, spec.partitions.field, f"\x01::{kind}"]
    found = str(db.value(query("replay", "part_moment"), words))
    return found.replace("%", "%%").replace("\x01", "%s")


def _takes_all(spec: TableSpec) -> bool:
    """Are all of its events given to a handler, and is there no table here?"""
    return spec.calls is not None and spec.calls.whole


def _of_partition(spec: TableSpec, partition: str) -> TableSpec:
    """Return the same table, whose rows are in one of its partitions."""
    columns = tuple(c for c in spec.columns if c.name != PART)
    return replace(spec, dest=partition, columns=columns, by_name={})


def _plain(spec: TableSpec, name: str | None, value: Any) -> Any:
    if value.__class__ is Nested:
        column = spec.by_name.get(name or "")
        kind = column.type_kind if column else ""
        return nested_to_text(value, kind) if kind else str(value)
    return value
