"""Errors, pauses and providers of consumers, and watermarks: what workers and operators set."""

from __future__ import annotations

from vedur.db import Answer, Database, command
from vedur.sql import query


def set_consumer_error(db: Database, queue: str, consumer: str, message: str | None) -> Answer:
    """Show an error in `status`, or none; the next completed batch clears it, too."""
    return command(db, "pgq_node.set_consumer_error", queue, consumer, message)


def set_consumer_paused(
    db: Database, queue: str, consumer: str, paused: bool, *, node: str = ""
) -> Answer:
    """Ask a consumer to pause or go on; it answers through `uptodate`."""
    return command(db, "pgq_node.set_consumer_paused", queue, consumer, paused, node=node)


def set_consumer_uptodate(db: Database, queue: str, consumer: str, uptodate: bool) -> Answer:
    """Write that the consumer has (or has not) seen the latest settings."""
    return command(db, "pgq_node.set_consumer_uptodate", queue, consumer, uptodate)


def change_consumer_provider(
    db: Database, queue: str, consumer: str, provider: str, *, node: str = ""
) -> Answer:
    """Write that the consumer reads from another node from now on."""
    return command(db, "pgq_node.change_consumer_provider", queue, consumer, provider, node=node)


def set_subscriber_watermark(db: Database, queue: str, subscriber: str, tick: int) -> Answer:
    """Write on the provider that the subscriber and everything below it need nothing before
    `tick`."""
    return command(db, "pgq_node.set_subscriber_watermark", queue, subscriber, tick)


def hold_back_watermark(db: Database, queue: str, subscriber: str, tick: int) -> int | None:
    """Move the watermark of a subscriber, on the provider, back to a tick that a node needs, or as
    far as the queue goes. Returns where it stands then, None where it was not ahead."""
    found = db.one(
        query("node", "hold_back"),
        {"queue": queue, "consumer": watermark_of(subscriber), "tick": tick},
    )
    return None if found is None else int(found.tick)


def watermark_of(subscriber: str) -> str:
    """Return the consumer on its provider that keeps what a node and everything below it needs."""
    return f".{subscriber}.watermark"


def set_global_watermark(db: Database, queue: str, tick: int | None) -> Answer:
    """Write the global watermark: on a root with None, work it out and publish it; on a branch,
    move it to `tick`."""
    return command(db, "pgq_node.set_global_watermark", queue, tick)
