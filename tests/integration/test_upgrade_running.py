"""The installer replaces an older version of our SQL while writers, ticker and worker run.

The older version is made of the present one: every function gets another text, and the record of
what is installed says so. Nothing may be lost by it, and nobody may have to be stopped.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fixtures.clock import FakeClock
from tests.fixtures.wait import until
from tests.labs.first_copy import Lab
from tests.labs.writers import Writers, check, make
from vedur import db as vdb
from vedur.db import install as installer
from vedur.db.install import State, inspect, install
from vedur.errors import StateError
from vedur.sql import SCHEMAS
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.timeout(400)]

_OLDER = "-- an older text"
_FUNCTIONS = """
select p.oid, pg_get_functiondef(p.oid) as text
from pg_proc p join pg_namespace n on n.oid = p.pronamespace
join pg_language l on l.oid = p.prolang
where n.nspname = any (%s) and l.lanname = 'plpgsql' and p.prokind = 'f'
order by p.oid
"""
_COUNT = """
select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where n.nspname = any (%s) and p.prosrc like %s
"""
#: Tables on which an upgrade may have to make indexes or a trigger.
_TABLES = ("vedur.quarantine", "vedur.skip_request", "vedur.repair_log", "londiste.table_info")


def make_older(db: vdb.Database) -> int:
    """Give every function another text, and the record another digest; how many it were."""
    rows = db.query(_FUNCTIONS, [list(SCHEMAS)])
    with db.transaction():
        for row in rows:
            head, mark, rest = row.text.partition("AS $function$")
            db.execute(f"{head}{mark}\n{_OLDER}{rest}")
        db.execute("update vedur.component set digest = 'older'")
    assert {c.state for c in inspect(db)} == {State.OUTDATED}
    return len(rows)


def older(db: vdb.Database) -> int:
    return int(db.value(_COUNT, [list(SCHEMAS), f"%{_OLDER}%"]))


def upgrade(quick_lab: Lab) -> None:
    for db in (quick_lab.root, quick_lab.leaf):
        with vdb.connect(db.connstr, autocommit=True) as mine:
            states = {c.state for c in install(mine)}
            assert states == {State.OUTDATED}
            assert older(mine) == 0
            assert {c.state for c in inspect(mine)} == {State.CURRENT}


def make_incomplete(db: vdb.Database) -> None:
    """Take away what an upgrade then has to make under locks."""
    db.execute("drop index vedur.quarantine_table_idx, vedur.repair_log_table_idx")
    db.execute("drop trigger table_info_trigger_sync on londiste.table_info")


def complete(db: vdb.Database) -> bool:
    return bool(
        db.value(
            "select to_regclass('vedur.quarantine_table_idx') is not null"
            " and to_regclass('vedur.repair_log_table_idx') is not null"
            " and exists (select from pg_trigger where tgname = 'table_info_trigger_sync')"
        )
    )


def test_an_upgrade_of_functions_alone_waits_for_no_writer(quick_lab: Lab) -> None:
    db = quick_lab.leaf
    make_older(db)
    with vdb.connect(db.connstr) as worker, vdb.connect(db.connstr, autocommit=True) as mine:
        for table in _TABLES:
            worker.execute(f"lock table {table} in row exclusive mode")
        assert {c.state for c in install(mine, FakeClock())} == {State.OUTDATED}
    assert older(db) == 0
    assert complete(db)


def test_whoever_is_in_the_way_of_the_installer_goes_first(
    quick_lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It never waits while it holds a lock, so it is never the reason for a deadlock.

    Without patience of its own it would wait here for ever, in a circle with the worker.
    """
    db = quick_lab.leaf
    make_older(db)
    make_incomplete(db)
    real = installer.query
    monkeypatch.setattr(
        installer, "query", lambda a, n: "select 1" if n == "patience" else real(a, n)
    )
    caplog.set_level(logging.INFO, "vedur")
    with (
        vdb.connect(db.connstr) as worker,
        vdb.connect(db.connstr, autocommit=True) as mine,
        ThreadPoolExecutor(1) as pool,
    ):
        worker.execute("lock table vedur.quarantine in row exclusive mode")
        done = pool.submit(install, mine)
        assert until(lambda: "Tables are in use" in caplog.text)
        worker.execute("lock table londiste.table_info in row exclusive mode")
        assert not done.done()
        worker.commit()
        assert {c.state for c in done.result(60)} == {State.OUTDATED}
    assert older(db) == 0
    assert complete(db)


def test_an_upgrade_step_takes_all_locks_first(
    quick_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that alters two tables: the user of the second is not waited for with the first held."""
    db = quick_lab.leaf
    make_older(db)
    db.execute("update vedur.component set version = '0.0.1'")
    text = "alter table londiste.table_info add x int; alter table londiste.seq_info add x int"
    step = installer.SqlFile("upgrades/0.0.2_01_londiste_x.sql", text)
    monkeypatch.setattr(installer, "upgrade_files", lambda: (step,))
    monkeypatch.setattr(installer, "_TRIES", 1)
    ran: list[str] = []
    real = vdb.Database.execute

    def note(self: vdb.Database, text: str, *args: object) -> object:
        ran.append(text)
        return real(self, text, *args)

    monkeypatch.setattr(vdb.Database, "execute", note)
    with vdb.connect(db.connstr) as worker, vdb.connect(db.connstr, autocommit=True) as mine:
        worker.execute("lock table londiste.seq_info in access share mode")
        with pytest.raises(StateError, match="stayed in use"):
            install(mine, FakeClock())
        assert text not in ran
        worker.rollback()
        install(mine, FakeClock())
    assert text in ran
    assert older(db) == 0


def test_the_installer_gives_up_with_a_word_about_it(
    quick_lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    db = quick_lab.leaf
    made = make_older(db)
    monkeypatch.setattr("vedur.db.install._TRIES", 3)
    caplog.set_level(logging.INFO, "vedur")
    clock = FakeClock()
    with (
        vdb.connect(db.connstr) as worker,
        vdb.connect(db.connstr, autocommit=True) as mine,
    ):
        make_incomplete(db)
        worker.execute("lock table vedur.quarantine in row exclusive mode")
        with pytest.raises(StateError, match=r"stayed in use.*pg_stat_activity.*run the command"):
            install(mine, clock)
        worker.rollback()
        assert clock.monotonic() > 0
        assert older(db) == made
        lines = [r.getMessage() for r in caplog.records]
        assert lines.count("Tables are in use: trying again until they are free") == 1
        install(mine)
    assert older(db) == 0


@pytest.mark.draw("running")
def test_an_upgrade_under_load(quick_lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    make(quick_lab, "t", "u", rows=200)
    quick_lab.add("public.t", "public.u")
    for db in (quick_lab.root, quick_lab.leaf):
        assert make_older(db) > 100
    caplog.set_level(logging.WARNING, "vedur")
    quick_lab.start()
    quick_lab.wait_ok()
    with Writers(quick_lab, "t", "u") as writers:
        for _ in range(3):
            writers.go_on(30)
            upgrade(quick_lab)
            writers.go_on(30)
            for db in (quick_lab.root, quick_lab.leaf):
                make_older(db)
        upgrade(quick_lab)
        writers.go_on(30)
        assert quick_lab.alive
    check(quick_lab, "t", "u")
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.draw("running")
def test_an_upgrade_during_a_first_copy(quick_lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    make(quick_lab, "t", rows=2000)
    quick_lab.add("public.t")
    for db in (quick_lab.root, quick_lab.leaf):
        make_older(db)
    seen: list[Step] = []

    def hook(_table: str, step: Step) -> None:
        if step in (Step.LOAD, Step.CATCH_UP) and step not in seen:
            seen.append(step)
            upgrade(quick_lab)
            for db in (quick_lab.root, quick_lab.leaf):
                make_older(db)

    with Writers(quick_lab, "t"):
        quick_lab.start(hook)
        quick_lab.wait_ok()
    check(quick_lab, "t")
    assert seen == [Step.LOAD, Step.CATCH_UP]
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
