"""No superuser on either side: the owner of the databases sets everything up and runs it.

These are the rights of docs/reference/privileges.md, no more: the test reads the statements there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.pg import VERSIONS
from vedur import db as vdb
from vedur.demo.lab import Lab
from vedur.demo.story import content

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "privileges.md"


def statements(heading: str) -> str:
    """The SQL block below a heading of the page."""
    part = PAGE.read_text().split(f"## {heading}\n", 1)[1]
    found = re.search(r"```sql\n(.*?)```", part, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    lab.server("root", VERSIONS[min(VERSIONS)])
    lab.server("leaf", VERSIONS[max(VERSIONS)])
    for side in ("root", "leaf"):
        lab.psql(side, "postgres", statements("One role that owns the database"))
    yield lab
    lab.close()


def test_the_owner_of_the_databases_is_enough(lab: Lab, tmp_path: Path) -> None:
    root = lab.servers["root"].connstr("shop", "replicator")
    leaf = lab.servers["leaf"].connstr("shop", "replicator")
    with vdb.connect(root) as db:
        assert db.value("select rolsuper from pg_roles where rolname = current_user") is False
    table = (
        "create table orders (id int primary key, note text, price numeric);"
        "create table lines (id int primary key, order_id int references orders, n int);"
        "create index on lines (order_id)"
    )
    for side in ("root", "leaf"):
        lab.psql(side, "shop", table, user="replicator")
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
    names = ["public.orders", "public.lines"]
    lab.londiste("src", "add-table", *names)
    lab.londiste("dst", "add-table", *names)
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
    with vdb.connect(root) as source, vdb.connect(leaf) as target:
        for name in names:
            assert content(source, name, "true") == content(target, name, "true"), name
    assert lab.londiste("dst", "compare", timeout=240).returncode == 0
    assert "ERR" not in lab.londiste("dst", "status").stdout
