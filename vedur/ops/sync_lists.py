"""Make the node's record of the set's tables and sequences equal to its provider's.

Below a branch, what the provider does not record is forgotten only if the root does not have it.

The worker does the same through events; a command that runs before it has must not fail.
Bookkeeping, so it speaks at DEBUG only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase

from vedur.catalog.sequences import (
    SequenceInfo,
    get_seq_list,
    global_remove_seq,
    global_update_seq,
)
from vedur.catalog.tables import (
    TableInfo,
    TableSet,
    get_table_list,
    global_add_table,
    global_remove_table,
)
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.node.info import get_node_info
from vedur.ops.session import Session

log = logging.getLogger(__name__)


def wanted(name: str, only: Iterable[str], skip: Iterable[str]) -> bool:
    """Whether the ini lets this node record the name (register_only_…, register_skip_…)."""
    only = tuple(only)
    if only and not any(fnmatchcase(name, pattern) for pattern in only):
        return False
    return not any(fnmatchcase(name, pattern) for pattern in skip)


def sync_tables(session: Session, db: Database, provider: Database) -> TableSet:
    """Record tables that the provider has, forget those that the set has no more; returns the
    provider's."""
    settings, queue = session.settings, session.queue
    there, here = get_table_list(provider, queue), set(get_table_list(db, queue).names)
    gone = here.difference(there.names)
    if gone and (root := _root_above_branch(session, db, provider)):
        gone.difference_update(get_table_list(root, queue).names)
    for name in gone:
        log.debug("Table %s gone but exists on subscriber, removing", name)
        global_remove_table(db, queue, name)
    record_tables(settings, db, [table for table in there if table.table_name not in here])
    return there


def record_tables(settings: LondisteSettings, db: Database, tables: Iterable[TableInfo]) -> None:
    """Record tables of the provider that the node does not know yet."""
    for name in [table.table_name for table in tables]:
        if wanted(name, settings.register_only_tables, settings.register_skip_tables):
            log.debug("Table %s info missing from subscriber, adding", name)
            global_add_table(db, settings.queue_name, name)


def _root_above_branch(session: Session, db: Database, provider: Database) -> Database | None:
    """Find the root where the provider is a branch: that may leave out what the set has
    (register_only_..., register_skip_...), and passes the events on all the same."""
    above, here = get_node_info(provider, session.queue), get_node_info(db, session.queue)
    if above is None or above.is_root or here is None or not here.provider_location:
        return None
    return session.root(here.provider_location)[0]


def sync_sequences(session: Session, db: Database, provider: Database) -> dict[str, SequenceInfo]:
    """The same for sequences, published values included."""
    settings, queue = session.settings, session.queue
    there = {seq.seq_name: seq for seq in get_seq_list(provider, queue)}
    here = {seq.seq_name: seq for seq in get_seq_list(db, queue)}
    gone = here.keys() - there.keys()
    if gone and (root := _root_above_branch(session, db, provider)):
        gone.difference_update(seq.seq_name for seq in get_seq_list(root, queue))
    for name in gone:
        log.debug("Sequence %s gone but exists on subscriber, removing", name)
        global_remove_seq(db, queue, name)
    record_sequences(settings, db, [seq for name, seq in there.items() if name not in here])
    for name in there.keys() & here.keys():
        if there[name].last_value > here[name].last_value:
            log.debug("Sequence %s value is behind on subscriber, updating", name)
            global_update_seq(db, queue, name, there[name].last_value)
    return there


def record_sequences(
    settings: LondisteSettings, db: Database, sequences: Iterable[SequenceInfo]
) -> None:
    """Record sequences of the provider that the node does not know yet."""
    for seq in sequences:
        if wanted(seq.seq_name, settings.register_only_seqs, settings.register_skip_seqs):
            log.debug("Sequence %s info missing from subscriber, adding", seq.seq_name)
            global_update_seq(db, settings.queue_name, seq.seq_name, seq.last_value)
