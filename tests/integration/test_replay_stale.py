"""What was staged is believed only as long as it fits: it is looked at again in the transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.labs.in_process import quick_leaf  # noqa: F401
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, call
from vedur import db as vdb
from vedur.errors import InternalError, StaleStage
from vedur.pipeline.replay.collapse import Collapser
from vedur.pipeline.replay.staging_tables import log_name
from vedur.tables.mapping import TableSpec, TargetColumn, note_shape, shape_id
from vedur.worker.batch import BatchRun


def between(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None], name: str = "lock"
) -> list[int]:
    """Call `act(n)` before the n-th commit of batches."""
    seen: list[int] = []
    real = getattr(BatchRun, name)

    def first(self: BatchRun[Any], *args: Any) -> Any:
        seen.append(len(seen) + 1)
        act(seen[-1])
        return real(self, *args)

    monkeypatch.setattr(BatchRun, name, first)
    return seen


def empty_logs(leaf: Leaf) -> None:
    """What a crash of the server does to them."""
    for name in (log_name(QUEUE, slot) for slot in (0, 1)):
        if leaf.leaf.value("select to_regclass(%s)", [name]) is not None:
            leaf.leaf.execute(f"truncate {name}")


def test_events_staged_row_by_row_that_are_gone_are_staged_again(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As after a crash of the target, which empties the staging tables."""
    caplog.set_level("INFO", "vedur")
    leaf = quick_leaf()
    leaf.pair.table(
        "public.t", "create table t (id int primary key, v text)", flags="AIUDQ"
    )  # SQL fragments are always replayed one by one

    def empty(n: int) -> None:
        if n == 1:
            empty_logs(leaf)

    seen = between(monkeypatch, empty)
    leaf.root.execute("insert into t select i, 'x' from generate_series(1, 20) i")
    leaf.catch_up()
    assert len(leaf.same("t")) == 20
    assert len(seen) > 1
    assert [m for m in caplog.messages if "0 of 20 staged events are there" in m]


def test_a_column_that_was_altered_meanwhile_takes_values_whole(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The staging column is as narrow as the table's was: it would round."""
    caplog.set_level("INFO", "vedur")
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, n numeric(12,2))")
    leaf.root.execute("insert into t values (1, 1.25)")
    leaf.catch_up()
    for db in (leaf.leaf, leaf.root):
        db.execute("alter table t alter n type numeric(12,4)")
    leaf.root.execute("update t set n = 1.2345")
    leaf.catch_up()
    assert leaf.same("t") == ["(1,1.2345)"]
    assert [m for m in caplog.messages if "was altered since its changes were staged" in m]

    def add_column(n: int) -> None:
        if n == 1:
            leaf.leaf.execute("alter table t add c int")

    seen = between(monkeypatch, add_column)
    leaf.root.execute("insert into t values (2, 2.3456)")
    leaf.catch_up()
    assert leaf.leaf.query("select id, n from t order by id") == leaf.root.query(
        "select id, n from t order by id"
    )
    assert len(seen) > 1


@pytest.mark.parametrize("when", ["lock", "open_quarantine"])
def test_a_table_that_another_worker_has_begun_to_copy_takes_no_changes(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    when: str,
) -> None:
    """`resync` came when they were staged, and the rows of the copy are newer: also where it came
    when this was looked at already."""
    caplog.set_level("INFO", "vedur")
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v int)")
    leaf.root.execute("insert into t values (1, 1)")
    leaf.catch_up()

    def copy(n: int) -> None:
        if n == 1:
            with vdb.connect(leaf.leaf.connstr, autocommit=True) as other, other.transaction():
                other.execute("set local session_replication_role = replica")
                other.execute("update londiste.table_info set merge_state = 'in-copy'")
                other.execute("truncate t; insert into t values (1, 3)")

    between(monkeypatch, copy, when)
    leaf.root.execute("update t set v = 2")
    leaf.catch_up()
    assert leaf.leaf.query("select * from t") == [(1, 3)]
    assert [m for m in caplog.messages if "is being copied anew" in m]


def test_a_table_that_the_batch_itself_takes_out_is_no_reason_to_stage_again(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v int)")
    leaf.root.execute("insert into t values (1, 1)")
    call(leaf.root, "londiste.local_remove_table", QUEUE, "public.t")
    leaf.catch_up()
    assert leaf.leaf.query("select * from t") == [(1, 1)]
    assert leaf.leaf.value("select count(*) from londiste.table_info") == 0


def test_sets_of_columns_are_told_apart(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
) -> None:
    """These two have the same CRC; each event has one of them."""
    leaf = quick_leaf()
    ddl = "create table t (id int primary key, plumless text)"
    leaf.pair.table("public.t", ddl, dest_ddl=ddl.replace(")", ", buckeroo text)"))
    leaf.root.execute("insert into t values (1, 'a'), (2, 'b')")
    leaf.root.execute("alter table t rename plumless to buckeroo")
    leaf.root.execute("insert into t values (3, 'c')")
    leaf.catch_up()
    rows = [(1, "a", None), (2, "b", None), (3, None, "c")]
    assert leaf.leaf.query("select * from t order by id") == rows
    assert shape_id(("id", "plumless")) != shape_id(("id", "buckeroo"))
    known: dict[int, tuple[str, ...]] = {}
    note_shape(known, 7, ("id", "plumless"))
    note_shape(known, 7, ("id", "plumless"))
    with pytest.raises(InternalError, match="id, plumless and id, buckeroo"):
        note_shape(known, 7, ("id", "buckeroo"))


def test_updates_without_a_row_are_counted_once_where_a_run_is_taken_apart(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A TRUNCATE in the run has them counted at once; another table's event fails behind it."""
    leaf = quick_leaf()
    for t in ("t", "u"):  # SQL fragments are always replayed one by one
        leaf.pair.table(
            f"public.{t}", f"create table {t} (id int primary key, n int)", flags="AIUDQ"
        )
    leaf.leaf.execute("alter table u add check (n > 0)")
    leaf.leaf.execute(
        "update londiste.table_info set table_attrs = 'on_error=quarantine-row'"
        " where table_name = 'public.u'"
    )
    leaf.root.execute("insert into t values (1, 1)")
    leaf.catch_up()
    leaf.leaf.execute("set session_replication_role = replica; delete from t")
    leaf.root.execute("update t set n = 2")
    leaf.root.execute("truncate t")
    leaf.root.execute("insert into u values (1, -1)")
    leaf.catch_up()
    said = [m.split(" on ")[0] for m in caplog.messages if "changed no row" in m]
    assert said in ([], ["public.t: 1 update(s) changed no row"])


def test_an_update_that_a_trigger_refuses_is_told_with_its_ticks(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is no missing row, but the server says the same of both: no row was changed."""
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, n int)")
    leaf.leaf.execute(
        """
        create function refuse() returns trigger language plpgsql as 'begin return null; end';
        create trigger refuse before update on t for each row execute function refuse();
        alter table t enable always trigger refuse;
        """
    )
    leaf.root.execute("insert into t values (1, 1)")
    leaf.catch_up()
    leaf.root.execute("update t set n = 2")
    leaf.catch_up()
    assert leaf.leaf.query("select * from t") == [(1, 1)]
    batch = leaf.leaf.one("select * from vedur.batch_log order by batch_nr desc limit 1")
    assert (
        "public.t: 1 update(s) changed no row on this node (the row is missing, or a trigger "
        f"refused the update), ticks: after {batch.prev_tick} up to {batch.tick_id}"
    ) in caplog.messages


def test_what_is_never_right_becomes_an_error(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaf = quick_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, n int)", flags="AIUDQ")

    between(monkeypatch, lambda _: empty_logs(leaf))
    leaf.root.execute("insert into t values (1, 1)")
    with pytest.raises(StaleStage, match="0 of 1 staged events"):
        leaf.catch_up()
    monkeypatch.undo()


def test_tables_that_share_one_table_keep_their_common_order(
    quick_leaf: Callable[..., Leaf],  # noqa: F811
) -> None:
    leaf = quick_leaf()
    ddl = "create table {} (id int primary key, v text)"
    leaf.pair.table("public.a", ddl.format("a"), dest="public.d", dest_ddl=ddl.format("d"))
    leaf.root.execute(ddl.format("b"))
    call(leaf.root, "londiste.local_add_table", QUEUE, "public.b", ["expect_sync"])
    call(leaf.leaf, "londiste.global_add_table", QUEUE, "public.b")
    args = ["expect_sync", "no_triggers"]
    call(leaf.leaf, "londiste.local_add_table", QUEUE, "public.b", args, None, "public.d")
    leaf.root.execute("insert into a select i, 'a' from generate_series(1, 5) i")
    leaf.catch_up()
    # rows move from one to the other and back, in one batch
    leaf.root.execute("delete from a where id = 1; insert into b values (1, 'b')")
    leaf.root.execute("delete from a where id = 2; insert into b values (2, 'b')")
    leaf.root.execute("delete from b where id = 2; insert into a values (2, 'back')")
    leaf.catch_up()
    here = leaf.root.query("select * from a union all select * from b order by id")
    assert leaf.leaf.query("select * from d order by id") == here


def test_rows_that_grow_are_counted() -> None:
    """A key that was first small and then large counts as what it holds."""
    spec = TableSpec(
        "public.t", '"public"."t"', "stage",
        (TargetColumn("id", "integer", canonical=True), TargetColumn("v", "text")),
        unique_keys=(frozenset(("id",)),),
    )  # fmt: skip
    collapser = Collapser({"public.t": spec}, frozenset(), None)
    kind = '{{"op":"{}","table":["public","t"],"pkey":["id"]}}'
    collapser.add_row("1", "7", kind.format("INSERT"), '{"id":1,"v":""}', "public.t")
    small = collapser.size
    big = '{"id":1,"v":"' + "x" * 100_000 + '"}'
    collapser.add_row("2", "7", kind.format("UPDATE"), big, "public.t")
    assert collapser.size >= small + 100_000
