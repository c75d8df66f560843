"""Target tables as replay sees them, and the staging tables that fit them.

Staging tables are UNLOGGED and live in schema `vedur_work`. A queue has two slots of them: while
the driver merges one, tasks of the next batch fill the other, and a merged slot can be truncated
without waiting for anyone. Columns are named by position (`c0`, `c1`, ...).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from vedur.change.snapshot import Snapshot
from vedur.db import Database
from vedur.errors import DatabaseError, StateError
from vedur.names import parse_name, quote_ident, quote_literal
from vedur.sql import query
from vedur.tables.filter import columns_of, written
from vedur.tables.mapping import TableMap, TableSpec, TargetColumn
from vedur.tables.match import unbounded
from vedur.tables.row_function import TableFacts
from vedur.tables.stages import stage_prefix
from vedur.tables.target import PART, require_partitions

log = logging.getLogger(__name__)

#: What a staged change has beside the columns of its table, where the time of an event decides.
PART_COLUMN = TargetColumn(PART, "timestamp without time zone", canonical=True)

#: Comment of the tables of events; those of others begin alike.
_LOG_DEFINITION = "vedur staging log of whole events"


def stage_name(spec: TableSpec, slot: int) -> str:
    """Return the staging table of a table in a slot, quoted."""
    return f"vedur_work.{quote_ident(f'{spec.stage}_{slot}')}"


def log_name(queue: str, slot: int) -> str:
    """Return the table of events staged as they are, quoted: the "log" of a slot, see
    `collapse.py`."""
    return f"vedur_work.{quote_ident(f'{stage_prefix(queue)}log_{slot}')}"


def load_specs(
    db: Database,
    queue: str,
    wanted: Iterable[TableMap],
    lenient: bool = False,
    strict: bool = True,
) -> dict[str, TableSpec]:
    """Look at the target's tables; one that is not there is an error naming it, or left out.

    `strict`: events with columns that the target lacks are errors.
    """
    tables = {w.name: w for w in wanted}
    if not tables:
        return {}
    quoted = {w.name: parse_name(w.dest).quoted for w in tables.values()}
    params = {"names": list(quoted), "relations": list(quoted.values())}
    # Read first: if a table changes now, it does not fit this, and the batch is staged anew.
    shapes = {row.name: row.shape for row in db.query(query("replay", "shapes"), params)}
    columns: dict[str, list[TargetColumn]] = {name: [] for name in tables}
    for row in db.query(query("replay", "table_columns"), params):
        columns[row.name].append(
            TargetColumn(
                row.column_name,
                row.type_name,
                row.type_kind,
                row.generated,
                row.identity_always,
                row.canonical,
            )
        )
    specs = {}
    for row in db.query(query("replay", "table_facts"), params):
        if row.oid is None and lenient:
            continue
        if row.oid is None:
            raise StateError(
                f'table "{tables[row.name].dest}" does not exist on the target: create it, '
                f'or run "remove-table {row.name}"'
            )
        snapshot, chosen = tables[row.name].snapshot, tables[row.name].columns
        if (rows := tables[row.name].rows) is not None:
            rows.check(TableFacts(row.unique_keys, names=dict(chosen or ())))
        target = tables[row.name].partitions
        if target is not None:
            types = {c.name: c.type for c in columns[row.name]}
            keyed = bool(row.unique_keys)
            require_partitions(tables[row.name].dest, target, types, row.partitioned, keyed)
        if target is not None and target.by_event:
            columns[row.name].append(PART_COLUMN)
            chosen = None if chosen is None else (*chosen, (PART, PART))
        part = tables[row.name].part
        kind = _take_part_column(tables[row.name], columns[row.name])
        own = frozenset((part.name,) if part is not None else ())
        specs[row.name] = TableSpec(
            name=row.name,
            dest=quoted[row.name],
            stage=f"{stage_prefix(queue)}{row.oid}",
            columns=tuple(columns[row.name]),
            unique_keys=tuple(frozenset(names) - own for names in row.unique_keys),
            # a tree's keys are those of its tables one by one
            enforced_keys=()
            if target is not None and target.field is not None and not row.partitioned
            else tuple(frozenset(names) - own for names in row.enforced_keys),
            partitioned=row.partitioned,
            snapshot=Snapshot.parse(snapshot) if snapshot else None,
            condition=written(tables[row.name].condition),
            looks_at=columns_of(tables[row.name].condition),
            chosen=dict(chosen) if chosen is not None else None,
            strict=strict,
            shape=shapes[row.name],
            operations=tables[row.name].operations,
            rows=tables[row.name].rows,
            calls=tables[row.name].calls,
            partitions=target,
            home=tables[row.name].dest,
            shared=tables[row.name].shared,
            part=part,
            part_type=kind,
        )
    return specs


def _take_part_column(table: TableMap, columns: list[TargetColumn]) -> str:
    """Take the column that tells the part out of those that events may set; returns its type."""
    if table.part is None:
        return ""
    found = next((c for c in columns if c.name == table.part.name), None)
    if found is None:
        raise StateError(
            f'table "{table.dest}" has no column "{table.part.name}", which tells the rows of '
            f'"{table.name}" from those of others (--part-column): add it, and fill it'
        )
    columns.remove(found)
    return unbounded(found.type)


def _definition(spec: TableSpec) -> str:
    types = ",".join(c.type for c in spec.stage_columns)
    return f"vedur staging {types}"


def ensure_stages(db: Database, queue: str, specs: Iterable[TableSpec], slot: int) -> None:
    """Make the staging tables of a slot that are missing or no longer fit."""
    events = log_name(queue, slot)
    stages = {stage_name(spec, slot): spec for spec in specs}
    rows = db.query(query("replay", "stage_definitions"), [[events, *stages]])
    known = {row.name: row.definition for row in rows}
    if known.get(events) != _LOG_DEFINITION:
        text = query("replay", "log_create")
        db.execute(text.format(log=events, definition=_LOG_DEFINITION))
    for stage, spec in stages.items():
        definition = _definition(spec)
        if known.get(stage) == definition:
            continue
        columns = "".join(f", c{i} {c.type}" for i, c in enumerate(spec.stage_columns))
        literal = quote_literal(definition)
        db.execute(
            query("replay", "stage_create").format(stage=stage, columns=columns, definition=literal)
        )


def drop_stages(db: Database, queue: str) -> None:
    """Drop what an earlier run left behind; waits for those who use it.

    Not in their way: another worker of the node may have read the log in its transaction and wait
    for a task that writes there. A DROP that waits lets nobody pass, so the task would wait for it,
    and it for the transaction. It gives up its place in the line again and again.
    """
    for (name,) in db.query(query("replay", "stage_tables"), [stage_prefix(queue)]):
        text = query("replay", "stage_drop").format(stage=name)
        while not _execute_soon(db, text):
            pass  # it has waited


def clear_stages(db: Database, stages: Iterable[str]) -> bool:
    """Empty staging tables; False where a dying attempt still holds one."""
    names = sorted(stages)
    if not names:
        return True
    return _execute_soon(db, query("replay", "stage_truncate").format(stages=", ".join(names)))


def _execute_soon(db: Database, text: str) -> bool:
    """Execute a statement that locks staging tables; False where it had to wait for too long."""
    try:
        with db.transaction():
            db.execute("set local lock_timeout = '200ms'")
            db.execute(text)
    except DatabaseError as error:
        if error.sqlstate != "55P03":
            raise
        log.debug("staging tables are busy: %s", error)
        return False
    return True
