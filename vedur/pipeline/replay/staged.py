"""What a staging job amounts to, and whether it can be merged as it is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vedur.change.event import NOT_MERGEABLE, Event, EventRange, Kind
from vedur.pipeline.replay.forward import RawEvents
from vedur.tables.mapping import TableSpec, note_shape

#: Tables with at most that many changes are written and merged with others, so many at a time: what
#: a group costs that is refused stays small, and waiting is next to nothing of the time.
FEW_CHANGES = 2_000
TOGETHER = 50
#: Why net changes of a key are none.
CONTRADICTION = "the changes of a key contradict each other, or interleave"


@dataclass(frozen=True)
class Part:
    """Net changes of one table that one task wrote at one time: a key has at most one in it."""

    slice: int
    first: int  # the first event that went into it, and the last
    last: int
    kinds: Counter[tuple[Kind, int]]

    @classmethod
    def read(cls, said: dict[str, Any]) -> Part:
        """Return a part as the summary of a task has it."""
        return cls(int(said["slice"]), said["first"], said["last"], read_kinds(said["kinds"]))


def read_kinds(said: dict[str, int]) -> Counter[tuple[Kind, int]]:
    """Return rows by kind and shape; a summary writes `kind/shape`."""
    return Counter({(Kind(k[0]), int(k[2:])): n for k, n in said.items()})


@dataclass
class StagedTable:
    """All that a batch staged for one table."""

    spec: TableSpec
    keys: tuple[str, ...] = ()
    shapes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    kinds: Counter[tuple[Kind, int]] = field(default_factory=Counter)
    chunks: int = 0
    logged: int = 0
    early: int = 0  # logged before the first script
    noop: int = 0
    last: int = 0  # the last event in a net change
    mixed_keys: bool = False
    parts: list[Part] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Staged net changes."""
        return sum(self.kinds.values())

    @property
    def slices(self) -> list[int]:
        """The numbers under which its net changes are staged."""
        return [p.slice for p in self.parts]

    @property
    def needs_fold(self) -> bool:
        """May a key have more than one net change?"""
        return self.chunks > 1 or not self.spec.canonical(self.keys)


@dataclass(frozen=True)
class Fault:
    """An event that does not fit the target."""

    ev_id: int
    ev_txid: int
    table: str
    problem: str

    def __str__(self) -> str:
        return f'[ev_id={self.ev_id},ev_txid={self.ev_txid}] table "{self.table}": {self.problem}'


@dataclass
class Staged:
    """A range of ticks that lies in staging tables, ready to be merged by the driver."""

    queue: str
    slot: int
    slices: list[int] = field(default_factory=list)
    tables: dict[str, StagedTable] = field(default_factory=dict)
    barriers: list[Event] = field(default_factory=list)
    truncates: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    missing_columns: dict[str, set[str]] = field(default_factory=dict)  # left out, by table
    events: int = 0
    ignored: int = 0
    log_from: int | None = None
    source: EventRange | None = None  # where it was read from, to read it again in another form
    specs: dict[str, TableSpec] = field(default_factory=dict)
    raw: RawEvents | None = None  # on a branch: the events as they are

    def add(self, summary: dict[str, Any], specs: dict[str, TableSpec]) -> None:
        """Take the summary of one slice."""
        self.slices.append(int(summary["slice"]))
        if summary["raw"] is not None:
            raw = RawEvents((int(summary["slice"]),), summary["raw"])
            self.raw = raw if self.raw is None else self.raw + raw
        self.events += summary["events"]
        self.ignored += summary["ignored"]
        self.barriers += [Event(**e) for e in summary["barriers"]]
        self.barriers.sort(key=lambda e: e.ev_id)
        self.faults += [Fault(**f) for f in summary["faults"]]
        for name, columns in summary["missing_columns"].items():
            self.missing_columns.setdefault(name, set()).update(columns)
        for name, ev_id in summary["truncates"].items():
            self.truncates[name] = max(ev_id, self.truncates.get(name, 0))
        for name, said in summary["tables"].items():
            self._add_table(name, said, specs)

    def absorb(self, other: Staged) -> None:
        """Take over what a later range staged into the same slot."""
        self.slices += other.slices
        if other.raw is not None:
            self.raw = other.raw if self.raw is None else self.raw + other.raw
        self.events += other.events
        self.ignored += other.ignored
        self.barriers = sorted([*self.barriers, *other.barriers], key=lambda e: e.ev_id)
        self.faults += other.faults
        for name, columns in other.missing_columns.items():
            self.missing_columns.setdefault(name, set()).update(columns)
        for name, ev_id in other.truncates.items():
            self.truncates[name] = max(ev_id, self.truncates.get(name, 0))
        for name, theirs in other.tables.items():
            mine = self.tables.setdefault(name, StagedTable(theirs.spec))
            mine.mixed_keys |= bool(mine.keys and theirs.keys and mine.keys != theirs.keys)
            mine.keys = mine.keys or theirs.keys
            for number, names in theirs.shapes.items():
                note_shape(mine.shapes, number, names)
            mine.kinds.update(theirs.kinds)
            mine.chunks += theirs.chunks
            mine.logged += theirs.logged
            mine.early += theirs.early
            mine.noop += theirs.noop
            mine.last = max(mine.last, theirs.last)
            mine.parts += theirs.parts

    def _add_table(self, name: str, said: dict[str, Any], specs: dict[str, TableSpec]) -> None:
        table = self.tables.setdefault(name, StagedTable(specs[name]))
        keys = tuple(said["keys"])
        table.mixed_keys |= bool(table.keys and keys and table.keys != keys)
        table.keys = table.keys or keys
        for number, columns in said["shapes"].items():
            note_shape(table.shapes, int(number), tuple(columns))
        table.kinds.update(read_kinds(said["kinds"]))
        table.parts += map(Part.read, said.get("parts", ()))
        table.chunks += said["chunks"]
        table.logged += said["logged"]
        table.early += said["early"]
        table.noop += said["noop"]
        table.last = max(table.last, said["last"])

    @property
    def scripts(self) -> list[int]:
        """Where EXECUTE events are."""
        return [e.ev_id for e in self.barriers if e.ev_type == "EXECUTE"]


def combined(first: Staged, second: Staged) -> Staged:
    """Return two adjacent ranges in one slot as one; to be merged only if they `fit_together`."""
    assert first.source is not None and second.source is not None
    both = Staged(
        first.queue,
        first.slot,
        log_from=min(filter(None, (first.log_from, second.log_from)), default=None),
        source=EventRange(
            first.source.events,
            first.source.slices + second.source.slices,
            first.source.owner,
            second.source.time,
            second.source.tick,
            second.source.passing,
        ),
        specs={**first.specs, **second.specs},
    )
    both.absorb(first)
    both.absorb(second)
    return both


def fit_together(first: Staged, second: Staged) -> bool:
    """Were both staged for the same columns? Staging tables count columns and do not name them, so
    rows that were written before and after a table was altered cannot be told apart there."""
    return all(second.specs.get(name, spec) == spec for name, spec in first.specs.items())


@dataclass(frozen=True)
class Restage:
    """Why a batch must be staged again, and how."""

    reason: str
    whys: Mapping[str, str] = field(default_factory=dict)  # of tables to be staged event by event
    log_from: int | None = None

    @property
    def log_tables(self) -> frozenset[str]:
        """The tables that are to be staged event by event."""
        return frozenset(self.whys)


def check(staged: Staged) -> Restage | None:
    """Return why this must be staged again before it can be merged; None if it need not."""
    scripts = staged.scripts
    if scripts:
        # Two ranges put together may have been staged with different scripts in mind, or one
        # with none: what counts is where the net changes lie.
        first = min(scripts)
        late = any(t.last > first for t in staged.tables.values())
        late_truncate = any(e > first for e in staged.truncates.values())
        if late or late_truncate or any(f.ev_id > first for f in staged.faults):
            return Restage("a script runs in the middle", log_from=first)
    return _check_tables(staged.tables.items(), staged)


def _check_tables(tables: Iterable[tuple[str, StagedTable]], staged: Staged) -> Restage | None:
    whys = {}
    for name, table in tables:
        # Net changes and truncates go first, so nothing that came before them may be in the log.
        mixed = bool(table.early and (table.rows or name in staged.truncates))
        # Partial rows of one key in several runs cannot be put together by the server.
        ragged = len(table.shapes) > 1 and table.needs_fold
        broken = any(kind in NOT_MERGEABLE for kind, _ in table.kinds)
        if table.mixed_keys:
            whys[name] = "the key columns of its events differ"
        elif mixed:
            whys[name] = "some of its events have no net change"
        elif broken:
            whys[name] = CONTRADICTION
        elif ragged:
            whys[name] = "changes of a key have different columns"
    if whys:
        return Restage(f"row by row: {', '.join(sorted(whys))}", whys)
    return None
