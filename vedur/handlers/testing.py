"""A kit for tests of a handler with `rows`: does it hold what Vedur relies on?

    from vedur.handlers.testing import Sample, check_handler

    def test_mine() -> None:
        check_handler(Mine, Sample("public.users", ("id",), [{"id": "1", "name": "Ann"}]))

Vedur calls `rows` for blocks of any size, in any process, in any order, twice after a crash, and
for a first copy as for changes. So the answer for a row may depend on that row alone. The oracle is
the handler itself, one row at a time; everything else must agree with it. Failures raise
AssertionError that names rows by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vedur.handlers.api import Handler
from vedur.handlers.registry import Registry, parse_stored
from vedur.tables.row_function import Row, RowFunction

#: Sizes of the blocks that the rows are given in.
_BLOCKS = (2, 3, 7)


@dataclass(frozen=True)
class Sample:
    """Rows of a table: its name in the set, its key, and rows with the same columns each."""

    table: str
    key: tuple[str, ...]
    rows: Sequence[Mapping[str, str | None]]
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        assert self.rows, "the sample has no rows"
        object.__setattr__(self, "names", tuple(self.rows[0]))
        for row in self.rows:
            assert tuple(row) == self.names, "all rows of a sample have the same columns, in order"

    @property
    def values(self) -> list[Row]:
        """The rows as lists."""
        return [list(row.values()) for row in self.rows]


def make_function(
    cls: type[Handler],
    table: str,
    arguments: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    facts: tuple[object, ...] | None = None,
) -> RowFunction:
    """Make what tasks get of a handler; `options` are values of the ini."""
    known = Registry(() if cls.name in Registry().classes else (cls,), options)
    name, given = parse_stored(cls.name)
    handler = known.make(name, table, {**given, **(arguments or {})})
    function = known._row_function(cls.name, handler, handler.scope(facts, {}))
    assert function is not None, f'handler "{cls.name}" has no rows'
    return function


def check_handler(
    cls: type[Handler],
    sample: Sample,
    arguments: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> list[dict[str, str | None] | None]:
    """Check a handler with `rows` against a sample; returns what it makes of each row, None where
    it leaves the row out."""
    function = make_function(cls, sample.table, arguments, options)
    names, one_by_one = _one_by_one(function, sample)
    _check_blocks(function, sample, names, one_by_one)
    _check_columns(function, sample, names, one_by_one)
    _check_again(function, sample, names, one_by_one)
    _check_deletes(function, sample, names, one_by_one)
    return [None if row is None else dict(zip(names, row, strict=True)) for row in one_by_one]


def _one_by_one(function: RowFunction, sample: Sample) -> tuple[tuple[str, ...], list[Row | None]]:
    """Return the oracle, made one by one; raises unless columns depend on names alone, those of an
    empty batch too."""
    expected = function.output(sample.names)
    found: list[Row | None] = []
    for number, row in enumerate(sample.values):
        names, rows = function.apply(sample.names, [row], sample.key)
        assert names == expected, f"row {number}: columns {names}, but of no row {expected}"
        found += rows
    return expected, found


def _check_blocks(
    function: RowFunction, sample: Sample, names: tuple[str, ...], oracle: list[Row | None]
) -> None:
    rows = sample.values
    for size in (*_BLOCKS, len(rows)):
        found: list[Row | None] = []
        for at in range(0, len(rows), size):
            found += function.apply(sample.names, rows[at : at + size], sample.key)[1]
        _same(found, oracle, f"in blocks of {size}")
    backwards = function.apply(sample.names, rows[::-1], sample.key)[1]
    _same(backwards[::-1], oracle, "in another order")


def _check_columns(
    function: RowFunction, sample: Sample, names: tuple[str, ...], oracle: list[Row | None]
) -> None:
    """Check changes that look alike, which are given as columns; where each is made from itself
    alone, without those that are not rewritten."""
    if function.filters:
        return
    shown = function.shown(sample.names, names)
    places = [sample.names.index(name) for name in shown]
    batch = function.batch(shown, [[row[at] for at in places] for row in sample.values])
    found = function.columns(batch, sample.key)
    expected = {name for name in names if name in shown or name not in sample.names}
    assert set(found) == expected, f"by column: columns {sorted(found)}, not {sorted(expected)}"
    for name, column in found.items():
        for number, value in enumerate(column.to_pylist()):
            row = oracle[number]
            assert row is not None and row[names.index(name)] == value, (
                f"row {number}: not the same by column"
            )


def _check_again(
    function: RowFunction, sample: Sample, names: tuple[str, ...], oracle: list[Row | None]
) -> None:
    """Check a restart: another process makes the handler anew."""
    from vedur.tables import row_function

    row_function.forget_handlers_made()
    found = function.apply(sample.names, sample.values, sample.key)[1]
    _same(found, oracle, "made anew")


def _check_deletes(
    function: RowFunction, sample: Sample, names: tuple[str, ...], oracle: list[Row | None]
) -> None:
    """Check deletes: a delete tells the key alone, and must find the row that an insert has
    made."""
    places = [sample.names.index(name) for name in sample.key]
    keys = [[row[at] for at in places] for row in sample.values]
    if function.rewrites_any(sample.key):
        told, found = function.apply(sample.key, keys, sample.key)
        assert told == sample.key, f"of the key alone it makes {told}"
        keys = [row if row is not None else [] for row in found]
    made: dict[tuple[str | None, ...], int] = {}
    for number, row in enumerate(oracle):
        if row is None:
            continue
        key = [row[names.index(name)] for name in sample.key]
        assert key == keys[number], f"row {number}: a delete would look for another key"
        first = made.setdefault(tuple(key), number)
        if first != number:
            before = [sample.values[first][at] for at in places]
            after = [sample.values[number][at] for at in places]
            assert before == after, f"rows {first} and {number}: two keys become one"


def _same(found: list[Row | None], oracle: list[Row | None], how: str) -> None:
    for number, (one, other) in enumerate(zip(found, oracle, strict=True)):
        assert one == other, f"row {number}: not the same {how} as by itself"
