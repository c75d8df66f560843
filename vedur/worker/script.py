"""A script of the set (`execute`), replayed on this node inside the batch's transaction.

Statements run one by one in role `local`, so no trigger logs them. Transaction control inside
the script is left out: the batch is the transaction. Tables that have another name here are
renamed in the parsed statement.
"""

from __future__ import annotations

import logging

from vedur.catalog.execute import execute_finish, execute_start, read_local_names
from vedur.change.event import Event
from vedur.db import Database
from vedur.db.database import set_replication_role
from vedur.errors import StateError
from vedur.failpoint import reach
from vedur.script.attrs import ScriptAttrs
from vedur.script.on_node import script_here
from vedur.script.script import known_as

log = logging.getLogger(__name__)


def run_script(db: Database, queue: str, event: Event) -> None:
    """Replay an EXECUTE event."""
    name, script = event.ev_extra1 or "", event.ev_data or ""
    attrs = ScriptAttrs.parse(event.ev_extra2)
    name = known_as(name, queue, attrs.values)
    answer = execute_start(
        db, queue, name, script, expect_root=False, attrs=event.ev_extra2 or None
    )
    if answer.code > 200:
        return
    reach("script.started")
    here = script_here(db, read_local_names(db, queue), script, attrs)
    if here.fits is None:
        raise StateError(event.named(f"{name}: SQL only partially matches local setup"))
    if here.fits:
        set_replication_role(db, "local")
        for statement in here.statements:
            log.debug("%s", statement)
            db.execute(statement)
    else:
        log.info("%s: This SQL does not need to run on this node.", name)
    reach("script.run")
    execute_finish(db, queue, name)
    reach("script.finished")
    set_replication_role(db, "replica")
