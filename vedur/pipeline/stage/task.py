"""What one Spark task does: read a slice of events, collapse it, COPY the result aside.

Runs in a Python worker of an executor, possibly more than once for the same slice. Each attempt
writes under a slice number of its own in one transaction, and says the number in its result; a
number that the driver never hears of is never merged. Connections are opened here and kept by
the worker process for the next task.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from vedur.change.collapse import Collapser, TableBuffer
from vedur.change.columnar import LEAST_RUN
from vedur.change.copytext import fields, line, readable
from vedur.change.event import Event
from vedur.change.quick import (
    QuickReader,
    csv_blocks,
    net_places,
    raw_entries,
    settled,
    stage_places,
)
from vedur.change.table import TableSpec
from vedur.db import Database
from vedur.db.copyrows import copy_all, copy_blocks
from vedur.errors import StateError, VedurError, error_to_json
from vedur.pipeline.plan import FEW_CHANGES, TOGETHER
from vedur.pipeline.stage.links import link
from vedur.pipeline.stage.tables import log_name, stage_name
from vedur.sql import query

#: Bytes of gathered changes after which a task writes them out; its Python objects take about
#: twice that.
FLUSH_BYTES = 64 << 20
_WRITE_CHARS = 1 << 18
#: Arrow works on that many at a time, where tables are few.
_READ_BYTES = 1 << 20

#: A statement and its data.
Copy = tuple[str, Iterable[bytes]]


@dataclass(frozen=True)
class StageTask:
    """Everything that the tasks of one job need. Holds connect strings: never print it."""

    provider: str = field(repr=False)
    target: str = field(repr=False)
    queue: str
    events: str
    owner: int
    slot: int
    tables: dict[str, TableSpec]
    slices: tuple[str, ...]
    log_tables: frozenset[str] = frozenset()
    log_from: int | None = None
    flush_bytes: int = FLUSH_BYTES
    least_run: int = LEAST_RUN
    keep_links: bool = True
    private: bool = False  # slices hold users' data: they must not show


def fingerprint(condition: str) -> int:
    """Of a slice, by which a task tells what it has read."""
    return zlib.crc32(condition.encode())


@dataclass
class TableSummary:
    """What one attempt staged for one table."""

    keys: list[str] = field(default_factory=list)
    shapes: dict[str, list[str]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)  # "kind/shape" -> rows
    parts: list[dict[str, Any]] = field(default_factory=list)
    chunks: int = 0
    logged: int = 0
    early: int = 0  # of these, events before the first script
    events: int = 0
    noop: int = 0
    last: int = 0  # event of a net change


@dataclass
class _Attempt:
    task: StageTask
    target: Database
    slice_id: int
    collapser: Collapser
    tables: dict[str, TableSummary] = field(default_factory=dict)
    held: int = 0  # the most bytes that were gathered at a time

    def summary(self, name: str) -> TableSummary:
        return self.tables.setdefault(name, TableSummary())

    def read(self, source: Database, condition: str) -> None:
        text = query("replay", "read_events").format(
            system=query("replay", "is_system").split("\n", 1)[-1],
            events=self.task.events,
            slice=condition,
            owner=self.task.owner,
        )
        task = self.task
        reader = QuickReader(
            self.collapser, task.flush_bytes, self._take_row, self.flush, task.least_run
        )
        for block in _read_blocks(source, text):
            reader.feed(block)
        reader.end()

    def _take_row(self, row: str) -> tuple[str, str | None, str | None]:
        """One event the long way; its type, table and payload."""
        ev_id, ev_txid, retry, extra, ev_type, extra1, data = fields(row)
        if retry:
            raise StateError(f"event {ev_id} is a retry: replication has no use for it")
        more = tuple(json.loads(extra)) if extra else ()
        self.collapser.add_row(ev_id, ev_txid, ev_type, data, extra1, more)  # type: ignore[arg-type]
        return ev_type or "", extra1, data

    def flush(self) -> None:
        self.held = max(self.held, self.collapser.size)
        buffers, logged = self.collapser.take()
        for group in _groups(buffers):
            self._write_tables(group)
        if logged:
            self._write_log(logged)

    def _write_tables(self, group: dict[str, TableBuffer]) -> None:
        parts = {name: (secrets.randbits(62), buffer.first) for name, buffer in group.items()}
        copies: list[Copy] = []
        for name, buffer in group.items():
            copies += self._copies(buffer, parts[name][0])
        if copies:
            copy_all(self.target, copies)
        for name, buffer in group.items():
            self._tell(name, buffer, *parts[name])

    def _copies(self, buffer: TableBuffer, part: int) -> Iterator[Copy]:
        """What a table's net changes take, none of it empty: a statement for nothing is dear where
        tables are many."""
        stage = stage_name(buffer.spec, self.task.slot)
        nets = settled(self.collapser, buffer)
        rows = _blocks(buffer.lines(part))
        first = next(rows, None)
        if first is not None:
            yield query("replay", "stage_copy").format(stage=stage), chain((first,), rows)
        for shape, entries in raw_entries(buffer):
            text = _copy_csv(stage, stage_places(buffer.spec, shape) or ())
            yield text, _blocks(csv_blocks(part, shape, entries))
        for net in nets:
            yield _copy_csv(stage, net_places(buffer.spec, net)), net.csv(part)

    def _tell(self, name: str, buffer: TableBuffer, part: int, first: int) -> None:
        """Add what was written to the summary."""
        said = self.summary(name)
        said.keys = list(buffer.keys)
        said.chunks += 1
        said.last = max(said.last, int(buffer.last))
        said.noop += buffer.noop
        known = {s.id: s.columns for s in (*buffer.shapes.values(), *buffer.unions.values())}
        kinds = {f"{kind}/{shape}": n for (kind, shape), n in buffer.kinds.items()}
        said.parts.append({"slice": part, "first": first, "last": int(buffer.last), "kinds": kinds})
        for mark, count in kinds.items():
            said.kinds[mark] = said.kinds.get(mark, 0) + count
        said.shapes.update({str(s): list(known[s]) for _, s in buffer.kinds if s})

    def _write_log(self, events: list[Event]) -> None:
        for event in events:
            said = self.summary(event.ev_extra1 or "")
            said.logged += 1
            said.early += self.task.log_from is None or event.ev_id < self.task.log_from
        name = log_name(self.task.queue, self.task.slot)
        rows = (
            line(
                [
                    str(self.slice_id),
                    str(e.ev_id),
                    str(e.ev_txid),
                    e.ev_type,
                    e.ev_data,
                    e.ev_extra1,
                ]
            )
            for e in events
        )
        text = query("replay", "log_copy").format(log=name)
        copy_all(self.target, [(text, _blocks(rows))])

    def result(self, part: int) -> dict[str, Any]:
        c = self.collapser
        for name, buffer in c.buffers.items():
            if name in self.tables:
                self.tables[name].keys = list(buffer.keys)
        return {
            "part": part,
            "slice": self.slice_id,
            "events": c.events,
            "held": self.held,
            "ignored": c.ignored,
            "tables": {n: asdict(t) for n, t in self.tables.items()},
            "barriers": [asdict(e) for e in c.barriers],
            "truncates": c.truncates,
            "faults": [asdict(f) for f in c.faults],
            "missing_columns": {n: sorted(columns) for n, columns in c.missing_columns.items()},
        }


def _read_blocks(source: Database, text: str) -> Iterator[bytes]:
    """Events as UTF-8. A database without an encoding has any bytes: the server would refuse to
    send all of a slice for one of them, and not say which."""
    if source.encoding != "SQL_ASCII":
        yield from copy_blocks(source, text, _READ_BYTES)
        return
    source.execute(query("replay", "any_bytes"))
    for block in copy_blocks(source, text, _READ_BYTES):
        yield readable(block)
    source.execute(query("replay", "only_utf8"))


def _groups(buffers: dict[str, TableBuffer]) -> Iterator[dict[str, TableBuffer]]:
    """Tables with few changes go to the server in one query, others alone."""
    small: dict[str, TableBuffer] = {}
    for name, buffer in buffers.items():
        if buffer.waiting is not None or len(buffer.entries) > FEW_CHANGES:
            yield {name: buffer}
            continue
        small[name] = buffer
        if len(small) == TOGETHER:
            yield small
            small = {}
    if small:
        yield small


def _blocks(lines: Iterable[str]) -> Iterator[bytes]:
    """Text in pieces that are worth sending."""
    block: list[str] = []
    size = 0
    for row in lines:
        block.append(row)
        size += len(row)
        if size > _WRITE_CHARS:
            yield "".join(block).encode()
            block, size = [], 0
    if block:
        yield "".join(block).encode()


def _copy_csv(stage: str, places: Sequence[int]) -> str:
    columns = "".join(f", c{place}" for place in places)
    return query("replay", "stage_copy_csv").format(stage=stage, columns=columns)


def stage_slice(task: StageTask, part: int) -> str:
    """Stage one slice and return a summary as JSON; an error of ours comes back in it."""
    try:
        with (
            link(task.provider, "provider", task.keep_links) as source,
            link(task.target, "db", task.keep_links) as target,
        ):
            attempt = _Attempt(
                task,
                target,
                secrets.randbits(62),
                Collapser(task.tables, task.log_tables, task.log_from),
            )
            with target.transaction():
                attempt.read(source, task.slices[part])
            read = fingerprint(task.slices[part])
            return json.dumps({**attempt.result(part), "read": read})
    except VedurError as error:
        return json.dumps({"part": part, **error_to_json(error)})
