"""Whose business the first copies of a node are: of two workers, the second leaves them alone."""

from __future__ import annotations

import logging

from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.sql import query
from vedur.worker.first_copy.context import CopySetup

log = logging.getLogger(__name__)


class Ownership:
    """The lock on a node's first copies, held by a session of its own.

    It is for good manners: two workers that copy one table would end each other's tasks for ever.
    What keeps the data right without it are the checks of state, snapshot and position in each
    step's transaction.
    """

    def __init__(self, setup: CopySetup) -> None:
        self.setup = setup
        self._holder: Database | None = None
        self._left_to_other = False

    @property
    def left_to_other(self) -> bool:
        """Does another worker of the node make its copies?"""
        return self._left_to_other

    def acquire(self, target: Database) -> bool:
        """Take the lock unless this worker has it already; False where another worker has it.

        Never waits. `target` only looks whether the lock is free.
        """
        if self._holder is not None and self._still_holds():
            return True
        if self._try_lock(target):
            if self._left_to_other:
                log.info("first copies are this worker's again")
            self._left_to_other = False
            return True
        if not self._left_to_other:
            log.warning(
                "another worker of this node has its first copies in hand: stop one of them"
            )
        self._left_to_other = True
        return False

    def release(self) -> None:
        """Give the lock back, if this worker has it."""
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.close()

    def _try_lock(self, target: Database) -> bool:
        if not target.value(query("copy", "copies_free"), [self.setup.queue]):
            return False
        holder = self.setup.connect()
        holder.execute(query("node", "notice_dead_peer"))
        if not holder.value(query("copy", "own_copies"), [self.setup.queue]):
            holder.close()
            return False
        self._holder = holder
        return True

    def _still_holds(self) -> bool:
        try:
            assert self._holder is not None
            self._holder.execute("select 1")
        except DatabaseError:
            self.release()
            return False
        return True
