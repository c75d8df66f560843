"""Staging tables: two slots that leave each other alone, and what a merge expects in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.fixtures.pg import TestServer
from vedur.change.event import Kind
from vedur.db import Database
from vedur.errors import DatabaseError, RowByRowNeeded, StaleStage, StateError
from vedur.pipeline.replay.commit import Commit
from vedur.pipeline.replay.merge import TableMerge
from vedur.pipeline.replay.stage import SparkReplay
from vedur.pipeline.replay.staged import Part, Staged, StagedTable
from vedur.pipeline.replay.staging_tables import ensure_stages, load_specs, stage_name
from vedur.pipeline.spark.tasks import link
from vedur.tables.mapping import TableMap

WANTED = [TableMap("public.t", "public.t")]


def test_making_one_slot_anew_leaves_the_other(db: Database) -> None:
    db.autocommit = True
    db.execute("create table t (id int primary key, v text)")
    old = load_specs(db, "q", WANTED)["public.t"]
    ensure_stages(db, "q", [old], 0)
    ensure_stages(db, "q", [old], 1)
    db.execute(f"insert into {stage_name(old, 0)} values (7, 1, 1, 'I', 1, 5, 'five')")
    db.execute("alter table t add column c int")
    new = load_specs(db, "q", WANTED)["public.t"]
    ensure_stages(db, "q", [new], 1)
    db.execute(f"insert into {stage_name(new, 1)} values (8, 2, 2, 'I', 1, 6, 'six', 6)")
    table = StagedTable(old, ("id",), {1: ("id", "v")}, Counter({(Kind.INSERT, 1): 1}), chunks=1)
    assert TableMerge(db, table, 0, [7]).run().inserted == 1
    assert db.query("select * from t") == [(5, "five", None)]


def test_a_merge_notices_staged_changes_that_are_gone(db: Database) -> None:
    db.autocommit = True
    db.execute("create table t (id int primary key, v text)")
    spec = load_specs(db, "q", WANTED)["public.t"]
    ensure_stages(db, "q", [spec], 0)
    db.execute(f"insert into {stage_name(spec, 0)} values (7, 1, 1, 'I', 1, 5, 'five')")
    table = StagedTable(spec, ("id",), {1: ("id", "v")}, Counter({(Kind.INSERT, 1): 2}), chunks=1)
    with pytest.raises(StateError, match=r'table "public\.t": 1 of 2 staged changes are there'):
        TableMerge(db, table, 0, [7]).run()
    assert db.value("select count(*) from t") == 0


def test_a_staging_table_is_emptied_when_passing_over_it_has_cost_as_much(db: Database) -> None:
    db.autocommit = True
    db.execute("create table t (id int primary key, v text)")
    spec = load_specs(db, "q", WANTED)["public.t"]
    ensure_stages(db, "q", [spec], 0)
    stage = stage_name(spec, 0)
    applier = SparkReplay(cast(Any, None), "q", "", "")

    def left_after(rows: int) -> int:
        db.execute(f"insert into {stage} values (7, 1, 1, 'I', 1, 5, 'five')")
        applier._fill(stage, 0, rows)
        applier.done(db, 0)
        return int(db.value(f"select count(*) from {stage}"))

    # 100, 200, 300, ... rows are passed over: 13,600 after 16 batches, 15,300 after one more
    assert [left_after(100) for _ in range(17)] == [*range(1, 17), 0]
    assert left_after(100) == 1  # and it begins anew
    assert left_after(20_000) == 0
    applier.done(db, 0)  # nothing was staged


def test_tasks_lift_the_time_limits_of_a_role(pg_server: TestServer) -> None:
    role = "hasty"
    pg_server.admin.execute(f"drop role if exists {role}; create role {role} login")
    pg_server.admin.execute(f"alter role {role} set statement_timeout = '1s'")
    pg_server.admin.execute(f"alter role {role} set idle_in_transaction_session_timeout = '60s'")
    pg_server.admin.execute(f"alter role {role} set idle_session_timeout = '60s'")
    try:
        with link(pg_server.connstr("postgres", role), "db", keep=False) as db:
            db.execute("select pg_sleep(1.2)")
            for name in (
                "statement_timeout",
                "idle_in_transaction_session_timeout",
                "idle_session_timeout",
            ):
                assert db.value(f"show {name}") == "0", name
    finally:
        pg_server.admin.execute(f"drop role {role}")


def _parts(db: Database, *rows: tuple[int, int, int, str, int, str | None]) -> StagedTable:
    """A table of id and v, and staged rows: slice, first and last event, kind, id, v."""
    db.autocommit = True
    db.execute("create table t (id int primary key, v text)")
    spec = load_specs(db, "q", WANTED)["public.t"]
    ensure_stages(db, "q", [spec], 0)
    table = StagedTable(spec, ("id",), {1: ("id", "v")})
    for number in sorted({r[0] for r in rows}):
        mine = [r for r in rows if r[0] == number]
        kinds = Counter((Kind(r[3]), 1 if r[3] in "IUP" else 0) for r in mine)
        table.parts.append(Part(number, min(r[1] for r in mine), max(r[2] for r in mine), kinds))
        table.kinds.update(kinds)
        table.chunks += 1
    for at, first, last, kind, key, value in rows:
        shape = 1 if kind in "IUP" else 0
        text = f"insert into {stage_name(spec, 0)} values (%s, %s, %s, %s, %s, %s, %s)"
        db.execute(text, [at, first, last, kind, shape, key, value])
    return table


def test_parts_that_follow_each_other_are_merged_in_order(db: Database) -> None:
    table = _parts(
        db,
        (2, 5, 6, "P", 1, "replaced"),
        (1, 1, 2, "I", 1, "new"),
        (1, 3, 3, "I", 2, "stays"),
        (3, 7, 7, "U", 1, "last"),
        (3, 8, 8, "D", 2, None),
        (2, 4, 4, "U", 9, "nobody"),
    )
    done = TableMerge(db, table, 0, []).run()
    assert db.query("select * from t") == [(1, "last")]
    assert (done.inserted, done.updated, done.deleted, done.missing) == (3, 1, 2, 1)


def test_parts_that_overlap_elsewhere_are_still_merged_in_sequence(db: Database) -> None:
    table = _parts(
        db, (1, 1, 1, "I", 1, "a"), (1, 4, 4, "I", 2, "b"), (2, 3, 3, "U", 1, "c"),
        (2, 6, 6, "U", 2, "d"),
    )  # fmt: skip
    assert len(TableMerge(db, table, 0, [])._parts_in_sequence()) == 2
    TableMerge(db, table, 0, []).run()
    assert db.query("select * from t order by 1") == [(1, "c"), (2, "d")]


def test_runs_of_a_key_that_interleave_need_row_by_row(db: Database) -> None:
    table = _parts(
        db, (1, 1, 4, "U", 1, "a"), (2, 3, 5, "U", 1, "b"), (2, 6, 6, "I", 2, "c")
    )  # fmt: skip
    with pytest.raises(RowByRowNeeded):
        TableMerge(db, table, 0, []).run()


@pytest.mark.parametrize("most", [0, 100])
def test_the_last_update_of_a_key_counts_whatever_part_it_is_in(
    db: Database, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("vedur.pipeline.replay.merge.LATEST_ROWS", most)
    table = _parts(
        db,
        (1, 1, 4, "U", 1, "a"), (1, 2, 9, "U", 2, "b"), (1, 5, 5, "U", 7, "nobody"),
        (2, 3, 6, "U", 1, "c"), (2, 7, 7, "U", 2, "d"), (2, 8, 8, "U", 7, "nobody"),
    )  # fmt: skip
    db.execute("insert into t values (1, 'old'), (2, 'old'), (3, 'old')")
    done = TableMerge(db, table, 0, []).run()
    assert db.query("select * from t order by 1") == [(1, "c"), (2, "b"), (3, "old")]
    assert (done.inserted, done.updated, done.deleted, done.missing) == (0, 2, 0, 1)


def test_inserts_of_several_parts_go_together(db: Database) -> None:
    table = _parts(db, (1, 1, 1, "I", 1, "a"), (2, 2, 2, "I", 2, "b"), (1, 3, 3, "I", 3, "c"))
    done = TableMerge(db, table, 0, []).run()
    assert db.query("select * from t order by 1") == [(1, "a"), (2, "b"), (3, "c")]
    assert done.inserted == 3


def test_updates_of_several_parts_that_collide_in_passing(db: Database) -> None:
    table = _parts(db, (1, 1, 3, "U", 1, "c"), (1, 2, 2, "U", 2, "a"), (2, 4, 4, "U", 3, "b"))
    db.execute("create unique index on t (v)")
    db.execute("insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
    done = TableMerge(db, table, 0, []).run()
    assert db.query("select * from t order by 1") == [(1, "c"), (2, "a"), (3, "b")]
    assert done.updated == 3


def _commit(db: Database, tables: dict[str, StagedTable], restaged: list[str]) -> Commit:
    staged = Staged("q", 0, tables=tables, specs={n: t.spec for n, t in tables.items()})

    def restage(staged: Staged, name: str) -> Staged:
        restaged.append(name)
        raise StateError(f"{name} would be replayed row by row")

    return Commit(db, staged, (), lambda event: None, restage, lambda wanted: {})


def _three(db: Database, third: str) -> dict[str, StagedTable]:
    """A row to insert into a, to update in b, and whatever is told for c."""
    db.autocommit = True
    tables = {}
    for name in "abc":
        db.execute(f"create table {name} (id int primary key, v text check (v <> 'bad'))")
        db.execute(f"insert into {name} values (1, 'old'), (2, 'old')")
        wanted = [TableMap(f"public.{name}", f"public.{name}")]
        spec = load_specs(db, "q", wanted)[f"public.{name}"]
        ensure_stages(db, "q", [spec], 0)
        kind, row = {"a": ("I", "3, 'new'"), "b": ("U", "2, 'new'"), "c": ("U", third)}[name]
        db.execute(f"insert into {stage_name(spec, 0)} values (7, 1, 1, '{kind}', 1, {row})")
        kinds = Counter({(Kind(kind), 1): 1})
        tables[spec.name] = StagedTable(
            spec, ("id",), {1: ("id", "v")}, kinds, chunks=1, parts=[Part(7, 1, 1, kinds)]
        )
    return tables


def test_small_tables_are_merged_in_one_round_trip(db: Database, monkeypatch: Any) -> None:
    commit = _commit(db, _three(db, "9, 'nobody'"), [])
    trips: list[int] = []
    each = Database.each

    def spy(self: Database, texts: Any) -> list[Any]:
        trips.append(len(texts))
        return each(self, texts)

    monkeypatch.setattr(Database, "each", spy)
    result = commit.run()
    assert trips == [6]  # of each table the count of what is staged, and its change
    assert (result.inserted, result.updated, result.missing_tables) == (1, 1, {"public.c": 1})
    assert db.query("select v from a where id = 3") == [("new",)]
    assert db.query("select v from b order by id") == [("old",), ("new",)]


def test_of_small_tables_the_one_that_is_refused_is_found(db: Database) -> None:
    restaged: list[str] = []
    commit = _commit(db, _three(db, "2, 'bad'"), restaged)
    with pytest.raises(StateError, match=r"public\.c would be replayed row by row"):
        commit.run()
    assert restaged == ["public.c"]
    # the others were merged one by one, and not twice
    assert db.query("select id, v from a order by id") == [(1, "old"), (2, "old"), (3, "new")]
    assert (commit.result.inserted, commit.result.updated) == (1, 1)
    assert commit.alone == {"public.c"}  # next time it is in nobody's way


def test_small_tables_notice_staged_changes_that_are_gone(db: Database) -> None:
    tables = _three(db, "2, 'new'")
    db.execute(f"truncate {stage_name(tables['public.b'].spec, 0)}")
    with pytest.raises(StaleStage, match=r'table "public\.b": 0 of 1 staged changes are there'):
        _commit(db, tables, []).run()
    assert db.query("select v from c order by id") == [("old",), ("old",)]
    assert db.value("select count(*) from a") == 2


def test_what_must_be_asked_for_is_not_merged_together(db: Database) -> None:
    tables = _three(db, "2, 'new'")
    table = tables["public.c"]
    assert TableMerge(db, table, 0, [7]).known_steps()
    assert not TableMerge(db, table, 0, [7], after=5).known_steps()  # behind a truncate
    one, other = (Part(nr, 1, 5, Counter({("U", 1): 1, ("D", 0): 1})) for nr in (7, 8))
    table.kinds = Counter({("U", 1): 2, ("D", 0): 2})
    table.chunks, table.parts = 2, [one, other]
    assert not TableMerge(db, table, 0, []).known_steps()  # a key's changes may interleave
    table.parts = [one, replace(other, first=6, last=9)]
    steps = TableMerge(db, table, 0, []).known_steps()
    assert [s.counts for s in steps] == ["deleted", "updated", "deleted", "updated"]


def test_an_error_that_is_no_events_names_the_tables_of_the_group(db: Database) -> None:
    tables = _three(db, "2, 'new'")
    db.execute(
        "create function cannot() returns trigger language plpgsql as"
        " $$ begin raise 'no room' using errcode = '53100'; end $$;"
        "create trigger cannot before update on c for each row execute function cannot()"
    )
    with pytest.raises(DatabaseError, match="no room") as caught:
        _commit(db, tables, []).run()
    assert caught.value.values["query"] == "merge of public.a, public.b, public.c"
    assert db.value("select count(*) from a") == 2
