"""change-handler: another handler for a table that is replicated here, while everything runs.

Where the new handler asks for the same rows (only how they are loaded, or whether TRUNCATE is
followed, is another thing), the attribute changes and that is all: a batch that was staged with the
old one notices at its commit and is staged again. Where both handlers say by conditions which rows
they want, as those of shards do, just the rows that differ come and go (`move_rows.py`), and nobody
sees the table without the others. Else the rows that are here are of no use, so the table is
copied anew; the operator says so with --resync, because the table is empty meanwhile. Handler and
state, or rows, change in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from vedur.catalog.passed import asked_for, masks_of
from vedur.catalog.quarantine import forget_values
from vedur.catalog.rejoin import end_rejoin
from vedur.catalog.tables import (
    TableInfo,
    apply_handler,
    change_table_attr,
    get_table_list,
    hold_ready,
    local_set_table_state,
    sharing,
    without_handler,
)
from vedur.change.attrs import HANDLER, HANDLER_MARK
from vedur.db import Database
from vedur.errors import StateError, UsageError
from vedur.handlers.builtin import DEFAULT_HANDLER
from vedur.handlers.registry import Handled, handler_attr, resolve
from vedur.names import parse_name
from vedur.node.info import NodeInfo
from vedur.node.position import lock_worker_position, wake_worker
from vedur.ops.combined import require_all_changes, require_no_part_column
from vedur.ops.compare_tables import provided_tables, unready
from vedur.ops.copy_node import CopyNodes
from vedur.ops.handlers import (
    read_handled,
    require_emptied,
    require_handler_fit,
    require_times,
)
from vedur.ops.move_rows import RowMove, find_source, move_rows
from vedur.ops.passed import (
    require_children,
    require_keyed,
    require_passed,
    require_same_part,
)
from vedur.ops.session import Session, choose
from vedur.tables.checks import TableAt
from vedur.tables.mapping import TableMap
from vedur.tables.structure import read_structure

if TYPE_CHECKING:
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)


class Rows(Enum):
    """What becomes of the rows that are here."""

    STAY = auto()
    MOVE = auto()  # those that one of the two conditions has and the other has not
    ANEW = auto()  # they are of no use


@dataclass(frozen=True, kw_only=True)
class ChangeHandler:
    """What the operator asked for."""

    table: str
    handler: str | None = None
    handler_args: Sequence[str] = ()
    transform: str | None = None
    resync: bool = False
    dry_run: bool = False
    max_wait: float = 60.0

    def check(self) -> None:
        """Raise for what cannot be meant."""
        if self.max_wait < 0:
            raise UsageError(f"--max-wait is a number from 0 up, got {self.max_wait:g}")

    def stored(self) -> str:
        """Return the handler as it is stored; raises for what cannot be meant."""
        if (self.handler is None) == (self.transform is None):
            raise UsageError(
                "change-handler needs --handler=NAME or --transform=MODULE:FUNCTION; "
                f"--handler={DEFAULT_HANDLER} takes a handler away"
            )
        if self.transform is not None:
            if self.handler_args:
                raise UsageError("--handler-arg needs --handler")
            return handler_attr("transform", [f"function={self.transform}"])
        return handler_attr(self.handler or "", self.handler_args)


def change_handler(
    session: Session, options: ChangeHandler, spark: SparkSession | None = None
) -> None:
    """Give a local table another handler; moves rows, or begins a new copy, where others are asked
    for."""
    options.check()
    stored = options.stored()
    info = session.require_node()
    if info.is_root:
        raise UsageError(
            "on the root a handler decides what triggers write: remove-table and add-table with "
            "the other one"
        )
    require_all_changes(info)
    tables = get_table_list(session.db, session.queue).local.by_name
    names = choose([options.table], tables)
    if len(names) != 1:
        raise UsageError(
            f'change-handler takes one table, and "{options.table}" names {len(names)} of this node'
        )
    name, table = names[0], tables[names[0]]
    require_no_part_column(table, "change-handler")
    attrs = {**table.attrs, HANDLER: stored}
    handled = read_handled(session.db, info, name, attrs)
    assert handled is not None
    _require_no_masks(info, table, handled)
    same_mark = (table.attrs.get(HANDLER_MARK) or "") == handled.mark
    if same_mark and (table.attrs.get(HANDLER) or DEFAULT_HANDLER) == stored:
        log.info("%s: has this handler already", name)
        return
    wanted = apply_handler(without_handler(table).mapping, handled)
    old = _mapping(table)
    _require_passing(session, info, table, old, handled)
    _require_same_place(table, old, wanted)
    # rows without a mark were made by rules that nobody knows
    unmarked = wanted.rows is not None and not table.attrs.get(HANDLER_MARK)
    rows = Rows.ANEW if unmarked else judge_rows(old, wanted)
    if rows is Rows.MOVE and not options.resync:
        assert old is not None
        _move(session, info, _Change(table, handled, old, wanted), options, spark)
        return
    anew = rows is not Rows.STAY
    if anew:
        if old is None or old.rows is not None or wanted.rows is not None:
            require_emptied(table)
        _require_copy(session, info, table, wanted, handled, options)
    elif wanted.partitions is not None:
        _require_fit(session, CopyNodes(session, info, table.copy_node), table, wanted, handled)
        require_times(wanted, session.db)
    if options.dry_run:
        then = "the table would be copied anew" if anew else "its rows would stay as they are"
        log.info("%s: %s", name, then)
        return
    masks = wanted.rows is not None and (old is None or old.rows != wanted.rows)
    _store(session, table, handled, anew, masks)
    if anew:
        wake_worker(session.provider(info), session.queue)


def _require_no_masks(info: NodeInfo, table: TableInfo, handled: Handled) -> None:
    """Raise where events of a table that are in the queue of a branch would have been passed on by
    other rules than those that follow."""
    if not info.is_branch or not (table.masks or handled.publishes):
        return
    raise StateError(
        f'"{table.table_name}" cannot get this handler on a branch while it is replicated: its '
        "events in the queue of the branch, and rows of nodes below, would be masked in part, or "
        "by two rules; nothing is changed: remove-table it here and below, and add-table it with "
        "the other handler when the queue of this branch has no event of it any more"
    )


def _require_passing(
    session: Session, info: NodeInfo, table: TableInfo, old: TableMap | None, handled: Handled
) -> None:
    """Raise where events would be left out that a node needs: this one, or one below it."""
    name = table.table_name
    if handled.scope.applies:
        asked = asked_for(table.copy_condition, handled, table.columns)
        if handled.rows is None:
            asked |= masks_of(table.mask)
        require_passed(session, info, {name: asked})
    if old is None and handled.scope.passes_on:
        raise StateError(
            f'"{name}" cannot be passed on in part: its handler of now cannot be served, so it is '
            "not known which rows nodes below have"
        )
    require_same_part(name, resolve(table) if old is not None else None, handled)
    require_keyed(session.db, name, table.dest_table, handled)
    require_children(session, info, name, handled)


@dataclass(frozen=True)
class _Change:
    """The handler that a table is to get, and how the table lives here under the one of now (`old`)
    and under that one."""

    table: TableInfo
    handled: Handled
    old: TableMap
    wanted: TableMap


def _move(
    session: Session,
    info: NodeInfo,
    change: _Change,
    options: ChangeHandler,
    spark: SparkSession | None,
) -> None:
    """Change the handler and the rows that differ, at one tick."""
    table, handled, old, wanted = change.table, change.handled, change.old, change.wanted
    if reason := unready(table, provided_tables(session, info)):
        name = table.table_name
        raise StateError(f'rows of "{name}" cannot be moved now: {reason}: nothing is changed')
    source = find_source(session, info, table, wanted.condition)
    _require_fit(session, CopyNodes(session, info), table, wanted, handled)

    def store(db: Database) -> None:
        _write_handler(db, session.queue, table.table_name, handled)

    move = RowMove(
        command="change-handler",
        table=table,
        old=old.condition,
        new=wanted.condition,
        store=store,
        said=f"handler is {handled.stored}",
        dry_run=options.dry_run,
        max_wait=options.max_wait,
    )
    move_rows(session, info, source, move, spark)


def _mapping(table: TableInfo) -> TableMap | None:
    """Return how the table lives here; None where its handler cannot be served."""
    try:
        return table.mapping
    except StateError as error:
        log.debug("%s", error)
        return None


def _require_same_place(table: TableInfo, old: TableMap | None, wanted: TableMap) -> None:
    """Raise where rows are in partitions that the new handler would not look at."""
    here = old.partitions if old is not None else None
    if here is None:
        return
    new = wanted.partitions
    if new is None or (here.field, here.period, here.name) != (new.field, new.period, new.name):
        raise StateError(
            f'rows of "{table.table_name}" are in partitions, where the new handler does not look '
            f'for them: nothing is changed; remove-table it here, empty "{table.dest_table}" and '
            "drop its partitions, then add-table it with the other handler"
        )


def judge_rows(old: TableMap | None, new: TableMap) -> Rows:
    """Tell what becomes of the rows that are here under a new handler. Pure."""
    if not new.copies:
        return Rows.STAY
    if old is None or not old.copies or old.uncomparable:
        return Rows.ANEW
    if old.unrepairable and not new.unrepairable:
        return Rows.ANEW  # rows that the provider lacks may be here
    if (old.condition, old.rows) == (new.condition, new.rows):
        return Rows.STAY
    if old.rows is not None or new.rows is not None:
        return Rows.ANEW
    if new.uncomparable or new.partitions is not None:
        return Rows.ANEW  # conditions do not tell all about its rows, or about where they are
    return Rows.MOVE


def _require_fit(
    session: Session, nodes: CopyNodes, table: TableInfo, wanted: TableMap, handled: Handled
) -> None:
    """Raise unless the handler can serve the table that is here."""
    there = nodes.of(wanted)
    known = there.tables.find(table.table_name)
    remote = read_structure(there.db, parse_name(known.dest_table if known else table.table_name))
    if remote is not None:
        require_handler_fit(handled, wanted, session.db, TableAt(there.db, remote))


def _require_copy(
    session: Session,
    info: NodeInfo,
    table: TableInfo,
    wanted: TableMap,
    handled: Handled,
    options: ChangeHandler,
) -> None:
    """Raise unless the table can be copied anew with the new handler, and the operator wants it."""
    name = table.table_name
    node = CopyNodes(session, info, table.copy_node)
    node.require(wanted)
    _require_fit(session, node, table, wanted, handled)
    if not table.keeps_rows and (others := sharing(session.db, session.queue, table)):
        raise StateError(
            f'a new copy of "{name}" would empty "{table.dest_table}", which has rows of '
            f"{', '.join(others)}, too: its handler cannot be changed"
        )
    if not options.resync:
        raise UsageError(
            f'handler "{handled.stored}" asks for other rows of "{name}" than are here: the table '
            "must be copied anew, say so with --resync; it is empty until its rows are back"
        )


def _store(session: Session, table: TableInfo, handled: Handled, anew: bool, masks: bool) -> None:
    """Write the handler; `masks`: rows as they were until now are forgotten wherever they are
    kept."""
    db, queue, name = session.db, session.queue, table.table_name
    with db.transaction():
        if masks:
            # A batch that is being applied may put clear rows into quarantine: it ends first.
            lock_worker_position(db, queue)
        if hold_ready(db, queue, table) is None:
            raise StateError(
                f'table "{name}" is being copied, or was changed by another command: nothing is '
                "changed, run change-handler again when it is in sync"
            )
        _write_handler(db, queue, name, handled)
        if anew:
            local_set_table_state(db, queue, name, None, None)
            end_rejoin(db, queue, name)
        if masks:
            forget_values(db, queue, name)
    then = ", the table is copied anew" if anew else ""
    log.info("%s: handler is %s%s", name, handled.stored, then)


def _write_handler(db: Database, queue: str, name: str, handled: Handled) -> None:
    change_table_attr(db, queue, name, HANDLER, handled.stored)
    change_table_attr(db, queue, name, HANDLER_MARK, handled.mark or None)
