"""Errors that stop a batch: one line in the log, one in `status`, tried again, nothing lost."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Iterator

import pytest

from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur.db.conninfo import with_params
from vedur.status.snapshot import read_node
from vedur.status.tree import info_lines

pytestmark = pytest.mark.spark

RIGHTS = "select, insert, update, delete, truncate"


def errors_shown(leaf: Leaf) -> list[str]:
    """The lines of `status` that tell of trouble on the leaf."""
    node = read_node(leaf.leaf, QUEUE, "leaf")
    return [line for line in info_lines(node) if line.startswith("ERR: ")]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Errors and warnings logged since the last call."""
    found = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert not any(r.exc_info for r in found), "a traceback is for -v"
    caplog.clear()
    return [r.getMessage() for r in found]


@pytest.fixture
def plain(make_leaf: Callable[..., Leaf]) -> Iterator[tuple[Leaf, str]]:
    """A leaf whose worker is no superuser on the target; its role."""
    leaf = make_leaf()
    role = "plain_" + str(leaf.leaf.value("select current_database()"))
    leaf.leaf.execute(f'create role "{role}" login')
    leaf.settings = dataclasses.replace(leaf.settings, db=with_params(leaf.leaf.connstr, user=role))
    leaf.worker.settings = leaf.settings
    yield leaf, role
    leaf.close()
    leaf.leaf.execute(f'drop owned by "{role}"; drop role "{role}"')


def test_permission_denied_on_a_table(
    plain: tuple[Leaf, str], caplog: pytest.LogCaptureFixture
) -> None:
    leaf, role = plain
    leaf.leaf.execute(f'grant londiste_writer, pgq_admin to "{role}"')
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    leaf.root.execute("insert into t values (1, 'a'), (2, 'b')")
    leaf.pair.tick()
    for _ in range(2):
        assert leaf.worker._work_safely(), "it is tried again"
        (line,) = lines(caplog)
        assert line.startswith(
            "Job leaf got error on connection 'db': permission denied for table t"
        )
        (shown,) = errors_shown(leaf)
        assert shown.startswith("ERR: ") and "permission denied for table t" in shown
    assert leaf.leaf.value("select count(*) from t") == 0
    leaf.leaf.execute(f'grant {RIGHTS} on t to "{role}"')
    leaf.catch_up()
    assert leaf.same("t") == ["(1,a)", "(2,b)"]
    assert errors_shown(leaf) == []


def test_permission_denied_for_the_schema(
    plain: tuple[Leaf, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A role without any rights: even the error cannot be stored, and the log says so."""
    leaf, role = plain
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    leaf.root.execute("insert into t values (1, 'a')")
    leaf.pair.tick()
    assert leaf.worker._work_safely()
    said = lines(caplog)
    assert said[0] == "Failure to call pgq_node.set_consumer_error()"
    assert "Job leaf got error on connection 'db': permission denied for " in said[1]
    leaf.leaf.execute(
        f'grant londiste_writer, pgq_admin to "{role}"; grant {RIGHTS} on t to "{role}"'
    )
    leaf.catch_up()
    assert leaf.same("t") == ["(1,a)"]


def test_a_table_that_is_gone_from_the_target(
    make_leaf: Callable[..., Leaf], caplog: pytest.LogCaptureFixture
) -> None:
    leaf = make_leaf()
    ddl = "create table t (id int primary key, v text)"
    leaf.pair.table("public.t", ddl)
    leaf.root.execute("insert into t values (1, 'a')")
    leaf.leaf.execute("alter table t rename to elsewhere")
    leaf.pair.tick()
    assert leaf.worker._work_safely()
    (line,) = lines(caplog)
    assert re.sub(r"\d+", "N", line) == (
        'Job leaf crashed: [ev_id=N,ev_txid=N] table "public.t": "public"."t" does not exist on '
        'the target: create it, or run "remove-table public.t"'
    )
    assert any("does not exist on the target" in shown for shown in errors_shown(leaf))
    leaf.leaf.execute("alter table elsewhere rename to t")
    leaf.catch_up()
    assert leaf.same("t") == ["(1,a)"]
    assert errors_shown(leaf) == []
