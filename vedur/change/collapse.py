"""Collapse a stream of events to the net change of each key, in bounded memory.

A `Collapser` takes the events of a slice in `ev_id` order and hands out what it has gathered
whenever `size` says so. What it cannot express as net changes of keyed rows it passes through
untouched (`log`), and what only the driver can decide it reports (`barriers`, `faults`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vedur.change import jsonrow, urlenc
from vedur.change.copytext import NULL, escape
from vedur.change.event import UNREADABLE, Event, EventType, parse_type, unreadable
from vedur.change.jsonrow import Nested, nested_to_text
from vedur.change.net import STEP, WITH_ROW
from vedur.change.table import TableSpec, shape_id

if TYPE_CHECKING:
    from vedur.change.columnar import Waiting

Values = list[Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """A set of columns that events of a table carry, and where each goes in a staged row."""

    names: tuple[str, ...]
    local: tuple[str | None, ...]  # what each is called here, None if it does not come here
    id: int
    picks: tuple[int, ...]  # for each stage column the index into the values, -1 for none
    keep: tuple[int, ...]  # indexes of values that are staged
    nested: tuple[str, ...]  # type_kind by value index
    key: tuple[int, ...] | None  # where the key columns are, None if one is missing
    unknown: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()  # columns of the condition that are not staged
    renamed: str | None = None  # what is wrong where a column seems to have got another name

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are set, by their names here, in the event's order."""
        return tuple(self.local[i] or "" for i in self.keep)


@dataclass(slots=True)
class Entry:
    """The net change of one key so far."""

    kind: str
    first: str
    last: str
    values: Values | str | None  # a payload as it is, where the quick way took it
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
    last: str = "0"
    noop: int = 0
    kinds: dict[tuple[str, int], int] = field(default_factory=dict)
    waiting: Waiting | None = None  # events after all that went into the entries

    @property
    def first(self) -> int:
        """The earliest event that was gathered; to be asked before what waits is settled."""
        if self.entries:
            return int(next(iter(self.entries.values())).first)
        assert self.waiting is not None
        return self.waiting.first

    def shape(self, names: tuple[str, ...], decoded: Callable[[str], str]) -> Shape:
        """The shape of an event with these (still encoded) column names."""
        found = self.shapes.get(names)
        if found is None:
            found = make_shape(self.spec, tuple(map(decoded, names)), self.keys)
            self.shapes[names] = found
        return found

    def lines(self, slice_id: int) -> Iterator[str]:
        """The entries as rows of the staging table but for payloads; counts all on the way."""
        at = {c.name: i for i, c in enumerate(self.spec.stage_columns)}
        width = len(at)
        key_at = [at[k] for k in self.keys]
        single = len(self.keys) == 1
        counts = self.kinds
        for key, entry in self.entries.items():
            shape, kind = entry.shape, entry.kind
            head = f"{slice_id}\t{entry.first}\t{entry.last}\t{kind}\t"
            if kind in WITH_ROW and shape is not None and entry.values is not None:
                counts[kind, shape.id] = counts.get((kind, shape.id), 0) + 1
                values = entry.values
                if isinstance(values, str):
                    continue
                row = [
                    NULL if i < 0 or values[i] is None else escape(values[i]) for i in shape.picks
                ]
                yield f"{head}{shape.id}\t" + "\t".join(row) + "\n"
                continue
            counts[kind, 0] = counts.get((kind, 0), 0) + 1
            row = [NULL] * width
            for place, value in zip(key_at, (key,) if single else key, strict=True):
                row[place] = NULL if value is None else escape(value)
            yield f"{head}0\t" + "\t".join(row) + "\n"


def make_shape(spec: TableSpec, names: tuple[str, ...], keys: tuple[str, ...]) -> Shape:
    """Match the columns of an event with those of the target; `keys` are names here."""
    local = tuple(map(spec.local, names))
    index = {name: i for i, name in enumerate(local) if name is not None}
    known = spec.by_name
    keep = tuple(i for n, i in index.items() if n in known and not known[n].generated)
    return Shape(
        names=names,
        local=local,
        id=shape_id(tuple(local[i] or "" for i in keep)),
        picks=tuple(index.get(c.name, -1) for c in spec.stage_columns),
        keep=keep,
        nested=tuple(known[n].type_kind if n in known else "" for n in local),
        key=tuple(index[k] for k in keys) if all(k in index for k in keys) else None,
        unknown=tuple(n for n in index if n not in known),
        unseen=spec.unseen({local[i] or "" for i in keep}),
        renamed=spec.renamed(index),
    )


def _same(name: str) -> str:
    return name


def _listed(values: Values | str) -> Values:
    return jsonrow.split(values)[1] if isinstance(values, str) else values


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
    missing_columns: dict[str, set[str]] = field(default_factory=dict)  # left out, by table
    events: int = 0
    ignored: int = 0
    size: int = 0
    met: Shape | None = None  # the columns of the last change that fits
    _routes: dict[tuple[str, str | None], tuple[EventType, TableBuffer | None]] = field(
        default_factory=dict
    )

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

    def add_row(
        self,
        ev_id: str,
        ev_txid: str,
        ev_type: str,
        data: str | None,
        extra1: str | None,
        extra: tuple[str | None, ...] = (),
    ) -> None:
        """The same by its fields: most events need no object, and numbers can stay text."""
        self.events += 1
        said, buffer = self._routes.get((ev_type, extra1)) or self.route(ev_type, extra1)
        op = said.op
        if op == "-":
            self.barriers.append(Event(int(ev_id), int(ev_txid), ev_type, data, extra1, *extra))
            return
        if buffer is None:
            self.ignored += 1
            return
        snapshot = buffer.spec.snapshot
        if snapshot is not None and snapshot.contains(int(ev_txid)):
            self.ignored += 1
            return
        late = self.log_from is not None and int(ev_id) > self.log_from
        if op == "R" and not (buffer.log or late):
            # What happened to this table before is of no consequence.
            buffer.entries.clear()
            buffer.waiting = None
            self.truncates[buffer.spec.name] = int(ev_id)
        elif buffer.log or late:
            name = buffer.spec.name
            self.log.append(Event(int(ev_id), int(ev_txid), ev_type, data, extra1 or name))
            self.size += len(data or "") + 200
        else:
            self.take_waiting(buffer)
            try:
                self._change(ev_id, ev_txid, data or "", said, buffer)
            except UNREADABLE as error:
                self._fault(ev_id, ev_txid, buffer, unreadable(error))

    def route(self, ev_type: str, extra1: str | None) -> tuple[EventType, TableBuffer | None]:
        """What a type says, and where its changes are gathered (None: not here)."""
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
        self._routes[ev_type, extra1] = said, buffer
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
        keys = spec.local_keys(said.keys)
        keyed = said.format != "sql" and keys and spec.identifies(keys)
        if not keyed or (buffer.keys and buffer.keys != keys):
            buffer.log = True
        buffer.keys = buffer.keys or keys
        return buffer

    def _change(
        self, ev_id: str, ev_txid: str, data: str, said: EventType, buffer: TableBuffer
    ) -> None:
        values: Values
        if said.format == "urlenc":
            names, values = urlenc.split(data)
            shape = buffer.shape(names, urlenc.unquote)
        else:
            names, values = jsonrow.split(data or "{}")
            shape = buffer.shape(names, _same)
            for index, kind in enumerate(shape.nested):
                if kind and values[index].__class__ is Nested:
                    values[index] = nested_to_text(values[index], kind)
        if shape.key is None:
            self._fault(ev_id, ev_txid, buffer, "the event lacks a key column")
            return
        op = said.op
        if shape.unknown and op != "D":
            if buffer.spec.strict:
                problem = f'column "{shape.unknown[0]}" is missing on the target'
                self._fault(ev_id, ev_txid, buffer, problem)
                return
            if shape.renamed is not None:
                self._fault(ev_id, ev_txid, buffer, shape.renamed)
                return
            self.missing_columns.setdefault(buffer.spec.name, set()).update(shape.unknown)
        if shape.unseen and op != "D":
            self._fault(ev_id, ev_txid, buffer, buffer.spec.cannot_tell(shape.unseen[0]))
            return
        key = values[shape.key[0]] if len(shape.key) == 1 else tuple([values[i] for i in shape.key])
        buffer.last = ev_id
        self.met = shape
        entry = buffer.entries.get(key)
        if entry is None:
            buffer.entries[key] = Entry(op, ev_id, ev_id, values, shape)
            self.size += len(data) + 300
        else:
            self.merge(buffer, entry, op, ev_id, values, shape)
            self.size += len(data)  # it may have replaced a smaller one

    def _fault(self, ev_id: str, ev_txid: str, buffer: TableBuffer, problem: str) -> None:
        if len(self.faults) < 20:
            self.faults.append(Fault(int(ev_id), int(ev_txid), buffer.spec.name, problem))

    def merge(
        self,
        buffer: TableBuffer,
        entry: Entry,
        op: str,
        ev_id: str,
        values: Values | str,
        shape: Shape,
    ) -> None:
        """One more event of a key; values may be a payload as it is (see `quick`)."""
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

    def take_waiting(self, buffer: TableBuffer) -> None:
        """Make entries of what waits, because an event comes that cannot wait behind it."""
        waiting, buffer.waiting = buffer.waiting, None
        if waiting is not None:
            self.take_alike(buffer, waiting.pattern.shape, waiting.rows())

    def take_alike(
        self, buffer: TableBuffer, shape: Shape, rows: Iterable[tuple[str, str, str, Any]]
    ) -> None:
        """Events as operation, number, payload and key; they are counted already."""
        entries = buffer.entries
        for op, ev_id, data, key in rows:
            entry = entries.get(key)
            if entry is None:
                entries[key] = Entry(op, ev_id, ev_id, data, shape)
            else:
                self.merge(buffer, entry, op, ev_id, data, shape)

    def _widen(self, buffer: TableBuffer, entry: Entry, values: Values | str, shape: Shape) -> None:
        """An update with other columns than the row so far: later values win, others stay."""
        assert entry.shape is not None and entry.values is not None
        row = dict(zip(entry.shape.names, _listed(entry.values), strict=True))
        row.update(zip(shape.names, _listed(values), strict=True))
        names = tuple(row)
        union = buffer.unions.get(names)
        if union is None:
            union = buffer.unions[names] = make_shape(buffer.spec, names, buffer.keys)
        entry.shape = union
        entry.values = list(row.values())

    def take(self) -> tuple[dict[str, TableBuffer], list[Event]]:
        """Hand out what was gathered and start again; routes and shapes stay learnt."""
        taken = {n: b for n, b in self.buffers.items() if b.entries or b.waiting}
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
