"""Collapse a stream of events to the net change of each key, in bounded memory.

A `Collapser` takes the events of a slice in `ev_id` order and hands out what it has gathered
whenever `size` says so. What it cannot express as net changes of keyed rows it passes through
untouched (`log`), and what only the driver can decide it reports (`barriers`, `faults`).

In all of replay `log`, `logged` and `log_tables` are about these untouched events: they go to a
staging table of their own (`log_name` in `staging_tables.py`) and are replayed row by row. Only
`log.info` and its like are Python's.

Events come in three forms: decoded one by one (`Collapser.add_row`, the slow path), as rows that a
regular expression has matched (`TableBuffer.add_matches`), and as whole runs by column
(`TableBuffer.wait`). The last two are the fast path, see `vedur/pipeline/replay/fast_path`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from vedur.change.event import (
    STEP,
    UNREADABLE,
    WITH_ROW,
    Event,
    EventType,
    Kind,
    parse_type,
    unreadable,
)
from vedur.change.formats import (
    NULL,
    Nested,
    escape,
    in_blocks,
    nested_to_text,
    split_json,
    split_urlenc,
    unquote,
)
from vedur.pipeline.replay.fast_path.columns import NetChanges, PayloadRow, Piece, Waiting
from vedur.pipeline.replay.fast_path.payload import Pattern
from vedur.pipeline.replay.handled import AT_ONCE, Change, Untouched
from vedur.pipeline.replay.shape import Shape, make_shape
from vedur.pipeline.replay.staged import Fault
from vedur.tables.mapping import TableSpec
from vedur.tables.target import PART

#: The values of an event that was decoded, in the order of its shape.
Values = list[Any]

#: What an entry takes in memory beside its payload.
ENTRY_BYTES = 300
#: A name in a payload with the comma or brace before it: what must go to make CSV of it.
_NAMES = re.compile(r',\{?"[^"]*":')
#: Rows that are joined and stripped of their names at a time.
_AT_ONCE = 2000
#: What is wrong with an event that does not say which row it is about.
NO_KEY = "the event lacks a key column"
#: Faults that a task reports; one is enough to stop a batch.
_MOST_FAULTS = 20
#: By kind its letter: to format a member of an enum takes longer than the rest of a row.
_LETTER = {kind: kind.value for kind in Kind}


@dataclass(slots=True)
class Entry:
    """The net change of one key so far.

    The row that the last event left is either decoded (`values`, slow path) or a payload as it was
    received (`payload`, fast path), never both; after a delete it is neither and has no shape.
    """

    kind: Kind
    first: str
    last: str
    values: Values | None
    payload: str | None
    shape: Shape | None

    def read_values(self) -> Values:
        """Return the row's values; decodes a payload."""
        if self.payload is not None:
            return split_json(self.payload)[1]
        return self.values or []


class StagedCopy(NamedTuple):
    """One COPY into a staging table: CSV for some columns, or text for all if `columns` is None."""

    columns: tuple[int, ...] | None
    data: Iterable[bytes]


@dataclass
class TableBuffer:
    """What was gathered for one table since the last hand-out; changed by its own methods only.

    Waiting rows came after all events that went into entries. So whoever adds an event that cannot
    wait behind them first calls `spill_waiting`, which makes entries of them.
    """

    spec: TableSpec
    keys: tuple[str, ...] = ()
    entries: dict[Any, Entry] = field(default_factory=dict)
    shapes: dict[tuple[str, ...], Shape] = field(default_factory=dict)
    unions: dict[tuple[str, ...], Shape] = field(default_factory=dict)
    log: bool = False  # events are passed through as they are
    last: str = "0"
    noop: int = 0  # updates of a row that the slice itself has deleted
    kinds: dict[tuple[Kind, int], int] = field(default_factory=dict)
    waiting: Waiting | None = None
    untouched: Untouched | None = None  # events that a handler has not seen yet

    @property
    def first(self) -> int:
        """The earliest event that was gathered; to be asked before `copies`."""
        if self.entries:
            return int(next(iter(self.entries.values())).first)
        assert self.waiting is not None
        return self.waiting.first

    def fresh(self) -> TableBuffer:
        """Return an empty buffer that keeps what was learnt about the table."""
        return TableBuffer(self.spec, self.keys, {}, self.shapes, self.unions, self.log)

    def shape(self, names: tuple[str, ...], decoded: Callable[[str], str]) -> Shape:
        """Return the shape of an event with these (still encoded) column names."""
        shape = self.shapes.get(names)
        if shape is None:
            shape = make_shape(self.spec, tuple(map(decoded, names)), self.keys)
            self.shapes[names] = shape
        return shape

    # -- adding ---------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget all changes: a truncate makes them pointless."""
        self.entries.clear()
        self.waiting = None
        self.untouched = None

    def add(self, op: Kind, ev_id: str, key: Any, values: Values, shape: Shape) -> bool:
        """Add a decoded event behind all others. Returns whether its key is new."""
        self.last = ev_id
        entry = self.entries.get(key)
        if entry is None:
            if op is Kind.DELETE:
                self.entries[key] = Entry(op, ev_id, ev_id, None, None, None)
            else:
                self.entries[key] = Entry(op, ev_id, ev_id, values, None, shape)
            return True
        self._merge(entry, op, ev_id, values, None, shape)
        return False

    def add_matches(self, pattern: Pattern, text: str, at: int, room: int) -> tuple[int, int, int]:
        """Add rows of COPY text from offset `at` on as long as they match, and until their size
        exceeds `room`. Returns the offset behind them, how many they are, and their size."""
        entries, shape, ops, single = self.entries, pattern.shape, pattern.ops, pattern.single_key
        find = entries.get
        size, count, last = 0, 0, ""
        if pattern.rows is None:
            return at, count, size
        for match in pattern.rows.finditer(text, at):
            ev_id, ev_type, data, *keys = match.groups()
            op = ops.get(ev_type)
            if op is None:  # no match, or a type not met before
                break
            if self.waiting is not None:
                self.spill_waiting()
            key: Any = keys[0] if single else tuple(keys)
            entry = find(key)
            if entry is None:
                if op is Kind.DELETE:
                    entries[key] = Entry(op, ev_id, ev_id, None, None, None)
                else:
                    entries[key] = Entry(op, ev_id, ev_id, None, data, shape)
                size += len(data) + ENTRY_BYTES
            else:
                if op is Kind.UPDATE and entry.shape is shape:
                    # the most frequent case of `_merge`, without the cost of the call
                    entry.kind = STEP[entry.kind][op]
                    entry.last = ev_id
                    entry.values, entry.payload = None, data
                else:
                    self._merge(entry, op, ev_id, None, data, shape)
                size += len(data)
            last = ev_id
            count += 1
            at = match.end()
            if size > room:
                break
        if count:
            self.last = last
        return at, count, size

    def wait(self, piece: Piece) -> None:
        """Let a run of rows wait behind all others."""
        if self.waiting is not None and self.waiting.pattern is not piece.pattern:
            self.spill_waiting()
        if self.waiting is None:
            self.waiting = Waiting(piece.pattern)
        self.waiting.pieces.append(piece)
        self.last = piece.last

    def waits_for(self, pattern: Pattern) -> bool:
        """Are rows waiting that match this pattern?"""
        return self.waiting is not None and self.waiting.pattern is pattern

    def spill_waiting(self) -> None:
        """Make entries of waiting rows, because an event comes that cannot wait behind them."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self._add_payloads(waiting.pattern.shape, waiting.rows())

    def _add_payloads(self, shape: Shape, rows: Iterable[PayloadRow]) -> None:
        entries = self.entries
        for op, ev_id, data, key in rows:
            entry = entries.get(key)
            if entry is None:
                if op is Kind.DELETE:
                    entries[key] = Entry(op, ev_id, ev_id, None, None, None)
                else:
                    entries[key] = Entry(op, ev_id, ev_id, None, data, shape)
            else:
                self._merge(entry, op, ev_id, None, data, shape)

    def _merge(
        self,
        entry: Entry,
        op: Kind,
        ev_id: str,
        values: Values | None,
        payload: str | None,
        shape: Shape,
    ) -> None:
        """Add one more event of a key to its entry."""
        before = entry.kind
        entry.kind = STEP[before][op]
        entry.last = ev_id
        if op is Kind.DELETE:
            entry.values = entry.payload = entry.shape = None
        elif op is Kind.INSERT or entry.shape is shape:
            entry.values, entry.payload, entry.shape = values, payload, shape
        elif before in WITH_ROW and entry.shape is not None:
            more = split_json(payload)[1] if payload is not None else values or []
            self._widen(entry, entry.shape, more, shape)
        else:
            self.noop += 1

    def _widen(self, entry: Entry, before: Shape, values: Values, shape: Shape) -> None:
        """Apply an update with other columns than the row so far: its values win, others stay."""
        row = dict(zip(before.names, entry.read_values(), strict=True))
        row.update(zip(shape.names, values, strict=True))
        names = tuple(row)
        union = self.unions.get(names)
        if union is None:
            union = self.unions[names] = make_shape(self.spec, names, self.keys)
        entry.shape = union
        entry.values, entry.payload = list(row.values()), None

    # -- writing --------------------------------------------------------------------------------

    def copies(self, slice_id: int) -> Iterator[StagedCopy]:
        """Yield the COPYs that the table's changes need, and count them in `kinds`.

        Empty COPYs are left out: with hundreds of tables they would dominate the cost. The buffer
        is not to be used any more after that.
        """
        changes = self._collapse_waiting()
        lines = in_blocks(self.lines(slice_id))
        first = next(lines, None)
        if first is not None:
            yield StagedCopy(None, chain((first,), lines))
        for shape, entries in self._payload_entries():
            blocks = in_blocks(_csv_blocks(slice_id, shape, entries))
            yield StagedCopy(shape.staged_columns or (), blocks)
        for change in changes:
            yield StagedCopy(change.staged_columns, change.csv(slice_id))

    def lines(self, slice_id: int) -> Iterator[str]:
        """Yield the entries as COPY text, but for payloads; counts all of them on the way."""
        at = {c.name: i for i, c in enumerate(self.spec.stage_columns)}
        width = len(at)
        key_at = [at[k] for k in self.keys]
        single = len(self.keys) == 1
        counts = self.kinds
        for key, entry in self.entries.items():
            shape, kind = entry.shape, entry.kind
            if kind in WITH_ROW and shape is not None:
                counts[kind, shape.id] = counts.get((kind, shape.id), 0) + 1
                values = entry.values
                if values is None:  # a payload
                    continue
                head = f"{slice_id}\t{entry.first}\t{entry.last}\t{_LETTER[kind]}\t"
                row = [
                    NULL if i < 0 or values[i] is None else escape(values[i]) for i in shape.picks
                ]
                yield f"{head}{shape.id}\t" + "\t".join(row) + "\n"
                continue
            counts[kind, 0] = counts.get((kind, 0), 0) + 1
            head = f"{slice_id}\t{entry.first}\t{entry.last}\t{_LETTER[kind]}\t"
            row = [NULL] * width
            for place, value in zip(key_at, (key,) if single else key, strict=True):
                row[place] = NULL if value is None else escape(value)
            yield f"{head}0\t" + "\t".join(row) + "\n"

    def _payload_entries(self) -> list[tuple[Shape, list[Entry]]]:
        """Return the entries whose rows are still payloads, by shape."""
        groups: dict[int, tuple[Shape, list[Entry]]] = {}
        for entry in self.entries.values():
            shape = entry.shape
            if entry.payload is not None and entry.kind in WITH_ROW and shape is not None:
                groups.setdefault(id(shape), (shape, []))[1].append(entry)
        return list(groups.values())

    def _collapse_waiting(self) -> list[NetChanges]:
        """Return the net changes of waiting rows; what is no net change yet becomes entries."""
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return []
        changes, rest = waiting.collapse(list(self.entries))
        self._add_payloads(waiting.pattern.shape, rest.rows())
        for change in changes:
            mark = change.kind, change.shape_id
            self.kinds[mark] = self.kinds.get(mark, 0) + len(change)
        return changes


def _csv_blocks(slice_id: int, shape: Shape, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield rows of the staging table as CSV, columns in the order of the event."""
    mark = shape.id
    for at in range(0, len(entries), _AT_ONCE):
        rows = [
            f"{slice_id},{e.first},{e.last},{_LETTER[e.kind]},{mark},{e.payload}\n"
            for e in entries[at : at + _AT_ONCE]
        ]
        yield _NAMES.sub(",", "".join(rows)).replace("}\n", "\n")


def _whole(event: Event, extra: tuple[Any, ...]) -> Event:
    """Return the event with all that the queue has of it."""
    time, extra2, extra3, extra4, tick = extra or (None,) * 5
    return replace(
        event, ev_extra2=extra2, ev_extra3=extra3, ev_extra4=extra4, ev_time=time, tick=tick
    )


def _same(name: str) -> str:
    return name


class Route(NamedTuple):
    """What to do with events of one type and table: no `buffer` means that it is not replicated
    here, no `kind` that the event is not about one row."""

    type: EventType
    buffer: TableBuffer | None
    kind: Kind | None


#: Operations of events that are net changes by themselves.
_KIND_OF_OP = {"I": Kind.INSERT, "U": Kind.UPDATE, "D": Kind.DELETE}


@dataclass
class Collapser:
    """See the module. `log_tables` are passed through; so is everything after event
    `log_from`, where the driver runs a script that may change what tables look like. `seen`: these
    events come from the quarantine, handlers have seen them."""

    tables: dict[str, TableSpec]
    log_tables: frozenset[str] = frozenset()
    log_from: int | None = None
    seen: bool = False
    buffers: dict[str, TableBuffer] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    barriers: list[Event] = field(default_factory=list)
    truncates: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    missing_columns: dict[str, set[str]] = field(default_factory=dict)  # left out, by table
    events: int = 0
    ignored: int = 0
    size: int = 0
    _routes: dict[tuple[str, str | None], Route] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take the next event."""
        extra = (event.ev_extra2, event.ev_extra3, event.ev_extra4)
        self.add_row(
            str(event.ev_id),
            str(event.ev_txid),
            event.ev_type,
            event.ev_data,
            event.ev_extra1,
            extra,
        )

    def count(self, events: int, size: int) -> None:
        """Count events that a buffer has taken by itself, and the memory they need."""
        self.events += events
        self.size += size

    def wait(self, buffer: TableBuffer, piece: Piece) -> None:
        """Let a run of rows wait in a buffer behind all others, and count them."""
        self._show_to_handler(buffer)  # earlier events, if any
        buffer.wait(piece)
        self.count(len(piece), piece.size)

    def handles(self, buffer: TableBuffer) -> bool:
        """Do changes of this table go to a handler first?"""
        return (buffer.spec.rows is not None or buffer.spec.by_event) and not self.seen

    def add_row(
        self,
        ev_id: str,
        ev_txid: str,
        ev_type: str,
        data: str | None,
        extra1: str | None,
        extra: tuple[str | None, ...] = (),
    ) -> Shape | None:
        """Take the next event by its fields: most events need no object, and numbers can stay text.

        Returns the shape of a change that was decoded and fits the target; there may be more like
        it.
        """
        self.events += 1
        route = self._routes.get((ev_type, extra1)) or self.route(ev_type, extra1)
        said, buffer, kind = route
        op = said.op
        if op == "-":
            named = (int(ev_id), int(ev_txid), ev_type, data, extra1)
            self.barriers.append(Event(*named, *extra[:3]))  # type: ignore[arg-type]
            return None
        if buffer is None:
            self.ignored += 1
            return None
        # The rows of the first copy have it already: asked by the copy's own catch-up, and by the
        # worker for tables that Londiste has copied; others are in sync without a snapshot.
        snapshot = buffer.spec.snapshot
        if snapshot is not None and snapshot.contains(int(ev_txid)):
            self.ignored += 1
            return None
        after_script = self.log_from is not None and int(ev_id) > self.log_from
        if kind is not None and self.handles(buffer):
            moment = extra[0] if extra else None
            logged = buffer.log or after_script
            self._leave_to_handler(route, (ev_id, ev_txid), data, logged, moment)
            return None
        if buffer.log or after_script:
            name = extra1 or buffer.spec.name
            event = Event(int(ev_id), int(ev_txid), ev_type, data, name)
            self.log.append(_whole(event, extra) if buffer.spec.calls else event)
            self.size += len(data or "") + sum(len(str(text)) for text in extra) + 200
            return None
        if kind is None:
            buffer.clear()
            self.truncates[buffer.spec.name] = int(ev_id)
            return None
        buffer.spill_waiting()
        try:
            return self._change(ev_id, ev_txid, data or "", said, kind, buffer)
        except UNREADABLE as error:
            self._fault(ev_id, ev_txid, buffer, unreadable(error))
            return None

    def route(self, ev_type: str, extra1: str | None) -> Route:
        """Return what a type says, and where its changes are gathered."""
        known = self._routes.get((ev_type, extra1))
        if known is not None:
            return known
        said = parse_type(ev_type)
        buffer = None
        if said.op != "-":
            buffer = self._buffer(extra1 or said.table or "", said)
            # Rows of a block are taken table by table by that field: without it their order among
            # those that have it is unknown.
            if buffer is not None and not extra1:
                buffer.log = True
            if buffer is not None and said.op not in buffer.spec.operations:
                buffer = None  # its handler leaves such events out
        route = Route(said, buffer, _KIND_OF_OP.get(said.op))
        self._routes[ev_type, extra1] = route
        return route

    def _buffer(self, name: str, said: EventType) -> TableBuffer | None:
        spec = self.tables.get(name)
        if spec is None:
            return None
        buffer = self.buffers.get(name)
        if buffer is None:
            buffer = self.buffers[name] = TableBuffer(spec, log=name in self.log_tables)
        if said.op == "R" or buffer.log:
            return buffer
        # A fragment of SQL holds only what changed, a table without a key has nothing to collapse
        # by, and a key that the target does not enforce may name several rows: keep the order.
        keys = spec.local_keys(said.keys)
        if spec.by_event and PART not in keys:
            keys = (*keys, PART)
        keyed = said.format != "sql" and keys and spec.identifies(keys)
        if not keyed or (buffer.keys and buffer.keys != keys):
            buffer.log = True
        buffer.keys = buffer.keys or keys
        return buffer

    def _change(
        self, ev_id: str, ev_txid: str, data: str, said: EventType, op: Kind, buffer: TableBuffer
    ) -> Shape | None:
        values: Values
        if said.format == "urlenc":
            names, values = split_urlenc(data)
            shape = buffer.shape(names, unquote)
        else:
            names, values = split_json(data or "{}")
            shape = buffer.shape(names, _same)
            for index, kind in enumerate(shape.nested):
                if kind and values[index].__class__ is Nested:
                    values[index] = nested_to_text(values[index], kind)
        added = self._add(ev_id, ev_txid, op, values, shape, buffer)
        if added is not None:
            self.size += len(data)
        return added

    def _add(
        self, ev_id: str, ev_txid: str, op: Kind, values: Values, shape: Shape, buffer: TableBuffer
    ) -> Shape | None:
        """Add a change to its key; None where that is a fault. The caller counts the size of the
        event, which may have replaced a smaller one."""
        if shape.key is None or shape.unknown or shape.unseen:
            problem = self._problem(shape, op, buffer)
            if problem is not None or shape.key is None:
                self._fault(ev_id, ev_txid, buffer, problem or NO_KEY)
                return None
        key = values[shape.key[0]] if len(shape.key) == 1 else tuple([values[i] for i in shape.key])
        if buffer.add(op, ev_id, key, values, shape):
            self.size += ENTRY_BYTES
        return shape

    # -- tables whose handler sees rows ---------------------------------------------------------

    def _leave_to_handler(
        self,
        route: Route,
        event: tuple[str, str],
        data: str | None,
        logged: bool,
        moment: str | None,
    ) -> None:
        """Keep an event until there are enough for the handler, or the buffer is written."""
        said, buffer, kind = route
        assert buffer is not None
        assert kind is not None
        if buffer.untouched is None:
            buffer.untouched = Untouched(buffer.spec)
        self.size += buffer.untouched.add(event, data, said, kind, logged, moment)
        if len(buffer.untouched.changes) >= AT_ONCE:
            self._show_to_handler(buffer)

    def _show_to_handler(self, buffer: TableBuffer) -> None:
        """Add what the handler makes of the events that were kept, behind those that wait."""
        untouched, buffer.untouched = buffer.untouched, None
        if untouched is None:
            return
        buffer.spill_waiting()
        filters = buffer.spec.rows is not None and buffer.spec.rows.filters
        # Events of one period need not be in the order of their times: an update may come after
        # the delete of a version that another period has got again.
        latest = buffer.spec.by_event and buffer.spec.keeps_latest
        for change in untouched.seen():
            if change.logged or buffer.log:
                self.log.append(change.as_event(buffer.spec.name))
                self.size += change.size + 200
            else:
                replaces = filters and change.kind is Kind.UPDATE
                replaces = replaces or (latest and change.kind is not Kind.DELETE)
                self._add_seen(change, buffer, replaces=replaces)

    def _add_seen(self, change: Change, buffer: TableBuffer, *, replaces: bool) -> None:
        shape = buffer.shape(change.names, _same)
        values = change.values
        given = (change.ev_id, change.ev_txid)
        if replaces:  # the row that is to be changed need not be here
            self._add(*given, Kind.DELETE, values, shape, buffer)
            added = self._add(*given, Kind.INSERT, values, shape, buffer)
        else:
            added = self._add(*given, change.kind, values, shape, buffer)
        if added is not None:
            self.size += change.size

    def _problem(self, shape: Shape, op: Kind, buffer: TableBuffer) -> str | None:
        """Say what is wrong with an event's columns; notes those that the target lacks."""
        if shape.key is None:
            return NO_KEY
        if op is Kind.DELETE:
            return None
        if shape.unknown:
            if buffer.spec.strict:
                return f'column "{shape.unknown[0]}" is missing on the target'
            if shape.renamed is not None:
                return shape.renamed
            self.missing_columns.setdefault(buffer.spec.name, set()).update(shape.unknown)
        if shape.unseen:
            return buffer.spec.cannot_tell(shape.unseen[0])
        return None

    def _fault(self, ev_id: str, ev_txid: str, buffer: TableBuffer, problem: str) -> None:
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(Fault(int(ev_id), int(ev_txid), buffer.spec.name, problem))

    def take(self) -> tuple[dict[str, TableBuffer], list[Event]]:
        """Hand out what was gathered and start again; routes and shapes stay learnt."""
        for buffer in self.buffers.values():
            if buffer.untouched is not None:
                self._show_to_handler(buffer)
        taken = {n: b for n, b in self.buffers.items() if b.entries or b.waiting}
        fresh = {n: b.fresh() for n, b in self.buffers.items()}
        log, self.log, self.size = self.log, [], 0
        self.buffers = fresh
        self._routes = {
            mark: Route(said, None if b is None else fresh[b.spec.name], kind)
            for mark, (said, b, kind) in self._routes.items()
        }
        return taken, log
