"""Columns that only the provider has: is a script under way that brings them?

A copy may be ahead of its worker: the snapshot has a column that a script (`execute`) has added on
the provider, and the worker has not come to that script. To leave such a column out would leave it
empty for ever, as the script comes after the rows. So the copy lets the worker come to the snapshot
first, and only for a table that has such columns.
"""

from __future__ import annotations

import logging

from vedur import db as vdb
from vedur.change.snapshot import Snapshot
from vedur.clock import Clock
from vedur.errors import CopyAbandoned, StateError
from vedur.node.position import read_newest_tick, read_worker_position
from vedur.queue.batches import get_ticks
from vedur.worker.first_copy.context import CopySetup, Plan, TableJob
from vedur.worker.first_copy.states import snapshot_is_past

log = logging.getLogger(__name__)

_POLL = 0.1


def let_worker_pass(
    setup: CopySetup, job: TableJob, target: vdb.Database, visible: str, clock: Clock, plan: Plan
) -> None:
    """Wait until the worker has applied all that the snapshot `visible` contains.

    There is no limit: a worker that keeps a lag, or stands, would be behind the next snapshot too.
    """
    copied, said = Snapshot.parse(visible), False
    with vdb.connect(
        job.provider, name="provider_db", autocommit=True, application_name="vedur copy"
    ) as provider:
        provider.without_timeouts()
        while not _passed(setup, target, provider, copied):
            if job.cancelled:
                raise CopyAbandoned
            if not said:
                log.info("%s: %s only on the provider: the copy waits until the worker has run the"
                         " scripts of that time", job.name, _listed(plan))  # fmt: skip
                provider.call("pgq.force_tick", setup.queue)
                said = True
            clock.sleep(_POLL)


def accept_columns(setup: CopySetup, job: TableJob, plan: Plan) -> None:
    """Go on without columns that are still missing when the worker is there, or stop."""
    if not plan.only_source:
        return
    if setup.missing_columns == "stop":
        raise StateError(
            f"{job.name}: {_listed(plan)} only on the provider: add them here, or set "
            "missing_columns = warn to copy the table without"
        )
    log.warning("%s: %s only on the provider, not copied", job.name, _listed(plan))


def _passed(
    setup: CopySetup, target: vdb.Database, provider: vdb.Database, copied: Snapshot
) -> bool:
    position = read_worker_position(target, setup.queue)
    newest = read_newest_tick(provider, setup.queue)
    if position is None or newest is None:
        return False
    tick = min(int(position), newest)  # another node than the provider may be behind the worker
    ticks = get_ticks(provider, setup.queue, tick, tick)
    return bool(ticks) and snapshot_is_past(copied, ticks[0].snapshot)


def _listed(plan: Plan) -> str:
    return f"columns {', '.join(plan.only_source)} are"
