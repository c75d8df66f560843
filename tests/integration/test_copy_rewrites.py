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

from tests.integration.copy_lab import Lab
from vedur import db as vdb
from vedur.db.pump import pump
from vedur.pipeline.copy import task
from vedur.worker.copying_steps import Step

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
}


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

        def after_a_slice(source: Any, out: str, target: Any, into: str) -> Any:
            done = pump(source, out, target, into)
            table = into.split('"')[3] if '"' in into else into.split()[1].split(".")[-1]
            meanwhile.do(table)
            return done

        monkeypatch.setattr(task, "pump", after_a_slice)
    lab.start(meanwhile.at(steps.get(when, Step.FOREIGN_KEYS)))
    lab.wait_ok()
    lab.settle()
    assert not meanwhile.left
    for name in REWRITES:
        lab.same(f"(select id, a, b from {name}) s", f"(select id, a, b from {name})")
    assert lab.debris() == []
    lines = [r.getMessage() for r in caplog.records if "its copy begins anew" in r.getMessage()]
    assert lines, caplog.text
