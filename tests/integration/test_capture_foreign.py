"""Generated capture where pgq is upstream's, and by an administrator who is no superuser."""

from __future__ import annotations

import json

import pytest

from vedur.db import Database
from vedur.db.install import install


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_capture_into_upstreams_queue(upstream_db: Database, mode: str) -> None:
    install(upstream_db)
    upstream_db.call("pgq.create_queue", "q")
    triggers = "select prosrc, prolang from pg_proc where proname = 'jsontriga'"
    before = [tuple(r) for r in upstream_db.query(triggers)]
    upstream_db.execute("create table t (id int primary key, n numeric)")
    got = upstream_db.one(
        "select * from vedur.create_capture('q', 't', '_l', 'json', 'IUDT', %s)", [mode]
    )
    assert got.ret_code == 200, got
    upstream_db.execute("insert into t values (1, 1.50)")
    upstream_db.execute("update t set id = 2")
    rows = upstream_db.query("select ev_type, ev_data from pgq.event_1 order by ev_id")
    assert [json.loads(r[0])["op"] for r in rows] == ["INSERT", "DELETE", "INSERT"]
    assert rows[2][1] == '{"id":2,"n":"1.50"}'
    assert [tuple(r) for r in upstream_db.query(triggers)] == before


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_an_administrator_without_superuser(db: Database, mode: str) -> None:
    db.call("pgq.create_queue", "q")
    db.commit()
    # Roles outlive the database; the rollback at the end takes this one along.
    db.execute("create role capture_admin in role pgq_admin")
    db.execute("grant create on schema public to capture_admin")
    db.execute("create role capture_nobody")
    db.execute("set local role capture_admin")
    db.execute("create table t (id int primary key, a text)")
    call = "select * from vedur.create_capture('q', 't', '_l', 'json', 'IUDT', %s)"
    got = db.one(call, [mode])
    assert got.ret_code == 200, got
    db.execute("insert into t values (1, 'x')")
    db.execute("alter table t add column n numeric default 1.0")
    db.execute("update t set a = 'y'")
    db.execute("reset role")
    rows = db.query("select ev_data from pgq.event_1 order by ev_id")
    assert [r[0] for r in rows] == ['{"id":1,"a":"x"}', '{"id":1,"a":"y","n":"1.0"}']
    db.execute("grant all on table t to capture_nobody")
    db.execute("alter table t owner to capture_nobody")
    db.execute("set local role capture_nobody")
    got = db.one(call, [mode])
    assert (got.ret_code, "grant pgq_admin" in got.ret_note) == (
        {"row": 403, "bulk": 405}[mode],
        True,
    )
    db.rollback()
