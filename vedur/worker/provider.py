"""The provider of a node as its worker holds it: two connections and the consumer's place."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from vedur.db import Database
from vedur.failpoint import reach
from vedur.node import WorkerState, get_node_info, get_worker_state
from vedur.node.endpoint import Endpoint
from vedur.node.epoch import check_epoch, take_reigns
from vedur.node.info import NodeType
from vedur.node.position import (
    Fit,
    Place,
    get_applied_tick,
    get_counter,
    get_place,
    judge,
    keeps_ticks,
    lost,
    unregistered,
)
from vedur.queue.batches import Subscription, get_subscription
from vedur.sql import query

log = logging.getLogger(__name__)


@dataclass
class Provider:
    """One session with a provider: `db` for questions, `listener` hears of ticks."""

    endpoint: Endpoint
    db: Database
    listener: Database
    subscription: Subscription
    is_branch: bool = False
    verified: int | None = None  # the position that this provider agrees with

    @classmethod
    def open(cls, endpoint: Endpoint, queue: str, state: WorkerState) -> Provider:
        """Connect, and read the consumer's place in the queue; raises where it has none."""
        db = endpoint.open("provider_db")
        try:
            db.without_timeouts()
            subscription = get_subscription(db, queue, state.worker_name)
            if subscription is None:
                raise unregistered(state.worker_name, state.provider_node)
            info = get_node_info(db, queue)
            listener = endpoint.open("provider_db")
            listener.without_timeouts().execute(query("worker", "listen"))
        except BaseException:
            db.close()
            raise
        is_branch = info is not None and info.node_type is NodeType.BRANCH
        return cls(endpoint, db, listener, subscription, is_branch)

    def close(self) -> None:
        """Close both connections."""
        self.db.close()
        self.listener.close()

    def find_place(self, target: Database, queue: str, state: WorkerState) -> Place | None:
        """Read the consumer's place; raises LostPosition where it does not fit this node's
        position, None where one of them has just been moved.

        The number of the tick is believed once in a session with the provider: whoever restores a
        database or makes a standby the root ends all sessions.
        """
        here, worker = state.completed_tick, state.worker_name
        place = get_place(self.db, queue, worker, here)
        if place is None:
            raise unregistered(worker, state.provider_node)
        applied = None
        doubtful = here != self.verified or here not in (place.last, place.next)
        if doubtful and keeps_ticks(target):
            applied = get_applied_tick(target, queue, worker, state.provider_node)
        if self.verified is None:
            if take_reigns(target, self.db, queue, here):
                log.info('node "%s" has the epoch of its provider from now on', state.node_name)
            check_epoch(target, self.db, queue, here, state.provider_node)
            counter = get_counter(self.db, queue, here)
            if counter.behind:
                raise counter.error(state.provider_node)
        fit = judge(here, applied, place, of_branch=self.is_branch)
        if fit in (Fit.SAME, Fit.COMMITTED):
            self.verified = here
            return place
        if fit is Fit.UNKNOWN:
            return place  # a batch that ends there is passed over, any other one is refused
        now = get_worker_state(target, queue)
        if now is None or now.completed_tick != here:
            return None  # another worker of this node went on between the two looks
        if fit is Fit.AHEAD:
            self._move_consumer(queue, state, place)
            return None
        raise lost(fit, here, worker, state.provider_node, place, of_branch=self.is_branch)

    def _move_consumer(self, queue: str, state: WorkerState, place: Place) -> None:
        here, worker = state.completed_tick, state.worker_name
        log.info(
            'consumer "%s" goes on at tick %s on provider "%s", which this node has applied; '
            "it stood at tick %s",
            worker,
            here,
            state.provider_node,
            place.last,
        )
        self.db.call("pgq.register_consumer_at", queue, worker, here)
        reach("position.moved")
