"""Parts in a combined queue: what vedur.publish_part writes and refuses, what follow_part moves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.labs.pair import call
from vedur import db as vdb
from vedur.errors import DatabaseError, PrivilegeError

PUBLISH = (
    "select vedur.publish_part('part', 0, %s::bigint[], %s, %s, '2026-01-02 03:04:05+00', 77,"
    " '10:10:', 'n1')"
)
FOLLOW = "select * from vedur.follow_part('all', 'part', %s, now(), 5, '10:10:', 'n1')"


def make(db: vdb.Database, kind: str = "root") -> str:
    """A combined queue of which this is a node, and a part of it; returns the staging table."""
    for queue in ("all", "part"):
        for node in ("here", "n1"):
            call(db, "pgq_node.register_location", queue, node, f"dbname={node}", False)
    more = (None, None) if kind == "root" else ("n1", 1)
    call(db, "pgq_node.create_node", "all", kind, "here", "w", *more, None)
    call(db, "pgq_node.create_node", "part", "leaf", "here", "wp", "n1", 1, "all")
    return str(db.value("select vedur.create_raw_stage('part', 0)"))


def stage(db: vdb.Database, table: str, *events: tuple[Any, ...]) -> None:
    for ev_id, kind, data, extra1 in events:
        db.execute(
            f"insert into {table} values (1, %s, '2026-01-01 00:00+00', 5, %s, %s, %s, 'x2')",
            [ev_id, kind, data, extra1],
        )


def written(db: vdb.Database) -> list[Any]:
    table = db.value("select queue_data_pfx from pgq.queue where queue_name = 'all'")
    return db.query(
        "select ev_id, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4,"
        f" ev_txid = txid_current() as own, ev_time::text as time from {table}"
        " where ev_type not like 'londiste.%' and ev_type <> 'pgq.location-info' order by ev_id"
    )


def test_events_go_on_in_the_order_of_the_part_and_the_tick_behind_them(db: vdb.Database) -> None:
    table = make(db)
    stage(
        db, table,
        (9, "I:id", "nine", "public.t"), (3, "EXECUTE", "select 1", "a.sql"),
        (4, "pgq.global-watermark", "3", "part"), (5, "londiste.update-seq", "3", "s"),
        (7, "R", "", "public.t"), (8, '{"op":"UPDATE","table":["public","t"]}', "{}", ""),
    )  # fmt: skip
    assert db.value(PUBLISH, [[1], 6, 12]) == 4
    rows = written(db)
    assert [row.ev_data for row in rows] == ["select 1", "", "{}", "nine", "12"]
    assert all(row.own for row in rows)
    assert rows[0].time.startswith("2026-01-01")
    tick = rows[-1]
    assert (tick.ev_type, tick.ev_extra1, tick.ev_extra3, tick.ev_extra4) == (
        "pgq.tick-id", "part", "77 n1", "10:10:",
    )  # fmt: skip
    assert tick.ev_extra2.startswith("2026-01-0")
    assert db.value(PUBLISH, [[], 0, 13]) == 0  # a batch without events says its tick, too
    assert written(db)[-1].ev_data == "13"


@pytest.mark.parametrize("kind", ["R", '{"op":"TRUNCATE","table":["public","t"],"pkey":["id"]}'])
def test_a_truncate_of_a_shared_table_stays_out(db: vdb.Database, kind: str) -> None:
    table = make(db)
    call(db, "pgq_node.register_location", "other", "here", "dbname=here", False)
    call(db, "pgq_node.register_location", "other", "n1", "dbname=n1", False)
    call(db, "pgq_node.create_node", "other", "leaf", "here", "wo", "n1", 1, "all")
    db.execute("create table t (id int primary key)")
    for queue in ("part", "other"):
        call(db, "londiste.global_add_table", queue, "t")
        call(db, "londiste.local_add_table", queue, "t", ["expect_sync", "no_merge"])
    extra1 = "public.t" if kind == "R" else ""
    stage(db, table, (1, kind, "", extra1), (2, "I:id", "id=1", "public.t"))
    assert db.value(PUBLISH, [[1], 2, 12]) == 1
    assert [row.ev_data for row in written(db)] == ["id=1", "12"]
    # a table that the node has of the other part alone
    call(db, "londiste.local_remove_table", "part", "t")
    assert db.value(PUBLISH, [[1], 2, 13]) == 0


def test_what_does_not_fit_is_refused(db: vdb.Database) -> None:
    table = make(db)
    stage(db, table, (1, "I:id", "one", "public.t"))

    def refused(sqlstate: str, *args: Any) -> str:
        with pytest.raises(DatabaseError) as caught, db.transaction():
            db.value(PUBLISH, list(args))
        assert caught.value.sqlstate == sqlstate
        return caught.value.message

    assert "stage the batch again" in refused("VB001", [1], 2, 12)
    stage(db, table, (1, "I:id", "one", "public.t"))
    assert "staged more than once" in refused("XX001", [1], 2, 12)
    db.execute("update pgq.queue set queue_disable_insert = true")
    assert "and it is closed" in refused("VB002", [], 0, 12)
    db.execute("update pgq.queue set queue_disable_insert = false")
    db.execute("update pgq_node.node_info set node_type = 'branch' where queue_name = 'all'")
    assert "this node is the branch of it" in refused("VB002", [], 0, 12)
    db.execute("update pgq_node.node_info set combined_queue = null where queue_name = 'part'")
    assert "is not merged" in refused("55000", [], 0, 12)
    assert not written(db)


def test_a_part_of_a_combined_branch_is_moved_and_its_own_work_is_remembered(
    db: vdb.Database,
) -> None:
    make(db, "branch")
    where = "select last_tick_id from pgq_node.local_state where queue_name = 'part'"
    for tick in (7, 9, 8):  # the combined root decides
        assert db.one(FOLLOW, [tick]).ret_code == 200
        assert db.value(where) == tick
        assert db.value("select tick_id from vedur.position where queue_name = 'part'") == tick
    assert db.value("select handled_tick from vedur.part_wait where queue_name = 'part'") == 1
    # Londiste's worker says the number alone
    text = "select * from vedur.follow_part('all', 'part', 10, null, null, null, null)"
    assert db.one(text).ret_code == 200
    assert db.value("select count(*) from vedur.position where queue_name = 'part'") == 0
    db.execute("update pgq_node.node_info set node_type = 'root' where queue_name = 'all'")
    assert db.one(FOLLOW, [11]).ret_code == 201
    assert db.value(where) == 10


@pytest.mark.parametrize("role", ["pgq_reader", "pgq_writer", "londiste_reader"])
def test_who_runs_no_node_merges_nothing(db: vdb.Database, role: str) -> None:
    for text, args in ((PUBLISH, [[], 0, 1]), (FOLLOW, [1])):
        with pytest.raises(PrivilegeError), db.transaction():
            db.execute(f"set local role {role}")
            db.execute(text, args)


def test_staging_tables_of_a_part_that_is_gone_are_dropped(db: vdb.Database) -> None:
    table = make(db)
    assert db.value("select vedur.drop_raw_stages(null)") == 0
    call(db, "pgq_node.drop_node", "part", "here")
    assert db.value("select vedur.drop_raw_stages(null)") == 1
    assert db.value("select to_regclass(%s)", [table]) is None
