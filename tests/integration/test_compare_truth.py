"""compare and repair say the truth: odd names, other types here, columns and tables that lack."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vedur.sql
from tests.integration.copy_lab import Lab
from tests.oracle.pair import QUEUE, call
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.names import quote_ident
from vedur.ops import quarantine_replay
from vedur.ops.change_filter import ChangeFilter, change_filter
from vedur.ops.compare import CompareOptions, CompareResult, Status, compare
from vedur.ops.quarantine import Choice
from vedur.ops.repair import RepairOptions, repair
from vedur.ops.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[Lab]:
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
       "ev_first", "%s", "%", 'quo"te', "{x}", "it's", "x" * 63, "ツ" * 21, "\\", "vedur.row"}  # fmt: skip
SYSTEM_COLUMNS = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}
#: Tables that are called as aliases are, with the key of each.
NAMED = {"t": "t", "g": "k", "d": "c", "s": "x", "r": "g"}


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
        flags = ["tgflags=AIUDQ"] if table in ("d", "s") else []
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
        for n in names:
            if n != key:
                lab.root.raw.execute(
                    f"update {table} set {quote_ident(n)} = 'new' where {quote_ident(key)} = '7'"
                )
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
    assert found.exit_code == 5
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
        for table, key in (("t", "t"), ("g", "k")):
            wish = ChangeFilter(table=table, where=f"{key} like '1%' and x <> ''", max_wait=300)
            assert change_filter(one, wish, lab.spark) is not None
        wish = ChangeFilter(table="t", all_rows=True, max_wait=300)
        assert change_filter(one, wish, lab.spark) is not None
    assert compared(lab).exit_code == 0
    assert lab.leaf.value("select count(*) from g") < 15
    lab.same("t")
