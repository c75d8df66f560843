"""What one Spark task does: read a slice of events, collapse it, COPY it into staging tables.

Runs in a Python worker of an executor, possibly more than once for the same slice. Each attempt
writes under a slice number of its own in one transaction, and says the number in its result; a
number that the driver never hears of is never merged. Connections are opened here and kept by
the worker process for the next task.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vedur.change.event import Event
from vedur.change.formats import in_blocks, line, readable
from vedur.db import Database
from vedur.db.copied_rows import CopiedRows
from vedur.db.copy import copy_all, copy_blocks
from vedur.names import quote_literal
from vedur.pipeline.replay.collapse import Collapser, TableBuffer
from vedur.pipeline.replay.fast_path.columns import LEAST_RUN
from vedur.pipeline.replay.fast_path.rows import FastReader
from vedur.pipeline.replay.forward import ForwardedSlice, forward_slice
from vedur.pipeline.replay.masked import MaskedSlice, MaskedTables
from vedur.pipeline.replay.staged import FEW_CHANGES, TOGETHER
from vedur.pipeline.replay.staging_tables import log_name, stage_name
from vedur.pipeline.spark.tasks import link
from vedur.sql import query
from vedur.tables.mapping import TableSpec, note_shape

#: Bytes of gathered changes after which a task writes them out; its Python objects take about
#: twice that.
FLUSH_BYTES = 64 << 20
#: Arrow works on that many at a time, where tables are few.
_READ_BYTES = 1 << 20

#: Where events wait that replay has put there itself, as their handlers left them.
QUARANTINE = "vedur.quarantine_events"

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
    log_tables: frozenset[str] = frozenset()
    log_from: int | None = None
    flush_bytes: int = FLUSH_BYTES
    least_run: int = LEAST_RUN
    keep_links: bool = True
    raw_stage: str | None = None  # on a branch: where events go as they are
    passing: MaskedTables | None = None  # of these, which are to be masked, or to stop the batch

    def __call__(self, condition: str) -> dict[str, Any]:
        """Stage one slice, see `stage_slice`; tasks that are equal can share a plan of Spark's."""
        return stage_slice(self, condition)


@dataclass(frozen=True)
class StageOrders:
    """What a resident task does with an order: it stages a slice. Slots take turns, so the slot is
    in the order; `task` is that of slot 0."""

    task: StageTask

    def __call__(self, order: str) -> dict[str, Any]:
        """Stage the slice that an order is about, see `stage_slice`."""
        said = json.loads(order)
        task = replace(self.task, slot=said["slot"], raw_stage=said["raw"])
        return stage_slice(task, said["slice"])


def as_order(task: StageTask, condition: str) -> tuple[StageOrders, str]:
    """Split a task into what stays the same from batch to batch, and an order."""
    order = json.dumps({"slot": task.slot, "raw": task.raw_stage, "slice": condition})
    return StageOrders(replace(task, slot=0, raw_stage=None)), order


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
    raw: int | None = None  # events that were written as they are
    forwarded: ForwardedSlice | None = None  # what reads them

    def summary(self, name: str) -> TableSummary:
        return self.tables.setdefault(name, TableSummary())

    def read(self, source: Database, condition: str) -> None:
        """Read the events of the slice into the collapser; on a branch they are passed on, too."""
        task = self.task
        reader = FastReader(self.collapser, task.flush_bytes, self.flush, task.least_run)
        if task.raw_stage is None:
            for block in self._net_blocks(source, condition):
                reader.feed(block)
        else:
            if task.passing is not None:
                plain = task.passing.of_plain()
                for block in self._sorted_blocks(source, f"({condition}) and not {plain}"):
                    reader.feed(block)
                reader.end_form()
                condition = f"({condition}) and {plain}"
            # Where it fails, what was begun on the target must end before its transaction does.
            with closing(self._forwarded_blocks(source, condition, task.raw_stage)) as parts:
                for part in parts:
                    reader.feed(part)
        reader.end()

    def _net_blocks(self, source: Database, condition: str) -> Iterator[bytes]:
        text = query("replay", "read_events").format(
            system=query("replay", "is_system").split("\n", 1)[-1],
            events=self.task.events,
            slice=condition,
            owner=self.task.owner,
            timed=self._timed(),
        )
        tables = self.task.tables.items()
        mended = {n.encode() for n, s in tables if s.rows is not None and s.rows.mends}
        yield from _read_blocks(source, text, mended)

    def _sorted_blocks(self, source: Database, condition: str) -> Iterator[bytes]:
        """Pass on events that do not go on just as they are, each as its table says; then read
        them once more for the net changes, whose handlers see them by themselves."""
        task = self.task
        assert task.raw_stage is not None and task.passing is not None
        where = (source, self.target, task.events, task.owner, task.raw_stage, self.slice_id)
        count = MaskedSlice(*where, task.passing).forward(condition)
        self._passed(count)
        if count:
            yield from self._net_blocks(source, condition)

    def _forwarded_blocks(
        self, source: Database, condition: str, stage: str
    ) -> Generator[bytes | CopiedRows]:
        """Pass the events on as they are, reading them once where the net changes need no more of
        them than that."""
        task = self.task
        where = (source, self.target, task.events, condition)
        if self._timed() or source.encoding == "SQL_ASCII":
            self._passed(forward_slice(*where, stage, self.slice_id))
            yield from self._net_blocks(source, condition)
            return
        self.forwarded = ForwardedSlice(*where, task.owner, stage, self.slice_id)
        yield from self.forwarded.blocks()
        self._passed(self.forwarded.count)

    def _passed(self, events: int) -> None:
        """Count events that were written for nodes below."""
        self.raw = (self.raw or 0) + events

    def _timed(self) -> str:
        """Return SQL by which events of some tables tell their time, and of some all that there is.
        One that was in quarantine has its time in its row, or nowhere."""
        tables, seen = self.task.tables.items(), self.collapser.seen
        timed = [name for name, spec in tables if spec.by_event and not seen]
        whole = [name for name, spec in tables if spec.calls is not None]
        words = {"time": "null", "tick": "tick_id"} if seen else {"time": "ev_time", "tick": "null"}
        text = ""
        for name, names in (("event_times", timed), ("whole_events", whole)):
            if names:
                listed = ", ".join(map(quote_literal, sorted(names)))
                case = query("replay", name).split("\n", 1)[-1].strip()
                text += " " + case.format(tables=listed, **words)
        return text

    def flush(self) -> None:
        self.held = max(self.held, self.collapser.size)
        buffers, logged = self.collapser.take()
        if self.forwarded is not None:
            self.forwarded.pause()
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
        """Yield one (statement, data) pair per COPY that the table needs."""
        stage = stage_name(buffer.spec, self.task.slot)
        for copy in buffer.copies(part):
            if copy.columns is None:
                text = query("replay", "stage_copy").format(stage=stage)
            else:
                columns = "".join(f", c{column}" for column in copy.columns)
                text = query("replay", "stage_copy_csv").format(stage=stage, columns=columns)
            yield text, copy.data

    def _tell(self, name: str, buffer: TableBuffer, part: int, first: int) -> None:
        """Add what was written to the summary."""
        said = self.summary(name)
        said.keys = list(buffer.keys)
        said.chunks += 1
        said.last = max(said.last, int(buffer.last))
        said.noop += buffer.noop
        known: dict[int, tuple[str, ...]] = {}
        for s in (*buffer.shapes.values(), *buffer.unions.values()):
            note_shape(known, s.id, s.columns)
        kinds = {f"{kind.value}/{shape}": n for (kind, shape), n in buffer.kinds.items()}
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
                    _rest(e, self.task.tables),
                ]
            )
            for e in events
        )
        text = query("replay", "log_copy").format(log=name)
        copy_all(self.target, [(text, in_blocks(rows))])

    def result(self) -> dict[str, Any]:
        c = self.collapser
        for name, buffer in c.buffers.items():
            if name in self.tables:
                self.tables[name].keys = list(buffer.keys)
        return {
            "slice": self.slice_id,
            "events": c.events,
            "held": self.held,
            "raw": self.raw,
            "ignored": c.ignored,
            "tables": {n: asdict(t) for n, t in self.tables.items()},
            "barriers": [asdict(e) for e in c.barriers],
            "truncates": c.truncates,
            "faults": [asdict(f) for f in c.faults],
            "missing_columns": {n: sorted(columns) for n, columns in c.missing_columns.items()},
        }


def _rest(event: Event, tables: dict[str, TableSpec]) -> str | None:
    """Return what the log keeps beside the fields that replay needs, for tables that need it."""
    if tables[event.ev_extra1 or ""].calls is None:
        return None
    extra = (event.ev_extra2, event.ev_extra3, event.ev_extra4)
    return json.dumps([event.ev_time, *extra, event.tick])


def _read_blocks(source: Database, text: str, mended: Collection[bytes]) -> Iterator[bytes]:
    """Read events as UTF-8. A database without an encoding has any bytes: the server would refuse
    to send all of a slice for one of them, and not say which. Events of some tables are mended."""
    if source.encoding != "SQL_ASCII":
        yield from copy_blocks(source, text, _READ_BYTES)
        return
    source.execute(query("replay", "any_bytes"))
    for block in copy_blocks(source, text, _READ_BYTES):
        yield readable(block, mended)
    source.execute(query("replay", "only_utf8"))


def _groups(buffers: dict[str, TableBuffer]) -> Iterator[dict[str, TableBuffer]]:
    """Yield the tables that go to the server in one query: those with few changes together, others
    alone."""
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


def stage_slice(task: StageTask, condition: str) -> dict[str, Any]:
    """Stage the events that meet a condition; reads the provider, writes to the target's staging
    tables and commits. Returns a summary."""
    with (
        link(task.provider, "provider", task.keep_links) as source,
        link(task.target, "db", task.keep_links) as target,
    ):
        seen = task.events == QUARANTINE
        collapser = Collapser(task.tables, task.log_tables, task.log_from, seen)
        attempt = _Attempt(task, target, secrets.randbits(62), collapser)
        with target.transaction():
            attempt.read(source, condition)
        return attempt.result()
