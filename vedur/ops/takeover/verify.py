"""After a takeover the old root is compared with the new one: the way back is as good as that.

The window is over by then, and writers are at work on the new root: what is compared are two
moments of the same tick, as `compare` does it. Nothing is undone where tables differ: the takeover
is done, the exit code says it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

from vedur.config import LondisteSettings
from vedur.errors import VedurError, first_line
from vedur.failpoint import reach
from vedur.node.endpoint import Endpoint
from vedur.node.epoch import keeps_epochs
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.members import SetView
from vedur.ops.session import Session

if TYPE_CHECKING:
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)

#: Seconds that the worker of the old root may take to a tick of now. It was a root's worker, which
#: needs no Spark, and starts a session first.
_MAX_WAIT = 300.0


class Verdict(IntEnum):
    """What is known of the old root after a takeover; the exit code of the command."""

    EQUAL = 0  # or nobody asked
    DIFFERENT = 8
    NOT_PROVEN = 9


def compare_old_root(
    session: Session, view: SetView, old: str, spark: SparkSession | None = None
) -> Verdict:
    """Compare the tables of the old root, a branch now, with those of the new one.

    Whatever becomes of this, the takeover is done, and the user is told so: of Java that has gone,
    of a server that is down again, of an interrupt, which is passed on.
    """
    try:
        return _compare(session, view, old, spark)
    except VedurError as error:
        return _not_proven(old, error.message)
    except KeyboardInterrupt:
        _not_proven(old, "interrupted")
        raise
    except Exception as error:
        log.debug("comparing '%s' failed", old, exc_info=True)
        return _not_proven(old, f"{type(error).__name__}: {first_line(error)}")


def _compare(
    session: Session, view: SetView, old: str, spark: SparkSession | None = None
) -> Verdict:
    if not keeps_epochs(view.databases[old]):
        log.warning(
            "'%s' is not compared: its database has none of what a comparison at one tick needs "
            "(schema vedur), its programs are Londiste's; compare it with those",
            old,
        )
        return Verdict.NOT_PROVEN
    log.info("Comparing '%s' with the new root", old)
    try:
        with Session(_settings_of(session.settings, view, old), session.clock) as there:
            result = compare(there, CompareOptions(max_wait=_MAX_WAIT), spark)
    finally:
        reach("takeover.compared")
    if result.bad:
        log.error("The takeover is done, but '%s' differs: run repair there before a way back", old)
        return Verdict.DIFFERENT
    if result.exit_code:
        log.warning("The takeover is done; '%s' is not proven equal: run compare there", old)
        return Verdict.NOT_PROVEN
    log.info("'%s' is equal to the new root", old)
    return Verdict.EQUAL


def _not_proven(old: str, why: str) -> Verdict:
    """Tell that the takeover is done and not compared, and what to do about that."""
    log.error(
        "The takeover is done; '%s' could not be compared (%s): run compare with its ini", old, why
    )
    return Verdict.NOT_PROVEN


def _settings_of(settings: LondisteSettings, view: SetView, node: str) -> LondisteSettings:
    """Return the settings with another node's database for the local one."""
    if node == view.local:
        return settings
    return replace(
        settings, db=Endpoint.of_node(settings, view.locations[node].node_location).connstr
    )
