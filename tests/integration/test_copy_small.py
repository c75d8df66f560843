"""Many small tables are copied together, and each fails, waits and is taken up again by itself.

The tasks run in this process: Spark only carries them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.wait import until
from tests.labs.first_copy import Crash, Lab
from tests.labs.in_process import try_here
from vedur import db as vdb
from vedur import failpoint
from vedur.errors import ConnectError, DatabaseError, StateError
from vedur.pipeline.copy import load

pytestmark = [pytest.mark.timeout(400)]

COUNT = 12
DDL = "create table {t} (id int primary key, a text); create index {t}_a on {t} (a)"
INDEXES = "select string_agg(oid::text, ' ' order by oid) from pg_class where relname ~ '^s\\d'"
#: Who was in which state, in this order.
WATCH = """
create table transitions (nr serial, name text, state text);
create function note() returns trigger language plpgsql as $$
begin
    insert into transitions (name, state)
    values (new.table_name, split_part(new.merge_state, ':', 1));
    return new;
end $$;
create trigger note after update of merge_state on londiste.table_info
    for each row execute function note();
"""
RESYNC = """
select londiste.local_set_table_state('q', t.table_name, null, null)
from londiste.table_info t
"""
STATES = ["in-copy", "catching-up", "wanna-sync", "do-sync", "ok"]


@pytest.fixture
def lab(quick_lab: Lab) -> Iterator[Lab]:
    quick_lab.slice_bytes = 8 << 20  # tables of up to 512 kB keep their indexes
    for i in range(COUNT):
        for db in (quick_lab.root, quick_lab.leaf):
            db.execute(DDL.format(t=f"s{i}"))
        if i % 2:
            quick_lab.root.execute(f"insert into s{i} select g, g from generate_series(1, {i}) g")
    yield quick_lab


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that load tables."""
    found: list[str] = []

    def count(spark: Any, do: Any, items: Any) -> Any:
        found.append(repr(items[0]))
        return try_here(spark, do, items)

    monkeypatch.setattr(load, "try_tasks", count)
    return found


def names() -> list[str]:
    return [f"public.s{i}" for i in range(COUNT)]


def check(lab: Lab, *tables: str) -> None:
    for table in tables:
        lab.same(table)
    assert until(lambda: not lab.debris()), lab.debris()


def check_all(lab: Lab) -> None:
    lab.wait_ok()
    lab.settle()
    check(lab, *(f"s{i}" for i in range(COUNT)))


def at(place: str, do: Callable[[], object]) -> list[str]:
    """Do something when a failpoint is reached for the first time; it is in the list then."""
    reached: list[str] = []

    def hook(now: str) -> None:
        if now == place and not reached:
            reached.append(now)
            do()

    failpoint.set_hook(hook)
    return reached


@pytest.mark.draw("copies")
def test_small_tables_share_a_job_and_keep_their_indexes(lab: Lab, jobs: list[str]) -> None:
    odd = {
        "big": "create table big (id int primary key, a text); create index big_a on big (a)",
        "bad": "create table bad (id int primary key, a text)",
        "wide": "create table wide (id int primary key, a text, c int)",
    }
    for ddl in odd.values():
        lab.root.execute(ddl)
    lab.leaf.execute(odd["big"])
    lab.leaf.execute("create table bad (id int primary key, a int)")
    lab.leaf.execute("create table wide (id int primary key, a text)")
    lab.root.execute("insert into big select g, repeat('x', 500) from generate_series(1, 3000) g")
    lab.root.execute("insert into bad values (1, 'no number')")
    lab.root.execute("insert into wide values (1, 'x', 7)")
    before, structure = lab.leaf.value(INDEXES), lab.structure("big")
    keys = "select oid from pg_class where relname = 'big_pkey'"
    key = lab.leaf.value(keys)
    lab.leaf.execute(WATCH)
    lab.add(*names(), "public.big", "public.bad", "public.wide")
    lab.start()
    lab.wait_until(lambda: sorted(map(str, lab.states().values())).count("ok") == COUNT + 2)
    assert lab.states()["public.bad"] == "in-copy"
    error = "select error from vedur.copy_progress where table_name = 'public.bad'"
    lab.wait_until(lambda: "invalid input syntax" in str(lab.leaf.value(error)))
    together = [job for job in jobs if "Together" in job]
    alone = {job for job in jobs if "Together" not in job}
    assert together == [f"LoadTogether({COUNT + 2} tables)"]
    assert alone == {"LoadTask(public.bad)", "LoadTask(public.wide)"}
    assert lab.leaf.value(INDEXES) == before
    # a larger one is among them, and its indexes were built when its rows were there
    assert lab.leaf.value(keys) != key
    assert lab.structure("big") == structure
    for name in [*names(), "public.big"]:
        rows = lab.leaf.query("select state from transitions where name = %s order by nr", [name])
        assert [row.state for row in rows if row.state] == STATES, name
    lab.leaf.execute("alter table bad alter a type text")
    lab.wait_ok()
    lab.settle()
    lab.same("(select id, a from wide) w", "wide")
    check(lab, "big", "bad", *(f"s{i}" for i in range(COUNT)))


@pytest.mark.draw("copies")
def test_a_table_that_cannot_be_emptied_does_not_hold_up_the_others(
    lab: Lab, jobs: list[str]
) -> None:
    """What fails for all of them is tried again with halves, until it is known whose fault it is:
    here a trigger of a user that refuses TRUNCATE."""
    lab.leaf.execute(
        "insert into s5 values (77, 'old');"
        "create function no() returns trigger language plpgsql as"
        " $$ begin raise exception 'never empty me'; end $$;"
        "create trigger no before truncate on s5 execute function no();"
        "alter table s5 enable always trigger no"
    )
    lab.retry_sleep = 0.5
    lab.add(*names())
    lab.start()
    lab.wait_until(lambda: list(lab.states().values()).count("ok") == COUNT - 1)
    assert lab.states()["public.s5"] != "ok"
    error = "select error from vedur.copy_progress where table_name = 'public.s5'"
    lab.wait_until(lambda: "never empty me" in str(lab.leaf.value(error)))
    # at most those that stood beside it in the last half
    assert len({job for job in jobs if "LoadTask" in job}) <= 2
    lab.leaf.execute("drop trigger no on s5")
    check_all(lab)


POINTS = (
    "registered_together",
    "in_copy",
    "begun_together",
    "strip",
    "truncate",
    "emptied_together",
    "load",
    "loaded_together",
    "rebuild",
    "ended_together",
    "catch_up",
    "hand_over",
    "moved_together",
    "ok_together",
    "foreign_keys",
)


@pytest.mark.draw("copies")
@pytest.mark.parametrize("error", [ConnectError, StateError], ids=["connection", "state"])
def test_each_step_may_fail_for_tables_that_go_together(lab: Lab, error: type[Exception]) -> None:
    left = [f"copy.{name}" for name in POINTS]

    def hook(place: str) -> None:
        if place in left:
            left.remove(place)
            raise error("it broke here")

    failpoint.set_hook(hook)
    lab.add(*names())
    lab.start()
    lab.wait_ok()
    for _ in POINTS:  # what has failed goes on table by table: some places come with the next copy
        if left:
            lab.leaf.query(RESYNC)
            lab.wait_ok()
    lab.wait_ok()
    lab.settle()
    assert left == []
    check(lab, *(f"s{i}" for i in range(COUNT)))


@pytest.mark.draw(1)
@pytest.mark.parametrize("place", [p for p in POINTS if p.endswith("_together")])
def test_a_worker_that_dies_among_small_tables(lab: Lab, place: str) -> None:
    """The next worker finds each table in its own state."""

    def die() -> None:
        raise Crash

    reached = at(f"copy.{place}", die)
    lab.add(*names())
    lab.start()
    lab.wait_until(lambda: bool(reached))
    lab.stop()
    lab.root.execute("update s1 set a = 'later'; insert into s2 values (1, 'later')")
    lab.start()
    check_all(lab)
    assert lab.leaf.value("select count(*) from vedur.copy_progress where finished_at is null") == 0


@pytest.mark.draw(1)
@pytest.mark.parametrize("place", ["emptied_together", "loaded_together", "catch_up"])
@pytest.mark.parametrize(
    "change",
    ["alter table s3 alter a type varchar(20)", "vacuum full s3", "truncate s3", "drop table s3"],
    ids=["rewritten", "moved", "truncated", "dropped"],
)
def test_a_table_is_changed_on_the_root_meanwhile(lab: Lab, place: str, change: str) -> None:
    def act() -> None:
        with vdb.connect(lab.root.connstr, autocommit=True) as db:
            db.execute("insert into s3 values (100, 'before'); insert into s4 values (9, 'x')")
            db.execute(change)

    reached = at(f"copy.{place}", act)
    lab.add(*names())
    lab.start()
    lab.wait_until(lambda: bool(reached))
    others = [name for name in names() if name != "public.s3"]
    lab.wait_until(lambda: {lab.states().get(name) for name in others} == {"ok"})
    if change.startswith("drop"):
        lab.leaf.query("select * from londiste.local_remove_table('q', 'public.s3')")
        lab.settle()
        check(lab, *(f"s{i}" for i in range(COUNT) if i != 3))
    else:
        check_all(lab)


@pytest.mark.draw(1)
@pytest.mark.parametrize("place", [p for p in POINTS if p.endswith("_together")])
@pytest.mark.parametrize("how", ["removed", "resynced", "added anew"])
def test_a_table_is_taken_away_meanwhile(lab: Lab, place: str, how: str) -> None:
    texts = {
        "resynced": "select * from londiste.local_set_table_state('q', 'public.s3', null, null)",
        "removed": "select * from londiste.local_remove_table('q', 'public.s3')",
    }
    texts["added anew"] = (
        f"{texts['removed']}; insert into s3 values (-1, 'kept');"
        "select * from londiste.local_add_table('q', 'public.s3', '{}',"
        " 'copy_condition=id%3c%3d2', 'public.t3')"
    )
    done: list[bool] = []

    def act() -> None:
        with vdb.connect(lab.leaf.connstr, autocommit=True) as db:
            db.execute("set lock_timeout = '300ms'; set session_replication_role = replica")
            try:
                db.execute(texts[how])
            except DatabaseError:
                waits.append(texts[how])  # the bundle's transaction has the row: right after it
            done.append(True)

    waits: list[str] = []
    lab.leaf.execute("create table t3 (id int primary key, a text)")
    at(f"copy.{place}", act)
    lab.add(*names())
    lab.start()
    lab.wait_until(lambda: bool(done))
    for text in waits:
        lab.leaf.execute(f"set session_replication_role = replica; {text}; reset all")
    if how == "removed":
        lab.wait_ok()
        lab.settle()
        lab.wait_until(lambda: not lab.copies())
        check(lab, *(f"s{i}" for i in range(COUNT) if i != 3))
        assert "public.s3" not in lab.states()
    elif how == "resynced":
        check_all(lab)
    else:
        lab.wait_ok()
        lab.settle()
        lab.same("s3", "t3", "id <= 2")
        assert lab.leaf.value("select a from s3 where id = -1") == "kept"  # nobody emptied it
        check(lab, *(f"s{i}" for i in range(COUNT) if i != 3))


@pytest.mark.draw("copies")
def test_what_others_have_locked_is_not_waited_for(lab: Lab, jobs: list[str]) -> None:
    """A session that reads one table, and one that has the row of another, hold up only those."""
    lab.add(*names())
    with vdb.connect(lab.leaf.connstr) as reader, vdb.connect(lab.leaf.connstr) as command:
        reader.query("select count(*) from s2")
        command.query("select from londiste.table_info where table_name = 'public.s7' for update")
        lab.start()
        free = set(names()) - {"public.s2", "public.s7"}
        lab.wait_until(lambda: {lab.states()[name] for name in free} == {"ok"})
        assert {lab.states()[name] for name in ("public.s2", "public.s7")} <= {None, "in-copy"}
    check_all(lab)


@pytest.mark.draw("copies")
def test_changes_foreign_keys_and_rows_that_were_here(lab: Lab) -> None:
    """Tables with events since the snapshot leave the others, and foreign keys come back."""
    for db in (lab.root, lab.leaf):
        db.execute("alter table s4 add foreign key (id) references s5")
    lab.root.execute("insert into s4 values (1, 'x')")
    lab.leaf.execute("insert into s6 values (5, 'old')")
    before = lab.structure("s4", "s5")

    def act() -> None:
        lab.write("update s5 set a = 'later'", "insert into s8 values (3, 'x')", "delete from s9")

    reached = at("copy.catch_up", act)
    lab.add(*names())
    lab.start()
    check_all(lab)
    assert reached
    lab.wait_until(lambda: lab.leaf.value("select count(*) from londiste.pending_fkeys") == 0)
    assert lab.structure("s4", "s5") == before


@pytest.mark.draw("copies")
def test_a_hundred_tables(lab: Lab, jobs: list[str]) -> None:
    """One bad among them, two jobs for all others."""
    for i in range(COUNT, 100):
        for db in (lab.root, lab.leaf):
            db.execute(DDL.format(t=f"s{i}"))
    lab.root.execute("insert into s50 values (1, 'no number')")
    lab.leaf.execute("alter table s50 alter a type int using 0")
    every = [f"public.s{i}" for i in range(100)]
    lab.add(*every)
    lab.start()
    lab.wait_until(lambda: list(lab.states().values()).count("ok") == 99)
    assert jobs.count("LoadTogether(64 tables)") == 1
    assert {job for job in jobs if "Together" not in job} == {"LoadTask(public.s50)"}
    lab.leaf.execute("alter table s50 alter a type text")
    lab.wait_ok()
    lab.settle()
    check(lab, *(f"s{i}" for i in range(100)))
