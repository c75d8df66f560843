"""What a branch passes on of tables whose rows it masks: events written anew, and nothing else.

A branch that masks sorts the events of a slice by their table. Those of tables that it has as they
are go on as they came (`forward.py`). All others are read here, one by one, before anything of
them is written on the branch: an event of a masked table is decoded, shown to the table's handler
together with others, and written again in its own format, with its number, time and type. What a
trigger may have put beside the row (old rows, values of expressions in `ev_extra2` to `ev_extra4`)
stays behind. An event that cannot be masked, or that is of no table of this node, stops the batch:
it is named by its number, and none of its values is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote_plus

from vedur.change.event import EventType, Kind, parse_type
from vedur.change.formats import Nested, fields, in_blocks, line, split_json
from vedur.db import Database
from vedur.db.copy import copy_all, copy_blocks
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.names import quote_literal
from vedur.pipeline.replay.handled import AT_ONCE, Change, Untouched
from vedur.sql import query
from vedur.tables.mapping import TableSpec

_READ_BYTES = 1 << 20
_KINDS = {"I": Kind.INSERT, "U": Kind.UPDATE, "D": Kind.DELETE}
#: What a type may say; a trigger of somebody's own may write more.
_SAID = frozenset(("op", "table", "pkey"))
#: Types of events that are not about rows, as `is_system` in replay.sql has them.
_SYSTEM = ("pgq.", "londiste.")


@dataclass(frozen=True)
class MaskedTables:
    """By which a task sorts events: tables whose events go on as they are, and those that are
    masked."""

    plain: frozenset[str]
    masked: Mapping[str, TableSpec] = field(hash=False)

    def of_plain(self) -> str:
        """Return SQL that is true for events of plain tables, and false for all others."""
        names = ", ".join(map(quote_literal, sorted(self.plain)))
        return f"(coalesce(ev_extra1, '') in ({names}))" if names else "false"


class RawRow(NamedTuple):
    """An event with all that the queue has of it."""

    ev_id: str
    ev_time: str | None
    ev_txid: str
    ev_type: str | None
    ev_extra1: str | None
    ev_data: str | None
    ev_extra2: str | None
    ev_extra3: str | None
    ev_extra4: str | None

    def refuse(self, what: str) -> StateError:
        """Make the error that names the event, and none of its values."""
        return StateError(
            f"[ev_id={self.ev_id},ev_txid={self.ev_txid}] {what}: it is not passed on, and nothing "
            "is applied"
        )


@dataclass
class MaskedSlice:
    """The events of a slice that do not go on just as they are."""

    source: Database
    target: Database
    events: str
    owner: int
    stage: str
    number: int
    tables: MaskedTables

    def forward(self, condition: str) -> int:
        """Write the events that meet a condition into the raw staging table as they are to be
        passed on, in the transaction of the caller; returns how many there were."""
        if self.source.encoding == "SQL_ASCII":
            raise StateError(
                "the provider's database has no encoding (SQL_ASCII), so values of it cannot be "
                "masked for nodes below: nothing is applied"
            )
        read = query("publish", "masked_read").format(
            events=self.events, slice=condition, owner=self.owner
        )
        write = query("publish", "masked_write").format(stage=self.stage)
        count = 0
        for rows in _together(_rows(copy_blocks(self.source, read, _READ_BYTES))):
            texts = (line((str(self.number), *row)) for row in self._passed(rows))
            copy_all(self.target, [(write, in_blocks(texts))])
            reach("masked.written")
            count += len(rows)
        return count

    def _passed(self, rows: list[RawRow]) -> list[RawRow]:
        """Return the events as they are to go on; raises for the first that cannot."""
        told: list[tuple[RawRow, str | None]] = [(row, self._masked_table(row)) for row in rows]
        groups: dict[str, list[RawRow]] = {}
        for row, name in told:
            if name is not None:
                groups.setdefault(name, []).append(row)
        data: dict[str, str] = {}
        for name, group in groups.items():
            data.update(_mask_or_name(self.tables.masked[name], group))
        return [
            row
            if name is None
            else row._replace(
                ev_data=data.get(row.ev_id, ""), ev_extra2=None, ev_extra3=None, ev_extra4=None
            )
            for row, name in told
        ]

    def _masked_table(self, row: RawRow) -> str | None:
        """Return the masked table that an event is of; None where it goes on as it is."""
        kind = row.ev_type or ""
        said = parse_type(kind)
        if said.op == "-":
            if kind == "EXECUTE" or kind.startswith(_SYSTEM):
                return None
            raise row.refuse("its type says neither a change of a row nor what else it is about")
        name = row.ev_extra1 or said.table or ""
        if name in self.tables.masked:
            return name
        if name in self.tables.plain:
            return None
        raise row.refuse(
            f'it is of table "{name}", which this branch does not have, and unknown_tables = stop: '
            "add-table it here, with the handler that masks it or (--handler=vtable, if the rows "
            "are not wanted here) as it is"
        )


def _rows(blocks: Iterable[bytes]) -> Iterator[RawRow]:
    """Yield the events that COPY sends as text."""
    for block in blocks:
        for text in block.decode().split("\n")[:-1]:
            retry, *values = fields(text)
            row = RawRow(*values)  # type: ignore[arg-type]
            if retry == "true":
                raise StateError(f"event {row.ev_id} is a retry: replication has no use for it")
            yield row


def _together(rows: Iterator[RawRow]) -> Iterator[list[RawRow]]:
    """Yield as many at a time as a handler is shown together."""
    group: list[RawRow] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row.ev_data or "")
        if len(group) >= AT_ONCE or size > 16 * _READ_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


# -- events of one table ------------------------------------------------------------------------


def _mask_or_name(spec: TableSpec, rows: list[RawRow]) -> dict[str, str]:
    """Do what `_mask` does; what a handler says of many events is said of the first one that it is
    about."""
    try:
        return _mask(spec, rows)
    except StateError:
        for row in rows:
            try:
                _mask(spec, [row])
            except StateError as error:
                if f"ev_id={row.ev_id}," in error.message:
                    raise
                raise row.refuse(error.message) from None
        raise


def _mask(spec: TableSpec, rows: list[RawRow]) -> dict[str, str]:
    """Return the new data of events of a table by their numbers; a TRUNCATE has none."""
    changes = Untouched(spec)
    types: dict[str, EventType] = {}
    by_id = {row.ev_id: row for row in rows}
    for row in rows:
        said = parse_type(row.ev_type)
        _require_plain_type(row, said)
        if said.op == "R":
            continue
        types[row.ev_id] = said
        changes.add((row.ev_id, row.ev_txid), row.ev_data, said, _KINDS[said.op], logged=False)
    found = {}
    for change in changes.seen():
        found[change.ev_id] = _written(spec, change, types[change.ev_id], by_id[change.ev_id])
    if found.keys() != types.keys():
        raise StateError(f'BUG: handler of table "{spec.name}" has left out events')
    return found


def _require_plain_type(row: RawRow, said: EventType) -> None:
    """Raise where the type of an event may tell more than what was done, and the key's columns."""
    if said.format == "json" and not json.loads(row.ev_type or "").keys() <= _SAID:
        raise row.refuse("its type says more than a trigger of Londiste or Vedur writes there")


def _written(spec: TableSpec, change: Change, said: EventType, row: RawRow) -> str:
    """Return the data of an event in its format, with all columns that the handler leaves."""
    if not set(change.keys) <= set(change.names):
        raise row.refuse(f'its data has not all columns of the key of table "{spec.name}"')
    if strange := _strange_key(spec, change):
        raise row.refuse(
            f'table "{spec.name}" has no column "{strange}" here, which is of the key, and no rule '
            "masks it: if it has got another name on the root, rename it here, too, and correct "
            "the rules"
        )
    pairs = zip(change.names, change.values, strict=True)
    if said.format == "json":
        nested = _nested(spec, change.names, row)
        members = (
            f"{json.dumps(name, ensure_ascii=False)}:{nested.get(name) or _as_json(value)}"
            for name, value in pairs
        )
        return "{" + ",".join(members) + "}"
    return "&".join(
        quote_plus(name) if value is None else f"{quote_plus(name)}={quote_plus(value)}"
        for name, value in pairs
    )


def _strange_key(spec: TableSpec, change: Change) -> str:
    """Return a column of the key that would go on as it is, and that the table does not have; empty
    where there is none. It may be one that is to be masked, under another name: of a delete, the
    handler is shown no other columns."""
    for name in change.keys:
        known = spec.local(name) in spec.by_name
        if not known and (spec.rows is None or not spec.rows.rewrites_any([name])):
            return name
    return ""


def _as_json(value: str | None) -> str:
    return json.dumps(value, ensure_ascii=False)


def _nested(spec: TableSpec, names: Iterable[str], row: RawRow) -> dict[str, str]:
    """Return arrays and objects of columns that the table does not have here: what they are as text
    is told by their types. None of them is one that the handler rewrites."""
    function = spec.rows
    lacking = [name for name in names if spec.by_name.get(spec.local(name) or "") is None]
    if not lacking or function is None or function.rewrites is None:
        return {}
    raw = dict(zip(*split_json(row.ev_data or "{}"), strict=True))
    return {
        name: str(raw[name])
        for name in lacking
        if name not in function.rewrites and raw.get(name).__class__ is Nested
    }
