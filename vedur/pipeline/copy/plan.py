"""What a copy of one table amounts to: columns, format, slices. Pure; travels by pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from vedur.errors import StateError
from vedur.names import QualifiedName, quote_ident
from vedur.sql import query
from vedur.tables.filter import Columns
from vedur.tables.match import Column, match_columns, unsteady_values
from vedur.tables.pages import cut_pages
from vedur.tables.row_function import RowFunction

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
        """The statement that reads a slice on the provider."""
        where = [f"ctid >= '({piece.first},0)'::tid"] if piece.first else []
        if piece.end is not None:
            where.append(f"ctid < '({piece.end},0)'::tid")
        if self.condition:
            # a newline, so that a comment at the end of the condition cannot swallow the bracket
            where.append(f"({self.condition}\n)")
        text = f" where {' and '.join(where)}" if where else ""
        only = "" if self.whole_tree else "only "
        listed = _listed(self.columns)
        source = f"select {listed} from {only}{piece.leaf.quoted} as t{text}"
        return f"copy ({source}) to stdout (format {self.format})"

    def lock_out(self, piece: Slice) -> str:
        """The statement that keeps a slice's table as it is until the transaction ends."""
        only = "" if self.whole_tree else "only "
        return query("copy", "lock_source").format(source=f"{only}{piece.leaf.quoted}")

    @property
    def copy_in(self) -> str:
        """The statement that loads a slice on the target."""
        listed = _listed(self.dest_columns or self.columns)
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
    """A column that was asked for by name cannot be passed over."""
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
