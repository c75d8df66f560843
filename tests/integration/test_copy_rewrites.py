"""A table that the provider rewrites while it waits for its first copy or is in it is copied anew.

A rewrite leaves an older snapshot without rows, or moves rows to pages that were read already, and
no event tells of it. The tasks run in this process: Spark only carries them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.labs.first_copy import Lab
from vedur import db as vdb
from vedur.db.copy import pump
from vedur.errors import VedurError
from vedur.pipeline.copy import load
from vedur.pipeline.copy.load import LoadTask
from vedur.pipeline.copy.shape import changed
from vedur.worker.first_copy.context import Step

pytestmark = [pytest.mark.timeout(400)]

PLAIN = (
    "create table {t} (id int primary key, a text, b text);"
    "alter table {t} alter a set storage plain"
)
FILL = "insert into {t} select g, 'a' || g, repeat('b', 1900) from generate_series(1, 300) g"
TREE = (
    "create table {t} (id int primary key, a text, b text) partition by range (id);"
    "create table {t}_1 partition of {t} for values from (0) to (200);"
    "create table {t}_2 partition of {t} for values from (200) to (400)"
)
MORE = (
    "create table {t}_3 (like {t});"
    "insert into {t}_3 select g, 'c', 'c' from generate_series(400, 450) g;"
    "alter table {t} attach partition {t}_3 for values from (400) to (500)"
)
REATTACH = (
    "begin; alter table {t} detach partition {t}_2; update {t}_2 set b = 'out';"
    " insert into {t}_2 values (399, 'out', 'out');"
    " alter table {t} attach partition {t}_2 for values from (200) to (400); commit"
)
SWAP = (
    "create table {t}_new (like {t} including all); insert into {t}_new select * from {t};"
    "alter table {t} rename to {t}_old; alter table {t}_new rename to {t}"
)
#: name -> (how the table is made, what happens to it during its copy)
REWRITES: dict[str, tuple[str, str]] = {
    "alter": (PLAIN, "alter table {t} alter column a type varchar(90) using a || ''"),
    "vacuum": (PLAIN, "vacuum full {t}"),
    "cluster": (PLAIN, "cluster {t} using {t}_pkey"),
    "volatile": (PLAIN, "alter table {t} add c float default random()"),
    "unlogged": (PLAIN, "alter table {t} set unlogged"),
    "swapped": (PLAIN, SWAP),
    "columns": (
        PLAIN,
        "begin; alter table {t} rename a to c; alter table {t} rename b to a;"
        " alter table {t} rename c to b; commit",
    ),
    "truncated": (PLAIN, "truncate {t}; " + FILL.replace("300", "10")),
    "leaf": (TREE, "vacuum full {t}_2"),
    "leaf_truncated": (TREE, "truncate {t}_2"),
    "detached": (TREE, "alter table {t} detach partition {t}_2"),
    "dropped": (TREE, "drop table {t}_2"),
    "attached": (TREE, MORE),
    "reattached": (TREE, REATTACH),
}


#: Tables on which sessions of a copy have locks.
#: Of the session that keeps the snapshot; tasks, whose names are longer, lock what they read.
HELD = """
select l.relation::regclass::text as name
from pg_locks l
join pg_stat_activity a on a.pid = l.pid and a.application_name = 'vedur copy'
    and a.state = 'idle in transaction'
join pg_class c on c.oid = l.relation and c.relnamespace = 'public'::regnamespace
where l.database = (select oid from pg_database where datname = current_database())
"""


class Meanwhile:
    """Does something to tables of the root, once each."""

    def __init__(self, lab: Lab, statements: dict[str, str]) -> None:
        self.lab = lab
        self.left = dict(statements)
        self.loads: Counter[str] = Counter()

    def do(self, table: str) -> None:
        name = table.removeprefix("public.")
        text = self.left.pop(name, "")
        with vdb.connect(self.lab.root.connstr, autocommit=True) as db:
            for statement in filter(None, text.format(t=name).split("; ")):
                db.execute(statement)

    def at(self, step: Step) -> Callable[[str, Step], None]:
        def hook(table: str, now: Step) -> None:
            self.loads[table] += now is Step.LOAD
            if now is step:
                self.do(table)

        return hook


@pytest.fixture
def lab(quick_lab: Lab) -> Iterator[Lab]:
    quick_lab.slice_bytes = 64 << 10
    quick_lab.parallel_copies = 2
    yield quick_lab


def make(lab: Lab, makers: dict[str, str]) -> None:
    for name, ddl in makers.items():
        for statement in ddl.format(t=name).split(";"):
            lab.root.execute(statement)
            lab.leaf.execute(statement)
        if "partition by" in ddl:  # where rows of any partition find a place
            lab.leaf.execute(f"create table {name}_more partition of {name} default")
        lab.root.execute(FILL.format(t=name))
        # free space between rows: a rewrite moves rows to other pages
        lab.root.execute(f"delete from {name} where id % 3 = 0")
    lab.add(*(f"public.{name}" for name in makers))


@pytest.mark.draw(1)
@pytest.mark.parametrize("when", ["load", "slices", "wait"])
def test_no_rewrite_loses_rows(
    lab: Lab, when: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vedur")
    make(lab, {name: ddl for name, (ddl, _) in REWRITES.items()})
    meanwhile = Meanwhile(lab, {name: text for name, (_, text) in REWRITES.items()})
    steps = {"load": Step.LOAD, "slices": Step.IN_COPY, "wait": Step.IN_COPY}
    if when == "slices":
        steps.pop("slices")

        def after_a_slice(source: Any, out: str, target: Any, into: str, **named: Any) -> Any:
            done = pump(source, out, target, into, **named)
            table = into.split('"')[3] if '"' in into else into.split()[1].split(".")[-1]
            meanwhile.do(table)
            return done

        monkeypatch.setattr(load, "pump", after_a_slice)
    lab.start(meanwhile.at(steps.get(when, Step.FOREIGN_KEYS)))
    lab.wait_ok()
    lab.settle()
    assert not meanwhile.left
    for name in REWRITES:
        lab.same(f"(select id, a, b from {name}) s", f"(select id, a, b from {name})")
    assert lab.debris() == []
    lines = [r.getMessage() for r in caplog.records if "its copy begins anew" in r.getMessage()]
    assert lines, caplog.text


def test_a_slice_that_fails_keeps_no_transaction_open(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps the error must not keep the session: a takeover would wait for it."""
    make(lab, {"t": PLAIN})
    opened: list[vdb.Database] = []
    kept: list[VedurError] = []
    open_source, check = LoadTask.open_source, LoadTask._require_same_file

    def opening(self: LoadTask) -> vdb.Database:
        opened.append(open_source(self))
        return opened[-1]

    def failing(self: LoadTask, source: vdb.Database, piece: Any) -> None:
        check(self, source, piece)
        if not kept:
            kept.append(changed(self.table.table))
            raise kept[0]

    monkeypatch.setattr(LoadTask, "open_source", opening)
    monkeypatch.setattr(LoadTask, "_require_same_file", failing)
    lab.start(lambda table, step: None)
    lab.wait_ok()
    lab.settle()
    assert kept and opened
    assert all(source.closed for source in opened)


def test_a_rewrite_of_a_table_whose_rows_are_kept(lab: Lab) -> None:
    """One slice, one transaction: nobody looks again after its commit, so its task does."""
    make(lab, {})
    for db in (lab.root, lab.leaf):
        db.execute("create table kept (id int primary key, a text, b text)")
    lab.root.execute(FILL.format(t="kept"))
    lab.leaf.execute("insert into kept values (1000, 'old', 'old')")
    meanwhile = Meanwhile(lab, {"kept": "alter table {t} alter a type varchar(90) using a || ''"})
    lab.add("public.kept", args=("skip_truncate",))
    lab.start(meanwhile.at(Step.LOAD))
    lab.wait_ok()
    lab.settle()
    lab.same("kept", "(select * from kept where id <> 1000)")
    assert lab.leaf.value("select count(*) from kept") == 301
    assert meanwhile.loads["public.kept"] == 2


def test_partitions_that_come_every_hour_do_not_begin_a_copy_anew(lab: Lab) -> None:
    make(lab, {"tree": TREE})
    text = (
        "create table {t}_3 partition of {t} for values from (400) to (500); "
        "insert into {t} values (401, 'c', 'c'); "
        "create table {t}_4 (like {t}); "
        "alter table {t} attach partition {t}_4 for values from (500) to (600)"
    )
    meanwhile = Meanwhile(lab, {"tree": text})
    lab.start(meanwhile.at(Step.LOAD))
    lab.wait_ok()
    lab.settle()
    lab.same("tree")
    assert not meanwhile.left
    assert meanwhile.loads["public.tree"] == 1


def test_a_partition_that_is_made_filled_and_attached_at_once_is_noticed(lab: Lab) -> None:
    make(lab, {"tree": TREE})
    meanwhile = Meanwhile(lab, {"tree": f"begin; {MORE.replace(';', '; ')}; commit"})
    lab.start(meanwhile.at(Step.LOAD))
    lab.wait_ok()
    lab.settle()
    lab.same("tree")
    assert lab.leaf.value("select count(*) from tree where id >= 400") == 51


def test_ddl_does_not_wait_for_a_copy(lab: Lab) -> None:
    """The session that keeps the snapshot keeps no table."""
    make(lab, {"t": PLAIN, "tree": TREE})
    held: list[str] = []

    def look(_table: str, step: Step) -> None:
        if step is Step.LOAD:
            with vdb.connect(lab.root.connstr, autocommit=True) as db:
                held.extend(row.name for row in db.query(HELD))

    lab.start(look)
    lab.wait_ok()
    assert held == []
    lab.same("tree")


def end_holder(lab: Lab) -> None:
    """End the session that keeps the snapshot."""
    with vdb.connect(lab.root.connstr, autocommit=True) as db:
        assert db.value(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where application_name = 'vedur copy' and state = 'idle in transaction'"
        )


@pytest.mark.parametrize("args", [(), ("skip_truncate",)], ids=["emptied", "kept"])
def test_a_load_whose_snapshot_was_not_kept_to_its_end_does_not_count(
    lab: Lab, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has the snapshot reads on, but VACUUM may have taken rows from it."""
    for db in (lab.root, lab.leaf):
        db.execute("create table t (id int primary key, a text, b text)")
    lab.root.execute(FILL.format(t="t"))
    lab.slice_bytes = 64 << 20
    lab.add("public.t", args=args)
    ended: list[str] = []

    def after_a_slice(source: Any, out: str, target: Any, into: str, **named: Any) -> Any:
        done = pump(source, out, target, into, **named)
        if not ended:
            ended.append(into)
            end_holder(lab)
        return done

    monkeypatch.setattr(load, "pump", after_a_slice)
    meanwhile = Meanwhile(lab, {})
    lab.start(meanwhile.at(Step.LOAD))
    lab.wait_ok()
    lab.settle()
    lab.same("t")
    assert ended
    assert meanwhile.loads["public.t"] == 2
    assert lab.debris() == []
