"""What a copy of one table amounts to: columns, format, slices. Pure; travels by pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vedur.errors import StateError
from vedur.names import QualifiedName, quote_ident

#: Bytes of a source table per slice. One slice is one task; at about 60 MB/s it keeps a Spark
#: slot for half a second, which is as long as a replay job ever waits for one.
SLICE_BYTES = 32 << 20

Format = Literal["binary", "text"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the catalog describes it; `plain` allows binary transfer."""

    name: str
    type_oid: int
    type_name: str
    generated: bool
    identity: str
    plain: bool


@dataclass(frozen=True, slots=True)
class Leaf:
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
    """Everything that a task must know about a table but its slice."""

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

    @property
    def column_list(self) -> str:
        """The columns, quoted, for both sides."""
        return ", ".join(quote_ident(c) for c in self.columns)

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
        source = f"select {self.column_list} from {only}{piece.leaf.quoted}{text}"
        return f"copy ({source}) to stdout (format {self.format})"

    @property
    def copy_in(self) -> str:
        """The statement that loads a slice on the target."""
        return f"copy {self.dest.quoted} ({self.column_list}) from stdin (format {self.format})"


@dataclass(frozen=True, slots=True)
class ColumnMatch:
    """Columns of both sides put together."""

    columns: tuple[str, ...]
    format: Format
    only_source: tuple[str, ...]
    only_target: tuple[str, ...]


def match_columns(table: str, source: Sequence[Column], target: Sequence[Column]) -> ColumnMatch:
    """The columns to copy. Generated columns of the target make themselves."""
    there = {c.name: c for c in target if not c.generated}
    generated = {c.name for c in target if c.generated}
    common = [c for c in source if c.name in there]
    if not common:
        raise StateError(f'table "{table}": source and target have no column in common')
    same = all(c.plain and there[c.name].plain and c.type_oid == there[c.name].type_oid
               for c in common)  # fmt: skip
    names = {c.name for c in source}
    return ColumnMatch(
        tuple(c.name for c in common),
        "binary" if same else "text",
        tuple(c.name for c in source if c.name not in there and c.name not in generated),
        tuple(c.name for c in target if c.name not in names and not c.generated),
    )


def make_slices(leaves: Sequence[Leaf], slice_bytes: int = SLICE_BYTES) -> tuple[Slice, ...]:
    """Cut the leaves into ranges of pages; the last range of each leaf is open-ended.

    Pages count with what they hold outside (TOAST), so that slices of wide rows are not huge.
    """
    result: list[Slice] = []
    for leaf in leaves:
        pages = leaf.heap_bytes // leaf.block_size
        weight = max(leaf.all_bytes, leaf.heap_bytes)
        count = max(1, round(weight / slice_bytes)) if leaf.sliceable else 1
        step = max(1, -(-pages // count))
        starts = list(range(0, max(pages, 1), step))
        for start in starts:
            end = start + step if start != starts[-1] else None
            result.append(Slice(len(result), leaf.name, start, end))
    return tuple(result)
