"""check and fkeys: what the catalogs of both sides say about the replicated tables."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vedur.catalog.tables import TableInfo, get_table_list
from vedur.catalog.watch import read_table_problems
from vedur.change.attrs import PART_COLUMN
from vedur.db import Database
from vedur.db.row_security import advice
from vedur.errors import StateError
from vedur.handlers.registry import handler_problem, needs_table
from vedur.names import parse_name
from vedur.ops.session import Session, choose
from vedur.sql import query
from vedur.tables.indexes import ForeignKey, get_table_pending_fkeys
from vedur.tables.partitions import partition_differences, read_partitions
from vedur.tables.structure import differences, foreign_keys, read_structure

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Finding:
    """A table and the ways in which its two sides differ."""

    table: str
    local_table: str
    differences: tuple[str, ...]
    notes: tuple[str, ...] = ()  # partitions: what differs and is allowed


def check(
    session: Session, tables: Sequence[str] = (), *, structure_only: bool = False
) -> list[Finding]:
    """Compare the structure of local tables with the provider's, column by column; unless
    `structure_only`, also name what keeps rows from being moved as they are, and changes by hand
    that the provider knows of and this node may lack."""
    info = session.require_node()
    if info.is_root:
        raise StateError(
            "check compares with the provider, and the root has none: run it elsewhere"
        )
    provider = session.provider(info)
    there = get_table_list(provider, session.queue).local
    found = [
        _compare(session.db, provider, table, there.find(table.table_name), structure_only)
        for table in chosen_tables(session, tables)
    ]
    if structure_only:
        return found
    changed = _changed_by_hand(provider, session.queue)
    return [
        replace(one, differences=(*one.differences, *changed.get(one.table, ()))) for one in found
    ]


def _changed_by_hand(provider: Database, queue: str) -> dict[str, list[str]]:
    """Read what the provider knows of changes that no event has carried here, by table."""
    changed: dict[str, list[str]] = {}
    for problem in read_table_problems(provider, queue):
        if problem.severity == "fail":
            text = f"on provider: {problem.what}: {problem.action}"
            changed.setdefault(problem.table_name, []).append(text)
    return changed


def _compare(
    db: Database,
    provider: Database,
    table: TableInfo,
    remote: TableInfo | None,
    structure_only: bool,
) -> Finding:
    def finding(*differences: str, notes: Sequence[str] = ()) -> Finding:
        return Finding(table.table_name, table.dest_table, differences, tuple(notes))

    if not needs_table(table):
        return finding()
    if remote is None:
        return finding("table is not replicated by the provider")
    theirs = read_structure(provider, parse_name(remote.dest_table))
    mine = read_structure(db, parse_name(table.dest_table))
    if theirs is None:
        return finding(f'table "{remote.dest_table}" does not exist on the provider')
    if mine is None:
        return finding(f'table "{table.dest_table}" does not exist here')
    found = list(differences(theirs, mine, table.columns, table.attrs.get(PART_COLUMN)))
    if not structure_only:
        found += _interference(provider, remote.dest_table, "on the provider")
        found += _interference(db, table.dest_table, "here")
        if problem := handler_problem(table):
            found.append(problem)
    if not (theirs.partition_key or mine.partition_key):
        return finding(*found)
    missing, notes = partition_differences(
        (theirs.partition_key, read_partitions(provider, theirs.table)),
        (mine.partition_key, read_partitions(db, mine.table)),
    )
    return finding(*found, *missing, notes=notes)


def _interference(db: Database, table: str, where: str) -> list[str]:
    """Read what hides rows from our role or, on the target, acts on changes that are replicated."""
    name = parse_name(table)
    words = {"schemas": [name.schema], "names": [name.name]}
    found = []
    for row in db.query(query("doctor", "table_interference"), words):
        if row.filtered:
            found.append(
                f'row level security {where} holds for role "{db.role}", which must see every '
                f"row: {advice(db.role)}"
            )
        if where != "here":
            continue
        found += [f'rule "{rule}" here acts on replicated changes' for rule in row.rules]
        # only those that can change or swallow the row itself; doctor names the others
        found += [f'trigger "{name}" here can change replicated rows' for name in row.before_row]
    return found


def chosen_tables(session: Session, tables: Sequence[str]) -> list[TableInfo]:
    """Read local tables by name or glob, all of them without names."""
    local = get_table_list(session.db, session.queue).local.by_name
    names = choose(tables, local) if tables else list(local)
    return [local[name] for name in names]


def fkeys(session: Session, tables: Sequence[str] = ()) -> list[ForeignKey]:
    """Read foreign keys from and to the local tables: those that exist, and those that wait."""
    session.require_node()
    names = [table.dest_table for table in chosen_tables(session, tables)]
    found = {(key.from_table, key.fkey_name): key for key in foreign_keys(session.db, names)}
    for name in names:
        for key in get_table_pending_fkeys(session.db, name):
            found.setdefault((key.from_table, key.fkey_name), key)
    return [found[key] for key in sorted(found)]
