"""No superuser on either side: the owner of the databases sets everything up and runs it.

These are the rights of docs/reference/privileges.md, no more: the test reads the statements there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from vedur import db as vdb
from vedur.demo.lab import Lab
from vedur.demo.story import content

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "privileges.md"


def blocks(heading: str) -> list[str]:
    """The SQL blocks below a heading of the page."""
    part = PAGE.read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found: list[str] = re.findall(r"```sql\n(.*?)```", part, re.DOTALL)
    assert found
    return found


TABLES = (
    "create table orders (id int primary key, note text, price numeric);"
    "create table lines (id int primary key, order_id int references orders, n int);"
    "create index on lines (order_id)"
)
NAMES = ["public.orders", "public.lines"]


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab(new_place("vedur-lab-"))
    lab.server("root", VERSIONS[min(VERSIONS)])
    lab.server("leaf", VERSIONS[max(VERSIONS)])
    yield lab
    lab.close()


def same(root: str, leaf: str) -> None:
    with vdb.connect(root) as source, vdb.connect(leaf) as target:
        for name in NAMES:
            assert content(source, name, "true") == content(target, name, "true"), name


@pytest.mark.draw("programs")
def test_the_owner_of_the_databases_is_enough(lab: Lab, tmp_path: Path) -> None:
    (block,) = blocks("One role that owns the database")
    for side in ("root", "leaf"):
        lab.psql(side, "postgres", block)
    root = lab.servers["root"].connstr("shop", "replicator")
    leaf = lab.servers["leaf"].connstr("shop", "replicator")
    with vdb.connect(root) as db:
        assert db.value("select rolsuper from pg_roles where rolname = current_user") is False
    for side in ("root", "leaf"):
        lab.psql(side, "shop", TABLES, user="replicator")
    fill = (
        "insert into orders select i, 'note ' || i, i / 7.0 from generate_series(1, 5000) i;"
        "insert into lines select i, 1 + i % 5000, i from generate_series(1, 10000) i"
    )
    lab.psql("root", "shop", fill, user="replicator")

    lab.worker_ini("src", root)
    lab.worker_ini("dst", leaf, {"parallel_copies": "2"})
    host = lab.servers["root"]
    lab.ticker_ini(
        "root",
        {
            "base_connstr": f"host=127.0.0.1 port={host.port} user=replicator",
            "database_list": "shop",
            "initial_database": "shop",
        },
    )
    lab.londiste("src", "create-root", "src", root)
    lab.londiste("dst", "create-leaf", "dst", leaf, f"--provider={root}")
    lab.start_ticker()
    lab.start_worker("src")
    lab.start_worker("dst")
    lab.londiste("src", "add-table", *NAMES)
    lab.londiste("dst", "add-table", *NAMES)
    lab.londiste("dst", "wait-sync", timeout=240)
    change = (
        "update orders set note = note || '!' where id % 3 = 0; delete from lines where id < 50;"
        "begin; truncate lines; insert into lines values (1, 1, 1); commit"
    )
    lab.psql("root", "shop", change, user="replicator")
    script = tmp_path / "add.sql"
    script.write_text("alter table public.orders add column c int default 7;\n")
    lab.londiste("src", "execute", str(script))
    lab.psql("root", "shop", "update orders set c = id where id < 100", user="replicator")
    lab.londiste("dst", "wait-root", timeout=240)
    same(root, leaf)
    assert lab.londiste("dst", "compare", timeout=240).returncode == 0
    assert "ERR" not in lab.londiste("dst", "status").stdout


@pytest.mark.draw("programs")
def test_a_worker_with_less(lab: Lab) -> None:
    """A superuser installs and makes the nodes; the leaf's worker has the rights of the table."""
    provider, subscriber = blocks("A worker with fewer rights")
    dba = {side: lab.servers[side].connstr("shop") for side in ("root", "leaf")}
    work = {side: lab.servers[side].connstr("shop", "worker") for side in ("root", "leaf")}
    for side in ("root", "leaf"):
        lab.psql(side, "postgres", "create role worker login; create database shop")
        lab.psql(side, "shop", TABLES)
    fill = (
        "insert into orders select i, 'note ' || i, i / 7.0 from generate_series(1, 500) i;"
        "insert into lines select i, 1 + i % 500, i from generate_series(1, 1000) i"
    )
    lab.psql("root", "shop", fill)
    lab.worker_ini("src", dba["root"])
    lab.worker_ini("dba", dba["leaf"])
    lab.worker_ini("dst", work["leaf"])
    lab.ticker_ini("root")
    lab.londiste("src", "create-root", "src", work["root"])
    lab.londiste("dba", "create-leaf", "dst", work["leaf"], f"--provider={dba['root']}")
    lab.psql("root", "shop", provider)
    lab.psql("leaf", "shop", subscriber)
    lab.start_ticker()
    lab.start_worker("src")
    lab.londiste("src", "add-table", *NAMES)
    lab.start_worker("dst")
    lab.londiste("dst", "add-table", *NAMES, "--where=id > 0")
    lab.londiste("dst", "wait-sync", timeout=100)
    change = (
        "update orders set note = note || '!' where id % 3 = 0; delete from lines where id < 50;"
        "begin; truncate lines; insert into lines values (1, 1, 1); commit"
    )
    lab.psql("root", "shop", change)
    lab.londiste("dst", "wait-root", timeout=240)
    same(dba["root"], dba["leaf"])
    assert lab.londiste("dst", "compare", timeout=240).returncode == 0
    assert "ERR" not in lab.londiste("dst", "status").stdout
    with vdb.connect(dba["leaf"]) as db:
        text = (
            "select conname from pg_constraint where contype = 'f' and convalidated "
            "and connamespace = 'public'::regnamespace"
        )
        assert [row.conname for row in db.query(text)] == ["lines_order_id_fkey"]
