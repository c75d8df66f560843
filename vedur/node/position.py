"""The position of a node: which tick it has applied, and whether its provider agrees.

A position is stored twice: on the node, in the transaction of the data, and on the provider, as
that of a consumer, when the batch is finished. They are equal, or the node is ahead by one batch
that it has committed and not finished. Anything else means that one of the two databases was set
back: restored from a backup, or replaced by a standby that was behind.

Numbers alone do not tell: a provider that was set back uses them again. So the node keeps which
tick it was (`vedur.position`: time, event number, snapshot) and believes a number only if that
fits. Nodes of an earlier version and upstream's have only the number.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from vedur.db import Answer, Database, Row, command, report
from vedur.errors import DatabaseError, LostPosition, StateError
from vedur.sql import query

log = logging.getLogger(__name__)

#: How every message about it begins: `errors` and the status page know it by that.
LOST = "Lost position"
#: What mends it.
REMEDY = 'nothing is applied: run "rejoin" on this node, it says what it would do'


@dataclass(frozen=True)
class AppliedTick:
    """A tick, by all that tells it from another one of the same number."""

    id: int
    time: datetime
    event_seq: int
    snapshot: str
    provider: str = ""  # whose tick it is; a branch has other snapshots than its root

    def same(self, other: AppliedTick, *, of_branch: bool = False) -> bool:
        """Are these one and the same tick? The snapshot that a branch gives to a tick of the root
        is its own, and another one when it passes on the tick again, after a restore."""
        return (self.id, self.time, self.event_seq) == (other.id, other.time, other.event_seq) and (
            of_branch or self.snapshot == other.snapshot
        )

    def same_elsewhere(self, other: AppliedTick) -> bool:
        """Are these the same tick of the root, on two providers? Whoever passes a tick on keeps its
        number and its time. Event numbers may differ: a branch of upstream's worker notes that of
        the last event it has read."""
        return (self.id, self.time) == (other.id, other.time)


@dataclass(frozen=True)
class Place:
    """A consumer on the provider: its position, the end of its open batch, events ahead of it,
    and the provider's tick of the number that was asked for."""

    last: int
    next: int | None
    ahead: int
    tick: AppliedTick | None


@dataclass(frozen=True)
class Counter:
    """Transaction numbers of a provider: the next one, and the highest that a tick has seen.

    Events are found by them. A server into which a queue was restored from a dump counts from its
    own number: below those of the ticks its events would count as read, on reaching them old
    events would come again.
    """

    now: int
    tick: int

    @property
    def behind(self) -> bool:
        """Are the numbers of the server below those of its queue?"""
        return self.now < self.tick

    def error(self, provider: str) -> LostPosition:
        """Return the error that says what to do about it."""
        return LostPosition(
            f'{LOST}: transaction numbers of provider "{provider}" are at {self.now}, ticks of its '
            f"queue have seen {self.tick}: it was restored from a dump into another server, and "
            'events would be lost; nothing is applied: stop that server, run "pg_resetwal '
            f'--epoch={(self.tick >> 32) + 1}" on it, start it, then run "rejoin --force" on this '
            "node"
        )


class Fit(Enum):
    """How the position of a node and that of its consumer go together."""

    SAME = "same"
    COMMITTED = "committed"  # the open batch is applied, but not finished
    AHEAD = "ahead"  # the provider has forgotten that batches were finished
    UNKNOWN = "unknown"  # ahead, and nothing tells whether that tick is the one that was applied
    BEHIND = "behind"  # the node has lost batches that it had finished
    MISSING = "missing"  # the provider does not have the tick
    OTHER = "other"  # the provider has another tick of that number


def judge(here: int, applied: AppliedTick | None, place: Place, *, of_branch: bool = False) -> Fit:
    """Compare a node's position with its consumer's. `applied` is None where it is not known;
    `of_branch`: the consumer is one of a branch's queue."""
    known = False
    if applied is not None and applied.id == here and place.tick is not None:
        known = True
        if not applied.same(place.tick, of_branch=of_branch):
            return Fit.OTHER
    if here == place.last:
        return Fit.SAME
    if here == place.next:
        return Fit.COMMITTED
    if here < place.last:
        return Fit.BEHIND
    if place.tick is None:
        return Fit.MISSING
    return Fit.AHEAD if known else Fit.UNKNOWN


def lost(
    fit: Fit, here: int, consumer: str, provider: str, place: Place, *, of_branch: bool = False
) -> LostPosition:
    """Return the error that names what does not fit, why that may be, and the command that mends
    it."""
    if fit is Fit.MISSING and of_branch:
        return LostPosition(
            f'{LOST}: this node has applied tick {here}, branch "{provider}" does not have it, and '
            f'consumer "{consumer}" stands there at tick {place.last}: the branch was restored '
            f'from an older backup; nothing is applied: run "rejoin" on "{provider}" first, this '
            "node goes on by itself when that has come to its tick again; if it cannot, run "
            '"change-provider" or "rejoin" on this node'
        )
    if fit is Fit.OTHER:
        return LostPosition(
            f'{LOST}: tick {here} on provider "{provider}" is not the tick {here} that this node '
            "has applied: the provider was restored from an older backup, or replaced by a standby "
            f"that was behind; {REMEDY}"
        )
    why = (
        "this database was restored from an older backup"
        if fit is Fit.BEHIND
        else "the provider was restored from an older backup, or replaced by a standby that was "
        "behind"
    )
    return LostPosition(
        f'{LOST}: this node has applied tick {here}, its consumer "{consumer}" on provider '
        f'"{provider}" stands at tick {place.last}: {why}; {REMEDY}'
    )


def unregistered(consumer: str, provider: str) -> LostPosition:
    """Return the error of a node that its provider does not know."""
    return LostPosition(
        f'{LOST}: consumer "{consumer}" is not registered on provider "{provider}": the node was '
        "dropped there, or the provider was restored from a backup of an earlier time; "
        f"{REMEDY}"
    )


def is_lost(message: str) -> bool:
    """Is a stored message about a lost position?"""
    return LOST in message and '"rejoin' in message


# -- the lock --------------------------------------------------------------------------------------


def lock_position(db: Database, queue: str, consumer: str, *, row: bool = False) -> int | None:
    """Wait for the lock of a consumer's position, keep it until the transaction ends, and return
    the tick that the consumer has applied (None where it keeps no position here).

    Whoever writes rows that belong to a tick must hold it, from before the first row until the
    commit: the worker for its batch; `repair`, `change-filter`, `rejoin`, `quarantine replay` and
    `quarantine drop` for theirs; a first copy for its agreement on the tick of its hand-over. So
    rows, position and quarantine of a node always belong to one tick, and two workers of one
    consumer cannot commit the same batch: the second one waits and then sees the new position.

    It is taken before any other lock, so that a worker which waits for it has locked no row yet.
    It is an advisory lock: `pause` and errors are stored in the row of the position while a batch
    runs. Upstream's worker does not know it; with `row` that row is locked as well, so that no
    worker of any kind can move the position. The worker itself never does that.
    """
    after = "lock_position_row" if row else "position"
    texts = [
        db.mogrify(query("node", name), [queue, consumer]) for name in ("lock_position", after)
    ]
    ticks = db.each(texts)[1]
    return None if not ticks or ticks[0][0] is None else int(ticks[0][0])


def lock_worker_position(db: Database, queue: str) -> int | None:
    """Lock the position of this node's own worker, whatever it is called: see `lock_position`."""
    worker = db.value(query("node", "worker_name"), [queue])
    if worker is None:
        raise StateError(f'queue "{queue}" has no node here any more')
    return lock_position(db, queue, str(worker))


# -- reading and writing --------------------------------------------------------------------------


def read_position(db: Database, queue: str, consumer: str) -> int | None:
    """Read the tick that a consumer of this node has applied, None where it is not registered."""
    tick = db.value(query("node", "position"), [queue, consumer])
    return None if tick is None else int(tick)


def read_worker_position(db: Database, queue: str) -> int | None:
    """Read the tick that the worker of this node has applied."""
    tick = db.value(query("node", "worker_position"), [queue])
    return None if tick is None else int(tick)


def read_newest_tick(db: Database, queue: str) -> int | None:
    """Read the newest tick of a queue, None where it has none."""
    tick = db.value(query("node", "newest_tick"), [queue])
    return None if tick is None else int(tick)


def require_newest_tick(db: Database, queue: str) -> int:
    """Read the newest tick of a queue; raises where it has none."""
    tick = read_newest_tick(db, queue)
    if tick is None:
        raise StateError(f'queue "{queue}" has no ticks there: is the ticker running?')
    return tick


def wake_worker(provider: Database, queue: str) -> None:
    """Repeat the NOTIFY of the provider's newest tick, so that workers below it look for work now.

    A worker that has nothing to do sleeps `loop_delay` (1 s) unless its provider tells of a tick.
    The first copy of 5,000,000 rows waited 0.3 to 1.0 s for that, of 8 to 13 s in all; woken, it
    waited 0.05 s. Best effort: what a command asks for is stored, and the worker finds it anyway.
    """
    try:
        provider.execute(query("node", "wake_worker"), [queue])
    except DatabaseError as error:
        log.debug("the worker wakes up by itself: %s", error)


def keeps_ticks(db: Database) -> bool:
    """Can it be written down here which tick was applied? Not where an earlier version made the
    schemas."""
    return bool(db.value(query("node", "keeps_ticks")))


def get_applied_tick(
    db: Database, queue: str, consumer: str, provider: str = ""
) -> AppliedTick | None:
    """Read the tick that a consumer of this node applied; None where nobody has written it down, or
    where it is the tick of another provider."""
    row = db.one(query("node", "applied_tick"), [queue, consumer])
    if row is None or (provider and row.provider_node != provider):
        return None
    return _tick(row, row.provider_node)


def complete_tick(
    db: Database, queue: str, consumer: str, tick: AppliedTick, *, silent: bool = False
) -> None:
    """Store a position and which tick it is; belongs in the transaction of the data. `silent` says
    nothing of a success."""
    row = db.one(query("node", "complete_tick"), _words(queue, tick, consumer=consumer))
    if not silent or row.ret_code >= 300:
        report(Answer(row.ret_code, row.ret_note, row), quiet=True)


def _words(queue: str, tick: AppliedTick, **more: object) -> dict[str, Any]:
    return {
        "queue": queue,
        "provider": tick.provider,
        "tick": tick.id,
        "time": tick.time,
        "event_seq": tick.event_seq,
        "snapshot": tick.snapshot,
        **more,
    }


def set_consumer_completed(db: Database, queue: str, consumer: str, tick: int) -> Answer:
    """Store the tick that is applied here; belongs in the transaction of the data."""
    return command(db, "pgq_node.set_consumer_completed", queue, consumer, tick)


def register_consumer(
    db: Database, queue: str, consumer: str, provider: str, tick: int, *, node: str = ""
) -> Answer:
    """Keep the position of a consumer on this node."""
    return command(db, "pgq_node.register_consumer", queue, consumer, provider, tick, node=node)


def unregister_consumer(db: Database, queue: str, consumer: str, *, node: str = "") -> Answer:
    """Forget a consumer's position."""
    return command(db, "pgq_node.unregister_consumer", queue, consumer, node=node)


def read_positions(db: Database, queue: str, consumers: Sequence[str]) -> dict[str, int]:
    """Read the ticks that consumers of this node have applied, of those that are registered."""
    rows = db.query(query("copies", "positions"), [queue, list(consumers)])
    return {row.consumer_name: int(row.last_tick_id) for row in rows}


def complete_consumers(
    db: Database, queue: str, consumers: Sequence[str], tick: AppliedTick
) -> None:
    """Store the same tick as the position of several consumers, as `complete_tick`."""
    _report_each(db, "complete_consumers", _words(queue, tick, consumers=list(consumers)))


def forget_applied(db: Database, queue: str, consumers: Sequence[str]) -> None:
    """Forget which ticks consumers have applied that end, or begin at another place."""
    db.execute(query("copies", "forget_applied"), [queue, list(consumers)])


def register_consumers(db: Database, queue: str, ticks: Mapping[str, int], provider: str) -> None:
    """Keep the positions of several consumers of this node, each with its tick."""
    words = {"consumers": list(ticks), "ticks": list(ticks.values())}
    _report_each(db, "register_positions", {**words, "queue": queue, "provider": provider})


def unregister_consumers(db: Database, queue: str, consumers: Sequence[str]) -> None:
    """Forget the positions of several consumers."""
    _report_each(db, "unregister_positions", {"queue": queue, "consumers": list(consumers)})


def _report_each(db: Database, name: str, words: Mapping[str, Any]) -> None:
    for row in db.query(query("copies", name), words):
        report(Answer(row.ret_code, row.ret_note, row))


def forget_position(db: Database, queue: str) -> None:
    """Remove what is kept of a node of this database that has ended, or that begins anew."""
    if keeps_ticks(db):
        db.execute(query("node", "forget_position"), {"queue": queue})
        db.execute(query("node", "forget_rejoin"), [queue])


def get_place(db: Database, queue: str, consumer: str, tick: int) -> Place | None:
    """Read the place of a consumer in the provider's queue, and a tick of that; None where it is
    not registered."""
    row = db.one(query("node", "place"), [tick, queue, consumer])
    if row is None:
        return None
    found = _tick(row) if row.tick_id is not None else None
    return Place(row.sub_last_tick, row.sub_next_tick, max(0, row.ahead or 0), found)


def get_counter(db: Database, queue: str, tick: int) -> Counter:
    """Read the transaction numbers of a provider and of its ticks: the oldest, and one by
    number."""
    row = db.one(query("node", "counter"), [tick, queue])
    return Counter(int(row.now), int(row.tick or 0))


def get_tick(db: Database, queue: str, tick: int, provider: str) -> AppliedTick | None:
    """Read a tick of a provider; None where it is not there."""
    row = db.one(query("node", "tick"), [queue, tick])
    return None if row is None else _tick(row, provider)


def _tick(row: Row, provider: str = "") -> AppliedTick:
    return AppliedTick(row.tick_id, row.tick_time, row.tick_event_seq, row.tick_snapshot, provider)
