"""add-seq and remove-seq."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vedur.catalog.sequences import get_seq_list, local_add_seq, local_remove_seq
from vedur.catalog.tables import all_relations, existing
from vedur.errors import StateError, UsageError
from vedur.names import parse_name, quote_ident
from vedur.ops.session import Session, choose, sync_sequences
from vedur.sql import query
from vedur.tables import ddl

log = logging.getLogger(__name__)


def add_seq(
    session: Session,
    sequences: Sequence[str],
    *,
    everything: bool = False,
    create: bool = False,
    skip_non_existing: bool = False,
) -> None:
    """Publish sequences (on the root) or follow them."""
    if not sequences and not everything:
        raise UsageError("add-seq needs SEQUENCE... or --all, use --help for help")
    info = session.require_node()
    db = session.db
    if info.is_root:
        available = all_relations(db, ("S",))
    else:
        available = sorted(sync_sequences(session, db, session.provider(info)))
    done = {seq.seq_name for seq in get_seq_list(db, session.queue) if seq.local}
    names = choose(
        sequences,
        [name for name in available if name not in done],
        everything=everything,
        done=done,
        skip_missing=skip_non_existing,
    )
    for name in names:
        with db.transaction():
            if not info.is_root:
                _require_here(session, name, create)
            local_add_seq(db, session.queue, name)


def _require_here(session: Session, name: str, create: bool) -> None:
    db = session.db
    if existing(db, [name], ("S",)):
        return
    if not create:
        raise StateError(f"Sequence '{name}' missing on local node: create it or use --create")
    statement = ddl.create_sequence(session.provider(session.require_node()), name)
    if statement is None:
        raise StateError(f'sequence "{name}" does not exist on the provider')
    schema = parse_name(name).schema
    if not db.value(query("admin", "has_schema"), [schema]):
        db.execute(f"create schema {quote_ident(schema)}")
    db.execute(statement)


def remove_seq(session: Session, sequences: Sequence[str], *, everything: bool = False) -> None:
    """Stop publishing or following sequences."""
    if not sequences and not everything:
        raise UsageError("remove-seq needs SEQUENCE... or --all, use --help for help")
    session.require_node()
    local = [seq.seq_name for seq in get_seq_list(session.db, session.queue) if seq.local]
    for name in choose(sequences, local, everything=everything):
        local_remove_seq(session.db, session.queue, name)
