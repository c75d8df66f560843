"""add-table: register tables, with triggers, attributes and (if asked) their creation.

With --all or a glob all tables are looked at before the first is added: what cannot be added is
told with its reason, and nothing is changed unless the operator wants the others. Each table is
one transaction under a statement timeout, so that a table somebody has locked does not make every
other session queue behind this command.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vedur.catalog.copy_source import NEAREST
from vedur.catalog.parts import forget_loaded_before
from vedur.catalog.passed import asked_for, masks_of
from vedur.catalog.tables import (
    TableSet,
    all_relations,
    apply_handler,
    get_table_list,
    local_add_table,
)
from vedur.change.attrs import (
    COLUMNS,
    COPY_CONDITION,
    COPY_NODE,
    HANDLER,
    MASKED,
    MAX_PARALLEL_COPY,
    MERGE,
    ON_ERROR,
    PART_COLUMN,
    PART_VALUE,
    encode_attrs,
)
from vedur.db import Database, command, exec_query, log_contract_call
from vedur.errors import StateError, UsageError, VedurError
from vedur.handlers.builtin import DEFAULT_HANDLER
from vedur.handlers.registry import Handled, handler_attr
from vedur.log import TRACE
from vedur.names import parse_name, read_name
from vedur.node.info import NodeInfo, NodeType
from vedur.node.position import wake_worker
from vedur.ops.change_table import DEFAULT, check_policy
from vedur.ops.combined import (
    require_all_changes,
    require_nobody_below,
    require_own_rows,
    take_to_branch,
    waits_behind,
)
from vedur.ops.copy_node import CopyNodes, copy_node_option
from vedur.ops.create_table import create_table, plan_foreign_keys
from vedur.ops.fitness import (
    TablePair,
    left_out,
    read_pairs,
    require_alone,
    require_logged,
    require_part_column,
    require_steady,
    unfit_tables,
    unsteady,
    warn_keys,
    why_not,
)
from vedur.ops.handlers import all_words, handler_mark, plan_handler, require_handler_fit
from vedur.ops.masks import begin_masking, mask_of, read_masks, require_masking
from vedur.ops.passed import require_children, require_keyed, require_passed
from vedur.ops.session import Session, choose, is_glob, meant, sync_tables
from vedur.ops.wait_sync import wait_sync
from vedur.sql import query
from vedur.tables.checks import (
    TableAt,
    require_columns,
    require_condition,
    require_local_columns,
)
from vedur.tables.filter import Columns, format_columns, parse_columns
from vedur.tables.mapping import PartColumn, TableMap
from vedur.tables.structure import Structure, read_structure

log = logging.getLogger(__name__)

#: Kinds of relations that can be replicated: tables and partitioned tables.
TABLE_KINDS = ("r", "p")
_NOT_THERE = (
    "the provider does not have it itself: use --find-copy-node, switch to one that has, or --force"
)


@dataclass(frozen=True, kw_only=True)
class AddTable:
    """What the operator asked for."""

    tables: Sequence[str]
    all: bool = False
    dest_table: str | None = None
    copy_condition: str | None = None
    columns: str | None = None
    create: bool = False
    create_full: bool = False
    expect_sync: bool = False
    skip_truncate: bool = False
    no_triggers: bool = False
    trigger_flags: str | None = None
    trigger_args: Sequence[str] = ()
    handler: str | None = None
    handler_args: Sequence[str] = ()
    transform: str | None = None
    max_parallel_copy: int | None = None
    on_error: str | None = None
    merge_all: bool = False
    no_merge: bool = False
    part_column: str | None = None
    skip_non_existing: bool = False
    skip_unusable: bool = False
    wait_sync: bool = False
    force: bool = False
    copy_node: str | None = None
    find_copy_node: bool = False
    #: By which rules the provider passes tables on masked: read from it, and not asked for.
    masks: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise for combinations that cannot be meant."""
        if not self.tables and not self.all:
            raise UsageError("add-table needs TABLE... or --all, use --help for help")
        if self.dest_table and (self.all or len(self.tables) != 1):
            raise UsageError("--dest-table can be given only for single table")
        if self.columns is not None and (self.all or len(self.tables) != 1):
            raise UsageError("--columns can be given only for single table")
        if self.on_error is not None:
            check_policy(self.on_error)
        if self.handler_args and not self.handler:
            raise UsageError("--handler-arg needs --handler")
        if self.transform and self.handler:
            raise UsageError("--transform is a handler by itself: give it without --handler")
        if self.merge_all and self.no_merge:
            raise UsageError("--merge-all and --no-merge cannot be given together")
        if self.merge_all and self.copy_condition:
            raise UsageError(
                "--merge-all gives all parts the same condition, so it would not tell their rows "
                "apart: add each part with the ini of its queue, --no-merge and its own --where"
            )
        self._check_part_column()
        if self.copy_from and self.expect_sync:
            raise UsageError("--expect-sync makes no copy: give it without a node to copy from")
        if self.max_parallel_copy is not None and self.max_parallel_copy < 1:
            raise UsageError(
                f"--max-parallel-copy must be at least 1, got {self.max_parallel_copy}"
            )

    def _check_part_column(self) -> None:
        if self.part_column is None:
            return
        name, given, value = self.part_column.partition("=")
        if not name or (given and not value):
            raise UsageError("--part-column needs the name of a column: NAME or NAME=VALUE")
        if self.merge_all and value:
            raise UsageError(
                "--merge-all gives all parts the same value, so it would not tell their rows "
                "apart: give the column alone, its value is the name of each queue then; or add "
                "each part with the ini of its queue, --no-merge and --part-column=NAME=VALUE"
            )
        if self.create or self.create_full:
            raise UsageError(
                "--part-column is a column that the provider's table does not have: create the "
                "table with it, and without --create"
            )

    def part_of(self, queue: str) -> PartColumn | None:
        """Return the column that tells the rows of the tables, and its value where this queue's
        name is the default; None for none."""
        return PartColumn.read(self.attrs(), queue)

    @property
    def column_list(self) -> Columns | None:
        """The columns asked for, None for all."""
        return None if self.columns is None else parse_columns(self.columns)

    @property
    def copy_from(self) -> str | None:
        """The node to copy from as it is stored; None for the provider."""
        return copy_node_option(self.copy_node, self.find_copy_node)

    @property
    def stored_handler(self) -> str | None:
        """The handler as it is stored, with its arguments; None for none."""
        if self.transform:
            return handler_attr("transform", [f"function={self.transform}"])
        return handler_attr(self.handler, self.handler_args) if self.handler else None

    def mapping(self, table: str, handled: Handled | None = None, queue: str = "") -> TableMap:
        """Return how a table of the set is to live here; the queue's name is the value of a part
        column without one."""
        plain = TableMap(
            table,
            self.place(table),
            condition=self.copy_condition,
            columns=self.column_list,
            handler=self.stored_handler,
            part=self.part_of(queue),
            masked=self.masks.get(table),
        )
        return plain if handled is None else apply_handler(plain, handled)

    def place(self, table: str) -> str:
        """Return the local name of a table of the set."""
        return read_name(self.dest_table) if self.dest_table else table

    def attrs(self) -> dict[str, str | None]:
        """Return the attributes to store with each table."""
        found: dict[str, str | None] = {}
        if self.stored_handler:
            found[HANDLER] = self.stored_handler
        if self.copy_condition:
            found[COPY_CONDITION] = self.copy_condition
        if self.column_list is not None:
            found[COLUMNS] = format_columns(self.column_list)
        if self.copy_from is not None:
            found[COPY_NODE] = self.copy_from
        if self.part_column is not None:
            name, given, value = self.part_column.partition("=")
            found[PART_COLUMN] = name
            if given:
                found[PART_VALUE] = value
        if self.merge_all or self.part_column or (self.no_merge and self.copy_condition):
            found[MERGE] = "1"  # its copy leaves room for other parts
        if self.max_parallel_copy is not None:
            found[MAX_PARALLEL_COPY] = str(self.max_parallel_copy)
        if self.on_error is not None and self.on_error != DEFAULT:
            found[ON_ERROR] = self.on_error
        return found

    def args(self, event_format: str, root: bool) -> list[str]:
        """Return the arguments of `londiste.local_add_table`: trigger arguments, magic words."""
        found = []
        flags = self.trigger_flags
        if root and not flags and event_format == "urlenc":
            flags = "AIUDL"
        if flags:
            found.append(f"tgflags={flags}")
        magic = {
            "no_triggers": self.no_triggers,
            "expect_sync": self.expect_sync,
            "skip_truncate": self.skip_truncate,
            # expect_sync alone would take the table from every queue that has it
            "no_merge": self.no_merge or (self.expect_sync and not root and not self.merge_all),
            "merge_all": self.merge_all,
        }
        return [*self.trigger_args, *found, *(word for word, given in magic.items() if given)]


def add_table(session: Session, options: AddTable) -> None:
    """Begin to replicate tables on the local node; waits for their copies only with --wait-sync."""
    options.check()
    info = session.require_node()
    if info.is_root and options.column_list is not None:
        raise UsageError("--columns is for nodes that copy a table: the root has all columns")
    if info.is_root and options.copy_from:
        raise UsageError("the root has no first copies: a node to copy from is for other nodes")
    if info.is_root and options.copy_condition:
        # stored, it would begin to take rows away when the root becomes a branch
        raise UsageError("a condition is for nodes that copy a table: the root has all rows")
    if options.merge_all and info.node_type is not NodeType.LEAF:
        raise UsageError(
            "--merge-all is for leafs: tables of several queues come together in one only where "
            "this database is a leaf of all of them"
        )
    if options.part_column and info.node_type is not NodeType.LEAF:
        raise UsageError(
            "a part column is for leafs: changes that a root or a branch passes on do not bring it"
        )
    other_handler = options.stored_handler not in (None, DEFAULT_HANDLER)
    some = (options.copy_condition, options.column_list, options.part_column)
    if any(given is not None for given in some) or other_handler:
        require_all_changes(info)
    if waits_behind(info):
        if options.copy_from:
            require_own_rows(info, "a node to copy from")
        options = replace(options, expect_sync=True)  # the combined queue copies it
    log_contract_call(exec_query, session.db, "pgq_node.get_queue_locations", session.queue)
    log_contract_call(command, session.db, "pgq_node.get_node_info", session.queue)
    provider = session.provider(info)
    options = replace(options, masks=read_masks(session, info))
    nodes = CopyNodes(session, info, options.copy_from, force=options.force)
    tables = _choose(session, info, provider, nodes, options)
    handled = {table: plan_handler(session, info, options, table) for table in tables}
    _require_events(session, info, options, handled)
    if not options.expect_sync:
        otherwise = "; if all rows are here and no other part brings the table, use --expect-sync"
        require_nobody_below(session, info, tables, otherwise=otherwise)
    pairs = _read_pairs(session, info, nodes, options, tables)
    for number, table in enumerate(tables):
        try:
            source, there = provider, TableSet()
            if not info.is_root:
                node = nodes.of(options.mapping(table, handled[table]))
                source, there = node.db, node.tables
            at = _Places(session, info, source, there)
            _add_one(at, options, table, handled[table], pairs.get(table))
        except VedurError:
            if number:
                log.warning("%d of %d tables are added, then %s failed: run the command again "
                            "for the others", number, len(tables), table)  # fmt: skip
            raise
    if tables and not info.is_root:
        wake_worker(provider, session.queue)  # not before the last: they share one snapshot then
    if options.wait_sync and not info.is_root:
        wait_sync(session)


def _require_events(
    session: Session, info: NodeInfo, options: AddTable, handled: Mapping[str, Handled | None]
) -> None:
    """Raise where a node would not get events that it needs: this one, or one below a branch."""
    asked = {
        table: asked_for(options.copy_condition, made, options.column_list)
        | (masks_of(options.masks.get(table)) if made is None or made.rows is None else frozenset())
        for table, made in handled.items()
        if made is None or made.scope.applies
    }
    require_passed(session, info, asked)
    for table, made in handled.items():
        require_masking(session, info, made)
        if options.skip_truncate and mask_of(info, made):
            raise UsageError(
                "--skip-truncate leaves rows in the table that were not masked by these rules, and "
                "nodes below would copy them as masked ones: add the table without it"
            )
        require_children(session, info, table, made)


def _read_pairs(
    session: Session, info: NodeInfo, nodes: CopyNodes, options: AddTable, tables: Sequence[str]
) -> dict[str, TablePair]:
    """Read tables on both sides before the first is added; none where they come from several nodes,
    or are yet to be made."""
    several = options.copy_from == NEAREST
    if info.is_root or several or options.create or options.create_full or len(tables) < 2:
        return {}
    node = nodes.of(options.mapping(tables[0]))
    return read_pairs(session.db, node.db, node.tables, options, tables)


def _choose(
    session: Session, info: NodeInfo, provider: Database, nodes: CopyNodes, options: AddTable
) -> list[str]:
    """Read which tables to add. Those that cannot be are logged with the reason, and raise an error
    unless they may be left out."""
    unfit: dict[str, str] = {}
    if info.is_root:
        names = set(all_relations(session.db, TABLE_KINDS))
        if options.all:
            unfit = left_out(session.db)
        if options.dest_table:
            # on the root the other name is that of the existing table
            names |= {read_name(name) for name in options.tables}
    else:
        there = sync_tables(session, session.db, provider)
        names = _offered(there, options)
        if options.all:
            unfit = dict.fromkeys(set(there.names) - names, _NOT_THERE)
    done = set(get_table_list(session.db, session.queue).local.names)
    chosen = choose(
        options.tables,
        sorted(names - done),
        everything=options.all,
        done=done,
        skip_missing=options.skip_non_existing,
        why=lambda name: why_not(session.db, name) if info.is_root else None,
    )
    if not options.all and not any(map(is_glob, options.tables)):
        for table in chosen if not info.is_root else ():
            require_alone(session, options, table)
            mapping = options.mapping(table, plan_handler(session, info, options, table))
            nodes.require(mapping, expect_sync=options.expect_sync or not mapping.copies)
        require_logged(session.db, [options.place(table) for table in chosen])
        return chosen  # named one by one: for everything else the contract has its own words
    unfit = {name: why for name, why in unfit.items() if name not in done}
    unfit |= unfit_tables(session, info.is_root, options, chosen)
    fit = [table for table in chosen if table not in unfit]
    pairs = _read_pairs(session, info, nodes, options, fit)
    for table in fit if not info.is_root else ():
        mapping = options.mapping(table, plan_handler(session, info, options, table))
        if not mapping.copies:
            continue
        reason = None if options.expect_sync else nodes.why_not(mapping)
        if not reason:
            node, pair = nodes.of(mapping), pairs.get(table)
            if pair is None:
                pair = read_pairs(session.db, node.db, node.tables, options, [table]).get(table)
            reason = unsteady(pair, mapping)
        if reason:
            unfit[table] = reason
    return _without(chosen, unfit, options)


def _without(chosen: list[str], unfit: dict[str, str], options: AddTable) -> list[str]:
    for name in sorted(unfit):
        log.warning("%s cannot be added: %s", name, unfit[name])
    fit = [name for name in chosen if name not in unfit]
    if unfit and not options.skip_unusable:
        raise StateError(
            f"{len(unfit)} of {len(unfit) + len(fit)} tables cannot be added (see above), so none "
            "was: mend them, or add the others with --skip-unusable"
        )
    return fit


def _offered(there: TableSet, options: AddTable) -> set[str]:
    """Return the tables that the provider has itself, or that another node is to copy."""
    elsewhere = options.expect_sync or options.force or options.copy_from
    missing = [t.table_name for t in there if not t.local and not elsewhere]
    asked = {meant(name, there.names) for name in options.tables}
    for name in missing:
        if name in asked:
            log.warning(
                "Table %s does not exist on provider, need to switch to different provider, or to "
                "copy it from another node (--find-copy-node)",
                name,
            )
    if asked.intersection(missing):
        raise UsageError("Problems, canceling operation")
    return set(there.names).difference(missing)


@dataclass(frozen=True)
class _Places:
    """This node, and the one that a table is to come from (on the root: its own)."""

    session: Session
    info: NodeInfo
    provider: Database
    there: TableSet  # the tables of that node


def _add_one(
    at: _Places, options: AddTable, table: str, handled: Handled | None, pair: TablePair | None
) -> None:
    """Add one table in a transaction of its own; `pair` is what was read of both sides before."""
    session, info, provider, there = at.session, at.info, at.provider, at.there
    db = session.db
    dest = options.place(table) if options.dest_table else None
    make = not info.is_root and (options.create or options.create_full)
    chosen = options.column_list
    mapping = options.mapping(table, None if info.is_root else handled, session.queue)
    handler = mapping.applies and bool(
        mapping.rows or mapping.partitions or (handled and handled.scope.condition)
    )
    narrow = not info.is_root and bool(options.copy_condition or chosen or handler)
    names = there.local_names
    remote = _remote(provider, names.get(table)) if narrow else None
    if remote is not None:
        require_columns(mapping, remote)
    with db.transaction():
        milliseconds = str(int(session.settings.lock_timeout * 1000))
        log.log(TRACE, "SET LOCAL statement_timeout = %s", milliseconds)
        db.value(query("admin", "set_local_statement_timeout"), [milliseconds])
        if make:
            create_table(
                db, provider, names[table], dest or table, full=options.create_full, columns=chosen
            )
        if not info.is_root:
            # another command may be adding a table with the same destination: one after the other
            db.value(query("admin", "lock_destination"), [options.place(table)])
            require_alone(session, options, table)
        require_part_column(session, provider, there, mapping)
        if not info.is_root and mapping.copies:
            if pair is None:
                pair = read_pairs(db, provider, there, options, [table]).get(table)
            require_steady(pair, mapping)
            warn_keys(db, pair, options, table)
        if remote is not None:
            own = replace(mapping, condition=options.copy_condition)
            _require_fit(own, db, TableAt(provider, remote), force=options.force)
            require_handler_fit(handled, mapping, db, TableAt(provider, remote))
        require_keyed(db, table, options.place(table), handled)
        args = options.args(session.settings.event_format, info.is_root)
        words = all_words(handled, args, dict(chosen or ()), info.is_root)
        masked = mask_of(info, handled) or options.masks.get(table)
        marks = {**handler_mark(handled), **({MASKED: masked} if masked else {})}
        attrs = encode_attrs({**options.attrs(), **marks})
        begin_masking(session, info, table, masked)
        if waits_behind(info):
            take_to_branch(db, info, table, words, attrs, dest)
        local_add_table(db, session.queue, table, words, attrs, dest)
        if not info.is_root:
            place, every = options.place(table), options.merge_all
            forget_loaded_before(db, session.queue, table, place, all_parts=every)
        if make and options.create_full:
            _plan_foreign_keys(at, table)


def _plan_foreign_keys(at: _Places, table: str) -> None:
    """Have the foreign keys of a table made when the tables on both sides of them are here."""
    db, names = at.session.db, at.there.local_names
    here = [t for t in get_table_list(db, at.session.queue).local if t.table_name in names]
    local = {names[t.table_name]: t.dest_table for t in here}
    lists = {names[t.table_name]: t.columns for t in here if t.columns is not None}
    plan_foreign_keys(db, at.provider, names[table], local, lists)


def _remote(provider: Database, table: str | None) -> Structure | None:
    """Read the provider's table; None where another node is to bring its rows."""
    if table is None:
        return None
    found = read_structure(provider, parse_name(table))
    if found is None:
        raise StateError(f'table "{table}" does not exist on the provider: it cannot be copied')
    return found


def _require_fit(table: TableMap, db: Database, there: TableAt, *, force: bool) -> None:
    """Raise unless the table here can hold the columns and both sides understand the condition."""
    local = read_structure(db, table.local_name)
    if local is None:
        return  # the contract has its own words for that
    require_local_columns(table, local)
    if table.condition:
        require_condition(table, TableAt(db, local), there, force=force)
