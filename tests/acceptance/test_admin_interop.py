"""Upstream's command line on our SQL and ours on upstream's: mixed sets, node by node."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.pg import Servers
from tests.fixtures.wants import wanting
from tests.labs.upstream import LONDISTE
from vedur import db as vdb
from vedur.demo.lab import program

pytestmark = pytest.mark.skipif(not LONDISTE, reason=wanting("upstream's londiste"))

TABLES = "create schema s; create table s.a (id serial primary key, t text)"


class Pair:
    """A root and a leaf, each with the command line and the SQL of one of the two makers."""

    def __init__(self, base: Path, root: vdb.Database, leaf: vdb.Database) -> None:
        self.root, self.leaf = root, leaf
        self.inis = {}
        for name, db in (("src", root), ("dst", leaf)):
            db.execute(TABLES)
            lines = [f"job_name = {name}", f"db = {db.connstr}", "queue_name = replika"]
            for section in ("londiste", "londiste3"):
                path = base / f"{name}.{section}.ini"
                path.write_text("\n".join([f"[{section}]", *lines, f"pidfile = {base}/{name}.pid"]))
                self.inis[name, section] = str(path)

    def theirs(self, node: str, *args: str) -> str:
        return self._run([LONDISTE, self.inis[node, "londiste"], *args])

    def ours(self, node: str, *args: str) -> str:
        return self._run([program("londiste3"), self.inis[node, "londiste3"], *args])

    @staticmethod
    def _run(command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def make_pair(
    servers: Servers, make_db_on: Callable[..., vdb.Database], tmp_path: Path
) -> Callable[[str, str], Pair]:
    def make(root: str, leaf: str) -> Pair:
        server = servers.get(15)
        return Pair(
            tmp_path,
            make_db_on(server, root, autocommit=True),
            make_db_on(server, leaf, autocommit=True),
        )

    return make


def tables(db: vdb.Database) -> list[tuple[object, ...]]:
    rows = db.query("select table_name, local, merge_state from londiste.get_table_list('replika')")
    return [tuple(row) for row in rows]


@pytest.mark.draw("programs")
def test_upstreams_leaf_below_our_root(make_pair: Callable[[str, str], Pair]) -> None:
    pair = make_pair("bare", "upstream")
    pair.ours("src", "create-root", "src", pair.root.connstr)
    said = pair.theirs(
        "dst", "create-leaf", "dst", pair.leaf.connstr, f"--provider={pair.root.connstr}"
    )
    assert 'Node "dst" initialized for queue "replika" with type "leaf"' in said
    pair.ours("src", "add-table", "s.a")
    assert "Table added: s.a" in pair.theirs("dst", "add-table", "s.a")
    pair.ours("src", "add-seq", "s.a_id_seq")
    assert "Sequence added: s.a_id_seq" in pair.theirs("dst", "add-seq", "s.a_id_seq")
    assert tables(pair.leaf) == [("s.a", True, None)]
    mine, other = pair.ours("src", "status"), pair.theirs("src", "status")
    assert "+--dst (leaf)" in mine
    assert mine.count("Tables: 1/0/0") == other.count("Tables: 1/0/0") == 1
    assert mine.count("Tables: 0/1/0") == other.count("Tables: 0/1/0") == 1
    assert pair.ours("src", "tables") == pair.theirs("src", "tables")
    assert "Node dropped" in pair.ours("src", "drop-node", "dst")
    assert pair.leaf.query("select 1 from pgq_node.node_info") == []


@pytest.mark.draw("programs")
def test_our_leaf_below_upstreams_root(make_pair: Callable[[str, str], Pair]) -> None:
    pair = make_pair("upstream", "bare")
    pair.theirs("src", "create-root", "src", pair.root.connstr)
    pair.ours("dst", "create-leaf", "dst", pair.leaf.connstr, f"--provider={pair.root.connstr}")
    pair.theirs("src", "add-table", "s.a")
    assert "Table added: s.a" in pair.ours("dst", "add-table", "s.a")
    pair.theirs("src", "add-seq", "s.a_id_seq")
    assert "Sequence added: s.a_id_seq" in pair.ours("dst", "add-seq", "s.a_id_seq")
    assert tables(pair.leaf) == [("s.a", True, None)]
    for command in ("tables", "seqs", "members", "missing"):
        assert pair.ours("dst", command) == pair.theirs("dst", command), command
    script = Path(pair.inis["src", "londiste"]).with_name("x.sql")
    script.write_text("alter table s.a add column c1 int;\n")
    assert "Execute finished: x.sql" in pair.theirs("src", "execute", str(script))
    assert "already applied, skipping" in pair.ours("src", "execute", str(script))


def test_one_node_served_by_both(make_pair: Callable[[str, str], Pair]) -> None:
    """Either command line sees what the other did, on either SQL."""
    pair = make_pair("bare", "upstream")
    pair.ours("src", "create-root", "src", pair.root.connstr)
    pair.theirs("src", "add-table", "s.a")
    assert "s.a already processed" in pair.ours("src", "add-table", "s.a")
    assert pair.ours("src", "tables") == pair.theirs("src", "tables")
    assert "Table removed: s.a" in pair.theirs("src", "remove-table", "s.a")
    assert pair.ours("src", "tables") == ""
