"""Tables that are made equal to the provider's without a copy: for `rejoin` and `resurrect`.

A table that is in hand (`vedur.rejoin`) has no state, so nothing takes it for in sync, and the
worker neither applies its changes nor copies it. It is compared and repaired at a tick where the
worker waits, and gets its state in the transaction that writes its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from vedur.catalog.quarantine import (
    available,
    clear_stuck_event,
    end_skip,
    end_table,
    get_open_skips,
)
from vedur.catalog.rejoin import begin_rejoin, end_rejoin, get_rejoin_tables
from vedur.catalog.sequences import get_seq_list, global_update_seq
from vedur.catalog.tables import TableInfo, get_table_list, hold_table
from vedur.db import Database, command
from vedur.errors import ConnectError, StateError, VedurError
from vedur.failpoint import reach
from vedur.node.info import NodeInfo
from vedur.node.moment import LAGGING, Moment, Nodes, meet
from vedur.ops.compare_tables import handler_refusal, pair_at_one_moment, plan_pair
from vedur.ops.repair import Repairer, RepairOptions, TableRepair
from vedur.ops.session import Session, sync_sequences
from vedur.pipeline.spark.command_session import end_spark, start_spark
from vedur.sql import query

if TYPE_CHECKING:
    from vedur.pipeline.compare import Pair
    from vedur.pipeline.spark.session import SparkSession

log = logging.getLogger(__name__)

_KEPT = "the table was made equal to the provider's"


class HowToRepair(Protocol):
    """What the options of a command say of the repair of tables."""

    @property
    def copy(self) -> bool: ...
    @property
    def limit(self) -> int: ...
    @property
    def max_wait(self) -> float: ...


@dataclass
class RejoiningNode:
    """The node and its provider; `left` is the one that it has read from before, if another."""

    session: Session
    info: NodeInfo
    provider: Database
    above: NodeInfo
    nodes: Nodes
    left: str | None = None

    @property
    def db(self) -> Database:
        return self.session.db

    @property
    def queue(self) -> str:
        return self.session.queue

    @property
    def worker(self) -> str:
        return self.info.worker_name or ""


def forgotten_tables(node: RejoiningNode) -> list[str]:
    """Read which local tables are not in the provider's set."""
    there = get_table_list(node.provider, node.queue).names
    here = get_table_list(node.db, node.queue).local
    return [name for name in here.names if name not in there]


def sort_out(node: RejoiningNode, options: HowToRepair) -> tuple[list[TableInfo], list[str]]:
    """Read the tables to repair, and the names of those that must be copied: they have no key,
    their copy was not done, or their handler keeps them from being compared."""
    there = get_table_list(node.provider, node.queue).by_name
    kept = get_rejoin_tables(node.db, node.queue)
    repair: list[TableInfo] = []
    copied: list[str] = []
    for table in get_table_list(node.db, node.queue).local:
        if table.table_name not in there:
            continue
        whole = table.ready or table.table_name in kept
        if not whole or options.copy or handler_refusal(table) or not is_keyed(node, table):
            copied.append(table.table_name)
        else:
            repair.append(table)
    return repair, copied


def is_keyed(node: RejoiningNode, table: TableInfo) -> bool:
    """Read whether rows of a table can be found by a key on both sides."""
    try:
        return plan_pair(node.session, node.nodes, table).keyed
    except ConnectError:
        raise
    except VedurError:
        return True  # the repair says what is wrong with it


@contextmanager
def use_spark(node: RejoiningNode, spark: SparkSession | None, needed: bool) -> Iterator[Any]:
    if spark is not None or not needed:
        yield spark
        return
    own = start_spark(node.session.settings)
    try:
        yield own
    finally:
        end_spark(own)


def sync_published(session: Session, provider: Database) -> None:
    """Write down what the provider has published of sequences, also where that is less than before;
    the sequences themselves only go forward, so that no number is given out twice."""
    there = sync_sequences(session, session.db, provider)
    for seq in get_seq_list(session.db, session.queue):
        published = there.get(seq.seq_name)
        if published is not None and published.last_value != seq.last_value:
            global_update_seq(session.db, session.queue, seq.seq_name, published.last_value)


def take_in_hand(
    db: Database, queue: str, worker: str, repair: Sequence[str], copied: Sequence[str] = ()
) -> None:
    """Take the state of every table away, in the transaction that moves the position: `repair`
    are in hand from now on, `copied` are copied by the worker."""
    for name in get_table_list(db, queue).local.names:
        command(db, "londiste.local_set_table_state", queue, name, None, None, quiet=True)
    begin_rejoin(db, queue, repair)
    _end_history(db, queue, worker, [*repair, *copied])


def _end_history(db: Database, queue: str, worker: str, tables: Sequence[str]) -> None:
    """End what belongs to a history that is past: events that wait, skips that were asked for, and
    errors."""
    if not available(db):
        return
    for name in tables:
        count = end_table(db, queue, name, "obsolete", _KEPT)
        if count:
            log.warning(
                "%s: %d event(s) left the quarantine, because the table is made equal to the "
                "provider's; vedur.quarantine_log keeps them",
                name,
                count,
            )
    for request in get_open_skips(db, queue, worker):
        end_skip(db, request, "the node was brought back at another tick")
    clear_stuck_event(db, queue, worker)


# -- rows -----------------------------------------------------------------------------------------


def repair_all(
    node: RejoiningNode, options: HowToRepair, spark: SparkSession | None
) -> tuple[list[TableRepair], dict[str, str]]:
    """Repair what is in hand; returns what was done and what is left, with the reason."""
    kept = get_rejoin_tables(node.db, node.queue)
    tables = [t for t in get_table_list(node.db, node.queue) if t.table_name in kept]
    done: list[TableRepair] = []
    left: dict[str, str] = {}
    with use_spark(node, spark, bool(tables)) as engine:
        for table in tables:
            if options.copy:
                give_to_worker(node, table)
                continue
            try:
                done.append(_repair_one(node, table, options, engine))
            except ConnectError:
                raise
            except VedurError as error:
                if error.message == LAGGING:
                    raise StateError(
                        "the worker does not come to the tick where it is waited for: start it "
                        '("vedur -d INI worker") or read its log, then run this command again; '
                        f"{len(tables) - len(done)} table(s) are left"
                    ) from error
                left[table.table_name] = error.message
    return done, left


def give_to_worker(node: RejoiningNode, table: TableInfo) -> None:
    """Let the worker copy a table that is in hand."""
    end_rejoin(node.db, node.queue, table.table_name)
    log.info("%s: is copied anew by the worker", table.table_name)


def _repair_one(
    node: RejoiningNode, table: TableInfo, options: HowToRepair, spark: SparkSession
) -> TableRepair:
    pair = plan_pair(node.session, node.nodes, table)
    with node.nodes.target.open("repair") as db:
        if not db.value(query("compare", "repair_lock"), [pair.dest]):
            raise StateError(f'another repair of "{pair.dest}" is running: wait for it to end')
        chosen = RepairOptions(apply=True, limit=options.limit, max_wait=options.max_wait)
        work = _RejoinTable(node.session, spark, node.nodes, table, pair, db, chosen)
        done = work.run()
    reach("rejoin.repaired")
    log.info(
        "%s: in sync at tick %d: %d inserted, %d updated, %d removed",
        pair.dest,
        done.tick,
        done.inserts,
        done.updates,
        done.deletes,
    )
    return done


@dataclass
class _RejoinTable(Repairer):
    """Compares and repairs at one tick: until it is equal no worker brings the table forward, so
    a second look would miss what has changed since the first."""

    _done: TableRepair | None = None

    def run(self) -> TableRepair:
        return pair_at_one_moment(self.nodes, self.pair, self._at, partial(meet, keep_hold=True))

    def _at(self, pair: Pair, moment: Moment) -> TableRepair:
        from vedur.pipeline.repair import RepairTable, open_stage

        if self._done is not None:
            return self._done  # it was committed before it had to make way
        table = RepairTable.read(self.db, pair)
        with open_stage(self.db, pair, table.target_columns) as stage:
            sums, found = self.look(pair, stage)
            done = self.write(pair, moment, table, stage)
        self._done = self.repaired(moment, sums, found, done)
        return self._done

    def require(self) -> None:
        queue, name = self.nodes.queue, self.info.table_name
        if name not in get_rejoin_tables(self.db, queue) or not hold_table(
            self.db, queue, self.info
        ):
            raise StateError(
                f'table "{name}" was changed by another command meanwhile: nothing is written, '
                "run the command again"
            )

    def conclude(self, moment: Moment) -> None:
        queue, name = self.nodes.queue, self.info.table_name
        moment.check()  # nobody has rewritten the table between the comparison and this
        command(self.db, "londiste.local_set_table_state", queue, name, None, "ok", quiet=True)
        end_rejoin(self.db, queue, name)
        reach("rejoin.applied")
