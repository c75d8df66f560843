"""A branch: a leaf that also passes on what it applies, to the nodes that read from it.

Events and ticks go into its own queue in the transaction of each batch: `BatchRun.publish`, through
`worker/branch_queue.py` (docs/design/cascade.md). What is done here besides: batches of one tick
while upstream copies a table from this node, and the watermarks of the nodes below.
"""

from __future__ import annotations

import logging

from vedur.db import Database
from vedur.errors import StateError, VedurError
from vedur.failpoint import reach
from vedur.node import WorkerState, get_node_info
from vedur.node.endpoint import Endpoint
from vedur.node.info import Location, get_queue_locations, get_subscriber_info, synced_nodes
from vedur.node.position import Place, get_counter
from vedur.node.state import set_global_watermark
from vedur.queue.batches import Batch, get_ticks, next_batch
from vedur.queue.publish import can_publish, read_copies_by_snapshot
from vedur.queue.settings import follow_settings
from vedur.worker.branch_queue import BranchQueue
from vedur.worker.context import WorkerContext
from vedur.worker.roles.leaf import LeafRole

log = logging.getLogger(__name__)

_OLD_SQL = (
    "the SQL of this branch is of a version that cannot pass events on: nothing is applied; run "
    '"create-branch" again with the same arguments, it brings the SQL up to date'
)


def _require_numbers(target: Database, queue: str, state: WorkerState) -> None:
    """Raise where this server counts transactions from below those of the branch's own queue: for
    everybody who reads there, events that are passed on now would have been read long ago."""
    counter = get_counter(target, queue, state.completed_tick)
    if counter.behind:
        raise StateError(
            f"transaction numbers of this server are at {counter.now}, ticks of the queue of this "
            f"branch have seen {counter.tick}: it was restored from a dump into another server, "
            "and nodes below would miss events; nothing is applied: stop the server, run "
            f'"pg_resetwal --epoch={(counter.tick >> 32) + 1}" on it, and start it again'
        )


class BranchRole(LeafRole):
    """A node that follows its provider and has nodes below."""

    def __init__(self, worker: WorkerContext) -> None:
        super().__init__(worker)
        self._checked = False
        self._sync_nodes: tuple[str, ...] = ()

    def do_round(self, target: Database, state: WorkerState) -> bool:
        """Do a leaf's round; raises where this database cannot pass on what is applied."""
        if not self._checked:
            if not can_publish(target):
                raise StateError(_OLD_SQL)
            _require_numbers(target, self.worker.queue, state)
            self._read_sync_nodes(target)
            self._checked = True
        return super().do_round(target, state)

    @property
    def _branch(self) -> BranchQueue:
        branch = self._runner.own_queue if self._runner is not None else None
        if not isinstance(branch, BranchQueue):
            raise StateError("BUG: the runner of a branch passes nothing on")
        return branch

    # -- batches of one tick --------------------------------------------------------------------

    def _next_batch(
        self,
        target: Database,
        provider: Database,
        state: WorkerState,
        hold: int | None,
        place: Place,
    ) -> Batch | None:
        """Open the next batch; of one tick, while upstream copies from here."""
        branch = self._branch
        branch.sync_watermark = bool(self._sync_nodes)
        copies = read_copies_by_snapshot(target, self.worker.queue)
        if bool(copies) != branch.tick_by_tick:
            branch.tick_by_tick = bool(copies)
            if copies:
                log.info("batches are single ticks while %s copies from here", ", ".join(copies))
        if not copies:
            return super()._next_batch(target, provider, state, hold, place)
        self._reopen_long_batch(provider, state, place)
        queue, lag = self.worker.queue, self.worker.settings.pgq_keep_lag
        return next_batch(provider, queue, state.worker_name, min_lag=lag)

    def _reopen_long_batch(self, provider: Database, state: WorkerState, place: Place) -> None:
        """Give an open batch of several ticks back to the provider: its first tick comes again."""
        queue, here = self.worker.queue, state.completed_tick
        if place.next is None or place.next == here or place.last != here:
            return
        if len(get_ticks(provider, queue, here, place.next)) > 2:
            provider.call("pgq.register_consumer_at", queue, state.worker_name, here)
            reach("branch.reopened")

    # -- watermarks -----------------------------------------------------------------------------

    def _follow_settings(self, target: Database, provider: Database) -> None:
        """Let this node's queue tick and rotate as its provider's, whose settings may have been
        changed: after a takeover they are the set's."""
        for name in follow_settings(provider, target, self.worker.queue):
            log.info("queue setting %s follows the provider's", name)

    def _read_sync_nodes(self, target: Database) -> None:
        info = get_node_info(target, self.worker.queue)
        self._sync_nodes = synced_nodes(info.attrs) if info is not None else ()

    def _send_watermark(
        self, target: Database, provider: Database, state: WorkerState, watermark: int
    ) -> None:
        """Report the lowest tick that this node and all below it need. With `sync_watermark` the
        nodes that are named hold each other's queues instead, and this node reports for itself."""
        queue = self.worker.queue
        self._follow_settings(target, provider)
        self._read_sync_nodes(target)
        if not self._sync_nodes:
            self._report(provider, state, watermark, self._needed(target, state))
            reach("branch.reported")
            return
        self._report(provider, state, state.completed_tick, state.completed_tick)
        lowest = self._lowest_of_synced(target, state, watermark)
        if lowest is not None:
            set_global_watermark(target, queue, lowest)
            reach("branch.synced")

    def _needed(self, target: Database, state: WorkerState) -> int:
        """Read the lowest tick that this node or a node below it needs. Other consumers do not
        count: one that was registered here at an earlier tick reads from the queue of this node,
        which has it."""
        below = [item.node_watermark for item in get_subscriber_info(target, self.worker.queue)]
        return min([state.completed_tick, *(tick for tick in below if tick is not None)])

    def _lowest_of_synced(self, target: Database, state: WorkerState, watermark: int) -> int | None:
        """Ask the nodes that are named for their watermarks; None where one does not answer, or
        while the root's is not known: the watermark of this part may not be ahead of it. A node
        that is not in the set any more, or not yet, needs nothing."""
        ceiling = self._branch.root_watermark
        if ceiling is None:
            return None
        members = {m.node_name: m for m in get_queue_locations(target, self.worker.queue)}
        lowest = min(watermark, ceiling)
        for name in self._sync_nodes:
            if name == state.node_name:
                continue
            member = members.get(name)
            if member is None:
                log.warning('sync_watermark names node "%s", which is not in the set', name)
                continue
            if member.dead:
                continue
            there = self._ask_watermark(member)
            if there is None:
                return None
            lowest = min(lowest, there)
        return lowest

    def _ask_watermark(self, member: Location) -> int | None:
        endpoint = Endpoint.of_node(self.worker.settings, member.node_location)
        try:
            with endpoint.with_connect_timeout(5).open("wmdb") as db:
                info = get_node_info(db, self.worker.queue)
        except VedurError as error:
            log.warning('the watermark of node "%s" is not known: %s', member.node_name, error)
            return None
        if info is None:
            log.warning('node "%s" of sync_watermark has no node of this set', member.node_name)
            return None
        return info.local_watermark
