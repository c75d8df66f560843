"""Is the source of a first copy still the server that the copy knows?

A copy goes by numbers of its source: transaction numbers, by which its snapshot tells events that
are in the rows already, and the number of the tick that it has reached. A server that was set back
(a standby that was behind, a backup) gives the same numbers to other transactions and other ticks,
and the copy would leave out changes that it does not have. Three things tell:

- the mark that the copy wrote on the source behind its snapshot (`table.py`). A server that has it
  has all that the snapshot saw, so no number of the snapshot is given out a second time;
- which tick the copy has reached (`AppliedTick`), as for the worker;
- the next transaction number, which cannot be below the snapshot. Where the source keeps no marks
  (upstream's nodes), there is only this in place of the mark.

Asked once in a session with the source: whoever sets a server back ends all sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from vedur import db as vdb
from vedur.catalog import TableInfo
from vedur.catalog.tables import change_table_state
from vedur.change.snapshot import Snapshot
from vedur.db import Row
from vedur.errors import DatabaseError, InternalError, StateError
from vedur.node.position import AppliedTick
from vedur.queue.batches import Tick
from vedur.sql import query

log = logging.getLogger(__name__)

#: A database without the function that reads marks, or without its schema.
_NO_MARKS = ("42883", "3F000")


@dataclass(frozen=True)
class KnownSource:
    """What this node knows of a copy's source."""

    snapshot: Snapshot | None
    mark: str | None  # what was marked behind the snapshot; None where the source keeps no marks
    applied: AppliedTick | None  # the tick of the copy's position, where it was written down


@dataclass(frozen=True)
class SourceNow:
    """What the source says to that; `tick` is its tick of the number of the copy's position."""

    next_txid: int
    mark: str | None
    tick: AppliedTick | None
    of_branch: bool = False


def judge_source(known: KnownSource, now: SourceNow) -> str | None:
    """Say why the source cannot be the one that is known; None if nothing speaks against it."""
    if known.mark is not None and known.mark != now.mark:
        return "it does not have what the copy marked there behind its snapshot"
    if known.snapshot is not None and is_ahead(known.snapshot, now.next_txid):
        return (
            f"its next transaction number is {now.next_txid}, and the copy's snapshot has seen "
            f"{known.snapshot.xmax}"
        )
    if known.applied is None or now.tick is None:
        return None
    if not known.applied.same(now.tick, of_branch=now.of_branch):
        return f"its tick {now.tick.id} is not the tick {now.tick.id} that the copy has reached"
    return None


def is_ahead(snapshot: Snapshot, next_txid: int) -> bool:
    """Has a snapshot seen numbers that a server has yet to give out?"""
    return snapshot.xmax > next_txid


@dataclass(frozen=True)
class SourceLook:
    """One look at a source: its newest tick, the tables that believe it, and why others never will.
    A table that does neither has a tick that the source does not have (yet): look again."""

    newest: int | None
    faults: Mapping[str, str]
    believed: Set[str]


def look_at_source(
    target: vdb.Database, source: vdb.Database, queue: str, consumers: Mapping[str, str]
) -> SourceLook:
    """Read whether the source of tables is still the one that they know; `consumers` are those of
    their copies, by table. One statement on each side."""
    words = {"queue": queue, "names": list(consumers), "consumers": list(consumers.values())}
    rows = {row.name: row for row in target.query(query("copies", "known_of_source"), words)}
    known = {name: _known(row) for name, row in rows.items()}
    words = {
        "queue": queue,
        "names": list(known),
        "consumers": [consumers[name] for name in known],
        "positions": [rows[name].position for name in known],
    }
    newest, faults, believed = None, {}, set()
    for row in _read_source(source, words, marks=any(one.mark for one in known.values())):
        newest = None if row.newest is None else int(row.newest)
        now = _now(row)
        fault = judge_source(known[row.name], now)
        if fault is not None:
            faults[row.name] = fault
        elif known[row.name].applied is None or now.tick is not None:
            believed.add(row.name)
    return SourceLook(newest, faults, believed)


def _read_source(source: vdb.Database, words: Mapping[str, object], *, marks: bool) -> list[Row]:
    text = query("copies", "source_now")
    if marks:
        mark = "vedur.get_copy_mark(%(queue)s, w.consumer)"
        try:
            return source.query(text.format(mark=mark), words)
        except DatabaseError as error:
            if error.sqlstate not in _NO_MARKS:
                raise
            log.debug("the source keeps no marks any more: %s", error)
    return source.query(text.format(mark="null::text"), words)


def _known(row: Row) -> KnownSource:
    snapshot = None if row.custom_snapshot is None else Snapshot.parse(row.custom_snapshot)
    return KnownSource(snapshot, row.mark, _tick(row))


def _now(row: Row) -> SourceNow:
    return SourceNow(int(row.next_txid), row.mark, _tick(row), row.of_branch)


def _tick(row: Row) -> AppliedTick | None:
    if row.tick_id is None:
        return None
    return AppliedTick(row.tick_id, row.tick_time, row.tick_event_seq, row.tick_snapshot)


def applied_tick(tick: Tick, source: str) -> AppliedTick:
    """Return a tick as it is written down beside the position of a copy, with its source."""
    if tick.moment is None:
        raise InternalError("BUG: a tick was read without its time")
    return AppliedTick(tick.id, tick.moment, tick.event_seq, tick.snapshot.text, source)


def never_again(name: str, why: str) -> StateError:
    """Return the error of a table whose copy has lost its source, and cannot be loaded twice."""
    return StateError(
        f"{name}: {why}; its copy was to leave the rows that it found (--skip-truncate) and cannot "
        "begin anew, as nobody can tell these rows from its own: take the table out "
        "(remove-table), delete what was copied, and add the table again"
    )


# -- tables that are in sync and still have the snapshot of their copy -----------------------------


def begin_disproved_anew(
    target: vdb.Database, queue: str, tables: Sequence[TableInfo], provider: str, next_txid: int
) -> bool:
    """Have tables copied anew that are `ok` with a snapshot which the worker's provider cannot have
    given; returns whether there were any. Earlier versions and Londiste leave such a state."""
    found = False
    for table in tables:
        text = table.custom_snapshot
        if not table.ready or not text or not is_ahead(Snapshot.parse(text), next_txid):
            continue
        why = (
            f'transaction numbers of provider "{provider}" are at {next_txid}, the snapshot of its '
            f"first copy has seen {Snapshot.parse(text).xmax}: the provider was set back, or is "
            "another one, and changes would be left out"
        )
        if table.keeps_rows:
            raise never_again(table.table_name, why)
        if change_table_state(target, queue, table, None, None) is not None:
            found = True
            log.warning("%s: %s; the table is copied anew", table.table_name, why)
    return found
