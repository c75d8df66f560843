"""compare and repair say the truth: odd names, other types here, columns and tables that lack."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vedur.sql
from tests.labs.compare import Lab as CompareLab
from tests.labs.compare import make_lab  # noqa: F401
from tests.labs.first_copy import Lab
from tests.labs.in_process import run_here
from tests.labs.pair import QUEUE, call
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.errors import StateError
from vedur.names import quote_ident
from vedur.ops.change_filter import ChangeFilter, change_filter
from vedur.ops.compare import CompareOptions, CompareResult, Status, compare
from vedur.ops.quarantine import replay as quarantine_replay
from vedur.ops.quarantine.entries import Choice
from vedur.ops.repair import RepairOptions, repair
from vedur.ops.resync import resync
from vedur.ops.session import Session
from vedur.pipeline.replay import stage as replay

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def lab(
    oldest: Any,
    newest: Any,
    make_db_on: Callable[..., vdb.Database],
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lab]:
    """Hundreds of batches are replayed in this process; the rest goes through Spark."""
    monkeypatch.setattr(replay, "run_tasks", run_here)
    made = Lab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    yield made
    made.close()


def session(lab: Lab) -> Session:
    return Session(LondisteSettings(db=lab.leaf.connstr, queue_name=QUEUE, job_name="leaf"))


def compared(lab: Lab, *tables: str, **options: Any) -> CompareResult:
    with session(lab) as one:
        return compare(one, CompareOptions(tables=tables, max_wait=300, **options), lab.spark)


def repaired(lab: Lab, *tables: str) -> tuple[int, int, int]:
    with session(lab) as one:
        options = RepairOptions(tables=tables, apply=True, max_wait=300)
        (done,) = repair(one, options, lab.spark)
    return done.inserts, done.updates, done.deletes


def plant(lab: Lab, statement: str) -> None:
    with lab.leaf.transaction():
        lab.leaf.execute("set local session_replication_role = replica")
        lab.leaf.raw.execute(statement)


def both(lab: Lab, ddl: str) -> None:
    for db in (lab.root, lab.leaf):
        db.raw.execute(ddl)


def aliases() -> set[str]:
    """Every name that a statement of ours gives to a table or a column, and some more words."""
    found = set()
    for path in (Path(vedur.sql.__file__).parent / "queries").glob("*.sql"):
        for pattern in (
            r"\bas\s+([a-z]\w*)",
            r"\}\s+([a-z]\w*)",
            r"\b(?:from|join|using)\s+[\w.]+\s+(\w+)",
        ):
            found |= set(re.findall(pattern, path.read_text()))
    return found


#: Names that nobody's SQL should stumble over.
ODD = {"oid", "old", "new", "excluded", "c0", "c1", "k1", "n0", "slice", "kind", "shape",
       "ev_first", "%s", "%", 'quo"te', "{x}", "it's", "x" * 63, "ツ" * 21, "\\",
       "vedur.row"}  # fmt: skip
SYSTEM_COLUMNS = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}
#: Tables that are called as aliases are, with the key of each.
NAMED = {"t": "t", "d": "c", "r": "g"}


@pytest.mark.draw("compare")
def test_names_that_our_statements_use(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Copy, replay in both ways, quarantine, compare, repair and change-filter of tables whose
    columns, and which themselves, are called as anything in our statements is."""
    known = aliases()
    assert {"t", "g", "c", "x", "r", "s", "d", "k", "key", "rows"} <= known
    names = sorted((known | ODD) - SYSTEM_COLUMNS)
    listed = ", ".join(f"{quote_ident(n)} text" for n in names)
    fill = {}
    for table, key in NAMED.items():
        both(lab, f"create table {table} ({listed}, primary key ({quote_ident(key)}))")
        values = ", ".join(f"'{at} ' || i" if n != key else "i::text" for at, n in enumerate(names))
        fill[table] = f"insert into {table} select {values} from generate_series({{}}, {{}}) i"
        lab.root.raw.execute(fill[table].format(1, 40))
        # fragments of SQL are always applied event by event
        flags = ["tgflags=AIUDQ"] if table == "d" else []
        call(lab.root, "londiste.local_add_table", QUEUE, f"public.{table}", flags)
        call(lab.leaf, "londiste.global_add_table", QUEUE, f"public.{table}")
        # the part that d holds has almost all rows; its own name stands in the condition
        part = "&copy_condition=d.x+is+not+null+and+c%3c%3e%2799%27" if table == "d" else ""
        lab.add_leaf(f"public.{table}", attrs=f"on_error=quarantine-row{part}")
    lab.start()
    lab.wait_ok()
    # a row in the way of an insert waits in quarantine
    plant(lab, "insert into r (g, t) values ('45', 'in the way')")
    for table, key in NAMED.items():
        lab.root.raw.execute(fill[table].format(41, 50))
        for nr in range(6):  # events that bring some of the columns
            some = ", ".join(f"{quote_ident(n)} = 'new'" for n in names[nr::6] if n != key)
            lab.root.raw.execute(f"update {table} set {some} where {quote_ident(key)} = '7'")
        lab.root.raw.execute(f"delete from {table} where {quote_ident(key)} in ('8', '50')")
        lab.root.raw.execute(
            f"update {table} set {quote_ident(key)} = '77' where {quote_ident(key)} = '6'"
        )
    lab.settle()
    assert lab.leaf.value("select count(*) from vedur.quarantine") == 1
    found = compared(lab, rows=True)
    assert (found.bad, found.named(Status.DIFFERENT)) == (1, ["public.r"])
    with session(lab) as one:
        (done,) = quarantine_replay.replay(one, Choice(), replace=True, spark=lab.spark)
    assert (done.applied, done.stayed) == (1, 0)
    assert compared(lab).exit_code == 0
    for table, key in NAMED.items():
        lab.same(table)
        k = quote_ident(key)
        plant(lab, f"delete from {table} where {k} = '1'")
        plant(lab, f"update {table} set rows = 'wrong' where {k} in ('2', '3')")
        plant(lab, f"update {table} set {k} = 'odd' where {k} = '4'")
    found = compared(lab, rows=True)
    assert found.exit_code == 3
    caplog.set_level(logging.INFO)
    for table, key in NAMED.items():
        assert repaired(lab, table) == (2, 2, 1), table
        logged = lab.leaf.query(
            "select old_row, new_row from vedur.repair_log where table_name = %s and action = %s",
            [f"public.{table}", "update"],
        )
        assert {row.old_row["rows"] for row in logged} == {"wrong"}
        assert all(list(row.new_row) == names for row in logged)
        assert {row.new_row[key] for row in logged} == {"2", "3"}
    assert "public.t: update t=2 columns: rows" in caplog.text
    assert compared(lab).exit_code == 0
    with session(lab) as one:
        part = "t.t like '1%' and x <> ''"
        wish = ChangeFilter(table="t", where=part, max_wait=300)
        assert change_filter(one, wish, lab.spark) is not None
        lab.same("t", where=part)
        wish = ChangeFilter(table="t", all_rows=True, max_wait=300)
        assert change_filter(one, wish, lab.spark) is not None
    lab.same("t")


@pytest.mark.draw("compare")
def test_what_is_not_proven_is_said(
    make_lab: Callable[..., CompareLab],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = make_lab()
    ddl = "create table {} (id int primary key, v text)"
    more = "create table {} (id int primary key, v text, mine int, {} int)"
    same = ("equal", "other", "gone", "busy")
    for name in same:
        lab.pair.table(f"public.{name}", ddl.format(name))
    lab.pair.table(
        "public.city", more.format("city", "district"), dest_ddl=more.format("city", "extra")
    )
    lab.pair.table("public.few", more.format("few", "x"), dest_ddl=ddl.format("few"))
    lab.attrs("public.few", "columns=id%2cv")
    number = "create table number (id int primary key, v int)"
    lab.pair.table("public.number", ddl.format("number"), dest_ddl=number)
    price = "create table price (id int primary key, v numeric{})"
    lab.pair.table("public.price", price.format(""), dest_ddl=price.format("(10,2)"))
    lab.leaf.execute(ddl.format("together"))
    for name in "abc":
        lab.pair.table(f"public.{name}", ddl.format(name))
    lab.attrs("public.b", "copy_condition=id%3c100")
    # sets of earlier times may have it, whatever the commands accept now
    lab.leaf.execute(
        "update londiste.table_info set dest_table = 'public.together'"
        " where table_name in ('public.a', 'public.b')"
    )
    # by another way the rows of one more table come to c
    lab.leaf.execute(
        "insert into londiste.table_info (queue_name, table_name, local, merge_state, dest_table)"
        " values ('q', 'public.c2', true, 'ok', 'public.c')"
    )
    for name in (*same, "few", "a", "b", "c"):
        first = 101 if name == "a" else 1
        lab.root.execute(
            f"insert into {name} (id, v) select i, 'x' from generate_series({first}, {first} + 9) i"
        )
    lab.root.execute("insert into price values (1, 1.005), (2, 2.5)")
    with lab.root.transaction():  # nobody hears of it
        lab.root.execute("set local session_replication_role = replica")
        lab.root.execute("insert into number values (1, 'no number')")
        lab.root.execute("insert into city (id, v) values (1, 'x')")
    lab.plant("insert into city (id, v) values (1, 'x')")
    lab.start()
    lab.settle()
    lab.leaf.execute("drop table gone")
    state = "update londiste.table_info set merge_state = 'in-copy' where table_name = %s"
    lab.leaf.execute(state, ["public.busy"])
    lab.plant("delete from other where id = 5")
    caplog.set_level(logging.INFO)
    with lab.session() as one:
        found = compare(one, CompareOptions(max_wait=300), lab.spark)
        assert found.named(Status.DIFFERENT) == ["public.other"]
        assert found.named(Status.EQUAL) == ["public.equal", "public.few"]
        assert found.exit_code == found.bad == 1
        shared = (
            '"public.{}" has rows of other tables, too (public.{}), and "public.{}" has no '
            "condition or part column that tells its rows from theirs: "
            "which rows should be there cannot be told"
        )
        columns = "not compared, exist on one side only: district, extra"
        gone = 'table "public.gone" does not exist on the target: nothing to compare'
        reasons = {t.table: t.reason for t in found.tables if t.status is Status.NOT_PROVEN}
        assert reasons == {
            "public.gone": gone,
            "public.busy": "Table public.busy not synced yet, no point",
            "public.city": columns,
            "public.number": 'invalid input syntax for type integer: "no number"',
            "public.price": "values that the type here cannot hold: "
            "v (numeric there, numeric(10,2) here): 1 row(s)",
            "public.a": shared.format("together", "b", "a"),
            "public.b": '"public.together" has rows of other tables, too (public.a), and table '
            '"public.a" of queue "q" has no condition (--where) and no part column (--part-column) '
            "that tells its rows from those of the others: which rows should be there cannot be "
            "told",
            "public.c": shared.format("c", "c2", "c"),
            "public.c2": "Table public.c2 not ready yet on provider",
        }
        said = [r.getMessage() for r in caplog.records if r.name == "vedur.ops.compare"]
        assert said.count(f"public.city: {columns}") == 1
        assert said.count(f"public.gone: not compared: {gone}") == 1
        assert said[-1] == (
            "Compared 12 tables: 2 equal, 1 different (public.other), 9 not proven equal "
            "(public.gone, public.busy, public.city, public.number, public.price, "
            "public.together, public.together, public.c, public.c)"
        )
        # repair and resync remove nobody else's rows
        for table in ("a", "b", "c"):
            with pytest.raises(StateError, match="has rows of other tables, too"):
                repair(one, RepairOptions(tables=(table,), apply=True, where="id > 0"), lab.spark)
            with pytest.raises(StateError, match="would empty"):
                resync(one, [table])
        repair(one, RepairOptions(tables=("other",), apply=True, max_wait=300), lab.spark)
        assert lab.leaf.value("select count(*) from together") == 20
        # nothing differs now, but that is no proof
        some = CompareOptions(tables=("other", "city", "gone"), max_wait=300)
        found = compare(one, some, lab.spark)
        assert (found.bad, found.exit_code) == (0, 100)
        waived = {"common_columns": True, "allow_rounding": True}
        lenient = CompareOptions(tables=("other", "city", "price"), max_wait=300, **waived)
        assert compare(one, lenient, lab.spark).exit_code == 0
        counted = CompareOptions(tables=("city", "few"), max_wait=300, count_only=True)
        assert compare(one, counted, lab.spark).exit_code == 0
    assert "Compared 2 tables: 2 with equal numbers of rows" in caplog.text
