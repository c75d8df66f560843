"""The loop of a worker: look at the node, do one round of its role, wait for a tick or a signal.

What a round is, the role says (`roles/`). Every error is logged, shown in `status` and retried for
ever: what is not committed is still in the queue.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from vedur.db import Database
from vedur.errors import ConnectError, DatabaseError, EngineLost, StateError, VedurError
from vedur.node import WorkerState, get_worker_state
from vedur.node.endpoint import Endpoint
from vedur.node.killed_move import give_up_killed_move
from vedur.node.state import set_consumer_uptodate
from vedur.worker.context import WorkerContext
from vedur.worker.recovery import Recovery
from vedur.worker.roles import Role, choose_role

log = logging.getLogger(__name__)

#: A paused worker looks that often, so that `resume` is answered at once: with loop_delay alone,
#: half a second of catching up with a backlog was the wait for this. A look takes about 1 ms.
_PAUSED_DELAY = 0.1

#: Seconds between two looks of a paused worker: was the command killed that has paused it?
_NOTE_PERIOD = 1.0

#: A merge joins what a batch staged with the table: in memory, not through files.
_MERGE_MEMORY = "64MB"


@dataclass
class Worker(WorkerContext):
    """One node's worker."""

    _target: Database | None = None
    _opened: float = 0.0  # when the connection to the target was made
    _role: Role | None = None
    _paused: bool = False
    _next_note: float = 0.0  # when to look for a move that was killed
    _recovery: Recovery = field(init=False)

    def __post_init__(self) -> None:
        self._recovery = Recovery(self.signals, self.spark_log)

    def run(self) -> None:
        """Work until told to stop."""
        try:
            while not self.signals.stop.is_set():
                self._reload_if_asked()
                if not self._work_safely():
                    if self.settings.loop_delay == 0:
                        break
                    self._wait()
        finally:
            self._close()

    # -- one round ------------------------------------------------------------------------------

    def work(self) -> bool:
        """Do one round; True if the next should follow at once.

        What an operator asked for is accepted (`uptodate`) before it is read for this round: a
        command that waits for the answer, as `pause` does, may rely on it.
        """
        self._renew_connections()
        target = self._open_target()
        state = self._read_state(target)
        while not state.uptodate:
            if not state.paused and self._role is not None:
                self._role.disconnect()
            set_consumer_uptodate(target, self.queue, state.worker_name, True)
            # A request that came between the two is accepted with the one before it: follow it.
            state = self._read_state(target)
        if self.on_node is not None:
            self.on_node(state.node_name)
        self._paused = state.paused
        if state.paused:
            self._take_role(state).rest(target, state)
            self.say_alive()
            return self._give_up_move(target, state)
        return self._take_role(state).do_round(target, state)

    def _give_up_move(self, target: Database, state: WorkerState) -> bool:
        """Go on after all, where the command that has paused this worker was killed."""
        now = self.clock.monotonic()
        if now < self._next_note:
            return False
        self._next_note = now + _NOTE_PERIOD
        return give_up_killed_move(target, self.queue, state.worker_name)

    def _read_state(self, target: Database) -> WorkerState:
        state = get_worker_state(target, self.queue)
        if state is None:
            raise StateError(
                f'queue "{self.queue}" has no node here: run create-leaf, create-branch or '
                "create-root first"
            )
        return state

    def _take_role(self, state: WorkerState) -> Role:
        """Go on in the role that the node has now; it may have got another one."""
        wanted = choose_role(state)
        if type(self._role) is not wanted:
            if self._role is not None:
                self._role.disconnect()
            self._role = wanted(self)
        assert self._role is not None
        return self._role

    # -- waiting --------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for a tick, a signal, or loop_delay."""
        delay = max(self.settings.loop_delay, 0.05)
        if self._paused:
            delay = min(delay, _PAUSED_DELAY)  # ticks are listened to even so, or they pile up
        listener = self._role.listener if self._role is not None else None
        if listener is None:
            pace = self._role.pace if self._role is not None and not self._paused else 1
            self.signals.wait(delay * pace)
            return
        deadline = self.clock.monotonic() + delay
        try:
            while not self.signals.stop.is_set():
                left = deadline - self.clock.monotonic()
                if left <= 0 or self.signals.wake.is_set():
                    self.signals.wake.clear()
                    return
                for notice in listener.notifications(min(left, 0.5)):
                    if notice.payload.rpartition(":")[0] == self.queue:
                        return
        except DatabaseError as error:
            log.debug("listening for ticks failed: %s", error)
            if self._role is not None:
                self._role.disconnect()

    # -- errors ---------------------------------------------------------------------------------

    def _work_safely(self) -> bool:
        try:
            again = self.work()
        except Exception as error:
            self._recover(error)
            return True
        self._recovery.reset()
        return again

    def _recover(self, error: Exception) -> None:
        """Report, let go of everything, wait."""
        role = self._role
        if self.signals.at_once:
            log.debug("given up: %s", error)  # it was cancelled, as asked
            self._close_connections(doubtful=True)
            return
        # what Spark's client says about a Java that has gone tells nobody anything
        if not isinstance(error, VedurError) and role and role.has_lost_spark(thorough=True):
            error = EngineLost()
        self._recovery.report(self.settings, error)
        self._close_connections(doubtful=True)
        if self.on_alive is not None:
            self._tell_failure(error)
        self._recovery.pause(self.settings, error, role.provider_connstr if role else "")

    def _tell_failure(self, error: Exception) -> None:
        """Tell the starter that the worker cannot work yet; a server that is away is waited for."""
        if self.on_failed is not None:
            self.on_failed(error)  # there are other workers: this one goes on trying beside them
        elif isinstance(error, ConnectError):
            self.say_alive()
        else:
            raise error  # a start that cannot work should fail in front of its starter

    # -- connections ----------------------------------------------------------------------------

    def _open_target(self) -> Database:
        if self._target is not None and self._target.closed:
            # what was staged on it may be gone: a crash empties staging tables
            self._close_connections()
        if self._target is None:
            self._target = Endpoint.of_local(self.settings).open("db")
            self._target.without_timeouts().with_memory("work_mem", _MERGE_MEMORY)
            self._opened = self.clock.monotonic()
        return self._target

    def _renew_connections(self) -> None:
        age = self.clock.monotonic() - self._opened
        if self._target is not None and age > self.settings.connection_lifetime:
            self._close_connections()

    def _close_connections(self, *, doubtful: bool = False) -> None:
        """Let go of both databases; `doubtful`: nothing that is staged may be used again."""
        if self._role is not None:
            if doubtful:
                self._role.distrust()
            else:
                self._role.disconnect()
        if self._target is not None:
            self._target.close()
        self._target = None

    def _close(self) -> None:
        if self.copies is not None:
            self.copies.stop()
        self._close_connections()

    # -- settings -------------------------------------------------------------------------------

    def _reload_if_asked(self) -> None:
        if not self.signals.take_reload() or self.reload is None:
            return
        try:
            self.settings = self.reload()
            log.info("Config reloaded")
            self._close_connections(doubtful=True)
        except VedurError as error:
            log.error("%s; going on with the old settings", error.message)
