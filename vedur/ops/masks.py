"""Tables that a branch passes on masked: what add-table asks, and writes, on both sides.

The queue of a branch may hold events of a table only as its rules make them. So a table is masked
from its registration on, in the transaction of which no event of it may be there, and the worker
passes on no event of a table that is not registered (`unknown_tables = stop`). Nodes below write
down by which rules their rows came masked, and go by that.
"""

from __future__ import annotations

from vedur.catalog.passed import is_mask
from vedur.db import Database
from vedur.errors import StateError, UsageError
from vedur.failpoint import reach
from vedur.handlers.registry import Handled
from vedur.node.info import NodeInfo
from vedur.node.position import lock_worker_position, read_newest_tick, read_position
from vedur.ops.session import Session
from vedur.queue.passed import PassedPart, note_passed_parts, read_passed_parts
from vedur.queue.publish import can_publish
from vedur.sql import query


def read_masks(session: Session, info: NodeInfo) -> dict[str, str]:
    """Read which tables the provider passes on masked, and by which rules; none for the root."""
    if info.is_root:
        return {}
    at = int(info.worker_last_tick or 0)
    parts = read_passed_parts(session.provider(info), session.queue, at)
    return {part.table: part.condition for part in parts if is_mask(part) and part.until is None}


def mask_of(info: NodeInfo, handled: Handled | None) -> str:
    """Return by which rules this node masks a table for nodes below; empty where it does not."""
    return handled.mask if handled is not None and info.is_branch else ""


def require_masking(session: Session, info: NodeInfo, handled: Handled | None) -> None:
    """Raise where this branch is to mask a table, and would pass on events of others unseen, or its
    database has not the functions for it."""
    if not mask_of(info, handled):
        return
    assert handled is not None
    if session.settings.unknown_tables != "stop":
        raise UsageError(
            f'handler "{handled.stored}" on a branch needs "unknown_tables = stop" in its ini, and '
            "its worker must have read that (-r): events of a table that this branch does not have "
            "would go on to nodes below as they are, until it is added here"
        )
    if not can_publish(session.db):
        raise StateError(
            "the SQL of this branch is of a version that cannot tell nodes below what is masked: "
            'run "create-branch" again with the same arguments'
        )


def begin_masking(session: Session, info: NodeInfo, table: str, masked: str | None) -> None:
    """Note in the queue of a branch by which rules events of a table go on masked, None where they
    go on as they are; in the transaction that registers the table. Raises where the queue may hold
    events that went on in another way.

    A root masks nothing. What it has passed on masked as a branch, which had not the table itself,
    ends: its users' changes come as they are.
    """
    if not (info.is_branch or info.is_root) or not can_publish(session.db):
        return
    db, queue = session.db, session.queue
    if info.is_root:
        _end_masks(db, queue, table)
        return
    own = [part for part in read_passed_parts(db, queue, 0) if part.table == table]
    known = {part.condition for part in own if is_mask(part)}
    wanted = {masked} if masked else set()
    if known == wanted and all(part.until is None for part in own if is_mask(part)):
        return
    lock_worker_position(db, queue)  # no batch is published until this is committed
    if where := _where_events_are(db, queue, table):
        raise StateError(
            f'"{table}" cannot be added here so: events of it are in the queue of this branch '
            f"already ({where}), {_how(known)}, and nodes below must not get both; nothing is "
            "changed: wait until the queue has rotated twice and its worker has been restarted, or "
            "create the branch anew and add the table before its worker runs for the first time"
        )
    more = {PassedPart(table, masked)} if masked else set()
    tick = read_position(db, queue, info.worker_name or "")
    _note(db, queue, int(tick or 0), _others(db, queue, table) | more)


def _end_masks(db: Database, queue: str, table: str) -> None:
    """Note on a root that events of a table are not masked behind the newest tick."""
    own = read_passed_parts(db, queue, 0)
    if any(part.table == table and is_mask(part) and part.until is None for part in own):
        tick = read_newest_tick(db, queue)
        _note(db, queue, tick or 0, _others(db, queue, table))


def _note(db: Database, queue: str, tick: int, parts: set[PassedPart]) -> None:
    note_passed_parts(db, queue, tick, parts)
    reach("mask.noted")


def _others(db: Database, queue: str, table: str) -> set[PassedPart]:
    """Read what goes on to be passed on in part, but for masks of a table."""
    return {
        part
        for part in read_passed_parts(db, queue, 0)
        if part.until is None and not (part.table == table and is_mask(part))
    }


def _how(known: set[str]) -> str:
    return " and ".join(sorted(known)) or "as the root has them"


def _where_events_are(db: Database, queue: str, table: str) -> str:
    """Read where events of a table lie on this branch; empty where there are none."""
    for (events,) in db.query(query("publish", "event_tables"), {"queue": queue}):
        if db.value(query("publish", "holds_events").format(events=events), [table]):
            return str(events)
    return ""
