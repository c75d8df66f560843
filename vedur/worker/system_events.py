"""Events that are not about rows: members, watermarks, tables and sequences of the set, scripts.

They run in the batch's transaction, in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from vedur.catalog.execute import (
    Holding,
    execute_finish,
    execute_start,
    note_script,
    read_local_names,
    run_statements,
)
from vedur.catalog.sequences import global_remove_seq, global_update_seq
from vedur.catalog.tables import global_add_table, global_remove_table
from vedur.change.event import Event
from vedur.config import LondisteSettings
from vedur.db import Database, command, set_replication_role
from vedur.errors import OtherEpoch, RefusedError, StateError
from vedur.failpoint import reach
from vedur.node.epoch import OTHER, keeps_epochs, note_reign
from vedur.node.info import get_worker_state
from vedur.node.part import PartTick, can_combine, follow_part
from vedur.node.position import unregister_consumer
from vedur.node.state import set_global_watermark
from vedur.script.attrs import ScriptAttrs
from vedur.script.on_node import script_here
from vedur.script.script import known_as, without_transaction
from vedur.sql import query
from vedur.worker.branch_queue import BranchQueue
from vedur.worker.first_copy.scripts import begin_copies_anew

log = logging.getLogger(__name__)

#: What pgq_node.unregister_location answers for the node itself and for its provider.
_NEEDED = 403
_TRUE = frozenset(("t", "true", "y", "yes", "1", "on"))


@dataclass(frozen=True)
class Registers:
    """Which tables and sequences of the set this node records, by glob."""

    only_tables: tuple[str, ...] = ()
    skip_tables: tuple[str, ...] = ()
    only_seqs: tuple[str, ...] = ()
    skip_seqs: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: LondisteSettings) -> Registers:
        """Read what the ini says."""
        return cls(
            settings.register_only_tables,
            settings.register_skip_tables,
            settings.register_only_seqs,
            settings.register_skip_seqs,
        )

    def table(self, name: str) -> bool:
        """Is this table to be recorded?"""
        return _wanted(name, self.only_tables, self.skip_tables)

    def seq(self, name: str) -> bool:
        """Is this sequence to be recorded?"""
        return _wanted(name, self.only_seqs, self.skip_seqs)


def _wanted(name: str, only: tuple[str, ...], skip: tuple[str, ...]) -> bool:
    if only and not any(fnmatchcase(name, g) for g in only):
        return False
    return not any(fnmatchcase(name, g) for g in skip)


@dataclass
class SystemEvents:
    """Handles one event after the other on the target. `combined`: the combined queue that events
    go on to from here, and those of other parts, too."""

    db: Database
    queue: str
    registers: Registers = field(default_factory=Registers)
    branch: BranchQueue | None = None
    combined: str | None = None

    def handle(self, event: Event) -> None:
        """Do what the event says; an unknown type stops the worker."""
        kind = event.ev_type or ""  # anybody who may write to the queue can leave it out
        if kind == "EXECUTE":
            run_script(self.db, self.queue, event, self.combined)
        elif kind.startswith("pgq."):
            self._cascade(event)
        elif kind.startswith("londiste."):
            self._set(event)
        else:
            raise StateError(event.named(f"Unhandled event type in queue: {kind}"))

    def _cascade(self, event: Event) -> None:
        kind = event.ev_type
        if kind == "pgq.tick-id":
            self._follow_part(event)
            return
        node = _said(event)
        if event.ev_extra1 != self.queue:
            raise StateError(
                event.named(f"bad event in queue: {kind} is for queue {event.ev_extra1!r}")
            )
        if kind == "pgq.location-info":
            dead = (event.ev_extra3 or "").lower() in _TRUE and not self._reads_from(node)
            args = (self.queue, node, event.ev_extra2, dead)
            command(self.db, "pgq_node.register_location", *args, quiet=True)
            self._note_reign(event)
        elif kind == "pgq.unregister-location":
            self._forget_node(event, node)
        elif kind == "pgq.global-watermark":
            self._move_watermark(_number(event))
        else:
            raise StateError(event.named(f"unknown cascade event: {kind}"))

    def _reads_from(self, node: str) -> bool:
        """Is it the node that has passed this event on? One that tells of its own end is back: a
        node that took it for dead would read no more, and never be told so (tag-alive)."""
        state = get_worker_state(self.db, self.queue)
        return state is not None and state.provider_node == node

    def _follow_part(self, event: Event) -> None:
        """Write up to which tick a combined root has merged a part, as it tells: this node has that
        now, too. It matters where this node has the part itself, and may take over."""
        tick, part = _number(event), event.ev_extra1
        if part == self.queue or not part:
            raise StateError(event.named(f"bad event in queue: pgq.tick-id of {part!r}"))
        if not can_combine(self.db):
            return  # an earlier version made the schemas: nothing can be merged here
        number, _, provider = (event.ev_extra3 or "").partition(" ")
        brought = PartTick(part, tick)
        if event.ev_extra2 and event.ev_extra4 and number.isdecimal() and provider:
            brought = PartTick(part, tick, event.ev_extra2, int(number), event.ev_extra4, provider)
        follow_part(self.db, self.queue, brought)

    def _note_reign(self, event: Event) -> None:
        """Store the reign that a new root announces with its location (node/epoch.py)."""
        if event.ev_extra4 is None or not keeps_epochs(self.db):
            return
        try:
            note_reign(self.db, self.queue, event.ev_extra4)
        except RefusedError as refused:
            raise OtherEpoch(
                event.named(
                    f"{OTHER}: {refused.message}: nothing is applied; two nodes were made root: "
                    'choose one of them, and run "rejoin" or "resurrect" on the nodes of the other'
                )
            ) from refused

    def _move_watermark(self, tick: int) -> None:
        """Move the global watermark of this node; a branch with `sync_watermark` works out its own
        and only remembers the root's, which it may not pass."""
        if self.branch is not None and self.branch.sync_watermark:
            self.branch.root_watermark = tick
        else:
            set_global_watermark(self.db, self.queue, tick)

    def _forget_node(self, event: Event, node: str) -> None:
        """Forget a member. One that is told to forget itself, or the node that it reads from, reads
        what became of an earlier node of that name: a node that was dropped has no consumer at its
        provider, and nobody reads from it.

        First copies that stand on the node lose their place there and say so when they look."""
        for row in self.db.query(query("copy", "copies_at"), [self.queue, node]):
            log.warning(
                'consumer "%s" of a first copy stands on node "%s", which has left the set: the '
                "copy begins anew",
                row.consumer_name,
                node,
            )
            unregister_consumer(self.db, self.queue, row.consumer_name)
        try:
            command(self.db, "pgq_node.unregister_location", self.queue, node, quiet=True)
        except RefusedError as refused:
            if refused.code != _NEEDED:
                raise
            log.warning("%s", event.named(f"{refused.message}: it is kept, an earlier node had it"))

    def _set(self, event: Event) -> None:
        kind, data = event.ev_type, _said(event)
        if kind == "londiste.add-table":
            if self.registers.table(data):
                global_add_table(self.db, self.queue, data)
        elif kind == "londiste.remove-table":
            self._remove(event, data, global_remove_table)
        elif kind == "londiste.update-seq":
            name = event.ev_extra1 or ""
            if self.registers.seq(name):
                global_update_seq(self.db, self.queue, name, _number(event))
        elif kind == "londiste.remove-seq":
            self._remove(event, data, global_remove_seq)
        else:
            raise StateError(event.named(f"Unhandled event type in queue: {kind}"))

    def _remove(
        self, event: Event, name: str, remove: Callable[[Database, str, str], object]
    ) -> None:
        """Take something out of the set; what is not in it, is out of it.

        A node reads the list of the set when it is created, when it comes back, and before a
        table is added: then the list may be newer than the queue that it has yet to read.
        """
        try:
            remove(self.db, self.queue, name)
        except RefusedError as refused:
            if "not found" not in refused.message:
                raise
            log.debug("%s", event.named(refused.message))


def _said(event: Event) -> str:
    """Return what the event is about; none of those that come here may leave it out."""
    if not event.ev_data:
        raise StateError(event.named(f"bad event in queue: {event.ev_type} without data"))
    return event.ev_data


def _number(event: Event) -> int:
    data = _said(event)
    try:
        return int(data)
    except ValueError:
        raise StateError(
            event.named(f"bad event in queue: {event.ev_type} has {data!r} for a number")
        ) from None


# -- scripts of the set (`execute`) ---------------------------------------------------------------


def run_script(db: Database, queue: str, event: Event, combined: str | None = None) -> None:
    """Replay an EXECUTE event on this node, inside the batch's transaction.

    Statements run one by one in role `local`, so no trigger logs them. Transaction control inside
    the script is left out: the batch is the transaction. Tables that have another name here are
    renamed in the parsed statement. Nobody but the worker writes to them, unless this is the root
    of a combined queue: there the workers of other parts are held off, as writers are on a root.

    Copies that are under way begin anew behind it (first_copy/scripts.py); also behind one that
    another set has brought here before, as this set's rows have it from here on.
    """
    name, script = event.ev_extra1 or "", event.ev_data or ""
    attrs = ScriptAttrs.parse(event.ev_extra2)
    name = known_as(name, queue, attrs.values)
    # through a combined queue the event tells which part it is from
    has_run = note_script(db, name, script, event.ev_extra4 or queue)
    if not has_run:
        answer = execute_start(
            db, queue, name, script, expect_root=False, attrs=event.ev_extra2 or None
        )
        has_run = answer.code > 200
    if has_run:
        begin_copies_anew(db, queue, name, without_transaction(script))
        return
    reach("script.started")
    names = read_local_names(db, queue)
    here = script_here(db, names, script, attrs)
    if here.fits is None:
        raise StateError(event.named(f"{name}: SQL only partially matches local setup"))
    if here.fits:
        begin_copies_anew(db, queue, name, here.statements)
        whole = read_local_names(db, combined) if combined else names
        holding = Holding(name, whole, attrs) if combined else None
        run_statements(db, here.statements, holding)
    else:
        log.info("%s: This SQL does not need to run on this node.", name)
    reach("script.run")
    execute_finish(db, queue, name)
    reach("script.finished")
    set_replication_role(db, "replica")
