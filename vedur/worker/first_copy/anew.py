"""Setting first copies back to their beginning: what they have read is of no use any more.

All of it belongs in the transaction of what makes it so: a script (`scripts.py`), or a move of the
node away from a provider that is gone (`vedur/ops/change_provider.py`). Copies that are just taking
a step are waited for, and held up until that transaction ends.
"""

from __future__ import annotations

from collections.abc import Collection

from vedur.catalog.tables import (
    TableInfo,
    change_table_attr,
    get_table_list,
    is_in_sync,
    local_set_table_state,
)
from vedur.change.attrs import COPY_NODE
from vedur.db import Database
from vedur.errors import StateError
from vedur.node.position import set_consumer_completed, unregister_consumer
from vedur.sql import query
from vedur.worker.first_copy.places import read_consumer_node
from vedur.worker.first_copy.states import State

#: Where the consumer of a copy has no place any more: no tick has this number.
NOWHERE = 0


def stands_with_worker(table: TableInfo) -> bool:
    """Is the table where the worker is? One that is in sync with a snapshot, as Londiste leaves it,
    may be ahead."""
    return is_in_sync(table.merge_state) and table.custom_snapshot is None


def begin_anew(db: Database, queue: str, seen: TableInfo) -> bool:
    """Lock the row of a table and take the place of its copy away, whatever step that is at; tells
    whether a copy had begun. Raises for one that cannot be done a second time.

    A copy that has not begun to load is known by its consumer alone.
    """
    name = seen.table_name
    row = db.query(query("copy", "hold_table"), [queue, name])
    if not row or (is_in_sync(row[0].merge_state) and row[0].custom_snapshot is None):
        return False
    state, snapshot = row[0].merge_state, row[0].custom_snapshot
    if seen.keeps_rows and _has_loaded(db, queue, name, state):
        raise StateError(
            f'the first copy of table "{name}" is not done and was to leave the rows that it found '
            "(--skip-truncate): it cannot begin anew, as nobody can tell these rows from its own. "
            "Take the table out (remove-table), delete what was copied, and add the table again "
            "afterwards"
        )
    consumers = _consumers(db, queue, name)
    if state is not None or snapshot is not None:
        local_set_table_state(db, queue, name, None, None)
    for consumer in consumers:
        set_consumer_completed(db, queue, consumer, NOWHERE)
    return state is not None or bool(consumers)


def begin_all_anew(db: Database, queue: str, gone: Collection[str]) -> list[str]:
    """Set back the copies of all tables that are not where the worker is, but those that stand on
    another node than those of `gone`, where they go on; returns the names of the tables. One that
    was to be copied from a node of `gone` is copied from the provider."""
    begun: list[str] = []
    own = bool(db.value(query("node", "has_vedur")))  # a copy of Londiste's may end with a snapshot
    for table in sorted(get_table_list(db, queue).local, key=lambda t: t.table_name):
        if stands_with_worker(table):
            continue
        name = table.table_name
        places = {c: read_consumer_node(db, queue, c) for c in _consumers(db, queue, name)}
        nodes = {place.node for place in places.values() if place is not None}
        if own and not table.ready and nodes and not nodes & set(gone):
            continue
        if begin_anew(db, queue, table):
            begun.append(name)
        for consumer, place in places.items():
            if place is not None and place.node in gone:
                unregister_consumer(db, queue, consumer)
        if table.copy_node in gone:
            change_table_attr(db, queue, name, COPY_NODE, None)
    return begun


def _consumers(db: Database, queue: str, table: str) -> list[str]:
    rows = db.query(query("copy", "consumers"), {"queue": queue, "table": table})
    return [row.consumer_name for row in rows]


def _has_loaded(db: Database, queue: str, name: str, state: str | None) -> bool:
    """Has a copy whose load is one transaction brought its rows?"""
    if state not in (None, State.IN_COPY.value):
        return True
    if not db.value(query("node", "has_vedur")):  # a copy of Londiste's says nothing of that
        return state is not None
    return db.value(query("copy", "complete_snapshot"), [queue, name]) is not None
