"""Make the node's record of the set's tables and sequences equal to its provider's.

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
    get_table_list,
    global_add_table,
    global_remove_table,
)
from vedur.config import LondisteSettings
from vedur.db import Database

log = logging.getLogger(__name__)


def wanted(name: str, only: Iterable[str], skip: Iterable[str]) -> bool:
    """Whether the ini lets this node record the name (register_only_…, register_skip_…)."""
    only = tuple(only)
    if only and not any(fnmatchcase(name, pattern) for pattern in only):
        return False
    return not any(fnmatchcase(name, pattern) for pattern in skip)


def sync_tables(
    settings: LondisteSettings, db: Database, provider: Database
) -> dict[str, TableInfo]:
    """Record tables that the provider has, forget those it has no more; returns the provider's."""
    queue = settings.queue_name
    there = {table.table_name: table for table in get_table_list(provider, queue)}
    here = {table.table_name: table for table in get_table_list(db, queue)}
    for name in here.keys() - there.keys():
        log.debug("Table %s gone but exists on subscriber, removing", name)
        global_remove_table(db, queue, name)
    record_tables(settings, db, [table for name, table in there.items() if name not in here])
    return there


def record_tables(settings: LondisteSettings, db: Database, tables: Iterable[TableInfo]) -> None:
    """Record tables of the provider that the node does not know yet."""
    for name in [table.table_name for table in tables]:
        if wanted(name, settings.register_only_tables, settings.register_skip_tables):
            log.debug("Table %s info missing from subscriber, adding", name)
            global_add_table(db, settings.queue_name, name)


def sync_sequences(
    settings: LondisteSettings, db: Database, provider: Database
) -> dict[str, SequenceInfo]:
    """The same for sequences, published values included."""
    queue = settings.queue_name
    there = {seq.seq_name: seq for seq in get_seq_list(provider, queue)}
    here = {seq.seq_name: seq for seq in get_seq_list(db, queue)}
    for name in here.keys() - there.keys():
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
