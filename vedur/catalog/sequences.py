"""The sequences of a set. `last_value` is what the root has published, which runs ahead."""

from __future__ import annotations

from dataclasses import dataclass

from vedur.db import Answer, Database, command, exec_query


@dataclass(frozen=True)
class SequenceInfo:
    """One row of `londiste.get_seq_list`."""

    seq_name: str
    last_value: int
    local: bool


def get_seq_list(db: Database, queue: str) -> list[SequenceInfo]:
    """Read all sequences of the set that the node knows, by name."""
    rows = exec_query(db, "londiste.get_seq_list", queue)
    return [SequenceInfo(row.seq_name, row.last_value, row.local) for row in rows]


def local_add_seq(db: Database, queue: str, seq: str) -> Answer:
    """Begin to follow (on the root: to publish) a sequence."""
    return command(db, "londiste.local_add_seq", queue, seq)


def local_remove_seq(db: Database, queue: str, seq: str, *, quiet: bool = False) -> Answer:
    """Stop doing so."""
    return command(db, "londiste.local_remove_seq", queue, seq, quiet=quiet)


def global_update_seq(db: Database, queue: str, seq: str, value: int) -> Answer:
    """Record the published value; bookkeeping, so a success is not announced."""
    return command(db, "londiste.global_update_seq", queue, seq, value, quiet=True)


def global_remove_seq(db: Database, queue: str, seq: str) -> Answer:
    """Record that the set no longer has a sequence."""
    return command(db, "londiste.global_remove_seq", queue, seq, quiet=True)


def root_check_seqs(db: Database, queue: str) -> Answer:
    """Publish, on the root, the sequences that have come close to their published value."""
    return command(db, "londiste.root_check_seqs", queue)
