"""The worker's side of the hand-over: it takes a table over from its copy at an agreed tick.

A copy that has caught up asks for it (`wanna-sync:T`); the worker answers with the tick at which it
stands (`do-sync:T2`) and waits there until the copy has replayed up to that tick. The copy's side
is in `catch_up.py`, the rules are in `states.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from vedur.catalog import TableInfo
from vedur.catalog.tables import change_table_state, change_table_states, hold_tables
from vedur.clock import Clock
from vedur.db import Database
from vedur.errors import DatabaseError
from vedur.node.position import lock_worker_position
from vedur.sql import query
from vedur.worker.first_copy.context import CopySetup
from vedur.worker.first_copy.states import MergeState, State, answer_hand_over, must_wait

log = logging.getLogger(__name__)

_LOCK_TIMEOUT = "55P03"


class HandOver:
    """Answers copies that ask for the hand-over. `wake` wakes the copy of a table."""

    def __init__(self, setup: CopySetup, clock: Clock, wake: Callable[[str], None]) -> None:
        self.setup = setup
        self.clock = clock
        self._wake = wake
        self._agreed_at: dict[str, tuple[MergeState, float]] = {}

    def answer(self, target: Database, tables: Sequence[TableInfo], position: int) -> bool:
        """Write the worker's answers; True if it must wait at `position` for a copy."""
        states = {t.table_name: MergeState.parse(t.merge_state) for t in tables}
        answers = {n: answer_hand_over(state, position) for n, state in states.items()}
        asking = [t for t in tables if answers[t.table_name] != states[t.table_name]]
        agreed = self._agree(target, asking, position)
        wait = False
        for table in tables:
            name = table.table_name
            answer = answers[name]
            if answer != states[name]:
                if name not in agreed:
                    continue
                log.debug("%s: %s", name, answer)
                self._wake(name)
            if must_wait(answer, position) and not self._postpone(target, table, answer):
                wait = True
        return wait

    def _agree(self, target: Database, tables: Sequence[TableInfo], position: int) -> set[str]:
        """Write the answers, if the node still stands where this worker saw it; returns the names
        of the tables that have one.

        The lock is that of a batch's commit: another worker may be about to pass the tick. A table
        that somebody else has locked is answered in the next round.
        """
        if not tables:
            return set()
        queue = self.setup.queue
        with target.transaction():
            if lock_worker_position(target, queue) != position:
                return set()
            held = hold_tables(target, queue, tables)
            answer = str(MergeState(State.DO_SYNC, position))
            wanted = [table for table in tables if table.table_name in held]
            change_table_states(target, queue, wanted, answer, keep_snapshot=True)
        return held

    def _postpone(self, target: Database, table: TableInfo, state: MergeState) -> bool:
        """Set a copy back that does not reach the agreed tick in time, so that other tables go on;
        it asks again when it can. False where there is still time, or it is merging just now."""
        now, name = self.clock.monotonic(), table.table_name
        agreed, since = self._agreed_at.get(name, (None, now))
        if agreed != state or table.merge_state != str(state):  # agreed on just now
            since = now
        self._agreed_at[name] = (state, since)
        if now - since < max(self.setup.hand_over_wait, 0.001):
            return False
        back, queue = State.CATCHING_UP.value, self.setup.queue
        try:
            with target.transaction():
                target.execute(query("copy", "short_lock"))
                if change_table_state(target, queue, table, table.custom_snapshot, back) is None:
                    return False
        except DatabaseError as error:
            if error.sqlstate != _LOCK_TIMEOUT:
                raise
            return False  # it is merging
        log.warning("%s: did not come to tick %s in %g s, other tables go on without it", name,
                    state.tick, self.setup.hand_over_wait)  # fmt: skip
        self._wake(name)
        return True
