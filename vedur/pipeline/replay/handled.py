"""Changes of a table whose handler has a function over rows: gathered, then seen by it together.

Whatever is staged of such a table has been through `rows` first: net changes, and events that are
replayed one by one. What cannot be read, or what the handler fails on, is an error of the task
that names the event and none of its values; no such event is passed through as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from vedur.change.event import UNREADABLE, Event, EventType, Kind
from vedur.change.formats import (
    Nested,
    mended_urlenc,
    nested_to_text,
    split_json,
    split_urlenc,
    unquote,
)
from vedur.errors import StateError
from vedur.tables.mapping import TableSpec
from vedur.tables.row_function import RowFunction
from vedur.tables.target import PART

#: Events that are gathered before the handler sees them.
AT_ONCE = 10_000

_ISO_T = re.compile(r"^(\d+-\d\d-\d\d)T")
_ZONE = re.compile(r":\d\d(?:\.\d+)?[+-]\d\d(?::\d\d){0,2}$")

#: Of an event without a whole row.
NO_ROWS = (
    "the provider's trigger does not write whole rows with their key, which the handler needs: "
    "remove the table on the root and add it again with event_format = json"
)

_OPERATION = {Kind.INSERT: "INSERT", Kind.UPDATE: "UPDATE", Kind.DELETE: "DELETE"}


class Change(NamedTuple):
    """One event, decoded; `names` and `values` are the row, of a delete its key."""

    ev_id: str
    ev_txid: str
    kind: Kind
    keys: tuple[str, ...]
    names: tuple[str, ...]
    values: list[Any]
    logged: bool  # it is to be replayed by itself
    size: int

    def as_event(self, table: str) -> Event:
        """Return an event that says the same, of the row as it is now."""
        told = {"op": _OPERATION[self.kind], "pkey": self.keys}
        row = dict(zip(self.names, self.values, strict=True))
        data = json.dumps(row, ensure_ascii=False)
        return Event(int(self.ev_id), int(self.ev_txid), json.dumps(told), data, table)


@dataclass
class Untouched:
    """Changes of a table that its handler has not seen yet, in order."""

    spec: TableSpec
    changes: list[Change] = field(default_factory=list)
    _places: dict[tuple[str, ...], list[int]] = field(default_factory=dict)

    def add(
        self,
        event: tuple[str, str],
        data: str | None,
        said: EventType,
        kind: Kind,
        logged: bool,
        moment: str | None = None,
    ) -> int:
        """Decode an event (number and transaction) and keep it; returns the memory it takes.

        `moment` is when it was written, where its partition depends on that: it becomes a part of
        the row and of its key.
        """
        ev_id, ev_txid = event
        if said.format == "sql" or not said.keys:
            raise StateError(_named(ev_id, ev_txid, self.spec, NO_ROWS))
        try:
            names, values = _decode(data or "", said, self.spec)
            for at in self._moments(names):
                values[at] = moment_in_utc(values[at])
            if kind is Kind.DELETE:
                names, values = _only(said.keys, names, values)
        except UNREADABLE as error:
            what = f"its data cannot be read ({type(error).__name__})"
            raise StateError(_named(ev_id, ev_txid, self.spec, what)) from None
        keys = said.keys
        if self.spec.by_event:
            names, keys = (*names, PART), (*keys, PART)
            values.append(self._start(ev_id, ev_txid, moment))
        size = len(data or "")
        self.changes.append(Change(ev_id, ev_txid, kind, keys, names, values, logged, size))
        return size + 200

    def _moments(self, names: tuple[str, ...]) -> list[int]:
        """Return the places of moments with a time zone or without among these columns: JSON and
        the session of a writer have another text for them than a copy."""
        found = self._places.get(names)
        if found is None:
            kinds = [self.spec.by_name.get(self.spec.local(name) or "") for name in names]
            found = [at for at, c in enumerate(kinds) if c and c.type.startswith("timestamp")]
            self._places[names] = found
        return found

    def _start(self, ev_id: str, ev_txid: str, moment: str | None) -> str:
        assert self.spec.partitions is not None
        if not moment:
            what = "its time is not known, which decides on its partition"
            raise StateError(_named(ev_id, ev_txid, self.spec, what))
        return self.spec.partitions.start(moment)

    def seen(self) -> Iterator[Change]:
        """Yield the changes as the handler leaves them; raises what is wrong with it."""
        function = self.spec.rows
        if function is None:
            yield from self.changes
            return
        with_row = [c for c in self.changes if c.kind is not Kind.DELETE]
        for names in {c.names for c in with_row}:
            function.check_columns(names)
        rows = iter(_run(function, with_row))
        changes = [c for old in self.changes if (c := _left(old, rows)) is not None]
        # what is deleted tells its key alone, also where the handler leaves a row out
        deletes = [c for c in changes if c.kind is Kind.DELETE and function.rewrites_any(c.keys)]
        keys = iter(_run(function, deletes))
        for change in changes:
            if change.kind is not Kind.DELETE or not function.rewrites_any(change.keys):
                yield change
                continue
            done = next(keys)
            if done is None:
                what = f'handler "{function.handler}" leaves out the key of a row'
                raise StateError(_named(change.ev_id, change.ev_txid, self.spec, what))
            yield done


def _run(function: RowFunction, changes: list[Change]) -> list[Change | None]:
    """Call the handler for changes, those with the same columns together; None where it leaves a
    row out."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, change in enumerate(changes):
        groups.setdefault((change.names, change.keys), []).append(at)
    found: list[Change | None] = [None] * len(changes)
    for (names, keys), places in groups.items():
        columns, rows = function.apply(names, [changes[at].values for at in places], keys)
        for at, row in zip(places, rows, strict=True):
            if row is not None:
                c = changes[at]  # as _replace, in a third of its time
                found[at] = Change(c[0], c[1], c[2], c[3], columns, row, c[6], c[7])
    return found


def _left(old: Change, rows: Iterator[Change | None]) -> Change | None:
    """Return what is left of a change: a row that the handler leaves out is deleted here, if a
    change of it may have found it here. Takes the next of `rows` for a change that has a row."""
    if old.kind is Kind.DELETE:
        return old
    new = next(rows)
    if new is not None or old.kind is Kind.INSERT:
        return new
    names, values = _only(old.keys, old.names, old.values)
    return old._replace(kind=Kind.DELETE, names=names, values=values)


def _decode(data: str, said: EventType, spec: TableSpec) -> tuple[tuple[str, ...], list[Any]]:
    """Return names and values as COPY would have them."""
    if said.format == "urlenc":
        mends = spec.rows is not None and spec.rows.mends
        encoded, values = split_urlenc(mended_urlenc(data) if mends else data)
        return tuple(map(unquote, encoded)), list(values)
    names, found = split_json(data or "{}")
    for at, value in enumerate(found):
        if value.__class__ is Nested:
            column = spec.by_name.get(spec.local(names[at]) or "")
            kind = column.type_kind if column is not None else ""
            found[at] = nested_to_text(value, kind) if kind else str(value)
    return names, found


def moment_in_utc(text: Any) -> Any:
    """Return a moment as COPY writes it in a session of time zone UTC; what cannot be read
    (infinity, years beyond 9999, BC) differs in the letter T at most."""
    if not isinstance(text, str):
        return text
    plain = _ISO_T.sub(r"\1 ", text)
    zone = _ZONE.search(plain)
    if zone is None:
        return plain
    try:
        moved = datetime.fromisoformat(plain).astimezone(UTC)
    except (ValueError, OverflowError):
        return plain
    fraction = f".{moved.microsecond:06d}".rstrip("0") if moved.microsecond else ""
    return f"{moved.year:04d}-{moved:%m-%d %H:%M:%S}{fraction}+00"


def _only(
    keys: tuple[str, ...], names: tuple[str, ...], values: list[Any]
) -> tuple[tuple[str, ...], list[Any]]:
    row = dict(zip(names, values, strict=True))
    return keys, [row[key] for key in keys]


def _named(ev_id: str, ev_txid: str, spec: TableSpec, what: str) -> str:
    return f'[ev_id={ev_id},ev_txid={ev_txid}] table "{spec.name}": {what}'
