"""The one order in which a range of events gets into the tables of a node; the next range is
staged meanwhile.

A batch of the worker, a first copy that catches up and the replay of quarantined events differ in
where the events come from, in what is locked and in which position moves. They share the order
below, and with it the promise that a range is applied once: data and position are one transaction.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from vedur.change.event import Event, EventRange, PassedOn
from vedur.change.quarantine import Quarantine
from vedur.db import Database, set_replication_role
from vedur.failpoint import reach
from vedur.node.endpoint import Endpoint
from vedur.queue.batches import PREFETCH_EVENTS, Tick, expected_end, merge_count, next_limit
from vedur.tables.mapping import TableMap
from vedur.threads import Pool

log = logging.getLogger(__name__)

# -- what is needed of those who move the data ----------------------------------------------------

# `ops/processes/worker.py` brings both together. The Spark applier and the plain one of the tests
# satisfy `Applier`.


class RawRange(Protocol):
    """Events of a range as they are, in the raw staging table of a slot."""

    @property
    def slices(self) -> tuple[int, ...]:
        """The numbers under which they were written."""

    @property
    def events(self) -> int:
        """How many there are."""


class StagedRange(Protocol):
    """A range of events that lies on the target, waiting to be merged."""

    @property
    def events(self) -> int:
        """How many events it was made of."""

    @property
    def ignored(self) -> int:
        """How many of them are about tables that this node does not have."""

    @property
    def scripts(self) -> list[int]:
        """The numbers of its EXECUTE events."""

    @property
    def raw(self) -> RawRange | None:
        """Its events as they are, where they are passed on."""


#: What an applier stages is its own: the worker hands it from `stage` to `apply`.
S = TypeVar("S", bound=StagedRange)


class Outcome(Protocol):
    """What a merge did."""

    inserted: int
    updated: int
    deleted: int
    missing_tables: dict[str, int]


def warn_missing(outcome: Outcome, origin: str) -> None:
    """Log which updates changed no row, and where they are from. Only the server knows which rows,
    and a key would be a value of somebody's table."""
    for table, count in outcome.missing_tables.items():
        log.warning(
            "%s: %d update(s) changed no row on this node (the row is missing, or a trigger "
            "refused the update), %s",
            table,
            count,
            origin,
        )


class Applier(Protocol[S]):
    """Moves changes. `stage` may run in another thread than `apply`, in the other slot."""

    @property
    def by_job(self) -> bool:
        """Was the range that was staged last a job of its own, which costs more than small ranges
        are worth?"""

    def start(self, db: Database) -> None:
        """Drop the staging tables that an earlier run left."""

    def forget(self) -> None:
        """Read the target's tables anew before the next range: they may have changed."""

    def stage(self, db: Database, source: EventRange, tables: Sequence[TableMap], slot: int) -> S:
        """Read a range, collapse it and write it to staging tables; `db` is in autocommit mode."""

    def extend(self, db: Database, staged: S, source: EventRange, tables: Sequence[TableMap]) -> S:
        """Stage a further range behind a staged one; both become one."""

    def apply(
        self,
        db: Database,
        staged: S,
        tables: Sequence[TableMap],
        handle: Callable[[Event], None],
        quarantine: Quarantine | None = None,
    ) -> Outcome:
        """Merge, in the transaction of the caller; `quarantine` takes what cannot be applied."""

    def rest(self) -> None:
        """Let go of what waits for the next range, as none comes for now."""

    def done(self, db: Database, slot: int) -> None:
        """Free the slot: what it held is merged."""


# -- the order ------------------------------------------------------------------------------------


class AppliedRange(ABC, Generic[S]):
    """A range of events on its way into the tables; `apply_range` calls the steps in order."""

    db: Database  # the node's own database, in autocommit mode between the steps
    applier: Applier[S]
    tables: Sequence[TableMap]  # known once the range is planned

    @property
    @abstractmethod
    def origin(self) -> str:
        """Where its events are from, for the log."""

    def plan(self) -> None:
        """Read what must be known before anything is staged."""

    @abstractmethod
    def stage(self) -> S | None:
        """Stage the events, touching no table of the node; None where there is nothing to merge."""

    @abstractmethod
    def lock(self, staged: S | None) -> S | None:
        """Lock the position, in the transaction; wait for whoever has it.

        Raises where the range is not to be applied any more, and StaleStage where it must be staged
        anew. Returns what is to be merged.
        """

    def open_quarantine(self) -> Quarantine | None:
        """Open what takes the events that cannot be applied; None where such an event stops."""
        return None

    @abstractmethod
    def handle(self, event: Event) -> None:
        """Do what a system event or a script says; called at its place among the rows."""

    def close_quarantine(self) -> None:
        """Write what the quarantine has gathered, in the transaction."""

    def publish(self, staged: S | None) -> None:
        """Write events and ticks into the node's own queue, in the transaction. What is written
        outside this server is written here, too, before the position, and must bear being written
        again: the transaction may yet fail, and the range comes again."""

    @abstractmethod
    def set_position(self) -> None:
        """Write that the range is applied, as the last statement of the transaction."""

    @abstractmethod
    def committed(self, staged: S | None) -> None:
        """Clean up after the commit."""

    def failed(self, error: BaseException) -> bool:
        """Record why it failed; True to try again at once."""
        return False

    def discard(self) -> None:
        """Believe nothing that was learnt so far: somebody may be repairing the target."""
        self.applier.forget()


def apply_range(work: AppliedRange[S]) -> None:
    """Apply a range; an error is recorded before it is raised."""
    while True:
        try:
            _apply_once(work)
            return
        except BaseException as error:
            work.discard()
            if not work.failed(error):
                raise


def _apply_once(work: AppliedRange[S]) -> None:
    work.plan()
    staged = work.stage()
    with work.db.transaction():
        staged = work.lock(staged)
        quarantine = work.open_quarantine()
        if staged is not None:
            set_replication_role(work.db, "replica")
            outcome = work.applier.apply(work.db, staged, work.tables, work.handle, quarantine)
            warn_missing(outcome, work.origin)
        work.close_quarantine()
        work.publish(staged)
        work.set_position()
    work.committed(staged)


# -- staging ahead --------------------------------------------------------------------------------

# While a batch is merged, a second thread stages the range behind it.
#
# The queue decides where a batch ends, from the size that is requested (`min_count`), and only when
# the batch before it is finished. So the end is foreseen:
#
# 1. `begin` works out the size to request (`merge_count`) and the tick at which the queue will end
#    a batch of that size (`expected_end`), and stages up to there;
# 2. the loop requests exactly that size (`requested`, through `batch_size`);
# 3. `take` looks whether the batch that came is the one that was staged. It may have got longer, by
#    ticks that came meanwhile: then the rest is staged behind it.

#: Cut a range of ticks into slices.
Cut = Callable[[Sequence[Tick]], EventRange]


@dataclass
class Ahead(Generic[S]):
    """A range that is being staged for the batch after the current one."""

    first: Tick
    last: Tick
    requested: int  # the size for which the queue makes it a batch
    tables: tuple[TableMap, ...]
    passing: PassedOn | None
    slot: int
    future: Future[S]


@dataclass
class StageAhead(Generic[S]):
    """Holds the two slots of staging tables, and what is staged in the one that is not in use."""

    applier: Applier[S]
    target_connstr: str = field(repr=False)
    slot: int = 0  # of the current batch
    _ahead: Ahead[S] | None = None
    _side: Database | None = None
    _pool: Pool = field(default_factory=lambda: Pool(1, thread_name_prefix="stage-ahead"))

    @property
    def requested(self) -> int | None:
        """The size to request so that the next batch is the one that is staged."""
        return self._ahead.requested if self._ahead is not None else None

    def begin(
        self, ticks: Sequence[Tick], tables: tuple[TableMap, ...], here: int, limit: int, cut: Cut
    ) -> None:
        """Begin to stage what comes behind the current batch, of `here` events, if it is worth it.

        `ticks` begin with the last of the current batch; `limit` is the most events of a batch.
        """
        backlog = ticks[-1].event_seq - ticks[0].event_seq
        requested = merge_count(backlog, next_limit(here, limit)) or 0
        end = expected_end(ticks, requested)
        if end is None or end.event_seq - ticks[0].event_seq < PREFETCH_EVENTS:
            return
        slot = 1 - self.slot
        source = cut([t for t in ticks if t.id <= end.id])
        if self._side is None or self._side.closed:
            self._side = Endpoint(self.target_connstr).open("db")
            self._side.without_timeouts()
        future = self._pool.submit(self.applier.stage, self._side, source, tables, slot)
        self._ahead = Ahead(ticks[0], end, requested, tables, source.passing, slot, future)
        reach("ahead.begun")

    def take(
        self, ticks: Sequence[Tick], tables: tuple[TableMap, ...], passing: PassedOn | None = None
    ) -> tuple[S, Tick] | tuple[None, None]:
        """Wait for what is staged; it and its last tick, if the batch of `ticks` begins with it."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None, None
        try:
            staged = ahead.future.result()
        except Exception as error:
            log.debug("staging ahead failed, staged again: %s", error)
            return None, None
        reach("ahead.taken")
        fits = ahead.first.id == ticks[0].id and ahead.last.id <= ticks[-1].id
        same = (ahead.tables, ahead.passing) == (tables, passing)
        return (staged, ahead.last) if fits and same else (None, None)

    def advance(self) -> None:
        """Make the slot that is staged ahead the current one: its batch comes next."""
        if self._ahead is not None:
            self.slot = self._ahead.slot

    def discard(self) -> None:
        """Forget what is staged ahead, waiting for its end; the slot is emptied when it is used."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            try:
                ahead.future.result()
            except Exception as error:
                log.debug("staging ahead failed: %s", error)
        if self._side is not None:
            self._side.close()
            self._side = None

    def close(self) -> None:
        """Wait for a job in flight and end the thread."""
        self.discard()
        self._pool.shutdown()
