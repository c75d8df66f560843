"""change-filter: just the right rows come and go, while writers write; all or nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.integration.test_compare import USERS, WRITERS, ready
from tests.labs.compare import Lab, make_lab  # noqa: F401
from tests.labs.leaf import Leaf, make_leaf  # noqa: F401
from tests.labs.pair import QUEUE, call
from vedur import failpoint
from vedur.change.attrs import decode_attrs, encode_attrs
from vedur.clock import SYSTEM
from vedur.errors import StateError, UsageError
from vedur.ops.change_filter import ChangeFilter, FilterChange, change_filter
from vedur.ops.compare import CompareOptions, compare
from vedur.ops.repair import RepairOptions, repair

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

MakeLab = Callable[..., Lab]

#: Moves rows across conditions on balance and on the key.
CROSSING = (
    "update users set balance = (random() * 1000)::int"
    " where id = (select 1 + (random() * 400)::int)",
    "update users set id = -id where id = (select 401 + (random() * 100)::int)",
    "update users set id = -id where id = (select -(401 + (random() * 100)::int))",
)


def change(lab: Lab, where: str | None, *, table: str = "users", **more: object) -> FilterChange:
    wish = ChangeFilter(table=table, where=where, all_rows=where is None, **more)  # type: ignore[arg-type]
    with lab.session() as session:
        done = change_filter(session, wish, lab.spark)
    assert done is not None
    return done


def condition(lab: Lab, table: str = "public.users") -> str | None:
    text = "select table_attrs from londiste.table_info where table_name = %s"
    return decode_attrs(lab.leaf.value(text, [table])).get("copy_condition")


def equal(lab: Lab) -> bool:
    with lab.session() as session:
        return compare(session, CompareOptions(), lab.spark).bad == 0


def part(lab: Lab, where: str) -> list[str]:
    return [r[0] for r in lab.root.query(f"select users::text from users where {where} order by 1")]


def here(lab: Lab) -> list[str]:
    return [r[0] for r in lab.leaf.query("select users::text from users order by 1")]


def finish(lab: Lab) -> None:
    """No more writers, and the leaf has what they wrote."""
    lab.stop_writers()
    lab.root.execute("select pgq.force_tick('q'); select pgq.ticker('q')")
    goal = lab.root.value("select max(tick_id) from pgq.tick")
    for _ in range(6000):
        if lab.leaf.value("select max(last_tick_id) from pgq_node.local_state") >= goal:
            return
        SYSTEM.sleep(0.05)
    raise AssertionError(f"the worker does not come to tick {goal}")


def no_debris(lab: Lab) -> bool:
    left = "select count(*) from pg_class where relname like 'filter\\_rows\\_%'"
    return not lab.leaf.value(left) and not lab.leaf.value("select count(*) from vedur.hold")


@pytest.mark.draw("filters")
def test_rows_come_and_go_among_writers(
    make_lab: MakeLab,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = ready(make_lab)
    for statement in (*WRITERS, *CROSSING):
        lab.write(statement, 0.01)
    caplog.set_level(logging.INFO)
    plan = change(lab, "id between 200 and 800", dry_run=True)
    assert (plan.applied, plan.inserts) == (False, 0)
    assert plan.deletes > 300
    assert condition(lab) is None
    assert equal(lab)
    for where in (
        "id between 200 and 800 -- the middle",
        "balance > 300 or note = ''",
        None,
        "users.name like 'user %'",
    ):
        done = change(lab, where)
        assert done.applied
        assert condition(lab) == where
        assert equal(lab), where
        line = f"public.users: {done.inserts} rows inserted, {done.deletes} deleted,"
        assert any(line in r.getMessage() for r in caplog.records)
    finish(lab)
    assert here(lab) == part(lab, "users.name like 'user %'")
    assert len(here(lab)) > 100
    assert no_debris(lab)


def test_counts_are_exact_and_the_old_rows_stay_untouched(make_lab: MakeLab) -> None:  # noqa: F811
    lab = ready(make_lab, 100)
    done = change(lab, "id <= 40")
    assert (done.inserts, done.deletes, done.old) == (0, 60, None)
    versions = "select id, xmin::text from users where id between 21 and 40 order by 1"
    before = lab.leaf.query(versions)
    done = change(lab, "id between 21 and 70")
    assert (done.inserts, done.deletes, done.old) == (30, 20, "id <= 40")
    assert lab.leaf.query(versions) == before
    assert here(lab) == part(lab, "id between 21 and 70")
    done = change(lab, None)
    assert (done.inserts, done.deletes) == (50, 0)
    assert here(lab) == part(lab, "true")
    with lab.session() as session:
        same = ChangeFilter(table="users", all_rows=True)
        assert change_filter(session, same, lab.spark) is None


class Crash(BaseException):
    """What a killed process looks like from inside."""


@pytest.fixture
def hooks() -> Iterator[None]:
    yield
    failpoint.set_hook(None)


@pytest.mark.draw("filters")
def test_a_crash_leaves_the_old_or_the_new(
    make_lab: MakeLab,  # noqa: F811
    hooks: None,
) -> None:
    lab = ready(make_lab, 300)
    for statement in CROSSING:
        lab.write(statement, 0.02)
    old = None
    for nr, point in enumerate(("planned", "staged", "switched", "committed")):
        new = f"id > {nr * 20} and balance < 900"

        def crash(name: str, point: str = point) -> None:
            if name == f"filter.{point}":
                raise Crash

        failpoint.set_hook(crash)
        with pytest.raises(Crash):
            change(lab, new)
        failpoint.set_hook(None)
        assert condition(lab) == (new if point == "committed" else old)
        assert equal(lab), point
        old = new
        if point != "committed":
            assert change(lab, new).applied
    finish(lab)
    assert here(lab) == part(lab, new)
    assert no_debris(lab)


@pytest.mark.draw("filters")
def test_renamed_columns_other_name_and_repair(make_lab: MakeLab) -> None:  # noqa: F811
    lab = make_lab()
    lab.pair.table(
        "public.users",
        USERS,
        dest="other.people",
        dest_ddl="create schema other; create table other.people"
        " (key int primary key, money numeric(12, 2), mine text default 'mine', label text)",
    )
    attrs = {"columns": "id=key,name=label,balance=money", "copy_condition": "money < 150"}
    lab.attrs("public.users", encode_attrs(attrs) or "")
    lab.root.execute(
        "insert into users select g, 'user ' || g, g * 1.5, 1, now(), 'secret'"
        " from generate_series(1, 200) g"
    )
    lab.start()
    lab.settle()
    want = "select row(id, balance, 'mine'::text, name)::text from users where {} order by 1"
    got = "select p::text from other.people p order by 1"
    assert lab.leaf.query(got) == lab.root.query(want.format("balance < 150"))
    assert equal(lab)
    done = change(lab, "money between 100 and 200 and people.key <> 90")
    assert (done.inserts, done.deletes) == (34, 67)
    assert lab.leaf.query(got) == lab.root.query(
        want.format("balance between 100 and 200 and id <> 90")
    )
    assert equal(lab)
    with pytest.raises(UsageError, match='names "balance"'):
        change(lab, "balance > 3")
    with pytest.raises(UsageError, match='names "note"'):
        change(lab, "note is null")
    lab.plant("update other.people set label = 'wrong' where key = 80")
    lab.plant("delete from other.people where key = 81")
    assert not equal(lab)
    with lab.session() as session:
        options = RepairOptions(apply=True, where="key < 100 and money > 0")
        (repaired,) = repair(session, options, lab.spark)
    assert (repaired.inserts, repaired.updates, repaired.deletes) == (1, 1, 0)
    assert equal(lab)


def test_an_own_compare_sql_sees_the_columns_that_come(make_lab: MakeLab) -> None:  # noqa: F811
    lab = make_lab()
    dest = "create table users (balance numeric(12, 2), key int primary key)"
    lab.pair.table("public.users", USERS, dest_ddl=dest)
    attrs = {"columns": "id=key,balance", "copy_condition": "key < 50"}
    lab.attrs("public.users", encode_attrs(attrs) or "")
    lab.root.execute(
        "insert into users select g, 'user ' || g, g, 1, now(), 'x' from generate_series(1, 99) g"
    )
    lab.start()
    lab.settle()
    for text in (
        "select count(1) as cnt, sum(hashtext(_COLS_::text)) as chksum from _TABLE_ where key < 40",
        "select count(1) as cnt, sum(hashtext((t.key, t.balance)::text)) as chksum"
        " from only _TABLE_ t where t.balance > 3",
    ):
        with lab.session(compare_sql=text) as session:
            found = compare(session, CompareOptions(), lab.spark)
        assert found.bad == 0
        assert 35 < found.tables[0].source["cnt"] < 50


def test_what_is_refused(make_lab: MakeLab) -> None:  # noqa: F811
    lab = ready(make_lab, 10)
    with lab.session() as session:
        for wish in (
            ChangeFilter(table="users"),
            ChangeFilter(table="users", where="id > 1", all_rows=True),
            ChangeFilter(table="users", where=" "),
            ChangeFilter(table="users", where="id >"),
            ChangeFilter(table="users", where="id > (select 1)"),
            ChangeFilter(table="users", where="nosuch > 1"),
            ChangeFilter(table="users", where="id + 1"),
            ChangeFilter(table="users", where="id > random()"),
            ChangeFilter(table="users", where="seen > now()"),
        ):
            with pytest.raises(UsageError):
                change_filter(session, wish, lab.spark)
        with pytest.raises(StateError, match="not subscribed"):
            change_filter(session, ChangeFilter(table="nosuch", all_rows=True), lab.spark)
    assert condition(lab) is None
    assert change(lab, "seen > now() - interval '10 years' * 10", force=True).applied
    assert here(lab) == part(lab, "true")


def test_tables_that_share_a_target_need_conditions(make_lab: MakeLab) -> None:  # noqa: F811
    lab = ready(make_lab, 100)
    lab.root.execute("create table more (like users including all)")
    call(lab.root, "londiste.local_add_table", QUEUE, "public.more", ["expect_sync"])
    call(lab.leaf, "londiste.global_add_table", QUEUE, "public.more")
    args = ["expect_sync", "no_triggers"]
    call(lab.leaf, "londiste.local_add_table", QUEUE, "public.more", args, None, "public.users")
    lab.root.execute("insert into more select id + 1000, name from users")
    lab.settle()
    with pytest.raises(StateError, match="come together"):
        change(lab, "id < 50")
    lab.attrs("public.users", encode_attrs({"copy_condition": "id < 1000"}) or "")
    lab.attrs("public.more", encode_attrs({"copy_condition": "id > 1000"}) or "")
    assert change(lab, "id < 50").deletes == 51
    assert lab.leaf.value("select count(*) from users where id > 1000") == 100
    assert change(lab, "id > 1090", table="more").deletes == 90
    assert lab.leaf.value("select count(*) from users") == 49 + 10
    assert equal(lab)


def test_changes_that_were_staged_for_another_condition_are_staged_again(
    make_leaf: Callable[..., Leaf],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "vedur")
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key)")
    leaf.catch_up()
    applier = leaf.appliers[-1]
    stage = applier.stage

    def late(*args: object) -> object:
        staged = stage(*args)  # type: ignore[arg-type]
        attrs = encode_attrs({"copy_condition": "id > 1"})
        call(leaf.leaf, "londiste.local_set_table_attrs", QUEUE, "public.t", attrs)
        applier.stage = stage  # type: ignore[method-assign]
        return staged

    applier.stage = late  # type: ignore[method-assign,assignment]
    leaf.root.execute("insert into t values (1), (2)")
    leaf.pair.tick()
    assert leaf.worker.work()
    assert "got another condition or other columns" in caplog.text
    assert leaf.leaf.query("select * from t") == []
    leaf.catch_up()
    assert [r[0] for r in leaf.leaf.query("select * from t")] == [2]
