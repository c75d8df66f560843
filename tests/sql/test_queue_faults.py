"""Sequences and event tables of a queue that were altered by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import vedur.db as vdb
from tests.sql.test_partitions import call, forget, make_node
from vedur.db import Database
from vedur.errors import DatabaseError

SEQUENCE = "pgq.event_1_id_seq"
TICKS = "pgq.event_1_tick_seq"
WRONG = "the sequence has another order than events and ticks need"
NUMBERS = (
    "events had numbers that do not tell their order: rows that were changed again may be older on"
    " the other nodes (not repaired yet: other)"
)


@pytest.fixture
def root(db: Database) -> Database:
    make_node(db, "root").execute("create table t (id int primary key, v int)")
    call(db, "londiste.local_add_table", "q", "t")
    db.execute("insert into t values (1, 0)")
    assert problems(db) == []
    return db


@pytest.fixture
def other(root: Database) -> Iterator[Database]:
    with vdb.connect(root.connstr, autocommit=True) as db:
        yield db


def problems(db: Database) -> list[tuple[str, str, str]]:
    rows = db.query("select * from vedur.table_problems('q') order by table_name, what")
    return [(row.table_name, row.severity, row.what) for row in rows]


def mend(db: Database) -> int:
    return int(db.value("select vedur.mend_queue('q')"))


def numbers(db: Database) -> list[str]:
    """The values that events of `t` carry, in the order of the events."""
    text = "select ev_data::json ->> 'v' from pgq.event_1 where ev_type ~ 'UPDATE' order by ev_id"
    return [row[0] for row in db.query(text)]


@pytest.mark.every_version
def test_a_cache_is_told_and_taken_away(root: Database, other: Database) -> None:
    root.execute(f"alter sequence {SEQUENCE} cache 50")
    for value, writer in enumerate((other, root, other), 1):
        writer.execute(f"update t set v = {value}")
    assert numbers(root) == ["1", "3", "2"]  # that is why
    assert problems(root) == [(SEQUENCE, "fail", f"{WRONG}: CACHE 50")]
    (action,) = root.one("select action from vedur.table_problems('q')")
    assert action.endswith("or run as its owner: alter sequence pgq.event_1_id_seq cache 1")
    forget(root)
    assert mend(root) == 1
    # `other` forgets the numbers that it has taken
    for value, writer in enumerate((other, root, other), 1):
        writer.execute(f"update t set v = {value}")
    assert numbers(root) == ["1", "2", "3"]
    assert problems(root) == [("public.t", "fail", NUMBERS)]
    last = root.value("select max(change_id) from vedur.table_change")
    root.value("select vedur.mend_table_changes('q', 'public.t', 'other', 'here', %s)", [last])
    assert (mend(root), problems(root)) == (0, [])


@pytest.mark.parametrize(
    ("alter", "fault"),
    [("increment -1", "INCREMENT -1"), ("maxvalue 1000000 cycle", "CYCLE")],
)
def test_other_faults_of_the_sequence(root: Database, alter: str, fault: str) -> None:
    root.execute(f"alter sequence {SEQUENCE} {alter}")
    assert problems(root) == [(SEQUENCE, "fail", f"{WRONG}: {fault}")]
    assert mend(root) == 1
    assert problems(root) == [("public.t", "fail", NUMBERS)]
    before = root.value("select max(ev_id) from pgq.event_1")
    root.execute("update t set v = 1; update t set v = 2")
    assert numbers(root) == ["1", "2"]
    assert root.value("select min(ev_id) from pgq.event_1 where ev_type ~ 'UPDATE'") > before


def test_gaps_do_no_harm(root: Database) -> None:
    root.execute(f"alter sequence {SEQUENCE} increment 10; alter sequence {SEQUENCE} minvalue 1")
    root.value(f"select setval('{SEQUENCE}', 123456)")
    assert (problems(root), mend(root)) == ([], 0)


@pytest.mark.parametrize("first", [1, 5])
def test_a_sequence_that_was_set_back(root: Database, first: int) -> None:
    root.value("select pgq.force_tick('q')")
    root.value("select pgq.ticker()")
    reached = root.value("select max(tick_event_seq) from pgq.tick")
    root.execute(f"alter sequence {SEQUENCE} restart {first}")
    assert problems(root)[0][2] == f"{WRONG}: set back from {reached} to {first - 1}"
    root.execute("update t set v = 1")
    root.value("update pgq.tick set tick_time = now() - interval '1 hour' returning 1")
    root.value("select pgq.ticker()")
    assert len(problems(root)) == 1  # a later tick of lower numbers does not hide it
    assert mend(root) == 1
    assert problems(root) == [("public.t", "fail", NUMBERS)]
    root.execute("update t set v = 2")
    assert root.value("select max(ev_id) from pgq.event_1") > reached


def test_a_busy_sequence_is_altered_later(root: Database, other: Database) -> None:
    root.execute(f"alter sequence {SEQUENCE} cache 2")
    other.execute("begin; update t set v = 1")
    assert mend(root) == 1
    assert problems(root) == [
        (SEQUENCE, "fail", f"{WRONG}: CACHE 2"),
        ("public.t", "fail", NUMBERS),
    ]
    other.execute("commit")
    assert mend(root) == 1
    assert problems(root) == [("public.t", "fail", NUMBERS)]


def test_maintenance_sets_it_right(root: Database) -> None:
    root.execute(f"alter sequence {SEQUENCE} cache 2")
    root.value("select londiste.periodic_maintenance()")
    assert problems(root) == [("public.t", "fail", NUMBERS)]


def test_who_may_alter_no_sequence_has_it_done(root: Database) -> None:
    role = "mender_" + str(root.value("select current_database()"))
    root.execute(f"alter sequence {SEQUENCE} cache 2")
    root.execute(f"create role {role}; set role {role}")
    try:
        with pytest.raises(DatabaseError, match="permission denied"):
            mend(root)
        root.execute(f"reset role; grant londiste_writer to {role}; set role {role}")
        assert mend(root) == 1
    finally:
        root.execute(f"reset role; drop role {role}")
    assert (
        root.value(f"select seqcache from pg_sequence where seqrelid = '{SEQUENCE}'::regclass") == 1
    )


def test_no_sequence_of_others_is_altered(root: Database) -> None:
    root.execute("create sequence public.s cache 2")
    root.execute("alter table pgq.queue drop constraint queue_schema_check")
    root.execute("update pgq.queue set queue_event_seq = 'public.s'")
    assert mend(root) == 0
    assert root.value("select seqcache from pg_sequence where seqrelid = 's'::regclass") == 2


def test_ticks_grow_whatever_their_sequence_gives(root: Database, other: Database) -> None:
    root.execute(f"alter sequence {TICKS} cache 5")
    ticks = []
    for ticker in (root, other, root, other):
        ticker.value("select pgq.force_tick('q')")
        ticks.append(ticker.value("select pgq.ticker('q')"))
    root.execute(f"alter sequence {TICKS} restart 1")
    root.value("select pgq.force_tick('q')")
    ticks.append(root.value("select pgq.ticker('q')"))
    assert ticks == sorted(set(ticks))
    assert [what for name, _, what in problems(root) if name == TICKS] == [f"{WRONG}: CACHE 5"]
    assert mend(root) == 1
    assert problems(root) == []  # no row came in another order
    root.execute(f"alter sequence {TICKS} increment -1")
    with pytest.raises(DatabaseError, match="alter it to increment 1"):
        for _ in range(5):  # it is ahead of the ticks by its cache
            root.value("select pgq.force_tick('q')")
            ticks.append(root.value("select pgq.ticker('q')"))
    assert mend(root) == 2  # and it was set back
    assert root.value("select pgq.ticker('q')") > ticks[-1]


@pytest.mark.parametrize(
    ("alter", "severity", "what"),
    [
        ("alter table pgq.event_1_0 set unlogged", "fail", "is UNLOGGED: a crash"),
        ("alter table pgq.event_1_1 enable row level security", "fail", "has row level"),
        (
            "create rule r as on insert to pgq.event_1_2 do instead nothing",
            "fail",
            "has a rule, which can swallow events: r",
        ),
        (
            "create trigger g before insert on pgq.event_1_0 for each row execute function f()",
            "fail",
            "has a trigger, which can change or refuse events: g",
        ),
        (
            "create trigger g after insert on pgq.event_1_0 for each row execute function f()",
            "warn",
            "has a trigger, which can change or refuse events: g",
        ),
        ("drop index pgq.event_1_0_txid_idx", "warn", "has no index on ev_txid"),
    ],
)
def test_event_tables_that_were_altered(
    root: Database, alter: str, severity: str, what: str
) -> None:
    root.execute("create function f() returns trigger language plpgsql as 'begin return new; end'")
    root.execute(alter)
    ((name, found, told),) = problems(root)
    assert name.startswith("pgq.event_1_")
    assert (found, told.startswith(f"the event table {what}")) == (severity, True)
    (action,) = root.one("select action from vedur.table_problems('q')")
    root.execute(action)
    assert problems(root) == []


def test_a_trigger_that_changes_rows_after_capture(db: Database) -> None:
    """BEFORE triggers fire in the order of their names, and "_" sorts before small letters."""
    make_node(db, "root").execute(
        "create table t (id int primary key, v int);"
        "create function f() returns trigger language plpgsql as 'begin return new; end';"
        'create trigger "A" before insert on t for each row execute function f();'
        "create trigger zz after insert on t for each row execute function f()"
    )
    call(db, "londiste.local_add_table", "q", "t", ["tgflags=BIUD"])
    assert problems(db) == []
    db.execute("create trigger z before update on t for each row execute function f()")
    what = "trigger z of public.t fires after capture: it may change or keep out rows that were"
    assert problems(db) == [("public.t", "warn", f"{what} captured already")]


def test_a_sequence_that_was_restarted_far_ahead_is_fine(root: Database) -> None:
    root.value("select pgq.force_tick('q')")
    root.value("select pgq.ticker('q')")
    reached = root.value("select max(tick_event_seq) from pgq.tick")
    root.execute(f"alter sequence {SEQUENCE} restart with {reached + 1_000_000}")
    assert (mend(root), problems(root)) == (0, [])
    root.execute(f"alter sequence {SEQUENCE} restart with {reached}")  # a number that was used
    assert mend(root) == 1
    assert mend(root) == 0
