"""Tables and queues that somebody changed by hand, as every worker looks for them."""

from __future__ import annotations

import logging

from vedur.catalog.watch import mend_queue, watch_tables
from vedur.db import Database
from vedur.errors import ConnectError, DatabaseError

log = logging.getLogger(__name__)


def look_for_changes(target: Database, queue: str) -> None:
    """Look for tables and for a queue that were changed by hand; replication goes on if that
    fails. `target` is in autocommit mode."""
    try:
        if watch_tables(target, queue):
            log.warning("tables were changed by hand, see status or doctor")
        if mend_queue(target, queue):
            log.warning("sequences of the queue were altered by hand, see status or doctor")
    except ConnectError:
        raise
    except DatabaseError as error:
        log.warning("cannot look for changes of tables: %s", error)
