"""docs/how-to/write-a-handler.md: its files are written, its commands run, rows arrive as it says.

What the page tells the reader to imagine is here: tables, and two roots that change one of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_tutorial import BLOCK
from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from vedur import db as vdb
from vedur.demo.lab import Lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.draw("programs"),
    pytest.mark.timeout(1200),
]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-handler.md"
COMMAND = re.compile(r"^    (londiste3 .*)$", re.M)
FUNCTION = re.compile(r"^    (create function .*?) \.\.\.$", re.M | re.S)
PATIENCE = 300.0
USERS = "create table users (id int primary key, mail text, password text)"
ORDERS = "create table orders (id int primary key, region text)"
CHANGED = "create table orders (id int primary key, v text, changed_at timestamptz)"
#: What the page leaves out of its function.
BODY = """ language sql as $$
    insert into note.taken values (conf, ev_extra1);
    select 'noted'::text;
$$"""


#: Leaf -> databases of its root and its own: `one` and `two` bring the same table together.
NODES = {"dst": ("src", "copy"), "one": ("root1", "both"), "two": ("root2", "both")}


class Site:
    """The nodes of the page, without workers."""

    def __init__(self, lab: Lab, line: str) -> None:
        self.lab = lab
        lab.server("site", VERSIONS[max(VERSIONS)])
        databases = dict.fromkeys(name for pair in NODES.values() for name in pair)
        self.connstr = {name: lab.database("site", name, "app") for name in databases}
        lab.ticker_ini("site", {"check_period": "1", "syslog": "0"})
        spark = "[spark]\nspark.master = local[4]\n"
        for leaf, (root, here) in NODES.items():
            key, _, value = line.partition(" = ")
            extra = {"loop_delay": "0.2"} | ({key: value} if leaf == "dst" else {})
            lab.worker_ini(f"{leaf}_root", self.connstr[root], queue=leaf)
            lab.worker_ini(leaf, self.connstr[here], extra, spark, leaf)
            lab.londiste(f"{leaf}_root", "create-root", f"{leaf}_root", self.connstr[root])
            provider = f"--provider={self.connstr[root]}"
            lab.londiste(leaf, "create-leaf", f"{leaf}_leaf", self.connstr[here], provider)
        lab.start_ticker()

    def sql(self, text: str, *databases: str) -> None:
        for name in databases:
            with vdb.connect(self.connstr[name], autocommit=True) as db:
                db.execute(text)

    def rows(self, name: str, text: str) -> list[str]:
        with vdb.connect(self.connstr[name]) as db:
            return sorted(row[0] for row in db.query(f"select x::text from ({text}) x"))

    def wait(self, true: Callable[[], object], what: str) -> None:
        self.lab.wait(true, what, PATIENCE)

    def type(self, command: str) -> str:
        """Run a command of the page in the directory of the ini files."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.lab.base / "ini",
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab(new_place("vedur-lab-"))
    try:
        yield lab
    finally:
        lab.close()


def test_the_commands_of_the_page(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text("utf-8")
    for _, file, body in BLOCK.findall(page):
        if file:
            (tmp_path / file).write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    mask, show, region, applyfn, one, two = COMMAND.findall(page)
    (line,) = re.findall(r"^    (handler_modules = .*)$", page, re.M)
    site = Site(lab, line)

    site.sql(USERS, "src")
    site.sql(ORDERS, "src", "copy")
    site.sql("insert into users values (1, 'ann@x.is', 'p')", "src")
    site.sql("insert into orders values (1, 'eu'), (2, 'us')", "src")
    lab.londiste("dst_root", "add-table", "users", "orders")
    site.sql(CHANGED, "root1", "root2", "both")
    site.sql("insert into orders values (1, 'first', '2026-01-01')", "root1", "root2")
    lab.londiste("one_root", "add-table", "orders")
    lab.londiste("two_root", "add-table", "orders")
    inis = [str(lab.inis[name]) for name in NODES]
    lab.run("londiste3", "-d", *inis, "worker", timeout=PATIENCE)

    # A function, and a class.
    for name in NODES:
        lab.londiste(name, "wait-root")  # it knows of the tables
    site.type(mask)
    assert "region" in site.type(show)
    site.type(region)
    lab.londiste("dst", "wait-sync", timeout=PATIENCE)
    assert site.rows("copy", "select id, mail from users") == ["(1,someone@x.is)"]
    assert site.rows("copy", "select * from orders") == ["(1,eu)"]
    site.sql("update users set mail = 'bob@x.is'; update orders set region = 'eu'", "src")
    site.wait(lambda: len(site.rows("copy", "select * from orders")) == 2, "the order that moved")
    site.sql("insert into users values (2, 'cid@y.is', 'q')", "src")
    want = ["(1,someone@x.is)", "(2,someone@y.is)"]
    site.wait(lambda: site.rows("copy", "select id, mail from users") == want, "changed users")

    # A function of the database.
    lab.londiste("dst", "remove-table", "orders")
    site.sql("create schema note; create table note.taken (conf text, name text)", "copy")
    (function,) = FUNCTION.findall(page)
    site.sql(function + BODY, "copy")
    site.type(applyfn)
    lab.londiste("dst", "wait-sync", timeout=PATIENCE)
    site.sql("insert into orders values (3, 'us'); delete from orders where id = 1", "src")
    taken = ["(x,public.orders)"] * 2
    site.wait(lambda: site.rows("copy", "select * from note.taken") == taken, "noted events")
    assert site.rows("copy", "select id from orders") == ["(1)", "(2)"]

    # Two roots.
    site.type(one)
    lab.londiste("one", "wait-sync", timeout=PATIENCE)
    site.type(two)
    lab.londiste("two", "wait-sync", timeout=PATIENCE)
    site.sql("update orders set v = 'later', changed_at = '2026-01-03'", "root1")
    site.wait(lambda: site.rows("both", "select v from orders") == ["(later)"], "the first root")
    site.sql("update orders set v = 'earlier', changed_at = '2026-01-02'", "root2")
    site.sql("insert into orders values (2, 'of two', '2026-01-01')", "root2")
    want = ["(1,later)", '(2,"of two")']
    site.wait(lambda: site.rows("both", "select id, v from orders") == want, "both roots")
