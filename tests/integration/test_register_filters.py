"""register_only_tables and register_skip_tables: each node of a cascade records tables of its own
choice, and its choice is nobody else's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.pg import TestServer
from tests.labs.chain import Chain, Node
from tests.labs.pair import QUEUE, call
from vedur.catalog.tables import get_table_list
from vedur.db import Database
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table

pytestmark = pytest.mark.usefixtures("without_spark")

NAMES = ["public.early_a", "public.early_b", "public.late_a", "public.late_b"]


def registered(node: Node) -> set[str]:
    return set(get_table_list(node.db, QUEUE).names)


def join_set(chain: Chain, *names: str) -> None:
    for name in names:
        call(chain.root, "londiste.local_add_table", QUEUE, name, ["expect_sync"])


@pytest.fixture
def chain(
    make_chain: Callable[..., Chain], newest: TestServer, make_db_on: Callable[..., Database]
) -> Chain:
    """A root, a branch `mid` that records `..._a` only, and leaves below it: `low` leaves one table
    out, `all` wants everything. Two tables join the set before the nodes, two afterwards."""
    chain = make_chain(1)
    for name in NAMES:
        chain.root.execute(f"create table {name} (id int primary key, v text)")
    join_set(chain, *NAMES[:2])
    own = {"mid": {"register_only_tables": ("public.*_a",)},
           "low": {"register_skip_tables": ("public.late_a",)}, "all": {}}  # fmt: skip
    for name, settings in own.items():
        kind, above = (NodeType.BRANCH, "n1") if name == "mid" else (NodeType.LEAF, "mid")
        db = make_db_on(newest, autocommit=True)
        chain.add(name, kind, db, provider=above, own=settings)
        for table in NAMES:
            db.execute(f"create table {table} (id int primary key, v text)")
    join_set(chain, *NAMES[2:])
    chain.catch_up()
    return chain


def test_each_node_has_filters_of_its_own(chain: Chain) -> None:
    assert registered(chain["mid"]) == {"public.early_a", "public.late_a"}
    assert registered(chain["low"]) == {"public.early_a", "public.late_b"}
    assert registered(chain["all"]) == {"public.early_a", "public.late_a", "public.late_b"}


def test_a_leaf_keeps_a_table_that_its_branch_does_not_record(chain: Chain) -> None:
    """Its events pass through the branch, and adding another table does not take it away."""
    leaf = chain["all"]
    call(leaf.db, "londiste.local_add_table", QUEUE, "public.late_b", ["expect_sync"])
    chain.root.execute("insert into late_b values (1, 'a')")
    chain.catch_up()
    chain.require_same("late_b", "all")
    with leaf.session() as session:
        add_table(session, AddTable(tables=["public.late_a"], expect_sync=True))
    assert chain.states("all") == {"public.late_a": "ok", "public.late_b": "ok"}
    chain.root.execute("insert into late_b values (2, 'b'); insert into late_a values (1, 'a')")
    chain.catch_up()
    assert len(chain.require_same("late_b", "all")) == 2
    chain.require_same("late_a", "all")
    call(chain.root, "londiste.local_remove_table", QUEUE, "public.late_b")
    chain.catch_up()
    assert chain.states("all") == {"public.late_a": "ok"}, "the set has it no more"
