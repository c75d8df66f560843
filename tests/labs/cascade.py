"""A root and a branch of one set, driven by plain SQL as a branch's worker would, without Spark."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vedur import db as vdb
from vedur.change.snapshot import Snapshot
from vedur.queue.batches import Tick, whole
from vedur.sql import query

#: What a consumer gets of an event; ev_txid is each node's own.
COLUMNS = "ev_id, ev_time, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"
_numbers = itertools.count(1)


def call(db: vdb.Database, function: str, *params: Any) -> Any:
    """Call a function of pgq_node and require that it did what it was asked."""
    marks = ", ".join(["%s"] * len(params))
    row = db.one(f"select * from {function}({marks})", list(params))
    assert row.ret_code < 300, row
    return row


@dataclass
class Range:
    """Ticks of the provider, the first one published already, and where their events are staged."""

    ids: list[int]
    times: list[str]
    event_seqs: list[int]
    snapshots: list[str]
    slices: list[int] = field(default_factory=list)
    events: int = 0


@dataclass
class Cascade:
    """Queue `queue`: n1 is its root, n2 a branch; connections are in autocommit."""

    root: vdb.Database
    branch: vdb.Database
    queue: str = field(default_factory=lambda: f"q{next(_numbers)}")
    slot: int = 0
    stage: str = ""
    worker: str = "w2"

    def create(self) -> Cascade:
        for db in (self.root, self.branch):
            for node in ("n1", "n2", "n3"):
                call(db, "pgq_node.register_location", self.queue, node, f"dbname={node}", False)
        call(self.root, "pgq_node.create_node", self.queue, "root", "n1", "w1", None, None, None)
        watermark = call(
            self.root, "pgq_node.register_subscriber", self.queue, "n2", "w2", None
        ).global_watermark
        args = ("branch", "n2", "w2", "n1", watermark, None)
        call(self.branch, "pgq_node.create_node", self.queue, *args)
        for db in (self.root, self.branch):
            db.execute(
                "update pgq.queue set queue_ticker_max_count = 1, queue_ticker_max_lag = '0',"
                " queue_ticker_idle_period = '0', queue_rotation_period = '0'"
                " where queue_name = %s",
                [self.queue],
            )
        self.stage = self.branch.value("select vedur.create_raw_stage(%s, 0)", [self.queue])
        return self

    def insert(self, db: vdb.Database | None = None, kind: str = "I", n: int = 1) -> None:
        """Insert events on the root; what is in them differs."""
        (db or self.root).execute(
            "select pgq.insert_event(%(q)s, %(kind)s, 'd' || i, case when i % 3 > 0 then 'e1' end,"
            " 'é\t' || i, null, e'\\\\N\n')"
            " from generate_series(1, %(n)s) i".replace("% 3", "%% 3"),
            {"q": self.queue, "kind": kind, "n": n},
        )

    def tick(self) -> int:
        found = self.root.value("select pgq.ticker(%s)", [self.queue])
        assert found is not None
        return int(found)

    def top(self, db: vdb.Database) -> int:
        return int(
            db.value(
                "select max(tick_id) from pgq.tick where tick_queue ="
                " (select queue_id from pgq.queue where queue_name = %s)",
                [self.queue],
            )
        )

    def ticks(self, db: vdb.Database) -> list[int]:
        rows = db.query(query("publish", "ticks"), [self.queue, 0, 1 << 60])
        return [row.tick_id for row in rows]

    def read_range(self, count: int = 1_000_000) -> Range:
        """Read the next ticks that the branch does not have, up to `count`."""
        first = self.top(self.branch)
        rows = self.root.query(query("publish", "ticks"), [self.queue, first, 1 << 60])
        rows = rows[: count + 1]
        return Range(
            [row.tick_id for row in rows],
            [row.tick_time for row in rows],
            [row.tick_event_seq for row in rows],
            [row.tick_snapshot for row in rows],
        )

    def stage_range(self, ticks: Range, parts: int = 1, bits: int = 62) -> Range:
        """Pump the events of a range into the raw table, in slices as tasks do, under numbers of so
        many bits."""
        first, last = (
            Tick(ticks.ids[at], Snapshot.parse(ticks.snapshots[at]), 0) for at in (0, -1)
        )
        events = self.root.value(
            "select pgq.quote_fqname(queue_data_pfx) from pgq.queue where queue_name = %s",
            [self.queue],
        )
        for part in range(parts):
            number = random.getrandbits(bits)
            condition = f"({whole(first, last).condition} and ev_id % {parts} = {part})"
            read = query("publish", "raw_read").format(
                number=number, events=events, slice=condition
            )
            write = query("publish", "raw_write").format(stage=self.stage)
            with self.root.copy_out(read) as source, self.branch.copy_in(write) as target:
                for block in source:
                    target.write(bytes(block))
            ticks.slices.append(number)
        ticks.events = self.branch.value(
            f"select count(*) from {self.stage} where slice = any (%s)", [ticks.slices]
        )
        return ticks

    def publish(self, ticks: Range, db: vdb.Database | None = None, **other: Any) -> int:
        """Call vedur.publish as the worker does, without a transaction of its own."""
        values = {
            "queue": self.queue,
            "slot": self.slot,
            "slices": ticks.slices,
            "events": ticks.events,
            "ids": ticks.ids,
            "times": ticks.times,
            "event_seqs": ticks.event_seqs,
            "snapshots": ticks.snapshots,
            "watermark": None,
        }
        return int((db or self.branch).value(query("publish", "publish"), values | other))

    def commit(self, ticks: Range, db: vdb.Database | None = None, **other: Any) -> int:
        """Run the transaction of a batch: position, publish, new position."""
        db = db or self.branch
        with db.transaction():
            db.value("select vedur.lock_position(%s, %s)", [self.queue, self.worker])
            count = self.publish(ticks, db, **other)
            call(db, "pgq_node.set_consumer_completed", self.queue, self.worker, ticks.ids[-1])
        return count

    def forward(self, count: int = 1_000_000, parts: int = 1) -> Range:
        """Pass on up to `count` ticks in one batch."""
        ticks = self.read_range(count)
        if len(ticks.ids) > 1:
            self.commit(self.stage_range(ticks, parts))
            self.branch.execute(f"truncate {self.stage}")
        return ticks

    def batch(self, db: vdb.Database, tick: int, consumer: str = "c") -> tuple[int, list[Any]]:
        """Register a consumer at a tick and read to the next one: its id, and the events."""
        db.value("select pgq.register_consumer_at(%s, %s, %s)", [self.queue, consumer, tick])
        info = db.one("select * from pgq.next_batch_info(%s, %s)", [self.queue, consumer])
        rows = db.query(f"select {COLUMNS} from pgq.get_batch_events(%s)", [info.batch_id])
        return info.cur_tick_id, [tuple(row) for row in rows]

    def tick_rows(self, db: vdb.Database) -> dict[int, tuple[Any, ...]]:
        return {
            row.tick_id: (row.tick_time, row.tick_event_seq)
            for row in db.query(query("publish", "ticks"), [self.queue, 0, 1 << 60])
        }

    def require_equal(self, ticks: Sequence[int]) -> int:
        """Compare what a consumer gets behind each tick on both nodes; returns how many events."""
        count = 0
        for tick in ticks:
            here, there = self.batch(self.branch, tick), self.batch(self.root, tick)
            assert here == there, tick
            count += len(there[1])
        return count

    def rotate(self, db: vdb.Database) -> bool:
        text = "select queue_cur_table from pgq.queue where queue_name = %s"
        before = db.value(text, [self.queue])
        db.value("select pgq.maint_rotate_tables_step1(%s)", [self.queue])
        db.value("select pgq.maint_rotate_tables_step2()")
        return bool(db.value(text, [self.queue]) != before)
