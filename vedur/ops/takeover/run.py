"""takeover: make another node the root, with nothing lost and a way back.

Everything is looked at first (`checks.py`). Then come steps that can be repeated, each one
transaction on one node, whose state the nodes keep themselves (`vedur/node/takeover.py`):

    move the others   with --all, before anything is closed
    catch up          a fresh tick of the old root reaches the new one
    close             the old root refuses writers, and says for whom
    drain             transactions that began before have ended (`drain.py`)
    last tick         nothing of the old root is behind it
    follow            the new root has applied that tick
    promote           the new root is open, with an epoch of its own; the old one is subscribed
    turn              the old root is a branch of the new one
    leave             nobody keeps a place for the new root any more (`leave.py`)
    compare           its tables are those of the new root (`verify.py`)

As soon as the new root is open the hook leads applications there, before the old one is turned:
that one may be lost just now. Until the promotion an error, an interrupt or --abort opens the old
root again (`undo.py`), and lets the hook undo what it has done. The epoch of the new reign is
chosen when the old root is closed, and undoing bars it on the new root first: a command that hangs
cannot promote it any more. After the promotion the same command finishes what is left, or
--dead-root does where the old root is gone; that epoch tells it from a failover.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from vedur.db import Answer, Database, command
from vedur.errors import DatabaseError, StateError, UsageError, VedurError
from vedur.failpoint import reach
from vedur.log import mask
from vedur.node.epoch import add_reigns, keeps_epochs
from vedur.node.fresh_tick import fresh_tick
from vedur.node.info import get_node_info, get_subscriber_info
from vedur.node.move_lock import try_lock_move, unlock_move
from vedur.node.part import read_parts
from vedur.node.plan import (
    TAKEOVER_EPOCH,
    TAKEOVER_TICK,
    TAKEOVER_TIME,
    TAKEOVER_TO,
    TAKEOVER_TXID,
    Member,
    plan_move,
    require_member,
)
from vedur.node.position import (
    complete_tick,
    get_tick,
    keeps_ticks,
    lock_position,
    read_newest_tick,
    read_position,
)
from vedur.node.setup import (
    OTHER_JOB,
    register_location,
    register_subscriber,
    require_own_consumer,
    unregister_subscriber,
    untag,
)
from vedur.node.state import set_consumer_paused
from vedur.node.takeover import (
    Note,
    TakeoverProgress,
    find_ended,
    find_reign,
    find_rival,
    judge_progress,
    numbered,
    plan_branch,
    plan_live,
    read_note,
    replaced,
    require_turned,
)
from vedur.ops.change_provider import run_move
from vedur.ops.members import SetView, read_member, read_members
from vedur.ops.pause import NoAnswer, wait_accepted
from vedur.ops.session import Session
from vedur.ops.takeover.checks import Candidate, find_reasons, require_ready
from vedur.ops.takeover.drain import wait_for_writers
from vedur.ops.takeover.leave import end_subscriptions
from vedur.ops.takeover.note import require_note, set_note
from vedur.ops.takeover.options import TakeoverOptions, run_hook
from vedur.ops.takeover.sequences import (
    follow_sequences,
    read_sequence_values,
    take_sequences,
)
from vedur.ops.takeover.undo import ask_again, hook_abort, reopen, undo_takeover
from vedur.ops.takeover.verify import Verdict, compare_old_root
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)

_PERIOD = 0.02
#: Seconds. A worker of Londiste's looks at its state in every round, by default once a second.
_FOREIGN_WAIT = 30.0


def takeover(
    session: Session, old: str, options: TakeoverOptions, spark: SparkSession | None = None
) -> Verdict:
    """Let a node (default: the local one) take the place of another; returns what is known of the
    tables of an old root that answers."""
    from vedur.ops.takeover.failover import fail_over, replace_dead_branch

    gone = (old,) if options.dead_root or options.dead_branch else ()
    view = read_members(session, (*options.dead, *gone))
    new = options.node or view.local
    log.info("old: %s", old)
    if old not in view.members:
        raise StateError(f"Unknown node: {old}")
    if old == new and not options.abort:  # the old root says itself who was to take over
        raise StateError(f'node "{old}" cannot take over from itself: say --node')
    if options.abort:
        undo_takeover(session, view, old, options)
    elif options.dead_root:
        return fail_over(session, view, old, new, options)
    elif options.dead_branch:
        replace_dead_branch(session, view, old, new, options)
    elif _require_old(view, old, new).is_root or require_member(view.members, new).is_root:
        _Live(session, view, old, new, options).run()
        if options.compare and not options.dry_run:
            return compare_old_root(session, view, old, spark)
    else:
        _replace_branch(session, view, old, new, options)
    return Verdict.EQUAL


def _require_old(view: SetView, old: str, new: str) -> Member:
    """Return the node that is to be replaced; raises where it does not answer, and says what can be
    done then."""
    member, heir = view.members[old], view.members.get(new)
    if member.answers:
        return member
    gone = f"takeover {old} --dead-root --node={new}"
    if heir is not None and heir.answers and heir.is_root:
        way = f'"{new}" is root already, and takes writes; if "{old}" is gone, {gone} ends it'
    else:
        way = f"if it is gone, {gone} goes on without it (a branch: --dead-branch)"
    back = f'; if it is back, run "tag-alive {old}" first' if member.dead else ""
    raise StateError(
        f'node "{old}" does not answer ({member.failure}): nothing is changed{back}; {way}'
    )


def check_switchover(session: Session, options: TakeoverOptions) -> tuple[str, str, list[str]]:
    """Read whether a node (default: the local one) could become root now: both names, and every
    reason against it; nothing is changed but a tick that is written."""
    view = read_members(session, options.dead)
    new = options.node or view.local
    member = require_member(view.members, new)
    members = view.members
    roots = [
        m
        for m in members.values()
        if m.answers and m.is_root and find_ended(members, m.name) is None
    ]
    if len(roots) != 1:
        found = ", ".join(m.name for m in roots) or "none"
        raise StateError(f"roots that answer: {found}; there must be one")
    if member.is_root:
        return member.name, member.name, [f'node "{new}" is the root already']
    try:
        require_turned(members, roots[0].name)
        begun = judge_progress(roots[0], member) is not TakeoverProgress.OPEN
    except StateError as error:
        return roots[0].name, new, [error.message]
    if begun:
        way = f"run takeover {roots[0].name} --node={new} to finish it, or with --abort to undo it"
        return roots[0].name, new, [f"that takeover was begun: {way}"]
    live = _Live(session, view, roots[0].name, new, options)
    reasons = live.find_reasons()
    if not reasons:
        try:
            live.catch_up()
        except StateError as error:
            reasons = [error.message]
    return roots[0].name, new, reasons


def _replace_branch(
    session: Session, view: SetView, old: str, new: str, options: TakeoverOptions
) -> None:
    """Let a node take the place of a branch that answers: both move, and with --all its others."""
    if options.max_lag is not None or not options.compare:
        raise UsageError(
            f'"{old}" is a branch: --max-lag and --no-compare are for the takeover of a root, '
            "leave them out"
        )
    above, moves = plan_branch(view.members, old, new, everybody=options.everybody)
    lines = [f'let "{node}" read from "{provider}"' for node, provider in moves]
    _show([f"{at}. {line}" for at, line in enumerate(lines, 1)], options)
    if options.dry_run:
        return
    if not moves:
        raise StateError(f'node "{new}" reads from "{above}" and "{old}" from it: nothing to do')
    for node, provider in moves:
        run_move(session, view, plan_move(view.members, node, provider), options.timeout)
        view = read_members(session, options.dead)
        reach("takeover.branch_moved")


def _show(lines: list[str], options: TakeoverOptions) -> None:
    for line in lines:
        log.log(logging.INFO if options.dry_run else logging.DEBUG, "%s", line)
    if options.dry_run:
        log.info("Nothing is changed: --dry-run")


# -- a root that answers ---------------------------------------------------------------------------


class _Live:
    """A takeover of a root that answers."""

    def __init__(
        self, session: Session, view: SetView, old: str, new: str, options: TakeoverOptions
    ) -> None:
        self.session, self.view, self.options = session, view, options
        self.old, self.new = require_member(view.members, old), require_member(view.members, new)
        self.root, self.db = view.databases[old], view.databases[new]
        self.queue, self.clock = session.queue, session.clock
        self._closed_at: float | None = None
        self._before = False  # the hook was told that writers are to be held back
        self._after: StateError | None = None  # what became of letting them go to the new root
        self._deadline = self.clock.monotonic() + options.timeout

    def run(self) -> None:
        """Do what is left."""
        everybody = self.options.everybody
        names = (self.old.name, self.new.name)
        progress, others, steps = plan_live(self.view.members, *names, everybody=everybody)
        _show(numbered(steps), self.options)
        if self.options.dry_run:
            self._require_fit(progress)
            return
        with self._one_at_a_time():
            # the same command may have been at work elsewhere until it gave the locks back
            self.old, self.new = self._now(self.old), self._now(self.new)
            self.view.members.update({member.name: member for member in (self.old, self.new)})
            progress, others, _ = plan_live(self.view.members, *names, everybody=everybody)
            self._require_fit(progress)
            if progress is not TakeoverProgress.DONE:
                self._do_rest(progress, others)
            else:
                self._release()
            end_subscriptions(self.session, self.view, self.new.name)
        self._finish()

    def _do_rest(self, progress: TakeoverProgress, others: list[str]) -> None:
        try:
            if progress is TakeoverProgress.OPEN:
                self._prepare(others)
            note = self._hand_over(progress)
        except BaseException as error:  # an interrupt, too: writers must not be kept out for it
            self._undo(error)
            raise
        self._release()
        try:
            self._turn(note)
        except DatabaseError as error:
            old, new = self.old.name, self.new.name
            raise StateError(
                f'"{new}" is the root and takes writes, and "{old}" is no branch yet '
                f"({mask(error.message)}): run the same command again when it answers, or, if it "
                f"is gone, takeover {old} --dead-root --node={new}"
            ) from error

    def find_reasons(self) -> list[str]:
        """Read everything that speaks against it."""
        return find_reasons(self._candidate())

    def _candidate(self) -> Candidate:
        return Candidate(self.session, self.view, self.new, self.old, self.options.lag)

    def _require_fit(self, progress: TakeoverProgress) -> None:
        """Raise where another node was made root, and before anything is closed for every reason
        that speaks against it."""
        if progress < TakeoverProgress.PROMOTED:
            rival = find_rival(self.view.members, self.old.name)
            if rival is not None:
                raise StateError(replaced(self.old.name, rival))
        if progress is not TakeoverProgress.OPEN:
            return
        require_turned(self.view.members, self.old.name)
        reasons = self.find_reasons()
        for reason in reasons:
            log.warning("%s", reason)
        if reasons:
            more = f" (and {len(reasons) - 1} more, see above)" if len(reasons) > 1 else ""
            raise StateError(
                f'"{self.new.name}" cannot take over: {reasons[0]}{more}; nothing is changed'
            )
        reach("takeover.checked")

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Keep other commands that move these nodes out."""
        with ExitStack() as stack:
            for name, db in ((self.old.name, self.root), (self.new.name, self.db)):
                if not try_lock_move(db, self.queue):
                    raise StateError(
                        f'another command moves node "{name}" just now: wait for it to end'
                    )
                stack.callback(unlock_move, db, self.queue)
            yield

    # -- before the window ----------------------------------------------------------------------

    def _prepare(self, others: list[str]) -> None:
        for name in others:
            move = plan_move(self.view.members, name, self.new.name)
            run_move(self.session, self.view, move, self.options.timeout)
            reach("takeover.moved")
        self.catch_up()
        reach("takeover.caught_up")
        self._before = True
        self._hook("before")

    def catch_up(self) -> None:
        """Write a tick on the old root and wait until the new one has applied it: that shows that
        its worker runs, and that nothing long lies before it."""
        info = get_node_info(self.root, self.queue)
        assert info is not None
        tick = fresh_tick(self.root, self.queue, info, self.clock)
        deadline = self.clock.monotonic() + max(self.options.lag, 1.0)
        at = self._wait(lambda: self._position() >= tick.id, deadline)
        if not at:
            raise StateError(
                f'"{self.new.name}" has not applied tick {tick.id} of now within '
                f"{max(self.options.lag, 1.0):.0f} s, it is at tick {self._position()}: see "
                "that its worker runs and keeps up, or use --max-lag; nothing is changed"
            )
        found = get_tick(self.db, self.queue, tick.id, self.new.name)
        if found is not None and not found.same_elsewhere(tick):
            raise StateError(f"{_other_tick(tick.id, self.old, self.new)}; nothing is changed")
        self._require_parts_known()

    def _require_parts_known(self) -> None:
        """Raise where the new node claims to have more of a part than the old root: it was made a
        part a moment ago, and the combined queue has yet to tell of it."""
        if not self.old.parts and not self.new.parts:
            return
        mine = read_parts(self.db, self.queue)
        theirs = read_parts(self.root, self.queue)
        for name, part in mine.items():
            if name not in theirs or part.tick > theirs[name].tick:
                raise StateError(
                    f'part "{name}" stands at tick {part.tick} on "{self.new.name}", and '
                    f'"{self.old.name}" is behind that: see that its worker on "{self.old.name}" '
                    "runs, and run it again; nothing is changed"
                )

    def _position(self) -> int:
        return read_position(self.db, self.queue, self.new.worker) or 0

    def _wait(self, condition: Callable[[], bool], deadline: float) -> bool:
        while not condition():
            if self.clock.monotonic() >= deadline:
                return condition()
            self.clock.sleep(_PERIOD)
        return True

    # -- the window -----------------------------------------------------------------------------

    def _hand_over(self, progress: TakeoverProgress) -> Note:
        """Do the steps from closing to promotion."""
        self._deadline = self.clock.monotonic() + self.options.timeout
        note = (
            self._close() if progress is TakeoverProgress.OPEN else read_note(self._now(self.old))
        )
        if note is None:
            raise StateError(f'the takeover of "{self.old.name}" was undone meanwhile')
        if progress is TakeoverProgress.PROMOTED:
            return note
        self._know_the_closing()
        note = self._write_last_tick(note)
        self._follow(note)
        self._promote(note)
        return note

    def _know_the_closing(self) -> None:
        """Find out when writers were refused first, where an earlier run has done that."""
        began = self._now(self.old).attrs.get(TAKEOVER_TIME)
        if self._closed_at is None and began is not None:
            ago = float(self.root.value(query("takeover", "seconds_since"), [began]))
            self._closed_at = self.clock.monotonic() - ago

    def _now(self, member: Member) -> Member:
        return read_member(self.view.databases[member.name], self.queue, member.name)

    def _close(self) -> Note:
        """Refuse writers from now on, and say who takes over; in one transaction."""
        with self.root.transaction():
            self._demote(1)
            txid = int(self.root.value(query("takeover", "txid")))
            note = Note(self.new.name, str(self.db.value(query("takeover", "new_epoch"))), txid)
            set_note(self.root, self.queue, {
                TAKEOVER_TO: note.to,
                TAKEOVER_EPOCH: note.epoch,
                TAKEOVER_TXID: str(txid),
                TAKEOVER_TIME: str(self.root.value(query("takeover", "now_text"))),
            })  # fmt: skip
        self._closed_at = self.clock.monotonic()
        reach("takeover.closed")
        return note

    def _demote(self, step: int) -> Answer:
        """Do a step of the contract on the old root; raises where it is none any more."""
        args = (self.queue, step, None)
        answer = command(self.root, "pgq_node.demote_root", *args, node=self.old.name, quiet=True)
        if answer.code != 200:
            raise StateError(f'"{self.old.name}": {answer.note}: another command was quicker')
        return answer

    def _write_last_tick(self, note: Note) -> Note:
        """Wait for old transactions and write the last tick; no event may be behind it."""
        if note.tick is not None and self._first_behind(note.tick) is None:
            return note
        wait_for_writers(self.root, self.queue, note.txid, self.clock, self._deadline)
        reach("takeover.drained")
        with self.root.transaction():
            self._limit_locks(self.root)
            tick = int(self._demote(2).row.last_tick)
            require_note(self.root, self.queue, self.old.name, note)
            set_note(self.root, self.queue, {TAKEOVER_TICK: str(tick)}, keep=True)
        reach("takeover.ticked")
        event = self._first_behind(tick)
        if event is not None:
            raise StateError(
                f'event {event} of "{self.old.name}" was written behind its last tick {tick}'
            )
        return Note(note.to, note.epoch, note.txid, tick)

    def _limit_locks(self, db: Database) -> None:
        """Wait for locks in this transaction no longer than writers may be refused."""
        left = max(self._deadline - self.clock.monotonic(), 1.0)
        db.value(query("takeover", "lock_timeout"), [f"{int(left * 1000)}ms"])

    def _first_behind(self, tick: int) -> int | None:
        row = self.root.one(query("takeover", "events_behind"), [self.queue, tick])
        if row is None:
            raise StateError(f'tick {tick} of "{self.old.name}" has gone')
        text = query("takeover", "first_behind").format(events=row.events)
        event = self.root.value(text, {"snapshot": row.snapshot})
        return None if event is None else int(event)

    def _follow(self, note: Note) -> None:
        if not self._wait(lambda: self._stands_at(note.tick), self._deadline):
            raise StateError(
                f'"{self.new.name}" has not applied the last tick {note.tick} of '
                f'"{self.old.name}" in time, it is at tick {self._position()}'
            )
        reach("takeover.followed")

    def _stands_at(self, tick: int | None) -> bool:
        return self._position() == tick == read_newest_tick(self.db, self.queue)

    def _promote(self, note: Note) -> None:
        """Make the new node root, with sequences ahead and the old root subscribed."""
        values = read_sequence_values(self.root, self.queue)
        last = get_tick(self.root, self.queue, note.tick or 0, self.old.name)
        require_note(self.root, self.queue, self.old.name, note)
        with self.db.transaction():
            self._limit_locks(self.db)
            lock_position(self.db, self.queue, self.new.worker)
            found = get_tick(self.db, self.queue, note.tick or 0, self.new.name)
            if last is None or found is None or not found.same_elsewhere(last):
                raise StateError(_other_tick(note.tick or 0, self.old, self.new))
            require_ready(self._candidate())
            take_sequences(self.db, self.queue, values)
            self._require_parts()
            args = (self.queue, note.epoch, "takeover", note.tick)
            command(self.db, "vedur.promote", *args, node=self.view.prefix(self.new.name))
            subscribe_at(self.db, self.queue, self.view, self.new.name, self.old, note.tick or 0)
        reach("takeover.promoted")
        if self._closed_at is not None:
            window = self.clock.monotonic() - self._closed_at
            log.info("Writers were refused for %.2f s", window)

    def _require_parts(self) -> None:
        """Raise unless the new root has every part up to the tick that the old one has, which takes
        nothing of a part since it is closed: from there the new one goes on."""
        if not self.old.parts and not self.new.parts:
            return
        here, there = read_parts(self.db, self.queue), read_parts(self.root, self.queue)
        for name in sorted({*here, *there}):
            mine, theirs = here.get(name), there.get(name)
            if mine is None or theirs is None or mine.tick != theirs.tick:
                at = [f"at tick {part.tick}" if part else "nowhere" for part in (mine, theirs)]
                raise StateError(
                    f'part "{name}" stands {at[0]} on "{self.new.name}" and {at[1]} on '
                    f'"{self.old.name}": run it again when its workers on both nodes have gone on'
                )
        reach("takeover.parts_level")

    def _undo(self, error: BaseException) -> None:
        """Open the old root again unless the new one is promoted, and let the hook undo what it
        was told before; say what is to be done."""
        try:
            note = read_note(self._now(self.old))
            if note is not None and find_reign(self._now(self.new), note.epoch) is not None:
                log.error(
                    '"%s" is the root, and "%s" is no branch yet: run the same command again to '
                    "finish the takeover",
                    self.new.name,
                    self.old.name,
                )
                self._release()
                return
            if note is not None:
                rival = find_rival(ask_again(self.session, self.view), self.old.name)
                if rival is not None:
                    raise StateError(replaced(self.old.name, rival, note))
                reopen(self.session, self.root, self.db, self.old.name, note)
                log.error('"%s" takes writes again: the takeover is undone', self.old.name)
            elif not self._before:
                return
        except VedurError as again:
            held = " (applications that takeover_hook holds back wait until then)"
            log.error(
                '"%s" may be closed for writers (%s): run the same command again to finish the '
                'takeover, or with --abort to undo it%s; if "%s" is gone, takeover %s --dead-root '
                "--node=%s goes on without it",
                self.old.name,
                mask(again.message),
                held if self._before and self.session.settings.takeover_hook else "",
                *(self.old.name, self.old.name, self.new.name),
            )
            return
        here = self.view.locations[self.old.name].node_location
        hook_abort(self.session, self.old.name, self.new.name, here, self.options)

    # -- afterwards -----------------------------------------------------------------------------

    def _turn(self, note: Note) -> None:
        """Make the old root a branch of the new one, which reads from it no longer."""
        now = read_note(self._now(self.old))
        tick = note.tick if note.tick is not None else (now.tick if now else None)
        reign = find_reign(self._now(self.new), note.epoch)
        if tick is None or reign is None or reign.first_tick != tick:
            raise StateError(
                f'"{self.new.name}" has not begun its reign at the last tick of "{self.old.name}": '
                f'nothing more is changed; run "resurrect" with the ini of "{self.old.name}"'
            )
        root, queue = self.root, self.queue
        foreign = not keeps_epochs(root)
        if foreign:
            self._stop_foreign_worker()
        with root.transaction():
            lock_position(root, queue, self.old.worker)
            if foreign:
                set_consumer_paused(root, queue, self.old.worker, False)
            args = (queue, 3, self.new.name)
            command(root, "pgq_node.demote_root", *args, node=self.view.prefix(self.old.name))
            follow_sequences(root, queue)
            require_note(root, queue, self.old.name, note)
            if keeps_ticks(root):
                applied = get_tick(self.db, queue, tick, self.new.name)
                if applied is not None:
                    complete_tick(root, queue, self.old.worker, applied, silent=True)
            if self.new.name in [item.node_name for item in get_subscriber_info(root, queue)]:
                unregister_subscriber(root, queue, self.new.name, node=self.old.name)
            add_reigns(root, self.db, queue)  # so that it can tell writers at once where to go
            set_note(root, queue, None)
        untag(self.db, queue, self.old.name)  # a run that ended here may have called it dead
        reach("takeover.turned")

    def _stop_foreign_worker(self) -> None:
        """Pause the worker of a root of Londiste's, and wait until it stands still: it ends where
        its node is no root any more while it writes the watermark. It goes on in the transaction
        that turns the node, so a command that is killed between the two is run again."""
        set_consumer_paused(self.root, self.queue, self.old.worker, True)
        try:
            wait_accepted(
                self.session, self.root, self.old.name, self.old.worker,
                paused=True, max_wait=_FOREIGN_WAIT,
            )  # fmt: skip
        except NoAnswer as error:
            log.warning("%s: start it when the takeover is done", error.message)

    def _release(self) -> None:
        """Let the hook lead applications to the new root, which is open, whatever becomes of the
        old one; where that fails, the takeover goes on, and says so at its end."""
        try:
            self._hook("after")
        except StateError as error:
            self._after = error
            log.error('"%s" is the root, but its applications may be held back', self.new.name)

    def _finish(self) -> None:
        log.info("'%s' is the root, '%s' reads from it", self.new.name, self.old.name)
        log.info("Way back: takeover %s --node=%s", self.new.name, self.old.name)
        reach("takeover.finished")
        if self._after is not None:
            raise self._after

    def _hook(self, moment: str) -> None:
        run_hook(
            self.session.settings,
            moment,
            self.old.name,
            self.new.name,
            self.view.locations[self.new.name].node_location,
            self.options.timeout,
        )


def _other_tick(tick: int, old: Member, new: Member) -> str:
    return (
        f'tick {tick} that "{new.name}" has applied is not tick {tick} of "{old.name}": one of '
        f'them was restored from a backup, and what "{old.name}" has written since is not on '
        f'"{new.name}": run "rejoin" on "{new.name}"'
    )


def subscribe_at(
    db: Database, queue: str, view: SetView, new: str, node: Member, tick: int
) -> None:
    """Subscribe a node to the new root at a tick; what an earlier run left is replaced. Raises
    where the consumer by which it would read is another node's."""
    require_own_consumer(db, queue, node.name, node.worker, new, OTHER_JOB)
    if node.name in [item.node_name for item in get_subscriber_info(db, queue)]:
        unregister_subscriber(db, queue, node.name)
    if not db.value(query("node", "knows_location"), [queue, node.name]):
        there = view.locations[node.name]
        register_location(db, queue, there.node_name, there.node_location, there.dead)
    register_subscriber(db, queue, node.name, node.worker, tick)
