"""Who may read, and work with, events in quarantine."""

from __future__ import annotations

import pytest

from vedur import db as vdb
from vedur.errors import PrivilegeError
from vedur.sql import query

TABLES = ("replay_error", "skip_request", "quarantine", "quarantine_log", "quarantine_events")


@pytest.mark.parametrize("role", ["londiste_writer"])
def test_those_who_run_nodes_may_work_with_them(db: vdb.Database, role: str) -> None:
    db.execute(f"create role q_worker in role {role}; set local role q_worker")
    event = (
        "insert into vedur.quarantine (queue_name, consumer_name, prev_tick, tick_id, ev_id,"
        " ev_txid, ev_type, table_name, holds, cause)"
        " values ('q', 'c', 1, 2, 3, 4, 'I:id', 'public.t', 'table', 'error')"
    )
    db.execute(event)
    assert [tuple(r) for r in db.query(query("quarantine", "held"), {"queue": "q"})] == [
        ("public.t", None, True)
    ]
    text = query("quarantine", "end_table").format(
        columns=query("quarantine", "columns").split("\n", 1)[-1]
    )
    assert db.execute(text, ["q", "public.t", "dropped", "why"]) == 1
    assert db.value("select count(*) from vedur.quarantine_events") == 0
    assert db.value("select ended_by from vedur.quarantine_log") is not None
    said = dict.fromkeys(("ev_id", "ev_txid", "ev_type", "table", "dest", "key", "sqlstate"))
    said |= {"queue": "q", "consumer": "c", "prev_tick": 1, "tick": 2, "detail": None}
    for _ in range(2):
        db.execute(query("quarantine", "record_stuck_event"), said | {"message": "no"})
    assert db.value("select attempts from vedur.replay_error") == 2
    db.execute(query("quarantine", "clear_stuck_event"), ["q", "c"])
    asked = ["q", "c", None, None, None, 7, "why"]
    number = db.value(query("quarantine", "ask_skip"), asked)
    db.execute(query("quarantine", "end_skip"), ["done", number])
    db.rollback()


@pytest.mark.parametrize("table", TABLES)
def test_others_may_not_look(db: vdb.Database, table: str) -> None:
    db.execute("create role q_nobody in role londiste_reader; set local role q_nobody")
    assert not db.value(query("quarantine", "readable"))
    with pytest.raises(PrivilegeError):
        db.query(f"select * from vedur.{table}")
    db.rollback()


def test_nothing_leaves_the_log(db: vdb.Database) -> None:
    db.execute("create role q_worker in role londiste_writer; set local role q_worker")
    with pytest.raises(PrivilegeError):
        db.execute("delete from vedur.quarantine_log")
    db.rollback()
