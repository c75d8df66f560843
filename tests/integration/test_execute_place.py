"""A script is at one place of the stream, whatever others write meanwhile (`execute`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.wait import until
from tests.labs.combined import COMBINED, Combined
from tests.labs.combined import make_combined as make_combined
from tests.labs.in_process import quick_leaf
from tests.labs.in_process import without_spark as without_spark
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE, call
from vedur import db as vdb
from vedur import failpoint
from vedur.clock import SystemClock
from vedur.config import LondisteSettings
from vedur.db.settings import kept_settings
from vedur.errors import PrivilegeError, StateError
from vedur.names import quote_ident
from vedur.node.info import NodeType
from vedur.ops.execute.run import execute
from vedur.ops.session import Session

__all__ = ["quick_leaf"]

pytestmark = pytest.mark.timeout(300)

UPDATE = "update orders set v = 1 where status = 'open';"
JOIN = """
alter table public.orders add cname text;
update orders o set cname = c.name from customers c where c.id = o.c;
"""
OPENS = "update orders set status = 'open' where id = 1"


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    failpoint.set_hook(None)


@pytest.fixture
def leaf(quick_leaf: Callable[..., Leaf]) -> Leaf:
    leaf = quick_leaf()
    leaf.pair.table(
        "public.orders",
        "create table orders (id int primary key, c int, status text, v int)",
    )
    leaf.pair.table("public.customers", "create table customers (id int primary key, name text)")
    leaf.root.execute("insert into customers values (1, 'old')")
    leaf.root.execute("insert into orders values (1, 1, 'closed', 0), (2, 1, 'open', 0)")
    leaf.catch_up()
    return leaf


class Other:
    """Another session of the root, which writes in a thread of its own."""

    def __init__(self, leaf: Leaf) -> None:
        self.db = vdb.connect(leaf.root.connstr)
        self.thread = threading.Thread(target=self._write)
        self.text = ""

    def write(self, text: str) -> None:
        """Begin to write, and come back when that waits for somebody, or is done."""
        self.text = text
        self.thread.start()
        pid = self.db.backend_pid
        with vdb.connect(self.db.connstr, autocommit=True) as watch:
            while self.thread.is_alive():
                if watch.value("select pg_blocking_pids(%s) <> '{}'", [pid]):
                    break
                SystemClock().sleep(0.01)

    def _write(self) -> None:
        self.db.execute(self.text)
        self.db.commit()

    def end(self) -> None:
        self.thread.join()
        self.db.close()


def run(
    leaf: Leaf, tmp: Path, script: str | dict[str, str], *, db: str = "", wait: float = 10.0
) -> None:
    scripts = {"s.sql": script} if isinstance(script, str) else script
    for name, text in scripts.items():
        (tmp / name).write_text(text)
    settings = LondisteSettings(
        db=db or leaf.root.connstr, queue_name=QUEUE, job_name="root", lock_timeout=wait
    )
    with Session(settings) as root:
        execute(root, [str(tmp / name) for name in scripts])


def require_same(leaf: Leaf) -> None:
    leaf.catch_up()
    leaf.same("orders")
    leaf.same("customers")


@pytest.mark.parametrize(
    ("script", "write"),
    [
        (UPDATE, OPENS),
        (f"do $$ begin {UPDATE} end $$", OPENS),
        ("-" "-*-- Local-Table: public.orders\nselect mark_open()", OPENS),
        ("update open_orders set v = 1", OPENS),
        ("update customers set name = 'x' from open_orders o where o.id = 1", OPENS),
        (JOIN, "update customers set name = 'new'"),
        ("delete from customers where 'closed' not in (select status from orders)", OPENS),
    ],
    ids=["update", "block", "header", "view", "join a view", "join behind DDL", "not exists"],
)  # fmt: skip
def test_who_writes_meanwhile_comes_behind_it(
    leaf: Leaf, tmp_path: Path, script: str, write: str
) -> None:
    for db in (leaf.root, leaf.leaf):
        db.execute(
            "create view open_orders as select * from orders where status = 'open';"
            f"create function mark_open() returns void language sql as $$ {UPDATE} $$"
        )
    other = Other(leaf)

    def hook(name: str) -> None:
        if name == "execute.run":
            other.write(write)

    failpoint.set_hook(hook)
    run(leaf, tmp_path, script)
    other.end()
    require_same(leaf)
    assert leaf.root.value("select count(*) from orders where status = 'open'") == (
        2 if write is OPENS else 1
    )


@pytest.mark.parametrize("batches", [1, 2])
def test_who_has_begun_to_write_comes_before_it(leaf: Leaf, tmp_path: Path, batches: int) -> None:
    other = vdb.connect(leaf.root.connstr)
    other.execute(OPENS)
    waiting = threading.Event()

    def hook(name: str) -> None:
        if name == "execute.started":
            waiting.set()

    failpoint.set_hook(hook)
    script = threading.Thread(target=run, args=(leaf, tmp_path, UPDATE))
    script.start()
    waiting.wait()
    if batches == 2:
        leaf.catch_up()
    text = "select count(*) from pg_locks where not granted and mode = 'ShareRowExclusiveLock'"
    while script.is_alive() and not leaf.root.value(text):
        SystemClock().sleep(0.01)
    other.commit()
    other.close()
    script.join()
    require_same(leaf)
    assert leaf.root.value("select count(*) from orders where v = 1") == 2


def test_tables_that_it_does_not_name_are_written_to(leaf: Leaf, tmp_path: Path) -> None:
    other = vdb.connect(leaf.root.connstr, autocommit=True)

    def hook(name: str) -> None:
        if name == "execute.run":
            other.execute("update customers set name = 'new'")
            other.query("select * from orders")  # reading goes on everywhere

    failpoint.set_hook(hook)
    run(leaf, tmp_path, UPDATE)
    other.close()
    require_same(leaf)


def test_a_writer_that_does_not_end_is_not_waited_for_long(leaf: Leaf, tmp_path: Path) -> None:
    with vdb.connect(leaf.root.connstr) as other:
        other.execute(OPENS)
        with pytest.raises(
            StateError, match=r'"s.sql" must keep .* public.orders .* 0.2 s \(lock_'
        ):
            run(leaf, tmp_path, UPDATE, wait=0.2)
    assert leaf.root.value("select count(*) from londiste.applied_execute") == 0
    run(leaf, tmp_path, UPDATE, wait=0.2)
    require_same(leaf)


def test_a_role_that_may_not_lock_is_told_what_it_needs(leaf: Leaf, tmp_path: Path) -> None:
    role = f"reader_{leaf.root.backend_pid}"
    leaf.root.execute(f"create role {role} login; grant londiste_writer, pgq_admin to {role}")
    try:
        leaf.root.execute(
            f"grant select on customers to {role}; grant select, update on orders to {role}"
        )
        text = "update public.orders o set v = c.id from public.customers c where c.id = o.c"
        db = f"{leaf.root.connstr} user={role}"
        with pytest.raises(
            PrivilegeError, match=rf'public.customers.*grant update .* to "{role}"$'
        ):
            run(leaf, tmp_path, text, db=db)
        leaf.root.execute(f"grant update on customers to {role}")
        run(leaf, tmp_path, text, db=db)
        require_same(leaf)
    finally:
        leaf.root.execute(f"drop owned by {role}; drop role {quote_ident(role)}")


def test_a_partition_is_locked_by_its_own_name(leaf: Leaf, tmp_path: Path) -> None:
    leaf.pair.table(
        "public.p",
        "create table p (id int primary key, v int) partition by range (id);"
        "create table p1 partition of p for values from (0) to (100);"
        "create table p2 partition of p for values from (100) to (200)",
    )
    leaf.root.execute("insert into p values (1, 0), (2, 1), (101, 0)")
    other, free = Other(leaf), vdb.connect(leaf.root.connstr, autocommit=True)

    def hook(name: str) -> None:
        if name == "execute.run":
            free.execute("update p2 set v = 5")
            other.write("update p set v = 1 where id = 1")

    failpoint.set_hook(hook)
    run(leaf, tmp_path, "update p1 set v = 2 where v = 1")
    other.end()
    free.close()
    leaf.catch_up()
    assert leaf.same("p") == ["(1,1)", "(101,5)", "(2,2)"]


def test_what_a_script_sets_ends_with_it(leaf: Leaf, tmp_path: Path) -> None:
    """Here and on the leaf, whose worker goes on with the batch in the same session."""
    names = [
        "statement_timeout", "lock_timeout", "search_path", "TimeZone", "DateStyle", "array_nulls",
        "role", "session_replication_role",
    ]  # fmt: skip
    for db in (leaf.root, leaf.leaf):
        db.execute("create table seen (name text, setting text)")
    scripts = {
        "1.sql": "set statement_timeout = '7min'; set local lock_timeout = '7min';"
        "set search_path = pg_catalog; set timezone = 'Asia/Tokyo'; set datestyle = 'German';"
        "select set_config('array_nulls', 'off', false);"
        "set local session_replication_role = replica; set role pg_monitor",
        "2.sql": "insert into public.seen select name, current_setting(name)"
        f" from unnest(array{names}::text[]) as name",
    }
    run(leaf, tmp_path, scripts)
    leaf.root.execute("update orders set v = v + 1")
    run(leaf, tmp_path, {"3.sql": scripts["2.sql"]})
    require_same(leaf)
    values = ["0", "0", '"$user", public', "UTC", "ISO, YMD", "on", "none", "local"]
    for db in (leaf.root, leaf.leaf):
        rows = [tuple(row) for row in db.query("select * from seen")]
        assert rows == [*zip(names, values, strict=True)] * 2


@pytest.mark.usefixtures("without_spark")
def test_parts_of_a_combined_queue_wait_for_a_script_of_one(
    make_combined: Callable[..., Combined],
) -> None:
    """There the workers of the other parts are those who write."""
    lab = make_combined()
    lab.add(COMBINED, "d1", NodeType.LEAF, "c1")
    lab.table()
    lab.dbs["p2"].execute("insert into t values (200, 'p2')")
    lab.flow("d1")
    text = "update t set n = 7 where part = 'other'"
    root = lab.dbs["p1"]
    with root.transaction():
        root.execute("set local session_replication_role = local")
        call(root, "londiste.execute_start", "p1", "s.sql", text, True)
        call(root, "londiste.execute_finish", "p1", "s.sql")
    lab.dbs["p2"].execute("update t set part = 'other', n = 1 where id = 200")
    for part in lab.parts:
        lab.tick(part)
    other = threading.Thread(target=lab.work, args=("p2", "c1"))
    blocked = "select count(*) from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0"
    mine = threading.get_ident()

    def hook(name: str) -> None:
        if name == "script.run" and threading.get_ident() == mine:
            failpoint.set_hook(None)
            other.start()
            with vdb.connect(lab.dbs["c1"].connstr, autocommit=True) as watch:
                while other.is_alive() and not watch.value(blocked):
                    SystemClock().sleep(0.01)

    failpoint.set_hook(hook)
    lab.work("p1", "c1")
    other.join()
    lab.tick(COMBINED)
    lab.work(COMBINED, "d1")
    assert lab.rows("c1") == lab.rows("d1") == ["(200,other,1)"]


@pytest.mark.parametrize("kind", ["partitions", "children"])
def test_tables_below_one_that_is_named_are_held(leaf: Leaf, tmp_path: Path, kind: str) -> None:
    """They are of the set, each for itself, and the one above them is not."""
    made = "partition of p for values from ({}) to ({})" if kind == "partitions" else ""
    parent = "create table p (id int not null, v int)"
    for db in (leaf.root, leaf.leaf):
        db.execute(parent + (" partition by range (id)" if made else ""))
    for name, low in (("pa", 0), ("pb", 100)):
        ddl = f"create table {name} {made.format(low, low + 100)}"
        if not made:
            ddl = f"create table {name} () inherits (p)"
        ddl += f"; alter table {name} add primary key (id)"
        leaf.pair.table(f"public.{name}", ddl)
    leaf.root.execute("insert into pa values (1, 0), (2, 1); insert into pb values (101, 1)")
    other = Other(leaf)

    def hook(name: str) -> None:
        if name == "execute.run":
            other.write("update pa set v = 1 where id = 1")

    failpoint.set_hook(hook)
    run(leaf, tmp_path, "update p set v = 2 where v = 1")
    other.end()
    leaf.catch_up()
    assert leaf.same("pa") == ["(1,1)", "(2,2)"]
    assert leaf.same("pb") == ["(101,2)"]


def test_a_new_configuration_is_not_set_back(leaf: Leaf) -> None:
    """What the server reads anew while a script runs was not set by it."""
    asked = "select setting, source from pg_settings where name = 'vacuum_cost_limit'"
    with (
        vdb.connect(leaf.root.connstr, autocommit=True) as admin,
        leaf.root.transaction(),
        kept_settings(leaf.root),
    ):
        admin.execute("alter system set vacuum_cost_limit = 201")
        try:
            admin.value("select pg_reload_conf()")
            assert until(lambda: leaf.root.one(asked).setting == "201", 30.0)
            leaf.root.execute("set work_mem = '5MB'")
        finally:
            admin.execute("alter system reset vacuum_cost_limit")
    assert leaf.root.one(asked).source != "session"
    assert leaf.root.value("show work_mem") != "5MB"
    leaf.root.value("select pg_reload_conf()")
