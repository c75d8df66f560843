"""`rows` of a handler on its way to tasks, and the one way to call it.

A task gets the names of a module and of a class with text arguments, and makes the handler itself:
so a module that a machine lacks is an error of ours with a name in it, and equal functions are
equal, which lets Spark's plans be used again. The source of a user's modules comes with the names
(`module_code.py`): a task runs what the driver has read, whatever its process had loaded before.

What goes wrong in a handler is told without its message: that may quote values which are not to be
seen anywhere on this node.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vedur.errors import StateError, UsageError
from vedur.tables.module_code import ModuleSource, using

if TYPE_CHECKING:
    import pyarrow as pa

#: The column that numbers the rows of a batch.
ROW_NUMBER = "vedur_row"

#: Values of rows, by column; None is NULL.
Row = list[Any]


@dataclass(frozen=True)
class ColumnSet:
    """Some columns by name, or all but some."""

    names: frozenset[str] = frozenset()
    all_but: bool = False

    def __contains__(self, name: str) -> bool:
        return (name in self.names) is not self.all_but

    @classmethod
    def of(cls, *names: str) -> ColumnSet:
        """Return the set of these columns."""
        return cls(frozenset(names))


@dataclass(frozen=True)
class TableFacts:
    """Both sides of a table, for the check of a handler.

    `source_types` are types by name of the provider's columns, None where nobody has asked;
    `unique_keys` are column sets here that are unique. `names` are the names here by the provider's
    names, where there is a column list.
    """

    unique_keys: Sequence[Collection[str]]
    source_types: Mapping[str, str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NamedHandler:
    """A handler by name, which is made where it is called; equal ones are equal. `sources` are the
    texts of the modules of a user's handler."""

    handler: str  # as it is stored, for messages
    module: str
    cls: str
    table: str
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    sources: tuple[ModuleSource, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class RowFunction(NamedHandler):
    """A handler's `rows` by name. `rewrites` are the columns that it changes, None where nobody
    knows; `filters`: it may leave rows out. `mends`: bytes that are not UTF-8 are replaced before
    it sees them, and are an error otherwise. `by_column`: what it makes of a column depends on that
    column alone, so it need not be given those that it does not rewrite."""

    rewrites: ColumnSet | None = None
    filters: bool = False
    mends: bool = False
    by_column: bool = False

    def rewrites_any(self, columns: Sequence[str]) -> bool:
        """May one of these columns, which are a key, be changed? Only one that is declared may."""
        return self.rewrites is not None and any(name in self.rewrites for name in columns)

    def check(self, table: TableFacts) -> None:
        """Raise StateError where the handler cannot serve such a table."""
        self._make().check(table)

    def output(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that rows with these columns have afterwards."""
        return self.apply(tuple(names), [])[0]

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise StateError where a change with a whole row of these columns cannot be served."""
        self._make().check_columns(names)

    def apply(
        self, names: tuple[str, ...], rows: Sequence[Row], key: Sequence[str] = ()
    ) -> tuple[tuple[str, ...], list[Row | None]]:
        """Return columns, and for each row its values or None where it is left out.

        Raises StateError if the handler fails, or changes a column of `key` that it does not name.
        """
        batch = self.batch(names, rows)
        answer = self._run(batch)
        kept, texts = self._read(answer, len(rows))
        self._require_key(batch, kept, texts, [k for k in key if not self.rewrites_any([k])])
        found: list[Row | None] = [None] * len(rows)
        for number, *values in zip(kept, *texts.values(), strict=True):
            found[number] = values
        return tuple(texts), found

    def shown(self, names: Sequence[str], left: Collection[str]) -> tuple[str, ...]:
        """Return the columns that `columns` must be given of rows with these, of which those in
        `left` are there afterwards."""
        if not self.by_column or self.rewrites is None:
            return tuple(names)
        return tuple(name for name in names if name in self.rewrites and name in left)

    def columns(self, batch: pa.RecordBatch, key: Sequence[str]) -> dict[str, pa.StringArray]:
        """Return the columns that the handler makes of these, for as many rows in the same order.

        Raises StateError if the handler fails, leaves rows out or changes a column of `key` that
        it does not name.
        """
        answer = self._run(batch)
        self._require_batch(answer)
        if ROW_NUMBER in answer.schema.names:
            whole = _array(answer.column(ROW_NUMBER)).equals(batch.column(ROW_NUMBER))
        else:
            whole = answer.num_rows == batch.num_rows
        if not whole:
            raise StateError(self._failed("it leaves rows out, or changes their order"))
        found = {}
        for name in answer.schema.names:
            if name != ROW_NUMBER:
                found[name] = self._as_text(answer.column(name), name)
        for name in key:
            if name not in batch.schema.names or self.rewrites_any([name]):
                continue
            if name not in found or not found[name].equals(batch.column(name)):
                raise StateError(
                    self._failed(f'it changes column "{name}" of the key without saying so')
                )
        return found

    def batch(self, names: tuple[str, ...], rows: Sequence[Row]) -> pa.RecordBatch:
        """Return rows as the handler is given them."""
        import pyarrow as pa

        try:
            columns = [pa.array([row[at] for row in rows], pa.string()) for at in range(len(names))]
            numbers = pa.array(range(len(rows)), pa.int64())
            return pa.RecordBatch.from_arrays([*columns, numbers], [*names, ROW_NUMBER])
        except Exception as error:
            raise StateError(self._failed(where_raised(error))) from None

    def _run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        handler = self._make()
        try:
            return handler.rows(batch)
        except StateError:
            raise
        except Exception as error:
            raise StateError(self._failed(where_raised(error))) from None

    def _make(self) -> Any:
        try:
            return make_handler(self)
        except ImportError as error:
            lacking = error.name or self.module
            what = f'module "{lacking}" is missing: install it on every machine that runs tasks'
            raise StateError(self._failed(what)) from None
        except (StateError, UsageError) as error:
            raise StateError(error.message) from None
        except Exception as error:
            raise StateError(self._failed(where_raised(error))) from None

    def _read(self, answer: Any, count: int) -> tuple[list[int], dict[str, list[str | None]]]:
        self._require_batch(answer)
        names = answer.schema.names
        kept = list(range(count))
        if ROW_NUMBER in names:
            kept = answer.column(ROW_NUMBER).to_pylist()
        elif answer.num_rows != count:
            raise StateError(
                self._failed(f'its answer lacks column "{ROW_NUMBER}", and rows are missing')
            )
        if kept != list(range(count)):
            if not self.filters:
                raise StateError(self._failed("it leaves rows out, or changes their order"))
            inside = all(isinstance(n, int) and 0 <= n < count for n in kept)
            if not inside or kept != sorted(set(kept)):
                raise StateError(self._failed("it repeats rows, or changes their order"))
        texts = {}
        for name in names:
            if name != ROW_NUMBER:
                texts[name] = self._as_text(answer.column(name), name).to_pylist()
        return kept, texts

    def _require_batch(self, answer: Any) -> None:
        import pyarrow as pa

        if not isinstance(answer, pa.RecordBatch | pa.Table):
            raise StateError(self._failed(f"its answer is a {type(answer).__name__}"))
        names = answer.schema.names
        if len(set(names)) != len(names):
            raise StateError(self._failed("its answer has two columns of one name"))

    def _as_text(self, column: Any, name: str) -> pa.StringArray:
        import pyarrow as pa

        try:
            found = _array(column.cast(pa.string()))
            found.validate(full=True)
        except Exception:
            raise StateError(
                self._failed(f'column "{name}" of its answer cannot be written as text')
            ) from None
        return found

    def _require_key(
        self,
        batch: pa.RecordBatch,
        kept: list[int],
        texts: dict[str, list[str | None]],
        key: Sequence[str],
    ) -> None:
        for name in key:
            if name not in texts:
                raise StateError(self._failed(f'it leaves out column "{name}" of the key'))
            before = batch.column(name).to_pylist()
            if [before[number] for number in kept] != texts[name]:
                raise StateError(
                    self._failed(f'it changes column "{name}" of the key without saying so')
                )

    def _failed(self, what: str) -> str:
        return f'handler "{self.handler}" failed on table "{self.table}": {what}'


def _array(column: Any) -> Any:
    """Return a column of a table, which may be in several pieces, as one array."""
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def where_raised(error: BaseException) -> str:
    """Say what was raised, and in which line, but not with which words: they may quote values."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place} (its message is not shown, it may hold values)"


def make_handler(named: NamedHandler) -> Any:
    """Make the handler, once a process for the same source."""
    if not named.sources:
        return _make_once(named, 0)
    with using(named.sources) as generation:
        return _make_once(named, generation)


def forget_handlers_made() -> None:
    """Have handlers made anew, as in a process that has just begun."""
    _make_once.cache_clear()


@lru_cache(maxsize=256)
def _make_once(named: NamedHandler, generation: int) -> Any:
    cls = getattr(importlib.import_module(named.module), named.cls)
    return cls(named.table, dict(named.given), dict(named.options))
