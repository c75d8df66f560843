"""compare end to end: a real worker, real ticks, writers that never stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.compare import Lab, make_lab  # noqa: F401
from tests.labs.pair import QUEUE, WORKER
from vedur.change.snapshot import Snapshot
from vedur.clock import SYSTEM
from vedur.db import Database, connect
from vedur.errors import DatabaseError, StateError
from vedur.node.endpoint import Endpoint
from vedur.node.moment import LAGGING, Nodes, meet
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.repair import RepairOptions, repair
from vedur.pipeline.compare import custom_sql

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

MakeLab = Callable[..., Lab]

USERS = """
create table users (
    id int primary key, name text, balance numeric(12, 2), score float8, seen timestamptz,
    note text
)
"""
FILL = """
insert into users
select g, 'user ' || g, g * 1.5, sqrt(g), '2024-05-31 09:00+00', null
from generate_series(1, {rows}) g
"""
WRITERS = (
    "update users set balance = balance + 1, seen = now()"
    " where id = (select 1 + (random() * 499)::int)",
    "with gone as (delete from users where id = (select 501 + (random() * 400)::int) returning *)"
    " insert into users select id + 1000, name, balance, score, now(), note from gone"
    " on conflict do nothing",
    "insert into users select 10000 + (random() * 1e6)::int, 'new', 1, random(), now(), ''"
    " on conflict do nothing",
)


def ready(make: MakeLab, rows: int = 1000, root: str = "ours", **settings: Any) -> Lab:
    lab = make(root, **settings)
    lab.pair.table("public.users", USERS)
    lab.root.execute(FILL.format(rows=rows))
    lab.start()
    lab.settle()
    return lab


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{r.levelname} {r.getMessage()}"
        for r in caplog.records
        if r.name.startswith("vedur.ops")
        and r.levelno >= logging.INFO
        and not r.getMessage().endswith(", waiting")  # a slow machine is told about
    ]


def test_output_is_that_of_the_seeds(
    make_lab: MakeLab,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    lab = ready(make_lab)
    with lab.session() as session:
        result = compare(session, CompareOptions(), lab.spark)
    total = lab.leaf.one(
        "select count(1) as cnt, sum(hashtext(t.*::text)) as chksum from only users t"
    )
    sums = f"{total.cnt} rows, checksum={total.chksum}"
    assert lines(caplog) == [
        "INFO Locking public.users",
        "INFO Syncing public.users",
        "INFO Counting public.users",
        f"INFO srcdb: {sums}",
        f"INFO dstdb: {sums}",
        "INFO Compared 1 table: 1 equal",
    ]
    assert result.bad == 0
    assert result.tables[0].lock_free
    caplog.clear()
    lab.plant("update users set note = '' where id = 7; delete from users where id = 8")
    with lab.session() as session:
        options = CompareOptions(tables=("users",), rows=True)
        result = compare(session, options, lab.spark)
        counted = compare(session, CompareOptions(count_only=True), lab.spark)
    assert result.bad == 1
    assert "WARNING public.users: Results do not match!" in lines(caplog)
    assert "INFO public.users: different id=7 columns: note" in lines(caplog)
    assert "INFO public.users: missing id=8" in lines(caplog)
    assert "INFO srcdb: 1000 rows" in lines(caplog)
    assert "INFO dstdb: 999 rows" in lines(caplog)
    assert counted.tables[0].as_json()["target"] == {"cnt": 999}


@pytest.mark.draw("compare")
def test_no_false_alarm_and_no_lock_while_writers_write(make_lab: MakeLab) -> None:  # noqa: F811
    lab = ready(make_lab)
    for statement in WRITERS:
        lab.write(statement)
    waits: list[int] = []

    def watch() -> None:
        with connect(lab.root.connstr, autocommit=True) as db:
            while not lab.stop.wait(0.02):
                waits.append(
                    db.value(
                        # of the whole table: writers that meet lock tuples and the table's end,
                        # and autovacuum cuts off a table's empty end
                        "select count(*) from pg_locks where relation = 'users'::regclass"
                        " and locktype = 'relation'"
                        " and mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',"
                        " 'AccessExclusiveLock') and pid not in (select pid from"
                        " pg_stat_activity where backend_type = 'autovacuum worker')"
                    )
                )

    lab._thread(watch)
    seen = set()
    with lab.session() as session:
        for _ in range(8):
            before = lab.written
            result = compare(session, CompareOptions(rows=True), lab.spark)
            assert result.bad == 0, result.tables[0].as_json()
            seen.add(result.tables[0].source["strong"])
            assert lab.written > before
    assert len(seen) == 8
    assert len(waits) > 10
    assert set(waits) == {0}
    # and a difference is seen among all those changes
    lab.plant("insert into users values (-1, 'planted')")
    with lab.session() as session:
        result = compare(session, CompareOptions(rows=True), lab.spark)
    found = result.tables[0].differences
    assert found is not None
    assert [(r.kind, r.key) for r in found.rows] == [("extra", {"id": "-1"})]


def test_filter_other_name_and_own_statement(
    make_lab: MakeLab,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = make_lab()
    ddl = USERS.replace("users", "digoal_02.users1")
    lab.pair.table(
        "public.users", USERS, dest="digoal_02.users1", dest_ddl=f"create schema digoal_02; {ddl}"
    )
    lab.root.execute(FILL.format(rows=50))
    lab.start()
    lab.settle()
    with lab.session() as session:
        assert compare(session, CompareOptions(), lab.spark).bad == 0
    lab.attrs("public.users", "copy_condition=id%3C20")
    with lab.session() as session:
        assert compare(session, CompareOptions(), lab.spark).bad == 1
    lab.plant("delete from digoal_02.users1 where id >= 20")
    caplog.set_level(logging.INFO)
    own = "select count(1) as n, max(id) as top from _TABLE_"
    with lab.session() as session:
        assert compare(session, CompareOptions(), lab.spark).bad == 0
    with lab.session(compare_sql=own, compare_fmt="%(n)d to %(top)s") as session:
        assert compare(session, CompareOptions(), lab.spark).bad == 0
    assert "INFO srcdb: 19 to 19" in lines(caplog)
    assert "INFO dstdb: 19 to 19" in lines(caplog)


def test_placeholders_of_an_own_statement() -> None:
    text = "select sum(hashtext((_COLS_)::text)) from only _TABLE_ t where x"
    plain = custom_sql(text, "s.t", ("t.a", "t.b"), "(true) and (true)")
    assert plain == 'select sum(hashtext((t.a, t.b)::text)) from only "s"."t" t where x'
    some = custom_sql("select 1 from only _TABLE_ where x", "s.t", ("t.a",), "(a<1) and (true)")
    assert some == (
        'select 1 from (select * from only "s"."t" as t where (a<1) and (true)) as t where x'
    )


def nodes(lab: Lab, **more: Any) -> Nodes:
    more.setdefault("max_wait", 600.0)  # a busy machine is no failure
    return Nodes(
        Endpoint(lab.root.connstr), Endpoint(lab.leaf.connstr), QUEUE, WORKER, SYSTEM, **more
    )


def test_a_worker_that_does_not_come_is_told_of_and_given_up(
    make_lab: MakeLab,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = make_lab()
    lab.pair.table("public.users", USERS)
    with (
        pytest.raises(StateError, match=LAGGING),
        meet(nodes(lab, max_wait=0.5), "public.users", "public.users"),
    ):
        pass
    assert lab.leaf.value("select count(*) from vedur.hold") == 0
    assert lab.root.value("select count(*) from pg_locks where locktype = 'advisory'") == 0
    lab.start()
    lab.settle()
    with meet(nodes(lab), "public.users", "public.users") as moment:
        assert moment.lock_free


@pytest.mark.draw("compare")
def test_ticks_stay_in_the_order_of_their_snapshots(make_lab: MakeLab) -> None:  # noqa: F811
    """Moments among two hasty tickers and writers: a later tick never sees less."""
    lab = ready(make_lab, 200)
    lab._thread(lab._ticker)
    for statement in WRITERS[:2]:
        lab.write(statement, 0.002)
    for _ in range(15):
        with meet(nodes(lab), "public.users", "public.users"):
            pass
    assert until(lambda: lab.root.value("select count(*) from pgq.tick") > 30)
    ticks = lab.root.query(
        "select tick_id, txid_snapshot_xmin(tick_snapshot) as xmin,"
        " txid_snapshot_xmax(tick_snapshot) as xmax,"
        " array(select txid_snapshot_xip(tick_snapshot)) as xip, tick_event_seq, tick_time"
        " from pgq.tick order by tick_id"
    )
    for old, new in pairwise(ticks):
        assert old.xmin <= new.xmin
        assert old.xmax <= new.xmax
        assert old.tick_event_seq <= new.tick_event_seq
        assert old.tick_time <= new.tick_time
        # what runs at the new tick was not finished at the old one
        assert all(x >= old.xmax or x in old.xip for x in new.xip)


def test_no_tick_between_lock_and_moment(make_lab: MakeLab) -> None:  # noqa: F811
    lab = make_lab()
    other = connect(lab.root.connstr, autocommit=True)
    holder = connect(lab.root.connstr, autocommit=True)
    tick = holder.value("select vedur.begin_moment('q')")
    done = threading.Event()

    def ticker() -> None:
        other.execute("select pgq.force_tick('q'); select pgq.ticker('q')")
        done.set()

    thread = threading.Thread(target=ticker)
    thread.start()
    assert not done.wait(0.5)
    reader = connect(lab.root.connstr, autocommit=True)
    reader.execute("begin isolation level repeatable read")
    snap = reader.one("select pg_export_snapshot() as name, txid_current_snapshot()::text as text")
    lab.root.execute("create table later (id int)")
    # a transaction with another snapshot is refused
    with pytest.raises(DatabaseError, match="exported snapshot"):
        holder.value("select vedur.write_moment('q', %s, %s)", [tick, snap.text])
    holder.execute(f"begin isolation level repeatable read; set transaction snapshot '{snap.name}'")
    assert holder.value("select vedur.write_moment('q', %s, %s)", [tick, snap.text]) == tick
    holder.execute("commit")
    last = lab.root.value("select max(tick_id) from pgq.tick")
    assert (last, done.is_set()) == (tick, False)
    holder.value("select vedur.end_moment('q')")
    thread.join(120)
    assert done.is_set()
    later = lab.pair.tick()
    rows = lab.root.query("select tick_id, tick_snapshot::text as s from pgq.tick order by 1")
    found = {row.tick_id: Snapshot.parse(row.s) for row in rows}
    assert later > tick
    assert found[tick] == Snapshot.parse(snap.text)
    assert max(t for t in found if t < tick) in (tick - 1, tick - 2)
    assert all(found[t].xmax <= found[tick].xmax for t in found if t < tick)
    assert all(found[t].xmax > found[tick].xmax for t in found if t > tick)
    with pytest.raises(DatabaseError, match="ticker lock"):
        holder.value("select vedur.write_moment('q', %s, %s)", [tick, snap.text])
    for db in (other, holder, reader):
        db.close()


def test_a_worker_far_behind_a_hold_comes_in_few_batches(make_lab: MakeLab) -> None:  # noqa: F811
    lab = make_lab()
    lab.pair.table("public.users", USERS)
    ticks = []
    for number in range(40):
        lab.root.execute(
            f"insert into users (id) select {number} * 10 + g"
            f" from generate_series(1, {1 + number % 7}) g"
        )
        ticks.append(lab.pair.tick())
    goal = ticks[25]
    lab.leaf.execute("select vedur.set_hold('q', %s, %s, '5 minutes')", [WORKER, goal])
    rounds = 0
    while lab.worker.work():
        rounds += 1
        position = lab.leaf.value("select max(last_tick_id) from pgq_node.local_state")
        assert position <= goal
    assert position == goal
    assert rounds < 12
    assert not lab.worker.work()
    lab.leaf.execute("select vedur.drop_hold('q', %s, %s)", [WORKER, goal])
    while lab.worker.work():
        pass
    assert lab.pair.rows("users")[0] == lab.pair.rows("users")[1]


def test_a_dead_holder_stops_nobody(make_lab: MakeLab) -> None:  # noqa: F811
    lab = ready(make_lab, 10)
    tick = lab.root.value("select max(tick_id) from pgq.tick") + 5
    lab.leaf.execute("select vedur.set_hold('q', %s, %s, '10 minutes')", [WORKER, tick])
    wait_for(lab.leaf, f"last_tick_id = {tick}")
    newest = "select max(tick_id) from pgq.tick"
    assert until(lambda: lab.root.value(newest) >= tick + 5)
    wait_for(lab.leaf, f"last_tick_id = {tick}")
    lab.leaf.execute("update vedur.hold set until = now()")
    wait_for(lab.leaf, f"last_tick_id > {tick}")


def test_a_queue_of_upstream_is_compared_with_a_lock(make_lab: MakeLab) -> None:  # noqa: F811
    lab = ready(make_lab, 700, root="upstream")
    lab.write(WRITERS[0], 0.02)
    with lab.session() as session:
        for _ in range(2):
            result = compare(session, CompareOptions(rows=True), lab.spark)
            assert result.bad == 0
            assert not result.tables[0].lock_free
    lab.plant("delete from users where id = 650; update users set note = 'x' where id = 603")
    with lab.session() as session:
        assert compare(session, CompareOptions(), lab.spark).bad == 1
        done = repair(session, RepairOptions(apply=True), lab.spark)[0]
        assert (done.inserts, done.updates, done.deletes) == (1, 1, 0)
        assert compare(session, CompareOptions(), lab.spark).bad == 0


def wait_for(db: Database, condition: str) -> None:
    asked = f"select {condition} from pgq_node.local_state where queue_name = 'q'"
    assert until(lambda: db.value(asked)), condition
