"""From two open connections to a `Pair`: columns, keys, storage. Reads catalogs only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from vedur.db import Database
from vedur.errors import StateError
from vedur.names import QualifiedName, quote_ident
from vedur.pipeline.compare.model import Pair, Piece, Side
from vedur.sql import query
from vedur.tables.filter import Columns, written
from vedur.tables.mapping import TableMap
from vedur.tables.match import (
    Column,
    ColumnMatch,
    ColumnPair,
    match_columns,
    part_constants,
    read_columns,
    read_keys,
    without_length,
    without_part_column,
)
from vedur.tables.pages import PageRange, cut_pages

#: Pages in one slice: 16 MB. About 0.3 s of hashing: many enough slices to keep two sides busy.
SLICE_PAGES = 2048
#: Slices that a task takes one after the other where there are plenty: what it costs besides (some
#: 20 ms, and as much for each connection) does not show, and each one done is progress.
_RUN = 4


class Use(Enum):
    """Which slots of a session a comparison takes."""

    ALL = "nobody else needs them"
    BUT_ONE = "one is left to others"
    BY_TURNS = "others have their turn after each slice"


@dataclass(frozen=True)
class Deal:
    """Into how many tasks the slices of a side go, how many connections each task has to it, and
    how many tasks run at once: all that can if `lanes` is 0."""

    tasks: int
    connections: int = 1
    lanes: int = 0


def deal(slots: int, cuts: int, limit: int, use: Use) -> Deal:
    """Decide how many tasks take `cuts` slices: `limit` connections are never exceeded, with one
    more for the slot that is left to others. Where that is one of two or three, the others have two
    connections each to make up for it."""
    if use is Use.BY_TURNS:
        return Deal(cuts, lanes=limit if slots > limit else 0)
    if slots > limit or not cuts:
        return Deal(min(limit, cuts))
    if use is Use.ALL:
        return Deal(min(cuts, max(4 * slots, -(-cuts // _RUN))))
    if slots == 1:
        return Deal(cuts)
    lanes = slots - 1
    connections = 2 if lanes <= 2 and 2 * lanes < limit else 1
    tasks = max(-(-cuts // (_RUN * connections)), min(lanes, cuts))
    return Deal(tasks, connections, lanes)


def make_pair(
    source_db: Database,
    target_db: Database,
    table: TableMap,
    *,
    shared: bool = False,
    where: str | None = None,
) -> Pair:
    """Read both catalogs and say what to compare.

    The table's condition tells which of the provider's rows should be here; on the target it holds
    too when other tables share the target (`shared`), and rows of the provider that it leaves out
    are counted. `where`, in names of the target, narrows both sides.
    """
    with source_db.transaction(), target_db.transaction():
        # Names of types are used in tasks, where no schema is searched but the server's own.
        for db in (source_db, target_db):
            db.execute(query("compare", "no_search_path"))
        matched, constants = _match(source_db, target_db, table), _constants(target_db, table)
    key = matched.key_columns()
    names = table.source_columns
    source = make_side(
        source_db,
        table.source_name,
        written(table.condition, names, "t"),
        written(where, names, "t"),
        tuple(c.source_sql for c in matched.columns),
    )
    # Parts have about all of their rows here, so the table is read anyway. A subset may be a small
    # part that an index finds, and what it leaves out is meant to be.
    source = replace(source, counts_left_out=shared and table.condition is not None)
    target = make_side(
        target_db,
        table.local_name,
        table.own("t") if shared or table.part is not None else None,
        written(where, alias="t"),
        tuple(c.target_sql for c in matched.columns),
    )
    spread = table.partitions if table.partitions and table.partitions.field else None
    tree = spread is not None and not target.partitioned
    if tree:
        target = replace(target, pieces=_read_tree(target_db, target), partitioned=True)
    encodings = {str(db.value(query("compare", "encoding"))) for db in (source_db, target_db)}
    if len(encodings) > 1 and "SQL_ASCII" not in encodings:
        source, target = replace(source, transcode=True), replace(target, transcode=True)
    if matched.key and all(c.integers for c in key):
        source, target = replace(source, integer_key=True), replace(target, integer_key=True)
    return Pair(
        table.name,
        table.dest,
        tuple(c.source.name for c in matched.columns),
        tuple(c.source.name for c in key),
        _keyed(source, tuple((c.source.name, c.source.type, c.source_sql) for c in key)),
        _keyed(target, tuple((c.target.name, c.target.type, c.target_sql) for c in key)),
        bool(matched.key),
        tuple(c.target.name for c in matched.columns),
        matched.only_source + matched.only_target,
        table.columns is not None,
        tuple(
            (f"{c.source.name} ({c.source.type} there, {c.target.type} here)", c.lost_sql)
            for c in matched.columns
            if c.lost_sql
        ),
        partitions=spread,
        tree=tree,
        constants=constants,
    )


def _constants(db: Database, table: TableMap) -> dict[str, str]:
    """Read the type of the column that tells the part; returns its value."""
    if table.part is None:
        return {}
    columns = {column.name: column.type for column in read_columns(db, table.local_name)}
    return part_constants(table.part, columns[table.part.name])


def _read_tree(db: Database, side: Side) -> tuple[Piece, ...]:
    rows = db.query(query("compare", "tree_storage"), [side.table])
    return tuple(Piece(row.name, row.pages) for row in rows)


def with_pieces_of(pair: Pair, source_db: Database, target_db: Database) -> Pair:
    """Read once more where rows lie on sides that are partitioned, in transactions that show the
    moment of the comparison: a partition may have come since the pair was planned."""
    expected = pair.expected
    if expected is not None:
        expected = replace(expected, provider=_with_pieces(source_db, expected.provider))
        return replace(pair, expected=expected, target=_with_pieces(target_db, pair.target))
    if pair.tree:
        target = replace(pair.target, pieces=_read_tree(target_db, pair.target))
    else:
        target = _with_pieces(target_db, pair.target)
    return replace(pair, source=_with_pieces(source_db, pair.source), target=target)


def _with_pieces(db: Database, side: Side) -> Side:
    return replace(side, pieces=_read_storage(db, side.table)[0]) if side.partitioned else side


def _match(source_db: Database, target_db: Database, table: TableMap) -> Matched:
    source, target = table.source_name, table.local_name
    left, right = read_columns(source_db, source), read_columns(target_db, target)
    for columns, name, where in ((left, source, "provider"), (right, target, "target")):
        if not columns:
            raise StateError(f'table "{name}" does not exist on the {where}: nothing to compare')
    keys, right = read_keys(source_db, source), without_part_column(table, left, right)
    matched = columns_to_compare(match_columns(left, right, table.columns), keys, table.columns)
    if not matched.columns:
        raise StateError(f'tables "{source}" and "{target}" have no column in common')
    return matched


def make_side(
    db: Database,
    table: QualifiedName | None,
    condition: str | None,
    where: str | None,
    columns: tuple[str, ...],
    quoted: str = "",
) -> Side:
    """Read where the rows of a table are; `quoted` is the name of one that has no other."""
    quoted = table.quoted if table is not None else quoted
    pieces, partitioned = _read_storage(db, quoted)
    return Side(
        name=str(table),
        table=quoted,
        pieces=pieces,
        columns=columns,
        key=(),
        key_names=(),
        key_types=(),
        connstr=db.connstr,
        condition=condition or "true",
        where=where or "true",
        partitioned=partitioned,
    )


def _read_storage(db: Database, quoted: str) -> tuple[tuple[Piece, ...], bool]:
    """Read the pieces of a table, and whether it has others than itself."""
    rows = db.query(query("compare", "storage"), [quoted])
    return tuple(Piece(r.name, r.pages) for r in rows), not any(r.itself for r in rows)


def _keyed(side: Side, key: tuple[tuple[str, str, str], ...]) -> Side:
    return replace(
        side,
        key_names=tuple(name for name, _, _ in key),
        key_types=tuple(kind for _, kind, _ in key),
        key=tuple(sql for _, _, sql in key),
    )


def slices(side: Side) -> list[tuple[Piece, str]]:
    """Return each piece with the conditions that cut it; every row is in exactly one slice."""
    result = []
    for piece in side.pieces:
        pages = piece.pages or 0
        for part in cut_pages(pages, pages // SLICE_PAGES):
            result.append((piece, _condition(part)))
    return result


def _condition(pages: PageRange) -> str:
    if pages.whole:
        return "true"
    if pages.end is None:
        return query("compare", "page_tail").format(low=pages.first)
    return query("compare", "page_range").format(low=pages.first, high=pages.end)


# -- which columns are compared, and as what; pure ------------------------------------------------

# Columns match by name, or by the node's column list. Where types differ, the provider's value is
# turned into the target's type through its text, which is what copy and replay do with it: so a
# bigint copy of an integer is equal, and a numeric(10,2) copy of 1.005 is what it should be. The
# text is what the type's output function writes (`t`, `ab   `, `10.0.0.1`), as in COPY and in
# events; a cast to text gives another one for some types (`true`, `ab`, `10.0.0.1/32`).

_INTEGERS = frozenset(("smallint", "integer", "bigint"))
#: Types inside one family print equal values alike: no cast is needed, and none is paid for.
_FAMILIES = (
    _INTEGERS,
    frozenset(("text", "character varying")),
)
_TEXTS = frozenset(("text", "character varying", "character"))
#: As text they are written in more than one way: by the zone of the session that made the change,
#: and with a T in JSON. A text of the target is read back.
_MOMENTS = frozenset(("timestamp without time zone", "timestamp with time zone"))
_NUMBERS = _INTEGERS | frozenset(("numeric", "real", "double precision"))
_TIMES = _MOMENTS | frozenset(("time without time zone", "time with time zone", "interval"))
#: Where a value of one type always fits the other.
_WIDER = frozenset(
    (
        ("smallint", "real"),
        ("smallint", "double precision"),
        ("integer", "double precision"),
        ("real", "double precision"),
    )
)
#: A cast to text is the output function's text for these, and cheaper.
_CAST_WRITES = _INTEGERS | frozenset(
    (
        "numeric",
        "real",
        "double precision",
        "date",
        "timestamp without time zone",
        "timestamp with time zone",
        "uuid",
        "text",
        "character varying",
    )
)


@dataclass(frozen=True, slots=True)
class MatchedColumn(ColumnPair):
    """One column on both sides, and how its two values are compared."""

    @property
    def integers(self) -> bool:
        """Whole numbers on both sides, of whatever size."""
        return self.source.type in _INTEGERS and self.target.type in _INTEGERS

    @property
    def _read_back(self) -> bool:
        """Is a text compared by what it means?"""
        return (
            self.source.bare_type in _MOMENTS
            and self.target.bare_type in _TEXTS
            and self.target.builtin
        )

    @property
    def source_sql(self) -> str:
        """The provider's value as the target would hold it; the table's alias is t."""
        plain = f"t.{quote_ident(self.source.name)}"
        if self._read_back or same_text(self.source.type, self.target.type):
            return plain
        text = _written(self.source, plain)
        return f"cast({text} as {self.target.type})" if self.target.builtin else text

    @property
    def lost_sql(self) -> str:
        """True where the target's type cannot hold the provider's value but rounds it; empty where
        it can hold them all, or refuses what it cannot."""
        if not rounds(self.source.type, self.target.type):
            return ""
        plain = f"t.{quote_ident(self.source.name)}"
        return f"cast({self.source_sql} as {self.source.type}) is distinct from {plain}"

    @property
    def target_sql(self) -> str:
        """The target's value; the table's alias is t."""
        plain = f"t.{quote_ident(self.target.name)}"
        if self._read_back:
            return f"cast(cast({plain} as text) as {self.source.type})"
        same = same_text(self.source.type, self.target.type)
        return plain if same or self.target.builtin else _written(self.target, plain)


@dataclass(frozen=True)
class Matched:
    """The columns of a pair of tables, in the provider's order, and what was left out."""

    columns: tuple[MatchedColumn, ...]
    key: tuple[str, ...]  # names on the provider; empty: the whole row is its own key
    only_source: tuple[str, ...]
    only_target: tuple[str, ...]

    def key_columns(self) -> tuple[MatchedColumn, ...]:
        """Return the matched columns of the key; all of them where there is none."""
        by_name = {c.source.name: c for c in self.columns}
        return tuple(by_name[name] for name in self.key) or self.columns


def rounds(source: str, target: str) -> bool:
    """Does the target's type round values of the source's?"""
    left, right = without_length(source), without_length(target)
    if source == target or (left, right) in _WIDER:
        return False
    if left in _NUMBERS and right in _NUMBERS - _INTEGERS:
        return right != "numeric" or target != right
    if left in _TIMES and left == right:
        return target != right
    return left in _MOMENTS and right == "date"


def _written(column: Column, plain: str) -> str:
    """Return SQL for what the output function of a column's type writes, null for null.

    num_nulls, because "is null" is also true for a composite of nulls.
    """
    if column.builtin and column.bare_type in _CAST_WRITES:
        return f"cast({plain} as text)"
    return f"case when pg_catalog.num_nulls({plain}) = 0 then pg_catalog.concat({plain}) end"


def same_text(source: str, target: str) -> bool:
    """Do equal values of both types have equal text?"""
    if source == target:
        return True
    left, right = source.partition("(")[0], target.partition("(")[0]
    if "[]" in source + target:
        return False
    return any(left in family and right in family for family in _FAMILIES)


def columns_to_compare(
    match: ColumnMatch, unique_keys: Sequence[Sequence[str]], chosen: Columns | None = None
) -> Matched:
    """Choose the key and say what is left out; `unique_keys` are the provider's, the best first.

    With a column list there may be more columns here: they are nobody's concern.
    """
    columns = tuple(MatchedColumn(pair.source, pair.target) for pair in match.pairs)
    here = {c.source.name for c in columns}
    key = next((tuple(k) for k in unique_keys if k and set(k) <= here), ())
    only_target = tuple(c.name for c in match.only_target) if chosen is None else ()
    return Matched(columns, key, match.only_source, only_target)
