"""What a Spark task does: read a slice of events as Arrow batches.

Runs on an executor, possibly more than once; the same slice gives the same rows each time. The
start tick is looked up after the events were read, in the same transaction: rotation removes it
together with events that come after it, so a slice that is whole is known to be.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from vedur.change.event import EventType, parse_type
from vedur.change.formats import decode_json, decode_urlenc, fields
from vedur.change.snapshot import Snapshot
from vedur.db import Database
from vedur.db.copy import copy_rows
from vedur.errors import StateError
from vedur.pipeline.source.columns import EVENT_TYPES
from vedur.pipeline.source.convert import micros, to_arrow
from vedur.pipeline.source.options import SourceOptions
from vedur.pipeline.spark.tasks import link
from vedur.sql import query

log = logging.getLogger(__name__)

#: A batch is handed over when it has so many rows or so many bytes of text.
BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20

_CHANGES = {"I": "insert", "U": "update_postimage", "D": "delete", "R": "truncate"}
_OTHER = EventType(op="-")

#: Where each value comes in a row of COPY, and the expression for it.
_READ = {
    "ev_id": "ev_id",
    "ev_txid": "ev_txid",
    "ev_type": "ev_type",
    "ev_data": "ev_data",
    "ev_extra1": "ev_extra1",
    "ev_time": "(extract(epoch from ev_time) * 1000000)::int8",
    "ev_extra2": "ev_extra2",
    "ev_extra3": "ev_extra3",
    "ev_extra4": "ev_extra4",
}
_ALWAYS = 5  # the first so many are read even if nobody asked for them


class Slice(InputPartition):
    """A slice of the events after tick `first` up to tick `last`. Holds no connect string."""

    def __init__(self, events: str, condition: str, first: int, last: int) -> None:
        self.events = events
        self.condition = condition
        self.first = first
        self.last = last


class Ticks:
    """Which tick made a transaction visible. What one tick sees all later ones see."""

    def __init__(self, rows: list[Any]) -> None:
        self._ids = [str(r.tick_id) for r in rows]
        self._times = [str(r.micros) for r in rows]
        self._snapshots = [Snapshot.parse(r.snapshot) for r in rows]
        self._known: dict[str, tuple[str, str]] = {}

    def of(self, txid: str) -> tuple[str, str]:
        """Return the number and the time of the tick of a transaction."""
        found = self._known.get(txid)
        if found is None:
            number = int(txid)
            at = bisect_left(self._snapshots, True, key=lambda s: s.contains(number))
            found = self._known[txid] = (self._ids[at], self._times[at])
        return found


@dataclass
class _Batch:
    """Rows on their way to Arrow: a list for each column."""

    columns: dict[str, list[str | None]]
    event_ids: list[str] = field(default_factory=list)
    size: int = 0

    def take(self, schema: pa.Schema) -> pa.RecordBatch:
        """Hand the rows over and begin anew."""
        arrays = []
        for at in schema:
            texts = self.columns[at.name]
            if at.name in EVENT_TYPES and pa.types.is_timestamp(at.type):
                arrays.append(micros(texts, at.type))
            else:
                arrays.append(to_arrow(texts, at.type, at.name, self.event_ids))
        for texts in self.columns.values():
            texts.clear()
        self.event_ids.clear()
        self.size = 0
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class SliceReader:
    """Reads one slice; `schema` is what Spark wants to see."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, part: Slice) -> None:
        self.options = options
        self.schema = schema
        self.part = part
        self.names = [n for n in schema.names if n in EVENT_TYPES]
        cut = len(options.prefix)
        self.own = {n[cut:]: n for n in schema.names if n not in EVENT_TYPES}

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the slice as Arrow batches."""
        with link(self.options.connstr, "queue", keep=True) as db:
            db.without_timeouts()
            with db.transaction():
                yield from self._batches(db)
                self._check(db)

    def _batches(self, db: Database) -> Iterator[pa.RecordBatch]:
        queue, part = self.options.queue, self.part
        ticks = Ticks(db.query(query("source", "tick_times"), [queue, part.first + 1, part.last]))
        batch = _Batch({name: [] for name in self.schema.names})
        for row in copy_rows(db, self._statement(db)):
            values = fields(row.decode()[:-1])
            if self._add(batch, values, ticks):
                batch.size += len(row)
                if batch.size >= BATCH_BYTES or len(batch.event_ids) >= BATCH_ROWS:
                    yield batch.take(self.schema)
        if batch.event_ids:
            yield batch.take(self.schema)

    def _statement(self, db: Database) -> str:
        columns = [
            text if at < _ALWAYS or name in self.names else "null"
            for at, (name, text) in enumerate(_READ.items())
        ]
        table = self.options.table
        return query("source", "read_events").format(
            columns=", ".join(columns),
            events=self.part.events,
            slice=self.part.condition,
            filter=db.mogrify("ev_extra1 = %s", [table]) if table else "true",
        )

    def _check(self, db: Database) -> None:
        queue, first = self.options.queue, self.part.first
        if db.value(query("source", "has_tick"), [queue, first]):
            return
        message = (
            f'events of queue "{queue}" after tick {first} were rotated away while they were read: '
            'give option "consumerName" to keep them, or failOnDataLoss=false to go on without'
        )
        if self.options.fail_on_loss:
            raise StateError(message)
        log.warning("%s", message)

    def _add(self, batch: _Batch, values: list[str | None], ticks: Ticks) -> bool:
        """Take one event; False if it is none of the table's."""
        event = dict(zip(_READ, values, strict=True))
        ev_id, ev_type = str(event["ev_id"]), event["ev_type"] or ""
        said = self._type(ev_id, ev_type)
        if self.options.table:
            if said.op == "-":
                return False
            self._add_row(batch, said, ev_id, event["ev_data"])
        columns = batch.columns
        event["_commit_version"], event["_commit_timestamp"] = ticks.of(str(event["ev_txid"]))
        event["_change_type"] = _CHANGES.get(said.op)
        event["table_name"] = (event["ev_extra1"] or said.table) if said.op != "-" else None
        for name in self.names:
            columns[name].append(event[name])
        batch.event_ids.append(ev_id)
        return True

    def _type(self, ev_id: str, ev_type: str) -> EventType:
        try:
            return parse_type(ev_type)
        except StateError as error:
            if self.options.table:
                raise StateError(f"[ev_id={ev_id}] {error.message}") from None
            return _OTHER  # somebody's own events, in a form of their own

    def _add_row(self, batch: _Batch, said: EventType, ev_id: str, data: str | None) -> None:
        row: dict[str, Any] = {}
        if said.op != "R":
            if said.format == "json":
                row = decode_json(data or "{}")
            elif said.format == "urlenc":
                row = decode_urlenc(data or "")
            else:
                raise StateError(
                    f'[ev_id={ev_id}] table "{self.options.table}" is captured by pgq.sqltriga, '
                    "whose events hold changed columns only: use pgq.jsontriga or pgq.logutriga, "
                    'or read without option "table"'
                )
        for name, column in self.own.items():
            batch.columns[column].append(row.get(name))
