"""What a comparison is about: two sides at one moment. Values that travel to tasks by pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vedur.names import quote_ident
from vedur.sql import query
from vedur.tables.row_function import RowFunction
from vedur.tables.target import Partitions

#: Seed of the second hash; any odd number far from 0 would do, but it may never change between
#: two sides of one comparison.
SEED = 7046029254386353131


def _bracketed(condition: str) -> str:
    """Return a condition in brackets; a comment at its end must not swallow the closing one."""
    return f"({condition}\n)" if "--" in condition else f"({condition})"


@dataclass(frozen=True, slots=True)
class Piece:
    """A table, or a leaf of a partitioned one: where rows lie. No pages: not sliced."""

    name: str  # quoted
    pages: int | None


@dataclass(frozen=True)
class Side:
    """One table in one database, as a snapshot sees it.

    `condition` selects what belongs to the comparison; `columns` and `key` are expressions over
    alias t; `key_types` are the types that texts of a key are cast to when rows are fetched.
    """

    name: str
    table: str  # quoted
    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    key_names: tuple[str, ...]
    key_types: tuple[str, ...]
    connstr: str = field(repr=False)
    snapshot: str = ""
    mark: str = "vedur compare"  # application_name of sessions at the snapshot
    condition: str = "true"
    where: str = "true"
    partitioned: bool = False
    transcode: bool = False  # the other side stores text in another encoding
    integer_key: bool = False  # on both sides
    counts_left_out: bool = False  # rows that the condition leaves out are counted, too

    @property
    def only(self) -> str:
        """`only` keeps inheritance children out; a partitioned table has all rows in children."""
        return "" if self.partitioned else "only"

    @property
    def selected(self) -> str:
        """What rows take part, as one condition."""
        return f"{_bracketed(self.condition)} and {_bracketed(self.where)}"

    def key_json(self) -> str:
        """Return SQL for the key of a row as text."""
        parts = ", ".join(f"cast({k} as text)" for k in self.key)
        return query("compare", "key_text").format(key=parts)

    def text_of(self, expressions: tuple[str, ...]) -> str:
        """Return SQL for what is hashed."""
        name = "row_text_utf8" if self.transcode else "row_text"
        return query("compare", name).format(columns=", ".join(expressions))

    def bucket(self, mask: int) -> str:
        """Return SQL for the number of a row's bucket, from its key alone; equal keys have equal
        numbers."""
        key = query("compare", "seed").strip()
        if self.integer_key:
            for part in self.key:
                key = query("compare", "key_int_hash").format(part=part, seed=key)
        elif self.transcode or self.key == self.columns:
            key = query("compare", "key_hash").format(text=self.text_of(self.key), seed=key)
        else:
            for part in self.key:
                text = query("compare", "key_part").format(part=part)
                key = query("compare", "key_hash").format(text=text, seed=key)
        return self._if_inside(f"({key} & {mask})")

    def _if_inside(self, value: str) -> str:
        """Return SQL for something of a row, or null where the row is only counted as one that is
        left out."""
        if not self.counts_left_out:
            return value
        return (
            query("compare", "if_inside")
            .format(inside=_bracketed(self.condition), value=value)
            .strip()
        )

    def begin(self) -> str:
        """Return the statements that open a transaction at this side's moment."""
        return query("compare", "begin_at").format(snapshot=self.snapshot, mark=self.mark)

    def slice_args(self, piece: Piece, pages: str) -> dict[str, object]:
        """Return what fills the braces of the statements that hash one slice."""
        selected = f"{self.selected} and {pages}"
        text = self.text_of(self.columns)
        counts = self.counts_left_out
        return {
            "table": piece.name,
            "condition": selected,
            "scope": f"{_bracketed(self.where)} and {pages}" if counts else selected,
            "inside": _bracketed(self.condition) if counts else "true",
            "text": text,
            "row": self._if_inside(text),
            "seed": SEED,
        }

    def match(self, table: str = "t", keys: str = "k") -> str:
        """Return SQL by which rows of `table` have the key in `keys`, whose columns are k1, k2,
        ..."""
        terms = [
            f"{table}.{quote_ident(n)} = cast({keys}.k{i} as {t})"
            for i, (n, t) in enumerate(zip(self.key_names, self.key_types, strict=True), 1)
        ]
        return " and ".join(terms)


@dataclass(frozen=True)
class Expected:
    """How rows of the provider become those that the target should hold: the provider's table, the
    function of the handler, the columns that it is given and those that it makes."""

    provider: Side
    rows: RowFunction
    columns: tuple[str, ...]
    made: tuple[str, ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pair:
    """A table of the provider and its copy, and how their columns correspond."""

    name: str
    dest: str
    column_names: tuple[str, ...]
    key_names: tuple[str, ...]
    source: Side
    target: Side
    keyed: bool
    target_names: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    chosen: bool = False  # by a column list: there may be more columns on both sides
    #: Columns whose values the target may round: what to call it, and when that is so (alias t).
    rounding: tuple[tuple[str, str], ...] = ()
    #: Where a handler changes rows: `source` is then a table of the target, see `expected.py`.
    expected: Expected | None = None
    #: Where a handler spreads the target's rows over partitions by a column.
    partitions: Partitions | None = None
    tree: bool = False  # they inherit from the target, so rows must be moved to them
    #: Columns of the target that have one value in all rows of the table, and the value as SQL.
    constants: Mapping[str, str] = field(default_factory=dict)

    def at(self, source: str, target: str, mark: str) -> Pair:
        """Return the pair as two snapshots see it; `mark` is their sessions' application_name."""
        found = replace(
            self,
            source=replace(self.source, snapshot=source, mark=mark),
            target=replace(self.target, snapshot=target, mark=mark),
        )
        if self.expected is None:
            return found
        provider = replace(self.expected.provider, snapshot=source, mark=mark)
        return replace(found, expected=replace(self.expected, provider=provider))


@dataclass(frozen=True, slots=True)
class Sums:
    """Rows and four sums over hashes of rows; adds up over slices, knows no order."""

    rows: int = 0
    a: int | None = None
    b: int | None = None
    c: int | None = None
    d: int | None = None
    #: Rows that the condition leaves out, where they are counted: no difference between two sides.
    left_out: int = field(default=0, compare=False)

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.rows + other.rows,
            plus(self.a, other.a),
            plus(self.b, other.b),
            plus(self.c, other.c),
            plus(self.d, other.d),
            self.left_out + other.left_out,
        )

    @property
    def strong(self) -> str:
        """All four sums as one word."""
        sums = (self.a, self.b, self.c, self.d)
        return "".join(f"{(s or 0) & (1 << 64) - 1:016x}" for s in sums)


@dataclass(frozen=True)
class Buckets:
    """Both sides by bucket of the key's hash: the totals, and which buckets differ."""

    mask: int
    source: Sums
    target: Sums
    bad: tuple[int, ...]

    @classmethod
    def from_sums(
        cls, mask: int, source: dict[int | None, Sums], target: dict[int | None, Sums]
    ) -> Buckets:
        """Add up, and keep what is not the same. No bucket, None, is that of rows left out."""
        none = Sums()
        numbers = [n for n in source.keys() | target.keys() if n is not None]
        bad = [n for n in numbers if source.get(n) != target.get(n)]
        totals = [sum(side.values(), none) for side in (source, target)]
        return cls(mask, totals[0], totals[1], tuple(sorted(bad)))

    @property
    def worth_choosing(self) -> bool:
        """Does reading only bad buckets save anything?"""
        return len(self.bad) <= (self.mask + 1) // 2


def plus(left: int | None, right: int | None) -> int | None:
    """Add up two sums."""
    # Of no rows there is no sum, as in SQL: empty tables have "checksum=None" in the walk-through.
    if left is None or right is None:
        return left if right is None else right
    return left + right
