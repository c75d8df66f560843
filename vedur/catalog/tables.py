"""The tables of a set: what this node knows and has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vedur.catalog.attrs import (
    COLUMNS,
    COPY_CONDITION,
    decode_attrs,
    encode_attrs,
    keeps_rows,
    same_but_policy,
)
from vedur.change.columns import Columns, parse_columns
from vedur.change.table import Replica
from vedur.db import Database
from vedur.errors import StateError
from vedur.names import parse_name
from vedur.node.command import Answer, command, exec_query
from vedur.sql import query

#: merge_state of a table whose copy is done; `?` is how old versions wrote it.
OK_STATES = ("ok", "?")


@dataclass(frozen=True)
class TableInfo:
    """One row of `londiste.get_table_list`."""

    table_name: str
    local: bool
    merge_state: str | None
    custom_snapshot: str | None
    table_attrs: str | None
    dropped_ddl: str | None
    copy_role: str | None
    copy_pos: int
    dest_table: str

    @property
    def attrs(self) -> dict[str, str | None]:
        """The decoded attributes."""
        return decode_attrs(self.table_attrs)

    @property
    def copy_condition(self) -> str | None:
        """The rows of the table that this node holds; None for all."""
        return self.attrs.get(COPY_CONDITION)

    @property
    def columns(self) -> Columns | None:
        """The columns that this node takes and their names here; None for all."""
        text = self.attrs.get(COLUMNS)
        return parse_columns(text) if text else None

    @property
    def replica(self) -> Replica:
        """What replay must be told about it."""
        return Replica(
            self.table_name,
            self.dest_table,
            self.custom_snapshot,
            self.copy_condition,
            self.columns,
        )

    @property
    def keeps_rows(self) -> bool:
        """`--skip-truncate`: what is in the table before a copy stays."""
        return keeps_rows(self.attrs)

    @property
    def ready(self) -> bool:
        """True when it is here and its copy is done."""
        return self.local and self.merge_state in OK_STATES


def get_table_list(db: Database, queue: str) -> list[TableInfo]:
    """All tables of the set that the node knows, in the order in which they were added."""
    return [
        TableInfo(
            table_name=row.table_name,
            local=row.local,
            merge_state=row.merge_state,
            custom_snapshot=row.custom_snapshot,
            table_attrs=row.table_attrs,
            dropped_ddl=row.dropped_ddl,
            copy_role=row.copy_role,
            copy_pos=row.copy_pos or 0,
            dest_table=row.dest_table or row.table_name,
        )
        for row in exec_query(db, "londiste.get_table_list", queue)
    ]


def sharing(db: Database, queue: str, table: TableInfo) -> list[str]:
    """Names of other local tables, of any queue, whose rows are in the same table here, or in one
    that is a partition of the other."""
    dest = parse_name(table.dest_table)
    words = {
        "queue": queue,
        "table": table.table_name,
        "schema": dest.schema,
        "name": dest.name,
    }
    return [row.table_name for row in db.query(query("catalog", "sharing"), words)]


def local_add_table(
    db: Database,
    queue: str,
    table: str,
    trigger_args: Sequence[str] = (),
    attrs: str | None = None,
    dest_table: str | None = None,
) -> Answer:
    """Begin to replicate a table on this node."""
    return command(
        db, "londiste.local_add_table", queue, table, list(trigger_args), attrs, dest_table
    )


def local_remove_table(db: Database, queue: str, table: str) -> Answer:
    """Stop replicating a table on this node; on the root: in the whole set."""
    return command(db, "londiste.local_remove_table", queue, table)


def global_add_table(db: Database, queue: str, table: str) -> Answer:
    """Record that the set has a table; bookkeeping, so a success is not announced."""
    return command(db, "londiste.global_add_table", queue, table, quiet=True)


def global_remove_table(db: Database, queue: str, table: str) -> Answer:
    """Record that the set no longer has a table."""
    return command(db, "londiste.global_remove_table", queue, table, quiet=True)


def local_set_table_state(
    db: Database, queue: str, table: str, snapshot: str | None, state: str | None
) -> Answer:
    """Move a table to another state of its first copy; see docs/design for the owners."""
    return command(db, "londiste.local_set_table_state", queue, table, snapshot, state)


def hold_table(db: Database, queue: str, seen: TableInfo) -> bool:
    """Keep a table as it was seen until the end of the transaction; False if it has changed.

    Whoever removes it, adds it anew or sets its state meanwhile waits, or was first. Another policy
    for refused events is no change: a copy that goes on would come to the same.
    """
    row = db.one(query("copy", "hold_table"), [queue, seen.table_name])
    return (
        row is not None
        and (row.merge_state, row.custom_snapshot, row.dest_table)
        == (seen.merge_state, seen.custom_snapshot, seen.dest_table)
        and same_but_policy(row.table_attrs, seen.table_attrs)
    )


def hold_ready(db: Database, queue: str, seen: TableInfo) -> TableInfo | None:
    """Keep a table that is in sync until the end of the transaction; as it is now, or None.

    None where a copy has begun, or where other rows, columns or another name here are asked for
    than when it was seen: what was fetched or staged for it then is of no use.
    """
    for now in get_table_list(db, queue):
        if now.table_name == seen.table_name:
            same = now.ready and now.dest_table == seen.dest_table
            same = same and same_but_policy(now.table_attrs, seen.table_attrs)
            return now if same and hold_table(db, queue, now) else None
    return None


def change_table_state(
    db: Database, queue: str, seen: TableInfo, snapshot: str | None, state: str | None
) -> TableInfo | None:
    """Move a table on if it still is as it was seen; as it is then, or None."""
    with db.transaction():
        if not hold_table(db, queue, seen):
            return None
        local_set_table_state(db, queue, seen.table_name, snapshot, state)
    return replace(seen, custom_snapshot=snapshot, merge_state=state)


def local_set_table_attrs(db: Database, queue: str, table: str, attrs: str | None) -> Answer:
    """Replace the attributes of a table."""
    return command(db, "londiste.local_set_table_attrs", queue, table, attrs)


def change_table_attr(db: Database, queue: str, table: str, key: str, value: str | None) -> None:
    """Set one attribute, or take it away with None; the others stay what they are at that moment.

    Two commands that change different attributes at once wait for each other.
    """
    with db.transaction():
        row = db.one(query("copy", "hold_table"), [queue, table])
        if row is None:
            raise StateError(f'table "{table}" is not replicated here any more: nothing is changed')
        attrs = {k: v for k, v in decode_attrs(row.table_attrs).items() if k != key}
        if value is not None:
            attrs[key] = value
        local_set_table_attrs(db, queue, table, encode_attrs(attrs))


def local_set_table_struct(db: Database, queue: str, table: str, ddl: str | None) -> Answer:
    """Keep the DDL that a copy has dropped, or None once it is back."""
    return command(db, "londiste.local_set_table_struct", queue, table, ddl)


def local_show_missing(db: Database, queue: str) -> list[tuple[str, str]]:
    """(kind, name) of tables and sequences that could be replicated here and are not."""
    rows = exec_query(db, "londiste.local_show_missing", queue)
    return [(row.obj_kind, row.obj_name) for row in rows]


def existing(db: Database, names: Sequence[str], kinds: Sequence[str]) -> set[str]:
    """Those of the contract names that exist in the database with one of the relkinds."""
    rows = db.query(query("catalog", "existing_relations"), [list(names), list(kinds)])
    return {row.name for row in rows}


def all_relations(db: Database, kinds: Sequence[str]) -> list[str]:
    """Every user relation of the kinds, as contract names."""
    return [row.name for row in db.query(query("catalog", "user_relations"), [list(kinds)])]
