"""Checks of the replicated tables: presence, rights, keys, indexes, triggers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from vedur.catalog.tables import TableInfo, TableSet, get_table_list
from vedur.db import Database
from vedur.db.row_security import advice
from vedur.errors import DatabaseError
from vedur.handlers.registry import REMEDY, handler_problem, needs_table, stored_handler
from vedur.names import parse_name
from vedur.node.info import NodeInfo
from vedur.ops.check import check
from vedur.ops.doctor.result import Finding, fail, names, ok, warn
from vedur.ops.session import Session
from vedur.sql import query


def check_tables(session: Session, info: NodeInfo) -> Iterator[Finding]:
    """Yield findings about the local tables, and the provider's side of those that wait for a
    copy."""
    local = TableSet(filter(needs_table, get_table_list(session.db, session.queue).local))
    if not local:
        yield ok("tables", "none yet")
        return
    health = _rows(session.db, "table_health", [t.dest_table for t in local])
    gone = [row.name for row in health if not row.present]
    if gone:
        yield fail("tables", f"not in the database: {names(gone)}", "create them, or remove-table")
    else:
        yield ok("tables", f"{len(local)}, all present")
    if not info.is_root:
        yield from _handlers(local)
    present = [row for row in health if row.present]
    yield from _keys(present, {t.dest_table for t in local if t.dropped_ddl})
    if info.is_root:
        yield from _capture(session, local)
        yield from _policies(session.db, "", [t.dest_table for t in local])
        return
    yield from _rights(present, [t.dest_table for t in local.unready])
    yield from _interference(session.db, [t.dest_table for t in local])
    try:
        provider = session.provider(info)
    except DatabaseError:
        return  # said before
    there = get_table_list(provider, session.queue).local.by_name
    pairs = [(t, there[t.table_name]) for t in local if t.table_name in there]
    yield from _copyable(provider, [theirs for mine, theirs in pairs if not mine.ready])
    yield from _policies(provider, " on the provider", [theirs.dest_table for _, theirs in pairs])
    here = {row.name for row in present}
    copied = [pair for pair in pairs if pair[0].ready and pair[0].dest_table in here]
    yield from _indexes(session.db, provider, copied)
    # what has no key, or is not there, was said before
    yield from _structures(session, {row.name for row in present if row.has_key})


def _handlers(local: Sequence[TableInfo]) -> Iterator[Finding]:
    """Yield findings about tables whose handler cannot be served: Londiste's own, or one that lacks
    what it needs."""
    strange = [t for t in local if handler_problem(t) is not None]
    if strange:
        told = names([f"{t.table_name} ({stored_handler(t)})" for t in strange])
        why = handler_problem(strange[0]) or ""
        yield fail("handlers", f"cannot be served, nothing is moved: {told}; {why}", REMEDY)


def _rows(db: Database, name: str, tables: Sequence[str], **more: str) -> list[Any]:
    split = [parse_name(table) for table in tables]
    schemas, short = [t.schema for t in split], [t.name for t in split]
    return db.query(query("doctor", name), {"schemas": schemas, "names": short, **more})


def _keys(health: Sequence[Any], in_copy: Set[str]) -> Iterator[Finding]:
    """Yield findings about tables without a key; a first copy drops the key and makes it again by
    itself."""
    keyless = [row.name for row in health if not row.has_key]
    bare = [name for name in keyless if name not in in_copy]
    later = [name for name in keyless if name in in_copy]
    broken = [row.name for row in health if row.has_broken_index]
    if bare:
        yield fail(
            "keys",
            f"no primary key, nor a unique index over NOT NULL columns: {names(bare)}",
            "alter table ... add primary key: without it every change reads the whole table",
        )
    if broken:
        yield warn("keys", f"an invalid index: {names(broken)}", "reindex it, or drop it")
    if not (bare or broken):
        waiting = f"; at the end of its first copy: {names(later)}" if later else ""
        yield ok("keys", f"every table has a key{waiting}")


def _rights(health: Sequence[Any], to_copy: Sequence[str]) -> Iterator[Finding]:
    closed = [row.name for row in health if not row.may_write]
    foreign = [row.name for row in health if row.name in to_copy and not row.may_alter]
    if closed:
        yield fail(
            "rights",
            f"may not write: {names(closed)}",
            "grant insert, update, delete, truncate on them to the role of the ini",
        )
    if foreign:
        yield fail(
            "rights",
            f"waiting for a copy, and not owned: {names(foreign)}",
            "make the role of the ini their owner, or a member of it: a copy rebuilds indexes",
        )
    if not (closed or foreign):
        yield ok("rights", "may write every table")


def _capture(session: Session, local: Sequence[TableInfo]) -> Iterator[Finding]:
    """Yield findings about capture on the root: is every change caught?"""
    rows = _rows(session.db, "table_triggers", [t.dest_table for t in local], queue=session.queue)
    disabled = [f"{row.name} ({', '.join(row.disabled)})" for row in rows if row.disabled]
    deaf = [
        row.name
        for row in rows
        if not row.disabled
        and not (row.catches_insert and row.catches_update and row.catches_delete)
    ]
    no_truncate = [row.name for row in rows if not row.disabled and not row.catches_truncate]
    if disabled:
        yield fail(
            "triggers",
            f"disabled, changes are lost: {names(disabled)}",
            "alter table ... enable trigger all, then resync the table on the other nodes",
        )
    if deaf:
        yield fail(
            "triggers",
            f"not every change is caught: {names(deaf)}",
            "remove-table and add-table (unless flags or --no-triggers were meant), then resync",
        )
    if no_truncate:
        yield warn(
            "triggers",
            f"TRUNCATE is not caught: {names(no_truncate)}",
            "remove-table and add-table, or never truncate them",
        )
    unseen = [row.whose for row in session.db.query(query("doctor", "without_triggers"))]
    if unseen:
        yield warn(
            "triggers",
            f"sessions begin with session_replication_role = replica: {names(unseen)}; what they "
            "write is not caught",
            "unless that is meant: alter role or alter database ... reset "
            "session_replication_role, then compare",
        )
    if not (disabled or deaf or no_truncate or unseen):
        yield ok("triggers", "every change is caught")


def _copyable(provider: Database, waiting: Sequence[TableInfo]) -> Iterator[Finding]:
    """Yield findings about tables that wait for their first copy: may they be read on the
    provider?"""
    health = _rows(provider, "table_health", [t.dest_table for t in waiting])
    closed = [row.name for row in health if not row.may_select]
    if closed:
        yield fail(
            "rights",
            f"may not read on the provider: {names(closed)}",
            "grant select on them to the role that reads there",
        )


def _policies(db: Database, where: str, tables: Sequence[str]) -> Iterator[Finding]:
    """Yield findings about row level security that hides rows from the role that reads. On the root
    that is the role of its ini; other nodes look with the role that they read with."""
    hidden = [row.name for row in _rows(db, "table_interference", tables) if row.filtered]
    if hidden:
        make = fail if where else warn
        yield make(
            "policies",
            f'row level security{where} holds for role "{db.role}": {names(hidden)}',
            f"copies, compare and repair are refused there; {advice(db.role)}",
        )
    else:
        yield ok("policies", f"no row level security{where} holds for this role")


def _interference(db: Database, tables: Sequence[str]) -> Iterator[Finding]:
    """Yield findings about what of the target's own would hide, change or swallow replicated
    changes."""
    rows = _rows(db, "table_interference", tables)
    hidden = [row.name for row in rows if row.filtered]
    ruled = [f"{row.name} ({', '.join(row.rules)})" for row in rows if row.rules]
    fired = [f"{row.name} ({', '.join(row.triggers)})" for row in rows if row.triggers]
    if hidden:
        yield fail(
            "policies",
            f'row level security holds for role "{db.role}": {names(hidden)}',
            f"changes of them are refused; {advice(db.role)}",
        )
    if ruled:
        yield fail(
            "policies",
            f"rules that act on replicated changes: {names(ruled)}",
            "alter table ... disable rule, or enable it plainly: a rule can swallow changes",
        )
    if fired:
        yield warn(
            "policies",
            f"triggers that fire for replicated changes: {names(fired)}",
            "see that they neither change nor swallow rows, else enable them without ALWAYS or "
            "REPLICA; they run with the rights of the worker",
        )
    if not (hidden or ruled or fired):
        yield ok("policies", "no policy, rule or trigger touches replicated changes")


def _indexes(
    db: Database, provider: Database, pairs: Sequence[tuple[TableInfo, TableInfo]]
) -> Iterator[Finding]:
    """Yield findings about indexes of the provider that the node lacks, on columns that it
    takes."""
    if not pairs:
        return
    here = _index_keys(db, [mine for mine, _ in pairs])
    there = _index_keys(provider, [theirs for _, theirs in pairs], primary=False)
    lacking = []
    for mine, theirs in pairs:
        own = here.get(mine.dest_table, set())
        taken = None if mine.columns is None else dict(mine.columns)
        for keys in sorted(there.get(theirs.dest_table, set())):
            named = keys if taken is None else tuple(taken[key] for key in keys if key in taken)
            # shorter: of columns that the node does not take, or an expression of some
            if len(named) == len(keys) and named not in own:
                lacking.append(f"{mine.dest_table} ({', '.join(named)})")
    if lacking:
        yield warn(
            "indexes",
            f"the provider has more: {names(lacking)}",
            "create index ... if queries here want them; replay itself needs the primary key only",
        )
    else:
        yield ok("indexes", "every one of the provider")


def _structures(session: Session, tables: Set[str]) -> Iterator[Finding]:
    """Yield findings about columns, keys and partitions: do they still fit those of the provider?
    Policies, rules, triggers and handlers have lines of their own, with a remedy that fits them."""
    found = [
        f"{item.local_table}: {difference}"
        for item in check(session, structure_only=True)
        if item.local_table in tables
        for difference in item.differences
    ]
    if found:
        yield warn(
            "structure",
            names(found),
            '"check" shows all; make both sides alike, then "repair TABLE --apply"',
        )
    else:
        yield ok("structure", "columns, keys and partitions fit those of the provider")


def _index_keys(
    db: Database, tables: Sequence[TableInfo], *, primary: bool = True
) -> dict[str, set[tuple[str, ...]]]:
    """Read the keys of the valid indexes of each table; primary keys are a check of their own."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for row in _rows(db, "table_indexes", [t.dest_table for t in tables]):
        if primary or not row.is_primary:
            found.setdefault(row.name, set()).add(tuple(row.keys))
    return found
