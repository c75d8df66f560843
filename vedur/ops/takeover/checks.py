"""What must be so before a node can become root: every reason against it, and nothing is changed.

Each check reads one thing and yields sentences for an operator. `switchover --check` prints them,
`takeover` refuses while there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from vedur.catalog.copy_source import unready_parts
from vedur.catalog.sequences import get_seq_list
from vedur.catalog.tables import TableInfo, get_table_list, missing_part
from vedur.catalog.watch import read_lacks_of_dead, read_table_problems
from vedur.db import Database
from vedur.errors import StateError
from vedur.names import quote_literal
from vedur.node.epoch import Match, is_other_epoch, match_reigns, read_reigns
from vedur.node.info import get_worker_state
from vedur.node.part import can_combine, read_parts
from vedur.node.plan import Member, explain_ahead
from vedur.node.position import is_lost, read_newest_tick
from vedur.node.setup import OTHER_JOB, require_own_consumer
from vedur.node.takeover import require_no_moves
from vedur.ops.fitness import unfit_keys
from vedur.ops.members import SetView
from vedur.ops.session import Session
from vedur.sql import query
from vedur.status.snapshot import tick_ages
from vedur.tables.mapping import TableMap

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """A node that is to become root, and the root that it replaces: None where that is gone."""

    session: Session
    view: SetView
    new: Member
    old: Member | None
    max_lag: float

    @property
    def db(self) -> Database:
        """The node's database."""
        return self.view.databases[self.new.name]

    @property
    def root(self) -> Database | None:
        """The database of the old root."""
        return self.view.databases[self.old.name] if self.old is not None else None

    @property
    def queue(self) -> str:
        """The name of the set."""
        return self.session.queue


def find_reasons(candidate: Candidate) -> list[str]:
    """Read everything that speaks against a takeover; empty if nothing does."""
    _warn_of_dead(candidate)
    reasons = list(_node(candidate))
    if reasons:
        return reasons  # the rest could not be read, or would only repeat it
    found = [*_rights(candidate), *_tables(candidate), *_sequences(candidate)]
    found += [*_processes(candidate), *_lag(candidate), *_epoch(candidate), *_parts(candidate)]
    return [*found, *_consumer(candidate), *_copies(candidate)]


def _warn_of_dead(candidate: Candidate) -> None:
    """Log what nodes that are tagged as dead will lack when they come back: the new root does not
    know of it."""
    if candidate.root is None:
        return
    for table, what, nodes in read_lacks_of_dead(candidate.root, candidate.queue):
        log.warning(
            "%s: %s; %s (tagged as dead) has not got that, and nobody tells after the takeover: "
            "resync the table there when it is back",
            table,
            what,
            nodes,
        )


def require_ready(candidate: Candidate) -> None:
    """Raise where tables or sequences of the node are not what they were when all was looked at:
    hours may have passed since, and batches were applied. Belongs in the transaction of the
    promotion."""
    reasons = [*_tables(candidate), *_sequences(candidate)]
    if reasons:
        raise StateError(f'"{candidate.new.name}" cannot take over any more: {reasons[0]}')


def _node(candidate: Candidate) -> Iterator[str]:
    new, old = candidate.new, candidate.old
    if not new.is_branch:
        yield f'node "{new.name}" is a {new.type}: only a branch can become root'
        return
    if new.paused:
        yield f'the worker of "{new.name}" is paused: run resume --node={new.name}'
    names = [m.name for m in (new, old) if m is not None]
    require_no_moves(candidate.view.members, names)
    if not candidate.db.value(query("takeover", "can_promote")):
        yield (
            f'node "{new.name}" has no function vedur.promote, or the role may not run it: install '
            "this version of Vedur's SQL there (create-branch again), or use Londiste's own "
            "takeover where its worker runs"
        )


def _rights(candidate: Candidate) -> Iterator[str]:
    root, old = candidate.root, candidate.old
    if root is None or old is None:
        return
    if not root.value(query("takeover", "can_demote")):
        yield f'the role on "{old.name}" may not run pgq_node.demote_root: grant pgq_admin to it'
    if not root.value(query("takeover", "sees_others")):
        yield (
            f'the role on "{old.name}" does not see transactions of others, which a takeover has '
            "to wait for: grant pg_read_all_stats to it"
        )


def _consumer(candidate: Candidate) -> Iterator[str]:
    """Yield a reason where the consumer by which the old root will read here is another node's."""
    new, old = candidate.new, candidate.old
    if old is None:
        return
    try:
        require_own_consumer(
            candidate.db, candidate.queue, old.name, old.worker, new.name, OTHER_JOB
        )
    except StateError as error:
        yield error.message


def _tables(candidate: Candidate) -> Iterator[str]:
    new, queue = candidate.new.name, candidate.queue
    here = get_table_list(candidate.db, queue)
    wanted = (
        list(here) if candidate.root is None else list(get_table_list(candidate.root, queue).local)
    )
    known = here.by_name
    have: list[TableInfo] = []
    for table in wanted:
        mine = known.get(table.table_name)
        if mine is None or not mine.local:
            yield f'table "{table.table_name}" is not replicated on "{new}": ' + _or_give_up(
                candidate, "add-table it there", "table", table.table_name
            )
        elif not mine.ready:
            yield (
                f'table "{table.table_name}" on "{new}" is in state "{mine.merge_state}": '
                + _or_give_up(
                    candidate, "wait until it is ok (wait-sync)", "table", table.table_name
                )
            )
        elif mine.custom_snapshot is not None:
            way = _or_give_up(candidate, "wait for its next tick", "table", table.table_name)
            yield f'table "{table.table_name}" was copied just now, and is ahead of "{new}": {way}'
        elif part := missing_part(mine, TableMap(table.table_name, table.table_name)):
            yield f'"{new}" has only {part} of table "{table.table_name}"'
        else:
            have.append(mine)
    names = [table.dest_table for table in have]
    for name, why in unfit_keys(candidate.db, names).items():
        yield f'table "{name}" on "{new}": {why}'
    asked = {"names": names, "queue": queue}
    for row in candidate.db.query(query("takeover", "capture"), asked):
        yield (
            f'table "{row[0]}" on "{new}" has no trigger that captures changes, or it is disabled: '
            "remove-table and add-table it there (with --expect-sync, after compare)"
        )
    if candidate.db.value(query("quarantine", "readable")):
        count = candidate.db.value(query("takeover", "quarantined"), [queue])
        if count:
            yield f'{count} event(s) are in quarantine on "{new}": quarantine replay them first'
    if candidate.root is not None and candidate.old is not None:
        # Only the root knows of these: once it is a branch, nobody would tell of them any more.
        for problem in read_table_problems(candidate.root, queue):
            if problem.severity == "fail":
                yield (
                    f'table "{problem.table_name}" on "{candidate.old.name}": {problem.what}; '
                    f"{problem.action}; or give it up there: select vedur.forget_table_changes("
                    f"{quote_literal(queue)}, {quote_literal(problem.table_name)})"
                )


def _sequences(candidate: Candidate) -> Iterator[str]:
    new, queue = candidate.new.name, candidate.queue
    here = {seq.seq_name: seq for seq in get_seq_list(candidate.db, queue)}
    source = candidate.root if candidate.root is not None else candidate.db
    for seq in get_seq_list(source, queue):
        mine = here.get(seq.seq_name)
        if (seq.local or candidate.root is None) and (mine is None or not mine.local):
            yield f'sequence "{seq.seq_name}" is not replicated on "{new}": ' + _or_give_up(
                candidate, "add-seq it there", "seq", seq.seq_name
            )
    tables = [t.dest_table for t in get_table_list(candidate.db, queue).ready]
    for row in candidate.db.query(query("takeover", "sequences_of_tables"), [tables]):
        if row.name not in here:
            yield (
                f'sequence "{row.name}" gives values to table "{row.table_name}" and is not in the '
                f'set: "{new}" would give out numbers that are used already; '
                + _or_set(candidate, f'add-seq it on the root, then on "{new}"', row.name)
            )


def _or_give_up(candidate: Candidate, way: str, kind: str, name: str) -> str:
    """Return what to do about something that the new root lacks: without the old one it can only
    be had from another branch, or given up."""
    if candidate.old is not None:
        return way
    call = f"londiste.global_remove_{kind}({quote_literal(candidate.queue)}, {quote_literal(name)})"
    return (
        "that cannot be mended without a root: let a branch take over that has it whole (--node), "
        f'or take it out of the set with "select * from {call}" on "{candidate.new.name}"'
    )


def _or_set(candidate: Candidate, way: str, name: str) -> str:
    """Return what to do about a sequence that the set does not know."""
    if candidate.old is not None:
        return way
    args = f"{quote_literal(candidate.queue)}, {quote_literal(name)}"
    return (
        f'on "{candidate.new.name}", set it behind all numbers that were given out (setval), then '
        f'"select * from londiste.global_update_seq({args}, 1)" and '
        f'"select * from londiste.local_add_seq({args})"'
    )


def _processes(candidate: Candidate) -> Iterator[str]:
    new = candidate.new.name
    state = get_worker_state(candidate.db, candidate.queue)
    if state is not None and (
        is_lost(state.cur_error or "") or is_other_epoch(state.cur_error or "")
    ):
        yield f'the worker of "{new}" stands still: {state.cur_error}'
    if not candidate.db.value(query("takeover", "ticker_sessions")):
        yield f'no ticker is connected to "{new}": start pgqd for its server'
    if candidate.db.value(query("takeover", "ticker_paused"), [candidate.queue]):
        yield (
            f'the ticker of the queue is paused on "{new}": run "select pgq.set_queue_config('
            f"{quote_literal(candidate.queue)}, 'ticker_paused', 'false')\" there"
        )


def _lag(candidate: Candidate) -> Iterator[str]:
    root, new = candidate.root, candidate.new
    if root is None:
        return
    age = tick_ages(root, candidate.queue, [new.tick]).get(new.tick or 0)
    newest = candidate.old.last_tick if candidate.old is not None else None
    if newest is not None and new.tick is not None and new.tick >= newest:
        newest = read_newest_tick(root, candidate.queue) or newest  # it may have got ticks since
        if new.tick > newest and candidate.old is not None:
            yield (
                f'"{new.name}" has applied tick {new.tick}, and the queue of '
                f'"{candidate.old.name}" ends with tick {newest}: "{candidate.old.name}" was '
                f'restored from a backup; run "rejoin" on "{new.name}"'
            )
        return  # an idle queue has old ticks
    if age is None or age > candidate.max_lag:
        shown = "more than the queue shows" if age is None else f"{age:.0f} s"
        yield (
            f'"{new.name}" is behind by {shown}, more than {candidate.max_lag:.0f} s: see that its '
            "worker runs, or use --max-lag"
        )


def _epoch(candidate: Candidate) -> Iterator[str]:
    root, new = candidate.root, candidate.new
    if root is None or candidate.old is None:
        return
    mine, theirs = read_reigns(candidate.db, candidate.queue), read_reigns(root, candidate.queue)
    match = match_reigns(mine, theirs, new.tick or 0)
    if match is not Match.SAME:
        yield f'"{new.name}" and "{candidate.old.name}" follow different roots ({match.value})'
    if not theirs:
        log.info("The set has no epoch yet: it gets its first one with the new root")


def _parts(candidate: Candidate) -> Iterator[str]:
    """Yield what speaks against it where parts are merged into the queue: the new root goes on with
    the parts where the old one stops, so it must have the same ones with the same tables."""
    new, old, root, queue = candidate.new, candidate.old, candidate.root, candidate.queue
    if not new.parts and (old is None or not old.parts):
        return
    places = [(new.name, candidate.db)]
    if old is not None and root is not None:
        places.append((old.name, root))
    foreign = [name for name, db in places if not can_combine(db)]
    if foreign:
        yield (
            f'parts are merged into "{foreign[0]}", which has no function vedur.publish_part: '
            "install this version of Vedur's SQL there, or use Londiste's own takeover where its "
            "workers run"
        )
        return
    mine = read_parts(candidate.db, queue)
    theirs = read_parts(root, queue) if root is not None else mine
    for name in sorted({*mine, *theirs}):
        if name not in mine or name not in theirs:
            here, there = (new.name, old) if name in mine else (old and old.name, new)
            lacking = there.name if there is not None else ""
            yield (
                f'part "{name}" is merged into "{here}" and not into "{lacking}": create-leaf it '
                f"there with --merge={queue}, or drop-node it"
            )
            continue
        part = mine[name]
        if part.paused:
            yield f'the worker of part "{name}" on "{new.name}" is paused: run resume with its ini'
        if not part.told:
            yield why_untold(new.name, name, old.name if old is not None else None)
        differ = set(part.tables) ^ set(theirs[name].tables)
        if differ:
            yield (
                f'part "{name}" brings other tables to "{new.name}" than to the old root '
                f"({', '.join(sorted(differ))}): add-table or remove-table them with its ini"
            )
    for where, db in places:
        if db.value(query("quarantine", "readable")):
            for name in sorted(mine):
                if count := db.value(query("takeover", "quarantined"), [name]):
                    yield (
                        f'{count} event(s) of part "{name}" are in quarantine on "{where}": '
                        "quarantine replay them first, with its ini"
                    )
        for table, unready in sorted(unready_parts(db, queue).items()):
            yield (
                f'first copies of table "{table}" are not done on "{where}" (parts '
                f"{', '.join(unready)}): wait for them (wait-sync with their ini)"
            )


def why_untold(new: str, part: str, old: str | None) -> str:
    """Say why a node cannot go on with a part of which the combined queue has not told yet, and
    what to do; without an old root nobody will tell. Pure."""
    said = f'up to which tick "{new}" has part "{part}" is not known'
    if old is None:
        return (
            f"{said}, and the root that would have told is gone: drop-node the part here, with its "
            "ini, and create it again after the takeover"
        )
    return (
        f"{said} yet: wait until the combined queue has brought a batch of it (see that its worker "
        f'on "{old}" runs)'
    )


def _copies(candidate: Candidate) -> Iterator[str]:
    if candidate.old is None:
        return  # a copy from a root that is gone never ends: it begins anew where the node moves to
    for member in candidate.view.members.values():
        if member.copies:
            yield (
                f'{len(member.copies)} table(s) of node "{member.name}" are being copied '
                f"({', '.join(member.copies[:3])}): wait for that (wait-sync)"
            )
        if member.ahead:
            yield f"{explain_ahead(member)}: wait for that"
