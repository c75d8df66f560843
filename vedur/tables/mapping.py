"""How a table of the set lives here (`TableMap`), and what replay knows of the table here
(`TableSpec`). Values that travel to the tasks by pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from vedur.change.attrs import PART_COLUMN, PART_VALUE
from vedur.change.event import EventType
from vedur.change.quarantine import RowKey
from vedur.change.snapshot import Snapshot
from vedur.errors import InternalError
from vedur.names import QualifiedName, parse_name, quote_ident, quote_literal
from vedur.tables.event_function import EventFunction
from vedur.tables.filter import Columns, source_names, written
from vedur.tables.row_function import RowFunction
from vedur.tables.target import Partitions

#: A table can have 1,600 columns, and a staging table needs five for itself.
MAX_STAGE_COLUMNS = 1595


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the target; `type` is the base type of a domain, as SQL writes it."""

    name: str
    type: str
    type_kind: str = ""  # json, array, array:json, record, or '' for scalars
    generated: bool = False
    identity_always: bool = False
    canonical: bool = False

    @property
    def text(self) -> bool:
        """Has it a collation?"""
        return self.type.startswith(("text", "character varying"))


@dataclass(frozen=True, slots=True)
class PartColumn:
    """A column that this node alone has, and the value by which it tells the rows of one part from
    those of others: rows come with it, and a row without it is none of the part's."""

    name: str
    value: str

    @classmethod
    def read(cls, attrs: Mapping[str, str | None], queue: str) -> PartColumn | None:
        """Return the column of a table with these attributes, None for none; where no value was
        given, it is the name of the queue. Pure."""
        name = attrs.get(PART_COLUMN)
        return cls(name, attrs.get(PART_VALUE) or queue) if name else None

    @property
    def literal(self) -> str:
        """The value as SQL, of whatever type the column is."""
        return quote_literal(self.value)

    def condition(self, alias: str | None = None) -> str:
        """Return what a row of the part fulfils, as SQL."""
        head = f"{alias}." if alias else ""
        return f"{head}{quote_ident(self.name)} = {self.literal}"


@dataclass(frozen=True, slots=True)
class TableMap:
    """How a table of the set lives on this node; copy, replay, compare, repair, check go by it.

    Names are in the contract's form. `name` is the table's name in the set, `dest` its name here,
    `source` its name on the provider where somebody has asked for it (None: the same as in the
    set). `condition` selects the rows that belong here, in names of this node; `columns` is the
    column list, None for all columns under their own names. `snapshot` is that of the first copy,
    as long as events that it contains may still come. `keeps_rows`: a first copy leaves the rows
    that it finds. `on_error` and `handler` are the table's own, as they are stored.
    `event_by_event`: its events are needed one by one, because some of them go into quarantine.

    The rest is what its handler makes of it: `operations` are the events that are applied (R is
    TRUNCATE), `rows` is called for all rows on their way here, `calls` gives the statements for an
    event instead, `applies` False means that nothing
    comes, `partitions` says which tables rows go to instead of `dest`; `uncomparable` says why
    nobody can tell which rows should be here, `unrepairable` why rows that the provider lacks may
    be right.

    `shared`: rows of other tables are in the same table here, and `condition` tells which are its
    own; it leaves the others alone. `part` tells them by a column instead, whatever `condition` is.

    `masked`: rows come from the provider masked, and by which rules; None where they come as the
    root has them.

    One map leads to one local table, and a batch has one map of a `name`. Tables that share a local
    table are several maps with one `dest`.
    """

    name: str
    dest: str
    snapshot: str | None = None
    condition: str | None = None
    columns: Columns | None = None
    event_by_event: bool = False
    source: str | None = None
    handler: str | None = None
    operations: str = "IUDR"
    rows: RowFunction | None = None
    calls: EventFunction | None = None
    applies: bool = True
    partitions: Partitions | None = None
    shared: bool = False
    part: PartColumn | None = None
    masked: str | None = None
    # No part of what was staged for a table: it stays good when these change.
    uncomparable: str = field(default="", compare=False)
    unrepairable: str = field(default="", compare=False)
    keeps_rows: bool = field(default=False, compare=False)
    on_error: str | None = field(default=None, compare=False)

    @property
    def copies(self) -> bool:
        """Can there be rows of it here, so that a first copy brings them?"""
        return self.applies and not (self.calls is not None and self.calls.whole)

    def own(self, alias: str | None = None) -> str | None:
        """Return what tells its rows from those of other tables that are in the same one here, as
        SQL; None where nothing does."""
        if self.part is not None:
            return self.part.condition(alias)
        return written(self.condition, alias=alias)

    @property
    def local_name(self) -> QualifiedName:
        """Its name here, in parts."""
        return parse_name(self.dest)

    @property
    def source_name(self) -> QualifiedName:
        """Its name on the provider, in parts."""
        return parse_name(self.source or self.name)

    @property
    def source_columns(self) -> Mapping[str, str] | None:
        """From column names here to those of the provider; None where they are the same."""
        return source_names(self.columns)


@dataclass(frozen=True)
class TableSpec:
    """What replay knows of a table of the target: columns, keys and staging table, read from its
    catalog. No `TableMap`, which is what the set wants of the table, whatever it looks like here;
    this is made from one and from the table that is there, and lives as long as that keeps its
    shape.

    `unique_keys` are the column sets of valid, total unique indexes, `enforced_keys` (None: all of
    them) those that are checked in the role of a replica too; `snapshot` is set while
    events that the first copy already contains may still come; rows that do not fulfil
    `condition` do not belong here, and `looks_at` are the columns it needs to tell. `chosen` is
    the column list (name in events -> name here), None where all columns come under their own
    names. `strict`: a column that the target lacks is an error, not a warning. `operations`,
    `rows`, `calls`, `partitions`, `shared` and `part` are the map's. The column of `part` is none
    of `columns`, and in no key: events know nothing of it; `part_type` is its type.
    """

    name: str
    dest: str  # quoted
    stage: str  # quoted
    columns: tuple[TargetColumn, ...]
    unique_keys: tuple[frozenset[str], ...] = ()
    enforced_keys: tuple[frozenset[str], ...] | None = None
    partitioned: bool = False
    snapshot: Snapshot | None = None
    condition: str | None = None
    looks_at: tuple[str, ...] = ()
    chosen: dict[str, str] | None = None
    strict: bool = True
    shape: int | None = None  # a fingerprint of the target's columns, as the catalog has them
    operations: str = "IUDR"
    rows: RowFunction | None = None
    calls: EventFunction | None = None
    partitions: Partitions | None = None
    home: str = ""  # `dest` in the contract's form
    shared: bool = False
    part: PartColumn | None = None
    part_type: str = ""
    by_name: dict[str, TargetColumn] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self.by_name.update({c.name: c for c in self.columns})

    def local(self, name: str) -> str | None:
        """Return what a column of an event is called here; None if it does not come here."""
        return name if self.chosen is None else self.chosen.get(name)

    def local_keys(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return key columns of an event as they are called here.

        One that does not come here keeps its name: that is no column here, and an error later.
        """
        return names if self.chosen is None else tuple(self.chosen.get(n, n) for n in names)

    def unseen(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return what the condition needs and a row with these columns does not tell."""
        return tuple(name for name in self.looks_at if name not in columns)

    def renamed(self, columns: Collection[str]) -> str | None:
        """Return what is wrong with a whole row that lacks a column of the target while it has one
        that the target lacks, None if it is not so: as after a column got another name on one side,
        and to leave its values out would lose them. A column list says what is meant."""
        if self.chosen is not None:
            return None
        if self.part is not None and self.part.name in columns:
            return (
                f'the root has a column "{self.part.name}" now, and here the one of that name '
                "tells the rows of the parts apart: give it another name on the root, or "
                "remove-table it here, and add-table it with another part column"
            )
        more = next((name for name in columns if name not in self.by_name), None)
        less = next((c.name for c in self.stage_columns if c.name not in columns), None)
        if more is None or less is None:
            return None
        return (
            f'column "{more}" is missing on the target, and the event lacks its column "{less}": '
            f"if it was renamed on the root, rename it here: alter table ... rename column "
            f'"{less}" to "{more}"; else add "{more}" here, then "repair {self.name} --apply", and '
            f'drop "{less}" if it is gone on the root; where both are meant, give the table a '
            "column list"
        )

    def cannot_tell(self, column: str) -> str:
        """Return what is wrong with an event that lacks a column of the condition: as null it would
        take rows out of the part in silence."""
        condition = " ".join((self.condition or "").split())
        return f'the event lacks column "{column}" of the condition: {condition}'

    @property
    def stage_columns(self) -> tuple[TargetColumn, ...]:
        """What is staged: everything that a statement may set."""
        return tuple(c for c in self.columns if not c.generated)

    @property
    def stageable(self) -> bool:
        """Can a staging table hold its rows? It has columns of its own, and there is a limit."""
        return 0 < len(self.stage_columns) <= MAX_STAGE_COLUMNS

    @property
    def only(self) -> str:
        """`only` keeps inheritance children out, but would empty a partitioned table's reach."""
        return "" if self.partitioned or self.is_tree else "only"

    @property
    def is_tree(self) -> bool:
        """Are its rows in tables that inherit from it, where a handler puts them?"""
        target = self.partitions
        return target is not None and target.field is not None and not self.partitioned

    def own(self, alias: str | None = None) -> str:
        """Return what a row here must fulfil to be one of this table's, as SQL; empty where all
        are."""
        if self.part is not None:
            return self.part.condition(alias)
        return written(self.condition, alias=alias) or "" if self.shared else ""

    @property
    def constants(self) -> dict[str, str]:
        """Columns that every new row has the same value in, quoted, with the value as SQL."""
        if self.part is None:
            return {}
        return {quote_ident(self.part.name): f"{self.part.literal}::{self.part_type}"}

    @property
    def by_event(self) -> bool:
        """Must a change tell the time of its event?"""
        return self.partitions is not None and self.partitions.by_event

    @property
    def keeps_latest(self) -> bool:
        """Does an update bring a row that is not here?"""
        return self.partitions is not None and self.partitions.row_mode == "keep_latest"

    @property
    def partition_words(self) -> str:
        """What `vedur.make_partition` must know."""
        assert self.partitions is not None
        return self.partitions.as_json(self.unique_keys, [c.name for c in self.columns])

    @property
    def alias(self) -> str:
        """The table's bare name, quoted: what a condition may call it."""
        return '"' + self.dest.partition('"."')[2]

    def identifies(self, keys: tuple[str, ...]) -> bool:
        """Do these columns name at most one row of the target?"""
        return any(unique <= set(keys) for unique in self.unique_keys)

    def may_repeat(self, keys: tuple[str, ...]) -> bool:
        """Are these columns a key that nobody checks while changes are replayed?

        A deferrable constraint is checked by triggers, which a replica does not fire.
        """
        if self.enforced_keys is None or not self.identifies(keys):
            return False
        return not any(unique <= set(keys) for unique in self.enforced_keys)

    def unchecked_key(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return a key among these columns that may repeat; none if there is no such."""
        found = (tuple(sorted(u)) for u in self.unique_keys if u <= set(columns))
        return next((key for key in found if self.may_repeat(key)), ())

    def canonical(self, keys: tuple[str, ...]) -> bool:
        """Is text equality of these keys the server's equality?"""
        return all(k in self.by_name and self.by_name[k].canonical for k in keys)


def shape_id(columns: tuple[str, ...]) -> int:
    """Return a number for a set of columns in order, the same in every process. That two have the
    same is next to impossible, and would be noticed (`note_shape`)."""
    digest = hashlib.blake2b("\x00".join(columns).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


def note_shape(known: dict[int, tuple[str, ...]], number: int, columns: tuple[str, ...]) -> None:
    """Note which columns a number stands for. Raises where it stands for others already: rows
    would be written under the names of other columns."""
    if known.setdefault(number, columns) != columns:
        raise InternalError(
            f"two sets of columns have the same number: {', '.join(known[number])} and "
            f"{', '.join(columns)}: rename one of these columns"
        )


def row_key(spec: TableSpec, said: EventType, row: Mapping[str, Any] | None) -> RowKey | None:
    """Return the key of an event's row by its names here; None where text does not tell rows
    apart."""
    if not said.keys or said.format not in ("json", "urlenc") or row is None:
        return None
    names = spec.local_keys(said.keys)
    if not spec.canonical(names):
        return None
    values = {}
    for name, local in zip(said.keys, names, strict=True):
        value = row.get(name)
        if value is None:
            return None
        values[local] = str(value)
    ordered = tuple(sorted(values))
    return RowKey(ordered, json.dumps({n: values[n] for n in ordered}, ensure_ascii=False))
