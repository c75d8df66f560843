"""Which columns of two tables are compared, and as what. Pure.

Columns match by name, or by the node's column list. Where types differ, the provider's value is
turned into the target's type through its text, which is what replay does with an event: so a
bigint copy of an integer is equal, and a numeric(10,2) copy of 1.005 is what it should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vedur.names import quote_ident

_INTEGERS = frozenset(("smallint", "integer", "bigint"))
#: Types inside one family print equal values alike: no cast is needed, and none is paid for.
_FAMILIES = (
    _INTEGERS,
    frozenset(("text", "character varying")),
)


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column as the catalog describes it; `type` is the base type of a domain."""

    name: str
    type: str
    generated: bool = False
    builtin: bool = True


@dataclass(frozen=True, slots=True)
class MatchedColumn:
    """One column on both sides."""

    source: ColumnInfo
    target: ColumnInfo

    @property
    def integers(self) -> bool:
        """Whole numbers on both sides, of whatever size."""
        return self.source.type in _INTEGERS and self.target.type in _INTEGERS

    @property
    def source_sql(self) -> str:
        """The provider's value as the target would hold it; the table's alias is t."""
        plain = f"t.{quote_ident(self.source.name)}"
        if same_text(self.source.type, self.target.type):
            return plain
        if self.target.builtin:
            return f"cast(cast({plain} as text) as {self.target.type})"
        return f"cast({plain} as text)"

    @property
    def target_sql(self) -> str:
        """The target's value; the table's alias is t."""
        plain = f"t.{quote_ident(self.target.name)}"
        same = same_text(self.source.type, self.target.type)
        return plain if same or self.target.builtin else f"cast({plain} as text)"


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


def same_text(source: str, target: str) -> bool:
    """Do equal values of both types have equal text?"""
    if source == target:
        return True
    left, right = source.partition("(")[0], target.partition("(")[0]
    if "[]" in source + target:
        return False
    return any(left in family and right in family for family in _FAMILIES)


def match_columns(
    source: Sequence[ColumnInfo],
    target: Sequence[ColumnInfo],
    unique_keys: Sequence[Sequence[str]],
    renamed: Mapping[str, str] | None = None,
) -> Matched:
    """Match columns by name; `unique_keys` are those of the provider, the best one first."""
    by_name = {c.name: c for c in target}
    chosen = {c.name: c.name for c in source} if renamed is None else renamed
    columns = tuple(
        MatchedColumn(c, by_name[chosen[c.name]])
        for c in source
        if c.name in chosen and chosen[c.name] in by_name
    )
    here = {c.source.name for c in columns}
    there = {c.target.name for c in columns}
    key = next((tuple(k) for k in unique_keys if k and set(k) <= here), ())
    return Matched(
        columns,
        key,
        tuple(c.name for c in source if c.name in chosen and c.name not in here),
        tuple(c.name for c in target if c.name not in there and renamed is None),
    )
