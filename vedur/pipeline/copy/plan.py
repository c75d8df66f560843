"""What a copy of one table amounts to: columns, format, slices; travels by pickle.

`plan_table` reads both catalogs, everything else is pure.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from vedur.db import Database
from vedur.errors import StateError
from vedur.names import QualifiedName, quote_ident, quote_literal
from vedur.pipeline.copy.shape import read_shape, read_shapes
from vedur.sql import query
from vedur.tables.filter import Columns, written
from vedur.tables.mapping import TableMap
from vedur.tables.match import (
    Column,
    match_columns,
    part_constants,
    read_columns,
    read_columns_of,
    read_keys,
    read_unique_keys,
    unsteady_values,
    without_part_column,
)
from vedur.tables.pages import cut_pages
from vedur.tables.row_function import RowFunction, TableFacts
from vedur.tables.target import require_partitions

log = logging.getLogger(__name__)

#: Bytes of a source table per slice. One slice is one task; at about 60 MB/s it keeps a Spark
#: slot for half a second, which is as long as a replay job ever waits for one.
SLICE_BYTES = 32 << 20

Format = Literal["binary", "text"]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table that holds rows of the source: itself, or a leaf partition."""

    name: QualifiedName
    heap_bytes: int
    all_bytes: int
    block_size: int
    rows_estimated: int
    sliceable: bool = True


@dataclass(frozen=True, slots=True)
class Slice:
    """Pages [first, end) of a leaf; `end` None is open."""

    nr: int
    leaf: QualifiedName
    first: int
    end: int | None


@dataclass(frozen=True, slots=True)
class TableCopy:
    """Everything that a task must know about a table but its slice.

    `columns` and `condition` are for the provider, where the table is called t; `dest_columns` are
    the target's names, none where they are the same. With `rows` they are the columns that the
    handler makes, `made` by its own names.
    """

    queue: str
    table: str
    dest: QualifiedName
    columns: tuple[str, ...]
    format: Format
    condition: str | None = None
    slices: tuple[Slice, ...] = ()
    rows_estimated: int = 0
    bytes_estimated: int = 0
    whole_tree: bool = False  # the one slice reads a partitioned table with its partitions
    registered: bool = True  # false: not a table of a set, nothing can remove it meanwhile
    dest_columns: tuple[str, ...] = ()
    only_source: tuple[str, ...] = ()  # columns that are not copied, because the target lacks them
    source: QualifiedName | None = None  # the table on the provider
    in_one: bool = False  # one slice, one transaction, with rows that were there before
    shape: Mapping[int, str] = field(default_factory=dict)  # its parts as the snapshot saw them
    rows: RowFunction | None = None
    made: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # by the provider's names: what `rows` must say that it changes
    home: str = ""  # `dest` in the contract's form
    partitions: str = ""  # how partitions are made, where a column decides which one a row is in
    moments: tuple[str | None, ...] = ()  # times of rows, for a table with declared partitions
    constants: Mapping[str, str] = field(default_factory=dict)  # by column here, as SQL there

    @property
    def task_name(self) -> str:
        """The application_name of the tasks' connections; PostgreSQL keeps 63 bytes of ASCII.

        Tasks are found and ended by it, so a hash tells tables apart whose names are cut or
        written in other letters.
        """
        names = f"{self.queue}\0{self.table}".encode()
        digest = hashlib.blake2b(names, digest_size=8).hexdigest()
        text = f"vedur copy {digest} {self.queue} {self.table}"
        return text.encode("ascii", "replace").decode()[:63]

    def copy_out(self, piece: Slice) -> str:
        """Return the statement that reads a slice on the provider."""
        where = [f"ctid >= '({piece.first},0)'::tid"] if piece.first else []
        if piece.end is not None:
            where.append(f"ctid < '({piece.end},0)'::tid")
        if self.condition:
            # a newline, so that a comment at the end of the condition cannot swallow the bracket
            where.append(f"({self.condition}\n)")
        text = f" where {' and '.join(where)}" if where else ""
        only = "" if self.whole_tree else "only "
        listed = ", ".join([_listed(self.columns), *self.constants.values()])
        source = f"select {listed} from {only}{piece.leaf.quoted} as t{text}"
        return f"copy ({source}) to stdout (format {self.format})"

    def lock_out(self, piece: Slice) -> str:
        """Return the statement that keeps a slice's table as it is until the transaction ends."""
        only = "" if self.whole_tree else "only "
        return query("copy", "lock_source").format(source=f"{only}{piece.leaf.quoted}")

    @property
    def copy_in(self) -> str:
        """The statement that loads a slice on the target."""
        listed = _listed((*(self.dest_columns or self.columns), *self.constants))
        return f"copy {self.dest.quoted} ({listed}) from stdin (format {self.format})"


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(quote_ident(c) for c in columns)


@dataclass(frozen=True, slots=True)
class CopyColumns:
    """The columns that are copied, names on the provider and names here, and how; names of those
    that one side alone has."""

    columns: tuple[str, ...]
    dest_columns: tuple[str, ...]
    format: Format
    only_source: tuple[str, ...]
    only_target: tuple[str, ...]


def columns_to_copy(
    table: str,
    source: Sequence[Column],
    target: Sequence[Column],
    chosen: Columns | None = None,
) -> CopyColumns:
    """Choose the columns to copy: those of the list, or all that both sides have.

    Generated columns of the target make themselves. Raises where events would bring other values
    than the copy.
    """
    if chosen is not None:
        _require(table, dict(chosen), source, target)
    matched = match_columns(source, target, chosen)
    pairs = [pair for pair in matched.pairs if not pair.target.generated]
    if not pairs:
        raise StateError(f'table "{table}": source and target have no column in common')
    unsteady = unsteady_values(matched)
    if unsteady is not None:
        raise StateError(f'table "{table}": {unsteady}')
    same = all(
        p.source.plain and p.target.plain and p.source.type_oid == p.target.type_oid for p in pairs
    )
    return CopyColumns(
        tuple(p.source.name for p in pairs),
        tuple(p.target.name for p in pairs),
        "binary" if same else "text",
        matched.only_source,
        tuple(c.name for c in matched.only_target if not c.generated),
    )


def columns_to_make(
    table: str,
    source: Sequence[Column],
    target: Sequence[Column],
    chosen: Columns | None,
    rows: RowFunction,
) -> tuple[CopyColumns, tuple[str, ...]]:
    """Choose the columns of a copy whose rows a handler makes: it sees all columns of the provider.

    Returns them, and the handler's names for those that come here.
    """
    seen = tuple(c.name for c in source)
    names = dict(chosen) if chosen is not None else None
    here = {c.name: c for c in target if not c.generated}
    made, missing = {}, []
    for name in rows.output(seen):
        local = name if names is None else names.get(name)
        if local in here:
            made[name] = local
        elif local is not None:
            missing.append(local)
    if not made:
        raise StateError(f'table "{table}": its handler and the target have no column in common')
    rest = tuple(name for name in here if name not in made.values())
    found = CopyColumns(seen, tuple(made.values()), "text", tuple(missing), rest)
    return found, tuple(made)


def _require(
    table: str, names: Mapping[str, str], source: Sequence[Column], target: Sequence[Column]
) -> None:
    """Raise where a column that was asked for by name is missing: it cannot be passed over."""
    lists = (("provider", names.keys(), source), ("subscriber", names.values(), target))
    for side, wanted, columns in lists:
        lacking = sorted(set(wanted) - {c.name for c in columns})
        if lacking:
            raise StateError(
                f'table "{table}": the column list names {", ".join(lacking)}, '
                f"which the {side} does not have"
            )


def make_slices(leaves: Sequence[StoredTable], slice_bytes: int = SLICE_BYTES) -> tuple[Slice, ...]:
    """Cut the leaves into ranges of pages; the last range of each leaf is open-ended.

    Pages count with what they hold outside (TOAST), so that slices of wide rows are not huge.
    """
    result: list[Slice] = []
    for leaf in leaves:
        weight = max(leaf.all_bytes, leaf.heap_bytes)
        count = max(1, round(weight / slice_bytes)) if leaf.sliceable else 1
        for pages in cut_pages(leaf.heap_bytes // leaf.block_size, count):
            result.append(Slice(len(result), leaf.name, pages.first, pages.end))
    return tuple(result)


# -- read from both catalogs ----------------------------------------------------------------------


@dataclass(frozen=True)
class Relation:
    """A table as the catalog of one side knows it."""

    oid: int
    kind: str
    owned: bool


def find_relation(db: Database, name: QualifiedName, side: str) -> Relation:
    """Read what the catalog has of a table; raises an error that names the side that lacks it."""
    row = db.one(query("copy", "relation"), [name.schema, name.name])
    if row is None:
        raise StateError(f'table "{name}" does not exist on the {side}')
    return Relation(row.oid, row.kind, row.owned)


def read_leaves(db: Database, oid: int) -> list[StoredTable]:
    """Read the tables that hold the rows of a table, with their sizes of now."""
    return [
        StoredTable(
            QualifiedName(r.schema, r.name),
            r.heap_bytes,
            r.all_bytes,
            r.block_size,
            r.rows_estimated,
            sliceable=r.kind in ("r", "m"),
        )
        for r in db.query(query("copy", "leaves"), {"oid": oid})
    ]


def plan_table(
    source: Database,
    target: Database,
    queue: str,
    table: TableMap,
    slice_bytes: int = SLICE_BYTES,
) -> TableCopy:
    """Read both catalogs and work out columns, format and slices of a copy.

    `source` is the transaction that holds the snapshot. What to do about columns that only the
    provider has is the caller's business. Rows that are to stay beside those of the copy
    (`keeps_rows`) make it one slice, so one transaction.
    """
    there = find_relation(source, table.source_name, "provider")
    find_relation(target, table.local_name, "subscriber")
    theirs, mine = read_columns(source, table.source_name), read_columns(target, table.local_name)
    both = theirs, without_part_column(table, theirs, mine)
    made: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    if table.rows is None:
        matched = columns_to_copy(table.name, *both, table.columns)
    else:
        types = {column.name: column.type for column in both[0]}
        keys = read_unique_keys(target, table.local_name)
        table.rows.check(TableFacts(keys, types, dict(table.columns or ())))
        matched, made = columns_to_make(table.name, *both, table.columns, table.rows)
        key = next(iter(read_keys(source, table.source_name)), ())
    matched, constants = _with_part_column(table, matched, mine)
    how, moments = _plan_partitions(source, target, table)
    shape = read_shape(source, table.source_name, matched.columns)
    leaves = read_leaves(source, there.oid)
    one = (Slice(0, table.source_name, 0, None),)
    return replace(
        _make_plan(queue, table, matched, leaves, shape),
        slices=one if table.keeps_rows else make_slices(leaves, slice_bytes),
        whole_tree=table.keeps_rows and there.kind == "p",
        in_one=table.keeps_rows,
        rows=table.rows,
        made=made,
        key=key,
        partitions=how,
        moments=moments,
        constants=constants,
    )


def plan_together(
    source: Database, target: Database, queue: str, tables: Sequence[TableMap]
) -> dict[str, TableCopy]:
    """Read both catalogs once, and work out what a copy of each of several tables is, in one slice.

    Leaves out what `plan_table` is to look at, or to refuse: tables that are not plain ones on the
    provider, columns that only it has, handlers that make rows or partitions, rows that stay.
    """
    simple = [
        t for t in tables
        if t.rows is None and t.partitions is None and t.part is None and not t.keeps_rows
    ]  # fmt: skip
    theirs = read_columns_of(source, [table.source_name for table in simple])
    mine = read_columns_of(target, [table.local_name for table in simple])
    stored = _read_stored(source, [table.source_name for table in simple])
    matched: list[tuple[TableMap, CopyColumns]] = []
    for table, there, here in zip(simple, theirs, mine, strict=True):
        with suppress(StateError):
            found = columns_to_copy(table.name, there, here, table.columns)
            if not found.only_source and table.source_name in stored:
                matched.append((table, found))
    shapes = read_shapes(source, [(t.source_name, found.columns) for t, found in matched])
    return {
        table.name: _make_plan(queue, table, found, [stored[table.source_name]], shape)
        for (table, found), shape in zip(matched, shapes, strict=True)
    }


def _read_stored(db: Database, names: Sequence[QualifiedName]) -> dict[QualifiedName, StoredTable]:
    """Read the sizes of tables, of those that are plain ones."""
    asked = [[name.schema for name in names], [name.name for name in names]]
    rows = db.query(query("copy", "stored_tables"), asked)
    found = {}
    for r in rows:
        name = QualifiedName(r.schema, r.name)
        found[name] = StoredTable(name, r.heap_bytes, r.all_bytes, r.block_size, r.rows_estimated)
    return found


def _make_plan(
    queue: str,
    table: TableMap,
    matched: CopyColumns,
    leaves: Sequence[StoredTable],
    shape: Mapping[int, str],
) -> TableCopy:
    """Return the plan of a table in one slice, of rows as they are."""
    if matched.only_target:
        log.warning('%s: columns only on the subscriber, left to their defaults: %s', table.name,
                    ", ".join(matched.only_target))  # fmt: skip
    return TableCopy(
        queue,
        table.name,
        table.local_name,
        matched.columns,
        matched.format,
        written(table.condition, table.source_columns, "t"),
        (Slice(0, table.source_name, 0, None),),
        sum(leaf.rows_estimated for leaf in leaves),
        sum(max(leaf.all_bytes, leaf.heap_bytes) for leaf in leaves),
        dest_columns=matched.dest_columns,
        only_source=matched.only_source,
        source=table.source_name,
        shape=shape,
        home=table.dest,
    )


def _with_part_column(
    table: TableMap, matched: CopyColumns, target: Sequence[Column]
) -> tuple[CopyColumns, dict[str, str]]:
    """Add the column that tells the part; the provider writes its value behind each row. Its type
    is known there where the server brought it along, and only such a column can go in binary."""
    if table.part is None:
        return matched, {}
    own = next(c for c in target if c.name == table.part.name)
    if matched.format == "binary" and own.plain and own.builtin:
        return matched, part_constants(table.part, own.type)
    return replace(matched, format="text"), part_constants(table.part, "text")


def _plan_partitions(
    source: Database, target: Database, table: TableMap
) -> tuple[str, tuple[str | None, ...]]:
    """Read how partitions are made, and for a table with declared ones the periods that rows of
    the snapshot are in; nothing for a table whose copy goes into the table itself."""
    found = table.partitions
    if found is None:
        return "", ()
    columns = read_columns(target, table.local_name)
    keys = read_unique_keys(target, table.local_name)
    declared = find_relation(target, table.local_name, "subscriber").kind == "p"
    types = {column.name: column.type for column in columns}
    require_partitions(table.dest, found, types, declared, bool(keys))
    if found.field is None:
        return "", ()
    # Rows of all slices have their place until the end: old partitions go when the next is made.
    how = found.as_json(keys, list(types), drop=False)
    if not declared:
        return how, ()
    there = (table.source_columns or {}).get(found.field, found.field)
    place = f"t.{quote_ident(there)}"
    words = {
        "moment": target.value(query("replay", "part_moment"), [table.dest, found.field, place]),
        "period": quote_literal(found.period),
        "source": table.source_name.quoted,
        "condition": written(table.condition, table.source_columns, "t") or "true",
    }
    rows = source.query(query("copy", "moments").format(**words))
    return how, tuple(row.moment for row in rows)
