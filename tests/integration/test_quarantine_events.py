"""One bad event: found inside its batch, shown, by policy quarantined while the rest goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, WORKER, call
from vedur import failpoint
from vedur.catalog import get_table_list
from vedur.change.quarantine import Policy
from vedur.db import connect
from vedur.db.conninfo import with_params
from vedur.errors import DatabaseError, StateError, UsageError, VedurError
from vedur.ops.change_table import change_table
from vedur.ops.quarantine import list_errors as ops_errors
from vedur.ops.quarantine import replay as ops
from vedur.ops.quarantine.entries import drop
from vedur.ops.quarantine.skip import SkipOptions, skip
from vedur.ops.session import Session
from vedur.pipeline.replay.row_by_row import RowWise
from vedur.status.snapshot import read_node
from vedur.status.tree import info_lines
from vedur.worker.quarantine import ConsumerQuarantine, Outlook

__all__ = ["quick_leaf"]

MakeLeaf = Callable[..., Leaf]
DDL = "create table {t} (id int primary key, v text, n bigint)"


@dataclass(frozen=True)
class Refusal:
    """How the leaf refuses row 13, what the error says, how it is repaired."""

    bad: str
    plant: str
    mend: str
    state: str | None
    message: str


REFUSALS = {
    "check": Refusal(
        "(13, 'bad', 1)",
        "alter table t add constraint no_bad check (v <> 'bad')",
        "alter table t drop constraint no_bad",
        "23514",
        "violates check constraint",
    ),
    "not-null": Refusal(
        "(13, null, 1)",
        "alter table t alter v set not null",
        "alter table t alter v drop not null",
        "23502",
        "violates not-null constraint",
    ),
    "narrow-text": Refusal(
        "(13, 'much too long', 1)",
        "alter table t alter v type varchar(6)",
        "alter table t alter v type text",
        "22001",
        "value too long",
    ),
    "narrow-number": Refusal(
        "(13, 'x', 3000000000)",
        "alter table t alter n type int",
        "alter table t alter n type bigint",
        "22003",
        "out of range for type integer",
    ),
    "local-row": Refusal(
        "(13, 'theirs', 1)",
        "set session_replication_role = replica; insert into t values (13, 'mine', 0);"
        " reset session_replication_role",
        "set session_replication_role = replica; delete from t where v = 'mine';"
        " reset session_replication_role",
        "23505",
        "duplicate key value",
    ),
    "trigger": Refusal(
        "(13, 'bad', 1)",
        "create function refuse() returns trigger language plpgsql as $$ begin"
        " if new.v = 'bad' then raise exception 'not this one'; end if; return new; end $$;"
        " create trigger refuse before insert or update on t for each row"
        " execute function refuse(); alter table t enable always trigger refuse",
        "drop trigger refuse on t",
        "P0001",
        "not this one",
    ),
    "foreign-key": Refusal(
        "(13, 'bad', 1)",
        "create table names (v text primary key);"
        " insert into names select 'v' || i from generate_series(1, 99) i;"
        " insert into names values ('good'), ('other');"
        " create function look() returns trigger language plpgsql as $$ begin"
        " if not exists (select 1 from names where v = new.v) then raise foreign_key_violation"
        " using message = 'violates foreign key constraint \"t_v_fkey\"'; end if;"
        " return null; end $$; create constraint trigger t_v_fkey after insert or update on t"
        " for each row execute function look(); alter table t enable always trigger t_v_fkey",
        "insert into names values ('bad')",
        "23503",
        "violates foreign key constraint",
    ),
    "no-table": Refusal(
        "(13, 'bad', 1)",
        "alter table t rename to t_away",
        "alter table t_away rename to t",
        None,
        '"public"."t" does not exist on the target',
    ),
}


def two_tables(leaf: Leaf, flags: str | None = None) -> None:
    """Tables t and other, both in the set."""
    for name in ("t", "other"):
        leaf.pair.table(f"public.{name}", DDL.format(t=name), flags=flags)
    leaf.catch_up()


def fill(leaf: Leaf, bad: str) -> None:
    """Rows 1..30 of both tables; row 13 of t is the bad one."""
    leaf.root.execute(f"insert into t values {bad}")
    leaf.root.execute(
        "insert into t select i, 'v' || i, i from generate_series(1, 30) i where i <> 13;"
        "insert into other select i, 'o' || i, i from generate_series(1, 30) i"
    )


def work_on(leaf: Leaf) -> None:
    """Until nothing is left; what was staged for a table that was altered is staged again."""
    while leaf.worker.work():
        pass


def session(leaf: Leaf) -> Session:
    return Session(leaf.settings)


def replay(leaf: Leaf, **choice: Any) -> list[ops.Replayed]:
    replace = choice.pop("replace", False)
    with session(leaf) as open_session:
        spark = leaf.spark or object()
        return ops.replay(open_session, ops.Choice(**choice), replace=replace, spark=spark)


def quarantined(leaf: Leaf) -> list[tuple[Any, ...]]:
    """What is in quarantine."""
    rows = leaf.leaf.query(
        "select table_name, row_key, cause, holds from vedur.quarantine order by id"
    )
    return [tuple(row) for row in rows]


def ended(leaf: Leaf) -> list[tuple[str, int]]:
    rows = leaf.leaf.query(
        "select outcome, count(*) from vedur.quarantine_log group by 1 order by 1"
    )
    return [tuple(row) for row in rows]


def key(number: int) -> str:
    return json.dumps({"id": str(number)})


@pytest.fixture
def leaf(quick_leaf: MakeLeaf) -> Leaf:
    made = quick_leaf()
    two_tables(made)
    return made


# -- stop -----------------------------------------------------------------------------------------


@pytest.mark.draw(2)
@pytest.mark.parametrize("kind", REFUSALS)
def test_the_event_is_found_and_nothing_is_lost(leaf: Leaf, kind: str) -> None:
    refusal = REFUSALS[kind]
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    tick = leaf.pair.tick()
    for _ in range(2):
        with pytest.raises(VedurError, match=r'^\[ev_id=\d+,ev_txid=\d+\] table "public\.t": '):
            work_on(leaf)
    assert leaf.leaf.value("select count(*) from other") == 0
    found = leaf.leaf.one("select * from vedur.replay_error")
    event = leaf.root.one(
        "select ev_id, ev_txid, ev_type from pgq.event_1 where ev_extra1 = 'public.t'"
        " order by ev_id limit 1"
    )
    assert (found.ev_id, found.ev_txid, found.ev_type) == tuple(event)
    assert (found.queue_name, found.consumer_name) == (QUEUE, WORKER)
    assert (found.table_name, found.dest_table, found.tick_id) == ("public.t", "public.t", tick)
    assert (found.sqlstate, found.attempts) == (refusal.state, 2)
    assert refusal.message in found.message
    if kind != "no-table":
        assert found.row_key == key(13)
    leaf.leaf.execute(refusal.mend)
    leaf.catch_up()
    assert len(leaf.same("t")) == len(leaf.same("other")) == 30
    assert leaf.leaf.query("select * from vedur.replay_error") == []
    assert quarantined(leaf) == []


def test_status_and_errors_name_table_event_and_next_command(leaf: Leaf) -> None:
    refusal = REFUSALS["check"]
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    leaf.pair.tick()
    leaf.worker._work_safely()
    event = leaf.leaf.value("select ev_id from vedur.replay_error")
    lines = info_lines(read_node(leaf.leaf, QUEUE, "leaf"))
    assert any(
        line.startswith(f"ERR: {WORKER}: [ev_id={event},") and 'table "public.t"' in line
        for line in lines
    )
    tick = leaf.leaf.value("select tick_id from vedur.replay_error")
    (line,) = [line for line in lines if line.startswith("ERR:")]
    assert line.endswith(f"(SQLSTATE 23514, key {key(13)}, tick {tick})") and "\n" not in line
    (error,) = read_node(leaf.leaf, QUEUE, "leaf").as_dict()["errors"]
    assert (error["table"], error["key"], error["tick"]) == ("public.t", key(13), tick)
    assert (error["sqlstate"], error["ev_id"], error["consumer"]) == ("23514", event, WORKER)
    call(leaf.leaf, "pgq_node.set_consumer_error", QUEUE, WORKER, "no route")
    lines = info_lines(read_node(leaf.leaf, QUEUE, "leaf"))
    assert f"ERR: {WORKER}: no route" in lines  # another error: as Londiste shows it
    with session(leaf) as open_session:
        (report,) = ops_errors.errors(open_session)
    said = report.as_json()
    assert said["kind"] == "event" and said["ev_type"] == "insert" and said["key"] == key(13)
    assert any(f"skip --event={event} --reason=" in action for action in said["actions"])
    with session(leaf) as open_session:
        change_table(open_session, ["t"], "quarantine-row")
    leaf.catch_up()
    with session(leaf) as open_session:
        (report,) = ops_errors.errors(open_session)
    assert (report.kind, report.table, report.events) == ("quarantine", "public.t", 1)
    assert "quarantine replay --table=public.t" in report.actions[1]
    assert "Quarantine: 1 event(s)" in info_lines(read_node(leaf.leaf, QUEUE, "leaf"))
    leaf.leaf.execute(refusal.mend)
    assert replay(leaf) == [ops.Replayed("public.t", 1, 0)]
    leaf.same("t")
    with session(leaf) as open_session:
        assert ops_errors.errors(open_session) == []


def test_missing_rights_stop_whatever_the_policy(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin raise"
        " insufficient_privilege using message = 'permission denied for table t'; end $$;"
        "create trigger refuse before insert on t for each row execute function refuse();"
        "alter table t enable always trigger refuse"
    )
    leaf.root.execute("insert into t values (1, 'a', 1)")
    leaf.pair.tick()
    with pytest.raises(DatabaseError, match="permission denied"):
        leaf.worker.work()
    assert quarantined(leaf) == []
    leaf.leaf.execute("drop trigger refuse on t")
    leaf.catch_up()
    leaf.same("t")


@pytest.mark.draw(2)
@pytest.mark.parametrize(
    ("wide", "narrow", "value"),
    [
        ("text", "varchar(3)", "long"),
        ("text", "char(3)", "long"),
        ("varbit", "bit(3)", "10101"),
        ("varbit", "varbit(3)", "10101"),
        ("numeric", "numeric(3, 1)", "1234.5"),
        ("text[]", "varchar(3)[]", "{long}"),
        ("text[]", "char(3)[]", "{long}"),
    ],
)
def test_a_value_that_is_too_long_is_never_cut(
    quick_leaf: MakeLeaf, wide: str, narrow: str, value: str
) -> None:
    leaf = quick_leaf()
    leaf.pair.table(
        "public.w",
        f"create table w (id int primary key, v {wide})",
        dest_ddl=f"create table w (id int primary key, v {narrow})",
        flags="AIUDQ",  # fragments of SQL are always applied event by event
    )
    leaf.catch_up()
    leaf.root.execute("insert into w values (1, %s)", [value])
    assert stopped(leaf).sqlstate[:2] == "22"
    assert leaf.leaf.query("select * from w") == []
    leaf.leaf.execute(f"alter table w alter v type {wide}")
    leaf.catch_up()
    leaf.same("w")


# -- quarantine-row -------------------------------------------------------------------------------


@pytest.mark.draw(2)
@pytest.mark.parametrize("kind", [k for k in REFUSALS if k != "no-table"])
def test_a_row_waits_and_the_others_go_on(quick_leaf: MakeLeaf, kind: str) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf, "AIUDL" if kind == "check" else None)
    refusal = REFUSALS[kind]
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    leaf.catch_up()
    leaf.same("other")
    assert quarantined(leaf) == [("public.t", key(13), "error", "row")]
    assert leaf.leaf.value("select count(*) from t where id <> 13") == 29
    # later events of the row wait with it, in their order; those of other rows do not
    leaf.root.execute("update t set v = 'good', n = 2 where id = 13")
    leaf.root.execute("update t set v = 'other' where id = 14; delete from t where id = 15")
    leaf.catch_up()
    leaf.root.execute("update t set n = 5 where id = 13")
    leaf.catch_up()
    assert [row[2] for row in quarantined(leaf)] == ["error", "held", "held"]
    assert leaf.leaf.value("select v from t where id = 14") == "other"
    assert leaf.leaf.value("select count(*) from t where id = 15") == 0
    leaf.leaf.execute(refusal.mend)
    assert replay(leaf) == [ops.Replayed("public.t", 3, 0)]
    assert "(13,good,5)" in leaf.same("t")
    assert (quarantined(leaf), ended(leaf)) == ([], [("replayed", 3)])
    leaf.root.execute("update t set n = 6 where id = 13")
    leaf.catch_up()
    assert "(13,good,6)" in leaf.same("t")


def test_a_table_has_a_policy_of_its_own(leaf: Leaf) -> None:
    refusal = REFUSALS["check"]
    with session(leaf) as open_session:
        change_table(open_session, ["public.t"], "quarantine-row")
        with pytest.raises(UsageError, match="one of stop, quarantine-row, quarantine-table"):
            change_table(open_session, ["public.t"], "ignore")
    leaf.leaf.execute(refusal.plant + "; alter table other add check (v <> 'bad')")
    fill(leaf, refusal.bad)
    leaf.catch_up()
    leaf.same("other")
    assert len(quarantined(leaf)) == 1
    leaf.root.execute("insert into other values (99, 'bad', 1)")
    leaf.pair.tick()
    with pytest.raises(DatabaseError, match=r'table "public\.other"'):
        leaf.worker.work()
    assert len(quarantined(leaf)) == 1


@pytest.mark.draw("quarantine")
@pytest.mark.parametrize("count", [1, 3000])
def test_bad_rows_among_many(
    quick_leaf: MakeLeaf, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute(REFUSALS["check"].plant)
    alone = 0
    apply_one = RowWise.one

    def counted(self: RowWise, event: Any) -> None:
        nonlocal alone
        alone += 1
        apply_one(self, event)

    monkeypatch.setattr(RowWise, "one", counted)
    leaf.root.execute(
        f"insert into t select i, case when i % {10000 // count} = {7 % (10000 // count)}"
        " then 'bad' else 'good' end, i from generate_series(1, 10000) i"
    )
    leaf.catch_up()
    bad = leaf.root.value("select count(*) from t where v = 'bad'")
    assert bad >= count
    assert len(quarantined(leaf)) == bad
    assert leaf.leaf.value("select count(*) from t") == 10000 - bad
    # only neighbours of bad rows are tried one by one, and each once
    assert alone <= min(25 * bad, 10000)
    leaf.leaf.execute(REFUSALS["check"].mend)
    assert replay(leaf) == [ops.Replayed("public.t", bad, 0)]
    assert len(leaf.same("t")) == 10000


def test_a_key_that_text_does_not_tell_holds_the_table(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    ddl = "create table k (id numeric primary key, v text)"
    leaf.pair.table("public.k", ddl)
    leaf.catch_up()
    leaf.leaf.execute("alter table k add check (v <> 'bad')")
    leaf.root.execute("insert into k values (1.0, 'bad'), (2, 'good')")
    leaf.catch_up()
    leaf.root.execute("update k set v = 'new' where id = 1")
    leaf.catch_up()
    assert [(row[2], row[3]) for row in quarantined(leaf)] == [
        ("error", "table"),
        ("held", "table"),
        ("held", "table"),
    ]
    assert leaf.leaf.value("select count(*) from k") == 0
    assert replay(leaf)[0].stayed == 0  # the net change is a good row
    leaf.same("k")


def test_unique_values_that_moved_on_do_not_stand_in_the_way_of_replay(
    quick_leaf: MakeLeaf,
) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    leaf.pair.table("public.u", "create table u (id int primary key, name text unique, v text)")
    leaf.catch_up()
    leaf.leaf.execute("alter table u add constraint no_bad check (v <> 'bad')")
    leaf.root.execute("insert into u values (1, 'x', 'bad')")
    leaf.root.execute("update u set name = 'y' where id = 1")
    leaf.root.execute("insert into u values (2, 'x', 'good')")
    leaf.catch_up()
    assert len(quarantined(leaf)) == 2
    leaf.leaf.execute("alter table u drop constraint no_bad")
    assert replay(leaf) == [ops.Replayed("public.u", 2, 0)]
    leaf.same("u")


def test_a_truncate_ends_what_waited_for_the_table(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute(REFUSALS["check"].plant)
    fill(leaf, "(13, 'bad', 1)")
    leaf.catch_up()
    assert len(quarantined(leaf)) == 1
    leaf.root.execute(
        "update t set n = 2 where id = 13; truncate t; insert into t values (13, 'x', 1)"
    )
    leaf.catch_up()
    assert leaf.same("t") == ["(13,x,1)"]
    assert (quarantined(leaf), ended(leaf)) == ([], [("obsolete", 2)])


def test_what_is_refused_again_stays(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute("alter table t add constraint c1 check (v <> 'bad' and v <> 'worse')")
    leaf.root.execute("insert into t values (1, 'bad', 1), (2, 'worse', 1), (3, 'good', 1)")
    leaf.root.execute("update t set n = 2 where id <= 2")
    leaf.catch_up()
    assert len(quarantined(leaf)) == 4
    leaf.leaf.execute(
        "alter table t drop constraint c1; alter table t add constraint c2 check (v <> 'worse')"
    )
    (done,) = replay(leaf)
    assert (done.applied, done.stayed) == (2, 2) and "c2" in (done.error or "")
    assert leaf.leaf.value("select n from t where id = 1") == 2
    assert {row[1] for row in quarantined(leaf)} == {key(2)}
    leaf.leaf.execute("alter table t drop constraint c2")
    number = leaf.leaf.value("select min(id) from vedur.quarantine")
    assert replay(leaf, ids=(number,)) == [ops.Replayed("public.t", 2, 0)]
    leaf.same("t")


def test_replace_is_for_rows_that_came_another_way(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute(REFUSALS["check"].plant)
    leaf.root.execute("insert into t values (13, 'bad', 1)")
    leaf.catch_up()
    leaf.leaf.execute(REFUSALS["check"].mend)
    leaf.leaf.execute("alter table t disable trigger user; insert into t values (13, 'bad', 1)")
    (done,) = replay(leaf)
    assert done.stayed == 1 and "duplicate key" in (done.error or "")
    assert replay(leaf, replace=True) == [ops.Replayed("public.t", 1, 0)]
    leaf.same("t")


# -- quarantine-table -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["check", "narrow-text", "no-table"])
def test_a_table_waits_and_the_others_go_on(quick_leaf: MakeLeaf, kind: str) -> None:
    leaf = quick_leaf(on_error="quarantine-table")
    two_tables(leaf)
    refusal = REFUSALS[kind]
    leaf.root.execute("insert into t values (1000, 'before', 1)")
    leaf.catch_up()
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    leaf.catch_up()
    leaf.same("other")
    leaf.root.execute("truncate t; insert into t values (1, 'after', 1)")
    leaf.root.execute("insert into other values (77, 'o', 7)")
    leaf.catch_up()
    leaf.same("other")
    assert {row[3] for row in quarantined(leaf)} == {"table"}
    assert len(quarantined(leaf)) == 32
    leaf.leaf.execute(refusal.mend)
    assert leaf.leaf.query("select id from t") == [(1000,)]
    assert replay(leaf) == [ops.Replayed("public.t", 32, 0)]
    assert leaf.same("t") == ["(1,after,1)"]
    leaf.root.execute("update t set n = 3")
    leaf.catch_up()
    leaf.same("t")


def test_a_table_that_is_copied_anew_needs_its_quarantine_no_more(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf(on_error="quarantine-table")
    two_tables(leaf)
    leaf.leaf.execute(REFUSALS["check"].plant)
    fill(leaf, "(13, 'bad', 1)")
    leaf.catch_up()
    assert len(quarantined(leaf)) == 30
    call(leaf.leaf, "londiste.local_set_table_state", QUEUE, "public.t", None, None)
    leaf.root.execute("insert into other values (77, 'o', 7)")
    leaf.catch_up()
    assert (quarantined(leaf), ended(leaf)) == ([], [("obsolete", 30)])


# -- skip -----------------------------------------------------------------------------------------


def stopped(leaf: Leaf) -> Any:
    """Run into the error; the record of it."""
    leaf.pair.tick()
    with pytest.raises(VedurError):
        work_on(leaf)
    return leaf.leaf.one("select * from vedur.replay_error")


def test_a_skipped_event_is_kept_and_can_be_replayed(leaf: Leaf) -> None:
    leaf.leaf.execute(REFUSALS["check"].plant)
    leaf.root.execute("insert into t values (13, 'good', 0)")
    leaf.root.execute("update t set v = 'bad' where id = 13")
    fill_rest = "insert into other values (1, 'o', 1); update t set n = 9 where id = 13"
    leaf.root.execute(fill_rest)
    found = stopped(leaf)
    with session(leaf) as open_session:
        with pytest.raises(UsageError, match="needs --reason"):
            skip(open_session, SkipOptions(event=found.ev_id))
        with pytest.raises(StateError, match="not in the queue"):
            skip(open_session, SkipOptions(event=10**9, reason="x"))
        skip(open_session, SkipOptions(event=found.ev_id, reason="ticket 12"))
        with pytest.raises(StateError, match=r"asked for already.*ticket 12"):
            skip(open_session, SkipOptions(event=found.ev_id, reason="again"))
    leaf.catch_up()
    leaf.same("other")
    assert leaf.leaf.query("select * from t") == [(13, "good", 0)]
    assert [row[2] for row in quarantined(leaf)] == ["skipped", "held"]
    kept = leaf.leaf.one("select * from vedur.quarantine where cause = 'skipped'")
    user = leaf.leaf.value("select session_user")
    assert (kept.ev_id, kept.reason, kept.decided_by) == (found.ev_id, "ticket 12", user)
    request = leaf.leaf.one("select * from vedur.skip_request")
    assert request.done_at and request.outcome == "1 event(s) kept in quarantine"
    with (
        session(leaf) as open_session,
        pytest.raises(StateError, match="is applied here already"),
    ):
        skip(open_session, SkipOptions(event=found.ev_id, reason="x"))
    leaf.leaf.execute(REFUSALS["check"].mend)
    assert replay(leaf) == [ops.Replayed("public.t", 2, 0)]
    leaf.same("t")


def test_skip_of_what_is_not_in_the_way_needs_force(leaf: Leaf) -> None:
    leaf.root.execute("insert into t values (1, 'a', 1)")
    leaf.root.execute("insert into t values (2, 'b', 1)")
    ids = [
        r.ev_id for r in leaf.root.query("select ev_id from pgq.event_1 order by 1 desc limit 2")
    ]
    with session(leaf) as open_session:
        with pytest.raises(StateError, match=r"is not blocking replay.*--force"):
            skip(open_session, SkipOptions(event=ids[0], reason="x"))
        skip(open_session, SkipOptions(event=ids[0], reason="x", force=True))
        with pytest.raises(UsageError, match="either --event=N or --tick=N"):
            skip(open_session, SkipOptions(reason="x"))
    leaf.catch_up()
    assert leaf.leaf.query("select id from t") == [(1,)]
    assert [row[1] for row in quarantined(leaf)] == [key(2)]


def test_a_skipped_tick_is_kept_whole(leaf: Leaf) -> None:
    leaf.leaf.execute(REFUSALS["check"].plant)
    leaf.root.execute("insert into t values (1000, 'first', 1)")
    leaf.pair.tick()
    fill(leaf, "(13, 'bad', 1)")
    bad = leaf.pair.tick()
    leaf.root.execute("update t set n = 100; insert into other values (88, 'last', 8)")
    last = leaf.pair.tick()
    with pytest.raises(VedurError):
        while leaf.worker.work():
            pass
    with session(leaf) as open_session:
        with pytest.raises(StateError, match="no tick"):
            skip(open_session, SkipOptions(tick=last + 1000, reason="x"))
        with pytest.raises(StateError, match="applied here already"):
            skip(open_session, SkipOptions(tick=1, reason="x"))
        skip(open_session, SkipOptions(tick=bad, reason="whole tick"))
    leaf.catch_up()
    # 60 skipped, and the update of each row that waits
    causes = [row[2] for row in quarantined(leaf)]
    assert (causes.count("skipped"), causes.count("held")) == (60, 30)
    assert leaf.leaf.query("select id from other") == [(88,)]
    assert leaf.leaf.query("select * from t") == [(1000, "first", 100)]
    leaf.leaf.execute(REFUSALS["check"].mend)
    assert {(r.table, r.stayed) for r in replay(leaf)} == {("public.t", 0), ("public.other", 0)}
    leaf.same("t")
    leaf.same("other")


def execute(leaf: Leaf, name: str, script: str) -> None:
    """What the command execute does, by hand."""
    with leaf.root.transaction():
        call(leaf.root, "londiste.execute_start", QUEUE, name, script, True)
        leaf.root.execute(script)
        call(leaf.root, "londiste.execute_finish", QUEUE, name)


def test_a_script_that_fails_is_found_skipped_kept_and_replayed(leaf: Leaf) -> None:
    leaf.root.execute("create schema there; insert into other values (1, 'a', 1)")
    execute(leaf, "make.sql", "create table there.x (i int)")
    leaf.root.execute("insert into other values (2, 'b', 1)")
    found = stopped(leaf)
    assert (found.ev_type, found.table_name, found.sqlstate) == ("EXECUTE", None, "3F000")
    with session(leaf) as open_session:
        (report,) = ops_errors.errors(open_session)
        assert report.what == "a script fails"
        skip(open_session, SkipOptions(event=found.ev_id, reason="not on this node"))
    leaf.catch_up()
    leaf.same("other")
    assert quarantined(leaf) == [(None, None, "skipped", "nothing")]
    with pytest.raises(DatabaseError, match='schema "there" does not exist'):
        replay(leaf)
    leaf.leaf.execute("create schema there")
    assert replay(leaf) == [ops.Replayed(None, 1, 0)]
    assert leaf.leaf.query("select * from there.x") == []
    assert quarantined(leaf) == []


@pytest.mark.draw(2)
@pytest.mark.parametrize(
    ("ev_type", "data", "extra1", "message"),
    [
        ("{garbage", "x", "public.t", "Unhandled event type"),
        ("londiste.nonsense", "x", None, "Unhandled event type"),
        ("nonsense", "x", None, "Unhandled event type"),
        (None, "x", None, "Unhandled event type"),
        (None, None, "public.t", "Unhandled event type"),
        ("", None, None, "Unhandled event type"),
        ("pgq.global-watermark", "abc", "q", "has 'abc' for a number"),
        ("pgq.global-watermark", None, "q", "without data"),
        ("londiste.update-seq", "x", "public.s", "has 'x' for a number"),
        ("londiste.add-table", None, None, "without data"),
    ],
)
def test_events_that_mean_nothing_can_be_skipped(
    leaf: Leaf, ev_type: str | None, data: str | None, extra1: str | None, message: str
) -> None:
    leaf.root.execute("insert into t values (1, 'a', 1)")
    leaf.root.query(
        "select pgq.insert_event('q', %s, %s, %s, null, null, null)", [ev_type, data, extra1]
    )
    leaf.root.execute("insert into t values (2, 'b', 1)")
    found = stopped(leaf)
    assert message in found.message and (found.ev_type or None) == (ev_type or None)
    with session(leaf) as open_session:
        skip(open_session, SkipOptions(event=found.ev_id, reason="garbage"))
    leaf.catch_up()
    leaf.same("t")
    assert [row[2:] for row in quarantined(leaf)] == [("skipped", "nothing")]


@pytest.mark.parametrize("policy", ["stop", "quarantine-row"])
def test_a_row_that_cannot_be_read_is_blamed(quick_leaf: MakeLeaf, policy: str) -> None:
    leaf = quick_leaf(on_error=policy)
    two_tables(leaf, "AIUDJ")
    leaf.root.execute("insert into t values (1, 'a', 1)")
    kind = leaf.root.value("select ev_type from pgq.event_1 where ev_extra1 = 'public.t'")
    leaf.root.query(
        "select pgq.insert_event('q', %s, '{\"id\": 2,', 'public.t', null, null, null)", [kind]
    )
    leaf.root.execute("insert into other values (2, 'b', 1)")
    if policy == "stop":
        assert "its data cannot be read" in stopped(leaf).message
        return
    leaf.catch_up()
    leaf.same("other")
    assert leaf.same("t") == ["(1,a,1)"]
    assert [row[2:] for row in quarantined(leaf)] == [("error", "table")]


# -- drop -----------------------------------------------------------------------------------------


def test_drop_asks_twice_and_forgets_nothing(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute(REFUSALS["check"].plant)
    leaf.root.execute("insert into t values (13, 'bad', 1)")
    leaf.catch_up()
    number = leaf.leaf.value("select id from vedur.quarantine")
    with session(leaf) as open_session:
        with pytest.raises(UsageError, match="--reason"):
            drop(open_session, ops.Choice(ids=(number,)), "", sure=True)
        with pytest.raises(UsageError, match="say --yes"):
            drop(open_session, ops.Choice(ids=(number,)), "why", sure=False)
        with pytest.raises(UsageError, match="needs ID"):
            drop(open_session, ops.Choice(), "why", sure=True)
        drop(open_session, ops.Choice(tables=("t",)), "why", sure=True)
    gone = leaf.leaf.one("select * from vedur.quarantine_log")
    assert (gone.id, gone.outcome, gone.ended_reason) == (number, "dropped", "why")
    assert json.loads(gone.ev_data)["v"] == "bad"
    # the row is free again
    leaf.root.execute("delete from t where id = 13; insert into t values (13, 'good', 1)")
    leaf.catch_up()
    leaf.same("t")


# -- crashes --------------------------------------------------------------------------------------


class Crash(Exception):
    """The worker dies here."""


@pytest.fixture
def crash_at() -> Iterator[Callable[[str], None]]:
    def plan(name: str) -> None:
        def hook(reached: str) -> None:
            if reached == name:
                failpoint.set_hook(None)
                raise Crash

        failpoint.set_hook(hook)

    yield plan
    failpoint.set_hook(None)


@pytest.mark.parametrize("point", ["batch.merged", "batch.committed"])
def test_a_crash_quarantines_nothing_twice(
    quick_leaf: MakeLeaf, crash_at: Callable[[str], None], point: str
) -> None:
    leaf = quick_leaf(on_error="quarantine-row")
    two_tables(leaf)
    leaf.leaf.execute(REFUSALS["check"].plant)
    fill(leaf, "(13, 'bad', 1)")
    leaf.pair.tick()
    crash_at(point)
    with pytest.raises(Crash):
        while leaf.worker.work():
            pass
    leaf.worker._close_connections()
    assert len(quarantined(leaf)) == (0 if point == "batch.merged" else 1)
    leaf.catch_up()
    assert quarantined(leaf) == [("public.t", key(13), "error", "row")]
    assert leaf.leaf.value("select count(*) from t") == 29
    leaf.same("other")


def test_a_crash_before_the_commit_keeps_the_decision(
    leaf: Leaf, crash_at: Callable[[str], None]
) -> None:
    leaf.leaf.execute(REFUSALS["check"].plant)
    fill(leaf, "(13, 'bad', 1)")
    found = stopped(leaf)
    with session(leaf) as open_session:
        skip(open_session, SkipOptions(event=found.ev_id, reason="x"))
    crash_at("batch.merged")
    with pytest.raises(Crash):
        while leaf.worker.work():
            pass
    leaf.worker._close_connections()
    assert leaf.leaf.value("select done_at from vedur.skip_request") is None
    assert leaf.leaf.value("select attempts from vedur.replay_error") == 1
    leaf.catch_up()
    assert len(quarantined(leaf)) == 1
    assert leaf.leaf.query("select * from vedur.replay_error") == []


# -- with Spark, and with upstream's SQL -----------------------------------------------------------


def test_upstreams_sql_on_both_sides(quick_leaf: MakeLeaf) -> None:
    leaf = quick_leaf("upstream")
    two_tables(leaf)
    leaf.leaf.execute(REFUSALS["check"].plant)
    fill(leaf, "(13, 'bad', 1)")
    found = stopped(leaf)
    assert (found.table_name, found.row_key) == ("public.t", key(13))
    with session(leaf) as open_session:
        skip(open_session, SkipOptions(event=found.ev_id, reason="x"))
    leaf.catch_up()
    with session(leaf) as open_session:
        change_table(open_session, ["public.t"], "quarantine-row")
    leaf.root.execute("update t set v = 'bad' where id in (14, 15); update t set n = 7")
    leaf.catch_up()
    leaf.same("other")
    assert {row[1] for row in quarantined(leaf)} == {key(13), key(14), key(15)}
    leaf.leaf.execute(REFUSALS["check"].mend)
    assert replay(leaf) == [ops.Replayed("public.t", 6, 0)]
    leaf.same("t")


@pytest.mark.draw("quarantine")
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["ours", "upstream"])
def test_the_whole_story_on_spark(make_leaf: MakeLeaf, kind: str) -> None:
    leaf = make_leaf(kind)
    two_tables(leaf)
    refusal = REFUSALS["narrow-text"]
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    found = stopped(leaf)
    assert (found.table_name, found.row_key, found.sqlstate) == ("public.t", key(13), "22001")
    with session(leaf) as open_session:
        change_table(open_session, ["public.t"], "quarantine-row")
    leaf.root.execute(
        "insert into t select i, 'many', i from generate_series(1000, 10000) i;"
        "update t set v = 'fine' where id = 13"
    )
    leaf.catch_up()
    leaf.same("other")
    assert [row[1] for row in quarantined(leaf)] == [key(13)] * 2
    leaf.leaf.execute(refusal.mend)
    assert replay(leaf) == [ops.Replayed("public.t", 2, 0)]
    leaf.same("t")


# -- a part of the quarantine, events without the column of their table, missing rights -----------


def test_replay_up_to_a_tick_leaves_the_rest_in_its_place(leaf: Leaf) -> None:
    refusal = REFUSALS["check"]
    with session(leaf) as open_session:
        change_table(open_session, ["t"], "quarantine-row")
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    leaf.catch_up()
    leaf.root.execute("update t set n = 2 where id = 13")
    leaf.catch_up()
    leaf.root.execute("update t set n = 3 where id = 13")
    leaf.catch_up()
    ticks = [r[0] for r in leaf.leaf.query("select tick_id from vedur.quarantine order by id")]
    assert len(set(ticks)) == 3
    leaf.leaf.execute(refusal.mend)
    value = "select n from t where id = 13"
    assert replay(leaf, until_tick=ticks[1]) == [ops.Replayed("public.t", 2, 0)]
    assert leaf.leaf.value(value) == 2
    assert [row[2] for row in quarantined(leaf)] == ["held"]
    leaf.root.execute("update t set n = 4 where id = 13")  # what is left holds the row
    leaf.catch_up()
    assert leaf.leaf.value(value) == 2
    assert replay(leaf, until_tick=ticks[1]) == []
    assert replay(leaf) == [ops.Replayed("public.t", 2, 0)]
    leaf.same("t")
    assert ended(leaf) == [("replayed", 4)]


def test_a_table_that_is_held_just_before_a_replay_is_replayed_as_a_table(
    leaf: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = REFUSALS["check"]
    with session(leaf) as open_session:
        change_table(open_session, ["t"], "quarantine-row")
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    leaf.catch_up()
    leaf.leaf.execute(refusal.mend + "; alter table t add constraint no_worse check (v <> 'worse')")
    real, calls = ops.lock_position, []

    def lock(*args: Any) -> None:
        """The worker comes first, and holds the table."""
        if not calls:
            calls.append(1)
            with session(leaf) as open_session:
                change_table(open_session, ["t"], "quarantine-table")
            leaf.root.execute("update t set v = 'worse' where id = 14")
            leaf.catch_up()
            leaf.root.execute("update t set n = 9 where id = 13")
            leaf.catch_up()
        real(*args)

    monkeypatch.setattr(ops, "lock_position", lock)
    first = leaf.leaf.value("select id from vedur.quarantine")
    (done,) = replay(leaf, ids=(first,))
    assert (done.applied, done.stayed) == (1, 2)
    assert "no_worse" in (done.error or "")
    assert leaf.leaf.value("select n from t where id = 13") == 1
    leaf.leaf.execute("alter table t drop constraint no_worse")
    assert replay(leaf) == [ops.Replayed("public.t", 2, 0)]
    leaf.same("t")


def test_skip_an_event_that_names_its_table_in_its_type_only(leaf: Leaf) -> None:
    kind = json.dumps({"op": "INSERT", "table": ["public", "t"], "pkey": ["id"]})
    text = "select pgq.insert_event(%s, %s, %s)"
    event = leaf.root.value(text, [QUEUE, kind, json.dumps({"id": 5, "v": "x", "n": 1})])
    with session(leaf) as open_session:
        asked = skip(open_session, SkipOptions(event=event, reason="no", force=True))
    assert asked.table_name == "public.t"
    leaf.root.execute("insert into t values (6, 'y', 1)")
    leaf.catch_up()
    assert leaf.leaf.query("select id from t") == [(6,)]
    assert [row[0::2] for row in quarantined(leaf)] == [("public.t", "skipped")]


def test_a_policy_that_the_role_cannot_follow_is_said_once(
    leaf: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    role = f"poor_{leaf.leaf.value('select current_database()')}"
    leaf.leaf.execute(f"create role {role} login")
    batch = SimpleNamespace(prev_tick=1, tick=2)
    tables = get_table_list(leaf.leaf, QUEUE)
    quarantine = ConsumerQuarantine(QUEUE, WORKER, leaf.leaf.connstr, Policy.ROW)
    try:
        with connect(with_params(leaf.leaf.connstr, user=role), autocommit=True) as poor:
            for _ in range(2):
                assert (
                    quarantine.open_batch(poor, batch, tables, quarantine.read_outlook(poor, []))
                    is None
                )  # type: ignore[arg-type]
            assert len(caplog.messages) == 1
            assert "for public.t, public.other, but role" in caplog.text
            assert f"grant londiste_writer to {role}" in caplog.text
            leaf.leaf.execute(f"grant londiste_writer to {role}")
            outlook = quarantine.read_outlook(poor, [])
            assert quarantine.open_batch(poor, batch, tables, outlook) is not None  # type: ignore[arg-type]
        caplog.clear()
        quiet = ConsumerQuarantine(QUEUE, WORKER, leaf.leaf.connstr, Policy.STOP)
        assert quiet.open_batch(leaf.leaf, batch, tables, Outlook()) is None  # type: ignore[arg-type]
        assert caplog.messages == []
    finally:
        leaf.leaf.execute(f"drop role {role}")


def test_a_table_that_is_altered_during_a_replay_is_staged_again(
    leaf: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = REFUSALS["check"]
    with session(leaf) as open_session:
        change_table(open_session, ["t"], "quarantine-row")
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    leaf.catch_up()
    leaf.leaf.execute(refusal.mend)
    real, calls = ops.lock_position, []

    def lock(*args: Any) -> None:
        if not calls:
            leaf.leaf.execute("alter table t alter v type varchar(30)")
        calls.append(1)
        real(*args)

    monkeypatch.setattr(ops, "lock_position", lock)
    assert replay(leaf) == [ops.Replayed("public.t", 1, 0)]
    assert len(calls) == 2
    leaf.same("t")


def waiting_row(leaf: Leaf) -> None:
    """Row 13 of t waits, and could be applied."""
    refusal = REFUSALS["check"]
    with session(leaf) as open_session:
        change_table(open_session, ["t"], "quarantine-row")
    leaf.leaf.execute(refusal.plant)
    fill(leaf, refusal.bad)
    leaf.catch_up()
    leaf.leaf.execute(refusal.mend)


@pytest.mark.parametrize(
    "meanwhile",
    [
        # change-filter, columns, resync: each commits while the replay has staged
        ("londiste.local_set_table_attrs", "copy_condition=id+%3c+10"),
        ("londiste.local_set_table_attrs", "columns=id%2cv"),
        ("londiste.local_set_table_state", None, None),
    ],
)
def test_a_replay_looks_at_the_table_again_under_the_lock(
    leaf: Leaf, monkeypatch: pytest.MonkeyPatch, meanwhile: tuple[Any, ...]
) -> None:
    waiting_row(leaf)
    before = leaf.leaf.query("select * from t order by id")
    real, calls = ops.lock_position, []

    def lock(*args: Any) -> None:
        if not calls:
            call(leaf.leaf, meanwhile[0], QUEUE, "public.t", *meanwhile[1:])
        calls.append(1)
        real(*args)

    monkeypatch.setattr(ops, "lock_position", lock)
    with pytest.raises(StateError, match="was changed by another command meanwhile"):
        replay(leaf)
    assert calls == [1]
    assert leaf.leaf.query("select * from t order by id") == before
    assert [row[2] for row in quarantined(leaf)] == ["error"]


def test_a_replay_goes_on_when_the_worker_ends_the_mark_of_a_copy(
    leaf: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting_row(leaf)
    text = "select * from londiste.local_set_table_state('q', 'public.t', %s, 'ok')"
    leaf.leaf.query(text, ["1:2:"])
    real, calls = ops.lock_position, []

    def lock(*args: Any) -> None:
        if not calls:
            leaf.leaf.query(text, [None])
        calls.append(1)
        real(*args)

    monkeypatch.setattr(ops, "lock_position", lock)
    assert replay(leaf) == [ops.Replayed("public.t", 1, 0)]
    leaf.same("t")


def test_an_update_that_changes_no_row_is_named_with_its_table(
    leaf: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever applies it: the worker event by event, and a replay."""
    waiting_row(leaf)

    def said(origin: str) -> int:
        missing = "public.t: 1 update(s) changed no row on this node "
        why = "(the row is missing, or a trigger refused the update), "
        return caplog.messages.count(missing + why + origin)

    leaf.root.execute("update t set n = 7 where id = 13")
    with leaf.leaf.transaction():
        leaf.leaf.execute("set local session_replication_role = replica")
        leaf.leaf.execute("delete from t where id = 5")
    leaf.root.execute("update t set n = 6 where id = 5")
    leaf.catch_up()  # the table has events in quarantine, so its others go one by one
    batch = leaf.leaf.one("select * from vedur.batch_log order by batch_nr desc limit 1")
    assert said(f"ticks: after {batch.prev_tick} up to {batch.tick_id}") == 1
    caplog.clear()
    first = leaf.leaf.value("select min(id) from vedur.quarantine")
    leaf.leaf.execute("delete from vedur.quarantine where id = %s", [first])
    last = leaf.leaf.value("select max(id) from vedur.quarantine")
    assert replay(leaf) == [ops.Replayed("public.t", 1, 0)]
    assert said(f"quarantine: entries up to {last}") == 1
