"""Masked tables: what comes is what the rules make of it, and nothing else reaches the node."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.wait import until
from tests.labs.first_copy import Lab
from tests.labs.handlers import KEY, UseHandlers, set_handler, use_handlers
from tests.labs.in_process import quick_leaf, without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur import failpoint
from vedur.db import Database, connect
from vedur.errors import ConnectError, StateError, UsageError
from vedur.handlers.obfuscate import Obfuscate
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.change_handler import ChangeHandler, change_handler
from vedur.ops.change_table import change_table
from vedur.ops.quarantine import replay as ops
from vedur.ops.resync import resync
from vedur.ops.session import Session
from vedur.pipeline.replay.fast_path import rows
from vedur.pipeline.replay.fast_path.made import HandledPattern
from vedur.status.snapshot import read_node

__all__ = ["quick_leaf", "use_handlers", "without_spark"]

DDL = """create table people (
    id int primary key, mail text not null unique, name text, born date, card text, doc jsonb,
    country text, private text)"""
#: The same with the types that masked values have.
MASKED = """create table people (
    id bigint primary key, mail uuid not null unique, name text, born date, card text, doc jsonb,
    country text, private text)"""
RULES = {
    "public.people": {
        "id": "hash64",
        "mail": "hash",
        "name": "mask",
        "born": "shift:40",
        "card": "partial:0:4",
        "doc": {"plan": "keep", "who": {"mail": "hash"}},
        "country": "keep",
        "private": "skip",
    }
}
#: A table whose changes go by column where many are alike; the JSON of `people` has escapes.
FOLK = (
    "create table folk (id bigint primary key, name text, born date, seen timestamptz, note text)"
)
FOLK_RULES = {
    "public.folk": {
        "id": "hash64", "name": "hash", "born": "shift:40", "seen": "shift:40", "note": "keep"
    }
}  # fmt: skip
COLUMNS = ("id", "mail", "name", "born", "card", "doc", "country", "private")
#: No masked value holds one of these.
PLANTED = ("planted", "PLANTED", "4929-4929", "1977-03-0")

#: All that a database holds, by table.
TABLES = """
select format('%I.%I', n.nspname, c.relname) as name
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'm') and n.nspname not in ('pg_catalog', 'information_schema')
"""


def expected(root: Database) -> list[str]:
    """The rows of the root, masked one by one."""
    handler = Obfuscate(
        "public.people", {}, {"obfuscator_key": KEY, "obfuscator_map": json.dumps(RULES)}
    )
    wanted = []
    for row in root.query("select * from people"):
        texts = [None if v is None else v if isinstance(v, str) else json.dumps(v)
                 if isinstance(v, dict) else str(v) for v in row]  # fmt: skip
        batch = pa.RecordBatch.from_arrays([pa.array([t], pa.string()) for t in texts], COLUMNS)
        found = handler.rows(batch).to_pylist()[0]
        doc = None if found["doc"] is None else in_order(json.loads(found["doc"]))
        wanted.append((*[found[c] for c in COLUMNS[:5]], doc, found["country"], None))
    return sorted(map(str, wanted))


def present(leaf: Database) -> list[str]:
    rows = leaf.query("select id::text, mail::text, name, born::text, card, doc, country, private "
                      "from people")  # fmt: skip
    return sorted(str((*row[:5], in_order(row[5]), *row[6:])) for row in rows)


def folk_as_expected(root: Database, leaf: Database) -> bool:
    """Has the leaf the rows of the root, masked value by value?"""
    options = {"obfuscator_key": KEY, "obfuscator_map": json.dumps(FOLK_RULES)}
    rules = Obfuscate("public.folk", {}, options).rules
    read = (
        "select id::text, name, born::text, (seen at time zone 'utc')::text || '+00' as seen, note"
    )
    wanted = [
        [v and rules[n].mask(v) for n, v in zip(FOLK_RULES["public.folk"], row, strict=True)]
        for row in root.query(f"{read} from folk")
    ]
    found = [list(row) for row in leaf.query(f"{read} from folk")]
    return sorted(map(str, found)) == sorted(map(str, wanted))


def in_order(doc: Any) -> str:
    return json.dumps(doc, sort_keys=True)


def person(number: int, word: str = "planted") -> tuple[Any, ...]:
    doc = {
        "plan": "gold",
        "who": {"mail": f"{word}{number}@x.is", "pin": "PLANTED"},
        "x": "planted",
    }
    return (
        number, f"{word}{number}@x.is", f"PLANTED Planted {number}", f"1977-03-0{number % 9 + 1}",
        f"4929-4929-0000-{1000 + number}", json.dumps(doc), "is", "planted private",
    )  # fmt: skip


def insert(db: Database, *numbers: int) -> None:
    db.executemany(
        "insert into people values (%s, %s, %s, %s, %s, %s, %s, %s)", [person(n) for n in numbers]
    )


def leaks(db: Database) -> Iterator[str]:
    """Yield what a database holds of planted values: rows of all tables, and files of them."""
    for (name,) in db.query(TABLES):
        for (row,) in db.query(f"select t::text from {name} t"):
            for word in PLANTED:
                if word in row:
                    yield f"{name}: {row}"
    db.execute("checkpoint")
    place = (
        Path(db.value("show data_directory"))
        / "base"
        / db.value("select oid::text from pg_database where datname = current_database()")
    )
    for path in place.iterdir():
        data = path.read_bytes()
        yield from (f"{path}: {word}" for word in PLANTED if word.encode() in data)


def test_the_search_finds_what_is_there(make_db: Callable[..., Database]) -> None:
    db = make_db()
    db.autocommit = True
    db.execute(DDL)
    assert not list(leaks(db))
    insert(db, 1)
    db.execute("delete from people")
    assert list(leaks(db)), "of a row that is dead, too"


def test_copies_and_changes_are_masked_and_nothing_leaks(
    quick_lab: Lab, use_handlers: UseHandlers, caplog: pytest.LogCaptureFixture
) -> None:
    use_handlers(RULES)
    caplog.set_level("DEBUG")
    lab = quick_lab
    lab.root.execute(DDL)
    lab.leaf.execute(MASKED)
    insert(lab.root, *range(1, 60))
    lab.root.execute("select londiste.local_add_table(%s, 'public.people')", [QUEUE])
    with lab.session() as session:
        add_table(session, AddTable(tables=["people"], handler="obfuscate"))
        lab.start()
        lab.wait_ok()
        lab.settle()
        assert present(lab.leaf) == expected(lab.root)
        insert(lab.root, *range(60, 90))
        lab.root.execute(
            "update people set name = 'PLANTED again', private = 'planted' where id < 9"
        )
        lab.root.execute("update people set id = id + 1000 where id between 10 and 20")
        lab.root.execute("delete from people where id between 30 and 40")
        lab.settle()
        assert present(lab.leaf) == expected(lab.root)
        # what the server refuses goes event by event, and into quarantine
        change_table(session, ["people"], "quarantine-row")
        lab.leaf.execute("alter table people add constraint c check (country <> 'no') not valid")
        lab.root.execute("update people set country = 'no', name = 'PLANTED bad' where id = 50")
        insert(lab.root, 90)
        lab.wait_until(lambda: bool(lab.leaf.value("select count(*) from vedur.quarantine")))
        lab.settle()
    lab.stop()
    assert list(leaks(lab.leaf)) == []
    assert not [word for word in PLANTED if word in caplog.text]


@pytest.mark.parametrize("point", ["copy.emptied", "copy.loaded", "batch.staged", "batch.merged"])
def test_what_was_cut_short_goes_on_masked(
    quick_lab: Lab, use_handlers: UseHandlers, point: str
) -> None:
    """What had been copied or staged is there still, or again, and nothing of it is clear."""
    use_handlers(RULES)
    lab = quick_lab
    lab.root.execute(DDL)
    lab.leaf.execute(MASKED)
    insert(lab.root, *range(1, 40))
    lab.root.execute("select londiste.local_add_table(%s, 'public.people')", [QUEUE])
    with lab.session() as session:
        add_table(session, AddTable(tables=["people"], handler="obfuscate"))
    cut: list[str] = []

    def cut_short(name: str) -> None:
        if name == point and not cut:
            cut.append(name)
            raise ConnectError("the process died here")

    failpoint.set_hook(cut_short)
    lab.start()
    lab.wait_ok()
    lab.root.execute("update people set name = 'PLANTED again' where id < 9")
    lab.root.execute("update people set id = id + 1000 where id between 10 and 20")
    lab.root.execute("delete from people where id between 30 and 35")
    lab.settle()
    assert cut == [point]
    assert present(lab.leaf) == expected(lab.root)
    lab.stop()
    assert list(leaks(lab.leaf)) == []


def test_changes_that_go_by_column_leave_nothing_behind(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, by_column = HandledPattern.split, []

    def spy(self: HandledPattern, data: Any, known: Any) -> Any:
        alike, made = split(self, data, known)
        by_column.append(len(made))
        return alike, made

    monkeypatch.setattr(HandledPattern, "split", spy)
    use_handlers(FOLK_RULES)
    leaf = quick_leaf()
    leaf.pair.table("public.folk", FOLK)
    set_handler(leaf.leaf, "public.folk", "obfuscate")
    leaf.root.execute(
        "insert into folk select i, 'planted ' || i, date '1977-03-01' + i % 9,"
        " timestamptz '1977-03-01 12:00+02' + i * interval '1 minute', 'n'"
        " from generate_series(1, 900) i"
    )
    leaf.catch_up()
    leaf.root.execute("update folk set name = 'PLANTED ' || id, seen = null where id > 100")
    leaf.root.execute("update folk set name = 'planted ' || chr(92) where id = 500")
    leaf.root.execute("update folk set id = id + 5000 where id between 300 and 600")
    leaf.root.execute("delete from folk where id between 120 and 420")
    leaf.catch_up()
    assert sum(by_column) > 2000
    assert folk_as_expected(leaf.root, leaf.leaf)
    assert list(leaks(leaf.leaf)) == []


def _tables(session: Session) -> Any:
    from vedur.catalog.tables import get_table_list

    return get_table_list(session.db, QUEUE)


def test_quarantined_events_are_not_masked_twice(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers
) -> None:
    use_handlers(RULES)
    leaf = quick_leaf()
    leaf.pair.table("public.people", DDL, dest_ddl=MASKED)
    set_handler(leaf.leaf, "public.people", "obfuscate")
    with Session(leaf.settings) as session:
        change_table(session, ["people"], "quarantine-row")
    leaf.leaf.execute("alter table people add constraint c check (country <> 'no') not valid")
    insert(leaf.root, 1, 2, 3)
    leaf.root.execute("update people set country = 'no' where id = 2")
    leaf.catch_up()
    leaf.root.execute("update people set name = 'PLANTED new', country = 'is' where id = 2")
    leaf.root.execute("delete from people where id = 3")
    leaf.catch_up()
    assert list(leaks(leaf.leaf)) == []
    leaf.leaf.execute("alter table people drop constraint c")
    with Session(leaf.settings) as session:
        ops.replay(session, ops.Choice(), spark=object())  # type: ignore[arg-type]
    assert present(leaf.leaf) == expected(leaf.root)


def test_what_cannot_be_read_stops_without_a_word_of_it(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, caplog: pytest.LogCaptureFixture
) -> None:
    use_handlers(RULES)
    caplog.set_level("DEBUG")
    leaf = quick_leaf(on_error="quarantine-row")
    leaf.pair.table("public.people", DDL, dest_ddl=MASKED)
    set_handler(leaf.leaf, "public.people", "obfuscate")
    for ev_type, data in (
        ('{"op":"INSERT","pkey":["id"]}', '{"id":1,"mail":"planted'),
        ('{"op":"INSERT","pkey":["id"]}', '{"id":1,"mail":"planted","new":"planted"}'),
        ("I", "(id, mail) values (1, 'planted')"),
        ("D:id", "mail=planted"),
    ):
        leaf.root.execute(
            "select pgq.insert_event(%s, %s, %s, 'public.people', null, null, null)",
            [QUEUE, ev_type, data],
        )
        leaf.pair.tick()
        with pytest.raises(StateError, match=r"people|new"):
            while leaf.worker.work():
                pass
        leaf.root.execute("delete from pgq.event_template where ev_extra1 = 'public.people'")
    assert list(leaks(leaf.leaf)) == []
    assert not [word for word in PLANTED if word in caplog.text]


OPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "key", "delete", "truncate", "tick"]),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.hypothesis
def test_histories_are_masked_row_by_row(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_handlers(RULES | FOLK_RULES)
    leaf = quick_leaf()
    leaf.pair.table("public.people", DDL, dest_ddl=MASKED)
    leaf.pair.table("public.folk", FOLK)
    for name in ("people", "folk"):
        set_handler(leaf.leaf, f"public.{name}", "obfuscate")
    texts = {
        "update": "update {1} set name = name || 'u', born = born + 1 where id = {0}",
        "key": "update {1} set id = id + 10 where id = {0} "
        "and not exists (select 1 from {1} o where o.id = {0} + 10)",
        "delete": "delete from {1} where id = {0}",
        "truncate": "truncate {1}",
    }
    monkeypatch.setattr(rows, "WORTH_RUNS", 1)

    @settings(
        max_examples=examples(8), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    @given(OPS, st.sampled_from([1, 2, 32]))
    def histories(steps: list[tuple[str, int]], least: int) -> None:
        leaf.runner.applier.least_run = least  # type: ignore[attr-defined]
        for op, key in steps:
            if op == "tick":
                leaf.catch_up()
            elif op == "insert":
                if not leaf.root.query(
                    "select 1 from people where id in (%s, %s)", [key, key + 10]
                ):
                    insert(leaf.root, key)
                    leaf.root.execute(
                        "insert into folk values (%s, %s, '2001-02-03', '2001-02-03 04:05', '')",
                        [key, None if key == 3 else f"name {key}"],
                    )
            else:
                for name in ("people", "folk"):
                    leaf.root.execute(texts[op].format(key, name))
        leaf.catch_up()
        assert present(leaf.leaf) == expected(leaf.root)
        assert folk_as_expected(leaf.root, leaf.leaf)

    leaf.catch_up()
    histories()


def test_add_table_asks_before_anything_runs(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers
) -> None:
    leaf = quick_leaf()
    leaf.root.execute(DDL)
    leaf.leaf.execute(MASKED)
    leaf.root.execute("select londiste.local_add_table(%s, 'public.people')", [QUEUE])
    rules = RULES["public.people"]
    for change, message in (
        ({"mail": "mask"}, '"mail" is part of a unique key here, and rule "mask"'),
        ({"doc": "hash"}, 'rule "hash" of column "doc" does not work on type "jsonb"'),
        ({"private": None}, 'no rule for column "private"'),
        ({"id": "skip"}, "unique key"),
    ):
        use_handlers({"public.people": {k: v for k, v in {**rules, **change}.items() if v}})
        with (
            Session(leaf.settings) as session,
            pytest.raises(StateError, match=message),
        ):
            add_table(session, AddTable(tables=["people"], handler="obfuscate"))
    use_handlers(RULES)
    with Session(leaf.settings) as session:
        with pytest.raises(UsageError, match='looks at column "name", which handler'):
            wanted = AddTable(tables=["people"], handler="obfuscate", copy_condition="name > 'a'")
            add_table(session, wanted)
        wanted = AddTable(tables=["people"], handler="obfuscate", copy_condition="country = 'is'")
        add_table(session, wanted)


def test_other_rules_stop_until_the_table_is_copied_anew(
    quick_lab: Lab, use_handlers: UseHandlers
) -> None:
    """With another key a delete would not find its row, and an update neither."""
    use_handlers(RULES)
    lab = quick_lab
    lab.root.execute(DDL)
    lab.leaf.execute(MASKED)
    insert(lab.root, 1, 2, 3)
    lab.root.execute("select londiste.local_add_table(%s, 'public.people')", [QUEUE])
    with lab.session() as session:
        add_table(session, AddTable(tables=["people"], handler="obfuscate"))
        lab.start()
        lab.wait_ok()
        lab.settle()
        before = present(lab.leaf)
        use_handlers({"public.people": {**RULES["public.people"], "name": "constant:x"}})
        (table,) = _tables(session)
        with pytest.raises(StateError, match="its rules are not what its rows were made with"):
            table.mapping  # noqa: B018
        lab.root.execute("delete from people where id = 1")
        lab.wait_until(lambda: "its rules" in str(read_node(lab.leaf, QUEUE, "leaf").errors))
        assert present(lab.leaf) == before
        resync(session, ["people"])
        lab.wait_ok()
        lab.settle()
    assert {row[0] for row in lab.leaf.query("select name from people")} == {"x"}
    assert lab.leaf.value("select count(*) from people") == 2


def seen_by_sql(db: Database) -> list[str]:
    """What a statement finds of planted values."""
    return [
        f"{name}: {row}"
        for (name,) in db.query(TABLES)
        for (row,) in db.query(f"select t::text from {name} t")
        if any(word in row for word in PLANTED)
    ]


def test_events_of_a_table_that_is_gone_are_masked_too(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers
) -> None:
    use_handlers(RULES)
    leaf = quick_leaf(on_error="quarantine-table")
    leaf.pair.table("public.people", DDL, dest_ddl=MASKED)
    set_handler(leaf.leaf, "public.people", "obfuscate")
    leaf.leaf.execute("alter table people rename to away")
    insert(leaf.root, 1, 2)
    leaf.root.execute("delete from people where id = 2")
    leaf.catch_up()
    assert leaf.leaf.value("select count(*) from vedur.quarantine") == 3
    assert list(leaks(leaf.leaf)) == []
    leaf.leaf.execute("alter table away rename to people")
    with Session(leaf.settings) as session:
        ops.replay(session, ops.Choice(), spark=object())  # type: ignore[arg-type]
    assert present(leaf.leaf) == expected(leaf.root)


def test_a_column_with_another_name_does_not_come_in_the_clear(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers
) -> None:
    use_handlers({"public.t": {"mail": "hash", "*": "keep"}})
    leaf = quick_leaf()
    ddl = "create table t (id int primary key, mail text, size int)"
    leaf.pair.table("public.t", ddl)
    set_handler(leaf.leaf, "public.t", "obfuscate")
    leaf.root.execute("insert into t values (1, 'planted', 1); delete from t where id = 1")
    leaf.root.execute("insert into t values (2, 'planted', 1)")
    leaf.catch_up()
    for db in (leaf.root, leaf.leaf):
        db.execute("alter table t rename mail to email")
    leaf.root.execute("insert into t values (3, 'planted', 1)")
    leaf.pair.tick()
    with pytest.raises(StateError, match='a rule for column "mail", and there is no such column'):
        while leaf.worker.work():
            pass
    assert list(leaks(leaf.leaf)) == []


def test_a_table_that_was_in_the_clear(quick_lab: Lab, use_handlers: UseHandlers) -> None:
    """Nothing that was kept of its rows can be read afterwards."""
    use_handlers(RULES)
    lab = quick_lab
    lab.root.execute(DDL)
    lab.leaf.execute(MASKED.replace("bigint", "text").replace("uuid", "text"))
    insert(lab.root, 1, 2, 3)
    lab.add("public.people")
    lab.start()
    lab.wait_ok()
    with lab.session() as session:
        change_table(session, ["people"], "quarantine-row")
        lab.leaf.execute("alter table people add constraint c check (country <> 'no') not valid")
        insert(lab.root, 4)
        lab.root.execute("update people set country = 'no' where id = 2")
        lab.wait_until(lambda: bool(lab.leaf.value("select count(*) from vedur.quarantine")))
        lab.leaf.execute(
            "insert into vedur.repair_log (queue_name, table_name, dest_table, tick_id, action,"
            " row_key, old_row) values (%s, 'public.people', 'public.people', 1, 'delete',"
            " 'planted', '{\"a\": \"planted\"}')",
            [QUEUE],
        )
        assert {line.partition(":")[0] for line in seen_by_sql(lab.leaf)} >= {
            "public.people", "vedur.quarantine", "vedur.repair_log"
        }  # fmt: skip
        lab.root.execute("update people set country = 'is'")
        change_handler(session, ChangeHandler(table="people", handler="obfuscate", resync=True))
        lab.wait_ok()
        for number in (5, 6, 7, 8):  # both sets of staging tables have been used again
            insert(lab.root, number)
            lab.settle()
        assert present(lab.leaf) == expected(lab.root)
    lab.stop()
    assert seen_by_sql(lab.leaf) == []


def test_a_batch_that_is_being_applied_leaves_nothing_in_the_clear(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers, request: pytest.FixtureRequest
) -> None:
    """What it puts into quarantine while the handler is changed is forgotten, too."""
    use_handlers(RULES)
    leaf = quick_leaf()
    plain = MASKED.replace("bigint", "text").replace("uuid", "text")
    leaf.pair.table("public.people", DDL, dest_ddl=plain)
    leaf.leaf.execute("alter table people add constraint c check (country <> 'no') not valid")
    with Session(leaf.settings) as session:
        change_table(session, ["people"], "quarantine-row")
    insert(leaf.root, 1, 2)
    leaf.catch_up()
    leaf.root.execute("update people set country = 'no' where id = 2")
    changes: list[threading.Thread] = []

    def change() -> None:
        with Session(leaf.settings) as session:
            options = ChangeHandler(table="people", handler="obfuscate", resync=True)
            change_handler(session, options)

    def written(point: str) -> None:
        if point == "quarantine.written" and not changes:
            changes.append(threading.Thread(target=change))
            changes[0].start()
            waits = "select count(*) from pg_locks where not granted and locktype = 'advisory'"
            with connect(leaf.leaf.connstr, autocommit=True) as db:
                assert until(lambda: not changes[0].is_alive() or db.value(waits), 60.0)

    failpoint.set_hook(written)
    request.addfinalizer(lambda: failpoint.set_hook(None))
    leaf.catch_up()
    changes[0].join(60.0)
    assert not changes[0].is_alive()
    kept = leaf.leaf.query("select ev_data, row_key, outcome from vedur.quarantine_log")
    assert [tuple(row) for row in kept] == [(None, None, "obsolete")]
    assert leaf.leaf.value("select count(*) from vedur.quarantine") == 0


def test_rows_that_a_copy_would_leave_are_in_the_way(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers
) -> None:
    use_handlers(RULES)
    leaf = quick_leaf()
    leaf.pair.table("public.people", DDL, dest_ddl=MASKED)
    leaf.leaf.execute(
        "select londiste.local_set_table_attrs(%s, 'public.people', 'skip_truncate=1')", [QUEUE]
    )
    with Session(leaf.settings) as session:
        wanted = ChangeHandler(table="people", handler="obfuscate", resync=True)
        with pytest.raises(StateError, match="was added with --skip-truncate"):
            change_handler(session, wanted)
        leaf.leaf.execute(
            "select londiste.local_set_table_attrs(%s, 'public.people', %s)",
            [QUEUE, "skip_truncate=1&handler=obfuscate"],
        )
        with pytest.raises(StateError, match="was added with --skip-truncate"):
            resync(session, ["people"])


def test_a_table_of_londiste_gets_a_mark_with_a_copy(
    quick_leaf: Callable[..., Leaf], use_handlers: UseHandlers
) -> None:
    """Nobody knows by which rules its rows were made."""
    use_handlers(RULES)
    leaf = quick_leaf()
    leaf.pair.table("public.people", DDL, dest_ddl=MASKED)
    set_handler(leaf.leaf, "public.people", "obfuscate")
    with Session(leaf.settings) as session:
        with pytest.raises(UsageError, match="say so with --resync"):
            change_handler(session, ChangeHandler(table="people", handler="obfuscate"))
        resync(session, ["people"])
        (table,) = _tables(session)
        assert table.attrs["handler_mark"]
