"""doctor on a healthy node, and on nodes with one fault planted at a time."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.pg import TestServer
from tests.labs.status_page import QUEUE, SetLab
from vedur import db as vdb
from vedur.change.attrs import COLUMNS, encode_attrs
from vedur.cli.main import main
from vedur.clock import SystemClock
from vedur.config import LondisteSettings
from vedur.db.conninfo import with_params
from vedur.node.state import set_consumer_error
from vedur.ops.doctor import machine as doctor_machine
from vedur.ops.doctor import server as doctor_server
from vedur.ops.doctor.result import Finding, Verdict
from vedur.ops.doctor.run import doctor


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Loading Spark takes seconds: once is enough, in the test of it."""
    if "real_spark" not in request.keywords:
        monkeypatch.setattr(doctor_machine, "check_spark", lambda settings, needed: iter(()))


def finish(lab: SetLab) -> None:
    """What workers have applied, they have finished on the root."""
    for name in lab.sessions.keys() - {"src"}:
        tick = lab.dbs[name].value("select last_tick_id from pgq_node.local_state")
        lab.dbs["src"].execute(
            "update pgq.subscription set sub_last_tick = t.tick_id from pgq.consumer c, pgq.tick t"
            " where c.co_id = sub_consumer and c.co_name = %s and t.tick_id = %s",
            [lab.worker(name), tick],
        )


def examine(lab: SetLab, node: str, **changes: Any) -> list[Finding]:
    finish(lab)
    return list(doctor(dataclasses.replace(lab.sessions[node].settings, **changes)))


def sick(findings: list[Finding]) -> list[tuple[str, str]]:
    """Verdict and check of everything that is not ok; each must come with a remedy."""
    bad = [finding for finding in findings if finding.verdict is not Verdict.OK]
    assert all(finding.remedy for finding in bad)
    return [(finding.verdict.value, finding.check) for finding in bad]


def text(findings: list[Finding], check: str) -> str:
    return " | ".join(f.found for f in findings if f.check == check)


def test_a_healthy_set(lab: SetLab) -> None:
    lab.uptodate()
    for node in ("src", "dst", "eu"):
        found = examine(lab, node)
        assert sick(found) == [], node
        checks = {finding.check for finding in found}
        assert {"ini", "database", "clock", "schemas", "connections", "tables", "keys"} <= checks
        assert {"node", "ticker", "worker", "lag", "copy", "rotation"} <= checks
        assert ("triggers" in checks) == (node == "src")
        assert ("provider" in checks) == (node != "src")
        assert ("indexes" in checks) == (node != "src")


def test_a_position_that_is_lost(lab: SetLab) -> None:
    """Nobody else looks where no worker runs."""
    lab.uptodate()
    finish(lab)
    lab.dbs["dst"].execute("delete from vedur.position")
    lab.dbs["dst"].execute("update pgq_node.local_state set last_tick_id = last_tick_id - 1")
    found = list(doctor(lab.sessions["dst"].settings))
    assert ("fail", "position") in sick(found)
    assert "lost: " in text(found, "position")
    assert any('"rejoin"' in f.remedy for f in found if f.check == "position")


def test_the_server_does_not_answer(lab: SetLab) -> None:
    gone = with_params(lab.sessions["dst"].settings.db, port="1", password="hunter2")
    found = examine(lab, "dst", db=gone)
    assert sick(found) == [("fail", "database")]
    assert "hunter2" not in str(found)


def test_a_database_without_a_node(oldest: TestServer, make_db_on: Callable[..., Any]) -> None:
    bare = make_db_on(oldest, "bare", autocommit=True)
    found = list(doctor(LondisteSettings(db=bare.connstr, queue_name=QUEUE, config_file="/x.ini")))
    assert sick(found) == [("fail", "schemas"), ("fail", "node")]
    ours = make_db_on(oldest, autocommit=True)
    found = list(doctor(LondisteSettings(db=ours.connstr, queue_name=QUEUE, config_file="/x.ini")))
    assert sick(found) == [("fail", "node")]


def test_triggers_that_are_gone_or_disabled(lab: SetLab) -> None:
    root = lab.dbs["src"]
    root.execute("alter table shop.orders disable trigger _londiste_replika")
    found = examine(lab, "src")
    assert sick(found) == [("fail", "triggers"), ("fail", "ddl")]  # the page tells it, too
    assert "shop.orders (_londiste_replika)" in text(found, "triggers")
    root.execute("alter table shop.orders enable trigger _londiste_replika")
    root.execute("drop trigger _londiste_replika on shop.lines")
    root.execute(
        "create trigger _londiste_replika_2 after insert or update or delete on shop.lines"
        " for each row execute function pgq.logutriga('replika_2')"
    )
    found = examine(lab, "src")
    assert sick(found) == [("fail", "triggers"), ("fail", "ddl")]
    assert text(found, "triggers") == "not every change is caught: shop.lines"
    root.execute("drop trigger _londiste_replika_truncate on shop.orders")
    assert ("warn", "triggers") in sick(examine(lab, "src"))


def test_sessions_whose_changes_no_trigger_sees(lab: SetLab) -> None:
    root = lab.dbs["src"]
    name = root.value("select current_database()")
    root.execute(f'alter database "{name}" set session_replication_role = replica')
    try:
        found = examine(lab, "src")
        assert sick(found) == [("warn", "triggers")]
        assert f"replica: database {name}; what they write is not caught" in text(found, "triggers")
    finally:
        root.execute(f'alter database "{name}" reset session_replication_role')
    assert sick(examine(lab, "src")) == []


def test_tables_without_key_or_gone(lab: SetLab) -> None:
    leaf = lab.dbs["dst"]
    leaf.execute("alter table shop.lines drop constraint lines_pkey")
    found = examine(lab, "dst")
    assert sick(found) == [("fail", "keys")]
    assert text(found, "keys").startswith("no primary key, nor a unique index over NOT NULL")
    leaf.execute("drop table shop.lines")
    found = examine(lab, "dst")
    assert sick(found) == [("fail", "tables")]
    assert text(found, "tables") == "not in the database: shop.lines"


def test_indexes_that_the_provider_has(lab: SetLab) -> None:
    leaf, root = lab.dbs["dst"], lab.dbs["src"]
    root.execute("create index on shop.orders (note, id desc)")
    root.execute("create index on shop.orders (lower(note)) where id > 5")
    root.execute("create index on shop.lines (order_id)")
    leaf.execute("create index another_name on shop.lines (order_id)")
    found = examine(lab, "dst")
    assert sick(found) == [("warn", "indexes")]
    assert text(found, "indexes") == (
        "the provider has more: shop.orders (lower(note), where id > 5), shop.orders (note, id)"
    )
    # the columns may have other names here, and some may not be here
    leaf.execute("alter table shop.orders rename note to remark")
    leaf.execute(
        "update londiste.table_info set table_attrs = %s where table_name = 'shop.orders'",
        [encode_attrs({COLUMNS: "id,note=remark"})],
    )
    assert "shop.orders (remark, id)" in text(examine(lab, "dst"), "indexes")
    leaf.execute("create index on shop.orders (remark, id)")
    assert sick(examine(lab, "dst")) == []


def test_a_role_without_any_right(lab: SetLab) -> None:
    db = lab.dbs["src"]
    if not db.value("select 1 from pg_roles where rolname = 'doctor_stranger'"):
        db.execute("create role doctor_stranger login")
    mine = with_params(lab.sessions["src"].settings.db, user="doctor_stranger")
    found = examine(lab, "src", db=mine)
    assert sick(found) == [("fail", "rights")]
    assert "permission denied" in text(found, "rights")
    assert "londiste_writer" in str(found)


def test_a_schema_where_everybody_may_create(lab: SetLab) -> None:
    lab.dbs["src"].execute("grant create on schema public to public")
    found = examine(lab, "src")
    assert sick(found) == [("warn", "rights")]
    assert text(found, "rights").endswith("everybody may create there: public")


def test_rights_that_are_missing(lab: SetLab) -> None:
    leaf, root = lab.dbs["dst"], lab.dbs["src"]
    for db in (leaf, root):
        if not db.value("select 1 from pg_roles where rolname = 'doctor_patient'"):
            db.execute("create role doctor_patient login")
        db.execute("grant usage on schema shop to doctor_patient")
        db.execute("grant pgq_reader, londiste_reader to doctor_patient")
    # the role may look, and not write
    leaf.execute(
        "update londiste.table_info set merge_state = null where table_name = 'shop.lines'"
    )
    settings = lab.sessions["dst"].settings
    found = examine(
        lab,
        "dst",
        db=with_params(settings.db, user="doctor_patient"),
        remote_extra_connstr="user=doctor_patient",
    )
    said = text(found, "rights")
    assert "may not create staging tables in schema vedur_work" in said
    assert "may not write: shop.lines, shop.orders" in said
    assert "waiting for a copy, and not owned: shop.lines" in said
    assert "may not read on the provider: shop.lines" in said
    assert {check for _, check in sick(found)} == {"rights"}
    for db in (leaf, root):
        db.execute("revoke pgq_reader, londiste_reader from doctor_patient")


def test_a_provider_that_is_gone_or_knows_nothing(lab: SetLab) -> None:
    lab.dbs["src"].execute("delete from pgq_node.subscriber_info where subscriber_node = 'dst'")
    found = examine(lab, "dst")
    assert sick(found) == [("fail", "provider"), ("fail", "tree")]
    assert 'src does not know "dst" as a subscriber' in text(found, "provider")
    assert 'dst: it reads from "src", which keeps no subscription' in text(found, "tree")
    away = "host=127.0.0.1 port=1 dbname=x password=hunter2"
    lab.dbs["dst"].value("select pgq_node.register_location(%s, 'src', %s, false)", [QUEUE, away])
    found = examine(lab, "dst")
    assert ("fail", "provider") in sick(found) and ("fail", "node") in sick(found)
    assert "hunter2" not in str(found)


def test_a_set_that_does_not_run_well(lab: SetLab) -> None:
    lab.uptodate()
    lab.tick()
    lab.dbs["src"].execute("update pgq.tick set tick_time = tick_time - interval '1 hour'")
    set_consumer_error(lab.dbs["dst"], QUEUE, lab.worker("dst"), "division by zero")
    found = examine(lab, "dst")
    assert set(sick(found)) == {("fail", "ticker"), ("fail", "worker"), ("warn", "lag")}
    assert "start pgqd" in str(found)


def test_schemas_of_another_version(lab: SetLab) -> None:
    lab.dbs["dst"].execute("update vedur.component set digest = 'old' where schema = 'londiste'")
    found = examine(lab, "dst")
    assert sick(found) == [("warn", "schemas")]
    assert text(found, "schemas") == "of another version: londiste"
    lab.dbs["dst"].execute(
        "update vedur.component set version = '99.0.0' where schema = 'londiste'"
    )
    assert text(examine(lab, "dst"), "schemas") == "newer than this program: londiste"


class SlowClock(SystemClock):
    """A machine whose clock is half an hour behind."""

    def now(self) -> datetime:
        return super().now() - timedelta(minutes=30)


def test_clocks_that_differ(lab: SetLab) -> None:
    found = list(doctor_server.check_server("database", lab.dbs["src"], SlowClock()))
    assert sick(found) == [("warn", "clock")]
    assert "ahead of this machine" in text(found, "clock")


def test_too_few_connections(lab: SetLab) -> None:
    found = examine(lab, "dst", max_connections_per_node=100_000)
    assert sick(found) == [("warn", "connections")]


def test_an_ini_that_others_can_read(lab: SetLab, tmp_path: Path) -> None:
    ini = tmp_path / "dst.ini"
    ini.write_text("x")
    ini.chmod(0o644)
    secret = with_params(lab.sessions["dst"].settings.db, password="hunter2")
    found = examine(lab, "dst", config_file=str(ini), db=secret)
    assert sick(found) == [("warn", "ini")]
    assert f"chmod 600 {ini}" in str(found)
    ini.chmod(0o600)
    assert sick(examine(lab, "dst", config_file=str(ini), db=secret)) == []
    missing = str(tmp_path / "no" / "where" / "dst.pid")
    assert ("fail", "ini") in sick(examine(lab, "dst", pidfile=missing))


def test_a_worker_that_does_not_run(lab: SetLab, tmp_path: Path) -> None:
    pidfile = tmp_path / "dst.pid"
    assert sick(examine(lab, "dst", pidfile=str(pidfile))) == [("warn", "worker")]
    pidfile.write_text(f"{os.getpid()}\n")
    found = examine(lab, "dst", pidfile=str(pidfile))
    assert sick(found) == []
    assert f"runs with pid {os.getpid()}" in text(found, "worker")


def test_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def java(said: str) -> None:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        program.chmod(0o755)

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor_machine.java_version()[1] is None
    java('openjdk version "17.0.1" 2021-10-19')
    assert doctor_machine.java_version()[1] == 17
    java('java version "1.8.0_292"')
    assert doctor_machine.java_version()[1] == 8
    java("nonsense")
    assert doctor_machine.java_version() == (
        f"{tmp_path}/bin/java does not tell its version",
        None,
    )
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor_machine.java_version() == ("no java on PATH and no JAVA_HOME", None)


def test_the_command(lab: SetLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab.uptodate()
    ini = tmp_path / "src.ini"
    connstr = lab.sessions["src"].settings.db
    ini.write_text(f"[londiste3]\ndb = {connstr}\nqueue_name = {QUEUE}\njob_name = src_job\n")
    assert main("vedur", ["-q", str(ini), "doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"ok    ini          {ini}"
    assert any(line.startswith("ok    triggers     every change is caught") for line in lines)
    lab.dbs["src"].execute("drop trigger _londiste_replika on shop.orders")
    assert main("vedur", ["-q", str(ini), "doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [f["check"] for f in found if f["verdict"] == "fail"] == ["triggers", "ddl"]
    assert set(found[0]) == {"verdict", "check", "found", "remedy"}


@pytest.mark.real_spark
def test_spark_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LondisteSettings(db="", queue_name="q", config_file="/x.ini")
    found = list(doctor_machine.check_spark(settings, needed=True))
    assert [(f.verdict, f.check) for f in found] == [(Verdict.OK, "java"), (Verdict.OK, "spark")]
    assert "pyspark 4." in found[1].found
    monkeypatch.setattr(doctor_machine.sys, "executable", "/bin/false")
    found = list(doctor_machine.check_spark(settings, needed=False))
    assert [(f.verdict, f.check) for f in found] == [(Verdict.OK, "java"), (Verdict.WARN, "spark")]


def test_nothing_is_changed(lab: SetLab) -> None:
    def state(db: vdb.Database) -> dict[str, Any]:
        tables = db.query(
            "select c.oid::regclass::text as name from pg_class c where relkind = 'r' and "
            "relnamespace::regnamespace::text in ('pgq', 'pgq_node', 'londiste', 'vedur', 'shop')"
        )
        text = "select count(*), sum(hashtextextended(t::text, 0)) from only {} t"
        return {table.name: db.one(text.format(table.name)) for table in tables}

    lab.uptodate()
    finish(lab)
    before = [state(db) for db in lab.dbs.values()]
    assert all(len(tables) > 20 for tables in before)
    for node in ("src", "dst"):
        examine(lab, node)
    assert [state(db) for db in lab.dbs.values()] == before
