"""Which tables are replayed row by row is in the log, with the reason, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.errors import DatabaseError

__all__ = ["quick_leaf"]

SAID = "public.t: its events are replayed row by row: "


@pytest.fixture
def leaf(quick_leaf: Callable[..., Leaf], caplog: pytest.LogCaptureFixture) -> Leaf:
    caplog.set_level("INFO", "vedur")
    return quick_leaf()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m.removeprefix(SAID) for m in caplog.messages if m.startswith(SAID)]


def test_a_table_that_goes_as_a_whole_is_not_named(
    leaf: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    leaf.pair.table("public.t", "create table t (id int primary key, n int unique)")
    leaf.root.execute("insert into t values (1, 1)")
    leaf.catch_up()
    assert said(caplog) == []


def test_fragments_of_sql_are_named_once(leaf: Leaf, caplog: pytest.LogCaptureFixture) -> None:
    leaf.pair.table("public.t", "create table t (id int primary key, n int)", flags="AIUDQ")
    for n in range(3):
        leaf.root.execute("insert into t values (%s, 1)", [n])
        leaf.catch_up()
    why = "its events are fragments of SQL, or have no key that the table here enforces"
    assert said(caplog) == [why]


def test_a_refusal_is_named_once_and_without_values(
    quick_leaf: Callable[..., Leaf], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vedur")
    leaf = quick_leaf(on_error="quarantine-row")
    leaf.pair.table("public.t", "create table t (id int primary key, n text)")
    leaf.leaf.execute("alter table t add check (n <> 'secret')")
    for n in range(3):
        leaf.root.execute("insert into t values (%s, 'secret')", [n])
        leaf.catch_up()
    assert said(caplog) == [
        "the server refused its changes as a whole (SQLSTATE 23514)",
        "events of it are in quarantine, are to be skipped, or have just been refused",
    ]


def test_what_cannot_be_merged_is_named(leaf: Leaf, caplog: pytest.LogCaptureFixture) -> None:
    leaf.pair.table("public.t", "create table t (id int primary key, n int)")
    leaf.leaf.execute("set session_replication_role = replica; insert into t values (1, 1)")
    leaf.root.execute("insert into t values (1, 1)")
    leaf.root.execute("delete from t")
    with pytest.raises(DatabaseError, match="duplicate key"):
        leaf.catch_up()
    assert said(caplog)[:1] == ["a row that the batch inserts and deletes is there already"]


def test_what_was_learnt_of_a_table_is_named_once(
    leaf: Leaf, caplog: pytest.LogCaptureFixture
) -> None:
    leaf.pair.table("public.t", "create table t (id int primary key, n int)")
    leaf.root.execute("insert into t values (1, 1)")
    leaf.root.value(
        "select pgq.insert_event(%s, 'I', '(id,n) values (2,2)', 'public.t', '', '', '')", [QUEUE]
    )
    leaf.catch_up()
    leaf.root.execute("insert into t values (3, 3)")
    leaf.catch_up()
    assert leaf.leaf.query("select id from t order by 1") == [(1,), (2,), (3,)]
    learnt = (
        "some of its events have no net change; so are those of the next batches, of at most 64"
    )
    assert said(caplog) == [learnt]
