"""Any of five nodes are gone at once: the set recovers, or the command says exactly why not.

What must hold is what the model says (model/takeover.pml), looked at on the databases: one root,
every position a tick of the root's history, no event lost or doubled on a node of that history, and
what reached nobody is exactly what `resurrect` keeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

import psycopg
import pytest

from tests.fixtures.wait import until
from tests.labs.chain import Chain, Node
from tests.labs.five import HAS, KINDS, Five, five, require_same_queue
from tests.labs.in_process import without_spark
from tests.labs.moving_root import PATIENCE, Life, alive, move, provider
from tests.labs.pair import QUEUE
from vedur.catalog.lost_events import get_lost_events
from vedur.db import connect
from vedur.errors import StateError
from vedur.node.info import NodeType, get_node_info
from vedur.node.position import get_tick, read_newest_tick
from vedur.ops.change_provider import change_provider
from vedur.ops.resurrect.run import Resurrected, ResurrectOptions, resurrect

__all__ = ["five", "without_spark"]

pytestmark = [pytest.mark.usefixtures("without_spark"), pytest.mark.timeout(600)]

SUBSETS = [frozenset(dead) for size in range(1, 6) for dead in combinations(KINDS, size)]
#: One of each kind: the root with and without the survivor that has most, a branch in the middle,
#: all branches, everybody.
SHORT = [
    frozenset(text.split())
    for text in ("n1", "n1 n3", "n1 n2 n3", "n2", "n2 n3 n4", "n1 n2 n3 n4", "n1 n2 n3 n4 n5")
]


def name_of(dead: frozenset[str]) -> str:
    return "-".join(sorted(dead))


def test_there_are_31_of_them() -> None:
    assert len(set(SUBSETS)) == 31
    assert set(SHORT) <= set(SUBSETS)


# -- killing and coming back -----------------------------------------------------------------------


def allow(node: Node, allowed: bool) -> None:
    """Let nobody connect to a node, as if its server were down; or everybody again."""
    parts = psycopg.conninfo.conninfo_to_dict(node.settings.db)
    database = str(parts.pop("dbname"))
    target = psycopg.conninfo.make_conninfo(**parts, dbname="postgres")
    with connect(target, autocommit=True) as admin:
        admin.execute(f'alter database "{database}" allow_connections {allowed}')
        if not allowed:
            node.close()
            node.db.close()
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                [database],
            )
    if allowed:
        node.db = connect(node.settings.db, autocommit=True)
        node.renew()


@contextmanager
def some_gone(chain: Chain, dead: frozenset[str]) -> Iterator[list[Node]]:
    """Take the dead out of the chain; they are back in it, reachable, afterwards."""
    gone = [node for node in chain.nodes if node.name in dead]
    for node in gone:
        chain.nodes.remove(node)
        allow(node, False)
    try:
        yield gone
    finally:
        for node in gone:
            allow(node, True)
        chain.nodes += gone


# -- what must hold --------------------------------------------------------------------------------


def rows(node: Node) -> dict[int, str]:
    return {row.id: row.v for row in node.db.query("select id, v from t")}


def open_roots(chain: Chain) -> list[str]:
    text = "select vedur.is_root(%s)"
    return [node.name for node in chain.nodes if node.db.value(text, [QUEUE])]


def require_history(chain: Chain, root: Node, names: set[str], since: int) -> None:
    """Every node stands at a tick of the root, with the root's rows, and queues are the root's from
    tick `since` on."""
    for node in chain.nodes:
        if node is root or node.name not in names:
            continue
        here = get_tick(root.db, QUEUE, node.position, "")
        assert here is not None, (node.name, node.position)
        assert rows(node) == rows(root), node.name
        info = get_node_info(node.db, QUEUE)
        assert info is not None
        if info.node_type is NodeType.BRANCH:
            require_same_queue(chain, node, root, since)


def write_on(chain: Chain, life: Life, root: Node, row: int, names: set[str]) -> None:
    """Write a row on the root, and wait until it is everywhere."""
    root.db.execute("insert into t values (%s, 'new')", [row])
    followers = [node for node in chain.nodes if node.name in names and node is not root]
    assert until(lambda: all(row in rows(node) for node in followers), PATIENCE), (
        {node.name: rows(node) for node in followers},
        life.errors[-5:],
    )
    tick = read_newest_tick(root.db, QUEUE) or 0
    assert until(lambda: all(node.position >= tick for node in followers), PATIENCE)


# -- the cases -------------------------------------------------------------------------------------


def run_case(five: Five, dead: frozenset[str]) -> None:
    with five.case() as chain:
        if "n1" not in dead:
            branches_gone(chain, dead, five.ticks[1])
        elif not {"n2", "n3", "n4"} - dead:
            nobody_left(chain, dead, five.ticks[1])
        else:
            root_gone(five, chain, dead)


@pytest.mark.draw(2)
@pytest.mark.parametrize("dead", SHORT, ids=name_of)
def test_some_nodes_are_gone(five: Five, dead: frozenset[str]) -> None:
    run_case(five, dead)


@pytest.mark.long
@pytest.mark.parametrize("dead", [d for d in SUBSETS if d not in SHORT], ids=name_of)
def test_any_nodes_are_gone(five: Five, dead: frozenset[str]) -> None:
    run_case(five, dead)


def branches_gone(chain: Chain, dead: frozenset[str], since: int) -> None:
    """The root lives: whoever has lost its provider reads from the root, nothing is lost."""
    root = chain["n1"]
    with some_gone(chain, dead), alive(chain) as life:
        if "n2" in dead and "n4" not in dead:
            with chain["n4"].session() as session:
                change_provider(session, "n1", dead=dead)
        names = set(KINDS) - dead
        write_on(chain, life, root, 10, names)
        require_history(chain, root, names, since)
    with alive(chain) as life:
        write_on(chain, life, root, 11, set(KINDS))
    require_history(chain, root, set(KINDS), since)
    assert open_roots(chain) == ["n1"]


def nobody_left(chain: Chain, dead: frozenset[str], since: int) -> None:
    """Only the leaf is left, or nobody: it cannot become root, and nothing is changed."""
    with some_gone(chain, dead):
        for node in chain.nodes:
            before = rows(node), node.position
            with pytest.raises(StateError, match='"n5" is a leaf: only a branch can become root'):
                move(chain, "n1", "n5", dead_root=True, dead=tuple(sorted(dead - {"n1"})))
            assert (rows(node), node.position) == before
    root = chain["n1"]
    with alive(chain) as life:  # all come back as they were
        write_on(chain, life, root, 10, set(KINDS))
    require_history(chain, root, set(KINDS), since)


def root_gone(five: Five, chain: Chain, dead: frozenset[str]) -> None:
    """A branch becomes root with what is left; what is not left is kept when it comes back."""
    left = sorted({"n2", "n3", "n4"} - dead)
    new, last = left[0], max(HAS[name] for name in left)
    survivors = set(KINDS) - dead
    others, since = tuple(sorted(dead - {"n1"})), five.ticks[1]
    with some_gone(chain, dead), alive(chain) as life:
        move(chain, "n1", new, dead_root=True, dead=others, timeout=PATIENCE)
        root = chain[new]
        assert open_roots(chain) == [new]
        assert sorted(rows(root)) == list(range(1, last + 1))
        # the leaf has applied what no branch had: it is refused, and not followed
        names = survivors - {"n5"}
        write_on(chain, life, root, 10, names)
        require_history(chain, root, names, since)
        if "n5" in survivors:
            assert 10 not in rows(chain["n5"])
            assert until(lambda: any("rejoin" in told for _, told in life.errors), PATIENCE)
    has = dict(HAS)
    with alive(chain) as life:
        for name in sorted(dead - {"n5"}):
            has[name] = bring_back(five, chain, name, new, last)
        names = set(KINDS) - {"n5"}
        write_on(chain, life, chain[new], 11, names)
    assert open_roots(chain) == [new]
    for name in names:
        behind = set(range(last + 1, has[name] + 1))
        lost = behind if name in dead else set()
        assert set(rows(chain[name])) == set(range(1, last + 1)) | {10, 11} | lost, name
        kept = [json.loads(e.ev_data or "") for e in get_lost_events(chain[name].db, QUEUE)]
        assert [row["id"] for row in kept] == sorted(lost), name


def bring_back(five: Five, chain: Chain, name: str, new: str, last: int) -> int:
    """Let a node come back into a set that has another root; rows that only it had stay. Returns
    the last row of the old root that it has.

    The old root is the first one: until it knows that it was replaced, others that are back read on
    from it, so how far they have come is not known before.
    """
    node, tick = chain[name], five.ticks[last]
    has = max(row for row in rows(node) if row < 10)
    if provider(chain, name) == new:
        return has  # it reads on by itself
    with node.session() as session:
        if name != "n1" and node.position <= tick:
            change_provider(session, new)
            return has
        seen = resurrect(session, ResurrectOptions(dry_run=True))
        assert (seen.root, seen.events, seen.done) == (new, max(0, has - last), False)
        done: Resurrected = resurrect(session, ResurrectOptions(keep_rows=True))
        assert (done.root, done.tick, done.events) == (new, tick, max(0, has - last))
        assert resurrect(session, ResurrectOptions(keep_rows=True)).tick is None, "it is done"
    return has
