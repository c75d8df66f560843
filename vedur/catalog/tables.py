"""The tables of a set: what this node knows and has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vedur.change.attrs import (
    COLUMNS,
    COPY_CONDITION,
    COPY_NODE,
    HANDLER,
    HANDLER_MARK,
    MASKED,
    ON_ERROR,
    decode_attrs,
    encode_attrs,
    keeps_rows,
    same_but_policy,
)
from vedur.db import Answer, Database, Row, command, exec_query, report
from vedur.errors import DatabaseError, StateError
from vedur.handlers.registry import MASKED_BY, Handled, facts_queries, resolve
from vedur.names import parse_name
from vedur.sql import query
from vedur.tables.filter import Columns, parse_columns
from vedur.tables.mapping import PartColumn, TableMap

#: merge_state of a table whose copy is done; `?` is how old versions wrote it.
OK_STATES = ("ok", "?")


def is_in_sync(merge_state: str | None) -> bool:
    """Tell by its state whether a table's first copy is done, so that the worker itself applies
    its changes. The one meaning of "in sync"."""
    return merge_state in OK_STATES


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
    # what its handler asked this node for
    facts: tuple[Any, ...] | None = field(default=None, compare=False)
    facts_problem: str = field(default="", compare=False)
    # has a condition, and rows of other tables are in the same table here
    shared: bool = field(default=False, compare=False)
    queue: str = field(default="", compare=False)  # the set that it is of

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
    def mapping(self) -> TableMap:
        """How it lives here; the provider's name for it is not known from here. Raises where its
        handler cannot be served."""
        attrs = self.attrs
        listed = attrs.get(COLUMNS)
        part = PartColumn.read(attrs, self.queue)
        plain = TableMap(
            self.table_name,
            self.dest_table,
            self.custom_snapshot,
            attrs.get(COPY_CONDITION),
            parse_columns(listed) if listed else None,
            handler=attrs.get(HANDLER),
            keeps_rows=keeps_rows(attrs),
            on_error=attrs.get(ON_ERROR),
            shared=self.shared and part is None,
            part=part,
            masked=attrs.get(MASKED) or None,
        )
        handled = resolve(self)
        return plain if handled is None else apply_handler(plain, handled)

    def mapping_from(self, provider: TableInfo | None) -> TableMap:
        """Return how the table lives here and what the provider calls it, which the provider's row
        of it says."""
        source = provider.dest_table if provider is not None else None
        return replace(self.mapping, source=source)

    @property
    def copy_node(self) -> str | None:
        """The node from which it is copied, `?` for the nearest that can be copied from; None for
        the provider."""
        return self.attrs.get(COPY_NODE) or None

    @property
    def mask(self) -> str | None:
        """By which rules its rows here are masked; None where they are not, or nobody above or
        below needs to know."""
        if MASKED not in (self.table_attrs or ""):
            return None  # asked for every batch
        return self.attrs.get(MASKED) or None

    @property
    def masks(self) -> bool:
        """Are its rows masked by the handler that it has on this node, and not on the way here?"""
        name = (self.attrs.get(HANDLER) or "").partition("(")[0]
        return bool(name) and (self.mask or "").startswith(f"{MASKED_BY}{name} ")

    @property
    def keeps_rows(self) -> bool:
        """`--skip-truncate`: what is in the table before a copy stays."""
        return keeps_rows(self.attrs)

    @property
    def ready(self) -> bool:
        """True when it is here and in sync."""
        return self.local and is_in_sync(self.merge_state)


class TableSet(tuple[TableInfo, ...]):
    """The tables of a set as one node has them, in the order in which they were added there."""

    __slots__ = ()

    @property
    def local(self) -> TableSet:
        """Those that are replicated on the node; it only knows of the others."""
        return TableSet(t for t in self if t.local)

    @property
    def ready(self) -> TableSet:
        """Those that are on the node and in sync."""
        return TableSet(t for t in self if t.ready)

    @property
    def unready(self) -> TableSet:
        """Those that are on the node and whose first copy is not done."""
        return TableSet(t for t in self if t.local and not t.ready)

    @property
    def names(self) -> list[str]:
        """Their names in the set."""
        return [t.table_name for t in self]

    @property
    def by_name(self) -> dict[str, TableInfo]:
        """The tables by their names in the set."""
        return {t.table_name: t for t in self}

    @property
    def local_names(self) -> dict[str, str]:
        """What the node calls those that are replicated on it, by their names in the set."""
        return {t.table_name: t.dest_table for t in self if t.local}

    def find(self, name: str) -> TableInfo | None:
        """Return the table with this name in the set, None if there is none."""
        return next((t for t in self if t.table_name == name), None)


def get_table_list(db: Database, queue: str) -> TableSet:
    """Read all tables of the set that the node knows."""
    tables = TableSet(
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
            queue=queue,
        )
        for row in exec_query(db, "londiste.get_table_list", queue)
    )
    queries = facts_queries(tables)
    if queries:
        tables = _with_facts(db, queue, tables, queries)
    return _with_shared(db, queue, tables)


def _with_shared(db: Database, queue: str, tables: TableSet) -> TableSet:
    """Read which tables with a condition have their rows beside those of others. Nobody else is
    asked for: without a condition nothing tells whose a row is."""
    if not any(_may_tell(table) for table in tables):
        return tables
    shared = shared_tables(db, queue)
    return TableSet(
        replace(t, shared=t.table_name in shared and _may_tell(t)) if shared else t for t in tables
    )


def _may_tell(table: TableInfo) -> bool:
    """Can it have a condition, of its own or by its handler? The text is looked at and not decoded:
    this is asked for every batch."""
    text = table.table_attrs or ""
    return table.local and (COPY_CONDITION in text or HANDLER in text)


def shared_tables(db: Database, queue: str) -> dict[str, bool]:
    """Read which tables of a set have their rows beside those of others, in one table here; True
    for those that are merged with tables of other queues."""
    rows = db.query(query("catalog", "shared_tables"), [queue])
    return {row.table_name: row.merges for row in rows}


def _with_facts(db: Database, queue: str, tables: TableSet, queries: Mapping[str, str]) -> TableSet:
    """Read what handlers ask the node for; the root has all rows and is not asked."""
    if db.value(query("catalog", "is_root"), [queue]):
        return tables
    answers = {text: read_facts(db, text) for text in set(queries.values())}
    return TableSet(
        replace(
            table,
            facts=answers[queries[table.table_name]][0],
            facts_problem=answers[queries[table.table_name]][1],
        )
        if table.table_name in queries
        else table
        for table in tables
    )


def read_facts(db: Database, text: str) -> tuple[tuple[Any, ...] | None, str]:
    """Read the answer to a handler's question, and what is wrong with it: empty if nothing is."""
    try:
        with db.transaction():
            rows = db.query(text)
    except DatabaseError as error:
        if error.sqlstate is None:
            raise
        return None, f"its question to this node ({text}) failed: {error.message}"
    if len(rows) != 1:
        return None, f"its question to this node ({text}) has {len(rows)} answers, and not one"
    facts = tuple(rows[0])
    if any(isinstance(value, list | dict) for value in facts):
        return None, f"its question to this node ({text}) must have plain values as its answer"
    return facts, ""


def apply_handler(table: TableMap, handled: Handled) -> TableMap:
    """Return how a table lives here, seen through its handler. Pure."""
    scope, rows = handled.scope, handled.rows
    conditions = [text for text in (table.condition, scope.condition) if text]
    if scope.filters:
        conditions.append("true")  # as with a condition, a change can bring a row that is not here
    both = "\n) and (".join(conditions)
    return replace(
        table,
        condition=f"({both}\n)" if len(conditions) > 1 else both or None,
        operations=scope.operations,
        rows=rows,
        calls=handled.calls,
        applies=scope.applies,
        partitions=scope.partitions,
        masked=None if handled.publishes else table.masked,
        uncomparable=scope.uncomparable,
        unrepairable=scope.unrepairable,
    )


def missing_part(there: TableInfo, wanted: TableMap) -> str:
    """Say which part of a table a node has, if what is wanted is more than that; empty if it has
    all that is wanted. Pure.

    The same condition on both nodes is enough, and a list that has all columns that are wanted, as
    long as no column has another name on either of them.
    """
    by_handler = f"what handler {there.attrs.get(HANDLER)} makes of it"
    if other := other_mask(there, wanted):
        return other
    try:
        has = without_handler(there).mapping if there.masks else there.mapping
    except StateError:
        return by_handler  # one that is known there and not here
    if has.rows is not None or has.partitions is not None or has.calls is not None:
        return by_handler
    if not has.applies or set(wanted.operations) - set(has.operations):
        return by_handler
    if has.part is not None:
        return "the rows of other sets, too"
    condition, listed = has.condition, has.columns
    same_names = _keeps_names(listed) and _keeps_names(wanted.columns)
    if condition and not (same_names and condition == wanted.condition):
        return f"rows where {condition}"
    if listed is not None:
        asked = {name for name, _ in wanted.columns or ()}
        if not (same_names and asked and asked <= {name for name, _ in listed}):
            return "some of its columns"
    return ""


def other_mask(there: TableInfo, wanted: TableMap) -> str:
    """Say how rows of a node are masked, if what is wanted is masked in another way; empty if both
    are the same. Pure."""
    if there.mask == wanted.masked:
        return ""
    if there.mask is None:
        return f"rows as the root has them, and here they are {wanted.masked}"
    return f"rows {there.mask}"


def without_handler(table: TableInfo) -> TableInfo:
    """Return a table as it is stored, but for its handler. Pure."""
    gone = (HANDLER, HANDLER_MARK)
    attrs = {key: value for key, value in table.attrs.items() if key not in gone}
    return replace(table, table_attrs=encode_attrs(attrs))


def _keeps_names(columns: Columns | None) -> bool:
    return all(name == here for name, here in columns or ())


def sharing(db: Database, queue: str, table: TableInfo) -> list[str]:
    """Read the names of other local tables, of any queue, whose rows are in the same table here,
    or in one that is a partition of the other."""
    dest = parse_name(table.dest_table).quoted
    rows = db.query(query("catalog", "sharing"), {"dest": dest})
    own = (queue, table.table_name)
    return [row.table_name for row in rows if (row.queue_name, row.table_name) != own]


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
    """Lock a table's row until the end of the transaction; False if it has changed since `seen`.

    A concurrent remove, re-add or change of state waits for us, or has already happened. Another
    policy for refused events is no change: a copy that goes on would come to the same.
    """
    row = db.one(query("copy", "hold_table"), [queue, seen.table_name])
    return row is not None and is_as_seen(row, seen)


def hold_tables(db: Database, queue: str, seen: Sequence[TableInfo]) -> set[str]:
    """Lock the rows of several tables as `hold_table` does, but wait for nobody; returns the names
    of those that are locked now and have not changed since `seen`."""
    known = {table.table_name: table for table in seen}
    rows = db.query(query("copies", "hold_tables"), [queue, list(known)])
    return {row.table_name for row in rows if is_as_seen(row, known[row.table_name])}


def is_as_seen(row: Row | TableInfo, seen: TableInfo) -> bool:
    """Is it still the registration of a table, and the step of its copy, that was seen? Pure."""
    return (row.merge_state, row.custom_snapshot, row.dest_table) == (
        seen.merge_state,
        seen.custom_snapshot,
        seen.dest_table,
    ) and same_but_policy(row.table_attrs, seen.table_attrs)


def hold_ready(db: Database, queue: str, seen: TableInfo) -> TableInfo | None:
    """Lock the row of a table that is in sync until the end of the transaction; returns it as it is
    now, or None.

    None where a copy has begun, or where other rows, columns or another name here are asked for
    than when it was seen: what was fetched or staged for it then is of no use.
    """
    now = get_table_list(db, queue).ready.find(seen.table_name)
    if now is None or now.dest_table != seen.dest_table:
        return None
    same = same_but_policy(now.table_attrs, seen.table_attrs)
    return now if same and hold_table(db, queue, now) else None


def hold_at_tick(db: Database, queue: str, seen: TableInfo, command: str) -> None:
    """Lock a table so that rows of the worker's tick may be written until the transaction ends;
    raises if they may not be written.

    Where another command has begun a new copy, they would be written into it. After such a copy,
    until the worker has passed its snapshot, the table is ahead of the tick, and the worker leaves
    out the events that would bring older rows up to date.
    """
    now = hold_ready(db, queue, seen)
    if now is None:
        raise StateError(
            f'table "{seen.table_name}" was changed by another command meanwhile: '
            f"nothing is changed, run {command} again"
        )
    if now.custom_snapshot is not None:
        raise StateError(
            f'table "{seen.table_name}" was copied just now and is ahead of the worker: '
            f"nothing is changed, run {command} again in a moment"
        )


def change_table_state(
    db: Database, queue: str, seen: TableInfo, snapshot: str | None, state: str | None
) -> TableInfo | None:
    """Change a table's state if nobody has changed the table since `seen` was read.

    Returns the table as it is then, or None.
    """
    with db.transaction():
        if not hold_table(db, queue, seen):
            return None
        local_set_table_state(db, queue, seen.table_name, snapshot, state)
    return replace(seen, custom_snapshot=snapshot, merge_state=state)


def change_table_states(
    db: Database, queue: str, held: Sequence[TableInfo], state: str, *, keep_snapshot: bool
) -> list[TableInfo]:
    """Change the state of tables that the caller holds (`hold_tables`), in its transaction; returns
    them as they are then. Without `keep_snapshot` their snapshots go."""
    moved = [
        replace(t, merge_state=state, custom_snapshot=t.custom_snapshot if keep_snapshot else None)
        for t in held
    ]
    words = {
        "queue": queue,
        "names": [table.table_name for table in moved],
        "snapshots": [table.custom_snapshot for table in moved],
        "state": state,
    }
    for row in db.query(query("copies", "set_states"), words):
        report(Answer(row.ret_code, row.ret_note, row))
    return moved


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
    """Store the DDL that a copy has dropped, or None once it is back."""
    return command(db, "londiste.local_set_table_struct", queue, table, ddl)


def local_show_missing(db: Database, queue: str) -> list[tuple[str, str]]:
    """Read (kind, name) of tables and sequences that could be replicated here and are not."""
    rows = exec_query(db, "londiste.local_show_missing", queue)
    return [(row.obj_kind, row.obj_name) for row in rows]


def existing(db: Database, names: Sequence[str], kinds: Sequence[str]) -> set[str]:
    """Read which of the contract names exist in the database with one of the relkinds."""
    rows = db.query(query("catalog", "existing_relations"), [list(names), list(kinds)])
    return {row.name for row in rows}


def all_relations(db: Database, kinds: Sequence[str]) -> list[str]:
    """Read the contract names of all user relations of the kinds."""
    return [row.name for row in db.query(query("catalog", "user_relations"), [list(kinds)])]
