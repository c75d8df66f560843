"""Which columns of two tables are compared, and as what. Pure.

Columns match by name, or by the node's column list. Where types differ, the provider's value is
turned into the target's type through its text, which is what copy and replay do with it: so a
bigint copy of an integer is equal, and a numeric(10,2) copy of 1.005 is what it should be. The text
is what the type's output function writes (`t`, `ab   `, `10.0.0.1`), as in COPY and in events; a
cast to text gives another one for some types (`true`, `ab`, `10.0.0.1/32`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vedur.names import quote_ident
from vedur.tables.filter import Columns
from vedur.tables.match import Column, ColumnMatch, ColumnPair, without_length

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
        """The matched columns of the key; all of them where there is none."""
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
    """What the output function of its type writes, null for null.

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
