"""change-filter: other rows of a table, without a new copy, while changes go on.

How rows come and go is `move_rows.py`'s; here it is checked what the operator asks for.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from vedur.catalog.passed import asked_for, masks_of
from vedur.catalog.tables import TableInfo, change_table_attr
from vedur.change.attrs import COPY_CONDITION
from vedur.db import Database
from vedur.errors import StateError, UsageError
from vedur.handlers.registry import resolve
from vedur.names import parse_name
from vedur.node.info import NodeInfo
from vedur.ops.combined import require_all_changes, require_no_part_column
from vedur.ops.compare_tables import chosen_tables
from vedur.ops.move_rows import RowMove, find_source, move_rows
from vedur.ops.passed import require_passed
from vedur.ops.session import Session
from vedur.tables.checks import TableAt, require_condition
from vedur.tables.structure import read_structure

if TYPE_CHECKING:
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ChangeFilter:
    """What the operator asked for: a condition, or all rows."""

    table: str
    where: str | None = None
    all_rows: bool = False
    dry_run: bool = False
    force: bool = False
    max_wait: float = 60.0

    def check(self) -> None:
        """Raise unless either `--where` or `--all-rows` is given, and the values can be meant."""
        if self.all_rows == (self.where is not None):
            raise UsageError("change-filter needs --where CONDITION or --all-rows")
        if self.where is not None and not self.where.strip():
            raise UsageError("the condition is empty: use --all-rows to have all rows")
        if self.max_wait < 0:
            raise UsageError(f"--max-wait is a number from 0 up, got {self.max_wait:g}")


@dataclass(frozen=True)
class FilterChange:
    """The plan, or what was done."""

    table: str
    dest_table: str
    old: str | None
    new: str | None
    inserts: int
    deletes: int
    applied: bool
    tick: int

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--json`."""
        return asdict(self)


def change_filter(
    session: Session, options: ChangeFilter, spark: SparkSession | None = None
) -> FilterChange | None:
    """Change the condition of a local table; None where it is that already."""
    options.check()
    info, tables = chosen_tables(session, (options.table,))
    if len(tables) != 1:
        raise UsageError(f'change-filter takes one table that is in sync, got "{options.table}"')
    require_all_changes(info)
    table = tables[0]
    require_no_part_column(table, "change-filter")
    handled = resolve(table)
    if handled is not None and not handled.plain:
        raise StateError(
            f'table "{table.table_name}" has handler "{handled.stored}", which decides which rows '
            "come: change-filter does not know what it would do; use change-handler"
        )
    if (table.copy_condition or None) == options.where:
        log.info("%s: has this condition already", table.dest_table)
        return None
    asked = asked_for(options.where, handled, table.columns) | masks_of(table.mask)
    require_passed(session, info, {table.table_name: asked})
    source = find_source(session, info, table, options.where)
    _require(session, info, table, source, options)
    done = move_rows(session, info, source, _move(session, table, options), spark)
    return FilterChange(
        table.table_name,
        table.dest_table,
        table.copy_condition or None,
        options.where,
        **asdict(done),
    )


def _move(session: Session, table: TableInfo, options: ChangeFilter) -> RowMove:
    def store(db: Database) -> None:
        change_table_attr(db, session.queue, table.table_name, COPY_CONDITION, options.where)

    return RowMove(
        command="change-filter",
        table=table,
        old=table.copy_condition,
        new=options.where,
        store=store,
        said=f"condition is now: {options.where or 'none'}",
        dry_run=options.dry_run,
        force=options.force,
        max_wait=options.max_wait,
    )


def _require(
    session: Session, info: NodeInfo, table: TableInfo, source: str, options: ChangeFilter
) -> None:
    provider = session.provider(info)
    local = read_structure(session.db, parse_name(table.dest_table))
    remote = read_structure(provider, parse_name(source))
    if local is None or remote is None:
        side = "here" if local is None else "on the provider"
        raise StateError(f'table "{table.table_name}" does not exist {side}')
    if options.where is not None:
        require_condition(
            replace(table.mapping, condition=options.where),
            TableAt(session.db, local),
            TableAt(provider, remote),
            force=options.force,
        )
