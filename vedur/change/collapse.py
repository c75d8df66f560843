"""Collapse a stream of events to the net change of each key, in bounded memory.

A `Collapser` takes the events of a slice in `ev_id` order and hands out what it has gathered
whenever `size` says so. What it cannot express as net changes of keyed rows it passes through
untouched (`log`), and what only the driver can decide it reports (`barriers`, `faults`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from vedur.change import jsonrow, urlenc
from vedur.change.copytext import NULL, escape
from vedur.change.event import Event, EventType, parse_type
from vedur.change.jsonrow import Nested, nested_to_text
from vedur.change.net import STEP, WITH_ROW
from vedur.change.table import TableSpec, shape_id

Values = list[Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """A set of columns that events of a table carry, and where each goes in a staged row."""

    names: tuple[str, ...]
    id: int
    picks: tuple[int, ...]  # for each stage column the index into the values, -1 for none
    keep: tuple[int, ...]  # indexes of values that are staged
    nested: tuple[str, ...]  # type_kind by value index
    unknown: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are set, in the event's order."""
        return tuple(self.names[i] for i in self.keep)


@dataclass(slots=True)
class Entry:
    """The net change of one key so far."""

    kind: str
    first: int
    last: int
    values: Values | None
    shape: Shape | None


@dataclass
class Fault:
    """An event that does not fit the target; whether that matters is for the driver to say."""

    ev_id: int
    ev_txid: int
    table: str
    problem: str


@dataclass
class TableBuffer:
    """What was gathered for one table since the last hand-out."""

    spec: TableSpec
    keys: tuple[str, ...] = ()
    entries: dict[Any, Entry] = field(default_factory=dict)
    shapes: dict[tuple[str, ...], Shape] = field(default_factory=dict)
    unions: dict[tuple[str, ...], Shape] = field(default_factory=dict)
    log: bool = False
    events: int = 0
    noop: int = 0

    def shape(self, names: tuple[str, ...], decoded: Callable[[str], str]) -> Shape:
        """The shape of an event with these (still encoded) column names."""
        found = self.shapes.get(names)
        if found is None:
            found = self.shapes[names] = make_shape(self.spec, tuple(map(decoded, names)))
        return found

    def lines(self, slice_id: int) -> Iterator[str]:
        """The entries as rows of the staging table."""
        at = {c.name: i for i, c in enumerate(self.spec.stage_columns)}
        width = len(at)
        key_at = [at[k] for k in self.keys]
        single = len(self.keys) == 1
        for key, entry in self.entries.items():
            shape = entry.shape
            head = f"{slice_id}\t{entry.first}\t{entry.last}\t{entry.kind}\t"
            if entry.kind in WITH_ROW and shape is not None and entry.values is not None:
                values = entry.values
                row = [
                    NULL if i < 0 or values[i] is None else escape(values[i]) for i in shape.picks
                ]
                yield f"{head}{shape.id}\t" + "\t".join(row) + "\n"
                continue
            row = [NULL] * width
            for place, value in zip(key_at, (key,) if single else key, strict=True):
                row[place] = NULL if value is None else escape(value)
            yield f"{head}0\t" + "\t".join(row) + "\n"


def make_shape(spec: TableSpec, names: tuple[str, ...]) -> Shape:
    """Match the columns of an event with those of the target."""
    index = {name: i for i, name in enumerate(names)}
    picks = tuple(index.get(c.name, -1) for c in spec.stage_columns)
    known = spec.by_name
    keep = tuple(i for i, n in enumerate(names) if n in known and not known[n].generated)
    return Shape(
        names=names,
        id=shape_id(tuple(names[i] for i in keep)),
        picks=picks,
        keep=keep,
        nested=tuple(known[n].type_kind if n in known else "" for n in names),
        unknown=tuple(n for n in names if n not in known),
    )


def _same(name: str) -> str:
    return name


@dataclass
class Collapser:
    """See the module. `log_tables` are passed through; so is everything after event
    `log_from`, where the driver runs a script that may change what tables look like."""

    tables: dict[str, TableSpec]
    log_tables: frozenset[str] = frozenset()
    log_from: int | None = None
    buffers: dict[str, TableBuffer] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    barriers: list[Event] = field(default_factory=list)
    truncates: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    events: int = 0
    ignored: int = 0
    size: int = 0
    _routes: dict[tuple[str, str | None], tuple[EventType, TableBuffer | None]] = field(
        default_factory=dict
    )

    def add(self, event: Event) -> None:
        """Take the next event."""
        self.events += 1
        route = self._routes.get((event.ev_type, event.ev_extra1))
        if route is None:
            route = self._route(event)
        said, buffer = route
        op = said.op
        if op == "-":
            self.barriers.append(event)
            return
        if buffer is None:
            self.ignored += 1
            return
        snapshot = buffer.spec.snapshot
        if snapshot is not None and snapshot.contains(event.ev_txid):
            self.ignored += 1
            return
        buffer.events += 1
        late = self.log_from is not None and event.ev_id > self.log_from
        if op == "R":
            self._truncate(event, buffer, late)
        elif buffer.log or late:
            self.log.append(event)
            self.size += len(event.ev_data or "") + 200
        else:
            self._change(event, said, buffer)

    def _route(self, event: Event) -> tuple[EventType, TableBuffer | None]:
        said = parse_type(event.ev_type)
        buffer = None
        if said.op != "-":
            name = event.ev_extra1 or said.table or ""
            buffer = self._buffer(name, said)
        self._routes[event.ev_type, event.ev_extra1] = said, buffer
        return said, buffer

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
        keyed = said.format != "sql" and said.keys and spec.identifies(said.keys)
        if not keyed or (buffer.keys and buffer.keys != said.keys):
            buffer.log = True
        buffer.keys = buffer.keys or said.keys
        return buffer

    def _truncate(self, event: Event, buffer: TableBuffer, late: bool) -> None:
        if buffer.log or late:
            self.log.append(event)
            return
        # What happened to this table before is of no consequence.
        buffer.entries.clear()
        self.truncates[buffer.spec.name] = event.ev_id

    def _change(self, event: Event, said: EventType, buffer: TableBuffer) -> None:
        if said.format == "urlenc":
            names, values = urlenc.split(event.ev_data or "")
            shape = buffer.shape(names, urlenc.unquote)
        else:
            names, values = jsonrow.split(event.ev_data or "{}")
            shape = buffer.shape(names, _same)
            for index, value in enumerate(values):
                if value.__class__ is Nested:
                    kind = shape.nested[index]
                    values[index] = nested_to_text(value, kind) if kind else str(value)
        key = self._key(event, buffer, shape, values)
        if key is None:
            return
        if shape.unknown and said.op != "D":
            self._fault(event, buffer, f'column "{shape.unknown[0]}" is missing on the target')
            return
        entries, op = buffer.entries, said.op
        entry = entries.get(key)
        if entry is None:
            entries[key] = Entry(op, event.ev_id, event.ev_id, values, shape)
            self.size += len(event.ev_data or "") + 300
            return
        self._merge(buffer, entry, op, event.ev_id, values, shape)

    def _key(self, event: Event, buffer: TableBuffer, shape: Shape, values: Values) -> Any:
        try:
            found = [values[shape.names.index(k)] for k in buffer.keys]
        except ValueError:
            self._fault(event, buffer, "the event lacks a key column")
            return None
        return found[0] if len(found) == 1 else tuple(found)

    def _fault(self, event: Event, buffer: TableBuffer, problem: str) -> None:
        if len(self.faults) < 20:
            self.faults.append(Fault(event.ev_id, event.ev_txid, buffer.spec.name, problem))

    def _merge(
        self,
        buffer: TableBuffer,
        entry: Entry,
        op: str,
        ev_id: int,
        values: Values,
        shape: Shape,
    ) -> None:
        before = entry.kind
        entry.kind = STEP[before][op]
        entry.last = ev_id
        if op == "D":
            entry.values = entry.shape = None
        elif op == "I" or entry.shape is shape:
            entry.values, entry.shape = values, shape
        elif before in WITH_ROW and entry.shape is not None and entry.values is not None:
            self._widen(buffer, entry, values, shape)
        else:
            buffer.noop += 1

    def _widen(self, buffer: TableBuffer, entry: Entry, values: Values, shape: Shape) -> None:
        """An update with other columns than the row so far: later values win, others stay."""
        assert entry.shape is not None and entry.values is not None
        row = dict(zip(entry.shape.names, entry.values, strict=True))
        row.update(zip(shape.names, values, strict=True))
        names = tuple(row)
        union = buffer.unions.get(names)
        if union is None:
            union = buffer.unions[names] = make_shape(buffer.spec, names)
        entry.shape = union
        entry.values = list(row.values())

    def take(self) -> tuple[dict[str, TableBuffer], list[Event]]:
        """Hand out what was gathered and start again; routes and shapes stay learnt."""
        taken = {n: b for n, b in self.buffers.items() if b.entries}
        fresh = {
            n: TableBuffer(b.spec, b.keys, {}, b.shapes, b.unions, b.log)
            for n, b in self.buffers.items()
        }
        log, self.log, self.size = self.log, [], 0
        self.buffers = fresh
        self._routes = {
            r: (said, None if b is None else fresh[b.spec.name])
            for r, (said, b) in self._routes.items()
        }
        return taken, log
