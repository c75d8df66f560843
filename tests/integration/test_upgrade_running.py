"""The installer replaces an older version of our SQL while writers, ticker and worker run.

The older version is made of the present one: every function gets another text, and the record of
what is installed says so. Nothing may be lost by it, and nobody may have to be stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.copy_lab import Lab
from tests.integration.writers import Writers, check, make
from tests.oracle.quick import load_here, run_here
from vedur import db as vdb
from vedur.db.install import State, inspect, install
from vedur.pipeline import replay
from vedur.pipeline.copy import load
from vedur.sql import SCHEMAS
from vedur.worker.copying_steps import Step

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


@pytest.fixture
def lab(
    oldest: Any,
    newest: Any,
    make_db_on: Callable[..., vdb.Database],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lab]:
    monkeypatch.setattr(replay, "run_job", run_here)
    monkeypatch.setattr(load, "run_load", load_here)
    monkeypatch.setattr(load, "parallelism", lambda _spark: 1)
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), None)
    yield made
    made.close()


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


def upgrade(lab: Lab) -> None:
    for db in (lab.root, lab.leaf):
        with vdb.connect(db.connstr, autocommit=True) as mine:
            states = {c.state for c in install(mine)}
            assert states == {State.OUTDATED}
            assert older(mine) == 0
            assert {c.state for c in inspect(mine)} == {State.CURRENT}


def test_an_upgrade_under_load(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    make(lab, "t", "u", rows=200)
    lab.add("public.t", "public.u")
    for db in (lab.root, lab.leaf):
        assert make_older(db) > 100
    caplog.set_level(logging.WARNING, "vedur")
    lab.start()
    lab.wait_ok()
    with Writers(lab, "t", "u") as writers:
        for _ in range(3):
            writers.go_on(30)
            upgrade(lab)
            writers.go_on(30)
            for db in (lab.root, lab.leaf):
                make_older(db)
        upgrade(lab)
        writers.go_on(30)
        assert lab.alive
    check(lab, "t", "u")
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_an_upgrade_during_a_first_copy(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    make(lab, "t", rows=2000)
    lab.add("public.t")
    for db in (lab.root, lab.leaf):
        make_older(db)
    seen: list[Step] = []

    def hook(_table: str, step: Step) -> None:
        if step in (Step.LOAD, Step.CATCH_UP) and step not in seen:
            seen.append(step)
            upgrade(lab)
            for db in (lab.root, lab.leaf):
                make_older(db)

    with Writers(lab, "t"):
        lab.start(hook)
        lab.wait_ok()
    check(lab, "t")
    assert seen == [Step.LOAD, Step.CATCH_UP]
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
