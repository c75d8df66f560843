"""Staging ahead: while a batch is merged, a second thread stages the range behind it.

The queue decides where a batch ends, from the size that is requested (`min_count`), and only when
the batch before it is finished. So the end is foreseen:

1. `begin` works out the size to request (`merge_count`) and the tick at which the queue will end a
   batch of that size (`expected_end`), and stages up to there;
2. the loop requests exactly that size (`requested`, through `batch_size`);
3. `take` looks whether the batch that came is the one that was staged. It may have got longer, by
   ticks that came meanwhile: then the rest is staged behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic

from vedur.change.event import EventRange
from vedur.db import Database
from vedur.failpoint import reach
from vedur.node.endpoint import Endpoint
from vedur.queue.batches import PREFETCH_EVENTS, expected_end, merge_count, next_limit
from vedur.queue.slices import Tick
from vedur.tables.mapping import TableMap
from vedur.threads import Pool
from vedur.worker.apply_range import Applier, S

log = logging.getLogger(__name__)

#: Cut a range of ticks into slices.
Cut = Callable[[Sequence[Tick]], EventRange]


@dataclass
class Ahead(Generic[S]):
    """A range that is being staged for the batch after the current one."""

    first: Tick
    last: Tick
    requested: int  # the size for which the queue makes it a batch
    tables: tuple[TableMap, ...]
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
        self._ahead = Ahead(ticks[0], end, requested, tables, slot, future)
        reach("ahead.begun")

    def take(
        self, ticks: Sequence[Tick], tables: tuple[TableMap, ...]
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
        return (staged, ahead.last) if fits and ahead.tables == tables else (None, None)

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
