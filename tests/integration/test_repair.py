"""repair: exactly the differing rows, exactly what the provider has, while writers write."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.integration.test_compare import USERS, WRITERS, nodes, ready
from tests.labs.compare import Lab, make_lab  # noqa: F401
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.errors import StateError
from vedur.node.moment import meet
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.repair import RepairOptions, TableRepair, repair

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

MakeLab = Callable[..., Lab]

#: Statements on the leaf and what repair must do about them, by key.
PLANTED = {
    "update users set balance = balance + 0.01 where id = 11": {("update", 11)},
    "update users set note = '' where id = 12": {("update", 12)},
    "update users a set name = b.name from users b where a.id in (13, 14) and b.id in (13, 14)"
    " and a.id <> b.id": {("update", 13), ("update", 14)},
    "insert into users values (-5, 'extra'), (-6, null)": {("delete", -5), ("delete", -6)},
    "delete from users where id in (15, 16)": {("insert", 15), ("insert", 16)},
    "update users set name = name || ' ' where id = 17": {("update", 17)},
    "update users set score = score * (1 + 2.3e-16) where id = 18": {("update", 18)},
    "update users set id = -19 where id = 19": {("delete", -19), ("insert", 19)},
}


def run(lab: Lab, **options: object) -> TableRepair:
    with lab.session() as session:
        return repair(session, RepairOptions(**options), lab.spark)[0]  # type: ignore[arg-type]


def logged(lab: Lab) -> set[tuple[str, int]]:
    rows = lab.leaf.query("select action, (row_key::json ->> 0)::int as id from vedur.repair_log")
    return {(r.action, r.id) for r in rows}


def equal_at_a_moment(lab: Lab) -> bool:
    with lab.session() as session:
        return compare(session, CompareOptions(), lab.spark).bad == 0


@pytest.mark.draw("repair")
def test_plan_then_apply_then_nothing_left(
    make_lab: MakeLab,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = ready(make_lab)
    for statement in PLANTED:
        lab.plant(statement)
    expected = set().union(*PLANTED.values())
    broken = lab.leaf.query("select * from users order by id")
    caplog.set_level(logging.INFO)
    lab.root.execute(
        "insert into vedur.table_change (queue_name, table_name, severity, what, action, pending)"
        " values ('q', 'public.users', 'fail', 'a partition was dropped', 'repair', '{leaf}')"
    )
    by_hand = "select what from vedur.table_problems('q')"
    plan = run(lab)
    assert not plan.applied
    assert lab.root.value(by_hand) == "a partition was dropped (not repaired yet: leaf)"
    assert (plan.inserts, plan.updates, plan.deletes) == (3, 6, 3)
    assert lab.leaf.query("select * from users order by id") == broken
    assert logged(lab) == set()
    line = "finished public.users: src: 1000 rows, dst: 1000 rows, missed: 3 inserts, 6 updates,"
    assert any(line in r.getMessage() for r in caplog.records)
    assert any("public.users: update id=12 columns: note" in r.getMessage() for r in caplog.records)
    done = run(lab, apply=True)
    assert done.applied
    assert lab.root.value(by_hand) is None
    assert (done.inserts, done.updates, done.deletes) == (3, 6, 3)
    assert logged(lab) == expected
    assert lab.pair.rows("users")[0] == lab.pair.rows("users")[1]
    old = lab.leaf.one("select old_row, new_row from vedur.repair_log where row_key = '[\"12\"]'")
    assert (old.old_row["note"], old.new_row["note"]) == ("", None)
    again = run(lab, apply=True)
    assert again.total == 0
    assert len(logged(lab)) == len(expected)
    assert lab.leaf.value("select count(*) from vedur.hold") == 0
    debris = "select count(*) from pg_class where relname like 'repair\\_%s\\_%%'"
    assert lab.leaf.value(debris % "keys") + lab.leaf.value(debris % "rows") == 0


@pytest.mark.draw("repair")
def test_repair_among_writers_touches_only_what_was_planted(
    make_lab: MakeLab,  # noqa: F811
) -> None:
    lab = ready(make_lab)
    for statement in WRITERS:
        lab.write(statement, 0.01)
    # Rows that the writers do not touch, so that only repair can put them right.
    lab.plant("delete from users where id between 950 and 954")
    lab.plant("update users set note = 'wrong' where id between 960 and 963")
    lab.plant("insert into users select -g from generate_series(1, 3) g")
    # And rows that they do touch.
    lab.plant("update users set name = 'wrong' where id between 1 and 40")
    done = run(lab, apply=True)
    assert done.inserts == 5
    assert done.deletes == 3
    assert 4 <= done.updates <= 44
    assert equal_at_a_moment(lab)
    untouched = {(a, i) for a, i in logged(lab) if not 1 <= i <= 40}
    assert untouched == (
        {("insert", i) for i in range(950, 955)}
        | {("update", i) for i in range(960, 964)}
        | {("delete", -i) for i in range(1, 4)}
    )
    assert run(lab, apply=True).total == 0


@pytest.mark.draw("repair")
def test_where_repairs_a_part_and_never_takes_a_row_for_gone(
    make_lab: MakeLab,  # noqa: F811
) -> None:
    lab = ready(make_lab, 100)
    lab.plant("update users set balance = -1 where id in (5, 6, 60)")
    lab.plant("delete from users where id in (7, 70)")
    # 5 and 6 do not meet the condition on the leaf any more, but they are there.
    done = run(lab, apply=True, where="balance > 0 and id < 50")
    assert (done.inserts, done.updates, done.deletes) == (1, 2, 0)
    assert logged(lab) == {("update", 5), ("update", 6), ("insert", 7)}
    lab.plant("update users set balance = 1000000 where id = 8")
    done = run(lab, apply=True, where="balance > 999999")
    assert (done.inserts, done.updates, done.deletes) == (0, 1, 0)
    rest = run(lab, apply=True)
    assert (rest.inserts, rest.updates, rest.deletes) == (1, 1, 0)
    assert equal_at_a_moment(lab)


@pytest.mark.draw("repair")
def test_other_uniques_local_columns_generated_and_identity(
    make_lab: MakeLab,  # noqa: F811
) -> None:
    lab = make_lab()
    lab.pair.table(
        "public.things",
        "create table things (k1 text, k2 numeric, code int unique, v text,"
        " n int generated always as identity, twice int generated always as (code * 2) stored,"
        " primary key (k1, k2))",
    )
    lab.pair.table(
        "public.users",
        USERS,
        dest_ddl=USERS.replace("note text", "mine text default 'local', note text"),
    )
    lab.root.execute(
        "insert into things (k1, k2, code, v) select 'k' || g % 3, g, g, 'v' from"
        " generate_series(1, 30) g"
    )
    lab.root.execute("insert into users select g, 'u' from generate_series(1, 20) g")
    lab.start()
    lab.settle()
    # Swapped unique values cannot be put right one by one; a scale is part of a numeric key.
    lab.plant(
        "update things set code = -1 where k2 = 1; update things set code = 1 where k2 = 2;"
        " update things set code = 2 where k2 = 1; update things set k2 = 3.00 where k2 = 3"
    )
    lab.plant("update users set name = 'x', mine = 'kept' where id = 3")
    with lab.session() as session:
        things, users = repair(session, RepairOptions(apply=True), lab.spark)
    assert things.total >= 3
    assert (users.inserts, users.updates, users.deletes) == (0, 1, 0)
    assert lab.leaf.value("select mine from users where id = 3") == "kept"
    with lab.session() as session:
        assert compare(session, CompareOptions(), lab.spark).bad == 0


def test_a_repair_waits_for_nobody_and_the_worker_waits_for_it(
    make_lab: MakeLab,  # noqa: F811
) -> None:
    """While the target is held its position does not move; afterwards it does."""
    lab = ready(make_lab, 50)
    where = "select last_tick_id from pgq_node.local_state where queue_name = %s"
    with meet(nodes(lab), "public.users", "public.users", keep_hold=True) as moment:
        lab.root.execute("update users set note = 'later'")
        for _ in range(20):
            assert lab.leaf.value(where, [QUEUE]) == moment.tick
            lab.stop.wait(0.1)
        assert lab.leaf.value("select count(*) from users where note = 'later'") == 0
    lab.settle()
    assert lab.leaf.value("select count(*) from users where note = 'later'") == 50


@pytest.mark.draw("repair")
@pytest.mark.parametrize(
    ("snapshot", "state", "why"),
    [(None, None, "was changed by another command"), ("1:9000000:", "ok", "ahead of the worker")],
)
def test_a_table_that_is_copied_anew_between_the_moments_is_left_alone(
    make_lab: MakeLab,  # noqa: F811
    snapshot: str | None,
    state: str | None,
    why: str,
) -> None:
    """resync comes while rows are fetched: the copy may be past their tick, or just be emptied."""
    lab = ready(make_lab, 50)
    lab.plant("update users set note = 'wrong' where id = 7")

    def resync(point: str) -> None:
        if point == "repair.fetched":
            call(lab.leaf, "londiste.local_set_table_state", QUEUE, "public.users", snapshot, state)

    failpoint.set_hook(resync)
    try:
        with pytest.raises(StateError, match=why):
            run(lab, apply=True)
    finally:
        failpoint.set_hook(None)
    assert lab.leaf.value("select note from users where id = 7") == "wrong"
    assert logged(lab) == set()


@pytest.mark.draw("repair")
def test_events_that_wait_are_named_before_their_difference(
    make_lab: MakeLab,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = ready(make_lab, 50)
    lab.attrs("public.users", "on_error=quarantine-row")
    lab.leaf.execute("alter table users add constraint no_bad check (name <> 'bad')")
    lab.root.execute("update users set name = 'bad' where id = 3")
    waiting = "select count(*) from vedur.quarantine"
    while not lab.leaf.value(waiting):
        assert not lab.errors
        lab.stop.wait(0.05)
    with lab.session() as session:
        (found,) = compare(session, CompareOptions(), lab.spark).tables
    assert (found.match, found.as_json()["quarantined"]) == (False, 1)
    said = "public.users: 1 event(s) wait in quarantine, so rows may differ from the provider's"
    command = "see quarantine list --table=public.users"
    assert sum(said in m and command in m for m in caplog.messages) == 1
    lab.leaf.execute("alter table users drop constraint no_bad")
    for apply in (False, True):
        caplog.clear()
        done = run(lab, apply=apply)
        assert (done.updates, done.as_json()["quarantined"]) == (1, 1)
        assert sum(said in m and "replay --replace" in m for m in caplog.messages) == 1
    assert lab.leaf.value("select name from users where id = 3") == "bad"
